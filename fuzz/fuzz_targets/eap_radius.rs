//! Answers of a RADIUS server: see `dormouse_eap::fuzz::radius`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_eap::fuzz::radius(data));
