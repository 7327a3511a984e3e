//! Throw-away certificates: one authority that issues them, and its files as daemons read them. Owns keys that are worth nothing.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use dormouse_io::state::write_atomically;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256,
    RsaKeySize, date_time_ymd,
};

/// Kind of key in a certificate.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// RSA of this many bits: 2048, 3072 or 4096.
    Rsa(u32),
    /// ECDSA P-256.
    P256,
    /// ECDSA P-384.
    P384,
    /// ECDSA P-521.
    P521,
    /// Ed25519.
    Ed25519,
}

impl Key {
    /// A fresh key of this kind.
    ///
    /// # Errors
    /// If the library refuses to make it.
    pub(crate) fn generate(self) -> Result<KeyPair> {
        let rsa = |size| KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size);
        Ok(match self {
            Self::Rsa(2048) => rsa(RsaKeySize::_2048)?,
            Self::Rsa(3072) => rsa(RsaKeySize::_3072)?,
            Self::Rsa(4096) => rsa(RsaKeySize::_4096)?,
            Self::Rsa(bits) => bail!("RSA with {bits} bits, expected 2048, 3072 or 4096"),
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            Self::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?,
            Self::P521 => KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512)?,
            Self::Ed25519 => {
                // PKCS #8 in version 1: OpenSSL reads no private key that has the public one beside it (RFC 5958).
                let key = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new())?;
                KeyPair::try_from(key.as_ref())?
            }
        })
    }
}

/// A certification authority.
#[derive(Debug)]
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A fresh one.
    ///
    /// # Errors
    /// If the library refuses to make it.
    pub(crate) fn new(key: Key) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Throw-away CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(params, key.generate()?)?))
    }

    /// Its own certificate.
    pub(crate) fn own(&self) -> &Certificate {
        self.0.as_ref()
    }

    /// A certificate for the DNS name `name` and this key.
    ///
    /// # Errors
    /// If the library refuses to make it.
    pub(crate) fn issue(&self, name: &str, key: &KeyPair) -> Result<Certificate> {
        self.issue_for(&[name], None, key)
    }

    /// The same for several names, until the first day of the year `ends`.
    fn issue_for(&self, names: &[&str], ends: Option<i32>, key: &KeyPair) -> Result<Certificate> {
        let all: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(all)?;
        params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or_default());
        params.not_after = ends.map_or(params.not_after, |year| date_time_ymd(year, 1, 1));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.0)?)
    }
}

/// A certification authority and what it has issued, as PEM files in one directory: `ca.pem`, `<name>.pem`, `<name>.key`.
#[derive(Debug)]
pub struct Pki {
    authority: Authority,
    dir: PathBuf,
}

impl Pki {
    /// A new authority with a key like those that it issues.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub fn new(dir: &Path, key: Key) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let pki = Self { authority: Authority::new(key)?, dir: dir.into() };
        pki.write("ca.pem", &pki.authority.own().pem())?;
        Ok(pki)
    }

    /// Issues `<name>.pem` with the subject alternative name `DNS:<name>`.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub fn issue(&self, name: &str, key: Key) -> Result<()> {
        self.issue_for(name, &[], None, key)
    }

    /// The same with other DNS names besides, valid until the first day of the year `ends`.
    ///
    /// # Errors
    /// As [`Pki::issue`].
    pub fn issue_for(&self, name: &str, others: &[&str], ends: Option<i32>, key: Key) -> Result<()> {
        let key = key.generate()?;
        self.write(&format!("{name}.key"), &key.serialize_pem())?;
        let names = [&[name], others].concat();
        self.write(&format!("{name}.pem"), &self.authority.issue_for(&names, ends, &key)?.pem())
    }

    /// Path of a file of this authority.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    fn write(&self, file: &str, pem: &str) -> Result<()> {
        Ok(write_atomically(&self.path(file), pem.as_bytes(), 0o600)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require::{Need, require};
    use std::process::Command;

    #[test]
    fn others_read_every_key_and_trust_every_certificate() {
        if !require("reading throw-away certificates", &[Need::Program("openssl")]) {
            return;
        }
        let dir = std::env::temp_dir().join(format!("dormouse-pki-{}", std::process::id()));
        for key in [Key::Rsa(2048), Key::P256, Key::P384, Key::P521, Key::Ed25519] {
            let pki = Pki::new(&dir, key).expect("an authority");
            pki.issue("a.test", key).expect("a certificate");
            let reads = |args: &[&str]| {
                let out = Command::new("openssl").args(args).current_dir(&dir).output().expect("openssl");
                assert!(out.status.success(), "{key:?}: {}", String::from_utf8_lossy(&out.stderr));
            };
            reads(&["pkey", "-in", "a.test.key", "-noout"]);
            reads(&[
                "verify",
                "-x509_strict",
                "-verify_hostname",
                "a.test",
                "-CAfile",
                "ca.pem",
                "a.test.pem",
            ]);
        }
        std::fs::remove_dir_all(&dir).expect("it goes");
    }
}
