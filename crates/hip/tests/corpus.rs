//! Replays the committed fuzz corpus through the body of its target, without a fuzzer.

#![expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

#[test]
fn hip_host() {
    replay::replay("hip_host", dormouse_hip::fuzz::host_input);
}
