//! A device's key and certificate as files: what they were, and both replaced at once. Owns that order, and what undoes it.

use crate::enrol::place;
use crate::enrol::{not_written, wrong};
use dormouse_control::Error;
use dormouse_crypto::Secret;
use dormouse_crypto::cert::Certificate;
use dormouse_crypto::sign::SigningKey;
use dormouse_io::state::{Placed, place_together};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file was.
struct Was {
    content: Secret,
    mode: u32,
    owner: (u32, u32),
}

impl Was {
    fn read(path: &Path) -> Result<Self, Error> {
        let content = place::demand(path, place::read(path)?, "dormouse join FILE")?;
        let meta = fs::metadata(path).map_err(|e| crate::enrol::failed(path, &e))?;
        let mode = meta.permissions().mode() & 0o777;
        Ok(Self { content, mode, owner: (meta.uid(), meta.gid()) })
    }
}

/// See the module's text.
pub(super) struct Pair {
    pub(super) key: PathBuf,
    pub(super) certificate: PathBuf,
    was_key: Was,
    was_certificate: Was,
}

/// Where a file is kept that was replaced: one that is kept already is of no use any more.
fn old(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(std::ffi::OsString::from).unwrap_or_default();
    name.push(".old");
    path.with_file_name(name)
}

impl Pair {
    pub(super) fn read(key: &Path, certificate: &Path) -> Result<Self, Error> {
        let (was_key, was_certificate) = (Was::read(key)?, Was::read(certificate)?);
        Ok(Self { key: key.into(), certificate: certificate.into(), was_key, was_certificate })
    }

    /// The certificates of the file, the device's own first.
    pub(super) fn chain(&self) -> Result<Vec<Certificate>, Error> {
        let chain = Certificate::from_file_content(self.was_certificate.content.as_bytes());
        chain.map_err(|e| wrong(format!("{}: {e}", self.certificate.display())))
    }

    pub(super) fn signing_key(&self) -> Result<Arc<SigningKey>, Error> {
        let key = SigningKey::from_file_content(self.was_key.content.as_bytes());
        key.map(Arc::new).map_err(|e| wrong(format!("{}: {e}", self.key.display())))
    }

    /// A machine that lost its power between the two files has the new key and the old certificate: it gets the old key again. True if so.
    pub(super) fn mend(&mut self) -> Result<bool, Error> {
        let chain = self.chain()?;
        let own = chain.first().and_then(|own| own.public_key().ok());
        let fits = |content: &Secret| {
            let key = SigningKey::from_file_content(content.as_bytes()).ok();
            key.is_some_and(|key| own.as_ref() == Some(key.public_key()))
        };
        if fits(&self.was_key.content) {
            return Ok(false);
        }
        let Some(kept) = place::read(&old(&self.key))?.filter(fits) else {
            let (key, certificate) = (self.key.display(), self.certificate.display());
            return Err(wrong(format!("{key} is not the key of the certificate in {certificate}")));
        };
        self.was_key.content = kept;
        put(&[of(&self.key, &self.was_key)])?;
        Ok(true)
    }

    /// Demands that the files are still as they were read.
    pub(super) fn require_same(&self) -> Result<(), Error> {
        let now = Self::read(&self.key, &self.certificate)?;
        let same = |a: &Was, b: &Was| a.content.as_bytes() == b.content.as_bytes();
        if same(&now.was_key, &self.was_key) && same(&now.was_certificate, &self.was_certificate) {
            return Ok(());
        }
        Err(wrong(format!("{} has changed meanwhile: left as it is", self.certificate.display())))
    }

    /// Puts both in the place of the old ones, which are kept; owners and the certificate's permissions stay, and the key is its owner's alone.
    pub(super) fn replace(&self, key: &Secret, certificate: &[u8]) -> Result<(), Error> {
        let (old_key, old_certificate) = (old(&self.key), old(&self.certificate));
        let private =
            |path, content, was: &Was| Placed { path, content, mode: 0o600, owner: Some(was.owner) };
        put(&[
            private(&old_key, self.was_key.content.as_bytes(), &self.was_key),
            of(&old_certificate, &self.was_certificate),
            private(&self.key, key.as_bytes(), &self.was_key),
            Placed { content: certificate, ..of(&self.certificate, &self.was_certificate) },
        ])
        // What was moved before it failed.
        .map_err(|e| match self.restore() {
            Ok(()) => e,
            Err(worse) => worse,
        })
    }

    /// Both as they were.
    pub(super) fn restore(&self) -> Result<(), Error> {
        put(&[of(&self.key, &self.was_key), of(&self.certificate, &self.was_certificate)])
    }
}

fn of<'f>(path: &'f Path, was: &'f Was) -> Placed<'f> {
    Placed { path, content: was.content.as_bytes(), mode: was.mode, owner: Some(was.owner) }
}

fn put(files: &[Placed<'_>]) -> Result<(), Error> {
    place_together(files).map_err(not_written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrol::bundle::tests::{NOW, sample};
    use crate::enrol::bundle::{Bundle, Proof};

    /// A key and its certificate.
    fn made() -> (Secret, String) {
        let bundle = Bundle::read(&sample("office", "joe.example.org"), "x").unwrap();
        let Proof::Certificate { certificate, key } = bundle.proof else { panic!("a certificate") };
        (Secret::from(key.0.as_bytes()), certificate)
    }

    #[test]
    fn both_are_replaced_the_old_ones_stay_and_all_can_be_undone() {
        let _ = NOW;
        let dir = std::env::temp_dir().join(format!("dormouse-pair-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let (key, certificate) = (dir.join("office.key"), dir.join("office.pem"));
        let [first, second] = [made(), made()];
        fs::write(&key, first.0.as_bytes()).unwrap();
        fs::write(&certificate, &first.1).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(&certificate, fs::Permissions::from_mode(0o644)).unwrap();
        let mut pair = Pair::read(&key, &certificate).unwrap();
        assert!(!pair.mend().unwrap());
        pair.require_same().unwrap();
        pair.replace(&second.0, second.1.as_bytes()).unwrap();
        assert_eq!(fs::read(&key).unwrap(), second.0.as_bytes());
        assert_eq!(fs::read_to_string(&certificate).unwrap(), second.1);
        assert_eq!(fs::read(old(&key)).unwrap(), first.0.as_bytes());
        assert_eq!(fs::read_to_string(old(&certificate)).unwrap(), first.1);
        assert_eq!([&key, &old(&key), &certificate].map(|path| mode(path)), [0o600, 0o600, 0o644]);
        assert!(pair.require_same().is_err(), "it is another one now");
        pair.restore().unwrap();
        assert_eq!(fs::read(&key).unwrap(), first.0.as_bytes());

        // A power cut between the two.
        pair.replace(&second.0, second.1.as_bytes()).unwrap();
        fs::write(&certificate, &first.1).unwrap();
        let mut cut = Pair::read(&key, &certificate).unwrap();
        assert!(cut.mend().unwrap());
        assert_eq!(fs::read(&key).unwrap(), first.0.as_bytes());
        assert!(!Pair::read(&key, &certificate).unwrap().mend().unwrap());
        fs::write(&key, second.0.as_bytes()).unwrap();
        fs::remove_file(old(&key)).unwrap();
        let error = Pair::read(&key, &certificate).unwrap().mend().unwrap_err();
        assert!(error.message.contains("is not the key of the certificate"), "{error}");

        // What cannot be written changes nothing.
        fs::write(&key, first.0.as_bytes()).unwrap();
        let pair = Pair::read(&key, &certificate).unwrap();
        let fresh = dir.join(format!("office.pem.new-{}", std::process::id()));
        fs::create_dir(&fresh).unwrap();
        let error = pair.replace(&second.0, second.1.as_bytes()).unwrap_err();
        assert!(error.message.contains("office.pem"), "{error}");
        assert_eq!(fs::read(&key).unwrap(), first.0.as_bytes());
        fs::remove_dir_all(&dir).unwrap();
    }
}
