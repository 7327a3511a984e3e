//! Sealed segments of both directions at an agent that reads header zones: see `dormouse_snoop::fuzz::zones`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _stats = dormouse_snoop::fuzz::zones(data);
});
