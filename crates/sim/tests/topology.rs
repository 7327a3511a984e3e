//! Three machines, two NATs and an access router before a radio that delays, repeats and drops what passes; one device moves from behind one
//! NAT to behind the other and back. Packets arrive once, and sessions survive.

use dormouse_netem::{LinkConfig, NatConfig};
use dormouse_node::Change;
use dormouse_node::config::access_router::{Repair, Router};
use dormouse_node::host::Host;
use dormouse_node::ladder::Rung;
use dormouse_sansio::{Entropy, Instant, Path, Seeded};
use dormouse_sim::{Family, Machine, MachineId, NetworkId, Settings, Topology};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const OFFICE: &str = "office";
const SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2))];
/// Time between two packets of one direction.
const PACE: Duration = Duration::from_millis(250);

/// An access router enters this network, before a bad stretch of radio: one datagram in twelve is lost, one comes twice, four come late, some
/// of them behind the next one. Counts what is lost.
fn add_rough_router(net: &mut Topology, network: NetworkId, seed: u64) -> (MachineId, Arc<AtomicUsize>) {
    let machine = Machine::new(net.host_of(""));
    let router = net.add_machine(machine);
    net.set_router(network, router);
    let section =
        Router { device: "wlan0".into(), network: "eth0".into(), repair: Repair::None, rate_kbit: 0 };
    net.with(router, |_, host| host.set_router(&section));
    net.set_radio(
        network,
        LinkConfig {
            duplication: 1.0 / 12.0,
            reordering: 4.0 / 12.0,
            reordering_delay: Duration::from_millis(400),
            ..LinkConfig::default()
        },
    );
    let (mut rng, dropped) = (Seeded::new(seed), Arc::new(AtomicUsize::new(0)));
    let count = dropped.clone();
    let loses = move |_: &Path, _: &[u8]| {
        let lost = rng.below(12) == 0;
        count.fetch_add(usize::from(lost), Ordering::Relaxed);
        lost
    };
    net.set_astray(router, Some(Box::new(loses)));
    (router, dropped)
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
    router: MachineId,
    /// Datagrams that the radio has lost.
    dropped: Arc<AtomicUsize>,
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
        let (router, dropped) = add_rough_router(&mut net, centre, seed);
        let keys = net.ticket_keys();
        let gateway = net.add_gateway(&settings, "*", keys);
        let (roamer, resident) = (net.add_device(&settings, "roamer"), net.add_device(&settings, "resident"));
        let known = net.machine(roamer).gateways[OFFICE].clone();
        net.place(gateway, Some((centre, known)));
        let sent = Vec::new();
        let mut scene = Self { net, gateway, roamer, resident, home, work, outer, sent, router, dropped };
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
    let passed =
        scene.net.machine(scene.router).host().and_then(Host::router_info).expect("a router").counters;
    assert!(passed.to_device > 0 && passed.to_network > 0, "{story}: {passed:?}");
    let dropped = scene.dropped.load(Ordering::Relaxed);
    assert!(dropped > 0, "{story}: nothing was lost");
    assert!(scene.net.machine(scene.gateway).refused > 0, "{story}: nothing came twice");
    assert!(!scene.net.machine(scene.resident).received.is_sorted(), "{story}: all came in order");
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
    assert!(lost.len() <= dropped, "{story}: {dropped} were dropped, {lost:?}");
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
