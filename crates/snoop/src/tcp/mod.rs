//! SNOOP for TCP: losses of the radio are found by the device's acknowledgements and repaired from here, and the fixed host hears nothing
//! of them.
//!
//! Owns the connections, found by both addresses and ports, of IPv4 and IPv6. Must never touch what is not whole TCP (fragments pass), and
//! never hold more than [`Limits`] say. A sender of forged packets can make it forget, or repeat, only what was meant for the device:
//! nothing is verified, because nothing here can harm a connection that its ends would not take from the wire.
//!
//! | what passes | what follows |
//! |---|---|
//! | new data | a copy is kept until the device acknowledges it |
//! | data again, or out of order | goes on; the fixed host knows of this loss, so duplicate acknowledgements about it go on too |
//! | new acknowledgement | copies are dropped, the round trip is measured, it goes on |
//! | duplicate acknowledgement about a packet that is kept | the packet is repeated before all others; the duplicate is dropped |
//! | one about a packet that is not kept | goes on: the loss was not the radio's |
//! | selective acknowledgements | every gap of the radio's is repeated at once; they are hidden while that goes on, for a short time |
//! | nothing | the local timer repeats the first packet; the persist timer all of them; the garbage timer forgets them |
//!
//! Timestamps (RFC 7323) need nothing: a repeated packet has the one of its first sending, which the device takes, because its own
//! record moves with packets in order only. The fixed host then measures the repair as part of its round trip, and waits longer.
//!
//! Data from the device to the fixed host is not repaired: nothing on this side can know that it was sent.

mod flow;
mod limits;

use core::net::SocketAddr;
use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::{RST, SYN, Tcp};

use crate::Verdict;
use flow::Flow;
pub use limits::Limits;

/// A connection: the fixed host's end and the device's.
type Id = (SocketAddr, SocketAddr);

/// What an agent has done so far, in packets unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Copies made.
    pub kept: u64,
    /// Sent again from here.
    pub repeated: u64,
    /// Acknowledgements that did not go on.
    pub suppressed: u64,
    /// Connections that gave way to others.
    pub evicted: u64,
}

/// An agent for all connections to the devices of one radio.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    limits: Limits,
    flows: BTreeMap<Id, Flow>,
    /// The deadline of every connection.
    agenda: BTreeSet<(Instant, Id)>,
    /// Connections with something to repeat.
    due: BTreeSet<Id>,
    /// The connection that was served last: the others come first.
    served: Option<Id>,
    bytes: usize,
    stats: Stats,
}

impl Agent {
    /// An agent that knows no connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Connections, copies and their bytes that are held now.
    #[must_use]
    pub fn held(&self) -> (usize, usize, usize) {
        (self.flows.len(), self.flows.values().map(|f| f.held().0).sum(), self.bytes)
    }

    /// The radio takes a packet for the device now.
    pub fn to_device(&mut self, now: Instant, packet: &[u8]) {
        let Some((id, view, tcp)) = segment(packet, |from, to| (from, to)) else { return };
        if tcp.flags & (RST | SYN) != 0 {
            self.forget(id);
        }
        if tcp.flags & RST != 0 || tcp.sequence_len() == 0 {
            return;
        }
        let bytes = view.as_bytes();
        let room = self.make_room(id, bytes.len());
        let new = Flow::new(now, tcp.sequence, &self.limits);
        let mut flow = self.take(id).unwrap_or(new);
        let before = flow.held().0;
        flow.pass(now, &tcp, bytes, room, &self.limits);
        self.stats.kept += u64::from(flow.held().0 > before);
        self.put(id, flow);
    }

    /// A packet of the device has arrived.
    pub fn from_device(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        let Some((id, _, tcp)) = segment(packet, |from, to| (to, from)) else { return Verdict::Forward };
        if tcp.flags & (RST | SYN) != 0 {
            self.forget(id);
        }
        let Some(mut flow) = self.take(id) else { return Verdict::Forward };
        let verdict = flow.answer(now, &tcp, &self.limits);
        self.stats.suppressed += u64::from(verdict == Verdict::Suppress);
        self.put(id, flow);
        verdict
    }

    /// Appends a packet to be sent to the device before any other; false if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.due.range((after, Bound::Unbounded)).next().or_else(|| self.due.first());
        let Some(id) = next.copied() else { return false };
        self.served = Some(id);
        let Some(mut flow) = self.take(id) else { return false };
        let any = flow.repeat(now, out, &self.limits);
        self.stats.repeated += u64::from(any);
        self.put(id, flow);
        any
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.agenda
            .first()
            .map(|(at, _)| Deadline::strict(*at, "a packet over the radio was not acknowledged"))
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) {
            let Some(mut flow) = self.take(id) else { return };
            if !flow.expire(now, &self.limits) {
                self.put(id, flow);
            }
        }
    }

    /// Whether `len` more bytes may be kept for `id`; others give way.
    fn make_room(&mut self, id: Id, len: usize) -> bool {
        loop {
            let crowded = self.flows.len() >= self.limits.flows && !self.flows.contains_key(&id);
            let full = self.bytes.saturating_add(len) > self.limits.bytes;
            if !crowded && !full {
                return true;
            }
            let others =
                self.flows.iter().filter(|(other, flow)| **other != id && (crowded || flow.held().0 > 0));
            let Some(oldest) = others.min_by_key(|(_, flow)| flow.heard).map(|(other, _)| *other) else {
                return false;
            };
            self.stats.evicted += 1;
            self.forget(oldest);
        }
    }

    fn forget(&mut self, id: Id) {
        drop(self.take(id));
    }

    /// Takes a connection out of every index.
    fn take(&mut self, id: Id) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        self.agenda.remove(&(flow.deadline(&self.limits), id));
        self.due.remove(&id);
        self.bytes -= flow.held().1;
        Some(flow)
    }

    fn put(&mut self, id: Id, flow: Flow) {
        self.agenda.insert((flow.deadline(&self.limits), id));
        if flow.is_due() {
            self.due.insert(id);
        }
        self.bytes += flow.held().1;
        self.flows.insert(id, flow);
    }
}

/// The segment in a whole packet, and its connection by its source and destination.
fn segment(
    packet: &[u8],
    id: impl FnOnce(SocketAddr, SocketAddr) -> Id,
) -> Option<(Id, Packet<'_>, Tcp<'_>)> {
    let view = Packet::parse(packet).ok().filter(|view| view.fragment().is_none())?;
    let tcp = Tcp::parse(&view).ok()?;
    let (from, to) = (SocketAddr::new(view.src(), tcp.src_port), SocketAddr::new(view.dst(), tcp.dst_port));
    Some((id(from, to), view, tcp))
}
