//! A HIP host in every state: see `dormouse_hip::fuzz::host_input`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_hip::fuzz::host_input(data));
