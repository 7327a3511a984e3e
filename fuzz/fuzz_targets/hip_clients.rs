//! Clients of a HIP relay, and the relay: see `dormouse_hip::fuzz::clients_input`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_hip::fuzz::clients_input(data));
