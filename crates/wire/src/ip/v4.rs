//! IPv4 headers (RFC 791). Owns the view of a received packet and the header of one to be built; must never reassemble.

use core::net::Ipv4Addr;

use super::{IpFragment, checksum, field, within};
use crate::{Error, Result};

/// A view of an IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    /// Cut to the total length; at least 20 bytes and at least the header.
    bytes: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Shortest header.
    pub const MIN_HEADER: usize = 20;

    /// Checks version, header length and total length. The header checksum is not verified: see [`Self::checksum_ok`].
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Value`] or [`Error::Length`], naming the field.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Self::parse_header(bytes).and_then(|packet| {
            let (total, have) = (packet.stated_total_len(), bytes.len());
            match bytes.get(..total) {
                Some(bytes) => Ok(Self { bytes }),
                None => Err(Error::Truncated { what: "IPv4 packet", need: total, have }),
            }
        })
    }

    /// As [`Self::parse`], but the packet may be cut short after its header, as the ones that ICMP errors quote are.
    ///
    /// # Errors
    /// As [`Self::parse`], for the header alone.
    pub fn parse_header(bytes: &'a [u8]) -> Result<Self> {
        let truncated = Error::Truncated { what: "IPv4 header", need: Self::MIN_HEADER, have: bytes.len() };
        let first = *bytes.first().ok_or(truncated)?;
        if first >> 4 != 4 {
            return Err(Error::Value { what: "IP version", got: (first >> 4).into(), expect: "4" });
        }
        if bytes.len() < Self::MIN_HEADER {
            return Err(truncated);
        }
        let packet = Self { bytes };
        let header = packet.header_len();
        if header < Self::MIN_HEADER {
            return Err(Error::Length { what: "IPv4 header", got: header, expect: Self::MIN_HEADER });
        }
        if header > bytes.len() {
            return Err(Error::Truncated { what: "IPv4 header", need: header, have: bytes.len() });
        }
        let total = packet.stated_total_len();
        if total < header {
            return Err(Error::Length { what: "IPv4 packet", got: total, expect: header });
        }
        Ok(Self { bytes: within(bytes, 0..total.min(bytes.len())) })
    }

    /// The packet's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn stated_total_len(&self) -> usize {
        u16::from_be_bytes(field(self.bytes, 2)).into()
    }

    /// Bytes of the header, options included: 20 to 60.
    #[must_use]
    pub fn header_len(&self) -> usize {
        let [b] = field(self.bytes, 0);
        usize::from(b & 0x0f) * 4
    }

    /// Bytes of the packet as its header says.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.stated_total_len()
    }

    /// DSCP and ECN.
    #[must_use]
    pub fn tos(&self) -> u8 {
        let [b] = field(self.bytes, 1);
        b
    }

    /// Whether the DF bit is set.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        let [b] = field(self.bytes, 6);
        b & 0x40 != 0
    }

    /// The place in a fragmented datagram, or `None` for a whole one.
    #[must_use]
    pub fn fragment(&self) -> Option<IpFragment> {
        let word = u16::from_be_bytes(field(self.bytes, 6));
        let (offset, more) = ((word & 0x1fff) * 8, word & 0x2000 != 0);
        let id = u16::from_be_bytes(field(self.bytes, 4)).into();
        (offset != 0 || more).then_some(IpFragment { id, offset, more })
    }

    /// Time to live.
    #[must_use]
    pub fn ttl(&self) -> u8 {
        let [b] = field(self.bytes, 8);
        b
    }

    /// The protocol of the payload.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        let [b] = field(self.bytes, 9);
        b
    }

    /// Whether the header checksum is right.
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        checksum::checksum(within(self.bytes, 0..self.header_len())) == 0
    }

    /// Source address.
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(field::<4>(self.bytes, 12))
    }

    /// Destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(field::<4>(self.bytes, 16))
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_len()..).unwrap_or_default()
    }
}

/// The header of an IPv4 packet to be built, without options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Header {
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification, for fragments.
    pub id: u16,
    /// The DF bit.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

impl Ipv4Header {
    /// A header with DF set, a TTL of 64 and nothing else.
    #[must_use]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Self {
        Self { tos: 0, id: 0, dont_fragment: true, ttl: 64, protocol, src, dst }
    }

    /// The 20 bytes for a packet with `payload_len` bytes after the header, checksum included.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the packet exceeds 65,535 bytes.
    pub fn to_bytes(self, payload_len: usize) -> Result<[u8; Ipv4::MIN_HEADER]> {
        let got = payload_len.saturating_add(Ipv4::MIN_HEADER);
        let total =
            u16::try_from(got).map_err(|_| Error::TooLong { what: "IPv4 packet", got, limit: 0xffff })?;
        let [l0, l1] = total.to_be_bytes();
        let [i0, i1] = self.id.to_be_bytes();
        let df = if self.dont_fragment { 0x40 } else { 0 };
        let [s0, s1, s2, s3] = self.src.octets();
        let [d0, d1, d2, d3] = self.dst.octets();
        let (ttl, protocol) = (self.ttl, self.protocol);
        let mut header =
            [0x45, self.tos, l0, l1, i0, i1, df, 0, ttl, protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
        let [c0, c1] = checksum::checksum(&header).to_be_bytes();
        [header[10], header[11]] = [c0, c1];
        Ok(header)
    }
}
