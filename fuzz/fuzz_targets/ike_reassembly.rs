//! Fragments of IKE messages: see `dormouse_ike::fuzz::reassembly`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz::reassembly(data));
