//! SAs that another engine carries: the kernel, or in time another worker. Owns which SAs are lent, and when one is lent and called back; the division of the
//! numbers is ESP's ([`dormouse_esp::loan`]), and what the engine is, the driver's.
//!
//! An SA is lent under load alone: after [`LOAD`] packets within a second, of a session that is awake, proved and without a change under way. It is called
//! back when nothing has passed for [`LOOK`], and at once when anything about its session changes: a sleep of either end, a new path, new
//! keys, the end. So all that is rare and delicate happens here, in one place, whichever engine carries the packets; and an idle host has no deadline
//! for a loan.
//!
//! # Timers
//! *another engine's counters*: while an SA is lent, what it has carried is read every [`LOOK`]: liveness checks and keepalives depend on it.

use crate::client::Client;
use crate::connections::ConnectionId;
use crate::devices::Devices;
use crate::event::{Lend, Order};
use crate::ladder::State as Ladder;
use crate::node::Node;
use crate::sessions::prefixes;
use dormouse_esp::loan::Ivs;
use dormouse_esp::{Life, Returned, State, Tunnel, Unfit, Usage};
use dormouse_keying::{ChildId, Owner, SleepFlags};
use dormouse_sansio::{Carrier, Deadline, Instant, Path};
use dormouse_standin::{DeviceId, Observer};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is load for the kernel ([`Engine::load`]): less is carried here at the cost of a few system calls a second.
pub const LOAD: u64 = 256;
/// What an engine has carried is read so often.
pub const LOOK: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_millis(200);
/// After it was called back for a packet that came another way, an SA stays here for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// Most SAs that are lent at once.
pub const MOST: usize = 256;
/// Why one stays that could be lent.
const NOT_APART: &str = "another session, device or connection has addresses within its traffic";
/// Most pairs of prefixes that the selectors of one that is lent consist of.
const PAIRS: usize = 64;

/// Which ESP in UDP an engine can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InUdp {
    /// None.
    No,
    /// Where it takes ESP off a socket it takes all of it: a client's, whose session alone uses the socket.
    Alone,
    /// It has a socket for each: what goes the way of the SA comes there, and what is not ESP of the SA is handed to the host. A gateway's.
    Each,
}

/// What the driver's other engine can carry, in tunnel mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Engine {
    /// ESP as protocol 50.
    pub raw: bool,
    /// ESP in UDP.
    pub udp: InUdp,
    /// An SA is under load if so many packets pass within [`dormouse_esp::loan::BUSY`].
    pub load: u64,
    /// Whether it is made of the host's own parts, as [`crate::host::worker`] is: it shows what passes to an [`Observer`], as a device that is stood in for while it sleeps must be seen
    /// while it is awake, and its IVs are the sequence numbers.
    pub ours: bool,
}

/// A sleep to be announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    pub(crate) connection: ConnectionId,
    /// For so long at most; `None`: not known.
    pub(crate) expect: Option<Duration>,
    /// Probably for so long.
    pub(crate) probably: Option<Duration>,
    pub(crate) flags: SleepFlags,
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

#[derive(Debug)]
struct Lent {
    owner: Owner,
    /// The device that is stood in for while it sleeps.
    device: Option<DeviceId>,
    path: Path,
    /// The largest inner packet that the engine was told, in bytes.
    inner_mtu: usize,
    /// The prefixes of the peer's side.
    leads: Vec<IpNet>,
    usage: Usage,
    /// Packets of the SA at the last look, by either engine.
    packets: u64,
    looked: Instant,
    /// It was called back, and is not here yet.
    called: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    engine: Option<Engine>,
    /// The policy of the radio must see every packet.
    stopped: bool,
    loans: BTreeMap<ChildId, Lent>,
    /// An SA is under load.
    wanted: Option<ChildId>,
    /// Sleeps to be announced once every SA is back.
    prepared: Vec<Prepared>,
    /// How often an SA was lent.
    pub(crate) begun: u64,
    /// [`dormouse_esp::Sad::begun`] at the last look at what is lent.
    begun_to_send: u64,
}

impl Lending {
    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        let loans = self.loans.values().filter(|lent| !lent.called);
        let at = loans.map(|lent| lent.looked + LOOK).min()?;
        Some(Deadline { at, slack: SLACK, why: "another engine's counters" })
    }
}

impl Node {
    /// There is another engine: what is installed from now on may be lent to it by [`Order::Lend`].
    pub fn set_engine(&mut self, engine: Engine) {
        self.lending.engine = Some(engine);
        self.sad.let_lend();
    }

    /// Nothing is lent while `stopped`.
    pub(crate) fn stop_lending(&mut self, stopped: bool) {
        self.lending.stopped = stopped;
    }

    /// Another engine has dropped so many packets of ESP, by the reason.
    pub(crate) fn count_discards(&mut self, dropped: &BTreeMap<&'static str, u64>) {
        for (why, packets) in dropped {
            *self.counters.esp_discards.entry(why).or_default() += packets;
        }
    }

    /// Some SA is lent, or on its way back.
    #[must_use]
    pub fn has_loans(&self) -> bool {
        !self.lending.loans.is_empty()
    }

    /// The SAs that are lent.
    pub fn loans(&self) -> impl Iterator<Item = ChildId> {
        self.lending.loans.keys().copied()
    }

    /// How often an SA was lent since the start.
    #[must_use]
    pub fn loans_begun(&self) -> u64 {
        self.lending.begun
    }

    /// A packet of this tunnel has passed here.
    pub(crate) fn note_load(&mut self, now: Instant, id: ChildId) {
        if let Some(engine) = self.lending.engine
            && self.sad.get_mut(id).is_some_and(|tunnel| tunnel.is_busy(now, engine.load))
        {
            self.lending.wanted = Some(id);
        }
    }

    /// Why this tunnel is not for another engine now; `Ok` with the connection of a client.
    fn may_lend(&mut self, id: ChildId) -> Result<Option<String>, &'static str> {
        let engine = self.lending.engine.ok_or("nothing is lent here")?;
        let tunnel = self.sad.get(id).ok_or("it is gone")?;
        let (owner, path) = (tunnel.owner, tunnel.path);
        let alone = self.sad.of(owner) == [id] && !self.sad.drains_for(owner);
        let session = self.sessions.get(owner).ok_or("it has no session")?;
        let connection = session.connection;
        let is_client = self.connections.client(connection).is_some();
        let carried = match path.carrier {
            Carrier::RawEsp => engine.raw,
            Carrier::NatT => match engine.udp {
                InUdp::No => false,
                InUdp::Alone => is_client && self.is_only(connection),
                InUdp::Each => !is_client,
            },
            Carrier::Ike | Carrier::RawHip | Carrier::HipUdp => false,
        };
        let lives = [tunnel.inbound.life(), tunnel.outbound.life()].iter().all(|life| *life != Life::Hard);
        let refusals = [
            (matches!(owner, Owner::Ike(_)), "it is HIP's"),
            (self.sending.is_allowed() && !self.lending.stopped, "the radio may sleep"),
            (alone && tunnel.state() == State::Active, "its keys are being changed"),
            (session.hears(), "its peer sleeps, or is not proved to be there"),
            (session.device.is_none() || engine.ours, "its peer is stood in for while it sleeps"),
            (!self.served.isolating, "clients are kept apart here"),
            (carried, "its carrier is not the engine's"),
            // An engine opens what comes by the carrier that it sends by, and nothing else.
            (
                session.contact.heard_by == Some(path.carrier),
                "its peer has sent nothing yet, or by another carrier",
            ),
            (lives, "its volume is used up"),
        ];
        if let Some((_, why)) = refusals.into_iter().find(|(fit, _)| !fit) {
            return Err(why);
        }
        match self.client_of(owner) {
            Some(client) if client.ladder.state() == Ladder::Up && !client.preparing => {
                Ok(Some(client.config.name.clone()))
            }
            None if !is_client => Ok(None),
            _ => Err("its gateway is being asked whether it is there"),
        }
    }

    /// Whether one session alone uses the sockets.
    fn is_only(&self, connection: ConnectionId) -> bool {
        self.manager.is_none()
            && self.sessions.iter().take(2).count() == 1
            && !self.connections.others(connection).any(Client::is_wanted)
    }

    /// Whether what goes to the peer's side of this tunnel is its own: no other session, no device that sleeps without one and no other connection that may come
    /// has an address there. Its engine takes all that the routes lead to. Another key manager's peers may be anywhere.
    fn is_apart(&self, id: ChildId) -> bool {
        let Some(tunnel) = self.sad.get(id) else { return false };
        let remote = prefixes(tunnel.selectors.remote());
        let within = |route: &IpNet| remote.iter().any(|net| overlap(net, route));
        let connection = self.sessions.get(tunnel.owner).map(|session| session.connection);
        let leads = |client: &Client| {
            let routes = client.configured.iter().flat_map(|(_, routes, _)| routes);
            let held = client.last_selectors.iter().any(|selectors| selectors.meets(&tunnel.selectors));
            client.is_wanted() && (held || routes.into_iter().any(within))
        };
        self.manager.is_none()
            && !self.sad.meets_another(id)
            && !self.devices.iter().flat_map(Devices::routes_of_absent).any(within)
            && !connection.is_some_and(|than| self.connections.others(than).any(leads))
    }

    /// Lends what is under load, and calls back what must not stay lent: before anything else that is due is sent.
    pub(crate) fn lending_turn(&mut self, now: Instant) {
        if self.lending.engine.is_none() {
            return;
        }
        if let Some(id) = self.lending.wanted.take().filter(|_| self.lending.loans.len() < MOST) {
            self.lend(now, id);
        }
        let out = self.lending.loans.iter().filter(|(_, lent)| !lent.called);
        let out: Vec<_> = out.map(|(id, lent)| (*id, lent.path, lent.inner_mtu)).collect();
        // Where routes are set, what they may lead past or into was called back before.
        let news = std::mem::replace(&mut self.lending.begun_to_send, self.sad.begun()) != self.sad.begun();
        for (id, path, inner_mtu) in out {
            let tunnel = self.sad.get(id).filter(|tunnel| tunnel.path == path);
            let carries = tunnel.map(|tunnel| tunnel.inner_mtu(now));
            let stays = match self.may_lend(id) {
                _ if carries != Some(inner_mtu) => Err("its path, or what that carries, has changed"),
                Ok(_) if news && !self.is_apart(id) => Err(NOT_APART),
                may => may.map(drop),
            };
            if let Err(why) = stays {
                tracing::debug!(child = %id, why, "called back");
                self.recall(id);
            }
        }
    }

    fn lend(&mut self, now: Instant, id: ChildId) {
        let connection = match self.may_lend(id) {
            Ok(connection) if self.is_apart(id) => connection,
            Ok(_) => return tracing::trace!(child = %id, why = NOT_APART, "not lent"),
            Err(why) => return tracing::trace!(child = %id, why, "not lent"),
        };
        let Some(tunnel) = self.sad.get_mut(id) else { return };
        let [local, remote] = [tunnel.selectors.local(), tunnel.selectors.remote()].map(prefixes);
        let ivs =
            if self.lending.engine.is_some_and(|engine| engine.ours) { Ivs::Numbers } else { Ivs::Random };
        let fit = if local.len() * remote.len() > PAIRS { Err(Unfit::Selectors) } else { tunnel.is_fit(ivs) };
        let inner_mtu = tunnel.inner_mtu(now);
        let loan = match fit.map(|()| tunnel.lend(inner_mtu, ivs)) {
            Ok(Some(loan)) => loan,
            Ok(None) => return,
            Err(why) => return tracing::trace!(child = %id, %why, "not lent"),
        };
        let (owner, path) = (tunnel.owner, tunnel.path);
        let packets = tunnel.packets();
        let (usage, leads) = (Usage::default(), remote.clone());
        let device = self.sessions.get(owner).and_then(|session| session.device);
        let lent = Lent { owner, device, path, inner_mtu, leads, usage, packets, looked: now, called: false };
        self.lending.loans.insert(id, lent);
        self.lending.begun += 1;
        self.order(Order::Lend(Box::new(Lend { loan, connection, local, remote })));
    }

    fn recall(&mut self, id: ChildId) {
        if let Some(lent) = self.lending.loans.get_mut(&id).filter(|lent| !lent.called) {
            lent.called = true;
            self.order(Order::Recall { child: id });
        }
    }

    /// Calls back those whose traffic these routes may lead elsewhere, or another's to them.
    pub(crate) fn recall_within(&mut self, routes: &[IpNet]) {
        let meets = |lent: &Lent| lent.leads.iter().any(|net| routes.iter().any(|route| overlap(net, route)));
        let met = self.lending.loans.iter().filter(|(_, lent)| meets(lent)).map(|(id, _)| *id);
        met.collect::<Vec<_>>().into_iter().for_each(|id| self.recall(id));
    }

    /// Calls all back, if any are out.
    pub(crate) fn recall_all(&mut self) {
        for id in self.loans().collect::<Vec<_>>() {
            self.recall(id);
        }
    }

    /// The same before a sleep; then the sleep is announced once they are here.
    pub(crate) fn recalled_before(&mut self, prepared: &Prepared) -> bool {
        self.recall_all();
        if self.has_loans() {
            self.lending.prepared.push(*prepared);
        }
        self.has_loans()
    }

    pub(crate) fn lending_timeout(&mut self, now: Instant) {
        let due = |lent: &&mut Lent| !lent.called && lent.looked + LOOK <= now;
        let mut read = Vec::new();
        for (id, lent) in &mut self.lending.loans {
            if let Some(lent) = Some(lent).filter(due) {
                lent.looked = now;
                read.push(*id);
            }
        }
        read.into_iter().for_each(|child| self.order(Order::ReadLoan { child }));
    }

    /// A packet of an SA that is lent: whether the engine takes it, or has taken it. In UDP it was in the socket before the engine took that over; of ESP as a
    /// protocol of its own the engine has a copy. What comes to a client another way than the SA's is lost: it is not proved to be the peer's, which says by IKE that
    /// it has moved. Of one that was called back, what comes in UDP waits until it is here.
    pub(crate) fn is_engines(&mut self, now: Instant, path: Path, spi: u32, datagram: &[u8]) -> bool {
        let id = ChildId::new(spi);
        let Some(lent) = self.lending.loans.get(&id) else { return true };
        if (lent.path.carrier, path.carrier) != (Carrier::NatT, Carrier::NatT) {
            return true;
        }
        if lent.called {
            return false;
        }
        if lent.path != path && self.lending.engine.is_some_and(|engine| engine.udp == InUdp::Each) {
            // Its peer may have moved, by a NAT or by itself: whether it has, only a packet says that is opened here. Anyone on the way could send this, so it is not lent again at once.
            if let Some(tunnel) = self.sad.get_mut(id) {
                tunnel.pause(now + PAUSE);
            }
            self.recall(id);
            return false;
        }
        self.order(Order::PassOn { path, datagram: datagram.to_vec() });
        true
    }

    /// What an engine has carried of a loan so far, as asked for by [`Order::ReadLoan`]; `None`: it cannot say.
    pub fn loan_read(&mut self, now: Instant, id: ChildId, usage: Option<Usage>) {
        let Some(before) = self.lending.loans.get(&id).map(|lent| lent.usage) else { return };
        // It is lost.
        let Some(usage) = usage else { return self.recall(id) };
        if usage != before {
            self.loan_moved(now, id, &before, &usage);
        }
        // While a loan begins, what comes may all stay here.
        let packets = self.sad.get(id).map_or(0, Tunnel::packets);
        let Some(lent) = self.lending.loans.get_mut(&id) else { return };
        lent.usage = usage;
        if lent.packets == packets {
            self.recall(id);
        } else {
            lent.packets = packets;
        }
    }

    /// Another engine has carried packets: what follows from packets here follows from these.
    fn loan_moved(&mut self, now: Instant, id: ChildId, before: &Usage, usage: &Usage) {
        let Some(tunnel) = self.sad.get_mut(id) else { return };
        tunnel.account(usage);
        let (owner, path, state) = (tunnel.owner, tunnel.path, tunnel.state());
        if !self.sending.is_allowed() || state != State::Active {
            return;
        }
        // What came since the last look is taken for the answer to what was sent since then.
        if usage.sent.packets > before.sent.packets {
            self.sent(now, id);
        }
        if usage.received.packets > before.received.packets
            && let Some(sequence) = self.sad.get(id).map(|tunnel| tunnel.inbound.sequence())
        {
            self.received(now, owner, id, path, sequence);
        }
    }

    /// Who is to see the packets of a loan, where the stand-in has to know what its device shows; once for a loan.
    pub(crate) fn observer_of(&mut self, id: ChildId) -> Option<Observer> {
        let device = self.lending.loans.get(&id)?.device?;
        self.devices.as_mut()?.lend(device)
    }

    /// It has seen them.
    pub(crate) fn take_observer_back(&mut self, now: Instant, id: ChildId, observer: Observer) {
        let device = self.lending.loans.get(&id).and_then(|lent| lent.device);
        if let Some((devices, device)) = self.devices.as_mut().zip(device) {
            devices.take_back(now, device, observer);
        }
    }

    /// An engine gives a loan back, as asked for by [`Order::Recall`], or because it could not take it: `None` if it does not know how far it has come.
    /// From now on it does not touch the SA.
    pub fn loan_returned(&mut self, now: Instant, id: ChildId, returned: Option<&Returned>) {
        let Some(lent) = self.lending.loans.remove(&id) else { return };
        if let Some(returned) = returned
            && returned.usage != lent.usage
        {
            self.loan_moved(now, id, &lent.usage, &returned.usage);
        }
        self.take_in(now, lent.owner, id, returned);
        if !self.has_loans() {
            let prepared = std::mem::take(&mut self.lending.prepared);
            prepared.iter().for_each(|prepared| self.announce(now, prepared));
        }
    }

    fn take_in(&mut self, now: Instant, owner: Owner, id: ChildId, returned: Option<&Returned>) {
        let Some(tunnel) = self.sad.get_mut(id) else { return };
        if !tunnel.give_back(returned) {
            tracing::warn!(child = %id, "another engine has lost the numbers of an SA: it is replaced");
            return self.rekey_tunnel(now, owner, id);
        }
        let sequence = tunnel.inbound.sequence();
        // What came before the radio went off was not missed.
        if let Some(heard) = self.client_of(owner).and_then(|client| client.heard_up_to.get_mut(&id)) {
            *heard = sequence.max(*heard);
        }
    }

    /// An engine has refused a loan: the tunnel stays here for good.
    pub fn loan_refused(&mut self, now: Instant, id: ChildId, returned: &Returned) {
        self.loan_returned(now, id, Some(returned));
        if let Some(tunnel) = self.sad.get_mut(id) {
            tunnel.keep();
        }
    }
}
