//! The event loop: one thread around one epoll set. Owns the order in which things happen; every decision is the host core's.
//!
//! After each wake the loop carries out the outputs of the host core in their order, arms the one timer for its deadline, and sleeps. There is no tick: an idle daemon is not
//! scheduled at all until a timer with a stated reason is due.

use crate::args::Args;
use crate::block::{self, Block};
use crate::datapath::Wires;
use crate::engine::{self, Esp};
use crate::forward::Forward;
use crate::helpers::Helpers;
use crate::hip::Directory;
use crate::joining::Joining;
use crate::keeper::{Keeper, Report};
use crate::load::Loaded;
use crate::machine::Machine;
use crate::radio::Device;
use crate::reload::Reload;
use crate::renewals;
use crate::router::Transit;
use crate::scrape;
use crate::setup;
use crate::store::Store;
use crate::verbs::Verbs;
use crate::workers;
use anyhow::{Context, Result};
use dormouse_io::clock::{BootClock, unix_now};
use dormouse_io::control::ControlServer;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::fetch::Wanted;
use dormouse_io::notify;
use dormouse_io::ownership::Namespace;
use dormouse_io::poller::{Interest, Poller, Ready};
use dormouse_io::privileges::{self, Needed};
use dormouse_io::signal::{Signal, Signals};
use dormouse_io::timer::Timer;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_node::config::Resolved;
use dormouse_node::config::file::{self, Role, Routes};
use dormouse_node::host::{Host, Order};
use dormouse_node::sleeper::Mode;
use dormouse_node::{Node, SleepFlags, host};
use dormouse_sansio::{Deadline, Instant};
use std::collections::BTreeSet;
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
const BLOCK: u64 = 10;
const KEEPER: u64 = 11;
const FETCHED: u64 = 12;
const WORKED: u64 = 13;
const FILES: u64 = 14;
const FORWARD: u64 = 15;
const NUMBERS: u64 = 16;
const WORKERS: u64 = 17;
pub(crate) const UDP: u64 = 18;
pub(crate) const MESSAGES: u64 = 1 << 15;
pub(crate) const RAW: u64 = 1 << 16;
const TRANSIT: u64 = 1 << 20;
pub(crate) const RADIUS: u64 = 1 << 32;

/// MTU of the tunnel interface: what fits ESP in UDP over IPv6 on an Ethernet with the widest suite; TCP is clamped to what
/// the path really carries.
const TUNNEL_MTU: u16 = 1400;
/// The same where HIP alone uses the interface, for IPv6 packets between HITs and, with LSIs, for IPv4 packets: what fills an Ethernet's
/// 1,500 bytes of ESP in UDP over IPv4 with AES-GCM, as BEET mode leaves off their headers. On narrower paths (IPv6, wider suites) TCP is
/// clamped, and other senders learn it by Packet Too Big.
const BEET_MTU: [u16; 2] = [1_478, 1_458];

/// What the gateway, or a peer, is asked to do for a sleeping device.
const WISHES: SleepFlags = SleepFlags { stand_in: true, buffering: true };

/// What the loop sleeps on.
pub(crate) struct Wakers {
    pub(crate) poller: Poller,
    pub(crate) timer: Timer,
    /// A deadline has passed already: the next turn does not wait, and needs no timer.
    pub(crate) due: bool,
    signals: Signals,
}

/// The daemon, set up.
pub(crate) struct Daemon {
    pub(crate) settings: file::Daemon,
    pub(crate) args: Args,
    pub(crate) reload: Reload,
    pub(crate) connections: Vec<Resolved>,
    /// What the connections were at the start: what each role needs is made then.
    pub(crate) roles: BTreeSet<Role>,
    /// The Host Identity Protocol, if it is configured.
    pub(crate) hip: Option<Directory>,
    pub(crate) host: Host,
    pub(crate) machine: Machine,
    pub(crate) block: Block,
    pub(crate) wires: Wires,
    /// The access router that this machine is.
    pub(crate) transit: Option<Transit>,
    pub(crate) verbs: Verbs,
    pub(crate) started: Instant,
    pub(crate) stopping: bool,
    /// Why it stops, if a new start must mend something.
    pub(crate) fatal: Option<anyhow::Error>,
    /// The radio, its meter and the machine's own sleep; only a client and a host of HIP have them.
    pub(crate) device: Option<Device>,
    pub(crate) store: Store,
    pub(crate) helpers: Helpers,
    pub(crate) wakers: Wakers,
    _namespace: Option<Namespace>,
}

impl Daemon {
    /// Sets everything up, then gives privileges away.
    ///
    /// # Errors
    /// Names what is missing or refused.
    pub(crate) fn new(loaded: Loaded, args: &Args) -> Result<Self> {
        let Loaded {
            daemon: settings,
            written,
            sleep,
            mut connections,
            hip,
            standin,
            router,
            radius,
            cluster,
            same,
            audit,
        } = loaded;
        let bind = !connections.is_empty() && settings.ike_port < 1024;
        privileges::require(Needed { raw: false, bind })?;
        let account = privileges::find_user(&settings.user)?;
        // Before any thread or child: they inherit the mask.
        let signals = Signals::new()?;
        let mut store = Store::open(&settings.state_dir)?;
        let joining = cluster
            .map(|cluster| Joining::new(cluster, same, &settings.state_dir, &mut connections))
            .transpose()?;
        let (mut endpoint, pool) =
            setup::endpoint(&settings, &connections, hip.is_some(), &mut store, joining.as_ref())?;
        let denials = endpoint.admission.denials.clone();
        let standin = standin.limits(settings.session_limit);
        if standin.is_some() {
            endpoint.hold.services = SleepFlags { stand_in: true, buffering: true };
        }
        let shared = workers::wanted(&settings, &connections, hip.is_some()).is_ok();
        let shared = shared.then(|| account.as_ref().map(privileges::Account::uid));
        let carriers = setup::bind(&settings, !connections.is_empty(), hip.as_ref(), shared)?;
        // What is changed from here on is there once in a network namespace, but where routes are another program's.
        let alone = settings.routes == Routes::Auto;
        let namespace = alone.then(Namespace::take).transpose()?;
        let hip_alone = hip.as_ref().filter(|_| connections.is_empty());
        let widest = hip_alone.map_or(TUNNEL_MTU, |h| BEET_MTU[usize::from(h.lsi.is_some())]);
        let mtu = if settings.mtu == 0 { widest } else { settings.mtu };
        let options = TunOptions {
            name: Some(settings.interface.clone()),
            mtu,
            offload: settings.offload,
            ..TunOptions::default()
        };
        let tun = Tun::open(&options).context("daemon.interface")?;
        let user = account.as_ref().map_or(0, privileges::Account::uid);
        let of = block::blocking(&connections, hip.as_ref());
        let engine = if alone {
            engine::set_up(&settings, &connections, hip.is_some(), &tun, &options)?
        } else {
            Esp::User("daemon.routes = \"off\"".into())
        };
        let block = Block::new(
            &tun,
            engine.sends(settings.nat_t_port),
            user,
            of,
            alone.then(|| block::kept_at(args)),
        )?;
        let mut machine = Machine::new(&tun, settings.dns, settings.routes)?;
        if connections.iter().any(|c| c.role == Role::Gateway) {
            machine.serve_clients(settings.proxy_neighbours);
            let kept = args.config.with_extension("forwarding");
            machine.forward =
                Some(Forward::new((tun.name().into(), engine.beside(tun.name())), &connections, &kept)?);
        }
        let transit = router.as_ref().map(|router| Transit::new(router, &mut machine)).transpose()?;
        machine.keep_own_side(connections.iter().flat_map(Resolved::own_side).collect());
        machine.keep_own(renewals::addresses(&connections));
        let reload = Reload::new(args, account.is_some().then_some(&settings.user), written)?;
        let server =
            ControlServer::bind(&settings.socket, Some(settings.group.as_str()).filter(|g| !g.is_empty()))
                .with_context(|| format!("daemon.socket: {}", settings.socket.display()))?;
        let shown = scrape::open(&settings)?;
        let client = connections.iter().any(|c| c.role == Role::Client);
        let now = BootClock::now();
        let device = (client || hip.is_some())
            .then(|| Device::new(now, &sleep, &settings.state_dir, &args.meter_root));
        let mut roles: BTreeSet<Role> = connections.iter().map(|c| c.role).collect();
        roles.extend(hip.as_ref().map(|_| Role::Hip));
        let mut node = Node::new(connections.clone(), endpoint, Box::new(OsEntropy), Box::new(OsEntropy));
        let sleepers = (
            Duration::from_secs(settings.sleeper_longest.0.into()),
            if standin.is_some() { WISHES } else { SleepFlags::default() },
        );
        if let Some((limits, longest)) = standin
            && (roles.contains(&Role::Gateway) || roles.contains(&Role::Hip))
        {
            node.stand_in_for_sleepers(limits, longest);
        }
        let may_sleep = sleep.settings.mode != Mode::Performance;
        let hip = Directory::of(hip, &denials, may_sleep, sleepers, &mut node);
        node.set_radius(now, radius);
        let mut host = Host::new(now, node, pool);
        engine.begin(&mut host, &mut machine);
        if let Some(router) = &router {
            host.set_router(router);
        }
        if device.is_some() {
            host.let_sleep(now, sleep.settings.clone(), sleep.speed, WISHES);
        }
        if let Some(account) = account {
            account.own(&settings.state_dir)?;
            let held = privileges::drop_to(&account)?;
            tracing::info!(user = settings.user, ?held, "privileges dropped");
        }
        let gateway = roles.contains(&Role::Gateway);
        let (cluster, member) = joining.map(Joining::split).unzip();
        let keeper = match member {
            Some(member) => Some(Keeper::shared(member)?),
            None => Keeper::own(&store, gateway)?,
        };
        let helpers = Helpers::new(keeper, cluster, &audit, settings.ike_port, block.is_used(), shown)?;
        let poller = Poller::new()?;
        let timer = Timer::new()?;
        let mut daemon = Self {
            verbs: Verbs::new(server),
            started: now,
            stopping: false,
            fatal: None,
            device,
            _namespace: namespace,
            block,
            settings,
            args: args.clone(),
            reload,
            roles,
            hip,
            connections,
            host,
            machine,
            wires: Wires::new(tun, mtu, carriers, engine),
            transit,
            store,
            helpers,
            wakers: Wakers { poller, timer, due: false, signals },
        };
        daemon.watch()?;
        Ok(daemon)
    }

    fn watch(&mut self) -> Result<()> {
        self.wakers.poller.add(&self.wires.tun, TUN, Interest::READ)?;
        self.wakers.poller.add(&self.wakers.timer, TIMER, Interest::READ)?;
        self.wakers.poller.add(&self.wakers.signals, SIGNALS, Interest::READ)?;
        self.wakers.poller.add(&self.machine.monitor, NETWORK, Interest::READ)?;
        self.wakers.poller.add(&self.helpers.names, NAMES, Interest::READ)?;
        self.wakers.poller.add(&self.helpers.fetcher, FETCHED, Interest::READ)?;
        self.wakers.poller.add(&self.helpers.public_keys, WORKED, Interest::READ)?;
        self.wakers.poller.add(&self.verbs.server, CONTROL, Interest::READ)?;
        if let Some(reader) = self.reload.reader() {
            self.wakers.poller.add(reader, FILES, Interest::READ)?;
        }
        if let Some(keeper) = &self.helpers.keeper {
            self.wakers.poller.add(keeper, KEEPER, Interest::READ)?;
        }
        if let Some(guard) = &self.machine.guard {
            self.wakers.poller.add(guard, DNS, Interest::READ)?;
        }
        if let Some(guard) = &self.block.guard {
            self.wakers.poller.add(guard, BLOCK, Interest::READ)?;
        }
        if let Some(guard) = self.machine.neighbours.as_ref().and_then(|n| n.guard.as_ref()) {
            self.wakers.poller.add(guard, NEIGHBOURS, Interest::READ)?;
        }
        if let Some(guard) = self.machine.forward.as_ref().and_then(|f| f.guard.as_ref()) {
            self.wakers.poller.add(guard, FORWARD, Interest::READ)?;
        }
        if let Some(scrapes) = &self.helpers.scrapes {
            self.wakers.poller.add(scrapes, NUMBERS, Interest::READ)?;
        }
        if let Some(guard) = self.device.as_ref().and_then(|d| d.guard.as_ref()) {
            self.wakers.poller.add(guard, RADIO, Interest::READ)?;
        }
        if let Some(device) = &mut self.device {
            device.watch_machine();
            if let Some(watch) = &device.machine {
                self.wakers.poller.add(watch, MACHINE, Interest::READ)?;
            }
        }
        if let Esp::Workers(workers) = &self.wires.engine {
            self.wakers.poller.add(workers, WORKERS, Interest::READ)?;
        }
        for (i, socket) in self.wires.carriers.udp.iter().enumerate() {
            self.wakers.poller.add(socket, UDP + i as u64, Interest::READ)?;
        }
        for (i, socket) in self.wires.carriers.messages.iter().enumerate() {
            self.wakers.poller.add(socket, MESSAGES + i as u64, Interest::READ)?;
        }
        for (i, socket) in self.wires.carriers.raw.iter().enumerate() {
            self.wakers.poller.add(socket, RAW + i as u64, Interest::READ)?;
        }
        for (i, tun) in self.transit.iter().flat_map(|transit| &transit.tuns).enumerate() {
            self.wakers.poller.add(tun, TRANSIT + i as u64, Interest::READ)?;
        }
        Ok(())
    }

    /// Runs until a signal stops it, then ends sessions and undoes what it did to the machine.
    ///
    /// # Errors
    /// If the TUN device, the poller or the timer fails, or if only a new start can bring the radio back.
    pub(crate) fn run(&mut self) -> Result<()> {
        let now = BootClock::now();
        self.host.set_wall_clock(now, unix_now());
        for (name, content) in self.store.revocations() {
            if !self.host.node_mut().restore_revocations(now, &content) {
                self.store.forget_revocations(&name);
            }
        }
        self.look_at_addresses(now);
        let clients = self.connections.iter().filter(|c| c.role == Role::Client);
        for name in clients.map(|c| c.name.clone()).collect::<Vec<_>>() {
            self.restore_ticket(&name);
        }
        self.restore_history();
        self.begin_hip(now);
        if self.roles.contains(&Role::Gateway) {
            setup::seed_library();
        }
        self.send_denials();
        for c in self.connections.iter().filter(|c| c.auto && c.role == Role::Client) {
            self.host.up(now, &c.name);
        }
        notify::ready();
        tracing::info!(
            interface = self.wires.tun.name(),
            connections = self.connections.len() + usize::from(self.hip.is_some()),
            "ready"
        );
        let mut ready = Vec::new();
        while !self.stopping {
            self.carry_out_all(BootClock::now())?;
            self.wait(&mut ready)?;
            self.turn(&ready)?;
        }
        self.stop();
        self.fatal.take().map_or(Ok(()), Err)
    }

    /// Handles the descriptors that are ready.
    fn turn(&mut self, ready: &[Ready]) -> Result<()> {
        let now = BootClock::now();
        // The machine's clock may have been set: who comes now, with a ticket or a certificate, is judged by today's time.
        self.host.set_wall_clock(now, unix_now());
        let (mut tun, mut keeper, mut due) = (false, false, std::mem::take(&mut self.wakers.due));
        for event in ready {
            due |= event.token == TIMER && self.wakers.timer.clear();
        }
        if due {
            self.host.handle_timeout(now);
        }
        self.receive_messages(now, ready)?;
        for event in ready {
            match event.token {
                TUN => tun = true,
                TIMER => {}
                SIGNALS => self.signals(now)?,
                NETWORK => self.network_changed(now)?,
                NAMES => self.names_found(now),
                // One at a time: a message may follow that has waited for it.
                WORKED => {
                    if let Some((sa, done)) = self.helpers.public_keys.next() {
                        self.host.node_mut().done(now, sa, done);
                    }
                }
                FETCHED => {
                    while let Some((id, content)) = self.helpers.fetcher.take() {
                        self.host.node_mut().fetched(now, id, content);
                    }
                }
                CONTROL => self.control(now),
                DNS => _ = self.machine.dns_answers(),
                RADIO => self.radio_answers(now),
                BLOCK => self.block_news(),
                FORWARD => {
                    let news = self.machine.forward.as_mut().map(Forward::news);
                    self.warn(news.unwrap_or_default());
                }
                MACHINE => self.machine_news(now),
                WORKERS => self.workers_report(now),
                NUMBERS => self.hand_numbers_over(now),
                KEEPER => keeper = true,
                FILES => self.files_come(now),
                NEIGHBOURS => self.machine.neighbours.iter_mut().for_each(|n| n.answers()),
                token if token >= RADIUS => self.radius_news(now, token - RADIUS),
                token if token >= TRANSIT => self.receive_transit(now, (token - TRANSIT) as usize)?,
                token if (MESSAGES..RAW).contains(&token) => {}
                token if token >= RAW => self.receive_raw(now, (token - RAW) as usize, event.closed)?,
                token => self.receive(now, (token - UDP) as usize, event.closed)?,
            }
        }
        if tun || self.wires.may_go_on() || ready.iter().any(|r| r.writable && r.token >= UDP) {
            host::forward(self, now)?;
        }
        if keeper {
            // One at a time too: what follows costs as much as a message. After the packets: those for a device that has gone elsewhere follow it.
            let report = self.helpers.keeper.as_mut().and_then(Keeper::next);
            self.keeper_reports(now, report);
        }
        let _what = self.host.handle_arrival(now);
        if tun || ready.iter().any(|r| (UDP..RADIUS).contains(&r.token)) {
            self.wires.moved = BootClock::now();
        }
        Ok(())
    }

    fn signals(&mut self, now: Instant) -> Result<()> {
        while let Some(signal) = self.wakers.signals.next()? {
            match signal {
                Signal::Stop => self.stopping = true,
                Signal::Reload => self.reload(now, None),
            }
        }
        Ok(())
    }

    /// Carries out what the host wants, and arms the timer.
    pub(crate) fn carry_out_all(&mut self, now: Instant) -> Result<()> {
        self.drain_on(now);
        host::carry_out_all(self, now);
        self.answer_waiting(now);
        self.answer_hip(now);
        self.count_for_others();
        let own = Deadline::earliest(self.waits());
        self.arm(now, Deadline::earlier(self.host.poll_timeout(), own))
    }

    /// When each client of the control socket has waited long enough.
    pub(crate) fn waits(&self) -> impl Iterator<Item = Deadline> {
        self.verbs.timers().chain(self.hip.iter().flat_map(Directory::timers)).chain(self.drain_timer())
    }

    pub(crate) fn obey(&mut self, now: Instant, order: Order) {
        match order {
            Order::Store(what) => self.keep(what),
            Order::Lease { number, change } => match &self.helpers.keeper {
                Some(keeper) => keeper.lease(number, change),
                None => self.host.leased(now, number),
            },
            Order::Lineage(operation) => {
                if let Some(keeper) = &self.helpers.keeper {
                    keeper.put(operation);
                }
            }
            Order::Takeover(what) => self.leave(what),
            Order::HandOver(handover) => self.send_after(*handover),
            Order::Configure { connection, assigned, routes, source } => {
                // First nothing leaves outside, then something goes in.
                self.block.connected(&connection, &assigned);
                let local = self.local_prefixes(&connection);
                let news = self.machine.configure(&connection, assigned, &routes, (source, &local));
                self.warn(news);
            }
            Order::Unconfigure { connection } => self.machine.unconfigure(&connection),
            Order::PeerRoutes { routes, source } => self.peer_routes(&routes, source),
            Order::PeerGone { routes } => self.machine.peers_gone(&routes),
            Order::Resolve { name } => self.look_up(now, name),
            Order::FindWays { fresh } => {
                if fresh {
                    self.host.network_is_new(|| self.machine.online());
                }
                self.find_ways(now);
            }
            Order::Lend(_) | Order::ReadLoan { .. } | Order::Recall { .. } | Order::PassOn { .. } => {
                self.obey_lending(now, order);
            }
            Order::Radio(order) => self.order_radio(now, order),
            Order::ReadMeter => self.read_meter(now),
            Order::ReadSignal => self.read_signal(),
            Order::Header(order) => tracing::debug!(?order, "nothing reads headers on this machine"),
            Order::Work { sa, order } => self.helpers.public_keys.carry_out(sa, order),
            Order::Radius(order) => self.obey_radius(now, order),
            Order::Fetch { id, url, body } => self.helpers.fetcher.fetch(Wanted { id, url, body }),
        }
    }

    fn keep(&mut self, what: host::Store) {
        use host::Store as Keep;
        complain(match what {
            Keep::Ticket { connection, bytes } => self.store.set_ticket(&connection, bytes.as_ref()),
            Keep::TicketKeys { exported } => self.store.set_ticket_keys(&exported),
            Keep::LoadHistory(bytes) => self.keep_load(bytes),
            Keep::SleepHistory(bytes) => self.store.set_history(&bytes),
            Keep::Revocations { name, content } => self.store.set_revocations(&name, &content),
        });
    }

    fn keeper_reports(&mut self, now: Instant, reports: impl IntoIterator<Item = Report>) {
        for report in reports {
            match report {
                Report::Outcome(sa, outcome) => self.host.stored(now, sa, outcome),
                Report::Reachable(reachable) => self.store_reached(reachable),
                Report::Written(mark) => self.written(mark),
                Report::Leased(number) => self.host.leased(now, number),
                Report::News(news) => self.cluster_news(now, *news),
            }
        }
    }

    fn control(&mut self, now: Instant) {
        let (requests, gone) = self.verbs.requests();
        if let Some(hip) = &mut self.hip {
            gone.into_iter().for_each(|client| hip.gone(client));
        }
        for (client, request) in requests {
            self.answer(now, client, request);
        }
    }

    fn block_news(&mut self) {
        match self.block.news() {
            Ok(warnings) => self.warn(warnings),
            Err(e) => {
                // Only a new start has the privileges to make another one. Until then the rules stay as they are.
                self.block.guard = None;
                self.stopping = true;
                self.fatal = Some(e);
            }
        }
    }

    fn stop(&mut self) {
        notify::stopping();
        let now = BootClock::now();
        self.end_hip(now);
        self.host.stop(now);
        // The farewells: one datagram each, not waited for.
        host::carry_out_all(self, now);
        self.finish_reports();
        // Which waits until what was asked of it is done.
        if let Some(keeper) = self.helpers.keeper.take() {
            self.keeper_reports(now, keeper.finish());
            host::carry_out_all(self, now);
        }
        // Together with the radio's: each may take half a minute, and the service manager waits for two.
        self.machine.release_helpers();
        // The end of its guard puts the radio back on.
        self.device = None;
        self.verbs.goodbye();
        self.wires.engine.end(&mut self.machine);
        self.machine.restore();
        if self.fatal.is_none() {
            self.block.end();
        }
        tracing::info!("stopped");
    }
}

fn complain(result: Result<()>) {
    if let Err(e) = result {
        tracing::error!("{}", dormouse_io::causes(&*e));
    }
}
