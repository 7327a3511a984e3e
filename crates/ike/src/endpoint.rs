//! All IKE SAs of one node behind one interface: demultiplexing by SPI, commands, timers and events. Owns the set of SAs
//! (`effects` has the changes that one SA asks for another); must never look inside a protected message.

mod effects;
mod elsewhere;
mod keys;
mod newcomer;
mod redirect;
mod renewal;
mod responder;
mod revocation;
mod store;
mod strangers;
mod takeover;

pub use store::Absent;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_sansio::{Deadline, Entropy, Instant, Path, Transmit, UnixTime};
use dormouse_wire::ike::{ExchangeType, Header, NotifyType};
use dormouse_wire::sleep::Sleeping;
use ipnet::IpNet;

use crate::config::Connection;
use crate::config_payload::AddressPool;
use crate::endpoint_config::EndpointConfig;
use crate::error::{Discard, NegotiationError};
use crate::event::{CloseReason, Event};
use crate::exchange::child::CreateChild;
use crate::exchange::rekey::RekeyIke;
use crate::handshake::initiator::Opening;
use crate::handshake::{Slot, Step};
use crate::load::LoadHistory;
use crate::sa::IkeSa;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::ticket::ClientTicket;
use crate::ticket::lineage::{Name, Outcome};
use crate::work::Done;
use dormouse_keying::{ChildId, SaId};
use takeover::Takeovers;
use takeover::orphans::Spi;

/// A wall clock that is this far from where it was expected has been set.
const CLOCK_JITTER: Duration = Duration::from_secs(2);

/// Every IKE SA of a node, in both roles.
///
/// # Driving it
///
/// The endpoint neither reads a clock nor owns a socket. Its driver
///
/// 1. calls a command, [`handle_datagram`](Self::handle_datagram) (without the non-ESP marker) or
///    [`handle_timeout`](Self::handle_timeout), with the present time, which must never go backwards;
/// 2. then goes on as the driving contract of [`dormouse_sansio`] says: events first, for [`Event::TicketKeys`] must be durable
///    before the answer leaves; then datagrams; then it waits until
///    [`poll_timeout`](Self::poll_timeout). All that is due by then is done in one call.
///
/// Certificates and tickets need [`set_wall_clock`](Self::set_wall_clock).
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) shared: Shared,
    pub(crate) slots: BTreeMap<SaId, Slot>,
    /// The deadline of each SA that has one, and the SAs by the latest moment of theirs.
    deadlines: BTreeMap<SaId, Deadline>,
    order: BTreeSet<(Instant, SaId)>,
    /// The same by the earliest moment of theirs.
    starts: BTreeSet<(Instant, SaId)>,
    touched: BTreeSet<SaId>,
    complaints: strangers::Complaints,
    takeovers: Takeovers,
}

impl Endpoint {
    /// An endpoint without SAs. `entropy` must be a cryptographic generator outside of tests.
    #[must_use]
    pub fn new(config: EndpointConfig, entropy: Box<dyn Entropy>) -> Self {
        Self {
            shared: Shared::new(config, entropy),
            slots: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            order: BTreeSet::new(),
            starts: BTreeSet::new(),
            touched: BTreeSet::new(),
            complaints: strangers::Complaints::default(),
            takeovers: Takeovers::default(),
        }
    }

    /// Tells what time it is for the world: `unix` at `at`. Again whenever the wall clock was set.
    pub fn set_wall_clock(&mut self, at: Instant, unix: UnixTime) {
        let expected = self.shared.unix(at);
        if self.shared.set_wall_clock(at, unix) {
            // Lists could not be judged without the time.
            for connection in self.shared.config.connections.clone() {
                self.shared.configure_revocation(at, &connection);
            }
            self.shared.ask(at);
        }
        if expected.saturating_since(unix).max(unix.saturating_since(expected)) <= CLOCK_JITTER {
            return;
        }
        self.reschedule_authentication(at);
    }

    // ---- commands ----

    /// Opens an IKE SA. `path` is where to: its carrier is usually [`Carrier::Ike`]; [`Carrier::NatT`] skips the move
    /// between ports. Ends in [`Event::Established`] or [`Event::Failed`], after the retransmission policy's patience at the
    /// latest.
    pub fn connect(&mut self, now: Instant, conn: Arc<Connection>, path: Path) -> SaId {
        self.shared.configure_revocation(now, &conn);
        let id = self.shared.new_sa();
        let opening = Opening::connect(&mut self.shared, now, id, conn, path, None);
        self.open(now, id, opening);
        id
    }

    /// Opens an IKE SA with a ticket (RFC 5723). Ends like [`connect`](Self::connect); a gateway that does not take the
    /// ticket makes it fail with [`NegotiationError::TicketRefused`], at once.
    pub fn resume(&mut self, now: Instant, conn: Arc<Connection>, ticket: ClientTicket, path: Path) -> SaId {
        let id = self.shared.new_sa();
        let opening = Opening::resume(&mut self.shared, now, id, conn, ticket, path);
        self.open(now, id, opening);
        id
    }

    fn open(&mut self, now: Instant, id: SaId, opening: Result<Opening, NegotiationError>) {
        match opening {
            Ok(opening) => {
                self.slots.insert(id, Slot::Opening(Box::new(opening)));
                self.touched.insert(id);
            }
            Err(error) => self.shared.event(Event::Failed { sa: id, error }),
        }
        self.apply_effects(now);
    }

    /// Moves an SA to another path: address, port or family of either end. The ESP side moves at once; the peer learns it by
    /// an UPDATE_SA_ADDRESSES exchange (RFC 4555), and what is under way is repeated from the new address. Calling it with
    /// the present path repeats the update, which is right after a sleep that the NAT may not have survived.
    ///
    /// Before the SA is established, its handshake simply goes on from the new address. `false` if there is no such SA.
    pub fn set_path(&mut self, now: Instant, sa: SaId, path: Path) -> bool {
        self.with_slot(now, sa, |slot, shared| match slot {
            Slot::Established(ike) => ike.set_path(shared, now, path),
            Slot::Opening(opening) => opening.set_path(shared, now, path),
            Slot::Intermediate(waiting) => waiting.set_path(shared, now, path),
            Slot::Signing(signing) => signing.first.link.path = path,
            Slot::Authenticating(auth) => auth.set_path(shared, now, path),
            Slot::HalfOpen(_) => {}
        })
    }

    /// Whether the peer would follow an SA to other addresses: by MOBIKE, or because we are behind a NAT and it looks where authentic
    /// packets come from (RFC 7296 section 2.23). Otherwise it would answer IKE there, and send ESP to where we were.
    #[must_use]
    pub fn can_move(&self, sa: SaId) -> bool {
        matches!(self.slots.get(&sa), Some(Slot::Established(ike)) if ike.mobility.can_move())
    }

    /// Gateway: the addresses at which this machine can be reached now, at any time; what is not an address for peers (loopback,
    /// link-local) is left out by the driver. Where the connection names none itself, clients are told those that they do not use:
    /// when their session begins, and when this changes (RFC 4555 section 3.6).
    pub fn set_own_addresses(&mut self, now: Instant, addresses: &[IpAddr]) {
        if self.shared.own_addresses == addresses {
            return;
        }
        self.shared.own_addresses = addresses.to_vec();
        for (id, slot) in &mut self.slots {
            if let Slot::Established(ike) = slot
                && !ike.core.client
                && ike.core.link.conn.mobility.additional_addresses.is_empty()
            {
                ike.tell_addresses(&mut self.shared, now, addresses);
                self.touched.insert(*id);
            }
        }
        self.apply_effects(now);
    }

    /// Asks whether the peer still has the SA. [`Event::ProbeAnswered`] or, after `timeout`, [`Event::ProbeFailed`]. A failed
    /// probe does not end the SA; the request goes on being repeated until the retransmission policy gives up.
    pub fn probe(&mut self, now: Instant, sa: SaId, timeout: Duration) -> bool {
        self.with_sa(now, sa, |ike, shared| ike.probe(shared, now, timeout))
    }

    /// Rekeys the IKE SA. Its name stays.
    pub fn rekey_ike(&mut self, now: Instant, sa: SaId) -> bool {
        self.with_sa(now, sa, |ike, shared| {
            ike.enqueue(RekeyIke::new(), now);
            ike.pump(shared, now);
        })
    }

    /// Rekeys a CHILD SA: on request, or because its volume or sequence numbers run out.
    pub fn rekey_child(&mut self, now: Instant, child: ChildId) -> bool {
        let Some(sa) = self.owner(child) else { return false };
        self.with_sa(now, sa, |ike, shared| {
            ike.enqueue(CreateChild::rekey(child), now);
            ike.pump(shared, now);
        })
    }

    /// Asks for another CHILD SA, by its index in [`Connection::children`].
    pub fn create_child(&mut self, now: Instant, sa: SaId, config: usize) -> bool {
        self.with_sa(now, sa, |ike, shared| {
            ike.enqueue(CreateChild::another(config), now);
            ike.pump(shared, now);
        })
    }

    /// Deletes one CHILD SA.
    pub fn delete_child(&mut self, now: Instant, child: ChildId) -> bool {
        let Some(sa) = self.owner(child) else { return false };
        self.with_sa(now, sa, |ike, shared| ike.delete_child(shared, now, child))
    }

    /// Ends an SA: its traffic stops at once, and the peer gets a Delete. [`Event::Closed`] follows when it has confirmed, or after a few
    /// seconds. Before the SA is established: [`Event::Failed`] with [`NegotiationError::Cancelled`].
    pub fn close(&mut self, now: Instant, sa: SaId) -> bool {
        self.end_or(now, sa, |ike, shared| ike.close(shared, now, CloseReason::Requested))
    }

    /// This end stops, and may come back: an SA that a ticket brings back is dropped without a word, as in a crash, and any other one
    /// is closed. To delete it would cost the ticket: "when an IKE SA is deleted by the client or the gateway, the client MUST
    /// delete its stored ticket" (RFC 5723 section 6.2).
    /// "[...] SHOULD send a Delete payload" (RFC 7296 section 2.4): not for an SA that shall be resumed.
    pub fn leave(&mut self, now: Instant, sa: SaId) -> bool {
        let resumable = self.established(sa).is_some_and(|ike| ike.upkeep.had_ticket() && ike.is_live());
        if resumable { self.forget(now, sa) } else { self.close(now, sa) }
    }

    /// Drops an SA without a word to the peer: it is known to be gone there, or was replaced. [`Event::Closed`] follows at
    /// once.
    pub fn forget(&mut self, now: Instant, sa: SaId) -> bool {
        if matches!(self.slots.get(&sa), Some(Slot::Established(_))) {
            self.end(sa, CloseReason::Requested);
            self.apply_effects(now);
            return true;
        }
        self.end_or(now, sa, |_, _| {})
    }

    /// Another SA has taken the place of this one: it is dropped without a word, unless the peer is being told that it is deleted, as
    /// after a reauthentication, or will be as soon as the CHILD SAs of the other one are up.
    pub fn supersede(&mut self, now: Instant, sa: SaId) -> bool {
        let (closing, by) = match self.slots.get(&sa) {
            Some(Slot::Established(ike)) => (!ike.is_live(), ike.upkeep.reauthenticated_by()),
            _ => (false, None),
        };
        let replaced = by.is_some_and(|by| self.slots.contains_key(&by));
        closing || replaced || self.forget(now, sa)
    }

    fn end_or(&mut self, now: Instant, sa: SaId, close: impl FnOnce(&mut IkeSa, &mut Shared)) -> bool {
        match self.slots.get(&sa) {
            None => false,
            Some(Slot::Established(_)) => self.with_sa(now, sa, close),
            Some(_) => {
                if let Some(slot) = self.slots.remove(&sa) {
                    slot.cancel(&mut self.shared);
                }
                self.touched.insert(sa);
                self.apply_effects(now);
                true
            }
        }
    }

    /// An authenticated ESP packet of this SA came over `path`. If the peer is behind a NAT and we are not, the mapping has
    /// moved and so do we (RFC 7296 section 2.23, RFC 4555 section 3.8). Call it only when the path differs from the last.
    pub fn observed_path(&mut self, now: Instant, sa: SaId, path: Path) -> bool {
        self.with_sa(now, sa, |ike, shared| ike.observed_path(shared, now, path))
    }

    /// When ESP traffic of this SA was last sent and received: it stands in for liveness checks and keepalives. Call it
    /// before [`handle_timeout`](Self::handle_timeout) when the deadline's reason is `liveness` or `nat keepalive`, not for
    /// each packet.
    pub fn note_traffic(
        &mut self,
        now: Instant,
        sa: SaId,
        sent: Option<Instant>,
        received: Option<Instant>,
    ) -> bool {
        self.with_sa(now, sa, |ike, _| ike.core.note_traffic(sent, received))
    }

    // ---- sleep ----

    /// Device: announces that the radio goes off (`docs/wire/dormancy.md`). First everything is done on this SA that would fall
    /// due during the sleep, which will `probably` last so long (`None`: as long as it may). [`Event::SleepAnswered`] follows after `timeout` at the latest, also from a gateway that
    /// does not know the extension; then the radio may go off, and nothing needs to be called until
    /// [`woke`](Self::woke). `false` if there is no such SA, or this end is not its client.
    pub fn announce_sleep(
        &mut self,
        now: Instant,
        sa: SaId,
        said: Sleeping,
        probably: Option<Duration>,
        timeout: Duration,
    ) -> bool {
        let is_client = self.established(sa).is_some_and(|ike| ike.core.client);
        is_client
            && self.with_sa(now, sa, |ike, shared| ike.announce_sleep(shared, now, said, probably, timeout))
    }

    /// Device: the radio is back. Time that passed without it counts neither as silence of the peer nor against the patience
    /// of requests under way, and a [`probe`](Self::probe) is forgotten.
    pub fn woke(&mut self, now: Instant, sa: SaId) -> bool {
        self.with_sa(now, sa, |ike, _| ike.woke(now))
    }

    /// Nothing could be sent or heard, and now it can: requests under way get their patience anew, and a [`probe`](Self::probe) is
    /// forgotten: its deadline is the driver's, who asks again if it still wants to know. The peer's silence counts.
    pub fn reachable(&mut self, now: Instant, sa: SaId) -> bool {
        self.with_sa(now, sa, |ike, _| ike.reachable(now))
    }

    /// Gateway: an authenticated ESP packet of this SA came that the device sent after it announced its sleep (see the
    /// marks of [`Event::PeerSleeps`]). A new IKE request of the device ends the sleep by itself.
    pub fn peer_awake(&mut self, now: Instant, sa: SaId) -> bool {
        self.with_sa(now, sa, |ike, shared| ike.awake(shared, now))
    }

    // ---- the store ----

    /// Gateway: what became of an operation of [`Event::Store`] that `sa` waits for. Later than two seconds after it was asked,
    /// it changes nothing.
    pub fn stored(&mut self, now: Instant, sa: SaId, outcome: Outcome) {
        self.judge_ticket(now, sa, outcome);
        self.apply_effects(now);
    }

    /// What became of [`Event::Work`]. Each order is answered, also one whose SA has ended: the next one is handed out then.
    pub fn done(&mut self, now: Instant, sa: SaId, done: Done) {
        let slot = self.shared.works.came_back(sa).then(|| self.slots.remove(&sa)).flatten();
        if let Some(slot) = slot {
            self.touched.insert(sa);
            if let Some(slot) = slot.done(&mut self.shared, now, done) {
                self.slots.insert(sa, slot);
            }
        }
        self.apply_effects(now);
    }

    /// Gateway: an authenticated ESP packet came on the CHILD SA of a tentative SA ([`crate::Established::confirmed`] was false), over
    /// `path`: the client is there. [`Event::Store`] asks whether its ticket counts; [`Event::Confirmed`] follows, or
    /// [`Event::Closed`]. Until then packets of this SA wait, at most [`limits::WAITING_MAX`](crate::limits::WAITING_MAX), and none is sent.
    pub fn confirm(&mut self, now: Instant, sa: SaId, path: Path) -> bool {
        self.with_sa(now, sa, |ike, shared| {
            ike.confirm(shared, now, path);
        })
    }

    /// Gateway: whether the store of lineages can be asked. While it cannot, tickets are refused, and clients take the full exchange.
    pub fn set_store(&mut self, reachable: bool) {
        self.shared.store_away = !reachable;
    }

    /// Client: the lineage of a ticket of an earlier run, to be named at the next full login.
    pub fn set_former_lineage(&mut self, connection: &str, lineage: Name) {
        self.shared.former.lineages.insert(connection.to_owned(), lineage);
    }

    // ---- input ----

    /// A datagram for IKE, without the non-ESP marker. It is decrypted in place.
    ///
    /// # Errors
    /// Why it was dropped; nothing but counters has changed then, and at most an error notification was queued.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) -> Result<(), Discard> {
        self.shared.stats.received(datagram.len());
        let result = self.dispatch(now, path, datagram);
        if let Err(discard) = result {
            tracing::debug!(%path, reason = discard.name(), "datagram dropped");
            self.shared.stats.discard(discard.name());
        }
        self.apply_effects(now);
        result
    }

    fn dispatch(&mut self, now: Instant, path: Path, datagram: &mut [u8]) -> Result<(), Discard> {
        let header = Header::parse(datagram).map_err(|_| Discard::Malformed)?;
        if header.major() != 2 {
            if header.major() > 2 && !header.flags.response {
                // "[...] it MUST drop the message and SHOULD send an unauthenticated Notify message of type
                // INVALID_MAJOR_VERSION" (RFC 7296 section 2.5)
                self.complain(now, path, &header, NotifyType::InvalidMajorVersion);
            }
            return Err(Discard::Version);
        }
        if usize::try_from(header.length) != Ok(datagram.len()) {
            return Err(Discard::Malformed);
        }
        let outside = header.exchange == ExchangeType::Informational && !header.flags.response;
        if let Some(spi) =
            (outside && header.message_id == 0).then(|| strangers::invalid_spi(datagram)).flatten()
        {
            return self.doubt(now, path, spi);
        }
        if header.spi_i == 0 {
            return Err(Discard::Malformed);
        }
        let first = matches!(header.exchange, ExchangeType::IkeSaInit | ExchangeType::IkeSessionResume);
        if first && !header.flags.response && header.spi_r == 0 {
            if !header.flags.initiator || header.message_id != 0 {
                return Err(Discard::Malformed);
            }
            return self.first_message(now, path, &header, datagram);
        }
        let ours = if header.flags.initiator { header.spi_r } else { header.spi_i };
        let Some(&id) = self.shared.by_spi.get(&ours) else {
            // "[...] the node can audit the suspicious event but MUST NOT respond" (RFC 7296 section 2.21.4)
            if !header.flags.response && !first && !self.is_left(now, Spi::Ike(ours), path.local.ip()) {
                self.complain(now, path, &header, NotifyType::InvalidIkeSpi);
            }
            return Err(Discard::UnknownSpi);
        };
        self.deliver(now, id, path, &header, datagram)
    }

    fn deliver(
        &mut self,
        now: Instant,
        id: SaId,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<(), Discard> {
        let Some(slot) = self.slots.remove(&id) else { return Err(Discard::UnknownSpi) };
        self.touched.insert(id);
        let Step { next, result } = slot.handle(&mut self.shared, now, path, header, datagram);
        if let Some(slot) = next {
            self.slots.insert(id, slot);
        }
        result
    }

    /// Does everything that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<SaId> = self.starts.iter().take_while(|(at, _)| *at <= now).map(|&(_, id)| id).collect();
        for id in due {
            let Some(slot) = self.slots.remove(&id) else { continue };
            self.touched.insert(id);
            let waits = matches!(slot, Slot::HalfOpen(_));
            if let Some(slot) = slot.handle_timeout(&mut self.shared, now) {
                self.slots.insert(id, slot);
            }
            if waits {
                // It may be established now, the next one of the same identity, and sessions are counted.
                self.apply_effects(now);
            }
        }
        self.revocation_due(now);
        self.renew_keys(now);
        self.apply_effects(now);
    }

    // ---- output ----

    /// The next datagram to send, complete with the non-ESP marker where the path needs one, appended to `out`.
    pub fn poll_transmit(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.shared.out.next(out)
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called next, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let of_sas = self.order.first().and_then(|(_, id)| self.deadlines.get(id).copied());
        Deadline::earlier(of_sas, self.common_deadline())
    }

    /// Every timer that runs, of every SA; [`Endpoint::poll_timeout`] is the first of them.
    #[must_use]
    pub fn timers(&self) -> Vec<Deadline> {
        let mut timers = Vec::new();
        for (id, first) in &self.deadlines {
            match self.slots.get(id) {
                Some(Slot::Established(ike)) => timers.extend(ike.deadlines()),
                _ => timers.push(*first),
            }
        }
        timers.extend(self.common_timers());
        timers
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// The pool that inner addresses are leased from.
    pub fn pool(&mut self) -> Option<&mut (dyn AddressPool + Send + 'static)> {
        self.shared.config.pool.as_deref_mut()
    }

    /// Prefixes that clients' inner addresses come from, by any connection that answers.
    #[must_use]
    pub fn pool_prefixes(&self) -> Vec<IpNet> {
        let answering = self.shared.config.connections.iter().filter(|c| c.role.answers());
        let policies = answering.flat_map(|c| {
            core::iter::once(&c.answering.policy)
                .chain(c.answering.peers.iter().map(|rule| &rule.connection.answering.policy))
        });
        policies.flat_map(|policy| policy.pool.iter().copied()).collect()
    }

    /// Counters of the whole endpoint.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Counters of one SA, from its first message on.
    #[must_use]
    pub fn sa_stats(&self, sa: SaId) -> Option<&Stats> {
        self.slots.get(&sa).map(|slot| &slot.link().stats)
    }

    /// The path that IKE messages of this SA take.
    #[must_use]
    pub fn path(&self, sa: SaId) -> Option<Path> {
        self.slots.get(&sa).map(|slot| slot.link().path)
    }

    /// SAs held for devices that sleep.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.sleepers.len()
    }

    /// What was learned about latency and load: to be stored, and handed to the next run in [`EndpointConfig::load`].
    #[must_use]
    pub fn load_history(&self) -> &LoadHistory {
        &self.shared.load
    }

    /// Half-open SAs that wait for an IKE_AUTH request.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.shared.half_open.len()
    }

    /// IKE SAs in all states.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no IKE SA at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    // ---- inside ----

    pub(crate) fn touch(&mut self, id: SaId) {
        self.touched.insert(id);
    }

    fn owner(&self, child: ChildId) -> Option<SaId> {
        self.slots.iter().find_map(|(&id, slot)| match slot {
            Slot::Established(ike) if ike.children.get(child).is_some() => Some(id),
            _ => None,
        })
    }

    fn with_slot(&mut self, now: Instant, sa: SaId, f: impl FnOnce(&mut Slot, &mut Shared)) -> bool {
        let Some(slot) = self.slots.get_mut(&sa) else { return false };
        f(slot, &mut self.shared);
        self.touched.insert(sa);
        self.apply_effects(now);
        true
    }

    /// Runs a command on an established SA that is alive.
    pub(crate) fn with_sa(
        &mut self,
        now: Instant,
        sa: SaId,
        f: impl FnOnce(&mut IkeSa, &mut Shared),
    ) -> bool {
        match self.slots.get_mut(&sa) {
            Some(Slot::Established(ike)) if ike.takes_commands() => {
                f(ike, &mut self.shared);
            }
            _ => return false,
        }
        self.touched.insert(sa);
        self.apply_effects(now);
        true
    }
}
