//! The world: two hosts, the links and the NAT between them, and one clock. Owns time and the laws of the network.

use crate::invariants::Invariants;
use crate::machine::{self, Disk, Machine};
use crate::script::{Script, Step};
use crate::settings::{LIVENESS, Settings};
use dormouse_ike::config::EndpointConfig;
use dormouse_ike::ticket::{TicketGuard, TicketKeys};
use dormouse_netem::{Link, LinkConfig, Nat, NatConfig};
use dormouse_node::host::Host;
use dormouse_node::ladder::{Rung, State};
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_node::{ANNOUNCE, Change, Node, SleepFlags};
use dormouse_sansio::{Carrier, Entropy, Instant, Path, Seeded, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const NAT_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 6);
const CONNECTION: &str = "office";
/// Wall-clock time at the world's beginning.
const EPOCH: u64 = 1_800_000_000;
/// Iterations at one moment after which something spins.
const SPIN: u32 = 20_000;

/// An access network of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Routed.
    A,
    /// Behind a NAT.
    B,
}

impl Access {
    fn address(self) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(10, 1, 0, 2),
            Self::B => Ipv4Addr::new(192, 168, 7, 2),
        }
    }
}

/// See the module's documentation.
pub struct World {
    /// The clock.
    pub now: Instant,
    /// The mobile end.
    pub device: Machine,
    /// The fixed end.
    pub gateway: Machine,
    /// Where the device is.
    pub access: Option<Access>,
    seed: u64,
    rng: Seeded,
    settings: Settings,
    up: Link<Path>,
    down: Link<Path>,
    nat: Nat,
    sent: u64,
    invariants: Invariants,
}

impl World {
    /// A world in which the device is in network A and wants to be connected.
    ///
    /// # Panics
    /// If `settings` do not make a valid configuration.
    #[must_use]
    pub fn new(seed: u64, settings: Settings) -> Self {
        let mut rng = Seeded::new(seed);
        let link = LinkConfig { delay: settings.delay, jitter: settings.delay / 4, ..LinkConfig::default() };
        let up = Link::new(link, rng.next_u64());
        let down = Link::new(link, rng.next_u64());
        let mut nat_config = NatConfig::new(NAT_OUTSIDE.into());
        nat_config.idle = settings.nat_idle;
        let nat = Nat::new(nat_config, rng.next_u64());
        let keys = TicketKeys::generate(UnixTime(EPOCH), ROTATE, KEEP, &mut rng.fork());
        let ticket_keys = keys.export().as_bytes().to_vec();
        let device = Machine::new(device(&settings, &mut rng, Instant::ZERO, UnixTime(EPOCH)));
        let disk = Disk { ticket_keys, ..Disk::default() };
        let mut gateway = Machine::new(gateway(&settings, &mut rng, &disk, Instant::ZERO, UnixTime(EPOCH)));
        gateway.disk = disk;
        let mut world = Self {
            now: Instant::ZERO,
            device,
            gateway,
            access: None,
            seed,
            rng,
            settings,
            up,
            down,
            nat,
            sent: 0,
            invariants: Invariants::default(),
        };
        world.enter(Access::A);
        world.connect();
        world
    }

    /// The device wants to be connected.
    pub fn connect(&mut self) {
        let now = self.now;
        self.device.with(now, |host| _ = host.up(now, CONNECTION));
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// If an end runs in circles without time passing.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let (mut moment, mut spins) = (self.now, 0);
        loop {
            self.post();
            let due = [self.up.poll_timeout(), self.down.poll_timeout()].into_iter().flatten().map(|d| d.at);
            let next = due
                .chain(self.device.due())
                .chain(self.gateway.due())
                .min()
                .unwrap_or(Instant::FAR_FUTURE)
                .max(self.now);
            if next > end {
                break;
            }
            spins = if next == moment { spins + 1 } else { 0 };
            moment = next;
            assert!(spins < SPIN, "seed {}: something spins at {:?}", self.seed, self.now);
            self.now = next;
            self.deliver();
            self.device.run(next);
            let before = self.gateway.outbox.len();
            self.gateway.run(next);
            assert!(
                self.gateway.outbox.len() == before || !self.only_sleepers(),
                "a timer of the gateway disturbed a sleeping device; seed {} at {next:?}",
                self.seed
            );
        }
        self.now = end;
    }

    /// Hands what the hosts send to the links.
    fn post(&mut self) {
        let now = self.now;
        let inner = [Some(SERVER.into()), self.device.inner];
        for (device, host) in [(true, &self.device), (false, &self.gateway)] {
            for (path, datagram) in &host.outbox {
                self.invariants.sends(device, path, datagram, inner);
            }
        }
        self.invariants.look(self.sent, &self.device, &self.gateway);
        while let Some((path, datagram)) = self.device.outbox.pop_front() {
            let Some(access) = self.access.filter(|_| self.device.radio_is_on()) else { continue };
            if path.local.ip() != IpAddr::V4(access.address()) {
                continue;
            }
            let outside = match access {
                Access::A => Some(path),
                Access::B => self.nat.outbound(now, path).ok(),
            };
            if let Some(path) = outside {
                // A link that refuses has lost the datagram: the ends must cope.
                let _ = self.up.enqueue(now, path, datagram);
            }
        }
        while let Some((path, datagram)) = self.gateway.outbox.pop_front() {
            let _ = self.down.enqueue(now, path, datagram);
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        while let Some((path, datagram)) = self.up.poll_deliver(now) {
            if path.remote.ip() == IpAddr::V4(GATEWAY) {
                self.gateway.receive(now, arrived(path), datagram);
            }
        }
        while let Some((path, datagram)) = self.down.poll_deliver(now) {
            if !self.device.radio_is_on() {
                continue;
            }
            let inside = match self.access {
                Some(Access::A) => Some(path),
                Some(Access::B) => self.nat.inbound(now, path).ok(),
                None => None,
            };
            let here = self.access.map(|a| IpAddr::V4(a.address()));
            if let Some(path) = inside.filter(|p| Some(p.remote.ip()) == here) {
                self.device.receive(now, arrived(path), datagram);
            }
        }
    }

    /// The device enters a network.
    pub fn enter(&mut self, access: Access) {
        self.access = Some(access);
        self.tell_network();
    }

    /// The device leaves every network.
    pub fn leave(&mut self) {
        self.access = None;
        self.tell_network();
    }

    fn tell_network(&mut self) {
        let now = self.now;
        let path = self.access.map(|a| Path {
            local: SocketAddr::new(a.address().into(), 500),
            remote: SocketAddr::new(GATEWAY.into(), 500),
            carrier: Carrier::Ike,
        });
        self.device.set_ways(now, CONNECTION, path.into_iter().collect());
    }

    /// Sends a numbered packet from the device to the server; returns its number.
    pub fn send_up(&mut self) -> u64 {
        self.sent += 1;
        let (now, inner) = (self.now, self.device.inner);
        if let Some(inner) = inner {
            self.device.send(now, inner, SERVER.into(), self.sent);
        }
        self.sent
    }

    /// Sends a numbered packet from the device to a port of the server; returns its number.
    pub fn send_up_to(&mut self, port: u16) -> u64 {
        self.sent += 1;
        let (now, inner) = (self.now, self.device.inner);
        if let Some(inner) = inner {
            self.device.send_to(now, inner, SocketAddr::new(SERVER.into(), port), self.sent);
        }
        self.sent
    }

    /// Sends a numbered packet from the server to the device; returns its number.
    pub fn send_down(&mut self) -> u64 {
        self.sent += 1;
        let (now, inner) = (self.now, self.device.inner);
        if let Some(inner) = inner {
            self.gateway.send(now, SERVER.into(), inner, self.sent);
        }
        self.sent
    }

    /// Climbs one rung of the device's session, which must be up.
    ///
    /// # Panics
    /// With the seed, if it cannot be done now.
    pub fn exercise(&mut self, rung: Rung) {
        let begun = self.device.node_mut().is_some_and(|node| node.exercise(self.now, CONNECTION, rung));
        assert!(begun, "seed {}: {rung:?} cannot be exercised", self.seed);
        self.device.flush(self.now);
    }

    /// Plays a story.
    pub fn play(&mut self, script: &Script) {
        for step in &script.0 {
            self.step(*step);
        }
    }

    /// One step of a story.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Pause(time) => self.run(time),
            Step::Enter(access) => self.enter(access),
            Step::Leave => self.leave(),
            Step::Sleep(time, access) => self.sleep(time, access),
            Step::Nap(time, access) => self.nap(time, access),
            Step::NatForgets => self.nat.reboot(),
            Step::Weather { loss, duplication, reordering } => self.weather(loss, duplication, reordering),
            Step::GatewayCrash(time, keys_survive) => {
                self.gateway.crash();
                self.run(time);
                self.start_gateway(keys_survive);
            }
            Step::DeviceCrash(time) => {
                self.device.crash();
                self.run(time);
                let (now, unix) = (self.now, self.unix());
                let host = device(&self.settings, &mut self.rng, now, unix);
                self.device.restart(now, host);
                self.connect();
            }
            Step::Data(count) => {
                for _ in 0..count {
                    self.send_up();
                    self.send_down();
                    self.run(Duration::from_millis(50));
                }
            }
            Step::RekeyChild(both) => self.rekey(both, Node::rekey_children),
            Step::RekeyIke(both) => self.rekey(both, Node::rekey_ike_sas),
            Step::DownUp(time) => {
                let now = self.now;
                self.device.with(now, |host| _ = host.down(now, CONNECTION));
                self.run(time);
                self.connect();
            }
        }
    }

    fn sleep(&mut self, time: Duration, access: Access) {
        let now = self.now;
        self.device.with(now, |host| _ = host.suspend(now, Reason::User));
        self.post();
        self.access = None;
        let before = self.device.wakeups.values().sum::<u64>();
        self.run(time);
        let after = self.device.wakeups.values().sum::<u64>();
        assert_eq!(
            before, after,
            "seed {}: a timer ran on a sleeping device: {:?}",
            self.seed, self.device.wakeups
        );
        self.wake(access);
    }

    /// The device says that it sleeps, for `expect` at most, and its radio goes off once the gateway has answered.
    pub fn announce_sleep(&mut self, expect: Option<Duration>, wishes: SleepFlags) {
        let now = self.now;
        self.device.sleep = None;
        self.device.with(now, |host| {
            host.node_mut().prepare_sleep(now, CONNECTION, expect, None, wishes);
        });
        let mut patience = ANNOUNCE;
        while self.device.sleep.is_none() && !patience.is_zero() {
            let step = Duration::from_millis(10).min(patience);
            self.run(step);
            patience -= step;
        }
        let now = self.now;
        self.device.with(now, |host| _ = host.suspend(now, Reason::User));
        self.post();
        self.access = None;
    }

    /// The device's radio is back, in `access`.
    pub fn wake(&mut self, access: Access) {
        self.enter(access);
        let now = self.now;
        self.device.with(now, |host| host.resume(now, Cause::User));
    }

    /// A sleep that is announced first. A gateway that has heard of it says nothing to the device until it is over.
    fn nap(&mut self, time: Duration, access: Access) {
        let now = self.now;
        self.device.with(now, |host| {
            host.node_mut().prepare_sleep(now, CONNECTION, Some(time), None, SleepFlags::default());
        });
        self.run(dormouse_node::ANNOUNCE + Duration::from_millis(1));
        let now = self.now;
        self.device.with(now, |host| _ = host.suspend(now, Reason::User));
        self.access = None;
        // What is on its way arrives.
        self.run(Duration::from_secs(2));
        let known = self.gateway_rests();
        let before = self.gateway.node().map(|n| n.ike_stats().datagrams_out);
        self.run(time);
        let after = self.gateway.node().map(|n| n.ike_stats().datagrams_out);
        assert!(!known || before == after, "seed {}: the gateway disturbed a sleeping device", self.seed);
        self.enter(access);
        let now = self.now;
        self.device.with(now, |host| host.resume(now, Cause::User));
    }

    /// The gateway has no session but with a device that it knows to be asleep. One without a session may still have an SA whose delete
    /// it repeats.
    fn gateway_rests(&self) -> bool {
        let Some(node) = self.gateway.node() else { return true };
        let sessions = node.gateway_sessions(self.now);
        if sessions.is_empty() { node.ike_sas() == 0 } else { sessions.iter().all(|s| s.asleep) }
    }

    /// The gateway has sessions, all with devices that it knows to be asleep.
    fn only_sleepers(&self) -> bool {
        let sessions = self.gateway.node().map(|n| n.gateway_sessions(self.now)).unwrap_or_default();
        !sessions.is_empty() && sessions.iter().all(|s| s.asleep)
    }

    fn weather(&mut self, loss: f64, duplication: f64, reordering: f64) {
        for link in [&mut self.up, &mut self.down] {
            let reordering_delay = Duration::from_millis(300);
            let config = LinkConfig { loss, duplication, reordering, reordering_delay, ..*link.config() };
            link.set_config(config);
        }
    }

    fn rekey(&mut self, both: bool, rekey: fn(&mut Node, Instant)) {
        let now = self.now;
        self.device.with(now, |host| rekey(host.node_mut(), now));
        if both {
            self.gateway.with(now, |host| rekey(host.node_mut(), now));
        }
    }

    fn start_gateway(&mut self, keys_survive: bool) {
        let (now, unix) = (self.now, self.unix());
        if !keys_survive {
            let keys = TicketKeys::generate(unix, ROTATE, KEEP, &mut self.rng.fork());
            self.gateway.disk.ticket_keys = keys.export().as_bytes().to_vec();
        }
        let host = gateway(&self.settings, &mut self.rng, &self.gateway.disk, now, unix);
        self.gateway.restart(now, host);
    }

    fn unix(&self) -> UnixTime {
        UnixTime(EPOCH) + (self.now - Instant::ZERO)
    }

    /// After any story: with a good network, whichever of the two, the session is up within a bounded time, data flows both ways,
    /// the two ends agree, and nothing of the past is left at the gateway.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn settle_and_check(&mut self) {
        self.weather(0.0, 0.0, 0.0);
        if self.seed % 2 == 1 {
            self.settle(Access::B);
        }
        self.settle(Access::A);
        self.run(Duration::from_secs(2 * u64::from(LIVENESS.0 + LIVENESS.1) + 60));
        self.check_agreement();
    }

    fn settle(&mut self, access: Access) {
        let seed = self.seed;
        self.enter(access);
        self.run(Duration::from_secs(150));
        let state = self.device_state();
        let changes = &self.device.changes;
        let tail = changes.get(changes.len().saturating_sub(8)..).unwrap_or(changes);
        // A session that lost its peer while nobody sent anything may still believe in it: data, or liveness, finds out.
        assert!(
            matches!(state, State::Up | State::Climbing(_)),
            "seed {seed}: the device is {state:?} in {access:?}; {tail:#?}"
        );
        self.send_up();
        self.run(Duration::from_secs(90));
        if access == Access::B {
            // Behind a NAT that nobody keeps open, the gateway may have given the device up meanwhile.
            self.send_up();
            self.run(Duration::from_secs(15));
        }
        let numbers = [self.send_up(), self.send_up()];
        self.run(Duration::from_secs(2));
        let back = [self.send_down(), self.send_down()];
        self.run(Duration::from_secs(2));
        let state = self.device_state();
        assert_eq!(state, State::Up, "seed {seed}, {access:?}: {:#?}", self.device.changes);
        for number in numbers {
            let arrived = self.gateway.received.contains(&number);
            assert!(arrived, "seed {seed}: packet {number} did not reach the gateway from {access:?}");
        }
        for number in back {
            let arrived = self.device.received.contains(&number);
            assert!(arrived, "seed {seed}: packet {number} did not reach the device in {access:?}");
        }
    }

    /// Both ends have one session, the same. Asked a few times where lifetimes are short: a rekeying may be under way.
    fn check_agreement(&mut self) {
        for _ in 0..self.settings.agreement_retries() {
            if self.disagreement().is_none() {
                return;
            }
            self.run(Duration::from_millis(2_300));
        }
        let (seed, why) = (self.seed, self.disagreement());
        assert!(why.is_none(), "seed {seed}: {}; {:#?}", why.unwrap_or_default(), self.gateway.changes);
    }

    fn disagreement(&self) -> Option<String> {
        let (device, gateway) = (self.device.node()?, self.gateway.node()?);
        let ours: Vec<_> = device.client_infos(self.now).into_iter().filter_map(|c| c.session).collect();
        let theirs = gateway.gateway_sessions(self.now);
        if (ours.len(), theirs.len()) != (1, 1) {
            return Some(format!("{} and {} sessions; {theirs:#?}", ours.len(), theirs.len()));
        }
        let pairs = |sessions: &[dormouse_node::SessionInfo], swap: bool| {
            let children = sessions.iter().flat_map(|s| &s.children);
            let pair = |c: &dormouse_node::ChildInfo| {
                if swap { (c.spi_out, c.id.spi()) } else { (c.id.spi(), c.spi_out) }
            };
            children.map(pair).collect::<BTreeSet<(u32, u32)>>()
        };
        let (ours, theirs) = (pairs(&ours, false), pairs(&theirs, true));
        (ours != theirs).then(|| format!("the two ends hold different CHILD SAs: {ours:x?}, {theirs:x?}"))
    }

    /// The device's outer address, if it has one.
    pub(crate) fn device_address(&self) -> Option<SocketAddr> {
        self.access.map(|access| SocketAddr::new(access.address().into(), 500))
    }

    /// By which rungs the device came up, the first first.
    #[must_use]
    pub fn rungs(&self) -> Vec<Rung> {
        let up = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
        self.device.changes.iter().filter_map(up).collect()
    }

    /// What the device's ladder is doing.
    #[must_use]
    pub fn device_state(&self) -> State {
        self.device
            .node()
            .map_or(State::Down, |n| n.client_infos(self.now).first().map_or(State::Down, |c| c.state))
    }
}

const ROTATE: Duration = Duration::from_secs(24 * 3600);
const KEEP: Duration = Duration::from_secs(48 * 3600);

/// A path as the receiver of a datagram sees it.
fn arrived(sent: Path) -> Path {
    let carrier = match (sent.carrier, sent.remote.port()) {
        (Carrier::RawEsp, _) => Carrier::RawEsp,
        (_, 4500) => Carrier::NatT,
        (_, 500) => Carrier::Ike,
        // To a client behind a NAT, whose own port decides: it kept the carrier that it sent with.
        (carrier, _) => carrier,
    };
    Path { local: sent.remote, remote: sent.local, carrier }
}

fn device(settings: &Settings, rng: &mut Seeded, now: Instant, unix: UnixTime) -> Host {
    let child = "remote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n";
    let toml = connection("client", "device.sim", "gateway.sim", child, &settings.device);
    machine::host(now, &toml, EndpointConfig::default(), rng, unix)
}

fn gateway(settings: &Settings, rng: &mut Seeded, disk: &Disk, now: Instant, unix: UnixTime) -> Host {
    let child = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n";
    let toml = connection("gateway", "gateway.sim", "device.sim", child, &settings.gateway)
        + &format!("[connection.{CONNECTION}.pool]\naddresses = [\"10.55.0.0/24\"]\n");
    let pool = Pool::new(vec!["10.55.0.0/24".parse().unwrap_or_default()]);
    let endpoint = EndpointConfig {
        pool: Some(Box::new(SharedPool::new(pool))),
        ticket_keys: TicketKeys::import(&disk.ticket_keys, ROTATE, KEEP).ok(),
        ticket_guard: TicketGuard::load(&disk.spent, unix),
        hold: settings.hold,
        ..EndpointConfig::default()
    };
    let mut host = machine::host(now, &toml, endpoint, rng, unix);
    if let Some((limits, longest)) = settings.stand_in {
        host.node_mut().stand_in_for_sleepers(limits, longest);
    }
    host
}

/// One connection. `child`: lines of its section of that name, to which `extra` may add, as to any other.
fn connection(role: &str, own: &str, peer: &str, child: &str, extra: &[(&'static str, String)]) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let secret = "secret = \"a secret of the simulation\"";
    let mut toml = format!(
        "[connection.{CONNECTION}]\nrole = \"{role}\"\n{gateway}\n[connection.{CONNECTION}.local]\nid = \"{own}\"\n{secret}\n\
         [connection.{CONNECTION}.remote]\nid = \"{peer}\"\n{secret}\n"
    );
    let mut sections = BTreeMap::from([("child", child.to_owned())]);
    for (name, line) in extra {
        sections.entry(name).or_default().extend([line.as_str(), "\n"]);
    }
    for (name, lines) in sections {
        toml += &format!("[connection.{CONNECTION}.{name}]\n{lines}");
    }
    toml
}
