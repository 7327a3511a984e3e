//! `dormouse bench`: the campaign of its points. Owns what of a request can be measured here; must never leave anything changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dormouse_crypto::measure::{Suite, verify};

use super::far::{Far, Pair};
use super::governor;
use super::joules::Joules;
use super::plan::{Plan, Request, Times};
use super::runner::{Group, Runner};
use super::worker::{Proof, Worker, without_aes};
use crate::campaign::{self, Ended, Progress, machine, same_machine};
use crate::experiment::Context;
use crate::needs;
use crate::results::esp::{CPU_SYSTEM, CPU_THREAD, Engine, Point, What};
use crate::results::format::Skipped;
use crate::results::{Results, Sample};

/// A campaign of ours, with what carries it out.
#[derive(Debug)]
pub struct Bench {
    /// What there is so far.
    pub campaign: campaign::Campaign<Point>,
    times: Times,
    /// The far machine, where both ends are not on this one.
    far: Option<Far>,
}

impl Bench {
    /// Plans what `request` asks for, and finds out what of it can be measured here. `out` is written to after each round. Where
    /// the request is for two machines, `far` is the other one; without it there is a plan and no more.
    ///
    /// # Errors
    /// For a request that makes no sense here; without privileges, if a part was asked for by name that needs them; if `out`
    /// cannot be written.
    pub fn new(request: &Request, out: Option<PathBuf>, far: Option<Far>) -> Result<Self> {
        let left_behind = recovered();
        let here = machine::describe(Path::new("/"));
        let mut request = request.clone();
        let mut skipped = without_privileges(&mut request)?;
        skipped.extend(left_behind);
        if !request.governors.is_empty() {
            governor::here()?.check(&request.governors)?;
        }
        let hides = [What::Crypto, What::Path, What::Download];
        let wants = request.parts.is_empty() || hides.iter().any(|p| request.parts.contains(p));
        let mask = (wants && machine::has_aes(&here)).then(aes_can_be_hidden);
        let mut plan = request.plan(&here, matches!(mask, Some(Ok(_))))?;
        skipped.append(&mut plan.skipped);
        if let Some(Err(error)) = &mask {
            skipped.push(Skipped::new("AES instructions off", format!("not possible: {error:#}")));
        }
        skipped.extend(without_the_broken(&mut plan, |suite| verify(suite).map_err(|e| e.to_string())));
        let (joules, why_not) = Joules::find(request.profile.as_deref())?;
        skipped.extend(why_not.map(|reason| Skipped::new("energy", reason)));
        let times = Times::of(&request);
        let mut campaign = campaign::Campaign::new(
            campaign::Plan {
                name: plan_name(&request).to_owned(),
                settings: serde_json::to_value(&times)?,
                seed: request.seed,
                skipped,
                ..plan
            },
            out,
        )?;
        let results = &mut campaign.results;
        results.energy = joules.describe();
        results.profiles = joules.profile().map(|p| (p.name.clone(), p.clone())).into_iter().collect();
        if let Some(Ok(proof)) = mask {
            results.versions.insert("aes-mask".into(), proof);
        }
        if let Some(Far { hello, .. }) = &far {
            results.far = Some(hello.machine.clone());
            results.versions.insert("far-build".to_owned(), hello.build.clone());
        }
        campaign.save()?;
        Ok(Self { campaign, times, far })
    }

    /// Continues the campaign in the file at `path`, which is written to again; with `far`, if there were two machines.
    ///
    /// # Errors
    /// As [`campaign::Campaign::resume`], and without the other machine.
    pub fn resume(path: &Path, far: Option<Far>) -> Result<Self> {
        let mut campaign = campaign::Campaign::<Point>::resume(path)?;
        campaign.results.skipped.extend(recovered());
        let shown = path.display();
        match (&campaign.results.far, &far) {
            (Some(then), Some(now)) => same_machine(path, "with", then, &now.hello.machine)?,
            (None, None) => {}
            (Some(_), None) => bail!("{shown}: measured between two machines: --far is needed"),
            (None, Some(_)) => bail!("{shown}: measured on one machine: --far is not wanted"),
        }
        let times = serde_json::from_value(campaign.results.settings.clone());
        Ok(Self { times: times.with_context(|| format!("{shown}: settings"))?, campaign, far })
    }

    /// How long what is left should take.
    #[must_use]
    pub fn expected(&self) -> Duration {
        let mut groups = BTreeMap::new();
        let mut left = Duration::ZERO;
        for sample in &self.campaign.results.samples {
            let missing = self.campaign.missing(sample);
            left += self.times.expected(sample, 1) * missing;
            if missing > 0 {
                left += self.times.expected(sample, 0);
            }
            let most = groups.entry(Group::of(sample)).or_insert(0);
            *most = missing.max(*most);
        }
        let tunnels = groups.iter().filter(|(group, missing)| group.has_tunnel() && **missing > 0);
        left + tunnels.map(|(_, missing)| Times::SETUP * (missing + 1)).sum::<Duration>()
    }

    /// Carries it out, or as much as is missing.
    ///
    /// # Errors
    /// As [`campaign::Campaign::run`].
    pub fn run(
        &mut self,
        interrupted: &AtomicBool,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Ended> {
        let mut runner = self.runner()?;
        self.campaign.run(&mut runner, interrupted, progress)
    }

    /// The same for an experiment, which wants the results.
    ///
    /// # Errors
    /// As [`campaign::Campaign::finish`].
    pub fn finish(mut self, context: &Context) -> Result<Results> {
        let mut runner = self.runner()?;
        self.campaign.finish(&mut runner, context)
    }

    fn runner(&mut self) -> Result<Runner> {
        let mut joules = Joules::again(&self.campaign.results.profiles)?;
        joules.rest();
        self.campaign.results.energy = joules.describe();
        let pair = self.far.take().map(Pair::new).transpose()?;
        Ok(Runner::new(self.times.clone(), self.campaign.results.seed, joules, pair))
    }

    /// What a reader should know about how quiet the machine was; empty if it was.
    #[must_use]
    pub fn noise(&self) -> Vec<String> {
        let results = &self.campaign.results;
        let mut noise = results.conditions.noise(results.machine.cores);
        let untold = |s: &Sample| {
            let lacks = |r: &crate::results::Round| {
                r.figures.one(CPU_THREAD).is_some() && r.figures.one(CPU_SYSTEM).is_none()
            };
            s.what != What::Crypto && s.rounds.iter().any(lacks)
        };
        if results.samples.iter().any(untold) {
            noise.push("others kept the machine too busy to tell the CPU time of the rest of the system: it is absent".into());
        }
        noise
    }
}

/// Puts back what a killed campaign left behind, also when this one has no governors in its plan: they would be in its
/// figures. What could not be put back is said, for this campaign can go on without.
fn recovered() -> Option<Skipped> {
    let error = governor::recover().err()?;
    Some(Skipped::new("the governors that a killed campaign left behind", format!("{error:#}")))
}

fn plan_name(request: &Request) -> &'static str {
    let filtered = !(request.parts.is_empty()
        && request.suites.is_empty()
        && request.sizes.is_empty()
        && request.cores.is_empty()
        && request.governors.is_empty()
        && request.files.is_empty()
        && request.rates.is_empty()
        && request.rounds == 0
        && !request.compare_governors);
    match (request.name, filtered, request.quick) {
        ("", true, _) => "chosen",
        ("", false, true) => "quick",
        ("", false, false) => "full",
        (name, ..) => name,
    }
}

/// Leaves the parts out that need more than there is. A part that was asked for by name is refused instead.
fn without_privileges(request: &mut Request) -> Result<Vec<Skipped>> {
    let Some(what) = needs::missing() else { return Ok(Vec::new()) };
    if request.between && (request.parts.is_empty() || request.parts.iter().any(|p| *p != What::Crypto)) {
        return Err(anyhow::Error::new(Unprivileged)
            .context(format!("measuring between two machines makes a tunnel, and that needs {what}")));
    }
    if request.parts.iter().any(|p| *p != What::Crypto) {
        return Err(anyhow::Error::new(Unprivileged).context(format!(
            "all but crypto makes network namespaces, and that needs {what}; --what crypto works as it is"
        )));
    }
    if !request.parts.is_empty() {
        return Ok(Vec::new());
    }
    request.parts = vec![What::Crypto];
    Ok(vec![Skipped::new("path, streams, downloads, tls", format!("network namespaces need {what}"))])
}

/// What was asked for needs privileges.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("privileges are missing")]
pub struct Unprivileged;

/// Starts a worker under the mask and measures what it does; the figures in words.
fn aes_can_be_hidden() -> Result<String> {
    let mut worker = Worker::without_aes()?;
    let proof = Proof::measure(&mut worker)?;
    let words = format!(
        "{}: AES-128-GCM {:.1} times slower, ChaCha20-Poly1305 {:.2} times",
        without_aes().map(|(name, value)| format!("{name}={value}")).unwrap_or_default(),
        proof.aes,
        proof.other
    );
    if !proof.holds() {
        bail!("the library does not honour the mask ({words})");
    }
    Ok(words)
}

/// Takes out the points of suites that give wrong answers.
fn without_the_broken(plan: &mut Plan, verify: impl Fn(Suite) -> Result<(), String>) -> Vec<Skipped> {
    let mut broken = BTreeMap::new();
    for point in plan.points.iter().filter(|p| p.engine == Engine::Dormouse) {
        if let Ok(suite) = point.suite.parse::<Suite>()
            && let Err(why) = verify(suite)
        {
            broken.insert(point.suite.clone(), why);
        }
    }
    plan.points.retain(|p| p.engine != Engine::Dormouse || !broken.contains_key(&p.suite));
    broken.into_iter().map(|(suite, why)| Skipped::failed(suite, why)).collect()
}

#[cfg(test)]
mod tests;
