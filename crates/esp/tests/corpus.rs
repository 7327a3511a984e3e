//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_esp::fuzz;
use replay::replay;

#[test]
fn esp_open() {
    replay("esp_open", fuzz::open);
}

#[test]
fn esp_zones() {
    replay("esp_zones", fuzz::zones);
}
