//! ICMP errors made into the other family's, with the packet that they quote. Owns which error of one family says what an error of the other
//! says (RFC 7915 sections 4.2 and 5.2); must never choose an address.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::icmp::{self, HEADER_LEN, MAX_V4_ERROR, MAX_V6_ERROR};
use super::super::{Ipv4, Ipv4Header, Ipv6, Ipv6Header, checksum, protocol};
use super::{of_v4, of_v6, requote};

/// Between the two headers, in bytes: what an IPv4 packet grows by as one of IPv6.
const GROWTH: u32 = 20;

/// Of the bytes of an IPv4 header, those of an IPv6 header that say the same (RFC 7915 figure 3).
const POINTERS: [(core::ops::RangeInclusive<u8>, u8); 7] =
    [(0..=0, 0), (1..=1, 1), (2..=3, 4), (8..=8, 7), (9..=9, 6), (12..=15, 8), (16..=19, 24)];
/// And the other way round (figure 6).
const POINTERS_V6: [(core::ops::RangeInclusive<u32>, u8); 7] =
    [(0..=0, 0), (1..=1, 1), (4..=5, 2), (6..=6, 9), (7..=7, 8), (8..=23, 12), (24..=39, 16)];

/// An ICMPv4 error about a packet from `dst` to `src`, as one of ICMPv6 between these addresses. `None` for anything else, for an error that
/// ICMPv6 has not, and for one that quotes a fragment or a packet that was not between the two.
#[must_use]
pub fn to_v6(packet: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Option<Vec<u8>> {
    let outer = Ipv4::parse(packet).ok()?;
    let error = icmp::parse_error(&outer)?;
    let &[_, _, _, _, pointer, ..] = outer.payload() else { return None };
    let quoted = Ipv4::parse_header(error.quoted).ok().filter(|q| q.fragment().is_none())?;
    if (quoted.src(), quoted.dst()) != (outer.dst(), outer.src()) {
        return None;
    }
    let (kind, code, word) = error_v6(error.kind, error.code, pointer, error.mtu)?;
    let [w0, w1, w2, w3] = word.to_be_bytes();
    let mut body = vec![kind, code, 0, 0, w0, w1, w2, w3];
    let inner = Ipv6Header {
        traffic_class: quoted.tos(),
        hop_limit: quoted.ttl(),
        ..Ipv6Header::new(dst, src, of_v6(quoted.protocol())?)
    };
    let upper = quoted.total_len().checked_sub(quoted.header_len())?;
    body.extend_from_slice(&inner.to_bytes(upper).ok()?);
    let mut payload = quoted.payload().to_vec();
    requote(
        quoted.protocol(),
        &mut payload,
        upper,
        (outer.dst().into(), outer.src().into()),
        (dst.into(), src.into()),
    )?;
    body.extend_from_slice(&payload);
    body.truncate(MAX_V6_ERROR - Ipv6::HEADER);
    let header = Ipv6Header { hop_limit: outer.ttl(), ..Ipv6Header::new(src, dst, protocol::ICMPV6) };
    let pseudo = checksum::pseudo_header(src.into(), dst.into(), protocol::ICMPV6, body.len());
    Some(sealed(&header.to_bytes(body.len()).ok()?, pseudo, body))
}

/// An ICMPv6 error about a packet from `dst` to `src`, as one of ICMPv4 between these addresses. `None` as for [`to_v6`].
#[must_use]
pub fn to_v4(packet: &[u8], src: Ipv4Addr, dst: Ipv4Addr) -> Option<Vec<u8>> {
    let (outer, quoted) = quoted_v6(packet)?;
    let &[kind, code, _, _, w0, w1, w2, w3, ..] = outer.payload() else { return None };
    let (kind, code, [w0, w1, w2, w3]) = error_v4(kind, code, u32::from_be_bytes([w0, w1, w2, w3]))?;
    let mut body = vec![kind, code, 0, 0, w0, w1, w2, w3];
    let inner = Ipv4Header {
        tos: quoted.traffic_class(),
        ttl: quoted.hop_limit(),
        ..Ipv4Header::new(dst, src, of_v4(quoted.next_header())?)
    };
    let upper = quoted.total_len().checked_sub(Ipv6::HEADER)?;
    body.extend_from_slice(&inner.to_bytes(upper).ok()?);
    let mut payload = quoted.payload().to_vec();
    let was = (IpAddr::from(quoted.src()), IpAddr::from(quoted.dst()));
    requote(quoted.next_header(), &mut payload, upper, was, (dst.into(), src.into()))?;
    body.extend_from_slice(&payload);
    body.truncate(MAX_V4_ERROR - Ipv4::MIN_HEADER);
    let header = Ipv4Header {
        ttl: outer.hop_limit(),
        dont_fragment: false,
        ..Ipv4Header::new(src, dst, protocol::ICMP)
    };
    Some(sealed(&header.to_bytes(body.len()).ok()?, checksum::Sum::default(), body))
}

/// An ICMPv6 error, and the packet of the other direction that it quotes, which may be cut short. `None` for anything else, and where the
/// checksum is wrong.
#[must_use]
pub fn quoted_v6(packet: &[u8]) -> Option<(Ipv6<'_>, Ipv6<'_>)> {
    let outer = Ipv6::parse(packet).ok().filter(|p| p.next_header() == protocol::ICMPV6)?;
    let message = outer.payload();
    let (&[kind, ..], quoted) = message.split_first_chunk::<HEADER_LEN>()?;
    let quoted = Ipv6::parse_header(quoted).ok()?;
    let pseudo =
        checksum::pseudo_header(outer.src().into(), outer.dst().into(), protocol::ICMPV6, message.len());
    let sound = kind < 128
        && (quoted.src(), quoted.dst()) == (outer.dst(), outer.src())
        && pseudo.add_bytes(message).finish() == 0;
    sound.then_some((outer, quoted))
}

/// The packet of a header and an ICMP message, whose checksum is filled in.
fn sealed(header: &[u8], pseudo: checksum::Sum, mut body: Vec<u8>) -> Vec<u8> {
    let sum = pseudo.add_bytes(&body).finish().to_be_bytes();
    if let Some(field) = body.get_mut(2..4) {
        field.copy_from_slice(&sum);
    }
    [header, &body].concat()
}

/// Type, code and the word behind them.
fn error_v6(kind: u8, code: u8, pointer: u8, mtu: u16) -> Option<(u8, u8, u32)> {
    Some(match (kind, code) {
        // Protocol unreachable: the pointer is at the next header.
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => (2, 0, (u32::from(mtu) + GROWTH).max(MAX_V6_ERROR as u32)),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (3, 0..=12) => (1, 0, 0),
        (11, code) => (3, code, 0),
        (12, 0 | 2) => (4, 0, POINTERS.iter().find(|(of, _)| of.contains(&pointer))?.1.into()),
        _ => return None,
    })
}

fn error_v4(kind: u8, code: u8, word: u32) -> Option<(u8, u8, [u8; 4])> {
    Some(match (kind, code) {
        (1, 0 | 2 | 3) => (3, 1, [0; 4]),
        (1, 1) => (3, 10, [0; 4]),
        (1, 4) => (3, 3, [0; 4]),
        (2, _) => {
            let [m0, m1] = u16::try_from(word.saturating_sub(GROWTH)).unwrap_or(u16::MAX).to_be_bytes();
            (3, 4, [0, 0, m0, m1])
        }
        (3, code) => (11, code, [0; 4]),
        (4, 0) => (12, 0, [POINTERS_V6.iter().find(|(of, _)| of.contains(&word))?.1, 0, 0, 0]),
        (4, 1) => (3, 2, [0; 4]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::{Packet, flow, udp};
    use super::*;

    const LSI: [Ipv4Addr; 2] = [Ipv4Addr::new(1, 0, 0, 1), Ipv4Addr::new(1, 2, 3, 4)];
    const HIT: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0x2001, 0x22, 1, 2, 3, 4, 5, 6),
        Ipv6Addr::new(0x2001, 0x21, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf),
    ];

    /// A datagram from the first to the second.
    fn datagram(ends: [IpAddr; 2], len: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        udp::build((ends[0], 40_000).into(), (ends[1], 80).into(), &vec![7; len], &mut packet).unwrap();
        packet
    }

    /// An ICMPv6 error about `quoted` from its receiver.
    fn error(head: [u8; 8], quoted: &[u8]) -> Vec<u8> {
        let of = Ipv6::parse_header(quoted).unwrap();
        let body = [&head[..], quoted].concat();
        let pseudo = checksum::pseudo_header(of.dst().into(), of.src().into(), protocol::ICMPV6, body.len());
        let header = Ipv6Header::new(of.dst(), of.src(), protocol::ICMPV6).to_bytes(body.len()).unwrap();
        sealed(&header, pseudo, body)
    }

    #[test]
    fn an_error_goes_there_and_back_with_what_it_quotes() {
        for len in [0, 7, 1_200, 3_000] {
            let v4 = datagram(LSI.map(IpAddr::from), len);
            for (kind, code) in [(3, 3), (3, 1), (3, 2), (3, 10), (11, 0), (11, 1)] {
                let mut sent = Vec::new();
                assert!(icmp::error(&v4, LSI[1], kind, code, &mut sent));
                let out = to_v6(&sent, HIT[1], HIT[0]).unwrap();
                let (outer, quoted) = quoted_v6(&out).expect("an error of ICMPv6");
                assert_eq!((outer.src(), quoted.src(), quoted.dst()), (HIT[1], HIT[0], HIT[1]));
                // What is quoted is what goes into the tunnel, as far as it is.
                let whole = super::super::to_v6(&v4, HIT[0], HIT[1]).unwrap();
                let seen = quoted.as_bytes();
                assert_eq!(seen, &whole[..seen.len()], "{len}");
                let back = to_v4(&out, LSI[1], LSI[0]).unwrap();
                let back = Ipv4::parse(&back).unwrap();
                let error = icmp::parse_error(&back).expect("its checksum is right");
                assert_eq!((error.kind, error.code), (kind, code));
                assert!(back.total_len() <= MAX_V4_ERROR && back.checksum_ok());
                assert_eq!(error.quoted, &v4[..error.quoted.len()], "{len}");
                assert!(error.quoted.len() >= v4.len().min(500));
            }
        }
    }

    /// An echo that is quoted has the type and the checksum of its family.
    #[test]
    fn a_quoted_echo_is_one_of_the_other_family() {
        let mut v4 = Vec::new();
        let (src, dst) = (LSI[0].into(), LSI[1].into());
        icmp::Echo { src, dst, reply: false, id: 3, sequence: 4, payload: b"odd" }.build(&mut v4).unwrap();
        let v6 = super::super::to_v6(&v4, HIT[0], HIT[1]).unwrap();
        let back = to_v4(&error([3, 0, 0, 0, 0, 0, 0, 0], &v6), LSI[1], LSI[0]).unwrap();
        assert_eq!(icmp::parse_error(&Ipv4::parse(&back).unwrap()).unwrap().quoted, v4);
    }

    #[test]
    fn the_size_that_passes_is_that_of_the_family() {
        let v6 = datagram(HIT.map(IpAddr::from), 1_400);
        for (mtu, said) in [(1_300_u32, 1_280), (100_000, u16::MAX)] {
            let [m0, m1, m2, m3] = mtu.to_be_bytes();
            let out = to_v4(&error([2, 0, 0, 0, m0, m1, m2, m3], &v6[..1_000]), LSI[1], LSI[0]).unwrap();
            let error = icmp::parse_error(&Ipv4::parse(&out).unwrap()).unwrap().mtu;
            assert_eq!(error, said);
        }
        let mut needs = Vec::new();
        assert!(icmp::error_too_big(&datagram(LSI.map(IpAddr::from), 1_400), LSI[1], 1_300, &mut needs));
        let out = to_v6(&needs, HIT[1], HIT[0]).unwrap();
        assert_eq!((&out[40..42], &out[44..48]), (&[2, 0][..], &1_320_u32.to_be_bytes()[..]));
    }

    #[test]
    fn pointers_lead_to_the_same_field() {
        let v6 = datagram(HIT.map(IpAddr::from), 9);
        for (at, there) in [(6, Some(9)), (7, Some(8)), (30, Some(16)), (2, None), (40, None)] {
            let out = to_v4(&error([4, 0, 0, 0, 0, 0, 0, at], &v6), LSI[1], LSI[0]);
            assert_eq!(out.map(|out| out[24]), there, "{at}");
        }
        for (at, there) in [(8, Some(7)), (9, Some(6)), (17, Some(24)), (4, None), (20, None)] {
            assert_eq!(error_v6(12, 0, at, 0).map(|(_, _, word)| word), there, "{at}");
        }
    }

    /// About a packet between others, about a fragment, of a type that the other family has not, forged or cut short: nothing comes of it.
    #[test]
    fn what_is_no_error_about_the_two_is_left_alone() {
        let v6 = datagram(HIT.map(IpAddr::from), 9);
        let good = error([1, 4, 0, 0, 0, 0, 0, 0], &v6);
        assert!(to_v4(&good, LSI[1], LSI[0]).is_some());
        let mut elsewhere = v6.clone();
        elsewhere[39] ^= 1;
        let mut other = error([1, 4, 0, 0, 0, 0, 0, 0], &elsewhere);
        other[23] ^= 1;
        let mut forged = good.clone();
        forged[50] ^= 1;
        let mut fragment = v6.clone();
        fragment[6] = protocol::FRAGMENT;
        fragment.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 7]);
        fragment[5] += 8;
        let of = |head: [u8; 8]| error(head, &v6);
        for packet in [
            other,
            forged,
            error([1, 4, 0, 0, 0, 0, 0, 0], &fragment),
            of([1, 9, 0, 0, 0, 0, 0, 0]),
            of([4, 2, 0, 0, 0, 0, 0, 0]),
            of([99, 0, 0, 0, 0, 0, 0, 0]),
            of([128, 0, 0, 0, 0, 0, 0, 0]),
            good[..60].to_vec(),
            v6.clone(),
        ] {
            assert_eq!(to_v4(&packet, LSI[1], LSI[0]), None, "{packet:02x?}");
        }
        let v4 = datagram(LSI.map(IpAddr::from), 9);
        let mut unknown = Vec::new();
        assert!(icmp::error(&v4, LSI[1], 3, 14, &mut unknown));
        let mut between_others = Vec::new();
        assert!(icmp::error(&v4, Ipv4Addr::new(1, 9, 9, 9), 3, 3, &mut between_others));
        for packet in [unknown, between_others, v4] {
            assert_eq!(to_v6(&packet, HIT[1], HIT[0]), None, "{packet:02x?}");
        }
        assert!(Packet::parse(&good).is_ok() && flow(&good).is_some());
    }
}
