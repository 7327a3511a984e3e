//! The results file, `dormouse-results` version 2: what every campaign writes, and the adviser and the experiments read. Owns what
//! is the same for all protocols; `docs/results.md` is its manual. Must never hold a figure that was not measured, one that is not
//! a finite number, or one without a unit.
//!
//! A file holds *samples*, one for each [`Point`] of the plan, and each sample holds the raw figures of all its *rounds*, by name.
//! Rounds are interleaved: round 3 of every sample was measured before round 4 of any, so two samples are compared round by round
//! ([`paired`]), and what the machine did meanwhile hits both.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::{fs, io};

use dormouse_crypto::{HashAlg, hash_reader};
use dormouse_energy::profile::Profile;
use dormouse_trace::input::CHANGED;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::esp;

/// What `format` says.
pub const FORMAT: &str = "dormouse-results";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 2;
/// Samples in a file, at most.
pub const MAX_SAMPLES: usize = 100_000;
/// Rounds of a sample, at most: of paper-000 a client's sessions, of which it may have one for each of its connections.
pub const MAX_ROUNDS: usize = 1_000_000;
/// Rounds of a plan, and values in any list but those named here, at most.
pub const MAX_LISTED: usize = 10_000;
/// Numbers under one name in a round, at most.
pub const MAX_NUMBERS: usize = 1_000_000;
/// Bytes of a text in a file, at most.
pub const MAX_TEXT: usize = 4_096;

/// A point of a plan: all that is held fixed while it is measured, as named axes. A protocol or an experiment brings its own.
pub trait Point: Clone + PartialEq + Debug + Serialize + DeserializeOwned {
    /// Which experiment has such points: a file names it.
    const EXPERIMENT: &'static str;
    /// What may be measured at such a point: name and unit. The name of a figure goes to its first dot, so that `wakes.incoming`
    /// is one of `wakes`.
    const QUANTITIES: &'static [(&'static str, &'static str)];

    /// The point in words.
    fn label(&self) -> String;

    /// What types do not express.
    ///
    /// # Errors
    /// The axis that is wrong, and how.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Whether it is measured with something that a machine need not have, which only shows when it is set up: if that fails it is absent,
    /// and the results are whole without it.
    fn may_be_absent(&self) -> bool {
        false
    }
}

/// A whole file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(bound = "P: Point")]
pub struct Results<P = esp::Point> {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// [`Point::EXPERIMENT`].
    pub experiment: String,
    /// What was measured on.
    pub machine: Machine,
    /// The machine at the other end of the link, where there were two; absent where both ends were on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Machine>,
    /// Versions of what took part: `dormouse` with its `commit` and `build`, `kernel`, libraries.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The command, as it was given.
    #[serde(default)]
    pub command: Vec<String>,
    /// The plan: `quick`, `full`, or what was chosen by hand.
    #[serde(default)]
    pub plan: String,
    /// Further parameters of the experiment: durations, sizes.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
    /// Seed of payloads, keys and the order within a round.
    #[serde(default)]
    pub seed: u64,
    /// When it began, in seconds since 1970.
    #[serde(default)]
    pub started: u64,
    /// When it ended, in seconds since 1970; absent while it goes on or after an interruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<u64>,
    /// Rounds of the plan; 0 if it is not known how many there should be.
    #[serde(default)]
    pub rounds: u32,
    /// How quiet the machine was.
    #[serde(default)]
    pub conditions: Conditions,
    /// Where joules come from.
    #[serde(default)]
    pub energy: Energy,
    /// The device profiles that figures rest on, whole, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, Profile>,
    /// The recordings that were evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// The unit of each figure, by its name: `s`, `B/s`, `J`, `count`; `1` for a part of one.
    pub units: BTreeMap<String, String>,
    /// The points.
    pub samples: Vec<Sample<P>>,
    /// What was in the plan and could not be measured here.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Rounds of a point that failed and are not in its sample.
    #[serde(default)]
    pub discarded: Vec<Discarded>,
}

/// A file that was evaluated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Input {
    /// Its name, as it was given.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits; or [`CHANGED`].
    pub sha256: String,
    /// Stretches of it that could not be read, so that no figure has them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Input {
    /// Why figures made of it are not figures of the file: in words, if they are not.
    #[must_use]
    pub fn unlike(&self) -> Option<String> {
        let changed = (self.sha256 == CHANGED).then(|| CHANGED.to_owned());
        let lost = (self.lost > 0).then(|| stretches(self.lost));
        let both: Vec<String> = changed.into_iter().chain(lost).collect();
        (!both.is_empty()).then(|| both.join("; "))
    }

    /// Of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::named(&path.display().to_string(), fs::File::open(path)?)
    }

    /// The same of an open file, from where it is to its end.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn named(name: &str, mut file: fs::File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let hash = hash_reader(HashAlg::Sha256, &mut file)?;
        let sha256 = hash.iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { file: name.to_owned(), bytes, sha256, lost: 0 })
    }
}

/// So many stretches of a recording were lost, in words.
pub(crate) fn stretches(lost: u64) -> String {
    let many = if lost == 1 { "a stretch".to_owned() } else { format!("{lost} stretches") };
    format!("{many} could not be read")
}

/// What figures of an emulated processor are good for.
pub(super) const EMULATED: &str = "a processor emulated by software: counts and directions alone";

/// The machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, as it names itself.
    pub cpu: String,
    /// Architecture: `x86_64`, `aarch64`, ...
    #[serde(default)]
    pub architecture: String,
    /// Processors that may be used.
    pub cores: u32,
    /// Flags or features of the processor, as the kernel names them.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Kernel: name, release and version.
    #[serde(default)]
    pub kernel: String,
    /// Memory in bytes.
    #[serde(default)]
    pub memory: u64,
    /// Frequency governor, where the machine has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Governors that it could have.
    #[serde(default)]
    pub governors: Vec<String>,
    /// TCP's congestion control, unless the experiment chooses its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// The hypervisor, if this is a virtual machine (`unknown` if it does not say which).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
}

impl Machine {
    /// On what figures were obtained, for a report.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![format!("{} ({} cores), {}", self.cpu, self.cores, self.kernel)];
        let of = |h| format!("a virtual machine ({h}): ratios hold, absolute figures may not");
        if self.emulated() {
            words.push(EMULATED.to_owned());
        } else {
            words.extend(self.hypervisor.as_ref().map(of));
        }
        words
    }

    /// Whether the processor is emulated by software, so that a step of it costs what its emulation costs. QEMU's emulator says so in the
    /// model that `/proc/cpuinfo` shows (`QEMU TCG CPU version 2.5+`); a model that another one leaves as it was is not recognised.
    #[must_use]
    pub fn emulated(&self) -> bool {
        self.cpu.starts_with("QEMU TCG")
    }
}

/// How quiet the machine was.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// Load averages over 1, 5 and 15 minutes before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_before: Option<[f64; 3]>,
    /// The same after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_after: Option<[f64; 3]>,
    /// Part of the time that a hypervisor took away, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// Seconds that one and the same arithmetic took, once a round: if they differ, so did the processor's speed.
    #[serde(default)]
    pub yardstick: Vec<f64>,
}

/// Where joules come from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Energy {
    /// Which kind.
    #[serde(default)]
    pub source: EnergySource,
    /// The meter (`intel-rapl package-0`) or the device profile (`laptop-000`).
    #[serde(default)]
    pub name: String,
    /// Watts of the idle machine that were taken off, where they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_watts: Option<f64>,
}

/// Which kind of energy figures a file has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnergySource {
    /// None.
    #[default]
    None,
    /// A meter of the machine.
    Measured,
    /// CPU time times the power that a device profile states.
    Estimated,
}

/// One point and its rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(bound = "P: Point")]
pub struct Sample<P = esp::Point> {
    /// Everything that was held fixed.
    pub point: P,
    /// Whether the output was checked against known answers (or the bytes received against the bytes sent) before it was
    /// timed. A sample that was not is never used for a conclusion.
    pub verified: bool,
    /// Why it was not verified, or what else must be known about this sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// The raw figures.
    pub rounds: Vec<Round>,
}

/// A sample is its point and what was measured there.
impl<P> Deref for Sample<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.point
    }
}

impl<P> DerefMut for Sample<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.point
    }
}

impl<P> From<P> for Sample<P> {
    /// Nothing was measured yet.
    fn from(point: P) -> Self {
        Self { point, verified: false, remark: None, rounds: Vec::new() }
    }
}

impl<P> Sample<P> {
    /// Adds a round.
    pub fn push(&mut self, round: u32, figures: Figures) {
        self.rounds.push(Round { round, figures });
    }

    /// The numbers under a name, all rounds one after the other.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        self.rounds.iter().flat_map(|round| round.figures.all(name)).copied()
    }
}

/// The raw figures of one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Its number: rounds of one number were measured side by side.
    pub round: u32,
    /// What was measured.
    pub figures: Figures,
}

/// Raw figures by name, each a number or several: one for each client, for each cycle. What was not measured is absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<String, Vec<f64>>);

impl Figures {
    /// With this number under this name, or without any.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Option<f64>>) -> Self {
        match value.into() {
            Some(value) => _ = self.0.insert(name.to_owned(), vec![value]),
            None => _ = self.0.remove(name),
        }
        self
    }

    /// With these too.
    #[must_use]
    pub fn with_all(mut self, name: &str, values: impl IntoIterator<Item = f64>) -> Self {
        self.0.insert(name.to_owned(), values.into_iter().collect());
        self
    }

    /// The number under this name; the first of several.
    #[must_use]
    pub fn one(&self, name: &str) -> Option<f64> {
        self.all(name).first().copied()
    }

    /// All numbers under this name.
    #[must_use]
    pub fn all(&self, name: &str) -> &[f64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The numbers under each name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f64])> {
        self.0.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// What stands behind `kind` and a dot, with its number.
    pub fn by<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let of = move |name: &'a str| name.strip_prefix(kind)?.strip_prefix('.');
        self.iter().filter_map(move |(name, values)| Some((of(name)?, *values.first()?)))
    }
}

/// What two rows of figures by round have side by side.
#[must_use]
pub fn paired(a: &BTreeMap<u32, f64>, b: &BTreeMap<u32, f64>) -> Vec<(f64, f64)> {
    a.iter().filter_map(|(n, a)| Some((*a, *b.get(n)?))).collect()
}

/// What could not be measured here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// What: a suite, a governor, a point of the plan.
    pub subject: String,
    /// Why not: "no intel-rapl in /sys/class/powercap", ...
    pub reason: String,
    /// Whether it was tried and failed; else something is not there that it needs.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub failed: bool,
}

impl Skipped {
    /// With words of any length, which may be those of an error.
    #[must_use]
    pub fn new(subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { subject: shortened(subject.into()), reason: shortened(reason.into()), failed: false }
    }

    /// The same of what was tried and failed.
    #[must_use]
    pub fn failed(subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { failed: true, ..Self::new(subject, reason) }
    }
}

/// A round of a point that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Discarded {
    /// Its number; 0 is the one that warms up.
    pub round: u32,
    /// The point in words.
    pub subject: String,
    /// What went wrong.
    pub reason: String,
}

/// Not longer than a file should keep: of an error that brings its programs' logs, the beginning, and the end, where its cause stands.
#[must_use]
pub fn shortened(text: String) -> String {
    /// Characters of either end.
    const END: usize = 250;
    let left_out = text.chars().count().saturating_sub(2 * END);
    if left_out == 0 {
        return text;
    }
    let place = |n| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let [head, tail] = [END, END + left_out].map(place);
    format!("{} [...] {}", &text[..head], &text[tail..])
}

impl<P: Point> Results<P> {
    /// A file without samples.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        let units = P::QUANTITIES.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned()));
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            experiment: P::EXPERIMENT.to_owned(),
            machine,
            far: None,
            versions: BTreeMap::new(),
            command: Vec::new(),
            plan: String::new(),
            settings: serde_json::Value::Null,
            seed: 0,
            started: 0,
            finished: None,
            rounds: 0,
            conditions: Conditions::default(),
            energy: Energy::default(),
            profiles: BTreeMap::new(),
            inputs: Vec::new(),
            units: units.collect(),
            samples: Vec::new(),
            skipped: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// On what the figures were obtained, for a report: the machine, then `how`, then how quiet the machine was.
    #[must_use]
    pub fn obtained(&self, how: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut words = self.machine.words();
        words.extend(how);
        words.extend(self.conditions.noise(self.machine.cores));
        words
    }

    /// The places of samples of this file, by their identity.
    pub(crate) fn places(&self, samples: &[&Sample<P>]) -> Option<Vec<usize>> {
        samples.iter().map(|wanted| self.samples.iter().position(|s| std::ptr::eq(s, *wanted))).collect()
    }

    /// The sample of a point.
    #[must_use]
    pub fn at(&self, point: &P) -> Option<&Sample<P>> {
        self.samples.iter().find(|sample| sample.point == *point)
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn of_a_long_error_both_ends_are_kept() {
        let short = "ß".repeat(500);
        assert_eq!(shortened(short.clone()), short);
        let long = format!("logs: {}: the cause", "ß".repeat(500));
        let kept = shortened(long);
        assert!(kept.starts_with("logs: ß") && kept.ends_with("ß: the cause"), "{kept}");
        assert_eq!(kept.chars().count(), 507);
    }
}
