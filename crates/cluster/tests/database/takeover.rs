//! IKE SAs that outlive their gateway: who may have one, and who reads what is left of it.

use crate::support::{World, block, name, possible, run, shared};
use dormouse_cluster::{Database, Given, Load, Notice, Order, Settings};
use dormouse_crypto::Secret;
use dormouse_ike::takeover::{Left, Record};
use dormouse_ike::ticket::lineage::{Operation, Row, TicketHolder};
use dormouse_sansio::{Seeded, UnixTime};

const KEYS: &[u8] = b"the keys of a session";

fn left(n: u64) -> Left {
    let esp = vec![u32::try_from(n).unwrap() + 300, 0xffff_ffff];
    Left { lineage: name(n), spi: u64::MAX - n, esp, local: [192, 0, 2, 1].into() }
}

fn record(n: u64, owners: u16) -> Record {
    Record { left: left(n), owners, ends: UnixTime(u64::from(u32::MAX)), content: Secret::from(KEYS) }
}

async fn leave(at: &mut Database, records: &[&Record], over: &[u64]) {
    let over: Vec<_> = over.iter().map(|n| name(*n)).collect();
    at.leave(records, &over, &mut Seeded::new(7)).await.unwrap();
}

/// The others have not heard of this gateway for so many seconds.
async fn silence(world: &World, gateway: &str, seconds: i64) {
    let seen = format!(
        "update dormouse.gateway set seen = extract(epoch from clock_timestamp())::bigint - {seconds} where name = $1"
    );
    world.raw().await.execute(&seen, &[&world.name(gateway)]).await.unwrap();
}

fn given(owners: u16) -> Option<Given> {
    Some(Given { owners, content: Some(Secret::from(KEYS)) })
}

async fn orders(of: &mut Database) -> Vec<u64> {
    let orders: Vec<Order> = of.orders().await.unwrap();
    orders.iter().map(|o| u64::from_be_bytes(o.lineage.0[..8].try_into().unwrap())).collect()
}

#[test]
fn what_a_silent_gateway_has_left_is_given_to_one_other_and_each_owner_is_counted() {
    if !possible("what_a_silent_gateway_has_left_is_given_to_one_other_and_each_owner_is_counted") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let (mut north, _) = world.join_as(&settings, 0).await;
        let (mut south, mut east) = (world.join("south").await, world.join("east").await);
        leave(&mut north, &[&record(1, 0), &record(2, 0), &record(3, 0)], &[]).await;
        leave(&mut north, &[&record(1, 0)], &[3]).await;
        // As long as its gateway is heard, no other one gets it.
        assert_eq!(south.silent().await.unwrap(), [""; 0]);
        assert_eq!(south.claim(name(1)).await.unwrap(), None);
        silence(&world, "north", 29).await;
        assert_eq!(south.claim(name(1)).await.unwrap(), None);
        silence(&world, "north", 31).await;
        assert_eq!(south.silent().await.unwrap(), [world.name("north")]);
        assert_eq!(south.left_by(Some(&world.name("north"))).await.unwrap(), [left(1), left(2)]);
        // Two ask at once.
        let (a, b) = tokio::join!(south.claim(name(1)), east.claim(name(1)));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!((a == given(1)) != (b == given(1)) && (a.is_none() || b.is_none()), "{a:?} {b:?}");
        let (mut owner, mut other, at) =
            if a.is_some() { (south, east, "south") } else { (east, south, "east") };
        assert_eq!(other.claim(name(3)).await.unwrap(), None, "it is over");
        // The former owner, which was only cut off, hears of it, and changes nothing.
        assert_eq!(north.notice().await.unwrap(), Notice::Orders);
        assert_eq!(orders(&mut north).await, [1]);
        leave(&mut north, &[&record(1, 0)], &[]).await;
        leave(&mut north, &[], &[1]).await;
        assert_eq!(other.claim(name(1)).await.unwrap(), None, "its owner is there");
        // Each owner after that is another one, and an order for it to let go is void.
        leave(&mut owner, &[&record(1, 1)], &[]).await;
        silence(&world, at, 60).await;
        north.beat(UnixTime(1), &Load::default()).await.unwrap();
        assert_eq!(north.claim(name(1)).await.unwrap(), given(2));
        assert_eq!((orders(&mut north).await, orders(&mut owner).await), (vec![], vec![1]));
        // Another process of this gateway takes its own.
        drop(north);
        let (mut north, _) = world.join_as(&settings, 0).await;
        assert_eq!(north.left_by(None).await.unwrap(), [left(1), left(2)]);
        assert_eq!(north.claim(name(1)).await.unwrap(), given(3));
        assert_eq!(orders(&mut north).await, [0; 0]);
    });
}

#[test]
fn a_session_that_is_taken_over_is_on_record_where_it_is() {
    if !possible("a_session_that_is_taken_over_is_on_record_where_it_is") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let row = Row {
            id: name(1),
            holder: TicketHolder([1; 32]),
            tip: name(9),
            ends: UnixTime(u64::from(u32::MAX)),
        };
        run(&mut north, &[Operation::Insert(row)]).await;
        leave(&mut north, &[&record(1, 0)], &[]).await;
        silence(&world, "north", 60).await;
        assert_eq!(south.claim(name(1)).await.unwrap(), given(1));
        run(&mut south, &[Operation::Insert(Row { tip: name(8), ..row })]).await;
        // The former owner ends nothing, and the order that a login elsewhere gives goes to the one that has it.
        let end = Operation::End { sa: None, lineage: row.id, holder: row.holder };
        run(&mut north, &[end]).await;
        let mut east = world.join("east").await;
        assert_eq!(orders(&mut south).await, [0; 0]);
        run(&mut east, &[Operation::EndAll { holder: row.holder }]).await;
        assert_eq!((orders(&mut south).await, orders(&mut north).await), (vec![1], vec![1]));
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 0);
    });
}

#[test]
fn a_reader_of_the_database_has_no_key_and_what_a_writer_has_put_there_is_not_taken() {
    if !possible("a_reader_of_the_database_has_no_key_and_what_a_writer_has_put_there_is_not_taken") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let mut north = world.join("north").await;
        leave(&mut north, &[&record(1, 0), &record(2, 0), &record(3, 0)], &[]).await;
        let raw = world.raw().await;
        let seen = raw.query("select sealed from dormouse.ike_sa", &[]).await.unwrap();
        let hides = |sealed: &[u8]| !sealed.windows(KEYS.len()).any(|part| part == KEYS);
        assert!(seen.len() == 3 && seen.iter().all(|row| hides(row.get(0))));
        // The first is damaged, and the second has what was left of the third.
        raw.batch_execute(
            "with all_of as (select lineage, sealed, row_number() over (order by lineage) as n from dormouse.ike_sa)
             update dormouse.ike_sa s set sealed = case o.n when 1 then set_byte(o.sealed, 20, get_byte(o.sealed, 20) # 1)
                else (select sealed from all_of where n = 3) end
             from all_of o where o.lineage = s.lineage and o.n < 3",
        )
        .await
        .unwrap();
        silence(&world, "north", 60).await;
        let mut south = world.join("south").await;
        for n in [1, 2] {
            assert_eq!(south.claim(name(n)).await.unwrap(), Some(Given { owners: 1, content: None }));
        }
        // One that was had as often as can be counted, and one that is too old.
        raw.batch_execute("update dormouse.ike_sa set owners = 65535").await.unwrap();
        assert_eq!(south.claim(name(3)).await.unwrap(), None);
        raw.batch_execute("update dormouse.ike_sa set owners = 0, ends = 1").await.unwrap();
        assert_eq!(south.claim(name(3)).await.unwrap(), None);
        assert_eq!(south.left_by(Some(&world.name("north"))).await.unwrap(), []);
        assert_eq!(world.count("select count(*) from dormouse.ike_sa").await, 0);
        // Under another cluster key.
        leave(&mut north, &[&record(4, 0)], &[]).await;
        let settings = Settings { key: Secret::from([8; 32]), ..world.settings("east").await };
        let (mut east, _) = world.join_as(&settings, 0).await;
        assert_eq!(east.claim(name(4)).await.unwrap(), Some(Given { owners: 1, content: None }));
    });
}

#[test]
fn a_database_that_is_an_earlier_state_of_itself_gives_nothing() {
    if !possible("a_database_that_is_an_earlier_state_of_itself_gives_nothing") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let settings = world.settings("north").await;
        let (mut north, joined) = world.join_as(&settings, 0).await;
        leave(&mut north, &[&record(1, 0)], &[]).await;
        run(&mut north, &[Operation::EndEvery]).await;
        assert_eq!(north.left_by(None).await.unwrap(), [left(1)], "it is about tickets");
        drop(north);
        // The gateway remembers a later heartbeat than the database does: owners may have been counted there.
        let (mut north, again) = world.join_as(&settings, joined.beats + 100).await;
        assert!(again.emptied);
        assert_eq!(north.left_by(None).await.unwrap(), []);
        assert_eq!(north.claim(name(1)).await.unwrap(), None);
    });
}
