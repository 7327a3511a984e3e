//! Rows of an external instrument: which column is what, in which unit. Owns the mapping and what a row says; must never skip a row
//! that it does not understand without saying which.
//!
//! A mapping is written `time=COLUMN:UNIT,volts=COLUMN:UNIT,amps=COLUMN:UNIT`, or with `watts=` in the place of both. A column
//! is its number from 1, or its name in the header row. Units: `s ms us ns h:m:s` and `unix` (seconds since 1970), `V mV`,
//! `A mA uA`, `W mW`; without a unit `s`, `V`, `A` and `W`. `delimiter=comma|semicolon|tab|space` is found from the first row
//! otherwise; `skip=N` leaves out N lines before the header; `offset=SECONDS` says when, after the meter was opened, the
//! file's clock showed zero.
//!
//! Empty lines and those that begin with `#` mean nothing. Where the comma does not separate columns it may stand in a number for
//! the point.

use core::fmt;
use core::str::FromStr;

/// Longest line, in bytes: no instrument writes more.
pub const MAX_LINE: usize = 16 << 10;

/// A column.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    /// From 0.
    Number(usize),
    Name(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "column {}", n + 1),
            Self::Name(name) => write!(f, "column {name:?}"),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Column {
    what: &'static str,
    key: Key,
    factor: f64,
    clock: bool,
}

/// What separates columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delimiter {
    One(char),
    /// Any run of blanks.
    Blanks,
}

/// Which column is what.
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    time: Column,
    /// One column of power, or two of voltage and current.
    power: Vec<Column>,
    delimiter: Option<Delimiter>,
    skip: u64,
    /// Seconds after the meter was opened at which the file's clock showed zero.
    offset: Option<f64>,
    unix: bool,
}

impl Mapping {
    /// When, in seconds after the meter was opened, the file's clock showed zero, if the user said so.
    #[must_use]
    pub const fn offset(&self) -> Option<f64> {
        self.offset
    }

    /// The file's time is wall-clock time: seconds since 1970.
    #[must_use]
    pub const fn is_unix(&self) -> bool {
        self.unix
    }
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut time, mut volts, mut amps, mut watts) = (None, None, None, None);
        let (mut delimiter, mut skip, mut offset) = (None, 0, None);
        let mut unix = false;
        for part in text.split(',') {
            let (name, value) =
                part.trim().split_once('=').ok_or_else(|| format!("{part:?}, expected NAME=COLUMN:UNIT"))?;
            let seconds = || value.parse::<f64>().ok().filter(|v| v.is_finite());
            match name {
                "time" => {
                    unix = value.ends_with(":unix");
                    time = Some(column("time", value, TIME)?);
                }
                "volts" => volts = Some(column("volts", value, VOLTS)?),
                "amps" => amps = Some(column("amps", value, AMPS)?),
                "watts" => watts = Some(column("watts", value, WATTS)?),
                "delimiter" => delimiter = Some(delimiter_named(value)?),
                "skip" => {
                    skip = value.parse().map_err(|_| format!("skip={value}, expected a number of lines"))?
                }
                "offset" => {
                    offset = Some(seconds().ok_or_else(|| format!("offset={value}, expected seconds"))?);
                }
                _ => {
                    return Err(format!(
                        "{name:?}, expected time, volts, amps, watts, delimiter, skip or offset"
                    ));
                }
            }
        }
        let time = time.ok_or("no time column: time=COLUMN:UNIT is missing")?;
        let power = match (watts, volts, amps) {
            (Some(w), None, None) => vec![w],
            (None, Some(v), Some(a)) => vec![v, a],
            _ => return Err("expected either watts, or both volts and amps".into()),
        };
        if unix && offset.is_some() {
            return Err("time in unix seconds needs no offset".into());
        }
        Ok(Self { time, power, delimiter, skip, offset, unix })
    }
}

type Units = &'static [(&'static str, f64)];
const TIME: Units = &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("h:m:s", 1.0), ("unix", 1.0)];
const VOLTS: Units = &[("V", 1.0), ("mV", 1e-3)];
const AMPS: Units = &[("A", 1.0), ("mA", 1e-3), ("uA", 1e-6)];
const WATTS: Units = &[("W", 1.0), ("mW", 1e-3)];

fn column(what: &'static str, value: &str, units: Units) -> Result<Column, String> {
    // "h:m:s" has colons of its own.
    let (key, unit) = match value.strip_suffix(":h:m:s") {
        Some(key) => (key, Some("h:m:s")),
        None => value.rsplit_once(':').map_or((value, None), |(key, unit)| (key, Some(unit))),
    };
    let factor = match unit {
        None => 1.0,
        Some(unit) => {
            units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(|| {
                let known: Vec<_> = units.iter().map(|(name, _)| *name).collect();
                format!("{what} in {unit:?}, expected {}", known.join(", "))
            })?
        }
    };
    let key = match key.parse::<usize>() {
        Ok(0) => return Err(format!("{what}: columns are counted from 1")),
        Ok(n) => Key::Number(n - 1),
        Err(_) if key.is_empty() => return Err(format!("{what} names no column")),
        Err(_) => Key::Name(key.to_owned()),
    };
    Ok(Column { what, key, factor, clock: unit == Some("h:m:s") })
}

fn delimiter_named(name: &str) -> Result<Delimiter, String> {
    Ok(match name {
        "comma" => Delimiter::One(','),
        "semicolon" => Delimiter::One(';'),
        "tab" => Delimiter::One('\t'),
        "space" => Delimiter::Blanks,
        _ => return Err(format!("delimiter={name}, expected comma, semicolon, tab or space")),
    })
}

/// What one row says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// By the file's clock, in seconds.
    pub seconds: f64,
    /// In watts.
    pub watts: f64,
}

/// A row that is not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct RowError {
    /// From 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// Reads rows, one line at a time.
#[derive(Clone, Debug)]
pub struct Rows {
    mapping: Mapping,
    line: u64,
    delimiter: Option<Delimiter>,
    /// Indices of time and power, once the header is known.
    indices: Option<Vec<usize>>,
    last: Option<f64>,
    header_seen: bool,
}

impl Rows {
    /// Before the first line.
    #[must_use]
    pub fn new(mapping: Mapping) -> Self {
        let delimiter = mapping.delimiter;
        Self { mapping, line: 0, delimiter, indices: None, last: None, header_seen: false }
    }

    /// How the columns are mapped.
    #[must_use]
    pub const fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Lines so far.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.line
    }

    /// The next line, without its line break; `None` if it carries no values (empty, comment, header).
    ///
    /// # Errors
    /// [`RowError`]; the next line can be read all the same.
    pub fn push(&mut self, line: &[u8]) -> Result<Option<Row>, RowError> {
        self.line += 1;
        let number = self.line;
        self.row(line).map_err(|why| RowError { line: number, why })
    }

    fn row(&mut self, line: &[u8]) -> Result<Option<Row>, String> {
        if self.line <= self.mapping.skip {
            return Ok(None);
        }
        if line.len() > MAX_LINE {
            return Err(format!("{} bytes long, expected at most {MAX_LINE}", line.len()));
        }
        let text = core::str::from_utf8(line).map_err(|_| "not text".to_owned())?;
        let text = text.trim_start_matches('\u{feff}').trim_matches(['\r', '\n', ' ']);
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let delimiter = *self.delimiter.get_or_insert_with(|| guess(text));
        let cells = split(text, delimiter);
        let indices = match &self.indices {
            Some(indices) => indices.clone(),
            None => match self.header(&cells, delimiter)? {
                Some(indices) => indices,
                None => return Ok(None),
            },
        };
        let columns = core::iter::once(&self.mapping.time).chain(&self.mapping.power);
        let mut values =
            columns.zip(&indices).map(|(column, index)| value(column, &cells, *index, delimiter));
        let seconds = values.next().transpose()?.unwrap_or_default();
        let watts = values.try_fold(1.0, |product, v| v.map(|v| product * v))?;
        if !watts.is_finite() {
            return Err("voltage times current is beyond all numbers".into());
        }
        if let Some(before) = self.last.filter(|before| seconds < *before) {
            return Err(format!("time goes back from {before} s to {seconds} s"));
        }
        self.last = Some(seconds);
        Ok(Some(Row { seconds, watts }))
    }

    /// Finds the columns. `None`: this line was the header.
    fn header(&mut self, cells: &[&str], delimiter: Delimiter) -> Result<Option<Vec<usize>>, String> {
        let columns: Vec<&Column> = core::iter::once(&self.mapping.time).chain(&self.mapping.power).collect();
        let named = columns.iter().any(|c| matches!(c.key, Key::Name(_)));
        let find = |c: &&Column| match &c.key {
            Key::Number(n) => Ok(*n),
            Key::Name(name) => {
                let found = cells.iter().position(|cell| cell.eq_ignore_ascii_case(name));
                found.ok_or_else(|| format!("no {} in the header: {}", c.key, cells.join(" | ")))
            }
        };
        let indices: Vec<usize> = columns.iter().map(find).collect::<Result<_, _>>()?;
        // With numbered columns the first line may be a header too: then its time is not a number.
        let time = indices.first().copied().unwrap_or_default();
        let header =
            named || (!self.header_seen && value(&self.mapping.time, cells, time, delimiter).is_err());
        if header && !named {
            self.header_seen = true;
            return Ok(None);
        }
        self.indices = Some(indices.clone());
        Ok((!header).then_some(indices))
    }
}

/// The delimiter that the first line uses.
fn guess(line: &str) -> Delimiter {
    ['\t', ';', ','].into_iter().find(|d| line.contains(*d)).map_or(Delimiter::Blanks, Delimiter::One)
}

fn split(line: &str, delimiter: Delimiter) -> Vec<&str> {
    fn clean(cell: &str) -> &str {
        cell.trim().trim_matches('"').trim()
    }
    match delimiter {
        Delimiter::One(c) => line.split(c).map(clean).collect(),
        Delimiter::Blanks => line.split_whitespace().map(clean).collect(),
    }
}

fn value(column: &Column, cells: &[&str], index: usize, delimiter: Delimiter) -> Result<f64, String> {
    let Some(cell) = cells.get(index) else {
        return Err(format!("{} cells, expected {} in cell {}", cells.len(), column.what, index + 1));
    };
    let number = |text: &str| -> Option<f64> {
        let point = delimiter != Delimiter::One(',') && text.contains(',') && !text.contains('.');
        let parsed = if point { text.replace(',', ".").parse() } else { text.parse() };
        parsed.ok().filter(|v: &f64| v.is_finite())
    };
    let parsed = if column.clock { clock(cell, number) } else { number(cell) };
    let scaled = parsed.map(|v| v * column.factor).filter(|v| v.is_finite());
    scaled.ok_or_else(|| {
        let shown: String = cell.chars().take(40).collect();
        format!("{} is {shown:?}, expected {}", column.what, if column.clock { "h:m:s" } else { "a number" })
    })
}

/// `h:m:s`, with a fraction if there is one; m:s and s alone are fine too.
fn clock(cell: &str, number: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let parts: Vec<&str> = cell.split(':').collect();
    if parts.len() > 3 {
        return None;
    }
    parts.iter().try_fold(0.0, |sum, part| Some(sum * 60.0 + number(part).filter(|v| *v >= 0.0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(mapping: &str, lines: &str) -> Vec<Result<Option<Row>, String>> {
        let mut rows = Rows::new(mapping.parse().unwrap());
        lines.lines().map(|l| rows.push(l.as_bytes()).map_err(|e| e.to_string())).collect()
    }

    fn values(mapping: &str, lines: &str) -> Vec<(f64, f64)> {
        let read = rows(mapping, lines).into_iter();
        read.filter_map(|r| r.unwrap()).map(|r| (r.seconds, r.watts)).collect()
    }

    #[test]
    fn columns_by_name_and_number_in_mixed_units() {
        let text = "Time [ms],U,I\n0,3700,100\n500,3800,200\n";
        let expected = vec![(0.0, 0.37), (0.5, 0.76)];
        let close = |a: Vec<(f64, f64)>| {
            a.iter().zip(&expected).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-12)
        };
        assert!(close(values("time=Time [ms]:ms,volts=U:mV,amps=I:mA", text)));
        assert!(close(values("time=1:ms,volts=2:mV,amps=3:mA", text)));
    }

    #[test]
    fn semicolons_decimal_commas_quotes_clock_times_and_comments() {
        let text = "# an instrument\r\n\r\n\"t\";\"P\"\r\n\"00:01:00,5\";\"1,5\"\r\n00:01:02;2,5\r\n";
        assert_eq!(values("time=t:h:m:s,watts=P", text), [(60.5, 1.5), (62.0, 2.5)]);
    }

    #[test]
    fn blanks_and_tabs_separate_too() {
        assert_eq!(values("time=1,watts=2:mW", "0   1000\n1 2000\n"), [(0.0, 1.0), (1.0, 2.0)]);
        assert_eq!(values("time=2,watts=1", "5\t0\n6\t1\n"), [(0.0, 5.0), (1.0, 6.0)]);
        assert_eq!(values("time=1,watts=2,skip=2", "Model 34\nrate 10\n0,5\n"), [(0.0, 5.0)]);
    }

    #[test]
    fn a_malformed_row_is_named_by_its_line_and_the_next_is_read() {
        let read =
            rows("time=1,volts=2,amps=3", "t,u,i\n0,5,1\n1,OL,1\n2,5\n0.5,5,1\n\u{1}\n-1,5,1\n3,5,1\n");
        let said: Vec<String> = read.iter().filter_map(|r| r.clone().err()).collect();
        assert_eq!(
            said,
            [
                "line 3: volts is \"OL\", expected a number",
                "line 4: 2 cells, expected amps in cell 3",
                "line 6: time is \"\\u{1}\", expected a number",
                "line 7: time goes back from 0.5 s to -1 s",
            ]
        );
        assert_eq!(read[7], Ok(Some(Row { seconds: 3.0, watts: 5.0 })));
    }

    #[test]
    fn a_mapping_says_what_is_wrong_with_it() {
        for (text, expected) in [
            ("watts=2", "no time column"),
            ("time=1", "expected either watts, or both volts and amps"),
            ("time=1,volts=2", "expected either watts, or both volts and amps"),
            ("time=1,watts=2,amps=3", "expected either watts"),
            ("time=1:min,watts=2", "expected s, ms, us, ns, h:m:s, unix"),
            ("time=0,watts=2", "counted from 1"),
            ("time=1,watts=", "names no column"),
            ("time=1,watts=2,delimiter=x", "expected comma, semicolon, tab or space"),
            ("time=1,watts=2,offset=inf", "expected seconds"),
            ("time=1:unix,watts=2,offset=1", "needs no offset"),
            ("nonsense", "expected NAME=COLUMN:UNIT"),
        ] {
            let error = text.parse::<Mapping>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let missing = rows("time=t,watts=P", "t;U;I\n").remove(0).unwrap_err();
        assert_eq!(missing, "line 1: no column \"P\" in the header: t | U | I");
    }
}
