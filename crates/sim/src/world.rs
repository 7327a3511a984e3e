//! The world: two hosts, the links and the NAT between them, and one clock. Owns time and the laws of the network.

use crate::ends::{
    CONNECTION, EPOCH, GATEWAY, device, device_connections, gateway, gateway_connections, rekey_peers,
    ticket_keys,
};
use crate::fuse::{self, After, Fuse};
use crate::invariants::Invariants;
use crate::machine::Machine;
use crate::script::{Edit, Script, Step};
use crate::settings::Settings;
use crate::store::Store;
use crate::thief::DEN;
use crate::topology::{Astray, MachineId, Moment, NetworkId, Topology};
use dormouse_netem::{LinkConfig, NatConfig};
use dormouse_node::ladder::{Rung, State};
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_node::{ANNOUNCE, Change, Rekey, SessionInfo, SleepFlags};
use dormouse_sansio::{Instant, UnixTime};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The device's name.
pub(crate) const DEVICE: &str = "device";
const NAT_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 6);

/// An access network of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Routed.
    A,
    /// Behind a NAT, for IPv4.
    B,
}

impl Access {
    fn addresses(self) -> [IpAddr; 2] {
        match self {
            Self::A => {
                [Ipv4Addr::new(10, 1, 0, 2).into(), Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2).into()]
            }
            Self::B => [
                Ipv4Addr::new(192, 168, 7, 2).into(),
                Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 2).into(),
            ],
        }
    }
}

/// See the module's documentation.
pub struct World {
    pub(crate) net: Topology,
    device: MachineId,
    gateway: MachineId,
    a: NetworkId,
    b: NetworkId,
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
    /// One behind each CHILD SA: packets go to and from them in turn.
    pub(crate) servers: Vec<[IpAddr; 2]>,
    /// A thief with a copy of the device's disk.
    pub(crate) thief: Option<MachineId>,
    /// Ticket keys with which the gateway has begun.
    keys: Vec<Vec<u8>>,
    sent: u64,
    /// How often a process has begun.
    lives: u32,
    pub(crate) fuse: Option<Fuse>,
    pub(crate) invariants: Invariants,
}

impl World {
    /// A world in which the device is in network A and wants to be connected.
    ///
    /// # Panics
    /// If `settings` do not make a valid configuration.
    #[must_use]
    pub fn new(seed: u64, settings: Settings) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: settings.delay, jitter: settings.delay / 4, ..LinkConfig::default() };
        let mut nat = NatConfig::new(NAT_OUTSIDE.into());
        nat.idle = settings.nat_idle;
        let (a, b) = (net.add_network(link, None), net.add_network(link, Some(nat)));
        let centre = net.add_network(LinkConfig::default(), None);
        let keys = net.ticket_keys();
        let device = net.add_device(&settings, DEVICE);
        let gateway = net.add_gateway(&settings, DEVICE, keys.clone());
        net.machine_mut(device).set_lag(seed, settings.lag);
        net.machine_mut(gateway).set_lag(seed ^ 1, settings.lag);
        net.machine_mut(gateway).store = Store::new(seed);
        net.place(gateway, Some((centre, GATEWAY.to_vec())));
        let mut world = Self {
            net,
            device,
            gateway,
            a,
            b,
            seed,
            servers: settings.servers(),
            settings,
            thief: None,
            keys: vec![keys],
            sent: 0,
            lives: 0,
            fuse: None,
            invariants: Invariants::default(),
        };
        world.enter(Access::A);
        world.connect();
        world
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.net.now
    }

    /// The mobile end.
    #[must_use]
    pub fn device(&self) -> &Machine {
        self.net.machine(self.device)
    }

    /// The mobile end.
    pub fn device_mut(&mut self) -> &mut Machine {
        self.net.machine_mut(self.device)
    }

    /// The fixed end.
    #[must_use]
    pub fn gateway(&self) -> &Machine {
        self.net.machine(self.gateway)
    }

    /// The fixed end.
    pub fn gateway_mut(&mut self) -> &mut Machine {
        self.net.machine_mut(self.gateway)
    }

    /// Datagrams of the gateway for which this is true are lost.
    pub fn set_astray(&mut self, astray: Option<Astray>) {
        self.net.set_astray(self.gateway, astray);
    }

    /// The device wants to be connected.
    pub fn connect(&mut self) {
        self.net.with(self.device, |now, host| _ = host.up(now, CONNECTION));
    }

    /// Lets time pass. A process whose fuse blows meanwhile is back after its time.
    ///
    /// # Panics
    /// If an end runs in circles without time passing, or what must be true at every step is not.
    pub fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        loop {
            self.run_alive(fuse::until(self.fuse, end));
            match fuse::after(&mut self.fuse, &self.net) {
                After::Back(who) if who == self.gateway => self.start_gateway(true),
                After::Back(_) => self.start_device(),
                After::Died => {}
                After::End if self.now() >= end => return,
                After::End => {}
            }
        }
    }

    /// Until `end`, or until the process with the fuse has died.
    fn run_alive(&mut self, end: Instant) {
        let (device, gateway, seed) = (self.device, self.gateway, self.seed);
        let (invariants, sent, servers) = (&mut self.invariants, self.sent, &self.servers);
        let lit = self.fuse.as_ref().and_then(Fuse::lit);
        let mut before = (usize::MAX, 0);
        self.net.run_until(end, |net, moment| {
            let (d, g) = (net.machine(device), net.machine(gateway));
            if moment == Moment::Delivered {
                before = (g.outbox.len(), g.store.done.len());
                return false;
            }
            // What has waited for the store is answered when that has: also the announcement of the sleep.
            let (said, done) = before;
            let said = g.outbox.iter().skip(said).any(|(path, _)| path.remote.ip() != DEN);
            let said = said && done == g.store.done.len();
            assert!(
                !said || !only_sleepers(g, net.now),
                "a timer of the gateway disturbed a sleeping device; seed {seed} at {:?}",
                net.now
            );
            before = (usize::MAX, 0);
            for (is_device, machine) in [(true, d), (false, g)] {
                for (path, datagram) in &machine.outbox {
                    invariants.sends(is_device, path, datagram, &d.inner, servers);
                }
            }
            invariants.look(sent, d, g);
            lit.is_some_and(|id| net.machine(id).host().is_none())
        });
    }

    /// The device enters a network.
    pub fn enter(&mut self, access: Access) {
        let network = if access == Access::A { self.a } else { self.b };
        let addresses = self.settings.outer.of(access.addresses());
        self.net.place(self.device, Some((network, addresses)));
    }

    /// The device leaves every network.
    pub fn leave(&mut self) {
        self.net.place(self.device, None);
    }

    /// Sends a numbered packet from the device to the server; returns its number.
    pub fn send_up(&mut self) -> u64 {
        self.send_up_to(9)
    }

    /// Sends a numbered packet from the device to a port of the server; returns its number.
    pub fn send_up_to(&mut self, port: u16) -> u64 {
        self.sent += 1;
        let (now, sent) = (self.now(), self.sent);
        if let Some((inner, server)) = self.ends() {
            self.device_mut().send_to(now, inner, SocketAddr::new(server, port), sent);
        }
        sent
    }

    /// The device's inner address whose turn it is, and that of the server whose turn it is.
    fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        let (inner, turn) = (&self.device().inner, usize::try_from(self.sent / 2).unwrap_or(0));
        let own = *inner.get(turn / self.servers.len() % inner.len().max(1))?;
        Some((own, self.servers[turn % self.servers.len()][usize::from(own.is_ipv6())]))
    }

    /// Sends a numbered packet from the server to the device; returns its number.
    pub fn send_down(&mut self) -> u64 {
        self.sent += 1;
        let (now, sent) = (self.now(), self.sent);
        if let Some((inner, server)) = self.ends() {
            self.gateway_mut().send(now, server, inner, sent);
        }
        sent
    }

    /// Climbs one rung of the device's session, which must be up.
    ///
    /// # Panics
    /// With the seed, if it cannot be done now.
    pub fn exercise(&mut self, rung: Rung) {
        let now = self.now();
        let begun = self.device_mut().node_mut().is_some_and(|node| node.exercise(now, CONNECTION, rung));
        assert!(begun, "seed {}: {rung:?} cannot be exercised", self.seed);
        self.device_mut().flush(now);
    }

    /// Plays a story.
    pub fn play(&mut self, script: &Script) {
        for step in &script.0 {
            self.step(*step);
        }
    }

    /// One step of a story.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Pause(time) => self.run(time),
            Step::Enter(access) => self.enter(access),
            Step::Leave => self.leave(),
            Step::Sleep(time, access) => self.sleep(time, access),
            Step::Nap(time, access) => self.nap(time, access),
            Step::NatForgets => self.net.forget_mappings(self.b),
            Step::Weather { loss, duplication, reordering } => self.weather(loss, duplication, reordering),
            Step::GatewayCrash(time, keys_survive) => {
                self.kill(true);
                self.run(time);
                self.start_gateway(keys_survive);
            }
            Step::DeviceCrash(time) => {
                self.kill(false);
                self.run(time);
                self.start_device();
            }
            Step::Data(count) => {
                for _ in 0..count {
                    self.send_up();
                    self.send_down();
                    self.run(Duration::from_millis(50));
                }
            }
            Step::RekeyChild(both) => self.rekey(both, Rekey::Children),
            Step::RekeyIke(both) => self.rekey(both, Rekey::Ike),
            Step::DeleteChild(number) => self.delete_child(usize::from(number)),
            Step::Fuse { gateway, outputs, down } => self.light(gateway, outputs, down),
            Step::DownUp(time) => {
                let now = self.now();
                self.device_mut().with(now, |host| _ = host.down(now, CONNECTION));
                self.run(time);
                self.connect();
            }
            Step::Stop { gateway, away } => {
                self.stop(gateway);
                self.run(away);
                if gateway { self.start_gateway(true) } else { self.start_device() }
            }
            Step::Reload { gateway, edit } => self.reload(gateway, edit),
        }
    }

    /// A process dies now, and its fuse with it: who kills it starts it again.
    fn kill(&mut self, gateway: bool) {
        let who = self.end(gateway);
        self.fuse.take_if(|fuse| fuse.is_of(who));
        if gateway { self.gateway_mut().crash() } else { self.device_mut().crash() }
    }

    /// A daemon ends in order.
    fn stop(&mut self, gateway: bool) {
        let (now, who) = (self.now(), self.end(gateway));
        self.fuse.take_if(|fuse| fuse.is_of(who));
        if gateway { self.gateway_mut().stop(now) } else { self.device_mut().stop(now) }
    }

    /// A daemon reads its configuration again.
    fn reload(&mut self, gateway: bool, edit: Edit) {
        let (now, changed) = (self.now(), self.settings.edit(gateway, edit));
        let anew: BTreeSet<String> = changed.then(|| CONNECTION.to_owned()).into_iter().collect();
        let (connections, machine) = if gateway {
            (gateway_connections(&self.settings, DEVICE), self.gateway_mut())
        } else {
            (device_connections(&self.settings, DEVICE), self.device_mut())
        };
        machine.with(now, |host| host.reconfigure(now, &connections, &anew));
    }

    /// A process dies instead of carrying out the output after the next `outputs`, and is back after `down` with what its disk holds.
    fn light(&mut self, gateway: bool, outputs: u32, down: Duration) {
        if !self.is_alive() {
            return;
        }
        (self.device_mut().fuse, self.gateway_mut().fuse) = (None, None);
        let who = self.end(gateway);
        self.fuse = Some(Fuse::light(&mut self.net, who, outputs, down));
    }

    const fn end(&self, gateway: bool) -> MachineId {
        if gateway { self.gateway } else { self.device }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.device().host().is_some() && self.gateway().host().is_some()
    }

    fn sleep(&mut self, time: Duration, access: Access) {
        let now = self.now();
        self.device_mut().with(now, |host| _ = host.suspend(now, Reason::User));
        self.net.post();
        self.net.unplug(self.device);
        let before = (self.lives, self.device().wakeups.values().sum::<u64>());
        self.run(time);
        let after = (self.lives, self.device().wakeups.values().sum::<u64>());
        assert!(
            before.0 != after.0 || before == after,
            "a timer ran on a sleeping device; seed {}: {:?}",
            self.seed,
            self.device().wakeups
        );
        self.wake(access);
    }

    /// The device says that it sleeps, for `expect` at most, and its radio goes off once the gateway has answered.
    pub fn announce_sleep(&mut self, expect: Option<Duration>, wishes: SleepFlags) {
        let now = self.now();
        self.device_mut().sleep = None;
        self.device_mut().with(now, |host| {
            host.node_mut().prepare_sleep(now, CONNECTION, expect, None, wishes);
        });
        let mut patience = ANNOUNCE;
        while self.device().sleep.is_none() && !patience.is_zero() {
            let step = Duration::from_millis(10).min(patience);
            self.run(step);
            patience -= step;
        }
        let now = self.now();
        self.device_mut().with(now, |host| _ = host.suspend(now, Reason::User));
        self.net.post();
        self.net.unplug(self.device);
    }

    /// The device's radio is back, in `access`.
    pub fn wake(&mut self, access: Access) {
        self.enter(access);
        let now = self.now();
        self.device_mut().with(now, |host| host.resume(now, Cause::User));
    }

    /// A sleep that is announced first. A gateway that has heard of it says nothing to the device until it is over.
    fn nap(&mut self, time: Duration, access: Access) {
        let now = self.now();
        self.device_mut().with(now, |host| {
            host.node_mut().prepare_sleep(now, CONNECTION, Some(time), None, SleepFlags::default());
        });
        self.run(dormouse_node::ANNOUNCE + Duration::from_millis(1));
        let now = self.now();
        self.device_mut().with(now, |host| _ = host.suspend(now, Reason::User));
        self.net.unplug(self.device);
        // What is on its way arrives.
        self.run(Duration::from_secs(2));
        let known = self.gateway_rests();
        let said = |w: &Self| (w.lives, w.gateway().node().map(|n| n.ike_stats().datagrams_out));
        let before = said(self);
        self.run(time);
        let after = said(self);
        // A gateway that has died meanwhile is not asked.
        assert!(
            !known || before.0 != after.0 || after.1.is_none() || before == after,
            "the gateway disturbed a sleeping device; seed {}",
            self.seed
        );
        self.enter(access);
        let now = self.now();
        self.device_mut().with(now, |host| host.resume(now, Cause::User));
    }

    /// The gateway has no session but with a device that it knows to be asleep. One without a session may still have an SA whose delete
    /// it repeats.
    fn gateway_rests(&self) -> bool {
        let Some(node) = self.gateway().node() else { return true };
        let sessions = node.gateway_sessions(self.now());
        if sessions.is_empty() { node.ike().is_empty() } else { sessions.iter().all(|s| s.asleep) }
    }

    pub(crate) fn weather(&mut self, loss: f64, duplication: f64, reordering: f64) {
        for network in [self.a, self.b] {
            self.net.set_weather(network, loss, duplication, reordering);
        }
    }

    fn rekey(&mut self, both: bool, which: Rekey) {
        let now = self.now();
        self.device_mut().with(now, |host| _ = host.node_mut().rekey(now, CONNECTION, which));
        if both {
            self.gateway_mut().with(now, |host| rekey_peers(now, host.node_mut(), which));
        }
    }

    fn delete_child(&mut self, number: usize) {
        let (now, sessions) = (self.now(), self.gateway().node().map(|n| n.gateway_sessions(self.now())));
        let of =
            |s: &SessionInfo| s.children.iter().map(|c| (s.peer.clone(), c.id.spi())).collect::<Vec<_>>();
        let children: Vec<_> = sessions.iter().flatten().flat_map(of).collect();
        if let Some((peer, spi)) = children.get(number % children.len().max(1)) {
            let machine = self.gateway_mut();
            machine.with(now, |host| _ = host.node_mut().remove_child(now, CONNECTION, peer, *spi));
        }
    }

    fn start_gateway(&mut self, keys_survive: bool) {
        let (now, unix) = (self.now(), self.unix());
        self.lives += 1;
        if !keys_survive {
            let keys = ticket_keys(self.net.rng(), unix);
            self.gateway_mut().disk.ticket_keys.clone_from(&keys);
            self.keys.push(keys);
        }
        let disk = self.gateway().disk.clone();
        let host = gateway(&self.settings, DEVICE, self.net.rng(), &disk, now, unix);
        self.gateway_mut().restart(now, host);
    }

    fn start_device(&mut self) {
        let (now, unix) = (self.now(), self.unix());
        self.lives += 1;
        let host = device(&self.settings, DEVICE, self.net.rng(), now, unix);
        self.device_mut().restart(now, host);
        self.connect();
    }

    /// All ticket keys that the gateway has had.
    pub(crate) fn ticket_keys(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.keys.iter().chain([&self.gateway().disk.ticket_keys]).cloned()
    }

    pub(crate) fn unix(&self) -> UnixTime {
        EPOCH + (self.now() - Instant::ZERO)
    }

    /// The device's outer address, if it has one.
    pub(crate) fn device_address(&self) -> Option<SocketAddr> {
        self.net.addresses(self.device).first().map(|address| SocketAddr::new(*address, 500))
    }

    /// By which rungs the device came up, the first first.
    #[must_use]
    pub fn rungs(&self) -> Vec<Rung> {
        let up = |c: &Change| if let Change::Up { rung, .. } = c { Some(*rung) } else { None };
        self.device().changes.iter().filter_map(up).collect()
    }

    /// What the device's ladder is doing.
    #[must_use]
    pub fn device_state(&self) -> State {
        self.device()
            .node()
            .map_or(State::Down, |n| n.client_infos(self.now()).first().map_or(State::Down, |c| c.state))
    }
}

/// The gateway has sessions, all with devices that it knows to be asleep, and nobody calls: a caller by EAP is answered, when the gateway has signed, before
/// it has a session in the place of the one that sleeps.
fn only_sleepers(gateway: &Machine, now: Instant) -> bool {
    let Some(node) = gateway.node() else { return false };
    let sessions = node.gateway_sessions(now);
    !sessions.is_empty() && sessions.iter().all(|s| s.asleep) && node.ike().half_open() == 0
}
