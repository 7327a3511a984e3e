//! Packets of one IP family made into the other's, for programs that know IPv4 only (RFC 7915, as far as end hosts need it: whole packets,
//! and [`errors`]). Owns headers and checksums; must never choose an address, nor reassemble.

pub mod errors;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Ipv4, Ipv4Header, Ipv6, Ipv6Header, checksum, protocol};

/// Types of echo requests and replies, in ICMP and in ICMPv6.
const ECHO: [(u8, u8); 2] = [(8, 128), (0, 129)];

/// An IPv4 packet as one of IPv6 between these addresses; `None` for what cannot be said there: a fragment, or ICMP but for echoes.
/// "The IPv4 TTL [...] the translator decrements" (RFC 7915 section 4.1) what it forwards: this is the sender itself, and does not.
#[must_use]
pub fn to_v6(packet: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Option<Vec<u8>> {
    let packet = Ipv4::parse(packet).ok().filter(|p| p.fragment().is_none())?;
    let header = Ipv6Header {
        traffic_class: packet.tos(),
        hop_limit: packet.ttl(),
        ..Ipv6Header::new(src, dst, of_v6(packet.protocol())?)
    };
    let payload = packet.payload();
    let mut out = header.to_bytes(payload.len()).ok()?.to_vec();
    out.extend_from_slice(payload);
    let was = (packet.src().into(), packet.dst().into());
    readdress(packet.protocol(), out.get_mut(Ipv6::HEADER..)?, was, (src.into(), dst.into()))?;
    Some(out)
}

/// The IPv4 header, between these addresses, that belongs before the payload of an IPv6 packet with this header, and the payload changed
/// to fit it; `None`, and nothing is changed, for what cannot be said there.
pub fn to_v4(
    header: &[u8],
    payload: &mut [u8],
    src: Ipv4Addr,
    dst: Ipv4Addr,
) -> Option<[u8; Ipv4::MIN_HEADER]> {
    let header: &[u8; Ipv6::HEADER] = header.try_into().ok()?;
    let [first, second, _, _, _, _, kind, hop_limit, addresses @ ..] = *header;
    let (from, to) = addresses.split_at(16);
    let ip = |octets: &[u8]| <[u8; 16]>::try_from(octets).map(Ipv6Addr::from).ok();
    let was = (ip(from)?.into(), ip(to)?.into());
    let tos = (first & 0xf) << 4 | second >> 4;
    let translated = Ipv4Header { tos, ttl: hop_limit, ..Ipv4Header::new(src, dst, of_v4(kind)?) };
    let translated = translated.to_bytes(payload.len()).ok()?;
    readdress(kind, payload, was, (src.into(), dst.into()))?;
    Some(translated)
}

fn of_v6(kind: u8) -> Option<u8> {
    match kind {
        protocol::ICMP => Some(protocol::ICMPV6),
        other => of_v4(other).filter(|kind| *kind == other),
    }
}

/// Behind an extension header the payload would begin elsewhere.
fn of_v4(kind: u8) -> Option<u8> {
    use protocol::{AH, DESTINATION, FRAGMENT, HIP, HOP_BY_HOP, ICMPV6, MOBILITY, ROUTING, SHIM6};
    match kind {
        ICMPV6 => Some(protocol::ICMP),
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | AH | MOBILITY | HIP | SHIM6 => None,
        other => Some(other),
    }
}

/// Changes what of a payload depends on the header above it: the checksum, and the type of an echo. `None` if it cannot be changed.
fn readdress(kind: u8, payload: &mut [u8], was: (IpAddr, IpAddr), is: (IpAddr, IpAddr)) -> Option<()> {
    let at = match kind {
        protocol::TCP => 16,
        protocol::UDP => 6,
        protocol::DCCP => 6,
        protocol::UDP_LITE => 6,
        protocol::ICMP | protocol::ICMPV6 => return echo(kind == protocol::ICMP, payload, is),
        _ => return Some(()),
    };
    let field = payload.get(at..at + 2)?;
    let sum = u16::from_be_bytes(field.try_into().ok()?);
    // "[...] an all zero transmitted checksum value means that the transmitter generated no checksum" (RFC 768), which IPv6 forbids.
    let right = if kind == protocol::UDP && sum == 0 {
        checksum::pseudo_header(is.0, is.1, kind, payload.len()).add_bytes(payload).finish()
    } else {
        checksum::update(sum, &octets(was), &octets(is))
    };
    let right = if kind == protocol::UDP && right == 0 { 0xffff } else { right };
    payload.get_mut(at..at + 2)?.copy_from_slice(&right.to_be_bytes());
    Some(())
}

/// The checksum of ICMPv6 covers the addresses, that of ICMP does not.
fn echo(from_v4: bool, payload: &mut [u8], is: (IpAddr, IpAddr)) -> Option<()> {
    let len = payload.len();
    let [kind, 0, c0, c1, _, _, _, _, ..] = payload else { return None };
    *kind = if from_v4 {
        ECHO.iter().find(|(v4, _)| v4 == kind)?.1
    } else {
        ECHO.iter().find(|(_, v6)| v6 == kind)?.0
    };
    (*c0, *c1) = (0, 0);
    let pseudo = if from_v4 {
        checksum::pseudo_header(is.0, is.1, protocol::ICMPV6, len)
    } else {
        checksum::Sum::default()
    };
    let sum = pseudo.add_bytes(payload).finish();
    payload.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// As [`readdress`], of a packet that an error quotes, of which `payload` may be cut short and was `len` bytes. What is cut off is not there
/// to be summed: checksums are changed by what differs.
fn requote(
    kind: u8,
    payload: &mut [u8],
    len: usize,
    was: (IpAddr, IpAddr),
    is: (IpAddr, IpAddr),
) -> Option<()> {
    if !matches!(kind, protocol::ICMP | protocol::ICMPV6) {
        // Without the field there is nothing to change.
        let _cut = readdress(kind, payload, was, is);
        return Some(());
    }
    let from_v4 = kind == protocol::ICMP;
    let [kind, 0, c0, c1, ..] = payload else { return None };
    let (v4, v6) = *ECHO.iter().find(|(v4, v6)| if from_v4 { v4 == kind } else { v6 == kind })?;
    let pseudo =
        |ends: (IpAddr, IpAddr)| checksum::pseudo_header(ends.0, ends.1, protocol::ICMPV6, len).fold();
    let (pseudo, [old, new]) = if from_v4 { (pseudo(is), [v4, v6]) } else { (pseudo(was), [v6, v4]) };
    let (out, into) = if from_v4 { (0, pseudo) } else { (pseudo, 0) };
    let [of_old, of_new] = [(old, out), (new, into)].map(|(kind, pseudo)| {
        let [p0, p1] = pseudo.to_be_bytes();
        [kind, 0, p0, p1]
    });
    let sum = checksum::update(u16::from_be_bytes([*c0, *c1]), &of_old, &of_new);
    *kind = new;
    [*c0, *c1] = sum.to_be_bytes();
    Some(())
}

/// Source and destination, with zeros behind those of IPv4: they add nothing.
fn octets((src, dst): (IpAddr, IpAddr)) -> [u8; 32] {
    let mut all = [0; 32];
    let (a, b) = all.split_at_mut(16);
    for (room, address) in [(a, src), (b, dst)] {
        match address {
            IpAddr::V4(address) => {
                room.iter_mut().zip(address.octets()).for_each(|(to, from)| *to = from);
            }
            IpAddr::V6(address) => room.copy_from_slice(&address.octets()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::icmp::Echo;
    use super::super::{Packet, flow, tcp, udp};
    use super::*;

    const LSI: [Ipv4Addr; 2] = [Ipv4Addr::new(1, 0, 0, 1), Ipv4Addr::new(1, 2, 3, 4)];
    const HIT: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0x2001, 0x22, 1, 2, 3, 4, 5, 6),
        Ipv6Addr::new(0x2001, 0x21, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf),
    ];

    /// Whether the checksum above the IP header is right.
    fn is_sound(packet: &[u8]) -> bool {
        let packet = Packet::parse(packet).unwrap();
        let payload = packet.payload();
        let pseudo = match packet.protocol() {
            protocol::ICMP => checksum::Sum::default(),
            _ => packet.pseudo_header(payload.len()),
        };
        pseudo.add_bytes(payload).fold() == 0xffff
    }

    fn packets() -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        let (from, to) = ((LSI[0], 40_000).into(), (LSI[1], 80).into());
        udp::build(from, to, b"odd", &mut all[0]).unwrap();
        udp::build(from, to, b"", &mut all[1]).unwrap();
        let (src, dst) = (from, to);
        let (sequence, acknowledgement) = (7, 9);
        let segment =
            tcp::Segment { src, dst, sequence, acknowledgement, flags: 0x10, window: 1, options: &[] };
        segment.build(b"four", &mut all[2]).unwrap();
        let (src, dst) = (LSI[0].into(), LSI[1].into());
        let echo = Echo { src, dst, reply: false, id: 3, sequence: 4, payload: b"payload" };
        echo.build(&mut all[3]).unwrap();
        all
    }

    #[test]
    fn a_packet_comes_back_as_it_was() {
        for packet in packets() {
            let out = to_v6(&packet, HIT[0], HIT[1]).unwrap();
            assert!(is_sound(&packet) && is_sound(&out), "{out:02x?}");
            let (of, into) = (flow(&packet).unwrap(), flow(&out).unwrap());
            assert_eq!((into.src, into.dst), (HIT[0].into(), HIT[1].into()));
            if of.protocol != protocol::ICMP {
                assert_eq!(
                    (of.protocol, of.src_port, of.dst_port),
                    (into.protocol, into.src_port, into.dst_port)
                );
            }
            let (header, payload) = out.split_at(Ipv6::HEADER);
            let mut payload = payload.to_vec();
            let header = to_v4(header, &mut payload, LSI[0], LSI[1]).unwrap();
            assert_eq!([&header[..], &payload].concat(), packet);
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_gets_one() {
        let mut packet = packets().swap_remove(0);
        packet[26..28].fill(0);
        assert!(is_sound(&to_v6(&packet, HIT[0], HIT[1]).unwrap()));
    }

    #[test]
    fn what_cannot_be_said_is_left_alone() {
        let [udp, _, _, echo] = packets().try_into().unwrap();
        let mut fragment = udp.clone();
        fragment[6] = 0x20;
        let mut error = echo.clone();
        error[20] = 3;
        for packet in [fragment, error, udp[..21].to_vec(), Vec::new()] {
            assert_eq!(to_v6(&packet, HIT[0], HIT[1]), None, "{packet:02x?}");
        }
        let out = to_v6(&udp, HIT[0], HIT[1]).unwrap();
        let (header, payload) = out.split_at(Ipv6::HEADER);
        let mut fragment = header.to_vec();
        fragment[6] = protocol::FRAGMENT;
        let mut kept = payload.to_vec();
        assert_eq!(to_v4(&fragment, &mut kept, LSI[0], LSI[1]), None);
        assert_eq!(to_v4(header, &mut kept[..4].to_vec(), LSI[0], LSI[1]), None, "cut short");
        assert_eq!(kept, payload);
    }
}
