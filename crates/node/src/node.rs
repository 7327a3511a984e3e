//! The node: the key managers, ESP and the wake-up ladders of one machine, joined.
//!
//! Owns which tunnel carries which packet and which session serves which connection. It must never read a clock, open a
//! socket or touch the machine: [`Event`]s say what the driver has to do.
//!
//! # Driving contract
//! - Every datagram from a socket goes to [`Node::handle_next`]. [`Inbound::Inner`] says where in the buffer lies what ESP
//!   carried; [`dormouse_esp::Tunnel::rebuild`] makes it a packet, which the driver writes to the TUN.
//! - For every packet (or super-packet: all its segments are one flow) from the TUN, [`Node::route`] says which tunnel
//!   carries it, [`Node::child_mut`] lends it for sealing in place, and [`Node::sent`] is called after that, once per batch.
//! - After each of these and after every command the contract of [`dormouse_sansio`] holds.

mod handing;
mod manager;
mod shared_store;

use crate::audit::Records;
use crate::client::Client;
use crate::config::Resolved;
use crate::config::file::Role;
use crate::connections::{ConnectionId, Connections};
use crate::devices::Devices;
use crate::event::{Change, Event, Order, Store};
use crate::ladder::{Action, Failure, State};
use crate::lending::Lending;
use crate::repair::Repairs;
use crate::revival::Beside;
use crate::sending::Sending;
use crate::served::Served;
use crate::sessions::Sessions;
use crate::tally::Counters;
use dormouse_esp::{Sad, Spis};
use dormouse_ike::Endpoint;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::RouterPolicy;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Outcome;
use dormouse_keying::{self as keying, ChildId, KeyManager, Owner, SaId};
use dormouse_sansio::{Deadline, Entropy, Instant, Path, Transmit, UnixTime};
use dormouse_standin::DeviceId;
use dormouse_wire::ip::Flow;
use std::collections::VecDeque;
use std::ops::Range;

/// What a datagram turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inbound {
    /// It was for the node itself.
    Consumed,
    /// An inner packet, at this place of the buffer, through this child.
    Inner {
        /// Where the packet lies now.
        range: Range<usize>,
        /// Which tunnel it came through: [`Node::child_mut`] makes it a packet again.
        child: ChildId,
        /// Its number.
        seq: u64,
        /// What it is: 4 or 41 in tunnel mode, otherwise what [`dormouse_esp::Tunnel::rebuild`] takes.
        next_header: u8,
        /// Its flow, in tunnel mode.
        flow: Option<Flow>,
    },
}

/// Why a datagram was dropped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Discard {
    /// IKE did not want it.
    #[error("IKE: {0}")]
    Ike(#[from] dormouse_ike::Discard),
    /// ESP did not want it.
    #[error("ESP: {0}")]
    Esp(#[from] dormouse_esp::Discard),
    /// The key manager beside IKE did not want it.
    #[error("key manager: {0}")]
    Manager(#[from] keying::Discard),
    /// Neither ESP, nor a keepalive, nor for a key manager that there is.
    #[error("neither ESP nor key management")]
    Malformed,
}

/// Where an outgoing packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Seal it with this tunnel.
    Send(ChildId),
    /// A session that would carry it is on its way back: hold the packet until [`Event::Flowing`].
    Hold,
    /// It is for a device that sleeps: [`Node::stand_in`].
    StandIn(DeviceId),
    /// No policy covers it.
    None,
}

/// See the module's documentation.
pub struct Node {
    pub(crate) ike: Endpoint,
    /// The key manager beside IKE, and the connection of its sessions.
    pub(crate) manager: Option<(ConnectionId, Box<dyn KeyManager>)>,
    /// A packet is held for a tunnel that the other key manager is about to order.
    awaited: bool,
    pub(crate) beside: Beside,
    pub(crate) connections: Connections,
    pub(crate) sessions: Sessions,
    pub(crate) devices: Option<Devices>,
    pub(crate) sad: Sad,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    /// What the outer link carries, in bytes.
    pub(crate) path_mtu: u16,
    pub(crate) sending: Sending,
    /// Most packets that the connections would have held for a session.
    pub(crate) hold_packets: usize,
    pub(crate) served: Served,
    pub(crate) records: Records,
    pub(crate) repairs: Repairs,
    pub(crate) lending: Lending,
    /// Access router: whose header keys the connections would have it take.
    pub(crate) router: Option<RouterPolicy>,
    /// Access router: something here uses header keys. Otherwise none are taken.
    pub(crate) reads_headers: bool,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("connections", &self.connections)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// A node of these connections. `endpoint` holds what the connections do not: ports, limits, ticket keys, the pool; its
    /// list of answering connections is filled in here. `entropy` is for IKE, `esp_entropy` for ESP.
    #[must_use]
    pub fn new(
        connections: Vec<Resolved>,
        mut endpoint: EndpointConfig,
        entropy: Box<dyn Entropy>,
        esp_entropy: Box<dyn Entropy>,
    ) -> Self {
        let sad = Sad::new();
        endpoint.spis = Box::new(sad.spis());
        endpoint.open_first_zone = dormouse_esp::open_first_zone;
        let router = crate::config::router(&connections);
        let isolating = connections.iter().any(Resolved::isolates);
        let served = Served { isolating, ..Served::default() };
        let hold_packets = Resolved::most_held(&connections);
        let mut known = Connections::default();
        for connection in connections {
            let name = connection.name.clone();
            let client = match connection.role {
                Role::Gateway => {
                    endpoint.connections.push(connection.ike);
                    None
                }
                Role::Client => Some(Client::new(connection)),
                Role::Hip => None,
            };
            known.add(name, client);
        }
        Self {
            ike: Endpoint::new(endpoint, entropy),
            manager: None,
            connections: known,
            sessions: Sessions::default(),
            devices: None,
            sad,
            entropy: esp_entropy,
            events: VecDeque::new(),
            counters: Counters::default(),
            awaited: false,
            beside: Beside::default(),
            path_mtu: 1500,
            sending: Sending::Allowed,
            hold_packets,
            served,
            records: Records::default(),
            repairs: Repairs::default(),
            lending: Lending::default(),
            router,
            reads_headers: false,
        }
    }

    /// Where key managers get inbound SPIs.
    #[must_use]
    pub fn spis(&self) -> Spis {
        self.sad.spis()
    }

    /// Tells the wall-clock time, for certificates and tickets: at the start and whenever the clock is set.
    pub fn set_wall_clock(&mut self, now: Instant, unix: UnixTime) {
        self.ike.set_wall_clock(now, unix);
        for client in self.connections.clients_mut() {
            client.forget_expired(unix);
        }
    }

    /// Gives a client the ticket of an earlier run.
    pub fn restore_ticket(&mut self, connection: &str, ticket: ClientTicket) {
        if let Some(client) = self.connections.client_named_mut(connection) {
            if let Some(lineage) = ticket.lineage {
                self.ike.set_former_lineage(connection, lineage);
            }
            client.ladder.set_home([ticket.gateway.ip()].into());
            client.set_ticket(Some(ticket));
        }
    }

    /// What the outer link carries, in bytes.
    pub fn set_path_mtu(&mut self, mtu: u16) {
        self.path_mtu = mtu;
        for child in self.sad.iter_mut() {
            child.pmtu.set_link(&child.path, mtu);
        }
    }

    // ---- commands -------------------------------------------------------------------------------------------------

    /// The client connection is wanted. False if there is none of this name.
    pub fn up(&mut self, now: Instant, connection: &str) -> bool {
        let Some(client) = self.connections.client_named_mut(connection) else { return false };
        client.on_demand = true;
        client.ladder.up(now, self.sending.is_allowed());
        self.climb(now);
        true
    }

    /// The client connection is no longer wanted: its SA is deleted at both ends, and its ticket first.
    /// "when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the ticket MUST be deleted" (RFC
    /// 5723 section 6.2)
    pub fn down(&mut self, now: Instant, connection: &str) -> bool {
        self.take_down(now, connection, "by request")
    }

    pub(crate) fn take_down(&mut self, now: Instant, connection: &str, why: &str) -> bool {
        self.forget_redirect(connection);
        let Some(client) = self.connections.client_named_mut(connection) else { return false };
        client.ladder.down();
        client.on_demand = false;
        client.resend.clear();
        client.set_ticket(None);
        let (held, attempt) = (client.sa.take(), client.attempt.take());
        let configured = client.configured.take().is_some();
        self.order(Order::Store(Store::Ticket { connection: connection.into(), bytes: None }));
        if let Some(sa) = attempt {
            self.abandon(now, sa);
        }
        if let Some(sa) = held {
            self.ike.close(now, sa);
            self.drain_ike(now);
        }
        if configured {
            self.order(Order::Unconfigure { connection: connection.into() });
        }
        self.changed(Change::Down { connection: connection.into(), why: why.into() });
        true
    }

    /// The way to a connection's gateway: a path, or `None` without a network.
    pub fn set_network(&mut self, now: Instant, connection: &str, path: Option<Path>) {
        if let Some(client) = self.connections.client_named_mut(connection) {
            let cut_off = client.ladder.state() == State::Offline;
            client.ladder.network(now, path, self.sending.is_allowed());
            if let Some(sa) = client.sa.filter(|_| cut_off && client.ladder.state() != State::Offline) {
                self.ike.reachable(now, sa);
            }
        }
        self.climb(now);
        self.announce_flow();
    }

    /// The daemon stops: every session ends, in every role, without a word where a ticket brings it back.
    pub fn leave(&mut self, now: Instant) {
        self.served.leaving = true;
        for client in self.connections.clients_mut() {
            client.ladder.down();
            client.resend.clear();
            client.sa = None;
            if let Some(sa) = client.attempt.take() {
                self.ike.forget(now, sa);
            }
        }
        for sa in self.sessions.ike_sas() {
            self.ike.leave(now, sa);
        }
        self.drain_ike(now);
    }

    /// Gateway: what became of an operation of [`Order::Lineage`] that `sa` waits for.
    pub fn stored(&mut self, now: Instant, sa: SaId, outcome: Outcome) {
        self.ike.stored(now, sa, outcome);
        self.drain_ike(now);
    }

    /// Gateway: whether the store of lineages can be asked. While it cannot, tickets are refused.
    pub fn set_store(&mut self, reachable: bool) {
        self.ike.set_store(reachable);
    }

    /// The radio goes to sleep: nothing is due until [`Node::resume`]. Better after [`Node::prepare_sleep`] and its
    /// [`Event::SleepReady`]: then the gateway knows.
    pub fn suspend(&mut self, now: Instant) {
        let unready: Vec<ConnectionId> = self.connections.client_ids().collect();
        for id in unready {
            self.announcement_lost(id);
        }
        self.announcement_lost_beside();
        self.repairs.leave_all(now);
        self.sending = Sending::Stopped { since: now };
        let held: Vec<SaId> = self.connections.clients().filter_map(|c| c.sa).collect();
        for client in self.connections.clients_mut() {
            client.ladder.sleep(now);
            let children = client.sa.map_or(&[][..], |sa| self.sad.of(Owner::Ike(sa)));
            let inbound = |id: &ChildId| Some((*id, self.sad.get(*id)?.inbound.sequence()));
            client.heard_up_to = children.iter().filter_map(inbound).collect();
        }
        let held = held.into_iter().map(Owner::Ike).chain(self.sessions.beside());
        held.for_each(|owner| self.sad.end_draining_of(owner));
        self.climb(now);
    }

    /// Nothing is sent until [`Node::resume`].
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        !self.sending.is_allowed()
    }

    /// The radio is back.
    pub fn resume(&mut self, now: Instant) {
        let slept_since = self.sending.allow();
        for client in self.connections.clients_mut() {
            if let Some(sa) = client.sa {
                self.ike.woke(now, sa);
            }
        }
        // What has lived its time during the sleep goes before anything is sent by it: what the gateway keeps would come back by it.
        self.ike_timeout(now);
        for client in self.connections.clients_mut() {
            client.trust_ticket();
            client.ladder.wake(now, slept_since);
        }
        self.climb(now);
        self.announce_flow();
        self.revive_beside(now, slept_since.is_some());
    }

    /// Climbs one rung of a session that is up, to measure it ([`crate::ladder::Ladder::exercise`]): a success is announced like a wake.
    /// False if there is no such connection, or it cannot be done now.
    pub fn exercise(&mut self, now: Instant, connection: &str, rung: crate::ladder::Rung) -> bool {
        let begun =
            self.connections.client_named_mut(connection).is_some_and(|c| c.ladder.exercise(now, rung));
        self.climb(now);
        begun
    }

    fn ike_timeout(&mut self, now: Instant) {
        if self.ike.poll_timeout().is_none_or(|d| d.at > now) {
            return;
        }
        for (owner, session) in self.sessions.iter_mut() {
            if let Some(sa) = owner.ike()
                && let Some((sent, received)) = session.contact.take_news()
            {
                self.ike.note_traffic(now, sa, sent, received);
            }
        }
        self.ike.handle_timeout(now);
        self.drain_ike(now);
    }

    // ---- the verbs ------------------------------------------------------------------------------------------------

    /// Acts on all that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.quiet() {
            self.ike_timeout(now);
        }
        if self.manager_deadline().is_some_and(|d| d.at <= now)
            && let Some((_, manager)) = &mut self.manager
        {
            manager.handle_timeout(now);
            self.drain_manager(now);
        }
        if self.sending.is_allowed() {
            self.revival_timeout(now);
        }
        self.repairs.handle_timeout(now);
        self.lending_timeout(now);
        self.radius_timeout(now);
        let mut came_up = false;
        for id in self.connections.client_ids() {
            let expired = self.connections.client_mut(id).and_then(|c| {
                let before = c.ladder.state();
                c.ladder.handle_timeout(now);
                came_up |= before != State::Up && c.ladder.state() == State::Up;
                c.ladder.take_expired()
            });
            if let Some(rung) = expired {
                self.rung_unanswered(now, id, rung);
            }
        }
        self.with_devices(|d, around| d.handle_timeout(now, around));
        self.sad.handle_timeout(now);
        if came_up { self.announce_success(now) } else { self.climb(now) }
    }

    /// The next datagram to send; its bytes are appended to `out`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let of_ike = self.ike.poll_transmit(now, out);
        of_ike.or_else(|| self.manager.as_mut()?.1.poll_transmit(now, out))
    }

    /// When [`Node::handle_timeout`] is wanted. While the radio sleeps, or there is no network, upkeep of the sessions does not
    /// count: a node that is nothing but a client has no deadline then.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let devices = self.devices.as_ref().and_then(Devices::poll_timeout);
        let firsts = self.upkeep([self.ike.poll_timeout()], [self.sad.poll_timeout()].into_iter().flatten());
        Deadline::earliest(firsts.chain(devices).chain(self.manager_deadline()).chain(self.others()))
    }

    /// Every timer that is running, with its reason: none of a client while the radio sleeps. [`Node::poll_timeout`] is the first.
    #[must_use]
    pub fn deadlines(&self) -> Vec<Deadline> {
        let devices = self.devices.iter().flat_map(Devices::timers);
        let upkeep = self.upkeep(self.ike.timers().into_iter().map(Some), self.sad.timers());
        upkeep.chain(devices).chain(self.manager_timers()).chain(self.others()).collect()
    }

    /// Of the timers of IKE and of draining tunnels, those that count now.
    fn upkeep(
        &self,
        ike: impl IntoIterator<Item = Option<Deadline>>,
        draining: impl Iterator<Item = Deadline>,
    ) -> impl Iterator<Item = Deadline> {
        let quiet = self.quiet();
        // What is left of a replaced tunnel costs nothing while the radio sleeps.
        let draining = draining.filter(|_| self.sending.is_allowed());
        ike.into_iter().flatten().chain(draining).filter(move |_| !quiet)
    }

    /// The timers of the ladders, of sessions that are on their way back, of repairs, loans and RADIUS.
    fn others(&self) -> impl Iterator<Item = Deadline> {
        let ladders = self.connections.clients().filter_map(|c| c.ladder.poll_timeout());
        let back = self.beside.deadline().filter(|_| self.sending.is_allowed());
        let gateway = self.lending.poll_timeout().into_iter().chain(self.radius_timers());
        ladders.chain(back).chain(self.repairs.timers()).chain(gateway)
    }

    /// Nothing that IKE could send would arrive: every session of its own is a client's, and no client has a network and a radio.
    fn quiet(&self) -> bool {
        let cut_off = |c: &Client| self.is_suspended() || c.ladder.state() == State::Offline;
        let mut clients = self.connections.clients().peekable();
        let mut sessions =
            self.sessions.iter().filter(|(owner, _)| owner.ike().is_some()).map(|(_, s)| s.connection);
        clients.peek().is_some()
            && sessions.all(|id| self.connections.client(id).is_some())
            && clients.all(cut_off)
    }

    /// Whether [`Node::poll_event`] has something.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

    /// The client that this SA serves, if it is the one that serves it now.
    pub(crate) fn client_of(&mut self, owner: Owner) -> Option<&mut Client> {
        let connection = self.sessions.get(owner)?.connection;
        self.connections.client_mut(connection).filter(|c| c.sa.map(Owner::Ike) == Some(owner))
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn order(&mut self, order: Order) {
        // Routes that are set anew would lead past the other engine, or another peer's to it.
        match &order {
            Order::Configure { .. } => self.recall_all(),
            Order::PeerRoutes { routes, .. } => self.recall_within(routes),
            _ => {}
        }
        self.push(Event::Order(order));
    }

    pub(crate) fn changed(&mut self, change: Change) {
        self.push(Event::Changed(change));
    }

    /// Carries out what the ladders want.
    pub(crate) fn climb(&mut self, now: Instant) {
        for id in self.connections.client_ids() {
            while let Some(action) = self.connections.client_mut(id).and_then(|c| c.ladder.poll_action()) {
                tracing::debug!(connection = self.connections.name(id), ?action, "ladder");
                self.carry_out(now, id, action);
            }
        }
        self.drain_ike(now);
    }

    fn carry_out(&mut self, now: Instant, id: ConnectionId, action: Action) {
        let Some(client) = self.connections.client_mut(id) else { return };
        if matches!(action, Action::Resume(_) | Action::Connect(_)) {
            client.too_big = None;
        }
        match action {
            Action::Update(path) => {
                if let Some(sa) = client.sa {
                    let session = self.sessions.get(Owner::Ike(sa));
                    let moves = session.is_some_and(|s| s.path.local.ip() != path.local.ip());
                    if moves && !self.ike.can_move(sa) {
                        return self.held_failed(now, sa, Failure::Lost);
                    }
                    self.ike.set_path(now, sa, path);
                    // The update under way serves as the question; its answer is the confirmation.
                    self.ike.probe(now, sa, client.config.deadlines.probe);
                }
            }
            Action::Probe(limit) => {
                if let Some(sa) = client.sa {
                    self.ike.probe(now, sa, limit);
                }
            }
            Action::Resume(path) => match client.ticket().cloned() {
                Some(ticket) => {
                    self.ike.set_same_name(&client.config.name, Vec::new());
                    client.attempt = Some(self.ike.resume(now, client.config.ike.clone(), ticket, path))
                }
                None => {
                    client.ladder.failed(now, Failure::TicketRefused);
                    self.climb(now);
                }
            },
            Action::Connect(path) => {
                let others = client.same_name(now, path.remote.ip());
                self.ike.set_same_name(&client.config.name, others);
                client.attempt = Some(self.ike.connect(now, client.config.ike.clone(), path))
            }
            Action::Abandon => {
                let (attempt, held) =
                    (client.attempt.take(), client.sa.take_if(|_| !client.ladder.data_flows()));
                if held.is_some() {
                    self.resend_copies(now, id);
                }
                for sa in attempt.into_iter().chain(held) {
                    self.abandon(now, sa);
                }
            }
        }
    }

    /// Forgets an SA without telling the peer.
    fn abandon(&mut self, now: Instant, sa: SaId) {
        self.ike.forget(now, sa);
        self.drain_ike(now);
    }

    /// After a ladder succeeded: carries out what it wants, and announces the success and that packets may flow.
    pub(crate) fn announce_success(&mut self, now: Instant) {
        self.climb(now);
        for client in self.connections.clients_mut() {
            if let Some(wake) = client.unannounced_success() {
                let took_ms = u64::try_from(wake.took.as_millis()).unwrap_or(u64::MAX);
                let up = Change::Up { connection: client.config.name.clone(), rung: wake.rung, took_ms };
                self.events.push_back(Event::Changed(up));
            }
        }
        self.announce_flow();
    }

    pub(crate) fn announce_flow(&mut self) {
        if self.connections.clients().any(|c| c.ladder.data_flows()) {
            self.push(Event::Flowing);
        }
    }

    /// Handles everything that IKE reports.
    pub(crate) fn drain_ike(&mut self, now: Instant) {
        while let Some(event) = self.ike.poll_event() {
            self.ike_reports(now, event);
        }
        // "[...] a client MUST NOT reuse a ticket" (RFC 5723 section 4.3.1): what was used goes, unless its successor came with the
        // same answer.
        for connection in self.connections.clients_mut().filter_map(Client::used_up) {
            self.events.push_back(Event::Order(Order::Store(Store::Ticket { connection, bytes: None })));
        }
    }
}
