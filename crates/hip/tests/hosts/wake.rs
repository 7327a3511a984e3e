//! Who sleeps behind a NAT wakes with another port: its first data takes no way on which a NAT, or a relay, does not know it yet.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_hip::Peer;
use dormouse_keying::{KeyManager, Owner};
use dormouse_sansio::Carrier;
use dormouse_wire::hip::PacketType;

use crate::relay::{ASKS, CLIENT, RELAY, ask, way, with_relay};
use crate::world::{Nat, World, config};

const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(60);

/// The associations of a host, by their peers.
fn owners(world: &World, node: usize) -> BTreeMap<usize, Owner> {
    let of = |tag| world.nodes.iter().position(|n| n.tag == tag).unwrap();
    world.nodes[node].host.describe().map(|d| (of(d.peer), Owner::Hip(d.id))).collect()
}

/// A radio was off until now, and the NAT before it has forgotten it: whether data may go to the peer at once.
fn wake(world: &mut World, node: usize, peer: usize) -> bool {
    world.radio_off = Some(node);
    world.run(LATER);
    world.nats[node].forget();
    world.radio_off = None;
    let all = owners(world, node);
    world.act(node, |host, now| host.radio_on(now));
    let flows: BTreeMap<usize, bool> =
        all.iter().map(|(to, of)| (*to, world.act(node, |host, now| host.woke(now, *of)))).collect();
    flows[&peer]
}

fn revived(world: &World, node: usize) -> usize {
    world.nodes[node].plane.log.iter().filter(|l| l.starts_with("revived")).count()
}

/// RFC 9028 section 4.9: as after a handover. With NATs that let a direct way through, and with others; at either end of the relay.
#[test]
fn the_first_data_after_a_sleep_arrives() {
    for (seed, symmetric) in [(0, [false; 2]), (1, [true; 2]), (2, [true, false]), (3, [false, true])] {
        for (node, peer) in [(ASKS, CLIENT), (CLIENT, ASKS)] {
            let mut world = with_relay(seed, symmetric);
            // The peers that the configuration names are asked after a sleep.
            let named = world.nodes[ASKS].tag;
            world.act(CLIENT, |host, _| {
                host.set_peer(named, Some(Peer { addresses: Vec::new(), udp: true }));
            });
            assert!(ask(&mut world));
            world.run(LATER);
            let direct = !way(&world, node, peer).1;
            assert!(direct || symmetric != [false; 2], "{:?}", world.drops);
            // What the relay has said to its client is no answer of the peer's.
            let servers = usize::from(node == CLIENT);
            assert!(!wake(&mut world, node, peer), "it is asked first");
            let end = world.now + LATER;
            while revived(&world, node) <= servers && world.step(end) {}
            assert_eq!(revived(&world, node), servers + 1, "{symmetric:?} {node}: {:?}", world.drops);
            world.data.clear();
            world.send_data(node, peer);
            world.run(SOON / 4);
            let came = world.data.iter().any(|(at, _)| *at == peer);
            assert!(came, "{symmetric:?}, {node} woke: {:?}", world.drops);
            world.run(LATER);
            assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
            assert!(world.nodes[node].plane.closed.is_empty(), "the association is the same one");
            assert_eq!(!way(&world, node, peer).1, direct, "and goes by a direct way again");
            assert!(!world.nodes[RELAY].plane.installed.is_empty());
        }
    }
}

/// The peer is reached by the direct way, but knows another port: it answers where the question comes from, and data follows.
#[test]
fn a_question_from_another_port_is_answered_there() {
    let mut world = World::new(5, Carrier::HipUdp, vec![("p256", config()), ("p384", config())]);
    world.nats.push(Nat::new("203.0.113.1", "10.0.0.1", false));
    world.place(0, "10.0.0.1");
    world.place(1, "192.0.2.2");
    world.connect(0, 1);
    world.run(SOON);
    let before = way(&world, 1, 0).0;
    world.nats[0].forget();
    let id = world.nodes[0].host.describe().next().unwrap().id;
    world.act(0, |host, now| host.check(now, id));
    world.run(SOON);
    let after = way(&world, 1, 0).0;
    assert!(after.ip() == before.ip() && after.port() != before.port(), "{:?}", world.drops);
    assert!(world.is_idle(), "nothing is left to be asked");
    world.send_data(1, 0);
    world.run(SOON);
    assert_eq!(world.data.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [0]);
    assert!(world.joined(0, 1) && world.nodes[0].plane.closed.is_empty(), "{:?}", world.drops);
}

/// The radio was off while an I2 was out: the exchange begins anew, because the peer knows nothing of the other port.
#[test]
fn an_exchange_that_was_slept_through_begins_anew() {
    let mut world = World::new(6, Carrier::HipUdp, vec![("p256", config()), ("p384", config())]);
    world.nats.push(Nat::new("203.0.113.1", "10.0.0.1", false));
    world.place(0, "10.0.0.1");
    world.place(1, "192.0.2.2");
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 && world.step(world.now + SOON) {}
    world.radio_off = Some(0);
    world.run(SOON);
    assert!(!world.joined(0, 1), "the R2 found it asleep");
    world.nats[0].forget();
    world.radio_off = None;
    world.act(0, |host, now| host.radio_on(now));
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    let (r1, _) = world.last(PacketType::R1);
    assert_eq!((way(&world, 1, 0).0, world.count(PacketType::I1)), (r1.remote, 2));
}
