//! An established IKE SA: exchanges queued on a message-id window. Owns the queue, the timers and the dispatch of
//! messages; the exchanges themselves are in [`crate::exchange`]. It must never touch another SA: it asks for that with an
//! [`Action`].
//!
//! MOBIKE, rekeying, liveness and deletion are exchanges, never states; the only states are those of the SA's end
//! ([`Stage`]). Its timers are in [`timers`], its way to the peer in [`paths`].

mod paths;
mod timers;

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::ike::{
    ExchangeType, Header, NotifyType, Payload, PayloadType, ProtocolId, unsupported_critical,
};

use crate::child::Child;
use crate::config::AssignedConfig;
use crate::config_payload::Lease;
use crate::error::Discard;
use crate::event::{CloseReason, Event};
use crate::exchange::child::NewChild;
use crate::exchange::keepalive::Keepalive;
use crate::exchange::rekey::NewIke;
use crate::exchange::sleep::{Announcing, Asleep};
use crate::handshake::Session;
use crate::handshake::quick::{Confirming, Tentative};
use crate::keys::Spis;
use crate::link::{Channel, Link, Opened};
use crate::natd;
use crate::payloads::{View, notify};
use crate::shared::{Action, Shared};
use crate::stats::Kind;
use crate::window::{Incoming, Outgoing, Verdict};
use dormouse_keying::{ChildId, ChildSa, Owner, SaId};

/// How long a replaced SA waits for the peer's Delete, and a closing one for the answer to its own.
const LINGER: Duration = Duration::from_secs(30);
/// How long [`IkeSa::close`] tries to tell the peer.
const CLOSE_FOR: Duration = Duration::from_secs(5);
/// The first back-off after TEMPORARY_FAILURE; it doubles, with jitter.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Refusals of one exchange, over some three minutes, before the SA is given up.
const RETRIES_MAX: u32 = 12;
/// Slack of a deadline that nobody waits for but that has no interval of its own.
const UPKEEP_SLACK: Duration = Duration::from_secs(60);
/// The probe that an unauthenticated hint starts gives up after this long: the hint is probably right.
const HINT_PROBE: Duration = Duration::from_secs(2);
/// Hints are passed on no more often than this.
/// "Implementations MUST limit the rate at which they take actions based on unprotected messages." (RFC 7296 section 2.4)
/// "An implementation SHOULD limit the frequency of such tests" (RFC 7296 section 2.21.4)
const HINT_INTERVAL: Duration = Duration::from_secs(5);

/// What waits for its turn in the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Another CHILD SA, by its index in the connection.
    CreateChild(usize),
    RekeyChild(ChildId),
    RekeyIke,
    DeleteChildren(Vec<ChildId>),
    DeleteIke,
    Liveness,
    /// Ask the peer from where it sees us, after this much silence (zero: not to learn about the NAT).
    NatCheck(Duration),
    /// Tell the peer our new address (RFC 4555 section 3.5).
    Update,
    /// Have the peer prove that it receives at its new address (RFC 4555 section 3.7).
    Routability,
    /// Tell the peer our additional addresses (RFC 4555 section 3.6).
    Addresses,
    /// Ask for a ticket (RFC 5723 section 4.1).
    Ticket,
    /// Announce a sleep, after everything else that is ready.
    Sleep,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) task: Task,
    pub(crate) not_before: Instant,
    pub(crate) refusals: u32,
}

/// A request of ours under way, with what its answer needs.
#[derive(Debug)]
pub(crate) enum Exchange {
    Child(Box<NewChild>),
    RekeyIke(Box<NewIke>),
    DeleteChildren(Vec<ChildId>),
    DeleteIke,
    Liveness,
    NatCheck(Duration),
    Update(crate::exchange::mobike::Update),
    Routability(crate::exchange::mobike::Routability),
    Addresses(Path),
    Ticket,
    Sleep,
}

/// Which part of its life the SA is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Live,
    /// We are telling the peer that it is over.
    Closing(CloseReason),
    /// Rekeying made a successor that has taken over everything; the SA waits for its deletion, without a public name.
    Superseded,
    /// Made by the peer's rekeying while ours was under way: which successor inherits is not decided yet.
    Heir,
}

/// What becomes of the SA after a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Lives,
    Ends(CloseReason),
}

/// A successor that the peer's rekeying made while our own rekeying was under way (RFC 7296 section 2.25.2).
#[derive(Debug)]
pub(crate) struct PeerRekey {
    pub(crate) heir: SaId,
    /// The lower nonce of that exchange.
    pub(crate) lowest: Vec<u8>,
}

/// The answer to a request, and what follows from it.
pub(crate) struct Answer {
    pub(crate) payloads: Vec<Payload>,
    pub(crate) fate: Fate,
    pub(crate) kind: Kind,
}

impl Answer {
    pub(crate) fn of(kind: Kind, payloads: Vec<Payload>) -> Self {
        Self { payloads, fate: Fate::Lives, kind }
    }

    pub(crate) fn refuse(kind: Kind, error: NotifyType) -> Self {
        Self::of(kind, vec![notify(error, [])])
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct IkeSa {
    pub(crate) link: Link,
    pub(crate) channel: Channel,
    pub(crate) stage: Stage,
    pub(crate) session: Session,
    pub(crate) local_id: Identity,
    pub(crate) peer: Identity,
    /// Who opened the session, whoever rekeyed it since: the MOBIKE initiator and the client of resumption.
    pub(crate) client: bool,
    pub(crate) assigned: AssignedConfig,
    pub(crate) mobike: bool,
    /// What NAT detection last said about the path.
    pub(crate) nat: natd::Detection,
    /// The digest in which the peer last said where it sees us.
    pub(crate) seen_as: Option<Vec<u8>>,
    pub(crate) children: BTreeMap<ChildId, Child>,
    /// SPIs that the peer deleted before the answer that makes them has come.
    pub(crate) early_deletes: Vec<u32>,
    pub(crate) out: Outgoing<Exchange>,
    pub(crate) inc: Incoming,
    pub(crate) queue: VecDeque<Pending>,
    pub(crate) peer_rekey: Option<PeerRekey>,
    pub(crate) additional: Vec<IpAddr>,
    /// The id of the newest UPDATE_SA_ADDRESSES request that was obeyed.
    pub(crate) newest_update: Option<u32>,
    /// The same for additional addresses.
    pub(crate) newest_addresses: Option<u32>,
    pub(crate) keepalive: Keepalive,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expire_at: Option<Instant>,
    pub(crate) reauth_at: Option<Instant>,
    /// When the first of the certificates expires that vouch for the session.
    pub(crate) vouched_at: Option<Instant>,
    pub(crate) renew_ticket_at: Option<Instant>,
    /// The gateway has given a ticket: the SA can be resumed, at this end or that.
    pub(crate) had_ticket: bool,
    pub(crate) last_in: Instant,
    pub(crate) last_out: Instant,
    linger: Option<Instant>,
    probe: Option<Probe>,
    hinted_at: Option<Instant>,
    /// Set when a message has ended the SA: the endpoint takes it down.
    pub(crate) ended: Option<CloseReason>,
    /// The peer's new address has not answered yet (RFC 4555 section 3.7): ESP stays on the old one.
    pub(crate) unverified: bool,
    /// Nothing has come on this SA yet, which the peer's rekeying made: our answer may be lost and the peer may not know it.
    pub(crate) unheard: bool,
    /// How often an update met UNEXPECTED_NAT_DETECTED in a row.
    pub(crate) unexpected_nats: u32,
    /// Both ends know the dormancy extension.
    pub(crate) dormancy: bool,
    /// Our device is about to sleep.
    pub(crate) announcing: Option<Announcing>,
    /// The peer sleeps.
    pub(crate) asleep: Option<Asleep>,
    /// Resumed at once, and not confirmed by the client yet.
    pub(crate) tentative: Option<Tentative>,
    /// We are that client: the gateway must hear from us.
    pub(crate) confirming: Option<Confirming>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    since: Instant,
    until: Instant,
}

fn deletes_ike(payloads: &[Payload]) -> bool {
    payloads.iter().any(|p| matches!(p, Payload::Delete(d) if d.protocol == ProtocolId::Ike))
}

/// What a new established SA is made from.
pub(crate) struct Birth {
    pub(crate) session: Session,
    pub(crate) link: Link,
    pub(crate) channel: Channel,
    pub(crate) local_id: Identity,
    pub(crate) peer: Identity,
    pub(crate) client: bool,
    pub(crate) assigned: AssignedConfig,
    pub(crate) mobike: bool,
    pub(crate) dormancy: bool,
    pub(crate) nat: natd::Detection,
    /// The next ids of our requests and of the peer's.
    pub(crate) next_ids: (u32, u32),
}

impl IkeSa {
    pub(crate) fn new(shared: &mut Shared, now: Instant, birth: Birth) -> Self {
        let Birth {
            session,
            link,
            channel,
            local_id,
            peer,
            client,
            assigned,
            mobike,
            dormancy,
            nat,
            next_ids,
        } = birth;
        let conn = &link.conn;
        let soft = conn.ike_lifetime.soft(&mut shared.entropy);
        let mut sa = Self {
            channel,
            stage: Stage::Live,
            session,
            local_id,
            peer,
            client,
            assigned,
            mobike,
            nat,
            seen_as: None,
            children: BTreeMap::new(),
            early_deletes: Vec::new(),
            out: Outgoing::new(next_ids.0),
            inc: Incoming::new(next_ids.1, shared.config.window),
            queue: VecDeque::new(),
            peer_rekey: None,
            additional: Vec::new(),
            newest_update: None,
            newest_addresses: None,
            keepalive: Keepalive::new(conn.keepalive),
            rekey_at: soft.time.map(|t| now + t),
            expire_at: conn.ike_lifetime.hard().map(|t| now + t),
            reauth_at: None,
            vouched_at: None,
            renew_ticket_at: None,
            had_ticket: false,
            last_in: now,
            last_out: now,
            linger: None,
            probe: None,
            hinted_at: None,
            ended: None,
            unverified: false,
            unheard: false,
            unexpected_nats: 0,
            dormancy,
            announcing: None,
            asleep: None,
            tentative: None,
            confirming: None,
            link,
        };
        sa.schedule_authentication(shared, now);
        // Both ends rekey by the same clock: the client goes first unless it is asleep.
        if !sa.client {
            let later = |at, end| at + sa.link.conn.ike_lifetime.slack(end - at);
            sa.rekey_at = sa.rekey_at.map(|at| sa.expire_at.map_or(at, |end| later(at, end)));
        }
        sa
    }

    // ---- messages ----

    /// A datagram for this SA. When it ends the SA, [`IkeSa::ended`] says so.
    pub(crate) fn handle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<(), Discard> {
        self.link.stats.received(datagram.len());
        let spis = Spis { i: header.spi_i, r: header.spi_r };
        if header.flags.initiator == self.link.initiator || spis != self.link.spis {
            return Err(Discard::UnknownSpi);
        }
        let fate = if header.flags.response {
            self.handle_response(shared, now, path, header, datagram)?
        } else {
            self.handle_request(shared, now, path, header, datagram)?
        };
        if let Fate::Ends(reason) = fate {
            self.ended = Some(reason);
        }
        Ok(())
    }

    /// "An IKE endpoint MUST be prepared to accept and process a request while it has a request outstanding" (RFC 7296 section
    /// 2.3)
    fn handle_request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<Fate, Discard> {
        let id = header.message_id;
        let verdict = self.inc.verdict(id);
        // "This Notify message MUST NOT be sent in a response; the invalid request MUST NOT be acknowledged." (RFC 7296 section
        // 2.3)
        if verdict == Verdict::Outside {
            return Err(Discard::OutsideWindow);
        }
        if verdict == Verdict::Repeated {
            // "[...] the responder MUST ignore the retransmitted request except insofar as it causes a retransmission of the response"
            // (RFC 7296 section 2.1): it moves no mapping, because anybody can send an old copy from anywhere, and is
            // no sign of life, which must be "fresh, i.e., not retransmitted" (RFC 7296 section 2.4).
            if self.channel.is_repetition(datagram)? {
                self.repeat_answer(shared, path, id);
            }
            return Ok(Fate::Lives);
        }
        let Some(opened) = self.channel.open(now, datagram)? else { return Ok(Fate::Lives) };
        // A new request is what only an awake device sends. A repeated one may be any old copy, and an answer may have been
        // on its way since before the sleep.
        self.awake(shared, now);
        if let Fate::Ends(reason) = self.confirm(shared, now, path) {
            return Ok(Fate::Ends(reason));
        }
        self.heard(shared, now, path);
        if self.stage == Stage::Heir && !opened.as_ref().is_ok_and(|list| deletes_ike(list)) {
            // The peer would not use this successor if it had not chosen it. It repeats the request, which then finds
            // what the successor has inherited.
            shared.actions.push_back(Action::HeirChosen(self.link.id));
            return Err(Discard::InappropriateExchange);
        }
        let mut answer = self.answer(shared, now, path, header, opened);
        if View(&answer.payloads).has(NotifyType::InvalidSyntax) {
            // "[...] this error notification is considered fatal in both peers, meaning that the IKE SA is deleted without needing
            // an explicit Delete payload" (RFC 7296 section 2.21.3)
            answer.fate = Fate::Ends(CloseReason::ProtocolError);
        }
        let reply = self.link.header(header.exchange, true, id);
        let datagrams = self.channel.seal(&self.link, shared, &reply, &answer.payloads);
        self.link.send_by(shared, path, Class::Timely, &datagrams);
        self.last_out = now;
        self.inc.processed(id, datagrams);
        self.channel.forget_before(self.inc.oldest(), self.out.oldest());
        self.link.stats.answer(answer.kind);
        shared.stats.answer(answer.kind);
        Ok(answer.fate)
    }

    /// "[...] MUST respond to the address and port from which the request was received" (RFC 7296 section 2.11)
    fn repeat_answer(&mut self, shared: &mut Shared, path: Path, id: u32) {
        let Some(datagrams) = self.inc.answer(id).cloned() else { return };
        let repeated = datagrams.len() as u64;
        self.link.stats.retransmissions += repeated;
        shared.stats.retransmissions += repeated;
        self.link.send_by(shared, path, Class::Timely, &datagrams);
    }

    /// "[...] all requests having errors MUST result in a response notifying the other end of the error" (RFC 7296 section
    /// 2.21.3)
    fn answer(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        opened: Opened,
    ) -> Answer {
        let payloads = match opened {
            Ok(payloads) => payloads,
            Err(error) => {
                tracing::warn!(sa = %self.link.id, %error, "malformed request");
                return Answer::refuse(Kind::Informational, NotifyType::InvalidSyntax);
            }
        };
        // "[...] MUST include a Notify payload UNSUPPORTED_CRITICAL_PAYLOAD" (RFC 7296 section 2.5)
        if let Some(kind) = unsupported_critical(&payloads) {
            let data = vec![kind.code()];
            return Answer::of(
                Kind::Informational,
                vec![notify(NotifyType::UnsupportedCriticalPayload, data)],
            );
        }
        let view = View(&payloads);
        self.note_window(view);
        match header.exchange {
            ExchangeType::CreateChildSa => self.answer_create_child(shared, now, view),
            ExchangeType::Informational => {
                self.answer_informational(shared, now, path, header.message_id, view)
            }
            // An authentic request of a kind that has no place here is a broken peer.
            _ => Answer::refuse(Kind::Informational, NotifyType::InvalidSyntax),
        }
    }

    /// The peer may say how many requests it takes at once (RFC 7296 section 2.3).
    /// "The data associated with a SET_WINDOW_SIZE notification MUST be 4 octets long" (RFC 7296 section 2.3)
    pub(crate) fn note_window(&mut self, view: View<'_>) {
        let size = view.notify(NotifyType::SetWindowSize).map(|n| <[u8; 4]>::try_from(n.data.as_slice()));
        if let Some(Ok(size)) = size {
            self.out.set_window(u32::from_be_bytes(size));
        }
    }

    fn handle_response(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<Fate, Discard> {
        if self.out.flight(header.message_id).is_none() {
            return Err(Discard::UnexpectedResponse);
        }
        let opened = match self.channel.open(now, datagram) {
            Err(Discard::Unprotected) => {
                self.hint(shared, now, path, datagram);
                return Err(Discard::Unprotected);
            }
            Err(discard) => return Err(discard),
            Ok(None) => return Ok(Fate::Lives),
            Ok(Some(opened)) => opened,
        };
        let Some(flight) = self.out.answered(header.message_id) else {
            return Err(Discard::UnexpectedResponse);
        };
        self.heard(shared, now, path);
        self.link.stats.round_trips += 1;
        shared.stats.round_trips += 1;
        if let Some(probe) = self.probe.take() {
            shared.event(Event::ProbeAnswered { sa: self.link.id, after: now - probe.since });
        }
        let payloads = match opened {
            Ok(payloads) => payloads,
            Err(error) => {
                tracing::warn!(sa = %self.link.id, %error, "malformed answer");
                vec![notify(NotifyType::InvalidSyntax, [])]
            }
        };
        // "If the critical flag is set and the payload type is unrecognized, the message MUST be rejected" (RFC 7296 section 2.5):
        // an answer like one that is malformed.
        let payloads = match unsupported_critical(&payloads) {
            Some(kind) => {
                tracing::warn!(sa = %self.link.id, %kind, "an answer with a critical payload that is not supported");
                vec![notify(NotifyType::InvalidSyntax, [])]
            }
            None => payloads,
        };
        let view = View(&payloads);
        let fate = match flight.exchange {
            Exchange::Child(new) => self.child_answered(shared, now, *new, view),
            Exchange::RekeyIke(new) => self.rekey_answered(shared, now, *new, view),
            Exchange::DeleteChildren(ids) => {
                ids.into_iter().for_each(|id| self.remove_child(shared, id));
                Fate::Lives
            }
            Exchange::DeleteIke => Fate::Ends(self.end_reason()),
            Exchange::Liveness => Fate::Lives,
            Exchange::Addresses(sent_by) => self.addresses_answered(now, sent_by),
            Exchange::NatCheck(silence) => self.nat_check_answered(now, silence, view),
            Exchange::Update(update) => self.update_answered(shared, now, update, view),
            Exchange::Routability(check) => self.routability_answered(shared, check, path, view),
            Exchange::Ticket => {
                self.take_ticket(shared, now, view);
                Fate::Lives
            }
            Exchange::Sleep => self.sleep_answered(shared, now, flight.since, view),
        };
        if view.has(NotifyType::InvalidSyntax) {
            return Ok(Fate::Ends(CloseReason::ProtocolError));
        }
        if fate == Fate::Lives {
            self.pump(shared, now);
        }
        Ok(fate)
    }

    /// Something authentic came by `path`.
    fn heard(&mut self, shared: &mut Shared, now: Instant, path: Path) {
        self.last_in = now;
        self.unheard = false;
        // RFC 4555 section 3.8: with MOBIKE, IKE messages do not move the mapping; UPDATE_SA_ADDRESSES and ESP do.
        // "The host not behind a NAT MUST NOT use these dynamic updates for IKEv2 packets" (RFC 4555 section 3.8)
        if !self.mobike && path != self.link.path {
            self.observed_path(shared, now, path);
        }
    }

    // ---- our own exchanges ----

    /// Puts a task into the queue, unless it is there already.
    pub(crate) fn enqueue(&mut self, task: Task, not_before: Instant) {
        if !self.queue.iter().any(|p| p.task == task) {
            self.queue.push_back(Pending { task, not_before, refusals: 0 });
        }
    }

    /// Puts a task before all others.
    pub(crate) fn enqueue_first(&mut self, task: Task, now: Instant) {
        self.queue.retain(|p| p.task != task);
        self.queue.push_front(Pending { task, not_before: now, refusals: 0 });
    }

    /// The peer answered TEMPORARY_FAILURE: again later. "[...] it MUST NOT immediately retry the operation; it MUST wait so that
    /// the sender may complete whatever operation caused the temporary condition" (RFC 7296 section 2.25).
    pub(crate) fn retry(&mut self, shared: &mut Shared, now: Instant, task: Task, refusals: u32) {
        if refusals >= RETRIES_MAX {
            tracing::warn!(sa = %self.link.id, ?task, "given up after {refusals} refusals");
            // "[...] it SHOULD conclude that the state information is out of sync and close the IKE SA" (RFC 7296 section 2.25)
            return self.close(shared, now, CloseReason::ProtocolError);
        }
        let wait = RETRY_FIRST * (1 << refusals.min(4));
        // As much again, at random: two ends that refuse each other's requests must not go on doing so in step.
        let jitter =
            Duration::from_millis(shared.entropy.below(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
        self.queue.push_back(Pending { task, not_before: now + wait + jitter, refusals: refusals + 1 });
    }

    /// Whether a task may run beside what is under way.
    /// "it SHOULD NOT start any new CREATE_CHILD_SA exchanges on the IKE SA that is being rekeyed" (RFC 7296 section 1.3.2)
    fn compatible(&self, task: &Task) -> bool {
        let exclusive = |t: &Task| matches!(t, Task::RekeyIke | Task::DeleteIke | Task::Update | Task::Sleep);
        if self.out.is_idle() {
            return true;
        }
        !exclusive(task)
            && self.out.flights().all(|f| {
                !matches!(
                    f.exchange,
                    Exchange::RekeyIke(_) | Exchange::DeleteIke | Exchange::Update(_) | Exchange::Sleep
                )
            })
    }

    /// Starts what the window has room for.
    pub(crate) fn pump(&mut self, shared: &mut Shared, now: Instant) {
        while self.out.has_room() && self.asleep.is_none() && self.tentative.is_none() {
            let closing = self.stage != Stage::Live;
            let ready = |p: &Pending| {
                p.not_before <= now && self.compatible(&p.task) && (!closing || p.task == Task::DeleteIke)
            };
            // What a rekeying leaves to be deleted comes before the announcement of a sleep too: whatever is sent after that
            // says that the device is awake.
            let before_sleep = self.queue.iter().position(|p| p.task != Task::Sleep && ready(p));
            let next = before_sleep.or_else(|| self.queue.iter().position(ready));
            let Some(pending) = next.and_then(|i| self.queue.remove(i)) else { return };
            self.begin(shared, now, pending);
        }
    }

    fn begin(&mut self, shared: &mut Shared, now: Instant, pending: Pending) {
        let Pending { task, refusals, .. } = pending;
        match task {
            Task::CreateChild(config) => self.begin_child(shared, now, config, None, None, refusals),
            Task::RekeyChild(id) => self.begin_rekey_child(shared, now, id, refusals),
            Task::RekeyIke => self.begin_rekey_ike(shared, now, None, refusals),
            Task::DeleteChildren(ids) => self.begin_delete_children(shared, now, ids),
            Task::DeleteIke => self.begin_delete_ike(shared, now),
            Task::Liveness => self.begin_liveness(shared, now, Class::Upkeep),
            Task::NatCheck(silence) => self.begin_nat_check(shared, now, silence, Class::Upkeep),
            Task::Update => self.begin_update(shared, now),
            Task::Routability => self.begin_routability(shared, now),
            Task::Addresses => self.begin_addresses(shared, now),
            Task::Ticket => self.begin_ticket_request(shared, now),
            Task::Sleep => self.begin_sleep(shared, now),
        }
    }

    /// Sends a request and starts its timers. The exchange type follows from what it is for.
    pub(crate) fn request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        payloads: &[Payload],
        kind: Kind,
        class: Class,
        exchange: Exchange,
    ) {
        let exchange_type = match exchange {
            Exchange::Child(_) | Exchange::RekeyIke(_) => ExchangeType::CreateChildSa,
            _ => ExchangeType::Informational,
        };
        let header = self.link.header(exchange_type, false, self.out.next_id());
        let datagrams = self.channel.seal(&self.link, shared, &header, payloads);
        self.link.send(shared, class, &datagrams);
        self.link.stats.begin(kind);
        shared.stats.begin(kind);
        self.last_out = now;
        let until = match self.stage {
            Stage::Closing(_) => now + CLOSE_FOR,
            _ => now + self.patience(),
        };
        let wait = shared.wait(1);
        self.out.start(now, wait, until, datagrams, class, exchange);
        if self.out.ids_run_out() {
            self.rekey_at = Some(now);
        }
    }

    /// How long a request is worth repeating: as configured. RFC 4555 section 3.11 recommends five minutes to responders,
    /// because the client of MOBIKE finds out first that a path is broken; with tickets a gateway can afford less.
    /// "the responder SHOULD use relatively long timeout intervals" (RFC 4555 section 3.11)
    fn patience(&self) -> Duration {
        self.link.conn.liveness.timeout
    }

    /// An empty request; from behind a NAT, one that also asks whether the mapping is still the same: "it SHOULD include
    /// these notifications in DPD messages" (RFC 4555 section 3.8).
    fn begin_liveness(&mut self, shared: &mut Shared, now: Instant, class: Class) {
        if self.mobike && self.client && self.nat.local {
            return self.begin_nat_check(shared, now, Duration::ZERO, class);
        }
        self.request(shared, now, &[], Kind::Liveness, class, Exchange::Liveness);
    }

    // ---- commands ----

    /// Ends the SA on request: no more traffic at once, and the peer is told.
    /// "an IKE endpoint SHOULD send a Delete payload indicating that it has closed the IKE SA" (RFC 7296 section 2.4)
    pub(crate) fn close(&mut self, shared: &mut Shared, now: Instant, reason: CloseReason) {
        if matches!(self.stage, Stage::Closing(_)) {
            return;
        }
        self.remove_children(shared);
        self.stage = match self.stage {
            Stage::Superseded | Stage::Heir => Stage::Superseded,
            _ => Stage::Closing(reason),
        };
        if let Some(peers) = self.peer_rekey.take() {
            // It must not take over either; the peer may use it already.
            shared.actions.push_back(Action::Delete(peers.heir));
        }
        self.queue.clear();
        self.linger = Some(now + CLOSE_FOR);
        self.enqueue_first(Task::DeleteIke, now);
        self.pump(shared, now);
    }

    /// Waits for the peer's Delete, now that a successor has taken over.
    pub(crate) fn supersede(&mut self, now: Instant) {
        self.stage = Stage::Superseded;
        self.linger = Some(now + LINGER);
        self.probe = None;
    }

    /// See [`crate::Endpoint::probe`]. A request under way serves: it is repeated at once, on the present path.
    pub(crate) fn probe(&mut self, shared: &mut Shared, now: Instant, timeout: Duration) {
        let until = now + timeout;
        self.probe = Some(match self.probe {
            Some(running) => Probe { until: running.until.min(until), ..running },
            None => Probe { since: now, until },
        });
        if self.out.is_idle() {
            self.begin_liveness(shared, now, Class::Urgent);
        } else if self.last_out < now {
            // What has only just been sent, an address update for one, need not be sent twice.
            self.resend(shared, now, false);
        }
    }

    /// Repeats everything under way by the present path; see [`Outgoing::resend_all`].
    pub(crate) fn resend(&mut self, shared: &mut Shared, now: Instant, afresh: bool) {
        let wait = shared.wait(1);
        for (datagrams, class) in self.out.resend_all(now, wait, afresh) {
            self.link.send_again(shared, class, &datagrams);
        }
        self.last_out = now;
    }

    /// ESP traffic of the SA's children, which IKE does not see: it stands for liveness and keepalives.
    pub(crate) fn note_traffic(&mut self, sent: Option<Instant>, received: Option<Instant>) {
        self.last_out = self.last_out.max(sent.unwrap_or_default());
        self.last_in = self.last_in.max(received.unwrap_or_default());
    }

    /// For fuzzing: a request with any content, by the next id.
    pub(crate) fn fuzz_seal(
        &mut self,
        shared: &mut Shared,
        exchange: ExchangeType,
        first: PayloadType,
        plain: &[u8],
    ) -> Option<Vec<u8>> {
        let header = self.link.header(exchange, false, self.out.next_id());
        self.out.skip_id();
        self.channel.fuzz_seal(shared, &header, first, None, plain)
    }

    // ---- the end ----

    fn end_reason(&self) -> CloseReason {
        match self.stage {
            Stage::Closing(reason) => reason,
            _ => CloseReason::Requested,
        }
    }

    pub(crate) fn remove_child(&mut self, shared: &mut Shared, id: ChildId) {
        if self.children.remove(&id).is_some() {
            let owner = Owner::Ike(self.link.id);
            shared.event(Event::Child(ChildSa::Remove { owner, child: id }));
        }
    }

    pub(crate) fn remove_children(&mut self, shared: &mut Shared) {
        let ids: Vec<_> = self.children.keys().copied().collect();
        ids.into_iter().for_each(|id| self.remove_child(shared, id));
    }

    /// The SA is over: tells the driver and gives back what it held. A superseded SA goes silently.
    pub(crate) fn end(mut self: Box<Self>, shared: &mut Shared, reason: CloseReason, last_of_peer: bool) {
        self.remove_children(shared);
        for flight in self.out.flights() {
            if let Exchange::Child(new) = &flight.exchange {
                shared.free_esp_spi(new.spi_in());
            }
        }
        shared.by_spi.remove(&self.link.local_spi());
        shared.sleepers.remove(self.link.id);
        if let Some(rekey) = self.peer_rekey.take() {
            // Our own rekeying dies with the SA; the peer's survives (RFC 7296 section 2.25.2).
            shared.actions.push_back(Action::Delete(rekey.heir));
        }
        if matches!(self.stage, Stage::Superseded | Stage::Heir) {
            return;
        }
        if last_of_peer {
            self.release_lease(shared);
        }
        tracing::info!(sa = %self.link.id, %reason, "IKE SA closed");
        shared.event(Event::Closed { sa: self.link.id, reason });
    }

    fn release_lease(&mut self, shared: &mut Shared) {
        let lease = Lease { v4: self.assigned.v4, v6: self.assigned.v6 };
        if self.client || lease == Lease::default() {
            return;
        }
        if let Some(pool) = shared.config.pool.as_mut() {
            pool.release(&self.peer, &lease);
        }
    }
}
