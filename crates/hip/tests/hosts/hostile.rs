//! Hostile input: floods, replays, wrong solutions and signatures, forged packets, strangers, and any bytes; each with what it may cost.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_crypto::HashAlg;
use dormouse_hip::config::Difficulty;
use dormouse_hip::puzzle::Puzzle;
use dormouse_hip::{Accept, ConnectError, HostConfig};
use dormouse_keying::{Discard, KeyManager};
use dormouse_sansio::{Carrier, Entropy, Path, Seeded};
use dormouse_wire::hip::{
    Draft, Header, Hit, Notification, NotifyType, Packet, PacketType, Param, ParamType, Signature, Solution,
    Version,
};

use crate::world::{World, config, identity, mirrored, whole};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);

fn world(seed: u64) -> World {
    World::new(seed, Carrier::RawHip, vec![("p256", config()), ("p256", config())])
}

/// Nothing is kept of initiators before they have worked, and one signature serves them all.
#[test]
fn a_flood_of_i1_packets_leaves_nothing_behind() {
    let mut world = world(1);
    let (receiver, path) = (world.nodes[1].tag, world.path(1, 0));
    for n in 0..5_000_u32 {
        let mut octets = receiver.octets();
        octets[8..12].copy_from_slice(&n.to_be_bytes());
        let sender = Hit(octets.into());
        let header = Header { kind: PacketType::I1, version: Version::V2, controls: 0, sender, receiver };
        let mut draft = Draft::new(&header);
        draft.add(&Param::DhGroupList(vec![8, 7]));
        let from = std::net::Ipv4Addr::from(0x0a00_0000 + n);
        let path = Path { remote: (from, 0).into(), ..path };
        let bytes = whole(draft.finish().unwrap(), mirrored(path));
        world.hand(1, path, &bytes).unwrap();
    }
    let stats = world.nodes[1].host.stats();
    assert_eq!((stats.i1, stats.i2_computed, stats.verified), (5_000, 0, 0));
    assert!(stats.r1 <= 5_000 && stats.r1 > 4_000, "{stats:?}");
    assert!(stats.r1_signed < 10, "one for each difficulty: {stats:?}");
    assert_eq!(world.nodes[1].host.describe().count(), 0);
    let (_, last) = world.last(PacketType::R1);
    let Some(Param::Puzzle(puzzle)) = Packet::parse(&last).unwrap().read(ParamType::Puzzle) else {
        panic!("no PUZZLE")
    };
    assert!(puzzle.k > config().difficulty.idle, "load makes puzzles harder");
    let timers: Vec<&str> = world.nodes[1].host.timers().iter().map(|d| d.why).collect();
    assert_eq!(timers, ["HIP: R1 packets ahead"]);
}

/// An I1 that names no receiver is answered only while that is permitted, which changes while the host runs.
#[test]
fn an_i1_without_a_receiver_is_answered_if_permitted() {
    let mut world = world(15);
    let (sender, path) = (world.nodes[0].tag, world.path(1, 0));
    let header =
        Header { kind: PacketType::I1, version: Version::V2, controls: 0, sender, receiver: Hit::NULL };
    let mut draft = Draft::new(&header);
    draft.add(&Param::DhGroupList(vec![8, 7]));
    let i1 = whole(draft.finish().unwrap(), mirrored(path));
    for (on, answers) in [(None, 0), (Some(true), 1), (Some(false), 1), (Some(true), 2)] {
        if let Some(on) = on {
            world.act(1, |host, _| host.set_opportunistic(on));
        }
        let answered = world.hand(1, path, &i1);
        assert_eq!(answered.is_ok(), on == Some(true), "{on:?}: {answered:?}");
        assert_eq!(world.count(PacketType::R1), answers, "{on:?}");
    }
}

/// An I2 with anything changed in its solution costs a MAC and a hash, and nothing is answered.
#[test]
fn wrong_solutions_are_cheap() {
    // Hard enough that a change does not solve it by chance.
    let difficulty = Difficulty { idle: 14, ..config().difficulty };
    let hosts = vec![("p256", config()), ("p256", HostConfig { difficulty, ..config() })];
    let mut world = World::new(2, Carrier::RawHip, hosts);
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let (path, good) = world.last(PacketType::I2);
    let at = Packet::parse(&good).unwrap().find(ParamType::Solution).unwrap().at;
    let sent = world.seen.len();
    // K, the random number, the solution; then the generation.
    let counter = Packet::parse(&good).unwrap().find(ParamType::R1Counter).unwrap().at;
    let places = [at + 4, at + 8, at + 20, at + 56, at + 80, counter + 15];
    for place in places {
        let mut bad = good.clone();
        bad[place] ^= 1;
        let bad = whole(bad, path);
        assert_eq!(
            world.hand(1, mirrored(path), &bad),
            Err(Discard("an I2 with a wrong solution")),
            "{place}"
        );
    }
    let elsewhere = Path { remote: "203.0.113.5:0".parse().unwrap(), ..mirrored(path) };
    let moved = whole(good.clone(), mirrored(elsewhere));
    assert!(world.hand(1, elsewhere, &moved).is_err(), "solved for another address");
    let stats = world.nodes[1].host.stats();
    assert_eq!((stats.bad_solutions, stats.i2_computed, stats.verified), (places.len() as u64 + 1, 0, 0));
    assert_eq!(world.seen.len(), sent, "no answer");
    world.run(SOON);
    assert!(world.joined(0, 1), "the real one is accepted");
}

/// A recorded I2 neither disturbs an association nor makes one after its end; a generation that is over accepts nothing.
#[test]
fn a_replayed_i2_does_nothing() {
    let mut world = world(3);
    let id = world.connect(0, 1);
    world.run(SOON);
    let (path, i2) = world.last(PacketType::I2);
    world.hand(1, mirrored(path), &i2).unwrap();
    assert_eq!(world.count(PacketType::R2), 2, "at first it may be a repetition");
    world.run(LATER);
    let used = Err(Discard("an I2 with a solution that was used"));
    assert_eq!(world.hand(1, mirrored(path), &i2), used);
    assert!(world.joined(0, 1));
    world.act(0, |host, now| host.close(now, id));
    world.run(LATER * 3);
    assert_eq!(world.hand(1, mirrored(path), &i2), used);
    world.run(Duration::from_secs(1_900));
    assert_eq!(world.hand(1, mirrored(path), &i2), Err(Discard("an I2 with a wrong solution")));
    assert_eq!(world.nodes[1].host.describe().count(), 0);
    assert_eq!(world.nodes[1].plane.established, 1);
    assert_eq!(world.nodes[1].host.stats().i2_computed, 1, "one Diffie-Hellman computation in all");
}

/// Who has seen an I2 and sends it with another end makes the responder compute a few times, and not for ever; the real one is late and
/// counts.
#[test]
fn a_solution_is_not_worth_work_without_end() {
    for (forged, joins) in [(4, true), (50, false)] {
        let mut world = world(12);
        world.connect(0, 1);
        while world.count(PacketType::I2) == 0 {
            let end = world.now + SOON;
            world.step(end);
        }
        let (path, mut bad) = world.last(PacketType::I2);
        let mac = Packet::parse(&bad).unwrap().find(ParamType::HipMac).unwrap().at;
        bad[mac + 4] ^= 1;
        for _ in 0..forged {
            assert!(world.hand(1, mirrored(path), &whole(bad.clone(), path)).is_err());
        }
        assert_eq!(world.nodes[1].host.stats().i2_computed, forged.min(8));
        world.run(SOON);
        assert_eq!(world.joined(0, 1), joins, "{forged}");
    }
}

/// An I2 that is right as far as its solution: for a puzzle that a host got which is not there, at this address.
fn i2_of(world: &mut World, sender: Hit, path: Path) -> (Puzzle, impl Fn(&[u8]) -> Vec<u8> + use<>) {
    let receiver = world.nodes[1].tag;
    let header = |kind| Header { kind, version: Version::V2, controls: 0, sender, receiver };
    let mut draft = Draft::new(&header(PacketType::I1));
    draft.add(&Param::DhGroupList(vec![8, 7]));
    world.hand(1, path, &whole(draft.finish().unwrap(), mirrored(path))).unwrap();
    let (_, r1) = world.last(PacketType::R1);
    let r1 = Packet::parse(&r1).unwrap();
    let Some(Param::Puzzle(given)) = r1.read(ParamType::Puzzle) else { panic!("no PUZZLE") };
    let [counter, key] = [ParamType::R1Counter, ParamType::DiffieHellman].map(|kind| r1.read(kind).unwrap());
    let (k, i, header) = (given.k, given.i, header(PacketType::I2));
    let puzzle = Puzzle { hash: HashAlg::Sha384, k, i: i.clone(), initiator: sender, responder: receiver };
    let write = move |j: &[u8]| {
        let mut draft = Draft::new(&header);
        draft.add(&counter);
        draft.add(&Param::Solution(Solution { k, reserved: 0, opaque: [0; 2], i: i.clone(), j: j.to_vec() }));
        draft.add(&key);
        whole(draft.finish().unwrap(), mirrored(path))
    };
    (puzzle, write)
}

/// Solutions of a puzzle, which has as many as anyone likes.
fn solutions(puzzle: &Puzzle) -> impl Iterator<Item = Vec<u8>> + '_ {
    let numbers = (0_u64..).map(|n| [&[0; 40][..], &n.to_be_bytes()].concat());
    numbers.filter(|j| puzzle.is_solved_by(j))
}

fn stranger(world: &World, n: u32) -> Hit {
    let mut octets = world.nodes[1].tag.octets();
    octets[8..12].copy_from_slice(&n.to_be_bytes());
    Hit(octets.into())
}

/// One answer to an I1 does not buy work without end: its random number stays the same, and solutions of easy puzzles are for free.
#[test]
fn one_puzzle_is_not_worth_work_without_end() {
    let mut world = world(16);
    let path = world.path(1, 0);
    let sender = stranger(&world, 1);
    let (puzzle, write) = i2_of(&mut world, sender, path);
    for j in solutions(&puzzle).take(500) {
        assert!(world.hand(1, path, &write(&j)).is_err());
    }
    let stats = world.nodes[1].host.stats();
    let permitted = config().difficulty.i2_from_one_address;
    assert_eq!((stats.i2_computed, stats.i2_dropped), (permitted.into(), u64::from(500 - permitted)));
    assert_eq!(world.count(PacketType::Notify), permitted as usize);
    // The owner of the tag has the same random number for as long as this generation lasts, and is not locked out.
    world.run(SOON * 3);
    let j = solutions(&puzzle).nth(501).unwrap();
    assert!(world.hand(1, path, &write(&j)).is_err());
    assert_eq!(world.nodes[1].host.stats().i2_computed, u64::from(permitted) + 1);
}

/// Who solves puzzles for many tags at one address causes so much work in a second, and is not answered beyond it.
#[test]
fn work_for_one_address_is_bounded() {
    let mut world = world(17);
    let path = world.path(1, 0);
    for n in 0..120 {
        let sender = stranger(&world, n);
        let (puzzle, write) = i2_of(&mut world, sender, path);
        let j = solutions(&puzzle).next().unwrap();
        assert!(world.hand(1, path, &write(&j)).is_err());
    }
    let stats = world.nodes[1].host.stats();
    let permitted = u64::from(config().difficulty.i2_from_one_address);
    assert_eq!((stats.i2_computed, stats.i2_dropped), (permitted, 120 - permitted));
    assert_eq!(world.count(PacketType::Notify) as u64, permitted);
    world.connect(0, 1);
    world.run(SOON * 3);
    assert!(world.joined(0, 1), "a second later there is time again: {:?}", world.drops);
}

/// Senders who solve puzzles from many addresses get harder ones, and what they have solved before counts no more; an honest one gets
/// through as soon as it is given its turn.
#[test]
fn work_for_all_is_bounded_and_makes_puzzles_harder() {
    let difficulty = Difficulty { i2_a_second: 20, ..config().difficulty };
    let hosts = vec![("p256", config()), ("p256", HostConfig { difficulty, ..config() })];
    let mut world = World::new(18, Carrier::RawHip, hosts);
    let from = |n: u32| std::net::SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + n), 0));
    let kept = Path { remote: from(1_000), ..world.path(1, 0) };
    let sender = stranger(&world, 1_000);
    let (easy, write_easy) = i2_of(&mut world, sender, kept);
    for second in 0..8 {
        let before = world.nodes[1].host.stats().i2_computed;
        for n in 0..40 {
            let path = Path { remote: from(second * 40 + n), ..world.path(1, 0) };
            let sender = stranger(&world, second * 40 + n);
            let (puzzle, write) = i2_of(&mut world, sender, path);
            assert!(puzzle.k >= 4 + u8::try_from(second).unwrap(), "{} in second {second}", puzzle.k);
            let j = solutions(&puzzle).next().unwrap();
            assert!(world.hand(1, path, &write(&j)).is_err());
        }
        assert_eq!(world.nodes[1].host.stats().i2_computed - before, 20);
        world.run(SOON);
    }
    let j = solutions(&easy).next().unwrap();
    let refused = Err(Discard("an I2 with an easier puzzle than the load permits"));
    assert_eq!(world.hand(1, kept, &write_easy(&j)), refused);
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
}

/// A recorded R1 that arrives before the real one does not end the exchange: the newer puzzle counts, while the old one is being solved
/// and after it.
#[test]
fn an_old_r1_gives_way_to_a_new_one() {
    for solved in [false, true] {
        let mut world = world(13);
        let id = world.connect(0, 1);
        world.run(SOON);
        let (path, old) = world.last(PacketType::R1);
        world.act(0, |host, now| host.close(now, id));
        world.run(Duration::from_secs(2_000));
        world.connect(0, 1);
        world.hand(0, mirrored(path), &old).unwrap();
        if solved {
            world.act(0, |host, now| host.handle_timeout(now));
        }
        assert_eq!(world.count(PacketType::I2), 1 + usize::from(solved));
        let (to, i1) = world.last(PacketType::I1);
        world.hand(1, mirrored(to), &i1).unwrap();
        let (_, new) = world.last(PacketType::R1);
        world.hand(0, mirrored(path), &new).unwrap();
        let not_waited_for = Err(Discard("an R1 that is not waited for"));
        assert_eq!(world.hand(0, mirrored(path), &old), not_waited_for, "not back to the old one");
        world.run(SOON);
        assert!(world.joined(0, 1), "solved {solved}: {:?}", world.drops);
    }
}

#[test]
fn forged_r1_packets_cost_few_verifications() {
    let mut world = world(14);
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let (path, mut forged) = world.last(PacketType::R1);
    let counter = Packet::parse(&forged).unwrap().find(ParamType::R1Counter).unwrap().at;
    forged[counter + 8] = 0xff;
    let verified = world.nodes[0].host.stats().verified;
    for _ in 0..50 {
        assert!(world.hand(0, mirrored(path), &whole(forged.clone(), path)).is_err());
    }
    assert!(world.nodes[0].host.stats().verified - verified <= 4);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
}

/// A packet with any byte changed is refused, and the exchange completes with the real one.
#[test]
fn a_changed_byte_anywhere_is_refused() {
    for (seed, kind) in (0..30).flat_map(|n| [PacketType::R1, PacketType::I2, PacketType::R2].map(|k| (n, k)))
    {
        let mut world = world(seed);
        world.connect(0, 1);
        while world.count(kind) == 0 {
            let end = world.now + SOON;
            world.step(end);
        }
        let (path, good) = world.last(kind);
        let to = world.nodes.iter().position(|n| n.address == path.remote).unwrap();
        let mut chance = Seeded::new(seed);
        let puzzle = Packet::parse(&good).unwrap().find(ParamType::Puzzle).map(|p| p.at + 6..p.at + 8 + 48);
        for _ in 0..5 {
            let at = chance.below(good.len() as u64) as usize;
            // Padding is not looked at; what is filled into an R1 for each initiator is not signed.
            let free = puzzle.as_ref().is_some_and(|p| p.contains(&at))
                || (4..6).contains(&at)
                || is_padding(&good, at);
            if free {
                continue;
            }
            let mut bad = good.clone();
            bad[at] ^= 1 << chance.below(8);
            let bad = whole(bad, path);
            assert!(world.hand(to, mirrored(path), &bad).is_err(), "{kind} byte {at}");
        }
        world.run(LATER);
        assert!(world.joined(0, 1), "{kind}, seed {seed}: {:?}", world.drops);
    }
}

/// Whether a byte lies behind the contents of its parameter.
fn is_padding(bytes: &[u8], at: usize) -> bool {
    let packet = Packet::parse(bytes).unwrap();
    let within = packet.params().iter().rfind(|p| p.at <= at);
    within.is_some_and(|p| at >= p.at + 4 + p.contents.len())
}

/// An R1 of another host under the responder's tag, and one that chose a weaker group than both have.
#[test]
fn an_r1_of_another_is_refused() {
    let mut world = world(5);
    world.connect(0, 1);
    world.run(Duration::from_millis(1));
    let other = identity("p256");
    let (ours, peer) = (world.nodes[0].tag, world.nodes[1].tag);
    let header =
        Header { kind: PacketType::R1, version: Version::V2, controls: 0, sender: peer, receiver: ours };
    let mut draft = Draft::new(&header);
    draft.add(&Param::HostId(other.public().host_id().clone()));
    let signature = other.sign(&draft.covered(&[])).unwrap();
    draft.add(&Param::Signature(ParamType::HipSignature2, signature));
    let path = world.path(0, 1);
    let bytes = whole(draft.finish().unwrap(), mirrored(path));
    let refused = Err(Discard("an R1 whose tag is not that of its identity"));
    assert_eq!(world.hand(0, path, &bytes), refused);
    world.run(SOON);
    assert!(world.joined(0, 1));
}

/// An attacker who removes the better groups from the I1 is found out (RFC 7401 section 4.1.7).
#[test]
fn a_downgrade_of_the_group_is_noticed() {
    let mut world = world(6);
    let (ours, peer, path) = (world.nodes[0].tag, world.nodes[1].tag, world.path(0, 1));
    let header =
        Header { kind: PacketType::I1, version: Version::V2, controls: 0, sender: ours, receiver: peer };
    let mut draft = Draft::new(&header);
    draft.add(&Param::DhGroupList(vec![3]));
    let i1 = whole(draft.finish().unwrap(), path);
    world.nodes[0].host.connect(world.now, ours, peer, &[path]).unwrap();
    world.hand(1, mirrored(path), &i1).unwrap();
    let (_, r1) = world.last(PacketType::R1);
    assert_eq!(world.hand(0, path, &r1), Err(Discard("an R1 with another group than the best")));
}

/// RFC 7401 section 5.3.2: an I2 whose public value is no point of the curve ends in silence, and the real one counts.
#[test]
fn a_public_value_outside_of_the_group_is_dropped_silently() {
    let mut world = world(18);
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let (path, mut bad) = world.last(PacketType::I2);
    let value = Packet::parse(&bad).unwrap().find(ParamType::DiffieHellman).unwrap();
    let (at, len) = (value.at + 4, value.contents.len());
    bad[at + 3..at + len].fill(0xff);
    let bad = whole(bad, path);
    let sent = world.seen.len();
    let dropped = Err(Discard("an I2 whose public value is not in the group"));
    assert_eq!(world.hand(1, mirrored(path), &bad), dropped);
    assert_eq!(world.seen.len(), sent, "no NOTIFY");
    world.run(SOON);
    assert!(world.joined(0, 1));
}

/// Only listed peers are let in; the others learn why, for they have worked, and their user sees it.
#[test]
fn a_stranger_is_refused_and_told() {
    let listed = |hits: BTreeSet<Hit>| HostConfig { accept: Accept::Listed(hits), ..config() };
    let mut world =
        World::new(7, Carrier::RawHip, vec![("p256", config()), ("p256", listed(BTreeSet::new()))]);
    world.connect(0, 1);
    world.run(LATER);
    assert_eq!(world.nodes[0].plane.closed[0].1, "BLOCKED_BY_POLICY");
    assert!(world.nodes[1].plane.log.iter().all(|l| l == "refused") && !world.nodes[1].plane.log.is_empty());
    assert_eq!(world.nodes[1].host.describe().count(), 0);
}

/// Whom an operator denies loses what there is and gets nothing new, in either direction, until it is allowed again.
#[test]
fn a_denied_peer_is_out_at_once() {
    let mut world = world(12);
    let (ours, peer, path) = (world.nodes[1].tag, world.nodes[0].tag, world.path(1, 0));
    world.connect(0, 1);
    world.run(SOON);
    assert_eq!(world.act(1, |host, now| host.deny(now, peer)), 1);
    world.run(SOON);
    assert!(world.nodes.iter().all(|n| n.plane.installed.is_empty()));
    assert_eq!(
        world.act(1, |host, now| host.connect(now, ours, peer, &[path])),
        Err(ConnectError::Denied(peer))
    );
    world.connect(0, 1);
    world.run(LATER);
    assert_eq!(world.nodes[0].plane.closed.last().unwrap().1, "BLOCKED_BY_POLICY");
    assert!(world.nodes[1].host.allow(peer) && !world.nodes[1].host.allow(peer));
    world.connect(0, 1);
    world.run(SOON);
    assert_eq!(world.nodes[1].plane.installed.len(), 1);
}

/// A NOTIFY without the responder's signature changes nothing, and costs a bounded number of verifications.
#[test]
fn forged_notifications_are_ignored() {
    let mut world = world(8);
    world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let verified = world.nodes[0].host.stats().verified;
    let (ours, peer, path) = (world.nodes[0].tag, world.nodes[1].tag, world.path(0, 1));
    let header =
        Header { kind: PacketType::Notify, version: Version::V2, controls: 0, sender: peer, receiver: ours };
    let mut draft = Draft::new(&header);
    let kind = NotifyType::BlockedByPolicy;
    draft.add(&Param::Notification(Notification { kind, data: Vec::new() }));
    draft.add(&Param::Signature(ParamType::HipSignature, Signature { algorithm: 7, signature: vec![1; 64] }));
    let forged = whole(draft.finish().unwrap(), mirrored(path));
    for _ in 0..100 {
        assert!(world.hand(0, path, &forged).is_err());
    }
    assert_eq!(world.nodes[0].host.stats().verified - verified, 4);
    // A status is no error, and costs nothing.
    let mut draft = Draft::new(&header);
    let kind = NotifyType::I2Acknowledgement;
    draft.add(&Param::Notification(Notification { kind, data: Vec::new() }));
    assert_eq!(world.hand(0, path, &whole(draft.finish().unwrap(), mirrored(path))), Ok(()));
    assert_eq!(world.nodes[0].host.stats().verified - verified, 4);
    world.run(SOON);
    assert!(world.joined(0, 1));
}

/// UPDATE, CLOSE and CLOSE_ACK of others, and our own sent back, change nothing.
#[test]
fn forged_and_reflected_packets_of_an_association_change_nothing() {
    let mut world = world(9);
    world.connect(0, 1);
    world.run(SOON);
    let child = world.nodes[0].host.describe().next().unwrap().child.unwrap();
    world.act(0, |host, now| host.rekey_child(now, child));
    world.run(LATER);
    let packets = world.seen.clone();
    let log = world.nodes[1].plane.log.clone();
    for (path, bytes) in &packets {
        let from = mirrored(*path);
        let to = world.nodes.iter().position(|n| n.address == path.remote).unwrap();
        // Once more, and with another MAC.
        let _ = world.hand(to, from, bytes);
        if let Some(mac) = Packet::parse(bytes).unwrap().find(ParamType::HipMac) {
            let mut bad = bytes.clone();
            bad[mac.at + 4] ^= 1;
            assert!(world.hand(to, from, &whole(bad, *path)).is_err());
        }
        // To its own sender.
        assert!(world.hand(1 - to, *path, &whole(bytes.clone(), from)).is_err());
    }
    world.run(LATER);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    assert_eq!(world.nodes[1].plane.log, log);
    assert!(world.nodes.iter().all(|n| n.plane.installed.len() == 1));
}

#[test]
fn no_more_associations_than_are_permitted() {
    let full = HostConfig { max_associations: 1, ..config() };
    let hosts = vec![("p256", full), ("p256", config()), ("p256", config())];
    let mut world = World::new(10, Carrier::RawHip, hosts);
    world.connect(1, 0);
    world.run(SOON);
    world.connect(2, 0);
    world.run(LATER);
    assert_eq!(world.nodes[0].host.describe().count(), 1);
    assert!(world.joined(0, 1));
    assert!(world.drops.contains(&"as many associations as are permitted"));
}

/// Any bytes, and real packets with random changes, in every state.
#[test]
fn any_bytes_are_survived_in_every_state() {
    let mut chance = Seeded::new(11);
    for seed in 0..30 {
        let mut world = world(seed);
        let id = world.connect(0, 1);
        for round in 0..60 {
            if round == 30 {
                let child = world.nodes[0].host.describe().next().and_then(|d| d.child);
                child.into_iter().for_each(|child| world.act(0, |host, now| host.rekey_child(now, child)));
            }
            if round == 50 {
                world.act(0, |host, now| host.close(now, id));
            }
            let end = world.now + Duration::from_millis(20);
            world.step(end);
            let pick = chance.below(world.seen.len() as u64) as usize;
            let (path, mut bytes) = world.seen[pick].clone();
            for _ in 0..chance.below(4) {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] = chance.below(256) as u8;
            }
            if chance.below(8) == 0 {
                bytes.truncate(chance.below(bytes.len() as u64) as usize);
            }
            let bytes = whole(bytes, path);
            let to = world.nodes.iter().position(|n| n.address == path.remote).unwrap();
            let _ = world.hand(to, mirrored(path), &bytes);
        }
        world.run(LATER);
    }
}
