//! A conversation of EAP-MSCHAPv2 whose messages are changed: see `dormouse_eap::fuzz::conversation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _both = dormouse_eap::fuzz::conversation(data);
});
