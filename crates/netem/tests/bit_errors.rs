//! Bit errors of the link: packet loss at given bit error rates, and what is delivered when corrupted datagrams are not dropped.

use dormouse_netem::{Corruption, Link, LinkConfig};
use dormouse_sansio::Instant;

/// The share of `n` datagrams of `len` bytes, plus `overhead`, that is lost.
fn loss(n: u32, len: usize, overhead: usize, bit_error_rate: f64) -> f64 {
    let config = LinkConfig { bit_error_rate, overhead, ..LinkConfig::default() };
    let mut link = Link::new(config, 0x0d0e);
    for _ in 0..n {
        link.enqueue(Instant::ZERO, (), vec![0; len]).expect("taken");
        while link.poll_deliver(Instant::ZERO).is_some() {}
    }
    assert_eq!(link.stats().corrupted + link.stats().delivered, u64::from(n));
    link.stats().corrupted as f64 / f64::from(n)
}

#[test]
fn packet_loss_is_that_of_independent_bits() {
    const N: u32 = 100_000;
    // 1,500 bytes: 1 - (1 - p)^12000.
    let table = [
        (64, 16.7),
        (128, 8.7),
        (256, 4.5),
        (512, 2.3),
        (1024, 1.1),
        (2048, 0.57),
        (4096, 0.29),
        (8192, 0.14),
    ];
    for (denominator, percent) in table {
        let p = 1.0 / (f64::from(denominator) * 1024.0);
        let expected = 1.0 - (1.0 - p).powi(12_000);
        assert!(
            (expected * 100.0 - percent).abs() < 0.06,
            "the table says {percent} %, the formula {expected}"
        );
        // A bare acknowledgement among them.
        for (len, overhead) in [(1500, 0), (1472, 28), (40, 0)] {
            let expected = 1.0 - (1.0 - p).powi(8 * (len + overhead) as i32);
            let five_sigma = 5.0 * (expected * (1.0 - expected) / f64::from(N)).sqrt();
            let measured = loss(N, len, overhead, p);
            assert!((measured - expected).abs() < five_sigma, "1/{denominator}k: {measured}, not {expected}");
        }
    }
}

#[test]
fn corrupted_datagrams_can_be_delivered() {
    let config = LinkConfig {
        bit_error_rate: 1e-3,
        corruption: Corruption::Deliver,
        overhead: 20,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 2);
    let mut flipped = 0;
    for _ in 0..2_000 {
        link.enqueue(Instant::ZERO, (), vec![0; 100]).expect("taken");
        if let Some(((), datagram)) = link.poll_deliver(Instant::ZERO) {
            flipped += datagram.iter().map(|b| u64::from(b.count_ones())).sum::<u64>();
        }
    }
    let stats = *link.stats();
    assert_eq!(stats.flipped_bits, flipped);
    // Broken headers: 1 - 0.999^160 = 14.8 %. Flipped bits: 0.8 in each of the others. Five standard deviations each.
    assert!(stats.corrupted.abs_diff(296) < 80, "{stats:?}");
    assert!(flipped.abs_diff(1363) < 190, "{flipped}");
}
