//! The sleeper's clock. Owns the conversion between the machine's time and the time that the sleeper is shown, which runs
//! `sleep.speed` times as fast: recorded traffic can be lived through in less time than it took, with the same decisions.

use dormouse_sansio::{Deadline, Instant};
use std::time::Duration;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    origin: Instant,
    speed: u32,
}

impl Pace {
    /// A clock that shows the machine's time at `origin`, and runs `speed` times as fast from there on.
    pub(crate) fn new(origin: Instant, speed: u32) -> Self {
        Self { origin, speed: speed.max(1) }
    }

    /// What the sleeper is shown at `now`.
    pub(crate) fn shown(self, now: Instant) -> Instant {
        self.origin + (now - self.origin).saturating_mul(self.speed)
    }

    /// A time span of the sleeper's, in the machine's time.
    pub(crate) fn real(self, span: Duration) -> Duration {
        span / self.speed
    }

    /// A deadline of the sleeper's, in the machine's time.
    pub(crate) fn deadline(self, deadline: Deadline) -> Deadline {
        let at = self.origin + self.real(deadline.at - self.origin);
        // Rounding down would wake the daemon before the sleeper has anything to do.
        Deadline { at: at + Duration::from_nanos(1), slack: self.real(deadline.slack), ..deadline }
    }

    /// A deadline of the machine's, as the sleeper is shown it.
    pub(crate) fn shown_deadline(self, deadline: Deadline) -> Deadline {
        let slack = deadline.slack.saturating_mul(self.speed);
        Deadline { at: self.shown(deadline.at), slack, ..deadline }
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
            let pace = Pace::new(origin, speed);
            for nanos in [0, 1, 89, 1_000_000_007] {
                let at = origin + Duration::from_nanos(nanos);
                let real = pace.deadline(Deadline::strict(at, "test")).at;
                assert!(pace.shown(real) >= at && real <= at + Duration::from_nanos(1), "{speed} {nanos}");
            }
            assert_eq!(pace.shown(origin + second), origin + second * speed);
        }
    }
}
