//! Connections of NetworkManager with the plug-in for strongSwan. Owns the reading of such a key file, and the rule which files of those that it names
//! are read: one of the same name beside it; else, if the connection is root's and only root can write it, the file itself. Otherwise the
//! owner of a directory could have root copy another's secret.

use super::{Ends, Wrong, password, pem};
use crate::enrol::bundle::{Bundle, Proof};
use crate::enrol::names::{harmless, shown};
use crate::enrol::passphrase::Source;
use crate::enrol::place;
use dormouse_control::{Error, ErrorKind};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::Certificate;
use dormouse_crypto::sign::SigningKey;
use dormouse_node::config::file::Hidden;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const SERVICE: &str = "org.freedesktop.NetworkManager.strongswan";

/// Whether this is such a file.
pub(super) fn is_one(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "[vpn]") && text.contains("service-type")
}

/// The value of a key in a section.
fn get<'a>(text: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let mut here = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            here = name == section;
        } else if here
            && !line.starts_with('#')
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim()).filter(|value| !value.is_empty());
        }
    }
    None
}

/// A file that the connection names.
fn named(path: &Path, text: &str, key: &str) -> Result<(PathBuf, Secret), Wrong> {
    let value = get(text, "vpn", key).ok_or_else(|| format!("{key} is missing"))?;
    let wanted = Path::new(value.strip_prefix("file://").unwrap_or(value));
    let name = wanted.file_name().ok_or_else(|| format!("{key} names no file: {}", shown(value)))?;
    let beside = path.with_file_name(name);
    if let Some(content) = place::read_unlinked(&beside)? {
        return Ok((beside, content));
    }
    let by_root = fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.uid() == 0 && meta.mode() & 0o022 == 0);
    if !by_root || !wanted.is_absolute() {
        return Err(format!("{key}: {} does not exist", beside.display()).into());
    }
    let content = place::read_unlinked(wanted)?;
    let content = content.ok_or_else(|| format!("{key}: {} does not exist", wanted.display()))?;
    Ok((wanted.to_owned(), content))
}

/// The certificates of such a file, encoded anew.
fn certificates((path, content): &(PathBuf, Secret)) -> Result<Vec<Certificate>, Wrong> {
    let all = Certificate::from_file_content(content.as_bytes());
    all.map_err(|e| format!("{}: {e}", path.display()).into())
}

pub(super) fn bundle(path: &Path, text: &str, source: &Source) -> Result<Bundle, Wrong> {
    match get(text, "vpn", "service-type") {
        Some(SERVICE) => {}
        other => {
            let kind = shown(other.unwrap_or_default());
            return Err(format!("service-type {kind}: only {SERVICE} is taken over").into());
        }
    }
    let gateway = get(text, "vpn", "address").ok_or("address is missing")?;
    let ca = pem(&certificates(&named(path, text, "certificate")?)?)?;
    let proof = match get(text, "vpn", "method") {
        Some("key" | "cert") => key(path, text)?,
        Some("eap") => {
            let user = get(text, "vpn", "user").ok_or("user is missing")?;
            match get(text, "vpn-secrets", "password") {
                // NetworkManager escapes some characters so, and this reader does not undo it: the password comes from --passphrase-file, if that is given.
                Some(text) if text.contains('\\') => match source {
                    Source::File(_) => password(user, source)?,
                    Source::Terminal => {
                        let message = format!("{}: a password with \\ is not taken over", path.display());
                        let error = Error::new(ErrorKind::Other, harmless(&message));
                        return Err(error
                            .with_change("--passphrase-file FILE, with the password in it")
                            .into());
                    }
                },
                Some(text) => Proof::Password { user: user.to_owned(), password: Hidden(text.to_owned()) },
                None => password(user, source)?,
            }
        }
        other => {
            let method = shown(other.unwrap_or_default());
            return Err(format!("method {method}: only key, cert and eap are taken over").into());
        }
    };
    let list = |key: &str| {
        let words = get(text, "vpn", key).unwrap_or_default().split([';', ',']).map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let own = get(text, "vpn", "proposal") == Some("yes");
    let proposals = if own { [list("ike"), list("esp")] } else { [Vec::new(), Vec::new()] };
    let ends = Ends {
        name: get(text, "connection", "id").unwrap_or_default(),
        gateway,
        gateway_id: get(text, "vpn", "remote-identity"),
        id: get(text, "vpn", "local-identity"),
        // What the tunnel carries, the gateway says.
        remote: Vec::new(),
        proposals,
    };
    ends.bundle(ca, proof)
}

fn key(path: &Path, text: &str) -> Result<Proof, Wrong> {
    let own = certificates(&named(path, text, "usercert")?)?;
    let (at, content) = named(path, text, "userkey")?;
    let shown = at.display();
    let fits = SigningKey::from_file_content(content.as_bytes()).map_err(|e| format!("{shown}: {e}"))?;
    let first = own.first().ok_or("usercert has no certificate")?;
    if first.public_key().map_err(|e| e.to_string())? != *fits.public_key() {
        return Err(format!("{shown} is not the key of {}", first.subject()).into());
    }
    let section = str::from_utf8(content.as_bytes()).ok().and_then(crate::enrol::swanctl::key_section);
    let section = section.ok_or_else(|| format!("{shown}: only PEM is taken over"))?;
    Ok(Proof::Certificate { certificate: pem(&own)?, key: Hidden(format!("{section}\n")) })
}
