//! What measurements say about a claim. Owns the statistics ([`stats`]), the claims, what they expect and their findings; must never
//! decide without figures that can be told apart.
//!
//! A claim states beforehand in which range its figure must lie ([`Expect`]): an equivalence margin around the paper's figure, or what is
//! above or below a limit. Then its interval decides, as two one-sided tests do: all of it inside **confirms**, all of it outside
//! **contradicts**, anything else is **undecided**. So an interval that contains 1 neither contradicts "faster" nor confirms "not slower".

pub mod stats;

use dormouse_report::digits;
use serde::Serialize;

use stats::{Comparison, Measured, NEGLIGIBLE};

/// Something that a paper claims, beside what came out here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Claim {
    /// Where in the paper.
    pub place: String,
    /// What is claimed, in our words.
    pub claim: String,
    /// The paper's figure.
    pub paper: String,
    /// Our figure, with its interval.
    pub ours: String,
    /// What was expected of the figures that decide; empty where several comparisons do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// The figures that decide, each with its range; empty where several comparisons do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Decides>,
    /// What the measurements say about why; empty if nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Whether ours goes the way of the claim; absent where that is no question of yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

impl Claim {
    /// Without a finding.
    #[must_use]
    pub fn new(place: &str, claim: &str, paper: &str, ours: String) -> Self {
        let (place, claim, paper) = (place.to_owned(), claim.to_owned(), paper.to_owned());
        let (expected, why) = (String::new(), String::new());
        Self { place, claim, paper, ours, expected, figures: Vec::new(), why, finding: None }
    }

    /// With this finding.
    #[must_use]
    pub fn found(self, finding: Finding) -> Self {
        Self { finding: Some(finding), ..self }
    }

    /// With what the measurements say about why it is not as claimed, if it is not.
    #[must_use]
    pub fn because(self, why: String) -> Self {
        match self.finding {
            None | Some(Finding::Confirmed | Finding::NotMeasurable) => self,
            _ => Self { why, ..self },
        }
    }

    /// With the finding of one figure, and what was expected of it.
    #[must_use]
    pub fn judged(self, expect: Expect, ours: Option<Measured>) -> Self {
        self.judged_all(&[(expect, ours)])
    }

    /// The same of several figures, which must all be as expected.
    #[must_use]
    pub fn judged_all(self, figures: &[(Expect, Option<Measured>)]) -> Self {
        self.decided(figures.iter().map(|(expect, ours)| Decides::new(*expect, *ours)).collect())
    }

    /// The same, of figures that know more of themselves.
    #[must_use]
    pub fn decided(self, figures: Vec<Decides>) -> Self {
        let alike = figures.chunk_by(|a, b| a.expect == b.expect).map(|alike| match alike {
            [first, _, ..] if alike.len() == figures.len() => format!("each {}", first.expect.words()),
            [first, _, ..] => format!("{} of them {}", alike.len(), first.expect.words()),
            _ => alike.iter().map(|f| f.expect.words()).collect(),
        });
        let expected: Vec<String> = alike.collect();
        let finding = Finding::each(figures.iter().map(Decides::finding));
        Self { expected: expected.join("; "), figures, ..self.found(finding) }
    }
}

/// A figure that decides about a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Decides {
    /// Where it must lie.
    pub expect: Expect,
    /// Where it lies; absent if it was not measured.
    pub ours: Option<Measured>,
    /// Whether it is a ratio of which a direction is asked: within [`NEGLIGIBLE`] of 1 it has none.
    #[serde(skip_serializing_if = "is_not")]
    pub tie: bool,
    /// From what in the raw data it follows, where that is so simple.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<From>,
}

/// From which samples of the raw data a figure follows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct From {
    /// By their places in the file, from 0: one alone, the first over the second, or the ratio of the first two over that of the others.
    pub samples: Vec<usize>,
    /// What of them: a [`Metric`](crate::results::esp::Metric) in its word, or as the file's description has it.
    pub figure: &'static str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_not(flag: &bool) -> bool {
    !*flag
}

impl Decides {
    /// A figure, and where it must lie.
    #[must_use]
    pub const fn new(expect: Expect, ours: Option<Measured>) -> Self {
        Self { expect, ours, tie: false, from: None }
    }

    /// The same of a comparison. A difference that was shown not to matter confirms no direction.
    #[must_use]
    pub fn ratio(expect: Expect, comparison: Option<&Comparison>) -> Self {
        let tie = expect == Expect::LESS || expect == Expect::MORE;
        Self { tie, ..Self::new(expect, comparison.map(|c| c.ratio.into())) }
    }

    /// With the samples from which it follows.
    #[must_use]
    pub fn from(self, samples: Option<Vec<usize>>, figure: &'static str) -> Self {
        Self { from: samples.map(|samples| From { samples, figure }), ..self }
    }

    /// What it says.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let tie = |m: &Measured| m.low > 1.0 - NEGLIGIBLE && m.high < 1.0 + NEGLIGIBLE;
        if self.tie && self.ours.as_ref().is_some_and(|m| m.is_told() && tie(m)) {
            return Finding::Undecided;
        }
        self.expect.judge(self.ours)
    }
}

/// The range, without its ends, in which a figure must lie for a claim to hold.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Expect {
    /// JSON has no infinity: null is none.
    low: f64,
    high: f64,
}

impl Expect {
    /// Of a ratio: the first has less.
    pub const LESS: Self = Self::below(1.0);
    /// The first has more.
    pub const MORE: Self = Self::above(1.0);
    /// No difference that matters.
    pub const TIE: Self = Self::about(1.0, NEGLIGIBLE);
    /// Not more than what does not matter.
    pub const NOT_MORE: Self = Self::below(1.0 + NEGLIGIBLE);
    /// Not less than what does not matter.
    pub const NOT_LESS: Self = Self::above(1.0 - NEGLIGIBLE);

    /// Below a limit.
    #[must_use]
    pub const fn below(high: f64) -> Self {
        Self { low: f64::NEG_INFINITY, high }
    }

    /// Above a limit.
    #[must_use]
    pub const fn above(low: f64) -> Self {
        Self { low, high: f64::INFINITY }
    }

    /// As much as stated, give or take a margin.
    #[must_use]
    pub const fn about(value: f64, margin: f64) -> Self {
        Self { low: value - margin, high: value + margin }
    }

    /// Between two limits.
    #[must_use]
    pub const fn between(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// As much as stated, within a factor.
    #[must_use]
    pub const fn within(value: f64, factor: f64) -> Self {
        Self { low: value / factor, high: value * factor }
    }

    /// What a figure with this interval says. Nothing if it is no number or from fewer than [`stats::MIN_ROUNDS`].
    #[must_use]
    pub fn judge(self, ours: Option<Measured>) -> Finding {
        let Some(ours) = ours.filter(Measured::is_told) else { return Finding::NotMeasurable };
        if ours.low > self.low && ours.high < self.high {
            Finding::Confirmed
        } else if ours.high <= self.low || ours.low >= self.high {
            Finding::Contradicted
        } else {
            Finding::Undecided
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> String {
        let (low, high) = (digits(self.low), digits(self.high));
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) => format!("{low} to {high}"),
            (true, false) => format!("above {low}"),
            _ => format!("below {high}"),
        }
    }
}

/// The least and the most of the points at which something was measured; none where they are one. Nothing grows from a point to itself, and
/// its ratio to itself is always 1: what is said of a range is not measurable with fewer than two distinct points.
#[must_use]
pub fn ends<T: Ord + Copy>(points: impl IntoIterator<Item = T>) -> Option<[T; 2]> {
    let mut points = points.into_iter();
    let first = points.next()?;
    let [least, most] = points.fold([first; 2], |[least, most], point| [least.min(point), most.max(point)]);
    (least < most).then_some([least, most])
}

/// What came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Every comparison goes the claim's way.
    Confirmed,
    /// Some do.
    Partly,
    /// None does, and some go the other way.
    Contradicted,
    /// Nothing was shown either way.
    Undecided,
    /// There is nothing to compare.
    NotMeasurable,
}

impl Finding {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Partly => "partly confirmed",
            Self::Contradicted => "contradicted",
            Self::Undecided => "undecided",
            Self::NotMeasurable => "not measurable",
        }
    }

    /// Of a claim that several comparisons test. What could not be measured says nothing.
    #[must_use]
    pub fn all(findings: impl IntoIterator<Item = Self>) -> Self {
        let told: Vec<Self> = findings.into_iter().filter(|f| *f != Self::NotMeasurable).collect();
        let any = |finding| told.contains(&finding);
        match () {
            () if told.is_empty() => Self::NotMeasurable,
            () if told.iter().all(|f| *f == Self::Confirmed) => Self::Confirmed,
            () if any(Self::Confirmed) || any(Self::Partly) => Self::Partly,
            () if any(Self::Contradicted) => Self::Contradicted,
            () => Self::Undecided,
        }
    }

    /// The same of figures that must each be as expected: what was not measured of one is not confirmed for all.
    #[must_use]
    pub fn each(findings: impl IntoIterator<Item = Self>) -> Self {
        let findings: Vec<Self> = findings.into_iter().collect();
        match Self::all(findings.iter().copied()) {
            Self::Confirmed if findings.contains(&Self::NotMeasurable) => Self::Partly,
            found => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Finding::{Confirmed, Contradicted, NotMeasurable, Partly, Undecided};
    use super::stats::Bootstrap;
    use super::{Claim, Decides, Expect, Finding, Measured, ends};

    fn of(low: f64, value: f64, high: f64) -> Option<Measured> {
        Some(Measured { value, low, high, n: 20, level: 0.95 })
    }

    #[test]
    fn an_interval_confirms_inside_contradicts_outside_and_is_undecided_across() {
        for (expect, low, value, high, finding) in [
            (Expect::LESS, 0.90, 0.95, 0.99, Confirmed),
            (Expect::LESS, 0.95, 0.99, 1.03, Undecided),
            (Expect::LESS, 1.02, 1.05, 1.08, Contradicted),
            // Contains 1 and more than what does not matter: neither "not slower" nor its opposite.
            (Expect::NOT_LESS, 0.95, 1.00, 1.05, Undecided),
            (Expect::NOT_LESS, 0.995, 1.00, 1.005, Confirmed),
            (Expect::NOT_LESS, 0.90, 0.95, 0.98, Contradicted),
            (Expect::TIE, 0.995, 1.0, 1.005, Confirmed),
            (Expect::TIE, 0.98, 1.0, 1.02, Undecided),
            // By size, and by sign.
            (Expect::about(33.0, 5.0), 30.0, 33.0, 36.0, Confirmed),
            (Expect::about(33.0, 5.0), 1.0, 2.0, 3.0, Contradicted),
            (Expect::above(0.0), -6.3, -2.8, -1.0, Contradicted),
            // More by what does not matter is not more; by a little above it, it is.
            (Expect::NOT_MORE, 0.995, 1.0, 1.009, Confirmed),
            (Expect::NOT_MORE, 1.0, 1.005, 1.02, Undecided),
            (Expect::NOT_MORE, 1.012, 1.02, 1.03, Contradicted),
            (Expect::TIE, 0.985, 1.0, 1.015, Undecided),
            // By a factor, either way.
            (Expect::within(12.0, 1.5), 8.1, 12.0, 17.9, Confirmed),
            (Expect::within(12.0, 1.5), 7.9, 12.0, 17.9, Undecided),
            (Expect::within(12.0, 1.5), 8.1, 12.0, 18.1, Undecided),
            (Expect::within(12.0, 1.5), 18.1, 19.0, 20.0, Contradicted),
        ] {
            assert_eq!(expect.judge(of(low, value, high)), finding, "{expect:?} of [{low}, {high}]");
        }
    }

    #[test]
    fn what_is_no_number_or_too_few_decides_nothing() {
        assert_eq!(Expect::LESS.judge(None), NotMeasurable);
        assert_eq!(Expect::LESS.judge(of(f64::NAN, 0.5, 0.6)), NotMeasurable);
        assert_eq!(Expect::LESS.judge(of(0.4, f64::NAN, 0.6)), NotMeasurable);
        let few = Measured { value: 0.5, low: 0.4, high: 0.6, n: 4, level: 0.875 };
        assert_eq!(Expect::LESS.judge(Some(few)), NotMeasurable);
    }

    #[test]
    fn a_difference_that_does_not_matter_has_no_direction() {
        let pairs: Vec<(f64, f64)> = (0..20).map(|n| (0.995, 1.0 + 1e-5 * f64::from(n))).collect();
        let compared = Bootstrap::new(1).paired(&pairs);
        for (expect, tie, finding) in [
            (Expect::LESS, true, Undecided),
            (Expect::MORE, true, Undecided),
            (Expect::TIE, false, Confirmed),
        ] {
            let decides = Decides::ratio(expect, compared.as_ref());
            assert_eq!((decides.tie, decides.finding()), (tie, finding), "{expect:?}");
        }
        assert_eq!(Decides::ratio(Expect::LESS, None).finding(), NotMeasurable);
    }

    /// A tie is an interval that lies wholly within what does not matter; one that reaches out of it has a direction.
    #[test]
    fn only_a_whole_interval_is_a_tie() {
        for (low, high, finding) in
            [(0.992, 0.998, Undecided), (0.985, 0.998, Confirmed), (1.002, 1.015, Contradicted)]
        {
            let decides = Decides { tie: true, ..Decides::new(Expect::LESS, of(low, low, high)) };
            assert_eq!(decides.finding(), finding, "[{low}, {high}]");
        }
    }

    #[test]
    fn what_is_expected_of_all_figures_is_said_once() {
        let claim = |figures: &[_]| Claim::new("", "", "", String::new()).judged_all(figures).expected;
        let (more, less) = ((Expect::MORE, None), (Expect::LESS, None));
        assert_eq!(claim(&[more, more]), "each above 1.00");
        assert_eq!(claim(&[more]), "above 1.00");
        assert_eq!(claim(&[more, less]), "above 1.00; below 1.00");
        assert_eq!(claim(&[more, more, less]), "2 of them above 1.00; below 1.00");
    }

    #[test]
    fn a_reason_stands_where_a_claim_was_measured_and_is_not_confirmed() {
        let why = |ours| {
            let claim = Claim::new("", "", "", String::new()).judged(Expect::between(0.5, 1.0), ours);
            claim.because("it is another machine".to_owned()).why
        };
        assert_eq!(why(of(0.8, 0.9, 0.95)), "");
        assert_eq!(why(None), "");
        for ours in [of(0.1, 0.2, 0.3), of(1.1, 1.2, 1.3), of(0.9, 1.0, 1.1)] {
            assert_eq!(why(ours), "it is another machine");
        }
    }

    #[test]
    fn nothing_is_compared_with_itself() {
        assert_eq!(ends([10, 1, 20, 5]), Some([1, 20]));
        for points in [&[][..], &[7], &[7, 7, 7]] {
            assert_eq!(ends(points.iter().copied()), None, "{points:?}");
        }
    }

    #[test]
    fn several_findings_are_one() {
        for (findings, expected) in [
            (vec![], NotMeasurable),
            (vec![NotMeasurable], NotMeasurable),
            (vec![Confirmed, NotMeasurable, Confirmed], Confirmed),
            (vec![Confirmed, Contradicted], Partly),
            (vec![Confirmed, Undecided], Partly),
            (vec![Contradicted, Undecided], Contradicted),
            (vec![Undecided, NotMeasurable], Undecided),
        ] {
            assert_eq!(Finding::all(findings.clone()), expected, "{findings:?}");
        }
    }

    #[test]
    fn what_was_not_measured_of_one_figure_is_not_confirmed_for_each() {
        for (findings, expected) in [
            (vec![Confirmed, Confirmed], Confirmed),
            (vec![Confirmed, NotMeasurable], Partly),
            (vec![Contradicted, NotMeasurable], Contradicted),
            (vec![Undecided, NotMeasurable], Undecided),
            (vec![NotMeasurable], NotMeasurable),
        ] {
            assert_eq!(Finding::each(findings.clone()), expected, "{findings:?}");
        }
    }
}
