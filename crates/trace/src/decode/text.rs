//! Text formats: the plain CSV, Zeek conn logs and nfdump's CSV. Owns lines and columns.
//!
//! The plain CSV is `client,time,bytes,direction`, in that order or as the header line says; further columns that are
//! understood: `protocol`, `local_port`, `remote_port`. Time is in seconds since 1970 with any number of digits. Lines that
//! begin with `#` are comments.

use std::collections::BTreeMap;

use super::{Damage, Format, Next};
use crate::bytes::Bytes;
use crate::flow::Flow;
use crate::index::{Index, Key, mix};
use crate::seen::{Addr, Mac, Seen};
use dormouse_energy::Direction;

/// Clients that one CSV file may name.
const MAX_NAMES: usize = 1 << 22;

/// What a column means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Ignored,
    Client,
    Time,
    Bytes,
    Direction,
    Protocol,
    LocalPort,
    RemotePort,
    SourceAddress,
    DestinationAddress,
    SourcePort,
    DestinationPort,
    SourceMac,
    DestinationMac,
    Duration,
    End,
    ForwardPackets,
    BackPackets,
    ForwardBytes,
    BackBytes,
}

impl Column {
    fn named(format: Format, name: &str) -> Self {
        let name = name.trim().trim_matches('"');
        match format {
            Format::Zeek => match name {
                "ts" => Self::Time,
                "id.orig_h" => Self::SourceAddress,
                "id.resp_h" => Self::DestinationAddress,
                "id.orig_p" => Self::SourcePort,
                "id.resp_p" => Self::DestinationPort,
                "proto" => Self::Protocol,
                "duration" => Self::Duration,
                "orig_pkts" => Self::ForwardPackets,
                "resp_pkts" => Self::BackPackets,
                "orig_ip_bytes" => Self::ForwardBytes,
                "resp_ip_bytes" => Self::BackBytes,
                "orig_l2_addr" => Self::SourceMac,
                "resp_l2_addr" => Self::DestinationMac,
                _ => Self::Ignored,
            },
            Format::Nfdump => match name {
                "ts" | "firstSeen" => Self::Time,
                "te" | "lastSeen" => Self::End,
                "td" | "duration" => Self::Duration,
                "sa" | "srcAddr" => Self::SourceAddress,
                "da" | "dstAddr" => Self::DestinationAddress,
                "sp" | "srcPort" => Self::SourcePort,
                "dp" | "dstPort" => Self::DestinationPort,
                "pr" | "proto" => Self::Protocol,
                "ipkt" | "packets" | "inPackets" => Self::ForwardPackets,
                "ibyt" | "bytes" | "inBytes" => Self::ForwardBytes,
                "opkt" | "outPackets" => Self::BackPackets,
                "obyt" | "outBytes" => Self::BackBytes,
                _ => Self::Ignored,
            },
            _ => match name.to_ascii_lowercase().as_str() {
                "client" | "user" | "host" | "device" => Self::Client,
                "time" | "timestamp" | "ts" => Self::Time,
                "bytes" | "size" | "length" => Self::Bytes,
                "direction" | "dir" => Self::Direction,
                "protocol" | "proto" => Self::Protocol,
                "local_port" => Self::LocalPort,
                "remote_port" => Self::RemotePort,
                _ => Self::Ignored,
            },
        }
    }
}

/// The header line names of the plain CSV when it has none.
const PLAIN: [Column; 4] = [Column::Client, Column::Time, Column::Bytes, Column::Direction];

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
    let has = |name: &str| line.split(',').any(|c| c.trim().trim_matches('"') == name);
    if (has("ts") && has("sa")) || (has("firstSeen") && has("srcAddr")) {
        return Some(Format::Nfdump);
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
    names: Vec<String>,
    index: BTreeMap<String, u32>,
    hashes: Index<NameHash>,
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
            names: Vec::new(),
            index: BTreeMap::new(),
            hashes: Index::default(),
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
                if self.columns.is_empty() && !text.starts_with(b"{") {
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
    pub fn names(&self) -> &[String] {
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
            if self.format == Format::Csv
                && let Some(seen) = self.plain_packet(line)
            {
                bytes.consume(length);
                return Next::Packet(seen);
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
            Format::Csv => self.packet(line),
            Format::Nfdump if line.starts_with("Summary") => Err(SUMMARY.to_owned()),
            _ if line.starts_with('{') => json_flow(line),
            _ => self.flow(line),
        }
    }

    fn cells<'a>(&self, line: &'a str) -> impl Iterator<Item = (Column, &'a str)> {
        cells(&self.columns, self.separator, line)
    }

    /// A line as programs write it: no quotes, no blanks, plain numbers, a client that was seen before. `None` sends every
    /// other line, damaged ones too, the long way.
    #[inline]
    fn plain_packet(&self, line: &[u8]) -> Option<Seen> {
        let mut seen = Seen::default();
        let (mut time, mut local, mut remote) = (None, 0, 0);
        let mut cells = Cells { rest: line, more: true };
        for column in &self.columns {
            if !cells.more {
                break;
            }
            match column {
                Column::Client => {
                    let name = cells.text();
                    let id = self.hashes.get(NameHash::of(name))?;
                    self.names.get(id as usize - 1).filter(|known| known.as_bytes() == name)?;
                    seen.name = id;
                }
                Column::Time => time = Some(cells.seconds()?),
                Column::Bytes => seen.size = u32::try_from(cells.number()?).ok()?,
                Column::Protocol => seen.protocol = u16::try_from(cells.number()?).ok()?,
                Column::LocalPort => local = u16::try_from(cells.number()?).ok()?,
                Column::RemotePort => remote = u16::try_from(cells.number()?).ok()?,
                Column::Direction => {
                    seen.direction = match cells.text() {
                        b"out" => Direction::Outgoing,
                        b"in" => Direction::Incoming,
                        _ => return None,
                    }
                }
                _ => {
                    cells.text();
                }
            }
        }
        seen.at = time?;
        (seen.src_port, seen.dst_port) =
            if seen.direction == Direction::Incoming { (remote, local) } else { (local, remote) };
        (seen.name != 0).then_some(seen)
    }

    fn packet(&mut self, line: &str) -> Result<Next, String> {
        let mut seen = Seen::default();
        let (mut client, mut time) = (None, None);
        let (mut local, mut remote) = (0, 0);
        for (column, cell) in cells(&self.columns, self.separator, line) {
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
        seen.name = self.name(client)?;
        (seen.src_port, seen.dst_port) =
            if seen.direction == Direction::Incoming { (remote, local) } else { (local, remote) };
        Ok(Next::Packet(seen))
    }

    /// The number of a client's name. Names are found by a hash; of two with the same one (which takes an adversary) the
    /// second is found in the ordered index.
    fn name(&mut self, client: &str) -> Result<u32, String> {
        let hash = NameHash::of(client.as_bytes());
        if let Some(id) = self.hashes.get(hash)
            && self.names.get(id as usize - 1).is_some_and(|n| n == client)
        {
            return Ok(id);
        }
        if let Some(id) = self.index.get(client) {
            return Ok(*id);
        }
        if self.names.len() >= MAX_NAMES {
            return Err(format!("more than {MAX_NAMES} clients"));
        }
        self.names.push(client.to_owned());
        let id = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.index.insert(client.to_owned(), id);
        if self.hashes.get(hash).is_none() {
            self.hashes.insert(hash, id);
        }
        Ok(id)
    }

    fn flow(&self, line: &str) -> Result<Next, String> {
        let mut builder = FlowBuilder::default();
        for (column, cell) in self.cells(line) {
            builder.set(column, cell)?;
        }
        builder.finish()
    }
}

/// A name's hash.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NameHash(u64);

impl NameHash {
    fn of(name: &[u8]) -> Self {
        let join = |h: u64, word: u64| (h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let (words, rest) = name.as_chunks::<8>();
        let whole = words.iter().fold(name.len() as u64, |h, word| join(h, u64::from_le_bytes(*word)));
        Self(join(whole, rest.iter().fold(0, |w, b| w << 8 | u64::from(*b))))
    }
}

impl Key for NameHash {
    fn mix(&self) -> u64 {
        mix(self.0)
    }
}

/// The cells of a line of a plain CSV, read from the left.
struct Cells<'a> {
    rest: &'a [u8],
    /// Whether there is another cell.
    more: bool,
}

impl<'a> Cells<'a> {
    /// A cell as it is.
    #[inline]
    fn text(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|b| *b == b',').unwrap_or(self.rest.len());
        let (cell, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        self.behind(rest);
        cell
    }

    /// Moves on to what stands behind a separator; whether `rest` begins with one, or is the end.
    #[inline]
    fn behind(&mut self, rest: &'a [u8]) -> Option<()> {
        match rest {
            [] => (self.rest, self.more) = (rest, false),
            [b',', rest @ ..] => self.rest = rest,
            _ => return None,
        }
        Some(())
    }

    /// Up to `most` digits: their number, and how many there were.
    #[inline]
    fn digits(rest: &mut &'a [u8], most: u32) -> (u64, u32) {
        let (mut number, mut count) = (0, 0);
        while let [b @ b'0'..=b'9', behind @ ..] = *rest
            && count < most
        {
            number = number * 10 + u64::from(b - b'0');
            count += 1;
            *rest = behind;
        }
        (number, count)
    }

    /// A cell of 1 to 18 digits.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut rest = self.rest;
        let (number, count) = Self::digits(&mut rest, 18);
        self.behind(rest)?;
        (count > 0).then_some(number)
    }

    /// A cell of seconds with at most nine decimals, in nanoseconds.
    #[inline]
    fn seconds(&mut self) -> Option<u64> {
        const TENS: [u64; 10] =
            [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        let mut rest = self.rest;
        // Ten digits of seconds: nanoseconds of more may not fit.
        let (whole, count) = Self::digits(&mut rest, 10);
        let mut nanos = whole * 1_000_000_000;
        if let [b'.', behind @ ..] = rest {
            rest = behind;
            let (fraction, count) = Self::digits(&mut rest, 9);
            nanos += fraction * TENS.get(count as usize)?;
        }
        self.behind(rest)?;
        (count > 0).then_some(nanos)
    }
}

/// The cells of a line with the columns that they belong to.
fn cells<'a>(columns: &[Column], separator: u8, line: &'a str) -> impl Iterator<Item = (Column, &'a str)> {
    let mut rest = Some(line);
    columns.iter().map_while(move |column| {
        let text = rest?;
        let cell = match text.bytes().position(|b| b == separator) {
            Some(at) => {
                rest = text.get(at + 1..);
                text.get(..at)?
            }
            None => {
                rest = None;
                text
            }
        };
        let decorated = |b: Option<&u8>| b.is_some_and(|b| !b.is_ascii_graphic() || *b == b'"');
        let bytes = cell.as_bytes();
        let plain = !decorated(bytes.first()) && !decorated(bytes.last());
        Some((*column, if plain { cell } else { cell.trim().trim_matches('"') }))
    })
}

/// How the line that begins nfdump's closing summary is told apart from damage.
const SUMMARY: &str = "summary";

fn trim(line: &[u8]) -> &[u8] {
    line.trim_ascii_end()
}

#[derive(Default)]
struct FlowBuilder {
    flow: Flow,
    start: Option<u64>,
    end: Option<u64>,
    duration: u64,
}

impl FlowBuilder {
    fn set(&mut self, column: Column, cell: &str) -> Result<(), String> {
        if cell == "-" || cell.is_empty() || cell == "(empty)" {
            return Ok(());
        }
        let time = |cell: &str| {
            seconds(cell).or_else(|| calendar(cell)).ok_or_else(|| format!("{cell:?} is no time"))
        };
        let f = &mut self.flow;
        match column {
            Column::Time => self.start = Some(time(cell)?),
            Column::End => self.end = Some(time(cell)?),
            Column::Duration => {
                self.duration = seconds(cell).ok_or_else(|| format!("{cell:?} is no duration"))?
            }
            Column::SourceAddress => f.first.src.ip = address(cell)?,
            Column::DestinationAddress => f.first.dst.ip = address(cell)?,
            Column::SourcePort => f.first.src_port = port(cell)?,
            Column::DestinationPort => f.first.dst_port = port(cell)?,
            Column::SourceMac => f.first.src.mac = Mac::parse(cell).unwrap_or_default(),
            Column::DestinationMac => f.first.dst.mac = Mac::parse(cell).unwrap_or_default(),
            Column::Protocol => f.first.protocol = protocol(cell),
            Column::ForwardPackets => f.forward = number(cell, "packet count")?,
            Column::BackPackets => f.back = number(cell, "packet count")?,
            Column::ForwardBytes => f.forward_bytes = number(cell, "byte count")?,
            Column::BackBytes => f.back_bytes = number(cell, "byte count")?,
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Next, String> {
        let start = self.start.ok_or("no start time")?;
        if self.flow.first.src.ip.is_none() && self.flow.first.dst.ip.is_none() {
            return Err("no addresses".to_owned());
        }
        self.flow.first.at = start;
        self.flow.end = self.end.unwrap_or_else(|| start.saturating_add(self.duration)).max(start);
        // Who a flow belongs to is said by its addresses; a link-layer address may be the router's.
        (self.flow.first.src.mac, self.flow.first.dst.mac) = (Mac::NONE, Mac::NONE);
        Ok(Next::Flow(Box::new(self.flow)))
    }
}

fn json_flow(line: &str) -> Result<Next, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).map_err(|e| format!("no JSON object: {e}"))?;
    let mut builder = FlowBuilder::default();
    for (name, value) in &object {
        let column = Column::named(Format::Zeek, name);
        match value {
            serde_json::Value::String(text) => builder.set(column, text)?,
            serde_json::Value::Number(n) => builder.set(column, &n.to_string())?,
            _ => {}
        }
    }
    builder.finish()
}

/// Seconds with decimals, exactly, in nanoseconds. `None` for anything else, negative numbers included.
#[must_use]
pub fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut nanos: u64 = if whole.is_empty() { 0 } else { digits(whole)? };
    nanos = nanos.checked_mul(1_000_000_000)?;
    let mut unit = 100_000_000;
    for b in fraction.bytes() {
        if !b.is_ascii_digit() {
            // An exponent (Zeek's JSON, a spreadsheet's CSV): rare, and not exact anyway.
            return text
                .parse::<f64>()
                .ok()
                .and_then(|s| core::time::Duration::try_from_secs_f64(s).ok())
                .and_then(|d| u64::try_from(d.as_nanos()).ok());
        }
        nanos = nanos.checked_add(u64::from(b - b'0') * unit)?;
        unit /= 10;
    }
    Some(nanos)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().try_fold(0u64, |n, b| {
        if !b.is_ascii_digit() {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// `2024-01-31 12:34:56.789`, taken as UTC, in nanoseconds since 1970.
#[must_use]
pub fn calendar(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut parts = date.split('-').map(digits);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut clock = time.trim_end_matches('Z').splitn(3, ':');
    let (hour, minute, second) = (digits(clock.next()?)?, digits(clock.next()?)?, seconds(clock.next()?)?);
    if !(1970..=2400).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
    {
        return None;
    }
    // Days since 1970-03-01-based years (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    ((days * 24 + hour) * 60 + minute).checked_mul(60_000_000_000)?.checked_add(second)
}

fn number<T: TryFrom<u64>>(cell: &str, what: &str) -> Result<T, String> {
    if cell.is_empty() {
        return T::try_from(0).map_err(|_| String::new());
    }
    digits(cell)
        .or_else(|| scaled(cell))
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| format!("{cell:?} is no {what}"))
}

/// nfdump abbreviates counts as `1.5 M`.
fn scaled(cell: &str) -> Option<u64> {
    let (value, unit) = cell.split_once(' ')?;
    let factor = match unit.trim() {
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    Some((seconds(value)? / 1_000).checked_mul(factor)? / 1_000_000)
}

/// nfdump writes ICMP type and code as `3.1` in the port column.
fn port(cell: &str) -> Result<u16, String> {
    number(cell.split('.').next().unwrap_or_default(), "port")
}

fn address(cell: &str) -> Result<Addr, String> {
    cell.parse::<core::net::IpAddr>().map(Addr::from).map_err(|_| format!("{cell:?} is no IP address"))
}

fn direction(cell: &str) -> Result<Direction, String> {
    match cell {
        "out" => return Ok(Direction::Outgoing),
        "in" => return Ok(Direction::Incoming),
        _ => {}
    }
    match cell.to_ascii_lowercase().as_str() {
        "out" | "outgoing" | "o" | "up" | "tx" | "sent" | ">" | "1" => Ok(Direction::Outgoing),
        "in" | "incoming" | "i" | "down" | "rx" | "received" | "<" | "0" => Ok(Direction::Incoming),
        "" | "-" | "?" | "unknown" => Ok(Direction::Unknown),
        _ => Err(format!("{cell:?} is no direction, expected out or in")),
    }
}

fn protocol(cell: &str) -> u16 {
    if let Some(number) = digits(cell) {
        return u16::try_from(number).unwrap_or(0);
    }
    match cell.to_ascii_lowercase().as_str() {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "icmp6" | "ipv6-icmp" => 58,
        "igmp" => 2,
        "gre" => 47,
        "esp" => 50,
        "sctp" => 132,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(seconds("1258531221.486539"), Some(1_258_531_221_486_539_000));
        assert_eq!(seconds("0.000000001"), Some(1));
        assert_eq!(seconds("7"), Some(7_000_000_000));
        assert_eq!(seconds("1.5e3"), Some(1_500_000_000_000));
        assert_eq!(seconds(".5"), Some(500_000_000));
        for bad in ["", ".", "-1", "nan", "1 2", "x", "99999999999999999999"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_short_way_and_the_long_way_read_the_same() {
        let header = b"client,time,bytes,direction,protocol,local_port,remote_port\n";
        let mut bytes = Bytes::new(Box::new(std::io::Cursor::new(header.to_vec())));
        let mut text = Text::open(Format::Csv, &mut bytes).expect("a header");
        text.name("phone").expect("a name");
        let mut short = 0;
        for time in
            ["1", "1.5", "1700006400.123456", "9999999999.999999999", "10000000000", "1.", ".5", "x", "-1"]
        {
            for rest in [
                "60,out,6,1,443",
                "60,in,17,1,53",
                ",in,17,1,53",
                "60,out",
                "60,Out,tcp,1,2",
                " 60,in,6,1,2",
                "4294967295,in,6,65535,0",
                "4294967296,in,6,1,2",
                "60,in,6,65536,2",
                "60,in,6,1,2,more",
                "60,,6,1,2",
            ] {
                for client in ["phone", "\"phone\"", "tablet", "", "phone "] {
                    let line = format!("{client},{time},{rest}");
                    let Some(seen) = text.plain_packet(line.as_bytes()) else { continue };
                    short += 1;
                    assert_eq!(text.packet(&line), Ok(Next::Packet(seen)), "{line}");
                }
            }
        }
        assert!(short >= 5 * 5, "{short} lines took the short way");
    }

    #[test]
    fn calendar_times_are_utc() {
        assert_eq!(calendar("1970-01-01 00:00:00"), Some(0));
        assert_eq!(calendar("2000-02-29 23:59:59.5"), Some(951_868_799_500_000_000));
        assert_eq!(calendar("2021-03-08T15:22:15.831389Z"), Some(1_615_216_935_831_389_000));
        assert_eq!(calendar("2021-13-08 15:22:15"), None);
        assert_eq!(calendar("1615216935"), None);
    }

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
        assert_eq!(of("client,time,bytes,direction\n"), Some(Format::Csv));
        assert_eq!(of("# a comment\nphone,12.5,100,out\n"), Some(Format::Csv));
        assert_eq!(of("hello world\n"), None);
        assert_eq!(of(""), None);
    }
}
