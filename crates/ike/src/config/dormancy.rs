//! What a gateway does for devices that sleep. Owns the bounds; must never count what is held.

use core::time::Duration;

pub use dormouse_wire::sleep::SleepFlags;

/// A gateway's policy for SAs of devices that have announced a sleep (`docs/wire/dormancy.md`). Within all of these bounds an
/// SA is held; when a newcomer reaches one of them, the SA whose device has slept longest is released first. A released SA is
/// deleted without a message: its device comes back by ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldPolicy {
    /// Most SAs held at once; 0: every SA is released.
    pub most: usize,
    /// Most memory of held SAs, in bytes, as far as this crate can estimate it (an SA with one CHILD SA is some 8 KiB).
    pub memory: usize,
    /// No hold is longer, even if a longer sleep was announced, nor longer than the SA's own lifetime.
    pub longest: Duration,
    /// No SA is held while the endpoint has more IKE SAs than this, in all states.
    pub release_above: usize,
    /// What is done for a sleeping device besides.
    pub services: SleepFlags,
}

impl Default for HoldPolicy {
    /// Four hours (the lifetime of a CHILD SA), and as many as fit in 128 MiB.
    fn default() -> Self {
        Self {
            most: 16_384,
            memory: 128 << 20,
            longest: Duration::from_secs(4 * 3_600),
            release_above: usize::MAX,
            services: SleepFlags::default(),
        }
    }
}
