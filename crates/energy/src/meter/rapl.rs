//! RAPL domains: which of them add up to a meter. Owns the choice; must never count one joule twice.
//!
//! A `package-N` domain contains its `core` and `uncore` children. `dram` stands beside the package, although the kernel lists it as a
//! child. `psys` counts the whole platform, packages included.

use core::time::Duration;

use super::counter::Wrapping;
use super::grain::{Detector, Grain};
use super::{Kind, Reading};
use dormouse_sansio::Instant;

/// Whether a domain of this name is part of a meter of this kind.
///
/// ```
/// use dormouse_energy::meter::{Kind, rapl::counts};
/// let all = ["package-0", "core", "uncore", "dram", "psys"];
/// let package: Vec<_> = all.into_iter().filter(|n| counts(Kind::Package, n)).collect();
/// assert_eq!(package, ["package-0", "dram"]);
/// ```
#[must_use]
pub fn counts(kind: Kind, domain: &str) -> bool {
    match kind {
        Kind::Package => domain.starts_with("package-") || domain == "dram",
        Kind::Platform => domain == "psys",
        Kind::Battery | Kind::BatteryPower | Kind::External => false,
    }
}

/// The processors refresh every millisecond, also where readings are too far apart to show it; in seconds.
const REFRESH: f64 = 1e-3;

#[derive(Clone, Debug)]
struct Domain {
    counter: Wrapping,
    grain: Detector,
}

/// Adds up domains, all in microjoules.
#[derive(Clone, Debug)]
pub struct Account {
    domains: Vec<Domain>,
    opened: Option<Instant>,
    last: Option<Instant>,
    before: Option<(Instant, u64)>,
    watts: Option<f64>,
}

impl Account {
    /// For domains with these ranges (`max_energy_range_uj`).
    #[must_use]
    pub fn new(ranges: &[u64]) -> Self {
        let domain = |range: &u64| Domain { counter: Wrapping::new(*range), grain: Detector::default() };
        Self {
            domains: ranges.iter().map(domain).collect(),
            opened: None,
            last: None,
            before: None,
            watts: None,
        }
    }

    /// The domains' counters at a time, in the order of their ranges.
    pub fn observe(&mut self, now: Instant, raw: &[u64]) {
        let opened = *self.opened.get_or_insert(now);
        for (domain, value) in self.domains.iter_mut().zip(raw) {
            domain.counter.observe(now.saturating_since(opened), *value);
            domain.grain.observe(now, *value);
        }
        self.last = Some(now);
        let total = self.total();
        match self.before {
            Some((then, was)) if now.saturating_since(then) > Duration::ZERO => {
                let passed = now.saturating_since(then).as_secs_f64();
                self.watts = Some(total.saturating_sub(was) as f64 * 1e-6 / passed);
                self.before = Some((now, total));
            }
            None => self.before = Some((now, total)),
            Some(_) => {}
        }
    }

    fn total(&self) -> u64 {
        self.domains.iter().fold(0, |sum, d| sum.saturating_add(d.counter.total()))
    }

    /// The shortest time in which one of the counters wraps, at the power so far.
    #[must_use]
    pub fn lap(&self) -> Option<Duration> {
        self.domains.iter().filter_map(|d| d.counter.lap()).min()
    }

    /// How coarse and slow the counters are.
    #[must_use]
    pub fn grain(&self) -> Grain {
        let steps: Option<u64> = self.domains.iter().map(|d| d.grain.step()).sum();
        // The unit is 61 µJ or less on the processors that have one; a millijoule is on the safe side.
        Grain {
            step: steps.map_or(1e-3, |s| s as f64 * 1e-6),
            step_seen: steps.is_some(),
            refresh: Some(REFRESH),
        }
    }

    /// What has been used so far.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let doubtful: u64 = self.domains.iter().fold(0, |sum, d| sum.saturating_add(d.counter.doubtful()));
        let lag = self.watts.unwrap_or(0.0) * REFRESH;
        Reading {
            joules: self.total() as f64 * 1e-6,
            uncertainty: self.grain().step + lag + doubtful as f64 * 1e-6,
            at: self.last.unwrap_or_default(),
            watts: self.watts,
            uncounted: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_add_up_across_their_wraps() {
        let mut account = Account::new(&[1_000_000, 2_000_000]);
        for (t, raw) in [(0, [900_000, 0]), (1, [100_000, 300_000]), (2, [300_000, 600_000])] {
            account.observe(Instant::ZERO + Duration::from_secs(t), &raw);
        }
        let reading = account.reading();
        assert!((reading.joules - 1.0).abs() < 1e-9, "{reading:?}");
        assert_eq!(reading.watts, Some(0.5));
        assert!(reading.uncertainty < 0.6, "{reading:?}");
        assert_eq!(account.lap(), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_missing_value_is_not_a_wrap() {
        let mut account = Account::new(&[1000, 1000]);
        account.observe(Instant::ZERO, &[10, 10]);
        account.observe(Instant::ZERO + Duration::from_secs(1), &[20]);
        assert!((account.reading().joules - 10e-6).abs() < 1e-12);
    }
}
