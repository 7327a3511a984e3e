//! The IP header around what ESP carries in transport and BEET mode: it comes off before ESP and is made anew after it (RFC
//! 4303 section 3.1.1), since a user-space tunnel sends through a socket that writes the outer header itself. Owns the header
//! and the checksums over it; must never choose an address.

use core::net::IpAddr;

use dormouse_keying::Original;
use dormouse_wire::ip::{Ecn, Flow, Ipv6, Packet, checksum, protocol};

/// Bytes of the longest header that is made: IPv4 with all the options that it can hold.
pub const HEADER_MOST: usize = 60;
/// The time to live of the outer header ends with it, and the socket does not tell it: a header that is made anew begins again.
const HOP_LIMIT: u8 = 64;

/// Length of the IP header of a whole packet in bytes, and what follows it. `None` for fragments (RFC 4303 section 3.3.4: whole
/// datagrams only) and what is no IP packet.
pub(crate) fn header(packet: &[u8]) -> Option<(usize, u8)> {
    let packet = Packet::parse(packet).ok().filter(|p| p.fragment().is_none())?;
    Some(match packet {
        Packet::V4(p) => (p.header_len(), p.protocol()),
        Packet::V6(p) => (Ipv6::HEADER, p.next_header()),
    })
}

/// An IP header for a payload that arrived without one.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; HEADER_MOST],
    len: usize,
}

impl Header {
    /// A header from `source` to `destination`, with IPv4 options or none. `None` if the families differ or the payload is too
    /// long.
    pub(crate) fn new(
        (source, destination): (IpAddr, IpAddr),
        next_header: u8,
        options: &[u8],
        payload_len: usize,
        ecn: Ecn,
    ) -> Option<Self> {
        let mut bytes = [0; HEADER_MOST];
        let len = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let len = 20 + options.len();
                let total = u16::try_from(payload_len + len).ok()?;
                bytes[0] = 0x40 | u8::try_from(len / 4).ok()?;
                bytes[1] = ecn as u8;
                bytes[2..4].copy_from_slice(&total.to_be_bytes());
                bytes[6] = 0x40;
                bytes[8] = HOP_LIMIT;
                bytes[9] = next_header;
                bytes[12..16].copy_from_slice(&source.octets());
                bytes[16..20].copy_from_slice(&destination.octets());
                bytes.get_mut(20..len)?.copy_from_slice(options);
                let sum = checksum::checksum(bytes.get(..len)?);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
                len
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) if options.is_empty() => {
                bytes[0] = 0x60;
                bytes[1] = (ecn as u8) << 4;
                bytes[4..6].copy_from_slice(&u16::try_from(payload_len).ok()?.to_be_bytes());
                bytes[6] = next_header;
                bytes[7] = HOP_LIMIT;
                bytes[8..24].copy_from_slice(&source.octets());
                bytes[24..40].copy_from_slice(&destination.octets());
                40
            }
            _ => return None,
        };
        Some(Self { bytes, len })
    }

    /// The same without IPv4 options, before a payload of another length. `None` if that is too long.
    fn before(&self, payload_len: usize) -> Option<Self> {
        let mut it = *self;
        let [version, ..] = it.bytes;
        let (at, len) = if version >> 4 == 6 { (4, payload_len) } else { (2, payload_len + 20) };
        it.bytes.get_mut(at..at + 2)?.copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        if at == 2 {
            it.bytes[10..12].fill(0);
            let sum = checksum::checksum(it.bytes.get(..20)?);
            it.bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(it)
    }

    /// The header.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The room that the header lies in, and its length there.
    #[must_use]
    pub const fn into_parts(self) -> ([u8; HEADER_MOST], usize) {
        (self.bytes, self.len)
    }
}

/// What the packet before was in BEET mode, for the next one: bulk traffic comes in rows of one flow, and comparing what names it costs
/// less than building header and flow anew, as with [`LastFlow`] for packets that are carried whole.
///
/// [`LastFlow`]: dormouse_wire::ip::LastFlow
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRebuilt {
    next_header: u8,
    ports: [u8; 4],
    ecn: Ecn,
    header: Header,
    flow: Flow,
}

impl LastRebuilt {
    /// What is remembered of a TCP or UDP segment; `None` for other protocols.
    pub(crate) fn new(next_header: u8, segment: &[u8], ecn: Ecn, header: Header, flow: Flow) -> Option<Self> {
        let ports = *segment.first_chunk()?;
        matches!(next_header, protocol::TCP | protocol::UDP).then_some(Self {
            next_header,
            ports,
            ecn,
            header,
            flow,
        })
    }

    /// Header and flow of the next packet, if it is like the one before in all but its length.
    #[inline]
    pub(crate) fn again(&self, next_header: u8, segment: &[u8], ecn: Ecn) -> Option<(Header, Flow)> {
        let alike =
            next_header == self.next_header && ecn == self.ecn && segment.first_chunk() == Some(&self.ports);
        Some((if alike { self.header.before(segment.len()) } else { None }?, self.flow))
    }
}

/// Corrects the TCP or UDP checksum of a payload whose addresses a NAT has changed (RFC 3948 section 3.1.2): `then` are the
/// addresses as the sender computed it, `now` source and destination of the header above it here.
/// Other protocols have no checksum over addresses.
/// "[...] incrementally recompute the TCP/UDP checksum" (RFC 3948 section 3.1.2)
pub(crate) fn correct_checksum(payload: &mut [u8], next_header: u8, then: Original, now: (IpAddr, IpAddr)) {
    let offset = match next_header {
        6 => 16,
        17 => 6,
        _ => return,
    };
    let Some(field) = payload.get_mut(offset..).and_then(|p| p.first_chunk_mut::<2>()) else { return };
    let old = u16::from_be_bytes(*field);
    if next_header == 17 && old == 0 && now.0.is_ipv4() {
        return;
    }
    let pseudo = |(src, dst)| checksum::pseudo_header(src, dst, next_header, 0).fold().to_be_bytes();
    let new = checksum::update(old, &pseudo((then.remote, then.local)), &pseudo(now));
    *field = if next_header == 17 && new == 0 { [0xff; 2] } else { new.to_be_bytes() };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    fn original(remote: IpAddr, local: IpAddr) -> Original {
        Original { local, remote }
    }

    #[test]
    fn a_header_comes_off_and_back() {
        // RFC 7634 appendix A's packet; only its identification and flags are not restored.
        let mut packet = hex::decode("450000540000400040014e6bc6336405c0000205").unwrap();
        packet.resize(84, 0);
        assert_eq!(header(&packet), Some((20, 1)));
        let ends = (ip("198.51.100.5"), ip("192.0.2.5"));
        let rebuilt = Header::new(ends, 1, &[], 64, Ecn::NotEct).unwrap();
        assert_eq!(checksum::checksum(rebuilt.as_bytes()), 0);
        assert_eq!(rebuilt.as_bytes()[..10], packet[..10]);
        assert_eq!(rebuilt.as_bytes()[12..], packet[12..20]);
    }

    #[test]
    fn fragments_stay_outside_and_a_header_must_be_there() {
        let mut packet = vec![0; 40];
        (packet[0], packet[3]) = (0x45, 40);
        assert!(header(&packet).is_some());
        packet[6] = 0x20;
        assert!(header(&packet).is_none(), "more fragments");
        packet[6] = 0x40;
        assert!(header(&packet).is_some(), "don't fragment");
        packet[7] = 1;
        assert!(header(&packet).is_none(), "offset");
        packet[..8].copy_from_slice(&[0x46, 0, 0, 40, 0, 0, 0, 0]);
        assert_eq!(header(&packet), Some((24, 0)), "options");
        packet[0] = 0x4f;
        assert!(header(&packet).is_none(), "more options than there are bytes");
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 16, 60, 0]);
        packet.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 7]);
        assert!(header(&packet).is_none(), "IPv6 fragment header, behind another");
        packet[51] = 0;
        assert_eq!(header(&packet), Some((40, 60)), "a fragment that is the whole");
        assert!(header(&[0x45]).is_none());
    }

    #[test]
    fn a_checksum_follows_one_nat_and_two() {
        let (a, b, nat, front) = (ip("10.0.0.7"), ip("192.0.2.5"), ip("203.0.113.200"), ip("198.51.100.4"));
        let valid = |payload: &[u8], protocol, s, d| {
            checksum::pseudo_header(s, d, protocol, payload.len()).add_bytes(payload).finish() == 0
        };
        for (protocol, len, field) in [(17, 12, 6), (17, 13, 6), (6, 20, 16), (6, 33, 16)] {
            for seed in 0..=255_u8 {
                let mut payload: Vec<u8> = (0..len).map(|i| seed.wrapping_mul(37).wrapping_add(i)).collect();
                payload[field..field + 2].fill(0);
                let whole = checksum::pseudo_header(a, front, protocol, payload.len()).add_bytes(&payload);
                payload[field..field + 2].copy_from_slice(&whole.finish().to_be_bytes());
                let sent = payload.clone();
                assert!(valid(&sent, protocol, a, front));
                correct_checksum(&mut payload, protocol, original(a, front), (nat, b));
                assert!(valid(&payload, protocol, nat, b), "{protocol} {seed}");
                correct_checksum(&mut payload, protocol, original(nat, b), (nat, front));
                assert!(valid(&payload, protocol, nat, front), "{protocol} {seed}");
            }
        }
    }

    #[test]
    fn no_checksum_stays_none() {
        let (a, b, nat) = (ip("10.0.0.7"), ip("192.0.2.5"), ip("203.0.113.200"));
        let mut udp = [0x12, 0x34, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
        let (before, mut short, mut other) = (udp, [1; 7], [1; 24]);
        correct_checksum(&mut udp, 17, original(a, b), (nat, b));
        correct_checksum(&mut short, 17, original(a, b), (nat, b));
        correct_checksum(&mut other, 1, original(a, b), (nat, b));
        assert_eq!((udp, short, other), (before, [1; 7], [1; 24]));
    }
}
