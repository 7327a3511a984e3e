//! What a peer may not do: messages that contradict themselves, and counts that are out of proportion.

use dormouse_wire::Error;
use dormouse_wire::ike::{
    ExchangeType, Flags, Header, Message, Notify, NotifyType, Payload, PayloadType, Proposal, ProtocolId,
    Sealing, TsRange, emit_payloads, limits, parse_payloads, unsupported_critical,
};

fn header() -> Header {
    Header::new(1, 0, ExchangeType::IkeSaInit, Flags { initiator: true, ..Flags::default() }, 0)
}

fn message(payloads: &[Payload]) -> Vec<u8> {
    let mut out = Vec::new();
    Message::emit(&header(), payloads, &mut out).expect("can be expressed");
    out
}

fn bytes(hex: &str) -> Vec<u8> {
    hex::decode(hex.split_whitespace().collect::<String>()).expect("hexadecimal")
}

#[test]
fn unknown_critical_payloads_are_told_from_those_that_may_be_skipped() {
    let unknown = |critical| Payload::Unknown { kind: PayloadType::from(99), critical, body: vec![1] };
    let parsed = Message::parse(&message(&[unknown(false), unknown(true)])).expect("kept, not refused");
    assert_eq!(unsupported_critical(&parsed.payloads), Some(PayloadType::Unknown(99)));
    let parsed = Message::parse(&message(&[unknown(false)])).expect("kept, not refused");
    assert_eq!(unsupported_critical(&parsed.payloads), None);
}

#[test]
fn another_major_version_is_named_and_its_header_is_still_readable() {
    let mut bytes = message(&[]);
    bytes[17] = 0x31;
    let refused = Message::parse(&bytes);
    assert_eq!(refused, Err(Error::Value { what: "major version", got: 3, expect: "2" }));
    assert_eq!(Header::parse(&bytes).map(|h| (h.spi_i, h.major())), Ok((1, 3)));
    bytes[17] = 0x2f;
    assert!(Message::parse(&bytes).is_ok(), "a higher minor version is accepted (RFC 7296 section 2.5)");
}

#[test]
fn length_must_be_that_of_the_datagram() {
    let mut bytes = message(&[Payload::VendorId(vec![1])]);
    bytes.push(0);
    assert_eq!(Message::parse(&bytes), Err(Error::Length { what: "IKE message", got: 33, expect: 34 }));
}

#[test]
fn payload_length_below_its_own_header() {
    for length in 0..4 {
        let chain = [0, 0, 0, length];
        let expected = Error::Length { what: "V", got: usize::from(length), expect: 4 };
        assert_eq!(parse_payloads(PayloadType::VendorId, &chain), Err(expected));
    }
}

#[test]
fn encrypted_payload_inside_the_encrypted_payload() {
    for kind in [PayloadType::Sk, PayloadType::Skf] {
        let refused = parse_payloads(kind, &[0, 0, 0, 4]);
        assert!(matches!(refused, Err(Error::Value { what: "type of a decrypted payload", .. })));
    }
}

#[test]
fn nothing_may_follow_the_encrypted_payload() {
    let mut out = Vec::new();
    let sealing = Sealing { header: &header(), cleartext: &[], first: PayloadType::None, fragment: None };
    sealing.emit(8, &mut out).expect("fits");
    out.extend_from_slice(&[0, 0, 0, 4]);
    out[27] += 4;
    assert_eq!(Message::parse(&out), Err(Error::Trailing { what: "IKE message", extra: 4 }));
}

#[test]
fn more_payloads_than_any_peer_sends() {
    let many = vec![Payload::VendorId(Vec::new()); limits::MAX_PAYLOADS];
    assert_eq!(Message::parse(&message(&many)).map(|m| m.payloads.len()), Ok(limits::MAX_PAYLOADS));
    let too_many = vec![Payload::VendorId(Vec::new()); limits::MAX_PAYLOADS + 1];
    let refused = Message::parse(&message(&too_many));
    assert_eq!(refused, Err(Error::TooMany { what: "payloads", limit: limits::MAX_PAYLOADS }));
}

#[test]
fn more_proposals_than_any_peer_sends() {
    let proposal = Proposal { number: 1, protocol: ProtocolId::Esp, spi: Vec::new(), transforms: Vec::new() };
    let sa = Payload::Sa(vec![proposal; limits::MAX_PROPOSALS + 1]);
    let refused = Message::parse(&message(&[sa]));
    assert_eq!(refused, Err(Error::TooMany { what: "proposals", limit: limits::MAX_PROPOSALS }));
}

#[test]
fn transform_count_and_chain_must_agree() {
    let one = "00 00 0014 00 00 0010 01 01 00 01 00 00 0008 02 00 0005";
    assert!(parse_payloads(PayloadType::Sa, &bytes(one)).is_ok());
    let count_says_two = one.replace("01 01 00 01", "01 01 00 02");
    let refused = parse_payloads(PayloadType::Sa, &bytes(&count_says_two));
    assert_eq!(refused, Err(Error::Length { what: "transform list", got: 1, expect: 2 }));
    let count_says_none = one.replace("01 01 00 01", "01 01 00 00");
    let refused = parse_payloads(PayloadType::Sa, &bytes(&count_says_none));
    assert_eq!(refused, Err(Error::Trailing { what: "proposal", extra: 8 }));
    let flag_is_a_proposals = one.replace("00 00 0008 02", "02 00 0008 02");
    let refused = parse_payloads(PayloadType::Sa, &bytes(&flag_is_a_proposals));
    assert!(matches!(refused, Err(Error::Value { what: "substructure flag", got: 2, .. })));
}

#[test]
fn transforms_with_unknown_attributes_are_kept_apart() {
    // A key length twice, in both encodings, and a private attribute: none may pass for a plain key length.
    let chain = bytes(
        "00 00 0026 00 00 0022 01 01 00 01
           00 00 001a 01 00 000c 800e 0080 800e 0100 000e 0002 00c0 c000 0001",
    );
    let parsed = parse_payloads(PayloadType::Sa, &chain).expect("kept, not refused");
    let [Payload::Sa(proposals)] = parsed.as_slice() else { panic!("{parsed:?}") };
    assert_eq!(proposals[0].transforms[0].key_length, Some(128));
    assert_eq!(proposals[0].transforms[0].other_attributes.len(), 3);
}

#[test]
fn nonce_outside_its_bounds() {
    for (len, ok) in [(15, false), (16, true), (256, true), (257, false)] {
        let parsed = Message::parse(&message(&[Payload::Nonce(vec![0; len])]));
        assert_eq!(parsed.is_ok(), ok, "{len} bytes: {parsed:?}");
    }
}

#[test]
fn delete_whose_spi_size_is_not_its_protocols() {
    for (chain, ok) in [
        ("00 00 0008 01 00 0000", true),
        ("00 00 000c 01 04 0001 00000001", false),
        ("00 00 000c 03 00 0001 00000001", false),
        ("00 00 000d 03 05 0001 0000000100", false),
        ("00 00 000c 03 04 0001 00000001", true),
        ("00 00 000c 03 04 0002 00000001", false),
        ("00 00 000c 03 04 0000 00000001", false),
    ] {
        assert_eq!(parse_payloads(PayloadType::Delete, &bytes(chain)).is_ok(), ok, "{chain}");
    }
}

#[test]
fn fragment_numbers_that_cannot_be() {
    for (number, total, ok) in [(1, 1, true), (0, 1, false), (2, 1, false), (1, 0, false), (1, 129, false)] {
        let mut bytes = bytes("0000000000000001 0000000000000002 35 20 23 08 00000001 00000028 24 00 000c");
        bytes.extend_from_slice(&[0, number, 0, total, 1, 2, 3, 4]);
        assert_eq!(Message::parse(&bytes).is_ok(), ok, "{number} of {total}");
    }
}

#[test]
fn selector_length_must_be_that_of_its_type() {
    let chain = bytes("00 00 0014 01 000000 07 00 000c 0000 ffff 00000000");
    let refused = parse_payloads(PayloadType::TsI, &chain);
    assert_eq!(refused, Err(Error::Length { what: "traffic selector", got: 12, expect: 16 }));
}

#[test]
fn what_cannot_be_expressed_is_not_sent_cut_short() {
    let before = vec![1, 2, 3];
    let mut out = before.clone();
    let mixed = TsRange { end: core::net::Ipv6Addr::LOCALHOST.into(), ..TsRange::any_v4() };
    for payload in [
        Payload::Cert { encoding: 4.into(), data: vec![0; 0x1_0000] },
        Payload::Notify(Notify { spi: vec![0; 256], ..Notify::new(NotifyType::Cookie, []) }),
        Payload::TsI(vec![TsRange::any_v4().into(); 256]),
        Payload::TsI(vec![mixed.into()]),
        Payload::Sa(Vec::new()),
        Payload::Unknown { kind: PayloadType::Sk, critical: false, body: Vec::new() },
    ] {
        assert!(emit_payloads(std::slice::from_ref(&payload), &mut out).is_err(), "{payload:?}");
        assert_eq!(out, before, "a refused emission leaves the buffer as it was");
    }
    let cert = || Payload::Cert { encoding: 4.into(), data: vec![0; 40_000] };
    assert!(Message::emit(&header(), &[cert(), cert()], &mut out).is_err(), "a message above 64 KiB");
    assert_eq!(out, before);
}
