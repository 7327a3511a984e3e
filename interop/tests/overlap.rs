//! A local network with addresses of the tunnel's other side: what the policy protects goes through the tunnel all the same.

use anyhow::Result;
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Need, Roaming, SERVER, require};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft")];

fn end(role: &str, own: &str, peer: &str, child: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n\
         [connection.peer.remote]\nid = \"{peer}\"\n{secret}\n[connection.peer.child]\n{child}\n"
    )
}

fn connected(world: &Roaming, local: &str, remote: &str, pool: &str) -> Result<(Dormoused, Dormoused)> {
    let gateway = end("gateway", "gateway.test", "*.test", &format!("local = [\"{remote}\"]\n{pool}"));
    let gateway = Dormoused::start(&world.gateway, "dns = \"off\"", &gateway)?;
    let device = end("client", "device.test", "gateway.test", &format!("{local}\nremote = [\"{remote}\"]"));
    let device = Dormoused::start(&world.device, "dns = \"off\"", &device)?;
    device.ok(&["up", "peer"])?;
    Ok((gateway, device))
}

/// Over which interface `host` reaches `to`.
fn way(host: &Host, to: &str) -> Result<String> {
    let route = host.sh(&format!("ip route get {to}"))?;
    let device = route.split_whitespace().skip_while(|w| *w != "dev").nth(1);
    Ok(device.unwrap_or_default().to_owned())
}

const POOL: &str = "[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";

#[test]
fn a_local_network_with_the_servers_addresses_gets_nothing_of_what_is_for_the_server() -> Result<()> {
    if !require("an overlapping local network", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    let (gateway, device) = connected(&world, "", "10.99.0.0/24", POOL)?;
    // Network B is a hotel's: its addresses are the server's, and a host there answers to that of the server. Network A is told
    // of routes that are more exact than the tunnel's.
    world.device.ip("link set dev wlan1 up")?;
    world.device.ip("addr add 10.99.0.77/25 dev wlan1")?;
    world.router_b.ip(&format!("addr add {SERVER}/25 dev lan"))?;
    world.device.ip("route add 10.99.0.0/26 via 10.1.0.1 dev wlan0")?;
    world.router_b.nft(&format!(
        "table ip seen {{ chain input {{ type filter hook input priority 0;\nip daddr {SERVER} counter\n}}\n}}\n"
    ))?;
    assert_eq!(way(&world.device, SERVER)?, way(&world.device, "10.99.0.1")?);
    world
        .device
        .sh(&format!("ping -c 3 -i 0.2 -W 3 {SERVER}"))
        .map_err(|e| e.context(format!("{}\n{}", device.log(), gateway.log())))?;
    let seen = world.router_b.sh("nft list table ip seen")?;
    assert!(seen.contains("packets 0 "), "what was for the server went out in clear: {seen}");
    // The device is still in its own networks: what the tunnel does not carry goes there.
    assert_eq!(way(&world.device, "10.1.0.1")?, "wlan0");
    device.ok(&["down", "peer"])?;
    assert_eq!(way(&world.device, "10.99.0.77")?, "lo");
    assert_eq!(way(&world.device, "10.99.0.100")?, "wlan1", "without the tunnel it is as before");
    Ok(())
}

#[test]
fn the_own_side_of_a_branch_stays_here_although_headquarters_stand_for_more() -> Result<()> {
    if !require("an own side inside the other", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    world.attach(Access::A)?;
    world.device.ip("link set dev wlan1 up")?;
    world.device.ip("addr add 10.88.1.1/24 dev wlan1")?;
    world.router_b.ip("addr add 10.88.1.2/24 dev lan")?;
    let (gateway, device) =
        connected(&world, "local = [\"10.88.1.0/24\"]", "10.0.0.0/8", "remote = [\"10.88.1.0/24\"]")?;
    let context = |e: anyhow::Error| e.context(format!("{}\n{}", device.log(), gateway.log()));
    world.device.sh("ping -c 2 -i 0.2 -W 3 10.88.1.2").map_err(context)?;
    assert_eq!(way(&world.device, "10.88.1.2")?, "wlan1");
    // The same address block, but no network of ours: headquarters'.
    world.device.sh(&format!("ping -c 2 -i 0.2 -W 3 -I 10.88.1.1 {SERVER}")).map_err(context)?;
    assert_ne!(way(&world.device, "10.1.0.9")?, "wlan0", "the access network is no side of the tunnel's");
    Ok(())
}
