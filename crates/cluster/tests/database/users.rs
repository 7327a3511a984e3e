//! Users that all gateways have: who changes them, who hears of it, and what the database knows of passwords.

use crate::support::{NOW, World, block, possible, shared};
use dormouse_cluster::{
    Content, Database, Error, Load, Notice, SCHEMA, Settings, UserEntry, UserKey, UserKind, Users, Viewer,
};
use dormouse_crypto::Secret;
use dormouse_sansio::Seeded;

const HASH: [u8; 16] = [0xa5; 16];

fn password(name: &str) -> UserKey {
    UserKey { kind: UserKind::Password, connection: "office".into(), name: name.into() }
}

fn record(name: &str) -> UserKey {
    UserKey { kind: UserKind::Record, connection: String::new(), name: name.into() }
}

async fn put(users: &mut Users, key: &UserKey, seen: u64, content: Option<&[u8]>) -> Result<u64, Error> {
    let content = content.map(Secret::from);
    users.put(key, seen, content.as_ref(), &mut Seeded::new(seen)).await
}

async fn passwords(gateway: &mut Database) -> Vec<(String, u64, Content)> {
    let all = gateway.passwords().await.unwrap();
    all.into_iter().map(|UserEntry { key, version, content }| (key.name, version, content)).collect()
}

#[test]
fn a_user_is_written_once_each_gateway_hears_of_it_and_the_database_learns_no_hash() {
    if !possible("a_user_is_written_once_each_gateway_hears_of_it_and_the_database_learns_no_hash") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let (mut north, _) = world.join_as(&settings, 0).await;
        let mut south = world.join("south").await;
        let mut users = Users::connect(&settings).await.unwrap();
        assert_eq!(passwords(&mut north).await, []);
        assert_eq!(put(&mut users, &password("joe"), 0, Some(&HASH)).await.unwrap(), 1);
        // Also the gateway by whose login it was written.
        assert_eq!(north.notice().await.unwrap(), Notice::Users);
        assert_eq!(south.notice().await.unwrap(), Notice::Users);
        let here = Content::Here(Secret::from(HASH));
        assert_eq!(passwords(&mut south).await, [("joe".into(), 1, here.clone())]);
        let raw = world.raw().await;
        let row = raw.query_one("select content from dormouse.user_entry", &[]).await.unwrap();
        let stored: Vec<u8> = row.get(0);
        assert_eq!(stored.len(), 12 + HASH.len() + 16);
        assert!(!stored.windows(4).any(|bytes| bytes == &HASH[..4]), "{stored:x?}");

        // Who has seen an older state changes nothing.
        for seen in [0, 2] {
            let e = put(&mut users, &password("joe"), seen, None).await.unwrap_err();
            assert!(matches!(e, Error::UserChanged { .. }) && e.to_string().contains("joe"), "{e}");
        }
        assert_eq!(put(&mut users, &password("joe"), 1, None).await.unwrap(), 2);
        assert_eq!(south.notice().await.unwrap(), Notice::Users);
        assert_eq!(passwords(&mut south).await, [("joe".into(), 2, Content::Removed)]);
        // One who comes again.
        assert_eq!(put(&mut users, &password("joe"), 2, Some(&HASH)).await.unwrap(), 3);
        assert_eq!(passwords(&mut north).await, [("joe".into(), 3, here)]);

        // Records are told apart from passwords, and found by name.
        put(&mut users, &record("joe"), 0, Some(b"a record")).await.unwrap();
        let found = users.find(&record("joe")).await.unwrap().unwrap();
        assert_eq!((found.version, found.content), (1, Content::Here(Secret::from(&b"a record"[..]))));
        assert_eq!(users.find(&record("ann")).await.unwrap(), None);
        assert_eq!(users.all(UserKind::Record).await.unwrap().len(), 1);
        assert_eq!(passwords(&mut north).await.len(), 1);
        assert_eq!(north.status().await.unwrap().users, [1, 1]);
        let long = put(&mut users, &record("ann"), 0, Some(&[0; 70_000])).await.unwrap_err();
        assert!(matches!(long, Error::Settings(_)), "{long}");
    });
}

#[test]
fn a_password_is_nobody_elses_and_opens_under_no_other_key() {
    if !possible("a_password_is_nobody_elses_and_opens_under_no_other_key") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let (mut north, _) = world.join_as(&settings, 0).await;
        let mut users = Users::connect(&settings).await.unwrap();
        put(&mut users, &password("joe"), 0, Some(&HASH)).await.unwrap();
        put(&mut users, &password("ann"), 0, Some(&[7; 16])).await.unwrap();
        let other = Settings { key: Secret::from([8; 32]), ..settings.clone() };
        let found = Users::connect(&other).await.unwrap().all(UserKind::Password).await.unwrap();
        assert!(found.len() == 2 && found.iter().all(|e| e.content == Content::Unreadable), "{found:?}");
        let raw = world.raw().await;
        // Another's, an earlier one's, and one that is none: each by somebody who writes to the database.
        for forged in [
            "update dormouse.user_entry set content = (select content from dormouse.user_entry where name = 'joe') where name = 'ann'",
            "update dormouse.user_entry set version = version + 1 where name = 'ann'",
            "update dormouse.user_entry set connection = 'guests' where name = 'ann'",
            "update dormouse.user_entry set content = '\\x00' where name = 'ann'",
        ] {
            raw.batch_execute("begin").await.unwrap();
            raw.batch_execute(forged).await.unwrap();
            raw.batch_execute("commit").await.unwrap();
            let ann = passwords(&mut north).await.into_iter().find(|(name, ..)| name == "ann").unwrap();
            assert_eq!(ann.2, Content::Unreadable, "{forged}");
        }
        // It is one that can be written anew.
        let seen = users.all(UserKind::Password).await.unwrap();
        let ann = seen.into_iter().find(|entry| entry.key.name == "ann").unwrap();
        put(&mut users, &ann.key, ann.version, Some(&HASH)).await.unwrap();
        assert!(passwords(&mut north).await.iter().all(|(.., content)| matches!(content, Content::Here(_))));
    });
}

#[test]
fn tables_of_the_first_version_are_brought_up_with_what_is_in_them() {
    if !possible("tables_of_the_first_version_are_brought_up_with_what_is_in_them") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        drop(world.join_as(&settings, 0).await);
        // As the first version left them.
        let back = "drop table dormouse.user_entry, dormouse.handover, dormouse.load_history, dormouse.session, dormouse.ended, dormouse.ike_sa;
            alter table dormouse.gateway drop spent, drop round_trip, drop draining, drop session_time, drop settings;
            update dormouse.cluster set schema = 1";
        world.raw().await.batch_execute(back).await.unwrap();
        let old = Users::connect(&settings).await.unwrap_err();
        assert!(matches!(old, Error::Version { found: 1, .. }), "{old}");
        world.admin().await.init(None).await.unwrap();
        assert_eq!(world.admin().await.version().await.unwrap(), Some(SCHEMA));
        let (mut north, joined) = world.join_as(&settings, 0).await;
        assert_eq!((joined.slot, joined.emptied), (0, false), "it has its place still");
        assert_eq!(Viewer::connect(&settings).await.unwrap().lacking().await.unwrap(), Vec::<String>::new());
        let beat = north.beat(NOW, &Load { spent: 5, ..Load::default() }).await.unwrap();
        assert_eq!((beat.heard, beat.gateways), (1, 1));
        let status = north.status().await.unwrap();
        assert_eq!((status.gateways[0].spent, status.gateways[0].round_trip.is_some()), (5, true));
        put(&mut Users::connect(&settings).await.unwrap(), &password("joe"), 0, Some(&HASH)).await.unwrap();
    });
}
