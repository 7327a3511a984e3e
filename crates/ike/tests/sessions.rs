//! What surrounds a session: INITIAL_CONTACT, reauthentication, additional CHILD SAs, transport mode, configuration.

mod common;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use common::{Pair, Pool, client_psk, gateway_config, gateway_psk};
use dormouse_ike::EndpointConfig;
use dormouse_ike::admission::Refusal;
use dormouse_ike::config::{ChildMode, SelectorSpec};
use dormouse_ike::limits::{BEGIN_BURST, BEGIN_EVERY};
use dormouse_ike::{CloseReason, Event, NegotiationError};
use dormouse_keying::Mode;

#[test]
fn initial_contact_clears_what_a_crash_left() {
    let mut pair = Pair::psk(1);
    let (a, b) = pair.up();
    pair.client.endpoint.forget(pair.now, a);
    pair.flush();
    let (_, again) = pair.up();
    assert_ne!(b, again);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::Replaced)]);
    assert_eq!(pair.gateway.endpoint.len(), 1);
}

#[test]
fn reauthentication_makes_before_it_breaks() {
    let mut client = client_psk();
    client.timing.reauthenticate = Some(Duration::from_secs(3_600));
    let mut pair = Pair::new(client, gateway_psk(), 3);
    let (a, _) = pair.up();
    pair.run_for(Duration::from_secs(3_700));
    let new = pair.client.established().expect("a second one");
    assert_eq!(new.replaced, Some(a));
    assert_eq!(pair.client.closed, [(a, CloseReason::Replaced)]);
    assert_eq!((pair.client.endpoint.len(), pair.gateway.endpoint.len()), (1, 1));
    assert_eq!(new.configuration.v4, Some("10.9.0.2".parse().expect("an address")), "the lease is kept");
    pair.assert_agree();
}

#[test]
fn additional_children_follow_by_themselves_and_on_request() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    common::site_to_site(&mut client, "10.1.0.0/16", "10.2.0.0/16");
    common::site_to_site(&mut gateway, "10.2.0.0/16", "10.1.0.0/16");
    for (conn, local, remote) in
        [(&mut client, "10.1.0.0/16", "10.3.0.0/16"), (&mut gateway, "10.3.0.0/16", "10.1.0.0/16")]
    {
        let mut child = conn.children[0].clone();
        child.name = "second".to_owned();
        child.ts_local = vec![SelectorSpec::Net(local.parse().expect("a prefix"))];
        child.ts_remote = vec![SelectorSpec::Net(remote.parse().expect("a prefix"))];
        conn.children.push(child);
    }
    let mut pair = Pair::new(client, gateway, 4);
    let (a, _) = pair.up();
    assert_eq!(pair.client.children.len(), 2);
    let behind: BTreeSet<IpAddr> = pair.client.children.values().map(|c| c.ts_remote[0].start).collect();
    assert_eq!(behind, BTreeSet::from(["10.2.0.0", "10.3.0.0"].map(|a| a.parse().expect("an address"))));
    pair.client.endpoint.create_child(pair.now, a, 1);
    pair.settle();
    assert_eq!(pair.client.children.len(), 3);
    pair.assert_agree();
}

#[test]
fn transport_mode_between_the_outer_addresses() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    for conn in [&mut client, &mut gateway] {
        conn.request.v4 = false;
        conn.request.dns = false;
        conn.answering.policy.pool.clear();
        conn.children[0].mode = ChildMode::Transport;
        conn.children[0].ts_local = vec![SelectorSpec::Dynamic];
        conn.children[0].ts_remote = vec![SelectorSpec::Dynamic];
    }
    let mut pair = Pair::new(client, gateway, 5);
    pair.up();
    let child = pair.client.children.values().next().expect("one");
    assert_eq!(child.mode, Mode::Transport);
    assert_eq!(child.ts_local[0].start, common::addr(common::CLIENT).ip());
    assert_eq!(child.ts_remote[0].start, common::addr(common::GATEWAY).ip());
}

#[test]
fn the_gateway_assigns_and_says_what_it_assigned() {
    let mut pair = Pair::psk(6);
    pair.connect();
    pair.settle();
    let ours = pair.client.established().expect("up").configuration;
    assert_eq!(ours.v4, Some("10.9.0.2".parse().expect("an address")));
    assert_eq!(ours.dns, ["10.9.0.1".parse::<IpAddr>().expect("an address")]);
    assert_eq!(pair.gateway.established().expect("up").configuration.addresses(), ours.addresses());
}

#[test]
fn an_empty_pool_or_a_missing_request_is_explained() {
    let pool = Box::new(Pool { max: Some(0), ..Pool::default() });
    let config = EndpointConfig { pool: Some(pool), ..gateway_config(gateway_psk(), 7) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 7);
    pair.connect();
    pair.settle();
    let told = pair.client.failure().expect("refused").to_string();
    assert!(told.starts_with("no inner address: the gateway has none left"), "{told}");
    let why = pair.gateway.take(|e| match e {
        Event::ChildFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    assert!(why.is_some_and(|w| w.contains("a larger pool.addresses")));
    let mut client = client_psk();
    client.request.v4 = false;
    client.request.dns = false;
    let mut pair = Pair::new(client, gateway_psk(), 8);
    pair.connect();
    pair.settle();
    assert!(matches!(pair.client.failure(), Some(NegotiationError::Addresses(_))));
    let why = pair.gateway.take(|e| match e {
        Event::ChildFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    assert!(why.is_some_and(|w| w.contains("CFG_REQUEST")));
}

#[test]
fn who_logs_in_again_and_again_is_let_in_at_a_pace() {
    let mut pair = Pair::psk(9);
    let (mut came, mut refused) = (0, 0);
    // Sixty more than there may be at once, in half a minute in which some thirty are let in besides.
    let begun = BEGIN_BURST + 60;
    for _ in 0..begun {
        pair.connect();
        pair.run_for(Duration::from_millis(100));
        came += usize::from(pair.gateway.established().is_some());
        let why = pair.gateway.peer_failure();
        let too_often = matches!(why, Some(NegotiationError::NotAdmitted(Refusal::TooOften(_))));
        refused += usize::from(too_often);
        let told = pair.client.failure();
        assert_eq!(too_often, matches!(told, Some(NegotiationError::Busy)), "{told:?}");
    }
    assert!((BEGIN_BURST..BEGIN_BURST + 40).contains(&came), "{came}");
    assert_eq!(came + refused, begun);
    pair.run_for(2 * BEGIN_EVERY);
    pair.connect();
    pair.settle();
    assert!(pair.gateway.established().is_some());
}
