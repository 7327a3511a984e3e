//! Relays (RFC 9028): hosts behind NATs reach each other through one, in HIP and in ESP, and then by a direct way if their NATs let them; what
//! a relay does not send on, and what its clients do not believe.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dormouse_hip::{Accept, Host, HostConfig, Registrar, Registration};
use dormouse_keying::{ChildId, Discard, KeyManager, Owner};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::hip::{Draft, Packet, PacketType, Param, ParamType};

use crate::world::{Nat, Plane, World, config, identity, mirrored};

pub(crate) const SOON: Duration = Duration::from_secs(2);
pub(crate) const LATER: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Who asks, who is asked for behind the relay, and the relay.
pub(crate) const ASKS: usize = 0;
pub(crate) const CLIENT: usize = 1;
pub(crate) const RELAY: usize = 2;

pub(crate) const OUTSIDE: [&str; 2] = ["203.0.113.1", "203.0.113.2"];
pub(crate) const INSIDE: [&str; 2] = ["10.0.0.1", "10.0.1.1"];

pub(crate) fn registrar() -> Registrar {
    Registrar { permits: Accept::Any, longest: 24 * HOUR, max_clients: 10 }
}

/// Two hosts behind NATs, and a relay at which one of them registers.
fn world(seed: u64, symmetric: [bool; 2], relay: HostConfig) -> World {
    let relays = BTreeSet::from([identity("known rsa").hit()]);
    let client = HostConfig { relays, registration: HOUR, ..config() };
    let hosts = vec![("p256", config()), ("p384", client), ("known rsa", relay)];
    let mut world = World::new(seed, Carrier::HipUdp, hosts);
    for node in [ASKS, CLIENT] {
        world.nats.push(Nat::new(OUTSIDE[node], INSIDE[node], symmetric[node]));
        world.place(node, INSIDE[node]);
    }
    world.place(RELAY, "198.51.100.1");
    let (relay, at) = (world.nodes[RELAY].tag, world.whereabouts(RELAY));
    let client = world.nodes[CLIENT].tag;
    world.act(ASKS, |host, _| host.set_relays_of(client, at.addresses.clone()));
    world.act(CLIENT, |host, _| host.set_peer(relay, Some(at)));
    world.run(SOON);
    world
}

pub(crate) fn with_relay(seed: u64, symmetric: [bool; 2]) -> World {
    world(seed, symmetric, HostConfig { relay_server: Some(registrar()), ..config() })
}

/// No identity's: a packet whose source does not choose one.
pub(crate) const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

pub(crate) fn ask(world: &mut World) -> bool {
    let client = world.nodes[CLIENT].tag;
    world.act(ASKS, |host, now| host.want_tunnel(now, (ANY, client.0.into()), true))
}

fn registration(world: &World, node: usize, with: usize) -> Option<Registration> {
    let mut found = world.nodes[node].host.describe().filter(|d| d.peer == world.nodes[with].tag);
    found.next().map(|d| d.registration)
}

/// Where packets to the other go, and whether that is a relay.
pub(crate) fn way(world: &World, node: usize, to: usize) -> (SocketAddr, bool) {
    let found =
        world.nodes[node].host.describe().find(|d| d.peer == world.nodes[to].tag).expect("an association");
    (found.path.remote, found.relayed)
}

pub(crate) fn relay_at(world: &World) -> SocketAddr {
    world.nodes[RELAY].address
}

/// ESP passes in both directions.
pub(crate) fn data_passes(world: &mut World) -> bool {
    world.data.clear();
    world.send_data(ASKS, CLIENT);
    world.send_data(CLIENT, ASKS);
    world.run(Duration::from_millis(200));
    let came: BTreeSet<usize> = world.data.iter().map(|(node, _)| *node).collect();
    came == BTreeSet::from([ASKS, CLIENT])
}

pub(crate) fn parsed(bytes: &[u8]) -> Packet<'_> {
    Packet::parse(&bytes[4..]).unwrap()
}

pub(crate) fn kinds(bytes: &[u8]) -> Vec<ParamType> {
    parsed(bytes).params().iter().map(|p| p.kind).collect()
}

/// RFC 9028 section 4.1, figure 2: in the base exchange itself, with how the relay sees the client, and where it takes data for it.
#[test]
fn a_client_registers_and_learns_how_it_is_seen() {
    let world = with_relay(1, [false; 2]);
    assert_eq!(registration(&world, CLIENT, RELAY), Some(Registration::AtPeer));
    assert_eq!(registration(&world, RELAY, CLIENT), Some(Registration::OfPeer));
    let (_, r1) = world.last(PacketType::R1);
    let Some(Param::RegInfo(info)) = parsed(&r1).read(ParamType::RegInfo) else { panic!() };
    assert_eq!(info.types, [2, 3]);
    // Neither needs the other's help to be reached in UDP.
    for kind in [PacketType::R1, PacketType::I2] {
        let (_, packet) = world.last(kind);
        let mode = parsed(&packet).read(ParamType::NatTraversalMode);
        assert_eq!(mode, Some(Param::Suites(ParamType::NatTraversalMode, vec![1])), "{kind}");
    }
    let (_, r2) = world.last(PacketType::R2);
    let Some(Param::Registration(_, granted)) = parsed(&r2).read(ParamType::RegResponse) else { panic!() };
    assert_eq!(granted.types, [2, 3]);
    let at = |kind| match parsed(&r2).read(kind) {
        Some(Param::Transport(_, at)) => SocketAddr::new(at.address.to_canonical(), at.port).to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(at(ParamType::RegFrom), format!("{}:20000", OUTSIDE[CLIENT]));
    assert_eq!(at(ParamType::RelayedAddress), relay_at(&world).to_string());
}

/// Through the relay at first, in HIP and in ESP; by a direct way as soon as the checks have found one. Figures 4 and 5.
#[test]
fn both_ends_behind_nats_find_a_direct_way() {
    for seed in 0..20 {
        let mut world = with_relay(seed, [false; 2]);
        world.seen.clear();
        assert!(ask(&mut world));
        while !world.joined(ASKS, CLIENT) {
            assert!(world.step(world.now + SOON), "seed {seed}: {:?}", world.drops);
        }
        assert_eq!(way(&world, ASKS, CLIENT), (relay_at(&world), true));
        // The permission was sent before the R2: data passes at once.
        world.send_data(ASKS, CLIENT);
        world.run(Duration::from_millis(100));
        assert!(world.data.iter().any(|(node, _)| *node == CLIENT), "seed {seed}");
        world.run(LATER);
        for (node, other) in [(ASKS, CLIENT), (CLIENT, ASKS)] {
            let (at, relayed) = way(&world, node, other);
            assert_eq!((at.ip().to_string(), relayed), (OUTSIDE[other].to_owned(), false), "seed {seed}");
            assert_eq!(world.nodes[node].host.stats().direct, 1);
        }
        let passed = world.nodes[RELAY].host.stats().relayed_data;
        assert!(data_passes(&mut world), "seed {seed}: {:?}", world.drops);
        assert_eq!(world.nodes[RELAY].host.stats().relayed_data, passed, "not through the relay");
        assert!(world.joined(ASKS, CLIENT));
    }
}

/// What the packets have, in the order of RFC 9028 section 4.5.
#[test]
fn relayed_packets_have_the_parameters_of_the_rfc() {
    use ParamType as T;
    let mut world = with_relay(2, [false; 2]);
    world.seen.clear();
    ask(&mut world);
    world.run(Duration::from_secs(6));
    let of = |kind: PacketType| -> Vec<Vec<T>> {
        let is = |bytes: &[u8]| {
            Packet::parse(bytes.get(4..).unwrap_or_default()).is_ok_and(|p| p.header.kind == kind)
        };
        world.seen.iter().filter(|(_, b)| is(b)).map(|(_, b)| kinds(b)).collect()
    };
    let i1 = of(PacketType::I1);
    assert_eq!(i1, [vec![T::DhGroupList], vec![T::DhGroupList, T::RelayFrom, T::RelayHmac]]);
    for (kind, last) in [(PacketType::R1, T::RelayTo), (PacketType::R2, T::RelayTo)] {
        let both = of(kind);
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].last(), Some(&T::RelayHmac), "{kind}: by the client");
        assert_eq!((both[1].last(), both[1].len()), (Some(&last), both[0].len() - 1), "{kind}: to its peer");
    }
    assert!(of(PacketType::R1)[0].windows(2).any(|w| w == [T::NatTraversalMode, T::TransactionPacing]));
    assert!(
        of(PacketType::I2)[0]
            .windows(3)
            .any(|w| w == [T::NatTraversalMode, T::TransactionPacing, T::Encrypted])
    );
    assert!(of(PacketType::R2)[0].starts_with(&[T::EspInfo, T::Encrypted]), "{:?}", of(PacketType::R2));
    let updates = of(PacketType::Update);
    let check = [T::Seq, T::EchoRequestSigned, T::CandidatePriority, T::HipMac, T::HipSignature];
    let answer = [T::Ack, T::EchoResponseSigned, T::MappedAddress, T::HipMac, T::HipSignature];
    let permission = [T::EspInfo, T::Seq, T::PeerPermission, T::HipMac, T::HipSignature];
    for expected in [&check[..], &answer, &permission] {
        assert!(updates.iter().any(|u| u == expected), "{expected:?} in {updates:?}");
    }
    assert!(updates.iter().any(|u| u.contains(&T::Nominate) && u.contains(&T::Ack)), "{updates:?}");
}

/// NATs that show each destination another port let no direct way through: all goes by the relay, also with new keys, and for longer than a
/// permission lasts.
#[test]
fn without_a_direct_way_all_goes_through_the_relay() {
    let mut world = with_relay(3, [true; 2]);
    ask(&mut world);
    world.run(LATER);
    assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
    assert_eq!(way(&world, ASKS, CLIENT), (relay_at(&world), true));
    assert_eq!(way(&world, CLIENT, ASKS), (relay_at(&world), true));
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let is_check = |bytes: &[u8]| {
        Packet::parse(bytes.get(4..).unwrap_or_default())
            .is_ok_and(|p| p.find(ParamType::CandidatePriority).is_some())
    };
    let checks = |world: &World| world.seen.iter().filter(|(_, bytes)| is_check(bytes)).count();
    let before = checks(&world);
    world.run(Duration::from_secs(1_000));
    assert!(data_passes(&mut world), "permitted again and again: {:?}", world.drops);
    assert_eq!(checks(&world), before, "checks end");
    let before = world.child(ASKS);
    world.rekey(ASKS);
    world.run(SOON);
    assert!(world.joined(ASKS, CLIENT) && world.child(ASKS) != before, "{:?}", world.drops);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let id = world.nodes[ASKS].host.describe().next().unwrap().id;
    world.act(ASKS, |host, now| host.close(now, id));
    world.run(SOON);
    let ended = world.nodes[CLIENT].plane.closed.last().map(|(_, why)| *why);
    assert_eq!((ended, world.count(PacketType::CloseAck)), (Some("the peer closed the association"), 2));
}

#[test]
fn one_nat_alone_may_be_a_hard_one() {
    for symmetric in [[true, false], [false, true]] {
        let mut world = with_relay(4, symmetric);
        ask(&mut world);
        world.run(LATER);
        assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
        assert!(data_passes(&mut world), "{symmetric:?}: {:?}", world.drops);
    }
}

#[test]
fn it_completes_under_loss_and_repetition() {
    let mut direct = 0;
    for seed in 0..30 {
        let mut world = with_relay(seed, [seed % 3 == 0; 2]);
        (world.lost, world.doubled) = (100, 200);
        ask(&mut world);
        world.run(LATER);
        (world.lost, world.doubled) = (0, 0);
        world.run(LATER);
        if world.nodes[ASKS].plane.closed.is_empty() && world.nodes[CLIENT].plane.closed.is_empty() {
            assert!(world.joined(ASKS, CLIENT), "seed {seed}: {:?}", world.drops);
            assert!(data_passes(&mut world), "seed {seed}: {:?}", world.drops);
            direct += u32::from(!way(&world, ASKS, CLIENT).1);
        }
    }
    assert!(direct >= 10, "{direct} of 20");
}

/// A host that moves finds its peer through the relay again, and then another direct way.
#[test]
fn a_host_behind_a_nat_moves() {
    for mover in [ASKS, CLIENT] {
        let mut world = with_relay(5, [false; 2]);
        ask(&mut world);
        world.run(LATER);
        assert!(!way(&world, ASKS, CLIENT).1, "{:?}", world.drops);
        world.nats.push(Nat::new("203.0.113.9", "10.0.9.1", false));
        world.place(mover, "10.0.9.1");
        world.run(LATER);
        world.run(LATER);
        assert!(world.joined(ASKS, CLIENT), "{mover}: {:?}", world.drops);
        assert_eq!(world.nodes[ASKS].plane.established, 1, "one association for all of it");
        assert!(!way(&world, ASKS, CLIENT).1, "{mover}: a direct way again");
        assert!(data_passes(&mut world), "{mover}: {:?}", world.drops);
    }
}

/// Where no direct way comes to the rescue, the relay sends data to where the host is now, and not to where it was as well.
#[test]
fn a_host_behind_a_hard_nat_moves() {
    for mover in [ASKS, CLIENT] {
        let mut world = with_relay(17, [true; 2]);
        ask(&mut world);
        world.run(LATER);
        assert!(data_passes(&mut world), "{:?}", world.drops);
        world.nats.push(Nat::new("203.0.113.9", "10.0.9.1", true));
        world.place(mover, "10.0.9.1");
        world.run(LATER);
        assert!(world.joined(ASKS, CLIENT) && way(&world, ASKS, CLIENT).1, "{mover}: {:?}", world.drops);
        assert!(data_passes(&mut world), "{mover}: {:?}", world.drops);
    }
}

/// Who repeats a peer's packet to the relay from another address moves no data there: the peer does not answer from it.
#[test]
fn data_goes_where_the_peer_has_answered() {
    let mut world = with_relay(18, [true; 2]);
    ask(&mut world);
    world.run(LATER);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let id = world.nodes[ASKS].host.describe().next().unwrap().id;
    world.lost = 1_000;
    world.act(ASKS, |host, now| host.ask(now, Owner::Hip(id)));
    let (path, update) = world.last(PacketType::Update);
    world.lost = 0;
    let victim: SocketAddr = "198.51.100.66:53".parse().unwrap();
    let spoofed = Path { local: path.remote, remote: victim, carrier: Carrier::HipUdp };
    assert_eq!(world.hand(RELAY, spoofed, &update), Ok(()));
    world.seen.clear();
    for _ in 0..20 {
        assert!(data_passes(&mut world), "{:?}", world.drops);
    }
    world.run(Duration::from_secs(400));
    assert!(world.joined(ASKS, CLIENT) && data_passes(&mut world), "{:?}", world.drops);
    let to_victim = world.seen.iter().filter(|(path, _)| path.remote == victim);
    let of_hip = |bytes: &[u8]| Packet::parse(bytes.get(4..).unwrap_or_default()).is_ok();
    assert_eq!(to_victim.filter(|(_, bytes)| !of_hip(bytes)).count(), 0, "data went to who did not answer");
}

/// A relay that starts again knows no one: its client asks it now and then, registers again, and names its peers again.
#[test]
fn a_relay_that_starts_again_serves_again() {
    let mut world = with_relay(15, [true; 2]);
    ask(&mut world);
    world.run(LATER);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let config = HostConfig { relay_server: Some(registrar()), ..config() };
    let spis = Box::new(BTreeSet::<ChildId>::new());
    world.nodes[RELAY].host = Host::new(config, vec![identity("known rsa")], spis, Box::new(Seeded::new(77)));
    world.nodes[RELAY].plane = Plane::default();
    world.place(RELAY, "198.51.100.1");
    assert!(!data_passes(&mut world));
    world.run(Duration::from_secs(300));
    assert_eq!(registration(&world, RELAY, CLIENT), Some(Registration::OfPeer), "{:?}", world.drops);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    assert_eq!(world.nodes[ASKS].plane.established, 1, "no other association between the two");
}

/// The NAT before a client starts again, and shows it by another port: the relay learns it.
#[test]
fn a_nat_that_starts_again_is_noticed() {
    let mut world = with_relay(16, [true; 2]);
    ask(&mut world);
    world.run(LATER);
    world.nats[CLIENT] = Nat::new("203.0.113.77", INSIDE[CLIENT], true);
    world.run(Duration::from_secs(300));
    let (at, _) = way(&world, RELAY, CLIENT);
    assert_eq!(at.ip().to_string(), "203.0.113.77", "{:?}", world.drops);
    assert!(data_passes(&mut world), "{:?}", world.drops);
}

#[test]
fn who_is_no_relay_or_refuses_is_not_relied_on() {
    let unlisted = Registrar { permits: Accept::Listed(BTreeSet::new()), ..registrar() };
    for (relay_server, stands) in [(Some(unlisted), Registration::Refused(0)), (None, Registration::None)] {
        let mut world = world(7, [false; 2], HostConfig { relay_server, ..config() });
        assert_eq!(registration(&world, CLIENT, RELAY), Some(stands));
        ask(&mut world);
        world.run(SOON);
        assert!(!world.joined(ASKS, CLIENT));
        assert_eq!(world.nodes[RELAY].host.stats().relayed_control, 0);
    }
}

/// RFC 9028 section 7.8: one of both, and relaying goes before rendezvous.
#[test]
fn no_one_is_a_client_of_a_relay_and_of_a_rendezvous_server_at_once() {
    let both = HostConfig { relay_server: Some(registrar()), registrar: Some(registrar()), ..config() };
    let mut world = world(8, [false; 2], both);
    assert_eq!(registration(&world, CLIENT, RELAY), Some(Registration::AtPeer));
    let (_, r1) = world.last(PacketType::R1);
    let Some(Param::RegInfo(info)) = parsed(&r1).read(ParamType::RegInfo) else { panic!() };
    assert_eq!(info.types, [1, 2, 3]);
    // A packet that the relay sent on as a rendezvous server is refused, and the relay learns it.
    ask(&mut world);
    world.run(SOON);
    assert!(world.joined(ASKS, CLIENT));
}

/// What becomes of a parameter; `None`: it is left out.
type Change<'a> = &'a dyn Fn(ParamType, &[u8]) -> Option<Vec<u8>>;

/// A relay sends nothing on without a right MAC of a client, from where the client is.
#[test]
fn a_relay_sends_on_for_its_clients_alone() {
    let mut world = with_relay(9, [false; 2]);
    ask(&mut world);
    world.run(Duration::from_millis(120));
    let from_client = |bytes: &[u8]| {
        Packet::parse(bytes.get(4..).unwrap_or_default())
            .is_ok_and(|p| p.find(ParamType::RelayHmac).is_some() && p.find(ParamType::RelayTo).is_some())
    };
    let (_, sent) = world.seen.iter().find(|(_, b)| from_client(b)).expect("an R1 to be relayed").clone();
    let client: SocketAddr = format!("{}:20000", OUTSIDE[CLIENT]).parse().unwrap();
    let path = Path { local: relay_at(&world), remote: client, carrier: Carrier::HipUdp };
    let before = world.nodes[RELAY].host.stats().relayed_control;
    let elsewhere = Path { remote: "198.51.100.9:20000".parse().unwrap(), ..path };
    assert_eq!(world.hand(RELAY, elsewhere, &sent), Err(Discard("of a client that is not where it was")));
    let packet = parsed(&sent);
    let with = |change: Change<'_>| {
        let mut draft = Draft::new(&packet.header);
        for raw in packet.params() {
            if let Some(contents) = change(raw.kind, raw.contents) {
                draft.add(&Param::Opaque(raw.kind, contents));
            }
        }
        [&[0; 4][..], &draft.finish().unwrap()].concat()
    };
    let to_victim = with(&|kind, contents| {
        let mut contents = contents.to_vec();
        if kind == ParamType::RelayTo {
            contents[19] ^= 1;
        }
        Some(contents)
    });
    let unsigned = with(&|kind, contents| (kind != ParamType::RelayHmac).then(|| contents.to_vec()));
    for forged in [to_victim, unsigned] {
        assert_eq!(
            world.hand(RELAY, path, &forged),
            Err(Discard("to be relayed, and with a wrong RELAY_HMAC"))
        );
    }
    assert_eq!(world.nodes[RELAY].host.stats().relayed_control, before);
    assert_eq!(world.hand(RELAY, path, &sent), Ok(()), "the real one is");
}

/// A client believes RELAY_FROM with its relay's MAC alone, and from its relay alone.
#[test]
fn a_client_believes_its_relay_alone() {
    let mut world = with_relay(10, [false; 2]);
    ask(&mut world);
    world.run(Duration::from_millis(120));
    let relayed = |bytes: &[u8]| {
        Packet::parse(bytes.get(4..).unwrap_or_default())
            .is_ok_and(|p| p.find(ParamType::RelayFrom).is_some())
    };
    let (path, sent) = world.seen.iter().find(|(_, b)| relayed(b)).expect("a relayed I1").clone();
    let path = Path { local: world.nodes[CLIENT].address, ..mirrored(path) };
    let none = Err(Discard("relayed by none of our relays"));
    let elsewhere = Path { remote: "198.51.100.9:10500".parse().unwrap(), ..path };
    assert_eq!(world.hand(CLIENT, elsewhere, &sent), none);
    let mut changed = sent.clone();
    let at = 4 + parsed(&sent).find(ParamType::RelayFrom).unwrap().at;
    changed[at + 20] ^= 1;
    assert_eq!(world.hand(CLIENT, path, &changed), none);
    assert_eq!(world.hand(ASKS, path, &sent).map_err(|_| ()), Err(()));
    assert_eq!(world.hand(CLIENT, path, &sent), Ok(()));
}

/// Floods for a client, and of ESP without permission, are thinned at the relay or end there.
#[test]
fn a_relay_sends_on_no_flood() {
    let mut world = with_relay(11, [true; 2]);
    ask(&mut world);
    let (path, i1) = world.last(PacketType::I1);
    let from = Path { remote: "198.51.100.77:4000".parse().unwrap(), ..mirrored(path) };
    for _ in 0..1_000 {
        world.hand(RELAY, from, &i1).ok();
    }
    let permitted = u64::from(config().difficulty.to_one_address);
    assert_eq!(world.nodes[RELAY].host.stats().relayed_control, permitted);
    world.run(LATER);
    assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
    assert!(data_passes(&mut world));
    let install = world.nodes[ASKS].plane.installed.values().next().unwrap();
    let esp = [&install.spi_out.to_be_bytes()[..], b"forged"].concat();
    let passed = world.nodes[RELAY].host.stats().relayed_data;
    assert_eq!(world.hand(RELAY, from, &esp), Err(Discard("ESP for no one")), "from another address");
    assert_eq!(world.nodes[RELAY].host.stats().relayed_data, passed);
}

/// What strangers send for a client takes nothing of what its peers may.
#[test]
fn a_flood_does_not_cut_a_client_off_from_its_peers() {
    let mut world = with_relay(19, [true; 2]);
    ask(&mut world);
    let (path, i1) = world.last(PacketType::I1);
    world.run(LATER);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let from = Path { remote: "198.51.100.77:4000".parse().unwrap(), ..mirrored(path) };
    let before = world.child(ASKS);
    world.rekey(ASKS);
    for _ in 0..40 {
        for _ in 0..300 {
            world.hand(RELAY, from, &i1).ok();
        }
        world.run(Duration::from_millis(50));
    }
    assert!(world.joined(ASKS, CLIENT) && world.child(ASKS) != before, "{:?}", world.drops);
}

/// Only an echo that a check of ours has asked for moves data: a check that is sent again from elsewhere does not.
#[test]
fn replayed_checks_move_nothing() {
    let mut world = with_relay(12, [false; 2]);
    ask(&mut world);
    world.run(LATER);
    let ways = [way(&world, ASKS, CLIENT), way(&world, CLIENT, ASKS)];
    let updates: Vec<Vec<u8>> = world
        .seen
        .iter()
        .filter(|(_, b)| {
            Packet::parse(b.get(4..).unwrap_or_default()).is_ok_and(|p| p.header.kind == PacketType::Update)
        })
        .map(|(_, b)| b.clone())
        .collect();
    assert!(updates.len() > 6);
    let attacker: SocketAddr = "198.51.100.66:10500".parse().unwrap();
    let before = world.seen.len();
    for node in [ASKS, CLIENT] {
        let path = Path { local: world.nodes[node].address, remote: attacker, carrier: Carrier::HipUdp };
        for _ in 0..20 {
            for bytes in &updates {
                world.hand(node, path, bytes).ok();
            }
        }
    }
    // Answers are bounded: so many a second at each end, and checks of our own there.
    let answers = world.seen[before..].iter().filter(|(p, _)| p.remote == attacker).count();
    assert!(answers <= 2 * 40 + 10, "{answers}");
    world.run(LATER);
    assert_eq!([way(&world, ASKS, CLIENT), way(&world, CLIENT, ASKS)], ways);
    assert!(data_passes(&mut world));
}

/// Candidates that a peer names are tried so often at most, and never where no host can be, or this host is.
#[test]
fn no_one_is_flooded_by_checks() {
    let mut world = with_relay(13, [true; 2]);
    ask(&mut world);
    world.run(LATER);
    for node in [ASKS, CLIENT] {
        let mine = world.nodes[node].address;
        let mut to = std::collections::BTreeMap::new();
        for (path, bytes) in &world.seen {
            let check = Packet::parse(bytes.get(4..).unwrap_or_default())
                .is_ok_and(|p| p.find(ParamType::CandidatePriority).is_some());
            if check && path.local == mine {
                *to.entry(path.remote).or_insert(0) += 1;
            }
        }
        assert!(!to.is_empty() && to.len() <= 16, "{to:?}");
        assert!(to.values().all(|n| *n <= 5) && !to.contains_key(&mine), "{to:?}");
    }
}

/// Who stops relaying for a client stops data as well.
#[test]
fn data_ends_with_the_registration() {
    let mut world = with_relay(14, [true; 2]);
    ask(&mut world);
    world.run(LATER);
    assert!(data_passes(&mut world), "{:?}", world.drops);
    let relay = world.nodes[RELAY].tag;
    let it = world.nodes[CLIENT].host.describe().find(|d| d.peer == relay).unwrap().id;
    world.act(CLIENT, |host, _| host.set_peer(relay, None));
    world.act(CLIENT, |host, now| host.close(now, it));
    world.run(Duration::from_millis(500));
    assert!(!data_passes(&mut world));
}

/// The direct way is gone: the CLOSE finds the peer through the relay, and so does its answer.
#[test]
fn an_end_is_told_through_the_relay() {
    for (closes, other) in [(ASKS, CLIENT), (CLIENT, ASKS)] {
        let mut world = with_relay(31, [false; 2]);
        assert!(ask(&mut world));
        world.run(LATER);
        assert!(!way(&world, ASKS, CLIENT).1 && !way(&world, CLIENT, ASKS).1, "by a direct way");
        for (from, to) in [(ASKS, CLIENT), (CLIENT, ASKS)] {
            let at = |text: &str| text.parse().unwrap();
            world.apart.insert((at(OUTSIDE[from]), at(INSIDE[to])));
        }
        let peer = world.nodes[other].tag;
        let id = world.nodes[closes].host.describe().find(|d| d.peer == peer).unwrap().id;
        world.act(closes, |host, now| host.close(now, id));
        world.run(Duration::from_secs(4));
        let why = world.nodes[other].plane.closed.last().map(|(_, why)| *why);
        assert_eq!(why, Some("the peer closed the association"), "{:?}", world.drops);
        let left = world.nodes[closes].host.describe().filter(|d| d.peer == peer).count();
        assert_eq!(left, 0, "the answer came back: {:?}", world.drops);
    }
}
