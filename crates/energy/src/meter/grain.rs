//! How coarse and how slow a counter is, found by watching it. Owns the detection; must never claim a finer grain than was seen.
//!
//! A gauge says 10 mWh = 36 J at a time, or refreshes every 30 s, and the kernel does not tell. Both are found from the changes:
//! the step is what all changes are multiples of, and the refresh interval is not longer than the shortest time in which two
//! changes fell: from the last look before the first of them to the look that saw the second.

use core::time::Duration;

use dormouse_sansio::Instant;

/// How coarse and how slow a meter is.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Grain {
    /// Smallest change that it shows, in joules.
    pub step: f64,
    /// The step was seen in changes; false: assumed until there are any.
    pub step_seen: bool,
    /// Longest time between what happens and what it says, in seconds; absent before two changes were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<f64>,
}

/// Watches the raw values of a counter.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    last: Option<(Instant, u64)>,
    /// The last look before the last change.
    changed: Option<Instant>,
    step: Option<u64>,
    refresh: Option<Duration>,
}

impl Detector {
    /// The counter's value at a time.
    pub fn observe(&mut self, now: Instant, raw: u64) {
        let Some((looked, before)) = self.last.replace((now, raw)) else { return };
        let change = raw.abs_diff(before);
        if change == 0 {
            return;
        }
        self.step = Some(self.step.map_or(change, |step| common(step, change)));
        if let Some(then) = self.changed.replace(looked) {
            let passed = now.saturating_since(then);
            self.refresh = Some(self.refresh.map_or(passed, |r| r.min(passed)));
        }
    }

    /// What all changes so far are multiples of; `None` before the first.
    #[must_use]
    pub const fn step(&self) -> Option<u64> {
        self.step
    }

    /// The refresh interval is not longer than this; `None` before the second change.
    #[must_use]
    pub const fn refresh(&self) -> Option<Duration> {
        self.refresh
    }

    /// Forgets when it last changed, but not what was learned: the pause that follows says nothing.
    pub const fn interrupt(&mut self) {
        self.last = None;
        self.changed = None;
    }
}

/// The greatest number of which both are multiples, if each of them is off by one at most: drivers that convert units round. `k` times a
/// number that is off by one is off by `k`.
fn common(a: u64, b: u64) -> u64 {
    let (mut large, mut small) = (a.max(b), a.min(b));
    loop {
        let (times, rest) = (large / small, large % small);
        let rest = rest.min(small - rest);
        let rounding = times.saturating_add(2);
        // A step so small that rounding could be mistaken for it is compared exactly.
        if rest == 0 || (rest <= rounding && rounding <= small / 8) {
            return small.max(1);
        }
        (large, small) = (small, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(values: &[(u64, u64)]) -> Detector {
        let mut detector = Detector::default();
        for &(t, raw) in values {
            detector.observe(Instant::from_nanos(t * 1_000_000_000), raw);
        }
        detector
    }

    #[test]
    fn the_step_and_the_refresh_of_a_gauge_of_ten_milliwatt_hours_are_found() {
        // 20 W, refreshed every 9 s, looked at every second.
        let shown = |t: u64| 50_000_000 - t / 9 * 9 * 5556 / 10_000 * 10_000 - t / 27 * 10_000;
        let values: Vec<(u64, u64)> = (0..60).map(|t| (t, shown(t))).collect();
        let found = watch(&values);
        assert_eq!(found.step(), Some(10_000));
        assert_eq!(found.refresh(), Some(Duration::from_secs(10)), "9 s, and the second between two looks");
    }

    #[test]
    fn rounding_does_not_hide_the_step() {
        let found = watch(&[(0, 100_000), (1, 99_001), (2, 97_000), (3, 96_001), (4, 91_000)]);
        assert!((990..=1010).contains(&found.step().unwrap()), "{:?}", found.step());
    }

    #[test]
    fn a_fine_counter_that_is_seldom_looked_at_is_not_taken_for_a_coarse_one() {
        // 8 W and a little, in microjoules.
        let found = watch(&[(0, 0), (1, 8_000_123), (2, 15_900_579), (3, 24_113_018)]);
        assert!(found.step().unwrap() < 100, "{:?}", found.step());
    }

    #[test]
    fn a_counter_that_never_moves_has_no_step() {
        let found = watch(&[(0, 7), (1, 7), (2, 7)]);
        assert_eq!((found.step(), found.refresh()), (None, None));
    }

    #[test]
    fn extreme_values_do_no_harm() {
        let found = watch(&[(0, 0), (1, u64::MAX), (2, 0), (3, 1), (4, u64::MAX)]);
        assert_eq!(found.step(), Some(1));
    }

    #[test]
    fn a_pause_is_no_refresh_interval() {
        let mut found = watch(&[(0, 10), (5, 20)]);
        found.interrupt();
        for (t, raw) in [(50, 50), (51, 60), (60, 60), (61, 70)] {
            found.observe(Instant::from_nanos(t * 1_000_000_000), raw);
        }
        assert_eq!((found.step(), found.refresh()), (Some(10), Some(Duration::from_secs(11))));
    }
}
