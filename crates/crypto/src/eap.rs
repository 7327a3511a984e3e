//! MD4 and DES, which MS-CHAPv2 is made of (RFC 2759 section 8), and MD5, which RADIUS is (RFC 2865). Owns the three algorithms; must be used by nothing else,
//! for all are long broken: who sees a conversation of MS-CHAPv2 can try all passwords, which is why it runs inside an IKE SA whose other end
//! has proved itself first; and RADIUS is trusted by its HMAC-MD5 alone ([`crate::mobileip::Authenticator::HmacMd5`]).

use des::Des;
use des::cipher::{Block, BlockCipherEncrypt, KeyInit};
use md4::{Digest as _, Md4};
use md5::Md5;

use crate::secret::Secret;

/// MD4 of the input: 16 bytes, which stand for a password.
#[must_use]
pub fn md4(input: &[u8]) -> Secret {
    Secret::from(<[u8; 16]>::from(Md4::digest(input)))
}

/// MD5 of the parts put together.
#[must_use]
pub fn md5(parts: &[&[u8]]) -> [u8; 16] {
    parts.iter().fold(Md5::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

/// One block under DES, with a key of 56 bits that has no parity yet (RFC 2759 section 8.6).
#[must_use]
pub fn des_encrypt(key: &[u8; 7], block: [u8; 8]) -> [u8; 8] {
    let bits = key.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    // Seven bits a byte; the eighth is for parity, and the cipher ignores it.
    let expanded: [u8; 8] = core::array::from_fn(|n| ((bits >> (49 - 7 * n)) << 1).to_le_bytes()[0] & 0xfe);
    let expanded = Secret::from(expanded);
    let Ok(cipher) = Des::new_from_slice(expanded.as_bytes()) else {
        // A DES key has eight bytes.
        return [0; 8];
    };
    let mut block = Block::<Des>::from(block);
    cipher.encrypt_block(&mut block);
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1320 section A.5.
    #[test]
    fn md4_answers() {
        for (input, expected) in [
            ("", "31d6cfe0d16ae931b73c59d7e0c089c0"),
            ("abc", "a448017aaf21d8525fc10ae87aa6729d"),
            ("message digest", "d9130a8164549fe818874806e1c7014b"),
        ] {
            assert_eq!(hex::encode(md4(input.as_bytes())), expected);
        }
    }

    /// RFC 1321 section A.5.
    #[test]
    fn md5_answers() {
        assert_eq!(hex::encode(md5(&[])), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex::encode(md5(&[b"message ", b"digest"])), "f96b697d7cb7938d525a2f31aaf161d0");
    }

    /// RFC 2759 section 9.2: the first and the last third of the response (the last key is two bytes of the hash and zeros).
    #[test]
    fn des_answers() {
        let challenge = [0xd0, 0x2e, 0x43, 0x86, 0xbc, 0xe9, 0x12, 0x26];
        for (key, expected) in [
            ([0x44, 0xeb, 0xba, 0x8d, 0x53, 0x12, 0xb8], "82309ecd8d708b5e"),
            ([0x89, 0xae, 0, 0, 0, 0, 0], "4233114a3d85d6df"),
        ] {
            assert_eq!(hex::encode(des_encrypt(&key, challenge)), expected);
        }
    }
}
