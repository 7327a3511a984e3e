//! A device, its gateway and three access routers in one thread and virtual time, and the processor time that each takes for an exchange. Owns
//! the machines; must never lose a datagram, nor count an exchange that did not do what it is for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_esp::{Outbound, SaParams, ZoneParams, open_first_zone};
use dormouse_ike::config::{
    Connection, IdentityPattern, LocalAuth, RemoteAuth, Role, RouterPolicy, RouterRule, SelectorSpec,
    ZonePolicy,
};
use dormouse_ike::limits::CREATE_CHILD_EVERY;
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::ticket::lineage::Memory;
use dormouse_ike::{Endpoint, EndpointConfig, Event};
use dormouse_keying::{ChildId, ChildSa, GrantId, HeaderOrder, Install, Protection, SaId};
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
use dormouse_wire::ike::mlike::Excerpt;
use serde::{Deserialize, Serialize};

use super::packets;
use crate::campaign::cpu;
use crate::results::Figures;

const DEVICE: usize = 0;
const GATEWAY: usize = 1;
/// In a row: each is the neighbour of the next.
const ROUTERS: [usize; 3] = [2, 3, 4];
const NAMES: [&str; 5] = ["device", "gateway", "r1", "r2", "r3"];
const ADDRESSES: [[u8; 4]; 5] =
    [[192, 0, 2, 10], [198, 51, 100, 1], [203, 0, 113, 1], [203, 0, 113, 2], [203, 0, 113, 3]];
/// Where the device moves to.
const ELSEWHERE: [u8; 4] = [192, 0, 3, 10];
/// The networks of device and gateway.
const NETWORKS: [&str; 2] = ["10.55.0.0/24", "10.99.0.0/24"];
/// One way.
const TRAVEL: Duration = Duration::from_millis(1);
/// Virtual time in which an exchange is over, and nothing else has begun.
const EXCHANGE: Duration = Duration::from_millis(40);
/// And sessions of routers are made.
const SETTLED: Duration = Duration::from_secs(30);
/// Wall-clock time at the origin of the virtual clock.
const EPOCH: UnixTime = UnixTime(1_800_000_000);
/// Exchanges in a round: their mean is its figure.
const REPEATS: u64 = 5;

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Exchange {
    /// IKE_SA_INIT to IKE_AUTH, packets protected whole.
    Whole,
    /// The same with zones.
    Zoned,
    /// Another CHILD SA with zones in the place of the one that is there.
    Rekey,
    /// A new address of the device's (MOBIKE).
    Update,
    /// The gateway gives header keys to the router of the device.
    Distribute,
    /// The device is at the next router, which has keys: the gateway gives them to that one's neighbour (PKD).
    Proactive,
    /// A router fetches keys from the one where the device was (DKM).
    Migrate,
}

impl Exchange {
    pub(super) const ALL: [Self; 7] = [
        Self::Whole,
        Self::Zoned,
        Self::Rekey,
        Self::Update,
        Self::Distribute,
        Self::Proactive,
        Self::Migrate,
    ];

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Whole => "IKE_SA_INIT and IKE_AUTH, whole",
            Self::Zoned => "IKE_SA_INIT and IKE_AUTH, with zones",
            Self::Rekey => "rekeying, with zones",
            Self::Update => "address update (MOBIKE)",
            Self::Distribute => "keys for the router of the device",
            Self::Proactive => "PKD: keys for its neighbour after a handoff",
            Self::Migrate => "DKM: keys from the router before",
        }
    }

    /// Whether routers take part.
    pub(super) const fn has_routers(self) -> bool {
        matches!(self, Self::Distribute | Self::Proactive | Self::Migrate)
    }
}

/// The mean processor time of such exchanges, each between machines of their own.
///
/// # Errors
/// If one does not end as it should.
pub(super) fn measure(exchange: Exchange, seed: u64) -> Result<Figures> {
    let mut total = [Duration::ZERO; NAMES.len()];
    for repeat in 0..REPEATS {
        let seed = seed.wrapping_mul(REPEATS).wrapping_add(repeat);
        let spent = once(exchange, seed).with_context(|| format!("{exchange:?}, seed {seed}"))?;
        total.iter_mut().zip(spent).for_each(|(total, spent)| *total += spent);
    }
    let mean = |time: Duration| millis(time) / REPEATS as f64;
    let [device, gateway, routers @ ..] = total;
    let routers = routers.iter().sum();
    let mut figures = Figures::default().with("all", mean(total.iter().sum()));
    // A machine that has nothing to do with it takes no time at all, which is no figure to compare.
    for (name, time) in [("device", device), ("gateway", gateway), ("routers", routers)] {
        if time > Duration::ZERO {
            figures = figures.with(name, mean(time));
        }
    }
    Ok(figures)
}

fn once(exchange: Exchange, seed: u64) -> Result<[Duration; NAMES.len()]> {
    let mut field = Field::new(exchange, seed)?;
    if matches!(exchange, Exchange::Whole | Exchange::Zoned) {
        let spent = field.charged(Field::connect)?;
        return field.check_session(exchange != Exchange::Whole).map(|()| spent);
    }
    field.connect()?;
    field.run_for(EXCHANGE)?;
    field.check_session(true)?;
    match exchange {
        Exchange::Whole | Exchange::Zoned => Ok(field.spent()),
        Exchange::Rekey => field.rekey(),
        Exchange::Update => field.update(),
        Exchange::Distribute | Exchange::Proactive | Exchange::Migrate => {
            field.call(ROUTERS[0], GATEWAY)?;
            field.call(ROUTERS[1], GATEWAY)?;
            field.call(ROUTERS[2], GATEWAY)?;
            field.call(ROUTERS[1], ROUTERS[0])?;
            field.run_for(SETTLED)?;
            field.hand_on(exchange)
        }
    }
}

struct Machine {
    endpoint: Endpoint,
    cpu: Duration,
    children: BTreeMap<ChildId, Install>,
    /// SAs whose header keys it has.
    headers: BTreeSet<GrantId>,
    store: Memory,
}

/// From, to, how, and what.
type Flying = (SocketAddr, SocketAddr, Carrier, Vec<u8>);

struct Field {
    now: Instant,
    machines: Vec<Machine>,
    wire: BTreeMap<(Instant, u64), Flying>,
    sent: u64,
    connection: Arc<Connection>,
    /// Where the device is.
    at: [u8; 4],
}

fn name(machine: usize) -> Identity {
    Identity::Fqdn(format!("{}.lab", NAMES[machine]))
}

fn connection(of: usize, to: usize) -> Connection {
    let secret = Secret::from(&b"machines of one thread"[..]);
    let (local, remote) = (LocalAuth::Psk(secret.clone()), RemoteAuth::Psk(secret));
    Connection::new(NAMES[to], name(of), local, IdentityPattern::Exact(name(to)), remote)
}

/// Between device and gateway, as `of` has it.
fn session(of: usize, zones: Option<ZonePolicy>) -> Result<Connection> {
    let mut session = connection(of, 1 - of);
    let net = |n: usize| Ok::<_, anyhow::Error>(vec![SelectorSpec::Net(NETWORKS[n].parse()?)]);
    for child in &mut session.children {
        (child.ts_local, child.ts_remote) = (net(of)?, net(1 - of)?);
        child.zones.clone_from(&zones);
    }
    if of == GATEWAY {
        session.role = Role::Responder;
    }
    Ok(session)
}

/// Between a gateway and a router, or two routers: there are no packets.
fn link(of: usize, to: usize) -> Connection {
    let mut link = connection(of, to);
    link.role = Role::Both;
    link.children.clear();
    link
}

fn neighbours(router: usize) -> Vec<Identity> {
    ROUTERS.into_iter().filter(|other| other.abs_diff(router) == 1).map(name).collect()
}

/// What the gateway does with routers; the location of the device is an argument.
fn zones(exchange: Exchange) -> ZonePolicy {
    let rule = |router| RouterRule { id: name(router), serves: Vec::new(), neighbours: neighbours(router) };
    let routers = if exchange.has_routers() { ROUTERS.map(rule).to_vec() } else { Vec::new() };
    ZonePolicy { routers, proactive: exchange == Exchange::Proactive, ..ZonePolicy::default() }
}

impl Field {
    fn new(exchange: Exchange, seed: u64) -> Result<Self> {
        let mut entropy = Seeded::new(seed);
        let zoned = exchange != Exchange::Whole;
        let at_device = zoned.then(ZonePolicy::default);
        let at_gateway = zoned.then(|| zones(exchange));
        let mut machines = Vec::new();
        for machine in 0..NAMES.len() {
            let mut config = EndpointConfig::default();
            let peers: Vec<usize> = match machine {
                DEVICE => Vec::new(),
                GATEWAY => ROUTERS.to_vec(),
                _ => [GATEWAY].into_iter().chain(ROUTERS).filter(|peer| *peer != machine).collect(),
            };
            config.connections = peers.into_iter().map(|peer| Arc::new(link(machine, peer))).collect();
            if machine == GATEWAY {
                config.connections.push(Arc::new(session(GATEWAY, at_gateway.clone())?));
                let day = Duration::from_secs(86_400);
                config.ticket_keys = Some(TicketKeys::generate(EPOCH, day, 2 * day, &mut entropy));
            }
            if ROUTERS.contains(&machine) {
                let gateways = vec![IdentityPattern::Exact(name(GATEWAY))];
                let neighbours = neighbours(machine);
                config.router = Some(RouterPolicy { gateways, neighbours, ..RouterPolicy::default() });
                config.open_first_zone = open_first_zone;
            }
            let mut endpoint = Endpoint::new(config, Box::new(entropy.fork()));
            endpoint.set_wall_clock(Instant::ZERO, EPOCH);
            machines.push(Machine {
                endpoint,
                cpu: Duration::ZERO,
                children: BTreeMap::new(),
                headers: BTreeSet::new(),
                store: Memory::default(),
            });
        }
        Ok(Self {
            now: Instant::ZERO,
            machines,
            wire: BTreeMap::new(),
            sent: 0,
            connection: Arc::new(session(DEVICE, at_device)?),
            at: ADDRESSES[DEVICE],
        })
    }

    fn address(&self, machine: usize) -> IpAddr {
        if machine == DEVICE { self.at.into() } else { ADDRESSES[machine].into() }
    }

    fn path(&self, from: usize, to: usize) -> Path {
        let end = |machine| SocketAddr::new(self.address(machine), 500);
        Path { local: end(from), remote: end(to), carrier: Carrier::Ike }
    }

    fn connect(&mut self) -> Result<()> {
        let (connection, path) = (self.connection.clone(), self.path(DEVICE, GATEWAY));
        self.step(DEVICE, |endpoint, now| _ = endpoint.connect(now, connection, path))
    }

    /// A router makes a session with another machine.
    fn call(&mut self, from: usize, to: usize) -> Result<()> {
        let (connection, path) = (Arc::new(link(from, to)), self.path(from, to));
        self.step(from, |endpoint, now| _ = endpoint.connect(now, connection, path))
    }

    /// The device's session, at one end.
    fn session(&self, machine: usize) -> Result<SaId> {
        let child = self.machines[machine].children.values().next().context("no CHILD SA")?;
        child.owner.ike().context("a CHILD SA of another key manager")
    }

    /// Both ends have one CHILD SA with the same keys.
    fn check_session(&self, zoned: bool) -> Result<()> {
        let [device, gateway] = [DEVICE, GATEWAY].map(|end| &self.machines[end].children);
        ensure!((device.len(), gateway.len()) == (1, 1), "{} and {} CHILD SAs", device.len(), gateway.len());
        for (ours, theirs) in device.values().zip(gateway.values()) {
            ensure!(ours.keymat_in == theirs.keymat_out && ours.keymat_out == theirs.keymat_in, "other keys");
            ensure!(matches!(ours.protection, Protection::Zoned(_)) == zoned, "zones: not as agreed");
        }
        Ok(())
    }

    fn spent(&self) -> [Duration; NAMES.len()] {
        std::array::from_fn(|machine| self.machines[machine].cpu)
    }

    /// What each machine takes for what `act` begins.
    fn charged(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<[Duration; NAMES.len()]> {
        self.charged_for(EXCHANGE, act)
    }

    /// In so much virtual time.
    fn charged_for(
        &mut self,
        time: Duration,
        act: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<[Duration; NAMES.len()]> {
        self.machines.iter_mut().for_each(|machine| machine.cpu = Duration::ZERO);
        act(self)?;
        self.run_for(time)?;
        Ok(self.spent())
    }

    fn rekey(&mut self) -> Result<[Duration; NAMES.len()]> {
        self.run_for(CREATE_CHILD_EVERY)?;
        let before = *self.machines[DEVICE].children.keys().next().context("no CHILD SA")?;
        let spent =
            self.charged(|field| field.step(DEVICE, |endpoint, now| _ = endpoint.rekey_child(now, before)))?;
        ensure!(!self.machines[DEVICE].children.contains_key(&before), "not rekeyed");
        self.check_session(true)?;
        Ok(spent)
    }

    fn update(&mut self) -> Result<[Duration; NAMES.len()]> {
        let (ours, theirs) = (self.session(DEVICE)?, self.session(GATEWAY)?);
        self.at = ELSEWHERE;
        let path = self.path(DEVICE, GATEWAY).with_ports(Carrier::NatT, 4500, 4500);
        let spent =
            self.charged(|field| field.step(DEVICE, |endpoint, now| _ = endpoint.set_path(now, ours, path)))?;
        let there = self.machines[GATEWAY].endpoint.path(theirs).map(|path| path.remote.ip());
        ensure!(there == Some(ELSEWHERE.into()), "the gateway sends to {there:?}");
        Ok(spent)
    }

    /// A packet of the device, by which another router shows that the device has come there.
    fn packet(&self) -> Result<Vec<u8>> {
        let child = self.machines[DEVICE].children.values().next().context("no CHILD SA")?;
        let Protection::Zoned(zones) = &child.protection else { anyhow::bail!("no zones") };
        let further = zones.further.iter().map(|zone| (zone.encr, zone.keymat_out.clone())).collect();
        let zones = Some(ZoneParams { map: zones.map.clone(), further });
        let params = SaParams::new(child.spi_out, child.encr, None, child.keymat_out.clone());
        let params = SaParams { zones, esn: child.esn, ..params };
        packets::sealed(&mut Outbound::new(&params, &mut Seeded::new(1))?, &packets::packet(false, 1, 1, 0)?)
    }

    /// The gateway hears that the device is at this router.
    fn is_at(&mut self, router: usize) -> Result<()> {
        let sa = self.session(GATEWAY)?;
        let mut permitted = false;
        let done =
            self.step(GATEWAY, |endpoint, now| permitted = endpoint.device_is_at(now, sa, &name(router)));
        ensure!(permitted, "{} may not have keys", NAMES[router]);
        done
    }

    fn has_keys(&self, router: usize) -> bool {
        !self.machines[router].headers.is_empty()
    }

    fn hand_on(&mut self, exchange: Exchange) -> Result<[Duration; NAMES.len()]> {
        let [first, second, third] = ROUTERS;
        if exchange == Exchange::Distribute {
            let spent = self.charged(|field| field.is_at(first))?;
            ensure!(self.has_keys(first) && !self.has_keys(second), "keys went elsewhere");
            return Ok(spent);
        }
        self.is_at(first)?;
        self.run_for(SETTLED)?;
        ensure!(self.has_keys(first) && !self.has_keys(third), "keys went elsewhere");
        if exchange == Exchange::Proactive {
            ensure!(self.has_keys(second), "the neighbour has no keys");
            let spent = self.charged(|field| field.is_at(second))?;
            ensure!(self.has_keys(third), "the next neighbour has no keys");
            return Ok(spent);
        }
        let (gateway, previous) = (self.address(GATEWAY), name(first));
        let seen = Excerpt::of(&self.packet()?).context("a packet without an SPI")?;
        let mut asked = false;
        // One round trip between the routers. The gateway hears of it, and begins to make new keys, which is a rekeying as any other.
        let mut spent = self.charged_for(2 * TRAVEL, |field| {
            field.step(second, |endpoint, now| {
                asked = endpoint.fetch_keys(now, &previous, gateway, seen, false);
            })
        })?;
        ensure!(asked && self.has_keys(second) && !self.has_keys(first), "keys did not move");
        spent[GATEWAY] = Duration::ZERO;
        Ok(spent)
    }

    /// Lets a machine do something, and what follows from it at once.
    fn step(&mut self, at: usize, act: impl FnOnce(&mut Endpoint, Instant)) -> Result<()> {
        let now = self.now;
        let machine = &mut self.machines[at];
        let (mut events, mut sent, mut stored) = (Vec::new(), Vec::new(), Duration::ZERO);
        let before = cpu::thread();
        act(&mut machine.endpoint, now);
        while let Some(event) = machine.endpoint.poll_event() {
            let Event::Store(operation) = event else {
                events.push(event);
                continue;
            };
            // The store is a thread of its own in the daemon: its time counts for no one.
            let asked = cpu::thread();
            let outcome = machine.store.apply(EPOCH + (now - Instant::ZERO), &operation);
            stored += cpu::thread() - asked;
            if let Some(sa) = operation.asked_by() {
                machine.endpoint.stored(now, sa, outcome);
            }
        }
        loop {
            let mut datagram = Vec::new();
            let Some(transmit) = machine.endpoint.poll_transmit(now, &mut datagram) else { break };
            sent.push((transmit.path, datagram));
        }
        machine.cpu += (cpu::thread() - before).saturating_sub(stored);
        for event in events {
            match event {
                Event::Child(ChildSa::Install(install)) => {
                    machine.children.insert(install.child, *install);
                }
                Event::Child(ChildSa::Remove { child, .. }) => drop(machine.children.remove(&child)),
                Event::Header(HeaderOrder::Grant(grant)) => drop(machine.headers.insert(grant.id())),
                Event::Header(HeaderOrder::Revoke(id)) => drop(machine.headers.remove(&id)),
                Event::Failed { error, .. } | Event::PeerFailed { error, .. } => {
                    anyhow::bail!("{}: negotiation failed: {error}", NAMES[at])
                }
                _ => {}
            }
        }
        for (path, datagram) in sent {
            self.sent += 1;
            let flying = (path.local, path.remote, path.carrier, datagram);
            self.wire.insert((now + TRAVEL, self.sent), flying);
        }
        Ok(())
    }

    fn owner(&self, address: IpAddr) -> Option<usize> {
        (0..NAMES.len()).find(|machine| self.address(*machine) == address)
    }

    /// Datagrams travel, and timers run.
    fn run_for(&mut self, time: Duration) -> Result<()> {
        let until = self.now + time;
        loop {
            let timers = self.machines.iter().enumerate();
            let timers = timers.filter_map(|(at, machine)| Some((machine.endpoint.poll_timeout()?.at, at)));
            let timer =
                timers.min().map(|(due, at)| (due.max(self.now), at)).filter(|(due, _)| *due <= until);
            let arrival = self.wire.keys().next().map(|(due, _)| *due).filter(|due| *due <= until);
            match (arrival, timer) {
                (Some(due), timer) if timer.is_none_or(|(other, _)| due <= other) => {
                    self.now = self.now.max(due);
                    self.arrive()?;
                }
                (_, Some((due, at))) => {
                    self.now = due;
                    self.step(at, |endpoint, now| endpoint.handle_timeout(now))?;
                }
                (_, None) => {
                    self.now = until;
                    return Ok(());
                }
            }
        }
    }

    fn arrive(&mut self) -> Result<()> {
        let Some((_, (from, to, carrier, mut bytes))) = self.wire.pop_first() else { return Ok(()) };
        let Some(at) = self.owner(to.ip()) else { return Ok(()) };
        if carrier == Carrier::NatT {
            // A keepalive has no marker (RFC 3948 section 2.3).
            if bytes.len() < 4 {
                return Ok(());
            }
            bytes.drain(..4);
        }
        let path = Path { local: to, remote: from, carrier };
        self.step(at, |endpoint, now| _ = endpoint.handle_datagram(now, path, &mut bytes))
    }
}
