//! Endpoints for measurements: configurations of both roles, and a pair of them in one thread under a virtual clock whose CPU
//! time is charged to the one that used it. Owns the wiring; everything that it times has been checked, each time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_crypto::cert::Identity;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, HalfOpen};
use dormouse_ike::config_payload::{AddressPool, Lease, LeaseRequest};
use dormouse_ike::limits::{BEGIN_EVERY, CREATE_CHILD_EVERY};
use dormouse_ike::ticket::lineage::Memory;
use dormouse_ike::ticket::{ClientTicket, TicketKeys};
use dormouse_ike::{Endpoint, Established, Event};
use dormouse_io::entropy::OsEntropy;
use dormouse_keying::{ChildId, ChildSa, Install, SaId};
use dormouse_sansio::{Carrier, Instant, Path, UnixTime};

use crate::{clock_cost, thread_cpu};

/// Wall-clock time at the origin of the virtual clock: within the validity of every certificate here.
pub const EPOCH: UnixTime = UnixTime(1_800_000_000);
/// Virtual time of one datagram's travel. Rekeyings and sessions come at the pace that a gateway answers; timers are not served.
const TRAVEL: Duration = Duration::from_micros(1);
/// The non-ESP marker (RFC 3948 section 2.2).
const MARKER: usize = 4;

/// Inner addresses that stick to identities, in memory.
#[derive(Default)]
struct Pool(BTreeMap<String, Ipv4Addr>);

impl AddressPool for Pool {
    fn lease(&mut self, _: &Connection, identity: &Identity, request: &LeaseRequest) -> Lease {
        let next = u32::from(Ipv4Addr::new(10, 64, 0, 1)) + u32::try_from(self.0.len()).unwrap_or(0);
        let v4 = *self.0.entry(identity.to_string()).or_insert(next.into());
        Lease { v4: request.v4.then_some(v4), v6: None }
    }

    fn release(&mut self, _: &Lease) {}
}

/// A gateway that answers `connection`, gives tickets and addresses, and never asks for cookies.
#[must_use]
fn gateway(connection: Connection) -> Endpoint {
    let day = Duration::from_secs(86_400);
    let config = EndpointConfig {
        connections: vec![Arc::new(connection)],
        half_open: HalfOpen {
            cookie_threshold: usize::MAX,
            puzzle_threshold: usize::MAX,
            per_prefix: usize::MAX,
            ..HalfOpen::default()
        },
        ticket_keys: Some(TicketKeys::generate(EPOCH, day, 2 * day, &mut OsEntropy)),
        pool: Some(Box::new(Pool::default())),
        ..EndpointConfig::default()
    };
    endpoint(config)
}

/// A client.
#[must_use]
fn client() -> Endpoint {
    endpoint(EndpointConfig::default())
}

fn endpoint(config: EndpointConfig) -> Endpoint {
    let mut endpoint = Endpoint::new(config, Box::new(OsEntropy));
    endpoint.set_wall_clock(Instant::ZERO, EPOCH);
    endpoint
}

/// What one exchange, or row of exchanges, cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// CPU time of the client.
    pub client: Duration,
    /// CPU time of the gateway.
    pub gateway: Duration,
    /// Datagrams, both ways.
    pub messages: u64,
    /// Their bytes, without IP and UDP headers, the non-ESP marker included.
    pub bytes: u64,
    /// Round trips between the first datagram and the last.
    pub round_trips: u64,
}

struct Side {
    endpoint: Endpoint,
    cpu: Duration,
    events: Vec<Event>,
    /// CHILD SAs that are installed.
    children: BTreeMap<ChildId, Install>,
    store: Memory,
}

impl Side {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            cpu: Duration::ZERO,
            events: Vec::new(),
            children: BTreeMap::new(),
            store: Memory::default(),
        }
    }

    /// Lets the endpoint do `work` and collects what it wants sent. Its CPU time ends up in `cpu`, less `overhead`.
    fn run(
        &mut self,
        now: Instant,
        overhead: Duration,
        work: impl FnOnce(&mut Endpoint),
    ) -> Vec<(Path, Vec<u8>)> {
        let mut sent = Vec::new();
        let mut stored = Duration::ZERO;
        let start = thread_cpu();
        work(&mut self.endpoint);
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                // The store is a thread of its own in the daemon; here its answer is there at once, and its time counts for no end.
                Event::Store(operation) => {
                    let asked = thread_cpu();
                    let outcome = self.store.apply(EPOCH, &operation);
                    stored += thread_cpu() - asked;
                    if let Some(sa) = operation.asked_by() {
                        self.endpoint.stored(now, sa, outcome);
                    }
                }
                event => self.events.push(event),
            }
        }
        loop {
            let mut datagram = Vec::new();
            let Some(transmit) = self.endpoint.poll_transmit(now, &mut datagram) else { break };
            sent.push((transmit.path, datagram));
        }
        self.cpu += (thread_cpu() - start).saturating_sub(overhead + stored);
        sent
    }

    /// Applies the events of an exchange to the set of children; returns what else happened.
    fn settle(&mut self) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for event in self.events.drain(..) {
            match event {
                Event::Established(e) => outcome.established = Some(*e),
                Event::Ticket { ticket, .. } => outcome.ticket = Some(*ticket),
                Event::ProbeAnswered { .. } => outcome.answered = true,
                Event::Confirmed { .. } => outcome.confirmed += 1,
                Event::Child(ChildSa::Install(install)) => {
                    outcome.installed += 1;
                    self.children.insert(install.child, *install);
                }
                Event::Child(ChildSa::Remove { child, .. }) => drop(self.children.remove(&child)),
                Event::Child(ChildSa::Remap { owner, path }) => {
                    self.children.values_mut().filter(|c| c.owner == owner).for_each(|c| c.path = path);
                }
                Event::Failed { error, .. }
                | Event::PeerFailed { error, .. }
                | Event::ChildFailed { error, .. } => {
                    bail!("negotiation failed: {error}")
                }
                Event::ProbeFailed { .. } => bail!("a probe was not answered"),
                Event::UpdateRefused { why, .. } => bail!("the address update was refused: {why}"),
                _ => {}
            }
        }
        Ok(outcome)
    }
}

/// What happened at one end during an exchange.
#[derive(Default)]
struct Outcome {
    established: Option<Established>,
    ticket: Option<ClientTicket>,
    installed: usize,
    answered: bool,
    confirmed: usize,
}

/// A client and a gateway in one thread, joined by a network without latency or loss.
pub struct Pair {
    client: Side,
    gateway: Side,
    now: Instant,
    overhead: Duration,
    /// The client's SA with its name at the gateway.
    sa: Option<(SaId, SaId)>,
    ticket: Option<ClientTicket>,
    next_address: u8,
}

impl Pair {
    /// A pair whose gateway answers `connection`.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self {
            client: Side::new(client()),
            gateway: Side::new(gateway(connection)),
            now: Instant::ZERO,
            overhead: clock_cost(),
            sa: None,
            ticket: None,
            next_address: 0,
        }
    }

    /// A full handshake. An SA that is there is forgotten first, at both ends and without messages, outside of the measurement.
    ///
    /// # Errors
    /// If it does not establish, or the two ends do not agree on keys.
    pub fn connect(&mut self, connection: &Arc<Connection>) -> Result<Cost> {
        self.forget()?;
        self.connect_beside(connection)
    }

    /// A full handshake beside the SAs that are there: these stay, and are no longer looked after here.
    ///
    /// # Errors
    /// As [`Pair::connect`].
    pub fn connect_beside(&mut self, connection: &Arc<Connection>) -> Result<Cost> {
        let path = self.path(Carrier::Ike);
        self.open(false, |endpoint, now| _ = endpoint.connect(now, connection.clone(), path))
    }

    /// A resumption with the ticket that the last handshake or resumption left. The old SA is forgotten first, at both ends
    /// and off the record: the gateway has lost it, which is when a client resumes.
    ///
    /// # Errors
    /// If there is no ticket, and as [`Pair::connect`].
    pub fn resume(&mut self, connection: &Arc<Connection>) -> Result<Cost> {
        let ticket = self.ticket.take().context("the gateway gave no ticket")?;
        self.forget()?;
        let path = self.path(Carrier::Ike);
        let opened =
            self.open(true, |endpoint, now| _ = endpoint.resume(now, connection.clone(), ticket, path))?;
        let confirmed = self.first_packet(path)?;
        Ok(Cost {
            client: opened.client + confirmed.client,
            gateway: opened.gateway + confirmed.gateway,
            ..opened
        })
    }

    /// What the first ESP packet in each direction costs IKE: the client's shows the gateway that the request was not a copy, which only
    /// then spends the ticket.
    fn first_packet(&mut self, path: Path) -> Result<Cost> {
        let (ours, theirs) = self.sa.context("no SA")?;
        let back = Path { local: path.remote, remote: path.local, ..path };
        let now = self.now;
        let (cost, _, at_gateway) =
            self.exchange(|client, _| _ = client.note_traffic(now, ours, Some(now), None))?;
        ensure!(cost.messages == 0 && at_gateway.confirmed == 0, "the gateway has heard nothing yet");
        (self.client.cpu, self.gateway.cpu) = (Duration::ZERO, Duration::ZERO);
        let mut sent = self.gateway.run(now, self.overhead, |gateway| _ = gateway.confirm(now, theirs, back));
        sent.extend(
            self.client.run(now, self.overhead, |client| _ = client.note_traffic(now, ours, None, Some(now))),
        );
        ensure!(sent.is_empty() && self.gateway.settle()?.confirmed == 1, "the ticket was not spent");
        // The gateway was heard: the ticket may be used for the same form again.
        self.ticket.as_mut().context("the gateway gave no ticket")?.unheard = 0;
        Ok(Cost { client: cost.client + self.client.cpu, gateway: self.gateway.cpu, ..Cost::default() })
    }

    /// The client appears at another address and tells the gateway (MOBIKE).
    ///
    /// # Errors
    /// If the gateway does not follow.
    pub fn update(&mut self) -> Result<Cost> {
        let (ours, theirs) = self.sa.context("no SA")?;
        self.next_address = self.next_address.wrapping_add(1);
        let path = self.path(Carrier::NatT);
        let (cost, ..) = self.exchange(|endpoint, now| _ = endpoint.set_path(now, ours, path))?;
        let seen = self.gateway.endpoint.path(theirs).map(|p| p.remote);
        ensure!(seen == Some(path.local), "the gateway is at {seen:?}, the client at {}", path.local);
        let esp = self.gateway.children.values().next().map(|c| c.path.remote.ip());
        ensure!(esp == Some(path.local.ip()), "ESP goes to {esp:?}");
        Ok(cost)
    }

    /// A liveness check by the client.
    ///
    /// # Errors
    /// If it is not answered.
    pub fn probe(&mut self) -> Result<Cost> {
        let (ours, _) = self.sa.context("no SA")?;
        let patience = Duration::from_secs(1);
        let (cost, at_client, _) = self.exchange(|endpoint, now| _ = endpoint.probe(now, ours, patience))?;
        ensure!(at_client.answered, "not answered");
        Ok(cost)
    }

    /// The client rekeys the CHILD SA and deletes the old one.
    ///
    /// # Errors
    /// If the two ends do not agree on new keys.
    pub fn rekey_child(&mut self) -> Result<Cost> {
        self.now += CREATE_CHILD_EVERY;
        let child = *self.client.children.keys().next().context("no CHILD SA")?;
        let (cost, at_client, _) = self.exchange(|endpoint, now| _ = endpoint.rekey_child(now, child))?;
        ensure!(at_client.installed == 1 && !self.client.children.contains_key(&child), "not rekeyed");
        self.agree()?;
        Ok(cost)
    }

    /// The client rekeys the IKE SA and deletes the old one.
    ///
    /// # Errors
    /// If it does not.
    pub fn rekey_ike(&mut self) -> Result<Cost> {
        self.now += CREATE_CHILD_EVERY;
        let (ours, _) = self.sa.context("no SA")?;
        let (cost, at_client, _) = self.exchange(|endpoint, now| _ = endpoint.rekey_ike(now, ours))?;
        ensure!(at_client.ticket.is_some(), "the successor gave no ticket");
        ensure!((self.client.endpoint.len(), self.gateway.endpoint.len()) == (1, 1), "an old SA is left");
        Ok(cost)
    }

    /// One call of the gateway's timers, with nothing due.
    ///
    /// # Errors
    /// If the gateway wants to send something after all.
    pub fn gateway_timers(&mut self) -> Result<Cost> {
        self.gateway.cpu = Duration::ZERO;
        let now = self.now;
        let sent = self.gateway.run(now, self.overhead, |endpoint| endpoint.handle_timeout(now));
        ensure!(sent.is_empty(), "a timer was due");
        Ok(Cost { gateway: self.gateway.cpu, ..Cost::default() })
    }

    fn open(&mut self, resumed: bool, begin: impl FnOnce(&mut Endpoint, Instant)) -> Result<Cost> {
        self.now += BEGIN_EVERY;
        let (cost, at_client, at_gateway) = self.exchange(begin)?;
        let (Some(ours), Some(theirs)) = (at_client.established, at_gateway.established) else {
            bail!("no SA was established")
        };
        ensure!(
            ours.resumed == resumed && theirs.resumed == resumed,
            "resumed: {} {}",
            ours.resumed,
            theirs.resumed
        );
        ensure!(at_client.installed == 1 && at_gateway.installed == 1, "no CHILD SA was installed");
        self.sa = Some((ours.sa, theirs.sa));
        self.ticket = at_client.ticket;
        self.agree()?;
        Ok(cost)
    }

    /// Both ends have the same CHILD SA with the same keys.
    fn agree(&self) -> Result<()> {
        let (sides, mut pairs) = ([&self.client, &self.gateway], 0);
        for ours in sides[0].children.values() {
            let theirs = sides[1]
                .children
                .values()
                .find(|c| c.child.spi() == ours.spi_out)
                .context("no counterpart")?;
            ensure!(
                ours.keymat_in == theirs.keymat_out
                    && ours.keymat_out == theirs.keymat_in
                    && ours.encr == theirs.encr,
                "the two ends have different keys"
            );
            pairs += 1;
        }
        ensure!(pairs == 1 && sides[1].children.len() == 1, "{pairs} CHILD SAs");
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        let Some((ours, theirs)) = self.sa.take() else { return Ok(()) };
        for (side, sa) in [(&mut self.client, ours), (&mut self.gateway, theirs)] {
            let sent = side.run(self.now, self.overhead, |endpoint| _ = endpoint.forget(self.now, sa));
            side.settle()?;
            ensure!(sent.is_empty() && side.children.is_empty(), "not forgotten");
        }
        Ok(())
    }

    /// No longer looks after the present SA: it stays where it is.
    pub fn leave(&mut self) {
        self.sa = None;
        self.client.children.clear();
        self.gateway.children.clear();
    }

    /// Lets the client `begin` something, and carries datagrams to and fro until neither end has one.
    fn exchange(&mut self, begin: impl FnOnce(&mut Endpoint, Instant)) -> Result<(Cost, Outcome, Outcome)> {
        let mut cost = Cost::default();
        (self.client.cpu, self.gateway.cpu) = (Duration::ZERO, Duration::ZERO);
        let now = self.now;
        let mut sent = self.client.run(now, self.overhead, |endpoint| begin(endpoint, now));
        let mut to_gateway = true;
        while !sent.is_empty() {
            self.now += TRAVEL;
            cost.messages += sent.len() as u64;
            cost.bytes += sent.iter().map(|(_, datagram)| datagram.len() as u64).sum::<u64>();
            cost.round_trips += u64::from(!to_gateway);
            let receiver = if to_gateway { &mut self.gateway } else { &mut self.client };
            let mut discarded = None;
            let (now, travelled) = (self.now, sent);
            sent = receiver.run(now, self.overhead, |endpoint| {
                for (path, mut datagram) in travelled {
                    let path = Path { local: path.remote, remote: path.local, carrier: path.carrier };
                    let body = if path.carrier == Carrier::NatT { MARKER } else { 0 };
                    discarded =
                        endpoint.handle_datagram(now, path, &mut datagram[body..]).err().or(discarded.take());
                }
            });
            if let Some(why) = discarded {
                bail!("a datagram was dropped: {why}");
            }
            to_gateway = !to_gateway;
        }
        (cost.client, cost.gateway) = (self.client.cpu, self.gateway.cpu);
        Ok((cost, self.client.settle()?, self.gateway.settle()?))
    }

    /// From the client's present address to the gateway.
    fn path(&self, carrier: Carrier) -> Path {
        let port = if carrier == Carrier::NatT { 4500 } else { 500 };
        let at = |ip: [u8; 4]| SocketAddr::new(IpAddr::from(ip), port);
        Path { local: at([192, 0, 2, self.next_address]), remote: at([198, 51, 100, 1]), carrier }
    }
}
