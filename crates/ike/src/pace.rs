//! How often each of several peers may do something, and how much later what is asked for again happens. Owns this arithmetic alone; the
//! numbers are of those who ask.

use std::collections::BTreeMap;

use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::{Instant, Pace};

use crate::limits::PACES_SWEPT_AT;

/// What happens later each time that it is asked for, and sooner again after quiet. [`Backoff::default`]: it was never asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Backoff {
    /// When it happens that was asked for last.
    last: Option<Instant>,
    doublings: u32,
}

impl Backoff {
    /// When that happens which is asked for now, and what counts from then on: at `earliest` the first time, then 2 `every` after the last one, 4 `every`
    /// after that, and so on, up to 2^`most`. Each time so long as the longest that passes without forgives one doubling. What is asked for before
    /// the last one's time, and can be done by then, is done with it.
    pub(crate) fn next(self, now: Instant, earliest: Instant, every: Duration, most: u32) -> (Instant, Self) {
        let at = |at, doublings: u32| (at, Self { last: Some(at), doublings: (doublings + 1).min(most) });
        let Some(last) = self.last else { return at(earliest, 0) };
        if now < last && earliest <= last {
            return (last, self);
        }
        let longest = (every * (1 << most)).as_nanos().max(1);
        let forgiven = now.max(last) - last;
        let forgiven = u32::try_from(forgiven.as_nanos() / longest).unwrap_or(u32::MAX);
        let doublings = self.doublings.saturating_sub(forgiven);
        at(earliest.max(last + every * (1 << doublings)), doublings)
    }
}

/// How often each of several peers does something.
#[derive(Debug, Default)]
pub(crate) struct Paces(BTreeMap<Vec<u8>, Pace>);

impl Paces {
    /// See [`Pace::may`].
    pub(crate) fn may(&mut self, now: Instant, who: &Identity, every: Duration, burst: u32) -> bool {
        if self.0.len() >= PACES_SWEPT_AT {
            self.0.retain(|_, pace| !pace.is_over(now));
        }
        self.0.entry(who.canonical()).or_default().may(now, every, burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_comes_later_and_quiet_forgives() {
        let every = Duration::from_secs(10);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut backoff = Backoff::default();
        let mut ask = |now, earliest| {
            let (when, next) = backoff.next(at(now), at(earliest), every, 3);
            backoff = next;
            (when - Instant::ZERO).as_secs()
        };
        assert_eq!(ask(3, 5), 5);
        assert_eq!((ask(4, 5), ask(4, 2)), (5, 5), "with what is to come anyway");
        assert_eq!((ask(5, 15), ask(25, 35), ask(65, 75), ask(145, 155)), (25, 65, 145, 225));
        assert_eq!(ask(224, 226), 305, "it cannot be done by then");
        assert_eq!(ask(305 + 160, 0), 325, "two were forgiven");
        assert_eq!(ask(100_000, 100_007), 100_007);
    }
}
