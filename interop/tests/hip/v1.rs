//! Version 1 between our own daemons: RSA of 1,024 bits at one end and DSA at the other, traffic both ways, a change of address, and ESP in
//! UDP beside HIP as a protocol of its own.

use super::*;

/// Keys that protect nothing.
const KEYS: [&str; 2] = [
    include_str!("../../../crates/hip/tests/keys/rsa1024.pem"),
    include_str!("../../../crates/hip/tests/keys/dsa1024.pem"),
];

/// The HIT that a daemon with the key of `host` says it has.
fn hit(host: &Host, key: &str) -> Result<String> {
    std::fs::write(host.dir().join("hip.key"), key)?;
    host.sh(&format!("chmod 600 {}", host.dir().join("hip.key").display()))?;
    let daemon = start(host, &end(host, "version = 1", &[]))?;
    let status = daemon.ok(&["status", "--json"])?.json;
    let hit = status.pointer("/result/status/hip/hit").and_then(Value::as_str).context("no HIT")?;
    Ok(hit.to_owned())
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
        assert!(!witness.saw(&[0x5e, 0xc2, 0xe7, 0x5e, 0xc2, 0xe7]), "it is encrypted");
        let _echo =
            EchoServer::start(&pair.world.gateway, SocketAddr::new(pair.hits[1].parse()?, ECHO_PORT))?;
        let tcp = LongLived::connect(&pair.world.device, SocketAddr::new(pair.hits[1].parse()?, ECHO_PORT))?;
        let device = &pair.world.device;
        device.sysctl("net.ipv4.conf.all.promote_secondaries", "1")?;
        device.ip("addr add 10.1.0.3/24 dev wlan0")?;
        device.ip("addr del 10.1.0.2/24 dev wlan0")?;
        device.ip("route replace default via 10.1.0.1 dev wlan0")?;
        pair.goes_from("10.1.0.3")?;
        tcp.lives(PATIENCE).with_context(|| pair.logs())?;
        tcp.finish()?;
    }
    Ok(())
}
