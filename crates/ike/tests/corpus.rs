//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_ike::{fuzz, fuzz_endpoint};
use replay::replay;

#[test]
fn ike_responder() {
    replay("ike_responder", fuzz_endpoint::responder);
}

#[test]
fn ike_authenticated() {
    replay("ike_authenticated", fuzz_endpoint::authenticated);
}

#[test]
fn ike_ticket() {
    replay("ike_ticket", fuzz::ticket_content);
}

#[test]
fn ike_client_ticket() {
    replay("ike_client_ticket", fuzz::client_ticket);
}

#[test]
fn ike_ticket_guard() {
    replay("ike_ticket_guard", fuzz::ticket_guard);
}

#[test]
fn ike_reassembly() {
    replay("ike_reassembly", fuzz::reassembly);
}
