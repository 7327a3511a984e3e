//! The keying material of `docs/wire/mlike.md`, and that both ends take it in the order that stands there. Comparing both ends would not do: they
//! would agree on any order.
//!
//! The keys and messages of the page were computed by another program, from the page and RFC 7296 (sections 2.13, 2.17, 3.2 and 3.10) alone, with
//! nothing but Python's standard library:
//!
//! ```python
//! import hmac, struct
//! prf = lambda key, data: hmac.digest(key, data, "sha256")
//! sk_d, nonces = bytes(range(32)), bytes(range(0x40, 0x80))
//! keymat, t = b"", b""
//! for n in range(1, 5):
//!     t = prf(sk_d, t + nonces + bytes([n]))
//!     keymat += t
//! keys = [keymat[20 * i:20 * i + 20] for i in range(6)]
//! payload = lambda next, body: struct.pack(">BBH", next, 0, 4 + len(body)) + body
//! notify = lambda next, kind, data: payload(next, struct.pack(">BBH", 0, 0, kind) + data)
//! secret = lambda next, way, spi, key: payload(next, struct.pack(">BBHIQ", way, 0, 0, spi, 0) + key)
//! ends = bytes.fromhex("02 0200 0000 0300 0064")
//! gateway = bytes(10) + b"\xff\xff" + bytes([198, 51, 100, 1])
//! name = struct.pack(">II", 0x0a0b0c0d, 0x01020304)
//! r2 = struct.pack(">BBH", 2, 0, 10) + b"r2.example"
//! said = lambda reason: struct.pack(">BBHI", reason, 0, 0, 0x01020304)
//! messages = [
//!     payload(0, bytes.fromhex("ed4e51df97ebe22a281c40e66fcef0e4 01 01") + ends),
//!     payload(0, b"\0" + ends),
//!     notify(213, 53265, struct.pack(">BBHHHIII", 3, 0, 20, 128, 0, 14400, 1, 16) + gateway)
//!         + payload(214, b"\0" + ends) + secret(214, 0, 0x0a0b0c0d, keys[3]) + secret(0, 1, 0x01020304, keys[0]),
//!     notify(41, 53266, name) + notify(0, 53271, r2),
//!     notify(0, 53269, said(1)),
//!     notify(0, 53269, said(5) + r2),
//!     notify(0, 53267, said(3)),
//!     notify(0, 53268, name),
//!     notify(0, 53270, gateway + struct.pack(">HH", 16, 0) + said(1)[4:] + struct.pack(">I", 9) + bytes(range(8))),
//! ]
//! ```

mod common;

use common::field::device_conn;
use common::{Pair, gateway_psk, zones_of};
use dormouse_crypto::suites::{Encr, Prf};
use dormouse_crypto::{PrfKey, Secret};
use dormouse_ike::config::ZonePolicy;
use dormouse_ike::keys::{Nonces, child_keymat};
use dormouse_ike::proposal::{Additional, EspSuite};
use dormouse_ike::ticket::Form;
use dormouse_keying::{Install, ZoneEnd, ZoneMap};
use dormouse_wire::ike::{ExchangeType, Message, Payload};

/// Two ends as on the page: three zones.
fn map() -> ZoneMap {
    ZoneMap::new(vec![ZoneEnd::TransportHeader, ZoneEnd::At(100)]).expect("a map")
}

/// The page's keys: of what the initiator sends, zone by zone, then of what the responder sends.
fn page() -> Vec<Vec<u8>> {
    let page = include_str!("../../../docs/wire/mlike.md");
    let section = page.split("## In bytes\n").nth(1).expect("the section");
    let block = section.split("```").nth(1).expect("a block");
    let key = |line: &str| {
        let digits = line.split("    ").next().expect("a key");
        hex::decode(digits.replace(' ', "")).expect("hexadecimal")
    };
    block.trim().lines().map(key).collect()
}

#[test]
fn the_page_has_the_keys_of_each_zone() {
    let [sk_d, ni, nr] = [0..0x20, 0x40..0x60, 0x60..0x80].map(|bytes| bytes.collect::<Vec<u8>>());
    let suite = EspSuite {
        encr: Encr::Aes128Gcm16,
        integ: None,
        group: None,
        additional: Additional::NONE,
        esn: true,
    };
    let nonces = Nonces { i: &ni, r: &nr };
    let keys = child_keymat(Prf::HmacSha256, &Secret::from(sk_d), &suite, nonces, &[], map().zones());
    let keys = keys.expect("keys");
    assert_eq!(hex::encode(keys.from_initiator.as_bytes()), hex::encode(page()[..3].concat()));
    assert_eq!(hex::encode(keys.from_responder.as_bytes()), hex::encode(page()[3..].concat()));
}

/// prf+ of RFC 7296 section 2.13.
fn prf_plus(prf: Prf, key: &Secret, seed: &[u8], len: usize) -> Vec<u8> {
    let (key, mut stream, mut last) = (PrfKey::new(prf, key.as_bytes()), Vec::new(), Vec::new());
    for n in 1..=u8::MAX {
        last = key.compute(&[&last, seed, &[n]]).as_bytes().to_vec();
        stream.extend(&last);
    }
    stream.truncate(len);
    stream
}

/// The nonces of IKE_SA_INIT, which is in clear.
fn nonces(pair: &Pair) -> Vec<u8> {
    let of = |to_gateway| {
        let sent = pair.log.iter().filter(|datagram| datagram.to_gateway == to_gateway);
        let messages = sent.filter_map(|datagram| Message::parse(&datagram.bytes).ok());
        let mut init = messages.filter(|message| message.header.exchange == ExchangeType::IkeSaInit);
        let payloads = init.next().expect("a message").payloads;
        let nonce = payloads.into_iter().find_map(|payload| match payload {
            Payload::Nonce(nonce) => Some(nonce),
            _ => None,
        });
        nonce.expect("a nonce")
    };
    [of(true), of(false)].concat()
}

/// What an end installed: of what it sends, zone by zone, then of what it receives.
fn installed(child: &Install) -> Vec<Secret> {
    let (agreed, further) = zones_of(child, false).expect("zones");
    assert_eq!(agreed, map());
    let (sent, received): (Vec<_>, Vec<_>) = further.into_iter().unzip();
    [vec![child.keymat_out.clone()], sent, vec![child.keymat_in.clone()], received].concat()
}

/// The device's ticket of RFC 5723 has SK_d of a real session; the nonces were in clear. That is all that the keys of its zones follow from.
#[test]
fn both_ends_take_the_keys_of_zones_in_the_order_of_the_page() {
    let policy = Some(ZonePolicy { map: map(), ..ZonePolicy::default() });
    let (mut device, mut gateway) = (device_conn(policy.clone()), gateway_psk());
    device.dormancy = false;
    gateway.children[0].zones = policy;
    let mut pair = Pair::new(device, gateway, 1);
    pair.up();
    let ticket = pair.client.ticket.clone().expect("a ticket");
    assert_eq!(ticket.form, Form::Plain, "its secret is SK_d");
    let [device, gateway] =
        [&pair.client, &pair.gateway].map(|side| side.children.values().next().expect("one"));
    let one = device.encr.key_len() + device.encr.salt_len();
    let stream = prf_plus(ticket.suite.prf, &ticket.secret, &nonces(&pair), 6 * one);
    let expected: Vec<Secret> = stream.chunks(one).map(Secret::from).collect();
    assert_eq!(installed(device), expected);
    let (sent, received) = expected.split_at(3);
    assert_eq!(installed(gateway), [received, sent].concat());
}
