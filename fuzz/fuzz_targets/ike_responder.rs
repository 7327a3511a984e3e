//! A whole endpoint before authentication: see `dormouse_ike::fuzz_endpoint::responder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _half_open = dormouse_ike::fuzz_endpoint::responder(data);
});
