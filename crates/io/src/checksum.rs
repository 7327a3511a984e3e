//! Internet checksums of bulk data: [`Sum`]'s loop, compiled for AVX2 where there is that. Owns the choice; the arithmetic is
//! `dormouse_wire`'s, which has no unsafe code.

use dormouse_wire::ip::checksum::Sum;

/// Adds a piece to a sum, as [`Sum::add_bytes`] does.
#[inline]
pub(crate) fn add(sum: Sum, bytes: &[u8]) -> Sum {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 128 && std::arch::is_x86_feature_detected!("avx2") {
        #[expect(unsafe_code, reason = "calls code compiled for AVX2")]
        // SAFETY: the processor was just asked for AVX2.
        return unsafe { add_avx2(sum, bytes) };
    }
    sum.add_bytes(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_avx2(sum: Sum, bytes: &[u8]) -> Sum {
    sum.add_bytes(bytes)
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
            assert_eq!(add(Sum::default(), &bytes[..len]).fold(), acc as u16, "{len} bytes");
        }
        assert_eq!(add(Sum::default(), &[0xff; 65_535]).fold(), 0xff00);
    }
}
