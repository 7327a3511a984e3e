//! Many devices and one gateway, in a [`Topology`] that loses nothing; some devices are behind NATs. Owns who is awake and alive. What
//! a bad network loses, and who moves, is [`crate::World`]'s; what becomes of packets and promises stands in the [`Books`].

use crate::ends::{self, CONNECTION, EPOCH, GATEWAY};
use crate::ledger::{Books, Ledger};
use crate::machine::{Machine, Retired};
use crate::settings::{SERVER, Settings};
use crate::topology::{MachineId, Moment, NetworkId, Topology};
use dormouse_ike::config::HoldPolicy;
use dormouse_netem::{LinkConfig, NatConfig};
use dormouse_node::ladder::Rung;
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_node::{Change, Limits, SleepFlags};
use dormouse_sansio::{Instant, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// One way.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
/// NATs here forget only when they are told to.
const NAT_IDLE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What differs between crowds besides the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// What the gateway does with sessions of devices that sleep.
    pub hold: HoldPolicy,
    /// Bounds of its stand-in and how long that keeps anything, if it has one.
    pub stand_in: Option<(Limits, Duration)>,
    /// Each so-manyth device is behind a NAT of its own; 0: none.
    pub natted: usize,
    /// Both ends have another engine, and ESP without a NAT is a protocol of its own, which that of a gateway takes.
    pub engine: bool,
}

/// Where a device is, and what the network calls it there.
struct Place {
    id: MachineId,
    network: NetworkId,
    inside: IpAddr,
}

/// See the module's documentation.
pub struct Crowd {
    net: Topology,
    gateway: MachineId,
    places: Vec<Place>,
    /// What was promised to the devices, and what became of it.
    pub books: Books,
    /// Radios of devices that were killed.
    pub retired: Vec<Retired>,
    /// How far the wall clock has been moved, in seconds.
    skew: i64,
    settings: Settings,
    sent: u64,
}

impl Crowd {
    /// `count` devices that want to be connected, each a little later than the one before.
    ///
    /// # Panics
    /// If the configuration is not valid.
    #[must_use]
    pub fn new(seed: u64, count: usize, hold: HoldPolicy) -> Self {
        Self::in_setting(seed, count, Setting { hold, ..Setting::default() })
    }

    /// The same, with more to choose.
    ///
    /// # Panics
    /// If the configuration is not valid.
    #[must_use]
    pub fn in_setting(seed: u64, count: usize, setting: Setting) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: DELAY, ..LinkConfig::default() };
        let (centre, open) = (net.add_network(LinkConfig::default(), None), net.add_network(link, None));
        let (Setting { hold, stand_in, engine, .. }, other) = (setting, Settings::default());
        let mut settings = Settings { hold, stand_in, engine, ..other };
        if engine {
            for end in [&mut settings.device, &mut settings.gateway] {
                end.push(("ike", "esp_in_udp = \"nat\"".to_owned()));
            }
        }
        let keys = net.ticket_keys();
        let gateway = net.add_gateway(&settings, "*", keys);
        net.place(gateway, Some((centre, vec![GATEWAY[0]])));
        let mut crowd = Self {
            books: Books::new(seed, gateway, setting.hold.most >= count),
            net,
            gateway,
            places: Vec::new(),
            retired: Vec::new(),
            skew: 0,
            settings,
            sent: 0,
        };
        for n in 0..count {
            let [high, low] = u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
            let outside = IpAddr::V4(Ipv4Addr::new(10, 1, high, low));
            let natted = setting.natted > 0 && n % setting.natted == setting.natted - 1;
            let (network, inside) = if natted {
                let nat = NatConfig { idle: NAT_IDLE, preserve_ports: false, ..NatConfig::new(outside) };
                let network = crowd.net.add_network(link, Some(nat));
                (network, Ipv4Addr::new(192, 168, high, low).into())
            } else {
                (open, outside)
            };
            let id = crowd.net.add_device(&crowd.settings, &name(n));
            crowd.places.push(Place { id, network, inside });
            crowd.books.add(id, outside);
            crowd.arrive(n);
            crowd.run(Duration::from_millis(3));
        }
        crowd
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.net.now
    }

    /// How many devices there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// A device's machine.
    #[must_use]
    pub fn device(&self, n: usize) -> &Machine {
        self.net.machine(self.places[n].id)
    }

    /// The machines of all devices.
    pub fn devices(&self) -> impl Iterator<Item = &Machine> {
        self.places.iter().map(|p| self.net.machine(p.id))
    }

    /// The one that serves them.
    #[must_use]
    pub fn gateway(&self) -> &Machine {
        self.net.machine(self.gateway)
    }

    /// The one that serves them.
    pub fn gateway_mut(&mut self) -> &mut Machine {
        self.net.machine_mut(self.gateway)
    }

    /// A device is there, is awake and has power.
    #[must_use]
    pub fn listens(&self, n: usize) -> bool {
        self.places.get(n).is_some_and(|p| listens(&self.net, p.id))
    }

    fn plug(&mut self, n: usize) {
        let Place { id, network, inside } = self.places[n];
        self.net.place(id, Some((network, vec![inside])));
    }

    fn arrive(&mut self, n: usize) {
        self.plug(n);
        self.net.with(self.places[n].id, |now, host| _ = host.up(now, CONNECTION));
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let (end, books) = (self.net.now + time, &mut self.books);
        self.net.run_until(end, |net, moment| {
            if moment == Moment::Acted {
                books.look(net);
            }
            false
        });
    }

    /// A device announces a sleep; its radio goes off when [`Crowd::switch_off`] is called, some seconds later.
    pub fn announce(&mut self, n: usize, expect: Option<Duration>) {
        self.net.with(self.places[n].id, |now, host| {
            host.node_mut().prepare_sleep(now, CONNECTION, expect, None, SleepFlags::default());
        });
    }

    /// The radio goes off.
    pub fn switch_off(&mut self, n: usize) {
        let id = self.places[n].id;
        self.net.with(id, |now, host| _ = host.suspend(now, Reason::User));
        self.net.post();
        self.net.unplug(id);
        let due = self.device(n).due();
        assert_eq!(due, None, "seed {}: device {n} wants to run while it sleeps", self.books.seed);
    }

    /// The radio is back.
    pub fn switch_on(&mut self, n: usize) {
        self.plug(n);
        self.net.with(self.places[n].id, |now, host| host.resume(now, Cause::User));
    }

    /// The device's battery is taken out.
    pub fn kill(&mut self, n: usize) {
        let (now, id) = (self.net.now, self.places[n].id);
        self.books.look(&mut self.net);
        self.net.unplug(id);
        let machine = self.net.machine_mut(id);
        self.retired.extend(machine.retire_radio(now));
        machine.crash();
        machine.sleep = None;
        self.books.forget(n);
    }

    /// A device that was killed starts again, with what it had on its disk and a new radio, which `give` may give it.
    pub fn revive(&mut self, n: usize, give: impl FnOnce(Instant, &mut Machine)) {
        let (now, unix) = (self.net.now, self.unix());
        let host = ends::device(&self.settings, &name(n), self.net.rng(), now, unix);
        let machine = self.net.machine_mut(self.places[n].id);
        machine.restart(now, host);
        give(now, machine);
        self.arrive(n);
    }

    /// The NAT before a device forgets its mappings; nothing happens to a device without one.
    pub fn forget_nat(&mut self, n: usize) {
        self.net.forget_mappings(self.places[n].network);
    }

    /// Does something to a device's machine.
    pub fn with_machine(&mut self, n: usize, act: impl FnOnce(Instant, &mut Machine)) {
        act(self.net.now, self.net.machine_mut(self.places[n].id));
    }

    /// The gateway's process dies, and is back at once with what it had on its disk.
    pub fn restart_gateway(&mut self) {
        self.books_of_this_life(true);
        let (now, unix, disk) = (self.net.now, self.unix(), self.gateway().disk.clone());
        self.books.begin_life(now);
        let host = ends::gateway(&self.settings, "*", self.net.rng(), &disk, now, unix);
        self.gateway_mut().crash();
        self.gateway_mut().restart(now, host);
    }

    /// What the stand-in of this life has done; `over`: what waits there is lost with it.
    fn books_of_this_life(&mut self, over: bool) -> Ledger {
        let totals = self.gateway().node().and_then(|node| node.stand_in_totals());
        let (books, (waiting, _)) = totals.unwrap_or_default();
        assert_eq!(books.answers(), 0, "seed {}: nothing here can be answered for anybody", self.books.seed);
        let mut ledger = self.books.ledger.clone();
        for (reason, packets) in &books.dropped {
            *ledger.dropped.entry(reason.name()).or_default() += packets;
        }
        if over {
            ledger.died += waiting as u64;
            self.books.ledger = ledger.clone();
        } else {
            ledger.waiting = waiting as u64;
        }
        ledger
    }

    /// What became of everything so far.
    pub fn ledger(&mut self) -> Ledger {
        let mut ledger = self.books_of_this_life(false);
        (ledger.deaf, ledger.stopped) = (self.net.undelivered.deaf, self.net.undelivered.stopped);
        ledger.nowhere = self.gateway().nowhere();
        for device in self.devices() {
            ledger.arrived += device.received.len() as u64;
            ledger.refused += device.refused;
        }
        ledger
    }

    /// Sets the clocks of both ends by so many seconds.
    pub fn set_clocks(&mut self, by: i64) {
        self.skew += by;
        let unix = self.unix();
        for id in self.places.iter().map(|p| p.id).chain([self.gateway]) {
            self.net.machine_mut(id).skew = self.skew;
            self.net.with(id, |now, host| host.set_wall_clock(now, unix));
        }
    }

    fn unix(&self) -> UnixTime {
        let unix = EPOCH + (self.net.now - Instant::ZERO);
        UnixTime(unix.0.saturating_add_signed(self.skew))
    }

    /// Sends a numbered packet from a device to the server; returns its number.
    pub fn send_up(&mut self, n: usize) -> u64 {
        self.send_up_to(n, 9)
    }

    /// The same, to a port: what a policy tells flows apart by.
    pub fn send_up_to(&mut self, n: usize, port: u16) -> u64 {
        self.sent += 1;
        let (now, number, machine) = (self.net.now, self.sent, self.net.machine_mut(self.places[n].id));
        if let Some(inner) = machine.inner.first().copied() {
            machine.send_to(now, inner, SocketAddr::new(SERVER[0], port), number);
        }
        number
    }

    /// Sends a numbered packet from the server to a device; returns its number.
    pub fn send_down(&mut self, n: usize) -> u64 {
        self.send_down_to(n, 9)
    }

    /// The same, to a port of the device.
    pub fn send_down_to(&mut self, n: usize, port: u16) -> u64 {
        self.sent += 1;
        let (now, number) = (self.net.now, self.sent);
        if let Some(inner) = self.device(n).inner.first().copied() {
            self.books.ledger.sent += 1;
            self.gateway_mut().send_to(now, SERVER[0], SocketAddr::new(inner, port), number);
        }
        self.sent
    }

    /// How the sessions came up since the last question, counted by rung.
    pub fn rungs(&mut self) -> BTreeMap<Rung, usize> {
        let mut rungs = BTreeMap::new();
        self.books.look(&mut self.net);
        for n in 0..self.count() {
            self.books.members[n].seen = 0;
            for change in self.net.machine_mut(self.places[n].id).changes.drain(..) {
                if let Change::Up { rung, .. } = change {
                    *rungs.entry(rung).or_default() += 1;
                }
            }
        }
        rungs
    }

    /// Sessions at the gateway.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.gateway().node().map_or(0, |node| node.gateway_sessions(self.now()).len())
    }

    /// Every device that is awake can send and receive, and the gateway has one session for each and nothing else.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn check(&mut self) {
        let seed = self.books.seed;
        let awake: Vec<usize> = (0..self.count()).filter(|n| self.listens(*n)).collect();
        let up: Vec<(usize, u64)> = awake.iter().map(|&n| (n, self.send_up(n))).collect();
        self.run(Duration::from_secs(3));
        let down: Vec<(usize, u64)> = awake.iter().map(|&n| (n, self.send_down(n))).collect();
        self.run(Duration::from_secs(3));
        let arrived: BTreeSet<u64> = self.gateway_mut().received.drain(..).collect();
        for (n, number) in up {
            assert!(arrived.contains(&number), "seed {seed}: device {n} cannot send");
        }
        for (n, number) in down {
            assert!(self.device(n).received.contains(&number), "seed {seed}: device {n} cannot receive");
        }
    }
}

fn name(n: usize) -> String {
    format!("device{n}")
}

/// A machine is in a network, awake and alive.
pub(crate) fn listens(net: &Topology, id: MachineId) -> bool {
    !net.addresses(id).is_empty() && net.machine(id).listens()
}
