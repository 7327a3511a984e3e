//! The outside of a packet. Owns how ESP is found in it, also in a tunnel of IP in IP; must never open it.

use core::net::{IpAddr, SocketAddr};

use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::udp::{self, Udp};
use dormouse_wire::ip::{Ipv4Header, Ipv6Header, Packet, protocol};

/// The port of ESP in UDP (RFC 3948).
const NAT_T: u16 = 4_500;

/// What stands around the packets that pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Layer {
    /// Nothing: packets of IP, as in a router.
    #[default]
    Ip,
    /// Frames of Ethernet, as in a bridge. One with a VLAN tag is not read: the same addresses may be others in another VLAN.
    Ethernet,
}

impl Layer {
    /// Bytes before the packet: both addresses and the type.
    const ETHERNET: usize = 14;

    /// Bytes before the packet of IP.
    pub(crate) const fn before(self) -> usize {
        match self {
            Self::Ip => 0,
            Self::Ethernet => Self::ETHERNET,
        }
    }

    /// The whole packet of IP in what passes, as [`whole`]; `None` if it is none.
    pub(crate) fn whole(self, passing: &[u8]) -> Option<Packet<'_>> {
        let Self::Ethernet = self else { return whole(passing) };
        let (header, packet) = passing.split_first_chunk::<{ Self::ETHERNET }>()?;
        let version = match header.last_chunk()? {
            [0x08, 0x00] => 4,
            [0x86, 0xdd] => 6,
            _ => return None,
        };
        whole(packet).filter(|_| packet.first().is_some_and(|first| first >> 4 == version))
    }
}

/// A whole packet, not a fragment.
pub(crate) fn whole(packet: &[u8]) -> Option<Packet<'_>> {
    Packet::parse(packet).ok().filter(|view| view.fragment().is_none())
}

/// What one tunnel of IP in IP (RFC 2003) carries, if the packet is in one; `None` if that is no whole packet. A router at the end of the tunnel,
/// a foreign agent of Mobile IP, sees packets in it.
pub(crate) fn tunnelled(view: Packet<'_>) -> Option<Packet<'_>> {
    match view.protocol() {
        protocol::IPV4 => whole(view.payload()),
        _ => Some(view),
    }
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

/// A packet that carries `payload` back to where this one came from, the way that this one's ESP is carried.
pub(crate) fn reply(view: &Packet<'_>, payload: &[u8]) -> Option<Vec<u8>> {
    let (from, to) = (view.dst(), view.src());
    match view.protocol() {
        protocol::IPV4 => {
            let inside =
                reply(&whole(view.payload()).filter(|inside| inside.protocol() != protocol::IPV4)?, payload)?;
            packet(from, to, protocol::IPV4, &inside)
        }
        protocol::UDP => {
            let udp = Udp::parse(view).ok()?;
            let mut out = Vec::new();
            let [from, to] = [SocketAddr::new(from, udp.dst_port), SocketAddr::new(to, udp.src_port)];
            udp::build(from, to, payload, &mut out).ok().map(|()| out)
        }
        protocol => packet(from, to, protocol, payload),
    }
}

fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Ipv4Header::new(from, to, protocol).to_bytes(payload.len()).ok()?.to_vec()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Ipv6Header::new(from, to, protocol).to_bytes(payload.len()).ok()?.to_vec()
        }
        _ => return None,
    };
    out.extend_from_slice(payload);
    Some(out)
}
