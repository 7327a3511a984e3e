//! A device with zones moves between three access routers in a row, which get the keys of its headers from its gateway or from each other; all are
//! real hosts. Packets go on arriving; none is in clear but those that both ends chose for it; routers read headers of zones and nothing else, and
//! one that keeps all that it was ever given reads no more than is said (docs/wire/mlike.md). No nonce of a first zone is used twice in the whole world.

use dormouse_crypto::cert::Identity;
use dormouse_esp::{HeaderZones, Look};
use dormouse_keying::HeaderOrder;
use dormouse_node::Rekey;
use dormouse_node::config::access_router::{Repair, Router};
use dormouse_sansio::{Carrier, Entropy, Instant, Path, Seeded};
use dormouse_sim::{Machine, MachineId, NetworkId, Topology, rekey_peers};
use dormouse_wire::ike::mlike::Excerpt;
use dormouse_wire::ip;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use zoned::{
    Configuration, DELAY, Divided, Drawn, GATEWAY, Keys, Machines, ROUTERS, SECRET, SERVER, address, beside,
    numbered, router_file, set_signal, shows,
};

mod zoned;

/// Time between two packets of one direction.
const PACE: Duration = Duration::from_millis(10);
/// Of IPv4 and UDP: the first zone of the packets here.
const HEADERS: usize = 28;

/// A router: it looks at what comes, changes some of it, and passes it on.
#[derive(Default)]
struct Reader {
    /// Headers that it read, and packets of ESP that it saw.
    read: usize,
    seen: usize,
    /// Headers that could be read with all keys that the first router was ever given.
    hoarded: usize,
    zones: HeaderZones,
    asked: BTreeSet<u32>,
}

/// What all routers share.
struct World {
    readers: [Reader; ROUTERS],
    /// All that the first router was ever given, which is compromised and forgets nothing.
    hoard: HeaderZones,
    /// Every nonce of a first zone, with its SPI: of the packets that the two ends sealed, and of those that a router sealed again.
    nonces: BTreeSet<(u32, [u8; 8])>,
    resealed: usize,
    /// SPIs of SAs of which a router was ever given the keys.
    granted: BTreeSet<u32>,
    drawn: Drawn,
    /// Packets that were seen in clear, as both ends' configuration has it.
    shown: usize,
    /// Where the device was before, as a registration says it.
    before: Option<Identity>,
}

fn spi_of(esp: &[u8]) -> u32 {
    u32::from_be_bytes(*esp.first_chunk().expect("an SPI"))
}

impl World {
    fn new(drawn: Drawn) -> Self {
        Self {
            readers: <[Reader; ROUTERS]>::default(),
            hoard: HeaderZones::new(),
            nonces: BTreeSet::new(),
            resealed: 0,
            granted: BTreeSet::new(),
            drawn,
            shown: 0,
            before: None,
        }
    }

    fn note_nonce(&mut self, esp: &[u8]) {
        let spi = spi_of(esp);
        let iv = *esp[8..].first_chunk().expect("an IV");
        assert!(self.nonces.insert((spi, iv)), "a nonce of {spi:08x} comes twice: {iv:02x?}");
    }

    /// A packet passes a router. What that shows of one without keys, once for each SPI.
    fn look(&mut self, at: usize, esp: &mut [u8]) -> Option<Excerpt> {
        self.note_nonce(esp);
        let (spi, hoarded) = (spi_of(esp), matches!(self.hoard.look(esp), Look::Header(_)));
        let headers = if self.drawn.unreadable { 0 } else { HEADERS };
        let reader = &mut self.readers[at];
        reader.seen += usize::from(self.granted.contains(&spi));
        reader.hoarded += usize::from(hoarded);
        match reader.zones.look(esp) {
            Look::Header(header) => {
                assert_eq!(header.as_bytes().len(), headers, "headers, and nothing else");
                reader.read += 1;
                // Every other packet goes on under a nonce of this router's.
                let changed = headers > 0
                    && reader.read.is_multiple_of(2)
                    && reader
                        .zones
                        .change(esp, |header| assert!(ip::set_hop_limit(header, 63)))
                        .expect("allowed");
                if changed {
                    self.resealed += 1;
                    self.note_nonce(esp);
                }
                None
            }
            Look::NoKey => reader.asked.insert(spi).then(|| Excerpt::of(esp).expect("a packet")),
            Look::Closed => None,
        }
    }

    fn obey(&mut self, at: usize, order: &HeaderOrder) {
        let reader = &mut self.readers[at];
        reader.zones.apply(order).expect("usable keys");
        let HeaderOrder::Grant(grant) = order else { return };
        // What is given once more may be asked for again once it is gone.
        reader.asked.retain(|spi| ![grant.to_device.spi, grant.from_device.spi].contains(spi));
        self.granted.extend([grant.to_device.spi, grant.from_device.spi]);
        if at == 0 {
            // What it opens elsewhere has not passed here.
            let mut kept = grant.clone();
            for sa in [&mut kept.to_device, &mut kept.from_device] {
                sa.reached = sa.reached.first().into();
            }
            self.hoard.apply(&HeaderOrder::Grant(kept)).expect("usable keys");
        }
    }

    /// A datagram passes a router. What that shows of it to who may have the keys.
    fn pass(&mut self, at: usize, path: &Path, datagram: &mut [u8]) -> Option<Excerpt> {
        self.shown += usize::from(shows(path, datagram, self.drawn));
        let esp = match path.carrier {
            Carrier::RawEsp => true,
            Carrier::NatT => datagram.len() > 8 && datagram[..4] != [0; 4],
            Carrier::Ike | Carrier::RawHip | Carrier::HipUdp => false,
        };
        if esp { self.look(at, datagram) } else { None }
    }
}

/// A packet.
#[derive(Clone, Copy)]
struct Sent {
    at: Instant,
    to: MachineId,
}

struct Scene {
    net: Topology,
    keys: Keys,
    drawn: Drawn,
    device: MachineId,
    gateway: MachineId,
    routers: Vec<MachineId>,
    networks: Vec<NetworkId>,
    world: Arc<Mutex<World>>,
    /// Where the device is.
    at: usize,
    /// By their numbers.
    sent: Vec<Sent>,
}

impl Scene {
    fn new(seed: u64, keys: Keys, most_routers: usize) -> Self {
        Self::drawn(seed, keys, most_routers, Drawn::PLAIN)
    }

    fn drawn(seed: u64, keys: Keys, most_routers: usize, drawn: Drawn) -> Self {
        let configuration = Configuration { keys, most_routers, reports: false, bare: false, drawn };
        let Machines { net, device, gateway, routers, networks } = Machines::new(seed, &configuration);
        let world = Arc::new(Mutex::new(World::new(drawn)));
        let (at, sent) = (0, Vec::new());
        let mut scene = Self { net, keys, drawn, device, gateway, routers, networks, world, at, sent };
        for at in 0..ROUTERS {
            let (router, network) = (scene.routers[at], scene.networks[at]);
            scene.net.set_router(network, router);
            scene.net.place(router, Some((network, vec![address(at, 1)])));
            scene.let_read(at);
            scene.boot(at);
        }
        scene.run(Duration::from_secs(5));
        scene.enter(0);
        scene.net.with(device, |now, host| assert!(host.up(now, "office")));
        scene.run(Duration::from_secs(5));
        scene
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test has panicked")
    }

    /// The reader stands where packets pass the router, and asks for keys by its host.
    fn let_read(&mut self, at: usize) {
        let world = self.world.clone();
        let passing = move |machine: &mut Machine, now: Instant, path: &Path, datagram: &mut Vec<u8>| {
            let (seen, previous) = {
                let mut world = world.lock().expect("no test has panicked");
                machine.headers.drain(..).for_each(|order| world.obey(at, &order));
                (world.pass(at, path, datagram), world.before.clone())
            };
            if let Some(seen) = seen {
                machine.with(now, |host| {
                    host.node_mut().ask_for_keys(now, GATEWAY, seen, previous.as_ref(), false);
                });
            }
        };
        self.net.set_passing(self.routers[at], Box::new(passing));
    }

    /// The router's host is a new one: it takes header keys, and calls its gateway and the router before.
    fn boot(&mut self, at: usize) {
        {
            let mut world = self.world();
            let Reader { zones, asked, .. } = &mut world.readers[at];
            (*zones, *asked) = (HeaderZones::new(), BTreeSet::new());
        }
        let before = (self.keys == Keys::Moved && at > 0).then(|| format!("r{at}"));
        self.net.with(self.routers[at], |now, host| {
            host.node_mut().read_headers();
            assert!(host.up(now, "gw"));
            before.into_iter().for_each(|before| assert!(host.up(now, &before)));
        });
    }

    /// The router's process dies with all keys, and is back at once.
    fn restart(&mut self, at: usize) {
        let (router, now) = (self.routers[at], self.net.now);
        let host = self.net.host_of(&router_file(at + 1, self.keys));
        let machine = self.net.machine_mut(router);
        machine.crash();
        machine.restart(now, host);
        self.boot(at);
    }

    /// The device is behind this router from now on.
    fn enter(&mut self, at: usize) {
        self.world().before =
            (at != self.at).then(|| format!("r{}.sim", self.at + 1).parse().expect("a name"));
        self.at = at;
        self.net.place(self.device, Some((self.networks[at], vec![address(at, 10)])));
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        self.net.run_until(end, |_, _| false);
        for (at, router) in self.routers.clone().into_iter().enumerate() {
            let orders = std::mem::take(&mut self.net.machine_mut(router).headers);
            orders.iter().for_each(|order| self.world().obey(at, order));
        }
    }

    /// Packets go both ways for so long.
    fn talk(&mut self, time: Duration) {
        let end = self.net.now + time;
        while self.net.now < end {
            let inner = self.net.machine(self.device).inner.first().copied().expect("an address inside");
            let (at, number) = (self.net.now, self.sent.len() as u64);
            self.sent.extend([Sent { at, to: self.gateway }, Sent { at, to: self.device }]);
            self.net.machine_mut(self.device).forward(at, numbered(inner, SERVER, number, SECRET));
            self.net.machine_mut(self.gateway).forward(at, numbered(SERVER, inner, number + 1, SECRET));
            self.run(PACE);
        }
    }

    /// What the device's router reads of two seconds of talk: nine tenths at least. How much of it the hoard opens, and how much there was.
    fn read_and_hoarded(&mut self) -> (usize, usize) {
        self.take_sight();
        self.talk(Duration::from_secs(2));
        let (read, seen, hoarded) = self.take_sight();
        let of = |to_device| 150 / self.drawn.divided.part(to_device) as usize;
        let least = of(true) + of(false);
        assert!(
            seen >= least && read * 10 >= seen * 9,
            "{:?}, {:?}: {read} of {seen}",
            self.keys,
            self.drawn
        );
        (hoarded, seen)
    }

    /// Headers read, packets seen, and headers that the hoard opens where the device is, since this was asked last.
    fn take_sight(&mut self) -> (usize, usize, usize) {
        let mut world = self.world();
        let Reader { read, seen, hoarded, .. } = &mut world.readers[self.at];
        (core::mem::take(read), core::mem::take(seen), core::mem::take(hoarded))
    }

    fn held(&self) -> [usize; ROUTERS] {
        let world = self.world();
        core::array::from_fn(|at| world.readers[at].zones.held().count())
    }

    /// Packets that did not arrive: when they were sent, and whether to the device. None arrived twice.
    fn lost(&mut self) -> Vec<(Instant, bool)> {
        self.run(Duration::from_secs(1));
        let mut arrived: BTreeMap<(u64, MachineId), usize> = BTreeMap::new();
        for to in [self.device, self.gateway] {
            for number in &self.net.machine(to).received {
                *arrived.entry((*number, to)).or_default() += 1;
            }
        }
        assert!(arrived.values().all(|times| *times == 1), "one arrived twice");
        let lost =
            self.sent.iter().zip(0..).filter(|(sent, number)| !arrived.contains_key(&(*number, sent.to)));
        lost.map(|(sent, _)| (sent.at, sent.to == self.device)).collect()
    }
}

#[test]
fn the_routers_at_the_device_read_headers_and_a_hoarder_reads_as_long_as_is_said() {
    for (seed, keys, most_routers) in [(1, Keys::Ahead, 1), (2, Keys::There, 1), (3, Keys::Moved, 8)] {
        let mut scene = Scene::new(seed, keys, most_routers);
        scene.read_and_hoarded();
        let mut disturbed = vec![Disturbance::Handoff(scene.net.now)];
        scene.enter(1);
        // The rekeying that follows is 10 s after the keys were made.
        scene.talk(Duration::from_secs(12));
        let (hoarded, seen) = scene.read_and_hoarded();
        match keys {
            // It is next door: the price of keys that are there before the device is.
            Keys::Ahead => assert_eq!(hoarded, seen),
            Keys::There | Keys::Moved => assert_eq!(hoarded, 0, "{keys:?}: of {seen} packets"),
        }
        disturbed.push(Disturbance::Handoff(scene.net.now));
        scene.enter(2);
        scene.talk(Duration::from_secs(12));
        let (hoarded, seen) = scene.read_and_hoarded();
        assert_eq!(
            hoarded, 0,
            "{keys:?}: of {seen} packets, under keys that the first router was never given"
        );
        assert_eq!(scene.held()[0], 0, "{keys:?}");
        assert!(scene.world().resealed > 1_000, "{keys:?}");
        scene.assert_no_other_losses(&disturbed);
    }
}

/// A router that is not near any more gets the order to forget, long before there are new keys. One that does not obey reads on until then.
#[test]
fn a_router_that_is_left_behind_holds_no_keys() {
    let mut scene = Scene::new(4, Keys::Ahead, 8);
    scene.talk(Duration::from_secs(1));
    assert_eq!(scene.held(), [1, 1, 0]);
    scene.enter(1);
    scene.talk(Duration::from_secs(1));
    assert_eq!(scene.held(), [1, 1, 1]);
    scene.enter(2);
    scene.talk(Duration::from_secs(1));
    assert_eq!(scene.held(), [0, 1, 1]);
    let (hoarded, seen) = scene.read_and_hoarded();
    assert_eq!(hoarded, seen, "the SA is the first one still");
}

/// A machine that the gateway names and that repairs nothing takes no keys, and its gateway knows it.
#[test]
fn a_router_that_repairs_nothing_takes_no_keys() {
    for (repair, holding) in [(Repair::None, "refused"), (Repair::Snoop, "held")] {
        let mut scene = Scene::new(5, Keys::There, 8);
        let (router, now) = (scene.routers[1], scene.net.now);
        let host = scene.net.host_of(&router_file(2, Keys::There));
        scene.net.machine_mut(router).crash();
        scene.net.machine_mut(router).restart(now, host);
        let section = Router { device: "wlan0".into(), network: "eth0".into(), repair, rate_kbit: 0 };
        scene.net.with(router, |now, host| {
            host.set_router(&section);
            assert!(host.up(now, "gw"));
        });
        scene.run(Duration::from_secs(5));
        scene.enter(1);
        scene.run(Duration::from_secs(5));
        let mut told = Vec::new();
        scene.net.with(scene.gateway, |now, host| {
            let sessions = host.node_mut().gateway_sessions(now);
            told.extend(sessions.into_iter().flat_map(|s| s.children).flat_map(|child| child.routers));
        });
        let of = |router: &str| {
            told.iter().find(|h| h.router.to_string() == router).map(|h| h.holding.to_string())
        };
        assert_eq!(of("r2.sim").as_deref(), Some(holding), "{told:?}");
        let mut keys = 0;
        scene.net.with(router, |_, host| keys = host.router_info().expect("a router").keys.len());
        assert_eq!(keys, usize::from(repair != Repair::None));
    }
}

/// What loses packets, and when.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// A router's process died.
    Restart(Instant),
    /// The device came to another router.
    Handoff(Instant),
    /// It came to another router and went back before the gateway had heard of it.
    ThereAndBack(Instant),
}

impl Disturbance {
    /// Whether a packet may be lost by it: it was on its way, or was sent to where the device is no more before the gateway could know.
    fn excuses(self, (sent, to_device): (Instant, bool)) -> bool {
        let (at, until) = match self {
            Self::Restart(at) => (at, at),
            // The request that names the new address is there.
            Self::Handoff(at) => (at, at + DELAY),
            // The device goes back after one delay. Its first request is answered by then, but not where it is: it sends that again, and can name the
            // other address once this is answered (one request at a time, RFC 7296 section 2.3).
            Self::ThereAndBack(at) => (at, at + DELAY * 4),
        };
        let is_restart = matches!(self, Self::Restart(_));
        sent + DELAY >= at && sent < until && (to_device || is_restart)
    }
}

impl Scene {
    fn assert_no_other_losses(&mut self, disturbed: &[Disturbance]) {
        let lost = self.lost();
        let other = lost.iter().filter(|lost| !disturbed.iter().any(|d| d.excuses(**lost)));
        let other: Vec<_> = other.collect();
        assert!(other.is_empty(), "{other:?} of {} were lost; {disturbed:?}", self.sent.len());
    }
}

/// Handoffs in the middle of rekeyings, two in one round trip, routers that crash: packets go on, and in the end the device's router reads.
#[test]
fn in_the_end_packets_go_on_and_the_right_router_reads() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("DORMOUSE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DORMOUSE_STORIES").unwrap_or(30).clamp(30, 10_000),
    };
    for seed in seeds {
        let keys = [Keys::Ahead, Keys::There, Keys::Moved][seed as usize % 3];
        let drawn = Drawn::of(seed);
        println!("seed {seed}, keys {keys:?}, {drawn:?}");
        let mut scene = Scene::drawn(seed, keys, 1, drawn);
        let (mut draw, mut disturbed) = (Seeded::new(seed), Vec::new());
        for _ in 0..12 {
            let now = scene.net.now;
            if drawn.divided == Divided::Weak {
                set_signal(&mut scene.net, scene.device, draw.below(2) == 0);
            }
            let next = beside(scene.at + 1).map(|n| n - 1).nth(draw.below(2) as usize).unwrap_or(1);
            match draw.below(4) {
                0 => {
                    scene
                        .net
                        .with(scene.gateway, |now, host| rekey_peers(now, host.node_mut(), Rekey::Children));
                    scene.talk(Duration::from_millis(draw.below(40)));
                }
                1 => {
                    scene.restart(draw.below(ROUTERS as u64) as usize);
                    disturbed.push(Disturbance::Restart(now));
                }
                2 => {
                    let here = scene.at;
                    scene.enter(next);
                    scene.talk(DELAY);
                    scene.enter(here);
                    disturbed.push(Disturbance::ThereAndBack(now));
                }
                _ => {
                    scene.enter(next);
                    disturbed.push(Disturbance::Handoff(now));
                }
            }
            scene.talk(Duration::from_millis(50 * (1 + draw.below(60))));
        }
        set_signal(&mut scene.net, scene.device, true);
        let before = scene.world().shown;
        scene.talk(Duration::from_secs(30));
        scene.read_and_hoarded();
        let shown = scene.world().shown - before;
        assert_eq!(shown > 200, drawn.clear, "{shown} in clear");
        scene.assert_no_other_losses(&disturbed);
    }
}
