//! Payloads and notifications of multi-layered IPsec's key management: see `dormouse_wire::fuzz::mlike`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::mlike(data));
