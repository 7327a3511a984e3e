//! UPDATE: rekeying from either end and from both at once, changes of address with their verification, loss and repetition.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dormouse_hip::{HostConfig, Peer};
use dormouse_keying::{KeyManager, SaId};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{LocatorValue, Packet, PacketType, Param, ParamType};

use crate::world::{World, config};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);

fn joined(seed: u64, carrier: Carrier, one: HostConfig) -> World {
    let mut world = World::new(seed, carrier, vec![("p256", one.clone()), ("p384", one)]);
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
    world
}

/// RFC 7402 section 5.3: three UPDATE packets; with new key material and without.
#[test]
fn either_end_replaces_the_pair() {
    for rekey_with_dh in [true, false] {
        for node in [0, 1] {
            let mut world = joined(1, Carrier::RawHip, HostConfig { rekey_with_dh, ..config() });
            let before = [world.child(0), world.child(1)];
            world.rekey(node);
            world.run(SOON);
            assert_eq!(world.count(PacketType::Update), 3);
            assert!(world.joined(0, 1), "{:?}", world.drops);
            assert!(world.child(0) != before[0] && world.child(1) != before[1]);
            // The one that began receives on the old pair for a while; the other has removed it.
            assert_eq!(world.nodes[node].plane.installed.len(), 2);
            assert_eq!(world.nodes[1 - node].plane.installed.len(), 1);
            world.run(LATER);
            assert_eq!(world.nodes[node].plane.installed.len(), 1);
            assert!(world.nodes.iter().all(|n| n.host.poll_timeout().is_none()), "no timer is left");
        }
    }
}

/// The end that answers does not send on the new pair before its peer has it.
#[test]
fn the_new_pair_sends_when_the_peer_has_it() {
    let mut world = joined(2, Carrier::RawHip, config());
    world.rekey(0);
    world.run(SOON);
    let sends = |node: usize| world.nodes[node].plane.installed[&world.child(node)].send_now;
    assert_eq!((sends(0), sends(1)), (true, false));
    assert_eq!(world.nodes[1].plane.log, ["established", "install", "install anew", "remove"]);
}

#[test]
fn both_at_once_make_one_new_pair() {
    for rekey_with_dh in [true, false] {
        for seed in 0..20 {
            let mut world = joined(seed, Carrier::RawHip, HostConfig { rekey_with_dh, ..config() });
            let before = world.child(0);
            world.rekey(0);
            world.rekey(1);
            world.run(LATER);
            assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
            assert_ne!(world.child(0), before);
            for node in &world.nodes {
                let installs = node.plane.log.iter().filter(|l| l.starts_with("install")).count();
                assert_eq!((installs, node.plane.installed.len()), (2, 1), "seed {seed}");
            }
        }
    }
}

/// The peer begins a rekeying while a question of ours is under way: that the question is answered does not mean that the peer has our half,
/// which was made later.
#[test]
fn an_acknowledgement_is_for_what_the_update_said() {
    for (seed, rekey_with_dh) in (0..10).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut world = joined(seed, Carrier::RawHip, HostConfig { rekey_with_dh, ..config() });
        let (before, id) = (world.child(0), world.nodes[1].host.describe().next().unwrap().id);
        world.act(1, |host, now| host.check(now, id));
        world.rekey(0);
        world.run(SOON);
        assert!(world.joined(0, 1), "seed {seed}: {:?}", world.drops);
        assert_ne!(world.child(0), before);
    }
}

/// The same key material serves until it is used up; then new is made even if the configuration does not ask for it.
#[test]
fn key_material_that_ends_is_renewed() {
    let mut world = joined(3, Carrier::RawHip, HostConfig { rekey_with_dh: false, ..config() });
    let mut with_value = 0;
    for _ in 0..400 {
        world.rekey(0);
        world.run(LATER);
        assert!(world.joined(0, 1), "{:?}", world.drops);
        let (_, bytes) = world.seen[world.seen.len() - 3].clone();
        with_value += usize::from(Packet::parse(&bytes).unwrap().find(ParamType::DiffieHellman).is_some());
        world.seen.clear();
    }
    assert!((1..=2).contains(&with_value), "{with_value}");
}

#[test]
fn rekeying_survives_loss_and_repetition() {
    for seed in 0..40 {
        let mut world = joined(seed, Carrier::HipUdp, config());
        (world.lost, world.doubled) = (250, 250);
        for node in [0, 1, 0] {
            if world.nodes.iter().all(|n| n.plane.closed.is_empty()) {
                world.rekey(node);
                world.run(LATER);
            }
        }
        world.lost = 0;
        world.run(LATER);
        let ended = world.nodes.iter().any(|n| !n.plane.closed.is_empty());
        assert!(world.joined(0, 1) || ended, "seed {seed}: {:?}", world.drops);
    }
}

/// A peer that was admitted makes the other end work so often at most: each new pair of ESP SAs costs a key pair and an agreement, and each UPDATE a
/// signature. Neither ends the association.
#[test]
fn a_peer_makes_no_work_without_end() {
    let mut world = joined(18, Carrier::RawHip, config());
    let begun = world.now;
    for _ in 0..200 {
        world.rekey(0);
        world.run(Duration::from_millis(130));
    }
    let stats = world.nodes[1].host.stats();
    let most = 16 + ((world.now - begun).as_millis() / 250) as u64;
    assert!(stats.rekeyed > 16 && stats.rekeyed <= most, "{stats:?}, {most}");
    assert!(world.drops.contains(&"more new ESP keys than are made"), "{:?}", world.drops);
    world.run(LATER);
    assert!(world.joined(0, 1), "{:?}", world.drops);

    let mut world = joined(19, Carrier::RawHip, config());
    let (id, begun) = (world.nodes[0].host.describe().next().unwrap().id, world.now);
    for _ in 0..1_200 {
        world.act(0, |host, now| host.check(now, id));
        world.run(Duration::from_millis(25));
    }
    let stats = world.nodes[1].host.stats();
    let most = 64 + ((world.now - begun).as_millis() / 100) as u64;
    assert!(stats.updates > 64 && stats.updates <= most, "{stats:?}, {most}");
    assert!(world.drops.contains(&"more UPDATE packets than are answered"), "{:?}", world.drops);
    world.run(LATER);
    assert!(world.joined(0, 1) && world.nodes.iter().all(|n| n.plane.closed.is_empty()), "{:?}", world.drops);
}

fn move_to(world: &mut World, node: usize, address: &str) {
    world.nodes[node].address.set_ip(address.parse().unwrap());
    let path = world.path(node, 1 - node);
    let id = world.nodes[node].host.describe().next().unwrap().id;
    world.act(node, |host, now| host.moved(now, id, path));
}

fn path_of(world: &World, node: usize) -> Path {
    *world.nodes[node].plane.path.values().next_back().unwrap()
}

/// Who has moved is asked there, and is back before it has heard the question: it is answered where it is known to be.
#[test]
fn who_comes_back_is_where_it_was() {
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        let mut world = joined(14, carrier, config());
        let (home, before) = (world.nodes[0].address.ip().to_string(), path_of(&world, 1));
        move_to(&mut world, 0, "198.51.100.7");
        while world.count(PacketType::Update) < 2 {
            assert!(world.step(world.now + SOON), "{:?}", world.drops);
        }
        move_to(&mut world, 0, &home);
        world.run(SOON);
        assert!(world.joined(0, 1) && path_of(&world, 1) == before, "{:?}", world.drops);
        assert!(world.is_idle(), "nothing waits");
    }
}

/// RFC 8046 section 3.2.1: three UPDATE packets, and the peer changes its path only with the third.
#[test]
fn a_new_address_counts_when_it_has_answered() {
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        let mut world = joined(4, carrier, config());
        let before = path_of(&world, 1);
        move_to(&mut world, 0, "198.51.100.7");
        assert_eq!(path_of(&world, 0).local.ip(), world.nodes[0].address.ip(), "ours changes at once");
        let updates = |world: &World| world.count(PacketType::Update);
        while updates(&world) < 3 {
            assert_eq!(path_of(&world, 1), before, "not before the third");
            let end = world.now + SOON;
            assert!(world.step(end), "{:?}", world.drops);
        }
        world.run(SOON);
        assert_eq!(path_of(&world, 1).remote.ip(), world.nodes[0].address.ip());
        assert_eq!(updates(&world), 3);
        assert!(world.joined(0, 1));
        assert!(world.is_idle());
    }
}

#[test]
fn the_first_update_of_a_move_names_the_address_and_keeps_the_spis() {
    let mut world = joined(5, Carrier::RawHip, config());
    move_to(&mut world, 0, "198.51.100.7");
    let (path, bytes) = world.last(PacketType::Update);
    assert_eq!(path.local.ip(), world.nodes[0].address.ip());
    let packet = Packet::parse(&bytes).unwrap();
    let kinds: Vec<_> = packet.params().iter().map(|p| p.kind).collect();
    use ParamType::{EspInfo, HipMac, HipSignature, LocatorSet, Seq};
    assert_eq!(kinds, [EspInfo, LocatorSet, Seq, HipMac, HipSignature]);
    let spi = world.child(0).spi();
    let Some(Param::EspInfo(info)) = packet.read(EspInfo) else { panic!("no ESP_INFO") };
    assert_eq!((info.old_spi, info.new_spi), (spi, spi));
    let Some(Param::LocatorSet(locators)) = packet.read(LocatorSet) else { panic!("no LOCATOR_SET") };
    let LocatorValue::Esp { spi: of, address } = locators[0].value else { panic!("{locators:?}") };
    assert_eq!((of, address.to_canonical()), (spi, world.nodes[0].address.ip()));
}

/// A device that moves on before the first move is verified, and one that rekeys meanwhile.
#[test]
fn moves_follow_each_other_and_cross_rekeyings() {
    for seed in 0..40 {
        let mut world = joined(seed, Carrier::RawHip, config());
        world.lost = if seed % 2 == 0 { 0 } else { 200 };
        let before = world.child(1);
        world.rekey((seed / 2 % 2) as usize);
        for last in 10..14 {
            move_to(&mut world, 0, &format!("198.51.100.{last}"));
            let end = world.now + Duration::from_millis(7 * seed);
            while world.step(end) {}
        }
        world.lost = 0;
        world.run(LATER);
        let ended = world.nodes.iter().any(|n| !n.plane.closed.is_empty());
        assert!(ended && seed % 2 == 1 || world.joined(0, 1), "seed {seed}: {:?}", world.drops);
        if !ended {
            assert_eq!(path_of(&world, 1).remote.ip(), world.nodes[0].address.ip(), "seed {seed}");
            assert_ne!(world.child(1), before, "seed {seed}: the rekeying was not forgotten");
        }
    }
}

/// Who says that it has moved to the address of another does not draw traffic there: the other does not answer.
#[test]
fn an_address_that_does_not_answer_is_not_used() {
    let mut world = joined(6, Carrier::HipUdp, config());
    let before = path_of(&world, 1);
    let real = world.nodes[0].address;
    move_to(&mut world, 0, "203.0.113.99");
    // From here on nothing comes back to the claimed address.
    world.nodes[0].address = real;
    world.run(LATER);
    assert_eq!(path_of(&world, 1), before);
    let closed = &world.nodes[1].plane.closed;
    assert!(closed.iter().all(|(_, why)| *why == "the peer closed the association"), "{closed:?}");
}

/// A device that changes its address while the puzzle is solved, or the I2 is under way, begins anew from there.
#[test]
fn an_exchange_survives_a_move() {
    for packet in [PacketType::I1, PacketType::R1, PacketType::I2] {
        let mut world = World::new(9, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
        world.connect(0, 1);
        while world.count(packet) == 0 {
            let end = world.now + SOON;
            world.step(end);
        }
        move_to(&mut world, 0, "198.51.100.7");
        world.run(SOON);
        assert!(world.joined(0, 1), "{packet}: {:?}", world.drops);
        assert_eq!(path_of(&world, 1).remote.ip(), world.nodes[0].address.ip());
    }
}

/// A device that changes its address while the peer does not answer at the one where it is asked goes on to the peer's others.
#[test]
fn an_exchange_after_a_move_tries_all_addresses() {
    let mut world = World::new(12, Carrier::RawHip, vec![("p256", config()), ("p256", config())]);
    world.place(0, "192.0.2.1");
    let (ours, tag, mut peer) = (world.nodes[0].tag, world.nodes[1].tag, world.whereabouts(1));
    peer.addresses.insert(0, "203.0.113.1".parse().unwrap());
    world.act(0, |host, _| host.set_peer(tag, Some(peer)));
    world.act(0, |host, now| host.connect(now, ours, tag, &host.ways(tag))).unwrap();
    world.dead.insert(world.nodes[1].address.ip());
    world.run(SOON / 2);
    world.dead.clear();
    let path = world.nodes[0].host.describe().next().unwrap().path;
    assert_ne!(path.remote.ip(), world.nodes[1].address.ip());
    world.place(0, "198.51.100.7");
    world.run(LATER);
    assert!(world.joined(0, 1), "{:?}", world.nodes[0].plane.closed);
    assert_eq!(path_of(&world, 0).remote.ip(), world.nodes[1].address.ip());
}

/// The peer has said that it moved, and before it is asked there we move too: the question goes from our new address to its new one.
#[test]
fn both_move_one_after_the_other() {
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        let mut world = joined(10, carrier, config());
        move_to(&mut world, 0, "198.51.100.7");
        while world.count(PacketType::Update) < 2 {
            let end = world.now + SOON;
            assert!(world.step(end));
        }
        world.nodes[1].address.set_ip("198.51.100.8".parse().unwrap());
        // It does not know of its peer's new address but as one to verify.
        let d = world.nodes[1].host.describe().next().unwrap();
        let path = Path { local: world.nodes[1].address, ..d.path };
        world.act(1, |host, now| host.moved(now, d.id, path));
        world.run(LATER);
        assert!(world.joined(0, 1), "{:?}", world.drops);
        for node in [0, 1] {
            let path = path_of(&world, node);
            assert_eq!(path.remote.ip(), world.nodes[1 - node].address.ip(), "{carrier:?}");
        }
    }
}

/// A rekeying that waited while an address was verified in vain goes to the old address after it.
#[test]
fn a_rekeying_outlives_an_address_that_does_not_answer() {
    let mut world = joined(11, Carrier::HipUdp, config());
    let before = world.child(1);
    let owner = world.nodes[1].plane.installed.values().next().unwrap().owner;
    let observed = Path { remote: "203.0.113.5:40000".parse().unwrap(), ..path_of(&world, 1) };
    world.act(1, |host, now| host.observed_path(now, owner, observed));
    world.rekey(1);
    world.run(LATER);
    assert_ne!(world.child(1), before);
    assert!(world.joined(0, 1), "{:?}", world.nodes[1].plane.closed);
}

/// A NAT has changed the peer's port and said nothing: ESP shows it, and the peer is asked there, once at a time.
#[test]
fn a_path_that_esp_shows_is_verified() {
    let mut world = joined(8, Carrier::HipUdp, config());
    let owner = world.nodes[1].plane.installed.values().next().unwrap().owner;
    let observed = Path { remote: "203.0.113.5:40000".parse().unwrap(), ..path_of(&world, 1) };
    for _ in 0..100 {
        world.act(1, |host, now| host.observed_path(now, owner, observed));
    }
    assert_eq!(world.count(PacketType::Update), 1, "one question");
    assert_ne!(path_of(&world, 1), observed, "it is not used before the answer");
    world.nodes[0].address = observed.remote;
    world.run(SOON);
    // It was sent before the peer was there: it is sent again.
    world.run(LATER);
    assert_eq!(path_of(&world, 1), observed);
    assert!(world.joined(0, 1));
}

#[test]
fn a_peer_that_is_gone_is_noticed_by_an_update_and_told_of() {
    let mut world = joined(7, Carrier::RawHip, config());
    world.rekey(0);
    world.lost = 1_000;
    world.run(LATER);
    assert_eq!(world.nodes[0].plane.closed.len(), 1);
    assert_eq!(world.nodes[0].plane.closed[0].1, "the peer does not answer");
    assert!(world.nodes[0].plane.installed.is_empty());
    world.run(LATER);
    assert_eq!(world.nodes[0].host.describe().count(), 0, "nothing is kept");
}

/// Two hosts over IPv4, of which the first also knows the other's IPv6 address: the world, the peer's two addresses, and the association.
fn known_in_both_families() -> (World, [IpAddr; 2], SaId) {
    let mut world = joined(9, Carrier::RawHip, config());
    let both = [world.nodes[1].address.ip(), "2001:db8::2".parse().unwrap()];
    let (tag, at) = (world.nodes[1].tag, Peer { addresses: both.to_vec(), udp: false });
    world.nodes[1].others.push(SocketAddr::new(both[1], 0));
    world.act(1, |host, now| host.set_addresses(now, &both));
    world.act(0, |host, _| host.set_peer(tag, Some(at)));
    let id = world.nodes[0].host.describe().next().unwrap().id;
    (world, both, id)
}

/// A host that has the other family alone from now on asks its peer at the address of that family which the directory has. "A host MUST verify the
/// reachability of an UNVERIFIED address." (RFC 8046 section 5.4): user data goes there once the peer has answered from there.
#[test]
fn data_goes_to_another_known_address_when_the_peer_has_answered_there() {
    let (mut world, [_, theirs], id) = known_in_both_families();
    let ours: IpAddr = "2001:db8::1".parse().unwrap();
    let way = |world: &World| world.nodes[0].plane.path[&id];
    let before = way(&world);
    world.dead.insert(theirs);
    world.place(0, "2001:db8::1");
    world.run(SOON);
    let (asked, _) = world.last(PacketType::Update);
    assert_eq!((asked.remote.ip(), way(&world)), (theirs, before), "asked there, and sent nothing there");
    world.dead.clear();
    world.run(SOON * 3);
    assert_eq!((way(&world).local.ip(), way(&world).remote.ip()), (ours, theirs), "{:?}", world.drops);
    world.send_data(0, 1);
    world.run(SOON);
    assert_eq!(world.data.last().map(|(node, from)| (*node, from.ip())), Some((1, ours)));
}

/// The other family is not answered, and a host has the first one again, with a new address of its own: the peer's was verified before, so data
/// goes there at once.
#[test]
fn data_goes_to_a_verified_address_at_once_from_any_of_ours() {
    let (mut world, [four, theirs], id) = known_in_both_families();
    world.dead.insert(theirs);
    world.place(0, "2001:db8::1");
    world.run(SOON);
    let new: IpAddr = "198.51.100.7".parse().unwrap();
    world.nodes[0].address.set_ip(new);
    world.act(0, |host, now| host.set_addresses(now, &[new]));
    let way = world.nodes[0].plane.path[&id];
    assert_eq!((way.local.ip(), way.remote.ip()), (new, four), "before the peer has answered");
    world.run(SOON * 3);
    assert!(world.joined(0, 1) && world.is_idle(), "{:?}", world.drops);
}

/// Both move at one moment, and each asks the other by a way that the other does not use: neither follows the other's question back and forth without
/// end.
#[test]
fn questions_by_two_ways_at_once_come_to_an_end() {
    for seed in 0..40 {
        let mut world = joined(seed, Carrier::RawHip, config());
        let four: [IpAddr; 2] = [0, 1].map(|n: usize| world.nodes[n].address.ip());
        let six: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2"].map(|at| at.parse().unwrap());
        for node in [0, 1] {
            let (tag, other) = (world.nodes[1 - node].tag, 1 - node);
            let at = Peer { addresses: vec![four[other], six[other]], udp: false };
            world.act(node, |host, _| host.set_peer(tag, Some(at)));
            world.nodes[node].others.push(SocketAddr::new(six[node], 0));
            world.act(node, |host, now| host.set_addresses(now, &[four[node], six[node]]));
        }
        let elsewhere: IpAddr = "192.0.2.99".parse().unwrap();
        world.nodes[1].others.push(SocketAddr::new(elsewhere, 0));
        world.act(1, |host, now| host.set_addresses(now, &[elsewhere]));
        world.run(SOON);
        let before = world.count(PacketType::Update);
        world.act(0, |host, now| host.set_addresses(now, &[six[0]]));
        world.act(1, |host, now| host.set_addresses(now, &[four[1], six[1]]));
        world.act(0, |host, now| host.set_addresses(now, &[four[0], six[0]]));
        world.run(SOON);
        let sent = world.count(PacketType::Update) - before;
        assert!(sent < 15, "seed {seed}: {sent} UPDATE packets in a second");
        world.data.clear();
        world.send_data(0, 1);
        world.send_data(1, 0);
        world.run(SOON);
        assert_eq!(world.data.len(), 2, "seed {seed}: {:?}", world.drops);
    }
}
