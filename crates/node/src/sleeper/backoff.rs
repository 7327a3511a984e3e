//! Balanced mode: bounds on what sleeping costs the user. Owns the rule; decides nothing about energy.
//!
//! # The rule
//! The policy's time-out gets a floor. The floor has [`LEVELS`] levels: none at level 0, then a quarter of the break-even time,
//! doubled at each level up to 32 break-even times.
//!
//! - An *unprofitable* sleep raises the level by one: the radio was woken by traffic before the break-even time was slept, or packets
//!   then waited for longer than `sleep.latency_ms`.
//! - Any other sleep lowers it by one: the bound recovers as it was earned.
//! - Packets that were lost because the radio was off count for an hour. While more than `sleep.lost_per_hour` count, the
//!   radio stays on: the sleep that passes the bound is the last one until enough of them are an hour old.
//!
//! So a user whose every sleep is unprofitable is woken at most [`LEVELS`] times in quick succession, and afterwards only once in 32
//! break-even times of silence.

use super::clock::PolicyTime;
use std::collections::VecDeque;
use std::time::Duration;

/// The highest level.
pub(super) const LEVELS: u32 = 8;
/// For how long a lost packet counts.
pub(super) const MEMORY: Duration = Duration::from_secs(3600);
/// Losses are remembered by the minute: this many entries at most.
const MINUTES: usize = 61;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    level: u32,
    /// Packets lost, by the moment that each minute's first one was reported at.
    lost: VecDeque<(PolicyTime, u64)>,
}

impl Backoff {
    /// The shortest time-out that is allowed now.
    pub(super) fn floor(&self, break_even: Duration) -> Duration {
        match self.level {
            0 => Duration::ZERO,
            level => break_even / 4 * (1 << (level - 1)),
        }
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// A sleep has ended.
    pub(super) fn slept(&mut self, unprofitable: bool) {
        self.level = if unprofitable { (self.level + 1).min(LEVELS) } else { self.level.saturating_sub(1) };
    }

    /// Packets were lost.
    pub(super) fn lost(&mut self, now: PolicyTime, packets: u64) {
        self.forget(now);
        match self.lost.back_mut() {
            Some((at, count)) if now - *at < MINUTE => *count = count.saturating_add(packets),
            _ => self.lost.push_back((now, packets)),
        }
        while self.lost.len() > MINUTES {
            self.lost.pop_front();
        }
    }

    fn forget(&mut self, now: PolicyTime) {
        while self.lost.front().is_some_and(|(at, _)| now - *at >= MEMORY) {
            self.lost.pop_front();
        }
    }

    /// Packets lost within the last hour.
    pub(super) fn lost_lately(&self, now: PolicyTime) -> u64 {
        self.lost.iter().filter(|(at, _)| now - *at < MEMORY).map(|(_, n)| n).sum()
    }

    /// Until when the radio must stay on, for more than `most` lost packets an hour; `None` if it need not.
    pub(super) fn blocked_until(&self, now: PolicyTime, most: u64) -> Option<PolicyTime> {
        let mut count = self.lost_lately(now);
        for (at, packets) in self.lost.iter().filter(|(at, _)| now - *at < MEMORY) {
            if count <= most {
                return None;
            }
            count -= packets;
            if count <= most {
                return Some(*at + MEMORY);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> PolicyTime {
        PolicyTime::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_floor_doubles_and_recovers() {
        let (mut backoff, b) = (Backoff::default(), Duration::from_secs(20));
        assert_eq!(backoff.floor(b), Duration::ZERO);
        let floors: Vec<u64> = (0..10)
            .map(|_| {
                backoff.slept(true);
                backoff.floor(b).as_secs()
            })
            .collect();
        assert_eq!(floors, [5, 10, 20, 40, 80, 160, 320, 640, 640, 640]);
        (0..8).for_each(|_| backoff.slept(false));
        assert_eq!(backoff.floor(b), Duration::ZERO);
    }

    #[test]
    fn losses_block_until_enough_of_them_are_an_hour_old() {
        let mut backoff = Backoff::default();
        for minute in 0..10 {
            backoff.lost(at(minute * 60), 2);
        }
        assert_eq!(backoff.blocked_until(at(600), 20), None, "20 are allowed");
        assert_eq!(backoff.blocked_until(at(600), 17), Some(at(3660)));
        assert_eq!(backoff.blocked_until(at(600), 0), Some(at(540 + 3600)));
        assert_eq!(backoff.blocked_until(at(3660), 17), None);
        assert_eq!(backoff.lost_lately(at(540 + 3600)), 0);
    }
}
