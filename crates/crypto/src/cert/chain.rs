//! Chains of certificates: from a peer's certificate to one that is trusted. Owns the trust store and the order of the checks;
//! path building and signatures are webpki's.

use der::asn1::AnyRef;
use der::{Decode, Encode, Tag, Tagged};
use dormouse_sansio::UnixTime;
use rustls_pki_types::{AlgorithmIdentifier, CertificateDer, SignatureVerificationAlgorithm, TrustAnchor};
use webpki::aws_lc_rs as algs;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::usage::{describe_purposes, describe_usage, may_certify, may_sign};
use super::{Certificate, CertificateError, Identity, KnownPaths, Usage, sha256, utc};
use crate::sign::{PublicKey, PublicKeyError};

/// Intermediate certificates that are looked at; a peer that sends more is refused.
const MAX_INTERMEDIATES: usize = 16;

/// Signatures that are accepted in a chain: no SHA-1, no RSA below 2,048 bits.
static CHAIN_SIGNATURES: &[&dyn SignatureVerificationAlgorithm] = &[
    algs::ECDSA_P256_SHA256,
    algs::ECDSA_P256_SHA384,
    algs::ECDSA_P256_SHA512,
    algs::ECDSA_P384_SHA256,
    algs::ECDSA_P384_SHA384,
    algs::ECDSA_P384_SHA512,
    algs::ECDSA_P521_SHA256,
    algs::ECDSA_P521_SHA384,
    algs::ECDSA_P521_SHA512,
    algs::ED25519,
    algs::RSA_PKCS1_2048_8192_SHA256,
    algs::RSA_PKCS1_2048_8192_SHA384,
    algs::RSA_PKCS1_2048_8192_SHA512,
    algs::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algs::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algs::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
];

/// Why a certificate is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertError {
    /// Past the end of its validity.
    #[error("the certificate of \"{subject}\" expired at {}, and it is {} here", utc(*not_after), utc(*now))]
    Expired {
        /// Whose certificate.
        subject: String,
        /// The last second of its validity.
        not_after: UnixTime,
        /// The time of the check.
        now: UnixTime,
    },
    /// Before the start of its validity.
    #[error("the certificate of \"{subject}\" is valid from {} on, and it is {} here", utc(*not_before), utc(*now))]
    NotYetValid {
        /// Whose certificate.
        subject: String,
        /// The first second of its validity.
        not_before: UnixTime,
        /// The time of the check.
        now: UnixTime,
    },
    /// No path leads to a trusted CA.
    #[error("\"{subject}\" was issued by \"{issuer}\", which is not trusted; trusted are: {trusted}")]
    UnknownIssuer {
        /// Whose certificate.
        subject: String,
        /// Who issued it.
        issuer: String,
        /// The CAs that are trusted.
        trusted: String,
    },
    /// A self-signed certificate that is not in the trust store itself.
    #[error("\"{subject}\" is self-signed and is not in the trust store")]
    SelfSigned {
        /// Whose certificate.
        subject: String,
    },
    /// A CA's certificate in the place of a peer's.
    #[error("\"{subject}\" is the certificate of a CA and cannot stand for a peer")]
    CaAsEndEntity {
        /// Whose certificate.
        subject: String,
    },
    /// A path that leads through a certificate that is no CA.
    #[error("the chain of \"{subject}\" leads through a certificate that is not a CA's")]
    IssuerIsNoCa {
        /// Whose chain.
        subject: String,
    },
    /// The key usage does not allow it.
    #[error("the key usage of \"{subject}\" is {found}; {needed} is needed")]
    KeyUsage {
        /// Whose certificate.
        subject: String,
        /// What it allows.
        found: String,
        /// What is needed.
        needed: &'static str,
    },
    /// The extended key usage does not allow it.
    #[error("the extended key usage of \"{subject}\" is {found}; {needed} is needed, or none at all")]
    ExtendedKeyUsage {
        /// Whose certificate.
        subject: String,
        /// What it allows.
        found: String,
        /// What is needed.
        needed: &'static str,
    },
    /// A key that is too weak or of an unsupported kind.
    #[error("the key of \"{subject}\": {error}")]
    Key {
        /// Whose certificate.
        subject: String,
        /// What is wrong with the key.
        error: PublicKeyError,
    },
    /// A signature in the chain does not verify.
    #[error("a signature in the chain of \"{subject}\" does not verify")]
    Signature {
        /// Whose chain.
        subject: String,
    },
    /// More intermediate certificates than are looked at.
    #[error("{got} intermediate certificates, at most {limit} are accepted")]
    TooMany {
        /// Certificates received.
        got: usize,
        /// Certificates accepted.
        limit: usize,
    },
    /// Another rule of path validation (RFC 5280, section 6) is broken.
    #[error("the chain of \"{subject}\" is not valid: {reason}")]
    Chain {
        /// Whose chain.
        subject: String,
        /// The rule.
        reason: String,
    },
    /// The certificate does not contain the identity that the peer claims or that the configuration asks for.
    #[error("the certificate is not for {wanted}; it is for: {present}")]
    Identity {
        /// The identity that was needed.
        wanted: Identity,
        /// The identities that it contains.
        present: String,
    },
}

/// A certificate that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The key that the peer's signature must verify under.
    pub public_key: PublicKey,
    /// [`Certificate::fingerprint`] of the CA that the chain ends at, or of the peer's certificate if that is pinned.
    pub anchor_fingerprint: [u8; 32],
    /// The certificates that were issued, the peer's own first; empty if it is pinned.
    pub chain: Vec<Issued>,
    /// Their issuers, in the same order: the last one is the CA that is trusted.
    pub issuers: Vec<Certificate>,
    /// When the first certificate of the chain expires: the SA must not outlive it.
    pub expires: UnixTime,
    /// What had to be allowed: [`Usage::Ike`] if that is enough for every certificate.
    pub usage: Usage,
}

/// Names one certificate as its CA does when it revokes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Issued {
    /// [`Certificate::key_hash`] of the issuer.
    pub issuer_key: [u8; 32],
    /// [`Certificate::serial`].
    pub serial: Vec<u8>,
}

/// The certificates that are trusted: CAs, and peers that are pinned by being here themselves.
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    authorities: Vec<Certificate>,
    /// What path building needs of each of them, in the same order.
    anchors: Vec<TrustAnchor<'static>>,
    pinned: Vec<Certificate>,
    /// SHA-256 of the authorities' fingerprints.
    fingerprint: [u8; 32],
}

impl TrustStore {
    /// Trusts `certificates`: those of CAs as the ends of chains, others as themselves alone.
    ///
    /// # Errors
    /// [`CertificateError::Malformed`] for a CA whose certificate path building cannot use.
    pub fn new(certificates: Vec<Certificate>) -> Result<Self, CertificateError> {
        let mut store = Self::default();
        for certificate in certificates {
            if !certificate.is_ca() {
                store.pinned.push(certificate);
                continue;
            }
            let der = CertificateDer::from(certificate.der());
            let anchor = webpki::anchor_from_trusted_cert(&der)
                .map_err(|e| CertificateError::Malformed(format!("CA \"{}\": {e}", certificate.subject())))?
                .to_owned();
            store.anchors.push(anchor);
            store.authorities.push(certificate);
        }
        store.fingerprint =
            sha256(&store.authorities().flat_map(Certificate::fingerprint).collect::<Vec<_>>());
        Ok(store)
    }

    /// Trusts whom any of these trusts.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_all(stores: &[&Self]) -> Result<Self, CertificateError> {
        match stores {
            [one] => Ok((*one).clone()),
            _ => Self::new(
                stores.iter().flat_map(|s| s.authorities.iter().chain(&s.pinned)).cloned().collect(),
            ),
        }
    }

    /// Names the authorities and their order.
    pub(super) const fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// The CAs.
    pub fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        self.authorities.iter()
    }

    /// Whether a CA, or a pinned certificate, is trusted that has this [`Certificate::fingerprint`].
    #[must_use]
    pub fn trusts(&self, fingerprint: &[u8; 32]) -> bool {
        self.authorities().chain(&self.pinned).any(|c| c.fingerprint() == *fingerprint)
    }

    /// The [`Certificate::fingerprint`] of each certificate that is trusted as itself alone, which [`Self::certreq`] leaves out.
    pub fn pinned(&self) -> impl Iterator<Item = [u8; 32]> {
        self.pinned.iter().map(Certificate::fingerprint)
    }

    /// Whether nothing is trusted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty() && self.pinned.is_empty()
    }

    /// The Certification Authority field of a CERTREQ payload: the SHA-1 hashes of the public keys of all CAs, put together
    /// (RFC 7296, section 3.7).
    #[must_use]
    pub fn certreq(&self) -> Vec<u8> {
        self.authorities().flat_map(Certificate::spki_sha1).collect()
    }

    /// Verifies that `end_entity` may authenticate a peer at the time `at`. `intermediates` are what the peer sent besides; order
    /// and surplus do not matter. Signatures of a path in `known` are not verified again. The identity is checked apart, with
    /// [`Certificate::require`].
    ///
    /// # Errors
    /// [`CertError`], with the name of the certificate at fault and both values of what did not fit.
    pub fn verify(
        &self,
        end_entity: &Certificate,
        intermediates: &[Certificate],
        at: UnixTime,
        usage: Usage,
        known: &KnownPaths,
    ) -> Result<Verified, CertError> {
        check_validity(end_entity, at)?;
        let subject = || end_entity.subject();
        if end_entity.is_ca() {
            return Err(CertError::CaAsEndEntity { subject: subject() });
        }
        check_purpose(end_entity, usage)?;
        if !may_sign(end_entity.0.key_usage) {
            return Err(key_usage_error(end_entity, "digitalSignature or nonRepudiation"));
        }
        let public_key =
            end_entity.public_key().map_err(|error| CertError::Key { subject: subject(), error })?;
        if self.pinned.iter().any(|pinned| pinned.der() == end_entity.der()) {
            return Ok(Verified {
                public_key,
                anchor_fingerprint: end_entity.fingerprint(),
                chain: Vec::new(),
                issuers: Vec::new(),
                expires: end_entity.not_after(),
                usage: narrowest(&[end_entity], usage),
            });
        }
        if intermediates.len() > MAX_INTERMEDIATES {
            return Err(CertError::TooMany { got: intermediates.len(), limit: MAX_INTERMEDIATES });
        }
        let (path, anchor) = match self.known_path(known, end_entity, intermediates, at) {
            Some(path) => path,
            None => self.build_path(end_entity, intermediates, at)?,
        };
        let mut expires = end_entity.not_after().min(anchor.not_after());
        let (mut chain, mut below) = (Vec::new(), end_entity);
        let issuers = path.iter().copied().chain([anchor]).cloned().collect();
        let needed = narrowest(&[&[end_entity][..], &path].concat(), usage);
        for issuer in path {
            check_purpose(issuer, usage)?;
            check_issuer(issuer, at)?;
            expires = expires.min(issuer.not_after());
            chain.push(below.issued_by(issuer));
            below = issuer;
        }
        check_issuer(anchor, at)?;
        chain.push(below.issued_by(anchor));
        let anchor_fingerprint = anchor.fingerprint();
        Ok(Verified { public_key, anchor_fingerprint, chain, issuers, expires, usage: needed })
    }

    /// The path that is known for these certificates, if all of it is valid now: otherwise another may be.
    fn known_path<'a>(
        &'a self,
        known: &KnownPaths,
        end_entity: &Certificate,
        intermediates: &'a [Certificate],
        at: UnixTime,
    ) -> Option<(Vec<&'a Certificate>, &'a Certificate)> {
        let path = known.find(self, end_entity, intermediates)?;
        let anchor = self.authorities.get(path.anchor)?;
        let used: Vec<_> = path.intermediates.iter().map(|&i| intermediates.get(i)).collect::<Option<_>>()?;
        used.iter().all(|c| check_validity(c, at).is_ok()).then_some((used, anchor))
    }

    /// The intermediates between `end_entity` and a CA, and the CA.
    fn build_path<'a>(
        &'a self,
        end_entity: &Certificate,
        intermediates: &'a [Certificate],
        at: UnixTime,
    ) -> Result<(Vec<&'a Certificate>, &'a Certificate), CertError> {
        let explain = |error| self.explain(error, end_entity, intermediates, at);
        let der = CertificateDer::from(end_entity.der());
        let leaf = EndEntityCert::try_from(&der).map_err(explain)?;
        let others: Vec<_> = intermediates.iter().map(|c| CertificateDer::from(c.der())).collect();
        let time = rustls_pki_types::UnixTime::since_unix_epoch(core::time::Duration::from_secs(at.0));
        let path = leaf
            .verify_for_usage(CHAIN_SIGNATURES, &self.anchors, &others, time, AnyPurpose, None, None)
            .map_err(explain)?;
        let used = path
            .intermediate_certificates()
            .filter_map(|cert| intermediates.iter().find(|c| c.der() == cert.der().as_ref()))
            .collect();
        let anchor = self
            .anchors
            .iter()
            .position(|anchor| anchor == path.anchor())
            .and_then(|at| self.authorities.get(at))
            .ok_or_else(|| explain(webpki::Error::UnknownIssuer))?;
        Ok((used, anchor))
    }

    /// webpki's error, with names.
    fn explain(
        &self,
        error: webpki::Error,
        end_entity: &Certificate,
        intermediates: &[Certificate],
        at: UnixTime,
    ) -> CertError {
        let subject = end_entity.subject();
        match error {
            webpki::Error::UnknownIssuer if end_entity.is_self_issued() => CertError::SelfSigned { subject },
            webpki::Error::UnknownIssuer => {
                // Name the last certificate that could be reached, for its issuer is the one that is missing.
                let last = top_of(end_entity, intermediates);
                let trusted = self.authorities().map(Certificate::subject).collect::<Vec<_>>().join("; ");
                let trusted = if trusted.is_empty() { "none".to_owned() } else { trusted };
                CertError::UnknownIssuer { subject: last.subject(), issuer: last.issuer(), trusted }
            }
            webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => intermediates
                .iter()
                .find_map(|issuer| check_validity(issuer, at).err())
                .unwrap_or_else(|| CertError::Chain { subject, reason: error.to_string() }),
            webpki::Error::CaUsedAsEndEntity => CertError::CaAsEndEntity { subject },
            webpki::Error::EndEntityUsedAsCa => CertError::IssuerIsNoCa { subject },
            webpki::Error::InvalidSignatureForPublicKey => CertError::Signature { subject },
            webpki::Error::UnsupportedSignatureAlgorithmContext(_) => CertError::Chain {
                subject,
                reason: "a certificate is signed with an algorithm that is not accepted (SHA-1, for example)"
                    .to_owned(),
            },
            other => CertError::Chain { subject, reason: other.to_string() },
        }
    }
}

impl Certificate {
    fn issued_by(&self, issuer: &Self) -> Issued {
        Issued { issuer_key: issuer.key_hash(), serial: self.0.serial.clone() }
    }
}

/// Whether `message` was signed with the key in `spki` by one of the algorithms that are accepted in chains. `spki` and `algorithm` are
/// in DER.
pub(super) fn is_signed(spki: &[u8], algorithm: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok(spki) = SubjectPublicKeyInfoRef::from_der(spki) else { return false };
    let (Ok(key_algorithm), Some(key)) = (spki.algorithm.to_der(), spki.subject_public_key.as_bytes()) else {
        return false;
    };
    let is = |id: AlgorithmIdentifier, der: &[u8]| {
        AnyRef::from_der(der).is_ok_and(|any| any.tag() == Tag::Sequence && any.value() == id.as_ref())
    };
    CHAIN_SIGNATURES.iter().any(|a| {
        is(a.public_key_alg_id(), &key_algorithm)
            && is(a.signature_alg_id(), algorithm)
            && a.verify_signature(key, message, signature).is_ok()
    })
}

/// webpki's own check of extended key usages knows one purpose; ours come after it.
struct AnyPurpose;

impl ExtendedKeyUsageValidator for AnyPurpose {
    fn validate(&self, mut purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        purposes.try_for_each(|purpose| purpose.map(|_| ()))
    }
}

/// Where the chain of issuers that the peer sent ends.
fn top_of<'a>(end_entity: &'a Certificate, intermediates: &'a [Certificate]) -> &'a Certificate {
    let mut top = end_entity;
    for _ in 0..=intermediates.len().min(MAX_INTERMEDIATES) {
        match intermediates.iter().find(|c| c.0.subject == top.0.issuer && !c.is_self_issued()) {
            Some(issuer) => top = issuer,
            None => break,
        }
    }
    top
}

fn check_validity(certificate: &Certificate, now: UnixTime) -> Result<(), CertError> {
    let (not_before, not_after) = (certificate.not_before(), certificate.not_after());
    if now > not_after {
        return Err(CertError::Expired { subject: certificate.subject(), not_after, now });
    }
    if now < not_before {
        return Err(CertError::NotYetValid { subject: certificate.subject(), not_before, now });
    }
    Ok(())
}

/// [`Usage::Ike`] if it admits all of these, else `usage`.
fn narrowest(certificates: &[&Certificate], usage: Usage) -> Usage {
    let enough = certificates.iter().all(|c| Usage::Ike.admits(c.0.extended_key_usage.as_deref()));
    if enough { Usage::Ike } else { usage }
}

fn check_purpose(certificate: &Certificate, usage: Usage) -> Result<(), CertError> {
    let purposes = certificate.0.extended_key_usage.as_deref();
    if usage.admits(purposes) {
        return Ok(());
    }
    Err(CertError::ExtendedKeyUsage {
        subject: certificate.subject(),
        found: describe_purposes(purposes.unwrap_or_default()),
        needed: usage.accepted(),
    })
}

/// What webpki does not check of an issuer: the key usage, and the validity of a trust anchor.
fn check_issuer(issuer: &Certificate, at: UnixTime) -> Result<(), CertError> {
    check_validity(issuer, at)?;
    if may_certify(issuer.0.key_usage) { Ok(()) } else { Err(key_usage_error(issuer, "keyCertSign")) }
}

fn key_usage_error(certificate: &Certificate, needed: &'static str) -> CertError {
    let found = certificate.0.key_usage.map(describe_usage).unwrap_or_default();
    CertError::KeyUsage { subject: certificate.subject(), found, needed }
}
