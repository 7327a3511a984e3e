//! A gateway's operator ends the session of a peer: it gets a DELETE if it listens, its tickets are worthless, and its leases and routes
//! are free. Coming back takes a full exchange.

use dormouse_ike::admission::Denial;
use dormouse_ike::config::HoldPolicy;
use dormouse_node::ladder::{Rung, State};
use dormouse_node::{Change, Limits, Met, SleepFlags, SleepVerdict};
use dormouse_sim::{Access, Settings, Step, World};
use std::time::Duration;

const PEER: &str = "device.sim";

fn connected(seed: u64, settings: Settings) -> World {
    let mut world = World::new(seed, settings);
    world.run(Duration::from_secs(2));
    assert_eq!(world.device_state(), State::Up, "{:#?}", world.device().changes);
    world
}

/// A device that sleeps, for ten minutes at most, at a gateway that holds `most` sessions and stands in.
fn asleep(seed: u64, most: usize) -> World {
    const BOTH: SleepFlags = SleepFlags { stand_in: true, buffering: true };
    let hold = HoldPolicy { most, services: BOTH, ..HoldPolicy::default() };
    let stand_in = Some((Limits::default(), Duration::from_secs(3_600)));
    let mut world = connected(seed, Settings { hold, stand_in, ..Settings::default() });
    world.send_up();
    world.announce_sleep(Some(Duration::from_secs(600)), BOTH);
    world
}

/// Who was removed.
fn remove(world: &mut World, connection: &str, peer: &str) -> Vec<String> {
    let now = world.now();
    let node = world.gateway_mut().node_mut().expect("it runs");
    let meant = node.remove_peer(now, connection, peer);
    world.gateway_mut().flush(now);
    meant.into_iter().collect()
}

fn last_rung(world: &World) -> Option<Rung> {
    let up = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
    world.device().changes.iter().rev().find_map(up)
}

fn sessions(world: &World) -> usize {
    world.gateway().node().map_or(0, |n| n.gateway_sessions(world.now()).len())
}

fn refused_for(world: &World, word: &str) -> bool {
    let about = |c: &Change| matches!(c, Change::PeerRefused { why, .. } if why.contains(word));
    world.gateway().changes.iter().any(about)
}

#[test]
fn a_peer_that_listens_is_told_and_its_ticket_is_destroyed() {
    let mut world = connected(1, Settings::default());
    assert!(world.device().disk.tickets.len() == 1);
    assert_eq!(remove(&mut world, "office", PEER), [PEER]);
    // The Delete has arrived, the answers to what follows have not.
    world.run(Duration::from_millis(35));
    assert!(world.device().disk.tickets.is_empty(), "a ticket outlived its session");
    let down = Change::Down { connection: "office".into(), why: "deleted by the peer".into() };
    assert!(world.device().changes.contains(&down), "{:#?}", world.device().changes);
    // Its credentials are still good: it comes back in full, and what it is given now is worth something.
    world.run(Duration::from_secs(5));
    assert_eq!((last_rung(&world), sessions(&world)), (Some(Rung::Full), 1));
    assert!(world.gateway().routes.len() == 1, "{:?}", world.gateway().routes);
    world.step(Step::GatewayCrash(Duration::from_secs(1), true));
    world.send_up();
    world.run(Duration::from_secs(5));
    assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.gateway().changes);
    world.settle_and_check();
}

#[test]
fn a_ticket_that_the_peer_kept_is_refused_also_after_a_restart_of_the_gateway() {
    for restart in [false, true] {
        let mut world = connected(2, Settings::default());
        // It hears nothing of its removal.
        world.device_mut().crash();
        assert_eq!(remove(&mut world, "office", PEER), [PEER]);
        world.run(Duration::from_secs(30));
        assert!(sessions(&world) == 0 && world.gateway().routes.is_empty());
        if restart {
            world.step(Step::GatewayCrash(Duration::from_secs(1), true));
        }
        assert!(world.device().disk.tickets.len() == 1);
        world.step(Step::DeviceCrash(Duration::from_secs(1)));
        world.run(Duration::from_secs(5));
        assert_eq!(last_rung(&world), Some(Rung::Full), "{:#?}", world.device().changes);
        assert!(refused_for(&world, "the session has ended"), "{:#?}", world.gateway().changes);
        world.settle_and_check();
    }
}

#[test]
fn a_device_that_sleeps_is_left_in_peace_and_finds_out_when_it_wakes() {
    for most in [10, 0] {
        let mut world = asleep(3, most);
        let held = matches!(world.device().sleep, Some(SleepVerdict::Held { .. }));
        assert_eq!(held, most > 0, "{:?}", world.device().sleep);
        world.run(Duration::from_secs(60));
        let before = world.gateway().node().map(|n| n.ike_stats().datagrams_out);
        assert_eq!(world.gateway().routes.len(), 1);
        assert_eq!(remove(&mut world, "office", PEER), [PEER]);
        world.run(Duration::from_secs(60));
        let node = world.gateway().node().expect("it runs");
        assert_eq!(Some(node.ike_stats().datagrams_out), before, "a sleeping device was disturbed");
        assert!(node.gateway_sessions(world.now()).is_empty() && node.absent_devices().is_empty());
        assert!(world.gateway().routes.is_empty(), "{:?}", world.gateway().routes);
        world.wake(Access::A);
        let number = world.send_up();
        world.run(Duration::from_secs(5));
        assert_eq!(last_rung(&world), Some(Rung::Full), "held {held}: {:#?}", world.device().changes);
        assert!(world.gateway().received.contains(&number), "what found out was lost");
        world.settle_and_check();
    }
}

/// The same for a denial, after which the device does not come back, and what waits for it is dropped at once.
#[test]
fn a_denied_device_that_sleeps_is_left_in_peace_and_does_not_come_back() {
    for most in [10, 0] {
        let mut world = asleep(7, most);
        let number = world.send_down();
        world.run(Duration::from_secs(60));
        let before = world.gateway().node().map(|n| n.ike_stats().datagrams_out);
        let now = world.now();
        let denial = Denial::Name(PEER.parse().expect("a name"));
        let node = world.gateway_mut().node_mut().expect("it runs");
        let met = node.deny(now, denial.clone());
        assert_eq!(met, Met { sessions: usize::from(most > 0), known: true });
        world.gateway_mut().flush(now);
        world.run(Duration::from_secs(60));
        let node = world.gateway().node().expect("it runs");
        assert_eq!(Some(node.ike_stats().datagrams_out), before, "a sleeping device was disturbed");
        assert!(node.gateway_sessions(world.now()).is_empty() && node.absent_devices().is_empty());
        assert!(world.gateway().routes.is_empty(), "{:?}", world.gateway().routes);
        world.wake(Access::A);
        world.run(Duration::from_secs(20));
        assert_ne!(world.device_state(), State::Up);
        assert_eq!(sessions(&world), 0, "{:#?}", world.gateway().changes);
        let now = world.now();
        assert!(world.gateway_mut().node_mut().is_some_and(|node| node.allow(&denial)));
        world.gateway_mut().flush(now);
        world.run(Duration::from_secs(600));
        assert_eq!((world.device_state(), last_rung(&world)), (State::Up, Some(Rung::Full)));
        assert!(!world.device().received.contains(&number), "a packet outlived its session");
    }
}

/// Nothing of a peer that is denied is taken any more, not what was on its way either.
#[test]
fn what_a_denied_peer_has_sent_is_not_taken() {
    let mut world = connected(8, Settings::default());
    let before = world.send_up();
    world.run(Duration::from_secs(1));
    let number = world.send_up();
    let now = world.now();
    let node = world.gateway_mut().node_mut().expect("it runs");
    assert_eq!(node.deny(now, Denial::Name(PEER.parse().expect("a name"))).sessions, 1);
    world.gateway_mut().flush(now);
    world.run(Duration::from_secs(1));
    let received = &world.gateway().received;
    assert!(received.contains(&before) && !received.contains(&number), "{received:?}");
}

#[test]
fn a_forgotten_ticket_costs_a_full_exchange() {
    for forgotten in [false, true] {
        let mut world = connected(9, Settings::default());
        world.device_mut().crash();
        if forgotten {
            let now = world.now();
            world.gateway_mut().node_mut().expect("it runs").forget_tickets(now);
            world.gateway_mut().flush(now);
            world.run(Duration::from_secs(1));
        }
        world.step(Step::DeviceCrash(Duration::from_secs(1)));
        world.run(Duration::from_secs(5));
        let rung = if forgotten { Rung::Full } else { Rung::Resume };
        assert_eq!((world.device_state(), last_rung(&world)), (State::Up, Some(rung)));
        world.settle_and_check();
    }
}

#[test]
fn a_peer_is_meant_by_its_identity_or_by_its_inner_address() {
    let mut world = connected(4, Settings::default());
    let inner = world.device().inner.first().expect("configured").to_string();
    for (connection, name) in
        [("office", "device"), ("office", "10.55.0.250"), ("home", PEER), ("office", "*.sim"), ("office", "")]
    {
        assert!(remove(&mut world, connection, name).is_empty(), "{connection} {name}");
    }
    assert_eq!(sessions(&world), 1);
    assert_eq!(remove(&mut world, "office", &inner), [PEER]);
    // Not at the end of its own that the device has.
    let now = world.now();
    let device = world.device_mut().node_mut().expect("it runs");
    assert!(device.remove_peer(now, "office", "gateway.sim").is_empty());
}

/// A device that has gone to another gateway of those that share their tickets: what is left of it goes without a word, what waited for it too;
/// and it may come back by its ticket.
#[test]
fn a_device_that_is_at_another_gateway_leaves_nothing_here_and_may_come_back() {
    for most in [10, 0] {
        let mut world = asleep(11, most);
        world.send_down();
        world.run(Duration::from_secs(60));
        let before = world.gateway().node().map(|n| n.ike_stats().datagrams_out);
        let lineage = world.gateway().disk.lineages.rows().next().expect("a session").id;
        let now = world.now();
        let node = world.gateway_mut().node_mut().expect("it runs");
        assert!(node.gone_elsewhere(now, lineage), "held: {}", most > 0);
        assert!(!node.gone_elsewhere(now, lineage), "it is gone");
        world.gateway_mut().flush(now);
        world.run(Duration::from_secs(60));
        let node = world.gateway().node().expect("it runs");
        assert_eq!(Some(node.ike_stats().datagrams_out), before, "it was told");
        assert!(node.gateway_sessions(world.now()).is_empty() && node.absent_devices().is_empty());
        assert!(world.gateway().routes.is_empty(), "{:?}", world.gateway().routes);
        world.wake(Access::A);
        world.send_up();
        world.run(Duration::from_secs(20));
        assert_eq!(last_rung(&world), Some(Rung::Resume), "{:#?}", world.device().changes);
        assert_eq!(world.gateway().routes.len(), 1);
        world.settle_and_check();
    }
}
