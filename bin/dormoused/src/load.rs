//! From the configuration file, and those that it names, to what the node takes. Owns their meaning; [`dormouse_io::files`] reads them.

use crate::args::Args;
use crate::features;
use anyhow::{Context, Result, anyhow};
use dormouse_crypto::Secret;
use dormouse_crypto::sign::Signer;
use dormouse_io::files::{self, Files};
use dormouse_io::key_source::KeySource;
use dormouse_io::token::{self, Token, Uri};
use dormouse_node::config::access_router::{Repair, Router};
use dormouse_node::config::{
    self, ConfigError, Resolved, ResolvedCluster, ResolvedHip, ResolvedSleep, Same, file,
};
use dormouse_node::radius::Policy;
use std::path::{Path, PathBuf};

/// The daemon's own settings and its connections.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) daemon: file::Daemon,
    /// As written, secrets left out: to tell what has changed when it is read again.
    pub(crate) written: serde_json::Value,
    pub(crate) sleep: ResolvedSleep,
    pub(crate) connections: Vec<Resolved>,
    pub(crate) hip: Option<ResolvedHip>,
    pub(crate) standin: config::standin::StandIn,
    pub(crate) router: Option<file::Router>,
    pub(crate) radius: Option<Policy>,
    pub(crate) cluster: Option<ResolvedCluster>,
    /// What must be the same at all gateways.
    pub(crate) same: Same,
    pub(crate) audit: file::Audit,
}

/// The files that the configuration of this text names; none if it cannot be parsed.
pub(crate) fn names(text: &[u8]) -> Vec<PathBuf> {
    let file = str::from_utf8(text).ok().and_then(|text| config::parse(text).ok()).unwrap_or_default();
    let key = file.cluster.as_ref().map(|cluster| cluster.key_file.as_path());
    let read = |path: &Path| match path.to_str().filter(|uri| Uri::is_one(uri)) {
        Some(uri) => Uri::parse(uri).ok()?.pin_source,
        None if Some(path) == key => KeySource::parse(path).ok()?.file().map(Path::to_owned),
        None => Some(path.to_owned()),
    };
    file.names().filter_map(read).collect()
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
/// As [`resolve`].
pub(crate) fn load(args: &Args) -> Result<Loaded> {
    let path = args.config.display();
    std::fs::File::open(&args.config).with_context(|| format!("{path}: cannot be read"))?;
    resolve(args, &files::collect(&args.config, &names))
}

/// Resolves the configuration that was read.
///
/// # Errors
/// With file, line and column if it is not TOML or has an unknown key; with the line and the key if a value is wrong.
pub(crate) fn resolve(args: &Args, files: &Files) -> Result<Loaded> {
    let path = args.config.as_path();
    let (mut file, text) = parsed(path, files)?;
    if inline_secret(&file) && files.get(path).is_ok_and(|content| content.mode & 0o077 != 0) {
        return Err(anyhow!(
            "{0}: holds a secret but can be read by others; chmod 600 {0}, or use secret_file",
            path.display()
        ));
    }
    let wrong = |e: ConfigError| anyhow!("{}: {}", path.display(), e.in_text(text));
    features::check(&file).map_err(wrong)?;
    let read = &mut |path: &Path, secret| read(files, path, secret);
    let mut pin = false;
    let connections = config::resolve_with(&file, read, &mut |uri| open_token(files, uri, &mut pin))
        .map_err(wrong)
        .map_err(|e| if pin { e.context(PinRefused) } else { e })?;
    let sleep = config::resolve_sleep(&file.sleep, read).map_err(wrong)?;
    let hip = features::resolve_hip(&file, read).map_err(wrong)?;
    let radius = config::resolve_radius(&file, read).map_err(wrong)?;
    let cluster = cluster(&file, files).map_err(|(e, pin)| {
        let e = wrong(e);
        if pin { e.context(PinRefused) } else { e }
    })?;
    let same = cluster.as_ref().map(|cluster| Same::of(&file, &cluster.key, read)).unwrap_or_default();
    // An access router repairs plain TCP without any.
    let by_keys = |router: &Router| router.repair == Repair::EspArq;
    if connections.is_empty() && hip.is_none() && file.router.as_ref().is_none_or(by_keys) {
        return Err(anyhow!(
            "{}: no connection is configured; add a [connection.NAME] section, or [router] (repair = \"esp-arq\" needs a connection for its keys)",
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
    let file::File { daemon, standin, audit, router, .. } = file;
    Ok(Loaded { daemon, written, sleep, connections, hip, standin, router, radius, cluster, same, audit })
}

/// What gateways share; whether a token's PIN is what is wrong.
fn cluster(file: &file::File, files: &Files) -> Result<Option<ResolvedCluster>, (ConfigError, bool)> {
    let (mut refused, key) = (false, file.cluster.as_ref().map(|cluster| cluster.key_file.clone()));
    let mut by_name = |path: &Path, secret: bool| match Some(path) == key.as_deref() {
        true => KeySource::parse(path)?.content(
            config::CLUSTER_KEY_LABEL,
            &mut |path| read(files, path, true),
            &mut refused,
        ),
        false => read(files, path, secret),
    };
    let resolved = config::resolve_cluster(file, &mut by_name);
    resolved.map_err(|e| (e, refused))
}

/// Says in the log what is unwise, or will make peers refuse us: the clock may be wrong, so the daemon runs nevertheless.
pub(crate) fn warn(findings: &[config::Finding]) {
    findings.iter().for_each(|finding| tracing::warn!("{finding}"));
}

/// Reads the configuration as it is written, and none of the files that it names.
///
/// # Errors
/// With file, line and column if it is not TOML or has an unknown key.
pub(crate) fn written(args: &Args) -> Result<file::File> {
    Ok(parsed(&args.config, &files::collect(&args.config, &|_| Vec::new()))?.0)
}

fn parsed<'f>(path: &Path, files: &'f Files) -> Result<(file::File, &'f str)> {
    let content = files.get(path).map_err(|why| anyhow!("{why}"))?;
    let text = str::from_utf8(content.bytes.as_bytes()).with_context(|| path.display().to_string())?;
    Ok((config::parse(text).map_err(|e| anyhow!("{}: {e}", path.display()))?, text))
}

fn inline_secret(file: &file::File) -> bool {
    let of = |c: &file::Connection| {
        let keys = c.ppk.keys.iter().any(|key| key.secret.is_some());
        keys || c.local.secret.is_some() || c.local.password.is_some() || c.remote.secret.is_some()
    };
    file.connection.values().any(of)
}

/// `refused` becomes true if it is the PIN that is wrong.
fn open_token(files: &Files, uri: &str, refused: &mut bool) -> Result<Box<dyn Signer>, String> {
    let uri = Uri::parse(uri).map_err(|e| e.to_string())?;
    let pin = uri.pin_source.as_deref().map(|path| read(files, path, true)).transpose()?.map(Secret::from);
    let token = Token::open(&uri, pin.as_ref()).map_err(|e| {
        *refused = matches!(e, token::Error::Pin(_));
        e.to_string()
    })?;
    Ok(Box::new(token))
}

fn read(files: &Files, path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    let content = files.get(path)?;
    if secret && content.mode & 0o077 != 0 {
        let name = path.display();
        return Err(format!(
            "{name}: mode {:o} lets others read a secret; chmod 600 {name}",
            content.mode & 0o777
        ));
    }
    Ok(content.bytes.as_bytes().to_vec())
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
        let result = load(&Args::parse_from(args)).map_err(|e| dormouse_io::causes(&*e));
        std::fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_the_command_that_helps() {
        let error = loaded("open", CONNECTION, 0o644, &[]).unwrap_err();
        assert!(error.contains("chmod 600 /"), "{error}");
        assert_eq!(loaded("closed", CONNECTION, 0o600, &[]).unwrap().connections.len(), 1);
        let password = "[connection.office]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n[connection.office.local]\nid = \"a\"\n\
            auth = \"eap-mschapv2\"\nuser = \"a\"\npassword = \"hunter2\"\n[connection.office.remote]\nid = \"gateway.test\"\n\
            ca = [\"/nowhere\"]\n";
        let [open, closed] = [0o644, 0o600].map(|mode| loaded("password", password, mode, &[]).unwrap_err());
        assert!(open.contains("chmod 600 /") && !closed.contains("chmod"), "{open}; {closed}");
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
    fn a_router_needs_no_connection() {
        let text = "[router]\ndevice = \"wlan0\"\nnetwork = \"eth0\"\nrepair = \"snoop\"\n";
        let loaded = loaded("router", text, 0o600, &[]).unwrap();
        assert!(loaded.connections.is_empty() && loaded.router.is_some());
        let text = text.replace("snoop", "esp-arq");
        assert!(super::tests::loaded("by-keys", &text, 0o600, &[]).unwrap_err().contains("for its keys"));
    }

    #[test]
    fn an_error_names_the_file_and_what_is_wrong_in_it() {
        for (name, text, said) in [
            ("empty", "", "no connection is configured"),
            ("key", "[daemon]\nlogg = \"info\"\n", "logg"),
            ("toml", "[daemon\n", "line 1"),
            (
                "value",
                &CONNECTION.replace("id = \"gateway.test\"", "id = \"\""),
                "line 8: connection.office.remote.id",
            ),
            (
                "file",
                &CONNECTION.replacen("secret = \"a secret of the test\"", "secret_file = \"/nowhere\"", 1),
                "line 6: connection.office.local.secret_file: /nowhere: No such file",
            ),
        ] {
            let error = loaded(name, text, 0o600, &[]).unwrap_err();
            assert!(error.contains(said) && error.contains(&format!("{name}.toml")), "{error}");
        }
    }
}
