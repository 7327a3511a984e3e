//! From one phase to the next: towards sleep, and back. Owns the order of actions on the way; when to go is the plan's
//! ([`super::plan`]), why to come back the caller's.

use super::account::Bucket;
use super::clock::{PolicyDeadline, PolicyTime};
use super::{Action, Cause, Event, Mode, Phase, Reason, Sleeper, Step, Then, Woke, limits};
use dormouse_wire::ip::Flow;

impl Sleeper {
    /// Only a connected device whose radio obeys sleeps, and only if it is to.
    pub(super) fn may_sleep(&self) -> bool {
        self.driver && self.session.wanted && self.session.up && self.mode != Mode::Performance
    }

    /// The wakes of a sleeping radio that no packet causes.
    pub(super) fn alarms(&self, since: PolicyTime) -> impl Iterator<Item = (PolicyDeadline, Cause)> + use<> {
        let schedule = self.settings.wake_every.map(|every| {
            let deadline = PolicyDeadline { at: since + every, slack: every / 8, why: "sleeper: wake_every" };
            (deadline, Cause::Schedule)
        });
        let renewal = self.session.expiry.filter(|_| self.settings.renew).map(|at| {
            let ahead = (at - PolicyTime::ZERO).saturating_sub(limits::RENEW_AHEAD);
            // Never at once again: a session that cannot be renewed must not keep the radio awake.
            let at = (PolicyTime::ZERO + ahead).max(since + limits::RENEW_AHEAD);
            let deadline = PolicyDeadline { at, slack: limits::RENEW_AHEAD / 2, why: "sleeper: renewal" };
            (deadline, Cause::Deadline)
        });
        schedule.into_iter().chain(renewal)
    }

    /// The first of them.
    pub(super) fn alarm(&self, since: PolicyTime) -> Option<(PolicyDeadline, Cause)> {
        self.alarms(since).min_by_key(|(deadline, _)| deadline.at)
    }

    pub(super) fn prepare(&mut self, now: PolicyTime, reason: Reason) {
        let until = now + limits::ANNOUNCE;
        self.phase = Phase::Preparing { until, reason };
        self.account.enter(now, Bucket::Preparing);
        let longest = match reason {
            Reason::Idle => self.settings.wake_every.unwrap_or(limits::LONGEST),
            Reason::User | Reason::Machine => limits::LONGEST,
        };
        let expected = self.expected_sleep().min(longest);
        self.actions.push_back(Action::Announce { expected, longest });
    }

    pub(super) fn asleep(&mut self, now: PolicyTime, reason: Reason) {
        self.account.enter(now, if reason == Reason::Machine { Bucket::Suspended } else { Bucket::Asleep });
        let since = match self.phase {
            Phase::Asleep { since, .. } => since,
            _ => {
                self.journal.counts.sleeps += 1;
                now
            }
        };
        let off = self.radio_is_off();
        self.phase = Phase::Asleep { since, reason, off };
        let decision = self.journal.decisions.back().copied().filter(|_| reason == Reason::Idle);
        self.events.push_back(Event::Asleep { reason, decision });
    }

    /// Wakes up from any phase.
    pub(super) fn rouse(&mut self, now: PolicyTime, cause: Cause) {
        match &mut self.phase {
            Phase::Preparing { .. } => self.call_off(now),
            Phase::SwitchingOff { then, .. } => *then = Then::Wake(cause, None),
            Phase::Asleep { .. } => self.wake(now, cause, None),
            Phase::Awake | Phase::Waking { .. } => {}
        }
    }

    /// A packet goes out before the radio is off: the gateway learns that nothing came of it.
    pub(super) fn call_off(&mut self, now: PolicyTime) {
        self.journal.counts.called_off += 1;
        self.events.push_back(Event::CalledOff);
        self.session_again(now);
    }

    pub(super) fn session_again(&mut self, now: PolicyTime) {
        self.phase = Phase::Awake;
        self.account.enter(now, Bucket::Awake);
        self.actions.push_back(Action::WakeSession { ask: false });
        self.plan_decision(now);
    }

    pub(super) fn wake(&mut self, now: PolicyTime, cause: Cause, flow: Option<Flow>) {
        let Phase::Asleep { since, off, .. } = self.phase else { return };
        if off {
            self.account.cycle();
        }
        self.wake_from(now, since, cause, flow);
    }

    /// The only place from which the radio is switched on, but for the repetition of what failed.
    pub(super) fn wake_from(
        &mut self,
        now: PolicyTime,
        asleep_since: PolicyTime,
        cause: Cause,
        flow: Option<Flow>,
    ) {
        let woke = Woke { at: now, cause, flow, slept: now - asleep_since, took: None, rung: None };
        self.journal.woke(woke);
        self.events.push_back(Event::Waking(woke));
        self.account.enter(now, Bucket::Waking);
        if self.radio_is_off() {
            self.actions.push_back(Action::RadioOn);
            let step = Step::Radio { until: now + limits::RADIO, pause: limits::RETRY_FIRST };
            self.phase = Phase::Waking { since: now, cause, step };
        } else {
            self.wake_session(now, now, cause);
        }
    }

    pub(super) fn wake_session(&mut self, now: PolicyTime, since: PolicyTime, cause: Cause) {
        let ask = cause != Cause::Traffic;
        self.actions.push_back(Action::WakeSession { ask });
        let step = Step::Session { until: now + limits::SESSION };
        self.phase = Phase::Waking { since, cause, step };
    }

    pub(super) fn awake(&mut self, now: PolicyTime, since: PolicyTime, cause: Cause, flows: bool) {
        self.phase = Phase::Awake;
        self.idle.back = now;
        self.account.enter(now, Bucket::Awake);
        let took = now - since;
        if let Some(woke) = self.journal.latest() {
            woke.took = flows.then_some(took);
            let woke = *woke;
            self.judge(&woke, took);
            self.events.push_back(Event::Awake(woke));
        }
        match cause {
            Cause::Traffic | Cause::Refused => self.plan_decision(now),
            Cause::Schedule | Cause::Deadline | Cause::Foreign => self.plan_return(now),
            Cause::Machine | Cause::User | Cause::Mode | Cause::Released => {
                // The user has the device in hand: the idle period begins anew.
                self.idle.last = Some(now);
                self.idle.tainted = true;
                self.plan_decision(now);
            }
        }
    }

    pub(super) fn failed(&mut self, why: &str) {
        self.journal.counts.radio_failures += 1;
        self.events.push_back(Event::RadioFailed { why: why.to_owned() });
    }
}
