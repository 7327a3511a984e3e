//! Paper 004's recommendations held against measurements: each is confirmed, contradicted, partly so, or not measurable here.
//! Owns how a rule is tested; the rules stand in [`table`]. Must never count a comparison with too few rounds, and never guess
//! where a pair of samples is missing.

mod table;

pub(crate) use table::{TLS_CPU, TLS_FASTER};

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::levels::parts;
use crate::judge::stats::{Bootstrap, Comparison, Verdict};
use crate::judge::{Decides, Expect, Finding};
use crate::results::esp::{Encapsulation, Engine, Metric, What};
use crate::results::{Results, Sample};

/// A rule with what came out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rule {
    /// Short name.
    pub id: &'static str,
    /// Where in paper 004.
    pub place: &'static str,
    /// The rule, in our words.
    pub rule: &'static str,
    /// The paper's figure.
    pub paper: &'static str,
    /// What came out.
    pub finding: Finding,
    /// The numbers, or why there are none.
    pub ours: String,
    /// The figures that decide.
    #[serde(skip)]
    pub figures: Vec<Decides>,
}

/// A cipher's mode, as paper 004 names them. CBC, CTR and NULL go with HMAC-SHA1-96 there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Cbc,
    Ctr,
    Ccm,
    Gcm,
    Null,
    /// No protection.
    Plain,
}

impl Mode {
    /// Of a suite, with `integrity` for the modes that need one.
    fn of(suite: &str, integrity: &str) -> Option<Self> {
        let (cipher, with) = parts(suite);
        let composed = with == Some(integrity);
        match cipher {
            "none" => Some(Self::Plain),
            "null" if composed => Some(Self::Null),
            "aes128" | "aes256" if composed => Some(Self::Cbc),
            "aes128ctr" | "aes256ctr" if composed => Some(Self::Ctr),
            "aes128gcm16" | "aes256gcm16" => Some(Self::Gcm),
            "aes128ccm16" | "aes256ccm16" | "aes128ccm12" | "aes256ccm12" | "aes128ccm8" | "aes256ccm8" => {
                Some(Self::Ccm)
            }
            _ => None,
        }
    }
}

/// What a sample must be like to stand on one side of a comparison; what is `None` may be anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    /// The mode.
    pub(crate) mode: Option<Mode>,
    /// AES instructions in use, or not (also where there are none).
    pub(crate) aes: Option<bool>,
    /// More than one core, or just one.
    pub(crate) many: Option<bool>,
    /// How packets are wrapped.
    pub(crate) wrap: Option<Encapsulation>,
    /// Who did the work.
    pub(crate) engine: Option<Engine>,
    /// What was measured.
    pub(crate) what: Option<What>,
    /// The governor.
    pub(crate) governor: Option<&'static str>,
}

/// Anything.
pub(crate) const ANY: Pick =
    Pick { mode: None, aes: None, many: None, wrap: None, engine: None, what: None, governor: None };

impl Pick {
    /// In this mode.
    pub(crate) const fn mode(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }

    /// On several cores, or on one.
    pub(crate) const fn many(self, many: bool) -> Self {
        Self { many: Some(many), ..self }
    }

    /// Wrapped so.
    pub(crate) const fn wrap(self, wrap: Encapsulation) -> Self {
        Self { wrap: Some(wrap), ..self }
    }

    /// Under this governor.
    pub(crate) const fn governor(self, governor: &'static str) -> Self {
        Self { governor: Some(governor), ..self }
    }

    /// Measured so.
    pub(crate) const fn what(self, what: What) -> Self {
        Self { what: Some(what), ..self }
    }

    /// `has_aes` tells what a sample does that does not say: use the instructions of a processor that has them.
    fn matches(&self, sample: &Sample, integrity: &str, has_aes: bool) -> bool {
        let aes = sample.aes_instructions.unwrap_or(has_aes && sample.suite.contains("aes"));
        self.mode.is_none_or(|m| Mode::of(&sample.suite, integrity) == Some(m))
            && self.aes.is_none_or(|a| a == aes)
            && self.many.is_none_or(|m| m == (sample.cores > 1))
            && self.wrap.is_none_or(|w| w == sample.encapsulation)
            && self.engine.is_none_or(|e| e == sample.engine)
            && self.what.is_none_or(|w| w == sample.what)
            && self.governor.is_none_or(|g| sample.governor.as_deref() == Some(g))
    }
}

/// In what the two sides differ; in everything else they must be alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Differ {
    /// The suite, with keys of one length.
    Suite,
    /// ESP against nothing: suite, engine and wrapping.
    Protection,
    /// Cores.
    Cores,
    /// AES instructions.
    Aes,
    /// Wrapping.
    Wrap,
    /// Governor.
    Governor,
    /// TLS against IPsec: everything but the file and the MTU.
    Layer,
}

impl Differ {
    fn comparable(self, a: &Sample, b: &Sample) -> bool {
        let key = |s: &Sample| {
            let cipher = parts(&s.suite).0;
            if cipher.contains("256") { 256 } else { 128 }
        };
        let layer = self == Self::Layer;
        let suites = matches!(self, Self::Suite | Self::Protection) || layer;
        let unprotected = self == Self::Protection || layer;
        // A suite without AES is alike to one with and without the instructions.
        let aes = a.aes_instructions.is_none()
            || b.aes_instructions.is_none()
            || a.aes_instructions == b.aes_instructions;
        // TLS 1.2 and 1.3 with the cipher that IPsec has: `tls13-aes128gcm` and `aes128gcm16`.
        let same_cipher = || parts(&a.suite).1.is_some_and(|cipher| b.suite.starts_with(cipher));
        (suites || a.suite == b.suite)
            && (!layer || same_cipher())
            && (self != Self::Suite
                || key(a) == key(b)
                || !a.suite.contains("aes")
                || !b.suite.contains("aes"))
            && (unprotected || a.engine == b.engine)
            && (unprotected || self == Self::Wrap || a.encapsulation == b.encapsulation)
            && (layer || (a.what == b.what && a.unit == b.unit && a.direction == b.direction))
            && (self == Self::Cores || a.cores == b.cores)
            && (self == Self::Aes || aes)
            && (self == Self::Governor || a.governor == b.governor)
            // Without IPsec's headers, the same link has a larger MTU.
            && (a.packet_bytes == b.packet_bytes || layer && a.packet_bytes.abs_diff(b.packet_bytes) <= 150)
            && a.file_bytes == b.file_bytes
            && a.offered == b.offered
    }
}

/// One comparison that a rule asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    pub(crate) first: Pick,
    pub(crate) second: Pick,
    pub(crate) differ: Differ,
    pub(crate) metric: Metric,
    /// Packet sizes, both included.
    pub(crate) sizes: (u32, u32),
    pub(crate) expect: Expect,
    /// The size that the paper states, from and to, as a ratio like that of the samples; none where it states a direction alone.
    pub(crate) size: Option<(f64, f64)>,
    /// Bytes of a file, at least; 0 for what has no file.
    pub(crate) files: u64,
}

/// How far beside a stated size a ratio may lie, as a factor, at most: the paper gives its sizes with one or two digits.
pub(crate) const MARGIN: f64 = 1.1;

/// How far beside this end of a size: no more than half of its distance from 1 (of logarithms), or a size near 1 would be met by any direction.
fn margin(end: f64) -> f64 {
    end.max(1.0 / end).sqrt().min(MARGIN)
}

impl Test {
    /// Of what differs in this and nothing else, in packets of any size that an Ethernet carries; no difference is expected.
    pub(crate) const fn new(first: Pick, second: Pick, differ: Differ, metric: Metric) -> Self {
        Self { first, second, differ, metric, sizes: (1, 1_500), expect: Expect::TIE, size: None, files: 0 }
    }

    /// Of packets of these sizes.
    pub(crate) const fn at(self, sizes: (u32, u32)) -> Self {
        Self { sizes, ..self }
    }

    /// Of files of at least so many bytes.
    pub(crate) const fn files(self, files: u64) -> Self {
        Self { files, ..self }
    }

    /// With this expectation.
    pub(crate) const fn expect(self, expect: Expect) -> Self {
        Self { expect, ..self }
    }

    /// By as much as the paper states: from, and to. What is "at least" so much has 0 or infinity for the other end.
    pub(crate) const fn by(self, low: f64, high: f64) -> Self {
        Self { size: Some((low, high)), ..self }
    }

    /// Whether a side is of a mode that goes with HMAC-SHA1 in the paper.
    fn needs_integrity(&self) -> bool {
        let composed = |pick: &Pick| matches!(pick.mode, Some(Mode::Cbc | Mode::Ctr | Mode::Null));
        composed(&self.first) || composed(&self.second)
    }

    /// Where a ratio must lie to be of the stated size, if there is one.
    fn by_size(&self) -> Option<Expect> {
        self.size.map(|(low, high)| {
            // "At least" is a limit by itself.
            if low > 0.0 && high.is_finite() {
                Expect::between(low / margin(low), high * margin(high))
            } else {
                Expect::between(low, high)
            }
        })
    }
}

/// A rule as the paper has it.
struct Definition {
    id: &'static str,
    place: &'static str,
    rule: &'static str,
    paper: &'static str,
    /// On what it can be tested, best first; the first that has a pair of samples is taken.
    on: &'static [What],
    tests: &'static [Test],
    /// What must have been measured.
    needs: &'static str,
    /// Words by which the file may say why it was not.
    words: &'static [&'static str],
}

/// A pair of samples compared.
pub(crate) struct Pair<'a> {
    /// The first side.
    pub(crate) first: &'a Sample,
    /// The second.
    pub(crate) second: &'a Sample,
    /// The first over the second.
    pub(crate) comparison: Comparison,
}

/// The integrity algorithm that stands for the paper's HMAC-SHA1-96: itself, or SHA-256 if the file lacks it.
pub(crate) fn integrity(results: &Results) -> &'static str {
    let sha1 = |s: &Sample| s.suite.starts_with("aes") && s.suite.ends_with("-sha1");
    if results.samples.iter().any(sha1) { "sha1" } else { "sha256" }
}

/// All pairs of a test with enough rounds: what rules count and figures draw. Governors that do not change the speed are no pair.
pub(crate) fn pairs<'a>(
    results: &'a Results,
    bootstrap: &Bootstrap,
    test: &Test,
    on: Option<What>,
) -> Vec<Pair<'a>> {
    if test.differ == Differ::Governor && !governors_change_speed(results, bootstrap) {
        return Vec::new();
    }
    every_pair(results, bootstrap, test, on)
}

/// How much slower a processor must be at its lowest frequency than at its highest, if its frequencies are to be believed.
const SLOWER: f64 = 1.3;

/// Whether governors change the speed. Those of a processor that is emulated change nothing unless the emulator is slowed down, and "not
/// slower" would hold by construction: so the file must show it, in all rounds of all that was measured under both together.
pub(crate) fn governors_change_speed(results: &Results, bootstrap: &Bootstrap) -> bool {
    if !results.machine.emulated() {
        return true;
    }
    let [high, low] = ["performance", "powersave"].map(|governor| ANY.governor(governor));
    let test = Test::new(high, low, Differ::Governor, Metric::Throughput);
    let pairs = every_pair(results, bootstrap, &test, None);
    let rounds: Vec<(f64, f64)> =
        pairs.iter().flat_map(|pair| pair.first.paired(pair.second, test.metric)).collect();
    bootstrap.paired(&rounds).is_some_and(|c| c.verdict != Verdict::TooFew && c.ratio.low > SLOWER)
}

fn every_pair<'a>(
    results: &'a Results,
    bootstrap: &Bootstrap,
    test: &Test,
    on: Option<What>,
) -> Vec<Pair<'a>> {
    let integrity = integrity(results);
    let has_aes = results.machine.flags.iter().any(|f| f == "aes");
    let side = |pick: Pick| {
        results.samples.iter().filter(move |s| {
            s.verified
                && matches!(s.engine, Engine::Dormouse | Engine::Rustls | Engine::Plain)
                && on.is_none_or(|what| s.what == what || test.differ == Differ::Layer)
                && (test.sizes.0..=test.sizes.1).contains(&s.packet_bytes)
                && (test.files == 0 || s.file_bytes.is_some_and(|bytes| bytes >= test.files))
                && pick.matches(s, integrity, has_aes)
        })
    };
    let mut out = Vec::new();
    for first in side(test.first) {
        for second in side(test.second).filter(|s| test.differ.comparable(first, s)) {
            let comparison = bootstrap.compare(first, second, test.metric);
            let told = comparison.filter(|c| c.verdict != Verdict::TooFew);
            out.extend(told.map(|comparison| Pair { first, second, comparison }));
        }
    }
    out.sort_by_key(|p| (p.first.packet_bytes, p.first.suite.clone()));
    out
}

/// The comparisons of a rule, with the sizes that the paper states.
pub(crate) fn tests(id: &str) -> &'static [Test] {
    table::RULES.iter().find(|d| d.id == id).map_or(&[], |d| d.tests)
}

/// All rules.
pub(crate) fn check(results: &Results, bootstrap: &Bootstrap) -> Vec<Rule> {
    let mut rules: Vec<Rule> = table::RULES.iter().map(|d| one(results, bootstrap, d)).collect();
    rules.push(table::who_gains_most(results, bootstrap));
    rules
}

/// Why governors are not compared on a processor that is emulated.
pub(crate) const NO_FREQUENCIES: &str = "the processor is emulated, and powersave is not shown to be slower there than performance: governors change, the speed may not";
/// What must be known where they are.
pub(crate) const FREQUENCIES_EMULATED: &str = "frequencies emulated";
/// Why gains are not held against each other on such a processor.
const NO_GAINS: &str = "the processor is emulated: what an instruction gains is what its emulation costs";

fn one(results: &Results, bootstrap: &Bootstrap, d: &Definition) -> Rule {
    let rule = |figures: Vec<Decides>, ours| {
        let finding = Finding::each(figures.iter().map(Decides::finding));
        Rule { id: d.id, place: d.place, rule: d.rule, paper: d.paper, finding, ours, figures }
    };
    let emulated = results.machine.emulated() && d.tests.iter().any(|t| t.differ == Differ::Governor);
    if emulated && !governors_change_speed(results, bootstrap) {
        return rule(Vec::new(), NO_FREQUENCIES.to_owned());
    }
    for what in d.on {
        let mut figures = Vec::new();
        let mut sizes = Vec::new();
        let mut words = Vec::new();
        for test in d.tests {
            let found = pairs(results, bootstrap, test, Some(*what));
            for pair in &found {
                let from = |decides: Decides| {
                    decides.from(results.places(&[pair.first, pair.second]), test.metric.name())
                };
                figures.push(from(Decides::ratio(test.expect, Some(&pair.comparison))));
                // What an instruction costs on an emulated processor is what its emulation costs: no size.
                let told = (!results.machine.emulated()).then(|| pair.comparison.ratio.into());
                sizes.extend(test.by_size().map(|size| match told {
                    Some(_) => from(Decides::new(size, told)),
                    None => Decides::new(size, None),
                }));
            }
            words.extend(summary(test, &found));
        }
        figures.append(&mut sizes);
        if !figures.is_empty() {
            let sha256 = integrity(results) == "sha256" && d.tests.iter().any(Test::needs_integrity);
            let note = if sha256 { " (with SHA-256 for SHA1, which the file lacks)" } else { "" };
            let note = if emulated { format!("{note} ({FREQUENCIES_EMULATED})") } else { note.to_owned() };
            return rule(figures, format!("{}: {}{note}", what.words(), words.join("; ")));
        }
    }
    rule(Vec::new(), missing(results, d.needs, d.words))
}

/// Why there is no pair: in the file's own words, if it has any.
fn missing(results: &Results, needs: &str, words: &[&str]) -> String {
    let mut reasons = BTreeSet::new();
    for skipped in &results.skipped {
        let subject = skipped.subject.to_lowercase();
        if words.iter().any(|w| subject.contains(w)) {
            reasons.insert(format!("{}: {}", skipped.subject, skipped.reason));
        }
    }
    if reasons.is_empty() {
        format!("the result file lacks {needs}, with enough rounds")
    } else {
        reasons.into_iter().collect::<Vec<_>>().join("; ")
    }
}

/// The comparisons of a test in words: `CTR-SHA1 over CBC-SHA1, throughput: 180 B 0.98 [0.97, 1.00] tie, ...`.
fn summary(test: &Test, pairs: &[Pair<'_>]) -> Option<String> {
    let first = pairs.first()?;
    let several = pairs.iter().any(|p| p.first.suite != first.first.suite);
    let side = |sample| name(sample, test.differ, several);
    let metric = super::words::metric(test.metric);
    let mut out = format!("{} over {}, {metric}:", side(first.first), side(first.second));
    for pair in pairs.iter().take(SHOWN) {
        let c = &pair.comparison;
        let verdict = match c.verdict {
            Verdict::Tie => " tie",
            Verdict::Open => " open",
            _ => "",
        };
        let (suite, space) = if several { (pair.first.suite.as_str(), " ") } else { ("", "") };
        let _ = write!(
            out,
            " {suite}{space}{}{} {:.2} [{:.2}, {:.2}]{verdict},",
            size(pair.first),
            besides(pair, pairs, test.differ),
            c.ratio.median,
            c.ratio.low,
            c.ratio.high
        );
    }
    out.pop();
    if pairs.len() > SHOWN {
        let _ = write!(out, ", and {} more", pairs.len() - SHOWN);
    }
    Some(out)
}

/// What tells a pair from others of its size, in words: the way, the wrapping, the processors and the instructions, where they
/// are not all alike (and are not what the two sides differ in). TLS is not wrapped: there it is that of the other side.
fn besides(pair: &Pair<'_>, pairs: &[Pair<'_>], differ: Differ) -> String {
    let varies = |of: &dyn Fn(&Pair<'_>) -> String| {
        let own = of(pair);
        let other = pairs.iter().any(|p| p.first.suite == pair.first.suite && of(p) != own);
        other.then_some(own)
    };
    let way = |p: &Pair<'_>| p.first.direction.words().to_owned();
    let aes = |p: &Pair<'_>| {
        if p.first.aes_instructions == Some(false) { "in software" } else { "by instructions" }.to_owned()
    };
    let wrapped = |p: &Pair<'_>| {
        let wrapped = if differ == Differ::Layer { p.second } else { p.first };
        wrapped.encapsulation.words().to_owned()
    };
    let cores = |p: &Pair<'_>| format!("{} cores", p.first.cores);
    let mut words = vec![varies(&way)];
    if !matches!(differ, Differ::Wrap | Differ::Protection) {
        words.push(varies(&wrapped));
    }
    if differ != Differ::Cores {
        words.push(varies(&cores));
    }
    if differ != Differ::Aes {
        words.push(varies(&aes));
    }
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The size of a sample: of its packets, and of its file if it has one.
fn size(sample: &Sample) -> String {
    match sample.file_bytes {
        Some(bytes) => format!("{} B of {} kB", sample.packet_bytes, bytes / 1_000),
        None => format!("{} B", sample.packet_bytes),
    }
}

/// Pairs of a test that are listed one by one.
const SHOWN: usize = 6;

/// A side by what it differs in; without its suite where there are several and each pair names its own.
fn name(sample: &Sample, differ: Differ, several: bool) -> String {
    let wrap = sample.encapsulation.words();
    let how = match differ {
        Differ::Protection if sample.suite == "none" => {
            let plain = sample.engine == Engine::Plain;
            return if plain { "the bare link" } else { "dormouse without ESP" }.to_owned();
        }
        Differ::Suite | Differ::Protection => return sample.suite.clone(),
        Differ::Cores => format!("on {} cores", sample.cores),
        Differ::Aes if sample.aes_instructions == Some(false) => "without AES instructions".to_owned(),
        Differ::Aes => "with AES instructions".to_owned(),
        Differ::Wrap => format!("in {wrap}"),
        Differ::Governor => format!("under {}", sample.governor.as_deref().unwrap_or("no governor")),
        Differ::Layer => return format!("{} ({})", sample.suite, sample.what.words()),
    };
    if several { how } else { format!("{} {how}", sample.suite) }
}
