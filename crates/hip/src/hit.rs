//! Identities: public keys, their encoding in HOST_ID (RFC 7401 section 5.2.9), and the tags made from them (RFC 7343). Owns which
//! signature goes with which key; must never decide whom to trust.

use core::fmt;
use core::net::Ipv6Addr;

use dormouse_crypto::sign::{KeyKind, PublicKey, Scheme, SigningKey};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{HashAlg, hash};
use dormouse_wire::hip::{DomainId, Hit, HostId, Signature};

/// The context of HIP in an ORCHID (RFC 7401 section 3.2).
const CONTEXT: [u8; 16] =
    [0xf0, 0xef, 0xf0, 0x2f, 0xbf, 0xf4, 0x3d, 0x0f, 0xe7, 0x93, 0x0c, 0x3c, 0x6e, 0x61, 0x74, 0xea];
/// 2001:20::/28 (RFC 7343 section 2), the lowest four bits being those of the suite.
const PREFIX: u32 = 0x2001_0020;
const RSA: u16 = 5;
const ECDSA: u16 = 7;
const CURVE_P256: u16 = 1;
const CURVE_P384: u16 = 2;

/// A HIT suite: how a tag is made, and the hash of everything in an association whose responder has such a tag (RFC 7401 section
/// 5.2.10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HitSuite {
    /// RSA, SHA-256.
    RsaSha256,
    /// ECDSA, SHA-384.
    EcdsaSha384,
}

impl HitSuite {
    /// Every suite.
    pub const ALL: [Self; 2] = [Self::EcdsaSha384, Self::RsaSha256];

    /// Its number: four bits of a tag.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::RsaSha256 => 1,
            Self::EcdsaSha384 => 2,
        }
    }

    /// The suite of a tag; `None` if it is no tag, or of a suite that is not supported.
    #[must_use]
    pub fn of(hit: Hit) -> Option<Self> {
        let head = u32::from_be_bytes(*hit.octets().first_chunk()?);
        Self::ALL.into_iter().find(|suite| head == PREFIX | u32::from(suite.id()))
    }

    /// RHASH.
    #[must_use]
    pub const fn hash(self) -> HashAlg {
        match self {
            Self::RsaSha256 => HashAlg::Sha256,
            Self::EcdsaSha384 => HashAlg::Sha384,
        }
    }

    /// HMAC with RHASH.
    #[must_use]
    pub const fn prf(self) -> Prf {
        match self {
            Self::RsaSha256 => Prf::HmacSha256,
            Self::EcdsaSha384 => Prf::HmacSha384,
        }
    }

    /// The tag of an encoded key: "Encode_96( )" takes the middle 96 bits of the hash (RFC 7343 section 2).
    #[must_use]
    pub fn tag(self, key: &[u8]) -> Hit {
        let hash = hash(self.hash(), &[&CONTEXT, key]);
        let middle = hash.len().saturating_sub(12) / 2;
        let mut octets = [0; 16];
        let (head, tail) = octets.split_at_mut(4);
        head.copy_from_slice(&(PREFIX | u32::from(self.id())).to_be_bytes());
        tail.iter_mut().zip(hash.iter().skip(middle)).for_each(|(to, from)| *to = *from);
        Hit(Ipv6Addr::from(octets))
    }
}

/// An identity that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host identity refused: {0}")]
pub struct BadIdentity(pub &'static str);

/// The public half of an identity.
#[derive(Clone, PartialEq, Eq)]
pub struct HostIdentity {
    host_id: HostId,
    key: PublicKey,
    suite: HitSuite,
    hit: Hit,
}

impl HostIdentity {
    /// From a HOST_ID as it came.
    ///
    /// # Errors
    /// If its algorithm or curve is not supported, or its key is malformed or too short.
    pub fn from_host_id(host_id: HostId) -> Result<Self, BadIdentity> {
        let (suite, key) = match host_id.algorithm {
            RSA => (HitSuite::RsaSha256, rsa_from(&host_id.key)),
            ECDSA => (HitSuite::EcdsaSha384, ecdsa_from(&host_id.key)),
            _ => return Err(BadIdentity("the algorithm is neither RSA nor ECDSA")),
        };
        let key = key.ok_or(BadIdentity("the key is malformed, or RSA below 2,048 bits"))?;
        let hit = suite.tag(&host_id.key);
        Ok(Self { host_id, key, suite, hit })
    }

    /// Of a public key, with the name of its owner.
    ///
    /// # Errors
    /// For a key that is neither RSA nor ECDSA.
    pub fn new(key: &PublicKey, domain: DomainId) -> Result<Self, BadIdentity> {
        let (algorithm, encoded) = match key.kind() {
            KeyKind::Rsa { .. } => (RSA, key.rsa_numbers().map(|(e, n)| encode_rsa(&e, &n))),
            KeyKind::EcdsaP256 => (ECDSA, key.ec_point().map(|p| encode_point(CURVE_P256, p))),
            KeyKind::EcdsaP384 => (ECDSA, key.ec_point().map(|p| encode_point(CURVE_P384, p))),
            KeyKind::Ed25519 => (0, None),
        };
        let key = encoded.ok_or(BadIdentity("the key is neither RSA nor ECDSA"))?;
        Self::from_host_id(HostId { algorithm, key, domain })
    }

    /// Its tag.
    #[must_use]
    pub const fn hit(&self) -> Hit {
        self.hit
    }

    /// Its suite.
    #[must_use]
    pub const fn suite(&self) -> HitSuite {
        self.suite
    }

    /// It, as it stands in packets.
    #[must_use]
    pub const fn host_id(&self) -> &HostId {
        &self.host_id
    }

    /// Whether a signature is this identity's.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        let scheme = scheme(self.key.kind());
        signature.algorithm == self.host_id.algorithm
            && match self.suite {
                HitSuite::RsaSha256 => self.key.verify(scheme, message, &signature.signature).is_ok(),
                HitSuite::EcdsaSha384 => self.key.verify_fixed(scheme, message, &signature.signature).is_ok(),
            }
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostIdentity({}, {})", self.hit, self.key.kind())
    }
}

/// "For RSA signature padding, the Probabilistic Signature Scheme (PSS) method of padding [RFC3447] MUST be used." (RFC 7401 section
/// 5.2.9) ECDSA has the hash that belongs to its curve (RFC 4754).
const fn scheme(kind: KeyKind) -> Scheme {
    match kind {
        KeyKind::EcdsaP256 => Scheme::EcdsaSha256,
        KeyKind::EcdsaP384 => Scheme::EcdsaSha384,
        _ => Scheme::RsaPssSha256,
    }
}

/// RFC 3110 section 2: the length of the exponent in one byte, or in two behind a zero; the exponent; the modulus.
fn rsa_from(encoded: &[u8]) -> Option<PublicKey> {
    let (&len, rest) = encoded.split_first()?;
    let (len, rest) = match len {
        0 => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        len => (usize::from(len), rest),
    };
    let (exponent, modulus) = rest.split_at_checked(len)?;
    PublicKey::from_rsa(exponent, modulus).ok()
}

fn encode_rsa(exponent: &[u8], modulus: &[u8]) -> Vec<u8> {
    match u8::try_from(exponent.len()) {
        Ok(len) => [&[len], exponent, modulus].concat(),
        Err(_) => [&[0], &(exponent.len() as u16).to_be_bytes()[..], exponent, modulus].concat(),
    }
}

fn ecdsa_from(encoded: &[u8]) -> Option<PublicKey> {
    let (curve, point) = encoded.split_first_chunk()?;
    let len = match u16::from_be_bytes(*curve) {
        CURVE_P256 => 65,
        CURVE_P384 => 97,
        _ => return None,
    };
    (point.len() == len).then(|| PublicKey::from_ec_point(point).ok())?
}

fn encode_point(curve: u16, point: &[u8]) -> Vec<u8> {
    [&curve.to_be_bytes(), point].concat()
}

/// An identity of ours.
#[derive(Debug)]
pub struct Identity {
    key: SigningKey,
    public: HostIdentity,
}

impl Identity {
    /// Of a private key, with the name that we have.
    ///
    /// # Errors
    /// For a key that is neither RSA nor ECDSA.
    pub fn new(key: SigningKey, domain: DomainId) -> Result<Self, BadIdentity> {
        let public = HostIdentity::new(key.public_key(), domain)?;
        Ok(Self { key, public })
    }

    /// The public half.
    #[must_use]
    pub const fn public(&self) -> &HostIdentity {
        &self.public
    }

    /// Its tag.
    #[must_use]
    pub const fn hit(&self) -> Hit {
        self.public.hit
    }

    /// A signature; `None` if the library, or the token that holds the key, fails.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Signature> {
        let scheme = scheme(self.public.key.kind());
        let signature = match self.public.suite {
            HitSuite::RsaSha256 => self.key.sign(scheme, message),
            HitSuite::EcdsaSha384 => self.key.sign_fixed(scheme, message),
        };
        Some(Signature { algorithm: self.public.host_id.algorithm, signature: signature.ok()? })
    }
}
