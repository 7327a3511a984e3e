//! A thief with copies of the device's disk, taken at any moment, beside stories with all their faults: lost confirmations, crashes of
//! either end at any step, logouts, rekeyings, a slow store.

use dormouse_node::ladder::Rung;
use dormouse_sansio::{Entropy, Seeded};
use dormouse_sim::{Accepted, Script, Settings, Step, World};
use std::time::Duration;

/// The seeds: more by `DORMOUSE_STORIES`, or the one of `DORMOUSE_SEED`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_STORIES").unwrap_or(count),
    }
}

fn story(seed: u64) -> Accepted {
    let mut world = World::new(seed, Settings::default());
    let mut rng = Seeded::new(seed ^ 0x7e1e_f000);
    world.add_thief();
    world.gateway_mut().store.slow = Duration::from_millis(1 << rng.below(12));
    for step in &Script::random(seed).0 {
        world.step(*step);
        match rng.below(4) {
            0 => world.thief_copies(),
            1 => world.thief_tries(Duration::from_millis(rng.below(8_000))),
            _ => {}
        }
    }
    world.settle_and_check();
    world.check_thief()
}

#[test]
fn a_copied_ticket_is_of_no_use_once_the_device_has_resumed() {
    let mut all = Accepted::default();
    for seed in seeds(400) {
        let Accepted { device, thief } = story(seed);
        (all.device, all.thief) = (all.device + device, all.thief + thief);
    }
    // Both have come first often enough for this to mean something.
    if seeds(400).count() >= 400 {
        assert!(all.device > 100 && all.thief > 20, "{all:?}");
    }
}

#[test]
fn what_a_device_sends_before_the_store_has_answered_waits_and_arrives() {
    for seed in 0..8 {
        let mut world = World::new(seed, Settings::default());
        world.run(Duration::from_secs(5));
        world.gateway_mut().store.slow = Duration::from_millis(1_500);
        world.step(Step::DeviceCrash(Duration::from_millis(100)));
        let mut patience = 500;
        while world.rungs() != [Rung::Full, Rung::Resume] && patience > 0 {
            world.run(Duration::from_millis(10));
            patience -= 1;
        }
        let asked = world.gateway().store.done.len();
        let sent: Vec<u64> = (0..5).map(|_| world.send_up()).collect();
        while world.gateway().store.done.len() == asked && patience > 0 {
            let early = sent.iter().any(|n| world.gateway().received.contains(n));
            assert!(!early, "seed {seed}: delivered before the ticket was known to count");
            world.run(Duration::from_millis(10));
            patience -= 1;
        }
        world.run(Duration::from_secs(1));
        let arrived = sent.iter().filter(|n| world.gateway().received.contains(n)).count();
        assert_eq!(arrived, 5, "seed {seed}: {:#?}", world.device().changes);
        world.settle_and_check();
    }
}
