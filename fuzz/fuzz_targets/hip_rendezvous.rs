//! A stranger's packet for the client of a HIP rendezvous server: see `dormouse_hip::fuzz::rendezvous_input`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_hip::fuzz::rendezvous_input(data));
