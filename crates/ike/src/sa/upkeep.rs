//! What keeps a session good: when it must be authenticated anew, when a certificate ends that it rests on, when its ticket is
//! renewed, and whether the peer is still there. Owns these moments; must never end an SA on the word of a packet that is not
//! authenticated.
//!
//! Timers: `reauthentication`, `ticket renewal`, `probe`, `certificate expiry`: the session rests on a certificate that ends
//! then; the client reauthenticates [`RENEWAL`] earlier, in case that it has been given a new one meanwhile. At the gateway,
//! `authentication lifetime` (RFC 4478), announced to the client, and `replaced`: the same identity has begun another session.

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant, Path, UnixTime};
use dormouse_wire::ike::{NotifyType, Payload};

use super::IkeSa;
use super::core::Core;
use crate::event::{CloseReason, Event};
use crate::exchange::liveness::Liveness;
use crate::payloads::{View, notify};
use crate::shared::Shared;
use crate::ticket::lineage::Name;
use crate::timer::{UPKEEP_SLACK, take_due};
use dormouse_keying::SaId;

/// A client reauthenticates this long before a certificate expires; if it is the same one still, the SA ends with it.
const RENEWAL: Duration = Duration::from_secs(600);
/// What lies further ahead needs no timer.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);
/// A client reauthenticates this long before the announced lifetime is over, or a tenth of it if that is less.
const TOLD_MARGIN: Duration = Duration::from_secs(600);
/// A session goes this long after the same identity has begun another one: a device that authenticates anew uses both for a moment,
/// and deletes the first itself.
const REPLACED_AFTER: Duration = Duration::from_secs(10);
/// The probe that an unauthenticated hint starts gives up after this long: the hint is probably right.
const HINT_PROBE: Duration = Duration::from_secs(2);
/// The first repetition while a probe runs.
const PROBE_WAIT: Duration = Duration::from_millis(80);
/// Hints are passed on no more often than this.
/// "Implementations MUST limit the rate at which they take actions based on unprotected messages." (RFC 7296 section 2.4)
/// "An implementation SHOULD limit the frequency of such tests" (RFC 7296 section 2.21.4)
const HINT_INTERVAL: Duration = Duration::from_secs(5);

/// Full authentication, which makes another SA beside this one.
#[derive(Clone, Copy, Debug, Default)]
enum Reauthentication {
    #[default]
    Never,
    At {
        at: Instant,
        slack: Duration,
    },
    /// Under way: this SA goes when the other one has taken over.
    By(SaId),
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    since: Instant,
    until: Instant,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    reauthentication: Reauthentication,
    /// The SA that this one replaces by reauthentication, as long as CHILD SAs of ours are still to be made.
    predecessor: Option<SaId>,
    /// When the first of the certificates expires that vouch for the session.
    vouched_at: Option<Instant>,
    /// Gateway: when the session ends if the client has not authenticated fully before.
    authenticated_until: Option<Instant>,
    /// Client: when the gateway said that it ends.
    told_until: Option<Instant>,
    /// Gateway: when the session ends because its identity has another one.
    replaced_at: Option<Instant>,
    renew_ticket_at: Option<Instant>,
    /// The gateway has given a ticket: the session can be resumed, at this end or that.
    had_ticket: bool,
    /// Client: the lineage of its tickets, once the gateway has told it.
    lineage: Option<Name>,
    /// It was resumed at once, and the gateway has not been heard on it.
    unheard: bool,
    probe: Option<Probe>,
    /// When an unauthenticated hint was last followed.
    hinted_at: Option<Instant>,
}

impl Upkeep {
    /// When the session must be authenticated anew, and when the certificates end that it rests on. Both are counted from the last
    /// full authentication, however many rekeyings and resumptions ago, by the clock of the world: again whenever that was set.
    pub(super) fn schedule_authentication(&mut self, core: &Core, unix: UnixTime, now: Instant) {
        let left = core.session.vouched_until.map(|until| until.saturating_since(unix));
        let left = left.filter(|left| *left <= FAR);
        let by_users_server = left.filter(|_| !core.client && core.session.is_users());
        self.vouched_at = left.filter(|_| by_users_server.is_none()).map(|left| now + left);
        let age = unix.saturating_since(core.session.authenticated);
        if !core.client {
            let lifetime = core.link.conn.answering.policy.lifetime;
            let configured = lifetime.map(|lifetime| lifetime.saturating_sub(age));
            self.authenticated_until =
                configured.into_iter().chain(by_users_server).min().map(|left| now + left);
            return;
        }
        if let Reauthentication::By(_) = self.reauthentication {
            return;
        }
        let renewal = left.filter(|left| *left > RENEWAL).map(|left| left - RENEWAL);
        let configured = core.link.conn.timing.reauthenticate.map(|after| after.saturating_sub(age));
        let own = renewal.into_iter().chain(configured).map(|left| (left, UPKEEP_SLACK));
        // "An Initiator that received an AUTH_LIFETIME notification SHOULD repeat the Initial exchange within the time indicated
        // in the notification." (RFC 4478 section 2)
        let told = self.told_until.map(|until| {
            let left = if until > now { until - now } else { Duration::ZERO };
            let margin = TOLD_MARGIN.min(left / 10);
            (left - margin, margin / 2)
        });
        self.reauthentication = own
            .chain(told)
            .min()
            .map_or(Reauthentication::Never, |(left, slack)| Reauthentication::At { at: now + left, slack });
    }

    /// The ticket of a rekeyed SA is void: the successor asks for another one, and knows then when to renew it.
    pub(super) fn inherit(&mut self, old: &mut Self) {
        let Self {
            reauthentication,
            predecessor,
            vouched_at,
            authenticated_until,
            told_until,
            replaced_at,
            renew_ticket_at: _,
            had_ticket,
            lineage,
            unheard,
            probe,
            hinted_at,
        } = old;
        self.reauthentication = *reauthentication;
        self.predecessor = predecessor.take();
        self.vouched_at = *vouched_at;
        // "If the IKE SA is rekeyed, then the time limit applies to the new SA." (RFC 4478 section 2)
        self.authenticated_until = *authenticated_until;
        self.told_until = *told_until;
        self.replaced_at = *replaced_at;
        self.had_ticket |= *had_ticket;
        self.lineage = self.lineage.or(*lineage);
        self.unheard = *unheard;
        self.probe = probe.take();
        self.hinted_at = *hinted_at;
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Deadline> + use<> {
        let reauthentication = match self.reauthentication {
            Reauthentication::At { at, slack } => Some(Deadline { at, slack, why: "reauthentication" }),
            Reauthentication::Never | Reauthentication::By(_) => None,
        };
        let renewal =
            self.renew_ticket_at.map(|at| Deadline { at, slack: UPKEEP_SLACK, why: "ticket renewal" });
        self.ends().chain(reauthentication).chain(renewal)
    }

    /// When the session ends, whether its peer is awake or not.
    pub(super) fn ends(&self) -> impl Iterator<Item = Deadline> + use<> {
        let vouched = self.vouched_at.map(|at| Deadline::strict(at, "certificate expiry"));
        let lifetime = self.authenticated_until.map(|at| Deadline::strict(at, "authentication lifetime"));
        let replaced = self.replaced_at.map(|at| Deadline::strict(at, "replaced"));
        vouched.into_iter().chain(lifetime).chain(replaced)
    }

    /// Why the session ends now, if it does: once.
    pub(super) fn take_end(&mut self, now: Instant) -> Option<CloseReason> {
        let (vouched, lifetime) = (&mut self.vouched_at, &mut self.authenticated_until);
        [
            (vouched, CloseReason::CertificateExpired),
            (lifetime, CloseReason::LifetimeOver),
            (&mut self.replaced_at, CloseReason::Replaced),
        ]
        .into_iter()
        .find_map(|(at, reason)| take_due(at, now).then_some(reason))
    }

    /// The same identity has begun another session: this one goes soon, if its client does not delete it before.
    pub(crate) fn replaced(&mut self, now: Instant) {
        self.replaced_at.get_or_insert(now + REPLACED_AFTER);
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced_at.is_some()
    }

    pub(super) fn probe_deadline(&self) -> Option<Deadline> {
        self.probe.map(|probe| Deadline::strict(probe.until, "probe"))
    }

    pub(crate) fn reauthenticate_at(&self) -> Option<Instant> {
        match self.reauthentication {
            Reauthentication::At { at, .. } => Some(at),
            Reauthentication::Never | Reauthentication::By(_) => None,
        }
    }

    pub(super) fn take_reauthentication_due(&mut self, now: Instant) -> bool {
        let due = self.reauthenticate_at().is_some_and(|at| at <= now);
        if due {
            self.reauthentication = Reauthentication::Never;
        }
        due
    }

    pub(crate) fn reauthenticated_by(&self) -> Option<SaId> {
        match self.reauthentication {
            Reauthentication::By(other) => Some(other),
            Reauthentication::Never | Reauthentication::At { .. } => None,
        }
    }

    /// Full authentication is under way by this SA.
    pub(crate) fn reauthenticates_by(&mut self, other: SaId) {
        self.reauthentication = Reauthentication::By(other);
    }

    /// It replaces this SA as soon as its CHILD SAs are up.
    pub(crate) fn replaces(&mut self, predecessor: Option<SaId>) {
        self.predecessor = predecessor;
    }

    pub(super) fn take_predecessor(&mut self) -> Option<SaId> {
        self.predecessor.take()
    }

    /// The gateway has given a ticket: the session can be resumed, at this end or that.
    pub(crate) fn had_ticket(&self) -> bool {
        self.had_ticket
    }

    /// Client: the lineage of its tickets, if the gateway has told it.
    pub(super) fn lineage(&self) -> Option<Name> {
        self.lineage
    }

    /// The gateway has given a ticket of this lineage, or has not told of which.
    pub(crate) fn note_lineage(&mut self, told: Option<Name>) {
        self.lineage = told.or(self.lineage);
    }

    /// It was resumed in one round trip: the gateway's first packet is awaited.
    pub(super) fn await_word(&mut self) {
        self.unheard = true;
    }

    /// Whether the gateway is heard now, for the first time: once.
    pub(super) fn take_unheard(&mut self) -> bool {
        std::mem::take(&mut self.unheard)
    }

    pub(super) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// A ticket was given or taken.
    pub(crate) fn note_ticket(&mut self, renew_at: Option<Instant>) {
        self.had_ticket = true;
        self.renew_ticket_at = renew_at;
    }

    pub(crate) fn take_renewal_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.renew_ticket_at, now)
    }

    /// While a [`probe`](IkeSa::probe) runs: how long until what is under way is repeated. Each wait is 8 % longer than the one before
    /// (RFC 7296 section 2.4 wants them to grow exponentially): 17 repetitions in 3 s. Where 30 % of the datagrams are lost in either
    /// direction, 51 % of them go unanswered; all of them do in less than one of 10,000 probes.
    pub(super) fn probing(&self, now: Instant) -> Option<Duration> {
        let probe = self.probe.filter(|probe| now < probe.until)?;
        Some(PROBE_WAIT + (now - probe.since) * 8 / 100)
    }
}

impl IkeSa {
    /// Gateway: how long the authentication is good, if not for ever.
    /// "The Responder MUST send this information to the Initiator in an AUTH_LIFETIME notification either in the last message of an
    /// IKE_AUTH exchange, or in an INFORMATIONAL request" (RFC 4478 section 2): in the former, and in the answer to a resumption.
    pub(crate) fn lifetime_payload(&self, shared: &Shared, now: Instant) -> Option<Payload> {
        let lifetime = self.core.link.conn.answering.policy.lifetime.filter(|_| !self.core.client)?;
        let age = shared.unix(now).saturating_since(self.core.session.authenticated);
        let seconds = u32::try_from(lifetime.saturating_sub(age).as_secs()).unwrap_or(u32::MAX);
        Some(notify(NotifyType::AuthLifetime, seconds.to_be_bytes()))
    }

    /// Client: the gateway says how long the authentication is good, in the answer that establishes the session or in a request of its
    /// own. "The time is measured from the time that the original Initiator receives the notification." (RFC 4478 section 2)
    pub(crate) fn take_lifetime(&mut self, shared: &Shared, now: Instant, view: View<'_>) {
        let told = view.notify(NotifyType::AuthLifetime).map(|n| <[u8; 4]>::try_from(n.data.as_slice()));
        if let Some(Ok(seconds)) = told
            && self.core.client
        {
            let seconds = Duration::from_secs(u32::from_be_bytes(seconds).into());
            self.upkeep.told_until = Some(now + seconds);
            self.schedule_authentication(shared, now);
        }
    }

    /// See [`crate::Endpoint::probe`]. A request under way serves: it is repeated at once, on the present path.
    pub(crate) fn probe(&mut self, shared: &mut Shared, now: Instant, timeout: Duration) {
        let until = now + timeout;
        self.upkeep.probe = Some(match self.upkeep.probe {
            Some(running) => Probe { until: running.until.min(until), ..running },
            None => Probe { since: now, until },
        });
        if self.core.requests.is_idle() {
            self.begin(shared, now, Liveness::urgent().into());
        } else if self.core.last_out < now {
            // What has only just been sent, an address update for one, need not be sent twice.
            self.resend(shared, now, false);
        }
    }

    /// How long until a request that is sent now is repeated.
    pub(super) fn first_wait(&self, shared: &mut Shared, now: Instant) -> Duration {
        self.upkeep.probing(now).unwrap_or_else(|| self.core.link.wait(shared, 1))
    }

    /// Repeats everything under way by the present path; with `afresh`, with all its patience.
    pub(super) fn resend(&mut self, shared: &mut Shared, now: Instant, afresh: bool) {
        let wait = self.first_wait(shared, now);
        self.core.resend(shared, now, wait, afresh);
    }

    /// An answer came: the peer has the SA.
    pub(super) fn probe_answered(&mut self, shared: &mut Shared, now: Instant) {
        if let Some(probe) = self.upkeep.probe.take() {
            shared.event(Event::ProbeAnswered { sa: self.core.id(), after: now - probe.since });
        }
    }

    pub(super) fn probe_timeout(&mut self, shared: &mut Shared, now: Instant) {
        // A fresh packet of a CHILD SA shows that the IKE SA lives too (RFC 7296 section 2.4).
        if let Some(probe) = self.upkeep.probe.take_if(|probe| probe.until <= now)
            && self.core.last_in <= probe.since
        {
            shared.event(Event::ProbeFailed { sa: self.core.id() });
        }
    }

    /// See [`crate::Endpoint::reachable`].
    pub(crate) fn reachable(&mut self, now: Instant) {
        self.upkeep.probe = None;
        self.core.requests.begin_anew(now);
    }

    /// A notification in clear says that the peer does not know this SA. Anybody can say that: have the peer prove that it
    /// is there, and let the driver know.
    /// "[...] MUST NOT respond and MUST NOT change the state of any existing SAs" (RFC 7296 section 2.21.4)
    pub(super) fn hint(&mut self, shared: &mut Shared, now: Instant, path: Path, datagram: &[u8]) {
        let says_so = path.remote == self.core.link.path.remote
            && dormouse_wire::ike::Message::parse(datagram)
                .is_ok_and(|m| View(&m.payloads).has(NotifyType::InvalidIkeSpi));
        if says_so {
            self.doubt(shared, now, true);
        }
    }

    /// An unauthenticated message says that the peer has lost this SA: an event reports it, and the peer is probed.
    /// "Unreliable information SHOULD be treated only as a hint that there might be a problem" (RFC 4555 section 3.5)
    /// "an endpoint MUST NOT conclude that the other endpoint has failed based on any routing information (e.g., ICMP messages)
    /// or IKE messages that arrive without cryptographic protection" (RFC 7296 section 2.4)
    pub(crate) fn doubt(&mut self, shared: &mut Shared, now: Instant, solicited: bool) {
        let recently = self.upkeep.hinted_at.is_some_and(|at| now - at < HINT_INTERVAL);
        // A hint is not worth waking a device for.
        if (recently && !solicited) || self.dormancy.is_asleep() {
            return;
        }
        shared.event(Event::PeerLostSa { sa: self.core.id(), solicited });
        if !recently {
            self.upkeep.hinted_at = Some(now);
            self.probe(shared, now, HINT_PROBE);
        }
    }
}
