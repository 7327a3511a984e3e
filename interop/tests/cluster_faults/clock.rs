//! A gateway whose clock is wrong: within half a minute tickets are as good as ever, beyond they are refused at whichever
//! end of the error and cost a full exchange; nothing of the others' is lost, and who looks is told.

use crate::partition::moves_to;
use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, DEVICE, Ground, NEEDS, OUTER, Scene, names, until};
use dormouse_interop::ends::{another, rung};
use dormouse_testbed::{Extra, Need, binary, require};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A program's other clock; see there.
const CLOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster_faults/clock.c");

/// Makes the library of [`CLOCK`] in `dir`. With this environment a program's clock is ahead by what `file` says.
fn other_clock(dir: &Path, file: &Path) -> Result<Vec<(String, String)>> {
    let library = dir.join("clock.so");
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(CLOCK).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let set = [("LD_PRELOAD", library.as_path()), ("OTHER_CLOCK", file)];
    Ok(set.map(|(key, path)| (key.to_owned(), path.display().to_string())).to_vec())
}

/// What `dormouse` says at the gateway with that clock, and its exit code.
fn asked(scene: &Scene, environment: &[(String, String)], arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = scene.ground.hosts[0].command(binary("dormouse"));
    command.args(arguments).envs(environment.iter().map(|(key, value)| (key, value)));
    let out = command.output()?;
    let text = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    Ok((out.status.code().unwrap_or(-1), text))
}

#[test]
fn tickets_are_refused_by_a_clock_that_is_too_wrong_and_never_taken_by_it() -> Result<()> {
    let needs = [NEEDS.as_slice(), &[Need::Program("cc")]].concat();
    if !require("a gateway with another clock", &needs) {
        return Ok(());
    }
    let ground = Ground::new(2)?;
    let file = ground.hosts[0].dir().join("clock");
    let ahead = |seconds: i64| fs::write(&file, format!("{seconds:+}"));
    // The first ticket key of all is from a time that no clock of this test is before.
    ahead(-150)?;
    let environment = other_clock(ground.world.bed.dir(), &file)?;
    let extra = Extra { environment: environment.clone(), ..Extra::default() };
    let first = ground.start_gateway(0, &ground.url(0), "", extra)?;
    ahead(0)?;
    let gateways = vec![first, ground.start_gateway(1, &ground.url(1), "", Extra::default())?];
    let device = ground.start_client(&ground.world.device, DEVICE)?;
    let mut scene = Scene { gateways, device, ground };
    scene.ground.behind_the_name(&OUTER[1..2])?;
    scene.ground.back_by(1)?;
    scene.device.ok(&["up", "peer"])?;
    scene.ping()?;
    // Another user's session, which no wrong clock may cost anything.
    let (host, _) = another(&mut scene.ground.world, "user", 2)?;
    names(&host, &OUTER[1..2])?;
    let mut user = scene.ground.start_client(&host, "user.test")?;
    user.ok(&["up", "peer"])?;
    let config = scene.ground.hosts[0].dir().join("dormouse.toml").display().to_string();
    // The database has heard so since.
    let heard = |scene: &Scene, about: i64| {
        until("a heartbeat with this clock", || {
            let clock = "select clock from dormouse.gateway where name = 'gw1'";
            let clock: i64 = scene.ground.database.sql(DATABASE, clock)?.parse()?;
            Ok((clock - about).abs() <= 2)
        })
    };

    // Half a minute is nothing: at either of them tickets of the other one count.
    ahead(-20)?;
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());
    ensure!(moves_to(&mut scene, 1)? == "ticket", "{}", scene.logs());
    heard(&scene, -20)?;
    let (code, text) = asked(&scene, &environment, &["cluster", "status", "--config", &config])?;
    ensure!(code == 0 && text.contains("clock of gw1"), "{code}: {text}");

    // Two minutes behind, the other's tickets come from the future.
    ahead(-120)?;
    ensure!(moves_to(&mut scene, 0)? == "full", "{}", scene.logs());
    ensure!(scene.gateways[0].log().contains("s in the future"), "{}", scene.gateways[0].log());
    heard(&scene, -120)?;
    let (code, text) = asked(&scene, &environment, &["cluster", "status", "--config", &config])?;
    ensure!(
        code == 1 && text.contains("clock of gw1") && text.contains("behind the database's"),
        "{code}: {text}"
    );
    let (code, text) = asked(&scene, &environment, &["doctor", "--config", &config])?;
    ensure!(text.contains("behind the database's"), "{code}: {text}");
    ensure!(moves_to(&mut scene, 1)? == "ticket", "{}", scene.logs());

    // Two days ahead, they have expired; what others have on record has not.
    ahead(2 * 86_400)?;
    ensure!(moves_to(&mut scene, 0)? == "full", "{}", scene.logs());
    ensure!(scene.gateways[0].log().contains("ticket expired"), "{}", scene.gateways[0].log());
    scene.ping().context("a session under a wrong clock")?;
    heard(&scene, 2 * 86_400)?;
    user.process().kill();
    user.restart()?;
    user.ok(&["up", "peer"])?;
    ensure!(rung(&user)? == "ticket", "{}\n{}", user.log(), scene.logs());

    // By now it has the keys of its day, whether or not it had them at the login above, before or after a heartbeat. What it seals with them counts
    // there, and nowhere before its time.
    moves_to(&mut scene, 0)?;
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());
    ensure!(moves_to(&mut scene, 1)? == "full", "{}", scene.logs());
    ensure!(scene.gateways[1].log().contains("s in the future"), "{}", scene.logs());

    // Its clock is right again, and by its next heartbeat it has the keys of today.
    ahead(0)?;
    heard(&scene, 0)?;
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());
    let (code, text) = asked(&scene, &environment, &["cluster", "status", "--config", &config])?;
    ensure!(code == 0 && !text.contains("clock of gw1"), "{code}: {text}");
    Ok(())
}
