//! How many sessions an identity has over two gateways that share a PostgreSQL database, with real daemons: also while one of them is cut off from it.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, DEVICE, Ground, NEEDS, OUTER, Scene, names, until};
use dormouse_interop::ends::{PATIENCE, another, peers};
use dormouse_testbed::{Dormoused, require};

/// Two gateways with this policy, and a device that is served at the first one.
fn scene(policy: &str) -> Result<Scene> {
    let mut ground = Ground::new(2)?;
    ground.policy = policy.to_owned();
    let scene = Scene::on(ground, "")?;
    scene.ground.behind_the_name(&OUTER[..1])?;
    scene.connect()?;
    scene.on_record()?;
    Ok(scene)
}

/// Somebody else with the same identity and its secret, who finds this gateway.
fn twin(scene: &mut Scene, n: u8, gateway: usize) -> Result<Dormoused> {
    let (host, _) = another(&mut scene.ground.world, &format!("twin{n}"), 2 + n)?;
    names(&host, &OUTER[gateway..=gateway])?;
    scene.ground.start_client(&host, DEVICE)
}

/// It cannot come in at this gateway, because of those at the other one.
fn is_refused(scene: &mut Scene, client: &Dormoused, gateway: usize) -> Result<()> {
    let answer = client.cli(&["up", "peer"])?;
    let answer = if answer.code == 0 { client.cli(&["wait", "peer", "--timeout", "20"])? } else { answer };
    ensure!(answer.code != 0, "{}", answer.text);
    scene.gateways[gateway]
        .process()
        .wait_for("sessions as it may have, with those at other gateways", PATIENCE)?;
    client.ok(&["down", "peer"])?;
    Ok(())
}

/// So many sessions at each gateway, and on record.
fn served(scene: &Scene, counts: [usize; 2]) -> Result<()> {
    let all = counts.iter().sum::<usize>().to_string();
    let right = until("as many sessions as may be", || {
        let there = [peers(&scene.gateways[0])?.len(), peers(&scene.gateways[1])?.len()];
        let on_record = scene.ground.database.sql(DATABASE, "select count(*) from dormouse.session")?;
        Ok(there == counts && on_record == all)
    });
    right.with_context(|| format!("{}\n{}", scene.gateways[0].log(), scene.gateways[1].log()))
}

fn cut_off(scene: &mut Scene, gateway: usize) -> Result<()> {
    scene.ground.cut(gateway, "reject with tcp reset")?;
    let lost = "tickets are refused until the database can be reached";
    scene.gateways[gateway].process().wait_for(lost, PATIENCE).map(drop)
}

/// Back again, it ends what is too many.
fn heals(scene: &mut Scene, gateway: usize) -> Result<()> {
    scene.ground.heal(gateway)?;
    scene.gateways[gateway].process().wait_for("more at all gateways than they may have", PATIENCE).map(drop)
}

#[test]
fn an_identity_of_several_devices_has_no_more_sessions_than_it_may_have_at_both() -> Result<()> {
    if !require("limits of sessions over gateways", &NEEDS) {
        return Ok(());
    }
    let mut scene = scene("unique = \"never\"\nsessions = 2")?;
    let second = twin(&mut scene, 0, 0)?;
    second.ok(&["up", "peer"])?;
    served(&scene, [2, 0])?;
    let third = twin(&mut scene, 1, 1)?;
    is_refused(&mut scene, &third, 1)?;
    // There is room when one goes, as soon as its gateway has written it down.
    second.ok(&["down", "peer"])?;
    served(&scene, [1, 0])?;
    third.ok(&["up", "peer"])?;
    served(&scene, [1, 1])?;
    is_refused(&mut scene, &second, 0)?;

    // A gateway that is cut off counts for itself; when it is back, the one goes that began last.
    third.ok(&["down", "peer"])?;
    served(&scene, [1, 0])?;
    second.ok(&["up", "peer"])?;
    served(&scene, [2, 0])?;
    cut_off(&mut scene, 1)?;
    third.ok(&["up", "peer"])?;
    ensure!(peers(&scene.gateways[1])? == [DEVICE]);
    heals(&mut scene, 1)?;
    served(&scene, [2, 0])?;
    scene.ping()
}

#[test]
fn where_the_first_session_stays_a_copied_secret_opens_no_second_one_elsewhere() -> Result<()> {
    if !require("a first session that stays", &NEEDS) {
        return Ok(());
    }
    let mut scene = scene("unique = \"keep\"\nsessions = 1")?;
    let thief = twin(&mut scene, 0, 1)?;
    is_refused(&mut scene, &thief, 1)?;
    scene.ping()?;
    cut_off(&mut scene, 1)?;
    thief.ok(&["up", "peer"])?;
    ensure!(peers(&scene.gateways[1])? == [DEVICE]);
    heals(&mut scene, 1)?;
    served(&scene, [1, 0])?;
    scene.ping()
}
