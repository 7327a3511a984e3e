//! A shipped access router between a bad radio and a gateway. All three ends are real daemons, and TCP is the kernel's: with header keys from
//! the gateway the router repairs the radio, without them it forwards, and they go when the gateway takes them back.
//!
//! ```text
//!   gateway 10.78.0.1 ── wire ── 10.78.0.2 access router 10.77.0.1 ── radio with bit errors ── device 10.77.0.2
//! ```

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context as _, Result, bail};
use dormouse_interop::ends::PATIENCE;
use dormouse_netem::LinkConfig;
use dormouse_testbed::radio::{self, ADDRESSES, INTERFACE};
use dormouse_testbed::repaired::{Did, GATEWAY, Repair, Repaired, SERVER, Settings, Tunnel};
use dormouse_testbed::{Need, require};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
/// Of the radio, in kbit in a second.
const RATE: u32 = 4_000;
const FILE: u64 = 1_000_000;
const TRUSTED: Tunnel = Tunnel::Zoned { trusted: true };

/// The device is up.
fn world(tunnel: Tunnel, repair: Repair) -> Result<Repaired> {
    let radio = LinkConfig {
        rate: Some(u64::from(RATE) * 1_000),
        delay: Duration::from_millis(2),
        queue: 64_000,
        bit_error_rate: 1.0 / (256.0 * 1_024.0),
        ..LinkConfig::default()
    };
    let wire = LinkConfig { delay: Duration::from_millis(3), ..LinkConfig::default() };
    // All of it also while daemons look for packets without rest.
    let daemon = "log = \"info,dormouse_node=debug\"\nspin = \"100us\"".to_owned();
    Repaired::start(&Settings { tunnel, repair, rate_kbit: RATE, wire, radio, seed: 3, daemon })
}

/// Waits until the gateway has heard so often that the router takes no keys.
fn refused(world: &Repaired, times: usize) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while world.gateway()?.log().matches("keys refused").count() < times {
        if Instant::now() > until {
            bail!("keys were to be refused {times} times\n{}", world.logs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The device fetches a file from behind the gateway, byte for byte; what the router did meanwhile.
fn fetch(world: &Repaired) -> Result<Did> {
    world.fetch("cubic", FILE, PATIENCE, &Arc::default()).map(|(_, did)| did)
}

/// The flow of the last fetch among those that the router's status lists.
fn flow(world: &Repaired, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
    let status = world.status()?;
    let flows = status["flows"].as_array().context("no flows")?;
    flows.iter().find(|flow| is_it(flow)).cloned().with_context(|| format!("not that one: {status}"))
}

#[test]
fn with_header_keys_the_router_repairs_the_radio_and_they_go_when_revoked() -> Result<()> {
    if !require("an access router with keys", &NEEDS) {
        return Ok(());
    }
    let mut world = world(TRUSTED, Repair::Snoop)?;
    let status = world.keys(1)?;
    assert_eq!(status["keys"][0]["state"], "fit", "{status}");
    let gateway = world.gateway()?.ok(&["status"])?.text;
    assert!(gateway.contains("r1.test: held"), "{gateway}");
    let did = fetch(&world)?;
    assert!(did.repeated > 10 && did.read >= did.to_device / 2, "{did:?}");
    assert!(did.to_device > FILE / 1_500 && did.to_network > 0, "{did:?}");
    // The keys of the tunnel are the ends' own: nothing in its log or status says what they are, and the router holds no session with the device.
    let text = world.router.ok(&["status"])?.text;
    assert!(text.contains("router  radio0 - net0") && text.contains(": fit"), "{text}");
    let server = format!("{SERVER}:");
    let flow = flow(&world, |flow| flow["fixed"].as_str().is_some_and(|fixed| fixed.starts_with(&server)))?;
    assert_eq!(flow["esp"], serde_json::json!([GATEWAY, ADDRESSES[1][0]]), "{flow}");
    assert!(
        flow["repeated"].as_u64() > Some(10) && flow["round_trip_seconds"].as_f64() > Some(0.0),
        "{flow}"
    );
    assert!(text.contains(&format!("flow       {server}")) && text.contains(" in ESP from "), "{text}");

    // A router that has lost its keys gets them again, and goes on repairing.
    world.router.restart()?;
    world.keys(1)?;
    assert!(fetch(&world)?.repeated > 10);

    // The device ends its session: its gateway takes them back.
    world.device()?.ok(&["down", "office"])?;
    let status = world.keys(0)?;
    assert_eq!(status["keys"], serde_json::json!([]), "{status}");
    assert!(world.router.log().contains("header keys were taken back"), "{}", world.router.log());

    // They are not kept by the gateway for another one: a new session has new ones.
    world.up()?;
    let again = world.keys(1)?;
    assert_eq!(again["keys"][0]["state"], "fit", "{again}");
    Ok(())
}

#[test]
fn without_header_keys_it_forwards_and_repairs_nothing() -> Result<()> {
    if !require("an access router without keys", &NEEDS) {
        return Ok(());
    }
    // The gateway serves the router, but does not name it for these zones.
    let world = world(Tunnel::Zoned { trusted: false }, Repair::Snoop)?;
    let did = fetch(&world)?;
    assert_eq!((did.repeated, did.read), (0, 0), "{did:?}");
    assert!(did.to_device > FILE / 1_500, "all of it went through the router: {did:?}");
    let status = world.status()?;
    assert!(status["asked"].as_u64() > Some(0), "it says what it misses: {status}");
    assert_eq!((&status["keys"], did.asked < 20), (&serde_json::json!([]), true), "{status}");
    Ok(())
}

/// Datagrams that look like the SA's own, from somebody who has seen its SPI: numbers ahead, near, and of a report.
fn forge(world: &Repaired, spi: u32, stop: &Arc<AtomicBool>) -> Result<std::thread::JoinHandle<u32>> {
    let socket = world.hosts[0].run(|| std::net::UdpSocket::bind("10.78.0.1:0"))??;
    let stop = stop.clone();
    Ok(std::thread::spawn(move || {
        let mut sent = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            for number in [0, sent, sent.wrapping_add(400), sent.wrapping_mul(2_654_435_761)] {
                let mut forged = [spi.to_be_bytes(), number.to_be_bytes()].concat();
                forged.resize(90, 7);
                sent += u32::from(socket.send_to(&forged, (ADDRESSES[1][0], 4_500)).is_ok());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        sent
    }))
}

#[test]
fn by_the_numbers_of_esp_it_repairs_all_traffic_and_forgers_stop_nothing() -> Result<()> {
    if !require("an access router with reports", &NEEDS) {
        return Ok(());
    }
    let mut world = world(TRUSTED, Repair::EspArq)?;
    let status = world.keys(1)?;
    let did = fetch(&world)?;
    assert!(did.repeated > 10 && did.reports > 50, "{did:?}");
    assert!(
        world.device()?.log().contains("an access router repairs the radio"),
        "{}",
        world.device()?.log()
    );
    let text = world.router.ok(&["status"])?.text;
    assert!(text.contains("esp-arq:") && text.contains("reports; 1 SAs"), "{text}");
    let flow = flow(&world, |flow| flow["spi"].is_string())?;
    assert_eq!(flow["device"], ADDRESSES[1][0], "{flow}");
    assert!(flow["repeated"].as_u64() > Some(10) && flow["fixed"].is_null(), "{flow}");

    // To whom packets of this SPI go is in clear.
    let spi = status["keys"][0]["spi"].as_str().and_then(|spi| spi.split(' ').next()).context("an SPI")?;
    let stop = Arc::default();
    let forger = forge(&world, u32::from_str_radix(spi, 16)?, &stop)?;
    let did = fetch(&world);
    stop.store(true, Ordering::Relaxed);
    let forged = forger.join().ok().context("the forger")?;
    let did = did?;
    assert!(forged > 100 && did.repeated > 10 && did.reports > 50, "{forged} forged: {did:?}");

    // A router that does not repair is noticed, and one that does again.
    world.router.restart()?;
    world.keys(1)?;
    let did = fetch(&world)?;
    assert!(did.repeated > 10, "{did:?}");
    Ok(())
}

/// Plain TCP needs no keys, and so no connection.
#[test]
fn a_router_without_any_connection_repairs_plain_tcp() -> Result<()> {
    if !require("an access router without a connection", &NEEDS) {
        return Ok(());
    }
    let world = world(Tunnel::None, Repair::Snoop)?;
    let did = fetch(&world)?;
    assert!(did.repeated > 10 && did.read == 0, "{did:?}");
    Ok(())
}

#[test]
fn a_device_that_reports_to_no_router_loses_nothing_by_it() -> Result<()> {
    if !require("reports to no router", &NEEDS) {
        return Ok(());
    }
    let mut world = world(TRUSTED, Repair::EspArq)?;
    world.keys(1)?;
    world.router.process().stop();
    let [gateway, _, device] = &world.hosts;
    radio::transfer(gateway, device, SERVER.parse()?, "cubic", FILE / 8, PATIENCE, &Arc::default())
        .with_context(|| world.logs())?;
    assert!(!world.device()?.log().contains("an access router repairs"), "{}", world.device()?.log());
    Ok(())
}

#[test]
fn a_router_that_ends_leaves_forwarding_to_the_kernel() -> Result<()> {
    if !require("the end of an access router", &NEEDS) {
        return Ok(());
    }
    let mut world = world(TRUSTED, Repair::None)?;
    let did = fetch(&world)?;
    assert_eq!((did.repeated, did.read), (0, 0), "{did:?}");
    // It has no use for keys, so it takes none: those that it had it could pass on unseen.
    refused(&world, 1)?;
    let ping = format!("ping -c 1 -W 1 {SERVER}");
    let rules = || world.hosts[1].sh("ip rule show; ip -6 rule show");
    assert!(rules()?.contains(&format!("iif {INTERFACE}")), "{}", rules()?);
    world.hosts[2].eventually(&ping, PATIENCE)?;
    // Killed: it could undo nothing.
    world.router.process().kill();
    world.hosts[2].eventually(&ping, PATIENCE)?;
    world.router.restart()?;
    assert!(world.radio.works());
    world.router.ok(&["wait", "gw", "--timeout", "30"])?;
    refused(&world, 2)?;
    world.router.process().stop();
    assert!(!rules()?.contains("iif"), "{}", rules()?);
    world.hosts[2].eventually(&ping, PATIENCE)?;
    Ok(())
}
