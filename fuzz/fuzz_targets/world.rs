//! A story of device, gateway and strangers: see `dormouse_sim::fuzz::story`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_sim::fuzz::story(data));
