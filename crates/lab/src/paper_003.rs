//! Paper 003: "Mobile multi-layered IPsec" (Choi, Song, Cao and La Porta), as far as it stands: files over real TCP and a bad radio, without
//! and with repair at the access router, in clear and through our own tunnel (Figures 14 to 18), all of it by the daemons as they ship. Owns the comparison; how it is measured is
//! [`campaign`]'s, what it is measured on [`run`]'s.

mod campaign;
pub mod cost;
pub mod handoff;
mod pool;
mod report;
mod run;

use anyhow::Result;
use campaign::{Point, Runs};

use crate::campaign::Campaign;
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::Results;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-003",
    title: "Paper 003: TCP over a bad radio, with SNOOP, through IPsec and through MML-IPsec (Figures 14 to 18)",
    source: Source::Campaign { root: true },
    takes: [Takes::measured(504), Takes::measured(3_102)],
    lacks: || None,
    run: of,
};

fn of(context: &Context) -> Result<Report> {
    let results = context.results(measured)?;
    Ok(report::of(&results))
}

fn measured(context: &Context) -> Result<Results<Point>> {
    let campaign = Campaign::of(context, || Ok(campaign::plan(context.short, context.seed)))?;
    let mut runs = Runs::new(&campaign.results, context)?;
    campaign.finish(&mut runs, context)
}
