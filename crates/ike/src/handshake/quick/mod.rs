//! Resumption in one round trip (`docs/wire/dormancy.md`, which has the security argument): IKE_SESSION_RESUME of RFC 5723 whose
//! messages also carry, sealed, what IKE_AUTH would have carried. Owns the keys and the sealing; the two ends are [`client`]
//! and [`gateway`]. It must never let anything in that the keys of the ticket have not sealed.
//!
//! It departs from "[...] MUST be followed by an IKE_AUTH exchange" (RFC 5723 section 4.3.2), and only between ends that have
//! both announced it.
//!
//! ```text
//! request key = prf+(SK_d_old, "Dormouse resumption request" | Ni | SPIi), 32 bytes
//! SKEYSEED    = prf(SK_d_old, "Dormouse resumption keys" | Ni | Nr | SHA-256(request))
//! answer key  = prf+(SKEYSEED, "Dormouse resumption answer" | Ni | Nr | SPIi | SPIr), 32 bytes
//! ```
//!
//! The data of DORMANCY_RESUME is `nonce (12) | AES-256-GCM of (type of the first payload (1) | payloads) | tag (16)`; what is
//! authenticated besides is the whole message as it is without COOKIE and DORMANCY_RESUME.

mod client;
mod gateway;

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{Error, HashAlg, PrfKey, Secret, aead256_open, aead256_seal, hash, prf_plus};
use dormouse_sansio::Entropy;
use dormouse_wire::ike::{
    Header, Message, Notify, NotifyType, Payload, PayloadType, ProtocolId, emit_payloads, parse_payloads,
};
use zeroize::Zeroizing;

pub(crate) use client::{Answered, Confirming, Quick, conclude};
pub(crate) use gateway::Tentative;

use crate::keys::{Nonces, Spis};
use crate::payloads::{View, notify};

const REQUEST: &[u8] = b"Dormouse resumption request";
const KEYS: &[u8] = b"Dormouse resumption keys";
const ANSWER: &[u8] = b"Dormouse resumption answer";
const NONCE: usize = 12;

type Key = Zeroizing<[u8; 32]>;

fn key(prf: Prf, secret: &Secret, parts: &[&[u8]]) -> Result<Key, Error> {
    let mut key = Key::default();
    prf_plus(prf, secret.as_bytes(), parts, key.as_mut_slice())?;
    Ok(key)
}

/// Seals the request: only the owner of the ticket has SK_d.
fn request_key(prf: Prf, sk_d: &Secret, spi_i: u64, ni: &[u8]) -> Result<Key, Error> {
    key(prf, sk_d, &[REQUEST, ni, &spi_i.to_be_bytes()])
}

/// SKEYSEED, which both nonces and every byte of the request go into.
fn skeyseed(prf: Prf, sk_d: &Secret, nonces: Nonces<'_>, request: &[u8]) -> Secret {
    let transcript = hash(HashAlg::Sha256, &[request]);
    PrfKey::new(prf, sk_d.as_bytes()).compute(&[KEYS, nonces.i, nonces.r, &transcript])
}

/// Seals the answer: only who opened the ticket and has seen this very request has it.
fn answer_key(prf: Prf, skeyseed: &Secret, nonces: Nonces<'_>, spis: Spis) -> Result<Key, Error> {
    let (i, r) = (spis.i.to_be_bytes(), spis.r.to_be_bytes());
    key(prf, skeyseed, &[ANSWER, nonces.i, nonces.r, &i, &r])
}

/// What is authenticated besides the sealed payloads: the message without COOKIE and DORMANCY_RESUME.
fn bound(header: &Header, payloads: &[Payload]) -> Option<Vec<u8>> {
    let sealed_or_cookie = |p: &&Payload| matches!(p, Payload::Notify(n) if [NotifyType::Cookie, NotifyType::DormancyResume].contains(&n.kind));
    let rest: Vec<Payload> = payloads.iter().filter(|p| !sealed_or_cookie(p)).cloned().collect();
    let mut bytes = Vec::new();
    Message::emit(header, &rest, &mut bytes).ok()?;
    Some(bytes)
}

/// The DORMANCY_RESUME notification of a message that has these other payloads.
fn seal(
    key: &Key,
    header: &Header,
    others: &[Payload],
    inner: &[Payload],
    entropy: &mut dyn Entropy,
) -> Option<Payload> {
    let mut chain = Vec::new();
    let first = emit_payloads(inner, &mut chain).ok()?;
    let mut sealed = Vec::with_capacity(1 + chain.len() + 16);
    sealed.push(first.code());
    sealed.extend_from_slice(&chain);
    let mut nonce = [0; NONCE];
    entropy.fill(&mut nonce);
    aead256_seal(key, &nonce, &bound(header, others)?, &mut sealed).ok()?;
    Some(notify(NotifyType::DormancyResume, [&nonce[..], &sealed].concat()))
}

/// What the DORMANCY_RESUME notification of a message seals; `None`: there is none, or it is not authentic.
fn open(key: &Key, header: &Header, payloads: &[Payload]) -> Option<Vec<Payload>> {
    let data = &View(payloads).notify(NotifyType::DormancyResume)?.data;
    let (nonce, sealed) = data.split_first_chunk::<NONCE>()?;
    let mut plain = sealed.to_vec();
    aead256_open(key, nonce, &bound(header, payloads)?, &mut plain).ok()?;
    let (&first, chain) = plain.split_first()?;
    parse_payloads(PayloadType::from(first), chain).ok()
}

/// The notification, inside of the sealed part, with the ESP SPI on which its sender receives.
fn child_spi(spi: u32) -> Payload {
    Payload::Notify(Notify {
        protocol: ProtocolId::Esp,
        spi: spi.to_be_bytes().to_vec(),
        kind: NotifyType::DormancyChild,
        data: Vec::new(),
    })
}

/// What [`child_spi`] says. The values below 256 are reserved (RFC 4303 section 2.1).
fn spi_of_child(view: View<'_>) -> Option<u32> {
    view.notify(NotifyType::DormancyChild)?.spi_u32().filter(|spi| *spi >= 256)
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Seeded;
    use dormouse_wire::ike::{ExchangeType, Flags};

    use super::*;

    fn header() -> Header {
        let flags = Flags { initiator: true, version: false, response: false };
        Header::new(7, 0, ExchangeType::IkeSessionResume, flags, 0)
    }

    #[test]
    fn only_the_untouched_message_opens_and_a_cookie_may_come_before_it() {
        let sk_d = Secret::from(&[5; 32][..]);
        let key = request_key(Prf::HmacSha256, &sk_d, 7, &[1; 32]).expect("a key");
        let mut list = vec![Payload::Nonce(vec![1; 32]), notify(NotifyType::TicketOpaque, vec![9; 40])];
        let sealed =
            seal(&key, &header(), &list, &[child_spi(0x1234_5678)], &mut Seeded::new(1)).expect("sealed");
        list.push(sealed);
        let opened = |list: &[Payload]| open(&key, &header(), list).and_then(|p| spi_of_child(View(&p)));
        assert_eq!(opened(&list), Some(0x1234_5678));
        let mut with_cookie = vec![notify(NotifyType::Cookie, vec![3; 33])];
        with_cookie.extend(list.iter().cloned());
        assert_eq!(opened(&with_cookie), Some(0x1234_5678));
        let mut changed = list.clone();
        changed[1] = notify(NotifyType::TicketOpaque, vec![8; 40]);
        assert_eq!(opened(&changed), None, "another ticket");
        let mut more = list.clone();
        more.insert(1, notify(NotifyType::NatDetectionSourceIp, vec![0; 20]));
        assert_eq!(opened(&more), None, "another payload");
        let Some(Payload::Notify(n)) = list.last().cloned() else { panic!("the sealed part") };
        for at in 0..n.data.len() {
            let mut bad = n.clone();
            bad.data[at] ^= 1;
            let mut changed = list.clone();
            changed[2] = Payload::Notify(bad);
            assert_eq!(opened(&changed), None, "byte {at}");
        }
        let other = request_key(Prf::HmacSha256, &sk_d, 8, &[1; 32]).expect("a key");
        assert!(open(&other, &header(), &list).is_none(), "another SPI");
    }

    #[test]
    fn every_input_changes_the_keys() {
        let (sk_d, other) = (Secret::from(&[5; 32][..]), Secret::from(&[6; 32][..]));
        let seed = |sk_d, i: u8, r: u8, request: &[u8]| {
            skeyseed(Prf::HmacSha256, sk_d, Nonces { i: &[i; 32], r: &[r; 32] }, request)
        };
        let base = seed(&sk_d, 1, 2, b"request");
        for different in [
            seed(&other, 1, 2, b"request"),
            seed(&sk_d, 9, 2, b"request"),
            seed(&sk_d, 1, 9, b"request"),
            seed(&sk_d, 1, 2, b"requesT"),
            crate::keys::skeyseed_resumed(Prf::HmacSha256, &sk_d, Nonces { i: &[1; 32], r: &[2; 32] }),
        ] {
            assert!(base != different);
        }
    }
}
