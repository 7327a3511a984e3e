//! The Internet checksum: ones' complement sums (RFC 1071), fast, and incremental updates (RFC 1624).
//!
//! Owns arithmetic only. Must never know where a checksum field lies.

use core::net::IpAddr;

/// A ones' complement sum under construction. Order does not matter, as long as every piece but the last that is added has
/// even length.
///
/// The sum is kept in the machine's byte order, in 64 bits: ones' complement addition commutes with swapping bytes (RFC
/// 1071 section 2 (B)), so words are swapped once at the end and carries are folded once at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds a piece. A piece of odd length is padded with a zero byte, so it must be the last one.
    /// Always inlined, so that its caller can compile it for what the processor has (`dormouse_io` does for AVX2).
    #[must_use]
    #[inline(always)]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        Self(add_wide(self.0, sum_native(bytes)))
    }

    /// Adds one 16-bit word.
    #[must_use]
    #[inline]
    pub fn add_u16(self, word: u16) -> Self {
        Self(add_wide(self.0, u64::from(u16::from_ne_bytes(word.to_be_bytes()))))
    }

    /// Adds a 32-bit number as two words.
    #[must_use]
    pub fn add_u32(self, word: u32) -> Self {
        Self(add_wide(self.0, u64::from(u32::from_ne_bytes(word.to_be_bytes()))))
    }

    /// The sum folded to 16 bits, not complemented: what a network card expects in the checksum field when it completes the
    /// checksum itself, and 0xffff over data whose checksum is right.
    #[must_use]
    #[inline]
    pub fn fold(self) -> u16 {
        let mut s = self.0;
        while s > 0xffff {
            s = (s & 0xffff) + (s >> 16);
        }
        u16::from_be_bytes((s as u16).to_ne_bytes())
    }

    /// The checksum: the complement of the folded sum.
    #[must_use]
    #[inline]
    pub fn finish(self) -> u16 {
        !self.fold()
    }
}

/// 64-bit addition with end-around carry.
#[inline]
fn add_wide(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

/// Sums 32-bit words in the machine's byte order. Each of the sixteen words of a 64-byte block has a 64-bit accumulator of its
/// own, so that the additions of one block do not wait for each other and the compiler can use vector registers. None can
/// overflow below 2^32 blocks.
#[inline(always)]
fn sum_native(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<64>();
    let mut lanes = [0_u64; 16];
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let (words, odd) = tail.as_chunks::<4>();
    let mut sum: u64 = lanes.iter().sum();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(odd) {
        *to = *from;
    }
    sum + u64::from(u32::from_ne_bytes(last))
}

/// The checksum of one piece.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().add_bytes(bytes).finish()
}

/// The pseudo-header of an upper-layer packet of `len` bytes. Addresses of two families are summed as they are.
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> Sum {
    let sum = [src, dst].into_iter().fold(Sum::default(), |sum, address| match address {
        IpAddr::V4(a) => sum.add_bytes(&a.octets()),
        IpAddr::V6(a) => sum.add_bytes(&a.octets()),
    });
    sum.add_u16(protocol.into()).add_u32(u32::try_from(len).unwrap_or(u32::MAX))
}

/// The checksum after `old` was replaced by `new` in the data that it covers (RFC 1624 equation 3:
/// HC' = ~(~HC + ~m + m')). Both begin at an even offset in the data; they have equal, even lengths.
///
/// A UDP checksum of 0 means "none" and must be left alone by the caller.
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    debug_assert!(old.len() == new.len() && old.len().is_multiple_of(2), "pieces of equal, even length");
    Sum::default().add_u16(!checksum).add_u16(!Sum::default().add_bytes(old).fold()).add_bytes(new).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2 after folding.
        let sum = Sum::default().add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
        assert_eq!(sum.finish(), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: HC = DD2F, m = 5555, m' = 3285, HC' = 0000 (and not FFFF, which equation 2 of RFC 1141 gives).
        assert_eq!(update(0xdd2f, &0x5555_u16.to_be_bytes(), &0x3285_u16.to_be_bytes()), 0x0000);
    }

    #[test]
    fn end_around_carries_survive_a_full_accumulator() {
        let sum = Sum(u64::MAX).add_u16(1);
        assert_eq!(sum.fold(), Sum::default().add_u16(1).fold());
    }
}
