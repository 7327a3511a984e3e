//! Private key files: what is read, what is signed with it, and what the errors say about the others.

use dormouse_crypto::cert::{Certificate, CertificateError};
use dormouse_crypto::sign::{KeyKind, PrivateKeyError, PublicKeyError, Scheme, SignatureError, SigningKey};

const RSA_PKCS1: &[u8] = include_bytes!("data/rsa2048.pkcs1.pem");
const RSA_PKCS8: &[u8] = include_bytes!("data/rsa2048.pkcs8.pem");
const P256_SEC1: &[u8] = include_bytes!("data/p256.sec1.pem");
const P384_SEC1: &[u8] = include_bytes!("data/p384.sec1.pem");
const P384_PKCS8: &[u8] = include_bytes!("data/p384.pkcs8.pem");
const P521_SEC1: &[u8] = include_bytes!("data/p521.sec1.pem");
const ED25519: &[u8] = include_bytes!("data/ed25519.pkcs8.pem");
const CERTIFICATE: &[u8] = include_bytes!("data/rsa1024.crt");

fn read(content: &[u8]) -> SigningKey {
    SigningKey::from_file_content(content).expect("a key")
}

fn refuse(content: &[u8]) -> PrivateKeyError {
    SigningKey::from_file_content(content).expect_err("no key")
}

#[test]
fn every_format_gives_a_key_that_signs_what_it_says_it_can() {
    for (content, kind) in [
        (RSA_PKCS1, KeyKind::Rsa { bits: 2048 }),
        (RSA_PKCS8, KeyKind::Rsa { bits: 2048 }),
        (P256_SEC1, KeyKind::EcdsaP256),
        (P384_SEC1, KeyKind::EcdsaP384),
        (P384_PKCS8, KeyKind::EcdsaP384),
        (P521_SEC1, KeyKind::EcdsaP521),
        (ED25519, KeyKind::Ed25519),
    ] {
        let key = read(content);
        assert_eq!(key.public_key().kind(), kind);
        for scheme in Scheme::ALL {
            if !key.schemes().contains(&scheme) {
                assert_eq!(key.sign(scheme, b"message"), Err(SignatureError::WrongKey { scheme, kind }));
                continue;
            }
            let mut signature = key.sign(scheme, b"message").expect("signed");
            assert_eq!(key.public_key().verify(scheme, b"message", &signature), Ok(()), "{kind} {scheme}");
            let invalid = Err(SignatureError::Invalid { scheme: scheme.name(), kind });
            assert_eq!(key.public_key().verify(scheme, b"massage", &signature), invalid, "{kind} {scheme}");
            signature[20] ^= 1;
            assert_eq!(key.public_key().verify(scheme, b"message", &signature), invalid, "{kind} {scheme}");
        }
    }
    assert_eq!(read(RSA_PKCS1).public_key(), read(RSA_PKCS8).public_key());
    assert_eq!(read(P384_SEC1).public_key(), read(P384_PKCS8).public_key());
    assert_ne!(read(P256_SEC1).public_key(), read(P384_SEC1).public_key());
}

/// RFC 4754: r | s, 64 bytes for P-256, 96 for P-384 and 132 for P-521.
#[test]
fn the_old_ecdsa_methods_have_signatures_of_fixed_width() {
    for (content, scheme, other, len) in [
        (P256_SEC1, Scheme::EcdsaSha256, Scheme::EcdsaSha384, 64),
        (P384_SEC1, Scheme::EcdsaSha384, Scheme::EcdsaSha256, 96),
        (P521_SEC1, Scheme::EcdsaSha512, Scheme::EcdsaSha384, 132),
    ] {
        let key = read(content);
        let signature = key.sign_fixed(scheme, b"message").expect("signed");
        assert_eq!(signature.len(), len);
        assert_eq!(key.public_key().verify_fixed(scheme, b"message", &signature), Ok(()));
        assert!(key.public_key().verify(scheme, b"message", &signature).is_err(), "it is not DER");
        assert!(key.public_key().verify_fixed(other, b"message", &signature).is_err());
        assert!(key.sign_fixed(other, b"message").is_err());
    }
    assert!(read(RSA_PKCS8).sign_fixed(Scheme::EcdsaSha256, b"message").is_err());
}

/// A signature by OpenSSL, as a peer of the old RSA method sends it.
#[test]
fn sha1_is_verified_by_its_own_door_alone() {
    let signature = include_bytes!("data/rsa2048.sha1.sig");
    let key = read(RSA_PKCS1);
    let public = key.public_key();
    assert_eq!(public.verify_rsa_sha1(b"message", signature), Ok(()));
    assert!(public.verify_rsa_sha1(b"massage", signature).is_err());
    assert!(Scheme::ALL.iter().all(|&scheme| public.verify(scheme, b"message", signature).is_err()));
    let kind = KeyKind::Ed25519;
    let not_rsa = read(ED25519).public_key().verify_rsa_sha1(b"message", signature);
    assert_eq!(not_rsa, Err(SignatureError::NotRsa { kind }));
}

#[test]
fn a_key_is_found_among_other_sections() {
    let both = [CERTIFICATE, b"some text\n", ED25519].concat();
    assert_eq!(read(&both).public_key().kind(), KeyKind::Ed25519);
}

#[test]
fn errors_say_what_the_file_holds() {
    let found = |found: &str| PrivateKeyError::NotAKey { found: found.to_owned() };
    assert_eq!(refuse(b""), found("the file is empty"));
    assert_eq!(refuse(b"hello\n"), found("the file is text without a PEM section"));
    assert_eq!(refuse(&[0xff, 0xfe, 0, 0]), found("the file is binary, but not DER"));
    assert_eq!(refuse(CERTIFICATE), found("the file holds CERTIFICATE"));
    let der = Certificate::from_pem(CERTIFICATE).expect("a certificate");
    assert_eq!(refuse(der.der()), found("the file is DER of another structure"));
    let openssh = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    assert_eq!(refuse(openssh), found("the file holds OPENSSH PRIVATE KEY"));
    let encrypted = |label: &str| PrivateKeyError::Encrypted { label: label.to_owned() };
    assert_eq!(refuse(include_bytes!("data/encrypted.pkcs8.pem")), encrypted("ENCRYPTED PRIVATE KEY"));
    assert_eq!(refuse(include_bytes!("data/encrypted.pkcs1.pem")), encrypted("RSA PRIVATE KEY"));
    let weak = PrivateKeyError::Unsupported(PublicKeyError::RsaSize { bits: 1024 });
    assert_eq!(refuse(include_bytes!("data/rsa1024.key")), weak);
    let x448 = PublicKeyError::Unsupported { oid: "1.3.101.111".to_owned() };
    assert_eq!(refuse(include_bytes!("data/x448.pem")), PrivateKeyError::Unsupported(x448));
    let other_curve = refuse(include_bytes!("data/secp256k1.sec1.pem"));
    assert_eq!(other_curve, PrivateKeyError::Curve);
    assert!(other_curve.to_string().contains("P-256, P-384 and P-521 are"), "{other_curve}");
    let cut = &ED25519[..40];
    assert!(matches!(refuse(cut), PrivateKeyError::Pem(_)), "{:?}", refuse(cut));
    let damaged = String::from_utf8_lossy(ED25519).replace("MC4C", "M***");
    assert!(matches!(refuse(damaged.as_bytes()), PrivateKeyError::Pem(_)));

    assert_eq!(
        Certificate::from_file_content(ED25519),
        Err(CertificateError::NotACertificate { found: "the file holds PRIVATE KEY".to_owned() })
    );
}

#[test]
fn nothing_shows_a_key() {
    assert_eq!(format!("{:?}", read(RSA_PKCS1)), "SigningKey(RSA-2048)");
    assert_eq!(format!("{:?}", read(ED25519)), "SigningKey(Ed25519)");
}
