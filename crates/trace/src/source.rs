//! One recording as a stream of packets in order of time. Owns reordering, the spreading of flows, and the count of losses.
//!
//! Captures are nearly in order, flow logs are ordered by the end of the flow. A first reading measures by how much a
//! record may be late (its start before the latest start seen so far); the second holds records back by exactly that. What
//! is held is bounded by [`MAX_HELD_PACKETS`] and [`MAX_HELD_FLOWS`]; beyond, a record is passed on late and counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bytes::Bytes;
use crate::decode::{Decoder, Format, Next};
use crate::flow::{Cursor, Spread};
use crate::input::Input;
use crate::loss::{Loss, Losses};
use crate::parquet_file::PeriodReader;
use crate::seen::Seen;

/// Packets held back while a capture is put in order (some 8 MB).
pub const MAX_HELD_PACKETS: usize = 1 << 16;
/// Flows held back while a flow log is put in order and its flows are spread (some 200 MB).
pub const MAX_HELD_FLOWS: usize = 1 << 20;

/// A recording being read, record by record, not yet in order.
pub struct Reader {
    name: String,
    bytes: Bytes,
    decoder: Decoder,
    format: Format,
    losses: Losses,
    upkeep: u64,
    done: bool,
}

impl Reader {
    /// Opens an input and recognises its format.
    ///
    /// # Errors
    /// A [`Loss`] at offset 0 if it cannot be opened or is in no known format.
    pub fn open(input: &Input, format: Option<Format>) -> Result<Self, Loss> {
        let lost = |reason: String| Loss { file: input.name().to_owned(), offset: 0, record: 0, reason };
        let mut bytes = input.open().map_err(|e| lost(e.to_string()))?;
        let format = match format {
            Some(format) => format,
            None => match Format::detect(bytes.peek(1 << 16)) {
                Ok(format) => format,
                Err(found) => {
                    let found = bytes.take_error().map_or(found, |e| e.to_string());
                    return Err(lost(format!("not a known format: {found}")));
                }
            },
        };
        let decoder = if format == Format::Periods {
            let file = input.file_handle().map_err(|e| lost(e.to_string()))?;
            Decoder::Periods(Box::new(PeriodReader::open(file).map_err(lost)?))
        } else {
            Decoder::open(format, &mut bytes, input.export_ports()).map_err(lost)?
        };
        let name = input.name().to_owned();
        Ok(Self { name, bytes, decoder, format, losses: Losses::default(), upkeep: 0, done: false })
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The decoder, for what only it knows.
    #[must_use]
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// What was lost so far.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// 802.11 frames without traffic so far.
    #[must_use]
    pub const fn upkeep(&self) -> u64 {
        self.upkeep
    }

    /// Bytes read so far, decompressed.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    /// The next packet or flow; `None` at the end.
    #[inline(always)]
    pub fn record(&mut self) -> Option<Next> {
        loop {
            match self.decoder.next(&mut self.bytes) {
                next @ (Next::Packet(_) | Next::Flow(_) | Next::Burst(_)) => return Some(next),
                Next::Upkeep => self.upkeep += 1,
                other => {
                    if !self.unusual(other) {
                        return None;
                    }
                }
            }
        }
    }

    /// Damage and the end; whether reading goes on.
    #[cold]
    fn unusual(&mut self, next: Next) -> bool {
        if self.done {
            return false;
        }
        let mut goes_on = false;
        if let Next::Damaged(damage) = next {
            let offset = self.bytes.offset().saturating_sub(damage.behind as u64);
            goes_on = !damage.rest;
            let mut reason = damage.reason;
            if damage.rest {
                let rest = self.bytes.drain();
                reason = format!("{reason}; the remaining {rest} bytes are lost");
            }
            self.losses.push(Loss { file: self.name.clone(), offset, record: damage.record, reason });
        }
        if !goes_on {
            self.done = true;
            if let Some(error) = self.bytes.take_error() {
                let (file, offset) = (self.name.clone(), self.bytes.offset());
                self.losses.push(Loss {
                    file,
                    offset,
                    record: 0,
                    reason: format!("the input ends early: {error}"),
                });
            }
        }
        goes_on
    }
}

/// A held record: a packet, or a flow at its next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Packet(Seen),
    Flow(FlowId),
}

/// Index into the table of cursors.
type FlowId = u32;

/// A recording in order of time.
pub struct Source {
    reader: Reader,
    spread: Spread,
    /// By how much a record may be late, in nanoseconds, from the survey.
    lateness: u64,
    in_order: bool,
    newest: u64,
    last_out: u64,
    late: u64,
    ended: bool,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    slab: Vec<Waiting>,
    free: Vec<usize>,
    cursors: Vec<Cursor>,
    free_cursors: Vec<u32>,
    flows_held: usize,
}

impl Source {
    /// From a reader at its beginning. `lateness` is 0 for a recording that is known to be in order.
    #[must_use]
    pub fn new(reader: Reader, lateness: u64, spread: Spread) -> Self {
        let in_order = lateness == 0 && !reader.format.is_flows();
        Self {
            reader,
            spread,
            lateness,
            in_order,
            newest: 0,
            last_out: 0,
            late: 0,
            ended: false,
            sequence: 0,
            heap: BinaryHeap::new(),
            slab: Vec::new(),
            free: Vec::new(),
            cursors: Vec::new(),
            free_cursors: Vec::new(),
            flows_held: 0,
        }
    }

    /// Packets that came too late to be put in their place.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// The reader.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The next packet in order of time.
    #[inline]
    pub fn packet(&mut self) -> Option<Seen> {
        if self.in_order {
            return loop {
                match self.reader.record()? {
                    Next::Packet(seen) => break Some(seen),
                    Next::Flow(flow) => {
                        // A flow in a packet format: from here on through the heap.
                        self.in_order = false;
                        self.hold_flow(Cursor::new(*flow, self.spread));
                        return self.ordered();
                    }
                    _ => {}
                }
            };
        }
        self.ordered()
    }

    fn ordered(&mut self) -> Option<Seen> {
        while !self.ended && !self.releasable() {
            match self.reader.record() {
                None => self.ended = true,
                Some(Next::Packet(seen)) => {
                    self.newest = self.newest.max(seen.at);
                    self.hold(seen.at, Waiting::Packet(seen));
                }
                Some(Next::Flow(flow)) => {
                    self.newest = self.newest.max(flow.first.at);
                    self.hold_flow(Cursor::new(*flow, self.spread));
                }
                Some(Next::Burst(period)) => {
                    self.newest = self.newest.max(period.at);
                    self.hold_flow(Cursor::burst(*period));
                }
                Some(_) => {}
            }
        }
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.late += u64::from(at < self.last_out);
        self.last_out = self.last_out.max(at);
        match self.slab.get(slot).copied()? {
            Waiting::Packet(seen) => {
                self.free.push(slot);
                Some(seen)
            }
            Waiting::Flow(id) => {
                let cursor = self.cursors.get_mut(id as usize)?;
                let seen = cursor.packet();
                if cursor.advance() {
                    let at = cursor.at();
                    self.push(at, slot);
                } else {
                    self.free.push(slot);
                    self.free_cursors.push(id);
                    self.flows_held -= 1;
                }
                seen
            }
        }
    }

    /// Whether nothing that is still to be read can come before the oldest that is held.
    fn releasable(&self) -> bool {
        let Some(Reverse((oldest, ..))) = self.heap.peek() else { return false };
        let full = self.flows_held >= MAX_HELD_FLOWS || self.heap.len() - self.flows_held >= MAX_HELD_PACKETS;
        full || *oldest < self.newest.saturating_sub(self.lateness)
    }

    fn hold_flow(&mut self, cursor: Cursor) {
        let at = cursor.at();
        self.flows_held += 1;
        let id = if let Some(id) = self.free_cursors.pop() {
            if let Some(place) = self.cursors.get_mut(id as usize) {
                *place = cursor;
            }
            id
        } else {
            self.cursors.push(cursor);
            u32::try_from(self.cursors.len() - 1).unwrap_or(u32::MAX)
        };
        self.hold(at, Waiting::Flow(id));
    }

    fn hold(&mut self, at: u64, held: Waiting) {
        let slot = if let Some(slot) = self.free.pop() {
            if let Some(place) = self.slab.get_mut(slot) {
                *place = held;
            }
            slot
        } else {
            self.slab.push(held);
            self.slab.len() - 1
        };
        self.push(at, slot);
    }

    fn push(&mut self, at: u64, slot: usize) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, slot)));
    }
}
