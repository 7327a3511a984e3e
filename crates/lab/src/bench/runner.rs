//! Carries out one point at a time. Owns what points share and what takes time to set up: the two hosts, the tunnel that
//! stands, the second process; must never decide what is measured or when.

use std::time::Duration;

use anyhow::{Context, Error, Result, bail};

use super::far::Pair;
use super::governor::{self, Governors};
use super::joules::Joules;
use super::link::{Bed, Key, Link, Pinned};
use super::plan::Times;
use super::worker::Worker;
use super::{Lost, memory, traffic, transfer};
use crate::campaign::{Subject, cpu};
use crate::results::esp::{Point, What};
use crate::results::format::Skipped;
use crate::results::{Figures, Point as _};

/// Points that are measured one after the other, without anything set up anew between them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Group {
    /// In memory: nothing is set up.
    Memory(String),
    /// Over this link.
    Link(Key),
}

impl Group {
    /// That of a point.
    pub(crate) fn of(sample: &Point) -> Self {
        match sample.what {
            What::Crypto => Self::Memory(sample.label()),
            _ => Self::Link(Key::of(sample)),
        }
    }

    /// Whether something is set up for it.
    pub(crate) const fn has_tunnel(&self) -> bool {
        matches!(self, Self::Link(_))
    }
}

/// How long the machine is watched at rest, to know what it does by itself.
const AT_REST: Duration = Duration::from_millis(400);

/// Carries out points.
#[derive(Debug)]
pub(crate) struct Runner {
    times: Times,
    seed: u64,
    /// Processors' worth of work that the machine does anyway, in this round.
    idle: Option<f64>,
    joules: Joules,
    /// Once a point wants another than there was.
    governors: Option<Governors>,
    worker: Option<Worker>,
    // In this order: the link goes before the hosts that it connects.
    link: Option<(Key, Link, Pinned)>,
    bed: Option<Bed>,
    /// Where the other end is on another machine: what stands between the two.
    between: Option<(Key, Pinned)>,
    pair: Option<Pair>,
}

impl Runner {
    /// Sets nothing up yet. With a `pair`, what needs a link is measured between its two machines.
    pub(crate) fn new(times: Times, seed: u64, joules: Joules, pair: Option<Pair>) -> Self {
        Self {
            times,
            seed,
            idle: None,
            joules,
            governors: None,
            worker: None,
            link: None,
            bed: None,
            between: None,
            pair,
        }
    }

    fn once(&mut self, sample: &Point, round: u32) -> Result<Figures> {
        let time = self.times.of_round(sample, round);
        let seed = self.seed ^ u64::from(round);
        if sample.what == What::Crypto {
            if sample.aes_instructions == Some(false) {
                let answer = self.worker.as_mut().context("no worker")?.run(sample, time, seed);
                if answer.is_err() {
                    self.worker = None;
                }
                return answer;
            }
            return memory::in_memory(sample, time, seed);
        }
        if self.pair.is_some() {
            return self.pair(&Key::of(sample))?.measure(sample, time);
        }
        let idle = self.idle.context("the machine at rest was not looked at")?;
        let link = self.link(&Key::of(sample))?;
        match sample.what {
            What::Path => traffic::path(link, sample, time, idle),
            What::Stream => traffic::stream(link, sample, time, idle),
            What::Download | What::Tls => transfer::run(link, sample, idle),
            What::Crypto => bail!("cryptography alone needs no link"),
        }
    }

    /// Takes away what stands.
    fn down(&mut self) {
        self.link = None;
        if let Some(pair) = &mut self.pair {
            pair.clear();
        }
        self.between = None;
    }

    /// The two machines with what this key says between them: as it stands, or anew.
    fn pair(&mut self, key: &Key) -> Result<&mut Pair> {
        let pair = self.pair.as_mut().context("no other machine")?;
        if self.between.as_ref().is_none_or(|(standing, _)| standing != key) {
            self.between = None;
            let pinned = Pinned::to(key.cores)?;
            pair.lay(key)?;
            self.between = Some((key.clone(), pinned));
        }
        Ok(pair)
    }

    /// The link of this key: the one that stands, or a new one.
    fn link(&mut self, key: &Key) -> Result<&mut Link> {
        if self.link.as_ref().is_none_or(|(standing, ..)| standing != key) {
            self.link = None;
            if self.bed.is_none() {
                self.bed = Some(Bed::new()?);
            }
            let bed = self.bed.as_ref().context("no hosts")?;
            // Threads inherit the processors of the one that makes them: first this.
            let pinned = Pinned::to(key.cores)?;
            let link = Link::start(bed, key)?;
            transfer::verify(&link)?;
            self.link = Some((key.clone(), link, pinned));
        }
        let (_, link, _) = self.link.as_mut().context("no link")?;
        Ok(link)
    }
}

impl Subject for Runner {
    type Point = Point;
    /// Governor by governor: changing one takes time to settle.
    type Stage = Option<String>;
    type Group = Group;

    fn stage(point: &Point) -> Option<String> {
        point.governor.clone()
    }

    fn group(point: &Point) -> Group {
        Group::of(point)
    }

    /// What the machine does by itself is looked at anew in each round: one bad look is then one bad round, which a median
    /// bears, and not a bias of all.
    fn begin_round(&mut self, _: u32) {
        self.idle = None;
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        match (&mut self.governors, &point.governor) {
            (Some(governors), Some(wanted)) => governors.set(wanted)?,
            (None, Some(wanted)) => self.governors.insert(governor::here()?).set(wanted)?,
            (Some(governors), None) => governors.restore()?,
            (None, None) => {}
        }
        if point.what == What::Crypto {
            // A tunnel that stands would be in the way of the other processors.
            self.down();
            if point.aes_instructions == Some(false) && self.worker.is_none() {
                self.worker = Some(Worker::without_aes()?);
            }
        } else if self.pair.is_some() {
            self.pair(&Key::of(point))?;
        } else {
            if self.idle.is_none() {
                self.down();
                self.idle = Some(cpu::idle_rate(AT_REST)?);
            }
            self.link(&Key::of(point))?;
        }
        Ok(())
    }

    /// Round 0 is shorter where time decides.
    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        let (before, start) = (self.joules.counted(), cpu::wall());
        let figures = self.once(point, round)?;
        let figures = self.joules.add(point.what, figures, before, start.elapsed());
        if point.what == What::Stream && point.offered.is_none() {
            // What it left in the queues must not delay what comes next.
            self.down();
        }
        Ok(figures)
    }

    fn clear(&mut self) -> Result<()> {
        self.down();
        self.governors.as_mut().map_or(Ok(()), Governors::restore)
    }

    fn is_over(error: &Error) -> bool {
        error.is::<Lost>()
    }

    fn skipped(&self) -> Vec<Skipped> {
        let why = self.joules.unresolved();
        why.map(|reason| Skipped::new("energy of short measurements", reason)).into_iter().collect()
    }
}
