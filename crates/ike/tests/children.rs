//! Several CHILD SAs for one connection: made one after the other, matched by their selectors, and each with a life of its own.

mod common;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use common::{Pair, client_psk, gateway_config, gateway_psk, zones_of};
use dormouse_ike::config::{
    ChildConfig, Connection, Lifetime, SelectorSpec, ZonePolicy, authenticated_esp_proposals,
};
use dormouse_ike::{CloseReason, EndpointConfig, Kind};
use dormouse_keying::{ChildId, Marks, Share};

/// What lies behind the gateway: networks within each other, so that the first one would cover them all.
const BEHIND: [&str; 3] = ["10.0.0.0/8", "10.2.0.0/16", "10.2.3.0/24"];

fn with_children(conn: &mut Connection, is_client: bool) {
    let child = |(n, net): (usize, &&str)| {
        let there = vec![SelectorSpec::Net(net.parse().expect("a prefix"))];
        let own = vec![SelectorSpec::Dynamic];
        let (ts_local, ts_remote) = if is_client { (own, there) } else { (there, own) };
        ChildConfig { name: format!("net{n}"), ts_local, ts_remote, ..ChildConfig::default() }
    };
    conn.children = BEHIND.iter().enumerate().map(child).collect();
}

fn ends(change: impl Fn(&mut Connection)) -> (Connection, Connection) {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    with_children(&mut client, true);
    with_children(&mut gateway, false);
    [&mut client, &mut gateway].into_iter().for_each(change);
    (client, gateway)
}

fn pair_of(seed: u64, change: impl Fn(&mut Connection)) -> Pair {
    let (client, gateway) = ends(change);
    Pair::new(client, gateway, seed)
}

/// The first addresses of what the client reaches, and how long the prefixes are.
fn reached(pair: &Pair) -> BTreeSet<String> {
    let show = |ts: &dormouse_wire::ike::TsRange| format!("{}-{}", ts.start, ts.end);
    pair.client.children.values().map(|c| c.ts_remote.iter().map(show).collect()).collect()
}

fn everything() -> BTreeSet<String> {
    let all = ["10.0.0.0-10.255.255.255", "10.2.0.0-10.2.255.255", "10.2.3.0-10.2.3.255"];
    all.map(str::to_owned).into()
}

/// The client's name of the CHILD SA that leads to the network beginning with `start`.
fn leading_to(pair: &Pair, start: &str) -> dormouse_keying::ChildId {
    let leads = |c: &&dormouse_keying::Install| {
        c.ts_remote[0].start.to_string() == start && c.ts_remote[0].end.to_string() != "10.255.255.255"
    };
    pair.client.children.values().find(leads).expect("it is up").child
}

#[test]
fn each_is_made_and_matched_by_its_selectors() {
    let mut pair = pair_of(1, |_| {});
    let (a, _) = pair.up();
    assert_eq!(reached(&pair), everything());
    let begun = &pair.client.endpoint.sa_stats(a).expect("it is there").begun;
    assert_eq!((begun[&Kind::Auth], begun[&Kind::CreateChild]), (1, 2));
}

#[test]
fn one_that_the_peer_has_no_time_for_is_asked_for_again() {
    let mut pair = pair_of(2, |_| {});
    let (a, b) = pair.up();
    let child = leading_to(&pair, "10.2.3.0");
    pair.client.endpoint.delete_child(pair.now, child);
    pair.settle();
    // The gateway is rekeying the IKE SA, and its request is on its way for two seconds.
    pair.filter = Some(Box::new(|d| d.to_gateway || d.bytes.get(4 + 19).is_some_and(|f| f & 0x20 != 0)));
    pair.gateway.endpoint.rekey_ike(pair.now, b);
    pair.client.endpoint.create_child(pair.now, a, 2);
    pair.run_for(Duration::from_millis(500));
    assert_eq!(pair.client.children.len(), 2, "refused");
    pair.filter = None;
    pair.run_for(Duration::from_secs(20));
    assert_eq!(reached(&pair), everything());
    pair.assert_agree();
}

#[test]
fn each_is_rekeyed_and_deleted_on_its_own() {
    let mut pair = pair_of(3, |_| {});
    let (a, _) = pair.up();
    let all: BTreeSet<_> = pair.client.children.keys().copied().collect();
    let child = leading_to(&pair, "10.2.0.0");
    pair.client.endpoint.rekey_child(pair.now, child);
    pair.settle();
    pair.assert_agree();
    let now: BTreeSet<_> = pair.client.children.keys().copied().collect();
    assert_eq!((all.difference(&now).count(), reached(&pair)), (1, everything()));
    let child = leading_to(&pair, "10.2.0.0");
    pair.client.endpoint.delete_child(pair.now, child);
    pair.settle();
    assert_eq!((pair.client.children.len(), pair.gateway.children.len()), (2, 2));
    assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
    pair.client.endpoint.create_child(pair.now, a, 1);
    pair.settle();
    assert_eq!(reached(&pair), everything());
}

#[test]
fn all_are_rekeyed_by_their_timers() {
    let mut pair = pair_of(4, |conn| {
        for child in &mut conn.children {
            child.lifetime = Lifetime::of_time(Duration::from_secs(600));
        }
    });
    pair.up();
    let first: BTreeSet<_> = pair.client.children.keys().copied().collect();
    pair.run_for(Duration::from_secs(3_600));
    pair.assert_agree();
    assert_eq!(reached(&pair), everything());
    assert!(pair.client.children.keys().all(|child| !first.contains(child)));
}

#[test]
fn all_come_back_by_a_ticket_in_both_forms() {
    for dormancy in [true, false] {
        let mut pair = pair_of(5, |conn| conn.dormancy = dormancy);
        let (a, _) = pair.up();
        let ticket = pair.client.ticket.take().expect("a ticket");
        assert_eq!(ticket.child.is_some(), dormancy);
        pair.client.endpoint.forget(pair.now, a);
        let (conn, path) = (pair.conn.clone(), pair.default_path());
        let sa = pair.client.endpoint.resume(pair.now, conn, ticket, path);
        pair.run_for(Duration::from_secs(5));
        assert!(pair.client.established().is_some_and(|e| e.resumed));
        assert_eq!(reached(&pair), everything(), "dormancy {dormancy}");
        pair.assert_agree();
        let begun = &pair.client.endpoint.sa_stats(sa).expect("it is there").begun;
        assert_eq!((begun.get(&Kind::Auth).is_none(), begun[&Kind::CreateChild]), (dormancy, 2));
    }
}

#[test]
fn a_reauthentication_leaves_none_out_for_a_moment() {
    let (mut client, gateway) = ends(|_| {});
    client.timing.reauthenticate = Some(Duration::from_secs(600));
    let mut pair = Pair::new(client, gateway, 6);
    let (a, _) = pair.up();
    pair.run_for(Duration::from_secs(580));
    let mut replaced = false;
    for _ in 0..2_000 {
        pair.run_for(Duration::from_millis(50));
        if let Some(new) = pair.client.established() {
            assert_ne!(new.sa, a);
            // What a driver says when it goes over to the new session.
            assert!(pair.client.endpoint.supersede(pair.now, a));
            pair.flush();
            replaced = true;
        }
        assert_eq!(reached(&pair), everything());
    }
    assert!(replaced && pair.client.closed == [(a, CloseReason::Replaced)]);
    assert_eq!((pair.client.children.len(), pair.gateway.children.len()), (3, 3));
    pair.assert_agree();
}

#[test]
fn one_that_the_gateway_refuses_is_asked_for_less_and_less_often() {
    let (mut client, gateway) = ends(|_| {});
    client.children[2].ts_remote = vec![SelectorSpec::Net("172.16.0.0/12".parse().expect("a prefix"))];
    let mut pair = Pair::new(client, gateway, 7);
    let (a, _) = pair.up();
    pair.run_for(Duration::from_secs(3_600));
    let begun = &pair.client.endpoint.sa_stats(a).expect("it is there").begun;
    // At once, and after 10, 20, 40, ... 1,280 s more; besides the one that is granted.
    assert_eq!((pair.client.children.len(), begun[&Kind::CreateChild]), (2, 9 + 1));
    pair.assert_agree();
}

#[test]
fn those_that_the_gateway_deletes_are_made_again() {
    let mut pair = pair_of(8, |_| {});
    pair.up();
    for id in pair.gateway.children.keys().copied().collect::<Vec<_>>() {
        pair.gateway.endpoint.delete_child(pair.now, id);
    }
    pair.settle();
    assert!(pair.client.children.is_empty() && pair.client.closed.is_empty());
    pair.run_for(Duration::from_secs(60));
    assert_eq!(reached(&pair), everything());
    pair.assert_agree();
}

#[test]
fn a_ticket_of_a_gateway_that_has_one_child_for_all_brings_back_the_first() {
    for seed in 10..16 {
        let (client, mut gateway) = ends(|_| {});
        gateway.children.truncate(1);
        let mut pair = Pair::new(client, gateway, seed);
        let (a, _) = pair.up();
        pair.client.endpoint.rekey_ike(pair.now, a);
        pair.run_for(Duration::from_secs(5));
        // Given when all of them were there.
        let ticket = pair.client.ticket.take().expect("a ticket");
        pair.client.endpoint.forget(pair.now, a);
        let (conn, path) = (pair.conn.clone(), pair.default_path());
        pair.client.endpoint.resume(pair.now, conn, ticket, path);
        pair.run_for(Duration::from_secs(5));
        for id in pair.client.children.keys().copied().collect::<Vec<_>>() {
            pair.client.endpoint.rekey_child(pair.now, id);
        }
        pair.settle();
        assert_eq!(reached(&pair), everything(), "seed {seed}");
        pair.assert_agree();
    }
}

/// A client asks for what the gateway has deleted, but not for what a rekeying has brought meanwhile.
#[test]
fn a_rekeying_whose_answer_comes_after_the_delete_leaves_one() {
    let mut pair = Pair::new(client_psk(), gateway_psk(), 9);
    pair.up();
    let old = |side: &common::Side| *side.children.keys().next().expect("one");
    let (child_a, child_b) = (old(&pair.client), old(&pair.gateway));
    // 36, with the flag of a response, behind the marker.
    pair.filter = Some(Box::new(|d| d.to_gateway || d.bytes[22] != 36 || d.bytes[23] & 0x20 == 0));
    pair.client.endpoint.rekey_child(pair.now, child_a);
    pair.run_for(Duration::from_millis(200));
    pair.gateway.endpoint.delete_child(pair.now, child_b);
    pair.run_for(Duration::from_millis(200));
    pair.filter = None;
    pair.run_for(Duration::from_secs(60));
    assert_eq!((pair.client.children.len(), pair.gateway.children.len()), (1, 1));
    pair.assert_agree();
}

/// A whole child, one in zones and another whole one, all with the same selectors: the gateway tells them apart by zones, and then by those that
/// are there.
#[test]
fn children_with_the_same_selectors_are_told_apart() {
    let shares =
        [Share::Rest, Share::Every(NonZeroU32::MIN), Share::Marked(Marks::new(&[46]).expect("a mark"))];
    let with = |conn: &mut Connection, order: [usize; 3]| {
        let child = conn.children[0].clone();
        conn.children = order
            .map(|n| ChildConfig {
                name: format!("net{n}"),
                zones: (n == 1).then(ZonePolicy::default),
                share: shares[n],
                ..child.clone()
            })
            .to_vec();
    };
    for (seed, order) in [[0, 1, 2], [1, 2, 0], [2, 0, 1]].into_iter().enumerate() {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        with(&mut client, order);
        with(&mut gateway, [0, 1, 2]);
        // An offer of zones that a whole child would take too.
        client.children.iter_mut().flat_map(|c| &mut c.zones).for_each(|zones| zones.required = false);
        let mut pair = Pair::new(client, gateway, 20 + seed as u64);
        pair.up();
        for rekeyed in [false, true] {
            pair.assert_agree();
            assert_eq!(
                (pair.client.children.len(), pair.gateway.children.len()),
                (3, 3),
                "{order:?} {rekeyed}"
            );
            let zoned = pair.client.children.values().filter(|c| zones_of(c, false).is_some());
            assert_eq!(zoned.map(|c| c.share).collect::<Vec<_>>(), [shares[1]]);
            for child in pair.client.children.values() {
                let theirs = &pair.gateway.children[&dormouse_keying::ChildId::new(child.spi_out)];
                let is_zoned = zones_of(child, false).is_some();
                assert_eq!(
                    is_zoned,
                    theirs.share == shares[1],
                    "{order:?}: {:?} {:?}",
                    child.share,
                    theirs.share
                );
            }
            for side in [&pair.client, &pair.gateway] {
                let mut there: Vec<_> = side.children.values().map(|c| c.share.to_string()).collect();
                there.sort();
                assert_eq!(there, ["1 packet in 1", "packets marked 46", "the rest"], "{order:?} {rekeyed}");
            }
            let all: Vec<_> = pair.client.children.keys().copied().collect();
            for child in all {
                assert!(pair.client.endpoint.rekey_child(pair.now, child));
                pair.settle();
            }
        }
    }
}

/// Whole children with the same selectors, asked for at once, each with a second key exchange: while the first one's goes on the gateway takes
/// the next offer for the next child.
#[test]
fn children_that_wait_for_their_key_exchanges_count_as_there() {
    let shares =
        [Share::Rest, Share::Every(NonZeroU32::MIN), Share::Marked(Marks::new(&[46]).expect("a mark"))];
    let (client, gateway) = ends(|conn| {
        let child = ChildConfig {
            proposals: vec!["aes128gcm16-x25519-ke1_mlkem768".parse().expect("a proposal")],
            ..conn.children[0].clone()
        };
        let of = |share| ChildConfig { name: format!("{share}"), share, ..child.clone() };
        conn.children = shares.map(of).to_vec();
    });
    let gateway = EndpointConfig { window: 4, ..gateway_config(gateway, 30) };
    let mut pair = Pair::with_configs(client, EndpointConfig::default(), gateway, 30);
    let (a, _) = pair.up();
    let begun = &pair.client.endpoint.sa_stats(a).expect("it is there").begun;
    assert_eq!((begun[&Kind::CreateChild], begun[&Kind::FollowUp]), (2, 2));
    for side in [&pair.client, &pair.gateway] {
        let mut there: Vec<_> = side.children.values().map(|c| c.share.to_string()).collect();
        there.sort();
        assert_eq!(there, ["1 packet in 1", "packets marked 46", "the rest"]);
    }
    pair.assert_agree();
}

/// A connection with a CHILD SA for everything, and one for the same in clear if `clear`.
fn with_clear(mut conn: Connection, clear: bool) -> Connection {
    let whole = conn.children[0].clone();
    conn.children = vec![whole.clone()];
    if clear {
        let share = Share::Marked(Marks::new(&[10]).expect("a mark"));
        let proposals = authenticated_esp_proposals();
        conn.children.push(ChildConfig { name: "clear".to_owned(), proposals, share, ..whole });
    }
    conn
}

/// The CHILD SAs of each end that are not encrypted, and how many there are.
fn in_clear(pair: &Pair) -> [(Vec<ChildId>, usize); 2] {
    [&pair.client, &pair.gateway].map(|side| {
        let clear = side.children.values().filter(|child| !child.encr.encrypts()).map(|child| child.child);
        (clear.collect(), side.children.len())
    })
}

#[test]
fn one_in_clear_takes_both_ends() {
    for (seed, (client, gateway)) in [(true, true), (true, false), (false, true)].into_iter().enumerate() {
        for first in [false, true] {
            let client_conn = with_clear(client_psk(), client);
            let mut gateway_conn = with_clear(gateway_psk(), gateway);
            if first {
                // Whichever the gateway would take first.
                gateway_conn.children.reverse();
            }
            let mut pair = Pair::new(client_conn, gateway_conn, 40 + 2 * seed as u64 + u64::from(first));
            pair.up();
            pair.run_for(Duration::from_secs(60));
            let clear = usize::from(client && gateway);
            for rekeyed in [false, true] {
                pair.assert_agree();
                for (there, all) in in_clear(&pair) {
                    assert_eq!((there.len(), all), (clear, 1 + clear), "{client} {gateway} {rekeyed}");
                }
                for child in pair.client.children.keys().copied().collect::<Vec<_>>() {
                    assert!(pair.client.endpoint.rekey_child(pair.now, child));
                    pair.settle();
                }
            }
            for side in [&pair.client, &pair.gateway] {
                assert!(side.children.values().all(|child| child.share.is_rest() == child.encr.encrypts()));
                assert!(side.closed.is_empty());
            }
        }
    }
}

/// The client's configuration offers in clear what is encrypted: the gateway keeps what there is.
#[test]
fn new_keys_do_not_bring_a_child_into_the_clear() {
    let allowed = with_clear(client_psk(), true);
    let mut pair = Pair::new(allowed.clone(), with_clear(gateway_psk(), true), 50);
    pair.up();
    let [(clear, 2), _] = in_clear(&pair) else { panic!("two") };
    let whole = pair.client.children.keys().copied().find(|child| !clear.contains(child)).expect("one");
    let mut down = allowed;
    down.children[0].proposals = authenticated_esp_proposals();
    pair.client.endpoint.reconfigure(pair.now, Vec::new(), &[Arc::new(down)]);
    assert!(pair.client.endpoint.rekey_child(pair.now, whole));
    pair.run_for(Duration::from_secs(5));
    assert!(pair.client.children.contains_key(&whole), "the old one serves on");
    assert_eq!(in_clear(&pair).map(|(clear, all)| (clear.len(), all)), [(1, 2), (1, 2)]);
}

/// The gateway's operator takes it back.
#[test]
fn one_in_clear_ends_when_it_is_no_longer_allowed() {
    for keeps_the_name in [false, true] {
        let allowed = with_clear(gateway_psk(), true);
        let mut pair = Pair::new(with_clear(client_psk(), true), allowed.clone(), 51);
        pair.up();
        pair.gateway.endpoint.reconfigure(pair.now, vec![Arc::new(allowed.clone())], &[]);
        pair.settle();
        assert_eq!(in_clear(&pair).map(|(clear, _)| clear.len()), [1, 1], "as it was");
        let mut down = with_clear(gateway_psk(), keeps_the_name);
        if keeps_the_name {
            down.children[1].proposals = down.children[0].proposals.clone();
        }
        pair.gateway.endpoint.reconfigure(pair.now, vec![Arc::new(down)], &[]);
        pair.settle();
        let why: Vec<_> = pair.gateway.closed.iter().map(|(_, why)| *why).collect();
        assert_eq!(why, [CloseReason::Reconfigured]);
        assert!(pair.gateway.children.is_empty() && pair.client.children.is_empty());
    }
}
