//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_mobileip::fuzz;
use replay::replay;

#[test]
fn mobileip() {
    replay("mobileip", |data| _ = fuzz::parts(data));
}

/// The seeds are worth mutating: some are taken.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]
fn seeds_reach_the_parts() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/mobileip");
    let taken = std::fs::read_dir(&corpus)
        .expect("the corpus")
        .map(|seed| fuzz::parts(&std::fs::read(seed.expect("an entry").path()).expect("a seed")).0);
    assert!(taken.sum::<u32>() >= 4);
}
