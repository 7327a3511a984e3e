//! Where a key comes from that need not be in a file: the environment, a credential of the service manager, or a token. Owns how each is written in a
//! configuration, in the place of a file's name; what the key is for is said elsewhere.

use crate::token::{self, Token, Uri};
use dormouse_crypto::Secret;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const ENVIRONMENT: &str = "env:";
const CREDENTIAL: &str = "credential:";
/// Where a service finds its credentials (systemd.exec(5), "Credentials").
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
/// Where root finds those of the daemon's unit.
const OF_THE_DAEMON: &str = "/run/credentials/dormoused.service";

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// A file with the key, or one that the service manager has made of a credential.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// A secret key in a token, from which the key is derived.
    Token(Uri),
}

impl KeySource {
    /// What a configuration names: `env:NAME`, `credential:NAME`, a `pkcs11:` URI, or else a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(written: &Path) -> Result<Self, String> {
        let directory = std::env::var_os(DIRECTORY).filter(|directory| !directory.is_empty());
        Self::parse_in(written, directory.unwrap_or_else(|| OF_THE_DAEMON.into()))
    }

    fn parse_in(written: &Path, directory: OsString) -> Result<Self, String> {
        let Some(text) = written.to_str() else { return Ok(Self::File(written.to_owned())) };
        if Uri::is_one(text) {
            return Uri::parse(text).map(Self::Token).map_err(|e| e.to_string());
        }
        if let Some(name) = text.strip_prefix(ENVIRONMENT) {
            return match name.is_empty() || name.contains(['=', '\0']) {
                true => Err(format!("{text} names no variable of the environment")),
                false => Ok(Self::Environment(name.to_owned())),
            };
        }
        if let Some(name) = text.strip_prefix(CREDENTIAL) {
            // As the service manager has it: one name of a file.
            return match name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
                true => Err(format!("{text} names no credential")),
                false => Ok(Self::File(Path::new(&directory).join(name))),
            };
        }
        Ok(Self::File(written.to_owned()))
    }

    /// The file that has to be read for it: the key itself, or a token's PIN.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Environment(_) => None,
            Self::Token(uri) => uri.pin_source.as_deref(),
        }
    }

    /// What is there: of a token the 32 bytes that it derives for `label`, in hexadecimal digits. `read` reads a file with a secret. `refused` becomes true
    /// if it is a token's PIN that is wrong.
    ///
    /// # Errors
    /// What is wrong, with where.
    pub fn content(
        &self,
        label: &[u8],
        read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
        refused: &mut bool,
    ) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => read(path),
            Self::Environment(name) => match std::env::var_os(name) {
                Some(value) => Ok(value.into_vec()),
                None => Err(format!("the environment has no variable {name}")),
            },
            Self::Token(uri) => {
                let pin = uri.pin_source.as_deref().map(read).transpose()?.map(Secret::from);
                let key = Token::derive(uri, pin.as_ref(), label).map_err(|e| {
                    *refused = matches!(e, token::Error::Pin(_));
                    e.to_string()
                })?;
                // It never grows, which would leave a copy behind.
                let mut digits = String::with_capacity(2 * key.len());
                for byte in key.as_bytes() {
                    let _ = write!(digits, "{byte:02x}");
                }
                Ok(digits.into_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_told_by_its_prefix() {
        let of = |text: &str| KeySource::parse_in(Path::new(text), "/run/credentials/x".into());
        for (text, file) in [
            ("/etc/dormouse/cluster.key", "/etc/dormouse/cluster.key"),
            ("env", "env"),
            ("credential:cluster.key", "/run/credentials/x/cluster.key"),
        ] {
            assert_eq!(of(text).unwrap(), KeySource::File(file.into()), "{text}");
        }
        assert_eq!(of("env:KEY").unwrap(), KeySource::Environment("KEY".into()));
        assert_eq!(of("env:KEY").unwrap().file(), None);
        let token = of("pkcs11:token=t;object=k?pin-source=file:/pin").unwrap();
        assert_eq!(token.file(), Some(Path::new("/pin")));
        for bad in ["env:", "env:A=B", "credential:", "credential:../key", "credential:a/b", "pkcs11:token=t"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_is_read_and_a_variable_that_is_missing_is_named() {
        let mut asked = Vec::new();
        let mut read = |path: &Path| {
            asked.push(path.to_owned());
            Ok(b"0f".to_vec())
        };
        let file = KeySource::File("key".into());
        assert_eq!(file.content(b"label", &mut read, &mut false).unwrap(), b"0f");
        let none = KeySource::Environment("DORMOUSE_NO_SUCH_VARIABLE".into());
        let error = none.content(b"label", &mut read, &mut false).unwrap_err();
        assert!(error.contains("DORMOUSE_NO_SUCH_VARIABLE"), "{error}");
        // One that every process of a test has.
        let path = KeySource::Environment("PATH".into());
        assert!(!path.content(b"label", &mut read, &mut false).unwrap().is_empty());
        assert_eq!(asked, [Path::new("key")]);
    }
}
