//! Telling very many stories, and printing the shortest one that fails.

#[path = "number.rs"]
mod number;

use dormouse_sim::Tale;
use number::number;

/// A line of progress is printed each time that so many stories have been played.
const PROGRESS: u64 = 10_000;

/// Failures after which the run ends.
const ENOUGH: usize = 10;

/// Tells `most` stories, or as many as the variable `count` asks for, and those that ended badly once.
pub(crate) fn all_end_well<T: Tale>(count: &str, most: u64, once_bad: &[u64], story: impl Fn(u64) -> T) {
    let first = number("DORMOUSE_FIRST").unwrap_or(0);
    let seeds = match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number(count).unwrap_or(most),
    };
    let once_bad =
        once_bad.iter().copied().filter(|seed| number("DORMOUSE_SEED").is_none() && !seeds.contains(seed));
    let mut failed = Vec::new();
    for seed in seeds.clone().chain(once_bad) {
        if seed > first && seed % PROGRESS == 0 {
            eprintln!("stories before seed {seed} ended, {} of them badly", failed.len());
        }
        let story = story(seed);
        if let Some(why) = story.failure() {
            let least = story.shrunk();
            let why = least.failure().unwrap_or(why);
            eprintln!("seed {seed}: {why}\nThe shortest story that still fails so:\n{}", least.as_test());
            failed.push(seed);
            if failed.len() >= ENOUGH {
                break;
            }
        }
    }
    assert!(failed.is_empty(), "stories that failed, each printed as a test above: DORMOUSE_SEED={failed:?}");
    println!("{} stories", seeds.end - seeds.start);
}
