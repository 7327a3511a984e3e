//! Certificate requests (PKCS #10, RFC 2986). Owns the reading of one and the proof in it that its maker has the key; what a certificate may say is decided by
//! who issues it, and nothing in a request is a right to anything.

use der::Decode;
use x509_cert::ext::pkix::SubjectAltName;

use super::{Identity, alternative_names, dn, sha256};
use crate::sign::{PublicKey, PublicKeyError, from_algorithm_identifier};
use crate::tlv::{CONTEXT, OCTETS, OID, Reader, SEQUENCE, SET};

/// Attributes, and extensions that are asked for, that are looked at.
const MOST: usize = 32;

const BIT_STRING: u8 = 0x03;
const BOOLEAN: u8 = 0x01;
/// `extensionRequest` (RFC 2985, section 5.4.2).
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// `subjectAltName`.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// A name without parts.
const EMPTY_NAME: &[u8] = &[0x30, 0];

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not one, or cut off.
    #[error("no certificate request (PKCS #10) in DER: {0}")]
    Malformed(&'static str),
    /// The key cannot be used.
    #[error("the key of the request: {0}")]
    Key(#[from] PublicKeyError),
    /// Signed by an algorithm that is not read.
    #[error("the request is signed in a way that is not read")]
    Unsupported,
    /// The signature is not of the key that is in it: "proof of possession" is missing.
    #[error("the request is not signed by its own key")]
    Signature,
}

/// A request whose maker has shown to have its key. Who made it is not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    key: PublicKey,
    key_hash: [u8; 32],
    names: Vec<Identity>,
}

impl Request {
    /// From DER.
    ///
    /// # Errors
    /// [`RequestError`]; also if the key is too weak, or has not signed it.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        let malformed = |what| move || RequestError::Malformed(what);
        let mut outer = Reader(der);
        let mut whole =
            outer.inside(SEQUENCE).ok_or_else(malformed("no structure, or one that is cut off"))?;
        if !outer.is_empty() {
            return Err(RequestError::Malformed("something follows it"));
        }
        let mut ahead = whole;
        let (_, _, signed) = ahead.next().ok_or_else(malformed("what is signed"))?;
        let mut info = whole.inside(SEQUENCE).ok_or_else(malformed("what is signed"))?;
        let (_, _, algorithm) = whole.next().ok_or_else(malformed("its algorithm"))?;
        let signature = whole.take(BIT_STRING).and_then(|bits| bits.strip_prefix(&[0]));
        let signature = signature.filter(|_| whole.is_empty()).ok_or_else(malformed("its signature"))?;

        if info.number() != Some(0) {
            return Err(RequestError::Malformed("its version is not 0"));
        }
        let (_, _, subject) = info.next().ok_or_else(malformed("its subject"))?;
        if subject != EMPTY_NAME && !dn::is_name(subject) {
            return Err(RequestError::Malformed("its subject"));
        }
        let (_, _, spki) = info.next().ok_or_else(malformed("its key"))?;
        let key = PublicKey::from_spki_der(spki)?;
        let scheme = from_algorithm_identifier(algorithm).ok_or(RequestError::Unsupported)?;
        key.verify(scheme, signed, signature).map_err(|_| RequestError::Signature)?;

        let mut names = Vec::new();
        if subject != EMPTY_NAME {
            names.push(Identity::Dn(subject.to_vec()));
        }
        if !info.is_empty() {
            let attributes = info.inside(CONTEXT).ok_or_else(malformed("its attributes"))?;
            names.extend(asked_names(attributes).ok_or_else(malformed("its attributes"))?);
        }
        Ok(Self { key, key_hash: sha256(spki), names })
    }

    /// The key that it is for.
    #[must_use]
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// As [`super::Certificate::key_hash`] of a certificate of this key.
    #[must_use]
    pub const fn key_hash(&self) -> [u8; 32] {
        self.key_hash
    }

    /// The names that it asks for: its subject, if it has one, and alternative names.
    #[must_use]
    pub fn names(&self) -> &[Identity] {
        &self.names
    }
}

/// The alternative names among the extensions that are asked for.
fn asked_names(mut attributes: Reader<'_>) -> Option<Vec<Identity>> {
    let mut found = Vec::new();
    for _ in 0..MOST {
        if attributes.is_empty() {
            return Some(found);
        }
        let mut one = attributes.inside(SEQUENCE)?;
        let kind = one.take(OID)?;
        let mut values = one.inside(SET)?;
        if kind != EXTENSION_REQUEST {
            continue;
        }
        let mut extensions = values.inside(SEQUENCE)?;
        let mut count = 0;
        while !extensions.is_empty() {
            count += 1;
            let mut extension = extensions.inside(SEQUENCE)?;
            let kind = extension.take(OID)?;
            let _critical = extension.take(BOOLEAN);
            let value = extension.take(OCTETS)?;
            if count > MOST {
                return None;
            }
            if kind == ALTERNATIVE_NAMES {
                let names = SubjectAltName::from_der(value).ok()?;
                // One that is of no kind that IKE knows could not be compared with what the certificate has.
                let known = alternative_names(&names.0).ok()?;
                if known.len() != names.0.len() {
                    return None;
                }
                found.extend(known);
            }
        }
    }
    attributes.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::{KeyKind, NewKey};
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn request(kind: NewKey, cn: Option<&str>, dns: &[&str]) -> Vec<u8> {
        let pem = kind.pem().unwrap();
        let pair = KeyPair::from_pem(str::from_utf8(pem.as_bytes()).unwrap()).unwrap();
        let names: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(cn) = cn {
            params.distinguished_name.push(DnType::CommonName, cn);
        }
        params.serialize_request(&pair).unwrap().der().to_vec()
    }

    #[test]
    fn a_request_says_its_key_and_the_names_that_it_asks_for() {
        for (kind, wanted) in
            [(NewKey::EcdsaP256, KeyKind::EcdsaP256), (NewKey::Rsa2048, KeyKind::Rsa { bits: 2048 })]
        {
            let read = Request::from_der(&request(kind, Some("joe"), &["Joe.example.org", "b.org"])).unwrap();
            assert_eq!(read.key().kind(), wanted);
            let names: Vec<String> = read.names().iter().map(ToString::to_string).collect();
            assert_eq!(names, ["CN=joe", "joe.example.org", "b.org"]);
        }
        assert_eq!(Request::from_der(&request(NewKey::EcdsaP384, None, &[])).unwrap().names(), []);
    }

    #[test]
    fn what_is_cut_off_or_changed_is_refused_and_never_panics() {
        let good = request(NewKey::EcdsaP256, Some("joe"), &["joe.example.org"]);
        for at in 0..good.len() {
            Request::from_der(&good[..at]).expect_err("cut off");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                Request::from_der(&bad).expect_err("its own key has not signed that");
            }
        }
        let mut long = good.clone();
        long.push(0);
        assert_eq!(Request::from_der(&long).unwrap_err(), RequestError::Malformed("something follows it"));
        for nonsense in [&b""[..], b"\x30\x80", b"-----BEGIN CERTIFICATE REQUEST-----", &[0x30; 4096]] {
            assert!(matches!(Request::from_der(nonsense), Err(RequestError::Malformed(_))));
        }
    }

    #[test]
    fn another_keys_signature_is_no_proof() {
        let (mut a, b) = (request(NewKey::EcdsaP256, None, &[]), request(NewKey::EcdsaP256, None, &[]));
        // Both have their keys at the same place, in a structure of the same form.
        let at = a
            .windows(5)
            .position(|w| w == [3, 66, 0, 4, a[a.len() - 1]])
            .or_else(|| a.windows(4).position(|w| w == [3, 66, 0, 4]));
        let at = at.unwrap() + 4;
        a[at..at + 64].copy_from_slice(&b[at..at + 64]);
        assert_eq!(Request::from_der(&a).unwrap_err(), RequestError::Signature);
    }
}
