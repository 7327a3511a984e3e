//! Why a packet that arrived was dropped. Owns the reasons, of packets in one key and in zones.

use thiserror::Error;

use crate::lifetime::Limits;
use crate::replay::Replay;

/// Why a packet was dropped. Only [`Discard::Padding`] and what follows it come from the holder of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Discard {
    /// Too short for ESP, or not of whole blocks.
    #[error("{len} bytes: too short or not of whole blocks (at least {need}, in steps of {step})")]
    Length {
        /// Bytes that arrived.
        len: usize,
        /// Bytes of the shortest packet of this SA.
        need: usize,
        /// What the ciphertext is a multiple of, in bytes.
        step: usize,
    },
    /// No SA has this SPI.
    #[error("no SA has SPI {spi:#010x}")]
    UnknownSpi {
        /// The packet's SPI.
        spi: u32,
    },
    /// Another engine has the SA, and receives it ([`crate::loan`]).
    #[error("the SA of SPI {spi:#010x} is lent")]
    Lent {
        /// The packet's SPI.
        spi: u32,
    },
    /// The replay window refused it.
    #[error(transparent)]
    Replay(#[from] Replay),
    /// The low half of its sequence number belongs before the SA's first packet or after its last.
    #[error("sequence number ...{low:08x} lies outside the SA's life")]
    OutOfSpace {
        /// The half that was sent.
        low: u32,
    },
    /// The integrity check failed.
    #[error("SPI {spi:#010x}, sequence number {seq}: the integrity check failed")]
    Unauthentic {
        /// The packet's SPI.
        spi: u32,
        /// Its reconstructed sequence number.
        seq: u64,
    },
    /// The ends of its zones do not lie in it, or not in order.
    #[error("the ends of its {zones} zones do not divide its {len} bytes")]
    Zones {
        /// How many zones the SA has.
        zones: usize,
        /// Bytes that they have together.
        len: usize,
    },
    /// The hard lifetime is reached.
    #[error("the SA's lifetime of {} packets or {} bytes is used up", limits.hard.packets, limits.hard.bytes)]
    Expired {
        /// The lifetime.
        limits: Limits,
    },
    /// Authentic, but the padding is not 1, 2, 3... or longer than the packet.
    #[error("authentic, but its padding of {pad_len} bytes is not what RFC 4303 section 2.4 prescribes")]
    Padding {
        /// The length that it claims.
        pad_len: u8,
    },
    /// Authentic, but not an IP packet in a tunnel.
    #[error("authentic, but next header {next_header} does not belong in a tunnel")]
    NextHeader {
        /// What it claims to carry.
        next_header: u8,
    },
    /// Authentic, but the inner IP header contradicts the packet.
    #[error("authentic, but its inner packet of {len} bytes has no valid IP header")]
    Inner {
        /// Bytes decrypted.
        len: usize,
    },
    /// Authentic, but not what this SA may carry (RFC 4301 section 5.2).
    #[error("authentic, but its inner packet does not match the SA's traffic selectors")]
    Selectors,
    /// Authentic, but congestion was signalled (CE) about an inner packet that is not ECN-capable (RFC 6040 section 4.2).
    #[error("authentic, but CE-marked, and the inner packet is not ECN-capable")]
    Congestion,
}

impl Discard {
    /// The word for it. The words are stable, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Length { .. } => "length",
            Self::UnknownSpi { .. } => "unknown_spi",
            Self::Lent { .. } => "lent",
            Self::Replay(_) => "replay",
            Self::OutOfSpace { .. } => "out_of_space",
            Self::Unauthentic { .. } => "not_authentic",
            Self::Zones { .. } => "zones",
            Self::Expired { .. } => "expired",
            Self::Padding { .. } => "padding",
            Self::NextHeader { .. } => "next_header",
            Self::Inner { .. } => "inner",
            Self::Selectors => "selectors",
            Self::Congestion => "congestion",
        }
    }
}
