//! The Internet checksum over bulk data (RFC 1071). Owns the fast loop; formats are elsewhere.
//!
//! Words are added in the machine's byte order: the ones' complement sum does not mind (RFC 1071 section 2B), so nothing is
//! swapped until the end.

/// A checksum in progress: the ones' complement sum so far. Pieces are added at even offsets; only the last may have an odd length.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Adds bytes.
    #[inline]
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if bytes.len() >= 128 && std::arch::is_x86_feature_detected!("avx2") {
            #[expect(unsafe_code, reason = "calls code compiled for AVX2")]
            // SAFETY: the processor was just asked for AVX2.
            return Self(unsafe { add_avx2(bytes, self.0) });
        }
        Self(add(bytes, self.0))
    }

    /// Adds a number that stands in the packet in network order.
    #[inline]
    pub(crate) fn add_u16(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// The sum as 16 bits, in network order.
    #[inline]
    pub(crate) fn fold(self) -> u16 {
        let mut acc = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        acc = (acc >> 16) + (acc & 0xffff);
        acc = (acc >> 16) + (acc & 0xffff);
        acc = (acc >> 16) + (acc & 0xffff);
        u16::from_be(acc as u16)
    }

    /// The bytes of a checksum field over all that was added.
    #[inline]
    pub(crate) fn finish(self) -> [u8; 2] {
        (!self.fold()).to_be_bytes()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_avx2(bytes: &[u8], acc: u64) -> u64 {
    add(bytes, acc)
}

/// Adds 32-bit words into eight 64-bit lanes, which compilers turn into vector instructions. The lanes cannot overflow: a
/// packet has fewer than 2^16 words.
#[inline(always)]
fn add(bytes: &[u8], acc: u64) -> u64 {
    let mut lanes = [0_u64; 16];
    let mut blocks = bytes.chunks_exact(64);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut acc = lanes.into_iter().fold(acc, |a, lane| a + lane);
    let mut words = blocks.remainder().chunks_exact(4);
    for word in &mut words {
        acc += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    acc + match *words.remainder() {
        [a] => u64::from(u16::from_ne_bytes([a, 0])),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c] => u64::from(u16::from_ne_bytes([a, b])) + u64::from(u16::from_ne_bytes([c, 0])),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_definition_for_every_length() {
        let bytes: Vec<u8> = (0..2_000_u32).map(|i| (i * 31 % 251) as u8).collect();
        for len in (0..300).chain([1_279, 1_280, 1_461, 2_000]) {
            let mut acc = 0_u32;
            for pair in bytes[..len].chunks(2) {
                acc += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
                acc = (acc & 0xffff) + (acc >> 16);
            }
            assert_eq!(Checksum::default().add(&bytes[..len]).fold(), acc as u16, "{len} bytes");
        }
        assert_eq!(Checksum::default().add_u16(0x0102).fold(), 0x0102);
        assert_eq!(Checksum::default().add(&[0xff; 65_535]).fold(), 0xff00);
    }
}
