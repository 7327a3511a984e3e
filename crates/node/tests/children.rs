//! Several CHILD SAs of one connection, from the configuration to the routes of both ends.

use dormouse_ike::{EndpointConfig, Kind};
use dormouse_node::config::{parse, resolve};
use dormouse_node::host::{Host, Order, Output};
use dormouse_node::{ChildInfo, Event, Inbound, Node, NotDone, Rekey, Route, Train};
use dormouse_sansio::packet::Plan;
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
use dormouse_wire::ip::{self, udp};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

const NOW: Instant = Instant::ZERO;
const NETS: [&str; 2] = ["10.98.0.0/24", "10.99.0.0/24"];

fn node(role: &str, own: &str, peer: &str, child: impl Fn(&str) -> String, seed: u64) -> Node {
    let secret = "secret = \"a secret of the test\"";
    let gateway = if role == "client" { "gateway = \"192.0.2.1\"" } else { "" };
    let [more, first] = NETS.map(child);
    let toml = format!(
        "[connection.office]\nrole = \"{role}\"\n{gateway}\n[connection.office.local]\nid = \"{own}\"\n{secret}\n\
         [connection.office.remote]\nid = \"{peer}\"\n{secret}\n[connection.office.child]\n{first}\n\
         [connection.office.children.lab]\n{more}\n"
    );
    let file = parse(&toml).expect("TOML");
    let resolved = resolve(&file, &mut |_, _| Err("no files here".into())).expect("a configuration");
    let names: Vec<_> = resolved[0].ike.children.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["net", "lab"]);
    let entropy = |seed| Box::new(Seeded::new(seed));
    let mut node = Node::new(resolved, EndpointConfig::default(), entropy(seed), entropy(seed + 1));
    node.set_wall_clock(NOW, UnixTime(1_800_000_000));
    node
}

/// Applies the events of `from` and hands what it sends to `to`; whether that was anything.
fn carry(from: &mut Node, to: &mut Node, events: &mut Vec<Event>) -> bool {
    events.extend(std::iter::from_fn(|| from.poll_event()));
    let (mut bytes, mut any) = (Vec::new(), false);
    while let Some(sent) = from.poll_transmit(NOW, &mut bytes) {
        let seen = Path { local: sent.path.remote, remote: sent.path.local, ..sent.path };
        let _ = to.handle_next(NOW, seen, &mut Train::default(), &mut std::mem::take(&mut bytes));
        any = true;
    }
    any
}

#[test]
fn both_networks_lead_into_the_tunnel_of_each_session() {
    let ours = |net: &str| format!("local = [\"{net}\"]\nremote = [\"172.16.0.0/24\"]");
    let theirs = |net: &str| format!("local = [\"172.16.0.0/24\"]\nremote = [\"{net}\"]");
    let mut client = node("client", "a.test", "gw.test", theirs, 1);
    let mut gateway = node("gateway", "gw.test", "a.test", ours, 3);
    let (local, remote) = (([198, 51, 100, 7], 500).into(), ([192, 0, 2, 1], 500).into());
    client.set_network(NOW, "office", Some(Path { local, remote, carrier: Carrier::Ike }));
    for _ in 0..2 {
        assert!(client.up(NOW, "office"));
        let (mut at_client, mut at_gateway) = (Vec::new(), Vec::new());
        while carry(&mut client, &mut gateway, &mut at_client)
            | carry(&mut gateway, &mut client, &mut at_gateway)
        {}
        let configured = at_client.iter().rev().find_map(|event| match event {
            Event::Order(Order::Configure { routes, .. }) => Some(routes),
            _ => None,
        });
        let mut routes: Vec<_> = configured.expect("it is up").iter().map(ToString::to_string).collect();
        routes.sort();
        assert_eq!(routes, NETS);
        assert!(client.down(NOW, "office"));
        while carry(&mut client, &mut gateway, &mut at_client)
            | carry(&mut gateway, &mut client, &mut at_gateway)
        {}
    }
}

/// New keys are asked for by either end, each in its own words; the whole session means the IKE SA too.
#[test]
fn keys_are_made_on_request_of_either_end() {
    let [mut client, mut gateway] = sharing(["every = 3", "every = 3"]);
    let names = |node: &Node| children(node).iter().map(|child| child.id).collect::<BTreeSet<_>>();
    let rekeyed = |node: &Node| node.ike_stats().begun.get(&Kind::RekeyIke).copied().unwrap_or(0);
    for (which, ike, child) in
        [(Rekey::All, true, true), (Rekey::Ike, true, false), (Rekey::Children, false, true)]
    {
        for ours in [true, false] {
            let (before, keys) = (names(&client), rekeyed(&client) + rekeyed(&gateway));
            if ours {
                assert!(client.rekey(NOW, "office", which));
            } else {
                assert_eq!(gateway.rekey_peer(NOW, "office", "a.test", which), Ok(()));
            }
            settle(&mut client, &mut gateway);
            let after = names(&client);
            assert_eq!((after.len(), names(&gateway).len()), (2, 2), "{which:?}");
            assert_eq!(after.is_disjoint(&before), child, "{which:?}");
            assert_eq!(rekeyed(&client) + rekeyed(&gateway) - keys, u64::from(ike), "{which:?}");
            assert_eq!(send(&mut client, &mut gateway, true, &[0; 6]), [2, 4]);
        }
    }
    assert_eq!(gateway.rekey_peer(NOW, "office", "b.test", Rekey::All), Err(NotDone::Unknown));
    assert!(!gateway.rekey(NOW, "office", Rekey::All) && !client.rekey(NOW, "elsewhere", Rekey::All));
    client.suspend(NOW);
    assert!(!client.rekey(NOW, "office", Rekey::All), "nothing can be sent");
}

/// One CHILD SA of a peer is deleted: its client asks for it again, and the others stay.
#[test]
fn a_child_sa_of_a_peer_is_deleted_on_request() {
    let [mut client, mut gateway] = sharing(["every = 3", "every = 3"]);
    let spis = |node: &Node| children(node).iter().map(|child| child.id.spi()).collect::<Vec<_>>();
    let before = spis(&gateway);
    assert_eq!(gateway.remove_child(NOW, "office", "a.test", spis(&client)[0]), Err(NotDone::NoChild));
    assert_eq!(gateway.remove_child(NOW, "office", "b.test", before[0]), Err(NotDone::Unknown));
    assert_eq!(gateway.remove_child(NOW, "office", "a.test", before[0]), Ok(()));
    settle(&mut client, &mut gateway);
    assert_eq!((spis(&gateway), spis(&client).len()), (before[1..].to_vec(), 1));
    let again = client.deadlines().iter().filter(|timer| timer.why == "retry").count();
    assert_eq!(again, 1, "{:?}", client.deadlines());
}

/// A packet of the client's to a host behind the gateway, or back, with this mark.
fn packet(to_gateway: bool, mark: u8) -> Vec<u8> {
    let (src, dst): (SocketAddr, SocketAddr) =
        (([172, 16, 0, 1], 1_000).into(), ([10, 98, 0, 1], 2_000).into());
    let (src, dst) = if to_gateway { (src, dst) } else { (dst, src) };
    let mut packet = Vec::new();
    udp::build(src, dst, b"a packet", &mut packet).expect("a datagram");
    packet[1] = mark << 2;
    packet
}

/// Sends packets with these marks from one end to the other; how many were sent in zones and whole.
fn send(from: &mut Node, to: &mut Node, to_gateway: bool, marks: &[u8]) -> [usize; 2] {
    let mut sent = [0, 0];
    for mark in marks {
        let packet = packet(to_gateway, *mark);
        let flow = ip::flow(&packet).expect("a flow");
        let Route::Send(child) = from.route(&flow) else { panic!("no way") };
        let child = from.among(child, packet.as_slice()).expect("one of several");
        let tunnel = from.child_mut(child).expect("a tunnel");
        let (head, path) = (tunnel.outbound.head_len(), tunnel.path);
        let mut slot = vec![0; tunnel.outbound.sealed_len(packet.len())];
        slot[head..head + packet.len()].copy_from_slice(&packet);
        tunnel.outbound.seal(&mut slot, packet.len(), 4).expect("sealed");
        let seen = Path { local: path.remote, remote: path.local, ..path };
        let Ok(Inbound::Inner { range, child: at, .. }) =
            to.handle_next(NOW, seen, &mut Train::default(), &mut slot)
        else {
            panic!("it was not taken")
        };
        assert_eq!(slot[range], packet);
        let zones =
            |node: &Node, id| children(node).into_iter().find(|child| child.id == id).expect("a child").zones;
        assert_eq!(zones(from, child), zones(to, at));
        sent[usize::from(zones(from, child) == 1)] += 1;
    }
    sent
}

/// The CHILD SAs of a node.
fn children(node: &Node) -> Vec<ChildInfo> {
    let sessions = node.client_infos(NOW).into_iter().filter_map(|info| info.session);
    sessions.chain(node.gateway_sessions(NOW)).flat_map(|session| session.children).collect()
}

fn settle(client: &mut Node, gateway: &mut Node) {
    let mut events = Vec::new();
    while carry(client, gateway, &mut events) | carry(gateway, client, &mut events) {}
}

/// Client and gateway with two CHILD SAs of the same selectors, of which the one in zones takes what each chooses.
fn sharing(choose: [&'static str; 2]) -> [Node; 2] {
    let ends = |local: &'static str, remote: &'static str, choose: &'static str| {
        move |net: &str| {
            let zoned = if net == NETS[0] {
                format!("protection = \"zoned\"\nchoose = {{ {choose} }}\n")
            } else {
                String::new()
            };
            format!("local = [\"{local}\"]\nremote = [\"{remote}\"]\n{zoned}")
        }
    };
    let mut client = node("client", "a.test", "gw.test", ends("172.16.0.0/24", "10.98.0.0/24", choose[0]), 1);
    let mut gateway =
        node("gateway", "gw.test", "a.test", ends("10.98.0.0/24", "172.16.0.0/24", choose[1]), 3);
    let (local, remote) = (([198, 51, 100, 7], 500).into(), ([192, 0, 2, 1], 500).into());
    client.set_network(NOW, "office", Some(Path { local, remote, carrier: Carrier::Ike }));
    assert!(client.up(NOW, "office"));
    settle(&mut client, &mut gateway);
    [client, gateway]
}

/// Dynamic MML-IPsec: each end sends by its own policy, which the other does not know, and rekeying keeps both CHILD SAs.
#[test]
fn a_flow_goes_in_zones_and_whole_by_the_policy_of_each_end() {
    let [mut client, mut gateway] = sharing(["every = 3", "dscp = [46, 10]"]);
    let names = |node: &Node| children(node).iter().map(|child| child.id).collect::<Vec<_>>();
    for _ in 0..3 {
        let before = names(&client);
        assert_eq!((before.len(), names(&gateway).len()), (2, 2));
        assert_eq!(send(&mut client, &mut gateway, true, &[0; 30]), [10, 20]);
        assert_eq!(send(&mut gateway, &mut client, false, &[46, 0, 10, 0, 0, 11]), [2, 4]);
        assert!(client.rekey(NOW, "office", Rekey::Children));
        settle(&mut client, &mut gateway);
        assert!(names(&client).iter().all(|child| !before.contains(child)));
    }
}

/// The client chooses by the signal of its radio, the gateway follows what comes; and new keys change neither.
#[test]
fn a_flow_goes_in_zones_while_the_signal_is_weak_both_ways() {
    let [mut client, mut gateway] = sharing(["signal_below = -75", "as_peer = true"]);
    for (dbm, zoned) in
        [(None, false), (Some(-80), true), (Some(-72), true), (Some(-60), false), (Some(-72), false)]
    {
        client.set_signal(dbm);
        let each = |count| if zoned { [count, 0] } else { [0, count] };
        assert_eq!(send(&mut client, &mut gateway, true, &[0; 3]), each(3), "{dbm:?}");
        assert_eq!(send(&mut gateway, &mut client, false, &[0; 3]), each(3), "{dbm:?}");
        assert!(client.rekey(NOW, "office", Rekey::Children));
        settle(&mut client, &mut gateway);
        for node in [&client, &gateway] {
            let said = children(node).into_iter().find(|child| child.zones > 1).expect("zones");
            assert_eq!(said.takes_all, Some(zoned), "{dbm:?}");
        }
        // The gateway speaks first.
        assert_eq!(send(&mut gateway, &mut client, false, &[0; 2]), each(2), "{dbm:?}");
    }
    assert!(children(&client).iter().any(|child| child.signal == Some(-72)));
    assert!(children(&gateway).iter().all(|child| child.signal.is_none()), "it has no radio");
}

#[test]
fn the_signal_is_asked_for_when_packets_go_and_once_a_second() {
    for (choose, expected) in
        [("signal_below = -75", [true, false, false, true, true]), ("every = 3", [false; 5])]
    {
        let [client, _] = sharing([choose, "as_peer = true"]);
        let mut host = Host::new(NOW, client, None);
        let mut asks = |ms: u64, packets: usize| {
            let (now, mut out) = (NOW + Duration::from_millis(ms), Vec::new());
            for _ in 0..packets {
                assert!(matches!(host.plan(now, packet(true, 0).as_mut_slice()), Plan::Seal(_)));
            }
            let asked = std::iter::from_fn(|| host.poll(now, &mut out));
            let asked = asked.filter(|out| matches!(out, Output::Order(Order::ReadSignal))).count();
            assert!(asked <= 1);
            asked == 1
        };
        let said = [asks(0, 3), asks(999, 1), asks(1_500, 0), asks(1_600, 2), asks(60_000, 1)];
        assert_eq!(said, expected, "{choose}");
    }
}
