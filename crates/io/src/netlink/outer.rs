//! The addresses at which peers anywhere can reach this machine: those that a gateway on wildcard addresses announces (MOBIKE's additional
//! addresses, RFC 4555 section 3.4). Owns the choice; announces nothing.

use super::{Address, Error, Link, MAIN, Netlink, Route, RouteKind};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that are announced at most: a peer tries each of them before it gives a session up.
const MOST: usize = 8;

impl Netlink {
    /// This machine's addresses that peers anywhere can use, in order; `tunnel` is the tunnel's own interface. They change with links,
    /// addresses and routes: ask again when [`super::Monitor`] reports something.
    ///
    /// An address counts if its interface is up and has a default route of its family, and if it is neither temporary nor private. Addresses in
    /// networks behind the gateway would tell peers about those networks and be of no use to them, and a private address would lead a
    /// roaming device to another machine that has the same one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn outer_addresses(&mut self, tunnel: u32) -> Result<Vec<IpAddr>, Error> {
        let (links, routes) = (self.links()?, self.routes()?);
        Ok(choose(&links, &routes, &self.addresses()?, tunnel))
    }
}

fn choose(links: &[Link], routes: &[Route], addresses: &[Address], tunnel: u32) -> Vec<IpAddr> {
    let alive = |index: u32| links.iter().any(|l| l.index == index && l.up && l.carrier && !l.loopback);
    let leads_out = |a: &Address| {
        routes.iter().any(|r| {
            r.table == MAIN
                && r.kind == RouteKind::Unicast
                && r.destination.prefix_len() == 0
                && r.destination.addr().is_ipv4() == a.net.addr().is_ipv4()
                && r.index == Some(a.index)
        })
    };
    let fit = |a: &&Address| {
        let usable = a.global && a.preferred && !a.temporary && !is_private(a.net.addr());
        usable && a.index != tunnel && alive(a.index) && leads_out(a)
    };
    let found: BTreeSet<IpAddr> = addresses.iter().filter(fit).map(|a| a.net.addr()).collect();
    found.into_iter().take(MOST).collect()
}

/// Only of use inside of some network: RFC 1918, RFC 6598 (carriers' NATs), RFC 4193.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_private() || a.is_link_local() || is_shared(a),
        IpAddr::V6(a) => a.is_unique_local() || a.is_unicast_link_local() || a == Ipv6Addr::LOCALHOST,
    }
}

fn is_shared(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [100, 64..=127, ..])
}
