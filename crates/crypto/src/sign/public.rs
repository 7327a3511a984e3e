//! Public keys of peers. Owns which keys are strong enough and which scheme goes with which key.

use core::fmt;

use aws_lc_rs::signature::{self, RsaParameters, UnparsedPublicKey, VerificationAlgorithm};
use der::asn1::{ObjectIdentifier, UintRef};
use der::{Decode, Encode, Sequence};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::{Scheme, SignatureError};

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");

/// Bits of an RSA modulus that are accepted. RFC 8247, section 3.1.1: below 2,048 SHOULD NOT; the upper end keeps a hostile
/// certificate from costing seconds.
pub(super) const RSA_BITS: core::ops::RangeInclusive<usize> = 2048..=8192;

/// What a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// RSA.
    Rsa {
        /// Bits of the modulus.
        bits: usize,
    },
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    /// ECDSA on P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// Whether it signs by ECDSA.
    #[must_use]
    pub const fn is_ecdsa(self) -> bool {
        matches!(self, Self::EcdsaP256 | Self::EcdsaP384 | Self::EcdsaP521)
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits } => write!(f, "RSA-{bits}"),
            Self::EcdsaP256 => f.write_str("ECDSA P-256"),
            Self::EcdsaP384 => f.write_str("ECDSA P-384"),
            Self::EcdsaP521 => f.write_str("ECDSA P-521"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// A public key that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// Not DER, or not a SubjectPublicKeyInfo.
    #[error("malformed public key: {0}")]
    Malformed(&'static str),
    /// An algorithm or curve that is not supported.
    #[error(
        "public keys of algorithm {oid} are not supported; RSA, ECDSA on P-256, P-384 and P-521, and Ed25519 are"
    )]
    Unsupported {
        /// Its OID: the curve's, if the algorithm is elliptic.
        oid: String,
    },
    /// RSA outside of 2,048 to 8,192 bits.
    #[error("RSA-{bits} is refused; 2048 to 8192 bits are accepted")]
    RsaSize {
        /// Bits of the modulus.
        bits: usize,
    },
}

/// A public key that verifies signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: KeyKind,
    /// As the back end takes it: RSAPublicKey in DER, an uncompressed point, or 32 bytes.
    encoded: Vec<u8>,
}

/// RFC 8017, appendix A.1.1.
#[derive(Sequence)]
pub(crate) struct RsaPublicKey<'a> {
    pub(crate) modulus: UintRef<'a>,
    pub(crate) exponent: UintRef<'a>,
}

pub(crate) fn modulus_bits(modulus: &UintRef<'_>) -> usize {
    let bytes = modulus.as_bytes();
    bytes.first().map_or(0, |top| bytes.len() * 8 - top.leading_zeros() as usize)
}

impl PublicKey {
    /// From a DER SubjectPublicKeyInfo, as it stands in a certificate.
    ///
    /// # Errors
    /// [`PublicKeyError`], with the algorithm or the size that is not accepted.
    pub fn from_spki_der(der: &[u8]) -> Result<Self, PublicKeyError> {
        let spki = SubjectPublicKeyInfoRef::from_der(der)
            .map_err(|_| PublicKeyError::Malformed("not a SubjectPublicKeyInfo"))?;
        let encoded = spki
            .subject_public_key
            .as_bytes()
            .ok_or(PublicKeyError::Malformed("its bits are not whole bytes"))?;
        let algorithm = spki.algorithm;
        match algorithm.oid {
            RSA | RSA_PSS => Self::from_rsa_der(encoded),
            EC => {
                let curve = algorithm
                    .parameters
                    .and_then(|p| p.decode_as::<ObjectIdentifier>().ok())
                    .ok_or(PublicKeyError::Malformed("an elliptic key without a named curve"))?;
                match curve {
                    P256 => Self::from_point(KeyKind::EcdsaP256, encoded, 65),
                    P384 => Self::from_point(KeyKind::EcdsaP384, encoded, 97),
                    P521 => Self::from_point(KeyKind::EcdsaP521, encoded, 133),
                    other => Err(PublicKeyError::Unsupported { oid: other.to_string() }),
                }
            }
            ED25519 if encoded.len() == 32 => Ok(Self { kind: KeyKind::Ed25519, encoded: encoded.to_vec() }),
            ED25519 => Err(PublicKeyError::Malformed("an Ed25519 key that is not 32 bytes long")),
            other => Err(PublicKeyError::Unsupported { oid: other.to_string() }),
        }
    }

    /// From a DER RSAPublicKey (RFC 8017, appendix A.1.1).
    pub(super) fn from_rsa_der(der: &[u8]) -> Result<Self, PublicKeyError> {
        let malformed = PublicKeyError::Malformed("not an RSAPublicKey");
        let key = RsaPublicKey::from_der(der).map_err(|_| malformed.clone())?;
        let bits = modulus_bits(&key.modulus);
        if !RSA_BITS.contains(&bits) {
            return Err(PublicKeyError::RsaSize { bits });
        }
        if key.exponent.as_bytes().len() > 8 {
            return Err(PublicKeyError::Malformed("an RSA exponent beyond 64 bits"));
        }
        let encoded = key.to_der().map_err(|_| malformed)?;
        Ok(Self { kind: KeyKind::Rsa { bits }, encoded })
    }

    /// From the exponent and the modulus of an RSA key, big-endian, as HIP has them.
    ///
    /// # Errors
    /// As [`PublicKey::from_spki_der`].
    pub fn from_rsa(exponent: &[u8], modulus: &[u8]) -> Result<Self, PublicKeyError> {
        let malformed = |_| PublicKeyError::Malformed("not the numbers of an RSA key");
        let key = RsaPublicKey {
            modulus: UintRef::new(modulus).map_err(malformed)?,
            exponent: UintRef::new(exponent).map_err(malformed)?,
        };
        Self::from_rsa_der(&key.to_der().map_err(malformed)?)
    }

    /// From a point 0x04 | x | y of P-256 or P-384, whichever has its length. Whether it lies on the curve is seen when a
    /// signature is verified.
    ///
    /// # Errors
    /// [`PublicKeyError::Malformed`] for all others.
    pub fn from_ec_point(point: &[u8]) -> Result<Self, PublicKeyError> {
        let kind = if point.len() == 65 { KeyKind::EcdsaP256 } else { KeyKind::EcdsaP384 };
        Self::from_point(kind, point, if kind == KeyKind::EcdsaP256 { 65 } else { 97 })
    }

    /// Exponent and modulus of an RSA key, big-endian without leading zeros.
    #[must_use]
    pub fn rsa_numbers(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let KeyKind::Rsa { .. } = self.kind else { return None };
        let key = RsaPublicKey::from_der(&self.encoded).ok()?;
        Some((key.exponent.as_bytes().to_vec(), key.modulus.as_bytes().to_vec()))
    }

    /// The point 0x04 | x | y of an ECDSA key.
    #[must_use]
    pub fn ec_point(&self) -> Option<&[u8]> {
        self.kind.is_ecdsa().then_some(&self.encoded)
    }

    /// The subjectPublicKey of its SubjectPublicKeyInfo: RSAPublicKey in DER, a point, or 32 bytes.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.encoded
    }

    /// From an uncompressed point (0x04 | x | y) of `len` bytes.
    pub(super) fn from_point(kind: KeyKind, point: &[u8], len: usize) -> Result<Self, PublicKeyError> {
        if point.len() != len || point.first() != Some(&4) {
            return Err(PublicKeyError::Malformed("not an uncompressed point"));
        }
        Ok(Self { kind, encoded: point.to_vec() })
    }

    /// From the 32 bytes of an Ed25519 key.
    pub(super) fn from_ed25519(raw: &[u8]) -> Self {
        Self { kind: KeyKind::Ed25519, encoded: raw.to_vec() }
    }

    /// What the key is.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Verifies a signature in the form of RFC 7427: DER for ECDSA.
    ///
    /// # Errors
    /// [`SignatureError::WrongKey`] or [`SignatureError::Invalid`].
    pub fn verify(&self, scheme: Scheme, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let kind = self.kind;
        let algorithm = verification(scheme, kind).ok_or(SignatureError::WrongKey { scheme, kind })?;
        self.check(algorithm, message, signature, scheme.name())
    }

    /// Verifies an ECDSA signature of the authentication methods 9 to 11 (RFC 4754): r | s at the width of the curve, with the
    /// hash that belongs to it.
    ///
    /// # Errors
    /// [`SignatureError::WrongKey`] unless P-256 comes with SHA-256, P-384 with SHA-384 or P-521 with SHA-512; [`SignatureError::Invalid`].
    pub fn verify_fixed(
        &self,
        scheme: Scheme,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let algorithm: &'static dyn VerificationAlgorithm = match (scheme, self.kind) {
            (Scheme::EcdsaSha256, KeyKind::EcdsaP256) => &signature::ECDSA_P256_SHA256_FIXED,
            (Scheme::EcdsaSha384, KeyKind::EcdsaP384) => &signature::ECDSA_P384_SHA384_FIXED,
            (Scheme::EcdsaSha512, KeyKind::EcdsaP521) => &signature::ECDSA_P521_SHA512_FIXED,
            _ => return Err(SignatureError::WrongKey { scheme, kind: self.kind }),
        };
        self.check(algorithm, message, signature, scheme.name())
    }

    /// Verifies RSASSA-PKCS1-v1_5 with SHA-1. Only for the old RSA method (1), and only where the configuration of the
    /// connection admits such a peer: forgeries of SHA-1 are within reach.
    ///
    /// # Errors
    /// [`SignatureError::NotRsa`] or [`SignatureError::Invalid`].
    pub fn verify_rsa_sha1(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let KeyKind::Rsa { .. } = self.kind else {
            return Err(SignatureError::NotRsa { kind: self.kind });
        };
        const ALGORITHM: &RsaParameters = &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        self.check(ALGORITHM, message, signature, "rsa-pkcs1-sha1")
    }

    fn check(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
        scheme: &'static str,
    ) -> Result<(), SignatureError> {
        UnparsedPublicKey::new(algorithm, &self.encoded)
            .verify(message, signature)
            .map_err(|_| SignatureError::Invalid { scheme, kind: self.kind })
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.kind)
    }
}

fn verification(scheme: Scheme, kind: KeyKind) -> Option<&'static dyn VerificationAlgorithm> {
    use KeyKind::{EcdsaP256, EcdsaP384, EcdsaP521, Rsa};
    Some(match (scheme, kind) {
        (Scheme::RsaPkcs1Sha256, Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (Scheme::RsaPkcs1Sha384, Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (Scheme::RsaPkcs1Sha512, Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA512,
        (Scheme::RsaPssSha256, Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA256,
        (Scheme::RsaPssSha384, Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA384,
        (Scheme::RsaPssSha512, Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA512,
        (Scheme::EcdsaSha256, EcdsaP256) => &signature::ECDSA_P256_SHA256_ASN1,
        (Scheme::EcdsaSha384, EcdsaP256) => &signature::ECDSA_P256_SHA384_ASN1,
        (Scheme::EcdsaSha512, EcdsaP256) => &signature::ECDSA_P256_SHA512_ASN1,
        (Scheme::EcdsaSha256, EcdsaP384) => &signature::ECDSA_P384_SHA256_ASN1,
        (Scheme::EcdsaSha384, EcdsaP384) => &signature::ECDSA_P384_SHA384_ASN1,
        (Scheme::EcdsaSha512, EcdsaP384) => &signature::ECDSA_P384_SHA512_ASN1,
        (Scheme::EcdsaSha256, EcdsaP521) => &signature::ECDSA_P521_SHA256_ASN1,
        (Scheme::EcdsaSha384, EcdsaP521) => &signature::ECDSA_P521_SHA384_ASN1,
        (Scheme::EcdsaSha512, EcdsaP521) => &signature::ECDSA_P521_SHA512_ASN1,
        (Scheme::Ed25519, KeyKind::Ed25519) => &signature::ED25519,
        _ => return None,
    })
}
