//! The sleep of a device's radio, as a key manager and the node speak of it: what a device announces ([`Sleeping`]), in the form that all key
//! managers send, and what became of it. Owns the latter; the bytes are the wire's.

use dormouse_sansio::Instant;
pub use dormouse_wire::sleep::{Mark, SleepFlags, Sleeping};

/// What a gateway, or a peer, does with the SA of a device that has announced a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepVerdict {
    /// It keeps the SA.
    Held {
        /// Until then, by this end's clock; a device that comes back later must expect that the SA is gone.
        until: Instant,
        /// What it does meanwhile.
        flags: SleepFlags,
    },
    /// It lets the SA go: come back by ticket.
    Released,
    /// It did not answer in time, and may believe the device awake.
    Unanswered,
    /// It does not know the extension. Upkeep that would have fallen due during the sleep has been done nevertheless.
    Unsupported,
}

impl SleepVerdict {
    /// What can be relied upon if several have answered: the shorter hold and what both do; else the one that is no hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Held { until, flags }, Self::Held { until: also, flags: too }) => {
                Self::Held { until: until.min(also), flags: flags.and(too) }
            }
            (Self::Held { .. }, other) => other,
            (other, _) => other,
        }
    }
}
