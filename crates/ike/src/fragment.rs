//! IKE fragmentation (RFC 7383): one message in several datagrams, each encrypted and authenticated by itself. Owns the cutting
//! and the putting together; must never hold a fragment that was not authenticated.

use std::collections::BTreeMap;

use dormouse_sansio::{Carrier, Entropy, Instant, Path};
use dormouse_wire::ike::{
    Fragment, HEADER_LEN, Header, Message, Payload, PayloadType, Sealing, emit_payloads, parse_payloads,
};
use zeroize::Zeroizing;

use crate::limits;
use crate::protect::{Channel, FRAGMENT_FIELDS, FragmentError, OpenError, SealError};

/// Where the IKE header names the first payload.
const NEXT_PAYLOAD_AT: usize = 16;

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

/// What stands before the encrypted payload's body in a fragment, as it would in the whole message.
/// "[...] it MUST be reconstructed before calculating the prf as if it were received unfragmented" (RFC 9242 section 3.3.2)
/// "[...] the RESERVED field in the reconstructed Encrypted payload header MUST be set to the value of the RESERVED field in the
/// Encrypted Fragment payload header from the first fragment" (RFC 9242 section 3.3.2): that header is kept.
fn whole_head(mut head: Vec<u8>) -> Vec<u8> {
    let len = head.len().saturating_sub(FRAGMENT_FIELDS);
    head.truncate(len);
    // The field that names the encrypted payload: the header's, or that of the last payload before it.
    let (mut named_at, mut at) = (NEXT_PAYLOAD_AT, HEADER_LEN);
    while at + 4 < len
        && let Some(&[_, _, high, low]) = head.get(at..).and_then(<[u8]>::first_chunk::<4>)
    {
        named_at = at;
        at += usize::from(u16::from_be_bytes([high, low])).max(4);
    }
    if let Some(named) = head.get_mut(named_at) {
        *named = PayloadType::Sk.code();
    }
    head
}

impl Channel {
    /// Checks and decrypts in place what `message` says about `datagram`; `None` while fragments of the message are
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
    ) -> Result<Option<Reassembled>, OpenError> {
        let protected = message.protected.as_ref().ok_or(OpenError::Unauthentic)?;
        let head = datagram.get(..protected.body.start).unwrap_or_default().to_vec();
        let Some(fragment) = protected.fragment else {
            let plain = Zeroizing::new(self.open(datagram, protected)?.to_vec());
            return Ok(Some(Reassembled { head, first: protected.first, plain }));
        };
        let id = message.header.message_id;
        partial.forget_stale(now);
        partial.check(id, fragment)?;
        // "If the ICV check fails, the message MUST be silently discarded." (RFC 7383 section 2.6)
        let plain = self.open(datagram, protected)?;
        Ok(partial.add(now, id, fragment, protected.first, whole_head(head), plain)?)
    }
}

/// A protected message as its sender wrote it, whole.
#[derive(PartialEq, Eq, Debug)]
pub struct Reassembled {
    /// From the IKE header to the encrypted payload's own header, as received.
    head: Vec<u8>,
    /// Type of its first payload.
    pub first: PayloadType,
    /// The payload chain.
    pub plain: Zeroizing<Vec<u8>>,
}

impl Reassembled {
    /// The payloads inside.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn payloads(&self) -> Result<Vec<Payload>, OpenError> {
        Ok(parse_payloads(self.first, &self.plain)?)
    }

    /// What IntAuth covers of the message, IntAuth_A | IntAuth_P: everything up to the encrypted payload's body, with lengths that count
    /// no IV, padding and ICV, and the payloads inside (RFC 9242, section 3.3.2).
    #[must_use]
    pub fn authenticated(&self) -> Vec<u8> {
        let mut octets = [self.head.as_slice(), &self.plain].concat();
        let whole = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        let payload = u16::try_from(4 + self.plain.len()).unwrap_or(u16::MAX);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(field) = octets.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        put(HEADER_LEN - 4, &whole.to_be_bytes());
        put(self.head.len().saturating_sub(2), &payload.to_be_bytes());
        octets
    }
}

/// As [`Reassembled::authenticated`], of a message that we send.
///
/// # Errors
/// If the message exceeds 64 KiB.
pub fn authenticated(header: &Header, payloads: &[Payload]) -> Result<Vec<u8>, SealError> {
    let mut plain = Zeroizing::new(Vec::new());
    let first = emit_payloads(payloads, &mut plain)?;
    let mut octets = Vec::new();
    let body = Sealing { header, cleartext: &[], first, fragment: None }.emit(plain.len(), &mut octets)?;
    if let Some(place) = octets.get_mut(body) {
        place.copy_from_slice(&plain);
    }
    Ok(octets)
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
    head: Vec<u8>,
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
        head: Vec<u8>,
        plain: &[u8],
    ) -> Result<Option<Reassembled>, FragmentError> {
        self.check(message_id, fragment)?;
        let fresh = || Partial {
            since: now,
            total: fragment.total,
            head: Vec::new(),
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
        partial.bytes += plain.len() + if fragment.number == 1 { head.len() } else { 0 };
        // "the receiver SHOULD drop the connection and discard all the received fragments" (RFC 7383 section 5)
        if partial.bytes > limits::MESSAGE_MAX {
            self.partial.remove(&message_id);
            return Err(FragmentError::TooLarge { message_id, what: "bytes" });
        }
        if fragment.number == 1 {
            (partial.first, partial.head) = (first, head);
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

    /// Bytes that wait.
    #[must_use]
    pub fn held(&self) -> usize {
        self.partial.values().map(|partial| partial.bytes).sum()
    }
}

impl Partial {
    fn join(self) -> Reassembled {
        let mut plain = Zeroizing::new(Vec::with_capacity(self.bytes));
        for piece in self.pieces.values() {
            plain.extend_from_slice(piece);
        }
        Reassembled { head: self.head, first: self.first, plain }
    }
}

#[cfg(test)]
mod tests;
