//! Our own signing keys, from the files that people have. Owns the recognition of formats and the errors that say what a file
//! held instead; it must never show a key.

#![expect(
    clippy::disallowed_types,
    reason = "the library takes no other source for blinding and nonces of signatures"
)]

use core::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING,
    ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaSignatureEncoding,
};
use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef, UintRef};
use der::{Decode, Encode, Reader, Sequence, SliceReader, Tag, Tagged};
use x509_cert::spki::AlgorithmIdentifierRef;

use super::public::{RSA_BITS, modulus_bits};
use super::{KeyKind, PublicKey, PublicKeyError, Scheme, SignatureError};
use crate::pem;

/// A private key file that cannot be used. Never holds a part of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrivateKeyError {
    /// The file holds no private key.
    #[error(
        "no private key here: {found}; a PEM section PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY is needed"
    )]
    NotAKey {
        /// What it holds.
        found: String,
    },
    /// The key is encrypted.
    #[error("the private key is encrypted ({label}); decrypt it with: openssl pkey -in FILE -out KEY")]
    Encrypted {
        /// The PEM section found.
        label: String,
    },
    /// The PEM armour is damaged.
    #[error("damaged PEM: {0}")]
    Pem(String),
    /// The content is no key that could be read.
    #[error("the {label} is malformed, or its parts do not belong together")]
    Malformed {
        /// What it was taken for.
        label: &'static str,
    },
    /// An elliptic-curve key that is of no supported curve, or cannot be read.
    #[error(
        "the elliptic-curve key is of no curve that is supported (P-256, P-384 and P-521 are), or damaged"
    )]
    Curve,
    /// A key in a token.
    #[error("{0}")]
    Elsewhere(&'static str),
    /// An algorithm, curve or size that is not supported.
    #[error(transparent)]
    Unsupported(#[from] PublicKeyError),
}

/// Signs with a private key that is held elsewhere: in a token.
pub trait Signer: Send + Sync {
    /// The signature over `message`, hashed as `scheme` says; of ECDSA r | s at the width of the curve. `None` if it cannot be made, which
    /// the signer has logged.
    fn sign(&self, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>>;
}

/// A private key that signs. Wiped when dropped.
pub struct SigningKey {
    key: Key,
    public: PublicKey,
}

enum Key {
    Rsa(RsaKeyPair),
    /// One pair for each encoding of a signature: the back end ties the two together.
    Ecdsa {
        der: EcdsaKeyPair,
        fixed: EcdsaKeyPair,
    },
    Ed25519(Ed25519KeyPair),
    Elsewhere(Box<dyn Signer>),
}

const RSA_SCHEMES: [Scheme; 6] = [
    Scheme::RsaPssSha256,
    Scheme::RsaPssSha384,
    Scheme::RsaPssSha512,
    Scheme::RsaPkcs1Sha256,
    Scheme::RsaPkcs1Sha384,
    Scheme::RsaPkcs1Sha512,
];

impl SigningKey {
    /// From a PEM or DER file, whichever it is.
    ///
    /// # Errors
    /// [`PrivateKeyError`], which says what the file held.
    pub fn from_file_content(content: &[u8]) -> Result<Self, PrivateKeyError> {
        if content.first() == Some(&0x30) { Self::from_der(content) } else { Self::from_pem(content) }
    }

    /// A key that is held elsewhere. `public` is that of its certificate: one signature shows whether they belong together.
    ///
    /// # Errors
    /// [`PrivateKeyError::Elsewhere`] if it does not sign, or with another key.
    pub fn elsewhere(public: PublicKey, signer: Box<dyn Signer>) -> Result<Self, PrivateKeyError> {
        const MESSAGE: &[u8] = b"dormouse: is this the key of the certificate?";
        let key = Self { key: Key::Elsewhere(signer), public };
        let scheme = *key.schemes().first().ok_or(PrivateKeyError::Elsewhere("it has no scheme"))?;
        let signature =
            key.sign(scheme, MESSAGE).map_err(|_| PrivateKeyError::Elsewhere("it does not sign"))?;
        let verified = key.public.verify(scheme, MESSAGE, &signature);
        verified.map_err(|_| PrivateKeyError::Elsewhere("it is not the key of the certificate"))?;
        Ok(key)
    }

    /// From the first private key in a PEM file: PKCS #8, PKCS #1 or SEC 1. Other sections are passed over.
    ///
    /// # Errors
    /// [`PrivateKeyError`], which says what the file held.
    pub fn from_pem(content: &[u8]) -> Result<Self, PrivateKeyError> {
        let labels = pem::labels(content);
        let known = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];
        let Some(label) = labels.iter().find(|label| label.ends_with("PRIVATE KEY")) else {
            return Err(PrivateKeyError::NotAKey { found: pem::describe(content) });
        };
        if !known.contains(&label.as_str()) || pem::is_encrypted(content) {
            return Err(match label.as_str() {
                "DSA PRIVATE KEY" | "OPENSSH PRIVATE KEY" => {
                    PrivateKeyError::NotAKey { found: pem::describe(content) }
                }
                _ => PrivateKeyError::Encrypted { label: label.clone() },
            });
        }
        let der = pem::first_section(content, label).map_err(PrivateKeyError::Pem)?;
        Self::from_der(der.as_bytes())
    }

    /// From DER: PKCS #8, PKCS #1 or SEC 1, told apart by their structure.
    ///
    /// # Errors
    /// [`PrivateKeyError`], which says what the bytes were taken for.
    pub fn from_der(der: &[u8]) -> Result<Self, PrivateKeyError> {
        match recognise(der) {
            Some(Format::Pkcs8(Algorithm::Rsa(bits))) => {
                rsa(bits, "PKCS #8 RSA key", RsaKeyPair::from_pkcs8(der).ok())
            }
            Some(Format::Pkcs1(bits)) => rsa(bits, "PKCS #1 RSA key", RsaKeyPair::from_der(der).ok()),
            Some(Format::Pkcs8(Algorithm::Ec) | Format::Sec1) => ecdsa(der),
            Some(Format::Pkcs8(Algorithm::Ed25519)) => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
                    .map_err(|_| PrivateKeyError::Malformed { label: "PKCS #8 Ed25519 key" })?;
                let public = PublicKey::from_ed25519(pair.public_key().as_ref());
                Ok(Self { key: Key::Ed25519(pair), public })
            }
            Some(Format::Pkcs8(Algorithm::Other(oid))) => {
                Err(PublicKeyError::Unsupported { oid: oid.to_string() }.into())
            }
            None => Err(PrivateKeyError::NotAKey { found: pem::describe(der) }),
        }
    }

    /// Whether it is held elsewhere: then a signature may take long.
    #[must_use]
    pub const fn is_elsewhere(&self) -> bool {
        matches!(self.key, Key::Elsewhere(_))
    }

    /// Whether a signature takes as long as sealing hundreds of packets, as with RSA (`docs/benchmarks.md`, "handshake").
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self.public.kind(), KeyKind::Rsa { .. })
    }

    /// The schemes that this key can sign with, the most advisable first (RFC 8247, section 3.2: PSS before PKCS #1 v1.5).
    #[must_use]
    pub fn schemes(&self) -> &'static [Scheme] {
        match self.public.kind() {
            KeyKind::Rsa { .. } => &RSA_SCHEMES,
            KeyKind::EcdsaP256 => &[Scheme::EcdsaSha256],
            KeyKind::EcdsaP384 => &[Scheme::EcdsaSha384],
            KeyKind::EcdsaP521 => &[Scheme::EcdsaSha512],
            KeyKind::Ed25519 => &[Scheme::Ed25519],
        }
    }

    /// The public half. It equals [`Certificate::public_key`](crate::cert::Certificate::public_key) of the certificate that
    /// belongs to this key.
    #[must_use]
    pub const fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Signs `message` in the form of RFC 7427: DER for ECDSA. The back end draws the randomness that ECDSA and PSS need.
    ///
    /// # Errors
    /// [`SignatureError::WrongKey`] if `scheme` is not one of [`SigningKey::schemes`].
    pub fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        let failed = SignatureError::Backend { scheme };
        if !self.schemes().contains(&scheme) {
            return Err(self.wrong_key(scheme));
        }
        match &self.key {
            Key::Rsa(pair) => {
                let encoding = rsa_encoding(scheme).ok_or_else(|| self.wrong_key(scheme))?;
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut signature).map_err(|_| failed)?;
                Ok(signature)
            }
            Key::Ecdsa { der, .. } => {
                Ok(der.sign(&SystemRandom::new(), message).map_err(|_| failed)?.as_ref().to_vec())
            }
            Key::Ed25519(pair) => Ok(pair.try_sign(message).map_err(|_| failed)?.as_ref().to_vec()),
            Key::Elsewhere(signer) => {
                let signature = signer.sign(scheme, message).ok_or(failed)?;
                match self.public.kind().is_ecdsa() {
                    true => ecdsa_der(&signature).ok_or(failed),
                    false => Ok(signature),
                }
            }
        }
    }

    /// Signs for the authentication methods 9 to 11 (RFC 4754): r | s at the width of the curve.
    ///
    /// # Errors
    /// [`SignatureError::WrongKey`] unless P-256 comes with SHA-256, P-384 with SHA-384 or P-521 with SHA-512.
    pub fn sign_fixed(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        match &self.key {
            Key::Ecdsa { fixed, .. } if self.schemes().contains(&scheme) => {
                let signature = fixed.sign(&SystemRandom::new(), message);
                Ok(signature.map_err(|_| SignatureError::Backend { scheme })?.as_ref().to_vec())
            }
            Key::Elsewhere(signer) if self.schemes().contains(&scheme) && self.public.kind().is_ecdsa() => {
                signer.sign(scheme, message).ok_or(SignatureError::Backend { scheme })
            }
            _ => Err(self.wrong_key(scheme)),
        }
    }

    const fn wrong_key(&self, scheme: Scheme) -> SignatureError {
        SignatureError::WrongKey { scheme, kind: self.public.kind() }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.kind())
    }
}

enum Format {
    Pkcs8(Algorithm),
    /// With the bits of the modulus.
    Pkcs1(usize),
    Sec1,
}

enum Algorithm {
    /// With the bits of the modulus.
    Rsa(usize),
    Ec,
    Ed25519,
    Other(ObjectIdentifier),
}

/// All three formats are a SEQUENCE that begins with a version; what follows tells them apart: an AlgorithmIdentifier
/// (RFC 5958), the modulus (RFC 8017) or an OCTET STRING (RFC 5915).
fn recognise(der: &[u8]) -> Option<Format> {
    const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
    const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
    const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
    let mut reader = version_of(der)?;
    match reader.peek_byte()? {
        0x30 => Some(Format::Pkcs8(match AlgorithmIdentifierRef::decode(&mut reader).ok()?.oid {
            RSA => {
                let inner = <&OctetStringRef>::decode(&mut reader).ok()?;
                let mut inner = version_of(inner.as_bytes())?;
                Algorithm::Rsa(modulus_bits(&UintRef::decode(&mut inner).ok()?))
            }
            EC => Algorithm::Ec,
            ED25519 => Algorithm::Ed25519,
            other => Algorithm::Other(other),
        })),
        0x02 => UintRef::decode(&mut reader).ok().map(|modulus| Format::Pkcs1(modulus_bits(&modulus))),
        0x04 => <&OctetStringRef>::decode(&mut reader).ok().map(|_| Format::Sec1),
        _ => None,
    }
}

/// What follows the version in a SEQUENCE that begins with one.
fn version_of(der: &[u8]) -> Option<SliceReader<'_>> {
    let body = AnyRef::from_der(der).ok().filter(|any| any.tag() == Tag::Sequence)?;
    let mut reader = SliceReader::new(body.value()).ok()?;
    u8::decode(&mut reader).ok()?;
    Some(reader)
}

/// The size is checked before the pair is looked at: "RSA-1024 is refused" helps more than "malformed".
fn rsa(bits: usize, label: &'static str, pair: Option<RsaKeyPair>) -> Result<SigningKey, PrivateKeyError> {
    if !RSA_BITS.contains(&bits) {
        return Err(PublicKeyError::RsaSize { bits }.into());
    }
    let pair = pair.ok_or(PrivateKeyError::Malformed { label })?;
    let public = PublicKey::from_rsa_der(pair.public_key().as_ref())?;
    Ok(SigningKey { key: Key::Rsa(pair), public })
}

fn ecdsa(der: &[u8]) -> Result<SigningKey, PrivateKeyError> {
    let curves = [
        (KeyKind::EcdsaP256, 65, &ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P256_SHA256_FIXED_SIGNING),
        (KeyKind::EcdsaP384, 97, &ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P384_SHA384_FIXED_SIGNING),
        (KeyKind::EcdsaP521, 133, &ECDSA_P521_SHA512_ASN1_SIGNING, &ECDSA_P521_SHA512_FIXED_SIGNING),
    ];
    for (kind, len, asn1, fixed) in curves {
        let pair = EcdsaKeyPair::from_private_key_der(asn1, der);
        if let (Ok(asn1), Ok(fixed)) = (pair, EcdsaKeyPair::from_private_key_der(fixed, der)) {
            let public = PublicKey::from_point(kind, asn1.public_key().as_ref(), len)?;
            return Ok(SigningKey { key: Key::Ecdsa { der: asn1, fixed }, public });
        }
    }
    Err(PrivateKeyError::Curve)
}

/// ECDSA-Sig-Value (RFC 3279, section 2.2.3) of r | s.
fn ecdsa_der(fixed: &[u8]) -> Option<Vec<u8>> {
    #[derive(Sequence)]
    struct Value<'a> {
        r: UintRef<'a>,
        s: UintRef<'a>,
    }
    let (r, s) = fixed.split_at_checked(fixed.len() / 2).filter(|(r, s)| r.len() == s.len())?;
    Value { r: UintRef::new(r).ok()?, s: UintRef::new(s).ok()? }.to_der().ok()
}

fn rsa_encoding(scheme: Scheme) -> Option<&'static RsaSignatureEncoding> {
    Some(match scheme {
        Scheme::RsaPkcs1Sha256 => &RSA_PKCS1_SHA256,
        Scheme::RsaPkcs1Sha384 => &RSA_PKCS1_SHA384,
        Scheme::RsaPkcs1Sha512 => &RSA_PKCS1_SHA512,
        Scheme::RsaPssSha256 => &RSA_PSS_SHA256,
        Scheme::RsaPssSha384 => &RSA_PSS_SHA384,
        Scheme::RsaPssSha512 => &RSA_PSS_SHA512,
        _ => return None,
    })
}
