//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_eap::fuzz;
use replay::replay;

#[test]
fn eap_packets() {
    replay("eap_packets", fuzz::packets);
}

#[test]
fn eap_conversation() {
    replay("eap_conversation", |data| _ = fuzz::conversation(data));
}

#[test]
fn eap_radius() {
    replay("eap_radius", fuzz::radius);
}

/// The target does what it is for: untouched, both sides end well; a changed text does no harm, a changed response does.
#[test]
fn conversations_end() {
    assert!(fuzz::conversation(&[]));
    assert!(fuzz::conversation(&[0x84, 0, 0x21]));
    assert!(!fuzz::conversation(&[3, 34, 0]));
}
