//! Whether somebody has set the machine's clock. Owns what the time was at the last look.

use super::Office;
use dormouse_sansio::{Instant, UnixTime};

/// Between two heartbeats a clock that nobody sets goes wrong by less, in seconds.
const SET: u64 = 5;

/// What the time was at the last look.
pub(super) struct Clock(Instant, UnixTime);

impl Clock {
    pub(super) fn of(office: &impl Office) -> Self {
        Self(office.now(), office.unix())
    }

    /// Whether somebody has set the machine's clock since the last look, or it slept.
    pub(super) fn was_set(&mut self, office: &impl Office) -> bool {
        let Self(then, showed) = std::mem::replace(self, Self::of(office));
        (showed.0 + (self.0 - then).as_secs()).abs_diff(self.1.0) > SET
    }
}
