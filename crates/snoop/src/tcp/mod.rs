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
//! | one about a packet that is not kept, or that the device would refuse for its timestamp | goes on: the loss was not the radio's |
//! | selective acknowledgements | every gap of the radio's is repeated at once; they are hidden while that goes on, for a short time |
//! | nothing | the local timer repeats the first packet; the persist timer all of them; the garbage timer forgets them |
//!
//! Timestamps (RFC 7323): a repeated packet has the one of its first sending. The device takes it, because its own record moves with packets in
//! order only, unless the fixed host has itself repeated one ahead of it meanwhile. Each acknowledgement echoes that record: copies with an older
//! timestamp are dropped, for the device would refuse them, and their duplicate acknowledgements go on. Otherwise timestamps do not count: an acknowledgement is a
//! duplicate by its number, window and length alone. The fixed host measures a repair as part of its round trip, and waits longer.
//!
//! Data from the device to the fixed host is not repaired: nothing on this side can know that it was sent.
//!
//! # ESP in zones
//! Where [`Agent::reader`] has the keys of a packet's first zone, the headers are those in that zone, and what is kept and repeated is the packet
//! as it came, byte for byte: the device's replay window must be larger than [`Limits::packets`], and drops what comes twice. A packet in ESP that no
//! key opens passes untouched. Packets in a tunnel of IP in IP, as between agents of Mobile IP, are looked at inside of that. If the zone ends before TCP's options, selective acknowledgements and
//! timestamps are not seen; what the device then refuses is repeated [`Limits::tries`] times.

mod flow;
mod limits;

use core::net::{IpAddr, SocketAddr};
use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_esp::HeaderZones;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::{FIN, RST, SYN, Tcp};

use crate::outer::Layer;
use crate::reader::{FirstZone, Reader};
use crate::{Ends, Followed, Verdict, Way, followed, outer};
use flow::Flow;
pub use limits::Limits;

/// A connection: the fixed host's end and the device's; if its packets are in ESP, the addresses of both ends of that (the addresses inside are
/// any network's own, and a rekeying changes the SPIs).
type Id = (Option<(IpAddr, IpAddr)>, SocketAddr, SocketAddr);

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
#[derive(Debug, Default)]
pub struct Agent {
    limits: Limits,
    reader: Reader,
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

    /// The same in a bridge: what passes are frames of Ethernet. Of those with IP and without a VLAN tag it does the same; a frame is kept and repeated with
    /// its own header, and without what follows the packet in it. All others pass untouched.
    #[must_use]
    pub fn in_bridge(limits: Limits) -> Self {
        Self { limits, reader: Reader::of(Layer::Ethernet), ..Self::default() }
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The first zones that it can read, to look at.
    #[must_use]
    pub const fn readable(&self) -> &HeaderZones {
        self.reader.readable()
    }

    /// What it can read in ESP.
    pub const fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Whether [`Self::poll_transmit`] has something now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Connections, copies and their bytes that are held now.
    #[must_use]
    pub fn held(&self) -> (usize, usize, usize) {
        (self.flows.len(), self.flows.values().map(|f| f.held().0).sum(), self.bytes)
    }

    /// At most `most` of the connections that are followed, the one with the latest packet first.
    #[must_use]
    pub fn followed(&self, most: usize) -> Vec<Followed> {
        let of = |(&(esp, fixed, device), flow): (&Id, &Flow)| Followed {
            ends: Ends::Tcp { fixed, device, esp },
            held: flow.held().0,
            done: flow.done,
            round_trip: flow.round_trip(),
            heard: flow.heard,
        };
        followed::latest(self.flows.iter().map(of), most)
    }

    /// A packet for the device has arrived, and the radio takes it at once.
    pub fn to_device(&mut self, now: Instant, packet: &[u8]) {
        let first = self.reader.open(packet, Way::ToDevice);
        self.radio_takes(now, packet, &first);
    }

    /// The radio takes a packet for the device now, of which `first` was read when it arrived.
    pub(crate) fn radio_takes(&mut self, now: Instant, packet: &[u8], first: &FirstZone) {
        let Some(segment) = Segment::read(self.reader.layer(), packet, Way::ToDevice, first) else { return };
        let id = segment.id;
        if segment.tcp.flags & (RST | SYN) != 0 {
            self.forget(id);
        }
        if segment.tcp.flags & RST != 0 || segment.len() == 0 {
            return;
        }
        let keep = self.make_room(id, segment.packet.len());
        let new = Flow::new(now, segment.tcp.sequence, id.0.is_some(), &self.limits);
        let mut flow = self.take(id).unwrap_or(new);
        let before = flow.held().0;
        flow.pass(now, &segment, keep, &self.limits);
        let kept = u64::from(flow.held().0 > before);
        flow.done.kept += kept;
        self.stats.kept += kept;
        self.put(id, flow);
    }

    /// A packet of the device has arrived.
    pub fn from_device(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        let first = self.reader.open(packet, Way::FromDevice);
        let layer = self.reader.layer();
        let Some(segment) = Segment::read(layer, packet, Way::FromDevice, &first) else {
            return Verdict::Forward;
        };
        let id = segment.id;
        if segment.tcp.flags & (RST | SYN) != 0 {
            self.forget(id);
        }
        let Some(mut flow) = self.take(id) else { return Verdict::Forward };
        let verdict = flow.answer(now, &segment, &self.limits);
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
        let flow = self.flows.get(&self.agenda.first()?.1)?;
        Deadline::earliest(flow.timers(&self.limits))
    }

    /// Every timer that runs, of every connection; [`Self::poll_timeout`] is the first of them.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.flows.values().flat_map(|flow| flow.timers(&self.limits))
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

/// A whole TCP segment, as far as its headers are to be read.
struct Segment<'a> {
    id: Id,
    tcp: Tcp<'a>,
    /// Bytes of its data, which may not be here to be read.
    data: usize,
    /// The packet as it came, with the header of its frame if it is in one, and without what follows it.
    packet: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The one in a whole packet, or in the first zone of an ESP packet.
    fn read(layer: Layer, passing: &'a [u8], way: Way, first: &'a FirstZone) -> Option<Self> {
        let whole = layer.whole(passing)?;
        let packet = passing.get(..layer.before() + whole.as_bytes().len())?;
        let view = outer::tunnelled(whole)?;
        if outer::esp(&view).is_none() {
            return Self::of(&view, None, way, packet);
        }
        let inner = Packet::parse_header(first.header()?.as_bytes()).ok();
        let inner = inner.filter(|inner| inner.fragment().is_none())?;
        Self::of(&inner, Some((view.src(), view.dst())), way, packet)
    }

    fn of(view: &Packet<'a>, outer: Option<(IpAddr, IpAddr)>, way: Way, packet: &'a [u8]) -> Option<Self> {
        let (tcp, data) = Tcp::parse_header(view).ok()?;
        let from = SocketAddr::new(view.src(), tcp.src_port);
        let to = SocketAddr::new(view.dst(), tcp.dst_port);
        let id = match way {
            Way::ToDevice => (outer, from, to),
            Way::FromDevice => (outer.map(|(device, fixed)| (fixed, device)), to, from),
        };
        Some(Self { id, tcp, data, packet })
    }

    /// Sequence numbers that it takes: its data, one for SYN and one for FIN.
    fn len(&self) -> u32 {
        let flags = u32::from(self.tcp.flags & SYN != 0) + u32::from(self.tcp.flags & FIN != 0);
        u32::try_from(self.data).unwrap_or(u32::MAX).saturating_add(flags)
    }
}
