//! A device's batteries as one meter. Owns what their gauges' values mean; must never count while mains supplies the device, nor
//! trust the sign of a current: drivers differ, `status` does not.
//!
//! Two ways lead to joules. By *level*: what the charge or energy counter lost, in coarse steps, but complete however seldom it is
//! read. By *power*: integrated between readings, fine, but blind to what happens between them.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::Instant;

use super::grain::{Detector, Grain};
use super::integral::Integral;
use super::{MeterError, Reading};

/// Joules in a microwatt-hour, coulombs in a microampere-hour.
const MICRO_HOUR: f64 = 3600.0e-6;
/// The step that is assumed until one is seen: 10 mWh, what coarse laptop gauges have, in joules.
const ASSUMED_STEP: f64 = 36.0;
/// A change that would take more power than this is a swapped battery or a gauge that corrected itself, in watts.
const PLAUSIBLE: f64 = 1000.0;
/// Power between two looks further apart than this is not guessed.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// What a battery says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It supplies the device.
    Discharging,
    /// It takes.
    Charging,
    /// Neither, or the driver does not know.
    Idle,
}

impl Status {
    /// From the words of `status`; those that are not known count as [`Status::Idle`].
    #[must_use]
    pub fn from_words(words: &str) -> Self {
        match words {
            "Discharging" => Self::Discharging,
            "Charging" => Self::Charging,
            _ => Self::Idle,
        }
    }
}

/// A counter of what is left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Level {
    /// `energy_now`, in µWh.
    Energy(u64),
    /// `charge_now` in µAh, and the voltage in volts.
    Charge(u64, f64),
}

impl Level {
    const fn raw(self) -> u64 {
        match self {
            Self::Energy(raw) | Self::Charge(raw, _) => raw,
        }
    }

    /// Joules in one unit of the counter.
    const fn unit(self) -> f64 {
        match self {
            Self::Energy(_) => MICRO_HOUR,
            Self::Charge(_, volts) => MICRO_HOUR * volts,
        }
    }
}

/// One battery at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Its directory.
    pub name: String,
    /// What it does.
    pub status: Status,
    /// The words of its `status`.
    pub words: String,
    /// Its counter, if it has one.
    pub level: Option<Level>,
    /// Power of either sign, in watts, if it says.
    pub watts: Option<f64>,
}

/// Which way to joules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// What the counters lost.
    Level,
    /// Power over time.
    Power,
}

#[derive(Clone, Debug, Default)]
struct One {
    last: Option<Level>,
    /// Joules in a unit of the counter, when it was last seen.
    unit: f64,
    grain: Detector,
}

/// Adds up what the batteries supply.
pub struct Account {
    way: Way,
    opened: Option<Instant>,
    last: Option<Instant>,
    at: Instant,
    batteries: BTreeMap<String, One>,
    joules: f64,
    counted: Duration,
    /// Uninterrupted stretches: each begins and ends with the error of a step.
    stretches: u32,
    implausible: u32,
    power: Integral,
    power_grain: Detector,
    watts: Option<f64>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("way", &self.way)
            .field("joules", &self.joules)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// Nothing used yet.
    #[must_use]
    pub fn new(way: Way) -> Self {
        Self {
            way,
            opened: None,
            last: None,
            at: Instant::ZERO,
            batteries: BTreeMap::new(),
            joules: 0.0,
            counted: Duration::ZERO,
            stretches: 0,
            implausible: 0,
            power: Integral::default(),
            power_grain: Detector::default(),
            watts: None,
        }
    }

    /// The batteries at a time. `mains` is whether a supply from outside is on line; `None` if the device shows no such supply.
    ///
    /// # Errors
    /// [`MeterError::OnMains`] if they do not supply the device alone; the time until they do again is not counted.
    pub fn observe(
        &mut self,
        now: Instant,
        mains: Option<bool>,
        samples: &[Sample],
    ) -> Result<(), MeterError> {
        self.opened.get_or_insert(now);
        self.at = now;
        if let Err(e) = supplying(mains, samples) {
            self.interrupt();
            return Err(e);
        }
        let names_changed = self.last.is_some()
            && !(samples.len() == self.batteries.len()
                && samples.iter().all(|s| self.batteries.contains_key(&s.name)));
        let pause = self.last.map(|last| now.saturating_since(last));
        if names_changed {
            self.interrupt();
            self.batteries.clear();
        } else if self.way == Way::Power && pause.is_some_and(|p| p > LONGEST_PAUSE) {
            self.interrupt();
        }
        for sample in samples {
            self.batteries.entry(sample.name.clone()).or_default();
        }
        let watts = total_watts(samples);
        match self.way {
            Way::Level => self.level(now, samples),
            Way::Power => self.integrate(now, watts),
        }
        self.watts = watts;
        Ok(())
    }

    /// The batteries could not be read, or are not what supplies the device: until the next look nothing is counted.
    pub fn interrupt(&mut self) {
        self.last = None;
        self.watts = None;
        self.power.interrupt();
        self.power_grain.interrupt();
        for one in self.batteries.values_mut() {
            one.last = None;
            one.grain.interrupt();
        }
    }

    fn level(&mut self, now: Instant, samples: &[Sample]) {
        let passed = self.last.map(|last| now.saturating_since(last));
        let mut joules = 0.0;
        for sample in samples {
            let one = self.batteries.entry(sample.name.clone()).or_default();
            let Some(level) = sample.level else { continue };
            one.grain.observe(now, level.raw());
            one.unit = level.unit();
            if let Some(before) = one.last.replace(level) {
                // The voltage moves between the two looks: its mean is right to second order.
                let unit = 0.5 * (before.unit() + level.unit());
                joules += (before.raw() as f64 - level.raw() as f64) * unit;
            }
        }
        match passed {
            None => self.stretches += 1,
            Some(passed) if joules.abs() <= PLAUSIBLE * passed.as_secs_f64() => {
                self.joules += joules;
                self.counted += passed;
            }
            // A gauge that refreshes right after the first look may seem fast for a moment: steps are always plausible.
            Some(passed) if joules.abs() <= 2.0 * self.step() => {
                self.joules += joules;
                self.counted += passed;
            }
            Some(_) => {
                self.implausible += 1;
                self.stretches += 1;
            }
        }
        self.last = Some(now);
    }

    fn integrate(&mut self, now: Instant, watts: Option<f64>) {
        let Some(watts) = watts.filter(|w| w.is_finite() && w.abs() <= PLAUSIBLE) else {
            self.implausible += 1;
            self.interrupt();
            return;
        };
        // In microwatts, as the kernel has it: below PLAUSIBLE it fits.
        self.power_grain.observe(now, (watts.max(0.0) * 1e6) as u64);
        match self.last {
            None => self.stretches += 1,
            Some(last) => self.counted += now.saturating_since(last),
        }
        let opened = self.opened.unwrap_or(now);
        self.power.push(now.saturating_since(opened).as_secs_f64(), watts);
        self.joules = self.power.joules();
        self.last = Some(now);
    }

    /// The steps of all counters together, in joules.
    fn step(&self) -> f64 {
        let of = |one: &One| one.grain.step().map_or(ASSUMED_STEP, |step| step as f64 * one.unit);
        self.batteries.values().map(of).sum()
    }

    /// How coarse and slow the batteries' gauges are.
    #[must_use]
    pub fn grain(&self) -> Grain {
        match self.way {
            Way::Level => Grain {
                step: self.step(),
                step_seen: !self.batteries.is_empty()
                    && self.batteries.values().all(|b| b.grain.step().is_some()),
                refresh: self
                    .batteries
                    .values()
                    .filter_map(|b| b.grain.refresh())
                    .map(|r| r.as_secs_f64())
                    .reduce(f64::max),
            },
            Way::Power => {
                let refresh = self.power_grain.refresh().map(|r| r.as_secs_f64());
                let step = self.power_grain.step().map(|s| s as f64 * 1e-6 * refresh.unwrap_or(1.0));
                Grain { step: step.unwrap_or(ASSUMED_STEP), step_seen: step.is_some(), refresh }
            }
        }
    }

    /// What has been used so far.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let counted = self.counted.as_secs_f64();
        let mean = (counted > 0.0).then(|| self.joules / counted).filter(|m| *m > 0.0);
        let watts = self.watts.or(mean);
        let grain = self.grain();
        let lag = match grain.refresh {
            Some(refresh) => watts.unwrap_or(0.0).abs() * refresh,
            None => grain.step, // as much again, until it is known
        };
        let edges = f64::from(self.stretches) * (grain.step + lag);
        let uncertainty = match self.way {
            Way::Level => edges,
            Way::Power => {
                // Rounding of the power itself, all the time; delay at the edges; what may have happened between the looks.
                let rounding = self.power_grain.step().map_or(0.0, |s| 0.5e-6 * s as f64 * counted);
                self.power.uncertainty() + rounding + f64::from(self.stretches) * lag
            }
        };
        let open = self.opened.map_or(Duration::ZERO, |o| self.at.saturating_since(o));
        Reading {
            joules: self.joules,
            uncertainty,
            at: self.at,
            watts,
            uncounted: open.saturating_sub(self.counted),
        }
    }

    /// Changes that no device could have caused, left out.
    #[must_use]
    pub const fn implausible(&self) -> u32 {
        self.implausible
    }
}

/// Whether the batteries alone supply the device.
fn supplying(mains: Option<bool>, samples: &[Sample]) -> Result<(), MeterError> {
    let discharging = samples.iter().any(|s| s.status == Status::Discharging);
    let charging = samples.iter().any(|s| s.status == Status::Charging);
    let alone = match mains {
        Some(true) => false,
        // Some drivers say "Unknown" or "Not charging" of a battery at rest: without mains it still supplies.
        Some(false) => discharging || !charging,
        None => discharging,
    };
    let blamed = samples.iter().find(|s| s.status != Status::Discharging).or(samples.first());
    match blamed {
        _ if alone && !samples.is_empty() => Ok(()),
        Some(s) if s.status == Status::Discharging => Err(MeterError::OnMains {
            battery: s.name.clone(),
            status: format!("{} with a supply from outside on line", s.words),
        }),
        Some(s) => Err(MeterError::OnMains { battery: s.name.clone(), status: s.words.clone() }),
        None => Err(MeterError::OnMains { battery: "the battery".into(), status: "gone".into() }),
    }
}

/// What the batteries supply together, in watts; `None` if one that works does not say.
fn total_watts(samples: &[Sample]) -> Option<f64> {
    let signed = |s: &Sample| match s.status {
        Status::Discharging => s.watts.map(f64::abs),
        Status::Charging => s.watts.map(|w| -w.abs()),
        Status::Idle => Some(0.0),
    };
    // No driver reports that its battery discharges: then the only one that reports power supplies.
    if samples.iter().all(|s| s.status != Status::Discharging) {
        return samples.iter().map(|s| s.watts.map(f64::abs)).sum();
    }
    samples.iter().map(signed).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn battery(words: &str, level: Level, watts: Option<f64>) -> Sample {
        Sample {
            name: "BAT0".into(),
            status: Status::from_words(words),
            words: words.into(),
            level: Some(level),
            watts,
        }
    }

    fn energy(raw: u64) -> Vec<Sample> {
        vec![battery("Discharging", Level::Energy(raw), None)]
    }

    #[test]
    fn a_watt_hour_is_3600_joules_whether_as_energy_or_as_charge() {
        let mut by_energy = Account::new(Way::Level);
        let mut by_charge = Account::new(Way::Level);
        for (t, raw) in [(0, 50_000_000), (1800, 49_500_000), (3600, 49_000_000)] {
            by_energy.observe(at(t), None, &energy(raw)).unwrap();
            let charge = Level::Charge(raw / 10, 10.0);
            by_charge.observe(at(t), None, &[battery("Discharging", charge, None)]).unwrap();
        }
        let (a, b) = (by_energy.reading(), by_charge.reading());
        assert!((a.joules - 3600.0).abs() < 1e-9 && (b.joules - 3600.0).abs() < 1e-6, "{a:?} {b:?}");
        assert_eq!((a.watts, a.uncounted), (Some(1.0), Duration::ZERO));
    }

    #[test]
    fn a_falling_voltage_counts_with_its_mean() {
        let mut account = Account::new(Way::Level);
        for (t, raw, volts) in [(0, 1_000_000, 12.0), (3600, 0, 10.0)] {
            account.observe(at(t), None, &[battery("Discharging", Level::Charge(raw, volts), None)]).unwrap();
        }
        assert!((account.reading().joules - 11.0 * 3600.0).abs() < 1e-6);
    }

    #[test]
    fn power_is_positive_with_either_sign_of_the_driver() {
        for sign in [1.0, -1.0] {
            let mut account = Account::new(Way::Power);
            for t in 0..=10 {
                let sample = battery("Discharging", Level::Energy(1), Some(sign * 8.0));
                account.observe(at(t), None, &[sample]).unwrap();
            }
            assert_eq!((account.reading().joules, account.reading().watts), (80.0, Some(8.0)));
        }
    }

    #[test]
    fn time_on_mains_is_not_counted_and_said() {
        let mut account = Account::new(Way::Level);
        account.observe(at(0), Some(false), &energy(50_000_000)).unwrap();
        account.observe(at(100), Some(false), &energy(49_900_000)).unwrap();
        let charging = [battery("Charging", Level::Energy(49_950_000), None)];
        let refused = account.observe(at(200), Some(true), &charging).unwrap_err();
        assert_eq!(refused, MeterError::OnMains { battery: "BAT0".into(), status: "Charging".into() });
        account.observe(at(300), Some(false), &energy(50_000_000)).unwrap();
        account.observe(at(400), Some(false), &energy(49_900_000)).unwrap();
        let reading = account.reading();
        assert!((reading.joules - 720.0).abs() < 1e-9, "{reading:?}");
        assert_eq!(reading.uncounted, Duration::from_secs(200));
        assert_eq!(
            reading.uncertainty,
            2.0 * (account.grain().step + 7.2 / 2.0 * 100.0),
            "each stretch has its edges"
        );
    }

    #[test]
    fn discharging_on_a_weak_charger_is_no_measurement() {
        let mut account = Account::new(Way::Level);
        let refused = account.observe(at(0), Some(true), &energy(5)).unwrap_err().to_string();
        assert!(refused.contains("BAT0") && refused.contains("on line"), "{refused}");
    }

    #[test]
    fn without_mains_a_driver_that_does_not_know_is_believed_to_supply() {
        let unknown = [battery("Unknown", Level::Energy(5), Some(3.0))];
        assert!(Account::new(Way::Level).observe(at(0), Some(false), &unknown).is_ok());
        assert!(Account::new(Way::Level).observe(at(0), None, &unknown).is_err());
        assert_eq!(total_watts(&unknown), Some(3.0));
    }

    #[test]
    fn several_batteries_add_up_and_a_swapped_one_is_not_consumption() {
        let mut account = Account::new(Way::Level);
        let two = |a, b| {
            let mut second = battery("Not charging", Level::Energy(b), None);
            second.name = "BAT1".into();
            vec![battery("Discharging", Level::Energy(a), None), second]
        };
        account.observe(at(0), None, &two(50_000_000, 20_000_000)).unwrap();
        account.observe(at(60), None, &two(49_900_000, 19_900_000)).unwrap();
        assert!((account.reading().joules - 720.0).abs() < 1e-9);
        account.observe(at(61), None, &two(20_000_000, 19_900_000)).unwrap(); // 108 kJ in a second
        assert_eq!(account.implausible(), 1);
        account.observe(at(62), None, &energy(10_000_000)).unwrap(); // BAT1 is taken out
        assert!((account.reading().joules - 720.0).abs() < 1e-9);
    }

    #[test]
    fn power_that_was_not_read_is_not_guessed() {
        let mut account = Account::new(Way::Power);
        for t in [0, 10, 10_000, 10_010] {
            account.observe(at(t), None, &[battery("Discharging", Level::Energy(1), Some(5.0))]).unwrap();
        }
        let reading = account.reading();
        assert_eq!((reading.joules, reading.uncounted), (100.0, Duration::from_secs(9990)));
    }
}
