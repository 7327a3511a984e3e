//! Networks that are on both sides of a tunnel. Owns the judgement alone: what it judges, [`Netlink`](super::Netlink) reads.

use super::{Link, MAIN, Route, RouteKind};
use core::fmt;
use ipnet::IpNet;

/// A prefix that a tunnel leads to, and a network of one of this machine's links with some of its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// What the tunnel leads to.
    pub net: IpNet,
    /// The network that the machine is in.
    pub local: IpNet,
    /// By which link.
    pub link: String,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { net, local, link } = self;
        write!(
            f,
            "{net} leads through the tunnel, and {local} on {link} has the same addresses: hosts of that network are not reached there"
        )
    }
}

/// Where `nets`, which the tunnel `interface` leads to, have addresses of a network that this machine is in. A tunnel for everything is meant to
/// have them; `own` are networks on our side of the tunnel, which go on as before.
#[must_use]
pub fn overlaps(
    nets: &[IpNet],
    own: &[IpNet],
    interface: &str,
    links: &[Link],
    routes: &[Route],
) -> Vec<Overlap> {
    let mut found: Vec<Overlap> = Vec::new();
    for route in routes {
        let local = route.destination;
        let link = links.iter().find(|link| Some(link.index) == route.index);
        let Some(link) = link.filter(|link| !link.loopback && link.name != interface) else { continue };
        // A network of the link's own, not what others lead to; and not what each link has.
        let beside = route.table == MAIN && route.kind == RouteKind::Unicast && route.gateway.is_none();
        let each = match local {
            IpNet::V4(net) => net.addr().is_link_local(),
            IpNet::V6(net) => net.addr().is_unicast_link_local() || net.addr().is_multicast(),
        };
        if !beside || each || local.prefix_len() == 0 || own.iter().any(|own| own.contains(&local)) {
            continue;
        }
        let same = |net: &&IpNet| net.prefix_len() > 1 && (net.contains(&local) || local.contains(*net));
        for net in nets.iter().filter(same) {
            let overlap = Overlap { net: *net, local, link: link.name.clone() };
            if !found.contains(&overlap) {
                found.push(overlap);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn link(index: u32, name: &str) -> Link {
        let (name, loopback) = (name.to_owned(), name == "lo");
        Link { index, name, up: true, carrier: true, loopback, mtu: 1500, xfrm: None }
    }

    #[test]
    fn a_network_of_both_sides_is_found() {
        let links = [link(1, "lo"), link(2, "wlan0"), link(3, "dormouse0")];
        let in_main = |index, to: &str| Route { table: MAIN, ..Route::over(index, net(to)) };
        let routes = [
            in_main(1, "127.0.0.0/8"),
            in_main(2, "192.168.1.0/24"),
            Route { gateway: Some("192.168.1.1".parse().unwrap()), ..in_main(2, "0.0.0.0/0") },
            Route { gateway: Some("192.168.1.1".parse().unwrap()), ..in_main(2, "10.7.0.0/16") },
            in_main(2, "fe80::/64"),
            in_main(3, "10.9.0.0/24"),
            Route::over(2, net("172.16.0.0/12")),
        ];
        let of = |nets: &[&str], own: &[&str]| -> Vec<String> {
            let list = |nets: &[&str]| nets.iter().map(|n| net(n)).collect::<Vec<_>>();
            let found = overlaps(&list(nets), &list(own), "dormouse0", &links, &routes);
            found.iter().map(|o| format!("{} {} {}", o.net, o.local, o.link)).collect()
        };
        assert_eq!(of(&["192.168.0.0/16", "10.0.0.0/8"], &[]), ["192.168.0.0/16 192.168.1.0/24 wlan0"]);
        assert_eq!(of(&["192.168.1.128/25"], &[]), ["192.168.1.128/25 192.168.1.0/24 wlan0"]);
        for (nets, own) in [
            // All, also in two halves.
            (&["0.0.0.0/0", "::/0", "128.0.0.0/1"][..], &[][..]),
            (&["10.0.0.0/8", "172.16.0.0/12", "192.168.2.0/24"], &[]),
            (&["192.168.0.0/16"], &["192.168.1.0/24"]),
        ] {
            assert!(of(nets, own).is_empty(), "{nets:?}");
        }
        let [only] = &overlaps(&[net("192.168.0.0/16")], &[], "dormouse0", &links, &routes)[..] else {
            panic!("one")
        };
        assert!(only.to_string().contains("192.168.1.0/24 on wlan0"), "{only}");
    }
}
