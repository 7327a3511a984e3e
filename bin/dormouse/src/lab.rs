//! `dormouse lab`: repeats experiments of papers. Thin over `dormouse-lab`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::lab_link::{self, LinkArgs};
use crate::lab_topology::{self, TopologyArgs};
use crate::measure;
use anyhow::{Context as _, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand};
use dormouse_lab::{Context, EXPERIMENTS, Source, demo, find};

/// Repeat the experiments of papers
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// List the experiments
    List,
    /// Run one
    Run(RunArgs),
    Link(Box<LinkArgs>),
    Topology(TopologyArgs),
    /// A home agent, foreign agent or mobile host, for `topology`
    #[command(hide = true)]
    MobileIpNode {
        /// What it is
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Its name
    #[arg(value_name = "EXPERIMENT", value_parser = names())]
    name: String,
    /// Recordings to run on; without any, synthetic traffic is made and named as such
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Also write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Report on the raw results in this file instead of measuring; of dormouse bench for paper-001 and paper-004
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "resume"])]
    results: Option<PathBuf>,
    #[command(flatten)]
    keep: measure::Keep,
    /// Synthetic clients, 3,000 unless told; of paper-000-live the most real ones at once, up to 1,000; of paper-002 the most
    /// associations at one responder, up to 10,000 (with up to 100 everything is measured once, for a look)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    clients: Option<u32>,
    /// Of paper-003, which takes hours: few error rates, small files, Reno alone
    #[arg(long)]
    short: bool,
    /// Seed of the synthetic traffic, and of a radio's errors
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn names() -> PossibleValuesParser {
    EXPERIMENTS.iter().map(|e| PossibleValue::new(e.name)).into()
}

/// Runs the verb.
///
/// # Errors
/// For an unknown experiment, one that fails, or output that cannot be written.
pub(crate) fn run(args: &LabArgs, json: bool) -> anyhow::Result<ExitCode> {
    let text = match &args.command {
        LabCommand::List if !json => {
            EXPERIMENTS.iter().map(|e| format!("{:<14} {}\n", e.name, e.title)).collect()
        }
        LabCommand::List => {
            let all: Vec<_> =
                EXPERIMENTS.iter().map(|e| serde_json::json!({ "name": e.name, "title": e.title })).collect();
            serde_json::to_string_pretty(&serde_json::json!({ "version": 1, "experiments": all }))? + "\n"
        }
        LabCommand::Link(args) => return lab_link::run(args, json),
        LabCommand::Topology(args) => return lab_topology::run(args, json),
        LabCommand::MobileIpNode { file } => {
            dormouse_lab::topology::node(file)?;
            return Ok(ExitCode::SUCCESS);
        }
        LabCommand::Run(args) => match experiment(args, json)? {
            Some(text) => text,
            None => return Ok(dormouse_control::ExitCode::Permission.into()),
        },
    };
    measure::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What an experiment says; nothing if it may not run here.
fn experiment(args: &RunArgs, json: bool) -> anyhow::Result<Option<String>> {
    let experiment = find(&args.name).context("no such experiment")?;
    ensure!(!args.short || args.name.starts_with("paper-003"), "{} has no short form", args.name);
    let root = matches!(experiment.source, Source::Campaign { root: true });
    if root && args.results.is_none() && !demo::may_run() {
        eprintln!("error: {0} makes network namespaces and needs root: sudo dormouse lab run {0}", args.name);
        return Ok(None);
    }
    let interrupted = match experiment.source {
        Source::Campaign { .. } => measure::interrupted()?,
        Source::Traffic | Source::Bench(_) => Arc::default(),
    };
    let context = Context {
        recordings: dormouse_trace::input::expand(&args.files).map_err(anyhow::Error::msg)?,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        clients: args.clients,
        short: args.short,
        seed: args.seed,
        results: measure::results_for(experiment, args.results.as_deref(), &args.keep)?,
        file: args.results.clone(),
        out: args.keep.out.clone(),
        resume: args.keep.resume.clone(),
        interrupted,
        progress: |what| eprintln!("{what}"),
    };
    let report = (experiment.run)(&context)?;
    if let Some(path) = &args.html {
        let page = report.document().html().map_err(anyhow::Error::msg)?;
        std::fs::write(path, page).with_context(|| path.display().to_string())?;
    }
    Ok(Some(if json {
        serde_json::to_string_pretty(&report.json())? + "\n"
    } else {
        report.document().text()
    }))
}
