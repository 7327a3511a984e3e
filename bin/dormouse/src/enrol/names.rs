//! Names of users, gateways and connections: what may stand in a certificate, a file name and a line of the configuration alike. Owns the
//! bounds; everything that comes from outside and becomes a name passes here.

use super::wrong;
use dormouse_control::Error;
use dormouse_crypto::cert::Identity;
use std::net::IpAddr;

/// Longest label of a host name (RFC 1035, section 2.3.4), and so of a user's name.
const LABEL: usize = 63;
/// Longest host name.
const HOST: usize = 253;
/// Longest name of a connection, as the configuration takes it.
const CONNECTION: usize = 40;

/// Whose identities a gateway takes, out of its `remote.id`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Domain {
    /// `*.example.org`.
    Host(String),
    /// `*@example.org`.
    Mail(String),
}

impl Domain {
    /// Reads `remote.id` of a gateway's connection, which `key` names.
    pub(crate) fn of(pattern: &str, key: &str) -> Result<Self, Error> {
        match (pattern.strip_prefix("*."), pattern.strip_prefix("*@")) {
            (Some(host), _) if !host.is_empty() => Ok(Self::Host(host.to_ascii_lowercase())),
            (_, Some(host)) if !host.is_empty() => Ok(Self::Mail(host.to_ascii_lowercase())),
            _ => {
                let message = format!("{key} = \"{pattern}\" says nothing of how users' names end");
                Err(wrong(message).with_change(format!("{key} = \"*.vpn.example.org\"")))
            }
        }
    }

    /// The identity of a user with this name.
    pub(crate) fn identity(&self, name: &str) -> Result<Identity, Error> {
        let text = match self {
            Self::Host(host) => format!("{name}.{host}"),
            Self::Mail(host) => format!("{name}@{host}"),
        };
        if text.len() > HOST {
            return Err(wrong(format!("{text}: longer than {HOST} characters")));
        }
        text.parse().map_err(|e| wrong(format!("{text}: {e}")))
    }
}

/// The name of the user who has this identity, as [`Domain::identity`] makes it.
pub(crate) fn of_identity<'i>(domain: &Domain, identity: &'i str) -> Option<&'i str> {
    let name = match domain {
        Domain::Host(host) => identity.strip_suffix(host.as_str())?.strip_suffix('.')?,
        Domain::Mail(host) => identity.strip_suffix(host.as_str())?.strip_suffix('@')?,
    };
    user(name).is_ok().then_some(name)
}

/// Whether this can be one label of a host name: lower case, so that one user has one name.
fn is_label(text: &str) -> bool {
    let fit = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=LABEL).contains(&text.len())
        && text.bytes().all(fit)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Demands that this can be the name of a user.
pub(crate) fn user(name: &str) -> Result<(), Error> {
    if is_label(name) {
        return Ok(());
    }
    Err(wrong(format!(
        "{} is no name of a user: 1 to {LABEL} of a-z 0-9 -, neither beginning nor ending with a -",
        shown(name)
    )))
}

/// Demands that this can be the name of a connection that is joined, and of its files.
pub(crate) fn connection(name: &str) -> Result<(), Error> {
    let fit = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    // These are names of files that are others' already.
    let taken = ["gateway", "ca", "dormouse"].contains(&name);
    if (1..=CONNECTION).contains(&name.len()) && name.bytes().all(fit) && !taken {
        return Ok(());
    }
    let message = format!(
        "{} is no name of a connection here: 1 to {CONNECTION} of a-z A-Z 0-9 - _, and not \"gateway\", \"ca\" or \"dormouse\"",
        shown(name)
    );
    Err(wrong(message).with_change("--name office"))
}

/// A gateway's name or address, as devices reach it.
pub(crate) fn gateway(name: &str) -> Result<Identity, Error> {
    let label = |part: &str| is_label(&part.to_ascii_lowercase());
    let host = name.len() <= HOST
        && name.split('.').all(label)
        && !name.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    match name.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() => {
            Err(wrong(format!("{ip} is not where devices reach this gateway")))
        }
        Ok(ip) => Ok(Identity::Ip(ip)),
        Err(_) if host => Ok(Identity::Fqdn(name.to_ascii_lowercase())),
        Err(_) => Err(wrong(format!(
            "{} is neither a host name, such as vpn.example.org, nor an address",
            shown(name)
        ))),
    }
}

/// What is not to be trusted, for an error message: bounded, and without what a terminal obeys.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(LABEL + 1).flat_map(char::escape_default).collect();
    let rest = if text.chars().count() > LABEL + 1 { "..." } else { "" };
    format!("\"{short}\"{rest}")
}

/// A text with names of others in it, without what a terminal obeys.
pub(crate) fn harmless(text: &str) -> String {
    let obeyed = |c: char| !(c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ');
    text.chars().map(|c| if obeyed(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_another_file_another_line_or_another_name_is_no_users_name() {
        let long = "a".repeat(300);
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../a",
            "a.b",
            "a\nb",
            "a b",
            "a,b",
            "cn=a",
            "Ä",
            "müller",
            "Laptop",
            "a_b",
            "-a",
            "a-",
            "a\0",
            "*",
            "a\u{202e}b",
            "a@b",
            &long,
        ] {
            let error = user(bad).expect_err(bad);
            assert!(error.message.contains("is no name of a user: 1 to 63 of a-z 0-9 -"), "{error}");
            assert!(error.message.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{error}");
            assert!(error.message.len() < 300, "{error}");
        }
        for good in ["a", "laptop", "alice-phone2", "7", &"a".repeat(63)] {
            user(good).unwrap();
        }
    }

    #[test]
    fn a_joined_connection_has_a_name_that_is_a_file_name_of_its_own() {
        for bad in ["", "..", "a/b", "a.b", "a b", "a\"b", "gateway", "ca", "dormouse", &"a".repeat(41)] {
            let error = connection(bad).expect_err(bad);
            assert!(error.message.contains("is no name of a connection here"), "{error}");
        }
        connection("office-2_B").unwrap();
    }

    #[test]
    fn a_gateway_is_a_host_or_an_address() {
        assert_eq!(gateway("VPN.example.org").unwrap(), Identity::Fqdn("vpn.example.org".into()));
        assert_eq!(gateway("2001:db8::1").unwrap(), Identity::Ip("2001:db8::1".parse().unwrap()));
        for bad in [
            "",
            "vpn..org",
            "vpn.example.org\n",
            "300.1.1.1",
            "1.2.3",
            "*.example.org",
            "vpn_1",
            "::",
            "127.0.0.1",
        ] {
            let error = gateway(bad).expect_err(bad);
            assert!(
                error.message.contains("neither a host name") || error.message.contains("not where"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_users_identity_ends_as_the_gateway_takes_it() {
        let of =
            |pattern: &str| Domain::of(pattern, "connection.a.remote.id").and_then(|d| d.identity("joe"));
        assert_eq!(of("*.Example.org").unwrap(), Identity::Fqdn("joe.example.org".into()));
        assert_eq!(of("*@example.org").unwrap().to_string(), "joe@example.org");
        let name = |pattern: &str, id| of_identity(&Domain::of(pattern, "").unwrap(), id).map(str::to_owned);
        assert_eq!(name("*.example.org", "joe.example.org").as_deref(), Some("joe"));
        assert_eq!(name("*@example.org", "joe@example.org").as_deref(), Some("joe"));
        for other in [
            "joe.example.com",
            "joe@example.org",
            "a.joe.example.org",
            ".example.org",
            "example.org",
            "../x.example.org",
        ] {
            assert_eq!(name("*.example.org", other), None, "{other}");
        }
        for bad in ["*", "joe.example.org", "*.", "*@"] {
            let error = of(bad).expect_err(bad);
            assert!(error.message.contains("says nothing of how users' names end"), "{error}");
            assert!(error.change.unwrap().starts_with("connection.a.remote.id = \"*."));
        }
        assert!(
            of(&format!("*.{}", "a.".repeat(125) + "b")).unwrap_err().message.contains("longer than 253")
        );
    }
}
