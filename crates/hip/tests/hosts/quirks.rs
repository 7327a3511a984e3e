//! Peers that depart from the RFCs: with each departure at both ends, and at one end alone.

use std::time::Duration;

use dormouse_crypto::hip::DhGroup;
use dormouse_crypto::{Encr, Integ};
use dormouse_hip::config::Difficulty;
use dormouse_hip::{EspSuite, HostConfig, Phase, Quirk, Quirks, Registrar};
use dormouse_keying::{Discard, Install};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Packet, PacketType, Param, ParamType};

use crate::world::{World, config, mirrored};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);

/// Two hosts of which some take the other for one with these quirks.
fn world(seed: u64, one: &HostConfig, quirks: &[Quirk], at: &[usize]) -> World {
    world_of(["known p256", "known p384"], seed, one, quirks, at)
}

/// The same with these identities.
fn world_of(kinds: [&str; 2], seed: u64, one: &HostConfig, quirks: &[Quirk], at: &[usize]) -> World {
    let hosts = kinds.map(|kind| (kind, one.clone())).to_vec();
    let mut world = World::new(seed, Carrier::RawHip, hosts);
    at.iter().for_each(|node| set(&mut world, *node, quirks));
    world
}

fn set(world: &mut World, node: usize, quirks: &[Quirk]) {
    let peer = world.nodes[1 - node].tag;
    world.act(node, |host, _| host.set_quirks(peer, quirks.iter().copied().collect()));
}

/// Whether the two come together, and go on to end it.
fn works(mut world: World) -> bool {
    let id = world.connect(0, 1);
    world.run(SOON * 40);
    let joined = world.joined(0, 1);
    world.act(0, |host, now| host.check(now, id));
    world.act(0, |host, now| host.close(now, id));
    world.run(SOON);
    joined && world.nodes[1].plane.closed.first().is_some_and(|c| c.1 == "the peer closed the association")
}

fn kinds(bytes: &[u8]) -> Vec<ParamType> {
    Packet::parse(bytes).unwrap().params().iter().map(|p| p.kind).collect()
}

fn installed(world: &World, node: usize) -> &Install {
    world.nodes[node].plane.installed.values().next().expect("a pair")
}

#[test]
fn each_works_where_both_ends_have_it() {
    let suites = HostConfig { esp_suites: vec![EspSuite::NullSha256], ..config() };
    let v1 = ["v1 rsa", "v1 dsa"];
    for quirk in Quirk::ALL {
        for one in [&config(), &suites] {
            assert!(works(world(1, one, &[quirk], &[0, 1])), "{quirk}");
            assert!(works(world_of(v1, 1, one, &[quirk], &[0, 1])), "{quirk} in version 1");
        }
    }
    assert!(works(world_of(v1, 1, &suites, &Quirk::ALL, &[0, 1])), "all of them in version 1");
    for seed in 0..20 {
        assert!(works(world(seed, &suites, &Quirk::ALL, &[0, 1])), "all of them, seed {seed}");
    }
    assert!(works(world(1, &config(), &[], &[0, 1])));
}

/// All that do not forbid it, together, in both versions: the association is rekeyed by either end, moves, is rekeyed again, and ends.
#[test]
fn all_that_allow_it_are_rekeyed_and_move() {
    let moving = Quirk::ALL.into_iter().filter(|q| ![Quirk::Bare, Quirk::KnownParametersOnly].contains(q));
    let moving: Vec<Quirk> = moving.collect();
    let suites = [vec![EspSuite::NullSha256], vec![EspSuite::Aes128CbcSha256]];
    for (kinds, suites) in
        [(["known p256", "known p384"], suites[0].clone()), (["known p256", "known p384"], suites[1].clone())]
            .into_iter()
            .chain([(["v1 rsa", "v1 dsa"], config().esp_suites)])
    {
        let one = HostConfig { esp_suites: suites, ..config() };
        let mut world = World::new(12, Carrier::RawHip, kinds.map(|kind| (kind, one.clone())).to_vec());
        [0, 1].into_iter().for_each(|node| set(&mut world, node, &moving));
        let id = world.connect(0, 1);
        world.run(SOON * 2);
        let mut children = vec![world.nodes[0].host.describe().next().unwrap().child];
        for (node, address) in [(0, "203.0.113.7"), (1, "203.0.113.8")] {
            let child = world.nodes[node].host.describe().next().unwrap().child.unwrap();
            world.act(node, |host, now| dormouse_keying::KeyManager::rekey_child(host, now, child));
            world.run(SOON * 2);
            assert!(world.joined(0, 1), "{kinds:?} rekeyed by {node}: {:?}", world.drops);
            world.place(0, address);
            world.run(SOON * 2);
            assert!(world.joined(0, 1), "{kinds:?} at {address}: {:?}", world.drops);
            children.push(world.nodes[0].host.describe().next().unwrap().child);
        }
        children.dedup();
        assert_eq!(children.len(), 3, "{kinds:?}: each rekeying made another pair");
        assert_eq!(world.nodes[0].host.describe().next().unwrap().id, id, "one association for all of it");
        world.act(0, |host, now| host.close(now, id));
        world.run(LATER * 2);
        assert!(world.nodes.iter().all(|n| n.host.describe().count() == 0), "{kinds:?}: {:?}", world.drops);
    }
}

#[test]
fn an_exchange_with_an_ordinary_peer_fails_with_these() {
    let difficulty = Difficulty { idle: 12, ..config().difficulty };
    let one = HostConfig { difficulty, esp_suites: vec![EspSuite::NullSha256], ..config() };
    use Quirk::{EspIcv32, ExchangeMacsSwapped, NullIv16, PuzzleHitsSwapped, R2Signature2};
    for quirk in [PuzzleHitsSwapped, ExchangeMacsSwapped, R2Signature2, EspIcv32, NullIv16] {
        for node in [0, 1] {
            assert!(!works(world(2, &one, &[quirk], &[node])), "{quirk} at {node}");
        }
    }
    for quirk in [PuzzleHitsSwapped, ExchangeMacsSwapped, R2Signature2] {
        for node in [0, 1] {
            let world = world_of(["v1 rsa", "v1 dsa"], 2, &one, &[quirk], &[node]);
            assert!(!works(world), "{quirk} at {node} in version 1");
        }
    }
}

/// The MACs of UPDATE and CLOSE have the keys that they have in the RFC: a peer that knows nothing of the quirk takes them.
#[test]
fn only_the_macs_of_i2_and_r2_are_swapped() {
    let mut world = world(3, &config(), &[Quirk::ExchangeMacsSwapped], &[0, 1]);
    let id = world.connect(0, 1);
    world.run(SOON);
    set(&mut world, 1, &[]);
    let before = world.nodes[0].host.describe().next().unwrap().child;
    world.act(0, |host, now| dormouse_keying::KeyManager::rekey_child(host, now, before.unwrap()));
    world.run(SOON);
    assert!(world.joined(0, 1) && world.nodes[0].host.describe().next().unwrap().child != before);
    world.act(0, |host, now| host.close(now, id));
    world.run(SOON);
    assert_eq!(world.nodes[0].host.describe().count(), 0, "{:?}", world.drops);
}

#[test]
fn an_r2_has_the_type_of_signature_that_is_asked_for() {
    for (quirks, kind) in
        [(&[][..], ParamType::HipSignature), (&[Quirk::R2Signature2], ParamType::HipSignature2)]
    {
        let mut world = world(4, &config(), quirks, &[0, 1]);
        world.connect(0, 1);
        world.run(SOON);
        assert_eq!(kinds(&world.last(PacketType::R2).1), [ParamType::EspInfo, ParamType::HipMac2, kind]);
        // The signature covers the receiver's tag, unlike that of an R1.
        let (_, r2) = world.last(PacketType::R2);
        let covered = Packet::parse(&r2).unwrap().covered_by(kind, &[]).unwrap();
        assert_eq!(covered[24..40], world.nodes[0].tag.octets());
    }
}

/// The MAC, the vector and the length of the sequence number in the order to install ESP are those of the quirk.
#[test]
fn esp_is_installed_as_the_peer_has_it() {
    let whole = Some(Integ::HmacSha256Whole);
    for (suite, quirks, encr, integ, esn) in [
        (EspSuite::Aes128CbcSha256, &[Quirk::EspIcv32][..], Encr::Aes128Cbc, whole, false),
        (EspSuite::NullSha256, &[Quirk::EspIcv32], Encr::Null, whole, false),
        (EspSuite::NullSha256, &[Quirk::NullIv16], Encr::NullIv16, Some(Integ::HmacSha256_128), true),
        (EspSuite::Aes128CbcSha256, &[Quirk::NullIv16], Encr::Aes128Cbc, Some(Integ::HmacSha256_128), true),
        (EspSuite::NullSha256, &[], Encr::Null, Some(Integ::HmacSha256_128), true),
        (
            EspSuite::NullAesCmac,
            &[Quirk::NullIv16, Quirk::EspIcv32],
            Encr::Null,
            Some(Integ::AesCmac96),
            false,
        ),
    ] {
        let one = HostConfig { esp_suites: vec![suite], ..config() };
        let mut world = world(5, &one, quirks, &[0, 1]);
        world.connect(0, 1);
        world.run(SOON);
        for node in [0, 1] {
            let install = installed(&world, node);
            assert_eq!(
                (install.encr, install.integ, install.esn),
                (encr, integ, esn),
                "{suite:?} {quirks:?}"
            );
        }
    }
}

/// One secret in 256 begins with a zero: then alone it matters, and then the exchange fails with an ordinary peer.
#[test]
fn a_secret_that_begins_with_zeros_is_stripped() {
    let one = HostConfig { groups: vec![DhGroup::Ecp256], ..config() };
    let mut seeds = 0..5_000;
    let differs = |seed: &u64| {
        let mut world = world(*seed, &one, &[Quirk::SecretStripped], &[0]);
        world.connect(0, 1);
        world.run(Duration::from_millis(500));
        !world.joined(0, 1)
    };
    let seed = seeds.find(differs).expect("a secret that begins with a zero");
    println!("seed {seed}");
    assert!(works(world(seed, &one, &[Quirk::SecretStripped], &[0, 1])));
    assert!(works(world(seed, &one, &[], &[0, 1])));
}

/// The group list of an R1 has the chosen group alone, which is the best of two.
#[test]
fn an_r1_offers_one_group() {
    let all = config().groups.iter().map(|g| g.id()).collect::<Vec<u8>>();
    for (quirks, groups, listed, chosen) in [
        (&[][..], vec![DhGroup::Ecp521, DhGroup::Ecp256], all, 9),
        (&[Quirk::OneGroup], vec![DhGroup::Ecp521, DhGroup::Ecp256], vec![7], 7),
        (&[Quirk::OneGroup], vec![DhGroup::Ecp256, DhGroup::Ecp384], vec![8], 8),
    ] {
        let one = HostConfig { groups, ..config() };
        let hosts = vec![("p256", one), ("p256", config())];
        let mut world = World::new(6, Carrier::RawHip, hosts);
        set(&mut world, 1, quirks);
        world.connect(0, 1);
        world.run(SOON);
        let (_, r1) = world.last(PacketType::R1);
        let r1 = Packet::parse(&r1).unwrap();
        assert_eq!(r1.read(ParamType::DhGroupList), Some(Param::DhGroupList(listed)));
        let Some(Param::DiffieHellman(values)) = r1.read(ParamType::DiffieHellman) else { panic!() };
        assert_eq!(values[0].group, chosen);
    }
    // In version 1 the responder offers two, of MODP, without being asked; and one if the peer takes no more.
    let modp1536 = HostConfig { groups: vec![DhGroup::Ecp256, DhGroup::Modp1536], ..config() };
    for (one, quirks, sent) in [
        (config(), &[][..], vec![4, 3]),
        (config(), &[Quirk::OneGroup], vec![4]),
        (modp1536.clone(), &[], vec![3]),
        (modp1536, &[Quirk::OneGroup], vec![3]),
    ] {
        let mut world = world_of(["v1 rsa", "v1 dsa"], 6, &one, quirks, &[1]);
        world.connect(0, 1);
        world.run(SOON);
        assert!(world.joined(0, 1), "{sent:?}: {:?}", world.drops);
        let (_, r1) = world.last(PacketType::R1);
        let values = Packet::parse(&r1).unwrap().read(ParamType::DiffieHellman);
        let Some(Param::DiffieHellman(values)) = values else { panic!() };
        assert_eq!(values.iter().map(|v| v.group).collect::<Vec<u8>>(), sent);
    }
    let one = HostConfig { groups: vec![DhGroup::Modp3072], ..config() };
    let mut world = world(6, &one, &[Quirk::OneGroup], &[1]);
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.drops.contains(&"an I1 without a group that we have"));
}

/// Whether there were UPDATE packets, and whether one of them asks for an echo.
fn asked(world: &World) -> (bool, bool) {
    let of = |(_, bytes): &&(Path, Vec<u8>)| Packet::parse(bytes).unwrap().header.kind == PacketType::Update;
    let mut updates = world.seen.iter().filter(of).map(|(_, bytes)| kinds(bytes)).peekable();
    (updates.peek().is_some(), updates.any(|kinds| kinds.contains(&ParamType::EchoRequestSigned)))
}

/// R1 and I2 have no R1_COUNTER and nothing encrypted; an I2 without R1_COUNTER is for such a peer alone, and for the puzzles that count.
#[test]
fn an_exchange_may_be_bare() {
    let mut both = world(7, &config(), &[Quirk::Bare], &[0, 1]);
    both.connect(0, 1);
    both.run(SOON);
    assert!(both.joined(0, 1));
    use ParamType::{Encrypted, HostId, R1Counter};
    assert!(!kinds(&both.last(PacketType::R1).1).contains(&R1Counter));
    let i2 = kinds(&both.last(PacketType::I2).1);
    assert!(!i2.contains(&R1Counter) && !i2.contains(&Encrypted) && i2.contains(&HostId), "{i2:?}");
    // The peer moves: it is where it was until it begins anew.
    both.place(0, "198.51.100.7");
    both.run(LATER);
    assert_eq!(asked(&both), (true, false));
    let mut ordinary = world(7, &config(), &[], &[]);
    ordinary.connect(0, 1);
    ordinary.run(SOON);
    ordinary.place(0, "198.51.100.7");
    ordinary.run(LATER);
    assert_eq!(asked(&ordinary), (true, true));

    let until_i2 = |world: &mut World| {
        world.connect(0, 1);
        while world.count(PacketType::I2) == 0 {
            let end = world.now + SOON;
            world.step(end);
        }
    };
    let mut ordinary = world(7, &config(), &[Quirk::Bare], &[1]);
    until_i2(&mut ordinary);
    set(&mut ordinary, 1, &[]);
    ordinary.run(SOON);
    assert!(ordinary.drops.contains(&"an I2 without SOLUTION and R1_COUNTER") && !ordinary.joined(0, 1));
    // A generation later it still counts, and two generations later no more.
    for (generations, answer) in [(1, Ok(())), (2, Err(Discard("an I2 with a wrong solution")))] {
        let mut late = world(7, &config(), &[Quirk::Bare], &[0, 1]);
        until_i2(&mut late);
        let (path, i2) = late.last(PacketType::I2);
        late.now += config().timing.generation * generations;
        assert_eq!(late.hand(1, mirrored(path), &i2), answer, "{generations}");
    }
}

/// UPDATE has SEQ or ACK alone, nothing is offered, and what cannot be told ends the association.
#[test]
fn nothing_but_known_parameters_is_sent() {
    let registrar = Registrar { permits: dormouse_hip::Accept::Any, longest: LATER, max_clients: 1 };
    let one = HostConfig { registrar: Some(registrar), multihoming: true, ..config() };
    use ParamType::{Ack, HipMac, HipSignature, RegInfo, Seq};
    for (quirks, known) in [(&[][..], false), (&[Quirk::KnownParametersOnly], true)] {
        let mut world = world(8, &one, quirks, &[0, 1]);
        let (here, there) = ("192.0.2.1", "198.51.100.1");
        world.act(0, |host, now| {
            let addresses = [here, there].map(|a| a.parse().unwrap());
            dormouse_keying::KeyManager::set_addresses(host, now, &addresses);
        });
        let id = world.connect(0, 1);
        world.run(SOON);
        world.act(0, |host, now| host.check(now, id));
        world.run(SOON);
        assert!(world.joined(0, 1));
        assert_eq!(kinds(&world.last(PacketType::R1).1).contains(&RegInfo), !known);
        let updates = world
            .seen
            .iter()
            .map(|(_, b)| b)
            .filter(|b| Packet::parse(b).unwrap().header.kind == PacketType::Update);
        let updates: Vec<_> = updates.map(|b| kinds(b)).collect();
        assert!(!updates.is_empty());
        let bare = |kinds: &Vec<ParamType>| {
            *kinds == [Seq, HipMac, HipSignature] || *kinds == [Ack, HipMac, HipSignature]
        };
        assert_eq!(updates.iter().all(bare), known, "{updates:?}");

        let child = world.nodes[0].host.describe().next().unwrap().child.unwrap();
        world.act(1, |host, now| {
            let child = host.describe().next().unwrap().child.unwrap();
            dormouse_keying::KeyManager::rekey_child(host, now, child);
        });
        world.run(SOON);
        let rekeyed = world.nodes[0].host.describe().any(|d| d.child.is_some_and(|c| c != child));
        assert_eq!(rekeyed, !known);
        assert_eq!(world.nodes[1].plane.closed.len(), usize::from(known), "it ends instead");
        if known {
            world.connect(0, 1);
            world.run(SOON);
            assert!(world.joined(0, 1), "and begins anew");
        }
        world.place(0, "203.0.113.7");
        world.run(SOON);
        assert_eq!(
            world.joined(0, 1),
            !known,
            "a change of address is announced; with known-parameters-only it ends the association"
        );
        let established = world.nodes[0].host.describe().filter(|d| d.phase == Phase::Established);
        assert_eq!(established.count(), usize::from(!known));
        if known {
            world.connect(0, 1);
            world.run(SOON);
            assert!(world.joined(0, 1), "and begins anew from there: {:?}", world.drops);
        }
    }
}

#[test]
fn the_first_update_has_the_id_that_is_asked_for() {
    for (quirks, first) in [(&[][..], 0), (&[Quirk::UpdateIdsFromOne], 1)] {
        let mut world = world(9, &config(), quirks, &[0, 1]);
        let id = world.connect(0, 1);
        world.run(SOON);
        world.act(0, |host, now| host.check(now, id));
        let (_, update) = world.last(PacketType::Update);
        assert_eq!(Packet::parse(&update).unwrap().read(ParamType::Seq), Some(Param::Seq(first)));
    }
}

#[test]
fn a_close_is_not_waited_for() {
    for (quirks, closes, left) in [(&[][..], 5, 1), (&[Quirk::CloseAckIgnored], 1, 0)] {
        let mut world = world(10, &config(), quirks, &[0, 1]);
        let id = world.connect(0, 1);
        world.run(SOON);
        world.unplug(1);
        world.act(0, |host, now| host.close(now, id));
        assert_eq!(world.nodes[0].host.describe().count(), left);
        world.run(LATER);
        assert_eq!(world.count(PacketType::Close), closes);
        assert!(world.nodes[0].plane.installed.is_empty());
    }
}

/// A peer's quirks are its own, and end with their configuration.
#[test]
fn another_peer_has_none() {
    let mut world = World::new(11, Carrier::RawHip, vec![("p256", config()); 3]);
    let odd = world.nodes[1].tag;
    world.act(0, |host, _| host.set_quirks(odd, Quirk::ALL.into_iter().collect()));
    world.connect(2, 0);
    world.run(SOON);
    assert!(world.joined(0, 2));
    world.act(0, |host, _| host.set_quirks(odd, Quirks::NONE));
    world.connect(1, 0);
    world.run(SOON);
    assert!(world.joined(0, 1));
}
