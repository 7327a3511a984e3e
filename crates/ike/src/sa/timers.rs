//! When an established SA wants to be woken, and what it does then. Owns every deadline of an SA with its reason and its
//! slack; must never wake without a reason: tests count them.
//!
//! Timers, each a reason that [`IkeSa::deadline`] can give:
//! - `retransmission`: the next repetition of a request under way;
//! - `probe`: the driver's own deadline of a [`crate::Endpoint::probe`];
//! - `retry`: the back-off after TEMPORARY_FAILURE;
//! - `child rekey`, `ike rekey`, `reauthentication`, `ticket renewal`: scheduled upkeep, with a slack that
//!   leaves half of the time until the hard limit at least;
//! - `liveness`: silence of the peer, with half of the interval as slack;
//! - `nat keepalive`: see [`crate::exchange::keepalive`];
//! - `sleep announcement`, `sleep over`: see [`crate::exchange::sleep`];
//! - `half-open`, `confirmation`: see [`crate::handshake::quick`];
//! - `certificate expiry`: the session rests on a certificate that ends then; the client reauthenticates [`RENEWAL`] earlier, in
//!   case that it has been given a new one meanwhile;
//! - `expiry`: a hard lifetime, reached only if rekeying failed;
//! - `linger`: a replaced or closing SA whose peer says nothing more.

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant};

use super::{Fate, IkeSa, Stage, Task, UPKEEP_SLACK};
use crate::child::Busy;
use crate::config::Lifetime;
use crate::event::{CloseReason, Event};
use crate::exchange::keepalive;
use crate::handshake::HALF_OPEN_SLACK;
use crate::shared::{Action, Shared};
use crate::window::Due;

/// A client reauthenticates this long before a certificate expires; if it is the same one still, the SA ends with it.
const RENEWAL: Duration = Duration::from_secs(600);
/// What lies further ahead needs no timer.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

fn slack_of(soft: Option<Instant>, hard: Option<Instant>, lifetime: Option<&Lifetime>) -> Duration {
    match (soft, hard, lifetime) {
        (Some(soft), Some(hard), Some(lifetime)) => lifetime.slack(hard - soft),
        _ => UPKEEP_SLACK,
    }
}

impl IkeSa {
    /// When the session must be authenticated anew, and when the certificates end that it rests on. Both are counted from the last
    /// full authentication, however many rekeyings and resumptions ago, by the clock of the world: again whenever that was set.
    pub(crate) fn schedule_authentication(&mut self, shared: &Shared, now: Instant) {
        let unix = shared.unix(now);
        let left = self.session.vouched_until.map(|until| until.saturating_since(unix));
        let left = left.filter(|left| *left <= FAR);
        let renewal = left.filter(|left| self.client && *left > RENEWAL).map(|left| left - RENEWAL);
        let age = unix.saturating_since(self.session.authenticated);
        let configured = self.link.conn.reauthenticate.map(|after| after.saturating_sub(age));
        self.vouched_at = left.map(|left| now + left);
        self.reauth_at = renewal.into_iter().chain(configured).min().map(|left| now + left);
    }

    /// The deadline that must be met first, taking slack into account.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        if let Some(asleep) = &self.asleep {
            return Some(Deadline { at: asleep.until, slack: asleep.slack, why: "sleep over" });
        }
        if let Some(tentative) = &self.tentative {
            return Some(Deadline { at: tentative.expires, slack: HALF_OPEN_SLACK, why: "half-open" });
        }
        let mut first: Option<Deadline> = None;
        let mut consider = |at: Option<Instant>, slack: Duration, why: &'static str| {
            let Some(at) = at else { return };
            let candidate = Deadline { at, slack, why };
            if first.is_none_or(|f| at + slack < f.at + f.slack) {
                first = Some(candidate);
            }
        };
        consider(self.out.next_due().map(|d| d.0), Duration::ZERO, "retransmission");
        consider(self.probe.map(|p| p.until), Duration::ZERO, "probe");
        consider(self.linger, UPKEEP_SLACK, "linger");
        consider(self.announcing.as_ref().map(|a| a.until), Duration::ZERO, "sleep announcement");
        if self.stage != Stage::Live {
            return first;
        }
        if self.out.has_room() {
            // What waits for an exchange to end needs no timer.
            let ready = self.queue.iter().filter(|p| self.compatible(&p.task)).map(|p| p.not_before);
            consider(ready.min(), Duration::ZERO, "retry");
        }
        consider(self.expire_at, Duration::ZERO, "expiry");
        consider(self.vouched_at, Duration::ZERO, "certificate expiry");
        let conn = &self.link.conn;
        consider(
            self.rekey_at,
            slack_of(self.rekey_at, self.expire_at, Some(&conn.ike_lifetime)),
            "ike rekey",
        );
        consider(self.reauth_at, UPKEEP_SLACK, "reauthentication");
        consider(self.renew_ticket_at, UPKEEP_SLACK, "ticket renewal");
        consider(self.confirming.map(|c| c.at), Duration::ZERO, "confirmation");
        for child in self.children.values() {
            consider(child.expire_at, Duration::ZERO, "expiry");
            let lifetime = conn.children.get(child.config).map(|c| &c.lifetime);
            consider(child.rekey_at, slack_of(child.rekey_at, child.expire_at, lifetime), "child rekey");
        }
        if let Some(interval) = self.link.conn.liveness.interval.filter(|_| self.out.is_idle()) {
            consider(Some(self.last_in + interval), interval / 2, "liveness");
        }
        if let Some(d) = self.keepalive_deadline() {
            consider(Some(d.at), d.slack, d.why);
        }
        first
    }

    /// The silence after which a NAT keepalive is sent.
    pub(crate) fn keepalive_interval(&self) -> Option<Duration> {
        (self.nat.local && self.encapsulated()).then(|| self.keepalive.interval()).flatten()
    }

    /// Its algorithms, in the words of the configuration.
    pub(crate) fn suite(&self) -> String {
        self.channel.suite.to_string()
    }

    /// "[...] that system SHOULD start sending keepalive packets as defined in [UDPENCAPS]" (RFC 7296 section 2.23)
    fn keepalive_deadline(&self) -> Option<Deadline> {
        let needed = self.nat.local && self.encapsulated() && self.out.is_idle();
        needed.then(|| self.keepalive.deadline(self.last_out)).flatten()
    }

    /// Does everything that is due.
    pub(crate) fn handle_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let Some(asleep) = &self.asleep {
            return if asleep.until <= now { Fate::Ends(CloseReason::Released) } else { Fate::Lives };
        }
        if let Some(tentative) = &self.tentative {
            return if tentative.expires <= now { Fate::Ends(CloseReason::Unconfirmed) } else { Fate::Lives };
        }
        self.sleep_timeout(shared, now);
        while let Some(due) = self.retransmit_one(shared, now) {
            if let Fate::Ends(_) = due {
                return due;
            }
        }
        if self.probe.is_some_and(|p| p.until <= now) {
            self.probe = None;
            shared.event(Event::ProbeFailed { sa: self.link.id });
        }
        if due(self.linger) {
            return Fate::Ends(self.end_reason());
        }
        if self.stage != Stage::Live {
            return Fate::Lives;
        }
        if due(self.expire_at) {
            return Fate::Ends(CloseReason::Expired);
        }
        if due(self.vouched_at) {
            self.vouched_at = None;
            self.close(shared, now, CloseReason::CertificateExpired);
            return Fate::Lives;
        }
        if due(self.rekey_at) {
            self.rekey_at = None;
            self.enqueue(Task::RekeyIke, now);
        }
        if due(self.reauth_at) {
            self.reauth_at = None;
            shared.actions.push_back(Action::Reauthenticate(self.link.id));
        }
        if due(self.renew_ticket_at) {
            self.renew_ticket_at = None;
            self.enqueue(Task::Ticket, now);
        }
        self.confirm_by_ourselves(now);
        self.child_timers(shared, now);
        if self.stage != Stage::Live {
            return Fate::Lives;
        }
        self.silence_timers(shared, now);
        self.pump(shared, now);
        Fate::Lives
    }

    /// Repeats or gives up one request that is due; `None` when none is.
    fn retransmit_one(&mut self, shared: &mut Shared, now: Instant) -> Option<Fate> {
        let tries = match self.stage {
            Stage::Live if self.unheard || (self.mobike && !self.client) => u32::MAX,
            _ => shared.config.retransmission.tries,
        };
        match self.out.due(now, tries, |sent| shared.wait(sent))? {
            Due::Again(datagrams, class) => {
                self.link.send_again(shared, class, &datagrams);
                Some(Fate::Lives)
            }
            Due::GaveUp(_) => Some(Fate::Ends(match self.stage {
                Stage::Closing(reason) => reason,
                _ => CloseReason::TimedOut,
            })),
        }
    }

    /// "When the lifetime of a Security Association expires, the Security Association MUST NOT be used." (RFC 7296 section 2.8)
    fn child_timers(&mut self, shared: &mut Shared, now: Instant) {
        let expired: Vec<_> = self
            .children
            .values()
            .filter(|c| c.expire_at.is_some_and(|at| at <= now))
            .map(|c| (c.id, matches!(c.busy, Busy::No | Busy::Rekeying)))
            .collect();
        if expired.iter().any(|(_, in_use)| *in_use) {
            // "If an SA has expired or is about to expire and rekeying attempts using the mechanisms described here fail, an
            // implementation MUST close the IKE SA and any associated Child SAs and then MAY start new ones." (RFC 7296 section
            // 2.8)
            return self.close(shared, now, CloseReason::Expired);
        }
        for (id, _) in expired {
            self.delete_child(shared, now, id);
        }
        let mut rekey = Vec::new();
        for child in self.children.values_mut() {
            if child.rekey_at.is_some_and(|at| at <= now) {
                child.rekey_at = None;
                rekey.push(child.id);
            }
        }
        rekey.into_iter().for_each(|id| self.enqueue(Task::RekeyChild(id), now));
    }

    fn silence_timers(&mut self, shared: &mut Shared, now: Instant) {
        if !self.out.is_idle() {
            return;
        }
        if self.link.conn.liveness.interval.is_some_and(|i| self.last_in + i <= now) {
            self.enqueue(Task::Liveness, now);
        }
        if self.keepalive_deadline().is_some_and(|d| d.at <= now) {
            match self.keepalive.action() {
                keepalive::Action::Check if self.mobike && self.client => {
                    // What came in may have refreshed the binding as well: only silence both ways proves anything.
                    let silence = now - self.last_out.max(self.last_in);
                    self.enqueue(Task::NatCheck(silence), now);
                }
                _ => self.link.send_keepalive(shared),
            }
            self.last_out = now;
        }
    }
}
