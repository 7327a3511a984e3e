//! Resumption in one round trip (`docs/wire/dormancy.md`, which has the security argument): IKE_SESSION_RESUME of RFC 5723 whose
//! messages also carry, sealed, what IKE_AUTH would have carried. Owns the keys and the sealing; the two ends are [`client`]
//! and [`gateway`]. It must never let anything in that the keys of the ticket have not sealed.
//!
//! It departs from "[...] MUST be followed by an IKE_AUTH exchange" (RFC 5723 section 4.3.2), and only between ends that have
//! both announced it.
//!
//! ```text
//! request key = prf+(RS, "Dormouse request 2" | Ni | SPIi), 32 bytes
//! SKEYSEED    = prf(RS, LABEL | SHA-256(request) | SHA-256(answer) | g^ir)
//! answer key  = prf+(SKEYSEED, "Dormouse answer 2"), 32 bytes
//! ```
//!
//! LABEL is "Dormouse quick 2", or "Dormouse slow 2" where the gateway does not grant it and IKE_AUTH follows. `answer` is the answer as it
//! is without DORMANCY_RESUME. Without a key exchange (both ends' configuration must say so) g^ir is empty.
//!
//! The data of DORMANCY_RESUME is `nonce (12) | AES-256-GCM of (type of the first payload (1) | payloads) | tag (16)`; what is
//! authenticated besides is the whole message as it is without COOKIE and DORMANCY_RESUME. All prfs are HMACs, which extract from g^ir even
//! under a known key; keep it so.

mod client;
mod gateway;

use dormouse_crypto::suites::Prf;
use dormouse_crypto::{
    DhPrivate, Error, HashAlg, PrfKey, Secret, aead256_open, aead256_seal, hash, prf_plus,
};
use dormouse_sansio::Entropy;
use dormouse_wire::ike::{
    Header, Message, Notify, NotifyType, Payload, PayloadType, ProtocolId, emit_payloads, parse_payloads,
};
use zeroize::Zeroizing;

pub(crate) use client::{Answered, Quick, conclude};
pub(crate) use gateway::resume;

use crate::child::Agreed;
use crate::payloads::{View, notify};
use crate::ticket::TicketChild;

const REQUEST: &[u8] = b"Dormouse request 2";
const ANSWER: &[u8] = b"Dormouse answer 2";
const NONCE: usize = 12;

type Key = Zeroizing<[u8; 32]>;

/// How many round trips a resumption takes; each has its own keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    Quick,
    Slow,
}

fn key(prf: Prf, secret: &Secret, parts: &[&[u8]]) -> Result<Key, Error> {
    let mut key = Key::default();
    prf_plus(prf, secret.as_bytes(), parts, key.as_mut_slice())?;
    Ok(key)
}

/// Seals the request: only the owner of the ticket has RS.
fn request_key(prf: Prf, rs: &Secret, spi_i: u64, ni: &[u8]) -> Result<Key, Error> {
    key(prf, rs, &[REQUEST, ni, &spi_i.to_be_bytes()])
}

/// SKEYSEED, which every byte of both messages goes into. `None` for an answer that is none.
pub(crate) fn skeyseed(
    prf: Prf,
    rs: &Secret,
    pace: Pace,
    request: &[u8],
    answer: (&Header, &[Payload]),
    shared: Option<&Secret>,
) -> Option<Secret> {
    let label: &[u8] = match pace {
        Pace::Quick => b"Dormouse quick 2",
        Pace::Slow => b"Dormouse slow 2",
    };
    let (asked, answered) =
        (hash(HashAlg::Sha256, &[request]), hash(HashAlg::Sha256, &[&bound(answer.0, answer.1)?]));
    let shared = shared.map_or(&[][..], Secret::as_bytes);
    Some(PrfKey::new(prf, rs.as_bytes()).compute(&[label, &asked, &answered, shared]))
}

/// Seals the answer: only who opened the ticket and has seen this very request has it.
fn answer_key(prf: Prf, skeyseed: &Secret) -> Result<Key, Error> {
    key(prf, skeyseed, &[ANSWER])
}

/// What the device's half of the key exchange and the gateway's make; `None` if there was none. An answer with one half alone is
/// no answer.
pub(crate) fn agreed(ours: Option<&DhPrivate>, answer: View<'_>) -> Result<Option<Secret>, &'static str> {
    match (ours, answer.ke()) {
        (None, None) => Ok(None),
        (Some(dh), Some((group, public))) if group == dh.group().id() => {
            dh.agree(public).map(Some).map_err(|_| "unusable public value")
        }
        _ => Err("its key exchange is not the one that was asked for"),
    }
}

/// What is authenticated besides the sealed payloads: the message without COOKIE and DORMANCY_RESUME.
fn bound(header: &Header, payloads: &[Payload]) -> Option<Vec<u8>> {
    let sealed_or_cookie = |p: &&Payload| matches!(p, Payload::Notify(n) if [NotifyType::Cookie, NotifyType::DormancyResume].contains(&n.kind));
    let rest: Vec<Payload> = payloads.iter().filter(|p| !sealed_or_cookie(p)).cloned().collect();
    let mut bytes = Vec::new();
    Message::emit(header, &rest, &mut bytes).ok()?;
    Some(bytes)
}

/// Whether these are the bytes of that message and no others would be. What is ignored when a message is read would otherwise not be
/// covered by what is computed from its payloads.
pub(crate) fn is_canonical(header: &Header, payloads: &[Payload], datagram: &[u8]) -> bool {
    let mut bytes = Vec::new();
    Message::emit(header, payloads, &mut bytes).is_ok() && bytes == datagram
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

/// The CHILD SA of a ticket, number `config` of the connection, under new SPIs.
fn resumed_child(child: &TicketChild, config: usize, spi_in: u32, spi_out: u32) -> Agreed {
    Agreed {
        config,
        spi_in,
        spi_out,
        suite: child.suite,
        mode: child.mode,
        zones: None,
        tfc_padding: true,
        ts_local: child.ts_local.clone(),
        ts_remote: child.ts_remote.clone(),
        original: None,
    }
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
        let rs = Secret::from(&[5; 32][..]);
        let key = request_key(Prf::HmacSha256, &rs, 7, &[1; 32]).expect("a key");
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
        let other = request_key(Prf::HmacSha256, &rs, 8, &[1; 32]).expect("a key");
        assert!(open(&other, &header(), &list).is_none(), "another SPI");
    }

    #[test]
    fn every_input_changes_the_keys() {
        let (rs, other) = (Secret::from(&[5; 32][..]), Secret::from(&[6; 32][..]));
        let flags = Flags { initiator: false, version: false, response: true };
        let answer = Header::new(7, 8, ExchangeType::IkeSessionResume, flags, 0);
        let seed = |rs, pace, request: &[u8], nr: u8, shared: Option<&Secret>| {
            let list = [Payload::Nonce(vec![nr; 32]), notify(NotifyType::DormancyResume, vec![1; 40])];
            skeyseed(Prf::HmacSha256, rs, pace, request, (&answer, &list), shared).expect("a seed")
        };
        let base = seed(&rs, Pace::Quick, b"request", 2, Some(&other));
        for different in [
            seed(&other, Pace::Quick, b"request", 2, Some(&other)),
            seed(&rs, Pace::Slow, b"request", 2, Some(&other)),
            seed(&rs, Pace::Quick, b"requesT", 2, Some(&other)),
            seed(&rs, Pace::Quick, b"request", 3, Some(&other)),
            seed(&rs, Pace::Quick, b"request", 2, Some(&rs)),
            seed(&rs, Pace::Quick, b"request", 2, None),
        ] {
            assert!(base != different);
        }
        let unsealed = [Payload::Nonce(vec![2; 32])];
        let same =
            skeyseed(Prf::HmacSha256, &rs, Pace::Quick, b"request", (&answer, &unsealed), Some(&other));
        assert!(same == Some(base), "the sealed part of the answer is sealed under what follows from this");
    }
}
