//! The node: IKE, ESP and the wake-up ladders of one machine, joined.
//!
//! Owns which CHILD SA carries which packet and which IKE SA serves which connection. It must never read a clock, open a
//! socket or touch the machine: [`Event`]s say what the driver has to do.
//!
//! # Driving contract
//! - Every datagram from a UDP or raw ESP socket goes to [`Node::handle_datagram`]. [`Inbound::Inner`] says where in the buffer
//!   the inner packet lies now; the driver writes it to the TUN.
//! - For every packet (or super-packet: all its segments are one flow) from the TUN, [`Node::route`] says which child carries
//!   it, [`Node::child_mut`] lends it for sealing in place, and [`Node::sent`] is told afterwards, once per batch.
//! - After each of these and after every command: [`Node::poll_event`] until `None`, then [`Node::poll_transmit`] until `None`,
//!   then sleep until [`Node::poll_timeout`] and call [`Node::handle_timeout`]. Events come first: what must be durable before an
//!   answer leaves is among them.

use crate::child::Suite;
use crate::client::{Client, failure_of};
use crate::config::Resolved;
use crate::config::file::Role;
use crate::event::{Change, Event, FailureKind, Offer};
use crate::ladder::{Action, Failure, Rung, State};
use crate::late::Late;
use crate::standin::Desk;
use dormouse_esp::Sad;
use dormouse_ike::Endpoint;
use dormouse_ike::config::{Connection, EndpointConfig};
use dormouse_ike::ticket::ClientTicket;
use dormouse_keying::{ChildId, ChildSa, Install, SaId};
use dormouse_sansio::{Deadline, Entropy, Instant, Path, Transmit, UnixTime};
use dormouse_standin::DeviceId;
use dormouse_wire::ip::Flow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// What a datagram turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inbound {
    /// It was for the node itself.
    Consumed,
    /// An inner packet, at this place of the buffer, through this child.
    Inner {
        /// Where the packet lies now.
        range: Range<usize>,
        /// Which child it came through.
        child: u64,
        /// What it is: 4 or 41 in tunnel mode, the transport protocol in transport mode.
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
    /// Neither IKE, nor ESP, nor a keepalive.
    #[error("neither IKE nor ESP")]
    Malformed,
}

/// Where an outgoing packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Seal it with this child.
    Send(u64),
    /// A session that would carry it is on its way back: hold the packet until [`Event::Flowing`].
    Hold,
    /// It is for a device that sleeps: [`Node::stand_in`].
    StandIn(DeviceId),
    /// No policy covers it.
    None,
}

/// What the node has counted since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// NAT keepalives received.
    pub keepalives_in: u64,
    /// ESP packets dropped, for whatever reason.
    pub esp_discards: u64,
    /// ESP packets dropped because nobody knows their SPI.
    pub unknown_spi: u64,
    /// Datagrams that were neither IKE nor ESP.
    pub malformed: u64,
}

/// What a connection's configuration says of its children.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) ike: Arc<Connection>,
}

/// A child as IKE knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) sa: SaId,
    pub(crate) child: ChildId,
    pub(crate) suite: Suite,
    /// Gateway: the device at the other end, if it is stood in for while it sleeps.
    pub(crate) device: Option<DeviceId>,
}

/// One established IKE SA.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: String,
    pub(crate) peer: String,
    pub(crate) path: Path,
    pub(crate) established: Instant,
    pub(crate) resumed: bool,
    pub(crate) routes: Vec<ipnet::IpNet>,
    pub(crate) assigned: dormouse_ike::config_payload::AssignedConfig,
    pub(crate) children: Vec<u64>,
    /// When ESP was last sent and received: it stands in for liveness checks and keepalives.
    pub(crate) last_sent: Option<Instant>,
    pub(crate) last_received: Option<Instant>,
    /// When ESP was last received, told to IKE or not.
    pub(crate) heard: Option<Instant>,
    /// ESP was sent, ever.
    pub(crate) spoke: bool,
    /// It was resumed at once, and its client has not shown yet that it is there: nothing is sent, nobody told.
    pub(crate) tentative: bool,
    /// The peer's device sleeps; how far its ESP had come.
    pub(crate) asleep: Option<Vec<dormouse_ike::Mark>>,
    /// Both ends know the dormancy extension.
    pub(crate) dormancy: bool,
}

/// See the module's documentation.
pub struct Node {
    pub(crate) ike: Endpoint,
    pub(crate) sad: Sad,
    entropy: Box<dyn Entropy>,
    pub(crate) clients: BTreeMap<String, Client>,
    pub(crate) policies: BTreeMap<String, Policy>,
    pub(crate) sessions: BTreeMap<SaId, Session>,
    /// What is known of each child besides its ESP state.
    pub(crate) known: BTreeMap<u64, Known>,
    /// Replaced children that still send until their successor is known to be installed.
    pub(crate) pending_activation: BTreeMap<u64, u64>,
    pub(crate) late: Late,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    pub(crate) path_mtu: u16,
    pub(crate) desk: Option<Desk>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("clients", &self.clients.keys())
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
        let (mut clients, mut policies) = (BTreeMap::new(), BTreeMap::new());
        for connection in connections {
            policies.insert(connection.name.clone(), Policy { ike: connection.ike.clone() });
            match connection.role {
                Role::Gateway => endpoint.connections.push(connection.ike),
                Role::Client => {
                    clients.insert(connection.name.clone(), Client::new(connection));
                }
            }
        }
        Self {
            ike: Endpoint::new(endpoint, entropy),
            sad: Sad::new(),
            entropy: esp_entropy,
            clients,
            policies,
            sessions: BTreeMap::new(),
            known: BTreeMap::new(),
            pending_activation: BTreeMap::new(),
            late: Late::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            path_mtu: 1500,
            desk: None,
        }
    }

    /// Tells the wall-clock time, for certificates and tickets: at the start and whenever the clock is set.
    pub fn set_wall_clock(&mut self, now: Instant, unix: UnixTime) {
        self.ike.set_wall_clock(now, unix);
        for client in self.clients.values_mut() {
            client.forget_expired(unix);
        }
    }

    /// Gives a client the ticket of an earlier run.
    pub fn restore_ticket(&mut self, connection: &str, ticket: ClientTicket) {
        if let Some(client) = self.clients.get_mut(connection) {
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
        let Some(client) = self.clients.get_mut(connection) else { return false };
        client.ladder.up(now);
        self.climb(now);
        true
    }

    /// The client connection is no longer wanted: its SA is deleted at both ends, and, as when a user
    /// logs out, "the ticket MUST be deleted" (RFC 5723 section 6.2).
    pub fn down(&mut self, now: Instant, connection: &str) -> bool {
        let Some(client) = self.clients.get_mut(connection) else { return false };
        client.ladder.down();
        client.unconfirmed.clear();
        client.set_ticket(None);
        let (held, attempt) = (client.sa.take(), client.attempt.take());
        let configured = client.configured.take().is_some();
        self.events.push_back(Event::Ticket { connection: connection.into(), bytes: None });
        if let Some(sa) = attempt {
            self.abandon(now, sa);
        }
        if let Some(sa) = held {
            self.ike.close(now, sa);
            self.drain_ike(now);
        }
        if configured {
            self.events.push_back(Event::Unconfigure { connection: connection.into() });
        }
        self.changed(Change::Down { connection: connection.into(), why: "by request".into() });
        true
    }

    /// The way to a connection's gateway: a path, or `None` without a network.
    pub fn set_network(&mut self, now: Instant, connection: &str, path: Option<Path>) {
        if let Some(client) = self.clients.get_mut(connection) {
            let cut_off = client.ladder.state() == State::Offline;
            client.ladder.network(now, path);
            if let Some(sa) = client.sa.filter(|_| cut_off && client.ladder.state() != State::Offline) {
                self.ike.reachable(now, sa);
            }
        }
        self.climb(now);
        self.announce_flow();
    }

    /// The daemon stops: the ticket stays for the next start, and so does the SA at the gateway if there is one.
    pub fn leave(&mut self, now: Instant, connection: &str) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        client.ladder.down();
        client.unconfirmed.clear();
        let (held, attempt) = (client.sa.take(), client.attempt.take());
        if let Some(sa) = attempt {
            self.abandon(now, sa);
        }
        if let Some(sa) = held {
            self.ike.leave(now, sa);
            self.drain_ike(now);
        }
    }

    /// Ends every session, in every role: those that a ticket brings back without a word.
    pub fn close_all(&mut self, now: Instant) {
        let sas: Vec<SaId> = self.sessions.keys().copied().collect();
        for sa in sas {
            self.ike.leave(now, sa);
        }
        self.drain_ike(now);
    }

    /// Every spent ticket that still counts, to rewrite the log of them.
    #[must_use]
    pub fn spent_tickets(&self) -> Vec<u8> {
        self.ike.spent_tickets()
    }

    /// The radio goes to sleep: nothing is due until [`Node::resume`]. Better after [`Node::prepare_sleep`] and its
    /// [`Event::SleepReady`]: then the gateway knows.
    pub fn suspend(&mut self, now: Instant) {
        let unready: Vec<String> =
            self.clients.iter().filter(|(_, c)| c.preparing).map(|(name, _)| name.clone()).collect();
        unready.iter().for_each(|name| self.announcement_lost(name));
        for client in self.clients.values_mut() {
            client.ladder.sleep(now);
            client.asleep = true;
            let children = client.sa.and_then(|sa| self.sessions.get(&sa)).map(|s| s.children.as_slice());
            let inbound = |id: &u64| Some((*id, self.sad.get(*id)?.inbound.sequence()));
            client.heard_up_to = children.unwrap_or_default().iter().filter_map(inbound).collect();
        }
        let held: Vec<SaId> = self.clients.values().filter_map(|c| c.sa).collect();
        self.end_late_of(&held);
        self.climb(now);
    }

    /// The radio is back.
    pub fn resume(&mut self, now: Instant) {
        for client in self.clients.values_mut() {
            client.asleep = false;
            if let Some(sa) = client.sa {
                self.ike.woke(now, sa);
            }
            client.ladder.wake(now);
        }
        self.climb(now);
        self.announce_flow();
    }

    /// Climbs one rung of a session that is up, to measure it ([`crate::ladder::Ladder::exercise`]): a success is announced like a wake.
    /// False if there is no such connection, or it cannot be done now.
    pub fn exercise(&mut self, now: Instant, connection: &str, rung: crate::ladder::Rung) -> bool {
        let begun = self.clients.get_mut(connection).is_some_and(|c| c.ladder.exercise(now, rung));
        self.climb(now);
        begun
    }

    // ---- the verbs ------------------------------------------------------------------------------------------------

    /// Acts on whatever is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.quiet() && self.ike.poll_timeout().is_some_and(|d| d.at <= now) {
            for (sa, session) in &mut self.sessions {
                if session.last_sent.is_some() || session.last_received.is_some() {
                    self.ike.note_traffic(now, *sa, session.last_sent.take(), session.last_received.take());
                }
            }
            self.ike.handle_timeout(now);
            self.drain_ike(now);
        }
        for client in self.clients.values_mut() {
            client.ladder.handle_timeout(now);
        }
        let expired =
            self.clients.iter_mut().filter_map(|(n, c)| Some((n.clone(), c.ladder.take_expired()?)));
        for (name, rung) in expired.collect::<Vec<_>>() {
            self.rung_unanswered(&name, rung);
        }
        self.desk_timeout(now);
        self.end_late(now);
        self.climb(now);
    }

    /// The next datagram to send; its bytes are appended to `out`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.ike.poll_transmit(now, out)
    }

    /// When [`Node::handle_timeout`] is wanted. While the radio sleeps, or there is no network, upkeep of the sessions does not
    /// count: a node that is nothing but a client has no deadline then.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let upkeep = || Deadline::earlier(self.ike.poll_timeout(), self.late.deadline());
        let upkeep = if self.quiet() { None } else { upkeep() };
        let ladders = self.clients.values().filter_map(|c| c.ladder.poll_timeout());
        let first = ladders.fold(upkeep, |a, b| Deadline::earlier(a, Some(b)));
        Deadline::earlier(first, self.desk_deadline())
    }

    /// Nothing that IKE could send would arrive.
    pub(crate) fn quiet(&self) -> bool {
        let cut_off = |c: &Client| c.asleep || c.ladder.state() == State::Offline;
        let only_client = self.sessions.values().all(|s| self.clients.contains_key(&s.connection));
        !self.clients.is_empty() && only_client && self.clients.values().all(cut_off)
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

    pub(crate) fn client_of(&mut self, sa: SaId) -> Option<&mut Client> {
        let session = self.sessions.get(&sa)?;
        self.clients.get_mut(&session.connection).filter(|c| c.sa == Some(sa))
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn changed(&mut self, change: Change) {
        self.events.push_back(Event::Changed(change));
    }

    /// Carries out what the ladders want.
    pub(crate) fn climb(&mut self, now: Instant) {
        let names: Vec<String> = self.clients.keys().cloned().collect();
        for name in names {
            while let Some(action) = self.clients.get_mut(&name).and_then(|c| c.ladder.poll_action()) {
                tracing::debug!(connection = %name, ?action, "ladder");
                self.act(now, &name, action);
            }
        }
        self.drain_ike(now);
    }

    fn act(&mut self, now: Instant, name: &str, action: Action) {
        let Some(client) = self.clients.get_mut(name) else { return };
        match action {
            Action::Update(path) => {
                if let Some(sa) = client.sa {
                    let moves = self.sessions.get(&sa).is_some_and(|s| s.path.local.ip() != path.local.ip());
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
            Action::Resume(path) => match client.take_ticket() {
                Some(ticket) => {
                    client.attempt = Some(self.ike.resume(now, client.config.ike.clone(), ticket, path))
                }
                None => {
                    client.ladder.failed(now, Failure::TicketRefused);
                    self.climb(now);
                }
            },
            Action::Connect(path) => {
                client.attempt = Some(self.ike.connect(now, client.config.ike.clone(), path))
            }
            Action::Abandon => {
                let (attempt, held) =
                    (client.attempt.take(), client.sa.take_if(|_| !client.ladder.data_flows()));
                if held.is_some() {
                    self.resend_copies(now, name);
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

    /// After a ladder changed: announces success, and packets that may flow.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.climb(now);
        let mut ups = Vec::new();
        for (name, client) in &mut self.clients {
            if let Some(wake) = client.news() {
                let took_ms = u64::try_from(wake.took.as_millis()).unwrap_or(u64::MAX);
                ups.push(Change::Up { connection: name.clone(), rung: wake.rung, took_ms });
            }
        }
        for up in ups {
            self.changed(up);
        }
        self.announce_flow();
    }

    pub(crate) fn announce_flow(&mut self) {
        if self.clients.values().any(|c| c.ladder.data_flows()) {
            self.push(Event::Flowing);
        }
    }

    /// Applies a change of the ESP side.
    pub(crate) fn apply_child(&mut self, now: Instant, change: ChildSa) {
        match change {
            ChildSa::Install(install) => self.install(now, *install),
            ChildSa::Remap { owner, path } => {
                let Some(sa) = owner.ike() else { return };
                for (id, known) in self.known.iter().filter(|(_, k)| k.sa == sa) {
                    if let Some(child) = self.sad.get_mut(*id) {
                        crate::child::remap(child, known.suite, path, self.path_mtu);
                    }
                }
                if let Some(client) = self.client_of(sa) {
                    client.ladder.moved(path);
                }
            }
            ChildSa::Remove { child, owner } => {
                let (Some(sa), child) = (owner.ike(), u64::from(child.spi())) else { return };
                self.pending_activation.remove(&child);
                // The peer has removed the old one, so it has the new one: from now on that sends.
                let waiting: Vec<u64> = self
                    .pending_activation
                    .iter()
                    .filter(|(_, old)| **old == child)
                    .map(|(new, _)| *new)
                    .collect();
                for new in waiting {
                    self.pending_activation.remove(&new);
                    self.sad.activate(new);
                }
                self.retire(now, sa, child);
            }
        }
    }

    fn install(&mut self, now: Instant, install: Install) {
        let id = u64::from(install.child.spi());
        let (replaces, send_now) = (install.replaces.map(|old| u64::from(old.spi())), install.send_now);
        let Some(sa) = install.owner.ike() else { return };
        let local = crate::child::Local { link_mtu: self.path_mtu };
        let child = match crate::child::build(&install, local, &mut *self.entropy) {
            Ok(child) => child,
            Err(e) => {
                // Cannot happen with a suite that IKE negotiated from the same table.
                tracing::error!(%e, "a CHILD SA could not be installed");
                return;
            }
        };
        self.sad.insert(child);
        self.known.insert(id, Known { sa, child: install.child, suite: Suite::of(&install), device: None });
        match replaces {
            Some(old) if !send_now => {
                self.pending_activation.insert(id, old);
            }
            None if !send_now => {}
            _ => {
                self.sad.activate(id);
                if let Some(old) = replaces {
                    self.sad.deactivate(old);
                }
            }
        }
        if let Some(session) = self.sessions.get_mut(&sa) {
            session.children.push(id);
        }
        self.child_installed(now, sa, id);
    }

    /// Handles everything that IKE reports.
    pub(crate) fn drain_ike(&mut self, now: Instant) {
        while let Some(event) = self.ike.poll_event() {
            self.apply(now, event);
        }
        // "[...] a client MUST NOT reuse a ticket" (RFC 5723 section 4.3.1): what was used goes, unless its successor came with the
        // same answer.
        let used: Vec<String> = self.clients.values_mut().filter_map(Client::used_up).collect();
        for connection in used {
            self.events.push_back(Event::Ticket { connection, bytes: None });
        }
    }

    /// Nobody answered while a rung was tried: people are told, as of any failure.
    pub(crate) fn rung_unanswered(&mut self, connection: &str, rung: Rung) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let limit = client.ladder.deadline_of(rung);
        let gateway = client.config.gateway.as_deref().unwrap_or("the gateway");
        let why = format!("{gateway} did not answer within {limit:?}");
        client.last_error = Some((why.clone(), FailureKind::Timeout));
        client.last_offer = Offer::default();
        let (connection, kind, offer) = (connection.to_owned(), FailureKind::Timeout, Offer::default());
        self.changed(Change::RungFailed { connection, rung, why, kind, offer });
    }

    pub(crate) fn ladder_failed(
        &mut self,
        now: Instant,
        connection: &str,
        error: &dormouse_ike::NegotiationError,
    ) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let (failure, kind) = failure_of(error);
        if let State::Climbing(rung) = client.ladder.state() {
            let (connection, why) = (connection.to_owned(), error.to_string());
            let offer = Offer::of(error);
            self.events.push_back(Event::Changed(Change::RungFailed { connection, rung, why, kind, offer }));
        }
        client.ladder.failed(now, failure);
        self.climb(now);
    }
}
