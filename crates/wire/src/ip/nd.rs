//! Neighbour discovery (RFC 4861), as far as a proxy needs it: reading a solicitation and building the advertisement.
//!
//! Owns the two messages. Must never keep a neighbour cache.

use core::net::Ipv6Addr;

use super::{Ipv6Header, Packet, checksum, protocol};
use crate::Result;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// "The IP Hop Limit field has a value of 255, i.e., the packet could not possibly have been forwarded by a router" (section
/// 7.1.1).
const HOP_LIMIT: u8 = 255;
const TARGET_LINK_LAYER: u8 = 2;
const SOLICITED: u8 = 0x40;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A neighbour solicitation: who has `target`?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Solicitation {
    /// Who asks; unspecified during duplicate address detection.
    pub src: Ipv6Addr,
    /// The address asked for.
    pub target: Ipv6Addr,
}

impl Solicitation {
    /// Reads a packet by the rules of section 7.1.1. `None` for anything else.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let Ok(Packet::V6(ip)) = Packet::parse(packet) else { return None };
        let message = ip.payload();
        let (&[kind, code, ..], rest) = message.split_first_chunk::<8>()?;
        let target = Ipv6Addr::from(*rest.first_chunk::<16>()?);
        let whole = ip.fragment().is_none() && ip.protocol() == protocol::ICMPV6;
        let sum = checksum::pseudo_header(ip.src().into(), ip.dst().into(), protocol::ICMPV6, message.len());
        let valid = (kind, code, ip.hop_limit()) == (SOLICITATION, 0, HOP_LIMIT)
            && whole
            && !target.is_multicast()
            && sum.add_bytes(message).finish() == 0;
        valid.then_some(Self { src: ip.src(), target })
    }

    /// Appends the advertisement: `link` has the target, or, on a link without addresses, simply "it is here". Not marked
    /// "override": the owner's own word counts more than a proxy's (section 7.2.8).
    ///
    /// # Errors
    /// None that this message can have.
    pub fn advertise(&self, link: Option<[u8; 6]>, out: &mut Vec<u8>) -> Result<()> {
        let (dst, flags) = if self.src.is_unspecified() { (ALL_NODES, 0) } else { (self.src, SOLICITED) };
        let mut message = vec![ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
        message.extend_from_slice(&self.target.octets());
        if let Some(link) = link {
            message.extend_from_slice(&[TARGET_LINK_LAYER, 1]);
            message.extend_from_slice(&link);
        }
        let pseudo = checksum::pseudo_header(self.target.into(), dst.into(), protocol::ICMPV6, message.len());
        let sum = pseudo.add_bytes(&message).finish();
        if let Some(field) = message.get_mut(2..4) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
        let header =
            Ipv6Header { hop_limit: HOP_LIMIT, ..Ipv6Header::new(self.target, dst, protocol::ICMPV6) };
        out.extend_from_slice(&header.to_bytes(message.len())?);
        out.extend_from_slice(&message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
    }

    fn solicitation(src: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
        let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&ip(7).octets());
        let sum = checksum::pseudo_header(src.into(), ip(7).into(), protocol::ICMPV6, message.len());
        let sum = sum.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = Ipv6Header { hop_limit, ..Ipv6Header::new(src, ip(7), protocol::ICMPV6) };
        [&header.to_bytes(message.len()).expect("short")[..], &message].concat()
    }

    #[test]
    fn the_advertisement_goes_to_the_asker_with_a_right_checksum() {
        let asked = Solicitation::parse(&solicitation(ip(2), 255)).expect("a solicitation");
        let mut out = Vec::new();
        asked.advertise(Some([2, 0, 0, 0, 0, 9]), &mut out).expect("short");
        let Ok(Packet::V6(told)) = Packet::parse(&out) else { panic!("{out:02x?}") };
        assert_eq!((told.src(), told.dst(), told.hop_limit()), (ip(7), ip(2), 255));
        let sum = Packet::V6(told).pseudo_header(told.payload().len()).add_bytes(told.payload()).finish();
        assert_eq!((sum, told.payload()[4], told.payload().len()), (0, SOLICITED, 32));
    }

    #[test]
    fn duplicate_address_detection_is_told_at_large() {
        let asked = Solicitation::parse(&solicitation(Ipv6Addr::UNSPECIFIED, 255)).expect("a solicitation");
        let mut out = Vec::new();
        asked.advertise(None, &mut out).expect("short");
        let Ok(Packet::V6(told)) = Packet::parse(&out) else { panic!("{out:02x?}") };
        assert_eq!((told.dst(), told.payload()[4]), (ALL_NODES, 0));
    }

    #[test]
    fn what_a_router_forwarded_is_no_solicitation() {
        assert_eq!(Solicitation::parse(&solicitation(ip(2), 254)), None);
        let mut broken = solicitation(ip(2), 255);
        broken[50] ^= 1;
        assert_eq!(Solicitation::parse(&broken), None);
    }
}
