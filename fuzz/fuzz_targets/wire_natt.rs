//! Datagrams on the NAT-traversal port: see `dormouse_wire::fuzz::natt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::natt(data));
