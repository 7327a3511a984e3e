//! What a gateway's daemon does for its clients beside the tunnel (`pool.forward`), with the rights of the shipped unit alone: forwarding in both
//! families and translation are there while it runs, come back when they are removed, and end with it, however it ends.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail};
use dormouse_interop::ends::{PATIENCE, rewrite};
use dormouse_interop::shipped::confined;
use dormouse_testbed::{Dormoused, Extra, Host, Need, Roaming, require};
use std::time::Instant;

const NEEDS: [Need; 4] =
    [Need::Root, Need::File("/dev/net/tun"), Need::Program("nft"), Need::Program("setpriv")];
const SWITCHES: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
/// Whether the machine takes a route from router advertisements.
const ADVERTISED: &str = "net.ipv6.conf.wan.accept_ra";

fn toml(forward: &str, more: &str) -> String {
    format!(
        "[connection.peer]\nrole = \"gateway\"\n[connection.peer.local]\nid = \"gateway.test\"\nsecret = \"a shared secret of the test\"\n\
         [connection.peer.remote]\nid = \"device.test\"\n[connection.peer.child]\nlocal = [\"0.0.0.0/0\", \"::/0\"]\n\
         [connection.peer.pool]\naddresses = [\"10.55.0.0/24\", \"fd55::/64\"]\n{forward}\n{more}"
    )
}

/// IPv4, IPv6, router advertisements, and whether the table is there.
fn state(host: &Host) -> Result<(String, bool)> {
    let keys = SWITCHES.into_iter().chain([ADVERTISED]);
    let values: Vec<String> = keys.map(|key| host.sh(&format!("sysctl -n {key}"))).collect::<Result<_>>()?;
    let values: Vec<&str> = values.iter().map(|value| value.trim()).collect();
    Ok((values.join(" "), host.sh("nft list tables")?.contains("dormouse_forward")))
}

fn until(host: &Host, wanted: (&str, bool)) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = state(host)?;
        if (now.0.as_str(), now.1) == wanted {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("{now:?}, not {wanted:?}");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn start(host: &Host, toml: &str) -> Result<Dormoused> {
    // As the service manager does at each start.
    host.sh(&format!("chown -R root {0} 2>/dev/null || true", host.dir().join("state").display()))?;
    let extra = Extra { user: "nobody".to_owned(), confined_by: confined(host.dir())?, ..Extra::default() };
    Dormoused::start_with(host, extra, "dns = \"off\"", toml)
}

#[test]
fn forwarding_and_translation_are_there_while_the_daemon_runs() -> Result<()> {
    if !require("forwarding by the daemon", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let gateway = &world.gateway;
    for key in SWITCHES {
        gateway.sysctl(key, "0")?;
    }
    gateway.sysctl(ADVERTISED, "1")?;
    let translated = toml("forward = \"translate\"", "");
    let (off, on) = (("0 0 1", false), ("1 1 2", true));

    let daemon = start(gateway, &translated)?;
    until(gateway, on).with_context(|| daemon.log())?;
    // Another program removes everything.
    gateway.sh("nft flush ruleset")?;
    until(gateway, on).with_context(|| daemon.log())?;
    let rules = gateway.sh("nft list table inet dormouse_forward")?;
    for line in ["ip saddr 10.55.0.0/24 oifname != ", "ip6 saddr fd55::/64 oifname != "] {
        assert!(rules.contains(line), "{rules}");
    }
    // What only routes needs no table, and is in force without a new start.
    rewrite(gateway, &toml("forward = \"route\"", ""))?;
    daemon.ok(&["reload"])?;
    until(gateway, ("1 1 2", false)).with_context(|| daemon.log())?;
    rewrite(gateway, &toml("", ""))?;
    daemon.ok(&["reload"])?;
    until(gateway, off).with_context(|| daemon.log())?;
    rewrite(gateway, &translated)?;
    daemon.ok(&["reload"])?;
    until(gateway, on).with_context(|| daemon.log())?;
    drop(daemon);
    assert_eq!(state(gateway)?, (off.0.to_owned(), off.1), "as it was");
    Ok(())
}

#[test]
fn what_a_killed_daemon_leaves_is_undone_and_what_was_on_stays_on() -> Result<()> {
    if !require("forwarding after a kill", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let gateway = &world.gateway;
    gateway.sysctl(SWITCHES[0], "1")?;
    gateway.sysctl(SWITCHES[1], "0")?;
    gateway.sysctl(ADVERTISED, "1")?;
    let translated = toml("forward = \"translate\"", "");
    let (before, on) = (("1 0 1", false), ("1 1 2", true));
    let mut daemon = start(gateway, &translated)?;
    until(gateway, on).with_context(|| daemon.log())?;
    daemon.process().kill();
    until(gateway, before).with_context(|| daemon.log())?;

    // Its guard is killed too: the next daemon knows what was.
    let mut daemon = start(gateway, &translated)?;
    until(gateway, on).with_context(|| daemon.log())?;
    gateway.sh(&format!("kill -9 $(ip netns pids {} | xargs -n1 sh -c 'grep -qs forward-guar[d] /proc/$0/cmdline && echo $0; true')", gateway.netns()))?;
    daemon.process().kill();
    assert_eq!(state(gateway)?, (on.0.to_owned(), on.1), "nobody was left to undo it");
    let daemon = start(gateway, &toml("", ""))?;
    until(gateway, before).with_context(|| daemon.log())?;
    Ok(())
}
