//! The way to a gateway where another program leads into the tunnel: its routes are in the main table, and our mark means nothing to them. Owns the choice of the
//! interface by which the daemon's own packets leave, and having its sockets leave by it.

use super::{Address, Error, Found, Link, MAIN, Netlink, Route, RouteKind};
use crate::option::set_option;
use nix::libc;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

impl Netlink {
    /// How packets reach `destination` by an interface that is none of the `tunnels`; `None` if they do not. It is the one with the most exact route in
    /// the main table, among those that are up and have an address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn route_outside(
        &mut self,
        destination: IpAddr,
        mark: u32,
        tunnels: impl Fn(&Link) -> bool,
    ) -> Result<Option<Found>, Error> {
        let (mut links, routes, addresses) = (self.links()?, self.routes()?, self.addresses()?);
        links.retain(|link| !tunnels(link));
        let Some(index) = choose(destination, &links, &routes, &addresses) else { return Ok(None) };
        self.route_by(destination, mark, Some(index))
    }
}

/// A route may have outlived what it led over: a network that was left is still there while its cable is.
fn choose(destination: IpAddr, links: &[Link], routes: &[Route], addresses: &[Address]) -> Option<u32> {
    let of_family = |a: &&Address| a.net.addr().is_ipv4() == destination.is_ipv4();
    let leads = |index: u32| {
        links.iter().any(|l| l.index == index && l.up && l.carrier && !l.loopback)
            && addresses.iter().filter(of_family).any(|a| a.index == index && a.global)
    };
    let fits = |r: &&Route| {
        r.table == MAIN
            && r.kind == RouteKind::Unicast
            && r.destination.contains(&destination)
            && r.index.is_some_and(leads)
    };
    let best = routes.iter().filter(fits).min_by_key(|r| (u8::MAX - r.destination.prefix_len(), r.metric));
    best.and_then(|route| route.index)
}

/// Packets that a socket sends leave by this interface, whatever more exact routes lead elsewhere; it receives from everywhere.
///
/// # Errors
/// The kernel's.
pub fn leave_by(socket: &impl AsFd, v4: bool, index: u32) -> io::Result<()> {
    let (level, option) = match v4 {
        true => (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
        false => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
    };
    // In network byte order.
    set_option(&socket.as_fd(), level, option, index.to_be())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: u32 = 2;
    const AIR: u32 = 3;
    const LEFT: u32 = 4;

    fn link(index: u32) -> Link {
        Link {
            index,
            name: format!("l{index}"),
            up: true,
            carrier: true,
            loopback: false,
            mtu: 1500,
            xfrm: None,
        }
    }

    fn route(index: u32, destination: &str, metric: u32) -> Route {
        Route { table: MAIN, metric, ..Route::over(index, destination.parse().unwrap()) }
    }

    fn address(index: u32, net: &str) -> Address {
        let net = net.parse().unwrap();
        Address { index, net, global: true, preferred: true, temporary: false }
    }

    #[test]
    fn the_most_exact_route_counts_and_then_the_metric_of_what_is_still_there() {
        let gateway: IpAddr = "192.0.2.1".parse().unwrap();
        let links = [link(WIRE), link(AIR), link(LEFT)];
        let addresses =
            [address(WIRE, "10.1.0.2/24"), address(AIR, "10.2.0.2/24"), address(LEFT, "fd01::2/64")];
        let mut routes = vec![
            route(9, "0.0.0.0/0", 50),
            route(WIRE, "0.0.0.0/0", 100),
            route(AIR, "0.0.0.0/0", 600),
            // Of a network that was left, which is more exact.
            route(LEFT, "192.0.2.1/32", 50),
        ];
        let chosen = |links: &[Link], routes: &[Route]| choose(gateway, links, routes, &addresses);
        assert_eq!(chosen(&links, &routes), Some(WIRE));
        assert_eq!(chosen(&[Link { carrier: false, ..link(WIRE) }, link(AIR)], &routes), Some(AIR));
        assert_eq!(chosen(&[link(LEFT)], &routes), None);
        routes.push(route(AIR, "192.0.2.0/24", 700));
        assert_eq!(chosen(&links, &routes), Some(AIR));
        let other_table = Route { table: MAIN - 1, ..route(WIRE, "192.0.2.1/32", 0) };
        assert_eq!(chosen(&links, &[other_table]), None);
        assert_eq!(
            choose("2001:db8::1".parse().unwrap(), &links, &[route(LEFT, "::/0", 1)], &addresses),
            Some(LEFT)
        );
    }
}
