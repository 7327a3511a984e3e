//! What a measurement costs in energy: by a meter of this machine, or estimated from CPU time. Owns the idle machine's power,
//! which is taken off; must never give joules without saying where they come from.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dormouse_energy::profile::Profile;
use dormouse_io::clock::BootClock;
use dormouse_io::meter::{Choice, Meter, open};

use crate::calibrate::plan::window_error;
use crate::results::Figures;
use crate::results::esp::{CPU_SYSTEM, CPU_THREAD, ELAPSED, JOULES, JOULES_PER_BYTE, THROUGHPUT, What};
use crate::results::format::{Energy, EnergySource};

/// The figure of a device profile that CPU time is multiplied with: power of one busy processor above an idle one.
const CORE_POWER: &str = "cpu.core_power";
/// How long the idle machine is metered.
const AT_REST: Duration = Duration::from_secs(3);
/// The error of a meter, as a part of what it counted, from which on it says nothing.
const RESOLVED: f64 = 0.25;

/// Where joules come from.
#[derive(Debug)]
pub(crate) enum Joules {
    /// Nowhere.
    None,
    /// A meter.
    Metered {
        /// It.
        meter: Box<dyn Meter>,
        /// Of the machine at rest.
        idle_watts: f64,
        /// The longest measurement that it could not resolve, with its error; nothing if there was none.
        coarse: Option<(Duration, f64)>,
    },
    /// CPU time times this many watts.
    Estimated {
        /// Of one busy processor above an idle one.
        watts: f64,
        /// The device that it is so of.
        profile: Box<Profile>,
    },
}

impl Joules {
    /// The device profile that was asked for, else this machine's meter, else nothing. The reason comes along when there is
    /// nothing.
    ///
    /// # Errors
    /// For a profile that cannot be read or does not say what a busy processor draws.
    pub(crate) fn find(profile: Option<&str>) -> Result<(Self, Option<String>)> {
        if let Some(name) = profile {
            let profile = match Profile::shipped(name) {
                Some(profile) => profile,
                None => Profile::from_toml(&std::fs::read_to_string(name).with_context(|| name.to_owned())?)?,
            };
            return Ok((Self::by(profile, name)?, None));
        }
        match open(Path::new("/"), &Choice::Best, BootClock::now()) {
            Ok(opened) => Ok((Self::metered(opened.meter), None)),
            Err(error) => Ok((Self::None, Some(format!("{error}; {}", estimates())))),
        }
    }

    /// By the device profile that a campaign began with: it stands in the results, and its file may be gone.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn again(profiles: &BTreeMap<String, Profile>) -> Result<Self> {
        match profiles.iter().next() {
            Some((name, profile)) => Self::by(profile.clone(), name),
            None => Ok(Self::find(None)?.0),
        }
    }

    fn by(profile: Profile, name: &str) -> Result<Self> {
        let watts = profile.power(CORE_POWER).with_context(|| format!("device profile {name}"))?;
        if !(watts.is_finite() && watts > 0.0) {
            bail!("device profile {name}: {CORE_POWER} is {watts} W, expected more than 0");
        }
        Ok(Self::Estimated { watts, profile: Box::new(profile) })
    }

    fn metered(meter: Box<dyn Meter>) -> Self {
        Self::Metered { meter, idle_watts: 0.0, coarse: None }
    }

    /// What a result file says about it.
    pub(crate) fn describe(&self) -> Energy {
        match self {
            Self::None => Energy::default(),
            Self::Metered { meter, idle_watts, .. } => Energy {
                source: EnergySource::Measured,
                name: meter.source().to_string(),
                idle_watts: Some(*idle_watts),
            },
            Self::Estimated { profile, .. } => {
                Energy { source: EnergySource::Estimated, name: profile.name.clone(), idle_watts: None }
            }
        }
    }

    /// The device profile that it rests on.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        if let Self::Estimated { profile, .. } = self { Some(profile) } else { None }
    }

    /// Meters the machine at rest for a few seconds, where there is a meter.
    pub(crate) fn rest(&mut self) {
        let before = self.counted();
        let Some(before) = before else { return };
        std::thread::sleep(AT_REST);
        if let (Some(after), Self::Metered { idle_watts, .. }) = (self.counted(), self) {
            *idle_watts = ((after - before) / AT_REST.as_secs_f64()).max(0.0);
        }
    }

    /// Joules counted so far; nothing without a meter, or while it cannot count.
    pub(crate) fn counted(&mut self) -> Option<f64> {
        match self {
            Self::Metered { meter, .. } => meter.read(BootClock::now()).ok().map(|r| r.joules),
            _ => None,
        }
    }

    /// The figures of a round with its joules; `before` is what was counted when it began, `real` how long it took with all that
    /// belongs to it. What the meter cannot resolve is left out.
    pub(crate) fn add(&mut self, what: What, round: Figures, before: Option<f64>, real: Duration) -> Figures {
        let elapsed = round.one(ELAPSED);
        let bytes = round.one(THROUGHPUT).zip(elapsed).map(|(t, e)| t * e).filter(|b| *b > 0.0);
        let Some(bytes) = bytes else { return round };
        let counted = self.counted();
        let (joules, per_byte) = match self {
            Self::None => return round,
            Self::Metered { meter, idle_watts, coarse } => {
                let Some((after, before)) = counted.zip(before) else { return round };
                let (counted, seconds) = (after - before, real.as_secs_f64());
                let error = window_error(meter.grain(), counted / seconds);
                if error > RESOLVED * counted {
                    *coarse = Some(coarse.filter(|(longest, _)| *longest >= real).unwrap_or((real, error)));
                    return round;
                }
                // Cryptography alone keeps its processors busy all the time, but is timed for a part of it: opening is preceded
                // by sealing.
                let part = match (what, elapsed) {
                    (What::Crypto, Some(timed)) => (timed / seconds).min(1.0),
                    _ => 1.0,
                };
                let joules = (counted - *idle_watts * seconds) * part;
                (joules, joules / bytes)
            }
            Self::Estimated { watts, .. } => {
                let nanos = round.one(CPU_THREAD).unwrap_or(0.0) + round.one(CPU_SYSTEM).unwrap_or(0.0);
                (nanos * 1e-9 * bytes * *watts, nanos * 1e-9 * *watts)
            }
        };
        round.with(JOULES, joules).with(JOULES_PER_BYTE, per_byte)
    }

    /// Why joules were left out, if any were.
    pub(crate) fn unresolved(&self) -> Option<String> {
        let Self::Metered { meter, coarse: Some((time, error)), .. } = self else { return None };
        Some(format!(
            "{} is too coarse for {:.2} s: it may err by {error:.1} J; {}",
            meter.source(),
            time.as_secs_f64(),
            estimates()
        ))
    }
}

/// How energy can be had without a meter: by the device profiles that say what a busy processor draws.
fn estimates() -> String {
    let names: Vec<&str> = Profile::shipped_names()
        .filter(|name| Profile::shipped(name).is_some_and(|p| p.power(CORE_POWER).is_ok()))
        .collect();
    format!(
        "--profile NAME or FILE estimates it from CPU time by {CORE_POWER} (shipped: {})",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_energy::meter::{Grain, Kind, MeterError, Reading, Source};
    use dormouse_sansio::Instant;

    #[test]
    fn an_estimate_is_cpu_time_times_power_and_says_so() {
        let profile = Box::new(Profile::shipped("raspberry-pi-4").unwrap());
        let mut joules = Joules::Estimated { watts: 4.0, profile };
        let round = Figures::default()
            .with(ELAPSED, 2.0)
            .with(THROUGHPUT, 1e6)
            .with(CPU_THREAD, 30.0)
            .with(CPU_SYSTEM, 20.0);
        let round = joules.add(What::Path, round, None, Duration::from_secs(2));
        // 2 MB at 50 ns a byte are 0.1 s of CPU.
        assert!((round.one(JOULES).unwrap() - 0.4).abs() < 1e-9, "{round:?}");
        assert!((round.one(JOULES_PER_BYTE).unwrap() - 2e-7).abs() < 1e-15);
        assert_eq!(joules.describe().source, EnergySource::Estimated);
    }

    /// A meter of a device that draws ten watts, busy or not.
    #[derive(Debug)]
    struct Steps {
        source: Source,
        step: f64,
        refresh: f64,
    }

    impl Steps {
        fn of(step: f64, refresh: f64) -> Joules {
            let source = Source { kind: Kind::Battery, name: "BAT0 (energy_now)".into() };
            Joules::metered(Box::new(Self { source, step, refresh }))
        }
    }

    impl Meter for Steps {
        fn source(&self) -> &Source {
            &self.source
        }

        fn read(&mut self, _: Instant) -> Result<Reading, MeterError> {
            Ok(Reading { joules: 10.0, ..Reading::default() })
        }

        fn grain(&self) -> Grain {
            Grain { step: self.step, step_seen: true, refresh: Some(self.refresh) }
        }
    }

    fn metered(joules: &mut Joules, what: What, before: f64) -> Option<f64> {
        let round = Figures::default().with(ELAPSED, 0.4).with(THROUGHPUT, 10.0);
        let round = joules.add(what, round, Some(before), Duration::from_secs(1));
        assert_eq!(round.one(JOULES).is_some(), round.one(JOULES_PER_BYTE).is_some());
        round.one(JOULES)
    }

    #[test]
    fn what_a_meter_cannot_resolve_is_left_out_and_said() {
        // Steps of 10 mWh, looked at after a second at ten watts: nothing or all of a step.
        let mut battery = Steps::of(36.0, 10.0);
        assert_eq!(
            (metered(&mut battery, What::Path, 0.0), metered(&mut battery, What::Path, 10.0)),
            (None, None)
        );
        let why = battery.unresolved().unwrap();
        assert!(why.starts_with("battery BAT0 (energy_now) is too coarse for 1.00 s"), "{why}");
        assert!(why.contains("--profile"), "{why}");
        let mut counter = Steps::of(61e-6, 1e-3);
        assert_eq!(metered(&mut counter, What::Path, 0.0), Some(10.0));
        assert_eq!(counter.unresolved(), None);
    }

    #[test]
    fn cryptography_is_charged_for_the_time_that_is_timed() {
        let mut counter = Steps::of(61e-6, 1e-3);
        assert_eq!(metered(&mut counter, What::Crypto, 0.0), Some(4.0), "the rest made what was opened");
    }

    /// As a campaign is resumed: from what its file says, wherever it came from.
    #[test]
    fn a_profile_is_taken_from_the_results_and_not_looked_for_again() {
        let profile = Profile { name: "my-laptop".to_owned(), ..Profile::shipped("raspberry-pi-4").unwrap() };
        let profiles = BTreeMap::from([(profile.name.clone(), profile)]);
        assert!(Joules::find(Some("my-laptop")).is_err(), "no such file, and none ships");
        let joules = Joules::again(&profiles).unwrap();
        assert_eq!(joules.profile().unwrap().name, "my-laptop");
    }

    #[test]
    fn a_profile_without_the_figure_is_refused_by_name() {
        let error = format!("{:#}", Joules::find(Some("laptop-000")).unwrap_err());
        assert!(error.contains("laptop-000") && error.contains(CORE_POWER), "{error}");
        assert!(Joules::find(Some("/nonexistent")).is_err());
    }

    #[test]
    fn a_shipped_profile_has_it_and_is_named_where_there_is_no_meter() {
        let (joules, why_not) = Joules::find(Some("raspberry-pi-4")).unwrap();
        assert!(
            matches!(joules, Joules::Estimated { watts, .. } if (0.5..2.0).contains(&watts)),
            "{joules:?}"
        );
        assert_eq!(why_not, None);
        assert!(estimates().contains("raspberry-pi-4") && !estimates().contains("laptop"), "{}", estimates());
    }
}
