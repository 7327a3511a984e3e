//! A home agent, a foreign agent and hosts on its link, and packets made by hand.

use std::collections::BTreeMap;
use std::mem::take;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_mobileip::{
    Advertise, AgentConfig, Association, Authenticator, ForeignAgent, ForeignConfig, HomeAgent, HomeConfig,
    LinkAddress, Member, MobileConfig, MobileHost, Replay, Reverse, Side, WallClock,
};
use dormouse_sansio::{Instant, Seeded};
use dormouse_wire::ip::{Ipv4, Ipv4Header, protocol, set_hop_limit, udp};
use dormouse_wire::mobileip::{Message, PORT, Request, authenticator, kind};

pub(crate) const HOME: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
/// Another host of the same home agent.
pub(crate) const HOME_2: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 3);
pub(crate) const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
pub(crate) const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 51, 0, 1);
/// Another foreign agent.
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);
pub(crate) const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);
pub(crate) const HOST: Side = Side::Link(LinkAddress([2; 6]));
pub(crate) const HOST_2: Side = Side::Link(LinkAddress([3; 6]));
pub(crate) const AGENT: Side = Side::Link(LinkAddress([4; 6]));
pub(crate) const THIEF: Side = Side::Link(LinkAddress([9; 6]));
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Keys: of hosts and home agent, of foreign and home agent, of host and foreign agents.
pub(crate) const MH: u8 = 1;
pub(crate) const FH: u8 = 2;
pub(crate) const MF: u8 = 3;

pub(crate) fn shared(n: u8) -> Association {
    Association { spi: 256 + u32::from(n), key: Secret::from([n; 16]), authenticator: Authenticator::HmacMd5 }
}

/// Appends an authentication extension.
pub(crate) fn sign(kind: u8, key: u8, message: &mut Vec<u8>) {
    let with = shared(key);
    let compute = |covered: &[u8]| with.authenticator.compute(&with.key, covered);
    authenticator(kind, with.spi, with.authenticator.len(), message, compute).expect("it fits");
}

/// A message with authentication extensions of these types, under these keys.
pub(crate) fn message(message: Message, keys: &[(u8, u8)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    keys.iter().for_each(|(kind, key)| sign(*kind, *key, &mut bytes));
    bytes
}

/// A registration message in a packet.
pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let ends = [from, to].map(|a| SocketAddr::new(a.into(), PORT));
    udp::build(ends[0], ends[1], message, &mut out).expect("it fits");
    out
}

/// A packet between a correspondent and a host, either way: so many bytes, and not to be fragmented.
pub(crate) fn data(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let ends = [from, to].map(|a| SocketAddr::new(a.into(), 7));
    udp::build(ends[0], ends[1], &vec![7; len - 28], &mut out).expect("it fits");
    out
}

/// A packet in a tunnel.
pub(crate) fn tunnelled(from: Ipv4Addr, to: Ipv4Addr, inner: &[u8]) -> Vec<u8> {
    let header = Ipv4Header::new(from, to, protocol::IPV4).to_bytes(inner.len()).expect("it fits");
    [&header[..], inner].concat()
}

/// A request for a place with the foreign agent.
pub(crate) fn asked(home: Ipv4Addr, id: u64) -> Request {
    Request { flags: 0, lifetime: 300, home, agent: HOME_AGENT, care_of: FOREIGN, id }
}

#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// The hosts share a key with the foreign agents.
    pub(crate) known: bool,
    /// The foreign and the home agent share one.
    pub(crate) vouched: bool,
    pub(crate) replay: Replay,
    pub(crate) unix: Duration,
    pub(crate) lifetime: u16,
}

pub(crate) const SETTING: Setting = Setting {
    known: true,
    vouched: true,
    replay: Replay::Timestamps(Duration::from_secs(7)),
    unix: Duration::from_secs(1_700_000_000),
    lifetime: 300,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Home,
    Foreign,
    Host,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) clock: WallClock,
    pub(crate) home: HomeAgent,
    pub(crate) foreign: ForeignAgent,
    pub(crate) host: MobileHost,
    /// Who has sent what, and where to.
    pub(crate) seen: Vec<(Part, Side, Vec<u8>)>,
    ids: u64,
}

impl World {
    pub(crate) fn new(setting: Setting) -> Self {
        let now = Instant::ZERO;
        let clock = WallClock { at: now, unix: setting.unix };
        let agent = |address| {
            let (advertise, reverse) = (Advertise::default(), Reverse::Offered);
            AgentConfig { address, advertise, reverse, width: 1_500 }
        };
        let member = || Member { association: shared(MH), replay: setting.replay };
        let only = |holds: bool, pairs: &[(Ipv4Addr, u8)]| -> BTreeMap<Ipv4Addr, Association> {
            pairs.iter().filter(|_| holds).map(|(with, key)| (*with, shared(*key))).collect()
        };
        let home = HomeConfig {
            agent: agent(HOME_AGENT),
            network: "10.50.0.0/24".parse().expect("a network"),
            members: BTreeMap::from([(HOME, member()), (HOME_2, member())]),
            foreign: only(setting.vouched, &[(FOREIGN, FH)]),
        };
        let foreign = ForeignConfig {
            agent: agent(FOREIGN),
            home_agents: only(setting.vouched, &[(HOME_AGENT, FH)]),
            mobiles: only(setting.known, &[(HOME, MF), (HOME_2, MF)]),
        };
        let host = MobileConfig {
            home: HOME,
            home_agent: HOME_AGENT,
            association: shared(MH),
            replay: setting.replay,
            foreign: only(setting.known, &[(FOREIGN, MF), (OTHER, MF)]),
            lifetime: setting.lifetime,
            reverse: true,
            sent_after: 5,
            width: 1_500,
        };
        let random = |seed| Box::new(Seeded::new(seed));
        Self {
            now,
            clock,
            home: HomeAgent::new(now, home, clock, random(1)),
            foreign: ForeignAgent::new(now, foreign, random(2)),
            host: MobileHost::new(host, clock, random(3)),
            seen: Vec::new(),
            ids: 0,
        }
    }

    /// The host is registered through the foreign agent.
    pub(crate) fn registered(setting: Setting) -> Self {
        let mut w = Self::new(setting);
        w.host.attach(w.now, None);
        w.run(SECOND);
        assert!(w.home.bindings(HOME).eq([FOREIGN]) && w.foreign.visitors().eq([HOME]));
        w
    }

    /// An identification that the home agent takes for new.
    pub(crate) fn id(&mut self) -> u64 {
        self.ids += 1;
        self.clock.ntp(self.now).wrapping_add(self.ids)
    }

    /// Hands on what each part sends, until all are quiet.
    pub(crate) fn settle(&mut self) {
        let now = self.now;
        loop {
            let before = self.seen.len();
            let mut out = Vec::new();
            while let Some(side) = self.home.poll_transmit(&mut out) {
                let packet = take(&mut out);
                if side == Side::Routed && to(&packet) == FOREIGN {
                    let _ = self.foreign.handle_packet(now, Side::Routed, &packet);
                }
                self.seen.push((Part::Home, side, packet));
            }
            while let Some(side) = self.foreign.poll_transmit(&mut out) {
                let packet = take(&mut out);
                if side == Side::Routed && to(&packet) == HOME_AGENT {
                    let _ = self.home.handle_packet(now, Side::Routed, &packet);
                }
                if [HOST, Side::Link(LinkAddress::BROADCAST)].contains(&side) {
                    let _ = self.host.handle_packet(now, AGENT, &packet);
                }
                self.seen.push((Part::Foreign, side, packet));
            }
            while let Some(side) = self.host.poll_transmit(&mut out) {
                let packet = take(&mut out);
                if [AGENT, Side::Link(LinkAddress::BROADCAST)].contains(&side) {
                    let _ = self.foreign.handle_packet(now, HOST, &packet);
                }
                self.seen.push((Part::Host, side, packet));
            }
            if self.seen.len() == before {
                return;
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        loop {
            let due = [self.home.poll_timeout(), self.foreign.poll_timeout(), self.host.poll_timeout()];
            let Some(at) = due.into_iter().flatten().map(|d| d.at).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = at.max(self.now);
            self.home.handle_timeout(self.now);
            self.foreign.handle_timeout(self.now);
            self.host.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }

    /// Where the foreign agent hands out what is sent to a host.
    pub(crate) fn reaches(&mut self, home: Ipv4Addr) -> Vec<Side> {
        self.seen.clear();
        let packet = data(STRANGER, home, 100);
        let _ = self.home.handle_packet(self.now, Side::Routed, &packet);
        self.settle();
        let handed = |(by, side, sent): &(Part, Side, Vec<u8>)| {
            (*by == Part::Foreign && *side != Side::Routed && to(sent) == home).then_some(*side)
        };
        self.seen.iter().filter_map(handed).collect()
    }

    /// A host that is made by hand registers from this link address.
    pub(crate) fn register(&mut self, home: Ipv4Addr, from: Side, flags: u8) -> u64 {
        let id = self.id();
        let asked = Request { flags, ..asked(home, id) };
        let bytes = self.request(asked);
        self.foreign.handle_packet(self.now, from, &bytes).expect("taken");
        self.settle();
        id
    }

    /// The packet of a request, signed with what the foreign agent wants.
    pub(crate) fn request(&self, asked: Request) -> Vec<u8> {
        let keys = [(kind::MOBILE_HOME, MH), (kind::MOBILE_FOREIGN, MF)];
        let mut bytes = packet(asked.home, FOREIGN, &message(Message::Request(asked), &keys));
        set_hop_limit(&mut bytes, 255);
        bytes
    }

    /// The last packet that a part has sent to this port.
    pub(crate) fn last_message(&self, by: Part) -> Vec<u8> {
        let is = |bytes: &[u8]| {
            Ipv4::parse(bytes)
                .is_ok_and(|ip| ip.protocol() == 17 && ip.payload().get(2..4) == Some(&PORT.to_be_bytes()))
        };
        let found = self.seen.iter().rev().find(|(p, _, bytes)| *p == by && is(bytes));
        found.expect("a message").2.clone()
    }
}

pub(crate) fn to(packet: &[u8]) -> Ipv4Addr {
    Ipv4::parse(packet).expect("a packet").dst()
}
