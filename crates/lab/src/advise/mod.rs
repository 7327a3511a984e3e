//! `dormouse advise`: from measurements to one recommended configuration, with its evidence. Owns the order of decisions:
//! first what the standards allow ([`levels`]), then what no other setting beats in every respect ([`choice`]), then what the
//! stated use asks for. Must never recommend what is MUST NOT, what was not verified, or what was not measured; and must say
//! of a tie that it is one.

pub mod candidates;
pub mod choice;
pub mod levels;
pub mod lines;
pub mod page;
pub mod papers;
mod purpose;
pub mod rules;
pub mod words;

use serde::Serialize;

use crate::judge::stats::Bootstrap;
use crate::results::Results;
use crate::results::format::{Energy, Machine};
use candidates::{Basis, Candidate};
use choice::Choice;
use lines::Lines;
use papers::PaperAdvice;
pub use purpose::{Options, Purpose};
use rules::Rule;

/// Version of the JSON.
pub const VERSION: u32 = 1;

/// Why there is no advice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdviseError {
    /// The file has nothing to compare.
    #[error(
        "the result file has no verified measurement of {wanted}; it has {found} samples (dormouse bench --quick makes what is needed)"
    )]
    NothingMeasured {
        /// What was looked for.
        wanted: &'static str,
        /// Samples of any kind.
        found: usize,
    },
    /// Nothing of what was measured may be recommended.
    #[error("none of the measured suites may be recommended: {}", .why.join("; "))]
    NothingAllowed {
        /// Why not, suite by suite.
        why: Vec<String>,
    },
}

/// The advice.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// [`VERSION`].
    pub version: u32,
    /// The use.
    pub purpose: Purpose,
    /// Whether discouraged suites were admitted.
    pub allow_discouraged: bool,
    /// What was measured on.
    pub machine: Machine,
    /// The machine at the other end of the link, if the measurements are between two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<Machine>,
    /// When, in seconds since 1970.
    pub measured: u64,
    /// Where joules come from.
    pub energy: Energy,
    /// Which measurements decide.
    pub basis: Basis,
    /// The recommendation.
    pub recommended: Choice,
    /// The next best.
    pub runner_up: Option<Choice>,
    /// Every suite that was measured on that basis, with its cost and its standing.
    pub candidates: Vec<Candidate>,
    /// What to paste.
    pub lines: Lines,
    /// What papers 001 and 004 found, and what is allowed now.
    pub papers: Vec<PaperAdvice>,
    /// The rules of paper 004, held against these measurements.
    pub rules: Vec<Rule>,
    /// What was not measured, and why.
    pub not_measured: Vec<String>,
    /// What casts doubt on the figures.
    pub warnings: Vec<String>,
}

/// The advice that follows from measurements.
///
/// # Errors
/// When nothing comparable was measured, or nothing of it may be recommended.
pub fn advise(results: &Results, options: Options) -> Result<Advice, AdviseError> {
    let bootstrap = Bootstrap::new(results.seed);
    let basis = candidates::basis(results, options.purpose).ok_or(AdviseError::NothingMeasured {
        wanted: "dormouse's ESP or its cryptography",
        found: results.samples.len(),
    })?;
    let mut candidates = candidates::collect(results, &basis, &bootstrap, options);
    let comparer = choice::Comparer::new(results, bootstrap, options.purpose);
    comparer.pareto(&mut candidates);
    let ranked = comparer.rank(&candidates);
    let Some(best) = ranked.first() else {
        let why = candidates.iter().map(|c| format!("{}: {}", c.suite, c.standing.words())).collect();
        return Err(AdviseError::NothingAllowed { why });
    };
    let recommended = comparer.choice(best, &candidates);
    let runner_up = ranked.get(1).map(|c| comparer.choice(c, &candidates));
    let lines = Lines::new(&recommended.suite, runner_up.as_ref().map(|c| c.suite.as_str()));
    Ok(Advice {
        version: VERSION,
        purpose: options.purpose,
        allow_discouraged: options.allow_discouraged,
        machine: results.machine.clone(),
        far: results.far.clone(),
        measured: results.started,
        energy: results.energy.clone(),
        papers: papers::advice(&comparer, &candidates, &recommended.suite),
        rules: rules::check(results, &bootstrap),
        not_measured: candidates::not_measured(results, &candidates, &basis),
        warnings: candidates::warnings(results, &candidates, &basis),
        basis,
        recommended,
        runner_up,
        candidates,
        lines,
    })
}
