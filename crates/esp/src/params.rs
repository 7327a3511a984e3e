//! What an ESP SA is made of. Owns the parameters and the traffic-flow padding rule; holds no state.

use dormouse_crypto::{Encr, Integ, Secret};
use dormouse_keying::Mode;

use crate::lifetime::Limits;
use crate::replay::DEFAULT_WINDOW;
use crate::zones::ZoneParams;

/// Traffic-flow-confidentiality padding (RFC 4303 section 2.7): zeros between the inner packet and ESP's own padding, which
/// the receiver drops because the inner IP header says how long the packet is. Tunnel mode only, and only if the peer did
/// not send ESP_TFC_PADDING_NOT_SUPPORTED; the other modes ignore it.
/// "An IPsec implementation SHOULD be capable of padding traffic" (RFC 4303 section 2.7)
/// "[...] the SA management protocol MUST negotiate this service prior to a transmitter employing it" (RFC 4303 section 2.7)
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Tfc {
    /// No padding beyond what ESP needs.
    #[default]
    Off,
    /// Inner packets are padded to the next multiple of this many bytes.
    Multiple(u16),
    /// Inner packets are padded to the smallest of these sizes, in bytes and in ascending order, that holds them; what is
    /// larger than all of them is not padded.
    Buckets(Vec<u16>),
}

impl Tfc {
    /// The length, in bytes, to which a packet of `inner_len` is padded; never beyond `limit` (unless it is already).
    #[must_use]
    pub fn padded(&self, inner_len: usize, limit: usize) -> usize {
        let wanted = match self {
            Self::Off => inner_len,
            Self::Multiple(step) => inner_len.next_multiple_of(usize::from((*step).max(1))),
            Self::Buckets(sizes) => {
                sizes.iter().map(|s| usize::from(*s)).find(|s| *s >= inner_len).unwrap_or(inner_len)
            }
        };
        wanted.min(limit).max(inner_len)
    }
}

/// One direction of an ESP SA.
#[derive(Clone, Debug)]
pub struct SaParams {
    /// Security parameters index; 0 is never used and 1..=255 are reserved (RFC 4303 section 2.1).
    pub spi: u32,
    /// The cipher.
    pub encr: Encr,
    /// The integrity algorithm; none with a combined-mode cipher.
    pub integ: Option<Integ>,
    /// Keying material in the order of RFC 7296 section 2.17.
    pub keymat: Secret,
    /// 64-bit sequence numbers (RFC 4303 section 2.2.1).
    /// "Use of an ESN MUST be negotiated by an SA management protocol." (RFC 4303 section 2.2.1)
    pub esn: bool,
    /// Which part of a packet is carried.
    pub mode: Mode,
    /// Replay window in packets, for the receiving side; clamped to 1,024..=65,536.
    pub replay_window: u32,
    /// Traffic-flow padding, for the sending side.
    pub tfc: Tfc,
    /// Lifetime by volume.
    pub limits: Limits,
    /// The zones behind the first, if the packet is protected in zones: cipher and keying material above are the first one's then.
    pub zones: Option<ZoneParams>,
}

impl SaParams {
    /// Tunnel mode, extended sequence numbers, the default window, no padding, no limits by volume.
    #[must_use]
    pub fn new(spi: u32, encr: Encr, integ: Option<Integ>, keymat: Secret) -> Self {
        Self {
            spi,
            encr,
            integ,
            keymat,
            esn: true,
            mode: Mode::Tunnel,
            replay_window: DEFAULT_WINDOW,
            tfc: Tfc::Off,
            limits: Limits::default(),
            zones: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_rules() {
        assert_eq!(Tfc::Off.padded(77, 1_400), 77);
        assert_eq!(Tfc::Multiple(256).padded(1, 1_400), 256);
        assert_eq!(Tfc::Multiple(256).padded(256, 1_400), 256);
        assert_eq!(Tfc::Multiple(256).padded(1_300, 1_400), 1_400, "never beyond the limit");
        assert_eq!(Tfc::Multiple(256).padded(1_500, 1_400), 1_500, "never shorter than the packet");
        let buckets = Tfc::Buckets(vec![128, 576, 1_280]);
        assert_eq!(buckets.padded(128, 1_400), 128);
        assert_eq!(buckets.padded(129, 1_400), 576);
        assert_eq!(buckets.padded(1_281, 1_400), 1_281);
        assert_eq!(Tfc::Multiple(0).padded(5, 1_400), 5);
    }
}
