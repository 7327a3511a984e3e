//! What the behaviour tests share: pairs of SAs and packets to send through them.

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, Integ, Secret};
use dormouse_esp::{Inbound, Outbound, SaParams};
use dormouse_sansio::{Entropy, Seeded};

pub(crate) const SUITES: [(Encr, Option<Integ>); 23] = [
    (Encr::Aes128Gcm16, None),
    (Encr::Aes256Gcm16, None),
    (Encr::ChaCha20Poly1305, None),
    (Encr::Aes128Cbc, Some(Integ::HmacSha1_96)),
    (Encr::Aes128Cbc, Some(Integ::HmacSha256_128)),
    (Encr::Aes256Cbc, Some(Integ::HmacSha384_192)),
    (Encr::Aes256Cbc, Some(Integ::HmacSha512_256)),
    (Encr::Aes128Ctr, Some(Integ::HmacSha256_128)),
    (Encr::Aes256Ctr, Some(Integ::HmacSha1_96)),
    (Encr::Aes256Ctr, Some(Integ::HmacSha512_256)),
    (Encr::Null, Some(Integ::HmacSha256_128)),
    (Encr::Aes128Ccm8, None),
    (Encr::Aes128Ccm16, None),
    (Encr::Aes256Ccm8, None),
    (Encr::Aes256Ccm12, None),
    (Encr::Aes256Ccm16, None),
    (Encr::NullIv16, Some(Integ::HmacSha256Whole)),
    (Encr::Aes128Gcm8, None),
    (Encr::Aes128Gmac, None),
    (Encr::Aes192Gmac, None),
    (Encr::Aes256Gmac, None),
    (Encr::Null, Some(Integ::AesCmac96)),
    (Encr::Aes256Cbc, Some(Integ::HmacSha256Whole)),
];

pub(crate) fn params(encr: Encr, integ: Option<Integ>) -> SaParams {
    let mut keymat = Secret::zeroed(keymat_len(encr, integ));
    Seeded::new(7).fill(keymat.as_mut_bytes());
    SaParams::new(0x1234_5678, encr, integ, keymat)
}

pub(crate) fn pair(params: &SaParams) -> (Outbound, Inbound) {
    (Outbound::new(params, &mut Seeded::new(1)).unwrap(), Inbound::new(params).unwrap())
}

/// An IPv4 packet of `len` bytes, at least 20, UDP from port 1000 to 2000.
pub(crate) fn ipv4(len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
    packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
    for (i, byte) in packet.iter_mut().enumerate().skip(20) {
        *byte = i as u8;
    }
    if len >= 28 {
        packet[20..24].copy_from_slice(&[0x03, 0xe8, 0x07, 0xd0]);
    }
    packet
}

/// An IPv6 packet of `len` bytes, at least 40.
pub(crate) fn ipv6(len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&u16::try_from(len - 40).unwrap().to_be_bytes());
    packet[6] = 17;
    packet[7] = 64;
    packet[8] = 0x20;
    packet[23] = 1;
    packet[24] = 0x20;
    packet[39] = 2;
    packet
}

pub(crate) fn seal(out: &mut Outbound, inner: &[u8], next_header: u8) -> Vec<u8> {
    let head = out.head_len();
    let mut slot = vec![0; out.sealed_len(inner.len())];
    slot[head..head + inner.len()].copy_from_slice(inner);
    let len = out.seal(&mut slot, inner.len(), next_header).unwrap();
    assert_eq!(len, slot.len());
    slot
}
