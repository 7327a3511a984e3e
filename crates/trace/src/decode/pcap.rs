//! Classic pcap files. Owns the framing; must never interpret a packet.
//!
//! Four magic numbers: microseconds or nanoseconds, either byte order; and the "modified" form with 24-byte record headers.

use super::exports::{Exported, Exports};
use super::link::{self, Frame, LinkType};
use super::record::{Damage, Next};
use crate::bytes::Bytes;
use crate::seen::Seen;

/// Captured lengths beyond this are damage, also where the file's own limit is higher (tcpdump's MAXIMUM_SNAPLEN).
pub const MAX_CAPTURED: u32 = 262_144;

/// A pcap file being read.
pub struct Pcap {
    big_endian: bool,
    /// Nanoseconds for one unit of the fraction field.
    tick: u32,
    record_header: usize,
    link: LinkType,
    records: u64,
    exports: Exports,
}

/// The first four bytes of a pcap file, as a big-endian number.
#[must_use]
pub const fn is_magic(magic: u32) -> bool {
    matches!(magic, 0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 | 0xa1b2_cd34 | 0x34cd_b2a1)
}

impl Pcap {
    /// Reads the file header.
    ///
    /// # Errors
    /// A description of what is wrong with it.
    pub fn open(bytes: &mut Bytes, exports: Exports) -> Result<Self, String> {
        let Some(head) = bytes.peek(24).first_chunk::<24>() else {
            return Err("the file header is cut short (24 bytes needed)".to_owned());
        };
        let magic = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let (big_endian, tick, record_header) = match magic {
            0xa1b2_c3d4 => (true, 1000, 16),
            0xd4c3_b2a1 => (false, 1000, 16),
            0xa1b2_3c4d => (true, 1, 16),
            0x4d3c_b2a1 => (false, 1, 16),
            0xa1b2_cd34 => (true, 1000, 24),
            0x34cd_b2a1 => (false, 1000, 24),
            _ => return Err(format!("{magic:#010x} is no pcap magic number")),
        };
        let field = [head[20], head[21], head[22], head[23]];
        // The upper bits tell the length of the frame check sequence.
        let number =
            if big_endian { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) } & 0x0fff_ffff;
        let link =
            LinkType::from_number(number).ok_or_else(|| format!("link type {number} is not supported"))?;
        bytes.consume(24);
        Ok(Self { big_endian, tick, record_header, link, records: 0, exports })
    }

    /// What the export datagrams yielded so far.
    #[must_use]
    pub const fn exported(&self) -> Exported {
        self.exports.counts()
    }

    #[inline]
    fn number(&self, b: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
    }

    /// The next record.
    #[inline(always)]
    pub fn next(&mut self, bytes: &mut Bytes) -> Next {
        loop {
            if let Some(exported) = self.exports.waiting() {
                return exported;
            }
            if let Some(next) = self.record(bytes) {
                return next;
            }
        }
    }

    /// The next record; `None` for an export datagram, whose flows wait.
    #[inline(always)]
    fn record(&mut self, bytes: &mut Bytes) -> Option<Next> {
        let header = self.record_header;
        let window = bytes.peek(header);
        let Some(h) = window.first_chunk::<16>().filter(|_| window.len() >= header) else {
            return Some(self.cut_header(window.is_empty()));
        };
        let seconds = self.number([h[0], h[1], h[2], h[3]]);
        let fraction = self.number([h[4], h[5], h[6], h[7]]);
        let captured = self.number([h[8], h[9], h[10], h[11]]);
        let original = self.number([h[12], h[13], h[14], h[15]]);
        self.records += 1;
        if captured > MAX_CAPTURED {
            let reason =
                format!("a record claims {captured} captured bytes, at most {MAX_CAPTURED} are possible");
            return Some(Next::Damaged(Damage::rest(self.records, reason)));
        }
        let whole = header + captured as usize;
        // Nearly always the frame is in the same window as its header.
        let window = if window.len() >= whole { window } else { bytes.peek(whole) };
        let Some(frame) = window.get(header..whole) else {
            let reason = format!("a record of {whole} bytes is cut short after {}", window.len());
            return Some(Next::Damaged(Damage::rest(self.records, reason)));
        };
        let at = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(self.tick);
        let mut seen = Seen { at, size: original, ..Seen::default() };
        let next = match link::read(self.link, frame, &mut seen) {
            Frame::Traffic(transport) => {
                let exported =
                    self.exports.concern(&seen) && self.exports.take(&seen, transport, self.records, whole);
                (!exported).then_some(Next::Packet(seen))
            }
            Frame::Upkeep => Some(Next::Upkeep),
            Frame::Joins(mac) => Some(Next::Joins(mac)),
            Frame::Short => {
                let reason = format!("a frame of {captured} bytes is too short for its link layer");
                Some(Next::Damaged(Damage::one(self.records, whole, reason)))
            }
        };
        bytes.consume(whole);
        next
    }

    #[cold]
    fn cut_header(&self, end: bool) -> Next {
        if end {
            return Next::End;
        }
        let reason = format!("a record header of {} bytes is cut short", self.record_header);
        Next::Damaged(Damage::rest(self.records + 1, reason))
    }
}
