//! The sending half of an ESP SA (RFC 4303 section 3.3). Owns the key, the sequence numbers and the counters of one
//! direction; must never send a sequence number twice, allocate per packet, or look at a route.
//!
//! ```text
//! slot:  | SPI 4 | sequence 4 | IV | inner packet | TFC padding | padding, length, next header | ICV |
//!        '------- head_len() -----'               '------------------- tail -------------------------'
//! ```

use core::fmt;

use dormouse_crypto::{Error as CryptoError, PacketKey};
use dormouse_keying::Mode;
use dormouse_sansio::Entropy;
use thiserror::Error;

use crate::ESP_HEADER_LEN;
use crate::iv::IvSource;
use crate::key::SaKey;
use crate::layout::{Aad, Shape};
use crate::lifetime::{Carried, Counters, Life, Limits, Total};
use crate::params::SaParams;
use crate::sequence::{Counter, SequenceExhausted};
use crate::zones::{self, Composite};

/// Why nothing was sealed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SealError {
    /// The slot cannot hold the sealed packet.
    #[error("a packet of {inner_len} bytes needs a slot of {need}, this one has {have}")]
    SlotTooSmall {
        /// Length of the inner packet in bytes.
        inner_len: usize,
        /// Bytes that the sealed packet takes.
        need: usize,
        /// Bytes in the slot.
        have: usize,
    },
    /// In a batch, every packet but the last must fill its slot exactly; otherwise the datagrams would not be contiguous.
    #[error("packet {index} of the batch takes {sealed} bytes, its slot {stride}")]
    Uneven {
        /// Which packet.
        index: usize,
        /// Its sealed length in bytes.
        sealed: usize,
        /// The distance between slots in bytes.
        stride: usize,
    },
    /// Every sequence number was sent.
    #[error(transparent)]
    Exhausted(#[from] SequenceExhausted),
    /// The hard lifetime is reached.
    #[error("the SA's lifetime of {} packets or {} bytes is used up", limits.hard.packets, limits.hard.bytes)]
    Expired {
        /// The lifetime.
        limits: Limits,
    },
    /// The cipher refused.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// How long one packet is at each stage.
#[derive(Clone, Copy, Default)]
struct Lengths {
    inner: usize,
    /// With traffic-flow padding.
    padded: usize,
    /// With ESP's padding and trailer: what is encrypted.
    body: usize,
}

/// The sending half of an SA.
///
/// ```text
/// let n = inner.len();                                  // write the inner packet at slot[out.head_len()..][..n]
/// let sealed = out.seal(&mut slot, n, IPPROTO_IPIP)?;   // slot[..sealed] is the datagram
/// ```
pub struct Outbound {
    key: SaKey,
    /// In a composite SA, what the zones behind the first have.
    zones: Option<Box<Composite>>,
    shape: Shape,
    iv: IvSource,
    spi: u32,
    counter: Counter,
    esn: bool,
    /// Inner packets are padded to multiples of this, in bytes; 0: not at all.
    pad_to: usize,
    /// Traffic-flow padding stops here, in bytes of inner packet.
    inner_mtu: usize,
    limits: Limits,
    carried: Carried,
}

impl Outbound {
    /// The sender of `params`. `entropy` seeds the IVs of CBC and is not drawn from otherwise.
    ///
    /// # Errors
    /// If the cipher and integrity algorithm do not go together or the keying material has the wrong length.
    pub fn new(params: &SaParams, entropy: &mut dyn Entropy) -> Result<Self, CryptoError> {
        let mut key = SaKey::new(params)?;
        let made = key.awake()?;
        let (shape, iv) = (Shape::of(made), IvSource::new(made, entropy));
        let mut this = Self::of_shape(params, shape, iv, key);
        this.rest();
        if let Some(zones) = &params.zones {
            let zones = Composite::new(zones)?;
            this.shape = zones.shape(this.shape);
            this.counter = this.counter.at_most(zones::LAST);
            this.limits.soft.packets = this.limits.soft.packets.min(this.counter.left() / 8 * 7);
            this.zones = Some(Box::new(zones));
        }
        Ok(this)
    }

    /// As [`Self::new`], with a key that was made elsewhere: for what is measured and never negotiated
    /// (`dormouse_crypto::measure`). Cipher, integrity algorithm, keying material and zones of `params` are not looked at.
    #[must_use]
    pub fn with_key(params: &SaParams, key: PacketKey, entropy: &mut dyn Entropy) -> Self {
        let (shape, iv) = (Shape::of(&key), IvSource::new(&key, entropy));
        Self::of_shape(params, shape, iv, SaKey::Made(key))
    }

    fn of_shape(params: &SaParams, shape: Shape, iv: IvSource, key: SaKey) -> Self {
        let counter = Counter::new(params.esn);
        let mut limits = params.limits;
        // Leaves an eighth of the numbers (without ESN: 2^29, minutes at the highest rate) to negotiate a replacement.
        limits.soft.packets = limits.soft.packets.min(counter.left() / 8 * 7);
        Self {
            shape,
            iv,
            key,
            zones: None,
            spi: params.spi,
            counter,
            esn: params.esn,
            pad_to: if params.mode == Mode::Tunnel { params.pad_to.into() } else { 0 },
            inner_mtu: usize::from(u16::MAX),
            limits,
            carried: Carried::default(),
        }
    }

    /// Nothing is expected to go for a while: memory is given back that the next packet takes again.
    pub fn rest(&mut self) {
        self.key.rest();
    }

    /// The SPI that the peer chose.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }

    /// Sequence number of the last packet; 0 before the first.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.counter.sent()
    }

    /// What was sealed so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.carried.counters()
    }

    /// How far the SA's lifetime is used up. Ask once per batch.
    #[must_use]
    pub fn life(&self) -> Life {
        self.carried.counters().life(&self.limits)
    }

    /// The last number that it may send.
    pub(crate) const fn last(&self) -> u64 {
        self.counter.last()
    }

    pub(crate) const fn esn(&self) -> bool {
        self.esn
    }

    pub(crate) const fn is_zoned(&self) -> bool {
        self.zones.is_some()
    }

    pub(crate) const fn pads(&self) -> bool {
        self.pad_to > 0
    }

    /// Another engine sends from now on, behind the number that is returned and up to the second one; only the next `reserve` are sent here
    /// (`crate::loan`). An SA that was ever lent sends `most` packets.
    pub(crate) fn lend(&mut self, reserve: u64, most: u64) -> (u64, u64) {
        let last = self.counter.last().min(most);
        self.counter.lend(reserve);
        self.limits.soft.packets = self.limits.soft.packets.min(most / 8 * 7);
        (self.counter.last(), last)
    }

    /// Goes on behind a number, where another engine has stopped.
    pub(crate) fn go_on(&mut self, sent: u64, last: u64) {
        self.counter.take_back(sent, last);
    }

    /// Whether the other engine can have sent up to `sent`: behind what was kept here.
    pub(crate) fn may_take_back(&self, sent: u64, last: u64) -> bool {
        (self.counter.last()..=last).contains(&sent)
    }

    /// It has.
    pub(crate) fn take_back(&mut self, sent: u64, last: u64) {
        self.counter.take_back(sent, last);
    }

    /// Nothing is sent any more.
    pub(crate) fn end(&mut self) {
        self.counter.lend(0);
    }

    /// Another engine has sent these.
    pub(crate) fn add_counters(&mut self, counters: Counters) {
        self.carried.add(counters);
    }

    /// What it seals is a part of this sum from now on.
    pub(crate) fn join(&mut self, total: &Total) {
        self.carried.join(total);
    }

    /// Tells the sender the largest inner packet that fits the path, in bytes: traffic-flow padding stops there.
    pub fn set_inner_mtu(&mut self, inner_mtu: usize) {
        self.inner_mtu = inner_mtu;
    }

    /// Bytes before the inner packet: ESP header, IV, and in a composite SA the ends of the zones.
    #[must_use]
    pub const fn head_len(&self) -> usize {
        self.shape.head
    }

    /// Length of the datagram that an inner packet of `inner_len` bytes becomes.
    #[must_use]
    pub fn sealed_len(&self, inner_len: usize) -> usize {
        self.shape.head + self.lengths(inner_len).body + self.shape.icv
    }

    /// RFC 4303 section 2.4: padding makes the ciphertext end on a multiple of 4 bytes, and of the cipher's block.
    /// "MUST NOT be modified to reflect this padding" (RFC 4303 section 2.7)
    fn lengths(&self, inner: usize) -> Lengths {
        let padded = match self.pad_to {
            0 => inner,
            step => inner.next_multiple_of(step).min(self.inner_mtu).max(inner),
        };
        Lengths { inner, padded, body: self.shape.round_up(padded + 2) }
    }

    /// Seals in place the `inner_len` bytes that start at [`Self::head_len`] of `slot`, and returns the length of the
    /// datagram, which starts at the slot's first byte. `next_header` is what
    /// [`crate::Tunnel::strip`] says; with [`crate::NO_NEXT_HEADER`] it is a dummy, which the peer drops.
    /// "A transmitter MUST be capable of generating dummy packets" (RFC 4303 section 2.6)
    ///
    /// # Errors
    /// If the slot is too small or the SA is used up; then no sequence number was taken.
    pub fn seal(&mut self, slot: &mut [u8], inner_len: usize, next_header: u8) -> Result<usize, SealError> {
        self.check_life()?;
        self.check_slot(slot.len(), inner_len)?;
        let seq = self.counter.take(1)?;
        self.seal_numbered(slot, &self.lengths(inner_len), next_header, seq)
    }

    /// Seals a batch in place: packet `i` of `sizes[i]` bytes lies at `i * stride + head_len()` of `buf`. Every packet but
    /// the last must seal to exactly `stride` bytes, so that the datagrams lie end to end as UDP segmentation offload
    /// wants them. Returns the length of all of them together.
    ///
    /// # Errors
    /// As [`Self::seal`], and if the sizes do not fit the stride; then nothing was sealed and no number taken.
    pub fn seal_batch(
        &mut self,
        buf: &mut [u8],
        stride: usize,
        sizes: &[usize],
        next_header: u8,
    ) -> Result<usize, SealError> {
        self.check_life()?;
        let mut previous = None;
        // Nearly always all sizes but the last are equal: nothing is computed twice.
        for (index, &size) in sizes.iter().enumerate() {
            let is_last = index + 1 == sizes.len();
            if previous != Some(size) || is_last {
                let sealed = self.sealed_len(size);
                if sealed > stride || (sealed < stride && !is_last) {
                    return Err(SealError::Uneven { index, sealed, stride });
                }
                previous = Some(size);
            }
            if is_last {
                self.check_slot(buf.len().saturating_sub(index * stride), size)?;
            }
        }
        let first = self.counter.take(sizes.len() as u64)?;
        let mut lengths = Lengths::default();
        let mut total = 0;
        for (index, (slot, &size)) in buf.chunks_mut(stride.max(1)).zip(sizes).enumerate() {
            if index == 0 || size != lengths.inner {
                lengths = self.lengths(size);
            }
            total = index * stride + self.seal_numbered(slot, &lengths, next_header, first + index as u64)?;
        }
        Ok(total)
    }

    fn check_life(&self) -> Result<(), SealError> {
        if self.life() == Life::Hard { Err(SealError::Expired { limits: self.limits }) } else { Ok(()) }
    }

    fn check_slot(&self, have: usize, inner_len: usize) -> Result<(), SealError> {
        let need = self.sealed_len(inner_len);
        if need > have { Err(SealError::SlotTooSmall { inner_len, need, have }) } else { Ok(()) }
    }

    /// The packet of sequence number `seq`. The slot has been checked.
    /// "The Padding, Pad Length, and Next Header fields MUST be concatenated with the plaintext before performing encryption" (RFC 4309 section 3.2)
    fn seal_numbered(
        &mut self,
        slot: &mut [u8],
        lengths: &Lengths,
        next_header: u8,
        seq: u64,
    ) -> Result<usize, SealError> {
        let have = slot.len();
        let need = self.shape.head + lengths.body + self.shape.icv;
        let too_small = SealError::SlotTooSmall { inner_len: lengths.inner, need, have };
        let Some((head, rest)) = slot.split_at_mut_checked(self.shape.head) else { return Err(too_small) };
        let Some((header, iv)) = head.split_first_chunk_mut::<ESP_HEADER_LEN>() else {
            return Err(too_small);
        };
        let Some((body, rest)) = rest.split_at_mut_checked(lengths.body) else { return Err(too_small) };
        let Some(icv) = rest.get_mut(..self.shape.icv) else { return Err(too_small) };

        write_trailer(body, lengths, next_header);
        let aad = Aad::new(self.spi, seq, self.esn, self.shape.separate_mac);
        *header = aad.header();
        let key = self.key.awake()?;
        if let Some(zones) = &self.zones {
            zones.seal(key, (self.spi, seq), iv, body, lengths.inner, icv)?;
        } else {
            self.iv.write(seq, iv)?;
            key.seal(aad.front(), iv, body, aad.tail(), icv)?;
        }

        self.carried.count(lengths.inner as u64);
        Ok(need)
    }

    /// Seals `body` whole, trailer and all, as the packet after the last: what an authentic but hostile peer could send.
    pub(crate) fn forge_body(&mut self, slot: &mut Vec<u8>, body: &[u8]) {
        let Shape { head, icv, .. } = self.shape;
        let whole = self.shape.round_down(body.len());
        let Ok(seq) = self.counter.take(1) else { return };
        let aad = Aad::new(self.spi, seq, self.esn, self.shape.separate_mac);
        slot.clear();
        slot.extend_from_slice(&aad.header());
        slot.resize(head, 0);
        slot.extend_from_slice(body.get(..whole).unwrap_or_default());
        slot.resize(head + whole + icv, 0);
        let (front, icv) = slot.split_at_mut(head + whole);
        let (front, body) = front.split_at_mut(head);
        let Ok(key) = self.key.awake() else { return };
        let _sealed = key.seal(aad.front(), &front[ESP_HEADER_LEN..], body, aad.tail(), icv);
    }

    #[cfg(test)]
    pub(crate) fn start_at(&mut self, sent: u64) {
        self.counter.start_at(sent);
    }

    #[cfg(test)]
    pub(crate) fn seal_known(&mut self, slot: &mut [u8], len: usize, next: u8, seq: u64, iv: &[u8]) -> usize {
        let lengths = self.lengths(len);
        let (head, body) = (self.shape.head, lengths.body);
        let aad = Aad::new(self.spi, seq, self.esn, self.shape.separate_mac);
        slot[..8].copy_from_slice(&aad.header());
        slot[8..head].copy_from_slice(iv);
        write_trailer(&mut slot[head..head + body], &lengths, next);
        let (front, icv) = slot.split_at_mut(head + body);
        let icv = &mut icv[..self.shape.icv];
        self.key.awake().unwrap().seal(aad.front(), iv, &mut front[head..], aad.tail(), icv).unwrap();
        head + body + self.shape.icv
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound")
            .field("spi", &format_args!("{:#010x}", self.spi))
            .field("key", &self.key)
            .field("sequence", &self.counter.sent())
            .field("counters", &self.carried.counters())
            .finish_non_exhaustive()
    }
}

/// Zeros up to `padded`, then 1, 2, 3..., the padding's length, the next header (RFC 4303 section 2.4).
/// "[...] all implementations MUST support generation and consumption of padding" (RFC 4303 section 2.4)
/// "The Padding bytes are initialized with a series of (unsigned, 1-byte) integer values." (RFC 4303 section 2.4)
fn write_trailer(body: &mut [u8], lengths: &Lengths, next_header: u8) {
    let Some(tail) = body.get_mut(lengths.inner..) else { return };
    let (zeros, tail) = tail.split_at_mut((lengths.padded - lengths.inner).min(tail.len()));
    zeros.fill(0);
    let Some((next, tail)) = tail.split_last_mut() else { return };
    let Some((len, padding)) = tail.split_last_mut() else { return };
    *next = next_header;
    *len = padding.len() as u8;
    for (byte, value) in padding.iter_mut().zip(1..) {
        *byte = value;
    }
}
