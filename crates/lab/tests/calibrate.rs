//! The calibration on a simulated device in virtual time: known energies, a gauge with steps and delay, noise.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::time::Duration;

use dormouse_energy::meter::battery::{Account, Level, Sample, Status, Way};
use dormouse_energy::meter::{Grain, Kind, MeterError, Reading, Source};
use dormouse_energy::profile::{Profile, names};
use dormouse_lab::calibrate::{
    Action, Cycle, Device, Expected, Failure, Measured, Outcome, Plan, Settings, learn, report, run,
};
use dormouse_sansio::{Entropy, Instant, Seeded};

const BASE: f64 = 18.0;
const RADIO: f64 = 2.29;
/// The radio with power saving.
const SAVING: f64 = 0.8;
const CYCLE: f64 = 46.0;
const JOIN: f64 = 2.0;

/// Energy and time of a rung.
fn rung(subject: Cycle) -> (f64, f64) {
    match subject {
        Cycle::Radio => (CYCLE, JOIN),
        Cycle::Held => (0.05, 0.01),
        Cycle::Mobike => (0.4, 0.02),
        Cycle::Ticket => (9.2, 0.11),
        Cycle::Full => (13.14, 0.2),
    }
}

/// A laptop whose true consumption is known.
struct Laptop {
    now: f64,
    used: f64,
    radio: bool,
    saving: bool,
    drift: f64,
    noise: f64,
    entropy: Seeded,
    /// The gauge: steps in µWh, refresh in seconds, and what it shows.
    step: u64,
    refresh: f64,
    next_refresh: f64,
    shown: u64,
    account: Account,
    plugged_at: f64,
    interrupted_at: f64,
    without: Option<Cycle>,
    restored: u32,
    actions: u32,
}

const CAPACITY: f64 = 3.0e6;

impl Laptop {
    fn new(seed: u64, step: u64, refresh: f64) -> Self {
        let mut entropy = Seeded::new(seed);
        let phase = uniform(&mut entropy);
        let mut it = Self {
            now: 0.0,
            used: 1000.0 * phase,
            radio: true,
            saving: true,
            drift: 0.0,
            noise: 1.0,
            entropy,
            step,
            refresh,
            next_refresh: refresh * phase,
            shown: 0,
            account: Account::new(Way::Level),
            plugged_at: f64::INFINITY,
            interrupted_at: f64::INFINITY,
            without: None,
            restored: 0,
            actions: 0,
        };
        it.show();
        it
    }

    fn show(&mut self) {
        let left = ((CAPACITY - self.used) / 3600e-6) as u64;
        self.shown = left / self.step * self.step;
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| uniform(&mut self.entropy)).sum::<f64>() - 6.0
    }

    /// Time passes, in which `extra` joules go beyond what the device and its radio draw.
    fn pass(&mut self, seconds: f64, extra: f64) {
        let end = self.now + seconds;
        let radio = match (self.radio, self.saving) {
            (false, _) => 0.0,
            (true, false) => RADIO,
            (true, true) => SAVING,
        };
        let power = BASE + self.drift + radio + extra / seconds;
        while self.next_refresh <= end {
            self.used += power * (self.next_refresh - self.now);
            self.now = self.next_refresh;
            self.show();
            self.next_refresh += self.refresh;
        }
        self.used += power * (end - self.now);
        self.now = end;
    }

    fn look(&mut self) -> Result<Reading, MeterError> {
        let mains = Some(self.now >= self.plugged_at);
        let sample = Sample {
            name: "BAT0".into(),
            status: Status::Discharging,
            words: "Discharging".into(),
            level: Some(Level::Energy(self.shown)),
            watts: None,
        };
        self.account.observe(self.now(), mains, &[sample])?;
        Ok(self.account.reading())
    }
}

fn uniform(entropy: &mut Seeded) -> f64 {
    let mut bytes = [0; 4];
    entropy.fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

impl Device for Laptop {
    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(self.now)
    }

    fn rest(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.now + time.as_secs_f64();
        while self.now < end {
            // The system's own work comes and goes.
            self.drift = 0.98 * self.drift + 0.05 * self.noise * self.normal();
            let step = (end - self.now).min(1.0);
            self.pass(step, 0.0);
            self.look()?;
            if self.now >= self.interrupted_at {
                return Err(Failure::Interrupted);
            }
        }
        Ok(())
    }

    fn meter(&mut self) -> Result<Reading, Failure> {
        Ok(self.look()?)
    }

    fn source(&self) -> Source {
        Source { kind: Kind::Battery, name: "BAT0 (energy_now)".into() }
    }

    fn grain(&self) -> Grain {
        self.account.grain()
    }

    fn perform(&mut self, action: Action) -> Result<Duration, Failure> {
        self.actions += 1;
        let spread = 1.0 + 0.05 * self.noise * self.normal();
        let seconds = match action {
            Action::RadioOff if self.radio => {
                self.radio = false;
                let seconds = 0.5;
                self.pass(seconds, 0.2 * CYCLE);
                seconds
            }
            Action::RadioOn if !self.radio => {
                let seconds = JOIN * spread;
                self.pass(seconds, 0.8 * CYCLE * spread);
                self.radio = true;
                seconds
            }
            Action::RadioOff | Action::RadioOn => 0.01,
            Action::PowerSave(on) => {
                assert!(self.radio, "a radio that is off saves nothing");
                self.saving = on;
                0.0
            }
            Action::SessionUp => {
                self.pass(0.02, 0.4);
                0.02
            }
            Action::Rung(subject) if self.without == Some(subject) => {
                return Err(Failure::Here("the gateway gave no ticket".into()));
            }
            Action::Rung(subject) => {
                let (joules, seconds) = rung(subject);
                self.pass(seconds, joules * spread);
                seconds * spread
            }
        };
        Ok(Duration::from_secs_f64(seconds))
    }

    fn restore(&mut self) -> Result<(), Failure> {
        self.restored += 1;
        (self.radio, self.saving) = (true, true);
        Ok(())
    }
}

fn calibrate(laptop: &mut Laptop, settings: &Settings) -> Outcome {
    let watts = learn(laptop).unwrap();
    let expected = Expected::from_profile(&Profile::shipped("laptop-000").unwrap());
    let plan = Plan::new(settings, &expected, laptop.grain(), watts);
    run(plan.campaign(None).unwrap(), laptop, &mut |_| ()).unwrap()
}

fn measured(figures: &Outcome) -> Vec<Measured> {
    figures.judge().into_iter().flatten().collect()
}

fn truth(name: &str) -> f64 {
    match name {
        "device.baseline_power" => BASE,
        names::RADIO_IDLE_POWER => RADIO,
        names::RADIO_POWER_SAVE_POWER => SAVING,
        names::RADIO_CYCLE_ENERGY => CYCLE,
        names::RADIO_ASSOCIATION_TIME => JOIN,
        "held.energy" => 0.05,
        names::MOBIKE_ENERGY => 0.4,
        names::TICKET_ENERGY => 9.2,
        names::FULL_ENERGY => 13.14,
        "held.time" => 0.01,
        names::MOBIKE_TIME => 0.02,
        names::TICKET_TIME => 0.11,
        names::FULL_TIME => 0.2,
        other => panic!("{other} is no figure of this device"),
    }
}

/// A gauge with the coarse steps that facts of the field report (10 mWh = 36 J) and a refresh every two seconds.
fn coarse(seed: u64) -> Laptop {
    Laptop::new(seed, 10_000, 1.93)
}

#[test]
fn the_true_energies_lie_in_the_stated_intervals() {
    const SEEDS: u64 = 60;
    let mut hits = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let figures = calibrate(&mut coarse(seed), &Settings::default());
        assert!(figures.stopped.is_none() && figures.complete() == 25, "{:?}", figures.stopped);
        for figure in measured(&figures) {
            let entry = hits.entry(figure.name.clone()).or_default();
            entry.1 += 1;
            entry.0 += u64::from((figure.summary.mean - truth(&figure.name)).abs() <= figure.half_interval);
        }
    }
    println!("{hits:?}");
    for name in [
        "device.baseline_power",
        names::RADIO_IDLE_POWER,
        names::RADIO_CYCLE_ENERGY,
        names::MOBIKE_ENERGY,
        names::TICKET_ENERGY,
        names::FULL_ENERGY,
        names::RADIO_ASSOCIATION_TIME,
    ] {
        let (inside, all) = hits.get(name).copied().unwrap_or_default();
        assert!(all == SEEDS, "{name} was refused {} times", SEEDS - all);
        // 95 %, less what 60 draws of it may miss: three standard deviations.
        assert!(inside * 100 >= all * 86, "{name}: {inside} of {all} intervals hold the truth");
    }
    // So little that now and then this gauge cannot tell; what it tells is true.
    let (inside, all) = hits.get(names::RADIO_POWER_SAVE_POWER).copied().unwrap_or_default();
    assert!(all * 2 > SEEDS && inside * 100 >= all * 86, "power saving: {inside} of {all}");
}

#[test]
fn the_figures_are_as_precise_as_was_asked_for() {
    let figures = calibrate(&mut coarse(7), &Settings::default());
    for figure in measured(&figures).iter().filter(|f| f.unit == "J" && f.name != "held.energy") {
        let share = figure.half_interval / figure.summary.mean;
        assert!(share < 0.2, "{figure:?}: {share}");
    }
}

#[test]
fn a_gauge_that_is_too_coarse_is_refused_figure_by_figure() {
    // Steps of a watt-hour, as a gauge has that only knows whole percents.
    let settings = Settings { max_cycles: 100, idle: Some(Duration::from_secs(300)), ..Settings::default() };
    let figures = calibrate(&mut Laptop::new(3, 1_000_000, 30.0), &settings);
    let refused = report::refused(&figures);
    let names: Vec<&str> = refused.iter().map(|r| r.name.as_str()).collect();
    assert!(names.contains(&names::MOBIKE_ENERGY) && names.contains(&"held.energy"), "{refused:#?}");
    let mobike = refused.iter().find(|r| r.name == names::MOBIKE_ENERGY).unwrap();
    assert!(mobike.why.contains("can tell apart (steps of 3600"), "{}", mobike.why);
    let kept: Vec<String> = measured(&figures).into_iter().map(|m| m.name).collect();
    assert!(kept.iter().any(|n| n == "device.baseline_power"), "{kept:?}");
    assert!(kept.iter().any(|n| n == names::RADIO_ASSOCIATION_TIME), "times need no meter: {kept:?}");
}

#[test]
fn a_gauge_that_never_moves_does_not_pass_for_an_exact_one() {
    let settings = Settings {
        repetitions: 5,
        max_cycles: 3,
        idle: Some(Duration::from_secs(30)),
        ..Settings::default()
    };
    let figures = calibrate(&mut Laptop::new(3, 500_000_000, 30.0), &settings);
    assert!(measured(&figures).iter().all(|m| m.unit == "s"), "{:?}", measured(&figures));
}

#[test]
fn a_rung_that_fails_is_named_and_the_others_are_kept() {
    let mut laptop = coarse(5);
    laptop.without = Some(Cycle::Ticket);
    let figures = calibrate(&mut laptop, &Settings::default());
    let refused = report::refused(&figures);
    let ticket = refused.iter().find(|r| r.name == names::TICKET_ENERGY).unwrap();
    assert_eq!(ticket.why, "it failed: the gateway gave no ticket");
    assert_eq!(figures.results.discarded.len(), 3, "it is not tried for ever");
    assert!(measured(&figures).iter().any(|m| m.name == names::FULL_ENERGY));
}

#[test]
fn plugging_the_device_in_ends_it_with_the_radio_restored() {
    let mut laptop = coarse(1);
    laptop.plugged_at = 2000.0;
    let figures = calibrate(&mut laptop, &Settings::default());
    assert!(
        matches!(figures.stopped, Some(Failure::Meter(MeterError::OnMains { .. }))),
        "{:?}",
        figures.stopped
    );
    assert_eq!((laptop.restored, laptop.radio), (1, true));
}

#[test]
fn an_interruption_at_any_moment_restores_the_radio_once() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut laptop = coarse(seed);
        laptop.interrupted_at = 200.0 + 37.0 * seed as f64;
        let figures = calibrate(&mut laptop, &Settings { repetitions: 3, ..Settings::default() });
        if laptop.now >= laptop.interrupted_at {
            assert_eq!(figures.stopped, Some(Failure::Interrupted));
        }
        assert_eq!((laptop.restored, laptop.radio), (1, true));
    }
}

#[test]
fn the_profile_says_where_each_figure_comes_from_and_reads_back() {
    let figures = calibrate(&mut coarse(2), &Settings::default());
    let alone = report::profile(&figures, "mine", "a test", None);
    let text = alone.to_toml().unwrap();
    assert_eq!(Profile::from_toml(&text).unwrap(), alone);
    let cycle = &alone.figures[names::RADIO_CYCLE_ENERGY];
    assert!(cycle.source.contains("battery BAT0 (energy_now), n = 25, 95 % interval ±"), "{}", cycle.source);
    assert!(cycle.spread.unwrap() > 0.0 && cycle.unit == "J");
    assert!(alone.model().is_err(), "one device cannot measure a gateway's load");
    let laptop = Profile::shipped("laptop-000").unwrap();
    let filled = report::profile(&figures, "mine", "a test", Some(&laptop));
    assert!(
        filled.figures[names::FULL_TIME_PER_CLIENT]
            .source
            .starts_with("not measured here, taken from laptop-000")
    );
    assert!((filled.model().unwrap().radio.cycle_energy - CYCLE).abs() < 5.0);
}

#[test]
fn the_expected_duration_is_about_right() {
    let mut laptop = coarse(4);
    let watts = learn(&mut laptop).unwrap();
    let expected = Expected::from_profile(&Profile::shipped("laptop-000").unwrap());
    let plan = Plan::new(&Settings::default(), &expected, laptop.grain(), watts);
    let began = laptop.now;
    let used = laptop.used;
    run(plan.campaign(None).unwrap(), &mut laptop, &mut |_| ()).unwrap();
    let (took, joules) = (laptop.now - began, laptop.used - used);
    assert!((took / plan.seconds - 1.0).abs() < 0.25, "{took} s instead of {} s", plan.seconds);
    assert!((joules / plan.joules - 1.0).abs() < 0.25, "{joules} J instead of {} J", plan.joules);
}
