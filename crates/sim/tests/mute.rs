//! Sessions that libreswan resumes: it looks for no NAT then, so its ESP does not reach a device behind one. Such a ticket is not
//! kept behind a NAT; and where a NAT came between later, a resumed session that carries nothing is replaced by a full exchange.

use dormouse_node::ladder::{Rung, State};
use dormouse_sim::{Access, Settings, Step, World};
use std::time::Duration;

fn world(seed: u64, mode: &str) -> World {
    let mut settings = Settings::default();
    for end in [&mut settings.device, &mut settings.gateway] {
        end.push(("resumption", format!("mode = {mode:?}")));
        // As a foreign peer, which libreswan is.
        end.push(("ike", "esp_in_udp = \"nat\"".to_owned()));
    }
    let mut world = World::new(seed, settings);
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

/// How soon a gateway that does not answer is noticed.
const NOTICED: Duration = Duration::from_secs(4);

/// The gateway loses the session, and the device comes back in `access`, by its ticket.
fn comes_back(world: &mut World, access: Access) {
    assert!(world.device().disk.tickets.len() == 1);
    world.step(Step::GatewayCrash(Duration::from_secs(1), true));
    world.step(Step::Sleep(Duration::from_secs(5), access));
    world.send_up();
    world.run(Duration::from_secs(2));
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume], "{:#?}", world.device().changes);
}

/// The device sends, and has the time to find out whether anybody hears it.
fn sends(world: &mut World) {
    let sent = world.send_up();
    world.run(NOTICED + Duration::from_secs(2));
    assert!(world.gateway().received.contains(&sent), "{:#?}", world.device().changes);
}

#[test]
fn behind_a_nat_that_has_come_between_the_session_is_replaced_and_the_ticket_not_kept() {
    let mut world = world(1, "libreswan");
    comes_back(&mut world, Access::B);
    // In no UDP, its ESP does not pass; the copy does, afterwards.
    let copied = world.send_up();
    world.run(Duration::from_millis(500));
    assert!(!world.gateway().received.contains(&copied));
    world.run(NOTICED);
    assert!(world.gateway().received.contains(&copied), "{:#?}", world.device().changes);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume, Rung::Full], "{:#?}", world.device().changes);
    assert!(world.device().disk.tickets.is_empty());
    sends(&mut world);
    world.settle_and_check();
}

#[test]
fn one_that_carries_nothing_for_another_reason_is_replaced_too() {
    let mut world = world(2, "libreswan");
    comes_back(&mut world, Access::A);
    sends(&mut world);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume, Rung::Full], "{:#?}", world.device().changes);
    assert!(world.device().disk.tickets.len() == 1);
    world.settle_and_check();
}

/// One packet shows it: nothing that is sent later has to wait for the exchange.
#[test]
fn it_is_replaced_before_the_next_packet() {
    let mut world = world(5, "libreswan");
    comes_back(&mut world, Access::A);
    world.run(NOTICED);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume, Rung::Full], "{:#?}", world.device().changes);
    world.settle_and_check();
}

#[test]
fn one_that_carries_something_is_kept() {
    let mut world = world(3, "libreswan");
    comes_back(&mut world, Access::A);
    world.send_down();
    world.run(Duration::from_secs(1));
    sends(&mut world);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume], "{:#?}", world.device().changes);
    world.settle_and_check();
}

#[test]
fn by_the_rfc_silence_is_no_reason() {
    let mut world = world(4, "strict");
    comes_back(&mut world, Access::B);
    sends(&mut world);
    assert_eq!(world.rungs(), [Rung::Full, Rung::Resume], "{:#?}", world.device().changes);
    world.settle_and_check();
}
