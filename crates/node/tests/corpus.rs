//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_node::fuzz;
use replay::replay;

#[test]
fn node_config() {
    replay("node_config", fuzz::config);
}

#[test]
fn node_history() {
    replay("node_history", fuzz::history);
}

#[test]
fn node_lsi() {
    replay("node_lsi", fuzz::lsi);
}
