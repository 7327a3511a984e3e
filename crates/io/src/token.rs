//! Private keys, and secret ones to derive keys from, in hardware, by PKCS #11: smart cards, HSMs, TPMs through their module. Owns the URI that names one (RFC 7512) and the
//! session with the token; the key never leaves it.
//!
//! The module is loaded into this process, by the path in the URI: it comes from the administrator like the program itself.

#[cfg(feature = "pkcs11")]
mod module;
#[cfg(not(feature = "pkcs11"))]
#[path = "without/token.rs"]
mod module;

pub use module::Token;

use std::path::PathBuf;

/// A key that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI is not understood.
    #[error("\"{uri}\": {why}")]
    Uri {
        /// The URI, which holds no PIN.
        uri: String,
        /// What is wrong with it.
        why: String,
    },
    /// The module refused something.
    #[cfg(feature = "pkcs11")]
    #[error("{doing}: {source}")]
    Module {
        /// What was being done.
        doing: String,
        /// What it said.
        source: cryptoki::error::Error,
    },
    /// This program cannot load modules.
    #[error("this program was built without the feature \"pkcs11\", and knows no keys in tokens")]
    Without,
    /// Nothing, or more than one thing, is meant.
    #[error("{0}")]
    NotFound(String),
    /// The PIN is wrong, or was the last time: a few wrong ones lock a card for ever, so nothing tries again by itself.
    #[error(
        "{0}; no PIN is tried again until a right one was given (pkcs11-tool --login --list-objects, with --module and the right PIN)"
    )]
    Pin(String),
}

/// What a URI names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uri {
    token: Option<String>,
    serial: Option<String>,
    object: Option<String>,
    id: Option<Vec<u8>>,
    module: Option<PathBuf>,
    /// The file that holds the PIN.
    pub pin_source: Option<PathBuf>,
}

impl Uri {
    /// Whether `text` means a key in a token.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.starts_with("pkcs11:")
    }

    /// From the notation of RFC 7512: `pkcs11:token=NAME;object=NAME?pin-source=file:PATH&module-path=PATH`.
    ///
    /// # Errors
    /// [`Error::Uri`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong =
            |why: String| Error::Uri { uri: text.split("pin-value").next().unwrap_or("").into(), why };
        let rest = text.strip_prefix("pkcs11:").ok_or_else(|| wrong("pkcs11: is missing".into()))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let parts = path.split(';').chain(query.split('&')).filter(|part| !part.is_empty());
        for part in parts {
            let (name, value) =
                part.split_once('=').ok_or_else(|| wrong(format!("{part} is no name=value")))?;
            let bytes = unescape(value).ok_or_else(|| wrong(format!("{name}: % needs two digits")))?;
            let words =
                || String::from_utf8(bytes.clone()).map_err(|_| wrong(format!("{name} is not UTF-8")));
            match name {
                "token" => uri.token = Some(words()?),
                "serial" => uri.serial = Some(words()?),
                "object" => uri.object = Some(words()?),
                "id" => uri.id = Some(bytes),
                "module-path" => uri.module = Some(words()?.into()),
                "pin-source" => {
                    let source = words()?;
                    let path = source.strip_prefix("file:").unwrap_or(&source);
                    uri.pin_source = Some(path.strip_prefix("//").unwrap_or(path).into());
                }
                "type" if matches!(words()?.as_str(), "private" | "secret-key") => {}
                "pin-value" => {
                    return Err(wrong("a PIN does not belong here; use pin-source=file:PATH".into()));
                }
                other => {
                    return Err(wrong(format!(
                        "{other} is not understood; token, serial, object, id, type=private (or secret-key), module-path and pin-source are"
                    )));
                }
            }
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err(wrong("object or id must say which key".into()));
        }
        Ok(uri)
    }
}

/// Undoes percent-encoding.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let (digits, after) = rest.split_first_chunk::<2>()?;
            rest = after;
            out.push(u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?);
        } else {
            out.push(first);
        }
    }
    Some(out)
}
