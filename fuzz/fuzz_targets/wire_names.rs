//! DNS, DHCP, NetBIOS and ARP, as a stand-in reads them: see `dormouse_wire::fuzz::names`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dormouse_wire::fuzz::names(data));
