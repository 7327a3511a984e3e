//! `dormouse lab reproduce`: experiments into one directory, with their reports, tables, figures and raw data, and one page that links them.
//! Owns the directory and what of it is kept after an interruption; must never mix two plans, two seeds or two builds in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use dormouse_report::{Document, Part, Table, duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::campaign;
use crate::experiment::{Context, Exhibit, Experiment, REPORT, Report, Source};
use crate::results::write_whole;

/// The state of a directory; it stands in its [`STATE`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct State {
    format: String,
    version: u32,
    plan: String,
    seed: u64,
    recordings: Vec<PathBuf>,
    /// What must not change on the way.
    versions: BTreeMap<String, String>,
    /// What came of each experiment so far.
    experiments: BTreeMap<String, Outcome>,
}

const STATE: &str = "reproduction.json";
const FORMAT: &str = "dormouse-reproduction";
const VERSION: u32 = 1;
/// The page that links all.
pub const PAGE: &str = "index.html";

/// What came of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran, in so many seconds, interruptions not counted.
    Ran(u64),
    /// It cannot run here.
    CannotRun(String),
    /// It was tried.
    Failed(String),
    /// The user interrupted it after so many seconds; the next call goes on.
    Interrupted(u64),
}

impl Outcome {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Ran(seconds) => format!("ran in {}", duration(*seconds as f64)),
            Self::CannotRun(what) => format!("cannot run here: it needs {what}"),
            Self::Failed(why) => format!("failed: {why}"),
            Self::Interrupted(_) => "interrupted: the same command goes on".to_owned(),
        }
    }
}

/// What is to be reproduced, and where.
#[derive(Debug)]
pub struct Reproduction {
    dir: PathBuf,
    context: Context,
    state: State,
}

impl Reproduction {
    /// Into a directory, which may be one that an interrupted reproduction left. Of `context` counts what is the same for all
    /// experiments: recordings, the plan, the seed, threads, interruption and progress.
    ///
    /// # Errors
    /// If the directory cannot be written, or what is in it is of another plan, seed or build, or no reproduction at all.
    pub fn new(dir: &Path, context: Context) -> Result<Self> {
        let mut versions = campaign::versions();
        // A kernel may change below raw data that are not measured; campaigns look for themselves.
        versions.remove("kernel");
        let plan = if context.short { "quick" } else { "full" }.to_owned();
        let mut state = State {
            format: FORMAT.to_owned(),
            version: VERSION,
            plan,
            seed: context.seed,
            recordings: context.recordings.clone(),
            versions,
            experiments: BTreeMap::new(),
        };
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let path = dir.join(STATE);
        if path.exists() {
            let shown = path.display();
            let text = fs::read(&path).with_context(|| shown.to_string())?;
            let before: State = serde_json::from_slice(&text).with_context(|| shown.to_string())?;
            ensure!(
                (&before.format, before.version) == (&state.format, VERSION),
                "{shown}: another format: choose another directory"
            );
            for (what, then, now) in [
                ("plan", before.plan.clone(), state.plan.clone()),
                ("seed", before.seed.to_string(), state.seed.to_string()),
                ("recordings", format!("{:?}", before.recordings), format!("{:?}", state.recordings)),
                ("build", format!("{:?}", before.versions), format!("{:?}", state.versions)),
            ] {
                ensure!(
                    then == now,
                    "{shown}: another {what}: {then}, and this is {now}: choose another directory"
                );
            }
            state.experiments = before.experiments;
        }
        let reproduction = Self { dir: dir.to_owned(), context, state };
        reproduction.save(&path)?;
        Ok(reproduction)
    }

    fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.state)?;
        text.push(b'\n');
        write_whole(path, &text).with_context(|| path.display().to_string())
    }

    /// Runs what has not run yet, one after the other; what cannot run or fails is noted and the rest goes on. Gives what came of each.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn run(&mut self, experiments: &[Experiment]) -> Result<Vec<(&'static str, Outcome)>> {
        let takes = |e: &Experiment| u64::from(e.takes[usize::from(!self.context.short)].seconds);
        let dir = self.dir.clone();
        let kept = |state: &State, e: &Experiment| {
            matches!(state.experiments.get(e.name), Some(Outcome::Ran(_)))
                && dir.join(e.name).with_extension(REPORT).exists()
        };
        let mut left: u64 = experiments.iter().filter(|e| !kept(&self.state, e)).map(takes).sum();
        let (many, say) = (experiments.len(), self.context.progress);
        let mut interrupted = false;
        for (n, experiment) in experiments.iter().enumerate() {
            let (name, mine) = (experiment.name, takes(experiment));
            let head = format!("[{} of {many}] {name}", n + 1);
            if kept(&self.state, experiment) {
                say(&format!("{head}: done before"));
                continue;
            }
            let [this, all] = [mine, left].map(|seconds| duration(seconds as f64));
            say(&format!("{head}: about {this}; all that is left: about {all}"));
            left -= mine;
            let outcome = self.one(experiment);
            say(&format!("{head}: {}", outcome.words()));
            interrupted = matches!(outcome, Outcome::Interrupted(_));
            self.state.experiments.insert(name.to_owned(), outcome);
            self.save(&self.dir.join(STATE))?;
            self.page()?;
            if interrupted {
                break;
            }
        }
        if !interrupted {
            self.page()?;
        }
        let of = |e: &Experiment| Some((e.name, self.state.experiments.get(e.name)?.clone()));
        Ok(experiments.iter().filter_map(of).collect())
    }

    fn one(&self, experiment: &Experiment) -> Outcome {
        if let Some(what) = experiment.missing() {
            return Outcome::CannotRun(what);
        }
        let before = match self.state.experiments.get(experiment.name) {
            Some(Outcome::Interrupted(seconds)) => *seconds,
            _ => 0,
        };
        let began = campaign::cpu::wall();
        let raw = self.dir.join(experiment.name).with_extension("json");
        let resumes = raw.exists() && matches!(experiment.source, Source::Campaign { .. });
        let (out, resume) = if resumes { (None, Some(raw.clone())) } else { (Some(raw.clone()), None) };
        let context = Context { out, resume, ..self.context.clone() };
        let done = (experiment.run)(&context).and_then(|report| keep(&raw, &report));
        let seconds = before + began.elapsed().as_secs();
        match done {
            Ok(()) => Outcome::Ran(seconds),
            Err(_) if self.context.interrupted.load(Ordering::Relaxed) => Outcome::Interrupted(seconds),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    /// The page that links all, and has every claim's verdict in one table.
    fn page(&self) -> Result<()> {
        let mut document = Document {
            title: "A reproduction by dormouse".to_owned(),
            lead: format!(
                "The {} plan with seed {}: what the papers claim, what came out here, and the data from which it follows.",
                self.state.plan, self.state.seed
            ),
            about: "dormouse lab reproduce".to_owned(),
            ..Document::default()
        };
        let head = ["experiment", "claim", "paper", "ours", "expected", "verdict"];
        let (mut claims, mut counts) = (Table::words(head), BTreeMap::new());
        let mut experiments = Vec::new();
        for (name, outcome) in &self.state.experiments {
            experiments.push(Part::Text(format!("{name}: {}", outcome.words())));
            if !matches!(outcome, Outcome::Ran(_)) {
                continue;
            }
            let path = self.dir.join(name).with_extension(REPORT);
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            let report: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
            for claim in report["claims"].as_array().into_iter().flatten() {
                let word = |key: &str| claim[key].as_str().unwrap_or_default().to_owned();
                let finding = word("finding").replace('-', " ");
                claims.row([
                    name.clone(),
                    format!("{} ({})", word("claim"), word("place")),
                    word("paper"),
                    word("ours"),
                    word("expected"),
                    finding.clone(),
                ]);
                *counts.entry(finding).or_insert(0u32) += 1;
            }
            experiments.push(Part::Files(
                format!("{name}: report"),
                links(name, &[("page", "html"), ("text", "txt"), ("JSON", REPORT), ("raw data", "json")]),
            ));
            for (kind, exhibits) in [("tables", &report["tables"]), ("figures", &report["figures"])] {
                let places = exhibits.as_array().into_iter().flatten().filter_map(|e| e["place"].as_str());
                let ends: &[&str] = if kind == "tables" { &["csv"] } else { &["csv", "svg"] };
                let files = places.enumerate().flat_map(|(n, place)| {
                    let file = move |end: &&str| {
                        (format!("{place} ({end})"), format!("{name}/{}.{end}", stem(kind, n, place)))
                    };
                    ends.iter().map(file)
                });
                experiments.push(Part::Files(format!("{name}: {kind}"), files.collect()));
            }
        }
        counts.remove("");
        let cards = counts.into_iter().map(|(finding, n)| (n.to_string(), format!("claims {finding}")));
        document.blocks.push(dormouse_report::Block::Cards(cards.collect()));
        document.section("claims", "Claims", [Part::Table(claims)]);
        document.section("experiments", "Experiments", experiments);
        let versions = self.state.versions.iter().map(|(what, version)| format!("{what} {version}"));
        document.section("", "Made by", [Part::List(versions.collect())]);
        document.section("", "Checking", [Part::Text(
            "Each experiment's page ends with its provenance. `dormouse lab verify DIRECTORY` makes every report again from the raw data; \
             `python3 scripts/check-reproduction DIRECTORY` computes savings, intervals and verdicts with a program of its own.".to_owned(),
        )]);
        let page = document.html().map_err(anyhow::Error::msg)?;
        let path = self.dir.join(PAGE);
        write_whole(&path, page.as_bytes()).with_context(|| path.display().to_string())
    }
}

fn links(name: &str, ends: &[(&str, &str)]) -> Vec<(String, String)> {
    ends.iter().map(|(what, end)| ((*what).to_owned(), format!("{name}.{end}"))).collect()
}

/// Writes a report beside its raw data: as JSON, text and page, and each table and figure by itself.
///
/// # Errors
/// If it cannot be written.
pub fn keep(raw: &Path, report: &Report) -> Result<()> {
    let put = |path: PathBuf, text: &str| {
        write_whole(&path, text.as_bytes()).with_context(|| path.display().to_string())
    };
    let folder = raw.with_extension("");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (n, Exhibit { place, shown }) in report.tables.iter().enumerate() {
        put(folder.join(stem("tables", n, place) + ".csv"), &shown.csv())?;
    }
    for (n, Exhibit { place, shown }) in report.figures.iter().enumerate() {
        let name = stem("figures", n, place);
        put(folder.join(name.clone() + ".csv"), &shown.csv())?;
        put(folder.join(name + ".svg"), &shown.svg().map_err(anyhow::Error::msg)?)?;
    }
    // The report last: where it is, all is.
    let [first, others @ ..] = report.files()?;
    for (end, text) in others.into_iter().chain([first]) {
        put(raw.with_extension(end), &text)?;
    }
    Ok(())
}

/// The raw data in a directory that have a report beside them, by name.
///
/// # Errors
/// If it cannot be read, or has none.
pub fn raw_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let shown = || dir.display().to_string();
    let entries =
        fs::read_dir(dir).with_context(shown)?.collect::<Result<Vec<_>, _>>().with_context(shown)?;
    let raw = |stem: PathBuf| Some(stem.with_extension("json")).filter(|raw| raw.exists());
    let of =
        |path: PathBuf| Some(dir.join(path.file_name()?.to_str()?.strip_suffix(REPORT)?.strip_suffix('.')?));
    let mut files: Vec<PathBuf> = entries.into_iter().filter_map(|e| raw(of(e.path())?)).collect();
    files.sort();
    ensure!(!files.is_empty(), "{}: no raw data with a report beside them", shown());
    Ok(files)
}

/// The name of an exhibit's file: its kind, number and place.
fn stem(kind: &str, n: usize, place: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let words: String = place.chars().map(letter).collect();
    let words = words.split('-').filter(|w| !w.is_empty()).collect::<Vec<_>>().join("-");
    format!("{}-{:02}-{words}", kind.trim_end_matches('s'), n + 1)
}
