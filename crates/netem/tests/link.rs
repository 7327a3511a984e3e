//! What a link does to time, order and number of datagrams.

use core::time::Duration;

use dormouse_netem::{Corruption, Dropped, Link, LinkConfig};
use dormouse_sansio::Instant;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(d: Duration) -> Instant {
    Instant::ZERO + d
}

/// Drains the link by jumping from deadline to deadline; what arrived, and when.
fn drain(link: &mut Link<u32>) -> Vec<(Duration, u32, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some(deadline) = link.poll_timeout() {
        if let Some(before) = deadline.at.as_nanos().checked_sub(1) {
            let early = link.poll_deliver(Instant::from_nanos(before));
            assert_eq!(early, None, "nothing arrives before its time");
        }
        let (tag, datagram) = link.poll_deliver(deadline.at).expect("due");
        out.push((deadline.at - Instant::ZERO, tag, datagram));
    }
    out
}

fn tags(arrived: &[(Duration, u32, Vec<u8>)]) -> Vec<u32> {
    arrived.iter().map(|(_, tag, _)| *tag).collect()
}

#[test]
fn rate_and_delay_add_up_and_datagrams_wait_for_the_line() {
    let config = LinkConfig { rate: Some(1_000_000), delay: ms(30), overhead: 25, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for tag in 0..3 {
        // 125 bytes with overhead: 1 ms each.
        link.enqueue(Instant::ZERO, tag, vec![0; 100]).expect("taken");
    }
    link.enqueue(at(ms(10)), 3, vec![0; 100]).expect("taken");
    let times: Vec<_> = drain(&mut link).iter().map(|(time, tag, _)| (*tag, *time)).collect();
    assert_eq!(times, [(0, ms(31)), (1, ms(32)), (2, ms(33)), (3, ms(41))]);
    assert_eq!(link.stats().sent_bytes, 500);
}

#[test]
fn a_rate_is_never_exceeded_by_rounding() {
    let mut link = Link::new(LinkConfig { rate: Some(3), ..LinkConfig::default() }, 1);
    link.enqueue(Instant::ZERO, 0, vec![0]).expect("taken");
    assert_eq!(link.poll_timeout().map(|d| d.at.as_nanos()), Some(2_666_666_667));
}

#[test]
fn the_queue_is_bounded_and_drains_with_the_line() {
    let config = LinkConfig { rate: Some(8_000), queue: 250, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    assert_eq!(link.enqueue(Instant::ZERO, 0, vec![0; 100]), Ok(()));
    assert_eq!(link.enqueue(Instant::ZERO, 1, vec![0; 100]), Ok(()));
    let refused = link.enqueue(Instant::ZERO, 2, vec![0; 100]);
    assert_eq!(refused, Err(Dropped::QueueFull { queued: 200, needed: 100 }));
    assert!(link.enqueue(at(ms(99)), 3, vec![0; 100]).is_err(), "the first is still being sent");
    assert_eq!(link.enqueue(at(ms(100)), 4, vec![0; 100]), Ok(()));
    assert_eq!(link.queued(at(ms(250))), 100);
    assert_eq!(tags(&drain(&mut link)), [0, 1, 4]);
    assert_eq!(link.stats().refused_full, 2);
}

#[test]
fn jitter_alone_keeps_the_order_and_stays_within_its_bound() {
    let config = LinkConfig { delay: ms(10), jitter: ms(5), ..LinkConfig::default() };
    let mut link = Link::new(config, 3);
    for tag in 0..500 {
        link.enqueue(at(ms(u64::from(tag))), tag, vec![0]).expect("taken");
    }
    let arrived = drain(&mut link);
    assert_eq!(tags(&arrived), (0..500).collect::<Vec<_>>());
    let delays: Vec<_> = arrived.iter().map(|(time, tag, _)| *time - ms(u64::from(*tag))).collect();
    assert!(delays.iter().all(|d| (ms(10)..=ms(15)).contains(d)));
    assert!(delays.iter().any(|d| *d < ms(11)) && delays.iter().any(|d| *d > ms(14)), "it does vary");
}

#[test]
fn reordering_lets_later_datagrams_overtake() {
    let config = LinkConfig { reordering: 0.1, reordering_delay: ms(20), ..LinkConfig::default() };
    let mut link = Link::new(config, 3);
    for tag in 0..1000 {
        link.enqueue(at(ms(u64::from(tag))), tag, vec![0]).expect("taken");
    }
    let order = tags(&drain(&mut link));
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>(), "nothing is lost or doubled");
    let overtaken = order.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((50..=130).contains(&overtaken), "{overtaken} overtaken of about 100 held back");
    assert!((70..=130).contains(&link.stats().reordered));
}

#[test]
fn loss_and_duplication_have_their_probabilities() {
    let config = LinkConfig { loss: 0.2, duplication: 0.1, ..LinkConfig::default() };
    let mut link = Link::new(config, 9);
    let n = 20_000;
    for tag in 0..n {
        link.enqueue(Instant::ZERO, tag, vec![0]).expect("taken");
    }
    let arrived = drain(&mut link).len() as u64;
    let stats = *link.stats();
    // Five standard deviations: sqrt(20000 * 0.2 * 0.8) = 57, sqrt(20000 * 0.1 * 0.9) = 42.
    assert!(stats.lost.abs_diff(4000) < 285, "{stats:?}");
    assert!(stats.duplicated.abs_diff(2000) < 210, "{stats:?}");
    assert_eq!(arrived, u64::from(n) - stats.lost + stats.duplicated);
    assert_eq!(arrived, stats.delivered);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let config = LinkConfig {
        rate: Some(100_000),
        jitter: ms(50),
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.1,
        bit_error_rate: 1e-4,
        corruption: Corruption::Deliver,
        ..LinkConfig::default()
    };
    let run = |seed| {
        let mut link = Link::new(config, seed);
        for tag in 0..300 {
            let _ = link.enqueue(at(ms(u64::from(tag))), tag, vec![0x55; 60]);
        }
        (drain(&mut link), *link.stats())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn settings_that_differ_elsewhere_do_not_change_the_luck() {
    let lost = |config| {
        let mut link = Link::new(config, 4);
        for tag in 0..500 {
            link.enqueue(Instant::ZERO, tag, vec![0]).expect("taken");
        }
        let mut arrived = tags(&drain(&mut link));
        arrived.sort_unstable();
        arrived
    };
    let plain = LinkConfig { loss: 0.3, ..LinkConfig::default() };
    assert_eq!(lost(plain), lost(LinkConfig { jitter: ms(9), delay: ms(3), reordering: 0.5, ..plain }));
}

#[test]
fn a_link_that_goes_down_loses_what_is_under_way() {
    let config = LinkConfig { rate: Some(8_000), delay: ms(10), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    link.enqueue(Instant::ZERO, 0, vec![0; 10]).expect("taken");
    link.set_up(false);
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.enqueue(at(ms(1)), 1, vec![0; 10]), Err(Dropped::Down));
    link.set_up(true);
    link.enqueue(at(ms(2)), 2, vec![0; 10]).expect("taken");
    let arrived = drain(&mut link);
    assert_eq!(arrived.first().map(|(time, tag, _)| (*time, *tag)), Some((ms(22), 2)), "the line was free");
    assert_eq!((link.stats().lost, link.stats().refused_down), (1, 1));
}
