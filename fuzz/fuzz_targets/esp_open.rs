//! ESP packets at a receiver of each suite: see `dormouse_esp::fuzz::open`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_esp::fuzz::open(data));
