//! Which identity has which addresses, and whom an administrator has refused.

use crate::support::{LATER, NOW, World, block, name, possible, run, shared};
use dormouse_cluster::{Database, Denial, Lease, LeaseChange, LeaseKey, LeaseNews, Notice, Written};
use dormouse_crypto::cert::Identity;
use dormouse_ike::ticket::lineage::{Operation, Row, TicketHolder};
use dormouse_sansio::{Entropy, Seeded, UnixTime};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Barrier};

fn key(user: &str, device: u32) -> LeaseKey {
    LeaseKey { connection: "staff".into(), identity: (2, user.as_bytes().to_vec()), device }
}

fn v4(n: u8) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::new(10, 9, 0, n))
}

fn lease(user: &str, n: u8) -> LeaseChange {
    LeaseChange::Lease { holder: key(user, 0), v4: v4(n), v6: None }
}

fn evict(user: &str) -> LeaseChange {
    LeaseChange::Evict { holder: key(user, 0) }
}

async fn write(database: &mut Database, changes: &[LeaseChange]) -> Vec<Written> {
    database.write_leases(NOW, changes).await.unwrap()
}

async fn held(database: &mut Database) -> Vec<(String, u32, Option<Ipv4Addr>)> {
    let leases = database.leases().await.unwrap();
    let mut held: Vec<_> = leases
        .into_iter()
        .map(|l| (String::from_utf8(l.holder.identity.1).unwrap(), l.holder.device, l.v4))
        .collect();
    held.sort();
    held
}

#[test]
fn an_address_is_one_holders_and_changes_come_in_their_order() {
    if !possible("an_address_is_one_holders_and_changes_come_in_their_order") {
        return;
    }
    block(async {
        use Written::{Done, Refused};
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let both = LeaseChange::Lease { holder: key("b", 1), v4: v4(2), v6: Some(Ipv6Addr::LOCALHOST) };
        assert_eq!(write(&mut north, &[lease("a", 1), both]).await, [Done, Done]);
        // Another's, in either family; its own device's too.
        let taken6 = LeaseChange::Lease { holder: key("c", 0), v4: v4(3), v6: Some(Ipv6Addr::LOCALHOST) };
        let sibling = LeaseChange::Lease { holder: key("a", 7), v4: v4(1), v6: None };
        let refused = write(&mut south, &[lease("c", 1), taken6, sibling, lease("d", 4)]).await;
        assert_eq!(refused, [Refused, Refused, Refused, Done]);
        let expected = |rows: &[(&str, u32, Option<Ipv4Addr>)]| -> Vec<_> {
            rows.iter().map(|(user, device, v4)| ((*user).to_owned(), *device, *v4)).collect()
        };
        assert_eq!(held(&mut north).await, expected(&[("a", 0, v4(1)), ("b", 1, v4(2)), ("d", 0, v4(4))]));
        // The same holder at another gateway has what it says there; what it leaves is free at once.
        assert_eq!(write(&mut south, &[lease("a", 9), lease("c", 1)]).await, [Done, Done]);
        // Order counts: refused before it is free, done after.
        let changes =
            [lease("e", 9), evict("a"), lease("e", 9), lease("e", 10), lease("f", 9), evict("nobody")];
        assert_eq!(write(&mut north, &changes).await, [Refused, Done, Done, Done, Done, Done]);
        let now = [("b", 1, v4(2)), ("c", 0, v4(1)), ("d", 0, v4(4)), ("e", 0, v4(10)), ("f", 0, v4(9))];
        assert_eq!(held(&mut south).await, expected(&now));
        let lease = south.leases().await.unwrap().into_iter().find(|l| l.holder == key("b", 1)).unwrap();
        let (v4, v6) = (v4(2), Some(Ipv6Addr::LOCALHOST));
        assert_eq!(lease, Lease { holder: key("b", 1), v4, v6, used: NOW, gateway: world.name("north") });
        // What is no identity has no addresses.
        let nobody = LeaseKey { connection: "staff".into(), identity: (1, vec![1]), device: 0 };
        let changes = [LeaseChange::Lease { holder: nobody, v4: self::v4(40), v6: None }];
        assert_eq!(write(&mut north, &changes).await, [Refused]);
        assert_eq!(write(&mut north, &[]).await, []);
    });
}

#[test]
fn who_has_a_session_elsewhere_is_not_evicted() {
    if !possible("who_has_a_session_elsewhere_is_not_evicted") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        write(&mut north, &[lease("a.example", 1)]).await;
        // The identity in another spelling: the holder is the same.
        let holder = TicketHolder::of("staff", &Identity::Fqdn("A.example".into()));
        run(&mut north, &[Operation::Insert(Row { id: name(1), holder, tip: name(1), ends: LATER })]).await;
        assert_eq!(write(&mut south, &[evict("a.example"), lease("b", 1)]).await, [Written::Refused; 2]);
        // Its own gateway may, and anybody once the session's tickets have expired.
        let late = south.write_leases(LATER, &[evict("a.example")]).await.unwrap();
        assert_eq!(late, [Written::Done]);
        write(&mut north, &[lease("a.example", 1)]).await;
        assert_eq!(write(&mut north, &[evict("a.example")]).await, [Written::Done]);
        assert_eq!(north.leases().await.unwrap(), []);
    });
}

#[test]
fn others_hear_of_leases_and_oneself_does_not() {
    if !possible("others_hear_of_leases_and_oneself_does_not") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        // Bytes that nothing makes shorter.
        let random = |length: usize| {
            let mut data = vec![0; length];
            Seeded::new(1).fill(&mut data);
            LeaseKey { connection: "staff".into(), identity: (11, data), device: 0 }
        };
        let large = random(2_000);
        let too_large = LeaseChange::Lease { holder: random(4_000), v4: v4(3), v6: None };
        assert_eq!(write(&mut north, &[too_large]).await, [Written::Refused]);
        write(&mut north, &[lease("a", 1), lease("refused", 1), evict("a")]).await;
        let gateway = world.name("north");
        let a = Lease { holder: key("a", 0), v4: v4(1), v6: None, used: NOW, gateway };
        assert_eq!(south.notice().await.unwrap(), Notice::Lease(LeaseNews::Lease(a)));
        assert_eq!(south.notice().await.unwrap(), Notice::Lease(LeaseNews::Evict(key("a", 0))));
        write(&mut north, &[LeaseChange::Lease { holder: large.clone(), v4: v4(2), v6: None }]).await;
        let heard = south.notice().await.unwrap();
        assert!(matches!(heard, Notice::Lease(LeaseNews::Lease(lease)) if lease.holder == large));
        assert_eq!(south.leases().await.unwrap().first().map(|l| l.holder.clone()), Some(large));
        let raw = world.raw().await;
        raw.batch_execute("notify dormouse_leases, 'x'").await.unwrap();
        assert_eq!(south.notice().await.unwrap(), Notice::Lease(LeaseNews::ReadAll), "hostile");
        assert_eq!(north.notice().await.unwrap(), Notice::Lease(LeaseNews::ReadAll), "and nothing before it");
    });
}

/// Else north would go on with what south had written before it.
#[test]
fn what_one_writes_oneself_outdates_what_was_not_read_yet() {
    if !possible("what_one_writes_oneself_outdates_what_was_not_read_yet") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        write(&mut south, &[lease("a", 1), lease("b", 2), evict("b")]).await;
        write(&mut north, &[lease("a", 3), lease("b", 4)]).await;
        write(&mut south, &[lease("c", 5)]).await;
        let heard = north.notice().await.unwrap();
        assert!(
            matches!(&heard, Notice::Lease(LeaseNews::Lease(lease)) if lease.holder == key("c", 0)),
            "{heard:?}"
        );
        for (name, address) in [("a", 3), ("b", 4)] {
            let heard = south.notice().await.unwrap();
            assert!(
                matches!(&heard, Notice::Lease(LeaseNews::Lease(lease)) if lease.holder == key(name, 0) && lease.v4 == v4(address)),
                "{heard:?}"
            );
        }
    });
}

#[test]
fn two_gateways_that_give_the_same_addresses_share_them_out() {
    if !possible("two_gateways_that_give_the_same_addresses_share_them_out") {
        return;
    }
    let world = Arc::new(block(World::new(shared(), None)));
    let start = Arc::new(Barrier::new(2));
    let gateway = |gateway: &'static str, downwards: bool| {
        let (world, start) = (world.clone(), start.clone());
        std::thread::spawn(move || {
            block(async {
                let mut database = world.join(gateway).await;
                start.wait();
                let mut won = Vec::new();
                for batch in 0..10_u8 {
                    let mut numbers: Vec<u8> = (batch * 20..batch * 20 + 20).collect();
                    if downwards {
                        numbers.reverse();
                    }
                    let changes: Vec<LeaseChange> =
                        numbers.iter().map(|n| lease(&format!("{gateway}{n}"), *n)).collect();
                    let written = write(&mut database, &changes).await;
                    won.extend(
                        numbers.iter().zip(written).filter(|(_, w)| *w == Written::Done).map(|(n, _)| *n),
                    );
                }
                won
            })
        })
    };
    let (north, south) = (gateway("north", false), gateway("south", true));
    let mut all = [north.join().unwrap(), south.join().unwrap()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..200).collect::<Vec<u8>>(), "each once");
    assert_eq!(block(world.count("select count(distinct v4) from dormouse.lease")), 200);
}

#[test]
fn denials_are_everybodys() {
    if !possible("denials_are_everybodys") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let denial = |whom: &str, since: u64| Denial { whom: whom.into(), since: UnixTime(since) };
        assert!(north.deny(&denial("eve'; drop table x", 7)).await.unwrap());
        assert_eq!(south.notice().await.unwrap(), Notice::Denials);
        assert!(!south.deny(&denial("eve'; drop table x", 9)).await.unwrap(), "stays as it is");
        assert!(south.deny(&denial("mallory", 5)).await.unwrap());
        assert_eq!(north.notice().await.unwrap(), Notice::Denials);
        let all = [denial("mallory", 5), denial("eve'; drop table x", 7)];
        assert_eq!(north.denials().await.unwrap(), all);
        assert!(north.allow("mallory").await.unwrap());
        assert_eq!(south.notice().await.unwrap(), Notice::Denials);
        assert!(!north.allow("mallory").await.unwrap());
        assert_eq!(south.denials().await.unwrap(), all[1..]);
        assert!(north.deny(&denial(&"x".repeat(3_000), 1)).await.is_err());
        assert!(north.deny(&denial("a\0b", 1)).await.is_err());
    });
}
