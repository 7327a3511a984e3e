//! What the sleeper has learned, as a file: see `dormouse_node::fuzz::history`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_node::fuzz::history(data));
