//! Both ends do anything at any time, over a bad network, through a NAT that forgets: no stuck SA, no disagreement.

mod common;

use std::time::Duration;

use common::{Faults, Nat, Pair, client_psk, gateway_config, gateway_psk, natt_path, seeds};
use dormouse_ike::EndpointConfig;
use dormouse_keying::SaId;
use dormouse_sansio::{Entropy, Seeded};

/// One thing that an end may do.
fn act(pair: &mut Pair, dice: &mut Seeded, a: SaId, b: SaId) {
    let now = pair.now;
    let by_client = dice.below(2) == 0;
    let (side, sa) = if by_client { (&mut pair.client, a) } else { (&mut pair.gateway, b) };
    match dice.below(9) {
        0 | 1 => {
            side.endpoint.rekey_ike(now, sa);
        }
        2 | 3 => {
            let child = side.children.keys().next().copied();
            child.map(|c| side.endpoint.rekey_child(now, c));
        }
        4 => {
            side.endpoint.probe(now, sa, Duration::from_secs(5));
        }
        5 => {
            let host = dice.below(250) + 1;
            let path = natt_path(&format!("100.64.3.{host}:4500"), "198.51.100.1:4500");
            pair.client.endpoint.set_path(now, a, path);
        }
        6 => {
            if let Some(nat) = pair.nat.as_mut() {
                nat.reboot();
            }
        }
        7 => {
            let list = [format!("192.0.2.{}", dice.below(200) + 1).parse().expect("an address")];
            pair.gateway.endpoint.set_own_addresses(now, &list);
        }
        _ => {
            side.endpoint.create_child(now, sa, 0);
        }
    }
    pair.flush();
}

fn run(seed: u64) -> bool {
    let mut dice = Seeded::new(seed ^ 0xd1ce);
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    // Gone peers are noticed while we watch.
    client.timing.liveness.interval = Some(Duration::from_secs(300));
    gateway.timing.liveness.interval = Some(Duration::from_secs(600));
    // RFC 4555 section 3.11: the client finds out first; the responder tries for five minutes.
    gateway.timing.liveness.timeout = Duration::from_secs(300);
    if seed.is_multiple_of(3) {
        client.children[0].proposals = vec!["aes128gcm16".parse().expect("a proposal")];
        gateway.children[0].proposals = client.children[0].proposals.clone();
    }
    if seed % 3 == 1 {
        client.children[0].proposals = vec!["aes128gcm16-x25519-ke1_mlkem768".parse().expect("a proposal")];
        gateway.children[0].proposals = client.children[0].proposals.clone();
    }
    if seed.is_multiple_of(5) {
        gateway.mobility.return_routability = true;
    }
    // A window of several requests lets exchanges overtake each other.
    let window = if seed.is_multiple_of(7) { 4 } else { 1 };
    let ours = EndpointConfig { window, ..EndpointConfig::default() };
    let theirs = EndpointConfig { window, ..gateway_config(gateway, seed) };
    let mut pair = Pair::with_configs(client, ours, theirs, seed);
    if seed.is_multiple_of(2) {
        pair.nat = Some(Nat::new("203.0.113.5", Duration::from_secs(60)));
    }
    let (a, b) = pair.up();
    let lost = if seed.is_multiple_of(4) { 0 } else { 10 };
    pair.faults = Some(Faults { seed: Seeded::new(seed), lost, doubled: 10, late: 40 });
    for _ in 0..dice.below(25) {
        act(&mut pair, &mut dice, a, b);
        let pause = [1, 15, 25, 300, 3_000][usize::try_from(dice.below(5)).expect("below 5")];
        pair.run_for(Duration::from_millis(pause));
    }
    pair.faults = None;
    // Long enough for the gateway to miss a client that gave up last: its liveness interval, and its patience.
    pair.run_for(Duration::from_secs(1_500));
    let closed = (pair.client.closed.is_empty(), pair.gateway.closed.is_empty());
    assert_eq!(
        closed.0, closed.1,
        "seed {seed}: one end thinks that the SA lives: {:?} {:?}",
        pair.client.closed, pair.gateway.closed
    );
    if closed.0 {
        pair.assert_agree();
        assert_eq!(
            (pair.client.endpoint.len(), pair.gateway.endpoint.len()),
            (1, 1),
            "seed {seed}: left-over SAs"
        );
        // It still does everything.
        pair.client.endpoint.rekey_ike(pair.now, a);
        pair.run_for(Duration::from_secs(30));
        pair.gateway.endpoint.rekey_ike(pair.now, b);
        pair.run_for(Duration::from_secs(30));
        pair.assert_agree();
        assert!(pair.client.closed.is_empty() && pair.gateway.closed.is_empty(), "seed {seed}");
    } else {
        assert!(pair.client.children.is_empty() && pair.gateway.children.is_empty(), "seed {seed}");
    }
    closed.0
}

#[test]
fn anything_at_any_time() {
    let lived = seeds(300).filter(|&seed| run(seed)).count();
    let lived = u64::try_from(lived).expect("few");
    let runs = seeds(300).end - seeds(300).start;
    assert!(lived * 100 >= runs * 98, "{lived} of {runs} lived");
}
