//! Session resumption (RFC 5723): one exchange less and no public-key operation, once for each ticket.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{CLIENT, GATEWAY, Nat, Pair, gateway_config, path};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, HalfOpen, Resumption};
use dormouse_ike::ticket::{ClientTicket, TicketKeys};
use dormouse_ike::{Kind, NegotiationError};
use dormouse_sansio::Carrier;

// Both ends without the dormancy extension, which has a shorter way (`quick.rs`).

fn client_psk() -> Connection {
    Connection { dormancy: false, ..common::client_psk() }
}

fn gateway_psk() -> Connection {
    Connection { dormancy: false, ..common::gateway_psk() }
}

fn plain(seed: u64) -> Pair {
    Pair::new(client_psk(), gateway_psk(), seed)
}

fn resume(pair: &mut Pair, ticket: ClientTicket) -> dormouse_keying::SaId {
    let sa = pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket, path(CLIENT, GATEWAY));
    pair.settle();
    sa
}

#[test]
fn the_client_comes_back_without_a_key_exchange_and_keeps_its_address() {
    let mut pair = plain(1);
    let (a, b) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    let sa = resume(&mut pair, ticket);
    let back = pair.client.established().expect("resumed");
    assert!(back.resumed && back.mobike && back.sa == sa);
    assert_eq!(back.configuration.v4, Some("10.9.0.2".parse().expect("an address")));
    assert!(pair.gateway.established().expect("resumed").resumed);
    pair.assert_agree();
    // The old SA was dropped silently.
    assert_eq!(pair.gateway.closed, [(b, dormouse_ike::CloseReason::Replaced)]);
    assert_eq!(pair.gateway.children.len(), 1);
    let stats = pair.client.endpoint.sa_stats(sa).expect("it is there");
    assert_eq!((stats.round_trips, stats.begun.get(&Kind::Init), stats.begun[&Kind::Resume]), (2, None, 1));
    assert!(pair.client.ticket.is_some(), "and has a new ticket");
}

#[test]
fn a_ticket_survives_the_disk_and_a_restart_of_the_gateway() {
    let mut pair = plain(2);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    let ticket = ClientTicket::decode(ticket.encode().as_bytes()).expect("as stored");
    pair.client.endpoint.forget(pair.now, a);
    // The same keys, as exported and imported, and nothing else.
    let day = Duration::from_secs(86_400);
    let mut config = gateway_config(gateway_psk(), 2);
    let keys = config.ticket_keys.take().expect("made by the harness").export();
    config.ticket_keys = Some(TicketKeys::import(keys.as_bytes(), day, day * 2).expect("as exported"));
    let fresh = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 77);
    pair.replace_gateway(fresh.gateway);
    resume(&mut pair, ticket);
    assert!(pair.client.established().expect("resumed").resumed);
    pair.assert_agree();
}

#[test]
fn a_ticket_is_accepted_once() {
    let mut pair = plain(3);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    let first = resume(&mut pair, ticket.clone());
    assert!(pair.client.established().is_some());
    pair.client.endpoint.forget(pair.now, first);
    resume(&mut pair, ticket);
    let error = pair.client.failure().expect("refused");
    assert!(matches!(error, NegotiationError::RefusedByPeer { .. }), "{error}");
    assert!(pair.gateway.peer_failure().expect("logged").to_string().contains("was used"));
}

#[test]
fn of_two_resumptions_at_once_one_is_refused_and_told_so() {
    let mut pair = plain(13);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    for _ in 0..2 {
        pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket.clone(), path(CLIENT, GATEWAY));
    }
    pair.settle();
    assert!(pair.client.established().is_some() && pair.client.established().is_none());
    let error = pair.client.failure().expect("at once, not when its patience ends");
    assert!(matches!(error, NegotiationError::RefusedByPeer { .. }), "{error}");
    assert!(pair.gateway.peer_failure().expect("logged").to_string().contains("was used"));
    pair.assert_agree();
}

#[test]
fn an_end_that_stops_leaves_what_can_be_resumed() {
    let mut pair = plain(14);
    let (a, b) = pair.up();
    let sent = pair.log.len();
    pair.client.endpoint.leave(pair.now, a);
    pair.gateway.endpoint.leave(pair.now, b);
    pair.settle();
    assert_eq!(pair.log.len(), sent, "without a word");
    assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
    let mut client = client_psk();
    client.resumption.mode = Resumption::Off;
    let mut pair = Pair::new(client, gateway_psk(), 15);
    let (_, b) = pair.up();
    pair.gateway.endpoint.leave(pair.now, b);
    pair.settle();
    assert_eq!(pair.client.closed.len(), 1, "what cannot be resumed is deleted");
}

#[test]
fn a_foreign_or_expired_ticket_is_refused_or_not_even_sent() {
    let mut pair = plain(4);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    pair.gateway = plain(5).gateway; // other ticket keys
    resume(&mut pair, ticket.clone());
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)));
    let sent = pair.log.len();
    pair.run_for(Duration::from_secs(25 * 3_600));
    resume(&mut pair, ticket);
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketExpired)));
    assert_eq!(pair.log.len(), sent);
}

#[test]
fn whoever_stole_the_ticket_alone_gets_nowhere_and_spoils_nothing() {
    let mut pair = plain(6);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    let stolen =
        ClientTicket { secret: dormouse_crypto::Secret::zeroed(ticket.secret.len()), ..ticket.clone() };
    let thief = resume(&mut pair, stolen);
    assert!(pair.client.established().is_none());
    pair.client.endpoint.close(pair.now, thief);
    pair.client.failure();
    resume(&mut pair, ticket);
    assert!(pair.client.established().expect("the owner").resumed);
}

#[test]
fn nat_is_detected_anew_and_cookies_work() {
    let half_open = HalfOpen { cookie_threshold: 0, ..HalfOpen::default() };
    let config = EndpointConfig { half_open, ..gateway_config(gateway_psk(), 7) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 7);
    let (a, _) = pair.up();
    assert_eq!(pair.client.children.values().next().expect("one").path.carrier, Carrier::RawEsp);
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    pair.nat = Some(Nat::new("203.0.113.5", Duration::from_secs(300)));
    let sa = resume(&mut pair, ticket);
    assert!(pair.client.established().expect("resumed").resumed);
    assert_eq!(pair.client.children.values().next().expect("one").path.carrier, Carrier::NatT);
    assert_eq!(pair.client.endpoint.sa_stats(sa).expect("it is there").round_trips, 3);
}

#[test]
fn resumption_after_rekeying_uses_the_renewed_ticket() {
    let mut pair = plain(8);
    let (a, _) = pair.up();
    let first = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.rekey_ike(pair.now, a);
    pair.settle();
    let second = pair.client.ticket.take().expect("the client asked for one");
    assert!(first.secret != second.secret);
    pair.client.endpoint.forget(pair.now, a);
    resume(&mut pair, second);
    assert!(pair.client.established().expect("resumed").resumed);
    pair.assert_agree();
    assert_eq!(pair.gateway.children.len(), 1, "the rekeyed SA was the old one");
}

#[test]
fn the_libreswan_dialect_works_with_itself_and_not_with_the_strict_one() {
    for (ours, theirs, works) in [
        (Resumption::Libreswan, Resumption::Libreswan, true),
        (Resumption::Libreswan, Resumption::Strict, false),
        (Resumption::Off, Resumption::Strict, false),
    ] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        client.resumption.mode = ours;
        gateway.resumption.mode = theirs;
        let mut pair = Pair::new(client, gateway, 9);
        let (a, _) = pair.up();
        let Some(ticket) = pair.client.ticket.take() else {
            assert_eq!(ours, Resumption::Off);
            continue;
        };
        pair.client.endpoint.forget(pair.now, a);
        resume(&mut pair, ticket);
        assert_eq!(pair.client.established().is_some(), works, "{ours:?} to {theirs:?}");
    }
}

#[test]
fn a_gateway_without_the_connection_refuses() {
    let mut pair = plain(10);
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, a);
    let mut renamed = gateway_psk();
    renamed.name = "others".to_owned();
    let mut config = gateway_config(gateway_psk(), 10);
    config.connections = vec![Arc::new(renamed)];
    let fresh = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 78);
    pair.replace_gateway(fresh.gateway);
    resume(&mut pair, ticket);
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)));
    let why = pair.gateway.peer_failure().expect("logged").to_string();
    assert!(why.contains("connection clients"), "{why}");
}
