//! One end of the simulated conversation: a node, and what survives its crashes. Owns the driving contract of a node, the way
//! `dormoused` does it in the world.

use crate::sleeping::Sleeping;
use dormouse_energy::Direction;
use dormouse_ike::ticket::ClientTicket;
use dormouse_node::held::Held;
use dormouse_node::{Change, Event, Inbound, Node, Route, SleepVerdict};
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::{flow, udp};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Room for the ESP header, the trailer with any padding that a world asks for, and the ICV of any suite.
const ROOM: usize = 512;

/// Whether a datagram is an ESP packet.
pub(crate) fn is_esp(path: &Path, datagram: &[u8]) -> bool {
    match path.carrier {
        Carrier::RawEsp => true,
        Carrier::NatT => matches!(classify_natt(datagram), NatT::Esp(_)),
        Carrier::Ike => false,
    }
}

/// A node with its storage.
pub struct Host {
    /// `None` while it has crashed.
    pub node: Option<Node>,
    /// The ticket on its disk.
    pub ticket: Option<Vec<u8>>,
    /// Its inner IPv4 address, once configured.
    pub inner: Option<IpAddr>,
    /// Inner packets that came out of the tunnel: their payloads.
    pub received: Vec<u64>,
    /// What the node announced.
    pub changes: Vec<Change>,
    /// Wake-ups by timers, by reason.
    pub wakeups: BTreeMap<&'static str, u64>,
    /// Datagrams to send.
    pub outbox: VecDeque<(Path, Vec<u8>)>,
    /// Tickets that were used up, on its disk.
    pub spent: Vec<u8>,
    /// Gateway: packets that its stand-in sent to its own side.
    pub stood_in: Vec<Vec<u8>>,
    /// Gateway: prefixes that are routed to its devices.
    pub routes: BTreeSet<IpNet>,
    /// What the gateway said to the last announced sleep.
    pub sleep: Option<SleepVerdict>,
    /// Its radio's controller, for a device that has one.
    pub sleeping: Option<Sleeping>,
    /// Packets that were lost because too many were held.
    pub held_lost: u64,
    /// ESP packets that came in and did not open.
    pub refused: u64,
    /// Packets that no policy covered.
    pub nowhere: u64,
    held: Held,
}

impl Host {
    /// A host that runs `node`.
    #[must_use]
    pub fn new(node: Node) -> Self {
        Self {
            node: Some(node),
            ticket: None,
            inner: None,
            received: Vec::new(),
            changes: Vec::new(),
            wakeups: BTreeMap::new(),
            outbox: VecDeque::new(),
            spent: Vec::new(),
            stood_in: Vec::new(),
            routes: BTreeSet::new(),
            sleep: None,
            sleeping: None,
            held_lost: 0,
            refused: 0,
            nowhere: 0,
            held: Held::default(),
        }
    }

    /// The process dies: everything but the disk is lost.
    pub fn crash(&mut self) {
        self.node = None;
        self.inner = None;
        self.outbox.clear();
        self.held_lost += self.held.clear();
    }

    /// The process is back.
    pub fn restart(&mut self, connection: &str, mut node: Node) {
        if let Some(ticket) = self.ticket.as_ref().and_then(|t| ClientTicket::decode(t).ok()) {
            node.restore_ticket(connection, ticket);
        }
        self.node = Some(node);
    }

    /// When the node wants to run next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let node = self.node.as_ref().and_then(|n| n.poll_timeout()).map(|d| d.at);
        node.into_iter().chain(self.sleeping.as_ref().and_then(Sleeping::due)).min()
    }

    /// The radio has power.
    #[must_use]
    pub fn radio_is_on(&self) -> bool {
        self.sleeping.as_ref().is_none_or(|s| s.radio)
    }

    /// Lets the node run if it is due.
    pub fn run(&mut self, now: Instant) {
        if let Some(sleeping) = &mut self.sleeping
            && sleeping.due().is_some_and(|at| at <= now)
        {
            sleeping.run(now);
            self.flush(now);
        }
        let Some(node) = &mut self.node else { return };
        let Some(deadline) = node.poll_timeout().filter(|d| d.at <= now) else { return };
        *self.wakeups.entry(deadline.why).or_default() += 1;
        node.handle_timeout(now);
        self.flush(now);
    }

    /// A datagram arrives.
    pub fn receive(&mut self, now: Instant, path: Path, mut datagram: Vec<u8>) {
        let Some(node) = &mut self.node else { return };
        let esp = is_esp(&path, &datagram);
        let taken = node.handle_datagram(now, path, &mut datagram);
        self.refused += u64::from(esp && taken.is_err());
        if let Ok(Inbound::Inner { range, .. }) = taken {
            let inner = datagram.get(range).unwrap_or_default();
            if let (Some(sleeping), Some(flow)) = (&mut self.sleeping, flow(inner)) {
                sleeping.sleeper.packet(now, Direction::Incoming, &flow, inner.len());
            }
            if let Some(number) = inner.get(28..36).and_then(|b| b.try_into().ok()) {
                self.received.push(u64::from_be_bytes(number));
            }
        }
        self.flush(now);
    }

    /// Sends a numbered packet through the tunnel. False if no policy covers it.
    pub fn send(&mut self, now: Instant, from: IpAddr, to: IpAddr, number: u64) -> bool {
        self.send_to(now, from, SocketAddr::new(to, 9), number)
    }

    /// The same, to a port: what a policy tells flows apart by.
    pub fn send_to(&mut self, now: Instant, from: IpAddr, to: SocketAddr, number: u64) -> bool {
        let mut packet = Vec::new();
        let from = SocketAddr::new(from, 9);
        if udp::build(from, to, &number.to_be_bytes(), &mut packet).is_err() {
            return false;
        }
        if let (Some(sleeping), Some(flow)) = (&mut self.sleeping, flow(&packet)) {
            sleeping.sleeper.packet(now, Direction::Outgoing, &flow, packet.len());
        }
        let sent = self.forward(now, packet);
        self.flush(now);
        sent
    }

    pub(crate) fn forward(&mut self, now: Instant, packet: Vec<u8>) -> bool {
        let (Some(node), Some(flow)) = (&mut self.node, flow(&packet)) else { return false };
        let id = match node.route(&flow) {
            Route::Send(id) => id,
            Route::Hold => {
                self.held_lost += self.held.push(now, &packet);
                return true;
            }
            Route::StandIn(device) => {
                let mut out = Vec::new();
                let _counted = node.stand_in(now, device, &packet, &mut out);
                self.stood_in.extend((!out.is_empty()).then_some(out));
                return true;
            }
            Route::None => {
                self.nowhere += 1;
                return false;
            }
        };
        node.observe_outbound(now, id, &packet);
        let Some(child) = node.child_mut(id) else { return false };
        let head = child.outbound.head_len();
        let mut slot = vec![0; head + packet.len() + ROOM];
        if let Some(room) = slot.get_mut(head..head + packet.len()) {
            room.copy_from_slice(&packet);
        }
        let path = child.path;
        let Ok(len) = child.outbound.seal(&mut slot, packet.len(), 4) else { return false };
        slot.truncate(len);
        self.outbox.push_back((path, slot));
        node.sent(now, id);
        true
    }

    /// Empties the node's queues, as its driving contract demands after every call.
    pub fn flush(&mut self, now: Instant) {
        let Some(node) = &mut self.node else { return };
        let (mut flowing, mut kept) = (false, Vec::new());
        // The node and the sleeper have news for each other.
        loop {
            while let Some(event) = node.poll_event() {
                if let Some(sleeping) = &mut self.sleeping {
                    sleeping.hears(now, &event);
                }
                match event {
                    Event::Configure { assigned, .. } => self.inner = assigned.v4.map(IpAddr::V4),
                    Event::Unconfigure { .. } => self.inner = None,
                    Event::Ticket { bytes, .. } => self.ticket = bytes.map(|b| b.as_bytes().to_vec()),
                    Event::Changed(change) => self.changes.push(change),
                    Event::Flowing => flowing = true,
                    Event::Resend { packets } => self.held_lost += self.held.push_first(now, packets),
                    Event::TicketSpent { record } => self.spent.extend(record),
                    Event::Deliver { packets } => kept.extend(packets),
                    Event::PeerRoutes { routes, .. } => self.routes.extend(routes),
                    Event::PeerGone { routes } => self.routes.retain(|r| !routes.contains(r)),
                    Event::SleepReady { verdict, .. } => self.sleep = Some(verdict),
                    _ => {}
                }
            }
            if !self.sleeping.as_mut().is_some_and(|s| s.turn(now, node)) {
                break;
            }
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = node.poll_transmit(now, &mut datagram) {
            self.outbox.push_back((transmit.path, std::mem::take(&mut datagram)));
        }
        let mut out = Vec::new();
        while node.poll_stand_in(&mut out) {
            self.stood_in.push(std::mem::take(&mut out));
        }
        for packet in kept {
            self.forward(now, packet.into_vec());
        }
        if flowing {
            for packet in self.held.take() {
                self.forward(now, packet);
            }
        }
    }
}
