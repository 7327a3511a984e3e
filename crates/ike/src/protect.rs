//! The encrypted payload (RFC 7296, section 3.14; RFC 5282 for AEAD). Owns padding, IVs and what is authenticated; must never
//! look at what a payload means.
//!
//! The body of SK and SKF is `IV | ciphertext of (payloads | padding | pad length) | ICV`. An AEAD authenticates everything before
//! the body as associated data; encrypt-then-MAC runs over the whole message up to the ICV. [`PacketKey`] makes the two look alike.
//! "The associated data (A) MUST consist of the partial contents of the IKEv2 message, starting from the first octet of the Fixed IKE Header
//! through the last octet of the Payload Header of the Encrypted Payload" (RFC 5282 section 5.1)
//! "The Initialization Vector and Ciphertext fields shown in Figure 1 (above) MUST NOT be included in the associated data." (RFC 5282 section 5.1)

use core::sync::atomic::{AtomicU64, Ordering};

use dormouse_crypto::{RestingKey, Secret, Unauthentic};
use dormouse_sansio::Entropy;
use dormouse_wire::ike::{Fragment, Header, Payload, PayloadType, Protected, Sealing, emit_payloads};
use zeroize::Zeroizing;

/// Length in bytes of Fragment Number and Total Fragments (RFC 7383 section 2.5).
pub(crate) const FRAGMENT_FIELDS: usize = 4;

/// The IVs of one owner of a key, in bits: see [`Channel::taken_over`].
const OWNER_BITS: u32 = 48;

/// Why nothing could be sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The message cannot be written, for it is too long.
    #[error("message cannot be written: {0}")]
    Emit(#[from] dormouse_wire::Error),
    /// The cipher refused, which no negotiated suite causes.
    #[error("message cannot be encrypted: {0}")]
    Cipher(#[from] dormouse_crypto::Error),
    /// More fragments than a peer takes.
    #[error("message of {len} bytes needs {need} fragments of {size} bytes, {max} are allowed")]
    Fragments {
        /// Length of the plaintext.
        len: usize,
        /// Fragments needed.
        need: usize,
        /// Size aimed at, in bytes of IKE message.
        size: usize,
        /// Fragments allowed.
        max: usize,
    },
}

/// Why a received message is not usable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Forged, damaged, or under another key: drop it silently.
    #[error("integrity check failed")]
    Unauthentic,
    /// The peer itself sent nonsense: answer INVALID_SYNTAX (RFC 7296, section 2.21.3).
    #[error("authenticated but malformed: {0}")]
    Malformed(#[from] dormouse_wire::Error),
    /// A fragment that does not fit: drop it silently.
    #[error("{0}")]
    Fragment(#[from] FragmentError),
    /// The pad length exceeds the message; as `Malformed`.
    #[error("authenticated but padded with {pad} of {len} bytes")]
    Padding {
        /// The pad length.
        pad: usize,
        /// Bytes there are.
        len: usize,
    },
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
    /// More fragments, bytes or messages than [`limits`](crate::limits) allows.
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

impl From<Unauthentic> for OpenError {
    fn from(_: Unauthentic) -> Self {
        Self::Unauthentic
    }
}

/// One direction of an IKE SA: protects what one side sends, opens what the other receives.
#[derive(Debug)]
pub struct Channel {
    /// Woken for each message: sessions are many, and messages few.
    key: RestingKey,
    /// Messages sealed so far. Atomic only so that keys can be shared by reference; there is one sender.
    sealed: AtomicU64,
}

impl Channel {
    /// The channel of a key that was never used. There must be only one that seals under a key: it counts the IVs.
    #[must_use]
    pub const fn new(key: RestingKey) -> Self {
        Self { key, sealed: AtomicU64::new(0) }
    }

    /// The channel of a key that `owners` other machines have had before this one, none of which seals under it any more: one takes an SA over.
    ///
    /// "The initial vector for such modes MUST NOT be repeated" (RFC 6311 section 3.4). The count of messages, which makes the IVs, is not known
    /// here. So the upper 16 bits of an IV are the number of owners before: each has 2^48 IVs of its own, of which none uses more than
    /// there are message ids. The first one counts from zero; each later one starts at a random place in the lower half of its own, in case
    /// that the number of owners was lost with what a database has forgotten.
    pub(crate) fn taken_over(key: RestingKey, owners: u16, entropy: &mut dyn Entropy) -> Self {
        let start = u64::from(owners) << OWNER_BITS | entropy.next_u64() >> (64 - OWNER_BITS + 1);
        Self { key, sealed: AtomicU64::new(start) }
    }

    /// The key, for who takes the SA over.
    pub(crate) const fn keymat(&self) -> &Secret {
        self.key.keymat()
    }

    /// The whole message, as one SK payload. `entropy` is drawn from for CBC only.
    ///
    /// # Errors
    /// If the message exceeds 64 KiB.
    pub fn seal(
        &self,
        header: &Header,
        payloads: &[Payload],
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, SealError> {
        let mut plain = Zeroizing::new(Vec::new());
        let first = emit_payloads(payloads, &mut plain)?;
        self.seal_bytes(header, first, None, &plain, entropy)
    }

    /// One SK or, with `fragment`, SKF message around `plain`.
    /// "When prepending the IKE header to the IKE Fragment messages, it MUST be taken intact from the original message, except
    /// for the Length and Next Payload fields." (RFC 7383 section 2.5)
    pub(crate) fn seal_bytes(
        &self,
        header: &Header,
        first: PayloadType,
        fragment: Option<Fragment>,
        plain: &[u8],
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, SealError> {
        let (iv_len, icv_len) = (self.key.iv_len(), self.key.icv_len());
        let padded = padded_len(self.key.block_len(), plain.len());
        // The last answer is kept: exactly as long as it is.
        let marker = fragment.map_or(0, |_| FRAGMENT_FIELDS);
        let mut message = Vec::with_capacity(self.sealed_len(plain.len()) + marker);
        let body = Sealing { header, cleartext: &[], first, fragment }
            .emit(iv_len + padded + icv_len, &mut message)?;
        let (aad, rest) = message.split_at_mut(body.start);
        let (iv, rest) = rest.split_at_mut(iv_len);
        let (data, icv) = rest.split_at_mut(padded);
        self.next_iv(iv, entropy);
        let (text, pad) = data.split_at_mut(plain.len());
        text.copy_from_slice(plain);
        if let Some(last) = pad.last_mut() {
            // At most one block: always below 256. The other padding bytes stay zero; a receiver accepts any.
            *last = u8::try_from(padded - plain.len() - 1).unwrap_or(0);
        }
        self.key.wake()?.seal(aad, iv, data, &[], icv)?;
        Ok(message)
    }

    /// How many bytes of payloads fit in a fragment message of at most `size` bytes, marker and UDP header not counted.
    pub(crate) fn fragment_capacity(&self, size: usize) -> usize {
        const HEADERS: usize = 28 + 4 + FRAGMENT_FIELDS;
        let room = size.saturating_sub(HEADERS + self.key.iv_len() + self.key.icv_len());
        let block = self.key.block_len().max(1);
        (room / block * block).saturating_sub(1)
    }

    /// Length of the SK message around `plain_len` bytes of payloads.
    pub(crate) fn sealed_len(&self, plain_len: usize) -> usize {
        28 + 4 + self.key.iv_len() + padded_len(self.key.block_len(), plain_len) + self.key.icv_len()
    }

    /// A counter where the IV must not repeat (RFC 5930), chance where it must not be predictable.
    /// "The IV MUST be chosen by the encryptor in a manner that ensures that the same IV value is used only once for a given key." (RFC 5282
    /// section 3.1)
    fn next_iv(&self, iv: &mut [u8], entropy: &mut dyn Entropy) {
        let sealed = self.sealed.fetch_add(1, Ordering::Relaxed);
        if self.key.block_len() > 1 {
            entropy.fill(iv);
        } else {
            iv.copy_from_slice(&sealed.to_be_bytes());
        }
    }

    /// Checks and decrypts in place; "the recipient MUST accept any amount of Padding up to 255 octets" (RFC 5282 section 3). `message` is the whole message, `protected` what parsing it said; returns the payloads as
    /// bytes. For a fragment they are a piece of the chain.
    ///
    /// # Errors
    /// [`OpenError::Unauthentic`] first of all; the others only for what an authentic peer sent.
    pub fn open<'a>(&self, message: &'a mut [u8], protected: &Protected) -> Result<&'a [u8], OpenError> {
        let (iv_len, icv_len) = (self.key.iv_len(), self.key.icv_len());
        let message = message.get_mut(..protected.body.end).ok_or(OpenError::Unauthentic)?;
        let (aad, body) = message.split_at_mut_checked(protected.body.start).ok_or(OpenError::Unauthentic)?;
        let (iv, rest) = body.split_at_mut_checked(iv_len).ok_or(OpenError::Unauthentic)?;
        let data_len = rest.len().checked_sub(icv_len).ok_or(OpenError::Unauthentic)?;
        let (data, icv) = rest.split_at_mut(data_len);
        self.key.wake().map_err(|_| OpenError::Unauthentic)?.open(aad, iv, data, &[], icv)?;
        let (&pad, padded) = data.split_last().ok_or(OpenError::Padding { pad: 0, len: 0 })?;
        let (pad, len) = (usize::from(pad), padded.len());
        len.checked_sub(pad).and_then(|plain| padded.get(..plain)).ok_or(OpenError::Padding { pad, len })
    }
}

/// Length of payloads, padding and pad length: the next multiple of the block.
const fn padded_len(block: usize, plain: usize) -> usize {
    (plain + 1).next_multiple_of(if block == 0 { 1 } else { block })
}

#[cfg(test)]
mod tests;
