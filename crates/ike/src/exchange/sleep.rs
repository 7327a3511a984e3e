//! The device announces that its radio goes off, and the gateway says what becomes of the SA (`docs/wire/dormancy.md`).
//! Owns this INFORMATIONAL exchange at both ends; must never know why a device sleeps, nor switch anything off.

use core::time::Duration;

use dormouse_keying::SleepVerdict;
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{NotifyType, Payload};
use dormouse_wire::sleep::{HoldGrant, Sleeping};

use super::child::CreateChild;
use super::liveness::Liveness;
use super::rekey::RekeyIke;
use super::ticket::TicketRequest;
use super::{Exchange, Reply, Request, Run};
use crate::action::Action;
use crate::event::Event;
use crate::payloads::{View, notify};
use crate::sa::{Answer, Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// Upkeep that falls due this soon is done before a sleep of unknown length.
const UNKNOWN_SLEEP: Duration = Duration::from_secs(3_600);
/// How far ahead upkeep is done before a sleep that is `longest` at most. As many sleeps are longer as shorter than what is
/// `probably` enough, hence twice that: upkeep in vain costs one exchange while the radio is on anyway, upkeep that was left
/// out costs a resumption that delays traffic. What may fall due in the longest sleep that is thinkable is no reason to be
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
/// What one CHILD SA costs besides, in bytes: two key schedules, a replay window, selectors, counters.
const CHILD_BYTES: usize = 4_096;

/// Announces the sleep that [`crate::sa::dormancy::Dormancy::announcement`] describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnnounceSleep;

impl Run for AnnounceSleep {
    fn build(&mut self, sa: &mut IkeSa, shared: &mut Shared, _: Instant) -> Option<Request> {
        let said = sa.dormancy.announcement()?.emit();
        if !sa.dormancy.is_open() {
            sa.sleep_settled(shared, SleepVerdict::Unsupported);
            return None;
        }
        let payloads = vec![notify(NotifyType::DormancySleeping, said)];
        Some(Request { payloads, kind: Kind::Sleep, class: Class::Timely })
    }

    /// The gateway counts from a later moment than when the request was first sent.
    fn take(self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        sa.take_load(shared, reply.view);
        if sa.dormancy.announcement().is_none() {
            // The driver has not waited for this answer, or has slept meanwhile. The gateway may believe that the device
            // sleeps: any request says that it does not.
            sa.enqueue(Liveness::upkeep(), now);
            return Fate::Lives;
        }
        let held = reply.view.notify(NotifyType::DormancyHeld).and_then(|n| HoldGrant::parse(&n.data).ok());
        let verdict = match held {
            Some(held) => SleepVerdict::Held { until: reply.asked + held.hold, flags: held.flags },
            None if reply.view.has(NotifyType::DormancyReleased) => SleepVerdict::Released,
            None => SleepVerdict::Unsupported,
        };
        sa.sleep_settled(shared, verdict);
        Fate::Lives
    }

    fn migrate(&self, _: bool) -> Option<Exchange> {
        Some(Self.into())
    }
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
        self.dormancy.announce(said, now + timeout);
        self.enqueue(AnnounceSleep, now);
        self.pump(shared, now);
    }

    /// What would fall due during the sleep is done before it, unless it would be in vain: a successor that would not live
    /// through the sleep either is left to the ticket.
    fn upkeep_before_sleep(&mut self, now: Instant, sleep: Duration) {
        let wake = now + sleep;
        let conn = self.core.link.conn.clone();
        let outlives = |lifetime: Option<Duration>| lifetime.is_none_or(|l| l > sleep);
        let due = self.children.take_rekeying_due(|child, at| {
            at <= wake && outlives(conn.children.get(child.config).and_then(|c| c.lifetime.time))
        });
        for id in due {
            self.enqueue(CreateChild::rekey(id), now);
        }
        if outlives(conn.timing.lifetime.time) && self.rekeying.take_rekeying_due(wake) {
            self.enqueue(RekeyIke::new(), now);
        }
        if self.upkeep.take_renewal_due(wake) {
            self.enqueue(TicketRequest, now);
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
        let takes = self.dormancy.is_open() && !self.core.client && self.is_live();
        let said = view.notify(NotifyType::DormancySleeping).filter(|_| takes)?;
        let sa = self.core.id();
        let said = match Sleeping::parse(&said.data) {
            Ok(said) => said,
            Err(error) => {
                tracing::debug!(%sa, %error, "announcement of a sleep not understood");
                return Some(Answer::of(Kind::Sleep, Vec::new()));
            }
        };
        let flags = said.flags.and(shared.config.hold.services);
        let hold = self.hold(shared, now, said.expect);
        let held = hold.is_some();
        let stay = hold.unwrap_or(RELEASE_LINGER);
        self.dormancy.peer_sleeps(now, stay);
        shared.actions.push_back(Action::Sleeps(sa));
        let verdict = match hold {
            Some(hold) => notify(NotifyType::DormancyHeld, HoldGrant { flags, hold }.emit()),
            None => notify(NotifyType::DormancyReleased, []),
        };
        let payloads = vec![verdict, shared.load_payload(now)];
        let (until, expect) = (now + stay, said.expect);
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
        let ends = [self.rekeying.expire_at(), self.upkeep.reauthenticate_at()];
        let ends = ends.into_iter().chain(self.children.iter().map(|c| c.expire_at)).flatten();
        let left = ends.map(|at| (at - now).saturating_sub(BEFORE_EXPIRY)).min().unwrap_or(Duration::MAX);
        let hold = Duration::from_secs(wanted.min(policy.longest).min(left).as_secs());
        if hold < HOLD_MIN {
            return None;
        }
        let released = shared.sleepers.admit(&policy, now, self.core.id(), self.footprint())?;
        shared.actions.extend(released.into_iter().map(Action::Release));
        Some(hold)
    }

    /// What the SA costs in memory, in bytes, as far as it is known here.
    fn footprint(&self) -> usize {
        core::mem::size_of::<Self>() + self.children.len() * CHILD_BYTES + self.core.answers.kept()
    }
}

impl Shared {
    /// The load report of this moment, as a payload.
    pub(crate) fn load_payload(&mut self, now: Instant) -> Payload {
        let unix = self.unix(now);
        let report = self.load.report(unix, self.half_open.len());
        notify(NotifyType::DormancyLoad, report.emit())
    }
}
