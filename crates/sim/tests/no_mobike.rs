//! A device that changes its network in a session without MOBIKE: a peer that does not look where packets come from would go on
//! sending to where the device was, so the session is replaced; one that saw the device behind a NAT follows.

use dormouse_node::ladder::{Rung, State};
use dormouse_sim::{Access, Settings, World};
use std::time::Duration;

fn world(seed: u64, first: Access, resumption: &str) -> World {
    let mut settings = Settings::default();
    settings.gateway.push(("ike", "mobike = false".into()));
    for end in [&mut settings.device, &mut settings.gateway] {
        end.push(("resumption", format!("mode = {resumption:?}")));
    }
    let mut world = World::new(seed, settings);
    world.enter(first);
    world.run(Duration::from_secs(3));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

/// Whether data flow both ways at once in the other network.
fn flows_in(world: &mut World, access: Access) -> bool {
    world.enter(access);
    let up = world.send_up();
    world.run(Duration::from_secs(2));
    let down = world.send_down();
    world.run(Duration::from_secs(1));
    world.gateway().received.contains(&up) && world.device().received.contains(&down)
}

#[test]
fn from_a_routed_network_it_comes_back_by_ticket_or_in_full() {
    for (mode, rung) in [("strict", Rung::Resume), ("off", Rung::Full)] {
        let mut world = world(1, Access::A, mode);
        assert!(flows_in(&mut world, Access::B), "{:#?}", world.device().changes);
        assert_eq!(world.rungs(), [Rung::Full, rung], "{:#?}", world.device().changes);
        world.settle_and_check();
    }
}

#[test]
fn from_behind_a_nat_the_gateway_follows() {
    let mut world = world(2, Access::B, "strict");
    let before = world.rungs().len();
    assert!(flows_in(&mut world, Access::A), "{:#?}", world.device().changes);
    assert_eq!(world.rungs()[before..], [Rung::Move], "{:#?}", world.device().changes);
    world.settle_and_check();
}
