//! How `dormouse cluster` gets into the database: as its owner, or as the gateway whose configuration it reads. Owns which files are read for that.

use crate::enrol::place;
use crate::enrol::wrong;
use clap::Args;
use dormouse_cluster::admin::Owner;
use dormouse_cluster::{self as cluster, Settings};
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_io::key_source::KeySource;
use dormouse_node::config::file::File;
use dormouse_node::config::{self, resolve_cluster};
use std::io;
use std::path::{Path, PathBuf};

/// The database's owner.
#[derive(Clone, Debug, Args)]
pub(super) struct OwnerArgs {
    /// The database, `postgresql://OWNER@HOST/DATABASE`; its owner must have the right to make roles
    #[arg(long, value_name = "URL")]
    pub(super) database: String,
    /// File with the owner's password, if the URL has none
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// PEM file with the authorities of the server's certificate; the gateway has it at the same place
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
}

impl OwnerArgs {
    pub(super) fn read(&self) -> Result<Owner, Error> {
        owner(&self.database, self.password_file.as_deref(), self.ca.as_deref())
    }
}

pub(super) fn owner(url: &str, password: Option<&Path>, ca: Option<&Path>) -> Result<Owner, Error> {
    let needed = |path: &Path| place::demand(path, place::read(path)?, "the name of a file that is there");
    let password = password.map(|path| needed(path).map(|content| first_line(&content))).transpose()?;
    if password.as_ref().is_some_and(Secret::is_empty) {
        return Err(wrong("the file with the password is empty"));
    }
    let authorities = ca.map(needed).transpose()?.map_or_else(Vec::new, |pem| pem.as_bytes().to_vec());
    Ok(Owner { url: url.into(), password, authorities })
}

/// Without the line break at its end.
fn first_line(content: &Secret) -> Secret {
    let bytes = content.as_bytes();
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    Secret::from(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
}

/// How a gateway gets in by its configuration; `None` if it has no section `[cluster]`.
pub(crate) fn settings(file: &File) -> Result<Option<Settings>, Error> {
    let mut denied = false;
    let mut read = |path: &Path| {
        std::fs::read(path).map_err(|e| {
            denied |= e.kind() == io::ErrorKind::PermissionDenied;
            format!("{}: {e}", path.display())
        })
    };
    let key = file.cluster.as_ref().map(|cluster| cluster.key_file.as_path());
    let mut by_name = |path: &Path, _secret: bool| match Some(path) == key {
        true => KeySource::parse(path)?.content(config::CLUSTER_KEY_LABEL, &mut read, &mut false),
        false => read(path),
    };
    let resolved = resolve_cluster(file, &mut by_name).map_err(|e| match denied {
        true => Error::new(ErrorKind::Permission, e.to_string()).with_change("run it as root"),
        false => Error::new(ErrorKind::Other, e.to_string()),
    })?;
    Ok(resolved.map(|it| Settings {
        url: it.database,
        password: it.password,
        authorities: it.authorities,
        gateway: it.name,
        address: it.address,
        key: it.key,
    }))
}

/// The same of a file, which must have one.
pub(super) fn settings_of(path: &Path) -> Result<Settings, Error> {
    let other = "--database URL asks as the owner of the database";
    let text = place::demand(path, place::read_text(path)?, other)?;
    let shown = path.display();
    let file = config::parse(&text)
        .map_err(|e| Error::new(ErrorKind::Other, format!("{shown}: {}", e.trim_end())))?;
    settings(&file)?.ok_or_else(|| {
        Error::new(ErrorKind::Other, format!("{shown} has no section [cluster]")).with_change(other)
    })
}

/// The URL of the same database for another role: without the password and the role of the first one.
pub(super) fn url_of(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgresql", url));
    let (front, query) = rest.split_once('?').map_or((rest, None), |(front, query)| (front, Some(query)));
    let at = front.find('/').unwrap_or(front.len());
    let (authority, path) = front.split_at(at);
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let own = |parameter: &&str| !parameter.starts_with("user=") && !parameter.starts_with("password=");
    let query: Vec<&str> = query.into_iter().flat_map(|query| query.split('&')).filter(own).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{role}@{hosts}{path}{mark}{}", query.join("&"))
}

/// Runs a conversation with the database on a runtime of this thread.
pub(super) fn block<T>(work: impl Future<Output = Result<T, cluster::Error>>) -> Result<T, Error> {
    runtime()?.block_on(work).map_err(told)
}

/// A runtime of this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Error::new(ErrorKind::Other, format!("no runtime: {e}")))
}

/// What went wrong with the database, with the exit code that fits.
pub(crate) fn told(error: cluster::Error) -> Error {
    use cluster::Error as E;
    let kind = match &error {
        E::Settings(_) => ErrorKind::Request,
        E::Unreachable { .. } | E::Standby { .. } | E::Lost { .. } => ErrorKind::NotConnected,
        E::Hangs { .. } => ErrorKind::Timeout,
        E::Password { .. } | E::Tls { .. } => ErrorKind::Authentication,
        E::Rights { .. } => ErrorKind::Permission,
        _ => ErrorKind::Other,
    };
    Error::new(kind, error.to_string())
}
