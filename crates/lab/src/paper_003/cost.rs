//! Tables 2, 6 and 7 of paper 003: processor time of the exchanges that make, renew and hand on zones and their keys, at each end; of a packet in zones and
//! whole; and of the access router that reads and repairs. Owns the plan; what is measured is [`exchanges`]' and [`packets`]'. The paper's microseconds
//! are a Pentium's with 2.4 GHz and 3DES: what is compared are ratios.

mod exchanges;
mod packets;
mod report;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::campaign::{self, Campaign, Subject};
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::{self, Figures, Results};
use exchanges::Exchange;
use packets::Step;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-003-cost",
    title: "Paper 003: processor time of key exchanges, of packets in zones, and of SNOOP at the access router (Tables 2, 6 and 7)",
    source: Source::Campaign { root: false },
    takes: [Takes::measured(3), Takes::measured(8)],
    lacks: || None,
    run: of,
};

const ROUNDS: u32 = 30;
const SHORT_ROUNDS: u32 = 10;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Point {
    /// All machines of an exchange, in one thread.
    Exchange { exchange: Exchange },
    /// One packet at one machine.
    Packet { step: Step, zoned: bool },
}

impl Point {
    /// In the order of the tables.
    fn all() -> Vec<Self> {
        let exchanges = Exchange::ALL.map(|exchange| Self::Exchange { exchange });
        let packets = Step::ALL.map(|(step, zoned)| Self::Packet { step, zoned });
        exchanges.into_iter().chain(packets).collect()
    }
}

impl results::Point for Point {
    const EXPERIMENT: &'static str = EXPERIMENT.name;
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // Processor time of an exchange at each machine, of all routers together, and of all machines.
        ("device", "ms"),
        ("gateway", "ms"),
        ("routers", "ms"),
        ("all", "ms"),
        // Of a packet, and of the bare cipher on the same bytes in the same pieces.
        ("packet", "ns"),
        ("bare", "ns"),
        // Of a packet on its way to the device at the router's agent, of an acknowledgement, and of a repetition.
        ("to_device", "ns"),
        ("from_device", "ns"),
        ("repeat", "ns"),
        // What a radio of 2 Mbit/s takes for the same packet.
        ("air", "ns"),
    ];

    fn label(&self) -> String {
        match *self {
            Self::Exchange { exchange } => exchange.words().to_owned(),
            Self::Packet { step, zoned } => step.words(zoned).to_owned(),
        }
    }
}

fn of(context: &Context) -> Result<Report> {
    let results = match &context.file {
        Some(path) => Results::read(path).with_context(|| path.display().to_string())?,
        None => measured(context)?,
    };
    Ok(report::of(&results))
}

fn plan(name: &str, rounds: u32, seed: u64) -> campaign::Plan<Point> {
    campaign::Plan {
        name: name.to_owned(),
        points: Point::all(),
        rounds,
        seed,
        settings: serde_json::Value::Null,
        skipped: Vec::new(),
    }
}

fn measured(context: &Context) -> Result<Results<Point>> {
    let rounds = if context.short { SHORT_ROUNDS } else { ROUNDS };
    let campaign = match &context.resume {
        Some(path) => Campaign::resume(path)?,
        None => Campaign::new(plan(context.plan(), rounds, context.seed), context.out.clone())?,
    };
    let mut bench = Bench { seed: campaign.results.seed };
    campaign.finish(&mut bench, context)
}

/// Machines and packets are made for each measurement, off the clock.
struct Bench {
    seed: u64,
}

impl Subject for Bench {
    type Point = Point;
    type Stage = ();
    type Group = Point;

    fn stage(_: &Point) {}

    fn group(point: &Point) -> Point {
        *point
    }

    fn prepare(&mut self, _: &Point) -> Result<()> {
        Ok(())
    }

    fn measure(&mut self, point: &Point, round: u32) -> Result<Figures> {
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(round.into());
        match *point {
            Point::Exchange { exchange } => exchanges::measure(exchange, seed),
            Point::Packet { step, zoned } => packets::measure(step, zoned, seed),
        }
    }

    fn clear(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::campaign::Ended;
    use crate::judge::Finding;

    #[test]
    fn every_point_is_measured_and_too_few_rounds_are_not_judged() {
        let mut campaign = Campaign::new(plan("chosen", 2, 5), None).unwrap();
        let ended = campaign.run(&mut Bench { seed: 5 }, &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(ended, Ended::Finished);
        let results = campaign.results;
        assert!(results.discarded.is_empty(), "{:?}", results.discarded);
        results.check().unwrap();
        for sample in &results.samples {
            let names: &[&str] = match sample.point {
                Point::Exchange { exchange: Exchange::Migrate } => &["routers", "all"],
                Point::Exchange { exchange } if exchange.has_routers() => &["gateway", "routers", "all"],
                Point::Exchange { .. } => &["device", "gateway", "all"],
                Point::Packet { step: Step::Snoop, .. } => &["to_device", "from_device", "repeat", "air"],
                Point::Packet { .. } => &["packet", "bare"],
            };
            for name in names {
                assert_eq!(sample.all(name).filter(|value| *value > 0.0).count(), 2, "{name}: {sample:?}");
            }
        }
        let report = report::of(&results);
        assert!(report.claims.iter().all(|claim| claim.finding == Some(Finding::NotMeasurable)));
        let _ = dormouse_testbed::browser::validate(report.name, &report.document().html().unwrap());
    }
}
