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
//! A time-out is allowed only if `D` plus its worst stays at most `A * B` ([`ALLOWANCE`]): otherwise one below `B` becomes
//! `B`, and one above is cut to what is left, less a [`RESERVE`]. By induction `D <= A * B` always, on any traffic: the policy never
//! costs more than break-even plus that one constant, and break-even never more than twice the clairvoyant.
//!
//! The bound holds while `B` stays the same. When it changes, `D` goes on in seconds: what was booked under the old price stays, and from then
//! on `D <= A * B` with the largest `B` that there has been.
//!
//! **Against never.** No policy can also bound its loss against a radio that stays on: periods that end right after the
//! radio went off cost every policy that ever sleeps.
//!
//! The periods are those that the policy lived through. Where arriving packets do not wake the radio, a sleep may swallow
//! several silences; both sides of `D` are then booked on the one long period.

use super::grid;

/// `A`: by how many break-even times the policy may ever cost more than the break-even time-out.
pub const ALLOWANCE: f64 = 16.0;

/// The part of it that time-outs above break-even must leave to those below: one loss with a short time-out takes a whole
/// break-even time, and a policy that has no such left can only follow break-even from then on.
const RESERVE: f64 = 6.0;

/// Running totals of one client, in seconds of idle radio.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Guard {
    /// `D`: cost so far less break-even's.
    pub(super) over_break_even: f64,
}

impl Guard {
    /// The allowed time-out nearest to `wanted`, in seconds.
    pub(super) fn admit(&self, wanted: f64, break_even: f64) -> f64 {
        let left = (ALLOWANCE * break_even - self.over_break_even).max(0.0);
        if wanted < break_even {
            if left >= break_even { wanted } else { break_even }
        } else {
            wanted.min(break_even + (left - RESERVE * break_even).max(0.0))
        }
    }

    /// Books an idle period of `idle` seconds that was met with time-out `t`.
    pub(super) fn book(&mut self, idle: f64, t: f64, break_even: f64) {
        let paid = grid::cost(idle, t, break_even);
        self.over_break_even += paid - grid::cost(idle, break_even, break_even);
    }
}
