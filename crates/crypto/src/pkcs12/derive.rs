//! The key derivation of PKCS #12 (RFC 7292, appendix B.2). Owns it; must be used for nothing else.

use crate::hash::{HashAlg, hash_one};
use crate::secret::Secret;
use zeroize::Zeroize as _;

/// What the derived bytes are for (appendix B.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Key = 1,
    Iv = 2,
    Mac = 3,
}

/// A passphrase as two bytes a character, and two zeros after it (appendix B.1).
fn bmp(passphrase: &str) -> Secret {
    let len = passphrase.encode_utf16().count() * 2 + 2;
    let mut out = Secret::zeroed(len);
    for (place, unit) in out.as_mut_bytes().chunks_exact_mut(2).zip(passphrase.encode_utf16()) {
        place.copy_from_slice(&unit.to_be_bytes());
    }
    out
}

/// So many bytes of it, repeated up to a multiple of `block`.
fn repeated(bytes: &[u8], block: usize) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().copied().cycle().take(bytes.len().div_ceil(block) * block)
}

/// `len` bytes for a purpose.
pub(super) fn derive(
    alg: HashAlg,
    purpose: Purpose,
    passphrase: &str,
    salt: &[u8],
    rounds: u32,
    len: usize,
) -> Secret {
    let block = if matches!(alg, HashAlg::Sha384 | HashAlg::Sha512) { 128 } else { 64 };
    let password = bmp(passphrase);
    // A concatenation of exactly the needed size: one that grows leaves copies of the passphrase behind.
    let padded = |bytes: &[u8]| bytes.len().div_ceil(block) * block;
    let size = block + padded(salt) + padded(password.as_bytes());
    let mut input = Secret::zeroed(size);
    let parts = std::iter::repeat_n(purpose as u8, block)
        .chain(repeated(salt, block))
        .chain(repeated(password.as_bytes(), block));
    input.as_mut_bytes().iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
    let mut out = Secret::zeroed(len);
    for place in out.as_mut_bytes().chunks_mut(alg.output_len()) {
        let mut digest = hash_one(alg, input.as_bytes()).as_ref().to_vec();
        for _ in 1..rounds {
            let next = hash_one(alg, &digest);
            digest.copy_from_slice(next.as_ref());
        }
        place.iter_mut().zip(&digest).for_each(|(place, byte)| *place = *byte);
        // I_j = (I_j + B + 1) mod 2^v.
        for piece in input.as_mut_bytes().get_mut(block..).unwrap_or_default().chunks_exact_mut(block) {
            let mut carry = 1_u16;
            for (place, at) in piece.iter_mut().zip(0..block).rev() {
                let add = digest.get(at % digest.len()).copied().unwrap_or_default();
                let sum = u16::from(*place) + u16::from(add) + carry;
                let [high, low] = sum.to_be_bytes();
                *place = low;
                carry = high.into();
            }
        }
        digest.zeroize();
    }
    out
}
