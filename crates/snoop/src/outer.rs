//! The outside of a packet. Owns how ESP is found in it; must never open it.

use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::ip::{Packet, protocol};

/// The port of ESP in UDP (RFC 3948).
const NAT_T: u16 = 4_500;

/// A whole packet, not a fragment.
pub(crate) fn whole(packet: &[u8]) -> Option<Packet<'_>> {
    Packet::parse(packet).ok().filter(|view| view.fragment().is_none())
}

/// The ESP packet in a whole packet, bare or in UDP, from its SPI on.
pub(crate) fn esp<'a>(view: &Packet<'a>) -> Option<&'a [u8]> {
    match view.protocol() {
        protocol::ESP => Some(view.payload()),
        protocol::UDP => {
            let udp = Udp::parse(view).ok().filter(|udp| udp.src_port == NAT_T || udp.dst_port == NAT_T)?;
            let NatT::Esp(esp) = classify_natt(udp.payload) else { return None };
            Some(esp)
        }
        _ => None,
    }
}
