//! RADIUS servers, as they are written and what that means. The comments are the manual, as in [`super::file`]. Owns that secrets come from files alone.

use super::file::{Eap, File, Role, Seconds};
use super::resolve::{ConfigError, ReadFile, file_bytes};
use crate::radius::{INTERIM_LEAST, Policy, Server};
use dormouse_crypto::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// Ports of RFC 2865 and RFC 2866.
const AUTHENTICATION: u16 = 1812;
const ACCOUNTING: u16 = 1813;
/// Servers of one kind.
const SERVERS_MOST: usize = 8;
/// Bytes of an attribute's value (RFC 2865 section 5).
const NAME_MOST: usize = 253;
const SECRET_MOST: usize = 1_024;

/// RADIUS servers: who know the users of connections with `remote.auth = "radius"` (RFC 3579), and who are told of their sessions (RFC 2866).
/// What is said to them is protected by MD5 and a shared secret. Every answer must have a Message-Authenticator (CVE-2024-3596), which all servers send that know EAP; the
/// way to them should all the same be a network of your own, or a tunnel.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Radius {
    /// The servers, as `[[radius.servers]]`. The first that answers is asked; one that did not is asked last for a minute.
    pub servers: Vec<RadiusServer>,
    /// Servers that are told when the session of such a user begins and ends, how long it lasted and what it carried, as `[[radius.accounting]]`. The first that answers is told. A device that sleeps
    /// stays in its session. Absent: nobody is told.
    pub accounting: Vec<RadiusServer>,
    /// What the gateway is called there (NAS-Identifier). Empty: the `local.id` of the first connection with `remote.auth = "radius"`.
    pub nas_identifier: String,
    /// A server that has not answered is asked again after this time, 1 to 10 seconds.
    pub timeout: Seconds,
    /// A server is asked so often, 1 to 5 times; then the next one. No client is kept waiting for more than some 20 seconds.
    pub tries: u32,
    /// The accounting servers are told how a session goes each so many seconds, 60 or more, unless the user's server says otherwise (Acct-Interim-Interval). 0: only
    /// if it does.
    pub interim: Seconds,
}

impl Default for Radius {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            accounting: Vec::new(),
            nas_identifier: String::new(),
            timeout: Seconds(2),
            tries: 3,
            interim: Seconds(0),
        }
    }
}

/// One server, as `[[radius.servers]]` or `[[radius.accounting]]`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RadiusServer {
    /// Its IP address.
    pub address: IpAddr,
    /// Its UDP port. Absent: 1812, and 1813 for accounting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// File that holds the secret that is shared with it; readable by its owner only. A final line break does not count.
    pub secret_file: PathBuf,
}

/// What `[radius]` means; `None` if there is none.
///
/// # Errors
/// The key to change.
pub fn resolve_radius(file: &File, read: &mut ReadFile<'_>) -> Result<Option<Policy>, ConfigError> {
    let wrong = |key: &str, problem: String| Err(ConfigError::new(key, problem));
    let asking = |c: &&super::file::Connection| {
        c.role == Role::Gateway && c.remote.auth.as_ref().is_some_and(|ways| ways.0.contains(&Eap::Radius))
    };
    let by = file.connection.iter().find(|(_, c)| asking(c));
    let radius = match (&file.radius, by) {
        (None, None) => return Ok(None),
        (None, Some((name, _))) => {
            let key = format!("connection.{name}.remote.auth");
            return wrong(&key, "\"radius\" needs the servers, as [[radius.servers]]".to_owned());
        }
        (Some(radius), _) => radius,
    };
    let Some((_, connection)) = by else {
        return wrong(
            "radius",
            "no gateway's connection asks these servers (remote.auth = \"radius\")".to_owned(),
        );
    };
    if radius.servers.is_empty() {
        return wrong("radius.servers", "there is none; each is one table [[radius.servers]]".to_owned());
    }
    for (key, servers) in [("radius.servers", &radius.servers), ("radius.accounting", &radius.accounting)] {
        if servers.len() > SERVERS_MOST {
            return wrong(key, format!("more than {SERVERS_MOST}"));
        }
    }
    if !(1..=10).contains(&radius.timeout.0) {
        return wrong("radius.timeout", "must be 1 to 10 seconds".to_owned());
    }
    if !(1..=5).contains(&radius.tries) {
        return wrong("radius.tries", "must be 1 to 5".to_owned());
    }
    let interim = Duration::from_secs(radius.interim.0.into());
    if !interim.is_zero() && interim < INTERIM_LEAST {
        return wrong("radius.interim", "must be 60 seconds or more, or 0".to_owned());
    }
    let name = if radius.nas_identifier.is_empty() { &connection.local.id } else { &radius.nas_identifier };
    if name.len() > NAME_MOST {
        return wrong("radius.nas_identifier", format!("\"{name}\" has more than {NAME_MOST} bytes"));
    }
    let mut all = |key: &str, servers: &[RadiusServer], port: u16| -> Result<Vec<Server>, ConfigError> {
        let one =
            |(i, server): (usize, &RadiusServer)| self::server(&format!("{key}[{i}]"), server, port, read);
        servers.iter().enumerate().map(one).collect()
    };
    Ok(Some(Policy {
        servers: all("radius.servers", &radius.servers, AUTHENTICATION)?,
        accounting: all("radius.accounting", &radius.accounting, ACCOUNTING)?,
        name: name.clone(),
        timeout: Duration::from_secs(radius.timeout.0.into()),
        tries: radius.tries,
        interim: Some(interim).filter(|interim| !interim.is_zero()),
    }))
}

fn server(
    key: &str,
    server: &RadiusServer,
    port: u16,
    read: &mut ReadFile<'_>,
) -> Result<Server, ConfigError> {
    let wrong = |part: &str, problem: &str| Err(ConfigError::new(format!("{key}.{part}"), problem));
    let port = server.port.unwrap_or(port);
    if port == 0 {
        return wrong("port", "must not be 0");
    }
    if server.address.is_unspecified() || server.address.is_multicast() {
        return wrong("address", "is no server's");
    }
    let content = Zeroizing::new(file_bytes(&format!("{key}.secret_file"), &server.secret_file, true, read)?);
    let line = content.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    match line.unwrap_or(&content) {
        [] => wrong("secret_file", "is empty"),
        secret if secret.len() > SECRET_MOST => wrong("secret_file", "is too long for a secret"),
        secret => Ok(Server { address: SocketAddr::new(server.address, port), secret: Secret::from(secret) }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const GATEWAY: &str = "[connection.users]\nrole = \"gateway\"\n[connection.users.local]\nid = \"gw.test\"\n\
        [connection.users.remote]\nid = \"*\"\nauth = \"radius\"\n";

    fn resolved(text: &str) -> Result<Option<Policy>, String> {
        let file = parse(text)?;
        let mut read = |path: &std::path::Path, secret: bool| {
            assert!(secret, "{path:?}");
            match path.to_str() {
                Some("/s") => Ok(b"a secret\n".to_vec()),
                Some("/empty") => Ok(b"\n".to_vec()),
                _ => Err("no such file".to_owned()),
            }
        };
        resolve_radius(&file, &mut read).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_meant() {
        let text = "[[radius.servers]]\naddress = \"10.0.0.1\"\nsecret_file = \"/s\"\n[[radius.servers]]\naddress = \"2001:db8::1\"\n\
            port = 11812\nsecret_file = \"/s\"\n[[radius.accounting]]\naddress = \"10.0.0.1\"\nsecret_file = \"/s\"\n";
        let policy = resolved(&format!("{GATEWAY}[radius]\ninterim = 600\n{text}")).unwrap().unwrap();
        let of = |servers: &[Server]| servers.iter().map(|s| s.address.to_string()).collect::<Vec<_>>();
        assert_eq!(of(&policy.servers), ["10.0.0.1:1812", "[2001:db8::1]:11812"]);
        assert_eq!(of(&policy.accounting), ["10.0.0.1:1813"]);
        assert!(policy.servers[0].secret == Secret::from(&b"a secret"[..]), "without the line break");
        assert_eq!((policy.name.as_str(), policy.interim), ("gw.test", Some(Duration::from_secs(600))));
        assert!(!format!("{policy:?}").contains("a secret"));
        assert_eq!(resolved("").unwrap(), None);
    }

    #[test]
    fn what_cannot_be_meant_is_said_with_its_key() {
        let server = "[[radius.servers]]\naddress = \"10.0.0.1\"\nsecret_file = \"/s\"\n";
        for (text, said) in [
            (GATEWAY.to_owned(), "connection.users.remote.auth: \"radius\" needs the servers"),
            (server.to_owned(), "radius: no gateway's connection asks"),
            (format!("{GATEWAY}[radius]\n"), "radius.servers: there is none"),
            (format!("{GATEWAY}[radius]\ntimeout = 11\n{server}"), "radius.timeout"),
            (format!("{GATEWAY}[radius]\ntries = 0\n{server}"), "radius.tries"),
            (format!("{GATEWAY}[radius]\ninterim = 59\n{server}"), "radius.interim"),
            (
                format!("{GATEWAY}{}", server.replace("/s", "/empty")),
                "radius.servers[0].secret_file: is empty",
            ),
            (
                format!("{GATEWAY}{}", server.replace("/s", "/none")),
                "radius.servers[0].secret_file: no such file",
            ),
            (format!("{GATEWAY}{}", server.replace("10.0.0.1", "0.0.0.0")), "radius.servers[0].address"),
            (format!("{GATEWAY}{server}port = 0\n"), "radius.servers[0].port"),
            (format!("{GATEWAY}{server}secret = \"x\"\n"), "unknown field `secret`"),
        ] {
            let error = resolved(&text).unwrap_err();
            assert!(error.contains(said), "{error}\nis not\n{said}");
        }
    }
}
