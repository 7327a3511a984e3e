//! Peers that no configuration names: associations with them end when they are not used, and give way; those with the others do not.

use std::time::Duration;

use dormouse_hip::{Accept, HostConfig, Peer, Phase};
use dormouse_keying::{KeyManager, Owner};
use dormouse_sansio::Carrier;
use dormouse_wire::hip::PacketType;

use crate::world::{World, config};

const SOON: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A server that takes anyone, and clients that know it.
fn world(seed: u64, server: HostConfig, clients: usize) -> World {
    let mut hosts = vec![("p256", HostConfig { unused: HOUR, ..server })];
    hosts.resize(clients + 1, ("p256", config()));
    let mut world = World::new(seed, Carrier::RawHip, hosts);
    for client in 1..=clients {
        know(&mut world, client, 0);
    }
    world
}

/// One host has another in its directory, without an address.
fn know(world: &mut World, host: usize, peer: usize) {
    let (tag, peer) = (world.nodes[peer].tag, Peer { addresses: Vec::new(), udp: false });
    world.act(host, |host, _| host.set_peer(tag, Some(peer)));
}

fn join(world: &mut World, client: usize) {
    world.connect(client, 0);
    world.run(SOON);
}

/// Tells the server of user data with this client.
fn data(world: &mut World, client: usize, heard: bool) {
    let tag = world.nodes[client].tag;
    let id = world.nodes[0].host.describe().find(|d| d.peer == tag).unwrap().id;
    world.act(0, |host, now| host.traffic(now, Owner::Hip(id), heard));
}

fn with(world: &World) -> Vec<usize> {
    let up = world.nodes[0].host.describe().filter(|d| d.phase == Phase::Established);
    let peers: Vec<_> = up.map(|d| d.peer).collect();
    (1..world.nodes.len()).filter(|n| peers.contains(&world.nodes[*n].tag)).collect()
}

#[test]
fn what_is_not_used_ends_unless_its_peer_is_configured() {
    let listed = |world: &World| Accept::Listed([world.nodes[2].tag].into());
    for by_list in [false, true] {
        let mut world = world(1, config(), 3);
        if by_list {
            let accept = listed(&world);
            (1..=3).for_each(|client| join(&mut world, client));
            world.act(0, |host, now| host.set_accept(now, accept, Accept::Any));
            world.run(SOON);
            assert_eq!(with(&world), [2], "the others are not admitted any more");
        } else {
            know(&mut world, 0, 2);
            (1..=3).for_each(|client| join(&mut world, client));
        }
        for _ in 0..5 {
            world.run(HOUR / 2);
            if !by_list {
                data(&mut world, 3, true);
            }
        }
        assert_eq!(with(&world), if by_list { &[2][..] } else { &[2, 3] });
        world.run(HOUR * 3);
        assert_eq!(with(&world), [2]);
        assert_eq!(world.count(PacketType::Close), 2, "they learn of it");
        assert_eq!(world.nodes[3].host.describe().count(), 0);
        assert_eq!(world.nodes[0].host.poll_timeout(), None, "no timer is left");
        // The configuration no longer names it: from now on it is one of the others.
        let tag = world.nodes[2].tag;
        world.act(0, |host, now| {
            host.set_peer(tag, None);
            host.set_accept(now, Accept::Any, Accept::Any);
        });
        world.run(HOUR * 2);
        assert_eq!(with(&world), [0_usize; 0]);
    }
}

#[test]
fn the_one_that_is_unused_the_longest_gives_way() {
    let mut world = world(2, HostConfig { max_associations: 3, ..config() }, 5);
    know(&mut world, 0, 1);
    (1..=3).for_each(|client| join(&mut world, client));
    world.run(MINUTE * 2);
    data(&mut world, 2, true);
    join(&mut world, 4);
    assert_eq!(with(&world), [1, 2, 4], "not the configured one, and not the one in use");
    assert_eq!(world.nodes[3].plane.closed[0].1, "the peer closed the association", "it learns of it");
    join(&mut world, 5);
    assert_eq!(with(&world), [1, 2, 4], "all were used just now");
    assert!(world.drops.contains(&"as many associations as are permitted"));
    world.run(MINUTE * 2);
    world.connect(0, 3);
    world.run(SOON);
    assert_eq!(with(&world).len(), 3, "nor are there more when we begin one");
    assert!(with(&world).contains(&3));
}

#[test]
fn there_is_always_room_for_a_configured_peer() {
    let mut world = world(3, HostConfig { max_associations: 2, ..config() }, 5);
    [3, 4, 5].into_iter().for_each(|peer| know(&mut world, 0, peer));
    [1, 2, 3, 4].into_iter().for_each(|client| join(&mut world, client));
    assert_eq!(with(&world), [3, 4], "strangers that came just before give way");
    join(&mut world, 5);
    assert_eq!(with(&world), [3, 4], "configured peers do not");
}

/// An association that has ended and is kept for late packets takes no one's place.
#[test]
fn ended_associations_give_way_first() {
    let mut world = world(4, HostConfig { max_associations: 1, ..config() }, 2);
    world.run(MINUTE);
    join(&mut world, 1);
    let id = world.nodes[1].host.describe().next().unwrap().id;
    world.act(1, |host, now| host.close(now, id));
    world.run(SOON);
    assert_eq!(world.nodes[0].host.describe().count(), 1);
    join(&mut world, 2);
    assert_eq!(with(&world), [2]);
}
