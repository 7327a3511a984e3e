//! What a file of PKCS #12 holds (RFC 7292 section 4). Owns the reading; nothing is looked at before the MAC over all of it is right.

use super::derive::{Purpose, derive};
use super::{Pkcs12Error, oid, pbe};
use crate::cert::Certificate;
use crate::hash::HashAlg;
use crate::secret::{Secret, ct_eq};
use crate::sign::SigningKey;
use crate::tlv::{CONTEXT, CONTEXT_OCTETS, OCTETS, OID, Reader, SEQUENCE};
use aws_lc_rs::hmac;

/// Most certificates of a file.
const MOST: usize = 32;
/// Most parts of it that are under the passphrase: each may cost as many rounds as are allowed.
const MOST_SEALED: usize = 8;

/// A key and its certificate.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The private key as PEM, PKCS #8.
    pub key: Secret,
    /// Its certificate.
    pub own: Certificate,
    /// The other certificates of the file, in its order.
    pub others: Vec<Certificate>,
}

/// Opens a file.
///
/// # Errors
/// [`Pkcs12Error`]; [`Pkcs12Error::Passphrase`] if it is another one.
pub fn open(file: &[u8], passphrase: &str) -> Result<Contents, Pkcs12Error> {
    let malformed = Pkcs12Error::Malformed;
    let mut all = Reader(file).inside(SEQUENCE).ok_or(malformed("no structure, or one that is cut off"))?;
    if all.number() != Some(3) {
        return Err(malformed("it is not of version 3"));
    }
    let mut info = all.inside(SEQUENCE).ok_or(malformed("nothing in it"))?;
    let safe = data(&mut info).ok_or(malformed("it is signed, or empty"))?;
    let mut mac = all.inside(SEQUENCE).ok_or(malformed("it has no MAC"))?;
    require_mac(&mut mac, safe, passphrase)?;
    let mut found = Found::default();
    let mut infos = Reader(safe).inside(SEQUENCE).ok_or(malformed("its content"))?;
    while !infos.is_empty() {
        let mut info = infos.inside(SEQUENCE).ok_or(malformed("its content"))?;
        let mut ahead = info;
        if let Some(plain) = data(&mut ahead) {
            found.bags(plain, passphrase)?;
        } else if info.take(OID) == Some(oid::ENCRYPTED_DATA) {
            found.count()?;
            let plain = encrypted(&mut info, passphrase)?;
            found.bags(plain.as_bytes(), passphrase)?;
        } else {
            return Err(Pkcs12Error::Unsupported("encryption for a public key"));
        }
    }
    found.contents()
}

/// The octets of a ContentInfo that is plain data.
fn data<'a>(info: &mut Reader<'a>) -> Option<&'a [u8]> {
    (info.take(OID)? == oid::DATA).then_some(())?;
    info.inside(CONTEXT)?.take(OCTETS)
}

fn require_mac(mac: &mut Reader<'_>, safe: &[u8], passphrase: &str) -> Result<(), Pkcs12Error> {
    let malformed = || Pkcs12Error::Malformed("its MAC");
    let mut digest = mac.inside(SEQUENCE).ok_or_else(malformed)?;
    let kind = digest.inside(SEQUENCE).and_then(|mut alg| alg.take(OID)).ok_or_else(malformed)?;
    let wanted = digest.take(OCTETS).ok_or_else(malformed)?;
    let salt = mac.take(OCTETS).ok_or_else(malformed)?;
    let rounds = if mac.is_empty() { 1 } else { mac.number().ok_or_else(malformed)? };
    let rounds = pbe::rounds(rounds)?.get();
    let (alg, hmac) = match kind.strip_prefix(oid::SHA2) {
        None if kind == oid::SHA1 => (HashAlg::Sha1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        Some([1]) => (HashAlg::Sha256, hmac::HMAC_SHA256),
        Some([2]) => (HashAlg::Sha384, hmac::HMAC_SHA384),
        Some([3]) => (HashAlg::Sha512, hmac::HMAC_SHA512),
        _ => return Err(Pkcs12Error::Unsupported("its MAC")),
    };
    let key = derive(alg, Purpose::Mac, passphrase, salt, rounds, alg.output_len());
    let ours = hmac::sign(&hmac::Key::new(hmac, key.as_bytes()), safe);
    if ct_eq(ours.as_ref(), wanted) { Ok(()) } else { Err(Pkcs12Error::Passphrase) }
}

fn encrypted(info: &mut Reader<'_>, passphrase: &str) -> Result<Secret, Pkcs12Error> {
    let malformed = || Pkcs12Error::Malformed("what is encrypted");
    let mut content = info.inside(CONTEXT).and_then(|mut c| c.inside(SEQUENCE)).ok_or_else(malformed)?;
    content.number().ok_or_else(malformed)?;
    let mut content = content.inside(SEQUENCE).ok_or_else(malformed)?;
    content.take(OID).ok_or_else(malformed)?;
    let algorithm = content.take(SEQUENCE).ok_or_else(malformed)?;
    let sealed = content.take(CONTEXT_OCTETS).ok_or_else(malformed)?;
    pbe::open(algorithm, sealed, passphrase)
}

#[derive(Default)]
struct Found {
    keys: Vec<Secret>,
    certificates: Vec<Certificate>,
    sealed: usize,
}

impl Found {
    /// Counts one more part under the passphrase.
    fn count(&mut self) -> Result<(), Pkcs12Error> {
        self.sealed += 1;
        let much = Pkcs12Error::TooMuch("more than 8 parts of it are encrypted");
        if self.sealed > MOST_SEALED { Err(much) } else { Ok(()) }
    }

    fn bags(&mut self, plain: &[u8], passphrase: &str) -> Result<(), Pkcs12Error> {
        let malformed = || Pkcs12Error::Malformed("a bag");
        let mut bags = Reader(plain).inside(SEQUENCE).ok_or_else(malformed)?;
        while !bags.is_empty() {
            let mut bag = bags.inside(SEQUENCE).ok_or_else(malformed)?;
            let kind = bag.take(OID).ok_or_else(malformed)?;
            let mut value = bag.inside(CONTEXT).ok_or_else(malformed)?;
            if kind == oid::KEY_BAG {
                let (_, _, whole) = value.next().ok_or_else(malformed)?;
                self.keys.push(Secret::from(whole));
            } else if kind == oid::SHROUDED_KEY_BAG {
                let mut shrouded = value.inside(SEQUENCE).ok_or_else(malformed)?;
                let algorithm = shrouded.take(SEQUENCE).ok_or_else(malformed)?;
                let sealed = shrouded.take(OCTETS).ok_or_else(malformed)?;
                self.count()?;
                self.keys.push(pbe::open(algorithm, sealed, passphrase)?);
            } else if kind == oid::CERT_BAG {
                let mut cert = value.inside(SEQUENCE).ok_or_else(malformed)?;
                if cert.take(OID) == Some(oid::X509) {
                    let der = cert.inside(CONTEXT).and_then(|mut c| c.take(OCTETS)).ok_or_else(malformed)?;
                    let certificate = Certificate::from_der(der);
                    let unread = |_| Pkcs12Error::Malformed("a certificate in it");
                    self.certificates.push(certificate.map_err(unread)?);
                }
            }
            if self.keys.len() > MOST || self.certificates.len() > MOST {
                return Err(Pkcs12Error::TooMuch("more than 32 keys or certificates in it"));
            }
        }
        Ok(())
    }

    /// The first key that one of the certificates is of.
    fn contents(mut self) -> Result<Contents, Pkcs12Error> {
        for key in &self.keys {
            let Ok(signing) = SigningKey::from_der(key.as_bytes()) else { continue };
            let of = |c: &Certificate| c.public_key().is_ok_and(|public| public == *signing.public_key());
            if let Some(at) = self.certificates.iter().position(of) {
                let own = self.certificates.remove(at);
                let key = crate::sign::key_pem(key.as_bytes()).ok_or(Pkcs12Error::Malformed("its key"))?;
                return Ok(Contents { key, own, others: self.certificates });
            }
        }
        Err(Pkcs12Error::Malformed("no key in it that one of its certificates is of"))
    }
}
