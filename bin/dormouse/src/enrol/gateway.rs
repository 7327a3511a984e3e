//! A gateway's connection in its configuration: which one is meant, whether it believes what the authority issues, and whether devices can believe
//! the gateway. Owns these answers; changes nothing.

use super::authority::Authority;
use super::names;
use super::place;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::cert::{Certificate, KnownPaths, TrustStore, Usage};
use dormouse_node::config;
use dormouse_node::config::file::{Connection, Role};
use dormouse_sansio::UnixTime;
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

/// Demands that `local.id` says where the gateway is: devices are told to look for it there.
pub(crate) fn require_named(connection: &str, c: &Connection) -> Result<(), Error> {
    names::gateway(&c.local.id).map(|_| ()).map_err(|mut e| {
        e.message = format!(
            "connection.{connection}.local.id: {}: devices are told to look for the gateway there",
            e.message
        );
        e
    })
}

/// Demands that devices that trust `ca`, as PEM, believe the gateway's certificate. Where there is none in a file, nothing is demanded.
pub(crate) fn require_vouched(
    connection: &str,
    c: &Connection,
    ca: &str,
    now: UnixTime,
) -> Result<(), Error> {
    let Some(path) = &c.local.certificate else { return Ok(()) };
    let Some(content) = place::read(path)? else { return Ok(()) };
    let fail = |why: String| {
        let key = format!("connection.{connection}.local.certificate");
        Error::new(ErrorKind::Other, format!("ca.pem does not vouch for {key}: {why}"))
            .with_change("a ca.pem that holds the authority of the gateway's certificate")
    };
    let read = |bytes: &[u8]| Certificate::from_file_content(bytes).map_err(|e| fail(e.to_string()));
    let trust = TrustStore::new(read(ca.as_bytes())?).map_err(|e| fail(e.to_string()))?;
    let all = read(content.as_bytes())?;
    let (own, between) = all.split_first().ok_or_else(|| fail("there is none".into()))?;
    let believed = trust.verify(own, between, now, Usage::IkeOrServerAuth, &KnownPaths::default());
    believed.map(|_| ()).map_err(|e| fail(e.to_string()))
}
