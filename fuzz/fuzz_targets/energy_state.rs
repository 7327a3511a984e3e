//! What a policy has saved: see `dormouse_energy::fuzz::state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_energy::fuzz::state(data));
