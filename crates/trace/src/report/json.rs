//! The JSON report, version 2: the unit is the session. Owns the field names, which are an interface: they may be added to, never changed.

use serde::Serialize;
use std::collections::BTreeMap;

use crate::analyse::{Analysis, ClientResult, Watch};
use crate::loss::Loss;
use dormouse_energy::account::{ClientReport, Settings, Totals, WakeOn};

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
    /// Which packets wake: `all` or `outgoing`.
    pub wake_on: &'static str,
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
    /// Packets that came too late to be put in their place.
    pub late_packets: u64,
    /// What could not be read (the first entries of each file).
    pub lost: Vec<Loss>,
    /// How many entries there would be.
    pub lost_total: u64,
}

/// One client, or all.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name; `total` for all together.
    pub client: String,
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
    /// Its format; null if it could not be read.
    pub format: Option<&'static str>,
    /// Packets or flows.
    pub records: u64,
    /// Those that came before their predecessor.
    pub out_of_order: u64,
    /// 802.11 management and control frames, not counted as packets.
    pub upkeep_frames: u64,
    /// NetFlow and IPFIX datagrams inside a capture, read instead of being counted as packets.
    pub export_datagrams: u64,
    /// Flows in them.
    pub exported_flows: u64,
}

/// How the costs were counted, for the report's head.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Accounting {
    /// Break-even time, in seconds.
    pub break_even: f64,
    /// Shortest idle period, in seconds.
    pub min_idle: f64,
    /// `all` or `outgoing`.
    pub wake_on: &'static str,
    /// The silence that ends a session, in seconds.
    pub session: Option<f64>,
}

impl Accounting {
    /// Of an analysis under `settings`.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            break_even: settings.cost.break_even(),
            min_idle: settings.min_idle.as_secs_f64(),
            wake_on: if settings.wake_on == WakeOn::All { "all" } else { "outgoing" },
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
            rule: analysis.rule.to_string(),
            clients: analysis.clients.iter().map(client).collect(),
            total: total(&analysis.clients),
            files: files()
                .map(|f| FileRow {
                    file: f.name.clone(),
                    format: f.format.map(|f| f.name()),
                    records: f.records,
                    out_of_order: f.out_of_order,
                    upkeep_frames: f.upkeep,
                    export_datagrams: f.exported.datagrams,
                    exported_flows: f.exported.flows,
                })
                .collect(),
            unattributed_packets: analysis.unattributed,
            late_packets: analysis.late,
            lost: files().flat_map(|f| f.losses.kept()).cloned().collect(),
            lost_total: files().map(|f| f.losses.total()).sum(),
        }
    }
}

fn unix(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn policy(report: &ClientReport, totals: &Totals, clairvoyant: &Totals) -> PolicyRow {
    PolicyRow {
        saved_fraction: totals.saved_fraction(report.idle_cost),
        share_of_clairvoyant: totals.share_of(clairvoyant, report.idle_cost),
        mean_saved_fraction: None,
        cycles: totals.cycles,
        missed_opportunities: totals.missed_opportunities,
        packets_lost: totals.packets_lost,
    }
}

fn rows(report: &ClientReport) -> BTreeMap<&'static str, PolicyRow> {
    let clairvoyant = report.policy("clairvoyant").copied().unwrap_or_default();
    report.policies.iter().map(|(name, totals)| (*name, policy(report, totals, &clairvoyant))).collect()
}

fn client<X>(result: &ClientResult<X>) -> Row {
    row(&result.client.name, result.client.mac.map(|m| m.to_string()), &[result])
}

fn total<X>(clients: &[ClientResult<X>]) -> Row {
    row("total", None, &clients.iter().collect::<Vec<_>>())
}

/// Clients together.
fn row<X>(name: &str, mac: Option<String>, clients: &[&ClientResult<X>]) -> Row {
    let sessions = || clients.iter().flat_map(|c| &c.sessions);
    let (sum, days) = (ClientReport::sum(sessions()), ClientReport::sum(clients.iter().map(|c| &c.days)));
    let mut policies = rows(&sum);
    for (name, row) in &mut policies {
        let idle = sessions().filter(|s| s.idle_cost > 0.0);
        let saved: Vec<f64> =
            idle.filter_map(|s| Some(s.policy(name)?.saved_fraction(s.idle_cost))).collect();
        row.mean_saved_fraction = (!saved.is_empty()).then(|| saved.iter().sum::<f64>() / saved.len() as f64);
    }
    Row {
        client: name.to_owned(),
        mac,
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
