//! Lost, doubled and late datagrams: connecting, rekeying and closing end well all the same.

mod common;

use std::time::Duration;

use common::{Faults, Pair};
use dormouse_sansio::Seeded;

/// Runs of this many seeds; more by `DORMOUSE_RUNS`.
fn runs() -> u64 {
    std::env::var("DORMOUSE_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

#[test]
fn two_ends_never_disagree_for_long() {
    let (mut connected, mut lived) = (0, 0);
    for seed in 0..runs() {
        let mut pair = Pair::psk(seed);
        let faults = |seed| Some(Faults { seed: Seeded::new(seed), lost: 15, doubled: 10, late: 30 });
        pair.faults = faults(seed);
        let sa = pair.connect();
        pair.run_for(Duration::from_secs(60));
        let Some(established) = pair.client.established() else {
            assert!(pair.client.failure().is_some(), "seed {seed}: neither up nor failed");
            continue;
        };
        assert_eq!(established.sa, sa);
        connected += 1;
        let gateway = pair.gateway.established().map(|e| e.sa);
        let child = pair.client.children.keys().next().copied();
        match seed % 4 {
            0 => drop(pair.client.endpoint.rekey_ike(pair.now, sa)),
            1 => drop(child.map(|c| pair.client.endpoint.rekey_child(pair.now, c))),
            2 => drop(gateway.map(|g| pair.gateway.endpoint.rekey_ike(pair.now, g))),
            _ => {
                let child = pair.gateway.children.keys().next().copied();
                drop(child.map(|c| pair.gateway.endpoint.rekey_child(pair.now, c)));
            }
        }
        pair.run_for(Duration::from_secs(120));
        if pair.client.closed.is_empty() && pair.gateway.closed.is_empty() {
            lived += 1;
            pair.assert_agree();
            assert_eq!(pair.client.children.len(), 1, "seed {seed}");
            assert_eq!(
                (pair.client.endpoint.len(), pair.gateway.endpoint.len()),
                (1, 1),
                "seed {seed}: SAs left over"
            );
        }
        pair.client.endpoint.close(pair.now, sa);
        pair.run_for(Duration::from_secs(120));
        assert!(pair.client.endpoint.is_empty() && pair.client.children.is_empty(), "seed {seed}");
    }
    // 15 % loss each way and six tries: failures are rare.
    assert!(
        connected * 100 >= runs() * 97 && lived * 100 >= connected * 95,
        "{connected} connected, {lived} lived"
    );
}
