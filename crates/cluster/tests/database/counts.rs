//! How many sessions an identity has over all gateways.

use crate::support::{NOW, World, block, confirm, holder, insert, name, possible, run, shared};
use dormouse_cluster::{Database, Notice};
use dormouse_ike::ticket::counted::Counted;
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome};
use dormouse_keying::SaId;
use dormouse_sansio::UnixTime;
use std::net::IpAddr;
use std::sync::{Arc, Barrier};

/// One of several devices, which may be `most`.
fn session(id: u64, of: u8, most: u32) -> Counted {
    Counted {
        lineage: name(id),
        holder: holder(of),
        from: None,
        most,
        login: true,
        former: None,
        began: UnixTime(NOW.0 + id),
    }
}

/// One that stays where it is the first.
fn kept(id: u64, of: u8, host: u8) -> Counted {
    Counted { from: Some(IpAddr::from([192, 0, 2, host])), ..session(id, of, 1) }
}

fn enter(session: Counted) -> Operation {
    Operation::Enter { sa: Some(SaId::new(1)), session }
}

fn leave(id: u64) -> Operation {
    Operation::Leave { lineage: name(id) }
}

async fn silent(world: &World, gateway: &str, seconds: i64) {
    let sql = "update dormouse.gateway set seen = extract(epoch from clock_timestamp())::bigint - $2 where name = $1";
    world.raw().await.execute(sql, &[&world.name(gateway), &seconds]).await.unwrap();
}

async fn there(database: &mut Database, session: Counted) -> bool {
    let sa = None;
    run(database, &[Operation::Enter { sa, session }]).await == [Outcome::Done]
}

#[test]
fn an_identity_has_as_many_sessions_at_all_gateways_as_it_may_have() {
    if !possible("an_identity_has_as_many_sessions_at_all_gateways_as_it_may_have") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let outcomes = run(&mut north, &[enter(session(1, 1, 2)), enter(session(2, 2, 2))]).await;
        assert_eq!(outcomes, [Outcome::Done; 2]);
        let outcomes = run(&mut south, &[enter(session(3, 1, 2)), enter(session(4, 1, 2))]).await;
        assert_eq!(outcomes, [Outcome::Done, Outcome::Full]);
        // It says again that it is there, as when its client has moved; and one that takes the place of another has its place.
        assert!(there(&mut south, session(3, 1, 2)).await);
        let instead = Counted { former: Some(name(1)), ..session(5, 1, 2) };
        assert!(there(&mut south, instead).await);
        assert!(!there(&mut north, session(6, 1, 2)).await);
        // Its end at one gateway is none at another.
        run(&mut south, &[leave(1), leave(2)]).await;
        assert!(!there(&mut south, session(6, 1, 2)).await);
        run(&mut north, &[leave(1)]).await;
        run(&mut south, &[leave(5)]).await;
        assert!(there(&mut south, session(6, 1, 2)).await);
        // One that has moved by its ticket is where it is, and not a second one.
        run(&mut south, &[insert(3, 1)]).await;
        assert_eq!(run(&mut north, &[confirm(3, 3, 3, 13)]).await, [Outcome::Done]);
        run(&mut south, &[leave(3)]).await;
        assert!(!there(&mut south, session(7, 1, 2)).await, "it is at the other one");
        assert!(there(&mut north, session(3, 1, 2)).await);
        run(&mut north, &[leave(3)]).await;
        assert!(there(&mut south, session(7, 1, 2)).await);
    });
}

#[test]
fn where_the_first_one_stays_another_comes_in_from_the_same_address_alone() {
    if !possible("where_the_first_one_stays_another_comes_in_from_the_same_address_alone") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        assert!(there(&mut north, kept(1, 1, 1)).await);
        assert!(!there(&mut south, kept(2, 1, 2)).await, "a copied certificate");
        assert!(there(&mut south, kept(3, 1, 1)).await, "a device that has lost its state");
        assert!(!there(&mut south, kept(4, 1, 1)).await, "and once is enough");
        run(&mut south, &[leave(3)]).await;
        // By ticket, of a session that was over.
        assert!(!there(&mut south, Counted { login: false, ..kept(3, 1, 1) }).await);
        // It has moved.
        assert!(there(&mut north, kept(1, 1, 2)).await);
        assert!(!there(&mut south, kept(5, 1, 1)).await);
        assert!(there(&mut south, kept(5, 1, 2)).await);
    });
}

#[test]
fn sessions_of_a_gateway_that_is_silent_do_not_count_until_it_is_back() {
    if !possible("sessions_of_a_gateway_that_is_silent_do_not_count_until_it_is_back") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        assert!(there(&mut north, kept(1, 1, 1)).await);
        silent(&world, "north", 20).await;
        assert!(!there(&mut south, kept(2, 1, 2)).await, "it may be there");
        silent(&world, "north", 60).await;
        assert!(there(&mut south, kept(2, 1, 2)).await);
        assert!(there(&mut south, session(4, 2, 2)).await);
        // It was cut off, and has let in another one by itself, and two of whom there are three then.
        let own = [kept(1, 1, 1), session(3, 2, 2), session(5, 2, 2)];
        assert_eq!(north.count(&own).await.unwrap(), [name(5)], "which began last");
        assert_eq!(south.notice().await.unwrap(), Notice::Orders);
        assert_eq!(south.too_many().await.unwrap(), [name(2)], "the first one stays");
        assert_eq!(north.too_many().await.unwrap(), [name(5)]);
        assert!(there(&mut north, kept(6, 1, 1)).await, "what is too many does not count");
        run(&mut south, &[leave(2)]).await;
        assert_eq!(south.too_many().await.unwrap(), []);
        // A process that begins has none.
        assert_eq!(north.count(&[]).await.unwrap(), []);
        assert_eq!(world.count("select count(*) from dormouse.session").await, 1);
        world.admin().await.forget_gateway(&world.name("south")).await.unwrap();
        assert_eq!(world.count("select count(*) from dormouse.session").await, 0);
    });
}

#[test]
fn what_has_moved_meanwhile_is_not_counted_twice_and_what_is_replaced_ends() {
    if !possible("what_has_moved_meanwhile_is_not_counted_twice_and_what_is_replaced_ends") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        run(&mut north, &[insert(1, 1)]).await;
        assert!(there(&mut north, session(1, 1, 1)).await);
        assert_eq!(run(&mut south, &[confirm(1, 1, 1, 2)]).await, [Outcome::Done]);
        assert_eq!(north.count(&[session(1, 1, 1)]).await.unwrap(), []);
        assert_eq!(south.count(&[session(1, 1, 1)]).await.unwrap(), []);
        // North has a login that takes its place, of which a failover has left nothing on record.
        let instead = Counted { former: Some(name(1)), ..session(2, 1, 1) };
        assert_eq!(north.count(&[instead]).await.unwrap(), []);
        assert_eq!(south.too_many().await.unwrap(), [name(1)]);
    });
}

/// Many identities log in at two gateways at once.
#[test]
fn of_two_logins_at_the_same_moment_exactly_as_many_stay_as_may() {
    if !possible("of_two_logins_at_the_same_moment_exactly_as_many_stay_as_may") {
        return;
    }
    const HOLDERS: u8 = 100;
    let world = Arc::new(block(World::new(shared(), None)));
    let start = Arc::new(Barrier::new(2));
    let gateway = |gateway: &'static str, first: u64, downwards: bool| {
        let (world, start) = (world.clone(), start.clone());
        std::thread::spawn(move || {
            block(async {
                let mut database = world.join(gateway).await;
                let mut all: Vec<u8> = (0..HOLDERS).collect();
                if downwards {
                    all.reverse();
                }
                start.wait();
                let mut in_all: Vec<Name> = Vec::new();
                for some in all.chunks(7) {
                    let logins: Vec<Counted> = some
                        .iter()
                        .flat_map(|of| [0, 1].map(|n| session(first + 2 * u64::from(*of) + n, *of, 3)))
                        .collect();
                    let operations: Vec<Operation> = logins.iter().map(|login| enter(*login)).collect();
                    let outcomes = run(&mut database, &operations).await;
                    let done = logins.iter().zip(outcomes).filter(|(_, o)| *o == Outcome::Done);
                    in_all.extend(done.map(|(login, _)| login.lineage));
                }
                in_all.len()
            })
        })
    };
    let (north, south) = (gateway("north", 0, false), gateway("south", 1_000, true));
    let (north, south) = (north.join().unwrap(), south.join().unwrap());
    assert_eq!(north + south, 3 * usize::from(HOLDERS), "{north} and {south}");
    block(async {
        let each = "select count(*) from (select from dormouse.session group by holder having count(*) = 3) all_of_them";
        assert_eq!(world.count(each).await, i64::from(HOLDERS));
    });
}
