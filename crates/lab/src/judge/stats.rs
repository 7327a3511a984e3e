//! What may be concluded from raw figures: medians with intervals, comparisons that admit a tie, and noise. Owns the methods
//! and their limits; must never call a difference real that the rounds do not show.
//!
//! - A figure is the **median** over rounds. Nothing is left out: outliers are counted ([`Noise::outliers`]), and the median
//!   and its interval are chosen because a few of them do no harm.
//! - Its **interval** is a percentile bootstrap (2,000 seeded resamples), expanded for small samples: the plain one is
//!   too narrow by a factor of about sqrt((n - 1) / n) z / t, so the tails are cut at Phi(-sqrt(n / (n - 1)) t) instead of at
//!   2.5 % (Hesterberg, *What Teachers Should Know About the Bootstrap*, 2015). BCa is no alternative here: its
//!   acceleration is estimated by a jackknife, which is inconsistent for a median. A simulation in the tests
//!   checks the coverage. Below six rounds no interval of a median can promise 95 %: [`Estimate::level`] says what it can.
//! - Two samples are **compared** by the ratio of their rounds, pair by pair, where they were interleaved, else by the ratio
//!   of their medians; Cliff's delta goes along as an effect size that knows no unit. It is a **tie** if the interval lies within
//!   1 % of 1: nothing that matters; and **open** if it contains 1 and more than that: nothing was shown.
//! - Clients differ, and what one does in several sessions is alike: figures over sessions are resampled by client
//!   ([`Bootstrap::clusters`]), several policies on the same clients.
//! - Intervals are for one comparison each; a table of twenty has, by chance, one that errs.

use dormouse_report::percent;
use dormouse_sansio::{Entropy as _, Seeded};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

use crate::results::esp::Metric;
use crate::results::{Point, Results, Sample};

/// Rounds below which nothing is concluded.
pub const MIN_ROUNDS: usize = 5;
/// A ratio within 1 ± this is no difference that matters.
pub const NEGLIGIBLE: f64 = 0.01;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 2_000;
/// The confidence that intervals aim at.
pub(crate) const LEVEL: f64 = 0.95;
/// More rounds than these are not resampled: the interval is from this many of them, spread evenly.
const MAX_RESAMPLED: usize = 2_000;

/// A median with its interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence of the interval: 0.95, or 1 - 2^(1-n) where n rounds cannot give that much.
    pub level: f64,
    /// Rounds.
    pub n: usize,
}

impl Estimate {
    /// Whether there were rounds enough to conclude anything.
    #[must_use]
    pub const fn is_enough(&self) -> bool {
        self.n >= MIN_ROUNDS
    }
}

/// Any figure with its interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// The figure.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// On how many independent ones it rests: rounds, clients.
    pub n: usize,
    /// Confidence of the interval: as [`Estimate::level`].
    pub level: f64,
}

impl Measured {
    /// Whether it may decide anything.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.n >= MIN_ROUNDS && [self.value, self.low, self.high].iter().all(|v| v.is_finite())
    }

    /// Whether it is a figure to show: its interval is no wider than itself.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        self.is_told() && self.high - self.low <= self.value.abs()
    }

    /// The figure in words, with its interval: `2.66 times [2.61, 2.70]`, `not resolved (0.4 to 2.7 times)` where it is wider than the figure.
    /// What is printed must be what is judged: of a change in percent, [`percent_more`](Self::percent_more) or
    /// [`percent_less`](Self::percent_less) first.
    #[must_use]
    pub fn resolved(&self, shown: impl Fn(f64) -> String, unit: &str) -> String {
        let [value, low, high] = [self.value, self.low, self.high].map(shown);
        if self.n < MIN_ROUNDS {
            "too few rounds".to_owned()
        } else if self.is_resolved() {
            format!("{value}{unit} [{low}, {high}]")
        } else if self.is_told() {
            format!("not resolved ({low} to {high}{unit})")
        } else {
            "not resolved".to_owned()
        }
    }

    /// Of a ratio: by how many percent the first is more.
    #[must_use]
    pub fn percent_more(self) -> Self {
        let more = |ratio: f64| 100.0 * (ratio - 1.0);
        Self { value: more(self.value), low: more(self.low), high: more(self.high), ..self }
    }

    /// Of a ratio: by how many percent the first is less. The ends of the interval change places.
    #[must_use]
    pub fn percent_less(self) -> Self {
        let less = |ratio: f64| 100.0 * (1.0 - ratio);
        Self { value: less(self.value), low: less(self.high), high: less(self.low), ..self }
    }

    /// Of a ratio: the second over the first. The ends of the interval change places.
    #[must_use]
    pub(crate) fn inverse(self) -> Self {
        Self { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low, ..self }
    }

    /// Decimals of percents that differ by less than ten from none: with none of them, `0 % [0, 0]` would be all that is seen of many.
    #[must_use]
    pub(crate) fn decimals(&self) -> usize {
        usize::from(self.low.abs().max(self.high.abs()) < 10.0)
    }

    /// With so many decimals: `47.3 [45.1, 49.6]`; with its level where that is below 95 %: `47.3 [45.1, 49.6; 93.8 %]`.
    #[must_use]
    pub fn words(&self, decimals: usize) -> String {
        let level = if self.level < LEVEL { format!("; {}", percent(self.level)) } else { String::new() };
        format!("{:.decimals$} [{:.decimals$}, {:.decimals$}{level}]", self.value, self.low, self.high)
    }
}

impl From<Estimate> for Measured {
    fn from(e: Estimate) -> Self {
        Self { value: e.median, low: e.low, high: e.high, n: e.n, level: e.level }
    }
}

/// How two samples compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The first has less.
    Less,
    /// The first has more.
    Greater,
    /// A difference that matters was ruled out.
    Tie,
    /// Nothing was shown.
    Open,
    /// Fewer than [`MIN_ROUNDS`] rounds.
    TooFew,
}

/// Two samples compared.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The first over the second.
    pub ratio: Estimate,
    /// Cliff's delta: how much likelier a round of the first exceeds one of the second than the reverse, -1 to 1.
    pub delta: f64,
    /// What follows.
    pub verdict: Verdict,
    /// Whether rounds were paired.
    pub paired: bool,
}

impl Comparison {
    /// From the logarithm of the ratio.
    fn of(logs: Estimate, a: &[f64], b: &[f64], paired: bool) -> Self {
        let ratio =
            Estimate { median: logs.median.exp(), low: logs.low.exp(), high: logs.high.exp(), ..logs };
        Self { ratio, delta: cliffs_delta(a, b), verdict: verdict(&ratio), paired }
    }
}

/// Makes intervals; the same seed and figures give the same interval.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap {
    seed: u64,
    resamples: usize,
}

impl Bootstrap {
    /// With 2,000 resamples.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, resamples: RESAMPLES }
    }

    /// The median of figures, with its interval. `None` without any, or if one is not finite.
    #[must_use]
    pub fn median(&self, values: &[f64]) -> Option<Estimate> {
        let values = thinned(values)?;
        let mut rng = Seeded::new(self.seed);
        let mut drawn = Vec::with_capacity(values.len());
        let mut medians: Vec<f64> =
            (0..self.resamples).map(|_| resampled(&values, &mut rng, &mut drawn)).collect();
        Some(estimate(median(&values)?, &mut medians, values.len()))
    }

    /// The ratio of pairs, first over second. `None` without any, or if a figure is not positive.
    #[must_use]
    pub fn paired(&self, pairs: &[(f64, f64)]) -> Option<Comparison> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        if !pairs.iter().all(|(a, b)| positive(*a) && positive(*b)) {
            return None;
        }
        // The logarithm makes the ratio symmetric: a over b is the inverse of b over a, interval included.
        let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        Some(Comparison::of(self.median(&logs)?, &a, &b, true))
    }

    /// The ratio of medians, first over second, of samples that were not measured side by side. `None` without figures, or if
    /// one is not positive.
    #[must_use]
    pub fn unpaired(&self, a: &[f64], b: &[f64]) -> Option<Comparison> {
        let (a, b) = (thinned(a)?, thinned(b)?);
        if a.iter().chain(&b).any(|v| *v <= 0.0) {
            return None;
        }
        let mut rng = Seeded::new(self.seed);
        let mut drawn = Vec::with_capacity(a.len().max(b.len()));
        let mut logs: Vec<f64> = (0..self.resamples)
            .map(|_| resampled(&a, &mut rng, &mut drawn).ln() - resampled(&b, &mut rng, &mut drawn).ln())
            .collect();
        let of_logs = estimate((median(&a)? / median(&b)?).ln(), &mut logs, a.len().min(b.len()));
        Some(Comparison::of(of_logs, &a, &b, false))
    }

    /// What follows from several samples whose rounds were measured together, by the figures of each sample in each round: rounds are drawn
    /// whole, the same ones for every sample, for what is alike within a round must not count as independent. `None` without rounds, if
    /// a sample lacks one or a figure is not finite.
    #[must_use]
    pub fn rounds(
        &self,
        samples: &[Vec<Vec<f64>>],
        statistic: impl Fn(&[Vec<f64>]) -> f64,
    ) -> Option<Measured> {
        let n = samples.first()?.len();
        let whole = |s: &Vec<Vec<f64>>| {
            s.len() == n && s.iter().all(|r| !r.is_empty() && r.iter().all(|v| v.is_finite()))
        };
        if n == 0 || !samples.iter().all(whole) {
            return None;
        }
        let of = |rounds: &[usize]| {
            let drawn =
                |s: &Vec<Vec<f64>>| rounds.iter().filter_map(|r| s.get(*r)).flatten().copied().collect();
            statistic(&samples.iter().map(drawn).collect::<Vec<_>>())
        };
        let mut rng = Seeded::new(self.seed);
        let mut all: Vec<f64> =
            (0..self.resamples).map(|_| of(&(0..n).map(|_| draw(&mut rng, n)).collect::<Vec<_>>())).collect();
        Some(estimate(of(&(0..n).collect::<Vec<_>>()), &mut all, n).into())
    }

    /// The sum of first figures over that of second ones, of clusters (a client's sessions) that are resampled whole. So a mean over
    /// sessions has the sum of a client's sessions first and their number second; a difference of two policies, that of their sums.
    /// `None` without clusters or if the second figures are all 0.
    #[must_use]
    pub fn clusters(&self, clusters: &[(f64, f64)]) -> Option<Measured> {
        let of = |(a, b): (f64, f64)| a / b;
        let sum = |(a, b): (f64, f64), (c, d): &(f64, f64)| (a + c, b + d);
        let value = of(clusters.iter().fold((0.0, 0.0), sum));
        let mut rng = Seeded::new(self.seed);
        let mut all: Vec<f64> = (0..self.resamples)
            .map(|_| {
                of((0..clusters.len())
                    .fold((0.0, 0.0), |s, _| sum(s, &clusters[draw(&mut rng, clusters.len())])))
            })
            .collect();
        // No median: few clusters make its interval wide, and its level no less.
        let whole = || Estimate { level: LEVEL, ..estimate(value, &mut all, clusters.len()) };
        value.is_finite().then(whole).map(Into::into)
    }

    /// A figure of a sample.
    #[must_use]
    pub fn figure(&self, sample: &Sample, metric: Metric) -> Option<Estimate> {
        self.median(&sample.values(metric))
    }

    /// A figure of two samples, first over second: pair by pair if enough rounds have both.
    #[must_use]
    pub fn compare(&self, a: &Sample, b: &Sample, metric: Metric) -> Option<Comparison> {
        let pairs = a.paired(b, metric);
        if pairs.len() >= MIN_ROUNDS {
            self.paired(&pairs)
        } else {
            self.unpaired(&a.values(metric), &b.values(metric))
        }
    }
}

/// What intervals of medians over a file's rounds hold, in words, where some are of too few rounds for 95 %.
#[must_use]
pub fn levels<P: Point>(results: &Results<P>) -> Option<String> {
    let fewest = results.samples.iter().map(|s| s.rounds.len()).filter(|n| *n > 1).min()?;
    let level = level(fewest);
    (level < LEVEL)
        .then(|| format!("intervals of a median over {fewest} rounds hold {}, not 95 %", percent(level)))
}

/// The median; `None` without figures.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile `q`, by linear interpolation between order statistics; `None` without figures.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    of_sorted(&sorted, q)
}

/// The geometric mean of ratios; `None` without any.
#[must_use]
pub fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = ratios.fold((0.0, 0u32), |(s, n), r| (s + r.ln(), n + 1));
    (n > 0).then(|| (sum / f64::from(n)).exp())
}

/// The median of some figures, and their whole spread, where nothing is concluded from it. The unit is the caller's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Summary {
    /// Of any number of figures; all NaN of none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let figures: Vec<f64> = figures.into_iter().collect();
        let at = |q| quantile(&figures, q).unwrap_or(f64::NAN);
        Self { median: at(0.5), least: at(0.0), most: at(1.0) }
    }

    /// Half of the spread as a percentage of the median: how much the machine was at peace.
    #[must_use]
    pub fn percent(&self) -> f64 {
        50.0 * (self.most - self.least) / self.median
    }
}

/// A mean with its spread, as papers report them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mean {
    /// Figures.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Standard deviation of one figure (n - 1); 0 for a single one.
    pub deviation: f64,
}

impl Mean {
    /// Of these figures; `None` without any.
    ///
    /// ```
    /// let m = dormouse_lab::judge::stats::Mean::of(&[1.0, 2.0, 3.0]).unwrap();
    /// assert_eq!((m.mean, m.deviation), (2.0, 1.0));
    /// assert!((m.half_interval() - 2.484).abs() < 1e-3); // 4.303 / sqrt(3)
    /// ```
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        (count > 0).then_some(Self { count, mean, deviation })
    }

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { mean: self.mean * factor, deviation: self.deviation * factor, ..self }
    }

    /// With its 95 % interval (Student's t), which does not reach below `least`: 0 for what cannot be negative.
    #[must_use]
    pub fn measured(&self, least: f64) -> Measured {
        let (value, half) = (self.mean, self.half_interval());
        Measured { value, low: (value - half).max(least), high: value + half, n: self.count, level: LEVEL }
    }

    /// Half the width of the 95 % interval of the mean (Student's t). Infinite for a single figure.
    #[must_use]
    pub fn half_interval(&self) -> f64 {
        self.half_interval_of(self.deviation)
    }

    /// The same if one figure is known to spread by `deviation`.
    #[must_use]
    pub fn half_interval_of(&self, deviation: f64) -> f64 {
        if self.count < 2 {
            return f64::INFINITY;
        }
        student(self.count - 1) * deviation / (self.count as f64).sqrt()
    }
}

/// What leaves 2.5 % above it of Student's t distribution with `degrees` of freedom.
fn student(degrees: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees as f64).map_or(f64::INFINITY, |t| t.inverse_cdf((1.0 + LEVEL) / 2.0))
}

/// Cliff's delta of `a` over `b`, -1 to 1; 0 if one is empty.
#[must_use]
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    let mut sorted = b.to_vec();
    sorted.sort_by(f64::total_cmp);
    let dominance: f64 = a
        .iter()
        .map(|x| {
            let (below, not_above) = (sorted.partition_point(|y| y < x), sorted.partition_point(|y| y <= x));
            below as f64 - (sorted.len() - not_above) as f64
        })
        .sum();
    dominance / (a.len() as f64 * b.len() as f64)
}

fn of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(low + (high - low) * at.fract())
}

/// The figures, or every so-manyth of very many; `None` without any, or if one is not finite.
fn thinned(values: &[f64]) -> Option<Vec<f64>> {
    let step = values.len().div_ceil(MAX_RESAMPLED).max(1);
    let whole = !values.is_empty() && values.iter().all(|v| v.is_finite());
    whole.then(|| values.iter().step_by(step).copied().collect())
}

fn draw(rng: &mut Seeded, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).unwrap_or(0)
}

/// The median of one resample, which is drawn into `drawn`.
fn resampled(values: &[f64], rng: &mut Seeded, drawn: &mut Vec<f64>) -> f64 {
    let n = values.len() as u64;
    drawn.clear();
    drawn.extend((0..n).filter_map(|_| values.get(usize::try_from(rng.below(n)).ok()?)));
    let middle = drawn.len() / 2;
    let even = drawn.len().is_multiple_of(2);
    let (below, at, _) = drawn.select_nth_unstable_by(middle, f64::total_cmp);
    let at = *at;
    let before = below.iter().copied().max_by(f64::total_cmp).filter(|_| even);
    before.map_or(at, |before| f64::midpoint(before, at))
}

/// The confidence that an interval of a median of so many can have: it reaches at most from the least to the most of them.
pub(crate) fn level(n: usize) -> f64 {
    LEVEL.min(1.0 - 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX) - 1))
}

/// The interval from the resampled statistics.
fn estimate(median: f64, resampled: &mut [f64], n: usize) -> Estimate {
    resampled.sort_by(f64::total_cmp);
    let tail = tail(n);
    let end = |q| of_sorted(resampled, q).unwrap_or(median);
    Estimate { median, low: end(tail).min(median), high: end(1.0 - tail).max(median), level: level(n), n }
}

/// What is cut off at each end of the resampled statistics, for `n` figures.
fn tail(n: usize) -> f64 {
    let degrees = n.saturating_sub(1).max(1);
    let inflation = ((degrees + 1) as f64 / degrees as f64).sqrt();
    Normal::standard().cdf(-(student(degrees) * inflation))
}

fn verdict(ratio: &Estimate) -> Verdict {
    let negligible = ratio.low > 1.0 - NEGLIGIBLE && ratio.high < 1.0 + NEGLIGIBLE;
    if !ratio.is_enough() {
        Verdict::TooFew
    } else if negligible {
        Verdict::Tie
    } else if ratio.low <= 1.0 && ratio.high >= 1.0 {
        Verdict::Open
    } else if ratio.high < 1.0 {
        Verdict::Less
    } else {
        Verdict::Greater
    }
}

/// How far the rounds of one sample can be trusted.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Noise {
    /// Interquartile range over the median.
    pub spread: f64,
    /// Median of the last half of the rounds over that of the first, less 1.
    pub drift: f64,
    /// Correlation of each round with the next; absent below 10 rounds.
    pub autocorrelation: Option<f64>,
    /// Rounds further than three interquartile ranges outside of the quartiles (Tukey's far outliers). They are counted and kept.
    pub outliers: usize,
    /// What a reader must be told, in words. Empty for a quiet sample.
    pub warnings: Vec<String>,
}

/// Spread from which on a sample counts as noisy.
const NOISY_SPREAD: f64 = 0.10;
/// Drift from which on it counts, if the halves also hardly overlap.
const NOISY_DRIFT: f64 = 0.03;

/// The noise of a sample's rounds, in their order. `None` below four rounds or for a median of 0.
#[must_use]
pub fn noise(values: &[f64]) -> Option<Noise> {
    let (q1, middle, q3) = (quantile(values, 0.25)?, median(values)?, quantile(values, 0.75)?);
    if values.len() < 4 || middle == 0.0 {
        return None;
    }
    let (first, last) = values.split_at(values.len() / 2);
    let mut noise = Noise {
        spread: ((q3 - q1) / middle).abs(),
        drift: median(last)? / median(first)? - 1.0,
        autocorrelation: (values.len() >= 10).then(|| autocorrelation(values)).flatten(),
        outliers: values.iter().filter(|v| **v < q1 - 3.0 * (q3 - q1) || **v > q3 + 3.0 * (q3 - q1)).count(),
        warnings: Vec::new(),
    };
    if !noise.drift.is_finite() {
        noise.drift = 0.0;
    }
    if noise.spread > NOISY_SPREAD {
        noise
            .warnings
            .push(format!("the middle half of the rounds spreads over {:.0} %", 100.0 * noise.spread));
    }
    if noise.drift.abs() > NOISY_DRIFT && cliffs_delta(last, first).abs() >= 0.8 {
        noise
            .warnings
            .push(format!("the last half of the rounds is {:+.0} % off the first", 100.0 * noise.drift));
    }
    // Of independent rounds, one sample in twenty exceeds this.
    if let Some(r) = noise.autocorrelation.filter(|r| *r > 2.0 / (values.len() as f64).sqrt()) {
        noise.warnings.push(format!("rounds resemble the one before (r = {r:.2}): intervals are too narrow"));
    }
    if noise.outliers > 0 {
        noise.warnings.push(format!("{} of {} rounds lie far outside", noise.outliers, values.len()));
    }
    Some(noise)
}

/// Correlation of each figure with the next; `None` if they do not vary.
fn autocorrelation(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let all: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let next: f64 = values.windows(2).map(|w| w.iter().map(|v| v - mean).product::<f64>()).sum();
    (all > 0.0).then_some(next / all)
}

#[cfg(test)]
mod tests;
