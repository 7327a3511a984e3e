//! HIP between our own daemons: hosts reach each other by their HITs over protocol 139 and in UDP, in both families and through a NAT; a
//! connection outlives changes of address and of family, and a peer that starts again is found again; a host that is not
//! admitted is refused, and both ends say why.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

mod clear;
mod demo;
mod identities;
mod lsi;
mod names;
mod policy;
mod quirks;
mod relay;
mod rendezvous;
mod sleep;
mod v1;

use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{PATIENCE, rewrite};
use dormouse_interop::witness::Witness;
use dormouse_testbed::{
    Access, Dormoused, EchoServer, Extra, GATEWAY, GATEWAY_V6, Host, LongLived, Need, Roaming, binary,
    require,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
const ECHO_PORT: u16 = 7777;

/// What the status of a daemon has there; null if it has nothing.
fn of(daemon: &Dormoused, pointer: &str) -> Result<Value> {
    let status = daemon.ok(&["status", "--json"])?.json;
    Ok(status.pointer(&format!("/result/status/{pointer}")).cloned().unwrap_or_default())
}

/// Makes a key in `host`; its HIT.
fn keygen(host: &Host, kind: &str) -> Result<String> {
    keygen_to(host, "hip.key", kind)
}

/// The same in a file of this name.
fn keygen_to(host: &Host, file: &str, kind: &str) -> Result<String> {
    let key = host.dir().join(file);
    let line = format!("{} --json hip keygen {} --kind {kind}", binary("dormouse").display(), key.display());
    let answer: Value = serde_json::from_str(&host.sh(&line)?)?;
    let hit = answer.pointer("/result/hip-key/hit").and_then(Value::as_str).context("no HIT")?;
    Ok(hit.to_owned())
}

/// A peer: HIT, name and addresses.
type Listed<'a> = (&'a str, &'a str, &'a [&'a str]);

/// The configuration of an end with the key of `host`. `more`: lines of its section; The last peer's section is open at the end.
fn end(host: &Host, more: &str, peers: &[Listed<'_>]) -> String {
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

/// A daemon that gives its privileges away.
fn start(host: &Host, toml: &str) -> Result<Dormoused> {
    let extra = Extra { user: "nobody".to_owned(), ..Extra::default() };
    let daemon = Dormoused::start_with(host, extra, "dns = \"off\"\nlog = \"debug\"", toml)?;
    // It answers once its routes are there.
    daemon.ok(&["status"])?;
    Ok(daemon)
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
        Self::blocking("connected", kinds, more, addresses)
    }

    /// The same with this `block` at both ends.
    fn blocking(block: &str, kinds: [&str; 2], more: &str, addresses: &[&str]) -> Result<Self> {
        let world = Roaming::new(30)?;
        world.attach(Access::A)?;
        let hits = [keygen(&world.device, kinds[0])?, keygen(&world.gateway, kinds[1])?];
        let device = end(&world.device, more, &[(&hits[1], "server", addresses)]);
        let server = end(&world.gateway, more, &[(&hits[0], "device", &[])]);
        let [device, server] = [device, server]
            .map(|toml| toml.replacen("role = ", &format!("block = \"{block}\"\nrole = "), 1));
        let records = world.gateway.dir().join("state/records.jsonl");
        let server = start(&world.gateway, &format!("[audit]\nto = {records:?}\n{server}"))?;
        let device = start(&world.device, &device)?;
        Ok(Self { device, server, hits, world })
    }

    /// The server's records: what happened, and to whom or whose.
    fn records(&self) -> Result<Vec<(String, String)>> {
        let text = std::fs::read_to_string(self.world.gateway.dir().join("state/records.jsonl"))?;
        let field =
            |line: &Value, key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let one = |line: &str| -> Result<(String, String)> {
            let line: Value = serde_json::from_str(line)?;
            Ok((field(&line, "event"), field(&line, "identity") + &field(&line, "whom")))
        };
        text.lines().map(one).collect()
    }

    /// Whom the server's records have move, from where to where.
    fn moves(&self) -> Result<Vec<[IpAddr; 2]>> {
        let text = std::fs::read_to_string(self.world.gateway.dir().join("state/records.jsonl"))?;
        let mut moves = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let field = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
            if field("event") == "address" {
                let who = (field("identity"), field("identity_type"), field("method"));
                ensure!(who == (&self.hits[0], "hit", "hip"), "{line}");
                moves.push([
                    field("was").parse::<SocketAddr>()?.ip(),
                    field("from").parse::<SocketAddr>()?.ip(),
                ]);
            }
        }
        Ok(moves)
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

    /// Waits until packets pass: what is sent while an end moves may be lost.
    fn passes(&self) -> Result<()> {
        let ping = format!("ping -c 1 -W 1 {}", self.hits[1]);
        self.world.device.eventually(&ping, PATIENCE).map(drop).with_context(|| self.logs())
    }

    /// What the device says of its one peer.
    fn peer(&self) -> Result<Value> {
        let status = self.device.ok(&["status", "--json"])?.json;
        status.pointer("/result/status/hip/peers/0").cloned().context("no peer")
    }

    /// The device has another address: 10.1.0.3.
    fn roams(&self) -> Result<()> {
        let device = &self.world.device;
        device.sysctl("net.ipv4.conf.all.promote_secondaries", "1")?;
        device.ip("addr add 10.1.0.3/24 dev wlan0")?;
        device.ip("addr del 10.1.0.2/24 dev wlan0")?;
        device.ip("route replace default via 10.1.0.1 dev wlan0")
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

    /// Waits until ESP goes in UDP at both ends, or as protocol 50.
    fn esp_in_udp(&self, wanted: bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        for daemon in [&self.device, &self.server] {
            while of(daemon, "hip/peers/0/esp_in_udp")? != Value::Bool(wanted) {
                ensure!(Instant::now() < end, "ESP in UDP is not {wanted}\n{}", self.logs());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Drops UDP to HIP's port on the way, or lets it pass again.
    fn drop_udp(&self, drops: bool) -> Result<()> {
        let core = &self.world.core;
        core.nft("table inet noudp {}\ndelete table inet noudp\n")?;
        if drops {
            core.nft("table inet noudp { chain f { type filter hook forward priority 0;\nudp dport 10500 drop\n}\n}\n")?;
        }
        Ok(())
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
        let hip = if more.is_empty() { "(HIP)" } else { "(UDP)" };
        assert!(path.is_some_and(|p| p.ends_with(hip)), "{peer}");
        pair.esp_in_udp(true)?;
        assert!(pair.moves()?.is_empty(), "another carrier is no move");
        let shown = pair.device.ok(&["hip", "status"])?.text;
        assert_eq!(shown.contains("ESP in UDP"), more.is_empty(), "{shown}");
        // Protocols 139 and 50 are listened to where they are configured, and nowhere else.
        let raw = pair.world.gateway.sh("cat /proc/net/raw /proc/net/raw6")?;
        for protocol in [":008B ", ":0032 "] {
            assert_eq!(raw.contains(protocol), more.is_empty(), "{protocol} with '{more}': {raw}");
        }
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
    pair.esp_in_udp(true)?;
    pair.roams()?;
    pair.goes_from("10.1.0.3")?;
    lives("another address")?;
    pair.esp_in_udp(true)?;
    device.ip("addr flush dev wlan0 scope global")?;
    device.ip("addr add fd0a::5/64 dev wlan0 nodad")?;
    device.ip("-6 route replace default via fd0a::1 dev wlan0")?;
    pair.goes_from("fd0a::5")?;
    lives("another family")?;
    pair.esp_in_udp(true)?;
    device.ip("-6 addr flush dev wlan0 scope global")?;
    pair.world.attach(Access::A)?;
    lives("back")?;
    pair.esp_in_udp(true)?;
    // The records have each of them, from where to where, and nothing else.
    let moves = pair.moves()?;
    let addresses: Vec<IpAddr> =
        ["10.1.0.2", "10.1.0.3", "fd0a::5"].map(str::parse).into_iter().collect::<Result<_, _>>()?;
    assert!(moves.starts_with(&[[addresses[0], addresses[1]], [addresses[1], addresses[2]]]), "{moves:?}");
    assert!(moves.iter().all(|[was, from]| was != from), "{moves:?}");
    assert!(moves.windows(2).all(|two| two[0][1] == two[1][0]), "{moves:?}");
    let status = pair.server.ok(&["stats", "--json"])?.json;
    let established = status.pointer("/result/stats/counters/hip.established");
    assert_eq!(established, Some(&1.into()), "one base exchange for all of it");
    tcp.finish()?;
    Ok(())
}

/// Where UDP does not pass, ESP is protocol 50, and no connection breaks when that changes; by the configuration it stays that.
#[test]
fn esp_is_protocol_50_where_udp_does_not_pass() -> Result<()> {
    if !require("HIP where UDP does not pass", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "", &[GATEWAY])?;
    pair.drop_udp(true)?;
    pair.ping(2)?;
    let hit: IpAddr = pair.hits[1].parse()?;
    let _echo = EchoServer::start(&pair.world.gateway, SocketAddr::new(hit, ECHO_PORT))?;
    let tcp = LongLived::connect(&pair.world.device, SocketAddr::new(hit, ECHO_PORT))?;
    tcp.lives(PATIENCE).with_context(|| pair.logs())?;
    pair.esp_in_udp(false)?;
    // It passes from here on, and an end that moves asks there.
    pair.drop_udp(false)?;
    pair.roams()?;
    pair.goes_from("10.1.0.3")?;
    tcp.lives(PATIENCE).with_context(|| pair.logs())?;
    pair.esp_in_udp(true)?;
    // And no longer.
    pair.drop_udp(true)?;
    tcp.lives(PATIENCE).with_context(|| pair.logs())?;
    pair.esp_in_udp(false)?;
    tcp.finish()?;
    drop(pair);

    let pair = Pair::new(["ecdsa-p256"; 2], "esp_in_udp = \"nat\"", &[GATEWAY])?;
    pair.ping(2)?;
    // Longer than an end that may would take.
    std::thread::sleep(Duration::from_secs(1));
    pair.esp_in_udp(false)?;
    Ok(())
}

/// The interface takes what fills an Ethernet over IPv4. By IPv6 less fits: a sender that may not fragment learns how much, and that passes.
#[test]
fn the_largest_packets_pass_in_udp() -> Result<()> {
    if !require("HIP's largest packets", &NEEDS) {
        return Ok(());
    }
    for (address, setting, mtu, fits) in [
        (BOTH[0], "", 1_478, 1_478),
        (BOTH[1], "", 1_478, 1_458),
        // Of an LSI's packet less is left off; these are still between HITs.
        (BOTH[0], "lsi = \"1.0.0.0/8\"", 1_458, 1_458),
        (BOTH[1], "lsi = \"1.0.0.0/8\"", 1_458, 1_458),
    ] {
        let pair = Pair::new(["ecdsa-p256"; 2], setting, &[address])?;
        pair.passes()?;
        pair.esp_in_udp(true)?;
        for (host, to) in [(&pair.world.device, &pair.hits[1]), (&pair.world.gateway, &pair.hits[0])] {
            let is: u32 = host.sh("cat /sys/class/net/dormouse0/mtu")?.trim().parse()?;
            assert_eq!(is, mtu, "over {address}");
            let ping = |bytes: u32| host.sh(&format!("ping -M do -c 2 -i 0.2 -W 5 -s {} {to}", bytes - 48));
            if fits < mtu {
                let refused = ping(mtu).expect_err("more than the path carries");
                let text = format!("{refused:#}");
                assert!(text.contains(&format!("mtu={fits}")), "{text}");
            }
            ping(fits).with_context(|| pair.logs())?;
        }
    }
    Ok(())
}

/// Of an interface that takes less than Ethernet a sender learns exactly how much fits, once a packet was too large.
#[test]
fn packets_fill_an_interface_of_another_size() -> Result<()> {
    if !require("HIP over a smaller interface", &NEEDS) {
        return Ok(());
    }
    // What fits: of 1,430 bytes IPv4, UDP, ESP and its padding to fours leave so much beside the inner IPv6 header, which is not sent.
    for (setting, udp, fits) in [("", true, 1_406), ("esp_in_udp = \"nat\"", false, 1_414)] {
        let pair = Pair::new(["ecdsa-p256"; 2], setting, &[GATEWAY])?;
        pair.passes()?;
        pair.esp_in_udp(udp)?;
        let (host, to) = (&pair.world.device, &pair.hits[1]);
        host.sh(&format!(
            "ip link set mtu 1430 dev $(ip route get {GATEWAY} | sed -nE 's/.* dev ([^ ]+).*/\\1/p')"
        ))?;
        let ping = |bytes: u32| host.sh(&format!("ping -M do -c 4 -i 0.3 -W 5 -s {} {to}", bytes - 48));
        let text = format!("{:#}", ping(1_478).expect_err("more than the interface takes"));
        assert!(text.contains(&format!("mtu={fits}")), "{setting}: {text}: {}", pair.logs());
        ping(fits).with_context(|| pair.logs())?;
    }
    Ok(())
}

/// Each suite that is off unless it is named; with an end that has not named it, there is no association.
#[test]
fn suites_are_those_that_are_configured() -> Result<()> {
    if !require("HIP's suites", &NEEDS) {
        return Ok(());
    }
    let rare = ["aes128ccm16", "aes128ccm8", "aes128gcm8", "aes128-sha1"];
    for suite in rare.into_iter().chain(["null-sha256", "null-aes-cmac", "null-aes-gmac"]) {
        let pair = Pair::new(["ecdsa-p256"; 2], &format!("esp = [\"{suite}\"]"), &[GATEWAY])?;
        let witness = Witness::new(&pair.world.core, "to-g")?;
        pair.ping(1)?;
        let text = format!("a secret in {suite}");
        let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
        pair.world.device.sh(&format!("ping -c 1 -W 5 -s 64 -p {} {}", &hex[..32], pair.hits[1]))?;
        let said = pair.peer()?.pointer("/esp/suite").and_then(Value::as_str).map(str::to_owned);
        let readable = suite.starts_with("null");
        let seen = witness.had_seen(&pair.world.device, GATEWAY, &text.as_bytes()[..16])?;
        assert_eq!(seen, readable, "{suite}: {said:?}");
        rewrite(&pair.world.gateway, &end(&pair.world.gateway, "", &[(&pair.hits[0], "device", &[])]))?;
        assert!(pair.server.ok(&["reload"])?.text.contains("hip.esp"));
        let Pair { device, mut server, .. } = pair;
        server.restart()?;
        let answer = device.cli(&["hip", "up", "server", "--timeout", "3"])?;
        assert_eq!(answer.code, 5, "{suite}: {}", answer.text);
    }
    Ok(())
}

/// The identity of who calls can be read on the way with `null`, which must be named at both ends, and not otherwise.
#[test]
fn ciphers_are_those_that_are_configured() -> Result<()> {
    if !require("HIP's ciphers", &NEEDS) {
        return Ok(());
    }
    for (more, readable) in [("", false), ("ciphers = [\"aes256\"]", false), ("ciphers = [\"null\"]", true)] {
        let pair = Pair::new(["ecdsa-p256"; 2], more, &[GATEWAY])?;
        let witness = Witness::new(&pair.world.core, "to-g")?;
        let key = pair.world.device.dir().join("hip.key");
        let point = format!(
            "openssl pkey -in {} -pubout -outform DER | tail -c 64 | od -An -v -tx1 | tr -d ' \\n'",
            key.display()
        );
        let point = pair.world.device.sh(&point)?;
        let bytes: Vec<u8> = (0..64)
            .map(|i| u8::from_str_radix(point.trim().get(2 * i..2 * i + 2).unwrap_or_default(), 16))
            .collect::<std::result::Result<_, _>>()?;
        pair.ping(1)?;
        let seen = witness.had_seen(&pair.world.device, GATEWAY, &bytes[..16])?;
        assert_eq!(seen, readable, "{more}");
        if readable {
            let plain = end(&pair.world.gateway, "", &[(&pair.hits[0], "device", &[])]);
            rewrite(&pair.world.gateway, &plain)?;
            assert!(pair.server.ok(&["reload"])?.text.contains("hip.ciphers"));
            let Pair { device, mut server, .. } = pair;
            server.restart()?;
            let answer = device.cli(&["hip", "up", "server", "--timeout", "3"])?;
            assert_eq!(answer.code, 5, "{}", answer.text);
        }
    }
    Ok(())
}

/// With several addresses at both ends, a dead link between two of them is left for another by itself.
#[test]
fn another_link_is_taken_when_one_dies() -> Result<()> {
    if !require("HIP with several addresses", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "multihoming = true\nliveness = 10", &BOTH)?;
    let hit: IpAddr = pair.hits[1].parse()?;
    let _echo = EchoServer::start(&pair.world.gateway, SocketAddr::new(hit, ECHO_PORT))?;
    pair.device.ok(&["hip", "up", "server"])?;
    let tcp = LongLived::connect(&pair.world.device, SocketAddr::new(hit, ECHO_PORT))?;
    tcp.lives(PATIENCE)?;
    assert!(pair.peer()?.to_string().contains(GATEWAY));
    // IPv4 is dropped on the way, which neither end sees.
    pair.world
        .core
        .nft("table ip dead { chain f { type filter hook forward priority 0; policy drop;\n}\n}\n")?;
    pair.goes_from("fd0a::2")?;
    tcp.lives(PATIENCE).with_context(|| pair.logs())?;
    let status = pair.server.ok(&["stats", "--json"])?.json;
    assert_eq!(status.pointer("/result/stats/counters/hip.established"), Some(&1.into()));
    tcp.finish()?;
    Ok(())
}

#[test]
fn a_nat_is_passed_in_udp() -> Result<()> {
    if !require("HIP through a NAT", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "carriers = [\"udp\"]", &BOTH)?;
    let server = SocketAddr::new(pair.hits[1].parse()?, ECHO_PORT);
    let _echo = EchoServer::start(&pair.world.gateway, server)?;
    pair.device.ok(&["hip", "up", "server"])?;
    let tcp = LongLived::connect(&pair.world.device, server)?;
    pair.world.detach(Access::A)?;
    pair.world.attach(Access::B)?;
    pair.goes_from("192.168.7.2")?;
    tcp.lives(PATIENCE).with_context(|| pair.logs())?;
    pair.passes()?;
    tcp.finish()?;
    Ok(())
}

/// An end is killed and knows nothing any more. The other asks after some silence; or what it sends shows the one who it has lost.
#[test]
fn an_end_that_was_killed_is_found_again() -> Result<()> {
    if !require("HIP after a crash", &NEEDS) {
        return Ok(());
    }
    let mut pair = Pair::new(["ecdsa-p256"; 2], "", &[GATEWAY])?;
    let [device, server] = pair.hits.clone();
    pair.ping(1)?;
    pair.server.process().kill();
    pair.server.restart()?;
    let ping = format!("ping -c 1 -W 1 {server}");
    pair.world.device.eventually(&ping, PATIENCE).with_context(|| pair.logs())?;
    pair.device.process().kill();
    pair.device.restart()?;
    let ping = format!("ping -c 1 -W 1 {device}");
    pair.world.gateway.eventually(&ping, PATIENCE).with_context(|| pair.logs())?;
    // In good order: the other end is told, and its next packet begins anew.
    pair.server.restart()?;
    pair.passes()
}

#[test]
fn tshark_parses_what_is_sent() -> Result<()> {
    if !require("HIP on the wire", &[NEEDS[0], NEEDS[1], NEEDS[2], Need::Program("tshark")]) {
        return Ok(());
    }
    for more in ["", "carriers = [\"udp\"]"] {
        let pair = Pair::new(["ecdsa-p256", "ecdsa-p384"], more, &BOTH)?;
        let file = pair.world.gateway.dir().join("wire.pcap").display().to_string();
        let mut tshark = pair.world.gateway.spawn("tshark", "tshark", &["-i", "wan", "-q", "-w", &file])?;
        let listens = format!(
            "ping -c 1 -W 1 {GATEWAY} > /dev/null; tshark -r {file} -Y icmp 2> /dev/null | grep -q ."
        );
        pair.world.core.eventually(&listens, PATIENCE)?;
        pair.ping(1)?;
        pair.world.device.ip("addr flush dev wlan0 scope global")?;
        pair.world.device.ip("addr add fd0a::5/64 dev wlan0 nodad")?;
        pair.world.device.ip("-6 route replace default via fd0a::1 dev wlan0")?;
        pair.goes_from("fd0a::5")?;
        pair.passes()?;
        pair.device.ok(&["hip", "down", "server"])?;
        std::thread::sleep(Duration::from_millis(500));
        tshark.stop();
        let read = |filter: &str, fields: &str| {
            pair.world.gateway.sh(&format!("tshark -r {file} -Y '{filter}' {fields} 2> /dev/null"))
        };
        // ESP in UDP it takes for other protocols, if the random SPI looks like one.
        let malformed = read("(hip || esp) && (_ws.malformed || _ws.expert.severity >= 8388608)", "-V")?;
        assert!(malformed.is_empty(), "{malformed}");
        let kinds = read("hip", "-T fields -e hip.packet_type")?;
        let found: BTreeSet<&str> = kinds.split_whitespace().collect();
        // I1, R1, I2, R2, UPDATE, CLOSE, CLOSE_ACK.
        for kind in ["1", "2", "3", "4", "16", "18", "19"] {
            assert!(found.contains(kind), "{kind} of {found:?} ({more})");
        }
        // In UDP, tshark takes what is not HIP for no protocol that it knows.
        assert_eq!(read("esp", "")?.is_empty(), !more.is_empty());
    }
    Ok(())
}
