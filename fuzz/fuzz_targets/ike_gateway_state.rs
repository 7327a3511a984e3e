//! Ticket keys and load history, as a gateway reads them at its start: see `dormouse_ike::fuzz::gateway_state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz::gateway_state(data));
