//! Records of spent tickets: see `dormouse_ike::fuzz::ticket_guard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz::ticket_guard(data));
