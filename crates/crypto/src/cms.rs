//! Signed messages of CMS (RFC 5652), as configuration profiles of Apple's devices are wrapped. Owns making one and opening one: a message is opened
//! only if the signature over it is right. Whether the signer is one to be trusted is not known here.

use crate::cert::Certificate;
use crate::hash::{HashAlg, hash};
use crate::pkcs12::{content_info, oid};
use crate::secret::Secret;
use crate::sign::{Scheme, SigningKey, algorithm_identifier, from_algorithm_identifier};
use crate::tlv::{CONTEXT, OCTETS, OID, Reader, SEQUENCE, SET, element, integer};

/// Most certificates that are looked at.
const MOST: usize = 32;

const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
/// `rsaEncryption`: the hash stands elsewhere.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];

/// What is wrong with a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmsError {
    /// Not CMS in DER, or cut off.
    #[error("no signed message in DER: {0}")]
    Malformed(&'static str),
    /// An algorithm that is not read.
    #[error("its signature is of a kind that is not read")]
    Unsupported,
    /// The certificate of the signer is not among those in it.
    #[error("the certificate of who signed it is not in it")]
    NoCertificate,
    /// The content or the signature has been changed.
    #[error("its signature is wrong: it has been changed since it was signed")]
    Signature,
}

/// A message whose signature is right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed<'a> {
    /// What was signed.
    pub content: &'a [u8],
    /// Whose key has signed it. Nothing has been verified of this certificate.
    pub signer: Certificate,
    /// The other certificates in it.
    pub others: Vec<Certificate>,
}

fn sha2(last: u8) -> Secret {
    element(SEQUENCE, &[element(OID, &[oid::SHA2, &[last]]).as_bytes()])
}

/// Signs `content` with the key of the first of these certificates, which go with it. `None` if the key does not sign, or has no scheme with SHA-2
/// that clients know.
#[must_use]
pub fn sign(content: &[u8], certificates: &[&Certificate], key: &SigningKey) -> Option<Vec<u8>> {
    let own = certificates.first()?;
    let known = [
        (Scheme::EcdsaSha256, HashAlg::Sha256, 1),
        (Scheme::EcdsaSha384, HashAlg::Sha384, 2),
        (Scheme::RsaPkcs1Sha256, HashAlg::Sha256, 1),
    ];
    let (scheme, alg, last) = known.into_iter().find(|(scheme, ..)| key.schemes().contains(scheme))?;
    let attribute = |kind: &[u8], value: Secret| {
        let values = element(SET, &[value.as_bytes()]);
        element(SEQUENCE, &[element(OID, &[kind]).as_bytes(), values.as_bytes()])
    };
    let digest = hash(alg, &[content]);
    // In the order that DER has for a SET OF: the first is the shorter one.
    let kind = attribute(CONTENT_TYPE, element(OID, &[oid::DATA]));
    let digest = attribute(MESSAGE_DIGEST, element(OCTETS, &[&digest]));
    let attributes = [kind.as_bytes(), digest.as_bytes()];
    // What is signed is the DER of the attributes as a SET OF, and not under the tag that they have in the message (RFC 5652 section 5.4).
    let signature = key.sign(scheme, element(SET, &attributes).as_bytes()).ok()?;
    let (issuer, serial) = issuer_and_serial(own.der())?;
    let signer = element(
        SEQUENCE,
        &[
            integer(1).as_bytes(),
            element(SEQUENCE, &[issuer, serial]).as_bytes(),
            sha2(last).as_bytes(),
            element(CONTEXT, &attributes).as_bytes(),
            algorithm_identifier(scheme),
            element(OCTETS, &[&signature]).as_bytes(),
        ],
    );
    let ders: Vec<&[u8]> = certificates.iter().map(|c| c.der()).collect();
    let signed = element(
        SEQUENCE,
        &[
            integer(1).as_bytes(),
            element(SET, &[sha2(last).as_bytes()]).as_bytes(),
            content_info(oid::DATA, element(OCTETS, &[content]).as_bytes()).as_bytes(),
            element(CONTEXT, &ders).as_bytes(),
            element(SET, &[signer.as_bytes()]).as_bytes(),
        ],
    );
    Some(content_info(SIGNED_DATA, signed.as_bytes()).as_bytes().to_vec())
}

/// Issuer and serial number of a certificate, as they stand there.
fn issuer_and_serial(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut tbs = Reader(certificate).inside(SEQUENCE)?.inside(SEQUENCE)?;
    let _version = tbs.take(CONTEXT);
    let (_, _, serial) = tbs.next()?;
    tbs.take(SEQUENCE)?;
    let (_, _, issuer) = tbs.next()?;
    Some((issuer, serial))
}

/// A message that carries certificates and signs nothing (RFC 5652, section 5.2), as EST answers with (RFC 7030, section 4.1.3).
#[must_use]
pub fn certificates_only(certificates: &[&Certificate]) -> Vec<u8> {
    let ders: Vec<&[u8]> = certificates.iter().map(|c| c.der()).collect();
    let none = element(SET, &[]);
    let inner = element(SEQUENCE, &[element(OID, &[oid::DATA]).as_bytes()]);
    let data = element(
        SEQUENCE,
        &[
            integer(1).as_bytes(),
            none.as_bytes(),
            inner.as_bytes(),
            element(CONTEXT, &ders).as_bytes(),
            none.as_bytes(),
        ],
    );
    content_info(SIGNED_DATA, data.as_bytes()).as_bytes().to_vec()
}

/// What follows version and hashes in a message that is signed, or has its form.
fn signed_data(bytes: &[u8]) -> Result<Reader<'_>, CmsError> {
    let malformed = |what| move || CmsError::Malformed(what);
    let mut info =
        Reader(bytes).inside(SEQUENCE).ok_or_else(malformed("no structure, or one that is cut off"))?;
    if info.take(OID) != Some(SIGNED_DATA) {
        return Err(CmsError::Malformed("nothing that is signed"));
    }
    let mut data =
        info.inside(CONTEXT).and_then(|mut c| c.inside(SEQUENCE)).ok_or_else(malformed("what is signed"))?;
    data.number().ok_or_else(malformed("its version"))?;
    data.take(SET).ok_or_else(malformed("its hashes"))?;
    Ok(data)
}

/// The certificates of a message, of which nothing is verified.
///
/// # Errors
/// [`CmsError::Malformed`], also if one of them cannot be read or there are more than are looked at; [`CmsError::NoCertificate`].
pub fn certificates_of(bytes: &[u8]) -> Result<Vec<Certificate>, CmsError> {
    let malformed = |what| move || CmsError::Malformed(what);
    let mut data = signed_data(bytes)?;
    data.take(SEQUENCE).ok_or_else(malformed("its content"))?;
    let mut ders = data.inside(CONTEXT).ok_or(CmsError::NoCertificate)?;
    let mut certificates = Vec::new();
    while !ders.is_empty() {
        let (_, _, der) = ders.next().ok_or_else(malformed("its certificates"))?;
        if certificates.len() == MOST {
            return Err(CmsError::Malformed("more certificates than are looked at"));
        }
        certificates.push(Certificate::from_der(der).map_err(|_| CmsError::Malformed("its certificates"))?);
    }
    if certificates.is_empty() { Err(CmsError::NoCertificate) } else { Ok(certificates) }
}

/// Whether this begins as such a message does.
#[must_use]
pub fn is_one(bytes: &[u8]) -> bool {
    let inner = Reader(bytes).inside(SEQUENCE).and_then(|mut info| info.take(OID));
    inner == Some(SIGNED_DATA)
}

/// Opens a message.
///
/// # Errors
/// [`CmsError`]: nothing is opened whose signature is not right.
pub fn open(bytes: &[u8]) -> Result<Signed<'_>, CmsError> {
    let malformed = |what| move || CmsError::Malformed(what);
    let mut data = signed_data(bytes)?;
    let mut inner = data.inside(SEQUENCE).ok_or_else(malformed("its content"))?;
    inner.take(OID).ok_or_else(malformed("its content"))?;
    let content = inner
        .inside(CONTEXT)
        .and_then(|mut c| c.take(OCTETS))
        .ok_or_else(malformed("the content is not in it"))?;
    let mut ders = data.inside(CONTEXT).ok_or(CmsError::NoCertificate)?;
    let mut certificates = Vec::new();
    while !ders.is_empty() && certificates.len() < MOST {
        let (_, _, der) = ders.next().ok_or_else(malformed("its certificates"))?;
        certificates.extend(Certificate::from_der(der));
    }
    // Lists of revoked certificates.
    let _ = data.take(0xa1);
    let mut signer =
        data.inside(SET).and_then(|mut s| s.inside(SEQUENCE)).ok_or_else(malformed("who signed it"))?;
    signer.number().ok_or_else(malformed("who signed it"))?;
    let issuer_serial = signer.take(SEQUENCE).ok_or(CmsError::NoCertificate)?;
    let is_signers = |c: &Certificate| {
        issuer_and_serial(c.der()).is_some_and(|(issuer, serial)| [issuer, serial].concat() == issuer_serial)
    };
    let at = certificates.iter().position(is_signers).ok_or(CmsError::NoCertificate)?;
    let own = certificates.remove(at);
    require_signature(signer, content, &own)?;
    Ok(Signed { content, signer: own, others: certificates })
}

/// What follows the signer's name: hash, attributes, algorithm and signature.
fn require_signature(mut signer: Reader<'_>, content: &[u8], own: &Certificate) -> Result<(), CmsError> {
    let malformed = || CmsError::Malformed("its signature");
    let digest = signer.inside(SEQUENCE).and_then(|mut alg| alg.take(OID)).ok_or_else(malformed)?;
    let (alg, rsa) = match digest.strip_prefix(oid::SHA2) {
        Some([1]) => (HashAlg::Sha256, Scheme::RsaPkcs1Sha256),
        Some([2]) => (HashAlg::Sha384, Scheme::RsaPkcs1Sha384),
        Some([3]) => (HashAlg::Sha512, Scheme::RsaPkcs1Sha512),
        _ => return Err(CmsError::Unsupported),
    };
    let attributes = signer.take(CONTEXT);
    let (_, mut inner, whole) = signer.next().map(|(tag, c, w)| (tag, Reader(c), w)).ok_or_else(malformed)?;
    let scheme = match from_algorithm_identifier(whole) {
        Some(scheme) => scheme,
        None if inner.take(OID) == Some(RSA) => rsa,
        None => return Err(CmsError::Unsupported),
    };
    let signature = signer.take(OCTETS).ok_or_else(malformed)?;
    let key = own.public_key().map_err(|_| CmsError::Unsupported)?;
    let signed = match attributes {
        None => Secret::from(content),
        Some(attributes) => {
            if digest_in(attributes) != Some(hash(alg, &[content]).as_slice()) {
                return Err(CmsError::Signature);
            }
            element(SET, &[attributes])
        }
    };
    key.verify(scheme, signed.as_bytes(), signature).map_err(|_| CmsError::Signature)
}

/// The hash of the content that the attributes have.
fn digest_in(attributes: &[u8]) -> Option<&[u8]> {
    let mut all = Reader(attributes);
    while let Some(mut one) = all.inside(SEQUENCE) {
        if one.take(OID)? == MESSAGE_DIGEST {
            return one.inside(SET)?.take(OCTETS);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test asks openssl")]

    use super::*;
    use crate::sign::NewKey;
    use std::process::Command;

    fn signer(kind: NewKey) -> (SigningKey, Certificate) {
        let pem = kind.pem().unwrap();
        let pair = rcgen::KeyPair::from_pem(str::from_utf8(pem.as_bytes()).unwrap()).unwrap();
        let params = rcgen::CertificateParams::new(vec!["gw.example.org".into()]).unwrap();
        let own = Certificate::from_der(params.self_signed(&pair).unwrap().der()).unwrap();
        (SigningKey::from_pem(pem.as_bytes()).unwrap(), own)
    }

    #[test]
    fn what_is_signed_is_opened_and_what_was_changed_is_not() {
        for kind in [NewKey::EcdsaP256, NewKey::EcdsaP384, NewKey::Rsa2048] {
            let (key, own) = signer(kind);
            let (_, other) = signer(NewKey::EcdsaP256);
            let message = sign(b"content", &[&own, &other], &key).unwrap();
            assert!(is_one(&message) && !is_one(b"content"));
            let opened = open(&message).unwrap();
            assert_eq!((opened.content, &opened.signer, opened.others), (&b"content"[..], &own, vec![other]));
            for at in 0..message.len() {
                let mut bad = message.clone();
                bad[at] ^= 1;
                // The certificates are covered by nothing but what they are themselves; the key that has signed is the same.
                if let Ok(opened) = open(&bad) {
                    assert_eq!(opened.content, b"content", "byte {at}");
                    assert_eq!(opened.signer.public_key(), own.public_key(), "byte {at}");
                }
                open(&message[..at]).expect_err("cut off");
            }
            let at = message.windows(7).position(|w| w == b"content").unwrap();
            let mut forged = message.clone();
            forged[at] = b'C';
            assert_eq!(open(&forged).unwrap_err(), CmsError::Signature);
        }
    }

    #[test]
    fn certificates_alone_are_carried_and_damage_is_refused() {
        let ((key, one), (_, two)) = (signer(NewKey::EcdsaP256), signer(NewKey::EcdsaP384));
        let message = certificates_only(&[&one, &two]);
        assert_eq!(certificates_of(&message), Ok(vec![one.clone(), two.clone()]));
        assert_eq!(
            certificates_of(&sign(b"content", &[&one, &two], &key).unwrap()),
            Ok(vec![one.clone(), two])
        );
        assert!(open(&message).is_err(), "nobody has signed anything");
        for at in 0..message.len() {
            certificates_of(&message[..at]).expect_err("cut off");
            let mut bad = message.clone();
            bad[at] ^= 0x21;
            let _ = certificates_of(&bad);
        }
        assert_eq!(certificates_of(&certificates_only(&[])), Err(CmsError::NoCertificate));
        assert!(matches!(
            certificates_of(&certificates_only(&[&one; MOST + 1])),
            Err(CmsError::Malformed(_))
        ));
    }

    #[test]
    fn openssl_and_this_read_each_others_messages() {
        let dir = std::env::temp_dir().join(format!("dormouse-cms-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let openssl = |line: &str| {
            let out = Command::new("openssl").args(line.split(' ')).current_dir(&dir).output();
            out.map(|out| {
                (out.status.success(), out.stdout, String::from_utf8_lossy(&out.stderr).into_owned())
            })
        };
        for kind in [NewKey::EcdsaP256, NewKey::EcdsaP384, NewKey::Rsa2048] {
            let pem = kind.pem().unwrap();
            let pair = rcgen::KeyPair::from_pem(str::from_utf8(pem.as_bytes()).unwrap()).unwrap();
            let params = rcgen::CertificateParams::new(vec!["gw.example.org".into()]).unwrap();
            let own = Certificate::from_der(params.self_signed(&pair).unwrap().der()).unwrap();
            let key = SigningKey::from_pem(pem.as_bytes()).unwrap();
            std::fs::write(dir.join("key"), pem.as_bytes()).unwrap();
            std::fs::write(dir.join("own"), own.to_pem().unwrap()).unwrap();
            std::fs::write(dir.join("plain"), b"line\n").unwrap();
            std::fs::write(dir.join("ours"), sign(b"line\n", &[&own], &key).unwrap()).unwrap();
            let verify = "cms -verify -inform DER -in ours -CAfile own -purpose any -binary";
            let Ok((good, content, said)) = openssl(verify) else {
                println!("skipped: no openssl");
                return;
            };
            assert!(good && content == b"line\n", "{said}");
            for how in ["cms -sign -nodetach", "smime -sign -nodetach", "cms -sign -nodetach -noattr"] {
                let line = format!("{how} -binary -in plain -signer own -inkey key -outform DER -out theirs");
                let (good, _, said) = openssl(&line).unwrap();
                assert!(good, "{said}");
                let theirs = std::fs::read(dir.join("theirs")).unwrap();
                let opened = open(&theirs).unwrap_or_else(|e| panic!("{line}: {e}"));
                assert_eq!((opened.content, &opened.signer), (&b"line\n"[..], &own));
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
