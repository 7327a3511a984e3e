//! How the radio's sleep looks to people. Owns layout only.

use crate::style::Style;
use crate::style::{duration, field};
use dormouse_control::{DecisionStatus, EnergyStatus, EventKind, SleepState, SleepStatus, WakeStatus};
use std::fmt::Write as _;

/// The sleeper in full.
pub(crate) fn sleep(it: &SleepStatus, style: Style) -> String {
    let state = match (it.state, &it.why, it.asleep_seconds) {
        (SleepState::Asleep, Some(why), Some(s)) => format!("asleep for {} ({why})", duration(s)),
        (state, Some(why), _) => format!("{} ({why})", state.name()),
        (state, None, _) => state.name().to_owned(),
    };
    let mut out = format!("{}  {state}, mode {}\n", style.strong("radio"), style.strong(it.mode.name()));
    let mut line = |title: &str, text: &str| field(&mut out, style, title, text);
    match &it.radio.driver {
        Some(driver) => line("driver", &format!("{driver} ({})", it.radio.why)),
        None => line("driver", &format!("{}: {}", style.warning("none"), it.radio.why)),
    }
    let load = if it.gateway_load > 1 {
        format!(", {} clients at the gateway", it.gateway_load)
    } else {
        String::new()
    };
    line(
        "policy",
        &format!("{}, break-even {} ({}{load})", it.policy, duration(it.break_even_seconds), it.profile),
    );
    if let Some(decision) = &it.decision {
        line("decision", &self::decision(decision));
    }
    if it.backoff_level > 0 || it.lost_last_hour > 0 {
        line(
            "back-off",
            &format!("level {} of 8, {} packets lost within the hour", it.backoff_level, it.lost_last_hour),
        );
    }
    if !it.wakes_by_cause.is_empty() {
        let wakes: Vec<String> = it.wakes_by_cause.iter().map(|(cause, n)| format!("{cause} {n}")).collect();
        line("wakes", &wakes.join(", "));
    }
    for (i, wake) in it.wakes.iter().enumerate() {
        line(if i == 0 { "last wakes" } else { "" }, &self::wake(wake));
    }
    let mut counts = Vec::new();
    let mut count = |n: u64, what: &str| {
        if n > 0 {
            counts.push(format!("{n} {what}"));
        }
    };
    count(it.held_packets as u64, "packets held");
    count(it.lost_packets, "packets lost");
    count(it.called_off, "sleeps called off");
    count(it.radio_failures, "radio failures");
    line("counts", &counts.join(", "));
    line("energy", &energy(&it.energy));
    out
}

fn decision(it: &DecisionStatus) -> String {
    let mut out = match it.time_out_seconds {
        Some(s) => format!("off after {}", duration(s)),
        None => "stay on".to_owned(),
    };
    let _ = write!(out, " ({} ago, {})", duration(it.ago_seconds), it.by);
    if let Some(joules) = it.saving_joules {
        let _ = write!(out, ", expected to save {}", self::joules(joules));
    }
    out
}

fn wake(it: &WakeStatus) -> String {
    let mut out = format!("{} ago: {}", duration(it.ago_seconds), it.cause);
    if let Some(flow) = &it.flow {
        let _ = write!(out, " {flow}");
    }
    let _ = write!(out, ", after {}", duration(it.slept_seconds));
    match (it.took_ms, it.rung) {
        (Some(ms), Some(rung)) => {
            let _ = write!(out, ", back by {} in {ms} ms", rung.name());
        }
        (Some(ms), None) => {
            let _ = write!(out, ", back in {ms} ms");
        }
        (None, _) => out.push_str(", not back yet"),
    }
    out
}

fn energy(it: &EnergyStatus) -> String {
    let uncertainty = it.uncertainty_joules.map_or_else(String::new, |u| format!(" ± {}", joules(u)));
    let saved = match it.saved_joules {
        saved if saved < 0.0 => format!("so far {} more than always on", joules(-saved)),
        saved => format!("saved {} against always on", joules(saved)),
    };
    format!(
        "used {}{uncertainty}, {saved} ({} by power save) [{}]; off {} of {}, {} cycles",
        joules(it.used_joules),
        joules(it.always_on_joules - it.power_save_joules),
        it.source,
        duration(it.asleep_seconds),
        duration(it.awake_seconds + it.preparing_seconds + it.asleep_seconds + it.waking_seconds),
        it.cycles
    )
}

/// Three digits or so: `46 J`, `1.2 kJ`.
fn joules(j: f64) -> String {
    match j.abs() {
        a if a >= 1e6 => format!("{:.2} MJ", j / 1e6),
        a if a >= 1e3 => format!("{:.2} kJ", j / 1e3),
        a if a >= 10.0 || a == 0.0 => format!("{j:.0} J"),
        _ => format!("{j:.1} J"),
    }
}

/// One event of the sleeper in a line.
pub(crate) fn event(kind: &EventKind, style: Style) -> String {
    match kind {
        EventKind::Asleep { time_out_seconds, by, saving_joules } => {
            let after = time_out_seconds.map_or_else(String::new, |s| format!(" after {}", duration(s)));
            let saving =
                saving_joules.map_or_else(String::new, |j| format!(", expected to save {}", joules(j)));
            format!("the radio sleeps{after} ({by}{saving})")
        }
        EventKind::Waking { cause, flow, slept_seconds } => {
            let flow = flow.as_ref().map_or_else(String::new, |f| format!(" {f}"));
            format!("waking: {cause}{flow}, after {}", duration(*slept_seconds))
        }
        EventKind::Awake { took_ms: Some(ms), .. } => format!("{} in {ms} ms", style.good("awake")),
        EventKind::Awake { .. } => format!("{}, the session is not back yet", style.warning("awake")),
        EventKind::SleepCalledOff => style.dim("a packet calls the sleep off"),
        EventKind::Mode { mode } => format!("mode {}", style.strong(mode.name())),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::{RadioStatus, SleepMode, WakeRung};

    #[test]
    fn a_sleeper_reads_like_this() {
        let it = SleepStatus {
            mode: SleepMode::Energy,
            state: SleepState::Asleep,
            why: Some("idle".into()),
            asleep_seconds: Some(300.0),
            radio: RadioStatus { driver: Some("rfkill".into()), why: "phy0 has a switch".into() },
            policy: "dormouse".into(),
            profile: "laptop-000".into(),
            break_even_seconds: 22.4,
            gateway_load: 3,
            decision: Some(DecisionStatus {
                ago_seconds: 303.0,
                policy: "dormouse".into(),
                time_out_seconds: Some(3.3),
                saving_joules: Some(120.4),
                by: "learned".into(),
                ..DecisionStatus::default()
            }),
            wakes_by_cause: [("traffic".to_owned(), 7), ("schedule".to_owned(), 1)].into(),
            wakes: vec![WakeStatus {
                ago_seconds: 340.0,
                cause: "traffic".into(),
                flow: Some("tcp 10.9.0.2:41000 -> 10.1.0.1:443".into()),
                slept_seconds: 95.0,
                took_ms: Some(812),
                rung: Some(WakeRung::Held),
            }],
            called_off: 2,
            energy: EnergyStatus {
                source: "profile laptop-000".into(),
                used_joules: 4_100.0,
                always_on_joules: 8_244.0,
                power_save_joules: 2_000.0,
                saved_joules: 4_144.0,
                cycles: 8,
                asleep_seconds: 2_000.0,
                awake_seconds: 1_600.0,
                ..EnergyStatus::default()
            },
            ..SleepStatus::default()
        };
        let expected = "\
radio  asleep for 5 min (idle), mode energy
  driver     rfkill (phy0 has a switch)
  policy     dormouse, break-even 22 s (laptop-000, 3 clients at the gateway)
  decision   off after 3.3 s (5 min 3 s ago, learned), expected to save 120 J
  wakes      schedule 1, traffic 7
  last wakes 5 min 40 s ago: traffic tcp 10.9.0.2:41000 -> 10.1.0.1:443, after 1 min 35 s, back by held in 812 ms
  counts     2 sleeps called off
  energy     used 4.10 kJ, saved 4.14 kJ against always on (6.24 kJ by power save) [profile laptop-000]; off 33 min 20 s of 1 h, 8 cycles
";
        assert_eq!(sleep(&it, Style::plain()), expected);
    }
}
