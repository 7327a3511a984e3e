//! Throw-away certificates, made with the `openssl` program, so that neither peer's own code has a say in them.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kind of key in a certificate.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// RSA of this many bits.
    Rsa(u32),
    /// ECDSA P-256.
    P256,
    /// ECDSA P-384.
    P384,
    /// Ed25519.
    Ed25519,
}

/// A certification authority and what it has issued, as PEM files in one directory: `ca.pem`, `<name>.pem`, `<name>.key`.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// A new authority with an ECDSA or RSA key like those that it issues.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn new(dir: &Path, key: Key) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let pki = Self { dir: dir.into() };
        pki.generate("ca", key)?;
        pki.openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            "ca.key",
            "-subj",
            "/O=Dormouse tests/CN=Test CA",
            "-days",
            "30",
            "-out",
            "ca.pem",
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ])?;
        Ok(pki)
    }

    /// Issues `<name>.pem` with the subject alternative name `DNS:<name>`.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn issue(&self, name: &str, key: Key) -> Result<()> {
        self.generate(name, key)?;
        let (csr, ext) = (format!("{name}.csr"), format!("{name}.ext"));
        std::fs::write(
            self.dir.join(&ext),
            format!("subjectAltName=DNS:{name}\nkeyUsage=critical,digitalSignature\n"),
        )?;
        self.openssl(&[
            "req",
            "-new",
            "-key",
            &format!("{name}.key"),
            "-subj",
            &format!("/CN={name}"),
            "-out",
            &csr,
        ])?;
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            &ext,
            "-out",
            &format!("{name}.pem"),
        ])
    }

    /// Path of a file of this authority.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    fn generate(&self, name: &str, key: Key) -> Result<()> {
        let out = format!("{name}.key");
        let bits;
        let spec: &[&str] = match key {
            Key::Rsa(n) => {
                bits = format!("rsa_keygen_bits:{n}");
                &["-algorithm", "RSA", "-pkeyopt", &bits]
            }
            Key::P256 => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Key::P384 => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
            Key::Ed25519 => &["-algorithm", "ED25519"],
        };
        self.openssl(&[&["genpkey", "-out", &out], spec].concat())?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        Ok(std::fs::set_permissions(self.dir.join(out), mode)?)
    }

    fn openssl(&self, args: &[&str]) -> Result<()> {
        let out =
            Command::new("openssl").args(args).current_dir(&self.dir).output().context("running openssl")?;
        if !out.status.success() {
            bail!("openssl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(())
    }
}
