//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#![expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_ike::{fuzz, fuzz_endpoint, fuzz_exchanges};
use replay::replay;

#[test]
fn ike_responder() {
    replay("ike_responder", |data| {
        fuzz_endpoint::responder(data);
    });
}

#[test]
fn ike_authenticated() {
    replay("ike_authenticated", fuzz_endpoint::authenticated);
    replay("ike_intermediate", fuzz_endpoint::intermediate);
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
fn ike_lineages() {
    replay("ike_lineages", fuzz::lineages);
}

#[test]
fn ike_reassembly() {
    replay("ike_reassembly", fuzz::reassembly);
}

#[test]
fn ike_gateway_state() {
    replay("ike_gateway_state", fuzz::gateway_state);
}

#[test]
fn ike_exchanges() {
    replay("ike_exchanges", |data| {
        fuzz_exchanges::exchanges(data);
    });
}

/// The seeds are worth mutating: a newcomer's first message is taken, and without an edit the handshake ends well at both ends, and a ticket brings the session back.
#[test]
fn seeds_reach_past_authentication() {
    assert_eq!(fuzz_exchanges::exchanges(&[]), (1, 1));
    let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/ike_responder/first_message");
    assert_eq!(fuzz_endpoint::responder(&std::fs::read(seed).expect("a seed")), 1);
    const RESUME: u8 = 17;
    assert_eq!(fuzz_exchanges::exchanges(&[RESUME]), (2, 2));
}
