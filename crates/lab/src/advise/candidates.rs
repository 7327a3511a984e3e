//! Which measurements decide for a use, and the suites among them. Owns the selection: everything but the suite is held
//! fixed. Must never mix samples that were measured under different circumstances.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::levels::{self, Judgement, Permission};
use super::purpose::{Options, Purpose};
use crate::judge::stats::{self, Bootstrap, Estimate, MIN_ROUNDS};
use crate::results::esp::{Direction, Encapsulation, Engine, Metric, Unit, What};
use crate::results::format::EnergySource;
use crate::results::{Results, Sample};

/// What is the same for all candidates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Basis {
    /// The whole path, or the cryptography alone.
    pub what: What,
    /// How packets were wrapped.
    pub encapsulation: Encapsulation,
    /// Which way.
    pub direction: Direction,
    /// What a byte is a byte of.
    pub unit: Unit,
    /// Processors.
    pub cores: u32,
    /// The governor, where known.
    pub governor: Option<String>,
    /// Bytes of a packet.
    pub packet_bytes: u32,
}

impl Basis {
    fn of(sample: &Sample) -> Self {
        Self {
            what: sample.what,
            encapsulation: sample.encapsulation,
            direction: sample.direction,
            unit: sample.unit,
            cores: sample.cores,
            governor: sample.governor.clone(),
            packet_bytes: sample.packet_bytes,
        }
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let governor = self.governor.as_ref().map(|g| format!(", governor {g}")).unwrap_or_default();
        let [what, how, way] = [self.what.words(), self.encapsulation.words(), self.direction.words()];
        format!("{what}, {how}, {way}, {}-byte packets, {cores}{governor}", self.packet_bytes)
    }
}

/// A suite on that basis.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Candidate {
    /// As in a proposal.
    pub suite: String,
    /// What the standards say; absent for a suite that is not known.
    pub judgement: Option<Judgement>,
    /// Where it stands.
    pub standing: Standing,
    /// Bytes per second.
    pub throughput: Option<Estimate>,
    /// Nanoseconds of CPU per byte.
    pub cpu: Option<Estimate>,
    /// Joules per byte.
    pub energy: Option<Estimate>,
    /// Whether those are measured or estimated.
    pub energy_source: EnergySource,
    /// Bytes that ESP adds to each packet; absent where that is not known.
    pub overhead: Option<u32>,
    /// What makes its figures doubtful.
    pub noise: Vec<String>,
    /// Its place in the file.
    #[serde(skip)]
    pub sample: usize,
}

impl Candidate {
    /// A figure.
    #[must_use]
    pub const fn figure(&self, metric: Metric) -> Option<Estimate> {
        match metric {
            Metric::Throughput => self.throughput,
            Metric::Cpu => self.cpu,
            Metric::Energy => self.energy,
            _ => None,
        }
    }

    /// Whether it may be recommended.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.standing, Standing::Front | Standing::Dominated { .. })
    }
}

/// Where a candidate stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Standing {
    /// On the Pareto front: no other allowed suite is better in one figure and worse in none.
    Front,
    /// Another is.
    Dominated {
        /// The suite that is better.
        by: String,
    },
    /// The standards forbid it, or discourage it and `--allow-discouraged` was not given.
    Excluded {
        /// In words, with the citation.
        why: String,
    },
    /// The daemon does not implement it.
    NotConfigurable,
    /// Its output was not verified.
    Unverified {
        /// Why not.
        why: String,
    },
    /// Too few rounds to conclude anything.
    TooFewRounds {
        /// How many.
        rounds: usize,
    },
}

impl Standing {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Front => "on the Pareto front".to_owned(),
            Self::Dominated { by } => format!("{by} is better or equal in everything"),
            Self::Excluded { why } => why.clone(),
            Self::NotConfigurable => "dormoused does not implement it: measured for comparison".to_owned(),
            Self::Unverified { why } => format!("not verified: {why}"),
            Self::TooFewRounds { rounds } => format!("only {rounds} rounds, expected {MIN_ROUNDS} or more"),
        }
    }
}

/// Samples that may decide at all, with their place in the file.
fn eligible(results: &Results) -> impl Iterator<Item = (usize, &Sample)> {
    // A processor with AES instructions uses them; samples without are there to compare (paper 004).
    let with = results.samples.iter().any(|s| s.aes_instructions == Some(true));
    results.samples.iter().enumerate().filter(move |(_, s)| {
        matches!(s.what, What::Path | What::Crypto)
            && s.engine == Engine::Dormouse
            && !(with && s.aes_instructions == Some(false))
    })
}

/// The circumstances under which the most usable suites were compared, at the packet size nearest to what stands for the use:
/// the whole path if it was measured, one core if there is a choice (the daemon's data path is one thread).
pub(super) fn basis(results: &Results, purpose: Purpose) -> Option<Basis> {
    let mut suites: BTreeMap<Basis, BTreeSet<&str>> = BTreeMap::new();
    for (_, sample) in eligible(results).filter(|(_, s)| s.verified) {
        let usable = Judgement::of(&sample.suite).is_some_and(|j| j.permission() != Permission::Forbidden);
        if usable && levels::configurable(&sample.suite) {
            suites.entry(Basis::of(sample)).or_default().insert(&sample.suite);
        }
    }
    let known = results.machine.governor.as_deref();
    // A few suites that were measured once more, on one core for instance, are no choice.
    let most = |what: What| {
        suites.iter().filter(|(b, _)| b.what == what).map(|(_, suites)| suites.len()).max().unwrap_or(0)
    };
    let rank = |(basis, suites): &(&Basis, &BTreeSet<&str>)| {
        (
            basis.what == What::Path && suites.len() >= 2,
            suites.len() >= 2,
            suites.len() * 3 >= most(basis.what) * 2,
            std::cmp::Reverse(basis.cores),
            basis.governor.is_none() || basis.governor.as_deref() == known,
            std::cmp::Reverse(basis.packet_bytes.abs_diff(purpose.packet_bytes())),
            suites.len(),
            // Sealing and opening together say more than either; a VPN to a gateway is a tunnel, mostly behind a NAT.
            basis.direction == Direction::Both,
            matches!(basis.encapsulation, Encapsulation::Udp | Encapsulation::Tunnel),
            basis.encapsulation == Encapsulation::Udp,
        )
    };
    suites.iter().max_by_key(rank).map(|(basis, _)| basis.clone())
}

/// All suites that were measured on the basis, in the order of the file.
pub(super) fn collect(
    results: &Results,
    basis: &Basis,
    bootstrap: &Bootstrap,
    options: Options,
) -> Vec<Candidate> {
    let mut seen = BTreeSet::new();
    eligible(results)
        .filter(|(_, s)| Basis::of(s) == *basis && seen.insert(s.suite.as_str()))
        .map(|(n, s)| candidate(results, n, s, bootstrap, options))
        .collect()
}

fn candidate(
    results: &Results,
    n: usize,
    sample: &Sample,
    bootstrap: &Bootstrap,
    options: Options,
) -> Candidate {
    let figure = |metric| bootstrap.figure(sample, metric);
    let noise = stats::noise(&sample.values(Metric::Throughput)).map(|n| n.warnings).unwrap_or_default();
    let source = results.energy.source;
    Candidate {
        suite: sample.suite.clone(),
        judgement: Judgement::of(&sample.suite),
        standing: standing(sample, options),
        throughput: figure(Metric::Throughput),
        cpu: figure(Metric::Cpu),
        energy: figure(Metric::Energy).filter(|_| source != EnergySource::None),
        energy_source: source,
        overhead: levels::overhead(&sample.suite, sample.packet_bytes),
        noise,
        sample: n,
    }
}

/// Where a sample stands before it is compared with any other.
fn standing(sample: &Sample, options: Options) -> Standing {
    let excluded = |why: String| Standing::Excluded { why };
    let Some(judgement) = Judgement::of(&sample.suite) else {
        return excluded("no standard that the adviser knows names it".to_owned());
    };
    match judgement.permission() {
        Permission::Forbidden => return excluded(judgement.reason()),
        Permission::OnRequest if !options.allow_discouraged => return excluded(judgement.reason()),
        _ => {}
    }
    if !sample.verified {
        let why = sample.remark.clone().unwrap_or_else(|| "the file does not say why".to_owned());
        return Standing::Unverified { why };
    }
    if !levels::configurable(&sample.suite) {
        return Standing::NotConfigurable;
    }
    let rounds = sample.values(Metric::Throughput).len();
    if rounds < MIN_ROUNDS { Standing::TooFewRounds { rounds } } else { Standing::Front }
}

/// Two suites where the file has them both under other circumstances than those that decide: the most alike to what stands for
/// the use.
pub(super) fn elsewhere<'a>(
    results: &'a Results,
    purpose: Purpose,
    first: &str,
    second: &str,
) -> Option<(Basis, &'a Sample, &'a Sample)> {
    let of = |suite: &str| {
        let named = eligible(results).map(|(_, s)| s).filter(|s| s.verified && s.suite == suite);
        named.map(|s| (Basis::of(s), s)).collect::<BTreeMap<_, _>>()
    };
    let mut seconds = of(second);
    let both = of(first).into_iter().filter_map(|(basis, a)| Some((seconds.remove(&basis)?, basis, a)));
    let rank = |(_, basis, _): &(&Sample, Basis, &Sample)| {
        let path = basis.what == What::Path;
        let far = basis.packet_bytes.abs_diff(purpose.packet_bytes());
        (path, std::cmp::Reverse(far), std::cmp::Reverse(basis.cores))
    };
    both.max_by_key(rank).map(|(b, basis, a)| (basis, a, b))
}

/// What a reader might expect to be in the comparison and is not.
pub(super) fn not_measured(results: &Results, candidates: &[Candidate], basis: &Basis) -> Vec<String> {
    let mut out: Vec<String> =
        results.skipped.iter().map(|s| format!("{}: {}", s.subject, s.reason)).collect();
    for suite in ["aes128gcm16", "aes256gcm16", "chacha20poly1305", "aes128-sha256", "aes256-sha256"] {
        if !candidates.iter().any(|c| c.suite == suite) {
            out.push(format!("{suite}: not in the result file ({})", basis.words()));
        }
    }
    if basis.what == What::Crypto {
        out.push("the whole path of a packet: only the cryptography was measured, so the cost of sockets and of the TUN device is missing".to_owned());
    }
    match results.energy.source {
        EnergySource::None => out.push("energy: no meter and no device profile was used".to_owned()),
        EnergySource::Estimated => out.push(format!(
            "energy by a meter: joules are estimated from CPU time and the profile {}, so they say what CPU time says",
            results.energy.name
        )),
        EnergySource::Measured => {}
    }
    out
}

/// What casts doubt on the figures.
pub(super) fn warnings(results: &Results, candidates: &[Candidate], basis: &Basis) -> Vec<String> {
    let mut out = results.conditions.noise(results.machine.cores);
    if let Some(build) = results.versions.get("build").filter(|b| b.as_str() != "release") {
        out.push(format!("measured with a build for {build}"));
    }
    out.extend(results.machine.words().into_iter().skip(1));
    if results.finished.is_none() {
        let rounds = usize::try_from(results.rounds).unwrap_or(usize::MAX).max(1);
        let whole = results.samples.iter().filter(|s| s.rounds.len() >= rounds).count();
        out.push(format!(
            "the campaign was not finished: {whole} of {} points have all of their rounds",
            results.samples.len()
        ));
    }
    if basis.packet_bytes > 1_500 {
        out.push(format!("{}-byte packets are fragmented on Ethernet", basis.packet_bytes));
    }
    let noisy = candidates.iter().filter(|c| !c.noise.is_empty());
    out.extend(noisy.map(|c| format!("{}: {}", c.suite, c.noise.join(", "))));
    out
}
