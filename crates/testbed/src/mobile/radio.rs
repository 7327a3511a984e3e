//! The bad radio between a foreign agent and the device: what either end sends over it has a rate, a delay and bit errors. Owns what is on its way;
//! what comes in has had its fate at the end that sent it.

use std::time::Duration;

use dormouse_netem::{Link, LinkConfig, LinkStats};
use dormouse_sansio::{Deadline, Instant};
use serde::{Deserialize, Serialize};

/// Bytes that wait for it: what the access router before it lets wait is less.
const QUEUE: usize = 75_000;

/// A radio, each way.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Radio {
    /// Bits in a second; `None` for no limit.
    pub rate: Option<u64>,
    /// Over the air.
    pub delay: Duration,
    /// The probability that a bit is wrong; a packet with one is lost.
    pub bit_errors: f64,
    /// Of the errors. Each direction at each place has its own.
    pub seed: u64,
}

impl Radio {
    fn link(&self) -> LinkConfig {
        let &Self { rate, delay, bit_errors, .. } = self;
        LinkConfig { rate, delay, queue: QUEUE, bit_error_rate: bit_errors, ..LinkConfig::default() }
    }

    /// The same, with errors of its own.
    #[must_use]
    pub const fn from(self, end: u64) -> Self {
        Self { seed: self.seed.wrapping_mul(16).wrapping_add(end), ..self }
    }
}

/// A link-layer address.
type Mac = [u8; 6];

/// What a program sends, by its links.
#[derive(Debug)]
pub(super) struct Sending(Vec<Link<Mac>>);

impl Sending {
    /// Links that are not named are perfect.
    pub(super) fn new(radio: Option<&(Radio, Vec<String>)>, links: &[String]) -> Self {
        let of = |(n, name): (usize, &String)| match radio.filter(|(_, bad)| bad.contains(name)) {
            Some((radio, _)) => Link::new(radio.link(), radio.seed.wrapping_add(n as u64)),
            None => Link::new(LinkConfig::default(), 0),
        };
        Self(links.iter().enumerate().map(of).collect())
    }

    /// A packet is sent.
    pub(super) fn put(&mut self, now: Instant, link: usize, to: Mac, packet: Vec<u8>) {
        if let Some(link) = self.0.get_mut(link) {
            // A full queue loses it, as any interface's does.
            let _ = link.enqueue(now, to, packet);
        }
    }

    /// The next that leaves now, and by which link.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(usize, Mac, Vec<u8>)> {
        let mut all = self.0.iter_mut().enumerate();
        all.find_map(|(n, link)| link.poll_deliver(now).map(|(to, packet)| (n, to, packet)))
    }

    /// The program is on this link no longer: what is on its way is lost.
    pub(super) fn leave(&mut self, link: usize) {
        if let Some(link) = self.0.get_mut(link) {
            link.set_up(false);
            link.set_up(true);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        self.0.iter().filter_map(Link::poll_timeout).min_by_key(|deadline| deadline.at)
    }

    /// What all links that can lose something have done; `None` if all are perfect.
    pub(super) fn stats(&self) -> Option<LinkStats> {
        let bad = self.0.iter().filter(|link| *link.config() != LinkConfig::default());
        bad.map(|link| *link.stats()).reduce(|a, b| LinkStats {
            offered: a.offered + b.offered,
            lost: a.lost + b.lost,
            corrupted: a.corrupted + b.corrupted,
            ..a
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Mac = [2, 0, 0, 0, 0, 1];

    #[test]
    fn named_links_lose_and_others_do_not() {
        let links = ["home", "fa1"].map(str::to_owned);
        let radio = Radio { rate: None, delay: Duration::ZERO, bit_errors: 1e-3, seed: 7 };
        let mut sending = Sending::new(Some(&(radio, vec!["fa1".into()])), &links);
        for link in [0, 1] {
            (0..100).for_each(|_| sending.put(Instant::ZERO, link, TO, vec![0; 200]));
        }
        let mut left = [0; 2];
        while let Some((link, TO, _)) = sending.poll(Instant::ZERO) {
            left[link] += 1;
        }
        assert!(left[0] == 100 && left[1] > 0 && left[1] < 60, "{left:?}");
        assert_eq!(sending.stats().map(|stats| (stats.offered, stats.corrupted)), Some((100, 100 - left[1])));
        assert!(Sending::new(None, &links).stats().is_none());
    }

    #[test]
    fn what_is_in_the_air_is_lost_by_a_move() {
        let radio = Radio { rate: Some(8_000), delay: Duration::ZERO, bit_errors: 0.0, seed: 1 };
        let links = ["fa1".to_owned()];
        let mut sending = Sending::new(Some(&(radio, links.to_vec())), &links);
        sending.put(Instant::ZERO, 0, TO, vec![0; 1_000]);
        let arrives = sending.poll_timeout().expect("on its way").at;
        assert_eq!(arrives, Instant::ZERO + Duration::from_secs(1));
        sending.leave(0);
        assert_eq!((sending.poll_timeout().map(|d| d.at), sending.poll(arrives)), (None, None));
    }
}
