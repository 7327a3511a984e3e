//! A thief with a copied ticket who comes before its owner: what the owner's full login ends, and that it is let in.

mod common;

use std::time::Duration;

use common::resumed::{confirmed, slept_with};
use common::{Pair, client_psk, gateway_config, gateway_psk, path};
use dormouse_ike::config::{PeerPolicy, Unique};
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::{CloseReason, NegotiationError};
use dormouse_keying::SaId;
use dormouse_wire::ike::dormancy::Refused;

/// A device that lost its session, and a copy of its ticket.
fn copied(unique: Unique, quick: bool, seed: u64) -> (Pair, ClientTicket) {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.initial_contact = false;
    (client.dormancy, gateway.dormancy) = (quick, quick);
    gateway.policy = PeerPolicy { unique, sessions: 1, ..gateway.policy };
    let (mut pair, ticket, old) = slept_with(client, gateway_config(gateway, seed), seed);
    pair.gateway.endpoint.forget(pair.now, old);
    pair.flush();
    pair.gateway.closed.clear();
    (pair, ticket)
}

/// The thief resumes from elsewhere.
fn steal(pair: &mut Pair, ticket: &ClientTicket) -> SaId {
    let there = path("192.0.2.66:500", common::GATEWAY);
    let sa = pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket.clone(), there);
    pair.flush();
    sa
}

#[test]
fn the_owner_is_let_in_where_sessions_are_counted_and_the_thief_is_not_one_of_them() {
    for (n, unique) in [(1, Unique::Keep), (2, Unique::Never)] {
        let (mut pair, ticket) = copied(unique, true, n);
        steal(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        let thiefs = confirmed(&mut pair).expect("the thief is taken for the owner");
        pair.client.events.clear();
        common::resumed::resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)), "the thief has its place");
        pair.connect();
        pair.run_for(Duration::from_secs(2));
        assert!(pair.client.established().is_some(), "{unique:?}: {:?}", pair.client.failure());
        assert_eq!(pair.gateway.closed, [(thiefs, CloseReason::Replaced)], "{unique:?}");
    }
}
