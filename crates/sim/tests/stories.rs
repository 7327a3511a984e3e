//! Random stories: loss, duplication, reordering, NAT expiry, roaming, sleep and crashes of either end. After each of them the
//! session must be up, the two ends must agree, and nothing may have panicked or spun.
//!
//! `DORMOUSE_STORIES=N` plays N of them (100,000 before a release), `DORMOUSE_SEED=S` only the one of seed S.

use dormouse_sim::{Script, Settings, World};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds whose stories with drawn configurations ended badly once: packets lost by a rekeying, sessions that a busy peer let expire,
/// a gateway that disturbed a sleeping device after a rekeying, a session without MOBIKE that was followed nowhere.
const ONCE_BAD: [u64; 10] = [129, 1_117, 1_295, 2_134, 4_867, 24_065, 35_146, 45_964, 57_231, 76_200];

fn play(seed: u64, settings: Settings) {
    let mut world = World::new(seed, settings);
    world.play(&Script::random(seed));
    world.settle_and_check();
}

fn all_end_well(settings: impl Fn(u64) -> Settings) {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_STORIES").unwrap_or(300),
    };
    let once_bad =
        ONCE_BAD.into_iter().filter(|seed| number("DORMOUSE_SEED").is_none() && !seeds.contains(seed));
    let mut failed = Vec::new();
    for seed in seeds.clone().chain(once_bad) {
        if catch_unwind(AssertUnwindSafe(|| play(seed, settings(seed)))).is_err() {
            eprintln!("seed {seed} failed; its story: {:#?} {:#?}", Script::random(seed), settings(seed));
            failed.push(seed);
            if failed.len() >= 10 {
                break;
            }
        }
    }
    assert!(failed.is_empty(), "stories that failed: DORMOUSE_SEED={failed:?}");
    println!("{} stories", seeds.end - seeds.start);
}

#[test]
fn every_story_ends_well() {
    all_end_well(|_| Settings::default());
}

#[test]
fn every_story_ends_well_however_the_two_ends_are_configured() {
    all_end_well(Settings::random);
}
