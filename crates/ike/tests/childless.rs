//! IKE SAs that begin without a CHILD SA (RFC 6023), which follows in CREATE_CHILD_SA: at the wish of either end.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Pair, client_psk, gateway_psk};
use dormouse_ike::config::{Childless, SelectorSpec};
use dormouse_ike::{Event, Kind, NegotiationError};
use dormouse_wire::ike::{Message, NotifyType, Payload};

use Childless::{Allow, Force, Never, Prefer};

fn pair_of(seed: u64, client: Childless, gateway: Childless) -> Pair {
    let (mut conn, mut answering) = (client_psk(), gateway_psk());
    conn.opening.childless = client;
    answering.opening.childless = gateway;
    Pair::new(conn, answering, seed)
}

/// What has failed at the client: the attempt, or a CHILD SA.
fn child_failure(pair: &mut Pair) -> Option<String> {
    pair.client.take(|e| match e {
        Event::ChildFailed { error, .. } => Some(error.to_string()),
        _ => None,
    })
}

fn announced(pair: &Pair) -> bool {
    let answer = pair.log.iter().find(|d| !d.to_gateway).expect("an answer");
    let message = Message::parse(&answer.bytes).expect("in clear");
    message
        .payloads
        .iter()
        .any(|p| matches!(p, Payload::Notify(n) if n.kind == NotifyType::ChildlessIkev2Supported))
}

#[test]
fn both_ends_decide() {
    for (n, (client, gateway, created)) in [
        (Allow, Allow, false),
        (Never, Allow, false),
        (Prefer, Allow, true),
        (Prefer, Force, true),
        (Prefer, Never, false),
        (Force, Allow, true),
        (Force, Prefer, true),
        (Allow, Prefer, false),
        (Never, Never, false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut pair = pair_of(n as u64, client, gateway);
        let (sa, _) = pair.up();
        assert_eq!(announced(&pair), gateway != Never, "{client:?} {gateway:?}");
        assert_eq!(
            (pair.client.children.len(), pair.gateway.children.len()),
            (1, 1),
            "{client:?} {gateway:?}"
        );
        pair.assert_agree();
        let begun = &pair.client.endpoint.sa_stats(sa).expect("it is there").begun;
        assert_eq!(begun.contains_key(&Kind::CreateChild), created, "{client:?} {gateway:?}");
        let child = pair.client.children.values().next().expect("one");
        assert_eq!(child.ts_local[0].start.to_string(), "10.9.0.2", "the address of the pool");
    }
}

#[test]
fn where_the_ends_differ_the_error_says_so() {
    let mut pair = pair_of(20, Force, Never);
    pair.connect();
    pair.run_for(Duration::from_secs(10));
    let error = pair.client.failure().expect("it failed");
    assert!(matches!(error, NegotiationError::Childless), "{error}");
    assert!(error.to_string().contains("ike.childless"), "{error}");
    assert!(pair.gateway.established().is_none());
    for client in [Allow, Never] {
        let mut pair = pair_of(21, client, Force);
        pair.connect();
        pair.run_for(Duration::from_secs(10));
        assert!(pair.client.failure().is_some() && pair.client.established().is_none());
        let error = pair.gateway.peer_failure().expect("refused").to_string();
        assert!(error.contains("ike.childless = \"force\""), "{error}");
        assert!(pair.gateway.children.is_empty());
    }
}

/// The gateway's refusal of the CHILD SA comes after the IKE SA: the client hears of it all the same, and asks less and less often.
#[test]
fn a_child_that_is_refused_afterwards_is_reported() {
    let mut pair = pair_of(30, Force, Allow);
    let mut conn = (*pair.conn).clone();
    conn.children[0].ts_local = vec![SelectorSpec::Net("10.77.0.0/16".parse().expect("a prefix"))];
    pair.conn = Arc::new(conn);
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_some());
    let error = child_failure(&mut pair).expect("refused");
    assert!(error.contains("traffic selectors"), "{error}");
    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
}

#[test]
fn who_has_no_address_of_the_pool_gets_no_child() {
    let mut pair = pair_of(31, Force, Allow);
    let mut conn = (*pair.conn).clone();
    (conn.request.v4, conn.request.dns) = (false, false);
    pair.conn = Arc::new(conn);
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_some(), "nothing is wrong with the IKE SA");
    let error = child_failure(&mut pair).expect("refused");
    assert!(error.contains("CFG_REQUEST"), "{error}");
    assert!(pair.gateway.children.is_empty());
}

/// What is agreed on survives a resumption in either form, at once.
#[test]
fn a_ticket_brings_the_child_back_at_once() {
    for dormancy in [true, false] {
        let mut pair = pair_of(32, Force, Force);
        let mut conn = (*pair.conn).clone();
        conn.dormancy = dormancy;
        pair.conn = Arc::new(conn);
        let (sa, _) = pair.up();
        let ticket = pair.client.ticket.take().expect("a ticket");
        pair.client.endpoint.forget(pair.now, sa);
        let (conn, path) = (pair.conn.clone(), pair.default_path());
        let sa = pair.client.endpoint.resume(pair.now, conn, ticket, path);
        pair.run_for(Duration::from_secs(5));
        assert!(pair.client.established().is_some_and(|e| e.resumed), "dormancy {dormancy}");
        assert_eq!(pair.client.children.len(), 1, "dormancy {dormancy}");
        pair.assert_agree();
        let begun = &pair.client.endpoint.sa_stats(sa).expect("it is there").begun;
        assert!(!begun.contains_key(&Kind::CreateChild), "dormancy {dormancy}");
    }
}

#[test]
fn loss_does_not_hinder() {
    for seed in common::seeds(20) {
        let mut pair = pair_of(100 + seed, Force, Force);
        pair.faults = Some(common::Faults {
            seed: dormouse_sansio::Seeded::new(seed),
            lost: 20,
            doubled: 10,
            late: 10,
        });
        pair.connect();
        pair.run_for(Duration::from_secs(60));
        pair.faults = None;
        pair.run_for(Duration::from_secs(60));
        if pair.client.failure().is_none() {
            assert_eq!(pair.client.children.len(), 1, "seed {seed}");
            pair.assert_agree();
        }
    }
}
