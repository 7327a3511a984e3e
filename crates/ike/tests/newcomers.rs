//! Many newcomers at one gateway with the default limits, friendly and hostile: who gets in, and what it costs the others.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::{client_psk, gateway_config, gateway_psk};
use dormouse_ike::config::Connection;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Memory;
use dormouse_ike::{Endpoint, Event, Stats};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};

/// One way, as by radio.
const DELAY: Duration = Duration::from_millis(100);
/// IKE_SA_INIT and IKE_SESSION_RESUME.
const FIRST: [u8; 2] = [34, 38];
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1));

/// A pool with an address for every session.
struct Endless(u32);

impl dormouse_ike::config_payload::AddressPool for Endless {
    fn lease(
        &mut self,
        _: &Connection,
        _: &dormouse_crypto::cert::Identity,
        request: &dormouse_ike::config_payload::LeaseRequest,
    ) -> dormouse_ike::config_payload::Lease {
        let kept = request.kept.iter().find_map(|a| if let IpAddr::V4(v4) = a { Some(*v4) } else { None });
        let v4 = kept.unwrap_or_else(|| {
            self.0 += 1;
            Ipv4Addr::from(0x0a00_0000 + self.0)
        });
        dormouse_ike::config_payload::Lease { v4: Some(v4), v6: None }
    }

    fn release(&mut self, _: &dormouse_ike::config_payload::Lease) {}
}

struct Caller {
    endpoint: Endpoint,
    conn: Arc<Connection>,
    /// Where it is, and behind which address and port it is seen: of IKE, and of NAT traversal the next one.
    inside: IpAddr,
    outside: SocketAddr,
    /// It begins, and says no more once it has been answered.
    mute: bool,
    up: bool,
    failed: usize,
    ticket: Option<ClientTicket>,
}

impl Caller {
    fn path(&self) -> Path {
        let gateway = if self.outside.is_ipv4() { V4 } else { V6 };
        let (local, remote) = (SocketAddr::new(self.inside, 500), SocketAddr::new(gateway, 500));
        Path { local, remote, carrier: Carrier::Ike }
    }
}

/// A datagram on its way: to a caller, or to the gateway.
struct Datagram {
    to: Option<usize>,
    path: Path,
    bytes: Vec<u8>,
}

/// A gateway and callers; nothing is lost between them.
struct World {
    now: Instant,
    gateway: Endpoint,
    store: Memory,
    callers: Vec<Caller>,
    by_outside: BTreeMap<SocketAddr, usize>,
    wire: BTreeMap<(Instant, u64), Datagram>,
    timers: BTreeSet<(Instant, usize)>,
    /// The timer of each caller.
    due: Vec<Option<Instant>>,
    sent: u64,
    seed: u64,
    /// As many half-open SAs as there were at once.
    half_open_most: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut config = gateway_config(gateway_psk(), seed);
        config.pool = Some(Box::new(Endless(0)));
        let mut gateway = Endpoint::new(config, Box::new(Seeded::new(seed)));
        gateway.set_wall_clock(Instant::ZERO, common::EPOCH);
        Self {
            now: Instant::ZERO,
            gateway,
            store: Memory::default(),
            callers: Vec::new(),
            by_outside: BTreeMap::new(),
            wire: BTreeMap::new(),
            timers: BTreeSet::new(),
            due: Vec::new(),
            sent: 0,
            seed,
            half_open_most: 0,
        }
    }

    /// A caller that is seen as `outside`, and solves puzzles up to `hardest_puzzle`.
    fn add(&mut self, outside: SocketAddr, hardest_puzzle: u8, mute: bool) -> usize {
        let n = self.callers.len();
        let mut conn = client_psk();
        conn.local_id = common::fqdn(&format!("client{n}.example.org"));
        conn.timing.retransmission.tries = 5;
        conn.opening.hardest_puzzle = hardest_puzzle;
        let mut endpoint =
            Endpoint::new(Default::default(), Box::new(Seeded::new(self.seed * 100_000 + n as u64)));
        endpoint.set_wall_clock(self.now, common::EPOCH);
        let inside = if outside.is_ipv4() { IpAddr::from([10, 1, 0, 1]) } else { outside.ip() };
        let caller = Caller {
            endpoint,
            conn: Arc::new(conn),
            inside,
            outside,
            mute,
            up: false,
            failed: 0,
            ticket: None,
        };
        self.callers.push(caller);
        self.due.push(None);
        for port in 0..2 {
            self.by_outside.insert(SocketAddr::new(outside.ip(), outside.port() + port), n);
        }
        n
    }

    fn connect(&mut self, n: usize) {
        let (now, caller) = (self.now, &mut self.callers[n]);
        caller.endpoint.connect(now, caller.conn.clone(), caller.path());
        self.flush(n);
    }

    /// A caller presents a ticket, which may be a copy of another's.
    fn resume(&mut self, n: usize, ticket: &ClientTicket) {
        let (now, caller) = (self.now, &mut self.callers[n]);
        caller.endpoint.resume(now, caller.conn.clone(), ticket.clone(), caller.path());
        self.flush(n);
    }

    fn put(&mut self, to: Option<usize>, path: Path, bytes: Vec<u8>) {
        self.sent += 1;
        self.wire.insert((self.now + DELAY, self.sent), Datagram { to, path, bytes });
    }

    fn flush(&mut self, n: usize) {
        let caller = &mut self.callers[n];
        while let Some(event) = caller.endpoint.poll_event() {
            caller.up |= matches!(event, Event::Established(_));
            caller.failed += usize::from(matches!(event, Event::Failed { .. }));
            if let Event::Ticket { ticket, .. } = event {
                caller.ticket = Some(*ticket);
            }
        }
        let (mut bytes, mut leaving) = (Vec::new(), Vec::new());
        while let Some(transmit) = caller.endpoint.poll_transmit(self.now, &mut bytes) {
            let marker = if transmit.path.carrier == Carrier::NatT { 4 } else { 0 };
            let datagram = std::mem::take(&mut bytes).split_off(marker);
            if caller.mute && !datagram.get(18).is_some_and(|kind| FIRST.contains(kind)) {
                continue;
            }
            let port = caller.outside.port() + u16::from(transmit.path.carrier == Carrier::NatT);
            let remote = SocketAddr::new(caller.outside.ip(), port);
            let Path { remote: local, carrier, .. } = transmit.path;
            leaving.push((Path { local, remote, carrier }, datagram));
        }
        let due = caller.endpoint.poll_timeout().map(|d| d.at.max(self.now));
        if let Some(old) = std::mem::replace(&mut self.due[n], due) {
            self.timers.remove(&(old, n));
        }
        self.timers.extend(due.map(|at| (at, n)));
        for (path, datagram) in leaving {
            self.put(None, path, datagram);
        }
    }

    fn flush_gateway(&mut self) {
        while let Some(event) = self.gateway.poll_event() {
            if let Event::Store(operation) = event {
                let outcome = self.store.apply(common::EPOCH + (self.now - Instant::ZERO), &operation);
                if let Some(sa) = operation.asked_by() {
                    self.gateway.stored(self.now, sa, outcome);
                }
            }
        }
        let mut bytes = Vec::new();
        while let Some(transmit) = self.gateway.poll_transmit(self.now, &mut bytes) {
            let marker = if transmit.path.carrier == Carrier::NatT { 4 } else { 0 };
            let datagram = std::mem::take(&mut bytes).split_off(marker);
            let Path { local, remote, carrier } = transmit.path;
            let Some(&to) = self.by_outside.get(&remote) else { continue };
            let inside =
                SocketAddr::new(self.callers[to].inside, if carrier == Carrier::NatT { 4500 } else { 500 });
            self.put(Some(to), Path { local: inside, remote: local, carrier }, datagram);
        }
        self.half_open_most = self.half_open_most.max(self.gateway.half_open());
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let datagram = self.wire.keys().next().map(|key| key.0).filter(|at| *at <= end);
            let timer = self.timers.first().copied().filter(|(at, _)| *at <= end);
            match (datagram, timer) {
                (Some(at), timer) if timer.is_none_or(|(due, _)| at <= due) => {
                    self.now = self.now.max(at);
                    let Some((_, Datagram { to, path, mut bytes })) = self.wire.pop_first() else { return };
                    match to {
                        None => {
                            let _discard = self.gateway.handle_datagram(self.now, path, &mut bytes);
                        }
                        Some(n) => {
                            let _discard =
                                self.callers[n].endpoint.handle_datagram(self.now, path, &mut bytes);
                            self.flush(n);
                        }
                    }
                    if self.gateway.poll_timeout().is_some_and(|d| d.at <= self.now) {
                        self.gateway.handle_timeout(self.now);
                    }
                    self.flush_gateway();
                }
                (_, Some((at, n))) => {
                    self.now = self.now.max(at);
                    self.callers[n].endpoint.handle_timeout(self.now);
                    self.flush(n);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn up(&self) -> usize {
        self.callers.iter().filter(|caller| caller.up).count()
    }

    fn stats(&self) -> &Stats {
        self.gateway.stats()
    }
}

fn nat(n: usize) -> SocketAddr {
    let port = u16::try_from(20_000 + 2 * n).expect("few");
    SocketAddr::from(([192, 0, 2, 10], port))
}

/// An address of one /64.
fn of_one_link(n: u16) -> SocketAddr {
    SocketAddr::from(([0x2001, 0xdb8, 1, 1, 0, 0, 0, n], 500))
}

/// Callers that answer cookies begin sessions and leave them; `rounds` times, each of them `each`.
fn flood(world: &mut World, callers: &[usize], rounds: usize, each: usize) {
    for _ in 0..rounds {
        for n in callers {
            (0..each).for_each(|_| world.connect(*n));
        }
        world.run(Duration::from_millis(50));
    }
}

/// A thousand clients behind one address, each of which gives up after four repetitions. Before, no address had more than 64 half-open SAs,
/// even with room for more: with the daemon's limits, 550 of these gave up.
#[test]
fn a_thousand_clients_behind_one_address_all_connect() {
    for (seed, hardest_puzzle) in [(1, 18), (2, 0)] {
        let mut world = World::new(seed);
        for n in 0..1_000 {
            world.add(nat(n), hardest_puzzle, false);
        }
        (0..1_000).for_each(|n| world.connect(n));
        world.run(Duration::from_secs(30));
        let failed: usize = world.callers.iter().map(|caller| caller.failed).sum();
        assert_eq!((world.up(), failed), (1_000, 0), "seed {seed}: {:?}", world.stats());
        assert!(
            world.stats().puzzles_given > 0 && world.stats().half_open_displaced == 0,
            "{:?}",
            world.stats()
        );
        assert_eq!(world.stats().puzzles_solved > 0, hardest_puzzle > 0, "{:?}", world.stats());
        assert!(world.half_open_most <= 1_024);
    }
}

/// 18 addresses of one /64 answer cookies and leave what they have begun. Before, each of them had 64 places, and together the daemon's
/// 1,024: a client elsewhere got in by chance, when one had expired, and the first of these not in 40 seconds.
#[test]
fn a_flood_out_of_one_prefix_keeps_no_client_waiting() {
    let mut world = World::new(3);
    let flooders: Vec<usize> = (1..=18).map(|n| world.add(of_one_link(n), 0, true)).collect();
    flood(&mut world, &flooders, 20, 4);
    assert!(world.gateway.half_open() > 300, "{}", world.gateway.half_open());
    let elsewhere = SocketAddr::from(([0x2001, 0xdb8, 1, 2, 0, 0, 0, 7], 500));
    let callers = [
        ("elsewhere", world.add(elsewhere, 18, false)),
        ("elsewhere, without puzzles", world.add(SocketAddr::from(([203, 0, 113, 7], 500)), 0, false)),
        ("among them", world.add(of_one_link(99), 18, false)),
    ];
    for (who, n) in callers {
        world.connect(n);
        flood(&mut world, &flooders, 25, 4);
        let again = world.callers[n].endpoint.stats().retransmissions;
        assert!(world.callers[n].up && again == 0, "{who}: {again} repetitions; {:?}", world.stats());
    }
    assert!(world.stats().newcomers_refused() > 0, "{:?}", world.stats());
}

/// One address presents a copied ticket again and again, and confirms nothing. Before, each of these counted for more than a client that had
/// solved no puzzle, and there was none to solve: full exchanges had no place.
#[test]
fn a_flood_by_one_ticket_keeps_no_client_waiting() {
    let mut world = World::new(5);
    let owner = world.add(nat(0), 0, false);
    world.connect(owner);
    world.run(Duration::from_secs(2));
    let ticket = world.callers[owner].ticket.take().expect("a ticket");
    let thief = world.add(SocketAddr::from(([198, 51, 100, 99], 500)), 0, true);
    world.callers[thief].conn = world.callers[owner].conn.clone();
    let storm = |world: &mut World| {
        for _ in 0..25 {
            (0..72).for_each(|_| world.resume(thief, &ticket));
            world.run(Duration::from_millis(50));
        }
    };
    storm(&mut world);
    assert!(world.gateway.half_open() > 300, "{:?}", world.stats());
    let n = world.add(SocketAddr::from(([203, 0, 113, 7], 500)), 0, false);
    world.connect(n);
    storm(&mut world);
    let again = world.callers[n].endpoint.stats().retransmissions;
    assert!(world.callers[n].up && again == 0, "{again} repetitions; {:?}", world.stats());
}

/// One client presents its own ticket, which counts no more, and proves that it is its own: each time it is refused by the store, and
/// begins again. An exchange that has authenticated and was refused gives way to newcomers.
#[test]
fn a_client_that_is_refused_again_and_again_keeps_no_other_waiting() {
    let mut world = World::new(6);
    let bad = world.add(SocketAddr::from(([198, 51, 100, 99], 500)), 18, false);
    let mut conn = (*world.callers[bad].conn).clone();
    conn.dormancy = false;
    world.callers[bad].conn = Arc::new(conn);
    world.connect(bad);
    world.run(Duration::from_secs(2));
    let ticket = world.callers[bad].ticket.clone().expect("a ticket");
    world.resume(bad, &ticket);
    world.run(Duration::from_secs(2));
    let failed = world.callers[bad].failed;
    for _ in 0..60 {
        (0..24).for_each(|_| world.resume(bad, &ticket));
        world.run(Duration::from_millis(50));
    }
    assert!(world.callers[bad].failed > failed + 500, "{:?}", world.stats());
    for (n, outside) in [[203, 0, 113, 7], [203, 0, 113, 8]].into_iter().enumerate() {
        let n = world.add(SocketAddr::from((outside, 500)), 18 * u8::from(n == 0), false);
        world.connect(n);
        for _ in 0..25 {
            (0..24).for_each(|_| world.resume(bad, &ticket));
            world.run(Duration::from_millis(50));
        }
        let again = world.callers[n].endpoint.stats().retransmissions;
        assert!(world.callers[n].up && again == 0, "{again} repetitions; {:?}", world.stats());
    }
}

/// Two thousand prefixes answer cookies, and solve no puzzle: a client that solves its own has a place. Before, they had all places, as
/// the 18 did.
#[test]
fn a_flood_out_of_many_prefixes_gives_way_to_a_client_that_works() {
    let mut world = World::new(4);
    let prefix = |n: usize| {
        let [high, low] = u16::try_from(n).expect("few").to_be_bytes();
        SocketAddr::from(([0x2001, 0xdb8, 2, u16::from_be_bytes([high, low]), 0, 0, 0, 1], 500))
    };
    let flooders: Vec<usize> = (0..2_000).map(|n| world.add(prefix(n), 0, true)).collect();
    for some in flooders.chunks(100) {
        flood(&mut world, some, 1, 2);
    }
    assert!(world.gateway.half_open() >= 512, "{}", world.gateway.half_open());
    let n = world.add(SocketAddr::from(([203, 0, 113, 7], 500)), 18, false);
    world.connect(n);
    for some in flooders.chunks(100).chain(flooders.chunks(100).take(5)) {
        flood(&mut world, some, 1, 2);
    }
    let again = world.callers[n].endpoint.stats().retransmissions;
    assert!(world.callers[n].up && again == 0, "{again} repetitions; {:?}", world.stats());
    assert_eq!(world.stats().puzzles_solved, 1, "{:?}", world.stats());
}

/// A crowd begins at once: there is room again when it has ended or has left what it began, and who comes meanwhile may wait if its cookie is
/// ours, and its message begins something.
#[test]
fn who_proves_where_it_is_may_wait_while_many_have_just_begun() {
    let mut world = World::new(7);
    let elsewhere = |n: usize| {
        let [high, low] = u16::try_from(n).expect("few").to_be_bytes();
        SocketAddr::from(([198, 18, high, low], 500))
    };
    let mute: Vec<usize> = (0..500).map(|n| world.add(elsewhere(n), 0, true)).collect();
    let begin = |world: &mut World, some: &[usize]| {
        some.iter().for_each(|n| world.connect(*n));
        world.run(4 * DELAY);
    };
    begin(&mut world, &mute[..383]);
    assert_eq!((world.gateway.half_open(), world.gateway.crowded_until()), (383, None));
    begin(&mut world, &mute[383..400]);
    let until = world.gateway.crowded_until().expect("a crowd");
    assert!(until > world.now && until <= world.now + Duration::from_secs(1), "{until:?}");
    // The next one's messages, as they come to the gateway.
    let n = world.add(SocketAddr::from(([203, 0, 113, 7], 500)), 18, false);
    world.connect(n);
    let mut may_wait = Vec::new();
    for _ in 0..3 {
        let first = world.wire.values().find(|d| d.to.is_none()).map(|d| (d.path, d.bytes.clone()));
        let (path, message) = first.expect("a message");
        let stranger = Path { remote: SocketAddr::from(([203, 0, 113, 8], 500)), ..path };
        may_wait.push([path, stranger].map(|path| world.gateway.may_wait(world.now + DELAY, path, &message)));
        world.run(2 * DELAY);
    }
    assert_eq!(
        may_wait,
        [[false, false], [true, false], [false, false]],
        "without a cookie, with one, begun"
    );
    world.run(Duration::from_secs(2));
    let until = world.gateway.crowded_until();
    assert!(world.callers[n].up && until.is_none_or(|until| until <= world.now), "{until:?}");
}

/// One address alone makes no crowd, however many it begins.
#[test]
fn one_prefix_makes_no_other_wait() {
    let mut world = World::new(8);
    for n in 0..1_000 {
        world.add(nat(n), 18, true);
    }
    (0..1_000).for_each(|n| world.connect(n));
    world.run(Duration::from_secs(2));
    assert!(world.gateway.half_open() > 384, "{:?}", world.stats());
    assert_eq!(world.gateway.crowded_until(), None);
}
