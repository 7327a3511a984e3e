//! Rekeying of IKE and CHILD SAs by either side, on request and by timer (RFC 7296 section 2.8).

mod common;

use std::time::Duration;

use common::{Pair, client_psk, gateway_psk};
use dormouse_ike::config::Lifetime;

#[test]
fn a_child_is_replaced_by_either_side() {
    for by_client in [true, false] {
        let mut pair = Pair::psk(1);
        pair.up();
        let old: Vec<_> = pair.client.children.keys().copied().collect();
        let spi = pair.client.children[&old[0]].child.spi();
        let side = if by_client { &mut pair.client } else { &mut pair.gateway };
        let child = *side.children.keys().next().expect("one");
        assert!(side.endpoint.rekey_child(pair.now, child));
        pair.settle();
        pair.assert_agree();
        assert_eq!(pair.client.children.len(), 1);
        let new = pair.client.children.values().next().expect("one");
        assert_ne!(new.child.spi(), spi);
        assert_eq!(new.replaces, Some(old[0]));
        assert_eq!(new.send_now, by_client);
    }
}

#[test]
fn an_ike_sa_is_replaced_by_either_side_and_keeps_its_name() {
    for by_client in [true, false] {
        let mut pair = Pair::psk(2);
        let (a, b) = pair.up();
        let children: Vec<_> = pair.client.children.keys().copied().collect();
        let side = if by_client { &mut pair.client } else { &mut pair.gateway };
        side.endpoint.rekey_ike(pair.now, if by_client { a } else { b });
        pair.settle();
        assert_eq!((pair.client.endpoint.len(), pair.gateway.endpoint.len()), (1, 1));
        assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty());
        assert_eq!(
            pair.client.children.keys().copied().collect::<Vec<_>>(),
            children,
            "children are inherited"
        );
        // The successor works in both directions, and again.
        pair.client.endpoint.rekey_child(pair.now, children[0]);
        pair.settle();
        pair.gateway.endpoint.rekey_ike(pair.now, b);
        pair.settle();
        pair.client.endpoint.rekey_ike(pair.now, a);
        pair.settle();
        pair.assert_agree();
        assert_eq!(pair.client.children.len(), 1);
        assert_eq!((pair.client.endpoint.len(), pair.gateway.endpoint.len()), (1, 1));
    }
}

#[test]
fn a_day_of_short_lifetimes() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    for conn in [&mut client, &mut gateway] {
        conn.timing.lifetime = Lifetime::of_time(Duration::from_secs(3_600));
        conn.children[0].lifetime = Lifetime::of_time(Duration::from_secs(900));
    }
    let mut pair = Pair::new(client, gateway, 3);
    pair.up();
    for _ in 0..24 * 6 {
        pair.run_for(Duration::from_secs(600));
        assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty(), "at {:?}", pair.now);
        assert!(!pair.client.children.is_empty());
    }
    pair.assert_agree();
    let begun = &pair.client.endpoint.stats().begun;
    let total = begun[&dormouse_ike::Kind::RekeyIke];
    assert!((22..=30).contains(&total), "{begun:?}");
}
