//! The points of paper 003. A transfer takes minutes of which hardly any is work, so that many run side by side, each on hosts of its own, also
//! those of different rounds: else each round would last as long as its slowest transfer. What an interruption finds of rounds that are not
//! complete is measured again. Owns the plan; must never conclude anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use dormouse_sansio::{Entropy as _, Seeded};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::pool::Pool;
use super::run;
use crate::campaign::{self, ATTEMPTS, Subject};
use crate::experiment::Context;
use crate::results::format::shortened;
use crate::results::{self, Figures, Results, Sample};

/// Rounds; each has a seed of its own. The paper has five runs.
const ROUNDS: u32 = 10;
const SHORT_ROUNDS: u32 = 5;
/// The paper's file, and that of the short form, in bytes.
const FILE: u64 = 10_000_000;
const SHORT_FILE: u64 = 1_000_000;
/// Those over Sidekick's path, where small files are over before the window is open.
const SIDEKICK_FILE: u64 = 10_000_000;
const SIDEKICK_SHORT_FILE: u64 = 5_000_000;
/// Transfers at once for each processor: one needs some 700 packets a second carried, of which sixteen take a seventh of two processors.
const AT_ONCE: usize = 32;
/// How many of them one over Sidekick's path stands for: it is five times as fast.
const SIDEKICK_NEEDS: usize = 5;

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
    /// TCP through a tunnel of two daemons whose packets are in two zones.
    Mml,
    /// The same, with SNOOP at an access router to which the gateway has given the key of the headers.
    MmlSnoop,
    /// TCP through such a tunnel without bytes in the first zone, with the radio repaired by the numbers of ESP and the device's reports.
    EspArq,
    /// TCP through a tunnel of two daemons of whose packets some are in zones (dynamic MML-IPsec).
    Dynamic,
}

impl Line {
    /// Those that are measured at each error rate.
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
            Self::Dynamic => "dynamic MML-IPsec",
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
    /// Over the path of Sidekick's evaluation: so many packets of 100 are lost, and no bit is wrong. Absent: over the paper's radio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) loss: Option<u8>,
    /// Of [`Line::Dynamic`]: one packet in so many is in zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) every: Option<u32>,
}

impl Point {
    /// Over the paper's radio.
    pub(super) const fn new(line: Line, stack: Stack, kbit: u32) -> Self {
        Self { line, stack, kbit, loss: None, every: None }
    }

    /// Over Sidekick's path.
    pub(super) const fn sidekick(line: Line, stack: Stack, loss: u8) -> Self {
        Self { line, stack, kbit: 0, loss: Some(loss), every: None }
    }

    /// Over the paper's radio without errors, by Reno: one packet in `every` is in zones.
    pub(super) const fn dynamic(every: u32) -> Self {
        Self { every: Some(every), ..Self::new(Line::Dynamic, Stack::Reno, 0) }
    }
}

/// What is measured over Sidekick's path: losses in packets of 100, lines, and stacks of today.
pub(super) const SIDEKICK_LOSSES: [u8; 4] = [0, 1, 2, 5];
pub(super) const SIDEKICK_LINES: [Line; 3] = [Line::Tcp, Line::Snoop, Line::EspArq];
pub(super) const SIDEKICK_STACKS: [Stack; 2] = [Stack::Cubic, Stack::Bbr];

/// One packet in so many is in zones: those that the text on Figures 17 and 18 names. All of them is [`Line::Mml`], none [`Line::Ipsec`].
pub(super) const SHARES: [u32; 4] = [2, 3, 5, 10];

/// The paper's error rates, worst first.
pub(super) const ERRORS: [u32; 9] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 0];
const SHORT_ERRORS: [u32; 5] = [64, 256, TRACED, 1_024, 0];
/// The error rate of Figures 15 and 16.
pub(super) const TRACED: u32 = 512;

impl results::Point for Point {
    const EXPERIMENT: &'static str = super::EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // Bits of the file in a second.
        ("rate", "bit/s"),
        // Packets towards the device that the radio broke, that the router repeated, and that the sender sent again.
        ("broken", "count"),
        ("repeated", "count"),
        ("sent_again", "count"),
        // The sender's congestion window in segments, on average over time.
        ("mean_window", "count"),
        // Of the first round at the rate of Figures 15 and 16, every 100 ms: since the sender had the connection, bytes acknowledged, and the
        // congestion window in segments.
        ("at", "s"),
        ("acked", "B"),
        ("window", "count"),
        // Of the packets that the gateway sent to the device, the part that was in zones; only where it is some of them.
        ("zoned", "ratio"),
    ];

    fn label(&self) -> String {
        let errors = match (self.loss, self.every) {
            (None, None) => errors(self.kbit),
            (None, Some(every)) => format!("{}, one packet in {every} in zones", errors(self.kbit)),
            (Some(loss), _) => format!("Sidekick's path, {loss} % lost"),
        };
        format!("{}, {}, {errors}", self.line.words(), self.stack.words())
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
    let points =
        lines.flat_map(|(stack, line)| errors.iter().map(move |&kbit| Point::new(line, stack, kbit)));
    let of_sidekick = SIDEKICK_STACKS.into_iter().flat_map(|stack| SIDEKICK_LINES.map(|line| (stack, line)));
    let of_sidekick =
        of_sidekick.flat_map(|(stack, line)| SIDEKICK_LOSSES.map(|loss| Point::sidekick(line, stack, loss)));
    let sidekick_bytes = if short { SIDEKICK_SHORT_FILE } else { SIDEKICK_FILE };
    campaign::Plan {
        name: name.to_owned(),
        points: points.chain(SHARES.map(Point::dynamic)).chain(of_sidekick).collect(),
        rounds,
        seed,
        settings: json!({ "bytes": bytes, "sidekick_bytes": sidekick_bytes }),
        skipped: Vec::new(),
    }
}

/// The transfers that the results lack, and what came of them.
pub(super) struct Runs {
    pool: Pool<(u32, Point), Figures>,
    /// How often each point has failed.
    failures: BTreeMap<Point, usize>,
    interrupted: Arc<AtomicBool>,
}

impl Runs {
    /// Begins with them.
    ///
    /// # Errors
    /// If the results do not say how large the files are.
    pub(super) fn new(results: &Results<Point>, context: &Context) -> Result<Self> {
        let bytes = results.settings["bytes"]
            .as_u64()
            .context("the file does not say how large the transfers are")?;
        let sidekick_bytes = results.settings["sidekick_bytes"].as_u64().unwrap_or(bytes);
        let seed = results.seed;
        let pool = Pool::start(lacking(results), context.threads * AT_ONCE, move |(round, point), stop| {
            // Each radio of a round has the same luck.
            let seed = Seeded::new(seed ^ u64::from(*round) << 32).next_u64();
            let bytes = if point.loss.is_some() { sidekick_bytes } else { bytes };
            run::transfer(point, *round, bytes, seed, stop)
        });
        let failures = results.samples.iter().map(|s| (s.point, failures(results, &s.point))).collect();
        Ok(Self { pool, failures, interrupted: context.interrupted.clone() })
    }
}

/// Round and point of each transfer that the results lack, round by round, with the room that it needs.
fn lacking(results: &Results<Point>) -> Vec<((u32, Point), usize)> {
    let goes_on = |sample: &&Sample<Point>| failures(results, &sample.point) < ATTEMPTS;
    let each = |sample: &Sample<Point>| {
        let have: Vec<u32> = sample.rounds.iter().map(|r| r.round).collect();
        let rounds = (1..=results.rounds).filter(move |round| !have.contains(round));
        let point = sample.point;
        rounds.map(move |round| (round, point))
    };
    let mut all: Vec<(u32, Point)> = results.samples.iter().filter(goes_on).flat_map(each).collect();
    // The slowest of a round first, so that its end is not awaited alone.
    all.sort_by_key(|(round, p)| {
        let repaired = matches!(p.line, Line::Snoop | Line::MmlSnoop | Line::EspArq);
        (*round, repaired, if p.kbit == 0 { u32::MAX } else { p.kbit }, *p)
    });
    all.into_iter().map(|of| (of, if of.1.loss.is_some() { SIDEKICK_NEEDS } else { 1 })).collect()
}

/// How often a point has failed so far.
fn failures(results: &Results<Point>, point: &Point) -> usize {
    let label = shortened(results::Point::label(point));
    results.discarded.iter().filter(|d| d.subject == label).count()
}

impl Subject for Runs {
    type Point = Point;
    type Stage = ();
    type Group = ();
    const WARMS_UP: bool = false;

    fn stage(_: &Point) {}

    fn group(_: &Point) {}

    fn prepare(&mut self, _: &Point) -> Result<()> {
        Ok(())
    }

    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        let taken = self.pool.take(&(round, *point), &self.interrupted);
        if taken.is_err() {
            let failures = self.failures.entry(*point).or_default();
            *failures += 1;
            if *failures >= ATTEMPTS {
                self.pool.forget(|(_, of)| of == point);
            }
        }
        taken
    }

    fn clear(&mut self) -> Result<()> {
        // Every transfer takes its own hosts away, and others go on after one that failed. What still runs at the end goes with the pool.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::format::Discarded;

    #[test]
    fn what_a_file_has_is_not_measured_again() {
        let mut results = campaign::begun(plan(true, 1));
        let (points, rounds) = (results.samples.len(), results.rounds);
        assert_eq!(lacking(&results).len(), points * rounds as usize);
        let sample = results.samples.iter_mut().find(|s| s.line == Line::Snoop).unwrap();
        sample.push(2, Figures::default());
        let point = sample.point;
        let left = lacking(&results);
        assert_eq!(left.len(), points * rounds as usize - 1);
        assert!(left.iter().all(|(of, _)| *of != (2, point)));
        assert!(left.windows(2).all(|pair| pair[0].0.0 <= pair[1].0.0), "round by round");
        // One that was given up is left out, also by who resumes.
        for round in 1..=3 {
            let subject = shortened(results::Point::label(&point));
            results.discarded.push(Discarded { round, subject, reason: "of a test".to_owned() });
        }
        assert_eq!(lacking(&results).len(), left.len() - (rounds as usize - 1));
    }
}
