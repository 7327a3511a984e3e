//! What gateways share, as it is written and what that means. The comments are the manual, as in [`super::file`]. Owns that secrets come from
//! files alone; must never speak to the database.

use super::file::{File, Role, Seconds};
use super::resolve::{ConfigError, ReadFile, file_bytes};
use dormouse_crypto::Secret;
use dormouse_ike::Gateway;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// What a token derives the key for.
pub const CLUSTER_KEY_LABEL: &[u8] = b"dormouse cluster key";
/// Bytes of the key that wraps the ticket keys.
const KEY: usize = 32;
/// Bytes of a password.
const PASSWORD_MOST: usize = 1_024;

/// What gateways share in a PostgreSQL database: which tickets count and the keys that seal them, inner addresses, denials (docs/cluster.md). The
/// connections of role "gateway" must be the same at all of them, but for `local`. Another value takes effect with the next start.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The database, `postgresql://ROLE@HOST/DATABASE`, with several hosts separated by commas. To a host other than this machine only with TLS and
    /// a certificate for that name, unless it ends in `?sslmode=disable`.
    pub database: String,
    /// What this gateway is called there: 1 to 32 of a-z, 0-9 and `-`, and no other gateway's. `dormouse cluster add` has made its role.
    pub name: String,
    /// File with the 32 bytes that wrap ticket keys and passwords of users, as 64 hexadecimal digits; the same at all gateways, and not in the database. Readable by its
    /// owner only. Or `env:NAME`, a variable of the environment with these digits; `credential:NAME`, a credential of systemd (`LoadCredential=`); or a `pkcs11:` URI (RFC 7512) of an
    /// AES key in a token, from which the 32 bytes are derived by AES-CMAC (NIST SP 800-108): the same key in the token of each gateway.
    pub key_file: PathBuf,
    /// File with the password of the role; readable by its owner only. A final line break does not count. Absent: the server asks for none, as on its own Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// PEM file with the authorities of the server's certificate. Absent: none are trusted, so there is no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The addresses, or the name, at which devices reach this gateway and no other one, parted by commas, as in `"192.0.2.1, 2001:db8::1"`: where the
    /// others send devices, and shown to operators. Empty: `local.id` of its first connection.
    #[serde(default)]
    pub address: String,
    /// Clients that log in here are sent to the least loaded other gateway (RFC 5685) if this one has more than a tenth, and more than two devices,
    /// above it, where they follow: ours to another address of their gateway's name, or as `ike.redirects` says. Tickets are taken
    /// where they come. Needs `address` at each gateway. Off: the addresses that the name server gives decide, which may know what is near.
    #[serde(default)]
    pub spread: bool,
    /// Sessions of clients that let message ids be set anew (RFC 6311; strongSwan does) outlive their gateway: another one, to which its address has
    /// moved, goes on with them. For that the keys of these IKE SAs are in the database, sealed under a key that is made of the cluster key: who has both
    /// can read these sessions or take part in them (docs/cluster.md). The same at all gateways. Off: such a client notices that its gateway is gone, and logs in again.
    #[serde(default)]
    pub takeover: bool,
    /// So many seconds a gateway goes on that cannot reach the database: it keeps its sessions, and lets users in that log in fully. After that it
    /// ends its sessions and lets nobody in, for it may no longer know who is denied.
    #[serde(default = "alone_for")]
    pub alone_for: Seconds,
}

const fn alone_for() -> Seconds {
    Seconds(3_600)
}

/// What `[cluster]` means.
#[derive(Clone, Debug)]
pub struct ResolvedCluster {
    /// See [`Cluster::database`].
    pub database: String,
    /// See [`Cluster::name`].
    pub name: String,
    /// The 32 bytes.
    pub key: Secret,
    /// The role's password.
    pub password: Option<Secret>,
    /// Authorities of the server's certificate, in PEM; empty if there are none.
    pub authorities: Vec<u8>,
    /// See [`Cluster::address`].
    pub address: String,
    /// See [`Cluster::spread`].
    pub spread: bool,
    /// See [`Cluster::takeover`].
    pub takeover: bool,
    /// See [`Cluster::alone_for`].
    pub alone_for: Duration,
}

/// What `[cluster]` means; `None` if there is none. `read` is asked for the key by what the configuration has in the place of its file.
///
/// # Errors
/// The key to change.
pub fn resolve_cluster(file: &File, read: &mut ReadFile<'_>) -> Result<Option<ResolvedCluster>, ConfigError> {
    let Some(cluster) = &file.cluster else { return Ok(None) };
    let wrong = |key: &str, problem: &str| Err(ConfigError::new(key, problem.to_owned()));
    let Some(gateway) = file.connection.values().find(|c| c.role == Role::Gateway) else {
        return wrong(
            "cluster",
            "there is no connection of role \"gateway\", which alone has something to share",
        );
    };
    let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !(1..=32).contains(&cluster.name.len()) || !cluster.name.chars().all(of_a_name) {
        return wrong("cluster.name", "must be 1 to 32 of a-z, 0-9 and -");
    }
    if !["postgresql://", "postgres://"].iter().any(|scheme| cluster.database.starts_with(scheme)) {
        return wrong("cluster.database", "must be postgresql://ROLE@HOST/DATABASE");
    }
    let mut bytes =
        |key: &str, path: &PathBuf, secret| file_bytes(key, path, secret, read).map(Zeroizing::new);
    let digits = bytes("cluster.key_file", &cluster.key_file, true)?;
    let mut key = [0; KEY];
    if hex::decode_to_slice(digits.trim_ascii(), &mut key).is_err() {
        key.zeroize();
        return wrong("cluster.key_file", "must hold 64 hexadecimal digits (openssl rand -hex 32)");
    }
    let resolved_key = Secret::from(key);
    key.zeroize();
    let mut password = None;
    if let Some(path) = &cluster.password_file {
        let content = bytes("cluster.password_file", path, true)?;
        let line = content.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        password = match line.unwrap_or(&content) {
            [] => return wrong("cluster.password_file", "is empty"),
            line if line.len() > PASSWORD_MOST => {
                return wrong("cluster.password_file", "is too long for a password");
            }
            line => Some(Secret::from(line.to_vec())),
        };
    }
    let authorities = match &cluster.ca {
        Some(path) => bytes("cluster.ca", path, false)?.to_vec(),
        None => Vec::new(),
    };
    let is_place = |place: &str| place.trim().parse::<Gateway>().is_ok();
    if cluster.spread && !cluster.address.is_empty() && !cluster.address.split(',').all(is_place) {
        return wrong(
            "cluster.address",
            "must be addresses or names, parted by commas, if cluster.spread is on",
        );
    }
    let address = if cluster.address.is_empty() { &gateway.local.id } else { &cluster.address };
    Ok(Some(ResolvedCluster {
        database: cluster.database.clone(),
        name: cluster.name.clone(),
        key: resolved_key,
        password,
        authorities,
        address: address.clone(),
        spread: cluster.spread,
        takeover: cluster.takeover,
        alone_for: Duration::from_secs(cluster.alone_for.0.into()),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::path::Path;

    const GATEWAY: &str = "[connection.office]\nrole = \"gateway\"\n[connection.office.local]\nid = \"gw.test\"\n[connection.office.remote]\nid = \"*\"\n";

    fn resolved(cluster: &str, files: &[(&str, &str)]) -> Result<Option<ResolvedCluster>, String> {
        let file = parse(&format!("{cluster}\n{GATEWAY}")).unwrap();
        let mut read = |path: &Path, secret: bool| {
            assert_eq!(secret, !path.ends_with("ca.pem"), "{}", path.display());
            let found = files.iter().find(|(name, _)| path == Path::new(name));
            found.map(|(_, content)| content.as_bytes().to_vec()).ok_or_else(|| "no such file".to_owned())
        };
        resolve_cluster(&file, &mut read).map_err(|e| e.to_string())
    }

    #[test]
    fn a_whole_section_is_taken_and_each_wrong_key_is_named() {
        let key = "0f".repeat(32) + "\n";
        let files =
            [("k", key.as_str()), ("p", "hunter2\n"), ("ca.pem", "PEM"), ("short", "0f\n"), ("empty", "\n")];
        let whole = "[cluster]\ndatabase = \"postgresql://a@db/d\"\nname = \"gw-1\"\nkey_file = \"k\"\npassword_file = \"p\"\nca = \"ca.pem\"";
        let cluster = resolved(whole, &files).unwrap().unwrap();
        assert_eq!(cluster.key.as_bytes(), [0x0f; 32]);
        assert_eq!(cluster.password.as_ref().map(Secret::as_bytes), Some(&b"hunter2"[..]));
        assert_eq!((cluster.address.as_str(), cluster.authorities.as_slice()), ("gw.test", &b"PEM"[..]));
        assert_eq!(cluster.alone_for, Duration::from_secs(3_600));
        assert!(resolved("", &[]).unwrap().is_none());
        for (from, to, key) in [
            ("gw-1", "GW", "cluster.name: "),
            ("gw-1", "", "cluster.name: "),
            ("postgresql:", "mysql:", "cluster.database: "),
            ("\"k\"", "\"short\"", "cluster.key_file: "),
            ("\"k\"", "\"gone\"", "cluster.key_file: no such file"),
            ("\"p\"", "\"empty\"", "cluster.password_file: is empty"),
            ("ca.pem", "gone/ca.pem", "cluster.ca: no such file"),
        ] {
            let error = resolved(&whole.replace(from, to), &files).unwrap_err();
            assert!(error.starts_with(key) && !error.contains("hunter2"), "{error}");
        }
        let spread = |address: &str| {
            resolved(&format!("{whole}\nspread = true\naddress = \"{address}\""), &files)
                .map(|c| c.map(|c| c.spread))
        };
        assert_eq!(spread("192.0.2.1, 2001:db8::1"), Ok(Some(true)));
        assert!(!cluster.spread && spread("here, and there!").unwrap_err().starts_with("cluster.address: "));
        let client = parse(&format!("{whole}\n")).unwrap();
        let error = resolve_cluster(&client, &mut |_, _| Ok(Vec::new())).unwrap_err().to_string();
        assert!(error.contains("role \"gateway\""), "{error}");
    }
}
