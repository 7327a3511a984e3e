//! Keys that move from router to router by what packets say, without a registration: the device goes, or a stranger repeats what it has sent.
//! The first and the last router have one neighbour, which they ask.

use crate::scene::{Scene, UNDER_WAY};
use crate::zoned::{DELAY, Keys, ROUTERS};
use dormouse_keying::GrantId;
use dormouse_node::config::access_router::Repair;
use dormouse_node::host::Side;
use std::collections::BTreeSet;
use std::time::Duration;

const MIDDLE: usize = 1;
/// A rekeying that keys which have moved bring about is over.
const SETTLED: Duration = Duration::from_secs(30);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Scene {
    /// The SAs whose keys a router has.
    fn names(&self, at: usize) -> BTreeSet<GrantId> {
        self.info(at).keys.into_iter().map(|(id, _)| id).collect()
    }

    fn opened(&self, at: usize) -> u64 {
        self.info(at).zones.opened
    }

    /// The device is at the router in the middle, which alone has its keys.
    fn in_the_middle(seed: u64) -> Self {
        let repair = if seed.is_multiple_of(2) { Repair::EspArq } else { Repair::Snoop };
        let mut scene = Self::new(seed, Keys::Moved, repair, 0.0, true);
        scene.enter(MIDDLE);
        scene.talk(SETTLED);
        scene.assert_alone(MIDDLE);
        scene
    }

    fn assert_alone(&self, at: usize) {
        for router in 0..ROUTERS {
            assert_eq!(self.names(router).is_empty(), router != at, "router {router}, the device is at {at}");
        }
    }
}

/// Packets of both directions that pass at the right router are recorded, and sent at once and repeatedly at both neighbours.
#[test]
fn packets_that_are_repeated_elsewhere_take_no_keys_away() {
    for seed in 0..4 {
        let mut scene = Scene::in_the_middle(seed);
        let (keys, read) = (scene.names(MIDDLE), scene.opened(MIDDLE));
        for _ in 0..100 {
            scene.talk(Duration::from_millis(500));
            // Nothing is under way for so long: all has passed.
            scene.run(UNDER_WAY);
            for elsewhere in [MIDDLE - 1, MIDDLE + 1] {
                for (of_device, from) in [(true, Side::Device), (false, Side::Network)] {
                    let passed = scene.air().last_of(of_device, 3);
                    for (path, packet) in passed {
                        scene.come(elsewhere, from, &path, &packet);
                    }
                    scene.run(Duration::from_millis(50));
                }
            }
            assert_eq!(scene.names(MIDDLE), keys, "seed {seed}, at {:?}", scene.net.now);
        }
        scene.assert_alone(MIDDLE);
        assert!(scene.opened(MIDDLE) > read + 9_000, "seed {seed}");
        for elsewhere in [MIDDLE - 1, MIDDLE + 1] {
            let asked = scene.info(elsewhere).counters.asked;
            assert!((2..=20).contains(&asked), "{asked} questions at {elsewhere}; seed {seed}");
        }
        scene.assert_nothing_is_lost(seed);
    }
}

/// Who has copied on the wire what waits at the right router until the radio is free sends it at both neighbours meanwhile.
#[test]
fn what_waits_for_the_radio_has_passed() {
    for seed in 30..34 {
        let mut scene = Scene::in_the_middle(seed);
        let keys = scene.names(MIDDLE);
        scene.burst(40);
        scene.run(DELAY + Duration::from_millis(2));
        assert!(scene.info(MIDDLE).waiting > 20, "seed {seed}");
        let waiting = scene.air().last_of(false, 3);
        for elsewhere in [MIDDLE - 1, MIDDLE + 1] {
            let before = scene.info(elsewhere).counters.asked;
            for (path, packet) in &waiting {
                scene.come(elsewhere, Side::Network, path, packet);
            }
            assert_eq!(scene.info(elsewhere).counters.asked, before + 1, "seed {seed}");
        }
        scene.run(Duration::from_millis(50));
        assert!(scene.info(MIDDLE).waiting > 10, "seed {seed}");
        assert_eq!(scene.names(MIDDLE), keys, "seed {seed}");
        scene.run(seconds(1));
        scene.assert_alone(MIDDLE);
        scene.assert_nothing_is_lost(seed);
    }
}

/// There and back, before it is settled and after.
#[test]
fn keys_follow_packets_there_and_back() {
    for (seed, stays) in [(10, seconds(1)), (11, seconds(1)), (12, SETTLED), (13, SETTLED)] {
        let mut scene = Scene::in_the_middle(seed);
        for at in [MIDDLE + 1, MIDDLE, MIDDLE - 1, MIDDLE] {
            scene.walk(at);
            let before = scene.opened(at);
            scene.talk(stays);
            assert!(!scene.names(at).is_empty() && scene.opened(at) > before + 100, "at {at}; seed {seed}");
        }
        scene.talk(SETTLED);
        scene.run(UNDER_WAY);
        scene.assert_alone(MIDDLE);
        scene.assert_nothing_is_lost(seed);
    }
}

/// A packet now and then brings the keys, and one rekeying: no more wake the radio.
#[test]
fn a_device_that_says_little_is_followed_and_left_in_peace() {
    for seed in 20..24 {
        let mut scene = Scene::in_the_middle(seed);
        scene.walk(MIDDLE + 1);
        let mut keys = BTreeSet::new();
        for _ in 0..30 {
            scene.talk_at(seconds(20), seconds(20));
            keys.extend(scene.names(MIDDLE + 1));
        }
        scene.assert_alone(MIDDLE + 1);
        assert!(keys.len() <= 2, "those that moved, and those that were made anew: {keys:?}; seed {seed}");
        assert!(scene.opened(MIDDLE + 1) >= 50, "{}; seed {seed}", scene.opened(MIDDLE + 1));
        assert!(scene.info(MIDDLE + 1).counters.asked <= 3, "seed {seed}");
    }
}
