//! Handoffs by Mobile IP while a file goes to the device by TCP, in zones: beside each foreign agent stands an access router that ships, which gets header keys
//! from the device's gateway or from the router before. Handoffs in the middle of rekeyings, two in one round trip, agents and routers that die, key
//! distributions that are lost, a bad radio. Nothing is in clear on any link, no router changes a packet, no nonce of ESP comes twice with other bytes, the file comes whole; and once the faults have
//! stopped, the routers that are near have keys, and no others. What is drawn follows from a seed, which every failure names: `DORMOUSE_SEED=S` plays that
//! one alone, `DORMOUSE_STORIES=N` more of them (at most 10,000).

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_mobileip::{
    Advertise, AgentConfig, Association, Authenticator, ForeignConfig, HomeConfig, Member, MobileConfig,
    Replay, Reverse,
};
use dormouse_netem::LinkConfig;
use dormouse_node::Rekey;
use dormouse_node::config::access_router::{Repair, Router};
use dormouse_sansio::{Entropy, Seeded};
use dormouse_sim::mobile::hosts::{Hosts, Setup, router_beside};
use dormouse_sim::mobile::{CORRESPONDENT, Mobile, Place, clock};
use dormouse_sim::rekey_peers;
use dormouse_wire::ip::{Ipv4, protocol};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tcp::{Receiver, Sender};

#[path = "router/tcp.rs"]
mod tcp;

const HOME: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
/// Foreign agents, in a row.
const AGENTS: usize = 3;
/// Behind the gateway.
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
/// In every segment of the file.
const SECRET: &[u8] = b"for the ends alone";
/// In bytes.
const FILE: usize = 1_500_000;
/// Of the radios, in 1,000 bits in a second.
const RATE: u32 = 2_000;
/// How often the ends look for what has come.
const TICK: Duration = Duration::from_millis(2);
/// Of a packet of ESP, so many bytes show whether it is another one: a compromised router alters none of them.
const HEADERS: usize = 64;
/// Virtual time in which all must be well again.
const PATIENCE: Duration = Duration::from_secs(300);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How header keys come to the routers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    /// Before the device, from the gateway (Proactive Key Distribution).
    Ahead,
    /// From the router where it was before (Directed Key Migration).
    Moved,
}

/// What of a packet is ESP, in IP tunnels or UDP as it may be.
fn esp(ip: Ipv4<'_>) -> Option<&[u8]> {
    const PORT: [u8; 2] = 4_500_u16.to_be_bytes();
    let payload = ip.payload();
    match ip.protocol() {
        protocol::IPV4 => esp(Ipv4::parse(payload).ok()?),
        protocol::ESP => Some(payload),
        // Behind the UDP header messages of IKE begin with four zeros (RFC 3948 section 2.2).
        protocol::UDP if payload.get(..2)? == PORT || payload.get(2..4)? == PORT => {
            payload.get(8..).filter(|content| content.get(..4).is_some_and(|spi| spi != [0; 4]))
        }
        _ => None,
    }
}

/// The same in every run.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_STORIES").map_or(count, |stories| stories.clamp(count, 10_000)),
    }
}

fn agent(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 51 + n as u8, 0, 1)
}

fn router(n: usize) -> Ipv4Addr {
    router_beside(agent(n))
}

/// The agents next to this one.
fn beside(n: usize) -> impl Iterator<Item = usize> {
    (0..AGENTS).filter(move |other| other.abs_diff(n) == 1)
}

fn parts(seed: u64) -> Mobile {
    let shared = |n: usize| Association {
        spi: 256 + n as u32,
        key: Secret::from([n as u8; 16]),
        authenticator: Authenticator::HmacSha256,
    };
    let of = |address| {
        let (advertise, reverse) = (Advertise::default(), Reverse::Offered);
        AgentConfig { address, advertise, reverse, width: 1_500 }
    };
    let replay = Replay::default();
    let all = || 0..AGENTS;
    let home = HomeConfig {
        agent: of(HOME_AGENT),
        network: "10.50.0.0/24".parse().expect("a network"),
        members: BTreeMap::from([(HOME, Member { association: shared(1), replay })]),
        foreign: all().map(|n| (agent(n), shared(10 + n))).collect(),
    };
    let foreign = all().map(|n| ForeignConfig {
        agent: of(agent(n)),
        home_agents: BTreeMap::from([(HOME_AGENT, shared(10 + n))]),
        mobiles: BTreeMap::from([(HOME, shared(20 + n))]),
    });
    let host = MobileConfig {
        home: HOME,
        home_agent: HOME_AGENT,
        association: shared(1),
        replay,
        foreign: all().map(|n| (agent(n), shared(20 + n))).collect(),
        lifetime: 60,
        reverse: seed % 4 < 2,
        sent_after: 5,
        width: 1_500,
    };
    let wire = LinkConfig { delay: ms(10), ..LinkConfig::default() };
    let radio = LinkConfig { delay: ms(2), rate: Some(u64::from(RATE) * 1_000), ..LinkConfig::default() };
    Mobile::new(seed, (wire, radio), home, foreign.collect(), host, clock(Duration::ZERO))
}

fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a secret of the simulation\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}.sim\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}.sim\"\n{secret}\n"
    )
}

/// `bare`: ESP travels as protocol 50, not in UDP.
fn device_setup(bare: bool) -> Setup {
    let way = if bare { "nat" } else { "auto" };
    let file = format!("[connection.office]\nrole = \"client\"\ngateway = \"{CORRESPONDENT}\"\n")
        + &auth("office", "device", "gateway")
        + "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\nprotection = \"zoned\"\n"
        + &format!("[connection.office.ike]\nesp_in_udp = \"{way}\"\n");
    Setup { file, gateways: BTreeMap::from([("office".to_owned(), CORRESPONDENT.into())]) }
}

fn gateway_setup(keys: Keys, bare: bool) -> Setup {
    let way = if bare { "nat" } else { "auto" };
    let mut file = "[connection.office]\nrole = \"gateway\"\n".to_owned()
        + &auth("office", "gateway", "device")
        + "[connection.office.pool]\naddresses = [\"10.55.0.0/16\"]\n"
        + &format!("[connection.office.ike]\nesp_in_udp = \"{way}\"\n")
        + "[connection.office.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\nprotection = \"zoned\"\n"
        + "[connection.office.child.zones]\nrouters = [\"r0.sim\", \"r1.sim\", \"r2.sim\"]\n"
        + &format!("ahead = {}\n", keys == Keys::Ahead);
    for n in 0..AGENTS {
        file +=
            &format!("[connection.r{n}]\nrole = \"gateway\"\n[connection.r{n}.keys]\npeer = \"router\"\n");
        if keys == Keys::Ahead {
            let next = beside(n).map(|n| format!("\"r{n}.sim\"")).collect::<Vec<_>>().join(", ");
            file += &format!("neighbours = [{next}]\n");
        }
        file += &auth(&format!("r{n}"), "gateway", &format!("r{n}"));
    }
    Setup { file, gateways: BTreeMap::new() }
}

fn router_setup(n: usize, keys: Keys) -> Setup {
    let mut gateways = BTreeMap::from([("gw".to_owned(), IpAddr::from(CORRESPONDENT))]);
    let mut file =
        format!("[connection.gw]\nrole = \"client\"\ngateway = \"{CORRESPONDENT}\"\nauto = true\n")
            + "[connection.gw.keys]\npeer = \"gateway\"\n"
            + &auth("gw", &format!("r{n}"), "gateway");
    for next in beside(n).filter(|_| keys == Keys::Moved) {
        let role = if next > n {
            "role = \"gateway\"\n".to_owned()
        } else {
            gateways.insert(format!("r{next}"), router(next).into());
            format!("role = \"client\"\ngateway = \"{}\"\nauto = true\n", router(next))
        };
        file += &format!("[connection.r{next}]\n{role}[connection.r{next}.keys]\npeer = \"router\"\n");
        file += &auth(&format!("r{next}"), &format!("r{n}"), &format!("r{next}"));
    }
    Setup { file, gateways }
}

struct Scene {
    world: Mobile,
    keys: Keys,
    /// Where the device is.
    at: usize,
    inner: IpAddr,
    /// Half of what goes to this address, or comes from it, is lost.
    cut_off: Arc<Mutex<Option<Ipv4Addr>>>,
    file: Vec<u8>,
    sender: Sender,
    receiver: Receiver,
    /// Numbered packets that were sent each way.
    numbered: u64,
}

impl Scene {
    /// The device is at the first agent, and its session is up.
    fn new(seed: u64, keys: Keys, bare: bool) -> Self {
        let mut world = parts(seed);
        let section =
            Router { device: "mip0".into(), network: "eth0".into(), repair: Repair::Snoop, rate_kbit: RATE };
        let name = |n: usize| -> Identity { format!("r{n}.sim").parse().expect("a name") };
        let routers = (0..AGENTS).map(|n| (name(n), router_setup(n, keys))).collect();
        world.protect(&device_setup(bare), &gateway_setup(keys, bare), routers, section);
        let cut_off: Arc<Mutex<Option<Ipv4Addr>>> = Arc::default();
        let (cut, mut draw) = (cut_off.clone(), Seeded::new(seed ^ 0xc07));
        let mut sealed = BTreeMap::new();
        world.thief = Some(Box::new(move |packet, _| {
            assert!(memchr::memmem::find(packet, SECRET).is_none(), "in clear; seed {seed}");
            let Ok(ip) = Ipv4::parse(packet) else { return false };
            if let Some(esp) = esp(ip).filter(|esp| esp.len() >= 16) {
                let (nonce, digest) =
                    ([&esp[..4], &esp[8..16]].concat(), hash(esp.get(..HEADERS).unwrap_or(esp)));
                let before = *sealed.entry(nonce).or_insert(digest);
                assert_eq!(before, digest, "a nonce comes again with other bytes; seed {seed}");
            }
            let cut = *cut.lock().expect("no test has panicked");
            cut.is_some_and(|of| [ip.src(), ip.dst()].contains(&of)) && draw.below(2) == 0
        }));
        world.run(Duration::from_secs(5));
        world.go(Some(Place::Foreign(0)));
        world.run(Duration::from_secs(2));
        let now = world.now;
        world.hosts().device.with(now, |host| assert!(host.up(now, "office")));
        world.run(Duration::from_secs(5));
        let inner = world.hosts().device.inner.first().copied().expect("an address inside");
        let mut draw = Seeded::new(seed ^ 0xf11e);
        let mut file: Vec<u8> = (0..FILE).map(|_| draw.below(256) as u8).collect();
        let parts = file.chunks_mut(256).filter(|part| part.len() > SECRET.len());
        parts.for_each(|part| part[..SECRET.len()].copy_from_slice(SECRET));
        let (server, device) = (SocketAddr::new(SERVER, 80), SocketAddr::new(inner, 40_000));
        let sender = Sender::new([server, device], file.clone());
        let receiver = Receiver::new([device, server]);
        Self { world, keys, at: 0, inner, cut_off, file, sender, receiver, numbered: 0 }
    }

    fn go(&mut self, at: usize) {
        self.at = at;
        self.world.go(Some(Place::Foreign(at)));
    }

    /// The file goes on for so long.
    fn carry(&mut self, time: Duration) {
        let end = self.world.now + time;
        while self.world.now < end {
            let now = self.world.now;
            let Hosts { device, gateway, .. } = self.world.hosts();
            let mut out = Vec::new();
            for packet in gateway.inside.replace(Vec::new()).unwrap_or_default() {
                out.extend(self.sender.take(now, &packet));
            }
            out.extend(std::iter::from_fn(|| self.sender.poll(now)));
            out.into_iter().for_each(|packet| gateway.forward(now, packet));
            for packet in device.inside.replace(Vec::new()).unwrap_or_default() {
                let acknowledgement = self.receiver.take(&packet);
                acknowledgement.into_iter().for_each(|packet| device.forward(now, packet));
            }
            self.world.run(TICK);
        }
    }

    /// The rest of the file goes.
    fn finish(&mut self, seed: u64) {
        let end = self.world.now + PATIENCE;
        while !self.sender.is_done() {
            let come = self.receiver.data.len();
            assert!(self.world.now < end, "{come} of {FILE} bytes have come; seed {seed}, {:?}", self.keys);
            self.carry(ms(20));
        }
        assert!(self.receiver.data == self.file, "the file is another one; seed {seed}");
    }

    /// What happens to a world.
    fn disturb(&mut self, draw: &mut Seeded) {
        let next: Vec<usize> = beside(self.at).collect();
        let next = next[draw.below(next.len() as u64) as usize];
        match draw.below(6) {
            0 => {
                let now = self.world.now;
                let gateway = &mut self.world.hosts().gateway;
                gateway.with(now, |host| rekey_peers(now, host.node_mut(), Rekey::Children));
                self.carry(ms(draw.below(60)));
                self.go(next);
            }
            1 => {
                // A registration takes 44 ms, besides finding the agent.
                let here = self.at;
                self.go(next);
                self.carry(ms(draw.below(40)));
                let on = beside(next).find(|on| *on != here).filter(|_| draw.below(2) == 0);
                self.go(on.unwrap_or(here));
            }
            2 => {
                let dies = [self.at, next][draw.below(2) as usize];
                let (agent_dies, router_dies) =
                    [(true, false), (false, true), (true, true)][draw.below(3) as usize];
                if agent_dies {
                    self.world.crash(dies);
                }
                if router_dies {
                    self.world.kill_router(dies);
                }
                if draw.below(2) == 0 {
                    self.go(next);
                }
                self.carry(ms(draw.below(3_000)));
                if agent_dies {
                    self.world.restart(dies);
                }
                if router_dies {
                    self.world.restart_router(dies);
                }
            }
            3 => {
                // The router's keys, and all else that it says or hears.
                *self.cut_off.lock().expect("no test has panicked") = Some(router(next));
                self.go(next);
                self.carry(ms(2_000));
                *self.cut_off.lock().expect("no test has panicked") = None;
            }
            4 => {
                self.world.set_loss(0.2);
                self.go(next);
                self.carry(ms(1_000));
                self.world.heal();
            }
            _ => self.go(next),
        }
    }

    /// One numbered packet goes each way in every 100 ms of a second.
    fn talk(&mut self) {
        for _ in 0..10 {
            let (now, inner, number) = (self.world.now, self.inner, self.numbered);
            self.numbered += 1;
            let Hosts { device, gateway, .. } = self.world.hosts();
            device.send(now, inner, SERVER, number);
            gateway.send(now, SERVER, inner, number);
            self.world.run(ms(100));
        }
    }

    /// Of how many SAs each router has keys.
    fn held(&mut self) -> [usize; AGENTS] {
        let hosts = self.world.hosts();
        std::array::from_fn(|n| hosts.info(n).keys.len())
    }

    /// The routers that are near have keys of one SA, and no others of any.
    fn is_right(&mut self) -> bool {
        let (at, ahead) = (self.at, self.keys == Keys::Ahead);
        let near = |n: usize| n == at || ahead && n.abs_diff(at) == 1;
        self.held() == std::array::from_fn(|n| usize::from(near(n)))
    }

    /// The faults have stopped: keys come to where they belong, go from everywhere else, and read what passes; and all packets arrive.
    fn settle(&mut self, seed: u64) {
        let end = self.world.now + PATIENCE;
        let (mut right, at) = (0, self.at);
        let story = format!("seed {seed}, {:?}, the device is at {at}", self.keys);
        while right < 5 {
            assert!(self.world.now < end, "{story}: keys are {:?}", self.held());
            let before = self.world.hosts().info(at).zones.opened;
            self.talk();
            // Of the twenty packets of a second most.
            let read = self.world.hosts().info(at).zones.opened.saturating_sub(before) >= 15;
            right = if read && self.is_right() { right + 1 } else { 0 };
        }
        let arrived = |world: &mut Mobile| {
            let Hosts { device, gateway, .. } = world.hosts();
            [&device.received, &gateway.received].map(Vec::len)
        };
        let before = arrived(&mut self.world);
        (0..3).for_each(|_| self.talk());
        self.world.run(Duration::from_secs(1));
        let after = arrived(&mut self.world);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [30, 30], "seed {seed}");
    }
}

#[test]
fn a_file_comes_whole_and_keys_follow_through_every_fault() {
    let (mut sent_after, mut opened) = (0, 0);
    for seed in seeds(8) {
        let (keys, bare) = ([Keys::Ahead, Keys::Moved][seed as usize % 2], seed.is_multiple_of(3));
        println!("seed {seed}, keys {keys:?}, bare {bare}");
        let mut scene = Scene::new(seed, keys, bare);
        let mut draw = Seeded::new(seed);
        for _ in 0..8 {
            scene.disturb(&mut draw);
            scene.carry(ms(50 * (1 + draw.below(30))));
        }
        scene.finish(seed);
        println!("sent again: {:?}", scene.sender.again);
        scene.settle(seed);
        assert_eq!(scene.world.hosts().strange, 0, "seed {seed}");
        sent_after += scene.world.foreign.iter().flatten().map(|agent| agent.stats().sent_after).sum::<u64>();
        opened += (0..AGENTS).map(|n| scene.world.hosts().info(n).zones.opened).sum::<u64>();
    }
    assert!(sent_after > 0 && opened > 0, "{sent_after} sent after the device, {opened} read");
}

/// A router that has header keys alters data behind the headers: the device refuses each such packet, and the file comes as it was.
#[test]
fn what_a_compromised_router_alters_behind_the_headers_is_refused() {
    for (seed, keys) in [(100, Keys::Ahead), (101, Keys::Moved)] {
        let mut scene = Scene::new(seed, keys, true);
        let mut count = 0_u32;
        scene.world.hosts().compromised = Some(Box::new(move |packet| {
            count += u32::from(packet.len() > 1_000);
            // In the middle of a full segment.
            if packet.len() > 1_000 && count.is_multiple_of(20) {
                let at = packet.len() / 2;
                packet[at] ^= 1;
            }
        }));
        for at in [1, 2] {
            scene.carry(ms(1_000));
            scene.go(at);
        }
        scene.finish(seed);
        let Hosts { device, strange, .. } = scene.world.hosts();
        assert!(*strange > 20, "{strange} were altered; seed {seed}");
        assert!(device.refused >= *strange, "{} of {strange}; seed {seed}", device.refused);
    }
}
