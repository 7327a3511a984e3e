//! NetFlow v5 and v9 and IPFIX, as a file of export messages one behind the other. Owns messages, templates and fields.
//!
//! IPFIX files are RFC 5655's; NetFlow has no file format of its own, and exporters' datagrams written one behind the other are
//! what collectors and capture tools leave. A v9 message does not say how long it is: its sets are walked until the next
//! message begins, which cannot be mistaken because set ids 2 to 255 are never used (RFC 3954, section 5.2).
//!
//! Templates are kept for each exporter's domain (a file has one exporter, a capture may have several), at most [`MAX_TEMPLATES`] of at most [`MAX_FIELDS`] fields. Data that comes before
//! its template is lost, and said to be.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::record::{Damage, Next};
use crate::bytes::Bytes;
use crate::flow::Flow;
use crate::seen::{Addr, Seen};

/// Templates kept.
pub const MAX_TEMPLATES: usize = 4096;
/// Fields of one template.
pub const MAX_FIELDS: usize = 512;
/// Reverse direction in IPFIX biflows (RFC 5103).
const REVERSE_PEN: u32 = 29_305;
/// A field of variable length (RFC 7011, section 7).
const VARIABLE: u16 = 0xffff;
const NANOS: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
/// Seconds between 1900 (NTP) and 1970.
const NTP_OFFSET: u64 = 2_208_988_800;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    id: u16,
    length: u16,
    enterprise: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Template {
    fields: Vec<Field>,
    options: bool,
}

/// The clock of a message: what its relative times are counted from.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// When the exporter booted, in nanoseconds since 1970.
    boot: Option<u64>,
    /// When the message was sent.
    export: u64,
}

/// A file of export messages being read.
#[derive(Default)]
pub struct Netflow {
    messages: u64,
    records: u64,
    /// By exporter, version, domain and number.
    templates: BTreeMap<(u32, u16, u32, u16), Template>,
    /// Whose message is being read.
    exporter: u32,
    pending: VecDeque<Next>,
}

/// The version of a message that begins with `head`, if it is one.
#[must_use]
pub fn version(head: &[u8]) -> Option<u16> {
    let at = |i: usize| Some(u16::from_be_bytes(*head.get(i..)?.first_chunk()?));
    let version = at(0)?;
    let second = usize::from(at(2)?);
    let plausible = match version {
        // Records in a v5 message: at most 30 fit into a datagram, and exporters keep to it.
        5 => (1..=30).contains(&second) && head.len() >= 24,
        9 => (1..=1000).contains(&second) && head.len() >= 24 && matches!(at(20)?, 0 | 1 | 256..),
        10 => second >= 16 && (second == 16 || matches!(at(16)?, 2 | 3 | 256..)),
        _ => false,
    };
    plausible.then_some(version)
}

/// Whether the payload of a datagram, which was `claimed` bytes long before the capture may have cut it, is an export message.
#[must_use]
pub fn is_export(payload: &[u8], claimed: usize) -> bool {
    let second = || be16(payload, 2).map_or(0, usize::from);
    match version(payload) {
        Some(5) => 24 + 48 * second() <= claimed,
        Some(10) => second() <= claimed,
        other => other.is_some(),
    }
}

fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*b.get(at..)?.first_chunk()?))
}

fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*b.get(at..)?.first_chunk()?))
}

/// An unsigned number of up to eight bytes.
fn unsigned(b: &[u8]) -> u64 {
    b.iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}

impl Netflow {
    /// The next flow.
    pub fn next(&mut self, bytes: &mut Bytes) -> Next {
        loop {
            if let Some(next) = self.pending.pop_front() {
                return next;
            }
            if bytes.is_empty() {
                return Next::End;
            }
            self.messages += 1;
            if let Err(reason) = self.message(bytes) {
                return Next::Damaged(Damage::rest(self.messages, reason));
            }
        }
    }

    /// The messages of one datagram's payload, from the exporter with this number.
    pub fn datagram(&mut self, exporter: u32, payload: &[u8]) -> impl Iterator<Item = Next> {
        self.exporter = exporter;
        let mut bytes = Bytes::new(Box::new(std::io::Cursor::new(payload.to_vec())));
        while !bytes.is_empty() {
            self.messages += 1;
            if let Err(reason) = self.message(&mut bytes) {
                self.pending.push_back(Next::Damaged(Damage::one(self.messages, 0, reason)));
                break;
            }
            if matches!(self.pending.back(), Some(Next::Damaged(damage)) if damage.rest) {
                break;
            }
        }
        self.pending.drain(..)
    }

    fn message(&mut self, bytes: &mut Bytes) -> Result<(), String> {
        let head = bytes.peek(24);
        match be16(head, 0) {
            Some(5) => self.v5(bytes),
            Some(9) => self.v9(bytes),
            Some(10) => self.ipfix(bytes),
            Some(version) => Err(format!("message version {version}, expected 5, 9 or 10")),
            None => Err("a message header is cut short".to_owned()),
        }
    }

    fn v5(&mut self, bytes: &mut Bytes) -> Result<(), String> {
        let count = usize::from(be16(bytes.peek(24), 2).unwrap_or(0));
        let length = 24 + 48 * count;
        let window = bytes.peek(length);
        let whole = window.get(..length).unwrap_or(window);
        let cut = whole.len() < length;
        let clock = header_clock(whole).ok_or("a v5 header is cut short")?;
        let mut good = 0;
        for record in whole.get(24..).unwrap_or_default().chunks_exact(48) {
            good += 1;
            self.pending.push_back(v5_record(record, clock).unwrap_or(Next::Upkeep));
        }
        if cut {
            let reason = format!("a v5 message of {count} records is cut short after {good}");
            self.pending.push_back(Next::Damaged(Damage::rest(self.messages, reason)));
            bytes.consume(24 + 48 * good);
            return Ok(());
        }
        bytes.consume(length);
        Ok(())
    }

    fn v9(&mut self, bytes: &mut Bytes) -> Result<(), String> {
        let head = bytes.peek(20);
        let clock = header_clock(head).ok_or("a v9 header is cut short")?;
        let domain = be32(head, 16).ok_or("a v9 header is cut short")?;
        bytes.consume(20);
        loop {
            let head = bytes.peek(4);
            let Some(id) = be16(head, 0) else {
                return if head.is_empty() { Ok(()) } else { Err("a set header is cut short".to_owned()) };
            };
            if matches!(id, 5 | 9 | 10) {
                return Ok(());
            }
            let length = usize::from(be16(head, 2).ok_or("a set header is cut short")?);
            if length < 4 {
                return Err(format!("a set claims {length} bytes"));
            }
            let window = bytes.peek(length);
            let Some(set) = window.get(4..length) else {
                return Err(format!("a set of {length} bytes is cut short after {}", window.len()));
            };
            match id {
                0 => self.v9_templates(domain, set),
                1 => self.v9_option_templates(domain, set),
                _ => self.data(9, domain, id, set, clock, length),
            }
            bytes.consume(length);
        }
    }

    fn ipfix(&mut self, bytes: &mut Bytes) -> Result<(), String> {
        let length = usize::from(be16(bytes.peek(16), 2).unwrap_or(0));
        if length < 16 {
            return Err(format!("an IPFIX message claims {length} bytes"));
        }
        let window = bytes.peek(length);
        let Some(message) = window.get(..length) else {
            return Err(format!("an IPFIX message of {length} bytes is cut short after {}", window.len()));
        };
        let export = u64::from(be32(message, 4).unwrap_or(0)) * NANOS;
        let domain = be32(message, 12).unwrap_or(0);
        let clock = Clock { boot: None, export };
        let mut rest = message.get(16..).unwrap_or_default();
        while let (Some(id), Some(set_length)) = (be16(rest, 0), be16(rest, 2)) {
            let set_length = usize::from(set_length);
            let Some(set) = rest.get(4..set_length) else {
                let reason = format!("a set of {set_length} bytes does not fit its message");
                self.pending.push_back(Next::Damaged(Damage::one(self.messages, 0, reason)));
                break;
            };
            match id {
                2 => self.ipfix_templates(domain, set, false),
                3 => self.ipfix_templates(domain, set, true),
                _ => self.data(10, domain, id, set, clock, length),
            }
            rest = rest.get(set_length..).unwrap_or_default();
        }
        bytes.consume(length);
        Ok(())
    }

    fn keep(&mut self, version: u16, domain: u32, id: u16, template: Template) {
        let key = (self.exporter, version, domain, id);
        if self.templates.len() < MAX_TEMPLATES || self.templates.contains_key(&key) {
            self.templates.insert(key, template);
        } else {
            let reason = format!("template {id} is not kept: there are {MAX_TEMPLATES} already");
            self.pending.push_back(Next::Damaged(Damage::one(self.messages, 0, reason)));
        }
    }

    fn v9_templates(&mut self, domain: u32, mut set: &[u8]) {
        while let (Some(id), Some(count)) = (be16(set, 0), be16(set, 2)) {
            let (count, body) = (usize::from(count), set.get(4..).unwrap_or_default());
            if id < 256 || count > MAX_FIELDS || body.len() < count * 4 {
                return; // padding, or a template that no data can use
            }
            let fields = plain_fields(body, count);
            self.keep(9, domain, id, Template { fields, options: false });
            set = body.get(count * 4..).unwrap_or_default();
        }
    }

    fn v9_option_templates(&mut self, domain: u32, set: &[u8]) {
        if let (Some(id), Some(scope), Some(options)) = (be16(set, 0), be16(set, 2), be16(set, 4)) {
            let count = usize::from(scope) / 4 + usize::from(options) / 4;
            let body = set.get(6..).unwrap_or_default();
            if id >= 256 && count <= MAX_FIELDS && body.len() >= count * 4 {
                self.keep(9, domain, id, Template { fields: plain_fields(body, count), options: true });
            }
        }
    }

    fn ipfix_templates(&mut self, domain: u32, mut set: &[u8], options: bool) {
        while let (Some(id), Some(count)) = (be16(set, 0), be16(set, 2)) {
            if id < 256 {
                return; // padding
            }
            set = set.get(4..).unwrap_or_default();
            if count == 0 {
                self.templates.remove(&(self.exporter, 10, domain, id)); // withdrawn
                continue;
            }
            if options {
                set = set.get(2..).unwrap_or_default(); // scope field count
            }
            let mut fields = Vec::new();
            for _ in 0..usize::from(count).min(MAX_FIELDS) {
                let (Some(id), Some(length)) = (be16(set, 0), be16(set, 2)) else { return };
                let own = id & 0x8000 != 0;
                let enterprise = if own { be32(set, 4).unwrap_or(0) } else { 0 };
                fields.push(Field { id: id & 0x7fff, length, enterprise });
                set = set.get(if own { 8 } else { 4 }..).unwrap_or_default();
            }
            self.keep(10, domain, id, Template { fields, options });
        }
    }

    fn data(&mut self, version: u16, domain: u32, id: u16, mut set: &[u8], clock: Clock, behind: usize) {
        if id < 256 {
            return;
        }
        let Some(template) = self.templates.get(&(self.exporter, version, domain, id)) else {
            let reason = format!("data of {} bytes for template {id}, which has not been seen", set.len());
            self.pending.push_back(Next::Damaged(Damage::one(self.messages, behind, reason)));
            return;
        };
        if template.options {
            return;
        }
        // What is shorter than the shortest record is padding.
        let shortest: usize =
            template.fields.iter().map(|f| if f.length == VARIABLE { 1 } else { f.length.into() }).sum();
        while shortest > 0 && set.len() >= shortest {
            self.records += 1;
            let mut record = Record::default();
            let Some(rest) = record.read(&template.fields, set) else {
                let reason = format!("a record of template {id} does not fit its set");
                self.pending.push_back(Next::Damaged(Damage::one(self.messages, behind, reason)));
                return;
            };
            set = rest;
            self.pending.push_back(record.finish(clock).unwrap_or(Next::Upkeep));
        }
    }
}

fn plain_fields(body: &[u8], count: usize) -> Vec<Field> {
    let pairs = body.chunks_exact(4).take(count);
    pairs.map(|p| Field { id: unsigned16(p, 0), length: unsigned16(p, 2), enterprise: 0 }).collect()
}

fn unsigned16(b: &[u8], at: usize) -> u16 {
    be16(b, at).unwrap_or(0)
}

/// The clock in the headers of v5 and v9: up-time in milliseconds at 4, seconds since 1970 at 8 (v5: nanoseconds at 12).
fn header_clock(head: &[u8]) -> Option<Clock> {
    let (uptime, seconds) = (be32(head, 4)?, be32(head, 8)?);
    let nanos = if be16(head, 0)? == 5 { be32(head, 12)? } else { 0 };
    let export = u64::from(seconds) * NANOS + u64::from(nanos);
    Some(Clock { boot: export.checked_sub(u64::from(uptime) * MILLI), export })
}

fn v5_record(r: &[u8], clock: Clock) -> Option<Next> {
    let boot = clock.boot?;
    let first = Seen {
        at: boot + u64::from(be32(r, 24)?) * MILLI,
        protocol: u16::from(*r.get(38)?),
        src_port: be16(r, 32)?,
        dst_port: be16(r, 34)?,
        src: crate::seen::End { ip: Addr::v4(*r.first_chunk()?), ..Default::default() },
        dst: crate::seen::End { ip: Addr::v4(*r.get(4..)?.first_chunk()?), ..Default::default() },
        ..Seen::default()
    };
    let end = boot + u64::from(be32(r, 28)?) * MILLI;
    let (forward, forward_bytes) = (u64::from(be32(r, 16)?), u64::from(be32(r, 20)?));
    let flow = Flow { first, end, forward, forward_bytes, ..Flow::default() };
    Some(Next::Flow(Box::new(flow)))
}

/// Moments in one record.
#[derive(Clone, Copy, Default)]
struct Moments {
    start: Option<u64>,
    end: Option<u64>,
    start_uptime: Option<u64>,
    end_uptime: Option<u64>,
    start_before_export: Option<u64>,
    end_before_export: Option<u64>,
    duration: Option<u64>,
    boot: Option<u64>,
}

#[derive(Default)]
struct Record {
    flow: Flow,
    times: Moments,
}

impl Record {
    /// Reads one record; what is left of the set, or `None` if it does not fit.
    fn read<'a>(&mut self, fields: &[Field], mut rest: &'a [u8]) -> Option<&'a [u8]> {
        for field in fields {
            let mut length = usize::from(field.length);
            if field.length == VARIABLE {
                length = usize::from(*rest.first()?);
                rest = rest.get(1..)?;
                if length == 255 {
                    length = usize::from(be16(rest, 0)?);
                    rest = rest.get(2..)?;
                }
            }
            let value = rest.get(..length)?;
            rest = rest.get(length..)?;
            match field.enterprise {
                0 => self.field(field.id, value),
                REVERSE_PEN => self.reverse(field.id, value),
                _ => {}
            }
        }
        Some(rest)
    }

    fn field(&mut self, id: u16, v: &[u8]) {
        let (f, t) = (&mut self.flow, &mut self.times);
        let number = unsigned(v);
        let port = u16::try_from(number).unwrap_or(0);
        let v4 = || v.first_chunk().map_or(Addr::NONE, |b| Addr::v4(*b));
        let v6 = || v.first_chunk().map_or(Addr::NONE, |b| Addr::v6(*b));
        match id {
            1 | 85 => f.forward_bytes = number,
            2 | 86 => f.forward = number,
            23 => f.back_bytes = number,
            24 => f.back = number,
            4 => f.first.protocol = port,
            7 => f.first.src_port = port,
            11 => f.first.dst_port = port,
            8 => f.first.src.ip = v4(),
            12 => f.first.dst.ip = v4(),
            // An exporter may send both families, one of them zero.
            27 if v.iter().any(|b| *b != 0) => f.first.src.ip = v6(),
            28 if v.iter().any(|b| *b != 0) => f.first.dst.ip = v6(),
            231 => f.forward_bytes = number,
            232 => f.back_bytes = number,
            298 => f.forward = number,
            299 => f.back = number,
            22 => t.start_uptime = Some(number),
            21 => t.end_uptime = Some(number),
            150 => t.start = Some(number.saturating_mul(NANOS)),
            151 => t.end = Some(number.saturating_mul(NANOS)),
            152 => t.start = Some(number.saturating_mul(MILLI)),
            153 => t.end = Some(number.saturating_mul(MILLI)),
            154 | 156 => t.start = ntp(number),
            155 | 157 => t.end = ntp(number),
            158 => t.start_before_export = Some(number.saturating_mul(1000)),
            159 => t.end_before_export = Some(number.saturating_mul(1000)),
            160 => t.boot = Some(number.saturating_mul(MILLI)),
            161 => t.duration = Some(number.saturating_mul(MILLI)),
            162 => t.duration = Some(number.saturating_mul(1000)),
            _ => {}
        }
    }

    fn reverse(&mut self, id: u16, v: &[u8]) {
        match id {
            1 | 85 => self.flow.back_bytes = unsigned(v),
            2 | 86 => self.flow.back = unsigned(v),
            _ => {}
        }
    }

    fn finish(mut self, clock: Clock) -> Option<Next> {
        let t = self.times;
        let boot = t.boot.or(clock.boot);
        let since_boot = |ms: Option<u64>| boot?.checked_add(ms?.checked_mul(MILLI)?);
        let before = |nanos: Option<u64>| clock.export.checked_sub(nanos?);
        let start = t.start.or_else(|| since_boot(t.start_uptime)).or_else(|| before(t.start_before_export));
        let end = t.end.or_else(|| since_boot(t.end_uptime)).or_else(|| before(t.end_before_export));
        let end = end.or_else(|| start?.checked_add(t.duration?));
        let start = start.or_else(|| end?.checked_sub(t.duration.unwrap_or(0)));
        let f = &mut self.flow;
        if f.first.src.ip.is_none() && f.first.dst.ip.is_none() {
            return None; // no flow between hosts: counters, MAC-only records
        }
        f.first.at = start.or(end).unwrap_or(clock.export);
        f.end = end.unwrap_or(f.first.at).max(f.first.at);
        Some(Next::Flow(Box::new(self.flow)))
    }
}

/// NTP format: seconds since 1900 and a binary fraction, in nanoseconds since 1970.
fn ntp(value: u64) -> Option<u64> {
    let seconds = (value >> 32).checked_sub(NTP_OFFSET)?;
    Some(seconds * NANOS + (((value & 0xffff_ffff) * NANOS) >> 32))
}
