//! An SA says when it wants to be replaced, and stops when it must.

use crate::common::{SUITES, ipv4, pair, params, seal};
use dormouse_esp::{Discard, IPV4_IN_IP, Life, Limits, SealError, Volume};

#[test]
fn soft_is_reported_and_hard_stops_both_halves() {
    let mut p = params(SUITES[0].0, None);
    p.limits = Limits {
        soft: Volume { packets: 3, bytes: u64::MAX },
        hard: Volume { packets: u64::MAX, bytes: 500 },
    };
    let (mut out, mut inb) = pair(&p);
    let mut lives = vec![];
    for _ in 0..5 {
        let mut packet = seal(&mut out, &ipv4(100), IPV4_IN_IP);
        inb.open(&mut packet).unwrap();
        lives.push(out.life());
        assert_eq!(out.life(), inb.life());
    }
    assert_eq!(lives, [Life::Fresh, Life::Fresh, Life::Soft, Life::Soft, Life::Hard]);
    let mut slot = [0; 200];
    assert!(matches!(out.seal(&mut slot, 100, IPV4_IN_IP), Err(SealError::Expired { .. })));
    assert!(matches!(out.seal_batch(&mut slot, 160, &[100], IPV4_IN_IP), Err(SealError::Expired { .. })));

    let p = {
        p.limits = Limits::default();
        p
    };
    let (mut unlimited, _) = pair(&p);
    for _ in 0..5 {
        seal(&mut unlimited, &ipv4(100), IPV4_IN_IP);
    }
    let mut sixth = seal(&mut unlimited, &ipv4(100), IPV4_IN_IP);
    assert!(matches!(inb.open(&mut sixth), Err(Discard::Expired { .. })));
}
