//! The device announces that its radio goes off, and the gateway says what becomes of the SA (`docs/wire/dormancy.md`).
//! Owns this INFORMATIONAL exchange at both ends and what a sleep means to an SA; must never know why a device sleeps, nor
//! switch anything off.
//!
//! # Timers
//! - Device, `sleep announcement`: the driver's own deadline. Whatever happens the driver is told by then
//!   ([`Event::SleepAnswered`]) and may sleep; nothing is repeated while it does.
//! - Gateway, `sleep over`: the end of a hold. It is the only timer of an SA whose device sleeps.

use core::time::Duration;

use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::dormancy::{Held, LoadReport, Sleeping};
use dormouse_wire::ike::{NotifyType, Payload};

use crate::event::{Event, SleepVerdict};
use crate::payloads::{View, notify};
use crate::sa::{Answer, Exchange, Fate, IkeSa, Stage, Task};
use crate::shared::{Action, Shared};
use crate::stats::Kind;

/// Upkeep that falls due this soon is done before a sleep of unknown length.
const UNKNOWN_SLEEP: Duration = Duration::from_secs(3_600);
/// How far ahead upkeep is done before a sleep that is `longest` at most. As many sleeps are longer as shorter than what is
/// `probably` enough, hence twice that: upkeep in vain costs one exchange while the radio is on anyway, upkeep that was left
/// out costs a resumption that somebody waits for. What may fall due in the longest sleep that is thinkable is no reason to be
/// busy before each short one.
fn upkeep_horizon(longest: Option<Duration>, probably: Option<Duration>) -> Duration {
    match (probably, longest) {
        (Some(probably), longest) => probably.saturating_mul(2).min(longest.unwrap_or(Duration::MAX)),
        (None, longest) => longest.unwrap_or(UNKNOWN_SLEEP),
    }
}

/// A device may come back this much later than it said, and a tenth of its sleep.
const GRACE: Duration = Duration::from_secs(30);
/// A hold ends at least this long before the SA itself would.
const BEFORE_EXPIRY: Duration = Duration::from_secs(10);
/// A shorter hold is not worth a promise.
const HOLD_MIN: Duration = Duration::from_secs(2);
/// A released SA stays for so long, for the device that did not get the answer and repeats its announcement.
const RELEASE_LINGER: Duration = Duration::from_secs(10);
/// The most slack of the end of a hold.
const SLACK_MAX: Duration = Duration::from_secs(60);
/// What one CHILD SA costs besides, in bytes: two key schedules, a replay window, selectors, counters.
const CHILD_BYTES: usize = 4_096;

/// A sleep that this end announces.
#[derive(Debug)]
pub(crate) struct Announcing {
    said: Sleeping,
    pub(crate) until: Instant,
}

/// The peer sleeps: nothing is sent to it, and no timer but this one runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asleep {
    pub(crate) until: Instant,
    pub(crate) slack: Duration,
}

impl IkeSa {
    // ---- the device ----

    /// See [`crate::Endpoint::announce_sleep`].
    pub(crate) fn announce_sleep(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        said: Sleeping,
        probably: Option<Duration>,
        timeout: Duration,
    ) {
        self.upkeep_before_sleep(now, upkeep_horizon(said.expect, probably));
        self.announcing = Some(Announcing { said, until: now + timeout });
        // Last: what it says must still be true when it is answered.
        self.queue.retain(|p| p.task != Task::Sleep);
        self.enqueue(Task::Sleep, now);
        self.pump(shared, now);
    }

    /// What would fall due during the sleep is done before it, unless it would be in vain: a successor that would not live
    /// through the sleep either is left to the ticket.
    fn upkeep_before_sleep(&mut self, now: Instant, sleep: Duration) {
        let wake = now + sleep;
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= wake);
        let conn = self.link.conn.clone();
        let mut children = Vec::new();
        for child in self.children.values_mut() {
            let lifetime = conn.children.get(child.config).and_then(|c| c.lifetime.time);
            if due(child.rekey_at) && lifetime.is_none_or(|l| l > sleep) {
                child.rekey_at = None;
                children.push(child.id);
            }
        }
        children.into_iter().for_each(|id| self.enqueue(Task::RekeyChild(id), now));
        if due(self.rekey_at) && conn.ike_lifetime.time.is_none_or(|l| l > sleep) {
            self.rekey_at = None;
            self.enqueue(Task::RekeyIke, now);
        }
        if due(self.renew_ticket_at) {
            self.renew_ticket_at = None;
            self.enqueue(Task::Ticket, now);
        }
    }

    pub(crate) fn begin_sleep(&mut self, shared: &mut Shared, now: Instant) {
        let Some(announcing) = &self.announcing else { return };
        if !self.dormancy {
            return self.sleep_settled(shared, SleepVerdict::Unsupported);
        }
        let payloads = [notify(NotifyType::DormancySleeping, announcing.said.emit())];
        self.request(shared, now, &payloads, Kind::Sleep, Class::Timely, Exchange::Sleep);
    }

    /// The gateway's answer. `asked` is when the request was first sent: the gateway counts from a later moment.
    pub(crate) fn sleep_answered(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        asked: Instant,
        view: View<'_>,
    ) -> Fate {
        self.take_load(shared, view);
        if self.announcing.is_none() {
            // The driver has not waited for this answer, or has slept meanwhile. The gateway may believe that the device
            // sleeps: any request says that it does not.
            self.enqueue(Task::Liveness, now);
            return Fate::Lives;
        }
        let held = view.notify(NotifyType::DormancyHeld).and_then(|n| Held::parse(&n.data).ok());
        let verdict = match held {
            Some(held) => SleepVerdict::Held { until: asked + held.hold, flags: held.flags },
            None if view.has(NotifyType::DormancyReleased) => SleepVerdict::Released,
            None => SleepVerdict::Unsupported,
        };
        self.sleep_settled(shared, verdict);
        Fate::Lives
    }

    fn sleep_settled(&mut self, shared: &mut Shared, verdict: SleepVerdict) {
        self.announcing = None;
        self.queue.retain(|p| p.task != Task::Sleep);
        shared.event(Event::SleepAnswered { sa: self.link.id, verdict });
    }

    /// The announcement has taken too long: the device sleeps without an answer.
    pub(crate) fn sleep_timeout(&mut self, shared: &mut Shared, now: Instant) {
        if self.announcing.as_ref().is_some_and(|a| a.until <= now) {
            self.sleep_settled(shared, SleepVerdict::Unanswered);
        }
    }

    /// See [`crate::Endpoint::woke`]. Requests that were under way when the radio went off have not been given up by the peer:
    /// they get their patience anew, and go out with the next [`crate::Endpoint::handle_timeout`].
    pub(crate) fn woke(&mut self, now: Instant) {
        self.announcing = None;
        self.queue.retain(|p| p.task != Task::Sleep);
        self.reachable(now);
        self.last_in = self.last_in.max(now);
    }

    /// The gateway's estimate, if the message carries one.
    pub(crate) fn take_load(&mut self, shared: &mut Shared, view: View<'_>) {
        let Some(said) = view.notify(NotifyType::DormancyLoad).filter(|_| self.dormancy && self.client)
        else {
            return;
        };
        match LoadReport::parse(&said.data) {
            Ok(report) => {
                shared.event(Event::LoadReport { sa: self.link.id, report: Box::new(report) });
            }
            Err(error) => tracing::debug!(sa = %self.link.id, %error, "load report not understood"),
        }
    }

    // ---- the gateway ----

    /// The answer to a request that announces a sleep; `None` if it is another request.
    pub(crate) fn answer_sleeping(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Option<Answer> {
        let takes = self.dormancy && !self.client && self.stage == Stage::Live;
        let said = view.notify(NotifyType::DormancySleeping).filter(|_| takes)?;
        let said = match Sleeping::parse(&said.data) {
            Ok(said) => said,
            Err(error) => {
                tracing::debug!(sa = %self.link.id, %error, "announcement of a sleep not understood");
                return Some(Answer::of(Kind::Sleep, Vec::new()));
            }
        };
        let flags = said.flags.and(shared.config.hold.services);
        let hold = self.hold(shared, now, said.expect);
        let held = hold.is_some();
        let stay = hold.unwrap_or(RELEASE_LINGER);
        let asleep = Some(Asleep { until: now + stay, slack: (stay / 16).min(SLACK_MAX) });
        self.asleep = asleep;
        shared.actions.push_back(Action::Sleeps(self.link.id));
        let mut payloads = vec![match hold {
            Some(hold) => notify(NotifyType::DormancyHeld, Held { flags, hold }.emit()),
            None => notify(NotifyType::DormancyReleased, []),
        }];
        payloads.push(shared.load_payload(now));
        let (sa, until, expect) = (self.link.id, now + stay, said.expect);
        tracing::debug!(%sa, held, ?stay, "the peer sleeps");
        shared.event(Event::PeerSleeps { sa, until, held, flags, expect, marks: said.marks });
        Some(Answer::of(Kind::Sleep, payloads))
    }

    /// How long this SA is held, if it is.
    fn hold(&self, shared: &mut Shared, now: Instant, expect: Option<Duration>) -> Option<Duration> {
        let policy = shared.config.hold;
        if shared.by_spi.len() > policy.release_above {
            return None;
        }
        let wanted = expect.map_or(policy.longest, |e| e.saturating_add(e / 10).saturating_add(GRACE));
        let ends = [self.expire_at, self.reauth_at];
        let ends = ends.into_iter().chain(self.children.values().map(|c| c.expire_at)).flatten();
        let left = ends.map(|at| (at - now).saturating_sub(BEFORE_EXPIRY)).min().unwrap_or(Duration::MAX);
        let hold = Duration::from_secs(wanted.min(policy.longest).min(left).as_secs());
        if hold < HOLD_MIN {
            return None;
        }
        let released = shared.sleepers.admit(&policy, now, self.link.id, self.footprint())?;
        shared.actions.extend(released.into_iter().map(Action::Release));
        Some(hold)
    }

    /// What the SA costs in memory, in bytes, as far as it is known here.
    fn footprint(&self) -> usize {
        core::mem::size_of::<Self>() + self.children.len() * CHILD_BYTES + self.inc.kept()
    }

    /// Something came that the device has sent after its announcement.
    pub(crate) fn awake(&mut self, shared: &mut Shared, now: Instant) {
        // For an SA that was replaced it is what its successor knows of the device that counts: what comes here was under way.
        if self.stage != Stage::Live || self.asleep.take().is_none() {
            return;
        }
        shared.sleepers.remove(self.link.id);
        self.last_in = now;
        self.out.begin_anew(now);
        shared.event(Event::PeerAwake { sa: self.link.id });
    }
}

impl Shared {
    /// The load report of this moment, as a payload.
    pub(crate) fn load_payload(&mut self, now: Instant) -> Payload {
        let unix = self.unix(now);
        let report = self.load.report(unix, self.half_open);
        notify(NotifyType::DormancyLoad, report.emit())
    }
}
