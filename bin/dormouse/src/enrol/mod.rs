//! A gateway's own authority, its users, and what a device is given: files, their formats and the checks on them. Owns everything below the
//! directory of the configuration but the configuration's keys; knows no command line, prints nothing, and asks no questions.
//!
//! ```text
//! dormouse.toml      the configuration                       0644
//! ca.pem             the authority's certificate             0644
//! ca/ca.key          the same and its key, root's alone      0600 (directory 0700)
//! gateway.pem, .key  the gateway's own                       0644, 0600
//! users/NAME.toml    a user's certificates, never its key    0600 (directory 0700)
//! NAME.ca.pem, NAME.pem, NAME.key    of a connection that was joined; NAME.password instead of the last two where a password proves who it is
//! ```

pub(crate) mod authority;
pub(crate) mod bundle;
pub(crate) mod foreign;
pub(crate) mod gateway;
pub(crate) mod names;
pub(crate) mod passphrase;
pub(crate) mod place;
pub(crate) mod plist;
pub(crate) mod swanctl;
pub(crate) mod users;

use dormouse_control::{Error, ErrorKind};
use std::io;
use std::path::Path;

/// What became of a file, as an error for people.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Error {
    let kind = if error.kind() == io::ErrorKind::PermissionDenied {
        ErrorKind::Permission
    } else {
        ErrorKind::Other
    };
    let it = Error::new(kind, format!("{}: {error}", path.display()));
    if kind == ErrorKind::Permission { it.with_change("run it as root") } else { it }
}

/// The same for what was to be written as a whole.
pub(crate) fn not_written(error: dormouse_io::state::Error) -> Error {
    match error {
        dormouse_io::state::Error::Io { path, doing, source } => {
            let mut it = failed(&path, &source);
            it.message = format!("{}: {doing}: {source}", path.display());
            it
        }
        other => Error::new(ErrorKind::Other, other.to_string()),
    }
}

/// Something that is wrong with what was asked for.
pub(crate) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Request, message)
}
