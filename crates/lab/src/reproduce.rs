//! `dormouse lab reproduce`: experiments into one directory, with their reports, tables, figures and raw data, and one page that links them.
//! Owns the directory and what of it is kept after an interruption; must never mix two plans, two seeds or two builds in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, bail, ensure};
use dormouse_report::{Document, Part, Table, duration, write_whole};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::campaign::{self, Another};
use crate::experiment::{Context, Experiment, REPORT};
use crate::kept::{Raw, json, stem};

/// The state of a directory; it stands in its [`STATE`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    format: String,
    version: u32,
    plan: String,
    seed: u64,
    recordings: Vec<PathBuf>,
    /// How they are read, in the words of raw data.
    #[serde(default)]
    reading: serde_json::Value,
    /// What must not change on the way.
    versions: BTreeMap<String, String>,
    /// What came of each experiment so far.
    pub(crate) experiments: BTreeMap<String, Outcome>,
    /// What was missing when its raw data were begun, without which a part of an experiment is left out.
    #[serde(default)]
    lacked: BTreeMap<String, String>,
}

/// The file of a directory's state.
pub(crate) const STATE: &str = "reproduction.json";
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
    /// A part of it ran.
    RanInPart {
        /// In so many, as above.
        seconds: u64,
        /// What cannot be measured here, and why.
        skipped: Vec<String>,
        /// What could have been, and went wrong: [`Provenance::failures`](crate::results::provenance::Provenance::failures).
        #[serde(default)]
        failed: Vec<String>,
    },
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
            Self::RanInPart { seconds, skipped, failed } => {
                let took = duration(*seconds as f64);
                let named = [("not measurable here", skipped), ("incomplete", failed)];
                let named = named.into_iter().filter(|(_, all)| !all.is_empty());
                let parts: Vec<String> =
                    named.map(|(what, all)| format!("; {what}: {}", all.join("; "))).collect();
                format!("ran in part, in {took}{}", parts.concat())
            }
            Self::CannotRun(what) => format!("cannot run here: it needs {what}"),
            Self::Failed(why) => format!("failed: {why}"),
            Self::Interrupted(_) => "interrupted: the same command goes on".to_owned(),
        }
    }

    /// Whether something went wrong, or is not done yet.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Interrupted(_) => true,
            Self::RanInPart { failed, .. } => !failed.is_empty(),
            Self::Ran(_) | Self::CannotRun(_) => false,
        }
    }

    /// Whether there is a report.
    #[must_use]
    pub const fn has_report(&self) -> bool {
        matches!(self, Self::Ran(_) | Self::RanInPart { .. })
    }
}

/// What is to be reproduced, and where.
#[derive(Debug)]
pub struct Reproduction {
    dir: PathBuf,
    context: Context,
    state: State,
    /// On the directory, until this goes: two programs must not write one state.
    _lock: Flock<File>,
}

impl Reproduction {
    /// Into a directory, which may be one that an interrupted reproduction left. Of `context` counts what is the same for all
    /// experiments: recordings, the plan, the seed, threads, interruption and progress.
    ///
    /// # Errors
    /// If the directory cannot be written, another program works in it, or what is in it is of another plan, seed or build, or no
    /// reproduction at all.
    pub fn new(dir: &Path, context: Context) -> Result<Self> {
        let mut versions = campaign::versions();
        // A kernel may change below raw data that are not measured; campaigns look for themselves.
        versions.remove("kernel");
        let plan = context.plan().to_owned();
        let mut state = State {
            format: FORMAT.to_owned(),
            version: VERSION,
            plan,
            seed: context.seed,
            recordings: context.recordings.clone(),
            reading: context.reading.json(),
            versions,
            experiments: BTreeMap::new(),
            lacked: BTreeMap::new(),
        };
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let lock = locked(dir)?;
        let path = dir.join(STATE);
        let shown = path.display();
        if let Some(before) = State::read(dir)? {
            for (what, then, now) in [
                ("plan", before.plan.clone(), state.plan.clone()),
                ("seed", before.seed.to_string(), state.seed.to_string()),
                ("recordings", format!("{:?}", before.recordings), format!("{:?}", state.recordings)),
                ("way of reading them", before.reading.to_string(), state.reading.to_string()),
                ("build", format!("{:?}", before.versions), format!("{:?}", state.versions)),
            ] {
                ensure!(
                    then == now,
                    "{shown}: another {what}: {then}, and this is {now}: choose another directory"
                );
            }
            (state.experiments, state.lacked) = (before.experiments, before.lacked);
        } else {
            let mut there = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
            ensure!(
                there.next().is_none(),
                "{}: not empty, and no reproduction (it has no {STATE}): choose another directory",
                dir.display()
            );
        }
        let reproduction = Self { dir: dir.to_owned(), context, state, _lock: lock };
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
        let short = self.context.short;
        let takes = |e: &Experiment| u64::from(e.takes[usize::from(!short)].seconds);
        let mut left: u64 = experiments.iter().filter(|e| !self.is_kept(e)).map(takes).sum();
        let (many, say) = (experiments.len(), self.context.progress);
        let mut interrupted = false;
        for (n, experiment) in experiments.iter().enumerate() {
            let (name, mine) = (experiment.name, takes(experiment));
            let head = format!("[{} of {many}] {name}", n + 1);
            if self.is_kept(experiment) {
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

    /// Whether nothing is left to do for it.
    fn is_kept(&self, experiment: &Experiment) -> bool {
        let name = experiment.name;
        let there = || self.dir.join(format!("{name}.{REPORT}")).exists();
        match self.state.experiments.get(name) {
            Some(Outcome::Ran(_)) => there(),
            // What was missing may be there now; a recording may be whole. Points that were given up are gone from a campaign's raw data.
            Some(Outcome::RanInPart { failed, .. }) => {
                (failed.is_empty() || experiment.source.measures())
                    && self.lacked_the_same(experiment)
                    && there()
            }
            _ => false,
        }
    }

    fn lacked_the_same(&self, experiment: &Experiment) -> bool {
        self.state.lacked.get(experiment.name) == (experiment.lacks)().as_ref()
    }

    fn one(&mut self, experiment: &Experiment) -> Outcome {
        if let Some(what) = experiment.missing() {
            return Outcome::CannotRun(what);
        }
        let before = match self.state.experiments.get(experiment.name) {
            Some(Outcome::Interrupted(seconds)) => *seconds,
            _ => 0,
        };
        let began = campaign::cpu::wall();
        let done = self.measured(experiment);
        let seconds = before + began.elapsed().as_secs();
        match done {
            Ok([skipped, failed]) if skipped.is_empty() && failed.is_empty() => Outcome::Ran(seconds),
            Ok([skipped, failed]) => Outcome::RanInPart { seconds, skipped, failed },
            Err(_) if self.context.interrupted.load(Ordering::Relaxed) => Outcome::Interrupted(seconds),
            Err(error) if error.is::<Another>() => {
                Outcome::Failed(format!("{error:#}: choose another directory"))
            }
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    /// Runs it, or goes on with it, and keeps its report; gives what cannot be measured here, and what failed.
    fn measured(&mut self, experiment: &Experiment) -> Result<[Vec<String>; 2]> {
        let name = experiment.name;
        let raw = Raw::to_be_made(&self.dir.join(format!("{name}.json")))?;
        let path = raw.path().to_owned();
        // What was begun without something goes on only without it.
        let same = self.lacked_the_same(experiment);
        let resumes = path.exists() && same && experiment.source.measures();
        if resumes {
            self.of_this_plan(&path)?;
        } else {
            match (experiment.lacks)() {
                Some(what) => self.state.lacked.insert(name.to_owned(), what),
                None => self.state.lacked.remove(name),
            };
            self.save(&self.dir.join(STATE))?;
            // A report on other raw data must not stand beside the new ones.
            match fs::remove_file(raw.beside(REPORT)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error)?,
                _ => {}
            }
        }
        let (out, resume) = if resumes { (None, Some(path)) } else { (Some(path), None) };
        let context = Context { out, resume, ..self.context.clone() };
        let report = (experiment.run)(&context)?;
        raw.keep(&report)?;
        Ok([report.provenance.absent(), report.provenance.failures()])
    }

    /// Whether raw data are of the plan and seed of the directory.
    fn of_this_plan(&self, raw: &Path) -> Result<()> {
        let there = json(raw)?;
        for (what, then, now) in [
            ("plan", there["plan"].as_str().unwrap_or("none").to_owned(), self.state.plan.clone()),
            ("seed", there["seed"].to_string(), self.state.seed.to_string()),
        ] {
            if then != now {
                let words = format!("{}: another {what}: {then}, and this is {now}", raw.display());
                bail!(Another(words));
            }
        }
        Ok(())
    }

    /// Writes the page that links all.
    fn page(&self) -> Result<()> {
        let path = self.dir.join(PAGE);
        write_whole(&path, self.state.page(&self.dir)?.as_bytes()).with_context(|| path.display().to_string())
    }
}

/// Takes a directory for this program alone.
fn locked(dir: &Path) -> Result<Flock<File>> {
    let shown = dir.display();
    let file = File::open(dir).with_context(|| shown.to_string())?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => bail!("{shown}: another reproduction works in it"),
        Err((_, error)) => Err(error).with_context(|| shown.to_string()),
    }
}

impl State {
    /// That of a directory, if it has one.
    ///
    /// # Errors
    /// If it cannot be read, or is of another format.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(STATE);
        let shown = path.display();
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| shown.to_string())?,
        };
        let state: Self = serde_json::from_slice(&text).with_context(|| shown.to_string())?;
        ensure!(
            (state.format.as_str(), state.version) == (FORMAT, VERSION),
            "{shown}: another format: choose another directory"
        );
        Ok(Some(state))
    }

    /// The page that links all, and has every claim's verdict in one table.
    ///
    /// # Errors
    /// When it cannot be drawn, which would be a defect.
    pub(crate) fn page(&self, dir: &Path) -> Result<String> {
        let mut document = Document {
            title: "A reproduction by dormouse".to_owned(),
            lead: format!(
                "The {} plan with seed {}: what the papers claim, what came out here, and the data from which it follows.",
                self.plan, self.seed
            ),
            about: "dormouse lab reproduce".to_owned(),
            ..Document::default()
        };
        let head = ["experiment", "claim", "paper", "ours", "expected", "verdict"];
        let (mut claims, mut counts) = (Table::words(head), BTreeMap::new());
        let mut experiments = Vec::new();
        for (name, outcome) in &self.experiments {
            experiments.push(Part::Text(format!("{name}: {}", outcome.words())));
            if !outcome.has_report() {
                continue;
            }
            let report = match json(&dir.join(format!("{name}.{REPORT}"))) {
                Ok(report) => report,
                Err(error) => {
                    experiments.push(Part::Text(format!("{name}: its report cannot be read: {error:#}")));
                    continue;
                }
            };
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
        let versions = self.versions.iter().map(|(what, version)| format!("{what} {version}"));
        document.section("", "Made by", [Part::List(versions.collect())]);
        document.section("", "Checking", [Part::Text(
            "Each experiment's page ends with its provenance. `dormouse lab verify DIRECTORY` makes every report again from the raw data; \
             `python3 scripts/check-reproduction DIRECTORY` computes savings, intervals and verdicts with a program of its own.".to_owned(),
        )]);
        document.html().map_err(anyhow::Error::msg)
    }
}

fn links(name: &str, ends: &[(&str, &str)]) -> Vec<(String, String)> {
    ends.iter().map(|(what, end)| ((*what).to_owned(), format!("{name}.{end}"))).collect()
}
