//! Entry points for fuzzing: arbitrary bytes against the receiving side. Owns the fixed SAs they run against.

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, Integ, Secret};
use dormouse_keying::Mode;
use dormouse_sansio::Seeded;

use crate::{Inbound, Outbound, SaParams};

/// The SAs under test: each kind of cipher, both modes, with and without extended sequence numbers.
fn suites() -> impl Iterator<Item = SaParams> {
    [
        (Encr::Aes128Gcm16, None),
        (Encr::ChaCha20Poly1305, None),
        (Encr::Aes128Cbc, Some(Integ::HmacSha1_96)),
        (Encr::Aes256Ctr, Some(Integ::HmacSha512_256)),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, (encr, integ))| {
        let mut params = SaParams::new(0x0101_0101, encr, integ, Secret::zeroed(keymat_len(encr, integ)));
        params.esn = i % 2 == 0;
        params.mode = if i < 2 { Mode::Tunnel } else { Mode::Transport };
        params
    })
}

/// Opens `data` as a datagram, as it is; and then as a plaintext (next header, padding and inner packet as an authentic but
/// hostile peer would choose them). Must never panic, and must never report a range outside the datagram.
pub fn open(data: &[u8]) {
    for params in suites() {
        let (Ok(mut inbound), Ok(mut outbound)) =
            (Inbound::new(&params), Outbound::new(&params, &mut Seeded::new(0)))
        else {
            return;
        };
        let mut packet = data.to_vec();
        if let Ok(opened) = inbound.open(&mut packet) {
            assert!(opened.inner.end <= packet.len());
        }
        let (next_header, inner) = data.split_first().unwrap_or((&0, &[]));
        let mut slot = vec![0; outbound.sealed_len(inner.len())];
        let head = outbound.head_len();
        slot[head..head + inner.len()].copy_from_slice(inner);
        let Ok(len) = outbound.seal(&mut slot, inner.len(), *next_header) else { continue };
        if let Ok(opened) = inbound.open(&mut slot[..len]) {
            assert!(opened.inner.end <= len);
            assert_eq!(opened.seq, 1);
        }
        outbound.forge_body(&mut slot, inner);
        if let Ok(opened) = inbound.open(&mut slot) {
            assert!(opened.inner.end <= slot.len());
        }
    }
}
