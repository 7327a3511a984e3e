//! When to switch the radio off: one trait, [`Scheduler`], and every policy behind it.
//!
//! A policy sees every packet ([`Scheduler::observe`]). Once the radio has been idle for the shortest time that counts as an
//! idle period (0.25 s by default), it is asked once for a time-out ([`Scheduler::decide`]); when the idle period ends it is
//! told how long it was ([`Scheduler::learn`]). It never sees the future: the clairvoyant bound is not a `Scheduler` but a
//! column of [`crate::account`].
//!
//! Every policy runs in constant time per packet and per idle period, in memory that is bounded when it is made, so that it
//! fits the firmware of a network card; [`Scheduler::state_bytes`] says how much.

mod dormouse;
mod paper;
mod simple;

use core::time::Duration;

pub use dormouse::{ALLOWANCE, Dormouse, TIME_OUTS, Tuning};
pub use paper::{AGE, AGES, AverageUser, Paper};
pub use simple::{BreakEven, Never, Timeout};

use crate::packet::{PacketInfo, WakeOn};
use dormouse_sansio::Instant;

/// Shortest silence that counts as an idle period unless configured otherwise (paper 000 leaves it open), in seconds.
pub const MIN_IDLE: Duration = Duration::from_millis(250);

/// What to do in the idle period that has just begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Switch the radio off once the idle period is this old, counted from the last packet; `None` keeps it on.
    pub off_after: Option<Duration>,
}

impl Decision {
    /// Keep the radio on however long it takes.
    pub const NEVER: Self = Self { off_after: None };

    /// Switch off after `seconds`; never, if that is not a finite number of seconds. Negative counts as zero.
    #[must_use]
    pub fn after_seconds(seconds: f64) -> Self {
        let finite = seconds.is_finite().then(|| seconds.max(0.0));
        Self { off_after: finite.and_then(|s| Duration::try_from_secs_f64(s).ok()) }
    }

    /// The time-out in seconds, infinite for never.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.off_after.map_or(f64::INFINITY, |d| d.as_secs_f64())
    }
}

/// Why a decision is what it is, for people.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// What it is expected to save against a radio that stays on, in seconds of idle radio; `None` if nothing was predicted.
    pub saving: Option<f64>,
    /// Who had the last word.
    pub by: &'static str,
}

/// An online policy for one client.
///
/// Call order: `observe` for each packet; for each idle period `decide`, then `learn` with its length, both before the
/// `observe` of the packet that ends it. Calling `decide` twice in one period gives the same answer.
pub trait Scheduler: Send {
    /// The policy's name as users write it.
    fn name(&self) -> &'static str;

    /// Which packets wake the radio: all, unless told. A silence that ends with a packet which would not have woken the radio is only the
    /// beginning of what a sleep would have spared.
    fn wakes_on(&mut self, _wake_on: WakeOn) {}

    /// Whether [`Scheduler::observe`] does anything: `false` spares a policy that needs only the lengths of idle periods the call.
    fn observes(&self) -> bool {
        true
    }

    /// A packet was sent or received at `at`.
    fn observe(&mut self, at: Instant, packet: &PacketInfo);

    /// The radio is idle since the last packet: when to switch it off?
    fn decide(&mut self) -> Decision;

    /// Why the last [`Scheduler::decide`] answered as it did.
    fn prediction(&self) -> Prediction {
        Prediction { saving: None, by: "rule" }
    }

    /// The idle period is over: it lasted `idle` from the last packet to the one that ended it.
    fn learn(&mut self, idle: Duration);

    /// The break-even time changed (other gateway load, other resumption protocol). In seconds, positive.
    fn set_break_even(&mut self, seconds: f64);

    /// The most memory that this policy ever needs for one client, in bytes.
    fn state_bytes(&self) -> usize;

    /// Appends what was learned, so that it survives a restart. Empty for policies that learn nothing.
    fn save(&self, out: &mut Vec<u8>);

    /// Takes back what [`Scheduler::save`] wrote. On error the policy is as it was.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are of another policy, version or length, or no possible state.
    fn restore(&mut self, state: &[u8]) -> Result<(), StateError>;
}

/// Why saved state was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// Another format.
    #[error("saved scheduler state begins with {found:#010x}, expected {expected:#010x}")]
    Version {
        /// The tag of this policy and version.
        expected: u32,
        /// The tag found.
        found: u32,
    },
    /// Cut short or too long.
    #[error("saved scheduler state has {found} bytes, expected {expected}")]
    Length {
        /// What this version writes.
        expected: usize,
        /// What was handed in.
        found: usize,
    },
    /// Right length, impossible content.
    #[error("saved scheduler state is damaged: {what} is out of range")]
    Damaged {
        /// The part that cannot be.
        what: &'static str,
    },
}

/// The policies by name, as users choose them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Policy {
    /// The radio stays on.
    Never,
    /// Off after a fixed time, in seconds.
    Timeout(f64),
    /// Off after the break-even time: never more than twice the cost of the clairvoyant where every packet wakes the radio.
    BreakEven,
    /// Paper 000, section 3.5, with its thresholds.
    Paper {
        /// Threshold for the client's own history (Eq. 7).
        alpha: f64,
        /// Threshold for the average user's (Eq. 8).
        beta: f64,
    },
    /// Ours: learned, with a guarantee.
    Dormouse,
}

impl Policy {
    /// The paper's best thresholds: alpha 0.5, beta 0.8.
    pub const PAPER: Self = Self::Paper { alpha: 0.5, beta: 0.8 };

    /// A fresh scheduler for one client with the given break-even time in seconds.
    #[must_use]
    pub fn scheduler(self, break_even: f64) -> Box<dyn Scheduler> {
        match self {
            Self::Never => Box::new(Never),
            Self::Timeout(seconds) => Box::new(Timeout::new(seconds)),
            Self::BreakEven => Box::new(BreakEven::new(break_even)),
            Self::Paper { alpha, beta } => {
                Box::new(Paper::new(break_even, alpha, beta, AverageUser::shipped()))
            }
            Self::Dormouse => Box::new(Dormouse::new(break_even)),
        }
    }

    /// The policy's name as users write it and as reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Timeout(_) => "timeout",
            Self::BreakEven => "break-even",
            Self::Paper { .. } => "paper",
            Self::Dormouse => "dormouse",
        }
    }
}
