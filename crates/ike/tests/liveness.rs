//! Is the peer still there (RFC 7296 section 2.4): by timer, on request, and on a hint that anybody can forge.

mod common;

use std::time::Duration;

use common::{LATENCY, Pair, client_psk, gateway_psk};
use dormouse_ike::{CloseReason, Event, Kind};

#[test]
fn silence_is_asked_about_and_a_dead_peer_is_given_up() {
    let mut client = client_psk();
    client.timing.liveness.interval = Some(Duration::from_secs(60));
    let mut pair = Pair::new(client, gateway_psk(), 1);
    let (a, _) = pair.up();
    pair.run_for(Duration::from_secs(305));
    let stats = pair.client.endpoint.sa_stats(a).expect("it is there");
    assert_eq!(stats.begun.get(&Kind::Liveness), Some(&5));
    pair.filter = Some(Box::new(|d| !d.to_gateway));
    pair.run_for(Duration::from_secs(150));
    assert_eq!(pair.client.closed, [(a, CloseReason::TimedOut)]);
}

#[test]
fn traffic_stands_for_liveness() {
    let mut client = client_psk();
    client.timing.liveness.interval = Some(Duration::from_secs(60));
    let mut pair = Pair::new(client, gateway_psk(), 2);
    let (a, _) = pair.up();
    for _ in 0..10 {
        pair.run_for(Duration::from_secs(30));
        pair.client.endpoint.note_traffic(pair.now, a, None, Some(pair.now));
    }
    let stats = pair.client.endpoint.sa_stats(a).expect("it is there");
    assert_eq!(stats.begun.get(&Kind::Liveness), None);
}

#[test]
fn a_probe_is_answered_or_fails_by_its_own_deadline() {
    let mut pair = Pair::psk(3);
    let (a, _) = pair.up();
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(2));
    pair.settle();
    let after = pair.client.take(|e| match e {
        Event::ProbeAnswered { sa, after } if *sa == a => Some(*after),
        _ => None,
    });
    assert_eq!(after, Some(LATENCY * 2));
    pair.filter = Some(Box::new(|_| false));
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(2));
    pair.run_for(Duration::from_secs(3));
    assert!(pair.client.take(|e| matches!(e, Event::ProbeFailed { .. }).then_some(())).is_some());
    assert!(pair.client.closed.is_empty(), "the driver decides");
    pair.filter = None;
    pair.run_for(Duration::from_secs(10));
    assert!(pair.client.closed.is_empty(), "a late answer saves it");
}

#[test]
fn a_restarted_gateway_is_noticed_by_its_complaint_and_proved_by_a_probe() {
    let mut pair = Pair::psk(4);
    let (a, _) = pair.up();
    let fresh = Pair::psk(99);
    pair.gateway = fresh.gateway;
    pair.client.endpoint.probe(pair.now, a, Duration::from_secs(30));
    pair.run_for(Duration::from_secs(3));
    assert!(pair.client.take(|e| matches!(e, Event::PeerLostSa { .. }).then_some(())).is_some());
    assert!(
        pair.client.take(|e| matches!(e, Event::ProbeFailed { .. }).then_some(())).is_some(),
        "after 2 s, not 30"
    );
    assert!(pair.client.closed.is_empty(), "an unauthenticated message never kills an SA");
}
