//! R1 packets that are signed before they are asked for: when the next generation is made, and that nothing is made for no one.

use std::time::Duration;

use dormouse_keying::KeyManager;
use dormouse_sansio::Carrier;
use dormouse_wire::hip::{Draft, Header, Packet, PacketType, Param, ParamType, Version, set_checksum};

use crate::world::{World, config};

const SOON: Duration = Duration::from_secs(1);

fn world(seed: u64) -> World {
    World::new(seed, Carrier::RawHip, vec![("p256", config()), ("p256", config())])
}

fn life() -> Duration {
    config().timing.generation
}

/// An I1 with these groups; the generation of the R1 that it gets.
fn i1(world: &mut World, groups: &[u8]) -> u64 {
    let (sender, receiver, path) = (world.nodes[0].tag, world.nodes[1].tag, world.path(1, 0));
    let header = Header { kind: PacketType::I1, version: Version::V2, controls: 0, sender, receiver };
    let mut draft = Draft::new(&header);
    draft.add(&Param::DhGroupList(groups.to_vec()));
    let mut bytes = draft.finish().unwrap();
    set_checksum(&mut bytes, Some((path.remote.ip(), path.local.ip())));
    world.hand(1, path, &bytes).unwrap();
    let (_, r1) = world.last(PacketType::R1);
    match Packet::parse(&r1).unwrap().read(ParamType::R1Counter) {
        Some(Param::R1Counter(_, counter)) => counter.generation,
        other => panic!("{other:?}"),
    }
}

fn signed(world: &World) -> u64 {
    world.nodes[1].host.stats().r1_signed
}

/// Time goes by, with what is due.
fn pass(world: &mut World, time: Duration) {
    let end = world.now + time;
    while world.step(end) {}
}

/// Who was called late in a generation has the next one ready, with the same groups; the old solutions count.
#[test]
fn the_next_generation_is_ready_when_it_begins() {
    let mut world = world(2);
    i1(&mut world, &[8, 7]);
    i1(&mut world, &[7]);
    let first = signed(&world);
    pass(&mut world, life() * 3 / 4);
    assert_eq!(signed(&world), first, "no timer");
    // An I2 of the old generation is under way when it ends.
    world.connect(0, 1);
    pass(&mut world, SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    assert_eq!(signed(&world), first + 2, "both are made while nothing else is to be done");
    pass(&mut world, life() / 4);
    assert_eq!(world.nodes[1].host.poll_timeout(), None);
    assert_eq!([i1(&mut world, &[8, 7]), i1(&mut world, &[7])], [2; 2]);
    assert_eq!(signed(&world), first + 2, "none was made when it was asked for");
    // Another kind still is.
    i1(&mut world, &[3]);
    assert_eq!(signed(&world), first + 3);
}

/// A host that no one calls makes nothing, and is not woken.
#[test]
fn nothing_is_made_for_no_one() {
    let mut world = world(3);
    pass(&mut world, life());
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (0, None));
    i1(&mut world, &[8]);
    pass(&mut world, life() * 10);
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (1, None));
    assert_eq!(i1(&mut world, &[8]), 2, "made when it is asked for");
    assert_eq!(signed(&world), 2);
}

/// What an R1 says has changed: it is signed anew while nothing else is to be done.
#[test]
fn a_reload_is_signed_ahead() {
    let mut world = world(4);
    i1(&mut world, &[8, 7]);
    world.act(1, |host, now| host.set_servers(now, Default::default(), SOON * 60));
    assert!(world.nodes[1].host.poll_timeout().is_some());
    pass(&mut world, SOON);
    assert_eq!(signed(&world), 2);
    i1(&mut world, &[8, 7]);
    assert_eq!(signed(&world), 2);
}
