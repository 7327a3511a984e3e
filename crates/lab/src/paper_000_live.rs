//! Paper 000, Figures 4 and 10, live: one to a thousand clients come back at once to one real gateway process, over real
//! sockets. Owns the comparison; how it is measured is [`campaign`]'s, what it is measured on [`stage`]'s.

mod campaign;
mod report;
mod stage;

use anyhow::{Context as _, ensure};
use campaign::{Bursts, MOST, Point};
use dormouse_energy::profile::Profile;

use crate::campaign::Campaign;
use crate::experiment::{Context, Experiment, Report, Source, Takes};
use crate::results::Results;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-000-live",
    title: "Paper 000, live: clients that come back at once to one gateway (Figures 4 and 10)",
    source: Source::Campaign { root: true },
    takes: [Takes::measured(15), Takes::measured(158)],
    lacks: || None,
    run,
};

/// Whose energy figures stand beside the measured times.
const PROFILE: &str = "laptop-000";

fn run(context: &Context) -> anyhow::Result<Report> {
    let model = profile()?.model()?;
    let results = context.results(measured)?;
    Ok(report::of(&results, &model))
}

fn profile() -> anyhow::Result<Profile> {
    Profile::shipped(PROFILE).context("the laptop of paper 000 ships with the program")
}

fn measured(context: &Context) -> anyhow::Result<Results<Point>> {
    ensure!(
        dormouse_testbed::Need::Root.missing().is_none(),
        "{} makes network namespaces and needs root",
        EXPERIMENT.name
    );
    let most =
        context.clients.map_or(if context.short { campaign::PAPER_MOST } else { MOST }, |n| n as usize);
    ensure!((1..=MOST).contains(&most), "{most} clients: {} has 1 to {MOST} at once", EXPERIMENT.name);
    let campaign = match &context.resume {
        Some(path) => Campaign::resume(path)?,
        None => {
            let mut campaign =
                Campaign::new(campaign::plan(context.plan(), most, context.seed), context.out.clone())?;
            let profile = profile()?;
            campaign.results.profiles.insert(profile.name.clone(), profile);
            campaign
        }
    };
    let largest = campaign.results.samples.iter().map(|s| s.clients).max().unwrap_or(1);
    let mut bursts = Bursts::new(largest, context.interrupted.clone())?;
    campaign.finish(&mut bursts, context)
}
