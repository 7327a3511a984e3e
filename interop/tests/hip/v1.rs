//! Version 1 between our own daemons: RSA of 1,024 bits at one end and DSA at the other, traffic both ways, a change of address, and ESP in
//! UDP beside HIP as a protocol of its own.

use super::*;

/// Keys that protect nothing.
pub(super) const KEYS: [&str; 2] = [
    include_str!("../../../crates/hip/tests/keys/rsa1024.pem"),
    include_str!("../../../crates/hip/tests/keys/dsa1024.pem"),
];

/// The HIT that a daemon with the key of `host` says it has.
pub(super) fn hit(host: &Host, key: &str) -> Result<String> {
    std::fs::write(host.dir().join("hip.key"), key)?;
    host.sh(&format!("chmod 600 {}", host.dir().join("hip.key").display()))?;
    let daemon = start(host, &end(host, "version = 1", &[]))?;
    let status = daemon.ok(&["status", "--json"])?.json;
    let hit = status.pointer("/result/status/hip/hit").and_then(Value::as_str).context("no HIT")?;
    Ok(hit.to_owned())
}

/// A server with a peer of each version speaks with each in its own, at the same time and in both directions, and its status says which.
#[test]
fn one_daemon_speaks_both_versions() -> Result<()> {
    if !require("HIP in both versions", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let (device, core, server) = (&world.device, &world.core, &world.gateway);
    let old = hit(core, KEYS[1])?;
    let (of_device, of_server) = (keygen(device, "ecdsa-p256")?, keygen(server, "ecdsa-p256")?);
    let key_v1 = server.dir().join("hip-v1.key");
    std::fs::write(&key_v1, KEYS[0])?;
    server.sh(&format!("chmod 600 {}", key_v1.display()))?;
    let more = format!("key_v1 = {key_v1:?}");
    let peers: [Listed<'_>; 2] = [(&of_device, "device", &[]), (&old, "old", &["203.0.113.2"])];
    let server_daemon = start(server, &(end(server, &more, &peers) + "version = 1\n"))?;
    let own = of(&server_daemon, "hip/identities")?;
    let own_v1 = own.pointer("/1/hit").and_then(Value::as_str).context("no tag of version 1")?.to_owned();
    assert_eq!(own.pointer("/1/version"), Some(&1.into()), "{own}");
    assert_eq!(own.pointer("/0/hit").and_then(Value::as_str), Some(of_server.as_str()), "{own}");
    let old_daemon = start(core, &end(core, "version = 1", &[(&own_v1, "server", &[GATEWAY])]))?;
    let new_daemon = start(device, &end(device, "", &[(&of_server, "server", &[GATEWAY])]))?;
    let logs = || format!("{}\n{}\n{}", server_daemon.log(), old_daemon.log(), new_daemon.log());
    let ping = |from: &Host, to: &str| from.sh(&format!("ping -c 2 -i 0.2 -W 5 {to}")).with_context(logs);
    // The server calls the old peer, and is called by the new one.
    ping(server, &old)?;
    ping(device, &of_server)?;
    ping(core, &own_v1)?;
    ping(server, &of_device)?;
    let shown = server_daemon.ok(&["hip", "status"])?.text;
    assert!(shown.contains(&own_v1) && shown.contains("old (version 1)"), "{shown}");
    for (at, version) in [(0, 2), (1, 1)] {
        let peer = of(&server_daemon, &format!("hip/peers/{at}"))?;
        assert_eq!(
            (peer.get("version"), peer.get("state")),
            (Some(&version.into()), Some(&"up".into())),
            "{peer}"
        );
    }
    Ok(())
}

#[test]
fn old_identities_reach_each_other() -> Result<()> {
    if !require("HIP version 1", &NEEDS) {
        return Ok(());
    }
    let in_udp = "quirks = [\"esp-in-udp\", \"esp-sequence-32\"]\n";
    for (carriers, quirks) in [("\"ip\"", ""), ("\"udp\"", ""), ("\"ip\", \"udp\"", in_udp)] {
        let world = Roaming::new(30)?;
        world.attach(Access::A)?;
        let hits = [hit(&world.device, KEYS[0])?, hit(&world.gateway, KEYS[1])?];
        assert!(hits.iter().all(|hit| hit.starts_with("2001:1")), "{hits:?}");
        let more = format!("version = 1\ncarriers = [{carriers}]");
        let device = end(&world.device, &more, &[(&hits[1], "server", &[GATEWAY])]) + quirks;
        let server = end(&world.gateway, &more, &[(&hits[0], "device", &[])]) + quirks;
        let (server, device) = (start(&world.gateway, &server)?, start(&world.device, &device)?);
        let pair = Pair { device, server, hits, world };
        let witness = Witness::new(&pair.world.core, "to-g")?;
        pair.ping(2)?;
        let peer = pair.peer()?;
        assert_eq!(peer.get("state"), Some(&"up".into()), "{peer}");
        pair.world.device.sh(&format!("ping -c 1 -W 5 -s 64 -p 5ec2e7 {}", pair.hits[1]))?;
        assert!(
            !witness.had_seen(&pair.world.device, GATEWAY, &[0x5e, 0xc2, 0xe7, 0x5e, 0xc2, 0xe7])?,
            "it is encrypted"
        );
        let _echo =
            EchoServer::start(&pair.world.gateway, SocketAddr::new(pair.hits[1].parse()?, ECHO_PORT))?;
        let tcp = LongLived::connect(&pair.world.device, SocketAddr::new(pair.hits[1].parse()?, ECHO_PORT))?;
        pair.roams()?;
        pair.goes_from("10.1.0.3")?;
        tcp.lives(PATIENCE).with_context(|| pair.logs())?;
        tcp.finish()?;
    }
    Ok(())
}
