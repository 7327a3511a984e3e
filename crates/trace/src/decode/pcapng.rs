//! pcapng files (draft-ietf-opsawg-pcapng). Owns the block framing; must never interpret a packet.

use super::exports::{Exported, Exports};
use super::link::{self, Frame, LinkType};
use super::pcap::MAX_CAPTURED;
use super::record::{Damage, Next};
use crate::bytes::{Bytes, MAX_RECORD};
use crate::seen::Seen;

/// The block type that every pcapng file begins with; a palindrome, the same in either byte order.
pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Interfaces kept for one section.
const MAX_INTERFACES: usize = 65_536;

#[derive(Clone, Copy)]
struct Interface {
    link: Option<LinkType>,
    number: u16,
    /// Units of the time stamp in one second.
    per_second: u64,
    /// Seconds to add to every time stamp.
    offset: i64,
    snap_length: u32,
}

/// A pcapng file being read.
#[derive(Default)]
pub struct Pcapng {
    big_endian: bool,
    in_section: bool,
    interfaces: Vec<Interface>,
    blocks: u64,
    synthetic: Option<String>,
    exports: Exports,
}

impl Pcapng {
    /// At the beginning of a file.
    #[must_use]
    pub fn new(exports: Exports) -> Self {
        Self { exports, ..Self::default() }
    }

    /// What the export datagrams yielded so far.
    #[must_use]
    pub const fn exported(&self) -> Exported {
        self.exports.counts()
    }

    /// What the section's comment says, if it says that the file is synthetic.
    #[must_use]
    pub fn synthetic(&self) -> Option<&str> {
        self.synthetic.as_deref()
    }

    fn u32(&self, b: &[u8], at: usize) -> Option<u32> {
        let b = *b.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) })
    }

    fn u16(&self, b: &[u8], at: usize) -> Option<u16> {
        let b = *b.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) })
    }

    /// The next packet; blocks of other types are passed over.
    pub fn next(&mut self, bytes: &mut Bytes) -> Next {
        loop {
            if let Some(exported) = self.exports.waiting() {
                return exported;
            }
            match self.block(bytes) {
                Ok(Some(next)) => return next,
                Ok(None) => {}
                Err(reason) => return Next::Damaged(Damage::rest(self.blocks, reason)),
            }
        }
    }

    /// Reads one block; an error means that the framing is lost.
    fn block(&mut self, bytes: &mut Bytes) -> Result<Option<Next>, String> {
        let window = bytes.peek(12);
        if window.is_empty() {
            return Ok(Some(Next::End));
        }
        self.blocks += 1;
        let Some(head) = window.first_chunk::<12>().copied() else {
            return Err("a block header is cut short".to_owned());
        };
        if u32::from_be_bytes([head[0], head[1], head[2], head[3]]) == SECTION_HEADER {
            self.big_endian = match [head[8], head[9], head[10], head[11]] {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                other => return Err(format!("byte-order magic {other:02x?} in a section header")),
            };
            self.interfaces.clear();
            self.in_section = true;
        } else if !self.in_section {
            return Err("the file does not begin with a section header".to_owned());
        }
        let kind = self.u32(&head, 0).unwrap_or(0);
        let length = self.u32(&head, 4).unwrap_or(0) as usize;
        if length < 12 || !length.is_multiple_of(4) || length > MAX_RECORD {
            return Err(format!("a block of type {kind:#x} claims {length} bytes"));
        }
        let window = bytes.peek(length);
        let Some(block) = window.get(..length) else {
            return Err(format!("a block of {length} bytes is cut short after {}", window.len()));
        };
        if self.u32(block, length - 4) != Some(head_length(length)) {
            return Err(format!("the two lengths of a block of type {kind:#x} differ"));
        }
        let body = block.get(8..length - 4).unwrap_or_default();
        let mut interface = None;
        let next = match kind {
            SECTION_HEADER => {
                let comment = self.synthetic_comment(body.get(16..).unwrap_or_default());
                self.synthetic = self.synthetic.take().or(comment);
                None
            }
            INTERFACE => {
                interface = Some(self.interface(body));
                None
            }
            ENHANCED_PACKET | OLD_PACKET => self.packet(kind, body, length).transpose(),
            SIMPLE_PACKET => Some(Err("a simple packet block has no time".to_owned())),
            _ => None,
        };
        if let Some(interface) = interface {
            if self.interfaces.len() >= MAX_INTERFACES {
                return Err(format!("more than {MAX_INTERFACES} interfaces"));
            }
            self.interfaces.push(interface);
        }
        bytes.consume(length);
        let record = self.blocks;
        Ok(next.map(|n| n.unwrap_or_else(|reason| Next::Damaged(Damage::one(record, length, reason)))))
    }

    /// Code and value of each option.
    fn options<'a>(&self, mut rest: &'a [u8]) -> impl Iterator<Item = (u16, &'a [u8])> {
        std::iter::from_fn(move || {
            let (code, length) = (self.u16(rest, 0)?, usize::from(self.u16(rest, 2)?));
            let value = rest.get(4..4 + length)?;
            rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
            (code != 0).then_some((code, value))
        })
    }

    fn synthetic_comment(&self, options: &[u8]) -> Option<String> {
        self.options(options)
            .filter(|(code, _)| *code == 1)
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
            .find(|text| text.starts_with(crate::SYNTHETIC_MARK))
    }

    fn interface(&self, body: &[u8]) -> Interface {
        let number = self.u16(body, 0).unwrap_or(u16::MAX);
        let mut interface = Interface {
            link: LinkType::from_number(u32::from(number)),
            number,
            per_second: 1_000_000,
            offset: 0,
            snap_length: self.u32(body, 4).unwrap_or(0),
        };
        for (code, value) in self.options(body.get(8..).unwrap_or_default()) {
            match (code, value) {
                (9, &[resolution, ..]) => {
                    let exponent = u32::from(resolution & 0x7f);
                    let base: u64 = if resolution & 0x80 != 0 { 2 } else { 10 };
                    interface.per_second = base.checked_pow(exponent).unwrap_or(u64::MAX);
                }
                (14, &[a, b, c, d, e, f, g, h]) => {
                    let b = [a, b, c, d, e, f, g, h];
                    interface.offset =
                        if self.big_endian { i64::from_be_bytes(b) } else { i64::from_le_bytes(b) };
                }
                _ => {}
            }
        }
        interface
    }

    /// A packet block of `length` bytes; nothing for an export datagram, whose flows wait.
    fn packet(&mut self, kind: u32, body: &[u8], length: usize) -> Result<Option<Next>, String> {
        let short = || "a packet block is too short".to_owned();
        let id = if kind == OLD_PACKET { self.u16(body, 0).map(u32::from) } else { self.u32(body, 0) };
        let id = id.ok_or_else(short)?;
        let interface = self.interfaces.get(id as usize).ok_or_else(|| {
            format!("a packet names interface {id}, {} are described", self.interfaces.len())
        })?;
        let link =
            interface.link.ok_or_else(|| format!("link type {} is not supported", interface.number))?;
        let (high, low) = (self.u32(body, 4).ok_or_else(short)?, self.u32(body, 8).ok_or_else(short)?);
        let captured = self.u32(body, 12).ok_or_else(short)?;
        let original = self.u32(body, 16).ok_or_else(short)?;
        if captured > MAX_CAPTURED.max(interface.snap_length) {
            return Err(format!("a packet claims {captured} captured bytes"));
        }
        let frame = body.get(20..20 + captured as usize).ok_or_else(short)?;
        let at = nanoseconds(u64::from(high) << 32 | u64::from(low), interface);
        let mut seen = Seen { at, size: original, ..Seen::default() };
        match link::read(link, frame, &mut seen) {
            Frame::Traffic(transport) => {
                let exported =
                    self.exports.concern(&seen) && self.exports.take(&seen, transport, self.blocks, length);
                Ok((!exported).then_some(Next::Packet(seen)))
            }
            Frame::Upkeep => Ok(Some(Next::Upkeep)),
            Frame::Joins(mac) => Ok(Some(Next::Joins(mac))),
            Frame::Short => Err(format!("a frame of {captured} bytes is too short for its link layer")),
        }
    }
}

/// The length as it stands behind the block; block lengths are below [`MAX_RECORD`].
fn head_length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn nanoseconds(units: u64, interface: &Interface) -> u64 {
    let nanos = match interface.per_second {
        1_000_000 => u128::from(units) * 1000,
        1_000_000_000 => u128::from(units),
        per_second => u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1)),
    };
    let shifted = i128::try_from(nanos)
        .unwrap_or(i128::MAX)
        .saturating_add(i128::from(interface.offset) * 1_000_000_000);
    u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
}
