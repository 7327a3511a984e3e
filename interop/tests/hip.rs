//! HIP between our own daemons: hosts reach each other by their HITs over protocol 139 and in UDP, in both families and through a NAT; a
//! connection outlives changes of address and of family, and a peer that starts again is found again; whoever is not admitted is
//! refused, and both ends say why.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{
    Access, Dormoused, EchoServer, GATEWAY, GATEWAY_V6, Host, LongLived, Need, Roaming, binary, require,
};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
const ECHO_PORT: u16 = 7777;

/// Makes a key in `host`; its HIT.
fn keygen(host: &Host, kind: &str) -> Result<String> {
    let key = host.dir().join("hip.key");
    let line = format!("{} --json hip keygen {} --kind {kind}", binary("dormouse").display(), key.display());
    let answer: Value = serde_json::from_str(&host.sh(&line)?)?;
    let hit = answer.pointer("/result/hip-key/hit").and_then(Value::as_str).context("no HIT")?;
    Ok(hit.to_owned())
}

/// The configuration of an end with the key of `host`. `more`: lines of its section; `peers`: HIT, name and addresses.
fn end(host: &Host, more: &str, peers: &[(&str, &str, &[&str])]) -> String {
    let key = host.dir().join("hip.key");
    let mut toml =
        format!("[connection.home]\nrole = \"hip\"\n[connection.home.hip]\nkey = {key:?}\n{more}\n");
    for (hit, name, addresses) in peers {
        toml += &format!(
            "[[connection.home.hip.peers]]\nhit = \"{hit}\"\nname = \"{name}\"\naddresses = {addresses:?}\n"
        );
    }
    toml
}

/// A device and a server that know each other.
struct Pair {
    device: Dormoused,
    server: Dormoused,
    /// Their HITs, the device's first.
    hits: [String; 2],
    world: Roaming,
}

const BOTH: [&str; 2] = [GATEWAY, GATEWAY_V6];

impl Pair {
    /// `addresses`: those that the device knows of the server.
    fn new(kinds: [&str; 2], more: &str, addresses: &[&str]) -> Result<Self> {
        let world = Roaming::new(30)?;
        world.attach(Access::A)?;
        let hits = [keygen(&world.device, kinds[0])?, keygen(&world.gateway, kinds[1])?];
        let device = end(&world.device, more, &[(&hits[1], "server", addresses)]);
        let server = end(&world.gateway, more, &[(&hits[0], "device", &[])]);
        let server = Dormoused::start(&world.gateway, "dns = \"off\"", &server)?;
        let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
        Ok(Self { device, server, hits, world })
    }

    fn ping(&self, count: u32) -> Result<()> {
        let [device, server] = &self.hits;
        self.world
            .device
            .sh(&format!("ping -c {count} -i 0.2 -W 5 {server}"))
            .with_context(|| self.logs())?;
        self.world
            .gateway
            .sh(&format!("ping -c {count} -i 0.2 -W 5 {device}"))
            .with_context(|| self.logs())?;
        Ok(())
    }

    /// What the device says of its one peer.
    fn peer(&self) -> Result<Value> {
        let status = self.device.ok(&["status", "--json"])?.json;
        status.pointer("/result/status/hip/peers/0").cloned().context("no peer")
    }

    /// Waits until the path to the peer has this address of ours.
    fn goes_from(&self, address: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let path = self.peer()?.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
            if path.contains(address) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "not from {address}: {path}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        format!("device:\n{}\nserver:\n{}", self.device.log(), self.server.log())
    }
}

#[test]
fn hosts_reach_each_other_by_their_hits() -> Result<()> {
    if !require("HIP", &NEEDS) {
        return Ok(());
    }
    for (kinds, more, address) in [
        (["ecdsa-p256", "ecdsa-p384"], "", GATEWAY),
        (["ecdsa-p256", "rsa --bits 2048"], "", GATEWAY_V6),
        (["ecdsa-p256", "ecdsa-p256"], "carriers = [\"udp\"]", GATEWAY_V6),
    ] {
        let pair = Pair::new(kinds, more, &[address])?;
        pair.ping(2)?;
        let peer = pair.peer()?;
        let (state, path) = (peer.get("state"), peer.get("path").and_then(Value::as_str));
        assert!(state == Some(&"up".into()) && path.is_some_and(|p| p.contains(address)), "{peer}");
        assert_eq!(peer.pointer("/esp/mode").and_then(Value::as_str), Some("beet"), "{peer}");
    }
    Ok(())
}

#[test]
fn a_connection_outlives_changes_of_address_and_family() -> Result<()> {
    if !require("HIP that moves", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "", &BOTH)?;
    let hit: IpAddr = pair.hits[1].parse()?;
    let _echo = EchoServer::start(&pair.world.gateway, SocketAddr::new(hit, ECHO_PORT))?;
    pair.device.ok(&["hip", "up", "server"])?;
    let tcp = LongLived::connect(&pair.world.device, SocketAddr::new(hit, ECHO_PORT))
        .with_context(|| pair.logs())?;
    let device = &pair.world.device;
    let lives = |what: &str| tcp.lives(PATIENCE).with_context(|| format!("{what}\n{}", pair.logs()));
    lives("at first")?;
    device.sysctl("net.ipv4.conf.all.promote_secondaries", "1")?;
    device.ip("addr add 10.1.0.3/24 dev wlan0")?;
    device.ip("addr del 10.1.0.2/24 dev wlan0")?;
    device.ip("route replace default via 10.1.0.1 dev wlan0")?;
    pair.goes_from("10.1.0.3")?;
    lives("another address")?;
    device.ip("addr flush dev wlan0 scope global")?;
    device.ip("addr add fd0a::5/64 dev wlan0 nodad")?;
    device.ip("-6 route replace default via fd0a::1 dev wlan0")?;
    pair.goes_from("fd0a::5")?;
    lives("another family")?;
    device.ip("-6 addr flush dev wlan0 scope global")?;
    pair.world.attach(Access::A)?;
    lives("back")?;
    let status = pair.server.ok(&["stats", "--json"])?.json;
    let established = status.pointer("/result/stats/counters/hip.established");
    assert_eq!(established, Some(&1.into()), "one base exchange for all of it");
    tcp.finish()?;
    Ok(())
}
