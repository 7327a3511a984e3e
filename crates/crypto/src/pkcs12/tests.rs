#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test asks openssl")]

use super::*;
use crate::sign::{NewKey, SigningKey};
use dormouse_sansio::Seeded;
use std::process::Command;

/// A key, and an authority's certificate and one of the key, all in DER.
fn made(kind: NewKey) -> (Secret, Vec<u8>, Vec<u8>) {
    let pem = kind.pem().unwrap();
    let text = str::from_utf8(pem.as_bytes()).unwrap();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap().der().to_vec();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let own = rcgen::CertificateParams::new(vec!["joe.example.org".into()]).unwrap();
    let own = own.signed_by(&rcgen::KeyPair::from_pem(text).unwrap(), &issuer).unwrap().der().to_vec();
    (pem, own, ca)
}

#[test]
fn what_is_sealed_is_opened_by_its_passphrase_alone() {
    for kind in [NewKey::EcdsaP256, NewKey::Rsa2048] {
        let (key, own, ca) = made(kind);
        for passphrase in ["abcde-fghij-kmnpq", "", "Zürich-\u{1f510}"] {
            let file = seal(&key, &[&own, &ca], "joe", passphrase, &mut Seeded::new(1)).unwrap();
            let found = open(file.as_bytes(), passphrase).unwrap();
            assert_eq!((found.key, found.own.der()), (key.clone(), own.as_slice()));
            assert!(found.others.iter().map(crate::cert::Certificate::der).eq([ca.as_slice()]));
            assert_eq!(open(file.as_bytes(), "another").unwrap_err(), Pkcs12Error::Passphrase);
            let again = seal(&key, &[&own, &ca], "joe", passphrase, &mut Seeded::new(2)).unwrap();
            assert_ne!(again, file, "salts");
        }
    }
}

/// OpenSSL reads what is written here, and what it writes is read: with its own defaults (AES-256, PBKDF2) and with what Windows and Apple have had
/// for long.
#[test]
fn openssl_and_this_read_each_others_files() {
    let dir = std::env::temp_dir().join(format!("dormouse-pkcs12-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (key, own, ca) = made(NewKey::EcdsaP256);
    let file = |name: &str, content: &[u8]| std::fs::write(dir.join(name), content).unwrap();
    let openssl = |line: &str| {
        let out = Command::new("openssl").args(line.split(' ')).current_dir(&dir).output();
        out.map(|out| (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned()))
    };
    file("ours.p12", seal(&key, &[&own, &ca], "joe", "secret", &mut Seeded::new(1)).unwrap().as_bytes());
    let Ok((read, text)) = openssl("pkcs12 -in ours.p12 -passin pass:secret -nodes") else {
        println!("skipped: no openssl");
        return;
    };
    assert!(read && text.contains("friendlyName: joe") && text.contains("BEGIN PRIVATE KEY"), "{text}");
    assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2);
    let pem = SigningKey::from_pem(text.as_bytes()).unwrap();
    assert_eq!(pem.public_key(), SigningKey::from_pem(key.as_bytes()).unwrap().public_key());
    file("all.pem", text.as_bytes());
    for more in [
        "",
        " -keypbe AES-128-CBC -certpbe AES-256-CBC -macalg sha512",
        " -keypbe PBE-SHA1-3DES -certpbe PBE-SHA1-3DES -macalg sha1",
        " -keypbe NONE -certpbe NONE",
    ] {
        let line = format!("pkcs12 -export -in all.pem -out theirs.p12 -passout pass:secret{more}");
        assert!(openssl(&line).unwrap().0, "{line}");
        let theirs = std::fs::read(dir.join("theirs.p12")).unwrap();
        let found = open(&theirs, "secret").unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!((found.own.der(), found.others.len()), (own.as_slice(), 1), "{line}");
        assert_eq!(open(&theirs, "Secret").unwrap_err(), Pkcs12Error::Passphrase);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A file with any byte changed, cut off anywhere, or of noise, is refused, and at once: also one that asks for years of work.
#[test]
fn a_damaged_or_hostile_file_is_refused_without_work() {
    let (key, own, _) = made(NewKey::EcdsaP256);
    let good = seal(&key, &[&own], "joe", "secret", &mut Seeded::new(1)).unwrap();
    let good = good.as_bytes();
    // Rounds cost time: only bytes before and after them are changed, each in one way.
    for at in (0..good.len()).step_by(23) {
        let mut bad = good.to_vec();
        bad[at] ^= 0x41;
        if bad != good {
            open(&bad, "secret").expect_err("changed");
        }
    }
    for cut in (0..good.len()).step_by(7) {
        open(&good[..cut], "secret").expect_err("cut off");
    }
    let mut noise = Seeded::new(3);
    for len in 0..300 {
        let mut bytes = vec![0; len];
        noise.fill(&mut bytes);
        if let [first, second, ..] = bytes.as_mut_slice() {
            (*first, *second) = (0x30, 0x82);
        }
        open(&bytes, "secret").expect_err("noise");
    }
    let rounds = integer(ROUNDS);
    let at = good.windows(rounds.len()).rposition(|w| w == rounds.as_bytes()).unwrap();
    let mut hostile = good.to_vec();
    // Four bytes are too many for the lengths around: three, near the most that they hold.
    hostile[at + 2..at + rounds.len()].copy_from_slice(&[0x7f, 0xff, 0xff][..rounds.len() - 2]);
    assert!(
        matches!(open(&hostile, "secret"), Err(Pkcs12Error::TooMuch(_))),
        "{:?}",
        open(&hostile, "secret").err()
    );
}
