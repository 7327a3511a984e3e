//! The data plane: the node behind the batches of `dormouse-io`. Owns the answers to packets that are too big; decides
//! nothing that policy decides.

use crate::sleep::Sleep;
use dormouse_energy::Direction;
use dormouse_esp::transport::{self, Original};
use dormouse_esp::{Mode, Selectors, ecn, pmtu};
use dormouse_io::SuperPacket;
use dormouse_io::batch::{Geometry, Opener, Plan, Received, Sealed, Sealer, Verdict};
use dormouse_io::udp::Sent;
use dormouse_node::held::Held;
use dormouse_node::{DeviceId, Inbound, Node, Route, Train};
use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::{self, Ecn, Flow};
use std::net::IpAddr;

/// What the data plane counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Packets from the TUN that no policy covers.
    pub(crate) no_policy: u64,
    /// Packets that were held.
    pub(crate) held: u64,
    /// Packets that were dropped because too many were held already.
    pub(crate) held_dropped: u64,
    /// Senders that were told to send smaller packets.
    pub(crate) too_big: u64,
    /// Batches that could not be sent.
    pub(crate) unsent: u64,
    /// Batches that could not be sealed.
    pub(crate) unsealed: u64,
    /// Datagrams dropped on arrival.
    pub(crate) discards: u64,
}

/// What becomes of a packet that was held.
pub(crate) enum Release {
    /// Sealed: send it there.
    Send(Path),
    /// The session is not back after all.
    Hold,
    /// No policy covers it any more.
    Drop,
}

/// What became of a packet that was kept for a device.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Send what was sealed.
    Send(Path),
    /// This goes to the TUN instead.
    Answer(Vec<u8>),
    /// Its device sleeps again: the stand-in has it back.
    Again,
    /// No policy covers it any more.
    Lost,
}

/// The node as the batches see it, for one turn of the loop.
pub(crate) struct Plane<'a> {
    pub(crate) node: &'a mut Node,
    pub(crate) now: Instant,
    /// Packets that wait for their session.
    pub(crate) held: &'a mut Held,
    /// Sees the traffic of the client connections.
    pub(crate) sleep: Option<&'a mut Sleep>,
    pub(crate) counters: &'a mut Counters,
    /// Packets that must not be delivered before the node's events are applied.
    pub(crate) early: &'a mut Vec<Vec<u8>>,
    /// Source of ICMP errors to inner senders: our own inner addresses.
    pub(crate) inner: &'a [IpAddr],
}

impl Plane<'_> {
    fn child_geometry(&mut self, id: u64, packet: &mut SuperPacket<'_>) -> Option<Plan> {
        let now = self.now;
        self.node.observe_outbound(now, id, packet.bytes());
        let child = self.node.child_mut(id)?;
        let inner_mtu = child.overhead.inner_mtu(child.pmtu.get(now).into());
        ip::tcp::clamp_mss(packet.bytes_mut(), pmtu::mss_v4(inner_mtu), pmtu::mss_v6(inner_mtu));
        let bytes = packet.bytes();
        let (strip, next_header) = match child.outbound.mode() {
            Mode::Tunnel => (
                0,
                if bytes.first()? >> 4 == 6 { dormouse_esp::IPV6_IN_IP } else { dormouse_esp::IPV4_IN_IP },
            ),
            Mode::Transport => {
                let stripped = transport::strip(bytes)?;
                (stripped.header_len, stripped.next_header)
            }
        };
        // Told also to a sender that did not set DF: nothing is fragmented here, neither inside nor outside (RFC 4301 section
        // 8.1 leaves that to policy). The MTU of the interface keeps this rare.
        if !packet.fits(inner_mtu) {
            return self.answer_too_big(packet.bytes(), inner_mtu);
        }
        let packet_len = packet.packet_len().min(inner_mtu);
        let mark = ecn::of_packet(packet.bytes()) as u8;
        let stride = child.outbound.sealed_len(packet_len - strip);
        let head = child.outbound.head_len();
        Some(Plan::Seal(Geometry {
            route: id,
            head,
            strip,
            max_inner: inner_mtu,
            stride,
            packet_len,
            next_header,
            ecn: mark,
        }))
    }

    /// Tells the sender that its packet does not fit.
    /// "[...] an ESP implementation MUST support generation of ICMP PMTU messages" (RFC 4303 section 3.3.4)
    fn answer_too_big(&mut self, packet: &[u8], inner_mtu: usize) -> Option<Plan> {
        let flow = ip::flow(packet)?;
        // The error comes from the far end of the link, as from a router: the destination stands in if we have no address
        // of the family, so that the sender's filters see a plausible source.
        let source = self
            .inner
            .iter()
            .copied()
            .find(|a| a.is_ipv4() == flow.src.is_ipv4() && *a != flow.src)
            .unwrap_or(flow.dst);
        let mtu = pmtu::advertised(inner_mtu, flow.src);
        let mut answer = Vec::new();
        if !ip::icmp::too_big(packet, source, mtu.into(), &mut answer) {
            return Some(Plan::Drop);
        }
        self.counters.too_big += 1;
        Some(Plan::Answer(answer))
    }

    fn hold(&mut self, packet: &SuperPacket<'_>) {
        // A train of segments is dropped: its sender has a session already and will repeat them.
        let lost = if packet.packets() == 1 { self.held.push(self.now, packet.bytes()) } else { 1 };
        self.counters.held += 1;
        self.counters.held_dropped += lost;
    }

    /// A packet of a client connection passes: the sleeper sees it.
    fn passes(&mut self, direction: Direction, flow: &Flow, size: usize) {
        if let Some(sleep) = &mut self.sleep {
            sleep.flow(self.now, direction, flow, size);
        }
    }

    /// A packet for a device that sleeps: its stand-in may answer.
    fn stand_in(&mut self, device: DeviceId, packet: &SuperPacket<'_>) -> Plan {
        let (mut piece, mut answer) = (Vec::new(), Vec::new());
        for index in 0..packet.packets() {
            if !packet.piece(index, &mut piece) {
                break;
            }
            let mut out = Vec::new();
            let _counted = self.node.stand_in(self.now, device, &piece, &mut out);
            // Several at once are one sender's on one connection, which is answered once.
            if answer.is_empty() {
                answer = out;
            }
        }
        if answer.is_empty() { Plan::Drop } else { Plan::Answer(answer) }
    }

    /// Seals a packet that was kept for a device, now that it is back.
    pub(crate) fn seal_kept(&mut self, packet: &mut [u8], out: &mut Vec<u8>) -> Kept {
        let Some(flow) = ip::flow(packet) else { return Kept::Lost };
        let now = self.now;
        let id = match self.node.route(&flow) {
            Route::Send(id) => id,
            // What woke it was the announcement of its next sleep.
            Route::StandIn(device) => {
                let mut answer = Vec::new();
                let _counted = self.node.stand_in(now, device, packet, &mut answer);
                return if answer.is_empty() { Kept::Again } else { Kept::Answer(answer) };
            }
            Route::Hold | Route::None => return Kept::Lost,
        };
        let inner_mtu = match self.node.child_mut(id) {
            Some(child) => child.overhead.inner_mtu(child.pmtu.get(now).into()),
            None => return Kept::Lost,
        };
        ip::tcp::clamp_mss(packet, pmtu::mss_v4(inner_mtu), pmtu::mss_v6(inner_mtu));
        if packet.len() > inner_mtu {
            // It was kept on another path, or came before there was any.
            return match self.answer_too_big(packet, inner_mtu) {
                Some(Plan::Answer(answer)) => Kept::Answer(answer),
                _ => Kept::Lost,
            };
        }
        self.seal_held(id, &flow, packet, out).map_or(Kept::Lost, Kept::Send)
    }

    /// Seals one packet that was held.
    pub(crate) fn seal_one(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Release {
        let Some(flow) = ip::flow(packet) else { return Release::Drop };
        match self.node.route(&flow) {
            Route::Hold => Release::Hold,
            Route::StandIn(_) | Route::None => Release::Drop,
            Route::Send(id) => self.seal_held(id, &flow, packet, out).map_or(Release::Drop, Release::Send),
        }
    }

    fn seal_held(&mut self, id: u64, flow: &Flow, packet: &[u8], out: &mut Vec<u8>) -> Option<Path> {
        self.node.observe_outbound(self.now, id, packet);
        let child = self.node.child_mut(id)?;
        let (strip, next_header) = match child.outbound.mode() {
            Mode::Tunnel => {
                (0, if flow.src.is_ipv6() { dormouse_esp::IPV6_IN_IP } else { dormouse_esp::IPV4_IN_IP })
            }
            Mode::Transport => transport::strip(packet).map(|s| (s.header_len, s.next_header))?,
        };
        let inner = packet.get(strip..)?;
        let head = child.outbound.head_len();
        out.clear();
        out.resize(child.outbound.sealed_len(inner.len()), 0);
        out.get_mut(head..head + inner.len())?.copy_from_slice(inner);
        let path = child.path;
        let len = child.outbound.seal(out, inner.len(), next_header).ok()?;
        out.truncate(len);
        self.node.sent(self.now, id);
        Some(path)
    }

    fn deliver(
        &mut self,
        from: &Received,
        child: u64,
        (next_header, flow): (u8, Option<Flow>),
        datagram: &mut [u8],
        range: std::ops::Range<usize>,
    ) -> Verdict {
        let Some(flow) = flow else { return self.deliver_payload(from, child, next_header, datagram, range) };
        if self.sleep.is_some() && self.node.is_clients(child) {
            self.passes(Direction::Incoming, &flow, range.len());
        }
        let Some(child) = self.node.child_mut(child) else { return Verdict::Done };
        let inner_mtu = child.overhead.inner_mtu(child.pmtu.get(self.now).into());
        let Some(inner) = datagram.get_mut(range.clone()) else { return Verdict::Done };
        if !ecn::decapsulate(inner, Ecn::from_traffic_class(from.ecn)) {
            self.counters.discards += 1;
            return Verdict::Done;
        }
        ip::tcp::clamp_mss(inner, pmtu::mss_v4(inner_mtu), pmtu::mss_v6(inner_mtu));
        if self.node.routes_due() {
            // A host that answers at once would be told that there is no way to the peer.
            self.early.push(inner.to_vec());
            return Verdict::Done;
        }
        Verdict::Deliver(range)
    }

    /// Transport mode: the payload gets its header again, between the addresses of the selectors. If a NAT has changed them on
    /// their way, its checksum is still over those that the peer sees, and is corrected (RFC 3948 section 3.1.2).
    fn deliver_payload(
        &mut self,
        from: &Received,
        id: u64,
        next_header: u8,
        datagram: &mut [u8],
        range: std::ops::Range<usize>,
    ) -> Verdict {
        let outer = (from.path.remote.ip(), from.path.local.ip());
        let (Some(child), Some(payload)) = (self.node.child_mut(id), datagram.get_mut(range.clone())) else {
            return Verdict::Done;
        };
        let flow = payload_flow(&child.selectors, outer, next_header, payload);
        let header = transport::Rebuilt::new(flow.src, flow.dst, next_header, payload.len(), 64);
        let Some(header) = header.filter(|_| child.selectors.match_inbound(&flow)) else {
            self.counters.discards += 1;
            return Verdict::Done;
        };
        if let Some(Original { source, destination }) = child.original {
            transport::correct_checksum(payload, next_header, (source, destination), (flow.src, flow.dst));
        }
        if self.sleep.is_some() && self.node.is_clients(id) {
            self.passes(Direction::Incoming, &flow, range.len());
        }
        let mut bytes = [0; 40];
        let used = header.as_bytes().len();
        if let Some(room) = bytes.get_mut(..used) {
            room.copy_from_slice(header.as_bytes());
        }
        Verdict::DeliverBehind(bytes, used, range)
    }
}

impl Sealer for Plane<'_> {
    fn plan(&mut self, packet: &mut SuperPacket<'_>) -> Plan {
        let Some(flow) = ip::flow(packet.bytes()) else { return Plan::Drop };
        match self.node.route(&flow) {
            Route::Send(id) => {
                if self.sleep.is_some() && self.node.is_clients(id) {
                    self.passes(Direction::Outgoing, &flow, packet.bytes().len());
                }
                self.child_geometry(id, packet).unwrap_or(Plan::Drop)
            }
            Route::Hold => {
                self.hold(packet);
                self.passes(Direction::Outgoing, &flow, packet.bytes().len());
                Plan::Drop
            }
            Route::StandIn(device) => self.stand_in(device, packet),
            Route::None => {
                self.counters.no_policy += 1;
                Plan::Drop
            }
        }
    }

    fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed> {
        let child = self.node.child_mut(geometry.route)?;
        let path = child.path;
        match child.outbound.seal_batch(slots, geometry.stride, sizes, geometry.next_header) {
            Ok(len) => {
                self.node.sent(self.now, geometry.route);
                Some(Sealed { len, path })
            }
            Err(e) => {
                tracing::debug!(%e, "a batch could not be sealed");
                self.counters.unsealed += 1;
                None
            }
        }
    }

    fn unsent(&mut self, geometry: &Geometry, path: &Path, sent: Sent) {
        self.counters.unsent += 1;
        match sent {
            Sent::TooBig => {
                // The next smaller size that every network of today carries.
                let now = self.now;
                if let Some(child) = self.node.child_mut(geometry.route) {
                    let mtu = child.pmtu.get(now);
                    child.pmtu.lower(now, if mtu > 1400 { 1400 } else { 1280 });
                }
            }
            Sent::Failed(e) => tracing::debug!(%path, %e, "a batch could not be sent"),
            Sent::All | Sent::Blocked { .. } => {}
        }
    }
}

impl Opener for Plane<'_> {
    type Train = Train;

    fn open(&mut self, from: &Received, train: &mut Train, datagram: &mut [u8]) -> Verdict {
        match self.node.handle_next(self.now, from.path, train, datagram) {
            Ok(Inbound::Consumed) => Verdict::Done,
            Ok(Inbound::Inner { range, child, next_header, flow }) => {
                self.deliver(from, child, (next_header, flow), datagram, range)
            }
            Err(e) => {
                tracing::debug!(path = %from.path, %e, "dropped");
                self.counters.discards += 1;
                Verdict::Done
            }
        }
    }
}

/// The flow of a payload that came without its header, which was between the addresses of the selectors.
fn payload_flow(selectors: &Selectors, outer: (IpAddr, IpAddr), next_header: u8, payload: &[u8]) -> Flow {
    let single = |list: &[TsRange]| list.first().filter(|ts| ts.start == ts.end).map(|ts| ts.start);
    let port = |at: usize| match (next_header, payload.get(at..at + 2)) {
        (6 | 17 | 132, Some([high, low])) => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    };
    Flow {
        src: single(selectors.remote()).unwrap_or(outer.0),
        dst: single(selectors.local()).unwrap_or(outer.1),
        protocol: next_header,
        src_port: port(0),
        dst_port: port(2),
    }
}

#[cfg(test)]
mod tests;
