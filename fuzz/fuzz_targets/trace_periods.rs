//! Activities as Parquet or Arrow IPC: what the library behind it panics over is caught, and everything else is bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = dormouse_trace::fuzz::table(data);
});
