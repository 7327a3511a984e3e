//! The two directions of the data path, a batch at a time: TUN → seal → UDP, and UDP → open → TUN. Owns the buffers that packets
//! are encrypted and decrypted in; must never choose an SA, keep a queue, or wait (but it yields once to the programs that send, see [`TxBatch::forward`]).
//!
//! # How to drive it
//!
//! One thread, one epoll set. All descriptors are nonblocking and level-triggered; [`Tun`], [`Udp`] and [`Raw`] implement
//! `AsFd`. The SAs stay with the caller, behind two traits:
//!
//! ```ignore
//! let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
//! loop {
//!     epoll.wait(..)?;
//!     node.now(clock.now());                                        // once per wake-up, not per packet
//!     if tun_readable || (tx.is_blocked() && socket_writable) {
//!         tx.forward(&mut tun, &mut carriers, &mut node, 16)?;      // node: Sealer
//!     }
//!     for socket in readable_sockets {
//!         rx.receive(&carriers.udp[socket], &mut tun, &mut node)?;  // node: Opener
//!     }
//!     // Then IKE, timers, control. Ask for EPOLLOUT of the sockets only while tx.is_blocked(), and for EPOLLIN of the
//!     // TUN only while it is not. On EPOLLERR of a socket, drain `Udp::next_error`.
//! }
//! ```
//!
//! `examples/forward.rs` is this loop in full, without IKE.
//!
//! [`Sealer::plan`] is called once for each super-packet: all its pieces are one flow, so the policy is asked once. The pieces
//! (and those of following super-packets with the same plan) are written into one buffer, each with head room, at the distance
//! of their sealed length; [`Sealer::seal`] then encrypts all of them in place, and they leave in one send.
//!
//! [`Opener::open`] is called for each datagram and decrypts it where it was received; the packets of one flow are joined and
//! written to the TUN in one call.
//!
//! Back pressure: when a socket's buffer is full, what was sealed waits in the one buffer there is, and the TUN is not read;
//! the kernel's TUN queue, and through it TCP, does the rest.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::time::Duration;

use dormouse_sansio::packet::{Geometry, InnerPacket, Plan, Received, Sealed, Verdict};
use dormouse_sansio::{Carrier, Path};
use quinn_udp::RecvMeta;

use crate::clock::BootClock;
use crate::gro::Joiner;
use crate::gso::SuperPacket;
use crate::raw::Raw;
use crate::tun::{MAX_PACKET, Tun, VNET_LEN, Vnet};
use crate::udp::{MAX_BATCH, MAX_SEGMENTS, Sent, Udp, is_the_end};

/// Datagrams (or trains of them) taken in one receive call.
const RECEIVE: usize = 8;
/// Packets taken in one receive call of a raw socket, where there are no trains.
const RECEIVE_RAW: usize = 32;
/// Bytes of each receive buffer: the largest datagram, or the longest train.
const RECEIVE_LEN: usize = 65_536;
/// After more packets than so many in one turn the thread yields: a stream's sender, if it may run, soon adds to them.
const FEW: usize = 2;
/// A yield that takes longer than this has made packets wait for too long.
const LONG: Duration = Duration::from_micros(500);
/// Turns without a yield after the first long one; twice as many after each further one, up to the second number.
const TURNS: [u32; 2] = [256, 1 << 16];
/// Where a packet lies in the read buffer: behind the virtio-net header, aligned.
const READ_AT: usize = 16;

/// Every socket that packets leave through. Which of them exist is configuration; a path chooses by its carrier and its
/// family.
#[derive(Debug, Default)]
pub struct Carriers {
    /// UDP sockets: IKE, NAT traversal and HIP, IPv4 and IPv6.
    pub udp: Vec<Udp>,
    /// What takes messages of key management off some of them ([`Udp::bind_apart`]); nothing is sent there.
    pub messages: Vec<Udp>,
    /// Sockets of protocols 50 and 139, IPv4 and IPv6.
    pub raw: Vec<Raw>,
}

impl Carriers {
    /// The kernel takes ESP off the socket of this path, or no longer: see [`Udp::set_esp_by_kernel`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn esp_by_kernel(&self, path: &Path, on: bool) -> io::Result<()> {
        let hears = |udp: &&Udp| {
            let (at, ours) = (udp.local_addr(), path.local);
            let hears = at.ip() == ours.ip() || at.ip().is_unspecified() && at.is_ipv4() == ours.is_ipv4();
            udp.carrier() == path.carrier && at.port() == ours.port() && hears
        };
        // Before datagrams are told apart the kernel may ask either socket whether it joins them.
        self.messages.iter().filter(hears).for_each(|udp| udp.join(!on));
        let socket = self.udp.iter().find(hears);
        socket.map_or(Err(io::ErrorKind::NotFound.into()), |udp| udp.set_esp_by_kernel(on))
    }

    /// Of ESP with these SPIs, raw sockets get no copies of what has a higher number than the one beside it: see [`Raw::leave`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn leave_esp(&self, lent: &[(u32, u64)]) -> io::Result<()> {
        let mut esp = self.raw.iter().filter(|raw| raw.carrier() == Carrier::RawEsp);
        esp.try_for_each(|raw| raw.leave(lent))
    }

    /// Sends a message of a key manager, or several of `segment` bytes each but the last, on `path`: IP may fragment them. See
    /// [`Udp::send_fragmentable`].
    pub fn send_fragmentable(&mut self, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent {
        if let Some(udp) = self.udp_for(path) {
            return udp.send_fragmentable(path, contents, segment);
        }
        match self.raw_for(path).filter(|_| path.carrier == Carrier::RawHip) {
            Some(raw) => raw.send(path, contents, segment),
            None => no_socket(path),
        }
    }

    /// Sends a datagram, or several of `segment` bytes each but the last, on `path`. None is fragmented by IP. See [`Udp::send`].
    pub fn send(&mut self, path: &Path, ecn: u8, contents: &[u8], segment: Option<usize>) -> Sent {
        if let Some(raw) = self.raw_for(path) {
            return raw.send(path, contents, segment);
        }
        if let Some(udp) = self.udp_for(path) {
            return udp.send(path, ecn, contents, segment);
        }
        no_socket(path)
    }

    fn raw_for(&mut self, path: &Path) -> Option<&mut Raw> {
        let v4 = path.remote.is_ipv4();
        self.raw.iter_mut().find(|s| s.is_ipv4() == v4 && s.carrier() == path.carrier)
    }

    fn udp_for(&mut self, path: &Path) -> Option<&mut Udp> {
        let v4 = path.remote.is_ipv4();
        let carries = |s: &&mut Udp| s.local_addr().is_ipv4() == v4 && s.carrier() == path.carrier;
        self.udp.iter_mut().find(|s| carries(s) && s.sends_to(path.remote))
    }
}

fn no_socket(path: &Path) -> Sent {
    Sent::Failed(io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no socket for {path}")))
}

/// Decides on what leaves.
pub trait Sealer {
    /// What becomes of a packet from the TUN: it may be dropped, answered (ICMP), or sealed. May clamp the MSS in place.
    fn plan(&mut self, packet: &mut SuperPacket<'_>) -> Plan;

    /// Seals in place: packet `i` of `sizes[i]` bytes lies at `i * geometry.stride + geometry.head` of `slots`. Returns how many
    /// bytes to send, and where to; `None` drops the batch. Called some time after the [`Self::plan`] that returned `geometry`,
    /// and after other plans: find the SA by `geometry.route`.
    fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed>;

    /// A batch could not be sent: too big for the interface, or no way there. It is lost; take note, and count.
    fn unsent(&mut self, geometry: &Geometry, path: &Path, sent: Sent);
}

/// What one call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Packets, or super-packets, read from the TUN; or datagrams received.
    pub read: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Whether there may be more to read.
    pub more: bool,
}

/// The sending direction.
#[derive(Debug)]
pub struct TxBatch {
    read: Box<[u8]>,
    out: SendBuffer,
    unfinished: Option<Unfinished>,
    malformed: u64,
    yielding: Yielding,
}

/// Whether the thread yields before a batch leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Yielding {
    /// Turns from now on in which it does not.
    without: u32,
    /// As many after the next long one.
    next: u32,
}

impl Yielding {
    const fn new() -> Self {
        Self { without: 0, next: TURNS[0] }
    }

    /// A turn begins: whether it yields in it.
    const fn take_turn(&mut self) -> bool {
        let due = self.without == 0;
        self.without = self.without.saturating_sub(1);
        due
    }

    /// A yield took so long.
    fn done(&mut self, took: Duration) {
        if took > LONG {
            self.without = self.next;
            self.next = (self.next * 2).min(TURNS[1]);
        } else {
            self.next = TURNS[0];
        }
    }
}

/// A super-packet in the read buffer of which a full socket took only the first pieces.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    vnet: Vnet,
    len: usize,
    geometry: Geometry,
    next: usize,
}

impl Default for TxBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl TxBatch {
    /// Empty buffers, 128 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            read: vec![0; READ_AT + MAX_PACKET + 1].into_boxed_slice(),
            out: SendBuffer::new(),
            unfinished: None,
            malformed: 0,
            yielding: Yielding::new(),
        }
    }

    /// Whether a full socket holds the data path up: wait for it to become writable, and do not wait for the TUN.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.out.waiting.is_some()
    }

    /// Packets that the kernel handed over with headers that contradict each other.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Reads at most `budget` super-packets from the TUN and sends what they become. When it has read a few and there are no more, it
    /// yields to other programs once before it sends, unless that has taken long.
    ///
    /// # Errors
    /// Those of reading the TUN, except that there is nothing to read.
    pub fn forward(
        &mut self,
        tun: &mut Tun,
        out: &mut Carriers,
        sealer: &mut impl Sealer,
        budget: usize,
    ) -> io::Result<Progress> {
        let mut progress = Progress::default();
        self.out.resume(out, sealer);
        if let Some(rest) = self.unfinished.take() {
            self.cut(out, sealer, rest);
        }
        let mut gathered = false;
        // The TUN device has no call that reads several packets; the super-packet is its batch.
        while progress.read < budget && !self.is_blocked() {
            let header = tun.header_len();
            let n = match tun.read(&mut self.read[READ_AT - header..]) {
                Ok(n) => n.saturating_sub(header),
                Err(e) if would_block(&e) && progress.read > FEW && !gathered && self.yield_to_senders() => {
                    gathered = true;
                    continue;
                }
                Err(e) => {
                    self.out.flush(out, sealer);
                    return if would_block(&e) { Ok(progress) } else { Err(e) };
                }
            };
            progress.read += 1;
            progress.bytes += n;
            self.take(tun, out, sealer, n);
        }
        self.out.flush(out, sealer);
        progress.more = true;
        Ok(progress)
    }

    /// Yields to the programs that send, so that more packets share one send and one wake-up of their receiver. Whether it did.
    /// The kernel does this among the programs of one control group; where the sender is in another one, little is gained or lost.
    fn yield_to_senders(&mut self) -> bool {
        if !self.yielding.take_turn() {
            return false;
        }
        let before = BootClock::now();
        std::thread::yield_now();
        self.yielding.done(BootClock::now().saturating_since(before));
        true
    }

    /// Plans the packet of `len` bytes that was read, and places its pieces.
    fn take(&mut self, tun: &Tun, out: &mut Carriers, sealer: &mut impl Sealer, len: usize) {
        let (head, packet) = self.read.split_at_mut(READ_AT);
        let mut vnet = match head.last_chunk::<VNET_LEN>() {
            Some(bytes) if tun.header_len() > 0 => Vnet::from_bytes(*bytes),
            _ => Vnet::default(),
        };
        let Some(mut packet) = SuperPacket::new(vnet, &mut packet[..len]) else {
            self.malformed += 1;
            return;
        };
        match sealer.plan(&mut packet) {
            Plan::Drop => {}
            Plan::Answer(answer) => {
                // Lost if the TUN's queue is full, as on any network.
                let _lost = tun.write(&[IoSlice::new(&answer)]);
            }
            Plan::Seal(geometry) => {
                // Its checksum is complete now.
                vnet.flags &= !Vnet::NEEDS_CSUM;
                self.cut(out, sealer, Unfinished { vnet, len, geometry, next: 0 });
            }
        }
    }

    /// Places the pieces of the super-packet in the read buffer, from `rest.next` on.
    fn cut(&mut self, out: &mut Carriers, sealer: &mut impl Sealer, rest: Unfinished) {
        let Some(mut packet) = SuperPacket::new(rest.vnet, &mut self.read[READ_AT..READ_AT + rest.len])
        else {
            return;
        };
        packet.narrow(rest.geometry.max_inner);
        for next in rest.next..packet.packets() {
            if !self.out.make_room(out, sealer, &rest.geometry) {
                self.unfinished = Some(Unfinished { next, ..rest });
                return;
            }
            if !self.out.place(&packet, &rest.geometry, next) {
                self.malformed += 1;
                return;
            }
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Packets of one geometry, end to end, on their way to one send.
struct SendBuffer {
    slots: Box<[u8]>,
    sizes: [usize; MAX_SEGMENTS],
    count: usize,
    /// The geometry of the packets in `slots`, if there are any.
    geometry: Option<Geometry>,
    /// The last packet is shorter than the others: nothing may follow it.
    closed: bool,
    /// Sealed bytes of `slots` that a full socket did not take.
    waiting: Option<(Geometry, Sealed, usize)>,
}

impl SendBuffer {
    fn new() -> Self {
        Self {
            slots: vec![0; 2 * MAX_PACKET].into_boxed_slice(),
            sizes: [0; MAX_SEGMENTS],
            count: 0,
            geometry: None,
            closed: false,
            waiting: None,
        }
    }

    /// Sends what is there if a packet of `geometry` cannot join it. `false` if a full socket does not let it.
    fn make_room(&mut self, out: &mut Carriers, sealer: &mut impl Sealer, geometry: &Geometry) -> bool {
        let full = (self.count + 1) * geometry.stride > MAX_BATCH || self.count == MAX_SEGMENTS;
        if self.count > 0 && (full || self.closed || self.geometry != Some(*geometry)) {
            self.flush(out, sealer);
        }
        self.waiting.is_none()
    }

    /// Writes piece `index` of `packet` behind what is there. `false` if it does not fit its slot.
    fn place(&mut self, packet: &SuperPacket<'_>, geometry: &Geometry, index: usize) -> bool {
        let at = self.count * geometry.stride + geometry.head;
        let Some(room) = self.slots.get_mut(at..at - geometry.head + geometry.stride) else { return false };
        let Some(len) = packet.write(index, geometry.strip, room) else { return false };
        self.sizes[self.count] = len;
        self.count += 1;
        self.closed = len + geometry.strip != geometry.packet_len;
        self.geometry = Some(*geometry);
        true
    }

    /// Seals and sends what is there.
    fn flush(&mut self, out: &mut Carriers, sealer: &mut impl Sealer) {
        let Some(geometry) = self.geometry.take() else { return };
        let count = std::mem::take(&mut self.count);
        let used = (count * geometry.stride).min(self.slots.len());
        let sealed = sealer.seal(&geometry, &mut self.slots[..used], &self.sizes[..count]);
        if let Some(sealed) = sealed {
            self.send(out, sealer, geometry, sealed, 0);
        }
    }

    /// Tries again what a full socket did not take.
    fn resume(&mut self, out: &mut Carriers, sealer: &mut impl Sealer) {
        if let Some((geometry, sealed, done)) = self.waiting.take() {
            self.send(out, sealer, geometry, sealed, done);
        }
    }

    fn send(
        &mut self,
        out: &mut Carriers,
        sealer: &mut impl Sealer,
        geometry: Geometry,
        sealed: Sealed,
        done: usize,
    ) {
        let Some(rest) = self.slots.get(done..sealed.len) else { return };
        match out.send(&sealed.path, geometry.ecn, rest, Some(geometry.stride)) {
            Sent::All => {}
            Sent::Blocked { done: more } => self.waiting = Some((geometry, sealed, done + more)),
            sent => sealer.unsent(&geometry, &sealed.path, sent),
        }
    }
}

impl std::fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBuffer")
            .field("count", &self.count)
            .field("geometry", &self.geometry)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// Decides on what arrives.
pub trait Opener {
    /// What the first datagrams of a train showed, so that the others need not show it again. A train came in one piece from
    /// one sender: nothing happens between its datagrams but what they cause.
    type Train: Default;

    /// Opens a datagram in place, or takes it otherwise (IKE, keepalives): copy what must outlive the call.
    fn open(&mut self, from: &Received, train: &mut Self::Train, datagram: &mut [u8]) -> Verdict;
}

/// The receiving direction.
pub struct RxBatch {
    buf: Box<[u8]>,
    joiner: Joiner,
}

impl Default for RxBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl RxBatch {
    /// Empty buffers: 2 MiB of address space, of which an idle path touches one page.
    #[must_use]
    pub fn new() -> Self {
        Self { buf: vec![0; RECEIVE_RAW * RECEIVE_LEN].into_boxed_slice(), joiner: Joiner::default() }
    }

    /// Packets that the TUN did not take.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.joiner.lost
    }

    /// Receives once from `socket`, up to eight datagrams or trains of them, and writes what was inside to the TUN.
    /// [`Progress::more`] tells whether to call again before waiting.
    ///
    /// # Errors
    /// That the descriptor is of no use any more. An ICMP error that the socket reports is none: it stays in the error queue (see
    /// [`Udp::next_error`]).
    pub fn receive(&mut self, socket: &Udp, tun: &mut Tun, opener: &mut impl Opener) -> io::Result<Progress> {
        let mut metas = [RecvMeta::default(); RECEIVE];
        let n = {
            let mut chunks = self.buf.chunks_exact_mut(RECEIVE_LEN);
            let mut bufs: [IoSliceMut<'_>; RECEIVE] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            match socket.recv(&mut bufs, &mut metas) {
                Ok(n) => n,
                Err(e) if is_the_end(&e) => return Err(e),
                Err(_) => return Ok(Progress::default()),
            }
        };
        for (i, meta) in metas.iter().take(n).enumerate() {
            let from = Received { path: socket.path_of(meta), ecn: meta.ecn.map_or(0, |e| e as u8) };
            let start = i * RECEIVE_LEN;
            self.take(tun, opener, &from, start..start + meta.len, meta.stride);
        }
        self.joiner.flush(tun, &self.buf);
        let bytes = metas.iter().take(n).map(|m| m.len).sum();
        Ok(Progress { read: n, bytes, more: n == RECEIVE })
    }

    /// As [`Self::receive`], from a raw socket.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_raw(
        &mut self,
        socket: &Raw,
        tun: &mut Tun,
        opener: &mut impl Opener,
    ) -> io::Result<Progress> {
        let taken = match socket.recv(&mut self.buf, RECEIVE_LEN) {
            Ok(taken) => taken,
            Err(e) if is_the_end(&e) => return Err(e),
            Err(_) => return Ok(Progress::default()),
        };
        let mut bytes = 0;
        for (i, &(path, len)) in taken.iter().enumerate() {
            let at = i * RECEIVE_LEN;
            let contents = self.buf.get(at..at + len).and_then(|packet| socket.contents(packet));
            let (Some(path), Some((start, ecn))) = (path, contents) else { continue };
            self.take(tun, opener, &Received { path, ecn }, at + start..at + len, len - start);
            bytes += len - start;
        }
        self.joiner.flush(tun, &self.buf);
        Ok(Progress { read: taken.len(), bytes, more: taken.len() == RECEIVE_RAW })
    }

    /// Opens the datagrams that lie at `range`, `stride` bytes apart.
    fn take<O: Opener>(
        &mut self,
        tun: &mut Tun,
        opener: &mut O,
        from: &Received,
        range: Range<usize>,
        stride: usize,
    ) {
        let mut train = O::Train::default();
        for at in range.clone().step_by(stride.max(1)) {
            let end = (at + stride).min(range.end);
            let datagram = &mut self.buf[at..end];
            match opener.open(from, &mut train, datagram) {
                Verdict::Done => {}
                Verdict::Deliver(inner) => {
                    let inner = at + inner.start..(at + inner.end).min(end);
                    self.joiner.push(tun, &self.buf, &[], inner);
                }
                Verdict::DeliverBehind(header, len, payload) => {
                    let payload = at + payload.start..(at + payload.end).min(end);
                    self.joiner.push(tun, &self.buf, header.get(..len).unwrap_or_default(), payload);
                }
            }
        }
    }
}

impl std::fmt::Debug for RxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RxBatch").field("lost", &self.joiner.lost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_yields_become_rare() {
        let mut yielding = Yielding::new();
        let mut turns_until_due = || {
            let turns = (0..u32::MAX).find(|_| yielding.take_turn()).unwrap_or_default();
            yielding.done(LONG * 2);
            turns
        };
        assert_eq!([0; 4].map(|_| turns_until_due()), [0, 256, 512, 1_024]);
        let last = (0..12).map(|_| turns_until_due()).last();
        assert_eq!(last, Some(TURNS[1]), "and no less than that");
        yielding = Yielding::new();
        yielding.done(LONG * 2);
        yielding.done(LONG);
        assert!(!yielding.take_turn());
        assert_eq!(yielding.next, TURNS[0], "a short one counts as the first again");
    }
}
