//! HIP packets: known checksums, golden bytes, the rule of order, and any bytes at all.

use core::net::Ipv6Addr;

use dormouse_wire::Error;
use dormouse_wire::hip::*;
use dormouse_wire::ip::checksum;
use proptest::prelude::*;

fn hit(text: &str) -> Hit {
    Hit(text.parse().expect("a HIT"))
}

fn header(kind: PacketType) -> Header {
    Header { kind, version: Version::V2, controls: 0, sender: hit("2001:20::1"), receiver: hit("2001:20::2") }
}

fn unhex(text: &str) -> Vec<u8> {
    hex::decode(text.split_whitespace().collect::<String>()).expect("hexadecimal digits")
}

const HITS: &str = "20010020000000000000000000000001 20010020000000000000000000000002";

fn i1() -> Vec<u8> {
    let mut draft = Draft::new(&header(PacketType::I1));
    draft.add(&Param::DhGroupList(vec![3, 4, 8]));
    draft.finish().expect("an I1")
}

/// RFC 7401 appendix C.1 to C.3.
#[test]
fn checksums_of_rfc_7401() {
    for (src, dst, sum) in [("2001:db8::1", "2001:db8::2", 6750_u16), ("192.0.2.1", "192.0.2.2", 61_902)] {
        let mut packet = i1();
        let (src, dst) = (src.parse().expect("an address"), dst.parse().expect("an address"));
        set_checksum(&mut packet, Some((src, dst)));
        let expected = format!("3b050121{sum:04x}0000{HITS}01ff0003 03040800");
        assert_eq!(hex::encode(&packet), expected.replace(' ', ""));
        let parsed = Packet::parse(&packet).expect("a packet");
        assert!(parsed.checksum_is_right(src, dst));
        assert!(!parsed.checksum_is_right(src, "2001:db8::3".parse().expect("an address")));
        set_checksum(&mut packet, None);
        assert_eq!(packet[4..6], [0, 0]);
    }
    let tcp = unhex("ffdc0016 00000001 00000000 5002ffff 00000000");
    let [src, dst] = [hit("2001:20::1").0.into(), hit("2001:20::2").0.into()];
    assert_eq!(checksum::pseudo_header(src, dst, 6, 20).add_bytes(&tcp).finish(), 28_586);
}

/// RFC 5201 appendix C: an I1 of version 1 has no parameters, and IPv4-compatible addresses have the sum of the IPv4 ones.
#[test]
fn checksums_of_rfc_5201() {
    let (sender, receiver) = (hit("2001:10::1"), hit("2001:10::2"));
    let header = Header { version: Version::V1, sender, receiver, ..header(PacketType::I1) };
    for (src, dst) in [("::192.168.0.1", "::192.168.0.2"), ("192.168.0.1", "192.168.0.2")] {
        let mut packet = Draft::new(&header).finish().expect("an I1");
        let (src, dst) = (src.parse().expect("an address"), dst.parse().expect("an address"));
        set_checksum(&mut packet, Some((src, dst)));
        let hits = "2001001000000000 0000000000000001 2001001000000000 0000000000000002";
        assert_eq!(hex::encode(&packet), hex::encode(unhex(&format!("3b040111 01be0000 {hits}"))));
        assert!(Packet::parse(&packet).expect("a packet").checksum_is_right(src, dst));
    }
    let tcp = unhex("ffdc0016 00000001 00000000 5002ffff 00000000");
    let sum = checksum::pseudo_header(sender.0.into(), receiver.0.into(), 6, 20).add_bytes(&tcp).finish();
    assert_eq!(sum, 28_618);
}

/// One parameter of each kind, in ascending order, with the bytes that the formats ask for.
fn golden() -> Vec<(Param, &'static str)> {
    use ParamType as T;
    let v4 = "192.0.2.1".parse::<core::net::Ipv4Addr>().expect("an address").to_ipv6_mapped();
    let transport = TransportAddress { port: 10_500, protocol: 17, address: v4 };
    let locator = |value| Locator { traffic: 0, preferred: true, lifetime: 3_600, value };
    vec![
        (
            Param::EspInfo(EspInfo { keymat_index: 96, old_spi: 0, new_spi: 0x1234_5678 }),
            "0041000c 00000060 00000000 12345678",
        ),
        (
            Param::R1Counter(T::R1Counter, R1Counter { reserved: 0, generation: 7 }),
            "0081000c 00000000 00000000 00000007",
        ),
        (
            Param::LocatorSet(vec![
                locator(LocatorValue::Address(v4)),
                locator(LocatorValue::Esp { spi: 1, address: v4 }),
                Locator { preferred: false, ..locator(LocatorValue::Other(9, vec![1, 2, 3, 4])) },
            ]),
            "00c10040 00000401 00000e10 00000000 00000000 0000ffff c0000201 \
             00010501 00000e10 00000001 00000000 00000000 0000ffff c0000201 00090100 00000e10 01020304 00000000",
        ),
        (
            Param::Puzzle(Puzzle { k: 10, lifetime: 37, opaque: [1, 2], i: vec![0xaa; 8] }),
            "0101000c 0a250102 aaaaaaaa aaaaaaaa",
        ),
        (
            Param::Solution(Solution {
                k: 10,
                reserved: 0,
                opaque: [1, 2],
                i: vec![0xaa; 8],
                j: vec![0xbb; 8],
            }),
            "01410014 0a000102 aaaaaaaa aaaaaaaa bbbbbbbb bbbbbbbb",
        ),
        (Param::Seq(5), "01810004 00000005"),
        (Param::Ack(vec![4, 6]), "01c10008 00000004 00000006 00000000"),
        (Param::DhGroupList(vec![8, 7]), "01ff0002 08070000"),
        (
            Param::DiffieHellman(vec![DhValue { group: 7, public: vec![0xcc; 3] }]),
            "02010006 070003cc cccc0000 00000000",
        ),
        (Param::Numbers(T::HipCipher, vec![2, 4]), "02430004 00020004"),
        (Param::Suites(T::NatTraversalMode, vec![3]), "02600004 00000003"),
        (Param::Number(T::TransactionPacing, 50), "02620004 00000032"),
        (Param::Encrypted(vec![0xdd; 5]), "02810009 00000000 dddddddd dd000000"),
        (
            Param::HostId(HostId {
                algorithm: 7,
                key: vec![0, 1, 4, 9],
                domain: DomainId { kind: 1, name: b"abc".to_vec() },
            }),
            "02c1000d 00041003 00070001 04096162 63000000 00000000",
        ),
        (Param::HitSuiteList(vec![0x20, 0x10]), "02cb0002 20100000"),
        (
            Param::Notification(Notification { kind: NotifyType::BlockedByPolicy, data: vec![1] }),
            "03400005 0000002a 01000000 00000000",
        ),
        (Param::Opaque(T::EchoRequestSigned, vec![7; 4]), "03810004 07070707"),
        (
            Param::RegInfo(RegInfo { min_lifetime: 64, max_lifetime: 160, types: vec![1, 2] }),
            "03a20004 40a00102",
        ),
        (
            Param::Registration(T::RegRequest, Registration { lifetime: 120, types: vec![1] }),
            "03a40002 78010000",
        ),
        (Param::RegFailed(RegFailed { failure: 1, types: vec![2] }), "03a80002 01020000"),
        (Param::Numbers(T::TransportFormatList, vec![4095]), "08010002 0fff0000"),
        (Param::Suites(T::EspTransform, vec![13, 8]), "0fff0006 0000000d 00080000 00000000"),
        (
            Param::PeerPermission(PeerPermission {
                relay_port: 1,
                peer_port: 2,
                protocol: 17,
                relay_address: v4,
                peer_address: v4,
                spi_out: 3,
                spi_in: 4,
            }),
            "12480030 00010002 11000000 00000000 00000000 0000ffff c0000201 00000000 00000000 0000ffff c0000201 \
             00000003 00000004 00000000",
        ),
        (Param::Number(T::CandidatePriority, 1), "125c0004 00000001"),
        (Param::Opaque(T::HipMac, vec![0xee; 4]), "f0410004 eeeeeeee"),
        (
            Param::Signature(T::HipSignature, Signature { algorithm: 7, signature: vec![0xff; 6] }),
            "f1010008 0007ffff ffffffff 00000000",
        ),
        (Param::Transport(T::RelayFrom, transport), "f9fe0014 29041100 00000000 00000000 0000ffff c0000201"),
        (Param::Addresses(T::From, vec![v4]), "ffda0010 00000000 00000000 0000ffff c0000201 00000000"),
        (Param::Addresses(T::ViaRvs, vec![v4]), "ffde0010 00000000 00000000 0000ffff c0000201 00000000"),
    ]
}

#[test]
fn every_parameter_has_its_golden_bytes() {
    for (param, bytes) in golden() {
        let mut draft = Draft::bare(Version::V2);
        draft.add(&param);
        let written = draft.params().expect("a parameter");
        assert_eq!(hex::encode(&written), hex::encode(unhex(bytes)), "{param:?}");
        let raw = parse_params(&written, 0).expect("a parameter");
        assert_eq!(raw[0].read(Version::V2), Ok(param));
    }
}

#[test]
fn version_1_has_narrower_signatures_and_keys_with_their_record_header() {
    let mut draft = Draft::new(&Header { version: Version::V1, ..header(PacketType::R2) });
    let counter = Param::R1Counter(ParamType::R1CounterV1, R1Counter { reserved: 0, generation: 3 });
    let key = HostId { algorithm: 0, key: unhex("0202ff05 03010001"), domain: DomainId::default() };
    let signature = Signature { algorithm: 5, signature: vec![9; 3] };
    let params = [counter, Param::HostId(key), Param::Signature(ParamType::HipSignature, signature)];
    params.iter().for_each(|p| draft.add(p));
    let packet = draft.finish().expect("a packet");
    let expected = format!(
        "3b090411 00000000 {HITS} 0080000c 00000000 00000000 00000003 02c1000c 00080000 0202ff05 03010001 \
         f1010004 05090909"
    );
    assert_eq!(hex::encode(&packet), hex::encode(unhex(&expected)));
    let parsed = Packet::parse(&packet).expect("a packet");
    let read: Vec<_> = parsed.params().iter().filter_map(|p| p.read(Version::V1).ok()).collect();
    assert_eq!(read, params);
}

/// A packet is malformed if its parameters do not ascend; several of one type may follow each other.
#[test]
fn order_is_kept_and_checked() {
    let mut draft = Draft::new(&header(PacketType::Update));
    draft.add(&Param::Ack(vec![1]));
    draft.add(&Param::Seq(1));
    assert!(matches!(draft.finish(), Err(Error::Value { got: 385, .. })));
    for (body, fits) in [
        ("01c10004 00000001 01810004 00000001", false),
        ("01810004 00000001 01c10004 00000001", true),
        ("01c10004 00000001 01c10004 00000002", true),
    ] {
        let units = 4 + unhex(body).len() / 8;
        let packet = unhex(&format!("3b{units:02x}1021 00000000 {HITS} {body}"));
        assert_eq!(Packet::parse(&packet).is_ok(), fits, "{body}");
    }
}

#[test]
fn malformed_headers_are_refused() {
    let good = i1();
    for (at, value, what) in [
        (1, 4, "a length below that of the packet"),
        (1, 6, "a length beyond the packet"),
        (3, 0x31, "version 3"),
        (43, 9, "a parameter longer than the packet"),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(Packet::parse(&bad).is_err(), "{what}");
    }
    assert!((0..good.len()).all(|len| Packet::parse(&good[..len]).is_err()));
    let mut long = Draft::new(&header(PacketType::Notify));
    long.add(&Param::Opaque(ParamType::EchoRequestSigned, vec![0; 2_004]));
    assert_eq!(long.clone().finish().map(|p| p.len()), Ok(2_048));
    long.add(&Param::Opaque(ParamType::HipMac, vec![0; 4]));
    assert!(matches!(long.finish(), Err(Error::TooLong { .. })));
}

/// RFC 7401 section 5.1: fixed and reserved bits mean nothing to a receiver, and what follows a packet with another next header is not looked at.
#[test]
fn what_later_versions_may_use_is_ignored() {
    let good = i1();
    let expected = Packet::parse(&good).expect("an I1");
    for (at, value) in [(2, 0x81), (3, 0x20), (3, 0x2f), (0, 6)] {
        let mut other = good.clone();
        other[at] = value;
        let parsed = Packet::parse(&other).expect("an I1 still");
        assert_eq!((parsed.header, parsed.params()), (expected.header, expected.params()));
    }
    let (src, dst) = ("192.0.2.1".parse().expect("an address"), "192.0.2.2".parse().expect("an address"));
    let mut followed = good.clone();
    followed[0] = 6;
    set_checksum(&mut followed, Some((src, dst)));
    followed.extend_from_slice(b"upper-layer data");
    let parsed = Packet::parse(&followed).expect("an I1, and data");
    assert_eq!((parsed.as_bytes().len(), parsed.params()), (good.len(), expected.params()));
    assert!(parsed.checksum_is_right(src, dst));
    followed[0] = 59;
    assert!(Packet::parse(&followed).is_err(), "nothing follows by its own word");
    assert_eq!(expected.header.controls, 0);
    let mut controls = good.clone();
    controls[7] = 0xfe;
    assert_eq!(Packet::parse(&controls).expect("an I1 still").params(), expected.params());
}

#[test]
fn an_unknown_critical_parameter_is_named() {
    let packet = |body: &str| unhex(&format!("3b05 1021 00000000 {HITS} {body}"));
    let critical = packet("80010004 00000000");
    assert_eq!(
        Packet::parse(&critical).expect("a packet").unsupported_critical(),
        Some(ParamType::Unknown(0x8001))
    );
    let other = packet("80000004 00000000");
    assert_eq!(Packet::parse(&other).expect("a packet").unsupported_critical(), None);
}

/// The header's length ends before the MAC or signature, and the checksum is 0 (RFC 7401 section 6.4).
#[test]
fn what_is_covered_ends_before_the_parameter() {
    let mut draft = Draft::new(&header(PacketType::R1));
    draft.add(&Param::Puzzle(Puzzle { k: 1, lifetime: 2, opaque: [3, 4], i: vec![5; 8] }));
    let before = draft.covered(&[]);
    let appended = draft.covered(&[0; 8]);
    draft.add(&Param::Opaque(ParamType::HipMac, vec![1; 4]));
    draft.add(&Param::Signature(ParamType::HipSignature2, Signature { algorithm: 7, signature: vec![1; 6] }));
    let mut packet = draft.finish().expect("a packet");
    packet[4..6].copy_from_slice(&[0xab, 0xcd]);
    let parsed = Packet::parse(&packet).expect("a packet");
    assert_eq!(parsed.covered_by(ParamType::HipMac, &[]), Some(before.clone()));
    assert_eq!(parsed.covered_by(ParamType::HipMac, &[0; 8]), Some(appended.clone()));
    assert_eq!((before[1], appended[1], before.len(), appended.len()), (6, 7, 56, 64));
    let signed = parsed.covered_by(ParamType::HipSignature2, &[]).expect("it is there");
    assert_eq!(hex::encode(&signed[40..56]), "0101000c010200000000000000000000");
    assert_eq!((signed[1], &signed[24..40]), (7, Ipv6Addr::UNSPECIFIED.octets().as_slice()));
    assert_eq!(parsed.covered_by(ParamType::HipSignature, &[]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(mut data in prop::collection::vec(any::<u8>(), 0..300), valid: bool) {
        if valid && data.len() >= 40 {
            data.truncate(data.len() / 8 * 8);
            let units = (data.len() / 8 - 1) as u8;
            data[..4].copy_from_slice(&[59, units, 16, 0x21]);
        }
        dormouse_wire::fuzz::hip(&data);
    }
}
