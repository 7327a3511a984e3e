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
//! Where only the client's own packets wake, a silence that ends with an arriving one says little: a radio that went off in it would have
//! slept on. What a time-out would have spared is known, and learned, when the next packet comes that wakes.
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
use std::sync::Arc;

use super::{AverageUser, Decision, Prediction, Scheduler, StateError};
use crate::packet::{PacketInfo, WakeOn};
use context::{CONTEXTS, Features, PARENT};
use dormouse_sansio::Instant;
use grid::{Costs, K, Sums};
use guard::Guard;
use recurrence::Kind;
use table::{Slot, Table};

pub use grid::TIME_OUTS;
pub use guard::ALLOWANCE;

/// The constants of the policy; the default is what ships. `docs/policy.md` has the reason for each and what a change does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// Weight of a parent's estimate, in idle periods.
    pub prior: f32,
    /// What a context remembers: after so many idle periods in it, one counts only a third.
    pub memory: f32,
    /// How fast a context that loses loses weight: a loss of one break-even time divides its weight by e to this.
    pub learning_rate: f32,
    /// How long losses are remembered, in idle periods of break-even length.
    pub loss_memory: f64,
    /// No idle period counts for more than this many break-even times when contexts are compared: one night is one night.
    pub longest: f64,
    /// The cautious time-out, in break-even times.
    pub late: f64,
    /// The gain, in break-even times, that the learned choice must have shown before it is followed.
    pub proof: f64,
    /// Contexts remembered at most, a power of two from 16 on.
    pub contexts: usize,
    /// Each time-out is so much longer than the one before.
    pub ratio: f64,
    /// By how many break-even times the policy may ever cost more than the break-even time-out.
    pub allowance: f64,
    /// The part of it that time-outs above break-even must leave to those below: one loss with a short time-out takes a whole
    /// break-even time, and a policy that has no such left can only follow break-even from then on.
    pub reserve: f64,
    /// Idle periods that may be open at once; the oldest is settled by what is known of it.
    pub open: usize,
    /// Kinds of packet whose intervals are followed at once.
    pub kinds: usize,
    /// An interval within this part of the usual one confirms it.
    pub tolerance: f32,
    /// Intervals shorter than this are one event, in seconds.
    pub same_event: f32,
    /// By what part of the difference an interval that confirms the usual one moves it.
    pub follow: f32,
    /// By what part of its interval a packet may be late and still be due now.
    pub lateness: f64,
    /// A kind that was silent for so many of its intervals has stopped.
    pub stopped: f64,
    /// One that was silent for so many of them gives its place away at once.
    pub stale: f64,
    /// Steps to a factor of e on the scale of idle periods.
    pub idle_steps: f64,
    /// The same on the scale of what is due.
    pub due_steps: f64,
    /// The same on the scale of the time since a packet that does not recur.
    pub since_steps: f64,
    /// Intervals that must agree before a kind is called periodic.
    pub trusted: u8,
    /// No kind is trusted for more.
    pub certain: u8,
    /// Packets of a burst that its signature distinguishes.
    pub burst: u8,
    /// What remains of a context's experience after another has asked for its place.
    pub wear: f32,
}

impl Tuning {
    /// What ships.
    pub const SHIPPED: Self = Self {
        prior: 2.0,
        memory: 100.0,
        learning_rate: 2.0,
        loss_memory: 100.0,
        longest: 16.0,
        late: 4.0,
        proof: 2.0,
        contexts: 512,
        ratio: grid::RATIO,
        allowance: ALLOWANCE,
        reserve: 6.0,
        open: 8,
        kinds: 24,
        tolerance: 0.08,
        same_event: 1.0,
        follow: 0.3,
        lateness: 0.1,
        stopped: 6.0,
        stale: 20.0,
        idle_steps: 2.0,
        due_steps: 4.0,
        since_steps: 1.0,
        trusted: 2,
        certain: 6,
        burst: 8,
        wear: 0.9,
    };
}

/// What [`Prediction::by`] says where the learned choice was taken.
const LEARNED: &str = "learned";

/// What the contexts choose for one idle period, as indexes of the time-outs.
#[derive(Clone, Copy, Debug)]
struct Choice {
    keys: [u64; CONTEXTS],
    /// Each context's own.
    own: [usize; CONTEXTS],
    /// That of all together.
    mixed: usize,
}

/// A decision that awaits its idle period.
#[derive(Clone, Debug)]
struct Pending {
    choice: Choice,
    /// After the caution and the guard.
    decision: Decision,
    prediction: Prediction,
}

/// An idle period that is over, and of which it is not yet known for how long a radio that went off in it would have slept.
#[derive(Clone, Debug)]
struct Open {
    choice: Choice,
    /// Its length in seconds.
    idle: f64,
    /// What a radio that stays on has been idle from its beginning, in seconds.
    stretch: f64,
}

/// The default policy for one client.
#[derive(Clone, Debug)]
pub struct Dormouse {
    tuning: Tuning,
    time_outs: [f64; K],
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
    wake_on: WakeOn,
    pending: Option<Pending>,
    /// Empty where every packet wakes.
    open: Vec<Open>,
    /// What is known of all clients; see [`Dormouse::knowing`].
    law: Option<Arc<Dormouse>>,
}

impl Dormouse {
    /// A client of which nothing is known, with a break-even time in seconds.
    #[must_use]
    pub fn new(break_even: f64) -> Self {
        Self::with(break_even, Tuning::SHIPPED)
    }

    /// The same with other constants.
    #[must_use]
    pub fn with(break_even: f64, tuning: Tuning) -> Self {
        Self {
            tuning,
            time_outs: grid::time_outs(tuning.ratio),
            break_even,
            first_seen: None,
            features: Features::new(&tuning),
            table: Table::new(tuning.contexts, tuning.wear),
            average: average_costs(break_even, &tuning),
            losses: [0.0; CONTEXTS],
            mixed_loss: 0.0,
            late_loss: 0.0,
            break_even_loss: 0.0,
            guard: Guard::default(),
            wake_on: WakeOn::All,
            pending: None,
            open: Vec::new(),
            law: None,
        }
    }

    /// For the next client of a population, with all that was learned from those before it.
    #[must_use]
    pub fn next_client(self) -> Self {
        let Self { tuning, break_even, table, average, losses, wake_on, law, .. } = self;
        Self { table, average, losses, wake_on, law, ..Self::with(break_even, tuning) }
    }

    /// For measurements, not a policy to ship: each context leans on what `population` learned in it from other clients of the same
    /// law, and no proof is asked for.
    #[must_use]
    pub fn knowing(population: Arc<Self>) -> Self {
        let tuning = Tuning { proof: f64::NEG_INFINITY, ..Tuning::SHIPPED };
        Self {
            losses: population.losses,
            law: Some(population.clone()),
            ..Self::with(population.break_even, tuning)
        }
    }

    fn predict(&self) -> Pending {
        let (keys, b) = (self.features.keys(&self.tuning), grid::narrow(self.break_even));
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
            let known = self.law.as_ref().and_then(|law| law.table.get(keys[i]));
            let mut lawful = *parent;
            if known.is_some() {
                lean(known, parent, (self.tuning.prior, b), &mut lawful);
            }
            let parent = &lawful;
            match (self.table.get(keys[i]), inherited) {
                (None, Some(choice)) if known.is_none() => {
                    *own = *parent;
                    choices[i] = choice;
                }
                (slot, _) => {
                    lean(slot, parent, (self.tuning.prior, b), own);
                    choices[i] = grid::cheapest(own);
                }
            }
            let weight =
                (-self.tuning.learning_rate * grid::narrow((self.losses[i] - best) / self.break_even)).exp();
            weights += weight;
            for (s, c) in sum.iter_mut().zip(own) {
                *s += weight * *c;
            }
        }
        let mixed = grid::cheapest(&sum);
        let (wanted, by) = self.cautious(mixed);
        let admitted = self.guard.admit(wanted, self.break_even, &self.tuning);
        let decision = Decision::after_seconds(admitted);
        let prediction = if admitted == wanted {
            let saving = (by == LEARNED).then(|| f64::from(-sum[mixed] / weights));
            Prediction { saving, by }
        } else {
            Prediction { saving: None, by: "guard" }
        };
        Pending { choice: Choice { keys, own: choices, mixed }, decision, prediction }
    }

    /// A packet has come that wakes.
    fn woken(&mut self) {
        self.guard.woken();
        self.settle_all();
    }

    /// What staying on costs is known.
    fn settle_all(&mut self) {
        for open in core::mem::take(&mut self.open) {
            self.settle(&open);
        }
    }

    fn settle(&mut self, open: &Open) {
        let Tuning { longest, loss_memory, late, memory, .. } = self.tuning;
        let b = self.break_even;
        let [idle, stretch] = [open.idle, open.stretch].map(|seconds| seconds.min(longest * b));
        let keep = 1.0 - idle.min(b) / b / loss_memory;
        let charge = |loss: &mut f64, t: f64| *loss = *loss * keep + grid::over_staying(idle, stretch, t, b);
        for (loss, choice) in self.losses.iter_mut().zip(open.choice.own) {
            charge(loss, self.time_outs[choice]);
        }
        charge(&mut self.mixed_loss, self.time_outs[open.choice.mixed]);
        charge(&mut self.late_loss, late * b);
        charge(&mut self.break_even_loss, b);
        let sums = Sums::of(&self.time_outs, idle, stretch);
        for key in open.choice.keys {
            self.table.entry(key).add(&sums, 1.0 - 1.0 / memory);
        }
    }

    /// The learned choice if it has proved itself, otherwise the best of what needs no proof; and which of them it is.
    fn cautious(&self, mixed: usize) -> (f64, &'static str) {
        let proof = self.tuning.proof * self.break_even;
        let candidates = [
            (self.mixed_loss + proof, self.time_outs[mixed], LEARNED),
            (self.break_even_loss + proof, self.break_even, "break-even"),
            (self.late_loss, self.tuning.late * self.break_even, "caution"),
            (0.0, f64::INFINITY, "not worth it"),
        ];
        let best = candidates.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or((f64::INFINITY, "not worth it"), |(_, t, by)| (t, by))
    }
}

/// A context's estimate, leaning on its parent's as if that were `prior` idle periods.
fn lean(slot: Option<&Slot>, parent: &Costs, (prior, break_even): (f32, f32), own: &mut Costs) {
    *own = *parent;
    if let Some(slot) = slot {
        let weight = 1.0 / (slot.seen + prior);
        for (c, sum) in own.iter_mut().zip(slot.sums.costs(break_even)) {
            *c = (*c * prior + sum) * weight;
        }
    }
}

/// Expected costs for the average user, less those of staying on.
fn average_costs(break_even: f64, tuning: &Tuning) -> Costs {
    let time_outs = grid::time_outs(tuning.ratio);
    let mut costs = [0.0; K];
    AverageUser::shipped().for_each_period(|idle, part| {
        let counted = idle.min(tuning.longest * break_even);
        for (sum, t) in costs.iter_mut().zip(time_outs) {
            *sum += grid::narrow(part * grid::over_staying(counted, counted, t, break_even));
        }
    });
    costs
}

impl Scheduler for Dormouse {
    fn name(&self) -> &'static str {
        "dormouse"
    }

    fn wakes_on(&mut self, wake_on: WakeOn) {
        self.wake_on = wake_on;
    }

    fn observe(&mut self, at: Instant, packet: &PacketInfo) {
        self.pending = None;
        if packet.is_outgoing() {
            self.woken();
        }
        let first = *self.first_seen.get_or_insert(at);
        self.features.packet(at.saturating_since(first).as_secs_f64() + 1.0, packet, &self.tuning);
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
        let Pending { choice, decision, .. } = self.pending.take().unwrap_or_else(|| self.predict());
        let idle = idle.as_secs_f64();
        self.guard.book(idle, decision.seconds(), self.break_even);
        self.open.iter_mut().for_each(|o| o.stretch += idle);
        if self.open.len() == self.tuning.open {
            let oldest = self.open.remove(0);
            self.settle(&oldest);
        }
        self.open.push(Open { choice, idle, stretch: idle });
        if self.wake_on == WakeOn::All {
            self.woken();
        }
        self.features.idle(idle, &self.tuning);
    }

    /// What was learned stays: the sums say the costs with any break-even time ([`Sums`]). The guarantee's total is kept.
    fn set_break_even(&mut self, seconds: f64) {
        let ratio = seconds / self.break_even;
        self.settle_all();
        let losses = self.losses.iter_mut();
        losses
            .chain([&mut self.mixed_loss, &mut self.late_loss, &mut self.break_even_loss])
            .for_each(|loss| *loss *= ratio);
        self.break_even = seconds;
        self.average = average_costs(seconds, &self.tuning);
        self.pending = None;
    }

    fn state_bytes(&self) -> usize {
        let Tuning { contexts, open, kinds, .. } = self.tuning;
        size_of::<Self>()
            + contexts * size_of::<Slot>()
            + open * size_of::<Open>()
            + kinds * size_of::<Kind>()
    }

    fn save(&self, out: &mut Vec<u8>) {
        state::save(self, out);
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        state::restore(self, bytes)
    }
}
