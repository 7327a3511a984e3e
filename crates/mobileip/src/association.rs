//! Mobility security associations: keys by which two parts know each other's registration messages. Owns computing and checking
//! authenticators; must never compare one in variable time.

use core::time::Duration;

use dormouse_crypto::Secret;
use dormouse_crypto::mobileip::Authenticator;
use dormouse_wire::mobileip::{Packet, authenticator};

use crate::Discard;

/// What two parts share.
#[derive(Clone, Debug)]
pub struct Association {
    /// Its name on the wire; 0 to 255 are reserved (RFC 5944 section 1.6).
    pub spi: u32,
    /// The key: "Keys with arbitrary binary values MUST be supported." (RFC 5944 section 5.1)
    pub key: Secret,
    /// The algorithm: "an implementation MUST be able to associate any SPI value with any authentication algorithm and mode that it
    /// implements." (RFC 5944 section 3.5.1)
    pub authenticator: Authenticator,
}

/// How a home agent knows that a request is new.
/// "All mobile nodes and home agents MUST implement timestamp-based replay protection." (RFC 5944 section 5.7)
/// "A mobile node and its home agent MUST agree on which method of replay protection will be used." (RFC 5944 section 5.7)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replay {
    /// By the time of day, which may differ by so much.
    Timestamps(Duration),
    /// By a number that the home agent gives out with each reply.
    Nonces,
}

impl Default for Replay {
    /// "a default value of 7 seconds MAY be used to limit the time difference." (RFC 5944 section 5.7.1)
    fn default() -> Self {
        Self::Timestamps(Duration::from_secs(7))
    }
}

impl Association {
    /// Appends an authentication extension of this type to a message.
    pub(crate) fn sign(&self, kind: u8, message: &mut Vec<u8>) {
        let length = self.authenticator.len();
        let compute = |covered: &[u8]| self.authenticator.compute(&self.key, covered);
        // The longest authenticator is 32 bytes, far from what an extension takes.
        let _ = authenticator(kind, self.spi, length, message, compute);
    }

    /// Checks that there is exactly one authentication extension of this type, and that it is right.
    pub(crate) fn verify(&self, kind: u8, packet: &Packet<'_>) -> Result<(), Discard> {
        let extension = packet.only(kind).ok_or(Discard::Unauthentic("no extension, or more than one"))?;
        let (spi, authenticator) =
            extension.authentication().ok_or(Discard::Unauthentic("an extension without SPI"))?;
        if spi != self.spi {
            return Err(Discard::Unauthentic("another SPI"));
        }
        let covered = packet.bytes.get(..extension.covered()).unwrap_or_default();
        let right = self.authenticator.verify(&self.key, covered, authenticator);
        if right { Ok(()) } else { Err(Discard::Unauthentic("wrong authenticator")) }
    }
}
