//! The driving of one machine's core by the calls that `dormoused` makes: a turn takes what has come in (the timer, answers of the
//! radio and of the store, datagrams, packets of the inner side) in batches of drawn size, and the core's own rules ([`host::carry_out_all`],
//! [`host::forward`]) say in which order the rest happens. Owns what waits for the next turn and the end of a process between any two
//! things that it does; must never handle a packet by a call that the daemon does not make.

use crate::engine::{Engine, Led, Taken, is_esp};
use crate::machine::{Machine, hear};
use crate::store::Job;
use dormouse_ike::work;
use dormouse_keying::SaId;
use dormouse_node::Train;
use dormouse_node::host::{
    self, Arrival, Datagram, Driver, Host, InUdp, News, NotSent, Order, Origin, Output, Store,
};
use dormouse_sansio::packet::{Geometry, Plan, Received, Verdict};
use dormouse_sansio::{Carrier, Entropy, Instant, Path, Seeded};
use dormouse_wire::ip;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The radio takes this long to go off.
const OFF: Duration = Duration::from_millis(200);
/// And this long to be on and associated.
const ON: Duration = Duration::from_millis(1800);

/// A public-key operation takes up to this long.
const WORKS: Duration = Duration::from_millis(5);

/// MTU of every link.
const ETHERNET: u16 = 1500;
/// Most datagrams, and most packets, that are taken in one go.
const BATCH: u64 = 8;

/// What waits for the process's next turn.
#[derive(Debug)]
pub(crate) struct Kernel {
    sockets: VecDeque<(Path, Vec<u8>)>,
    tun: VecDeque<Vec<u8>>,
    /// Public-key operations under way, in the order in which they will be done, which may be any: for which SA, and what. The number keeps two of one
    /// moment apart.
    working: BTreeMap<(Instant, u64), (SaId, Box<work::Order>)>,
    worked: u64,
    /// When the process takes it.
    wakes: Option<Instant>,
    /// The longest that the process takes to wake up; half of the times it takes none.
    lag: Duration,
    rng: Seeded,
    pub(crate) engine: Engine,
}

impl Default for Kernel {
    fn default() -> Self {
        let (sockets, tun, working) = (VecDeque::new(), VecDeque::new(), BTreeMap::new());
        let (lag, rng) = (Duration::ZERO, Seeded::new(0));
        Self { sockets, tun, working, worked: 0, wakes: None, lag, rng, engine: Engine::default() }
    }
}

impl Kernel {
    pub(crate) fn clear(&mut self) {
        self.sockets.clear();
        self.tun.clear();
        self.working.clear();
        self.engine.clear();
        self.wakes = None;
    }

    /// When the next public-key operation is done.
    pub(crate) fn done(&self) -> Option<Instant> {
        self.working.first_key_value().map(|((at, _), _)| *at)
    }

    fn work(&mut self, now: Instant, sa: SaId, order: Box<work::Order>) {
        let at = now + Duration::from_micros(self.rng.below(u64::try_from(WORKS.as_micros()).unwrap_or(1)));
        self.worked += 1;
        self.working.insert((at, self.worked), (sa, order));
    }

    pub(crate) fn wakes(&self) -> Option<Instant> {
        self.wakes
    }

    fn is_empty(&self) -> bool {
        self.sockets.is_empty() && self.tun.is_empty()
    }

    fn batch(&mut self) -> u64 {
        1 + self.rng.below(BATCH)
    }
}

impl Machine {
    /// From now on the process takes up to so long to wake up, and finds several things at once.
    pub fn set_lag(&mut self, seed: u64, lag: Duration) {
        (self.kernel.rng, self.kernel.lag) = (Seeded::new(seed ^ 0x1a6), lag);
    }

    /// A datagram arrives.
    pub fn receive(&mut self, now: Instant, path: Path, datagram: Vec<u8>) {
        if self.host.is_some() {
            if let Some(heard) = &mut self.heard {
                heard.push((path, datagram.clone()));
            }
            if self.kernel.engine.waits(&path, &datagram) {
                return;
            }
            let others = self.comes_to_engine(now, &path, &datagram);
            // What is none of a worker's is handed to the process.
            let handed = others && self.kernel.engine.udp == InUdp::Each;
            if self.kernel.engine.takes_from_socket(&path, &datagram) && !handed {
                return;
            }
            self.kernel.sockets.push_back((path, datagram));
            self.come(now);
        }
    }

    /// A packet comes from the inner side.
    pub fn forward(&mut self, now: Instant, packet: Vec<u8>) {
        if self.host.is_some() {
            match self.kernel.engine.seal(now, &packet) {
                Led::Past => {}
                Led::Waits => return,
                Led::Here(sealed) => return self.sends(sealed),
            }
            self.kernel.tun.push_back(packet);
            self.come(now);
        }
    }

    /// Whether a datagram is none of the engine's, which has handled it otherwise.
    fn comes_to_engine(&mut self, now: Instant, path: &Path, datagram: &[u8]) -> bool {
        match self.kernel.engine.open(now, path, datagram) {
            Taken::No => return true,
            Taken::Packet(packet) => self.come_out(&packet),
            Taken::Refused => self.refused += 1,
        }
        false
    }

    /// The engine begins with what has waited for it.
    fn engine_begins(&mut self, now: Instant) {
        let waiting = self.kernel.engine.begin();
        for packet in waiting.inside {
            let sealed = self.kernel.engine.sealed(now, &packet);
            self.sends(sealed);
        }
        for (path, datagram) in waiting.outside {
            if self.comes_to_engine(now, &path, &datagram) {
                self.kernel.sockets.push_back((path, datagram));
            }
        }
    }

    /// What the other engine takes off which sockets.
    pub(crate) fn set_engine(&mut self, udp: InUdp) {
        self.kernel.engine.udp = udp;
    }

    /// Packets that another engine has carried.
    #[must_use]
    pub fn carried_elsewhere(&self) -> u64 {
        self.kernel.engine.carried
    }

    /// The other engine has lost what it was lent.
    pub fn lose_loans(&mut self) {
        self.kernel.engine.clear();
    }

    /// The other engine sends a packet of the inner side, if it can.
    fn sends(&mut self, sealed: Option<(Path, Vec<u8>)>) {
        self.handed += 1;
        let goes = |(path, datagram): &(Path, Vec<u8>)| {
            self.addresses.contains(&path.local.ip()) && datagram.len() <= usize::from(ETHERNET)
        };
        match sealed.filter(goes) {
            Some(sealed) => {
                self.sealed += 1;
                self.outbox.push_back(sealed);
            }
            None => self.unsent += 1,
        }
    }

    /// Something waits for the process.
    fn come(&mut self, now: Instant) {
        let Kernel { wakes, lag, rng, .. } = &mut self.kernel;
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        let late = if micros == 0 || rng.below(2) == 0 { 0 } else { rng.below(micros) };
        let at = now + Duration::from_micros(late);
        *wakes = Some(wakes.map_or(at, |before| before.min(at)));
        self.serve(now);
    }

    /// Lets the process take what waits for it, if it has woken up.
    pub fn serve(&mut self, now: Instant) {
        if self.kernel.wakes.is_some_and(|at| at <= now) {
            self.turn(now);
        }
    }

    /// Lets the process run if it is due.
    pub fn run(&mut self, now: Instant) {
        if self.due().is_some_and(|at| at <= now) {
            self.turn(now);
        }
    }

    /// Carries out what the core wants.
    ///
    /// # Panics
    /// If something is to be stored after a datagram has left that may be what it belongs to.
    pub fn flush(&mut self, now: Instant) {
        self.drive(|process| process.carry_out_all(now));
    }

    fn turn(&mut self, now: Instant) {
        self.drive(|process| process.turn(now));
    }

    fn drive(&mut self, act: impl FnOnce(&mut Process<'_>)) {
        let Some(host) = self.host.take() else { return };
        let mut process = Process { host, machine: self, said: false, dead: false };
        act(&mut process);
        let Process { host, dead, .. } = process;
        self.host = Some(host);
        if dead {
            self.crash();
        }
    }
}

/// A process while it runs.
struct Process<'a> {
    host: Host,
    machine: &'a mut Machine,
    /// A datagram has left in this turn.
    said: bool,
    /// It has died: nothing that its core still wants happens.
    dead: bool,
}

impl Process<'_> {
    fn turn(&mut self, now: Instant) {
        self.machine.kernel.wakes = None;
        self.radio_answers(now);
        self.store_reports(now);
        while self.machine.kernel.done().is_some_and(|at| at <= now)
            && let Some((_, (sa, order))) = self.machine.kernel.working.pop_first()
        {
            self.host.node_mut().done(now, sa, order.carry_out());
        }
        if let Some(deadline) = self.host.poll_timeout().filter(|d| d.at <= now) {
            *self.machine.wakeups.entry(deadline.why).or_default() += 1;
            self.host.set_wall_clock(now, self.machine.unix(now));
            self.host.handle_timeout(now);
        }
        loop {
            self.said = false;
            let some = self.machine.kernel.batch();
            self.receive(now, some);
            if !self.machine.kernel.tun.is_empty() {
                let Ok(()) = host::forward(self, now);
            }
            // What has left until now depends on no message that is handled only now.
            self.said = false;
            let before = self.host.counters().discards;
            if let Some(Arrival::Packet) = self.host.handle_arrival(now) {
                self.machine.refused += self.host.counters().discards - before;
            }
            self.carry_out_all(now);
            if self.dead || self.machine.kernel.is_empty() && !self.host.has_arrivals(now) {
                return;
            }
        }
    }

    fn carry_out_all(&mut self, now: Instant) {
        if let Some(member) = &mut self.machine.shared {
            member.drain_on(now, &mut self.host);
        }
        host::carry_out_all(self, now);
    }

    fn radio_answers(&mut self, now: Instant) {
        let radio = self.machine.radio.as_mut();
        let Some((radio, (_, on))) =
            radio.and_then(|r| r.pending.take_if(|(at, _)| *at <= now).map(|done| (r, done)))
        else {
            return;
        };
        radio.on = on;
        if on { self.host.radio_on(now) } else { self.host.radio_off(now) }
    }

    fn store_reports(&mut self, now: Instant) {
        while let Some(done) = self.machine.store.run(now, &mut self.machine.disk) {
            done.into_iter().for_each(|done| hear(&mut self.host, now, done));
        }
        // After the packets, as the daemon: those for a device that has gone elsewhere follow it.
        while self.machine.shared.is_some() && !self.machine.kernel.tun.is_empty() && !self.dead {
            let Ok(()) = self.forward(now);
        }
        if let Some(member) = &mut self.machine.shared {
            let reports = member.reports(now).into_iter();
            reports.for_each(|report| member.hear(&mut self.host, now, report));
        }
    }

    /// Of the datagrams that wait, `most` at most. Those of one path that follow each other may be a train.
    fn receive(&mut self, now: Instant, most: u64) {
        let (mut train, mut last) = (Train::default(), None);
        for _ in 0..most {
            let Some((path, mut datagram)) = self.machine.kernel.sockets.pop_front() else { return };
            if last != Some(path) || self.machine.kernel.rng.below(2) == 0 {
                (train, last) = (Train::default(), Some(path));
            }
            let (esp, before) = (is_esp(&path, &datagram), self.host.counters().discards);
            let verdict = self.host.open(now, &Received { path, ecn: 0 }, &mut train, &mut datagram);
            self.machine.refused += u64::from(esp && self.host.counters().discards > before);
            match verdict {
                Verdict::Done => {}
                Verdict::Deliver(range) => {
                    self.machine.come_out(datagram.get(range).unwrap_or_default());
                }
                Verdict::DeliverBehind(header, len, range) => {
                    let header = header.get(..len).unwrap_or_default();
                    let packet = [header, datagram.get(range).unwrap_or_default()].concat();
                    self.machine.come_out(&packet);
                }
            }
        }
    }

    /// Seals and sends the packets of a batch.
    fn send(&mut self, now: Instant, batch: &mut Batch) {
        let Some(geometry) = batch.geometry.take() else { return };
        let (mut slots, sizes) = (std::mem::take(&mut batch.slots), std::mem::take(&mut batch.sizes));
        let sealed = self.host.seal(now, &geometry, &mut slots, &sizes);
        if !self.lives_on() {
            return;
        }
        let Some(sealed) = sealed else {
            self.machine.unsent += sizes.len() as u64;
            return;
        };
        if let Err(why) = self.carries(&sealed.path, geometry.stride, false) {
            self.host.batch_not_sent(now, geometry.route, why);
            self.machine.unsent += sizes.len() as u64;
            return;
        }
        slots.truncate(sealed.len);
        for datagram in slots.chunks(geometry.stride) {
            self.machine.sealed += 1;
            self.machine.outbox.push_back((sealed.path, datagram.to_vec()));
        }
        self.said = true;
    }

    /// Whether there is a way for a datagram of so many bytes.
    fn carries(&self, path: &Path, len: usize, fragmentable: bool) -> Result<(), NotSent> {
        let ours = self.machine.addresses.contains(&path.local.ip());
        match ours {
            false => Err(NotSent::Failed),
            true if !fragmentable && len > usize::from(ETHERNET) => Err(NotSent::TooBig),
            true => Ok(()),
        }
    }

    fn send_one(&mut self, now: Instant, datagram: Datagram, bytes: &mut Vec<u8>) {
        let esp = is_esp(&datagram.path, bytes);
        if let Err(why) = self.carries(&datagram.path, bytes.len(), datagram.fragmentable) {
            let kept = |host: &Host| {
                let counted = host.counters();
                (host.held(), counted.held_dropped, counted.too_big)
            };
            let before = kept(&self.host);
            self.host.not_sent(now, why);
            // What has waited waits again, or its sender is asked for smaller ones; what was kept for a device is lost.
            self.machine.unsent += u64::from(esp && kept(&self.host) == before);
            return;
        }
        self.said = true;
        self.machine.sealed += u64::from(esp);
        self.machine.outbox.push_back((datagram.path, std::mem::take(bytes)));
    }

    /// False if the process dies instead of doing the next thing.
    fn lives_on(&mut self) -> bool {
        match &mut self.machine.fuse {
            _ if self.dead => {}
            Some(0) => self.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        !self.dead
    }

    fn obey(&mut self, now: Instant, order: Order) {
        let machine = &mut *self.machine;
        match order {
            Order::Store(what) => {
                let late = self.said && is_of_tickets(&what);
                assert!(!late, "a datagram left before what must be stored; {what:?}");
                machine.keep(machine.unix(now), what);
            }
            Order::Lineage(operation) => match &machine.shared {
                Some(member) => member.put(operation),
                None => machine.store.put(now, Job::Lineage(operation)),
            },
            Order::Lease { number, change } => match &machine.shared {
                Some(member) => member.lease(machine.unix(now), number, change),
                None => machine.store.put(now, Job::Lease(number, change)),
            },
            // One that shares its store with none leaves none.
            Order::Takeover(what) => {
                if let Some(member) = &machine.shared {
                    member.take_over(what);
                }
            }
            Order::HandOver(handover) => match &machine.shared {
                Some(member) => member.hand_over(*handover),
                None => machine.handed_over.push(*handover),
            },
            Order::Configure { assigned, .. } => machine.inner = assigned.addresses(),
            Order::Unconfigure { .. } => machine.inner.clear(),
            Order::PeerRoutes { routes, .. } => machine.routes.extend(routes),
            Order::PeerGone { routes } => machine.routes.retain(|r| !routes.contains(r)),
            Order::Resolve { name } => self.look_up(now, &name),
            Order::FindWays { fresh } => {
                if fresh {
                    self.host.network_is_new(|| !machine.addresses.is_empty());
                }
                self.find_ways(now);
            }
            Order::Radio(order) => self.order_radio(now, order),
            Order::Header(order) => machine.headers.push(order),
            Order::Work { sa, order } => machine.kernel.work(now, sa, order),
            // No meter measures what does not exist, nor a signal, and no certificate of these worlds says where to ask.
            Order::ReadMeter | Order::ReadSignal | Order::Fetch { .. } | Order::Radius(_) => {}
            Order::Lend(lend) => {
                let shows = machine.kernel.engine.udp == InUdp::Each;
                let observer = shows.then(|| self.host.observer_of(lend.loan.child)).flatten();
                machine.kernel.engine.lend(&lend, observer);
            }
            Order::ReadLoan { child } => {
                let usage = machine.kernel.engine.read(child);
                self.host.loan_read(now, child, usage);
            }
            Order::PassOn { path, datagram } => _ = machine.comes_to_engine(now, &path, &datagram),
            Order::Recall { child } => {
                machine.engine_begins(now);
                let back = machine.kernel.engine.recall(child);
                let (returned, observer) = back.map(|back| (back.returned, back.observer)).unzip();
                self.host.returned(now, child, returned.as_ref(), observer.flatten());
            }
        }
    }

    /// The resolver answers at once, if the question can be sent.
    fn look_up(&mut self, now: Instant, name: &str) {
        let machine = &*self.machine;
        let online = !machine.addresses.is_empty();
        let known = online && machine.radio_is_on() && !machine.resolver_is_down;
        let infos = self.host.node().client_infos(now);
        let of = infos.iter().find(|info| info.gateway == name);
        let found = of.and_then(|info| machine.gateways.get(&info.name)).filter(|_| known);
        let answer = found.cloned().ok_or_else(|| "no name server answers".to_owned());
        self.host.resolved(now, name, answer, online);
    }

    fn find_ways(&mut self, now: Instant) {
        let Machine { gateways, addresses, .. } = &*self.machine;
        let way = |to: IpAddr| {
            let from = addresses.iter().find(|a| a.is_ipv4() == to.is_ipv4())?;
            let (local, remote) = (SocketAddr::new(*from, 500), SocketAddr::new(to, 500));
            Some((Path { local, remote, carrier: Carrier::Ike }, ETHERNET))
        };
        for connection in gateways.keys() {
            self.host.find_ways(now, connection, way);
        }
    }

    fn order_radio(&mut self, now: Instant, order: host::Radio) {
        let Some(radio) = &mut self.machine.radio else { return };
        let (takes, on) = match order {
            host::Radio::Off => (OFF, false),
            host::Radio::On => (ON, true),
            host::Radio::Look => {
                if radio.on {
                    self.host.radio_on(now);
                }
                return;
            }
        };
        radio.orders.push((now, on));
        radio.pending = Some((now + takes, on));
    }

    fn tell(&mut self, news: News) {
        match news {
            News::Changed(change) => self.machine.has_changed(change),
            News::Sleep(event) => {
                if let Some(radio) = &mut self.machine.radio {
                    radio.news.push(event);
                }
            }
            News::Announced { verdict, .. } => self.machine.sleep = Some(verdict),
            News::Resending { packets } => self.machine.handed += packets as u64,
            News::Missed { .. } | News::Record(_) => {}
        }
    }
}

fn is_of_tickets(what: &Store) -> bool {
    matches!(what, Store::Ticket { .. } | Store::TicketKeys { .. })
}

impl Driver for Process<'_> {
    type Error = Infallible;

    fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    fn carry_out(&mut self, now: Instant, output: Output, bytes: &mut Vec<u8>) {
        if !self.lives_on() {
            return;
        }
        match output {
            Output::Datagram(datagram) => self.send_one(now, datagram, bytes),
            Output::Inner(Origin::Tunnel) => self.machine.come_out(bytes),
            Output::Inner(Origin::StandIn | Origin::Error) => {
                self.machine.answers.push(std::mem::take(bytes))
            }
            Output::Transit(to) => self.machine.transit.push_back((to, std::mem::take(bytes))),
            Output::Order(order) => self.obey(now, order),
            Output::News(news) => self.tell(news),
        }
    }

    fn forward(&mut self, now: Instant) -> Result<(), Infallible> {
        let mut batch = Batch::default();
        for _ in 0..self.machine.kernel.batch() {
            let Some(mut packet) = self.machine.kernel.tun.pop_front().filter(|_| !self.dead) else { break };
            self.machine.handed += u64::from(ip::flow(&packet).is_some());
            match self.host.plan(now, packet.as_mut_slice()) {
                Plan::Drop => {}
                Plan::Answer(answer) => self.machine.answers.push(answer),
                Plan::Seal(geometry) => {
                    if batch.geometry.is_some_and(|g| g != geometry) {
                        self.send(now, &mut batch);
                    }
                    batch.place(geometry, &packet);
                }
            }
        }
        self.send(now, &mut batch);
        Ok(())
    }

    fn is_beginning(&self) -> bool {
        self.machine.kernel.engine.is_beginning() && !self.dead
    }

    fn drain(&mut self, now: Instant) {
        while !self.machine.kernel.tun.is_empty() && !self.dead {
            let Ok(()) = self.forward(now);
        }
        self.receive(now, u64::MAX);
    }

    fn begin(&mut self, now: Instant) {
        self.machine.engine_begins(now);
    }
}

/// Packets of one geometry, end to end, as the daemon's batches have them.
#[derive(Default)]
struct Batch {
    geometry: Option<Geometry>,
    slots: Vec<u8>,
    sizes: Vec<usize>,
}

impl Batch {
    fn place(&mut self, geometry: Geometry, packet: &[u8]) {
        let inner = packet.get(geometry.strip..).unwrap_or_default();
        let at = self.slots.len() + geometry.head;
        self.slots.resize(self.slots.len() + geometry.stride, 0);
        if let Some(slot) = self.slots.get_mut(at..at + inner.len()) {
            slot.copy_from_slice(inner);
        }
        self.sizes.push(inner.len());
        self.geometry = Some(geometry);
    }
}
