//! The packet path: what becomes of each inner packet on its way into a tunnel, and of each datagram on its way out of one. Owns the
//! order of the steps (route, MSS, MTU, ECN, padding, sealing) and their counters; every packet that is sealed goes through
//! [`Host::plan_on`] and [`Host::seal`], whether it comes from the inner side, has waited, or was kept for a device.

use super::{Host, Order, lsi};
use crate::data::{Arrival, Train};
use crate::node::{Discard, Inbound, Route};
use dormouse_energy::Direction;
use dormouse_esp::{Fit, Outer, clamp_mss, pmtu};
use dormouse_keying::ChildId;
use dormouse_sansio::packet::{Geometry, InnerPacket, Plan, Received, Sealed, Verdict};
use dormouse_sansio::{Deadline, Instant};
use dormouse_standin::DeviceId;
use dormouse_wire::ip::{self, Ecn, Flow};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// How long what is known of the signal is used. A walk takes some seconds from a good place to a bad one.
const SIGNAL_AGE: Duration = Duration::from_secs(1);

/// What the packet path has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathCounters {
    /// Inner packets that no policy covers.
    pub no_policy: u64,
    /// Packets that had to wait for their session.
    pub held: u64,
    /// Packets that were dropped because too many waited already.
    pub held_dropped: u64,
    /// Senders that were asked for smaller packets.
    pub too_big: u64,
    /// Batches that could not be sent.
    pub unsent: u64,
    /// Batches that could not be sealed.
    pub unsealed: u64,
    /// Packets of one client to another that the configuration keeps apart.
    pub isolated: u64,
    /// Datagrams dropped on arrival.
    pub discards: u64,
    /// Messages dropped on arrival, since too many waited for their turn.
    pub arrivals_dropped: u64,
}

/// The message to a packet's sender that `mtu` bytes is the most that passes; none to one that must not be answered.
pub(super) fn too_big(packet: &[u8], source: IpAddr, mtu: u16) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    ip::icmp::too_big(packet, source, mtu.into(), &mut answer).then_some(answer)
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSent {
    /// The outer link does not carry so much at once.
    TooBig,
    /// There is no room for it now, or no way there.
    Failed,
}

impl Host {
    /// What becomes of a packet from the inner side: it may be dropped, held, answered, or sealed. May clamp the MSS in place. Of a
    /// packet to be sealed, [`Host::seal`] is called next, before or after other plans.
    pub fn plan<P: InnerPacket + ?Sized>(&mut self, now: Instant, packet: &mut P) -> Plan {
        let Some(flow) = ip::flow(packet.bytes()) else { return Plan::Drop };
        if let Some(names) = self.names.as_ref().filter(|names| names.server() == flow.dst) {
            let mut question = Vec::new();
            return if packet.piece(0, &mut question) { names.answer(&question) } else { Plan::Drop };
        }
        if self.lsis.is_for(flow.dst) {
            self.translate(now, packet);
            return Plan::Drop;
        }
        self.lsis.ends(&flow, packet.bytes());
        match self.node.route(&flow) {
            Route::Send(child) => {
                if self.device.is_some() && self.node.is_clients(child) {
                    self.observe(now, Direction::Outgoing, &flow, packet.bytes().len());
                }
                self.plan_among(now, child, packet).unwrap_or(Plan::Drop)
            }
            Route::Hold => {
                self.hold(now, packet);
                self.observe(now, Direction::Outgoing, &flow, packet.bytes().len());
                Plan::Drop
            }
            Route::StandIn(device) => match self.stand_in(now, device, packet) {
                Some(plan) => {
                    self.node.peer_awaited(now, &flow);
                    plan
                }
                None => self.plan_overslept(now, packet, &flow),
            },
            Route::None => {
                if self.node.want_tunnel(now, (flow.src, flow.dst)) {
                    self.hold(now, packet);
                    self.observe(now, Direction::Outgoing, &flow, packet.bytes().len());
                } else {
                    self.counters.no_policy += 1;
                }
                Plan::Drop
            }
        }
    }

    /// A packet for a peer by its local-scope identifier. Each piece of a super-packet becomes a packet of its own, because its checksum
    /// is another, and takes the way of those that have waited.
    fn translate<P: InnerPacket + ?Sized>(&mut self, now: Instant, packet: &P) {
        let mut piece = Vec::new();
        for index in 0..packet.packets() {
            let translated = packet.piece(index, &mut piece).then(|| self.lsis.outbound(now, &piece));
            let Some(translated) = translated.flatten() else {
                self.counters.no_policy += 1;
                continue;
            };
            for packet in translated {
                if let Some(flow) = ip::flow(&packet).filter(|_| self.device.is_some()) {
                    self.observe(now, Direction::Outgoing, &flow, packet.len());
                }
                self.released.push_back(packet);
            }
        }
    }

    /// The promised end of the device's sleep has just passed, and the timer for it has not run.
    fn plan_overslept<P: InnerPacket + ?Sized>(&mut self, now: Instant, packet: &mut P, flow: &Flow) -> Plan {
        self.node.handle_timeout(now);
        match self.node.route(flow) {
            Route::Send(child) => self.plan_among(now, child, packet).unwrap_or(Plan::Drop),
            Route::StandIn(_) | Route::Hold | Route::None => {
                self.counters.no_policy += 1;
                Plan::Drop
            }
        }
    }

    /// Which child sends a packet of those that share its traffic. Where the signal of the radio decides, it is read for the first packet, and again
    /// for one that comes [`SIGNAL_AGE`] later: without packets never, so that nothing wakes for it.
    pub(super) fn among<P: InnerPacket + ?Sized>(
        &mut self,
        now: Instant,
        child: ChildId,
        packet: &P,
    ) -> Option<ChildId> {
        if self.node.chooses_by_signal() && self.signal_asked.is_none_or(|at| now - at >= SIGNAL_AGE) {
            self.signal_asked = Some(now);
            self.outputs.push_order(Order::ReadSignal);
        }
        let chosen = self.node.among(child, packet);
        self.counters.no_policy += u64::from(chosen.is_none());
        chosen
    }

    /// As [`Self::plan_on`], with the child that [`Self::among`] chooses.
    fn plan_among<P: InnerPacket + ?Sized>(
        &mut self,
        now: Instant,
        child: ChildId,
        packet: &mut P,
    ) -> Option<Plan> {
        let child = self.among(now, child, packet)?;
        self.plan_on(now, child, packet)
    }

    /// How a packet is to be sealed with this child, or why its sender must be told to send smaller ones.
    pub(super) fn plan_on<P: InnerPacket + ?Sized>(
        &mut self,
        now: Instant,
        id: ChildId,
        packet: &mut P,
    ) -> Option<Plan> {
        self.node.observe_outbound(now, id, packet.bytes());
        let inner_mtu = self.node.child_mut(id)?.inner_mtu(now);
        let inner_mtu = self.node.narrowest(now, id, inner_mtu);
        // Told also to a sender that did not set DF: nothing is fragmented here, neither inside nor outside (RFC 4301 section
        // 8.1 leaves that to policy). The MTU of the interface keeps this rare.
        match self.node.child_mut(id)?.plan(packet, inner_mtu) {
            Fit::Seal(geometry) => Some(Plan::Seal(geometry)),
            Fit::TooBig => self.answer_too_big(now, packet.bytes(), inner_mtu),
            Fit::Never => None,
        }
    }

    /// Seals packets in place: packet `i` of `sizes[i]` bytes lies at `i * geometry.stride + geometry.head` of `slots`. `None`: they
    /// are lost, because their SA is gone or used up.
    pub fn seal(
        &mut self,
        now: Instant,
        geometry: &Geometry,
        slots: &mut [u8],
        sizes: &[usize],
    ) -> Option<Sealed> {
        let id = ChildId::new(geometry.route);
        let tunnel = self.node.child_mut(id)?;
        let path = tunnel.path;
        match tunnel.outbound.seal_batch(slots, geometry.stride, sizes, geometry.next_header) {
            Ok(len) => {
                self.node.sent(now, id);
                Some(Sealed { len, path })
            }
            Err(e) => {
                tracing::debug!(%e, "a batch could not be sealed");
                self.counters.unsealed += 1;
                None
            }
        }
    }

    /// Seals one packet, which is copied to `out`.
    pub(super) fn seal_one(
        &mut self,
        now: Instant,
        geometry: &Geometry,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Sealed> {
        let inner = packet.get(geometry.strip..)?;
        out.clear();
        out.resize(geometry.stride, 0);
        out.get_mut(geometry.head..geometry.head + inner.len())?.copy_from_slice(inner);
        let sealed = self.seal(now, geometry, out, &[inner.len()])?;
        out.truncate(sealed.len);
        Some(sealed)
    }

    /// A batch that was sealed with child `route` could not be sent, and is lost.
    pub fn batch_not_sent(&mut self, now: Instant, route: u32, why: NotSent) {
        self.counters.unsent += 1;
        if why == NotSent::TooBig
            && let Some(child) = self.node.child_mut(ChildId::new(route))
        {
            // The next smaller size that every network of today carries.
            let mtu = child.pmtu.get(now);
            child.pmtu.lower(now, if mtu > 1400 { 1400 } else { 1280 });
        }
    }

    /// Asks the sender for smaller packets.
    /// "[...] an ESP implementation MUST support generation of ICMP PMTU messages" (RFC 4303 section 3.3.4)
    fn answer_too_big(&mut self, now: Instant, packet: &[u8], inner_mtu: usize) -> Option<Plan> {
        let flow = ip::flow(packet)?;
        if let Some((original, peer)) = self.lsis.original(now, packet) {
            // It grows by the difference of the headers when it is translated.
            let mtu = inner_mtu.saturating_sub(ip::Ipv6::HEADER - ip::Ipv4::MIN_HEADER);
            return self.too_big(&original, peer.into(), pmtu::advertised(mtu, peer.into()));
        }
        // The error comes from the far end of the link, as from a router: the destination stands in if we have no address
        // of the family, so that the sender's filters see a plausible source.
        let source = self
            .inner
            .iter()
            .copied()
            .find(|a| a.is_ipv4() == flow.src.is_ipv4() && *a != flow.src)
            .unwrap_or(flow.dst);
        self.too_big(packet, source, pmtu::advertised(inner_mtu, flow.src))
    }

    fn too_big(&mut self, packet: &[u8], source: IpAddr, mtu: u16) -> Option<Plan> {
        let Some(answer) = too_big(packet, source, mtu) else { return Some(Plan::Drop) };
        self.counters.too_big += 1;
        Some(Plan::Answer(answer))
    }

    fn hold<P: InnerPacket + ?Sized>(&mut self, now: Instant, packet: &P) {
        // A train of segments is dropped: its sender has a session already and will repeat them.
        let lost = if packet.packets() == 1 { self.held.push(now, packet.bytes()) } else { 1 };
        self.counters.held += 1;
        self.counters.held_dropped += lost;
    }

    /// A packet for a device that sleeps: its stand-in may answer. `None` if it no longer stands in.
    pub(super) fn stand_in<P: InnerPacket + ?Sized>(
        &mut self,
        now: Instant,
        device: DeviceId,
        packet: &P,
    ) -> Option<Plan> {
        let (mut piece, mut answer) = (Vec::new(), Vec::new());
        for index in 0..packet.packets() {
            if !packet.piece(index, &mut piece) {
                break;
            }
            let mut out = Vec::new();
            let _counted = self.node.stand_in(now, device, &piece, &mut out)?;
            // Several at once are one sender's on one connection, which is answered once.
            if answer.is_empty() {
                answer = out;
            }
        }
        Some(if answer.is_empty() { Plan::Drop } else { Plan::Answer(answer) })
    }

    /// A datagram came in, the next of a train. What ESP carries is opened where it lies; a message of key management is copied, and waits for
    /// [`Host::handle_arrival`].
    pub fn open(&mut self, now: Instant, from: &Received, train: &mut Train, datagram: &mut [u8]) -> Verdict {
        match self.node.arrival(from.path, datagram, !self.arrivals.is_empty()) {
            None => self.open_now(now, from, train, datagram),
            Some(kind) => {
                let first = || self.node.first_of(from.path, datagram);
                let first = (kind == Arrival::Newcomer).then(first).flatten();
                let kept = self.arrivals.push(kind, first, *from, datagram);
                self.counters.arrivals_dropped += u64::from(!kept);
                Verdict::Done
            }
        }
    }

    /// Messages of key management wait for [`Host::handle_arrival`], and not for room.
    #[must_use]
    pub fn has_arrivals(&self, now: Instant) -> bool {
        !self.arrivals.is_empty() || self.arrivals_deadline().is_some_and(|due| due.at <= now)
    }

    /// When a newcomer has its turn that waits for room, if none comes before.
    pub(super) fn arrivals_deadline(&self) -> Option<Deadline> {
        let patience = self.arrivals.patience()?;
        let at = self.node.crowded_until().unwrap_or(Instant::ZERO).min(patience);
        Some(Deadline::strict(at, "a newcomer's turn"))
    }

    /// A newcomer that must not begin yet waits: until there is room, or as long as what has begun may take. One that waits already goes on doing so.
    fn waits(&mut self, now: Instant, room: bool, from: &Received, datagram: &[u8]) -> bool {
        let crowded = !room && self.node.crowded_until().is_some_and(|until| now < until);
        if !crowded && self.arrivals.patience().is_none() {
            return false;
        }
        let Some(spi) = self.node.may_wait(now, from.path, datagram) else { return false };
        let first = (spi, from.path.remote);
        (crowded || self.arrivals.waits_for_room(first)) && self.arrivals.wait(now, first, from, datagram)
    }

    /// Handles the message whose turn it is, or a packet that waited for one; only one, as packets that have come meanwhile go first. Returns
    /// what it was, `None` if nothing waits.
    pub fn handle_arrival(&mut self, now: Instant) -> Option<Arrival> {
        let room = self.arrivals_deadline().is_some_and(|due| due.at <= now);
        let (kind, from, mut datagram) = self.arrivals.next(room)?;
        if kind == Arrival::Newcomer && self.waits(now, room, &from, &datagram) {
            return Some(kind);
        }
        let packet = match self.open_now(now, &from, &mut Train::default(), &mut datagram) {
            Verdict::Done => return Some(kind),
            Verdict::Deliver(range) => datagram.get(range).unwrap_or_default().to_vec(),
            Verdict::DeliverBehind(header, len, range) => {
                let header = header.get(..len).unwrap_or_default();
                [header, datagram.get(range).unwrap_or_default()].concat()
            }
        };
        self.awaiting_route.push_back(packet);
        Some(kind)
    }

    fn open_now(&mut self, now: Instant, from: &Received, train: &mut Train, datagram: &mut [u8]) -> Verdict {
        match self.node.handle_next(now, from.path, train, datagram) {
            Ok(Inbound::Consumed) => Verdict::Done,
            Ok(Inbound::Inner { range, child, seq, next_header, flow }) => {
                self.deliver(now, from, (child, seq), (next_header, flow), datagram, range)
            }
            Err(Discard::Esp(dormouse_esp::Discard::Lent { .. })) => {
                let waits = self.arrivals.push(Arrival::Packet, None, *from, datagram);
                self.counters.arrivals_dropped += u64::from(!waits);
                Verdict::Done
            }
            Err(e) => {
                tracing::debug!(path = %from.path, %e, "dropped");
                self.counters.discards += 1;
                Verdict::Done
            }
        }
    }

    fn deliver(
        &mut self,
        now: Instant,
        from: &Received,
        (id, seq): (ChildId, u64),
        (next_header, flow): (u8, Option<Flow>),
        datagram: &mut [u8],
        range: Range<usize>,
    ) -> Verdict {
        let (Some(tunnel), Some(carried)) = (self.node.child_mut(id), datagram.get_mut(range.clone())) else {
            return Verdict::Done;
        };
        let outer = Outer {
            source: from.path.remote.ip(),
            destination: from.path.local.ip(),
            ecn: Ecn::from_traffic_class(from.ecn),
        };
        let rebuilt = match tunnel.rebuild(next_header, flow, carried, outer) {
            Ok(rebuilt) => rebuilt,
            Err(e) => {
                tracing::debug!(path = %from.path, %e, "dropped");
                self.counters.discards += 1;
                return Verdict::Done;
            }
        };
        let inner_mtu = tunnel.inner_mtu(now);
        if self.node.isolates(id, &rebuilt.flow) {
            self.counters.isolated += 1;
            return Verdict::Done;
        }
        if self.device.is_some() && self.node.is_clients(id) {
            self.observe(now, Direction::Incoming, &rebuilt.flow, range.len());
        }
        match rebuilt.header {
            None => {
                let inner_mtu = self.node.narrowest(now, id, inner_mtu);
                clamp_mss(carried, inner_mtu);
                if self.must_wait(id, rebuilt.flow.src) {
                    let packet = carried.to_vec();
                    self.put_off(now, id, packet);
                    return Verdict::Done;
                }
                if self.node.reorders(now, id, seq) {
                    self.node.reorder(now, id, seq, carried.to_vec());
                    return Verdict::Done;
                }
                Verdict::Deliver(range)
            }
            Some(header) => {
                let payload = range.start + rebuilt.skip..range.end;
                let parts = header.into_parts();
                let (head, carried) = (
                    parts.0.get(..parts.1).unwrap_or_default(),
                    datagram.get(payload.clone()).unwrap_or_default(),
                );
                self.node.observe_rebuilt(now, id, head, carried);
                match self.lsis.apart(now, &rebuilt.flow, head, carried) {
                    lsi::Apart::No => {}
                    lsi::Apart::Waits => return Verdict::Done,
                    lsi::Apart::Packet(packet) => {
                        self.put_off(now, id, packet);
                        return Verdict::Done;
                    }
                }
                let (header, len) =
                    lsi::put_v4(&mut self.lsis, now, &rebuilt.flow, parts, datagram, &payload);
                if self.must_wait(id, rebuilt.flow.src) {
                    let header = header.get(..len).unwrap_or_default();
                    let packet = [header, datagram.get(payload).unwrap_or_default()].concat();
                    self.put_off(now, id, packet);
                    return Verdict::Done;
                }
                Verdict::DeliverBehind(header, len, payload)
            }
        }
    }

    /// A host that answers a packet of `source` from this child at once would find no way back, or the peer may have no right to send it.
    fn must_wait(&self, id: ChildId, source: IpAddr) -> bool {
        self.node.is_route_due(source) || self.node.unconfirmed(id).is_some()
    }

    fn put_off(&mut self, now: Instant, id: ChildId, packet: Vec<u8>) {
        let Some(sa) = self.node.unconfirmed(id) else { return self.awaiting_route.push_back(packet) };
        self.counters.held_dropped += self.unconfirmed.push(now, sa, &packet);
    }
}
