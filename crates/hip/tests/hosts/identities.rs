//! Several identities in one host: each speaks with peers for itself, and each is a client of a relay.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use dormouse_hip::{Host, HostConfig, Phase, Registration};
use dormouse_keying::{ChildId, KeyManager, Mode};
use dormouse_sansio::{Carrier, Seeded};
use dormouse_wire::hip::{Draft, Header, Hit, Packet, PacketType, Param, Version};

use crate::relay::{ANY, ASKS, CLIENT, INSIDE, LATER, RELAY, SOON, registrar, with_relay};
use crate::world::{Plane, World, config, identity, mirrored, whole};

/// Gives a host these identities, in place of what it was; their tags.
fn become_several(world: &mut World, node: usize, kinds: &[&str], config: HostConfig) -> Vec<Hit> {
    let identities: Vec<_> = kinds.iter().map(|kind| identity(kind)).collect();
    let tags = identities.iter().map(|identity| identity.hit()).collect();
    let spis = Box::new(BTreeSet::<ChildId>::new());
    world.nodes[node].host = Host::new(config, identities, spis, Box::new(Seeded::new(91)));
    world.nodes[node].plane = Plane::default();
    tags
}

/// The tags between which a host has established associations.
fn established(world: &World, node: usize) -> BTreeSet<(Hit, Hit)> {
    let up = world.nodes[node].host.describe().filter(|d| d.phase == Phase::Established);
    up.map(|d| (d.ours, d.peer)).collect()
}

fn want(world: &mut World, node: usize, from: IpAddr, peer: Hit) -> bool {
    world.act(node, |host, now| host.want_tunnel(now, (from, peer.0.into()), true))
}

/// A packet's source says which identity speaks with a peer; where it says none, the configuration does, or it is the first. Two may speak with the
/// same peer at the same time.
#[test]
fn the_source_of_a_packet_chooses_the_identity() {
    let mut world = World::new(1, Carrier::RawHip, vec![("p256", config()), ("p384", config())]);
    let tags = become_several(&mut world, 0, &["p256", "p384", "known rsa"], config());
    let (peer, at) = (world.nodes[1].tag, world.whereabouts(1));
    for node in [0, 1] {
        let here = world.nodes[node].address.ip().to_string();
        world.place(node, &here);
    }
    world.act(0, |host, _| host.set_peer(peer, Some(at)));
    assert!(want(&mut world, 0, tags[1].0.into(), peer));
    world.run(SOON);
    assert_eq!(established(&world, 0), BTreeSet::from([(tags[1], peer)]), "{:?}", world.drops);
    assert!(!want(&mut world, 0, tags[1].0.into(), peer), "it is there");
    assert!(want(&mut world, 0, ANY, peer), "the first has none yet");
    world.run(SOON);
    assert_eq!(established(&world, 0), BTreeSet::from([(tags[0], peer), (tags[1], peer)]));
    assert_eq!(established(&world, 1), BTreeSet::from([(peer, tags[0]), (peer, tags[1])]));
    // What each pair of ESP SAs carries is between the tags of its own association.
    let of_plane = |node: usize| -> BTreeSet<(IpAddr, IpAddr)> {
        let modes = world.nodes[node].plane.installed.values().map(|install| install.mode);
        modes
            .map(|mode| match mode {
                Mode::Beet(beet) => (beet.local, beet.remote),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    let wanted: BTreeSet<(IpAddr, IpAddr)> =
        tags[..2].iter().map(|ours| (ours.0.into(), peer.0.into())).collect();
    assert_eq!(of_plane(0), wanted);
    assert_eq!(of_plane(1), wanted.iter().map(|(a, b)| (*b, *a)).collect());
    // The configuration chooses the third.
    world.act(0, |host, _| host.set_identity_for(peer, Some(tags[2])));
    assert!(want(&mut world, 0, ANY, peer));
    world.run(SOON);
    assert!(established(&world, 0).contains(&(tags[2], peer)), "{:?}", world.drops);
    world.act(0, |host, _| {
        assert_eq!(host.tag_towards(peer), Some(tags[2]));
        host.set_identity_for(peer, Some(peer));
        assert_eq!(host.tag_towards(peer), Some(tags[0]), "what is none of ours chooses nothing");
        host.set_identity_for(peer, None);
        assert_eq!(host.tag_towards(peer), Some(tags[0]));
    });
    // An end of one is none of the others'.
    let first = world.nodes[0].host.describe().find(|d| d.ours == tags[0]).unwrap().id;
    world.act(0, |host, now| host.close(now, first));
    world.run(SOON);
    assert_eq!(established(&world, 1), BTreeSet::from([(peer, tags[1]), (peer, tags[2])]));
}

/// RFC 7401 section 4.1.4: each identity has R1 packets and a counter of its own, and a puzzle of one is none of another.
#[test]
fn each_identity_is_called_by_its_own_tag() {
    let mut world = World::new(2, Carrier::RawHip, vec![("p256", config()), ("p384", config())]);
    let tags = become_several(&mut world, 1, &["p256", "p384"], config());
    for (n, tag) in tags.iter().enumerate() {
        world.nodes[1].tag = *tag;
        world.connect(0, 1);
        world.run(SOON);
        assert!(established(&world, 1).contains(&(*tag, world.nodes[0].tag)), "{n}: {:?}", world.drops);
        assert_eq!(world.count(PacketType::R2), n + 1);
    }
    assert_eq!(world.nodes[1].host.describe().count(), 2);
    assert_eq!(world.nodes[1].host.stats().i2_computed, 2);
}

/// Both identities of a host behind a NAT register at its relay by one path, and each is reached there: the relay's packets and permissions have the
/// keys of the identity that they are for.
#[test]
fn each_identity_is_a_client_of_the_relay() {
    for symmetric in [true, false] {
        let mut world = with_relay(3, [symmetric; 2]);
        let relay = world.nodes[RELAY].tag;
        let relays = BTreeSet::from([relay]);
        let client = HostConfig { relays, registration: Duration::from_secs(3_600), ..config() };
        let tags = become_several(&mut world, CLIENT, &["p256", "p384"], client);
        let at = world.whereabouts(RELAY);
        world.place(CLIENT, INSIDE[CLIENT]);
        world.act(CLIENT, |host, _| host.set_peer(relay, Some(at.clone())));
        world.run(SOON * 3);
        assert_eq!(registrar().max_clients, 10);
        let served = world.nodes[RELAY].host.describe().filter(|d| d.registration == Registration::OfPeer);
        let served: BTreeSet<Hit> = served.map(|d| d.peer).collect();
        assert!(tags.iter().all(|tag| served.contains(tag)), "{served:?}: {:?}", world.drops);
        for tag in &tags {
            world.act(ASKS, |host, _| host.set_relays_of(*tag, at.addresses.clone()));
            assert!(want(&mut world, ASKS, ANY, *tag));
        }
        world.run(LATER);
        for tag in &tags {
            let passes = |world: &mut World| {
                world.nodes[CLIENT].tag = *tag;
                world.data.clear();
                world.send_data(ASKS, CLIENT);
                let it = world.nodes[CLIENT].host.describe().find(|d| d.ours == *tag && d.peer != relay);
                let it = it.expect("an association");
                let plane = &world.nodes[CLIENT].plane;
                let spi = plane.installed[&it.child.expect("a pair")].spi_out;
                world.fly(plane_path(world, it.id), [&spi.to_be_bytes()[..], b"sealed"].concat());
                world.run(SOON);
                let came: BTreeSet<usize> = world.data.iter().map(|(node, _)| *node).collect();
                came == BTreeSet::from([ASKS, CLIENT])
            };
            assert!(passes(&mut world), "{tag}, {symmetric}: {:?}", world.drops);
            world.run(Duration::from_secs(400));
            assert!(passes(&mut world), "{tag}, {symmetric}, later: {:?}", world.drops);
        }
        let relayed = world.nodes[ASKS].host.describe().filter(|d| d.relayed).count();
        assert_eq!(relayed, if symmetric { 2 } else { 0 });
    }
}

fn plane_path(world: &World, id: dormouse_keying::SaId) -> dormouse_sansio::Path {
    world.nodes[CLIENT].plane.path[&id]
}

/// Who names no HIT is answered by the identity of its own HIT suite, which it can verify (RFC 7401 section 4.1.8), wherever that stands; but by the one
/// that was chosen for it, if there is one.
#[test]
fn an_i1_without_a_receiver_is_answered_in_the_suite_of_its_sender() {
    let mut world = World::new(3, Carrier::RawHip, vec![("p256", config()), ("rsa", config())]);
    let open = HostConfig { opportunistic: true, ..config() };
    let tags = become_several(&mut world, 1, &["p384", "known rsa"], open);
    let path = world.path(0, 1);
    let senders = [(identity("p256").hit(), tags[0]), (identity("rsa").hit(), tags[1])];
    let answered_by = |world: &mut World, sender: Hit| {
        let header =
            Header { kind: PacketType::I1, version: Version::V2, controls: 0, sender, receiver: Hit::NULL };
        let mut draft = Draft::new(&header);
        draft.add(&Param::DhGroupList(vec![8, 7]));
        world.hand(1, mirrored(path), &whole(draft.finish().unwrap(), path)).unwrap();
        Packet::parse(&world.last(PacketType::R1).1).unwrap().header.sender
    };
    for (sender, by) in senders {
        assert_eq!(answered_by(&mut world, sender), by);
    }
    let (sender, _) = senders[0];
    world.act(1, |host, _| host.set_identity_for(sender, Some(tags[1])));
    assert_eq!(answered_by(&mut world, sender), tags[1]);
}
