//! Who the two ends are, and how they prove it, as it is written. The comments are the manual, as in [`super::file`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;

/// Who we are and how we prove it: either `secret`/`secret_file`, or `certificate` and `key`; or, at a client, `auth`, `user` and `password_file`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalAuth {
    /// Our identity: a name (`laptop.example.org`), a mail address, an IP address, a distinguished name (`CN=..., O=...`), or
    /// `keyid:` and hexadecimal digits. With a certificate it must stand in the certificate.
    pub id: String,
    /// Pre-shared key, as text, or hexadecimal after `0x`. Prefer `secret_file`.
    pub secret: Option<Hidden>,
    /// File that holds the pre-shared key; readable by its owner only. A final line break does not count.
    pub secret_file: Option<PathBuf>,
    /// Our certificate (PEM or DER), followed in the same file by intermediate certificates if there are any.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate (PEM or DER; PKCS#8, PKCS#1 or SEC 1); readable by its owner only. Or one in hardware (PKCS #11;
    /// RSA, ECDSA), as `pkcs11:token=NAME;object=NAME?pin-source=file:PATH&module-path=PATH` (RFC 7512); without `module-path` by
    /// p11-kit.
    pub key: Option<PathBuf>,
    /// Client: prove who we are by a password, as `user`. The gateway must prove itself by a certificate of `remote.ca` before anything is said
    /// of the password. Absent: by secret or certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Eap>,
    /// With `auth`: the name of the user, as the gateway has it. `id` may be anything then that the gateway takes, such as the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With `auth`: the password. Prefer `password_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Hidden>,
    /// With `auth`: file that holds the password, in UTF-8; readable by its owner only. A final line break does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// How a user proves to know a password (EAP, RFC 7296 section 2.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Eap {
    /// EAP-MSCHAPv2, which every system has built in.
    #[serde(rename = "eap-mschapv2")]
    MsChapV2,
}

/// Who the peer must be and how it proves it: either `secret`/`secret_file`, or `ca`; at a gateway also, or only, `auth` and `users`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteAuth {
    /// The peer's identity. `*` accepts any proven identity (for a gateway with many clients); `*.example.org` accepts
    /// `example.org`, all host names below it, and mail addresses at any of these; `*@example.org` accepts mail addresses at that host alone.
    pub id: String,
    /// Pre-shared key, if the peer uses one; the local one if neither this nor `ca` is given.
    pub secret: Option<Hidden>,
    /// File that holds the pre-shared key.
    pub secret_file: Option<PathBuf>,
    /// Certificates of the authorities that may vouch for the peer (PEM or DER files).
    #[serde(default)]
    pub ca: Vec<PathBuf>,
    /// Accept a certificate whose extended key usage is only for web servers, as public authorities issue.
    #[serde(default)]
    pub allow_server_auth: bool,
    /// Accept a peer that signs with RSA and SHA-1, the only way of IKEv2 before RFC 7427. SHA-1 is broken: only for a peer that knows
    /// nothing better.
    #[serde(default)]
    pub accept_rsa_sha1: bool,
    /// Whether the peer's certificates may have been revoked: by `crl`, and by the CRLs and OCSP responders that the certificates name
    /// (fetched by HTTP, kept in `state_dir`, renewed before they end and each hour by a gateway). A session whose certificate is
    /// revoked ends, and its ticket is refused.
    #[serde(default)]
    pub revocation: Revocation,
    /// CRLs of the authorities: files (PEM or DER; read again on reload) or `http://` URLs.
    #[serde(default)]
    pub crl: Vec<String>,
    /// Gateway: take users who prove to know a password, for which the gateway needs a certificate (`local.certificate`). Clients that prove
    /// themselves by certificate or secret are taken beside them if `ca` or a secret is given. A user is an identity like any other
    /// to `id`, `peers`, `pool`, `dormouse deny` and the records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Eap>,
    /// With `auth`: file of the users; readable by its owner only, read again on reload, when those who are not in it any more lose their
    /// sessions. Each has a table by its name, host name or mail address, case matters: `["joe@example.org"]`, with
    /// `nt_hash = "32 hexadecimal digits"`, the MD4 hash of the password, which is as good as the password to who reads it.
    /// `dormouse user add --password` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PathBuf>,
}

/// Who is refused because of revocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Revocation {
    /// None, and nothing is fetched.
    Off,
    /// Whose certificate is known to be revoked. A gateway waits up to 5 s for what it must fetch; a client connects meanwhile.
    #[default]
    Soft,
    /// Also of whose certificates nothing is known that has not ended. Where that cannot be fetched, no one connects.
    Strict,
}

/// A secret in the file. Never printed.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str("(hidden)")
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

/// Post-quantum pre-shared keys (RFC 8784, RFC 9867): mixed into the session's keys, they keep recorded traffic secret from a quantum
/// computer even where the key exchange does not. They come beside a secret or certificate, which still prove who is who.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ppk {
    /// The keys, best first, as `[[connection.NAME.ppk.keys]]`. A client names them, and a gateway takes any that it has too.
    pub keys: Vec<PpkKey>,
    /// There is no session without one of them. `false`: a peer that has none is done without, as while keys are handed out. Absent: `true`
    /// if there are keys.
    pub required: Option<bool>,
    /// Mix the key in before the identities are sent (RFC 9867), if the peer can. `false`: in IKE_AUTH (RFC 8784), which saves a round trip
    /// where there is no additional key exchange.
    pub intermediate: bool,
}

impl Default for Ppk {
    fn default() -> Self {
        Self { keys: Vec::new(), required: None, intermediate: true }
    }
}

/// One post-quantum pre-shared key. It should be random and at least 32 bytes long.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PpkKey {
    /// Its name at both ends; not secret.
    pub id: String,
    /// The key, as text, or hexadecimal after `0x`. Prefer `secret_file`.
    pub secret: Option<Hidden>,
    /// File that holds the key; readable by its owner only. A final line break does not count.
    pub secret_file: Option<PathBuf>,
}
