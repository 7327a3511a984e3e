//! What is sealed opens to the same bytes: every suite, both modes, with and without extended sequence numbers, every length
//! around the block sizes; and a changed bit never does.

use crate::common::{SUITES, ipv4, ipv6, pair, params, seal};
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{Encr, Integ, PrfKey};
use dormouse_esp::{Discard, IPV4_IN_IP, IPV6_IN_IP};
use dormouse_keying::Mode;

#[test]
fn every_suite_mode_and_length() {
    for (encr, integ) in SUITES {
        for esn in [false, true] {
            let mut p = params(encr, integ);
            p.esn = esn;
            let (mut out, mut inb) = pair(&p);
            for (inner, next) in
                (20..70).map(|n| (ipv4(n), IPV4_IN_IP)).chain((40..70).map(|n| (ipv6(n), IPV6_IN_IP)))
            {
                let mut packet = seal(&mut out, &inner, next);
                assert_eq!(packet.len() % 4, 0);
                let opened = inb.open(&mut packet).unwrap();
                assert_eq!(
                    (&packet[opened.inner], opened.next_header),
                    (&inner[..], next),
                    "{encr} {integ:?}"
                );
            }
            assert_eq!(inb.counters(), out.counters());
            assert_eq!(inb.counters().packets, 80);

            p.mode = Mode::Transport;
            let (mut out, mut inb) = pair(&p);
            for n in 0..70 {
                let payload = vec![n; usize::from(n)];
                let mut packet = seal(&mut out, &payload, 17);
                let opened = inb.open(&mut packet).unwrap();
                assert_eq!(
                    (&packet[opened.inner], opened.next_header),
                    (&payload[..], 17),
                    "{encr} {integ:?}"
                );
            }
        }
    }
}

#[test]
fn no_changed_bit_and_no_cut_goes_unnoticed() {
    for (encr, integ) in SUITES {
        let (mut out, mut inb) = pair(&params(encr, integ));
        let packet = seal(&mut out, &ipv4(60), IPV4_IN_IP);
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(inb.open(&mut changed).is_err(), "{encr} {integ:?} bit {bit}");
        }
        for len in 0..packet.len() {
            assert!(inb.open(&mut packet[..len].to_vec()).is_err(), "{encr} {integ:?} cut to {len}");
        }
        assert_eq!(inb.counters().packets, 0);
        inb.open(&mut packet.clone()).unwrap();
    }
}

#[test]
fn the_high_half_of_the_sequence_number_is_authenticated() {
    for (encr, integ) in SUITES {
        let mut p = params(encr, integ);
        let (mut out, _) = pair(&p);
        p.esn = false;
        let (_, mut inb) = pair(&p);
        let mut packet = seal(&mut out, &ipv4(60), IPV4_IN_IP);
        assert!(matches!(inb.open(&mut packet), Err(Discard::Unauthentic { .. })), "{encr} {integ:?}");
    }
}

#[test]
fn cbc_never_uses_an_iv_twice() {
    let (encr, integ) = SUITES[4];
    let (mut out, _) = pair(&params(encr, integ));
    let mut ivs = std::collections::BTreeSet::new();
    for _ in 0..1_000 {
        let packet = seal(&mut out, &ipv4(20), IPV4_IN_IP);
        assert!(ivs.insert(packet[8..24].to_vec()));
    }
}

/// A MAC that is not cut is over all that stands before it, from the SPI on; there is no high half of the sequence number behind that.
#[test]
fn a_whole_mac_is_over_the_packet_as_it_stands() {
    let mut p = params(Encr::NullIv16, Some(Integ::HmacSha256Whole));
    p.esn = false;
    let (mut out, _) = pair(&p);
    let packet = seal(&mut out, &ipv4(22), IPV4_IN_IP);
    let (covered, icv) = packet.split_at(packet.len() - 32);
    assert_eq!(PrfKey::new(Prf::HmacSha256, p.keymat.as_bytes()).compute(&[covered]).as_bytes(), icv);
    assert_eq!(covered.len(), 8 + 16 + 22 + 2, "SPI, sequence number, vector, the packet, its trailer");
    assert_eq!((&covered[16..24], &covered[24..46]), (&[0, 0, 0, 0, 0, 0, 0, 1][..], &ipv4(22)[..]));
}
