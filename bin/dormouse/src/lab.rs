//! `dormouse lab`: repeats experiments of papers. Thin over `dormouse-lab`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::lab_link::{self, LinkArgs};
use crate::lab_topology::{self, TopologyArgs};
use crate::measure;
use crate::recordings::ReadingArgs;
use anyhow::Context as _;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand};
use dormouse_energy::schedule::MIN_IDLE;
use dormouse_lab::kept::Raw;
use dormouse_lab::reproduce::{self, Outcome, Reproduction};
use dormouse_lab::{Context, EXPERIMENTS, Experiment, Source, demo, find, verify};
use dormouse_report::write_whole;
use serde_json::json;

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
    Run(RunArgs),
    Reproduce(ReproduceArgs),
    Verify(VerifyArgs),
    Link(Box<LinkArgs>),
    Topology(TopologyArgs),
    /// A home agent, foreign agent or mobile host, for `topology`
    #[command(hide = true)]
    MobileIpNode {
        /// What it is
        file: PathBuf,
    },
}

/// Run one
///
/// The exit code is 7 if it cannot run here, and 1 if its results are not whole: a point of the plan failed and was given up, or a recording
/// could not be read to its end or changed while it was read. The report begins with what is missing, also where this machine lacks what a
/// measurement needs, which is no failure.
#[derive(Debug, Args)]
struct RunArgs {
    /// Its name
    #[arg(value_name = "EXPERIMENT", value_parser = names())]
    name: String,
    /// Recordings to run on; without any, synthetic traffic is made and named as such
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Also write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Report on the raw results in this file instead of making them; of dormouse bench for paper-001 and paper-004
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "resume", "files", "seed", "short", "clients", "sites", "wanted", "session", "session_by", "flows", "netflow_ports"])]
    results: Option<PathBuf>,
    /// Write the raw results here (X.json) after each round; the report beside them, as X.report.json, X.txt, X.html, its tables and figures in X. A
    /// file holds 256 MiB at most: some 18,000 sessions like those of paper-000's synthetic clients
    #[arg(long, value_name = "X.json")]
    out: Option<PathBuf>,
    /// Continue the campaign in this file, with its own plan and seed
    #[arg(long, value_name = "X.json", conflicts_with_all = ["out", "files", "seed", "short", "clients", "sites", "wanted", "session", "session_by", "flows", "netflow_ports"])]
    resume: Option<PathBuf>,
    /// Synthetic clients of paper-000, 3,000 unless told; of paper-000-live the most real ones at once, up to 1,000; of paper-002 the most
    /// associations at one responder, up to 10,000 (with up to 100 everything is measured once, for a look)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    clients: Option<u32>,
    /// The quick plan, minutes instead of hours: `lab list` says how long each takes
    #[arg(long = "quick", visible_alias = "short")]
    short: bool,
    /// Seed of the synthetic traffic, and of a radio's errors
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Run experiments into one directory: tables, figures, raw data, and one page that links them with each claim's verdict
///
/// Goes on where it was interrupted. What cannot run here, or not all of it (without root), is said, and the rest goes on; the exit code is
/// then 7, and 1 if an experiment failed or its results are not whole. What ran in part runs again once what was missing is there.
#[derive(Debug, Args)]
struct ReproduceArgs {
    /// Which; or --all
    #[arg(value_name = "EXPERIMENT", value_parser = names(), required_unless_present = "all")]
    names: Vec<String>,
    /// Every experiment
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Where it is put
    #[arg(long, value_name = "DIR", default_value = "reproduction")]
    out: PathBuf,
    /// The quick plan, minutes for each: `lab list` says how long they take
    #[arg(long, required_unless_present = "full")]
    quick: bool,
    /// The full plan, most of a day for all
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Recordings for paper-000; without any, synthetic traffic is made and named as such
    #[arg(long = "recording", value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Seed of all that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Make a report again from its raw data and compare it, byte by byte, with what was printed
///
/// Beside X.json stand X.report.json, X.txt and X.html, and tables and figures in X, as `lab run --out` and `lab reproduce` write them. The exit
/// code is 1 where they differ, and where there is nothing to compare. Of a directory of `lab reproduce`, nothing may be missing.
#[derive(Debug, Args)]
struct VerifyArgs {
    /// Raw data, or a directory of them as `lab reproduce` makes it
    #[arg(value_name = "FILE")]
    file: PathBuf,
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
        LabCommand::List if !json => EXPERIMENTS.iter().map(listed).collect(),
        LabCommand::List => {
            let of = |e: &Experiment| {
                let takes = e.takes.map(|t| json!({ "seconds": t.seconds, "measured": t.measured }));
                json!({ "name": e.name, "title": e.title, "quick": takes[0], "full": takes[1] })
            };
            let all: Vec<_> = EXPERIMENTS.iter().map(of).collect();
            serde_json::to_string_pretty(&json!({ "version": 1, "experiments": all }))? + "\n"
        }
        LabCommand::Link(args) => return lab_link::run(args, json),
        LabCommand::Topology(args) => return lab_topology::run(args, json),
        LabCommand::MobileIpNode { file } => {
            dormouse_lab::topology::node(file)?;
            return Ok(ExitCode::SUCCESS);
        }
        LabCommand::Reproduce(args) => return reproduce(args, json),
        LabCommand::Verify(args) => return verify(args, json),
        LabCommand::Run(args) => return experiment(args, json),
    };
    measure::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs an experiment, and says what came out. The exit code is 7 if it may not run here, and 1 if its results are not whole.
fn experiment(args: &RunArgs, json: bool) -> anyhow::Result<ExitCode> {
    let experiment = find(&args.name).context("no such experiment")?;
    let raw = args.resume.as_deref().or(args.out.as_deref()).map(Raw::to_be_made).transpose()?;
    refuse(args, experiment)?;
    let root = matches!(experiment.source, Source::Campaign { root: true });
    if root && args.results.is_none() && !demo::may_run() {
        eprintln!("error: {0} makes network namespaces and needs root: sudo dormouse lab run {0}", args.name);
        return Ok(dormouse_control::ExitCode::Permission.into());
    }
    if let Source::Elsewhere { missing } = experiment.source
        && args.results.is_none()
        && let Some(what) = missing()
    {
        eprintln!("error: {} cannot run here: it needs {what}", args.name);
        return Ok(dormouse_control::ExitCode::Permission.into());
    }
    let interrupted = if experiment.source.measures() { measure::interrupted()? } else { Arc::default() };
    let context = Context {
        recordings: dormouse_trace::input::expand(&args.files).map_err(anyhow::Error::msg)?,
        reading: args.reading.reading(MIN_IDLE.as_secs_f64())?,
        clients: args.clients,
        short: args.short,
        seed: args.seed,
        file: args.results.clone(),
        out: args.out.clone(),
        resume: args.resume.clone(),
        interrupted,
        ..context()
    };
    let report = (experiment.run)(&context)?;
    if let Some(raw) = &raw {
        raw.keep(&report)?;
    }
    if let Some(path) = &args.html {
        let page = report.document().html().map_err(anyhow::Error::msg)?;
        write_whole(path, page.as_bytes()).with_context(|| path.display().to_string())?;
    }
    let text =
        if json { serde_json::to_string_pretty(&report.json())? + "\n" } else { report.document().text() };
    measure::say(&text)?;
    let failures = report.provenance.failures();
    failures.iter().for_each(|failure| eprintln!("incomplete: {failure}"));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { dormouse_control::ExitCode::Failure.into() })
}

/// Refuses what would do nothing, or overwrite the raw data.
fn refuse(args: &RunArgs, experiment: &Experiment) -> anyhow::Result<()> {
    let name = experiment.name;
    anyhow::ensure!(
        !experiment.source.measures() || args.files.is_empty(),
        "{name} measures: no recording is used ({})",
        args.files.join(", ")
    );
    anyhow::ensure!(
        args.clients.is_none() || CROWDS.contains(&name),
        "--clients is of {}",
        CROWDS.join(", ")
    );
    let raw = args.out.iter().chain(&args.resume).chain(&args.results);
    anyhow::ensure!(
        raw.into_iter().all(|raw| Some(raw) != args.html.as_ref()),
        "--html would overwrite the raw data"
    );
    Ok(())
}

/// Experiments with a number of clients.
const CROWDS: [&str; 3] = ["paper-000", "paper-000-live", "paper-002"];

/// What is the same for all experiments.
fn context() -> Context {
    Context {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        progress: |what| eprintln!("{what}"),
        ..Context::default()
    }
}

/// An experiment with its title, and how long its plans take.
fn listed(experiment: &Experiment) -> String {
    let [quick, full] = experiment.takes.map(|t| t.words());
    format!("{:<17} {}\n{:<17} quick {quick}, full {full}\n", experiment.name, experiment.title, "")
}

fn reproduce(args: &ReproduceArgs, json: bool) -> anyhow::Result<ExitCode> {
    let context = Context {
        recordings: dormouse_trace::input::expand(&args.files).map_err(anyhow::Error::msg)?,
        reading: args.reading.reading(MIN_IDLE.as_secs_f64())?,
        short: args.quick,
        seed: args.seed,
        interrupted: measure::interrupted()?,
        ..context()
    };
    let wanted = |e: &&Experiment| args.all || args.names.iter().any(|name| name == e.name);
    let experiments: Vec<Experiment> = EXPERIMENTS.iter().filter(wanted).copied().collect();
    anyhow::ensure!(
        args.files.is_empty() || experiments.iter().any(|e| matches!(e.source, Source::Traffic)),
        "--recording is for an experiment on traffic, and all of these measure: {}",
        args.names.join(", ")
    );
    let outcomes = Reproduction::new(&args.out, context)?.run(&experiments)?;
    let text = if json {
        let all: serde_json::Map<_, _> =
            outcomes.iter().map(|(name, o)| ((*name).to_owned(), json!(o))).collect();
        serde_json::to_string_pretty(&json!({ "version": 1, "directory": args.out, "experiments": all }))?
            + "\n"
    } else {
        let lines = outcomes.iter().map(|(name, outcome)| format!("{name:<17} {}\n", outcome.words()));
        lines.collect::<String>() + &format!("{}\n", args.out.join(reproduce::PAGE).display())
    };
    measure::say(&text)?;
    let any = |of: fn(&Outcome) -> bool| outcomes.iter().any(|(_, outcome)| of(outcome));
    Ok(if any(Outcome::has_failed) {
        dormouse_control::ExitCode::Failure.into()
    } else if any(|o| matches!(o, Outcome::CannotRun(_) | Outcome::RanInPart { .. })) {
        dormouse_control::ExitCode::Permission.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn verify(args: &VerifyArgs, json: bool) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.file.exists(), "{}: no such file or directory", args.file.display());
    let verified =
        if args.file.is_dir() { verify::directory(&args.file)? } else { vec![verify::verify(&args.file)?] };
    let (mut text, mut all) = (String::new(), Vec::new());
    for one in &verified {
        let shown = one.raw.display();
        if one.holds() {
            text += &format!("{shown}: the same bytes follow as in {}\n", listed_files(&one.compared));
        } else if one.differences.is_empty() {
            text += &one.report.as_ref().map_or_else(String::new, |report| report.document().text());
            text += &format!("{shown}: nothing stands beside it that it could be held against\n");
        }
        one.differences.iter().for_each(|line| text += &format!("{line}\n"));
        all.push(json!({ "file": one.raw, "compared": one.compared, "differences": one.differences }));
    }
    if json {
        text = serde_json::to_string_pretty(&json!({ "version": 1, "files": all }))? + "\n";
    }
    measure::say(&text)?;
    let holds = verified.iter().all(verify::Verified::holds);
    Ok(if holds { ExitCode::SUCCESS } else { dormouse_control::ExitCode::Failure.into() })
}

/// Files by name; of many, how many there are besides the last three, which are the report itself.
fn listed_files(files: &[PathBuf]) -> String {
    let (many, last) = files.split_at(files.len().saturating_sub(3));
    let words: Vec<String> = last.iter().map(|path| path.display().to_string()).collect();
    let more =
        if many.is_empty() { String::new() } else { format!(", and {} tables and figures", many.len()) };
    words.join(", ") + &more
}
