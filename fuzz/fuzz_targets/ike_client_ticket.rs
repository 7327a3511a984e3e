//! Tickets as a client stores them: see `dormouse_ike::fuzz::client_ticket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz::client_ticket(data));
