//! Configuration files: see `dormouse_node::fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_node::fuzz::config(data));
