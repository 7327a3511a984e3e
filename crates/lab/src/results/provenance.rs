//! Where results come from: program, command, seed, machine, device profiles, inputs, conditions and what was discarded. Owns the words of
//! it; the facts are those of the raw file, all that it says but the samples.

use std::collections::BTreeMap;

use dormouse_energy::profile::Profile;
use dormouse_report::Table;
use dormouse_trace::input::CHANGED;
use serde::Serialize;
use serde_json::Value;

use super::format::{Conditions, Discarded, EMULATED, Energy, Input, Machine, Point, Results, Skipped};

/// All that a raw file says but the samples and their units. Its fields are those of [`Results`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[expect(missing_docs, reason = "documented at Results")]
pub struct Provenance {
    pub versions: BTreeMap<String, String>,
    pub command: Vec<String>,
    pub plan: String,
    pub rounds: u32,
    pub seed: u64,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub settings: Value,
    pub started: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<u64>,
    pub machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<Machine>,
    pub conditions: Conditions,
    pub energy: Energy,
    pub profiles: BTreeMap<String, Profile>,
    pub inputs: Vec<Input>,
    pub skipped: Vec<Skipped>,
    pub discarded: Vec<Discarded>,
}

impl<P: Point> From<&Results<P>> for Provenance {
    fn from(results: &Results<P>) -> Self {
        let r = results;
        Self {
            versions: r.versions.clone(),
            command: r.command.clone(),
            plan: r.plan.clone(),
            rounds: r.rounds,
            seed: r.seed,
            settings: r.settings.clone(),
            started: r.started,
            finished: r.finished,
            machine: r.machine.clone(),
            far: r.far.clone(),
            conditions: r.conditions.clone(),
            energy: r.energy.clone(),
            profiles: r.profiles.clone(),
            inputs: r.inputs.clone(),
            skipped: r.skipped.clone(),
            discarded: r.discarded.clone(),
        }
    }
}

/// Points with discarded rounds that are named before all figures.
const LISTED: usize = 10;

impl Provenance {
    /// What is not in the figures although it was planned, a line for each: for the reader's first page.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let absent = self.absent().into_iter().map(|what| format!("not measured: {what}"));
        self.failures().into_iter().chain(absent).chain(self.lost_rounds()).collect()
    }

    /// What a machine like this one cannot measure, and why; each reason once, with the first that it kept out and how many more.
    #[must_use]
    pub fn absent(&self) -> Vec<String> {
        let mut reasons: Vec<(&Skipped, usize)> = Vec::new();
        for skipped in self.skipped.iter().filter(|s| !s.failed) {
            match reasons.iter_mut().find(|(first, _)| first.reason == skipped.reason) {
                Some((_, more)) => *more += 1,
                None => reasons.push((skipped, 0)),
            }
        }
        let words = |(first, more): (&Skipped, usize)| match more {
            0 => format!("{}: {}", first.subject, first.reason),
            more => format!("{} and {more} more: {}", first.subject, first.reason),
        };
        reasons.into_iter().map(words).collect()
    }

    /// The part of [`Self::missing`] that went wrong: results that have some are not whole.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failed = self.skipped.iter().filter(|s| s.failed);
        let failed = failed.map(|s| format!("not measured: {}: it failed: {}", s.subject, s.reason));
        failed.chain(self.unread()).collect()
    }

    /// Rounds that failed of points that are there, which rest on the others; each point once.
    fn lost_rounds(&self) -> Vec<String> {
        let given_up = |subject: &String| self.skipped.iter().any(|s| s.subject == *subject);
        let mut points: Vec<(&String, Vec<&Discarded>)> = Vec::new();
        for d in self.discarded.iter().filter(|d| !given_up(&d.subject)) {
            match points.iter_mut().find(|(subject, _)| **subject == d.subject) {
                Some((_, rounds)) => rounds.push(d),
                None => points.push((&d.subject, vec![d])),
            }
        }
        let words = |(subject, rounds): &(&String, Vec<&Discarded>)| {
            let last = rounds.last().map_or("", |d| d.reason.as_str());
            match rounds.as_slice() {
                [one] => format!("discarded: round {} of {subject}: {last}", one.round),
                many => format!("discarded: {} rounds of {subject}, the last one: {last}", many.len()),
            }
        };
        let mut lines: Vec<String> = points.iter().take(LISTED).map(words).collect();
        let more = points.len().saturating_sub(LISTED);
        if more > 0 {
            lines.push(format!("discarded: rounds of {more} more points, which the provenance lists"));
        }
        lines
    }

    fn unread(&self) -> impl Iterator<Item = String> {
        self.inputs.iter().filter_map(|i| Some(format!("not read whole: {}: {}", i.file, i.unlike()?)))
    }

    /// As a table of words: what, and its value.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::words(["what", "value"]);
        let mut row = |what: &str, value: String| table.row([what.to_owned(), value]);
        for (what, version) in &self.versions {
            row(what, version.clone());
        }
        row("command", self.command.join(" "));
        row("plan", format!("{}, {} rounds, seed {}", self.plan, self.rounds, self.seed));
        if !self.settings.is_null() {
            row("settings", self.settings.to_string());
        }
        if self.started > 0 {
            let lasted = self.finished.map(|end| format!(", {} s", end.saturating_sub(self.started)));
            row("begun", format!("{} s after 1970{}", self.started, lasted.unwrap_or_default()));
        }
        machine(&mut row, "", &self.machine);
        if let Some(far) = &self.far {
            machine(&mut row, "far ", far);
        }
        let Conditions { load_before, load_after, steal, .. } = self.conditions;
        for (when, load) in [("load before", load_before), ("load after", load_after)] {
            if let Some([one, five, fifteen]) = load {
                row(when, format!("{one} {five} {fifteen}"));
            }
        }
        if let Some(steal) = steal {
            row("taken by a hypervisor", dormouse_report::percent(steal));
        }
        for (name, profile) in &self.profiles {
            for (figure, f) in &profile.figures {
                let kind = word(&f.kind);
                row(&format!("{name} {figure}"), format!("{} {} ({kind}: {})", f.value, f.unit, f.source));
            }
        }
        for input in &self.inputs {
            let Input { file, bytes, sha256, .. } = input;
            let hash = if sha256 == CHANGED { String::new() } else { format!(" sha256 {sha256}") };
            let unlike = input.unlike().map_or_else(String::new, |why| format!("; {why}"));
            row("input", format!("{file} ({bytes} bytes){hash}{unlike}"));
        }
        for d in &self.discarded {
            row("discarded", format!("round {} of {}: {}", d.round, d.subject, d.reason));
        }
        for s in &self.skipped {
            let what = if s.failed { "failed" } else { "not measurable here" };
            row(what, format!("{}: {}", s.subject, s.reason));
        }
        table
    }
}

fn machine(row: &mut impl FnMut(&str, String), which: &str, machine: &Machine) {
    let emulated = machine.emulated();
    let Machine {
        cpu, cores, architecture, memory, kernel, governor, congestion_control, hypervisor, ..
    } = machine;
    let or = |value: &Option<String>, none: &str| value.clone().unwrap_or_else(|| none.to_owned());
    row(
        &format!("{which}machine"),
        format!("{cpu}, {architecture}, {cores} cores, {memory} bytes of memory"),
    );
    if emulated {
        row(&format!("{which}processor"), EMULATED.to_owned());
    }
    row(&format!("{which}hypervisor"), or(hypervisor, "none"));
    row(&format!("{which}system"), kernel.clone());
    row(&format!("{which}governor"), or(governor, "none: the kernel offers no frequencies"));
    row(&format!("{which}congestion control"), or(congestion_control, "unknown"));
}

fn word(kind: &impl Serialize) -> String {
    serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
