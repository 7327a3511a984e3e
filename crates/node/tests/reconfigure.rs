//! What a configuration that was read again makes of the sessions that there are: each difference between two configurations, at a gateway
//! with two clients. Whom it does not concern sends and receives nothing.

use dormouse_ike::EndpointConfig;
use dormouse_keying::Owner;
use dormouse_node::config::{Resolved, parse, resolve};
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::{Event, Node, Train};
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
use std::collections::BTreeSet;

const NOW: Instant = Instant::ZERO;

fn resolved(toml: &str) -> Vec<Resolved> {
    let file = parse(toml).expect("TOML");
    resolve(&file, &mut |_, _| Err("no files here".into())).expect("a configuration")
}

fn gateway_toml() -> String {
    let one = |name: &str, net: u8| {
        format!(
            "[connection.{name}]\nrole = \"gateway\"\n[connection.{name}.local]\nid = \"gw.test\"\nsecret = \"the secret of {name}\"\n\
             [connection.{name}.remote]\nid = \"{name}.test\"\n[connection.{name}.child]\nlocal = [\"10.99.{net}.0/24\"]\n\
             [connection.{name}.pool]\naddresses = [\"10.55.{net}.0/24\"]\n"
        )
    };
    one("a", 1) + &one("b", 2)
}

fn client_toml() -> String {
    let one = |name: &str, net: u8| {
        format!(
            "[connection.{name}]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n[connection.{name}.local]\nid = \"{name}.test\"\n\
             secret = \"the secret of {name}\"\n[connection.{name}.remote]\nid = \"gw.test\"\n[connection.{name}.child]\nremote = [\"10.99.{net}.0/24\"]\n"
        )
    };
    one("a", 1) + &one("b", 2)
}

fn node(connections: Vec<Resolved>, pool: Option<SharedPool>, seed: u64) -> Node {
    let entropy = |seed| Box::new(Seeded::new(seed));
    let pool = pool.map(|pool| Box::new(pool) as Box<_>);
    let endpoint = EndpointConfig { pool, ..EndpointConfig::default() };
    let mut node = Node::new(connections, endpoint, entropy(seed), entropy(seed + 1));
    node.set_wall_clock(NOW, UnixTime(1_800_000_000));
    node
}

struct Scene {
    client: Node,
    gateway: Node,
    pool: SharedPool,
    datagrams: usize,
}

impl Scene {
    fn new() -> Self {
        let connections = resolved(&gateway_toml());
        let pool = SharedPool::new(Pool::new(connections.iter().flat_map(|c| c.pool.clone())));
        let gateway = node(connections, Some(pool.clone()), 3);
        let mut scene = Self { client: node(resolved(&client_toml()), None, 1), gateway, pool, datagrams: 0 };
        for name in ["a", "b"] {
            scene.up(name);
        }
        scene
    }

    fn up(&mut self, name: &str) {
        let (local, remote) = (([198, 51, 100, 7], 500).into(), ([192, 0, 2, 1], 500).into());
        self.client.up(NOW, name);
        self.client.set_network(NOW, name, Some(Path { local, remote, carrier: Carrier::Ike }));
        self.carry();
    }

    /// Lets both talk until they have no more to say.
    fn carry(&mut self) {
        loop {
            let before = self.datagrams;
            let (client, gateway) = (&mut self.client, &mut self.gateway);
            self.datagrams += carry(client, gateway) + carry(gateway, client);
            while let Some((number, _)) = self.pool.poll_change() {
                self.pool.written(number);
            }
            self.gateway.leases_written(NOW);
            if self.datagrams == before {
                return;
            }
        }
    }

    /// The gateway's configuration becomes this one.
    fn reconfigure(&mut self, toml: &str) {
        let connections = resolved(toml);
        self.pool.reconfigure(connections.iter().flat_map(|c| c.pool.clone()));
        self.gateway.reconfigure(NOW, &connections, &BTreeSet::new());
        self.carry();
    }

    fn session(&self, peer: &str) -> Option<Owner> {
        let all = self.gateway.gateway_sessions(NOW);
        all.iter().find(|s| s.peer == peer).map(|s| s.owner)
    }
}

fn carry(from: &mut Node, to: &mut Node) -> usize {
    while from.poll_event().is_some() {}
    let (mut bytes, mut datagrams) = (Vec::new(), 0);
    while let Some(sent) = from.poll_transmit(NOW, &mut bytes) {
        let seen = Path { local: sent.path.remote, remote: sent.path.local, ..sent.path };
        let _ = to.handle_next(NOW, seen, &mut Train::default(), &mut std::mem::take(&mut bytes));
        datagrams += 1;
    }
    datagrams
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Stays,
    Anew,
    Out,
}

#[test]
fn each_difference_concerns_those_whom_it_is_about() {
    let b = |from: &'static str, to: &'static str| {
        move |toml: &str| {
            let (before, after) = toml.split_at(toml.find("[connection.b]").expect("b"));
            assert!(after.contains(from), "{from}");
            format!("{before}{}", after.replace(from, to))
        }
    };
    type Change = Box<dyn Fn(&str) -> String>;
    let own = "[connection.b]\nrole = \"gateway\"\n";
    let with =
        |more: &'static str| -> Change { Box::new(move |toml| toml.replace(own, &format!("{own}{more}\n"))) };
    let changes: Vec<(&str, Change, Fate)> = vec![
        ("nothing", Box::new(str::to_owned), Fate::Stays),
        (
            "another connection",
            Box::new(|toml| {
                toml.to_owned()
                    + &toml
                        .replace(".a", ".aa")
                        .replace("10.55.1.", "10.55.3.")
                        .split("[connection.b]")
                        .next()
                        .unwrap_or_default()
                        .replace("10.55.2.", "10.55.4.")
            }),
            Fate::Stays,
        ),
        (
            "b is gone",
            Box::new(|toml| toml.split("[connection.b]").next().unwrap_or_default().to_owned()),
            Fate::Out,
        ),
        ("b's secret", Box::new(b("the secret of b", "another secret of b")), Fate::Out),
        ("b's identity", Box::new(b("b.test", "c.test")), Fate::Out),
        ("more within reach", Box::new(b("10.99.2.0/24", "10.99.0.0/16")), Fate::Stays),
        ("less within reach", Box::new(b("10.99.2.0/24", "10.99.2.0/25")), Fate::Anew),
        ("other addresses", Box::new(b("10.55.2.0/24", "10.55.3.0/24")), Fate::Anew),
        ("more addresses around", Box::new(b("10.55.2.0/24", "10.55.2.0/23")), Fate::Stays),
        (
            "lifetimes",
            Box::new(|toml| toml.to_owned() + "[connection.b.ike]\nrekey = 3600\nreauth = 86400\n"),
            Fate::Stays,
        ),
        ("an entry without a word", with("peers = [{ id = \"b.test\" }]"), Fate::Stays),
        (
            "an entry with an address",
            with("peers = [{ id = \"b.test\", addresses = [\"10.55.2.77\"] }]"),
            Fate::Anew,
        ),
        (
            "an entry with less reach",
            with("peers = [{ id = \"b.test\", local = [\"10.99.2.1/32\"] }]"),
            Fate::Anew,
        ),
        ("an entry that isolates", with("peers = [{ id = \"b.test\", isolate = true }]"), Fate::Stays),
        (
            "a child before the first by name",
            Box::new(|toml| toml.to_owned() + "[connection.b.children.aaa]\nlocal = [\"10.98.0.0/24\"]\n"),
            Fate::Stays,
        ),
        (
            "transport mode",
            Box::new(|toml| {
                toml.replace("local = [\"10.99.2.0/24\"]", "local = [\"10.99.2.0/24\"]\nmode = \"transport\"")
            }),
            Fate::Anew,
        ),
    ];
    for (what, change, fate) in changes {
        let mut scene = Scene::new();
        let (a, first) = (scene.session("a.test").expect("a"), scene.session("b.test").expect("b"));
        let before = scene.datagrams;
        scene.reconfigure(&change(&gateway_toml()));
        assert_eq!(scene.session("a.test"), Some(a), "{what}: a is not concerned");
        let now = scene.session("b.test");
        let found = match now {
            None => Fate::Out,
            Some(now) if now == first => Fate::Stays,
            Some(_) => Fate::Anew,
        };
        assert_eq!(found, fate, "{what}");
        assert_eq!(scene.datagrams == before, fate == Fate::Stays, "{what}: who stays hears nothing");
        // It can be taken back.
        scene.reconfigure(&gateway_toml());
        assert_eq!(scene.session("a.test"), Some(a), "{what}");
        if scene.session("b.test").is_none() {
            scene.client.down(NOW, "b");
            scene.carry();
            scene.up("b");
        }
        assert!(scene.session("b.test").is_some(), "{what}: b is admitted again");
    }
}

#[test]
fn a_peer_without_an_entry_is_out_where_only_those_with_one_are_taken() {
    let mut scene = Scene::new();
    let own = "[connection.b]\nrole = \"gateway\"\n";
    let only = |id: &str| {
        gateway_toml()
            .replace(own, &format!("{own}peers_only = true\npeers = [{{ id = \"{id}\" }}]\n"))
            .replace("id = \"b.test\"\n[", "id = \"*.test\"\n[")
    };
    let (a, b) = (scene.session("a.test"), scene.session("b.test"));
    scene.reconfigure(&only("b.test"));
    assert_eq!((scene.session("a.test"), scene.session("b.test")), (a, b));
    scene.reconfigure(&only("c.test"));
    assert_eq!((scene.session("a.test"), scene.session("b.test")), (a, None));
}

#[test]
fn a_clients_connections_come_and_go_one_by_one() {
    let mut scene = Scene::new();
    let (a, b) = (scene.session("a.test"), scene.session("b.test"));
    let all = resolved(&client_toml());
    let only_a: Vec<Resolved> = all.iter().filter(|c| c.name == "a").cloned().collect();
    let before = scene.datagrams;
    scene.client.reconfigure(NOW, &all, &BTreeSet::new());
    scene.carry();
    assert_eq!(scene.datagrams, before, "nothing has changed");
    scene.client.reconfigure(NOW, &only_a, &BTreeSet::new());
    scene.carry();
    assert_eq!(
        (scene.session("a.test"), scene.session("b.test")),
        (a, None),
        "the gateway hears that b has ended"
    );
    assert_eq!(scene.client.client_infos(NOW).len(), 1);
    // It comes again, and is another session.
    scene.client.reconfigure(NOW, &all, &BTreeSet::new());
    scene.up("b");
    assert_eq!(scene.session("a.test"), a);
    assert!(scene.session("b.test").is_some_and(|now| Some(now) != b));
    // One that is written differently begins anew, if it was wanted.
    let b = scene.session("b.test");
    scene.client.reconfigure(NOW, &all, &BTreeSet::from(["b".to_owned()]));
    let mut asked = false;
    while let Some(event) = scene.client.poll_event() {
        asked |= matches!(event, Event::Order(dormouse_node::host::Order::FindWays { .. }));
    }
    assert!(asked, "the way to its gateway");
    scene.carry();
    scene.up("b");
    assert_eq!(scene.session("a.test"), a);
    assert!(scene.session("b.test").is_some_and(|now| Some(now) != b));
}
