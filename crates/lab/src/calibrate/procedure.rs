//! The procedure itself: one repetition after the other, and radio and session restored at the end, also after an error.

use core::time::Duration;

use dormouse_energy::meter::Reading;

use super::figures::{Repetition, Window};
use super::plan::{Plan, Sample};
use super::{Action, Device, Failure, Figures, Subject};

/// How far it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Which repetition runs, from 1.
    pub repetition: u32,
    /// Of how many.
    pub of: u32,
    /// What is measured.
    pub what: String,
    /// Since the start, in seconds.
    pub seconds: f64,
}

/// A sample that failed so often is given up.
const ATTEMPTS: usize = 3;
/// The meter is watched at most so long before the plan is made.
const LEARNING: Duration = Duration::from_secs(180);

/// Watches the meter until it has shown its step and refresh interval, or the patience is over: plans are made from that.
/// Gives the device's mean power meanwhile, in watts.
///
/// # Errors
/// What stops it.
pub fn learn(device: &mut dyn Device) -> Result<f64, Failure> {
    let began = device.now();
    let first = device.meter()?;
    loop {
        // Often: the time between two looks is part of what is known about the refresh.
        device.rest(Duration::from_millis(200))?;
        device.meter()?;
        let grain = device.grain();
        let passed = device.now().saturating_since(began);
        let seen = grain.step_seen && grain.refresh.is_some() && passed >= Duration::from_secs(20);
        if seen || passed >= LEARNING {
            let last = device.meter()?;
            let seconds = last.at.saturating_since(first.at).as_secs_f64();
            let mean = (last.joules - first.joules) / seconds.max(1e-3);
            return Ok(last.watts.filter(|_| seconds <= 0.0 || mean <= 0.0).unwrap_or(mean).max(0.0));
        }
    }
}

/// Measures. What was found comes back also after a failure, with the reason.
pub fn run(plan: &Plan, device: &mut dyn Device, progress: &mut dyn FnMut(&Progress)) -> Figures {
    let mut figures = Figures::new(plan.clone(), device.source());
    let mut runner = Runner { plan, began: device.now(), device, progress, failures: Vec::new() };
    for number in 1..=plan.repetitions {
        match runner.repetition(number) {
            Ok(repetition) => figures.push(repetition),
            Err(why) => {
                figures.stopped = Some(why);
                break;
            }
        }
    }
    figures.failures = std::mem::take(&mut runner.failures);
    figures.grain = runner.device.grain();
    figures.unrestored = runner.device.restore().err();
    figures
}

struct Runner<'a> {
    plan: &'a Plan,
    began: dormouse_sansio::Instant,
    device: &'a mut dyn Device,
    progress: &'a mut dyn FnMut(&Progress),
    /// Samples that failed, and why.
    failures: Vec<(Subject, String)>,
}

impl Runner<'_> {
    fn repetition(&mut self, number: u32) -> Result<Repetition, Failure> {
        let mut done = Repetition::default();
        if self.plan.radio {
            self.say(number, "radio off, idle");
            self.device.perform(Action::RadioOff)?;
            done.off = self.idle()?;
        }
        let samples = self.plan.samples.iter();
        for sample in samples.clone().filter(|s| s.subject == Subject::RadioCycle) {
            self.sample(number, sample, &mut done)?;
        }
        self.say(number, "radio on, idle");
        if self.plan.radio {
            self.device.perform(Action::RadioOn)?;
        }
        if self.plan.power_save {
            self.device.perform(Action::PowerSave(false))?;
        }
        self.device.perform(Action::SessionUp)?;
        done.on = self.idle()?;
        if self.plan.power_save {
            self.say(number, "radio on, power saving");
            self.device.perform(Action::PowerSave(true))?;
            done.saving = Some(self.idle()?);
            self.device.perform(Action::PowerSave(false))?;
        }
        for sample in samples.filter(|s| s.subject != Subject::RadioCycle) {
            self.sample(number, sample, &mut done)?;
        }
        Ok(done)
    }

    /// A baseline.
    fn idle(&mut self) -> Result<Window, Failure> {
        self.settle()?;
        let before = self.device.meter()?;
        self.device.rest(Duration::from_secs_f64(self.plan.idle))?;
        self.window(before)
    }

    /// Repeats one thing between two readings at rest. What fails is noted, and the repetition goes on without it.
    fn sample(&mut self, number: u32, sample: &Sample, done: &mut Repetition) -> Result<(), Failure> {
        let subject = sample.subject;
        if self.failures.iter().filter(|(s, _)| *s == subject).count() >= ATTEMPTS {
            return Ok(());
        }
        self.say(number, &format!("{subject}, {} times", sample.cycles));
        let before = self.device.meter()?;
        let mut times = Vec::new();
        for _ in 0..sample.cycles {
            match self.cycle(subject) {
                Ok(time) => times.push(time.as_secs_f64()),
                Err(Failure::Here(why)) => {
                    self.failures.push((subject, why));
                    // Back to where the next sample starts.
                    if subject == Subject::RadioCycle {
                        self.device.perform(Action::RadioOff)?;
                    } else {
                        self.device.perform(Action::SessionUp)?;
                    }
                    return self.settle();
                }
                Err(e) => return Err(e),
            }
        }
        self.settle()?;
        let window = self.window(before)?;
        done.samples.insert(subject, (window, times));
        Ok(())
    }

    fn cycle(&mut self, subject: Subject) -> Result<Duration, Failure> {
        if subject != Subject::RadioCycle {
            return self.device.perform(Action::Rung(subject));
        }
        let took = self.device.perform(Action::RadioOn)?;
        self.device.perform(Action::RadioOff)?;
        Ok(took)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.device.rest(Duration::from_secs_f64(self.plan.settle))
    }

    /// From a reading until now.
    fn window(&mut self, before: Reading) -> Result<Window, Failure> {
        let after = self.device.meter()?;
        if after.uncounted > before.uncounted {
            let missing = (after.uncounted - before.uncounted).as_secs_f64();
            return Err(Failure::Device(format!(
                "the meter missed {missing:.0} s of a measurement: the device was plugged in, or the meter was not readable"
            )));
        }
        let seconds = after.at.saturating_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return Err(Failure::Device(
                "the meter's data do not advance: is the instrument still writing its file?".into(),
            ));
        }
        Ok(Window { joules: after.joules - before.joules, seconds })
    }

    fn say(&mut self, repetition: u32, what: &str) {
        let seconds = self.device.now().saturating_since(self.began).as_secs_f64();
        let of = self.plan.repetitions;
        (self.progress)(&Progress { repetition, of, what: what.to_owned(), seconds });
    }
}
