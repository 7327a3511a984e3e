//! The radio's round trip (RFC 6298, with times of our own). Owns the estimate; must never hear of packets that were sent twice.

use core::time::Duration;

/// Smoothed round-trip time, its deviation, and the quickest that was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: Duration,
    deviation: Duration,
    pub(crate) quickest: Duration,
}

impl Rtt {
    /// From the first measurement (RFC 6298 section 2.2).
    pub(crate) fn first(sample: Duration) -> Self {
        Self { smoothed: sample, deviation: sample / 2, quickest: sample }
    }

    /// With a further one (RFC 6298 section 2.3: alpha 1/8, beta 1/4).
    pub(crate) fn and(self, sample: Duration) -> Self {
        Self {
            smoothed: self.smoothed * 7 / 8 + sample / 8,
            deviation: self.deviation * 3 / 4 + self.smoothed.abs_diff(sample) / 4,
            quickest: self.quickest.min(sample),
        }
    }

    /// The smoothed round-trip time.
    pub(crate) const fn smoothed(self) -> Duration {
        self.smoothed
    }

    /// How long to wait for an acknowledgement.
    pub(crate) fn timeout(self) -> Duration {
        self.smoothed + self.deviation * 4
    }
}
