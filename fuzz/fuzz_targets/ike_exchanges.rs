//! Two endpoints, and edits of what they say to each other: see `dormouse_ike::fuzz_exchanges::exchanges`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _established = dormouse_ike::fuzz_exchanges::exchanges(data);
});
