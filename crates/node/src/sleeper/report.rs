//! The sleeper at one moment: for `dormouse status`. Owns plain data; changes nothing.

use super::clock::PolicyTime;
use super::{Cause, Counts, Decided, Energy, Mode, Phase, Sleeper, State, Woke};
use std::time::Duration;

/// Everything that people may ask.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// What it is doing.
    pub state: State,
    /// The mode.
    pub mode: Mode,
    /// The policy.
    pub policy: &'static str,
    /// The break-even time it reckons with.
    pub break_even: Duration,
    /// Clients that the gateway serves at once, as it says itself; 1 if it says nothing.
    pub load: u32,
    /// The device's figures.
    pub profile: String,
    /// Balanced mode: the level of the back-off, and the packets lost within the last hour.
    pub backoff: (u32, u64),
    /// When the radio is to be switched off, or to wake by itself.
    pub next: Option<(PolicyTime, &'static str)>,
    /// Latest decisions, oldest first.
    pub decisions: Vec<Decided>,
    /// Latest wakes, oldest first.
    pub wakes: Vec<Woke>,
    /// Wakes by cause.
    pub by_cause: Vec<(Cause, u64)>,
    /// What else was counted.
    pub counts: Counts,
    /// Joules.
    pub energy: Energy,
}

impl Sleeper {
    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Awake => State::Awake,
            Phase::Preparing { until, .. } | Phase::SwitchingOff { until, .. } => {
                State::PreparingSleep { until }
            }
            Phase::Asleep { since, reason, .. } => State::Asleep { since, reason },
            Phase::Waking { cause, .. } => State::Waking { cause },
        }
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Everything that people may ask.
    #[must_use]
    pub fn report(&self, now: PolicyTime) -> Report {
        Report {
            state: self.state(),
            mode: self.mode,
            policy: self.scheduler.name(),
            break_even: Duration::try_from_secs_f64(self.break_even).unwrap_or(Duration::MAX),
            load: self.load,
            profile: self.settings.profile.clone(),
            backoff: (self.backoff.level(), self.backoff.lost_lately(now)),
            next: self.poll_timeout().map(|d| (d.at, d.why)),
            decisions: self.journal.decisions.iter().copied().collect(),
            wakes: self.journal.wakes.iter().copied().collect(),
            by_cause: self.journal.by_cause.iter().map(|(cause, n)| (*cause, *n)).collect(),
            counts: self.journal.counts,
            energy: self.account.report(now),
        }
    }
}
