//! Who is admitted is asked again at each step of a resumption: what an administrator changes between two of them counts.

mod common;

use std::time::Duration;

use common::resumed::{confirmed, resume, slept_with};
use common::{Pair, client_psk, fqdn, gateway_config, gateway_psk};
use dormouse_crypto::Secret;
use dormouse_ike::admission::Denial;
use dormouse_ike::config::{PeerPolicy, RemoteAuth, Unique};
use dormouse_ike::ticket::ClientTicket;

/// What an administrator does meanwhile.
type Change = fn(&mut Pair);

fn deny(pair: &mut Pair) {
    pair.gateway.endpoint.deny(pair.now, Denial::Name(fqdn("client.example.org")));
}

fn other_secret(pair: &mut Pair) {
    let mut conn = gateway_psk();
    conn.remote_auth = RemoteAuth::Psk(Secret::from(&b"another secret of today"[..]));
    pair.gateway.endpoint.reconfigure(pair.now, vec![conn.into()], &[]);
}

/// A device whose ticket comes back in one round trip, or in two.
fn slept(quick: bool, seed: u64) -> (Pair, ClientTicket) {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    (client.dormancy, gateway.dormancy) = (quick, quick);
    let (mut pair, ticket, old) = slept_with(client, gateway_config(gateway, seed), seed);
    pair.gateway.endpoint.forget(pair.now, old);
    pair.flush();
    pair.gateway.closed.clear();
    (pair, ticket)
}

fn assert_refused(pair: &mut Pair, what: &str) {
    pair.run_for(Duration::from_secs(2));
    assert!(confirmed(pair).is_none(), "{what}");
    assert_eq!(pair.gateway.endpoint.len(), pair.gateway.endpoint.half_open(), "{what}");
    assert!(pair.gateway.children.is_empty(), "{what}");
}

const CHANGES: [(&str, Change); 2] = [("denied", deny), ("another secret", other_secret)];

#[test]
fn a_change_between_the_ticket_and_the_proof_of_its_owner_counts() {
    for (n, (what, change)) in (1..).zip(CHANGES) {
        let (mut pair, ticket) = slept(false, n);
        resume(&mut pair, &ticket);
        pair.run_for(common::LATENCY);
        assert_eq!(pair.gateway.endpoint.half_open(), 1, "the ticket was taken");
        change(&mut pair);
        pair.flush();
        assert_refused(&mut pair, what);
    }
}

#[test]
fn a_change_while_the_store_is_asked_counts() {
    for (n, quick) in [(10, false), (20, true)] {
        for (n, (what, change)) in (n..).zip(CHANGES) {
            let (mut pair, ticket) = slept(quick, n);
            pair.gateway.slow_store = true;
            resume(&mut pair, &ticket);
            pair.run_for(Duration::from_secs(1));
            let (asked, outcome) = pair.gateway.outcomes.pop().expect("asked");
            change(&mut pair);
            pair.flush();
            pair.gateway.endpoint.stored(pair.now, asked, outcome);
            assert_refused(&mut pair, what);
        }
    }
}

#[test]
fn tickets_that_were_collected_do_not_bring_back_more_sessions_than_the_identity_may_have() {
    for (n, quick) in [(30, true), (31, false)] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.dormancy, gateway.dormancy, client.initial_contact) = (quick, quick, false);
        gateway.answering.policy =
            PeerPolicy { unique: Unique::Never, sessions: 1, ..gateway.answering.policy };
        let mut pair = Pair::new(client, gateway, n);
        let mut tickets = Vec::new();
        for _ in 0..3 {
            let (a, b) = pair.up();
            tickets.push(pair.client.ticket.take().expect("a ticket"));
            pair.client.endpoint.forget(pair.now, a);
            pair.gateway.endpoint.forget(pair.now, b);
            pair.flush();
        }
        for ticket in &tickets {
            resume(&mut pair, ticket);
        }
        pair.run_for(Duration::from_secs(3));
        let endpoint = &pair.gateway.endpoint;
        assert_eq!(endpoint.len() - endpoint.half_open(), 1, "one has come back");
        pair.run_for(Duration::from_secs(60));
        assert_eq!((pair.gateway.endpoint.len(), pair.gateway.children.len()), (1, 1));
        pair.assert_agree();
    }
}
