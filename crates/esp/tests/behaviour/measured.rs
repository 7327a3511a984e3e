//! Suites that are only measured go the way of all others.

use dormouse_crypto::measure::Suite;
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{Discard, IPV4_IN_IP, Inbound, Outbound, SaParams};
use dormouse_sansio::Seeded;

use crate::common::ipv4;

#[test]
fn every_measured_suite_carries_packets_through_the_same_code() {
    // What cipher and keying material say here does not matter: the key is handed in.
    let params = SaParams::new(0x77, Encr::Aes128Gcm16, None, Secret::default());
    for suite in Suite::all() {
        let keymat: Vec<u8> = (0..suite.keymat_len()).map(|i| i as u8 ^ 0x5c).collect();
        let key = || suite.key(&keymat).unwrap();
        let mut out = Outbound::with_key(&params, key(), &mut Seeded::new(3));
        let mut inbound = Inbound::with_key(&params, key());
        for len in [28, 180, 333, 1_400] {
            let inner = ipv4(len);
            let mut slot = vec![0; out.sealed_len(len)];
            slot[out.head_len()..][..len].copy_from_slice(&inner);
            let sealed = out.seal(&mut slot, len, IPV4_IN_IP).unwrap();
            assert_eq!(sealed, slot.len(), "{suite}");
            if suite != Suite::NONE && !suite.to_string().starts_with("null") {
                assert!(
                    !slot.windows(16).any(|w| inner.windows(16).any(|v| v == w)),
                    "{suite} shows its plaintext"
                );
            }
            let mut damaged = slot.clone();
            let at = damaged.len() / 2;
            damaged[at] ^= 1;
            if suite != Suite::NONE {
                let refused = inbound.open(&mut damaged);
                assert!(matches!(refused, Err(Discard::Unauthentic { .. })), "{suite}: {refused:?}");
            }
            let opened = inbound.open(&mut slot).unwrap_or_else(|e| panic!("{suite}: {e}"));
            assert_eq!(slot[opened.inner], inner, "{suite}, {len} bytes");
        }
    }
}
