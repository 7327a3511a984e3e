//! Three gateways of which one is cut off from the database, and from nothing else: what it has goes on, what is new gets what no other gateway
//! gives, and what others have taken over meanwhile it lets go when it is back.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, DEVICE, NEEDS, OUTER, Scene, name, names, until};
use dormouse_interop::ends::{PATIENCE, another, inner, rung};
use dormouse_testbed::{Dormoused, Process, SERVER, require};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Echoes of the device, ten a second, until they are counted.
pub(crate) fn echoes(scene: &Scene, called: &str) -> Result<Process> {
    scene.ground.world.device.spawn(called, "ping", &["-i", "0.1", SERVER])
}

/// Some that were asked from now on have come back, and all before them: of those after the last that has, some may be on their way.
pub(crate) fn none_was_lost(mut sending: Process) -> Result<()> {
    let answered = |log: &str| -> BTreeSet<u32> {
        let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
        log.lines().filter(|line| line.contains(" bytes from ")).filter_map(number).collect()
    };
    let last = || answered(&sending.log()).last().copied().unwrap_or(0);
    let before = last();
    until("echoes", || Ok(last() >= before + 5))?;
    sending.signal(Signal::SIGINT);
    sending.wait(PATIENCE).context("ping goes on")?;
    let all = answered(&sending.log());
    let last = all.last().copied().unwrap_or(0);
    let lost: Vec<u32> = (1..=last).filter(|number| !all.contains(number)).collect();
    ensure!(lost.is_empty(), "of {last} echoes these were lost: {lost:?}");
    Ok(())
}

/// The device's daemon begins anew at one gateway; by which rung it comes up.
pub(crate) fn moves_to(scene: &mut Scene, gateway: usize) -> Result<String> {
    scene.device.process().kill();
    scene.ground.behind_the_name(&[OUTER[gateway]])?;
    scene.ground.back_by(gateway)?;
    scene.device.restart()?;
    scene.device.ok(&["up", "peer"])?;
    scene.ping()?;
    rung(&scene.device)
}

#[test]
fn a_gateway_that_is_cut_off_serves_on_and_lets_go_what_others_took_over() -> Result<()> {
    if !require("a gateway without its database among three", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(3, "")?;
    scene.ground.behind_the_name(&OUTER[..1])?;
    let address = scene.connect()?;
    ensure!(scene.balances(&address)? == 0);

    // Nothing comes through any more, and nothing says so.
    let sending = echoes(&scene, "silence")?;
    scene.ground.cut(0, "drop")?;
    scene.gateways[0]
        .process()
        .wait_for("tickets are refused until the database can be reached", PATIENCE)?;
    none_was_lost(sending)?;
    ensure!(moves_to(&mut scene, 0)? == "full", "{}", scene.device.log());
    ensure!(inner(&scene.device)? == address);

    // New users there and at another gateway, neither of which can ask the other.
    let mut clients: Vec<(Dormoused, usize)> = Vec::new();
    for n in 0..4 {
        let (host, _) = another(&mut scene.ground.world, &format!("user{n}"), 2 + n)?;
        let gateway = usize::from(n % 2);
        names(&host, &OUTER[gateway..=gateway])?;
        let client = scene.ground.start_client(&host, &format!("user{n}.test"))?;
        client.ok(&["up", "peer"])?;
        clients.push((client, gateway));
    }
    let mut given = BTreeSet::from([address[0]]);
    for (client, gateway) in &clients {
        let own = inner(client)?[0];
        let IpAddr::V4(v4) = own else { anyhow::bail!("{own}") };
        ensure!(given.insert(own), "{own} was given twice");
        ensure!(v4.to_bits() % 4 == u32::try_from(*gateway)?, "{own} is not {}'s to give", name(*gateway));
    }

    // The device goes to a third one, where its last ticket is not known, and which gives it its address.
    let by = moves_to(&mut scene, 2)?;
    ensure!(by == "full", "{by}");
    ensure!(inner(&scene.device)? == address);

    // The one that was cut off, and could not hear of that, is back: it drops what it had, and what it gave is on record.
    scene.ground.heal(0)?;
    scene.gateways[0].process().wait_for("the database is reached again", PATIENCE)?;
    let lets_go = until("the first gateway lets go", || {
        Ok(!scene.served()?[0].contains(&DEVICE.to_owned())
            && !scene.ground.routes(0)?.contains(&format!("{} ", address[0])))
    });
    lets_go.with_context(|| scene.gateways[0].log())?;
    scene.ping().context("what was let go is the former gateway's alone")?;
    let held = |identity: &str| {
        let sql =
            format!("select host(v4) from dormouse.lease where convert_from(id_data, 'utf8') = '{identity}'");
        scene.ground.database.sql(DATABASE, &sql)
    };
    for (n, (client, _)) in clients.iter().enumerate() {
        let own = inner(client)?[0].to_string();
        until("the lease is on record", || Ok(held(&format!("user{n}.test"))? == own))?;
    }
    let lineages = "select gateway from dormouse.lineage order by gateway";
    until("one lineage of each", || {
        Ok(scene.ground.database.sql(DATABASE, lineages)?.lines().eq(["gw1", "gw1", "gw2", "gw2", "gw3"]))
    })
    .with_context(|| scene.ground.database.sql(DATABASE, lineages).unwrap_or_default())?;
    for (mut client, _) in clients {
        client.ok(&["down", "peer"])?;
        client.process().stop();
    }
    scene
        .ground
        .database
        .sql(DATABASE, "delete from dormouse.lease where convert_from(id_data, 'utf8') like 'user%'")?;

    // Cut off so that it is told at once; the device takes its ticket, which is on record, to another one.
    ensure!(scene.balances(&address)? == 2);
    let sending = echoes(&scene, "refusal")?;
    scene.ground.cut(2, "reject")?;
    scene.gateways[2]
        .process()
        .wait_for("tickets are refused until the database can be reached", PATIENCE)?;
    none_was_lost(sending)?;
    let by = moves_to(&mut scene, 1)?;
    ensure!(by == "ticket", "{by}");
    scene.ground.heal(2)?;
    ensure!(scene.balances(&address)? == 1);
    Ok(())
}
