//! From the configuration file to what the node takes. Owns reading the file and those that it names.

use crate::args::Args;
use anyhow::{Context, Result, anyhow};
use dormouse_crypto::Secret;
use dormouse_crypto::sign::Signer;
use dormouse_io::token::{Token, Uri};
use dormouse_node::config::{self, Resolved, ResolvedSleep, file};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The daemon's own settings and its connections.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) daemon: file::Daemon,
    /// As written, secrets left out: to tell what has changed when it is read again.
    pub(crate) written: serde_json::Value,
    pub(crate) sleep: ResolvedSleep,
    pub(crate) connections: Vec<Resolved>,
    pub(crate) standin: config::standin::StandIn,
}

/// Reads and resolves the configuration.
///
/// # Errors
/// With file, line and column if it is not TOML or has an unknown key; with the key if a value is wrong.
pub(crate) fn load(args: &Args) -> Result<Loaded> {
    let path = &args.config;
    let text =
        std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let mut file = config::parse(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    if inline_secret(&file) && readable_by_others(path)? {
        return Err(anyhow!(
            "{0}: holds a secret but can be read by others; chmod 600 {0}, or use secret_file",
            path.display()
        ));
    }
    let connections = config::resolve_with(&file, &mut read, &mut open_token)
        .map_err(|e| anyhow!("{}: {e}", path.display()))?;
    let sleep =
        config::resolve_sleep(&file.sleep, &mut read).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    if connections.is_empty() {
        return Err(anyhow!(
            "{}: no connection is configured; add a [connection.NAME] section",
            path.display()
        ));
    }
    let daemon = &mut file.daemon;
    if let Some(dir) = &args.state_dir {
        daemon.state_dir.clone_from(dir);
    }
    if let Some(socket) = &args.socket {
        daemon.socket.clone_from(socket);
    }
    if let Some(log) = &args.log {
        daemon.log.clone_from(log);
    }
    let written = serde_json::to_value(&file).unwrap_or_default();
    Ok(Loaded { daemon: file.daemon, written, sleep, connections, standin: file.standin })
}

/// Says in the log what is unwise, or will make peers refuse us: the clock may be wrong, so the daemon runs nevertheless.
pub(crate) fn warn(findings: &[config::Finding]) {
    findings.iter().for_each(|finding| tracing::warn!("{finding}"));
}

fn inline_secret(file: &file::File) -> bool {
    file.connection.values().any(|c| c.local.secret.is_some() || c.remote.secret.is_some())
}

fn readable_by_others(path: &Path) -> Result<bool> {
    let mode = std::fs::metadata(path).with_context(|| path.display().to_string())?.mode();
    Ok(mode & 0o077 != 0)
}

fn open_token(uri: &str) -> Result<Box<dyn Signer>, String> {
    let uri = Uri::parse(uri).map_err(|e| e.to_string())?;
    let pin = uri.pin_source.as_deref().map(|path| read(path, true)).transpose()?.map(Secret::from);
    let token = Token::open(&uri, pin.as_ref()).map_err(|e| e.to_string())?;
    Ok(Box::new(token))
}

fn read(path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    let name = path.display();
    if secret {
        let mode = std::fs::metadata(path).map_err(|e| format!("{name}: {e}"))?.mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "{name}: mode {:o} lets others read a secret; chmod 600 {name}",
                mode & 0o777
            ));
        }
    }
    std::fs::read(path).map_err(|e| format!("{name}: {e}"))
}
