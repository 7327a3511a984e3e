//! CLOSE and CLOSE_ACK: from either end, from both, lost, and again.

use std::time::Duration;

use dormouse_keying::KeyManager;
use dormouse_sansio::Carrier;
use dormouse_wire::hip::PacketType;

use crate::world::{World, config};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(300);

fn joined(seed: u64) -> World {
    let mut world = World::new(seed, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1));
    world
}

fn close(world: &mut World, node: usize) {
    let id = world.nodes[node].host.describe().next().unwrap().id;
    world.act(node, |host, now| host.close(now, id));
}

fn nothing_is_left(world: &World) {
    for node in &world.nodes {
        assert!(node.plane.installed.is_empty());
        assert_eq!(node.plane.closed.len(), 1);
        assert_eq!(node.host.describe().count(), 0);
        assert_eq!(node.host.poll_timeout(), None);
    }
}

#[test]
fn both_ends_learn_of_the_end() {
    let mut world = joined(1);
    close(&mut world, 0);
    world.run(SOON);
    assert_eq!((world.count(PacketType::Close), world.count(PacketType::CloseAck)), (1, 1));
    assert_eq!(world.nodes[0].host.describe().count(), 0);
    assert_eq!(world.nodes[1].plane.closed[0].1, "the peer closed the association");
    world.run(LATER);
    nothing_is_left(&world);
}

#[test]
fn both_at_once_and_under_loss() {
    for seed in 0..20 {
        let mut world = joined(seed);
        world.lost = if seed % 2 == 0 { 0 } else { 400 };
        close(&mut world, 0);
        if seed % 4 < 2 {
            close(&mut world, 1);
        }
        world.run(LATER);
        if world.nodes.iter().all(|n| n.plane.closed.len() == 1) {
            nothing_is_left(&world);
        } else {
            assert!(seed % 2 == 1, "seed {seed}: only loss keeps the news from the peer");
        }
    }
}

/// What is closed is answered once more if the CLOSE_ACK was lost, and can be begun anew at once.
#[test]
fn a_repeated_close_is_answered_and_a_new_association_replaces_what_is_kept() {
    let mut world = joined(3);
    close(&mut world, 0);
    world.run(SOON);
    let (path, bytes) = world.last(PacketType::Close);
    world.fly(path, bytes);
    world.run(SOON);
    assert_eq!(world.count(PacketType::CloseAck), 2);
    world.connect(1, 0);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
}

#[test]
fn an_exchange_can_be_given_up() {
    let mut world = World::new(4, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    world.connect(0, 1);
    close(&mut world, 0);
    assert_eq!(world.nodes[0].plane.closed[0].1, "closed here");
    assert_eq!(world.nodes[0].host.describe().count(), 0);
    world.run(LATER);
    assert!(world.nodes[1].plane.log.is_empty());
}
