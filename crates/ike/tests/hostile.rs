//! Messages that no peer should send: counted, dropped with a reason, and without effect.

mod common;

use common::{GATEWAY, Pair, path};
use dormouse_ike::Discard;
use dormouse_sansio::{Entropy, Path, Seeded};

/// A copy of the last datagram that the client sent, and the path on which the gateway gets it.
fn last_to_gateway(pair: &Pair) -> (Path, Vec<u8>) {
    let last = pair.log.iter().rev().find(|d| d.to_gateway).expect("one");
    let path = Path { local: last.to, remote: last.from, carrier: last.carrier };
    (path, last.bytes[4..].to_vec())
}

#[test]
fn every_flipped_bit_of_a_protected_message_is_noticed() {
    let mut pair = Pair::psk(1);
    pair.up();
    let (from, message) = last_to_gateway(&pair);
    for bit in 0..message.len() * 8 {
        let mut bad = message.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let result = pair.gateway.endpoint.handle_datagram(pair.now, from, &mut bad);
        assert!(result.is_err(), "bit {bit}: {result:?}");
    }
    pair.settle();
    assert!(pair.gateway.closed.is_empty() && pair.gateway.endpoint.len() == 1);
}

#[test]
fn a_replayed_request_is_answered_from_memory_and_changes_nothing() {
    let mut pair = Pair::psk(2);
    let (a, _) = pair.up();
    pair.client.endpoint.rekey_ike(pair.now, a);
    pair.settle();
    let old: Vec<_> = pair.log.iter().filter(|d| d.to_gateway).cloned().collect();
    let (sas, children) = (pair.gateway.endpoint.len(), pair.gateway.children.len());
    for datagram in old {
        pair.deliver(datagram);
    }
    pair.settle();
    // The replayed first message costs one half-open SA for its lifetime, nothing else.
    assert_eq!(pair.gateway.endpoint.len() - pair.gateway.endpoint.half_open(), sas);
    assert_eq!(pair.gateway.children.len(), children);
    assert!(pair.gateway.closed.is_empty() && pair.client.closed.is_empty());
}

#[test]
fn noise_never_panics_and_is_counted() {
    let mut pair = Pair::psk(3);
    pair.up();
    let (_, message) = last_to_gateway(&pair);
    let mut noise = Seeded::new(3);
    for i in 0..20_000u64 {
        let mut bytes = message.clone();
        for _ in 0..=noise.below(6) {
            let at = usize::try_from(noise.below(bytes.len() as u64)).expect("small");
            bytes[at] = u8::try_from(noise.below(256)).expect("a byte");
        }
        bytes.truncate(usize::try_from(noise.below(bytes.len() as u64 + 1)).expect("small"));
        if i % 2 == 0 && bytes.len() >= 28 {
            let length = u32::try_from(bytes.len()).expect("small");
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        }
        let _ = pair.gateway.endpoint.handle_datagram(pair.now, path(GATEWAY, common::CLIENT), &mut bytes);
        while pair.gateway.endpoint.poll_transmit(pair.now, &mut Vec::new()).is_some() {}
    }
    let stats = pair.gateway.endpoint.stats();
    assert!(stats.discards.values().sum::<u64>() > 19_000, "{stats:?}");
    pair.settle();
    assert!(pair.gateway.closed.is_empty());
}

#[test]
fn complaints_about_unknown_spis_are_rate_limited() {
    let mut pair = Pair::psk(4);
    pair.up();
    let (from, message) = last_to_gateway(&pair);
    let (mut complaints, mut stranger) = (0, Pair::psk(5));
    for i in 0..1_000u32 {
        let mut unknown = message.clone();
        unknown[8..12].copy_from_slice(&i.to_be_bytes());
        let result = stranger.gateway.endpoint.handle_datagram(stranger.now, from, &mut unknown);
        assert_eq!(result, Err(Discard::UnknownSpi));
        while stranger.gateway.endpoint.poll_transmit(stranger.now, &mut Vec::new()).is_some() {
            complaints += 1;
        }
    }
    assert_eq!(complaints, 64);
}

/// Before, a hundred a second were all that there were, for everybody: one stranger used them up, and a client whose gateway had been
/// restarted was not told.
#[test]
fn a_stranger_uses_up_its_own_share_of_hints_alone() {
    let mut gateway = Pair::psk(15).gateway.endpoint;
    let now = dormouse_sansio::Instant::ZERO;
    let mut told = |from: &str| {
        gateway.unknown_esp_spi(now, path(GATEWAY, from), 0x1234_5678);
        gateway.poll_transmit(now, &mut Vec::new()).is_some()
    };
    for n in 0..1_000u32 {
        assert_eq!(
            told(&format!("[2001:db8::{n:x}]:500")),
            n < 64,
            "all addresses of a /64 are one stranger's"
        );
    }
    assert!(told("192.0.2.7:500") && told("[2001:db8:0:1::1]:500"));
    // Forged senders get no more than there is memory for.
    let forged = (0..10_000u32).filter(|n| told(&format!("10.0.{}.{}:500", n / 256, n % 256))).count();
    assert_eq!(forged, 4_096 - 3);
}

#[test]
fn a_newer_major_version_is_told_ours() {
    let mut pair = Pair::psk(6);
    pair.connect();
    let (_, first) = pair.wire.pop_first().expect("the first message");
    let mut newer = first.bytes.clone();
    newer[17] = 0x30;
    let result = pair.gateway.endpoint.handle_datagram(pair.now, path(GATEWAY, common::CLIENT), &mut newer);
    assert_eq!(result, Err(Discard::Version));
    let mut answer = Vec::new();
    pair.gateway.endpoint.poll_transmit(pair.now, &mut answer).expect("an answer");
    assert_eq!(
        (answer[17], answer[28 + 6], answer[28 + 7]),
        (0x20, 0, 5),
        "INVALID_MAJOR_VERSION in version 2.0"
    );
}
