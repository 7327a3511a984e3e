//! When an established SA wants to be woken, and what it does then. Owns the order in which its parts are asked; each part owns
//! its deadlines. It must never wake without a reason: tests count them.
//!
//! Timers, each a reason that [`IkeSa::deadlines`] can give:
//! - `retransmission`: the next repetition of a request under way;
//! - `probe`: the driver's own deadline of a [`crate::Endpoint::probe`];
//! - `key exchange`: the peer does not go on with one of its additional ones;
//! - `retry`: the back-off after TEMPORARY_FAILURE, and before a CHILD SA is asked for again that the peer refused or deleted;
//! - `child rekey`, `ike rekey`, `reauthentication`, `ticket renewal`: scheduled upkeep, with a slack that
//!   leaves half of the time until the hard limit at least;
//! - `liveness`: silence of the peer, with half of the interval as slack;
//! - `nat keepalive`: see [`crate::keepalive`];
//! - `sleep announcement`, `sleep over`: see [`super::dormancy`];
//! - `half-open`, `confirmation`: see [`super::resumed`];
//! - `store`: what the store should have said by now;
//! - `certificate expiry`, `authentication lifetime`, `replaced`: see [`super::upkeep`];
//! - `expiry`: a hard lifetime, reached only if rekeying failed;
//! - `linger`: a replaced or closing SA whose peer says nothing more.

use dormouse_sansio::{Deadline, Instant};

use super::stage::{Stage, Standing};
use super::{Fate, IkeSa};
use crate::action::Action;
use crate::child::Busy;
use crate::event::CloseReason;
use crate::exchange::Exchange;
use crate::exchange::child::CreateChild;
use crate::exchange::rekey::RekeyIke;
use crate::exchange::ticket::TicketRequest;
use crate::exchange::update::Update;
use crate::shared::Shared;
use crate::ticket::lineage::Outcome;
use crate::timer::UPKEEP_SLACK;
use crate::window::{Due, Flight};

impl IkeSa {
    /// The deadline that must be met first, taking slack into account.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.deadlines().into_iter().min_by_key(|d| d.at + d.slack)
    }

    /// Every deadline that it has now.
    pub(crate) fn deadlines(&self) -> Vec<Deadline> {
        let mut all = Vec::new();
        if let Some(over) = self.dormancy.sleep_over() {
            return self.upkeep.ends().chain([over]).collect();
        }
        if let Stage::Tentative(tentative) = &self.stage {
            return vec![tentative.deadline()];
        }
        if let Stage::Syncing(syncing) = &self.stage {
            return vec![syncing.deadline()];
        }
        if let Stage::Leaving(leaving) = &self.stage {
            return vec![Deadline::strict(leaving.until, "store")];
        }
        let core = &self.core;
        all.extend(core.requests.all_due().map(|at| Deadline::strict(at, "retransmission")));
        all.extend(self.upkeep.probe_deadline());
        all.extend(self.stage.until().map(|at| Deadline { at, slack: UPKEEP_SLACK, why: "linger" }));
        all.extend(self.dormancy.announcement_deadline());
        let Stage::Live(standing) = self.stage else { return all };
        if core.requests.has_room() {
            all.extend(self.tasks.timers(|exchange| self.may_begin(exchange)));
        }
        all.extend(self.followups.timers());
        all.extend(self.rekeying.deadlines(&core.link.conn.timing.lifetime));
        all.extend(self.upkeep.deadlines());
        if let Standing::Confirming(confirming) = standing {
            all.push(Deadline::strict(confirming.at, "confirmation"));
        }
        all.extend(self.children.deadlines(&core.link.conn));
        if core.requests.is_idle() {
            let interval = core.link.conn.timing.liveness.interval;
            let quiet = |i| Deadline { at: core.last_in + i, slack: i / 2, why: "liveness" };
            all.extend(interval.map(quiet));
            all.extend(self.mobility.keepalive_deadline(core));
        }
        all
    }

    /// Does everything that is due.
    pub(crate) fn handle_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if let Some(over) = self.dormancy.sleep_over() {
            // It is not disturbed: it finds out when it wakes.
            let reason = self.upkeep.take_end(now).or((over.at <= now).then_some(CloseReason::Released));
            return reason.map_or(Fate::Lives, Fate::Ends);
        }
        if let Stage::Tentative(tentative) = &self.stage {
            return match tentative.deadline() {
                due if due.at > now => Fate::Lives,
                due if due.why == "half-open" => Fate::Ends(CloseReason::Unconfirmed),
                _ => {
                    self.ticket_judged(shared, now, Outcome::Failed);
                    Fate::Lives
                }
            };
        }
        if self.is_syncing() {
            return self.sync_timeout(shared, now);
        }
        if matches!(self.stage, Stage::Leaving(_)) {
            if self.stage.until().is_some_and(|until| until <= now) {
                self.end_recorded(shared);
            }
            return Fate::Lives;
        }
        self.sleep_timeout(shared, now);
        self.followups.expire(shared, now);
        while let Some(fate) = self.retransmit_one(shared, now) {
            if let Fate::Ends(_) = fate {
                return fate;
            }
        }
        self.probe_timeout(shared, now);
        if self.stage.until().is_some_and(|until| until <= now) {
            return Fate::Ends(self.stage.reason_or(CloseReason::Requested));
        }
        if !self.is_live() {
            return Fate::Lives;
        }
        if self.rekeying.has_expired(now) {
            return Fate::Ends(CloseReason::Expired);
        }
        if let Some(reason) = self.upkeep.take_end(now) {
            // "[...] SHOULD send a DELETE notification soon after the end of the lifetime period" (RFC 4478 section 2)
            self.close(shared, now, reason);
            return Fate::Lives;
        }
        if self.rekeying.take_rekeying_due(now) {
            self.enqueue(RekeyIke::new(), now);
        }
        if self.upkeep.take_reauthentication_due(now) {
            shared.actions.push_back(Action::Reauthenticate(self.core.id()));
        }
        if self.upkeep.take_renewal_due(now) {
            self.enqueue(TicketRequest, now);
        }
        self.confirm_by_ourselves(now);
        self.child_timers(shared, now);
        if !self.is_live() {
            return Fate::Lives;
        }
        self.silence_timers(shared, now);
        self.pump(shared, now);
        Fate::Lives
    }

    /// Repeats or gives up one request that is due; `None` when none is.
    fn retransmit_one(&mut self, shared: &mut Shared, now: Instant) -> Option<Fate> {
        let core = &mut self.core;
        let patient = match self.stage {
            Stage::Live(standing) => {
                standing == Standing::Unheard || (self.mobility.mobike() && !core.client)
            }
            _ => false,
        };
        let policy = core.link.conn.timing.retransmission;
        let tries = if patient { u32::MAX } else { policy.tries };
        let probing = self.upkeep.probing(now);
        let wait = |sent| probing.unwrap_or_else(|| policy.wait(sent, &mut shared.entropy));
        match core.requests.due(now, tries, probing.is_some(), wait)? {
            Due::Again(datagrams, class) => {
                core.link.send_again(shared, class, &datagrams);
                Some(Fate::Lives)
            }
            Due::GaveUp(id, flight) if self.was_obeyed(&flight) => {
                // The peer has moved, and its answers go elsewhere. This SA has no room for another request until it is answered: a
                // new one takes its place while the data go on.
                let wait = self.core.link.wait(shared, 1);
                self.core.requests.go_on(now, wait, id, flight);
                shared.actions.push_back(Action::Reauthenticate(self.core.id()));
                Some(Fate::Lives)
            }
            Due::GaveUp(_, flight) => {
                flight.exchange.abandon(shared);
                Some(Fate::Ends(self.stage.reason_or(CloseReason::TimedOut)))
            }
        }
    }

    /// Whether it is an address update without an answer, though the peer's traffic came by the new path since.
    fn was_obeyed(&self, flight: &Flight<Exchange>) -> bool {
        let obeyed =
            |update: &Update| update.is_for(&self.core.link.path) && self.core.last_in > flight.since;
        self.is_live() && matches!(&flight.exchange, Exchange::Update(update) if obeyed(update))
    }

    /// "When the lifetime of a Security Association expires, the Security Association MUST NOT be used." (RFC 7296 section 2.8)
    fn child_timers(&mut self, shared: &mut Shared, now: Instant) {
        let expired = self.children.expired(now);
        if expired.iter().any(|(_, busy)| matches!(busy, Busy::No | Busy::Rekeying)) {
            // "If an SA has expired or is about to expire and rekeying attempts using the mechanisms described here fail, an
            // implementation MUST close the IKE SA and any associated Child SAs and then MAY start new ones." (RFC 7296 section
            // 2.8)
            return self.close(shared, now, CloseReason::Expired);
        }
        for (id, _) in expired {
            self.delete_child(shared, now, id);
        }
        for id in self.children.take_rekeying_due(|_, at| at <= now) {
            self.enqueue(CreateChild::rekey(id), now);
        }
    }

    fn silence_timers(&mut self, shared: &mut Shared, now: Instant) {
        if !self.core.requests.is_idle() {
            return;
        }
        let interval = self.core.link.conn.timing.liveness.interval;
        if interval.is_some_and(|i| self.core.last_in + i <= now) {
            self.enqueue(crate::exchange::liveness::Liveness::upkeep(), now);
        }
        if let Some(check) = self.mobility.keepalive_due(&mut self.core, shared, now) {
            self.enqueue(check, now);
        }
    }
}
