//! Ours: a learned time-out with a guarantee.
//!
//! When an idle period begins, the expected cost of each time-out `t` is `C(t) = E[min(g, t)] + B P(g > t)`: the integral of
//! the survival function up to `t` plus the price of a sleep. It is least where the hazard of the period's end falls below
//! `1/B`. The policy learns `C` for a grid of time-outs ([`grid`]), `never` among them, in many contexts at once
//! ([`context`]): kinds of the last packets, lengths of the last idle periods, what periodic packet is due next ([`recurrence`]).
//! A context with little experience leans on the one that it refines, down to the average user.
//!
//! The weight of each context is learned too: it is charged what its own best time-out would have cost, and counts the less,
//! the more it has lost lately (exponential weights). The weighted costs are added, and the least of them is the choice.
//!
//! The choice is followed once it would have gained clearly against a radio that stays on; before that, the radio goes off
//! late or not at all. Last comes the [`guard`]: against any traffic the policy costs at most [`ALLOWANCE`] break-even times
//! more than the break-even time-out.

mod context;
mod grid;
mod guard;
mod recurrence;
mod state;
mod table;

use core::time::Duration;

use super::{AverageUser, Decision, Prediction, Scheduler, StateError};
use crate::packet::PacketInfo;
use context::{CONTEXTS, Features, PARENT};
use dormouse_sansio::Instant;
use grid::{Costs, K};
use guard::Guard;
use table::{Slot, Table};

pub use grid::TIME_OUTS;
pub use guard::ALLOWANCE;

/// Weight of a parent's estimate, in idle periods.
const PRIOR: f32 = 2.0;
/// What a context remembers: after so many idle periods in it, one counts only a third.
const MEMORY: f32 = 100.0;
/// How fast a context that loses loses weight: a loss of one break-even time divides its weight by e to this.
const LEARNING_RATE: f32 = 2.0;
/// How long losses are remembered, in idle periods of break-even length.
const LOSS_MEMORY: f64 = 100.0;
/// No idle period counts for more than this many break-even times when contexts are compared: one night is one night.
const LONGEST: f64 = 16.0;
/// The cautious time-out, in break-even times.
const LATE: f64 = 4.0;
/// The gain, in break-even times, that the learned choice must have shown before it is followed.
const PROOF: f64 = 2.0;
/// The same as long as the client has saved too little to pay for a sleep that fails.
const FIRST_PROOF: f64 = 4.0;
/// How much more gain is asked for each second that the client is behind a radio that never sleeps.
const EVIDENCE: f64 = 5.0;

/// What [`Prediction::by`] says where the learned choice was taken.
const LEARNED: &str = "learned";

/// A decision that awaits its idle period.
#[derive(Clone, Debug)]
struct Pending {
    keys: [u64; CONTEXTS],
    /// Each context's own choice.
    choices: [usize; CONTEXTS],
    /// The choice of all.
    mixed: usize,
    /// After the caution and the guard.
    decision: Decision,
    prediction: Prediction,
}

/// The default policy for one client.
#[derive(Clone, Debug)]
pub struct Dormouse {
    break_even: f64,
    first_seen: Option<Instant>,
    features: Features,
    table: Table,
    average: Costs,
    /// What each context's choices have cost lately, less what staying on would have.
    losses: [f64; CONTEXTS],
    /// The same for the mixed choice, for the late time-out and for break-even.
    mixed_loss: f64,
    late_loss: f64,
    break_even_loss: f64,
    guard: Guard,
    pending: Option<Pending>,
}

impl Dormouse {
    /// A client of which nothing is known, with a break-even time in seconds.
    #[must_use]
    pub fn new(break_even: f64) -> Self {
        Self {
            break_even,
            first_seen: None,
            features: Features::default(),
            table: Table::new(),
            average: average_costs(break_even),
            losses: [0.0; CONTEXTS],
            mixed_loss: 0.0,
            late_loss: 0.0,
            break_even_loss: 0.0,
            guard: Guard::default(),
            pending: None,
        }
    }

    fn predict(&self) -> Pending {
        let keys = self.features.keys();
        let best = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        // The expected costs in each context, parents before children, and what each would choose.
        let mut estimates: [Costs; CONTEXTS] = [[0.0; K]; CONTEXTS];
        let mut choices = [0; CONTEXTS];
        let (mut sum, mut weights): (Costs, f32) = ([0.0; K], 0.0);
        for i in 0..CONTEXTS {
            let (before, rest) = estimates.split_at_mut(i);
            let (parent, inherited) = match i {
                0 => (&self.average, None),
                _ => (&before[PARENT[i]], Some(choices[PARENT[i]])),
            };
            let Some(own) = rest.first_mut() else { break };
            match (self.table.get(keys[i]), inherited) {
                (None, Some(choice)) => {
                    *own = *parent;
                    choices[i] = choice;
                }
                (slot, _) => {
                    lean(slot, parent, own);
                    choices[i] = grid::cheapest(own);
                }
            }
            let weight = (-LEARNING_RATE * grid::narrow((self.losses[i] - best) / self.break_even)).exp();
            weights += weight;
            for (s, c) in sum.iter_mut().zip(own) {
                *s += weight * *c;
            }
        }
        let mixed = grid::cheapest(&sum);
        let (wanted, by) = self.cautious(mixed);
        let admitted = self.guard.admit(wanted, self.break_even);
        let decision = Decision::after_seconds(admitted);
        let prediction = if admitted == wanted {
            let saving = (by == LEARNED).then(|| f64::from(-sum[mixed] / weights));
            Prediction { saving, by }
        } else {
            Prediction { saving: None, by: "guard" }
        };
        Pending { keys, choices, mixed, decision, prediction }
    }

    /// The learned choice if it has proved itself, otherwise the best of what needs no proof; and which of them it is.
    fn cautious(&self, mixed: usize) -> (f64, &'static str) {
        let enough = if self.guard.over_never <= -self.break_even { PROOF } else { FIRST_PROOF };
        let proof = enough * self.break_even + EVIDENCE * self.guard.behind();
        let candidates = [
            (self.mixed_loss + proof, TIME_OUTS[mixed], LEARNED),
            (self.break_even_loss + proof, self.break_even, "break-even"),
            (self.late_loss, LATE * self.break_even, "caution"),
            (0.0, f64::INFINITY, "not worth it"),
        ];
        let best = candidates.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or((f64::INFINITY, "not worth it"), |(_, t, by)| (t, by))
    }
}

/// A context's estimate, leaning on its parent's as if that were [`PRIOR`] idle periods.
fn lean(slot: Option<&Slot>, parent: &Costs, own: &mut Costs) {
    *own = *parent;
    if let Some(slot) = slot {
        let weight = 1.0 / (slot.seen + PRIOR);
        for (c, sum) in own.iter_mut().zip(&slot.costs) {
            *c = (*c * PRIOR + *sum) * weight;
        }
    }
}

/// Expected costs for the average user, less those of staying on.
fn average_costs(break_even: f64) -> Costs {
    let average = AverageUser::shipped();
    let mut costs = [0.0; K];
    let longest = LONGEST * break_even;
    average.for_each_period(|idle, part| {
        let each = grid::costs(idle.min(longest), break_even);
        for (sum, c) in costs.iter_mut().zip(each) {
            *sum += c * grid::narrow(part);
        }
    });
    costs
}

impl Scheduler for Dormouse {
    fn name(&self) -> &'static str {
        "dormouse"
    }

    fn observe(&mut self, at: Instant, packet: &PacketInfo) {
        self.pending = None;
        let first = *self.first_seen.get_or_insert(at);
        self.features.packet(at.saturating_since(first).as_secs_f64() + 1.0, packet);
    }

    fn decide(&mut self) -> Decision {
        let pending = self.pending.take().unwrap_or_else(|| self.predict());
        let decision = pending.decision;
        self.pending = Some(pending);
        decision
    }

    fn prediction(&self) -> Prediction {
        self.pending.as_ref().map_or(Prediction { saving: None, by: "nothing decided" }, |p| p.prediction)
    }

    fn learn(&mut self, idle: Duration) {
        let pending = self.pending.take().unwrap_or_else(|| self.predict());
        let (b, idle) = (self.break_even, idle.as_secs_f64());
        self.guard.book(idle, pending.decision.seconds(), b);
        let counted = idle.min(LONGEST * b);
        let costs = grid::costs(counted, b);
        let keep = 1.0 - counted.min(b) / b / LOSS_MEMORY;
        let charge = |loss: &mut f64, cost: f64| *loss = *loss * keep + cost;
        for (loss, choice) in self.losses.iter_mut().zip(pending.choices) {
            charge(loss, f64::from(costs[choice]));
        }
        charge(&mut self.mixed_loss, f64::from(costs[pending.mixed]));
        charge(&mut self.late_loss, grid::cost(counted, LATE * b, b) - counted);
        charge(&mut self.break_even_loss, grid::cost(counted, b, b) - counted);
        for key in pending.keys {
            self.table.entry(key).add(&costs, 1.0 - 1.0 / MEMORY);
        }
        self.features.idle(idle);
    }

    /// What was learned stays: a small change is absorbed by forgetting. After one by more than a quarter it is dropped,
    /// because costs under the old price say little about the new one; the guarantee's totals are kept.
    fn set_break_even(&mut self, seconds: f64) {
        let ratio = seconds / self.break_even;
        if !(0.8..=1.25).contains(&ratio) {
            self.table = Table::new();
            self.losses = [0.0; CONTEXTS];
            (self.mixed_loss, self.late_loss, self.break_even_loss) = (0.0, 0.0, 0.0);
        }
        self.break_even = seconds;
        self.average = average_costs(seconds);
        self.pending = None;
    }

    fn state_bytes(&self) -> usize {
        size_of::<Self>() + table::MOST * size_of::<Slot>()
    }

    fn save(&self, out: &mut Vec<u8>) {
        state::save(self, out);
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        state::restore(self, bytes)
    }
}
