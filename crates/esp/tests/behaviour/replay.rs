//! However the network reorders packets, none is accepted twice, and none inside the window is lost to it: held
//! against a model that remembers everything.

use std::collections::BTreeSet;

use crate::common::{SUITES, ipv4, pair, params, seal};
use dormouse_esp::{IPV4_IN_IP, ReplayWindow, reconstruct};
use proptest::prelude::*;

/// A walk of sequence numbers: mostly near the last, sometimes far, repeats included.
fn walk() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![
        6 => -40_i64..80,
        2 => -1_100_i64..1_100,
        1 => -5_000_i64..70_000,
    ];
    (
        prop_oneof![Just(0_u64), Just((1 << 32) - 600), Just(u64::MAX - 3_000)],
        prop::collection::vec(step, 1..300),
    )
        .prop_map(|(start, steps)| {
            let mut at = start;
            steps
                .into_iter()
                .map(|step| {
                    at = at.saturating_add_signed(step);
                    at
                })
                .collect()
        })
}

proptest! {
    #[test]
    fn the_window_agrees_with_a_perfect_memory(numbers in walk(), size in 1_024_u32..3_000) {
        let mut window = ReplayWindow::new(size);
        let mut seen = BTreeSet::new();
        for seq in numbers {
            let top = seen.last().copied().unwrap_or(0);
            let expect = seq != 0 && !seen.contains(&seq) && (seq > top || top - seq < u64::from(size));
            prop_assert_eq!(window.check(seq).is_ok(), expect, "number {} below top {}", seq, top);
            prop_assert_eq!(window.accept(seq).is_ok(), expect);
            if expect {
                seen.insert(seq);
            }
        }
    }

    #[test]
    fn reconstruction_finds_every_number_in_reach(top in any::<u64>(), offset in -1_023_i64..1_000_000) {
        let mut window = ReplayWindow::new(1_024);
        prop_assume!(top > 0 && window.accept(top).is_ok());
        if let Some(seq) = top.checked_add_signed(offset).filter(|s| *s > 0) {
            prop_assert_eq!(reconstruct(&window, seq as u32), Some(seq));
        }
    }

    #[test]
    fn packets_in_any_order_are_accepted_once(
        order in prop::collection::vec(0_usize..200, 0..600),
        suite in prop::sample::select(SUITES.to_vec()),
    ) {
        let (mut out, mut inb) = pair(&params(suite.0, suite.1));
        let packets: Vec<_> = (0..200).map(|_| seal(&mut out, &ipv4(40), IPV4_IN_IP)).collect();
        let mut seen = BTreeSet::new();
        for i in order {
            prop_assert_eq!(inb.open(&mut packets[i].clone()).is_ok(), seen.insert(i), "packet {}", i);
        }
    }
}

#[test]
fn a_forged_packet_does_not_move_the_window() {
    let (encr, integ) = SUITES[0];
    let (mut out, mut inb) = pair(&params(encr, integ));
    let first = seal(&mut out, &ipv4(40), IPV4_IN_IP);
    let mut forged = first.clone();
    forged[4..8].copy_from_slice(&1_000_000_u32.to_be_bytes());
    assert!(inb.open(&mut forged).is_err());
    assert_eq!(inb.sequence(), 0);
    inb.open(&mut first.clone()).unwrap();
    assert!(inb.open(&mut first.clone()).is_err());
}
