//! What measurements say about a claim. Owns the statistics ([`stats`]), the claims and their findings; must never decide without
//! figures that can be told apart.

pub mod stats;

use serde::Serialize;

/// Something that a paper claims, beside what came out here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Claim {
    /// Where in the paper.
    pub place: String,
    /// What is claimed, in our words.
    pub claim: String,
    /// The paper's figure.
    pub paper: String,
    /// Our figure.
    pub ours: String,
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
        Self { place, claim, paper, ours, why: String::new(), finding: None }
    }

    /// With this finding.
    #[must_use]
    pub fn found(self, finding: Finding) -> Self {
        Self { finding: Some(finding), ..self }
    }
}

/// What came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Every comparison goes the claim's way.
    Confirmed,
    /// Some do.
    Partly,
    /// None does.
    Contradicted,
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
            Self::NotMeasurable => "not measurable",
        }
    }

    /// From how many comparisons there were, and how many agree.
    #[must_use]
    pub const fn of(agree: usize, all: usize) -> Self {
        match (agree, all) {
            (_, 0) => Self::NotMeasurable,
            (0, _) => Self::Contradicted,
            (a, b) if a == b => Self::Confirmed,
            _ => Self::Partly,
        }
    }

    /// Of a claim about figures that were all measured; one that is no number was not.
    #[must_use]
    pub fn whether<const N: usize>(figures: [f64; N], holds: impl Fn([f64; N]) -> bool) -> Self {
        if figures.iter().any(|f| f.is_nan()) {
            return Self::NotMeasurable;
        }
        Self::of(usize::from(holds(figures)), 1)
    }

    /// Of a claim about how a figure changes along an axis: each of the points (where, how much) is compared with the first. A point is
    /// never compared with itself, so that fewer than two distinct ones say nothing.
    #[must_use]
    pub fn along(points: &[(f64, f64)], holds: impl Fn(f64, f64) -> bool) -> Self {
        let mut told = points.iter().filter(|p| !p.1.is_nan());
        let Some(first) = told.next() else { return Self::NotMeasurable };
        let (mut agree, mut all) = (0, 0);
        for then in told.filter(|p| p.0 != first.0) {
            all += 1;
            agree += usize::from(holds(first.1, then.1));
        }
        Self::of(agree, all)
    }
}

#[cfg(test)]
mod tests {
    use super::Finding::{self, Confirmed, Contradicted, NotMeasurable, Partly};

    #[test]
    fn a_number_is_not_compared_with_itself_and_no_number_decides_nothing() {
        let grows = |points: &[(f64, f64)]| Finding::along(points, |first, then| then > first);
        assert_eq!(grows(&[(1.0, 5.0)]), NotMeasurable);
        assert_eq!(grows(&[(1.0, 5.0), (1.0, 6.0)]), NotMeasurable);
        assert_eq!(grows(&[(1.0, 5.0), (2.0, f64::NAN)]), NotMeasurable);
        assert_eq!(grows(&[(1.0, 5.0), (2.0, 6.0)]), Confirmed);
        assert_eq!(grows(&[(1.0, 5.0), (2.0, 6.0), (3.0, 4.0)]), Partly);
        assert_eq!(grows(&[(1.0, 5.0), (2.0, 4.0)]), Contradicted);
        assert_eq!(Finding::whether([1.0, f64::NAN], |[a, b]| a < b), NotMeasurable);
        assert_eq!(Finding::whether([1.0, 2.0], |[a, b]| a < b), Confirmed);
    }
}
