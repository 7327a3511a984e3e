//! Reading and writing result files. Owns what makes a file acceptable: strict about format, version and ranges, lenient about
//! fields it does not know. Must never leave half a file behind, and never let a figure in that is not a finite number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use dormouse_report::write_whole;
use serde_json::Value;

use super::format::{
    FORMAT, MAX_LISTED, MAX_NUMBERS, MAX_ROUNDS, MAX_SAMPLES, MAX_TEXT, Point, Results, Sample, VERSION,
};
use super::provenance::Provenance;

/// Bytes of a file, at most.
pub const MAX_BYTES: u64 = 256 << 20;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read at all.
    #[error("it cannot be read")]
    Io(#[source] io::Error),
    /// More bytes than any campaign writes.
    #[error("{bytes} bytes or more, expected at most {MAX_BYTES}")]
    TooLarge {
        /// How many were seen.
        bytes: u64,
    },
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(serde_json::Error),
    /// JSON, but of something else.
    #[error("format is {found}, expected \"{FORMAT}\": this is no results file of dormouse")]
    Format {
        /// What stands there.
        found: String,
    },
    /// Of another experiment.
    #[error("it is of {found}, expected {expected}")]
    Experiment {
        /// What stands there.
        found: String,
        /// What was to be read.
        expected: &'static str,
    },
    /// Another version.
    #[error("version is {found}, expected {VERSION}: written by another release of dormouse")]
    Version {
        /// What stands there.
        found: String,
    },
    /// A field is missing or wrong.
    #[error("at {place}: {problem}")]
    Field {
        /// Where, as `samples[3].rounds[0].loss`.
        place: String,
        /// What is wrong.
        problem: String,
    },
}

impl ReadError {
    fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { place: place.into(), problem: problem.into() }
    }
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The results break a rule of the format: a defect of the program that made them.
    #[error("refusing to write: {0}")]
    Invalid(ReadError),
    /// The file system.
    #[error("{path}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl<P: Point> Results<P> {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ReadError`], which names the place in the file; the file itself its caller knows.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let failed = ReadError::Io;
        let mut text = Vec::new();
        let file = fs::File::open(path).map_err(failed)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        Self::parse(&text)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// As [`Results::read`].
    pub fn parse(text: &[u8]) -> Result<Self, ReadError> {
        let bytes = text.len() as u64;
        if bytes > MAX_BYTES {
            return Err(ReadError::TooLarge { bytes });
        }
        let mut value: Value = serde_json::from_slice(text).map_err(ReadError::Json)?;
        // Before anything else: a file of another kind or version should not be blamed for its fields.
        let shown = |key: &str| value.get(key).map_or_else(|| "missing".to_owned(), short);
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(ReadError::Format { found: shown("format") });
        }
        if value.get("version").and_then(Value::as_u64) != Some(u64::from(VERSION)) {
            return Err(ReadError::Version { found: shown("version") });
        }
        if value.get("experiment").and_then(Value::as_str) != Some(P::EXPERIMENT) {
            return Err(ReadError::Experiment { found: shown("experiment"), expected: P::EXPERIMENT });
        }
        printable(&mut value);
        let results: Self = serde_path_to_error::deserialize(value)
            .map_err(|e| ReadError::at(e.path().to_string(), e.inner().to_string()))?;
        results.check()?;
        Ok(results)
    }

    /// Writes the file, as [`write_whole`] does.
    ///
    /// # Errors
    /// When a rule of the format is broken, or the file system refuses.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        self.check().map_err(WriteError::Invalid)?;
        let failed = |source| WriteError::Io { path: path.to_owned(), source };
        let text = self.text().map_err(|e| failed(e.into()))?;
        if text.len() as u64 > MAX_BYTES {
            let bytes = text.len() as u64;
            return Err(WriteError::Invalid(ReadError::TooLarge { bytes }));
        }
        write_whole(path, &text).map_err(failed)
    }

    /// The text of a file: a sample on each line, for they have many numbers.
    fn text(&self) -> serde_json::Result<Vec<u8>> {
        let mut head = serde_json::to_value(Provenance::from(self))?;
        head["format"] = self.format.clone().into();
        head["version"] = self.version.into();
        head["experiment"] = self.experiment.clone().into();
        head["units"] = serde_json::to_value(&self.units)?;
        let mut text = serde_json::to_vec_pretty(&head)?;
        text.truncate(text.len() - "\n}".len());
        text.extend(b",\n  \"samples\": [");
        for (n, sample) in self.samples.iter().enumerate() {
            text.extend(if n == 0 { &b"\n    "[..] } else { b",\n    " });
            serde_json::to_writer(&mut text, sample)?;
        }
        text.extend(b"\n  ]\n}\n");
        Ok(text)
    }

    /// Whether every rule of the format holds that types do not express.
    ///
    /// # Errors
    /// The first that does not, with its place.
    pub fn check(&self) -> Result<(), ReadError> {
        let value = serde_json::to_value(self).map_err(ReadError::Json)?;
        walk("", ("", ""), &value)?;
        let each = |(n, s): (usize, &Sample<P>)| sample(&format!("samples[{n}]"), s, &self.units);
        self.samples.iter().enumerate().try_for_each(each)
    }
}

/// The least and the most that a number may be, by the field around it and its own.
const RANGES: [((&str, &str), f64, f64); 6] = [
    (("", "rounds"), 0.0, MAX_LISTED as f64),
    (("conditions", "load_before"), 0.0, 1e9),
    (("conditions", "load_after"), 0.0, 1e9),
    (("conditions", "steal"), 0.0, 1.0),
    (("conditions", "yardstick"), 0.0, 1e6),
    (("energy", "idle_watts"), 0.0, 1e6),
];

/// The same for a figure, by its unit. What is above idle may be below zero: noise.
fn range(unit: &str) -> (f64, f64) {
    match unit {
        "1" => (0.0, 1.0),
        "s" | "ms" | "B/s" | "count" => (0.0, 1e15),
        _ => (-1e15, 1e15),
    }
}

/// Looks at all that is written: at `place`, in the field `within` (with the field around it).
fn walk(place: &str, within: (&str, &str), value: &Value) -> Result<(), ReadError> {
    match value {
        Value::Bool(_) => Ok(()),
        Value::Null => Err(ReadError::at(place, "it is no finite number")),
        Value::String(text) => self::text(place, text),
        Value::Number(number) => {
            let Some((_, low, high)) = RANGES.iter().find(|r| r.0 == within) else { return Ok(()) };
            between(place, number.as_f64().unwrap_or(f64::NAN), (*low, *high))
        }
        Value::Array(values) => {
            let most = match within {
                (_, "samples") => MAX_SAMPLES,
                ("samples", "rounds") => MAX_ROUNDS,
                ("figures", _) => MAX_NUMBERS,
                _ => MAX_LISTED,
            };
            if values.len() > most {
                let problem = format!("{} values, expected at most {most}", values.len());
                return Err(ReadError::at(place, problem));
            }
            values.iter().enumerate().try_for_each(|(n, v)| walk(&format!("{place}[{n}]"), within, v))
        }
        Value::Object(map) => map.iter().try_for_each(|(key, value)| {
            text(place, key)?;
            let inner = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            walk(&inner, (within.1, key), value)
        }),
    }
}

fn between(place: &str, value: f64, (low, high): (f64, f64)) -> Result<(), ReadError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ReadError::at(place, format!("{value} is not between {low} and {high}")))
}

/// The point of a sample; its rounds, each of which is there once; its figures, each of which has a unit.
fn sample<P: Point>(place: &str, s: &Sample<P>, units: &BTreeMap<String, String>) -> Result<(), ReadError> {
    s.point.check().map_err(|(axis, problem)| ReadError::at(format!("{place}.point.{axis}"), problem))?;
    let mut seen = BTreeSet::new();
    for (n, r) in s.rounds.iter().enumerate() {
        let place = format!("{place}.rounds[{n}]");
        if !seen.insert(r.round) {
            return Err(ReadError::at(format!("{place}.round"), format!("round {} is there twice", r.round)));
        }
        for (name, values) in r.figures.iter() {
            let place = format!("{place}.figures.{name}");
            let unit = units.get(name.split('.').next().unwrap_or(name));
            let unit = unit.ok_or_else(|| ReadError::at(&place, "it has no unit"))?;
            values.iter().try_for_each(|v| between(&place, *v, range(unit)))?;
        }
    }
    Ok(())
}

fn text(place: &str, value: &str) -> Result<(), ReadError> {
    if value.len() > MAX_TEXT {
        let problem = format!("{} bytes of text, expected at most {MAX_TEXT}", value.len());
        return Err(ReadError::at(place, problem));
    }
    Ok(())
}

/// Takes out of all texts what a terminal would obey instead of showing it: control characters, those that turn the direction
/// of writing included. A file may come from anywhere, and its words are printed.
fn printable(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(obeyed) => *text = text.replace(obeyed, "\u{fffd}"),
        Value::Array(values) => values.iter_mut().for_each(printable),
        Value::Object(map) => {
            if map.keys().any(|key| key.contains(obeyed)) {
                *map = std::mem::take(map)
                    .into_iter()
                    .map(|(key, value)| (key.replace(obeyed, "\u{fffd}"), value))
                    .collect();
            }
            map.values_mut().for_each(printable);
        }
        _ => {}
    }
}

/// Whether a terminal obeys it. The end of a line is one of many that `skipped` and `remark` may have.
fn obeyed(c: char) -> bool {
    c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A JSON value, short enough for an error.
fn short(value: &Value) -> String {
    // JSON escapes most control characters by itself; not all.
    let text = value.to_string().replace(obeyed, "\u{fffd}");
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
