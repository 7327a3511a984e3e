//! Operations on a store of lineages: see `dormouse_ike::fuzz::lineages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz::lineages(data));
