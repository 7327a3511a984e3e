//! What an ESP SA is made of. Owns the parameters; holds no state.

use dormouse_crypto::{Encr, Integ, Secret};
use dormouse_keying::Mode;

use crate::lifetime::Limits;
use crate::replay::DEFAULT_WINDOW;
use crate::zones::ZoneParams;

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
    /// Traffic-flow-confidentiality padding, for the sending side (RFC 4303 section 2.7): inner packets are padded to the next multiple of
    /// this many bytes; 0: not at all. The zeros stand between the inner packet and ESP's own padding; the receiver drops them because the
    /// inner IP header says how long the packet is. Tunnel mode only, and only if the peer did not send
    /// ESP_TFC_PADDING_NOT_SUPPORTED; the other modes ignore it.
    /// "An IPsec implementation SHOULD be capable of padding traffic" (RFC 4303 section 2.7)
    /// "[...] the SA management protocol MUST negotiate this service prior to a transmitter employing it" (RFC 4303 section 2.7)
    pub pad_to: u16,
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
            pad_to: 0,
            limits: Limits::default(),
            zones: None,
        }
    }
}
