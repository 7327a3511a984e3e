//! Entry points for fuzzing: bytes in, no panic. Not part of the interface.

use dormouse_sansio::UnixTime;

use crate::cert::{Certificate, Identity, TrustStore, Usage};
use crate::psk::parse_psk;
use crate::sign::{PublicKey, SigningKey, from_algorithm_identifier};

/// Everything that reads certificates: the parser, names, chains and keys.
pub fn certificate(data: &[u8]) {
    let Ok(certificates) = Certificate::from_file_content(data) else {
        return;
    };
    for certificate in &certificates {
        let _ = certificate.subject().len() + certificate.issuer().len() + format!("{certificate:?}").len();
        for identity in certificate.identities() {
            let (kind, data) = identity.to_ike();
            let _ = Identity::from_ike(kind, &data);
            let _ = identity.to_string().parse::<Identity>();
            assert!(certificate.require(&identity).is_ok() || identity.to_string().contains('*'));
        }
        let store = TrustStore::new(certificates.clone()).unwrap_or_default();
        let _ = store.certreq();
        for usage in [Usage::Ike, Usage::IkeOrServerAuth] {
            let _ = store.verify(certificate, &certificates, certificate.not_before(), usage);
            let _ = TrustStore::default().verify(certificate, &certificates, UnixTime(0), usage);
        }
    }
}

/// Everything that reads keys and the structures around signatures.
pub fn key(data: &[u8]) {
    let _ = SigningKey::from_file_content(data);
    let _ = SigningKey::from_der(data);
    let _ = parse_psk(data);
    let _ = from_algorithm_identifier(data);
    if let Ok(key) = PublicKey::from_spki_der(data) {
        for scheme in crate::sign::Scheme::ALL {
            let _ = key.verify(scheme, b"message", data);
        }
    }
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
