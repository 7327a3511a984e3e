//! Joining received packets of one TCP or UDP flow into super-packets for the TUN device, where they lie. Owns the rules of what
//! may be joined; must never copy a payload, allocate, or change the order of a flow.
//!
//! The rules are those of the kernel's own receive offload: equal headers, consecutive sequence numbers, nothing but ACK (PSH
//! ends a super-packet), valid checksums, every payload but the last of one size. Checksums are verified because joining
//! replaces them: a packet that was damaged before the tunnel must not come out of it looking sound.
//!
//! Super-packets are written when their batch is over, not as soon as they are complete: the reader of the TUN device is woken
//! once for all of them.
//!
//! A joined packet is one `writev`: virtio-net header, the first packet's headers (a corrected copy), then each payload from
//! where it was decrypted. The IP header may lie elsewhere: in transport and BEET mode it is made anew for each packet. tun-rs's `GROTable` would append every payload to the first packet's own buffer instead: one copy
//! more of everything, and a buffer per packet.

use std::io::{self, IoSlice};

use dormouse_wire::ip::checksum::Sum;

use crate::checksum;
use crate::tun::{MAX_PACKET, Offloads, Tun, Vnet};

/// Super-packets that can wait or grow at a time.
const WAITING: usize = 16;
/// Packets in one super-packet.
const PIECES: usize = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
/// An IPv6 header and the longest of TCP.
const MAX_HEADERS: usize = 100;
/// An IPv6 header.
const MAX_IP: usize = 40;

/// Where packets go: the TUN device, or a test's memory.
pub(crate) trait Sink {
    fn offloads(&self) -> Offloads;
    /// Writes the parts of one packet behind an empty virtio-net header (if the device has headers).
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()>;
    /// Writes parts that begin with a virtio-net header.
    fn write_joined(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()>;
    /// A joined packet was refused as malformed.
    fn give_up_joining(&mut self, udp: bool);
}

impl Sink for Tun {
    fn offloads(&self) -> Offloads {
        Self::offloads(self)
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        Self::write(self, parts)
    }

    fn write_joined(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.write_raw(parts)
    }

    fn give_up_joining(&mut self, udp: bool) {
        Self::give_up_joining(self, udp);
    }
}

/// A packet that may be joined: its IP header, and where the rest of it lies in the receive buffer.
#[derive(Clone, Copy)]
struct Layout {
    ip: [u8; MAX_IP],
    /// Whether the rest lies behind the same header in the buffer too.
    attached: bool,
    /// Where the transport header begins, and its length.
    at: usize,
    header: usize,
    /// Bytes of transport header and payload.
    len: usize,
    v6: bool,
    udp: bool,
    sequence: u32,
    push: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            ip: [0; MAX_IP],
            attached: false,
            at: 0,
            header: 0,
            len: 0,
            v6: false,
            udp: false,
            sequence: 0,
            push: false,
        }
    }
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
    growing: Box<[Growing; WAITING]>,
    used: usize,
    /// What could not be written.
    pub(crate) lost: u64,
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
        Self { growing: Box::new([empty; WAITING]), used: 0, lost: 0 }
    }
}

impl Joiner {
    /// Takes the packet at `range` of `buf`, behind an IP header that lies elsewhere if `header` is not empty: joins it, or writes it to
    /// `tun` as it is. `buf` must not change before [`Self::flush`].
    pub(crate) fn push(
        &mut self,
        tun: &mut impl Sink,
        buf: &[u8],
        header: &[u8],
        range: std::ops::Range<usize>,
    ) {
        let offloads = tun.offloads();
        let candidate = (offloads.join_tcp || offloads.join_udp)
            .then(|| Layout::of(buf, header, range.clone()))
            .flatten()
            .filter(|p| if p.udp { offloads.join_udp } else { offloads.join_tcp });
        let Some(packet) = candidate else {
            // It may belong to a flow that is growing (a FIN, a fragment): keep the flow's order.
            let packet = &buf[range];
            self.flush_flow_of(tun, buf, if header.is_empty() { packet } else { header });
            self.write_parts(tun, &[IoSlice::new(header), IoSlice::new(packet)]);
            return;
        };
        let checksum_good = checksum_valid(buf, &packet);
        // The newest of a flow is the one that may go on.
        let grown = (0..self.used).rev().find(|i| same_flow(buf, &self.growing[*i].first, &packet));
        if let Some(i) = grown
            && checksum_good
            && self.growing[i].accepts(buf, &packet)
        {
            self.growing[i].append(&packet);
            return;
        }
        // Those before it wait for the end of the batch all the same: each write wakes the receiver, which takes the
        // processor away from the packets that are still to be opened.
        if self.used == WAITING {
            self.write(tun, buf, 0);
            self.growing.rotate_left(1);
            self.used -= 1;
        }
        self.start(self.used, &packet, checksum_good);
        self.used += 1;
    }

    /// Writes all that was joined.
    pub(crate) fn flush(&mut self, tun: &mut impl Sink, buf: &[u8]) {
        for i in 0..self.used {
            self.write(tun, buf, i);
        }
        self.used = 0;
    }

    fn start(&mut self, i: usize, packet: &Layout, checksum_good: bool) {
        let growing = &mut self.growing[i];
        growing.first = *packet;
        growing.count = 0;
        growing.total = packet.headers();
        // A damaged packet passes alone and as it is: its receiver will find out.
        growing.closed = !checksum_good;
        growing.push = false;
        growing.append(packet);
        growing.closed |= !checksum_good;
    }

    /// Writes what was joined to the flow that an unjoinable packet, which begins with `header`, belongs to.
    fn flush_flow_of(&mut self, tun: &mut impl Sink, buf: &[u8], header: &[u8]) {
        for i in 0..self.used {
            if self.growing[i].count > 0 && same_addresses(&self.growing[i].first, header) {
                self.write(tun, buf, i);
            }
        }
    }

    /// Writes flow `i` and leaves it empty, but in its place.
    fn write(&mut self, tun: &mut impl Sink, buf: &[u8], i: usize) {
        let growing = self.growing[i];
        match growing.count {
            0 => return,
            1 => self.write_one(tun, buf, &growing.first),
            _ => self.write_joined(tun, buf, &growing),
        }
        self.growing[i].count = 0;
        self.growing[i].closed = true;
    }

    fn write_parts(&mut self, tun: &mut impl Sink, parts: &[IoSlice<'_>]) {
        if tun.write(parts).is_err() {
            self.lost += 1;
        }
    }

    fn write_one(&mut self, tun: &mut impl Sink, buf: &[u8], packet: &Layout) {
        let rest = packet.bytes(buf, 0, packet.len);
        if packet.attached {
            let whole = buf.get(packet.at - packet.ip_len()..packet.at + packet.len).unwrap_or_default();
            self.write_parts(tun, &[IoSlice::new(whole)]);
        } else {
            self.write_parts(tun, &[IoSlice::new(packet.ip()), IoSlice::new(rest)]);
        }
    }

    fn write_joined(&mut self, tun: &mut impl Sink, buf: &[u8], growing: &Growing) {
        let p = growing.first;
        let mut headers = [0; MAX_HEADERS];
        let headers = &mut headers[..p.headers()];
        headers[..p.ip_len()].copy_from_slice(p.ip());
        headers[p.ip_len()..].copy_from_slice(p.bytes(buf, 0, p.header));
        let vnet = finish_headers(headers, growing).to_bytes();

        let mut parts = [IoSlice::new(&[]); PIECES + 2];
        parts[0] = IoSlice::new(&vnet);
        parts[1] = IoSlice::new(headers);
        for (part, (at, len)) in parts[2..].iter_mut().zip(&growing.pieces[..growing.count]) {
            *part = IoSlice::new(&buf[*at as usize..*at as usize + usize::from(*len)]);
        }
        match tun.write_joined(&parts[..growing.count + 2]) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                tun.give_up_joining(p.udp);
                for (at, len) in &growing.pieces[..growing.count] {
                    let len = p.header + usize::from(*len);
                    let mut piece = Layout { at: *at as usize - p.header, len, ..p };
                    set_length(&mut piece.ip, p.v6, len);
                    self.write_one(tun, buf, &piece);
                }
            }
            Err(_) => self.lost += growing.count as u64,
        }
    }
}

impl Growing {
    fn accepts(&self, buf: &[u8], packet: &Layout) -> bool {
        let payload = packet.payload();
        let first = &self.first;
        let size = first.payload();
        !self.closed
            && self.count > 0
            && self.count < PIECES
            && (packet.header, packet.attached) == (first.header, first.attached)
            && payload <= size
            && self.total + payload <= MAX_PACKET
            && (packet.udp || packet.sequence == self.next)
            && same_headers(buf, first, packet)
    }

    fn append(&mut self, packet: &Layout) {
        let payload = packet.payload();
        self.pieces[self.count] = ((packet.at + packet.header) as u32, payload as u16);
        self.count += 1;
        self.total += payload;
        self.next = packet.sequence.wrapping_add(payload as u32);
        self.push |= packet.push;
        self.closed = packet.push || payload < self.first.payload();
    }
}

impl Layout {
    /// The parts of a packet that may be joined; `None` for all others.
    fn of(buf: &[u8], header: &[u8], range: std::ops::Range<usize>) -> Option<Self> {
        let whole = buf.get(range.clone())?;
        let attached = header.is_empty();
        let total = header.len() + whole.len();
        let first = if attached { whole } else { header };
        let (v6, ip_len, protocol) = match first {
            // No options, no fragments, the length as it says.
            [0x45, _, l0, l1, _, _, flags, 0, _, protocol, ..]
                if flags & 0x3f == 0 && usize::from(u16::from_be_bytes([*l0, *l1])) == total =>
            {
                (false, 20, *protocol)
            }
            [first, _, _, _, l0, l1, protocol, ..]
                if first >> 4 == 6 && usize::from(u16::from_be_bytes([*l0, *l1])) + 40 == total =>
            {
                (true, 40, *protocol)
            }
            _ => return None,
        };
        let mut ip = [0; MAX_IP];
        ip.get_mut(..ip_len)?.copy_from_slice(first.get(..ip_len)?);
        let skip = if attached { ip_len } else { 0 };
        let rest = whole.get(skip..).filter(|_| attached || header.len() == ip_len)?;
        let (at, len) = (range.start + skip, rest.len());
        let mut layout = Self { ip, attached, at, len, v6, ..Self::default() };
        match protocol {
            TCP => {
                let flags = *rest.get(13)?;
                layout.header = usize::from(rest.get(12)? >> 4) * 4;
                layout.sequence = u32::from_be_bytes(*rest.get(4..)?.first_chunk()?);
                layout.push = flags & PSH != 0;
                (flags & !PSH == ACK && layout.header >= 20 && layout.header < len).then_some(layout)
            }
            UDP => {
                layout.udp = true;
                layout.header = 8;
                let length = usize::from(u16::from_be_bytes(*rest.get(4..)?.first_chunk()?));
                // Without a checksum (IPv4 only) there is nothing to replace it by.
                let summed = rest.get(6..8)? != [0; 2];
                (summed && length == len && layout.header < len).then_some(layout)
            }
            _ => None,
        }
    }

    const fn ip_len(&self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    fn ip(&self) -> &[u8] {
        &self.ip[..self.ip_len()]
    }

    /// Bytes of both headers.
    const fn headers(&self) -> usize {
        self.ip_len() + self.header
    }

    const fn payload(&self) -> usize {
        self.len - self.header
    }

    /// What lies between these offsets from the transport header on.
    fn bytes<'a>(&self, buf: &'a [u8], from: usize, to: usize) -> &'a [u8] {
        buf.get(self.at + from..self.at + to).unwrap_or_default()
    }
}

/// The addresses in an IP header.
fn addresses(ip: &[u8], v6: bool) -> Option<&[u8]> {
    if v6 { ip.get(8..40) } else { ip.get(12..20) }
}

/// Whether both are of one flow: protocol, addresses, ports.
fn same_flow(buf: &[u8], a: &Layout, b: &Layout) -> bool {
    (a.v6, a.udp) == (b.v6, b.udp)
        && addresses(&a.ip, a.v6) == addresses(&b.ip, b.v6)
        && a.bytes(buf, 0, 4) == b.bytes(buf, 0, 4)
}

/// Whether a packet that begins with `header` has the addresses of a growing flow.
fn same_addresses(a: &Layout, header: &[u8]) -> bool {
    let family = header.first().is_some_and(|first| first >> 4 == if a.v6 { 6 } else { 4 });
    family && addresses(&a.ip, a.v6) == addresses(header, a.v6)
}

/// Whether the headers differ only where pieces of one super-packet differ.
fn same_headers(buf: &[u8], a: &Layout, b: &Layout) -> bool {
    let same_ip = |from: usize, to: usize| a.ip[from..to] == b.ip[from..to];
    let same = |from, to| a.bytes(buf, from, to) == b.bytes(buf, from, to);
    // Traffic class (and flow label), then flags, hop limit.
    let ip = if a.v6 { same_ip(0, 4) && same_ip(7, 8) } else { same_ip(0, 2) && same_ip(6, 9) };
    // Acknowledgement; window and options. A change of any of them is news that must not wait or vanish.
    ip && (a.udp || (same(8, 12) && same(14, 16) && same(20, a.header)))
}

fn pseudo_header(p: &Layout, len: usize) -> Sum {
    let protocol = if p.udp { UDP } else { TCP };
    let addresses = addresses(&p.ip, p.v6).unwrap_or_default();
    Sum::default().add_bytes(addresses).add_u16(protocol.into()).add_u16(len as u16)
}

/// "Tunnel mode TCP checksums MUST be verified." (RFC 3948 section 3.1.2)
fn checksum_valid(buf: &[u8], p: &Layout) -> bool {
    let transport = p.bytes(buf, 0, p.len);
    (p.v6 || Sum::default().add_bytes(p.ip()).fold() == 0xffff)
        && checksum::add(pseudo_header(p, transport.len()), transport).fold() == 0xffff
}

/// Makes an IP header that of a packet with so many bytes behind it.
fn set_length(ip: &mut [u8], v6: bool, len: usize) {
    if v6 {
        ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    } else {
        ip[2..4].copy_from_slice(&((len + 20) as u16).to_be_bytes());
        ip[10..12].fill(0);
        let checksum = Sum::default().add_bytes(&ip[..20]).finish();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Makes the first packet's headers those of the super-packet, and says so to the kernel.
fn finish_headers(headers: &mut [u8], growing: &Growing) -> Vnet {
    let p = growing.first;
    let transport = p.ip_len();
    let len = growing.total - transport;
    set_length(headers, p.v6, len);
    let csum_offset = if p.udp { 6 } else { 16 };
    if p.udp {
        headers[transport + 4..transport + 6].copy_from_slice(&(len as u16).to_be_bytes());
    } else if growing.push {
        headers[transport + 13] |= PSH;
    }
    // The kernel completes it (or passes it on as it is): it wants the pseudo-header's sum there.
    let pseudo = pseudo_header(&p, len).fold();
    headers[transport + csum_offset..transport + csum_offset + 2].copy_from_slice(&pseudo.to_be_bytes());
    Vnet {
        flags: Vnet::NEEDS_CSUM,
        gso_type: match (p.udp, p.v6) {
            (true, _) => Vnet::GSO_UDP,
            (false, false) => Vnet::GSO_TCP4,
            (false, true) => Vnet::GSO_TCP6,
        },
        hdr_len: p.headers() as u16,
        gso_size: p.payload() as u16,
        csum_start: transport as u16,
        csum_offset: csum_offset as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gso::SuperPacket;
    use crate::tun::VNET_LEN;
    use dormouse_sansio::packet::InnerPacket;

    /// A TUN device that remembers what was written to it.
    struct Memory {
        offloads: Offloads,
        refuse: bool,
        written: Vec<(Vnet, Vec<u8>)>,
    }

    impl Memory {
        fn new() -> Self {
            let offloads = Offloads { vnet: true, uso: true, join_tcp: true, join_udp: true };
            Self { offloads, refuse: false, written: vec![] }
        }
    }

    impl Sink for Memory {
        fn offloads(&self) -> Offloads {
            self.offloads
        }

        fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            let packet = parts.iter().flat_map(|p| p.iter().copied()).collect();
            self.written.push((Vnet::default(), packet));
            Ok(())
        }

        fn write_joined(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            if self.refuse {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let bytes: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
            let (vnet, packet) = bytes.split_first_chunk::<VNET_LEN>().unwrap();
            self.written.push((Vnet::from_bytes(*vnet), packet.to_vec()));
            Ok(())
        }

        fn give_up_joining(&mut self, udp: bool) {
            if udp { self.offloads.join_udp = false } else { self.offloads.join_tcp = false }
        }
    }

    fn segments(v6: bool, udp: bool, payload: usize, size: usize) -> Vec<Vec<u8>> {
        let (mut bytes, vnet) = crate::gso::tests::super_packet(v6, udp, payload, size);
        let packet = SuperPacket::new(vnet, &mut bytes).unwrap();
        (0..packet.packets())
            .map(|i| {
                let mut out = vec![0; packet.len_of(i, 0)];
                packet.write(i, 0, &mut out).unwrap();
                out
            })
            .collect()
    }

    /// Joins packets in one buffer, and then again with their IP headers elsewhere, which must give the same; but for IPv4's
    /// identification where joining is refused: headers that are made anew have none.
    fn join(tun: &mut Memory, packets: &[Vec<u8>]) {
        if tun.refuse && packets[0][0] >> 4 == 4 {
            return join_from(tun, packets, false);
        }
        let mut apart = Memory { offloads: tun.offloads, refuse: tun.refuse, written: tun.written.clone() };
        join_from(tun, packets, false);
        join_from(&mut apart, packets, true);
        assert_eq!((&apart.written, apart.offloads), (&tun.written, tun.offloads));
    }

    fn join_from(tun: &mut Memory, packets: &[Vec<u8>], apart: bool) {
        // With gaps between packets, as headers and trailers of ESP leave them.
        let mut buf = vec![];
        let pushed: Vec<_> = packets
            .iter()
            .map(|p| {
                buf.extend_from_slice(&[0xee; 24]);
                let (start, ip) = (buf.len(), if p[0] >> 4 == 6 { 40 } else { 20 });
                let (header, rest) = p.split_at(if apart { ip } else { 0 });
                buf.extend_from_slice(rest);
                (header, start..buf.len())
            })
            .collect();
        let mut joiner = Joiner::default();
        for (header, range) in pushed {
            joiner.push(tun, &buf, header, range);
        }
        joiner.flush(tun, &buf);
        assert_eq!(joiner.lost, 0);
    }

    /// Cuts everything that was written to single packets again: what an observer behind the kernel sees.
    fn observed(tun: &Memory) -> Vec<Vec<u8>> {
        tun.written
            .iter()
            .flat_map(|(vnet, bytes)| {
                let mut bytes = bytes.clone();
                let packet = SuperPacket::new(*vnet, &mut bytes).unwrap();
                (0..packet.packets())
                    .map(|i| {
                        let mut out = vec![0; packet.len_of(i, 0)];
                        packet.write(i, 0, &mut out).unwrap();
                        out
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn what_was_cut_is_joined_to_the_same_packets() {
        for v6 in [false, true] {
            for udp in [false, true] {
                for (payload, size) in [(20_000, 1_300), (2_600, 1_300), (1_301, 1_300), (3_000, 1_001)] {
                    let packets = segments(v6, udp, payload, size);
                    let mut tun = Memory::new();
                    join(&mut tun, &packets);
                    assert_eq!(tun.written.len(), 1, "v6 {v6} udp {udp} {payload}/{size}");
                    assert_eq!(tun.written[0].0.gso_size as usize, size);
                    assert_eq!(observed(&tun), packets);
                }
            }
        }
    }

    #[test]
    fn flows_are_joined_apart_and_keep_their_order() {
        let a = segments(false, false, 6_000, 1_000);
        let b: Vec<_> = segments(true, false, 6_000, 1_000);
        let c: Vec<_> = segments(false, true, 6_000, 1_000);
        let mixed: Vec<_> =
            a.iter().zip(&b).zip(&c).flat_map(|((a, b), c)| [a.clone(), b.clone(), c.clone()]).collect();
        let mut tun = Memory::new();
        join(&mut tun, &mixed);
        assert_eq!(tun.written.len(), 3);
        assert_eq!(observed(&tun), [a, b, c].concat());
    }

    #[test]
    fn a_flow_keeps_its_order_when_more_super_packets_wait_than_can() {
        let a = segments(false, false, 60_000, 1_000);
        let b = segments(true, false, 60_000, 1_000);
        // Gaps: super-packets of two packets each, of both flows in turn.
        let gaps = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
            packets.chunks(3).flat_map(|three| three[..2].to_vec()).collect()
        };
        let (a, b) = (gaps(&a), gaps(&b));
        let mixed: Vec<_> = a.iter().zip(&b).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
        let mut tun = Memory::new();
        join(&mut tun, &mixed);
        assert_eq!(tun.written.len(), 40);
        let (v6, v4): (Vec<_>, Vec<_>) = observed(&tun).into_iter().partition(|p| p[0] >> 4 == 6);
        assert_eq!((v4, v6), (a, b));
    }

    #[test]
    fn a_gap_a_change_and_a_reset_end_a_super_packet() {
        let packets = segments(false, false, 6_000, 1_000);
        let check = |packets: &[Vec<u8>], writes: usize| {
            let mut tun = Memory::new();
            join(&mut tun, packets);
            assert_eq!(tun.written.len(), writes);
            assert_eq!(observed(&tun), packets);
        };
        let mut gap = packets.clone();
        gap.remove(3);
        check(&gap, 2);
        let mut swapped = packets.clone();
        swapped.swap(1, 2);
        check(&swapped, 4);
        for (at, value) in [(1, 0x02), (8, 63), (20 + 8, 9), (20 + 14, 9)] {
            let mut changed = packets.clone();
            changed[3][at] = value;
            repair(&mut changed[3]);
            check(&changed, 3);
        }
        let mut reset = packets.clone();
        reset[3][20 + 13] = 0x14;
        repair(&mut reset[3]);
        check(&reset, 3);
    }

    #[test]
    fn a_damaged_packet_is_passed_as_it_is() {
        for at in [3, 12, 20 + 5, 20 + 16, 800] {
            let mut packets = segments(false, false, 6_000, 1_000);
            packets[2][at] ^= 0x40;
            let mut tun = Memory::new();
            join(&mut tun, &packets);
            assert!(observed(&tun).contains(&packets[2]), "byte {at}");
        }
    }

    #[test]
    fn a_kernel_that_refuses_gets_every_packet_singly() {
        for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
            let packets = segments(v6, udp, 5_900, 1_000);
            let mut tun = Memory::new();
            tun.refuse = true;
            join(&mut tun, &packets);
            assert_eq!(observed(&tun), packets);
            assert_eq!((tun.offloads.join_tcp, tun.offloads.join_udp), (udp, !udp));
            join(&mut tun, &packets);
            assert_eq!(tun.written.len(), 12);
        }
    }

    /// Makes the checksums of an IPv4 TCP packet right again.
    fn repair(packet: &mut [u8]) {
        packet[10..12].fill(0);
        let checksum = Sum::default().add_bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet[36..38].fill(0);
        let len = packet.len() as u16 - 20;
        let pseudo = Sum::default().add_bytes(&packet[12..20]).add_u16(6).add_u16(len);
        let checksum = pseudo.add_bytes(&packet[20..]).finish();
        packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    }
}
