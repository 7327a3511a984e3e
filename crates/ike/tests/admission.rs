//! What a gateway lets an identity have: how many sessions, for how long, and nothing once it is denied.

mod common;

use std::time::Duration;

use common::{Pair, client_psk, fqdn, gateway_psk};
use dormouse_ike::admission::Denial;
use dormouse_ike::config::{PeerRule, Unique};
use dormouse_ike::{CloseReason, NegotiationError, SleepFlags, Sleeping};

/// A client that does not say that it has no other session.
fn pair(unique: Unique, sessions: usize) -> Pair {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.initial_contact = false;
    gateway.answering.policy.unique = unique;
    gateway.answering.policy.sessions = sessions;
    Pair::new(client, gateway, 2)
}

#[test]
fn an_identitys_earlier_session_goes_a_moment_after_the_next_one_has_come() {
    let mut pair = pair(Unique::Replace, 16);
    let (a, b) = pair.up();
    pair.connect();
    pair.settle();
    assert_eq!(pair.gateway.endpoint.len(), 2, "a device that authenticates anew uses both");
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Replaced)]);
    assert_eq!(pair.client.closed, [(a, CloseReason::ByPeer)], "and it gets a DELETE");
    pair.assert_agree();
}

#[test]
fn an_identity_that_shares_nothing_is_refused_from_elsewhere_while_it_has_a_session() {
    let mut pair = pair(Unique::Keep, 16);
    let (_, b) = pair.up();
    let there = common::path("192.0.2.99:500", "198.51.100.1:500");
    pair.client.endpoint.connect(pair.now, pair.conn.clone(), there);
    pair.settle();
    assert!(matches!(pair.gateway.peer_failure(), Some(NegotiationError::NotAdmitted(_))));
    assert!(pair.client.failure().is_some());
    pair.run_for(Duration::from_secs(60));
    assert!(pair.gateway.closed.is_empty(), "{b} stays");
    // From the same address it is the device itself.
    pair.connect();
    pair.settle();
    assert!(pair.client.established().is_some());
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Replaced)]);
}

#[test]
fn devices_that_share_an_identity_live_beside_each_other_up_to_the_limit() {
    let mut pair = pair(Unique::Never, 2);
    pair.up();
    pair.connect();
    pair.settle();
    pair.run_for(Duration::from_secs(60));
    assert_eq!((pair.gateway.endpoint.len(), pair.gateway.children.len()), (2, 2));
    while pair.client.established().is_some() {}
    pair.connect();
    pair.settle();
    assert!(matches!(pair.gateway.peer_failure(), Some(NegotiationError::NotAdmitted(_))));
    assert!(pair.client.failure().is_some() && pair.gateway.closed.is_empty());
    pair.assert_agree();
}

#[test]
fn who_is_denied_goes_at_once_and_does_not_come_back_by_ticket_or_in_full() {
    let (client, gateway) = (client_psk(), gateway_psk());
    let mut pair = Pair::new(client, gateway, 5);
    let (_, b) = pair.up();
    let ticket = pair.client.ticket.take().expect("a ticket");
    let denial = Denial::Name(fqdn("client.example.org"));
    pair.gateway.endpoint.deny(pair.now, denial.clone());
    pair.flush();
    pair.settle();
    assert_eq!(pair.gateway.closed, [(b, CloseReason::NotAdmitted)]);
    assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty());
    while pair.client.established().is_some() {}
    let path = pair.default_path();
    pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket, path);
    pair.settle();
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)));
    pair.connect();
    pair.settle();
    assert!(matches!(pair.client.failure(), Some(NegotiationError::RefusedByPeer { .. })));
    assert!(pair.gateway.endpoint.allow(&denial) && !pair.gateway.endpoint.allow(&denial));
    pair.connect();
    pair.settle();
    assert!(pair.client.established().is_some(), "admitted again");
}

#[test]
fn an_authentication_that_is_told_to_end_is_repeated_and_the_gateway_never_calls() {
    let (client, mut gateway) = (client_psk(), gateway_psk());
    let mut theirs = gateway.clone();
    theirs.answering.policy.lifetime = Some(Duration::from_secs(600));
    let id = dormouse_ike::config::IdentityPattern::Exact(fqdn("client.example.org"));
    gateway.answering.peers = vec![PeerRule { id, connection: theirs.into() }];
    let mut pair = Pair::new(client, gateway, 6);
    let (a, _) = pair.up();
    let first_calls = |pair: &Pair, to_gateway| {
        let init = |d: &&common::Datagram| d.to_gateway == to_gateway && d.bytes.get(18) == Some(&34);
        // Requests have no responder's SPI yet.
        pair.log.iter().filter(init).filter(|d| d.bytes.get(8..16) == Some(&[0; 8])).count()
    };
    pair.run_for(Duration::from_secs(650));
    assert_eq!(pair.client.closed, [(a, CloseReason::Replaced)], "before the time was over");
    assert_eq!((pair.client.endpoint.len(), pair.gateway.endpoint.len()), (1, 1));
    assert_eq!(first_calls(&pair, false), 0);
    // One that cannot authenticate anew is gone when its time is over, to the second.
    let last = pair.gateway.closed.len();
    pair.filter = Some(Box::new(|_| false));
    pair.run_for(Duration::from_secs(600));
    let reasons: Vec<CloseReason> = pair.gateway.closed[last..].iter().map(|(_, why)| *why).collect();
    assert_eq!(reasons, [CloseReason::LifetimeOver]);
    assert!(pair.gateway.children.is_empty());
    assert_eq!(first_calls(&pair, false), 0);
}

/// A device that has authenticated anew and sleeps is not disturbed by the end of its earlier session.
#[test]
fn a_replaced_session_goes_without_a_word_when_its_device_sleeps() {
    let mut pair = pair(Unique::Replace, 16);
    let (_, replaced) = pair.up();
    let a = pair.connect();
    pair.settle();
    let said = Sleeping {
        flags: SleepFlags::default(),
        expect: Some(Duration::from_secs(3_600)),
        marks: Vec::new(),
    };
    assert!(pair.client.endpoint.announce_sleep(pair.now, a, said, None, Duration::from_secs(2)));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.gateway.closed, [(replaced, CloseReason::Replaced)]);
    let sent = pair.log.len();
    pair.client.endpoint.forget(pair.now, a);
    pair.run_for(Duration::from_secs(60));
    let disturbed = pair.log[sent..].iter().any(|d| !d.to_gateway);
    assert!(!disturbed, "the sleeping device was told");
}
