//! Paper 002: "Performance of Host Identity Protocol on Lightweight Mobile Devices" (Khurri). In one process: what the base exchange
//! and the UPDATE cost each end, by stage, key, puzzle and group; what key pairs cost; and what one responder bears beyond the paper.
//! With the shipped daemons: TCP's throughput, and their processor time and memory. Owns the comparison; how it is measured is
//! [`campaign`]'s, what it is measured on [`pair`]'s, [`key_pairs`]', [`hosts`]'s and [`many`]'s.

mod campaign;
mod hosts;
mod key_pairs;
mod many;
pub mod pair;
mod report;

use anyhow::{Result, ensure};
use campaign::{Bench, Point};

use crate::campaign::Campaign;
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::Results;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-002",
    title: "Paper 002: the Host Identity Protocol on small devices (base exchange, key pairs, puzzle, groups, UPDATE, throughput, daemon)",
    source: Source::Campaign { root: false },
    takes: [Takes::measured(240), Takes::measured(375)],
    lacks: hosts::missing,
    run,
};

fn run(context: &Context) -> Result<Report> {
    let results = context.results(measured)?;
    report::of(&results)
}

fn measured(context: &Context) -> Result<Results<Point>> {
    let campaign = Campaign::of(context, || {
        let most =
            context.clients.unwrap_or(if context.short { campaign::SHORT_MOST } else { campaign::MOST });
        ensure!(
            most <= campaign::MOST,
            "{most} associations: {} has 1 to {}",
            EXPERIMENT.name,
            campaign::MOST
        );
        Ok(campaign::plan(context.plan(), most, context.short, context.seed))
    })?;
    let mut bench = Bench::new(campaign.results.seed);
    campaign.finish(&mut bench, context)
}
