//! Programs of IPv4 and the peers of HIP: see `dormouse_node::fuzz::lsi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_node::fuzz::lsi(data));
