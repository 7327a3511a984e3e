//! IP packets, MSS clamping and ICMP errors: see `dormouse_wire::fuzz::ip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::ip(data));
