//! Our primitives against `openssl speed`, in turn, in one run. Owns the reading of its output, and the search for the reason
//! where the two differ; must never name a reason that the figures do not show.
//!
//! Like is compared with like: the same blocks, the CPU time of one thread on both sides, and the same instructions. Two
//! libraries that know different instructions are compared again with the wider ones hidden from both (the mask is one that
//! both read, since one descends from the other), and large blocks tell the work on each byte from the cost of a call.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_crypto::measure::Primitive;
use dormouse_testbed::Need;
use serde::Serialize;

use super::memory;
use super::worker::{Mask, Worker};
use crate::judge::stats;

/// The block that packets are like: a multiple of every cipher's block.
const PACKET: usize = 1_424;
/// The block whose calls cost nothing.
const LARGE: usize = 16_384;
/// Two figures within this factor of each other agree.
const AGREE: f64 = 1.1;
/// Of ours; OpenSSL's own benchmark counts whole seconds.
const TIME: Duration = Duration::from_millis(300);

/// Which instructions are hidden from both libraries, one kind more each time.
const LADDER: [Option<Mask>; 3] = [None, Some(Mask::Wide), Some(Mask::Avx2)];

/// One primitive against OpenSSL's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Against {
    /// Its name.
    pub name: &'static str,
    /// With the processor as it is, then with ever more instructions hidden from both libraries.
    pub compared: Vec<Compared>,
    /// Whether they agree within 10 % at packet size, with the processor as it is.
    pub agree: bool,
    /// Whether like agrees with like within 10 %: both with the same instructions, on the larger blocks if need be.
    pub agree_alike: bool,
    /// What the figures show.
    pub verdict: String,
}

/// Both libraries with the same instructions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// What is hidden from both; empty if nothing is.
    pub hidden: &'static str,
    /// At packet size, 1,424 bytes.
    pub packet: Speeds,
    /// With blocks of 16 KiB.
    pub large: Speeds,
}

/// Medians over the rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Speeds {
    /// Bytes a second, OpenSSL's.
    pub openssl: f64,
    /// Bytes a second, ours.
    pub ours: f64,
    /// Ours over OpenSSL's, round by round.
    pub ratio: f64,
}

/// Compares all primitives, `rounds` times in turn. Returns OpenSSL's version with the table.
///
/// # Errors
/// Without OpenSSL, or when interrupted.
pub fn compare(
    rounds: u32,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(String, Vec<Against>)> {
    if let Some(missing) = Need::Program("openssl").missing() {
        bail!("{missing} is missing (Debian: apt-get install openssl)");
    }
    let version = Command::new("openssl").arg("version").output().context("openssl version")?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let mut rungs: Vec<Rung> = LADDER.into_iter().filter_map(Rung::start).collect();
    let mut measured: Vec<(Primitive, Vec<Round>)> = Primitive::all().map(|p| (p, Vec::new())).collect();
    for round in 1..=rounds.max(1) {
        for (primitive, done) in &mut measured {
            let mut this = Round::new();
            for rung in &mut rungs {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                progress(&format!("round {round} of {rounds}: {}{}", primitive.name(), rung.without()));
                this.push([rung.sides(*primitive, PACKET)?, rung.sides(*primitive, LARGE)?]);
            }
            done.push(this);
        }
    }
    let hidden: Vec<_> = rungs.iter().map(Rung::hidden).collect();
    Ok((version, measured.iter().map(|(p, rounds)| against(p.name(), &hidden, rounds)).collect()))
}

/// How long [`compare`] takes, about.
#[must_use]
pub fn expected(rounds: u32) -> Duration {
    let each = (Duration::from_secs(1) + TIME) * 2 * u32::try_from(LADDER.len()).unwrap_or(u32::MAX);
    each * u32::try_from(Primitive::all().count()).unwrap_or(u32::MAX) * rounds.max(1)
}

/// OpenSSL's figure and ours.
type Sides = [f64; 2];
/// One round of a primitive: for each rung of the ladder, packets and large blocks.
type Round = Vec<[Sides; 2]>;

/// A rung of the ladder: a mask, and the process of ours that is under it.
enum Rung {
    Bare,
    Masked(Mask, Worker),
}

impl Rung {
    /// Nothing where there is no such mask.
    fn start(mask: Option<Mask>) -> Option<Self> {
        match mask {
            None => Some(Self::Bare),
            Some(mask) => Worker::start(mask).ok().map(|worker| Self::Masked(mask, worker)),
        }
    }

    const fn hidden(&self) -> &'static str {
        match self {
            Self::Bare => "",
            Self::Masked(mask, _) => mask.words(),
        }
    }

    fn without(&self) -> String {
        match self {
            Self::Bare => String::new(),
            Self::Masked(mask, _) => format!(" without {}", mask.words()),
        }
    }

    /// Both libraries' speeds, one after the other.
    fn sides(&mut self, primitive: Primitive, block: usize) -> Result<Sides> {
        Ok(match self {
            Self::Bare => [speed(primitive, block, None)?, memory::primitive(primitive, block, TIME)?],
            Self::Masked(mask, worker) => [
                speed(primitive, block, mask.environment())?,
                worker.primitive(primitive.name(), block, TIME)?,
            ],
        })
    }
}

/// `openssl speed` for one second, in bytes a second of its own user time; `mask` is a variable of its environment.
///
/// # Errors
/// If it cannot be run, or does not know the primitive.
pub fn speed(primitive: Primitive, block: usize, mask: Option<(&str, &str)>) -> Result<f64> {
    let mut command = Command::new("openssl");
    command.envs(mask);
    command.args(["speed", "-mr", "-seconds", "1", "-bytes", &block.to_string()]).args(primitive.openssl());
    let out = command.stderr(Stdio::null()).output().context("openssl speed")?;
    let text = String::from_utf8_lossy(&out.stdout);
    parse(&text).with_context(|| format!("{}: openssl speed says {text:?}", primitive.name()))
}

/// The figure of `+F:<number>:<name>:<bytes a second>`.
fn parse(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("+F:"))?;
    line.rsplit(':').next()?.trim().parse().ok().filter(|rate: &f64| *rate > 0.0)
}

fn against(name: &'static str, hidden: &[&'static str], rounds: &[Round]) -> Against {
    let compared: Vec<Compared> = hidden
        .iter()
        .enumerate()
        .map(|(rung, hidden)| {
            let speeds = |size: usize| {
                let median = |of: &dyn Fn(&Sides) -> f64| {
                    let of_rounds = rounds.iter().filter_map(|r| r.get(rung)?.get(size)).map(of);
                    stats::median(&of_rounds.collect::<Vec<_>>()).unwrap_or(f64::NAN)
                };
                Speeds {
                    openssl: median(&|s| s[0]),
                    ours: median(&|s| s[1]),
                    ratio: median(&|s| s[1] / s[0]),
                }
            };
            Compared { hidden, packet: speeds(0), large: speeds(1) }
        })
        .collect();
    let agree = compared.first().is_some_and(|c| agrees(c.packet.ratio));
    let (agree_alike, verdict) = verdict(&compared);
    Against { name, agree, agree_alike, verdict, compared }
}

fn agrees(ratio: f64) -> bool {
    (1.0 / AGREE..=AGREE).contains(&ratio)
}

impl Compared {
    /// Nanoseconds that a call costs beside the work on each byte: a + b n = t at both sizes, for OpenSSL and for us.
    fn call(&self) -> [f64; 2] {
        let of = |packet: f64, large: f64| {
            let (p, l) = (PACKET as f64, LARGE as f64);
            (1e9 * (p / packet) - 1e9 * (l / large) * (p / l)) / (1.0 - p / l)
        };
        [of(self.packet.openssl, self.large.openssl), of(self.packet.ours, self.large.ours)]
    }
}

/// The least that makes the two agree, if anything does: fewer instructions, then larger blocks.
fn verdict(compared: &[Compared]) -> (bool, String) {
    let Some(bare) = compared.first() else { return (false, "not measured".to_owned()) };
    for rung in compared {
        let once = if rung.hidden.is_empty() {
            String::new()
        } else {
            format!(" once {} are hidden from both ({})", rung.hidden, users(bare, rung))
        };
        if agrees(rung.packet.ratio) {
            return (true, format!("agree{once}"));
        }
        if agrees(rung.large.ratio) {
            let [theirs, ours] = rung.call();
            let cost = format!("a call costs {ours:.0} ns here, {theirs:.0} ns there");
            return (true, format!("agree on large blocks{once}; {cost}"));
        }
    }
    let last = compared.last().unwrap_or(bare);
    let ratio = last.large.ratio;
    (
        false,
        format!("different code: {ratio:.2} times OpenSSL's on large blocks even with the same instructions"),
    )
}

/// Which of the two has a use for what is hidden, by what it loses without.
fn users(bare: &Compared, rung: &Compared) -> String {
    let gain = |of: fn(&Speeds) -> f64| of(&bare.large) / of(&rung.large);
    let (ours, theirs) = (gain(|s| s.ours), gain(|s| s.openssl));
    let uses = |who: &str, gain: f64| {
        if gain > AGREE {
            format!("{who} {gain:.1} times faster with them")
        } else {
            format!("{who} no faster with them")
        }
    };
    format!("{}, {}", uses("ours is", ours), uses("OpenSSL's is", theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_machine_readable_line_is_understood() {
        assert_eq!(parse("+H:1424\n+F:25:AES-128-GCM:2166796373.33\n"), Some(2_166_796_373.33));
        assert_eq!(parse("+F:9:hmac(sha256):1471223064.15\n"), Some(1_471_223_064.15));
        assert_eq!(parse("Error setting cipher\n"), None);
        assert_eq!(parse("+F:25:AES-128-GCM:0.00\n"), None);
    }

    /// What is said of figures in GB/s: for each rung, OpenSSL's and ours for packets, then for large blocks.
    fn said(rungs: &[[f64; 4]]) -> ((bool, bool), String) {
        let hidden = ["", Mask::Wide.words(), Mask::Avx2.words()];
        let round = rungs.iter().map(|[a, b, c, d]| [[a * 1e9, b * 1e9], [c * 1e9, d * 1e9]]).collect();
        let told = against("test", &hidden[..rungs.len()], &[round]);
        ((told.agree, told.agree_alike), told.verdict)
    }

    #[test]
    fn the_reason_of_a_difference_is_looked_for_in_order() {
        assert_eq!(said(&[[1.0, 1.05, 1.0, 2.0]]), ((true, true), "agree".to_owned()));
        let (agree, wide) = said(&[[2.0, 6.0, 2.5, 9.0], [2.0, 2.1, 2.5, 2.5]]);
        assert_eq!(agree, (false, true));
        assert_eq!(
            wide,
            "agree once AVX-512, VAES and VPCLMULQDQ are hidden from both (ours is 3.6 times faster with them, OpenSSL's is no faster with them)"
        );
        let (_, avx2) = said(&[[1.0, 0.7, 1.0, 0.7], [1.0, 0.7, 1.0, 0.7], [0.7, 0.7, 0.7, 0.7]]);
        assert!(avx2.contains("AVX2") && avx2.contains("OpenSSL's is 1.4 times faster with them"), "{avx2}");
        let (agree, other) = said(&[[1.0, 0.4, 1.0, 0.4], [1.0, 0.4, 1.0, 0.4]]);
        assert_eq!(agree, (false, false));
        assert!(other.starts_with("different code: 0.40 times"), "{other}");
    }

    #[test]
    fn the_cost_of_a_call_is_what_does_not_grow_with_the_block() {
        // 1 ns a byte, and 100 ns a call here, 20 ns there.
        let speed = |n: f64, call: f64| n / (n + call);
        let (p, l) = (PACKET as f64, LARGE as f64);
        let (_, call) = said(&[[speed(p, 20.0), speed(p, 200.0), speed(l, 20.0), speed(l, 200.0)]]);
        assert_eq!(call, "agree on large blocks; a call costs 200 ns here, 20 ns there");
    }
}
