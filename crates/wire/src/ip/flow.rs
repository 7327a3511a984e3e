//! What a policy sees of a packet. Owns the extraction of a flow; must never match it against anything.

use core::net::IpAddr;

use super::{Packet, protocol};

/// The fields of a packet that traffic selectors match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Upper-layer protocol.
    pub protocol: u8,
    /// Source port. For ICMP and ICMPv6 both ports hold type and code as traffic selectors do (type in the high byte, code
    /// in the low one), for mobility headers the type in the high byte. `None` where there is no port to see: a protocol
    /// without ports, a fragment other than the first (OPAQUE, RFC 4301 section 4.4.1.1), or a header cut short.
    pub src_port: Option<u16>,
    /// Destination port, likewise.
    pub dst_port: Option<u16>,
}

/// The flow of a whole packet, or `None` if it is not a well-formed IP packet.
#[must_use]
pub fn flow(packet: &[u8]) -> Option<Flow> {
    Packet::parse(packet).ok().map(|p| p.flow())
}

impl Packet<'_> {
    /// What traffic selectors see of it.
    #[must_use]
    pub fn flow(&self) -> Flow {
        let protocol = self.protocol();
        let payload = if self.has_upper_header() { self.payload() } else { &[] };
        let (src_port, dst_port) = match (protocol, payload) {
            (
                protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE,
                [s0, s1, d0, d1, ..],
            ) => (Some(u16::from_be_bytes([*s0, *s1])), Some(u16::from_be_bytes([*d0, *d1]))),
            (protocol::ICMP | protocol::ICMPV6, [kind, code, ..]) => {
                let both = Some(u16::from_be_bytes([*kind, *code]));
                (both, both)
            }
            // Next header, length, type.
            (protocol::MOBILITY, [_, _, kind, ..]) => {
                let both = Some(u16::from_be_bytes([*kind, 0]));
                (both, both)
            }
            _ => (None, None),
        };
        Flow { src: self.src(), dst: self.dst(), protocol, src_port, dst_port }
    }
}

impl Flow {
    /// The flow of the answer: source and destination exchanged.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            protocol: self.protocol,
            src_port: self.dst_port,
            dst_port: self.src_port,
        }
    }
}
