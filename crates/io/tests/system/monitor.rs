//! Changes of others are reported, our own are not, and lost ones are admitted.

use crate::common::{in_namespace, ip, link};
use dormouse_io::netlink::{Ledger, Monitor, Netlink, NetworkChange, PROTOCOL, Route, TABLE};
use dormouse_io::poller::{Interest, Poller};
use std::time::Duration;

fn drain(monitor: &mut Monitor) -> Vec<NetworkChange> {
    std::iter::from_fn(|| monitor.next().unwrap()).collect()
}

#[test]
fn a_new_network_is_reported_and_the_tunnel_is_not() {
    in_namespace("a_new_network_is_reported_and_the_tunnel_is_not", || {
        link("tun");
        link("lan");
        let mut monitor = Monitor::new().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&monitor, 1, Interest::READ).unwrap();
        let mut netlink = Netlink::new().unwrap();
        let (tun, lan) = (netlink.link("tun").unwrap().index, netlink.link("lan").unwrap().index);
        monitor.ignore(tun);
        let mut ready = Vec::new();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());

        netlink.set_up(lan, true).unwrap();
        ip("address add 192.0.2.7/24 dev lan");
        ip("route add default via 192.0.2.1");
        poller.wait(&mut ready, None).unwrap();
        assert_eq!(ready.len(), 1);
        let changes = drain(&mut monitor);
        assert!(
            changes.iter().any(|c| matches!(c, NetworkChange::Link(l) if l.name == "lan" && l.up)),
            "{changes:?}"
        );
        let address = |c: &NetworkChange| matches!(c, NetworkChange::Address(a) if a.net == "192.0.2.7/24".parse().unwrap());
        assert!(changes.iter().any(address), "{changes:?}");
        let default = |c: &NetworkChange| matches!(c, NetworkChange::Route(r) if r.destination.prefix_len() == 0 && r.index == Some(lan));
        assert!(changes.iter().any(default), "{changes:?}");

        netlink.set_up(tun, true).unwrap();
        let mut ledger = Ledger::new(TABLE).unwrap();
        ledger.add_address(tun, "10.9.0.2/32".parse().unwrap()).unwrap();
        ledger.add_route(Route::over(tun, "10.0.0.0/8".parse().unwrap())).unwrap();
        drop(ledger);
        let ours = |c: &NetworkChange| match c {
            NetworkChange::Link(l) | NetworkChange::LinkGone(l) => l.index == tun,
            NetworkChange::Address(a) | NetworkChange::AddressGone(a) => a.index == tun,
            NetworkChange::Route(r) | NetworkChange::RouteGone(r) => {
                r.index == Some(tun) || r.protocol == PROTOCOL
            }
            NetworkChange::Overrun => false,
        };
        let changes = drain(&mut monitor);
        assert!(!changes.iter().any(ours), "{changes:?}");

        ip("link delete lan");
        let changes = drain(&mut monitor);
        assert!(
            changes.iter().any(|c| matches!(c, NetworkChange::LinkGone(l) if l.name == "lan")),
            "{changes:?}"
        );
    });
}

#[test]
fn lost_changes_are_admitted() {
    in_namespace("lost_changes_are_admitted", || {
        let mut monitor = Monitor::new().unwrap();
        link("lan");
        let mut netlink = Netlink::new().unwrap();
        let lan = netlink.link("lan").unwrap().index;
        // Each switch makes several messages; the socket buffer holds some hundred.
        for _ in 0..2000 {
            netlink.set_up(lan, true).unwrap();
            netlink.set_up(lan, false).unwrap();
        }
        assert!(drain(&mut monitor).contains(&NetworkChange::Overrun));
        ip("link delete lan");
        assert!(
            drain(&mut monitor).iter().any(|c| matches!(c, NetworkChange::LinkGone(_))),
            "it goes on after an overrun"
        );
    });
}
