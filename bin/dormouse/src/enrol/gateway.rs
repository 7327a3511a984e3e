//! A gateway's connection in its configuration: which one is meant, and whether it believes what the authority issues. Owns these two answers;
//! changes nothing.

use super::authority::Authority;
use super::names;
use super::place;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::cert::Certificate;
use dormouse_node::config;
use dormouse_node::config::file::{Connection, Role};
use std::path::PathBuf;

/// The gateway's connection of this name, or its only one.
pub(crate) fn connection_of<'f>(
    file: &'f config::file::File,
    wanted: Option<&String>,
) -> Result<(&'f str, &'f Connection), Error> {
    let all: Vec<_> = file.connection.iter().filter(|(_, c)| c.role == Role::Gateway).collect();
    let names = || all.iter().map(|(name, _)| (*name).clone()).collect::<Vec<_>>();
    let error =
        |message: String| Error::new(ErrorKind::UnknownConnection, message).with_offer(Vec::new(), names());
    match (wanted, all.as_slice()) {
        (Some(wanted), _) => {
            let found = all.iter().find(|(name, _)| *name == wanted);
            found
                .map(|(name, c)| (name.as_str(), *c))
                .ok_or_else(|| error(format!("there is no gateway connection {}", names::shown(wanted))))
        }
        (None, [(name, c)]) => Ok((name, c)),
        (None, []) => Err(error("this machine is no gateway".into()).with_change("dormouse gateway init")),
        (None, _) => {
            Err(error("there are several gateway connections".into()).with_change("--connection NAME"))
        }
    }
}

/// Demands that the gateway believes what this authority issues.
pub(crate) fn require_trusted(connection: &str, c: &Connection, authority: &Authority) -> Result<(), Error> {
    let own = Certificate::from_pem(authority.pem().as_bytes()).map(|own| own.fingerprint()).ok();
    let in_file = |path: &PathBuf| -> Result<bool, Error> {
        let content = place::demand(path, place::read(path)?, "see docs/administrator.md")?;
        let all = Certificate::from_file_content(content.as_bytes()).unwrap_or_default();
        Ok(all.iter().any(|one| Some(one.fingerprint()) == own))
    };
    for path in &c.remote.ca {
        if in_file(path)? {
            return Ok(());
        }
    }
    let message = format!("connection.{connection}.remote.ca does not name the authority of ca/ca.key");
    Err(Error::new(ErrorKind::Other, message).with_change("its ca.pem among them"))
}
