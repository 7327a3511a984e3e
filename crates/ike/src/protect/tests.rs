use dormouse_crypto::suites::{Encr, Integ};
use dormouse_sansio::Seeded;
use dormouse_wire::ike::{ExchangeType, Flags, Message, Notify, NotifyType, parse_payloads};

use super::*;

const SUITES: [(Encr, Option<Integ>); 7] = [
    (Encr::Aes128Gcm16, None),
    (Encr::Aes256Gcm16, None),
    (Encr::ChaCha20Poly1305, None),
    (Encr::Aes128Cbc, Some(Integ::HmacSha1_96)),
    (Encr::Aes256Cbc, Some(Integ::HmacSha256_128)),
    (Encr::Aes128Ctr, Some(Integ::HmacSha384_192)),
    (Encr::Aes256Ctr, Some(Integ::HmacSha512_256)),
];

fn channel(encr: Encr, integ: Option<Integ>) -> Channel {
    let len = encr.key_len() + encr.salt_len() + integ.map_or(0, Integ::key_len);
    let keymat: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
    Channel::new(RestingKey::new(encr, integ, &keymat).unwrap())
}

fn header() -> Header {
    let flags = Flags { initiator: true, ..Flags::default() };
    Header::new(0x0102_0304_0506_0708, 0x1112_1314_1516_1718, ExchangeType::Informational, flags, 3)
}

/// What a whole message carries.
fn open_payloads(
    channel: &Channel,
    message: &mut [u8],
    protected: &Protected,
) -> Result<Vec<Payload>, OpenError> {
    Ok(parse_payloads(protected.first, channel.open(message, protected)?)?)
}

fn payloads(len: usize) -> Vec<Payload> {
    vec![Payload::Notify(Notify::new(NotifyType::Cookie2, vec![0xab; len]))]
}

#[test]
fn what_is_sealed_opens_in_every_suite_at_every_length() {
    for (encr, integ) in SUITES {
        let (ours, theirs) = (channel(encr, integ), channel(encr, integ));
        for len in 0..40 {
            let mut message = ours.seal(&header(), &payloads(len), &mut Seeded::new(1)).unwrap();
            let parsed = Message::parse(&message).unwrap();
            let opened = open_payloads(&theirs, &mut message, &parsed.protected.unwrap()).unwrap();
            assert_eq!(opened, payloads(len), "{encr} {integ:?} {len}");
        }
    }
}

#[test]
fn every_changed_byte_is_refused() {
    for (encr, integ) in SUITES {
        let (ours, theirs) = (channel(encr, integ), channel(encr, integ));
        let message = ours.seal(&header(), &payloads(9), &mut Seeded::new(1)).unwrap();
        for i in 0..message.len() {
            let mut bad = message.clone();
            bad[i] ^= 0x40;
            // Some changes are refused by the parser already; the others must not authenticate.
            let Ok(parsed) = Message::parse(&bad) else { continue };
            let Some(protected) = parsed.protected else { continue };
            let result = open_payloads(&theirs, &mut bad, &protected);
            assert_eq!(result, Err(OpenError::Unauthentic), "{encr}, byte {i}");
        }
    }
}

#[test]
fn a_message_of_the_other_direction_is_refused() {
    let mut keymat = vec![7; 36];
    let ours = Channel::new(RestingKey::new(Encr::Aes256Gcm16, None, &keymat).unwrap());
    keymat[0] = 8;
    let other = Channel::new(RestingKey::new(Encr::Aes256Gcm16, None, &keymat).unwrap());
    let mut message = ours.seal(&header(), &payloads(1), &mut Seeded::new(1)).unwrap();
    let protected = Message::parse(&message).unwrap().protected.unwrap();
    assert_eq!(other.open(&mut message, &protected), Err(OpenError::Unauthentic));
}

#[test]
fn ivs_never_repeat() {
    for (encr, integ) in SUITES {
        let channel = channel(encr, integ);
        let mut entropy = Seeded::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let message = channel.seal(&header(), &payloads(1), &mut entropy).unwrap();
            assert!(seen.insert(message[32..32 + encr.iv_len()].to_vec()), "{encr}");
        }
    }
}

/// What an authentic but broken peer may send is distinguished from a forgery: it deserves INVALID_SYNTAX.
#[test]
fn authentic_nonsense_is_malformed_not_unauthentic() {
    let (ours, theirs) = (channel(Encr::Aes256Gcm16, None), channel(Encr::Aes256Gcm16, None));
    let mut message = ours
        .seal_bytes(&header(), PayloadType::Notify, None, &[0, 0, 0, 200, 1], &mut Seeded::new(1))
        .unwrap();
    let protected = Message::parse(&message).unwrap().protected.unwrap();
    let result = open_payloads(&theirs, &mut message, &protected);
    assert!(matches!(result, Err(OpenError::Malformed(_))), "{result:?}");
}

#[test]
fn any_padding_is_accepted_and_an_impossible_one_is_not() {
    let key = || RestingKey::new(Encr::Aes256Gcm16, None, &[7; 36]).unwrap();
    let build = |data: &[u8]| {
        let mut message = Vec::new();
        let first = PayloadType::None;
        let sealing = Sealing { header: &header(), cleartext: &[], first, fragment: None };
        let body = sealing.emit(8 + data.len() + 16, &mut message).unwrap();
        let (aad, rest) = message.split_at_mut(body.start);
        let (iv, rest) = rest.split_at_mut(8);
        let (text, icv) = rest.split_at_mut(data.len());
        text.copy_from_slice(data);
        key().wake().unwrap().seal(aad, iv, text, &[], icv).unwrap();
        message
    };
    for (data, expect) in [
        (&[9, 9, 9, 3][..], Ok(&[][..])),
        (&[0][..], Ok(&[][..])),
        (&[9, 9, 4], Err(OpenError::Padding { pad: 4, len: 2 })),
        (&[], Err(OpenError::Padding { pad: 0, len: 0 })),
    ] {
        let mut message = build(data);
        let protected = Message::parse(&message).unwrap().protected.unwrap();
        assert_eq!(Channel::new(key()).open(&mut message, &protected), expect, "{data:?}");
    }
}

#[test]
fn ranges_beyond_the_message_are_refused() {
    let channel = channel(Encr::Aes256Gcm16, None);
    for body in [0..0, 0..1, 5..400, 40..41] {
        let protected = Protected { first: PayloadType::None, body, fragment: None };
        assert_eq!(channel.open(&mut [0; 41], &protected), Err(OpenError::Unauthentic));
    }
}
