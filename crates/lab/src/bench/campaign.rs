//! A campaign: the plan carried out round by round, written to its file after each, and continued from there. Owns the order
//! of the points, the file, and the machine's state meanwhile; must never lose a round that was finished, nor leave anything
//! changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_crypto::measure::{Suite, verify};
use dormouse_sansio::{Entropy as _, Seeded};

use super::cpu;
use super::far::{Far, Lost, Pair};
use super::governor::{self, Governors};
use super::joules::Joules;
use super::link;
use super::machine;
use super::plan::{Part, Plan, Request, Times};
use super::runner::{Group, Runner};
use super::worker::{Mask, Proof, Worker};
use crate::judge::stats;
use crate::results::format::{EnergySource, Engine, Machine, Results, Sample, Skipped, What};

/// What is said to be left out where the meter is too coarse.
const UNRESOLVED: &str = "energy of short measurements";

/// A campaign, planned and perhaps partly carried out.
#[derive(Debug)]
pub struct Campaign {
    /// What there is so far.
    pub results: Results,
    times: Times,
    profile: Option<String>,
    out: Option<PathBuf>,
    /// The far machine, where both ends are not on this one.
    far: Option<Far>,
}

/// Where a campaign stands.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The round; 0 is the one that warms up and does not count.
    pub round: u32,
    /// Measurements done so far, those that warm up included.
    pub done: u64,
    /// Measurements there will be.
    pub total: u64,
    /// What comes next.
    pub next: &'a str,
}

/// How a campaign ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All rounds are there.
    Finished,
    /// It was interrupted; whole rounds are kept.
    Interrupted,
}

impl Campaign {
    /// Plans what `request` asks for, and finds out what of it can be measured here. `out` is written to after each round. Where
    /// the request is for two machines, `far` is the other one; without it there is a plan and no more.
    ///
    /// # Errors
    /// For a request that makes no sense here; without privileges, if a part was asked for by name that needs them; if `out`
    /// cannot be written.
    pub fn new(
        request: &Request,
        command: Vec<String>,
        out: Option<PathBuf>,
        far: Option<Far>,
    ) -> Result<Self> {
        let left_behind = recovered();
        let here = machine::describe(Path::new("/"));
        let mut request = request.clone();
        let mut skipped = without_privileges(&mut request)?;
        skipped.extend(left_behind);
        if !request.governors.is_empty() {
            governors()?.check(&request.governors)?;
        }
        let hides = [Part::Crypto, Part::Path, Part::Downloads];
        let wants = request.parts.is_empty() || hides.iter().any(|p| request.parts.contains(p));
        let mut versions = versions();
        let aes_off = wants && machine::has_aes(&here) && {
            match aes_can_be_hidden() {
                Ok(proof) => {
                    versions.insert("aes-mask".into(), proof);
                    true
                }
                Err(error) => {
                    let reason = format!("not possible: {error:#}");
                    skipped.push(Skipped { what: None, subject: "AES instructions off".into(), reason });
                    false
                }
            }
        };
        let mut plan = request.plan(&here, aes_off)?;
        let planned = plan.samples.len();
        skipped.append(&mut plan.skipped);
        skipped.extend(without_the_broken(&mut plan, |suite| verify(suite).map_err(|e| e.to_string())));
        ensure!(!plan.samples.is_empty(), "nothing is left to measure: {}", reasons(&skipped));
        let times = Times::of(&request);
        let mut results = Results::new(here);
        results.versions = versions;
        if let Some(Far { hello, .. }) = &far {
            results.far = Some(hello.machine.clone());
            results.versions.insert("far-build".to_owned(), hello.build.clone());
        }
        results.command = command;
        results.plan = plan_name(&request).to_owned();
        results.seed = request.seed;
        results.started = cpu::unix();
        results.planned = u32::try_from(planned)?;
        results.rounds = plan.rounds;
        results.milliseconds = [("crypto", times.crypto), ("path", times.path), ("stream", times.stream)]
            .map(|(name, time)| (name.to_owned(), u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
            .into();
        results.samples = plan.samples;
        results.skipped = skipped;
        let (joules, why_not) = Joules::find(request.profile.as_deref())?;
        results.energy = joules.describe();
        results.skipped.extend(why_not.map(|reason| Skipped {
            what: None,
            subject: "energy".into(),
            reason,
        }));
        let campaign = Self { results, times, profile: request.profile.clone(), out, far };
        // Before the work, not after it: a place that cannot be written is better known now.
        campaign.save()?;
        Ok(campaign)
    }

    /// Continues the campaign in the file at `path`, which is written to again; with `far`, if there were two machines.
    ///
    /// # Errors
    /// If the file cannot be read, is of another machine or another version, or lacks what a plan needs.
    pub fn resume(path: &Path, far: Option<Far>) -> Result<Self> {
        let mut results = Results::read(path).with_context(|| path.display().to_string())?;
        results.skipped.extend(recovered());
        let here = machine::describe(Path::new("/"));
        let same = |whose: &str, then: &Machine, now: &Machine| -> Result<()> {
            for (what, then, now) in [
                ("processor", &then.cpu, &now.cpu),
                ("kernel", &then.kernel, &now.kernel),
                ("number of processors", &then.cores.to_string(), &now.cores.to_string()),
            ] {
                let path = path.display();
                ensure!(then == now, "{path}: measured {whose} another {what}: {then}, and this is {now}");
            }
            Ok(())
        };
        same("on", &results.machine, &here)?;
        match (&results.far, &far) {
            (Some(then), Some(now)) => same("with", then, &now.hello.machine)?,
            (None, None) => {}
            (Some(_), None) => bail!("{}: measured between two machines: --far is needed", path.display()),
            (None, Some(_)) => bail!("{}: measured on one machine: --far is not wanted", path.display()),
        }
        // Another build, or another library, is another program: its rounds are none of these.
        for (what, now) in versions().iter().filter(|(what, _)| what.as_str() != "kernel") {
            let then = results.versions.get(what).map_or("unknown", String::as_str);
            ensure!(then == now, "{}: measured by {what} {then}, and this is {now}", path.display());
        }
        ensure!(results.rounds > 0, "{}: it does not say how many rounds there should be", path.display());
        let time = |name: &str| -> Result<Duration> {
            let millis = results.milliseconds.get(name);
            let millis = millis.with_context(|| format!("{}: no time for {name}", path.display()))?;
            Ok(Duration::from_millis((*millis).min(86_400_000)))
        };
        let quick = Times::of(&Request { quick: true, ..Request::default() });
        let times = Times { crypto: time("crypto")?, path: time("path")?, stream: time("stream")?, ..quick };
        let estimated = results.energy.source == EnergySource::Estimated;
        let profile = estimated.then(|| results.energy.name.clone());
        Ok(Self { results, times, profile, out: Some(path.to_owned()), far })
    }

    /// How long what is left should take.
    #[must_use]
    pub fn expected(&self) -> Duration {
        let mut groups = BTreeMap::new();
        let mut left = Duration::ZERO;
        for sample in &self.results.samples {
            let missing = self.missing(sample);
            // The round that warms up is shorter, except where a file decides.
            left += self.times.expected(sample) * (missing + u32::from(missing > 0));
            let most = groups.entry(Group::of(sample)).or_insert(0);
            *most = missing.max(*most);
        }
        let tunnels = groups.iter().filter(|(group, missing)| group.has_tunnel() && **missing > 0);
        left + tunnels.map(|(_, missing)| self.times.setup * (missing + 1)).sum::<Duration>()
    }

    fn missing(&self, sample: &Sample) -> u32 {
        let have = sample.rounds.iter().filter(|r| (1..=self.results.rounds).contains(&r.round)).count();
        self.results.rounds.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX))
    }

    /// Carries it out, or as much as is missing. Rounds are interleaved: each point once, in an order drawn from the seed,
    /// before any point has its next turn.
    ///
    /// # Errors
    /// If the file cannot be written; a point that cannot be measured is skipped instead, and said.
    pub fn run(
        &mut self,
        interrupted: &AtomicBool,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Ended> {
        let needs_governors = self.results.samples.iter().any(|s| s.governor.is_some());
        let mut governors = needs_governors.then(governors).transpose()?;
        let (mut joules, _) = Joules::find(self.profile.as_deref())?;
        joules.rest();
        self.results.energy = joules.describe();
        let pair = self.far.take().map(Pair::new).transpose()?;
        let mut runner = Runner::new(self.times, self.results.seed, joules, pair);
        self.results.conditions.load_before.get_or_insert(machine::load().unwrap_or_default());
        let cpu_before = cpu::Machine::read()?;
        let open = |samples: &[Sample], rounds: u32| -> u64 {
            let have =
                |s: &Sample| s.rounds.iter().filter(|r| (1..=rounds).contains(&r.round)).count() as u64;
            samples.iter().map(|s| u64::from(rounds) - have(s)).sum()
        };
        let warm = self.results.samples.iter().filter(|s| self.missing(s) > 0).count() as u64;
        let total = open(&self.results.samples, self.results.rounds) + warm;
        let mut done = 0;
        for round in 0..=self.results.rounds {
            let mut failed = Vec::new();
            runner.begin_round();
            for index in self.order(round) {
                if interrupted.load(Ordering::Relaxed) {
                    drop(runner);
                    self.conclude(cpu_before)?;
                    return Ok(Ended::Interrupted);
                }
                let Some(sample) = self.results.samples.get(index) else { continue };
                let label = sample.label();
                progress(&Progress { round, done, total, next: &label });
                done += 1;
                let governed = match (&mut governors, &sample.governor) {
                    (Some(governors), Some(wanted)) => governors.set(wanted),
                    (Some(governors), None) => {
                        governors.restore();
                        Ok(())
                    }
                    (None, _) => Ok(()),
                };
                let measured = governed.and_then(|()| {
                    let once = runner.run(sample, round);
                    // What cannot be warmed up is left out for good: a busy moment must not decide that.
                    let again = round == 0 && once.as_ref().is_err_and(|error| !error.is::<Lost>());
                    if again { runner.run(sample, round) } else { once }
                });
                match measured {
                    Err(error) if error.is::<Lost>() => {
                        // Nothing that follows could be measured: what there is stays, to be continued.
                        drop(runner);
                        self.conclude(cpu_before)?;
                        // The key that interrupts us interrupts ssh as well.
                        let by_user = interrupted.load(Ordering::Relaxed);
                        return if by_user { Ok(Ended::Interrupted) } else { Err(error) };
                    }
                    Ok(measured) if round > 0 => self.results.samples[index].rounds.push(measured),
                    Ok(_) => self.results.samples[index].verified = true,
                    Err(error) => failed.push((index, format!("{error:#}"))),
                }
            }
            self.without_the_failed(round, failed);
            ensure!(
                !self.results.samples.is_empty(),
                "nothing could be measured: {}",
                reasons(&self.results.skipped)
            );
            self.results.conditions.yardstick.push(cpu::yardstick());
            if let Some(reason) = runner.unresolved() {
                let skipped = &mut self.results.skipped;
                skipped.retain(|s| s.subject != UNRESOLVED);
                skipped.push(Skipped { what: None, subject: UNRESOLVED.to_owned(), reason });
            }
            self.conclude(cpu_before)?;
        }
        drop(runner);
        self.results.finished = Some(cpu::unix());
        self.conclude(cpu_before)?;
        Ok(Ended::Finished)
    }

    /// The points of a round that are missing, in their order: governor by governor, since changing one takes time to settle;
    /// within one, tunnel by tunnel, in an order of the round's own.
    fn order(&self, round: u32) -> Vec<usize> {
        let mut random = Seeded::new(self.results.seed ^ u64::from(round) << 32);
        let mut groups: BTreeMap<(Option<&str>, Group), Vec<usize>> = BTreeMap::new();
        for (index, sample) in self.results.samples.iter().enumerate() {
            let wanted = if round == 0 {
                self.missing(sample) > 0
            } else {
                sample.rounds.iter().all(|r| r.round != round)
            };
            if wanted {
                groups.entry((sample.governor.as_deref(), Group::of(sample))).or_default().push(index);
            }
        }
        let mut keyed: Vec<_> = groups
            .into_iter()
            .map(|((governor, _), mut indices)| {
                shuffle(&mut indices, &mut random);
                (governor.map(str::to_owned), random.next_u64(), indices)
            })
            .collect();
        keyed.sort();
        keyed.into_iter().flat_map(|(_, _, indices)| indices).collect()
    }

    /// What failed when it was warmed up is taken out of the plan; what failed later keeps its other rounds.
    fn without_the_failed(&mut self, round: u32, mut failed: Vec<(usize, String)>) {
        // From the last point to the first, not in the order in which they failed: what is taken out moves those behind it.
        failed.sort_unstable();
        for (index, error) in failed.into_iter().rev() {
            let Some(sample) = self.results.samples.get_mut(index) else { continue };
            if round > 0 && !sample.rounds.is_empty() {
                sample.remark = Some(shortened(format!("round {round} failed: {error}")));
                continue;
            }
            let sample = self.results.samples.remove(index);
            let subject = shortened(sample.label());
            self.results.skipped.push(Skipped { what: Some(sample.what), subject, reason: shortened(error) });
        }
    }

    fn conclude(&mut self, before: cpu::Machine) -> Result<()> {
        let spent = cpu::Machine::read()?.since(before);
        let conditions = &mut self.results.conditions;
        conditions.load_after = machine::load();
        conditions.steal = (!spent.total.is_zero())
            .then(|| (spent.steal.as_secs_f64() / spent.total.as_secs_f64()).min(1.0));
        self.save()
    }

    fn save(&self) -> Result<()> {
        match &self.out {
            Some(path) => self.results.write(path).context("the results cannot be kept"),
            None => Ok(()),
        }
    }

    /// What a reader should know about how quiet the machine was; empty if it was.
    #[must_use]
    pub fn noise(&self) -> Vec<String> {
        let conditions = &self.results.conditions;
        let mut noise = Vec::new();
        let cores = f64::from(self.results.machine.cores);
        if let Some([load, ..]) = conditions.load_before.filter(|l| l[0] > 0.3 * cores) {
            noise.push(format!("others were busy before it began: load {load:.1} on {cores} processors"));
        }
        if let Some(steal) = conditions.steal.filter(|s| *s > 0.01) {
            noise.push(format!("the hypervisor took {:.1} % of the time away", 100.0 * steal));
        }
        let untold = |s: &Sample| {
            s.what != What::Crypto
                && s.rounds.iter().any(|r| r.cpu_thread.is_some() && r.cpu_system.is_none())
        };
        if self.results.samples.iter().any(untold) {
            noise.push("others kept the machine too busy to tell the CPU time of the rest of the system: it is absent".into());
        }
        let least = conditions.yardstick.iter().copied().fold(f64::INFINITY, f64::min);
        if let Some(median) = stats::median(&conditions.yardstick).filter(|m| *m > 1.1 * least) {
            noise.push(format!(
                "the same arithmetic took {:.0} % longer in half of the rounds than in the best",
                100.0 * (median / least - 1.0)
            ));
        }
        noise
    }
}

/// The governors of this machine, once what a killed campaign left behind is put back.
fn governors() -> Result<Governors> {
    let (sys, guard) = (Path::new(governor::SYS), Path::new(governor::GUARD));
    Governors::recover(sys, guard)?;
    Governors::find(sys, guard)
}

/// Puts back what a killed campaign left behind, also when this one has no governors in its plan: they would be in its
/// figures. What could not be put back is said, for this campaign can go on without.
fn recovered() -> Option<Skipped> {
    let error = Governors::recover(Path::new(governor::SYS), Path::new(governor::GUARD)).err()?;
    let subject = "the governors that a killed campaign left behind".to_owned();
    Some(Skipped { what: None, subject, reason: shortened(format!("{error:#}")) })
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
    match (filtered, request.quick) {
        (true, _) => "chosen",
        (false, true) => "quick",
        (false, false) => "full",
    }
}

/// Leaves the parts out that need more than there is. A part that was asked for by name is refused instead.
fn without_privileges(request: &mut Request) -> Result<Vec<Skipped>> {
    let Some(what) = link::missing() else { return Ok(Vec::new()) };
    if request.between && (request.parts.is_empty() || request.parts.iter().any(|p| p.needs_root())) {
        return Err(anyhow::Error::new(Unprivileged)
            .context(format!("measuring between two machines makes a tunnel, and that needs {what}")));
    }
    if let Some(part) = request.parts.iter().find(|p| p.needs_root()) {
        return Err(anyhow::Error::new(Unprivileged).context(format!(
            "{} makes network namespaces, and that needs {what}; --what crypto works as it is",
            part.name()
        )));
    }
    if !request.parts.is_empty() {
        return Ok(Vec::new());
    }
    request.parts = vec![Part::Crypto];
    let subject = "path, streams, downloads, tls".to_owned();
    Ok(vec![Skipped { what: None, subject, reason: format!("network namespaces need {what}") }])
}

/// What was asked for needs privileges.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("privileges are missing")]
pub struct Unprivileged;

/// Starts a worker under the mask and measures what it does; the figures in words.
fn aes_can_be_hidden() -> Result<String> {
    let mut worker = Worker::start(Mask::Aes)?;
    let proof = Proof::measure(&mut worker)?;
    let words = format!(
        "{}: AES-128-GCM {:.1} times slower, ChaCha20-Poly1305 {:.2} times",
        Mask::Aes.environment().map(|(name, value)| format!("{name}={value}")).unwrap_or_default(),
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
    for sample in plan.samples.iter().filter(|s| s.engine == Engine::Dormouse) {
        if let Ok(suite) = sample.suite.parse::<Suite>()
            && let Err(why) = verify(suite)
        {
            broken.insert(sample.suite.clone(), why);
        }
    }
    plan.samples.retain(|s| s.engine != Engine::Dormouse || !broken.contains_key(&s.suite));
    broken.into_iter().map(|(subject, reason)| Skipped { what: None, subject, reason }).collect()
}

fn reasons(skipped: &[Skipped]) -> String {
    skipped.iter().map(|s| format!("{}: {}", s.subject, s.reason)).collect::<Vec<_>>().join("; ")
}

fn shortened(mut text: String) -> String {
    const MOST: usize = 500;
    if let Some((at, _)) = text.char_indices().nth(MOST) {
        text.truncate(at);
    }
    text
}

fn shuffle(indices: &mut [usize], random: &mut Seeded) {
    for i in (1..indices.len()).rev() {
        let j = usize::try_from(random.below(i as u64 + 1)).unwrap_or(0);
        indices.swap(i, j);
    }
}

fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    versions.insert("dormouse".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    versions.insert("kernel".to_owned(), kernel.trim().to_owned());
    versions.insert("build".to_owned(), build().to_owned());
    for library in ["aws-lc-rs", "aws-lc-sys", "rustls"] {
        versions.extend(locked(library).map(|version| (library.to_owned(), version.to_owned())));
    }
    versions
}

/// How this program was built.
pub(super) const fn build() -> &'static str {
    if cfg!(debug_assertions) { "development, not optimised: speeds mean nothing" } else { "release" }
}

/// The version of a library that this program was built with.
fn locked(name: &str) -> Option<&'static str> {
    const LOCK: &str = include_str!("../../../../Cargo.lock");
    let mut lines =
        LOCK.lines().skip_while(|line| line.strip_prefix("name = ") != Some(&format!("\"{name}\"")));
    lines.nth(1)?.strip_prefix("version = ").map(|version| version.trim_matches('"'))
}

#[cfg(test)]
mod tests;
