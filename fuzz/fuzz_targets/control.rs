//! Lines of the control socket, of either side: see `dormouse_control::fuzz::lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_control::fuzz::lines(data));
