//! Certificate revocation lists (RFC 5280, section 5). Indirect lists, delta lists and lists with critical extensions that are not
//! understood are refused.

use core::fmt;

use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use dormouse_sansio::UnixTime;
use x509_cert::ext::Extensions;
use x509_cert::ext::pkix::crl::dp::IssuingDistributionPoint;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};

use super::der::{self as walk, Fields, Signed};
use super::{Reason, RevocationError, Times, number};
use crate::cert::usage::may_sign_lists;
use crate::cert::{Certificate, dn};
use crate::pem;

const WHAT: &str = "CRL";
const DELTA: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.27");
const ISSUING_POINT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");
const REASON: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.21");

/// A list that its issuer has signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Crl {
    pub(super) issuer_key: [u8; 32],
    pub(super) times: Times,
    /// The issuing distribution point in DER; empty if the list is about all certificates of the issuer.
    pub(super) scope: Vec<u8>,
    part: Part,
    /// Serial numbers one after the other, and where each ends, in their order.
    serials: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    start: u32,
    len: u8,
    reason: Reason,
}

/// Of which certificates the list shows that they are good.
#[derive(Clone, PartialEq, Eq, Default)]
struct Part {
    /// Some reasons are left out: of none.
    some_reasons: bool,
    only_users: bool,
    only_authorities: bool,
    /// Those that name one of these distribution points; of all, if empty.
    points: Vec<String>,
}

impl Crl {
    /// The lists of a PEM file, or the one of a DER file, in DER and in order; other PEM sections are passed over. Nothing is verified.
    ///
    /// # Errors
    /// [`RevocationError::Malformed`], which says what the file holds instead.
    pub fn ders_of_file(content: &[u8]) -> Result<Vec<Vec<u8>>, RevocationError> {
        let malformed = |why| RevocationError::Malformed { what: WHAT, why };
        if content.first() == Some(&walk::SEQUENCE) {
            check(content)?;
            return Ok(vec![content.to_vec()]);
        }
        let sections = pem::sections(content, "X509 CRL").map_err(malformed)?;
        if sections.is_empty() {
            let found = pem::describe(content);
            return Err(malformed(format!("{found}; a PEM section X509 CRL or a DER list is needed")));
        }
        let lists: Vec<_> = sections.iter().map(|section| section.as_bytes().to_vec()).collect();
        lists.iter().try_for_each(|list| check(list))?;
        Ok(lists)
    }

    /// Reads a list in DER and verifies that `issuer` has signed it. It need not be fresh: who is revoked stays so.
    ///
    /// # Errors
    /// [`RevocationError`].
    pub fn verify(der: &[u8], issuer: &Certificate, now: UnixTime) -> Result<Self, RevocationError> {
        let signed = Signed::from_der(der).map_err(malformed)?;
        // The entries come last: there may be hundreds of thousands, and a list is tried under several issuers.
        let name = issuer_name(&signed).map_err(malformed)?;
        if !dn::same(name, &issuer.0.subject) {
            return Err(RevocationError::Issuer { found: dn::display(name), wanted: issuer.subject() });
        }
        if !may_sign_lists(issuer.0.key_usage) {
            return Err(RevocationError::MayNotSign(issuer.subject()));
        }
        if !signed.is_by(&issuer.0.spki) {
            return Err(RevocationError::Signature(issuer.subject()));
        }
        let list = read(&signed)?;
        if list.times.this_update > now + super::SKEW {
            return Err(RevocationError::NotYetValid { this_update: list.times.this_update, now });
        }
        Ok(Self { issuer_key: issuer.key_hash(), ..list })
    }

    /// When a newer list was to be there; `None` if it does not say.
    #[must_use]
    pub const fn next_update(&self) -> Option<UnixTime> {
        self.times.next_update
    }

    /// When it was made.
    #[must_use]
    pub const fn this_update(&self) -> UnixTime {
        self.times.this_update
    }

    /// Certificates in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no certificate is revoked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn serial(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize;
        self.serials.get(start..start + usize::from(entry.len)).unwrap_or_default()
    }

    /// Why this serial number is in it.
    pub(super) fn find(&self, serial: &[u8]) -> Option<Reason> {
        let found = self.entries.binary_search_by(|entry| self.serial(entry).cmp(number(serial))).ok()?;
        self.entries.get(found).map(|entry| entry.reason)
    }

    /// Whether it is about the certificates with certain distribution points.
    pub(super) fn is_by_points(&self) -> bool {
        !self.part.points.is_empty()
    }

    /// Whether a certificate that is not in it is good: one of an authority (`ca`) or not, with these distribution points.
    pub(super) fn covers(&self, ca: bool, points: &[String]) -> bool {
        let Part { some_reasons, only_users, only_authorities, points: own } = &self.part;
        !(*some_reasons || (*only_users && ca) || (*only_authorities && !ca))
            && (own.is_empty() || own.iter().any(|point| points.contains(point)))
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crl({} revoked, of {})", self.entries.len(), self.times.this_update.0)
    }
}

fn malformed(error: der::Error) -> RevocationError {
    RevocationError::Malformed { what: WHAT, why: error.to_string() }
}

/// Whether it is a list.
fn check(der: &[u8]) -> Result<(), RevocationError> {
    read(&Signed::from_der(der).map_err(malformed)?).map(drop)
}

/// Whose list it says it is, in DER.
fn issuer_name<'a>(signed: &Signed<'a>) -> der::Result<&'a [u8]> {
    let mut fields = Fields::of(signed.message)?;
    fields.optional(walk::INTEGER)?;
    fields.next(walk::SEQUENCE)?;
    fields.next(walk::SEQUENCE)
}

/// TBSCertList (RFC 5280, section 5.1.2), without its issuer's key.
fn read(signed: &Signed<'_>) -> Result<Crl, RevocationError> {
    let mut fields = Fields::of(signed.message).map_err(malformed)?;
    let mut parts = || -> der::Result<_> {
        fields.optional(walk::INTEGER)?;
        let algorithm = fields.next(walk::SEQUENCE)?;
        fields.next(walk::SEQUENCE)?;
        let this_update = walk::time(fields.any()?)?;
        let next = match fields.optional(walk::UTC_TIME)? {
            None => fields.optional(walk::GENERALIZED_TIME)?,
            some => some,
        };
        let times = Times { this_update, next_update: next.map(walk::time).transpose()? };
        Ok((algorithm, times, fields.optional(walk::SEQUENCE)?, fields.optional(0xa0)?))
    };
    let (algorithm, times, revoked, extensions) = parts().map_err(malformed)?;
    fields.finish().map_err(malformed)?;
    if algorithm != signed.algorithm {
        // "This field MUST contain the same algorithm identifier as the signatureAlgorithm field" (RFC 5280 section 5.1.2.2)
        let why = "two signature algorithms".to_owned();
        return Err(RevocationError::Malformed { what: WHAT, why });
    }
    let (scope, part) = match extensions {
        Some(wrapped) => of_list(walk::content(wrapped).map_err(malformed)?)?,
        None => Default::default(),
    };
    let mut list = Crl { issuer_key: [0; 32], times, scope, part, serials: Vec::new(), entries: Vec::new() };
    if let Some(revoked) = revoked {
        let mut revoked = Fields::of(revoked).map_err(malformed)?;
        while !revoked.is_finished() {
            list.take_entry(revoked.next(walk::SEQUENCE).map_err(malformed)?)?;
        }
    }
    let mut entries = core::mem::take(&mut list.entries);
    entries.sort_by(|a, b| list.serial(a).cmp(list.serial(b)));
    list.entries = entries;
    Ok(list)
}

impl Crl {
    fn take_entry(&mut self, entry: &[u8]) -> Result<(), RevocationError> {
        let mut fields = Fields::of(entry).map_err(malformed)?;
        let serial = fields.next(walk::INTEGER).and_then(walk::content).map_err(malformed)?;
        fields.any().map_err(malformed)?;
        let reason = match fields.optional(walk::SEQUENCE).map_err(malformed)? {
            Some(extensions) => of_entry(extensions)?,
            None => Reason(0),
        };
        fields.finish().map_err(malformed)?;
        let serial = number(serial);
        let bounds = (u32::try_from(self.serials.len()), u8::try_from(serial.len()));
        let (Ok(start), Ok(len)) = bounds else {
            let why = "a serial number that is too long".to_owned();
            return Err(RevocationError::Malformed { what: WHAT, why });
        };
        if reason != Reason::REMOVED {
            self.serials.extend_from_slice(serial);
            self.entries.push(Entry { start, len, reason });
        }
        Ok(())
    }
}

fn unsupported(what: &str) -> RevocationError {
    RevocationError::Unsupported(what.to_owned())
}

/// "If a CRL contains a critical extension that the application cannot process, then the application MUST NOT use that CRL to determine
/// the status of certificates." (RFC 5280 section 5.2)
fn of_list(der: &[u8]) -> Result<(Vec<u8>, Part), RevocationError> {
    let mut found = Default::default();
    for extension in Extensions::from_der(der).map_err(malformed)? {
        match extension.extn_id {
            DELTA => return Err(unsupported("a delta CRL, which is of use only with its base")),
            ISSUING_POINT => {
                let der = extension.extn_value.as_bytes();
                found = (der.to_vec(), part(IssuingDistributionPoint::from_der(der).map_err(malformed)?)?);
            }
            other if extension.critical => {
                return Err(RevocationError::Unsupported(format!(
                    "a CRL with the critical extension {other}, which is not understood"
                )));
            }
            _ => {}
        }
    }
    Ok(found)
}

fn part(issuing: IssuingDistributionPoint) -> Result<Part, RevocationError> {
    if issuing.indirect_crl || issuing.only_contains_attribute_certs {
        return Err(unsupported("an indirect CRL, or one of attribute certificates"));
    }
    let points = match issuing.distribution_point {
        None => Vec::new(),
        Some(DistributionPointName::FullName(names)) => names.iter().filter_map(point).collect(),
        Some(DistributionPointName::NameRelativeToCRLIssuer(_)) => {
            return Err(unsupported("a CRL whose distribution point is relative to its issuer"));
        }
    };
    Ok(Part {
        some_reasons: issuing.only_some_reasons.is_some(),
        only_users: issuing.only_contains_user_certs,
        only_authorities: issuing.only_contains_ca_certs,
        points,
    })
}

/// A distribution point's name, so that it can be compared: a URL, or a distinguished name.
pub(in crate::cert) fn point(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::UniformResourceIdentifier(url) => Some(url.as_str().to_owned()),
        GeneralName::DirectoryName(name) => name.to_der().ok().map(|der| dn::display(&der)),
        _ => None,
    }
}

/// Why an entry is there. The only critical extension that there is for entries belongs to indirect lists.
fn of_entry(der: &[u8]) -> Result<Reason, RevocationError> {
    let mut reason = Reason(0);
    for extension in Extensions::from_der(der).map_err(malformed)? {
        if extension.extn_id == REASON {
            let code = walk::content(extension.extn_value.as_bytes()).map_err(malformed)?;
            reason = Reason(code.first().copied().unwrap_or(0));
        } else if extension.critical {
            return Err(unsupported("a CRL with entries that have critical extensions: an indirect one"));
        }
    }
    Ok(reason)
}
