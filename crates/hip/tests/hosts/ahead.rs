//! What is done while nothing else is to be done: R1 packets that are signed before they are asked for, and that nothing is made for no one;
//! and that all of a host's timers are told of.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_hip::{Accept, HostConfig};

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

/// The first R1 is there before anyone has asked for it, and so is that of each generation that follows.
#[test]
fn what_is_given_out_was_made_before() {
    let mut world = world(2);
    assert_eq!(signed(&world), 0, "the start does not wait for it");
    pass(&mut world, SOON);
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (1, None));
    assert_eq!((i1(&mut world, &[8, 7]), signed(&world)), (1, 1), "nothing was made when it was asked for");
    pass(&mut world, SOON);
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (2, None), "the next generation");
    pass(&mut world, life());
    assert_eq!((i1(&mut world, &[8, 7]), signed(&world)), (2, 2), "nothing was made when it was asked for");
    pass(&mut world, SOON);
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (3, None));
}

/// A group that was asked for once is made ahead with the best one from then on.
#[test]
fn what_was_asked_for_is_made_ahead() {
    let mut world = world(5);
    pass(&mut world, SOON);
    assert_eq!((i1(&mut world, &[7]), signed(&world)), (1, 2), "this one was not foreseen");
    pass(&mut world, SOON);
    assert_eq!(signed(&world), 4, "both of the next generation");
    pass(&mut world, life());
    assert_eq!([i1(&mut world, &[8, 7]), i1(&mut world, &[7])], [2; 2]);
    assert_eq!(signed(&world), 4, "none was made when it was asked for");
    // Another kind still is.
    i1(&mut world, &[3]);
    assert_eq!(signed(&world), 5);
}

/// A host that no one calls makes nothing more, and is not woken; what it has is good whenever it is called.
#[test]
fn nothing_is_made_for_no_one() {
    let mut world = world(3);
    pass(&mut world, life() * 10);
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (1, None));
    assert_eq!((i1(&mut world, &[8]), signed(&world)), (1, 1));
    pass(&mut world, life() * 10);
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (2, None));
    assert_eq!((i1(&mut world, &[8]), signed(&world)), (2, 2));
}

/// A host that accepts no caller makes none, until a reload accepts one.
#[test]
fn a_host_that_is_never_called_makes_none() {
    let closed = HostConfig { accept: Accept::Listed(BTreeSet::new()), ..config() };
    let mut world = World::new(6, Carrier::RawHip, vec![("p256", config()), ("p256", closed)]);
    pass(&mut world, life());
    assert_eq!((signed(&world), world.nodes[1].host.poll_timeout()), (0, None));
    let caller = world.nodes[0].tag;
    let accept = Accept::Listed(BTreeSet::from([caller]));
    world.act(1, |host, now| host.set_accept(now, accept, Accept::Any));
    pass(&mut world, SOON);
    assert_eq!(signed(&world), 1);
    // An identity of version 1 has none either, if no peer speaks version 1.
    let some = HostConfig { accept_v1: Accept::Listed(BTreeSet::new()), ..config() };
    let mut old = World::new(7, Carrier::RawHip, vec![("p256", config()), ("v1 rsa", some)]);
    pass(&mut old, SOON);
    assert_eq!((signed(&old), old.nodes[1].host.poll_timeout()), (0, None));
}

/// What an R1 says has changed: it is signed anew while nothing else is to be done, and so is the next one.
#[test]
fn a_reload_is_signed_ahead() {
    let mut world = world(4);
    i1(&mut world, &[8, 7]);
    pass(&mut world, SOON);
    let before = signed(&world);
    world.act(1, |host, now| host.set_servers(now, Default::default(), SOON * 60));
    assert!(world.nodes[1].host.poll_timeout().is_some());
    pass(&mut world, SOON);
    assert_eq!(signed(&world), before + 2);
    i1(&mut world, &[8, 7]);
    assert_eq!(signed(&world), before + 2);
}

/// Every timer is listed, not the earliest alone.
#[test]
fn every_timer_is_listed() {
    let waits = HostConfig { liveness: Some(SOON * 30), ..config() };
    let mut world =
        World::new(8, Carrier::RawHip, vec![("p256", waits.clone()), ("p256", waits), ("p256", config())]);
    let whys = |world: &World, node: usize| -> Vec<&str> {
        let mut whys: Vec<&str> = world.nodes[node].host.timers().iter().map(|d| d.why).collect();
        whys.sort_unstable();
        whys
    };
    world.connect(0, 1);
    world.connect(0, 2);
    assert_eq!(whys(&world, 0), ["HIP: R1 packets ahead", "HIP: no R1", "HIP: no R1"]);
    pass(&mut world, SOON);
    assert!(world.joined(0, 1) && world.joined(0, 2), "{:?}", world.drops);
    assert_eq!(whys(&world, 0), ["HIP: is the peer there"; 2]);
    assert_eq!(whys(&world, 1), ["HIP: R2 kept", "HIP: is the peer there"]);
    assert_eq!(whys(&world, 2), ["HIP: R2 kept"]);
}
