//! What lies around this machine outside of its tunnel. The addresses at which peers anywhere can reach it: those that a gateway on wildcard
//! addresses announces (MOBIKE's additional addresses, RFC 4555 section 3.4). Its local networks and routers. Owns the choice; announces
//! nothing.

use super::{Address, Error, Link, MAIN, Netlink, Route, RouteKind};
use ipnet::IpNet;
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

    /// The networks that this machine is a neighbour in, with their interfaces; `tunnel` is the tunnel's own interface. Private ones only:
    /// the operator of a network may call any address a neighbour's, and would so lead traffic for it out of the tunnel.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_networks(&mut self, tunnel: u32) -> Result<BTreeSet<(String, IpNet)>, Error> {
        let links = self.links()?;
        let name =
            |index| links.iter().find(|l| l.index == index && l.up && !l.loopback).map(|l| l.name.clone());
        let near = |a: &Address| {
            let net = a.net.trunc();
            // The first and the last address: a prefix may be wider than the private range that it begins in.
            let private = is_private(net.addr()) && is_private(net.broadcast());
            if a.index == tunnel || !private { None } else { Some((name(a.index)?, net)) }
        };
        Ok(self.addresses()?.iter().filter_map(near).collect())
    }

    /// The routers by which this machine reaches everything else, outside of the tunnel.
    ///
    /// # Errors
    /// The kernel's.
    pub fn routers(&mut self) -> Result<BTreeSet<IpAddr>, Error> {
        let all = |r: &&Route| r.table == MAIN && r.destination.prefix_len() == 0;
        Ok(self.routes()?.iter().filter(all).filter_map(|r| r.gateway).collect())
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
