//! Several addresses at either end: announced, tried when one fails, never used unverified; and a peer that is silently gone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use dormouse_hip::HostConfig;
use dormouse_keying::{KeyManager, Owner};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{
    Draft, Header, Hit, Locator, LocatorValue, Packet, PacketType, Param, ParamType, Puzzle, set_checksum,
};

use crate::world::{World, config, identity};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);
const OURS: [&str; 2] = ["192.0.2.1", "198.51.100.1"];
const THEIRS: [&str; 2] = ["192.0.2.2", "198.51.100.2"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two hosts with two addresses each, joined by the first of each.
fn joined(seed: u64, carrier: Carrier, one: HostConfig) -> World {
    let mut world = World::new(seed, carrier, vec![("p256", one.clone()), ("p384", one)]);
    for (node, addresses) in [OURS, THEIRS].into_iter().enumerate() {
        world.nodes[node].others = addresses[1..].iter().map(|a| (ip(a), 0).into()).collect();
        let addresses = addresses.map(ip);
        world.act(node, |host, now| host.set_addresses(now, &addresses));
    }
    world.connect(0, 1);
    world.run(SOON * 10);
    assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
    world
}

fn multihomed() -> HostConfig {
    HostConfig { multihoming: true, ..config() }
}

fn check(world: &mut World, node: usize) {
    let id = world.nodes[node].host.describe().next().unwrap().id;
    world.act(node, |host, now| host.check(now, id));
}

/// Where the user data of a host goes, from where.
fn way(world: &World, node: usize) -> (IpAddr, IpAddr) {
    let path: &Path = world.nodes[node].plane.path.values().next_back().unwrap();
    (path.local.ip(), path.remote.ip())
}

/// RFC 8047 section 5.1: the address in use with the SPI and preferred, the other without.
#[test]
fn all_addresses_are_announced_if_configured() {
    let mut world = joined(1, Carrier::RawHip, multihomed());
    world.run(LATER);
    let announced = world.seen.iter().find_map(|(path, bytes)| {
        let packet = Packet::parse(bytes).unwrap();
        let ours = path.local.ip() == ip(OURS[0]);
        packet.read(ParamType::LocatorSet).filter(|_| ours)
    });
    let Some(Param::LocatorSet(locators)) = announced else { panic!("no LOCATOR_SET") };
    let [first, second] = locators.as_slice() else { panic!("{locators:?}") };
    let (LocatorValue::Esp { address: a, .. }, LocatorValue::Address(b)) = (&first.value, &second.value)
    else {
        panic!("{locators:?}")
    };
    assert_eq!([a.to_canonical(), b.to_canonical()], OURS.map(ip));
    assert_eq!((first.preferred, second.preferred), (true, false));
    assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()), "no timer is left");
    // I2 and R2 say it, and nothing else is sent for it; an R1, which anyone is sent, does not.
    let named = |kind| Packet::parse(&world.last(kind).1).unwrap().find(ParamType::LocatorSet).is_some();
    use PacketType::{I2, R1, R2, Update};
    assert_eq!((named(R1), named(I2), named(R2), world.count(Update)), (false, true, true, 0));
    for (carrier, one) in [(Carrier::RawHip, config()), (Carrier::HipUdp, multihomed())] {
        let world = joined(1, carrier, one);
        assert_eq!(world.count(PacketType::Update), 0, "by default, and in UDP, nothing is announced");
    }
}

#[test]
fn another_way_is_taken_when_one_fails() {
    for (dead, expected) in [
        (&[THEIRS[0]][..], (OURS[0], THEIRS[1])),
        (&[OURS[0]][..], (OURS[1], THEIRS[0])),
        (&[OURS[0], THEIRS[0]][..], (OURS[1], THEIRS[1])),
    ] {
        for node in [0, 1] {
            let mut world = joined(2, Carrier::RawHip, multihomed());
            world.dead = dead.iter().map(|a| ip(a)).collect();
            check(&mut world, node);
            world.run(SOON * 30);
            assert!(world.joined(0, 1), "{dead:?}: {:?}", world.drops);
            assert_eq!(way(&world, 0), (ip(expected.0), ip(expected.1)), "{dead:?}, asked by {node}");
            assert_eq!(way(&world, 1), (ip(expected.1), ip(expected.0)), "{dead:?}, asked by {node}");
            assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()));
        }
    }
}

/// A rekeying that finds the way dead goes on by the other, and the next failure leads back.
#[test]
fn what_waits_is_not_forgotten_and_ways_that_come_back_are_found() {
    for seed in 0..10 {
        let mut world = joined(seed, Carrier::RawHip, multihomed());
        let before = world.nodes[0].host.describe().next().unwrap().child;
        world.dead = BTreeSet::from([ip(THEIRS[0])]);
        world.act(0, |host, now| host.rekey_child(now, before.unwrap()));
        world.run(LATER);
        assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
        assert_ne!(world.nodes[0].host.describe().next().unwrap().child, before);
        world.dead = BTreeSet::from([ip(THEIRS[1])]);
        check(&mut world, 1);
        world.run(LATER);
        assert_eq!(way(&world, 0).1, ip(THEIRS[0]), "seed {seed}");
        assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
    }
}

/// Some seconds without any way end nothing; minutes do.
#[test]
fn an_outage_of_all_ways_is_waited_for() {
    let all: BTreeSet<IpAddr> = OURS.iter().chain(&THEIRS).map(|a| ip(a)).collect();
    let mut world = joined(3, Carrier::RawHip, multihomed());
    world.dead = all.clone();
    check(&mut world, 0);
    world.run(SOON * 25);
    world.dead.clear();
    world.run(LATER);
    assert!(world.joined(0, 1), "{:?}", world.nodes[0].plane.closed);
    world.dead = all;
    check(&mut world, 0);
    world.run(LATER * 2);
    assert_eq!(world.nodes[0].plane.closed[0].1, "the peer does not answer");
    assert_eq!(world.nodes[0].host.describe().count(), 0);
}

/// An address that the peer names and where it is not gets a few questions when the real one fails, and no user data.
#[test]
fn an_address_that_does_not_answer_is_passed_over() {
    let mut world = joined(4, Carrier::RawHip, multihomed());
    let bogus = ["203.0.113.9", "203.0.113.8"].map(ip);
    let addresses = [&[ip(THEIRS[0])][..], &bogus, &[ip(THEIRS[1])]].concat();
    world.act(1, |host, now| host.set_addresses(now, &addresses));
    world.run(SOON);
    world.seen.clear();
    world.dead = BTreeSet::from([ip(THEIRS[0])]);
    check(&mut world, 0);
    world.run(LATER);
    assert_eq!(way(&world, 0).1, ip(THEIRS[1]));
    let to_bogus = world.seen.iter().filter(|(p, _)| bogus.contains(&p.remote.ip())).count();
    assert!((1..=8).contains(&to_bogus), "{to_bogus}");
    assert!(world.joined(0, 1));
}

/// An idle association has no timer, and notices nothing, unless it is asked to.
#[test]
fn a_peer_that_died_is_noticed_if_configured() {
    for liveness in [None, Some(Duration::from_secs(60))] {
        let one = HostConfig { liveness, ..config() };
        let mut world = joined(5, Carrier::RawHip, one);
        world.run(LATER * 5);
        assert!(world.joined(0, 1));
        assert_eq!(world.count(PacketType::Update) > 0, liveness.is_some());
        assert!(world.count(PacketType::Update) <= 24, "one question and one answer in a minute");
        world.dead = THEIRS.iter().map(|a| ip(a)).collect();
        world.run(LATER);
        assert_eq!(world.nodes[0].plane.closed.len(), usize::from(liveness.is_some()));
    }
}

/// User data without an answer and the configured interval are two reasons for one question: the former asks sooner and gives up sooner,
/// and any authentic packet of the peer puts it off.
#[test]
fn data_and_liveness_checks_ask_a_silent_peer_once() {
    for liveness in [None, Some(Duration::from_secs(60))] {
        let mut world = joined(6, Carrier::RawHip, HostConfig { liveness, ..config() });
        let id = world.nodes[0].host.describe().next().unwrap().id;
        let asked = |world: &World| world.count(PacketType::Update) / 2;
        for _ in 0..30 {
            for heard in [false, true] {
                for node in [0, 1] {
                    let id = world.nodes[node].host.describe().next().unwrap().id;
                    world.act(node, |host, now| host.traffic(now, Owner::Hip(id), heard));
                }
                world.run(SOON * 2);
            }
        }
        assert_eq!(asked(&world), 0, "{liveness:?}: each was heard in time");
        world.act(0, |host, now| host.traffic(now, Owner::Hip(id), false));
        world.run(SOON * 5);
        assert_eq!(asked(&world), 1, "{liveness:?}");
        world.dead = THEIRS.iter().map(|a| ip(a)).collect();
        world.act(0, |host, now| host.traffic(now, Owner::Hip(id), false));
        world.run(SOON * 12);
        assert_eq!(world.nodes[0].plane.closed[0].1, "the peer does not answer", "{liveness:?}");
        assert_eq!(world.count(PacketType::Update), 2 + 3, "{liveness:?}: three tries");
    }
}

/// Both can be turned on and off while the association is there.
#[test]
fn what_is_configured_can_change() {
    let mut world = joined(77, Carrier::RawHip, config());
    let announced = |world: &World| {
        let read = |bytes: &[u8]| Packet::parse(bytes).unwrap().read(ParamType::LocatorSet);
        match world.seen.iter().rev().find_map(|(_, bytes)| read(bytes)) {
            Some(Param::LocatorSet(locators)) => locators.len(),
            _ => 0,
        }
    };
    assert_eq!(announced(&world), 0);
    for (on, locators) in [(true, 2), (false, 1)] {
        world.act(0, |host, now| host.set_multihoming(now, on));
        world.run(SOON);
        assert_eq!(announced(&world), locators, "multihoming {on}");
    }
    let sent = world.count(PacketType::Update);
    world.run(LATER);
    assert_eq!(world.count(PacketType::Update), sent);
    world.act(0, |host, now| host.set_liveness(now, Some(SOON * 10)));
    world.run(LATER);
    let asked = world.count(PacketType::Update);
    assert!(asked > sent + 10, "{asked}");
    world.act(0, |host, now| host.set_liveness(now, None));
    world.run(LATER);
    assert_eq!(world.count(PacketType::Update), asked);
    assert!(world.joined(0, 1));
}

/// A responder with this key names another address in its R1, preferred or not; its addresses besides.
fn r1_with(locators: Vec<Locator>) -> World {
    let hosts = vec![("p256", multihomed()), ("known p256", multihomed())];
    let mut world = World::new(9, Carrier::RawHip, hosts);
    for (node, addresses) in [OURS, THEIRS].into_iter().enumerate() {
        world.nodes[node].others = addresses[1..].iter().map(|a| (ip(a), 0).into()).collect();
        let addresses = addresses.map(ip);
        world.act(node, |host, now| host.set_addresses(now, &addresses));
    }
    world.connect(0, 1);
    while world.count(PacketType::R1) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let (path, bytes) = world.last(PacketType::R1);
    world.dead.insert(ip(OURS[0]));
    world.run(SOON / 2);
    world.dead.clear();
    // The same, with the addresses, signed by the same key.
    let packet = Packet::parse(&bytes).unwrap();
    let signed = |receiver: Hit, puzzle: Param| {
        let mut draft = Draft::new(&Header { receiver, ..packet.header });
        let mut params: Vec<Param> =
            packet.params().iter().map(|p| Param::Opaque(p.kind, p.contents.to_vec())).collect();
        params.retain(|p| ![ParamType::HipSignature2, ParamType::Puzzle].contains(&p.kind()));
        params.extend([Param::LocatorSet(locators.clone()), puzzle]);
        params.sort_by_key(|p| p.kind().code());
        params.iter().for_each(|p| draft.add(p));
        draft
    };
    let Some(Param::Puzzle(puzzle)) = packet.read(ParamType::Puzzle) else { panic!("no PUZZLE") };
    let blank = Puzzle { opaque: [0; 2], i: vec![0; puzzle.i.len()], ..puzzle.clone() };
    let covered = signed(Hit::NULL, Param::Puzzle(blank)).covered(&[]);
    let signature = identity("known p256").sign(&covered).unwrap();
    let mut draft = signed(packet.header.receiver, Param::Puzzle(puzzle));
    draft.add(&Param::Signature(ParamType::HipSignature2, signature));
    let mut bytes = draft.finish().unwrap();
    set_checksum(&mut bytes, Some((path.local.ip(), path.remote.ip())));
    let from = Path { local: path.remote, remote: path.local, ..path };
    world.hand(0, from, &bytes).unwrap();
    world
}

fn locator(address: &str, preferred: bool) -> Locator {
    let address = match ip(address) {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    };
    Locator { traffic: 0, preferred, lifetime: 60, value: LocatorValue::Address(address) }
}

/// RFC 8047 section 4.2.8: the I2 goes to the address that the R1 prefers, and so does what follows; one that no host can have is passed over.
#[test]
fn an_r1_says_where_the_i2_goes() {
    for (locators, expected) in [
        (vec![locator(THEIRS[0], false), locator(THEIRS[1], true)], THEIRS[1]),
        (vec![locator(THEIRS[1], false)], THEIRS[0]),
        (vec![locator("224.0.0.1", true), locator("169.254.0.9", true)], THEIRS[0]),
        (vec![locator("2001:db8::1", true)], THEIRS[0]),
    ] {
        let mut world = r1_with(locators.clone());
        world.run(SOON / 2);
        assert_eq!(world.last(PacketType::I2).0.remote.ip(), ip(expected), "{locators:?}");
        let ends = [0, 1].map(|n| world.nodes[n].host.describe().next().map(|d| d.path));
        let [Some(ours), _] = ends else { panic!("{ends:?}") };
        assert_eq!(ours.remote.ip(), ip(expected));
    }
}

/// What an I2 or R2 names is tried when the way in use fails, although no UPDATE has named it.
#[test]
fn addresses_of_the_exchange_are_tried() {
    for node in [0, 1] {
        let mut world = joined(11, Carrier::RawHip, multihomed());
        assert_eq!(world.count(PacketType::Update), 0);
        world.dead = BTreeSet::from([ip(THEIRS[0]), ip(OURS[0])]);
        check(&mut world, node);
        world.run(SOON * 30);
        assert_eq!(way(&world, 0), (ip(OURS[1]), ip(THEIRS[1])), "asked by {node}: {:?}", world.drops);
    }
}
