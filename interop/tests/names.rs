//! Gateways that are known by name, or by addresses of both families: a device that finds them wherever it is.

use anyhow::Result;
use dormouse_interop::ends;
use dormouse_testbed::{
    Access, Dormoused, EchoServer, GATEWAY, GATEWAY_V6, LongLived, Need, Roaming, SERVER, require,
};
use std::net::SocketAddr;
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];
const NAME: &str = "vpn.test";
const POOL: &str = "\"10.55.0.0/24\", \"fd55::/64\"";
/// `up` with the patience of these tests.
const UP: [&str; 4] = ["up", "peer", "--timeout", "20"];

/// The standard world; the device has a hosts file of its own, and no name server.
fn world(hosts: &str) -> Result<Roaming> {
    let world = Roaming::new(30)?;
    world.device.etc("resolv.conf", "nameserver 127.0.0.1\n")?;
    world.device.etc("hosts", hosts)?;
    Ok(world)
}

fn gateway(world: &Roaming, more: &str) -> Result<Dormoused> {
    Dormoused::start(&world.gateway, "dns = \"off\"", &(ends::gateway(POOL, "") + more))
}

/// A device that knows its gateway as `gateway`.
fn device(world: &Roaming, gateway: &str) -> Result<Dormoused> {
    let toml =
        ends::device("").replace(&format!("gateway = \"{GATEWAY}\""), &format!("gateway = \"{gateway}\""));
    Dormoused::start(&world.device, "dns = \"off\"", &toml)
}

fn server() -> SocketAddr {
    SocketAddr::new(SERVER.parse().expect("an address"), 7777)
}

/// Network A as it is with IPv4 alone, or with IPv6 alone.
fn only(world: &Roaming, v6: bool) -> Result<()> {
    let d = &world.device;
    world.attach(Access::A)?;
    // The addresses that stay come first: so a device changes networks.
    d.ip(&format!("-{} route del default", if v6 { 4 } else { 6 }))?;
    d.ip(&format!("-{} addr flush dev wlan0", if v6 { 4 } else { 6 }))
}

/// From IPv4 to IPv6 and back, beside a connection that must live through it.
fn moves_between_the_families(world: &Roaming, device: &Dormoused, gateway: &Dormoused) -> Result<()> {
    let _echo = EchoServer::start(&world.server, server())?;
    only(world, false)?;
    device.ok(&UP)?;
    let tcp = LongLived::connect(&world.device, server())?;
    for (v6, address) in [(true, GATEWAY_V6), (false, GATEWAY), (true, GATEWAY_V6)] {
        only(world, v6)?;
        tcp.lives(Duration::from_secs(20))
            .map_err(|e| e.context(format!("to {address}\n{}\n{}", device.log(), gateway.log())))?;
        let status = device.ok(&["status", "--json"])?.text;
        let mobike = status.contains("\"rung\":\"mobike\"");
        assert!(
            status.contains(&format!("-> {address}")) || status.contains(&format!("[{address}]")),
            "{status}"
        );
        assert!(mobike, "the session itself must have moved: {status}");
    }
    assert!(tcp.finish()? > 0);
    Ok(())
}

#[test]
fn a_gateway_with_a_name_is_followed_from_one_family_to_the_other() -> Result<()> {
    if !require("a name of both families", &NEEDS) {
        return Ok(());
    }
    let world = world(&format!("{GATEWAY} {NAME}\n{GATEWAY_V6} {NAME}\n"))?;
    let gateway = gateway(&world, "")?;
    let device = device(&world, NAME)?;
    moves_between_the_families(&world, &device, &gateway)
}

#[test]
fn a_gateway_that_announces_another_family_is_followed_to_it() -> Result<()> {
    if !require("an address of the other family", &NEEDS) {
        return Ok(());
    }
    let world = world("")?;
    let gateway = gateway(&world, &format!("[connection.peer.ike]\nother_addresses = [\"{GATEWAY_V6}\"]\n"))?;
    let device = device(&world, GATEWAY)?;
    moves_between_the_families(&world, &device, &gateway)
}

#[test]
fn a_name_that_was_not_known_is_asked_for_again() -> Result<()> {
    if !require("a name that is learned late", &NEEDS) {
        return Ok(());
    }
    let world = world("")?;
    let _gateway = gateway(&world, "")?;
    let device = device(&world, NAME)?;
    device.ok(&["up", "peer", "--no-wait"])?;
    // Without a network nothing is asked, and nothing is due.
    let answer = device.cli(&["wait", "peer", "--timeout", "2"])?;
    assert_eq!(answer.code, 6, "{}", answer.text);
    // With one, the name server does not know the name: that is what is said.
    world.attach(Access::A)?;
    let answer = device.cli(&["wait", "peer", "--timeout", "2"])?;
    assert!(answer.code == 6 && answer.text.contains(NAME), "{}", answer.text);
    // It learns it: no network changes, no command is given.
    world.device.etc("hosts", &format!("{GATEWAY} {NAME}\n"))?;
    device.ok(&["wait", "peer", "--timeout", "30"])?;
    Ok(())
}

#[test]
fn that_there_is_no_network_is_said() -> Result<()> {
    if !require("a device without a network", &NEEDS) {
        return Ok(());
    }
    let world = world("")?;
    let device = device(&world, GATEWAY)?;
    let answer = device.cli(&["up", "peer", "--timeout", "1"])?;
    assert!(answer.code == 3 && answer.text.contains("no network leads"), "{}", answer.text);
    Ok(())
}

#[test]
fn a_name_is_asked_for_again_when_the_network_comes() -> Result<()> {
    if !require("a name without a network", &NEEDS) {
        return Ok(());
    }
    let world = world("")?;
    let _gateway = gateway(&world, "")?;
    let device = device(&world, NAME)?;
    device.ok(&["up", "peer", "--no-wait"])?;
    device.cli(&["wait", "peer", "--timeout", "1"])?;
    let due = device.ok(&["status", "--json"])?.json;
    assert_eq!(due.pointer("/result/status/deadlines"), Some(&serde_json::json!([])), "without a network");
    world.device.etc("hosts", &format!("{GATEWAY} {NAME}\n"))?;
    world.attach(Access::A)?;
    device.ok(&["wait", "peer", "--timeout", "30"])?;
    Ok(())
}

#[test]
fn a_gateway_that_has_moved_is_looked_up_again() -> Result<()> {
    if !require("a gateway with a new address", &NEEDS) {
        return Ok(());
    }
    const NEW: &str = "203.0.113.77";
    let world = world(&format!("{GATEWAY} {NAME}\n"))?;
    world.attach(Access::A)?;
    world.gateway.ip(&format!("addr add {NEW}/32 dev lo"))?;
    world.core.ip(&format!("route add {NEW} via {GATEWAY}"))?;
    // What it says of itself is of no use: otherwise the device would move to its IPv6 address.
    let gateway = gateway(&world, "[connection.peer.ike]\nother_addresses = [\"203.0.113.99\"]\n")?;
    let device = device(&world, NAME)?;
    device.ok(&UP)?;
    world.core.nft(&format!(
        "table ip moved {{ chain forward {{ type filter hook forward priority 0;\nip daddr {GATEWAY} drop\nip saddr {GATEWAY} drop\n}}\n}}\n"
    ))?;
    world.device.etc("hosts", &format!("{NEW} {NAME}\n"))?;
    // What is sent is not answered, and the ladder climbs to its end.
    world.device.sh(&format!("ping -c 1 -W 1 {SERVER} || true"))?;
    let there = |text: &str| text.contains(&format!("-> {NEW}"));
    world
        .device
        .eventually(&format!("ping -c 1 -W 1 {SERVER}"), Duration::from_secs(60))
        .map_err(|e| e.context(format!("{}\n{}", device.log(), gateway.log())))?;
    let status = device.ok(&["status", "--json"])?.text;
    assert!(there(&status), "{status}");
    Ok(())
}

#[test]
fn a_gateway_that_does_not_answer_is_said_not_to() -> Result<()> {
    if !require("a silent gateway", &NEEDS) {
        return Ok(());
    }
    let world = world("")?;
    world.attach(Access::A)?;
    let toml = ends::device("") + "[connection.peer.wake]\nfull_ms = 500\n";
    let device = Dormoused::start(&world.device, "dns = \"off\"", &toml)?;
    let answer = device.cli(&["up", "peer", "--timeout", "3"])?;
    let said = answer.text.contains(&format!("{GATEWAY} did not answer"));
    assert!(answer.code == 6 && said, "{}", answer.text);
    let status = device.ok(&["status", "--json"])?.text;
    assert!(status.contains("did not answer"), "{status}");
    Ok(())
}
