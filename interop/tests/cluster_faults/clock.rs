//! A gateway whose clock is wrong, by Debian's libfaketime: within half a minute tickets are as good as ever, beyond they are refused at whichever
//! end of the error and cost a full exchange; nothing of the others' is lost, and who looks is told.

use crate::partition::moves_to;
use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{DATABASE, DEVICE, Ground, NEEDS, OUTER, Scene, names, until};
use dormouse_interop::ends::{another, rung};
use dormouse_testbed::{Extra, Need, binary, require};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The package; where its library is depends on the processor.
const FAKETIME: &str = "/usr/share/doc/libfaketime";

fn library() -> Result<String> {
    let all = fs::read_dir("/usr/lib")?.flatten().map(|e| e.path().join("faketime/libfaketime.so.1"));
    Ok(all.into_iter().find(|file| file.exists()).context("no libfaketime")?.display().to_string())
}

/// What lends a program another clock, by so much as a file says.
fn environment(file: &Path) -> Result<Vec<(String, String)>> {
    let (library, file) = (library()?, file.display().to_string());
    let set = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", &file),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    Ok(set.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec())
}

/// What `dormouse` says at the gateway with that clock, and its exit code.
fn asked(scene: &Scene, file: &Path, arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = scene.ground.hosts[0].command(binary("dormouse"));
    command.args(arguments).envs(environment(file)?);
    let out = command.output()?;
    let text = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    Ok((out.status.code().unwrap_or(-1), text))
}

#[test]
fn tickets_are_refused_by_a_clock_that_is_too_wrong_and_never_taken_by_it() -> Result<()> {
    let needs = [NEEDS.as_slice(), &[Need::File(FAKETIME)]].concat();
    if !require("a gateway with another clock", &needs) {
        return Ok(());
    }
    let ground = Ground::new(2)?;
    let file = ground.hosts[0].dir().join("clock");
    let ahead = |seconds: i64| fs::write(&file, format!("{seconds:+}"));
    ahead(0)?;
    let extra = Extra { environment: environment(&file)?, ..Extra::default() };
    let gateways = vec![
        ground.start_gateway(0, &ground.url(0), "", extra)?,
        ground.start_gateway(1, &ground.url(1), "", Extra::default())?,
    ];
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
    let (code, text) = asked(&scene, &file, &["cluster", "status", "--config", &config])?;
    ensure!(code == 0 && text.contains("clock of gw1"), "{code}: {text}");

    // Two minutes behind, the other's tickets come from the future.
    ahead(-120)?;
    ensure!(moves_to(&mut scene, 0)? == "full", "{}", scene.logs());
    ensure!(scene.gateways[0].log().contains("s in the future"), "{}", scene.gateways[0].log());
    heard(&scene, -120)?;
    let (code, text) = asked(&scene, &file, &["cluster", "status", "--config", &config])?;
    ensure!(
        code == 1 && text.contains("clock of gw1") && text.contains("behind the database's"),
        "{code}: {text}"
    );
    let (code, text) = asked(&scene, &file, &["doctor", "--json", "--config", &config])?;
    let found: Value = serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or(Value::Null);
    let says = found.to_string();
    ensure!(says.contains("behind the database's"), "{code}: {text}");
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

    // Of what it has given meanwhile nothing is taken for good before its time.
    ensure!(moves_to(&mut scene, 1)? == "full", "{}", scene.logs());

    // Its clock is right again.
    ahead(0)?;
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());
    heard(&scene, 0)?;
    let (code, text) = asked(&scene, &file, &["cluster", "status", "--config", &config])?;
    ensure!(code == 0 && !text.contains("clock of gw1"), "{code}: {text}");
    Ok(())
}
