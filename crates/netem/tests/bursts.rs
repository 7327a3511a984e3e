//! Losses in bursts: how many, and how many in a row.

use dormouse_netem::{GilbertElliott, Link, LinkConfig};
use dormouse_sansio::Instant;

/// Which of `n` datagrams are lost.
fn lost(n: u32, config: LinkConfig, seed: u64) -> Vec<bool> {
    let mut link = Link::new(config, seed);
    (0..n)
        .map(|tag| {
            link.enqueue(Instant::ZERO, tag, vec![0]).expect("taken");
            link.poll_deliver(Instant::ZERO).is_none()
        })
        .collect()
}

#[test]
fn share_and_length_of_bursts_are_those_of_the_chain() {
    const N: u32 = 400_000;
    for (worsens, recovers, loss_bad, loss_good) in
        [(0.01, 0.25, 1.0, 0.0), (0.05, 0.5, 0.7, 0.02), (0.002, 0.1, 1.0, 0.0)]
    {
        let chain = GilbertElliott { worsens, recovers, loss_bad, loss_good };
        let lost = lost(N, LinkConfig { bursts: Some(chain), ..LinkConfig::default() }, 77);
        let share = lost.iter().filter(|l| **l).count() as f64 / f64::from(N);
        // The variance of the mean of a two-state chain is that of independent draws times (2 - p - r) / (p + r).
        let spread = (2.0 - worsens - recovers) / (worsens + recovers);
        let five_sigma = 5.0 * (chain.loss() * (1.0 - chain.loss()) * spread.max(1.0) / f64::from(N)).sqrt();
        assert!((share - chain.loss()).abs() < five_sigma, "{chain:?}: {share}, not {}", chain.loss());
        if loss_good == 0.0 && loss_bad == 1.0 {
            let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
            let length = share * f64::from(N) / bursts;
            // Geometric: a standard deviation below the mean itself.
            let margin = 5.0 / recovers / bursts.sqrt();
            assert!((length - 1.0 / recovers).abs() < margin, "{chain:?}: {length} in a row");
        }
    }
}

#[test]
fn bursts_do_not_change_the_other_luck() {
    let plain = LinkConfig { loss: 0.3, ..LinkConfig::default() };
    let never = GilbertElliott { worsens: 0.0, recovers: 1.0, loss_bad: 1.0, loss_good: 0.0 };
    assert_eq!(lost(500, plain, 4), lost(500, LinkConfig { bursts: Some(never), ..plain }, 4));
}
