//! Counters that start again at zero. Owns the sum over wraps; must never take a wrap for a step back in time.

use core::time::Duration;

/// A counter that runs from zero to `range` and starts again, such as RAPL's `energy_uj` (`max_energy_range_uj`).
///
/// ```
/// use dormouse_energy::meter::counter::Wrapping;
/// use core::time::Duration;
/// let mut counter = Wrapping::new(1000);
/// for (seconds, raw) in [(0, 900), (1, 990), (2, 80)] {
///     counter.observe(Duration::from_secs(seconds), raw);
/// }
/// assert_eq!(counter.total(), 180); // 90, and 10 + 80 across the wrap
/// ```
#[derive(Clone, Debug)]
pub struct Wrapping {
    range: u64,
    last: Option<(Duration, u64)>,
    total: u64,
    counted: Duration,
    /// Wraps that may have gone unseen.
    doubtful: u64,
}

impl Wrapping {
    /// A counter whose highest value is `range`; 0 if it never wraps.
    #[must_use]
    pub const fn new(range: u64) -> Self {
        Self { range, last: None, total: 0, counted: Duration::ZERO, doubtful: 0 }
    }

    /// Its value at a time. A value below the last one is a wrap; in a counter without a range, a reset from which nothing is counted.
    ///
    /// Between two looks a fast counter may wrap more than once. Where the power so far makes that likely, the whole wraps that it
    /// predicts are counted among [`Wrapping::doubtful`], because nothing in the value can tell.
    pub fn observe(&mut self, at: Duration, raw: u64) {
        let Some((then, before)) = self.last.replace((at, raw)) else { return };
        let passed = at.saturating_sub(then);
        let delta = if raw >= before {
            raw - before
        } else if self.range > 0 {
            // Adding the range, as the kernel's documentation says; the one unit of the wrap itself is far below any step.
            self.range.saturating_sub(before).saturating_add(raw)
        } else {
            0
        };
        if let Some(expected) = self.rate().map(|r| r * passed.as_secs_f64())
            && self.range > 0
            && expected > 0.5 * self.range as f64
        {
            let missing = ((expected - delta as f64) / self.range as f64).max(0.0).ceil();
            self.doubtful = self.doubtful.saturating_add(missing as u64);
        }
        self.total = self.total.saturating_add(delta);
        self.counted += passed;
    }

    /// Units a second on average, once there is an average.
    fn rate(&self) -> Option<f64> {
        (self.counted > Duration::ZERO).then(|| self.total as f64 / self.counted.as_secs_f64())
    }

    /// Units counted since the first look.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Units that may be missing because the counter may have wrapped more than once between two looks.
    #[must_use]
    pub const fn doubtful(&self) -> u64 {
        self.doubtful.saturating_mul(self.range)
    }

    /// How long the counter takes for its range at the average rate so far; `None` if it does not wrap or has not moved.
    #[must_use]
    pub fn lap(&self) -> Option<Duration> {
        let rate = self.rate().filter(|r| *r > 0.0 && self.range > 0)?;
        Duration::try_from_secs_f64(self.range as f64 / rate).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_look_counts_nothing() {
        let mut counter = Wrapping::new(u64::MAX);
        counter.observe(at(5), 123_456);
        assert_eq!((counter.total(), counter.lap()), (0, None));
    }

    #[test]
    fn a_counter_without_a_range_is_not_wrapped() {
        let mut counter = Wrapping::new(0);
        for (t, raw) in [(0, 500), (1, 600), (2, 50), (3, 70)] {
            counter.observe(at(t), raw);
        }
        assert_eq!(counter.total(), 120, "the reset from 600 to 50 is not consumption");
    }

    #[test]
    fn a_pause_in_which_it_may_have_wrapped_unseen_is_doubtful() {
        let mut counter = Wrapping::new(1000);
        counter.observe(at(0), 0);
        counter.observe(at(1), 100); // 100 a second: a lap takes 10 s
        assert_eq!(counter.lap(), Some(at(10)));
        counter.observe(at(4), 400);
        assert_eq!(counter.doubtful(), 0, "3 s are safe");
        counter.observe(at(34), 400); // 3000 expected, 0 seen
        assert_eq!(counter.doubtful(), 3000);
    }

    #[test]
    fn values_beyond_the_range_do_not_overflow() {
        let mut counter = Wrapping::new(10);
        for (t, raw) in [(0, u64::MAX), (1, 0), (2, u64::MAX), (3, u64::MAX - 1), (3, u64::MAX)] {
            counter.observe(at(t), raw);
        }
        assert!(counter.total() >= u64::MAX - 1);
    }
}
