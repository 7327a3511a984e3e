//! The time-outs that the policy chooses from, and what an idle period costs under each. Pure arithmetic.

/// Number of time-outs, `never` (the last) included.
pub(super) const K: usize = 32;
/// Index of `never`.
pub(super) const NEVER: usize = K - 1;
/// The shortest time-out is the shortest silence that counts as idle, in seconds: no device knows earlier that it is idle.
const FIRST: f64 = 0.25;
/// Each time-out is so much longer than the one before: 0.25 s to 325 s.
const RATIO: f64 = 1.27;

/// One cost for each time-out, in seconds of idle radio.
pub(super) type Costs = [f32; K];

/// The time-outs in seconds, ascending, infinity last.
pub(super) const TIME_OUTS: [f64; K] = {
    let mut t = [f64::INFINITY; K];
    let (mut i, mut next) = (0, FIRST);
    while i < NEVER {
        t[i] = next;
        next *= RATIO;
        i += 1;
    }
    t
};

/// What an idle period of `idle` seconds costs with time-out `t`: `t + B` if it was slept through, `idle` otherwise.
pub(super) fn cost(idle: f64, t: f64, break_even: f64) -> f64 {
    if idle > t { t + break_even } else { idle }
}

/// The cost of an idle period under each time-out, less what it costs to stay on: negative is a gain.
pub(super) fn costs(idle: f64, break_even: f64) -> Costs {
    TIME_OUTS.map(|t| narrow(cost(idle, t, break_even) - idle))
}

/// The index of the smallest cost; the shorter time-out on a tie.
pub(super) fn cheapest(costs: &Costs) -> usize {
    let least = costs.iter().copied().fold(f32::INFINITY, f32::min);
    costs.iter().position(|c| *c <= least).unwrap_or(NEVER)
}

/// To the precision that is stored. Costs are capped far below where this loses seconds.
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
pub(super) fn narrow(x: f64) -> f32 {
    x as f32
}
