//! Three machines, two NATs and a router in transit whose agent delays, repeats and drops what passes; one device moves from behind one
//! NAT to behind the other and back. Packets arrive once, and sessions survive.

use dormouse_netem::{LinkConfig, NatConfig};
use dormouse_node::Change;
use dormouse_node::host::transit::Agent;
use dormouse_node::ladder::Rung;
use dormouse_sansio::{Deadline, Entropy, Instant, Path, Seeded};
use dormouse_sim::{Family, MachineId, NetworkId, Settings, Topology};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OFFICE: &str = "office";
const SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2))];
/// Time between two packets of one direction.
const PACE: Duration = Duration::from_millis(250);

/// What an agent has done.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    delayed: usize,
    repeated: usize,
    dropped: usize,
}

/// A bad stretch of radio: one datagram in twelve is lost, one comes twice, four come late and out of order.
#[derive(Debug)]
struct Rough {
    rng: Seeded,
    waits: BTreeMap<(Instant, u64), (Path, Vec<u8>)>,
    ready: VecDeque<(Path, Vec<u8>)>,
    seen: u64,
    done: Arc<Mutex<Done>>,
}

impl Rough {
    fn new(seed: u64, done: &Arc<Mutex<Done>>) -> Self {
        let (waits, ready) = (BTreeMap::new(), VecDeque::new());
        Self { rng: Seeded::new(seed), waits, ready, seen: 0, done: done.clone() }
    }

    fn delay(&mut self, now: Instant, path: Path, datagram: Vec<u8>) {
        self.seen += 1;
        let late = Duration::from_millis(1 + self.rng.below(120));
        self.waits.insert((now + late, self.seen), (path, datagram));
    }
}

impl Agent for Rough {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: Vec<u8>) {
        let done = self.done.clone();
        let mut done = done.lock().expect("no test has panicked");
        match self.rng.below(12) {
            0 => done.dropped += 1,
            1 => {
                done.repeated += 1;
                self.ready.push_back((path, datagram.clone()));
                self.delay(now, path, datagram);
            }
            2..=5 => {
                done.delayed += 1;
                self.delay(now, path, datagram);
            }
            _ => self.ready.push_back((path, datagram)),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(first) = self.waits.first_entry().filter(|e| e.key().0 <= now) {
            self.ready.push_back(first.remove());
        }
    }

    fn poll_transmit(&mut self) -> Option<(Path, Vec<u8>)> {
        self.ready.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.waits.first_key_value().map(|((at, _), _)| Deadline::strict(*at, "agent"))
    }
}

struct Scene {
    net: Topology,
    gateway: MachineId,
    roamer: MachineId,
    resident: MachineId,
    home: NetworkId,
    work: NetworkId,
    outer: Family,
    /// Every packet: its number, when it was sent, and to whom.
    sent: Vec<(u64, Instant, MachineId)>,
    done: Arc<Mutex<Done>>,
}

impl Scene {
    fn new(seed: u64, outer: Family, inner: Family) -> Self {
        let settings = Settings { outer, inner, ..Settings::default() };
        let mut net = Topology::new(seed);
        let link = LinkConfig {
            delay: Duration::from_millis(15),
            jitter: Duration::from_millis(5),
            ..LinkConfig::default()
        };
        let nat = |last| NatConfig::new(Ipv4Addr::new(198, 51, 100, last).into());
        let (home, work) = (net.add_network(link, Some(nat(6))), net.add_network(link, Some(nat(7))));
        let centre = net.add_network(LinkConfig::default(), None);
        let done = Arc::default();
        net.add_router(centre, Box::new(Rough::new(seed, &done)));
        let keys = net.ticket_keys();
        let gateway = net.add_gateway(&settings, "*", keys);
        let (roamer, resident) = (net.add_device(&settings, "roamer"), net.add_device(&settings, "resident"));
        let known = net.machine(roamer).gateways[OFFICE].clone();
        net.place(gateway, Some((centre, known)));
        let mut scene = Self { net, gateway, roamer, resident, home, work, outer, sent: Vec::new(), done };
        scene.enter(roamer, home, 2);
        scene.enter(resident, work, 3);
        for device in [roamer, resident] {
            scene.net.with(device, |now, host| assert!(host.up(now, OFFICE)));
        }
        scene.run(Duration::from_secs(15));
        scene
    }

    /// A device enters a network.
    fn enter(&mut self, device: MachineId, network: NetworkId, last: u8) {
        let third = if network == self.home { 7 } else { 8 };
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, third.into(), 0, 0, 0, 0, last.into());
        let addresses = self.outer.of([IpAddr::V4(Ipv4Addr::new(192, 168, third, last)), v6.into()]);
        self.net.place(device, Some((network, addresses)));
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        self.net.run_until(end, |_, _| false);
    }

    /// A packet from each device and one to each, of every family that they have inside, `rounds` times.
    fn talk(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for device in [self.roamer, self.resident] {
                for inner in self.net.machine(device).inner.clone() {
                    let (now, server) = (self.net.now, SERVER[usize::from(inner.is_ipv6())]);
                    let number = self.sent.len() as u64;
                    self.sent.extend([(number, now, self.gateway), (number + 1, now, device)]);
                    self.net.machine_mut(device).send(now, inner, server, number);
                    self.net.machine_mut(self.gateway).send(now, server, inner, number + 1);
                }
            }
            self.run(PACE);
        }
    }

    fn times(&self, (number, _, to): (u64, Instant, MachineId)) -> usize {
        self.net.machine(to).received.iter().filter(|n| **n == number).count()
    }
}

fn play(seed: u64, outer: Family, inner: Family) {
    let story = format!("seed {seed}, {outer:?} outside, {inner:?} inside");
    let mut scene = Scene::new(seed, outer, inner);
    let (roamer, home, work) = (scene.roamer, scene.home, scene.work);
    for device in [roamer, scene.resident] {
        let families = if inner == Family::Both { 2 } else { 1 };
        assert_eq!(scene.net.machine(device).inner.len(), families, "{story}");
    }
    scene.talk(40);
    let mut moves = Vec::new();
    for network in [work, home] {
        moves.push(scene.net.now);
        scene.enter(roamer, network, 2);
        scene.talk(60);
    }
    scene.run(Duration::from_secs(2));
    let done = *scene.done.lock().expect("the agent has not panicked");
    assert!(done.delayed > 0 && done.repeated > 0 && done.dropped > 0, "{story}: {done:?}");
    // What is on its way to a device that moves is lost, until the gateway has heard of the move.
    let moving = |at: Instant| moves.iter().any(|m| at + PACE > *m && at < *m + Duration::from_secs(5));
    let (mut lost, mut calm) = (Vec::<u64>::new(), 0);
    for packet in &scene.sent {
        let times = scene.times(*packet);
        assert!(times <= 1, "{story}: {packet:?} arrived {times} times");
        if packet.2 == scene.resident || !moving(packet.1) {
            calm += 1;
            lost.extend((times == 0).then_some(packet.0));
        }
    }
    assert!(lost.len() <= done.dropped, "{story}: {done:?}, {lost:?}");
    assert!(lost.len() * 6 < calm, "{story}: {} of {calm} were lost", lost.len());
    for (device, least) in [(roamer, 2), (scene.resident, 0)] {
        let changes = &scene.net.machine(device).changes;
        let rung = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
        let rungs: Vec<Rung> = changes.iter().filter_map(rung).collect();
        let moved = rungs.iter().filter(|r| **r == Rung::Move).count();
        assert_eq!(rungs.first(), Some(&Rung::Full), "{story}");
        assert!(rungs[1..].iter().all(|r| *r <= Rung::Move) && moved >= least, "{story}: {changes:#?}");
        assert!(!changes.iter().any(|c| matches!(c, Change::Down { .. })), "{story}: {changes:#?}");
    }
}

#[test]
fn packets_arrive_and_sessions_survive_a_rough_router_and_a_move() {
    for seed in 0..6 {
        for (outer, inner) in [
            (Family::V4, Family::V4),
            (Family::V6, Family::V6),
            (Family::V4, Family::V6),
            (Family::V6, Family::V4),
            (Family::Both, Family::Both),
        ] {
            play(seed, outer, inner);
        }
    }
}
