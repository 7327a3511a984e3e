//! Packets of HITs outside of the tunnel: none is taken, and none leaves. And what strangers send to the carriers.

use super::{NEEDS, Pair, end, start};
use anyhow::{Context, Result};
use dormouse_interop::ends::rewrite;
use dormouse_interop::witness::Witness;
use dormouse_testbed::{GATEWAY, GATEWAY_V6, require};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

/// Where programs of the server listen.
const PORT: u16 = 4243;

impl Pair {
    /// Whether a program of the server gets what a stranger on its link sends to the server's HIT as if from the device's.
    fn takes_forged(&self) -> Result<bool> {
        let [device, server] = self.hits.clone().map(|hit| hit.parse::<Ipv6Addr>());
        let (device, server, core) = (device?, server?, &self.world.core);
        let mac = self.world.gateway.sh("cat /sys/class/net/wan/address")?;
        core.ip(&format!("-6 addr replace {device}/128 dev to-g nodad"))?;
        core.ip(&format!("-6 route replace {server}/128 dev to-g"))?;
        core.ip(&format!("-6 neigh replace {server} lladdr {} dev to-g nud permanent", mac.trim()))?;
        let listener = self.world.gateway.run(|| UdpSocket::bind(("::", PORT)))??;
        listener.set_read_timeout(Some(dormouse_interop::ends::PATIENCE))?;
        core.run(move || -> Result<()> {
            UdpSocket::bind((device, 0))?.send_to(b"forged", (server, PORT))?;
            // On the same way, from an address that is the stranger's own.
            UdpSocket::bind("[2001:db8:3::2]:0")?.send_to(b"open", (GATEWAY_V6, PORT)).map(drop)?;
            Ok(())
        })??;
        let mut first = [0; 16];
        let (len, from) = listener.recv_from(&mut first).context("neither came")?;
        assert!(first[..len] == *b"open" || from.ip() == device, "{from}");
        Ok(first[..len] == *b"forged")
    }

    /// Whether what a program of the device sends to the server's HIT leaves in clear.
    fn leaks(&self, witness: &Witness) -> Result<bool> {
        witness.leaks(&self.world.device, SocketAddr::new(self.hits[1].parse()?, PORT))
    }
}

/// A HIT is an address of the tunnel interface, and Linux takes what is for it from any interface.
#[test]
fn what_comes_in_clear_is_no_peers() -> Result<()> {
    if !require("HIP against forged HITs", &NEEDS) {
        return Ok(());
    }
    for (block, taken) in [("off", true), ("connected", false)] {
        let mut pair = Pair::blocking(block, ["ecdsa-p256"; 2], "", &[GATEWAY])?;
        pair.ping(1)?;
        assert_eq!(pair.takes_forged()?, taken, "block = {block}");
        let doctor = pair.server.cli(&["doctor"])?.text;
        assert_eq!(doctor.contains("pretend to be of a peer"), taken, "{doctor}");
        let status = pair.server.ok(&["hip", "status"])?.text;
        let held = format!("{block}, {}", if taken { "not in force" } else { "in force" });
        assert!(status.contains(&held), "{status}");
        // Nor after the daemon was killed: the address is gone, and the rules are there.
        pair.server.process().kill();
        pair.world.gateway.ip(&format!("-6 addr add {}/128 dev lo nodad", pair.hits[1]))?;
        assert_eq!(pair.takes_forged()?, taken, "block = {block}, killed");
    }
    Ok(())
}

/// The routes into the tunnel end with its interface and with the daemon: what is for a HIT does not take the default route then.
#[test]
fn what_is_for_a_hit_leaves_by_the_tunnel_alone() -> Result<()> {
    if !require("HIP in clear", &NEEDS) {
        return Ok(());
    }
    for (block, held, after) in [("off", false, false), ("connected", true, false), ("always", true, true)] {
        let mut pair = Pair::blocking(block, ["ecdsa-p256"; 2], "", &[GATEWAY])?;
        let witness = Witness::new(&pair.world.router_a, "lan")?;
        pair.ping(1)?;
        assert!(!pair.leaks(&witness)?, "block = {block}: the tunnel carries it");
        pair.world.device.ip("link set dev dormouse0 down")?;
        assert_eq!(pair.leaks(&witness)?, !held, "block = {block}, without the interface");
        pair.device.restart()?;
        pair.passes()?;
        pair.device.process().kill();
        assert_eq!(pair.leaks(&witness)?, !held, "block = {block}, killed");
        pair.device.restart()?;
        pair.device.process().stop();
        assert_eq!(pair.leaks(&witness)?, !after, "block = {block}, stopped");
    }
    Ok(())
}

/// Where all other traffic of the machine is held, HIP's own packets pass without UDP.
#[test]
fn a_full_block_lets_hips_own_packets_pass() -> Result<()> {
    if !require("HIP beside a full tunnel", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "", &[GATEWAY])?;
    let Pair { mut device, server: _server, hits, world } = pair;
    device.process().stop();
    let proof = |id: &str| format!("id = \"{id}\"\nsecret = \"a secret of the test\"");
    let tunnel = format!(
        "[connection.vpn]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\nblock = \"always\"\n\
         [connection.vpn.local]\n{}\n[connection.vpn.remote]\n{}\n",
        proof("a.test"),
        proof("b.test")
    );
    let device =
        start(&world.device, &(tunnel + &end(&world.device, "", &[(&hits[1], "server", &[GATEWAY])])))?;
    let witness = Witness::new(&world.router_a, "lan")?;
    let far: SocketAddr = "198.51.100.1:4242".parse()?;
    assert!(!witness.leaks(&world.device, far)?, "all else is held");
    world.device.sh(&format!("ping -c 2 -i 0.2 -W 5 {}", hits[1])).with_context(|| device.log())?;
    Ok(())
}

/// Opportunistic mode is what the configuration says, from the reload on.
#[test]
fn a_reload_changes_opportunistic_mode() -> Result<()> {
    if !require("HIP's reload", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "carriers = [\"udp\"]", &[GATEWAY])?;
    pair.ping(1)?;
    let sender = pair.hits[0].parse::<Ipv6Addr>()?.octets();
    // An I1 (RFC 7401 section 5.3.1) to any host at this address, with the group list of section 5.2.6 (type 511): P-256 is 7.
    let list = [1, 255, 0, 1, 7, 0, 0, 0];
    let head = [59, 5, 1, 0x21, 0, 0, 0, 0];
    let i1 = [&[0; 4][..], &head, &sender, &[0; 16], &list].concat();
    let answers = || -> Result<u64> {
        let i1 = i1.clone();
        pair.world.core.run(move || -> Result<()> {
            UdpSocket::bind("0.0.0.0:0")?.send_to(&i1, (GATEWAY, 10_500))?;
            Ok(())
        })??;
        // What comes after it on the same way was handled after it.
        pair.ping(1)?;
        let counters = pair.server.ok(&["stats", "--json"])?.json;
        counters.pointer("/result/stats/counters/hip.r1").and_then(Value::as_u64).context("no hip.r1")
    };
    let before = answers()?;
    assert_eq!(answers()?, before, "not unless it is asked for");
    let peers: [super::Listed<'_>; 1] = [(&pair.hits[0], "device", &[])];
    let toml = |more: &str| end(&pair.world.gateway, &format!("carriers = [\"udp\"]\n{more}"), &peers);
    for (on, expected) in [("true", 1), ("false", 1)] {
        rewrite(&pair.world.gateway, &toml(&format!("opportunistic = {on}")))?;
        let said = pair.server.ok(&["reload"])?.text;
        assert!(said.starts_with("in force"), "{said}");
        assert_eq!(answers()?, before + expected, "opportunistic = {on}");
    }
    Ok(())
}

/// Packets of strangers to protocols 139 and 50 and to the UDP port change nothing, even with the HITs of the two hosts.
#[test]
fn what_strangers_send_is_dropped() -> Result<()> {
    if !require("HIP among strangers", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "carriers = [\"ip\", \"udp\"]", &[GATEWAY])?;
    pair.ping(1)?;
    let [device, server] = pair.hits.clone().map(|hit| hit.parse::<Ipv6Addr>().map(|a| a.octets()));
    let (device, server) = (device?, server?);
    // A header (RFC 7401 section 5.1) from the device to the server, which was not sent by the device.
    let forged = move |kind: u8, version: u8, more: &[u8]| {
        let len = u8::try_from(4 + more.len() / 8).unwrap_or(255);
        let head = [59, len, kind, version << 4 | 1, 0, 0, 0, 0];
        [&head[..], &device, &server, more].concat()
    };
    pair.world.core.run(move || -> Result<()> {
        let to: SocketAddr = format!("{GATEWAY}:0").parse()?;
        for protocol in [139, 50] {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(protocol)))?;
            for kind in 0..=255 {
                for packet in [
                    forged(kind, 2, &[]),
                    forged(kind, 1, &[0; 64]),
                    forged(kind, 2, &[0xff; 512]),
                    vec![kind; 3],
                ] {
                    socket.send_to(&packet, &to.into())?;
                }
            }
        }
        let udp = std::net::UdpSocket::bind("0.0.0.0:0")?;
        for kind in 0..=255 {
            let packet = [vec![0; 4], forged(kind, 2, &[7; 40])].concat();
            udp.send_to(&packet, (GATEWAY, 10_500))?;
            udp.send_to(&[kind; 5], (GATEWAY, 10_500))?;
        }
        Ok(())
    })??;
    pair.ping(2)?;
    let counters = pair.server.ok(&["stats", "--json"])?.json;
    let counter = |name: &str| {
        counters
            .pointer(&format!("/result/stats/counters/{name}"))
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    assert!(counter("hip.dropped") > 500, "{counters}");
    assert_eq!((counter("hip.established"), counter("hip.i2_computed")), (1, 1));
    Ok(())
}
