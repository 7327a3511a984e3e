//! The contents of parameters that have fields. Owns their meaning as values; must never touch bytes.

use core::net::Ipv6Addr;

use super::kind::NotifyType;

/// SPIs and where ESP keys are drawn (RFC 7402 section 5.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspInfo {
    /// Offset in bytes into KEYMAT; 0 with new key material.
    pub keymat_index: u16,
    /// The SPI that is replaced; 0: none.
    pub old_spi: u32,
    /// The SPI by which the sender receives from now on.
    pub new_spi: u32,
}

/// The generation of a puzzle (RFC 7401 section 5.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct R1Counter {
    /// Echoed as it came.
    pub reserved: u32,
    /// The generation.
    pub generation: u64,
}

/// RFC 7401 section 5.2.4.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Puzzle {
    /// Zero bits that a solution has.
    pub k: u8,
    /// The puzzle is good for 2^(lifetime - 32) seconds.
    pub lifetime: u8,
    /// Echoed as it came.
    pub opaque: [u8; 2],
    /// The random number I: as long as the hash, in version 1 8 bytes.
    pub i: Vec<u8>,
}

/// RFC 7401 section 5.2.5.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Solution {
    /// As in the puzzle.
    pub k: u8,
    /// In version 1 the puzzle's lifetime; else 0.
    pub reserved: u8,
    /// As in the puzzle.
    pub opaque: [u8; 2],
    /// As in the puzzle.
    pub i: Vec<u8>,
    /// The solution J, as long as I.
    pub j: Vec<u8>,
}

/// A public value (RFC 7401 section 5.2.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhValue {
    /// Its group.
    pub group: u8,
    /// The value.
    pub public: Vec<u8>,
}

/// A public key with the name of its owner (RFC 7401 section 5.2.9).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostId {
    /// Algorithm of the key: 3 DSA, 5 RSA, 7 ECDSA, 9 ECDSA_LOW. Version 1 has it in the fourth byte of `key`, and 0 here.
    pub algorithm: u16,
    /// The key; in version 1 with the flags, protocol and algorithm of a KEY record before it (RFC 5201 section 5.2.8).
    pub key: Vec<u8>,
    /// The owner's name.
    pub domain: DomainId,
}

/// The domain identifier of a HOST_ID.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DomainId {
    /// 0 none, 1 FQDN, 2 NAI; four bits.
    pub kind: u8,
    /// At most 4,095 bytes.
    pub name: Vec<u8>,
}

/// RFC 7401 section 5.2.19.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Its type.
    pub kind: NotifyType,
    /// More about it.
    pub data: Vec<u8>,
}

/// A signature with its algorithm (RFC 7401 section 5.2.14), numbered as in HOST_ID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// One byte wide in version 1.
    pub algorithm: u16,
    /// The signature.
    pub signature: Vec<u8>,
}

/// One address of a LOCATOR_SET (RFC 8046 section 4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locator {
    /// 0 all traffic, 1 HIP alone, 2 user data alone.
    pub traffic: u8,
    /// The sender wants to be reached here.
    pub preferred: bool,
    /// In seconds.
    pub lifetime: u32,
    /// The address.
    pub value: LocatorValue,
}

/// What a locator says, by its type. IPv4 addresses are IPv4-mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocatorValue {
    /// Type 0.
    Address(Ipv6Addr),
    /// Type 1: with an SPI.
    Esp {
        /// The SPI by which the sender receives there.
        spi: u32,
        /// The address.
        address: Ipv6Addr,
    },
    /// Type 2: with a port (RFC 9028 section 5.7).
    Transport {
        /// The UDP port.
        port: u16,
        /// The protocol, 17.
        protocol: u8,
        /// 0 host, 1 server-reflexive, 2 peer-reflexive, 3 relayed.
        kind: u8,
        /// For pairing candidates.
        priority: u32,
        /// The SPI.
        spi: u32,
        /// The address.
        address: Ipv6Addr,
    },
    /// A type without a name here; the length of its data is a multiple of 4.
    Other(u8, Vec<u8>),
}

/// Which services a registrar offers (RFC 8003 section 4.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegInfo {
    /// Shortest lifetime, 2^((value - 64) / 8) seconds.
    pub min_lifetime: u8,
    /// Longest lifetime, likewise.
    pub max_lifetime: u8,
    /// The services: 1 rendezvous, 2 relay.
    pub types: Vec<u8>,
}

/// Services asked for, or granted (RFC 8003 sections 4.3 and 4.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// 2^((value - 64) / 8) seconds; 0 cancels.
    pub lifetime: u8,
    /// The services.
    pub types: Vec<u8>,
}

/// Services refused (RFC 8003 section 4.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegFailed {
    /// 0: more credentials are needed; 1: the service is not available.
    pub failure: u8,
    /// The services.
    pub types: Vec<u8>,
}

/// An address with a port: RELAY_FROM, RELAY_TO, REG_FROM, RELAYED_ADDRESS, MAPPED_ADDRESS (RFC 5770 section 5.8, RFC 9028 section
/// 5.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportAddress {
    /// The port.
    pub port: u16,
    /// The protocol, 17; 0 for HIP without UDP.
    pub protocol: u8,
    /// The address, or an IPv4-mapped one.
    pub address: Ipv6Addr,
}

/// Whom a data relay lets through (RFC 9028 section 5.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPermission {
    /// Port of the relayed candidate.
    pub relay_port: u16,
    /// Port of the peer.
    pub peer_port: u16,
    /// The protocol, 17.
    pub protocol: u8,
    /// Address of the relayed candidate.
    pub relay_address: Ipv6Addr,
    /// Address of the peer.
    pub peer_address: Ipv6Addr,
    /// SPI of what the client sends to the peer.
    pub spi_out: u32,
    /// SPI of what it receives.
    pub spi_in: u32,
}
