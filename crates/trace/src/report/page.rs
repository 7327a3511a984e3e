//! The report as a document, for the terminal and as a page. Owns its words and columns; must never compute anything.

use dormouse_report::{Block, Chart, Document, Part, Table, duration, percent, thousands};

use super::json::{Report, Row};

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
    document
}

fn lead(report: &Report) -> String {
    format!(
        "{} client{} ({}) in {} sessions, {} packets in {}. Break-even time {:.1} s; {}; a silence is an idle period from {:.2} s on{}.",
        report.clients.len(),
        if report.clients.len() == 1 { "" } else { "s" },
        report.rule,
        thousands(report.total.sessions as u64),
        thousands(report.total.packets),
        duration(report.total.last - report.total.first),
        report.break_even,
        if report.wake_on == "all" {
            "every packet wakes the radio"
        } else {
            "only the client's own packets wake the radio"
        },
        report.min_idle,
        report.session.map_or_else(String::new, |s| format!(
            ", and above {} absence, which ends the session",
            duration(s)
        ))
    )
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
            thousands(p.cycles),
            thousands(p.missed_opportunities),
            thousands(p.packets_lost),
            share(days.map(|d| d.saved_fraction)),
            share(days.and_then(|d| d.share_of_clairvoyant)),
        ]);
    }
    let words = "Saved is the part of the idle energy of a radio that never sleeps. An idle period g costs g with the radio on, and t plus \
                 the break-even time if it is switched off after t. In client-days absence counts as idle time.";
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
        row.client.clone(),
        thousands(row.packets),
        duration(row.last - row.first),
        thousands(row.sessions as u64),
        duration(row.idle_seconds),
        thousands(row.idle_periods),
    ];
    cells.extend(ORDER.map(|name| share(row.policies.get(name).map(|p| p.saved_fraction))));
    cells
}

fn inputs(report: &Report) -> Vec<Part> {
    let mut table = Table::new(["file", "format", "records", "out of order"]);
    for f in &report.files {
        let format = f.format.unwrap_or("–").to_owned();
        table.row([f.file.clone(), format, thousands(f.records), thousands(f.out_of_order)]);
    }
    let mut notes = Vec::new();
    let mut note = |count: u64, words: &str| {
        if count > 0 {
            notes.push(format!("{} {words}", thousands(count)));
        }
    };
    note(report.unattributed_packets, "packets belong to no client");
    note(report.late_packets, "packets came too late to be put in their place");
    note(
        report.files.iter().map(|f| f.upkeep_frames).sum(),
        "802.11 management, control and null frames are not counted as packets",
    );
    for file in report.files.iter().filter(|f| f.export_datagrams > 0) {
        notes.push(format!(
            "{}: {} NetFlow or IPFIX datagrams to a collector were read as {} flows and are not counted as packets",
            file.file, file.export_datagrams, file.exported_flows
        ));
    }
    if report.clients.is_empty() {
        notes.push("no client found; name one with --client".to_owned());
    }
    let mut parts = vec![Part::Table(table)];
    parts.extend(Some(Part::List(notes)).filter(|list| *list != Part::List(Vec::new())));
    parts
}
