//! A database whose disks are slow: two standbys, of which one must have each commit, and both take long or do nothing. A commit is decided then
//! and acknowledged late, or never. Packets do not wait, a device hears in time, and what was acknowledged late is counted once.

use crate::disk::{Beside, logs_in_at_the_second};
use crate::partition::moves_to;
use crate::thief::{Thief, ticket};
use anyhow::{Result, ensure};
use dormouse_interop::cluster::{DATABASE, Ground, NEEDS, OUTER, Scene, until};
use dormouse_interop::ends::inner;
use dormouse_testbed::require;
use std::net::IpAddr;

/// A device at the first of two gateways, whose database has two standbys; another one that sends all the while, and a thief.
fn stage() -> Result<(Scene, Beside, Thief)> {
    let mut ground = Ground::with_standbys(2)?;
    let thief = Thief::new(&mut ground)?;
    let mut scene = Scene::on(ground, "")?;
    scene.ground.behind_the_name(&OUTER[..1])?;
    let address = scene.connect()?;
    ensure!(scene.balances(&address)? == 0);
    let beside = Beside::new(&mut scene)?;
    Ok((scene, beside, thief))
}

/// Standbys apply what is older than this.
fn lag(scene: &Scene, milliseconds: u32) -> Result<()> {
    let delay = format!("{milliseconds}ms");
    scene.ground.standbys.iter().try_for_each(|standby| standby.set("recovery_min_apply_delay", &delay))
}

/// Commits that were decided, and wait for a standby.
fn waiting(scene: &Scene) -> Result<u32> {
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    Ok(scene.ground.database.sql(DATABASE, waiting)?.parse()?)
}

fn logs_in(scene: &mut Scene, address: &[IpAddr]) -> Result<()> {
    logs_in_at_the_second(&mut scene.device, &scene.ground, &scene.gateways[1], address)
}

/// The device, at the second gateway by a login, goes to the first one and back by tickets; that which it had shown before counts nowhere.
fn goes_on(scene: &mut Scene, thief: &mut Thief, address: &[IpAddr], shown: &[u8]) -> Result<()> {
    ensure!(scene.balances(address)? == 1);
    thief.shows(scene, 1, address, shown)?;
    for gateway in [0, 1] {
        ensure!(moves_to(scene, gateway)? == "ticket", "{}", scene.logs());
        ensure!(scene.balances(address)? == gateway && inner(&scene.device)? == address);
        thief.shows(scene, gateway, address, shown)?;
    }
    Ok(())
}

#[test]
fn commits_that_are_acknowledged_late_count_once_and_packets_do_not_wait_for_them() -> Result<()> {
    if !require("gateways whose database is followed by slow standbys", &NEEDS) {
        return Ok(());
    }
    let (mut scene, beside, mut thief) = stage()?;
    let address = inner(&scene.device)?;

    // Slow, and still in time: tickets count.
    lag(&scene, 600)?;
    ensure!(moves_to(&mut scene, 1)? == "ticket", "{}", scene.logs());
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());

    // Too late for a device that waits for its answer: the ticket's use is on record all the same.
    let shown = ticket(&scene.ground.world.device)?;
    lag(&scene, 3_500)?;
    logs_in(&mut scene, &address)?;
    lag(&scene, 0)?;
    beside.lost_nothing(&scene)?;
    goes_on(&mut scene, &mut thief, &address, &shown)
}

#[test]
fn while_no_standby_answers_no_ticket_counts_and_sessions_go_on() -> Result<()> {
    if !require("gateways whose database is followed by standbys that do nothing", &NEEDS) {
        return Ok(());
    }
    let (mut scene, beside, mut thief) = stage()?;
    let address = inner(&scene.device)?;
    let shown = ticket(&scene.ground.world.device)?;

    scene.ground.standbys.iter().for_each(|standby| standby.freeze(true));
    logs_in(&mut scene, &address)?;
    until("commits wait", || Ok(waiting(&scene)? > 0))?;
    // Each gateway has given its connection up, and tries again: none of the attempts holds the server's places for good.
    for gateway in 0..2 {
        until("the gateway goes without", || Ok(!scene.reaches(gateway)))?;
    }
    ensure!(waiting(&scene)? < 10, "{} commits wait", waiting(&scene)?);

    scene.ground.standbys.iter().for_each(|standby| standby.freeze(false));
    beside.lost_nothing(&scene)?;
    goes_on(&mut scene, &mut thief, &address, &shown)
}
