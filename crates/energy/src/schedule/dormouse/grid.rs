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

/// What time-out `t` costs beyond staying on, negative for a gain: in an idle period of `idle` seconds from which on a radio that stays on
/// is idle for `stretch` seconds until the next packet that wakes.
pub(super) fn over_staying(idle: f64, stretch: f64, t: f64, break_even: f64) -> f64 {
    if idle > t { t + break_even - stretch } else { 0.0 }
}

/// The same under each time-out.
pub(super) fn costs(idle: f64, stretch: f64, break_even: f64) -> Costs {
    TIME_OUTS.map(|t| narrow(over_staying(idle, stretch, t, break_even)))
}

/// Makes sums of costs over `seen` idle periods those of another break-even time. With `N(t)` periods longer than `t`, the sums under two
/// neighbouring time-outs differ by what the later one waits longer, the integral of `N` between them, and by `B` for each period that
/// only the earlier one sleeps through. All are longer than the first time-out, so that `N` follows step by step (trapezoids; errors
/// shrink on the way).
pub(super) fn reprice(costs: &mut Costs, seen: f32, from: f64, to: f64) {
    let (mut longer, mut before) = (f64::from(seen), f64::from(costs[0]));
    for i in 0..NEVER {
        if i > 0 {
            let half = (TIME_OUTS[i] - TIME_OUTS[i - 1]) / 2.0;
            let next = (f64::from(costs[i]) - before + longer * (from - half)) / (from + half);
            before = f64::from(costs[i]);
            longer = next.clamp(0.0, longer);
        }
        costs[i] += narrow((to - from) * longer);
    }
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
    fn sums_of_costs_can_be_made_those_of_another_break_even_time() {
        let periods: Vec<f64> = (0..400).map(|i| 0.3 * (f64::from(i) * 0.02).exp()).collect();
        let sums = |b: f64| {
            let mut sums: Costs = [0.0; K];
            for idle in &periods {
                sums.iter_mut().zip(costs(*idle, *idle, b)).for_each(|(sum, cost)| *sum += cost);
            }
            sums
        };
        for (from, to) in [(22.3, 29.0), (29.0, 22.3), (22.3, 60.0)] {
            let mut changed = sums(from);
            reprice(&mut changed, 400.0, from, to);
            for ((was, is), t) in changed.into_iter().zip(sums(to)).zip(TIME_OUTS) {
                // To a fiftieth of a break-even time for each period.
                assert!(
                    (was - is).abs() < 0.02 * 400.0 * narrow(to),
                    "{from} to {to}, {t}: {was} against {is}"
                );
            }
        }
    }

    #[test]
    fn an_idle_period_costs_nothing_more_under_time_outs_that_it_does_not_outlast() {
        let costs = costs(10.0, 10.0, 22.3);
        for (cost, t) in costs.into_iter().zip(TIME_OUTS) {
            let expected = if t < 10.0 { t + 22.3 - 10.0 } else { 0.0 };
            assert!((f64::from(cost) - expected).abs() < 1e-5);
        }
    }
}
