//! Transport mode between our own daemons, with one NAT and with two between them: what the two hosts say to each other is protected,
//! in either direction, by the address under which each knows the other.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Result, ensure};
use dormouse_testbed::{
    Access, Dormoused, EchoServer, GATEWAY, Host, LongLived, Need, Prober, Roaming, require,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
/// Where the NAT before the gateway takes packets for it.
const FRONT: &str = "203.0.113.80";
/// What the NAT before the device has, and what it has after it was replaced.
const NAT: &str = "198.51.100.6";
const NEW_NAT: &str = "198.51.100.9";
const PORT: u16 = 7777;
const PATIENCE: Duration = Duration::from_secs(20);

struct Hosts {
    device: Dormoused,
    gateway: Dormoused,
    world: Roaming,
}

fn end(role: &str, address: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{address}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n\
         [connection.peer.remote]\nid = \"{peer}\"\n{secret}\n[connection.peer.child]\nmode = \"transport\"\nrekey = 10\n"
    )
}

/// A device behind a NAT, and a gateway that it reaches at `address`.
fn hosts(address: &str) -> Result<Hosts> {
    let world = Roaming::new(60)?;
    world.attach(Access::B)?;
    if address == FRONT {
        world.core.nft(&format!(
            "table ip front {{ chain pre {{ type nat hook prerouting priority -100; ip daddr {FRONT} dnat to {GATEWAY}; }}; }}"
        ))?;
    }
    world.core.ip(&format!("route add {NEW_NAT} via {NAT}"))?;
    world.core.nft(
        "table ip seen { chain forward { type filter hook forward priority 0;\n\
         icmp type { echo-request, echo-reply } counter\n ip protocol tcp counter\n udp dport 7777 counter\n udp sport 7777 counter\n\
         udp dport 4500 counter\n }\n }\n",
    )?;
    let device = end("client", &format!("gateway = \"{address}\""), "device.test", "gateway.test");
    let gateway =
        Dormoused::start(&world.gateway, "dns = \"off\"", &end("gateway", "", "gateway.test", "*.test"))?;
    let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
    device.ok(&["up", "peer"])?;
    let status = device.ok(&["status", "--json"])?.text;
    ensure!(status.contains("\"mode\":\"transport\""), "{status}");
    Ok(Hosts { device, gateway, world })
}

impl Hosts {
    /// TCP that lives until it is asked to end, and UDP, from one host to an echo server of the other at `address`.
    fn talks(&self, from: &Host, echo: &EchoServer, address: &str) -> Result<LongLived> {
        let server = SocketAddr::new(address.parse()?, PORT);
        let said = |e: anyhow::Error| e.context(format!("{}\n{}", self.device.log(), self.gateway.log()));
        let mut prober = Prober::new(from, server)?;
        let burst = prober.burst(echo, Instant::now(), Duration::from_millis(10), 20, PATIENCE)?;
        let (before, sent) = (burst.first_echo, burst.sent);
        ensure!(
            before.is_some() && burst.lost == 0,
            said(anyhow::anyhow!("UDP: {} of {sent} lost", burst.lost))
        );
        let tcp = LongLived::connect(from, server).map_err(said)?;
        tcp.lives(PATIENCE).map_err(said)?;
        Ok(tcp)
    }

    /// Packets that passed in the middle, by the rule that counts them.
    fn passed(&self, rule: &str) -> Result<u64> {
        let seen = self.world.core.sh("nft list table ip seen")?;
        let line = seen.lines().find(|l| l.contains(rule)).unwrap_or_default();
        let count = line.split_whitespace().skip_while(|w| *w != "packets").nth(1);
        count.and_then(|n| n.parse().ok()).ok_or_else(|| anyhow::anyhow!("no {rule}: {seen}"))
    }

    /// The SPIs of the device's newest CHILD SA.
    fn spi(&self) -> Result<String> {
        let status = self.device.ok(&["status", "--json"])?;
        let children = status.json.pointer("/result/status/connections/0/children");
        let newest = children.and_then(|c| c.as_array()).and_then(|c| c.last()).and_then(|c| c.get("spi"));
        newest.map(ToString::to_string).ok_or_else(|| anyhow::anyhow!("no CHILD SA: {}", status.text))
    }

    /// The NAT before the device is replaced by one of another address, which knows of nothing.
    fn replace_nat(&self) -> Result<()> {
        let router = &self.world.router_b;
        // Masquerading forgets what it did for an interface that goes down.
        router.ip("link set dev uplink down")?;
        router.sh("nft delete table ip dormouse")?;
        router.nft(&format!(
            "table ip dormouse {{ chain post {{ type nat hook postrouting priority 100; oifname \"uplink\" snat to {NEW_NAT}; }}; }}"
        ))?;
        router.ip("link set dev uplink up")?;
        router.ip("route replace default via 198.51.100.5")
    }
}

fn protected_between(address: &str) -> Result<()> {
    let hosts = hosts(address)?;
    let world = &hosts.world;
    // Bound to no address: what it answers with is the route's business.
    let echo = EchoServer::start(&world.gateway, SocketAddr::from(([0, 0, 0, 0], PORT)))?;
    let back = EchoServer::start(&world.device, SocketAddr::new(Access::B.device_address(), PORT))?;
    world
        .device
        .sh(&format!("ping -c 3 -i 0.2 -W 3 {address}"))
        .map_err(|e| e.context(hosts.device.log()))?;
    let there = hosts.talks(&world.device, &echo, address)?;
    // The gateway knows the device by the address of its NAT.
    let here = hosts.talks(&world.gateway, &back, NAT)?;

    let (before, end) = (hosts.spi()?, Instant::now() + PATIENCE);
    while hosts.spi()? == before {
        ensure!(Instant::now() < end, "not rekeyed\n{}", hosts.device.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    there.lives(PATIENCE)?;
    here.lives(PATIENCE)?;

    hosts.replace_nat()?;
    there
        .lives(PATIENCE)
        .map_err(|e| e.context(format!("{}\n{}", hosts.device.log(), hosts.gateway.log())))?;
    here.lives(PATIENCE)?;
    let status = hosts.gateway.ok(&["status", "--json"])?.text;
    ensure!(status.contains(NEW_NAT), "the gateway did not follow: {status}");
    // What begins now is between the same two addresses.
    hosts.talks(&world.device, &echo, address)?.finish()?;
    ensure!(there.finish()? > 0 && here.finish()? > 0);

    for rule in ["icmp type", "protocol tcp", "udp dport 7777", "udp sport 7777"] {
        assert_eq!(hosts.passed(rule)?, 0, "{rule} in the clear");
    }
    assert!(hosts.passed("udp dport 4500")? > 100);
    Ok(())
}

#[test]
fn transport_mode_from_behind_a_nat() -> Result<()> {
    if !require("transport mode from behind a NAT", &NEEDS) {
        return Ok(());
    }
    protected_between(GATEWAY)
}

#[test]
fn transport_mode_through_two_nats() -> Result<()> {
    if !require("transport mode through two NATs", &NEEDS) {
        return Ok(());
    }
    protected_between(FRONT)
}
