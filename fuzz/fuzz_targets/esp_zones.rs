//! Packets in zones at an end point and at a router that has the first one's key: see `dormouse_esp::fuzz::zones`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_esp::fuzz::zones(data));
