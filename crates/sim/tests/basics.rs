//! The device's ordinary day, one event at a time.

use dormouse_node::Change;
use dormouse_node::ladder::{Rung, State};
use dormouse_sim::{Access, Settings, Step, World};
use std::time::Duration;

fn connected(seed: u64) -> World {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

fn last_rung(world: &World) -> Option<Rung> {
    world
        .device()
        .changes
        .iter()
        .rev()
        .find_map(|c| if let Change::Up { rung, .. } = c { Some(*rung) } else { None })
}

/// Data passes both ways. The first packet may be the one that finds out that the gateway has lost the SA: it arrives all the
/// same, and once. What the gateway sends meanwhile has nowhere to go.
fn data_passes(world: &mut World) {
    let first = world.send_up();
    world.send_down();
    world.run(Duration::from_secs(15));
    let (up, down) = (world.send_up(), world.send_down());
    world.run(Duration::from_secs(1));
    for number in [first, up] {
        let times = world.gateway().received.iter().filter(|n| **n == number).count();
        assert_eq!(times, 1, "packet {number}: {:#?}", world.device().changes);
    }
    assert!(world.device().received.contains(&down), "{:#?}", world.device().changes);
}

#[test]
fn a_device_connects_and_data_flows() {
    let mut world = connected(1);
    data_passes(&mut world);
    assert_eq!(last_rung(&world), Some(Rung::Full));
    world.settle_and_check();
}

#[test]
fn a_short_sleep_needs_no_exchange() {
    let mut world = connected(2);
    let before = world.device().node().map(|n| n.ike_stats().datagrams_out);
    world.step(Step::Sleep(Duration::from_secs(5), Access::A));
    data_passes(&mut world);
    assert_eq!(last_rung(&world), Some(Rung::Held));
    assert_eq!(before, world.device().node().map(|n| n.ike_stats().datagrams_out), "an exchange was made");
}

#[test]
fn a_move_into_a_nat_is_an_update() {
    let mut world = connected(3);
    world.step(Step::Enter(Access::B));
    data_passes(&mut world);
    assert_eq!(last_rung(&world), Some(Rung::Move));
    world.step(Step::Enter(Access::A));
    data_passes(&mut world);
    world.settle_and_check();
}

#[test]
fn a_gateway_that_gave_the_device_up_takes_its_ticket() {
    let mut world = connected(4);
    world.step(Step::Sleep(Duration::from_secs(600), Access::A));
    data_passes(&mut world);
    assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.device().changes);
    world.settle_and_check();
}

#[test]
fn a_gateway_that_lost_its_keys_makes_a_full_exchange() {
    let mut world = connected(5);
    world.step(Step::GatewayCrash(Duration::from_secs(1), false));
    data_passes(&mut world);
    assert_eq!(last_rung(&world), Some(Rung::Full), "{:#?}", world.device().changes);
    world.settle_and_check();
}

#[test]
fn a_ticket_survives_both_ends_crashes() {
    let mut world = connected(6);
    world.step(Step::GatewayCrash(Duration::from_secs(1), true));
    world.step(Step::DeviceCrash(Duration::from_secs(1)));
    world.run(Duration::from_secs(5));
    assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.device().changes);
    data_passes(&mut world);
    world.settle_and_check();
}

#[test]
fn an_idle_hour_wakes_only_for_stated_reasons() {
    let mut world = connected(7);
    world.device_mut().wakeups.clear();
    world.gateway_mut().wakeups.clear();
    world.run(Duration::from_secs(3600));
    for (end, wakeups) in [("device", &world.device().wakeups), ("gateway", &world.gateway().wakeups)] {
        for (why, count) in wakeups {
            assert!(!why.is_empty());
            assert!(*count <= 200, "{end} woke {count} times for '{why}' in an idle hour: {wakeups:?}");
        }
    }
    println!("device {:?}, gateway {:?}", world.device().wakeups, world.gateway().wakeups);
}

#[test]
fn without_a_network_nothing_is_tried_and_the_session_waits() {
    let mut world = connected(8);
    world.step(Step::Leave);
    let sent = world.device().node().map(|n| n.ike_stats().datagrams_out);
    world.device_mut().wakeups.clear();
    world.run(Duration::from_secs(3600));
    assert!(world.device().wakeups.is_empty(), "woken without a network: {:?}", world.device().wakeups);
    assert_eq!(sent, world.device().node().map(|n| n.ike_stats().datagrams_out));
    world.step(Step::Enter(Access::B));
    data_passes(&mut world);
    world.settle_and_check();
}

#[test]
fn every_rung_can_be_exercised_on_a_session_that_is_up() {
    let mut world = connected(6);
    for rung in [Rung::Held, Rung::Move, Rung::Resume, Rung::Resume, Rung::Full, Rung::Held] {
        let before = world.device().changes.len();
        world.exercise(rung);
        world.run(Duration::from_secs(2));
        let ups: Vec<_> = world.device().changes[before..]
            .iter()
            .filter_map(|c| if let Change::Up { rung, .. } = c { Some(*rung) } else { None })
            .collect();
        assert_eq!(ups, [rung], "{:#?}", world.device().changes);
    }
    data_passes(&mut world);
    world.settle_and_check();
}

/// The name of the gateway is asked for again as long as there is a network, and at once in a new one.
#[test]
fn a_gateway_whose_name_is_not_known_at_first_is_reached_later() {
    for moves in [false, true] {
        let mut world = World::new(8, Settings::default());
        world.device_mut().resolver_is_down = true;
        world.step(Step::DeviceCrash(Duration::from_secs(1)));
        world.run(Duration::from_secs(300));
        assert_eq!(world.device_state(), State::Offline);
        let host = world.device().host().expect("it runs");
        assert!(host.nameless("office").is_some_and(|why| why.contains("no name server answers")));
        let asked = world.device().wakeups.get("a gateway's name").copied().unwrap_or(0);
        assert!((8..=12).contains(&asked), "with growing pauses: {asked}");
        world.device_mut().resolver_is_down = false;
        if moves {
            world.step(Step::Enter(Access::B));
            world.run(Duration::from_secs(5));
        } else {
            world.run(Duration::from_secs(70));
        }
        assert_eq!(world.device_state(), State::Up, "moves: {moves}; {:#?}", world.device().changes);
        data_passes(&mut world);
    }
}
