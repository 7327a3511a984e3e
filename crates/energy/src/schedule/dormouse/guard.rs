//! The guarantee: running totals that bound what a wrong prediction can cost. Must never predict.
//!
//! **Against break-even.** Let `D` be what the policy has cost so far, less what the break-even time-out would have cost on the
//! same idle periods. In one period time-out `t` adds to `D`, at worst over all lengths `g`:
//!
//! | `t` | worst `g` | adds |
//! |---|---|---|
//! | `t < B` | just above `t` | `(t + B) - t = B` |
//! | `t = B` | any | 0 |
//! | `t > B` | just above `t` | `(t + B) - 2B = t - B` |
//! | never | unbounded | unbounded |
//!
//! Where arriving packets do not wake the radio, the break-even time-out may be asleep already in a silence that this policy begins awake:
//! from then until the client sends, break-even pays nothing, `t` adds `t + B` at worst, and only going off at once adds `B` alone.
//!
//! A time-out is allowed only if `D` plus its worst stays at most `A * B` ([`ALLOWANCE`]): otherwise one below `B` becomes
//! `B`, and one above is cut to what is left, less a reserve ([`Tuning::reserve`]). By induction `D <= A * B` always, on any traffic: the policy never
//! costs more than break-even plus that one constant. Where every packet wakes the radio, break-even never costs more than twice the
//! clairvoyant; where only the client's own do, no time-out has such a bound, because arriving packets keep a radio on that
//! could have slept through them all.
//!
//! The bound holds while `B` stays the same. When it changes, `D` goes on in seconds: what was booked under the old price stays, and from then
//! on `D <= A * B` with the largest `B` that there has been.
//!
//! **Against never.** No policy can also bound its loss against a radio that stays on: periods that end right after the
//! radio went off cost every policy that ever sleeps.
//!
//! The periods are those that the policy lived through. What arrives while its radio is off it cannot know: a sleep may swallow several
//! silences, and both sides of `D` are then booked on the one long period.

use super::{Tuning, grid};

/// `A`: by how many break-even times the policy may ever cost more than the break-even time-out.
pub const ALLOWANCE: f64 = 16.0;

/// Running totals of one client, in seconds of idle radio.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Guard {
    /// `D`: cost so far less break-even's.
    pub(super) over_break_even: f64,
    /// The break-even time-out has gone off, and no packet has come since that wakes it.
    break_even_sleeps: bool,
}

impl Guard {
    /// Of what was saved from an earlier run.
    pub(super) fn restored(over_break_even: f64) -> Self {
        Self { over_break_even, ..Self::default() }
    }

    /// The allowed time-out nearest to `wanted`, in seconds.
    pub(super) fn admit(&self, wanted: f64, break_even: f64, tuning: &Tuning) -> f64 {
        let left = (tuning.allowance * break_even - self.over_break_even).max(0.0);
        let to_spare = (left - tuning.reserve * break_even).max(0.0);
        if self.break_even_sleeps {
            wanted.min((to_spare - break_even).max(0.0))
        } else if wanted < break_even {
            if left >= break_even { wanted } else { break_even }
        } else {
            wanted.min(break_even + to_spare)
        }
    }

    /// Books an idle period of `idle` seconds that was met with time-out `t`.
    pub(super) fn book(&mut self, idle: f64, t: f64, break_even: f64) {
        self.over_break_even += grid::cost(idle, t, break_even);
        if !self.break_even_sleeps {
            self.over_break_even -= grid::cost(idle, break_even, break_even);
        }
        self.break_even_sleeps |= idle > break_even;
    }

    /// A packet came that wakes any radio.
    pub(super) const fn woken(&mut self) {
        self.break_even_sleeps = false;
    }
}
