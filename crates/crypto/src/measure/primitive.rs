//! Single primitives, for comparison with another library's own benchmark (`openssl speed`). Owns the list of what both have;
//! what a primitive computes is held against the known answers of the suites that it is part of.

use aws_lc_rs::cipher::{self, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{digest, hmac};

use super::{Cipher, Suite};
use crate::error::Error;
use crate::packet_key::PacketKey;

/// A primitive that OpenSSL's benchmark knows too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Primitive(usize);

struct Row {
    name: &'static str,
    /// The arguments of `openssl speed`.
    openssl: &'static [&'static str],
    kind: Kind,
    /// A suite whose known answers cover it.
    suite: &'static str,
}

#[derive(Clone, Copy)]
enum Kind {
    /// One packet of this suite, with its authenticated data and its ICV.
    Suite,
    /// A cipher of ours, without its MAC.
    Alone(Cipher),
    Cbc(usize),
    Ctr(usize),
    Digest(&'static digest::Algorithm),
    Hmac(hmac::Algorithm),
}

#[rustfmt::skip]
const ROWS: [Row; 16] = [
    Row { name: "aes128gcm16",      openssl: &["-aead", "-evp", "aes-128-gcm"],       kind: Kind::Suite,    suite: "aes128gcm16" },
    Row { name: "aes256gcm16",      openssl: &["-aead", "-evp", "aes-256-gcm"],       kind: Kind::Suite,    suite: "aes256gcm16" },
    Row { name: "chacha20poly1305", openssl: &["-aead", "-evp", "chacha20-poly1305"], kind: Kind::Suite,    suite: "chacha20poly1305" },
    Row { name: "aes128ccm16",      openssl: &["-aead", "-evp", "aes-128-ccm"],       kind: Kind::Suite,    suite: "aes128ccm16" },
    Row { name: "aes128-cbc",       openssl: &["-evp", "aes-128-cbc"],                kind: Kind::Cbc(16),  suite: "aes128-sha256" },
    Row { name: "aes256-cbc",       openssl: &["-evp", "aes-256-cbc"],                kind: Kind::Cbc(32),  suite: "aes256-sha256" },
    Row { name: "aes128-ctr",       openssl: &["-evp", "aes-128-ctr"],                kind: Kind::Ctr(16),  suite: "aes128ctr-sha256" },
    Row { name: "aes256-ctr",       openssl: &["-evp", "aes-256-ctr"],                kind: Kind::Ctr(32),  suite: "aes256ctr-sha256" },
    Row { name: "sha1",             openssl: &["-evp", "sha1"],                       kind: Kind::Digest(&digest::SHA1_FOR_LEGACY_USE_ONLY), suite: "aes128-sha1" },
    Row { name: "sha256",           openssl: &["-evp", "sha256"],                     kind: Kind::Digest(&digest::SHA256),                   suite: "aes128-sha256" },
    Row { name: "sha384",           openssl: &["-evp", "sha384"],                     kind: Kind::Digest(&digest::SHA384),                   suite: "aes128-sha384" },
    Row { name: "sha512",           openssl: &["-evp", "sha512"],                     kind: Kind::Digest(&digest::SHA512),                   suite: "aes128-sha512" },
    Row { name: "hmac-sha1",        openssl: &["-hmac", "sha1"],                      kind: Kind::Hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY), suite: "aes128-sha1" },
    Row { name: "hmac-sha256",      openssl: &["-hmac", "sha256"],                    kind: Kind::Hmac(hmac::HMAC_SHA256),                   suite: "aes128-sha256" },
    Row { name: "hmac-sha512",      openssl: &["-hmac", "sha512"],                    kind: Kind::Hmac(hmac::HMAC_SHA512),                   suite: "aes128-sha512" },
    Row { name: "3des-cbc",         openssl: &["-evp", "des-ede3-cbc"],               kind: Kind::Alone(Cipher::TripleDes), suite: "3des-md5" },
];

impl Primitive {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..ROWS.len()).map(Self)
    }

    /// The one with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        ROWS.iter().position(|row| row.name == name).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        ROWS[self.0].name
    }

    /// What `openssl speed` calls it.
    #[must_use]
    pub fn openssl(self) -> &'static [&'static str] {
        ROWS[self.0].openssl
    }

    /// A suite whose known answers cover it: to be [`verify`](super::verify)d before it is timed.
    #[must_use]
    pub fn suite(self) -> Option<Suite> {
        ROWS[self.0].suite.parse().ok()
    }

    /// It, keyed, as something that can be run over a buffer. A cipher encrypts the buffer in place; its length must be a
    /// multiple of 16 bytes.
    ///
    /// # Errors
    /// If the back end fails.
    pub fn keyed(self) -> Result<Keyed, Error> {
        let failed = Error::Backend { operation: "key set-up" };
        let key = |len: usize| {
            let algorithm = if len == 16 { &cipher::AES_128 } else { &cipher::AES_256 };
            UnboundCipherKey::new(algorithm, &[0x5a; 32][..len]).map_err(|_| failed.clone())
        };
        let row = &ROWS[self.0];
        Ok(Keyed(match row.kind {
            Kind::Suite => State::packets(self.suite().ok_or(failed)?)?,
            Kind::Alone(cipher) => State::packets(Suite { cipher, integrity: None })?,
            Kind::Cbc(len) => State::cipher(EncryptingKey::cbc(key(len)?))?,
            Kind::Ctr(len) => State::cipher(EncryptingKey::ctr(key(len)?))?,
            Kind::Digest(algorithm) => State::Digest(algorithm),
            Kind::Hmac(algorithm) => State::Hmac(Box::new(hmac::Key::new(algorithm, &[0x5a; 32]))),
        }))
    }
}

/// A [`Primitive`] with a key, ready to run.
pub struct Keyed(State);

enum State {
    Packets { key: PacketKey, icv: Vec<u8>, counter: u64 },
    Cipher(Box<EncryptingKey>),
    Digest(&'static digest::Algorithm),
    Hmac(Box<hmac::Key>),
}

/// Bytes that are authenticated beside each block: those of a TLS record, as `openssl speed -aead` has it.
const AAD: usize = 13;

impl State {
    fn cipher(key: Result<EncryptingKey, Unspecified>) -> Result<Self, Error> {
        let failed = Error::Backend { operation: "key set-up" };
        Ok(Self::Cipher(Box::new(key.map_err(|_| failed)?)))
    }

    fn packets(suite: Suite) -> Result<Self, Error> {
        let key = suite.key(&suite.public_keymat(0x5a))?;
        Ok(Self::Packets { icv: vec![0; key.icv_len()], key, counter: 0 })
    }
}

impl Keyed {
    /// Once over `data`.
    ///
    /// # Errors
    /// If the length does not suit the cipher.
    pub fn run(&mut self, data: &mut [u8]) -> Result<(), Error> {
        let failed = Error::Backend { operation: "a primitive" };
        match &mut self.0 {
            State::Packets { key, icv, counter } => {
                *counter += 1;
                let (aad, mut iv) = ([0; AAD], [0; 16]);
                iv[..8].copy_from_slice(&counter.to_be_bytes());
                key.seal(&aad, &iv[..key.iv_len()], data, &[], icv)
            }
            State::Cipher(key) => {
                let context = EncryptionContext::Iv128(FixedLength::from([7; 16]));
                key.less_safe_encrypt(data, context).map(drop).map_err(|_| failed)
            }
            State::Digest(algorithm) => {
                core::hint::black_box(digest::digest(algorithm, data));
                Ok(())
            }
            State::Hmac(key) => {
                core::hint::black_box(hmac::sign(key, data));
                Ok(())
            }
        }
    }
}

impl core::fmt::Debug for Keyed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Keyed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_primitive_runs_and_is_covered_by_known_answers() {
        for primitive in Primitive::all() {
            assert_eq!(Primitive::by_name(primitive.name()), Some(primitive));
            let suite = primitive.suite().unwrap_or_else(|| panic!("{}", primitive.name()));
            super::super::verify(suite).unwrap();
            let mut data = vec![0x11; 1_424];
            primitive.keyed().unwrap().run(&mut data).unwrap();
            let changes = !primitive.name().contains("sha") || primitive.name().contains("aes");
            assert_eq!(data != vec![0x11; 1_424], changes, "{}", primitive.name());
        }
    }
}
