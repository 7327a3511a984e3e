//! Why the radio slept and woke: counted by cause, the latest of each kept for people. Owns the words; memory is bounded.

use super::Mode;
use super::clock::PolicyTime;
use super::limits::{DECISIONS, WAKES};
use crate::ladder::Rung;
use dormouse_wire::ip::Flow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Why the radio sleeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The policy's time-out ran out.
    Idle,
    /// The user or a program said so (`dormouse suspend`), and switches the radio.
    User,
    /// The whole machine sleeps.
    Machine,
}

impl Reason {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::User => "user",
            Self::Machine => "machine",
        }
    }
}

/// Why the radio wakes. There is no other reason, and each wake is counted under one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A packet is to be sent; its flow stands beside the cause.
    Traffic,
    /// `sleep.wake_every`.
    Schedule,
    /// A session would have expired, and is to be renewed (`sleep.renew`).
    Deadline,
    /// The machine has resumed.
    Machine,
    /// The user or a program said so (`dormouse resume`).
    User,
    /// The mode was changed to one in which the radio stays on.
    Mode,
    /// The connections are no longer wanted: the radio is given back.
    Released,
    /// The user or another program switched the radio on.
    Foreign,
    /// It could not be switched off in good order, and is switched on to be sure of it.
    Refused,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Traffic,
        Self::Schedule,
        Self::Deadline,
        Self::Machine,
        Self::User,
        Self::Mode,
        Self::Released,
        Self::Foreign,
        Self::Refused,
    ];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traffic => "traffic",
            Self::Schedule => "schedule",
            Self::Deadline => "deadline",
            Self::Machine => "machine",
            Self::User => "user",
            Self::Mode => "mode",
            Self::Released => "released",
            Self::Foreign => "foreign",
            Self::Refused => "refused",
        }
    }
}

/// One decision of the policy, with what is needed to understand it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decided {
    /// When it was taken.
    pub at: PolicyTime,
    /// The policy.
    pub policy: &'static str,
    /// The mode.
    pub mode: Mode,
    /// Off after so long a silence; `None`: stays on.
    pub time_out: Option<Duration>,
    /// What the policy itself asked for, before the mode had its say.
    pub wanted: Option<Duration>,
    /// The break-even time that it reckons with.
    pub break_even: Duration,
    /// What it expects to save by it, in joules, if it predicts anything.
    pub saving: Option<f64>,
    /// Who had the last word: `learned`, `guard`, `back-off`, ...
    pub by: &'static str,
}

/// One wake.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Woke {
    /// When.
    pub at: PolicyTime,
    /// Why.
    pub cause: Cause,
    /// The flow that caused it, our end as its source.
    pub flow: Option<Flow>,
    /// For how long the radio had been off.
    pub slept: Duration,
    /// Until packets could flow again; `None` as long as they do not.
    pub took: Option<Duration>,
    /// How the session came back.
    pub rung: Option<Rung>,
}

/// The record.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    pub(super) decisions: VecDeque<Decided>,
    pub(super) wakes: VecDeque<Woke>,
    pub(super) by_cause: BTreeMap<Cause, u64>,
    pub(super) counts: Counts,
}

/// What is counted besides the wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Idle periods that a decision was taken for.
    pub decisions: u64,
    /// Sleeps, for any reason.
    pub sleeps: u64,
    /// Sleeps that a packet called off before the radio was off.
    pub called_off: u64,
    /// Radio commands that failed or were not answered in time.
    pub radio_failures: u64,
    /// Packets that reached us although the radio was believed to be off: they were under way in the machine.
    pub late: u64,
    /// Packets that were lost because the radio was off, as far as it is known.
    pub lost: u64,
}

impl Journal {
    pub(super) fn decided(&mut self, decision: Decided) {
        self.counts.decisions += 1;
        push(&mut self.decisions, decision, DECISIONS);
    }

    pub(super) fn woke(&mut self, woke: Woke) {
        *self.by_cause.entry(woke.cause).or_default() += 1;
        push(&mut self.wakes, woke, WAKES);
    }

    /// The latest wake, whose outcome is still being learned.
    pub(super) fn latest(&mut self) -> Option<&mut Woke> {
        self.wakes.back_mut()
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T, most: usize) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(item);
}
