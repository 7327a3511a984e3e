//! The content of tickets: see `dormouse_ike::fuzz::ticket_content`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz::ticket_content(data));
