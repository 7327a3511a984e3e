//! Joining received packets of one TCP or UDP flow into super-packets for the TUN device, where they lie. Owns the rules of what
//! may be joined; must never copy a payload, allocate, or change the order of a flow.
//!
//! The rules are those of the kernel's own receive offload: equal headers, consecutive sequence numbers, nothing but ACK (PSH
//! ends a super-packet), valid checksums, every payload but the last of one size. Checksums are verified because joining
//! replaces them: a packet that was damaged before the tunnel must not come out of it looking sound.
//!
//! A joined packet is one `writev`: virtio-net header, the first packet's headers (corrected in place), then each payload from
//! where it was decrypted. tun-rs's `GROTable` would append every payload to the first packet's own buffer instead: one copy
//! more of everything, and a buffer per packet.

use std::io::{self, IoSlice};

use crate::sum::Sum;
use crate::tun::{MAX_PACKET, Tun, Vnet};

/// Flows that can grow at a time.
const FLOWS: usize = 8;
/// Packets in one super-packet.
const PIECES: usize = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const MAX_HEADERS: usize = 120;

/// Where a packet's parts lie in the receive buffer.
#[derive(Clone, Copy, Default)]
struct Layout {
    start: usize,
    transport: usize,
    headers: usize,
    len: usize,
    v6: bool,
    udp: bool,
    sequence: u32,
    push: bool,
}

/// A super-packet in the making.
#[derive(Clone, Copy)]
struct Growing {
    first: Layout,
    /// Offset and length of each payload.
    pieces: [(u32, u16); PIECES],
    count: usize,
    /// Bytes of headers and payloads.
    total: usize,
    /// The sequence number that continues it.
    next: u32,
    closed: bool,
    push: bool,
}

/// The super-packets that one batch of received packets becomes.
pub(crate) struct Joiner {
    growing: Box<[Growing; FLOWS]>,
    used: usize,
    /// What could not be written.
    pub(crate) lost: u64,
    /// Writes to the TUN device.
    pub(crate) writes: u64,
}

impl Default for Joiner {
    fn default() -> Self {
        let empty = Growing {
            first: Layout::default(),
            pieces: [(0, 0); PIECES],
            count: 0,
            total: 0,
            next: 0,
            closed: false,
            push: false,
        };
        Self { growing: Box::new([empty; FLOWS]), used: 0, lost: 0, writes: 0 }
    }
}

impl Joiner {
    /// Takes the packet at `range` of `buf`: joins it, or writes it to `tun` as it is. `buf` must not change before
    /// [`Self::flush`].
    pub(crate) fn push(&mut self, tun: &mut Tun, buf: &mut [u8], range: std::ops::Range<usize>) {
        let offloads = tun.offloads();
        let candidate = (offloads.join_tcp || offloads.join_udp)
            .then(|| Layout::of(buf, range.clone()))
            .flatten()
            .filter(|p| if p.udp { offloads.join_udp } else { offloads.join_tcp });
        let Some(packet) = candidate else {
            // It may belong to a flow that is growing (a FIN, a fragment): keep the flow's order.
            self.flush_flow_of(tun, buf, &range);
            self.write_one(tun, &buf[range]);
            return;
        };
        for i in 0..self.used {
            if !same_flow(buf, &self.growing[i].first, &packet) {
                continue;
            }
            if self.growing[i].accepts(buf, &packet) && checksum_valid(buf, &packet) {
                self.growing[i].append(&packet);
            } else {
                self.write(tun, buf, i);
                self.start(i, &packet, checksum_valid(buf, &packet));
            }
            return;
        }
        if self.used == FLOWS {
            self.write(tun, buf, 0);
            self.growing.rotate_left(1);
            self.used -= 1;
        }
        self.start(self.used, &packet, checksum_valid(buf, &packet));
        self.used += 1;
    }

    /// Writes all that was joined.
    pub(crate) fn flush(&mut self, tun: &mut Tun, buf: &mut [u8]) {
        for i in 0..self.used {
            self.write(tun, buf, i);
        }
        self.used = 0;
    }

    fn start(&mut self, i: usize, packet: &Layout, sound: bool) {
        let growing = &mut self.growing[i];
        growing.first = *packet;
        growing.count = 0;
        growing.total = packet.headers;
        // A damaged packet passes alone and as it is: its receiver will find out.
        growing.closed = !sound;
        growing.push = false;
        growing.append(packet);
        growing.closed |= !sound;
    }

    /// Writes what was joined to the flow that an unjoinable packet belongs to.
    fn flush_flow_of(&mut self, tun: &mut Tun, buf: &mut [u8], range: &std::ops::Range<usize>) {
        for i in 0..self.used {
            if self.growing[i].count > 0 && same_addresses(buf, &self.growing[i].first, range) {
                self.write(tun, buf, i);
            }
        }
    }

    /// Writes flow `i` and leaves it empty, but in its place.
    fn write(&mut self, tun: &mut Tun, buf: &mut [u8], i: usize) {
        let growing = &self.growing[i];
        match growing.count {
            0 => return,
            1 => {
                let p = growing.first;
                self.write_one(tun, &buf[p.start..p.start + p.len]);
            }
            _ => {
                let growing = *growing;
                self.write_joined(tun, buf, &growing);
            }
        }
        self.growing[i].count = 0;
        self.growing[i].closed = true;
    }

    fn write_one(&mut self, tun: &Tun, packet: &[u8]) {
        self.writes += 1;
        if tun.write(&[IoSlice::new(packet)]).is_err() {
            self.lost += 1;
        }
    }

    fn write_joined(&mut self, tun: &mut Tun, buf: &mut [u8], growing: &Growing) {
        let p = growing.first;
        let headers = p.start..p.start + p.headers;
        let mut saved = [0; MAX_HEADERS];
        saved[..p.headers].copy_from_slice(&buf[headers.clone()]);
        let vnet = finish_headers(&mut buf[headers.clone()], growing).to_bytes();

        let mut parts = [IoSlice::new(&[]); PIECES + 2];
        parts[0] = IoSlice::new(&vnet);
        parts[1] = IoSlice::new(&buf[headers.clone()]);
        for (part, (at, len)) in parts[2..].iter_mut().zip(&growing.pieces[..growing.count]) {
            *part = IoSlice::new(&buf[*at as usize..*at as usize + usize::from(*len)]);
        }
        self.writes += 1;
        match tun.write_raw(&parts[..growing.count + 2]) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                tun.give_up_joining(p.udp);
                buf[headers].copy_from_slice(&saved[..p.headers]);
                for (at, len) in &growing.pieces[..growing.count] {
                    let start = *at as usize - p.headers;
                    self.write_one(tun, &buf[start..*at as usize + usize::from(*len)]);
                }
            }
            Err(_) => self.lost += growing.count as u64,
        }
    }
}

impl Growing {
    fn accepts(&self, buf: &[u8], packet: &Layout) -> bool {
        let payload = packet.len - packet.headers;
        let first = &self.first;
        let size = first.len - first.headers;
        !self.closed
            && self.count > 0
            && self.count < PIECES
            && packet.headers == first.headers
            && payload <= size
            && self.total + payload <= MAX_PACKET
            && (packet.udp || packet.sequence == self.next)
            && same_headers(buf, first, packet)
    }

    fn append(&mut self, packet: &Layout) {
        let payload = packet.len - packet.headers;
        self.pieces[self.count] = ((packet.start + packet.headers) as u32, payload as u16);
        self.count += 1;
        self.total += payload;
        self.next = packet.sequence.wrapping_add(payload as u32);
        self.push |= packet.push;
        self.closed = packet.push || payload < self.first.len - self.first.headers;
    }
}

impl Layout {
    /// The parts of a packet that may be joined; `None` for all others.
    fn of(buf: &[u8], range: std::ops::Range<usize>) -> Option<Self> {
        let b = buf.get(range.clone())?;
        let (v6, transport, protocol) = match b {
            // No options, no fragments, the length as it says.
            [0x45, _, l0, l1, _, _, flags, 0, _, protocol, ..]
                if flags & 0x3f == 0 && usize::from(u16::from_be_bytes([*l0, *l1])) == b.len() =>
            {
                (false, 20, *protocol)
            }
            [first, _, _, _, l0, l1, protocol, ..]
                if first >> 4 == 6 && usize::from(u16::from_be_bytes([*l0, *l1])) + 40 == b.len() =>
            {
                (true, 40, *protocol)
            }
            _ => return None,
        };
        let header = b.get(transport..)?;
        let mut layout = Self { start: range.start, transport, len: b.len(), v6, ..Self::default() };
        match protocol {
            TCP => {
                let flags = *header.get(13)?;
                let size = usize::from(header.get(12)? >> 4) * 4;
                layout.headers = transport + size;
                layout.sequence = u32::from_be_bytes(*header.get(4..)?.first_chunk()?);
                layout.push = flags & PSH != 0;
                (flags & !PSH == ACK && size >= 20 && layout.headers < b.len()).then_some(layout)
            }
            UDP => {
                layout.udp = true;
                layout.headers = transport + 8;
                let length = usize::from(u16::from_be_bytes(*header.get(4..)?.first_chunk()?));
                // Without a checksum (IPv4 only) there is nothing to replace it by.
                let summed = header.get(6..8)? != [0; 2];
                (summed && length == header.len() && layout.headers < b.len()).then_some(layout)
            }
            _ => None,
        }
    }

    fn bytes<'a>(&self, buf: &'a [u8], from: usize, to: usize) -> &'a [u8] {
        buf.get(self.start + from..self.start + to).unwrap_or_default()
    }
}

/// Whether both are of one flow: protocol, addresses, ports.
fn same_flow(buf: &[u8], a: &Layout, b: &Layout) -> bool {
    let from = if a.v6 { 8 } else { 12 };
    a.v6 == b.v6
        && a.udp == b.udp
        && a.bytes(buf, from, a.transport + 4) == b.bytes(buf, from, b.transport + 4)
}

/// Whether the packet at `range` has the addresses of a growing flow.
fn same_addresses(buf: &[u8], a: &Layout, range: &std::ops::Range<usize>) -> bool {
    let b = Layout { start: range.start, len: range.len(), ..*a };
    let (from, to) = if a.v6 { (8, 40) } else { (12, 20) };
    range.len() >= to
        && b.bytes(buf, 0, 1)[0] >> 4 == if a.v6 { 6 } else { 4 }
        && a.bytes(buf, from, to) == b.bytes(buf, from, to)
}

/// Whether the headers differ only where pieces of one super-packet differ.
fn same_headers(buf: &[u8], a: &Layout, b: &Layout) -> bool {
    let same = |from, to| a.bytes(buf, from, to) == b.bytes(buf, from, to);
    // Traffic class (and flow label), then flags, hop limit.
    let ip = if a.v6 { same(0, 4) && same(7, 8) } else { same(0, 2) && same(6, 9) };
    let t = a.transport;
    // Acknowledgement; window and options. A change of any of them is news that must not wait or vanish.
    ip && (a.udp || (same(t + 8, t + 12) && same(t + 14, t + 16) && same(t + 20, a.headers)))
}

fn pseudo_header(buf: &[u8], p: &Layout, len: usize) -> Sum {
    let addresses = if p.v6 { p.bytes(buf, 8, 40) } else { p.bytes(buf, 12, 20) };
    let protocol = if p.udp { UDP } else { TCP };
    Sum::default().add(addresses).add_u16(protocol.into()).add_u16(len as u16)
}

fn checksum_valid(buf: &[u8], p: &Layout) -> bool {
    let transport = p.bytes(buf, p.transport, p.len);
    (p.v6 || Sum::default().add(p.bytes(buf, 0, 20)).fold() == 0xffff)
        && pseudo_header(buf, p, transport.len()).add(transport).fold() == 0xffff
}

/// Makes the first packet's headers those of the super-packet, and says so to the kernel.
fn finish_headers(headers: &mut [u8], growing: &Growing) -> Vnet {
    let p = Layout { start: 0, ..growing.first };
    let len = growing.total - p.transport;
    if p.v6 {
        headers[4..6].copy_from_slice(&((growing.total - 40) as u16).to_be_bytes());
    } else {
        headers[2..4].copy_from_slice(&(growing.total as u16).to_be_bytes());
        headers[10..12].fill(0);
        let sum = Sum::default().add(&headers[..20]).finish();
        headers[10..12].copy_from_slice(&sum);
    }
    let csum_offset = if p.udp { 6 } else { 16 };
    if p.udp {
        headers[p.transport + 4..p.transport + 6].copy_from_slice(&(len as u16).to_be_bytes());
    } else if growing.push {
        headers[p.transport + 13] |= PSH;
    }
    // The kernel completes it (or passes it on as it is): it wants the pseudo-header's sum there.
    let pseudo = pseudo_header(headers, &p, len).fold();
    headers[p.transport + csum_offset..p.transport + csum_offset + 2].copy_from_slice(&pseudo.to_be_bytes());
    Vnet {
        flags: Vnet::NEEDS_CSUM,
        gso_type: match (p.udp, p.v6) {
            (true, _) => Vnet::GSO_UDP,
            (false, false) => Vnet::GSO_TCP4,
            (false, true) => Vnet::GSO_TCP6,
        },
        hdr_len: p.headers as u16,
        gso_size: (growing.first.len - p.headers) as u16,
        csum_start: p.transport as u16,
        csum_offset: csum_offset as u16,
    }
}
