//! The JSON report, version 2: the unit is the session. Owns the field names, which are an interface: they may be added to, never changed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::analyse::{Analysis, ClientResult, Options, Watch};
use crate::clients::{Client, Handed};
use crate::loss::Loss;
use crate::survey::Jumps;
use dormouse_energy::WakeOn;
use dormouse_energy::account::{CLAIRVOYANT, ClientReport, Totals};

/// The version of the report.
pub const VERSION: u32 = 2;

/// The report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// Whether any input says that it is synthetic.
    pub synthetic: bool,
    /// Break-even time, in seconds.
    pub break_even: f64,
    /// Shortest idle period, in seconds.
    pub min_idle: f64,
    /// The silence that ends a session, in seconds; null if none does.
    pub session: Option<f64>,
    /// What ends a session: `silence` alone, or also an `association`, or each `connection`.
    pub session_by: String,
    /// Which packets wake: `all` or `outgoing`.
    pub wake_on: String,
    /// By which rule clients were found.
    pub rule: String,
    /// Each client.
    pub clients: Vec<Row>,
    /// All clients together.
    pub total: Row,
    /// Each input.
    pub files: Vec<FileRow>,
    /// Packets that belong to no client.
    pub unattributed_packets: u64,
    /// Packets of flows that were too many at once in one client to be put in their place.
    pub late_packets: u64,
    /// Addresses that several devices had.
    pub handed: Vec<HandedRow>,
    /// What could not be read (the first entries of each file).
    pub lost: Vec<Loss>,
    /// How many entries there would be.
    pub lost_total: u64,
    /// Where the figures come from, where the caller says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// Where figures come from, named as in the raw data of experiments.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// The program's version, its commit, and whether that tree was modified; the kernel, the libraries.
    pub versions: BTreeMap<String, String>,
    /// The command, with its arguments.
    pub command: Vec<String>,
    /// What was read, in its order: recordings, or results that are put together.
    pub inputs: Vec<Hashed>,
    /// Where each of `inputs` comes from, if these are results and say so themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_inputs: Vec<Provenance>,
}

/// A file as it was read, before decompression.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hashed {
    /// Its name in this report.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits; or in words that it changed while it was read.
    pub sha256: String,
}

/// One client, or all.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name; `total` for all together. Clients of several sites, and devices that had the same address, may share it.
    pub client: String,
    /// What tells it apart from all others; the name where that does.
    pub label: String,
    /// Where it was recorded: a label, or the file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub site: String,
    /// Its link-layer address, if it is a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// First packet, in seconds since 1970.
    pub first: f64,
    /// Last packet.
    pub last: f64,
    /// Packets.
    pub packets: u64,
    /// Sessions.
    pub sessions: usize,
    /// Idle periods in them.
    pub idle_periods: u64,
    /// Their sum, in seconds.
    pub idle_seconds: f64,
    /// By policy.
    pub policies: BTreeMap<&'static str, PolicyRow>,
    /// The same traffic without an end of sessions, so that absence counts as idle time.
    pub client_days: Days,
}

/// The same client as one session.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Days {
    /// The sum of its idle periods, in seconds.
    pub idle_seconds: f64,
    /// By policy.
    pub policies: BTreeMap<&'static str, PolicyRow>,
}

/// What a policy did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PolicyRow {
    /// Part of the idle energy of a radio that never sleeps that was saved; negative if it costs.
    pub saved_fraction: f64,
    /// Saving over the clairvoyant's; null where there is nothing to save. For all clients: of the sums.
    pub share_of_clairvoyant: Option<f64>,
    /// The mean over sessions of the part that was saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_saved_fraction: Option<f64>,
    /// The least of them. A session that was hardly idle can pay many times what it would have cost: the mean has no lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_saved_fraction: Option<f64>,
    /// Times off and on again.
    pub cycles: u64,
    /// Idle periods longer than break-even in which the radio stayed on.
    pub missed_opportunities: u64,
    /// Packets that arrived while the radio was off and that the proxy did not answer.
    pub packets_lost: u64,
}

/// One input.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FileRow {
    /// Its name.
    pub file: String,
    /// The site that it belongs to.
    pub site: String,
    /// Its format; null if it could not be read.
    pub format: Option<&'static str>,
    /// Packets or flows.
    pub records: u64,
    /// Those that came before their predecessor (of a client that the input names: before its own).
    pub out_of_order: u64,
    /// Where the clock of a capture seems to have been set; absent if nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockRow>,
    /// Records that are no traffic of clients: 802.11 management and control frames, Suricata's events that are no flows, Argus' own records.
    pub upkeep_frames: u64,
    /// NetFlow and IPFIX datagrams inside a capture, read instead of being counted as packets.
    pub export_datagrams: u64,
    /// Flows in them.
    pub exported_flows: u64,
}

/// Steps in the times of a capture.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClockRow {
    /// How often by more than a second back.
    pub back: u64,
    /// How often by more than a day on.
    pub forward: u64,
    /// The record, counted from 1, of the first step.
    pub record: u64,
    /// The time before it, in seconds since 1970.
    pub from: f64,
    /// The time behind it.
    pub to: f64,
}

/// An address that several devices of a site had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HandedRow {
    /// The address.
    pub address: String,
    /// Their labels, in the order in which they had it.
    pub clients: Vec<String>,
}

/// How the costs were counted, for the report's head.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Accounting {
    /// Break-even time, in seconds.
    pub break_even: f64,
    /// Shortest idle period, in seconds.
    pub min_idle: f64,
    /// `all` or `outgoing`.
    pub wake_on: String,
    /// The silence that ends a session, in seconds.
    pub session: Option<f64>,
    /// What else ends one.
    pub session_by: String,
}

impl Accounting {
    /// Of an analysis with these options.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        let settings = &options.settings;
        Self {
            session_by: options.sessions.name().to_owned(),
            break_even: settings.cost.break_even(),
            min_idle: settings.min_idle.as_secs_f64(),
            wake_on: if settings.wake_on == WakeOn::All { "all" } else { "outgoing" }.to_owned(),
            session: settings.session.map(|s| s.as_secs_f64()),
        }
    }
}

impl Report {
    /// From an analysis.
    #[must_use]
    pub fn new<X: Watch>(analysis: &Analysis<X>, accounting: Accounting) -> Self {
        let files = || analysis.files.iter();
        Self {
            version: VERSION,
            synthetic: files().any(|f| f.synthetic.is_some()),
            break_even: accounting.break_even,
            min_idle: accounting.min_idle,
            wake_on: accounting.wake_on,
            session: accounting.session,
            session_by: accounting.session_by,
            rule: analysis.rule.clone(),
            clients: analysis.clients.iter().map(client).collect(),
            total: total(&analysis.clients),
            files: files()
                .map(|f| FileRow {
                    file: f.name.clone(),
                    format: f.format.map(|f| f.name()),
                    records: f.records,
                    site: f.site.clone(),
                    out_of_order: f.out_of_order,
                    clock: clock(&f.jumps),
                    upkeep_frames: f.upkeep,
                    export_datagrams: f.exported.datagrams,
                    exported_flows: f.exported.flows,
                })
                .collect(),
            unattributed_packets: analysis.unattributed,
            late_packets: analysis.late,
            handed: analysis.handed.iter().map(handed).collect(),
            lost: files().flat_map(|f| f.losses.kept()).cloned().collect(),
            lost_total: files().fold(0, |sum, f| sum.saturating_add(f.losses.total())),
            provenance: None,
        }
    }
}

fn clock(jumps: &Jumps) -> Option<ClockRow> {
    let (record, from, to) = jumps.first?;
    Some(ClockRow { back: jumps.back, forward: jumps.forward, record, from: unix(from), to: unix(to) })
}

fn handed(handed: &Handed) -> HandedRow {
    HandedRow { address: handed.address.to_string(), clients: handed.clients.clone() }
}

fn unix(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn policy(report: &ClientReport, totals: &Totals, clairvoyant: &Totals) -> PolicyRow {
    PolicyRow {
        saved_fraction: totals.saved_fraction(report.idle_cost),
        share_of_clairvoyant: totals.share_of(clairvoyant, report.idle_cost),
        mean_saved_fraction: None,
        worst_saved_fraction: None,
        cycles: totals.cycles,
        missed_opportunities: totals.missed_opportunities,
        packets_lost: totals.packets_lost,
    }
}

fn rows(report: &ClientReport) -> BTreeMap<&'static str, PolicyRow> {
    let clairvoyant = report.policy(CLAIRVOYANT).copied().unwrap_or_default();
    report.policies.iter().map(|(name, totals)| (*name, policy(report, totals, &clairvoyant))).collect()
}

fn client<X>(result: &ClientResult<X>) -> Row {
    row(&result.client, &[result])
}

fn total<X>(clients: &[ClientResult<X>]) -> Row {
    row(&Client::named("total"), &clients.iter().collect::<Vec<_>>())
}

/// Clients together.
fn row<X>(as_one: &Client, clients: &[&ClientResult<X>]) -> Row {
    let sessions = || clients.iter().flat_map(|c| &c.sessions);
    let (sum, days) = (ClientReport::sum(sessions()), ClientReport::sum(clients.iter().map(|c| &c.days)));
    let mut policies = rows(&sum);
    for (name, row) in &mut policies {
        let idle = sessions().filter(|s| s.idle_cost > 0.0);
        let saved: Vec<f64> =
            idle.filter_map(|s| Some(s.policy(name)?.saved_fraction(s.idle_cost))).collect();
        row.mean_saved_fraction = (!saved.is_empty()).then(|| saved.iter().sum::<f64>() / saved.len() as f64);
        row.worst_saved_fraction = saved.into_iter().min_by(f64::total_cmp);
    }
    Row {
        client: as_one.name.clone(),
        label: as_one.label.clone(),
        site: as_one.site.clone(),
        mac: as_one.mac.map(|m| m.to_string()),
        first: clients.iter().map(|c| c.first).min().map_or(0.0, unix),
        last: clients.iter().map(|c| c.last).max().map_or(0.0, unix),
        packets: sum.packets,
        sessions: sessions().count(),
        idle_periods: sum.idle_periods,
        idle_seconds: sum.idle_seconds,
        policies,
        client_days: Days { idle_seconds: days.idle_seconds, policies: rows(&days) },
    }
}
