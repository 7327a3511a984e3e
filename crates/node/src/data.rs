//! The packets of the traffic: which tunnel opens or seals one, where it goes, and what it proves about the peer. Owns the
//! bookkeeping that follows an authentic packet; must never encrypt (ESP does) nor keep a packet.

use crate::client::Client;
use crate::event::Event;
use crate::hold::MOST_PACKETS;
use crate::ladder::State as Ladder;
use crate::node::{Discard, Inbound, Node, Route};
use crate::sessions::Session;
use dormouse_esp::{Accepted, Life, State, Tunnel};
use dormouse_ike::Endpoint;
use dormouse_keying::{ChildId, Owner, SaId};
use dormouse_sansio::packet::InnerPacket;
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_standin::DeviceId;
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::{Flow, protocol};
use std::net::SocketAddr;

/// What a datagram is to the order in which they are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// A message of a session or a handshake that is there.
    Session,
    /// A message that may begin a session, or that belongs to no SA here.
    Newcomer,
    /// ESP that no SA is there for: it may belong to one that a waiting message makes, and waits for those that came before it.
    Packet,
}

/// Datagrams that came together: from one sender, over one path, at one time. Remembers what the first of them proved, so that the
/// others cost no further look-up. Begin a new one after any other call of the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Train {
    /// A packet of this tunnel was accounted for, and another one would change nothing.
    settled: Option<ChildId>,
    /// The device that sent the packets.
    device: Option<DeviceId>,
}

impl Node {
    /// As what a datagram waits for its turn; `None` if it is handled at once, as packets of ESP are. `others`: messages wait already.
    pub(crate) fn arrival(&self, path: Path, datagram: &[u8], others: bool) -> Option<Arrival> {
        let message = |known| Some(if known { Arrival::Session } else { Arrival::Newcomer });
        let esp = match (path.carrier, classify_natt(datagram)) {
            (Carrier::Ike, _) => return message(self.ike.has_sa_of(path, datagram)),
            (Carrier::NatT, NatT::Ike(bytes)) => return message(self.ike.has_sa_of(path, bytes)),
            (Carrier::RawHip, _) | (Carrier::HipUdp, NatT::Ike(_)) => {
                return message(self.manager.as_ref().is_some_and(|(_, m)| m.knows(path, datagram)));
            }
            (Carrier::NatT | Carrier::HipUdp, NatT::Keepalive | NatT::Malformed) => return None,
            (Carrier::NatT | Carrier::HipUdp, NatT::Esp(_)) | (Carrier::RawEsp, _) => datagram,
        };
        let id = esp.first_chunk().map(|spi| ChildId::new(u32::from_be_bytes(*spi)));
        (others && id.is_some_and(|id| self.sad.get(id).is_none())).then_some(Arrival::Packet)
    }

    /// Until when newcomers should rather wait ([`dormouse_ike::Endpoint::crowded_until`]).
    pub(crate) fn crowded_until(&self) -> Option<Instant> {
        self.ike.crowded_until()
    }

    /// What names a datagram's sender, if it would be the first of a handshake by IKE.
    pub(crate) fn first_of(&self, path: Path, datagram: &[u8]) -> Option<(u64, SocketAddr)> {
        let spi = ike_message(path, datagram).and_then(Endpoint::first_of)?;
        Some((spi, path.remote))
    }

    /// Whether a datagram is of a newcomer that may wait for that, and the SPI that names it.
    pub(crate) fn may_wait(&self, now: Instant, path: Path, datagram: &[u8]) -> Option<u64> {
        let message = ike_message(path, datagram)?;
        let spi = message.first_chunk().map(|spi| u64::from_be_bytes(*spi))?;
        self.ike.may_wait(now, path, message).then_some(spi)
    }

    /// A datagram came in over `path`, the next one of a train.
    ///
    /// # Errors
    /// The reason why it was dropped; it has been counted.
    pub fn handle_next(
        &mut self,
        now: Instant,
        path: Path,
        train: &mut Train,
        datagram: &mut [u8],
    ) -> Result<Inbound, Discard> {
        let natt = match path.carrier {
            Carrier::RawEsp => return self.handle_esp(now, path, train, datagram),
            Carrier::Ike => return self.handle_ike(now, path, datagram),
            Carrier::RawHip => return self.handle_managed(now, path, datagram),
            Carrier::NatT | Carrier::HipUdp => classify_natt(datagram),
        };
        match natt {
            NatT::Keepalive => {
                self.counters.keepalives_in += 1;
                Ok(Inbound::Consumed)
            }
            NatT::Esp(_) => self.handle_esp(now, path, train, datagram),
            NatT::Ike(_) => {
                // It may undo what the packets before it have proved.
                *train = Train::default();
                match path.carrier {
                    Carrier::HipUdp => self.handle_managed(now, path, datagram),
                    _ => self.handle_ike(now, path, datagram.get_mut(4..).unwrap_or_default()),
                }
            }
            NatT::Malformed => {
                self.counters.malformed += 1;
                Err(Discard::Malformed)
            }
        }
    }

    /// A message for the key manager beside IKE.
    fn handle_managed(&mut self, now: Instant, path: Path, message: &mut [u8]) -> Result<Inbound, Discard> {
        let Some((_, manager)) = &mut self.manager else {
            self.counters.malformed += 1;
            return Err(Discard::Malformed);
        };
        let result = manager.handle_datagram(now, path, message);
        self.drain_manager(now);
        result?;
        Ok(Inbound::Consumed)
    }

    fn handle_ike(&mut self, now: Instant, path: Path, message: &mut [u8]) -> Result<Inbound, Discard> {
        let result = self.ike.handle_datagram(now, path, message);
        self.drain_ike(now);
        result?;
        Ok(Inbound::Consumed)
    }

    fn handle_esp(
        &mut self,
        now: Instant,
        path: Path,
        train: &mut Train,
        datagram: &mut [u8],
    ) -> Result<Inbound, Discard> {
        self.sad.handle_timeout(now);
        if self.repairs.answered(datagram) {
            return Ok(Inbound::Consumed);
        }
        let Accepted { id, opened, flow } = match self.sad.open(datagram) {
            Ok(accepted) => accepted,
            Err(dormouse_esp::Discard::Lent { spi }) if self.is_engines(now, path, spi, datagram) => {
                return Ok(Inbound::Consumed);
            }
            // It waits until the SA is here.
            Err(e @ dormouse_esp::Discard::Lent { .. }) => return Err(e.into()),
            Err(e) => {
                if let dormouse_esp::Discard::UnknownSpi { .. } = e
                    && let (Carrier::HipUdp, Some((_, manager))) = (path.carrier, &mut self.manager)
                    && manager.pass_on(now, path, datagram)
                {
                    return Ok(Inbound::Consumed);
                }
                *self.counters.esp_discards.entry(e.name()).or_default() += 1;
                if let dormouse_esp::Discard::UnknownSpi { spi } = e {
                    if let (Carrier::RawEsp | Carrier::HipUdp, Some((_, manager))) =
                        (path.carrier, &mut self.manager)
                    {
                        manager.unknown_spi(now, path);
                        self.drain_manager(now);
                    }
                    // To who is not known HIP says nothing: "it MAY respond (subject to rate limiting the responses) with an ICMP
                    // packet" (RFC 7402 section 5.4.1).
                    if path.carrier != Carrier::HipUdp && self.serves_ike() {
                        self.ike.unknown_esp_spi(now, path, spi);
                        self.drain_ike(now);
                    }
                }
                return Err(e.into());
            }
        };
        if train.settled != Some(id) {
            let Some((owner, state)) = self.sad.get(id).map(|t| (t.owner, t.state())) else {
                return Ok(Inbound::Consumed);
            };
            *train = Train { settled: None, device: self.sessions.get(owner).and_then(|s| s.device) };
            if !matches!(state, State::Draining { .. }) {
                if self.sessions.get(owner).is_some_and(Session::is_tentative) {
                    // The client is there; its packets wait until its ticket is known to count.
                    self.confirm(now, owner, path);
                } else {
                    self.received(now, owner, id, path, opened.seq);
                    train.settled = self.is_settled(owner, id, &path).then_some(id);
                }
            }
        }
        if opened.is_dummy() {
            return Ok(Inbound::Consumed);
        }
        // What is not a whole packet is one when it has been rebuilt.
        let whole = matches!(opened.next_header, protocol::IPV4 | protocol::IPV6);
        if let (Some(devices), Some(device), true) = (&mut self.devices, train.device, whole) {
            devices.observe_inbound(now, device, datagram.get(opened.inner.clone()).unwrap_or_default());
        }
        let (seq, next_header) = (opened.seq, opened.next_header);
        Ok(Inbound::Inner { range: opened.inner, child: id, seq, next_header, flow })
    }

    /// Bookkeeping for an authentic packet: the mapping, the ladder, the successor of a rekeyed tunnel.
    pub(crate) fn received(&mut self, now: Instant, owner: Owner, id: ChildId, path: Path, sequence: u64) {
        let Some(tunnel) = self.sad.get(id) else { return };
        if let State::Standby { replaces: Some(_) } = tunnel.state() {
            // Its peer has installed it.
            self.sad.activate(id);
        }
        let Some(tunnel) = self.sad.get(id) else { return };
        let (moved, life) = (tunnel.path != path, tunnel.inbound.life());
        // "[...] MOBIKE nodes SHOULD inspect the addresses used in those packets [...] If they do not [correspond], such packets SHOULD
        // NOT be used as evidence that the peer is able to communicate with this node" (RFC 4555 section 3.12).
        let ips = |path: &Path| (path.local.ip(), path.remote.ip());
        let proves = ips(&tunnel.path) == ips(&path);
        let Some(session) = self.sessions.get_mut(owner) else { return };
        let first = session.contact.heard.is_none();
        session.contact.received(now, path.carrier, proves);
        let woke = session.ends_sleep(id.spi(), sequence);
        // What a peer sent before it slept does not say where it will be.
        let moved = moved && (woke || !session.is_asleep() || owner.ike().is_some());
        if let Some(missed) = self.missed(owner, id, sequence) {
            self.events.push_back(missed);
        }
        if let Some(sa) = owner.ike().filter(|_| first) {
            self.ike.child_in_use(now, sa);
        }
        if let Some(sa) = owner.ike().filter(|_| woke) {
            self.ike.peer_awake(now, sa);
            self.drain_ike(now);
        }
        if let Some(sa) = owner.ike().filter(|_| moved) {
            self.ike.observed_path(now, sa, path);
            self.drain_ike(now);
        }
        if let (true, Owner::Hip(_), Some((_, manager))) = (moved, owner, &mut self.manager) {
            manager.observed_path(now, owner, path);
            self.drain_manager(now);
        }
        if let (true, Owner::Hip(_), Some((_, manager))) = (woke, owner, &mut self.manager) {
            manager.peer_awake(now, owner);
            self.drain_manager(now);
        }
        self.note_load(now, id);
        self.beside.heard(owner);
        self.tell_of_traffic(now, owner, true);
        if life != Life::Fresh {
            self.rekey_tunnel(now, owner, id);
        }
        if let Some(client) = self.client_of(owner).filter(|_| proves) {
            let before = client.ladder.state();
            client.ladder.inbound(now);
            client.resend.clear();
            let stored = client.heard();
            self.events.extend(stored);
            if before != Ladder::Up {
                self.announce_success(now);
            }
        }
    }

    /// Whether [`Self::received`] would do nothing more for another packet of this tunnel at the same time: it comes the way that
    /// ours go, neither end sleeps, and none is missed. That the SA is due for renewal, the next train says again.
    fn is_settled(&mut self, owner: Owner, id: ChildId, path: &Path) -> bool {
        self.sad.get(id).is_some_and(|t| t.path == *path)
            && self.sessions.get(owner).is_some_and(|s| !s.is_asleep())
            && !(self.is_suspended() && self.client_of(owner).is_some())
            && self.client_of(owner).is_none_or(|c| !c.heard_up_to.contains_key(&id))
    }

    /// The first packet of a tunnel after a sleep shows what was lost meanwhile.
    fn missed(&mut self, owner: Owner, id: ChildId, sequence: u64) -> Option<Event> {
        let asleep = self.is_suspended();
        let client = self.client_of(owner)?;
        if asleep {
            // It was under way when the radio went off.
            let heard = client.heard_up_to.get_mut(&id)?;
            *heard = sequence.max(*heard);
            return None;
        }
        let packets = sequence.saturating_sub(client.heard_up_to.remove(&id)? + 1);
        let connection = client.config.name.clone();
        (packets > 0).then_some(Event::Missed { connection, packets })
    }

    /// A packet that came through this tunnel without its header has it again: what stands in for the device learns from it.
    pub(crate) fn observe_rebuilt(&mut self, now: Instant, id: ChildId, header: &[u8], payload: &[u8]) {
        let Some(devices) = &mut self.devices else { return };
        let session = self.sad.get(id).and_then(|tunnel| self.sessions.get(tunnel.owner));
        if let Some(device) = session.and_then(|s| s.device) {
            devices.observe_inbound(now, device, &[header, payload].concat());
        }
    }

    /// Where a packet of `flow` goes.
    pub fn route(&mut self, flow: &Flow) -> Route {
        let Some(id) = self.sad.route(flow) else { return self.route_without_tunnel(flow) };
        let Some(owner) = self.sad.get(id).map(|t| t.owner) else { return Route::None };
        let session = self.sessions.get(owner);
        if let Some(device) = session
            .and_then(|s| s.device)
            .filter(|device| self.devices.as_ref().is_some_and(|d| d.is_asleep(*device)))
        {
            return Route::StandIn(device);
        }
        let client = session.and_then(|s| self.connections.client(s.connection));
        match client.filter(|c| c.sa == owner.ike()) {
            Some(client) if client.ladder.state() == Ladder::Offline => Route::Hold,
            None if matches!(owner, Owner::Hip(_))
                && (self.is_suspended() || self.beside.revives(flow.dst)) =>
            {
                Route::Hold
            }
            _ => Route::Send(id),
        }
    }

    /// Which CHILD SA sends a packet that [`Self::route`] has led to `child`, where several of its session share the traffic. Ask once for
    /// each packet that is sent. `None`: it must not be sent, because no CHILD SA is there but for others' packets, in clear.
    pub fn among<P: InnerPacket + ?Sized>(&mut self, child: ChildId, packet: &P) -> Option<ChildId> {
        self.sad.among(child, packet.bytes(), packet.packets())
    }

    /// Whether [`Self::among`] depends on the signal of the radio.
    #[must_use]
    pub const fn chooses_by_signal(&self) -> bool {
        self.sad.chooses_by_signal()
    }

    /// Tells it. A machine has one: that of the radio by which it reaches its gateways.
    pub fn set_signal(&mut self, dbm: Option<i8>) {
        self.sad.set_signal(dbm);
    }

    /// The largest inner packet, in bytes, that fits this CHILD SA, whose own is `own`, and those with which it shares the traffic.
    pub(crate) fn narrowest(&self, now: Instant, child: ChildId, own: usize) -> usize {
        self.sad.narrowest(now, child, own)
    }

    fn route_without_tunnel(&self, flow: &Flow) -> Route {
        if let Some(device) = self.devices.as_ref().and_then(|d| d.sleeping_at(flow)) {
            return Route::StandIn(device);
        }
        let wanted = |c: &Client| c.is_wanted() && c.last_selectors.iter().any(|s| s.match_outbound(flow));
        if self.connections.clients().any(wanted) { Route::Hold } else { Route::None }
    }

    /// Gateway: whether a packet that came through this tunnel is for another client, and the configuration keeps one of the two from all
    /// others.
    pub fn isolates(&mut self, id: ChildId, flow: &Flow) -> bool {
        if !self.served.isolating {
            return false;
        }
        let Some(from) = self.sad.get(id).map(|tunnel| tunnel.owner) else { return false };
        let ours = |s: &&Session| self.connections.client(s.connection).is_none();
        let Some(session) = self.sessions.get(from).filter(ours) else { return false };
        let to = self.sad.route(flow).and_then(|child| self.sad.get(child)).map(|tunnel| tunnel.owner);
        match to.filter(|to| *to != from).and_then(|to| self.sessions.get(to)).filter(ours) {
            Some(to) => !to.is_of_peer(session) && (session.isolate || to.isolate),
            None => {
                let devices = self.devices.as_ref();
                let asleep = devices.and_then(|d| Some((d, d.sleeping_at(flow)?)));
                asleep.is_some_and(|(d, to)| {
                    d.of(session) != Some(to) && (session.isolate || d.is_isolated(to))
                })
            }
        }
    }

    /// True if the tunnel belongs to a client connection of ours, or to the key manager beside IKE: its traffic is the device's own.
    #[must_use]
    pub fn is_clients(&self, id: ChildId) -> bool {
        let Some(owner) = self.sad.get(id).map(|t| t.owner) else { return false };
        let session = self.sessions.get(owner);
        let client = session.is_some_and(|s| self.connections.client(s.connection).is_some());
        client || matches!(owner, Owner::Hip(_))
    }

    /// Some client connection is wanted, or the key manager beside IKE has a session.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.connections.clients().any(Client::is_wanted) || self.sessions.any_beside()
    }

    /// Inner addresses that gateways have assigned.
    #[must_use]
    pub fn inner_addresses(&self) -> Vec<std::net::IpAddr> {
        let configured = self.connections.clients().filter_map(|c| c.configured.as_ref());
        configured.flat_map(|(assigned, ..)| assigned.addresses()).collect()
    }

    /// Most packets that wait for their session: as the connections have it, and as many as unless configured otherwise for the key manager
    /// beside IKE.
    pub(crate) fn held_most(&self) -> usize {
        let beside = self.manager.as_ref().map_or(0, |_| MOST_PACKETS);
        self.hold_packets.max(beside)
    }

    /// Packets of every wanted client connection, and of every session beside them, may be sent.
    #[must_use]
    pub fn flows(&self) -> bool {
        let flows = |c: &Client| !c.is_wanted() || c.ladder.data_flows();
        let revived = self.beside.is_settled();
        self.sending.is_allowed() && revived && self.wanted() && self.connections.clients().all(flows)
    }

    /// When the first of the client sessions ends that are held, if it is not renewed.
    #[must_use]
    pub fn first_expiry(&self) -> Option<Instant> {
        let held = self.connections.clients().filter_map(|c| self.ike.describe(c.sa?));
        held.flat_map(|d| d.children.into_iter().map(|c| c.expires_at).chain([d.expires_at])).flatten().min()
    }

    /// Connections that are [wanted](Self::wanted).
    #[must_use]
    pub fn wanted_connections(&self) -> Vec<String> {
        let clients = self.connections.clients().filter(|c| c.is_wanted()).map(|c| c.config.name.clone());
        let beside = self.manager.as_ref().filter(|_| self.sessions.any_beside());
        clients.chain(beside.map(|(id, _)| self.connections.name(*id).to_owned())).collect()
    }

    /// Asks the gateway of every client connection, and every peer beside them, whether it is there: the answer shows it that we listen.
    pub fn ask(&mut self, now: Instant) {
        self.ask_beside(now);
        for client in self.connections.clients_mut() {
            client.ladder.doubt(now, false);
        }
        self.climb(now);
    }

    /// The session of this tunnel, if it was resumed at once and its ticket is not known to count: what comes through it must wait for
    /// [`Event::Judged`].
    #[must_use]
    pub fn unconfirmed(&self, id: ChildId) -> Option<SaId> {
        let owner = self.sad.get(id)?.owner;
        self.sessions.get(owner).filter(|s| s.is_tentative()).and(owner.ike())
    }

    /// Lends a tunnel for sealing.
    pub fn child_mut(&mut self, id: ChildId) -> Option<&mut Tunnel> {
        self.sad.get_mut(id)
    }

    /// A packet is about to be sealed with tunnel `id`.
    pub fn observe_outbound(&mut self, now: Instant, id: ChildId, packet: &[u8]) {
        let Some(owner) = self.sad.get(id).map(|t| t.owner) else { return };
        let Some(session) = self.sessions.get(owner) else { return };
        if let (Some(devices), Some(device)) = (&mut self.devices, session.device) {
            devices.observe_outbound(now, device, packet);
        }
        // A train of segments is its sender's to repeat: it has a session already.
        let single = packet.len() <= usize::from(self.path_mtu);
        if let Some(client) = self.connections.client_mut(session.connection)
            && single
            && client.sa == owner.ike()
        {
            client.copy_unconfirmed(now, packet);
        }
        if single {
            self.beside.copy_unheard(now, owner, packet);
        }
    }

    /// A batch was sealed with tunnel `id` and sent.
    pub fn sent(&mut self, now: Instant, id: ChildId) {
        let Some(tunnel) = self.sad.get(id) else { return };
        let (owner, life) = (tunnel.owner, tunnel.outbound.life());
        if let Some(session) = self.sessions.get_mut(owner) {
            session.contact.sent(now);
        }
        self.tell_of_traffic(now, owner, false);
        self.note_load(now, id);
        if life != Life::Fresh {
            self.rekey_tunnel(now, owner, id);
        }
        if let Some(client) = self.client_of(owner) {
            client.ladder.outbound(now);
        }
    }

    fn tell_of_traffic(&mut self, now: Instant, owner: Owner, heard: bool) {
        if let (Owner::Hip(_), Some((_, manager))) = (owner, &mut self.manager)
            && let Some(session) = self.sessions.get_mut(owner)
            && session.contact.tells(now, heard)
        {
            manager.traffic(now, owner, heard);
        }
    }

    pub(crate) fn rekey_tunnel(&mut self, now: Instant, owner: Owner, id: ChildId) {
        match (owner, &mut self.manager) {
            (Owner::Ike(_), _) => {
                self.ike.rekey_child(now, id);
                self.drain_ike(now);
            }
            (Owner::Hip(_), Some((_, manager))) => {
                manager.rekey_child(now, id);
                self.drain_manager(now);
            }
            (Owner::Hip(_), None) => {}
        }
    }
}

/// The message of IKE in a datagram, if it has one.
fn ike_message(path: Path, datagram: &[u8]) -> Option<&[u8]> {
    match (path.carrier, classify_natt(datagram)) {
        (Carrier::Ike, _) => Some(datagram),
        (Carrier::NatT, NatT::Ike(message)) => Some(message),
        _ => None,
    }
}
