//! Replays the committed fuzz corpus through the body of its target, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

#[test]
fn hip_rendezvous() {
    replay::replay("hip_rendezvous", dormouse_hip::fuzz::rendezvous_input);
}

#[test]
fn hip_host() {
    replay::replay("hip_host", dormouse_hip::fuzz::host_input);
}

#[test]
fn hip_clients() {
    replay::replay("hip_clients", dormouse_hip::fuzz::clients_input);
}
