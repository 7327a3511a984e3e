//! A ticket file that is copied from a device's disk, and used on another machine once the device has come back by it, or has
//! logged out and in again.

use anyhow::{Context, Result};
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::{Access, Dormoused, GATEWAY, Host, Need, Roaming, require};
use serde_json::Value;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// Where a client keeps the ticket of the connection `peer`.
const TICKET: &str = "ticket-peer";
/// Where the thief is each time, and its router there: logs of one machine would run into each other.
const DENS: [(&str, &str); 2] = [("198.51.100.10", "198.51.100.9"), ("198.51.100.14", "198.51.100.13")];

fn end(role: &str, own: &str, peer: &str, child: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let secret = "secret = \"a shared secret of the test\"";
    format!(
        "[connection.peer]\nrole = \"{role}\"\n{gateway}\n[connection.peer.local]\nid = \"{own}\"\n{secret}\n\
         [connection.peer.remote]\nid = \"{peer}\"\n{secret}\n[connection.peer.child]\n{child}\n"
    )
}

/// The device's own configuration: the thief has that too, so that it could do no better.
fn device() -> String {
    end("client", "device.test", "gateway.test", "remote = [\"10.99.0.0/24\"]")
}

fn rung(daemon: &Dormoused) -> Result<String> {
    let status = daemon.ok(&["status", "--json"])?.json;
    let rung = status.pointer("/result/status/connections/0/last_wake/rung").and_then(Value::as_str);
    Ok(rung.unwrap_or_default().to_owned())
}

fn ticket(host: &Host) -> Result<Vec<u8>> {
    let file = host.dir().join("state").join(TICKET);
    std::fs::read(&file).with_context(|| file.display().to_string())
}

/// The copy is used elsewhere: it brings nothing back, and the gateway says where it came from.
fn is_refused(gateway: &Dormoused, den: &Host, from: &str, copied: &[u8]) -> Result<()> {
    Dormoused::leave_state(den, TICKET, copied)?;
    let mut thief = Dormoused::start(den, "dns = \"off\"", &device())?;
    thief.ok(&["up", "peer"])?;
    // The gateway answers it like any other, and asks its store when the thief has shown that it is there.
    thief.process().wait_for("refused by the gateway", PATIENCE)?;
    thief.ok(&["wait", "peer", "--timeout", "40"])?;
    assert_eq!(rung(&thief)?, "full", "{}\n{}", thief.log(), gateway.log());
    let refusals = gateway.log();
    let refusal = refusals.lines().find(|l| l.contains("a client was refused") && l.contains(from));
    assert!(refusal.is_some_and(|l| l.contains("was used, or the session has ended")), "{refusals}");
    thief.ok(&["down", "peer"])?;
    thief.process().stop();
    Ok(())
}

#[test]
fn a_copied_ticket_file_brings_nothing_back_once_its_owner_has_used_it_or_logged_out() -> Result<()> {
    if !require("a copied ticket", &NEEDS) {
        return Ok(());
    }
    let mut world = Roaming::new(61)?;
    world.attach(Access::A)?;
    let dens = [world.bed.host("den0")?, world.bed.host("den1")?];
    for ((den, (there, here)), to) in dens.iter().zip(DENS).zip(["to-d0", "to-d1"]) {
        let (outer, router) = (format!("{there}/30"), format!("{here}/30"));
        world.bed.link((den, "eth0", &[&outer]), (&world.core, to, &[&router]))?;
        den.ip(&format!("route add default via {here}"))?;
    }
    let pool = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.peer.pool]\naddresses = [\"10.55.0.0/24\"]";
    let mut gateway =
        Dormoused::start(&world.gateway, "dns = \"off\"", &end("gateway", "gateway.test", "*.test", pool))?;
    let mut owner = Dormoused::start(&world.device, "dns = \"off\"", &device())?;
    owner.ok(&["up", "peer"])?;

    // Its owner comes back by it.
    let copied = ticket(&world.device)?;
    owner.process().kill();
    owner.restart()?;
    owner.ok(&["up", "peer"])?;
    assert_eq!(rung(&owner)?, "ticket", "{}\n{}", owner.log(), gateway.log());
    gateway.process().wait_for("resumed=true", PATIENCE)?;
    is_refused(&gateway, &dens[0], DENS[0].0, &copied)?;

    // Its owner logs out without having used it, and in again.
    owner.ok(&["down", "peer"])?;
    owner.ok(&["up", "peer"])?;
    let copied = ticket(&world.device)?;
    owner.ok(&["down", "peer"])?;
    owner.ok(&["up", "peer"])?;
    is_refused(&gateway, &dens[1], DENS[1].0, &copied)?;
    Ok(())
}
