//! An external instrument's file: rows that grow while it measures, or a finished recording. Owns following and analysing the file; what
//! a row says is `dormouse_energy::meter::csv`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_energy::meter::csv::{Columns, MAX_LINE, Row, RowError, Rows};
use dormouse_energy::meter::integral::Integral;
use dormouse_energy::meter::{Grain, Kind, Meter, MeterError, Reading, Source};
use dormouse_sansio::Instant;

use super::files::failed;
use crate::clock::unix_now_precise;

/// Read at once, in bytes: a reading stays cheap however fast the file grows.
const PIECE: u64 = 4 << 20;
/// What may stand in the file when it is opened, in bytes.
const MAX_BEFORE: u64 = 256 << 20;
/// Malformed rows that are kept to be shown.
const SHOWN: usize = 20;

/// Rows from now on.
#[derive(Debug)]
pub(super) struct External {
    source: Source,
    path: PathBuf,
    file: File,
    position: u64,
    /// The beginning of a line whose end is not written yet.
    partial: Vec<u8>,
    rows: Rows,
    opened: Instant,
    /// Added to the file's time it gives seconds after the opening; `None` until there is a row to tell.
    offset: Option<f64>,
    /// The last row before the opening.
    before: Option<(f64, f64)>,
    energy: Integral,
    mistakes: Mistakes,
    restarts: u32,
}

/// Malformed rows.
#[derive(Clone, Debug, Default)]
struct Mistakes {
    count: u64,
    first: Vec<RowError>,
}

impl Mistakes {
    fn add(&mut self, error: RowError) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(error);
        }
    }
}

impl External {
    pub(super) fn open(path: &Path, columns: Columns, now: Instant) -> Result<Self, MeterError> {
        let file = regular(path)?;
        let length = file.metadata().map_err(|e| failed(path, &e))?.len();
        if length > MAX_BEFORE {
            return Err(MeterError::Rows(format!(
                "{} holds {length} bytes already, expected at most {MAX_BEFORE}: begin a new file, or analyse this one",
                path.display()
            )));
        }
        let offset = columns.is_unix().then(|| -unix_now_precise().as_secs_f64());
        let mut external = Self {
            source: Source { kind: Kind::External, name: path.display().to_string() },
            path: path.to_owned(),
            file,
            position: 0,
            partial: Vec::new(),
            rows: Rows::new(columns),
            opened: now,
            offset,
            before: None,
            energy: Integral::default(),
            mistakes: Mistakes::default(),
            restarts: 0,
        };
        let newest = external.advance(MAX_BEFORE)?;
        // Rows that were there already lie before the opening, the newest of them just now.
        if let (None, Some(row)) = (external.offset, newest) {
            external.offset = Some(-row.seconds);
            external.take(row);
        }
        Ok(external)
    }

    /// Reads what was written since; gives the newest row.
    fn advance(&mut self, most: u64) -> Result<Option<Row>, MeterError> {
        let fail = |path: &Path, e: std::io::Error| failed(path, &e);
        let length = self.file.metadata().map_err(|e| fail(&self.path, e))?.len();
        if length < self.position {
            // The instrument began its file anew: its clock did too.
            self.restarts += 1;
            self.position = 0;
            self.partial.clear();
            self.rows = Rows::new(self.rows.columns().clone());
            self.energy.interrupt();
            self.before = None;
            if !self.rows.columns().is_unix() {
                self.offset = None;
            }
        }
        self.file.seek(SeekFrom::Start(self.position)).map_err(|e| fail(&self.path, e))?;
        let mut bytes = std::mem::take(&mut self.partial);
        let read = (&mut self.file).take(most).read_to_end(&mut bytes).map_err(|e| fail(&self.path, e))?;
        self.position += u64::try_from(read).unwrap_or(u64::MAX);
        let mut newest = None;
        let mut rest = bytes.as_slice();
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            newest = self.line(line).or(newest);
        }
        // A line without an end is not kept for ever.
        if rest.len() > MAX_LINE {
            newest = self.line(rest).or(newest);
        } else {
            self.partial = rest.to_vec();
        }
        Ok(newest)
    }

    fn line(&mut self, line: &[u8]) -> Option<Row> {
        match self.rows.push(line) {
            Ok(Some(row)) => {
                if self.offset.is_some() {
                    self.take(row);
                }
                Some(row)
            }
            Ok(None) => None,
            Err(e) => {
                self.mistakes.add(e);
                None
            }
        }
    }

    /// Counts a row, from the opening on.
    fn take(&mut self, row: Row) {
        let at = row.seconds + self.offset.unwrap_or_default();
        if at < 0.0 {
            self.before = Some((at, row.watts));
            return;
        }
        if let Some((then, watts)) = self.before.take()
            && at > then
        {
            // The part of the interval that lies after the opening.
            self.energy.push(0.0, watts + (row.watts - watts) * (-then / (at - then)));
        }
        self.energy.push(at, row.watts);
    }
}

impl Meter for External {
    fn source(&self) -> &Source {
        &self.source
    }

    fn read(&mut self, now: Instant) -> Result<Reading, MeterError> {
        let newest = self.advance(PIECE)?;
        if let (None, Some(row)) = (self.offset, newest) {
            self.offset = Some(now.saturating_since(self.opened).as_secs_f64() - row.seconds);
            self.take(row);
        }
        let last = self.energy.last();
        let seconds = last.map_or(0.0, |(at, _)| at);
        let behind = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Ok(Reading {
            joules: self.energy.joules(),
            uncertainty: self.energy.uncertainty(),
            at: (self.opened + behind).min(now),
            watts: last.map(|(_, watts)| watts),
            uncounted: Duration::ZERO,
        })
    }

    fn grain(&self) -> Grain {
        let pause = self.energy.longest_pause();
        Grain { step: 0.0, step_seen: true, refresh: (pause > 0.0).then_some(pause) }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("an external instrument sees {}", Kind::External.sees())];
        if !self.rows.columns().is_unix() {
            notes.push("its newest row is taken for the present: what it writes late is counted late".into());
        }
        if self.restarts > 0 {
            notes.push(format!(
                "{} began anew {} times: what it measured in between is missing",
                self.source.name, self.restarts
            ));
        }
        if self.mistakes.count > 0 {
            let first: Vec<String> = self.mistakes.first.iter().take(3).map(RowError::to_string).collect();
            notes.push(format!("{} rows are malformed: {}", self.mistakes.count, first.join("; ")));
        }
        notes
    }
}

/// A finished recording as a whole.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Analysis {
    /// Rows with values.
    pub rows: u64,
    /// From the first to the last of them, in seconds.
    pub seconds: f64,
    /// `W = ∫ v·i dt`, in joules.
    pub joules: f64,
    /// How far that may be off if the power only moved between the rows' values, in joules.
    pub uncertainty: f64,
    /// Least power, in watts.
    pub least_watts: f64,
    /// Greatest power, in watts.
    pub most_watts: f64,
    /// Longest time between two rows, in seconds.
    pub longest_pause: f64,
    /// Rows that are malformed.
    pub malformed: u64,
    /// What is wrong with the first of them.
    pub mistakes: Vec<String>,
}

impl Analysis {
    /// Mean power, in watts; `None` without any time.
    #[must_use]
    pub fn mean_watts(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.joules / self.seconds)
    }
}

/// Reads a recording from its first to its last row, of any length.
///
/// # Errors
/// If it cannot be read; malformed rows are counted and named instead.
pub fn analyse(path: &Path, columns: Columns) -> Result<Analysis, MeterError> {
    let mut file = BufReader::with_capacity(1 << 18, regular(path)?);
    let mut rows = Rows::new(columns);
    let mut energy = Integral::default();
    let mut mistakes = Mistakes::default();
    let (mut count, mut first) = (0, None);
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut line = Vec::new();
    let longest = u64::try_from(MAX_LINE).unwrap_or(u64::MAX) + 2;
    loop {
        line.clear();
        let read = (&mut file).take(longest).read_until(b'\n', &mut line).map_err(|e| failed(path, &e))?;
        if read == 0 {
            break;
        }
        match rows.push(&line) {
            Ok(Some(row)) => {
                count += 1;
                first.get_or_insert(row.seconds);
                (least, most) = (least.min(row.watts), most.max(row.watts));
                energy.push(row.seconds, row.watts);
            }
            Ok(None) => {}
            Err(e) => mistakes.add(e),
        }
    }
    let seconds = energy.last().zip(first).map_or(0.0, |((last, _), first)| last - first);
    let bounded = |v: f64| if v.is_finite() { v } else { 0.0 };
    Ok(Analysis {
        rows: count,
        seconds,
        joules: energy.joules(),
        uncertainty: energy.uncertainty(),
        least_watts: bounded(least),
        most_watts: bounded(most),
        longest_pause: energy.longest_pause(),
        malformed: mistakes.count,
        mistakes: mistakes.first.iter().map(RowError::to_string).collect(),
    })
}

/// Opens a regular file: a pipe would block.
fn regular(path: &Path) -> Result<File, MeterError> {
    let metadata = std::fs::metadata(path).map_err(|e| failed(path, &e))?;
    if !metadata.is_file() {
        let why = "not a regular file".to_owned();
        return Err(MeterError::Unreadable { file: path.display().to_string(), why });
    }
    File::open(path).map_err(|e| failed(path, &e))
}
