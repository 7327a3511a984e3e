//! Exchanges that wait for their turn in the window. Owns their order and when each may begin; must never build a request.

use std::collections::VecDeque;

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant};

use super::stage::CLOSE_FOR;
use super::{IkeSa, Stage};
use crate::action::Action;
use crate::child::Children;
use crate::event::CloseReason;
use crate::exchange::Exchange;
use crate::exchange::liveness::Liveness;
use crate::mlike;
use crate::shared::Shared;

/// The first back-off after TEMPORARY_FAILURE; it doubles, with jitter.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Refusals of one exchange, over some three minutes, before the SA is given up.
const RETRIES_MAX: u32 = 12;
/// Refusals before a client behind a NAT asks where the peer sees it.
const RETRIES_BEFORE_CHECK: u32 = 3;

#[derive(Debug)]
pub(super) struct Pending {
    exchange: Exchange,
    not_before: Instant,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(super) queue: VecDeque<Pending>,
}

impl Tasks {
    /// Puts an exchange behind the others, unless one with the same aim waits already.
    pub(crate) fn add(&mut self, exchange: impl Into<Exchange>, not_before: Instant) {
        let exchange = exchange.into();
        if !self.has(&exchange) {
            self.queue.push_back(Pending { exchange, not_before });
        }
    }

    /// Puts an exchange before all others.
    pub(crate) fn add_first(&mut self, exchange: impl Into<Exchange>, now: Instant) {
        let exchange = exchange.into();
        self.drop_like(&exchange);
        self.queue.push_front(Pending { exchange, not_before: now });
    }

    /// Whether one with the same aim waits.
    pub(crate) fn has(&self, exchange: &Exchange) -> bool {
        self.queue.iter().any(|p| p.exchange.has_aim_of(exchange))
    }

    /// How many requests about keys wait.
    pub(crate) fn about_keys(&self) -> usize {
        self.queue.iter().filter(|p| matches!(p.exchange, Exchange::Keys(_))).count()
    }

    /// Gives up what waits.
    pub(super) fn abandon(&mut self, shared: &mut Shared) {
        self.queue.drain(..).for_each(|p| p.exchange.abandon(shared));
    }

    /// Takes out what has the same aim.
    pub(crate) fn drop_like(&mut self, exchange: &Exchange) {
        self.queue.retain(|p| !p.exchange.has_aim_of(exchange));
    }

    /// Whether a CHILD SA is still to be asked for, other than again.
    fn creates_child(&self, children: &Children) -> bool {
        let first = |e: &Exchange| matches!(e, Exchange::CreateChild(new) if !children.was_set_back(new.aim));
        self.queue.iter().any(|p| first(&p.exchange))
    }

    /// "Control messages that pertain to Child SAs MUST be sent under the protection of the IKE SA that generated them (or its
    /// successor if the IKE SA was rekeyed)." (RFC 7296 section 1.4)
    pub(super) fn inherit<'a>(
        &mut self,
        old: &mut Self,
        under_way: impl Iterator<Item = &'a Exchange>,
        now: Instant,
    ) {
        let Self { queue } = old;
        for exchange in under_way.filter_map(|exchange| exchange.migrate(true)) {
            self.add(exchange, now);
        }
        for Pending { exchange, not_before } in std::mem::take(queue) {
            if let Some(exchange) = exchange.migrate(false) {
                self.add(exchange, not_before);
            }
        }
    }

    /// The next exchange that `may` begin. What announces a sleep comes after all others: any request after it says that the
    /// device is awake.
    fn next(&mut self, now: Instant, may: impl Fn(&Exchange) -> bool) -> Option<Exchange> {
        let ready = |p: &&Pending| p.not_before <= now && may(&p.exchange);
        let position = |last: bool| {
            self.queue.iter().position(|p| matches!(p.exchange, Exchange::Sleep(_)) == last && ready(&p))
        };
        let at = position(false).or_else(|| position(true))?;
        self.queue.remove(at).map(|p| p.exchange)
    }

    /// When each one that `may` begin can; the others wait for an exchange to end and need no timer.
    pub(super) fn timers(&self, may: impl Fn(&Exchange) -> bool) -> impl Iterator<Item = Deadline> {
        let ready = self.queue.iter().filter(move |p| may(&p.exchange));
        ready.map(|p| Deadline::strict(p.not_before, "retry"))
    }
}

impl IkeSa {
    /// Whether an exchange may run beside what is under way.
    /// "it SHOULD NOT start any new CREATE_CHILD_SA exchanges on the IKE SA that is being rekeyed" (RFC 7296 section 1.3.2)
    pub(super) fn may_begin(&self, exchange: &Exchange) -> bool {
        let flights = &self.core.requests;
        let between = matches!(exchange, Exchange::CreateChild(_) | Exchange::DeleteChild(_))
            && self.followups.rekeys_ike();
        if between {
            return false;
        }
        flights.is_idle()
            || !exchange.runs_alone() && !flights.flights().any(|flight| flight.exchange.runs_alone())
    }

    /// Starts what the window has room for.
    pub(crate) fn pump(&mut self, shared: &mut Shared, now: Instant) {
        let closing = match self.stage {
            Stage::Tentative(_) | Stage::Syncing(_) | Stage::Leaving(_) | Stage::Over { .. } => return,
            Stage::Live(_) => false,
            Stage::Closing { .. } | Stage::Superseded { .. } | Stage::Heir => true,
        };
        while self.core.requests.has_room() && !self.dormancy.is_asleep() {
            let mut tasks = std::mem::take(&mut self.tasks);
            let may = |e: &Exchange| self.may_begin(e) && (!closing || matches!(e, Exchange::DeleteIke(_)));
            let next = tasks.next(now, may);
            self.tasks = tasks;
            match next {
                Some(exchange) => self.begin(shared, now, exchange),
                None => break,
            }
        }
        if !closing && !self.tasks.creates_child(&self.children) && !self.creating_child() {
            shared.actions.extend(self.upkeep.take_predecessor().map(Action::Close));
        }
    }

    /// Builds the request of an exchange and sends it, if there is still a reason for it.
    pub(crate) fn begin(&mut self, shared: &mut Shared, now: Instant, mut exchange: Exchange) {
        let Some(mut request) = exchange.build(self, shared, now) else { return };
        // RFC 4555 section 3.11 recommends five minutes to responders, because the client of MOBIKE finds out first that a path is
        // broken; with tickets a gateway can afford less.
        // "the responder SHOULD use relatively long timeout intervals" (RFC 4555 section 3.11)
        let patience = match self.stage {
            Stage::Closing { .. } => CLOSE_FOR,
            _ => self.core.link.conn.timing.liveness.timeout,
        };
        let wait = self.first_wait(shared, now);
        self.core.request(shared, now, wait, now + patience, &request, exchange);
        mlike::wipe(&mut request.payloads);
        if self.core.requests.ids_run_out() {
            self.rekeying.rekey_now(now);
        }
    }

    /// The peer answered TEMPORARY_FAILURE: again later. "[...] it MUST NOT immediately retry the operation; it MUST wait so that
    /// the sender may complete whatever operation caused the temporary condition" (RFC 7296 section 2.25).
    pub(crate) fn retry(&mut self, shared: &mut Shared, now: Instant, exchange: Exchange, refusals: u32) {
        if refusals > RETRIES_MAX {
            tracing::warn!(sa = %self.core.id(), ?exchange, "given up after {refusals} refusals");
            // "[...] it SHOULD conclude that the state information is out of sync and close the IKE SA" (RFC 7296 section 2.25)
            return self.close(shared, now, CloseReason::ProtocolError);
        }
        if refusals == RETRIES_BEFORE_CHECK && self.mobility.checks_nat(&self.core) {
            // A NAT that has given us another mapping lets our requests through and none of the peer's, which then refuses ours for as
            // long as its own are not answered.
            self.tasks.add_first(Liveness::upkeep(), now);
        }
        let wait = RETRY_FIRST * (1 << refusals.saturating_sub(1).min(4));
        // As much again, at random: two ends that refuse each other's requests must not go on doing so in step.
        let jitter = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let jitter = Duration::from_millis(shared.entropy.below(jitter));
        self.tasks.queue.push_back(Pending { exchange, not_before: now + wait + jitter });
    }
}
