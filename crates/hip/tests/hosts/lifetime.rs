//! How long an association lasts, where the configuration says it of its peer.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_hip::{Accept, Phase};
use dormouse_sansio::Carrier;

use crate::relay::SOON;
use crate::world::{World, config};

const LIFETIME: Duration = Duration::from_secs(600);

/// The second of two hosts with an association bounds that with the first.
fn bounded() -> World {
    let mut world = World::new(23, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    let device = world.nodes[0].tag;
    world.act(1, |host, _| host.set_lifetime_of(device, Some(LIFETIME)));
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    world
}

fn established(world: &World, node: usize) -> usize {
    world.nodes[node].host.describe().filter(|d| d.phase == Phase::Established).count()
}

/// Both ends learn that it is over, with either as initiator; new keys for ESP do not make it longer. Another has its whole time again.
#[test]
fn an_association_ends_with_its_lifetime_and_is_begun_anew() {
    let mut world = bounded();
    world.run(LIFETIME / 2);
    world.rekey(0);
    world.run(LIFETIME / 2 - SOON * 4);
    assert!(world.joined(0, 1), "its time is not over");
    world.run(SOON * 16);
    assert_eq!((established(&world, 0), established(&world, 1)), (0, 0), "its time is over");
    world.connect(0, 1);
    world.run(LIFETIME - SOON * 8);
    assert!(world.joined(0, 1), "the second one has a time of its own");
    world.run(SOON * 16);
    assert_eq!((established(&world, 0), established(&world, 1)), (0, 0));
}

/// A peer that is not admitted any more keeps what it has for its lifetime at most.
#[test]
fn who_is_not_admitted_any_more_does_not_come_back() {
    let mut world = bounded();
    let device = world.nodes[0].tag;
    world.run(LIFETIME + SOON * 8);
    assert_eq!(established(&world, 1), 0);
    world.act(1, |host, now| host.set_accept(now, Accept::Listed(BTreeSet::new()), Accept::Any));
    world.connect(0, 1);
    world.run(LIFETIME / 10);
    assert_eq!((established(&world, 0), established(&world, 1)), (0, 0));
    world.act(1, |host, _| host.set_lifetime_of(device, None));
    world.act(1, |host, now| host.set_accept(now, Accept::Any, Accept::Any));
    world.connect(0, 1);
    world.run(LIFETIME * 2);
    assert!(world.joined(0, 1), "without a lifetime it does not end for that");
}
