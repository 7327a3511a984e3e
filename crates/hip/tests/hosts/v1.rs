//! Version 1 (RFC 5201, 5202, 5206): tags and checksums of others, the base exchange, rekeying, moves and ends between identities of RSA and
//! DSA, loss and repetition; beside version 2 in one host, and never in place of it.

use std::time::Duration;

use dormouse_crypto::hip::{DhGroup, HipCipher};
use dormouse_crypto::{Encr, Integ};
use dormouse_hip::{Accept, ConnectError, EspSuite, Host, HostConfig, Phase, Quirk};
use dormouse_keying::{ChildId, KeyManager};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::hip::{Packet, PacketType, Param, ParamType, Version};

use crate::world::{World, config, identity};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);
const KINDS: [[&str; 2]; 4] =
    [["v1 rsa", "v1 fresh"], ["v1 dsa", "v1 rsa"], ["v1 rsa", "v1 dsa"], ["v1 rsa 2048", "v1 dsa"]];

fn world(seed: u64, carrier: Carrier, kinds: [&str; 2], one: &HostConfig) -> World {
    World::new(seed, carrier, kinds.map(|kind| (kind, one.clone())).to_vec())
}

fn joined(seed: u64, carrier: Carrier, kinds: [&str; 2], one: &HostConfig) -> World {
    let mut world = world(seed, carrier, kinds, one);
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "seed {seed}, {kinds:?}: {:?}", world.drops);
    world
}

fn kinds(bytes: &[u8]) -> Vec<ParamType> {
    Packet::parse(bytes).unwrap().params().iter().map(|p| p.kind).collect()
}

/// Computed with Python's hashlib and the public keys that OpenSSL 3.0 writes: 2001:10::/28 and bits 30 to 129 of SHA-1 of the context and
/// the key as RFC 5201, appendix B, encodes it.
#[test]
fn tags_are_those_of_another_implementation() {
    for (kind, tag) in [
        ("v1 rsa", "2001:1f:672e:1ec2:c7c5:15f3:e438:a867"),
        ("v1 dsa", "2001:1a:191c:eb6:a3ca:5310:e368:4db3"),
        ("v1 rsa 2048", "2001:1d:8878:592f:a5c7:578b:a4e8:f619"),
    ] {
        assert_eq!(identity(kind).hit().to_string(), tag, "{kind}");
    }
}

/// What each packet has, and that nothing of version 2 is in it.
#[test]
fn packets_have_the_parameters_of_rfc_5201() {
    use ParamType as T;
    let mut world = joined(1, Carrier::RawHip, KINDS[0], &config());
    world.rekey(0);
    world.run(SOON);
    let id = world.nodes[0].host.describe().next().unwrap().id;
    world.act(0, |host, now| host.close(now, id));
    world.run(SOON);
    let expected: [&[T]; 9] = [
        &[],
        &[
            T::R1CounterV1,
            T::Puzzle,
            T::DiffieHellman,
            T::HipTransform,
            T::HostId,
            T::EspTransform,
            T::HipSignature2,
        ],
        &[
            T::EspInfo,
            T::R1CounterV1,
            T::Solution,
            T::DiffieHellman,
            T::HipTransform,
            T::Encrypted,
            T::EspTransform,
            T::HipMac,
            T::HipSignature,
        ],
        &[T::EspInfo, T::HipMac2, T::HipSignature],
        &[T::EspInfo, T::Seq, T::DiffieHellman, T::HipMac, T::HipSignature],
        &[T::EspInfo, T::Seq, T::Ack, T::DiffieHellman, T::HipMac, T::HipSignature],
        &[T::Ack, T::HipMac, T::HipSignature],
        &[T::EchoRequestSigned, T::HipMac, T::HipSignature],
        &[T::EchoResponseSigned, T::HipMac, T::HipSignature],
    ];
    assert_eq!(world.seen.len(), expected.len());
    for ((_, bytes), expected) in world.seen.iter().zip(expected) {
        let packet = Packet::parse(bytes).unwrap();
        assert_eq!(packet.header.version, Version::V1);
        assert_eq!(kinds(bytes), expected, "{}", packet.header.kind);
    }
    let r1 = Packet::parse(&world.seen[1].1).unwrap();
    let Some(Param::Puzzle(puzzle)) = r1.read(T::Puzzle) else { panic!("no PUZZLE") };
    assert_eq!(puzzle.i.len(), 8);
    let Some(Param::DiffieHellman(values)) = r1.read(T::DiffieHellman) else { panic!("no value") };
    assert_eq!(values.iter().map(|v| (v.group, v.public.len())).collect::<Vec<_>>(), [(4, 384), (3, 192)]);
    assert_eq!(r1.read(T::HipTransform), Some(Param::Numbers(T::HipTransform, vec![1])));
    assert_eq!(r1.read(T::EspTransform), Some(Param::Suites(T::EspTransform, vec![1])));
    let Some(Param::HostId(host_id)) = r1.read(T::HostId) else { panic!("no HOST_ID") };
    assert_eq!(host_id.key[..8], [2, 2, 0xff, 5, 3, 1, 0, 1]);
    let i2 = Packet::parse(&world.seen[2].1).unwrap();
    let Some(Param::Solution(solution)) = i2.read(T::Solution) else { panic!("no SOLUTION") };
    assert_eq!((solution.i, solution.j.len()), (puzzle.i, 8));
}

/// Every byte of an association, signatures too: RSA has one signature, and the nonce of DSA is that of RFC 6979. golden-v1.txt has one packet
/// a line; Python's hashlib and integers found every signature and the puzzle's solution right.
#[test]
fn a_whole_association_is_golden() {
    let one = HostConfig { groups: vec![DhGroup::Modp1536], ..config() };
    let mut world = joined(7, Carrier::RawHip, ["v1 rsa", "v1 dsa"], &one);
    world.rekey(0);
    world.run(SOON);
    let id = world.nodes[0].host.describe().next().unwrap().id;
    world.act(0, |host, now| host.close(now, id));
    world.run(SOON);
    let lines: Vec<String> = world.seen.iter().map(|(_, bytes)| hex::encode(bytes)).collect();
    let golden: Vec<&str> =
        include_str!("../golden-v1.txt").lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines, golden);
}

#[test]
fn every_pair_of_identities_comes_together_rekeys_moves_and_ends() {
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        for kinds in KINDS {
            let mut world = joined(2, carrier, kinds, &config());
            for node in [0, 1] {
                let install = world.nodes[node].plane.installed.values().next().unwrap();
                let (encr, integ) = (Encr::Aes128Cbc, Some(Integ::HmacSha1_96));
                assert_eq!((install.encr, install.integ, install.esn), (encr, integ, true));
            }
            let before = world.child(1);
            world.rekey(1);
            world.run(SOON);
            assert!(world.joined(0, 1) && world.child(1) != before, "{kinds:?}: {:?}", world.drops);
            world.place(0, "198.51.100.7");
            world.run(SOON);
            let there = world.nodes[1].host.describe().next().unwrap().path.remote.ip();
            assert_eq!(there, world.nodes[0].address.ip(), "{kinds:?}: {:?}", world.drops);
            let id = world.nodes[0].host.describe().next().unwrap().id;
            world.act(0, |host, now| host.close(now, id));
            world.run(SOON);
            assert_eq!(world.nodes[1].plane.closed[0].1, "the peer closed the association", "{kinds:?}");
            assert_eq!(world.nodes[0].host.describe().count(), 0);
        }
    }
}

/// The initiator takes the stronger of two groups that it has; groups of version 2 alone are none.
#[test]
fn groups_are_those_of_modp() {
    let with = |groups: &[DhGroup]| HostConfig { groups: groups.to_vec(), ..config() };
    let lab = DhGroup::for_measurement(1).unwrap();
    use DhGroup::{Ecp256, Modp1536, Modp2048, Modp3072};
    for (ours, theirs, chosen) in [
        (vec![Ecp256, Modp3072, Modp1536], vec![Modp3072, Modp1536], Some(4)),
        (vec![Modp1536], vec![Modp3072, Modp1536], Some(3)),
        (vec![Modp1536, Modp3072], vec![Modp3072, Modp1536], Some(3)),
        (vec![lab], vec![lab], Some(1)),
        (vec![Modp3072], vec![Modp1536], None),
        (vec![Ecp256, Modp2048], vec![Modp1536], None),
    ] {
        let hosts = vec![("v1 rsa", with(&ours)), ("v1 fresh", with(&theirs))];
        let mut world = World::new(3, Carrier::RawHip, hosts);
        world.connect(0, 1);
        world.run(SOON);
        assert_eq!(world.joined(0, 1), chosen.is_some(), "{ours:?}: {:?}", world.drops);
        let Some(chosen) = chosen else { continue };
        let (_, i2) = world.last(PacketType::I2);
        let Some(Param::DiffieHellman(values)) = Packet::parse(&i2).unwrap().read(ParamType::DiffieHellman)
        else {
            panic!("no value")
        };
        assert_eq!((values.len(), values[0].group), (1, chosen));
    }
}

/// What all can read is offered behind what they cannot, if it is named.
#[test]
fn suites_without_encryption_must_be_named() {
    let open =
        HostConfig { ciphers: vec![HipCipher::Null], esp_suites: vec![EspSuite::NullSha256], ..config() };
    let world = joined(4, Carrier::RawHip, KINDS[0], &open);
    let (_, r1) = world.last(PacketType::R1);
    let r1 = Packet::parse(&r1).unwrap();
    assert_eq!(r1.read(ParamType::HipTransform), Some(Param::Numbers(ParamType::HipTransform, vec![1, 5])));
    assert_eq!(r1.read(ParamType::EspTransform), Some(Param::Suites(ParamType::EspTransform, vec![1, 5])));
}

#[test]
fn it_completes_under_loss_and_repetition() {
    let mut came_together = 0;
    for seed in 0..30 {
        let one = HostConfig { groups: vec![DhGroup::Modp1536], ..config() };
        let mut world = world(seed, Carrier::RawHip, KINDS[seed as usize % KINDS.len()], &one);
        (world.lost, world.doubled) = (200, 200);
        world.connect(0, 1);
        world.run(LATER);
        if world.nodes[0].plane.closed.is_empty() {
            assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
            world.place(0, "198.51.100.7");
            world.rekey(1);
            world.run(LATER);
            world.lost = 0;
            world.run(LATER);
        }
        let ended = world.nodes.iter().any(|n| !n.plane.closed.is_empty());
        assert!(world.joined(0, 1) || ended, "seed {seed}: {:?}", world.drops);
        assert!(world.nodes[1].plane.established <= 1, "seed {seed}: one exchange, one association");
        came_together += u32::from(world.joined(0, 1));
    }
    assert!(came_together >= 25, "{came_together} of 30");
}

/// A host with an identity of each version speaks with peers of both, each in its own.
#[test]
fn both_versions_live_in_one_host() {
    let hosts = vec![("p256", config()), ("v1 rsa", config()), ("p384", config())];
    let mut world = World::new(5, Carrier::RawHip, hosts);
    let (old, new) = (identity("v1 dsa"), identity("p256"));
    let tags = [old.hit(), new.hit()];
    let spis = Box::new(std::collections::BTreeSet::<ChildId>::new());
    world.nodes[0].host = Host::new(config(), vec![new, old], spis, Box::new(Seeded::new(9)));
    let address = world.nodes[0].address.ip();
    world.act(0, |host, now| host.set_addresses(now, &[address]));
    for (node, ours) in [(1, tags[0]), (2, tags[1])] {
        let (peer, whereabouts) = (world.nodes[node].tag, world.whereabouts(node));
        world.act(0, |host, now| {
            host.set_peer(peer, Some(whereabouts));
            assert_eq!(host.tag_towards(peer), Some(ours));
            assert!(host.want_tunnel(now, (crate::relay::ANY, peer.0.into()), true));
        });
        world.nodes[0].tag = ours;
        world.run(SOON);
        assert_eq!(
            world.nodes[node].host.describe().next().map(|d| (d.peer, d.phase)),
            Some((ours, Phase::Established))
        );
        let path = world.path(0, node);
        let other = if ours == tags[0] { tags[1] } else { tags[0] };
        let wrong = world.act(0, |host, now| host.connect(now, other, peer, &[path]));
        assert_eq!(wrong, Err(ConnectError::OtherVersion(peer)));
    }
    let versions: Vec<Version> =
        world.seen.iter().map(|(_, b)| Packet::parse(b).unwrap().header.version).collect();
    assert_eq!(versions, [[Version::V1; 4], [Version::V2; 4]].concat());
}

/// A host that speaks version 1 with one peer does not answer others in it, not even one that is admitted in version 2, or that asks for any
/// host. The association ends when version 1 is taken from its peer.
#[test]
fn version_1_is_for_those_for_whom_it_was_asked() {
    for opportunistic in [false, true] {
        let admitted = identity("v1 rsa").hit();
        let one = HostConfig { accept_v1: Accept::Listed([admitted].into()), opportunistic, ..config() };
        let mut world = World::new(
            7,
            Carrier::RawHip,
            vec![("v1 rsa", config()), ("v1 rsa 2048", config()), ("v1 dsa", one)],
        );
        let i1 = |world: &mut World, from: usize| {
            world.connect(from, 2);
            let (path, mut i1) = world.last(PacketType::I1);
            if opportunistic {
                i1[24..40].fill(0);
                dormouse_wire::hip::set_checksum(&mut i1, Some((path.local.ip(), path.remote.ip())));
            }
            world.hand(2, Path { local: path.remote, remote: path.local, ..path }, &i1)
        };
        let said = i1(&mut world, 1);
        assert_eq!(said.unwrap_err().0, "version 1 of a host with which it is not spoken");
        assert_eq!(i1(&mut world, 0), Ok(()));
        world.run(SOON);
        assert!(world.joined(0, 2), "{:?}", world.drops);
        assert_eq!((world.count(PacketType::R2), world.nodes[1].plane.established), (1, 0));
        world.act(2, |host, now| host.set_accept(now, Accept::Any, Accept::Listed([].into())));
        world.run(SOON);
        assert_eq!(world.nodes[0].plane.closed[0].1, "the peer closed the association");
    }
}

/// A packet whose version is not that of its tags does nothing, and an old peer does not reach a host without such an identity.
#[test]
fn versions_do_not_cross() {
    for kinds in [["p256", "p256"], KINDS[0]] {
        let mut world = world(6, Carrier::RawHip, kinds, &config());
        world.connect(0, 1);
        let (path, mut i1) = world.last(PacketType::I1);
        i1[3] ^= 0x30;
        let path = Path { local: path.remote, remote: path.local, ..path };
        dormouse_wire::hip::set_checksum(&mut i1, Some((path.remote.ip(), path.local.ip())));
        let said = world.hand(1, path, &i1);
        assert_eq!(said.unwrap_err().0, "from a host without a usable tag");
        assert_eq!(world.count(PacketType::R1), 0);
    }
    let mut world = World::new(6, Carrier::RawHip, vec![("v1 rsa", config()), ("p256", config())]);
    let (ours, path) = (world.nodes[0].tag, world.path(0, 1));
    let old = identity("v1 dsa").hit();
    world.act(0, |host, now| host.connect(now, ours, old, &[path])).unwrap();
    world.run(SOON);
    assert!(world.drops.contains(&"for another host") && world.count(PacketType::R1) == 0);
}

/// The old C implementation: HIP as protocol 139, ESP in UDP, sequence numbers of 32 bits; also after a move.
#[test]
fn esp_may_go_in_udp_while_hip_does_not() {
    let mut world = world(8, Carrier::RawHip, KINDS[1], &config());
    let quirks = [Quirk::EspInUdp, Quirk::EspSequence32];
    for node in [0, 1] {
        let peer = world.nodes[1 - node].tag;
        world.act(node, |host, _| host.set_quirks(peer, quirks.into_iter().collect()));
    }
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    let esp = |world: &World, node: usize| *world.nodes[node].plane.path.values().next_back().unwrap();
    for node in [0, 1] {
        let path = esp(&world, node);
        assert_eq!((path.carrier, path.local.port(), path.remote.port()), (Carrier::HipUdp, 10_500, 10_500));
        assert!(world.nodes[node].plane.installed.values().all(|i| !i.esn));
    }
    // ESP that comes from elsewhere is asked after there, by HIP.
    let known = esp(&world, 1);
    let from = Path { remote: "198.51.100.9:10500".parse().unwrap(), ..known };
    let owner = dormouse_keying::Owner::Hip(world.nodes[1].host.describe().next().unwrap().id);
    world.act(1, |host, now| host.observed_path(now, owner, from));
    let (asked, _) = world.last(PacketType::Update);
    assert_eq!((asked.carrier, asked.remote.to_string()), (Carrier::RawHip, "198.51.100.9:0".to_owned()));
    world.run(LATER);
    world.place(0, "198.51.100.7");
    world.run(SOON);
    let path = esp(&world, 1);
    assert_eq!((path.carrier, path.remote.to_string()), (Carrier::HipUdp, "198.51.100.7:10500".to_owned()));
}
