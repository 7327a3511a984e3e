//! The fixed header of HIP packets (RFC 7401 section 5.1). Owns its 40 bytes and the checksum; must never look at a parameter.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use super::kind::PacketType;
use super::limits::MAX_PACKET;
use crate::codec::{Reader, Writer};
use crate::ip::checksum;
use crate::ip::protocol;
use crate::{Error, Result};

/// Bytes of the fixed header.
/// "Since all HIP headers MUST contain the sender's and receiver's HIT fields, the minimum value for this field is 4" (RFC 7401 section
/// 5.1)
pub const HEADER_LEN: usize = 40;
/// "no next header": what follows the parameters of a packet without upper-layer data.
const NO_NEXT_HEADER: u8 = 59;
/// Where the length, the checksum and the receiver's HIT stand.
pub(super) const LENGTH_AT: usize = 1;
pub(super) const CHECKSUM_AT: usize = 4;
pub(super) const RECEIVER_AT: usize = 24;

/// A Host Identity Tag: an identity as applications see it. Ordered as a number in network byte order (RFC 7401 section 6.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hit(pub Ipv6Addr);

impl Hit {
    /// All zeros: the receiver of an I1 whose sender does not know who answers (RFC 7401 section 4.1.8).
    pub const NULL: Self = Self(Ipv6Addr::UNSPECIFIED);

    /// Its bytes.
    #[must_use]
    pub const fn octets(&self) -> [u8; 16] {
        self.0.octets()
    }
}

impl fmt::Debug for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// RFC 5201.
    V1,
    /// RFC 7401.
    V2,
}

/// The header, but for what is computed, length and checksum, and what says nothing: the next header and the fixed bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What kind of packet follows.
    pub kind: PacketType,
    /// The version.
    pub version: Version,
    /// Controls: the lowest bit says that the sender's identity is anonymous. Unknown bits are kept, for what is sent on; of the others:
    /// "The rest of the fields are reserved for future use, and MUST be set to zero in sent packets and MUST be ignored in received packets."
    /// (RFC 7401 section 5.1.2)
    pub controls: u16,
    /// The sender.
    pub sender: Hit,
    /// The receiver; [`Hit::NULL`] in an opportunistic I1.
    pub receiver: Hit,
}

/// The control bit of an anonymous identity (RFC 7401 section 5.1.2).
pub const ANONYMOUS: u16 = 1;

impl Header {
    /// What kind a packet says that it is, before anything of it has been checked; `None` if it has no such octet.
    #[must_use]
    pub fn kind_of(packet: &[u8]) -> Option<PacketType> {
        packet.get(2).map(|kind| (kind & 0x7f).into())
    }

    /// Reads it, and how many bytes it and its parameters have.
    /// "The following three bits are reserved for future use. They MUST be zero when sent, and they MUST be ignored when handling a received
    /// packet." (RFC 7401 section 5.1) Of the two fixed bits: "[...] they MUST be set as shown when sending and MUST be ignored when
    /// receiving." (RFC 7401 section 5.1)
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, usize)> {
        let mut r = Reader::new("HIP header", bytes);
        let next = r.u8()?;
        let len = (usize::from(r.u8()?) + 1) * 8;
        let (kind, version) = (r.u8()? & 0x7f, r.u8()?);
        let version = match version >> 4 {
            1 => Version::V1,
            2 => Version::V2,
            got => return Err(Error::Value { what: "HIP version", got: got.into(), expect: "1 or 2" }),
        };
        let (_checksum, controls) = (r.u16()?, r.u16()?);
        let sender = Hit(Ipv6Addr::from(r.array::<16>()?));
        let receiver = Hit(Ipv6Addr::from(r.array::<16>()?));
        // "However, current implementations MUST ignore trailing data if an unimplemented Next Header value is received." (RFC 7401 section
        // 5.1)
        let fits = len == bytes.len() || len < bytes.len() && next != NO_NEXT_HEADER;
        if !fits || !(HEADER_LEN..=MAX_PACKET).contains(&len) {
            return Err(Error::Length { what: "HIP packet", got: len, expect: bytes.len() });
        }
        Ok((Self { kind: kind.into(), version, controls, sender, receiver }, len))
    }

    /// Writes it with length and checksum 0.
    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u8(NO_NEXT_HEADER);
        w.u8(0);
        w.u8(self.kind.code() & 0x7f);
        w.u8(if self.version == Version::V1 { 0x11 } else { 0x21 });
        w.u16(0);
        w.u16(self.controls);
        w.bytes(&self.sender.octets());
        w.bytes(&self.receiver.octets());
    }
}

/// Whether the checksum of a packet between two addresses is right (RFC 7401 section 5.1.1).
#[must_use]
pub fn checksum_is_right(packet: &[u8], src: IpAddr, dst: IpAddr) -> bool {
    checksum::pseudo_header(src, dst, protocol::HIP, packet.len()).add_bytes(packet).fold() == 0xffff
}

/// Writes the checksum of a packet that goes between two addresses. In UDP there is none: the field is zero (RFC 5770 section
/// 5.1).
pub fn set_checksum(packet: &mut [u8], between: Option<(IpAddr, IpAddr)>) {
    put(packet, CHECKSUM_AT, &[0, 0]);
    if let Some((src, dst)) = between {
        let sum = checksum::pseudo_header(src, dst, protocol::HIP, packet.len()).add_bytes(packet);
        put(packet, CHECKSUM_AT, &sum.finish().to_be_bytes());
    }
}

/// Overwrites bytes that are there.
pub(super) fn put(packet: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = packet.get_mut(at..at + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}
