//! Several CHILD SAs of one connection, from the configuration to the routes of both ends.

use dormouse_ike::EndpointConfig;
use dormouse_node::config::{parse, resolve};
use dormouse_node::host::Order;
use dormouse_node::{Event, Node};
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};

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
        let _ = to.handle_datagram(NOW, seen, &mut std::mem::take(&mut bytes));
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
