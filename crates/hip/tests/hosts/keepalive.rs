//! Keep-alives (RFC 9028 section 4.10): when there are any, what they are good for, and what forged ones cost.

use std::net::SocketAddr;
use std::time::Duration;

use dormouse_hip::{HostConfig, Keepalive};
use dormouse_keying::{KeyManager, Owner};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{NotifyType, PacketType, Param, ParamType};

use crate::relay::{
    ASKS, CLIENT, LATER, OUTSIDE, RELAY, SOON, ask, data_passes, parsed, relay_at, way, with_relay,
};
use crate::world::{Nat, World, config};

/// How many keep-alives went by paths that are meant.
fn keepalives(world: &World, meant: impl Fn(Path) -> bool) -> usize {
    let is = |bytes: &[u8]| {
        let said = parsed(bytes).read(ParamType::Notification);
        matches!(said, Some(Param::Notification(said)) if said.kind == NotifyType::NatKeepalive)
    };
    world.seen.iter().filter(|(path, bytes)| meant(*path) && is(bytes)).count()
}

/// Who calls, behind a NAT that forgets within 40 seconds, and a host that is reached in UDP; no relay is in play.
fn behind_a_nat(ends: [HostConfig; 2]) -> World {
    let [one, two] = ends;
    let mut world = World::new(41, Carrier::HipUdp, vec![("p256", one), ("p384", two)]);
    let mut nat = Nat::new("203.0.113.1", "10.0.0.1", false);
    nat.lasts = Duration::from_secs(40);
    world.nats.push(nat);
    world.place(0, "10.0.0.1");
    world.connect(0, 1);
    world.run(SOON);
    assert!(world.joined(0, 1), "{:?}", world.drops);
    world
}

/// The host that was called sends after a silence: whether it arrives.
fn is_reached(world: &mut World) -> bool {
    world.data.clear();
    world.send_data(1, 0);
    world.run(SOON);
    !world.data.is_empty()
}

fn owner(world: &World, node: usize) -> Owner {
    Owner::Hip(world.nodes[node].host.describe().next().unwrap().id)
}

/// Who has called from behind a NAT is reached after a silence; not where it is to send nothing, or too seldom, or where the radio of an end may sleep.
#[test]
fn who_called_from_behind_a_nat_stays_reachable() {
    let every = |seconds| Keepalive::Every(Duration::from_secs(seconds));
    for (keepalive, may_sleep, reached) in [
        (Keepalive::Auto, false, true),
        (Keepalive::Auto, true, false),
        (Keepalive::Off, false, false),
        (every(30), false, true),
        (every(30), true, true),
        (every(60), false, false),
    ] {
        let one = HostConfig { keepalive, may_sleep, ..config() };
        let mut world = behind_a_nat([one, config()]);
        world.seen.clear();
        world.run(Duration::from_secs(600));
        assert_eq!(is_reached(&mut world), reached, "{keepalive:?}, {may_sleep}: {:?}", world.drops);
        let inside = world.nodes[0].address;
        let sent = keepalives(&world, |path| path.local == inside);
        let wanted = match keepalive {
            Keepalive::Auto if !may_sleep => 38..=41,
            Keepalive::Every(time) => {
                let most = usize::try_from(600 / time.as_secs()).unwrap();
                most - 2..=most
            }
            _ => 0..=0,
        };
        assert!(wanted.contains(&sent), "{keepalive:?}, {may_sleep}: {sent}");
        // The other end sends its own by its own configuration, but none to a radio that may sleep.
        let back = keepalives(&world, |path| path.local != inside);
        assert_eq!(back > 0, !may_sleep, "{keepalive:?}: {back}");
        assert!(world.nodes.iter().all(|n| n.plane.closed.is_empty()));
    }
    // Protocol 139 passes no NAT: there is none to be kept open.
    let mut world = World::new(42, Carrier::RawHip, vec![("p256", config()), ("p384", config())]);
    world.connect(0, 1);
    world.run(Duration::from_secs(600));
    assert!(world.joined(0, 1) && world.nodes.iter().all(|n| n.host.poll_timeout().is_none()));
    assert_eq!(world.count(PacketType::Notify), 0);
}

/// While data goes, or another packet of HIP, there are none; one follows 15 seconds after the last.
#[test]
fn keepalives_stand_back_for_other_packets() {
    let mut world = behind_a_nat([config(), HostConfig { keepalive: Keepalive::Off, ..config() }]);
    let of = owner(&world, 0);
    let Owner::Hip(id) = of else { panic!() };
    world.seen.clear();
    for round in 0..60 {
        world.act(0, |host, now| {
            if round < 30 {
                host.traffic(now, of, false);
            } else {
                host.check(now, id);
            }
        });
        world.run(Duration::from_secs(10));
    }
    assert_eq!(keepalives(&world, |_| true), 0);
    world.run(Duration::from_secs(4));
    assert_eq!(keepalives(&world, |_| true), 0, "14 seconds after the last");
    world.run(Duration::from_secs(4));
    assert_eq!(keepalives(&world, |_| true), 1);
    // What is heard alone is nothing that the NAT lets pass later.
    for _ in 0..10 {
        world.act(0, |host, now| host.traffic(now, of, true));
        world.run(Duration::from_secs(10));
    }
    assert!(keepalives(&world, |_| true) >= 6);
}

/// Another mode of the radio, or another configuration, counts at once for what is there.
#[test]
fn keepalives_begin_and_end_while_the_association_lasts() {
    let off = HostConfig { keepalive: Keepalive::Off, ..config() };
    let mut world = behind_a_nat([config(), off]);
    let in_five_minutes = |world: &mut World| {
        world.seen.clear();
        world.run(Duration::from_secs(300));
        keepalives(world, |_| true)
    };
    assert!(in_five_minutes(&mut world) >= 19);
    world.act(0, |host, now| host.set_may_sleep(now, true));
    assert_eq!(in_five_minutes(&mut world), 0);
    assert!(world.nodes[0].host.poll_timeout().is_none(), "no timer is left");
    world.act(0, |host, now| host.set_keepalive(now, Keepalive::Every(Duration::from_secs(1))));
    let sent = in_five_minutes(&mut world);
    assert!((19..=21).contains(&sent), "no more often than every 15 seconds: {sent}");
    world.act(0, |host, now| host.set_keepalive(now, Keepalive::Off));
    assert_eq!(in_five_minutes(&mut world), 0);
    world.act(0, |host, now| host.set_may_sleep(now, false));
    world.act(0, |host, now| host.set_keepalive(now, Keepalive::Auto));
    assert!(in_five_minutes(&mut world) >= 19);
}

/// A client of a relay and the relay show NATs on the way that it is in use; every eighth time the client asks the relay besides.
#[test]
fn a_relay_and_its_client_hold_a_nat_open() {
    let mut world = with_relay(6, [false; 2]);
    world.run(SOON);
    world.seen.clear();
    world.run(Duration::from_secs(300));
    let relay = relay_at(&world);
    let sent =
        [keepalives(&world, |path| path.remote == relay), keepalives(&world, |path| path.local == relay)];
    assert!(sent.iter().all(|sent| (17..=21).contains(sent)), "{sent:?}");
    assert_eq!(world.count(PacketType::Update), 2 * 2, "two questions and their answers");
    let (_, bytes) = world.last(PacketType::Notify);
    let Some(Param::Notification(said)) = parsed(&bytes).read(ParamType::Notification) else { panic!() };
    assert_eq!((said.kind, said.data.len()), (NotifyType::NatKeepalive, 0));
}

/// The NAT before a client has forgotten it while no data passes: its next keep-alive comes from another port, and the relay, which asks it there, knows
/// it again at once, and not with the UPDATE that the client sends every two minutes.
#[test]
fn a_keepalive_from_another_port_is_followed() {
    let mut world = with_relay(32, [false; 2]);
    let before = way(&world, RELAY, CLIENT).0;
    world.nats[CLIENT].forget();
    let verified = world.nodes[RELAY].host.stats().verified;
    let keepalives = world.count(PacketType::Notify);
    while world.count(PacketType::Notify) < keepalives + 1 {
        assert!(world.step(world.now + LATER), "{:?}", world.drops);
    }
    world.run(SOON);
    let (at, _) = way(&world, RELAY, CLIENT);
    assert!(at != before && at.port() > 20_999, "{at}: {:?}", world.drops);
    assert_eq!(world.nodes[RELAY].host.stats().verified, verified + 1);
    assert!(ask(&mut world));
    world.run(LATER);
    assert!(world.joined(ASKS, CLIENT) && data_passes(&mut world), "{:?}", world.drops);
}

/// Forged keep-alives of a client cost a few verifications, and its own UPDATE shows all the same where it is.
#[test]
fn forged_keepalives_are_cheap() {
    let mut world = with_relay(33, [false; 2]);
    world.run(SOON * 10);
    let (path, mut forged) = world.last(PacketType::Notify);
    let signature = 4 + parsed(&forged).find(ParamType::HipSignature).unwrap().at;
    forged[signature + 12] ^= 1;
    let from = |n: u32| Path {
        local: path.remote,
        remote: SocketAddr::new(OUTSIDE[CLIENT].parse().unwrap(), 30_000 + (n % 30_000) as u16),
        carrier: Carrier::HipUdp,
    };
    let before = world.nodes[RELAY].host.stats().verified;
    for n in 0..10_000 {
        assert_eq!(world.hand(RELAY, from(n), &forged), Ok(()), "it changes nothing");
    }
    assert_eq!(world.nodes[RELAY].host.stats().verified - before, 4, "at once");
    // All the time from now on, while the client is behind another port.
    world.nats[CLIENT].forget();
    let (begun, seconds) = (world.nodes[RELAY].host.stats().verified, 150);
    for n in 0..seconds * 20 {
        world.hand(RELAY, from(n), &forged).ok();
        world.run(Duration::from_millis(50));
    }
    let verified = world.nodes[RELAY].host.stats().verified - begun;
    assert!(verified <= u64::from(seconds) + 4, "one in a second: {verified}");
    let (at, _) = way(&world, RELAY, CLIENT);
    assert!((21_000..30_000).contains(&at.port()), "{at}: {:?}", world.drops);
}

/// A recorded keep-alive, which is genuine, is repeated from elsewhere all the time: the relay asks there, where no answer comes from, and the client
/// stays known, and its UPDATE packets answered, where it is.
#[test]
fn repeated_keepalives_do_not_shut_a_client_out() {
    let mut world = with_relay(34, [false; 2]);
    world.run(SOON * 10);
    let (path, recorded) = world.last(PacketType::Notify);
    let from = |n: u16| Path {
        local: path.remote,
        remote: SocketAddr::new(OUTSIDE[CLIENT].parse().unwrap(), 30_000 + n),
        carrier: Carrier::HipUdp,
    };
    let before = (way(&world, RELAY, CLIENT).0, owner(&world, CLIENT));
    for n in 0..900 {
        world.hand(RELAY, from(n), &recorded).ok();
        world.run(Duration::from_secs(1));
    }
    assert_eq!((way(&world, RELAY, CLIENT).0, owner(&world, CLIENT)), before, "{:?}", world.drops);
    assert!(ask(&mut world));
    world.run(LATER);
    assert!(world.joined(ASKS, CLIENT) && data_passes(&mut world), "{:?}", world.drops);
}
