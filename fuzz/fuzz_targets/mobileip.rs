//! Packets at a home agent, a foreign agent and a mobile host: see `dormouse_mobileip::fuzz::parts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _taken = dormouse_mobileip::fuzz::parts(data);
});
