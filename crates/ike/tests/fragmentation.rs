//! IKE fragmentation (RFC 7383): a long certificate chain over a path that carries small packets only, with losses.

mod common;

use std::time::Duration;

use common::{Faults, Pair, client_psk, gateway_psk};
use dormouse_ike::config::{Connection, SelectorSpec};
use dormouse_sansio::Seeded;

/// Makes IKE_AUTH long: sixty selectors of IPv6.
fn talkative(mut conn: Connection, local_side: bool) -> Connection {
    conn.fragmentation.size = 600;
    let child = &mut conn.children[0];
    let list = if local_side { &mut child.ts_local } else { &mut child.ts_remote };
    *list = (0..60u16)
        .map(|i| SelectorSpec::Net(format!("2001:db8:{i:x}::/48").parse().expect("a prefix")))
        .collect();
    conn
}

fn pair(seed: u64) -> Pair {
    Pair::new(talkative(client_psk(), false), talkative(gateway_psk(), true), seed)
}

#[test]
fn long_messages_travel_in_small_datagrams() {
    let mut pair = pair(1);
    let (a, _) = pair.up();
    assert_eq!(pair.client.children.values().next().expect("one").ts_remote.len(), 60);
    let protected: Vec<_> = pair.log.iter().filter(|d| d.bytes.len() > 4 && d.bytes[4 + 18] == 35).collect();
    assert!(protected.len() > 8, "{} datagrams", protected.len());
    assert!(protected.iter().all(|d| d.bytes.len() + 28 <= 600), "IP and UDP headers included");
    assert_eq!(pair.client.endpoint.sa_stats(a).expect("it is there").round_trips, 3);
}

#[test]
fn lost_doubled_and_late_fragments() {
    let mut up = 0;
    for seed in 0..100 {
        let mut pair = pair(seed);
        pair.faults = Some(Faults { seed: Seeded::new(seed), lost: 5, doubled: 20, late: 50 });
        pair.connect();
        pair.run_for(Duration::from_secs(60));
        if pair.client.established().is_some() {
            up += 1;
            pair.assert_agree();
        }
    }
    assert!(up >= 90, "{up} of 100");
}

#[test]
fn a_peer_that_cannot_gets_whole_messages() {
    let mut gateway = talkative(gateway_psk(), true);
    gateway.fragmentation.enabled = false;
    let mut pair = Pair::new(talkative(client_psk(), false), gateway, 3);
    pair.up();
    assert!(pair.log.iter().any(|d| d.bytes.len() > 1_500));
}
