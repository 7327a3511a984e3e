//! IPv6 headers (RFC 8200). Owns the view of a received packet, the walk over its extension headers, and the header of one
//! to be built; must never reassemble nor act on an option.

use core::net::Ipv6Addr;

use super::{IpFragment, field, protocol, within};
use crate::{Error, Result};

/// Extension headers looked at before the walk gives up. Real packets have two at most; routers drop longer chains (RFC
/// 9288 section 2.3 and RFC 8504 section 5.3).
const MAX_EXTENSION_HEADERS: usize = 8;

/// A view of an IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    /// Cut to the header's payload length; at least 40 bytes.
    bytes: &'a [u8],
    protocol: u8,
    payload_offset: usize,
    fragment: Option<IpFragment>,
}

impl<'a> Ipv6<'a> {
    /// The fixed header.
    pub const HEADER: usize = 40;

    /// Checks version and payload length, and walks the extension headers. Jumbograms are not supported: a payload length of
    /// 0 means an empty packet.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Value`], naming the field.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let need = Self::stated_total_len(bytes)?;
        match bytes.get(..need) {
            Some(bytes) => Self::walk(bytes),
            None => Err(Error::Truncated { what: "IPv6 packet", need, have: bytes.len() }),
        }
    }

    /// As [`Self::parse`], but the packet may be cut short after its headers, as the ones that ICMPv6 errors quote are.
    ///
    /// # Errors
    /// As [`Self::parse`], for the headers alone.
    pub fn parse_header(bytes: &'a [u8]) -> Result<Self> {
        let total = Self::stated_total_len(bytes)?;
        Self::walk(within(bytes, 0..total.min(bytes.len())))
    }

    fn stated_total_len(bytes: &[u8]) -> Result<usize> {
        let truncated = Error::Truncated { what: "IPv6 header", need: Self::HEADER, have: bytes.len() };
        let first = *bytes.first().ok_or(truncated)?;
        if first >> 4 != 6 {
            return Err(Error::Value { what: "IP version", got: (first >> 4).into(), expect: "6" });
        }
        if bytes.len() < Self::HEADER {
            return Err(truncated);
        }
        Ok(Self::HEADER + usize::from(u16::from_be_bytes(field(bytes, 4))))
    }

    /// Finds the upper-layer protocol. Headers behind a fragment header of a later fragment are not there to be read.
    fn walk(bytes: &'a [u8]) -> Result<Self> {
        let [next] = field(bytes, 6);
        Self::walk_from(bytes, next, Self::HEADER)
    }

    /// Finds the upper-layer protocol, beginning with what stands at `at`.
    pub(super) fn walk_from(bytes: &'a [u8], next: u8, at: usize) -> Result<Self> {
        let mut packet = Self { bytes, protocol: next, payload_offset: at, fragment: None };
        for _ in 0..MAX_EXTENSION_HEADERS {
            if packet.fragment.is_some_and(|f| f.offset != 0) || !is_extension(packet.protocol) {
                return Ok(packet);
            }
            packet.step()?;
        }
        Err(Error::TooMany { what: "IPv6 extension headers", limit: MAX_EXTENSION_HEADERS })
    }

    /// Steps over the extension header at `payload_offset`.
    fn step(&mut self) -> Result<()> {
        let at = self.payload_offset;
        let have = self.bytes.len().saturating_sub(at);
        let truncated = |need| Error::Truncated { what: "IPv6 extension header", need, have };
        if have < 8 {
            return Err(truncated(8));
        }
        let [next, size, o0, o1, i0, i1, i2, i3] = field(self.bytes, at);
        let len = match self.protocol {
            protocol::FRAGMENT => {
                let word = u16::from_be_bytes([o0, o1]);
                let (offset, more) = (word & 0xfff8, word & 1 != 0);
                // An "atomic fragment" (offset 0, no more) is a whole packet (RFC 6946).
                if offset != 0 || more {
                    let id = u32::from_be_bytes([i0, i1, i2, i3]);
                    self.fragment = Some(IpFragment { id, offset, more });
                }
                8
            }
            // AH counts 4-byte words minus 2 (RFC 4302 section 2.2), the others 8-byte units minus 1.
            protocol::AH => (usize::from(size) + 2) * 4,
            _ => (usize::from(size) + 1) * 8,
        };
        if have < len {
            return Err(truncated(len));
        }
        self.protocol = next;
        self.payload_offset = at + len;
        Ok(())
    }

    /// The packet's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the packet as its header says.
    #[must_use]
    pub fn total_len(&self) -> usize {
        Self::HEADER + usize::from(u16::from_be_bytes(field(self.bytes, 4)))
    }

    /// DSCP and ECN.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        let [a, b] = field(self.bytes, 0);
        a << 4 | b >> 4
    }

    /// Hop limit.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        let [b] = field(self.bytes, 7);
        b
    }

    /// The next-header field of the fixed header: the first extension header, or the upper layer if there is none.
    #[must_use]
    pub fn next_header(&self) -> u8 {
        let [b] = field(self.bytes, 6);
        b
    }

    /// The upper-layer protocol, past the extension headers.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The place in a fragmented datagram, or `None` for a whole one.
    #[must_use]
    pub const fn fragment(&self) -> Option<IpFragment> {
        self.fragment
    }

    /// Source address.
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(field::<16>(self.bytes, 8))
    }

    /// Destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(field::<16>(self.bytes, 24))
    }

    /// Where the upper-layer header begins.
    #[must_use]
    pub const fn payload_offset(&self) -> usize {
        self.payload_offset
    }

    /// The upper-layer header and data.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.payload_offset..).unwrap_or_default()
    }
}

/// The extension headers that are stepped over.
const fn is_extension(next: u8) -> bool {
    matches!(
        next,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AH
            | protocol::DESTINATION
            | protocol::SHIM6
    )
}

/// The header of an IPv6 packet to be built, without extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; the lower 20 bits count.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// A header with a hop limit of 64 and nothing else.
    #[must_use]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8) -> Self {
        Self { traffic_class: 0, flow_label: 0, hop_limit: 64, protocol, src, dst }
    }

    /// The 40 bytes for a packet with `payload_len` bytes after the header.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the payload exceeds 65,535 bytes.
    pub fn to_bytes(self, payload_len: usize) -> Result<[u8; Ipv6::HEADER]> {
        let got = payload_len;
        let len =
            u16::try_from(got).map_err(|_| Error::TooLong { what: "IPv6 payload", got, limit: 0xffff })?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        let [l0, l1] = len.to_be_bytes();
        let mut header = [0; Ipv6::HEADER];
        let (fixed, addresses) = header.split_at_mut(8);
        let (src, dst) = addresses.split_at_mut(16);
        let [f0, f1, f2, f3] = first.to_be_bytes();
        fixed.copy_from_slice(&[f0, f1, f2, f3, l0, l1, self.protocol, self.hop_limit]);
        src.copy_from_slice(&self.src.octets());
        dst.copy_from_slice(&self.dst.octets());
        Ok(header)
    }
}
