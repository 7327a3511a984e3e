//! A device's life and the packets that come while it sleeps: see `dormouse_standin::fuzz::life`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _books = dormouse_standin::fuzz::life(data);
});
