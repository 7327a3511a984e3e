//! Sessions that are made on demand, because there are header keys to exchange on them.

use dormouse_crypto::cert::Identity;
use dormouse_ike::EndpointConfig;
use dormouse_node::Node;
use dormouse_node::config::{parse, resolve};
use dormouse_node::ladder::State;
use dormouse_sansio::{Instant, Seeded, UnixTime};
use dormouse_wire::ike::mlike::Excerpt;

const NOW: Instant = Instant::ZERO;

fn router() -> Node {
    let client = |name: &str, peer: &str, keys: &str| {
        let secret = "secret = \"of the test\"";
        format!(
            "[connection.{name}]\nrole = \"client\"\ngateway = \"192.0.2.1\"\n[connection.{name}.keys]\npeer = \"{keys}\"\n\
             [connection.{name}.local]\nid = \"r2.test\"\n{secret}\n[connection.{name}.remote]\nid = \"{peer}\"\n{secret}\n"
        )
    };
    let toml = client("gw", "gateway.test", "gateway")
        + &client("one", "r1.test", "router")
        + &client("three", "r3.test", "router");
    let connections = resolve(&parse(&toml).expect("TOML"), &mut |_, _| Err("no files here".into()));
    let entropy = |seed| Box::new(Seeded::new(seed));
    let endpoint = EndpointConfig::default();
    let mut node = Node::new(connections.expect("a configuration"), endpoint, entropy(1), entropy(2));
    node.set_wall_clock(NOW, UnixTime(1_800_000_000));
    node
}

fn wanted(node: &Node) -> Vec<String> {
    let infos = node.client_infos(NOW).into_iter();
    infos.filter(|info| info.state != State::Down).map(|info| info.name).collect()
}

fn fetches(node: &mut Node, previous: &str) -> bool {
    let previous: Identity = previous.parse().expect("an identity");
    let seen = Excerpt::of(&1_000_u32.to_be_bytes()).expect("an SPI");
    node.ask_for_keys(NOW, [192, 0, 2, 9].into(), seen, Some(&previous), false)
}

#[test]
fn a_session_that_is_missing_for_keys_is_made_with_that_peer_alone() {
    let mut node = router();
    assert!(!fetches(&mut node, "r1.test"), "nothing here uses keys");
    assert_eq!(wanted(&node), <[&str; 0]>::default());
    node.read_headers();
    assert!(!fetches(&mut node, "r9.test"), "no neighbour");
    assert_eq!(wanted(&node), <[&str; 0]>::default());
    assert!(!fetches(&mut node, "r1.test"), "not now");
    assert_eq!(wanted(&node), ["one"]);
}

#[test]
fn what_was_taken_down_by_request_does_not_come_up_by_itself() {
    let mut node = router();
    node.read_headers();
    assert!(node.down(NOW, "one"));
    assert!(!fetches(&mut node, "r1.test"));
    assert_eq!(wanted(&node), <[&str; 0]>::default());
    // Until it is wanted again.
    assert!(node.up(NOW, "one"));
    assert_eq!(wanted(&node), ["one"]);
}
