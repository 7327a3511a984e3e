//! Paper 000, Figures 4 and 10, live: one to a thousand clients come back at once to one real gateway process, over real
//! sockets. Owns the comparison; how it is measured is [`campaign`]'s, what it is measured on [`stage`]'s.

mod campaign;
mod report;
mod stage;

use std::path::Path;

use anyhow::{Context as _, ensure};
use campaign::{MOST, Plan};
use dormouse_energy::profile::Profile;

use crate::bench::machine;
use crate::experiment::{Context, Experiment, Report};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-000-live",
    title: "Paper 000, live: clients that come back at once to one gateway (Figures 4 and 10)",
    needs: None,
    root: true,
    run,
};

/// Whose energy figures stand beside the measured times.
const PROFILE: &str = "laptop-000";

fn run(context: &Context) -> anyhow::Result<Report> {
    ensure!(
        dormouse_testbed::Need::Root.missing().is_none(),
        "{} makes network namespaces and needs root",
        EXPERIMENT.name
    );
    let model =
        Profile::shipped(PROFILE).context("the laptop of paper 000 ships with the program")?.model()?;
    let most = context.clients.map_or(MOST, |n| n as usize);
    ensure!((1..=MOST).contains(&most), "{most} clients: {} has 1 to {MOST} at once", EXPERIMENT.name);
    let plan = Plan::up_to(most);
    (context.progress)(&format!(
        "up to {} clients at once, five passes; about {} seconds on an idle machine",
        plan.sizes.last().copied().unwrap_or(1),
        plan.expected().as_secs() + 1
    ));
    let outcome = campaign::run(&plan, &context.interrupted, context.progress)?;
    let machine = machine::describe(Path::new("/"));
    Ok(report::of(&plan, &outcome, &model, &machine, context.seed))
}
