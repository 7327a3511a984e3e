//! A doubt whether the gateway still has the SA, and a radio that goes off before it is settled: the question is asked again after
//! the wake, beside the data. An SA that is there is not given up for it, and one that is gone is noticed at once.

use dormouse_ike::Endpoint;
use dormouse_ike::EndpointConfig;
use dormouse_node::ladder::{Rung, State};
use dormouse_sansio::{Path, Seeded};
use dormouse_sim::{Access, Settings, Step, World};
use std::time::Duration;

fn connected(seed: u64) -> World {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

fn datagrams_out(world: &World) -> u64 {
    world.device().node().map_or(0, |n| n.ike_stats().datagrams_out)
}

fn times(world: &World, number: u64) -> usize {
    world.gateway().received.iter().filter(|n| **n == number).count()
}

/// A forger says to the device, in the gateway's name, that its ESP is not known.
fn forge_invalid_spi(world: &mut World) {
    let infos = world.device().node().map(|n| n.client_infos(world.now())).unwrap_or_default();
    let session = infos.into_iter().find_map(|c| c.session).expect("connected");
    let spi = session.children.first().expect("one").spi_out;
    let mut liar = Endpoint::new(EndpointConfig::default(), Box::new(Seeded::new(7)));
    let back = Path { local: session.path.remote, remote: session.path.local, ..session.path };
    liar.unknown_esp_spi(world.now(), back, spi);
    let mut datagram = Vec::new();
    liar.poll_transmit(world.now(), &mut datagram).expect("a notification");
    let now = world.now();
    world.device_mut().receive(now, session.path, datagram);
}

fn sleep(world: &mut World, seconds: u64) {
    world.step(Step::Sleep(Duration::from_secs(seconds), Access::A));
}

/// A second after the wake: less than unanswered data would have taken to raise doubt, and the round trips.
const SOON: Duration = Duration::from_millis(900);

#[test]
fn a_lie_before_a_sleep_costs_a_question_after_it_and_not_the_session() {
    for data in [false, true] {
        let mut world = connected(1);
        forge_invalid_spi(&mut world);
        sleep(&mut world, 5);
        let before = datagrams_out(&world);
        let sent = data.then(|| world.send_up());
        world.run(SOON);
        assert_eq!(world.rungs(), [Rung::Full, Rung::Held], "{:#?}", world.device().changes);
        assert_eq!(datagrams_out(&world), before, "one question, at the wake");
        assert!(sent.is_none_or(|number| times(&world, number) == 1));
        sleep(&mut world, 5);
        world.run(SOON);
        assert_eq!(datagrams_out(&world), before, "the doubt is over");
        world.settle_and_check();
    }
}

#[test]
fn a_true_hint_before_a_sleep_brings_the_ticket_right_after_it() {
    let mut world = connected(2);
    world.step(Step::GatewayCrash(Duration::from_secs(1), true));
    let first = world.send_up();
    // The hint is there, the answer to the question is not.
    world.run(Duration::from_millis(60));
    sleep(&mut world, 10);
    let second = world.send_up();
    world.run(SOON);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume], "{:#?}", world.device().changes);
    assert_eq!([first, second].map(|number| times(&world, number)), [1, 1]);
    world.settle_and_check();
}

#[test]
fn data_that_a_bad_network_swallowed_before_a_sleep_does_not_cost_the_session() {
    let mut world = connected(3);
    world.step(Step::Weather { loss: 1.0, duplication: 0.0, reordering: 0.0 });
    world.send_up();
    world.run(Duration::from_millis(1_100));
    world.step(Step::Weather { loss: 0.0, duplication: 0.0, reordering: 0.0 });
    sleep(&mut world, 10);
    let before = datagrams_out(&world);
    let number = world.send_up();
    world.run(SOON);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Held], "{:#?}", world.device().changes);
    assert_eq!((datagrams_out(&world), times(&world, number)), (before, 1));
    world.settle_and_check();
}

#[test]
fn a_question_that_a_lost_network_cut_short_is_asked_again_in_the_next_one() {
    for access in [Access::A, Access::B] {
        let mut world = connected(4);
        forge_invalid_spi(&mut world);
        world.step(Step::Leave);
        world.run(Duration::from_secs(10));
        world.step(Step::Enter(access));
        world.run(SOON);
        let rung = if access == Access::A { Rung::Held } else { Rung::Move };
        assert_eq!(world.rungs(), [Rung::Full, rung], "{:#?}", world.device().changes);
        world.settle_and_check();
    }
}

#[test]
fn data_without_an_answer_is_no_doubt_yet() {
    let mut world = connected(5);
    let before = datagrams_out(&world);
    for _ in 0..3 {
        world.send_up();
        sleep(&mut world, 10);
        world.run(Duration::from_millis(100));
    }
    assert_eq!(datagrams_out(&world), before, "an exchange was made");
    assert_eq!(world.rungs(), [Rung::Full], "no gateway was heard, so nothing is known");
}
