//! Rows of an external instrument: columns by name, in units. Owns what a row says; must never skip a row that it does not understand
//! without saying which.
//!
//! The columns are a list: time and power, or time, voltage and current. Each is a name in the file's header, or all are numbers from 1.
//! Lines before the header mean nothing, nor do empty lines and those that begin with `#`. Columns are separated by tabs, semicolons
//! or commas, whichever stands in the header first in this order; where it is not the comma, numbers may have one for their point.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Longest line, in bytes: no instrument writes more.
pub const MAX_LINE: usize = 16 << 10;
/// A header is one of so many lines.
const MAX_BEFORE: u64 = 100;
/// Most cells of a line.
const MAX_CELLS: usize = 1_024;

/// Units with their factors; the first is what is meant where none is named.
type Units = &'static [(&'static str, f64)];

const TIME: Units = &[("s", 1.0), ("unix", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];
const VOLTS: Units = &[("V", 1.0), ("mV", 1e-3)];
const AMPS: Units = &[("A", 1.0), ("mA", 1e-3), ("uA", 1e-6)];
const WATTS: Units = &[("W", 1.0), ("mW", 1e-3)];

#[derive(Clone, PartialEq, Debug)]
struct Column {
    what: &'static str,
    name: String,
    factor: f64,
}

/// Which columns there are.
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// Time; then power, or voltage and current.
    columns: Vec<Column>,
    unix: bool,
}

impl Columns {
    /// Two or three names, and as many units or none: s, ms, us, ns or unix (seconds since 1970); W or mW; V or mV; A, mA or uA.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(names: &[String], units: &[String]) -> Result<Self, String> {
        let what: &[(&'static str, Units)] = match names.len() {
            2 => &[("time", TIME), ("watts", WATTS)],
            3 => &[("time", TIME), ("volts", VOLTS), ("amps", AMPS)],
            n => return Err(format!("{n} columns, expected time and watts, or time, volts and amps")),
        };
        if !(units.is_empty() || units.len() == names.len()) {
            return Err(format!("{} units for {} columns", units.len(), names.len()));
        }
        let column = |(n, (what, known)): (usize, &(&'static str, Units))| {
            let unit = units.get(n).map_or(known.first().map_or("", |u| u.0), String::as_str);
            let found = known.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
            let factor = found.ok_or_else(|| {
                let known: Vec<_> = known.iter().map(|(name, _)| *name).collect();
                format!("{what} in {unit:?}, expected {}", known.join(", "))
            })?;
            Ok(Column { what, name: names.get(n).cloned().unwrap_or_default(), factor })
        };
        let columns = what.iter().enumerate().map(column).collect::<Result<_, String>>()?;
        Ok(Self { columns, unix: units.first().is_some_and(|u| u == "unix") })
    }

    /// The file's time is wall-clock time: seconds since 1970.
    #[must_use]
    pub const fn is_unix(&self) -> bool {
        self.unix
    }

    /// Where they stand in this line, if it is the header; or anywhere, if they are numbers.
    fn find(&self, cells: &[String]) -> Option<Vec<usize>> {
        let named = |c: &Column| cells.iter().position(|cell| cell.eq_ignore_ascii_case(&c.name));
        let number = |c: &Column| c.name.parse::<usize>().ok()?.checked_sub(1);
        let all =
            |f: &dyn Fn(&Column) -> Option<usize>| self.columns.iter().map(f).collect::<Option<Vec<_>>>();
        all(&named).or_else(|| all(&number))
    }

    fn names(&self) -> String {
        self.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
    }
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
    columns: Columns,
    line: u64,
    /// What takes a line apart, where the columns stand, and whether numbers may have a comma for their point; once they are found.
    found: Option<(Reader, Vec<usize>, bool)>,
    last: Option<f64>,
}

impl Rows {
    /// Before the first line.
    #[must_use]
    pub const fn new(columns: Columns) -> Self {
        Self { columns, line: 0, found: None, last: None }
    }

    /// What is read.
    #[must_use]
    pub const fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The next line, with or without its line break; `None` if it carries no values (empty, comment, header or before it).
    ///
    /// # Errors
    /// [`RowError`]; the next line can be read all the same.
    pub fn push(&mut self, line: &[u8]) -> Result<Option<Row>, RowError> {
        self.line += 1;
        let number = self.line;
        self.row(line).map_err(|why| RowError { line: number, why })
    }

    fn row(&mut self, line: &[u8]) -> Result<Option<Row>, String> {
        if line.len() > MAX_LINE {
            return Err(format!("{} bytes long, expected at most {MAX_LINE}", line.len()));
        }
        let text = core::str::from_utf8(line).map_err(|_| "not text".to_owned())?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let Some((reader, indices, point)) = &mut self.found else { return self.header(text) };
        let row = row(&self.columns, &cells(reader, text)?, indices, *point)?;
        if let Some(before) = self.last.filter(|before| row.seconds < *before) {
            return Err(format!("time goes back from {before} s to {} s", row.seconds));
        }
        self.last = Some(row.seconds);
        Ok(Some(row))
    }

    /// Looks for the header in a line. Of columns by number there need not be one: then this is the first row.
    fn header(&mut self, text: &str) -> Result<Option<Row>, String> {
        let delimiter = [b'\t', b';'].into_iter().find(|d| text.as_bytes().contains(d)).unwrap_or(b',');
        let mut reader = ReaderBuilder::new().delimiter(delimiter).build();
        let cells = cells(&mut reader, text)?;
        if let Some(indices) = self.columns.find(&cells) {
            let first = row(&self.columns, &cells, &indices, delimiter != b',').ok();
            let named = !self.columns.columns.iter().all(|c| c.name.parse::<usize>().is_ok());
            if named || first.is_some() {
                self.found = Some((reader, indices, delimiter != b','));
                self.last = first.map(|row| row.seconds);
                return Ok(first);
            }
        }
        if self.line == MAX_BEFORE {
            return Err(format!("no header with {} until here", self.columns.names()));
        }
        Ok(None)
    }
}

/// The cells of a line, without quotes and the blanks around them.
fn cells(reader: &mut Reader, text: &str) -> Result<Vec<String>, String> {
    let (mut out, mut ends) = (vec![0; text.len()], [0; MAX_CELLS]);
    reader.reset();
    let (first, _, written, ended) = reader.read_record(text.as_bytes(), &mut out, &mut ends);
    let (_, _, _, last) = match (first, ends.get_mut(ended..)) {
        // The end of the input ends the record.
        (ReadRecordResult::InputEmpty, Some(ends)) => {
            reader.read_record(&[], out.get_mut(written..).unwrap_or_default(), ends)
        }
        _ => return Err(format!("more than {MAX_CELLS} cells, or more than one line")),
    };
    let mut from = 0;
    let cell = |end: &usize| {
        let cell = out.get(from..*end).map(String::from_utf8_lossy).unwrap_or_default();
        from = *end;
        cell.trim().to_owned()
    };
    Ok(ends.iter().take(ended + last).map(cell).collect())
}

fn row(columns: &Columns, cells: &[String], indices: &[usize], point: bool) -> Result<Row, String> {
    let value = |(column, index): (&Column, &usize)| {
        let what = column.what;
        let cell = cells.get(*index);
        let cell =
            cell.ok_or_else(|| format!("{} cells, expected {what} in cell {}", cells.len(), index + 1))?;
        let plain = point && cell.contains(',') && !cell.contains('.');
        let parsed = if plain { cell.replace(',', ".").parse() } else { cell.parse::<f64>() };
        let scaled = parsed.ok().map(|v| v * column.factor).filter(|v| v.is_finite());
        scaled.ok_or_else(|| {
            format!("{what} is {:?}, expected a number", cell.chars().take(40).collect::<String>())
        })
    };
    let mut values = columns.columns.iter().zip(indices).map(value);
    let seconds = values.next().transpose()?.unwrap_or_default();
    let watts = values.try_fold(1.0, |product, v| v.map(|v| product * v))?;
    if watts.is_finite() {
        Ok(Row { seconds, watts })
    } else {
        Err("voltage times current is beyond all numbers".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect()
    }

    fn rows(names: &str, units: &str, lines: &str) -> Vec<Result<Option<Row>, String>> {
        let mut rows = Rows::new(Columns::new(&list(names), &list(units)).unwrap());
        lines.lines().map(|l| rows.push(l.as_bytes()).map_err(|e| e.to_string())).collect()
    }

    fn values(names: &str, units: &str, lines: &str) -> Vec<(f64, f64)> {
        let read = rows(names, units, lines).into_iter();
        read.filter_map(|r| r.unwrap()).map(|r| (r.seconds, r.watts)).collect()
    }

    #[test]
    fn columns_by_name_and_number_in_mixed_units() {
        let text = "Time [ms],U,I\n0,3700,100\n500,3800,200\n";
        for names in ["Time [ms],u,i", "1,2,3"] {
            let read = values(names, "ms,mV,mA", text);
            let close = |(a, b): (&(f64, f64), (f64, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-12;
            assert!(read.len() == 2 && read.iter().zip([(0.0, 0.37), (0.5, 0.76)]).all(close), "{read:?}");
        }
    }

    #[test]
    fn semicolons_decimal_commas_quotes_comments_and_what_stands_before_the_header() {
        let text = "# an instrument\r\n\r\nModel 34\r\n\"t\";\"P;W\"\r\n\"60,5\";\"1,5\"\r\n62;2,5\r\n";
        assert_eq!(values("t,P;W", "", text), [(60.5, 1.5), (62.0, 2.5)]);
        assert_eq!(values("2,1", "", "5\t0\n6\t1\n"), [(0.0, 5.0), (1.0, 6.0)]);
        assert_eq!(values("1,2", "s,mW", "t,P\n0,5000\n"), [(0.0, 5.0)]);
    }

    #[test]
    fn a_malformed_row_is_named_by_its_line_and_the_next_is_read() {
        let read = rows("1,2,3", "", "t,u,i\n0,5,1\n1,OL,1\n2,5\n0.5,5,1\n\u{1}\n-1,5,1\n\"3,5,1\n3,5,1\n");
        let said: Vec<String> = read.iter().filter_map(|r| r.clone().err()).collect();
        assert_eq!(
            said,
            [
                "line 3: volts is \"OL\", expected a number",
                "line 4: 2 cells, expected amps in cell 3",
                "line 6: time is \"\\u{1}\", expected a number",
                "line 7: time goes back from 0.5 s to -1 s",
                "line 8: time is \"3,5,1\", expected a number",
            ]
        );
        assert_eq!(read[8], Ok(Some(Row { seconds: 3.0, watts: 5.0 })));
    }

    #[test]
    fn columns_say_what_is_wrong_with_them() {
        for (names, units, expected) in [
            ("t", "", "1 columns, expected time and watts, or time, volts and amps"),
            ("a,b,c,d", "", "4 columns"),
            ("t,P", "s", "1 units for 2 columns"),
            ("t,P", "min,W", "time in \"min\", expected s, unix, ms, us, ns"),
            ("t,P", "s,V", "watts in \"V\", expected W, mW"),
        ] {
            let error = Columns::new(&list(names), &list(units)).unwrap_err();
            assert!(error.contains(expected), "{names}: {error}");
        }
        let missing = rows("t,P", "", &"t;U;I\n".repeat(200));
        let said: Vec<&String> = missing.iter().filter_map(|r| r.as_ref().err()).collect();
        assert_eq!(said, ["line 100: no header with t, P until here"]);
    }
}
