//! Slots, roles, ticket keys, and what a gateway is told where something is wrong.

use crate::support::{NOW, World, block, confirm, insert, name, possible, run, shared};
use dormouse_cluster::admin::{Admin, Owner, role};
use dormouse_cluster::{Database, Error, Load, Notice, SCHEMA, Settings, TicketKey};
use dormouse_crypto::Secret;
use dormouse_ike::ticket::lineage::Outcome;
use dormouse_sansio::{Seeded, UnixTime};
use dormouse_testbed::{Key, Pki};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

const DAY: u64 = 86_400;
const WEEK: Duration = Duration::from_secs(7 * DAY);
/// A day begins.
const MORNING: UnixTime = UnixTime(1_600_041_600);

async fn refused(settings: &Settings) -> Error {
    Database::join(settings, 0).await.map(|(_, joined)| joined).expect_err("it must not join")
}

#[test]
fn a_gateway_keeps_its_slot_until_it_is_forgotten() {
    if !possible("a_gateway_keeps_its_slot_until_it_is_forgotten") {
        return;
    }
    block(async {
        let world = World::new(shared(), Some(2)).await;
        let (a, b, c) = (world.settings("a").await, world.settings("b").await, world.settings("c").await);
        let (mut north, joined) = world.join_as(&a, 0).await;
        assert_eq!((joined.slot, joined.slots, joined.emptied), (0, 2, false));
        let (mut south, joined) = world.join_as(&b, 0).await;
        assert_eq!((joined.slot, joined.emptied), (1, false));
        let full = refused(&c).await;
        assert!(matches!(full, Error::Full { slots: 2, .. }), "{full}");
        assert!(full.to_string().contains("dormouse cluster forget") && full.needs_somebody(), "{full}");
        // Again by its name, while its old connection is there still.
        assert_eq!(world.join_as(&a, 0).await.1.slot, 0);
        let mut admin = world.admin().await;
        assert!(admin.forget_gateway(&a.gateway).await.unwrap());
        assert!(!admin.forget_gateway(&a.gateway).await.unwrap());
        let gone = north.beat(NOW, &Load::default()).await.expect_err("it was disconnected");
        assert!(matches!(gone, Error::Lost { .. }), "{gone}");
        assert!(matches!(refused(&a).await, Error::Password { .. }), "its role is gone");
        assert_eq!(world.join_as(&c, 0).await.1.slot, 0, "the lowest that is free");
        // More, and not fewer than are taken.
        assert!(matches!(admin.init(Some(1)).await, Err(Error::Settings(_))));
        // Not while one is connected, nor while it was heard lately: it would give addresses by the old number.
        admin.init(Some(2)).await.unwrap();
        let busy = admin.init(Some(64)).await.expect_err("a gateway runs");
        assert!(busy.to_string().contains(&format!("stop {}", b.gateway)), "{busy}");
        south.beat(NOW, &Load::default()).await.unwrap();
        drop(south);
        let connected = format!(
            "select count(*) from pg_stat_activity where usename in ('{}', '{}')",
            role(&b.gateway),
            role(&c.gateway)
        );
        while world.count(&connected).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let heard = admin.init(Some(64)).await.expect_err("it was heard just now");
        assert!(heard.to_string().contains(&b.gateway) && heard.to_string().contains(&c.gateway), "{heard}");
        world.raw().await.batch_execute("update dormouse.gateway set seen = seen - 61").await.unwrap();
        admin.init(Some(64)).await.unwrap();
        assert!(admin.init(Some(65)).await.is_err() && admin.init(Some(0)).await.is_err());
        let d = world.settings("d").await;
        let joined = world.join_as(&d, 0).await.1;
        assert_eq!((joined.slot, joined.slots), (2, 64));
    });
}

#[test]
fn a_gateway_may_do_its_work_and_nothing_else() {
    if !possible("a_gateway_may_do_its_work_and_nothing_else") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let _north = world.join_as(&settings, 0).await;
        let mut config: tokio_postgres::Config = settings.url.parse().unwrap();
        config.password(settings.password.as_ref().unwrap().as_bytes());
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for forbidden in [
            "drop table dormouse.lineage",
            "truncate dormouse.lineage",
            "alter table dormouse.lineage add x integer",
            "update dormouse.cluster set schema = 9",
            "update dormouse.cluster set slots = 9",
            "delete from dormouse.gateway",
            "delete from dormouse.cluster",
            "update dormouse.denial set since = 0",
            "delete from dormouse.user_entry",
            "create table dormouse.x ()",
            "create schema x",
            "create role x",
            "alter role dormouse_gateway superuser",
            "grant dormouse_gateway to postgres",
            "select pg_read_file('postgresql.conf')",
            "copy dormouse.lineage to program 'true'",
        ] {
            let e = client.batch_execute(forbidden).await.expect_err(forbidden);
            assert_eq!(
                e.code(),
                Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE),
                "{forbidden}"
            );
        }
        // The server knows what it checks a password by, and no password.
        let shadow = "select rolpassword from pg_authid where rolname = $1";
        let stored: String =
            world.raw().await.query_one(shadow, &[&role(&settings.gateway)]).await.unwrap().get(0);
        assert!(stored.starts_with("SCRAM-SHA-256$4096:"), "{stored}");
        // A new password for the same gateway.
        let again = world.account("north").await;
        let old = refused(&Settings { password: Some(Secret::from(&b"old"[..])), ..settings.clone() }).await;
        assert!(matches!(old, Error::Password { .. }), "{old}");
        world.join_as(&Settings { password: Some(again.password), ..settings }, 1).await;
    });
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    if !possible("what_is_wrong_is_said_with_what_to_do") {
        return;
    }
    block(async {
        let world = World::empty(shared()).await;
        let other = World::new(world.server.clone(), None).await;
        let settings = other.settings("north").await;
        let at = |database: &str| Settings {
            url: world.server.url(&role(&settings.gateway), database),
            ..settings.clone()
        };
        let says = |e: &Error, words: &[&str]| {
            let text = e.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            assert!(e.needs_somebody(), "{text}");
            assert!(!text.contains("secret"), "{text}");
        };
        // No tables, and no right to see that there are.
        says(&refused(&at(&world.database)).await, &[&world.database, "dormouse cluster init"]);
        says(&refused(&at("nowhere")).await, &["nowhere", "createdb"]);
        let secret = Some(Secret::from(&b"secret"[..]));
        let wrong = refused(&Settings { password: secret, ..settings.clone() }).await;
        says(&wrong, &["password", "dormouse cluster add", &other.database]);
        let none = refused(&Settings { password: None, ..settings.clone() }).await;
        assert!(matches!(none, Error::Password { .. }), "{none}");
        for (url, word) in [
            ("postgresql://north:secret@db.example/dormouse", "sslmode=disable"),
            ("postgresql://north:secret@db.example/dormouse?sslmode=verify-full", "authority"),
            ("postgresql://north:secret@127.0.0.1,192.0.2.1/dormouse", "authority"),
            ("postgresql://north:secret@localhost/dormouse?hostaddr=192.0.2.1", "authority"),
            ("postgresql://north:secret@localhost/dormouse?sslmode=require", "verify-full"),
            ("postgresql://north:secret@localhost/dormouse?sslmode=prefer", "verify-full"),
            ("postgresql://north:secret@localhost/dormouse?nonsense=1", "nonsense"),
            ("mysql://north:secret@localhost/dormouse", "postgresql://"),
            ("host=localhost password=secret", "postgresql://"),
            ("", "postgresql://"),
        ] {
            says(&refused(&Settings { url: url.into(), ..settings.clone() }).await, &[word]);
        }
        for gateway in ["", "North", "a b", "a\"; drop table x; --", &"x".repeat(33)] {
            let e = refused(&Settings { gateway: gateway.into(), ..settings.clone() }).await;
            says(&e, &["name of a gateway"]);
            assert!(other.admin().await.add_gateway(gateway, &mut Seeded::new(1)).await.is_err());
            assert!(other.admin().await.forget_gateway(gateway).await.is_err());
        }
        says(&refused(&Settings { key: Secret::from([1; 31]), ..settings.clone() }).await, &["31 bytes"]);
        let (there, nobody) = (at(&other.database), "postgresql://x@127.0.0.1:1/dormouse?sslmode=disable");
        let e = refused(&Settings { url: nobody.into(), ..there }).await;
        assert!(matches!(e, Error::Unreachable { .. }) && !e.needs_somebody(), "{e}");
        // Tables of other releases, and rights that were taken away.
        let raw = other.raw().await;
        for (version, advice) in [(SCHEMA + 1, "install the release"), (SCHEMA - 1, "dormouse cluster init")]
        {
            raw.execute("update dormouse.cluster set schema = $1", &[&version]).await.unwrap();
            let e = refused(&settings).await;
            assert!(matches!(e, Error::Version { found, .. } if found == version), "{e}");
            says(&e, &[advice]);
        }
        raw.execute("update dormouse.cluster set schema = $1", &[&(SCHEMA + 1)]).await.unwrap();
        assert!(
            matches!(other.admin().await.init(None).await, Err(Error::Version { .. })),
            "never backwards"
        );
        assert_eq!(other.admin().await.version().await.unwrap(), Some(SCHEMA + 1));
        assert_eq!(world.admin().await.version().await.unwrap(), None);
        raw.execute("update dormouse.cluster set schema = $1", &[&SCHEMA]).await.unwrap();
        let (mut running, _) = other.join_as(&settings, 0).await;
        raw.execute("update dormouse.cluster set schema = $1", &[&(SCHEMA + 1)]).await.unwrap();
        let e = running.beat(NOW, &Load::default()).await.unwrap_err();
        assert!(matches!(e, Error::Version { .. }), "one that runs learns of it: {e}");
        raw.execute("update dormouse.cluster set schema = $1", &[&SCHEMA]).await.unwrap();
        raw.batch_execute("revoke all on dormouse.gateway from dormouse_gateway").await.unwrap();
        says(&refused(&settings).await, &["lacks rights", "dormouse cluster init"]);
        other.admin().await.init(None).await.unwrap();
        let (mut north, _) = other.join_as(&settings, 0).await;
        // Who is no owner cannot make tables.
        let owner = Owner {
            url: world.server.url(&role(&settings.gateway), &world.database),
            password: settings.password.clone(),
            authorities: Vec::new(),
        };
        says(&Admin::connect(&owner).await.unwrap().init(None).await.unwrap_err(), &["owner"]);
        // What cannot be is an error that names the table.
        for (sql, table) in [
            (
                "alter table dormouse.orders drop constraint orders_lineage_check; insert into dormouse.orders (gateway, lineage) select name, 'x' from dormouse.gateway",
                "orders",
            ),
            (
                "insert into dormouse.lease values ('c', 2, 'x', -1, decode(repeat('00', 32), 'hex'), '10.0.0.1', null, 1, 'x')",
                "lease",
            ),
            ("insert into dormouse.denial values ('x', -5)", "denial"),
        ] {
            raw.batch_execute(sql).await.unwrap();
            let e = match table {
                "orders" => north.orders().await.map(|_| ()),
                "lease" => north.leases().await.map(|_| ()),
                _ => north.denials().await.map(|_| ()),
            };
            let e = e.expect_err(table);
            assert!(matches!(&e, Error::Content { table: found, .. } if *found == table), "{e}");
        }
    });
}

#[test]
fn tls_is_with_the_server_that_is_meant() {
    if !possible("tls_is_with_the_server_that_is_meant") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let at = |host: &str, query: &str, authority: &str| Settings {
            url: format!(
                "postgresql://{}@{host}:{}/{}{query}",
                role(&settings.gateway),
                world.server.port(),
                world.database
            ),
            authorities: authority.as_bytes().to_vec(),
            ..settings.clone()
        };
        let right = fs::read_to_string(world.server.authority()).unwrap();
        let other = world.server.data().join("other");
        let other = fs::read_to_string(Pki::new(&other, Key::P256).unwrap().path("ca.pem")).unwrap();
        let is_encrypted = "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) where ssl and datname = current_database()";
        for query in ["", "?sslmode=verify-full", "?application_name=x&sslmode=verify-full"] {
            let _north = world.join_as(&at("localhost", query, &right), 0).await;
            assert_eq!(world.count(is_encrypted).await, 1);
        }
        let _plain = world.join_as(&at("localhost", "?sslmode=disable", &right), 0).await;
        // Another authority, and another name than the certificate's.
        for (host, authority) in [("localhost", &other), ("127.0.0.1", &right)] {
            let e = refused(&at(host, "", authority)).await;
            assert!(matches!(e, Error::Tls { .. }), "{e:?}");
        }
        assert!(matches!(
            refused(&at("localhost", "", "-----BEGIN CERTIFICATE-----\n!")).await,
            Error::Settings(_)
        ));
        // A server that has no TLS, or somebody on the way who says so.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgresql://x@localhost:{}/x", listener.local_addr().unwrap().port());
        let without = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
            client.write_all(b"N").unwrap();
            let mut rest = Vec::new();
            let _closed = client.read_to_end(&mut rest);
            rest
        });
        let e = refused(&Settings { url, authorities: right.into_bytes(), ..settings.clone() }).await;
        assert!(matches!(e, Error::Tls { .. }), "{e:?}");
        assert!(without.join().unwrap().is_empty(), "nothing was said in clear");
    });
}

async fn keys(database: &mut Database, now: u64, seed: u64) -> Vec<TicketKey> {
    database.ticket_keys(UnixTime(now), WEEK, &mut Seeded::new(seed)).await.unwrap()
}

fn times(key: &TicketKey) -> (u64, u64, u64) {
    (key.seal_from.0, key.seal_until.0, key.open_until.0)
}

#[test]
fn there_is_one_ticket_key_a_day_known_before_it_is_used() {
    if !possible("there_is_one_ticket_key_a_day_known_before_it_is_used") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let noon = MORNING.0 + DAY / 2;
        // The first one seals at once: there is no other.
        let first = keys(&mut north, noon, 1).await;
        let end = MORNING.0 + DAY + 600;
        assert_eq!(first.iter().map(times).collect::<Vec<_>>(), [(noon, end, end + WEEK.as_secs())]);
        assert!(first[0].seals(UnixTime(noon)) && !first[0].seals(UnixTime(end)));
        assert_eq!(south.notice().await.unwrap(), Notice::Keys);
        assert_eq!(keys(&mut south, noon, 2).await, first, "the same, not another");
        // In the day's last hour there is the next, for the day.
        assert_eq!(keys(&mut south, MORNING.0 + DAY - 3_601, 2).await, first);
        let two = keys(&mut south, MORNING.0 + DAY - 3_600, 2).await;
        assert_eq!(two.len(), 2);
        assert_eq!(times(&two[1]), (MORNING.0 + DAY, end + DAY, end + DAY + WEEK.as_secs()));
        assert_ne!(two[0].secret, two[1].secret);
        assert_eq!(keys(&mut north, MORNING.0 + DAY - 3_600, 1).await, two);
        assert_eq!(keys(&mut north, MORNING.0 + DAY + 10, 1).await, two);
        // All were away when the third should have been made: others hear of it ten minutes before, as far as the second lasts.
        let late = MORNING.0 + 2 * DAY - 60;
        let three = keys(&mut north, late, 1).await;
        assert_eq!(three[2].seal_from.0, late + 600);
        assert!(three[1].seals(UnixTime(late + 599)));
        // And when nobody could seal, at once.
        let later = MORNING.0 + 10 * DAY + 5;
        let newest = keys(&mut south, later, 5).await;
        assert_eq!(newest.last().map(|key| key.seal_from.0), Some(later));
        let days: Vec<u64> = newest.iter().map(|key| u64::from(key.day) - MORNING.0 / DAY).collect();
        assert_eq!(days, [2, 10], "what opens no ticket is gone");
        assert_eq!(world.count("select count(*) from dormouse.ticket_key").await, 2);
        // A gateway with longer tickets has the key kept for them.
        let long = south.ticket_keys(UnixTime(later), 2 * WEEK, &mut Seeded::new(9)).await.unwrap();
        let kept = long.last().unwrap();
        assert_eq!(kept.open_until.0, kept.seal_until.0 + 2 * WEEK.as_secs());
        assert_eq!(keys(&mut north, later, 6).await, long);
        // Somebody whose clock is far ahead removes nothing that counts.
        north.ticket_keys(UnixTime(20_000_000_000), WEEK, &mut Seeded::new(7)).await.unwrap();
        let ahead = keys(&mut south, 1_700_000_000, 8).await;
        north.ticket_keys(UnixTime(20_000_000_000), WEEK, &mut Seeded::new(7)).await.unwrap();
        assert!(!ahead.is_empty());
    });
}

#[test]
fn a_ticket_key_that_does_not_open_is_an_error_and_not_a_new_key() {
    if !possible("a_ticket_key_that_does_not_open_is_an_error_and_not_a_new_key") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let mut north = world.join("north").await;
        keys(&mut north, NOW.0, 1).await;
        let settings = Settings { key: Secret::from([8; 32]), ..world.settings("south").await };
        let (mut south, _) = world.join_as(&settings, 0).await;
        for now in [NOW.0, NOW.0 + DAY] {
            let e = south.ticket_keys(UnixTime(now), WEEK, &mut Seeded::new(2)).await.unwrap_err();
            assert!(matches!(e, Error::ClusterKey { day, .. } if u64::from(day) == NOW.0 / DAY), "{e}");
            assert!(e.to_string().contains("cluster key") && e.needs_somebody(), "{e}");
        }
        assert_eq!(world.count("select count(*) from dormouse.ticket_key").await, 1);
        // Whatever is changed in the row.
        let raw = world.raw().await;
        for column in ["day", "seal_from", "seal_until", "open_until"] {
            raw.batch_execute(&format!("update dormouse.ticket_key set {column} = {column} + 1"))
                .await
                .unwrap();
            assert!(north.ticket_keys(NOW, WEEK, &mut Seeded::new(2)).await.is_err(), "{column}");
            raw.batch_execute(&format!("update dormouse.ticket_key set {column} = {column} - 1"))
                .await
                .unwrap();
        }
        keys(&mut north, NOW.0, 3).await;
        for column in ["id", "wrapped"] {
            raw.batch_execute(&format!(
                "update dormouse.ticket_key set {column} = set_byte({column}, 5, 255 - get_byte({column}, 5))"
            ))
            .await
            .unwrap();
            assert!(north.ticket_keys(NOW, WEEK, &mut Seeded::new(2)).await.is_err(), "{column}");
            raw.batch_execute(&format!(
                "update dormouse.ticket_key set {column} = set_byte({column}, 5, 255 - get_byte({column}, 5))"
            ))
            .await
            .unwrap();
        }
        assert_eq!(keys(&mut north, NOW.0, 3).await.len(), 1);
    });
}

#[test]
fn the_status_says_who_is_there_and_what_there_is() {
    if !possible("the_status_says_who_is_there_and_what_there_is") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let (mut north, joined) = world.join_as(&settings, 0).await;
        let mut south = world.join("south").await;
        run(&mut north, &[insert(1, 1), insert(2, 2)]).await;
        assert_eq!(run(&mut south, &[confirm(1, 1, 1, 2)]).await, [Outcome::Done]);
        keys(&mut south, NOW.0, 1).await;
        let clock = UnixTime(joined.database_time.0 + 100);
        let session_time = Some(Duration::from_micros(12_500));
        let load = Load { sessions: 3, sleepers: 4, spent: 120, draining: true, session_time };
        north.say_settings("cluster.takeover=on\nconnection.a.sessions=3\nno value\n").await.unwrap();
        let beats = north.beat(clock, &load).await.unwrap();
        assert_eq!((beats.heard, beats.gateways), (2, 2));
        assert_eq!(beats.number, joined.beats + 1);
        let status = south.status().await.unwrap();
        assert_eq!(world.admin().await.status().await.unwrap().gateways, status.gateways);
        assert_eq!((status.schema, status.slots, status.incarnation), (SCHEMA, 4, 1));
        assert_eq!((status.lineages, status.leases, status.denials, status.keys.len()), (2, 0, 0, 1));
        assert!(status.warnings.iter().any(|warning| warning.contains("fsync")), "{:?}", status.warnings);
        let [a, b] = status.gateways.as_slice() else { panic!("{:?}", status.gateways) };
        assert_eq!((&a.name, a.slot, a.address.as_str()), (&world.name("north"), 0, "north.example"));
        assert_eq!((a.sessions, a.sleepers, a.lineages, a.orders, a.draining), (3, 4, 1, 1, true));
        assert_eq!((a.spent, a.round_trip.is_some(), b.round_trip), (120, true, None));
        assert_eq!((a.session_time, b.session_time), (session_time, None));
        let said: Vec<(&str, &str)> =
            a.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(said, [("cluster.takeover", "on"), ("connection.a.sessions", "3")]);
        assert!(b.settings.is_empty());
        assert_eq!(status.standbys, Some(Vec::new()), "nothing follows this server");
        assert!((99..=101).contains(&a.clock) && a.seen.is_some(), "{a:?}");
        assert_eq!((&b.name, b.slot, b.lineages, b.orders), (&world.name("south"), 1, 1, 0));
        assert!(b.seen.is_some(), "joining counts");
        assert_eq!(a.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(north.orders().await.unwrap()[0].lineage, name(1));
        let url = "postgresql://x:secret@localhost/x".into();
        let settings = Settings { url, ..settings };
        let shown = format!("{north:?} {settings:?}");
        assert!(
            shown.contains(&settings.gateway) && !shown.contains("7, 7") && !shown.contains("secret"),
            "{shown}"
        );
    });
}
