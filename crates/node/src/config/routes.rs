//! Who leads packets into the tunnel. Owns the choice as it is written, and what else it excludes.

use super::block::Blocking;
use super::file::{Block, DataPath, DnsMode, File, Role};
use super::resolve::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who gives the tunnel's interface its addresses and routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Routes {
    /// The daemon, with a routing table and policy rules of its own.
    #[default]
    Auto,
    /// Another program.
    Off,
}

/// A daemon that leaves routes to another program may run beside others: it must have nothing of what a network namespace has room for once.
///
/// # Errors
/// The first thing that it has nevertheless.
pub(super) fn validate(file: &File) -> Result<(), ConfigError> {
    if file.daemon.routes == Routes::Auto {
        return Ok(());
    }
    let wrong = |key: &str, what: &str| {
        Err(ConfigError::new(
            key,
            format!("daemon.routes = \"off\" leaves routes to another program: {what}"),
        ))
    };
    if file.daemon.dns != DnsMode::Off {
        return wrong("daemon.dns", "that one sets name servers too; set \"off\"");
    }
    if file.daemon.data_path != DataPath::User {
        return wrong("daemon.data_path", "the kernel's ESP needs our own; set \"user\"");
    }
    if file.router.is_some() {
        return wrong("router", "an access router needs our own; remove it");
    }
    for (name, c) in &file.connection {
        if c.role != Role::Client {
            return wrong(&format!("connection.{name}.role"), "only a client can do without our own");
        }
        if Blocking::of(c).is_some_and(|b| b.block != Block::Off) {
            return wrong(&format!("connection.{name}.block"), "what is held goes by our own; set \"off\"");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn problem(daemon: &str, connection: &str, more: &str) -> Option<String> {
        let text = format!(
            "[daemon]\nroutes = \"off\"\n{daemon}\n[connection.a]\ngateway = \"192.0.2.1\"\n{connection}\n{more}"
        );
        super::validate(&parse(&text).unwrap()).err().map(|e| e.to_string())
    }

    #[test]
    fn what_a_network_namespace_has_once_is_refused_where_routes_are_anothers() {
        let (daemon, client) = ("dns = \"off\"", "role = \"client\"\nblock = \"off\"");
        assert_eq!(problem(daemon, client, ""), None);
        for (daemon, connection, more, key) in [
            ("", client, "", "daemon.dns"),
            ("dns = \"off\"\ndata_path = \"auto\"", client, "", "daemon.data_path"),
            (daemon, client, "[router]\ndevice = \"wlan0\"\nnetwork = \"eth0\"", "router"),
            (daemon, "role = \"gateway\"", "", "connection.a.role"),
            (daemon, "role = \"client\"", "", "connection.a.block"),
        ] {
            let said = problem(daemon, connection, more).unwrap_or_default();
            assert!(said.contains(key) && said.contains("daemon.routes"), "{key}: {said}");
        }
    }
}
