//! Table 3 of paper 003: how long a device is without its network when it begins, and when it moves. By Mobile IP: alone, with IPsec, and with header keys
//! at the foreign agents' routers (PKD, DKM); and by MOBIKE with an address of its own, without and with header keys at access routers. Owns the plan
//! and the measurement. It is an experiment of its own because `paper-003` keeps every processor busy for hours.

#![expect(clippy::disallowed_methods, reason = "times real hosts by the real clock")]

mod mobike;
mod mobile_ip;
mod report;
mod routers;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use dormouse_testbed::mobile::protected::Protection;
use dormouse_testbed::routers::Mode;
use serde::{Deserialize, Serialize};

use crate::campaign::{Campaign, Plan, Subject};
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::{self, Figures, Results};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-003-handoff",
    title: "Paper 003: pauses at the beginning and in a handoff, by Mobile IP and by MOBIKE, without and with header keys at access routers (Table 3)",
    source: Source::Campaign { root: true },
    takes: [Takes::measured(117), Takes::measured(262)],
    lacks: || None,
    run: of,
};

const ROUNDS: u32 = 30;
const SHORT_ROUNDS: u32 = 10;
/// Between two probes: the resolution of a pause.
const PROBES: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(20);

/// What keeps the device's address, and what protects its packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    MobileIp,
    MobileIpIpsec,
    MobileIpPkd,
    MobileIpDkm,
    Mobike,
    /// Through two access routers without header keys.
    Routers,
    /// The same, with header keys from the gateway before the device comes.
    Pkd,
    /// The same, with header keys from the router before.
    Dkm,
}

impl Line {
    const ALL: [Self; 8] = [
        Self::MobileIp,
        Self::MobileIpIpsec,
        Self::MobileIpPkd,
        Self::MobileIpDkm,
        Self::Mobike,
        Self::Routers,
        Self::Pkd,
        Self::Dkm,
    ];

    /// By Mobile IP, and how it is protected then.
    const fn protection(self) -> Option<Protection> {
        match self {
            Self::MobileIp => Some(Protection::None),
            Self::MobileIpIpsec => Some(Protection::Whole),
            Self::MobileIpPkd => Some(Protection::Ahead),
            Self::MobileIpDkm => Some(Protection::Migrate),
            Self::Mobike | Self::Routers | Self::Pkd | Self::Dkm => None,
        }
    }

    /// By MOBIKE, the world of access routers that it is measured in.
    const fn mode(self) -> Option<Mode> {
        match self {
            Self::Routers => Some(Mode::Whole),
            Self::Pkd => Some(Mode::Ahead),
            Self::Dkm => Some(Mode::Migrate),
            Self::MobileIp | Self::MobileIpIpsec | Self::MobileIpPkd | Self::MobileIpDkm | Self::Mobike => {
                None
            }
        }
    }

    /// As charts call it, which have less room than a table.
    const fn short(self) -> &'static str {
        match self {
            Self::MobileIp => "Mobile IP",
            Self::MobileIpIpsec => "with IPsec",
            Self::MobileIpPkd => "with PKD",
            Self::MobileIpDkm => "with DKM",
            Self::Mobike => "MOBIKE",
            Self::Routers => "two routers",
            Self::Pkd => "routers, PKD",
            Self::Dkm => "routers, DKM",
        }
    }

    /// What the paper has; nothing by MOBIKE.
    const fn paper(self) -> Option<Theirs> {
        let (scripts, initialization, handoff) = match self {
            Self::MobileIp => (None, 26.0, 25.0),
            Self::MobileIpIpsec => (None, 197.0, 54.0),
            Self::MobileIpPkd => (Some(539.0), 219.0, 52.7),
            Self::MobileIpDkm => (Some(542.0), 222.0, 100.0),
            Self::Mobike | Self::Routers | Self::Pkd | Self::Dkm => return None,
        };
        Some(Theirs { scripts, initialization, handoff })
    }
}

/// The paper's figures of a line, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Theirs {
    /// Initialization with its shell scripts, where the paper says what they take.
    scripts: Option<f64>,
    /// Initialization without them.
    initialization: f64,
    handoff: f64,
}

impl Theirs {
    const fn of(self, phase: Phase) -> f64 {
        match phase {
            Phase::Initialization => self.initialization,
            Phase::Handoff => self.handoff,
        }
    }

    fn words(self, phase: Phase) -> String {
        match (phase, self.scripts) {
            (Phase::Initialization, Some(scripts)) => {
                format!("{scripts}, or {} without its shell scripts", self.initialization)
            }
            _ => self.of(phase).to_string(),
        }
    }
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Initialization,
    Handoff,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Point {
    line: Line,
    phase: Phase,
}

impl Point {
    /// In the order of the table.
    fn all() -> Vec<Self> {
        let of = |line| [Phase::Initialization, Phase::Handoff].map(|phase| Self { line, phase });
        Line::ALL.into_iter().flat_map(of).collect()
    }
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // From the commands that put the new link up, their own time included, until the first packet has come back.
        ("pause", "ms"),
        // As the paper has it: from the first registration request until the reply.
        ("exchange", "ms"),
        // Packets that were sent in the pause and did not arrive.
        ("lost", "count"),
        // Until the new router has header keys, from the first registration request; by MOBIKE, from the commands. 0: before.
        ("keys", "ms"),
        // By Mobile IP: from the first registration request until packets flow, and the router has its keys.
        ("ready", "ms"),
        // By Mobile IP: a packet there and back, afterwards.
        ("rtt", "ms"),
    ];

    fn label(&self) -> String {
        let line = match self.line {
            Line::MobileIp => "Mobile IP",
            Line::MobileIpIpsec => "Mobile IP with IPsec",
            Line::MobileIpPkd => "Mobile IP with MML-IPsec, PKD",
            Line::MobileIpDkm => "Mobile IP with MML-IPsec, DKM",
            Line::Mobike => "own address and MOBIKE",
            Line::Routers => "MOBIKE through two access routers",
            Line::Pkd => "the same, MML-IPsec with PKD",
            Line::Dkm => "the same, MML-IPsec with DKM",
        };
        let phase = match self.phase {
            Phase::Initialization => "initialization",
            Phase::Handoff => "handoff",
        };
        format!("{line}, {phase}")
    }
}

fn of(context: &Context) -> Result<Report> {
    let results = context.results(measured)?;
    Ok(report::of(&results))
}

fn measured(context: &Context) -> Result<Results<Point>> {
    let plan = || Plan {
        name: context.plan().to_owned(),
        points: Point::all(),
        rounds: if context.short { SHORT_ROUNDS } else { ROUNDS },
        seed: context.seed,
        settings: serde_json::Value::Null,
        skipped: Vec::new(),
    };
    let campaign = Campaign::of(context, || Ok(plan()))?;
    campaign.finish(&mut Stage::default(), context)
}

/// All worlds, each kept from one measurement to the next.
#[derive(Default)]
struct Stage {
    mobile_ip: BTreeMap<Line, mobile_ip::World>,
    mobike: Option<mobike::World>,
    routers: BTreeMap<Line, routers::World>,
}

impl Subject for Stage {
    type Point = Point;
    type Stage = ();
    type Group = Line;

    fn stage(_: &Point) {}

    fn group(point: &Point) -> Line {
        point.line
    }

    fn prepare(&mut self, point: &Point) -> Result<()> {
        let line = point.line;
        if let Some(protection) = line.protection().filter(|_| !self.mobile_ip.contains_key(&line)) {
            self.mobile_ip.insert(line, mobile_ip::World::build(protection)?);
        }
        if let Some(mode) = line.mode().filter(|_| !self.routers.contains_key(&line)) {
            self.routers.insert(line, routers::World::build(mode)?);
        }
        if line == Line::Mobike && self.mobike.is_none() {
            self.mobike = Some(mobike::World::build()?);
        }
        Ok(())
    }

    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        if let Some(world) = self.mobile_ip.get_mut(&point.line) {
            return world.measure(point.phase, round);
        }
        if let Some(world) = self.routers.get_mut(&point.line) {
            return world.measure(point.phase);
        }
        match &mut self.mobike {
            Some(world) if point.line == Line::Mobike => world.measure(point.phase),
            _ => bail!("nothing was prepared"),
        }
    }

    fn clear(&mut self) -> Result<()> {
        // Namespaces and programs go with their owners.
        *self = Self::default();
        Ok(())
    }
}
