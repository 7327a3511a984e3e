//! Transport mode behind a TUN device: the IP header comes off before ESP and is made anew after it (RFC 4303 section
//! 3.1.1), since a user-space tunnel sends through a socket that writes the outer header itself. Owns the two conversions; must
//! never be used on fragments (RFC 4303 section 3.3.4: whole datagrams only).

use core::net::IpAddr;

use dormouse_wire::ip::checksum;

/// The IP header that was taken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripped {
    /// Its length in bytes; the payload follows.
    pub header_len: usize,
    /// What follows: ESP's next header.
    pub next_header: u8,
}

/// Where the payload of `packet` begins. `None` for fragments, IPv4 options (which would have to move to the outer header)
/// and what is no IP packet.
#[must_use]
pub fn strip(packet: &[u8]) -> Option<Stripped> {
    match packet {
        [0x45, _, _, _, _, _, flags, offset, _, protocol, ..] if packet.len() >= 20 => {
            (flags & 0x3f == 0 && *offset == 0).then_some(Stripped { header_len: 20, next_header: *protocol })
        }
        [first, _, _, _, _, _, next, ..] if first >> 4 == 6 && packet.len() >= 40 => {
            const FRAGMENT: u8 = 44;
            (*next != FRAGMENT).then_some(Stripped { header_len: 40, next_header: *next })
        }
        _ => None,
    }
}

/// An IP header for a payload that arrived without one.
#[derive(Clone, Copy, Debug)]
pub struct Rebuilt {
    bytes: [u8; 40],
    len: usize,
}

impl Rebuilt {
    /// A header from `source` to `destination`. `None` if the families differ or the payload is too long.
    #[must_use]
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        next_header: u8,
        payload_len: usize,
        hop_limit: u8,
    ) -> Option<Self> {
        let mut bytes = [0; 40];
        let len = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = u16::try_from(payload_len + 20).ok()?;
                bytes[0] = 0x45;
                bytes[2..4].copy_from_slice(&total.to_be_bytes());
                bytes[6] = 0x40;
                bytes[8] = hop_limit;
                bytes[9] = next_header;
                bytes[12..16].copy_from_slice(&source.octets());
                bytes[16..20].copy_from_slice(&destination.octets());
                let sum = checksum::checksum(&bytes[..20]);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
                20
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&u16::try_from(payload_len).ok()?.to_be_bytes());
                bytes[6] = next_header;
                bytes[7] = hop_limit;
                bytes[8..24].copy_from_slice(&source.octets());
                bytes[24..40].copy_from_slice(&destination.octets());
                40
            }
            _ => return None,
        };
        Some(Self { bytes, len })
    }

    /// The header.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The addresses that a peer's packets have in transport mode where it computes their checksums: a NAT on the way makes them others
/// than the selectors have here (RFC 7296 section 2.23.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Original {
    /// The peer's own address.
    pub source: IpAddr,
    /// The one that it sends to.
    pub destination: IpAddr,
}

/// Corrects the TCP or UDP checksum of a payload whose addresses a NAT has changed (RFC 3948 section 3.1.2): `then` are source
/// and destination as the sender computed it ([`Original`]), `now` those of the header above it here.
/// Other protocols have no checksum over addresses.
/// "[...] incrementally recompute the TCP/UDP checksum" (RFC 3948 section 3.1.2)
pub fn correct_checksum(payload: &mut [u8], next_header: u8, then: (IpAddr, IpAddr), now: (IpAddr, IpAddr)) {
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
    let new = checksum::update(old, &pseudo(then), &pseudo(now));
    *field = if next_header == 17 && new == 0 { [0xff; 2] } else { new.to_be_bytes() };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    #[test]
    fn a_header_comes_off_and_back() {
        // RFC 7634 appendix A's packet; only its identification and flags are not restored.
        let packet = hex::decode("45000054000040004001 4e6b c6336405c0000205".replace(' ', "")).unwrap();
        let mut packet = packet;
        packet.resize(84, 0);
        let stripped = strip(&packet).unwrap();
        assert_eq!(stripped, Stripped { header_len: 20, next_header: 1 });
        let rebuilt = Rebuilt::new(ip("198.51.100.5"), ip("192.0.2.5"), 1, 64, 64).unwrap();
        assert_eq!(checksum::checksum(rebuilt.as_bytes()), 0);
        assert_eq!(rebuilt.as_bytes()[..10], packet[..10]);
        assert_eq!(rebuilt.as_bytes()[12..], packet[12..20]);
    }

    #[test]
    fn fragments_and_options_are_not_for_transport_mode() {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        assert!(strip(&packet).is_some());
        packet[6] = 0x20;
        assert!(strip(&packet).is_none(), "more fragments");
        packet[6] = 0x40;
        assert!(strip(&packet).is_some(), "don't fragment");
        packet[7] = 1;
        assert!(strip(&packet).is_none(), "offset");
        packet[..8].copy_from_slice(&[0x46, 0, 0, 0, 0, 0, 0, 0]);
        assert!(strip(&packet).is_none(), "options");
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 44, 0]);
        assert!(strip(&packet).is_none(), "IPv6 fragment header");
        assert!(strip(&[0x45]).is_none());
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
                correct_checksum(&mut payload, protocol, (a, front), (nat, b));
                assert!(valid(&payload, protocol, nat, b), "{protocol} {seed}");
                correct_checksum(&mut payload, protocol, (nat, b), (nat, front));
                assert!(valid(&payload, protocol, nat, front), "{protocol} {seed}");
            }
        }
    }

    #[test]
    fn no_checksum_stays_none() {
        let (a, b, nat) = (ip("10.0.0.7"), ip("192.0.2.5"), ip("203.0.113.200"));
        let mut udp = [0x12, 0x34, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
        let (before, mut short, mut other) = (udp, [1; 7], [1; 24]);
        correct_checksum(&mut udp, 17, (a, b), (nat, b));
        correct_checksum(&mut short, 17, (a, b), (nat, b));
        correct_checksum(&mut other, 1, (a, b), (nat, b));
        assert_eq!((udp, short, other), (before, [1; 7], [1; 24]));
    }
}
