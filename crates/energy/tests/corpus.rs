//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_energy::fuzz;
use replay::replay;

#[test]
fn energy_files() {
    replay("energy_files", fuzz::files);
}

#[test]
fn energy_state() {
    replay("energy_state", fuzz::state);
}
