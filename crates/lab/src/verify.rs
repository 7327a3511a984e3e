//! Whether a report follows from its raw data: makes it again and holds the two against each other. Owns the comparison, byte by byte; must
//! never measure anything.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::experiment::REPORT;
use crate::results::file::MAX_BYTES;
use crate::{Context, EXPERIMENTS, Experiment, Report, find};

/// Differences that are listed of one file.
const LISTED: usize = 20;

/// What came out.
#[derive(Debug)]
pub struct Verified {
    /// The report that follows from the raw data.
    pub report: Report,
    /// What was held against it.
    pub compared: Vec<PathBuf>,
    /// Where they differ; empty if they are the same to the last byte.
    pub differences: Vec<String>,
}

/// Makes the report again that follows from the raw data in a file, and compares it with what stands beside it: `X.report.json`, `X.txt` and
/// `X.html` beside `X.json`.
///
/// # Errors
/// If the raw data cannot be read, or it is not known which experiment they are of.
pub fn verify(raw: &Path) -> Result<Verified> {
    let shown = raw.display();
    let printed = raw.with_extension(REPORT);
    let before = printed.exists().then(|| json(&printed)).transpose()?;
    let experiment = experiment(&json(raw)?, before.as_ref()).with_context(|| shown.to_string())?;
    let context = Context { file: Some(raw.to_owned()), ..Context::default() };
    let report = (experiment.run)(&context)?;
    let (mut compared, mut differences) = (Vec::new(), Vec::new());
    for (end, ours) in report.files()? {
        let path = raw.with_extension(end);
        let Ok(theirs) = fs::read_to_string(&path) else { continue };
        if ours != theirs {
            let name = path.display().to_string();
            match (&before, end) {
                (Some(before), REPORT) => differ(&name, before, &report.json(), &mut differences),
                _ => lines(&name, &theirs, &ours, &mut differences),
            }
            if differences.is_empty() {
                differences.push(format!("{name}: the same values, written otherwise"));
            }
        }
        compared.push(path);
    }
    Ok(Verified { report, compared, differences })
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

fn json(path: &Path) -> Result<Value> {
    let shown = || path.display().to_string();
    let bytes = fs::metadata(path).with_context(shown)?.len();
    ensure!(bytes <= MAX_BYTES, "{}: {bytes} bytes, expected at most {MAX_BYTES}", shown());
    serde_json::from_slice(&fs::read(path).with_context(shown)?).with_context(shown)
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
