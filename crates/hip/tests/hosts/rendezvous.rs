//! A rendezvous server and its clients: registration and what comes of it, packets that are sent on, both ends moving at once, the server
//! gone, and what none of them believes.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_hip::{Accept, Host, HostConfig, Registrar, Registration};
use dormouse_keying::{ChildId, Discard, KeyManager};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::hip::{Draft, Hit, Packet, PacketType, Param, ParamType, set_checksum};

use crate::relay::ANY;
use crate::world::{World, config, identity};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3_600);

/// Who asks, who is asked for, and the server at which it is registered.
const ASKS: usize = 0;
const CLIENT: usize = 1;
const SERVER: usize = 2;

fn registrar() -> Registrar {
    Registrar { permits: Accept::Any, longest: 24 * HOUR, max_clients: 10 }
}

fn world(seed: u64, carrier: Carrier, registrar: Option<Registrar>) -> World {
    of_clients(seed, carrier, registrar, &[CLIENT])
}

fn of_clients(seed: u64, carrier: Carrier, registrar: Option<Registrar>, clients: &[usize]) -> World {
    let rendezvous = BTreeSet::from([identity("known rsa").hit()]);
    let client = HostConfig { rendezvous, registration: HOUR, ..config() };
    let server = HostConfig { registrar, ..config() };
    let asks = if clients.contains(&ASKS) { client.clone() } else { config() };
    let hosts = vec![("p256", asks), ("p384", client), ("known rsa", server)];
    let mut world = World::new(seed, carrier, hosts);
    for node in 0..3 {
        world.place(node, &format!("192.0.2.{}", node + 1));
    }
    let (server, at) = (world.nodes[SERVER].tag, world.whereabouts(SERVER));
    for client in clients {
        let tag = world.nodes[*client].tag;
        world.act(*client, |host, _| host.set_peer(server, Some(at.clone())));
        world.act(1 - client, |host, _| host.set_rendezvous_of(tag, Some(at.clone())));
    }
    world.run(SOON);
    world
}

fn registration(world: &World, node: usize, with: usize) -> Option<Registration> {
    let mut found = world.nodes[node].host.describe().filter(|d| d.peer == world.nodes[with].tag);
    found.next().map(|d| d.registration)
}

fn ask(world: &mut World) -> bool {
    let client = world.nodes[CLIENT].tag;
    world.act(ASKS, |host, now| host.want_tunnel(now, (ANY, client.0.into()), true))
}

/// All that is sent until two hosts have found each other through the server, at which one of them is registered.
pub(crate) fn found_through_the_server(seed: u64) -> World {
    let mut world = world(seed, Carrier::RawHip, Some(registrar()));
    assert!(ask(&mut world));
    world.run(LATER);
    assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
    world
}

fn param(world: &World, kind: PacketType, param: ParamType) -> Option<Param> {
    let (_, bytes) = world.last(kind);
    let skip = if world.carrier == Carrier::HipUdp { 4 } else { 0 };
    Packet::parse(&bytes[skip..]).unwrap().read(param)
}

fn mirrored(path: Path) -> Path {
    Path { local: path.remote, remote: path.local, ..path }
}

/// RFC 8003 section 3: offered in R1, asked for in I2, granted in R2, for the lifetime that both can have.
#[test]
fn a_client_registers_by_itself() {
    let world = world(1, Carrier::RawHip, Some(registrar()));
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer));
    assert_eq!(registration(&world, SERVER, CLIENT), Some(Registration::OfPeer));
    assert_eq!(world.seen.len(), 4, "in the base exchange itself");
    let Some(Param::RegInfo(info)) = param(&world, PacketType::R1, ParamType::RegInfo) else { panic!() };
    // 2^((90 - 64) / 8) is 9.5 seconds, 2^((195 - 64) / 8) is 23.6 hours.
    assert_eq!((info.min_lifetime, info.max_lifetime, info.types), (90, 195, vec![1]));
    let of = |kind, p| match param(&world, kind, p) {
        Some(Param::Registration(_, r)) => (r.lifetime, r.types),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(PacketType::I2, ParamType::RegRequest), (158, vec![1]));
    assert_eq!(of(PacketType::R2, ParamType::RegResponse), (158, vec![1]));
}

#[test]
fn a_registration_is_refused_with_the_reason() {
    let unlisted = Registrar { permits: Accept::Listed(BTreeSet::new()), ..registrar() };
    let full = Registrar { max_clients: 0, ..registrar() };
    for (server, stands) in [
        (Some(unlisted), Registration::Refused(0)),
        (Some(full), Registration::Refused(2)),
        (None, Registration::None),
    ] {
        let mut world = world(2, Carrier::RawHip, server);
        assert_eq!(registration(&world, CLIENT, SERVER), Some(stands));
        assert_eq!(registration(&world, SERVER, CLIENT), Some(Registration::None));
        assert!(ask(&mut world), "there is a way");
        world.run(SOON);
        assert!(world.drops.contains(&"for another host"));
    }
}

/// A client that starts again and asks once more has the place that it had, however many others there are.
#[test]
fn a_full_server_takes_its_own_client_back() {
    let mut world = world(9, Carrier::RawHip, Some(Registrar { max_clients: 1, ..registrar() }));
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer));
    world.lost = 1_000;
    let id = world.nodes[CLIENT].host.describe().next().unwrap().id;
    world.act(CLIENT, |host, now| host.close(now, id));
    world.run(LATER);
    world.lost = 0;
    assert_eq!(registration(&world, SERVER, CLIENT), Some(Registration::OfPeer), "it has noticed nothing");
    world.run(HOUR / 2);
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer));
}

/// RFC 8004 section 3.3: I1 to the server and on to the client, R1 with the server's address, and the rest without the server.
#[test]
fn an_exchange_begins_through_the_server() {
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        let mut world = world(3, carrier, Some(registrar()));
        world.seen.clear();
        assert!(ask(&mut world));
        world.run(SOON);
        assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
        let sent: Vec<_> = world.seen.iter().map(|(p, _)| (p.local.ip(), p.remote.ip())).collect();
        let [a, c, s] = [ASKS, CLIENT, SERVER].map(|n| world.nodes[n].address.ip());
        assert_eq!(sent, [(a, s), (s, c), (c, a), (a, c), (c, a)]);
        let skip = if carrier == Carrier::HipUdp { 4 } else { 0 };
        let sent_on = Packet::parse(&world.seen[1].1[skip..]).unwrap();
        let kinds: Vec<_> = sent_on.params().iter().map(|p| p.kind).collect();
        assert_eq!(kinds, [ParamType::DhGroupList, ParamType::From, ParamType::RvsHmac]);
        let named = |param: Option<Param>| match param {
            Some(Param::Addresses(_, a)) => {
                a.iter().map(std::net::Ipv6Addr::to_canonical).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(named(sent_on.read(ParamType::From)), [a]);
        assert_eq!(named(param(&world, PacketType::R1, ParamType::ViaRvs)), [s]);
        assert_eq!(world.nodes[SERVER].host.stats().relayed, 1);
    }
}

/// RFC 8046 section 3.2.3: neither reaches the other where it was; the server knows where its clients are, for they have told it.
#[test]
fn both_ends_move_at_once() {
    for seed in 0..30 {
        let carrier = if seed % 2 == 0 { Carrier::RawHip } else { Carrier::HipUdp };
        let clients: &[usize] = if seed % 3 == 0 { &[CLIENT] } else { &[ASKS, CLIENT] };
        let mut world = of_clients(seed, carrier, Some(registrar()), clients);
        ask(&mut world);
        world.run(SOON);
        assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
        world.seen.clear();
        let log = world.nodes[ASKS].plane.log.len();
        world.place(ASKS, "198.51.100.7");
        world.place(CLIENT, "203.0.113.7");
        world.lost = if seed % 4 < 2 { 0 } else { 150 };
        world.run(Duration::from_secs(10));
        world.lost = 0;
        world.run(LATER);
        assert!(world.joined(ASKS, CLIENT), "seed {seed}: {:?}", world.drops);
        for (node, other) in [(ASKS, CLIENT), (CLIENT, ASKS)] {
            let found = world.nodes[node].host.describe().find(|d| d.peer == world.nodes[other].tag);
            assert_eq!(found.unwrap().path.remote.ip(), world.nodes[other].address.ip(), "seed {seed}");
        }
        let since = &world.nodes[ASKS].plane.log[log..];
        assert!(since.iter().all(|l| l == "remap"), "one association for all of it: {since:?}");
        assert!(world.nodes[SERVER].host.stats().relayed > 1);
        assert!(world.count(PacketType::Update) < 80, "seed {seed}: {}", world.count(PacketType::Update));
    }
}

/// Without a server that knows better, the association ends and the next one finds the peer if it is where it was said to be.
#[test]
fn without_a_server_both_lose_each_other() {
    let mut world = world(4, Carrier::RawHip, Some(registrar()));
    ask(&mut world);
    world.run(SOON);
    let client = world.nodes[CLIENT].tag;
    world.act(ASKS, |host, _| host.set_rendezvous_of(client, None));
    world.place(ASKS, "198.51.100.7");
    world.place(CLIENT, "203.0.113.7");
    world.run(LATER);
    assert!(!world.joined(ASKS, CLIENT));
    assert!(!ask(&mut world), "no way is known");
}

/// The registration is renewed before its end, by an UPDATE; a client that is gone is forgotten at the end of its time.
#[test]
fn registrations_are_renewed_and_end() {
    let mut world = world(5, Carrier::RawHip, Some(registrar()));
    let updates = |world: &World| world.count(PacketType::Update);
    world.run(HOUR / 2);
    assert_eq!(updates(&world), 0);
    world.run(HOUR / 4);
    assert_eq!(updates(&world), 2, "a request and its answer");
    world.run(HOUR);
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer));
    ask(&mut world);
    world.run(SOON);
    assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
    let id = world.nodes[ASKS].host.describe().next().unwrap().id;
    world.act(ASKS, |host, now| host.close(now, id));
    world.unplug(CLIENT);
    world.run(HOUR);
    let relayed = world.nodes[SERVER].host.stats().relayed;
    ask(&mut world);
    world.run(LATER);
    assert_eq!(world.nodes[SERVER].host.stats().relayed, relayed);
}

/// The server is gone: what there is goes on, the client tries it ever more rarely, and registers when it is back.
#[test]
fn a_server_that_is_gone_is_found_again() {
    let mut world = world(6, Carrier::RawHip, Some(registrar()));
    ask(&mut world);
    world.run(SOON);
    let at = world.nodes[SERVER].address;
    world.unplug(SERVER);
    world.run(2 * HOUR);
    assert!(world.joined(ASKS, CLIENT), "it needs no server");
    assert_eq!(registration(&world, CLIENT, SERVER), None);
    let before = world.count(PacketType::I1);
    world.run(24 * HOUR);
    let tries = (world.count(PacketType::I1) - before) / 5;
    assert!((20..=26).contains(&tries), "{tries} tries in a day");
    world.nodes[SERVER].address = at;
    world.run(2 * HOUR);
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer));
}

/// A server that has started again knows no client. However long the registration was to last, the client asks each hour, and registers anew.
#[test]
fn a_server_that_has_started_again_is_asked_within_the_hour() {
    let mut world = world(10, Carrier::RawHip, Some(registrar()));
    let rendezvous = BTreeSet::from([world.nodes[SERVER].tag]);
    world.act(CLIENT, |host, now| host.set_servers(now, (rendezvous, BTreeSet::new()), 24 * HOUR));
    world.run(SOON);
    let config = HostConfig { registrar: Some(registrar()), ..config() };
    let spis = Box::new(BTreeSet::<ChildId>::new());
    world.nodes[SERVER].host =
        Host::new(config, vec![identity("known rsa")], spis, Box::new(Seeded::new(78)));
    ask(&mut world);
    world.run(LATER);
    assert!(!world.joined(ASKS, CLIENT), "the server does not know where it is");
    world.run(HOUR);
    assert_eq!(registration(&world, SERVER, CLIENT), Some(Registration::OfPeer));
    ask(&mut world);
    world.run(SOON);
    assert!(world.joined(ASKS, CLIENT), "{:?}", world.drops);
}

/// An address in FROM counts with the server's MAC alone, and what was sent on once is not sent on again.
#[test]
fn addresses_that_no_server_vouches_for_are_not_answered() {
    let mut world = world(7, Carrier::RawHip, Some(registrar()));
    world.act(ASKS, |host, now| host.want_tunnel(now, (ANY, Hit::NULL.0.into()), true));
    ask(&mut world);
    let (to_server, i1) = world.last(PacketType::I1);
    world.hand(SERVER, mirrored(to_server), &i1).unwrap();
    let (to_client, sent_on) = world.last(PacketType::I1);
    let packet = Packet::parse(&sent_on).unwrap();
    let whole = |mut bytes: Vec<u8>, path: Path| {
        set_checksum(&mut bytes, Some((path.local.ip(), path.remote.ip())));
        bytes
    };
    let none_of_ours = Err(Discard("relayed by none of our rendezvous servers"));
    // Another address; another MAC; the address without a MAC, or the MAC without the address.
    for kind in [ParamType::From, ParamType::RvsHmac] {
        let at = packet.find(kind).unwrap().at;
        let mut changed = sent_on.clone();
        changed[at + 19] ^= 1;
        assert_eq!(world.hand(CLIENT, mirrored(to_client), &whole(changed, to_client)), none_of_ours);
        let mut draft = Draft::new(&packet.header);
        for raw in packet.params().iter().filter(|p| p.kind != kind) {
            draft.add(&Param::Opaque(raw.kind, raw.contents.to_vec()));
        }
        let without = whole(draft.finish().unwrap(), to_client);
        assert_eq!(world.hand(CLIENT, mirrored(to_client), &without), none_of_ours);
    }
    assert_eq!(world.count(PacketType::R1), 1, "that of the registration");
    let again = whole(sent_on.clone(), to_server);
    let refused = Err(Discard("for another host, and relayed before"));
    assert_eq!(world.hand(SERVER, mirrored(to_server), &again), refused);
    assert_eq!(world.hand(ASKS, mirrored(to_client), &sent_on).map_err(|_| ()), Err(()));
    world.run(SOON);
    assert!(world.joined(ASKS, CLIENT), "the real one is answered: {:?}", world.drops);
}

/// A flood for a client is thinned at its server.
#[test]
fn a_server_sends_on_no_flood() {
    let mut world = world(8, Carrier::RawHip, Some(registrar()));
    ask(&mut world);
    let (to_server, i1) = world.last(PacketType::I1);
    for _ in 0..1_000 {
        world.hand(SERVER, mirrored(to_server), &i1).ok();
    }
    let permitted = u64::from(config().difficulty.to_one_address);
    assert_eq!(world.nodes[SERVER].host.stats().relayed, permitted);
}

/// The configuration can change while associations are there: who is a server from now on offers to register in a new exchange.
#[test]
fn servers_come_and_go() {
    let mut world = of_clients(9, Carrier::RawHip, Some(registrar()), &[]);
    let (server, at) = (world.nodes[SERVER].tag, world.whereabouts(SERVER));
    world.act(CLIENT, |host, now| host.set_servers(now, (BTreeSet::new(), BTreeSet::new()), HOUR));
    world.act(CLIENT, |host, _| host.set_peer(server, Some(at)));
    world.connect(CLIENT, SERVER);
    world.run(LATER);
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::None));
    world.act(CLIENT, |host, now| host.set_servers(now, ([server].into(), BTreeSet::new()), HOUR));
    world.run(LATER);
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer), "{:?}", world.drops);
    assert_eq!(registration(&world, SERVER, CLIENT), Some(Registration::OfPeer));
}

/// For another time it is asked for at once.
#[test]
fn a_registration_is_asked_for_again_when_its_time_is_another() {
    let mut world = world(13, Carrier::RawHip, Some(registrar()));
    let (server, sent) = (world.nodes[SERVER].tag, world.count(PacketType::Update));
    world.act(CLIENT, |host, now| host.set_servers(now, ([server].into(), BTreeSet::new()), HOUR));
    world.run(SOON);
    assert_eq!(world.count(PacketType::Update), sent, "it is the same");
    world.act(CLIENT, |host, now| host.set_servers(now, ([server].into(), BTreeSet::new()), HOUR / 2));
    world.run(SOON);
    let asked = world.seen.iter().rev().find_map(|(_, bytes)| {
        let packet = Packet::parse(bytes).unwrap();
        packet.find(ParamType::RegRequest).map(|_| packet.header.kind)
    });
    assert_eq!((asked, world.count(PacketType::Update)), (Some(PacketType::Update), sent + 2));
    assert_eq!(registration(&world, CLIENT, SERVER), Some(Registration::AtPeer));
}
