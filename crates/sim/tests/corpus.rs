//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_sim::fuzz;
use replay::replay;

#[test]
fn world() {
    replay("world", fuzz::story);
}
