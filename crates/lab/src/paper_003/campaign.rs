//! The points of paper 003. A transfer takes minutes of which hardly any is work, so that all points of a round run side by side, each on
//! hosts of its own. Owns the plan and the threads; must never conclude anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use dormouse_sansio::{Entropy as _, Seeded};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::run;
use crate::campaign::{self, Subject};
use crate::experiment::Context;
use crate::results::{self, Figures, Results};

/// Rounds; each has a seed of its own. The paper has five runs.
const ROUNDS: u32 = 10;
const SHORT_ROUNDS: u32 = 5;
/// The paper's file, and that of the short form, in bytes.
const FILE: u64 = 10_000_000;
const SHORT_FILE: u64 = 1_000_000;
/// Transfers at once for each processor: one needs some 700 packets a second carried.
const AT_ONCE: usize = 8;

/// What carries the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    /// TCP alone.
    Tcp,
    /// TCP, and SNOOP at the access router.
    Snoop,
    /// TCP through the tunnel of two daemons.
    Ipsec,
    /// TCP through a tunnel in two zones, under keys of the plan.
    Mml,
    /// The same, with SNOOP at an access router that has the key of the headers.
    MmlSnoop,
    /// The tunnel of two daemons, with the radio repaired by the numbers of ESP.
    EspArq,
}

impl Line {
    pub(super) const ALL: [Self; 6] =
        [Self::Tcp, Self::Snoop, Self::Ipsec, Self::Mml, Self::MmlSnoop, Self::EspArq];

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Snoop => "TCP+SNOOP",
            Self::Ipsec => "IPsec",
            Self::Mml => "MML-IPsec",
            Self::MmlSnoop => "MML-IPsec+SNOOP",
            Self::EspArq => "IPsec+esp-arq",
        }
    }
}

/// The TCP of both hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stack {
    /// As in the paper: Reno, a window of 64 KB, and nothing that came later.
    Reno,
    /// As Linux ships.
    Cubic,
    /// The same with BBR.
    Bbr,
}

impl Stack {
    pub(super) const ALL: [Self; 3] = [Self::Reno, Self::Cubic, Self::Bbr];

    /// As the kernel calls it.
    pub(super) const fn congestion(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Reno => "Reno without SACK and timestamps",
            Self::Cubic => "CUBIC",
            Self::Bbr => "BBR",
        }
    }
}

/// One file over one radio.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) line: Line,
    pub(super) stack: Stack,
    /// One bit in so many times 1,024 is wrong; 0 for none.
    pub(super) kbit: u32,
}

/// The paper's error rates, worst first.
pub(super) const ERRORS: [u32; 9] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 0];
const SHORT_ERRORS: [u32; 4] = [64, 256, 1_024, 0];

impl results::Point for Point {
    const EXPERIMENT: &'static str = super::EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // Bits of the file in a second.
        ("rate", "bit/s"),
        // Packets towards the device that the radio broke, that the router repeated, and that the sender sent again.
        ("broken", "count"),
        ("repeated", "count"),
        ("sent_again", "count"),
    ];

    fn label(&self) -> String {
        format!("{}, {}, {}", self.line.words(), self.stack.words(), errors(self.kbit))
    }
}

/// An error rate in the paper's words.
pub(super) fn errors(kbit: u32) -> String {
    match kbit {
        0 => "no errors".to_owned(),
        1..1_024 => format!("1/{kbit} kbit"),
        _ => format!("1/{} Mbit", kbit / 1_024),
    }
}

pub(super) fn plan(short: bool, seed: u64) -> campaign::Plan<Point> {
    let (name, rounds, bytes) =
        if short { ("quick", SHORT_ROUNDS, SHORT_FILE) } else { ("full", ROUNDS, FILE) };
    let (errors, stacks) =
        if short { (&SHORT_ERRORS[..], &[Stack::Reno][..]) } else { (&ERRORS[..], &Stack::ALL[..]) };
    let lines = stacks.iter().flat_map(|&stack| Line::ALL.map(|line| (stack, line)));
    let points = lines.flat_map(|(stack, line)| errors.iter().map(move |&kbit| Point { line, stack, kbit }));
    campaign::Plan {
        name: name.to_owned(),
        points: points.collect(),
        rounds,
        seed,
        settings: json!({ "bytes": bytes }),
        skipped: Vec::new(),
    }
}

/// The transfers of a round, and what came of them.
pub(super) struct Runs {
    points: Vec<Point>,
    bytes: u64,
    seed: u64,
    threads: usize,
    interrupted: Arc<AtomicBool>,
    round: u32,
    done: BTreeMap<Point, Result<Figures>>,
}

impl Runs {
    pub(super) fn new(results: &Results<Point>, context: &Context) -> Result<Self> {
        let bytes = results.settings["bytes"]
            .as_u64()
            .context("the file does not say how large the transfers are")?;
        let mut points: Vec<Point> = results.samples.iter().map(|sample| sample.point).collect();
        // The slowest first, so that none of them runs alone at the end.
        points.sort_by_key(|p| {
            (if p.kbit == 0 { u32::MAX } else { p.kbit }, matches!(p.line, Line::Snoop | Line::EspArq), *p)
        });
        Ok(Self {
            points,
            bytes,
            seed: results.seed,
            threads: context.threads * AT_ONCE,
            interrupted: context.interrupted.clone(),
            round: 0,
            done: BTreeMap::new(),
        })
    }

    /// All points of the round, side by side; each radio of the round has the same luck.
    fn run(&self) -> BTreeMap<Point, Result<Figures>> {
        let seed = Seeded::new(self.seed ^ u64::from(self.round) << 32).next_u64();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(self.points.len()) {
                scope.spawn(|| {
                    while let Some(point) = self.points.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let figures = run::transfer(point, self.bytes, seed, &self.interrupted);
                        done.lock().unwrap_or_else(PoisonError::into_inner).insert(*point, figures);
                        if self.interrupted.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for Runs {
    type Point = Point;
    type Stage = ();
    type Group = ();
    const WARMS_UP: bool = false;

    fn stage(_: &Point) {}

    fn group(_: &Point) {}

    fn begin_round(&mut self, round: u32) {
        self.round = round;
        self.done.clear();
    }

    fn prepare(&mut self, _: &Point) -> Result<()> {
        if self.done.is_empty() {
            self.done = self.run();
        }
        Ok(())
    }

    fn measure(&mut self, point: &Point, _: u32) -> Result<Figures> {
        // The rest of the round must not be run again for one point that it does not have.
        let figures = self.done.insert(*point, Err(anyhow!("told already")));
        figures.context("interrupted")?
    }

    fn clear(&mut self) -> Result<()> {
        // Every transfer has taken its own hosts away.
        Ok(())
    }
}
