//! IKE_SA_INIT and IKE_AUTH with a pre-shared key, and the first CHILD SA, between two endpoints.

mod common;

use common::{Pair, client_psk, fqdn, gateway_psk};
use dormouse_ike::NegotiationError;
use dormouse_ike::config::{IdentityPattern, LocalAuth};

#[test]
fn two_round_trips_make_an_ike_sa_and_a_child_sa() {
    let mut client = client_psk();
    client.ike_proposals = vec!["aes256gcm16-prfsha256-x25519".parse().expect("a proposal")];
    let mut pair = Pair::new(client, gateway_psk(), 1);
    let (sa, _) = pair.up();
    assert_eq!(pair.client.children.len(), 1);
    let stats = pair.client.endpoint.sa_stats(sa).expect("it is there");
    assert_eq!((stats.datagrams_out, stats.datagrams_in, stats.round_trips), (2, 2, 2));
    let child = pair.client.children.values().next().expect("installed");
    assert_eq!(child.ts_local[0].start, "10.9.0.2".parse::<std::net::IpAddr>().expect("an address"));
    assert!(child.send_now);
}

#[test]
fn a_wrong_key_is_told_to_both_sides() {
    let mut client = client_psk();
    client.local_auth = LocalAuth::Psk(dormouse_crypto::Secret::from(&b"wrong"[..]));
    let mut pair = Pair::new(client, gateway_psk(), 2);
    pair.connect();
    pair.settle();
    let error = pair.client.failure().expect("it fails");
    assert!(
        matches!(&error, NegotiationError::RefusedByPeer { local_id } if *local_id == fqdn("client.example.org"))
    );
    let why = pair.gateway.peer_failure().expect("the log knows").to_string();
    assert!(why.contains("pre-shared key of client.example.org"), "{why}");
    assert!(pair.client.endpoint.is_empty() && pair.gateway.children.is_empty());
}

#[test]
fn a_gateway_with_another_identity_is_not_believed() {
    let mut client = client_psk();
    client.remote_id = IdentityPattern::Exact(fqdn("other.example.org"));
    let mut pair = Pair::new(client, gateway_psk(), 3);
    pair.connect();
    pair.settle();
    // The client names in IDr whom it wants; the gateway has no such identity.
    let why = pair.gateway.peer_failure().expect("the log knows").to_string();
    assert!(why.contains("other.example.org"), "{why}");
    assert!(pair.client.failure().is_some());
}

#[test]
fn a_gateway_that_does_not_answer_is_given_up() {
    let mut pair = Pair::psk(4);
    pair.filter = Some(Box::new(|_| false));
    pair.connect();
    pair.run_for(std::time::Duration::from_secs(60));
    let error = pair.client.failure().expect("it fails");
    assert!(matches!(error, NegotiationError::Timeout { exchange: "IKE_SA_INIT", sent: 6, .. }), "{error}");
    assert_eq!(pair.client.endpoint.poll_timeout(), None, "nothing is retried by itself");
}
