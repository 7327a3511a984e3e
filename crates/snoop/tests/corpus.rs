//! Replays the committed fuzz corpus through the body of its target, without a fuzzer.

#![expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use std::path::Path;

use dormouse_snoop::fuzz;
use replay::replay;

#[test]
fn snoop_tcp() {
    replay("snoop_tcp", |data| _ = fuzz::tcp(data));
}

#[test]
fn snoop_zones() {
    replay("snoop_zones", |data| _ = fuzz::zones(data));
}

#[test]
fn snoop_arq() {
    replay("snoop_arq", |data| _ = fuzz::arq(data));
}

/// The seeds are worth mutating: together they make the agent do all that it can.
#[test]
fn seeds_reach_everything() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/snoop_tcp");
    let did = |of: fn(&dormouse_snoop::tcp::Stats) -> u64| {
        std::fs::read_dir(&corpus)
            .expect("the corpus")
            .any(|seed| of(&fuzz::tcp(&std::fs::read(seed.expect("an entry").path()).expect("a seed"))) > 0)
    };
    assert!(did(|s| s.kept) && did(|s| s.repeated) && did(|s| s.suppressed) && did(|s| s.evicted));
}
