//! Gateways that share a database spread load: who logs in at one is sent to the least loaded, where it follows; and a device stays with the gateway that
//! has its session, however the name orders its addresses.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, DEVICE, Ground, NEEDS, OUTER, Scene, names, until};
use dormouse_interop::ends::{SECRET, another, inner, peers, rung};
use dormouse_interop::strongswan::{self, StrongSwan};
use dormouse_testbed::{Access, Dormoused, Extra, Host, require};
use std::path::Path;

/// Waits until each gateway knows how the others are: by the next heartbeat of each after what they have said by now.
fn all_hear(ground: &Ground) -> Result<()> {
    let beats = || ground.database.sql(DATABASE, "select beats from dormouse.gateway order by name");
    let before = beats()?;
    until("all have heard of each other", || {
        Ok(beats()?.lines().zip(before.lines()).all(|(now, then)| now != then))
    })
}

/// Starts the gateways, each of which says where it is.
fn gateways(ground: &Ground, spread: bool) -> Result<Vec<Dormoused>> {
    let start = |n: usize| {
        let more = format!("address = \"{}\"\nspread = {spread}", OUTER[n]);
        ground.start_gateway(n, &ground.url(n), &more, Extra::default())
    };
    let gateways = (0..ground.hosts.len()).map(start).collect::<Result<Vec<_>>>()?;
    all_hear(ground)?;
    Ok(gateways)
}

/// A client of a host of its own, for which the first gateway is the first of the name.
fn client(ground: &mut Ground, n: u8) -> Result<(Host, Dormoused)> {
    let (host, _) = another(&mut ground.world, &format!("c{n}"), n)?;
    names(&host, &OUTER[..ground.hosts.len()])?;
    let daemon = ground.start_client(&host, &format!("c{n}.test"))?;
    Ok((host, daemon))
}

fn served(gateways: &[Dormoused]) -> Result<Vec<usize>> {
    gateways.iter().map(|gateway| Ok(peers(gateway)?.len())).collect()
}

/// A strongSwan that knows the first gateway alone.
fn foreign(host: &Host) -> Result<StrongSwan> {
    let conf = format!(
        "connections {{ peer {{\n version = 2\n remote_addrs = {}\n vips = 0.0.0.0\n local {{\n auth = psk\n id = swan.test\n }}\n \
         remote {{\n auth = psk\n id = gateway.test\n }}\n children {{ net {{\n remote_ts = 10.99.0.0/24\n }} }} }} }}\n\
         secrets {{ ike-1 {{\n id-1 = swan.test\n id-2 = gateway.test\n secret = \"{SECRET}\" }} }}\n",
        OUTER[0]
    );
    StrongSwan::start(host, None::<&Path>, &conf, &[], "")
}

#[test]
fn clients_that_all_log_in_at_one_gateway_are_shared_out() -> Result<()> {
    if !require("clients that are shared out", &NEEDS) {
        return Ok(());
    }
    let mut ground = Ground::new(2)?;
    let gateways = gateways(&ground, true)?;
    let mut clients = (2..12).map(|n| client(&mut ground, n)).collect::<Result<Vec<_>>>()?;
    for (_, client) in &clients {
        client.ok(&["up", "peer"])?;
    }
    let all = served(&gateways)?;
    let logs = || gateways.iter().map(Dormoused::log).collect::<Vec<_>>().join("\n----\n");
    ensure!(all.iter().sum::<usize>() == 10 && all.iter().all(|n| *n >= 3), "{all:?}\n{}", logs());
    let sent = clients.iter().filter(|(_, client)| client.log().contains("sent to another address")).count();
    ensure!(sent == all[1], "{sent} were sent, {all:?}");
    // A ticket is taken where it comes.
    let (_, one) = &mut clients[0];
    one.process().kill();
    one.restart()?;
    one.ok(&["up", "peer"])?;
    ensure!(rung(one)? == "ticket" && served(&gateways)? == all, "{}", one.log());

    // One of another make follows as well, to where fewer are.
    if strongswan::skip("a strongSwan that is sent on") {
        return Ok(());
    }
    let device = ground.world.device.clone();
    for (_, client) in clients.iter().filter(|(_, c)| c.log().contains("sent to another")) {
        client.ok(&["down", "peer"])?;
    }
    until("the second gateway says that it has none", || {
        let devices = "select sessions + sleepers from dormouse.gateway where name = 'gw2'";
        Ok(ground.database.sql(DATABASE, devices)? == "0")
    })?;
    // Those that were sent count until the second time.
    (0..2).try_for_each(|_| all_hear(&ground))?;
    let swan = foreign(&device)?;
    swan.ctl(&["--initiate", "--child", "net"])?;
    ensure!(swan.sas()?.contains(OUTER[1]), "{}\n{}", swan.sas()?, swan.log_tail());
    ensure!(peers(&gateways[1])? == ["swan.test"], "{}", gateways[1].log());
    Ok(())
}

#[test]
fn without_spread_all_stay_where_they_come() -> Result<()> {
    if !require("clients that are not shared out", &NEEDS) {
        return Ok(());
    }
    let mut ground = Ground::new(2)?;
    let mut gateways = gateways(&ground, false)?;
    let clients = (2..8).map(|n| client(&mut ground, n)).collect::<Result<Vec<_>>>()?;
    for (_, client) in &clients {
        client.ok(&["up", "peer"])?;
    }
    ensure!(served(&gateways)? == [6, 0]);

    // What a gateway has learned of load outlives its disk, and no damage to it keeps a gateway from its work.
    for damage in [false, true] {
        gateways[0].process().stop();
        let own = "select gateway from dormouse.load_history";
        ensure!(ground.database.sql(DATABASE, own)? == "gw1", "{}", gateways[0].log());
        if damage {
            ground.database.sql(DATABASE, "update dormouse.load_history set content = '\\x01ff'")?;
        }
        ground.hosts[0].sh(&format!("rm -f {}/state/load-history", ground.hosts[0].dir().display()))?;
        gateways[0].restart()?;
        let taken =
            gateways[0].log().matches("what was learned about load is taken from the database").count();
        ensure!(taken == 1, "damaged: {damage}\n{}", gateways[0].log());
    }
    Ok(())
}

#[test]
fn who_is_sent_to_a_gateway_that_has_died_comes_back_and_is_served() -> Result<()> {
    if !require("a client that is sent to a dead gateway", &NEEDS) {
        return Ok(());
    }
    let mut ground = Ground::new(2)?;
    let mut gateways = gateways(&ground, true)?;
    let clients = (2..6).map(|n| client(&mut ground, n)).collect::<Result<Vec<_>>>()?;
    for (_, client) in &clients[..3] {
        client.ok(&["up", "peer"])?;
    }
    ensure!(served(&gateways)? == [3, 0]);
    gateways[1].process().kill();
    let (_, last) = &clients[3];
    last.ok(&["up", "peer", "--timeout", "40"])?;
    ensure!(last.log().contains("back to where we were"), "{}", last.log());
    ensure!(peers(&gateways[0])?.len() == 4, "{}", gateways[0].log());
    Ok(())
}

#[test]
fn a_device_comes_back_to_the_gateway_that_has_its_session() -> Result<()> {
    if !require("a device whose gateway's name is turned", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(2, "")?;
    scene.ground.behind_the_name(&[OUTER[1], OUTER[0]])?;
    scene.ground.back_by(1)?;
    scene.device.ok(&["up", "peer"])?;
    scene.ping()?;
    let address = inner(&scene.device)?;
    ensure!(scene.served()? == [vec![], vec![DEVICE.to_owned()]]);
    until("the session is on record", || {
        Ok(scene.ground.database.sql(DATABASE, "select gateway from dormouse.lineage")? == "gw2")
    })?;

    // By another network, while the name has its addresses in another order.
    scene.ground.behind_the_name(&[OUTER[0], OUTER[1]])?;
    scene.ground.world.attach(Access::B)?;
    scene.ground.world.detach(Access::A)?;
    scene.ping()?;
    ensure!(scene.served()? == [vec![], vec![DEVICE.to_owned()]], "{}", scene.device.log());

    // With a ticket of an earlier run.
    scene.device.process().kill();
    scene.device.restart()?;
    scene.device.ok(&["up", "peer"]).with_context(|| scene.logs())?;
    scene.ping()?;
    ensure!(rung(&scene.device)? == "ticket" && inner(&scene.device)? == address, "{}", scene.device.log());
    ensure!(scene.served()? == [vec![], vec![DEVICE.to_owned()]], "{}", scene.device.log());

    // It is dead: the ticket is good at the other one.
    scene.gateways[1].process().kill();
    scene.device.process().kill();
    scene.device.restart()?;
    scene.ground.back_by(0)?;
    scene.device.ok(&["up", "peer", "--timeout", "40"])?;
    scene.ping()?;
    ensure!(rung(&scene.device)? == "ticket" && inner(&scene.device)? == address, "{}", scene.device.log());
    ensure!(peers(&scene.gateways[0])? == [DEVICE], "{}", scene.gateways[0].log());
    Ok(())
}
