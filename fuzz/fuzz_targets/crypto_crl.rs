//! CRLs: see `dormouse_crypto::fuzz::crl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_crypto::fuzz::crl(data));
