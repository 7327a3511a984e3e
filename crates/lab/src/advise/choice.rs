//! From candidates to a recommendation: the Pareto front, the order for a use, and the evidence. Owns the comparisons; every
//! one of them may end in a tie, and a tie never decides.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use super::candidates::{self, Basis, Candidate, Standing};
use super::levels::Level;
use super::purpose::Purpose;
use crate::judge::stats::{Bootstrap, Comparison, Verdict};
use crate::results::Results;
use crate::results::esp::Metric;

/// What is optimised: more is better for the first, less for the others.
const FRONT: [Metric; 3] = [Metric::Throughput, Metric::Cpu, Metric::Energy];

/// A recommended suite with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// As in a proposal.
    pub suite: String,
    /// Why it stands where it stands, in words.
    pub reasons: Vec<String>,
    /// How it compares with each other allowed suite, figure by figure.
    pub evidence: Vec<Evidence>,
}

/// One comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Evidence {
    /// With which suite.
    pub against: String,
    /// In which figure.
    pub metric: Metric,
    /// The chosen suite over the other.
    pub comparison: Comparison,
}

/// Which of two is better in a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Better {
    First,
    Second,
    Neither,
}

/// Compares candidates of one file.
pub(super) struct Comparer<'a> {
    results: &'a Results,
    bootstrap: Bootstrap,
    purpose: Purpose,
    /// What was compared already, by places in the file: every pair is asked for many times, and costs thousands of resamples.
    known: RefCell<BTreeMap<(usize, usize, Metric), Option<Comparison>>>,
}

impl<'a> Comparer<'a> {
    /// Of the candidates of `results`.
    pub(super) const fn new(results: &'a Results, bootstrap: Bootstrap, purpose: Purpose) -> Self {
        Self { results, bootstrap, purpose, known: RefCell::new(BTreeMap::new()) }
    }

    /// The first over the second in one figure, if both have it.
    pub(super) fn compare(&self, a: &Candidate, b: &Candidate, metric: Metric) -> Option<Comparison> {
        a.figure(metric).and(b.figure(metric))?;
        let sample = |c: &Candidate| self.results.samples.get(c.sample);
        let (first, second) = (sample(a)?, sample(b)?);
        let mut known = self.known.borrow_mut();
        let compared = || self.bootstrap.compare(first, second, metric);
        *known.entry((a.sample, b.sample, metric)).or_insert_with(compared)
    }

    /// The first over the second under other circumstances than the candidates', where the file has both.
    pub(super) fn elsewhere(&self, a: &str, b: &str) -> Option<(Basis, Vec<(Metric, Comparison)>)> {
        let (basis, first, second) = candidates::elsewhere(self.results, self.purpose, a, b)?;
        let compared = |metric| Some((metric, self.bootstrap.compare(first, second, metric)?));
        Some((basis, FRONT.into_iter().filter_map(compared).collect()))
    }

    fn better(&self, a: &Candidate, b: &Candidate, metric: Metric) -> Better {
        match (self.compare(a, b, metric).map(|c| c.verdict), metric.more_is_better()) {
            (Some(Verdict::Greater), true) | (Some(Verdict::Less), false) => Better::First,
            (Some(Verdict::Less), true) | (Some(Verdict::Greater), false) => Better::Second,
            _ => Better::Neither,
        }
    }

    /// Whether the first is better in one figure at least, and worse in none.
    fn dominates(&self, a: &Candidate, b: &Candidate) -> bool {
        let all = FRONT.map(|metric| self.better(a, b, metric));
        all.contains(&Better::First) && !all.contains(&Better::Second)
    }

    /// Marks what is dominated.
    pub(super) fn pareto(&self, candidates: &mut [Candidate]) {
        let allowed: Vec<Candidate> = candidates.iter().filter(|c| c.is_allowed()).cloned().collect();
        for candidate in candidates.iter_mut().filter(|c| c.is_allowed()) {
            // Of several, the one that is best at what is asked for: that is what a reader would take instead.
            let by = allowed
                .iter()
                .filter(|other| other.suite != candidate.suite && self.dominates(other, candidate))
                .min_by(|a, b| self.by_median(a, b));
            if let Some(by) = by {
                candidate.standing = Standing::Dominated { by: by.suite.clone() };
            }
        }
    }

    /// The allowed candidates, best first. What leads is chosen among the front; the next is chosen in the same way among the
    /// rest, so that a runner-up is what would be recommended if the first could not be had.
    pub(super) fn rank<'c>(&self, candidates: &'c [Candidate]) -> Vec<&'c Candidate> {
        let mut rest: Vec<&Candidate> = candidates.iter().filter(|c| c.is_allowed()).collect();
        let mut ranked = Vec::with_capacity(rest.len());
        while let Some(best) = self.best(&rest) {
            rest.retain(|c| c.suite != best.suite);
            ranked.push(best);
        }
        ranked
    }

    /// The best of some: undominated, then those that tie with the best median in each objective in turn, then by what the
    /// standards ask for.
    fn best<'c>(&self, some: &[&'c Candidate]) -> Option<&'c Candidate> {
        let mut left: Vec<&Candidate> =
            some.iter().filter(|c| !some.iter().any(|o| self.dominates(o, c))).copied().collect();
        if left.is_empty() {
            // Ties are not transitive, so a cycle of dominance is conceivable.
            left = some.to_vec();
        }
        for metric in self.purpose.objectives() {
            let Some(leader) = self.leader(&left, metric) else { continue };
            left.retain(|c| c.suite == leader.suite || self.better(leader, c, metric) != Better::First);
        }
        left.into_iter().min_by(|a, b| self.by_standard(a, b))
    }

    /// The one with the best median in a figure; none if a candidate lacks it, for then it cannot decide.
    fn leader<'c>(&self, some: &[&'c Candidate], metric: Metric) -> Option<&'c Candidate> {
        let median = |c: &Candidate| c.figure(metric).map(|e| e.median);
        if some.iter().any(|c| median(c).is_none()) {
            return None;
        }
        let worth = |c: &&&Candidate| {
            let median = median(c).unwrap_or(0.0);
            if metric.more_is_better() { median } else { -median }
        };
        some.iter().max_by(|a, b| worth(a).total_cmp(&worth(b))).copied()
    }

    /// Ties in all figures: fewer bytes on the air for a sensor, then what the standards ask for more strongly, then the cipher
    /// that authenticates by itself, then the longer key, then the name.
    fn by_standard(&self, a: &Candidate, b: &Candidate) -> Ordering {
        let level = |c: &Candidate| c.judgement.as_ref().map(|j| j.level);
        let bytes = |c: &Candidate| match self.purpose {
            Purpose::Sensor => c.overhead.unwrap_or(u32::MAX),
            _ => 0,
        };
        let composed = |c: &Candidate| c.suite.contains('-');
        let long = |c: &Candidate| c.suite.contains("256") || c.suite.starts_with("chacha20");
        bytes(a)
            .cmp(&bytes(b))
            .then_with(|| level(b).cmp(&level(a)))
            .then_with(|| composed(a).cmp(&composed(b)))
            .then_with(|| long(b).cmp(&long(a)))
            .then_with(|| a.suite.cmp(&b.suite))
    }

    /// By the median of the first objective that both have, better first.
    fn by_median(&self, a: &Candidate, b: &Candidate) -> Ordering {
        for metric in self.purpose.objectives() {
            if let (Some(x), Some(y)) = (a.figure(metric), b.figure(metric)) {
                let order = x.median.total_cmp(&y.median);
                return if metric.more_is_better() { order.reverse() } else { order };
            }
        }
        Ordering::Equal
    }

    /// A choice with its evidence against every other allowed candidate.
    pub(super) fn choice(&self, chosen: &Candidate, candidates: &[Candidate]) -> Choice {
        let others: Vec<&Candidate> =
            candidates.iter().filter(|c| c.is_allowed() && c.suite != chosen.suite).collect();
        let mut evidence = Vec::new();
        for other in &others {
            for metric in FRONT {
                let compared = self.compare(chosen, other, metric);
                evidence.extend(compared.map(|comparison| Evidence {
                    against: other.suite.clone(),
                    metric,
                    comparison,
                }));
            }
        }
        Choice { suite: chosen.suite.clone(), reasons: self.reasons(chosen, &others), evidence }
    }

    fn reasons(&self, chosen: &Candidate, others: &[&Candidate]) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(judgement) = &chosen.judgement {
            let level = judgement.level.name();
            let citations: Vec<&str> = judgement.rulings.iter().map(|r| r.citation).collect();
            out.push(format!("{level} by {}", citations.join("; ")));
            if judgement.level < Level::May {
                out.push("discouraged: admitted because it was asked for".to_owned());
            }
        }
        out.push(chosen.standing.words());
        let measured = self.purpose.objectives().into_iter().find(|m| chosen.figure(*m).is_some());
        if let Some(metric) = measured {
            let mut beaten = Vec::new();
            let mut ties = Vec::new();
            for other in others {
                match self.better(chosen, other, metric) {
                    Better::First => beaten.push(other.suite.as_str()),
                    Better::Neither => ties.push(other.suite.as_str()),
                    Better::Second => {}
                }
            }
            let name = super::words::metric(metric);
            if !beaten.is_empty() {
                out.push(format!("better in {name} than {}", beaten.join(", ")));
            }
            if !ties.is_empty() {
                out.push(format!("a tie in {name} with {}", ties.join(", ")));
            }
        }
        out
    }
}
