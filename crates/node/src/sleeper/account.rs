//! Joules: what the radio used, and what it saved against a radio that never sleeps. Owns the arithmetic; every figure says where
//! it comes from.
//!
//! From a **profile**: the time in each state times the profile's power, plus the cycle and the exchange of each wake. From a
//! **meter**, if there is one: what it counted, by state; a radio that never sleeps is then reckoned at the mean power that was
//! measured while awake. The meter of a battery sees the whole device; a difference of two states is still the radio's.
//!
//! Time while the whole machine was suspended is kept apart: a machine that is off saves nothing by its radio's sleep.

use super::clock::PolicyTime;
use crate::ladder::Rung;
use dormouse_energy::model::Model;
use std::time::Duration;

/// What the radio is doing, as far as energy goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Bucket {
    Awake,
    Preparing,
    Asleep,
    Waking,
    Suspended,
}

const BUCKETS: usize = 5;

/// How long the radio was in each state. The parts sum up to [`Times::elapsed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// On, and in use or waiting.
    pub awake: Duration,
    /// On, and about to be switched off.
    pub preparing: Duration,
    /// Off.
    pub asleep: Duration,
    /// Being switched on, until packets flow.
    pub waking: Duration,
    /// The whole machine was suspended.
    pub suspended: Duration,
}

impl Times {
    /// All of it.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.awake + self.preparing + self.asleep + self.waking + self.suspended
    }
}

/// Where the figures of a [`Energy`] come from.
#[derive(Clone, PartialEq, Debug)]
pub enum Source {
    /// Powers and energies of this profile times the time in each state.
    Profile(String),
    /// This meter.
    Meter {
        /// Its name.
        name: String,
        /// By how many joules it may be wrong over the whole time.
        uncertainty: f64,
    },
}

/// The balance, in joules, since the account began.
#[derive(Clone, PartialEq, Debug)]
pub struct Energy {
    /// Time in each state.
    pub times: Times,
    /// Switched off and on again so often.
    pub cycles: u64,
    /// What was used.
    pub used: f64,
    /// What a radio would have used that is always active.
    pub always_on: f64,
    /// What it would have used in 802.11 power-save mode, after the profile.
    pub power_save: f64,
    /// `always_on` less `used`; negative if sleeping has cost more than it saved.
    pub saved: f64,
    /// Where `used` and `always_on` come from. `power_save` is always the profile's.
    pub source: Source,
}

#[derive(Clone, Debug)]
struct Metered {
    name: String,
    uncertainty: f64,
    last: f64,
    joules: [f64; BUCKETS],
    /// Time in each state when the meter was first read.
    since: [Duration; BUCKETS],
}

/// The running account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    profile: String,
    model: Model,
    bucket: Bucket,
    since: PolicyTime,
    times: [Duration; BUCKETS],
    cycles: u64,
    exchanges: f64,
    meter: Option<Metered>,
}

impl Account {
    pub(super) fn new(now: PolicyTime, model: Model, profile: String) -> Self {
        Self {
            profile,
            model,
            bucket: Bucket::Awake,
            since: now,
            times: [Duration::ZERO; BUCKETS],
            cycles: 0,
            exchanges: 0.0,
            meter: None,
        }
    }

    /// The state from now on.
    pub(super) fn enter(&mut self, now: PolicyTime, bucket: Bucket) {
        self.times = self.times_at(now);
        (self.since, self.bucket) = (now.max(self.since), bucket);
    }

    fn times_at(&self, now: PolicyTime) -> [Duration; BUCKETS] {
        let mut times = self.times;
        times[self.bucket as usize] += now - self.since;
        times
    }

    /// The radio was switched off and on again.
    pub(super) fn cycle(&mut self) {
        self.cycles += 1;
    }

    /// The session came back by an exchange.
    pub(super) fn exchange(&mut self, rung: Rung) {
        let exchanges = &self.model.exchanges;
        self.exchanges += match rung {
            Rung::Held => 0.0,
            Rung::Move => exchanges.mobike.energy,
            Rung::Resume => exchanges.ticket.energy,
            Rung::Full => exchanges.full.energy,
        };
    }

    /// A meter's reading: joules since a beginning of its own. What it counted since the last reading belongs to the present
    /// state: it is to be read whenever the state changes.
    pub(super) fn reading(&mut self, now: PolicyTime, name: &str, joules: f64, uncertainty: f64) {
        if !joules.is_finite() {
            return;
        }
        let times = self.times_at(now);
        match self.meter.as_mut().filter(|m| m.name == name) {
            Some(meter) => {
                // A meter that went backwards was replaced or reset: the stretch is unknown and counts as nothing.
                meter.joules[self.bucket as usize] += (joules - meter.last).max(0.0);
                (meter.last, meter.uncertainty) = (joules, uncertainty);
            }
            None => {
                let (joules, last) = ([0.0; BUCKETS], joules);
                self.meter = Some(Metered { name: name.into(), uncertainty, last, joules, since: times });
            }
        }
    }

    pub(super) fn report(&self, now: PolicyTime) -> Energy {
        let all = self.times_at(now);
        let [awake, preparing, asleep, waking, suspended] = all;
        let times = Times { awake, preparing, asleep, waking, suspended };
        let model = &self.model;
        let counted = |t: Times| (t.elapsed() - t.suspended).as_secs_f64();
        let power_save = counted(times) * model.radio.power_save_power;
        if let Some((used, always_on, meter)) = self.meter.as_ref().and_then(|m| measured(m, &all)) {
            let source = Source::Meter { name: meter.name.clone(), uncertainty: meter.uncertainty };
            return Energy {
                times,
                cycles: self.cycles,
                used,
                always_on,
                power_save,
                saved: always_on - used,
                source,
            };
        }
        let on = (awake + preparing + waking).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "fewer cycles than 2^52")]
        let cycles = self.cycles as f64 * model.radio.cycle_energy;
        let used = on * model.radio.idle_power + cycles + self.exchanges;
        let always_on = counted(times) * model.radio.idle_power;
        let source = Source::Profile(self.profile.clone());
        Energy { times, cycles: self.cycles, used, always_on, power_save, saved: always_on - used, source }
    }
}

/// What the meter says was used, and what a radio that stays on would have used; `None` before it has seen it awake.
fn measured<'a>(m: &'a Metered, times: &[Duration; BUCKETS]) -> Option<(f64, f64, &'a Metered)> {
    let seconds: Vec<f64> = times.iter().zip(&m.since).map(|(t, s)| (*t - *s).as_secs_f64()).collect();
    let (awake, suspended) = (seconds.first()?, seconds.last()?);
    let [joules, .., while_suspended] = m.joules;
    if *awake <= 0.0 || joules <= 0.0 {
        return None;
    }
    let counted = seconds.iter().sum::<f64>() - suspended;
    let used = m.joules.iter().sum::<f64>() - while_suspended;
    Some((used, joules / awake * counted, m))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_energy::profile::Profile;

    fn at(seconds: u64) -> PolicyTime {
        PolicyTime::from_nanos(seconds * 1_000_000_000)
    }

    fn account() -> (Account, Model) {
        let model = Profile::shipped("laptop-000").and_then(|p| p.model().ok()).expect("it ships");
        (Account::new(at(10), model, "laptop-000".into()), model)
    }

    #[test]
    fn the_parts_sum_up_and_a_sleep_saves_what_the_model_says() {
        let (mut account, model) = account();
        for (t, bucket) in
            [(20, Bucket::Preparing), (21, Bucket::Asleep), (621, Bucket::Waking), (625, Bucket::Awake)]
        {
            account.enter(at(t), bucket);
        }
        account.cycle();
        account.exchange(Rung::Resume);
        let energy = account.report(at(710));
        assert_eq!(energy.times.elapsed(), Duration::from_secs(700));
        assert_eq!(energy.times.asleep, Duration::from_secs(600));
        let cost = model.radio.cycle_energy + model.exchanges.ticket.energy;
        let expected = 600.0 * model.radio.idle_power - cost;
        assert!((energy.saved - expected).abs() < 1e-9, "{energy:?}");
        assert_eq!(energy.source, Source::Profile("laptop-000".into()));
    }

    #[test]
    fn a_suspended_machine_saves_nothing() {
        let (mut account, _) = account();
        account.enter(at(20), Bucket::Suspended);
        account.enter(at(1020), Bucket::Awake);
        assert!(account.report(at(1030)).saved.abs() < 1e-9);
    }

    #[test]
    fn a_meter_is_believed_and_named() {
        let (mut account, _) = account();
        account.reading(at(10), "battery BAT0", 5000.0, 36.0);
        account.reading(at(110), "battery BAT0", 5300.0, 36.0);
        account.enter(at(110), Bucket::Asleep);
        account.reading(at(210), "battery BAT0", 5310.0, 36.0);
        account.enter(at(210), Bucket::Awake);
        let energy = account.report(at(210));
        assert_eq!(energy.source, Source::Meter { name: "battery BAT0".into(), uncertainty: 36.0 });
        assert!((energy.used - 310.0).abs() < 1e-9 && (energy.always_on - 600.0).abs() < 1e-9, "{energy:?}");
    }
}
