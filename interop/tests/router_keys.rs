//! Header keys follow a device from one access router to the next, between shipped daemons: before it comes (PKD), from the router before
//! (DKM), or when the gateway is told where it is.

use anyhow::Result;
use dormouse_interop::ends::PATIENCE;
use dormouse_testbed::routers::{DEVICE, Mode, ROUTERS, Routers, SERVER};
use dormouse_testbed::{Dormoused, Need, require};
use serde_json::Value;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];

/// The device talks to what is behind its gateway, wherever it is.
fn talks(world: &Routers) -> Result<()> {
    world.mobile.eventually(&format!("ping -c 3 -i 0.2 -W 1 {SERVER}"), PATIENCE).map(drop)
}

/// The device is with the first router, and its session is up.
fn begin(mode: Mode) -> Result<Routers> {
    let world = Routers::start(mode)?;
    world.go(Some(0))?;
    world.device.ok(&["up", "office", "--timeout", "30"])?;
    talks(&world)?;
    Ok(world)
}

fn counter(daemon: &Dormoused, name: &str) -> Result<u64> {
    let stats = daemon.ok(&["stats", "--json"])?.json;
    Ok(stats.pointer(&format!("/result/stats/counters/{name}")).and_then(Value::as_u64).unwrap_or(0))
}

#[test]
fn a_neighbour_has_the_keys_before_the_device_comes() -> Result<()> {
    if !require("PKD between daemons", &NEEDS) {
        return Ok(());
    }
    let world = begin(Mode::Ahead)?;
    world.has_keys(0, true)?;
    world.has_keys(1, true)?;
    let before = world.router(1)?;
    assert_eq!((&before["read"], &before["asked"]), (&0.into(), &0.into()), "{before}");
    world.go(Some(1))?;
    talks(&world)?;
    let after = world.router(1)?;
    assert!(after["read"].as_u64() > Some(2), "{after}");
    assert_eq!(after["asked"], 0, "it had them: {after}");
    // The session ends: no router keeps them.
    world.device.ok(&["down", "office"])?;
    world.has_keys(0, false)?;
    world.has_keys(1, false)
}

#[test]
fn keys_move_from_router_to_router_with_the_device() -> Result<()> {
    if !require("DKM between daemons", &NEEDS) {
        return Ok(());
    }
    let world = begin(Mode::Migrate)?;
    world.has_keys(0, true)?;
    assert_eq!(world.keys(1)?, 0, "the device is not there");
    // The first router has asked its neighbour in vain, then the gateway. Now it is asked itself.
    let answered = counter(&world.routers[0], "ike.answered.keys")?;
    world.go(Some(1))?;
    talks(&world)?;
    world.has_keys(1, true)?;
    world.has_keys(0, false)?;
    assert!(counter(&world.routers[0], "ike.answered.keys")? > answered, "{}", world.routers[0].log());
    talks(&world)?;
    assert!(world.router(1)?["read"].as_u64() > Some(0), "{}", world.router(1)?);
    Ok(())
}

#[test]
fn a_gateway_that_is_told_where_the_device_is_gives_its_keys_there() -> Result<()> {
    if !require("a registration says where a device is", &NEEDS) {
        return Ok(());
    }
    let world = begin(Mode::Told)?;
    // The first router saw the device's packets and has asked for itself.
    world.has_keys(0, true)?;
    let refused = world.gateway.cli(&["keys", "at", DEVICE, "stranger.test"])?;
    assert!(refused.code != 0 && refused.text.contains("child.zones.routers"), "{}", refused.text);
    let unknown = world.gateway.cli(&["keys", "at", "nobody.test", ROUTERS[1]])?;
    assert!(unknown.code != 0 && unknown.text.contains("no session of 'nobody.test'"), "{}", unknown.text);
    world.gateway.ok(&["keys", "at", DEVICE, ROUTERS[1]])?;
    world.has_keys(1, true)?;
    world.has_keys(0, false)?;
    assert_eq!(world.router(1)?["asked"], 0, "without a packet of the device");
    Ok(())
}
