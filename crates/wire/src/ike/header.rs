//! The 28 bytes that begin every IKE message (RFC 7296 section 3.1).
//!
//! Owns the header's format. Must never judge it: a wrong major version is reported by [`super::Message::parse`], so that
//! the caller can still answer INVALID_MAJOR_VERSION from the header.

use super::PayloadType;
use crate::Result;
use crate::codec::{Reader, Writer, code_points};

/// Bytes of the header.
pub const HEADER_LEN: usize = 28;
/// The version byte that this project sends: 2.0.
pub const VERSION: u8 = 0x20;

code_points! {
    /// What an exchange does (RFC 7296 section 3.1 and the IANA registry of exchange types).
    pub enum ExchangeType: u8 {
        IkeSaInit = 34, "IKE_SA_INIT";
        IkeAuth = 35, "IKE_AUTH";
        CreateChildSa = 36, "CREATE_CHILD_SA";
        Informational = 37, "INFORMATIONAL";
        /// RFC 5723.
        IkeSessionResume = 38, "IKE_SESSION_RESUME";
        /// RFC 9838.
        GsaAuth = 39, "GSA_AUTH";
        /// RFC 9838.
        GsaRegistration = 40, "GSA_REGISTRATION";
        /// RFC 9838.
        GsaRekey = 41, "GSA_REKEY";
        /// RFC 9242.
        IkeIntermediate = 43, "IKE_INTERMEDIATE";
        /// RFC 9370.
        IkeFollowupKe = 44, "IKE_FOLLOWUP_KE";
    }
}

/// The flags byte. Reserved bits are ignored when read and zero when written (RFC 7296 section 3.1).
/// "'X' bits MUST be cleared when sending and MUST be ignored on receipt" (RFC 7296 section 3.1)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Flags {
    /// Sent by the original initiator of the IKE SA, also in exchanges that the responder began.
    pub initiator: bool,
    /// The sender could speak a higher major version.
    /// "Implementations of IKEv2 MUST clear this bit when sending and MUST ignore it in incoming messages" (RFC 7296 section
    /// 3.1)
    pub version: bool,
    /// This is a response.
    pub response: bool,
}

impl Flags {
    const INITIATOR: u8 = 0x08;
    const VERSION: u8 = 0x10;
    const RESPONSE: u8 = 0x20;

    /// From the byte on the wire.
    #[must_use]
    pub const fn from_byte(b: u8) -> Self {
        Self {
            initiator: b & Self::INITIATOR != 0,
            version: b & Self::VERSION != 0,
            response: b & Self::RESPONSE != 0,
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        (self.initiator as u8 * Self::INITIATOR)
            | (self.version as u8 * Self::VERSION)
            | (self.response as u8 * Self::RESPONSE)
    }
}

/// The IKE header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The original initiator's SPI; never 0 in a valid message.
    pub spi_i: u64,
    /// The responder's SPI; 0 in a first IKE_SA_INIT or IKE_SESSION_RESUME request.
    pub spi_r: u64,
    /// Type of the first payload.
    pub next_payload: PayloadType,
    /// Major version in the high nibble, minor in the low one: [`VERSION`].
    pub version: u8,
    /// What the exchange does.
    pub exchange: ExchangeType,
    /// Direction flags.
    pub flags: Flags,
    /// Counts the requests of one side.
    pub message_id: u32,
    /// Bytes of the whole message, this header included. Emission computes it.
    pub length: u32,
}

impl Header {
    /// A header for a message to be sent: version 2.0, first payload and length left to emission.
    #[must_use]
    pub const fn new(spi_i: u64, spi_r: u64, exchange: ExchangeType, flags: Flags, message_id: u32) -> Self {
        Self {
            spi_i,
            spi_r,
            next_payload: PayloadType::None,
            version: VERSION,
            exchange,
            flags,
            message_id,
            length: 0,
        }
    }

    /// Reads the header at the start of `datagram`; what follows it is not looked at.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`] below 28 bytes.
    pub fn parse(datagram: &[u8]) -> Result<Self> {
        let mut r = Reader::new("IKE header", datagram);
        Ok(Self {
            spi_i: r.u64()?,
            spi_r: r.u64()?,
            next_payload: PayloadType::from(r.u8()?),
            version: r.u8()?,
            exchange: ExchangeType::from(r.u8()?),
            flags: Flags::from_byte(r.u8()?),
            message_id: r.u32()?,
            length: r.u32()?,
        })
    }

    /// Appends the header to `out` exactly as it stands, `length` included.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        self.write_but_length(&mut w);
        w.u32(self.length);
    }

    pub(super) fn write_but_length(&self, w: &mut Writer<'_>) {
        w.u64(self.spi_i);
        w.u64(self.spi_r);
        w.u8(self.next_payload.code());
        w.u8(self.version);
        w.u8(self.exchange.code());
        w.u8(self.flags.to_byte());
        w.u32(self.message_id);
    }

    /// The major version.
    /// "The minor version number indicates new capabilities, and MUST be ignored by a node with a smaller minor version number"
    /// (RFC 7296 section 2.5)
    /// "They MUST ignore the minor version number of received messages." (RFC 7296 section 3.1)
    #[must_use]
    pub const fn major(&self) -> u8 {
        self.version >> 4
    }
}
