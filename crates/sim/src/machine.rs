//! One simulated machine: the host core that ships, its disk, its radio, and what its kernel would say about the network. Owns the
//! driving of the core, as `dormoused` does it in the world: every output is carried out before the next one is asked for, and the
//! process may die between any two of them.

use crate::ends::EPOCH;
use dormouse_ike::config::EndpointConfig;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Memory;
use dormouse_node::config::{Resolved, parse, resolve};
use dormouse_node::host::{Host, News, Order, Origin, Output, Store};
use dormouse_node::sleeper::{self, Report, Settings, State};
use dormouse_node::{Change, Node, SleepFlags, SleepVerdict, host};
use dormouse_sansio::packet::Received;
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::udp;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The radio takes this long to go off.
const OFF: Duration = Duration::from_millis(200);
/// And this long to be on and associated.
const ON: Duration = Duration::from_millis(1800);

/// MTU of every link.
const ETHERNET: u16 = 1500;

/// Whether a datagram is an ESP packet.
pub(crate) fn is_esp(path: &Path, datagram: &[u8]) -> bool {
    match path.carrier {
        Carrier::RawEsp => true,
        Carrier::NatT | Carrier::HipUdp => matches!(classify_natt(datagram), NatT::Esp(_)),
        Carrier::Ike | Carrier::RawHip => false,
    }
}

/// What outlives the process.
#[derive(Clone, Default, Debug)]
pub struct Disk {
    /// Tickets of client connections.
    pub tickets: BTreeMap<String, Vec<u8>>,
    /// The gateway's lineages.
    pub lineages: Memory,
    /// The gateway's ticket keys.
    pub ticket_keys: Vec<u8>,
    /// What the sleeper has learned.
    pub history: Option<Vec<u8>>,
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
    pending: Option<(Instant, bool)>,
}

/// A radio whose machine has died, with what its controller said last.
#[derive(Debug)]
pub struct Retired {
    /// The radio.
    pub radio: Radio,
    /// The controller's books.
    pub report: Report,
}

/// See the module's documentation.
pub struct Machine {
    host: Option<Host>,
    /// What outlives the process.
    pub disk: Disk,
    /// The gateway's store of lineages.
    pub store: crate::store::Store,
    /// Every ticket that was written, and when.
    pub written: Vec<(UnixTime, Vec<u8>)>,
    /// Its radio, for a device that has one.
    pub radio: Option<Radio>,
    /// What the names of its connections' gateways are, in the order of the resolver.
    pub gateways: BTreeMap<String, Vec<IpAddr>>,
    /// Its outer addresses now.
    addresses: Vec<IpAddr>,
    /// Its inner address, once configured: IPv4 if there are both.
    pub inner: Option<IpAddr>,
    /// Numbered packets that came out of the tunnel.
    pub received: Vec<u64>,
    /// What the node announced.
    pub changes: Vec<Change>,
    /// Wake-ups by timers, by reason.
    pub wakeups: BTreeMap<&'static str, u64>,
    /// Datagrams to send.
    pub outbox: VecDeque<(Path, Vec<u8>)>,
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
    handed: u64,
    /// ESP packets that were sent.
    sealed: u64,
    /// Packets that died with a process while they waited, and those that had no room or no policy in earlier lives.
    past: (u64, u64),
}

impl Machine {
    /// A machine that runs `host`.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self {
            host: Some(host),
            disk: Disk::default(),
            store: crate::store::Store::new(0),
            written: Vec::new(),
            radio: None,
            gateways: BTreeMap::new(),
            addresses: Vec::new(),
            inner: None,
            received: Vec::new(),
            changes: Vec::new(),
            wakeups: BTreeMap::new(),
            outbox: VecDeque::new(),
            answers: Vec::new(),
            routes: BTreeSet::new(),
            sleep: None,
            refused: 0,
            fuse: None,
            handed: 0,
            sealed: 0,
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
        self.inner = None;
        self.fuse = None;
        self.store.crash();
        self.outbox.clear();
        self.routes.clear();
    }

    /// The process is back, with what its disk holds.
    pub fn restart(&mut self, now: Instant, mut host: Host) {
        for (connection, ticket) in &self.disk.tickets {
            if let Ok(ticket) = ClientTicket::decode(ticket) {
                host.node_mut().restore_ticket(connection, ticket);
            }
        }
        if let Some(history) = &self.disk.history {
            let _damaged = host.restore_history(history);
        }
        self.host = Some(host);
        self.flush(now);
    }

    /// The device has a radio that may sleep, as `settings` say; the policy's clock runs `speed` times as fast.
    pub fn let_sleep(&mut self, now: Instant, settings: Settings, speed: u32, wishes: SleepFlags) {
        self.radio = Some(Radio { on: true, orders: Vec::new(), news: Vec::new(), pending: None });
        self.with(now, |host| {
            host.let_sleep(now, settings, speed, wishes);
            host.set_radio(now, true);
        });
    }

    /// Takes the radio out, for its books.
    pub fn retire_radio(&mut self, now: Instant) -> Option<Retired> {
        let report = self.sleep_report(now)?;
        Some(Retired { radio: self.radio.take()?, report })
    }

    /// The books of the radio's controller.
    #[must_use]
    pub fn sleep_report(&self, now: Instant) -> Option<Report> {
        self.host.as_ref().and_then(|h| h.sleep_report(now)).map(|(report, _)| report)
    }

    /// When the process or the radio wants to run next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let host = self.host.as_ref().and_then(|h| h.poll_timeout()).map(|d| d.at);
        let host = host.into_iter().chain(self.store.due());
        host.chain(self.radio.as_ref().and_then(|r| r.pending).map(|(at, _)| at)).min()
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

    /// Packets from the inner side less those of which is known what became of them. A gateway's may wait at its stand-in.
    #[must_use]
    pub fn vanished(&self) -> u64 {
        let held = self.host.as_ref().map_or(0, |h| h.held() as u64);
        self.handed.abs_diff(self.sealed + held + self.held_lost() + self.nowhere())
    }

    /// Lets the process run if it is due.
    pub fn run(&mut self, now: Instant) {
        let done = self.radio.as_mut().and_then(|r| r.pending.take_if(|(at, _)| *at <= now));
        if let (Some((_, on)), Some(radio), Some(host)) = (done, &mut self.radio, &mut self.host) {
            radio.on = on;
            if on {
                host.radio_on(now)
            } else {
                host.radio_off(now)
            }
            self.flush(now);
        }
        while let Some(heard) = self.store.run(now, &mut self.disk.lineages) {
            if let (Some((sa, outcome)), Some(host)) = (heard, &mut self.host) {
                host.stored(now, sa, outcome);
                self.flush(now);
            }
        }
        let Some(host) = &mut self.host else { return };
        let Some(deadline) = host.poll_timeout().filter(|d| d.at <= now) else { return };
        *self.wakeups.entry(deadline.why).or_default() += 1;
        host.handle_timeout(now);
        self.flush(now);
    }

    /// A datagram arrives.
    pub fn receive(&mut self, now: Instant, path: Path, mut datagram: Vec<u8>) {
        let Some(host) = &mut self.host else { return };
        let (esp, before) = (is_esp(&path, &datagram), host.counters().discards);
        host.handle_datagram(now, &Received { path, ecn: 0 }, &mut datagram);
        self.refused += u64::from(esp && host.counters().discards > before);
        self.flush(now);
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

    /// A packet comes from the inner side.
    pub fn forward(&mut self, now: Instant, mut packet: Vec<u8>) {
        self.handed += u64::from(self.host.is_some());
        self.with(now, |host| host.handle_inner(now, &mut packet));
    }

    /// The machine's outer addresses have changed: its kernel says so, as it does in the world.
    pub fn set_addresses(&mut self, now: Instant, addresses: Vec<IpAddr>) {
        self.addresses = addresses;
        let addresses = self.addresses.clone();
        self.with(now, |host| {
            host.node_mut().set_addresses(now, &addresses);
            host.network_changed();
        });
    }

    /// Carries out what the core wants.
    ///
    /// # Panics
    /// If something is to be stored after a datagram has left that may be what it belongs to.
    pub fn flush(&mut self, now: Instant) {
        let (mut bytes, mut left_already) = (Vec::new(), false);
        while let Some(output) = self.host.as_mut().and_then(|h| h.poll(now, &mut bytes)) {
            if let Some(left) = &mut self.fuse {
                if *left == 0 {
                    self.crash();
                    // What it was about to send, or to report as sent again, has died with it.
                    return self.handed = self.sealed + self.past.0 + self.past.1;
                }
                *left -= 1;
            }
            match output {
                Output::Datagram(datagram) => {
                    left_already = true;
                    self.sealed += u64::from(is_esp(&datagram.path, &bytes));
                    self.outbox.push_back((datagram.path, std::mem::take(&mut bytes)))
                }
                Output::Inner(Origin::Tunnel) => self.received.extend(number(&bytes)),
                Output::Inner(Origin::StandIn | Origin::Error) => {
                    self.answers.push(std::mem::take(&mut bytes))
                }
                Output::Order(order) => {
                    let late = left_already && is_of_tickets(&order);
                    assert!(!late, "a datagram left before what must be stored; {order:?}");
                    self.obey(now, order);
                }
                Output::News(News::Changed(change)) => self.changes.push(change),
                Output::News(News::Sleep(event)) => {
                    if let Some(radio) = &mut self.radio {
                        radio.news.push(event);
                    }
                }
                Output::News(News::Announced { verdict, .. }) => self.sleep = Some(verdict),
                Output::News(News::Resending { packets }) => self.handed += packets as u64,
                Output::News(News::Missed { .. } | News::Record(_)) => {}
            }
        }
    }

    fn obey(&mut self, now: Instant, order: Order) {
        match order {
            Order::Store(what) => self.keep(now, what),
            Order::Lineage(operation) => self.store.put(now, operation),
            Order::Configure { assigned, .. } => self.inner = assigned.addresses().first().copied(),
            Order::Unconfigure { .. } => self.inner = None,
            Order::PeerRoutes { routes, .. } => self.routes.extend(routes),
            Order::PeerGone { routes } => self.routes.retain(|r| !routes.contains(r)),
            Order::FindWays { .. } => {
                let (addresses, host) = (&self.addresses, &mut self.host);
                let way = |to: IpAddr| {
                    let from = addresses.iter().find(|a| a.is_ipv4() == to.is_ipv4())?;
                    let (local, remote) = (SocketAddr::new(*from, 500), SocketAddr::new(to, 500));
                    Some((Path { local, remote, carrier: Carrier::Ike }, ETHERNET))
                };
                for (connection, named) in &self.gateways {
                    if let Some(host) = host {
                        host.find_ways(now, connection, named, way);
                    }
                }
            }
            Order::Radio(order) => self.order_radio(now, order),
            // Names are addresses here, and no meter measures what does not exist.
            Order::Resolve { .. } | Order::ForgetName { .. } | Order::ReadMeter => {}
            // No certificate of these worlds says where to ask, and no key is in a token.
            Order::Fetch { .. } | Order::Sign { .. } => {}
        }
    }

    fn keep(&mut self, now: Instant, what: Store) {
        match what {
            Store::Ticket { connection, bytes: Some(bytes) } => {
                if let Ok(ticket) = ClientTicket::decode(bytes.as_bytes()) {
                    let unix = EPOCH + (now - Instant::ZERO);
                    self.written.push((unix, ticket.opaque.as_bytes().to_vec()));
                }
                self.disk.tickets.insert(connection, bytes.as_bytes().to_vec());
            }
            Store::Ticket { connection, bytes: None } => {
                self.disk.tickets.remove(&connection);
            }
            Store::TicketKeys { exported } => self.disk.ticket_keys = exported.as_bytes().to_vec(),
            Store::SleepHistory(bytes) => self.disk.history = Some(bytes),
            // A gateway that lost them gives addresses anew, and learns anew.
            Store::Lease(_) | Store::LoadHistory(_) | Store::Revocations { .. } => {}
        }
    }

    fn order_radio(&mut self, now: Instant, order: host::Radio) {
        let (Some(radio), Some(core)) = (&mut self.radio, &mut self.host) else { return };
        let (takes, on) = match order {
            host::Radio::Off => (OFF, false),
            host::Radio::On => (ON, true),
            host::Radio::Look => {
                if radio.on {
                    core.radio_on(now);
                }
                return;
            }
        };
        radio.orders.push((now, on));
        radio.pending = Some((now + takes, on));
    }
}

fn is_of_tickets(order: &Order) -> bool {
    use Store::{Ticket, TicketKeys};
    matches!(order, Order::Store(Ticket { .. } | TicketKeys { .. }))
}

/// The number in a numbered packet.
fn number(packet: &[u8]) -> Option<u64> {
    let at = if packet.first()? >> 4 == 6 { 48 } else { 28 };
    packet.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

/// The files of the simulation: certificates with Ed25519 keys, whose signatures are a function of what is signed.
fn read(path: &std::path::Path, _secret: bool) -> Result<Vec<u8>, String> {
    let files: [(&str, &[u8]); 5] = [
        ("ca.pem", include_bytes!("pki/ca.pem")),
        ("device.pem", include_bytes!("pki/device.pem")),
        ("device.key", include_bytes!("pki/device.key")),
        ("gateway.pem", include_bytes!("pki/gateway.pem")),
        ("gateway.key", include_bytes!("pki/gateway.key")),
    ];
    let found = files.iter().find(|(name, _)| path.ends_with(name));
    found.map(|(_, bytes)| bytes.to_vec()).ok_or_else(|| format!("{} in a simulation", path.display()))
}

/// A host core with this configuration.
///
/// # Panics
/// If it is not valid.
pub(crate) fn host(
    now: Instant,
    toml: &str,
    endpoint: EndpointConfig,
    rng: &mut Seeded,
    unix: UnixTime,
) -> Host {
    let file = parse(toml).unwrap_or_else(|e| panic!("{e}\n{toml}"));
    let resolved: Vec<Resolved> = resolve(&file, &mut read).unwrap_or_else(|e| panic!("{e}\n{toml}"));
    let hold = resolved.iter().map(|c| c.hold_packets).max().unwrap_or(0);
    let node = Node::new(resolved, endpoint, Box::new(rng.fork()), Box::new(rng.fork()));
    let mut host = Host::new(now, node, hold, None);
    host.set_wall_clock(now, unix);
    host
}
