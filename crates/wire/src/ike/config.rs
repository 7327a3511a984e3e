//! Configuration payloads (RFC 7296 section 3.15): how a client asks for, and is given, its inner address.
//!
//! Owns the format and the encodings of the values. Must never assign anything.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::limits;
use crate::codec::{Counts, Reader, Writer, code_points};
use crate::{Error, Result};

code_points! {
    /// What a configuration payload does.
    pub enum ConfigType: u8 {
        Request = 1, "CFG_REQUEST";
        Reply = 2, "CFG_REPLY";
        Set = 3, "CFG_SET";
        Ack = 4, "CFG_ACK";
    }
}

code_points! {
    /// What a configuration attribute carries.
    pub enum ConfigAttributeType: u16 {
        InternalIp4Address = 1, "INTERNAL_IP4_ADDRESS";
        InternalIp4Netmask = 2, "INTERNAL_IP4_NETMASK";
        InternalIp4Dns = 3, "INTERNAL_IP4_DNS";
        InternalIp4Nbns = 4, "INTERNAL_IP4_NBNS";
        InternalIp4Dhcp = 6, "INTERNAL_IP4_DHCP";
        ApplicationVersion = 7, "APPLICATION_VERSION";
        InternalIp6Address = 8, "INTERNAL_IP6_ADDRESS";
        InternalIp6Dns = 10, "INTERNAL_IP6_DNS";
        InternalIp6Dhcp = 12, "INTERNAL_IP6_DHCP";
        InternalIp4Subnet = 13, "INTERNAL_IP4_SUBNET";
        SupportedAttributes = 14, "SUPPORTED_ATTRIBUTES";
        InternalIp6Subnet = 15, "INTERNAL_IP6_SUBNET";
        /// RFC 5026.
        Mip6HomePrefix = 16, "MIP6_HOME_PREFIX";
        /// RFC 5739.
        InternalIp6Link = 17, "INTERNAL_IP6_LINK";
        /// RFC 5739.
        InternalIp6Prefix = 18, "INTERNAL_IP6_PREFIX";
        HomeAgentAddress = 19, "HOME_AGENT_ADDRESS";
        /// RFC 7651.
        PCscfIp4Address = 20, "P_CSCF_IP4_ADDRESS";
        /// RFC 7651.
        PCscfIp6Address = 21, "P_CSCF_IP6_ADDRESS";
        /// RFC 8598.
        InternalDnsDomain = 25, "INTERNAL_DNS_DOMAIN";
        /// RFC 8598.
        InternalDnssecTa = 26, "INTERNAL_DNSSEC_TA";
    }
}

/// A configuration payload.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Request, reply, set or acknowledgement.
    pub kind: ConfigType,
    /// Its attributes, in order.
    pub attributes: Vec<ConfigAttribute>,
}

/// One attribute; an empty value in a request asks for any value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConfigAttribute {
    /// What it carries. 15 bits: the reserved top bit is ignored when read.
    pub kind: ConfigAttributeType,
    /// The value as encoded.
    pub value: Vec<u8>,
}

impl ConfigAttribute {
    /// An attribute with no value: "any", in a request.
    #[must_use]
    pub const fn empty(kind: ConfigAttributeType) -> Self {
        Self { kind, value: Vec::new() }
    }

    /// An attribute holding an IPv4 address or netmask (4 bytes).
    #[must_use]
    pub fn ipv4(kind: ConfigAttributeType, address: Ipv4Addr) -> Self {
        Self { kind, value: address.octets().to_vec() }
    }

    /// An attribute holding an IPv6 address (16 bytes): INTERNAL_IP6_DNS and the like.
    #[must_use]
    pub fn ipv6(kind: ConfigAttributeType, address: Ipv6Addr) -> Self {
        Self { kind, value: address.octets().to_vec() }
    }

    /// An attribute holding an IPv4 address and a netmask (8 bytes): INTERNAL_IP4_SUBNET. `prefix_len` above 32 counts
    /// as 32.
    #[must_use]
    pub fn ipv4_subnet(address: Ipv4Addr, prefix_len: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len.min(32))).unwrap_or(0);
        let mut value = address.octets().to_vec();
        value.extend_from_slice(&mask.to_be_bytes());
        Self { kind: ConfigAttributeType::InternalIp4Subnet, value }
    }

    /// An attribute holding an IPv6 address and a prefix length (17 bytes): INTERNAL_IP6_ADDRESS, INTERNAL_IP6_SUBNET.
    #[must_use]
    pub fn ipv6_prefix(kind: ConfigAttributeType, address: Ipv6Addr, prefix_len: u8) -> Self {
        let mut value = address.octets().to_vec();
        value.push(prefix_len);
        Self { kind, value }
    }

    /// The value as an IPv4 address or netmask, if it has 4 bytes.
    #[must_use]
    pub fn to_ipv4(&self) -> Option<Ipv4Addr> {
        <[u8; 4]>::try_from(self.value.as_slice()).ok().map(Ipv4Addr::from)
    }

    /// The value as an IPv6 address: of 16 bytes, or of 17 with the prefix length left out.
    #[must_use]
    pub fn to_ipv6(&self) -> Option<Ipv6Addr> {
        match self.value.len() {
            16 | 17 => self.value.first_chunk::<16>().copied().map(Ipv6Addr::from),
            _ => None,
        }
    }

    /// The value as an IPv4 address and prefix length, if it has 8 bytes and the mask is contiguous.
    #[must_use]
    pub fn to_ipv4_subnet(&self) -> Option<(Ipv4Addr, u8)> {
        let bytes = <[u8; 8]>::try_from(self.value.as_slice()).ok()?;
        let [a, b, c, d, m @ ..] = bytes;
        let mask = u32::from_be_bytes(m);
        let ones = mask.leading_ones();
        let contiguous = mask.count_ones() == ones;
        contiguous.then(|| (Ipv4Addr::new(a, b, c, d), u8::try_from(ones).unwrap_or(32)))
    }

    /// The value as an IPv6 address and prefix length, if it has 17 bytes and the length is at most 128.
    #[must_use]
    pub fn to_ipv6_prefix(&self) -> Option<(Ipv6Addr, u8)> {
        let (address, rest) = self.value.split_first_chunk::<16>()?;
        match rest {
            [len] if *len <= 128 => Some((Ipv6Addr::from(*address), *len)),
            _ => None,
        }
    }
}

impl Config {
    /// A payload of `kind` with `attributes`.
    #[must_use]
    pub const fn new(kind: ConfigType, attributes: Vec<ConfigAttribute>) -> Self {
        Self { kind, attributes }
    }

    /// The attributes of one kind, in order.
    pub fn of_kind(&self, kind: ConfigAttributeType) -> impl Iterator<Item = &ConfigAttribute> {
        self.attributes.iter().filter(move |a| a.kind == kind)
    }

    pub(super) fn parse(mut r: Reader<'_>) -> Result<Self> {
        let kind = ConfigType::from(r.u8()?);
        r.take(3)?;
        let mut attributes = Vec::new();
        while !r.is_empty() {
            if attributes.len() == limits::MAX_CONFIG_ATTRIBUTES {
                let limit = limits::MAX_CONFIG_ATTRIBUTES;
                return Err(Error::TooMany { what: "configuration attributes", limit });
            }
            let kind = ConfigAttributeType::from(r.u16()? & 0x7fff);
            let length = usize::from(r.u16()?);
            attributes.push(ConfigAttribute { kind, value: r.take(length)?.to_vec() });
        }
        Ok(Self { kind, attributes })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8(self.kind.code());
        w.zeros(3);
        for attribute in &self.attributes {
            w.u16(attribute.kind.code() & 0x7fff);
            w.length_u16("configuration attribute", Counts::After).bytes(&attribute.value);
        }
    }
}
