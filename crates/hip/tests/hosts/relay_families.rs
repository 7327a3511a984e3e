//! A relay with addresses of both families: ends that have one each reach each other through it, as far as they know that it is there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use dormouse_hip::{Host, HostConfig, Peer};
use dormouse_keying::{ChildId, KeyManager};
use dormouse_sansio::{Carrier, Seeded};
use dormouse_wire::hip::{PacketType, ParamType};

use crate::relay::{ASKS, CLIENT, HOUR, LATER, RELAY, SOON, ask, data_passes, kinds, registrar, way};
use crate::world::{Plane, World, config, identity};

const RELAY_AT: [&str; 2] = ["198.51.100.1", "2001:db8::1"];

/// Who asks, the client, and the relay, of which the client knows these addresses.
fn world(asks: &str, client: &str, known: &[&str]) -> World {
    let relays = BTreeSet::from([identity("known rsa").hit()]);
    let of_client = HostConfig { relays, registration: HOUR, ..config() };
    let of_relay = HostConfig { relay_server: Some(registrar()), ..config() };
    let hosts = vec![("p256", config()), ("p384", of_client), ("known rsa", of_relay)];
    let mut world = World::new(1, Carrier::HipUdp, hosts);
    let parse = |at: &&str| at.parse::<IpAddr>().unwrap();
    let both: Vec<IpAddr> = RELAY_AT.iter().map(parse).collect();
    world.place(RELAY, RELAY_AT[0]);
    world.nodes[RELAY].others.push(SocketAddr::new(both[1], 10_500));
    world.act(RELAY, |host, now| host.set_addresses(now, &both));
    world.place(ASKS, asks);
    world.place(CLIENT, client);
    let (relay, of) = (world.nodes[RELAY].tag, world.nodes[CLIENT].tag);
    world.act(ASKS, |host, _| host.set_relays_of(of, both));
    let at = Peer { addresses: known.iter().map(parse).collect(), udp: true };
    world.act(CLIENT, |host, _| host.set_peer(relay, Some(at)));
    world.run(SOON);
    world
}

/// There is no direct way, and data goes through the relay in both directions.
#[test]
fn ends_of_different_families_reach_each_other_through_a_relay() {
    for [asks, client] in [["2001:db8:a::1", "192.0.2.7"], ["192.0.2.7", "2001:db8:a::1"]] {
        let mut world = world(asks, client, &RELAY_AT);
        let (_, r2) = world.last(PacketType::R2);
        let told = kinds(&r2).into_iter().filter(|kind| *kind == ParamType::RelayedAddress).count();
        assert_eq!(told, 2, "where it takes data, in each family");
        ask(&mut world);
        world.run(LATER);
        assert!(world.joined(ASKS, CLIENT), "{asks}: {:?}", world.drops);
        assert!(way(&world, ASKS, CLIENT).1 && data_passes(&mut world), "{asks}: {:?}", world.drops);
    }
}

/// A relayed address that the client's configuration does not have is given to no peer: a peer of that family alone is not reached.
#[test]
fn a_relay_is_believed_to_be_where_the_client_knows_it() {
    let mut world = world("2001:db8:a::1", "192.0.2.7", &RELAY_AT[..1]);
    ask(&mut world);
    world.run(SOON);
    let closed: Vec<&str> = world.nodes[ASKS].plane.closed.iter().map(|(_, why)| *why).collect();
    assert_eq!(closed, ["the peer's relay takes no data for it"], "{:?}", world.drops);
}

/// A relay has started again, and its client registers anew at another of its addresses: what goes to and from the client's peers goes by that one, in
/// the associations that there are.
#[test]
fn peers_are_reached_where_the_client_registers_again() {
    let mut world = world("192.0.2.7", "192.0.2.9", &RELAY_AT);
    let [asks, client, six]: [IpAddr; 3] =
        ["192.0.2.7", "192.0.2.9", "2001:db8:a::9"].map(|at| at.parse().unwrap());
    let relay: Vec<IpAddr> = RELAY_AT.iter().map(|at| at.parse().unwrap()).collect();
    world.apart.extend([(asks, client), (client, asks)]);
    ask(&mut world);
    world.run(LATER);
    assert_eq!(way(&world, CLIENT, ASKS), (SocketAddr::new(relay[0], 10_500), true));
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let config = HostConfig { relay_server: Some(registrar()), ..config() };
    let spis = Box::new(BTreeSet::<ChildId>::new());
    world.nodes[RELAY].host = Host::new(config, vec![identity("known rsa")], spis, Box::new(Seeded::new(79)));
    world.nodes[RELAY].plane = Plane::default();
    world.act(RELAY, |host, now| host.set_addresses(now, &relay));
    world.nodes[CLIENT].others.push(SocketAddr::new(six, 10_500));
    world.act(CLIENT, |host, now| host.set_addresses(now, &[client, six]));
    world.apart.extend([(relay[0], client), (client, relay[0])]);
    world.run(LATER * 5);
    assert_eq!(way(&world, CLIENT, ASKS), (SocketAddr::new(relay[1], 10_500), true), "{:?}", world.drops);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    assert_eq!(world.nodes[ASKS].plane.established, 1, "no other association between the two");
}

/// A client that changes its family reaches its peers by the other address of its relay, also those of which it knows nothing else.
#[test]
fn peers_are_reached_by_the_relay_from_another_family() {
    let mut world = world("192.0.2.7", "192.0.2.9", &RELAY_AT);
    let [asks, client]: [IpAddr; 2] = ["192.0.2.7", "192.0.2.9"].map(|at| at.parse().unwrap());
    world.apart.extend([(asks, client), (client, asks)]);
    ask(&mut world);
    world.run(LATER);
    assert!(way(&world, CLIENT, ASKS).1 && data_passes(&mut world), "{:?}", world.drops);
    world.place(CLIENT, "2001:db8:a::9");
    world.run(SOON);
    assert_eq!(way(&world, CLIENT, ASKS).0.ip(), RELAY_AT[1].parse::<IpAddr>().unwrap(), "{:?}", world.drops);
    assert!(data_passes(&mut world), "{:?}", world.drops);
}
