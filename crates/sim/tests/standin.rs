//! A gateway that stands in for its device: with the SA held, and with the SA released to the ticket.

use dormouse_ike::config::HoldPolicy;
use dormouse_node::ladder::Rung;
use dormouse_node::{Change, Limits, SleepFlags, SleepVerdict};
use dormouse_sim::{Access, Settings, World};
use dormouse_wire::ip::icmp::Echo;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const BOTH: SleepFlags = SleepFlags { stand_in: true, buffering: true };
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));

/// A connected world whose gateway holds at most `most` SAs of sleeping devices.
fn connected(seed: u64, most: usize) -> World {
    let hold = HoldPolicy { most, services: BOTH, ..HoldPolicy::default() };
    let stand_in = Some((Limits::default(), Duration::from_secs(3_600)));
    let mut world = World::new(seed, Settings { hold, stand_in, ..Settings::default() });
    world.run(Duration::from_secs(2));
    world.send_up();
    world.send_down();
    world.run(Duration::from_secs(1));
    assert_eq!(world.device().received.len(), 1);
    world
}

fn last_rung(world: &World) -> Option<Rung> {
    let up = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
    world.device().changes.iter().rev().find_map(up)
}

/// Numbers of packets that the server sends while the device sleeps.
fn send(world: &mut World, count: usize) -> Vec<u64> {
    (0..count)
        .map(|_| {
            world.run(Duration::from_millis(5));
            world.send_down()
        })
        .collect()
}

fn sessions(world: &World) -> usize {
    world.gateway().node().map_or(0, |n| n.gateway_sessions(world.now()).len())
}

#[test]
fn what_waits_for_a_held_session_comes_in_order() {
    let mut world = connected(1, 10);
    world.announce_sleep(Some(Duration::from_secs(600)), BOTH);
    assert!(
        matches!(world.device().sleep, Some(SleepVerdict::Held { flags: BOTH, .. })),
        "{:?}",
        world.device().sleep
    );
    world.run(Duration::from_secs(300));
    world.device_mut().received.clear();
    let sent = send(&mut world, 40);
    world.run(Duration::from_secs(60));
    assert!(world.device().received.is_empty());
    world.wake(Access::A);
    world.run(Duration::from_secs(5));
    // The first packet of a device that says nothing is its gateway's business to wait for.
    world.send_up();
    world.run(Duration::from_secs(2));
    assert_eq!(world.device().received, sent);
    assert_eq!(last_rung(&world), Some(Rung::Held));
    let node = world.gateway().node().expect("it runs");
    let (books, waiting) = node.stand_in_totals().expect("a stand-in");
    assert_eq!((books.delivered, books.drops(), waiting), (40, 0, (0, 0)));
}

#[test]
fn what_waits_for_a_released_session_comes_after_the_ticket() {
    let mut world = connected(2, 0);
    let (now, inner) = (world.now(), world.device().inner[0]);
    let mut pong = Vec::new();
    let echo = Echo { src: inner, dst: SERVER, reply: true, id: 1, sequence: 0, payload: b"!" };
    echo.build(&mut pong).expect("one family");
    world.device_mut().forward(now, pong);
    world.run(Duration::from_secs(1));
    world.announce_sleep(Some(Duration::from_secs(600)), BOTH);
    assert_eq!(world.device().sleep, Some(SleepVerdict::Released));
    world.run(Duration::from_secs(300));
    assert_eq!(sessions(&world), 0, "the SA is held");
    assert_eq!(world.gateway().routes.len(), 1, "the way to the stand-in is lost");
    world.device_mut().received.clear();
    let sent = send(&mut world, 40);
    let absent = world.gateway().node().expect("it runs").absent_devices();
    let [device] = absent.as_slice() else { panic!("{absent:?}") };
    assert_eq!(device.stand_in.asleep.map(|a| a.packets), Some(40));

    // It is answered for, too, as it answers itself.
    let mut ping = Vec::new();
    let echo = Echo { src: SERVER, dst: inner, reply: false, id: 1, sequence: 1, payload: b"?" };
    echo.build(&mut ping).expect("one family");
    let now = world.now();
    world.gateway_mut().forward(now, ping);
    world.run(Duration::from_millis(1));
    let answer = world.gateway().answers.last().expect("an answer").clone();
    assert_eq!(Echo::parse(&answer), Some(echo.answer()));

    world.wake(Access::B);
    world.run(Duration::from_secs(10));
    assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.device().changes);
    assert_eq!(world.device().received, sent);
    let node = world.gateway().node().expect("it runs");
    assert!(node.absent_devices().is_empty() && world.gateway().routes.len() == 1);
}

#[test]
fn a_device_that_oversleeps_is_given_up_and_may_still_come_back() {
    let mut world = connected(3, 0);
    world.announce_sleep(Some(Duration::from_secs(60)), BOTH);
    let sent = send(&mut world, 5);
    world.run(Duration::from_secs(600));
    let node = world.gateway().node().expect("it runs");
    assert!(node.absent_devices().is_empty() && world.gateway().routes.is_empty());
    let (books, waiting) = node.stand_in_totals().expect("a stand-in");
    assert_eq!((books.drops(), waiting), (sent.len() as u64, (0, 0)), "{books:?}");
    world.device_mut().received.clear();
    world.wake(Access::A);
    world.run(Duration::from_secs(10));
    let down = send(&mut world, 3);
    world.run(Duration::from_secs(1));
    assert_eq!(world.device().received, down);
}

#[test]
fn what_the_device_did_not_ask_for_is_not_done() {
    let mut world = connected(4, 10);
    world.announce_sleep(Some(Duration::from_secs(600)), SleepFlags::default());
    send(&mut world, 5);
    let node = world.gateway().node().expect("it runs");
    assert_eq!(node.stand_in_totals().map(|(books, _)| books.handled), Some(0));
}
