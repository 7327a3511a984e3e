//! Devices that go from one gateway to another, and what waits for them.

use crate::support::{NOW, World, block, confirm, holder, insert, name, possible, run, shared};
use dormouse_cluster::{Arrived, Database, Error, Load, Notice, Parcel};
use dormouse_crypto::Secret;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, Row};
use dormouse_sansio::{Seeded, UnixTime};
use std::time::Duration;

fn parcel(lineage: u64, to: Option<&str>, content: &[u8]) -> Parcel {
    let (lineage, to) = (name(lineage), to.map(ToOwned::to_owned));
    Parcel { lineage, holder: None, to, lasts: Duration::from_secs(900), content: content.to_vec() }
}

/// By the database's clock, which decides what is too late.
async fn now(world: &World) -> UnixTime {
    let now = world.count("select extract(epoch from clock_timestamp())::bigint").await;
    UnixTime(u64::try_from(now).unwrap())
}

async fn give(world: &World, from: &mut Database, parcels: &[Parcel]) -> Vec<bool> {
    from.hand_over(now(world).await, parcels, &mut Seeded::new(5)).await.unwrap()
}

/// What has come for a gateway, which has then read it.
async fn come(at: &mut Database) -> Vec<(u64, Option<Vec<u8>>)> {
    let arrived = at.handovers().await.unwrap();
    let numbers: Vec<i64> = arrived.iter().map(|one| one.seq).collect();
    at.taken(&numbers).await.unwrap();
    let number = |one: &Arrived| u64::from_be_bytes(one.lineage.0[..8].try_into().unwrap());
    arrived.iter().map(|one| (number(one), one.content.clone())).collect()
}

#[test]
fn a_device_is_the_other_gateways_once_it_is_told() {
    if !possible("a_device_is_the_other_gateways_once_it_is_told") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let mut east = world.join("east").await;
        let to = world.name("south");
        run(&mut north, &[insert(1, 1), insert(2, 2)]).await;
        // Of the third nothing is known.
        let told = give(&world, &mut north, &[1, 2, 3].map(|n| parcel(n, Some(&to), &[n as u8]))).await;
        assert_eq!(told, [true, true, false]);
        assert_eq!(south.notice().await.unwrap(), Notice::Orders);
        let first = south.handovers().await.unwrap();
        assert_eq!(first.len(), 2);
        assert_eq!(south.handovers().await.unwrap(), first, "until they are taken");
        assert_eq!(come(&mut south).await, [(1, Some(vec![1])), (2, Some(vec![2]))]);
        assert_eq!(come(&mut south).await, []);
        // What came to the former gateway meanwhile follows; it has no order, since it knows.
        assert_eq!(give(&world, &mut north, &[parcel(1, None, b"more")]).await, [true]);
        assert_eq!(come(&mut south).await, [(1, Some(b"more".to_vec()))]);
        assert_eq!(north.orders().await.unwrap(), []);
        // What nobody else has goes nowhere.
        assert_eq!(give(&world, &mut south, &[parcel(1, None, b"x")]).await, [false]);
        // The device wakes at a third one: the second has an order, and what waits there follows.
        assert_eq!(run(&mut east, &[confirm(1, 1, 1, 7)]).await, [Outcome::Done]);
        assert_eq!(south.orders().await.unwrap()[0].lineage, name(1));
        assert_eq!(give(&world, &mut south, &[parcel(1, None, b"late")]).await, [true]);
        assert_eq!(come(&mut east).await, [(1, Some(b"late".to_vec()))]);
        // One that woke elsewhere cannot be given away any more; its packets are not lost.
        assert_eq!(give(&world, &mut north, &[parcel(1, Some(&to), b"again")]).await, [true]);
        assert_eq!(
            (come(&mut south).await, come(&mut east).await),
            (vec![], vec![(1, Some(b"again".to_vec()))])
        );
    });
}

#[test]
fn what_waits_for_a_device_that_has_logged_in_elsewhere_comes_there() {
    if !possible("what_waits_for_a_device_that_has_logged_in_elsewhere_comes_there") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let of = |lineage, whose| Parcel { holder: Some(holder(whose)), ..parcel(lineage, None, b"x") };
        run(&mut north, &[insert(1, 1), insert(2, 2)]).await;
        run(&mut south, &[Operation::EndAll { holder: holder(1) }, insert(3, 1)]).await;
        assert_eq!(north.orders().await.unwrap()[0].lineage, name(1));
        // No other client has this holder, and a lineage that is there goes before.
        assert_eq!(give(&world, &mut north, &[of(1, 1), of(2, 1), of(9, 4)]).await, [true, false, false]);
        assert_eq!(come(&mut south).await, [(3, Some(b"x".to_vec()))]);
        // Nor does it come where it was sent from.
        assert_eq!(give(&world, &mut south, &[of(1, 1)]).await, [false]);
        // Of two sessions the one that lasts longer, here the later.
        let mut east = world.join("east").await;
        let Operation::Insert(row) = insert(5, 1) else { unreachable!() };
        let later = Row { ends: UnixTime(row.ends.0 + 9), ..row };
        run(&mut east, &[Operation::Insert(later)]).await;
        let given = Parcel { to: Some(world.name("south")), ..of(1, 1) };
        assert_eq!(give(&world, &mut north, &[given]).await, [true]);
        assert_eq!((come(&mut south).await, come(&mut east).await), (vec![], vec![(5, Some(b"x".to_vec()))]));
    });
}

#[test]
fn what_is_on_its_way_follows_the_device_also_after_its_session() {
    if !possible("what_is_on_its_way_follows_the_device_also_after_its_session") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let mut east = world.join("east").await;
        let to = world.name("south");
        run(&mut north, &[insert(1, 1), insert(2, 2), insert(3, 3)]).await;
        let all = [1, 2, 3].map(|n| parcel(n, Some(&to), b"x"));
        assert_eq!(give(&world, &mut north, &all).await, [true; 3]);
        assert_eq!(run(&mut east, &[confirm(1, 1, 1, 7)]).await, [Outcome::Done]);
        run(&mut east, &[Operation::EndAll { holder: holder(2) }]).await;
        // Of the second device the session is over. Who reads what waits for it sends it on, if it has logged in elsewhere.
        let over: Vec<(Name, bool)> =
            south.handovers().await.unwrap().iter().map(|one| (one.lineage, one.over)).collect();
        assert_eq!(over, [(name(2), true), (name(3), false)]);
        let second = || Parcel { holder: Some(holder(2)), ..parcel(2, None, b"x") };
        assert_eq!(give(&world, &mut south, &[second()]).await, [false]);
        run(&mut east, &[insert(4, 2)]).await;
        assert_eq!(give(&world, &mut south, &[second()]).await, [true]);
        assert_eq!(come(&mut south).await, [(2, Some(b"x".to_vec())), (3, Some(b"x".to_vec()))]);
        assert_eq!(come(&mut east).await, [(1, Some(b"x".to_vec())), (4, Some(b"x".to_vec()))]);
        assert_eq!(world.count("select count(*) from dormouse.handover").await, 0);
        // Too late.
        assert_eq!(give(&world, &mut south, &[parcel(3, Some(&world.name("east")), b"x")]).await, [true]);
        world.raw().await.execute("update dormouse.handover set ends = 1", &[]).await.unwrap();
        assert_eq!(come(&mut east).await, []);
        assert_eq!(world.count("select count(*) from dormouse.handover").await, 0);
        // A gateway that does not exist gets nothing, and the device stays.
        assert_eq!(give(&world, &mut north, &[parcel(2, Some("nowhere"), b"x")]).await, [false]);
    });
}

#[test]
fn a_reader_of_the_database_learns_nothing_and_a_writer_changes_nothing() {
    if !possible("a_reader_of_the_database_learns_nothing_and_a_writer_changes_nothing") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let to = world.name("south");
        run(&mut north, &[insert(1, 1), insert(2, 2), insert(3, 3)]).await;
        let secret = b"what people send each other";
        give(&world, &mut north, &[1, 2, 3].map(|n| parcel(n, Some(&to), secret))).await;
        let raw = world.raw().await;
        let seen = raw.query("select sealed from dormouse.handover", &[]).await.unwrap();
        let hides = |sealed: &[u8]| !sealed.windows(secret.len()).any(|part| part == secret);
        assert!(seen.iter().all(|row| hides(row.get(0))));
        raw.batch_execute(
            "update dormouse.handover set ends = ends + 60 where seq = (select min(seq) from dormouse.handover);
            update dormouse.handover set sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)
                where seq = (select max(seq) from dormouse.handover)",
        )
        .await
        .unwrap();
        assert_eq!(come(&mut south).await, [(1, None), (2, Some(secret.to_vec())), (3, None)]);
        // Under another cluster key neither.
        let settings = world.settings("east").await;
        let (mut east, _) =
            world.join_as(&dormouse_cluster::Settings { key: Secret::from([8; 32]), ..settings }, 0).await;
        give(&world, &mut south, &[parcel(2, Some(&world.name("east")), secret)]).await;
        assert_eq!(come(&mut east).await, [(2, None)]);
        let huge = parcel(2, None, &vec![0; 5 << 20]);
        let refused = south.hand_over(NOW, &[huge], &mut Seeded::new(1)).await;
        assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    });
}

#[test]
fn devices_go_to_gateways_that_are_there_and_stay() {
    if !possible("devices_go_to_gateways_that_are_there_and_stay") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let settings = world.settings("east").await;
        let (mut east, _) = world.join_as(&settings, 0).await;
        let clock = now(&world).await;
        let load = |sleepers, draining| Load { sessions: 2, sleepers, draining, ..Load::default() };
        let beats = east.beat(clock, &load(5, false)).await.unwrap();
        south.beat(clock, &load(1, false)).await.unwrap();
        let found = async |north: &mut Database| -> Vec<(String, String, u64)> {
            north.others().await.unwrap().into_iter().map(|o| (o.name, o.address, o.devices)).collect()
        };
        let of = |name: &str, devices| (world.name(name), format!("{name}.example"), devices);
        assert_eq!(found(&mut north).await, [of("east", 7), of("south", 3)]);
        east.beat(clock, &load(5, true)).await.unwrap();
        assert_eq!(found(&mut north).await, [of("south", 3)], "one that goes itself");
        world
            .raw()
            .await
            .execute("update dormouse.gateway set seen = seen - 60 where name <> $1", &[&world.name("east")])
            .await
            .unwrap();
        assert_eq!(found(&mut north).await, [], "one that was not heard");
        // It is back, and takes part again.
        drop(world.join_as(&settings, beats.number).await);
        assert_eq!(found(&mut north).await.len(), 1);
    });
}
