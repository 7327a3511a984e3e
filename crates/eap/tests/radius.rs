//! A gateway's conversation with RADIUS servers: one that was recorded, and one that says what it is told to.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use dormouse_crypto::{Secret, eap, mobileip};
use dormouse_eap::radius::{
    Access, Account, Answer, Broken, Client, Connection, Discard, Event, Grants, Usage,
};
use dormouse_eap::{Error, Msk, limits};
use dormouse_sansio::{Entropy, Seeded};
use proptest::prelude::*;

const SECRET: &[u8] = b"shared secret";

fn bytes(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("digits")
}

fn connection() -> Connection {
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let client = Arc::new(Client { secret: Secret::from(SECRET), name: "gateway".to_owned(), address });
    Connection { client, from: "198.51.100.7".to_owned() }
}

/// Entropy that is known beforehand.
struct Known(Vec<u8>);

impl Entropy for Known {
    fn fill(&mut self, out: &mut [u8]) {
        let rest = self.0.split_off(out.len());
        out.copy_from_slice(&std::mem::replace(&mut self.0, rest));
    }
}

/// Between us and hostapd 2.10 as RADIUS server: our requests and its answers to alice, who knows her password. The key is the one that her EAP client had.
const RECORDED: [(&str, &str); 3] = [
    (
        "0100007381f01f7ce0cb5862549e963a88a4547e5012687b03ee7ee1ae47a42ea3e6a57edb010107616c6963652009676174657761790406c0000\
         2013d06000000050606000000021e0b3139322e302e322e311f0e3139382e35312e3130302e370c06000004104f0c0200000a01616c696365",
        "0b00004fea92111db6f04555ffa8a993f57a8ed61806000000004f23010100211a0101001c10055a35394d13631b80f98a478964825a686f73746\
         170645012757aa7c465985f2eadefc20ccb349f0a",
    ),
    (
        "010100af09e170929a693fcbee09809570bbbc6a501295b3d26ef7103a287f72d5ebe71e0e0d0107616c6963652009676174657761790406c0000\
         2013d06000000050606000000021e0b3139322e302e322e311f0e3139382e35312e3130302e370c06000004104f42020100401a0201003b31ec46\
         752820b64a8cbb69026917b06b3200000000000000000a997e9debc84ebc91203470e3a3226776179bd91aa3d3b000616c696365180600000000",
        "0b01006615ab702da7b9040c4cd14e30e81e9f221806000000004f3a010200381a03010033533d314135383131313344353032313830343038414639\
         43363930343739444146413933373544353230204d3d4f4b50125e0dfda5775d33276ed38c2ebb1f1262",
    ),
    (
        "01020075542f9cdf79a37ae62b4b8045ec1c3c715012fb17e5400e8289ecfd6988ef84f129670107616c6963652009676174657761790406c0000\
         2013d06000000050606000000021e0b3139322e302e322e311f0e3139382e35312e3130302e370c06000004104f08020200061a03180600000000",
        "0202008047c5512a1e1d16005664dc4149b550344f06030200041a2a000001371024d983a57465cde13fef5155ce4825a9a0f43f5dd42498228d3\
         4689f3d74a77ce9d39b1a2a000001371124d982e50d1445c25004db4afd96bd032544195bd43aed5e54c72b232aea07369045695012fb02346889\
         7833ab5e090b1a1549473b",
    ),
];
const RECORDED_KEY: &str = "50b19d06ab4d0b10027a1c0359ad637cb943b7ee6f8c9f872cc83169e0a04927";

/// The EAP packet that a request carries.
fn carried(packet: &[u8]) -> Vec<u8> {
    let (mut at, mut eap) = (20, Vec::new());
    while at < packet.len() {
        let end = at + usize::from(packet[at + 1]);
        if packet[at] == 79 {
            eap.extend_from_slice(&packet[at + 2..end]);
        }
        at = end;
    }
    eap
}

/// Up to before the recorded answer of this number.
fn recorded_until(number: usize) -> Access {
    let mut access = Access::new(connection());
    for (turn, (request, answer)) in RECORDED.iter().enumerate().take(number + 1) {
        let request = bytes(request);
        let mut drawn = Known(request[4..20].to_vec());
        let made = access.ask(u8::try_from(turn).expect("small"), &carried(&request), &mut drawn);
        assert_eq!(made.as_deref(), Ok(&request[..]), "byte for byte");
        if turn < number {
            let answer = bytes(answer);
            assert_eq!(access.answer(&answer), Ok(Answer::Continue { eap: carried(&answer) }));
        }
    }
    access
}

#[test]
fn a_recorded_conversation() {
    let mut access = recorded_until(2);
    let answer = bytes(RECORDED[2].1);
    let msk = Msk::of(&[&bytes(RECORDED_KEY)]);
    let expected = Answer::Accepted {
        eap: vec![3, 2, 0, 4],
        identity: "alice".to_owned(),
        msk,
        grants: Grants::default(),
    };
    assert_eq!(access.waits_for(), Some(2));
    assert_eq!(access.answer(&answer), Ok(expected));
    assert_eq!((access.waits_for(), access.answer(&answer)), (None, Err(Discard::Unexpected)));
}

/// Nothing in an answer can be changed; what is changed changes nothing.
#[test]
fn every_flipped_byte() {
    for (number, (_, answer)) in RECORDED.iter().enumerate() {
        let answer = bytes(answer);
        let mut access = recorded_until(number);
        for at in 0..answer.len() {
            for flip in [1, 2, 0x80, 0xff] {
                let mut forged = answer.clone();
                forged[at] ^= flip;
                assert!(access.answer(&forged).is_err(), "answer {number}, byte {at}");
            }
        }
        // Behind the packet's end is padding; before, nothing may be missing.
        for len in 0..answer.len() {
            assert_eq!(access.answer(&answer[..len]), Err(Discard::Malformed));
        }
        // The answer to another request, although of the same server and conversation.
        for (other, (_, answer)) in RECORDED.iter().enumerate().filter(|(other, _)| *other != number) {
            assert_eq!(access.answer(&bytes(answer)), Err(Discard::Unexpected), "{other}");
        }
        assert!(access.answer(&[answer, vec![0; 7]].concat()).is_ok());
    }
}

#[test]
fn another_secret() {
    let mut stranger = connection();
    stranger.client = Arc::new(Client { secret: Secret::from(&b"other"[..]), ..(*stranger.client).clone() });
    let mut access = Access::new(stranger);
    let request = bytes(RECORDED[0].0);
    let made = access.ask(0, &carried(&request), &mut Known(request[4..20].to_vec())).expect("a request");
    assert_ne!(made, request);
    assert_eq!(access.answer(&bytes(RECORDED[0].1)), Err(Discard::Unauthentic));
}

/// A conversation that waits for its first answer, and the request's authenticator.
fn asked() -> (Access, Vec<u8>) {
    let mut access = Access::new(connection());
    let eap = Access::introduce("alice").expect("short");
    let request = access.ask(9, &eap, &mut Seeded::new(1)).expect("a request");
    (access, request[4..20].to_vec())
}

/// An answer to it, as a server seals it: its Message-Authenticators are where `body` has zeros for them.
fn sealed(code: u8, request: &[u8], body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + body.len()).expect("short").to_be_bytes();
    let mut packet = [&[code, 9][..], &len, request, body].concat();
    let mac = mobileip::Authenticator::HmacMd5.compute(&Secret::from(SECRET), &packet);
    let blank = [&[80, 18][..], &[0; 16]].concat();
    for at in 20..packet.len().saturating_sub(17) {
        if packet[at..at + 18] == blank {
            packet[at + 2..at + 18].copy_from_slice(&mac);
        }
    }
    let authenticator = eap::md5(&[&packet, SECRET]);
    packet[4..20].copy_from_slice(&authenticator);
    packet
}

fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, u8::try_from(value.len() + 2).expect("short")][..], value].concat()
}

fn signed(attributes: &[Vec<u8>]) -> Vec<u8> {
    [attribute(80, &[0; 16]), attributes.concat()].concat()
}

/// A key of Microsoft's, hidden as RFC 2548 has it.
fn hidden(kind: u8, key: &[u8], request: &[u8]) -> Vec<u8> {
    let salt = [0x80, kind];
    let mut plain = [&[u8::try_from(key.len()).expect("short")][..], key].concat();
    plain.resize(plain.len().next_multiple_of(16), 0);
    let mut pad = eap::md5(&[SECRET, request, &salt]);
    for block in plain.chunks_exact_mut(16) {
        block.iter_mut().zip(pad).for_each(|(byte, mask)| *byte ^= mask);
        pad = eap::md5(&[SECRET, block]);
    }
    let len = u8::try_from(plain.len() + 4).expect("short");
    attribute(26, &[&[0, 0, 1, 55, kind, len][..], &salt, &plain].concat())
}

#[test]
fn what_a_server_grants() {
    let (mut access, request) = asked();
    let attributes = [
        attribute(1, b"Alice of Example"),
        attribute(27, &3_600_u32.to_be_bytes()),
        attribute(28, &600_u32.to_be_bytes()),
        attribute(85, &60_u32.to_be_bytes()),
        attribute(8, &[10, 0, 0, 7]),
        attribute(11, b"staff"),
        attribute(25, b"one"),
        attribute(25, b"two"),
        attribute(79, &[3, 0, 0, 4]),
        hidden(16, &[2; 32], &request),
        hidden(17, &[1; 32], &request),
    ];
    let answer = access.answer(&sealed(2, &request, &signed(&attributes)));
    let Ok(Answer::Accepted { identity, msk, grants, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(identity, "Alice of Example");
    assert_eq!(msk, Msk::of(&[&[1; 32], &[2; 32]]), "what the gateway receives with comes first");
    let expected = Grants {
        lasts: Some(Duration::from_secs(3_600)),
        idle: Some(Duration::from_secs(600)),
        interim: Some(Duration::from_secs(60)),
        address: Some(Ipv4Addr::new(10, 0, 0, 7)),
        filter: Some("staff".to_owned()),
        class: vec![b"one".to_vec(), b"two".to_vec()],
    };
    assert_eq!(grants, expected);
}

#[test]
fn answers_that_make_no_sense() {
    let (_, request) = asked();
    let keys = || [hidden(16, &[2; 32], &request), hidden(17, &[1; 32], &request)];
    let (success, failure) = (attribute(79, &[3, 0, 0, 4]), attribute(79, &[4, 0, 0, 4]));
    let ask = attribute(79, &[1, 1, 0, 5, 1]);
    let [send, receive] = keys();
    let mut long = hidden(17, &[1; 15], &request);
    long[10] ^= 0xf0;
    for (code, attributes, why) in [
        (2, vec![success.clone()], Broken::NoKey),
        (2, vec![success.clone(), send.clone()], Broken::NoKey),
        (2, vec![success.clone(), send.clone(), long], Broken::NoKey),
        (
            2,
            vec![success.clone(), send.clone(), attribute(26, &[0, 0, 1, 55, 17, 4, 0x80, 1])],
            Broken::NoKey,
        ),
        (2, vec![failure.clone(), send.clone(), receive.clone()], Broken::Contradiction),
        (2, vec![ask, send.clone(), receive.clone()], Broken::Contradiction),
        (2, vec![send, receive], Broken::Contradiction),
        (11, vec![success.clone()], Broken::Contradiction),
        (11, vec![], Broken::Contradiction),
    ] {
        let (mut access, request) = asked();
        let answer = access.answer(&sealed(code, &request, &signed(&attributes)));
        assert_eq!(answer, Ok(Answer::Broken { eap: vec![4, 0, 0, 4], why }), "{code} {attributes:?}");
    }
    // A rejection is one whatever stands beside it, and the peer hears it as one.
    for attributes in [vec![], vec![failure], vec![success]] {
        let (mut access, request) = asked();
        let attributes = [attributes, vec![attribute(18, b"not today")]].concat();
        let answer = access.answer(&sealed(3, &request, &signed(&attributes)));
        let message = Some("not today".to_owned());
        assert_eq!(answer, Ok(Answer::Rejected { eap: vec![4, 0, 0, 4], message }));
    }
}

/// "Blast-RADIUS": what has a right Response Authenticator alone is no answer.
#[test]
fn answers_that_nobody_has_signed() {
    let (mut access, request) = asked();
    let reject = attribute(79, &[4, 0, 0, 4]);
    assert_eq!(access.answer(&sealed(3, &request, &reject)), Err(Discard::Unsigned));
    assert_eq!(access.answer(&sealed(3, &request, &attribute(80, &[0; 15]))), Err(Discard::Malformed));
    let twice = [attribute(80, &[0; 16]), attribute(80, &[0; 16])].concat();
    assert_eq!(access.answer(&sealed(3, &request, &twice)), Err(Discard::Malformed));
    // Of a kind that answers nothing, or something else.
    for code in [0, 1, 4, 5, 12, 255] {
        assert_eq!(access.answer(&sealed(code, &request, &signed(&[]))), Err(Discard::Unexpected));
    }
    // At any place it is good: servers that are older have it last.
    let last = [reject, attribute(80, &[0; 16])].concat();
    assert!(matches!(access.answer(&sealed(3, &request, &last)), Ok(Answer::Rejected { .. })));
}

#[test]
fn what_a_gateway_does_not_ask() {
    let mut access = Access::new(connection());
    let mut random = Seeded::new(1);
    let mut refused = |eap: &[u8]| access.ask(0, eap, &mut random).expect_err("refused");
    assert!(matches!(refused(b"\x01\x00\x00\x05\x01"), Error::Unexpected(_)));
    assert!(matches!(refused(b"\x02\x00\x00\x06\x03\x1a"), Error::Unexpected(_)));
    assert!(matches!(refused(b"\x02\x00\x00\x05\x01"), Error::Unexpected(_)));
    assert!(matches!(refused(b"\x02\x00\x00\x06\x01\xff"), Error::Malformed(_)));
    assert!(matches!(refused(b"\x02\x00\x00\x09\x01"), Error::Malformed(_)));
    assert!(matches!(refused(&Access::introduce(&"x".repeat(254)).expect("fits EAP")), Error::TooLong(_)));
    // A later packet as large as RADIUS can carry, and one that it cannot.
    let (mut access, _) = asked();
    let large = |len: u16| [&[2, 1][..], &len.to_be_bytes(), &[13], &vec![0; usize::from(len) - 5]].concat();
    let packet = access.ask(1, &large(3_900), &mut Seeded::new(1)).expect("it fits");
    assert!(packet.len() <= limits::MAX_RADIUS);
    assert_eq!(carried(&packet), large(3_900));
    assert!(matches!(access.ask(1, &large(4_090), &mut Seeded::new(1)), Err(Error::TooLong(_))));
}

#[test]
fn nothing_goes_on_for_ever() {
    let (mut access, mut request) = asked();
    for turn in 1..=limits::MAX_TURNS {
        let again = signed(&[attribute(79, &[1, 1, 0, 5, 1]), attribute(24, &turn.to_be_bytes())]);
        match access.answer(&sealed(11, &request, &again)).expect("authentic") {
            Answer::Continue { .. } => {
                let packet = access.ask(9, b"\x02\x01\x00\x05\x01", &mut Seeded::new(u64::from(turn)));
                let packet = packet.expect("a request");
                assert_eq!(packet[packet.len() - 4..], [&[24, 4][..], &turn.to_be_bytes()].concat());
                request = packet[4..20].to_vec();
            }
            end => {
                assert_eq!(turn, limits::MAX_TURNS);
                assert!(matches!(end, Answer::Broken { why: Broken::Endless, .. }), "{end:?}");
                return;
            }
        }
    }
    panic!("no end");
}

/// Reports to hostapd 2.10, and its answers.
#[test]
fn recorded_accounting() {
    let usage = Usage {
        time: Duration::from_secs(61),
        received: 5 << 32 | 7,
        sent: 8,
        packets_received: 1,
        packets_sent: 2,
    };
    let mut account = Account::new(connection(), "alice".to_owned(), "s1".to_owned(), None, Vec::new());
    for (number, event, request, answer) in [
        (
            0,
            Event::Start,
            "04000059d62e81126c6caec3ff2e9b0dc89f04662806000000012c0473310107616c6963652009676174657761790406c00002013d0600000\
             0050606000000021e0b3139322e302e322e311f0e3139382e35312e3130302e37",
            "05000014b3a48ece56906f4f8fe6c48e2685b614",
        ),
        (
            1,
            Event::Interim(usage),
            "040100836a7e2192cb76d116252738ff673233152806000000032c0473310107616c6963652009676174657761790406c00002013d0600000\
             0050606000000021e0b3139322e302e322e311f0e3139382e35312e3130302e372e060000003d2a06000000073406000000052b0600000008\
             3506000000002f0600000001300600000002",
            "05010014f462d489e01c135931f3df025d412673",
        ),
        (
            2,
            Event::Stop(usage, 1),
            "04020089a662cf20613b1d2fd9ea3299cd6af69a2806000000022c0473310107616c6963652009676174657761790406c00002013d0600000\
             0050606000000021e0b3139322e302e322e311f0e3139382e35312e3130302e372e060000003d2a06000000073406000000052b0600000008\
             3506000000002f0600000001300600000002310600000001",
            "05020014c325617b8073de9d5c9b63343071de26",
        ),
    ] {
        assert_eq!(account.report(number, event, Duration::ZERO), Ok(bytes(request)));
        let answer = bytes(answer);
        for at in 0..answer.len() {
            let mut forged = answer.clone();
            forged[at] ^= 1;
            assert!(account.answer(&forged).is_err(), "byte {at}");
        }
        assert_eq!(account.answer(&answer), Ok(()));
        assert_eq!(account.answer(&answer), Err(Discard::Unexpected));
    }
    let (address, class) = (Some(Ipv4Addr::new(10, 0, 0, 7)), vec![b"one".to_vec(), b"two".to_vec()]);
    let mut account = Account::new(connection(), "alice".to_owned(), "s2".to_owned(), address, class);
    let report = account.report(0, Event::Start, Duration::from_secs(9)).expect("short");
    for part in [
        attribute(41, &[0, 0, 0, 9]),
        attribute(8, &[10, 0, 0, 7]),
        attribute(25, b"one"),
        attribute(25, b"two"),
    ] {
        assert!(report.windows(part.len()).any(|window| window == part));
    }
}

proptest! {
    #[test]
    fn any_answers(code in prop::sample::select(vec![2_u8, 3, 11]), data in prop::collection::vec(any::<u8>(), 0..256)) {
        dormouse_eap::fuzz::radius(&[vec![code], data].concat());
    }

    #[test]
    fn any_attributes(
        code in prop::sample::select(vec![2_u8, 3, 11]),
        kinds in prop::collection::vec((prop::sample::select(vec![1_u8, 8, 24, 26, 27, 79, 80]), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
    ) {
        let data = kinds.into_iter().flat_map(|(kind, value)| attribute(kind, &value));
        dormouse_eap::fuzz::radius(&[code].into_iter().chain(data).collect::<Vec<u8>>());
    }
}
