//! Additional key exchanges and post-quantum pre-shared keys (RFC 9242, 9370, 8784, 9867): the handshake, fall-back, downgrade,
//! rekeying.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::resumed::{confirmed, resume, slept_with};
use common::{Datagram, Faults, Filter, Pair, client_psk, fqdn, gateway_config, gateway_psk};
use dormouse_crypto::Secret;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, IdentityPattern, Ppk, SelectorSpec};
use dormouse_ike::{CloseReason, Kind, NegotiationError};
use dormouse_sansio::{Carrier, Seeded};
use dormouse_wire::ike::{ExchangeType, Message, NotifyType, Payload};

const HYBRID: &str = "aes256gcm16-prfsha256-x25519-ke1_mlkem768";
const CLASSICAL: &str = "aes256gcm16-prfsha256-x25519";

fn with_ike(mut conn: Connection, proposals: &[&str]) -> Connection {
    conn.ike_proposals = proposals.iter().map(|p| p.parse().expect("a proposal")).collect();
    conn
}

fn with_child(mut conn: Connection, proposal: &str) -> Connection {
    conn.children[0].proposals = vec![proposal.parse().expect("a proposal")];
    conn
}

fn with_ppk(mut conn: Connection, keys: &[(&str, &str)], required: bool, intermediate: bool) -> Connection {
    let ppk = |(id, secret): &(&str, &str)| {
        Arc::new(Ppk { id: id.as_bytes().to_vec(), secret: Secret::from(secret.as_bytes()) })
    };
    conn.ppk.keys = keys.iter().map(ppk).collect();
    (conn.ppk.required, conn.ppk.intermediate) = (required, intermediate);
    conn
}

fn suites(pair: &mut Pair) -> (String, u64, u64) {
    let (a, b) = pair.up();
    let suite = |side: &common::Side, sa| side.endpoint.describe(sa).expect("it is there").suite;
    assert_eq!(suite(&pair.client, a), suite(&pair.gateway, b));
    let stats = pair.client.endpoint.sa_stats(a).expect("it is there");
    let intermediate = stats.begun.get(&Kind::Intermediate).copied().unwrap_or(0);
    (suite(&pair.client, a), stats.round_trips, intermediate)
}

/// The bytes of the message in a datagram.
fn message(datagram: &mut Datagram) -> &mut [u8] {
    let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
    &mut datagram.bytes[marker..]
}

const fn exchange(bytes: &[u8]) -> u8 {
    bytes[18]
}

/// Rewrites the first message of one direction.
fn rewriting(to_gateway: bool, mut edit: impl FnMut(&mut Vec<Payload>) + 'static) -> Filter {
    Box::new(move |datagram| {
        if exchange(message(datagram)) == 34 && datagram.to_gateway == to_gateway {
            let parsed = Message::parse(&datagram.bytes).expect("a first message");
            let mut payloads = parsed.payloads;
            edit(&mut payloads);
            datagram.bytes.clear();
            Message::emit(&parsed.header, &payloads, &mut datagram.bytes).expect("it is written");
        }
        true
    })
}

#[test]
fn the_defaults_are_hybrid_and_cost_one_round_trip_more() {
    let mut pair = Pair::psk(1);
    let (suite, round_trips, intermediate) = suites(&mut pair);
    assert_eq!((suite.as_str(), round_trips, intermediate), (HYBRID, 3, 1));
    let large = pair.log.iter().map(|d| d.bytes.len()).max().expect("datagrams");
    assert!(large + 28 <= 1_280, "the key exchange travels in fragments: {large}");
}

#[test]
fn a_peer_without_it_loses_no_round_trip() {
    let classical = |conn| with_ike(conn, &[CLASSICAL]);
    for mut pair in [
        Pair::new(client_psk(), classical(gateway_psk()), 1),
        Pair::new(classical(client_psk()), gateway_psk(), 2),
    ] {
        assert_eq!(suites(&mut pair), (CLASSICAL.to_owned(), 2, 0));
    }
}

#[test]
fn several_key_exchanges_follow_in_their_order() {
    let text = "aes128-sha256-prfsha384-x25519-ke1_mlkem512-ke2_ecp384-ke5_mlkem1024";
    let mut pair = Pair::new(with_ike(client_psk(), &[text]), with_ike(gateway_psk(), &[text]), 3);
    assert_eq!(suites(&mut pair), (text.to_owned(), 5, 3));
    let mut pair = Pair::new(with_ike(client_psk(), &[text]), with_ike(gateway_psk(), &[text]), 4);
    pair.conn = Arc::new(Connection {
        fragmentation: dormouse_ike::config::Fragmentation { enabled: false, size: 1_280 },
        ..with_ike(client_psk(), &[text])
    });
    assert_eq!(suites(&mut pair).2, 3, "whole messages do as well");
}

#[test]
fn a_proposal_that_is_taken_out_on_the_way_is_found_out() {
    // By an attacker who can break x25519 as it happens, and not the pre-shared key.
    let mut pair = Pair::psk(5);
    pair.filter = Some(rewriting(true, |payloads| {
        for payload in payloads {
            if let Payload::Sa(offered) = payload {
                offered.remove(0);
            }
        }
    }));
    pair.connect();
    pair.settle();
    assert!(matches!(pair.client.failure(), Some(NegotiationError::RefusedByPeer { .. })));
    assert!(matches!(pair.gateway.peer_failure(), Some(NegotiationError::Authentication(_))));
}

#[test]
fn a_notification_that_is_taken_out_on_the_way_is_found_out() {
    let without = |payloads: &mut Vec<Payload>| {
        payloads.retain(
            |p| !matches!(p, Payload::Notify(n) if n.kind == NotifyType::IntermediateExchangeSupported),
        );
    };
    let mut pair = Pair::psk(6);
    pair.filter = Some(rewriting(true, without));
    pair.connect();
    pair.settle();
    assert!(
        matches!(pair.gateway.peer_failure(), Some(NegotiationError::Authentication(_))),
        "in the request"
    );
    let mut pair = Pair::psk(7);
    pair.filter = Some(rewriting(false, without));
    pair.connect();
    pair.settle();
    let error = pair.client.failure().expect("it fails").to_string();
    assert!(error.contains("IKE_INTERMEDIATE"), "in the answer: {error}");
}

#[test]
fn damaged_and_lost_messages_are_repeated() {
    let mut pair = Pair::psk(8);
    let mut damaged = 0;
    pair.filter = Some(Box::new(move |datagram| {
        let bytes = message(datagram);
        if exchange(bytes) == 43 && damaged < 4 {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            damaged += 1;
        }
        true
    }));
    assert_eq!(suites(&mut pair).0, HYBRID);
    let mut up = 0;
    for seed in 0..60 {
        let mut pair = Pair::psk(seed);
        pair.faults = Some(Faults { seed: Seeded::new(seed), lost: 10, doubled: 20, late: 50 });
        pair.connect();
        pair.run_for(Duration::from_secs(60));
        if pair.client.established().is_some() {
            up += 1;
            pair.assert_agree();
        }
    }
    assert!(up >= 55, "{up} of 60");
}

#[test]
fn ike_auth_comes_only_after_all_key_exchanges() {
    let mut pair = Pair::psk(9);
    // The gateway never hears IKE_INTERMEDIATE: nothing else will do.
    pair.filter = Some(Box::new(|datagram| {
        let bytes = message(datagram);
        if exchange(bytes) == 43 {
            bytes[18] = 35;
        }
        true
    }));
    pair.connect();
    pair.run_for(Duration::from_secs(60));
    assert!(matches!(
        pair.client.failure(),
        Some(NegotiationError::Timeout { exchange: "IKE_INTERMEDIATE", .. })
    ));
    assert!(pair.gateway.established().is_none() && pair.gateway.endpoint.is_empty());
}

#[test]
fn rekeying_is_hybrid_too_by_either_side() {
    let child = "aes128gcm16-x25519-ke1_mlkem768-ke2_mlkem512";
    for by_client in [true, false] {
        let mut pair = Pair::new(with_child(client_psk(), child), with_child(gateway_psk(), child), 10);
        let (a, b) = pair.up();
        for _ in 0..2 {
            let old = *pair.client.children.keys().next().expect("one");
            let (side, sa) = if by_client { (&mut pair.client, a) } else { (&mut pair.gateway, b) };
            let child = *side.children.keys().next().expect("one");
            side.endpoint.rekey_child(pair.now, child);
            pair.settle();
            pair.assert_agree();
            assert_eq!(pair.client.children.len(), 1);
            assert_ne!(*pair.client.children.keys().next().expect("one"), old);
            let side = if by_client { &mut pair.client } else { &mut pair.gateway };
            side.endpoint.rekey_ike(pair.now, sa);
            pair.settle();
            assert_eq!((pair.client.endpoint.len(), pair.gateway.endpoint.len()), (1, 1));
        }
        let side = if by_client { &pair.client } else { &pair.gateway };
        let stats = side.endpoint.stats();
        let begun = [Kind::RekeyChild, Kind::RekeyIke, Kind::FollowUp].map(|kind| stats.begun[&kind]);
        assert_eq!(begun, [2, 2, 6], "two exchanges follow a CHILD SA's, one an IKE SA's");
        let suite = |side: &common::Side, sa| side.endpoint.describe(sa).expect("it is there").suite;
        assert_eq!((suite(&pair.client, a), suite(&pair.gateway, b)), (HYBRID.to_owned(), HYBRID.to_owned()));
    }
}

#[test]
fn a_series_that_does_not_go_on_is_forgotten_and_begun_again() {
    let mut client = client_psk();
    client.timing.retransmission.tries = 12;
    client.timing.liveness.timeout = Duration::from_secs(120);
    let mut pair = Pair::new(client, gateway_psk(), 11);
    let (a, _) = pair.up();
    pair.filter = Some(Box::new(|datagram| !(datagram.to_gateway && exchange(message(datagram)) == 44)));
    pair.client.endpoint.rekey_ike(pair.now, a);
    pair.run_for(Duration::from_secs(50));
    assert!(pair.gateway.wakes.contains_key("key exchange"), "{:?}", pair.gateway.wakes);
    assert_eq!(pair.gateway.endpoint.len(), 1, "no successor");
    pair.filter = None;
    pair.run_for(Duration::from_secs(60));
    assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
    let stats = pair.client.endpoint.stats();
    assert!(stats.begun[&Kind::RekeyIke] >= 2, "{:?}", stats.begun);
    assert_eq!((pair.client.endpoint.len(), pair.gateway.endpoint.len()), (1, 1));
    pair.assert_agree();
}

/// Both with the same PPK, in IKE_INTERMEDIATE with and without a key exchange, and in IKE_AUTH.
#[test]
fn a_ppk_enters_the_keys() {
    let key = [("laptop", "a key from another channel, 256 bits")];
    for (proposal, intermediate, round_trips) in
        [(HYBRID, true, 3), (CLASSICAL, true, 3), (HYBRID, false, 3), (CLASSICAL, false, 2)]
    {
        for required in [true, false] {
            let side = |conn| with_ppk(with_ike(conn, &[proposal]), &key, required, intermediate);
            let mut pair = Pair::new(side(client_psk()), side(gateway_psk()), 12);
            assert_eq!(suites(&mut pair).1, round_trips, "{proposal} {intermediate} {required}");
            // What was derived with it is what both go on with.
            let child = *pair.client.children.keys().next().expect("one");
            pair.client.endpoint.rekey_child(pair.now, child);
            pair.settle();
            pair.assert_agree();
        }
    }
}

#[test]
fn a_peer_without_the_ppk_is_refused_or_done_without() {
    let (right, wrong) = ([("laptop", "one key")], [("laptop", "another key")]);
    let cases: [(&[(&str, &str)], bool); 3] =
        [(&wrong, true), (&[("other", "one key")], false), (&[], false)];
    for intermediate in [true, false] {
        for (theirs, same_id) in cases {
            for (client_requires, gateway_requires) in [(false, false), (true, false), (false, true)] {
                if gateway_requires && theirs.is_empty() {
                    continue;
                }
                let client = with_ppk(client_psk(), &right, client_requires, intermediate);
                let gateway = with_ppk(gateway_psk(), theirs, gateway_requires, intermediate);
                let mut pair = Pair::new(client, gateway, 13);
                pair.connect();
                pair.run_for(Duration::from_secs(3));
                let up = pair.client.established().is_some();
                // In IKE_AUTH a different key under the same name cannot be told from a forgery.
                let expected = !client_requires && !gateway_requires && (intermediate || !same_id);
                assert_eq!(up, expected, "{intermediate} {theirs:?} {client_requires} {gateway_requires}");
                assert_eq!(pair.client.failure().is_none(), up);
                pair.assert_agree();
            }
        }
    }
}

#[test]
fn a_gateway_that_requires_a_ppk_refuses_clients_without_one() {
    let gateway = with_ppk(gateway_psk(), &[("laptop", "one key")], true, true);
    let mut pair = Pair::new(client_psk(), gateway, 14);
    pair.connect();
    pair.settle();
    assert!(matches!(pair.client.failure(), Some(NegotiationError::ProposalsRefused { .. })));
    assert!(matches!(pair.gateway.peer_failure(), Some(NegotiationError::Ppk(_))));
}

#[test]
fn of_several_ppks_the_first_common_one_is_used() {
    let client = with_ppk(client_psk(), &[("new", "n"), ("old", "o")], true, true);
    let gateway = with_ppk(gateway_psk(), &[("old", "o"), ("older", "oo")], true, true);
    assert_eq!(suites(&mut Pair::new(client, gateway, 15)).0, HYBRID);
}

#[test]
fn a_hybrid_session_comes_back_by_its_ticket() {
    let mut pair = Pair::psk(16);
    pair.up();
    let ticket = pair.client.ticket.take().expect("a ticket");
    let path = pair.default_path();
    let sa = pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket, path);
    pair.settle();
    let back = pair.client.established().expect("it is back");
    assert!(back.resumed && back.sa == sa);
    assert_eq!(pair.client.endpoint.describe(sa).expect("it is there").suite, HYBRID);
    pair.client.endpoint.rekey_ike(pair.now, sa);
    pair.settle();
    assert_eq!(pair.client.endpoint.stats().begun[&Kind::FollowUp], 1);
}

#[test]
fn a_ticket_resumes_into_a_connection_that_requires_a_ppk_only_if_one_of_todays_is_in_its_keys() {
    type Keys<'a> = &'a [(&'a str, &'a str)];
    let key: Keys<'_> = &[("laptop", "one key")];
    let cases: [(Keys<'_>, Keys<'_>, bool); 3] =
        [(&[], key, false), (key, key, true), (key, &[("laptop", "another key")], false)];
    for intermediate in [true, false] {
        for (n, (then, today, resumes)) in (90..).zip(cases) {
            let client = with_ppk(client_psk(), then, false, intermediate);
            let gateway = with_ppk(gateway_psk(), then, false, intermediate);
            let (mut pair, ticket, old) = slept_with(client, gateway_config(gateway, n), n);
            pair.gateway.endpoint.forget(pair.now, old);
            let required = with_ppk(gateway_psk(), today, true, intermediate);
            pair.gateway.endpoint.reconfigure(pair.now, vec![required.into()], &[]);
            pair.flush();
            resume(&mut pair, &ticket);
            pair.run_for(Duration::from_secs(2));
            assert_eq!(confirmed(&mut pair).is_some(), resumes, "{then:?} {today:?}");
            let refused = matches!(pair.client.failure(), Some(NegotiationError::TicketRefused));
            assert_eq!(refused, !resumes, "{then:?} {today:?}");
        }
    }
}

#[test]
fn a_session_ends_when_a_ppk_becomes_required_that_is_not_in_its_keys() {
    type Keys<'a> = &'a [(&'a str, &'a str)];
    let key: Keys<'_> = &[("laptop", "one key")];
    let cases: [(Keys<'_>, Keys<'_>, bool); 3] =
        [(&[], key, false), (key, key, true), (key, &[("laptop", "another key")], false)];
    for (n, (then, today, stays)) in (100..).zip(cases) {
        let client = with_ppk(client_psk(), then, false, true);
        let mut pair = Pair::new(client, with_ppk(gateway_psk(), then, false, true), n);
        let (_, b) = pair.up();
        let required = with_ppk(gateway_psk(), today, true, true);
        pair.gateway.endpoint.reconfigure(pair.now, vec![required.into()], &[]);
        pair.run_for(Duration::from_secs(1));
        let ended: &[_] = if stays { &[] } else { &[(b, CloseReason::NotAdmitted)] };
        assert_eq!(pair.gateway.closed, ended, "{then:?} {today:?}");
    }
}

/// What was seen: the name alone was compared, so that a guest's PPK of the same name opened the staff's connection.
#[test]
fn a_ppk_of_another_connection_is_none_of_this_one_even_with_its_name() {
    let staff = with_ppk(gateway_psk(), &[("vpn", "the staff's key")], true, true);
    let mut guests = with_ppk(gateway_psk(), &[("vpn", "the guests' key")], true, true);
    guests.name = "guests".to_owned();
    guests.remote_id = IdentityPattern::Exact(fqdn("guest.example.org"));
    let mut config = gateway_config(staff, 17);
    config.connections.push(Arc::new(guests));
    let client = with_ppk(client_psk(), &[("vpn", "the guests' key")], true, true);
    let mut pair = Pair::with_configs(client, EndpointConfig::default(), config, 17);
    pair.connect();
    pair.settle();
    assert!(pair.client.established().is_none());
    assert!(matches!(pair.gateway.peer_failure(), Some(NegotiationError::Ppk(_))));
}

#[test]
fn a_classical_ticket_is_not_used_once_the_configuration_wants_more() {
    let mut pair = Pair::new(with_ike(client_psk(), &[CLASSICAL]), gateway_psk(), 18);
    pair.up();
    let ticket = pair.client.ticket.take().expect("a ticket");
    let stricter = Arc::new(with_ike(client_psk(), &[HYBRID]));
    let path = pair.default_path();
    pair.client.endpoint.resume(pair.now, stricter, ticket, path);
    pair.settle();
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketOutdated)));
}

/// What was seen: the host was free at CREATE_CHILD_SA, and taken without another look when the last key exchange came.
#[test]
fn a_host_that_another_client_got_meanwhile_stays_the_others() {
    const CHILD: &str = "aes128gcm16-x25519-ke1_mlkem768";
    let mut gateway = with_child(gateway_psk(), CHILD);
    gateway.children[0].ts_remote = vec![SelectorSpec::Net("10.9.0.0/16".parse().expect("a prefix"))];
    let mut client = with_child(client_psk(), CHILD);
    let host = vec![SelectorSpec::Net("10.9.0.77/32".parse().expect("a host"))];
    let mut second = client.children[0].clone();
    second.name = "second".to_owned();
    second.ts_local.clone_from(&host);
    client.children.push(second);
    let mut pair = Pair::new(client, gateway, 19);
    pair.filter = Some(Box::new(|datagram| {
        let followup = ExchangeType::IkeFollowupKe.code();
        !datagram.to_gateway || exchange(message(datagram)) != followup
    }));
    pair.up();
    assert_eq!(pair.gateway.children.len(), 1, "the second waits for its last key exchange");
    let mut other = with_child(client_psk(), CHILD);
    other.local_id = fqdn("other.example.org");
    other.children[0].ts_local = host;
    let path = pair.default_path();
    let theirs = pair.client.endpoint.connect(pair.now, Arc::new(other), path);
    pair.run_for(Duration::from_secs(1));
    let owner = |pair: &Pair| {
        let with_host = |c: &&dormouse_keying::Install| {
            c.ts_remote[0].start == c.ts_remote[0].end && c.ts_remote[0].start.to_string() == "10.9.0.77"
        };
        pair.gateway.children.values().filter(with_host).count()
    };
    assert_eq!(owner(&pair), 1, "the other client has the host: {theirs:?}");
    pair.filter = None;
    pair.run_for(Duration::from_secs(15));
    assert_eq!(owner(&pair), 1, "and keeps it");
}
