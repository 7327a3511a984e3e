//! Experiments: one file for each paper, each with the same shape. Owns the comparison of what a paper reports with what comes
//! out here; must never present a figure without saying on what it was obtained.

pub mod advise;
pub mod bench;
pub mod calibrate;
pub mod campaign;
pub mod demo;
mod experiment;
pub mod judge;
pub mod kept;
pub mod link;
mod measured;
mod needs;
pub mod paper_000;
pub mod paper_000_live;
pub mod paper_001;
pub mod paper_002;
pub mod paper_003;
pub mod paper_004;
pub mod reproduce;
pub mod results;
pub mod topology;
pub mod verify;

pub use experiment::{Context, Exhibit, Experiment, Reading, Report, Source, Takes};

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    paper_000::EXPERIMENT,
    paper_000_live::EXPERIMENT,
    paper_001::EXPERIMENT,
    paper_001::l2tp::EXPERIMENT,
    paper_002::EXPERIMENT,
    paper_003::EXPERIMENT,
    paper_003::handoff::EXPERIMENT,
    paper_003::cost::EXPERIMENT,
    paper_004::EXPERIMENT,
];

/// The experiment called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|e| e.name == name)
}
