//! Profiles, baselines and an instrument's rows: see `dormouse_energy::fuzz::files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_energy::fuzz::files(data));
