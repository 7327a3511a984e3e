//! Paper 000, Figures 4 and 10, live: one to a thousand clients come back at once to one real gateway process, over real
//! sockets. Owns the comparison; how it is measured is [`campaign`]'s, what it is measured on [`stage`]'s.

mod campaign;
mod report;
mod stage;

use anyhow::{Context as _, bail, ensure};
use campaign::{Bursts, MOST, Point};
use dormouse_energy::profile::Profile;

use crate::campaign::{Campaign, Ended};
use crate::experiment::{Context, Experiment, Report, Source};
use crate::results::Results;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-000-live",
    title: "Paper 000, live: clients that come back at once to one gateway (Figures 4 and 10)",
    source: Source::Campaign { root: true },
    run,
};

/// Whose energy figures stand beside the measured times.
const PROFILE: &str = "laptop-000";

fn run(context: &Context) -> anyhow::Result<Report> {
    let model =
        Profile::shipped(PROFILE).context("the laptop of paper 000 ships with the program")?.model()?;
    let results = match &context.file {
        Some(path) => Results::read(path).with_context(|| path.display().to_string())?,
        None => measured(context)?,
    };
    Ok(report::of(&results, &model))
}

fn measured(context: &Context) -> anyhow::Result<Results<Point>> {
    ensure!(
        dormouse_testbed::Need::Root.missing().is_none(),
        "{} makes network namespaces and needs root",
        EXPERIMENT.name
    );
    let most = context.clients.map_or(MOST, |n| n as usize);
    ensure!((1..=MOST).contains(&most), "{most} clients: {} has 1 to {MOST} at once", EXPERIMENT.name);
    let mut campaign = match &context.resume {
        Some(path) => Campaign::resume(path)?,
        None => Campaign::new(campaign::plan(most, context.seed), context.out.clone())?,
    };
    campaign.save()?;
    let largest = campaign.results.samples.iter().map(|s| s.clients).max().unwrap_or(1);
    let (rounds, seconds) =
        (campaign.results.rounds, campaign::expected(&campaign.results.samples).as_secs());
    (context.progress)(&format!(
        "up to {largest} clients at once, {rounds} rounds; about {seconds} seconds on an idle machine"
    ));
    let mut bursts = Bursts::new(largest, context.interrupted.clone())?;
    let mut last = None;
    let ended = campaign.run(&mut bursts, &context.interrupted, &mut |progress| {
        if last.replace(progress.round) != Some(progress.round) {
            let warm_up = if progress.round == 0 { " (warm-up)" } else { "" };
            (context.progress)(&format!("round {} of {rounds}{warm_up}", progress.round));
        }
    })?;
    match ended {
        Ended::Finished => Ok(campaign.results),
        Ended::Interrupted => bail!("interrupted"),
    }
}
