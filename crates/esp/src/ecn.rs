//! Congestion marks between the inner and the outer IP header (RFC 6040). Owns when the table of the RFC applies; must never
//! touch a header that is not inside an authenticated packet.
//!
//! What a tunnel in user space over UDP can do: read and set the two ECN bits of each batch of datagrams through the socket.
//! So the normal mode of RFC 6040 holds in both directions. DSCP: the outer one stays 0, and the inner one is never changed
//! by the outer. RFC 4301 section 5.1.2 makes copying it a choice; not copying keeps the inner one confidential, and batches
//! of one flow whole.

use dormouse_wire::ip::{Ecn, set_ecn};

/// The mark of an IP packet, which its outer packet gets as well (RFC 6040 section 4.1, normal mode). [`Ecn::NotEct`] for
/// what is no IP packet.
#[must_use]
pub fn of_packet(packet: &[u8]) -> Ecn {
    match packet {
        [first, second, ..] if first >> 4 == 4 => Ecn::from_traffic_class(*second),
        [first, second, ..] if first >> 4 == 6 => Ecn::from_traffic_class(second >> 4),
        _ => Ecn::NotEct,
    }
}

/// Gives an inner packet the mark that it leaves the tunnel with (RFC 6040 section 4.2, figure 4), its checksum included.
/// `false` if it must be dropped: congestion was signalled (CE) about a packet that is not ECN-capable.
/// "[...] MUST support the ECN full-functionality option for tunnels" (RFC 7296 section 2.24)
#[must_use]
pub fn decapsulate(packet: &mut [u8], outer: Ecn) -> bool {
    let inner = of_packet(packet);
    match Ecn::decapsulate(inner, outer) {
        None => false,
        Some(mark) if mark == inner => true,
        Some(mark) => set_ecn(packet, mark),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_travels_inwards_and_keeps_the_checksum_right() {
        // The IPv4 header of RFC 7634 appendix A, made ECT(0).
        let mut packet = hex::decode("45020054a6f200004001e776c6336405c0000205").unwrap();
        assert_eq!(dormouse_wire::ip::checksum::checksum(&packet), 0);
        assert!(decapsulate(&mut packet, Ecn::NotEct));
        assert_eq!(of_packet(&packet), Ecn::Ect0);
        assert!(decapsulate(&mut packet, Ecn::Ce));
        assert_eq!(of_packet(&packet), Ecn::Ce);
        assert_eq!(dormouse_wire::ip::checksum::checksum(&packet), 0);
    }

    #[test]
    fn ipv6_has_its_mark_in_the_traffic_class() {
        let mut packet = vec![0x60, 0x20, 0, 0];
        packet.resize(40, 0);
        assert_eq!(of_packet(&packet), Ecn::Ect0);
        assert!(decapsulate(&mut packet, Ecn::Ce));
        assert_eq!(packet[1], 0x30);
    }

    #[test]
    fn congestion_on_a_deaf_transport_drops() {
        let mut packet = hex::decode("45000054a6f200004001e778c6336405c0000205").unwrap();
        assert!(!decapsulate(&mut packet, Ecn::Ce));
    }
}
