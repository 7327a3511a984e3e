//! The time-outs that the policy chooses from, and what an idle period costs under each. Pure arithmetic.

/// Number of time-outs, `never` (the last) included.
pub(super) const K: usize = 32;
/// Index of `never`.
pub(super) const NEVER: usize = K - 1;
/// The shortest time-out is the shortest silence that counts as idle, in seconds: no device knows earlier that it is idle.
const FIRST: f64 = 0.25;
/// Each time-out is so much longer than the one before: 0.25 s to 325 s.
pub(super) const RATIO: f64 = 1.27;

/// One cost for each time-out, in seconds of idle radio.
pub(super) type Costs = [f32; K];

/// The time-outs in seconds, ascending, infinity last.
pub const TIME_OUTS: [f64; 32] = time_outs(RATIO);

/// The same with another ratio.
pub(super) const fn time_outs(ratio: f64) -> [f64; K] {
    let mut t = [f64::INFINITY; K];
    let (mut i, mut next) = (0, FIRST);
    while i < NEVER {
        t[i] = next;
        next *= ratio;
        i += 1;
    }
    t
}

/// What an idle period of `idle` seconds costs with time-out `t`: `t + B` if it was slept through, `idle` otherwise.
pub(super) fn cost(idle: f64, t: f64, break_even: f64) -> f64 {
    if idle > t { t + break_even } else { idle }
}

/// What time-out `t` costs beyond staying on, negative for a gain: in an idle period of `idle` seconds from which on a radio that stays on
/// is idle for `stretch` seconds until the next packet that wakes.
pub(super) fn over_staying(idle: f64, stretch: f64, t: f64, break_even: f64) -> f64 {
    if idle > t { t + break_even - stretch } else { 0.0 }
}

/// What is summed of idle periods, for each time-out. What a time-out costs beyond staying on is its wait plus `B` for each sleep: so the
/// sums say it for any `B`, also where a radio that is off sleeps through more than the period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sums {
    /// `t` less the stretch, for each period longer than `t`.
    pub(super) waits: Costs,
    /// How many are longer than `t`.
    pub(super) sleeps: Costs,
}

impl Sums {
    pub(super) const NONE: Self = Self { waits: [0.0; K], sleeps: [0.0; K] };

    /// Of one idle period of `idle` seconds, from which on a radio that stays on is idle for `stretch`.
    pub(super) fn of(time_outs: &[f64; K], idle: f64, stretch: f64) -> Self {
        let sleeps = time_outs.map(|t| if idle > t { 1.0 } else { 0.0 });
        Self { waits: time_outs.map(|t| narrow(over_staying(idle, stretch, t, 0.0))), sleeps }
    }

    /// Adds another's; what was there counts `keep` times as much from now on.
    pub(super) fn add(&mut self, other: &Self, keep: f32) {
        let add = |sum: &mut f32, more: &f32| *sum = *sum * keep + *more;
        self.waits.iter_mut().zip(&other.waits).for_each(|(sum, more)| add(sum, more));
        self.sleeps.iter_mut().zip(&other.sleeps).for_each(|(sum, more)| add(sum, more));
    }

    /// All of it counts `keep` times as much from now on.
    pub(super) fn wear(&mut self, keep: f32) {
        self.waits.iter_mut().chain(&mut self.sleeps).for_each(|sum| *sum *= keep);
    }

    /// The sum of the costs beyond staying on, with a break-even time.
    pub(super) fn costs(&self, break_even: f32) -> impl Iterator<Item = f32> {
        self.waits.iter().zip(&self.sleeps).map(move |(wait, sleeps)| wait + break_even * sleeps)
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
    fn sums_say_the_costs_with_any_break_even_time_also_where_a_sleep_outlasts_its_period() {
        // Every other silence ends with a packet that would not have woken the radio: it sleeps on for a minute.
        let periods: Vec<(f64, f64)> = (0..400)
            .map(|i| (0.3 * (f64::from(i % 200) * 0.04).exp(), if i % 2 == 0 { 60.0 } else { 0.0 }))
            .map(|(idle, more)| (idle, idle + more))
            .collect();
        let mut sums = Sums::NONE;
        periods.iter().for_each(|(idle, stretch)| sums.add(&Sums::of(&TIME_OUTS, *idle, *stretch), 1.0));
        for b in [22.3, 27.3, 60.0] {
            for (found, t) in sums.costs(narrow(b)).zip(TIME_OUTS) {
                let each = periods.iter().map(|(idle, stretch)| over_staying(*idle, *stretch, t, b));
                let expected: f64 = each.sum();
                assert!((f64::from(found) - expected).abs() < 0.1, "{b}, {t}: {found} against {expected}");
            }
        }
    }

    #[test]
    fn an_idle_period_costs_nothing_more_under_time_outs_that_it_does_not_outlast() {
        for (cost, t) in Sums::of(&TIME_OUTS, 10.0, 10.0).costs(22.3).zip(TIME_OUTS) {
            let expected = if t < 10.0 { t + 22.3 - 10.0 } else { 0.0 };
            assert!((f64::from(cost) - expected).abs() < 1e-5);
        }
    }
}
