//! Packets that the network kept back while their CHILD SA was replaced and deleted: they are accepted for a moment, so that a
//! rekeying loses nothing, and never once the session is over.

use dormouse_node::Node;
use dormouse_node::ladder::State;
use dormouse_sansio::{Instant, Path};
use dormouse_sim::{Settings, Step, World};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(1);

fn connected(seed: u64) -> World {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

/// Keeps a packet in either direction back while `change` is made, and for `time` after it. Which of the two arrive?
fn kept_back(world: &mut World, change: impl FnOnce(&mut World), time: Duration) -> [bool; 2] {
    let numbers = [world.send_up(), world.send_down()];
    let up = world.device_mut().outbox.pop_back().expect("one was sent");
    let down = world.gateway_mut().outbox.pop_back().expect("one was sent");
    change(world);
    world.run(time);
    let now = world.now();
    let arrived = |(sent, datagram): (Path, Vec<u8>)| {
        (Path { local: sent.remote, remote: sent.local, carrier: sent.carrier }, datagram)
    };
    let ((up_path, up), (down_path, down)) = (arrived(up), arrived(down));
    world.gateway_mut().receive(now, up_path, up);
    world.device_mut().receive(now, down_path, down);
    [world.gateway().received.contains(&numbers[0]), world.device().received.contains(&numbers[1])]
}

fn children(world: &World) -> Vec<usize> {
    let infos = world.device().node().map(|n| n.client_infos(world.now())).unwrap_or_default();
    infos.into_iter().filter_map(|i| i.session).map(|s| s.children.len()).collect()
}

fn device(world: &mut World, command: impl FnOnce(&mut Node, Instant)) {
    let now = world.now();
    command(world.device_mut().node_mut().expect("it runs"), now);
    world.device_mut().flush(now);
}

#[test]
fn a_rekeying_loses_nothing_that_is_late() {
    for both in [false, true] {
        let mut world = connected(1);
        assert_eq!(kept_back(&mut world, |w| w.step(Step::RekeyChild(both)), SOON), [true, true]);
        assert_eq!(children(&world), [1], "the old one is no part of the session");
        let timers = world.device().node().map(dormouse_node::Node::deadlines).unwrap_or_default();
        assert!(timers.iter().any(|d| d.why == "late packets"), "{timers:?}");
        world.settle_and_check();
    }
}

#[test]
fn nor_does_a_reauthentication() {
    let mut settings = Settings::default();
    settings.device.push(("ike", "reauth = 60".into()));
    let mut world = World::new(2, settings);
    world.run(Duration::from_secs(59));
    assert_eq!(kept_back(&mut world, |_| (), Duration::from_secs(2)), [true, true]);
    world.settle_and_check();
}

#[test]
fn too_late_is_too_late() {
    let mut world = connected(3);
    assert_eq!(kept_back(&mut world, |w| w.step(Step::RekeyChild(false)), 8 * SOON), [false, false]);
    let refused = [world.gateway().refused, world.device().refused];
    assert_eq!(refused, [1, 1]);
    world.settle_and_check();
}

#[test]
fn what_comes_after_the_session_is_not_accepted() {
    let mut world = connected(4);
    let rekeyed_and_down = |w: &mut World| {
        w.step(Step::RekeyChild(false));
        w.run(SOON);
        device(w, |node, now| _ = node.down(now, "office"));
    };
    assert_eq!(kept_back(&mut world, rekeyed_and_down, SOON), [false, false]);
}

#[test]
fn a_radio_that_sleeps_waits_for_nothing_late() {
    let mut world = connected(5);
    world.step(Step::RekeyChild(false));
    world.run(SOON);
    // The step checks that no timer runs meanwhile.
    world.step(Step::Sleep(Duration::from_secs(120), dormouse_sim::Access::A));
    world.settle_and_check();
}
