//! Many devices and one gateway. Owns the clock and the wire between them: a network that delivers everything after one delay,
//! to each device that is awake; some devices are behind a NAT. What a bad network loses, and who moves, is [`crate::World`]'s.
//!
//! It keeps books on what is promised to devices that sleep ([`Ledger`]): a device whose session is promised to be held must find
//! it, and the gateway sends nothing to a device whose sleep it has acknowledged.

use crate::ledger::Ledger;
use crate::machine::{self, Disk, Machine, Retired, is_esp};
use dormouse_ike::config::{EndpointConfig, HalfOpen, HoldPolicy};
use dormouse_ike::ticket::{TicketGuard, TicketKeys};
use dormouse_netem::{Nat, NatConfig};
use dormouse_node::host::Host;
use dormouse_node::ladder::Rung;
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_node::{Change, Limits, SleepFlags, SleepVerdict};
use dormouse_sansio::{Entropy, Instant, Path, Seeded, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const CONNECTION: &str = "office";
const EPOCH: u64 = 1_800_000_000;
const DELAY: Duration = Duration::from_millis(20);
const ROTATE: Duration = Duration::from_secs(24 * 3_600);
const KEEP: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A promise that ends this soon after the wake is not relied upon.
const PROMISE_MARGIN: Duration = Duration::from_secs(10);
/// The gateway asks after this much silence, and gives up after that much.
const LIVENESS: (u32, u32) = (20, 60);
/// NATs here forget only when they are told to.
const NAT_IDLE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What differs between crowds besides the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// What the gateway does with sessions of devices that sleep.
    pub hold: HoldPolicy,
    /// Bounds of its stand-in and how long that keeps anything, if it has one.
    pub stand_in: Option<(Limits, Duration)>,
    /// Each so-manyth device is behind a NAT of its own; 0: none.
    pub natted: usize,
}

/// One device.
pub struct Member {
    /// Its machine.
    pub host: Machine,
    /// It has power, and its radio was not switched off by hand.
    pub awake: bool,
    /// The gateway's life with which its session is. A hint that the session is lost is no session yet.
    pub with: u64,
    /// Where the network finds it.
    address: Ipv4Addr,
    nat: Option<Nat>,
    due: Option<Instant>,
    /// The gateway's life that knows of the sleep that it is in, or going into.
    told: Option<u64>,
    /// It woke under the promise of this life of the gateway that its session is held.
    promised: Option<u64>,
    listened: bool,
    /// Changes that were looked at.
    seen: usize,
}

impl Member {
    /// Whether it would hear something.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.awake && self.host.node().is_some() && self.host.radio_is_on()
    }

    /// Where it is, as it sees it.
    fn inside(&self) -> Ipv4Addr {
        let [_, _, high, low] = self.address.octets();
        if self.nat.is_some() { Ipv4Addr::new(192, 168, high, low) } else { self.address }
    }
}

/// See the module's documentation.
pub struct Crowd {
    /// The clock.
    pub now: Instant,
    /// Everybody.
    pub devices: Vec<Member>,
    /// The one that serves them.
    pub gateway: Machine,
    /// Datagrams that the gateway sent to a device whose radio was off.
    pub disturbed: u64,
    /// Those among them that were sent although it had told the device that it knows of its sleep.
    pub broken_peace: u64,
    /// How often the gateway was started.
    pub life: u64,
    /// When that began.
    born: Instant,
    /// Radios of devices that were killed.
    pub retired: Vec<Retired>,
    ledger: Ledger,
    /// How far the wall clock has been moved, in seconds.
    skew: i64,
    seed: u64,
    rng: Seeded,
    setting: Setting,
    wire: BTreeMap<(Instant, u64), (Path, Vec<u8>)>,
    due: BTreeSet<(Instant, usize)>,
    counter: u64,
    sent: u64,
}

impl Crowd {
    /// `count` devices that want to be connected, each a little later than the one before.
    ///
    /// # Panics
    /// If the configuration is not valid.
    #[must_use]
    pub fn new(seed: u64, count: usize, hold: HoldPolicy) -> Self {
        Self::in_setting(seed, count, Setting { hold, ..Setting::default() })
    }

    /// The same, with more to choose.
    ///
    /// # Panics
    /// If the configuration is not valid.
    #[must_use]
    pub fn in_setting(seed: u64, count: usize, setting: Setting) -> Self {
        let mut rng = Seeded::new(seed);
        let keys = TicketKeys::generate(UnixTime(EPOCH), ROTATE, KEEP, &mut rng.fork());
        let ticket_keys = keys.export().as_bytes().to_vec();
        let disk = Disk { ticket_keys, ..Disk::default() };
        let core = gateway(&mut rng, &disk, &setting, Instant::ZERO, UnixTime(EPOCH));
        let mut gateway = Machine::new(core);
        gateway.disk = disk;
        let devices = (0..count)
            .map(|n| {
                let n = u16::try_from(n).unwrap_or(u16::MAX);
                let [high, low] = n.to_be_bytes();
                let host = Machine::new(device(&mut rng, n, Instant::ZERO, UnixTime(EPOCH)));
                let address = Ipv4Addr::new(10, 1, high, low);
                let natted = setting.natted > 0 && usize::from(n) % setting.natted == setting.natted - 1;
                let config =
                    NatConfig { idle: NAT_IDLE, preserve_ports: false, ..NatConfig::new(address.into()) };
                Member {
                    host,
                    awake: true,
                    with: 0,
                    address,
                    nat: natted.then(|| Nat::new(config, rng.next_u64())),
                    due: None,
                    told: None,
                    promised: None,
                    listened: true,
                    seen: 0,
                }
            })
            .collect();
        let mut crowd = Self {
            now: Instant::ZERO,
            devices,
            gateway,
            disturbed: 0,
            broken_peace: 0,
            life: 0,
            born: Instant::ZERO,
            retired: Vec::new(),
            ledger: Ledger::default(),
            skew: 0,
            seed,
            rng,
            setting,
            wire: BTreeMap::new(),
            due: BTreeSet::new(),
            counter: 0,
            sent: 0,
        };
        for n in 0..count {
            crowd.arrive(n);
            crowd.run(Duration::from_millis(3));
        }
        crowd
    }

    fn arrive(&mut self, n: usize) {
        let now = self.now;
        self.with(n, |member| {
            member.host.gateways.insert(CONNECTION.into(), vec![GATEWAY.into()]);
            member.host.set_addresses(now, vec![member.inside().into()]);
            member.host.with(now, |host| _ = host.up(now, CONNECTION));
        });
    }

    /// Does something to a device, and what follows from it.
    fn with(&mut self, n: usize, act: impl FnOnce(&mut Member)) {
        let now = self.now;
        let Some(member) = self.devices.get_mut(n) else { return };
        act(member);
        member.host.flush(now);
        self.settle(n);
    }

    /// Takes over what a device wants sent, and when it wants to run.
    fn settle(&mut self, n: usize) {
        self.keep_books(n);
        let now = self.now;
        let Some(member) = self.devices.get_mut(n) else { return };
        if let Some(old) = member.due.take() {
            self.due.remove(&(old, n));
        }
        member.due = member.host.due();
        self.due.extend(member.due.map(|at| (at, n)));
        let listens = member.listens();
        let sent: Vec<_> = member.host.outbox.drain(..).filter(|_| listens).collect();
        for (path, datagram) in sent {
            let outside = match self.devices.get_mut(n).and_then(|m| m.nat.as_mut()) {
                Some(nat) => nat.outbound(now, path).ok(),
                None => Some(path),
            };
            if let Some(path) = outside {
                self.post((path, datagram));
            }
        }
    }

    /// Notes what the device was told about its sleep, and holds the gateway to it when the device is back.
    fn keep_books(&mut self, n: usize) {
        let (life, born, seed, now) = (self.life, self.born, self.seed, self.now);
        // Where there is not room for all, the device that slept longest may find its session gone.
        let strict = self.setting.hold.most >= self.devices.len();
        let Some(member) = self.devices.get_mut(n) else { return };
        let listens = member.listens();
        if listens && !member.listened {
            let until = match member.host.sleep.take() {
                Some(SleepVerdict::Held { until, .. }) => Some(until),
                _ => None,
            };
            // What ends while the device is coming back counts as no broken promise.
            let held = until.is_some_and(|until| now + PROMISE_MARGIN < until);
            member.promised = member.told.take().filter(|told| *told == life && held);
        }
        member.listened = listens;
        if member.host.sleep.is_some() && member.told.is_none() {
            // What was on the wire when the gateway died is a promise of the life before.
            let on_the_wire = life > 0 && now < born + DELAY;
            member.told = Some(if on_the_wire { life - 1 } else { life });
        }
        for change in member.host.changes.iter().skip(member.seen) {
            let Change::Up { rung, .. } = change else { continue };
            if *rung > Rung::Move {
                member.with = life;
            }
            if member.promised.take() == Some(life) && strict {
                assert!(
                    *rung <= Rung::Move,
                    "seed {seed}: device {n} was promised its session and came back by {rung:?}"
                );
                self.ledger.kept_promises += 1;
            }
        }
        member.seen = member.host.changes.len();
    }

    fn post(&mut self, datagram: (Path, Vec<u8>)) {
        self.counter += 1;
        self.wire.insert((self.now + DELAY, self.counter), datagram);
    }

    fn settle_gateway(&mut self) {
        let sent: Vec<_> = self.gateway.outbox.drain(..).collect();
        for (path, datagram) in sent {
            if let Some(m) = self.member_at(path.remote.ip()).and_then(|n| self.devices.get(n))
                && !m.listens()
            {
                self.disturbed += 1;
                let knows = m.told == Some(self.life)
                    && matches!(m.host.sleep, Some(SleepVerdict::Held { .. } | SleepVerdict::Released));
                self.broken_peace += u64::from(knows && m.host.node().is_some());
            }
            self.post((path, datagram));
        }
    }

    fn member_at(&self, address: IpAddr) -> Option<usize> {
        let IpAddr::V4(v4) = address else { return None };
        let [_, _, high, low] = v4.octets();
        Some(usize::from(u16::from_be_bytes([high, low])))
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle_gateway();
        loop {
            let wire = self.wire.keys().next().map(|k| k.0);
            let device = self.due.first().map(|d| d.0);
            let Some(next) = [wire, device, self.gateway.due()].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(entry) = self.wire.first_entry().filter(|e| e.key().0 <= now) {
            let (sent, datagram) = entry.remove();
            if sent.remote.ip() == IpAddr::V4(GATEWAY) {
                self.gateway.receive(now, arrived(sent), datagram);
                self.settle_gateway();
            } else if let Some(n) = self.member_at(sent.remote.ip()) {
                self.reach(n, sent, datagram);
            }
        }
        while let Some((_, n)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(member) = self.devices.get_mut(n) {
                member.host.run(now);
            }
            self.settle(n);
        }
        self.gateway.run(now);
        self.settle_gateway();
    }

    /// A datagram is before a device's door.
    fn reach(&mut self, n: usize, sent: Path, datagram: Vec<u8>) {
        let now = self.now;
        let Some(member) = self.devices.get_mut(n) else { return };
        let esp = u64::from(is_esp(&sent, &datagram));
        let inside = match &mut member.nat {
            Some(nat) => nat.inbound(now, sent).ok(),
            None => Some(sent),
        };
        match inside {
            None => self.ledger.stopped += esp,
            Some(_) if !member.listens() => self.ledger.deaf += esp,
            Some(path) => {
                member.host.receive(now, arrived(path), datagram);
                self.settle(n);
            }
        }
    }

    /// A device announces a sleep; its radio goes off when [`Crowd::switch_off`] is called, some seconds later.
    pub fn announce(&mut self, n: usize, expect: Option<Duration>) {
        let now = self.now;
        self.with(n, |member| {
            if let Some(node) = member.host.node_mut() {
                node.prepare_sleep(now, CONNECTION, expect, None, SleepFlags::default());
            }
        });
    }

    /// The radio goes off.
    pub fn switch_off(&mut self, n: usize) {
        let now = self.now;
        self.with(n, |member| {
            member.host.with(now, |host| _ = host.suspend(now, Reason::User));
        });
        if let Some(member) = self.devices.get_mut(n) {
            member.awake = false;
            let due = member.host.due();
            assert_eq!(due, None, "seed {}: device {n} wants to run while it sleeps", self.seed);
        }
    }

    /// The radio is back.
    pub fn switch_on(&mut self, n: usize) {
        let now = self.now;
        self.with(n, |member| {
            member.awake = true;
            member.host.with(now, |host| host.resume(now, Cause::User));
        });
    }

    /// The device's battery is taken out.
    pub fn kill(&mut self, n: usize) {
        let (now, mut radio) = (self.now, None);
        self.with(n, |member| {
            member.awake = false;
            radio = member.host.retire_radio(now);
            member.host.crash();
            (member.host.sleep, member.told, member.promised) = (None, None, None);
        });
        self.retired.extend(radio);
    }

    /// A device that was killed starts again, with what it had on its disk and a new radio, which `give` may give it.
    pub fn revive(&mut self, n: usize, give: impl FnOnce(Instant, &mut Machine)) {
        let (now, unix) = (self.now, self.unix());
        let host = device(&mut self.rng, u16::try_from(n).unwrap_or(u16::MAX), now, unix);
        self.with(n, |member| {
            member.awake = true;
            member.host.restart(now, host);
            give(now, &mut member.host);
        });
        self.arrive(n);
    }

    /// The NAT before a device forgets its mappings; nothing happens to a device without one.
    pub fn forget_nat(&mut self, n: usize) {
        if let Some(nat) = self.devices.get_mut(n).and_then(|m| m.nat.as_mut()) {
            nat.reboot();
        }
    }

    /// Does something to a device's machine.
    pub fn with_machine(&mut self, n: usize, act: impl FnOnce(Instant, &mut Machine)) {
        let now = self.now;
        self.with(n, |member| act(now, &mut member.host));
    }

    /// The gateway's process dies, and is back at once with what it had on its disk.
    pub fn restart_gateway(&mut self) {
        self.books_of_this_life(true);
        self.gateway.crash();
        self.life += 1;
        self.born = self.now;
        let unix = self.unix();
        let host = gateway(&mut self.rng, &self.gateway.disk, &self.setting, self.now, unix);
        self.gateway.restart(self.now, host);
    }

    /// What the stand-in of this life has done; `over`: what waits there is lost with it.
    fn books_of_this_life(&mut self, over: bool) -> Ledger {
        let totals = self.gateway.node().and_then(|node| node.stand_in_totals());
        let (books, (waiting, _)) = totals.unwrap_or_default();
        assert_eq!(books.answers(), 0, "seed {}: nothing here can be answered for anybody", self.seed);
        let mut ledger = self.ledger.clone();
        for (reason, packets) in &books.dropped {
            *ledger.dropped.entry(reason.name()).or_default() += packets;
        }
        if over {
            ledger.died += waiting as u64;
            self.ledger = ledger.clone();
        } else {
            ledger.waiting = waiting as u64;
        }
        ledger
    }

    /// What became of everything so far.
    pub fn ledger(&mut self) -> Ledger {
        let mut ledger = self.books_of_this_life(false);
        ledger.nowhere = self.gateway.nowhere();
        for member in &self.devices {
            ledger.arrived += member.host.received.len() as u64;
            ledger.refused += member.host.refused;
        }
        ledger
    }

    /// Sets the clocks of both ends by so many seconds.
    pub fn set_clocks(&mut self, by: i64) {
        self.skew += by;
        let (now, unix) = (self.now, self.unix());
        let nodes = self.devices.iter_mut().map(|m| &mut m.host).chain([&mut self.gateway]);
        nodes.filter_map(Machine::node_mut).for_each(|node| node.set_wall_clock(now, unix));
    }

    fn unix(&self) -> UnixTime {
        let unix = UnixTime(EPOCH) + (self.now - Instant::ZERO);
        UnixTime(unix.0.saturating_add_signed(self.skew))
    }

    /// Sends a numbered packet from a device to the server; returns its number.
    pub fn send_up(&mut self, n: usize) -> u64 {
        self.send_up_to(n, 9)
    }

    /// The same, to a port: what a policy tells flows apart by.
    pub fn send_up_to(&mut self, n: usize, port: u16) -> u64 {
        self.sent += 1;
        let (now, number) = (self.now, self.sent);
        self.with(n, |member| {
            if let Some(inner) = member.host.inner {
                member.host.send_to(now, inner, SocketAddr::new(SERVER.into(), port), number);
            }
        });
        number
    }

    /// Sends a numbered packet from the server to a device; returns its number.
    pub fn send_down(&mut self, n: usize) -> u64 {
        self.send_down_to(n, 9)
    }

    /// The same, to a port of the device.
    pub fn send_down_to(&mut self, n: usize, port: u16) -> u64 {
        self.sent += 1;
        let inner = self.devices.get(n).and_then(|m| m.host.inner);
        if let Some(inner) = inner {
            self.ledger.sent += 1;
            self.gateway.send_to(self.now, SERVER.into(), SocketAddr::new(inner, port), self.sent);
            self.settle_gateway();
        }
        self.sent
    }

    /// How the sessions came up since the last question, counted by rung.
    pub fn rungs(&mut self) -> BTreeMap<Rung, usize> {
        let mut rungs = BTreeMap::new();
        for member in &mut self.devices {
            member.seen = 0;
        }
        for change in self.devices.iter_mut().flat_map(|m| m.host.changes.drain(..)) {
            if let Change::Up { rung, .. } = change {
                *rungs.entry(rung).or_default() += 1;
            }
        }
        rungs
    }

    /// Sessions at the gateway.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.gateway.node().map_or(0, |node| node.gateway_sessions(self.now).len())
    }

    /// Every device that is awake can send and receive, and the gateway has one session for each and nothing else.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn check(&mut self) {
        let seed = self.seed;
        let awake: Vec<usize> =
            self.devices.iter().enumerate().filter(|(_, m)| m.listens()).map(|(n, _)| n).collect();
        let up: Vec<(usize, u64)> = awake.iter().map(|&n| (n, self.send_up(n))).collect();
        self.run(Duration::from_secs(3));
        let down: Vec<(usize, u64)> = awake.iter().map(|&n| (n, self.send_down(n))).collect();
        self.run(Duration::from_secs(3));
        let arrived: BTreeSet<u64> = self.gateway.received.drain(..).collect();
        for (n, number) in up {
            assert!(arrived.contains(&number), "seed {seed}: device {n} cannot send");
        }
        for (n, number) in down {
            let there = self.devices.get(n).is_some_and(|m| m.host.received.contains(&number));
            assert!(there, "seed {seed}: device {n} cannot receive");
        }
    }
}

/// A path as the receiver of a datagram sees it.
fn arrived(sent: Path) -> Path {
    Path { local: sent.remote, remote: sent.local, carrier: sent.carrier }
}

fn connection(role: &str, own: &str, peer: &str, rest: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let secret = "secret = \"a secret of the simulation\"";
    format!(
        "[connection.{CONNECTION}]\nrole = \"{role}\"\n{gateway}\n[connection.{CONNECTION}.local]\nid = \"{own}\"\n{secret}\n\
         [connection.{CONNECTION}.remote]\nid = \"{peer}\"\n{secret}\n{rest}"
    )
}

fn device(rng: &mut Seeded, n: u16, now: Instant, unix: UnixTime) -> Host {
    let child =
        format!("[connection.{CONNECTION}.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n");
    let toml = connection("client", &format!("device{n}.sim"), "gateway.sim", &child);
    machine::host(now, &toml, EndpointConfig::default(), rng, unix)
}

fn gateway(rng: &mut Seeded, disk: &Disk, setting: &Setting, now: Instant, unix: UnixTime) -> Host {
    let rest = format!(
        "[connection.{CONNECTION}.ike]\nliveness = {}\nliveness_timeout = {}\n\
         [connection.{CONNECTION}.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
         [connection.{CONNECTION}.pool]\naddresses = [\"10.64.0.0/16\"]\n",
        LIVENESS.0, LIVENESS.1
    );
    let toml = connection("gateway", "gateway.sim", "*.sim", &rest);
    let pool = Pool::new(["10.64.0.0/16".parse().unwrap_or_default()]);
    let endpoint = EndpointConfig {
        pool: Some(Box::new(SharedPool::new(pool))),
        ticket_keys: TicketKeys::import(&disk.ticket_keys, ROTATE, KEEP).ok(),
        ticket_guard: TicketGuard::load(&disk.spent, unix),
        half_open: HalfOpen { cookie_threshold: 32, ..HalfOpen::default() },
        hold: setting.hold,
        ..EndpointConfig::default()
    };
    let mut host = machine::host(now, &toml, endpoint, rng, unix);
    if let Some((limits, longest)) = setting.stand_in {
        host.node_mut().stand_in_for_sleepers(limits, longest);
    }
    host
}
