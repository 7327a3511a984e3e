//! HIP packets and their parameters: see `dormouse_wire::fuzz::hip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::hip(data));
