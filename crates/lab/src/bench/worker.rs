//! A second process of this program whose cryptographic library is made to use fewer instructions than the processor has. Owns the
//! masks, the child and the words between the two; must never claim that a mask works without having measured it.
//!
//! The library reads `OPENSSL_ia32cap` (x86) or `OPENSSL_armcap` (ARM) once, before its first use: so a mask takes a process
//! of its own. The child reads one job a line, as JSON, and answers with one line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dormouse_crypto::measure::Primitive;
use serde::{Deserialize, Serialize};

use super::memory;
use crate::results::format::{Direction, Round, Sample, What};

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
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Job {
    Sample { sample: Box<Sample>, millis: u64, seed: u64 },
    Primitive { name: String, block: usize, millis: u64 },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Round(Box<Round>),
    Rate(f64),
    Failed(String),
}

/// The child. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program again, under `mask`.
    ///
    /// # Errors
    /// If there is no such mask here, or no process can be started.
    pub(crate) fn start(mask: Mask) -> Result<Self> {
        let Some((variable, value)) = mask.environment() else {
            bail!("no mask of instructions is known for {}", std::env::consts::ARCH);
        };
        let program = std::env::current_exe().context("this program's own file")?;
        let mut child = Command::new(&program)
            .args(["bench", "worker"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = BufReader::new(from.context("the worker's output")?);
        Ok(Self { child, to, from })
    }

    /// One point, as [`memory::run`] does it here.
    ///
    /// # Errors
    /// What went wrong there; or the child's end.
    pub(crate) fn run(&mut self, sample: &Sample, time: Duration, seed: u64) -> Result<Round> {
        let sample = Box::new(Sample { rounds: Vec::new(), ..sample.clone() });
        match self.ask(&Job::Sample { sample, millis: millis(time), seed })? {
            Answer::Round(round) => Ok(*round),
            other => unexpected(other),
        }
    }

    /// One primitive, as [`memory::primitive`] does it here.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub(crate) fn primitive(&mut self, name: &str, block: usize, time: Duration) -> Result<f64> {
        match self.ask(&Job::Primitive { name: name.to_owned(), block, millis: millis(time) })? {
            Answer::Rate(rate) => Ok(rate),
            other => unexpected(other),
        }
    }

    fn ask(&mut self, job: &Job) -> Result<Answer> {
        let to = self.to.as_mut().context("the worker has ended")?;
        let mut line = serde_json::to_string(job)?;
        line.push('\n');
        to.write_all(line.as_bytes()).context("asking the worker")?;
        line.clear();
        if self.from.read_line(&mut line).context("hearing the worker")? == 0 {
            bail!("the worker ended: {}", self.child.wait()?);
        }
        serde_json::from_str(&line).with_context(|| format!("the worker answered {line:?}"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its input ends it; a worker in the middle of a job does not get the time to finish it.
        self.to = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected<T>(answer: Answer) -> Result<T> {
    match answer {
        Answer::Failed(why) => bail!(why),
        other => bail!("the worker answered {other:?}"),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The child's side: answers the jobs of standard input until it ends.
///
/// # Errors
/// If it can neither hear nor answer.
pub fn serve() -> Result<()> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let answer = answer(&line?).unwrap_or_else(|e| Answer::Failed(format!("{e:#}")));
        let mut line = serde_json::to_string(&answer)?;
        line.push('\n');
        output.write_all(line.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<Answer> {
    Ok(match serde_json::from_str(line)? {
        Job::Sample { sample, millis, seed } => {
            Answer::Round(Box::new(memory::run(&sample, Duration::from_millis(millis), seed)?))
        }
        Job::Primitive { name, block, millis } => {
            let primitive = Primitive::by_name(&name).with_context(|| format!("no primitive {name:?}"))?;
            Answer::Rate(memory::primitive(primitive, block, Duration::from_millis(millis))?)
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
            let mut sample = Sample::new(What::Crypto, suite, 1_400, 1);
            sample.direction = Direction::Out;
            let (mut here, mut there) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..5 {
                let time = Duration::from_millis(10);
                here = here.min(memory::run(&sample, time, 1)?.cpu_thread.unwrap_or(f64::INFINITY));
                there = there.min(worker.run(&sample, time, 1)?.cpu_thread.unwrap_or(f64::INFINITY));
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
    fn a_job_is_answered_and_a_bad_one_refused_with_words() {
        let job = Job::Primitive { name: "aes128-ctr".into(), block: 1_424, millis: 1 };
        let line = serde_json::to_string(&job).unwrap();
        assert!(matches!(answer(&line), Ok(Answer::Rate(rate)) if rate > 0.0));
        let job = Job::Primitive { name: "rot13".into(), block: 16, millis: 1 };
        let error = answer(&serde_json::to_string(&job).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "no primitive \"rot13\"");
        assert!(answer("{").is_err());
    }

    #[test]
    fn a_mask_without_effect_is_no_mask() {
        assert!(Proof { aes: 7.0, other: 1.02 }.holds());
        assert!(!Proof { aes: 1.1, other: 1.0 }.holds());
        assert!(!Proof { aes: 2.1, other: 2.0 }.holds(), "the whole process is slower");
    }
}
