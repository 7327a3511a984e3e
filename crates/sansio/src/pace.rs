//! How often something may happen. Owns this arithmetic alone; the numbers are of those who ask.

use core::time::Duration;

use crate::time::Instant;

/// When what has happened so far would have happened in the long run. [`Pace::default`]: nothing has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Pace(Instant);

impl Pace {
    /// Whether it may happen now: `burst` times at once, and then once in `every`.
    #[must_use]
    pub fn allows(self, now: Instant, every: Duration, burst: u32) -> bool {
        self.0.max(now) + every <= now + every * burst
    }

    /// The same; if so, it happens.
    pub fn may(&mut self, now: Instant, every: Duration, burst: u32) -> bool {
        let may = self.allows(now, every, burst);
        if may {
            self.0 = self.0.max(now) + every;
        }
        may
    }

    /// Whether it makes no difference any more that it has happened.
    #[must_use]
    pub fn is_over(self, now: Instant) -> bool {
        self.0 <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_once_are_too_many_and_the_pace_goes_on() {
        let (every, mut now) = (Duration::from_secs(2), Instant::ZERO);
        let mut pace = Pace::default();
        let mut of_thousand = |now| (0..1_000).filter(|_| pace.may(now, every, 30)).count();
        assert_eq!(of_thousand(now), 30);
        now += every * 3;
        assert_eq!(of_thousand(now), 3);
        assert!(!pace.is_over(now) && pace.is_over(now + every * 30));
    }
}
