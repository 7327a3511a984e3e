//! Networks that change, names that are looked up, and the ways that follow from both. Owns nothing of its own; must never decide which
//! way is taken: the host does.

use crate::daemon::Daemon;
use anyhow::Result;
use dormouse_node::config::file::Role;
use dormouse_sansio::{Deadline, Instant};
use std::net::IpAddr;

impl Daemon {
    pub(crate) fn network_changed(&mut self, now: Instant) -> Result<()> {
        let mut changed = false;
        while let Some(change) = self.machine.monitor.next()? {
            tracing::debug!(?change, "network");
            changed = true;
        }
        if changed {
            self.block.network_changed();
            self.look_at_addresses(now);
            self.host.network_changed();
        }
        Ok(())
    }

    /// Peers learn at which other addresses this machine can be reached, if it listens on all of them.
    pub(crate) fn look_at_addresses(&mut self, now: Instant) {
        let anywhere = self.settings.listen.iter().any(IpAddr::is_unspecified);
        if let Some(addresses) = self.machine.network_changed().filter(|_| anywhere) {
            self.host.node_mut().set_own_addresses(now, &addresses);
        }
        self.look_at_sources(now);
    }

    /// Asks the kernel for the way to every gateway.
    pub(crate) fn find_ways(&mut self, now: Instant) {
        for c in self.connections.iter().filter(|c| c.role == Role::Client) {
            let Some(gateway) = &c.gateway else { continue };
            let (machine, ports) = (&mut self.machine, (self.settings.ike_port, c.ike.remote_ports.ike));
            let named = self.helpers.names.addresses(gateway);
            self.host.find_ways(now, &c.name, &named, |ip| machine.way_to(ip, ports));
        }
    }

    pub(crate) fn gateway_of(&self, connection: &str) -> Option<&str> {
        self.connections.iter().find(|c| c.name == connection)?.gateway.as_deref()
    }

    /// Why the name of a connection's gateway has no address.
    pub(crate) fn nameless(&self, connection: &str) -> Option<String> {
        let gateway = self.gateway_of(connection)?;
        self.helpers
            .names
            .trouble(gateway)
            .map(|why| format!("the gateway's name {gateway} is not known: {why}"))
    }

    /// When a name is asked for again; not while the radio sleeps.
    pub(crate) fn names_deadline(&self) -> Option<Deadline> {
        self.helpers.names.deadline().filter(|_| self.host.may_send())
    }

    pub(crate) fn names_found(&mut self, now: Instant) {
        let online = self.machine.online();
        for (name, result) in self.helpers.names.found(now, online) {
            match result {
                Ok(addresses) => tracing::info!(%name, ?addresses, "gateway"),
                Err(e) => {
                    tracing::warn!(%name, %e, "the gateway's name is not known; asked again as long as there is a network");
                }
            }
        }
        self.find_ways(now);
    }
}
