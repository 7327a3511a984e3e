//! From packets to the moment at which the radio goes off. Owns idle periods and the plan for the running one; the time-out is
//! the policy's, its floor the mode's.

use super::clock::{PolicyDeadline, PolicyTime};
use super::journal::Decided;
use super::{Cause, Mode, Phase, Reason, Sleeper, Then, limits};
use dormouse_energy::{Direction, PacketInfo};
use dormouse_wire::ip::{Flow, protocol};
use std::time::Duration;

const DAY: u64 = 86_400;

/// What is to happen in the running idle period, and when. The moment is a lower bound: packets that come meanwhile move it
/// only when it is reached, so that busy traffic costs no timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    at: PolicyTime,
    step: Step,
    /// How long upkeep has been waited for.
    waited: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The policy is asked.
    Decide,
    /// The radio goes off.
    Off,
}

impl Plan {
    pub(super) fn deadline(self, not_before: Option<PolicyTime>) -> PolicyDeadline {
        let why = match self.step {
            Step::Decide => "sleeper: decision",
            Step::Off => "sleeper: time-out",
        };
        PolicyDeadline::strict(not_before.map_or(self.at, |t| t.max(self.at)), why)
    }
}

impl Sleeper {
    /// An inner packet of a client connection, of `size` bytes. One that goes out while the radio sleeps wakes it; the driver
    /// holds it meanwhile.
    pub fn packet(&mut self, now: PolicyTime, direction: Direction, flow: &Flow, size: usize) {
        let outgoing = direction != Direction::Incoming;
        let asleep = matches!(self.phase, Phase::Asleep { .. } | Phase::SwitchingOff { .. });
        if asleep && !outgoing {
            self.journal.counts.late += 1;
            return;
        }
        let info = self.info(now, direction, flow, size);
        self.end_idle(now);
        self.scheduler.observe(now.for_scheduler(), &info);
        self.idle.last = Some(now);
        match &mut self.phase {
            Phase::Awake => self.postpone(now),
            Phase::Preparing { reason: Reason::Idle, .. } => self.call_off(now),
            Phase::SwitchingOff { then: then @ Then::Sleep(Reason::Idle), .. } => {
                *then = Then::Wake(Cause::Traffic, Some(*flow));
            }
            Phase::Asleep { reason: Reason::Idle, .. } => self.wake(now, Cause::Traffic, Some(*flow)),
            // The user or the machine switches this radio: the packet waits until they do.
            Phase::Preparing { .. } | Phase::SwitchingOff { .. } | Phase::Asleep { .. } => {}
            Phase::Waking { .. } => {}
        }
    }

    fn info(&self, now: PolicyTime, direction: Direction, flow: &Flow, size: usize) -> PacketInfo {
        // For ICMP the flow holds type and code there.
        let ports = matches!(
            flow.protocol,
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE
        );
        let port = |p: Option<u16>| p.filter(|_| ports).unwrap_or(0);
        let (local, remote) = match direction {
            Direction::Incoming => (flow.dst_port, flow.src_port),
            Direction::Outgoing | Direction::Unknown => (flow.src_port, flow.dst_port),
        };
        let time_of_day = self
            .day
            .and_then(|(at, seconds)| u32::try_from((u64::from(seconds) + (now - at).as_secs()) % DAY).ok());
        PacketInfo {
            direction,
            protocol: flow.protocol.into(),
            local_port: port(local),
            remote_port: port(remote),
            size: u32::try_from(size).unwrap_or(u32::MAX),
            time_of_day,
        }
    }

    /// A packet ends the running idle period, if it was one.
    fn end_idle(&mut self, now: PolicyTime) {
        let tainted = std::mem::take(&mut self.idle.tainted);
        let Some(last) = self.idle.last.filter(|_| !tainted) else { return };
        let idle = now - last;
        if idle >= self.settings.min_idle {
            self.scheduler.learn(idle);
        }
    }

    /// A packet of an awake device: what was planned for the silence that it ends is void.
    fn postpone(&mut self, now: PolicyTime) {
        let next = now + self.settings.min_idle;
        match self.plan {
            // It finds out for itself that it is too early.
            Some(Plan { step: Step::Decide, at, .. }) if at <= next => {}
            _ => self.plan = Some(Plan { at: next, step: Step::Decide, waited: Duration::ZERO }),
        }
    }

    /// The policy is asked as soon as the silence counts as an idle period.
    pub(super) fn plan_decision(&mut self, now: PolicyTime) {
        let at = self.silent_since().map_or(now, |since| (since + self.settings.min_idle).max(now));
        self.plan = Some(Plan { at, step: Step::Decide, waited: Duration::ZERO });
    }

    /// Since when nothing has gone through the radio: not before it was on.
    fn silent_since(&self) -> Option<PolicyTime> {
        self.idle.last.map(|last| last.max(self.idle.back))
    }

    /// After a wake in the middle of an idle period: back to sleep, unless a packet comes.
    pub(super) fn plan_return(&mut self, now: PolicyTime) {
        self.plan = Some(Plan { at: now + limits::LINGER, step: Step::Off, waited: Duration::ZERO });
    }

    pub(super) fn follow_plan(&mut self, now: PolicyTime) {
        let due = |p: &Plan| p.at <= now && self.refused_until.is_none_or(|t| t <= now);
        let Some(plan) = self.plan.filter(|p| due(p) && self.may_sleep()) else { return };
        match plan.step {
            Step::Decide => {
                let silent = self.silent_since().map_or(now, |since| since + self.settings.min_idle);
                if silent > now {
                    self.plan = Some(Plan { at: silent, ..plan });
                } else {
                    self.decide(now);
                }
            }
            Step::Off if self.upkeep_is_close(now) && plan.waited < limits::COALESCE_MOST => {
                let waited = plan.waited + limits::COALESCE;
                self.plan = Some(Plan { at: now + limits::COALESCE, waited, ..plan });
            }
            Step::Off => {
                self.plan = None;
                self.prepare(now, Reason::Idle);
            }
        }
    }

    fn upkeep_is_close(&self, now: PolicyTime) -> bool {
        self.session.upkeep.is_some_and(|d| d.at <= now + limits::COALESCE)
    }

    fn decide(&mut self, now: PolicyTime) {
        let wanted = self.scheduler.decide().off_after;
        let prediction = self.scheduler.prediction();
        let break_even = Duration::try_from_secs_f64(self.break_even).unwrap_or(Duration::MAX);
        let (mut time_out, mut by, mut not_before) = (wanted, prediction.by, now);
        if self.mode == Mode::Balanced {
            let floor = self.backoff.floor(break_even);
            if wanted.is_some_and(|w| w < floor) {
                (time_out, by) = (Some(floor), "back-off");
            }
            if let Some(until) = self.backoff.blocked_until(now, self.settings.lost_per_hour) {
                (not_before, by) = (until, "back-off: lost packets");
            }
        }
        self.journal.decided(Decided {
            at: now,
            policy: self.scheduler.name(),
            mode: self.mode,
            time_out,
            wanted,
            break_even,
            saving: prediction.saving.map(|seconds| seconds * self.settings.model.baseline_power()),
            by,
        });
        let since = self.silent_since().unwrap_or(now);
        self.plan = time_out.map(|t| Plan {
            at: (since + t).max(not_before),
            step: Step::Off,
            waited: Duration::ZERO,
        });
    }
}
