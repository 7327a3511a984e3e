//! Text formats: the plain CSV, Zeek conn logs, the CSV of nfdump and Argus, Suricata's EVE log. Owns lines and columns.
//!
//! The plain CSV is `client,time,bytes,direction`, in that order or as the header line says; further columns that are
//! understood: `protocol`, `local_port`, `remote_port`. Time is in seconds since 1970 with any number of digits. Lines that
//! begin with `#` are comments.

mod column;
mod flow;
mod value;

use super::record::{Damage, Format, Next};
use crate::bytes::Bytes;
use crate::index::Names;
use crate::seen::Seen;
use column::{Column, PLAIN, cells, quoted};
use dormouse_energy::Direction;
use flow::{FlowBuilder, suricata, zeek};
use value::{direction, number, protocol, seconds};

/// Clients that one CSV file may name.
const MAX_NAMES: usize = 1 << 22;

/// Recognises a text format by its first line.
#[must_use]
pub fn detect(head: &[u8]) -> Option<Format> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if text.starts_with(b"#separator") || text.starts_with(b"#fields") {
        return Some(Format::Zeek);
    }
    let mut lines = text.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let line = lines.find(|l| !l.is_empty() && !l.starts_with(b"#"))?;
    let line = core::str::from_utf8(line).ok()?.trim();
    if line.starts_with('{') && line.contains("\"id.orig_h\"") {
        return Some(Format::Zeek);
    }
    if line.starts_with('{') && line.contains("\"event_type\"") {
        return Some(Format::Suricata);
    }
    let has = |name: &str| line.split(',').any(|c| c.trim().trim_matches('"') == name);
    let argus = |name: &str| {
        line.split(',').any(|c| Column::named(Format::Argus, c) == Column::named(Format::Argus, name))
    };
    if (has("ts") && has("sa")) || (has("firstSeen") && has("srcAddr")) {
        return Some(Format::Nfdump);
    }
    if ["StartTime", "SrcAddr", "DstAddr"].into_iter().all(argus) {
        return Some(Format::Argus);
    }
    let mut cells = line.split(',');
    let (client, time) = (cells.next()?, cells.next()?);
    let header = Column::named(Format::Csv, client) != Column::Ignored
        || Column::named(Format::Csv, time) != Column::Ignored;
    (header || seconds(time.trim()).is_some()).then_some(Format::Csv)
}

/// A text file being read.
pub struct Text {
    format: Format,
    separator: u8,
    columns: Vec<Column>,
    names: Names,
    lines: u64,
    synthetic: Option<String>,
}

impl Text {
    /// Reads up to the first data line.
    ///
    /// # Errors
    /// A description of what is wrong with the header.
    pub fn open(format: Format, bytes: &mut Bytes) -> Result<Self, String> {
        let separator = if format == Format::Zeek { b'\t' } else { b',' };
        let mut text = Self {
            format,
            separator,
            columns: Vec::new(),
            names: Names::default(),
            lines: 0,
            synthetic: None,
        };
        if bytes.peek(3).starts_with(b"\xef\xbb\xbf") {
            bytes.consume(3);
        }
        text.header(bytes);
        Ok(text)
    }

    fn header(&mut self, bytes: &mut Bytes) {
        loop {
            let length = bytes.line_length();
            let line = &bytes.peek(length)[..length];
            if line.is_empty() {
                return;
            }
            let text = trim(line);
            if text.starts_with(b"#") {
                self.comment(&String::from_utf8_lossy(text));
            } else if !text.is_empty() {
                if self.columns.is_empty() && !text.starts_with(b"{") && self.format != Format::Suricata {
                    let named: Vec<Column> = String::from_utf8_lossy(text)
                        .split(char::from(self.separator))
                        .map(|name| Column::named(self.format, name))
                        .collect();
                    if self.format == Format::Csv
                        && !named.contains(&Column::Client)
                        && !named.contains(&Column::Time)
                    {
                        self.columns = PLAIN.to_vec();
                        return;
                    }
                    self.columns = named;
                } else {
                    return;
                }
            }
            self.lines += 1;
            bytes.consume(length);
        }
    }

    fn comment(&mut self, line: &str) {
        let text = line.trim_start_matches('#').trim_start();
        if text.starts_with(crate::SYNTHETIC_MARK) {
            self.synthetic = Some(text.to_owned());
        }
        if self.format == Format::Zeek {
            if let Some(fields) =
                line.strip_prefix("#fields").and_then(|f| f.strip_prefix(char::from(self.separator)))
            {
                self.columns = fields
                    .split(char::from(self.separator))
                    .map(|name| Column::named(self.format, name))
                    .collect();
            } else if let Some(hex) =
                line.strip_prefix("#separator").map(str::trim).and_then(|s| s.strip_prefix("\\x"))
            {
                self.separator = u8::from_str_radix(hex, 16).unwrap_or(b'\t');
            }
        }
    }

    /// The clients named so far.
    #[must_use]
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// The comment that says that the file is synthetic.
    #[must_use]
    pub fn synthetic(&self) -> Option<&str> {
        self.synthetic.as_deref()
    }

    /// The next line with data.
    pub fn next(&mut self, bytes: &mut Bytes) -> Next {
        loop {
            let length = bytes.line_length();
            if length == 0 {
                return Next::End;
            }
            self.lines += 1;
            let raw = &bytes.peek(length)[..length];
            let complete = raw.ends_with(b"\n");
            let line = trim(raw);
            if line.is_empty() {
                bytes.consume(length);
                continue;
            }
            if line.starts_with(b"#") {
                let comment = String::from_utf8_lossy(line).into_owned();
                self.comment(&comment);
                bytes.consume(length);
                continue;
            }
            let parsed = self.line(line);
            let next = parsed.unwrap_or_else(|reason| {
                let reason = if complete { reason } else { format!("{reason} (the last line has no end)") };
                Next::Damaged(Damage::one(self.lines, length, reason))
            });
            bytes.consume(length);
            if matches!(&next, Next::Damaged(d) if d.reason.starts_with(SUMMARY)) {
                bytes.drain(); // nfdump closes with a summary, which is no record
                return Next::End;
            }
            return next;
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<Next, String> {
        let line = core::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        match self.format {
            Format::Suricata => suricata(line),
            Format::Zeek if line.starts_with('{') => zeek(line),
            Format::Nfdump if line.starts_with("Summary") => Err(SUMMARY.to_owned()),
            _ if line.contains('"') && self.separator != b'\t' => {
                let cells = quoted(self.separator, line)?;
                let columns = core::mem::take(&mut self.columns);
                let next = self.record(columns.iter().copied().zip(cells.iter().map(String::as_str)));
                self.columns = columns;
                next
            }
            Format::Csv => {
                let (seen, client) = packet(cells(&self.columns, self.separator, line))?;
                self.named(seen, client)
            }
            _ => flow(self.format, cells(&self.columns, self.separator, line)),
        }
    }

    fn record<'a>(&mut self, cells: impl Iterator<Item = (Column, &'a str)>) -> Result<Next, String> {
        if self.format != Format::Csv {
            return flow(self.format, cells);
        }
        let (seen, client) = packet(cells)?;
        self.named(seen, client)
    }

    fn named(&mut self, seen: Seen, client: &str) -> Result<Next, String> {
        Ok(Next::Packet(Seen { name: self.name(client)?, ..seen }))
    }

    /// The number of a client's name, from 1.
    fn name(&mut self, client: &str) -> Result<u32, String> {
        let at = match self.names.get_index_of(client) {
            Some(at) => at,
            None if self.names.len() >= MAX_NAMES => return Err(format!("more than {MAX_NAMES} clients")),
            None => self.names.insert_full(client.to_owned()).0,
        };
        Ok(u32::try_from(at + 1).unwrap_or(u32::MAX))
    }
}

/// A line of the plain CSV: its packet, and its client.
fn packet<'a>(cells: impl Iterator<Item = (Column, &'a str)>) -> Result<(Seen, &'a str), String> {
    let mut seen = Seen::default();
    let (mut client, mut time) = (None, None);
    let (mut local, mut remote) = (0, 0);
    for (column, cell) in cells {
        match column {
            Column::Client => client = Some(cell),
            Column::Time => {
                time = Some(seconds(cell).ok_or_else(|| format!("{cell:?} is no time in seconds"))?)
            }
            Column::Bytes => seen.size = number(cell, "size")?,
            Column::Direction => seen.direction = direction(cell)?,
            Column::Protocol => seen.protocol = protocol(cell),
            Column::LocalPort => local = number(cell, "port")?,
            Column::RemotePort => remote = number(cell, "port")?,
            _ => {}
        }
    }
    let client = client.filter(|c| !c.is_empty()).ok_or("no client")?;
    seen.at = time.ok_or("no time")?;
    (seen.src_port, seen.dst_port) =
        if seen.direction == Direction::Incoming { (remote, local) } else { (local, remote) };
    Ok((seen, client))
}

fn flow<'a>(format: Format, cells: impl Iterator<Item = (Column, &'a str)>) -> Result<Next, String> {
    let mut builder = FlowBuilder::new(format);
    for (column, cell) in cells {
        builder.set(column, cell)?;
    }
    builder.finish()
}

/// The error of the line that begins nfdump's closing summary, which is no damage.
const SUMMARY: &str = "summary";

fn trim(line: &[u8]) -> &[u8] {
    line.trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart_by_their_first_line() {
        let of = |text: &str| detect(text.as_bytes());
        assert_eq!(of("#separator \\x09\n#set_separator\t,\n"), Some(Format::Zeek));
        assert_eq!(of("{\"ts\":1.0,\"id.orig_h\":\"10.0.0.1\"}\n"), Some(Format::Zeek));
        assert_eq!(of("ts,te,td,sa,da,sp,dp,pr,ipkt,ibyt\n"), Some(Format::Nfdump));
        assert_eq!(
            of("firstSeen,duration,proto,srcAddr,srcPort,dstAddr,dstPort,packets,bytes\n"),
            Some(Format::Nfdump)
        );
        assert_eq!(of("StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State\n"), Some(Format::Argus));
        assert_eq!(of("stime,dur,saddr,daddr\n"), Some(Format::Argus));
        assert_eq!(of("{\"timestamp\":\"2017\",\"event_type\":\"stats\"}\n"), Some(Format::Suricata));
        assert_eq!(of("client,time,bytes,direction\n"), Some(Format::Csv));
        assert_eq!(of("# a comment\nphone,12.5,100,out\n"), Some(Format::Csv));
        assert_eq!(of("hello world\n"), None);
        assert_eq!(of(""), None);
    }
}
