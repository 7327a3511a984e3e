//! A rendezvous server among our daemons: who registers at it is found through it wherever it is, and data does not pass it.

use super::{Listed, NEEDS, end, keygen, start};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::{PATIENCE, rewrite};
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Roaming, require};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The addresses of the rendezvous server towards the server, and towards the device.
const TO_SERVER: [&str; 2] = ["203.0.113.2", "2001:db8:3::2"];
const TO_DEVICE: [&str; 2] = ["198.51.100.1", "2001:db8:1::1"];

/// Waits until `dormouse hip status` says this.
pub(super) fn says(daemon: &Dormoused, words: &str) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = daemon.ok(&["hip", "status"])?.text;
        if status.contains(words) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "no '{words}' in {status}\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn relayed(daemon: &Dormoused) -> Result<u64> {
    let stats = daemon.ok(&["stats", "--json"])?.json;
    stats.pointer("/result/stats/counters/hip.relayed").and_then(Value::as_u64).context("no hip.relayed")
}

/// The configuration of the rendezvous server, with one peer.
fn server_of_all(host: &Host, carrier: &str, client: &str, clients: &str) -> String {
    let toml = end(host, carrier, &[(client, "server", &[])]);
    toml + &format!("[connection.home.hip.rendezvous_server]\nclients = {clients}\n")
}

#[test]
fn a_peer_is_found_through_its_rendezvous_server() -> Result<()> {
    if !require("HIP by rendezvous", &NEEDS) {
        return Ok(());
    }
    for carrier in ["", "carriers = [\"udp\"]"] {
        let world = Roaming::new(30)?;
        world.attach(Access::A)?;
        let (device, server, core) = (&world.device, &world.gateway, &world.core);
        let [of_device, of_server, of_core] = [device, server, core].map(|host| keygen(host, "ecdsa-p256"));
        let (of_device, of_server, of_core) = (of_device?, of_server?, of_core?);
        let middle = start(core, &server_of_all(core, carrier, &of_server, "[]"))?;
        let peers: [Listed<'_>; 2] = [(&of_core, "middle", &TO_SERVER), (&of_device, "device", &[])];
        let called = start(server, &end(server, &format!("{carrier}\nrendezvous = [\"middle\"]"), &peers))?;
        says(&called, "at middle").with_context(|| middle.log())?;
        says(&middle, "1 registered")?;

        let toml = end(device, carrier, &[(&of_server, "server", &[])]);
        let through = format!("rendezvous = {TO_DEVICE:?}\n");
        let mut caller = start(device, &(toml + &through))?;
        let logs = |caller: &Dormoused| format!("{}\n{}\n{}", caller.log(), middle.log(), called.log());
        device.sh(&format!("ping -c 2 -i 0.2 -W 5 {of_server}")).with_context(|| logs(&caller))?;
        says(&caller, GATEWAY)?;
        ensure!(relayed(&middle)? >= 1, "not through the server");

        // It moves, to another family. Who has never been told finds it there, by the same server.
        let before = relayed(&middle)?;
        caller.process().kill();
        server.ip("addr add 2001:db8:3::5/64 dev wan nodad")?;
        server.ip("-6 addr del 2001:db8:3::1/64 dev wan")?;
        server.ip("addr del 203.0.113.1/30 dev wan")?;
        says(&called, "2001:db8:3::5")?;
        caller.restart()?;
        device.eventually(&format!("ping -c 1 -W 1 {of_server}"), PATIENCE).with_context(|| logs(&caller))?;
        says(&caller, "2001:db8:3::5")?;
        ensure!(relayed(&middle)? > before, "not through the server");
    }
    Ok(())
}

#[test]
fn a_registration_is_refused_and_a_reload_needs_no_restart() -> Result<()> {
    if !require("HIP's registration", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(30)?;
    let (server, core) = (&world.gateway, &world.core);
    let (of_server, of_core) = (keygen(server, "ecdsa-p256")?, keygen(core, "ecdsa-p256")?);
    let middle = start(core, &server_of_all(core, "", &of_server, "[\"2001:22::1\"]"))?;
    let peers: [Listed<'_>; 1] = [(&of_core, "middle", &TO_SERVER)];
    let with = |lines: &str| end(server, lines, &peers);
    let called = start(server, &with("rendezvous = [\"middle\"]"))?;
    says(&called, "middle refuses: it does not register this host")?;
    rewrite(server, &with("multihoming = true\nliveness = 60\nesp = [\"aes128ccm16\"]"))?;
    let said = called.ok(&["reload"])?.text;
    assert!(said.contains("connection.home.hip.esp"), "{said}");
    for key in ["multihoming", "liveness", "rendezvous"] {
        assert!(!said.contains(key), "{said}");
    }
    assert!(!called.ok(&["hip", "status"])?.text.contains("refuses"));
    // Registered again, with an association that is there already; and liveness is asked about.
    rewrite(core, &server_of_all(core, "", &of_server, "[]"))?;
    let mut middle = middle;
    middle.restart()?;
    rewrite(server, &with("liveness = 1\nrendezvous = [\"middle\"]"))?;
    called.ok(&["reload"])?;
    says(&called, "at middle").with_context(|| called.log())?;
    says(&middle, "1 registered")
}
