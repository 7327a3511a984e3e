//! Traffic-flow padding and dummy packets: lengths on the wire say nothing, and the receiver takes both off again.

use crate::common::{SUITES, ipv4, ipv6, pair, params, seal};
use dormouse_esp::{Discard, IPV4_IN_IP, IPV6_IN_IP, NO_NEXT_HEADER};
use dormouse_keying::Mode;

#[test]
fn padded_packets_have_few_sizes_and_open_to_the_original() {
    for (encr, integ) in SUITES {
        for (pad_to, sizes) in [(512, 3), (1_300, 1)] {
            let mut p = params(encr, integ);
            p.pad_to = pad_to;
            let (mut out, mut inb) = pair(&p);
            let mut lengths = std::collections::BTreeSet::new();
            for n in (40..1_300).step_by(37) {
                for (inner, next) in [(ipv4(n), IPV4_IN_IP), (ipv6(n), IPV6_IN_IP)] {
                    let mut packet = seal(&mut out, &inner, next);
                    lengths.insert(packet.len());
                    let opened = inb.open(&mut packet).unwrap();
                    assert_eq!(&packet[opened.inner], &inner[..]);
                }
            }
            assert_eq!(lengths.len(), sizes, "{encr} {integ:?}");
        }
    }
}

#[test]
fn padding_stops_at_what_the_path_carries() {
    let mut p = params(SUITES[0].0, None);
    p.pad_to = 1_024;
    let (mut out, _) = pair(&p);
    out.set_inner_mtu(1_438);
    assert_eq!(out.sealed_len(1_100), out.sealed_len(1_438));
    assert_eq!(out.sealed_len(10), 16 + 1_028 + 16);
    assert_eq!(out.sealed_len(1_024), out.sealed_len(10));
    assert_eq!(out.sealed_len(1_500), 16 + 1_504 + 16, "never shorter than the packet");
}

#[test]
fn transport_mode_is_never_padded() {
    let mut p = params(SUITES[0].0, None);
    p.pad_to = 512;
    p.mode = Mode::Transport;
    assert_eq!(pair(&p).0.sealed_len(10), 16 + 12 + 16);
}

#[test]
fn a_dummy_looks_like_a_packet_and_is_nothing() {
    for (encr, integ) in SUITES {
        let (mut out, mut inb) = pair(&params(encr, integ));
        let real = seal(&mut out, &ipv4(200), IPV4_IN_IP);
        let mut dummy = seal(&mut out, &[0; 200], NO_NEXT_HEADER);
        assert_eq!(dummy.len(), real.len());
        let opened = inb.open(&mut dummy).unwrap();
        assert!(opened.is_dummy() && opened.inner.is_empty());
    }
}

#[test]
fn an_inner_header_that_lies_is_dropped() {
    let (mut out, mut inb) = pair(&params(SUITES[0].0, None));
    let mut longer = ipv4(60);
    longer[3] = 61;
    for (inner, next) in
        [(longer, IPV4_IN_IP), (ipv4(60), IPV6_IN_IP), (ipv6(60), IPV4_IN_IP), (vec![], IPV4_IN_IP)]
    {
        let mut packet = seal(&mut out, &inner, next);
        assert!(matches!(inb.open(&mut packet), Err(Discard::Inner { .. })));
    }
    let mut packet = seal(&mut out, &ipv4(60), 6);
    assert_eq!(inb.open(&mut packet), Err(Discard::NextHeader { next_header: 6 }));
}
