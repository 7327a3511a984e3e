//! The sleeping radio in the words of the control protocol. Owns the translation only.

use crate::daemon::Daemon;
use dormouse_control as control;
use dormouse_control::EventKind;
use dormouse_node::sleeper::clock::PolicyTime;
use dormouse_node::sleeper::{Cause, Energy, Event, Mode, Reason, Source, State, Woke};
use dormouse_sansio::Instant;
use dormouse_wire::ip::{Flow, protocol};
use std::time::Duration;

/// Wakes that `status` shows.
const SHOWN: usize = 8;

impl Daemon {
    /// The sleeper, for `status`.
    pub(crate) fn sleep_status(&mut self, now: Instant) -> Option<control::SleepStatus> {
        self.read_meter(now);
        let (report, now) = self.host.sleep_report(now)?;
        let radio = self.device.as_ref()?.radio.clone();
        let (state, why, asleep) = match report.state {
            State::Awake => (control::SleepState::Awake, None, None),
            State::PreparingSleep { .. } => (control::SleepState::Preparing, None, None),
            State::Asleep { since, reason } => {
                (control::SleepState::Asleep, Some(reason.name()), Some((now - since).as_secs_f64()))
            }
            State::Waking { cause } => (control::SleepState::Waking, Some(cause.name()), None),
        };
        Some(control::SleepStatus {
            mode: mode(report.mode),
            state,
            why: why.map(Into::into),
            asleep_seconds: asleep,
            radio,
            policy: report.policy.into(),
            profile: report.profile,
            break_even_seconds: report.break_even.as_secs_f64(),
            gateway_load: report.load,
            decision: report.decisions.last().map(|d| control::DecisionStatus {
                ago_seconds: (now - d.at).as_secs_f64(),
                policy: d.policy.into(),
                time_out_seconds: d.time_out.map(|t| t.as_secs_f64()),
                wanted_seconds: d.wanted.map(|t| t.as_secs_f64()),
                break_even_seconds: d.break_even.as_secs_f64(),
                saving_joules: d.saving,
                by: d.by.into(),
            }),
            wakes_by_cause: report.by_cause.iter().map(|(cause, n)| (cause.name().into(), *n)).collect(),
            wakes: report.wakes.iter().rev().take(SHOWN).map(|w| wake(now, w)).collect(),
            sleeps: report.counts.sleeps,
            called_off: report.counts.called_off,
            radio_failures: report.counts.radio_failures,
            held_packets: self.host.held(),
            lost_packets: report.counts.lost,
            backoff_level: report.backoff.0,
            lost_last_hour: report.backoff.1,
            energy: energy(&report.energy),
        })
    }

    /// The mode.
    pub(crate) fn mode(&self) -> control::SleepMode {
        self.host.mode().map_or(control::SleepMode::Performance, mode)
    }

    /// The radio, for `doctor`: a problem only where sleep is wanted.
    pub(crate) fn radio_check(&self) -> Option<control::Check> {
        let (radio, wanted) = (&self.device.as_ref()?.radio, self.host.mode()? != Mode::Performance);
        let (outcome, found) = match &radio.driver {
            Some(driver) => (control::CheckOutcome::Ok, format!("{driver}: {}", radio.why)),
            None if wanted => (control::CheckOutcome::Warning, radio.why.clone()),
            None => (control::CheckOutcome::Skipped, radio.why.clone()),
        };
        let change = (wanted && radio.driver.is_none())
            .then(|| "sleep.radio, or sleep.command_off and sleep.command_on".to_owned());
        Some(control::Check { name: "radio".into(), outcome, found, change })
    }
}

fn mode(mode: Mode) -> control::SleepMode {
    match mode {
        Mode::Energy => control::SleepMode::Energy,
        Mode::Balanced => control::SleepMode::Balanced,
        Mode::Performance => control::SleepMode::Performance,
    }
}

fn wake(now: PolicyTime, woke: &Woke) -> control::WakeStatus {
    control::WakeStatus {
        ago_seconds: (now - woke.at).as_secs_f64(),
        cause: woke.cause.name().into(),
        flow: woke.flow.as_ref().map(flow_name),
        slept_seconds: woke.slept.as_secs_f64(),
        took_ms: woke.took.map(millis),
        rung: woke.rung.map(crate::status::rung),
    }
}

fn energy(e: &Energy) -> control::EnergyStatus {
    let (source, uncertainty) = match &e.source {
        Source::Profile(name) => (format!("profile {name}"), None),
        Source::Meter { name, uncertainty } => (format!("meter {name}"), Some(*uncertainty)),
    };
    control::EnergyStatus {
        source,
        uncertainty_joules: uncertainty,
        used_joules: e.used,
        always_on_joules: e.always_on,
        power_save_joules: e.power_save,
        saved_joules: e.saved,
        cycles: e.cycles,
        awake_seconds: e.times.awake.as_secs_f64(),
        preparing_seconds: e.times.preparing.as_secs_f64(),
        asleep_seconds: e.times.asleep.as_secs_f64(),
        waking_seconds: e.times.waking.as_secs_f64(),
        suspended_seconds: e.times.suspended.as_secs_f64(),
    }
}

pub(crate) fn event(event: Event) -> EventKind {
    match event {
        Event::Asleep { reason: Reason::User | Reason::Machine, .. } => EventKind::Suspended,
        Event::Asleep { reason: Reason::Idle, decision } => EventKind::Asleep {
            time_out_seconds: decision.and_then(|d| d.time_out).map(|t| t.as_secs_f64()),
            by: decision.map_or_else(String::new, |d| d.by.to_owned()),
            saving_joules: decision.and_then(|d| d.saving),
        },
        Event::Waking(woke) => match woke.cause {
            Cause::User | Cause::Machine => EventKind::Resumed,
            cause => EventKind::Waking {
                cause: cause.name().into(),
                flow: woke.flow.as_ref().map(flow_name),
                slept_seconds: woke.slept.as_secs_f64(),
            },
        },
        Event::Awake(woke) => {
            EventKind::Awake { cause: woke.cause.name().into(), took_ms: woke.took.map(millis) }
        }
        Event::CalledOff => EventKind::SleepCalledOff,
        Event::Mode(m) => EventKind::Mode { mode: mode(m) },
        Event::RadioFailed { why } => {
            EventKind::Warning { message: format!("the radio does not obey: {why}") }
        }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A flow as people write it.
pub(crate) fn flow_name(flow: &Flow) -> String {
    let name = match flow.protocol {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMP | protocol::ICMPV6 => return format!("icmp {} -> {}", flow.src, flow.dst),
        other => format!("protocol {other}"),
    };
    match (flow.src_port, flow.dst_port) {
        (Some(from), Some(to)) => {
            let (from, to) =
                (std::net::SocketAddr::new(flow.src, from), std::net::SocketAddr::new(flow.dst, to));
            format!("{name} {from} -> {to}")
        }
        _ => format!("{name} {} -> {}", flow.src, flow.dst),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_named_by_protocol_and_ends_as_far_as_they_are_known() {
        let flow = |protocol, src: &str, dst: &str, ports: Option<(u16, u16)>| Flow {
            protocol,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            src_port: ports.map(|p| p.0),
            dst_port: ports.map(|p| p.1),
        };
        let tcp = flow(protocol::TCP, "fd00::2", "fd00::1", Some((41_000, 443)));
        assert_eq!(flow_name(&tcp), "tcp [fd00::2]:41000 -> [fd00::1]:443");
        let fragment = flow(protocol::UDP, "10.9.0.2", "10.1.0.1", None);
        assert_eq!(flow_name(&fragment), "udp 10.9.0.2 -> 10.1.0.1");
        assert_eq!(
            flow_name(&flow(protocol::ICMP, "10.9.0.2", "10.1.0.1", None)),
            "icmp 10.9.0.2 -> 10.1.0.1"
        );
        assert_eq!(flow_name(&flow(47, "10.9.0.2", "10.1.0.1", None)), "protocol 47 10.9.0.2 -> 10.1.0.1");
    }
}
