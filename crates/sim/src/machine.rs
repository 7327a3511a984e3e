//! One simulated machine: the host core that ships, its disk, its radio, and what its kernel would say about the network. Owns what it
//! remembers and has counted, and how its process begins and ends; how it is driven is [`crate::drive`]'s.

use crate::drive::Kernel;
use crate::ends::EPOCH;
use crate::shared::Member;
use crate::store;
use dormouse_ike::EndpointConfig;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Memory;
use dormouse_keying::HeaderOrder;
use dormouse_node::config::{Resolved, parse, resolve};
use dormouse_node::handover::Handover;
use dormouse_node::host::{Host, Side, Store};
use dormouse_node::ladder::Rung;
use dormouse_node::pool::{Addresses, Change as LeaseChange, Lessee, SharedPool};
use dormouse_node::shared::Report;
use dormouse_node::sleeper::{self, Settings, State};
use dormouse_node::{Change, Node, SleepFlags, SleepVerdict};
use dormouse_sansio::{Instant, Path, Seeded, UnixTime};
use dormouse_wire::ip::{self, udp};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What outlives the process.
#[derive(Clone, Default, Debug)]
pub struct Disk {
    /// Tickets of client connections.
    pub tickets: BTreeMap<String, Vec<u8>>,
    /// The gateway's lineages.
    pub lineages: Memory,
    /// The gateway's ticket keys.
    pub ticket_keys: Vec<u8>,
    /// The gateway's leases, the latest last.
    pub leases: Vec<(Lessee, Addresses)>,
    /// What the sleeper has learned.
    pub history: Option<Vec<u8>>,
}

impl Disk {
    /// A lease was given, used or taken.
    pub(crate) fn lease(&mut self, change: LeaseChange) {
        let (LeaseChange::Lease { holder, .. } | LeaseChange::Evict { holder }) = &change;
        self.leases.retain(|(other, _)| other != holder);
        if let LeaseChange::Lease { holder, addresses } = change {
            self.leases.push((holder, addresses));
        }
    }
}

/// The process hears what was written beside it.
pub(crate) fn hear(host: &mut Host, now: Instant, done: store::Done) {
    match done {
        store::Done::Outcome(sa, outcome) => host.stored(now, sa, outcome),
        store::Done::Leased(number) => host.leased(now, number),
    }
}

/// A simulated radio.
#[derive(Debug)]
pub struct Radio {
    /// It has power and is associated.
    pub on: bool,
    /// Every order to it: when, and whether to be on.
    pub orders: Vec<(Instant, bool)>,
    /// What its controller announced.
    pub news: Vec<sleeper::Event>,
    /// An order that is being carried out.
    pub(crate) pending: Option<(Instant, bool)>,
}

/// A radio whose machine has died, with what its controller said last.
#[derive(Debug)]
pub struct Retired {
    /// The radio.
    pub radio: Radio,
    /// The controller's books.
    pub report: sleeper::Report,
}

/// See the module's documentation.
pub struct Machine {
    pub(crate) host: Option<Host>,
    /// What waits for the process's next turn.
    pub(crate) kernel: Kernel,
    /// What outlives the process.
    pub disk: Disk,
    /// What the gateway writes beside its loop.
    pub store: store::Store,
    /// The same of one that shares it with others.
    pub(crate) shared: Option<Member>,
    /// Every ticket that was written, and when.
    pub written: Vec<(UnixTime, Vec<u8>)>,
    /// Its radio, for a device that has one.
    pub radio: Option<Radio>,
    /// What the names of its connections' gateways are, by connection and in the order of the resolver.
    pub gateways: BTreeMap<String, Vec<IpAddr>>,
    /// The resolver answers that it knows none of these names.
    pub resolver_is_down: bool,
    /// Its outer addresses now.
    pub(crate) addresses: Vec<IpAddr>,
    /// How far its wall clock has been moved, in seconds.
    pub skew: i64,
    /// Its inner addresses, once configured: IPv4 first.
    pub inner: Vec<IpAddr>,
    /// Numbered packets that came out of the tunnel.
    pub received: Vec<u64>,
    /// The inner address that each of them came from.
    pub senders: Vec<IpAddr>,
    /// Datagrams that it has heard, for who watches its network and takes them.
    pub heard: Option<Vec<(Path, Vec<u8>)>>,
    /// What the node announced.
    pub changes: Vec<Change>,
    /// Wake-ups by timers, by reason.
    pub wakeups: BTreeMap<&'static str, u64>,
    /// Datagrams to send.
    pub outbox: VecDeque<(Path, Vec<u8>)>,
    /// Access router: packets that go on, and to which side.
    pub(crate) transit: VecDeque<(Side, Vec<u8>)>,
    /// A machine that takes header keys and is no access router of its own: what it was told of them, for who takes it.
    pub headers: Vec<HeaderOrder>,
    /// What was handed over to other gateways.
    pub handed_over: Vec<Handover>,
    /// Whole packets that came out of the tunnel, for who is an application there and takes them.
    pub inside: Option<Vec<Vec<u8>>>,
    /// Packets for its own side that did not come out of a tunnel: the stand-in's, and errors.
    pub answers: Vec<Vec<u8>>,
    /// Gateway: prefixes that are routed to its devices.
    pub routes: BTreeSet<IpNet>,
    /// What the gateway said to the last announced sleep.
    pub sleep: Option<SleepVerdict>,
    /// ESP packets that came in and did not open.
    pub refused: u64,
    /// The process dies instead of carrying out its next output after so many.
    pub fuse: Option<u32>,
    /// Packets from the inner side, and copies that were to be sent again.
    pub(crate) handed: u64,
    /// ESP packets that were sent.
    pub(crate) sealed: u64,
    /// Packets that were sealed, or could not be, and had no way out.
    pub(crate) unsent: u64,
    /// Packets that died with a process while they waited, and those that had no room or no policy in earlier lives.
    past: (u64, u64),
}

impl Machine {
    /// A machine that runs `host`.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self {
            host: Some(host),
            kernel: Kernel::default(),
            disk: Disk::default(),
            store: store::Store::new(0),
            shared: None,
            written: Vec::new(),
            radio: None,
            gateways: BTreeMap::new(),
            resolver_is_down: false,
            addresses: Vec::new(),
            skew: 0,
            inner: Vec::new(),
            received: Vec::new(),
            senders: Vec::new(),
            heard: None,
            changes: Vec::new(),
            wakeups: BTreeMap::new(),
            outbox: VecDeque::new(),
            transit: VecDeque::new(),
            headers: Vec::new(),
            handed_over: Vec::new(),
            inside: None,
            answers: Vec::new(),
            routes: BTreeSet::new(),
            sleep: None,
            refused: 0,
            fuse: None,
            handed: 0,
            sealed: 0,
            unsent: 0,
            past: (0, 0),
        }
    }

    /// The core; `None` while the process is dead.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// The core's node.
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        self.host.as_ref().map(Host::node)
    }

    /// The core's node, for a command; [`Machine::flush`] follows.
    pub fn node_mut(&mut self) -> Option<&mut Node> {
        self.host.as_mut().map(Host::node_mut)
    }

    /// Does something to the core, and what follows from it.
    pub fn with(&mut self, now: Instant, act: impl FnOnce(&mut Host)) {
        if let Some(host) = &mut self.host {
            act(host);
        }
        self.flush(now);
    }

    /// The process dies: everything but the disk is lost.
    pub fn crash(&mut self) {
        self.past = (self.held_lost(), self.nowhere());
        if let Some(host) = self.host.take() {
            self.past.0 += host.held() as u64;
        }
        // What it was about to send, or to report as sent again, has died with it, and so has what its stand-in kept.
        self.handed = self.sealed + self.unsent + self.past.0 + self.past.1;
        self.kernel.clear();
        self.inner.clear();
        self.fuse = None;
        self.store.crash();
        if let Some(member) = self.shared.take() {
            let line = member.line.clone();
            drop(member);
            line.borrow_mut().clear();
        }
        self.outbox.clear();
        self.transit.clear();
        self.headers.clear();
        self.handed_over.clear();
        self.routes.clear();
    }

    /// The process ends in order: it says its farewells, and what it has asked of its store is done.
    pub fn stop(&mut self, now: Instant) {
        self.with(now, |host| host.stop(now));
        for done in self.store.finish(now, &mut self.disk) {
            self.with(now, |host| hear(host, now, done));
        }
        for report in self.shared.as_mut().map(|member| member.finish(now)).unwrap_or_default() {
            self.hear(now, report);
        }
        let farewells = std::mem::take(&mut self.outbox);
        self.crash();
        self.outbox = farewells;
    }

    /// A gateway that shares its store is drained.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration) {
        if let Some(member) = &mut self.shared {
            member.drain(now, within);
        }
        self.flush(now);
    }

    /// The process hears what the store that it shares has to say.
    fn hear(&mut self, now: Instant, report: Report) {
        if let Some(mut member) = self.shared.take() {
            self.with(now, |host| member.hear(host, now, report));
            self.shared = Some(member);
        }
    }

    /// The process is back, with what its disk holds.
    pub fn restart(&mut self, now: Instant, mut host: Host) {
        host.set_wall_clock(now, self.unix(now));
        host.node_mut().set_own_addresses(now, &self.addresses);
        host.node_mut().set_sources(now, &self.addresses);
        for (connection, ticket) in &self.disk.tickets {
            if let Ok(ticket) = ClientTicket::decode(ticket) {
                host.node_mut().restore_ticket(connection, ticket);
            }
        }
        self.host = Some(host);
        self.flush(now);
    }

    /// The time on its wall clock.
    #[must_use]
    pub fn unix(&self, now: Instant) -> UnixTime {
        let unix = EPOCH + (now - Instant::ZERO);
        UnixTime(unix.0.saturating_add_signed(self.skew))
    }

    /// The device has a radio that may sleep, as `settings` say; the policy's clock runs `speed` times as fast.
    pub fn let_sleep(&mut self, now: Instant, settings: Settings, speed: u32, wishes: SleepFlags) {
        self.radio = Some(Radio { on: true, orders: Vec::new(), news: Vec::new(), pending: None });
        let (history, unix) = (self.disk.history.clone(), self.unix(now));
        self.with(now, |host| {
            host.let_sleep(now, settings, speed, wishes);
            host.set_wall_clock(now, unix);
            // One of another policy is of no use.
            let _damaged = history.map(|history| host.restore_history(&history));
            host.set_radio(now, true);
        });
    }

    /// The node announced this. A sleep that was announced before a session came up was that of the session before.
    pub(crate) fn has_changed(&mut self, change: Change) {
        if matches!(change, Change::Up { rung: Rung::Resume | Rung::Full, .. }) {
            self.sleep = None;
        }
        self.changes.push(change);
    }

    /// Takes the radio out, for its books.
    pub fn retire_radio(&mut self, now: Instant) -> Option<Retired> {
        let report = self.sleep_report(now)?;
        Some(Retired { radio: self.radio.take()?, report })
    }

    /// The books of the radio's controller.
    #[must_use]
    pub fn sleep_report(&self, now: Instant) -> Option<sleeper::Report> {
        self.host.as_ref().and_then(|h| h.sleep_report(now)).map(|(report, _)| report)
    }

    /// When the process or the radio wants to run next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        if let Some(at) = self.kernel.wakes() {
            return Some(at);
        }
        let host = self.host.as_ref().and_then(|h| h.poll_timeout()).map(|d| d.at);
        let shared = self.shared.as_ref().and_then(Member::due);
        let host = host.into_iter().chain(self.store.due()).chain(shared).chain(self.kernel.done());
        // The answer of a radio to a process that has died is lost.
        let radio = self.radio.as_ref().filter(|_| self.host.is_some()).and_then(|r| r.pending);
        host.chain(radio.map(|(at, _)| at)).min()
    }

    /// The radio has power.
    #[must_use]
    pub fn radio_is_on(&self) -> bool {
        self.radio.as_ref().is_none_or(|r| r.on)
    }

    /// It would hear something.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.host.is_some() && self.radio_is_on()
    }

    /// The radio is off because its controller wants it so.
    #[must_use]
    pub fn is_asleep(&self, now: Instant) -> bool {
        self.sleep_report(now).is_some_and(|r| matches!(r.state, State::Asleep { .. }))
    }

    /// Packets that were lost because too many were held, or because the process died.
    #[must_use]
    pub fn held_lost(&self) -> u64 {
        self.past.0 + self.host.as_ref().map_or(0, |h| h.counters().held_dropped)
    }

    /// Packets that no policy covered.
    #[must_use]
    pub fn nowhere(&self) -> u64 {
        self.past.1 + self.host.as_ref().map_or(0, |h| h.counters().no_policy)
    }

    /// Packets from the inner side less those of which is known what became of them.
    #[must_use]
    pub fn vanished(&self) -> u64 {
        let Some(host) = &self.host else { return 0 };
        let (held, counted) = (host.held() as u64, host.counters());
        // What the stand-in was given and has not given back: it waits, was answered or was dropped.
        let books = host.node().stand_in_totals().map(|(books, _)| books).unwrap_or_default();
        let kept = books.handled + books.taken_over - books.delivered;
        let fates = self.sealed + self.unsent + held + kept + counted.too_big;
        (self.handed + books.taken_over).abs_diff(fates + self.held_lost() + self.nowhere())
    }

    /// Sends a numbered packet through the tunnel.
    pub fn send(&mut self, now: Instant, from: IpAddr, to: IpAddr, number: u64) {
        self.send_to(now, from, SocketAddr::new(to, 9), number);
    }

    /// The same, to a port: what a policy tells flows apart by.
    pub fn send_to(&mut self, now: Instant, from: IpAddr, to: SocketAddr, number: u64) {
        let mut packet = Vec::new();
        if udp::build(SocketAddr::new(from, 9), to, &number.to_be_bytes(), &mut packet).is_ok() {
            self.forward(now, packet);
        }
    }

    /// The machine's outer addresses have changed: its kernel says so, as it does in the world.
    pub fn set_addresses(&mut self, now: Instant, addresses: Vec<IpAddr>) {
        self.addresses = addresses;
        if let Some(host) = &mut self.host {
            host.node_mut().set_own_addresses(now, &self.addresses);
            host.node_mut().set_sources(now, &self.addresses);
            host.network_changed();
        }
        self.flush(now);
    }

    /// A packet comes out of the tunnel.
    pub(crate) fn come_out(&mut self, packet: &[u8]) {
        if let Some(inside) = &mut self.inside {
            inside.push(packet.to_vec());
        }
        if let Some(number) = number(packet) {
            self.received.push(number);
            self.senders.push(ip::flow(packet).map_or(Ipv4Addr::UNSPECIFIED.into(), |flow| flow.src));
        }
    }

    /// What was ordered to be stored is on the disk from now on.
    pub(crate) fn keep(&mut self, unix: UnixTime, what: Store) {
        match what {
            Store::Ticket { connection, bytes: Some(bytes) } => {
                if let Ok(ticket) = ClientTicket::decode(bytes.as_bytes()) {
                    self.written.push((unix, ticket.opaque.as_bytes().to_vec()));
                }
                self.disk.tickets.insert(connection, bytes.as_bytes().to_vec());
            }
            Store::Ticket { connection, bytes: None } => {
                self.disk.tickets.remove(&connection);
            }
            Store::TicketKeys { exported } => self.disk.ticket_keys = exported.as_bytes().to_vec(),
            Store::SleepHistory(bytes) => self.disk.history = Some(bytes),
            // A gateway that lost them learns anew; no certificate of these worlds is revoked.
            Store::LoadHistory(_) | Store::Revocations { .. } => {}
        }
    }
}

/// The number in a numbered packet.
fn number(packet: &[u8]) -> Option<u64> {
    let at = if packet.first()? >> 4 == 6 { 48 } else { 28 };
    packet.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

/// The files of the simulation: certificates with Ed25519 keys, whose signatures are a function of what is signed.
fn read(path: &std::path::Path, _secret: bool) -> Result<Vec<u8>, String> {
    let files: [(&str, &[u8]); 7] = [
        ("ca.pem", include_bytes!("pki/ca.pem")),
        ("device.pem", include_bytes!("pki/device.pem")),
        ("device.key", include_bytes!("pki/device.key")),
        ("gateway.pem", include_bytes!("pki/gateway.pem")),
        ("gateway.key", include_bytes!("pki/gateway.key")),
        ("users", b"[\"device.sim\"]\nnt_hash = \"0794fa752bd6f892467821044c51faa4\"\n"),
        ("password", b"a password of the simulation\n"),
    ];
    let found = files.iter().find(|(name, _)| path.ends_with(name));
    found.map(|(_, bytes)| bytes.to_vec()).ok_or_else(|| format!("{} in a simulation", path.display()))
}

/// The connections of a configuration.
///
/// # Panics
/// If it is not valid.
pub(crate) fn connections(toml: &str) -> Vec<Resolved> {
    let file = parse(toml).unwrap_or_else(|e| panic!("{e}\n{toml}"));
    resolve(&file, &mut read).unwrap_or_else(|e| panic!("{e}\n{toml}"))
}

/// A host core of these connections.
pub(crate) fn host(
    now: Instant,
    connections: Vec<Resolved>,
    mut endpoint: EndpointConfig,
    pool: Option<SharedPool>,
    rng: &mut Seeded,
    unix: UnixTime,
) -> Host {
    endpoint.pool = pool.clone().map(|pool| Box::new(pool) as _);
    let node = Node::new(connections, endpoint, Box::new(rng.fork()), Box::new(rng.fork()));
    let mut host = Host::new(now, node, pool);
    host.set_wall_clock(now, unix);
    host
}
