//! Authentication (RFC 7296, sections 2.15 and 2.16; RFC 7427 and RFC 8420 for signatures; RFC 4754 for ECDSA; RFC 5723, section
//! 4.3.3, for resumption). Owns what is signed, how, and what of the peer must hold before it is believed; must never choose a
//! connection.
//!
//! A certificate is believed in this order: chain and key usage against the trust store, the identity of the ID payload in the
//! certificate, that identity against the configuration, and the signature over this very exchange.

use core::fmt;
use std::sync::Arc;

use dormouse_crypto::cert::{
    CertError, Certificate, CertificateError, Identity, IdentityError, KnownPaths, Verified,
};
use dormouse_crypto::sign::{
    PublicKey, Scheme, SignatureError, SigningKey, algorithm_identifier, from_algorithm_identifier,
};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{PrfKey, Secret};
use dormouse_sansio::UnixTime;
use dormouse_wire::ike::{AuthMethod, CertEncoding, Id, IdType, Payload};

use crate::config::{Connection, LocalAuth, RemoteAuth, Resumption};
use crate::limits;

/// Pads a pre-shared key: 17 ASCII characters, without a terminating zero (RFC 7296, section 2.15).
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// Why a peer is not believed, or why we cannot prove ourselves to it. Of a peer's failure the peer itself learns no more than
/// AUTHENTICATION_FAILED.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuthError {
    /// The peer authenticates in a way that the configuration does not take.
    #[error("the peer authenticates by {got}, the configuration takes {expected}")]
    Method {
        /// Its method.
        got: String,
        /// What is configured.
        expected: &'static str,
    },
    /// The MAC does not match: another key, or another message on the way.
    #[error("the pre-shared key of {0} does not match")]
    Psk(Identity),
    /// As [`AuthError::Psk`], for a resumed session.
    #[error("the resumed session's keys do not match")]
    Resumption,
    /// As [`AuthError::Psk`], for the key that EAP has made.
    #[error("the key that EAP has made does not match")]
    Eap,
    /// The identity is not the one configured.
    #[error("the peer is {got}, the configuration takes {expected}")]
    Identity {
        /// Who the peer says it is.
        got: Identity,
        /// Who is configured.
        expected: String,
    },
    /// The identity has a type or content that is not understood.
    #[error("{0}")]
    UnknownIdentity(#[from] IdentityError),
    /// Certificates were needed and none (of a usable encoding) came.
    #[error("the peer sent no certificate")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    /// The certificate is not trusted, not for this, or not for this identity.
    #[error("{0}")]
    Untrusted(#[from] CertError),
    /// The signature is wrong.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// The keys could not be derived.
    #[error("{0}")]
    Crypto(#[from] dormouse_crypto::Error),
    /// A digital signature whose algorithm is malformed or not supported.
    #[error("the peer signs with an algorithm that is not supported (AlgorithmIdentifier {0})")]
    Algorithm(String),
    /// We cannot sign in any way that the peer takes.
    #[error(
        "a key that signs with {ours} is of no use: the peer takes the hashes {theirs:?} (RFC 7427 numbers)"
    )]
    NoCommonScheme {
        /// What our key can do.
        ours: String,
        /// What the peer announced; empty if it knows nothing of RFC 7427.
        theirs: Vec<u16>,
    },
}

/// What goes into the proof of one side: all of it is that side's own, except the nonce, which is the other's.
#[derive(Clone, Copy)]
pub struct Proof<'a> {
    /// PRF of the IKE SA.
    pub prf: Prf,
    /// SK_pi for the initiator, SK_pr for the responder.
    pub sk_p: &'a Secret,
    /// The first message (RealMessage1 or 2) as it went over the wire, without the non-ESP marker: the last one sent, if it
    /// had to be sent again with a cookie or another group.
    pub message: &'a [u8],
    /// The other side's nonce.
    pub nonce: &'a [u8],
    /// The ID payload.
    pub id: &'a Id,
    /// IntAuth, if IKE_INTERMEDIATE exchanges took place; otherwise empty.
    pub int_auth: &'a [u8],
}

impl core::fmt::Debug for Proof<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Proof").field("id", self.id).finish_non_exhaustive()
    }
}

impl Proof<'_> {
    /// `RealMessage | NonceData of the other side | prf(SK_p, RestOfIDPayload) | IntAuth` (RFC 7296, section 2.15; RFC 9242, section 3.3.2).
    #[must_use]
    pub fn octets(&self) -> Vec<u8> {
        let maced_id = PrfKey::new(self.prf, self.sk_p.as_bytes()).compute(&[&self.id.body()]);
        [self.message, self.nonce, maced_id.as_bytes(), self.int_auth].concat()
    }

    /// `AUTH = prf(prf(shared secret, "Key Pad for IKEv2"), octets)`.
    #[must_use]
    pub fn psk(&self, psk: &Secret) -> Secret {
        let key = PrfKey::new(self.prf, psk.as_bytes()).compute(&[KEY_PAD]);
        PrfKey::new(self.prf, key.as_bytes()).compute(&[&self.octets()])
    }

    /// `AUTH = prf(SK_p, octets)` of a resumed session (RFC 5723, section 4.3.3: "The exact material to be signed is defined in
    /// Section 2.15"). libreswan 5.2 and later leave nonce and identity out: `prf(SK_p, message)`.
    #[must_use]
    pub fn resumption(&self, dialect: Resumption) -> Secret {
        let key = PrfKey::new(self.prf, self.sk_p.as_bytes());
        match dialect {
            Resumption::Libreswan => key.compute(&[self.message]),
            Resumption::Strict | Resumption::Off => key.compute(&[&self.octets()]),
        }
    }
}

/// An AUTH payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authentication {
    /// How.
    pub method: AuthMethod,
    /// MAC or signature.
    pub data: Vec<u8>,
}

impl From<Authentication> for Payload {
    fn from(auth: Authentication) -> Self {
        Self::Auth { method: auth.method, data: auth.data }
    }
}

/// What is to be signed, by a key that may take its time (a token's, or of RSA): [`SignOrder::sign`] may run in another thread.
#[derive(Clone)]
pub struct SignOrder {
    key: Arc<SigningKey>,
    method: AuthMethod,
    scheme: Scheme,
    octets: Vec<u8>,
}

impl fmt::Debug for SignOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignOrder({:?}, {})", self.key, self.scheme)
    }
}

impl SignOrder {
    /// Signs.
    ///
    /// # Errors
    /// If the key does not.
    pub fn sign(&self) -> Result<Authentication, SignatureError> {
        let Self { key, method, scheme, octets } = self;
        let data = match method {
            AuthMethod::DigitalSignature => {
                let identifier = algorithm_identifier(*scheme);
                let failed = SignatureError::Backend { scheme: *scheme };
                // RFC 7427, section 3: a length octet, the AlgorithmIdentifier, the signature.
                let mut data = vec![u8::try_from(identifier.len()).map_err(|_| failed)?];
                data.extend_from_slice(identifier);
                data.extend(key.sign(*scheme, octets)?);
                data
            }
            AuthMethod::RsaDigitalSignature => key.sign(*scheme, octets)?,
            _ => key.sign_fixed(*scheme, octets)?,
        };
        Ok(Authentication { method: *method, data })
    }
}

/// Our proof, or what it needs.
#[derive(Clone, Debug)]
pub enum Proving {
    /// Here it is.
    Done(Authentication),
    /// This must be signed beside the loop.
    Sign(Box<SignOrder>),
}

/// Proves who we are. `peer_hashes` is what the peer's SIGNATURE_HASH_ALGORITHMS said, `None` if it sent none. A key that is held elsewhere
/// signs beside the loop, and one of which `beside` says so.
///
/// # Errors
/// [`AuthError::NoCommonScheme`], or if signing fails.
pub fn authenticate(
    proof: &Proof<'_>,
    local: &LocalAuth,
    peer_hashes: Option<&[u16]>,
    beside: fn(&SigningKey) -> bool,
) -> Result<Proving, AuthError> {
    match local {
        LocalAuth::Psk(psk) => {
            let data = proof.psk(psk).as_bytes().to_vec();
            Ok(Proving::Done(Authentication { method: AuthMethod::SharedKeyMic, data }))
        }
        LocalAuth::Cert { key, .. } => {
            let (method, scheme) = choose_scheme(key, peer_hashes)?;
            let order = SignOrder { key: key.clone(), method, scheme, octets: proof.octets() };
            if key.is_elsewhere() || beside(key) {
                return Ok(Proving::Sign(Box::new(order)));
            }
            Ok(Proving::Done(order.sign()?))
        }
        // Proved by the conversation that follows, and never by a gateway.
        LocalAuth::Eap(_) => Err(AuthError::NoCertificate),
    }
}

/// Proves that we hold the keys of the session that is resumed.
#[must_use]
pub fn authenticate_resumption(proof: &Proof<'_>, dialect: Resumption) -> Authentication {
    Authentication { method: AuthMethod::SharedKeyMic, data: proof.resumption(dialect).as_bytes().to_vec() }
}

fn choose_scheme(key: &SigningKey, peer_hashes: Option<&[u16]>) -> Result<(AuthMethod, Scheme), AuthError> {
    let mut schemes = key.schemes().iter().copied();
    let chosen = match peer_hashes {
        Some(hashes) => schemes
            .find(|scheme| hashes.contains(&scheme.hash_id()))
            .map(|scheme| (AuthMethod::DigitalSignature, scheme)),
        None => schemes.find_map(without_rfc7427),
    };
    chosen.ok_or_else(|| AuthError::NoCommonScheme {
        ours: key.schemes().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        theirs: peer_hashes.unwrap_or_default().to_vec(),
    })
}

/// The methods for a peer that knows nothing of RFC 7427. For RSA, RFC 7296, section 3.8, leaves the hash to the signer and
/// recommends SHA-1, which RFC 8247 since forbids: SHA-256 it is.
const fn without_rfc7427(scheme: Scheme) -> Option<(AuthMethod, Scheme)> {
    match scheme {
        Scheme::RsaPkcs1Sha256 => Some((AuthMethod::RsaDigitalSignature, scheme)),
        Scheme::EcdsaSha256 => Some((AuthMethod::Ecdsa256, scheme)),
        Scheme::EcdsaSha384 => Some((AuthMethod::Ecdsa384, scheme)),
        Scheme::EcdsaSha512 => Some((AuthMethod::Ecdsa521, scheme)),
        _ => None,
    }
}

/// What a believed peer has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Believed {
    /// The peer, in the spelling of its certificate or of the configuration, which may differ from the ID payload's. A distinguished name has many, and
    /// sessions, leases, tickets and denials are by identity.
    pub identity: Identity,
    /// When its certificates stop vouching for it: the SA must be reauthenticated or end then.
    pub expires: Option<UnixTime>,
    /// The certificates that vouch for it.
    pub shown: Option<Box<Certified>>,
}

/// What a peer has proved its identity with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    /// Its own certificate.
    pub own: Certificate,
    /// The chain to the authority.
    pub verified: Verified,
    /// Its proof is a signature with SHA-1.
    pub sha1: bool,
}

/// When the first certificate of our own chain expires; `None` without any (one that cannot be read is the peer's to refuse).
#[must_use]
pub fn expires(local: &LocalAuth) -> Option<UnixTime> {
    let chain = match local {
        LocalAuth::Cert { chain, .. } => chain,
        LocalAuth::Eap(login) => login.chain(),
        LocalAuth::Psk(_) => return None,
    };
    chain.iter().filter_map(|der| Certificate::from_der(der).ok()).map(|c| c.not_after()).min()
}

/// By which identity `connection` takes a peer that claims this one; `None` if it does not. A client that knows no other name of itself than the
/// subject of its certificate, as that of Windows, is who the certificate's alternative name says: if exactly one of these is an identity that the
/// connection takes. Nothing is verified here.
#[must_use]
pub(crate) fn called(
    connection: &Connection,
    claimed: &Identity,
    certificates: &[Certificate],
) -> Option<Identity> {
    if connection.remote_id.matches(claimed) {
        return Some(claimed.clone());
    }
    let own = certificates.first().filter(|_| matches!(connection.remote_auth, RemoteAuth::Cert { .. }))?;
    let names = own.identities();
    let (subject, alternative): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| matches!(name, Identity::Dn(_)));
    let is_subject =
        matches!(claimed, Identity::Dn(_)) && subject.iter().any(|name| name.is_same_as(claimed));
    let mut taken = alternative.into_iter().filter(|name| connection.remote_id.matches(name));
    let first = taken.next().filter(|_| is_subject)?;
    taken.next().is_none().then_some(first)
}

/// Checks the peer's proof by the rules of `connection`. `certificates` are its CERT payloads as [`certificates`] reads them; `known` learns their path.
/// "Both parties in the IKE_AUTH exchange MUST verify that all signatures and Message Authentication Codes (MACs) are computed
/// correctly." (RFC 7296 section 1.2)
///
/// # Errors
/// [`AuthError`]: answer AUTHENTICATION_FAILED.
pub fn verify(
    proof: &Proof<'_>,
    connection: &Connection,
    auth: &Authentication,
    certificates: &[Certificate],
    at: UnixTime,
    known: &mut KnownPaths,
) -> Result<Believed, AuthError> {
    let claimed = identity(proof.id)?;
    let Some(identity) = called(connection, &claimed, certificates) else {
        return Err(AuthError::Identity { got: claimed, expected: connection.remote_id.to_string() });
    };
    match &connection.remote_auth {
        RemoteAuth::Psk(psk) => {
            if auth.method != AuthMethod::SharedKeyMic {
                return Err(wrong_method(auth.method, "a pre-shared key"));
            }
            if proof.psk(psk) != Secret::from(auth.data.as_slice()) {
                return Err(AuthError::Psk(identity));
            }
            Ok(Believed { identity: connection.as_configured(identity), expires: None, shown: None })
        }
        RemoteAuth::Eap => Err(wrong_method(auth.method, "a user by EAP")),
        RemoteAuth::Cert { trust, usage, accept_rsa_sha1, .. } => {
            if auth.method == AuthMethod::SharedKeyMic {
                return Err(wrong_method(auth.method, "a certificate"));
            }
            let (own, others) = certificates.split_first().ok_or(AuthError::NoCertificate)?;
            let verified = trust.verify(own, others, at, *usage, known)?;
            own.require(&claimed)?;
            let identity = own.require(&identity)?;
            let sha1 = verify_signature(&verified.public_key, auth, &proof.octets(), *accept_rsa_sha1)?;
            known.remember(trust, own, others, &verified);
            let expires = Some(verified.expires);
            Ok(Believed {
                identity,
                expires,
                shown: Some(Box::new(Certified { own: own.clone(), verified, sha1 })),
            })
        }
    }
}

/// Proves that we have the key that EAP has made.
/// "[...] that shared key MUST be used by both the initiator and responder to generate AUTH payloads in messages 7 and 8 using the syntax
/// for shared secrets specified in Section 2.15" (RFC 7296 section 2.16)
pub(crate) fn authenticate_eap(proof: &Proof<'_>, msk: &Secret) -> Authentication {
    Authentication { method: AuthMethod::SharedKeyMic, data: proof.psk(msk).as_bytes().to_vec() }
}

/// Checks that the peer has the key that EAP has made.
///
/// # Errors
/// [`AuthError::Method`] or [`AuthError::Eap`].
pub(crate) fn verify_eap(proof: &Proof<'_>, msk: &Secret, auth: &Authentication) -> Result<(), AuthError> {
    if auth.method != AuthMethod::SharedKeyMic {
        return Err(wrong_method(auth.method, "the key that EAP has made"));
    }
    let same = proof.psk(msk) == Secret::from(auth.data.as_slice());
    if same { Ok(()) } else { Err(AuthError::Eap) }
}

/// Checks that the peer holds the keys of the session that is resumed.
///
/// # Errors
/// [`AuthError::Method`] or [`AuthError::Resumption`].
pub fn verify_resumption(
    proof: &Proof<'_>,
    dialect: Resumption,
    auth: &Authentication,
) -> Result<(), AuthError> {
    if auth.method != AuthMethod::SharedKeyMic {
        return Err(wrong_method(auth.method, "the keys of the resumed session"));
    }
    let same = proof.resumption(dialect) == Secret::from(auth.data.as_slice());
    if same { Ok(()) } else { Err(AuthError::Resumption) }
}

fn wrong_method(got: AuthMethod, expected: &'static str) -> AuthError {
    let got = got.label().map_or_else(|| format!("method {}", got.code()), str::to_owned);
    AuthError::Method { got, expected }
}

/// Whether it is a signature with SHA-1, if it is right.
/// "the first certificate provided MUST contain the public key used to verify the AUTH field" (RFC 7296 section 1.2)
fn verify_signature(
    key: &PublicKey,
    auth: &Authentication,
    octets: &[u8],
    accept_rsa_sha1: bool,
) -> Result<bool, AuthError> {
    let data = auth.data.as_slice();
    match auth.method {
        AuthMethod::DigitalSignature => {
            let unknown = |identifier: &[u8]| AuthError::Algorithm(hex(identifier));
            let (&len, rest) = data.split_first().ok_or_else(|| unknown(&[]))?;
            let (identifier, signature) = rest.split_at_checked(len.into()).ok_or_else(|| unknown(rest))?;
            let scheme = from_algorithm_identifier(identifier).ok_or_else(|| unknown(identifier))?;
            key.verify(scheme, octets, signature)?;
        }
        AuthMethod::RsaDigitalSignature => {
            let result = [Scheme::RsaPkcs1Sha384, Scheme::RsaPkcs1Sha512]
                .into_iter()
                .fold(key.verify(Scheme::RsaPkcs1Sha256, octets, data), |result, scheme| {
                    result.or_else(|first| key.verify(scheme, octets, data).map_err(|_| first))
                });
            if let Err(first) = result {
                let sha1 = accept_rsa_sha1 && key.verify_rsa_sha1(octets, data).is_ok();
                return if sha1 { Ok(true) } else { Err(first.into()) };
            }
        }
        AuthMethod::Ecdsa256 => key.verify_fixed(Scheme::EcdsaSha256, octets, data)?,
        AuthMethod::Ecdsa384 => key.verify_fixed(Scheme::EcdsaSha384, octets, data)?,
        AuthMethod::Ecdsa521 => key.verify_fixed(Scheme::EcdsaSha512, octets, data)?,
        other => return Err(wrong_method(other, "a certificate")),
    }
    Ok(false)
}

/// At most 40 bytes of a foreign AlgorithmIdentifier, for the log.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(40).map(|b| format!("{b:02x}")).collect()
}

/// The ID payload of an identity.
#[must_use]
pub fn id_payload(identity: &Identity) -> Id {
    let (kind, data) = identity.to_ike();
    Id::new(IdType::from(kind), data)
}

/// The identity in an ID payload.
///
/// # Errors
/// [`IdentityError`] for a type or content that is not understood.
pub fn identity(id: &Id) -> Result<Identity, IdentityError> {
    Identity::from_ike(id.kind.code(), &id.data)
}

/// The CERT payloads that go with our proof: our certificate first (RFC 7296, section 3.6), then the intermediates.
/// "[...] the first certificate MUST contain the public key associated with the private key used to sign the AUTH payload" (RFC
/// 7296 section 3.6)
#[must_use]
pub fn cert_payloads(local: &LocalAuth) -> Vec<Payload> {
    match local {
        LocalAuth::Psk(_) | LocalAuth::Eap(_) => Vec::new(),
        LocalAuth::Cert { chain, .. } => chain
            .iter()
            .take(limits::CERTIFICATES_MAX)
            .map(|der| Payload::Cert { encoding: CertEncoding::X509Signature, data: der.clone() })
            .collect(),
    }
}

/// The CERTREQ payload that asks for a certificate of an authority we believe; `None` if we want none.
#[must_use]
pub fn certreq_payload(remote: &RemoteAuth) -> Option<Payload> {
    let RemoteAuth::Cert { trust, .. } = remote else { return None };
    let mut data = trust.certreq();
    data.truncate(limits::CERTREQ_AUTHORITIES_MAX * 20);
    Some(Payload::CertReq { encoding: CertEncoding::X509Signature, data })
}

/// The certificates among a message's payloads, the peer's own first. Other encodings than X.509 signature certificates are
/// passed over, and so are intermediates that cannot be read.
/// "[...] MUST be capable of being configured to send and accept the two Hash and URL formats" (RFC 7296 section 3.6) These do
/// not: strangers could make the gateway send requests anywhere.
///
/// # Errors
/// If the first certificate, which is the peer's own, cannot be read.
pub fn certificates(payloads: &[Payload]) -> Result<Vec<Certificate>, AuthError> {
    let mut ders = payloads.iter().filter_map(|payload| match payload {
        Payload::Cert { encoding: CertEncoding::X509Signature, data } => Some(data.as_slice()),
        _ => None,
    });
    let Some(own) = ders.next() else { return Ok(Vec::new()) };
    let mut chain = vec![Certificate::from_der(own)?];
    chain.extend(ders.take(limits::CERTIFICATES_MAX - 1).filter_map(|der| Certificate::from_der(der).ok()));
    Ok(chain)
}

/// Data of our SIGNATURE_HASH_ALGORITHMS notification (RFC 7427, section 4).
#[must_use]
pub fn hash_algorithms() -> Vec<u8> {
    Scheme::HASH_IDS.iter().flat_map(|id| id.to_be_bytes()).collect()
}

/// What the peer's SIGNATURE_HASH_ALGORITHMS announces; an odd last byte is ignored.
#[must_use]
pub fn parse_hash_algorithms(data: &[u8]) -> Vec<u16> {
    data.chunks_exact(2)
        .take(32)
        .filter_map(|id| Some(u16::from_be_bytes([*id.first()?, *id.last()?])))
        .collect()
}

#[cfg(test)]
mod tests;
