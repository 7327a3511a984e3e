//! How an ESP packet lies in memory, for sealing and for opening. Owns its lengths, its header and what of it is authenticated besides the
//! ciphertext; holds no state.

use dormouse_crypto::PacketKey;

use crate::ESP_HEADER_LEN;

/// The lengths that depend on the algorithms alone, looked up once for the SA's life.
/// "[...] the beginning of the next layer protocol header MUST be aligned relative to the beginning of the ESP header" (RFC
/// 4303 section 2.3)
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// ESP header and IV; in a composite SA, the ends of the zones too.
    pub(crate) head: usize,
    /// The ICV, of all zones.
    pub(crate) icv: usize,
    /// What the ciphertext is a multiple of; a power of two.
    pub(crate) step: usize,
    /// Whether cipher and integrity algorithm are two.
    pub(crate) separate_mac: bool,
}

impl Shape {
    pub(crate) fn of(key: &PacketKey) -> Self {
        Self {
            head: ESP_HEADER_LEN + key.iv_len(),
            icv: key.icv_len(),
            step: key.block_len().max(4).next_power_of_two(),
            separate_mac: key.separate_mac(),
        }
    }

    pub(crate) const fn round_down(self, len: usize) -> usize {
        len & !(self.step - 1)
    }

    pub(crate) const fn round_up(self, len: usize) -> usize {
        self.round_down(len + self.step - 1)
    }
}

/// What is authenticated besides IV and ciphertext.
///
/// With a combined-mode cipher: SPI and sequence number, 8 bytes, or 12 with extended sequence numbers, high half in the
/// middle (RFC 4106 section 5, RFC 7634 section 2.1). With a separate integrity algorithm: SPI and low half in front, the
/// high half behind the ciphertext (RFC 4303 section 2.2.1).
pub(crate) struct Aad {
    bytes: [u8; 12],
    /// The layout that has the high half in the middle.
    middle: bool,
    /// The layout that has the high half at the end.
    behind: bool,
}

impl Aad {
    pub(crate) fn new(spi: u32, seq: u64, esn: bool, separate_mac: bool) -> Self {
        let (spi, seq) = (spi.to_be_bytes(), seq.to_be_bytes());
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&spi);
        if esn && !separate_mac {
            bytes[4..].copy_from_slice(&seq);
        } else {
            bytes[4..8].copy_from_slice(&seq[4..]);
            bytes[8..].copy_from_slice(&seq[..4]);
        }
        Self { bytes, middle: esn && !separate_mac, behind: esn && separate_mac }
    }

    /// SPI and the low half: the header as sent.
    pub(crate) fn header(&self) -> [u8; ESP_HEADER_LEN] {
        let b = &self.bytes;
        let low = if self.middle { &b[8..] } else { &b[4..8] };
        [b[0], b[1], b[2], b[3], low[0], low[1], low[2], low[3]]
    }

    pub(crate) fn front(&self) -> &[u8] {
        if self.middle { &self.bytes } else { &self.bytes[..8] }
    }

    pub(crate) fn tail(&self) -> &[u8] {
        if self.behind { &self.bytes[8..] } else { &[] }
    }
}

/// SPI and sequence number as sent.
pub(crate) fn split_header(packet: &[u8]) -> Option<(u32, u32)> {
    let (spi, rest) = packet.split_first_chunk::<4>()?;
    let (seq, _) = rest.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*spi), u32::from_be_bytes(*seq)))
}
