//! ICMP errors of path-MTU discovery: built, read back, and not built where they must not be.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dormouse_wire::ip::{Ipv4, Packet, icmp, protocol, udp};

const GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));
const GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe));

fn packet(src: &str, dst: &str, len: usize) -> Vec<u8> {
    let (src, dst): (SocketAddr, SocketAddr) = (src.parse().expect("address"), dst.parse().expect("address"));
    let mut out = Vec::new();
    udp::build(src, dst, &vec![0xa5; len], &mut out).expect("fits");
    out
}

fn parse_error(packet: &[u8]) -> Option<icmp::ErrorV4<'_>> {
    icmp::parse_error(&Ipv4::parse(packet).ok()?)
}

#[test]
fn fragmentation_needed_is_read_back() {
    let original = packet("10.0.0.1:5", "10.9.9.9:7", 1450);
    let mut error = Vec::new();
    assert!(icmp::too_big(&original, GATEWAY_V4, 1400, &mut error));
    assert_eq!(error.len(), icmp::MAX_V4_ERROR);
    // Type, code, checksum, unused, next-hop MTU (RFC 1191 section 4).
    assert_eq!(error[20..22], [3, 4]);
    assert_eq!(error[24..28], [0, 0, 0x05, 0x78]);
    assert_eq!(error[28..], original[..548]);
    let outer = Ipv4::parse(&error).expect("IPv4");
    assert!(outer.checksum_ok() && !outer.dont_fragment());
    assert_eq!((outer.src(), outer.dst()), ([10, 0, 0, 254].into(), [10, 0, 0, 1].into()));
    let report = icmp::parse_error(&outer).expect("a report");
    assert_eq!((report.kind, report.code, report.mtu, report.quoted), (3, 4, 1400, &original[..548]));
}

#[test]
fn packet_too_big_quotes_the_packet() {
    let original = packet("[2001:db8::1]:5", "[2001:db8::2]:7", 1450);
    let mut error = vec![0xee];
    assert!(icmp::too_big(&original, GATEWAY_V6, 1380, &mut error));
    let error = &error[1..];
    assert_eq!(error.len(), icmp::MAX_V6_ERROR);
    // Type, code, checksum, MTU (RFC 4443 section 3.2).
    assert_eq!(error[40..42], [2, 0]);
    assert_eq!(error[44..48], [0, 0, 0x05, 0x64]);
    assert_eq!(error[48..], original[..1232]);
    let outer = Packet::parse(error).expect("IPv6");
    assert_eq!((outer.src(), outer.dst()), (GATEWAY_V6, "2001:db8::1".parse().expect("address")));
    assert_eq!(outer.pseudo_header(1240).add_bytes(outer.payload()).finish(), 0, "the checksum is right");
}

#[test]
fn a_quotation_of_eight_bytes_is_enough_for_esp() {
    // Routers older than RFC 1812 quote the header and 8 bytes: SPI and sequence number of a raw ESP packet.
    let header =
        dormouse_wire::ip::Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::ESP);
    let mut quoted = header.to_bytes(1400).expect("fits").to_vec();
    quoted.extend_from_slice(&[0xc0, 0xff, 0xee, 1, 0, 0, 0, 9]);
    let sum = dormouse_wire::ip::checksum::Sum::default()
        .add_bytes(&[3, 4, 0, 0, 0, 0, 0x04, 0xb0])
        .add_bytes(&quoted);
    let outer =
        dormouse_wire::ip::Ipv4Header::new([10, 0, 0, 99].into(), [10, 0, 0, 1].into(), protocol::ICMP);
    let mut error = outer.to_bytes(8 + quoted.len()).expect("fits").to_vec();
    let [c0, c1] = sum.finish().to_be_bytes();
    error.extend_from_slice(&[3, 4, c0, c1, 0, 0, 0x04, 0xb0]);
    error.extend_from_slice(&quoted);
    let report = parse_error(&error).expect("a report");
    assert_eq!((report.mtu, report.quoted), (1200, &quoted[..]));
    let about = Ipv4::parse_header(report.quoted).expect("a header");
    assert_eq!(dormouse_wire::esp::Header::parse(about.payload()).map(|h| h.spi), Ok(0xc0ff_ee01));
}

#[test]
fn a_report_with_a_flipped_bit_is_not_believed() {
    let mut error = Vec::new();
    assert!(icmp::too_big(&packet("10.0.0.1:5", "10.9.9.9:7", 1450), GATEWAY_V4, 1380, &mut error));
    assert!(parse_error(&error).is_some());
    for at in 20..error.len() {
        error[at] ^= 0x10;
        assert_eq!(parse_error(&error), None, "byte {at}");
        error[at] ^= 0x10;
    }
    for len in 0..error.len() {
        assert_eq!(parse_error(&error[..len]), None, "{len} bytes");
    }
}

#[test]
fn what_must_not_be_answered_with_an_error_is_not() {
    let mut error = Vec::new();
    assert!(icmp::too_big(&packet("10.0.0.1:5", "10.9.9.9:7", 600), GATEWAY_V4, 576, &mut error));
    let mut later_fragment = packet("10.0.0.1:5", "10.9.9.9:7", 600);
    later_fragment[7] = 9;
    for (what, original, gateway) in [
        ("an error", error, GATEWAY_V4),
        ("a multicast destination", packet("10.0.0.1:5", "224.0.0.9:7", 600), GATEWAY_V4),
        ("a broadcast source", packet("255.255.255.255:5", "10.0.0.1:7", 600), GATEWAY_V4),
        ("no source", packet("0.0.0.0:5", "10.0.0.1:7", 600), GATEWAY_V4),
        ("a later fragment", later_fragment, GATEWAY_V4),
        ("the other family", packet("10.0.0.1:5", "10.9.9.9:7", 600), GATEWAY_V6),
        ("a multicast source", packet("[ff02::1]:5", "[2001:db8::2]:7", 1450), GATEWAY_V6),
        ("no packet", vec![0; 60], GATEWAY_V4),
    ] {
        let mut out = Vec::new();
        assert!(!icmp::too_big(&original, gateway, 576, &mut out), "{what}");
        assert!(out.is_empty(), "{what}");
    }
    // RFC 4443 section 2.4 (e.3): Packet Too Big is the exception for multicast destinations.
    let mut out = Vec::new();
    assert!(icmp::too_big(&packet("[2001:db8::1]:5", "[ff0e::1]:7", 1450), GATEWAY_V6, 1280, &mut out));
}

#[test]
fn pings_and_their_answers() {
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
        let (src, dst): (IpAddr, IpAddr) = (src.parse().expect("address"), dst.parse().expect("address"));
        let request = icmp::Echo { src, dst, reply: false, id: 7, sequence: 1, payload: b"payload" };
        let mut bytes = Vec::new();
        request.build(&mut bytes).expect("fits");
        assert_eq!(icmp::Echo::parse(&bytes), Some(request));
        let mut answer = Vec::new();
        request.answer().build(&mut answer).expect("fits");
        let parsed = icmp::Echo::parse(&answer).expect("a reply");
        assert!(parsed.reply && parsed.src == dst && parsed.dst == src && parsed.payload == b"payload");
        let last = answer.len() - 1;
        answer[last] ^= 1;
        assert_eq!(icmp::Echo::parse(&answer), None, "a flipped bit is found");
    }
}
