//! What arrives on the NAT-traversal port, and the header that begins every ESP packet (RFC 3948, RFC 4303 section 2).
//!
//! Owns classification and the fixed header. Must never look behind the sequence number: what follows depends on the SA.

use crate::Result;
use crate::codec::Reader;

/// The four zero bytes before an IKE message on the NAT-traversal port, where ESP has its SPI (RFC 3948 section 2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The datagram that keeps a NAT's mapping alive (RFC 3948 section 2.3). Never answered, never delivered.
pub const KEEPALIVE: [u8; 1] = [0xff];
/// Bytes of the fixed ESP header.
pub const HEADER_LEN: usize = 8;

/// What a datagram on the NAT-traversal port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatT<'a> {
    /// A NAT keepalive.
    Keepalive,
    /// An IKE message, the marker taken off.
    Ike(&'a [u8]),
    /// An ESP packet, from its SPI on.
    Esp(&'a [u8]),
    /// Neither: too short for what it begins with.
    Malformed,
}

/// Tells IKE, ESP and keepalives apart on the NAT-traversal port (RFC 3948 section 2).
/// "Implementations MUST process received UDP-encapsulated ESP packets even when no NAT was detected." (RFC 7296 section 2.23)
/// "The receiver SHOULD ignore a received NAT-keepalive packet." (RFC 3948 section 2.3)
/// "Reception of NAT-keepalive packets MUST NOT be used to detect whether a connection is live." (RFC 3948 section 4)
#[must_use]
pub fn classify_natt(datagram: &[u8]) -> NatT<'_> {
    match datagram {
        [0xff] => NatT::Keepalive,
        [0, 0, 0, 0, ike @ ..] if !ike.is_empty() => NatT::Ike(ike),
        [0, 0, 0, 0] => NatT::Malformed,
        esp if esp.len() >= HEADER_LEN => NatT::Esp(esp),
        _ => NatT::Malformed,
    }
}

/// The fixed part of the ESP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Security parameters index; 0 is never on the wire, 1 to 255 are reserved (RFC 4303 section 2.1).
    pub spi: u32,
    /// Sequence number, or the low half of an extended one.
    pub sequence: u32,
}

impl Header {
    /// Reads the header of an ESP packet; what follows it is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 8 bytes.
    pub fn parse(packet: &[u8]) -> Result<Self> {
        let mut r = Reader::new("ESP header", packet);
        Ok(Self { spi: r.u32()?, sequence: r.u32()? })
    }

    /// The header's bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        ((self.spi as u64) << 32 | self.sequence as u64).to_be_bytes()
    }
}
