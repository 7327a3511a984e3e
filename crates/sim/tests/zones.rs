//! A device with zones moves between two access routers, which get the keys of its headers from its gateway; all are real hosts. Packets go on arriving; routers read headers and nothing else, and one that keeps all that it was ever given reads nothing
//! any more once the device has moved on (docs/wire/mlike.md).

use dormouse_esp::{HeaderZones, Look};
use dormouse_keying::HeaderOrder;
use dormouse_netem::LinkConfig;
use dormouse_node::host::transit::{Agent, Wish};
use dormouse_sansio::{Carrier, Deadline, Entropy, Instant, Path, Seeded};
use dormouse_sim::{Machine, MachineId, NetworkId, Topology};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
/// Time between two packets of one direction.
const PACE: Duration = Duration::from_millis(50);
/// Of IPv4 and UDP: the first zone of the packets here.
const HEADERS: usize = 28;

/// What one router sees.
#[derive(Default)]
struct Sight {
    /// Headers that it read, and packets of ESP that it saw.
    read: usize,
    seen: usize,
    /// Headers that could be read with all keys that this router was ever given.
    hoarded: usize,
}

/// Passes on what comes, and looks at it. `hoard`: the keys that a compromised router never forgets.
struct Reader {
    sight: Arc<Mutex<Sight>>,
    hoard: Arc<Mutex<HeaderZones>>,
    zones: HeaderZones,
    /// It is the compromised one.
    hoards: bool,
    ready: VecDeque<(Path, Vec<u8>)>,
    wishes: VecDeque<Wish>,
    asked: BTreeSet<u32>,
}

impl core::fmt::Debug for Reader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Reader")
    }
}

impl Agent for Reader {
    fn handle_datagram(&mut self, _: Instant, path: Path, datagram: Vec<u8>) {
        let sight = self.sight.clone();
        let mut sight = sight.lock().expect("no test has panicked");
        let esp = match path.carrier {
            Carrier::RawEsp => true,
            Carrier::NatT => datagram.len() > 8 && datagram[..4] != [0; 4],
            Carrier::Ike | Carrier::RawHip | Carrier::HipUdp => false,
        };
        if esp {
            sight.seen += 1;
            match self.zones.look(&datagram) {
                Look::Header(header) => {
                    assert_eq!(header.as_bytes().len(), HEADERS, "headers, and nothing else");
                    sight.read += 1;
                }
                Look::NoKey => {
                    let spi = u32::from_be_bytes(*datagram.first_chunk().expect("an SPI"));
                    if self.asked.insert(spi) {
                        let device =
                            if path.remote.ip() == GATEWAY { path.local.ip() } else { path.remote.ip() };
                        let (gateway, previous) = (GATEWAY, None);
                        self.wishes.push_back(Wish::Missing { gateway, device, spi, previous });
                    }
                }
                Look::Closed => {}
            }
            self.wishes.extend(core::iter::from_fn(|| self.zones.poll_news()).map(Wish::Other));
            let mut hoard = self.hoard.lock().expect("no test has panicked");
            sight.hoarded += usize::from(matches!(hoard.look(&datagram), Look::Header(_)));
        }
        self.ready.push_back((path, datagram));
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_transmit(&mut self) -> Option<(Path, Vec<u8>)> {
        self.ready.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }

    fn obey(&mut self, order: &HeaderOrder) {
        self.zones.apply(order).expect("usable keys");
        if self.hoards && matches!(order, HeaderOrder::Grant(_)) {
            self.hoard.lock().expect("no test has panicked").apply(order).expect("usable keys");
        }
    }

    fn poll_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }
}

fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a secret of the simulation\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}.sim\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}.sim\"\n{secret}\n"
    )
}

fn device_file() -> String {
    let head = format!("[connection.office]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n");
    let child = "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\nprotection = \"zoned\"\n";
    head + &auth("office", "device", "gateway") + child
}

fn gateway_file(zones: &str) -> String {
    let mut file =
        "[connection.office]\nrole = \"gateway\"\n".to_owned() + &auth("office", "gateway", "device");
    file += "[connection.office.pool]\naddresses = [\"10.55.0.0/16\"]\n[connection.office.child]\nlocal = [\"10.99.0.0/24\"]\n\
             remote = [\"dynamic\"]\nprotection = \"zoned\"\n[connection.office.child.zones]\nrouters = [\"r1.sim\", \"r2.sim\"]\n";
    file += zones;
    for (router, next) in [(1, 2), (2, 1)] {
        file += &format!(
            "[connection.r{router}]\nrole = \"gateway\"\n[connection.r{router}.keys]\npeer = \"router\"\n\
             serves = [\"192.0.{router}.0/24\"]\nneighbours = [\"r{next}.sim\"]\n"
        );
        file += &auth(&format!("r{router}"), "gateway", &format!("r{router}"));
    }
    file
}

fn router_file(router: usize) -> String {
    let head = format!("[connection.gw]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\nauto = true\n");
    head + "[connection.gw.keys]\npeer = \"gateway\"\n" + &auth("gw", &format!("r{router}"), "gateway")
}

struct Scene {
    net: Topology,
    device: MachineId,
    gateway: MachineId,
    routers: [MachineId; 2],
    networks: [NetworkId; 2],
    sights: [Arc<Mutex<Sight>>; 2],
    /// All that the first router was ever given.
    hoard: Arc<Mutex<HeaderZones>>,
    sent: Vec<(u64, Instant, MachineId)>,
}

impl Scene {
    fn new(seed: u64, zones: &str) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
        let networks = [net.add_network(link, None), net.add_network(link, None)];
        let centre = net.add_network(LinkConfig::default(), None);
        let hoard: Arc<Mutex<HeaderZones>> = Arc::default();
        let add = |net: &mut Topology, file: &str, connection: &str| {
            let mut machine = Machine::new(net.host_of(file));
            if !connection.is_empty() {
                machine.gateways.insert(connection.to_owned(), vec![GATEWAY]);
            }
            net.add_machine(machine)
        };
        let gateway = add(&mut net, &gateway_file(zones), "");
        let device = add(&mut net, &device_file(), "office");
        let routers = [1, 2].map(|router| add(&mut net, &router_file(router), "gw"));
        let sights: [Arc<Mutex<Sight>>; 2] = Default::default();
        net.place(gateway, Some((centre, vec![GATEWAY])));
        let mut scene = Self { net, device, gateway, routers, networks, sights, hoard, sent: Vec::new() };
        for at in 0..2 {
            let (router, network) = (scene.routers[at], scene.networks[at]);
            scene.net.set_router(network, router);
            scene.boot(at);
            let address = IpAddr::V4(Ipv4Addr::new(192, 0, at as u8 + 1, 1));
            scene.net.place(router, Some((network, vec![address])));
            scene.net.with(router, |now, host| assert!(host.up(now, "gw")));
        }
        scene.run(Duration::from_secs(5));
        scene.enter(0);
        scene.net.with(device, |now, host| assert!(host.up(now, "office")));
        scene.run(Duration::from_secs(5));
        scene
    }

    fn boot(&mut self, at: usize) {
        let reader = Reader {
            sight: self.sights[at].clone(),
            hoard: self.hoard.clone(),
            zones: HeaderZones::new(),
            hoards: at == 0,
            ready: VecDeque::new(),
            wishes: VecDeque::new(),
            asked: BTreeSet::new(),
        };
        self.net.with(self.routers[at], |_, host| host.set_agent(Box::new(reader)));
    }

    /// The router's process dies with all keys, and is back at once.
    fn restart(&mut self, at: usize) {
        let (router, now) = (self.routers[at], self.net.now);
        let host = self.net.host_of(&router_file(at + 1));
        let machine = self.net.machine_mut(router);
        machine.crash();
        machine.restart(now, host);
        self.boot(at);
        self.net.with(router, |now, host| assert!(host.up(now, "gw")));
    }

    /// The device is behind this router from now on.
    fn enter(&mut self, at: usize) {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, at as u8 + 1, 10));
        self.net.place(self.device, Some((self.networks[at], vec![address])));
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        self.net.run_until(end, |_, _| false);
    }

    fn talk(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let inner = self.net.machine(self.device).inner.first().copied().expect("an address inside");
            let (now, number) = (self.net.now, self.sent.len() as u64);
            self.sent.extend([(number, now, self.gateway), (number + 1, now, self.device)]);
            self.net.machine_mut(self.device).send(now, inner, SERVER, number);
            self.net.machine_mut(self.gateway).send(now, SERVER, inner, number + 1);
            self.run(PACE);
        }
    }

    /// Headers read, packets seen, and headers that the hoard opens at this router since this was asked last.
    fn look(&mut self, at: usize) -> (usize, usize, usize) {
        let mut sight = self.sights[at].lock().expect("no test has panicked");
        let Sight { read, seen, hoarded, .. } = &mut *sight;
        (core::mem::take(read), core::mem::take(seen), core::mem::take(hoarded))
    }

    /// Packets sent in this time that did not arrive; none arrived twice.
    fn lost(&self, from: Instant, to: Instant) -> usize {
        let sent = self.sent.iter().filter(|(_, at, _)| (from..to).contains(at));
        let times = |number, to| self.net.machine(to).received.iter().filter(|n| **n == number).count();
        let counts: Vec<usize> = sent.map(|(number, _, to)| times(*number, *to)).collect();
        assert!(counts.iter().all(|n| *n <= 1), "one arrived twice");
        counts.iter().filter(|n| **n == 0).count()
    }
}

#[test]
fn the_router_before_and_the_one_after_read_headers_and_a_hoarder_soon_reads_none() {
    for (seed, ahead) in [(1, true), (2, false)] {
        let mut scene = Scene::new(seed, &format!("ahead = {ahead}\nmost_routers = 1\n"));
        scene.talk(40);
        let (read, seen, _) = scene.look(0);
        assert!(seen >= 80 && read * 10 >= seen * 9, "ahead {ahead}: {read} of {seen}");
        let moved = scene.net.now;
        scene.enter(1);
        // The rekeying that follows is 10 s after the keys were made.
        scene.talk(300);
        scene.look(1);
        let calm = scene.net.now;
        scene.talk(40);
        let (read, seen, hoarded) = scene.look(1);
        assert!(seen >= 80 && read * 10 >= seen * 9, "ahead {ahead}: {read} of {seen}");
        if !ahead {
            assert_eq!(hoarded, 0, "of {seen} packets under keys that the first router was never given");
        }
        let end = scene.net.now;
        scene.run(Duration::from_secs(1));
        assert_eq!(scene.lost(Instant::ZERO, moved), 0);
        assert_eq!(
            scene.lost(moved + Duration::from_secs(2), end),
            0,
            "rekeyings and handoffs of keys lose nothing"
        );
        assert_eq!(scene.lost(calm, end), 0);
    }
}

/// Handoffs in the middle of rekeyings, two in one round trip, routers that crash: packets go on, and in the end the device's router reads.
#[test]
fn in_the_end_packets_go_on_and_the_right_router_reads() {
    for seed in 10..20 {
        let mut scene = Scene::new(seed, "most_routers = 1\n");
        let mut draw = Seeded::new(seed);
        let (mut at, mut disturbed) = (0, Vec::new());
        for _ in 0..12 {
            match draw.below(4) {
                0 => {
                    scene.net.with(scene.gateway, |now, host| host.node_mut().rekey_children(now));
                    scene.run(Duration::from_millis(draw.below(40)));
                }
                1 => {
                    scene.restart(usize::from(draw.below(2) == 1));
                    disturbed.push(scene.net.now);
                }
                2 => {
                    // There and back in less than a round trip.
                    disturbed.push(scene.net.now);
                    scene.enter(1 - at);
                    scene.run(Duration::from_millis(10));
                    scene.enter(at);
                }
                _ => {
                    disturbed.push(scene.net.now);
                    at = 1 - at;
                    scene.enter(at);
                }
            }
            scene.talk(1 + draw.below(60) as usize);
        }
        scene.run(Duration::from_secs(30));
        scene.look(at);
        let calm = scene.net.now;
        scene.talk(40);
        let end = scene.net.now;
        scene.run(Duration::from_secs(1));
        assert_eq!(scene.lost(calm, end), 0, "seed {seed}");
        let (read, seen, _) = scene.look(at);
        assert!(seen >= 80 && read * 10 >= seen * 9, "seed {seed}: {read} of {seen}");
        // What is lost besides was on its way when the device moved or its router crashed.
        for (_, sent, _) in &scene.sent {
            let troubled = disturbed.iter().any(|d| *sent + PACE > *d && *sent < *d + Duration::from_secs(4));
            assert!(
                troubled || scene.lost(*sent, *sent + Duration::from_nanos(1)) == 0,
                "seed {seed}: {sent:?}"
            );
        }
    }
}
