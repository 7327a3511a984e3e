//! The program of a home agent, a foreign agent or a mobile host: the core of `dormouse-mobileip` between a TUN interface and packet
//! sockets. Owns descriptors and the wall clock; decides nothing.
//!
//! It needs `CAP_NET_ADMIN` and `CAP_NET_RAW` until both are open, and then becomes the user that it was told to, without any right. What
//! happens goes to standard output, a line each; a client of its control socket gets its state as JSON.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_io::clock::{BootClock, unix_now_precise};
use dormouse_io::entropy::OsEntropy;
use dormouse_io::link::LinkSocket;
use dormouse_io::netlink::{Monitor, Netlink};
use dormouse_io::poller::{Interest, Poller};
use dormouse_io::privileges;
use dormouse_io::signal::{Signal, Signals};
use dormouse_io::timer::Timer;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_mobileip::{
    Advertise, AgentConfig, Association, Authenticator, CoLocated, ForeignAgent, ForeignConfig, ForeignEvent,
    HomeAgent, HomeConfig, LinkAddress, Member, MobileConfig, MobileEvent, MobileHost, Replay, Reverse, Side,
    TUNNEL_HEADER, WallClock,
};
use dormouse_sansio::{Deadline, Instant};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::radio::{Radio, Sending};
use super::telling::{AccessRouter, Telling};

/// Bytes of a packet at most, on every link.
const MTU: u16 = 1_500;
/// Packets taken from one descriptor before the others have a turn.
const BUDGET: usize = 64;
/// Registrations that a mobile host tells of.
const REGISTRATIONS: usize = 64;

const TUN: u64 = 0;
const TIMER: u64 = 1;
const SIGNALS: u64 = 2;
const CONTROL: u64 = 3;
const MONITOR: u64 = 4;
/// The first link.
const LINKS: u64 = 16;

/// What a program is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its part.
    pub role: Role,
    /// Its TUN interface, which it makes.
    pub tun: String,
    /// Interfaces of its links, without IP addresses; of a mobile host the one that is up is where it is.
    pub links: Vec<String>,
    /// Where its control socket is.
    pub control: PathBuf,
    /// Whom it becomes.
    pub user: String,
    /// How long registrations last, in seconds.
    pub lifetime: u16,
    /// Time between advertisements, in milliseconds.
    pub interval: u32,
    /// What the named links are like for what it sends; without, they are perfect.
    #[serde(default)]
    pub radio: Option<(Radio, Vec<String>)>,
}

/// A part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it, as in the configurations of the cores")]
pub enum Role {
    Home {
        address: Ipv4Addr,
        network: String,
        mobiles: Vec<Shared>,
        foreign: Vec<Shared>,
    },
    Foreign {
        address: Ipv4Addr,
        mobiles: Vec<Shared>,
        home_agents: Vec<Shared>,
        #[serde(default)]
        router: Option<AccessRouter>,
    },
    Mobile {
        home: Ipv4Addr,
        home_agent: Shared,
        foreign: Vec<Shared>,
        /// Addresses of its own, by link: there it needs no foreign agent.
        #[serde(default)]
        own: BTreeMap<String, OwnAddress>,
    },
}

/// An address of a mobile host's own in a network where it can be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OwnAddress {
    /// The address, which is its care-of address there.
    pub address: Ipv4Addr,
    /// The link address of that network's router.
    pub router: [u8; 6],
}

/// What this part shares with another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shared {
    /// The other's address.
    pub with: Ipv4Addr,
    /// The association's name.
    pub spi: u32,
    /// The key; hexadecimal in the file.
    #[serde(with = "hexadecimal")]
    pub key: Secret,
}

mod hexadecimal {
    use dormouse_crypto::Secret;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(key: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&Zeroizing::new(hex::encode(key.as_bytes())))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Secret, D::Error> {
        let text = Zeroizing::new(String::deserialize(from)?);
        hex::decode(&*text).map(Secret::from).map_err(D::Error::custom)
    }
}

enum Part {
    Home(Box<HomeAgent>),
    Foreign(Box<ForeignAgent>),
    Mobile(Box<MobileHost>),
}

/// Runs the part that the file describes, until a signal ends it.
///
/// # Errors
/// If it cannot begin, or a descriptor fails.
pub fn run(file: &Path) -> Result<()> {
    let text = Zeroizing::new(std::fs::read(file).with_context(|| file.display().to_string())?);
    Driver::new(serde_json::from_slice(&text)?)?.run()
}

struct Driver {
    part: Part,
    /// Of a foreign agent beside an access router.
    router: Option<Telling>,
    /// Of a mobile host: its own addresses, by link.
    own: BTreeMap<String, OwnAddress>,
    tun: Tun,
    links: Vec<(String, LinkSocket)>,
    /// What is on its way over the links that are a radio.
    sending: Sending,
    /// The link that works; a mobile host is on it.
    on: Option<usize>,
    monitor: Monitor,
    netlink: Netlink,
    poller: Poller,
    timer: Timer,
    signals: Signals,
    control: UnixListener,
    /// The last registrations of a mobile host.
    registrations: VecDeque<Registration>,
}

/// A registration of a mobile host.
struct Registration {
    care_of: Ipv4Addr,
    /// When the reply came.
    at: Instant,
    /// From the first request to it.
    took: Duration,
}

fn associations(list: &[Shared]) -> BTreeMap<Ipv4Addr, Association> {
    let authenticator = Authenticator::HmacSha256;
    let one = |s: &Shared| (s.with, Association { spi: s.spi, key: s.key.clone(), authenticator });
    list.iter().map(one).collect()
}

fn part(node: &Node) -> Result<Part> {
    let (now, unix) = (BootClock::now(), unix_now_precise());
    let clock = WallClock { at: now, unix };
    let interval = Duration::from_millis(node.interval.max(10).into());
    let advertise = Advertise { interval, lifetime: node.lifetime };
    let (reverse, width, random) = (Reverse::Offered, MTU, Box::new(OsEntropy));
    let agent = |address| AgentConfig { address, advertise, reverse, width };
    Ok(match &node.role {
        Role::Home { address, network, mobiles, foreign } => {
            let members = associations(mobiles).into_iter();
            let members =
                members.map(|(a, association)| (a, Member { association, replay: Replay::default() }));
            let config = HomeConfig {
                agent: agent(*address),
                network: network.parse().context("the home network")?,
                members: members.collect(),
                foreign: associations(foreign),
            };
            Part::Home(Box::new(HomeAgent::new(now, config, clock, random)))
        }
        Role::Foreign { address, mobiles, home_agents, router: _ } => {
            let (mobiles, home_agents) = (associations(mobiles), associations(home_agents));
            let config = ForeignConfig { agent: agent(*address), home_agents, mobiles };
            Part::Foreign(Box::new(ForeignAgent::new(now, config, random)))
        }
        Role::Mobile { home, home_agent, foreign, own: _ } => {
            let Some((home_agent, association)) = associations(std::slice::from_ref(home_agent)).pop_first()
            else {
                bail!("a mobile host has a home agent");
            };
            let config = MobileConfig {
                home: *home,
                home_agent,
                association,
                replay: Replay::default(),
                foreign: associations(foreign),
                lifetime: node.lifetime,
                reverse: true,
                sent_after: 5,
                width,
            };
            Part::Mobile(Box::new(MobileHost::new(config, clock, random)))
        }
    })
}

impl Driver {
    fn new(node: Node) -> Result<Self> {
        let signals = Signals::new()?;
        let part = part(&node)?;
        // What leaves by the interface of an agent is encapsulated: the kernel tells senders what fits.
        let mtu = if matches!(part, Part::Foreign(_)) { MTU } else { MTU - TUNNEL_HEADER };
        let options =
            TunOptions { name: Some(node.tun.clone()), mtu, offload: false, ..TunOptions::default() };
        let tun = Tun::open(&options)?;
        let open = |name: &String| LinkSocket::open(name).map(|socket| (name.clone(), socket));
        let links = node.links.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let (monitor, netlink) = (Monitor::new()?, Netlink::new()?);
        let control =
            UnixListener::bind(&node.control).with_context(|| node.control.display().to_string())?;
        control.set_nonblocking(true)?;
        if let Some(account) = privileges::find_user(&node.user)? {
            privileges::drop_to(&account)?;
            privileges::drop_capabilities()?;
        }
        // With the rights of now: the daemon takes what members of its group say.
        let (router, own) = match node.role {
            Role::Foreign { router: Some(router), .. } => (Some(Telling::start(router)?), BTreeMap::new()),
            Role::Mobile { own, .. } => (None, own),
            Role::Foreign { router: None, .. } | Role::Home { .. } => (None, BTreeMap::new()),
        };
        let (poller, timer) = (Poller::new()?, Timer::new()?);
        poller.add(&tun, TUN, Interest::READ)?;
        poller.add(&timer, TIMER, Interest::READ)?;
        poller.add(&signals, SIGNALS, Interest::READ)?;
        poller.add(&control, CONTROL, Interest::READ)?;
        poller.add(&monitor, MONITOR, Interest::READ)?;
        for (n, (_, socket)) in links.iter().enumerate() {
            poller.add(socket, LINKS + n as u64, Interest::READ)?;
        }
        let registrations = VecDeque::new();
        let sending = Sending::new(node.radio.as_ref(), &node.links);
        Ok(Self {
            part,
            router,
            own,
            tun,
            links,
            sending,
            on: None,
            monitor,
            netlink,
            poller,
            timer,
            signals,
            control,
            registrations,
        })
    }

    fn run(mut self) -> Result<()> {
        say("ready");
        let (mut ready, mut buffer) = (Vec::new(), vec![0; usize::from(u16::MAX)]);
        self.look()?;
        self.carry();
        loop {
            self.timer
                .arm(Deadline::earlier(self.part.poll_timeout(), self.sending.poll_timeout()), false)?;
            self.poller.wait(&mut ready, None)?;
            for one in &ready {
                match one.token {
                    TUN => self.read_tun(&mut buffer)?,
                    TIMER => _ = self.timer.clear(),
                    SIGNALS => {
                        while let Some(signal) = self.signals.next()? {
                            if signal == Signal::Stop {
                                return Ok(());
                            }
                        }
                    }
                    CONTROL => self.tell(),
                    MONITOR => self.changed()?,
                    token => self.read_link((token - LINKS) as usize, &mut buffer)?,
                }
            }
            self.part.handle_timeout(BootClock::now());
            self.carry();
        }
    }

    fn read_tun(&mut self, buffer: &mut [u8]) -> Result<()> {
        for _ in 0..BUDGET {
            match self.tun.read(buffer) {
                Ok(n) => {
                    self.part.handle(BootClock::now(), Side::Routed, buffer.get(..n).unwrap_or_default())
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e).context("reading from the TUN interface"),
            }
            self.carry();
        }
        Ok(())
    }

    fn read_link(&mut self, n: usize, buffer: &mut [u8]) -> Result<()> {
        for _ in 0..BUDGET {
            let Some((name, socket)) = self.links.get(n) else { return Ok(()) };
            match socket.receive(buffer) {
                // A host that has moved away hears nothing from where it was.
                Ok(_) if self.on != Some(n) => {}
                Ok((length, from)) => {
                    let packet = buffer.get(..length).unwrap_or_default();
                    self.part.handle(BootClock::now(), Side::Link(LinkAddress(from)), packet);
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock) => break,
                // Told once when the interface goes down; the monitor says when it is up again.
                Err(e) if e.kind() == ErrorKind::NetworkDown => {}
                Err(e) => return Err(e).with_context(|| format!("reading from {name}")),
            }
            self.carry();
        }
        Ok(())
    }

    /// The kernel says that something about its interfaces has changed.
    fn changed(&mut self) -> Result<()> {
        while self.monitor.next()?.is_some() {}
        self.look()
    }

    /// Sees which link works.
    fn look(&mut self) -> Result<()> {
        let there = self.netlink.links()?;
        let works = |index| there.iter().any(|l| l.index == index && l.up && l.carrier);
        let works: Vec<bool> = self.links.iter().map(|(_, socket)| works(socket.index())).collect();
        let is = |n: usize| works.get(n).copied().unwrap_or(false);
        if self.on.is_some_and(is) {
            return Ok(());
        }
        let on = (0..works.len()).find(|n| is(*n));
        if on == self.on {
            return Ok(());
        }
        self.on.into_iter().for_each(|n| self.sending.leave(n));
        self.on = on;
        let name = on.and_then(|n| self.links.get(n)).map(|(name, _)| name.as_str());
        say(&format!("link: {}", name.unwrap_or("none")));
        let own = name.and_then(|name| self.own.get(name));
        let own = own.map(|own| CoLocated { address: own.address, router: LinkAddress(own.router) });
        let now = BootClock::now();
        match (&mut self.part, on) {
            (Part::Mobile(host), Some(_)) => host.attach(now, own),
            (Part::Mobile(host), None) => host.detach(),
            (Part::Home(agent), Some(_)) => agent.handle_arrival(now),
            (Part::Foreign(agent), Some(_)) => agent.handle_arrival(now),
            (_, None) => {}
        }
        Ok(())
    }

    /// Carries out what the core wants.
    fn carry(&mut self) {
        let mut packet = Vec::new();
        for event in self.part.events() {
            match (event.1, &self.router) {
                (Event::Registered { care_of, took }, _) => {
                    self.registrations.truncate(REGISTRATIONS - 1);
                    self.registrations.push_front(Registration { care_of, at: BootClock::now(), took });
                }
                (Event::AtForeign(event), Some(router)) => router.note(&event),
                _ => {}
            }
            say(&event.0);
        }
        while let Some(side) = self.part.poll_transmit(&mut packet) {
            // What an interface does not take is lost, as on any link.
            let _ = match side {
                Side::Routed => self.tun.write(&[IoSlice::new(&packet)]),
                Side::Link(LinkAddress(to)) => {
                    let n = self.on.unwrap_or(0);
                    self.sending.put(BootClock::now(), n, to, std::mem::take(&mut packet));
                    Ok(())
                }
            };
            packet.clear();
        }
        while let Some((n, to, packet)) = self.sending.poll(BootClock::now()) {
            let _ = self.links.get(n).map_or(Ok(()), |(_, socket)| socket.send(to, &packet));
        }
    }

    /// Answers with the state. A reader that does not read loses it: nothing here waits.
    fn tell(&self) {
        while let Ok((mut stream, _)) = self.control.accept() {
            let state = self.state().to_string();
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(state.as_bytes()));
        }
    }

    fn state(&self) -> Value {
        let mut state = self.part_state();
        if let Some(stats) = self.sending.stats() {
            state["radio"] = json!({ "sent": stats.offered, "lost": stats.lost + stats.corrupted });
        }
        state
    }

    fn part_state(&self) -> Value {
        match &self.part {
            Part::Home(agent) => json!({
                "bindings": agent.members().map(|home| {
                    let care_of: Vec<_> = agent.bindings(home).collect();
                    json!({ "home": home, "care_of": care_of })
                }).collect::<Vec<_>>(),
                "accepted": agent.stats().accepted, "refused": agent.stats().refused,
                "forged": agent.stats().forged, "tunnelled": agent.stats().tunnelled,
                "returned": agent.stats().returned,
            }),
            Part::Foreign(agent) => json!({
                "visitors": agent.visitors().collect::<Vec<_>>(),
                "relayed": agent.stats().relayed, "refused": agent.stats().refused,
                "forged": agent.stats().forged, "delivered": agent.stats().delivered,
                "returned": agent.stats().returned, "sent_after": agent.stats().sent_after,
            }),
            Part::Mobile(host) => json!({
                "link": self.on.and_then(|n| self.links.get(n)).map(|(name, _)| name),
                "agent": host.current().map(|c| c.agent), "care_of": host.current().map(|c| c.care_of),
                "asked": host.stats().asked, "registered": host.stats().registered,
                "refused": host.stats().refused, "forged": host.stats().forged,
                "unsent": host.stats().unsent, "received": host.stats().received,
                "registrations": self.registrations.iter().rev().map(|r| {
                    // Since the machine began to run: when it was accepted.
                    let took = u64::try_from(r.took.as_nanos()).unwrap_or(u64::MAX);
                    json!({ "care_of": r.care_of, "nanoseconds": took, "at": r.at.as_nanos() })
                }).collect::<Vec<_>>(),
            }),
        }
    }
}

/// What of an event the driver itself needs, beside the words for it.
enum Event {
    Registered { care_of: Ipv4Addr, took: Duration },
    AtForeign(ForeignEvent),
    Other,
}

impl Part {
    fn handle(&mut self, now: Instant, side: Side, packet: &[u8]) {
        // What a core discards it counts; a line for each would let a neighbour fill the disk.
        let _ = match self {
            Self::Home(agent) => agent.handle_packet(now, side, packet),
            Self::Foreign(agent) => agent.handle_packet(now, side, packet),
            Self::Mobile(host) => host.handle_packet(now, side, packet),
        };
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Home(agent) => agent.handle_timeout(now),
            Self::Foreign(agent) => agent.handle_timeout(now),
            Self::Mobile(host) => host.handle_timeout(now),
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::Home(agent) => agent.poll_timeout(),
            Self::Foreign(agent) => agent.poll_timeout(),
            Self::Mobile(host) => host.poll_timeout(),
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Side> {
        match self {
            Self::Home(agent) => agent.poll_transmit(out),
            Self::Foreign(agent) => agent.poll_transmit(out),
            Self::Mobile(host) => host.poll_transmit(out),
        }
    }

    fn events(&mut self) -> Vec<(String, Event)> {
        let mut events = Vec::new();
        loop {
            events.push(match self {
                Self::Home(agent) => agent.poll_event().map(|e| (format!("{e:?}"), Event::Other)),
                Self::Foreign(agent) => agent.poll_event().map(|e| (format!("{e:?}"), Event::AtForeign(e))),
                Self::Mobile(host) => host.poll_event().map(|e| match e {
                    MobileEvent::Registered { care_of, took, .. } => {
                        (format!("{e:?}"), Event::Registered { care_of, took })
                    }
                    e => (format!("{e:?}"), Event::Other),
                }),
            });
            if events.last().is_some_and(Option::is_none) {
                return events.into_iter().flatten().collect();
            }
        }
    }
}

/// A line for who reads the log.
pub(super) fn say(text: &str) {
    let time = Duration::from_nanos(BootClock::now().as_nanos());
    let mut out = std::io::stdout().lock();
    // A log that cannot be written stops nothing.
    let _ = writeln!(out, "{:.6} {text}", time.as_secs_f64()).and_then(|()| out.flush());
}

/// Asks a program for its state.
///
/// # Errors
/// If it does not answer.
pub fn state(control: &Path) -> Result<Value> {
    use std::io::Read as _;
    let mut stream = std::os::unix::net::UnixStream::connect(control)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    if text.is_empty() {
        bail!("no answer");
    }
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hexadecimal_in_the_file_and_hidden_elsewhere() {
        let shared = Shared { with: Ipv4Addr::LOCALHOST, spi: 300, key: Secret::from([0xab; 4]) };
        let text = serde_json::to_string(&shared).expect("text");
        assert_eq!(text, r#"{"with":"127.0.0.1","spi":300,"key":"abababab"}"#);
        let again: Shared = serde_json::from_str(&text).expect("the same");
        assert_eq!(again.key.as_bytes(), [0xab; 4]);
        assert!(!format!("{again:?}").contains("ab") && !format!("{again:?}").contains("171"));
        assert!(serde_json::from_str::<Shared>(&text.replace("abab", "quak")).is_err());
    }
}
