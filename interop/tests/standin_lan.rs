//! The pool is a part of the gateway's own LAN: hosts there find devices by ARP and neighbour discovery, whether they sleep or not.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result};
use dormouse_interop::ends::{self, PATIENCE, knows_that_it_sleeps};
use dormouse_testbed::{Access, Dormoused, Need, Roaming, require};
use std::net::IpAddr;
use std::time::Instant;

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ping")];
/// The upper half of 10.99.0.0/24, and a part of fd99::/64.
const POOL: &str = "\"10.99.0.128/25\", \"fd99::d:0/112\"";

struct Scene {
    device: Dormoused,
    gateway: Dormoused,
    inner: Vec<IpAddr>,
    world: Roaming,
}

/// `gateway`: lines of the gateway's `[daemon]` section.
fn connected(gateway: &str) -> Result<Scene> {
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let daemon = format!("dns = \"off\"\n{gateway}");
    let gateway = Dormoused::start(&world.gateway, &daemon, &ends::gateway(POOL, ""))?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &ends::device("radio = \"none\""))?;
    // No other way to the devices than over the link.
    world.server.ip("route del default")?;
    world.server.ip("-6 route del default")?;
    device.ok(&["up", "peer"])?;
    let inner = ends::inner(&device)?;
    Ok(Scene { device, gateway, inner, world })
}

impl Scene {
    /// Every address of the device answers on the LAN, to a host that has not spoken with it before.
    fn answers(&self) -> Result<()> {
        self.world.server.ip("neigh flush all")?;
        for address in &self.inner {
            // The kernel answers for others after a delay of up to 0.8 s.
            let ping = format!("ping -c 1 -W 3 {address}");
            self.world.server.eventually(&ping, PATIENCE).with_context(|| self.gateway.log())?;
        }
        Ok(())
    }

    /// What the gateway answers for.
    fn proxies(&self) -> Result<String> {
        let v6 = self.world.gateway.sh("ip -6 neigh show proxy")?;
        Ok(self.world.gateway.sh("ip -4 neigh show proxy")? + &v6)
    }

    fn no_proxies(&self) -> Result<()> {
        self.world
            .gateway
            .eventually("[ -z \"$(ip neigh show proxy; ip -6 neigh show proxy)\" ]", PATIENCE)?;
        Ok(())
    }

    fn asleep(&self) -> Result<()> {
        self.device.ok(&["suspend"])?;
        let end = Instant::now() + PATIENCE;
        while !knows_that_it_sleeps(&self.gateway)? {
            anyhow::ensure!(Instant::now() < end, "{}", self.gateway.log());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        self.world.detach(Access::A)
    }
}

#[test]
fn hosts_of_the_lan_find_a_device_awake_and_asleep_until_it_leaves() -> Result<()> {
    if !require("a pool in the LAN", &NEEDS) {
        return Ok(());
    }
    let scene = connected("")?;
    assert_eq!(scene.inner.len(), 2, "an address of each family: {:?}", scene.inner);
    scene.answers()?;
    let proxies = scene.proxies()?;
    for address in &scene.inner {
        assert!(proxies.lines().any(|l| l.starts_with(&format!("{address} dev lan"))), "{proxies}");
    }
    scene.asleep()?;
    scene.answers()?;
    // An address that is not leased is not answered for.
    let nobody = scene.world.server.sh("ping -c 1 -W 2 10.99.0.250");
    assert!(nobody.is_err(), "answered for an address that is not leased");

    scene.world.attach(Access::A)?;
    scene.device.ok(&["resume"])?;
    scene.answers()?;
    scene.device.ok(&["down", "peer"])?;
    scene.no_proxies()
}

/// As when the device was at another gateway of this network a moment ago.
#[test]
fn hosts_that_know_the_device_at_another_machine_hear_where_it_is_now() -> Result<()> {
    if !require("a device that came over", &NEEDS) {
        return Ok(());
    }
    let Scene { device, gateway, inner, world } = connected("")?;
    device.ok(&["down", "peer"])?;
    for address in &inner {
        world
            .server
            .ip(&format!("neigh replace {address} lladdr 02:00:00:00:00:01 dev eth0 nud reachable"))?;
    }
    let own = world.gateway.sh("cat /sys/class/net/lan/address")?;
    device.ok(&["up", "peer"])?;
    for address in &inner {
        let known = format!("ip neigh show {address} | grep -q 'lladdr {}'", own.trim());
        world.server.eventually(&known, PATIENCE).with_context(|| gateway.log())?;
    }
    Ok(())
}

#[test]
fn a_gateway_leaves_nothing_behind_however_it_ends() -> Result<()> {
    if !require("neighbours after the gateway", &NEEDS) {
        return Ok(());
    }
    let mut scene = connected("")?;
    scene.answers()?;
    let switch = "cat /proc/sys/net/ipv6/conf/lan/proxy_ndp";
    assert_eq!(scene.world.gateway.sh(switch)?.trim(), "1");
    scene.gateway.process().kill();
    scene.no_proxies()?;
    scene.world.gateway.eventually(&format!("[ \"$({switch})\" = 0 ]"), PATIENCE)?;

    // It starts again; the device is back by its ticket, and found again.
    scene.gateway.restart()?;
    scene.device.ok(&["suspend"])?;
    scene.device.ok(&["resume"])?;
    scene.answers()?;
    scene.gateway.process().stop();
    assert_eq!(scene.proxies()?, "");
    assert_eq!(scene.world.gateway.sh(switch)?.trim(), "0");
    assert!(!scene.world.gateway.sh("ip rule show")?.contains("10.99.0.128/25"), "a rule stays");
    Ok(())
}

#[test]
fn a_gateway_that_may_not_answer_for_others_does_not() -> Result<()> {
    if !require("no neighbours", &NEEDS) {
        return Ok(());
    }
    let scene = connected("proxy_neighbours = \"off\"")?;
    assert_eq!(scene.proxies()?, "");
    let address = scene.inner.iter().find(|a| a.is_ipv4()).context("no IPv4 address")?;
    assert!(scene.world.server.sh(&format!("ping -c 1 -W 2 {address}")).is_err(), "an answer came");
    // With a way there it does answer: only ARP was missing.
    scene.world.server.ip(&format!("route add {address} via 10.99.0.1"))?;
    scene.world.server.eventually(&format!("ping -c 1 -W 3 {address}"), PATIENCE)?;
    Ok(())
}
