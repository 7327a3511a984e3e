//! Two gateways that share a PostgreSQL database, as installed: a device comes back at the other one by its ticket when its own has died, with
//! its address; what one gateway does to a session, the other one knows; and the database's absence costs full exchanges, and nothing else.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, DEVICE, NEEDS, Scene, until};
use dormouse_interop::ends::{PATIENCE, inner, peers, rung};
use dormouse_testbed::require;

#[test]
fn a_device_comes_back_at_the_other_gateway_by_its_ticket_with_its_address() -> Result<()> {
    if !require("gateways that share a database", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(2, "")?;
    let address = scene.connect()?;
    ensure!(peers(&scene.gateways[0])? == [DEVICE], "{}", scene.gateways[0].log());
    scene.on_record()?;

    // Its gateway dies.
    scene.gateways[0].process().kill();
    scene.comes_to(1, &address)?;

    // The first one is there again, and knows nothing of the session; then the device moves back, and the second one lets it go.
    scene.gateways[0].restart()?;
    ensure!(peers(&scene.gateways[0])?.is_empty());
    scene.gateways[1].process().signal(nix::sys::signal::Signal::SIGSTOP);
    scene.comes_to(0, &address)?;
    scene.gateways[1].process().signal(nix::sys::signal::Signal::SIGCONT);
    scene.gateways[1].process().wait_for("clients are at other gateways now", PATIENCE)?;
    ensure!(peers(&scene.gateways[1])?.is_empty());
    let route = scene.ground.routes(1)?;
    ensure!(route.is_empty(), "{route}");
    scene.ping()?;

    // Who is denied at one is denied at both, and has no session anywhere.
    scene.gateways[1].ok(&["deny", DEVICE])?;
    scene.gateways[0].process().wait_for("denied at another gateway", PATIENCE)?;
    ensure!(peers(&scene.gateways[0])?.is_empty());
    let list = scene.gateways[0].ok(&["deny", "--list"])?.text;
    ensure!(list.contains(DEVICE), "{list}");
    scene.gateways[0].ok(&["allow", DEVICE])?;
    scene.gateways[1].process().wait_for("no longer denied", PATIENCE)?;

    // It is told that it is so when that is on record, and not before.
    scene.gateways[1].ok(&["deny", DEVICE])?;
    until("it is denied at the other one", || {
        Ok(scene.gateways[0].ok(&["deny", "--list"])?.text.contains(DEVICE))
    })?;
    let denied = || scene.ground.database.sql(DATABASE, "select count(*) from dormouse.denial");
    let locked = "begin; lock table dormouse.denial; select pg_sleep(3.5); commit";
    std::thread::scope(|scope| {
        let lock = scope.spawn(|| scene.ground.database.sql(DATABASE, locked));
        let waits = "select count(*) from pg_stat_activity where query like '%pg_sleep(3.5)%' and pid <> pg_backend_pid()";
        until("the table is locked", || Ok(scene.ground.database.sql(DATABASE, waits)? != "0"))?;
        let late = scene.gateways[0].cli(&["allow", DEVICE])?;
        ensure!(late.code != 0 && late.text.contains("not on record yet"), "{}", late.text);
        lock.join().map_err(|_| anyhow::anyhow!("the lock"))?.map(drop)
    })?;
    until("it is tried again", || Ok(denied()? == "0"))
}

#[test]
fn without_the_database_sessions_go_on_and_new_ones_begin_by_full_exchanges() -> Result<()> {
    if !require("gateways without their database", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(2, "")?;
    let address = scene.connect()?;
    scene.ground.database.kill();
    for gateway in &mut scene.gateways {
        gateway.process().wait_for("tickets are refused until the database can be reached", PATIENCE)?;
    }
    scene.ping().context("a session goes on")?;

    // Its ticket cannot be looked up, so it logs in; it keeps its address.
    scene.device.process().kill();
    scene.device.restart()?;
    scene.device.ok(&["up", "peer"])?;
    ensure!(rung(&scene.device)? == "full", "{}", scene.device.log());
    ensure!(inner(&scene.device)? == address);
    scene.ping()?;
    let refused = scene.gateways[0].cli(&["allow", "nobody.test"])?;
    ensure!(refused.code != 0 && refused.text.contains("cannot be reached"), "{}", refused.text);
    scene.gateways[0].ok(&["deny", "thief.test"])?;

    // What could not be written is written when it is back: the session is one that can be resumed, elsewhere too.
    scene.ground.database.go()?;
    scene.gateways[0].process().wait_for("the database is reached again", PATIENCE)?;
    scene.gateways[1].process().wait_for("denied at another gateway", PATIENCE)?;
    scene.on_record()?;
    scene.gateways[0].process().kill();
    scene.comes_to(1, &address)
}
