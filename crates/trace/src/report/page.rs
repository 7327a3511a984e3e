//! The report as a document, for the terminal and as a page. Owns its words and columns; must never compute anything.

use dormouse_report::{Block, Chart, Document, Part, Table, duration, percent, thousands};

use std::collections::{BTreeMap, BTreeSet};

use super::json::{Hashed, Provenance, Report, Row};

/// Clients in the terminal's table.
pub const ON_TERMINAL: usize = 40;
/// Clients in the page's.
pub const ON_PAGE: usize = 200;
/// Policies in the order of the columns.
const ORDER: [&str; 6] = ["never", "timeout", "break-even", "paper", "dormouse", "clairvoyant"];

/// The document, with as many clients by themselves as `shown`.
#[must_use]
pub fn document(report: &Report, charts: Vec<Chart>, about: &str, shown: usize) -> Document {
    let mut document = Document {
        title: "What would sleeping save?".to_owned(),
        lead: lead(report),
        synthetic: report.synthetic,
        blocks: vec![cards(report)],
        about: about.to_owned(),
    };
    if !report.lost.is_empty() {
        let title = format!("Not everything could be read ({})", report.lost_total);
        document.section(
            "lost-input",
            &title,
            [Part::List(report.lost.iter().map(ToString::to_string).collect())],
        );
    }
    document.section("policies-all", "Policies", policies(report));
    document.blocks.extend(charts.into_iter().map(Block::Chart));
    document.section("clients", "Clients", clients(report, shown));
    document.section("inputs", "Inputs", inputs(report));
    if let Some(provenance) = &report.provenance {
        document.section("provenance", "Provenance", [Part::Table(origin(provenance))]);
    }
    document
}

fn origin(provenance: &Provenance) -> Table {
    let mut table = Table::words(["what", "value"]);
    for (what, version) in &provenance.versions {
        table.row([what.clone(), version.clone()]);
    }
    table.row(["command".to_owned(), provenance.command.join(" ")]);
    for Hashed { file, bytes, sha256 } in &provenance.inputs {
        table.row(["input".to_owned(), format!("{file} ({bytes} bytes) sha256 {sha256}")]);
    }
    table
}

fn lead(report: &Report) -> String {
    format!(
        "{} client{} ({}) in {} sessions, {} packets in {}. Break-even time {:.1} s; {}; a silence is an idle period from {:.2} s on{}.",
        report.clients.len(),
        if report.clients.len() == 1 { "" } else { "s" },
        report.rule,
        thousands(report.total.sessions as u64),
        thousands(report.total.packets),
        span(report),
        report.break_even,
        if report.wake_on == "all" {
            "every packet wakes the radio"
        } else {
            "only the client's own packets wake the radio"
        },
        report.min_idle,
        ends_of_sessions(report)
    )
}

/// How long the recordings are together, without the time between those of different sites.
fn span(report: &Report) -> String {
    let mut sites: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in &report.clients {
        let (first, last) = sites.entry(row.site.as_str()).or_insert((row.first, row.last));
        (*first, *last) = (first.min(row.first), last.max(row.last));
    }
    let longest = duration(sites.values().map(|(first, last)| last - first).fold(0.0, f64::max));
    if sites.len() > 1 { format!("{} recordings of up to {longest}", sites.len()) } else { longest }
}

fn ends_of_sessions(report: &Report) -> String {
    let absence =
        report.session.map(|s| format!(", and above {} absence, which ends the session", duration(s)));
    let words = absence.unwrap_or_default();
    words
        + match report.session_by.as_str() {
            "association" => "; joining the network anew ends one too",
            "connection" => "; each connection is a session by itself",
            _ => "",
        }
}

fn cards(report: &Report) -> Block {
    let of = |name: &str| report.total.policies.get(name);
    let mut cards = vec![(duration(report.total.idle_seconds), "idle time in all sessions")];
    if let Some(p) = of("clairvoyant") {
        cards.push((percent(p.saved_fraction), "of the idle energy could be saved"));
    }
    if let Some(p) = of("dormouse") {
        cards.push((percent(p.saved_fraction), "is saved by the scheduler “dormouse”"));
        cards.push((share(p.share_of_clairvoyant), "of the possible saving"));
    }
    Block::Cards(cards.into_iter().map(|(value, label)| (value, label.to_owned())).collect())
}

fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "–".to_owned(), percent)
}

fn policies(report: &Report) -> [Part; 2] {
    let mut table = Table::new([
        "policy",
        "saved",
        "of the clairvoyant's",
        "mean over sessions",
        "worst session",
        "cycles",
        "missed opportunities",
        "packets lost",
        "saved in client-days",
        "of the clairvoyant's",
    ]);
    for name in ORDER {
        let Some(p) = report.total.policies.get(name) else { continue };
        let days = report.total.client_days.policies.get(name);
        table.row([
            name.to_owned(),
            percent(p.saved_fraction),
            share(p.share_of_clairvoyant),
            share(p.mean_saved_fraction),
            share(p.worst_saved_fraction),
            thousands(p.cycles),
            thousands(p.missed_opportunities),
            thousands(p.packets_lost),
            share(days.map(|d| d.saved_fraction)),
            share(days.and_then(|d| d.share_of_clairvoyant)),
        ]);
    }
    let words = "Saved is the part of the idle energy of a radio that never sleeps. An idle period g costs g with the radio on, and t plus \
                 the break-even time if it is switched off after t. What counts is the share of the clairvoyant's saving, in energy over all \
                 sessions: the mean over sessions has no lower bound, since one that was hardly idle can pay many times what it would have \
                 cost. In client-days absence counts as idle time.";
    [Part::Text(words.to_owned()), Part::Table(table)]
}

fn clients(report: &Report, shown: usize) -> Vec<Part> {
    let mut table =
        Table::new(["client", "packets", "span", "sessions", "idle", "periods"].into_iter().chain(ORDER));
    table.total = true;
    for row in report.clients.iter().take(shown).chain([&report.total]) {
        table.row(client(row));
    }
    let mut parts = vec![Part::Table(table)];
    if report.clients.len() > shown {
        parts.push(Part::Text(format!(
            "The first {shown} of {}; the JSON report has all.",
            report.clients.len()
        )));
    }
    parts
}

fn client(row: &Row) -> Vec<String> {
    let mut cells = vec![
        row.label.clone(),
        thousands(row.packets),
        duration(row.last - row.first),
        thousands(row.sessions as u64),
        duration(row.idle_seconds),
        thousands(row.idle_periods),
    ];
    cells.extend(ORDER.map(|name| share(row.policies.get(name).map(|p| p.saved_fraction))));
    cells
}

/// Entries of one kind that are spelt out.
const SPELT: usize = 10;

/// What looks odd about clocks and addresses.
fn odd(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for (file, clock) in report.files.iter().filter_map(|f| Some((&f.file, f.clock.as_ref()?))) {
        notes.push(format!(
            "{file}: the times step {} back by more than a second and {} on by more than a day, first at record {} from {} to {} s since 1970: \
             was the clock set? What is on one side of such a step says nothing about the other",
            times(clock.back),
            times(clock.forward),
            clock.record,
            clock.from,
            clock.to,
        ));
    }
    for handed in report.handed.iter().take(SPELT) {
        notes.push(format!("{} changed hands: {}", handed.address, handed.clients.join(", then ")));
    }
    if report.handed.len() > SPELT {
        notes.push(format!(
            "{} further addresses changed hands; the JSON report has all",
            report.handed.len() - SPELT
        ));
    }
    let mut sites: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in &report.clients {
        sites.entry(row.client.as_str()).or_default().insert(row.site.as_str());
    }
    let several: Vec<_> = sites.iter().filter(|(_, sites)| sites.len() > 1).collect();
    if let Some((name, of)) = several.first() {
        let sites = of.iter().take(SPELT).copied().collect::<Vec<_>>().join(", ");
        let (many, occur, count) = match several.len() {
            1 => ("1 name".to_owned(), "occurs", "counts"),
            n => (format!("{n} names"), "occur", "count"),
        };
        notes.push(format!(
            "{many} {occur} in several recordings ({name} in {sites}) and {count} as a client in each: --site FILE=LABEL makes recordings one site"
        ));
    }
    notes
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        n => format!("{} times", thousands(n)),
    }
}

fn inputs(report: &Report) -> Vec<Part> {
    let labelled = report.files.iter().any(|f| f.site != f.file);
    let head = ["file", "format", "records", "out of order"].into_iter();
    let mut table = Table::new(head.chain(labelled.then_some("site")));
    for f in &report.files {
        let format = f.format.unwrap_or("–").to_owned();
        let cells = [f.file.clone(), format, thousands(f.records), thousands(f.out_of_order)].into_iter();
        table.row(cells.chain(labelled.then(|| f.site.clone())));
    }
    let notes = notes(report);
    let mut parts = vec![Part::Table(table)];
    parts.extend(Some(Part::List(notes)).filter(|list| *list != Part::List(Vec::new())));
    parts
}

/// What of a format is no traffic of clients, behind its number.
fn upkeep_words(format: Option<&str>) -> &'static str {
    match format {
        Some("suricata") => "events of Suricata's log are no flows and passed over",
        Some("argus") => {
            "Argus records are the monitor's own or of frames without IP addresses, and passed over"
        }
        _ => "802.11 management, control and null frames are not counted as packets",
    }
}

/// What a reader of any figure must know of the recordings: what of them is counted for no client, and what looks odd about clocks and
/// addresses.
#[must_use]
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: u64, words: &str| {
        if count > 0 {
            notes.push(format!("{} {words}", thousands(count)));
        }
    };
    note(report.unattributed_packets, "packets belong to no client");
    note(
        report.late_packets,
        "packets belong to flows that were too many at once in one client: they count when there was no more room",
    );
    let mut upkeep: BTreeMap<&str, u64> = BTreeMap::new();
    for file in &report.files {
        *upkeep.entry(upkeep_words(file.format)).or_default() += file.upkeep_frames;
    }
    upkeep.into_iter().for_each(|(words, count)| note(count, words));
    for file in report.files.iter().filter(|f| f.export_datagrams > 0) {
        notes.push(format!(
            "{}: {} NetFlow or IPFIX datagrams to a collector were read as {} flows and are not counted as packets",
            file.file, file.export_datagrams, file.exported_flows
        ));
    }
    notes.extend(odd(report));
    if report.clients.is_empty() {
        notes.push("no client found; name one with --client".to_owned());
    }
    notes
}
