//! RFC 7634, appendix B: a whole INFORMATIONAL request under ChaCha20-Poly1305, opened and made.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use dormouse_crypto::RestingKey;
use dormouse_crypto::suites::Encr;
use dormouse_ike::protect::Channel;
use dormouse_wire::ike::{Message, Notify, NotifyType, Payload, parse_payloads};

const MESSAGE: &str = "c0c1c2c3c4c5c6c7d0d1d2d3d4d5d6d7\
    2e2025000000000900000045\
    290000291011121314151617\
    610394701f8d017f7c12924889\
    6b71bfe25236efd7cdc67066906315b2";

fn key() -> RestingKey {
    let keymat: Vec<u8> = (0x80..=0x9f).chain([0xa0, 0xa1, 0xa2, 0xa3]).collect();
    RestingKey::new(Encr::ChaCha20Poly1305, None, &keymat).unwrap()
}

#[test]
fn the_rfc_message_opens() {
    let mut bytes = hex::decode(MESSAGE).unwrap();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.header.message_id, 9);
    let protected = message.protected.unwrap();
    let channel = Channel::new(key());
    let payloads = parse_payloads(protected.first, channel.open(&mut bytes, &protected).unwrap()).unwrap();
    assert_eq!(payloads, [Payload::Notify(Notify::new(NotifyType::SetWindowSize, [0, 0, 0, 10]))]);
}

/// The RFC's IV is arbitrary, ours counts from 0: the frame around it is compared, and the ciphertext by the cipher itself.
#[test]
fn our_message_is_the_rfc_message_but_for_the_iv() {
    let expected = hex::decode(MESSAGE).unwrap();
    let header = Message::parse(&expected).unwrap().header;
    let payloads = [Payload::Notify(Notify::new(NotifyType::SetWindowSize, [0, 0, 0, 10]))];
    let ours = Channel::new(key()).seal(&header, &payloads, &mut dormouse_sansio::Seeded::new(0)).unwrap();
    assert_eq!(ours.len(), expected.len());
    assert_eq!(ours[..32], expected[..32], "header and payload header, which are the associated data");
    assert_eq!(ours[32..40], [0; 8], "the first IV");
    let (mut plain, mut icv) = (*b"\0\0\0\x0c\0\0\x40\x01\0\0\0\x0a\0", [0; 16]);
    key().wake().unwrap().seal(&ours[..32], &[0; 8], &mut plain, &[], &mut icv).unwrap();
    assert_eq!(ours[40..53], plain);
    assert_eq!(ours[53..], icv);
}
