//! Views of IPv4 and IPv6 packets against packets written down byte by byte.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dormouse_wire::Error;
use dormouse_wire::ip::{
    Ecn, Flow, IpFragment, Ipv4Header, Ipv6Header, Packet, flow, protocol, set_ecn, tcp, udp,
};

fn bytes(hex: &str) -> Vec<u8> {
    hex::decode(hex.split_whitespace().collect::<String>()).expect("hexadecimal")
}

/// A UDP datagram from 192.0.2.1:1000 to 198.51.100.7:53 with 2 bytes of data and a header checksum worked out by hand.
const UDP_V4: &str = "45 b8 001e 1234 4000 40 11 3ba7 c0000201 c6336407  03e8 0035 000a 0000 abcd";

#[test]
fn ipv4() {
    let packet = bytes(UDP_V4);
    let Ok(Packet::V4(v4)) = Packet::parse(&packet) else { panic!("IPv4") };
    assert!(v4.checksum_ok());
    assert_eq!((v4.src(), v4.dst()), (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7)));
    assert_eq!((v4.header_len(), v4.total_len(), v4.ttl(), v4.protocol()), (20, 30, 64, 17));
    assert_eq!((v4.tos(), v4.dont_fragment(), v4.fragment()), (0xb8, true, None));
    assert_eq!(v4.payload().len(), 10);
    let header = Ipv4Header { tos: 0xb8, id: 0x1234, ..Ipv4Header::new(v4.src(), v4.dst(), 17) };
    assert_eq!(header.to_bytes(10).map(|h| h.to_vec()), Ok(packet[..20].to_vec()));
    let whole = Packet::parse(&packet).expect("IPv4");
    assert_eq!(
        udp::Udp::parse(&whole),
        Ok(udp::Udp { src_port: 1000, dst_port: 53, payload: &[0xab, 0xcd] }),
        "a datagram without a checksum"
    );
}

#[test]
fn ipv4_fragments_show_ports_in_the_first_only() {
    let mut packet = bytes(UDP_V4);
    packet[6..8].copy_from_slice(&[0x20, 0x00]);
    let first = Packet::parse(&packet).expect("IPv4").fragment();
    assert_eq!(first, Some(IpFragment { id: 0x1234, offset: 0, more: true }));
    assert_eq!(flow(&packet).and_then(|f| f.dst_port), Some(53));
    packet[6..8].copy_from_slice(&[0x00, 0x03]);
    let last = Packet::parse(&packet).expect("IPv4");
    assert_eq!(last.fragment(), Some(IpFragment { id: 0x1234, offset: 24, more: false }));
    assert!(!last.has_upper_header());
    assert_eq!(flow(&packet).map(|f| (f.src_port, f.dst_port)), Some((None, None)));
    assert!(udp::Udp::parse(&last).is_err());
}

#[test]
fn ipv4_lengths_that_contradict_each_other() {
    let good = bytes(UDP_V4);
    let with = |at: usize, v: u8| {
        let mut p = good.clone();
        p[at] = v;
        p
    };
    let parse = |p: &[u8]| Packet::parse(p).map(|p| p.total_len());
    assert_eq!(parse(&with(0, 0x44)), Err(Error::Length { what: "IPv4 header", got: 16, expect: 20 }));
    assert_eq!(parse(&with(0, 0x4f)), Err(Error::Truncated { what: "IPv4 header", need: 60, have: 30 }));
    assert_eq!(parse(&with(3, 19)), Err(Error::Length { what: "IPv4 packet", got: 19, expect: 20 }));
    assert_eq!(parse(&with(3, 31)), Err(Error::Truncated { what: "IPv4 packet", need: 31, have: 30 }));
    assert_eq!(parse(&with(0, 0x55)), Err(Error::Value { what: "IP version", got: 5, expect: "4 or 6" }));
    assert_eq!(parse(&[]), Err(Error::Truncated { what: "IP header", need: 1, have: 0 }));
    for len in 0..good.len() {
        assert!(parse(&good[..len]).is_err(), "{len} bytes");
    }
    let padded = [good.as_slice(), &[0; 9]].concat();
    assert_eq!(parse(&padded), Ok(30), "what follows the packet is left out");
}

#[test]
fn ipv6() {
    let packet = bytes(
        "6 2 e abcde 0002 3b 07
         20010db8000000000000000000000001 20010db8000000000000000000000002 ffff",
    );
    let Ok(Packet::V6(v6)) = Packet::parse(&packet) else { panic!("IPv6") };
    assert_eq!((v6.traffic_class(), v6.hop_limit()), (0x2e, 7));
    assert_eq!((v6.next_header(), v6.protocol(), v6.total_len(), v6.payload_offset()), (59, 59, 42, 40));
    let header = Ipv6Header {
        traffic_class: 0x2e,
        flow_label: 0xabcde,
        hop_limit: 7,
        ..Ipv6Header::new(v6.src(), v6.dst(), 59)
    };
    assert_eq!(header.to_bytes(2).map(|h| h.to_vec()), Ok(packet[..40].to_vec()));
    for len in 0..packet.len() {
        assert!(Packet::parse(&packet[..len]).is_err(), "{len} bytes");
    }
}

/// An IPv6 packet whose first next header is `next`, with `payload`.
fn v6(next: u8, payload: &str) -> Vec<u8> {
    let payload = bytes(payload);
    let header = Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, next);
    [header.to_bytes(payload.len()).expect("fits").as_slice(), &payload].concat()
}

#[test]
fn ipv6_extension_headers_are_stepped_over() {
    // Hop-by-hop of 8 bytes, routing of 16, an atomic fragment, AH of 24 bytes, then UDP.
    let packet = v6(
        protocol::HOP_BY_HOP,
        "2b 00 000000000000  2c 01 0000000000000000000000000000  33 00 0000 00000007
         11 04 0000 00000001 00000002 000000000000000000000000  03e8 0035 0008 0000",
    );
    let parsed = Packet::parse(&packet).expect("IPv6");
    assert_eq!((parsed.protocol(), parsed.payload_offset()), (17, 40 + 8 + 16 + 8 + 24));
    assert_eq!(parsed.fragment(), None, "an atomic fragment is a whole packet");
    assert_eq!(flow(&packet).map(|f| (f.src_port, f.dst_port)), Some((Some(1000), Some(53))));
    for cut in 41..packet.len() - 8 {
        let mut stump = packet[..cut].to_vec();
        stump[4..6].copy_from_slice(&((cut - 40) as u16).to_be_bytes());
        let refused = Packet::parse(&stump).map(|p| p.total_len());
        assert!(
            matches!(refused, Err(Error::Truncated { what: "IPv6 extension header", .. }))
                || [48, 64, 72].contains(&cut),
            "{cut} bytes: {refused:?}"
        );
    }
}

#[test]
fn ipv6_fragments_show_ports_in_the_first_only() {
    let first = v6(protocol::FRAGMENT, "11 00 0001 0000002a  03e8 0035 0008 0000");
    let parsed = Packet::parse(&first).expect("IPv6");
    assert_eq!(parsed.fragment(), Some(IpFragment { id: 42, offset: 0, more: true }));
    assert_eq!(flow(&first).and_then(|f| f.src_port), Some(1000));
    // The last fragment claims destination options to follow; its bytes are not a header.
    let last = v6(protocol::FRAGMENT, "3c 00 0008 0000002a  ffff");
    let parsed = Packet::parse(&last).expect("IPv6");
    assert_eq!(parsed.fragment(), Some(IpFragment { id: 42, offset: 8, more: false }));
    assert_eq!((parsed.protocol(), flow(&last).and_then(|f| f.src_port)), (protocol::DESTINATION, None));
}

#[test]
fn an_endless_chain_of_extension_headers_is_refused() {
    let packet = v6(protocol::DESTINATION, &"3c 00 000000000000".repeat(20));
    let refused = Packet::parse(&packet).map(|p| p.total_len());
    assert!(matches!(refused, Err(Error::TooMany { what: "IPv6 extension headers", .. })), "{refused:?}");
}

#[test]
fn flows_of_every_kind() {
    let (src, dst): (SocketAddr, SocketAddr) =
        ("10.0.0.1:5000".parse().expect("address"), "10.0.0.2:80".parse().expect("address"));
    let mut packet = Vec::new();
    udp::build(src, dst, b"hello", &mut packet).expect("fits");
    let there = flow(&packet).expect("a packet");
    assert_eq!(
        there,
        Flow { src: src.ip(), dst: dst.ip(), protocol: 17, src_port: Some(5000), dst_port: Some(80) }
    );
    assert_eq!(there.reversed().reversed(), there);
    assert_eq!(there.reversed().src_port, Some(80));

    let icmp = v6(protocol::ICMPV6, "80 01 0000 00000000");
    assert_eq!(flow(&icmp).map(|f| (f.src_port, f.dst_port)), Some((Some(0x8001), Some(0x8001))));
    let mobility = v6(protocol::MOBILITY, "3b 00 05 00 0000 0000");
    assert_eq!(flow(&mobility).and_then(|f| f.dst_port), Some(0x0500));
    let gre = v6(47, "0000 86dd");
    assert_eq!(flow(&gre).map(|f| (f.protocol, f.src_port)), Some((47, None)));
    let stump = v6(protocol::TCP, "03e8 00");
    assert_eq!(flow(&stump).map(|f| (f.protocol, f.src_port)), Some((6, None)));
    assert_eq!(flow(b"\x45"), None);
}

#[test]
fn built_packets_have_right_checksums() {
    for (src, dst) in [("192.0.2.1:7", "192.0.2.2:9"), ("[2001:db8::1]:7", "[2001:db8::2]:9")] {
        let (src, dst): (SocketAddr, SocketAddr) =
            (src.parse().expect("address"), dst.parse().expect("address"));
        for len in [0, 1, 2, 33, 1400] {
            let data = vec![0x5a; len];
            let mut packet = Vec::new();
            udp::build(src, dst, &data, &mut packet).expect("fits");
            let view = Packet::parse(&packet).expect("a packet");
            assert_eq!(udp::Udp::parse(&view).map(|u| u.payload.to_vec()), Ok(data.clone()));
            assert_eq!(view.pseudo_header(8 + len).add_bytes(view.payload()).finish(), 0);
            if len > 0 {
                let last = packet.len() - 1;
                packet[last] ^= 1;
                let view = Packet::parse(&packet).expect("a packet");
                assert!(udp::Udp::parse(&view).is_err(), "a flipped bit is found");
            }
            let segment = tcp::Segment {
                src,
                dst,
                sequence: 0x0102_0304,
                acknowledgement: 0x0506_0708,
                flags: tcp::ACK | tcp::PSH,
                window: 4096,
                options: &[1, 1, 1, 0],
            };
            let mut packet = Vec::new();
            segment.build(&data, &mut packet).expect("fits");
            let view = Packet::parse(&packet).expect("a packet");
            assert_eq!(view.pseudo_header(24 + len).add_bytes(view.payload()).finish(), 0);
            let parsed = tcp::Tcp::parse(&view).expect("TCP");
            assert_eq!((parsed.sequence, parsed.acknowledgement), (0x0102_0304, 0x0506_0708));
            assert_eq!((parsed.flags, parsed.window, parsed.options.len()), (0x18, 4096, 4));
            assert_eq!((parsed.src_port, parsed.dst_port, parsed.payload), (7, 9, data.as_slice()));
        }
    }
}

#[test]
fn building_refuses_what_cannot_be() {
    let v4 = SocketAddr::new(IpAddr::from([1, 2, 3, 4]), 1);
    let v6 = SocketAddr::new(IpAddr::from(Ipv6Addr::LOCALHOST), 1);
    let mut out = vec![7];
    assert!(matches!(udp::build(v4, v6, &[], &mut out), Err(Error::Value { .. })));
    assert!(matches!(udp::build(v4, v4, &vec![0; 65_530], &mut out), Err(Error::TooLong { .. })));
    let segment = tcp::Segment {
        src: v4,
        dst: v4,
        sequence: 0,
        acknowledgement: 0,
        flags: 0,
        window: 0,
        options: &[1],
    };
    assert!(matches!(segment.build(&[], &mut out), Err(Error::Length { what: "TCP options", .. })));
    assert_eq!(out, [7]);
}

#[test]
fn congestion_marks() {
    let mut v4 = bytes(UDP_V4);
    assert!(set_ecn(&mut v4, Ecn::Ce));
    let Ok(Packet::V4(view)) = Packet::parse(&v4) else { panic!("IPv4") };
    assert_eq!((view.tos(), view.checksum_ok()), (0xbb, true));
    let mut packet = v6(59, "");
    assert!(set_ecn(&mut packet, Ecn::Ect0));
    assert_eq!(Packet::parse(&packet).map(|p| p.traffic_class()), Ok(2));
    assert!(!set_ecn(&mut [0x45, 0, 0], Ecn::Ce));

    // RFC 6040 section 4.2, figure 4: rows are the inner mark, columns the outer one (Not-ECT, ECT(0), ECT(1), CE).
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    let outers = [NotEct, Ect0, Ect1, Ce];
    for (inner, row) in [
        (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
        (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
        (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
        (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
    ] {
        for (outer, expected) in outers.into_iter().zip(row) {
            assert_eq!(Ecn::decapsulate(inner, outer), expected, "{inner:?} in {outer:?}");
            assert_eq!(Ecn::from_traffic_class(outer as u8), outer);
        }
    }
}
