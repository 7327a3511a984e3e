//! Recorded traffic in every format but Parquet: see `dormouse_trace::fuzz::any`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_trace::fuzz::any(data));
