//! Peers that depart from the RFCs, with all departures at once at both ends: what each does alone must hold beside the others, in daemons as
//! they are configured. Tried between two ends of Dormouse alone.

use super::{ECHO_PORT, NEEDS, Pair, end, keygen, start, v1};
use anyhow::{Context, Result, ensure};
use dormouse_interop::ends::PATIENCE;
use dormouse_interop::witness::Witness;
use dormouse_testbed::{Access, EchoServer, GATEWAY, Host, LongLived, Roaming, require};
use serde_json::Value;
use std::net::SocketAddr;

/// All of the table in docs/hip.md.
const ALL: [&str; 13] = [
    "puzzle-hits-swapped",
    "exchange-macs-swapped",
    "r2-signature-2",
    "esp-icv-32",
    "null-iv-16",
    "secret-stripped",
    "one-group",
    "bare",
    "known-parameters-only",
    "update-ids-from-1",
    "close-ack-ignored",
    "esp-sequence-32",
    "esp-in-udp",
];
/// Those with which the peer is not told of a new address: the association begins anew there.
const UNMOVED: [&str; 2] = ["bare", "known-parameters-only"];

/// A device and a server with these lines of the section, and these quirks of each other.
fn pair(keys: impl Fn(&Host, usize) -> Result<String>, more: &str, quirks: &[&str]) -> Result<Pair> {
    let world = Roaming::new(30)?;
    world.attach(Access::A)?;
    let hits = [keys(&world.device, 0)?, keys(&world.gateway, 1)?];
    let more = format!("carriers = [\"ip\", \"udp\"]\n{more}");
    let quirks = format!("quirks = {quirks:?}\n");
    let device = end(&world.device, &more, &[(&hits[1], "server", &[GATEWAY])]) + &quirks;
    // It knows where the device is at first: either end begins.
    let server = end(&world.gateway, &more, &[(&hits[0], "device", &["10.1.0.2"])]) + &quirks;
    let (server, device) = (start(&world.gateway, &server)?, start(&world.device, &device)?);
    Ok(Pair { device, server, hits, world })
}

fn established(pair: &Pair) -> Result<u64> {
    let stats = pair.server.ok(&["stats", "--json"])?.json;
    stats.pointer("/result/stats/counters/hip.established").and_then(Value::as_u64).context("no counter")
}

/// Carries traffic both ways, moves, ends, and begins again.
fn lives(pair: &Pair, what: &str, moves: bool) -> Result<()> {
    let said = || format!("{what}\n{}", pair.logs());
    pair.ping(2).with_context(said)?;
    let server = SocketAddr::new(pair.hits[1].parse()?, ECHO_PORT);
    let _echo = EchoServer::start(&pair.world.gateway, server)?;
    let tcp = LongLived::connect(&pair.world.device, server).with_context(said)?;
    tcp.lives(PATIENCE).with_context(said)?;
    let device = &pair.world.device;
    // Large packets, so that all lengths of padding, vector and ICV are met.
    for size in [1, 2, 3, 4, 900, 1_200] {
        device.sh(&format!("ping -c 1 -W 5 -s {size} {}", pair.hits[1])).with_context(said)?;
    }
    let before = established(pair)?;
    pair.roams()?;
    // The connection lives through it, whichever way.
    tcp.lives(PATIENCE).with_context(said)?;
    pair.goes_from("10.1.0.3").with_context(said)?;
    ensure!((established(pair)? == before) == moves, "{}: a new association", said());
    tcp.finish()?;
    pair.device.ok(&["hip", "down", "server"]).with_context(said)?;
    // It is over at both ends, also where the answer to CLOSE is not given.
    let state = |of: &dormouse_testbed::Dormoused| -> Result<String> {
        let status = of.ok(&["status", "--json"])?.json;
        let state = status.pointer("/result/status/hip/peers/0/state").and_then(Value::as_str);
        Ok(state.unwrap_or_default().to_owned())
    };
    // Who was told goes on answering CLOSE for two minutes.
    let is_over =
        || Ok::<_, anyhow::Error>(state(&pair.device)? == "down" && state(&pair.server)? == "closing");
    let end = std::time::Instant::now() + PATIENCE;
    while !is_over()? {
        ensure!(std::time::Instant::now() < end, "it does not end: {}", said());
        std::thread::sleep(std::time::Duration::from_millis(100));
        // The last packets of TCP may come later than the end, and call again.
        if state(&pair.device)? == "up" {
            pair.device.ok(&["hip", "down", "server"]).with_context(said)?;
        }
    }
    pair.ping(1).with_context(said)
}

#[test]
fn all_departures_hold_together() -> Result<()> {
    if !require("HIP with peers that depart from the RFCs", &NEEDS) {
        return Ok(());
    }
    let keys = |host: &Host, n: usize| keygen(host, ["ecdsa-p256", "rsa --bits 2048"][n]);
    for esp in ["aes128-sha256", "null-sha256"] {
        let more = format!("esp = [\"{esp}\"]");
        let all = pair(keys, &more, &ALL)?;
        let witness = Witness::new(&all.world.core, "to-g")?;
        all.ping(1).with_context(|| all.logs())?;
        all.world.device.sh(&format!("ping -c 1 -W 5 -s 64 -p 5ec2e7 {}", all.hits[1]))?;
        let readable = witness.had_seen(&all.world.device, GATEWAY, &[0x5e, 0xc2, 0xe7, 0x5e, 0xc2, 0xe7])?;
        ensure!(readable == esp.starts_with("null"), "{esp}: {readable}");
        lives(&all, &format!("all, {esp}"), false)?;
        // Without the two that keep a peer from following, the association itself moves.
        let moving: Vec<&str> = ALL.into_iter().filter(|quirk| !UNMOVED.contains(quirk)).collect();
        lives(&pair(keys, &more, &moving)?, &format!("all that move, {esp}"), true)?;
    }
    Ok(())
}

#[test]
fn all_departures_hold_together_in_version_1() -> Result<()> {
    if !require("HIP version 1 with peers that depart from the RFCs", &NEEDS) {
        return Ok(());
    }
    let keys = |host: &Host, n: usize| v1::hit(host, v1::KEYS[n]);
    let moving: Vec<&str> = ALL.into_iter().filter(|quirk| !UNMOVED.contains(quirk)).collect();
    lives(&pair(keys, "version = 1", &ALL)?, "all, version 1", false)?;
    lives(&pair(keys, "version = 1", &moving)?, "all that move, version 1", true)
}

/// The table of the documentation is what the daemon takes, and one more word is refused with the list.
#[test]
fn the_documentation_names_all_departures() -> Result<()> {
    let text = include_str!("../../../docs/hip.md");
    let rows =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(name, _)| name);
    let named: Vec<&str> = rows.filter(|name| ALL.contains(name)).collect();
    ensure!(named == ALL, "{named:?}");
    Ok(())
}
