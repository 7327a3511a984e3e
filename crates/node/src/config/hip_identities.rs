//! The identities of a host of the Host Identity Protocol: their keys and names. Owns which there are; must never say whom one is for.

use super::hip::Hip;
use super::resolve::{ConfigError, ReadFile};
use dormouse_crypto::hip::v1;
use dormouse_crypto::sign::SigningKey;
use dormouse_hip as hip;
use dormouse_wire::hip::{DomainId, Hit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Identities besides that of `key`.
const MOST: usize = 16;

/// An identity of this host besides that of `key`, in the version of the section.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HipIdentity {
    /// What it is called here.
    pub name: String,
    /// Its private key, as `key` of the section.
    pub key: PathBuf,
}

impl Hip {
    /// The versions of the protocol that this host speaks, that of the section first.
    #[must_use]
    pub fn versions(&self) -> Vec<u8> {
        let of_key = self.key_v1.as_ref().map(|_| 1);
        let others: BTreeSet<u8> = self.peers.iter().filter_map(|p| p.version).chain(of_key).collect();
        [self.version].into_iter().chain(others.into_iter().filter(|v| *v != self.version)).collect()
    }
}

/// Who we are in each version, and then the others with their names.
/// "All HIP implementations MUST support more than one simultaneous HI" (RFC 7401 section 7)
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn read(
    name: &str,
    h: &Hip,
    read: &mut ReadFile<'_>,
) -> Result<(Vec<hip::Identity>, BTreeMap<Hit, String>), ConfigError> {
    let key = |k: &str| format!("connection.{name}.hip.{k}");
    let known = |v: u8| v == 1 || v == 2;
    let unknown = |k: String| Err(ConfigError::new(key(&k), "1 and 2 are supported"));
    if !known(h.version) {
        return unknown("version".to_owned());
    }
    if let Some(i) = h.peers.iter().position(|p| !p.version.is_none_or(known)) {
        return unknown(format!("peers[{i}].version"));
    }
    let one = |version: u8| {
        let (k, file) = match &h.key_v1 {
            Some(file) if version == 1 => ("key_v1", file),
            _ => ("key", &h.key),
        };
        let content = read(file, true).map_err(|e| ConfigError::new(key(k), e))?;
        let identity = if version == 1 { identity_v1(&content) } else { identity(&content) };
        let hint = if version == 1 && k == "key" && h.version != 1 {
            "; a peer has version = 1: name another key for it as hip.key_v1"
        } else {
            ""
        };
        identity.map_err(|e| ConfigError::new(key(k), format!("{}: {e}{hint}", file.display())))
    };
    let mut all = h.versions().into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    let mut named = BTreeMap::new();
    for (i, other) in h.identities.iter().enumerate() {
        let key = |k: &str| key(&format!("identities[{i}].{k}"));
        if i >= MOST {
            return Err(ConfigError::new(key("name"), format!("{MOST} identities are the most")));
        }
        let fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if other.name.is_empty() || !other.name.chars().all(fit) {
            let problem = format!("\"{}\" is no name: a-z A-Z 0-9 - _ .", other.name);
            return Err(ConfigError::new(key("name"), problem));
        }
        let content = read(&other.key, true).map_err(|e| ConfigError::new(key("key"), e))?;
        let made = if h.version == 1 { identity_v1(&content) } else { identity(&content) };
        let made = made.map_err(|e| ConfigError::new(key("key"), format!("{}: {e}", other.key.display())))?;
        if all.iter().any(|there| there.hit() == made.hit()) {
            let problem = format!("{} has another identity's key, {}", other.key.display(), made.hit());
            return Err(ConfigError::new(key("key"), problem));
        }
        if named.values().any(|name| *name == other.name) {
            return Err(ConfigError::new(key("name"), "stands there twice"));
        }
        named.insert(made.hit(), other.name.clone());
        all.push(made);
    }
    Ok((all, named))
}

/// The identity whose private key a file holds.
///
/// # Errors
/// What the file holds instead.
pub fn identity(content: &[u8]) -> Result<hip::Identity, String> {
    let key = SigningKey::from_file_content(content).map_err(|e| e.to_string())?;
    let identity = hip::Identity::new(key, DomainId::default());
    identity.map_err(|e| format!("{e}; dormouse hip keygen makes one"))
}

/// The same in version 1.
///
/// # Errors
/// What the file holds instead.
pub fn identity_v1(content: &[u8]) -> Result<hip::Identity, String> {
    let key = v1::SigningKey::from_file_content(content).map_err(|e| e.to_string())?;
    hip::Identity::v1(key, DomainId::default()).map_err(|e| e.to_string())
}
