//! Suites that are measured and never negotiated: what paper 001 and paper 004 compare, beside what is in use. Owns their
//! names and lengths and the keys that they make; must never be reachable from [`crate::suites`], from a configuration or
//! from a proposal.
//!
//! Some of them protect nothing worth the name: DES and MD5 are forbidden (RFC 8221, sections 5 and 6), NULL does not
//! encrypt, and "none" does nothing at all. So they are a type of their own, [`Suite`]: only [`Suite::key`] makes a
//! [`PacketKey`] from one, and nothing that negotiates names this module. What the two tables share goes through the very
//! code that protects real packets, [`PacketKey::new`]; the rest hides behind a trait object that a program without a
//! benchmark never makes.
//!
//! [`rsa_1024`] makes a key of HIP version 1 for paper 002, [`dsa_pair`] one of any length to see how long that takes: too short for use
//! with peers.
//!
//! [`verify`] holds a suite against known answers. A benchmark must ask it first: a fast wrong cipher is no result.

mod composed;
mod dsa_pair;
mod known;
mod rsa_1024;

use core::fmt;
use core::str::FromStr;

pub use dsa_pair::dsa_pair;
pub use known::{WrongAnswer, verify, verify_with};
pub use rsa_1024::rsa_1024;

use crate::error::Error;
use crate::packet_key::{Lengths, PacketKey};
use crate::suites::{Encr, Integ, UnknownAlgorithm};

/// A cipher that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cipher {
    /// AES-128-CBC (RFC 3602).
    Aes128Cbc,
    /// AES-256-CBC (RFC 3602).
    Aes256Cbc,
    /// AES-128-CTR (RFC 3686).
    Aes128Ctr,
    /// AES-256-CTR (RFC 3686).
    Aes256Ctr,
    /// AES-128-CCM with an 8-byte ICV (RFC 4309).
    Aes128Ccm8,
    /// AES-128-CCM with a 12-byte ICV (RFC 4309).
    Aes128Ccm12,
    /// AES-128-CCM with a 16-byte ICV (RFC 4309).
    Aes128Ccm16,
    /// AES-256-CCM with an 8-byte ICV (RFC 4309).
    Aes256Ccm8,
    /// AES-256-CCM with a 12-byte ICV (RFC 4309).
    Aes256Ccm12,
    /// AES-256-CCM with a 16-byte ICV (RFC 4309).
    Aes256Ccm16,
    /// AES-128-GCM with a 16-byte ICV (RFC 4106).
    Aes128Gcm16,
    /// AES-256-GCM with a 16-byte ICV (RFC 4106).
    Aes256Gcm16,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// No encryption (RFC 2410).
    Null,
    /// DES-CBC (RFC 2405): MUST NOT be used.
    Des,
    /// 3DES-CBC (RFC 2451): SHOULD NOT be used.
    TripleDes,
}

/// An integrity algorithm that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Integrity {
    /// HMAC-MD5-96 (RFC 2403): MUST NOT be used.
    HmacMd5_96,
    /// HMAC-SHA1-96 (RFC 2404).
    HmacSha1_96,
    /// HMAC-SHA-256-128 (RFC 4868).
    HmacSha256_128,
    /// HMAC-SHA-384-192 (RFC 4868).
    HmacSha384_192,
    /// HMAC-SHA-512-256 (RFC 4868).
    HmacSha512_256,
}

struct CipherRow {
    alg: Cipher,
    name: &'static str,
    key: usize,
    salt: usize,
    iv: usize,
    block: usize,
    icv: usize,
    encr: Option<Encr>,
}

struct IntegrityRow {
    alg: Integrity,
    name: &'static str,
    key: usize,
    icv: usize,
    integ: Option<Integ>,
}

/// Lengths in bytes; `icv` is 0 where an integrity algorithm may bring one. `encr` is the same cipher in the table of what
/// can be negotiated.
#[rustfmt::skip]
const CIPHERS: [CipherRow; 16] = [
    CipherRow { alg: Cipher::Aes128Cbc,        name: "aes128",           key: 16, salt: 0, iv: 16, block: 16, icv: 0,  encr: Some(Encr::Aes128Cbc) },
    CipherRow { alg: Cipher::Aes256Cbc,        name: "aes256",           key: 32, salt: 0, iv: 16, block: 16, icv: 0,  encr: Some(Encr::Aes256Cbc) },
    CipherRow { alg: Cipher::Aes128Ctr,        name: "aes128ctr",        key: 16, salt: 4, iv: 8,  block: 1,  icv: 0,  encr: Some(Encr::Aes128Ctr) },
    CipherRow { alg: Cipher::Aes256Ctr,        name: "aes256ctr",        key: 32, salt: 4, iv: 8,  block: 1,  icv: 0,  encr: Some(Encr::Aes256Ctr) },
    CipherRow { alg: Cipher::Aes128Ccm8,       name: "aes128ccm8",       key: 16, salt: 3, iv: 8,  block: 1,  icv: 8,  encr: Some(Encr::Aes128Ccm8) },
    CipherRow { alg: Cipher::Aes128Ccm12,      name: "aes128ccm12",      key: 16, salt: 3, iv: 8,  block: 1,  icv: 12, encr: Some(Encr::Aes128Ccm12) },
    CipherRow { alg: Cipher::Aes128Ccm16,      name: "aes128ccm16",      key: 16, salt: 3, iv: 8,  block: 1,  icv: 16, encr: Some(Encr::Aes128Ccm16) },
    CipherRow { alg: Cipher::Aes256Ccm8,       name: "aes256ccm8",       key: 32, salt: 3, iv: 8,  block: 1,  icv: 8,  encr: Some(Encr::Aes256Ccm8) },
    CipherRow { alg: Cipher::Aes256Ccm12,      name: "aes256ccm12",      key: 32, salt: 3, iv: 8,  block: 1,  icv: 12, encr: Some(Encr::Aes256Ccm12) },
    CipherRow { alg: Cipher::Aes256Ccm16,      name: "aes256ccm16",      key: 32, salt: 3, iv: 8,  block: 1,  icv: 16, encr: Some(Encr::Aes256Ccm16) },
    CipherRow { alg: Cipher::Aes128Gcm16,      name: "aes128gcm16",      key: 16, salt: 4, iv: 8,  block: 1,  icv: 16, encr: Some(Encr::Aes128Gcm16) },
    CipherRow { alg: Cipher::Aes256Gcm16,      name: "aes256gcm16",      key: 32, salt: 4, iv: 8,  block: 1,  icv: 16, encr: Some(Encr::Aes256Gcm16) },
    CipherRow { alg: Cipher::ChaCha20Poly1305, name: "chacha20poly1305", key: 32, salt: 4, iv: 8,  block: 1,  icv: 16, encr: Some(Encr::ChaCha20Poly1305) },
    CipherRow { alg: Cipher::Null,             name: "null",             key: 0,  salt: 0, iv: 0,  block: 1,  icv: 0,  encr: None },
    CipherRow { alg: Cipher::Des,              name: "des",              key: 8,  salt: 0, iv: 8,  block: 8,  icv: 0,  encr: None },
    CipherRow { alg: Cipher::TripleDes,        name: "3des",             key: 24, salt: 0, iv: 8,  block: 8,  icv: 0,  encr: None },
];

#[rustfmt::skip]
const INTEGRITIES: [IntegrityRow; 5] = [
    IntegrityRow { alg: Integrity::HmacMd5_96,     name: "md5",    key: 16, icv: 12, integ: None },
    IntegrityRow { alg: Integrity::HmacSha1_96,    name: "sha1",   key: 20, icv: 12, integ: Some(Integ::HmacSha1_96) },
    IntegrityRow { alg: Integrity::HmacSha256_128, name: "sha256", key: 32, icv: 16, integ: Some(Integ::HmacSha256_128) },
    IntegrityRow { alg: Integrity::HmacSha384_192, name: "sha384", key: 48, icv: 24, integ: Some(Integ::HmacSha384_192) },
    IntegrityRow { alg: Integrity::HmacSha512_256, name: "sha512", key: 64, icv: 32, integ: Some(Integ::HmacSha512_256) },
];

impl Cipher {
    const fn row(self) -> &'static CipherRow {
        &CIPHERS[self as usize]
    }

    /// Whether it authenticates by itself.
    #[must_use]
    pub const fn is_aead(self) -> bool {
        self.row().icv != 0
    }
}

impl Integrity {
    const fn row(self) -> &'static IntegrityRow {
        &INTEGRITIES[self as usize]
    }
}

/// A combination that can be measured. Its name is that of its parts: `aes128-sha1`, `aes128gcm16`, `null-sha256`, `none`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Suite {
    cipher: Cipher,
    integrity: Option<Integrity>,
}

impl Suite {
    /// ESP's framing around bytes that are neither encrypted nor authenticated: the baseline. RFC 4303, section 3.2, forbids
    /// it for a reason.
    pub const NONE: Self = Self { cipher: Cipher::Null, integrity: None };

    /// Every suite, ciphers in the order of their table.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let of = |cipher: Cipher| -> Vec<Option<Integrity>> {
            let separate = INTEGRITIES.iter().map(|row| Some(row.alg));
            match cipher {
                Cipher::Des | Cipher::TripleDes => {
                    vec![Some(Integrity::HmacMd5_96), Some(Integrity::HmacSha1_96)]
                }
                Cipher::Null => std::iter::once(None).chain(separate).collect(),
                aead if aead.is_aead() => vec![None],
                _ => separate.filter(|i| *i != Some(Integrity::HmacMd5_96)).collect(),
            }
        };
        let suites = CIPHERS
            .iter()
            .map(|row| row.alg)
            .flat_map(|cipher| of(cipher).into_iter().map(move |integrity| Self { cipher, integrity }));
        suites.collect()
    }

    /// The cipher.
    #[must_use]
    pub const fn cipher(self) -> Cipher {
        self.cipher
    }

    /// The integrity algorithm, where it is separate.
    #[must_use]
    pub const fn integrity(self) -> Option<Integrity> {
        self.integrity
    }

    /// The same combination in the table of what can be negotiated; `None` for what only a benchmark may use.
    #[must_use]
    pub fn negotiable(self) -> Option<(Encr, Option<Integ>)> {
        let encr = self.cipher.row().encr?;
        match self.integrity {
            None => Some((encr, None)),
            Some(integrity) => Some((encr, Some(integrity.row().integ?))),
        }
    }

    /// Bytes of keying material: encryption key, salt, integrity key.
    #[must_use]
    pub fn keymat_len(self) -> usize {
        let row = self.cipher.row();
        row.key + row.salt + self.integrity.map_or(0, |i| i.row().key)
    }

    /// Keying material that is no secret, another for each `first`: no key of it repeats another, which 3DES refuses.
    #[must_use]
    pub fn public_keymat(self, first: u8) -> Vec<u8> {
        (0..self.keymat_len()).map(|i| first.wrapping_add((i as u8).wrapping_mul(29))).collect()
    }

    /// Length in bytes of the IV in every packet.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        self.cipher.row().iv
    }

    /// Length in bytes of the integrity check value in every packet.
    #[must_use]
    pub const fn icv_len(self) -> usize {
        match self.integrity {
            Some(integrity) => integrity.row().icv,
            None => self.cipher.row().icv,
        }
    }

    /// What the length of the plaintext must be a multiple of, in bytes.
    #[must_use]
    pub const fn block_len(self) -> usize {
        self.cipher.row().block
    }

    /// The key of one direction of an SA, from [`Suite::keymat_len`] bytes in the order of RFC 7296, section 2.17.
    ///
    /// # Errors
    /// [`Error::Length`] if `keymat` has another length.
    pub fn key(self, keymat: &[u8]) -> Result<PacketKey, Error> {
        if let Some((encr, integ)) = self.negotiable() {
            return PacketKey::new(encr, integ, keymat);
        }
        let expected = self.keymat_len();
        if keymat.len() != expected {
            return Err(Error::Length { what: "keying material", got: keymat.len(), expected });
        }
        let failed = Error::Backend { operation: "key set-up" };
        let row = self.cipher.row();
        let (key, rest) = keymat.split_at(row.key);
        let (_, mac) = rest.split_at(row.salt);
        let keys = composed::Composed::new(self.cipher, key, self.integrity, mac).ok_or(failed)?;
        let [iv, icv, block] = [self.iv_len(), self.icv_len(), self.block_len()].map(|n| n as u8);
        let lengths = Lengths { iv, icv, block, separate_mac: !self.cipher.is_aead() };
        Ok(PacketKey::measured(lengths, Box::new(keys)))
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.integrity {
            _ if *self == Self::NONE => f.pad("none"),
            None => f.pad(self.cipher.row().name),
            Some(integrity) => f.pad(&format!("{}-{}", self.cipher.row().name, integrity.row().name)),
        }
    }
}

impl FromStr for Suite {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let all = Self::all();
        all.iter().copied().find(|suite| suite.to_string() == name).ok_or_else(|| UnknownAlgorithm {
            kind: "suite",
            name: name.to_owned(),
            known: all.iter().map(Self::to_string).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_its_discriminant() {
        assert!(CIPHERS.iter().enumerate().all(|(i, row)| row.alg as usize == i));
        assert!(INTEGRITIES.iter().enumerate().all(|(i, row)| row.alg as usize == i));
    }

    #[test]
    fn names_lead_back_and_none_is_twice_there() {
        let all = Suite::all();
        for (i, suite) in all.iter().enumerate() {
            assert_eq!(suite.to_string().parse(), Ok(*suite));
            assert!(all.iter().skip(i + 1).all(|other| other != suite), "{suite}");
        }
        let error = "rot13".parse::<Suite>().unwrap_err().to_string();
        assert!(error.starts_with("unknown suite \"rot13\"; known are aes128-sha1, "), "{error}");
    }

    #[test]
    fn lengths_are_those_of_the_key_that_is_made() {
        for suite in Suite::all() {
            let key = suite.key(&suite.public_keymat(7)).unwrap();
            assert_eq!(
                (key.iv_len(), key.icv_len(), key.block_len()),
                (suite.iv_len(), suite.icv_len(), suite.block_len()),
                "{suite}"
            );
            assert!(suite.key(&vec![7; suite.keymat_len() + 1]).is_err(), "{suite}");
        }
    }

    /// What is forbidden, weak or protects nothing must stay out of reach of negotiation.
    #[test]
    fn what_protects_nothing_cannot_be_negotiated() {
        for name in ["none", "null-sha256", "des-md5", "des-sha1", "3des-md5", "3des-sha1", "null-md5"] {
            let suite: Suite = name.parse().unwrap();
            assert_eq!(suite.negotiable(), None, "{name}");
            assert!(Encr::by_name(name.split('-').next().unwrap()).is_none(), "{name}");
        }
    }
}
