//! A server that crashes, hangs, is promoted, or goes back in time.

use crate::support::{NOW, World, alone, block, confirm, insert, name, possible, run, shared};
use dormouse_cluster::admin::{Admin, Owner};
use dormouse_cluster::{Error, Joined, Load};
use dormouse_crypto::Secret;
use dormouse_ike::ticket::lineage::{Operation, Outcome};
use dormouse_sansio::Seeded;
use nix::sys::signal::Signal;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

/// An owner need not be a superuser.
#[test]
fn an_owner_who_may_make_roles_is_enough() {
    if !possible("an_owner_who_may_make_roles_is_enough") {
        return;
    }
    block(async {
        let world = World::empty(shared()).await;
        let raw = world.raw().await;
        let owner = world.name("owner");
        let database = &world.database;
        let sql = format!(
            "create role \"{owner}\" login createrole password 'x'; alter database {database} owner to \"{owner}\""
        );
        raw.batch_execute(&sql).await.unwrap();
        let url = world.server.url_here(&owner, database);
        let owner = Owner { url, password: Some(Secret::from(&b"x"[..])), authorities: Vec::new() };
        let mut admin = Admin::connect(&owner).await.unwrap();
        admin.init(None).await.unwrap();
        admin.init(Some(5)).await.unwrap();
        let north = world.name("north");
        let password = Some(admin.add_gateway(&north, &mut Seeded::new(1)).await.unwrap().password);
        let settings = dormouse_cluster::Settings { password, ..world.settings("north").await };
        // `settings` has drawn a password of its own.
        let password = Some(admin.add_gateway(&north, &mut Seeded::new(2)).await.unwrap().password);
        let settings = dormouse_cluster::Settings { password, ..settings };
        let (mut database, joined) = world.join_as(&settings, 0).await;
        assert_eq!((joined.slots, joined.emptied), (5, false));
        assert_eq!(admin.status().await.unwrap().gateways.len(), 1);
        assert!(admin.forget_gateway(&north).await.unwrap());
        let gone = database.beat(NOW, &Load::default()).await.unwrap_err();
        assert!(matches!(gone, Error::Lost { .. }), "{gone}");
    });
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    if !possible("what_was_acknowledged_survives_kill_9") {
        return;
    }
    let server = alone();
    let world = block(World::new(server.clone(), None));
    let (acknowledged, heard) = channel::<u64>();
    let settings = block(world.settings("north"));
    let name_of = |id: u64| name(id);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block(async {
                let (mut database, _) = world.join_as(&settings, 0).await;
                let rows: Vec<Operation> =
                    (0..4_000).map(|id| insert(id, u8::try_from(id % 251).unwrap())).collect();
                run(&mut database, &rows).await;
                for id in (0..4_000).step_by(2) {
                    let batch =
                        [confirm(id, id, id, 5_000 + id), confirm(id + 1, id + 1, id + 1, 5_001 + id)];
                    match database.run(NOW, &batch).await {
                        Ok(outcomes) => assert_eq!(outcomes, [Outcome::Done; 2]),
                        Err(e) => {
                            assert!(matches!(e, Error::Lost { .. } | Error::Unreachable { .. }), "{e}");
                            assert!(!e.needs_somebody());
                            assert!(database.notice().await.is_err());
                            assert!(database.run(NOW, &batch).await.is_err(), "it stays lost");
                            break;
                        }
                    }
                    let _killed = acknowledged.send(id);
                }
                drop(acknowledged);
            });
        });
        // In the middle of it.
        let first: Vec<u64> = heard.iter().take(60).collect();
        server.end(Signal::SIGKILL);
        let all: Vec<u64> = first.into_iter().chain(heard.iter()).collect();
        server.go().unwrap();
        block(async {
            let raw = world.raw().await;
            for id in all.iter().flat_map(|id| [*id, id + 1]) {
                let row = raw
                    .query_one("select tip from dormouse.lineage where id = $1", &[&&name_of(id).0[..]])
                    .await;
                let tip: Vec<u8> = row.unwrap().get(0);
                assert_eq!(tip, name_of(5_000 + id).0, "{id}");
            }
            // Of what was not acknowledged a batch is there as a whole, or is not.
            let next = all.last().unwrap() + 2;
            let tips = "select count(*) from dormouse.lineage where id <> tip";
            let moved = u64::try_from(world.count(tips).await).unwrap();
            assert!(moved == next || moved == next + 2, "{moved} {next}");
            let (_, joined) = world.join_as(&settings, 1).await;
            assert!(!joined.emptied, "a crash is no failover");
        });
    });
}

#[test]
fn a_server_that_hangs_is_an_error_in_seconds() {
    if !possible("a_server_that_hangs_is_an_error_in_seconds") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        run(&mut north, &[insert(1, 1)]).await;
        let mut raw = world.raw().await;
        // Somebody holds a lock.
        let held = raw.transaction().await.unwrap();
        held.execute("select from dormouse.lineage for update", &[]).await.unwrap();
        let e = north.run(NOW, &[confirm(1, 1, 1, 2)]).await.unwrap_err();
        assert!(
            matches!(&e, Error::Refused { why, .. } if why.contains("lock")) && !e.needs_somebody(),
            "{e}"
        );
        held.rollback().await.unwrap();
        assert_eq!(
            run(&mut north, &[confirm(1, 1, 1, 2)]).await,
            [Outcome::Done],
            "the connection is as before"
        );
        // Its process stands still.
        let south_is = format!("dormouse_{}", world.name("south"));
        let process: i32 = raw
            .query_one("select pid from pg_stat_activity where usename = $1", &[&south_is])
            .await
            .unwrap()
            .get(0);
        let process = nix::unistd::Pid::from_raw(process);
        nix::sys::signal::kill(process, Signal::SIGSTOP).unwrap();
        let e = south.run(NOW, &[confirm(1, 2, 1, 3)]).await.unwrap_err();
        nix::sys::signal::kill(process, Signal::SIGCONT).unwrap();
        assert!(matches!(e, Error::Hangs { .. }) && !e.needs_somebody(), "{e}");
        assert!(matches!(south.notice().await, Err(Error::Lost { .. })));
        assert!(matches!(south.beat(NOW, &Load::default()).await, Err(Error::Lost { .. })));
    });
}

#[test]
fn a_promoted_server_may_have_forgotten_so_lineages_go_once() {
    if !possible("a_promoted_server_may_have_forgotten_so_lineages_go_once") {
        return;
    }
    let server = alone();
    block(async {
        let world = World::new(server.clone(), None).await;
        let (north, south) = (world.settings("north").await, world.settings("south").await);
        let (mut database, first) = world.join_as(&north, 0).await;
        let (_south, _) = world.join_as(&south, 0).await;
        run(&mut database, &[insert(1, 1)]).await;
        server.end(Signal::SIGINT);
        // A standby that is promoted is the same server with another timeline.
        std::fs::write(server.data().join("standby.signal"), "").unwrap();
        server.go().unwrap();
        let e = dormouse_cluster::Database::join(&north, first.beats)
            .await
            .map(|(_, joined)| joined)
            .unwrap_err();
        assert!(matches!(e, Error::Standby { .. }) && !e.needs_somebody(), "{e}");
        server.promote().unwrap();
        let (mut database, joined) = world.join_as(&north, first.beats).await;
        assert!(joined.emptied && joined.beats > first.beats, "{joined:?}");
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 0);
        assert_eq!(world.count("select incarnation from dormouse.cluster").await, 2);
        run(&mut database, &[insert(2, 2)]).await;
        for (settings, beats) in [(&south, 1), (&north, joined.beats)] {
            assert!(!world.join_as(settings, beats).await.1.emptied, "once");
        }
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 1);
        // Another server altogether, to which this was copied.
        world.raw().await.batch_execute("update dormouse.cluster set system_identifier = 1").await.unwrap();
        assert!(world.join_as(&south, 1).await.1.emptied);
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 0);
    });
}

/// Dumps a database, or restores it to what was dumped.
fn dump(world: &World, program: &str, arguments: &[&str]) {
    let mut command: Command = world.server.program(program).unwrap();
    let file = world.server.data().join("dump");
    command.arg("-d").arg(world.server.owner(&world.database)).args(arguments);
    match program {
        "pg_dump" => command.arg("-f").arg(&file),
        _ => command.arg(&file),
    };
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_database_that_was_restored_is_noticed_by_who_remembers_more() {
    if !possible("a_database_that_was_restored_is_noticed_by_who_remembers_more") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (a, b) = (world.settings("north").await, world.settings("south").await);
        let (mut north, _) = world.join_as(&a, 0).await;
        let (mut south, _) = world.join_as(&b, 0).await;
        run(&mut north, &[insert(1, 1)]).await;
        let save = || dump(&world, "pg_dump", &["-Fc"]);
        let restore = || dump(&world, "pg_restore", &["--clean", "--if-exists"]);
        save();
        // The ticket is used after that, and by whoever copied it after the restore: not accepted.
        assert_eq!(run(&mut south, &[confirm(1, 1, 1, 2)]).await, [Outcome::Done]);
        let (x, y) = (
            north.beat(NOW, &Load::default()).await.unwrap().number,
            south.beat(NOW, &Load::default()).await.unwrap().number,
        );
        drop((north, south));
        restore();
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 1, "the used one is back");
        let (mut north, joined) = world.join_as(&a, x).await;
        assert!(joined.emptied && joined.beats > x, "{joined:?}");
        assert_eq!(
            run(&mut north, &[confirm(1, 1, 1, 3), insert(2, 2)]).await,
            [Outcome::Superseded, Outcome::Done]
        );
        // The other one remembers more than was restored too, but it has been seen to.
        let again = |(_, joined): (_, Joined)| joined;
        let joined_south = again(world.join_as(&b, y).await);
        assert!(!joined_south.emptied && joined_south.beats > y, "{joined_south:?}");
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 1);
        // Restored again, to a time before the first restore, or after it and before a gateway was back.
        save();
        let (_, last) = world.join_as(&b, joined_south.beats).await;
        restore();
        assert!(again(world.join_as(&b, last.beats).await).emptied);
        // A backup from before the gateway joined first.
        let c = world.settings("west").await;
        save();
        let (_, west) = world.join_as(&c, 0).await;
        assert!(!west.emptied);
        restore();
        assert!(again(world.join_as(&c, west.beats).await).emptied);
        // A gateway that forgot everything takes what it finds.
        assert!(!again(world.join_as(&b, 0).await).emptied);
        let damaged = dormouse_cluster::Database::join(&b, u64::MAX).await.map(again).unwrap_err();
        assert!(matches!(damaged, Error::Settings(_)), "{damaged}");
    });
}

/// Ends a program when dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[test]
fn who_follows_the_server_is_seen_by_those_who_may() {
    if !possible("who_follows_the_server_is_seen_by_those_who_may") {
        return;
    }
    let server = alone();
    block(async {
        let world = World::new(server.clone(), None).await;
        let mut gateway = world.join("north").await;
        assert_eq!(gateway.status().await.unwrap().standbys, Some(Vec::new()));
        // It takes the log as a standby does.
        let mut follower = server.program("pg_receivewal").unwrap();
        follower.arg("-d").arg(server.owner("postgres")).arg("-D").arg(server.data());
        let _follower = Running(follower.arg("--no-loop").spawn().unwrap());
        let mut admin = world.admin().await;
        let mut seen = None;
        for _ in 0..600 {
            seen = admin.status().await.unwrap().standbys.unwrap().pop();
            if seen.as_ref().is_some_and(|standby| standby.state == "streaming") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let standby = seen.expect("it follows");
        assert_eq!(
            (standby.name.as_str(), standby.state.as_str(), standby.sync.as_str()),
            ("pg_receivewal", "streaming", "async")
        );
        assert!(standby.behind < 1 << 30, "{standby:?}");
        assert_eq!(gateway.status().await.unwrap().standbys, None, "a gateway may not see it");
        let grant = "grant pg_read_all_stats to dormouse_gateway";
        world.raw().await.batch_execute(grant).await.unwrap();
        assert_eq!(gateway.status().await.unwrap().standbys.unwrap().len(), 1);
    });
}
