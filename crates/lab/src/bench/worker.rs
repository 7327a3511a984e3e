//! A second process of this program that measures: with fewer instructions for its cryptographic library than the processor has,
//! or on another machine ([`far`]). Owns the masks, and the jobs and answers between the two; must never claim that a mask works
//! without having measured it.
//!
//! The library reads `OPENSSL_ia32cap` (x86) or `OPENSSL_armcap` (ARM) once, before its first use: so a mask takes a process
//! of its own.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use dormouse_crypto::measure::Primitive;
use serde::{Deserialize, Serialize};

use super::child::{self, Child};
use super::far::{self, Hello, Order, Side};
use super::memory;
use crate::results::Figures;
use crate::results::esp::{CPU_THREAD, Direction, Point, What};

/// What a job takes beyond the time that it asks for: a tunnel's end may take ten seconds to say that it does not start.
const PATIENCE: Duration = Duration::from_secs(40);

/// Which instructions are hidden from the library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mask {
    /// AES and carry-less multiplication, of every width.
    Aes,
    /// The wide forms alone: VAES, VPCLMULQDQ and AVX-512.
    Wide,
    /// These, AVX2 and the bit manipulation that goes with it (BMI1, BMI2, ADX).
    Avx2,
}

impl Mask {
    /// What is hidden, in words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Aes => "AES and carry-less multiplication",
            Self::Wide => "AVX-512, VAES and VPCLMULQDQ",
            Self::Avx2 => "AVX-512, VAES, VPCLMULQDQ, AVX2 and BMI",
        }
    }

    /// The environment variable and its value on this architecture; `None` where there is no such mask.
    pub(crate) fn environment(self) -> Option<(&'static str, &'static str)> {
        match (self, std::env::consts::ARCH) {
            // Two words of 64 bits: CPUID leaf 1 (ECX above EDX), then leaf 7 (ECX above EBX).
            // AES-NI is ECX 25, PCLMULQDQ ECX 1; VAES and VPCLMULQDQ are ECX 9 and 10 of leaf 7.
            (Self::Aes, "x86_64") => Some(("OPENSSL_ia32cap", "~0x200000200000000:~0x60000000000")),
            // EBX of leaf 7: AVX-512 F 16, DQ 17, IFMA 21, BW 30, VL 31.
            (Self::Wide, "x86_64") => Some(("OPENSSL_ia32cap", "~0x0:~0x600c0230000")),
            // And AVX2 5, BMI1 3, BMI2 8, ADX 19.
            (Self::Avx2, "x86_64") => Some(("OPENSSL_ia32cap", "~0x0:~0x600c02b0128")),
            // ARMV8_AES is bit 2, ARMV8_PMULL bit 5.
            (Self::Aes, "aarch64") => Some(("OPENSSL_armcap", "~0x24")),
            _ => None,
        }
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
    Primitive {
        name: String,
        block: usize,
        millis: u64,
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
    Rate(f64),
    Hello(Box<Hello>),
    Far(far::Answer),
}

/// The child. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Worker(Child);

impl Worker {
    /// Starts this program again, under `mask`.
    ///
    /// # Errors
    /// If there is no such mask here, or no process can be started.
    pub(crate) fn start(mask: Mask) -> Result<Self> {
        let Some((variable, value)) = mask.environment() else {
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

    /// One primitive, as [`memory::primitive`] does it here.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub(crate) fn primitive(&mut self, name: &str, block: usize, time: Duration) -> Result<f64> {
        let job = Job::Primitive { name: name.to_owned(), block, millis: millis(time) };
        match self.0.ask(&job, time + PATIENCE)? {
            Answer::Rate(rate) => Ok(rate),
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
        Job::Primitive { name, block, millis } => {
            let primitive = Primitive::by_name(&name).with_context(|| format!("no primitive {name:?}"))?;
            Answer::Rate(memory::primitive(primitive, block, Duration::from_millis(millis))?)
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
