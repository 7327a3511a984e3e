//! Signatures as IKEv2 uses them: keys, schemes, and the AlgorithmIdentifiers of RFC 7427. Owns what may sign and what may be
//! verified; what is signed (RFC 7296, section 2.15) is the business of IKE.
//!
//! SHA-1 signs nothing and is no [`Scheme`]: RFC 8247, section 3.2, forbids it in digital signatures. The one concession is
//! [`PublicKey::verify_rsa_sha1`] for peers whose old RSA method (1) knows nothing else, to be called only where the
//! configuration says so.

mod algorithm_identifier;
mod generate;
mod private;
mod public;

pub use algorithm_identifier::{algorithm_identifier, from_algorithm_identifier};
pub use generate::NewKey;
pub(crate) use generate::pem as key_pem;
pub use private::{PrivateKeyError, Signer, SigningKey};
pub use public::{KeyKind, PublicKey, PublicKeyError};
pub(crate) use public::{RsaPublicKey, modulus_bits};

use core::fmt;

use crate::hash::HashAlg;

/// A signature algorithm with its hash. The curve of ECDSA is the key's affair, as in RFC 7427.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256, MGF1 with the same, and a salt of 32 bytes.
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384, MGF1 with the same, and a salt of 48 bytes.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512, MGF1 with the same, and a salt of 64 bytes.
    RsaPssSha512,
    /// ECDSA with SHA-256.
    EcdsaSha256,
    /// ECDSA with SHA-384.
    EcdsaSha384,
    /// ECDSA with SHA-512: made with P-521, verified with every curve.
    EcdsaSha512,
    /// Ed25519 (RFC 8420).
    Ed25519,
}

/// "Identity" in the registry of hash algorithms (RFC 8420, section 2): the scheme hashes by itself.
const HASH_IDENTITY: u16 = 5;

impl Scheme {
    /// Every scheme.
    pub const ALL: [Self; 10] = [
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssSha256,
        Self::RsaPssSha384,
        Self::RsaPssSha512,
        Self::EcdsaSha256,
        Self::EcdsaSha384,
        Self::EcdsaSha512,
        Self::Ed25519,
    ];

    /// The hash numbers to announce in SIGNATURE_HASH_ALGORITHMS (RFC 7427, section 4): SHA-256, 384, 512 and Identity.
    pub const HASH_IDS: [u16; 4] = [2, 3, 4, HASH_IDENTITY];

    /// The hash applied to the message; `None` for Ed25519, which takes it whole.
    #[must_use]
    pub const fn hash(self) -> Option<HashAlg> {
        match self {
            Self::RsaPkcs1Sha256 | Self::RsaPssSha256 | Self::EcdsaSha256 => Some(HashAlg::Sha256),
            Self::RsaPkcs1Sha384 | Self::RsaPssSha384 | Self::EcdsaSha384 => Some(HashAlg::Sha384),
            Self::RsaPkcs1Sha512 | Self::RsaPssSha512 | Self::EcdsaSha512 => Some(HashAlg::Sha512),
            Self::Ed25519 => None,
        }
    }

    /// The number that the peer must have announced in SIGNATURE_HASH_ALGORITHMS before this scheme may be used.
    #[must_use]
    pub const fn hash_id(self) -> u16 {
        match self.hash() {
            Some(hash) => hash.ike_id(),
            None => HASH_IDENTITY,
        }
    }

    /// The name in logs and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RsaPkcs1Sha256 => "rsa-pkcs1-sha256",
            Self::RsaPkcs1Sha384 => "rsa-pkcs1-sha384",
            Self::RsaPkcs1Sha512 => "rsa-pkcs1-sha512",
            Self::RsaPssSha256 => "rsa-pss-sha256",
            Self::RsaPssSha384 => "rsa-pss-sha384",
            Self::RsaPssSha512 => "rsa-pss-sha512",
            Self::EcdsaSha256 => "ecdsa-sha256",
            Self::EcdsaSha384 => "ecdsa-sha384",
            Self::EcdsaSha512 => "ecdsa-sha512",
            Self::Ed25519 => "ed25519",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A signature that cannot be made or does not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The key cannot do this scheme.
    #[error("a key of kind {kind} cannot be used with {scheme}")]
    WrongKey {
        /// The scheme asked for.
        scheme: Scheme,
        /// What the key is.
        kind: KeyKind,
    },
    /// The old RSA method was used with a key that is not RSA.
    #[error("a key of kind {kind} cannot be used with the RSA authentication method")]
    NotRsa {
        /// What the key is.
        kind: KeyKind,
    },
    /// The signature does not belong to this message and key.
    #[error("the {scheme} signature does not verify under the peer's {kind} key")]
    Invalid {
        /// The scheme claimed, by name.
        scheme: &'static str,
        /// What the key is.
        kind: KeyKind,
    },
    /// A key that is held elsewhere took too long.
    #[error("the signature did not come in time")]
    Late,
    /// The library failed.
    #[error("signing with {scheme} failed")]
    Backend {
        /// The scheme asked for.
        scheme: Scheme,
    },
}
