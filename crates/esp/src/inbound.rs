//! The receiving half of an ESP SA (RFC 4303 section 3.4). Owns the key, the replay window and the counters of one
//! direction; must never deliver a packet that is not authentic, or deliver one twice.
//!
//! The order of the checks is the order of their cost: lengths, replay window, authentication, then the window is marked, then
//! what was decrypted is taken apart.

use core::fmt;
use core::ops::Range;

use dormouse_crypto::{Error as CryptoError, PacketKey};
use dormouse_keying::Mode;

use crate::discard::Discard;
use crate::key::SaKey;
use crate::layout::{Aad, Shape, split_header};
use crate::lifetime::{Carried, Counters, Life, Limits, Total};
use crate::params::SaParams;
use crate::replay::{ReplayWindow, Seen};
use crate::sequence::reconstruct;
use crate::zones::Composite;
use crate::{ESP_HEADER_LEN, IPV4_IN_IP, IPV6_IN_IP, NO_NEXT_HEADER};

/// What was inside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Where in the datagram the inner packet (or its payload, in transport and BEET mode) is now. Empty for a dummy packet.
    pub inner: Range<usize>,
    /// 4 or 41 in tunnel mode, the protocol in transport mode, that or 94 in BEET mode, 59 for a dummy packet.
    pub next_header: u8,
    /// Full sequence number.
    pub seq: u64,
}

impl Opened {
    /// Whether it was sent only to be seen: drop it without further thought (RFC 4303 section 2.6).
    /// "[...] a receiver MUST be prepared to discard such packets, without indicating an error" (RFC 4303 section 2.6)
    #[must_use]
    pub const fn is_dummy(&self) -> bool {
        self.next_header == NO_NEXT_HEADER
    }
}

/// The receiving half of an SA.
pub struct Inbound {
    key: SaKey,
    /// In a composite SA, what the zones behind the first have.
    zones: Option<Box<Composite>>,
    shape: Shape,
    window: ReplayWindow,
    spi: u32,
    esn: bool,
    mode: Mode,
    limits: Limits,
    carried: Carried,
    /// Another engine accepts what has a higher number (`crate::loan`).
    ours: u64,
}

impl Inbound {
    /// The receiver of `params`.
    ///
    /// # Errors
    /// If the cipher and integrity algorithm do not go together or the keying material has the wrong length.
    pub fn new(params: &SaParams) -> Result<Self, CryptoError> {
        let mut key = SaKey::new(params)?;
        let mut this = Self::of_shape(params, Shape::of(key.awake()?), key);
        this.rest();
        if let Some(zones) = &params.zones {
            let zones = Composite::new(zones)?;
            this.shape = zones.shape(this.shape);
            this.zones = Some(Box::new(zones));
        }
        Ok(this)
    }

    /// As [`Self::new`], with a key that was made elsewhere: for what is measured and never negotiated
    /// (`dormouse_crypto::measure`). Cipher, integrity algorithm, keying material and zones of `params` are not looked at.
    #[must_use]
    pub fn with_key(params: &SaParams, key: PacketKey) -> Self {
        Self::of_shape(params, Shape::of(&key), SaKey::Made(key))
    }

    fn of_shape(params: &SaParams, shape: Shape, key: SaKey) -> Self {
        Self {
            shape,
            key,
            zones: None,
            window: ReplayWindow::new(params.replay_window),
            spi: params.spi,
            esn: params.esn,
            mode: params.mode,
            limits: params.limits,
            carried: Carried::default(),
            ours: u64::MAX,
        }
    }

    /// Nothing is expected for a while: memory is given back that the next packet takes again.
    pub fn rest(&mut self) {
        self.key.rest();
    }

    /// The SPI that we chose.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }

    /// Which part of a packet is carried.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// What was accepted so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.carried.counters()
    }

    /// How far the SA's lifetime is used up. Ask once per batch.
    #[must_use]
    pub fn life(&self) -> Life {
        self.carried.counters().life(&self.limits)
    }

    /// The newest sequence number accepted; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.window.top()
    }

    /// Authenticates and decrypts a datagram (without UDP header) in place.
    ///
    /// After an error the datagram holds nothing meaningful.
    /// "[...] if the integrity check fails, the receiver MUST discard the received IP datagram as invalid" (RFC 4303 section
    /// 3.4.3)
    ///
    /// # Errors
    /// The reason why it must be dropped and counted.
    pub fn open(&mut self, packet: &mut [u8]) -> Result<Opened, Discard> {
        let len = packet.len();
        let Shape { head, icv, step, .. } = self.shape;
        let bad_length = Discard::Length { len, need: head + step + icv, step };
        let body_len = len.saturating_sub(head + icv);
        if body_len < step || self.shape.round_down(body_len) != body_len {
            return Err(bad_length);
        }
        let (front, rest) = packet.split_at_mut_checked(head).ok_or(bad_length)?;
        let (header, iv) = front.split_at_checked(ESP_HEADER_LEN).ok_or(bad_length)?;
        let (body, icv) = rest.split_at_mut_checked(body_len).ok_or(bad_length)?;
        let (spi, low) = split_header(header).ok_or(bad_length)?;
        if spi != self.spi {
            return Err(Discard::UnknownSpi { spi });
        }
        if self.life() == Life::Hard {
            return Err(Discard::Expired { limits: self.limits });
        }
        let seq = if self.esn {
            reconstruct(&self.window, low).ok_or(Discard::OutOfSpace { low })?
        } else {
            u64::from(low)
        };
        if seq > self.ours {
            return Err(Discard::Lent { spi });
        }
        self.window.check(seq)?;
        let unauthentic = Discard::Unauthentic { spi, seq };
        let key = self.key.awake().map_err(|_| unauthentic)?;
        if let Some(zones) = &self.zones {
            zones.open(key, (spi, seq), iv, body, icv)?;
        } else {
            let aad = Aad::new(spi, seq, self.esn, self.shape.separate_mac);
            key.open(aad.front(), iv, body, aad.tail(), icv).map_err(|_| unauthentic)?;
        }
        self.window.accept(seq)?;

        let (payload_len, next_header) = strip_trailer(body)?;
        let payload = body.get(..payload_len).unwrap_or_default();
        let inner_len = match (next_header, self.mode) {
            (NO_NEXT_HEADER, _) => 0,
            (_, Mode::Transport | Mode::Beet(_)) => payload_len,
            (IPV4_IN_IP | IPV6_IN_IP, Mode::Tunnel) => {
                ip_length(payload, next_header).ok_or(Discard::Inner { len: payload_len })?
            }
            _ => return Err(Discard::NextHeader { next_header }),
        };
        self.carried.count(inner_len as u64);
        Ok(Opened { inner: head..head + inner_len, next_header, seq })
    }

    /// Another engine accepts what comes from now on, but for the `overlap` numbers behind the newest one, and for what is missing before it if
    /// there is an overlap. Returns what that one is not to accept.
    pub(crate) fn lend(&mut self, overlap: u64) -> Seen {
        self.ours = self.window.top().saturating_add(overlap);
        if overlap == 0 {
            self.ours = 0;
            return self.window.seen();
        }
        Seen::all(self.ours, self.window.size())
    }

    /// Goes on where another engine has stopped.
    pub(crate) fn go_on(&mut self, seen: &Seen) {
        self.window.merge(seen, 0);
    }

    /// What was accepted.
    pub(crate) fn seen(&self) -> Seen {
        self.window.seen()
    }

    /// Whether the other engine can have accepted this: it never forgets what was accepted before.
    pub(crate) fn may_take_back(&self, seen: &Seen) -> bool {
        seen.top >= self.ours.max(self.window.top())
    }

    /// It has.
    pub(crate) fn take_back(&mut self, seen: &Seen) {
        self.window.merge(seen, self.ours);
        self.ours = u64::MAX;
    }

    /// Nothing is accepted any more.
    pub(crate) fn end(&mut self) {
        self.ours = 0;
    }

    /// Another engine has accepted these.
    pub(crate) fn add_counters(&mut self, counters: Counters) {
        self.carried.add(counters);
    }

    /// What it accepts is a part of this sum from now on.
    pub(crate) fn join(&mut self, total: &Total) {
        self.carried.join(total);
    }

    #[cfg(test)]
    pub(crate) fn start_at(&mut self, top: u64) {
        self.window.start_at(top);
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("spi", &format_args!("{:#010x}", self.spi))
            .field("key", &self.key)
            .field("sequence", &self.window.top())
            .field("counters", &self.carried.counters())
            .finish_non_exhaustive()
    }
}

/// Length of what precedes the padding, and the next header.
///
/// RFC 4303 section 2.4: "the receiver SHOULD inspect the Padding field". It is authentic here, so this only finds peers that
/// err; but a peer that errs there errs elsewhere too, and the drop is counted with its reason.
/// "When padding is required, it MUST be generated and checked in accordance with the conventions specified in [ESP]." (RFC 4309 section 3.2)
fn strip_trailer(body: &[u8]) -> Result<(usize, u8), Discard> {
    let [rest @ .., pad_len, next_header] = body else {
        return Err(Discard::Padding { pad_len: 0 });
    };
    let bad = Discard::Padding { pad_len: *pad_len };
    let payload_len = rest.len().checked_sub(usize::from(*pad_len)).ok_or(bad)?;
    let padding = rest.get(payload_len..).unwrap_or_default();
    if padding.iter().zip(1u16..).all(|(byte, expect)| u16::from(*byte) == expect) {
        Ok((payload_len, *next_header))
    } else {
        Err(bad)
    }
}

/// Length of the IP packet at the start of `payload`: what follows is traffic-flow padding (RFC 4303 section 2.7). `None` if
/// the header is not of the version that the next header promised, or is longer than the payload.
fn ip_length(payload: &[u8], next_header: u8) -> Option<usize> {
    let version = payload.first()? >> 4;
    let (header_len, total) = match (next_header, version) {
        (IPV4_IN_IP, 4) => (20, usize::from(u16::from_be_bytes(*payload.get(2..)?.first_chunk()?))),
        (IPV6_IN_IP, 6) => (40, 40 + usize::from(u16::from_be_bytes(*payload.get(4..)?.first_chunk()?))),
        _ => return None,
    };
    (total >= header_len && total <= payload.len()).then_some(total)
}
