//! From a plan to raw data: the one engine of every experiment that measures. Owns the order of the points, the rounds, the file and
//! the conditions; must never lose a figure that was measured, nor know what is measured: that is a [`Subject`]'s.
//!
//! - A [`Plan`] has points with named axes. Each round measures every point once, in an order drawn from the seed, before any point
//!   has its next turn: what slows the machine down for a while hits all of them alike.
//! - The file is written after every round. An interrupted campaign goes on where it stopped ([`Campaign::resume`]), on the same
//!   machine with the same build: anything else would be another measurement.
//! - A point that fails is cleared away and has its turn in the next round again. The round that failed is kept as discarded, with
//!   the reason. After [`ATTEMPTS`] failures it is given up; without a single round it leaves the plan for what was skipped: as
//!   failed, or as absent where a machine need not have it ([`Point::may_be_absent`]).

pub(crate) mod cpu;
pub(crate) mod machine;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use dormouse_report::duration;
use dormouse_sansio::{Entropy as _, Seeded};

use crate::experiment;
use crate::judge::stats;
use crate::results::format::{Conditions, Discarded, Input, Machine, Skipped, shortened};
use crate::results::{Figures, Point, Results, Sample};

/// After so long without a word on progress there is another one.
const SAYS_AGAIN: Duration = Duration::from_secs(15);

/// A point that fails so often is given up.
pub const ATTEMPTS: usize = 3;

/// What is measured, and how.
pub trait Subject {
    /// Its points.
    type Point: Point;
    /// Stages of a round follow each other in their own order: what must not be mixed, or is expensive to change.
    type Stage: Ord;
    /// Groups of a stage follow each other in any order, and so do the points of one group: what is set up for one of them
    /// serves the others.
    type Group: Ord;

    /// Whether a round that does not count comes first.
    const WARMS_UP: bool = true;

    /// The stage of a point.
    fn stage(point: &Self::Point) -> Self::Stage;

    /// Its group.
    fn group(point: &Self::Point) -> Self::Group;

    /// A round begins; 0 is the one that warms up.
    fn begin_round(&mut self, _round: u32) {}

    /// Sets up what is missing for a point, so that its cost is in no measurement.
    ///
    /// # Errors
    /// What is missing; the point counts as failed.
    fn prepare(&mut self, point: &Self::Point) -> Result<()>;

    /// One measurement. In round 0 it may be shorter.
    ///
    /// # Errors
    /// What went wrong; the point counts as failed.
    fn measure(&mut self, point: &Self::Point, round: u32) -> Result<Figures>;

    /// Takes away all that was set up: after a failure, and at the end.
    ///
    /// # Errors
    /// What is not as it was before. Nothing more is measured then.
    fn clear(&mut self) -> Result<()>;

    /// Whether after this failure nothing more can be measured.
    fn is_over(_error: &Error) -> bool {
        false
    }

    /// What could not be measured in the rounds so far, beside points.
    fn skipped(&self) -> Vec<Skipped> {
        Vec::new()
    }
}

/// The results of a plan by this program's own command, on this machine, before anything was measured.
pub(crate) fn begun<P: Point>(plan: Plan<P>) -> Results<P> {
    let mut results = Results::new(machine::describe(Path::new("/")));
    results.versions = versions();
    results.command = std::env::args().collect();
    results.samples = plan.points.into_iter().map(Sample::from).collect();
    (results.plan, results.rounds, results.seed) = (plan.name, plan.rounds, plan.seed);
    (results.settings, results.skipped) = (plan.settings, plan.skipped);
    results
}

/// Where a result comes from that is of no campaign, by the names that raw data have: versions, command, seed, what else was chosen
/// (`settings`), and the machine.
#[must_use]
pub fn origin(seed: u64, settings: serde_json::Value) -> serde_json::Value {
    let command: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    serde_json::json!({
        "versions": versions(), "command": command, "seed": seed, "settings": settings,
        "machine": machine::describe(Path::new("/")),
    })
}

/// What shall be measured.
#[derive(Clone, Debug)]
pub struct Plan<P> {
    /// Its name: `quick`, `full`, `chosen`.
    pub name: String,
    /// The points.
    pub points: Vec<P>,
    /// Rounds that count.
    pub rounds: u32,
    /// Seed of the order, and of all that the subject draws.
    pub seed: u64,
    /// What the subject must know to go on after an interruption.
    pub settings: serde_json::Value,
    /// What of it cannot be measured here.
    pub skipped: Vec<Skipped>,
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

impl Progress<'_> {
    /// In words, for a campaign of so many rounds that has taken so long.
    fn words(&self, rounds: u32, taken: Duration) -> String {
        let round = match self.round {
            0 => "warm-up".to_owned(),
            round => format!("round {round} of {rounds}"),
        };
        let done = self.done as f64;
        // The first few say little about the others.
        let left = (self.done >= 5).then(|| taken.as_secs_f64() / done * (self.total as f64 - done));
        let left = left.map_or_else(String::new, |left| format!(", about {} left", duration(left)));
        format!("{round}, {} of {} measurements{left}", self.done, self.total)
    }
}

/// How a campaign ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All rounds are there.
    Finished,
    /// It was interrupted; what was measured is kept.
    Interrupted,
}

/// Something was left behind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not as it was before: {0}")]
pub struct Uncleared(pub String);

/// A file that cannot be gone on with: it is of another plan, machine or build.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Another(pub String);

/// A plan, perhaps partly carried out.
#[derive(Debug)]
pub struct Campaign<P: Point> {
    /// What there is so far.
    pub results: Results<P>,
    out: Option<PathBuf>,
}

impl<P: Point> Campaign<P> {
    /// A campaign that begins now, by this program's own command; `out` is written to after each round.
    ///
    /// # Errors
    /// If nothing is to be measured, or `out` cannot be written.
    pub fn new(plan: Plan<P>, out: Option<PathBuf>) -> Result<Self> {
        ensure!(!plan.points.is_empty(), "nothing is left to measure: {}", reasons(&plan.skipped));
        let mut results = begun(plan);
        results.started = cpu::unix();
        Ok(Self { results, out })
    }

    /// The campaign that the context goes on with, or else a new one.
    ///
    /// # Errors
    /// As [`Self::resume`], `plan` and [`Self::new`].
    pub fn of(context: &experiment::Context, plan: impl FnOnce() -> Result<Plan<P>>) -> Result<Self> {
        match &context.resume {
            Some(path) => Self::resume(path),
            None => Self::new(plan()?, context.out.clone()),
        }
    }

    /// The campaign in the file at `path`, which is written to again.
    ///
    /// # Errors
    /// If the file cannot be read or lacks what a plan needs; [`Another`] if it is of another machine or another build.
    pub fn resume(path: &Path) -> Result<Self> {
        let shown = path.display();
        let results = Results::<P>::read(path).with_context(|| shown.to_string())?;
        same_machine(path, "on", &results.machine, &machine::describe(Path::new("/")))?;
        // Another build, or another library, is another program: its rounds are none of these.
        for (what, now) in versions().iter().filter(|(what, _)| what.as_str() != "kernel") {
            let then = results.versions.get(what).map_or("unknown", String::as_str);
            ensure!(then == now, Another(format!("{shown}: measured by {what} {then}, and this is {now}")));
        }
        ensure!(results.rounds > 0, "{shown}: it does not say how many rounds there should be");
        Ok(Self { results, out: Some(path.to_owned()) })
    }

    /// Rounds that a sample lacks.
    #[must_use]
    pub fn missing(&self, sample: &Sample<P>) -> u32 {
        let have = sample.rounds.iter().filter(|r| (1..=self.results.rounds).contains(&r.round)).count();
        self.results.rounds.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX))
    }

    /// Measures all that is missing.
    ///
    /// # Errors
    /// If the file cannot be written, the subject says that it is over, or nothing could be measured; [`Uncleared`] if something is
    /// left behind, also beside another error.
    pub fn run<S: Subject<Point = P>>(
        &mut self,
        subject: &mut S,
        interrupted: &AtomicBool,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Ended> {
        let before = cpu::Machine::read()?;
        self.results.conditions.load_before.get_or_insert(machine::load().unwrap_or_default());
        let ended = self.measure(subject, interrupted, progress, before);
        let cleared = clear(subject);
        if ended.as_ref().is_ok_and(|ended| *ended == Ended::Finished) {
            self.results.finished = Some(cpu::unix());
        }
        let saved = self.conclude(before);
        match (ended, cleared) {
            (Err(error), Err(left)) => Err(error.context(left)),
            (Ok(_), Err(left)) => Err(left.into()),
            (Err(error), Ok(())) => Err(error),
            (Ok(ended), Ok(())) => saved.and(Ok(ended)),
        }
    }

    fn measure<S: Subject<Point = P>>(
        &mut self,
        subject: &mut S,
        interrupted: &AtomicBool,
        progress: &mut dyn FnMut(&Progress<'_>),
        before: cpu::Machine,
    ) -> Result<Ended> {
        let missing = self.results.samples.iter().map(|s| u64::from(self.missing(s)));
        let total = missing.map(|n| n + u64::from(S::WARMS_UP && n > 0)).sum();
        let mut done = 0;
        for round in u32::from(!S::WARMS_UP)..=self.results.rounds {
            subject.begin_round(round);
            for index in self.order::<S>(round) {
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(Ended::Interrupted);
                }
                let Some(sample) = self.results.samples.get_mut(index) else { continue };
                let label = sample.label();
                progress(&Progress { round, done, total, next: &label });
                done += 1;
                let mut measured = attempt(subject, sample, round);
                // What cannot be warmed up is left out for good: a busy moment must not decide that.
                let again = |error: &Error| !S::is_over(error) && !interrupted.load(Ordering::Relaxed);
                if round == 0 && measured.as_ref().is_err_and(again) {
                    clear(subject)?;
                    measured = attempt(subject, sample, round);
                }
                match measured {
                    // The key that interrupts us interrupts what we run as well.
                    Err(_) if interrupted.load(Ordering::Relaxed) => return Ok(Ended::Interrupted),
                    Ok(figures) => {
                        sample.verified = true;
                        if round > 0 {
                            sample.push(round, figures);
                        }
                    }
                    Err(error) if S::is_over(&error) => return Err(error),
                    Err(error) => {
                        let reason = shortened(format!("{error:#}"));
                        self.results.discarded.push(Discarded { round, subject: shortened(label), reason });
                        clear(subject)?;
                    }
                }
            }
            self.give_up();
            ensure!(
                !self.results.samples.is_empty(),
                "nothing could be measured: {}",
                reasons(&self.results.skipped)
            );
            self.results.conditions.yardstick.push(cpu::yardstick());
            for new in subject.skipped() {
                self.results.skipped.retain(|old| old.subject != new.subject);
                self.results.skipped.push(new);
            }
            self.conclude(before)?;
        }
        Ok(Ended::Finished)
    }

    /// The points that a round lacks, in their order: stage by stage, within one group by group, in an order of the round's own.
    fn order<S: Subject<Point = P>>(&self, round: u32) -> Vec<usize> {
        let mut random = Seeded::new(self.results.seed ^ u64::from(round) << 32);
        let mut groups: BTreeMap<(S::Stage, S::Group), Vec<usize>> = BTreeMap::new();
        for (index, sample) in self.results.samples.iter().enumerate() {
            let lacks = match round {
                0 => self.missing(sample) > 0,
                _ => sample.rounds.iter().all(|r| r.round != round),
            };
            if lacks && self.failures(sample).count() < ATTEMPTS {
                groups.entry((S::stage(sample), S::group(sample))).or_default().push(index);
            }
        }
        let mut keyed: Vec<(S::Stage, u64, Vec<usize>)> = groups
            .into_iter()
            .map(|((stage, _), mut indices)| {
                shuffle(&mut indices, &mut random);
                (stage, random.next_u64(), indices)
            })
            .collect();
        keyed.sort();
        keyed.into_iter().flat_map(|(_, _, indices)| indices).collect()
    }

    fn failures(&self, sample: &Sample<P>) -> impl Iterator<Item = &Discarded> {
        let label = shortened(sample.label());
        self.results.discarded.iter().filter(move |d| d.subject == label)
    }

    /// What could not even be warmed up, or never gave a figure, leaves the plan.
    fn give_up(&mut self) {
        let gone = |sample: &Sample<P>| {
            let last = self.failures(sample).last()?;
            let hopeless = last.round == 0 || self.failures(sample).count() >= ATTEMPTS;
            let absent = last.round == 0 && sample.point.may_be_absent();
            let why =
                || Skipped { failed: !absent, ..Skipped::new(last.subject.clone(), last.reason.clone()) };
            (hopeless && sample.rounds.is_empty()).then(why)
        };
        let gone: Vec<Option<Skipped>> = self.results.samples.iter().map(gone).collect();
        let mut stays = gone.iter().map(Option::is_none);
        self.results.samples.retain(|_| stays.next().unwrap_or(true));
        self.results.skipped.extend(gone.into_iter().flatten());
    }

    fn conclude(&mut self, before: cpu::Machine) -> Result<()> {
        let spent = cpu::Machine::read()?.since(before);
        let conditions = &mut self.results.conditions;
        conditions.load_after = machine::load();
        conditions.steal = (!spent.total.is_zero())
            .then(|| (spent.steal.as_secs_f64() / spent.total.as_secs_f64()).min(1.0));
        self.save()
    }

    /// Carries it out and gives what came out; says meanwhile, once a round and no more than every few seconds, how far it is and
    /// how long the rest will take.
    ///
    /// # Errors
    /// As [`Campaign::run`], and when it is interrupted: what was measured is in its file.
    pub fn finish<S: Subject<Point = P>>(
        mut self,
        subject: &mut S,
        context: &experiment::Context,
    ) -> Result<Results<P>> {
        self.save()?;
        let (rounds, began) = (self.results.rounds, cpu::wall());
        let mut said: Option<(u32, Instant)> = None;
        let ended = self.run(subject, &context.interrupted, &mut |at| {
            if said.is_some_and(|(round, when)| round == at.round && when.elapsed() < SAYS_AGAIN) {
                return;
            }
            said = Some((at.round, cpu::wall()));
            (context.progress)(&at.words(rounds, began.elapsed()));
        })?;
        match ended {
            Ended::Finished => Ok(self.results),
            Ended::Interrupted => bail!("interrupted"),
        }
    }

    /// Writes the file, if there is one: before the work, so that a place that cannot be written is known.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self) -> Result<()> {
        match &self.out {
            Some(path) => self.results.write(path).context("the results cannot be kept"),
            None => Ok(()),
        }
    }
}

fn attempt<S: Subject>(subject: &mut S, point: &S::Point, round: u32) -> Result<Figures> {
    subject.prepare(point)?;
    subject.measure(point, round)
}

fn clear(subject: &mut impl Subject) -> Result<(), Uncleared> {
    subject.clear().map_err(|error| Uncleared(format!("{error:#}")))
}

impl Conditions {
    /// What a reader should know about how quiet the machine was, of so many processors; empty if it was.
    #[must_use]
    pub fn noise(&self, cores: u32) -> Vec<String> {
        let mut noise = Vec::new();
        if let Some([load, ..]) = self.load_before.filter(|l| l[0] > 0.3 * f64::from(cores)) {
            noise.push(format!("the machine was busy before: load {load:.2} on {cores} cores"));
        }
        if let Some(steal) = self.steal.filter(|s| *s > 0.01) {
            noise.push(format!("a hypervisor took {:.1} % of the time", 100.0 * steal));
        }
        if let Some(speed) = stats::noise(&self.yardstick) {
            noise.extend(speed.warnings.iter().map(|w| format!("the processor's own speed varied: {w}")));
        }
        noise
    }
}

/// Whether a file is of a machine like this one.
///
/// # Errors
/// In what they differ.
pub(crate) fn same_machine(path: &Path, whose: &str, then: &Machine, now: &Machine) -> Result<()> {
    for (what, then, now) in [
        ("processor", &then.cpu, &now.cpu),
        ("kernel", &then.kernel, &now.kernel),
        ("number of processors", &then.cores.to_string(), &now.cores.to_string()),
    ] {
        let path = path.display();
        ensure!(
            then == now,
            Another(format!("{path}: measured {whose} another {what}: {then}, and this is {now}"))
        );
    }
    Ok(())
}

fn reasons(skipped: &[Skipped]) -> String {
    skipped.iter().map(|s| format!("{}: {}", s.subject, s.reason)).collect::<Vec<_>>().join("; ")
}

fn shuffle(indices: &mut [usize], random: &mut Seeded) {
    for i in (1..indices.len()).rev() {
        let j = usize::try_from(random.below(i as u64 + 1)).unwrap_or(0);
        indices.swap(i, j);
    }
}

/// The program's version, its commit, whether that tree was modified, its build and the SHA-256 of its file; the kernel and the libraries. By
/// the names that raw data have for them.
#[must_use]
pub fn versions() -> BTreeMap<String, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (commit, modified) = tree(option_env!("DORMOUSE_COMMIT"));
    let own = [
        ("dormouse", env!("CARGO_PKG_VERSION")),
        // Of the tree that it was built from, as `make build` sets it.
        ("commit", commit),
        ("modified", modified),
        // Two modified trees of one commit are two programs.
        ("executable", executable()),
        ("kernel", kernel.trim()),
        ("build", build()),
    ];
    let libraries = ["aws-lc-rs", "aws-lc-sys", "rustls"].map(|name| Some((name, locked(name)?)));
    let all = own.into_iter().chain(libraries.into_iter().flatten());
    all.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

/// Commit of a tree that is described as by `git describe --always --dirty`, and whether it was modified; unknown without git.
fn tree(described: Option<&str>) -> (&str, &str) {
    match described {
        None | Some("" | "unknown") => ("unknown", "unknown"),
        Some(tree) => tree.strip_suffix("-dirty").map_or((tree, "no"), |commit| (commit, "yes")),
    }
}

/// SHA-256 of this program's file.
fn executable() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        Input::of(Path::new("/proc/self/exe")).map_or_else(|_| "unknown".to_owned(), |exe| exe.sha256)
    })
}

/// How this program was built.
pub(crate) const fn build() -> &'static str {
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
