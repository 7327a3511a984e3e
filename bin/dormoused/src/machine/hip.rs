//! What a host of HIP changes on the machine besides: more than one address of its own in the tunnel, and the names of its peers; and from where it is reached.
//! Owns nothing of its own.

use super::{Machine, is_tunnel, report};
use dormouse_io::netlink::{Link, Route};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Machine {
    /// A connection that is configured has this address too, from which packets of this machine leave to this prefix, if there is one.
    pub(crate) fn add(&mut self, connection: &str, address: IpAddr, net: Option<IpNet>) {
        let Some(configured) = self.configured.get_mut(connection) else { return };
        report(self.ledger.add_address(self.tun, IpNet::from(address)), "address", address);
        configured.more.push(address);
        if let Some(net) = net {
            let route = Route { source: Some(address), ..Route::over(self.tun, net) };
            report(self.ledger.add_route(route), "route", net);
            configured.routes.push(route);
        }
    }

    /// Of what the routes of a connection that is configured lead to, packets of this machine leave to these prefixes from other addresses of its, each
    /// from its own; those that were said before and are not among them no more.
    pub(crate) fn lead(&mut self, connection: &str, nets: &[(IpNet, IpAddr)]) {
        let Some(configured) = self.configured.get_mut(connection) else { return };
        let route =
            |(net, source): &(IpNet, IpAddr)| Route { source: Some(*source), ..Route::over(self.tun, *net) };
        let led: Vec<Route> = nets.iter().map(route).collect();
        let before = std::mem::replace(&mut configured.led, led.clone());
        for gone in before.iter().filter(|route| !led.contains(route)) {
            report(self.ledger.remove_route(*gone), "route", gone.destination);
        }
        for new in led.iter().filter(|route| !before.contains(route)) {
            report(self.ledger.add_route(*new), "route", new.destination);
        }
    }

    /// The names of this domain are asked at this address of the tunnel's interface, unless a connection has name servers of its own: one
    /// interface has one list of servers, which are taken for equals.
    pub(crate) fn serve_names(&mut self, names: Option<(IpAddr, String)>) {
        if self.peer_names != names {
            self.peer_names = names;
            self.set_dns();
        }
    }

    /// The name server of the peers of HIP, their domain, and whether this machine asks it.
    pub(crate) fn names(&self) -> Option<(IpAddr, &str, bool)> {
        let (server, domain) = self.peer_names.as_ref()?;
        let others = self.configured.values().any(|c| !c.assigned.dns.is_empty());
        Some((*server, domain, self.installed && !others))
    }

    /// Addresses from which others can be reached, outside of the tunnel: those that lead to one of `remotes` first, in their order. Where
    /// no route leads to any of a family, none of that family.
    pub(crate) fn sources(&mut self, remotes: &[IpAddr]) -> Vec<IpAddr> {
        let netlink = self.ledger.netlink();
        let links = netlink.links().unwrap_or_default();
        let tun = self.tun;
        let alive = |l: &&Link| l.up && l.carrier && !l.loopback && !is_tunnel(l, tun);
        let alive = |index| links.iter().filter(alive).any(|l| l.index == index);
        let addresses = netlink.addresses().unwrap_or_default();
        let mut usable: Vec<IpAddr> = addresses
            .iter()
            .filter(|a| a.global && a.preferred && alive(a.index))
            .map(|a| a.net.addr())
            .collect();
        if remotes.is_empty() {
            return usable;
        }
        // Without an address of the link's own, the kernel would take one of the tunnel.
        let leading = remotes.iter().filter_map(|remote| Some(self.way(*remote, (0, 0))?.0.local.ip()));
        let mut sources: Vec<IpAddr> = leading.filter(|source| usable.contains(source)).collect();
        usable.retain(|address| sources.iter().any(|source| source.is_ipv4() == address.is_ipv4()));
        sources.append(&mut usable);
        let mut seen = BTreeSet::new();
        sources.retain(|source| seen.insert(*source));
        sources
    }
}
