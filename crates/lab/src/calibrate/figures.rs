//! From windows to figures: baseline subtracted, mean and spread over the repetitions, and the judgement whether the meter could
//! resolve them at all. Owns that judgement; must never soften it.

use std::collections::BTreeMap;

use dormouse_energy::meter::{Grain, Source};
use dormouse_energy::profile::names;
use serde::Serialize;

use super::plan::{Plan, window_error};
use super::{Cycle, Failure, Point, Radio};
use crate::judge::stats::Mean;
use crate::results::{Results, Round, Sample};

/// A figure whose 95 % interval is wider than this share of it, to either side, is not resolved.
pub const RESOLVED: f64 = 0.5;

/// What the device draws with its radio off, in watts. No figure of the model, but what everything else stands on.
pub const DEVICE_BASELINE_POWER: &str = "device.baseline_power";

/// Mean power of each round of a sample, in watts, and its length in seconds.
fn windows(sample: Option<&Sample<Point>>) -> BTreeMap<u32, (f64, f64)> {
    let of = |round: &Round| {
        let seconds = round.figures.one("seconds")?.max(1e-9);
        Some((round.round, (round.figures.one("joules")? / seconds, seconds)))
    };
    sample.into_iter().flat_map(|s| s.rounds.iter().filter_map(of)).collect()
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
pub struct Outcome {
    /// The raw data.
    pub results: Results<Point>,
    /// What was planned.
    pub plan: Plan,
    /// By which meter.
    pub source: Source,
    /// How coarse it turned out to be.
    pub grain: Grain,
    /// Why it ended before its time.
    pub stopped: Option<Failure>,
    /// What is not as it was before.
    pub unrestored: Option<String>,
}

impl Outcome {
    /// Repetitions in which everything was measured.
    #[must_use]
    pub fn complete(&self) -> usize {
        self.results.samples.iter().map(|s| s.rounds.len()).min().unwrap_or(0)
    }

    fn sample(&self, radio: Radio, cycle: Option<Cycle>) -> Option<&Sample<Point>> {
        self.results.samples.iter().find(|s| s.radio == radio && s.cycle == cycle)
    }

    fn of(&self, cycle: Cycle) -> Option<&Sample<Point>> {
        self.results.samples.iter().find(|s| s.cycle == Some(cycle))
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
        let windows = |radio| windows(self.sample(radio, None));
        let off = windows(Radio::Off);
        let watts: Vec<f64> = off.values().map(|w| w.0).collect();
        let longer =
            |share: f64| format!("baselines of {:.0} s would do (--idle)", (self.plan.idle * share).ceil());
        let baseline = self.judged(DEVICE_BASELINE_POWER, "W", &watts, error, &longer);
        let radio = |name: &str, state: Radio| match self.blind() {
            Some(why) => Err(Refused { name: name.to_owned(), why }),
            None => {
                let on = windows(state);
                let above = on.iter().filter_map(|(round, on)| Some(on.0 - off.get(round)?.0));
                let watts: Vec<f64> = above.collect();
                self.judged(name, "W", &watts, error * core::f64::consts::SQRT_2, &longer)
            }
        };
        let mut all = vec![baseline, radio(names::RADIO_IDLE_POWER, Radio::On)];
        if self.plan.power_save {
            all.push(radio(names::RADIO_POWER_SAVE_POWER, Radio::Saving));
        }
        all
    }

    fn energy(&self, subject: Cycle, name: &str) -> Result<Measured, Refused> {
        let refuse = |why: String| Err(Refused { name: name.to_owned(), why });
        if subject == Cycle::Radio
            && let Some(why) = self.blind()
        {
            return refuse(why);
        }
        let sample = self.of(subject);
        let cycles = sample.map_or(1.0, |s| f64::from(s.cycles.max(1)));
        let state = if subject == Cycle::Radio { Radio::Off } else { Radio::On };
        let (own, base) = (windows(sample), windows(self.sample(state, None)));
        let mut values = Vec::new();
        let mut seconds = 0.0;
        for (round, (watts, long)) in &own {
            let Some((idle, _)) = base.get(round) else { continue };
            values.push((watts - idle) * long / cycles);
            seconds += long;
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
    fn time(&self, subject: Cycle, name: &str) -> Result<Measured, Refused> {
        let times: Vec<f64> = self.of(subject).into_iter().flat_map(|s| s.all("times")).collect();
        let refuse = |why: String| Refused { name: name.to_owned(), why };
        if let Some(why) = self.missing(subject, times.len()) {
            return Err(refuse(why));
        }
        let summary = Mean::of(&times).ok_or_else(|| refuse("nothing was measured".into()))?;
        Ok(Measured { name: name.to_owned(), unit: "s", summary, half_interval: summary.half_interval() })
    }

    /// Why there are too few samples of a subject.
    fn missing(&self, subject: Cycle, samples: usize) -> Option<String> {
        if samples >= 2 {
            return None;
        }
        let name = format!("{subject}, ");
        let failed = self.results.discarded.iter().rev().find(|d| d.subject.starts_with(&name));
        Some(match failed {
            Some(last) => format!("it failed: {}", last.reason),
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
        let on = windows(self.sample(Radio::On, None));
        let watts = on.values().map(|w| w.0).fold(0.0, f64::max);
        window_error(self.grain, watts)
    }

    /// Why nothing can be said about the radio.
    fn blind(&self) -> Option<String> {
        let kind = self.source.kind;
        (!kind.sees_radio()).then(|| format!("the meter is {}, which sees {}", self.source, kind.sees()))
    }
}
