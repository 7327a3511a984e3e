//! What an idle SA costs: every wake-up of an hour has a reason.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Nat, Pair, client_psk, gateway_psk};
use dormouse_ike::config::Keepalive;

const HOUR: Duration = Duration::from_secs(3_600);

fn wakes_of_an_hour(pair: &mut Pair) -> BTreeMap<&'static str, u32> {
    pair.up();
    pair.client.wakes.clear();
    pair.gateway.wakes.clear();
    let sent = pair.client.endpoint.stats().datagrams_out;
    pair.run_for(HOUR);
    assert!(pair.client.closed.is_empty(), "seed {}", pair.seed);
    if pair.client.wakes.is_empty() {
        assert_eq!(pair.client.endpoint.stats().datagrams_out, sent);
    }
    pair.client.wakes.clone()
}

#[test]
fn nothing_at_all_without_nat_and_liveness() {
    let mut pair = Pair::psk(1);
    assert_eq!(wakes_of_an_hour(&mut pair), BTreeMap::new());
    assert!(pair.gateway.wakes.is_empty(), "{:?}", pair.gateway.wakes);
    let next = pair.client.endpoint.poll_timeout().expect("one deadline");
    assert_eq!(next.why, "child rekey");
    assert!(next.slack >= Duration::from_secs(60), "{next:?}");
}

#[test]
fn fixed_keepalives_behind_a_nat_and_nothing_else() {
    let mut client = client_psk();
    client.timing.keepalive = Keepalive::Seconds(120);
    let mut pair = Pair::new(client, gateway_psk(), 2);
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    let wakes = wakes_of_an_hour(&mut pair);
    assert_eq!(wakes.keys().copied().collect::<Vec<_>>(), ["nat keepalive"]);
    assert!((28..=36).contains(&wakes["nat keepalive"]), "{wakes:?}");
}

#[test]
fn no_keepalives_when_they_are_off() {
    let mut client = client_psk();
    client.timing.keepalive = Keepalive::Off;
    let mut pair = Pair::new(client, gateway_psk(), 3);
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    assert_eq!(wakes_of_an_hour(&mut pair), BTreeMap::new());
}

#[test]
fn automatic_keepalives_find_a_patient_nat() {
    let mut pair = Pair::psk(4);
    pair.nat = Some(Nat::new("203.0.113.5", Duration::from_secs(600)));
    let wakes = wakes_of_an_hour(&mut pair);
    // At 20 s it would be 180 a hour. Answers to the checks cost retransmission deadlines only if they are late.
    assert_eq!(wakes.keys().copied().collect::<Vec<_>>(), ["nat keepalive"]);
    assert!(wakes["nat keepalive"] <= 22, "{wakes:?}");
}
