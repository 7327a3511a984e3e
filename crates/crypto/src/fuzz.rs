//! Entry points for fuzzing: bytes in, no panic. Not part of the interface.

use dormouse_sansio::UnixTime;

use crate::cert::{
    Certificate, Crl, Identity, Issued, KnownPaths, NONCE_LEN, OcspAnswer, OcspRequest, Request, Revocations,
    TrustStore, Usage,
};
use crate::hip::v1;
use crate::psk::parse_psk;
use crate::sign::{PublicKey, SigningKey, from_algorithm_identifier};

/// Everything that reads certificates: the parser, names, chains and keys.
pub fn certificate(data: &[u8]) {
    let _ = Request::from_der(data);
    let _ = crate::cms::certificates_of(data);
    let Ok(certificates) = Certificate::from_file_content(data) else {
        return;
    };
    for certificate in &certificates {
        let _ = certificate.subject().len() + certificate.issuer().len() + format!("{certificate:?}").len();
        for identity in certificate.identities() {
            let (kind, data) = identity.to_ike();
            let _ = Identity::from_ike(kind, &data);
            if let (Identity::Dn(_), Ok(again)) = (&identity, identity.to_string().parse::<Identity>()) {
                assert!(again.is_same_as(&identity), "{identity}");
            }
            assert!(certificate.require(&identity).is_ok() || identity.to_string().contains('*'));
        }
        let (store, known) =
            (TrustStore::new(certificates.clone()).unwrap_or_default(), KnownPaths::default());
        let _ = store.certreq();
        for usage in [Usage::Ike, Usage::IkeOrServerAuth] {
            let _ = store.verify(certificate, &certificates, certificate.not_before(), usage, &known);
            let _ = TrustStore::default().verify(certificate, &certificates, UnixTime(0), usage, &known);
        }
    }
}

/// Everything that reads keys and the structures around signatures. A key of version 1 of HIP that is taken has numbers that make its public half again.
pub fn key(data: &[u8]) {
    let _ = SigningKey::from_file_content(data);
    let _ = SigningKey::from_der(data);
    if let Ok(key) = v1::SigningKey::from_file_content(data) {
        let public = key.public_key();
        assert_eq!(v1::PublicKey::new(public.numbers().clone()).as_ref(), Ok(public));
        assert!(!public.verify(b"message", data));
    }
    let _ = parse_psk(data);
    let _ = from_algorithm_identifier(data);
    if let Ok(key) = PublicKey::from_spki_der(data) {
        for scheme in crate::sign::Scheme::ALL {
            let _ = key.verify(scheme, b"message", data);
        }
    }
}

/// CRLs, in files and from servers. The first byte says how many bytes of a CA's certificate come before the list, in units of 8.
pub fn crl(data: &[u8]) {
    let Some((issuer, list)) = with_certificate(data) else { return };
    let now = issuer.not_before();
    if let Ok(list) = Crl::verify(list, &issuer, now) {
        let mut book = Revocations::default();
        let issued = Issued { issuer_key: issuer.key_hash(), serial: vec![1] };
        assert!(book.add_list(list.clone(), now) && !book.add_list(list, now));
        book.learn(&issued, &issuer);
        let _ = book.status(&[issued.clone(), issued], now);
    }
    let _ = Crl::ders_of_file(list);
    let _ = Crl::ders_of_file(data);
}

/// OCSP answers; as [`crl`].
pub fn ocsp(data: &[u8]) {
    let Some((issuer, answer)) = with_certificate(data) else { return };
    let about = Issued { issuer_key: issuer.key_hash(), serial: vec![1] };
    let request = OcspRequest::new(&about, &issuer, [0; NONCE_LEN]);
    for now in [issuer.not_before(), issuer.not_after()] {
        let fresh = OcspAnswer::verify(answer, &request, &issuer, now);
        let kept = OcspAnswer::verify_kept(answer, &about, &issuer, now);
        for answer in [fresh, kept].into_iter().flatten() {
            assert!(Revocations::default().add_answer(answer, now));
        }
    }
}

fn with_certificate(data: &[u8]) -> Option<(Certificate, &[u8])> {
    let (&len, rest) = data.split_first()?;
    let (certificate, rest) = rest.split_at_checked(usize::from(len) * 8)?;
    // Padded with zeros to a multiple of 8.
    let end = certificate.iter().rposition(|b| *b != 0)? + 1;
    Some((Certificate::from_der(certificate.get(..end)?).ok()?, rest))
}

/// Identification payloads and the notation of identities.
pub fn identity(data: &[u8]) {
    if let [kind, rest @ ..] = data
        && let Ok(identity) = Identity::from_ike(*kind, rest)
    {
        let _ = identity.to_string();
    }
    if let Ok(text) = core::str::from_utf8(data) {
        let _ = text.parse::<Identity>();
    }
}
