//! Coverage of the intervals in simulation, and what a comparison may say.

use super::*;
use proptest::prelude::*;

/// Distributions that timings resemble: (name, median, draw). All are skewed but the first.
type Draw = fn(&mut Seeded) -> f64;
const POPULATIONS: [(&str, f64, Draw); 4] = [
    ("normal", 100.0, |r| 100.0 + 5.0 * normal(r)),
    ("lognormal", 100.0, |r| 100.0 * (0.8 * normal(r)).exp()),
    ("exponential", std::f64::consts::LN_2 * 10.0, |r| -10.0 * uniform(r).ln()),
    ("with a far tail", 100.0, |r| 100.0 + if uniform(r) < 0.2 { 40.0 } else { 2.0 } * normal(r)),
];

fn uniform(r: &mut Seeded) -> f64 {
    (r.next_u64() >> 11) as f64 / (1u64 << 53) as f64 + f64::MIN_POSITIVE
}

fn normal(r: &mut Seeded) -> f64 {
    (-2.0 * uniform(r).ln()).sqrt() * (std::f64::consts::TAU * uniform(r)).cos()
}

fn bootstrap(seed: u64) -> Bootstrap {
    Bootstrap { seed, resamples: 600 }
}

/// Of this many simulated samples, at least [`ENOUGH`] intervals must hold the truth: 95 % less three standard errors.
const TRIALS: u64 = 400;
const ENOUGH: f64 = 0.95 - 3.0 * 0.0109;

#[test]
fn the_interval_of_a_median_covers_it_as_often_as_it_says() {
    for (name, truth, draw) in POPULATIONS {
        for n in [5usize, 6, 7, 9, 12, 20, 35] {
            let mut level = 1.0;
            let covered = (0..TRIALS).filter(|trial| {
                let mut rng = Seeded::new(trial * 7919 + n as u64);
                let values: Vec<f64> = (0..n).map(|_| draw(&mut rng)).collect();
                let e = bootstrap(*trial).median(&values).expect("figures");
                level = e.level;
                (e.low..=e.high).contains(&truth)
            });
            let part = covered.count() as f64 / TRIALS as f64;
            assert!(part >= ENOUGH.min(level - 3.0 * 0.0125), "{name}, n = {n}: {part} of {level}");
        }
    }
}

#[test]
fn the_interval_of_a_paired_ratio_covers_it_though_the_machine_drifts() {
    for n in [5usize, 8, 15] {
        let covered = (0..TRIALS).filter(|trial| {
            let mut rng = Seeded::new(trial * 104_729 + n as u64);
            let pairs: Vec<(f64, f64)> = (0..n)
                .map(|round| {
                    // The machine gets slower by a third over the rounds: both of a pair feel it.
                    let speed = 1.0 + round as f64 / (3.0 * n as f64);
                    (
                        speed * 130.0 * (0.05 * normal(&mut rng)).exp(),
                        speed * 100.0 * (0.05 * normal(&mut rng)).exp(),
                    )
                })
                .collect();
            let c = bootstrap(*trial).paired(&pairs).expect("pairs");
            (c.ratio.low..=c.ratio.high).contains(&1.3)
        });
        let part = covered.count() as f64 / TRIALS as f64;
        assert!(part >= 0.9, "n = {n}: {part}");
    }
}

#[test]
fn equal_samples_are_open_nearly_always_and_unequal_ones_are_not() {
    let draw = |seed: u64, scale: f64| -> Vec<f64> {
        let mut rng = Seeded::new(seed);
        (0..12).map(|_| scale * (0.05 * normal(&mut rng)).exp()).collect()
    };
    let verdicts = |scale: f64| -> Vec<Verdict> {
        (0..TRIALS)
            .map(|t| {
                let c = bootstrap(t).unpaired(&draw(2 * t, scale), &draw(2 * t + 1, 1.0));
                c.expect("positive figures").verdict
            })
            .collect()
    };
    let part = |v: &[Verdict], of: Verdict| v.iter().filter(|w| **w == of).count() as f64 / TRIALS as f64;
    let (same, more) = (verdicts(1.0), verdicts(1.3));
    assert!(part(&same, Verdict::Open) >= ENOUGH, "{}", part(&same, Verdict::Open));
    assert!(part(&more, Verdict::Greater) >= 0.99, "{}", part(&more, Verdict::Greater));
}

#[test]
fn a_difference_too_small_to_matter_is_a_tie_however_sure() {
    let pairs: Vec<(f64, f64)> =
        (0..40).map(|n| (1005.0 + f64::from(n % 3), 1000.0 + f64::from(n % 3))).collect();
    let c = Bootstrap::new(1).paired(&pairs).expect("pairs");
    assert!(c.ratio.low > 1.0 && c.verdict == Verdict::Tie, "{c:?}");
}

#[test]
fn few_rounds_conclude_nothing_and_say_how_little_they_promise() {
    let four = Bootstrap::new(1).paired(&[(9.0, 1.0), (9.1, 1.0), (9.2, 1.0), (9.0, 1.1)]).expect("pairs");
    assert_eq!(four.verdict, Verdict::TooFew);
    let e = Bootstrap::new(1).median(&[3.0, 1.0, 2.0]).expect("figures");
    assert_eq!((e.low, e.median, e.high, e.level), (1.0, 2.0, 3.0, 0.75));
    let one = Bootstrap::new(1).median(&[3.0]).expect("a figure");
    assert_eq!((one.low, one.high, one.level), (3.0, 3.0, 0.0));
}

#[test]
fn what_cannot_be_compared_is_not() {
    let b = Bootstrap::new(1);
    assert!(b.median(&[]).is_none() && b.median(&[1.0, f64::NAN]).is_none());
    assert!(b.paired(&[(1.0, 0.0)]).is_none() && b.paired(&[]).is_none());
    assert!(b.unpaired(&[1.0], &[]).is_none() && b.unpaired(&[-1.0], &[1.0]).is_none());
}

#[test]
fn noise_is_named_and_quiet_is_not() {
    let quiet: Vec<f64> = (0..20).map(|n| 100.0 + f64::from((n * 7) % 5) * 0.1).collect();
    assert!(noise(&quiet).expect("figures").warnings.is_empty(), "{:?}", noise(&quiet));
    let drifting: Vec<f64> = (0..20).map(|n| 100.0 + f64::from(n)).collect();
    let found = noise(&drifting).expect("figures");
    assert!(found.warnings.iter().any(|w| w.contains("off the first")), "{found:?}");
    assert!(found.warnings.iter().any(|w| w.contains("resemble")), "{found:?}");
    let mut outlier = quiet.clone();
    outlier[3] = 500.0;
    assert_eq!(noise(&outlier).expect("figures").outliers, 1);
    assert!(noise(&[1.0, 2.0]).is_none() && noise(&[0.0; 8]).is_none());
}

#[test]
fn cliffs_delta_of_known_samples() {
    assert_eq!(cliffs_delta(&[1.0, 2.0], &[3.0, 4.0]), -1.0);
    assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 0.0);
    // 2 of 4 pairs above, 1 equal, 1 below.
    assert_eq!(cliffs_delta(&[2.0, 4.0], &[2.0, 3.0]), 0.25);
    let mean = Mean::of(&[2.0, 4.0, 6.0]).unwrap();
    assert_eq!((mean.mean, mean.deviation), (4.0, 2.0));
}

proptest! {
    #[test]
    fn an_interval_holds_its_median_and_stays_within_the_figures(values in prop::collection::vec(1e-9f64..1e12, 1..60), seed: u64) {
        let e = bootstrap(seed).median(&values).expect("figures");
        let (least, most) = (quantile(&values, 0.0).expect("one"), quantile(&values, 1.0).expect("one"));
        prop_assert!(least <= e.low && e.low <= e.median && e.median <= e.high && e.high <= most);
        prop_assert_eq!(bootstrap(seed).median(&values), Some(e));
    }

    #[test]
    fn turning_a_comparison_around_turns_its_result_around(pairs in prop::collection::vec((1.0f64..1e6, 1.0f64..1e6), 5..40)) {
        let turned: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let (one, other) = (bootstrap(3).paired(&pairs).expect("pairs"), bootstrap(3).paired(&turned).expect("pairs"));
        prop_assert!((one.ratio.median * other.ratio.median - 1.0).abs() < 1e-9);
        prop_assert!((one.delta + other.delta).abs() < 1e-12);
    }
}

#[test]
fn what_is_alike_within_a_round_is_not_independent() {
    // Five rounds that differ, with five bursts each that do not.
    let rounds: Vec<Vec<f64>> = (1..=5).map(|n| vec![f64::from(n); 5]).collect();
    let bursts: Vec<Vec<f64>> = rounds.concat().into_iter().map(|burst| vec![burst]).collect();
    let median_of = |drawn: &[Vec<f64>]| median(&drawn[0]).unwrap_or(f64::NAN);
    let alone = Bootstrap::new(1).rounds(&[bursts], median_of).expect("figures");
    let whole = Bootstrap::new(1).rounds(std::slice::from_ref(&rounds), median_of).expect("figures");
    assert_eq!((alone.n, whole.n, whole.value), (25, 5, 3.0));
    assert_eq!((whole.low, whole.high, whole.level), (1.0, 5.0, 0.9375), "from the least to the most round");
    assert!(alone.low > whole.low && alone.high < whole.high, "{alone:?}");
    // Rounds of both samples are drawn together: what they share cancels.
    let twice: Vec<Vec<f64>> = rounds.iter().map(|r| r.iter().map(|v| 2.0 * v).collect()).collect();
    let ratio = |drawn: &[Vec<f64>]| drawn[0][0] / drawn[1][0];
    let shared = Bootstrap::new(1).rounds(&[twice, rounds.clone()], ratio).expect("figures");
    assert_eq!((shared.low, shared.value, shared.high), (2.0, 2.0, 2.0));
    for lacking in
        [vec![], vec![rounds[..4].to_vec(), rounds.clone()], vec![vec![vec![]]], vec![vec![vec![f64::NAN]]]]
    {
        assert_eq!(Bootstrap::new(1).rounds(&lacking, median_of), None);
    }
}

#[test]
fn an_interval_says_its_level_where_rounds_are_too_few() {
    let of = |n: usize| -> Measured {
        let values: Vec<f64> = (0..n).map(|n| 1.0 + n as f64).collect();
        Bootstrap::new(1).median(&values).expect("figures").into()
    };
    assert_eq!(of(5).words(1), "3.0 [1.0, 5.0; 93.8 %]");
    assert!(!of(6).words(1).contains('%') && of(6).level == 0.95, "{}", of(6).words(1));
    let mut results = crate::results::Results::<crate::results::esp::Point>::new(Default::default());
    let point = crate::results::esp::Point::new(crate::results::esp::What::Crypto, "none", 1, 1);
    for rounds in [8, 5] {
        let mut sample = crate::results::Sample::from(point.clone());
        (1..=rounds).for_each(|n| sample.push(n, crate::results::Figures::default()));
        results.samples.push(sample);
        let few =
            (rounds == 5).then(|| "intervals of a median over 5 rounds hold 93.8 %, not 95 %".to_owned());
        assert_eq!(levels(&results), few);
    }
}

/// What is printed is what is judged: a ratio may be resolved where the change in percent that it is printed as is not.
#[test]
fn a_figure_is_shown_with_its_interval_or_is_not_resolved() {
    let of = |low, value, high| Measured { value, low, high, n: 5, level: 0.9375 };
    let times = |m: Measured| m.resolved(|r| format!("{r:.2}"), " times");
    let percent = |m: Measured| m.resolved(|p| format!("{p:.0}"), " %");
    assert_eq!(times(of(1.9, 2.0, 2.2)), "2.00 times [1.90, 2.20]");
    assert_eq!(times(of(0.4, 1.0, 2.7)), "not resolved (0.40 to 2.70 times)");
    let near_one = of(0.9, 0.97, 1.1);
    assert_eq!(times(near_one), "0.97 times [0.90, 1.10]");
    assert_eq!(percent(near_one.percent_less()), "not resolved (-10 to 10 %)");
    assert_eq!(percent(near_one.percent_more()), "not resolved (-10 to 10 %)");
    // The ends change places, and each stays an end.
    let third = of(0.6, 0.67, 0.7);
    assert_eq!(percent(third.percent_less()), "33 % [30, 40]");
    assert_eq!(percent(third.percent_more()), "-33 % [-40, -30]");
    assert_eq!((near_one.percent_less().decimals(), of(1.01, 1.02, 1.03).percent_more().decimals()), (0, 1));
    assert_eq!(times(Measured { n: 4, ..third }), "too few rounds");
    assert_eq!(times(Measured { high: f64::INFINITY, ..third }), "not resolved");
    // Half an interval is 2.776 / sqrt(5) deviations.
    let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("figures").measured(0.0);
    assert!((mean.high - 4.963).abs() < 1e-3 && (mean.low - 1.037).abs() < 1e-3, "{mean:?}");
    assert_eq!(Mean::of(&[0.0, 0.0, 0.0, 0.0, 5.0]).expect("figures").measured(0.0).low, 0.0);
}

#[test]
fn a_summary_is_the_middle_and_the_ends() {
    let of = |figures: &[f64]| Summary::of(figures.iter().copied());
    assert_eq!(of(&[3.0, 1.0, 2.0]), Summary { median: 2.0, least: 1.0, most: 3.0 });
    assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    assert_eq!(of(&[7.0]).percent(), 0.0);
    assert!(of(&[]).median.is_nan());
}

/// An interval as a comparison has it, of rounds enough.
fn ratio(low: f64, high: f64) -> Estimate {
    Estimate { median: f64::midpoint(low, high), low, high, level: 0.95, n: 20 }
}

#[test]
fn a_verdict_is_the_interval_s_and_nothing_else() {
    for (low, high, expected) in [
        (0.90, 0.95, Verdict::Less),
        (0.97, 0.995, Verdict::Less),
        (0.95, 1.0, Verdict::Open),
        (0.985, 1.005, Verdict::Open),
        (0.9901, 1.0099, Verdict::Tie),
        (0.9901, 1.0101, Verdict::Open),
        (1.0, 1.05, Verdict::Open),
        (1.005, 1.03, Verdict::Greater),
        (1.05, 1.10, Verdict::Greater),
    ] {
        assert_eq!(verdict(&ratio(low, high)), expected, "[{low}, {high}]");
    }
    // As few as the fewer of two samples has.
    let (few, many) = ([9.0, 9.1, 9.2, 9.3], [1.0; 20]);
    assert_eq!(Bootstrap::new(1).unpaired(&few, &many).map(|c| c.verdict), Some(Verdict::TooFew));
}

#[test]
fn figures_are_resolved_up_to_an_interval_as_wide_as_themselves() {
    let of = |low, value, high| Measured { value, low, high, n: 20, level: 0.95 }.is_resolved();
    assert!(of(1.5, 2.0, 3.5) && of(-3.5, -2.0, -1.5));
    assert!(!of(1.5, 2.0, 3.51) && !of(-3.51, -2.0, -1.5));
}

#[test]
fn ratios_have_a_geometric_mean() {
    let of = |ratios: &[f64]| geometric_mean(ratios.iter().copied());
    assert!(of(&[1.0, 4.0]).is_some_and(|mean| (mean - 2.0).abs() < 1e-12));
    assert!(of(&[0.5, 2.0, 1.0]).is_some_and(|mean| (mean - 1.0).abs() < 1e-12));
    assert_eq!(of(&[]), None);
}

#[test]
fn sums_of_clusters_are_divided_and_not_their_ratios_averaged() {
    let b = Bootstrap::new(1);
    let all = b.clusters(&[(10.0, 1.0), (0.0, 9.0)]).expect("clusters");
    assert_eq!((all.value, all.n, all.level), (1.0, 2, 0.95));
    let same = b.clusters(&[(3.0, 2.0); 6]).expect("clusters");
    assert_eq!((same.low, same.value, same.high), (1.5, 1.5, 1.5));
    assert!(b.clusters(&[]).is_none() && b.clusters(&[(1.0, 0.0)]).is_none());
}

#[test]
fn of_very_many_rounds_two_thousand_are_resampled() {
    let of = |n: u32| {
        let values: Vec<f64> = (0..n).map(f64::from).collect();
        Bootstrap::new(1).median(&values).map(|e| e.n)
    };
    assert_eq!([of(2_000), of(4_000), of(4_001)], [Some(2_000), Some(2_000), Some(1_334)]);
}

/// Each warning on both sides of its limit.
#[test]
fn noise_begins_where_it_is_said_to_begin() {
    let warns = |values: &[f64], word: &str| {
        let found = noise(values).expect("figures");
        found.warnings.iter().any(|w| w.contains(word))
    };
    let turns = |high: f64| -> Vec<f64> { (0..20).map(|n| if n % 2 == 0 { 100.0 } else { high }).collect() };
    assert!(warns(&turns(111.0), "spreads over") && !warns(&turns(109.0), "spreads over"));
    let halves = |last: f64| [[100.0, 100.1].repeat(5), [last, last + 0.1].repeat(5)].concat();
    assert!(warns(&halves(104.0), "off the first") && !warns(&halves(102.0), "off the first"));
    // Halves whose medians differ as much, and whose rounds lie among each other.
    let mixed = [[100.0; 6].to_vec(), vec![110.0; 4], vec![104.0; 6], vec![90.0; 4]].concat();
    assert!(!warns(&mixed, "off the first"), "{:?}", noise(&mixed));
    // Quartiles of 100 and 104, so that 88 and 116 are three of their ranges outside.
    let outliers = |pair: [f64; 2]| {
        let values = [[100.0, 104.0].repeat(9), pair.to_vec()].concat();
        noise(&values).expect("figures").outliers
    };
    assert_eq!([outliers([115.0, 117.0]), outliers([87.0, 89.0]), outliers([88.0, 116.0])], [1, 1, 0]);
    // Runs of the same value: of 15 neighbours 12 and 11 are alike, r is 9/16 and 7/16, and of 16 rounds half counts.
    let runs = |lengths: &[usize]| -> Vec<f64> {
        let run = |(n, length): (usize, &usize)| vec![if n % 2 == 0 { 101.0 } else { 99.0 }; *length];
        lengths.iter().enumerate().flat_map(run).collect()
    };
    assert!(warns(&runs(&[4, 4, 4, 4]), "resemble") && !warns(&runs(&[3, 4, 3, 4, 2]), "resemble"));
    assert_eq!(noise(&turns(101.0)[..9]).map(|n| n.autocorrelation.is_some()), Some(false));
    assert_eq!(noise(&turns(101.0)[..10]).map(|n| n.autocorrelation.is_some()), Some(true));
}
