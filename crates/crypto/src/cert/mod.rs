//! X.509 certificates as IKEv2 uses them (RFC 4945). Owns the reading of certificates, the identities in them, and the rules
//! on who may be trusted for what; it must never fetch anything or read a clock (the time is handed in).

mod chain;
mod dn;
mod identity;
mod known;
mod request;
mod revocation;
mod usage;

pub use chain::{CertError, Issued, TrustStore, Verified};
pub use dn::DnError;
pub use identity::{Identity, IdentityError};
pub use known::KnownPaths;
pub use request::{Request, RequestError};
pub use revocation::{Crl, NONCE_LEN, OcspAnswer, OcspRequest, Reason, RevocationError, Revocations, Status};
pub use usage::Usage;

use core::fmt;
use std::sync::Arc;

use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use dormouse_sansio::UnixTime;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AuthorityInfoAccessSyntax, BasicConstraints, CrlDistributionPoints, ExtendedKeyUsage, KeyUsage,
    SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::spki::SubjectPublicKeyInfoRef;
use x509_cert::time::Time;

use crate::hash::{HashAlg, hash};
use crate::pem;
use crate::sign::{PublicKey, PublicKeyError};

/// Names of one certificate that are looked at; a certificate with more is refused.
const MAX_NAMES: usize = 256;
/// URLs of CRLs, and of OCSP responders, that are looked at.
const MAX_URLS: usize = 4;

/// A time for an error message: `2026-11-23T05:40:00Z`, or seconds beyond the year 9999.
fn utc(time: UnixTime) -> String {
    let since_1970 = core::time::Duration::from_secs(time.0);
    der::DateTime::from_unix_duration(since_1970)
        .map_or_else(|_| format!("{} s after 1970", time.0), |time| time.to_string())
}

/// A file or payload that holds no usable certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file holds no certificate.
    #[error("no certificate here: {found}; a PEM section CERTIFICATE or a DER certificate is needed")]
    NotACertificate {
        /// What it holds.
        found: String,
    },
    /// The PEM armour is damaged.
    #[error("damaged PEM: {0}")]
    Pem(String),
    /// The content is no certificate that could be read.
    #[error("malformed certificate: {0}")]
    Malformed(String),
    /// More subject alternative names than are looked at.
    #[error("certificate with {got} alternative names, at most {limit} are accepted")]
    TooManyNames {
        /// Names in it.
        got: usize,
        /// Names accepted.
        limit: usize,
    },
}

/// A parsed certificate, cheap to copy. Nothing in it has been verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(Arc<Content>);

#[derive(PartialEq, Eq)]
struct Content {
    der: Vec<u8>,
    fingerprint: [u8; 32],
    subject: Vec<u8>,
    issuer: Vec<u8>,
    spki: Vec<u8>,
    not_before: UnixTime,
    not_after: UnixTime,
    serial: Vec<u8>,
    is_ca: bool,
    key_usage: Option<KeyUsage>,
    extended_key_usage: Option<Vec<ObjectIdentifier>>,
    subject_key_id: Option<Vec<u8>>,
    alternative_names: Vec<Identity>,
    crl_urls: Vec<String>,
    ocsp_urls: Vec<String>,
}

impl Certificate {
    /// From DER, as it stands in a CERT payload of encoding 4.
    ///
    /// # Errors
    /// [`CertificateError`], which says what the bytes are instead.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        if der.first() != Some(&0x30) {
            return Err(CertificateError::NotACertificate { found: pem::describe(der) });
        }
        let malformed = |e: der::Error| CertificateError::Malformed(e.to_string());
        let parsed = x509_cert::Certificate::from_der(der).map_err(malformed)?;
        let tbs = parsed.tbs_certificate();
        let seconds = |time: Time| UnixTime(time.to_unix_duration().as_secs());
        let basic = tbs.get_extension::<BasicConstraints>().map_err(malformed)?;
        let key_usage = tbs.get_extension::<KeyUsage>().map_err(malformed)?;
        let extended = tbs.get_extension::<ExtendedKeyUsage>().map_err(malformed)?;
        let key_id = tbs.get_extension::<SubjectKeyIdentifier>().map_err(malformed)?;
        let names = tbs.get_extension::<SubjectAltName>().map_err(malformed)?;
        Ok(Self(Arc::new(Content {
            fingerprint: sha256(der),
            subject: tbs.subject().to_der().map_err(malformed)?,
            issuer: tbs.issuer().to_der().map_err(malformed)?,
            spki: tbs.subject_public_key_info().to_der().map_err(malformed)?,
            not_before: seconds(tbs.validity().not_before),
            not_after: seconds(tbs.validity().not_after),
            serial: tbs.serial_number().as_bytes().to_vec(),
            is_ca: basic.is_some_and(|(_, b)| b.ca),
            key_usage: key_usage.map(|(_, usage)| usage),
            extended_key_usage: extended.map(|(_, usage)| usage.0),
            subject_key_id: key_id.map(|(_, id)| id.0.as_bytes().to_vec()),
            alternative_names: names.map_or(Ok(Vec::new()), |(_, names)| alternative_names(&names.0))?,
            // Where to ask is of use or not: a certificate is not refused for it.
            crl_urls: tbs
                .get_extension()
                .ok()
                .flatten()
                .map_or_else(Vec::new, |(_, points)| crl_urls(&points)),
            ocsp_urls: tbs
                .get_extension()
                .ok()
                .flatten()
                .map_or_else(Vec::new, |(_, access)| ocsp_urls(&access)),
            der: der.to_vec(),
        })))
    }

    /// All certificates of a PEM file, or the one of a DER file, in order. Other PEM sections are passed over.
    ///
    /// # Errors
    /// [`CertificateError`], which says what the file holds instead.
    pub fn from_file_content(content: &[u8]) -> Result<Vec<Self>, CertificateError> {
        if content.first() == Some(&0x30) {
            return Ok(vec![Self::from_der(content)?]);
        }
        if !pem::labels(content).iter().any(|label| label == "CERTIFICATE") {
            return Err(CertificateError::NotACertificate { found: pem::describe(content) });
        }
        let sections = pem::sections(content, "CERTIFICATE").map_err(CertificateError::Pem)?;
        sections.iter().map(|der| Self::from_der(der.as_bytes())).collect()
    }

    /// The first certificate of a PEM file.
    ///
    /// # Errors
    /// [`CertificateError`], which says what the file holds instead.
    pub fn from_pem(content: &[u8]) -> Result<Self, CertificateError> {
        Self::from_file_content(content)?
            .into_iter()
            .next()
            .ok_or_else(|| CertificateError::NotACertificate { found: pem::describe(content) })
    }

    /// The same as one PEM section, written anew: nothing of the file that it was read from but its bytes.
    ///
    /// # Errors
    /// [`CertificateError::Pem`] if the encoder refuses it, which it does for lengths that memory cannot have alone.
    pub fn to_pem(&self) -> Result<String, CertificateError> {
        der::pem::encode_string("CERTIFICATE", der::pem::LineEnding::LF, self.der())
            .map_err(|e| CertificateError::Pem(e.to_string()))
    }

    /// The bytes, as sent in a CERT payload.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.0.der
    }

    /// The subject in words: `C=CH, O=Example, CN=gateway`, in the order in which it is encoded.
    #[must_use]
    pub fn subject(&self) -> String {
        dn::display(&self.0.subject)
    }

    /// The issuer in words.
    #[must_use]
    pub fn issuer(&self) -> String {
        dn::display(&self.0.issuer)
    }

    /// The first second of its validity.
    #[must_use]
    pub fn not_before(&self) -> UnixTime {
        self.0.not_before
    }

    /// The last second of its validity.
    #[must_use]
    pub fn not_after(&self) -> UnixTime {
        self.0.not_after
    }

    /// Whether it says of itself that it is a CA (basic constraints).
    #[must_use]
    pub fn is_ca(&self) -> bool {
        self.0.is_ca
    }

    /// Whether subject and issuer are the same name.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.0.subject == self.0.issuer
    }

    /// The public key.
    ///
    /// # Errors
    /// [`PublicKeyError`] if it is of a kind or size that is not accepted.
    pub fn public_key(&self) -> Result<PublicKey, PublicKeyError> {
        PublicKey::from_spki_der(&self.0.spki)
    }

    /// SHA-1 of the SubjectPublicKeyInfo: by this a CERTREQ payload names a CA (RFC 7296, section 3.7).
    #[must_use]
    pub fn spki_sha1(&self) -> [u8; 20] {
        let mut id = [0; 20];
        id.copy_from_slice(&hash(HashAlg::Sha1, &[&self.0.spki]));
        id
    }

    /// Its serial number, as DER has it: by this and its issuer's key a CA revokes it.
    #[must_use]
    pub fn serial(&self) -> &[u8] {
        &self.0.serial
    }

    /// SHA-256 of the whole certificate: what people call its fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.0.fingerprint
    }

    /// SHA-256 of the SubjectPublicKeyInfo: names the key of an issuer.
    #[must_use]
    pub fn key_hash(&self) -> [u8; 32] {
        sha256(&self.0.spki)
    }

    /// Names of the CRLs that say whether it is revoked (RFC 5280, section 4.2.1.13), as they stand there: mostly URLs. Indirect lists,
    /// and those for some reasons only, are left out.
    #[must_use]
    pub fn crl_urls(&self) -> &[String] {
        &self.0.crl_urls
    }

    /// URLs of the OCSP responders that say whether it is revoked (RFC 5280, section 4.2.2.1).
    #[must_use]
    pub fn ocsp_urls(&self) -> &[String] {
        &self.0.ocsp_urls
    }

    /// The public key alone, without its algorithm: what OCSP hashes.
    fn public_key_bits(&self) -> &[u8] {
        let spki = SubjectPublicKeyInfoRef::from_der(&self.0.spki);
        spki.ok().and_then(|spki| spki.subject_public_key.as_bytes()).unwrap_or_default()
    }

    /// The identities that this certificate can vouch for: its subject, if it has one, and its alternative names.
    #[must_use]
    pub fn identities(&self) -> Vec<Identity> {
        const EMPTY_NAME: &[u8] = &[0x30, 0];
        let subject = (self.0.subject != EMPTY_NAME).then(|| Identity::Dn(self.0.subject.clone()));
        subject.into_iter().chain(self.0.alternative_names.iter().cloned()).collect()
    }

    /// Whether this certificate vouches for `wanted` (RFC 4945, section 3.1): a distinguished name must be the subject, every
    /// other identity an alternative name of its own type. A common name is never taken for a host name, a wildcard matches
    /// nothing, and a key identifier belongs to pre-shared keys alone.
    #[must_use]
    pub fn matches(&self, wanted: &Identity) -> bool {
        self.identities().iter().any(|own| own.vouches_for(wanted))
    }

    /// The same as [`Certificate::matches`]: the identity as the certificate has it, of which a peer may send other spellings, or an error
    /// that shows what it does contain.
    ///
    /// # Errors
    /// [`CertError::Identity`].
    pub fn require(&self, wanted: &Identity) -> Result<Identity, CertError> {
        if let Some(own) = self.identities().into_iter().find(|own| own.vouches_for(wanted)) {
            return Ok(own);
        }
        let present = self.identities().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(CertError::Identity { wanted: wanted.clone(), present })
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.subject())
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(&hash(HashAlg::Sha256, &[bytes]));
    digest
}

fn crl_urls(points: &CrlDistributionPoints) -> Vec<String> {
    let whole = points.0.iter().filter(|p| p.crl_issuer.is_none() && p.reasons.is_none());
    let names = whole.filter_map(|p| match &p.distribution_point {
        Some(DistributionPointName::FullName(names)) => Some(names),
        _ => None,
    });
    names.flatten().filter_map(revocation::point).take(MAX_URLS).collect()
}

fn ocsp_urls(access: &AuthorityInfoAccessSyntax) -> Vec<String> {
    const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
    let responders = access.0.iter().filter(|a| a.access_method == OCSP);
    responders.filter_map(|a| revocation::point(&a.access_location)).take(MAX_URLS).collect()
}

/// The alternative names that IKE knows an identity for. Others (URIs, Kerberos principals) are passed over.
fn alternative_names(names: &[GeneralName]) -> Result<Vec<Identity>, CertificateError> {
    if names.len() > MAX_NAMES {
        return Err(CertificateError::TooManyNames { got: names.len(), limit: MAX_NAMES });
    }
    Ok(names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DnsName(dns) => Some(Identity::Fqdn(dns.as_str().to_ascii_lowercase())),
            GeneralName::Rfc822Name(mail) => Some(Identity::Email(identity::normal_mail(mail.as_str()))),
            GeneralName::DirectoryName(dn) => dn.to_der().ok().map(Identity::Dn),
            GeneralName::IpAddress(octets) => identity::ip(octets.as_bytes()).map(Identity::Ip),
            _ => None,
        })
        .collect())
}
