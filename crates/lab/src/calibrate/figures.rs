//! From windows to figures: baseline subtracted, mean and spread over the repetitions, and the judgement whether the meter could
//! resolve them at all. Owns that judgement; must never soften it.

use std::collections::BTreeMap;

use dormouse_energy::meter::{Grain, Source};
use dormouse_energy::profile::names;
use serde::Serialize;

use super::plan::{Plan, window_error};
use super::{Failure, Subject};
use crate::judge::stats::Mean;

/// A figure whose 95 % interval is wider than this share of it, to either side, is not resolved.
pub const RESOLVED: f64 = 0.5;

/// What the device draws with its radio off, in watts. No figure of the model, but what everything else stands on.
pub const DEVICE_BASELINE_POWER: &str = "device.baseline_power";

/// Energy between two readings.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Window {
    /// In joules.
    pub joules: f64,
    /// In seconds, by the meter's time.
    pub seconds: f64,
}

impl Window {
    fn watts(self) -> f64 {
        self.joules / self.seconds.max(1e-9)
    }
}

/// Everything once.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Repetition {
    /// Radio off, idle.
    pub off: Window,
    /// Radio on, session up, idle.
    pub on: Window,
    /// The same with the radio's power saving, if that can be switched.
    pub saving: Option<Window>,
    /// By subject: the window and the time of each cycle in it, in seconds.
    pub samples: BTreeMap<Subject, (Window, Vec<f64>)>,
}

/// A figure that was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// As profiles call it.
    pub name: String,
    /// W, J or s.
    pub unit: &'static str,
    /// Mean over the repetitions, and their standard deviation.
    #[serde(flatten)]
    pub summary: Mean,
    /// Half the 95 % interval of the mean, not less than the meter's steps explain.
    pub half_interval: f64,
}

/// A figure that could not be.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Refused {
    /// As profiles call it.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What was planned.
    pub plan: Plan,
    /// By which meter.
    pub source: Source,
    /// How coarse it turned out to be.
    pub grain: Grain,
    /// The repetitions that are complete.
    pub repetitions: Vec<Repetition>,
    /// Samples that failed, and why.
    pub failures: Vec<(Subject, String)>,
    /// Why it ended before its time.
    pub stopped: Option<Failure>,
    /// What is not as it was before.
    pub unrestored: Option<Failure>,
}

impl Figures {
    pub(super) fn new(plan: Plan, source: Source) -> Self {
        Self {
            plan,
            source,
            grain: Grain::default(),
            repetitions: Vec::new(),
            failures: Vec::new(),
            stopped: None,
            unrestored: None,
        }
    }

    pub(super) fn push(&mut self, repetition: Repetition) {
        self.repetitions.push(repetition);
    }

    /// The figures, each either measured or refused, in the order of the procedure.
    #[must_use]
    pub fn judge(&self) -> Vec<Result<Measured, Refused>> {
        let mut all = if self.plan.radio { self.powers() } else { Vec::new() };
        for sample in &self.plan.samples {
            let (energy, time) = sample.subject.names();
            all.push(self.energy(sample.subject, energy));
            all.push(self.time(sample.subject, time));
        }
        all
    }

    fn powers(&self) -> Vec<Result<Measured, Refused>> {
        let error = self.error() / self.plan.idle.max(1e-9);
        let off: Vec<f64> = self.repetitions.iter().map(|r| r.off.watts()).collect();
        let longer =
            |share: f64| format!("baselines of {:.0} s would do (--idle)", (self.plan.idle * share).ceil());
        let baseline = self.judged(DEVICE_BASELINE_POWER, "W", &off, error, &longer);
        let radio = |name: &str, window: &dyn Fn(&Repetition) -> Option<Window>| match self.blind() {
            Some(why) => Err(Refused { name: name.to_owned(), why }),
            None => {
                let above = |r: &Repetition| Some(window(r)?.watts() - r.off.watts());
                let watts: Vec<f64> = self.repetitions.iter().filter_map(above).collect();
                self.judged(name, "W", &watts, error * core::f64::consts::SQRT_2, &longer)
            }
        };
        let mut all = vec![baseline, radio(names::RADIO_IDLE_POWER, &|r| Some(r.on))];
        if self.plan.power_save {
            all.push(radio(names::RADIO_POWER_SAVE_POWER, &|r| r.saving));
        }
        all
    }

    fn energy(&self, subject: Subject, name: &str) -> Result<Measured, Refused> {
        let refuse = |why: String| Err(Refused { name: name.to_owned(), why });
        if subject == Subject::RadioCycle
            && let Some(why) = self.blind()
        {
            return refuse(why);
        }
        let cycles = self.cycles(subject);
        let mut values = Vec::new();
        let mut seconds = 0.0;
        for repetition in &self.repetitions {
            let Some((window, _)) = repetition.samples.get(&subject) else { continue };
            let base = if subject == Subject::RadioCycle { repetition.off } else { repetition.on };
            values.push((window.joules - base.watts() * window.seconds) / cycles);
            seconds += window.seconds;
        }
        if let Some(why) = self.missing(subject, values.len()) {
            return refuse(why);
        }
        let window = seconds / values.len() as f64;
        let error = self.error() / cycles * (1.0 + (window / self.plan.idle).powi(2)).sqrt();
        // Named apart where only a part is seen, so that no model takes it for the whole.
        let name = if self.source.kind.sees_radio() { name.to_owned() } else { format!("{name}_processor") };
        let more = |share: f64| {
            format!(
                "{:.0} cycles to a sample would do, instead of {cycles:.0} (--max-cycles)",
                (cycles * share).ceil()
            )
        };
        self.judged(&name, "J", &values, error, &more)
    }

    /// Mean time of a cycle, by repetition. The clock resolves it, however coarse the meter.
    fn time(&self, subject: Subject, name: &str) -> Result<Measured, Refused> {
        let all = self.repetitions.iter().filter_map(|r| r.samples.get(&subject));
        let times: Vec<f64> = all.flat_map(|(_, times)| times.iter().copied()).collect();
        let refuse = |why: String| Refused { name: name.to_owned(), why };
        if let Some(why) = self.missing(subject, times.len()) {
            return Err(refuse(why));
        }
        let summary = Mean::of(&times).ok_or_else(|| refuse("nothing was measured".into()))?;
        Ok(Measured { name: name.to_owned(), unit: "s", summary, half_interval: summary.half_interval() })
    }

    /// Why there are too few samples of a subject.
    fn missing(&self, subject: Subject, samples: usize) -> Option<String> {
        if samples >= 2 {
            return None;
        }
        let failed = self.failures.iter().rev().find(|(s, _)| *s == subject);
        Some(match failed {
            Some((_, why)) => format!("it failed: {why}"),
            None => format!("{samples} samples say nothing about their spread"),
        })
    }

    fn judged(
        &self,
        name: &str,
        unit: &'static str,
        values: &[f64],
        error: f64,
        mend: &dyn Fn(f64) -> String,
    ) -> Result<Measured, Refused> {
        let refuse = |why: String| Err(Refused { name: name.to_owned(), why });
        let Some(summary) = Mean::of(values).filter(|s| s.count >= 2) else {
            return refuse(format!("{} repetitions say nothing about their spread", values.len()));
        };
        let half_interval = summary.half_interval().max(summary.half_interval_of(error));
        if summary.mean > 0.0 && half_interval <= RESOLVED * summary.mean {
            return Ok(Measured { name: name.to_owned(), unit, summary, half_interval });
        }
        let mean = summary.mean;
        let advice = if mean > half_interval * 0.05 {
            format!("; {}", mend(half_interval / (RESOLVED * mean)))
        } else {
            String::new()
        };
        refuse(format!(
            "{mean:.3} {unit} ± {half_interval:.3} {unit} is within what {} can tell apart (steps of {:.3} J): below {:.3} {unit} is all it says{advice}",
            self.source,
            self.grain.step,
            mean.max(0.0) + half_interval
        ))
    }

    /// Standard deviation of a window's energy that the meter explains.
    fn error(&self) -> f64 {
        let watts = self.repetitions.iter().map(|r| r.on.watts()).fold(0.0, f64::max);
        window_error(self.grain, watts)
    }

    fn cycles(&self, subject: Subject) -> f64 {
        self.plan.samples.iter().find(|s| s.subject == subject).map_or(1.0, |s| f64::from(s.cycles))
    }

    /// Why nothing can be said about the radio.
    fn blind(&self) -> Option<String> {
        let kind = self.source.kind;
        (!kind.sees_radio()).then(|| format!("the meter is {}, which sees {}", self.source, kind.sees()))
    }
}
