//! The messages of `docs/wire/esp-arq.md`, byte for byte. Those of the page were computed by another program, from the page alone:
//!
//! ```python
//! import hmac, struct
//! mac = lambda key, data: hmac.digest(key, data, "sha256")
//! key = mac(bytes(range(20)), b"Dormouse esp-arq reports")
//! sealed = lambda said: said + mac(key, said)[:16]
//! report = struct.pack(">II", 0x05060708, 0) + sealed(b"ARQ1" + struct.pack(">IQIB", 0x01020304, 3, 4, 2) + bytes([0x80, 0x40]))
//! answer = struct.pack(">II", 0x01020304, 0) + sealed(b"ARQ2" + struct.pack(">Q", 3))
//! ```

mod common;

use common::ms;
use core::net::Ipv4Addr;
use dormouse_crypto::{Encr, Prf, PrfKey, Secret};
use dormouse_esp::{IPV4_IN_IP, Outbound, SaParams, ZoneParams};
use dormouse_keying::{HeaderGrant, HeaderOrder, HeaderSa, Nodes, ZoneMap};
use dormouse_sansio::Seeded;
use dormouse_snoop::Verdict;
use dormouse_snoop::arq::{Agent, Limits, Reporter, reports_key};
use dormouse_wire::ip::{Ipv4Header, protocol};

const GCM: Encr = Encr::Aes128Gcm16;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DEVICE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const TO_DEVICE: u32 = 0x0102_0304;
const FROM_DEVICE: u32 = 0x0506_0708;

/// The blocks of hexadecimal digits of the page: the key, a report, an answer.
fn blocks() -> [Vec<u8>; 3] {
    let page = include_str!("../../../docs/wire/esp-arq.md");
    let messages = page.split("## In bytes\n").nth(1).expect("the section");
    let blocks = messages.split("```").skip(1).step_by(2);
    let read = |block: &str| hex::decode(block.split_whitespace().collect::<String>()).expect("hexadecimal");
    blocks.map(read).collect::<Vec<_>>().try_into().expect("three blocks")
}

fn keymat() -> Secret {
    Secret::from((0..20).collect::<Vec<u8>>().as_slice())
}

fn carry(src: Ipv4Addr, dst: Ipv4Addr, esp: &[u8]) -> Vec<u8> {
    let header = Ipv4Header::new(src, dst, protocol::ESP).to_bytes(esp.len()).expect("a header");
    [&header[..], esp].concat()
}

/// A router to whose device the packets 1 to 14 of the SA have gone.
fn router() -> Agent {
    let sa = |spi| HeaderSa { spi, keymat: keymat(), reached: 0.into() };
    let mut agent = Agent::new(Limits::default());
    let grant = HeaderGrant {
        map: ZoneMap::default(),
        encr: GCM,
        esn: true,
        to_device: sa(TO_DEVICE),
        from_device: sa(FROM_DEVICE),
        nodes: Nodes::new(1, 16).expect("nodes"),
    };
    agent.obey(&HeaderOrder::Grant(Box::new(grant))).expect("keys");
    let zones = Some(ZoneParams { map: ZoneMap::default(), further: vec![(GCM, Secret::from([8; 20]))] });
    let params = SaParams { zones, ..SaParams::new(TO_DEVICE, GCM, None, keymat()) };
    let mut far = Outbound::new(&params, &mut Seeded::new(1)).expect("a sender");
    let inner = Ipv4Header::new(GATEWAY, DEVICE, 253).to_bytes(0).expect("a header");
    for _ in 1..=14 {
        let mut slot = vec![0; far.sealed_len(inner.len())];
        let head = far.head_len();
        slot[head..head + inner.len()].copy_from_slice(&inner);
        far.seal(&mut slot, inner.len(), IPV4_IN_IP).expect("sealed");
        agent.to_device(ms(0), &carry(GATEWAY, DEVICE, &slot));
    }
    agent
}

#[test]
fn the_page_has_the_key_that_both_ends_derive() {
    let [key, ..] = blocks();
    let of = |key: &PrfKey| key.compute(&[b"any message"]).as_bytes().to_vec();
    assert_eq!(of(&reports_key(&keymat())), of(&PrfKey::new(Prf::HmacSha256, &key)));
}

#[test]
fn the_page_has_the_report_that_a_device_makes_and_the_answer_of_its_router() {
    let [_, report, answer] = blocks();
    let mut device = Reporter::new(ms(0), &keymat(), TO_DEVICE, FROM_DEVICE, Limits::default());
    let next = |device: &mut Reporter, at| {
        let mut out = Vec::new();
        assert!(device.poll_report(ms(at), &mut out), "a report is due");
        out
    };
    let mut agent = router();
    // The first is answered: from then on packets are put in order.
    assert!(!device.takes(ms(0), 1));
    let first = next(&mut device, 0);
    let mut other = router();
    other.from_device(ms(0), &carry(DEVICE, GATEWAY, &first));
    let mut packet = Vec::new();
    assert!(other.poll_transmit(ms(0), &mut packet) && device.answer(&packet[20..]));
    // 2 is reported by the second; 4 and some others are missing when the third is due.
    device.arrive(ms(1), 2, Vec::new());
    next(&mut device, 30);
    for seq in [3, 5, 14] {
        device.arrive(ms(31), seq, Vec::new());
    }
    assert_eq!(hex::encode(next(&mut device, 60)), hex::encode(&report));
    assert_eq!(agent.from_device(ms(61), &carry(DEVICE, GATEWAY, &report)), Verdict::Suppress);
    packet.clear();
    assert!(agent.poll_transmit(ms(61), &mut packet));
    assert_eq!(packet, carry(GATEWAY, DEVICE, &answer));
    assert!(device.answer(&answer));
}
