//! The states of an IKE SA up to authentication, as consuming types: handling a message takes the state by value, so that a
//! stale state cannot be used again. Owns the sequence of IKE_SA_INIT or IKE_SESSION_RESUME, IKE_INTERMEDIATE, and IKE_AUTH, in both roles.
//!
//! Timers: the initiator repeats each request by the retransmission policy and then fails, and has a timer that is due at once while it
//! solves a puzzle; a half-open SA of the responder is dropped after [`crate::config::HalfOpen::timeout`].

pub(crate) mod authenticating;
pub(crate) mod half_open;
pub(crate) mod initiator;
pub(crate) mod intermediate;
mod lineage;
pub(crate) mod proving;
pub(crate) mod quick;
mod solving;

use std::sync::Arc;

use dormouse_sansio::{Carrier, Deadline, Instant, Path};
use dormouse_wire::ike::{Header, NotifyType, Payload};

use crate::claim::Claim;
use crate::config::Connection;
use crate::elsewhere::Verdict;
use crate::error::{Discard, NegotiationError};
use crate::event::{CloseReason, Event};
use crate::keys::Spis;
use crate::link::Link;
use crate::payloads::View;
use crate::redirect;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::ticket::lineage::Outcome;
use crate::timer::HALF_OPEN_SLACK;
use crate::window::{Due, Outgoing};
use crate::work::Done;

use authenticating::Authenticating;
use dormouse_crypto::sign::SignatureError;
use half_open::HalfOpen;
use initiator::Opening;
use intermediate::initiator::Intermediate;
use proving::Signing;

/// A caller's first message, taken apart.
pub(crate) struct FirstMessage<'a> {
    pub(crate) path: Path,
    pub(crate) header: &'a Header,
    pub(crate) payloads: &'a [Payload],
    pub(crate) datagram: &'a [u8],
}

impl<'a> FirstMessage<'a> {
    pub(crate) fn view(&self) -> View<'a> {
        View(self.payloads)
    }

    /// The link of a new SA that answers it.
    pub(crate) fn link(&self, shared: &mut Shared, conn: Arc<Connection>) -> Link {
        let id = shared.new_sa();
        let spis = Spis { i: self.header.spi_i, r: shared.new_spi(id) };
        let peer_fragments = self.view().has(NotifyType::Ikev2FragmentationSupported);
        let fragmentation = conn.fragmentation.enabled && peer_fragments;
        let redirects = redirect::follows(self.view());
        let mut stats = Stats::default();
        stats.received(self.datagram.len());
        Link { id, initiator: false, spis, path: self.path, fragmentation, redirects, stats, conn }
    }
}

/// An IKE SA in any state.
#[derive(Debug)]
pub(crate) enum Slot {
    Opening(Box<Opening>),
    Intermediate(Box<Intermediate>),
    Signing(Box<Signing>),
    Authenticating(Box<Authenticating>),
    HalfOpen(Box<HalfOpen>),
    Established(Box<IkeSa>),
}

/// What became of a state when it handled a message: the state that follows, if any, and whether the message was of use.
pub(crate) struct Step {
    pub(crate) next: Option<Slot>,
    pub(crate) result: Result<(), Discard>,
}

impl Step {
    pub(crate) fn to(next: Slot) -> Self {
        Self { next: Some(next), result: Ok(()) }
    }

    /// The message is dropped and changes nothing.
    pub(crate) fn stay(next: Slot, discard: Discard) -> Self {
        Self { next: Some(next), result: Err(discard) }
    }

    pub(crate) fn gone() -> Self {
        Self { next: None, result: Ok(()) }
    }
}

impl Slot {
    pub(crate) fn link(&self) -> &Link {
        match self {
            Self::Opening(s) => &s.link,
            Self::Intermediate(s) => &s.first.link,
            Self::Signing(s) => &s.first.link,
            Self::Authenticating(s) => &s.link,
            Self::HalfOpen(s) => &s.link,
            Self::Established(s) => &s.core.link,
        }
    }

    /// Whether its caller has not shown yet that it is there.
    pub(crate) fn is_half_open(&self) -> bool {
        match self {
            Self::HalfOpen(_) => true,
            Self::Established(s) => s.is_tentative(),
            Self::Opening(_) | Self::Signing(_) | Self::Intermediate(_) | Self::Authenticating(_) => false,
        }
    }

    /// Whether a half-open one's caller has authenticated, and waits for us.
    pub(crate) fn is_proven(&self) -> bool {
        match self {
            Self::HalfOpen(s) => s.waits_proven() == Some(true) || s.pending.is_some(),
            Self::Established(s) => s.is_proven(),
            Self::Opening(_) | Self::Intermediate(_) | Self::Signing(_) | Self::Authenticating(_) => false,
        }
    }

    /// Whether a half-open one's caller has proved nothing, and waits for our signature all the same.
    pub(crate) fn is_stranger_waiting(&self) -> bool {
        matches!(self, Self::HalfOpen(s) if s.waits_proven() == Some(false))
    }

    /// Whether it waits for something that it has ordered.
    pub(crate) fn is_working(&self) -> bool {
        match self {
            Self::HalfOpen(s) => s.work.is_under_way(),
            Self::Signing(_) => true,
            Self::Opening(_) | Self::Intermediate(_) | Self::Authenticating(_) | Self::Established(_) => {
                false
            }
        }
    }

    pub(crate) fn handle(
        self,
        shared: &mut Shared,
        now: Instant,
        path: Path,
        header: &Header,
        datagram: &mut [u8],
    ) -> Step {
        match self {
            Self::Opening(s) => s.handle(shared, now, header, datagram),
            Self::Intermediate(s) => s.handle(shared, now, header, datagram),
            Self::Signing(_) => Step::stay(self, Discard::InappropriateExchange),
            Self::Authenticating(s) => s.handle(shared, now, header, datagram),
            Self::HalfOpen(s) => s.handle(shared, now, path, header, datagram),
            Self::Established(mut s) => {
                let result = s.handle(shared, now, path, header, datagram);
                Step { next: Some(Self::Established(s)), result }
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Deadline> {
        match self {
            Self::Opening(s) => s.deadline(),
            Self::Intermediate(s) => s.out.next_due().map(|(at, _)| Deadline::strict(at, "retransmission")),
            Self::Signing(s) => Some(Deadline::strict(s.until, "signature")),
            Self::Authenticating(s) => match s.waits_until() {
                Some(at) => Some(Deadline::strict(at, "revocation")),
                None => s.out.next_due().map(|(at, _)| Deadline::strict(at, "retransmission")),
            },
            Self::HalfOpen(s) => Some(match (&s.pending, s.waits_until()) {
                (Some(pending), _) => Deadline::strict(pending.by, "store"),
                (None, Some(at)) => Deadline::strict(at, "revocation"),
                (None, None) => Deadline { at: s.expires, slack: HALF_OPEN_SLACK, why: "half-open" },
            }),
            Self::Established(s) => s.deadline(),
        }
    }

    /// The state that follows, if any.
    pub(crate) fn handle_timeout(self, shared: &mut Shared, now: Instant) -> Option<Self> {
        match self {
            Self::Opening(s) => s.handle_timeout(shared, now).map(Self::Opening),
            Self::Intermediate(s) => s.handle_timeout(shared, now).map(Self::Intermediate),
            Self::Signing(s) if s.until <= now => s.signed(shared, now, Err(SignatureError::Late)),
            Self::Signing(s) => Some(Self::Signing(s)),
            Self::Authenticating(s) if s.waits_until().is_some_and(|at| at <= now) => {
                s.go_on(shared, now).next
            }
            Self::Authenticating(s) => s.handle_timeout(shared, now).map(Self::Authenticating),
            Self::HalfOpen(s) if s.pending.as_ref().is_some_and(|pending| pending.by <= now) => {
                s.ticket_judged(shared, now, Outcome::Failed).next
            }
            Self::HalfOpen(s) if s.waits_until().is_some_and(|at| at <= now) => s.go_on(shared, now).next,
            Self::HalfOpen(s) if s.expires <= now => {
                s.expire(shared);
                None
            }
            Self::HalfOpen(s) => Some(Self::HalfOpen(s)),
            Self::Established(mut s) => {
                if let Fate::Ends(reason) = s.handle_timeout(shared, now) {
                    s.over(reason);
                }
                Some(Self::Established(s))
            }
        }
    }

    /// What a resumption rests on about which the store is asked.
    pub(crate) fn asked(&self) -> Option<Claim<'_>> {
        match self {
            Self::HalfOpen(s) => s.asked(),
            Self::Established(s) => s.asked(),
            Self::Opening(_) | Self::Intermediate(_) | Self::Signing(_) | Self::Authenticating(_) => None,
        }
    }

    /// What the store says about an operation that asked for this SA.
    pub(crate) fn stored(self, shared: &mut Shared, now: Instant, outcome: Outcome) -> Option<Self> {
        match self {
            Self::HalfOpen(s) => s.ticket_judged(shared, now, outcome).next,
            Self::Established(mut s) => {
                match outcome {
                    // Of a login that was answered without.
                    Outcome::Full => s.close(shared, now, CloseReason::TooMany),
                    outcome => {
                        s.ticket_judged(shared, now, outcome);
                        s.end_recorded(shared);
                    }
                }
                Some(Self::Established(s))
            }
            other => Some(other),
        }
    }

    /// The status of a certificate may be known now.
    pub(crate) fn go_on(self, shared: &mut Shared, now: Instant) -> Option<Self> {
        match self {
            Self::HalfOpen(s) => s.go_on(shared, now).next,
            Self::Authenticating(s) => s.go_on(shared, now).next,
            other => Some(other),
        }
    }

    /// What was ordered for it has come back.
    pub(crate) fn done(self, shared: &mut Shared, now: Instant, done: Done) -> Option<Self> {
        match self {
            Self::HalfOpen(s) => s.done(shared, now, done).next,
            Self::Signing(s) => s.signed(shared, now, done.signed()),
            other => Some(other),
        }
    }

    /// A server has said something about the caller.
    pub(crate) fn told_elsewhere(self, shared: &mut Shared, verdict: Verdict) -> Option<Self> {
        match self {
            Self::HalfOpen(s) => s.told_elsewhere(shared, verdict).next,
            other => Some(other),
        }
    }

    /// The driver does not want it any more.
    pub(crate) fn cancel(self, shared: &mut Shared) {
        let sa = self.link().id;
        shared.by_spi.remove(&self.link().local_spi());
        match &self {
            Self::Authenticating(s) => shared.free_esp_spi(s.offer.spi_in),
            Self::Opening(s) => s.free(shared),
            _ => {}
        }
        if !matches!(self, Self::HalfOpen(_)) {
            shared.event(Event::Failed { sa, error: NegotiationError::Cancelled });
        }
    }
}

/// The handshake goes on from another address: what is under way is repeated from there.
fn follow_path(link: &mut Link, out: &mut Outgoing<()>, shared: &mut Shared, now: Instant, path: Path) {
    let natt = link.path.carrier == Carrier::NatT;
    link.path = path;
    if natt {
        link.path = link.natt_path(shared);
    }
    let wait = link.wait(shared, 1);
    for (datagrams, class) in out.resend_all(now, wait, true) {
        link.send_again(shared, class, &datagrams);
    }
}

/// Repeats the requests of an initiator that are due; the reason to give up, if no answer came to one.
fn send_what_is_due(
    link: &mut Link,
    out: &mut Outgoing<()>,
    shared: &mut Shared,
    now: Instant,
    exchange: &'static str,
) -> Option<NegotiationError> {
    let policy = link.conn.timing.retransmission;
    while let Some(due) = out.due(now, policy.tries, false, |sent| policy.wait(sent, &mut shared.entropy)) {
        match due {
            Due::Again(datagrams, class) => link.send_again(shared, class, &datagrams),
            Due::GaveUp(_, flight) => {
                let (remote, after) = (link.path.remote, now - flight.since);
                return Some(NegotiationError::Timeout { remote, exchange, after, sent: flight.tries });
            }
        }
    }
    None
}
