//! ESP in UDP where HIP is protocol 139: only between ends that have shown it, only once UDP has passed in both directions, and back when it
//! does not pass any more.

use std::time::Duration;

use dormouse_hip::{HostConfig, Quirk};
use dormouse_keying::{KeyManager, Owner};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Packet, PacketType, ParamType};

use crate::world::{World, config};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);

fn auto() -> HostConfig {
    HostConfig { esp_in_udp: true, ..config() }
}

fn world(seed: u64, hosts: [HostConfig; 2]) -> World {
    World::new(seed, Carrier::RawHip, hosts.map(|config| ("p256", config)).to_vec())
}

fn joined(seed: u64) -> World {
    let mut world = world(seed, [auto(), auto()]);
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
    world
}

/// Where ESP of a host goes, which the host says too.
fn esp(world: &World, node: usize) -> Path {
    let it = world.nodes[node].host.describe().next().expect("an association");
    let path = world.nodes[node].plane.path[&it.id];
    assert_eq!(it.esp_path, path);
    path
}

fn carriers(world: &World) -> [Carrier; 2] {
    [0, 1].map(|node| esp(world, node).carrier)
}

const UDP: [Carrier; 2] = [Carrier::HipUdp; 2];
const RAW: [Carrier; 2] = [Carrier::RawEsp; 2];

/// Packets of HIP that went in UDP.
fn questions(world: &World) -> Vec<(Path, Vec<u8>)> {
    world.seen.iter().filter(|(path, _)| path.carrier == Carrier::HipUdp).cloned().collect()
}

fn unanswered(world: &mut World, node: usize) {
    let id = world.nodes[node].host.describe().next().unwrap().id;
    world.act(node, |host, now| host.traffic(now, Owner::Hip(id), false));
}

fn data_passes(world: &mut World, what: &str) {
    world.data.clear();
    world.send_data(0, 1);
    world.send_data(1, 0);
    world.run(SOON);
    let mut at: Vec<usize> = world.data.iter().map(|(node, _)| *node).collect();
    at.sort_unstable();
    assert_eq!(at, [0, 1], "{what}: {:?}", world.drops);
}

#[test]
fn two_of_ours_have_esp_in_udp_and_hip_as_it_was() {
    let mut world = joined(1);
    assert_eq!(carriers(&world), UDP);
    let path = esp(&world, 0);
    assert_eq!((path.local.port(), path.remote.port()), (10_500, 10_500));
    // A question, its answer with another, and the answer to that.
    assert_eq!(questions(&world).len(), 3);
    assert!(world.nodes.iter().all(|n| n.host.describe().next().unwrap().path.carrier == Carrier::RawHip));
    assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()), "nothing is sent without traffic");
    assert!(world.nodes.iter().all(|n| n.host.stats().esp_in_udp == 1));
    data_passes(&mut world, "at first");
    world.rekey(1);
    world.run(LATER);
    assert!(world.joined(0, 1) && carriers(&world) == UDP, "new keys go the same way");
    assert!(
        world.nodes.iter().all(|n| n.plane.installed.values().all(|i| i.path.carrier != Carrier::RawHip))
    );
    data_passes(&mut world, "with new keys");
}

/// It is protocol 50 until the peer has answered by this way in both directions: no order comes before.
#[test]
fn nothing_goes_there_before_the_answer() {
    let mut world = world(2, [auto(), auto()]);
    world.connect(0, 1);
    while !world.joined(0, 1) {
        let end = world.now + SOON;
        assert!(world.step(end));
    }
    assert_eq!(carriers(&world), RAW);
    let answered = |world: &World, node: usize| {
        let ours = world.nodes[node].address.ip();
        let echo =
            |bytes: &[u8]| Packet::parse(&bytes[4..]).unwrap().find(ParamType::EchoResponseSigned).is_some();
        questions(world).iter().any(|(path, bytes)| path.remote.ip() == ours && echo(bytes))
    };
    for _ in 0..100 {
        let early = [0, 1].map(|node| !answered(&world, node));
        let end = world.now + SOON;
        world.step(end);
        let now = carriers(&world);
        assert!((0..2).all(|node| !early[node] || now[node] == Carrier::RawEsp));
    }
    assert_eq!(carriers(&world), UDP);
}

#[test]
fn who_has_not_shown_it_gets_protocol_50() {
    for hosts in [[auto(), config()], [config(), auto()], [config(), config()]] {
        let mut world = world(3, hosts);
        world.connect(0, 1);
        world.run(LATER);
        assert!(world.joined(0, 1) && carriers(&world) == RAW);
        assert!(questions(&world).is_empty());
    }
    // Neither one that refuses what it does not know, nor one to which UDP is the only way.
    for quirk in [Quirk::KnownParametersOnly, Quirk::Bare, Quirk::EspInUdp] {
        let mut world = world(3, [auto(), auto()]);
        let peer = world.nodes[1].tag;
        world.act(0, |host, _| host.set_quirks(peer, [quirk].into_iter().collect()));
        world.connect(0, 1);
        world.run(LATER);
        let kind = ParamType::EspInUdp;
        let said = |bytes: &[u8]| Packet::parse(bytes).is_ok_and(|p| p.find(kind).is_some());
        let from = world.nodes[0].address.ip();
        assert!(!world.seen.iter().any(|(path, bytes)| path.local.ip() == from && said(bytes)), "{quirk:?}");
    }
}

#[test]
fn version_1_knows_nothing_of_it() {
    let hosts = vec![("v1 rsa", auto()), ("v1 dsa", auto())];
    let mut world = World::new(4, Carrier::RawHip, hosts);
    world.connect(0, 1);
    world.run(LATER);
    assert!(world.joined(0, 1) && carriers(&world) == RAW && questions(&world).is_empty());
}

/// Another port at each end is shown, and taken.
#[test]
fn each_end_has_its_port() {
    let mut world = world(5, [HostConfig { udp_port: 20_500, ..auto() }, auto()]);
    world.connect(0, 1);
    world.run(SOON);
    assert_eq!(carriers(&world), UDP);
    let ports = |node| (esp(&world, node).local.port(), esp(&world, node).remote.port());
    assert_eq!([ports(0), ports(1)], [(20_500, 10_500), (10_500, 20_500)]);
}

/// UDP is dropped towards one end or both: it stays protocol 50 after a bounded number of questions.
#[test]
fn udp_that_does_not_pass_is_not_used() {
    for deaf in [vec![0], vec![1], vec![0, 1]] {
        let mut world = world(6, [auto(), auto()]);
        for node in &deaf {
            let at = world.nodes[*node].address.ip();
            world.no_udp.insert(at);
        }
        world.connect(0, 1);
        world.run(SOON);
        data_passes(&mut world, "while it is asked");
        world.run(LATER);
        assert!(world.joined(0, 1) && carriers(&world) == RAW, "{deaf:?}");
        assert!(questions(&world).len() <= 20, "{}", questions(&world).len());
        assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()), "it is given up");
        data_passes(&mut world, "after that");
        // Elsewhere it is asked anew.
        world.no_udp.clear();
        world.place(0, "198.51.100.7");
        world.run(SOON * 5);
        assert_eq!(carriers(&world), UDP, "{deaf:?}");
    }
}

#[test]
fn a_move_goes_by_protocol_50_until_udp_has_passed_there() {
    for (node, seed) in [(0, 7), (1, 8)] {
        let mut world = joined(seed);
        for at in [0, 1] {
            let here = world.nodes[at].address.ip().to_string();
            world.place(at, &here);
        }
        world.no_udp.insert("198.51.100.7".parse().unwrap());
        world.place(node, "198.51.100.7");
        world.run(LATER);
        assert_eq!(carriers(&world), RAW);
        data_passes(&mut world, "where UDP does not pass");
        world.place(node, "198.51.100.8");
        world.run(SOON * 5);
        assert_eq!(carriers(&world), UDP);
        assert_eq!(esp(&world, 1 - node).remote.ip(), world.nodes[node].address.ip());
        data_passes(&mut world, "back");
    }
}

/// Data gets no answer, because UDP is dropped now: protocol 50 takes it again soon, and UDP once it passes.
#[test]
fn udp_that_passes_no_more_is_left() {
    for node in [0, 1] {
        let mut world = joined(9);
        let deaf = world.nodes[1 - node].address.ip();
        world.no_udp.insert(deaf);
        unanswered(&mut world, node);
        world.run(Duration::from_secs(6));
        assert_eq!(esp(&world, node).carrier, Carrier::RawEsp, "within six seconds");
        world.send_data(node, 1 - node);
        world.run(SOON);
        assert!(world.data.iter().any(|(at, _)| *at == 1 - node), "{:?}", world.drops);
        world.no_udp.clear();
        world.run(LATER);
        assert!(
            world.joined(0, 1) && carriers(&world) == UDP,
            "a question that is sent again has its answer"
        );
        assert!(world.nodes.iter().all(|n| n.plane.closed.is_empty()));
    }
}

/// Data that wants no answer is asked about, and stays where it is.
#[test]
fn one_way_data_stays_in_udp() {
    let mut world = joined(10);
    for _ in 0..20 {
        unanswered(&mut world, 0);
        let end = world.now + Duration::from_secs(10);
        while world.step(end) {
            assert_eq!(carriers(&world), UDP);
        }
    }
}

/// A firewall before either end lets in only what answers: who is asked by protocol 139 asks too.
#[test]
fn firewalls_are_opened_from_both_sides() {
    for behind in [vec![0], vec![1], vec![0, 1]] {
        let mut world = world(11, [auto(), auto()]);
        let at: Vec<_> = behind.iter().map(|node| world.nodes[*node].address.ip()).collect();
        world.connect(0, 1);
        while world.count(PacketType::R2) == 0 {
            let end = world.now + SOON;
            world.step(end);
        }
        // HIP passes, as it has; in UDP nothing has gone out.
        let ends = [0, 1].map(|node| world.nodes[node].address.ip());
        for ip in &at {
            let open = ends.iter().flat_map(|end| [(Carrier::RawHip, *end), (Carrier::RawEsp, *end)]);
            world.firewalls.insert(*ip, open.collect());
        }
        world.run(SOON * 10);
        assert_eq!(carriers(&world), UDP, "{behind:?}");
        // It forgets what has gone out; the data of the other end does not come in.
        for ip in &at {
            world.firewalls.get_mut(ip).unwrap().retain(|(carrier, _)| *carrier != Carrier::HipUdp);
        }
        let caller = 1 - behind[0];
        unanswered(&mut world, caller);
        world.run(SOON * 20);
        assert_eq!(carriers(&world), UDP, "{behind:?}");
        data_passes(&mut world, "after all");
    }
}

#[test]
fn it_survives_loss_and_repetition() {
    for seed in 0..60 {
        let mut world = world(seed, [auto(), auto()]);
        (world.lost, world.doubled) = (250, 250);
        world.connect(0, 1);
        world.run(SOON * 40);
        let up = |world: &World| {
            world.nodes.iter().all(|n| n.host.describe().next().is_some_and(|d| d.child.is_some()))
        };
        if !up(&world) {
            continue;
        }
        for node in [0, 1] {
            let here = world.nodes[node].address.ip().to_string();
            world.place(node, &here);
        }
        world.place((seed % 2) as usize, "198.51.100.7");
        world.run(Duration::from_millis(seed * 40));
        world.place(0, "198.51.100.9");
        world.run(SOON * 40);
        world.lost = 0;
        world.doubled = 0;
        if !up(&world) || !world.joined(0, 1) {
            continue;
        }
        for node in [0, 1] {
            unanswered(&mut world, node);
        }
        world.run(LATER);
        data_passes(&mut world, &format!("seed {seed}"));
    }
}

/// Questions that are sent once more by another, from anywhere: no packet goes elsewhere, ESP stays, and none but the newest is answered.
#[test]
fn repeated_questions_move_nothing() {
    let mut world = joined(12);
    for _ in 0..3 {
        unanswered(&mut world, 0);
        world.run(SOON * 10);
    }
    let all: Vec<_> = world
        .seen
        .iter()
        .filter(|(path, _)| path.remote.ip() == world.nodes[1].address.ip())
        .cloned()
        .collect();
    let before = (carriers(&world), world.seen.len());
    let stranger = "203.0.113.66:10500".parse().unwrap();
    for (path, bytes) in &all {
        let from = Path { local: path.remote, remote: path.local, carrier: path.carrier };
        for from in
            [Path { remote: stranger, ..from }, Path { carrier: Carrier::HipUdp, remote: stranger, ..from }]
        {
            let _ = world.hand(1, from, bytes);
        }
    }
    world.run(SOON);
    let new = &world.seen[before.1..];
    // An I1 and an I2 are answered where they come from; what belongs to an association is not.
    let update =
        |bytes: &[u8]| Packet::parse(bytes.strip_prefix(&[0; 4]).unwrap_or(bytes)).unwrap().header.kind;
    assert!(
        !new.iter().any(|(path, bytes)| path.remote == stranger && update(bytes) == PacketType::Update),
        "{new:?}"
    );
    let mark = world.seen.len();
    let at = world.nodes[1].address.ip();
    for (path, bytes) in questions(&world).iter().filter(|(path, _)| path.remote.ip() == at) {
        let from = Path { local: path.remote, remote: path.local, carrier: path.carrier };
        let _ = world.hand(1, from, bytes);
        // As if by protocol 139.
        let raw = from.with_ports(Carrier::RawHip, 0, 0);
        let mut bytes = bytes[4..].to_vec();
        dormouse_wire::hip::set_checksum(&mut bytes, Some((raw.remote.ip(), raw.local.ip())));
        let _ = world.hand(1, raw, &bytes);
    }
    world.run(LATER);
    assert!(world.seen.len() - mark <= 12, "{} packets", world.seen.len() - mark);
    assert_eq!(carriers(&world), UDP);
    assert!(world.joined(0, 1));
}

/// A question or an answer that is changed on the way counts for nothing.
#[test]
fn forged_questions_and_answers_are_dropped() {
    let mut world = world(13, [auto(), auto()]);
    let at = world.nodes[0].address.ip();
    world.no_udp.insert(at);
    world.connect(0, 1);
    world.run(SOON);
    assert_eq!(carriers(&world), RAW);
    let answer = questions(&world).into_iter().find(|(path, _)| path.remote.ip() == at).expect("an answer");
    let from = Path { local: answer.0.remote, remote: answer.0.local, carrier: Carrier::HipUdp };
    let mac = Packet::parse(&answer.1[4..])
        .unwrap()
        .find(ParamType::HipMac)
        .map(|mac| mac.at + 4 + mac.contents.len());
    // The checksum does not count in UDP.
    for byte in (4..mac.unwrap() + 4).filter(|byte| ![8, 9].contains(byte)) {
        let mut bytes = answer.1.clone();
        bytes[byte] ^= 1 << (byte % 8);
        assert!(world.hand(0, from, &bytes).is_err(), "byte {byte} of an answer does not matter");
        assert_eq!(esp(&world, 0).carrier, Carrier::RawEsp);
    }
    world.hand(0, from, &answer.1).expect("the real one counts");
    assert_eq!(esp(&world, 0).carrier, Carrier::HipUdp);
}
