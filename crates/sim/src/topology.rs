//! A topology: any number of machines in any number of networks, joined by a core that routes between them, under one seeded clock.
//! Owns time and the laws of the network: links that lose, NATs that forget, routers in transit, and machines that move.
//!
//! A network has an uplink and a downlink to the core, may stand behind a NAT (IPv4 only, as in the world), and may have a router: one that
//! ships ([`Host::set_router`]), which sees whole packets, or one of a test's own ([`Passing`]), which sees datagrams. Between
//! router and machines there may be a radio. A machine is in one network at a time, with an address of either family or both.

use crate::engine::is_esp;
use crate::machine::Machine;
use crate::outer;
use dormouse_netem::{Link, LinkConfig, Nat, NatConfig};
use dormouse_node::host::{Host, Side};
use dormouse_sansio::{Entropy, Instant, Path, Seeded};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Iterations at one moment after which something spins.
const SPIN: u32 = 20_000;

/// A machine of a [`Topology`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MachineId(usize);

/// A network of a [`Topology`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NetworkId(usize);

/// When a topology is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Datagrams have arrived; timers that are due have not run.
    Delivered,
    /// Everything that was due has happened; what the machines want to send has not left them.
    Acted,
}

/// Where a machine is, and its outer addresses there.
#[derive(Clone, Debug)]
struct Place {
    network: NetworkId,
    addresses: Vec<IpAddr>,
}

/// What the network does to a datagram that leaves a machine by this path: true if it is lost.
pub type Astray = Box<dyn FnMut(&Path, &[u8]) -> bool>;

/// What a router of a test's own does to a datagram that passes it on this path.
pub type Passing = Box<dyn FnMut(&mut Machine, Instant, &Path, &mut Vec<u8>)>;

struct Member {
    machine: Machine,
    place: Option<Place>,
    astray: Option<Astray>,
    passing: Option<Passing>,
    /// When it wants to run, as [`Topology::due`] has it.
    due: Option<Instant>,
}

struct Network {
    up: Link<Path>,
    down: Link<Path>,
    nat: Option<Nat>,
    router: Option<MachineId>,
    /// From its machines, and to them.
    radio: Option<[Link<Path>; 2]>,
}

impl Network {
    fn links(&self) -> impl Iterator<Item = &Link<Path>> {
        [&self.up, &self.down].into_iter().chain(self.radio.iter().flatten())
    }
}

/// ESP packets that came as far as a machine's own network.
#[derive(Clone, Copy, Default, Debug)]
pub struct Undelivered {
    /// Stopped by a NAT that had forgotten, or never known, who they are for.
    pub stopped: u64,
    /// For a machine that is not there, or whose radio is off or process dead.
    pub deaf: u64,
}

/// See the module's documentation.
pub struct Topology {
    /// The clock.
    pub now: Instant,
    /// What has not arrived.
    pub undelivered: Undelivered,
    seed: u64,
    rng: Seeded,
    members: Vec<Member>,
    networks: Vec<Network>,
    /// The network behind each public address of a NAT.
    public: BTreeMap<IpAddr, NetworkId>,
    /// The machine at each address of each network.
    at: BTreeMap<(IpAddr, NetworkId), usize>,
    /// Machines that may have something to send, or want to run at another time, since [`Topology::post`].
    touched: BTreeSet<usize>,
    /// When machines want to run, but for those that were touched.
    due: BTreeSet<(Instant, usize)>,
}

impl Topology {
    /// An empty one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            undelivered: Undelivered::default(),
            seed,
            rng: Seeded::new(seed),
            members: Vec::new(),
            networks: Vec::new(),
            public: BTreeMap::new(),
            at: BTreeMap::new(),
            touched: BTreeSet::new(),
            due: BTreeSet::new(),
        }
    }

    /// The source of everything that is drawn here.
    pub fn rng(&mut self) -> &mut Seeded {
        &mut self.rng
    }

    /// Adds a network whose links are both like `link`, behind a NAT if `nat` is given.
    pub fn add_network(&mut self, link: LinkConfig, nat: Option<NatConfig>) -> NetworkId {
        let id = NetworkId(self.networks.len());
        self.public.extend(nat.as_ref().map(|n| (n.public, id)));
        let (up, down) = (self.rng.next_u64(), self.rng.next_u64());
        let nat = nat.map(|config| Nat::new(config, self.rng.next_u64()));
        self.networks.push(Network {
            up: Link::new(link, up),
            down: Link::new(link, down),
            nat,
            router: None,
            radio: None,
        });
        id
    }

    /// Adds a machine, which is in no network yet.
    pub fn add_machine(&mut self, machine: Machine) -> MachineId {
        self.members.push(Member { machine, place: None, astray: None, passing: None, due: None });
        self.touched.insert(self.members.len() - 1);
        MachineId(self.members.len() - 1)
    }

    /// What becomes of the datagrams of a machine from now on; `None`: they take the way that they should.
    pub fn set_astray(&mut self, id: MachineId, astray: Option<Astray>) {
        if let Some(member) = self.members.get_mut(id.0) {
            member.astray = astray;
        }
    }

    /// What passes this machine, whose core is no access router while its process lives, is seen by `passing` from now on, which may change it.
    pub fn set_passing(&mut self, id: MachineId, passing: Passing) {
        if let Some(member) = self.members.get_mut(id.0) {
            member.passing = Some(passing);
        }
    }

    /// What passes the network goes through this machine's core, which is a router in transit of this one network. It stands inside the
    /// NAT, if there is one. While its process is dead, its kernel passes everything on.
    pub fn set_router(&mut self, network: NetworkId, router: MachineId) {
        if let Some(network) = self.networks.get_mut(network.0) {
            network.router = Some(router);
        }
    }

    /// A machine.
    ///
    /// # Panics
    /// If it belongs to another topology.
    #[must_use]
    pub fn machine(&self, id: MachineId) -> &Machine {
        &self.members[id.0].machine
    }

    /// A machine.
    ///
    /// # Panics
    /// If it belongs to another topology.
    pub fn machine_mut(&mut self, id: MachineId) -> &mut Machine {
        self.touched.insert(id.0);
        &mut self.members[id.0].machine
    }

    /// What a machine has heard since it was asked last, if anyone is to know.
    pub(crate) fn take_heard(&mut self, id: MachineId) -> Vec<(Path, Vec<u8>)> {
        let heard = self.members.get_mut(id.0).and_then(|member| member.machine.heard.as_mut());
        heard.map(std::mem::take).unwrap_or_default()
    }

    /// Machines to which something has happened since they were last asked what they want to send.
    pub fn touched(&self) -> impl Iterator<Item = MachineId> {
        self.touched.iter().copied().map(MachineId)
    }

    /// The outer addresses of a machine now.
    #[must_use]
    pub fn addresses(&self, id: MachineId) -> &[IpAddr] {
        self.members.get(id.0).and_then(|m| m.place.as_ref()).map_or(&[], |p| &p.addresses)
    }

    /// Does something to the core of a machine, and what follows from it.
    pub fn with(&mut self, id: MachineId, act: impl FnOnce(Instant, &mut Host)) {
        let now = self.now;
        self.machine_mut(id).with(now, |host| act(now, host));
    }

    /// A machine enters a network with these addresses, or is in none; its kernel tells it.
    pub fn place(&mut self, id: MachineId, place: Option<(NetworkId, Vec<IpAddr>)>) {
        self.unplug(id);
        let (now, addresses) = (self.now, place.as_ref().map_or_else(Vec::new, |(_, list)| list.clone()));
        if let Some(member) = self.members.get_mut(id.0) {
            self.at.extend(place.iter().flat_map(|(net, list)| list.iter().map(|a| ((*a, *net), id.0))));
            member.place = place.map(|(network, addresses)| Place { network, addresses });
            self.machine_mut(id).set_addresses(now, addresses);
        }
    }

    /// Takes a machine out of its network without its kernel telling it: its radio is off.
    pub fn unplug(&mut self, id: MachineId) {
        if let Some(place) = self.members.get_mut(id.0).and_then(|m| m.place.take()) {
            for address in place.addresses {
                self.at.remove(&(address, place.network));
            }
        }
    }

    /// Both links of a network are like this from now on.
    pub fn set_link(&mut self, id: NetworkId, change: impl Fn(&LinkConfig) -> LinkConfig) {
        if let Some(network) = self.networks.get_mut(id.0) {
            for link in [&mut network.up, &mut network.down] {
                link.set_config(change(link.config()));
            }
        }
    }

    /// Between a network's machines and its router, or the core, is a radio like this from now on, each way.
    pub fn set_radio(&mut self, id: NetworkId, link: LinkConfig) {
        let seeds = [self.rng.next_u64(), self.rng.next_u64()];
        let Some(network) = self.networks.get_mut(id.0) else { return };
        match &mut network.radio {
            Some(radio) => radio.iter_mut().for_each(|way| way.set_config(link)),
            None => network.radio = Some(seeds.map(|seed| Link::new(link, seed))),
        }
    }

    /// Both links of a network lose, duplicate and reorder with these probabilities from now on.
    pub fn set_weather(&mut self, id: NetworkId, loss: f64, duplication: f64, reordering: f64) {
        let reordering_delay = Duration::from_millis(300);
        self.set_link(id, |link| LinkConfig { loss, duplication, reordering, reordering_delay, ..*link });
    }

    /// The NAT before a network forgets its mappings, if there is one.
    pub fn forget_mappings(&mut self, id: NetworkId) {
        if let Some(nat) = self.networks.get_mut(id.0).and_then(|n| n.nat.as_mut()) {
            nat.reboot();
        }
    }

    /// Lets time pass until `end`, or until `look` returns true: it sees the topology at each [`Moment`].
    ///
    /// # Panics
    /// If something runs in circles without time passing.
    pub fn run_until(&mut self, end: Instant, mut look: impl FnMut(&mut Self, Moment) -> bool) {
        let (mut moment, mut spins) = (self.now, 0);
        loop {
            let stop = look(self, Moment::Acted);
            self.post();
            let next = self.due().unwrap_or(Instant::FAR_FUTURE).max(self.now);
            if stop {
                return;
            }
            if next > end {
                break;
            }
            spins = if next == moment { spins + 1 } else { 0 };
            moment = next;
            assert!(spins < SPIN, "something spins at {:?}; seed {}", self.now, self.seed);
            self.now = next;
            self.deliver();
            for n in self.due.iter().take_while(|(at, _)| *at <= next).map(|(_, n)| *n).collect::<Vec<_>>() {
                self.machine_mut(MachineId(n)).serve(next);
            }
            look(self, Moment::Delivered);
            while let Some((at, n)) = self.due.first().copied().filter(|(at, _)| *at <= next) {
                self.due.remove(&(at, n));
                self.machine_mut(MachineId(n)).run(next);
            }
        }
        self.now = end;
    }

    fn due(&self) -> Option<Instant> {
        let links = self.networks.iter().flat_map(Network::links);
        let links = links.filter_map(|l| l.poll_timeout()).map(|d| d.at);
        links.chain(self.due.first().map(|(at, _)| *at)).min()
    }

    /// Hands what the machines send to the links of their networks.
    pub fn post(&mut self) {
        while let Some(n) = self.touched.pop_first() {
            while let Some((path, datagram)) = self.members[n].machine.outbox.pop_front() {
                self.leave(n, path, datagram);
            }
            while let Some((to, packet)) = self.members[n].machine.transit.pop_front() {
                self.go_on(n, to, &packet);
            }
            let (member, due) = (&mut self.members[n], &mut self.due);
            member.due.take().map(|at| due.remove(&(at, n)));
            member.due = member.machine.due();
            due.extend(member.due.map(|at| (at, n)));
        }
    }

    fn is_astray(&mut self, n: usize, path: &Path, datagram: &[u8]) -> bool {
        let astray = self.members.get_mut(n).and_then(|member| member.astray.as_mut());
        astray.is_some_and(|lost| lost(path, datagram))
    }

    /// The network whose router this is.
    fn routed_by(&self, n: usize) -> Option<NetworkId> {
        self.networks.iter().position(|network| network.router == Some(MachineId(n))).map(NetworkId)
    }

    fn leave(&mut self, n: usize, path: Path, datagram: Vec<u8>) {
        if self.is_astray(n, &path, &datagram) {
            return;
        }
        let Some(member) = self.members.get(n) else { return };
        let (radio, place) = (member.machine.radio_is_on(), member.place.as_ref());
        let Some(place) = place.filter(|p| radio && p.addresses.contains(&path.local.ip())) else { return };
        let (now, id) = (self.now, place.network);
        if self.networks[id.0].router == Some(MachineId(n)) {
            return self.depart(id, path, datagram);
        }
        match &mut self.networks[id.0].radio {
            Some([up, _]) => _ = up.enqueue(now, path, datagram),
            None => self.reach_router(id, path, datagram),
        }
    }

    /// A packet of an access router goes on.
    fn go_on(&mut self, n: usize, to: Side, packet: &[u8]) {
        let Some((id, (path, datagram))) = self.routed_by(n).zip(outer::datagram(packet)) else { return };
        if !self.is_astray(n, &path, &datagram) {
            self.pass_on(id, to, path, datagram);
        }
    }

    /// A network's router sends what is not its own towards one of its sides.
    fn pass_on(&mut self, id: NetworkId, to: Side, path: Path, datagram: Vec<u8>) {
        if to == Side::Network && self.member_in(id, path.remote.ip()).is_none() {
            return self.depart(id, path, datagram);
        }
        let now = self.now;
        match &mut self.networks[id.0].radio {
            Some([_, down]) => _ = down.enqueue(now, path, datagram),
            None => self.hand_over(id, path, datagram),
        }
    }

    /// A datagram of a machine of a network has come as far as its router, if there is one.
    fn reach_router(&mut self, id: NetworkId, path: Path, datagram: Vec<u8>) {
        match self.networks[id.0].router {
            Some(router) => self.transit(id, router, Side::Device, path, datagram),
            None => self.depart(id, path, datagram),
        }
    }

    /// A datagram leaves a network.
    fn depart(&mut self, id: NetworkId, path: Path, datagram: Vec<u8>) {
        let now = self.now;
        let Some(network) = self.networks.get_mut(id.0) else { return };
        let outside = match &mut network.nat {
            Some(nat) if path.remote.is_ipv4() => nat.outbound(now, path).ok(),
            _ => Some(path),
        };
        // A link that refuses has lost the datagram: the ends must cope.
        let _lost = outside.map(|path| network.up.enqueue(now, path, datagram));
    }

    fn deliver(&mut self) {
        let now = self.now;
        for n in 0..self.networks.len() {
            while let Some((path, datagram)) = self.networks[n].up.poll_deliver(now) {
                if let Some(there) = self.network_of(path.remote.ip()) {
                    let _lost = self.networks[there.0].down.enqueue(now, path, datagram);
                }
            }
        }
        for n in 0..self.networks.len() {
            while let Some((path, datagram)) = self.networks[n].down.poll_deliver(now) {
                self.arrive(NetworkId(n), path, datagram);
            }
            for way in 0..2 {
                let radio = |all: &mut Self| all.networks[n].radio.as_mut()?[way].poll_deliver(now);
                while let Some((path, datagram)) = radio(self) {
                    match way {
                        0 => self.reach_router(NetworkId(n), path, datagram),
                        _ => self.hand_over(NetworkId(n), path, datagram),
                    }
                }
            }
        }
    }

    /// Where the core finds an address.
    fn network_of(&self, address: IpAddr) -> Option<NetworkId> {
        let is_public = |id: &NetworkId| address.is_ipv6() || self.networks[id.0].nat.is_none();
        let all = (address, NetworkId(0))..=(address, NetworkId(usize::MAX));
        let direct = || self.at.range(all).map(|((_, id), _)| *id).find(is_public);
        self.public.get(&address).copied().or_else(direct)
    }

    fn arrive(&mut self, id: NetworkId, path: Path, datagram: Vec<u8>) {
        let now = self.now;
        let inside = match &mut self.networks[id.0].nat {
            Some(nat) if path.remote.is_ipv4() => nat.inbound(now, path).ok(),
            _ => Some(path),
        };
        let Some(path) = inside else {
            self.undelivered.stopped += u64::from(is_esp(&path, &datagram));
            return;
        };
        match self.networks[id.0].router {
            Some(router) => self.transit(id, router, Side::Network, path, datagram),
            None => self.pass_on(id, Side::Device, path, datagram),
        }
    }

    /// A datagram that is on its way from one side of a network's router.
    fn transit(&mut self, id: NetworkId, router: MachineId, from: Side, path: Path, mut datagram: Vec<u8>) {
        let now = self.now;
        // What is for itself its kernel does not show it as a router.
        if self.addresses(router).contains(&path.remote.ip()) {
            return self.hand_over(id, path, datagram);
        }
        match self.machine(router).host().map(|host| host.router_info().is_some()) {
            Some(true) => {
                let packet = outer::packet(&path, &datagram);
                return self.machine_mut(router).with(now, |host| host.handle_packet(now, from, packet));
            }
            Some(false) => self.show(router, &path, &mut datagram),
            None => {}
        }
        let to = if from == Side::Device { Side::Network } else { Side::Device };
        if !self.is_astray(router.0, &path, &datagram) {
            self.pass_on(id, to, path, datagram);
        }
    }

    fn show(&mut self, router: MachineId, path: &Path, datagram: &mut Vec<u8>) {
        let (now, member) = (self.now, self.members.get_mut(router.0));
        if let Some(Member { machine, passing: Some(passing), .. }) = member {
            passing(machine, now, path, datagram);
            self.touched.insert(router.0);
        }
    }

    fn member_in(&self, id: NetworkId, address: IpAddr) -> Option<usize> {
        self.at.get(&(address, id)).copied()
    }

    fn hand_over(&mut self, id: NetworkId, path: Path, datagram: Vec<u8>) {
        let now = self.now;
        let listens = |n: &usize| self.members[*n].machine.listens();
        match self.member_in(id, path.remote.ip()).filter(listens) {
            Some(n) => self.machine_mut(MachineId(n)).receive(now, outer::arrived(path), datagram),
            None => self.undelivered.deaf += u64::from(is_esp(&path, &datagram)),
        }
    }
}
