//! Bytes written down from the figures of the RFCs, against the values that they stand for, in both directions.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_wire::ike::{
    AuthMethod, CertEncoding, Config, ConfigAttribute, ConfigAttributeType, ConfigType, Delete, ExchangeType,
    Flags, Fragment, Header, Id, IdType, Message, Notify, NotifyType, Payload, PayloadType, Proposal,
    ProtocolId, Sealing, TrafficSelector, Transform, TransformType, TsRange, emit_payloads, parse_payloads,
};

fn bytes(hex: &str) -> Vec<u8> {
    hex::decode(hex.split_whitespace().collect::<String>()).expect("hexadecimal")
}

/// One payload alone in a chain is `golden`, read and written.
#[track_caller]
fn check(payload: &Payload, golden: &str) {
    let golden = bytes(golden);
    assert_eq!(parse_payloads(payload.kind(), &golden).as_deref(), Ok([payload.clone()].as_slice()));
    let mut out = Vec::new();
    assert_eq!(emit_payloads(std::slice::from_ref(payload), &mut out), Ok(payload.kind()));
    assert_eq!(hex::encode(out), hex::encode(golden));
}

#[test]
fn header() {
    let header = Header {
        message_id: 7,
        length: 28,
        ..Header::new(
            0x0102_0304_0506_0708,
            0x1112_1314_1516_1718,
            ExchangeType::Informational,
            Flags { initiator: true, version: false, response: true },
            0,
        )
    };
    let golden = bytes("0102030405060708 1112131415161718 00 20 25 28 00000007 0000001c");
    assert_eq!(Header::parse(&golden), Ok(header));
    let mut out = Vec::new();
    header.emit(&mut out);
    assert_eq!(out, golden);
    out.clear();
    assert_eq!(Message::emit(&header, &[], &mut out), Ok(()));
    assert_eq!(out, golden, "a message without payloads is its header");
}

#[test]
fn security_association() {
    let aes = Transform::new(TransformType::Encryption, 20).with_key_length(256);
    let first = Proposal {
        number: 1,
        protocol: ProtocolId::Ike,
        spi: Vec::new(),
        transforms: vec![
            aes,
            Transform::new(TransformType::Prf, 5),
            Transform::new(TransformType::KeyExchange, 31),
        ],
    };
    let second = Proposal {
        number: 2,
        protocol: ProtocolId::Esp,
        spi: vec![0xc0, 0xff, 0xee, 0x01],
        transforms: vec![Transform::new(TransformType::ExtendedSequenceNumbers, 1)],
    };
    check(
        &Payload::Sa(vec![first, second]),
        "00 00 003c
           02 00 0024 01 01 00 03
             03 00 000c 01 00 0014 800e 0100
             03 00 0008 02 00 0005
             00 00 0008 04 00 001f
           00 00 0014 02 03 04 01 c0ffee01
             00 00 0008 05 00 0001",
    );
}

#[test]
fn key_exchange_and_nonce() {
    check(&Payload::Ke { group: 31, data: vec![9; 4] }, "00 00 000c 001f 0000 09090909");
    check(&Payload::Nonce(vec![7; 16]), "00 00 0014 07070707070707070707070707070707");
}

#[test]
fn identification() {
    check(&Payload::IdI(Id::new(IdType::Fqdn, *b"gw.example")), "00 00 0012 02 000000 67772e6578616d706c65");
    check(&Payload::IdR(Id::new(IdType::Ipv4Addr, [192, 0, 2, 1])), "00 00 000c 01 000000 c0000201");
    // Reserved bytes are part of what AUTH covers.
    let odd = bytes("00 00 0009 0b 010203 ff");
    let parsed = parse_payloads(PayloadType::IdI, &odd).expect("well-formed");
    let [Payload::IdI(id)] = parsed.as_slice() else { panic!("{parsed:?}") };
    assert_eq!(id.body(), bytes("0b 010203 ff"));
}

#[test]
fn certificates_and_authentication() {
    check(
        &Payload::Cert { encoding: CertEncoding::X509Signature, data: vec![0x30, 0] },
        "00 00 0007 04 3000",
    );
    check(
        &Payload::CertReq { encoding: CertEncoding::X509Signature, data: vec![1; 20] },
        "00 00 0019 04 0101010101010101010101010101010101010101",
    );
    check(
        &Payload::Auth { method: AuthMethod::DigitalSignature, data: vec![5, 6] },
        "00 00 000a 0e 000000 0506",
    );
}

#[test]
fn notify_and_delete() {
    check(&Payload::Notify(Notify::new(NotifyType::Cookie, vec![0xaa; 3])), "00 00 000b 00 00 4006 aaaaaa");
    check(
        &Payload::Notify(Notify::about_esp(NotifyType::RekeySa, 0x0102_0304)),
        "00 00 000c 03 04 4009 01020304",
    );
    check(&Payload::Delete(Delete::ike()), "00 00 0008 01 00 0000");
    check(&Payload::Delete(Delete::esp(vec![1, 0xffff_ffff])), "00 00 0010 03 04 0002 00000001 ffffffff");
}

#[test]
fn traffic_selectors() {
    let v4 = TsRange {
        protocol: 17,
        start_port: 53,
        end_port: 53,
        start: Ipv4Addr::new(10, 0, 0, 0).into(),
        end: Ipv4Addr::new(10, 255, 255, 255).into(),
    };
    let selectors = vec![
        v4.into(),
        TsRange::any_v6().into(),
        TrafficSelector::Unknown { kind: 10, protocol: 0, body: vec![0xab] },
    ];
    check(
        &Payload::TsI(selectors),
        "00 00 0045 03 000000
           07 11 0010 0035 0035 0a000000 0affffff
           08 00 0028 0000 ffff 00000000000000000000000000000000 ffffffffffffffffffffffffffffffff
           0a 00 0005 ab",
    );
    let opaque = TsRange { start_port: 65_535, end_port: 0, ..TsRange::any_v4() };
    assert!(opaque.opaque_ports() && !opaque.any_port());
    check(&Payload::TsR(vec![opaque.into()]), "00 00 0018 01 000000 07 00 0010 ffff 0000 00000000 ffffffff");
}

#[test]
fn configuration() {
    use ConfigAttributeType as A;
    let v6: Ipv6Addr = "2001:db8::5".parse().expect("address");
    let config = Config::new(
        ConfigType::Reply,
        vec![
            ConfigAttribute::ipv4(A::InternalIp4Address, Ipv4Addr::new(10, 1, 2, 3)),
            ConfigAttribute::empty(A::InternalIp4Dns),
            ConfigAttribute::ipv4_subnet(Ipv4Addr::new(10, 1, 0, 0), 20),
            ConfigAttribute::ipv6_prefix(A::InternalIp6Address, v6, 64),
        ],
    );
    check(
        &Payload::Cp(config.clone()),
        "00 00 0035 02 000000
           0001 0004 0a010203
           0003 0000
           000d 0008 0a010000 fffff000
           0008 0011 20010db8000000000000000000000005 40",
    );
    let [address, dns, subnet, prefix] = config.attributes.as_slice() else { panic!("four attributes") };
    assert_eq!(address.to_ipv4(), Some(Ipv4Addr::new(10, 1, 2, 3)));
    assert_eq!(dns.to_ipv4(), None);
    assert_eq!(subnet.to_ipv4_subnet(), Some((Ipv4Addr::new(10, 1, 0, 0), 20)));
    assert_eq!(prefix.to_ipv6_prefix(), Some((v6, 64)));
    assert_eq!(prefix.to_ipv6().map(IpAddr::from), Some(v6.into()));
    let all = ConfigAttribute::ipv4_subnet(Ipv4Addr::UNSPECIFIED, 0);
    assert_eq!(all.value, [0; 8]);
    let holes = ConfigAttribute { kind: A::InternalIp4Subnet, value: bytes("0a000000 ff00ff00") };
    assert_eq!(holes.to_ipv4_subnet(), None, "a netmask with holes is no prefix");
}

#[test]
fn chain_of_several_payloads() {
    let payloads = [
        Payload::VendorId(b"v".to_vec()),
        Payload::Eap(vec![1]),
        Payload::Unknown { kind: PayloadType::from(200), critical: true, body: vec![2] },
    ];
    let golden = bytes("30 00 0005 76  c8 00 0005 01  00 80 0005 02");
    assert_eq!(parse_payloads(PayloadType::VendorId, &golden).as_deref(), Ok(payloads.as_slice()));
    let mut out = vec![0xee];
    assert_eq!(emit_payloads(&payloads, &mut out), Ok(PayloadType::VendorId));
    assert_eq!(out, [&[0xee], golden.as_slice()].concat());
}

/// The message of RFC 7634 appendix B: its associated data are everything before the body.
#[test]
fn protected_message_of_rfc_7634() {
    let frame = bytes(
        "c0c1c2c3c4c5c6c7 d0d1d2d3d4d5d6d7 2e 20 25 00 00000009 00000045
         29 00 0029",
    );
    let body = bytes("1011121314151617 6103 9470 1f8d 017f 7c12 9248 89 6b71bfe25236efd7cdc67066906315b2");
    let whole = [frame.as_slice(), &body].concat();
    let message = Message::parse(&whole).expect("well-formed");
    let protected = message.protected.expect("an encrypted payload");
    assert_eq!(message.header.exchange, ExchangeType::Informational);
    assert_eq!(protected.first, PayloadType::Notify);
    assert_eq!((protected.body.clone(), protected.fragment), (32..69, None));

    let header = Header::new(
        0xc0c1_c2c3_c4c5_c6c7,
        0xd0d1_d2d3_d4d5_d6d7,
        ExchangeType::Informational,
        Flags::default(),
        9,
    );
    let sealing = Sealing { header: &header, cleartext: &[], first: PayloadType::Notify, fragment: None };
    let mut out = Vec::new();
    assert_eq!(sealing.emit(body.len(), &mut out), Ok(32..69));
    assert_eq!(out[..32], frame);

    let inner = bytes("00 00 000c 00 00 4001 0000000a");
    let window = Payload::Notify(Notify::new(NotifyType::SetWindowSize, vec![0, 0, 0, 10]));
    assert_eq!(parse_payloads(protected.first, &inner), Ok(vec![window]));
}

#[test]
fn encrypted_fragment() {
    let golden = bytes(
        "0000000000000001 0000000000000002 35 20 23 08 00000001 00000028
         24 00 000c 0001 0003 deadbeef",
    );
    let message = Message::parse(&golden).expect("well-formed");
    let protected = message.protected.expect("an encrypted payload");
    assert_eq!(protected.fragment, Some(Fragment { number: 1, total: 3 }));
    assert_eq!((protected.first, protected.body), (PayloadType::IdR, 36..40));
    let sealing = Sealing {
        header: &message.header,
        cleartext: &[],
        first: PayloadType::IdR,
        fragment: Some(Fragment { number: 1, total: 3 }),
    };
    let mut out = vec![0xee; 5];
    assert_eq!(sealing.emit(4, &mut out), Ok(36..40), "counted from the first byte appended");
    assert_eq!(out[5..41], golden[..36]);
}
