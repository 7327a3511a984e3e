//! The shape that all experiments share: what one is given, and what it reports. Owns these types; must never know an experiment.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use dormouse_energy::account::SESSION;
use dormouse_report::{Block, Chart, Document, Part, Table, duration};
use dormouse_trace::clients::Wanted;
use dormouse_trace::flow::Spread;
use dormouse_trace::fold::Sessions;
use dormouse_trace::input::{EXPORT_PORTS, Input, label};
use serde::Serialize;
use serde_json::{Value, json};

use crate::judge::{Claim, Finding};
use crate::results::provenance::Provenance;
use crate::results::{Point, Results};

/// What an experiment may use.
#[derive(Clone, Debug)]
pub struct Context {
    /// Recordings to run on; without any, an experiment that needs traffic makes its own, and says so.
    pub recordings: Vec<PathBuf>,
    /// How they are read; without any, it must be the default.
    pub reading: Reading,
    /// Worker threads.
    pub threads: usize,
    /// Synthetic clients, where traffic is made; the most clients at once, where they are real. `None`: as many as the experiment
    /// is made for.
    pub clients: Option<u32>,
    /// The quick plan, which takes minutes.
    pub short: bool,
    /// The seed of synthetic traffic and of the crowds.
    pub seed: u64,
    /// Raw data to report on instead of making them.
    pub file: Option<PathBuf>,
    /// Where raw data stay.
    pub out: Option<PathBuf>,
    /// The file of an interrupted campaign that goes on.
    pub resume: Option<PathBuf>,
    /// Set when the user wants it to stop. An experiment that makes anything outside of this process removes it first.
    pub interrupted: Arc<AtomicBool>,
    /// Gets a line from a long experiment on what it is doing.
    pub progress: fn(&str),
}

impl Context {
    /// The plan's name, as raw data have it: `quick` or `full`, and `chosen` where the number of clients was.
    #[must_use]
    pub const fn plan(&self) -> &'static str {
        match (self.clients, self.short) {
            (Some(_), _) => "chosen",
            (None, true) => "quick",
            (None, false) => "full",
        }
    }
}

impl Context {
    /// The raw data to report on: of [`Self::file`], or else made now.
    ///
    /// # Errors
    /// If the file cannot be read, and as `make`.
    pub fn results<P: Point>(
        &self,
        make: impl FnOnce(&Self) -> anyhow::Result<Results<P>>,
    ) -> anyhow::Result<Results<P>> {
        match &self.file {
            Some(path) => Results::read(path).with_context(|| path.display().to_string()),
            None => make(self),
        }
    }
}

impl Default for Context {
    /// Without recordings, measurements, interruption or progress.
    fn default() -> Self {
        Self {
            recordings: Vec::new(),
            reading: Reading::default(),
            threads: 1,
            clients: None,
            short: false,
            seed: 1,
            file: None,
            out: None,
            resume: None,
            interrupted: Arc::default(),
            progress: |_| (),
        }
    }
}

/// How recordings are read: the choices that `dormouse trace` has too, under the same names.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// `FILE=LABEL`: recordings with the same label are of one site, where one address is one client. FILE may be a pattern.
    pub sites: Vec<String>,
    /// Whom to account: addresses, prefixes, link-layer addresses or names; if empty, clients are found.
    pub clients: Vec<String>,
    /// A silence longer than this ends a session; none does if it is absent.
    pub session: Option<Duration>,
    /// What else ends one.
    pub session_by: Sessions,
    /// How a flow's packets are placed.
    pub flows: Spread,
    /// UDP ports on which a capture's exported flows are looked for; empty: nowhere.
    pub netflow_ports: Vec<u16>,
}

impl Default for Reading {
    /// Each recording its own site, and a silence of [`SESSION`] the end of a session.
    fn default() -> Self {
        Self {
            sites: Vec::new(),
            clients: Vec::new(),
            session: Some(SESSION),
            session_by: Sessions::Silence,
            flows: Spread::Even,
            netflow_ports: EXPORT_PORTS.to_vec(),
        }
    }
}

impl Reading {
    /// The inputs with their sites, and with the ports of exports.
    ///
    /// # Errors
    /// In words, which label fits no input.
    pub fn prepare(&self, inputs: Vec<Input>) -> anyhow::Result<Vec<Input>> {
        let inputs = inputs.into_iter().map(|input| input.with_export_ports(&self.netflow_ports));
        label(inputs.collect(), &self.sites).map_err(anyhow::Error::msg)
    }

    /// Whom to account.
    #[must_use]
    pub fn wanted(&self) -> Vec<Wanted> {
        let Ok(wanted) = self.clients.iter().map(|c| c.parse()).collect::<Result<_, Infallible>>();
        wanted
    }

    /// The silence that ends a session in seconds, or `never`, as raw data have it.
    #[must_use]
    pub fn silence(&self) -> Value {
        self.session.map_or_else(|| json!("never"), |silence| json!(silence.as_secs_f64()))
    }

    /// As the settings of raw data have it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "sites": self.sites,
            "clients": self.clients,
            "session": self.silence(),
            "session_by": self.session_by.name(),
            "flows": self.flows.name(),
            "netflow_ports": self.netflow_ports,
        })
    }
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// As users write it.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// Where its figures come from.
    pub source: Source,
    /// How long its quick and its full plan take.
    pub takes: [Takes; 2],
    /// What is missing here without which a part of it is left out.
    pub lacks: fn() -> Option<String>,
    /// Runs it.
    pub run: fn(&Context) -> anyhow::Result<Report>,
}

impl Experiment {
    /// What is missing here without which it cannot run at all.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match self.source {
            Source::Campaign { root: true } => crate::needs::missing(),
            Source::Campaign { root: false } | Source::Traffic => None,
            Source::Elsewhere { missing } => missing(),
        }
    }
}

/// How long a plan takes on an idle virtual machine with two cores of 3 GHz.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takes {
    /// So long.
    pub seconds: u32,
    /// Whether it was measured; else it follows from the number of measurements and how long each lasts.
    pub measured: bool,
}

impl Takes {
    /// Measured.
    #[must_use]
    pub const fn measured(seconds: u32) -> Self {
        Self { seconds, measured: true }
    }

    /// Estimated.
    #[must_use]
    pub const fn estimated(seconds: u32) -> Self {
        Self { seconds, measured: false }
    }

    /// In words: `estimated 4 min`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{}{}", if self.measured { "" } else { "estimated " }, duration(f64::from(self.seconds)))
    }
}

/// Where an experiment's figures come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// Recordings or synthetic traffic: nothing is measured.
    Traffic,
    /// A campaign, which makes network namespaces, and so needs root, if `root`.
    Campaign {
        /// See above.
        root: bool,
    },
    /// A campaign that moves into a virtual machine where this one cannot carry it.
    Elsewhere {
        /// What is missing for both.
        missing: fn() -> Option<String>,
    },
}

impl Source {
    /// Whether figures are measured.
    #[must_use]
    pub const fn measures(&self) -> bool {
        matches!(self, Self::Campaign { .. } | Self::Elsewhere { .. })
    }
}

/// A table or a figure of the paper, repeated: with our data, and with those of the paper's that its text states.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Exhibit<T> {
    /// Which, as in the paper.
    pub place: String,
    /// What is shown.
    #[serde(flatten)]
    pub shown: T,
}

impl<T> Exhibit<T> {
    /// At this place of the paper.
    #[must_use]
    pub fn new(place: &str, shown: T) -> Self {
        Self { place: place.to_owned(), shown }
    }
}

/// What the name of a report's file ends with, beside that of its raw data.
pub(crate) const REPORT: &str = "report.json";
/// Version of the JSON.
const VERSION: u32 = 1;

/// What came out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    #[serde(rename = "experiment")]
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Whether any of the traffic is synthetic.
    pub synthetic: bool,
    /// On what the figures were obtained.
    pub traffic: Vec<String>,
    /// Claims.
    pub claims: Vec<Claim>,
    /// Tables.
    pub tables: Vec<Exhibit<Table>>,
    /// Figures.
    pub figures: Vec<Exhibit<Chart>>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Where all of it comes from.
    pub provenance: Provenance,
}

impl Report {
    /// As a document.
    #[must_use]
    pub fn document(&self) -> Document {
        let mut document = Document {
            title: self.title.to_owned(),
            lead: "Figures and claims of the paper beside ours.".to_owned(),
            synthetic: self.synthetic,
            blocks: Vec::new(),
            about: "dormouse lab".to_owned(),
        };
        // Before anything else: a list of recordings may be long.
        let missing = self.provenance.missing();
        document.section("", "What is missing", (!missing.is_empty()).then_some(Part::List(missing)));
        document.section("", "Obtained on", [Part::List(self.traffic.clone())]);
        let mut claims = Table::words(["claim", "paper", "ours", "expected", "finding", "why"]);
        for c in &self.claims {
            let finding = c.finding.map_or("", Finding::words).to_owned();
            let claim = format!("{} ({})", c.claim, c.place);
            claims.row([claim, c.paper.clone(), c.ours.clone(), c.expected.clone(), finding, c.why.clone()]);
        }
        document.section("", "Claims", [Part::Table(claims)]);
        for Exhibit { place, shown } in &self.tables {
            document.section("", &format!("{place}: {}", shown.title), [Part::Table(shown.clone())]);
        }
        document.blocks.extend(self.figures.iter().map(|Exhibit { place, shown }| {
            Block::Chart(Chart { title: format!("{place}: {}", shown.title), ..shown.clone() })
        }));
        document.section("", "Notes", [Part::List(self.notes.clone())]);
        document.section("", "Provenance", [Part::Table(self.provenance.table())]);
        document
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut value = json!(self);
        value["version"] = VERSION.into();
        value
    }

    /// The same as the text of a file.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}\n", self.json())
    }

    /// All that is printed of it, by the ends of file names: the report itself, as text and as a page.
    ///
    /// # Errors
    /// When a chart cannot be drawn, which would be a defect.
    pub fn files(&self) -> anyhow::Result<[(&'static str, String); 3]> {
        let document = self.document();
        let page = document.html().map_err(anyhow::Error::msg)?;
        Ok([(REPORT, self.text()), ("txt", document.text()), ("html", page)])
    }
}
