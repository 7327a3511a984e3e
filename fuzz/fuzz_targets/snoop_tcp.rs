//! Segments of both directions at the agent of a radio hop: see `dormouse_snoop::fuzz::tcp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _stats = dormouse_snoop::fuzz::tcp(data);
});
