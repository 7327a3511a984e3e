//! A thief with a copied ticket who comes before its owner: what the owner's full login ends, and that it is let in.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::resumed::{confirmed, slept_with};
use common::{Pair, client_psk, gateway_config, gateway_psk, path};
use dormouse_ike::config::{Connection, IdentityPattern, PeerPolicy, Unique};
use dormouse_ike::limits::{BEGIN_BURST, HANDSHAKES_WAITING};
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::{Name, Outcome};
use dormouse_ike::{CloseReason, NegotiationError};
use dormouse_keying::SaId;
use dormouse_wire::ike::dormancy::Refused;

/// Whether the resumption takes one round trip, and how many sessions of an identity there may be.
const FORMS: [(bool, Unique); 4] =
    [(true, Unique::Replace), (false, Unique::Replace), (true, Unique::Keep), (true, Unique::Never)];

/// A device that lost its session, and a copy of its ticket.
fn copied(unique: Unique, quick: bool, seed: u64) -> (Pair, ClientTicket) {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.initial_contact = false;
    (client.dormancy, gateway.dormancy) = (quick, quick);
    gateway.answering.policy = PeerPolicy { unique, sessions: 1, ..gateway.answering.policy };
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
        let owners = common::resumed::resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        let superseded = (owners, CloseReason::Refused(Refused::Superseded));
        assert!(pair.client.closed.contains(&superseded), "{:?}", pair.client.closed);
        pair.client.events.clear();
        pair.connect();
        pair.run_for(Duration::from_secs(2));
        assert!(pair.client.established().is_some(), "{unique:?}: {:?}", pair.client.failure());
        assert!(pair.gateway.closed.contains(&(thiefs, CloseReason::Replaced)), "{unique:?}");
    }
}

/// The thief resumes with one ticket after the other, until that comes too often.
#[test]
fn a_thief_who_resumes_for_ever_does_not_keep_the_owner_out() {
    for (n, (quick, unique)) in (30..).zip(FORMS) {
        let (mut pair, ticket) = copied(unique, quick, n);
        let mut stolen = ticket.clone();
        let mut times = 0;
        loop {
            pair.client.ticket = None;
            steal(&mut pair, &stolen);
            pair.run_for(Duration::from_millis(400));
            let Some(next) = pair.client.ticket.take() else { break };
            // It keeps to no bound of a device.
            (stolen, times) = (ClientTicket { unheard: 0, ..next }, times + 1);
        }
        // One a second comes in besides.
        assert!((BEGIN_BURST..2 * BEGIN_BURST).contains(&times), "{n}: {times}");
        let why = pair.client.failure();
        assert!(matches!(why, Some(NegotiationError::TicketRefused)), "{n}: {why:?}");
        common::resumed::resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        pair.client.endpoint.set_former_lineage("home", ticket.lineage.unwrap_or(Name([0; 16])));
        pair.client.events.clear();
        pair.gateway.events.clear();
        pair.connect();
        pair.run_for(Duration::from_secs(20));
        assert!(pair.client.established().is_some(), "{n}: {:?}", pair.client.failure());
        let owners = pair.gateway.established().expect("the owner logs in").sa;
        let endpoint = &pair.gateway.endpoint;
        assert_eq!(endpoint.len() - endpoint.half_open(), 1, "{n}: the owner's alone");
        assert!(endpoint.path(owners).is_some(), "{n}");
        steal(&mut pair, &stolen);
        pair.run_for(Duration::from_secs(20));
        let endpoint = &pair.gateway.endpoint;
        assert_eq!(endpoint.len() - endpoint.half_open(), 1, "{n}: the thief's is over");
        assert!(endpoint.path(owners).is_some(), "{n}");
    }
}

/// The store has said that the thief's ticket counts, and its answer is on the way when the owner logs in.
#[test]
fn the_owners_full_login_ends_a_resumption_that_the_store_is_asked_about() {
    for (n, (quick, unique)) in (10..).zip(FORMS) {
        let (mut pair, ticket) = copied(unique, quick, n);
        pair.gateway.slow_store = true;
        steal(&mut pair, &ticket);
        pair.run_for(Duration::from_millis(500));
        let (asked, outcome) = pair.gateway.outcomes.pop().expect("the thief has confirmed");
        assert_eq!(outcome, Outcome::Done);
        pair.client.endpoint.set_former_lineage("home", ticket.lineage.unwrap_or(Name([0; 16])));
        pair.client.events.clear();
        pair.gateway.events.clear();
        pair.connect();
        pair.run_for(Duration::from_millis(500));
        let owners = pair.gateway.established().expect("the owner logs in").sa;
        pair.gateway.endpoint.stored(pair.now, asked, outcome);
        pair.run_for(Duration::from_secs(20));
        assert!(confirmed(&mut pair).is_none() && pair.gateway.established().is_none(), "{n}");
        let endpoint = &pair.gateway.endpoint;
        assert_eq!(endpoint.len() - endpoint.half_open(), 1, "{n}: the owner's alone");
        assert!(endpoint.path(owners).is_some(), "{n}");
    }
}

#[test]
fn an_operator_who_ends_a_peers_sessions_ends_one_that_the_store_is_asked_about() {
    for (n, quick) in [(20, true), (21, false)] {
        let (mut pair, ticket) = copied(Unique::Replace, quick, n);
        pair.gateway.slow_store = true;
        steal(&mut pair, &ticket);
        pair.run_for(Duration::from_millis(500));
        let (asked, outcome) = pair.gateway.outcomes.pop().expect("the thief has confirmed");
        pair.gateway.endpoint.revoke_tickets(pair.now, "clients", &common::fqdn("client.example.org"));
        pair.flush();
        pair.gateway.endpoint.stored(pair.now, asked, outcome);
        pair.run_for(Duration::from_secs(10));
        assert!(confirmed(&mut pair).is_none() && pair.gateway.children.is_empty(), "{n}");
    }
}

/// The store is slow. One who presents one ticket again and again has few places that give way to no stranger, and the owner's login is
/// not refused for it.
#[test]
fn resumptions_that_wait_for_the_store_are_few_of_one_identity() {
    for (n, quick) in [(40, true), (41, false)] {
        let (mut pair, ticket) = copied(Unique::Replace, quick, n);
        pair.gateway.slow_store = true;
        (0..50).for_each(|_| _ = steal(&mut pair, &ticket));
        pair.run_for(Duration::from_millis(900));
        assert_eq!(pair.gateway.outcomes.len(), HANDSHAKES_WAITING, "{n}");
        let refused = core::iter::from_fn(|| pair.gateway.peer_failure()).count();
        assert_eq!(refused, 50 - HANDSHAKES_WAITING, "{n}");
        pair.client.events.clear();
        pair.gateway.events.clear();
        pair.connect();
        pair.run_for(Duration::from_secs(10));
        assert!(pair.gateway.established().is_some(), "{n}: {:?}", pair.client.failure());
    }
}

/// The owner's certificate was renewed by an authority that writes names in another case: it is the same identity.
#[test]
fn an_owner_whose_name_is_spelled_otherwise_ends_the_thiefs_resumption_too() {
    for (n, quick) in [(50, true), (51, false)] {
        let spelled = |text: &str| Connection { local_id: text.parse().expect("a name"), ..client_psk() };
        let (mut client, mut gateway) = (spelled("O=Example, CN=joe"), gateway_psk());
        client.initial_contact = false;
        (client.dormancy, gateway.dormancy) = (quick, quick);
        gateway.remote_id = IdentityPattern::Any;
        let (mut pair, ticket, old) = slept_with(client, gateway_config(gateway, n), n);
        pair.gateway.endpoint.forget(pair.now, old);
        pair.flush();
        pair.gateway.slow_store = true;
        steal(&mut pair, &ticket);
        pair.run_for(Duration::from_millis(500));
        let (asked, outcome) = pair.gateway.outcomes.pop().expect("the thief has confirmed");
        pair.conn =
            Arc::new(Connection { initial_contact: false, dormancy: quick, ..spelled("O=EXAMPLE, CN=Joe") });
        pair.client.events.clear();
        pair.gateway.events.clear();
        pair.connect();
        pair.run_for(Duration::from_millis(500));
        let owners = pair.gateway.established().expect("the owner logs in").sa;
        pair.gateway.endpoint.stored(pair.now, asked, outcome);
        pair.run_for(Duration::from_secs(20));
        let endpoint = &pair.gateway.endpoint;
        assert_eq!(endpoint.len() - endpoint.half_open(), 1, "{n}: the owner's alone");
        assert!(endpoint.path(owners).is_some(), "{n}");
    }
}
