//! Deleting SAs from either side (RFC 7296 section 1.4.1).

mod common;

use common::Pair;
use dormouse_ike::CloseReason;

#[test]
fn the_client_closes() {
    let mut pair = Pair::psk(1);
    let (a, b) = pair.up();
    assert!(pair.client.endpoint.close(pair.now, a));
    pair.flush();
    assert!(pair.client.children.is_empty(), "no traffic from the first moment on");
    pair.settle();
    assert_eq!(pair.client.closed, [(a, CloseReason::Requested)]);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::ByPeer)]);
    assert!(pair.gateway.children.is_empty());
    assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
    assert!(!pair.client.endpoint.close(pair.now, a), "it is gone");
}

#[test]
fn the_gateway_closes() {
    let mut pair = Pair::psk(2);
    let (a, b) = pair.up();
    pair.gateway.endpoint.close(pair.now, b);
    pair.settle();
    assert_eq!(pair.client.closed, [(a, CloseReason::ByPeer)]);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Requested)]);
}

#[test]
fn both_close_at_once() {
    let mut pair = Pair::psk(3);
    let (a, b) = pair.up();
    pair.client.endpoint.close(pair.now, a);
    pair.gateway.endpoint.close(pair.now, b);
    pair.settle();
    assert_eq!(pair.client.closed, [(a, CloseReason::Requested)]);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Requested)]);
    assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
}

#[test]
fn closing_towards_a_dead_peer_ends_soon() {
    let mut pair = Pair::psk(4);
    let (a, _) = pair.up();
    pair.filter = Some(Box::new(|_| false));
    pair.client.endpoint.close(pair.now, a);
    pair.run_for(std::time::Duration::from_secs(120));
    assert_eq!(pair.client.closed, [(a, CloseReason::Requested)]);
}

#[test]
fn forgetting_says_nothing_to_the_peer() {
    let mut pair = Pair::psk(5);
    let (a, _) = pair.up();
    let sent = pair.log.len();
    pair.client.endpoint.forget(pair.now, a);
    pair.settle();
    assert_eq!(pair.log.len(), sent);
    assert_eq!(pair.client.closed, [(a, CloseReason::Requested)]);
    assert_eq!(pair.gateway.children.len(), 1, "the peer knows nothing of it");
}

#[test]
fn one_child_is_deleted_and_the_ike_sa_goes_on() {
    for by_client in [true, false] {
        let mut pair = Pair::psk(6);
        pair.up();
        let side = if by_client { &mut pair.client } else { &mut pair.gateway };
        let child = *side.children.keys().next().expect("one");
        side.endpoint.delete_child(pair.now, child);
        pair.settle();
        assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
        assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
    }
}

#[test]
fn both_delete_the_same_child_at_once() {
    let mut pair = Pair::psk(7);
    pair.up();
    let a = *pair.client.children.keys().next().expect("one");
    let b = *pair.gateway.children.keys().next().expect("one");
    pair.client.endpoint.delete_child(pair.now, a);
    pair.gateway.endpoint.delete_child(pair.now, b);
    pair.settle();
    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
    assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
}
