//! Agent discovery: ICMP router advertisements and solicitations (RFC 1256) with the extensions of RFC 5944 section 2.1.

use core::net::Ipv4Addr;

use super::agent;
use crate::codec::{Reader, Writer};
use crate::ip::{Ipv4, Ipv4Header, checksum, protocol};
use crate::{Error, Result};

const ADVERTISEMENT: u8 = 9;
const SOLICITATION: u8 = 10;
/// Types of extensions.
const PADDING: u8 = 0;
const MOBILITY: u8 = 16;
const PREFIXES: u8 = 19;
/// Bytes of the ICMP header, and of a router's address and preference.
const HEAD: usize = 8;
const ROUTER: usize = 8;
/// Words of a router's entry.
const WORDS: u8 = 2;

/// A router that an advertisement names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Router {
    /// Its address.
    pub address: Ipv4Addr,
    /// The higher, the better.
    pub preference: i32,
}

/// What makes a router advertisement one of a mobility agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mobility {
    /// Counts advertisements.
    pub sequence: u16,
    /// The longest registration that the agent accepts, in seconds.
    pub lifetime: u16,
    /// See [`agent`]. Bits without a meaning here are kept.
    pub flags: u16,
    /// Care-of addresses of a foreign agent.
    pub care_of: Vec<Ipv4Addr>,
}

/// An agent advertisement, or a plain router's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// 0, or 16 for an agent that does not route common traffic.
    pub code: u8,
    /// Seconds for which it is valid.
    pub lifetime: u16,
    /// Routers.
    pub routers: Vec<Router>,
    /// Absent in a plain router's.
    pub mobility: Option<Mobility>,
    /// The prefix length of each router's address, if there is one.
    pub prefixes: Vec<u8>,
}

impl Advertisement {
    /// Reads a whole IP packet.
    ///
    /// # Errors
    /// [`Error::Value`] for what is no advertisement or has a wrong checksum; [`Error::Length`] and [`Error::Truncated`] for the rest.
    pub fn parse(packet: &Ipv4<'_>) -> Result<Self> {
        let message = icmp(packet, ADVERTISEMENT)?;
        let mut r = Reader::new("router advertisement", message);
        let (_, code, _) = (r.u8()?, r.u8()?, r.u16()?);
        let (count, words, lifetime) = (r.u8()?, r.u8()?, r.u16()?);
        if words < WORDS {
            let (got, expect) = (words.into(), WORDS.into());
            return Err(Error::Length { what: "address entry of a router advertisement", got, expect });
        }
        let mut routers = Vec::new();
        for _ in 0..count {
            let mut entry = r.sub("address entry", usize::from(words) * 4)?;
            let address = Ipv4Addr::from(entry.array::<4>()?);
            routers.push(Router { address, preference: i32::from_be_bytes(entry.array()?) });
        }
        let mut new = Self { code, lifetime, routers, mobility: None, prefixes: Vec::new() };
        while !r.is_empty() {
            new.extension(&mut r)?;
        }
        Ok(new)
    }

    fn extension(&mut self, r: &mut Reader<'_>) -> Result<()> {
        let kind = r.u8()?;
        if kind == PADDING {
            return Ok(());
        }
        let length = usize::from(r.u8()?);
        match kind {
            MOBILITY => {
                let mut r = r.sub("mobility agent advertisement extension", length)?;
                let (sequence, lifetime, flags) = (r.u16()?, r.u16()?, r.u16()?);
                let mut care_of = Vec::new();
                while !r.is_empty() {
                    care_of.push(Ipv4Addr::from(r.array::<4>()?));
                }
                self.mobility = Some(Mobility { sequence, lifetime, flags, care_of });
            }
            PREFIXES => self.prefixes = r.take(length)?.to_vec(),
            // As in registrations: what is below 128 must be known.
            1..128 => {
                let (what, expect) = ("type of an extension that must be known", "16 or 19");
                return Err(Error::Value { what, got: kind.into(), expect });
            }
            _ => _ = r.take(length)?,
        }
        Ok(())
    }

    /// Appends a whole IP packet.
    ///
    /// # Errors
    /// [`Error::TooLong`] for more routers or care-of addresses than fit their counts; `out` is as it was then.
    pub fn emit(&self, from: Ipv4Addr, to: Ipv4Addr, out: &mut Vec<u8>) -> Result<()> {
        let mut message = Vec::with_capacity(HEAD + ROUTER * self.routers.len() + 16);
        let mut w = Writer::new(&mut message);
        w.bytes(&[ADVERTISEMENT, self.code, 0, 0]);
        w.count_u8("routers", self.routers.len());
        w.u8(WORDS);
        w.u16(self.lifetime);
        for router in &self.routers {
            w.bytes(&router.address.octets());
            w.bytes(&router.preference.to_be_bytes());
        }
        if let Some(mobility) = &self.mobility {
            w.u8(MOBILITY);
            w.count_u8("bytes of care-of addresses", 6 + 4 * mobility.care_of.len());
            w.u16(mobility.sequence);
            w.u16(mobility.lifetime);
            w.u16(mobility.flags);
            mobility.care_of.iter().for_each(|address| w.bytes(&address.octets()));
        }
        if !self.prefixes.is_empty() {
            w.u8(PREFIXES);
            w.count_u8("prefix lengths", self.prefixes.len());
            w.bytes(&self.prefixes);
        }
        w.finish()?;
        finish(message, from, to, out)
    }

    /// The mobility extension, if it has all of these bits.
    #[must_use]
    pub fn agent(&self, bits: u16) -> Option<&Mobility> {
        self.mobility.as_ref().filter(|m| m.flags & bits == bits)
    }

    /// The first care-of address of a foreign agent.
    #[must_use]
    pub fn care_of(&self) -> Option<Ipv4Addr> {
        self.agent(agent::FOREIGN)?.care_of.first().copied()
    }
}

/// Whether a packet is a well-formed agent solicitation.
#[must_use]
pub fn is_solicitation(packet: &Ipv4<'_>) -> bool {
    icmp(packet, SOLICITATION).is_ok_and(|m| m.len() >= HEAD && m.get(1) == Some(&0))
}

/// Appends an agent solicitation as a whole IP packet.
///
/// # Errors
/// None that is expected.
pub fn solicitation(from: Ipv4Addr, to: Ipv4Addr, out: &mut Vec<u8>) -> Result<()> {
    finish(vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0], from, to, out)
}

/// The ICMP message of this type in a packet, its checksum verified.
fn icmp<'a>(packet: &Ipv4<'a>, kind: u8) -> Result<&'a [u8]> {
    let message = packet.payload();
    let got = u64::from(message.first().copied().unwrap_or_default());
    let whole = packet.fragment().is_none() && packet.protocol() == protocol::ICMP;
    if !whole || got != u64::from(kind) {
        return Err(Error::Value { what: "type of an ICMP message", got, expect: "router discovery" });
    }
    if checksum::checksum(message) != 0 {
        let expect = "the sum of the message";
        return Err(Error::Value { what: "ICMP checksum of router discovery", got, expect });
    }
    Ok(message)
}

/// Completes the checksum, and puts the IP header before it.
fn finish(mut message: Vec<u8>, from: Ipv4Addr, to: Ipv4Addr, out: &mut Vec<u8>) -> Result<()> {
    let sum = checksum::checksum(&message).to_be_bytes();
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum);
    }
    // "The TTL for all Agent Advertisements MUST be set to 1." (RFC 5944 section 2.1)
    // "the further restriction that the IP TTL Field MUST be set to 1" (RFC 5944 section 2.2)
    let header = Ipv4Header { ttl: 1, dont_fragment: false, ..Ipv4Header::new(from, to, protocol::ICMP) };
    out.extend_from_slice(&header.to_bytes(message.len())?);
    out.extend_from_slice(&message);
    Ok(())
}
