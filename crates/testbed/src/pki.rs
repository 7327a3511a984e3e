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
        self.issue_with(name, key, "keyUsage=critical,digitalSignature")
    }

    /// The same with these extensions, in lines as `openssl` takes them.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn issue_with(&self, name: &str, key: Key, extensions: &str) -> Result<()> {
        self.generate(name, key)?;
        let (csr, ext) = (format!("{name}.csr"), format!("{name}.ext"));
        std::fs::write(self.dir.join(&ext), format!("subjectAltName=DNS:{name}\n{extensions}\n"))?;
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
        ])?;
        Ok(())
    }

    /// Writes `ca.crl`, good for a day, and `index.txt` for an OCSP responder, which know all that was issued and these as revoked.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn revoke(&self, revoked: &[&str]) -> Result<()> {
        let mut index = String::new();
        for entry in std::fs::read_dir(&self.dir)?.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".csr") else { continue };
            let serial = self.openssl(&["x509", "-noout", "-serial", "-in", &format!("{name}.pem")])?;
            let serial = serial.trim().trim_start_matches("serial=");
            let state = if revoked.contains(&name) {
                "R\t400101000000Z\t250101000000Z"
            } else {
                "V\t400101000000Z\t"
            };
            index.push_str(&format!("{state}\t{serial}\tunknown\t/CN={name}\n"));
        }
        std::fs::write(self.dir.join("index.txt"), index)?;
        std::fs::write(
            self.dir.join("ca.cnf"),
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ndefault_md=sha256\ndefault_crl_days=1\n",
        )?;
        let common = ["ca", "-config", "ca.cnf", "-gencrl", "-keyfile", "ca.key", "-cert", "ca.pem"];
        self.openssl(&[&common[..], &["-out", "new.pem"]].concat())?;
        self.openssl(&["crl", "-in", "new.pem", "-outform", "DER", "-out", "new.crl"])?;
        // In one step: a server may be reading it.
        Ok(std::fs::rename(self.dir.join("new.crl"), self.dir.join("ca.crl"))?)
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

    fn openssl(&self, args: &[&str]) -> Result<String> {
        let out =
            Command::new("openssl").args(args).current_dir(&self.dir).output().context("running openssl")?;
        if !out.status.success() {
            bail!("openssl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}
