//! The world: two or three hosts, their networks, and the server by which they find each other. Owns what happens; the clock and the laws
//! of the network are the topology's.

use super::ends::{Ends, SERVER, SERVICES, addresses, astray, outside, radio};
use super::laws::Laws;
use super::script::{Edit, Place, Step};
use super::settings::Settings;
use crate::fuse::{self, After, Fuse};
use crate::machine::Machine;
use crate::settings::Family;
use crate::topology::{MachineId, Moment, NetworkId, Topology};
use crate::world::Access;
use dormouse_hip::Host as Hip;
use dormouse_keying::KeyManager;
use dormouse_netem::{LinkConfig, Mapping, NatConfig};
use dormouse_node::host::Host;
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_wire::hip::set_checksum;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Datagrams that an onlooker remembers.
const REMEMBERED: usize = 32;
/// Where a stranger sends from.
const STRANGER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 1)),
];
/// Time between two packets.
const APART: Duration = Duration::from_millis(50);
/// A device that is put to sleep has this long to tell its peers.
const NOTICE: Duration = Duration::from_secs(4);

/// A datagram that a machine has heard.
struct Heard {
    by: usize,
    path: Path,
    datagram: Vec<u8>,
}

/// See the module's documentation.
pub struct World {
    pub(super) net: Topology,
    /// The hosts, and the server.
    pub(super) machines: Vec<MachineId>,
    networks: Vec<[NetworkId; 2]>,
    centre: NetworkId,
    pub(super) seed: u64,
    pub(super) ends: Ends,
    pub(super) laws: Laws,
    remembered: VecDeque<Heard>,
    /// How often a process has begun.
    lives: u32,
    fuse: Option<Fuse>,
}

impl World {
    /// A world in which all are at home, and nothing has been said.
    ///
    /// # Panics
    /// If there are not two or three hosts.
    #[must_use]
    pub fn new(seed: u64, settings: &Settings) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: settings.delay, jitter: settings.delay / 4, ..LinkConfig::default() };
        let nat = |n: usize| {
            let mapping =
                if settings.symmetric { Mapping::AddressAndPortDependent } else { Mapping::default() };
            let idle = settings.nat_idle;
            settings.udp.then(|| NatConfig { mapping, idle, ..NatConfig::new(outside(n)) })
        };
        let networks: Vec<_> = (0..settings.hosts)
            .map(|n| [net.add_network(link, None), net.add_network(link, nat(n))])
            .collect();
        let centre = net.add_network(LinkConfig::default(), None);
        let ends = Ends::new(settings.clone());
        let machines: Vec<MachineId> = (0..ends.tags.len())
            .map(|n| {
                let host = ends.core(n, Instant::ZERO, net.rng());
                let id = net.add_machine(Machine::new(host));
                let machine = net.machine_mut(id);
                machine.set_lag(seed ^ n as u64, settings.lag);
                machine.heard = Some(Vec::new());
                id
            })
            .collect();
        let mut world = Self {
            net,
            machines,
            networks,
            centre,
            seed,
            ends,
            laws: Laws::default(),
            remembered: VecDeque::new(),
            lives: 0,
            fuse: None,
        };
        world.server_comes();
        for n in 0..world.hosts() {
            world.equip(n);
            world.go_home(n);
        }
        world
    }

    /// How many hosts there are.
    pub(super) fn hosts(&self) -> usize {
        self.ends.settings.hosts
    }

    /// A host, or the server.
    #[must_use]
    pub fn machine(&self, n: usize) -> &Machine {
        self.net.machine(self.machines[n])
    }

    /// Acts on the core of a host, or of the server.
    pub fn with(&mut self, n: usize, act: impl FnOnce(Instant, &mut Host)) {
        self.net.with(self.machines[n], act);
    }

    /// Lets time pass. A process whose fuse blows meanwhile is back after its time.
    ///
    /// # Panics
    /// If a machine runs in circles without time passing, or what must be true at every step is not.
    pub fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        loop {
            self.run_alive(fuse::until(self.fuse, end));
            match fuse::after(&mut self.fuse, &self.net) {
                After::Back(who) => self.start(self.number(who)),
                After::Died => {}
                After::End if self.net.now >= end => return,
                After::End => {}
            }
        }
    }

    fn run_alive(&mut self, end: Instant) {
        let Self { net, machines, ends, laws, remembered, .. } = self;
        let lit = self.fuse.as_ref().and_then(Fuse::lit);
        net.run_until(end, |net, moment| {
            if moment == Moment::Delivered {
                laws.delivered(net, machines);
                return false;
            }
            for (by, id) in machines.iter().enumerate() {
                for (path, datagram) in net.machine(*id).heard.iter().flatten() {
                    remembered.push_back(Heard { by, path: *path, datagram: datagram.clone() });
                }
            }
            remembered.drain(..remembered.len().saturating_sub(REMEMBERED));
            laws.look(net, machines, ends);
            lit.is_some_and(|id| net.machine(id).host().is_none())
        });
        if let Some(n) = lit.filter(|id| self.net.machine(*id).host().is_none()).map(|id| self.number(id)) {
            self.laws.died(n, &self.ends);
        }
    }

    fn number(&self, id: MachineId) -> usize {
        self.machines.iter().position(|m| *m == id).unwrap_or(0)
    }

    /// Plays a story.
    pub fn play(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
    }

    /// One step of a story.
    pub fn step(&mut self, step: Step) {
        let (hosts, machines) = (self.hosts(), self.machines.len());
        match step {
            Step::Pause(time) => self.run(time),
            Step::Data { from, to, count } => {
                for _ in 0..count {
                    self.send(from % hosts, to % hosts);
                    self.run(APART);
                }
            }
            Step::Forge { by, of, to } => _ = self.forge(by % hosts, of % hosts, to % hosts),
            Step::Replay { to, number, elsewhere } => self.replay(to % machines, number.into(), elsewhere),
            Step::Enter(n, place) => self.enter(n % hosts, place),
            Step::BothEnter(moves) => moves.into_iter().for_each(|(n, place)| self.enter(n % hosts, place)),
            Step::Leave(n) => self.net.place(self.machines[n % hosts], None),
            Step::NatForgets(n) => self.net.forget_mappings(self.networks[n % hosts][1]),
            Step::Weather { loss, duplication, reordering } => self.weather(loss, duplication, reordering),
            Step::Crash(n, time) => {
                let n = n % machines;
                self.die(n, |machine, _| machine.crash());
                self.run(time);
                self.start(n);
            }
            Step::Fuse { who, outputs, down } => self.light(who % machines, outputs, down),
            Step::Stop(n, away) => {
                let n = n % machines;
                self.die(n, |machine, now| {
                    machine.with(now, |host| end_all(now, host));
                    machine.stop(now);
                });
                self.run(away);
                self.start(n);
            }
            Step::ServerGone(time) => {
                if let Some(server) = self.machines.get(hosts) {
                    self.net.unplug(*server);
                }
                self.run(time);
                self.server_comes();
            }
            Step::Sleep(n, time, place) => self.sleep(n % hosts, Duration::ZERO, time, place),
            Step::Nap(n, time, place) => self.sleep(n % hosts, NOTICE, time, place),
            Step::Rekey(n) => self.with(n % hosts, rekey_all),
            Step::Close(n) => self.with(n % hosts, end_all),
            Step::Reload(n, edit) => self.reload(n % hosts, edit),
        }
    }

    /// Sends a numbered packet; its number.
    pub fn send(&mut self, from: usize, to: usize) -> u64 {
        self.forge(from, from, to)
    }

    fn forge(&mut self, by: usize, of: usize, to: usize) -> u64 {
        let number = self.laws.send(by, to);
        let (now, [ours, theirs]) = (self.net.now, [of, to].map(|n| self.ends.tags[n].0.into()));
        self.net.machine_mut(self.machines[by]).send(now, ours, theirs, number);
        number
    }

    /// Whether a packet has arrived.
    #[must_use]
    pub fn has(&self, n: usize, number: u64) -> bool {
        self.machine(n).received.contains(&number)
    }

    fn replay(&mut self, to: usize, number: usize, elsewhere: bool) {
        let of: Vec<&Heard> = self.remembered.iter().filter(|heard| heard.by == to).collect();
        let Some(heard) = of.get(number % of.len().max(1)) else { return };
        let (mut path, mut datagram) = (heard.path, heard.datagram.clone());
        if elsewhere {
            path.remote.set_ip(STRANGER[usize::from(path.remote.is_ipv6())]);
            if path.carrier == Carrier::RawHip {
                set_checksum(&mut datagram, Some((path.remote.ip(), path.local.ip())));
            }
        }
        let (now, machine) = (self.net.now, self.net.machine_mut(self.machines[to]));
        if machine.listens() {
            machine.receive(now, path, datagram);
            // What a stranger sends shows nothing.
            if let Some(heard) = &mut machine.heard {
                heard.pop();
            }
        }
    }

    // ---- places -----------------------------------------------------------------------------------------------------------------------

    /// A host enters a network.
    pub fn enter(&mut self, n: usize, place: Place) {
        let outer = self.ends.settings.outer;
        let family = if outer == Family::Both { place.family } else { outer };
        let there = family.of(addresses(n, place.access, place.number));
        let network = self.networks[n][usize::from(place.access == Access::B)];
        self.net.place(self.machines[n], Some((network, there.clone())));
        if place.astray && self.ends.settings.multihoming {
            let (now, believed) = (self.net.now, [there, family.of(astray(n))].concat());
            self.net.machine_mut(self.machines[n]).set_addresses(now, believed);
        }
    }

    pub(super) fn go_home(&mut self, n: usize) {
        let access = self.ends.home(n);
        self.enter(n, Place { access, number: 0, family: Family::Both, astray: false });
    }

    pub(super) fn server_comes(&mut self) {
        if let Some(server) = self.machines.get(self.hosts()) {
            self.net.place(*server, Some((self.centre, self.ends.settings.outer.of(SERVER))));
        }
    }

    pub(super) fn weather(&mut self, loss: f64, duplication: f64, reordering: f64) {
        for network in self.networks.iter().flatten() {
            self.net.set_weather(*network, loss, duplication, reordering);
        }
    }

    // ---- processes --------------------------------------------------------------------------------------------------------------------

    /// A process ends now, and its fuse with it: who ends it starts it again.
    fn die(&mut self, n: usize, end: impl FnOnce(&mut Machine, Instant)) {
        let (now, id) = (self.net.now, self.machines[n]);
        self.fuse.take_if(|fuse| fuse.is_of(id));
        end(self.net.machine_mut(id), now);
        // Its farewells are its own.
        self.laws.look(&mut self.net, &self.machines, &self.ends);
        self.net.post();
        self.laws.died(n, &self.ends);
    }

    /// The server's process dies, and is back at once.
    pub(super) fn restart_server(&mut self) {
        let server = self.ends.server();
        self.die(server, |machine, _| machine.crash());
        self.start(server);
    }

    fn start(&mut self, n: usize) {
        self.lives += 1;
        let now = self.net.now;
        let host = self.ends.core(n, now, self.net.rng());
        self.net.machine_mut(self.machines[n]).restart(now, host);
        self.equip(n);
    }

    /// A host gets its radio, if it has one.
    fn equip(&mut self, n: usize) {
        if self.ends.has_radio(n) {
            let now = self.net.now;
            self.net.machine_mut(self.machines[n]).let_sleep(now, radio(), 1, SERVICES);
        }
    }

    fn light(&mut self, n: usize, outputs: u32, down: Duration) {
        if self.is_alive() {
            self.disarm();
            self.fuse = Some(Fuse::light(&mut self.net, self.machines[n], outputs, down));
        }
    }

    /// Whether every process runs.
    pub(super) fn is_alive(&self) -> bool {
        self.machines.iter().all(|id| self.net.machine(*id).host().is_some())
    }

    /// No process dies that has not died.
    pub(super) fn disarm(&mut self) {
        self.fuse = None;
        for id in &self.machines {
            self.net.machine_mut(*id).fuse = None;
        }
    }

    /// A host sleeps, and has this long to say so before it hears nothing.
    fn sleep(&mut self, n: usize, notice: Duration, time: Duration, place: Place) {
        let lives = self.lives;
        self.with(n, |now, host| _ = host.suspend(now, Reason::User));
        self.run(notice);
        self.net.unplug(self.machines[n]);
        // Its radio needs a moment.
        self.run(NOTICE);
        let ran = |world: &Self| world.machine(n).wakeups.values().sum::<u64>();
        let before = ran(self);
        self.run(time);
        // A process that has started again does not know of the sleep.
        assert!(
            lives != self.lives || before == ran(self),
            "a timer ran on a sleeping host; seed {}, host {n}: {:?}",
            self.seed,
            self.machine(n).wakeups
        );
        self.enter(n, place);
        self.wake(n);
    }

    pub(super) fn wake(&mut self, n: usize) {
        self.with(n, |now, host| host.resume(now, Cause::User));
    }

    pub(super) fn reload(&mut self, n: usize, edit: Edit) {
        self.ends.edits[n] = edit;
        let ends = self.ends.clone();
        self.with(n, |now, host| ends.reload(n, now, host));
    }
}

fn end_all(now: Instant, host: &mut Host) {
    host.node_mut().with_manager(now, |hip: &mut Hip| {
        let all: Vec<_> = hip.describe().map(|d| d.id).collect();
        all.into_iter().for_each(|id| hip.close(now, id));
    });
}

fn rekey_all(now: Instant, host: &mut Host) {
    host.node_mut().with_manager(now, |hip: &mut Hip| {
        let all: Vec<_> = hip.describe().filter_map(|d| d.child).collect();
        all.into_iter().for_each(|child| hip.rekey_child(now, child));
    });
}
