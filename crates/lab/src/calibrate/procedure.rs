//! The subject of the campaign: brings the device into the state of a point, reads the meter at rest before and after what happens
//! there, and restores radio and session in the end, also after a failure.

use core::time::Duration;
use std::sync::atomic::AtomicBool;

use anyhow::{Error, Result};

use super::figures::Outcome;
use super::plan::Plan;
use super::{Action, Cycle, Device, Failure, Point, Radio};
use crate::campaign::{Campaign, Progress, Subject, Uncleared};
use crate::results::Figures;

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

/// Measures what the campaign lacks. What was found comes back also after a failure, with the reason.
///
/// # Errors
/// If the campaign is none of a [`Plan`].
pub fn run(
    mut campaign: Campaign<Point>,
    device: &mut dyn Device,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Outcome> {
    let plan: Plan = serde_json::from_value(campaign.results.settings.clone())?;
    let mut procedure = Procedure { plan, device, standing: None };
    // The device itself looks for an interruption, also while it rests.
    let ended = campaign.run(&mut procedure, &AtomicBool::new(false), progress);
    let Procedure { plan, device, .. } = procedure;
    let error = ended.err();
    let unrestored = error.as_ref().and_then(Error::downcast_ref).map(|Uncleared(what)| what.clone());
    let failure = |e: &Error| {
        let known = e.downcast_ref::<Failure>().cloned();
        known.or_else(|| unrestored.is_none().then(|| Failure::Device(format!("{e:#}"))))
    };
    let stopped = error.as_ref().and_then(failure);
    let (source, grain) = (device.source(), device.grain());
    Ok(Outcome { results: campaign.results, plan, source, grain, stopped, unrestored })
}

struct Procedure<'a> {
    plan: Plan,
    device: &'a mut dyn Device,
    /// The state that the device was brought into.
    standing: Option<Radio>,
}

impl Procedure<'_> {
    fn cycle(&mut self, cycle: Cycle) -> Result<Duration, Failure> {
        if cycle != Cycle::Radio {
            return self.device.perform(Action::Rung(cycle));
        }
        let took = self.device.perform(Action::RadioOn)?;
        self.device.perform(Action::RadioOff)?;
        Ok(took)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.device.rest(Duration::from_secs_f64(self.plan.settle))
    }
}

impl Subject for Procedure<'_> {
    type Point = Point;
    type Stage = ();
    type Group = Radio;

    /// A repetition takes minutes, and cycles by themselves are warm from the second on.
    const WARMS_UP: bool = false;

    fn stage(_: &Point) {}

    fn group(point: &Point) -> Radio {
        point.radio
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        if self.standing == Some(point.radio) {
            return Ok(());
        }
        self.standing = None;
        if point.radio == Radio::Off {
            self.device.perform(Action::RadioOff)?;
        } else {
            if self.plan.radio {
                self.device.perform(Action::RadioOn)?;
            }
            if self.plan.power_save {
                self.device.perform(Action::PowerSave(point.radio == Radio::Saving))?;
            }
            self.device.perform(Action::SessionUp)?;
        }
        self.settle()?;
        self.standing = Some(point.radio);
        Ok(())
    }

    fn measure(&mut self, point: &Point, _: u32) -> Result<Figures> {
        let before = self.device.meter()?;
        let mut times = Vec::new();
        match point.cycle {
            None => self.device.rest(Duration::from_secs_f64(self.plan.idle))?,
            Some(cycle) => {
                for _ in 0..point.cycles {
                    times.push(self.cycle(cycle)?.as_secs_f64());
                }
                self.settle()?;
            }
        }
        let after = self.device.meter()?;
        if after.uncounted > before.uncounted {
            let missing = (after.uncounted - before.uncounted).as_secs_f64();
            let why = "the device was plugged in, or the meter was not readable";
            return Err(
                Failure::Device(format!("the meter missed {missing:.0} s of a measurement: {why}")).into()
            );
        }
        let seconds = after.at.saturating_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            let why = "the meter's data do not advance: is the instrument still writing its file?";
            return Err(Failure::Device(why.into()).into());
        }
        let window = Figures::default().with("joules", after.joules - before.joules).with("seconds", seconds);
        Ok(window.with_all("times", times))
    }

    fn clear(&mut self) -> Result<()> {
        self.standing = None;
        Ok(self.device.restore()?)
    }

    fn is_over(error: &Error) -> bool {
        !matches!(error.downcast_ref(), Some(Failure::Here(_)))
    }
}
