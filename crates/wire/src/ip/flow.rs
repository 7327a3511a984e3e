//! What a policy sees of a packet. Owns the extraction of a flow; must never match it against anything.

use core::net::IpAddr;

use super::{Ipv6, Packet, protocol};

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

/// The flow of a packet whose IP header is not there: of these addresses, and of what follows the header, the first of which is
/// `next_header`. `None` if its IPv6 extension headers are malformed.
#[must_use]
pub fn flow_behind(src: IpAddr, dst: IpAddr, next_header: u8, payload: &[u8]) -> Option<Flow> {
    if src.is_ipv4() {
        return Some(Flow::of(src, dst, next_header, payload));
    }
    let packet = Ipv6::walk_from(payload, next_header, 0).ok()?;
    let upper = if packet.fragment().is_none_or(|f| f.offset == 0) { packet.payload() } else { &[] };
    Some(Flow::of(src, dst, packet.protocol(), upper))
}

impl Packet<'_> {
    /// What traffic selectors see of it.
    #[must_use]
    pub fn flow(&self) -> Flow {
        let payload = if self.has_upper_header() { self.payload() } else { &[] };
        Flow::of(self.src(), self.dst(), self.protocol(), payload)
    }
}

impl Flow {
    fn of(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Self {
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
        Self { src, dst, protocol, src_port, dst_port }
    }
}

/// The flow of the packet before, for the next one: bulk traffic comes in rows of one flow, and comparing the bytes that name it
/// costs less than taking the packet apart.
#[derive(Clone, Copy, Debug)]
pub struct LastFlow {
    flow: Flow,
    /// Addresses and ports as they stood in the packet, if it was a plain TCP or UDP packet.
    name: Option<Name>,
}

/// What names the flow of a plain packet: TCP or UDP behind an IP header without options or extensions, not a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    V4 { protocol: u8, ends: [u8; 12] },
    V6 { protocol: u8, ends: [u8; 36] },
}

impl Name {
    /// `None` for what is not plain, and for a packet that is not as long as its header says.
    #[inline]
    fn of(packet: &[u8]) -> Option<Self> {
        let stated = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
        let ported = |p: &u8| matches!(*p, protocol::TCP | protocol::UDP);
        match packet.first()? {
            0x45 => {
                let protocol = *packet.get(9).filter(|p| ported(p))?;
                let whole = packet.get(6)? & 0x3f == 0 && *packet.get(7)? == 0;
                let ends = *packet.get(12..)?.first_chunk()?;
                (whole && stated(2)? == packet.len()).then_some(Self::V4 { protocol, ends })
            }
            first if first >> 4 == 6 => {
                let protocol = *packet.get(6).filter(|p| ported(p))?;
                let ends = *packet.get(8..)?.first_chunk()?;
                (stated(4)? + 40 == packet.len()).then_some(Self::V6 { protocol, ends })
            }
            _ => None,
        }
    }
}

impl LastFlow {
    /// The flow of `packet`, as [`flow`] gives it, remembered for the next.
    #[must_use]
    pub fn new(packet: &[u8]) -> Option<Self> {
        Some(Self { flow: flow(packet)?, name: Name::of(packet) })
    }

    /// The flow.
    #[must_use]
    pub const fn flow(&self) -> Flow {
        self.flow
    }

    /// Whether `packet` is one of this flow. May be false for one that is, and is never true for one that is not.
    #[inline]
    #[must_use]
    pub fn is_flow_of(&self, packet: &[u8]) -> bool {
        self.name.is_some() && self.name == Name::of(packet)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{tcp, udp};

    /// Plain packets of both families and protocols, and what is not plain.
    fn packets() -> Vec<Vec<u8>> {
        let ends = [("10.0.0.1:4001", "10.0.0.2:80"), ("[2001:db8::1]:4001", "[2001:db8::2]:80")];
        let mut all = Vec::new();
        for (from, to) in ends.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap())) {
            let mut packet = Vec::new();
            udp::build(from, to, b"payload", &mut packet).unwrap();
            all.push(packet.clone());
            // The same as a fragment or with a hop-by-hop header, as ICMP, and cut short.
            let v4 = packet[0] >> 4 == 4;
            packet[6] = if v4 { 0x20 } else { protocol::HOP_BY_HOP };
            all.push(packet.clone());
            packet[6] = if v4 { 0 } else { protocol::ICMPV6 };
            packet[9] = if v4 { protocol::ICMP } else { packet[9] };
            all.push(packet.clone());
            packet.pop();
            all.push(packet);
            let header = if v4 { 20 } else { 40 };
            let mut segment = all[all.len() - 4].clone();
            segment[if v4 { 9 } else { 6 }] = protocol::TCP;
            segment.resize(header + tcp::MIN_HEADER, 0);
            let at = if v4 { 2 } else { 4 };
            let len = if v4 { segment.len() } else { tcp::MIN_HEADER } as u16;
            segment[at..at + 2].copy_from_slice(&len.to_be_bytes());
            all.push(segment);
        }
        all
    }

    #[test]
    fn the_same_flow_is_told_only_of_packets_that_have_it() {
        for packet in packets() {
            let Some(last) = LastFlow::new(&packet) else { continue };
            assert_eq!(Some(last.flow()), flow(&packet));
            for at in 0..packet.len() {
                for bit in 0..8 {
                    let mut other = packet.clone();
                    other[at] ^= 1 << bit;
                    assert!(
                        !last.is_flow_of(&other) || flow(&other) == Some(last.flow()),
                        "byte {at}, bit {bit}"
                    );
                }
            }
            for len in 0..packet.len() {
                assert!(!last.is_flow_of(&packet[..len]), "cut to {len} bytes");
            }
            for other in packets() {
                assert!(!last.is_flow_of(&other) || flow(&other) == Some(last.flow()));
            }
        }
    }

    #[test]
    fn the_next_packet_of_a_plain_flow_is_known() {
        let known = packets().into_iter().filter(|p| LastFlow::new(p).is_some_and(|last| last.is_flow_of(p)));
        let protocols: Vec<u8> = known.map(|p| flow(&p).unwrap().protocol).collect();
        assert_eq!(protocols, [protocol::UDP, protocol::TCP, protocol::UDP, protocol::TCP]);
    }
}
