//! Whether a report follows from its raw data: makes it again and holds the two against each other. Owns the comparison, byte by byte; must
//! never measure anything.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::experiment::REPORT;
use crate::kept::{self, Raw, json};
use crate::reproduce::{PAGE, STATE, State};
use crate::{Context, EXPERIMENTS, Experiment, Report, find};

/// Differences that are listed of one file.
const LISTED: usize = 20;

/// What came out.
#[derive(Debug)]
pub struct Verified {
    /// Of which raw data; for a directory's page, the state that it follows from.
    pub raw: PathBuf,
    /// The report that follows from them, if any does.
    pub report: Option<Report>,
    /// What was held against it.
    pub compared: Vec<PathBuf>,
    /// Where they differ; empty if they are the same to the last byte.
    pub differences: Vec<String>,
}

impl Verified {
    /// Whether something was compared, and was the same.
    #[must_use]
    pub const fn holds(&self) -> bool {
        !self.compared.is_empty() && self.differences.is_empty()
    }
}

/// Makes the report again that follows from the raw data in a file, and compares it with what stands beside it: `X.report.json`, `X.txt` and
/// `X.html` beside `X.json`, and the tables and figures in `X`. What is not there is not compared.
///
/// # Errors
/// If the raw data or what stands beside them cannot be read, or it is not known which experiment they are of.
pub fn verify(raw: &Path) -> Result<Verified> {
    one(&Raw::new(raw)?, false)
}

/// The same of all reports in a directory. If a reproduction made it, nothing may be missing of what it says that ran, and its page is
/// compared too.
///
/// # Errors
/// If the directory cannot be read, or has no reports at all.
pub fn directory(dir: &Path) -> Result<Vec<Verified>> {
    let state = State::read(dir)?;
    let ran = |name: &str| {
        let outcomes = state.iter().flat_map(|s| &s.experiments);
        outcomes.filter(|(_, o)| o.has_report()).any(|(n, _)| n == name)
    };
    let named = |name: &str| Raw::new(&dir.join(format!("{name}.json")));
    let mut files = kept::in_directory(dir)?;
    for (name, _) in state.iter().flat_map(|s| &s.experiments).filter(|(_, o)| o.has_report()) {
        files.push(named(name)?);
    }
    files.sort();
    files.dedup();
    ensure!(!files.is_empty(), "{}: no raw data with a report beside them", dir.display());
    let of = |raw: &Raw| {
        let name = raw.path().file_stem().unwrap_or_default().to_string_lossy();
        let wrong = |error: anyhow::Error| Verified {
            raw: raw.path().to_owned(),
            report: None,
            compared: Vec::new(),
            differences: vec![format!("{error:#}")],
        };
        one(raw, ran(&name)).unwrap_or_else(wrong)
    };
    let mut all: Vec<Verified> = files.iter().map(of).collect();
    if let Some(state) = &state {
        let (mut compared, mut differences) = (Vec::new(), Vec::new());
        compare(&dir.join(PAGE), &state.page(dir)?, true, &mut compared, &mut differences, lines)?;
        all.push(Verified { raw: dir.join(STATE), report: None, compared, differences });
    }
    Ok(all)
}

/// `whole`: nothing may be missing.
fn one(raw: &Raw, whole: bool) -> Result<Verified> {
    let shown = raw.path().display();
    let printed = raw.beside(REPORT);
    let before = printed.exists().then(|| json(&printed)).transpose()?;
    let experiment = experiment(&json(raw.path())?, before.as_ref()).with_context(|| shown.to_string())?;
    let context = Context { file: Some(raw.path().to_owned()), ..Context::default() };
    let report = (experiment.run)(&context)?;
    let (mut compared, mut differences) = (Vec::new(), Vec::new());
    let files = raw.files(&report)?;
    for (path, ours) in &files {
        compare(
            path,
            ours,
            whole,
            &mut compared,
            &mut differences,
            |name, theirs, ours, into| match &before {
                Some(before) if *path == printed => differ(name, before, &report.json(), into),
                _ => lines(name, theirs, ours, into),
            },
        )?;
    }
    let others = raw.others(&files)?;
    differences.extend(others.iter().map(|path| format!("{}: nothing of the kind follows", path.display())));
    Ok(Verified { raw: raw.path().to_owned(), report: Some(report), compared, differences })
}

/// Compares a file with what follows. One that is not there is passed over, or a difference where it must be.
///
/// # Errors
/// If it is there and cannot be read.
fn compare(
    path: &Path,
    ours: &str,
    must: bool,
    compared: &mut Vec<PathBuf>,
    differences: &mut Vec<String>,
    differ: impl Fn(&str, &str, &str, &mut Vec<String>),
) -> Result<()> {
    let name = path.display().to_string();
    let theirs = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            differences.extend(must.then(|| format!("{name}: it is not there")));
            return Ok(());
        }
        theirs => theirs.with_context(|| name.clone())?,
    };
    if ours.as_bytes() != theirs {
        let mut mine = Vec::new();
        differ(&name, &String::from_utf8_lossy(&theirs), ours, &mut mine);
        if mine.is_empty() {
            mine.push(format!("{name}: the same values, written otherwise"));
        }
        differences.append(&mut mine);
    }
    compared.push(path.to_owned());
    Ok(())
}

/// Which experiment raw data are of: two use the same benchmark, so that the report says so first.
fn experiment(raw: &Value, report: Option<&Value>) -> Result<&'static Experiment> {
    let of = raw["experiment"].as_str().context("no results file of dormouse: it names no experiment")?;
    let name = report.and_then(|r| r["experiment"].as_str()).unwrap_or(of);
    if let Some(experiment) = find(name) {
        return Ok(experiment);
    }
    let names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
    bail!("of {of}, without a report beside it ({REPORT}) of one of {}", names.join(", "));
}

/// Where two values differ: in a file, or before and now.
fn differ(place: &str, before: &Value, now: &Value, into: &mut Vec<String>) {
    if into.len() >= LISTED {
        return;
    }
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                differ(&format!("{place}: {key}"), &before[key], &now[key], into);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                differ(&format!("{place}[{n}]"), a, b, into);
            }
        }
        _ if before != now => {
            into.push(format!("{place}: {} was printed, {} follows", short(before), short(now)))
        }
        _ => {}
    }
}

fn lines(name: &str, before: &str, now: &str, into: &mut Vec<String>) {
    let pairs = before.lines().zip(now.lines()).enumerate().filter(|(_, (a, b))| a != b);
    for (n, (a, b)) in pairs.take(LISTED.saturating_sub(into.len())) {
        let [a, b] = [a, b].map(|line| short(&Value::from(line)));
        into.push(format!("{name}: line {}: {a} was printed, {b} follows", n + 1));
    }
    let [a, b] = [before, now].map(|text| text.lines().count());
    if a != b {
        into.push(format!("{name}: {a} lines were printed, {b} follow"));
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
