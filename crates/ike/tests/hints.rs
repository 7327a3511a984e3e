//! Events besides the course of a session: keys to be stored, and hints of strangers.

mod common;

use std::time::Duration;

use common::{EPOCH, Nat, Pair, client_psk, gateway_config, gateway_psk};
use dormouse_ike::EndpointConfig;
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::{Event, NegotiationError};
use dormouse_keying::SaId;
use dormouse_sansio::Seeded;

#[test]
fn rotated_ticket_keys_are_told_before_a_ticket_under_them_leaves() {
    let day = Duration::from_secs(86_400);
    let keys = TicketKeys::generate(EPOCH, Duration::from_secs(3_600), day, &mut Seeded::new(5));
    let config = EndpointConfig { ticket_keys: Some(keys), ..gateway_config(gateway_psk(), 1) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 1);
    let rotated = |pair: &mut Pair| {
        pair.gateway.take(|e| match e {
            Event::TicketKeys { exported } => Some(exported.clone()),
            _ => None,
        })
    };
    let (a, _) = pair.up();
    assert!(rotated(&mut pair).is_none(), "fresh keys");
    pair.client.endpoint.forget(pair.now, a);
    pair.run_for(Duration::from_secs(2 * 3_600));
    assert!(rotated(&mut pair).is_none(), "an idle gateway does not rotate");
    pair.up();
    let exported = rotated(&mut pair).expect("with the next ticket");
    let stored = TicketKeys::import(exported.as_bytes(), day, day).expect("as exported");
    let ticket = pair.client.ticket.take().expect("given");
    let unix = dormouse_sansio::UnixTime(EPOCH.0 + 2 * 3_600 + 60);
    assert!(stored.open(ticket.opaque.as_bytes(), unix).is_ok(), "what was told opens the ticket");
}

fn hints(pair: &mut Pair) -> Vec<(SaId, bool)> {
    std::iter::from_fn(|| {
        pair.client.take(|e| match e {
            Event::PeerLostSa { sa, solicited } => Some((*sa, *solicited)),
            _ => None,
        })
    })
    .collect()
}

#[test]
fn invalid_spi_for_esp_is_an_unsolicited_hint_and_invalid_ike_spi_for_a_request_a_solicited_one() {
    let mut pair = Pair::psk(2);
    let (a, _) = pair.up();
    let spi = pair.client.children.values().next().expect("one").spi_out;
    let restarted = Pair::psk(99).gateway;
    pair.gateway = restarted;
    // The gateway that lost everything gets ESP.
    let path = common::natt_path("198.51.100.1:4500", "192.0.2.10:4500");
    pair.gateway.endpoint.unknown_esp_spi(pair.now, path, spi);
    pair.gateway.endpoint.unknown_esp_spi(pair.now, path, 255);
    pair.run_for(common::LATENCY + Duration::from_millis(1));
    assert_eq!(hints(&mut pair), [(a, false)]);
    // The probe that followed gets the other hint.
    pair.run_for(Duration::from_millis(100));
    let told = hints(&mut pair);
    assert!(!told.is_empty() && told.iter().all(|hint| *hint == (a, true)), "{told:?}");
    assert!(pair.client.closed.is_empty(), "hints end nothing");
}

#[test]
fn hints_about_strangers_spis_or_from_strangers_are_not_passed_on() {
    let mut pair = Pair::psk(3);
    pair.up();
    let spi = pair.client.children.values().next().expect("one").spi_out;
    let from = |host: &str| common::natt_path(&format!("{host}:4500"), "192.0.2.10:4500");
    pair.gateway.endpoint.unknown_esp_spi(pair.now, from("198.51.100.1"), spi ^ 1);
    pair.gateway.endpoint.unknown_esp_spi(pair.now, from("203.0.113.9"), spi);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(hints(&mut pair), []);
    for _ in 0..5 {
        pair.gateway.endpoint.unknown_esp_spi(pair.now, from("198.51.100.1"), spi);
    }
    pair.run_for(Duration::from_millis(100));
    assert_eq!(hints(&mut pair).len(), 1, "at most one in a while");
}

#[test]
fn a_nat_that_is_forbidden_is_noticed_when_the_session_begins() {
    let mut client = client_psk();
    client.mobility.no_nats_allowed = true;
    let mut pair = Pair::new(client.clone(), gateway_psk(), 4);
    pair.up();
    let mut pair = Pair::new(client, gateway_psk(), 5);
    pair.nat = Some(Nat::new("203.0.113.5", Duration::from_secs(300)));
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_none() && pair.gateway.established().is_none());
    let error = pair.client.failure().expect("refused");
    assert!(
        matches!(&error, NegotiationError::Notified(what) if what == "UNEXPECTED_NAT_DETECTED"),
        "{error}"
    );
    assert!(pair.gateway.peer_failure().is_some(), "and logged");
}
