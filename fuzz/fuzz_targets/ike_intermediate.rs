//! Two endpoints between IKE_SA_INIT and IKE_AUTH, the input sealed with their keys: see
//! `dormouse_ike::fuzz_endpoint::intermediate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_ike::fuzz_endpoint::intermediate(data));
