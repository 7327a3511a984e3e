//! A shipped access router between a bad radio and a gateway. All three ends are real daemons, and TCP is the kernel's: with header keys from
//! the gateway the router repairs the radio, without them it forwards, and they go when the gateway takes them back.
//!
//! ```text
//!   gateway 10.78.0.1 ── wire ── 10.78.0.2 access router 10.77.0.1 ── radio with bit errors ── device 10.77.0.2
//! ```

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context as _, Result, bail};
use dormouse_interop::ends::PATIENCE;
use dormouse_netem::LinkConfig;
use dormouse_testbed::radio::{self, ADDRESSES, INTERFACE, Radio, Settings};
use dormouse_testbed::{Dormoused, Host, Need, Testbed, require};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
const GATEWAY: &str = "10.78.0.1";
/// What is behind the gateway.
const SERVER: &str = "10.99.0.2";
/// Of the radio, in bits in a second.
const RATE: u64 = 4_000_000;
const FILE: u64 = 1_000_000;
const DAEMON: &str = "dns = \"off\"\nlog = \"info,dormouse_node=debug\"";

/// The two ends of a connection know each other by a secret.
fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}.test\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}.test\"\n{secret}\n"
    )
}

/// `routers`: those that may have header keys.
fn gateway_file(routers: &str) -> String {
    "[connection.office]\nrole = \"gateway\"\n".to_owned()
        + &auth("office", "gateway", "device")
        + "[connection.office.pool]\naddresses = [\"10.55.0.0/24\"]\n[connection.office.child]\nlocal = [\"10.99.0.0/24\"]\n\
           remote = [\"dynamic\"]\nprotection = \"zoned\"\n"
        + &format!("[connection.office.child.zones]\nrouters = [{routers}]\n")
        + "[connection.r1]\nrole = \"gateway\"\n"
        + &auth("r1", "gateway", "r1")
        + "[connection.r1.keys]\npeer = \"router\"\n"
        // Where it serves means nothing if it may have no keys.
        + if routers.is_empty() { "" } else { "serves = [\"10.77.0.0/24\"]\n" }
}

fn router_file(repair: &str) -> String {
    format!(
        "[router]\ndevice = \"{INTERFACE}\"\nnetwork = \"net0\"\nrepair = \"{repair}\"\nrate_kbit = {}\n\
         [connection.gw]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\nauto = true\n[connection.gw.keys]\npeer = \"gateway\"\n",
        RATE / 1_000
    ) + &auth("gw", "r1", "gateway")
}

fn device_file(reports: bool) -> String {
    format!("[connection.office]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n")
        + &auth("office", "device", "gateway")
        + "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\nprotection = \"zoned\"\n"
        + &format!("zones = {{ reports = {reports} }}\n")
}

struct World {
    device: Dormoused,
    router: Dormoused,
    gateway: Dormoused,
    hosts: [Host; 3],
    radio: Radio,
    // Last: namespaces go after what works in them.
    _bed: Testbed,
}

impl World {
    /// The device is up.
    fn new(routers: &str, repair: &str) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let hosts = [bed.host("gateway")?, bed.host("router")?, bed.host("device")?];
        let [gateway, router, device] = &hosts;
        bed.link((gateway, "eth0", &["10.78.0.1/24"]), (router, "net0", &["10.78.0.2/24"]))?;
        let link = LinkConfig {
            rate: Some(RATE),
            delay: Duration::from_millis(2),
            queue: 64_000,
            bit_error_rate: 1.0 / (256.0 * 1_024.0),
            ..LinkConfig::default()
        };
        let wire_delay = Duration::from_millis(3);
        let radio = Radio::start(
            Settings { wire_delay, radio: link, seed: 3, ..Settings::default() },
            router,
            device,
        )?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        gateway.ip("route add 10.77.0.0/24 via 10.78.0.2")?;
        gateway.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        device.ip(&format!("route add default via {}", ADDRESSES[0][0]))?;
        let gateway = Dormoused::start(gateway, DAEMON, &gateway_file(routers))?;
        let router = Dormoused::start(router, DAEMON, &router_file(repair))?;
        let device = Dormoused::start(device, DAEMON, &device_file(repair == "esp-arq"))?;
        let world = Self { device, router, gateway, hosts, radio, _bed: bed };
        world.up()?;
        Ok(world)
    }

    fn up(&self) -> Result<()> {
        self.device.ok(&["up", "office"]).with_context(|| self.logs())?;
        Ok(())
    }

    fn logs(&self) -> String {
        format!("gateway:\n{}\nrouter:\n{}", self.gateway.log(), self.router.log())
    }

    /// The router's own part of its status.
    fn router(&self) -> Result<Value> {
        let status = self.router.ok(&["status", "--json"])?;
        status.json.pointer("/result/status/router").cloned().context(status.text)
    }

    /// Waits until the router has so many SAs' keys.
    fn keys(&self, count: usize) -> Result<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.router()?;
            if status["keys"].as_array().map(Vec::len) == Some(count) {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("{count} keys were awaited: {status}\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the gateway has heard so often that the router takes no keys.
    fn refused(&self, times: usize) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.gateway.log().matches("keys refused").count() < times {
            if Instant::now() > until {
                bail!("keys were to be refused {times} times\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The device fetches a file from behind the gateway, byte for byte; what the router did meanwhile.
    fn fetch(&self) -> Result<Did> {
        let before = self.router()?;
        let [gateway, _, device] = &self.hosts;
        let server = SERVER.parse()?;
        radio::transfer(gateway, device, server, "cubic", FILE, PATIENCE, &Arc::default())
            .with_context(|| self.logs())?;
        let after = self.router()?;
        let grown = |key: &str| Some(after[key].as_u64()? - before[key].as_u64()?);
        let all = || {
            Some(Did {
                to_device: grown("to_device")?,
                to_network: grown("to_network")?,
                repeated: grown("repeated")?,
                read: grown("read")?,
                asked: grown("asked")?,
                reports: grown("reports")?,
            })
        };
        all().with_context(|| format!("no counters: {after}"))
    }
}

#[derive(Debug)]
struct Did {
    to_device: u64,
    to_network: u64,
    repeated: u64,
    read: u64,
    asked: u64,
    reports: u64,
}

#[test]
fn with_header_keys_the_router_repairs_the_radio_and_they_go_when_revoked() -> Result<()> {
    if !require("an access router with keys", &NEEDS) {
        return Ok(());
    }
    let mut world = World::new("\"r1.test\"", "snoop")?;
    let status = world.keys(1)?;
    assert_eq!(status["keys"][0]["state"], "fit", "{status}");
    let gateway = world.gateway.ok(&["status"])?.text;
    assert!(gateway.contains("r1.test: held"), "{gateway}");
    let did = world.fetch()?;
    assert!(did.repeated > 10 && did.read >= did.to_device / 2, "{did:?}");
    assert!(did.to_device > FILE / 1_500 && did.to_network > 0, "{did:?}");
    // The keys of the tunnel are the ends' own: nothing in its log or status says what they are, and the router holds no session with the device.
    let text = world.router.ok(&["status"])?.text;
    assert!(text.contains("router  radio0 - net0") && text.contains(": fit"), "{text}");

    // A router that has lost its keys gets them again, and goes on repairing.
    world.router.restart()?;
    world.keys(1)?;
    assert!(world.fetch()?.repeated > 10);

    // The device ends its session: its gateway takes them back.
    world.device.ok(&["down", "office"])?;
    let status = world.keys(0)?;
    assert_eq!(status["keys"], serde_json::json!([]), "{status}");
    assert!(world.router.log().contains("header keys were taken back"), "{}", world.router.log());

    // They are not kept by the gateway for another one: a new session has new ones.
    world.up()?;
    let again = world.keys(1)?;
    assert_eq!(again["keys"][0]["state"], "fit", "{again}");
    Ok(())
}

#[test]
fn without_header_keys_it_forwards_and_repairs_nothing() -> Result<()> {
    if !require("an access router without keys", &NEEDS) {
        return Ok(());
    }
    // The gateway serves the router, but does not name it for these zones.
    let world = World::new("", "snoop")?;
    let did = world.fetch()?;
    assert_eq!((did.repeated, did.read), (0, 0), "{did:?}");
    assert!(did.to_device > FILE / 1_500, "all of it went through the router: {did:?}");
    let status = world.router()?;
    assert!(status["asked"].as_u64() > Some(0), "it says what it misses: {status}");
    assert_eq!((&status["keys"], did.asked < 20), (&serde_json::json!([]), true), "{status}");
    Ok(())
}

/// Datagrams that look like the SA's own, from somebody who has seen its SPI: numbers ahead, near, and of a report.
fn forge(world: &World, spi: u32, stop: &Arc<AtomicBool>) -> Result<std::thread::JoinHandle<u32>> {
    let socket = world.hosts[0].run(|| std::net::UdpSocket::bind("10.78.0.1:0"))??;
    let stop = stop.clone();
    Ok(std::thread::spawn(move || {
        let mut sent = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            for number in [0, sent, sent.wrapping_add(400), sent.wrapping_mul(2_654_435_761)] {
                let mut forged = [spi.to_be_bytes(), number.to_be_bytes()].concat();
                forged.resize(90, 7);
                sent += u32::from(socket.send_to(&forged, (ADDRESSES[1][0], 4_500)).is_ok());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        sent
    }))
}

#[test]
fn by_the_numbers_of_esp_it_repairs_all_traffic_and_forgers_stop_nothing() -> Result<()> {
    if !require("an access router with reports", &NEEDS) {
        return Ok(());
    }
    let mut world = World::new("\"r1.test\"", "esp-arq")?;
    let status = world.keys(1)?;
    let did = world.fetch()?;
    assert!(did.repeated > 10 && did.reports > 50, "{did:?}");
    assert!(world.device.log().contains("an access router repairs the radio"), "{}", world.device.log());
    let text = world.router.ok(&["status"])?.text;
    assert!(text.contains("esp-arq:") && text.contains("reports; 1 SAs"), "{text}");

    // To whom packets of this SPI go is in clear.
    let spi = status["keys"][0]["spi"].as_str().and_then(|spi| spi.split(' ').next()).context("an SPI")?;
    let stop = Arc::default();
    let forger = forge(&world, u32::from_str_radix(spi, 16)?, &stop)?;
    let did = world.fetch();
    stop.store(true, Ordering::Relaxed);
    let forged = forger.join().ok().context("the forger")?;
    let did = did?;
    assert!(forged > 100 && did.repeated > 10 && did.reports > 50, "{forged} forged: {did:?}");

    // A router that does not repair is noticed, and one that does again.
    world.router.restart()?;
    world.keys(1)?;
    let did = world.fetch()?;
    assert!(did.repeated > 10, "{did:?}");
    Ok(())
}

#[test]
fn a_device_that_reports_to_no_router_loses_nothing_by_it() -> Result<()> {
    if !require("reports to no router", &NEEDS) {
        return Ok(());
    }
    let mut world = World::new("\"r1.test\"", "esp-arq")?;
    world.keys(1)?;
    world.router.process().stop();
    let [gateway, _, device] = &world.hosts;
    radio::transfer(gateway, device, SERVER.parse()?, "cubic", FILE / 8, PATIENCE, &Arc::default())
        .with_context(|| world.logs())?;
    assert!(!world.device.log().contains("an access router repairs"), "{}", world.device.log());
    Ok(())
}

#[test]
fn a_router_that_ends_leaves_forwarding_to_the_kernel() -> Result<()> {
    if !require("the end of an access router", &NEEDS) {
        return Ok(());
    }
    let mut world = World::new("\"r1.test\"", "none")?;
    let did = world.fetch()?;
    assert_eq!((did.repeated, did.read), (0, 0), "{did:?}");
    // It has no use for keys, so it takes none: those that it had it could pass on unseen.
    world.refused(1)?;
    let ping = format!("ping -c 1 -W 1 {SERVER}");
    let rules = || world.hosts[1].sh("ip rule show; ip -6 rule show");
    assert!(rules()?.contains(&format!("iif {INTERFACE}")), "{}", rules()?);
    world.hosts[2].eventually(&ping, PATIENCE)?;
    // Killed: it could undo nothing.
    world.router.process().kill();
    world.hosts[2].eventually(&ping, PATIENCE)?;
    world.router.restart()?;
    assert!(world.radio.works());
    world.router.ok(&["wait", "gw", "--timeout", "30"])?;
    world.refused(2)?;
    world.router.process().stop();
    assert!(!rules()?.contains("iif"), "{}", rules()?);
    world.hosts[2].eventually(&ping, PATIENCE)?;
    Ok(())
}
