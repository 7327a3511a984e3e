//! The event loop: one thread around one epoll set. Owns the order in which things happen; every decision is the node's.
//!
//! After whatever woke it, the loop applies the node's events (what must be durable before an answer leaves is among them), sends
//! what the node wants sent, arms the one timer for the node's deadline, and sleeps. There is no tick: an idle daemon is not
//! scheduled at all until a timer with a stated reason is due.

use crate::args::Args;
use crate::datapath::Wires;
use crate::load::Loaded;
use crate::machine::Machine;
use crate::names::Names;
use crate::plane::Counters;
use crate::setup;
use crate::sleep::{Sleep, seconds_of_day};
use crate::store::Store;
use crate::verbs::Verbs;
use anyhow::{Context, Result};
use dormouse_ike::config::SelectorSpec;
use dormouse_io::clock::{BootClock, unix_now};
use dormouse_io::control::ControlServer;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::notify;
use dormouse_io::poller::{Interest, Poller, Ready};
use dormouse_io::privileges::{self, Keep};
use dormouse_io::signal::{Signal, Signals};
use dormouse_io::timer::Timer;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_io::udp::Sent;
use dormouse_node::config::Resolved;
use dormouse_node::config::file::{self, Role};
use dormouse_node::held::Held;
use dormouse_node::ladder::Rung;
use dormouse_node::pool::SharedPool;
use dormouse_node::{Change, Event, FailureKind, Node, SleepFlags};
use dormouse_sansio::{Deadline, Instant};
use std::net::IpAddr;
use std::time::Duration;

pub(crate) const TUN: u64 = 0;
const TIMER: u64 = 1;
const SIGNALS: u64 = 2;
const NETWORK: u64 = 3;
const NAMES: u64 = 4;
const CONTROL: u64 = 5;
const DNS: u64 = 6;
const RADIO: u64 = 7;
const MACHINE: u64 = 8;
const NEIGHBOURS: u64 = 9;
pub(crate) const UDP: u64 = 16;
const RAW: u64 = 32;

/// MTU of the tunnel interface: what fits ESP in UDP over IPv6 on an Ethernet with the widest suite; TCP is clamped to what
/// the path really carries.
const TUNNEL_MTU: u16 = 1400;

/// The load history is stored when sessions have come up, but not more often than this: each time wakes the disk.
const KEEP_LOAD: Duration = Duration::from_secs(600);

/// The daemon, set up.
pub(crate) struct Daemon {
    pub(crate) settings: file::Daemon,
    pub(crate) config_path: String,
    pub(crate) args: Args,
    /// The configuration as it was at the start, secrets left out.
    pub(crate) written: serde_json::Value,
    pub(crate) connections: Vec<Resolved>,
    pub(crate) node: Node,
    pub(crate) machine: Machine,
    pub(crate) wires: Wires,
    pub(crate) verbs: Verbs,
    pub(crate) counters: Counters,
    pub(crate) started: Instant,
    pub(crate) suspended: bool,
    pub(crate) stopping: bool,
    /// When the radio sleeps; only a client's does.
    pub(crate) sleep: Option<Sleep>,
    pub(crate) store: Store,
    pool: Option<SharedPool>,
    names: Names,
    pub(crate) poller: Poller,
    timer: Timer,
    signals: Signals,
    pub(crate) held: Held,
    /// Sessions in the load history when it was last stored, and when that was.
    load_kept: (u64, Instant),
    /// Packets of peers whose route is only just being set: what answers them would find no way back yet.
    pub(crate) early: Vec<Vec<u8>>,
    /// What was kept for devices that are back, until this turn's IKE messages are out.
    pub(crate) kept: Vec<Box<[u8]>>,
    /// Our own inner addresses.
    pub(crate) inner: Vec<IpAddr>,
    scratch: Vec<u8>,
}

impl Daemon {
    /// Sets everything up, then gives privileges away.
    ///
    /// # Errors
    /// Whatever is missing or refused, naming it.
    pub(crate) fn new(loaded: Loaded, args: &Args) -> Result<Self> {
        let Loaded { daemon: settings, written, sleep, connections, standin } = loaded;
        privileges::require(Keep { raw: false, bind: settings.ike_port < 1024 })?;
        let account = privileges::find_user(&settings.user)?;
        // Before any thread or child: they inherit the mask.
        let signals = Signals::new()?;
        let mut store = Store::open(&settings.state_dir)?;
        let (mut endpoint, pool) = setup::endpoint(&settings, &connections, &mut store)?;
        let standin = standin.limits(settings.session_limit);
        if standin.is_some() {
            endpoint.hold.services = SleepFlags { stand_in: true, buffering: true };
        }
        let carriers = setup::bind(&settings)?;
        let mtu = if settings.mtu == 0 { TUNNEL_MTU } else { settings.mtu };
        let options = TunOptions {
            name: Some(settings.interface.clone()),
            mtu,
            offload: settings.offload,
            ..TunOptions::default()
        };
        let tun = Tun::open(&options).context("daemon.interface")?;
        let mut machine = Machine::new(&tun, settings.dns)?;
        let pools: Vec<_> = connections.iter().flat_map(|c| c.pool.iter().copied()).collect();
        machine.serve_pools(&pools, settings.proxy_neighbours);
        machine.keep_own_side(&connections.iter().flat_map(Resolved::own_side).collect::<Vec<_>>());
        let server =
            ControlServer::bind(&settings.socket, Some(settings.group.as_str()).filter(|g| !g.is_empty()))
                .with_context(|| format!("daemon.socket: {}", settings.socket.display()))?;
        let client = connections.iter().any(|c| c.role == Role::Client);
        let sleep =
            client.then(|| Sleep::new(BootClock::now(), &sleep, &settings.state_dir, &args.meter_root));
        let hold = connections.iter().map(|c| c.hold_packets).max().unwrap_or(0);
        let mut node = Node::new(connections.clone(), endpoint, Box::new(OsEntropy), Box::new(OsEntropy));
        if let Some((limits, longest)) = standin
            && connections.iter().any(|c| c.role == Role::Gateway)
        {
            node.stand_in_for_sleepers(limits, longest);
        }
        if let Some(account) = account {
            account.own(&settings.state_dir)?;
            let raw = !carriers.raw.is_empty();
            let held = privileges::drop_to(&account, Keep { raw, bind: false })?;
            tracing::info!(user = settings.user, ?held, "privileges dropped");
        }
        let poller = Poller::new()?;
        let timer = Timer::new()?;
        let names = Names::new(settings.ike_port)?;
        let mut daemon = Self {
            verbs: Verbs::new(server),
            counters: Counters::default(),
            started: BootClock::now(),
            suspended: false,
            stopping: false,
            sleep,
            held: Held::new(hold),
            load_kept: (0, BootClock::now()),
            early: Vec::new(),
            kept: Vec::new(),
            inner: Vec::new(),
            scratch: Vec::new(),
            settings,
            config_path: args.config.display().to_string(),
            args: args.clone(),
            written,
            connections,
            node,
            machine,
            wires: Wires::new(tun, mtu, carriers),
            store,
            pool,
            names,
            poller,
            timer,
            signals,
        };
        daemon.watch()?;
        Ok(daemon)
    }

    fn watch(&mut self) -> Result<()> {
        self.poller.add(&self.wires.tun, TUN, Interest::READ)?;
        self.poller.add(&self.timer, TIMER, Interest::READ)?;
        self.poller.add(&self.signals, SIGNALS, Interest::READ)?;
        self.poller.add(&self.machine.monitor, NETWORK, Interest::READ)?;
        self.poller.add(&self.names, NAMES, Interest::READ)?;
        self.poller.add(&self.verbs.server, CONTROL, Interest::READ)?;
        if let Some(guard) = &self.machine.guard {
            self.poller.add(guard, DNS, Interest::READ)?;
        }
        if let Some(guard) = self.machine.neighbours.as_ref().and_then(|n| n.guard.as_ref()) {
            self.poller.add(guard, NEIGHBOURS, Interest::READ)?;
        }
        if let Some(guard) = self.sleep.as_ref().and_then(|s| s.guard.as_ref()) {
            self.poller.add(guard, RADIO, Interest::READ)?;
        }
        if let Some(sleep) = &mut self.sleep {
            sleep.watch_machine();
            if let Some(watch) = &sleep.machine {
                self.poller.add(watch, MACHINE, Interest::READ)?;
            }
        }
        for (i, socket) in self.wires.carriers.udp.iter().enumerate() {
            self.poller.add(socket, UDP + i as u64, Interest::READ)?;
        }
        for (i, socket) in self.wires.carriers.raw.iter().enumerate() {
            self.poller.add(socket, RAW + i as u64, Interest::READ)?;
        }
        Ok(())
    }

    /// Runs until it is told to stop, then ends sessions and undoes what it did to the machine.
    ///
    /// # Errors
    /// If the TUN device, the poller or the timer fails.
    pub(crate) fn run(&mut self) -> Result<()> {
        let now = BootClock::now();
        self.node.set_wall_clock(now, unix_now());
        for c in &self.connections {
            if c.role == Role::Client
                && let Some(ticket) = self.store.ticket(&c.name, unix_now())
            {
                self.node.restore_ticket(&c.name, ticket);
            }
        }
        if let Some(sleep) = &mut self.sleep {
            sleep.restore(&self.store);
        }
        for c in self.connections.clone() {
            if c.auto && c.role == Role::Client {
                self.up(now, &c.name);
            }
        }
        notify::ready();
        tracing::info!(interface = self.wires.tun.name(), connections = self.connections.len(), "ready");
        let mut ready = Vec::new();
        while !self.stopping {
            self.settle(BootClock::now())?;
            self.poller.wait(&mut ready, None)?;
            self.turn(&ready)?;
        }
        self.stop();
        Ok(())
    }

    /// Handles whatever is ready.
    fn turn(&mut self, ready: &[Ready]) -> Result<()> {
        let now = BootClock::now();
        let mut tun = false;
        for event in ready {
            match event.token {
                TUN => tun = true,
                TIMER => {
                    if self.timer.clear() {
                        self.node.set_wall_clock(now, unix_now());
                        self.node.handle_timeout(now);
                        if !self.suspended {
                            self.names.handle_timeout(now);
                        }
                        if let Some(sleep) = &mut self.sleep {
                            sleep.sleeper.time_of_day(sleep.pace.shown(now), seconds_of_day());
                            sleep.sleeper.handle_timeout(sleep.pace.shown(now));
                        }
                    }
                }
                SIGNALS => self.signals(now)?,
                NETWORK => self.network_changed(now)?,
                NAMES => self.names_found(now),
                CONTROL => self.control(now),
                DNS => {
                    self.machine.dns_answers();
                }
                RADIO => self.radio_answers(now),
                MACHINE => self.machine_news(now),
                NEIGHBOURS => {
                    if let Some(neighbours) = &mut self.machine.neighbours {
                        neighbours.answers();
                    }
                }
                token if token >= RAW => self.receive_raw(now, (token - RAW) as usize)?,
                token => self.receive(now, (token - UDP) as usize)?,
            }
        }
        if tun || self.wires.may_go_on() || ready.iter().any(|r| r.writable && r.token >= UDP) {
            self.forward(now)?;
        }
        Ok(())
    }

    fn signals(&mut self, now: Instant) -> Result<()> {
        while let Some(signal) = self.signals.next()? {
            match signal {
                Signal::Stop => self.stopping = true,
                Signal::Reload => {
                    self.reload(now);
                    if !self.suspended {
                        self.network_is_new(now);
                    }
                }
            }
        }
        Ok(())
    }

    fn network_changed(&mut self, now: Instant) -> Result<()> {
        let mut changed = false;
        while let Some(change) = self.machine.monitor.next()? {
            tracing::debug!(?change, "network");
            changed = true;
        }
        if changed {
            self.machine.network_changed();
        }
        if changed && !self.suspended {
            self.network_is_new(now);
        } else if changed && let Some(sleep) = &mut self.sleep {
            sleep.look(now);
        }
        Ok(())
    }

    /// The network may be another: names are asked for in it, and the ways to all gateways looked for.
    pub(crate) fn network_is_new(&mut self, now: Instant) {
        if self.names.in_doubt() {
            self.names.network(self.machine.online());
        }
        self.look_at_network(now);
    }

    /// Asks the kernel for the way to every gateway and tells the node. A gateway has the addresses of its name, and those that it
    /// announced: the first to which there is a way is the one that is used, the others are at hand.
    pub(crate) fn look_at_network(&mut self, now: Instant) {
        for c in self.connections.iter().filter(|c| c.role == Role::Client) {
            let Some(gateway) = &c.gateway else { continue };
            let mut addresses = self.names.addresses(gateway);
            let announced: Vec<IpAddr> =
                self.node.gateway_addresses(&c.name).filter(|ip| !addresses.contains(ip)).collect();
            addresses.extend(announced);
            let port = self.settings.ike_port;
            let mut ways = addresses.into_iter().filter_map(|ip| self.machine.way_to(ip, port));
            let first = ways.next();
            let others = ways.map(|(path, _)| path).collect();
            if let Some((_, mtu)) = first {
                self.node.set_path_mtu(mtu);
            }
            self.node.set_other_ways(&c.name, others);
            self.node.set_network(now, &c.name, first.map(|(path, _)| path));
        }
    }

    /// Brings a client connection up.
    pub(crate) fn up(&mut self, now: Instant, name: &str) {
        self.ask_for_gateway(name);
        self.node.up(now, name);
        self.look_at_network(now);
    }

    /// Asks for the name of a connection's gateway.
    fn ask_for_gateway(&mut self, connection: &str) {
        if let Some(gateway) =
            self.connections.iter().find(|c| c.name == connection).and_then(|c| c.gateway.clone())
        {
            self.names.ask(&gateway);
        }
    }

    /// Why the name of a connection's gateway has no address.
    pub(crate) fn nameless(&self, connection: &str) -> Option<String> {
        let gateway = self.connections.iter().find(|c| c.name == connection)?.gateway.as_deref()?;
        self.names.trouble(gateway).map(|why| format!("the gateway's name {gateway} is not known: {why}"))
    }

    /// The connection is not wanted any more.
    pub(crate) fn forget_gateway(&mut self, connection: &str) {
        if let Some(gateway) =
            self.connections.iter().find(|c| c.name == connection).and_then(|c| c.gateway.as_deref())
        {
            self.names.give_up(gateway);
        }
    }

    /// When a name is asked for again; not while the radio sleeps.
    pub(crate) fn names_deadline(&self) -> Option<Deadline> {
        self.names.deadline().filter(|_| !self.suspended)
    }

    fn names_found(&mut self, now: Instant) {
        let online = self.machine.online();
        for (name, result) in self.names.found(now, online) {
            match result {
                Ok(addresses) => tracing::info!(%name, ?addresses, "gateway"),
                Err(e) => {
                    tracing::warn!(%name, %e, "the gateway's name is not known; asked again as long as there is a network");
                }
            }
        }
        self.look_at_network(now);
    }

    /// Applies the node's events, sends what it wants sent, and arms the timer.
    pub(crate) fn settle(&mut self, now: Instant) -> Result<()> {
        let mut flowing = false;
        // The node and the sleeper have news for each other.
        loop {
            while let Some(event) = self.node.poll_event() {
                flowing |= matches!(event, Event::Flowing);
                self.apply(now, event);
            }
            if !self.sleep_turn(now) {
                break;
            }
        }
        if let Some(pool) = &self.pool {
            while let Some(change) = pool.poll_change() {
                self.store.lease(change, unix_now());
            }
        }
        complain(self.store.flush());
        self.keep_load(now);
        self.transmit(now);
        if flowing && !self.held.is_empty() {
            self.release(now);
            self.transmit(now);
        }
        self.deliver(now);
        self.tell_waiting(now);
        let own = Deadline::earlier(self.verbs.deadline(), self.sleep_deadline());
        let own = Deadline::earlier(own, self.names_deadline());
        self.timer.arm(Deadline::earlier(self.node.poll_timeout(), own), false)?;
        Ok(())
    }

    /// Stores what was learned about load, unless it was only just stored: a crash costs some minutes of it.
    fn keep_load(&mut self, now: Instant) {
        let (recorded, at) = self.load_kept;
        let history = self.node.load_history();
        if history.recorded() != recorded && (self.stopping || now - at >= KEEP_LOAD) {
            complain(self.store.set_load_history(history));
            self.load_kept = (history.recorded(), now);
        }
    }

    fn transmit(&mut self, now: Instant) {
        self.scratch.clear();
        while let Some(transmit) = self.node.poll_transmit(now, &mut self.scratch) {
            match self.wires.carriers.send_fragmentable(&transmit.path, &self.scratch, transmit.segment) {
                Sent::All => {}
                // IKE repeats what is lost.
                other => tracing::debug!(path = %transmit.path, ?other, "an IKE message was not sent"),
            }
            self.scratch.clear();
        }
    }

    fn apply(&mut self, now: Instant, event: Event) {
        match event {
            Event::Configure { connection, assigned, routes, source } => {
                let local = self.local_prefixes(&connection);
                self.machine.configure(&connection, assigned, &routes, (source, &local));
                self.inner = self.machine.inner();
            }
            Event::Unconfigure { connection } => {
                self.machine.unconfigure(&connection);
                self.inner = self.machine.inner();
            }
            Event::PeerRoutes { routes, source } => self.machine.peer_routes(&routes, source),
            Event::PeerGone { routes } => self.machine.peers_gone(&routes),
            Event::GatewayAddresses { .. } => self.look_at_network(now),
            Event::Resend { packets } => {
                tracing::debug!(packets = packets.len(), "sent in vain, and held");
                self.counters.held_dropped += self.held.push_first(now, packets);
            }
            Event::Flowing => {
                if let Some(sleep) = &mut self.sleep {
                    sleep.sleeper.flowing(sleep.pace.shown(now));
                }
            }
            Event::SleepReady { connection, verdict } => self.sleep_ready(now, &connection, verdict),
            Event::Missed { connection, packets } => {
                tracing::info!(%connection, packets, "lost while the radio slept");
                if let Some(sleep) = &mut self.sleep {
                    sleep.sleeper.lost(now, packets);
                }
            }
            Event::LoadReport { report, .. } => {
                if let Some(sleep) = &mut self.sleep {
                    sleep.sleeper.load(&report);
                }
            }
            Event::Ticket { connection, bytes } => {
                complain(self.store.set_ticket(&connection, bytes.as_ref()))
            }
            Event::TicketSpent { record } => {
                let node = &self.node;
                complain(self.store.spend(&record, || node.spent_tickets()));
            }
            Event::TicketKeys { exported } => complain(self.store.set_ticket_keys(&exported)),
            Event::PeerSleeps { .. } | Event::PeerAwake { .. } => tracing::debug!(?event, "dormancy"),
            Event::Deliver { packets } => self.kept.extend(packets),
            Event::Changed(change) => self.announce(now, change),
        }
    }

    /// The prefixes on our side of a connection.
    fn local_prefixes(&self, connection: &str) -> Vec<ipnet::IpNet> {
        let resolved = self.connections.iter().find(|c| c.name == connection);
        let selectors = resolved.into_iter().flat_map(|c| &c.ike.children).flat_map(|c| &c.ts_local);
        let prefix = |s: &SelectorSpec| match s {
            SelectorSpec::Dynamic => None,
            SelectorSpec::Net(net) | SelectorSpec::Narrow { net, .. } => Some(*net),
        };
        selectors.filter_map(prefix).collect()
    }

    fn announce(&mut self, now: Instant, change: Change) {
        match &change {
            Change::Up { connection, rung, took_ms } => {
                tracing::info!(%connection, rung = rung.name(), took_ms, "up");
                if let Some(sleep) = &mut self.sleep {
                    sleep.sleeper.came_up(sleep.pace.shown(now), *rung);
                }
            }
            Change::RungFailed { connection, rung, why, kind, .. } => {
                tracing::warn!(%connection, rung = rung.name(), %why, "a rung of the ladder failed");
                if (*rung, *kind) == (Rung::Full, FailureKind::Timeout) {
                    // Nobody answers: the gateway may have moved.
                    self.ask_for_gateway(connection);
                }
            }
            Change::Down { connection, why } => tracing::info!(%connection, %why, "down"),
            Change::PeerUp { connection, peer, resumed } => {
                tracing::info!(%connection, %peer, resumed, "a client came")
            }
            Change::PeerDown { connection, peer, why } => {
                tracing::info!(%connection, %peer, %why, "a client went")
            }
            Change::PeerRefused { from, claimed, why } => {
                tracing::warn!(%from, claimed = claimed.as_deref().unwrap_or("?"), %why, "a client was refused");
            }
        }
        self.verbs.announce(change, now);
    }

    fn control(&mut self, now: Instant) {
        for (client, request) in self.verbs.requests() {
            self.answer(now, client, request);
        }
    }

    fn stop(&mut self) {
        notify::stopping();
        let now = BootClock::now();
        for c in self.connections.clone() {
            if c.role == Role::Client {
                self.node.leave(now, &c.name);
            }
        }
        self.node.close_all(now);
        while let Some(event) = self.node.poll_event() {
            self.apply(now, event);
        }
        // The farewells: one datagram each, not waited for.
        self.transmit(now);
        complain(self.store.flush());
        self.keep_load(now);
        if let Some(sleep) = self.sleep.take() {
            sleep.save_now(&self.store);
            // Its guard ends with it, and puts the radio back on.
        }
        self.verbs.goodbye();
        self.machine.restore();
        tracing::info!("stopped");
    }
}

fn complain(result: Result<()>) {
    if let Err(e) = result {
        tracing::error!("{e:#}");
    }
}
