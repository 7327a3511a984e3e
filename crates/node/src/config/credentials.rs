//! Who the two ends are, and how they prove it, as it is written. The comments are the manual, as in [`super::file`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;

/// Who we are and how we prove it: either `secret`/`secret_file`, or `certificate` and `key`; or, at a client, `auth` with `user` and `password_file`, or
/// with `certificate` and `key`.
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
    /// Client: prove who we are as a user, by EAP. The gateway must prove itself by a certificate of `remote.ca` before anything is said
    /// of the password. Absent: by secret or certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Login>,
    /// With `auth`: the name of the user, as the gateway has it. `id` may be anything then that the gateway takes, such as the same name. With `eap-tls` it may
    /// be absent: then it is `id`, and the certificate should have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With `auth = "eap-mschapv2"`: the password. Prefer `password_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Hidden>,
    /// With `auth = "eap-mschapv2"`: file that holds the password, in UTF-8; readable by its owner only. A final line break does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// With `auth = "eap-tls"`: take a gateway that proves itself inside EAP alone (RFC 5998), by the certificate of EAP-TLS, which must be one of
    /// `remote.ca` for the name that it has in IKE. A gateway that does not know this proves itself as any other does.
    #[serde(default, skip_serializing_if = "is_false")]
    pub eap_only: bool,
    /// With `auth = "eap-tls"`: the name in the certificate that the other end shows in EAP-TLS, where that is no gateway's but that of a RADIUS server behind it.
    /// Absent: the gateway's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eap_server: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// How we prove who we are as a user (EAP, RFC 7296 section 2.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Login {
    /// By a password (EAP-MSCHAPv2).
    #[serde(rename = "eap-mschapv2")]
    MsChapV2,
    /// By `certificate` and `key`, inside EAP (EAP-TLS), as some gateways want it. The key must be in a file.
    #[serde(rename = "eap-tls")]
    Tls,
}

/// How users prove who they are (EAP, RFC 7296 section 2.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Eap {
    /// By a password (EAP-MSCHAPv2), which every system has built in.
    #[serde(rename = "eap-mschapv2")]
    MsChapV2,
    /// By a certificate of `ca` (EAP-TLS), whose extended key usage may be only for clients of TLS.
    #[serde(rename = "eap-tls")]
    Tls,
    /// By a password inside TLS (EAP-TTLS with PAP or MSCHAPv2).
    #[serde(rename = "eap-ttls")]
    Ttls,
    /// As RADIUS servers want it (`[radius]`), beside which there is no other way.
    #[serde(rename = "radius")]
    Radius,
}

/// One or several of them, best first: `"eap-mschapv2"`, or `["eap-tls", "eap-mschapv2"]`.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "Vec<Eap>")]
pub struct Ways(pub Vec<Eap>);

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            One(String),
            Several(Vec<String>),
        }
        let names = match Written::deserialize(d)? {
            Written::One(name) => vec![name],
            Written::Several(names) => names,
        };
        let way = |name: String| {
            let name = serde::de::value::StringDeserializer::<D::Error>::new(name);
            Eap::deserialize(name)
        };
        names.into_iter().map(way).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Ways {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(s),
            several => several.serialize(s),
        }
    }
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
    /// Gateway: take users who prove themselves by EAP, for which the gateway needs a certificate (`local.certificate`). `"radius"`: the servers of `[radius]` say who is let in, and by which method. Otherwise one way, or several, best first: a
    /// client that refuses one and names another gets that. Clients that prove themselves by certificate or secret are taken beside them if `ca` or a secret
    /// is given. A user is an identity like any other to `id`, `peers`, `pool`, `dormouse deny` and the records; one with a certificate goes by a name in it
    /// that `id` takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Ways>,
    /// With `eap-tls`: prove ourselves inside EAP alone to clients that ask for it (RFC 5998). They are offered nothing but EAP-TLS then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub eap_only: bool,
    /// With `eap-mschapv2` and `eap-ttls`: file of the users; readable by its owner only, read again on reload, when those who are not in it any more lose their
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
