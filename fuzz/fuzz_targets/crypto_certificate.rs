//! Certificates in DER and PEM: see `dormouse_crypto::fuzz::certificate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_crypto::fuzz::certificate(data));
