//! Programs that know IPv4 only, at either end: they reach peers by local-scope identifiers, which mean something on their own host alone.

use super::{ECHO_PORT, NEEDS, Pair, end, of};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{PATIENCE, rewrite};
use dormouse_interop::witness::Witness;
use dormouse_testbed::{Dormoused, EchoServer, GATEWAY, LongLived, require};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A port whose program knows IPv4 only.
const OLD_PORT: u16 = 7778;

/// An identifier in the status of a daemon.
fn lsi(daemon: &Dormoused, pointer: &str) -> Result<Ipv4Addr> {
    Ok(of(daemon, pointer)?.as_str().context("no LSI")?.parse()?)
}

#[test]
fn programs_of_ipv4_reach_peers_and_are_reached() -> Result<()> {
    if !require("HIP for IPv4", &NEEDS) {
        return Ok(());
    }
    let more = format!("lsi = \"1.0.0.0/8\"\nlsi_services = [\"tcp/{OLD_PORT}\"]");
    let pair = Pair::new(["ecdsa-p256"; 2], &more, &[GATEWAY])?;
    let (device, server) = (&pair.world.device, &pair.world.gateway);
    let of_server = lsi(&pair.device, "hip/peers/0/lsi")?;
    let (own, of_device) = (lsi(&pair.server, "hip/lsi")?, lsi(&pair.server, "hip/peers/0/lsi")?);
    // Both are in the lines for /etc/hosts, and the identifier is shown with the peers.
    let hosts = pair.device.ok(&["hip", "peers", "--hosts"])?.text;
    assert_eq!(hosts, format!("{} server\n{of_server} server\n", pair.hits[1]));
    assert!(pair.device.ok(&["hip", "peers"])?.text.contains(&of_server.to_string()));

    let witness = Witness::new(&pair.world.core, "to-g")?;
    let said = device.sh(&format!("ping -c 2 -i 0.2 -W 5 {of_server}")).with_context(|| pair.logs())?;
    ensure!(said.contains("2 received"), "{said}");
    // A program that knows both, at the HIT; and one that knows IPv4 only, which sees its peer by the identifier that this host gave it.
    let hit: IpAddr = pair.hits[1].parse()?;
    let _new = EchoServer::start(server, SocketAddr::new(hit, ECHO_PORT))?;
    let _old = EchoServer::start(server, SocketAddr::new(own.into(), OLD_PORT))?;
    for port in [ECHO_PORT, OLD_PORT] {
        let tcp = LongLived::connect(device, SocketAddr::new(of_server.into(), port))
            .with_context(|| format!("{port}\n{}", pair.logs()))?;
        tcp.lives(PATIENCE).with_context(|| pair.logs())?;
        let connected = server.sh(&format!("ss -Htn state established sport = :{port}"))?;
        let (v4, v6) = (of_device.to_string(), &pair.hits[0]);
        let peer = if port == OLD_PORT { &v4 } else { v6 };
        ensure!(connected.contains(peer.as_str()), "{peer}: {connected}");
        ensure!(tcp.finish()? > 0, "nothing was echoed");
    }
    let header = [lsi(&pair.device, "hip/lsi")?.octets(), of_server.octets()].concat();
    ensure!(!witness.had_seen(device, GATEWAY, &header)?, "the identifiers have left their host");
    Ok(())
}

/// What does not fit one packet arrives by HIT and by LSI, and a closed port is said to be closed in both.
#[test]
fn large_datagrams_and_refusals_pass() -> Result<()> {
    if !require("HIP's large datagrams", &NEEDS) {
        return Ok(());
    }
    for (carriers, old) in [("carriers = [\"ip\"]", false), ("carriers = [\"udp\"]", true)] {
        let services = format!("lsi_services = [\"udp/{OLD_PORT}\"]");
        let more = format!("{carriers}\nlsi = \"1.0.0.0/8\"\n{}", if old { &services } else { "" });
        let pair = Pair::new(["ecdsa-p256"; 2], &more, &[GATEWAY])?;
        let (device, server) = (&pair.world.device, &pair.world.gateway);
        let of_server: IpAddr = lsi(&pair.device, "hip/peers/0/lsi")?.into();
        let hit: IpAddr = pair.hits[1].parse()?;
        for to in [of_server, hit] {
            for size in [1_500, 4_000, 60_000] {
                let said = device.sh(&format!("ping -c 2 -i 0.2 -W 5 -s {size} {to}"));
                let said = said.with_context(|| format!("{to} {size} {}", pair.logs()))?;
                ensure!(said.contains("2 received"), "{to} {size}: {said}");
            }
            let refused = device.run(move || -> Result<std::io::ErrorKind> {
                let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
                let socket = std::net::UdpSocket::bind((any, 0))?;
                socket.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
                socket.connect((to, OLD_PORT))?;
                socket.send(&[7; 3_000])?;
                Ok(socket.recv(&mut [0; 9]).err().context("an answer")?.kind())
            })??;
            ensure!(refused == std::io::ErrorKind::ConnectionRefused, "{to}: {refused}\n{}", pair.logs());
        }
        // With a program there, of IPv4 alone or of both families, all of it comes, and goes back.
        let here: IpAddr = if old { lsi(&pair.server, "hip/lsi")?.into() } else { hit };
        let echo = server.run(move || std::net::UdpSocket::bind((here, OLD_PORT)))??;
        let echo = std::thread::spawn(move || -> Result<()> {
            let mut buffer = vec![0; 65_535];
            let (len, from) = echo.recv_from(&mut buffer)?;
            echo.send_to(&buffer[..len], from)?;
            Ok(())
        });
        let came = device.run(move || -> Result<usize> {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
            socket.connect((of_server, OLD_PORT))?;
            socket.send(&[7; 20_000])?;
            Ok(socket.recv(&mut vec![0; 65_535])?)
        })?;
        ensure!(came.with_context(|| pair.logs())? == 20_000, "not all of it came");
        echo.join().expect("it does not panic")?;
    }
    Ok(())
}

/// What only a new start can change stays in force with all that hangs on it: identifiers with the interface's addresses and what is held for
/// them; and a host's peers with its identity.
#[test]
fn a_reload_leaves_in_force_what_only_a_new_start_can_change() -> Result<()> {
    if !require("HIP's reload", &NEEDS) {
        return Ok(());
    }
    let pair = Pair::new(["ecdsa-p256"; 2], "lsi = \"1.0.0.0/8\"", &[GATEWAY])?;
    let device = &pair.world.device;
    let of_server = lsi(&pair.device, "hip/peers/0/lsi")?;
    let both = format!("ping -c 1 -W 5 {of_server} && ping -c 1 -W 5 {}", pair.hits[1]);
    device.sh(&both).with_context(|| pair.logs())?;
    let held = device.sh("nft list ruleset")?;
    let with = |more: &str| end(device, more, &[(&pair.hits[1], "server", &[GATEWAY])]);
    for lines in ["lsi = \"198.18.0.0/15\"", ""] {
        rewrite(device, &with(lines))?;
        let said = pair.device.ok(&["reload"])?.text;
        ensure!(said.contains("connection.home.hip.lsi"), "{said}");
        ensure!(lsi(&pair.device, "hip/peers/0/lsi")? == of_server, "{lines}");
        device.sh(&both).with_context(|| pair.logs())?;
        ensure!(device.sh("nft list ruleset")? == held, "{lines}");
    }
    std::fs::write(device.dir().join("hip.key"), include_str!("../../../crates/hip/tests/keys/rsa1024.pem"))?;
    rewrite(device, &end(device, "version = 1", &[("2001:1a::1", "old", &[GATEWAY])]))?;
    let said = pair.device.ok(&["reload"])?.text;
    ensure!(said.contains("connection.home.hip.version"), "{said}");
    ensure!(device.sh("nft list ruleset")? == held);
    device.sh(&both).with_context(|| pair.logs())?;
    ensure!(pair.peer()?.get("state").and_then(serde_json::Value::as_str) == Some("up"), "it has ended");
    Ok(())
}
