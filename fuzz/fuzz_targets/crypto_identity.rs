//! Identities as configured and as sent: see `dormouse_crypto::fuzz::identity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_crypto::fuzz::identity(data));
