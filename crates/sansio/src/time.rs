//! Time as the cores see it. Owns the two time scales; must never read a clock.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point on a clock that never steps and that counts suspended time (Linux: `CLOCK_BOOTTIME`), in nanoseconds since an
/// origin that only the driver knows. Simulations start at [`Instant::ZERO`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// A point that is never reached (584 years after the origin).
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::FAR_FUTURE`].
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", Duration::from_nanos(self.0).as_secs_f64())
    }
}

/// Wall-clock time, seconds since 1970-01-01 UTC. Only what outlives a boot uses it: certificate validity, tickets, leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// Seconds since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for UnixTime {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.as_secs()))
    }
}

/// When a core wants `handle_timeout` called. A core without a deadline never needs to run until input arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// The earliest useful moment.
    pub at: Instant,
    /// How much later it may happen without harm: the scheduler coalesces wake-ups within it.
    pub slack: Duration,
    /// Which timer this is, for `dormouse status` and for the test that idle time costs nothing without a reason.
    pub why: &'static str,
}

impl Deadline {
    /// A deadline that must not be late.
    #[must_use]
    pub const fn strict(at: Instant, why: &'static str) -> Self {
        Self { at, slack: Duration::ZERO, why }
    }

    /// The earlier of two optional deadlines (by `at`; the first wins a tie).
    #[must_use]
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// The earliest of any number (by `at`; the first wins a tie).
    #[must_use]
    pub fn earliest(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().fold(None, |first, next| Self::earlier(first, Some(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_at_both_ends() {
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, Instant::FAR_FUTURE);
    }

    #[test]
    fn the_earlier_deadline_wins() {
        let a = Deadline::strict(Instant::from_nanos(2), "a");
        let b = Deadline::strict(Instant::from_nanos(1), "b");
        assert_eq!(Deadline::earlier(Some(a), Some(b)), Some(b));
        assert_eq!(Deadline::earlier(None, Some(a)), Some(a));
        assert_eq!(Deadline::earlier(None, None), None);
        assert_eq!(Deadline::earliest([a, b, Deadline { why: "c", ..b }]), Some(b));
    }
}
