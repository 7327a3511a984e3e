//! The world: gateways behind one name, the store that they share, devices, and a thief. Owns who is where, alive and awake, and what is to
//! happen later.

use super::common::Common;
use super::drains::{Kept, is_drained};
use super::ends::{self, SERVER, gateway_address, identity};
use super::laws::{Laws, holder};
use super::script::Step;
use super::settings::Settings;
use crate::ends::{CONNECTION, EPOCH};
use crate::machine::Machine;
use crate::shared::{Database, Line, Member};
use crate::topology::{MachineId, Moment, NetworkId, Topology};
use dormouse_ike::admission::Denial;
use dormouse_netem::{LinkConfig, NatConfig};
use dormouse_node::shared::{Balance, Denied, SharedBalance};
use dormouse_node::sleeper::{Cause, Reason};
use dormouse_node::{ANNOUNCE, Rekey, SleepFlags};
use dormouse_sansio::{Entropy, Instant, UnixTime};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

/// Where the thief is.
const DEN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 66, 0, 2));
/// IKE_SA_INIT (RFC 7296 section 3.1), which the thief has no use for who cannot authenticate.
const IKE_SA_INIT: u8 = 34;
/// A gateway that cannot reach the store when it starts is started again so soon.
const AGAIN: Duration = Duration::from_secs(1);
/// Slots of the pool, as `cluster init` makes them.
const SLOTS: u8 = 4;

pub(crate) struct Gateway {
    pub(crate) id: MachineId,
    pub(crate) network: NetworkId,
    pub(crate) line: Rc<RefCell<Line>>,
    /// Until then devices do not reach it.
    deaf: Instant,
    /// How long it is away when it has been drained.
    pub(crate) away: Duration,
}

pub(crate) struct Device {
    pub(crate) id: MachineId,
    /// Its two networks, its address in each, and in which it is.
    networks: [(NetworkId, IpAddr); 2],
    at: usize,
    pub(crate) asleep: bool,
}

/// A thief with copies of a device's disk, and nothing else of it; where sessions are limited, with its credentials too.
pub(crate) struct Thief {
    pub(crate) id: MachineId,
    /// Whose disk it was.
    pub(crate) of: usize,
}

/// What is to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Later {
    Lead,
    StartGateway(usize),
    StartDevice(usize),
    Suspend(usize),
    Wake(usize),
    Up(usize),
    Hear(usize),
    ThiefGoes,
}

/// See the module's documentation.
pub struct World {
    pub(crate) net: Topology,
    pub(crate) database: Rc<RefCell<Database>>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) devices: Vec<Device>,
    pub(crate) thief: Option<Thief>,
    later: BTreeMap<(Instant, u64), Later>,
    counted: u64,
    pub(crate) laws: Laws,
    pub(crate) kept: Kept,
    pub(crate) common: Common,
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
    loss: f64,
}

impl World {
    /// A world in which all devices want to be connected.
    ///
    /// # Panics
    /// If the configuration is not valid.
    #[must_use]
    pub fn new(seed: u64, settings: &Settings) -> Self {
        let mut world = Self {
            net: Topology::new(seed),
            database: Rc::new(RefCell::new(Database::new(seed, SLOTS))),
            gateways: Vec::new(),
            devices: Vec::new(),
            thief: None,
            later: BTreeMap::new(),
            counted: 0,
            laws: Laws::new(seed),
            kept: Kept::default(),
            common: Common::default(),
            seed,
            settings: settings.clone(),
            loss: 0.0,
        };
        (0..usize::from(settings.gateways)).for_each(|n| world.add_gateway(n));
        (0..usize::from(settings.devices)).for_each(|n| world.add_device(n));
        world
    }

    fn link(&self) -> LinkConfig {
        let delay = Duration::from_millis(self.settings.delay_ms);
        LinkConfig { delay, jitter: delay / 4, ..LinkConfig::default() }
    }

    fn add_gateway(&mut self, n: usize) {
        let network = self.net.add_network(LinkConfig::default(), None);
        let address = gateway_address(n).to_string();
        let mut line = Line::new(self.seed, n, address, self.database.clone());
        line.link.slow = Duration::from_millis(self.settings.slow_ms);
        line.takeover = self.settings.takeover;
        let ahead = self.settings.clocks.get(n).copied().unwrap_or(0);
        line.clock = (ahead, EPOCH);
        // A process that has not begun: a device's core, whose place is taken.
        let (now, unix) = (self.net.now, self.unix());
        let mut machine = Machine::new(ends::device(&self.settings, n, self.net.rng(), now, unix));
        machine.crash();
        machine.skew = ahead;
        machine.set_lag(self.seed ^ n as u64, Duration::from_millis(self.settings.lag_ms));
        let id = self.net.add_machine(machine);
        self.net.place(id, Some((network, self.addresses_of(n))));
        self.lose_complaints(id);
        let line = Rc::new(RefCell::new(line));
        self.gateways.push(Gateway { id, network, line, deaf: Instant::ZERO, away: Duration::ZERO });
        self.start_gateway(n);
    }

    fn add_device(&mut self, n: usize) {
        let (low, link) = (u8::try_from(n).unwrap_or(0), self.link());
        let every = usize::from(self.settings.natted);
        let natted = every > 0 && n.is_multiple_of(every);
        let networks = [0_u8, 1].map(|which| {
            let outside = Ipv4Addr::new(10, 1 + which, low, 2);
            match natted && which == 1 {
                true => {
                    let network = self.net.add_network(link, Some(NatConfig::new(outside.into())));
                    (network, Ipv4Addr::new(192, 168, low, 2).into())
                }
                false => (self.net.add_network(link, None), outside.into()),
            }
        });
        let (now, unix) = (self.net.now, self.unix());
        let mut machine = Machine::new(ends::device(&self.settings, n, self.net.rng(), now, unix));
        machine.gateways.insert(CONNECTION.into(), self.name_for(n));
        machine.heard = self.settings.offers_ids(n).then(Vec::new);
        machine.set_lag(self.seed ^ (16 + n as u64), Duration::from_millis(self.settings.lag_ms));
        let id = self.net.add_machine(machine);
        self.devices.push(Device { id, networks, at: 0, asleep: false });
        self.plug(n);
        self.net.with(id, |now, host| _ = host.up(now, CONNECTION));
    }

    pub(crate) fn now(&self) -> Instant {
        self.net.now
    }

    fn unix(&self) -> UnixTime {
        EPOCH + (self.net.now - Instant::ZERO)
    }

    pub(crate) fn gateway(&self, n: usize) -> &Machine {
        self.net.machine(self.gateways[n].id)
    }

    pub(crate) fn device(&self, n: usize) -> &Machine {
        self.net.machine(self.devices[n].id)
    }

    fn plug(&mut self, n: usize) {
        let Device { id, networks, at, .. } = self.devices[n];
        let (network, address) = networks[at];
        self.net.place(id, Some((network, vec![address])));
    }

    pub(crate) fn later(&mut self, after: Duration, what: Later) {
        self.counted += 1;
        self.later.insert((self.net.now + after, self.counted), what);
    }

    // ---- time -----------------------------------------------------------------------------------------------------

    /// Lets time pass.
    ///
    /// # Panics
    /// If what must be true at every step is not.
    pub fn run(&mut self, time: Duration) {
        let end = self.net.now + time;
        loop {
            let next = self.later.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= end);
            self.run_until(next.unwrap_or(end).max(self.net.now));
            if self.stop_drained() {
                continue;
            }
            let Some(_) = next else { return };
            if let Some((_, what)) = self.later.pop_first() {
                self.happens(what);
            }
        }
    }

    fn run_until(&mut self, end: Instant) {
        let Self { net, gateways, devices, thief, database, laws, common, .. } = self;
        net.run_until(end, |net, moment| {
            if moment == Moment::Delivered {
                common.answer(net, devices);
            }
            if moment == Moment::Acted {
                laws.look(net, gateways, devices, thief.as_ref(), &mut database.borrow_mut());
                let rung = std::mem::take(&mut database.borrow_mut().rung);
                if rung {
                    gateways.iter().for_each(|gateway| _ = net.machine_mut(gateway.id));
                }
            }
            moment == Moment::Acted && gateways.iter().any(|gateway| is_drained(net.machine(gateway.id)))
        });
    }

    fn happens(&mut self, what: Later) {
        match what {
            Later::Lead => self.lead_to_any(),
            Later::StartGateway(n) => self.start_gateway(n),
            Later::StartDevice(n) => self.start_device(n),
            Later::Suspend(n) => self.suspend(n),
            Later::Wake(n) => self.wake(n),
            Later::Up(n) if self.devices[n].asleep => {
                // It connects when it is awake.
                self.later(AGAIN, Later::Up(n));
            }
            Later::Up(n) => self.net.with(self.devices[n].id, |now, host| _ = host.up(now, CONNECTION)),
            Later::Hear(n) => self.listen(n),
            Later::ThiefGoes => {
                if let Some(thief) = &self.thief {
                    self.net.machine_mut(thief.id).crash();
                }
            }
        }
    }

    // ---- what happens ---------------------------------------------------------------------------------------------

    /// Plays a story.
    pub fn play(&mut self, steps: &[Step]) {
        self.note_story(steps);
        // Everybody has come, in most stories.
        if !self.seed.is_multiple_of(4) {
            self.run(Duration::from_secs(2));
        }
        for step in steps {
            self.step(*step);
        }
    }

    /// One step of a story.
    pub fn step(&mut self, step: Step) {
        let (gateways, devices) = (self.gateways.len(), self.devices.len());
        let g = |n: u8| usize::from(n) % gateways;
        let d = |n: u8| usize::from(n) % devices;
        let time = Duration::from_millis;
        match step {
            Step::Pause { ms } => self.run(time(ms)),
            Step::Data { count } => self.data(count),
            Step::Move { device } => self.moves(d(device)),
            Step::Sleep { device, ms, announced } => self.sleep(d(device), time(ms), announced),
            Step::DeviceCrash { device, ms } => self.kill_device(d(device), time(ms)),
            Step::DownUp { device, ms } => self.down_up(d(device), time(ms)),
            Step::Rekey { device } => self.net.with(self.devices[d(device)].id, |now, host| {
                _ = host.node_mut().rekey(now, CONNECTION, Rekey::Ike);
            }),
            Step::GatewayCrash { gateway, ms } => self.kill_gateway(g(gateway), time(ms), false),
            Step::GatewayStop { gateway, ms } => self.kill_gateway(g(gateway), time(ms), true),
            Step::Drain { gateway, within_ms, ms } => self.drain(g(gateway), time(within_ms), time(ms)),
            Step::Lead { gateway } => self.lead(g(gateway)),
            Step::Deaf { gateway, ms } => self.deafen(g(gateway), time(ms)),
            Step::Weather { loss } => {
                self.loss = f64::from(loss) / 100.0;
                self.set_weather();
            }
            Step::Deny { gateway, device } => self.deny(g(gateway), d(device)),
            Step::Allow { gateway, device } => self.allow(g(gateway), d(device)),
            Step::Copy { device } => self.copy(d(device)),
            Step::Thief { ms } => self.let_thief_try(time(ms)),
            Step::Cut { .. }
            | Step::Break { .. }
            | Step::Flaky { .. }
            | Step::Slow { .. }
            | Step::StoreDown { .. }
            | Step::Failover { .. } => self.befall_store(step),
        }
    }

    /// What befalls the store and the links to it.
    fn befall_store(&mut self, step: Step) {
        let (now, time) = (self.net.now, Duration::from_millis);
        match step {
            Step::Cut { gateway, ms } => {
                let n = usize::from(gateway) % self.gateways.len();
                self.gateways[n].line.borrow_mut().link.cut = now + time(ms);
            }
            Step::Break { gateway } => {
                self.database.borrow_mut().part(usize::from(gateway) % self.gateways.len());
            }
            Step::Flaky { percent } => {
                self.gateways.iter().for_each(|g| g.line.borrow_mut().link.flaky = percent.into());
            }
            Step::Slow { ms } => {
                self.gateways.iter().for_each(|g| g.line.borrow_mut().link.slow = time(ms));
            }
            Step::StoreDown { ms } => self.database.borrow_mut().fall(now + time(ms)),
            Step::Failover { lost_ms, ms } => {
                let since = Instant::from_nanos(
                    now.as_nanos().saturating_sub(u64::try_from(time(lost_ms).as_nanos()).unwrap_or(0)),
                );
                self.database.borrow_mut().fail_over(now, since, now + time(ms));
            }
            _ => {}
        }
    }

    fn data(&mut self, count: u8) {
        for _ in 0..count {
            for n in 0..self.devices.len() {
                self.note_traffic(n);
                self.send_up(n);
                self.send_down(n);
            }
            self.run(Duration::from_millis(50));
        }
    }

    /// Sends a numbered packet from a device to the server; its number.
    pub(crate) fn send_up(&mut self, n: usize) -> u64 {
        let number = self.laws.sends(n);
        let (now, id) = (self.net.now, self.devices[n].id);
        if let Some(inner) = self.device(n).inner.first().copied() {
            self.net.machine_mut(id).send(now, inner, SERVER, number);
        }
        number
    }

    /// Sends a numbered packet from the server to a device, by one of the gateways that have a route for it; its number.
    pub(crate) fn send_down(&mut self, n: usize) -> u64 {
        let inner = self.device(n).inner.first().copied();
        let holder = inner.and_then(|inner| holder(&self.database.borrow(), inner));
        let meant = (0..self.devices.len()).find(|n| holder.as_ref() == Some(&identity(*n)));
        let number = self.laws.sends(meant.unwrap_or(n));
        let Some(inner) = inner else { return number };
        let ways = self.ways(inner);
        let turn = usize::try_from(self.net.rng().below(ways.len().max(1) as u64)).unwrap_or(0);
        if let Some(gateway) = ways.get(turn) {
            let (now, id) = (self.net.now, self.gateways[*gateway].id);
            self.note_packet(number, n, *gateway);
            self.net.machine_mut(id).send(now, SERVER, inner, number);
        }
        number
    }

    /// The gateways that have a route for an address.
    pub(crate) fn ways(&self, inner: IpAddr) -> Vec<usize> {
        let leads = |n: &usize| self.gateway(*n).routes.iter().any(|route| route.contains(&inner));
        (0..self.gateways.len()).filter(leads).collect()
    }

    fn moves(&mut self, n: usize) {
        self.devices[n].at ^= 1;
        if !self.devices[n].asleep {
            self.plug(n);
        }
    }

    fn sleep(&mut self, n: usize, time: Duration, announced: bool) {
        if self.devices[n].asleep || self.device(n).host().is_none() {
            return;
        }
        self.note_announcement(n, announced);
        match announced {
            true => {
                self.net.with(self.devices[n].id, |now, host| {
                    let wishes = SleepFlags { stand_in: true, buffering: true };
                    host.node_mut().prepare_sleep(now, CONNECTION, Some(time), None, wishes);
                });
                self.later(ANNOUNCE + Duration::from_millis(1), Later::Suspend(n));
                self.later(ANNOUNCE + time + Duration::from_millis(2), Later::Wake(n));
            }
            false => {
                self.suspend(n);
                self.later(time, Later::Wake(n));
            }
        }
    }

    fn suspend(&mut self, n: usize) {
        let id = self.devices[n].id;
        if self.devices[n].asleep || self.device(n).host().is_none() {
            return;
        }
        self.devices[n].asleep = true;
        self.note_sleep(n);
        self.net.with(id, |now, host| _ = host.suspend(now, Reason::User));
        self.net.post();
        self.net.unplug(id);
    }

    fn wake(&mut self, n: usize) {
        if !std::mem::take(&mut self.devices[n].asleep) {
            return;
        }
        self.note_wake(n);
        self.note_announcement(n, false);
        // The name may be answered in another order by now.
        let (id, name) = (self.devices[n].id, self.name_for(n));
        self.net.machine_mut(id).gateways.insert(CONNECTION.into(), name);
        self.plug(n);
        self.net.with(id, |now, host| host.resume(now, Cause::User));
    }

    fn kill_device(&mut self, n: usize, down: Duration) {
        if self.device(n).host().is_some() {
            self.common.forget(self.devices[n].id);
            self.net.machine_mut(self.devices[n].id).crash();
            self.later(down, Later::StartDevice(n));
        }
    }

    fn start_device(&mut self, n: usize) {
        let (now, unix, id) = (self.net.now, self.unix(), self.devices[n].id);
        let host = ends::device(&self.settings, n, self.net.rng(), now, unix);
        self.devices[n].asleep = false;
        self.plug(n);
        self.net.machine_mut(id).restart(now, host);
        self.net.with(id, |now, host| _ = host.up(now, CONNECTION));
    }

    fn down_up(&mut self, n: usize, away: Duration) {
        if !self.devices[n].asleep {
            self.net.with(self.devices[n].id, |now, host| _ = host.down(now, CONNECTION));
            self.later(away, Later::Up(n));
        }
    }

    pub(crate) fn kill_gateway(&mut self, n: usize, down: Duration, in_order: bool) {
        let now = self.net.now;
        if self.gateway(n).host().is_some() {
            let machine = self.net.machine_mut(self.gateways[n].id);
            if in_order {
                machine.stop(now)
            } else {
                machine.crash()
            }
            self.lead_away(n);
            self.later(down, Later::StartGateway(n));
        }
    }

    /// A gateway starts, when it has been told what it must know.
    fn start_gateway(&mut self, n: usize) {
        let (now, unix, id) = (self.net.now, self.unix(), self.gateways[n].id);
        let line = self.gateways[n].line.clone();
        let Some(beginning) = Member::begin(&line, now) else {
            return self.later(AGAIN, Later::StartGateway(n));
        };
        let own: Vec<String> = line.borrow().kept.denials.iter().map(|denied| denied.whom.clone()).collect();
        let address = line.borrow().address.clone();
        let balance = SharedBalance::new(Balance::new(false, &address));
        let host =
            ends::gateway(&self.settings, &beginning, balance.clone(), &own, self.net.rng(), now, unix);
        let alone_for = Duration::from_secs(self.settings.alone_for_s);
        let machine = self.net.machine_mut(id);
        machine.shared = Some(Member::new(line, beginning, alone_for, balance));
        machine.restart(now, host);
    }

    fn deafen(&mut self, n: usize, time: Duration) {
        self.gateways[n].deaf = self.net.now + time;
        self.later(time, Later::Hear(n));
        self.set_weather();
    }

    fn listen(&mut self, n: usize) {
        if self.gateways[n].deaf <= self.net.now {
            self.set_weather();
        }
    }

    fn set_weather(&mut self) {
        let (now, loss) = (self.net.now, self.loss);
        for gateway in &self.gateways {
            let loss = if gateway.deaf > now { 1.0 } else { loss / 2.0 };
            self.net.set_weather(gateway.network, loss, 0.0, 0.0);
        }
        for (network, _) in self.devices.iter().flat_map(|device| device.networks) {
            self.net.set_weather(network, loss / 2.0, loss / 4.0, loss / 4.0);
        }
    }

    fn deny(&mut self, gateway: usize, device: usize) {
        let (now, since, id) = (self.net.now, self.unix(), self.gateways[gateway].id);
        let whom = identity(device);
        let Ok(denial) = whom.parse::<Denial>() else { return };
        let machine = self.net.machine_mut(id);
        if let Some(member) = &mut machine.shared {
            member.deny(Denied { whom, since });
            machine.with(now, |host| _ = host.deny(now, denial));
        }
    }

    fn allow(&mut self, gateway: usize, device: usize) {
        let (now, id, whom) = (self.net.now, self.gateways[gateway].id, identity(device));
        let Ok(denial) = whom.parse::<Denial>() else { return };
        let machine = self.net.machine_mut(id);
        if machine.shared.as_mut().is_some_and(|member| member.allow(&whom)) {
            machine.with(now, |host| _ = host.node_mut().allow(&denial));
        }
    }

    /// The thief copies a device's disk.
    fn copy(&mut self, of: usize) {
        let tickets = self.device(of).disk.tickets.clone();
        let thief = match self.thief.take() {
            Some(thief) if self.net.machine(thief.id).host().is_some() => return self.thief = Some(thief),
            Some(Thief { id, .. }) => id,
            None => self.add_thief(),
        };
        self.net.machine_mut(thief).disk.tickets = tickets;
        self.thief = Some(Thief { id: thief, of });
    }

    fn add_thief(&mut self) -> MachineId {
        let (now, unix) = (self.net.now, self.unix());
        let mut machine = Machine::new(ends::device(&self.settings, 0, self.net.rng(), now, unix));
        machine.crash();
        machine.gateways.insert(CONNECTION.into(), self.name());
        let id = self.net.add_machine(machine);
        let network = self.net.add_network(LinkConfig::default(), None);
        self.net.place(id, Some((network, vec![DEN])));
        if self.settings.limit == 0 {
            let cannot = |datagram: &[u8]| [datagram.get(18), datagram.get(22)].contains(&Some(&IKE_SA_INIT));
            self.net.set_astray(id, Some(Box::new(move |_, datagram| cannot(datagram))));
        }
        id
    }

    /// The thief comes with the tickets that it has, and stays for so long.
    fn let_thief_try(&mut self, time: Duration) {
        let Some(Thief { id, of }) = self.thief else { return };
        if self.net.machine(id).host().is_some() {
            return;
        }
        let (now, unix) = (self.net.now, self.unix());
        let core = ends::device(&self.settings, of, self.net.rng(), now, unix);
        self.net.machine_mut(id).restart(now, core);
        self.net.with(id, |now, host| _ = host.up(now, CONNECTION));
        self.later(time, Later::ThiefGoes);
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    /// No faults any more: who is away is back, and who sleeps wakes up.
    pub(crate) fn calm(&mut self) {
        self.loss = 0.0;
        let now = self.net.now;
        self.laws.calm(self.settings.limit, self.settings.keep);
        self.database.borrow_mut().down = now;
        for gateway in &mut self.gateways {
            gateway.deaf = now;
            let mut line = gateway.line.borrow_mut();
            (line.link.cut, line.link.flaky, line.link.slow) = (now, 0, Duration::from_millis(10));
        }
        self.set_weather();
        for n in 0..self.devices.len() {
            self.wake(n);
        }
        for what in std::mem::take(&mut self.later).into_values() {
            match what {
                Later::Wake(_) => {}
                Later::Suspend(n) => self.stays_awake(n),
                // Where sessions are limited, a thief who is there stays, and wants to.
                Later::ThiefGoes if self.settings.limit > 0 => {}
                what => self.happens(what),
            }
        }
    }
}
