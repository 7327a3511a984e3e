//! OCSP (RFC 6960): questions about one certificate, and the answers that are believed: signed by the issuer itself, or by a responder
//! whose certificate the issuer has made for this.

use core::time::Duration;

use der::Decode;
use der::asn1::ObjectIdentifier;
use dormouse_sansio::UnixTime;
use x509_cert::ext::Extensions;

use super::der::{self as walk, Fields, Signed};
use super::{Reason, RevocationError, Times, number};
use crate::cert::usage::may_sign;
use crate::cert::{Certificate, Issued, dn};
use crate::hash::{HashAlg, hash};

const WHAT: &str = "OCSP answer";
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
const NONCE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.2");
const OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");
/// AlgorithmIdentifier of SHA-1, which names issuers in questions: every responder knows it, and nothing rests on it.
const SHA1: [u8; 11] = [0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00];
/// An answer without nextUpdate is the last word when it is made, and believed for this long.
const WITHOUT_NEXT: Duration = Duration::from_secs(600);
/// Certificates of an answer that are looked at.
const MAX_CERTIFICATES: usize = 8;

/// Bytes of a nonce (RFC 9654, section 2.1: 32 are recommended).
pub const NONCE_LEN: usize = 32;

/// A question about one certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OcspRequest {
    about: Issued,
    certificate_id: Vec<u8>,
    nonce: [u8; NONCE_LEN],
}

impl OcspRequest {
    /// Asks about the certificate `about`, which `issuer` has issued. `nonce` is random.
    #[must_use]
    pub fn new(about: &Issued, issuer: &Certificate, nonce: [u8; NONCE_LEN]) -> Self {
        Self { about: about.clone(), certificate_id: certificate_id(about, issuer), nonce }
    }

    /// The body of the HTTP request, of type `application/ocsp-request`.
    #[must_use]
    pub fn to_der(&self) -> Vec<u8> {
        let nonce = element(walk::OCTET_STRING, &[&element(walk::OCTET_STRING, &[&self.nonce])]);
        let extension = element(walk::SEQUENCE, &[&element(walk::OID, &[NONCE.as_bytes()]), &nonce]);
        let extensions = element(0xa2, &[&element(walk::SEQUENCE, &[&extension])]);
        let one = element(walk::SEQUENCE, &[&self.certificate_id]);
        let list = element(walk::SEQUENCE, &[&one]);
        element(walk::SEQUENCE, &[&element(walk::SEQUENCE, &[&list, &extensions])])
    }
}

/// An answer about one certificate that is believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OcspAnswer {
    pub(super) about: Issued,
    pub(super) times: Times,
    /// Why it is revoked, if it is.
    pub(super) revoked: Option<Reason>,
}

impl OcspAnswer {
    /// Reads the answer to `request`, and verifies that `issuer`, or who answers for it, has signed it at a time that fits `now`. An
    /// answer without a nonce is taken, because responders make them in advance; one with another nonce is not.
    ///
    /// # Errors
    /// [`RevocationError`].
    pub fn verify(
        der: &[u8],
        request: &OcspRequest,
        issuer: &Certificate,
        now: UnixTime,
    ) -> Result<Self, RevocationError> {
        Self::read(der, &request.about, issuer, Some(&request.nonce), now)
    }

    /// The same for an answer that was kept, whose question is forgotten: what is revoked stays so.
    ///
    /// # Errors
    /// [`RevocationError`].
    pub fn verify_kept(
        der: &[u8],
        about: &Issued,
        issuer: &Certificate,
        now: UnixTime,
    ) -> Result<Self, RevocationError> {
        Self::read(der, about, issuer, None, now)
    }

    /// Whether it says that the certificate is revoked.
    #[must_use]
    pub const fn is_revoked(&self) -> bool {
        self.revoked.is_some()
    }

    /// When it was made.
    #[must_use]
    pub const fn this_update(&self) -> UnixTime {
        self.times.this_update
    }

    /// When a newer answer was to be there.
    #[must_use]
    pub const fn next_update(&self) -> Option<UnixTime> {
        self.times.next_update
    }

    fn read(
        der: &[u8],
        about: &Issued,
        issuer: &Certificate,
        nonce: Option<&[u8; NONCE_LEN]>,
        now: UnixTime,
    ) -> Result<Self, RevocationError> {
        let basic = basic(der)?;
        let signed = Signed::from_der(basic).map_err(malformed)?;
        let data = Data::from_der(signed.message).map_err(malformed)?;
        let wanted = certificate_id(about, issuer);
        let (times, revoked) = data.single(&wanted)?;
        if let (Some(theirs), Some(ours)) = (data.nonce, nonce)
            && theirs != element(walk::OCTET_STRING, &[ours]).as_slice()
            && theirs != ours.as_slice()
        {
            return Err(RevocationError::OtherQuestion("another nonce"));
        }
        let lasts = nonce.is_none() && revoked.is_some_and(|reason| reason != Reason::HOLD);
        match times.check(now) {
            Err(RevocationError::Expired { .. }) if lasts => {}
            checked => checked?,
        }
        check_signer(signed, &data, issuer, now)?;
        Ok(Self { about: about.clone(), times, revoked })
    }
}

fn malformed(error: der::Error) -> RevocationError {
    RevocationError::Malformed { what: WHAT, why: error.to_string() }
}

/// CertID (RFC 6960, section 4.1.1).
fn certificate_id(about: &Issued, issuer: &Certificate) -> Vec<u8> {
    let sha1 = |bytes: &[u8]| element(walk::OCTET_STRING, &[&hash(HashAlg::Sha1, &[bytes])]);
    let mut serial = number(&about.serial).to_vec();
    if serial.first().is_none_or(|top| *top >= 0x80) {
        serial.insert(0, 0);
    }
    let key = sha1(issuer.public_key_bits());
    element(walk::SEQUENCE, &[&SHA1, &sha1(&issuer.0.subject), &key, &element(walk::INTEGER, &[&serial])])
}

/// One element in DER.
fn element(identifier: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let mut der = vec![identifier];
    match len {
        0..0x80 => der.push(low),
        0x80..0x100 => der.extend([0x81, low]),
        _ => der.extend([0x82, high, low]),
    }
    parts.iter().for_each(|part| der.extend_from_slice(part));
    der
}

/// OCSPResponse (RFC 6960, section 4.2.1): the basic answer in it.
fn basic(der: &[u8]) -> Result<&[u8], RevocationError> {
    let mut response = Fields::of(der).map_err(malformed)?;
    let status = response.next(walk::ENUMERATED).and_then(walk::content).map_err(malformed)?;
    let refusal = match status {
        [0] => None,
        [1] => Some("the question is malformed"),
        [2] => Some("an internal error"),
        [3] => Some("try later"),
        [5] => Some("the question must be signed"),
        [6] => Some("unauthorized: it does not know this issuer"),
        _ => Some("an unknown error"),
    };
    if let Some(refusal) = refusal {
        return Err(RevocationError::Responder(refusal));
    }
    let bytes = response.next(0xa0).and_then(walk::content).map_err(malformed)?;
    let mut bytes = Fields::of(bytes).map_err(malformed)?;
    if bytes.next(walk::OID).and_then(walk::content).map_err(malformed)? != BASIC.as_bytes() {
        return Err(RevocationError::Unsupported("an OCSP answer that is not a basic one".to_owned()));
    }
    let basic = bytes.next(walk::OCTET_STRING).and_then(walk::content).map_err(malformed)?;
    bytes.finish().and_then(|()| response.finish()).map_err(malformed)?;
    Ok(basic)
}

/// ResponseData (RFC 6960, section 4.2.1).
struct Data<'a> {
    responder: &'a [u8],
    singles: &'a [u8],
    nonce: Option<&'a [u8]>,
}

impl<'a> Data<'a> {
    fn from_der(der: &'a [u8]) -> der::Result<Self> {
        let mut fields = Fields::of(der)?;
        fields.optional(0xa0)?;
        let responder = fields.any()?;
        fields.next(walk::GENERALIZED_TIME)?;
        let singles = fields.next(walk::SEQUENCE)?;
        let mut nonce = None;
        if let Some(extensions) = fields.optional(0xa1)? {
            let mut extensions = Fields::of(walk::content(extensions)?)?;
            while !extensions.is_finished() {
                let mut extension = Fields::of(extensions.next(walk::SEQUENCE)?)?;
                if walk::content(extension.next(walk::OID)?)? == NONCE.as_bytes() {
                    extension.optional(0x01)?;
                    nonce = Some(walk::content(extension.next(walk::OCTET_STRING)?)?);
                }
            }
        }
        fields.finish()?;
        Ok(Self { responder, singles, nonce })
    }

    /// What it says of the certificate that was asked about.
    fn single(&self, wanted: &[u8]) -> Result<(Times, Option<Reason>), RevocationError> {
        let mut singles = Fields::of(self.singles).map_err(malformed)?;
        while !singles.is_finished() {
            let mut single =
                Fields::of(singles.next(walk::SEQUENCE).map_err(malformed)?).map_err(malformed)?;
            if single.next(walk::SEQUENCE).map_err(malformed)? == wanted {
                return read_single(single);
            }
        }
        Err(RevocationError::OtherQuestion("it is about another certificate"))
    }
}

/// SingleResponse after its CertID.
fn read_single(mut fields: Fields<'_>) -> Result<(Times, Option<Reason>), RevocationError> {
    let status = fields.any().map_err(malformed)?;
    let this_update = fields.any().and_then(walk::time).map_err(malformed)?;
    let next = fields.optional(0xa0).map_err(malformed)?;
    let next = next.map(|next| walk::content(next).and_then(walk::time)).transpose().map_err(malformed)?;
    if let Some(extensions) = fields.optional(0xa1).map_err(malformed)? {
        let extensions = walk::content(extensions).and_then(Extensions::from_der).map_err(malformed)?;
        if extensions.iter().any(|e| e.critical) {
            return Err(RevocationError::Unsupported("an OCSP answer with a critical extension".to_owned()));
        }
    }
    fields.finish().map_err(malformed)?;
    let revoked = match status.first() {
        Some(0x80) => None,
        Some(0xa1) => {
            let mut info = Fields::inside(status).map_err(malformed)?;
            info.next(walk::GENERALIZED_TIME).map_err(malformed)?;
            let code = info.optional(0xa0).map_err(malformed)?;
            let code = code.map(|code| walk::content(code).and_then(walk::content)).transpose();
            Some(Reason(code.map_err(malformed)?.and_then(|c| c.first().copied()).unwrap_or(0)))
        }
        _ => return Err(RevocationError::Responder("it does not know this certificate")),
    };
    let next_update = Some(next.unwrap_or(this_update + WITHOUT_NEXT));
    Ok((Times { this_update, next_update }, revoked))
}

/// The answer is the issuer's own, or that of a responder to whom "the CA that issued the certificate in question" has given a
/// certificate with id-kp-OCSPSigning (RFC 6960, section 4.2.2.2). The chain of such a certificate goes no further: "This certificate MUST
/// be issued directly by the CA".
fn check_signer(
    mut signed: Signed<'_>,
    data: &Data<'_>,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<(), RevocationError> {
    if is_responder(data.responder, issuer) {
        return if signed.is_by(&issuer.0.spki) {
            Ok(())
        } else {
            Err(RevocationError::Signature(issuer.subject()))
        };
    }
    let enclosed = signed.rest.optional(0xa0).map_err(malformed)?;
    let enclosed = enclosed.map(walk::content).transpose().map_err(malformed)?;
    let mut enclosed = enclosed.map(Fields::of).transpose().map_err(malformed)?;
    for _ in 0..MAX_CERTIFICATES {
        let Some(list) = enclosed.as_mut().filter(|list| !list.is_finished()) else { break };
        let der = list.next(walk::SEQUENCE).map_err(malformed)?;
        let Ok(certificate) = Certificate::from_der(der) else { continue };
        if is_responder(data.responder, &certificate) {
            return check_delegate(&signed, der, &certificate, issuer, now);
        }
    }
    Err(RevocationError::MayNotSign("an unknown responder".to_owned()))
}

fn check_delegate(
    signed: &Signed<'_>,
    der: &[u8],
    responder: &Certificate,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<(), RevocationError> {
    let purposes = responder.0.extended_key_usage.as_deref().unwrap_or_default();
    let valid = responder.not_before() <= now && now <= responder.not_after();
    if !purposes.contains(&OCSP_SIGNING)
        || !valid
        || !may_sign(responder.0.key_usage)
        || !dn::same(&responder.0.issuer, &issuer.0.subject)
    {
        return Err(RevocationError::MayNotSign(responder.subject()));
    }
    if !Signed::from_der(der).map_err(malformed)?.is_by(&issuer.0.spki) {
        return Err(RevocationError::MayNotSign(responder.subject()));
    }
    if signed.is_by(&responder.0.spki) {
        Ok(())
    } else {
        Err(RevocationError::Signature(responder.subject()))
    }
}

/// ResponderID: by name [1] or by the SHA-1 hash of the key [2].
fn is_responder(id: &[u8], certificate: &Certificate) -> bool {
    let Ok(inner) = walk::content(id) else { return false };
    match id.first() {
        Some(0xa1) => dn::same(inner, &certificate.0.subject),
        Some(0xa2) => {
            let key = hash(HashAlg::Sha1, &[certificate.public_key_bits()]);
            walk::content(inner).is_ok_and(|named| named == &key[..])
        }
        _ => false,
    }
}
