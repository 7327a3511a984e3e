//! Many devices and one gateway. Owns the clock and the wire between them: a network that delivers everything after one delay,
//! to whoever is awake. What is lost, and who moves, is [`crate::World`]'s.

use crate::host::Host;
use crate::world::node;
use dormouse_ike::config::{EndpointConfig, HalfOpen, HoldPolicy};
use dormouse_ike::ticket::{TicketGuard, TicketKeys};
use dormouse_node::ladder::Rung;
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::{Change, SleepFlags};
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
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
/// The gateway asks after this much silence, and gives up after that much.
const LIVENESS: (u32, u32) = (20, 60);

/// One device.
pub struct Member {
    /// Its machine.
    pub host: Host,
    /// Its radio is on.
    pub awake: bool,
    address: Ipv4Addr,
    due: Option<Instant>,
}

/// See the module's documentation.
pub struct Crowd {
    /// The clock.
    pub now: Instant,
    /// Everybody.
    pub devices: Vec<Member>,
    /// The one that serves them.
    pub gateway: Host,
    /// Datagrams that the gateway sent to a device whose radio was off.
    pub disturbed: u64,
    /// How far the wall clock has been moved, in seconds.
    skew: i64,
    seed: u64,
    rng: Seeded,
    hold: HoldPolicy,
    ticket_keys: Vec<u8>,
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
        let mut rng = Seeded::new(seed);
        let keys = TicketKeys::generate(UnixTime(EPOCH), ROTATE, KEEP, &mut rng.fork());
        let ticket_keys = keys.export().as_bytes().to_vec();
        let gateway = Host::new(gateway(&mut rng, &ticket_keys, &[], hold, UnixTime(EPOCH)));
        let devices = (0..count)
            .map(|n| {
                let n = u16::try_from(n).unwrap_or(u16::MAX);
                let [high, low] = n.to_be_bytes();
                let host = Host::new(device(&mut rng, n));
                Member { host, awake: true, address: Ipv4Addr::new(10, 1, high, low), due: None }
            })
            .collect();
        let mut crowd = Self {
            now: Instant::ZERO,
            devices,
            gateway,
            disturbed: 0,
            skew: 0,
            seed,
            rng,
            hold,
            ticket_keys,
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
            let path = Path {
                local: SocketAddr::new(member.address.into(), 500),
                remote: SocketAddr::new(GATEWAY.into(), 500),
                carrier: Carrier::Ike,
            };
            if let Some(node) = &mut member.host.node {
                node.set_network(now, CONNECTION, Some(path));
                node.up(now, CONNECTION);
            }
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
        let Some(member) = self.devices.get_mut(n) else { return };
        if let Some(old) = member.due.take() {
            self.due.remove(&(old, n));
        }
        member.due = member.host.due();
        self.due.extend(member.due.map(|at| (at, n)));
        let awake = member.awake;
        let sent: Vec<_> = member.host.outbox.drain(..).collect();
        for datagram in sent.into_iter().filter(|_| awake) {
            self.post(datagram);
        }
    }

    fn post(&mut self, datagram: (Path, Vec<u8>)) {
        self.counter += 1;
        self.wire.insert((self.now + DELAY, self.counter), datagram);
    }

    fn settle_gateway(&mut self) {
        let sent: Vec<_> = self.gateway.outbox.drain(..).collect();
        for (path, datagram) in sent {
            let asleep = self.member_at(path.remote.ip()).and_then(|n| self.devices.get(n));
            self.disturbed += u64::from(asleep.is_some_and(|m| !m.awake));
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
            let path = Path { local: sent.remote, remote: sent.local, carrier: sent.carrier };
            if path.local.ip() == IpAddr::V4(GATEWAY) {
                self.gateway.receive(now, path, datagram);
                self.settle_gateway();
            } else if let Some(n) = self.member_at(path.local.ip())
                && let Some(member) = self.devices.get_mut(n).filter(|m| m.awake)
            {
                member.host.receive(now, path, datagram);
                self.settle(n);
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

    /// A device announces a sleep; its radio goes off when [`Crowd::switch_off`] is called, some seconds later.
    pub fn announce(&mut self, n: usize, expect: Option<Duration>) {
        let now = self.now;
        self.with(n, |member| {
            if let Some(node) = &mut member.host.node {
                node.prepare_sleep(now, CONNECTION, expect, SleepFlags::default());
            }
        });
    }

    /// The radio goes off.
    pub fn switch_off(&mut self, n: usize) {
        let now = self.now;
        self.with(n, |member| {
            if let Some(node) = &mut member.host.node {
                node.suspend(now);
            }
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
            if let Some(node) = &mut member.host.node {
                node.resume(now);
            }
        });
    }

    /// The device's battery is taken out.
    pub fn kill(&mut self, n: usize) {
        self.with(n, |member| {
            member.awake = false;
            member.host.crash();
        });
    }

    /// The gateway's process dies, and is back at once with what it had on its disk.
    pub fn restart_gateway(&mut self) {
        self.gateway.crash();
        let unix = self.unix();
        let mut node = gateway(&mut self.rng, &self.ticket_keys, &self.gateway.spent, self.hold, unix);
        node.set_wall_clock(self.now, unix);
        self.gateway.restart(CONNECTION, node);
    }

    /// Somebody sets the clocks of both ends by so many seconds.
    pub fn set_clocks(&mut self, by: i64) {
        self.skew += by;
        let (now, unix) = (self.now, self.unix());
        let nodes = self.devices.iter_mut().map(|m| &mut m.host).chain([&mut self.gateway]);
        nodes.filter_map(|h| h.node.as_mut()).for_each(|node| node.set_wall_clock(now, unix));
    }

    fn unix(&self) -> UnixTime {
        let unix = UnixTime(EPOCH) + (self.now - Instant::ZERO);
        UnixTime(unix.0.saturating_add_signed(self.skew))
    }

    /// Sends a numbered packet from a device to the server; returns its number.
    pub fn send_up(&mut self, n: usize) -> u64 {
        self.sent += 1;
        let (now, number) = (self.now, self.sent);
        self.with(n, |member| {
            if let Some(inner) = member.host.inner {
                member.host.send(now, inner, SERVER.into(), number);
            }
        });
        number
    }

    /// Sends a numbered packet from the server to a device; returns its number.
    pub fn send_down(&mut self, n: usize) -> u64 {
        self.sent += 1;
        let inner = self.devices.get(n).and_then(|m| m.host.inner);
        if let Some(inner) = inner {
            self.gateway.send(self.now, SERVER.into(), inner, self.sent);
            self.settle_gateway();
        }
        self.sent
    }

    /// How the sessions came up since the last question, counted by rung.
    pub fn rungs(&mut self) -> BTreeMap<Rung, usize> {
        let mut rungs = BTreeMap::new();
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
        self.gateway.node.as_ref().map_or(0, |node| node.gateway_sessions(self.now).len())
    }

    /// Every device that is awake can send and receive, and the gateway has one session for each and nothing else.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn check(&mut self) {
        let seed = self.seed;
        let awake: Vec<usize> =
            self.devices.iter().enumerate().filter(|(_, m)| m.awake).map(|(n, _)| n).collect();
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

fn connection(role: &str, own: &str, peer: &str, rest: &str) -> String {
    let gateway = if role == "client" { format!("gateway = \"{GATEWAY}\"") } else { String::new() };
    let secret = "secret = \"a secret of the simulation\"";
    format!(
        "[connection.{CONNECTION}]\nrole = \"{role}\"\n{gateway}\n[connection.{CONNECTION}.local]\nid = \"{own}\"\n{secret}\n\
         [connection.{CONNECTION}.remote]\nid = \"{peer}\"\n{secret}\n{rest}"
    )
}

fn device(rng: &mut Seeded, n: u16) -> dormouse_node::Node {
    let child =
        format!("[connection.{CONNECTION}.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n");
    let toml = connection("client", &format!("device{n}.sim"), "gateway.sim", &child);
    node(&toml, EndpointConfig::default(), rng)
}

fn gateway(
    rng: &mut Seeded,
    ticket_keys: &[u8],
    spent: &[u8],
    hold: HoldPolicy,
    unix: UnixTime,
) -> dormouse_node::Node {
    let rest = format!(
        "[connection.{CONNECTION}.ike]\nliveness = {}\nliveness_timeout = {}\n\
         [connection.{CONNECTION}.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n\
         [connection.{CONNECTION}.pool]\naddresses = [\"10.64.0.0/16\"]\n",
        LIVENESS.0, LIVENESS.1
    );
    let toml = connection("gateway", "gateway.sim", "*.sim", &rest);
    let pool = Pool::new(vec!["10.64.0.0/16".parse().unwrap_or_default()]);
    let endpoint = EndpointConfig {
        pool: Some(Box::new(SharedPool::new(pool))),
        ticket_keys: TicketKeys::import(ticket_keys, ROTATE, KEEP).ok(),
        ticket_guard: TicketGuard::load(spent, unix),
        half_open: HalfOpen { cookie_threshold: 32, ..HalfOpen::default() },
        hold,
        ..EndpointConfig::default()
    };
    node(&toml, endpoint, rng)
}
