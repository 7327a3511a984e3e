//! Activities by client and, within it, by time, in bounded memory. Owns the runs on disk; must never know what an activity means.
//!
//! At most [`HELD`] activities are in memory; what is more is sorted and put into a temporary file without a name, as one of at most
//! [`RUNS`] runs, which are merged into one when there are that many. Activities of equal client and time keep the order in which they came.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt as _;

use dormouse_energy::{Direction, PacketInfo};

use crate::activity::{Activity, Mark};
use crate::input::anonymous_file;
use crate::seen::{ClientPacket, time_of_day};

/// Activities held in memory (some 80 MB).
pub const HELD: usize = 1 << 19;
/// Runs that wait on disk, each with a buffer of [`WINDOW`] bytes while they are merged.
pub const RUNS: usize = 64;
const WINDOW: usize = 1 << 16;

/// Takes activities in any order.
pub struct Sorter {
    held: Vec<Activity>,
    most: usize,
    runs: Vec<Run>,
}

/// A sorted stretch of a temporary file, which the runs of one merge share or not.
struct Run {
    file: File,
    length: u64,
}

impl Default for Sorter {
    fn default() -> Self {
        Self::holding(HELD)
    }
}

const fn key(activity: &Activity) -> (u32, u64) {
    (activity.client, activity.start)
}

impl Sorter {
    /// With at most so many activities in memory.
    #[must_use]
    pub const fn holding(most: usize) -> Self {
        Self { held: Vec::new(), most, runs: Vec::new() }
    }

    /// Takes one.
    ///
    /// # Errors
    /// When the temporary file cannot be written.
    #[inline]
    pub fn push(&mut self, activity: Activity) -> io::Result<()> {
        self.held.push(activity);
        if self.held.len() >= self.most { self.spill() } else { Ok(()) }
    }

    #[cold]
    fn spill(&mut self) -> io::Result<()> {
        self.held.sort_by_key(key);
        let run = Run::write(&mut self.held.drain(..).map(Ok))?;
        self.runs.push(run);
        if self.runs.len() >= RUNS {
            let mut merged = Sorted::new(Vec::new(), core::mem::take(&mut self.runs))?;
            self.runs.push(Run::write(&mut merged)?);
        }
        Ok(())
    }

    /// All of them in order.
    ///
    /// # Errors
    /// When a temporary file cannot be read back.
    pub fn sorted(mut self) -> io::Result<Sorted> {
        self.held.sort_by_key(key);
        Sorted::new(self.held, self.runs)
    }
}

impl Run {
    fn write(activities: &mut dyn Iterator<Item = io::Result<Activity>>) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(WINDOW, anonymous_file()?);
        let (mut length, mut last, mut bytes) = (0, (0, 0), Vec::with_capacity(128));
        for activity in activities {
            let activity = activity?;
            bytes.clear();
            encode(&activity, last, &mut bytes);
            last = key(&activity);
            out.write_all(&bytes)?;
            length += bytes.len() as u64;
        }
        Ok(Self { file: out.into_inner().map_err(io::IntoInnerError::into_error)?, length })
    }
}

/// Activities in order of client and time.
pub struct Sorted {
    memory: std::vec::IntoIter<Activity>,
    runs: Vec<Reading>,
    /// The next activity of each source that has one; what is in memory came last.
    heads: BinaryHeap<Reverse<((u32, u64), usize)>>,
    waiting: Vec<Option<Activity>>,
}

struct Reading {
    run: Run,
    at: u64,
    window: Vec<u8>,
    start: usize,
    last: (u32, u64),
}

impl Sorted {
    fn new(memory: Vec<Activity>, runs: Vec<Run>) -> io::Result<Self> {
        let reading = |run| Reading { run, at: 0, window: Vec::new(), start: 0, last: (0, 0) };
        let runs: Vec<Reading> = runs.into_iter().map(reading).collect();
        let waiting = vec![None; runs.len() + 1];
        let mut sorted = Self { memory: memory.into_iter(), runs, heads: BinaryHeap::new(), waiting };
        if !sorted.runs.is_empty() {
            (0..sorted.waiting.len()).try_for_each(|source| sorted.refill(source))?;
        }
        Ok(sorted)
    }

    fn refill(&mut self, source: usize) -> io::Result<()> {
        let next = match self.runs.get_mut(source) {
            Some(run) => run.next()?,
            None => self.memory.next(),
        };
        if let (Some(activity), Some(place)) = (next, self.waiting.get_mut(source)) {
            self.heads.push(Reverse((key(&activity), source)));
            *place = Some(activity);
        }
        Ok(())
    }

    fn merged(&mut self) -> io::Result<Option<Activity>> {
        let Some(Reverse((_, source))) = self.heads.pop() else { return Ok(None) };
        let activity = self.waiting.get_mut(source).and_then(Option::take);
        self.refill(source)?;
        Ok(activity)
    }
}

impl Iterator for Sorted {
    type Item = io::Result<Activity>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.runs.is_empty() {
            return self.memory.next().map(Ok);
        }
        self.merged().transpose()
    }
}

/// The most bytes that one activity takes: six numbers of ten, two packets.
const LONGEST: usize = 128;

impl Reading {
    fn next(&mut self) -> io::Result<Option<Activity>> {
        if self.window.len() - self.start < LONGEST && self.at < self.run.length {
            self.window.drain(..self.start);
            self.start = 0;
            let kept = self.window.len();
            let left = usize::try_from(self.run.length - self.at).unwrap_or(WINDOW);
            self.window.resize(kept + left.min(WINDOW), 0);
            let fresh = self.window.get_mut(kept..).unwrap_or_default();
            self.run.file.read_exact_at(fresh, self.at)?;
            self.at += fresh.len() as u64;
        }
        let mut rest = self.window.get(self.start..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let before = rest.len();
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a temporary file has changed");
        let activity = decode(&mut rest, self.last).ok_or_else(damaged)?;
        self.start += before - rest.len();
        self.last = key(&activity);
        Ok(Some(activity))
    }
}

fn put(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(from: &mut &[u8]) -> Option<u64> {
    let (mut n, mut shift) = (0u64, 0);
    loop {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        n |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(n);
        }
        shift += 7;
    }
}

/// One packet: nothing but its description follows the times.
const SINGLE: u64 = 1;
/// The same client as before: the start is relative to the one before.
const SAME: u64 = 2;

fn encode(a: &Activity, last: (u32, u64), out: &mut Vec<u8>) {
    let single = a.packets == 1 && a.end == a.start && a.first == a.last;
    let same = a.client == last.0 && a.start >= last.1;
    let told = [(same, SAME), (single, SINGLE)].into_iter().filter(|(holds, _)| *holds);
    put(told.fold((a.mark as u64) << 2, |flags, (_, flag)| flags | flag), out);
    if !same {
        put(u64::from(a.client), out);
    }
    put(if same { a.start - last.1 } else { a.start }, out);
    encode_packet(&a.first, out);
    if !single {
        [a.end - a.start, a.packets, a.outgoing, a.lead].into_iter().for_each(|n| put(n, out));
        encode_packet(&a.last, out);
    }
}

fn encode_packet(p: &PacketInfo, out: &mut Vec<u8>) {
    let way = match p.direction {
        Direction::Outgoing => 0,
        Direction::Incoming => 1,
        Direction::Unknown => 2,
    };
    put(u64::from(p.protocol) << 2 | way, out);
    for port in [p.local_port, p.remote_port] {
        out.extend(port.to_le_bytes());
    }
    put(u64::from(p.size), out);
}

fn decode(from: &mut &[u8], last: (u32, u64)) -> Option<Activity> {
    let flags = take(from)?;
    let same = flags & SAME != 0;
    let client = if same { last.0 } else { u32::try_from(take(from)?).ok()? };
    let start = take(from)?.checked_add(if same { last.1 } else { 0 })?;
    let mark = match flags >> 2 {
        0 => Mark::None,
        1 => Mark::Joins,
        _ => Mark::Connection,
    };
    let first = decode_packet(from, start)?;
    let single = Activity { mark, ..Activity::packet(&ClientPacket { at: start, client, info: first }) };
    if flags & SINGLE != 0 {
        return Some(single);
    }
    let end = start.checked_add(take(from)?)?;
    let (packets, outgoing, lead) = (take(from)?, take(from)?, take(from)?);
    Some(Activity { end, packets, outgoing, lead, last: decode_packet(from, end)?, ..single })
}

fn decode_packet(from: &mut &[u8], at: u64) -> Option<PacketInfo> {
    let kind = take(from)?;
    let direction = match kind & 3 {
        0 => Direction::Outgoing,
        1 => Direction::Incoming,
        _ => Direction::Unknown,
    };
    let (ports, rest) = from.split_first_chunk::<4>()?;
    *from = rest;
    let [a, b, c, d] = *ports;
    Some(PacketInfo {
        direction,
        protocol: u16::try_from(kind >> 2).ok()?,
        local_port: u16::from_le_bytes([a, b]),
        remote_port: u16::from_le_bytes([c, d]),
        size: u32::try_from(take(from)?).ok()?,
        time_of_day: time_of_day(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_sansio::{Entropy as _, Seeded};

    fn drawn(random: &mut Seeded) -> Activity {
        let start = random.below(40) * 1_000_000_000 + (random.below(2) << 60);
        let direction =
            [Direction::Outgoing, Direction::Incoming, Direction::Unknown][random.below(3) as usize];
        let info = |size: u64| PacketInfo {
            direction,
            protocol: random_protocol(size),
            local_port: 80,
            remote_port: 65_535,
            size: size as u32,
            time_of_day: None,
        };
        let (client, first) =
            (random.below(5) as u32, PacketInfo { time_of_day: time_of_day(start), ..info(random.below(9)) });
        let mark = [Mark::None, Mark::Joins, Mark::Connection][random.below(3) as usize];
        let single = Activity { mark, ..Activity::packet(&ClientPacket { at: start, client, info: first }) };
        if random.below(2) == 0 {
            return single;
        }
        let end = start + random.below(1 << 40);
        let last = PacketInfo { time_of_day: time_of_day(end), ..info(u64::from(u32::MAX)) };
        let packets = random.next_u64().max(1);
        Activity { end, packets, outgoing: packets / 2, lead: packets / 3, last, ..single }
    }

    fn random_protocol(size: u64) -> u16 {
        if size > 4 { 0x806 } else { 17 }
    }

    #[test]
    fn the_order_is_that_of_a_stable_sort_with_any_memory() {
        let mut random = Seeded::new(4);
        let all: Vec<Activity> = (0..3000).map(|_| drawn(&mut random)).collect();
        let mut expected = all.clone();
        expected.sort_by_key(key);
        // In memory; in some runs; in so many that they are merged on the way.
        for most in [10_000, 700, 7] {
            let mut sorter = Sorter::holding(most);
            all.iter().try_for_each(|a| sorter.push(*a)).expect("a temporary file");
            assert!(sorter.runs.len() < RUNS);
            let sorted: io::Result<Vec<Activity>> = sorter.sorted().expect("a temporary file").collect();
            assert_eq!(sorted.expect("what was written"), expected, "{most} held");
        }
    }
}
