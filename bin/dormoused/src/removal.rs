//! `dormouse down CONNECTION --peer IDENTITY`: a gateway's operator ends the session of one peer, or one CHILD SA of it. Owns the
//! errors of a wrong name; the removal is the node's.

use crate::daemon::Daemon;
use dormouse_control::{Error, ErrorKind};
use dormouse_node::config::file::Role;
use dormouse_node::{Node, NotDone};
use dormouse_sansio::Instant;
use std::collections::BTreeSet;

/// Most peers that an error names.
const NAMED: usize = 8;

impl Daemon {
    /// Ends the sessions of the peers of `connection` that `peer` means.
    pub(crate) fn remove(&mut self, now: Instant, connection: &str, peer: &str) -> Result<(), Error> {
        if !self.is_gateway(connection) {
            return Err(self.no_gateway(connection, "down"));
        }
        let removed = self.host.node_mut().remove_peer(now, connection, peer);
        if removed.is_empty() {
            return Err(unknown_peer(connection, peer, &self.host.node().peers_of(connection)));
        }
        for peer in removed {
            tracing::info!(%connection, %peer, "removed on request");
        }
        Ok(())
    }

    /// Ends one CHILD SA of the peers of `connection` that `peer` means.
    pub(crate) fn remove_child(
        &mut self,
        now: Instant,
        connection: &str,
        peer: &str,
        spi: u32,
    ) -> Result<(), Error> {
        self.at_peer("down", connection, peer, |node| node.remove_child(now, connection, peer, spi))?;
        tracing::info!(%connection, %peer, spi = format_args!("{spi:08x}"), "a CHILD SA was deleted on request");
        Ok(())
    }

    /// Does what `verb` asks for at the peers of `connection` that `peer` means.
    pub(crate) fn at_peer(
        &mut self,
        verb: &str,
        connection: &str,
        peer: &str,
        act: impl FnOnce(&mut Node) -> Result<(), NotDone>,
    ) -> Result<(), Error> {
        if !self.is_gateway(connection) {
            return Err(self.no_gateway(connection, verb));
        }
        act(self.host.node_mut()).map_err(|why| match why {
            NotDone::Unknown => unknown_peer(connection, peer, &self.host.node().peers_of(connection)),
            NotDone::Away => {
                Error::new(ErrorKind::NotConnected, format!("'{peer}' sleeps: it hears nothing"))
            }
            NotDone::NoChild => {
                let message = format!("'{peer}' has no CHILD SA with this SPI of ours");
                Error::new(ErrorKind::NotConnected, message)
                    .with_change("dormouse status shows them, ours first")
            }
        })
    }

    pub(crate) fn is_gateway(&self, connection: &str) -> bool {
        self.connections.iter().any(|c| c.name == connection && c.role == Role::Gateway)
    }

    /// Whether it has gateway connections, and no other.
    pub(crate) fn is_gateway_alone(&self) -> bool {
        let only = self.connections.iter().all(|c| c.role == Role::Gateway);
        only && !self.connections.is_empty() && self.hip.is_none()
    }

    fn no_gateway(&self, connection: &str, verb: &str) -> Error {
        if self.connections.iter().any(|c| c.name == connection) {
            let message = format!("'{connection}' is a client connection: its one peer is its gateway");
            return Error::new(ErrorKind::Request, message)
                .with_change(format!("dormouse {verb} {connection}"));
        }
        let gateways = self.connections.iter().filter(|c| c.role == Role::Gateway).map(|c| c.name.clone());
        let known: BTreeSet<String> = gateways.collect();
        let message =
            format!("there is no gateway connection '{connection}'; gateway connections: {}", list(&known));
        Error::new(ErrorKind::UnknownConnection, message)
    }
}

/// The error of a client's verb that names a gateway's connection.
pub(crate) fn open_to_all(connection: &str) -> Error {
    let message = format!(
        "'{connection}' is a gateway connection: it is open to its peers as long as the daemon runs, and only one of them can be removed"
    );
    Error::new(ErrorKind::Request, message).with_change(format!("dormouse down {connection} --peer IDENTITY"))
}

fn unknown_peer(connection: &str, peer: &str, there: &BTreeSet<String>) -> Error {
    let message = format!(
        "no peer of '{connection}' is called '{peer}' or has this address; its peers: {}",
        list(there)
    );
    Error::new(ErrorKind::NotConnected, message)
}

fn list(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    match (first.is_empty(), names.len() - first.len()) {
        (true, _) => "none".to_owned(),
        (_, 0) => first.join(", "),
        (_, more) => format!("{} and {more} more (dormouse status)", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, list, unknown_peer};

    #[test]
    fn an_error_names_whom_there_is_and_stays_short() {
        let peers = |n: usize| -> BTreeSet<String> { (0..n).map(|i| format!("peer-{i:02}")).collect() };
        assert_eq!(list(&peers(0)), "none");
        assert_eq!(list(&peers(2)), "peer-00, peer-01");
        assert!(list(&peers(100)).ends_with("peer-07 and 92 more (dormouse status)"));
        let said = unknown_peer("office", "joe", &peers(1)).to_string();
        assert!(said.contains("'joe'") && said.contains("'office'") && said.contains("peer-00"), "{said}");
    }
}
