//! How much must be measured so that the meter's steps do not drown it. Pure arithmetic; owns the sizes, must never measure.
//!
//! A counter with steps of `s` joules and a delay of up to `d` seconds errs by at most `s` and `P d` at each end of a window, evenly
//! distributed: the difference of two readings spreads by `σ = sqrt(s² + (P d)²) / sqrt(6)`. The baseline is known to `σ` over its
//! window too, and is subtracted for the time of the sample. With `n` cycles of `c` seconds to a sample, one cycle's energy spreads by
//! `σ/n · sqrt(1 + ((n c + settle) / idle)²)`, and the mean of `r` repetitions by `1/sqrt(r)` of that. Plans choose `n` and `idle` so
//! that 1.96 of these are [`Settings::precision`] of what is expected.

use core::time::Duration;

use dormouse_energy::meter::Grain;
use dormouse_energy::profile::Profile;
use serde::{Deserialize, Serialize};

use super::{Cycle, Point, Radio};
use crate::campaign::{self, Campaign};

/// What the user wants.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Repetitions of everything; the paper's 25.
    pub repetitions: u32,
    /// Half the wanted 95 % interval, as a share of the figure.
    pub precision: f64,
    /// What to measure.
    pub subjects: Vec<Cycle>,
    /// The radio's power saving can be switched: its idle power is measured with and without.
    pub power_save: bool,
    /// No more cycles to a sample than this.
    pub max_cycles: u32,
    /// Baseline windows of this length instead of the computed one; the paper's are 10 minutes.
    pub idle: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            repetitions: 25,
            precision: 0.1,
            subjects: Cycle::ALL.to_vec(),
            power_save: true,
            max_cycles: 1000,
            idle: None,
        }
    }
}

/// What is expected to come out: decides how long to measure, not what is found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// The radio at idle, in watts.
    pub idle_power: f64,
    /// Energy of a cycle, in joules, by [`Cycle::ALL`].
    energy: [f64; 5],
    /// Time of a cycle, in seconds.
    time: [f64; 5],
}

impl Expected {
    /// The figures of a profile, where it has them; otherwise those of paper 000.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Self {
        // Radio: switching off and the driver's own delays come on top of joining the network.
        let mut expected = Self {
            idle_power: 2.29,
            energy: [46.0, 0.4, 0.4, 9.2, 13.14],
            time: [4.0, 0.02, 0.02, 0.11, 0.2],
        };
        let better = |found: Result<f64, _>| found.ok().filter(|v: &f64| *v > 0.0);
        if let Some(watts) = better(profile.power(dormouse_energy::profile::names::RADIO_IDLE_POWER)) {
            expected.idle_power = watts;
        }
        for subject in Cycle::ALL {
            let (energy, time) = subject.names();
            if let Some(joules) = better(profile.energy(energy)) {
                expected.energy[subject as usize] = joules;
            }
            if let Some(seconds) = better(profile.time(time)) {
                let off = if subject == Cycle::Radio { 2.0 } else { 0.0 };
                expected.time[subject as usize] = seconds + off;
            }
        }
        expected
    }

    /// Energy of a cycle, in joules.
    #[must_use]
    pub fn energy(&self, subject: Cycle) -> f64 {
        self.energy[subject as usize]
    }

    /// Time of a cycle, in seconds.
    #[must_use]
    pub fn time(&self, subject: Cycle) -> f64 {
        self.time[subject as usize]
    }
}

/// One kind of sample.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// What is repeated.
    pub subject: Cycle,
    /// How often, to one sample.
    pub cycles: u32,
    /// How often it would have to be; more than `cycles` if that is too much.
    pub needed: u32,
}

/// What will be done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Repetitions of everything.
    pub repetitions: u32,
    /// The radio is switched: without it there are neither powers nor radio cycles.
    pub radio: bool,
    /// And measured with its power saving as well.
    pub power_save: bool,
    /// Length of a baseline window, in seconds.
    pub idle: f64,
    /// Rest before every reading, in seconds.
    pub settle: f64,
    /// Samples in each repetition.
    pub samples: Vec<Sample>,
    /// Standard deviation of a window's energy that the meter explains, in joules.
    pub window_error: f64,
    /// Expected duration, in seconds.
    pub seconds: f64,
    /// Expected consumption, in joules.
    pub joules: f64,
}

/// The shortest useful baseline window, in seconds: averages over what the system does every few seconds.
const LEAST_IDLE: f64 = 30.0;
/// The longest, in seconds: three times the paper's.
const MOST_IDLE: f64 = 1800.0;
/// A gauge that has not shown its refresh interval is assumed to take so long, in seconds.
const ASSUMED_REFRESH: f64 = 30.0;
/// The longest rest before a reading, in seconds: no gauge is slower.
const MOST_SETTLE: f64 = 60.0;

impl Plan {
    /// For a meter of this grain on a device that draws so many watts.
    #[must_use]
    pub fn new(settings: &Settings, expected: &Expected, grain: Grain, watts: f64) -> Self {
        let refresh = grain.refresh.unwrap_or(ASSUMED_REFRESH).clamp(0.0, MOST_SETTLE);
        let settle = refresh.max(1.0);
        let error = window_error(grain, watts);
        let repetitions = settings.repetitions.max(2);
        // What one sample's figure may spread by, as a share of it.
        let share = settings.precision.max(1e-3) * f64::from(repetitions).sqrt() / 1.96;
        let subjects = settings.subjects.iter().copied();
        // Half of the error budget to each of sample and baseline, hence the square root of two.
        let of_power = core::f64::consts::SQRT_2 * error / (share * expected.idle_power);
        let of_cycle = |s: Cycle| core::f64::consts::SQRT_2 * error / (share * expected.energy(s));
        let wanted = subjects.clone().map(|s| of_cycle(s) * expected.time(s)).fold(of_power, f64::max);
        let idle = settings.idle.map_or(wanted.clamp(LEAST_IDLE, MOST_IDLE), |d| d.as_secs_f64().max(1.0));
        let samples: Vec<Sample> = subjects
            .map(|subject| {
                let needed = of_cycle(subject).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
                Sample { subject, cycles: needed.min(settings.max_cycles.max(1)), needed }
            })
            .collect();
        let cycles: f64 =
            samples.iter().map(|s| f64::from(s.cycles) * expected.time(s.subject) + settle).sum();
        let radio = settings.subjects.contains(&Cycle::Radio);
        let power_save = radio && settings.power_save;
        // The baselines with their rests, and the radio switched on in between.
        let baselines = 1.0 + f64::from(u8::from(radio)) + f64::from(u8::from(power_save));
        let once = cycles + baselines * (idle + settle) + expected.time(Cycle::Radio);
        let seconds = once * f64::from(repetitions);
        let extra: f64 = samples.iter().map(|s| f64::from(s.cycles) * expected.energy(s.subject)).sum();
        let joules = seconds * watts + f64::from(repetitions) * extra;
        Self { repetitions, radio, power_save, idle, settle, samples, window_error: error, seconds, joules }
    }

    /// The campaign of this plan, whose file is `out`.
    ///
    /// # Errors
    /// As [`Campaign::new`].
    pub fn campaign(&self, out: Option<std::path::PathBuf>) -> anyhow::Result<Campaign<Point>> {
        let rest = |radio| Point { radio, cycle: None, cycles: 0 };
        let mut points = vec![rest(Radio::On)];
        points.extend(self.radio.then(|| rest(Radio::Off)));
        points.extend(self.power_save.then(|| rest(Radio::Saving)));
        points.extend(self.samples.iter().map(|s| {
            let radio = if s.subject == Cycle::Radio { Radio::Off } else { Radio::On };
            Point { radio, cycle: Some(s.subject), cycles: s.cycles }
        }));
        let plan = campaign::Plan {
            name: "calibrate".to_owned(),
            points,
            rounds: self.repetitions,
            seed: 1,
            settings: serde_json::to_value(self)?,
            skipped: Vec::new(),
        };
        Campaign::new(plan, out)
    }
}

/// Standard deviation of the energy of one window that steps and delay explain, in joules.
#[must_use]
pub fn window_error(grain: Grain, watts: f64) -> f64 {
    let lag = grain.refresh.unwrap_or(0.0).min(MOST_SETTLE) * watts.max(0.0);
    grain.step.hypot(lag) / 6.0_f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laptop() -> Expected {
        Expected::from_profile(&Profile::shipped("laptop-000").unwrap())
    }

    const COARSE: Grain = Grain { step: 36.0, step_seen: true, refresh: Some(2.0) };

    #[test]
    fn more_cycles_are_needed_the_coarser_the_meter_and_the_smaller_the_figure() {
        let coarse = Plan::new(&Settings::default(), &laptop(), COARSE, 18.0);
        let fine = Plan::new(
            &Settings::default(),
            &laptop(),
            Grain { step: 0.001, step_seen: true, refresh: Some(0.1) },
            18.0,
        );
        let cycles = |plan: &Plan, s| plan.samples.iter().find(|x| x.subject == s).unwrap().cycles;
        assert!(cycles(&coarse, Cycle::Mobike) > 10 * cycles(&coarse, Cycle::Ticket));
        assert!(cycles(&coarse, Cycle::Radio) < cycles(&coarse, Cycle::Ticket));
        assert!(fine.seconds < coarse.seconds && cycles(&fine, Cycle::Radio) == 1, "{fine:?}");
    }

    #[test]
    fn the_sizes_keep_what_the_formula_promises() {
        let settings = Settings { max_cycles: u32::MAX, ..Settings::default() };
        let plan = Plan::new(&settings, &laptop(), COARSE, 18.0);
        for sample in &plan.samples {
            let n = f64::from(sample.cycles);
            let window = n * laptop().time(sample.subject) + plan.settle;
            let spread = plan.window_error / n * (1.0 + (window / plan.idle).powi(2)).sqrt();
            let half = 1.96 * spread / f64::from(plan.repetitions).sqrt();
            // The settling rest is in the window and not in the budget: a tenth more at most.
            assert!(half <= 1.1 * settings.precision * laptop().energy(sample.subject), "{sample:?}: {half}");
        }
    }

    #[test]
    fn a_figure_that_needs_too_many_cycles_keeps_the_limit_and_remembers_the_need() {
        let settings = Settings { max_cycles: 10, ..Settings::default() };
        let plan = Plan::new(&settings, &laptop(), COARSE, 18.0);
        let mobike = plan.samples.iter().find(|s| s.subject == Cycle::Mobike).unwrap();
        assert!(mobike.cycles == 10 && mobike.needed > 100, "{mobike:?}");
    }
}
