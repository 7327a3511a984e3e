//! Which tickets count.

use crate::support::{LATER, NOW, World, block, confirm, holder, insert, name, possible, run, shared};
use dormouse_cluster::{Notice, Order};
use dormouse_ike::limits::LINEAGES_PER_HOLDER;
use dormouse_ike::ticket::lineage::{Memory, Name, Operation, Outcome, Row, Store};
use dormouse_keying::SaId;
use dormouse_sansio::{Entropy, Seeded, UnixTime};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tokio::sync::Mutex;

async fn rows(world: &World) -> Vec<Row> {
    let rows = world
        .raw()
        .await
        .query("select id, holder, tip, ends from dormouse.lineage order by id", &[])
        .await
        .unwrap();
    let bytes = |row: &tokio_postgres::Row, at: usize| -> Vec<u8> { row.get(at) };
    let row = |row: &tokio_postgres::Row| Row {
        id: Name(bytes(row, 0).try_into().unwrap()),
        holder: dormouse_ike::ticket::lineage::TicketHolder(bytes(row, 1).try_into().unwrap()),
        tip: Name(bytes(row, 2).try_into().unwrap()),
        ends: UnixTime(u64::try_from(row.get::<_, i64>(3)).unwrap()),
    };
    rows.iter().map(row).collect()
}

/// Few names, so that operations meet; a holder is its lineage's for good.
fn operation() -> impl Strategy<Value = Operation> {
    let (id, tip, ends) = (0..6_u64, 0..4_u64, 0..60_u64);
    let of = |id: u64| holder(u8::try_from(id % 2).unwrap());
    (0..12_u8, id, tip.clone(), tip.clone(), tip, ends).prop_map(move |(kind, id, a, b, c, ends)| {
        let (lineage, ends) = (name(id), UnixTime(ends));
        match kind {
            0..=3 => Operation::Insert(Row { id: lineage, holder: of(id), tip: name(a), ends }),
            4..=7 => Operation::Confirm {
                sa: SaId::new(id),
                lineage,
                own: name(a),
                before: name(b),
                next: name(c),
                ends,
            },
            8 => Operation::Advance { lineage, from: name(a), to: name(b), ends },
            9 if c < 2 => Operation::End { sa: None, lineage, holder: of(id + a % 2) },
            9 => Operation::EndFormer { lineage, holder: of(id + a % 2) },
            10 if a == 0 => Operation::EndEvery,
            _ => Operation::EndAll { holder: of(id) },
        }
    })
}

#[test]
fn one_gateway_sees_what_the_rules_in_memory_say() {
    if !possible("one_gateway_sees_what_the_rules_in_memory_say") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (world, database, raw) = runtime.block_on(async {
        let world = World::new(shared(), None).await;
        let (database, raw) = (world.join("north").await, world.raw().await);
        (world, Mutex::new(database), raw)
    });
    let batches = prop::collection::vec((0..6_u64, prop::collection::vec(operation(), 0..9)), 1..9);
    let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
    let told = TestRunner::new(config).run(&batches, |story| {
        runtime.block_on(async {
            raw.batch_execute(
                "delete from dormouse.lineage; delete from dormouse.ended; delete from dormouse.orders",
            )
            .await
            .unwrap();
            let (mut memory, mut now) = (Memory::default(), 10);
            for (step, operations) in &story {
                now += step;
                let expected = memory.run(UnixTime(now), operations).unwrap();
                let got = database.lock().await.run(UnixTime(now), operations).await.unwrap();
                prop_assert_eq!(got, expected);
                prop_assert_eq!(rows(&world).await, memory.rows().copied().collect::<Vec<_>>());
            }
            Ok(())
        })
    });
    told.unwrap();
}

#[test]
fn of_a_holder_so_many_stay_and_the_sessions_of_the_others_go_on() {
    if !possible("of_a_holder_so_many_stay_and_the_sessions_of_the_others_go_on") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let most = u64::try_from(LINEAGES_PER_HOLDER).unwrap();
        let mut memory = Memory::default();
        let insert = |id: u64| {
            let ends = UnixTime(LATER.0 + (id * 7) % 40);
            Operation::Insert(Row { id: name(id), holder: holder(1), tip: name(id), ends })
        };
        for (database, ids) in [(&mut south, 0..20), (&mut north, 20..most + 5)] {
            let operations: Vec<Operation> = ids.map(insert).collect();
            memory.run(NOW, &operations).unwrap();
            run(database, &operations).await;
        }
        let left = rows(&world).await;
        assert_eq!(left.len(), LINEAGES_PER_HOLDER);
        assert_eq!(left, memory.rows().copied().collect::<Vec<_>>());
        assert!((0..20).map(name).any(|id| left.iter().all(|row| row.id != id)));
        assert_eq!(south.orders().await.unwrap(), [], "as where one gateway has them all");
        assert_eq!(north.orders().await.unwrap(), []);
    });
}

#[test]
fn a_lineage_that_moves_or_ends_is_ordered_away_from_its_gateway_once() {
    if !possible("a_lineage_that_moves_or_ends_is_ordered_away_from_its_gateway_once") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        run(&mut north, &[insert(1, 1), insert(2, 2), insert(3, 3), insert(4, 4), insert(5, 5)]).await;
        // One's own are no news: moved, advanced, ended.
        let advance = |lineage: u64, from: u64, to: u64| {
            let (lineage, from, to) = (name(lineage), name(from), name(to));
            Operation::Advance { lineage, from, to, ends: LATER }
        };
        let end = |id: u64, of: u8| Operation::End { sa: None, lineage: name(id), holder: holder(of) };
        let former = |id: u64, of: u8| Operation::EndFormer { lineage: name(id), holder: holder(of) };
        run(&mut north, &[confirm(1, 1, 1, 11), advance(1, 11, 12), end(5, 5)]).await;
        // Advancing does not take; a wrong tip does not either; nor does another holder end it.
        run(&mut south, &[advance(1, 12, 13)]).await;
        assert_eq!(run(&mut south, &[confirm(1, 1, 11, 99)]).await, [Outcome::Superseded]);
        run(&mut south, &[former(1, 2)]).await;
        // The end of a session that it has no more is none of the session that there is.
        run(&mut south, &[end(1, 1), end(2, 2)]).await;
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 4);
        assert_eq!(north.orders().await.unwrap(), []);
        assert_eq!(world.count("select count(*) from dormouse.orders").await, 0);
        // Three ways to lose one.
        run(&mut south, &[confirm(1, 13, 12, 14), former(2, 2), Operation::EndAll { holder: holder(3) }])
            .await;
        assert_eq!(north.notice().await.unwrap(), Notice::Orders);
        let orders = north.orders().await.unwrap();
        assert_eq!(orders.iter().map(|order| order.lineage).collect::<Vec<_>>(), [name(1), name(2), name(3)]);
        assert_eq!(north.orders().await.unwrap(), orders, "until it has obeyed");
        assert_eq!(south.orders().await.unwrap(), []);
        south.obeyed(&orders).await.unwrap();
        assert_eq!(north.orders().await.unwrap(), orders, "nobody obeys for another");
        // No ticket counts any more, and all sessions go on.
        run(&mut south, &[Operation::EndEvery]).await;
        assert_eq!(north.orders().await.unwrap(), orders);
        north.obeyed(&orders[..1]).await.unwrap();
        assert_eq!(north.orders().await.unwrap(), orders[1..]);
        // South had 1, but ended it itself.
        assert_eq!(south.orders().await.unwrap(), []);
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 0);
    });
}

#[test]
fn what_came_back_is_no_order_any_more() {
    if !possible("what_came_back_is_no_order_any_more") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        run(&mut north, &[insert(1, 1), insert(2, 1)]).await;
        run(&mut south, &[confirm(1, 1, 1, 2), confirm(2, 2, 2, 3)]).await;
        run(&mut north, &[confirm(1, 2, 1, 3)]).await;
        let orders = |orders: Vec<Order>| orders.iter().map(|order| order.lineage).collect::<Vec<_>>();
        assert_eq!(orders(north.orders().await.unwrap()), [name(2)]);
        assert_eq!(orders(south.orders().await.unwrap()), [name(1)]);
        assert_eq!(world.count("select count(*) from dormouse.orders").await, 2, "the stale one is removed");
        // Nor is it one for a gateway that is gone.
        world.admin().await.forget_gateway(&world.name("south")).await.unwrap();
        assert_eq!(world.count("select count(*) from dormouse.orders").await, 1);
        assert_eq!(run(&mut north, &[confirm(2, 3, 2, 4)]).await, [Outcome::Done]);
        assert_eq!(world.count("select count(*) from dormouse.orders").await, 1);
    });
}

/// The acknowledgement of an insertion was lost, so its gateway repeats it.
#[test]
fn a_session_that_another_gateway_has_ended_does_not_come_back_by_a_repeated_insertion() {
    if !possible("a_session_that_another_gateway_has_ended_does_not_come_back_by_a_repeated_insertion") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        run(&mut north, &[insert(1, 1)]).await;
        run(&mut south, &[Operation::EndFormer { lineage: name(1), holder: holder(1) }]).await;
        run(&mut north, &[insert(1, 1), insert(2, 1)]).await;
        assert_eq!(rows(&world).await.iter().map(|row| row.id).collect::<Vec<_>>(), [name(2)]);
        assert_eq!(run(&mut south, &[confirm(1, 1, 1, 2)]).await, [Outcome::Superseded]);
        let orders = north.orders().await.unwrap();
        assert_eq!(orders.iter().map(|order| order.lineage).collect::<Vec<_>>(), [name(1)]);
    });
}

/// Its gateway was cut off, and its client has logged in elsewhere meanwhile and named it.
#[test]
fn a_session_that_has_ended_before_it_was_written_down_does_not_begin() {
    if !possible("a_session_that_has_ended_before_it_was_written_down_does_not_begin") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let former = |id: u64, of: u8| Operation::EndFormer { lineage: name(id), holder: holder(of) };
        run(&mut south, &[former(1, 1), former(2, 9), Operation::EndAll { holder: holder(1) }]).await;
        let began = [1, 2].map(|id| Row { id: name(id), holder: holder(1), tip: name(id), ends: LATER });
        assert_eq!(north.overtaken(&began, &[]).await.unwrap(), [name(1)]);
        run(&mut north, &[insert(1, 1), insert(2, 1)]).await;
        assert_eq!(
            rows(&world).await.iter().map(|row| row.id).collect::<Vec<_>>(),
            [name(2)],
            "2 is another's"
        );
        assert_eq!(run(&mut south, &[confirm(1, 1, 1, 2)]).await, [Outcome::Superseded]);
        // It hears of it as if another had ended it.
        assert_eq!(north.notice().await.unwrap(), Notice::Orders);
        let orders = north.orders().await.unwrap();
        assert_eq!(orders.iter().map(|order| order.lineage).collect::<Vec<_>>(), [name(1)]);
        // Of one who names very many, some are remembered; and none for good.
        let most = u64::try_from(LINEAGES_PER_HOLDER).unwrap();
        for id in 100..110 + most {
            south.run(UnixTime(NOW.0 + id), &[former(id, 3)]).await.unwrap();
        }
        let count = "select count(*) from dormouse.ended where octet_length(holder) = 32";
        assert_eq!(world.count(count).await, i64::try_from(most).unwrap() + 2);
        north.run(UnixTime(NOW.0 + 100), &[insert(110 + most - 1, 3)]).await.unwrap();
        assert_eq!(rows(&world).await.len(), 1, "the last one");
        south.run(LATER + dormouse_ike::limits::ENDED_KEPT, &[former(200, 3)]).await.unwrap();
        assert_eq!(world.count(count).await, 3);
    });
}

#[test]
fn what_expires_goes_without_orders_and_not_by_a_wrong_clock() {
    if !possible("what_expires_goes_without_orders_and_not_by_a_wrong_clock") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let far = UnixTime(10_000_000_000);
        let valid = Operation::Insert(Row {
            id: name(9),
            holder: holder(9),
            tip: name(9),
            ends: UnixTime(far.0 - 1),
        });
        run(&mut north, &[insert(1, 1), insert(2, 2), valid]).await;
        south.run(LATER, &[insert(3, 3)]).await.unwrap();
        assert_eq!(world.count("select count(*) from dormouse.lineage").await, 2);
        south.run(far, &[insert(4, 4)]).await.unwrap();
        let left: Vec<Name> = rows(&world).await.iter().map(|row| row.id).collect();
        assert_eq!(left, [name(4), name(9)], "the database's clock says that 9 counts");
        assert_eq!(north.orders().await.unwrap(), []);
    });
}

/// Two gateways are asked by the same tickets at once.
#[test]
fn a_ticket_is_accepted_once_whoever_asks_at_the_same_time() {
    if !possible("a_ticket_is_accepted_once_whoever_asks_at_the_same_time") {
        return;
    }
    const TICKETS: u64 = 600;
    let world = Arc::new(block(World::new(shared(), None)));
    block(async {
        let mut east = world.join("east").await;
        let rows: Vec<Operation> =
            (0..TICKETS).map(|id| insert(id, u8::try_from(id % 251).unwrap())).collect();
        run(&mut east, &rows).await;
    });
    let start = Arc::new(Barrier::new(2));
    let gateway = |gateway: &'static str, seed: u64| {
        let (world, start) = (world.clone(), start.clone());
        std::thread::spawn(move || {
            block(async {
                let mut database = world.join(gateway).await;
                let mut entropy = Seeded::new(seed);
                let mut left: Vec<u64> = (0..TICKETS).collect();
                let mut won = Vec::new();
                start.wait();
                while !left.is_empty() {
                    let mut batch = Vec::new();
                    for _ in 0..=entropy.below(20) {
                        if !left.is_empty() {
                            let at = usize::try_from(entropy.below(left.len() as u64)).unwrap();
                            batch.push(left.swap_remove(at));
                        }
                    }
                    // Some batches are more than one statement.
                    let mut operations: Vec<Operation> =
                        batch.iter().map(|id| confirm(*id, *id, *id, 1_000 + seed)).collect();
                    if entropy.below(3) == 0 {
                        let other = name(entropy.below(TICKETS));
                        operations
                            .insert(0, Operation::End { sa: None, lineage: other, holder: holder(255) });
                    }
                    let outcomes = run(&mut database, &operations).await;
                    let outcomes = outcomes.iter().skip(operations.len() - batch.len());
                    won.extend(
                        batch.iter().zip(outcomes).filter(|(_, o)| **o == Outcome::Done).map(|(id, _)| *id),
                    );
                }
                (won, database.orders().await.unwrap())
            })
        })
    };
    let (north, south) = (gateway("north", 1), gateway("south", 2));
    let ((mut all, told_north), (won_south, told_south)) = (north.join().unwrap(), south.join().unwrap());
    assert!(!all.is_empty() && !won_south.is_empty(), "they did not meet");
    all.extend(&won_south);
    all.sort_unstable();
    assert_eq!(all, (0..TICKETS).collect::<Vec<_>>(), "each once");
    assert_eq!((told_north, told_south), (Vec::new(), Vec::new()), "a ticket that was refused moves nothing");
    block(async {
        let left = rows(&world).await;
        assert!(
            won_south.iter().all(|id| left.iter().any(|row| row.id == name(*id) && row.tip == name(1_002)))
        );
        let orders = world.count("select count(*) from dormouse.orders").await;
        assert_eq!(orders, i64::try_from(TICKETS).unwrap(), "for the gateway that had them");
    });
}

/// Lineages are locked in one order, whichever way batches name them; and who loses all the same tries again.
#[test]
fn batches_in_opposite_orders_all_come_through() {
    if !possible("batches_in_opposite_orders_all_come_through") {
        return;
    }
    let world = Arc::new(block(World::new(shared(), None)));
    let gateway = |gateway: &'static str, downwards: bool| {
        let world = world.clone();
        std::thread::spawn(move || {
            block(async {
                let mut database = world.join(gateway).await;
                let shared: Vec<Operation> =
                    (0..12).map(|id| insert(id, u8::try_from(id).unwrap())).collect();
                run(&mut database, &shared).await;
                for round in 0..60 {
                    let of = |id: u64| {
                        let fresh = 1_000 + 10_000 * u64::from(downwards) + 100 * id + round;
                        let holder_of = u8::try_from(id).unwrap();
                        let ended = name(fresh - 1);
                        let end = Operation::End { sa: None, lineage: ended, holder: holder(holder_of) };
                        let (lineage, from) = (name(id), name(id));
                        let advance = Operation::Advance { lineage, from, to: from, ends: LATER };
                        let endless = UnixTime(LATER.0 + 100);
                        let row = Row {
                            id: name(fresh),
                            holder: holder(holder_of),
                            tip: name(fresh),
                            ends: endless,
                        };
                        [confirm(id, id, id, id), end, advance, Operation::Insert(row)]
                    };
                    let mut batch: Vec<Operation> = (0..12).flat_map(of).collect();
                    if downwards {
                        batch.reverse();
                    }
                    let outcomes = run(&mut database, &batch).await;
                    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done));
                    let _orders = database.orders().await.unwrap();
                }
            });
        })
    };
    let all = [gateway("north", false), gateway("south", true)];
    all.into_iter().for_each(|gateway| gateway.join().unwrap());
    assert!(block(world.count("select count(*) from dormouse.lineage")) >= 12);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(block(world.count(deadlocks)), 0);
}

/// A notice that is not waited for to the end is not lost.
#[test]
fn notices_survive_being_dropped_while_waiting() {
    if !possible("notices_survive_being_dropped_while_waiting") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        run(&mut north, &[insert(1, 1)]).await;
        for _ in 0..3 {
            assert!(tokio::time::timeout(Duration::from_millis(1), north.notice()).await.is_err());
        }
        run(&mut south, &[confirm(1, 1, 1, 2)]).await;
        // Something else is done in between, in which the notice arrives.
        assert_eq!(north.orders().await.unwrap().len(), 1);
        assert_eq!(north.notice().await.unwrap(), Notice::Orders);
        assert!(
            tokio::time::timeout(Duration::from_millis(50), south.notice()).await.is_err(),
            "not one's own"
        );
    });
}

#[test]
fn what_began_without_the_database_is_over_if_its_holder_came_elsewhere_later() {
    if !possible("what_began_without_the_database_is_over_if_its_holder_came_elsewhere_later") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut first, mut second) = (world.join("first").await, world.join("second").await);
        let row = |id: u64, of: u8, ends: u64| Row {
            id: name(id),
            holder: holder(of),
            tip: name(id),
            ends: UnixTime(LATER.0 + ends),
        };
        let there =
            [(1, 1, 10), (2, 2, 10), (3, 3, 10)].map(|(id, of, ends)| Operation::Insert(row(id, of, ends)));
        run(&mut second, &there).await;
        run(&mut first, &[Operation::Insert(row(4, 4, 10))]).await;
        // Before the other one, at the same time, afterwards; and before one of this gateway's own.
        let began = [row(11, 1, 9), row(12, 2, 10), row(13, 3, 11), row(14, 4, 9)];
        assert_eq!(first.overtaken(&began, &[]).await.unwrap(), [name(11)]);
        // What it took the place of does not overtake it, however often it was used since.
        assert_eq!(first.overtaken(&began, &[name(1)]).await.unwrap(), []);
        assert_eq!(first.overtaken(&[], &[]).await.unwrap(), []);
    });
}
