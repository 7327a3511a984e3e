//! EAP packets at both ends: see `dormouse_eap::fuzz::packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_eap::fuzz::packets(data));
