//! From the configuration file to what the node takes. Owns reading the file and those that it names.

use crate::args::Args;
use anyhow::{Context, Result, anyhow};
use dormouse_crypto::Secret;
use dormouse_crypto::sign::Signer;
use dormouse_io::token::{self, Token, Uri};
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

/// A token's PIN is wrong: a start that fails so is not repeated, because each try could be the one that locks the token.
#[derive(Debug)]
pub(crate) struct PinRefused;

impl std::fmt::Display for PinRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token's PIN")
    }
}

/// Reads and resolves the configuration.
///
/// # Errors
/// With file, line and column if it is not TOML or has an unknown key; with the key if a value is wrong.
pub(crate) fn load(args: &Args) -> Result<Loaded> {
    let (mut file, path) = written(args)?;
    if inline_secret(&file) && readable_by_others(path)? {
        return Err(anyhow!(
            "{0}: holds a secret but can be read by others; chmod 600 {0}, or use secret_file",
            path.display()
        ));
    }
    let mut pin = false;
    let connections = config::resolve_with(&file, &mut read, &mut |uri| open_token(uri, &mut pin))
        .map_err(|e| anyhow!("{}: {e}", path.display()))
        .map_err(|e| if pin { e.context(PinRefused) } else { e })?;
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

/// Reads the configuration as it is written, and none of the files that it names.
///
/// # Errors
/// With file, line and column if it is not TOML or has an unknown key.
pub(crate) fn written(args: &Args) -> Result<(file::File, &Path)> {
    let path = args.config.as_path();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    Ok((config::parse(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?, path))
}

fn inline_secret(file: &file::File) -> bool {
    file.connection.values().any(|c| c.local.secret.is_some() || c.remote.secret.is_some())
}

fn readable_by_others(path: &Path) -> Result<bool> {
    let mode = std::fs::metadata(path).with_context(|| path.display().to_string())?.mode();
    Ok(mode & 0o077 != 0)
}

/// `refused` becomes true if it is the PIN that is wrong.
fn open_token(uri: &str, refused: &mut bool) -> Result<Box<dyn Signer>, String> {
    let uri = Uri::parse(uri).map_err(|e| e.to_string())?;
    let pin = uri.pin_source.as_deref().map(|path| read(path, true)).transpose()?.map(Secret::from);
    let token = Token::open(&uri, pin.as_ref()).map_err(|e| {
        *refused = matches!(e, token::Error::Pin(_));
        e.to_string()
    })?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    const CONNECTION: &str = "[connection.office]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n[connection.office.local]\n\
        id = \"device.test\"\nsecret = \"a secret of the test\"\n[connection.office.remote]\nid = \"gateway.test\"\n\
        secret = \"a secret of the test\"\n[connection.office.child]\nremote = [\"10.0.0.0/8\"]\n";

    /// What becomes of a configuration file with these permission bits.
    fn loaded(name: &str, text: &str, mode: u32, more: &[&str]) -> Result<Loaded, String> {
        let path = std::env::temp_dir().join(format!("dormoused-load-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let file = path.to_string_lossy().into_owned();
        let args = ["dormoused", "--config", &file].into_iter().chain(more.iter().copied());
        let result = load(&Args::parse_from(args)).map_err(|e| format!("{e:#}"));
        std::fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_the_command_that_helps() {
        let error = loaded("open", CONNECTION, 0o644, &[]).unwrap_err();
        assert!(error.contains("chmod 600 /"), "{error}");
        assert_eq!(loaded("closed", CONNECTION, 0o600, &[]).unwrap().connections.len(), 1);
    }

    #[test]
    fn what_the_command_line_says_replaces_what_the_file_says() {
        let text = format!("[daemon]\nlog = \"warn\"\n{CONNECTION}");
        let more = ["--log", "debug", "--socket", "/tmp/s", "--state-dir", "/tmp/d"];
        let daemon = loaded("flags", &text, 0o600, &more).unwrap().daemon;
        assert_eq!((daemon.log.as_str(), daemon.socket.to_str()), ("debug", Some("/tmp/s")));
        assert_eq!(daemon.state_dir.to_str(), Some("/tmp/d"));
        assert_eq!(loaded("no-flags", &text, 0o600, &[]).unwrap().daemon.log, "warn");
    }

    #[test]
    fn an_error_names_the_file_and_what_is_wrong_in_it() {
        for (name, text, said) in [
            ("empty", "", "no connection is configured"),
            ("key", "[daemon]\nlogg = \"info\"\n", "logg"),
            ("toml", "[daemon\n", "line 1"),
        ] {
            let error = loaded(name, text, 0o600, &[]).unwrap_err();
            assert!(error.contains(said) && error.contains(&format!("{name}.toml")), "{error}");
        }
    }
}
