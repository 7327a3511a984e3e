//! Daemons that are stopped, started and told to read their configuration again.

use dormouse_ike::config::HoldPolicy;
use dormouse_node::ladder::{Rung, State};
use dormouse_sim::{Crowd, Edit, Settings, Step, World};
use std::net::IpAddr;
use std::time::Duration;

fn connected(seed: u64) -> World {
    let mut world = World::new(seed, Settings::default());
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

fn data_passes(world: &mut World) {
    world.send_up();
    world.run(Duration::from_secs(15));
    let (up, down) = (world.send_up(), world.send_down());
    world.run(Duration::from_secs(1));
    assert!(world.gateway().received.contains(&up), "{:#?}", world.device().changes);
    assert!(world.device().received.contains(&down), "{:#?}", world.device().changes);
}

#[test]
fn a_daemon_that_was_stopped_in_order_is_back_by_the_ticket() {
    for gateway in [true, false] {
        let mut world = connected(1);
        let inner = world.device().inner.clone();
        world.step(Step::Stop { gateway, away: Duration::from_secs(3) });
        data_passes(&mut world);
        assert_eq!(world.rungs(), [Rung::Full, Rung::Resume], "{gateway}: {:#?}", world.device().changes);
        assert_eq!(world.device().inner, inner, "{gateway}");
        world.settle_and_check();
    }
}

#[test]
fn a_gateway_without_its_ticket_keys_gives_each_device_the_address_that_it_had() {
    let addresses =
        |crowd: &Crowd| -> Vec<Vec<IpAddr>> { crowd.devices().map(|d| d.inner.clone()).collect() };
    let mut crowd = Crowd::new(1, 5, HoldPolicy::default());
    crowd.run(Duration::from_secs(5));
    let before = addresses(&crowd);
    assert!(before.iter().all(|inner| inner.len() == 1), "{before:?}");
    for n in 0..crowd.count() {
        crowd.kill(n);
        // What it remembers of the gateway is lost, its wish for an address included.
        crowd.with_machine(n, |_, machine| machine.disk.tickets.clear());
    }
    crowd.restart_gateway();
    for n in (0..crowd.count()).rev() {
        crowd.revive(n, |_, _| ());
        crowd.run(Duration::from_secs(2));
    }
    assert_eq!(addresses(&crowd), before);
    crowd.check();
}

#[test]
fn a_reload_that_finds_what_was_there_touches_no_session() {
    let mut world = connected(2);
    for gateway in [true, false] {
        let sent = |world: &World, gateway: bool| {
            let machine = if gateway { world.gateway() } else { world.device() };
            machine.node().map(|n| n.ike_stats().datagrams_out)
        };
        let before = sent(&world, gateway);
        world.step(Step::Reload { gateway, edit: Edit::Nothing });
        world.run(Duration::from_secs(2));
        assert_eq!(sent(&world, gateway), before, "{gateway}");
    }
    data_passes(&mut world);
    assert_eq!(world.rungs(), [Rung::Full], "{:#?}", world.device().changes);
}

#[test]
fn another_pool_gives_the_device_another_address() {
    let mut world = connected(3);
    let before = world.device().inner.clone();
    world.step(Step::Reload { gateway: true, edit: Edit::Pool });
    data_passes(&mut world);
    let after = world.device().inner.clone();
    assert_ne!(before, after, "{:#?}", world.device().changes);
    world.step(Step::Reload { gateway: true, edit: Edit::Pool });
    data_passes(&mut world);
    assert_ne!(world.device().inner, after, "{:#?}", world.device().changes);
    world.settle_and_check();
}

#[test]
fn another_lifetime_begins_the_devices_session_anew_and_leaves_the_gateways() {
    let mut world = connected(4);
    world.step(Step::Reload { gateway: true, edit: Edit::Rekey(60) });
    data_passes(&mut world);
    assert_eq!(world.rungs(), [Rung::Full], "{:#?}", world.device().changes);
    world.step(Step::Reload { gateway: false, edit: Edit::Rekey(60) });
    data_passes(&mut world);
    assert_eq!(world.rungs(), [Rung::Full; 2], "{:#?}", world.device().changes);
    world.settle_and_check();
}
