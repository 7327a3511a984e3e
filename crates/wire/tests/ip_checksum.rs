//! The fast checksum against the definition, and incremental updates against computing anew.

use dormouse_wire::ip::checksum::{Sum, checksum, pseudo_header, update};
use proptest::collection::vec;
use proptest::prelude::*;

/// RFC 1071 section 1, word by word.
fn by_definition(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

proptest! {
    #[test]
    fn fast_is_by_definition(bytes in vec(any::<u8>(), 0..1600)) {
        prop_assert_eq!(checksum(&bytes), by_definition(&bytes));
    }

    #[test]
    fn pieces_add_up(bytes in vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>()) {
        let (a, b) = bytes.split_at((at.index(bytes.len() + 1)) & !1);
        prop_assert_eq!(Sum::default().add_bytes(a).add_bytes(b).finish(), by_definition(&bytes));
    }

    #[test]
    fn update_is_computing_anew(
        mut bytes in vec(any::<u8>(), 20..200),
        at in any::<prop::sample::Index>(),
        new in vec(any::<u8>(), 4),
    ) {
        let before = checksum(&bytes);
        let at = at.index(bytes.len() - 4) & !1;
        let old = bytes[at..at + 4].to_vec();
        bytes[at..at + 4].copy_from_slice(&new);
        let after = update(before, &old, &new);
        // All-zero data have two representations of zero; a header always has a nonzero byte.
        prop_assume!(bytes.iter().any(|b| *b != 0));
        prop_assert_eq!(after, by_definition(&bytes));
    }
}

#[test]
fn the_carry_of_the_largest_packet() {
    let bytes = vec![0xff; 65_535];
    assert_eq!(checksum(&bytes), by_definition(&bytes));
}

#[test]
fn pseudo_headers_of_both_families() {
    // Addresses, zero, protocol, length (RFC 9293 section 3.1).
    let v4 = hex::decode("c0000201c0000202000600ff").expect("hexadecimal");
    let sum = pseudo_header([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 6, 255);
    assert_eq!(sum.finish(), by_definition(&v4));
    // Addresses, 32-bit length, zeros, next header (RFC 8200 section 8.1).
    let (src, dst) = (0x2001_0db8_u128 << 96 | 1, 0x2001_0db8_u128 << 96 | 2);
    let v6 = [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0, 1, 0, 0, 0, 0, 0, 58]].concat();
    let sum = pseudo_header(src.to_be_bytes().into(), dst.to_be_bytes().into(), 58, 65_536);
    assert_eq!(sum.finish(), by_definition(&v6));
}
