//! Private key files: see `dormouse_crypto::fuzz::key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_crypto::fuzz::key(data));
