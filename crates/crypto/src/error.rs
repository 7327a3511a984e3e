//! What can go wrong in keys and key agreement. Owns the error types of the symmetric half and of Diffie-Hellman; a
//! message names the culprit and both values, and must never carry a secret.

use crate::suites::{Encr, Group, Integ, Prf};

/// A refusal by [`PacketKey`](crate::PacketKey), [`prf_plus`](crate::prf_plus) or [`DhPrivate`](crate::DhPrivate).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A combined-mode cipher was paired with an integrity algorithm, or a plain one was left without.
    #[error("{encr} {}", match integ { Some(i) => format!("authenticates by itself and cannot be combined with {i}"), None => "needs an integrity algorithm beside it".to_owned() })]
    Pairing {
        /// The cipher.
        encr: Encr,
        /// What it was paired with.
        integ: Option<Integ>,
    },
    /// A buffer has the wrong length, in bytes.
    #[error("{what} is {got} bytes long, {expected} expected")]
    Length {
        /// Which buffer.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length it must have.
        expected: usize,
    },
    /// The data is not a whole number of cipher blocks.
    #[error("{got} bytes are not a multiple of the cipher's block of {block} bytes")]
    Unaligned {
        /// Bytes handed in.
        got: usize,
        /// Its block length in bytes.
        block: usize,
    },
    /// More output was asked of prf+ than its one-byte counter allows (RFC 7296, section 2.13).
    #[error("prf+ with {prf} yields at most {limit} bytes, {asked} asked")]
    PrfPlusTooLong {
        /// The pseudo-random function.
        prf: Prf,
        /// Bytes asked.
        asked: usize,
        /// Bytes it can give: 255 outputs.
        limit: usize,
    },
    /// The peer's public value has the wrong length, in bytes.
    #[error("public value of {got} bytes for {group}, {expected} expected")]
    PublicValueLength {
        /// The group.
        group: Group,
        /// Bytes received.
        got: usize,
        /// Bytes that a value of this group has.
        expected: usize,
    },
    /// The peer's public value is not one that an honest peer can have made.
    #[error("public value refused for {group}: {why}")]
    PublicValue {
        /// The group.
        group: Group,
        /// The check that failed.
        why: &'static str,
    },
    /// The entropy source kept giving values that are no private key of the group. A source that does this is broken.
    #[error("no private key for {group} in {tries} draws from the entropy source")]
    Entropy {
        /// The group.
        group: Group,
        /// Draws made.
        tries: u32,
    },
    /// The back end failed where no input can make it fail (out of memory, say).
    #[error("the cryptographic library failed in {operation}")]
    Backend {
        /// What was attempted.
        operation: &'static str,
    },
}

/// The integrity check failed: the packet is forged, damaged, or protected under another key. It deliberately says
/// nothing more, for anything more would help a forger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("integrity check failed")]
pub struct Unauthentic;
