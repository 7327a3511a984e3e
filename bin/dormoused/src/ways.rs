//! Networks that change, names that are looked up, and the ways that follow from both. Owns nothing of its own; must never decide which
//! way is taken: the host does.

use crate::daemon::Daemon;
use anyhow::Result;
use dormouse_ike::config::SelectorSpec;
use dormouse_io::netlink::leave_by;
use dormouse_node::config::file::Role;
use dormouse_sansio::Instant;
use std::net::IpAddr;

impl Daemon {
    /// The prefixes on our side of a connection.
    pub(crate) fn local_prefixes(&self, connection: &str) -> Vec<ipnet::IpNet> {
        let resolved = self.connections.iter().find(|c| c.name == connection);
        let selectors = resolved.into_iter().flat_map(|c| &c.ike.children).flat_map(|c| &c.ts_local);
        let prefix = |s: &SelectorSpec| match s {
            SelectorSpec::Dynamic => None,
            SelectorSpec::Net(net) | SelectorSpec::Narrow { net, .. } => Some(*net),
        };
        selectors.filter_map(prefix).collect()
    }

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
            let (machine, ports) = (&mut self.machine, (self.settings.ike_port, c.ike.remote_ports.ike));
            self.host.find_ways(now, &c.name, |ip| machine.way_to(ip, ports));
        }
        self.leave_by_interface();
    }

    /// Has the sockets leave by the interface of the way that was found last, where the kernel's routes alone would lead them into the tunnel.
    fn leave_by_interface(&self) {
        let carriers = &self.wires.carriers;
        for (v4, index) in [true, false].into_iter().zip(self.machine.leaves()) {
            let Some(index) = index else { continue };
            let udp = carriers.udp.iter().filter(|s| s.local_addr().is_ipv4() == v4);
            let raw = carriers.raw.iter().filter(|s| s.is_ipv4() == v4);
            let told = udp.map(|s| leave_by(s, v4, index)).chain(raw.map(|s| leave_by(s, v4, index)));
            if let Err(e) = told.collect::<std::io::Result<()>>() {
                tracing::warn!(%e, index, "the interface by which packets leave");
            }
        }
    }

    /// Looks up a gateway's name; an address is its own answer.
    pub(crate) fn look_up(&mut self, now: Instant, name: String) {
        match name.parse() {
            Ok(address) => self.host.resolved(now, &name, Ok(vec![address]), true),
            Err(_) => self.helpers.names.ask(name),
        }
    }

    pub(crate) fn names_found(&mut self, now: Instant) {
        let online = self.machine.online();
        for (name, answer) in self.helpers.names.answers() {
            match &answer {
                Ok(addresses) => tracing::info!(%name, ?addresses, "gateway"),
                Err(e) => {
                    tracing::warn!(%name, %e, "the gateway's name is not known; asked again as long as there is a network");
                }
            }
            self.host.resolved(now, &name, answer, online);
        }
    }
}
