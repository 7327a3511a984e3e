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
pub const TIME_OUTS: [f64; 32] = {
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

/// The index of the smallest cost; the shorter time-out on a tie, `never` if none is a finite number. First the least, without a
/// branch, then its place: a single chain of comparisons is what most of a decision would wait for.
pub(super) fn cheapest(costs: &Costs) -> usize {
    let mut least = [f32::INFINITY; 8];
    for chunk in costs.chunks_exact(8) {
        for (least, cost) in least.iter_mut().zip(chunk) {
            *least = if *cost < *least { *cost } else { *least };
        }
    }
    let least = least.into_iter().fold(f32::INFINITY, |a, b| if b < a { b } else { a });
    if least == f32::INFINITY {
        return NEVER;
    }
    costs.iter().position(|cost| *cost == least).unwrap_or(NEVER)
}
const _: () = assert!(K.is_multiple_of(8));

/// To the precision that is stored. Costs are capped far below where this loses seconds.
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
pub(super) fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_is_found_and_ties_go_to_the_shorter() {
        let mut costs: Costs = [0.0; K];
        assert_eq!(cheapest(&costs), 0);
        for i in 0..K {
            costs = [1.0; K];
            costs[i] = -1.0;
            assert_eq!(cheapest(&costs), i);
            costs[K - 1] = -1.0;
            assert_eq!(cheapest(&costs), i);
        }
        assert_eq!(cheapest(&[f32::NAN; K]), NEVER);
    }

    #[test]
    fn an_idle_period_costs_nothing_more_under_time_outs_that_it_does_not_outlast() {
        let costs = costs(10.0, 22.3);
        for (cost, t) in costs.into_iter().zip(TIME_OUTS) {
            let expected = if t < 10.0 { t + 22.3 - 10.0 } else { 0.0 };
            assert!((f64::from(cost) - expected).abs() < 1e-5);
        }
    }
}
