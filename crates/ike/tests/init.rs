//! The first exchange under less than ideal conditions: another group, a cookie, no common proposal, repetitions.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{GATEWAY, Pair, client_psk, gateway_config, gateway_psk, path};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::HalfOpen;
use dormouse_ike::{Discard, Kind, NegotiationError};
use dormouse_sansio::Path;

fn ike(text: &str) -> dormouse_ike::config::IkeProposal {
    text.parse().expect("a proposal of the test")
}

#[test]
fn another_group_costs_one_round_trip() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.ike_proposals = vec![ike("aes128gcm16-prfsha256-x25519-ecp256")];
    gateway.ike_proposals = vec![ike("aes128gcm16-prfsha256-ecp256")];
    let mut pair = Pair::new(client, gateway, 1);
    let (a, _) = pair.up();
    assert_eq!(pair.client.endpoint.sa_stats(a).expect("it is there").round_trips, 3);
}

#[test]
fn no_common_proposal_says_what_was_offered_and_what_is_acceptable() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.ike_proposals = vec![ike("aes128-sha256-modp2048")];
    gateway.ike_proposals = vec![ike("aes256gcm16-prfsha256-x25519")];
    let mut pair = Pair::new(client, gateway, 2);
    pair.connect();
    pair.settle();
    let ours = pair.client.failure().expect("it fails");
    assert!(matches!(ours, NegotiationError::ProposalsRefused { what: "IKE", .. }), "{ours}");
    assert!(ours.to_string().contains("aes128-prfsha256-sha256-modp2048"), "{ours}");
    let theirs = pair.gateway.peer_failure().expect("the log knows").to_string();
    assert!(theirs.contains("aes256gcm16") && theirs.contains("offered"), "{theirs}");
}

#[test]
fn no_common_esp_proposal_leaves_nothing_behind() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.children[0].proposals = vec!["aes128-sha256".parse().expect("a proposal")];
    gateway.children[0].proposals = vec!["aes256gcm16".parse().expect("a proposal")];
    let mut pair = Pair::new(client, gateway, 3);
    pair.connect();
    pair.run_for(std::time::Duration::from_secs(10));
    let ours = pair.client.failure().expect("it fails");
    assert!(matches!(ours, NegotiationError::ProposalsRefused { what: "ESP", .. }), "{ours}");
    assert!(pair.client.endpoint.is_empty() && pair.gateway.endpoint.is_empty());
    assert!(pair.client.closed.is_empty(), "it never was up");
}

#[test]
fn selectors_without_overlap_are_explained() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    common::site_to_site(&mut client, "10.1.0.0/16", "10.2.0.0/16");
    common::site_to_site(&mut gateway, "10.3.0.0/16", "10.1.0.0/16");
    let mut pair = Pair::new(client, gateway, 4);
    pair.connect();
    pair.settle();
    let ours = pair.client.failure().expect("it fails");
    assert!(matches!(ours, NegotiationError::TrafficSelectors { .. }), "{ours}");
    assert!(ours.to_string().contains("10.2.0.0/16"), "{ours}");
}

fn under_load() -> EndpointConfig {
    let half_open = HalfOpen { cookie_threshold: 0, ..HalfOpen::default() };
    EndpointConfig { half_open, ..gateway_config(gateway_psk(), 5) }
}

#[test]
fn under_load_a_cookie_comes_first_and_no_state_before_it() {
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), under_load(), 5);
    pair.connect();
    let (_, first) = pair.wire.pop_first().expect("the first message");
    for port in 1..=100 {
        let mut forged = path(GATEWAY, "203.0.113.9:500");
        forged.remote.set_port(port);
        let result = pair.gateway.endpoint.handle_datagram(pair.now, forged, &mut first.bytes.clone());
        assert_eq!(result, Err(Discard::NoCookie));
    }
    pair.flush();
    pair.wire.clear(); // the cookies went to the forged addresses
    assert!(pair.gateway.endpoint.is_empty() && pair.gateway.endpoint.half_open() == 0);
    pair.deliver(first);
    pair.settle();
    let a = pair.client.established().expect("the cookie was returned");
    assert_eq!(pair.client.endpoint.sa_stats(a.sa).expect("it is there").round_trips, 4);
}

/// Its sender repeats the first message before the cookie reaches it, and the load has gone when the repetition comes: the gateway lets it in without
/// a cookie, and then gets the message with one, which is what the client signs.
#[test]
fn a_repetition_that_overtakes_its_cookie_does_not_spoil_the_handshake() {
    let half_open = HalfOpen { cookie_threshold: 1, ..HalfOpen::default() };
    let config = EndpointConfig { half_open, ..gateway_config(gateway_psk(), 8) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 8);
    // Another newcomer takes the one place that costs no cookie.
    let mut other = Pair::psk(9);
    other.connect();
    let (_, mut load) = other.wire.pop_first().expect("the first message");
    let elsewhere = path(GATEWAY, "203.0.113.9:500");
    assert_eq!(pair.gateway.endpoint.handle_datagram(pair.now, elsewhere, &mut load.bytes), Ok(()));
    pair.flush();
    pair.wire.clear();

    pair.connect();
    let (_, first) = pair.wire.pop_first().expect("the first message");
    pair.deliver(first.clone());
    let (_, cookie) = pair.wire.pop_first().expect("a cookie");
    pair.deliver(cookie);
    let (_, with_cookie) = pair.wire.pop_first().expect("the message with it");
    assert!(with_cookie.bytes.len() > first.bytes.len());
    // The other one is gone.
    pair.now += Duration::from_secs(40);
    pair.gateway.endpoint.handle_timeout(pair.now);
    assert_eq!(pair.gateway.endpoint.half_open(), 0);
    pair.deliver(first);
    assert_eq!(pair.gateway.endpoint.half_open(), 1, "without a cookie");
    let (_, answer) = pair.wire.pop_first().expect("an answer");
    // With a cookie that is not ours it is another message, and changes nothing.
    let mut forged = with_cookie.bytes.clone();
    forged[40] ^= 1;
    let from = Path { remote: with_cookie.from, ..elsewhere };
    let refused = pair.gateway.endpoint.handle_datagram(pair.now, from, &mut forged);
    assert_eq!(refused, Err(Discard::InappropriateExchange));
    pair.deliver(with_cookie);
    pair.deliver(answer);
    pair.settle();
    assert!(pair.client.established().is_some(), "{:?}", pair.client.failure());
    pair.assert_agree();
}

#[test]
fn half_open_sas_are_bounded_and_expire() {
    let half_open = HalfOpen { cookie_threshold: 1_000, max: 20, ..HalfOpen::default() };
    let config = EndpointConfig { half_open, ..gateway_config(gateway_psk(), 6) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 6);
    let mut accepted = 0;
    for seed in 0..50u64 {
        let mut other = Pair::psk(1_000 + seed);
        other.connect();
        let (_, mut first) = other.wire.pop_first().expect("the first message");
        let from = format!("203.0.113.{}:500", seed % 10);
        let result = pair.gateway.endpoint.handle_datagram(pair.now, path(GATEWAY, &from), &mut first.bytes);
        accepted += usize::from(result.is_ok());
    }
    assert_eq!((accepted, pair.gateway.endpoint.half_open()), (20, 20));
    pair.run_for(std::time::Duration::from_secs(60));
    assert!(pair.gateway.endpoint.is_empty() && pair.gateway.endpoint.half_open() == 0);
}

#[test]
fn a_repeated_first_message_gets_the_same_answer() {
    let mut pair = Pair::psk(7);
    pair.connect();
    let (_, first) = pair.wire.pop_first().expect("the first message");
    for _ in 0..3 {
        pair.deliver(first.clone());
    }
    let answers: Vec<_> = std::mem::take(&mut pair.wire).into_values().map(|d| d.bytes).collect();
    assert_eq!(answers.len(), 3);
    assert!(answers.windows(2).all(|w| w[0] == w[1]));
    assert_eq!(pair.gateway.endpoint.half_open(), 1);
    assert_eq!(pair.gateway.endpoint.stats().answered.get(&Kind::Init), Some(&1));
}

#[test]
fn the_connection_is_found_by_identity() {
    let mut first = gateway_psk();
    first.name = "others".to_owned();
    first.remote_id = dormouse_ike::config::IdentityPattern::Exact(common::fqdn("somebody.else"));
    let mut config = gateway_config(gateway_psk(), 8);
    config.connections.insert(0, Arc::new(first));
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 8);
    pair.connect();
    pair.settle();
    assert_eq!(pair.gateway.established().expect("up").connection, "clients");
}

#[test]
fn a_full_gateway_drops_newcomers_and_keeps_its_own() {
    let config = EndpointConfig { max_sas: Some(1), ..gateway_config(gateway_psk(), 8) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 8);
    pair.up();
    let mut other = Pair::psk(9);
    other.connect();
    let (_, mut first) = other.wire.pop_first().expect("the first message");
    let from = path(GATEWAY, "203.0.113.7:500");
    let result = pair.gateway.endpoint.handle_datagram(pair.now, from, &mut first.bytes);
    assert_eq!(result, Err(dormouse_ike::Discard::TooManySas));
    assert_eq!(pair.gateway.endpoint.len(), 1);
    pair.assert_agree();
}

#[test]
fn a_repeated_request_is_answered_from_where_it_came_to() {
    let mut pair = Pair::psk(21);
    pair.connect();
    let first = pair.log.first().expect("the request").clone();
    pair.filter = Some(Box::new(|datagram| !datagram.to_gateway));
    pair.run_for(Duration::from_millis(50));
    let elsewhere = common::addr("198.51.100.2:500");
    pair.deliver(common::Datagram { to: elsewhere, ..first });
    let answers: Vec<_> =
        pair.log.iter().filter(|d| !d.to_gateway).map(|d| (d.from, d.bytes.clone())).collect();
    assert_eq!(answers.len(), 2);
    assert_eq!((answers[0].0, answers[1].0), (common::addr(common::GATEWAY), elsewhere));
    assert_eq!(answers[0].1, answers[1].1);
}
