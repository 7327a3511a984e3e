//! The sleeper's clock. Owns the one conversion between the machine's time and the policy's time, which runs `sleep.speed` times as
//! fast: recorded traffic can be lived through in less time than it took, with the same decisions. The two are different types, so
//! that the compiler refuses one where the other is meant.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;
use dormouse_sansio::{Deadline, Instant};

/// A point on the policy's clock, in nanoseconds since the machine clock's origin as the policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PolicyTime(Instant);

impl PolicyTime {
    /// The origin.
    pub const ZERO: Self = Self(Instant::ZERO);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Instant::from_nanos(nanos))
    }

    /// As the schedulers of `dormouse-energy` count time: they live on this clock alone.
    pub(super) const fn for_scheduler(self) -> Instant {
        self.0
    }
}

impl Add<Duration> for PolicyTime {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0 + d)
    }
}

impl Sub for PolicyTime {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

impl fmt::Debug for PolicyTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (policy)", self.0)
    }
}

/// A [`Deadline`] on the policy's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyDeadline {
    /// The earliest useful moment.
    pub at: PolicyTime,
    /// How much later it may happen without harm.
    pub slack: Duration,
    /// Which timer this is.
    pub why: &'static str,
}

impl PolicyDeadline {
    /// A deadline that must not be late.
    #[must_use]
    pub const fn strict(at: PolicyTime, why: &'static str) -> Self {
        Self { at, slack: Duration::ZERO, why }
    }
}

/// The conversion.
#[derive(Clone, Copy, Debug)]
pub struct PolicyClock {
    origin: Instant,
    speed: u32,
}

impl PolicyClock {
    /// A clock that shows the machine's time at `origin`, and runs `speed` times as fast from there on.
    #[must_use]
    pub fn new(origin: Instant, speed: u32) -> Self {
        Self { origin, speed: speed.max(1) }
    }

    /// The policy's time at the machine's `now`.
    #[must_use]
    pub fn at(self, now: Instant) -> PolicyTime {
        PolicyTime(self.origin + (now - self.origin).saturating_mul(self.speed))
    }

    /// A time span of the policy's, in the machine's time.
    #[must_use]
    pub fn machine_span(self, span: Duration) -> Duration {
        span / self.speed
    }

    /// A deadline of the policy's, in the machine's time.
    #[must_use]
    pub fn machine_deadline(self, deadline: PolicyDeadline) -> Deadline {
        let at = self.origin + self.machine_span(deadline.at.0 - self.origin);
        // Rounding down would wake the daemon before the sleeper has anything to do.
        let at = if self.speed > 1 { at + Duration::from_nanos(1) } else { at };
        Deadline { at, slack: self.machine_span(deadline.slack), why: deadline.why }
    }

    /// A deadline of the machine's, on the policy's clock.
    #[must_use]
    pub fn deadline(self, deadline: Deadline) -> PolicyDeadline {
        let slack = deadline.slack.saturating_mul(self.speed);
        PolicyDeadline { at: self.at(deadline.at), slack, why: deadline.why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_due_when_it_has_come() {
        let second = Duration::from_secs(1);
        let origin = Instant::ZERO + 1000 * second;
        for speed in [1, 7, 90] {
            let clock = PolicyClock::new(origin, speed);
            for nanos in [0, 1, 89, 1_000_000_007] {
                let at = PolicyTime(origin + Duration::from_nanos(nanos));
                let machine = clock.machine_deadline(PolicyDeadline::strict(at, "test")).at;
                assert!(clock.at(machine) >= at, "{speed} {nanos}");
                assert!(machine <= at.0 + Duration::from_nanos(1), "{speed} {nanos}");
            }
            assert_eq!(clock.at(origin + second), PolicyTime(origin + second * speed));
        }
    }
}
