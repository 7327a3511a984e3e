//! The scheduler of paper 000, section 3.5: Equations 5 to 8. Must never use more than the lengths of past idle periods.
//!
//! At age `t` of an idle period the paper estimates the probability that `B` more seconds will follow (Eq. 5),
//!
//! ```text
//! P(t) = #{past idle periods >= t + B} / #{past idle periods >= t}
//! ```
//!
//! and switches off as soon as `P(t) > alpha` (Eq. 7). Where `P(t)` is 0, because the client never had such a period, the
//! same estimate over the average user's history (Eq. 6) is held against `beta` (Eq. 8).
//!
//! **Incremental and exact.** The rule is evaluated at fixed ages ([`AGE`]): 0.25 s, each further one 5 % later. For each age
//! two counters say how many periods reached `t` and `t + B`; what is computed from them is Eq. 5 over the whole history,
//! without rounding. A history that was cut at a changed break-even time is the one exception, see
//! [`Scheduler::set_break_even`].
//!
//! **The bucket trick is something else.** Section 3.5 closes with a cheaper method that keeps the bucket holding the
//! `alpha * N`-th of the recorded idle periods and switches off at its age. That age solves `P(g >= t) = alpha`: the quantile of
//! whole periods, without the condition that the present one has already lasted `t`, and without `B`. For periods of one
//! fixed length above `B`, Eq. 5 switches off at once, the bucket at the end of the period, when it is too late. This file
//! implements Eq. 5.

use core::time::Duration;
use std::sync::{Arc, LazyLock};

use super::{Decision, Scheduler, StateError};
use crate::packet::PacketInfo;
use dormouse_sansio::Instant;

/// Number of ages at which Eq. 5 is evaluated.
pub const AGES: usize = 256;
const FIRST_AGE: f64 = 0.25;
const AGE_RATIO: f64 = 1.05;
const TAG: u32 = u32::from_le_bytes(*b"dpa2");

/// The average user is idle for a second at least. Crovella and Bestavros, Self-Similarity in World Wide Web Traffic, IEEE/ACM Transactions
/// on Networking 5(6), 1997, section "Examining Quiet Times": what is shorter is the machine's own, between the parts of one page.
const SHORTEST: f64 = 1.0;
/// The part that lasts longer than `t` falls as `t` to this: the slope that they measured (1.50).
const SHAPE: f64 = 1.5;

/// The ages at which the rule is evaluated, in seconds: 0.25 s to 17.6 hours.
pub static AGE: [f64; AGES] = {
    let mut ages = [FIRST_AGE; AGES];
    let mut i = 1;
    while i < AGES {
        ages[i] = ages[i - 1] * AGE_RATIO;
        i += 1;
    }
    ages
};

/// The history of the average user, as a survival function: the part of all idle periods that last at least so long.
#[derive(Clone, PartialEq, Debug)]
pub struct AverageUser {
    /// At each of [`AGE`]; shared by all clients.
    survival: Arc<[f64; AGES]>,
}

impl AverageUser {
    /// From idle periods of a population, in seconds. Without any, no idle period is expected to last.
    #[must_use]
    pub fn from_periods(periods: impl IntoIterator<Item = f64>) -> Self {
        let mut counts = [0u64; AGES + 1];
        let mut total = 0u64;
        for period in periods {
            counts[reached(period, 0.0)] += 1;
            total += 1;
        }
        let mut survival = [0.0; AGES];
        let mut above = 0u64;
        for i in (0..AGES).rev() {
            above += counts[i + 1];
            #[expect(clippy::cast_precision_loss, reason = "counts of idle periods stay far below 2^52")]
            let part = if total == 0 { 0.0 } else { above as f64 / total as f64 };
            survival[i] = part;
        }
        Self { survival: Arc::new(survival) }
    }

    /// The one that ships with the program: a Pareto law from a published measurement of people who read the Web ([`SHAPE`]), which no
    /// evaluation of this program uses.
    #[must_use]
    pub fn shipped() -> Self {
        static SHIPPED: LazyLock<AverageUser> = LazyLock::new(AverageUser::pareto);
        SHIPPED.clone()
    }

    fn pareto() -> Self {
        Self { survival: Arc::new(AGE.map(|t| (t.max(SHORTEST) / SHORTEST).powf(-SHAPE))) }
    }

    /// Calls `f` with a length in seconds and the part of all idle periods that are about so long.
    pub(super) fn for_each_period(&self, mut f: impl FnMut(f64, f64)) {
        f(FIRST_AGE, 1.0 - self.survival[0]);
        for (i, age) in AGE.into_iter().enumerate() {
            let longer = self.survival.get(i + 1).copied().unwrap_or(0.0);
            f(age * AGE_RATIO.sqrt(), self.survival[i] - longer);
        }
    }

    /// Eq. 6: the probability that an idle period of age `AGE[i]` lasts `break_even` seconds more.
    fn remaining(&self, i: usize, break_even: f64) -> f64 {
        let reach = AGE[i] + break_even;
        let after = self.survival.get(AGE.partition_point(|a| *a < reach)).copied().unwrap_or(0.0);
        if self.survival[i] > 0.0 { after / self.survival[i] } else { 0.0 }
    }
}

/// How many of the ages plus `offset` an idle period reaches.
fn reached(idle: f64, offset: f64) -> usize {
    AGE.partition_point(|age| *age + offset <= idle)
}

/// Paper 000's policy for one client.
#[derive(Clone, Debug)]
pub struct Paper {
    break_even: f64,
    alpha: f64,
    /// Periods learned from.
    periods: u32,
    /// How many of them reached each age.
    now: [u32; AGES],
    /// How many reached each age plus break-even.
    later: [u32; AGES],
    /// For each age, the first one from there on at which the average user's estimate exceeds `beta`.
    fall_back: [u16; AGES + 1],
    beta: f64,
    average: AverageUser,
    /// The first age at which the rule is evaluated, by its number in [`AGE`].
    from: usize,
    /// The time-out in force; changes only with [`Scheduler::learn`].
    off_after: f64,
}

impl Paper {
    /// With a break-even time in seconds, the thresholds of Eq. 7 and 8, and the average user's history.
    #[must_use]
    pub fn new(break_even: f64, alpha: f64, beta: f64, average: AverageUser) -> Self {
        let mut paper = Self {
            break_even,
            alpha,
            periods: 0,
            now: [0; AGES],
            later: [0; AGES],
            fall_back: [0; AGES + 1],
            beta,
            average,
            from: 0,
            off_after: f64::INFINITY,
        };
        paper.consult_average();
        paper.off_after = paper.rule();
        paper
    }

    /// Not evaluated before an idle period is so many seconds old. The paper leaves the first age open, and a client with a timer just
    /// above it gains or loses everything by it.
    #[must_use]
    pub fn first_at(mut self, seconds: f64) -> Self {
        self.from = AGE.partition_point(|age| *age < seconds);
        self.off_after = self.rule();
        self
    }

    fn consult_average(&mut self) {
        let mut first = AGES as u16;
        self.fall_back[AGES] = first;
        for (i, age) in (0..AGES as u16).enumerate().rev() {
            if self.average.remaining(i, self.break_even) > self.beta {
                first = age;
            }
            self.fall_back[i] = first;
        }
    }

    /// The first age at which Eq. 7, or where Eq. 5 is zero Eq. 8, holds.
    fn rule(&self) -> f64 {
        const BLOCK: usize = 16;
        let (nows, laters) = (self.now.chunks_exact(BLOCK), self.later.chunks_exact(BLOCK));
        for ((now, later), start) in nows.zip(laters).zip((0..).step_by(BLOCK)) {
            // Whole blocks are looked at without a branch; the place inside is found once.
            let holds =
                |i: usize| start + i >= self.from && f64::from(later[i]) > self.alpha * f64::from(now[i]);
            let ended = later[BLOCK - 1] == 0;
            if ended || (0..BLOCK).fold(false, |any, i| any | holds(i)) {
                let own = (0..BLOCK).find(|i| holds(*i)).map_or(AGES, |i| start + i);
                let unseen = later.iter().position(|l| *l == 0).map_or(AGES, |i| start + i);
                let first = own.min(usize::from(self.fall_back[unseen.max(self.from)]));
                if ended || first < AGES {
                    return AGE.get(first).copied().unwrap_or(f64::INFINITY);
                }
            }
        }
        f64::INFINITY
    }
}

const _: () = assert!(AGES.is_multiple_of(16));

impl Scheduler for Paper {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn observes(&self) -> bool {
        false
    }

    fn observe(&mut self, _at: Instant, _packet: &PacketInfo) {}

    fn decide(&mut self) -> Decision {
        Decision::after_seconds(self.off_after)
    }

    fn learn(&mut self, idle: Duration) {
        // After 2^32 periods the proportions are known: counting on would spoil them.
        if self.periods == u32::MAX {
            return;
        }
        let idle = idle.as_secs_f64();
        self.periods += 1;
        self.now[..reached(idle, 0.0)].iter_mut().for_each(|count| *count += 1);
        self.later[..reached(idle, self.break_even)].iter_mut().for_each(|count| *count += 1);
        self.off_after = self.rule();
    }

    /// Past periods are known only by the ages that they reached: for them `t + B` is rounded up to the next such age.
    fn set_break_even(&mut self, seconds: f64) {
        self.break_even = seconds;
        // Those that reached `t + B` are those that reached the first age not below it.
        for (i, age) in AGE.iter().enumerate() {
            let reach = AGE.partition_point(|a| *a < age + seconds);
            self.later[i] = self.now.get(reach).copied().unwrap_or(0);
        }
        self.consult_average();
        self.off_after = self.rule();
    }

    fn state_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend(TAG.to_le_bytes());
        out.extend(self.break_even.to_le_bytes());
        let counts = [self.periods].into_iter().chain(self.now).chain(self.later);
        counts.for_each(|c| out.extend(c.to_le_bytes()));
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        const LEN: usize = 4 + 8 + 4 * (1 + 2 * AGES);
        if state.len() != LEN {
            return Err(StateError::Length { expected: LEN, found: state.len() });
        }
        let word =
            |i: usize| state.get(i..i + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        if word(0) != TAG {
            return Err(StateError::Version { expected: TAG, found: word(0) });
        }
        let saved = f64::from_bits(u64::from(word(4)) | u64::from(word(8)) << 32);
        if !(saved.is_finite() && saved > 0.0) {
            return Err(StateError::Damaged { what: "break-even time" });
        }
        let periods = word(12);
        let counts = |first: usize| core::array::from_fn(|i| word(16 + 4 * (first + i)));
        let (now, later): ([u32; AGES], [u32; AGES]) = (counts(0), counts(AGES));
        let falls = |counts: &[u32; AGES]| {
            counts[0] <= periods && counts.windows(2).all(|w| matches!(w, [a, b] if a >= b))
        };
        if !(falls(&now) && falls(&later)) {
            return Err(StateError::Damaged { what: "history" });
        }
        (self.periods, self.now, self.later) = (periods, now, later);
        if saved.to_bits() == self.break_even.to_bits() {
            self.off_after = self.rule();
        } else {
            self.set_break_even(self.break_even);
        }
        Ok(())
    }
}
