//! A whole endpoint behind authentication, the input sealed with the SA's keys: see
//! `dormouse_ike::fuzz_endpoint::authenticated`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz_endpoint::authenticated(data));
