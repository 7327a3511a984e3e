//! Keys of identities in version 1 of HIP (RFC 5201 section 5.2.8): RSA from 1,024 bits on and DSA of 1,024, both with SHA-1: an attacker
//! with much computing power can forge them. Owns what such a key may be and its operations; must never be reachable from IKE or from version 2, whose
//! keys are another type.

#![expect(
    clippy::disallowed_types,
    reason = "blinding needs randomness that no one else knows, and takes no other source"
)]

use core::convert::Infallible;
use core::fmt;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use crypto_bigint::BoxedUint;
use der::Encode;
use der::asn1::UintRef;
use dsa::pkcs8::DecodePrivateKey;
use dsa::signature::hazmat::{PrehashSigner, PrehashVerifier};
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::traits::PublicKeyParts;

use crate::hash::{HashAlg, hash};
use crate::pem;
use crate::secret::Secret;
use crate::sign::{RsaPublicKey, modulus_bits};

mod generate;

pub use generate::NewKey;

/// Bits of an RSA modulus. Longer ones do not fit into a packet with their signature, and cost a stranger's R1 more than it is worth.
const RSA_BITS: core::ops::RangeInclusive<usize> = 1024..=4096;
/// Bytes of the prime of a DSA key: with 1,024 bits; and of the order of its group.
const DSA_P: usize = 128;
const DSA_Q: usize = 20;
/// DigestInfo of SHA-1 (RFC 8017, section 9.2, note 1).
const SHA1_INFO: [u8; 15] =
    [0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14];

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no key for version 1 of HIP: {0}")]
pub struct BadKey(pub &'static str);

/// The numbers of a public key, big-endian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// RSA; without leading zeros.
    Rsa {
        /// The exponent.
        exponent: Vec<u8>,
        /// The modulus.
        modulus: Vec<u8>,
    },
    /// DSA.
    Dsa {
        /// The order of the group: 20 bytes.
        q: Vec<u8>,
        /// The prime, as the other two 128 bytes.
        p: Vec<u8>,
        /// The generator.
        g: Vec<u8>,
        /// The public value.
        y: Vec<u8>,
    },
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    numbers: Numbers,
    key: Public,
}

#[derive(Clone, PartialEq)]
enum Public {
    /// RSAPublicKey in DER.
    Rsa(Vec<u8>),
    Dsa(dsa::VerifyingKey),
}

/// Numbers are equal or not.
impl Eq for Public {}

impl PublicKey {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`BadKey`] for another size, or if they cannot belong together.
    pub fn new(numbers: Numbers) -> Result<Self, BadKey> {
        let key = match &numbers {
            Numbers::Rsa { exponent, modulus } => Public::Rsa(rsa_der(exponent, modulus)?),
            Numbers::Dsa { q, p, g, y } => Public::Dsa(dsa_key(q, p, g, y)?),
        };
        Ok(Self { numbers, key })
    }

    /// Its numbers.
    #[must_use]
    pub const fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Whether a signature over `message`, hashed with SHA-1, is this key's: RSASSA-PKCS1-v1_5, or r | s of DSA, 20 bytes each.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Public::Rsa(der) => UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, der)
                .verify(message, signature)
                .is_ok(),
            Public::Dsa(key) => {
                let Some((r, s)) = signature.split_at_checked(DSA_Q).filter(|(_, s)| s.len() == DSA_Q) else {
                    return false;
                };
                let number = |bytes| BoxedUint::from_be_slice(bytes, DSA_Q as u32 * 8).ok();
                let parts = number(r).zip(number(s));
                let signature = parts.and_then(|(r, s)| dsa::Signature::from_components(r, s));
                signature.is_some_and(|s| key.verify_prehash(&hash(HashAlg::Sha1, &[message]), &s).is_ok())
            }
        }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.numbers {
            Numbers::Rsa { modulus, .. } => write!(f, "RSA-{}", modulus.len() * 8),
            Numbers::Dsa { .. } => f.write_str("DSA-1024"),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

fn rsa_der(exponent: &[u8], modulus: &[u8]) -> Result<Vec<u8>, BadKey> {
    let malformed = |_| BadKey("not the numbers of an RSA key");
    let key = RsaPublicKey {
        modulus: UintRef::new(modulus).map_err(malformed)?,
        exponent: UintRef::new(exponent).map_err(malformed)?,
    };
    if !RSA_BITS.contains(&modulus_bits(&key.modulus)) {
        return Err(BadKey("RSA has from 1,024 to 4,096 bits"));
    }
    if key.exponent.as_bytes().len() > 8 {
        return Err(BadKey("an RSA exponent beyond 64 bits"));
    }
    key.to_der().map_err(malformed)
}

fn dsa_key(q: &[u8], p: &[u8], g: &[u8], y: &[u8]) -> Result<dsa::VerifyingKey, BadKey> {
    let malformed = BadKey("not the numbers of a DSA key of 1,024 bits");
    let full = |bytes: &[u8], len| bytes.len() == len && bytes.first().is_some_and(|top| top & 0x80 != 0);
    let odd = |bytes: &[u8]| bytes.last().is_some_and(|low| low & 1 == 1);
    if !full(q, DSA_Q) || !full(p, DSA_P) || g.len() != DSA_P || y.len() != DSA_P || !odd(q) || y >= p {
        return Err(malformed);
    }
    let number =
        |bytes: &[u8]| BoxedUint::from_be_slice(bytes, bytes.len() as u32 * 8).map_err(|_| malformed);
    let components = dsa::Components::from_components(number(p)?, number(q)?, number(g)?);
    let components = components.map_err(|_| malformed)?;
    dsa::VerifyingKey::from_components(components, number(y)?).map_err(|_| malformed)
}

/// A private key. Wiped when dropped.
pub struct SigningKey {
    key: Private,
    public: PublicKey,
}

enum Private {
    Rsa(Box<rsa::RsaPrivateKey>),
    Dsa(Box<dsa::SigningKey>),
}

impl SigningKey {
    /// From a PEM or DER file: PKCS #8, or PKCS #1 for RSA.
    ///
    /// # Errors
    /// [`BadKey`], which says what is taken.
    pub fn from_file_content(content: &[u8]) -> Result<Self, BadKey> {
        let section = |label| pem::first_section(content, label).ok();
        let der = match content.first() {
            Some(0x30) => Some(Secret::from(content)),
            _ => section("PRIVATE KEY").or_else(|| section("RSA PRIVATE KEY")),
        };
        let der = der.ok_or(BadKey("the file has neither PRIVATE KEY nor RSA PRIVATE KEY"))?;
        let der = der.as_bytes();
        let as_rsa = rsa::RsaPrivateKey::from_pkcs8_der(der).ok();
        if let Some(key) = as_rsa.or_else(|| rsa::RsaPrivateKey::from_pkcs1_der(der).ok()) {
            let number = |n: &BoxedUint| n.to_be_bytes_trimmed_vartime().into_vec();
            let numbers = Numbers::Rsa { exponent: number(key.e()), modulus: number(key.n().as_ref()) };
            return Ok(Self { public: PublicKey::new(numbers)?, key: Private::Rsa(Box::new(key)) });
        }
        let key = dsa::SigningKey::from_pkcs8_der(der);
        let key = key.map_err(|_| BadKey("it is neither RSA (PKCS #8 or #1) nor DSA (PKCS #8)"))?;
        let (public, components) = (key.verifying_key(), key.verifying_key().components());
        let number = |n: &BoxedUint, len| sized(&n.to_be_bytes_trimmed_vartime(), len);
        let numbers = Numbers::Dsa {
            q: number(components.q(), DSA_Q),
            p: number(components.p(), DSA_P),
            g: number(components.g(), DSA_P),
            y: number(public.y(), DSA_P),
        };
        Ok(Self { public: PublicKey::new(numbers)?, key: Private::Dsa(Box::new(key)) })
    }

    /// The public half.
    #[must_use]
    pub const fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// A signature over `message`, as [`PublicKey::verify`] takes it. RSA is blinded; the nonce of DSA is that of RFC 6979. `None` if the
    /// library fails.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let digest = hash(HashAlg::Sha1, &[message]);
        match &self.key {
            Private::Rsa(key) => {
                let padding = rsa::Pkcs1v15Sign { hash_len: Some(digest.len()), prefix: Box::new(SHA1_INFO) };
                let mut blinding = Blinding::new();
                let signature = key.sign_with_rng(&mut blinding, padding, &digest).ok()?;
                (!blinding.failed).then_some(signature)
            }
            Private::Dsa(key) => {
                let signature: dsa::Signature = key.sign_prehash(&digest).ok()?;
                let number = |n: &BoxedUint| sized(&n.to_be_bytes_trimmed_vartime(), DSA_Q);
                Some([number(signature.r()), number(signature.s())].concat())
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public)
    }
}

/// A number at this width; a longer one as it is.
fn sized(number: &[u8], len: usize) -> Vec<u8> {
    [&vec![0; len.saturating_sub(number.len())], number].concat()
}

/// What blinds an RSA operation. A source that fails is remembered: the signature is not given out then.
pub(crate) struct Blinding {
    source: SystemRandom,
    pub(crate) failed: bool,
}

impl Blinding {
    pub(crate) fn new() -> Self {
        Self { source: SystemRandom::new(), failed: false }
    }
}

impl TryRng for Blinding {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        if self.source.fill(out).is_err() {
            self.failed = true;
            // Anything but what would be drawn again for ever.
            out.fill(0x5a);
        }
        Ok(())
    }
}

impl TryCryptoRng for Blinding {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with OpenSSL 3.0; they protect nothing.
    const RSA: &[u8] = include_bytes!("../../../hip/tests/keys/rsa1024.pem");
    const DSA: &[u8] = include_bytes!("../../../hip/tests/keys/dsa1024.pem");

    #[test]
    fn what_is_signed_verifies_and_nothing_else_does() {
        let fresh = crate::measure::rsa_1024().unwrap();
        for content in [RSA, DSA, fresh.as_bytes()] {
            let key = SigningKey::from_file_content(content).unwrap();
            let mut signature = key.sign(b"message").unwrap();
            let public = PublicKey::new(key.public_key().numbers().clone()).unwrap();
            assert!(public.verify(b"message", &signature), "{public}");
            assert!(!public.verify(b"massage", &signature));
            assert!(!public.verify(b"message", &signature[1..]) && !public.verify(b"message", &[]));
            signature[7] ^= 1;
            assert!(!public.verify(b"message", &signature));
            signature.fill(0);
            assert!(!public.verify(b"message", &signature));
        }
    }

    /// Signatures of `openssl dgst -sha1 -sign` over "message"; that of DSA as r | s.
    #[test]
    fn signatures_of_another_implementation_verify() {
        for (content, signature) in [
            (RSA, include_str!("../../../hip/tests/keys/rsa1024.sig")),
            (DSA, include_str!("../../../hip/tests/keys/dsa1024.sig")),
        ] {
            let key = SigningKey::from_file_content(content).unwrap();
            let signature: Vec<u8> = hex::decode(signature.trim()).unwrap();
            assert!(key.public_key().verify(b"message", &signature), "{}", key.public_key());
            if content == RSA {
                assert_eq!(key.sign(b"message").unwrap(), signature, "PKCS #1 v1.5 has one signature");
            }
        }
    }

    #[test]
    fn numbers_that_make_no_key_are_refused() {
        let numbers =
            |content| SigningKey::from_file_content(content).unwrap().public_key().numbers().clone();
        let Numbers::Rsa { exponent, modulus } = numbers(RSA) else { panic!("RSA") };
        let rsa = |exponent: &[u8], modulus: &[u8]| {
            PublicKey::new(Numbers::Rsa { exponent: exponent.to_vec(), modulus: modulus.to_vec() }).is_ok()
        };
        assert!(rsa(&exponent, &modulus));
        assert!(!rsa(&exponent, &modulus[1..]) && !rsa(&[1; 9], &modulus) && !rsa(&exponent, &[0xff; 513]));
        let Numbers::Dsa { q, p, g, y } = numbers(DSA) else { panic!("DSA") };
        let dsa = |q: &[u8], p: &[u8], g: &[u8], y: &[u8]| {
            let [q, p, g, y] = [q, p, g, y].map(<[u8]>::to_vec);
            PublicKey::new(Numbers::Dsa { q, p, g, y }).is_ok()
        };
        assert!(dsa(&q, &p, &g, &y));
        let (zero, one) = ([0; DSA_P], sized(&[1], DSA_P));
        assert!(!dsa(&q[1..], &p, &g, &y) && !dsa(&q, &p[1..], &g, &y) && !dsa(&q, &p, &g[1..], &y));
        assert!(!dsa(&q, &p, &zero, &y) && !dsa(&q, &p, &g, &zero) && !dsa(&q, &p, &g, &one));
        assert!(!dsa(&q, &p, &p, &y) && !dsa(&q, &p, &g, &p) && !dsa(&q, &p, &g, &[0xff; DSA_P]));
        let even = |n: &[u8]| [&n[..n.len() - 1], &[n[n.len() - 1] & 0xfe]].concat();
        assert!(!dsa(&even(&q), &p, &g, &y) && !dsa(&q, &even(&p), &g, &y));
        for content in [&b""[..], b"0", b"text", &[0x30, 0x82, 0xff, 0xff]] {
            assert!(SigningKey::from_file_content(content).is_err());
        }
    }
}
