//! Disks that are full, and a database that is slow: packets do not wait, tickets are refused rather than lost, and all is as before when there is
//! space and time again.

use crate::partition::{echoes, moves_to, none_was_lost};
use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{
    DATABASE, DEVICE, Ground, LAN, NEEDS, OUTER, Scene, database_dir, names, until,
};
use dormouse_interop::ends::{PATIENCE, another, inner, peers, rung};
use dormouse_testbed::{Dormoused, Process, Roaming, SERVER, require};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own, which is gone with this.
struct Small(PathBuf);

impl Small {
    fn new(at: &Path, megabytes: u32, mode: &str) -> Result<Self> {
        fs::create_dir_all(at)?;
        let options = format!("size={megabytes}m,mode={mode}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output()?;
        ensure!(mounted.status.success(), "mount: {}", String::from_utf8_lossy(&mounted.stderr));
        Ok(Self(at.into()))
    }

    /// Takes all that is left.
    fn fill(&self) -> Result<()> {
        let mut file = fs::File::create(self.0.join("filler"))?;
        let block = vec![0; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        Ok(())
    }

    fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.0.join("filler"))?)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // What still runs in it is killed with its host.
        let _busy = Command::new("umount").arg("--lazy").arg(&self.0).output();
        let _left = fs::remove_dir(&self.0);
    }
}

const NO_TICKETS: &str = "tickets are refused until the database can be reached";

#[test]
fn on_full_disks_sessions_go_on_and_nothing_is_lost_that_was_said_to_be_done() -> Result<()> {
    if !require("gateways whose database has a full disk", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(61)?;
    let disk = Small::new(&database_dir(&world).with_extension("disk"), 160, "755")?;
    // No file of the log is used twice.
    let settings = "min_wal_size = 32MB\nwal_keep_size = 1GB\nautovacuum = off";
    let ground = Ground::on(world, 2, &disk.0.join("pg"), settings)?;
    // A second gateway whose own state has a disk of its own too.
    let state = Small::new(&ground.hosts[1].dir().join("state"), 4, "700")?;
    let mut scene = Scene::on(ground, "")?;
    let (host, _) = another(&mut scene.ground.world, "user", 2)?;
    names(&host, &OUTER[..1])?;
    let mut user = scene.ground.start_client(&host, "user.test")?;
    scene.ground.behind_the_name(&OUTER[..1])?;
    let address = scene.connect()?;
    ensure!(scene.balances(&address)? == 0);
    let sql = |scene: &Scene, text: &str| scene.ground.database.sql(DATABASE, text);

    // No page more for a table: what is new cannot be written.
    let sending = echoes(&scene, "full")?;
    disk.fill()?;
    let row = "insert into dormouse.lineage select substr(sha256(random()::text::bytea), 1, 16), sha256('x'), \
               substr(sha256('y'), 1, 16), 'filler', 9000000000";
    let full = (0..1_000).find_map(|_| sql(&scene, row).err()).context("the disk does not become full")?;
    ensure!(full.to_string().contains("No space left"), "{full}");
    user.ok(&["up", "peer"])?;
    scene.gateways[0].process().wait_for("the server's disk is full", PATIENCE)?;
    none_was_lost(sending)?;

    // No room for what is committed: the server gives up.
    let sending = echoes(&scene, "log")?;
    let ends = (0..40).any(|_| {
        let moved = "update dormouse.cluster set slots = slots; select pg_switch_wal()";
        sql(&scene, moved).is_err()
    });
    ensure!(ends, "the log has room still");
    scene.gateways[1].process().wait_for(NO_TICKETS, PATIENCE)?;
    none_was_lost(sending)?;
    // It may come up again for a moment.
    let by = moves_to(&mut scene, 1)?;
    ensure!(["full", "ticket"].contains(&by.as_str()) && inner(&scene.device)? == address, "{by}");

    // There is space again, and somebody starts it.
    disk.empty()?;
    scene.ground.database.kill();
    scene.ground.database.go()?;
    until("the gateways reach it", || Ok((0..2).all(|n| scene.reaches(n))))?;
    until("what waited is on record", || {
        let known =
            "select string_agg(convert_from(id_data, 'utf8'), ' ' order by id_data) from dormouse.lease";
        Ok(sql(&scene, known)? == "device.test user.test"
            && sql(&scene, "select count(*) from dormouse.lineage where gateway <> 'filler'")? == "2")
    })?;
    user.ok(&["down", "peer"])?;
    user.process().stop();
    sql(&scene, "delete from dormouse.lineage where gateway = 'filler'")?;
    sql(&scene, "delete from dormouse.lease where convert_from(id_data, 'utf8') = 'user.test'")?;
    ensure!(scene.balances(&address)? == 1);
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());
    ensure!(scene.balances(&address)? == 0);

    // A gateway's own disk: what it cannot keep it says, and does all the same.
    state.fill()?;
    let denied = scene.gateways[1].cli(&["deny", "thief.test"])?;
    ensure!(
        denied.code != 0 && denied.text.contains("everywhere as soon as the gateways' database has it"),
        "{}",
        denied.text
    );
    scene.gateways[0].process().wait_for("denied at another gateway", PATIENCE)?;
    scene.gateways[1].restart()?;
    scene.gateways[1].process().wait_for("a database that is restored may not be noticed", PATIENCE)?;
    let list = scene.gateways[1].ok(&["deny", "--list"])?.text;
    ensure!(list.contains("thief.test"), "{list}");
    ensure!(moves_to(&mut scene, 1)? == "ticket", "{}", scene.logs());
    ensure!(scene.balances(&address)? == 1);
    Ok(())
}

#[test]
fn while_the_database_is_slow_packets_do_not_wait_and_a_ticket_is_kept() -> Result<()> {
    if !require("gateways whose database is slow", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new(2, "")?;
    scene.ground.behind_the_name(&OUTER[..1])?;
    let address = scene.connect()?;
    ensure!(scene.balances(&address)? == 0);
    let beside = Beside::new(&mut scene)?;

    // Somebody holds the table for longer than a gateway waits for an answer.
    let Scene { gateways, device, ground } = &mut scene;
    std::thread::scope(|scope| -> Result<()> {
        let database = &ground.database;
        let holding = "begin; lock table dormouse.lineage; select pg_sleep(8); commit";
        let held = scope.spawn(move || database.sql(DATABASE, holding));
        let waiting = "select count(*) from pg_locks where relation = 'dormouse.lineage'::regclass and mode = 'AccessExclusiveLock'";
        until("it is held", || Ok(database.sql(DATABASE, waiting)? == "1"))?;
        logs_in_at_the_second(device, ground, &gateways[1], &address)?;
        held.join().map_err(|_| anyhow::anyhow!("the holder panicked"))??;
        Ok(())
    })?;
    beside.lost_nothing(&scene)?;
    ensure!(scene.balances(&address)? == 1);
    ensure!(moves_to(&mut scene, 0)? == "ticket", "{}", scene.logs());
    ensure!(scene.balances(&address)? == 0);
    Ok(())
}

/// Served at the first gateway while something happens at the other one.
pub(crate) struct Beside {
    user: Dormoused,
    sending: Process,
}

impl Beside {
    pub(crate) fn new(scene: &mut Scene) -> Result<Self> {
        let (host, _) = another(&mut scene.ground.world, "user", 3)?;
        names(&host, &OUTER[..1])?;
        let user = scene.ground.start_client(&host, "user.test")?;
        user.ok(&["up", "peer"])?;
        // The way back to it stays, wherever the device goes.
        scene.ground.world.server.ip(&format!("route add {} via {}", inner(&user)?[0], LAN[0]))?;
        let sending = host.spawn("beside", "ping", &["-i", "0.1", SERVER])?;
        Ok(Self { user, sending })
    }

    /// It has missed no packet, and leaves.
    pub(crate) fn lost_nothing(self, scene: &Scene) -> Result<()> {
        none_was_lost(self.sending)?;
        self.user.ok(&["down", "peer"])?;
        let lease = "delete from dormouse.lease where convert_from(id_data, 'utf8') = 'user.test'";
        scene.ground.database.sql(DATABASE, lease).map(drop)
    }
}

/// The device shows its ticket at the second gateway, which cannot be told in time whether it counts: the device hears that, and logs in.
pub(crate) fn logs_in_at_the_second(
    device: &mut Dormoused,
    ground: &Ground,
    second: &Dormoused,
    address: &[IpAddr],
) -> Result<()> {
    device.process().kill();
    ground.behind_the_name(&OUTER[1..2])?;
    ground.back_by(1)?;
    device.restart()?;
    device.ok(&["up", "peer"])?;
    device.process().wait_for("refused by the gateway", PATIENCE)?;
    until("it has logged in, with its address", || {
        let has = inner(device).is_ok_and(|own| own == address);
        Ok(has && peers(second)? == [DEVICE])
    })
    .with_context(|| format!("{}\n----\n{}", device.log(), second.log()))?;
    ensure!(rung(device)? == "full", "{}", device.log());
    Ok(())
}
