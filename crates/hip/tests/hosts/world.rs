//! Hosts against each other over a network that loses, repeats and reorders by a seed, in virtual time.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dormouse_crypto::hip::v1;
use dormouse_crypto::sign::SigningKey;
use dormouse_hip::{Accept, Host, HostConfig, Identity, Peer, Phase};
use dormouse_keying::{ChildId, ChildSa, Discard, Event, Install, KeyManager, SaId, SleepVerdict};
use dormouse_keying::{Mark, SleepFlags};
use dormouse_sansio::{Carrier, Entropy, Instant, Path, Seeded};
use dormouse_wire::hip::{DomainId, Hit, Packet, PacketType, set_checksum};

/// The same path from its other end.
pub(crate) fn mirrored(path: Path) -> Path {
    Path { local: path.remote, remote: path.local, ..path }
}

/// Sets the checksum right after a change.
pub(crate) fn whole(mut bytes: Vec<u8>, path: Path) -> Vec<u8> {
    set_checksum(&mut bytes, Some((path.local.ip(), path.remote.ip())));
    bytes
}

/// A key that a test owns: a fresh one, or one of those that vectors were made with.
pub(crate) fn key(kind: &str) -> SigningKey {
    let known = |pem: &str| SigningKey::from_pem(pem.as_bytes()).expect("a key");
    let pair = match kind {
        "p256" => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "p384" => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "rsa" => rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
        "known p256" => return known(include_str!("../keys/p256.pem")),
        "known p384" => return known(include_str!("../keys/p384.pem")),
        "known rsa" => return known(include_str!("../keys/rsa.pem")),
        _ => panic!("{kind}"),
    };
    let pair = pair.expect("a key pair");
    SigningKey::from_der(&pair.serialize_der()).expect("a key")
}

pub(crate) fn identity(kind: &str) -> Identity {
    if kind == "v1 fresh" {
        let der = dormouse_crypto::measure::rsa_1024().expect("a key");
        let key = v1::SigningKey::from_file_content(der.as_bytes()).expect("a key");
        return Identity::v1(key, DomainId::default()).expect("an identity");
    }
    let old = match kind {
        "v1 rsa" => Some(include_str!("../keys/rsa1024.pem")),
        "v1 dsa" => Some(include_str!("../keys/dsa1024.pem")),
        "v1 rsa 2048" => Some(include_str!("../keys/rsa.pem")),
        _ => None,
    };
    if let Some(pem) = old {
        let key = v1::SigningKey::from_file_content(pem.as_bytes()).expect("a key");
        return Identity::v1(key, DomainId::default()).expect("an identity");
    }
    Identity::new(key(kind), DomainId::default()).expect("an identity")
}

/// What the data plane of a host would have.
#[derive(Default)]
pub(crate) struct Plane {
    pub(crate) installed: BTreeMap<ChildId, Install>,
    pub(crate) path: BTreeMap<SaId, Path>,
    pub(crate) closed: Vec<(SaId, &'static str)>,
    pub(crate) established: usize,
    /// A peer has said that its radio may sleep.
    pub(crate) may_sleep: bool,
    /// What peers did with our sleeps.
    pub(crate) verdicts: Vec<SleepVerdict>,
    /// The sleep of a peer: until when, what it was granted, how long it may be, and its marks.
    pub(crate) sleeper: Option<(Instant, SleepFlags, Option<Duration>, Vec<Mark>)>,
    /// Every order, in its order.
    pub(crate) log: Vec<String>,
}

pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) tag: Hit,
    /// Its addresses; the first is the one in use.
    pub(crate) address: SocketAddr,
    /// More of them.
    pub(crate) others: Vec<SocketAddr>,
    pub(crate) plane: Plane,
}

impl Node {
    /// Whether it gets what comes by this path: HIP without UDP knows no ports.
    fn is_at(&self, path: Path) -> bool {
        let is = |at: &SocketAddr| *at == path.local || at.port() == 0 && at.ip() == path.local.ip();
        is(&self.address) || self.others.iter().any(is)
    }
}

/// A datagram under way: when it arrives, in which order it was sent, from where to where.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: std::cmp::Reverse<(Instant, u64)>,
    path: Path,
    bytes: Vec<u8>,
}

/// A NAT: which address and port outside each of those inside has, and from where it lets in.
pub(crate) struct Nat {
    pub(crate) inside: BTreeSet<IpAddr>,
    pub(crate) outside: IpAddr,
    /// Each destination sees another port; else the port is the same for all.
    pub(crate) symmetric: bool,
    /// Inside, the destination if that counts, and the port outside.
    ports: BTreeMap<(SocketAddr, Option<SocketAddr>), u16>,
    /// From where each port outside lets in.
    open: BTreeSet<(u16, SocketAddr)>,
    /// What it begins to count its ports from.
    first: u16,
    /// It forgets all after so long without anything that goes out.
    pub(crate) lasts: Duration,
    /// When something has gone out last.
    used: Instant,
}

impl Nat {
    pub(crate) fn new(outside: &str, inside: &str, symmetric: bool) -> Self {
        let parse = |a: &str| a.parse().expect("an address");
        let inside = BTreeSet::from([parse(inside)]);
        let (ports, open) = (BTreeMap::new(), BTreeSet::new());
        let (lasts, used) = (Duration::MAX, Instant::ZERO);
        Self { inside, outside: parse(outside), symmetric, ports, open, first: 20_000, lasts, used }
    }

    /// It has been idle for too long: what goes out later has other ports.
    pub(crate) fn forget(&mut self) {
        self.first += 1_000;
        self.ports.clear();
        self.open.clear();
    }

    /// What has been idle for too long is forgotten.
    fn forget_idle(&mut self, now: Instant) {
        if now.max(self.used) - self.used > self.lasts {
            self.forget();
        }
    }

    fn outward(&mut self, now: Instant, from: SocketAddr, to: SocketAddr) -> SocketAddr {
        self.forget_idle(now);
        self.used = now;
        let next = self.first + self.open.len() as u16;
        let port = *self.ports.entry((from, self.symmetric.then_some(to))).or_insert(next);
        self.open.insert((port, to));
        SocketAddr::new(self.outside, port)
    }

    fn inward(&mut self, now: Instant, to: SocketAddr, from: SocketAddr) -> Option<SocketAddr> {
        self.forget_idle(now);
        if !self.open.contains(&(to.port(), from)) {
            return None;
        }
        self.ports.iter().find(|(_, port)| **port == to.port()).map(|((inside, _), _)| *inside)
    }
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) carrier: Carrier,
    flights: BinaryHeap<Flight>,
    sent: u64,
    chance: Seeded,
    /// Of 1,000 datagrams so many are lost; so many come twice.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Every datagram that was sent, for replays and for tshark.
    pub(crate) seen: Vec<(Path, Vec<u8>)>,
    /// A host whose radio is off: it hears nothing, and its timers do not run.
    pub(crate) radio_off: Option<usize>,
    /// NATs, each before some of the hosts.
    pub(crate) nats: Vec<Nat>,
    /// Datagrams of ESP that came to whom they were for: the host, and from where.
    pub(crate) data: Vec<(usize, SocketAddr)>,
    /// Addresses that nothing reaches, and from which nothing gets away.
    pub(crate) dead: BTreeSet<IpAddr>,
    /// From whom nothing reaches whom.
    pub(crate) apart: BTreeSet<(IpAddr, IpAddr)>,
    /// Addresses that no UDP reaches.
    pub(crate) no_udp: BTreeSet<IpAddr>,
    /// Addresses behind a firewall: in comes what answers, by the same carrier, what has gone out to there.
    pub(crate) firewalls: BTreeMap<IpAddr, BTreeSet<(Carrier, IpAddr)>>,
    /// The reasons of all drops.
    pub(crate) drops: Vec<&'static str>,
}

/// Anyone may call, and what is not used stays.
pub(crate) fn config() -> HostConfig {
    HostConfig { accept: Accept::Any, unused: Duration::MAX, ..HostConfig::default() }
}

/// When a host has something to do: at the first of its timers.
fn next_timer(host: &Host) -> Option<Instant> {
    let next = host.poll_timeout().map(|d| d.at);
    assert_eq!(next, host.timers().iter().map(|d| d.at).min(), "{:?}", host.timers());
    next
}

impl World {
    /// Two hosts with these keys and configurations.
    pub(crate) fn new(seed: u64, carrier: Carrier, hosts: Vec<(&str, HostConfig)>) -> Self {
        let mut chance = Seeded::new(seed);
        let nodes = hosts.into_iter().enumerate().map(|(i, (kind, config))| {
            let identity = identity(kind);
            let tag = identity.hit();
            let host = Host::new(
                config,
                vec![identity],
                Box::new(BTreeSet::<ChildId>::new()),
                Box::new(chance.fork()),
            );
            let port = if carrier == Carrier::HipUdp { 10_500 } else { 0 };
            let address = SocketAddr::new(IpAddr::from([192, 0, 2, i as u8 + 1]), port);
            Node { host, tag, address, others: Vec::new(), plane: Plane::default() }
        });
        let nodes = nodes.collect();
        Self {
            now: Instant::ZERO,
            nodes,
            carrier,
            flights: BinaryHeap::new(),
            sent: 0,
            chance,
            lost: 0,
            doubled: 0,
            seen: Vec::new(),
            radio_off: None,
            nats: Vec::new(),
            data: Vec::new(),
            dead: BTreeSet::new(),
            apart: BTreeSet::new(),
            no_udp: BTreeSet::new(),
            firewalls: BTreeMap::new(),
            drops: Vec::new(),
        }
    }

    pub(crate) fn path(&self, from: usize, to: usize) -> Path {
        Path { local: self.nodes[from].address, remote: self.nodes[to].address, carrier: self.carrier }
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> SaId {
        let (ours, peer, path) = (self.nodes[from].tag, self.nodes[to].tag, self.path(from, to));
        let id = self.nodes[from].host.connect(self.now, ours, peer, &[path]).expect("it begins");
        self.drain(from);
        id
    }

    /// Does something to a host, and carries out what it wants.
    pub(crate) fn act<T>(&mut self, node: usize, act: impl FnOnce(&mut Host, Instant) -> T) -> T {
        let result = act(&mut self.nodes[node].host, self.now);
        self.drain(node);
        result
    }

    fn drain(&mut self, node: usize) {
        while let Some(event) = self.nodes[node].host.poll_event() {
            self.nodes[node].plane.apply(event);
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = self.nodes[node].host.poll_transmit(self.now, &mut datagram) {
            let bytes = std::mem::take(&mut datagram);
            self.seen.push((transmit.path, bytes.clone()));
            if self.chance.below(1_000) >= self.lost {
                self.fly(transmit.path, bytes.clone());
            }
            if self.chance.below(1_000) < self.doubled {
                self.fly(transmit.path, bytes);
            }
        }
    }

    /// Puts a datagram on its way, as its sender sees the path.
    pub(crate) fn fly(&mut self, path: Path, bytes: Vec<u8>) {
        let path = match self.nats.iter_mut().find(|nat| nat.inside.contains(&path.local.ip())) {
            // Behind the same one, they reach each other without it.
            Some(nat) if nat.inside.contains(&path.remote.ip()) => path,
            Some(nat) => Path { local: nat.outward(self.now, path.local, path.remote), ..path },
            None => path,
        };
        if let Some(open) = self.firewalls.get_mut(&path.local.ip()) {
            open.insert((path.carrier, path.remote.ip()));
        }
        let delay = Duration::from_millis(10 + self.chance.below(30));
        self.sent += 1;
        let at = std::cmp::Reverse((self.now + delay, self.sent));
        self.flights.push(Flight {
            at,
            path: Path { local: path.remote, remote: path.local, ..path },
            bytes,
        });
    }

    /// What a NAT makes of a datagram for it; `None`: it lets it not in. Who is behind a NAT is reached through it alone, or from beside.
    fn inward(&mut self, path: Path) -> Option<Path> {
        if let Some(nat) = self.nats.iter_mut().find(|nat| path.local.ip() == nat.outside) {
            return Some(Path { local: nat.inward(self.now, path.local, path.remote)?, ..path });
        }
        let behind = self.nats.iter().find(|nat| nat.inside.contains(&path.local.ip()));
        behind.is_none_or(|nat| nat.inside.contains(&path.remote.ip())).then_some(path)
    }

    fn lets_in(&self, path: Path) -> bool {
        let udp = path.carrier == Carrier::HipUdp && self.no_udp.contains(&path.local.ip());
        let firewall = self.firewalls.get(&path.local.ip());
        let apart = self.apart.contains(&(path.remote.ip(), path.local.ip()));
        !udp && !apart && firewall.is_none_or(|open| open.contains(&(path.carrier, path.remote.ip())))
    }

    /// A host sends ESP to the peer of its newest association, as its data plane would.
    pub(crate) fn send_data(&mut self, from: usize, to: usize) {
        let peer = self.nodes[to].tag;
        let it = self.nodes[from].host.describe().find(|d| d.peer == peer).expect("an association");
        let plane = &self.nodes[from].plane;
        let (path, install) = (plane.path[&it.id], &plane.installed[&it.child.expect("a pair")]);
        self.fly(path, [&install.spi_out.to_be_bytes()[..], b"sealed"].concat());
    }

    /// ESP comes to a host: it is its own, or passed on.
    fn take_data(&mut self, node: usize, path: Path, bytes: &[u8]) -> Result<(), Discard> {
        let spi = u32::from_be_bytes(*bytes.first_chunk().expect("an SPI"));
        let Node { host, plane, .. } = &mut self.nodes[node];
        if plane.installed.contains_key(&ChildId::new(spi)) {
            self.data.push((node, path.remote));
        } else if !host.pass_on(self.now, path, bytes) {
            return Err(Discard("ESP for no one"));
        }
        self.drain(node);
        Ok(())
    }

    /// Hands a datagram to a host at once.
    pub(crate) fn hand(&mut self, node: usize, path: Path, bytes: &[u8]) -> Result<(), Discard> {
        let mut bytes = bytes.to_vec();
        let in_udp = path.carrier == Carrier::HipUdp && !bytes.starts_with(&[0; 4]);
        if in_udp || path.carrier == Carrier::RawEsp {
            return self.take_data(node, path, &bytes);
        }
        let result = self.nodes[node].host.handle_datagram(self.now, path, &mut bytes);
        self.drain(node);
        result
    }

    /// The next thing happens; false if nothing is under way and nothing is due before `end`.
    pub(crate) fn step(&mut self, end: Instant) -> bool {
        let flight = self.flights.peek().map(|f| f.at.0.0);
        let awake = self.nodes.iter().enumerate().filter(|(i, _)| Some(*i) != self.radio_off);
        let due = awake.filter_map(|(_, n)| next_timer(&n.host)).min();
        let Some(next) = [flight, due].into_iter().flatten().min().filter(|at| *at <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(next);
        if flight == Some(next) {
            if let Some(Flight { path, bytes, .. }) = self.flights.pop()
                && let Some(path) = self.inward(path)
                && !self.dead.contains(&path.local.ip())
                && !self.dead.contains(&path.remote.ip())
                && self.lets_in(path)
                && let Some(node) = self.nodes.iter().position(|n| n.is_at(path))
                && Some(node) != self.radio_off
                && let Err(discard) = self.hand(node, path, &bytes)
            {
                self.drops.push(discard.0);
            }
        } else {
            let off = self.radio_off;
            for node in (0..self.nodes.len()).filter(|n| Some(*n) != off) {
                let now = self.now;
                self.act(node, |host, _| host.handle_timeout(now));
            }
        }
        true
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// The CHILD SA of a host's first association.
    pub(crate) fn child(&self, node: usize) -> ChildId {
        self.nodes[node].host.describe().next().and_then(|d| d.child).unwrap()
    }

    /// Has a host rekey it.
    pub(crate) fn rekey(&mut self, node: usize) {
        let child = self.child(node);
        self.act(node, |host, now| host.rekey_child(now, child));
    }

    /// Whether both ends have exactly one pair that sends, and it is the same one with the same keys.
    pub(crate) fn joined(&self, a: usize, b: usize) -> bool {
        let child = |from: usize, to: usize| {
            let mut found = self.nodes[from].host.describe().filter(|d| d.peer == self.nodes[to].tag);
            let d = found.next()?;
            assert!(found.next().is_none(), "one association with a peer");
            let child = d.child.filter(|_| d.phase == Phase::Established)?;
            Some(&self.nodes[from].plane.installed[&child])
        };
        let (Some(x), Some(y)) = (child(a, b), child(b, a)) else { return false };
        x.child.spi() == y.spi_out
            && y.child.spi() == x.spi_out
            && x.keymat_in == y.keymat_out
            && x.keymat_out == y.keymat_in
            && (x.encr, x.integ, x.mode) == (y.encr, y.integ, swapped(y.mode, x.mode))
    }

    /// A host learns its own address, which is this from now on.
    pub(crate) fn place(&mut self, node: usize, address: &str) {
        self.nodes[node].address.set_ip(address.parse().expect("an address"));
        let addresses = [self.nodes[node].address.ip()];
        self.act(node, |host, now| host.set_addresses(now, &addresses));
    }

    /// Where a host is, for the directory of another.
    pub(crate) fn whereabouts(&self, node: usize) -> Peer {
        Peer { addresses: vec![self.nodes[node].address.ip()], udp: self.carrier == Carrier::HipUdp }
    }

    /// Whether no host has anything to do, but for NATs on the way.
    pub(crate) fn is_idle(&self) -> bool {
        let timers = self.nodes.iter().flat_map(|n| n.host.timers());
        timers.map(|d| d.why).all(|why| why == "HIP: NATs on the way")
    }

    /// The node no longer gets anything.
    pub(crate) fn unplug(&mut self, node: usize) {
        self.nodes[node].address.set_ip(IpAddr::from([0, 0, 0, 0]));
    }

    pub(crate) fn count(&self, kind: PacketType) -> usize {
        let skip = if self.carrier == Carrier::HipUdp { 4 } else { 0 };
        let of = |bytes: &[u8]| Packet::parse(bytes.get(skip..).unwrap_or_default()).map(|p| p.header.kind);
        self.seen.iter().filter(|(_, bytes)| of(bytes) == Ok(kind)).count()
    }

    /// The newest datagram of a kind.
    pub(crate) fn last(&self, kind: PacketType) -> (Path, Vec<u8>) {
        let skip = if self.carrier == Carrier::HipUdp { 4 } else { 0 };
        let of = |bytes: &[u8]| Packet::parse(bytes.get(skip..).unwrap_or_default()).map(|p| p.header.kind);
        let found = self.seen.iter().rev().find(|(_, bytes)| of(bytes) == Ok(kind));
        found.unwrap_or_else(|| panic!("no {kind}")).clone()
    }
}

/// BEET addresses of the two ends mirror each other.
fn swapped(theirs: dormouse_keying::Mode, ours: dormouse_keying::Mode) -> dormouse_keying::Mode {
    use dormouse_keying::{Beet, Mode};
    match theirs {
        Mode::Beet(Beet { local, remote }) if ours == Mode::Beet(Beet { local: remote, remote: local }) => {
            ours
        }
        other => other,
    }
}

impl Plane {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Established { may_sleep, .. } => {
                self.established += 1;
                self.may_sleep |= may_sleep;
                self.log.push("established".into());
            }
            Event::Child(ChildSa::Install(install)) => {
                let dormouse_keying::Owner::Hip(id) = install.owner else { panic!("an owner of IKE") };
                self.log.push(format!("install{}", if install.replaces.is_some() { " anew" } else { "" }));
                if let Some(old) = install.replaces {
                    assert!(self.installed.contains_key(&old), "what is replaced is there");
                }
                self.path.insert(id, install.path);
                assert!(self.installed.insert(install.child, *install).is_none(), "an SPI is used once");
            }
            Event::Child(ChildSa::Remap { owner, path }) => {
                let dormouse_keying::Owner::Hip(id) = owner else { panic!("an owner of IKE") };
                self.log.push("remap".into());
                self.path.insert(id, path);
            }
            Event::Child(ChildSa::Remove { child, .. }) => {
                self.log.push("remove".into());
                assert!(self.installed.remove(&child).is_some(), "what is removed is there");
            }
            Event::Refused { .. } => self.log.push("refused".into()),
            Event::SleepAnswered { verdict, .. } => self.verdicts.push(verdict),
            Event::Revived { moved, .. } => {
                self.log.push(if moved { "revived, moved".into() } else { "revived".into() });
            }
            Event::PeerSleeps { until, flags, expect, marks, .. } => {
                self.log.push("the peer sleeps".into());
                self.sleeper = Some((until, flags, expect, marks));
            }
            Event::PeerAwake { there, .. } => {
                self.log.push(if there { "the peer is awake".into() } else { "the peer overslept".into() });
                self.sleeper = None;
            }
            Event::Closed { owner, why } | Event::Failed { owner, why, .. } => {
                let dormouse_keying::Owner::Hip(id) = owner else { panic!("an owner of IKE") };
                self.log.push(format!("closed: {why}"));
                assert!(self.installed.values().all(|i| i.owner != owner), "its pairs were removed before");
                self.closed.push((id, why));
            }
        }
    }
}
