//! A device, its gateway and access routers, each an endpoint with an address of its own, and a network that loses what a test wants. Owns
//! the wiring; the device moves from router to router by its address alone, as with MOBIKE.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_esp::{HeaderZones, IPV4_IN_IP, Look, Outbound, SaParams, ZoneParams, open_first_zone};
use dormouse_ike::config::{
    Connection, IdentityPattern, LocalAuth, RemoteAuth, Role, RouterPolicy, RouterRule, ZonePolicy,
};
use dormouse_ike::{EndpointConfig, Event, Holding};
use dormouse_keying::{ChildId, GrantId, HeaderGrant, HeaderOrder, Install, Protection, SaId};
use dormouse_sansio::{Carrier, Entropy, Instant, Path, Seeded};
use dormouse_wire::ike::mlike::Excerpt;
use dormouse_wire::ip::udp;

use super::{LATENCY, Side, addr, client_psk, fqdn, gateway_config, gateway_psk, psk};

pub const DEVICE: usize = 0;
pub const GATEWAY: usize = 1;
pub const ROUTERS: [usize; 3] = [2, 3, 4];
const NAMES: [&str; 5] = ["client", "gw", "r1", "r2", "r3"];
const ADDRESSES: [&str; 5] =
    ["192.0.2.10:500", "198.51.100.1:500", "203.0.113.1:500", "203.0.113.2:500", "203.0.113.3:500"];

pub fn name(machine: usize) -> dormouse_crypto::cert::Identity {
    fqdn(&format!("{}.example.org", NAMES[machine]))
}

/// Where the device is behind this router.
pub fn behind(router: usize) -> SocketAddr {
    addr(&format!("192.0.{router}.10:500"))
}

/// A connection without children between two machines.
pub fn link(of: usize, to: usize) -> Connection {
    let pattern = IdentityPattern::Exact(name(to));
    let mut conn =
        Connection::new(NAMES[to], name(of), LocalAuth::Psk(psk()), pattern, RemoteAuth::Psk(psk()));
    conn.role = Role::Both;
    conn.children.clear();
    conn
}

/// What a gateway is configured to do with routers: each serves a network, and the next one is its neighbour.
pub fn zones(serves: bool, proactive: bool) -> ZonePolicy {
    let rule = |router: usize| RouterRule {
        id: name(router),
        serves: serves
            .then(|| format!("192.0.{router}.0/24").parse().expect("a prefix"))
            .into_iter()
            .collect(),
        neighbours: [router - 1, router + 1].into_iter().filter(|n| ROUTERS.contains(n)).map(name).collect(),
    };
    ZonePolicy { routers: ROUTERS.map(rule).to_vec(), proactive, ..ZonePolicy::default() }
}

pub fn device_conn(policy: Option<ZonePolicy>) -> Connection {
    let mut conn = client_psk();
    conn.children[0].zones = policy;
    conn
}

/// From, to, how, and what.
type Flying = (SocketAddr, SocketAddr, Carrier, Vec<u8>);
/// Whether a datagram from one machine to another gets through.
type Filter = Box<dyn FnMut(usize, usize) -> bool>;

/// Machines and what is on its way between them.
pub struct Field {
    pub now: Instant,
    pub sides: Vec<Side>,
    /// What the data plane of each router can read.
    pub headers: Vec<BTreeMap<GrantId, HeaderGrant>>,
    /// Every grant that was ever given, with the router.
    pub given: Vec<(usize, HeaderGrant)>,
    pub wire: BTreeMap<(Instant, u64), Flying>,
    /// Percent lost.
    pub lost: u64,
    pub filter: Option<Filter>,
    pub conn: Arc<Connection>,
    pub at: SocketAddr,
    gateway: Connection,
    entropy: Seeded,
    counter: u64,
    /// Calls to other machines: who called whom.
    calls: BTreeMap<(usize, SaId), usize>,
    pub seed: u64,
}

fn seen(packet: &[u8]) -> Excerpt {
    Excerpt::of(packet).expect("a packet")
}

impl Field {
    pub fn new(seed: u64, device: Connection, policy: Option<ZonePolicy>) -> Self {
        let mut gateway = gateway_psk();
        gateway.children[0].zones = policy;
        // The device alone: a router that could log in as a client would be one.
        gateway.remote_id = IdentityPattern::Exact(name(DEVICE));
        let mut field = Self {
            now: Instant::ZERO,
            sides: Vec::new(),
            headers: vec![BTreeMap::new(); NAMES.len()],
            given: Vec::new(),
            wire: BTreeMap::new(),
            lost: 0,
            filter: None,
            conn: Arc::new(device),
            at: behind(ROUTERS[0]),
            gateway,
            entropy: Seeded::new(seed),
            counter: 0,
            calls: BTreeMap::new(),
            seed,
        };
        for machine in 0..NAMES.len() {
            let side = field.machine(machine);
            field.sides.push(side);
        }
        field
    }

    /// Zones at both ends.
    pub fn zoned(seed: u64, serves: bool, proactive: bool) -> Self {
        Self::new(seed, device_conn(Some(ZonePolicy::default())), Some(zones(serves, proactive)))
    }

    fn machine(&mut self, machine: usize) -> Side {
        let mut config = match machine {
            GATEWAY => gateway_config(self.gateway.clone(), self.seed),
            _ => EndpointConfig::default(),
        };
        config.open_first_zone = open_first_zone;
        config.connections.extend(self.links(machine).into_iter().map(Arc::new));
        if ROUTERS.contains(&machine) {
            let neighbours = ROUTERS.into_iter().filter(|n| n.abs_diff(machine) == 1).map(name).collect();
            let gateways = vec![IdentityPattern::Exact(name(GATEWAY))];
            config.router = Some(RouterPolicy { gateways, neighbours, ..RouterPolicy::default() });
        }
        let entropy = Box::new(self.entropy.fork());
        let mut side = Side::new(config, entropy);
        side.endpoint.set_wall_clock(self.now, super::EPOCH + (self.now - Instant::ZERO));
        side
    }

    /// The gateway's configuration is read again.
    pub fn reconfigure(&mut self, policy: ZonePolicy) {
        self.gateway.children[0].zones = Some(policy);
        let mut answering = vec![Arc::new(self.gateway.clone())];
        answering.extend(self.links(GATEWAY).into_iter().map(Arc::new));
        self.sides[GATEWAY].endpoint.reconfigure(self.now, answering, &[]);
        self.flush();
    }

    fn links(&self, machine: usize) -> Vec<Connection> {
        let peers: Vec<usize> = match machine {
            DEVICE => Vec::new(),
            GATEWAY => ROUTERS.to_vec(),
            _ => core::iter::once(GATEWAY).chain(ROUTERS.into_iter().filter(|r| *r != machine)).collect(),
        };
        peers.into_iter().map(|peer| link(machine, peer)).collect()
    }

    /// The machine loses everything that it knows.
    pub fn crash(&mut self, machine: usize) {
        self.sides[machine] = self.machine(machine);
        self.headers[machine].clear();
        self.calls.retain(|(caller, _), _| *caller != machine);
    }

    pub fn path(&self, from: usize, to: usize) -> Path {
        let of = |machine| if machine == DEVICE { self.at } else { addr(ADDRESSES[machine]) };
        Path { local: of(from), remote: of(to), carrier: Carrier::Ike }
    }

    pub fn connect(&mut self) -> SaId {
        let path = self.path(DEVICE, GATEWAY);
        let sa = self.sides[DEVICE].endpoint.connect(self.now, self.conn.clone(), path);
        self.flush();
        sa
    }

    /// The device connects, and what follows from it is done. Its session at both ends.
    pub fn up(&mut self) -> (SaId, SaId) {
        let ours = self.connect();
        self.run_for(Duration::from_secs(5));
        let theirs = self.session();
        assert_eq!(self.sides[DEVICE].children.len(), 1, "seed {}", self.seed);
        (ours, theirs)
    }

    /// The device's session at the gateway.
    pub fn session(&self) -> SaId {
        let child = self.sides[GATEWAY].children.values().next().expect("a CHILD SA");
        child.owner.ike().expect("of IKE")
    }

    /// The device is behind another router from now on, and tells the gateway.
    pub fn move_to(&mut self, sa: SaId, router: usize) {
        self.at = behind(router);
        let mut path = self.path(DEVICE, GATEWAY);
        path = path.with_ports(Carrier::NatT, 4500, 4500);
        self.sides[DEVICE].endpoint.set_path(self.now, sa, path);
        self.flush();
    }

    fn owner(&self, address: SocketAddr) -> Option<usize> {
        if self.at.ip() == address.ip() {
            return Some(DEVICE);
        }
        ADDRESSES.iter().skip(1).position(|a| addr(a).ip() == address.ip()).map(|at| at + 1)
    }

    pub fn flush(&mut self) {
        for machine in 0..self.sides.len() {
            let side = &mut self.sides[machine];
            side.take_events(self.now);
            let mut rest = VecDeque::new();
            let mut wanted = Vec::new();
            for event in std::mem::take(&mut side.events) {
                match event {
                    Event::Header(HeaderOrder::Grant(grant)) => {
                        self.given.push((machine, (*grant).clone()));
                        self.headers[machine].insert(grant.id(), *grant);
                    }
                    Event::Header(HeaderOrder::Revoke(id)) => {
                        assert!(self.headers[machine].remove(&id).is_some(), "{id:?} was not there");
                    }
                    Event::LinkWanted { peer } => {
                        wanted.extend((0..NAMES.len()).find(|m| name(*m) == peer));
                    }
                    event => {
                        match event {
                            // As a daemon does: it calls until it is answered.
                            Event::Failed { sa, .. } => wanted.extend(self.calls.remove(&(machine, sa))),
                            Event::Closed { sa, .. } => {
                                self.calls.remove(&(machine, sa));
                            }
                            _ => {}
                        }
                        rest.push_back(event);
                    }
                }
            }
            self.sides[machine].events = rest;
            for peer in wanted {
                self.link_up(machine, peer);
            }
            let mut bytes = Vec::new();
            while let Some(sent) = self.sides[machine].endpoint.poll_transmit(self.now, &mut bytes) {
                let bytes = std::mem::take(&mut bytes);
                let Path { local, remote, carrier } = sent.path;
                let owner = self.owner(remote);
                let through = match (self.filter.as_mut(), owner) {
                    (Some(filter), Some(to)) => filter(machine, to),
                    _ => true,
                };
                if through && self.entropy.below(100) >= self.lost {
                    self.counter += 1;
                    let key = (self.now + LATENCY, self.counter);
                    self.wire.insert(key, (local, remote, carrier, bytes));
                }
            }
        }
    }

    /// One machine calls another, unless it has.
    pub fn link_up(&mut self, from: usize, to: usize) {
        if !self.calls.iter().any(|((caller, _), called)| (*caller, *called) == (from, to)) {
            let (conn, path) = (Arc::new(link(from, to)), self.path(from, to));
            let sa = self.sides[from].endpoint.connect(self.now, conn, path);
            self.calls.insert((from, sa), to);
        }
    }

    pub fn run_until(&mut self, until: Instant) {
        for _ in 0..200_000 {
            self.flush();
            let datagram = self.wire.keys().next().map(|key| key.0);
            let timers = self.sides.iter().filter_map(|side| side.endpoint.poll_timeout());
            let timer = timers.map(|deadline| deadline.at.max(self.now)).min();
            match (datagram, timer) {
                (Some(at), timer) if at <= until && timer.is_none_or(|t| at <= t) => {
                    let (key, (from, to, carrier, mut bytes)) = self.wire.pop_first().expect("there is one");
                    self.now = self.now.max(key.0);
                    let path = Path { local: to, remote: from, carrier };
                    let Some(machine) = self.owner(to) else { continue };
                    if carrier == Carrier::NatT {
                        if bytes == [0xff] {
                            continue;
                        }
                        bytes.drain(..4);
                    }
                    let _ = self.sides[machine].endpoint.handle_datagram(self.now, path, &mut bytes);
                }
                (_, Some(at)) if at <= until => {
                    self.now = at;
                    self.sides.iter_mut().for_each(|side| side.endpoint.handle_timeout(at));
                }
                _ => {
                    self.now = self.now.max(until);
                    return;
                }
            }
        }
        panic!("seed {}: it never comes to rest", self.seed);
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// The CHILD SA on which the gateway sends: the newest.
    pub fn current(&self) -> &Install {
        let replaced: BTreeSet<Option<ChildId>> =
            self.sides[GATEWAY].children.values().map(|c| c.replaces).collect();
        let current = self.sides[GATEWAY].children.values().find(|c| !replaced.contains(&Some(c.child)));
        current.expect("one that nothing replaces")
    }

    pub fn grant_of(child: &Install) -> GrantId {
        GrantId { to_device: child.spi_out, from_device: child.child.spi() }
    }

    /// The packet of this number that the device, or else the gateway, sends by the present CHILD SA.
    pub fn packet(&self, of_device: bool, number: u32) -> Vec<u8> {
        let child = self.current();
        let Protection::Zoned(zones) = &child.protection else { panic!("no zones") };
        let (spi, keymat) = match of_device {
            true => (child.child.spi(), &child.keymat_in),
            false => (child.spi_out, &child.keymat_out),
        };
        let further = zones.further.iter().map(|zone| {
            let keymat = if of_device { &zone.keymat_in } else { &zone.keymat_out };
            (zone.encr, keymat.clone())
        });
        let zones = Some(ZoneParams { map: zones.map.clone(), further: further.collect() });
        let params =
            SaParams { zones, esn: child.esn, ..SaParams::new(spi, child.encr, None, keymat.clone()) };
        let mut sender = Outbound::new(&params, &mut Seeded::new(0)).expect("a sender");
        let mut inner = Vec::new();
        udp::build(addr("10.9.0.2:9"), addr("10.0.0.1:9"), &[7; 700], &mut inner).expect("a packet");
        let mut sealed = Vec::new();
        for _ in 0..number {
            sealed = vec![0; sender.sealed_len(inner.len())];
            let head = sender.head_len();
            sealed[head..head + inner.len()].copy_from_slice(&inner);
            sender.seal(&mut sealed, inner.len(), IPV4_IN_IP).expect("sealed");
        }
        sealed
    }

    /// A packet passes a router, whose data plane can read it.
    pub fn pass(&self, router: usize, packet: &[u8]) {
        let mut zones = HeaderZones::new();
        for grant in self.headers[router].values() {
            zones.apply(&HeaderOrder::Grant(Box::new(grant.clone()))).expect("usable keys");
        }
        assert!(matches!(zones.look(packet), Look::Header(_)), "it opens");
    }

    /// A packet of the device comes to a router, which asks another one for its keys.
    pub fn fetch(&mut self, router: usize, previous: usize, packet: &[u8]) -> bool {
        let gateway = self.path(router, GATEWAY).remote.ip();
        self.sides[router].endpoint.fetch_keys(self.now, &name(previous), gateway, seen(packet), false)
    }

    /// The same, of a device that is registered at the router that asks.
    pub fn fetch_registered(&mut self, router: usize, previous: usize, packet: &[u8]) -> bool {
        let gateway = self.path(router, GATEWAY).remote.ip();
        self.sides[router].endpoint.fetch_keys(self.now, &name(previous), gateway, seen(packet), true)
    }

    /// The same, with the first packet of the device.
    pub fn fetch_first(&mut self, router: usize, previous: usize) -> bool {
        let packet = self.packet(true, 1);
        self.fetch(router, previous, &packet)
    }

    /// The routers that can read the headers of the present CHILD SA.
    pub fn readers(&self) -> Vec<usize> {
        let id = Self::grant_of(self.current());
        ROUTERS.into_iter().filter(|router| self.headers[*router].contains_key(&id)).collect()
    }

    /// All keys that a router holds are of CHILD SAs that there are; those of the header of both directions, and of nothing else.
    pub fn assert_only_headers(&self) {
        for (router, grant) in &self.given {
            let (down, up) = (&grant.to_device.keymat, &grant.from_device.keymat);
            for side in [GATEWAY, DEVICE] {
                for child in self.sides[side].children.values() {
                    let further = super::zones_of(child, false).expect("zones").1;
                    let secret = further.iter().flat_map(|(a, b)| [a, b]);
                    assert!(secret.clone().all(|key| key != down && key != up), "router {router}");
                    if side == GATEWAY && Self::grant_of(child) == grant.id() {
                        assert!(*down == child.keymat_out && *up == child.keymat_in);
                    }
                }
            }
        }
    }

    /// No number in nonces was ever given twice under one key: of two ranges none has a number of the other, or the later one is a part of the
    /// earlier that its holder gave on, and has not the number that this one used itself.
    pub fn assert_numbers_differ(&self) {
        for (at, (_, a)) in self.given.iter().enumerate() {
            for (_, b) in self.given.iter().skip(at + 1).filter(|(_, b)| b.id() == a.id()) {
                let [(first, last), (from, to)] = [a, b].map(|grant| (grant.nodes.own(), grant.nodes.last()));
                let apart = last < from || to < first;
                assert!(
                    apart || first < from && to <= last,
                    "seed {}: {:?}: {first}-{last}, then {from}-{to}",
                    self.seed,
                    a.id()
                );
            }
        }
    }

    /// How the gateway believes that a router stands with the present CHILD SA.
    pub fn holding(&self, router: usize) -> Option<Holding> {
        let described = self.sides[GATEWAY].endpoint.describe(self.session()).expect("a session");
        let child = described.children.into_iter().find(|c| c.id == self.current().child)?;
        child.routers.into_iter().find(|h| h.router == name(router)).map(|h| h.holding)
    }
}
