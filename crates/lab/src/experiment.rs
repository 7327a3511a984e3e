//! The shape that all experiments share: what one is given, and what it reports. Owns these types; must never know an experiment.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dormouse_report::Chart;
use serde::Serialize;

use crate::bench::Request;
use crate::judge::Claim;
use crate::results::Results;

/// What an experiment may use.
#[derive(Clone, Debug)]
pub struct Context {
    /// Recordings to run on; without any, an experiment that needs traffic makes its own, and says so.
    pub recordings: Vec<PathBuf>,
    /// Worker threads.
    pub threads: usize,
    /// Synthetic clients, where traffic is made; the most clients at once, where they are real. `None`: as many as the experiment
    /// is made for.
    pub clients: Option<u32>,
    /// The seed of synthetic traffic and of the crowds.
    pub seed: u64,
    /// Measurements to report on, for experiments that [need](Experiment::needs) them.
    pub results: Option<Results>,
    /// Raw data to report on instead of measuring, for experiments that measure by themselves.
    pub file: Option<PathBuf>,
    /// Where they keep theirs.
    pub out: Option<PathBuf>,
    /// The file of an interrupted campaign that goes on.
    pub resume: Option<PathBuf>,
    /// Set when the user wants it to stop. An experiment that makes anything outside of this process removes it first.
    pub interrupted: Arc<AtomicBool>,
    /// Gets a line from a long experiment on what it is doing.
    pub progress: fn(&str),
}

impl Default for Context {
    /// Without recordings, measurements, interruption or progress.
    fn default() -> Self {
        Self {
            recordings: Vec::new(),
            threads: 1,
            clients: None,
            seed: 1,
            results: None,
            file: None,
            out: None,
            resume: None,
            interrupted: Arc::default(),
            progress: |_| (),
        }
    }
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// As users write it.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// What must be measured for it, if it is about measurements.
    pub needs: Option<fn() -> Request>,
    /// Whether it makes network namespaces, and so needs root.
    pub root: bool,
    /// Runs it.
    pub run: fn(&Context) -> anyhow::Result<Report>,
}

/// A table of the paper beside ours.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Table {
    /// Which, as in the paper.
    pub place: String,
    /// What it shows, in our words.
    pub title: String,
    /// Heads of the columns.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// A figure of the paper, repeated.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Its number in the paper.
    pub place: String,
    /// The chart, with our data and those of the paper's data that its text states.
    pub chart: Chart,
}

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The experiment's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Whether any of the traffic is synthetic.
    pub synthetic: bool,
    /// On what the figures were obtained.
    pub traffic: Vec<String>,
    /// Claims.
    pub claims: Vec<Claim>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Figures.
    pub figures: Vec<Figure>,
    /// What a reader must know.
    pub notes: Vec<String>,
}
