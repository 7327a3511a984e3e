//! Packets and reports at both ends of an ESP repair: see `dormouse_snoop::fuzz::arq`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _stats = dormouse_snoop::fuzz::arq(data);
});
