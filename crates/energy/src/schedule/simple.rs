//! Policies that learn nothing: never, a fixed time-out, the break-even time-out. Must never look at a packet.

use core::time::Duration;

use super::{Decision, Scheduler, StateError};
use crate::packet::PacketInfo;
use dormouse_sansio::Instant;

/// The radio stays on: the baseline of every saving.
#[derive(Clone, Copy, Debug)]
pub struct Never;

/// Off after a fixed time.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    seconds: f64,
}

impl Timeout {
    /// Off after `seconds` of silence.
    #[must_use]
    pub const fn new(seconds: f64) -> Self {
        Self { seconds }
    }
}

/// Off after the break-even time: the deterministic ski-rental policy, which never costs more than twice the clairvoyant where
/// every packet wakes the radio.
#[derive(Clone, Copy, Debug)]
pub struct BreakEven {
    seconds: f64,
}

impl BreakEven {
    /// For a break-even time in seconds (`dt_tau`, Eq. 3).
    #[must_use]
    pub const fn new(seconds: f64) -> Self {
        Self { seconds }
    }
}

/// Implements the parts of the trait that are the same for every policy without memory.
macro_rules! without_memory {
    () => {
        fn observes(&self) -> bool {
            false
        }

        fn observe(&mut self, _at: Instant, _packet: &PacketInfo) {}

        fn learn(&mut self, _idle: Duration) {}

        fn state_bytes(&self) -> usize {
            size_of::<Self>()
        }

        fn save(&self, _out: &mut Vec<u8>) {}

        fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
            if state.is_empty() {
                Ok(())
            } else {
                Err(StateError::Length { expected: 0, found: state.len() })
            }
        }
    };
}

impl Scheduler for Never {
    fn name(&self) -> &'static str {
        "never"
    }

    fn decide(&mut self) -> Decision {
        Decision::NEVER
    }

    fn set_break_even(&mut self, _seconds: f64) {}

    without_memory!();
}

impl Scheduler for Timeout {
    fn name(&self) -> &'static str {
        "timeout"
    }

    fn decide(&mut self) -> Decision {
        Decision::after_seconds(self.seconds)
    }

    fn set_break_even(&mut self, _seconds: f64) {}

    without_memory!();
}

impl Scheduler for BreakEven {
    fn name(&self) -> &'static str {
        "break-even"
    }

    fn decide(&mut self) -> Decision {
        Decision::after_seconds(self.seconds)
    }

    fn set_break_even(&mut self, seconds: f64) {
        self.seconds = seconds;
    }

    without_memory!();
}
