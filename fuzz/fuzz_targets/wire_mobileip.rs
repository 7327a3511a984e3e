//! Registration messages and agent advertisements: see `dormouse_wire::fuzz::mobileip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::mobileip(data));
