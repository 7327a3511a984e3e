//! What is done and in which order, and what comes out of it, burst by burst. Owns the plan; must never conclude anything.
//!
//! Several passes over everything, so that a moment in which the machine is busy hits all of it alike. In each pass, for each way
//! back into the session and each size of the crowd, some bursts: the clients begin at once, and the next burst begins when
//! the last of them is done.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_ike::LoadReport;
use dormouse_testbed::crowd::{Crowd, Done, Losses, Pki, Proof, Task};

use super::stage::{Overruns, Stage};
use crate::bench::cpu;

/// Passes over everything.
const PASSES: usize = 5;
/// The largest crowd.
pub(super) const MOST: usize = 1_000;
/// Sizes of the crowd: those of the paper, up to 20, and beyond.
const SIZES: [usize; 11] = [1, 2, 5, 10, 15, 20, 50, 100, 200, 500, MOST];
/// The ways back, in the order in which they are done.
pub(super) const WAYS: [Task; 5] = [Task::Full, Task::Strict, Task::Quick, Task::Update, Task::Held];
/// The sleep that devices announce before their sessions are used again.
const SLEEP: Duration = Duration::from_secs(600);

/// What is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) sizes: Vec<usize>,
}

impl Plan {
    /// Crowds of up to `most` clients, which must be from 1 to [`MOST`].
    pub(super) fn up_to(most: usize) -> Self {
        let mut sizes: Vec<usize> = SIZES.into_iter().filter(|n| *n < most).collect();
        sizes.push(most);
        Self { sizes }
    }

    /// Bursts of one pass: small crowds are over in no time, and large ones are many samples by themselves.
    const fn bursts(size: usize) -> usize {
        match size {
            0..=20 => 5,
            21..=100 => 2,
            _ => 1,
        }
    }

    fn largest(&self) -> usize {
        self.sizes.last().copied().unwrap_or(1)
    }

    /// About how long all of it takes, from what a core of 3 GHz needs for one of each: mostly the full exchanges, in which both
    /// ends sign with RSA.
    pub(super) fn expected(&self) -> Duration {
        let clients: usize = self.sizes.iter().map(|n| n * Self::bursts(*n)).sum();
        let checks = self.sizes.len() * WAYS.len();
        Duration::from_millis((PASSES * (clients * 4 + checks * 60 + 1_500)) as u64)
    }
}

/// One burst. Times in milliseconds, one for each client.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    pub(super) way: Task,
    pub(super) size: usize,
    /// Until the exchange was over.
    pub(super) ready: Vec<f64>,
    /// Until the first answer came through the tunnel.
    pub(super) answered: Vec<f64>,
    /// Round trips of all clients together.
    pub(super) round_trips: u64,
    /// CPU time of the gateway, in milliseconds.
    pub(super) gateway_cpu: f64,
    /// CPU time of the clients, in milliseconds.
    pub(super) clients_cpu: f64,
    pub(super) losses: Losses,
}

/// What the gateway told its devices after the bursts of one way and size.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) way: Task,
    pub(super) size: usize,
    pub(super) report: LoadReport,
}

/// Everything that came out.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) bursts: Vec<Burst>,
    pub(super) told: Vec<Told>,
    pub(super) overruns: Overruns,
    /// IKE messages that the gateway sent again.
    pub(super) gateway_repeated: u64,
}

struct Campaign<'a> {
    stage: Stage,
    crowd: Crowd,
    plan: &'a Plan,
    out: Outcome,
}

/// Carries the plan out.
///
/// # Errors
/// If a burst does not end as it must, or `interrupted` is set; everything that was made is removed either way.
pub(super) fn run(plan: &Plan, interrupted: &Arc<AtomicBool>, progress: fn(&str)) -> Result<Outcome> {
    let pki = Pki::new(Proof::Rsa2048)?;
    let stage = Stage::build(&pki).context("setting the stage")?;
    let crowd = stage.crowd(&pki, plan.largest(), interrupted)?;
    let mut campaign = Campaign { stage, crowd, plan, out: Outcome::default() };
    for pass in 1..=PASSES {
        progress(&format!("pass {pass} of {PASSES}"));
        campaign.pass(pass).with_context(|| format!("pass {pass}"))?;
    }
    campaign.out.overruns = campaign.stage.overruns()?;
    Ok(campaign.out)
}

impl Campaign<'_> {
    fn pass(&mut self, pass: usize) -> Result<()> {
        if pass > 1 {
            self.stage.restart(true)?;
            self.crowd.forget()?;
        }
        for way in WAYS {
            if matches!(way, Task::Strict | Task::Quick) {
                // The gateway has lost every session, and not its ticket keys: what tickets are for.
                self.note_repetitions()?;
                self.stage.restart(false)?;
            }
            for &size in &self.plan.sizes {
                self.bursts(way, size).with_context(|| format!("{size} clients, {way:?}"))?;
            }
        }
        self.note_repetitions()
    }

    fn bursts(&mut self, way: Task, size: usize) -> Result<()> {
        for _ in 0..Plan::bursts(size) {
            match way {
                Task::Full => self.crowd.close(self.plan.largest())?,
                Task::Held => self.crowd.sleep(size, SLEEP)?,
                _ => {}
            }
            let burst = self.burst(way, size)?;
            self.out.bursts.push(burst);
        }
        // Crowds only grow, so the gateway has no other client's session, except where all of them have one before.
        let (count, resumed) = match way {
            Task::Full => (size, Some(false)),
            Task::Strict | Task::Quick => (size, Some(true)),
            Task::Update | Task::Held => (self.plan.largest(), None),
        };
        self.stage.check(count, resumed, self.crowd.addresses(size))?;
        if matches!(way, Task::Full | Task::Strict | Task::Quick) {
            let report = self.crowd.ask_load()?;
            self.out.told.push(Told { way, size, report });
        }
        Ok(())
    }

    fn burst(&mut self, way: Task, size: usize) -> Result<Burst> {
        let before = (self.stage.gateway_cpu(), cpu::thread(), self.crowd.losses());
        let done = self.crowd.run(size, way, |_| false)?;
        let after = (self.stage.gateway_cpu(), cpu::thread(), self.crowd.losses());
        let millis = |d: Duration| d.as_secs_f64() * 1e3;
        let times = |of: fn(&Done) -> Option<Duration>| done.iter().filter_map(of).map(millis).collect();
        Ok(Burst {
            way,
            size,
            ready: times(|d| Some(d.ready)),
            answered: times(|d| d.answered),
            round_trips: done.iter().map(|d| d.round_trips).sum(),
            gateway_cpu: millis(after.0.saturating_sub(before.0)),
            clients_cpu: millis(after.1.saturating_sub(before.1)),
            losses: after.2.since(before.2),
        })
    }

    /// A gateway that is about to be killed takes its counters along.
    fn note_repetitions(&mut self) -> Result<()> {
        self.out.gateway_repeated += self.stage.counter("ike.retransmissions")?;
        Ok(())
    }
}
