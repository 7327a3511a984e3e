//! Traffic-selector payloads (RFC 7296 section 3.13).
//!
//! Owns their format. Must never match or narrow: that is done where policies live.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::limits;
use crate::codec::{Counts, Reader, Writer};
use crate::{Error, Result};

/// `TS_IPV4_ADDR_RANGE`.
const IPV4_RANGE: u8 = 7;
/// `TS_IPV6_ADDR_RANGE`.
const IPV6_RANGE: u8 = 8;

/// One traffic selector.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TrafficSelector {
    /// Addresses, ports and protocol of IP packets.
    Range(TsRange),
    /// A kind without a name here (Fibre Channel, security labels): kept, so that the negotiation can leave it out.
    Unknown {
        /// The TS type.
        kind: u8,
        /// The byte where address ranges have their protocol.
        protocol: u8,
        /// All that follows the selector's length.
        body: Vec<u8>,
    },
}

/// A range of addresses, ports and protocols. Both addresses are of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TsRange {
    /// IP protocol; 0 means any.
    pub protocol: u8,
    /// First port. For ICMP, ICMPv6 and mobility headers, type in the high byte and code in the low one.
    pub start_port: u16,
    /// Last port. `start_port` 65535 with `end_port` 0 means OPAQUE: packets whose ports cannot be seen.
    pub end_port: u16,
    /// First address.
    pub start: IpAddr,
    /// Last address.
    pub end: IpAddr,
}

impl TsRange {
    /// Every protocol and port between two addresses of one family, both included.
    #[must_use]
    pub const fn addresses(start: IpAddr, end: IpAddr) -> Self {
        Self { protocol: 0, start_port: 0, end_port: u16::MAX, start, end }
    }

    /// Every packet of IPv4.
    #[must_use]
    pub const fn any_v4() -> Self {
        Self::addresses(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::BROADCAST))
    }

    /// Every packet of IPv6.
    #[must_use]
    pub const fn any_v6() -> Self {
        Self::addresses(IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)))
    }

    /// Whether it selects every port.
    #[must_use]
    pub const fn any_port(&self) -> bool {
        self.start_port == 0 && self.end_port == u16::MAX
    }

    /// Whether it selects packets whose ports cannot be seen (RFC 7296 section 3.13.1: start 65535, end 0).
    #[must_use]
    pub const fn opaque_ports(&self) -> bool {
        self.start_port == u16::MAX && self.end_port == 0
    }
}

impl From<TsRange> for TrafficSelector {
    fn from(range: TsRange) -> Self {
        Self::Range(range)
    }
}

pub(super) fn parse(mut r: Reader<'_>) -> Result<Vec<TrafficSelector>> {
    let count = usize::from(r.u8()?);
    r.take(3)?;
    if count > limits::MAX_TRAFFIC_SELECTORS {
        return Err(Error::TooMany { what: "traffic selectors", limit: limits::MAX_TRAFFIC_SELECTORS });
    }
    let mut selectors = Vec::with_capacity(count.min(16));
    for _ in 0..count {
        selectors.push(TrafficSelector::parse(&mut r)?);
    }
    r.all()?;
    Ok(selectors)
}

pub(super) fn emit(selectors: &[TrafficSelector], w: &mut Writer<'_>) {
    w.count_u8("traffic selectors", selectors.len());
    w.zeros(3);
    for selector in selectors {
        selector.emit(w);
    }
}

impl TrafficSelector {
    fn parse(r: &mut Reader<'_>) -> Result<Self> {
        let kind = r.u8()?;
        let protocol = r.u8()?;
        let length = usize::from(r.u16()?);
        let expect = match kind {
            IPV4_RANGE => 16,
            IPV6_RANGE => 40,
            _ => length.max(4),
        };
        if length != expect {
            return Err(Error::Length { what: "traffic selector", got: length, expect });
        }
        let mut body = r.sub("traffic selector", length - 4)?;
        if !matches!(kind, IPV4_RANGE | IPV6_RANGE) {
            return Ok(Self::Unknown { kind, protocol, body: body.rest().to_vec() });
        }
        let (start_port, end_port) = (body.u16()?, body.u16()?);
        let (start, end) = if kind == IPV4_RANGE {
            (Ipv4Addr::from(body.array::<4>()?).into(), Ipv4Addr::from(body.array::<4>()?).into())
        } else {
            (Ipv6Addr::from(body.array::<16>()?).into(), Ipv6Addr::from(body.array::<16>()?).into())
        };
        body.all()?;
        Ok(Self::Range(TsRange { protocol, start_port, end_port, start, end }))
    }

    fn emit(&self, w: &mut Writer<'_>) {
        let start = w.position();
        match self {
            Self::Unknown { kind, protocol, body } => {
                w.u8(*kind);
                w.u8(*protocol);
                w.length_u16("traffic selector", Counts::From(start)).bytes(body);
            }
            Self::Range(range) => {
                w.u8(if range.start.is_ipv4() { IPV4_RANGE } else { IPV6_RANGE });
                w.u8(range.protocol);
                let mut body = w.length_u16("traffic selector", Counts::From(start));
                body.u16(range.start_port);
                body.u16(range.end_port);
                match (range.start, range.end) {
                    (IpAddr::V4(a), IpAddr::V4(b)) => {
                        body.bytes(&a.octets());
                        body.bytes(&b.octets());
                    }
                    (IpAddr::V6(a), IpAddr::V6(b)) => {
                        body.bytes(&a.octets());
                        body.bytes(&b.octets());
                    }
                    (_, end) => body.refuse(Error::Value {
                        what: "address family of a selector's end",
                        got: if end.is_ipv4() { 4 } else { 6 },
                        expect: "that of its start",
                    }),
                }
            }
        }
    }
}
