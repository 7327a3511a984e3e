//! IKE fragmentation (RFC 7383): one message in several datagrams, each encrypted and authenticated by itself. Owns the cutting
//! and the putting together; must never hold a fragment that was not authenticated.

use std::collections::BTreeMap;

use dormouse_sansio::{Carrier, Entropy, Instant, Path};
use dormouse_wire::ike::{Fragment, Header, Message, Payload, PayloadType, emit_payloads, parse_payloads};
use zeroize::Zeroizing;

use crate::limits;
use crate::protect::{Channel, OpenError, SealError};

/// The largest IKE message for a datagram of at most `size` bytes, IP header included, on this path.
/// "the sender SHOULD choose their size so that the resulting IP datagrams will be smaller than some fragmentation threshold"
/// (RFC 7383 section 2.5.1)
#[must_use]
pub fn message_limit(size: usize, path: &Path) -> usize {
    let marker = if path.carrier == Carrier::NatT { 4 } else { 0 };
    size.clamp(limits::FRAGMENT_SIZE_MIN, limits::FRAGMENT_SIZE_MAX) - path.outer_overhead() - marker
}

impl Channel {
    /// The message as one SK message if that has at most `limit` bytes, as SKF messages of at most `limit` bytes otherwise.
    ///
    /// A message that is small enough is never cut, even if fragmentation was negotiated (RFC 7383, section 2.5).
    /// "If either peer has information that a part of the transaction is likely to be fragmented at the IP layer, causing
    /// interference with the IKE exchange, that peer SHOULD use IKE fragmentation." (RFC 7383 section 2.4)
    /// "IKE fragmentation SHOULD NOT be used in cases where IP-layer fragmentation of both the request and response messages is
    /// unlikely." (RFC 7383 section 2.4)
    ///
    /// # Errors
    /// If the message exceeds [`limits::MESSAGE_MAX`] or the allowed number of fragments.
    pub fn seal_within(
        &self,
        limit: usize,
        header: &Header,
        payloads: &[Payload],
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<Vec<u8>>, SealError> {
        let mut plain = Zeroizing::new(Vec::new());
        let first = emit_payloads(payloads, &mut plain)?;
        if self.sealed_len(plain.len()) <= limit {
            return Ok(vec![self.seal_bytes(header, first, None, &plain, entropy)?]);
        }
        let capacity = self.fragment_capacity(limit).max(1);
        let need = plain.len().div_ceil(capacity);
        let too_many = SealError::Fragments {
            len: plain.len(),
            need,
            size: limit,
            max: usize::from(limits::FRAGMENTS_MAX),
        };
        let Some(total) = u16::try_from(need).ok().filter(|&total| total <= limits::FRAGMENTS_MAX) else {
            return Err(too_many);
        };
        (1..=total)
            .zip(plain.chunks(capacity))
            .map(|(number, piece)| {
                // Next Payload: the first payload's type in the first fragment, 0 in all others (RFC 7383, section 2.5).
                // "in the very first fragment [...] this field MUST be set to the payload type of the first inner payload" (RFC
                // 7383 section 2.5)
                // "In the rest of the Fragment messages (with Fragment Number greater than 1), this field MUST be set to zero."
                // (RFC 7383 section 2.5)
                let first = if number == 1 { first } else { PayloadType::None };
                self.seal_bytes(header, first, Some(Fragment { number, total }), piece, entropy)
            })
            .collect()
    }
}

impl Channel {
    /// Checks, decrypts in place and parses what `message` says about `datagram`; `None` while fragments of the message are
    /// missing. A message without encrypted payload counts as unauthentic.
    ///
    /// # Errors
    /// As [`Channel::open`], and [`OpenError::Fragment`].
    pub fn receive(
        &self,
        now: Instant,
        message: &Message,
        datagram: &mut [u8],
        partial: &mut Reassembler,
    ) -> Result<Option<Vec<Payload>>, OpenError> {
        let protected = message.protected.as_ref().ok_or(OpenError::Unauthentic)?;
        let Some(fragment) = protected.fragment else {
            return self.open_payloads(datagram, protected).map(Some);
        };
        let id = message.header.message_id;
        partial.forget_stale(now);
        partial.check(id, fragment)?;
        // "If the ICV check fails, the message MUST be silently discarded." (RFC 7383 section 2.6)
        let plain = self.open(datagram, protected)?;
        match partial.add(now, id, fragment, protected.first, plain)? {
            Some(whole) => Ok(Some(parse_payloads(whole.first, &whole.plain)?)),
            None => Ok(None),
        }
    }
}

/// Why a fragment is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// Received before.
    #[error("fragment {number} of message {message_id} was received before")]
    Duplicate {
        /// The message.
        message_id: u32,
        /// The fragment.
        number: u16,
    },
    /// Part of an older, coarser cutting of the message than the one at hand.
    #[error("fragment of {got} in message {message_id}, {have} were announced since")]
    Superseded {
        /// The message.
        message_id: u32,
        /// Its total.
        got: u16,
        /// The total at hand.
        have: u16,
    },
    /// More fragments, bytes or messages than [`limits`] allows.
    #[error("message {message_id} exceeds the limit of {what}")]
    TooLarge {
        /// The message.
        message_id: u32,
        /// Which limit.
        what: &'static str,
    },
    /// A number that is 0 or above its total.
    #[error("fragment {number} of {total} does not exist")]
    Number {
        /// The fragment.
        number: u16,
        /// Its total.
        total: u16,
    },
}

/// A message put together again.
#[derive(PartialEq, Eq, Debug)]
pub struct Reassembled {
    /// Type of its first payload.
    pub first: PayloadType,
    /// The payload chain.
    pub plain: Zeroizing<Vec<u8>>,
}

/// Puts the fragments of one direction of an IKE SA together.
///
/// For each fragment: [`Reassembler::check`], which is cheap and drops most of what is useless; then decrypt and authenticate;
/// then [`Reassembler::add`]. Messages whose exchange is over are to be forgotten with [`Reassembler::forget_before`].
#[derive(Default, Debug)]
pub struct Reassembler {
    partial: BTreeMap<u32, Partial>,
}

struct Partial {
    /// When its first piece came.
    since: Instant,
    total: u16,
    first: PayloadType,
    pieces: BTreeMap<u16, Zeroizing<Vec<u8>>>,
    bytes: usize,
}

impl core::fmt::Debug for Partial {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} of {} fragments, {} bytes", self.pieces.len(), self.total, self.bytes)
    }
}

/// Messages of one direction that may be in pieces at once: one for each place in the largest window.
/// "it is RECOMMENDED that the receiver limit the number of fragments it stores in the reassembling queue" (RFC 7383 section 5)
const PARTIAL_MAX: usize = 8;

impl Reassembler {
    /// Nothing received yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a fragment, not yet authenticated, may be of use (RFC 7383, section 2.6).
    /// "If any of these tests fail, the message MUST be silently discarded." (RFC 7383 section 2.6)
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn check(&self, message_id: u32, fragment: Fragment) -> Result<(), FragmentError> {
        let Fragment { number, total } = fragment;
        if number == 0 || number > total {
            return Err(FragmentError::Number { number, total });
        }
        if total > limits::FRAGMENTS_MAX {
            return Err(FragmentError::TooLarge { message_id, what: "fragments" });
        }
        // "[...] the values of the Fragment Number and Total Fragments fields MUST be used along with the Message ID to detect
        // retransmissions and replays." (RFC 7383 section 2.6.1)
        match self.partial.get(&message_id) {
            Some(have) if total < have.total => {
                Err(FragmentError::Superseded { message_id, got: total, have: have.total })
            }
            // "this message is considered a replay and MUST be silently discarded" (RFC 7383 section 2.6)
            Some(have) if total == have.total && have.pieces.contains_key(&number) => {
                Err(FragmentError::Duplicate { message_id, number })
            }
            None if self.partial.len() >= PARTIAL_MAX => {
                Err(FragmentError::TooLarge { message_id, what: "messages in pieces" })
            }
            _ => Ok(()),
        }
    }

    /// Takes an authenticated fragment. Returns the message when it was the last one missing.
    ///
    /// A fragment with a larger total starts the message afresh: the sender found the path narrower and cut again (RFC 7383,
    /// section 2.5.2).
    ///
    /// # Errors
    /// Why it is dropped; a message that grows too large is dropped whole.
    pub fn add(
        &mut self,
        now: Instant,
        message_id: u32,
        fragment: Fragment,
        first: PayloadType,
        plain: &[u8],
    ) -> Result<Option<Reassembled>, FragmentError> {
        self.check(message_id, fragment)?;
        let fresh = || Partial {
            since: now,
            total: fragment.total,
            first: PayloadType::None,
            pieces: BTreeMap::new(),
            bytes: 0,
        };
        let partial = self.partial.entry(message_id).or_insert_with(fresh);
        // "the receiver MUST discard all received fragments and start the reassembly process over with just the received IKE
        // Fragment message" (RFC 7383 section 2.6)
        if fragment.total > partial.total {
            *partial = fresh();
        }
        partial.bytes += plain.len();
        // "the receiver SHOULD drop the connection and discard all the received fragments" (RFC 7383 section 5)
        if partial.bytes > limits::MESSAGE_MAX {
            self.partial.remove(&message_id);
            return Err(FragmentError::TooLarge { message_id, what: "bytes" });
        }
        if fragment.number == 1 {
            partial.first = first;
        }
        partial.pieces.insert(fragment.number, Zeroizing::new(plain.to_vec()));
        if partial.pieces.len() < usize::from(partial.total) {
            return Ok(None);
        }
        Ok(self.partial.remove(&message_id).map(Partial::join))
    }

    /// Forgets what has waited for its missing pieces longer than [`limits::REASSEMBLY_TIME`]. Done when the next fragment comes:
    /// what waits is bounded, and is no reason to wake anything.
    ///
    /// "If the receiver does not get all IKE fragments needed to reassemble the original message within a timeout interval, it
    /// MUST discard all IKE Fragment messages received so far" (RFC 7383 section 2.6)
    pub fn forget_stale(&mut self, now: Instant) {
        self.partial.retain(|_, partial| now.saturating_since(partial.since) <= limits::REASSEMBLY_TIME);
    }

    /// Forgets every message with a lower id.
    pub fn forget_before(&mut self, message_id: u32) {
        self.partial = self.partial.split_off(&message_id);
    }

    /// Forgets one message.
    pub fn forget(&mut self, message_id: u32) {
        self.partial.remove(&message_id);
    }
}

impl Partial {
    fn join(self) -> Reassembled {
        let mut plain = Zeroizing::new(Vec::with_capacity(self.bytes));
        for piece in self.pieces.values() {
            plain.extend_from_slice(piece);
        }
        Reassembled { first: self.first, plain }
    }
}

#[cfg(test)]
mod tests;
