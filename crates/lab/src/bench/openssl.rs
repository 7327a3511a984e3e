//! Our primitives against `openssl speed`, in turn, in one run. Owns the reading of its output, and the search for the reason
//! where the two differ: wider instructions, the cost of a call, or another implementation.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_crypto::measure::Primitive;
use dormouse_testbed::Need;
use serde::Serialize;

use super::memory;
use super::worker::{Mask, Worker};
use crate::results::stats;

/// The block that packets are like: a multiple of every cipher's block.
const PACKET: usize = 1_424;
/// The block whose calls cost nothing.
const LARGE: usize = 16_384;
/// Two figures within this factor of each other agree.
const AGREE: f64 = 1.1;

/// One primitive against OpenSSL's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Against {
    /// Its name.
    pub name: &'static str,
    /// OpenSSL's speed at packet size, in bytes a second (median).
    pub openssl: f64,
    /// Ours.
    pub ours: f64,
    /// Ours over OpenSSL's, round by round (median).
    pub ratio: f64,
    /// The same with large blocks.
    pub ratio_large: f64,
    /// The same at packet size while VAES, VPCLMULQDQ and AVX-512 are hidden from our library; absent where they cannot be.
    pub ratio_narrow: Option<f64>,
    /// And with large blocks.
    pub ratio_large_narrow: Option<f64>,
    /// With large blocks while they are hidden from both libraries.
    pub ratio_both_narrow: Option<f64>,
    /// What to make of it.
    pub verdict: &'static str,
}

/// What is measured of one primitive in one round.
struct Sides {
    openssl: [f64; 2],
    ours: [f64; 2],
    narrow: Option<[f64; 2]>,
    /// OpenSSL's with large blocks under the same mask, which it invented.
    openssl_narrow: Option<f64>,
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
    let mut worker = Worker::start(Mask::Wide).ok();
    let mut measured: Vec<(Primitive, Vec<Sides>)> = Primitive::all().map(|p| (p, Vec::new())).collect();
    for round in 0..rounds.max(1) {
        for (primitive, sides) in &mut measured {
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
            progress(&format!("round {} of {rounds}: {}", round + 1, primitive.name()));
            sides.push(one(*primitive, worker.as_mut())?);
        }
    }
    Ok((version, measured.iter().map(|(p, sides)| against(*p, sides)).collect()))
}

fn one(primitive: Primitive, mut worker: Option<&mut Worker>) -> Result<Sides> {
    let time = Duration::from_millis(250);
    let mut sides = Sides {
        openssl: [0.0; 2],
        ours: [0.0; 2],
        narrow: worker.is_some().then_some([0.0; 2]),
        openssl_narrow: None,
    };
    for (i, block) in [PACKET, LARGE].into_iter().enumerate() {
        sides.openssl[i] = speed(primitive, block, None)?;
        sides.ours[i] = memory::primitive(primitive, block, time)?;
        if let (Some(worker), Some(narrow)) = (worker.as_deref_mut(), &mut sides.narrow) {
            narrow[i] = worker.primitive(primitive.name(), block, time)?;
        }
    }
    if sides.narrow.is_some() {
        sides.openssl_narrow = Some(speed(primitive, LARGE, Mask::Wide.environment())?);
    }
    Ok(sides)
}

/// `openssl speed` for one second, in bytes a second of its own user time.
fn speed(primitive: Primitive, block: usize, mask: Option<(&str, &str)>) -> Result<f64> {
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

fn against(primitive: Primitive, sides: &[Sides]) -> Against {
    let median = |of: &dyn Fn(&Sides) -> Option<f64>| -> Option<f64> {
        stats::median(&sides.iter().filter_map(of).collect::<Vec<_>>())
    };
    let ratio = |i: usize| median(&|s| Some(s.ours[i] / s.openssl[i])).unwrap_or(f64::NAN);
    let narrow = |i: usize| median(&|s| s.narrow.map(|n| n[i] / s.openssl[i]));
    let mut against = Against {
        name: primitive.name(),
        openssl: median(&|s| Some(s.openssl[0])).unwrap_or(f64::NAN),
        ours: median(&|s| Some(s.ours[0])).unwrap_or(f64::NAN),
        ratio: ratio(0),
        ratio_large: ratio(1),
        ratio_narrow: narrow(0),
        ratio_large_narrow: narrow(1),
        ratio_both_narrow: median(&|s| Some(s.narrow?[1] / s.openssl_narrow?)),
        verdict: "",
    };
    against.verdict = verdict(&against);
    against
}

fn agrees(ratio: f64) -> bool {
    (1.0 / AGREE..=AGREE).contains(&ratio)
}

fn verdict(against: &Against) -> &'static str {
    if agrees(against.ratio) {
        "agree within 10 %"
    } else if against.ratio_narrow.is_some_and(agrees) {
        "agree once VAES, VPCLMULQDQ and AVX-512 are hidden from our library: OpenSSL does not use them here"
    } else if agrees(against.ratio_large) {
        "agree on large blocks: what differs is the cost of a call (keys, IV, ICV of each packet)"
    } else if against.ratio_large_narrow.is_some_and(agrees) {
        "agree on large blocks once wide instructions are hidden: instructions and the cost of a call"
    } else if against.ratio_both_narrow.is_some_and(agrees) {
        "agree on large blocks once wide instructions are hidden from both: OpenSSL has a use for them here"
    } else {
        "another implementation: they differ with the same instructions and on large blocks too"
    }
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

    #[test]
    fn the_reason_of_a_difference_is_looked_for_in_order() {
        let primitive = Primitive::by_name("aes128gcm16").unwrap();
        let of = |ours: [f64; 2], narrow: Option<[f64; 2]>| {
            against(
                primitive,
                &[Sides { openssl: [1.0, 1.0], ours, narrow, openssl_narrow: narrow.map(|_| 0.5) }],
            )
            .verdict
        };
        assert!(of([1.05, 2.0], None).starts_with("agree within"));
        assert!(of([2.5, 3.0], Some([1.05, 1.3])).starts_with("agree once VAES"));
        assert!(of([0.7, 0.98], Some([0.7, 0.98])).starts_with("agree on large blocks: what differs"));
        assert!(of([2.0, 2.5], Some([0.7, 0.95])).starts_with("agree on large blocks once"));
        assert!(
            of([0.5, 0.5], Some([0.5, 0.5]))
                .starts_with("agree on large blocks once wide instructions are hidden from both")
        );
        assert!(of([0.2, 0.2], Some([0.2, 0.2])).starts_with("another implementation"));
    }
}
