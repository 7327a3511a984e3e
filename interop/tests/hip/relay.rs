//! A relay among our daemons: two hosts behind NATs reach each other through it, and by a direct way where their NATs let them.

use super::rendezvous::says;
use super::{ECHO_PORT, Listed, NEEDS, end, keygen, start};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::PATIENCE;
use dormouse_interop::witness::Witness;
use dormouse_testbed::{Access, Dormoused, EchoServer, GATEWAY, Host, LongLived, Roaming, require};
use serde_json::Value;
use std::net::SocketAddr;

/// The relay, as both ends reach it.
const RELAY: &str = "203.0.113.2";
const UDP: &str = "carriers = [\"udp\"]";

fn counted(daemon: &Dormoused, name: &str) -> Result<u64> {
    let stats = daemon.ok(&["stats", "--json"])?.json;
    let counter = stats.pointer(&format!("/result/stats/counters/{name}")).and_then(Value::as_u64);
    counter.with_context(|| format!("no {name}"))
}

/// A NAT as routers at home are: what comes from outside and was not asked for ends there. A hard one shows each destination another port.
fn nat(router: &Host, dev: &str, hard: bool) -> Result<()> {
    router.masquerade(dev, 120)?;
    let shown = if hard { "fully-random" } else { "" };
    router.nft(&format!(
        "table ip home {{ chain post {{ type nat hook postrouting priority 90; oifname \"{dev}\" ip protocol udp masquerade {shown}\n}}\n\
         chain in {{ type filter hook input priority 0; iifname \"{dev}\" ip protocol udp drop\n}}\n}}\n"
    ))
}

#[test]
fn hosts_behind_nats_reach_each_other() -> Result<()> {
    if !require("HIP by relay", &NEEDS) {
        return Ok(());
    }
    for hard in [false, true] {
        let world = Roaming::new(120)?;
        world.attach(Access::B)?;
        nat(&world.router_b, "uplink", hard)?;
        nat(&world.gateway, "wan", hard)?;
        let (device, server, core) = (&world.device, &world.server, &world.core);
        let [of_device, of_server, of_core] = [device, server, core].map(|host| keygen(host, "ecdsa-p256"));
        let (of_device, of_server, of_core) = (of_device?, of_server?, of_core?);
        let relay = end(core, UDP, &[(&of_server, "server", &[])])
            + "[connection.home.hip.relay_server]\nclients = [\"server\"]\n";
        let mut relay = start(core, &relay)?;
        let peers: [Listed<'_>; 2] = [(&of_core, "middle", &[RELAY]), (&of_device, "device", &[])];
        let called = start(server, &end(server, &format!("{UDP}\nrelays = [\"middle\"]"), &peers))?;
        says(&called, "at middle").with_context(|| relay.log())?;
        says(&relay, "as a relay, 1 registered")?;
        let through = end(device, UDP, &[(&of_server, "server", &[])]) + &format!("relays = [\"{RELAY}\"]\n");
        let caller = start(device, &through)?;
        let logs = |relay: &Dormoused| format!("{}\n{}\n{}", caller.log(), relay.log(), called.log());
        let witness = Witness::new(core, "to-g")?;
        let at = SocketAddr::new(of_server.parse()?, ECHO_PORT);
        let _echo = EchoServer::start(server, at)?;
        caller.ok(&["hip", "up", "server"]).with_context(|| logs(&relay))?;
        let tcp = LongLived::connect(device, at).with_context(|| logs(&relay))?;
        tcp.lives(PATIENCE).with_context(|| logs(&relay))?;
        if hard {
            // No way is found but the relay's, and it stays.
            std::thread::sleep(std::time::Duration::from_secs(8));
            says(&caller, "a relay").with_context(|| logs(&relay))?;
            let before = counted(&relay, "hip.relayed_data")?;
            device.sh(&format!("ping -c 3 -i 0.2 -W 5 {of_server}")).with_context(|| logs(&relay))?;
            server.sh(&format!("ping -c 3 -i 0.2 -W 5 {of_device}")).with_context(|| logs(&relay))?;
            ensure!(counted(&relay, "hip.relayed_data")? >= before + 12, "{}", logs(&relay));
            ensure!(counted(&caller, "hip.direct")? == 0);
        } else {
            says(&caller, &format!("{GATEWAY}:")).with_context(|| logs(&relay))?;
            says(&called, "198.51.100.6:").with_context(|| logs(&relay))?;
            ensure!(
                counted(&caller, "hip.direct")? == 1 && counted(&called, "hip.direct")? == 1,
                "{}",
                logs(&relay)
            );
            // It needs no relay any more.
            relay.process().kill();
        }
        tcp.lives(PATIENCE).with_context(|| logs(&relay))?;
        device.sh(&format!("ping -c 1 -W 5 -s 64 -p 5ec2e7 {of_server}")).with_context(|| logs(&relay))?;
        assert!(
            !witness.had_seen(device, GATEWAY, &[0x5e, 0xc2, 0xe7, 0x5e, 0xc2, 0xe7])?,
            "it is encrypted"
        );
        tcp.finish()?;
    }
    Ok(())
}
