//! The base exchange between two hosts: both carriers, all identities, groups and suites; loss, repetition, both ends at once.

use std::time::Duration;

use crate::world::{World, config, mirrored};
use dormouse_crypto::hip::{DhGroup, HipCipher};
use dormouse_hip::config::Difficulty;
use dormouse_hip::{ConnectError, EspSuite, HostConfig};
use dormouse_keying::{Discard, Failure, KeyManager};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Draft, Packet, PacketType, Param, ParamType, set_checksum};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);

#[test]
fn four_packets_make_an_association_by_either_carrier() {
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        let mut world = World::new(1, carrier, vec![("p256", config()), ("p384", config())]);
        world.connect(0, 1);
        world.run(SOON);
        assert!(world.joined(0, 1), "{:?}", world.drops);
        assert_eq!(world.seen.len(), 4);
        for node in &world.nodes {
            assert_eq!(node.plane.log, ["established", "install"]);
        }
        let esp = world.nodes[0].plane.installed.values().next().expect("a pair").path;
        assert_eq!(esp.carrier, if carrier == Carrier::RawHip { Carrier::RawEsp } else { carrier });
        let stats = world.nodes[1].host.stats();
        assert_eq!((stats.i1, stats.r1, stats.i2_computed, stats.verified), (1, 1, 1, 1));
        assert_eq!(stats.r1_signed, 2, "this one and, ahead, that of the next generation");
    }
}

/// Each kind of identity as initiator and as responder, with a rekeying: the responder's decides about all hashes.
#[test]
fn every_pair_of_identities_works() {
    for kinds in [["rsa", "rsa"], ["rsa", "p256"], ["p256", "rsa"], ["p384", "rsa"], ["p384", "p384"]] {
        let mut world = World::new(2, Carrier::RawHip, kinds.map(|kind| (kind, config())).to_vec());
        let id = world.connect(0, 1);
        world.run(SOON);
        let child = world.nodes[1].host.describe().next().and_then(|d| d.child).unwrap();
        world.act(1, |host, now| host.rekey_child(now, child));
        world.run(SOON);
        assert!(world.joined(0, 1), "{kinds:?}: {:?}", world.drops);
        world.act(0, |host, now| host.close(now, id));
        world.run(SOON);
        assert_eq!(world.nodes[1].plane.closed[0].1, "the peer closed the association", "{kinds:?}");
    }
}

#[test]
fn every_group_cipher_and_suite_works() {
    let lab = [DhGroup::for_measurement(1), DhGroup::for_measurement(2)].into_iter().flatten();
    let mut configs: Vec<HostConfig> =
        DhGroup::ALL.into_iter().chain(lab).map(|g| HostConfig { groups: vec![g], ..config() }).collect();
    for cipher in [HipCipher::Aes128Cbc, HipCipher::Aes256Cbc, HipCipher::Null] {
        configs.push(HostConfig { ciphers: vec![cipher], ..config() });
    }
    configs.extend(EspSuite::ALL.map(|s| HostConfig { esp_suites: vec![s], ..config() }));
    for one in configs {
        let mut world = World::new(2, Carrier::RawHip, vec![("p256", one.clone()), ("p256", one.clone())]);
        world.connect(0, 1);
        world.run(SOON);
        assert!(world.joined(0, 1), "{one:?}: {:?}", world.drops);
    }
}

/// Whom the other has no group for learns at once that it is so, from an R1 that is signed; a forged one says nothing.
#[test]
fn no_group_in_common_is_known_at_once() {
    let of = |group| HostConfig { groups: vec![group], ..config() };
    let hosts = vec![("p256", of(DhGroup::Ecp384)), ("p256", of(DhGroup::Modp3072))];
    let mut world = World::new(2, Carrier::RawHip, hosts);
    world.connect(0, 1);
    while world.count(PacketType::R1) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    let (path, r1) = world.last(PacketType::R1);
    let listed = Packet::parse(&r1).unwrap().read(ParamType::DhGroupList);
    assert_eq!(listed, Some(Param::DhGroupList(vec![DhGroup::Modp3072.id()])));
    let refusal =
        |world: &World| world.nodes[0].host.describe().next().and_then(|d| d.refusal).map(|r| r.kind);
    let mut forged = r1;
    let last = forged.len() - 9;
    forged[last] ^= 1;
    set_checksum(&mut forged, Some((path.local.ip(), path.remote.ip())));
    assert_eq!(world.hand(0, mirrored(path), &forged), Err(Discard("an R1 with a wrong signature")));
    assert_eq!(refusal(&world), None);
    world.run(SOON);
    assert_eq!(refusal(&world), Some(Failure::Proposal));
    world.run(SOON * 60);
    assert_eq!(world.nodes[0].plane.closed[0].1, "the peer offers no Diffie-Hellman group that we have");
}

/// What a middlebox adds to a packet on its way comes back in the answer, also where a packet comes again with another question.
#[test]
fn echoes_without_a_signature_come_back() {
    let asking = |(path, bytes): (Path, Vec<u8>), question: &str| {
        let packet = Packet::parse(&bytes).unwrap();
        let mut draft = Draft::new(&packet.header);
        packet.params().iter().for_each(|p| draft.add(&Param::Opaque(p.kind, p.contents.to_vec())));
        draft.add(&Param::Opaque(ParamType::EchoRequestUnsigned, question.into()));
        let mut bytes = draft.finish().unwrap();
        set_checksum(&mut bytes, Some((path.local.ip(), path.remote.ip())));
        (mirrored(path), bytes)
    };
    let answer = |world: &World, kind| match Packet::parse(&world.last(kind).1).unwrap() {
        packet if packet.header.sender == world.nodes[1].tag => packet.read(ParamType::EchoResponseUnsigned),
        _ => None,
    };
    let said = |text: &str| Some(Param::Opaque(ParamType::EchoResponseUnsigned, text.into()));
    let mut world = World::new(3, Carrier::RawHip, vec![("p256", config()), ("p384", config())]);
    let id = world.connect(0, 1);
    while world.count(PacketType::I2) == 0 {
        let end = world.now + SOON;
        world.step(end);
    }
    for question in ["first", "second"] {
        let (path, i2) = asking(world.last(PacketType::I2), question);
        world.hand(1, path, &i2).unwrap();
        assert_eq!(answer(&world, PacketType::R2), said(question));
    }
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    assert_eq!(world.nodes[1].plane.established, 1);
    world.rekey(0);
    let (path, update) = asking(world.last(PacketType::Update), "third");
    world.hand(1, path, &update).unwrap();
    assert_eq!(answer(&world, PacketType::Update), said("third"));
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    world.act(0, |host, now| host.close(now, id));
    let (path, close) = asking(world.last(PacketType::Close), "fourth");
    world.hand(1, path, &close).unwrap();
    assert_eq!(answer(&world, PacketType::CloseAck), said("fourth"));
}

/// Suites have the numbers of RFC 7402 section 5.1.2; the responder's first that the initiator has is taken, and both ends draw as many
/// bytes of key material for each direction as it needs: key, salt, key of the MAC.
#[test]
fn rare_suites_are_negotiated_by_their_numbers() {
    use EspSuite::{Aes128Gcm8, Aes128Gcm16, NullAesCmac, NullAesGmac};
    for (suite, id, bytes) in [(Aes128Gcm8, 12, 20), (NullAesCmac, 14, 16), (NullAesGmac, 15, 20)] {
        let initiator = HostConfig { esp_suites: vec![Aes128Gcm16, suite], ..config() };
        let responder =
            HostConfig { esp_suites: vec![EspSuite::Aes128CbcSha256, suite, Aes128Gcm16], ..config() };
        let mut world = World::new(2, Carrier::RawHip, vec![("p256", initiator), ("p256", responder)]);
        world.connect(0, 1);
        world.run(SOON);
        assert!(world.joined(0, 1), "{suite:?}: {:?}", world.drops);
        let (_, i2) = world.last(PacketType::I2);
        let Some(Param::Suites(_, chosen)) = Packet::parse(&i2).unwrap().read(ParamType::EspTransform) else {
            panic!("no ESP_TRANSFORM")
        };
        assert_eq!(chosen, [id]);
        let pair = world.nodes[0].plane.installed.values().next().expect("a pair");
        assert_eq!((pair.encr, pair.integ), suite.algorithms());
        assert_eq!(pair.keymat_in.as_bytes().len(), bytes);
    }
}

/// Nothing that can be read is offered or accepted unless configured, and no R1 has more than six suites.
#[test]
fn suites_without_encryption_must_be_asked_for() {
    let weak = |suite| HostConfig { esp_suites: vec![suite], ..config() };
    let readable = [EspSuite::NullSha256, EspSuite::NullAesCmac, EspSuite::NullAesGmac];
    for (initiator, responder) in
        readable.into_iter().flat_map(|s| [(weak(s), config()), (config(), weak(s))])
    {
        let mut world = World::new(2, Carrier::RawHip, vec![("p256", initiator), ("p256", responder)]);
        world.connect(0, 1);
        world.run(SOON);
        assert!(!world.joined(0, 1));
        assert!(world.drops.contains(&"the peer offers no ESP suite that we have"));
        let refusal = world.nodes[0].host.describe().next().and_then(|d| d.refusal).map(|r| r.kind);
        assert_eq!(refusal, Some(Failure::Proposal), "known at once, and told at the end");
        world.run(SOON * 60);
        assert_eq!(world.nodes[0].plane.closed[0].1, "the peer offers no ESP suite that we have");
    }
    let all = HostConfig { esp_suites: EspSuite::ALL.to_vec(), ..config() };
    let mut world = World::new(2, Carrier::RawHip, vec![("p256", all.clone()), ("p256", all)]);
    world.connect(0, 1);
    world.run(SOON);
    let (_, r1) = world.last(PacketType::R1);
    let Some(Param::Suites(_, offered)) = Packet::parse(&r1).unwrap().read(ParamType::EspTransform) else {
        panic!("no ESP_TRANSFORM")
    };
    assert_eq!(offered, [13, 8, 9, 1, 11, 10], "six at most");
    assert!(world.joined(0, 1));
}

#[test]
fn it_completes_under_loss_and_repetition() {
    for seed in 0..60 {
        let mut world = World::new(seed, Carrier::HipUdp, vec![("p256", config()), ("p256", config())]);
        (world.lost, world.doubled) = (250, 250);
        world.connect(0, 1);
        world.run(LATER);
        let gave_up = world.nodes[0].plane.closed.len() == 1;
        assert!(world.joined(0, 1) || gave_up, "seed {seed}: {:?}", world.drops);
        assert!(world.nodes[1].plane.established <= 1, "seed {seed}: one exchange, one association");
        if !gave_up {
            assert_eq!(world.nodes[0].plane.installed.len(), 1, "seed {seed}");
        }
    }
}

/// RFC 7401 section 4.4.3: the host with the greater tag answers, whichever packet is lost.
#[test]
fn both_ends_at_once_make_one_association() {
    for seed in 0..40 {
        let mut world = World::new(seed, Carrier::RawHip, vec![("p256", config()), ("p384", config())]);
        world.lost = if seed % 2 == 0 { 0 } else { 150 };
        world.connect(0, 1);
        world.connect(1, 0);
        world.lost = 0;
        world.run(LATER);
        assert!(
            world.joined(0, 1),
            "seed {seed}: {:?} {:?}",
            world.nodes[0].plane.log,
            world.nodes[1].plane.log
        );
        for node in &world.nodes {
            assert_eq!(node.plane.installed.len(), 1, "seed {seed}");
        }
    }
}

/// The host with the greater tag has moved and calls, while the other one calls it where it was: the one that must be answered is sent to where
/// the call comes from.
#[test]
fn calls_that_cross_find_who_has_moved() {
    for seed in 0..8 {
        let mut world = World::new(seed, Carrier::RawHip, vec![("p256", config()), ("p384", config())]);
        let moved = usize::from(world.nodes[1].tag > world.nodes[0].tag);
        let other = 1 - moved;
        let (ours, peer) = (world.nodes[other].tag, world.nodes[moved].tag);
        let where_it_was = "198.51.100.7:0".parse().unwrap();
        let path = Path { remote: where_it_was, ..world.path(other, moved) };
        world.act(other, |host, now| host.connect(now, ours, peer, &[path])).unwrap();
        world.connect(moved, other);
        world.run(SOON);
        assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
    }
}

#[test]
fn puzzles_of_every_configured_difficulty_are_solved_and_harder_ones_refused() {
    let with = |idle, solve| HostConfig {
        difficulty: Difficulty { idle, most: 20, solve, ..config().difficulty },
        ..config()
    };
    for k in [0, 1, 8, 16] {
        let mut world = World::new(3, Carrier::RawHip, vec![("p256", with(0, 20)), ("p256", with(k, 20))]);
        world.connect(0, 1);
        world.run(SOON);
        assert!(world.joined(0, 1), "K {k}");
    }
    let mut world = World::new(3, Carrier::RawHip, vec![("p256", with(0, 10)), ("p256", with(11, 20))]);
    world.connect(0, 1);
    world.run(LATER);
    assert!(!world.joined(0, 1));
    assert_eq!(world.nodes[0].plane.closed[0].1, "no answer to the I1");
    assert!(world.drops.contains(&"a puzzle that is harder than configured"));
}

/// A responder that has lost its state is found again; the old pair ends.
#[test]
fn a_new_exchange_replaces_what_is_left() {
    let mut world = World::new(4, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    let first = world.connect(0, 1);
    world.run(SOON);
    // The initiator starts again and remembers nothing.
    let ours = world.nodes[0].tag;
    world.act(0, |host, now| host.close(now, first));
    world.nodes[1].plane.log.clear();
    let peer = world.nodes[1].tag;
    let path = world.path(0, 1);
    world.act(0, |host, now| host.connect(now, ours, peer, &[path])).expect("one that ends is replaced");
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    assert_eq!(world.nodes[1].plane.installed.len(), 1);
    assert_eq!(world.nodes[1].plane.closed.len(), 1);
}

#[test]
fn what_cannot_be_begun_is_refused_with_the_reason() {
    let mut world = World::new(5, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    let (a, b, path) = (world.nodes[0].tag, world.nodes[1].tag, world.path(0, 1));
    let host = &mut world.nodes[0].host;
    let now = world.now;
    assert_eq!(host.connect(now, b, a, &[path]), Err(ConnectError::NotOurs(b)));
    assert_eq!(host.connect(now, a, a, &[path]), Err(ConnectError::Own(a)));
    assert_eq!(host.connect(now, a, b, &[]), Err(ConnectError::NoPath(b)));
    let unspecified = dormouse_sansio::Path { local: "0.0.0.0:0".parse().expect("an address"), ..path };
    assert_eq!(host.connect(now, a, b, &[unspecified]), Err(ConnectError::NoPath(b)));
    host.connect(now, a, b, &[path]).expect("it begins");
    assert_eq!(host.connect(now, a, b, &[path]), Err(ConnectError::Exists(b)));
}

/// An established association has no timer at all.
#[test]
fn idle_time_costs_nothing() {
    let mut world = World::new(6, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    world.connect(0, 1);
    world.run(LATER);
    assert_eq!(world.count(PacketType::I1), 1);
    for node in &world.nodes {
        assert_eq!(node.host.poll_timeout(), None);
    }
}

/// ESP under an unknown SPI, which anyone can send, begins an exchange with the peer that has its source address, and not again in the
/// minute that follows, also if that exchange fails.
#[test]
fn esp_that_no_association_has_begins_an_exchange_once_in_a_minute() {
    let mut world = World::new(7, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    world.place(0, "192.0.2.1");
    let (tag, mut peer) = (world.nodes[1].tag, world.whereabouts(1));
    peer.addresses.push("192.0.2.77".parse().unwrap());
    world.act(0, |host, _| host.set_peer(tag, Some(peer.clone())));
    let esp = world.path(0, 1).with_ports(Carrier::RawEsp, 0, 0);
    let elsewhere = |last: u8| Path { remote: (std::net::Ipv4Addr::new(192, 0, 2, last), 0).into(), ..esp };
    world.act(0, |host, now| host.unknown_spi(now, elsewhere(99)));
    assert_eq!(world.count(PacketType::I1), 0, "no peer of the directory has this address");
    let mut begun = 0;
    for second in 0..180 {
        for path in [esp, elsewhere(77)] {
            world.act(0, |host, now| host.unknown_spi(now, path));
        }
        let there: Vec<_> = world.nodes[0].host.describe().collect();
        if let [association] = there.as_slice() {
            begun += 1;
            let id = association.id;
            world.act(0, |host, now| host.close(now, id));
        }
        assert_eq!(begun, 1 + second / 60, "second {second}");
        world.run(SOON);
    }
    // An address that two peers have leads to neither, and one that it has no longer does not lead to it.
    world.run(LATER);
    let other = world.nodes[0].tag;
    let third = dormouse_wire::hip::Hit(std::net::Ipv6Addr::from_bits(other.0.to_bits() ^ 1));
    let begins = |world: &mut World, path| {
        world.run(LATER);
        let before = world.count(PacketType::I1);
        world.act(0, |host, now| host.unknown_spi(now, path));
        let began = world.count(PacketType::I1) > before;
        let there: Vec<_> = world.nodes[0].host.describe().map(|d| d.id).collect();
        there.into_iter().for_each(|id| world.act(0, |host, now| host.close(now, id)));
        began
    };
    world.act(0, |host, _| host.set_peer(third, Some(peer.clone())));
    assert!(!begins(&mut world, esp));
    world.act(0, |host, _| host.set_peer(third, None));
    assert!(begins(&mut world, esp));
    peer.addresses.pop();
    world.act(0, |host, _| host.set_peer(tag, Some(peer)));
    assert!(!begins(&mut world, elsewhere(77)) && begins(&mut world, esp));
}
