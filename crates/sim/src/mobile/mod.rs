//! Mobile IP in virtual time: a home agent, foreign agents, a host that moves between them, and a correspondent.
//!
//! ```text
//!                      ┌── wire ── home agent ── home link ──┐
//!   correspondent ── core ── wire ── foreign agent 0 ── radio ── host, on one link at a time
//!                      └── wire ── foreign agent 1 ── radio ──┘
//! ```
//!
//! Owns the clock, the links and the books: which packet was sent when, and whether it arrived, once and unchanged. Must never look at what the
//! parts think. [`hosts`]: the hosts that ship beside the parts, if wanted.

pub mod hosts;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dormouse_mobileip::{
    CoLocated, ForeignAgent, ForeignConfig, HomeAgent, HomeConfig, LinkAddress, MobileConfig, MobileHost,
    Side, WallClock,
};
use dormouse_netem::{Link, LinkConfig};
use dormouse_sansio::{Deadline, Entropy as _, Instant, Seeded};
use dormouse_wire::ip::udp::{self, Udp};
use dormouse_wire::ip::{Ipv4, Packet, set_hop_limit};
use hosts::Hosts;

/// With whom the host talks.
pub const CORRESPONDENT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// The port of the packets that are counted.
const PORT: u16 = 7;
/// Iterations at one moment after which something spins.
const SPIN: u32 = 20_000;
const HOST: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 2]);

/// Where the host can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// At home.
    Home,
    /// On the radio of this foreign agent.
    Foreign(usize),
}

/// What became of the packets that were sent between two handoffs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handoff {
    /// Sent by the correspondent, and by the host.
    pub sent: [u32; 2],
    /// That did not arrive.
    pub lost: [u32; 2],
}

/// A radio or the home link, and the wire behind its agent.
struct Way {
    /// From the core to the agent, and back.
    wire: [Link<()>; 2],
    /// From the agent to the host that has this address there, and from that host.
    radio: [Link<LinkAddress>; 2],
}

/// What is lost on purpose: told the packet, and whether it is on a radio.
pub type Thief = Box<dyn FnMut(&[u8], bool) -> bool>;

/// See the module.
pub struct Mobile {
    /// The clock.
    pub now: Instant,
    /// The home agent.
    pub home: HomeAgent,
    /// The foreign agents; none where it has crashed.
    pub foreign: Vec<Option<ForeignAgent>>,
    /// The host.
    pub host: MobileHost,
    /// Sees every packet before it enters a link.
    pub thief: Option<Thief>,
    hosts: Option<Hosts>,
    configs: Vec<ForeignConfig>,
    address: Ipv4Addr,
    home_config: HomeConfig,
    rng: Seeded,
    ways: BTreeMap<Place, Way>,
    place: Option<Place>,
    /// Handoffs so far.
    moves: usize,
    /// By number: when it was sent, by whom, and how often it arrived.
    books: Vec<(usize, usize, u32)>,
}

/// The wall clock of a world.
#[must_use]
pub fn clock(skew: Duration) -> WallClock {
    WallClock { at: Instant::ZERO, unix: Duration::from_secs(1_700_000_000) + skew }
}

/// The link-layer address of an agent.
#[must_use]
pub const fn agent_link(place: Place) -> LinkAddress {
    match place {
        Place::Home => LinkAddress([2, 0, 0, 0, 1, 0]),
        Place::Foreign(n) => LinkAddress([2, 0, 0, 0, 2, n as u8]),
    }
}

impl Mobile {
    /// A world in which all wires and all radios are alike, and the host is nowhere.
    #[must_use]
    pub fn new(
        seed: u64,
        (wire, radio): (LinkConfig, LinkConfig),
        home: HomeConfig,
        foreign: Vec<ForeignConfig>,
        host: MobileConfig,
        host_clock: WallClock,
    ) -> Self {
        let mut rng = Seeded::new(seed);
        let now = Instant::ZERO;
        let places = std::iter::once(Place::Home).chain((0..foreign.len()).map(Place::Foreign));
        let ways = places.map(|place| {
            let wire = [Link::new(wire, rng.next_u64()), Link::new(wire, rng.next_u64())];
            let radio = [Link::new(radio, rng.next_u64()), Link::new(radio, rng.next_u64())];
            (place, Way { wire, radio })
        });
        let ways = ways.collect();
        let address = host.home;
        let agents =
            foreign.iter().map(|config| Some(ForeignAgent::new(now, config.clone(), Box::new(rng.fork()))));
        let agents = agents.collect();
        Self {
            now,
            home: HomeAgent::new(now, home.clone(), clock(Duration::ZERO), Box::new(rng.fork())),
            foreign: agents,
            host: MobileHost::new(host, host_clock, Box::new(rng.fork())),
            thief: None,
            hosts: None,
            configs: foreign,
            address,
            home_config: home,
            rng,
            ways,
            place: None,
            moves: 0,
            books: Vec::new(),
        }
    }

    /// The host leaves where it is, and is here at once.
    pub fn go(&mut self, place: Option<Place>) {
        self.go_with(place, None);
    }

    /// The same, with an address of its own there.
    pub fn go_with(&mut self, place: Option<Place>, own: Option<Ipv4Addr>) {
        self.place = place;
        self.moves += 1;
        match place {
            None => self.host.detach(),
            Some(place) => {
                let router = agent_link(place);
                self.host.attach(self.now, own.map(|address| CoLocated { address, router }));
            }
        }
        self.flush();
    }

    /// A foreign agent loses all that it knows, and is gone until [`Self::restart`].
    pub fn crash(&mut self, n: usize) {
        self.foreign[n] = None;
    }

    /// A foreign agent begins again.
    pub fn restart(&mut self, n: usize) {
        let agent = ForeignAgent::new(self.now, self.configs[n].clone(), Box::new(self.rng.fork()));
        self.foreign[n] = Some(agent);
    }

    /// The home agent loses all that it knows, and begins again.
    pub fn restart_home(&mut self) {
        let random = Box::new(self.rng.fork());
        self.home = HomeAgent::new(self.now, self.home_config.clone(), clock(Duration::ZERO), random);
    }

    /// From now on no radio loses anything.
    pub fn heal(&mut self) {
        self.set_loss(0.0);
    }

    /// From now on each radio loses a packet with this probability.
    pub fn set_loss(&mut self, loss: f64) {
        for link in self.ways.values_mut().flat_map(|w| &mut w.radio) {
            let config = LinkConfig { loss, ..*link.config() };
            link.set_config(config);
        }
    }

    /// A packet comes into the core.
    pub fn inject(&mut self, packet: Vec<u8>) {
        self.route(packet);
        self.flush();
    }

    /// The correspondent (0) or the host (1) sends a packet that is counted.
    pub fn send(&mut self, by: usize) {
        let number = self.books.len() as u64;
        self.books.push((self.moves, by, 0));
        let ends = [SocketAddr::new(CORRESPONDENT.into(), PORT), SocketAddr::new(self.address.into(), PORT)];
        let mut packet = Vec::new();
        let built = udp::build(ends[by], ends[1 - by], &number.to_be_bytes(), &mut packet);
        assert!(built.is_ok());
        if by == 0 {
            self.route(packet);
        } else {
            // What cannot be sent is lost: the books say so.
            let _ = self.host.handle_packet(self.now, Side::Routed, &packet);
        }
        self.flush();
    }

    /// What became of the packets sent before the first handoff, between the first and the second, and so on.
    #[must_use]
    pub fn handoffs(&self) -> Vec<Handoff> {
        let mut handoffs = vec![Handoff::default(); self.moves + 1];
        for (moves, by, arrived) in &self.books {
            assert!(*arrived < 2, "a packet arrived twice");
            handoffs[*moves].sent[*by] += 1;
            handoffs[*moves].lost[*by] += u32::from(*arrived == 0);
        }
        handoffs
    }

    /// Lets time pass; both ends send a packet in each `every`.
    pub fn talk(&mut self, time: Duration, every: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.send(0);
            self.send(1);
            self.run(every);
        }
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// If something runs in circles without time passing.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut spins = (self.now, 0);
        self.flush();
        while let Some(at) = self.due().filter(|at| *at <= end) {
            let at = at.max(self.now);
            spins = (at, if spins.0 == at { spins.1 + 1 } else { 0 });
            assert!(spins.1 < SPIN, "something spins at {at:?}");
            self.now = at;
            self.deliver();
            self.home.handle_timeout(at);
            self.foreign.iter_mut().flatten().for_each(|agent| agent.handle_timeout(at));
            self.host.handle_timeout(at);
            self.run_hosts();
            self.flush();
        }
        self.now = end;
    }

    fn due(&self) -> Option<Instant> {
        let links = self.ways.values().flat_map(|w| {
            let radio = w.radio.iter().filter_map(Link::poll_timeout);
            w.wire.iter().filter_map(Link::poll_timeout).chain(radio)
        });
        let agents = self.foreign.iter().flatten().filter_map(ForeignAgent::poll_timeout);
        let ends = [self.home.poll_timeout(), self.host.poll_timeout()].into_iter().flatten();
        let parts = links.chain(agents).chain(ends).map(|d: Deadline| d.at);
        parts.chain(self.hosts.iter().filter_map(Hosts::due)).min()
    }

    fn deliver(&mut self) {
        let (now, places) = (self.now, self.ways.keys().copied().collect::<Vec<_>>());
        for place in places {
            while let Some(way) = self.ways.get_mut(&place) {
                if let Some(((), packet)) = way.wire[0].poll_deliver(now) {
                    self.come(place, &packet);
                } else if let Some(((), packet)) = way.wire[1].poll_deliver(now) {
                    self.route(packet);
                } else if let Some((to, packet)) = way.radio[0].poll_deliver(now) {
                    if self.place == Some(place) && [HOST, LinkAddress::BROADCAST].contains(&to) {
                        let _ = self.host.handle_packet(now, Side::Link(agent_link(place)), &packet);
                    }
                } else if let Some((to, packet)) = way.radio[1].poll_deliver(now) {
                    if [agent_link(place), LinkAddress::BROADCAST].contains(&to) {
                        self.hand(place, Side::Link(HOST), &packet);
                    }
                } else {
                    break;
                }
                self.flush();
            }
        }
    }

    /// A packet comes out of the wire of an agent.
    fn come(&mut self, place: Place, packet: &[u8]) {
        let taken = matches!(place, Place::Foreign(n) if self.router_takes(n, packet));
        if !taken {
            self.hand(place, Side::Routed, packet);
        }
    }

    fn hand(&mut self, place: Place, side: Side, packet: &[u8]) {
        // What an agent discards is its own business; what is lost by it stands in the books.
        let _ = match place {
            Place::Home => self.home.handle_packet(self.now, side, packet),
            Place::Foreign(n) => match self.foreign[n].as_mut() {
                Some(agent) => {
                    let own = Ipv4::parse(packet).is_ok_and(|ip| ip.dst() == self.configs[n].agent.address);
                    if side == Side::Routed && !own {
                        // A router for those with an address of their own there.
                        let _ = self
                            .ways
                            .get_mut(&place)
                            .map(|w| w.radio[0].enqueue(self.now, HOST, packet.to_vec()));
                        return;
                    }
                    let handled = agent.handle_packet(self.now, side, packet);
                    if handled.is_err() && side != Side::Routed && self.is_local(n, packet) {
                        self.route(packet.to_vec());
                    }
                    handled
                }
                None => Ok(()),
            },
        };
    }

    /// Whether a packet comes from an address of the foreign agent's own network.
    fn is_local(&self, n: usize, packet: &[u8]) -> bool {
        let net = |a: Ipv4Addr| a.octets()[..3].to_vec();
        Ipv4::parse(packet).is_ok_and(|ip| net(ip.src()) == net(self.configs[n].agent.address))
    }

    /// The core, and the kernel of each agent: forwards by destination.
    fn route(&mut self, mut packet: Vec<u8>) {
        let Ok(ip) = Ipv4::parse(&packet) else { return };
        let (to, ttl) = (ip.dst(), ip.ttl());
        if ttl <= 1 {
            return;
        }
        set_hop_limit(&mut packet, ttl - 1);
        if to == CORRESPONDENT {
            return self.arrive(0, &packet);
        }
        let net = |a: Ipv4Addr| a.octets()[..3].to_vec();
        let there = self.configs.iter().position(|c| net(c.agent.address) == net(to));
        let at_home = self.home_config.network.contains(&to).then_some(Place::Home);
        let Some(place) = at_home.or(there.map(Place::Foreign)) else { return };
        if self.thief.as_mut().is_some_and(|steals| steals(&packet, false)) {
            return;
        }
        let _lost = self.ways.get_mut(&place).map(|w| w.wire[0].enqueue(self.now, (), packet));
    }

    /// A packet has come to the correspondent (0) or the host (1).
    fn arrive(&mut self, at: usize, packet: &[u8]) {
        self.open(at, packet);
        self.count(at, packet);
    }

    fn count(&mut self, at: usize, packet: &[u8]) {
        let Ok(ip) = Ipv4::parse(packet) else { return };
        let Ok(udp) = Udp::parse(&Packet::V4(ip)) else { return };
        let number = udp.payload.try_into().map(u64::from_be_bytes);
        if let Some((_, by, arrived)) = number.ok().and_then(|n| self.books.get_mut(n as usize)) {
            assert_eq!(*by, 1 - at, "a packet came back");
            *arrived += 1;
        }
    }

    /// Carries what the parts and the hosts beside them want to send.
    fn flush(&mut self) {
        self.flush_parts();
        while self.flush_hosts() {
            self.flush_parts();
        }
    }

    fn flush_parts(&mut self) {
        let mut out = Vec::new();
        let places: Vec<Place> = self.ways.keys().copied().collect();
        for place in places {
            while let Some(side) = match place {
                Place::Home => self.home.poll_transmit(&mut out),
                Place::Foreign(n) => self.foreign[n].as_mut().and_then(|a| a.poll_transmit(&mut out)),
            } {
                self.carry(place, side, std::mem::take(&mut out));
            }
        }
        while let Some(side) = self.host.poll_transmit(&mut out) {
            let packet = std::mem::take(&mut out);
            match (side, self.place) {
                (Side::Routed, _) => self.arrive(1, &packet),
                (Side::Link(to), Some(place)) => {
                    let stolen = self.thief.as_mut().is_some_and(|steals| steals(&packet, true));
                    if let Some(way) = self.ways.get_mut(&place).filter(|_| !stolen) {
                        let _lost = way.radio[1].enqueue(self.now, to, packet);
                    }
                }
                _ => {}
            }
        }
    }

    fn carry(&mut self, place: Place, side: Side, packet: Vec<u8>) {
        if matches!((place, side), (Place::Foreign(n), Side::Routed) if self.router_passes(n, &packet)) {
            return;
        }
        self.enter_link(place, side, packet);
    }

    fn enter_link(&mut self, place: Place, side: Side, packet: Vec<u8>) {
        let on_radio = side != Side::Routed;
        if self.thief.as_mut().is_some_and(|steals| steals(&packet, on_radio)) {
            return;
        }
        let Some(way) = self.ways.get_mut(&place) else { return };
        let _lost = match side {
            Side::Routed => way.wire[1].enqueue(self.now, (), packet),
            Side::Link(to) => way.radio[0].enqueue(self.now, to, packet),
        };
    }
}
