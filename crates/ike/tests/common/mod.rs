//! Two endpoints, a network and a clock that jumps to the next thing that happens. Owns the wiring of the tests of this
//! crate; must never assert on real time.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail in the files that use everything")]

pub mod eap;
pub mod field;
mod nat;
pub mod resumed;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{
    Connection, EspInUdp, IdentityPattern, LocalAuth, RemoteAuth, Role, SelectorSpec,
};
use dormouse_ike::config_payload::{AddressPool, Lease, LeaseRequest};
use dormouse_ike::ticket::lineage::{Memory, Outcome};
use dormouse_ike::ticket::{ClientTicket, TicketKeys};
use dormouse_ike::work::Order;
use dormouse_ike::{CloseReason, Endpoint, Event, NegotiationError};
use dormouse_keying::{ChildId, ChildSa, Install, Protection, SaId, ZoneMap};
use dormouse_sansio::{Carrier, Deadline, Entropy, Instant, Path, Seeded, UnixTime};
use dormouse_wire::ike::TsRange;

pub use nat::Nat;

/// Wall-clock time at the origin of the tests.
pub const EPOCH: UnixTime = UnixTime(1_800_000_000);
/// One way.
pub const LATENCY: Duration = Duration::from_millis(10);

pub const CLIENT: &str = "192.0.2.10:500";
pub const GATEWAY: &str = "198.51.100.1:500";

/// The seeds of a randomised test: `count` of them, more by `DORMOUSE_RUNS`, or the one of `DORMOUSE_SEED`, which is then
/// traced.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_RUNS").unwrap_or(count),
    }
}

pub fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address of the test")
}

pub fn path(local: &str, remote: &str) -> Path {
    Path { local: addr(local), remote: addr(remote), carrier: Carrier::Ike }
}

pub fn natt_path(local: &str, remote: &str) -> Path {
    Path { local: addr(local), remote: addr(remote), carrier: Carrier::NatT }
}

pub fn psk() -> Secret {
    Secret::from(&b"correct horse battery staple"[..])
}

pub fn fqdn(name: &str) -> Identity {
    Identity::Fqdn(name.to_owned())
}

/// The client's connection with a pre-shared key; it asks for addresses.
pub fn client_psk() -> Connection {
    let mut conn = Connection::new(
        "home",
        fqdn("client.example.org"),
        LocalAuth::Psk(psk()),
        IdentityPattern::Exact(fqdn("gw.example.org")),
        RemoteAuth::Psk(psk()),
    );
    conn.request.v4 = true;
    conn.request.dns = true;
    conn
}

/// What the gateway answers with.
pub fn gateway_psk() -> Connection {
    let mut conn = Connection::new(
        "clients",
        fqdn("gw.example.org"),
        LocalAuth::Psk(psk()),
        IdentityPattern::Suffix("example.org".to_owned()),
        RemoteAuth::Psk(psk()),
    );
    conn.role = Role::Responder;
    conn.answering.policy.pool = vec![ipnet::Ipv4Net::default().into(), ipnet::Ipv6Net::default().into()];
    conn.answering.offer.dns = vec!["10.9.0.1".parse().expect("an address")];
    mirror(&mut conn);
    conn
}

/// Swaps the selectors of the default child: the gateway has the other side of them.
pub fn mirror(conn: &mut Connection) {
    for child in &mut conn.children {
        std::mem::swap(&mut child.ts_local, &mut child.ts_remote);
    }
}

/// Selectors that need no assigned address.
pub fn site_to_site(conn: &mut Connection, local: &str, remote: &str) {
    conn.request.v4 = false;
    conn.request.dns = false;
    conn.answering.policy.pool.clear();
    for child in &mut conn.children {
        child.ts_local = vec![SelectorSpec::Net(local.parse().expect("a prefix"))];
        child.ts_remote = vec![SelectorSpec::Net(remote.parse().expect("a prefix"))];
    }
}

/// A pool with sticky leases.
#[derive(Default)]
pub struct Pool {
    pub leases: Vec<(Identity, Ipv4Addr)>,
    pub max: Option<usize>,
}

impl AddressPool for Pool {
    fn lease(&mut self, _: &Connection, identity: &Identity, request: &LeaseRequest) -> Lease {
        if !request.v4 {
            return Lease::default();
        }
        if let Some((_, address)) = self.leases.iter().find(|(who, _)| who == identity) {
            return Lease { v4: Some(*address), v6: None };
        }
        if self.max.is_some_and(|max| self.leases.len() >= max) {
            return Lease::default();
        }
        let host = u8::try_from(self.leases.len() + 2).expect("few clients");
        let address = Ipv4Addr::new(10, 9, 0, host);
        self.leases.push((identity.clone(), address));
        Lease { v4: Some(address), v6: None }
    }

    fn release(&mut self, _: &Lease) {}
}

/// A gateway's configuration for one connection.
pub fn gateway_config(conn: Connection, seed: u64) -> EndpointConfig {
    let day = Duration::from_secs(86_400);
    EndpointConfig {
        connections: vec![Arc::new(conn)],
        ticket_keys: Some(TicketKeys::generate(EPOCH, day, day * 2, &mut Seeded::new(seed ^ 0x7e57))),
        pool: Some(Box::new(Pool::default())),
        ..EndpointConfig::default()
    }
}

/// One endpoint with what its driver would hold.
pub struct Side {
    pub endpoint: Endpoint,
    /// Events that no test has taken yet.
    pub events: VecDeque<Event>,
    /// Installed CHILD SAs.
    pub children: BTreeMap<ChildId, Install>,
    pub closed: Vec<(SaId, CloseReason)>,
    pub ticket: Option<ClientTicket>,
    /// The store of lineages, and outcomes that are kept back while `slow_store` is set.
    pub store: Memory,
    pub slow_store: bool,
    pub outcomes: Vec<(SaId, Outcome)>,
    /// Reasons of the deadlines that woke this side, with how often.
    pub wakes: BTreeMap<&'static str, u32>,
}

impl Side {
    pub fn new(config: EndpointConfig, entropy: Box<dyn Entropy>) -> Self {
        let mut endpoint = Endpoint::new(config, entropy);
        endpoint.set_wall_clock(Instant::ZERO, EPOCH);
        Self {
            endpoint,
            events: VecDeque::new(),
            children: BTreeMap::new(),
            closed: Vec::new(),
            ticket: None,
            store: Memory::default(),
            slow_store: false,
            outcomes: Vec::new(),
            wakes: BTreeMap::new(),
        }
    }

    pub fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match &event {
                Event::Store(operation) => {
                    let outcome = self.store.apply(EPOCH + (now - Instant::ZERO), operation);
                    match operation.asked_by() {
                        Some(sa) if self.slow_store => self.outcomes.push((sa, outcome)),
                        Some(sa) => self.endpoint.stored(now, sa, outcome),
                        None => {}
                    }
                }
                Event::Ticket { ticket, .. } => self.ticket = Some((**ticket).clone()),
                Event::Closed { sa, reason } => self.closed.push((*sa, *reason)),
                Event::Child(ChildSa::Remove { child, .. }) => {
                    assert!(self.children.remove(child).is_some(), "{child} was not installed");
                }
                Event::Child(ChildSa::Remap { owner, path }) => {
                    self.children.values_mut().filter(|c| c.owner == *owner).for_each(|c| c.path = *path);
                }
                _ => {}
            }
            match event {
                Event::Child(ChildSa::Install(install)) => {
                    self.children.insert(install.child, *install);
                }
                event => self.events.push_back(event),
            }
        }
    }

    /// Takes the first event that `pick` wants.
    pub fn take<T>(&mut self, mut pick: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        let (at, found) = self.events.iter().enumerate().find_map(|(i, e)| pick(e).map(|t| (i, t)))?;
        self.events.remove(at);
        Some(found)
    }

    /// What it has ordered first of what is still to be done.
    pub fn order(&mut self) -> Option<(SaId, Box<Order>)> {
        let at = self.events.iter().position(|e| matches!(e, Event::Work { .. }))?;
        match self.events.remove(at) {
            Some(Event::Work { sa, order }) => Some((sa, order)),
            _ => None,
        }
    }

    /// The error that `connect` or `resume` ended in.
    pub fn failure(&mut self) -> Option<NegotiationError> {
        let at = self.events.iter().position(|e| matches!(e, Event::Failed { .. }))?;
        match self.events.remove(at) {
            Some(Event::Failed { error, .. }) => Some(error),
            _ => None,
        }
    }

    /// The reason why a caller was refused.
    pub fn peer_failure(&mut self) -> Option<NegotiationError> {
        let at = self.events.iter().position(|e| matches!(e, Event::PeerFailed { .. }))?;
        match self.events.remove(at) {
            Some(Event::PeerFailed { error, .. }) => Some(error),
            _ => None,
        }
    }

    pub fn established(&mut self) -> Option<dormouse_ike::Established> {
        let at = self.events.iter().position(|e| matches!(e, Event::Established(_)))?;
        match self.events.remove(at) {
            Some(Event::Established(e)) => Some(*e),
            _ => None,
        }
    }
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub carrier: Carrier,
    pub bytes: Vec<u8>,
    pub to_gateway: bool,
}

/// Decides the fate of each datagram.
pub struct Faults {
    pub seed: Seeded,
    /// Percent lost, duplicated, and delayed by up to ten times the latency.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

/// A test's own interference with a datagram: false drops it.
pub type Filter = Box<dyn FnMut(&mut Datagram) -> bool>;

pub struct Pair {
    pub now: Instant,
    pub client: Side,
    pub gateway: Side,
    pub wire: BTreeMap<(Instant, u64), Datagram>,
    pub nat: Option<Nat>,
    /// The address of a NAT before the gateway that hands everything on to it: what the client connects to then.
    pub front: Option<IpAddr>,
    pub faults: Option<Faults>,
    pub filter: Option<Filter>,
    /// Addresses of the client that are gone.
    pub unreachable: Vec<IpAddr>,
    pub conn: Arc<Connection>,
    /// Everything that was ever sent: to the gateway?, bytes.
    pub log: Vec<Datagram>,
    counter: u64,
    pub seed: u64,
    traced: bool,
}

impl Pair {
    pub fn new(client: Connection, gateway: Connection, seed: u64) -> Self {
        let config = gateway_config(gateway, seed);
        Self::with_configs(client, EndpointConfig::default(), config, seed)
    }

    pub fn with_configs(
        conn: Connection,
        client: EndpointConfig,
        gateway: EndpointConfig,
        seed: u64,
    ) -> Self {
        let mut entropy = Seeded::new(seed);
        let (a, b) = (Box::new(entropy.fork()), Box::new(entropy.fork()));
        Self {
            now: Instant::ZERO,
            client: Side::new(client, a),
            gateway: Side::new(gateway, b),
            wire: BTreeMap::new(),
            nat: None,
            front: None,
            faults: None,
            filter: None,
            unreachable: Vec::new(),
            conn: Arc::new(conn),
            log: Vec::new(),
            counter: 0,
            seed,
            traced: std::env::var_os("DORMOUSE_SEED").is_some(),
        }
    }

    /// As [`Self::psk`], with ESP in UDP only where a NAT asks for it.
    pub fn psk_natively(seed: u64) -> Self {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.esp_in_udp, gateway.esp_in_udp) = (EspInUdp::Nat, EspInUdp::Nat);
        Self::new(client, gateway, seed)
    }

    /// The default pair.
    pub fn psk(seed: u64) -> Self {
        Self::new(client_psk(), gateway_psk(), seed)
    }

    /// Another process of the gateway, with the store of the one before.
    pub fn replace_gateway(&mut self, mut fresh: Side) {
        fresh.store = std::mem::take(&mut self.gateway.store);
        self.gateway = fresh;
    }

    pub fn default_path(&self) -> Path {
        let mut path = path(CLIENT, GATEWAY);
        if let Some(front) = self.front {
            path.remote.set_ip(front);
        }
        path
    }

    pub fn connect(&mut self) -> SaId {
        let path = self.default_path();
        let sa = self.client.endpoint.connect(self.now, self.conn.clone(), path);
        self.flush();
        sa
    }

    /// Connects and runs until both ends have an SA. Returns the names that they have at the client and at the gateway.
    pub fn up(&mut self) -> (SaId, SaId) {
        self.connect();
        self.run_for(Duration::from_secs(5));
        let seed = self.seed;
        let failure = self.client.failure().map(|e| e.to_string());
        let a = self.client.established().unwrap_or_else(|| panic!("seed {seed}: client: {failure:?}"));
        let b = self.gateway.established().unwrap_or_else(|| panic!("seed {seed}: gateway not up"));
        self.assert_agree();
        (a.sa, b.sa)
    }

    /// Moves what the endpoints want sent onto the wire, and their events to where tests find them.
    pub fn flush(&mut self) {
        self.flush_side(true);
        self.flush_side(false);
    }

    fn flush_side(&mut self, is_client: bool) {
        let mut sent = Vec::new();
        let side = if is_client { &mut self.client } else { &mut self.gateway };
        let seen = side.events.len();
        let children: Vec<_> = side.children.keys().copied().collect();
        side.take_events(self.now);
        if self.traced {
            let who = if is_client { "client" } else { "gateway" };
            side.events.iter().skip(seen).for_each(|event| eprintln!("{:?} {who}: {event:?}", self.now));
            if !side.children.keys().eq(&children) {
                let list = side
                    .children
                    .values()
                    .map(|c| format!("{} in {:08x} out {:08x}", c.child, c.child.spi(), c.spi_out));
                eprintln!("{:?} {who}: {:?}", self.now, list.collect::<Vec<_>>());
            }
        }
        let mut bytes = Vec::new();
        while let Some(transmit) = side.endpoint.poll_transmit(self.now, &mut bytes) {
            let bytes = std::mem::take(&mut bytes);
            let Path { local, remote, carrier } = transmit.path;
            sent.push(Datagram { from: local, to: remote, carrier, bytes, to_gateway: is_client });
        }
        for datagram in sent {
            self.put(datagram);
        }
    }

    fn put(&mut self, mut datagram: Datagram) {
        if self.filter.as_mut().is_some_and(|f| !f(&mut datagram)) {
            return;
        }
        self.log.push(datagram.clone());
        if self.traced {
            let who = if datagram.to_gateway { "client" } else { "gateway" };
            let exchange = datagram.bytes.get(4 + 18);
            let bytes = datagram.bytes.len();
            eprintln!("{:?} {who} {} -> {} {bytes} bytes {exchange:?}", self.now, datagram.from, datagram.to);
        }
        if datagram.to_gateway {
            if self.unreachable.contains(&datagram.from.ip()) {
                return;
            }
            if let Some(nat) = self.nat.as_mut() {
                datagram.from = nat.outward(self.now, datagram.from);
            }
        }
        let (mut copies, mut delay) = (1, LATENCY);
        if let Some(faults) = self.faults.as_mut() {
            if faults.seed.below(100) < faults.lost {
                return;
            }
            copies += u32::from(faults.seed.below(100) < faults.doubled);
            if faults.seed.below(100) < faults.late {
                delay += LATENCY * u32::try_from(faults.seed.below(10)).expect("below 10");
            }
        }
        for _ in 0..copies {
            self.counter += 1;
            self.wire.insert((self.now + delay, self.counter), datagram.clone());
            delay += LATENCY;
        }
    }

    /// Hands a datagram to whom it is for.
    pub fn deliver(&mut self, mut datagram: Datagram) {
        if let Some(front) = self.front {
            let gateway = addr(GATEWAY).ip();
            let (end, from, to) = match datagram.to_gateway {
                true => (&mut datagram.to, front, gateway),
                false => (&mut datagram.from, gateway, front),
            };
            if end.ip() == from {
                end.set_ip(to);
            }
        }
        if !datagram.to_gateway {
            if let Some(nat) = self.nat.as_mut() {
                match nat.inward(self.now, datagram.to) {
                    Some(inside) => datagram.to = inside,
                    None => return,
                }
            }
            if self.unreachable.contains(&datagram.to.ip()) {
                return;
            }
        }
        let path = Path { local: datagram.to, remote: datagram.from, carrier: datagram.carrier };
        let mut bytes = datagram.bytes;
        if datagram.carrier == Carrier::NatT {
            if bytes == [0xff] {
                return;
            }
            assert_eq!(bytes.drain(..4).collect::<Vec<_>>(), [0; 4], "the non-ESP marker");
        }
        let side = if datagram.to_gateway { &mut self.gateway } else { &mut self.client };
        let _ = side.endpoint.handle_datagram(self.now, path, &mut bytes);
        self.flush();
    }

    fn timeout(&self) -> Option<Deadline> {
        let (a, b) = (self.client.endpoint.poll_timeout(), self.gateway.endpoint.poll_timeout());
        for (first, side) in [(a, &self.client), (b, &self.gateway)] {
            let all = side.endpoint.timers();
            assert!(first.map_or(all.is_empty(), |first| all.contains(&first)), "{first:?} of {all:?}");
        }
        Deadline::earlier(a, b)
    }

    /// Jumps to the next datagram or deadline, if it comes by `until`. Returns whether anything happened.
    pub fn step(&mut self, until: Instant) -> bool {
        self.flush();
        let next_datagram = self.wire.keys().next().map(|k| k.0);
        let next_timeout = self.timeout().map(|d| d.at.max(self.now));
        match (next_datagram, next_timeout) {
            (Some(at), timer) if at <= until && timer.is_none_or(|t| at <= t) => {
                let (key, datagram) = self.wire.pop_first().expect("there is one");
                self.now = self.now.max(key.0);
                self.deliver(datagram);
                true
            }
            (_, Some(at)) if at <= until => {
                self.now = at;
                for side in [&mut self.client, &mut self.gateway] {
                    if let Some(due) = side.endpoint.poll_timeout().filter(|d| d.at <= at) {
                        *side.wakes.entry(due.why).or_default() += 1;
                        side.endpoint.handle_timeout(at);
                    }
                }
                self.flush();
                true
            }
            _ => false,
        }
    }

    pub fn run_until(&mut self, until: Instant) {
        let mut steps = 0;
        while self.step(until) {
            steps += 1;
            assert!(steps < 1_000_000, "seed {}: it never comes to rest", self.seed);
        }
        self.now = self.now.max(until);
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Delivers everything on the wire, and what that causes, without letting any timer run that is more than a second off.
    pub fn settle(&mut self) {
        self.run_for(Duration::from_secs(1));
    }

    /// Both ends have the same CHILD SAs with the same keys.
    pub fn assert_agree(&self) {
        let seed = self.seed;
        assert_eq!(self.client.children.len(), self.gateway.children.len(), "seed {seed}: CHILD SAs");
        for a in self.client.children.values() {
            let b = self.gateway.children.values().find(|b| b.child.spi() == a.spi_out);
            let b = b.unwrap_or_else(|| panic!("seed {seed}: the gateway has no {:08x}", a.spi_out));
            assert_eq!(a.child.spi(), b.spi_out, "seed {seed}");
            assert!(a.keymat_in == b.keymat_out && a.keymat_out == b.keymat_in, "seed {seed}: keys differ");
            assert_eq!(zones_of(a, false), zones_of(b, true), "seed {seed}: zones");
            assert_eq!((a.encr, a.integ, a.esn, a.mode), (b.encr, b.integ, b.esn, b.mode), "seed {seed}");
            assert_eq!(as_peer_sees(a), (b.ts_remote.clone(), b.ts_local.clone()), "seed {seed}");
            assert_eq!(as_peer_sees(b), (a.ts_remote.clone(), a.ts_local.clone()), "seed {seed}");
        }
    }
}

/// The map of the zones, and the keys of those behind the first: of what is sent and received, or the other way round.
pub fn zones_of(child: &Install, turned: bool) -> Option<(ZoneMap, Vec<(Secret, Secret)>)> {
    let Protection::Zoned(zones) = &child.protection else { return None };
    let keys = zones.further.iter().map(|zone| match turned {
        false => (zone.keymat_out.clone(), zone.keymat_in.clone()),
        true => (zone.keymat_in.clone(), zone.keymat_out.clone()),
    });
    Some((zones.map.clone(), keys.collect()))
}

/// The selectors of a CHILD SA, with the addresses by which the peer is said to know the ends.
fn as_peer_sees(child: &Install) -> (Vec<TsRange>, Vec<TsRange>) {
    let at = |list: &[TsRange], address: Option<IpAddr>| {
        let there = |ts: &TsRange| address.map_or(*ts, |a| TsRange { start: a, end: a, ..*ts });
        list.iter().map(there).collect()
    };
    let original = child.original;
    (at(&child.ts_local, original.map(|o| o.local)), at(&child.ts_remote, original.map(|o| o.remote)))
}
