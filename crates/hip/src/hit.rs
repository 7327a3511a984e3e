//! Identities: public keys, their encoding in HOST_ID (RFC 7401 section 5.2.9), and the tags made from them (RFC 7343). Owns which
//! signature goes with which key; must never decide whom to trust.
//!
//! Tags of version 1 (RFC 5201) have a prefix of their own (RFC 4843), so that a tag says which version its host speaks: an association
//! has the version of its two tags, and no peer can lead one into the other.

use core::fmt;
use core::net::Ipv6Addr;

use dormouse_crypto::hip::v1;
use dormouse_crypto::sign::{KeyKind, PublicKey, Scheme, SigningKey};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{HashAlg, hash};
use dormouse_wire::hip::{DomainId, Hit, HostId, Signature, Version};

/// The context of HIP in an ORCHID (RFC 7401 section 3.2).
const CONTEXT: [u8; 16] =
    [0xf0, 0xef, 0xf0, 0x2f, 0xbf, 0xf4, 0x3d, 0x0f, 0xe7, 0x93, 0x0c, 0x3c, 0x6e, 0x61, 0x74, 0xea];
/// 2001:20::/28 (RFC 7343 section 2), the lowest four bits being those of the suite.
const PREFIX: u32 = 0x2001_0020;
/// 2001:10::/28 (RFC 4843 section 2), behind which 100 bits of a hash follow.
const PREFIX_V1: u32 = 0x0200_1001;
/// What precedes a key in a HOST_ID of version 1, but for the algorithm: flags and protocol of a KEY record (RFC 2535 section 3.1) that is a
/// host's and for all protocols.
const KEY_RECORD: [u8; 3] = [0x02, 0x02, 0xff];
const DSA: u16 = 3;
/// T of a DSA key: its prime has 64 + 8 * T bytes (RFC 2536 section 2).
const DSA_T: u8 = 8;
const RSA: u16 = 5;
const ECDSA: u16 = 7;
const CURVE_P256: u16 = 1;
const CURVE_P384: u16 = 2;

/// "HIP implementations MUST support the Rivest Shamir Adleman [RSA] public key algorithm and the Elliptic Curve Digital Signature
/// Algorithm (ECDSA) for generating the HI as defined in Section 5.2.9." (RFC 7401 section 3)
/// "Any ECDSA used with HIP MUST have a co-factor of 1." (RFC 7401 section 5.2.9)
/// A HIT suite: how a tag is made, and the hash of everything in an association whose responder has such a tag (RFC 7401 section
/// 5.2.10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HitSuite {
    /// RSA, SHA-256.
    RsaSha256,
    /// ECDSA, SHA-384.
    EcdsaSha384,
    /// RSA or DSA, SHA-1: the only one of version 1.
    Sha1,
}

impl HitSuite {
    /// Every suite of version 2.
    pub const ALL: [Self; 2] = [Self::EcdsaSha384, Self::RsaSha256];

    /// Its number: four bits of a tag; 0 in version 1, which has none.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Sha1 => 0,
            Self::RsaSha256 => 1,
            Self::EcdsaSha384 => 2,
        }
    }

    /// The suite of a tag; `None` if it is no tag, or of a suite that is not supported.
    #[must_use]
    pub fn of(hit: Hit) -> Option<Self> {
        let head = u32::from_be_bytes(*hit.octets().first_chunk()?);
        let v1 = (head >> 4 == PREFIX_V1).then_some(Self::Sha1);
        v1.or_else(|| Self::ALL.into_iter().find(|suite| head == PREFIX | u32::from(suite.id())))
    }

    /// The version of the protocol that has such tags.
    #[must_use]
    pub const fn version(self) -> Version {
        if matches!(self, Self::Sha1) { Version::V1 } else { Version::V2 }
    }

    /// Length of the numbers I and J of a puzzle, in bytes.
    #[must_use]
    pub fn puzzle_len(self) -> usize {
        match self {
            Self::Sha1 => 8,
            _ => self.hash().output_len(),
        }
    }

    /// RHASH.
    #[must_use]
    pub const fn hash(self) -> HashAlg {
        match self {
            Self::RsaSha256 => HashAlg::Sha256,
            Self::EcdsaSha384 => HashAlg::Sha384,
            Self::Sha1 => HashAlg::Sha1,
        }
    }

    /// HMAC with RHASH.
    #[must_use]
    pub const fn prf(self) -> Prf {
        match self {
            Self::RsaSha256 => Prf::HmacSha256,
            Self::EcdsaSha384 => Prf::HmacSha384,
            Self::Sha1 => Prf::HmacSha1,
        }
    }

    /// The tag of an encoded key: "Encode_96( )" takes the middle 96 bits of the hash (RFC 7343 section 2), "Encode_n" of version 1
    /// the middle 100 (RFC 4843 section 2).
    /// "The HIT MUST be generated according to the ORCHID generation method described in [RFC7343] using a context ID value of 0xF0EF F02F
    /// BFF4 3D0F E793 0C3C 6E61 74EA" (RFC 7401 section 3.2)
    #[must_use]
    pub fn tag(self, key: &[u8]) -> Hit {
        let hash = hash(self.hash(), &[&CONTEXT, key]);
        let bits = if self == Self::Sha1 { 100 } else { 96 };
        // The lowest bits of a number that begins where those 128 do that end with the middle.
        let end = (hash.len() * 8 + bits) / 2;
        let number = hash.iter().take(end.div_ceil(8)).fold(0u128, |n, byte| n << 8 | u128::from(*byte));
        let middle = number >> (end.div_ceil(8) * 8 - end) & ((1 << bits) - 1);
        let head = match self {
            Self::Sha1 => u128::from(PREFIX_V1),
            _ => u128::from(PREFIX) | u128::from(self.id()),
        };
        Hit(Ipv6Addr::from_bits(head << bits | middle))
    }
}

/// Whether hosts with these tags speak the same version of the protocol.
pub(crate) fn speak_alike(one: Hit, other: Hit) -> bool {
    let version = |tag| HitSuite::of(tag).map(HitSuite::version);
    version(one).is_some() && version(one) == version(other)
}

/// An identity that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host identity refused: {0}")]
pub struct BadIdentity(pub &'static str);

/// The public half of an identity.
#[derive(Clone, PartialEq, Eq)]
pub struct HostIdentity {
    host_id: HostId,
    key: Key,
    suite: HitSuite,
    hit: Hit,
}

#[derive(Clone, PartialEq, Eq)]
enum Key {
    V1(v1::PublicKey),
    V2(PublicKey),
}

impl HostIdentity {
    /// From the HOST_ID of the host with this tag, as it came: the tag is compared first, as a hash costs less than a key.
    ///
    /// # Errors
    /// As [`Self::from_host_id`]; `None` if the tag is another's.
    pub(crate) fn of(tag: Hit, host_id: HostId, version: Version) -> Result<Option<Self>, BadIdentity> {
        match (version, host_id.key.as_slice()) {
            (Version::V1, [_, _, _, _, encoded @ ..]) if HitSuite::Sha1.tag(encoded) != tag => {
                return Ok(None);
            }
            _ => {}
        }
        Ok(Some(Self::from_host_id(host_id, version)?).filter(|it| it.hit == tag))
    }

    /// From a HOST_ID as it came.
    ///
    /// # Errors
    /// If its algorithm or curve is not supported, or its key is malformed or too short.
    pub fn from_host_id(host_id: HostId, version: Version) -> Result<Self, BadIdentity> {
        let malformed = BadIdentity("the key is malformed, or too short");
        if version == Version::V1 {
            let [_, _, _, algorithm, encoded @ ..] = host_id.key.as_slice() else { return Err(malformed) };
            let key = match u16::from(*algorithm) {
                RSA => rsa_numbers(encoded)
                    .map(|(e, n)| v1::Numbers::Rsa { exponent: e.into(), modulus: n.into() }),
                DSA => dsa_numbers(encoded),
                _ => return Err(BadIdentity("the algorithm is neither RSA nor DSA")),
            };
            let key = v1::PublicKey::new(key.ok_or(malformed)?).map_err(|e| BadIdentity(e.0))?;
            let (suite, hit) = (HitSuite::Sha1, HitSuite::Sha1.tag(encoded));
            return Ok(Self { key: Key::V1(key), suite, hit, host_id });
        }
        let (suite, key) = match host_id.algorithm {
            RSA => (HitSuite::RsaSha256, rsa_from(&host_id.key)),
            ECDSA => (HitSuite::EcdsaSha384, ecdsa_from(&host_id.key)),
            _ => return Err(BadIdentity("the algorithm is neither RSA nor ECDSA")),
        };
        let key = Key::V2(key.ok_or(malformed)?);
        let hit = suite.tag(&host_id.key);
        Ok(Self { host_id, key, suite, hit })
    }

    /// In version 1, of a public key, with the name of its owner.
    fn v1(key: &v1::PublicKey, domain: DomainId) -> Result<Self, BadIdentity> {
        let (algorithm, encoded) = match key.numbers() {
            v1::Numbers::Rsa { exponent, modulus } => (RSA, encode_rsa(exponent, modulus)),
            v1::Numbers::Dsa { q, p, g, y } => (DSA, [&[DSA_T], &q[..], p, g, y].concat()),
        };
        let key = [&KEY_RECORD[..], &[algorithm.to_be_bytes()[1]], &encoded].concat();
        Self::from_host_id(HostId { algorithm: 0, key, domain }, Version::V1)
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
            KeyKind::EcdsaP521 | KeyKind::Ed25519 => (0, None),
        };
        let key = encoded.ok_or(BadIdentity("the key is neither RSA nor ECDSA on P-256 or P-384"))?;
        Self::from_host_id(HostId { algorithm, key, domain }, Version::V2)
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

    /// The number of its signatures' algorithm.
    fn algorithm(&self) -> u16 {
        match &self.key {
            Key::V1(key) if matches!(key.numbers(), v1::Numbers::Dsa { .. }) => DSA,
            Key::V1(_) => RSA,
            Key::V2(_) => self.host_id.algorithm,
        }
    }

    /// Whether a signature is this identity's.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        let Signature { algorithm, signature } = signature;
        *algorithm == self.algorithm()
            && match &self.key {
                // "T | R | S" (RFC 2536 section 3)
                Key::V1(key) if *algorithm == DSA => match signature.split_first() {
                    Some((&DSA_T, rest)) => key.verify(message, rest),
                    _ => false,
                },
                Key::V1(key) => key.verify(message, signature),
                Key::V2(key) => {
                    let scheme = scheme(key.kind());
                    match key.kind() {
                        KeyKind::Rsa { .. } => key.verify(scheme, message, signature).is_ok(),
                        _ => key.verify_fixed(scheme, message, signature).is_ok(),
                    }
                }
            }
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Key::V1(key) => write!(f, "HostIdentity({}, {key})", self.hit),
            Key::V2(key) => write!(f, "HostIdentity({}, {})", self.hit, key.kind()),
        }
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
fn rsa_numbers(encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = encoded.split_first()?;
    let (len, rest) = match len {
        0 => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        len => (usize::from(len), rest),
    };
    rest.split_at_checked(len)
}

fn rsa_from(encoded: &[u8]) -> Option<PublicKey> {
    let (exponent, modulus) = rsa_numbers(encoded)?;
    PublicKey::from_rsa(exponent, modulus).ok()
}

/// RFC 2536 section 2: T, Q, P, G, Y.
fn dsa_numbers(encoded: &[u8]) -> Option<v1::Numbers> {
    let (&[DSA_T], rest) = encoded.split_first_chunk()? else { return None };
    let (q, rest) = rest.split_at_checked(20)?;
    let mut of_prime = rest.chunks(128).map(<[u8]>::to_vec);
    let (p, g, y) = (of_prime.next()?, of_prime.next()?, of_prime.next()?);
    of_prime.next().is_none().then(|| v1::Numbers::Dsa { q: q.to_vec(), p, g, y })
}

/// "The fields MUST be encoded in network byte order, as defined in [RFC3110]." (RFC 7401 section 3.2)
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
    key: Private,
    public: HostIdentity,
}

#[derive(Debug)]
enum Private {
    V1(v1::SigningKey),
    V2(SigningKey),
}

impl Identity {
    /// Of a private key, with the name that we have.
    ///
    /// # Errors
    /// For a key that is neither RSA nor ECDSA.
    pub fn new(key: SigningKey, domain: DomainId) -> Result<Self, BadIdentity> {
        let public = HostIdentity::new(key.public_key(), domain)?;
        Ok(Self { key: Private::V2(key), public })
    }

    /// In version 1 of the protocol, for peers that know no other.
    ///
    /// # Errors
    /// If the key's numbers cannot be written as version 1 has them.
    pub fn v1(key: v1::SigningKey, domain: DomainId) -> Result<Self, BadIdentity> {
        let public = HostIdentity::v1(key.public_key(), domain)?;
        Ok(Self { key: Private::V1(key), public })
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
        let algorithm = self.public.algorithm();
        let signature = match &self.key {
            Private::V1(key) => {
                let t: &[u8] = if algorithm == DSA { &[DSA_T] } else { &[] };
                [t, &key.sign(message)?].concat()
            }
            Private::V2(key) => {
                let kind = key.public_key().kind();
                let signature = match kind {
                    KeyKind::Rsa { .. } => key.sign(scheme(kind), message),
                    _ => key.sign_fixed(scheme(kind), message),
                };
                signature.ok()?
            }
        };
        Some(Signature { algorithm, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That costs a hash; a key of DSA is looked at for some milliseconds.
    #[test]
    fn the_tag_is_compared_before_a_key_is_made() {
        let key = [&KEY_RECORD[..], &DSA.to_be_bytes()[1..], &[DSA_T; 9]].concat();
        let host_id = HostId { algorithm: 0, key, domain: DomainId::default() };
        let own = HitSuite::Sha1.tag(&[DSA_T; 9]);
        let made = |tag| HostIdentity::of(tag, host_id.clone(), Version::V1).map(|it| it.is_some());
        assert!(made(own).is_err(), "it is no key");
        assert_eq!(made(Hit::NULL), Ok(false));
    }
}
