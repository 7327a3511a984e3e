//! IP packets as a tunnel sees them: views, checksums, flows, MSS clamping, and the ICMP errors of path-MTU discovery.
//!
//! Owns the formats of IPv4 (RFC 791), IPv6 (RFC 8200), TCP (RFC 9293), UDP (RFC 768), ICMP (RFC 792) and ICMPv6 (RFC
//! 4443), as far as a tunnel needs them. Must never keep state of a connection, nor decide where a packet goes.

pub mod checksum;
mod flow;
pub mod icmp;
pub mod nd;
pub mod tcp;
pub mod translate;
pub mod udp;
mod v4;
mod v6;

use core::net::IpAddr;
use core::ops::Range;

pub use flow::{Flow, LastFlow, flow, flow_behind};
pub use v4::{Ipv4, Ipv4Header};
pub use v6::{Ipv6, Ipv6Header};

use crate::{Error, Result};

/// IP protocol numbers and IPv6 next-header values used here.
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP: the next header of a tunnel-mode ESP packet with an IPv4 packet inside.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP: the next header of a tunnel-mode ESP packet with an IPv6 packet inside.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// ESP.
    pub const ESP: u8 = 50;
    /// AH.
    pub const AH: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 destination options.
    pub const DESTINATION: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// Mobility header of Mobile IPv6.
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// HIP.
    pub const HIP: u8 = 139;
    /// Shim6.
    pub const SHIM6: u8 = 140;
}

/// The place of a packet in a fragmented datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpFragment {
    /// Identification: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Offset of the data in the datagram, in bytes; a multiple of 8 up to 65,528.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
}

/// A view of a whole packet of either family. The header's lengths were checked against the bytes: accessors cannot fail.
#[derive(Clone, Copy, Debug)]
pub enum Packet<'a> {
    /// IPv4.
    V4(Ipv4<'a>),
    /// IPv6.
    V6(Ipv6<'a>),
}

impl<'a> Packet<'a> {
    /// Looks at the version and checks the header. Bytes after the packet's own length are permitted and left out (link
    /// padding, ESP traffic-flow padding).
    ///
    /// # Errors
    /// [`Error::Value`] for a version other than 4 and 6; else as [`Ipv4::parse`] and [`Ipv6::parse`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        match bytes.first().map(|b| b >> 4) {
            Some(4) => Ipv4::parse(bytes).map(Self::V4),
            Some(6) => Ipv6::parse(bytes).map(Self::V6),
            Some(v) => Err(Error::Value { what: "IP version", got: v.into(), expect: "4 or 6" }),
            None => Err(Error::Truncated { what: "IP header", need: 1, have: 0 }),
        }
    }

    /// As [`Self::parse`], but the packet may be cut short behind its IP headers.
    ///
    /// # Errors
    /// As [`Self::parse`], for the headers alone.
    pub fn parse_header(bytes: &'a [u8]) -> Result<Self> {
        match bytes.first().map(|b| b >> 4) {
            Some(4) => Ipv4::parse_header(bytes).map(Self::V4),
            Some(6) => Ipv6::parse_header(bytes).map(Self::V6),
            _ => Self::parse(bytes),
        }
    }

    /// Source address.
    #[must_use]
    pub fn src(&self) -> IpAddr {
        match self {
            Self::V4(p) => p.src().into(),
            Self::V6(p) => p.src().into(),
        }
    }

    /// Destination address.
    #[must_use]
    pub fn dst(&self) -> IpAddr {
        match self {
            Self::V4(p) => p.dst().into(),
            Self::V6(p) => p.dst().into(),
        }
    }

    /// Bytes of the packet, header included.
    #[must_use]
    pub fn total_len(&self) -> usize {
        match self {
            Self::V4(p) => p.total_len(),
            Self::V6(p) => p.total_len(),
        }
    }

    /// TOS byte or traffic class: DSCP in the upper six bits, ECN in the lower two.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(p) => p.tos(),
            Self::V6(p) => p.traffic_class(),
        }
    }

    /// TTL or hop limit.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(p) => p.ttl(),
            Self::V6(p) => p.hop_limit(),
        }
    }

    /// The place in a fragmented datagram, or `None` for a whole one.
    #[must_use]
    pub fn fragment(&self) -> Option<IpFragment> {
        match self {
            Self::V4(p) => p.fragment(),
            Self::V6(p) => p.fragment(),
        }
    }

    /// The upper-layer protocol, past any IPv6 extension headers.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        match self {
            Self::V4(p) => p.protocol(),
            Self::V6(p) => p.protocol(),
        }
    }

    /// Where the upper-layer header begins within the packet. In a fragment other than the first there is none there.
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        match self {
            Self::V4(p) => p.header_len(),
            Self::V6(p) => p.payload_offset(),
        }
    }

    /// The upper-layer header and data.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        match self {
            Self::V4(p) => p.payload(),
            Self::V6(p) => p.payload(),
        }
    }

    /// Where a TCP header (with its options) or UDP header ends within the packet; where it would begin, if there is none or not all of one.
    #[must_use]
    pub fn transport_end(&self) -> usize {
        let header = match self.protocol() {
            _ if !self.has_upper_header() => 0,
            protocol::TCP => tcp::header_len(self.payload()).unwrap_or(0),
            protocol::UDP if self.payload().len() >= udp::HEADER_LEN => udp::HEADER_LEN,
            _ => 0,
        };
        self.payload_offset() + header
    }

    /// Whether the upper-layer header is in this packet: it is whole, or the first fragment.
    #[must_use]
    pub fn has_upper_header(&self) -> bool {
        self.fragment().is_none_or(|f| f.offset == 0)
    }

    /// The ones' complement sum of the pseudo-header for an upper-layer packet of `len` bytes (RFC 9293 section 3.1, RFC
    /// 8200 section 8.1).
    #[must_use]
    pub fn pseudo_header(&self, len: usize) -> checksum::Sum {
        checksum::pseudo_header(self.src(), self.dst(), self.protocol(), len)
    }

    /// The bytes of the packet, without what follows it.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::V4(p) => p.as_bytes(),
            Self::V6(p) => p.as_bytes(),
        }
    }
}

/// Explicit congestion notification (RFC 3168): the lower two bits of the traffic class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ecn {
    /// Not ECN-capable.
    NotEct = 0,
    /// ECN-capable, ECT(1).
    Ect1 = 1,
    /// ECN-capable, ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the lower two bits of a traffic class.
    #[must_use]
    pub const fn from_traffic_class(tc: u8) -> Self {
        match tc & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// What the inner packet must carry after decapsulation, by the table of RFC 6040 section 4.2; `None` means that the
    /// packet must be dropped (congestion was experienced and the inner packet cannot say so).
    #[must_use]
    pub const fn decapsulate(inner: Self, outer: Self) -> Option<Self> {
        match (inner, outer) {
            (Self::NotEct, Self::Ce) => None,
            (Self::NotEct, _) => Some(Self::NotEct),
            (_, Self::Ce) | (Self::Ce, _) => Some(Self::Ce),
            (Self::Ect0, Self::Ect1) => Some(Self::Ect1),
            (inner, _) => Some(inner),
        }
    }
}

/// Sets the ECN bits of a packet in place, keeping an IPv4 header checksum right. Returns whether the packet is one.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) -> bool {
    match packet {
        [first, tos, _, _, _, _, _, _, _, _, c0, c1, _, _, _, _, _, _, _, _, ..] if *first >> 4 == 4 => {
            let old = [*first, *tos];
            *tos = *tos & !3 | ecn as u8;
            let sum = checksum::update(u16::from_be_bytes([*c0, *c1]), &old, &[*first, *tos]);
            [*c0, *c1] = sum.to_be_bytes();
            true
        }
        [first, second, ..] if *first >> 4 == 6 => {
            // The traffic class straddles the first two bytes; ECN is bits 4 and 5 of the second.
            *second = *second & !0x30 | (ecn as u8) << 4;
            true
        }
        _ => false,
    }
}

/// Sets the TTL or hop limit of a packet in place, keeping an IPv4 header checksum right. Returns whether the packet is one.
pub fn set_hop_limit(packet: &mut [u8], hop_limit: u8) -> bool {
    match packet {
        [first, _, _, _, _, _, _, _, ttl, protocol, c0, c1, _, _, _, _, _, _, _, _, ..]
            if *first >> 4 == 4 =>
        {
            let old = [*ttl, *protocol];
            *ttl = hop_limit;
            let sum = checksum::update(u16::from_be_bytes([*c0, *c1]), &old, &[hop_limit, *protocol]);
            [*c0, *c1] = sum.to_be_bytes();
            true
        }
        [first, _, _, _, _, _, _, limit, ..] if *first >> 4 == 6 => {
            *limit = hop_limit;
            true
        }
        _ => false,
    }
}

/// Reads `N` bytes at `at`, which a constructor has already found to be there; zeros if they are not.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|b| b.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// A range of a slice, empty if out of bounds.
fn within(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or_default()
}
