//! A second process of this program that measures: with fewer instructions for its cryptographic library than the processor has,
//! or on another machine ([`far`]). Owns the mask, and the jobs and answers between the two; must never claim that a mask works
//! without having measured it.
//!
//! The library reads `OPENSSL_ia32cap` (x86) or `OPENSSL_armcap` (ARM) once, before its first use: so a mask takes a process
//! of its own.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::child::{self, Child};
use super::far::{self, Hello, Order, Side};
use super::memory;
use crate::results::Figures;
use crate::results::esp::{CPU_THREAD, Direction, Point, What};

/// What a job takes beyond the time that it asks for: a tunnel's end may take ten seconds to say that it does not start.
const PATIENCE: Duration = Duration::from_secs(40);

/// The environment variable that hides AES and carry-less multiplication, of every width, from the library, and its value on this
/// architecture; `None` where none is known.
pub(crate) const fn without_aes() -> Option<(&'static str, &'static str)> {
    if cfg!(target_arch = "x86_64") {
        // Two words of 64 bits: CPUID leaf 1 (ECX above EDX), then leaf 7 (ECX above EBX).
        // AES-NI is ECX 25, PCLMULQDQ ECX 1; VAES and VPCLMULQDQ are ECX 9 and 10 of leaf 7.
        Some(("OPENSSL_ia32cap", "~0x200000200000000:~0x60000000000"))
    } else if cfg!(target_arch = "aarch64") {
        // ARMV8_AES is bit 2, ARMV8_PMULL bit 5.
        Some(("OPENSSL_armcap", "~0x24"))
    } else {
        None
    }
}

/// What the child is asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Job {
    Point {
        point: Box<Point>,
        millis: u64,
        seed: u64,
    },
    /// To be the far one of two machines from now on...
    Hello,
    /// ...and to do its part.
    Order(Order),
}

/// What it answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Figures(Figures),
    Hello(Box<Hello>),
    Far(far::Answer),
}

/// The child. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Worker(Child);

impl Worker {
    /// Starts this program again, without AES instructions.
    ///
    /// # Errors
    /// If they cannot be hidden here, or no process can be started.
    pub(crate) fn without_aes() -> Result<Self> {
        let Some((variable, value)) = without_aes() else {
            bail!("no mask of instructions is known for {}", std::env::consts::ARCH);
        };
        let mut command = Command::new(Child::program()?);
        Ok(Self(Child::start(command.args(["bench", "worker"]).env(variable, value))?))
    }

    /// Starts it by another program, which runs it on another machine.
    ///
    /// # Errors
    /// If that cannot be started.
    pub(super) fn behind(command: &mut Command) -> Result<Self> {
        Ok(Self(Child::start(command)?))
    }

    /// One point, as [`memory::in_memory`] does it here.
    ///
    /// # Errors
    /// What went wrong there; or the child's end.
    pub(crate) fn run(&mut self, point: &Point, time: Duration, seed: u64) -> Result<Figures> {
        let point = Box::new(point.clone());
        match self.0.ask(&Job::Point { point, millis: millis(time), seed }, time + PATIENCE)? {
            Answer::Figures(figures) => Ok(figures),
            _ => Err(unexpected()),
        }
    }

    /// Who is there, of a worker on another machine.
    ///
    /// # Errors
    /// What is in the way there; or the child's end.
    pub(super) fn hello(&mut self) -> Result<Hello> {
        // ssh may ask for a password first.
        match self.0.ask(&Job::Hello, 5 * PATIENCE)? {
            Answer::Hello(hello) => Ok(*hello),
            _ => Err(unexpected()),
        }
    }

    /// Its part of a measurement, of a worker on another machine; `time` is what the order itself asks for.
    ///
    /// # Errors
    /// As [`Worker::hello`].
    pub(super) fn order(&mut self, order: Order, time: Duration) -> Result<far::Answer> {
        match self.0.ask(&Job::Order(order), time + PATIENCE)? {
            Answer::Far(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }
}

/// An answer to another question.
pub(super) fn unexpected() -> anyhow::Error {
    anyhow!("the worker answered another question")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The child's side: answers the jobs of standard input until it ends. `link`: the two ends of the connection by which it was
/// started from another machine, as `SSH_CONNECTION` has them.
///
/// # Errors
/// If it cannot answer.
pub fn serve(link: Option<&str>) -> Result<()> {
    let mut side = None;
    child::serve(|job, closed| answer(job, link, &mut side, closed))
}

fn answer(job: Job, link: Option<&str>, side: &mut Option<Side>, closed: &AtomicBool) -> Result<Answer> {
    Ok(match job {
        Job::Point { point, millis, seed } => {
            Answer::Figures(memory::in_memory(&point, Duration::from_millis(millis), seed)?)
        }
        Job::Hello => {
            let (made, hello) = far::hello(link.context("started by no other machine")?)?;
            *side = Some(made);
            Answer::Hello(Box::new(hello))
        }
        Job::Order(order) => {
            let side = side.as_mut().context("an order without a greeting")?;
            Answer::Far(side.obey(order, closed)?)
        }
    })
}

/// Proof that the mask is honoured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    /// How many times slower AES-128-GCM is under the mask.
    pub(crate) aes: f64,
    /// The same for ChaCha20-Poly1305, which has no use for these instructions: near 1, or the process itself is slower.
    pub(crate) other: f64,
}

impl Proof {
    /// Below this the mask has no effect worth the name.
    const SLOWER: f64 = 1.5;

    /// Measures it: best of several turns, so that a busy machine proves nothing that is not so.
    ///
    /// # Errors
    /// If one of the two cannot be measured.
    pub(crate) fn measure(worker: &mut Worker) -> Result<Self> {
        let mut ratio = |suite: &str| -> Result<f64> {
            let mut point = Point::new(What::Crypto, suite, 1_400, 1);
            point.direction = Direction::Out;
            let (mut here, mut there) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..5 {
                let time = Duration::from_millis(10);
                let cost = |figures: Figures| figures.one(CPU_THREAD).unwrap_or(f64::INFINITY);
                here = here.min(cost(memory::in_memory(&point, time, 1)?));
                there = there.min(cost(worker.run(&point, time, 1)?));
            }
            Ok(there / here)
        };
        Ok(Self { aes: ratio("aes128gcm16")?, other: ratio("chacha20poly1305")? })
    }

    /// Whether the mask works.
    pub(crate) fn holds(self) -> bool {
        self.aes >= Self::SLOWER * self.other.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_without_effect_is_no_mask() {
        assert!(Proof { aes: 7.0, other: 1.02 }.holds());
        assert!(!Proof { aes: 1.1, other: 1.0 }.holds());
        assert!(!Proof { aes: 2.1, other: 2.0 }.holds(), "the whole process is slower");
    }
}
