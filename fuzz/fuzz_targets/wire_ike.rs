//! IKE messages and decrypted payload chains: see `dormouse_wire::fuzz::ike`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::ike(data));
