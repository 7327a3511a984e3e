//! Addresses, routes and rules, compared with what `ip` says; and that nothing stays behind.

use crate::common::{in_namespace, ip, link};
use dormouse_io::netlink::{
    Error, InterfaceName, Ledger, MAIN, MARK, Neighbour, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE,
    local_rule, own_side_rule, transit_rule, tunnel_rules,
};
use ipnet::IpNet;
use nix::errno::Errno;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A link `tun` in place of the tunnel, and a link `lan` with a way out through 192.0.2.1 and 2001:db8::1.
fn world() -> (u32, u32) {
    let mut netlink = Netlink::new().unwrap();
    for name in ["tun", "lan"] {
        link(name);
        let index = netlink.link(name).unwrap().index;
        netlink.set_up(index, true).unwrap();
    }
    ip("address add 192.0.2.7/24 dev lan");
    ip("address add 2001:db8::7/64 dev lan nodad");
    ip("route add default via 192.0.2.1");
    ip("route add default via 2001:db8::1");
    (netlink.link("tun").unwrap().index, netlink.link("lan").unwrap().index)
}

#[test]
fn links_and_addresses_are_what_ip_says() {
    in_namespace("links_and_addresses_are_what_ip_says", || {
        let (tun, lan) = world();
        let mut netlink = Netlink::new().unwrap();
        netlink.set_mtu(tun, 1280).unwrap();
        let link = netlink.link("tun").unwrap();
        assert!(link.up && !link.loopback && link.mtu == 1280, "{link:?}");
        assert!(ip("link show tun").contains("mtu 1280"));
        assert!(netlink.links().unwrap().iter().any(|l| l.loopback && l.name == "lo"));
        let addresses = netlink.addresses().unwrap();
        for expected in ["192.0.2.7/24", "2001:db8::7/64"] {
            let found = addresses.iter().find(|a| a.index == lan && a.net == net(expected));
            assert!(found.is_some_and(|a| a.global && a.preferred), "{expected} in {addresses:?}");
        }
        netlink.set_up(tun, false).unwrap();
        assert!(!netlink.link("tun").unwrap().up);
    });
}

#[test]
fn the_tunnel_takes_everything_but_its_own_packets() {
    in_namespace("the_tunnel_takes_everything_but_its_own_packets", || {
        let (tun, lan) = world();
        let mut ledger = Ledger::new(TABLE).unwrap();
        ledger.add_address(tun, net("10.9.0.2/32")).unwrap();
        ledger.add_address(tun, net("fd09::2/128")).unwrap();
        ledger
            .add_route(Route {
                source: Some("10.9.0.2".parse().unwrap()),
                mtu: Some(1400),
                ..Route::over(tun, net("0.0.0.0/0"))
            })
            .unwrap();
        ledger
            .add_route(Route { source: Some("fd09::2".parse().unwrap()), ..Route::over(tun, net("::/0")) })
            .unwrap();
        for v6 in [false, true] {
            for rule in tunnel_rules(v6, TABLE, MARK) {
                ledger.add_rule(rule).unwrap();
            }
        }
        for local in ["192.0.2.0/24", "2001:db8::/64"] {
            ledger.add_rule(local_rule(net(local))).unwrap();
        }
        // Routes that any network may announce are more exact than the tunnel's default route.
        let announced = [
            "0.0.0.0/1 via 192.0.2.1",
            "128.0.0.0/1 via 192.0.2.1",
            "198.51.100.0/24 via 192.0.2.1",
            "2000::/3 via 2001:db8::1",
        ];
        announced.iter().for_each(|route| drop(ip(&format!("route add {route}"))));
        for (gateway, neighbour, inner, outer, hop) in [
            ("198.51.100.1", "192.0.2.9", "10.9.0.2", "192.0.2.7", "192.0.2.1"),
            ("2001:db8:1::1", "2001:db8::9", "fd09::2", "2001:db8::7", "2001:db8::1"),
        ] {
            let mut way =
                |to: &str, mark| ledger.netlink().route_to(to.parse().unwrap(), mark).unwrap().unwrap();
            let inside = way(gateway, 0);
            assert_eq!((inside.index, inside.source), (tun, inner.parse().unwrap()));
            let outside = way(gateway, MARK);
            assert_eq!((outside.index, outside.source), (lan, outer.parse().unwrap()));
            assert_eq!(outside.gateway, Some(hop.parse().unwrap()));
            assert_eq!(way(neighbour, 0).index, lan, "the local network stays outside");
        }
        announced.iter().for_each(|route| drop(ip(&format!("route del {route}"))));
        // Without the link's own route there is nothing local.
        ip("route del 192.0.2.0/24 dev lan");
        ip("route add 192.0.0.0/22 via 192.0.2.1 dev lan onlink");
        let way = ledger.netlink().route_to("192.0.2.9".parse().unwrap(), 0).unwrap().unwrap();
        assert_eq!(way.index, tun);
        ip("route add 192.0.2.0/24 dev lan src 192.0.2.7");
        ip("route del 192.0.0.0/22");
        // A prefix of the other side is the tunnel's, also where the local network has a route to it; single addresses too.
        for (neighbour, wider, hop) in
            [("192.0.2.9", "192.0.0.0/16", "192.0.2.1"), ("2001:db8::9", "2001:db8::/32", "2001:db8::1")]
        {
            ledger.add_route(Route::over(tun, net(wider))).unwrap();
            let announced = format!("route add {neighbour} via {hop} dev lan");
            for before in ["", announced.as_str()] {
                if !before.is_empty() {
                    ip(before);
                }
                let mut way = |mark| {
                    ledger.netlink().route_to(neighbour.parse().unwrap(), mark).unwrap().unwrap().index
                };
                assert_eq!((way(0), way(MARK)), (tun, lan), "{neighbour} in {wider}, '{before}'");
            }
            ip(&format!("route del {neighbour} via {hop}"));
        }
        // But what is on our own side of it, as far as it is here.
        for (own, here, there) in
            [("192.0.2.0/23", "192.0.2.9", "192.0.3.9"), ("2001:db8::/48", "2001:db8::9", "2001:db8:0:1::9")]
        {
            let mut rules = Ledger::new(TABLE).unwrap();
            rules.add_rule(own_side_rule(net(own))).unwrap();
            let mut way =
                |to: &str| ledger.netlink().route_to(to.parse().unwrap(), 0).unwrap().unwrap().index;
            assert_eq!((way(here), way(there)), (lan, tun), "{own}");
        }
        for wider in ["192.0.0.0/16", "2001:db8::/32"] {
            ledger.remove_route(Route::over(tun, net(wider))).unwrap();
        }
        for (peer, longest) in [("192.0.2.9", 32), ("2001:db8::9", 128)] {
            ledger.add_route(Route::over(tun, net(&format!("{peer}/{longest}")))).unwrap();
            let mut way =
                |mark| ledger.netlink().route_to(peer.parse().unwrap(), mark).unwrap().unwrap().index;
            assert_eq!((way(0), way(MARK)), (tun, lan), "a neighbour that is a peer in transport mode");
        }
        assert!(ip("route show table all").contains("proto 109"));
        ledger.remove_all().unwrap();
        assert!(ledger.is_empty());
        let mut netlink = Netlink::new().unwrap();
        assert!(!netlink.routes().unwrap().iter().any(|r| r.protocol == PROTOCOL));
        assert!(!netlink.rules().unwrap().iter().any(|r| r.protocol == PROTOCOL));
        assert!(!netlink.addresses().unwrap().iter().any(|a| a.index == tun && a.global));
    });
}

#[test]
fn a_ledger_that_is_dropped_leaves_nothing() {
    in_namespace("a_ledger_that_is_dropped_leaves_nothing", || {
        let (tun, _) = world();
        // Of IPv4: the kernel completes an IPv6 address some time later.
        let look = || (ip("rule show"), ip("-4 route show table all"), ip("address show dev tun"));
        let before = look();
        let mut ledger = Ledger::new(TABLE).unwrap();
        ledger.add_address(tun, net("10.9.0.2/32")).unwrap();
        ledger.add_route(Route::over(tun, net("10.0.0.0/8"))).unwrap();
        ledger
            .add_route(Route {
                kind: RouteKind::Unreachable,
                index: None,
                metric: 9,
                ..Route::over(tun, net("10.0.0.0/8"))
            })
            .unwrap();
        ledger.add_rule(tunnel_rules(false, TABLE, MARK)[0]).unwrap();
        assert_eq!(ledger.len(), 4);
        drop(ledger);
        assert_eq!(before, look());
    });
}

#[test]
fn what_a_killed_run_left_is_recognised_and_other_things_are_not_touched() {
    in_namespace("what_a_killed_run_left_is_recognised_and_other_things_are_not_touched", || {
        let (tun, _) = world();
        let mut killed = Ledger::new(TABLE).unwrap();
        killed.add_route(Route::over(tun, net("10.0.0.0/8"))).unwrap();
        for rule in tunnel_rules(false, TABLE, MARK) {
            killed.add_rule(rule).unwrap();
        }
        killed.add_rule(own_side_rule(net("10.1.0.0/16"))).unwrap();
        killed.add_rule(local_rule(net("192.0.2.0/24"))).unwrap();
        let transit = transit_rule(false, InterfaceName::new("not-there").unwrap(), 1);
        killed.add_route(Route { table: transit.table, ..Route::over(tun, net("0.0.0.0/0")) }).unwrap();
        killed.add_rule(transit).unwrap();
        assert!(killed.netlink().rules().unwrap().contains(&Rule { protocol: PROTOCOL, ..transit }));
        assert!(ip("rule show").contains("iif not-there"));
        std::mem::forget(killed);
        let mut neighbour = Ledger::new(TABLE + 3).unwrap();
        neighbour.add_route(Route { table: TABLE + 3, ..Route::over(tun, net("10.0.0.0/8")) }).unwrap();
        ip("route add 10.7.0.0/16 dev tun table 25709 proto static");
        ip("rule add priority 5300 lookup 25709");
        let mut ledger = Ledger::new(TABLE).unwrap();
        assert_eq!(ledger.remove_stale().unwrap(), 7);
        assert_eq!(ledger.remove_stale().unwrap(), 0);
        assert!(ip("rule show").contains("5300:") && !ip("rule show").contains("5201:"));
        assert!(!ip("rule show").contains("not-there"));
        assert_eq!(ip("route show table 25709").trim(), "10.7.0.0/16 dev tun proto static scope link");
        assert!(ip("route show table 25712").contains("10.0.0.0/8"));
    });
}

#[test]
fn a_route_of_ours_is_replaced_and_one_of_another_is_respected() {
    in_namespace("a_route_of_ours_is_replaced_and_one_of_another_is_respected", || {
        let (tun, _) = world();
        let mut ledger = Ledger::new(TABLE).unwrap();
        for source in ["10.9.0.2", "10.9.0.3"] {
            ledger.add_address(tun, net(&format!("{source}/32"))).unwrap();
            let route =
                Route { source: Some(source.parse().unwrap()), ..Route::over(tun, net("10.0.0.0/8")) };
            ledger.add_route(route).unwrap();
        }
        assert_eq!(ledger.len(), 3, "two addresses and one route");
        assert!(ip("route show table 25709").contains("src 10.9.0.3"));
        ip("route add 10.7.0.0/16 dev lan");
        let theirs = Route { table: MAIN, ..Route::over(tun, net("10.7.0.0/16")) };
        let error: Error = ledger.add_route(theirs).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EEXIST));
        assert!(error.to_string().contains("ip route add 10.7.0.0/16 dev tun table 254"), "{error}");
        assert!(ip("route show 10.7.0.0/16").contains("dev lan"));
    });
}

#[test]
fn errors_name_the_request_and_gone_things_are_gone() {
    in_namespace("errors_name_the_request_and_gone_things_are_gone", || {
        let (tun, _) = world();
        let mut netlink = Netlink::new().unwrap();
        let error = netlink.set_mtu(tun, 10).and_then(|()| netlink.set_up(99_999, true)).unwrap_err();
        assert!(error.to_string().starts_with("ip link set "), "{error}");
        assert_eq!(netlink.link("nowhere").unwrap_err().errno(), Some(Errno::ENODEV));
        assert!(netlink.route_to("203.0.113.1".parse().unwrap(), 0).unwrap().is_some());
        let mut ledger = Ledger::new(TABLE).unwrap();
        ledger.add_address(tun, net("10.9.0.2/32")).unwrap();
        ledger.add_route(Route::over(tun, net("10.0.0.0/8"))).unwrap();
        ip("link delete tun");
        ledger.remove_all().unwrap();
        ip("route delete default");
        assert_eq!(
            ledger.netlink().route_to("203.0.113.1".parse().unwrap(), 0).unwrap(),
            None,
            "no way is no error"
        );
    });
}

#[test]
fn only_leased_addresses_of_a_pool_inside_the_lan_lead_into_the_tunnel() {
    in_namespace("only_leased_addresses_of_a_pool_inside_the_lan_lead_into_the_tunnel", || {
        let (tun, lan) = world();
        let mut ledger = Ledger::new(TABLE).unwrap();
        ledger.add_route(Route::over(tun, net("0.0.0.0/0"))).unwrap();
        for (pool, leased, nobody) in [
            ("192.0.2.128/25", "192.0.2.130", "192.0.2.131"),
            ("2001:db8::d:0/112", "2001:db8::d:2", "2001:db8::d:3"),
        ] {
            let pool = net(pool);
            tunnel_rules(pool.addr().is_ipv6(), TABLE, MARK)
                .into_iter()
                .for_each(|rule| ledger.add_rule(rule).unwrap());
            let lan_net = if pool.addr().is_ipv4() { "192.0.2.0/24" } else { "2001:db8::/64" };
            ledger.add_rule(local_rule(net(lan_net))).unwrap();
            let leased: std::net::IpAddr = leased.parse().unwrap();
            ledger.add_route(Route::over(tun, IpNet::from(leased))).unwrap();
            let mut index = |to: std::net::IpAddr| ledger.netlink().route_to(to, 0).unwrap().unwrap().index;
            assert_eq!(index(leased), tun);
            assert_eq!(index(nobody.parse().unwrap()), lan, "nobody's address");
        }
    });
}

#[test]
fn neighbours_are_answered_for_and_others_entries_are_not_ours() {
    in_namespace("neighbours_are_answered_for_and_others_entries_are_not_ours", || {
        let (_, index) = world();
        let mut netlink = Netlink::new().unwrap();
        let ours = ["192.0.2.130", "2001:db8::d:2"].map(|a| Neighbour { index, address: a.parse().unwrap() });
        ip("neigh add proxy 192.0.2.77 dev lan");
        for neighbour in ours {
            netlink.add_neighbour(neighbour).unwrap();
            // Again is no error.
            netlink.add_neighbour(neighbour).unwrap();
        }
        assert_eq!(netlink.neighbours().unwrap(), ours);
        assert!(ip("-6 neigh show proxy").contains("2001:db8::d:2 dev lan"));
        for neighbour in ours {
            netlink.delete_neighbour(neighbour).unwrap();
            netlink.delete_neighbour(neighbour).unwrap();
        }
        assert_eq!(netlink.neighbours().unwrap(), []);
        assert!(ip("neigh show proxy").contains("192.0.2.77 dev lan"));
        let error = netlink.add_neighbour(Neighbour { index: 99_999, ..ours[0] }).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::ENODEV));
        assert!(error.to_string().starts_with("ip neigh add proxy 192.0.2.130"), "{error}");
    });
}

#[test]
fn outer_addresses_are_those_that_peers_anywhere_can_use() {
    in_namespace("outer addresses", || {
        let mut netlink = Netlink::new().unwrap();
        for name in ["wan", "lan", "tun"] {
            link(name);
            ip(&format!("link set {name} up"));
        }
        let tun = netlink.link("tun").unwrap().index;
        let mut outer =
            || netlink.outer_addresses(tun).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        for (dev, address) in [
            ("wan", "203.0.113.1/30"),
            ("wan", "2001:db8:3::1/64"),
            ("wan", "10.5.0.1/24"),
            ("wan", "100.64.0.9/24"),
            ("wan", "fd05::1/64"),
            ("lan", "198.51.100.1/24"),
            ("lan", "2001:db8:9::1/64"),
            ("tun", "198.18.0.1/24"),
        ] {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            ip(&format!("addr add {address} dev {dev}{nodad}"));
        }
        assert!(outer().is_empty(), "no default route leads anywhere");
        ip("route add default via 203.0.113.2");
        ip("route add default dev tun metric 5");
        assert_eq!(outer(), ["203.0.113.1"], "IPv6 has no default route yet");
        ip("-6 route add default via 2001:db8:3::2 dev wan");
        assert_eq!(outer(), ["203.0.113.1", "2001:db8:3::1"]);
        ip("addr add 203.0.113.77/32 dev wan");
        ip("addr change 2001:db8:3::1/64 dev wan preferred_lft 0");
        assert_eq!(outer(), ["203.0.113.1", "203.0.113.77"], "a deprecated one is on its way out");
        ip("link set wan down");
        assert!(outer().is_empty());
    });
}
