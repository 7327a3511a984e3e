//! Lost, doubled and late datagrams: connecting, rekeying and closing end well all the same.

mod common;

use std::time::Duration;

use common::{Faults, Pair, seeds};
use dormouse_sansio::Seeded;

#[test]
fn two_ends_never_disagree_for_long() {
    let (mut connected, mut lived) = (0, 0);
    for seed in seeds(300) {
        let mut pair = Pair::psk(seed);
        pair.faults = Some(Faults { seed: Seeded::new(seed), lost: 15, doubled: 10, late: 30 });
        let sa = pair.connect();
        pair.run_for(Duration::from_secs(60));
        let Some(established) = pair.client.established() else {
            assert!(pair.client.failure().is_some(), "seed {seed}: neither up nor failed");
            continue;
        };
        assert_eq!(established.sa, sa);
        connected += 1;
        let gateway = pair.gateway.established().map(|e| e.sa);
        let by_client = seed.is_multiple_of(2);
        let (side, name) =
            if by_client { (&mut pair.client, Some(sa)) } else { (&mut pair.gateway, gateway) };
        match (name, side.children.keys().next().copied()) {
            (Some(name), _) if seed % 4 < 2 => side.endpoint.rekey_ike(pair.now, name),
            (_, Some(child)) => side.endpoint.rekey_child(pair.now, child),
            _ => false,
        };
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
    let runs = seeds(300).end - seeds(300).start;
    assert!(
        connected * 100 >= runs * 97 && lived * 100 >= connected * 95,
        "{connected} connected, {lived} lived"
    );
}
