//! OCSP answers: see `dormouse_crypto::fuzz::ocsp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_crypto::fuzz::ocsp(data));
