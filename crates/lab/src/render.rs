//! Reports of experiments as documents and as JSON. Owns their layout; must never compute anything.

use dormouse_report::{Block, Document, Part, Table};
use serde_json::{Value, json};

use crate::experiment::Report;
use crate::judge::Finding;

/// Version of the JSON.
pub const VERSION: u32 = 1;

/// As a document.
#[must_use]
pub fn document(report: &Report) -> Document {
    let mut document = Document {
        title: report.title.clone(),
        lead: "Figures and claims of the paper beside ours.".to_owned(),
        synthetic: report.synthetic,
        blocks: Vec::new(),
        about: "dormouse lab".to_owned(),
    };
    document.section("", "Obtained on", [Part::List(report.traffic.clone())]);
    let mut claims = Table::words(["claim", "paper", "ours", "finding", "why"]);
    for c in &report.claims {
        let finding = c.finding.map_or("", Finding::words).to_owned();
        let claim = format!("{} ({})", c.claim, c.place);
        claims.row([claim, c.paper.clone(), c.ours.clone(), finding, c.why.clone()]);
    }
    document.section("", "Claims", [Part::Table(claims)]);
    for table in &report.tables {
        let title = format!("{}: {}", table.place, table.title);
        let mut shown = Table::words(table.head.clone());
        table.rows.iter().for_each(|row| shown.row(row.clone()));
        document.section("", &title, [Part::Table(shown)]);
    }
    for figure in &report.figures {
        let mut chart = figure.chart.clone();
        chart.title = format!("{}: {}", figure.place, chart.title);
        document.blocks.push(Block::Chart(chart));
    }
    document.section("", "Notes", [Part::List(report.notes.clone())]);
    document
}

/// As JSON.
#[must_use]
pub fn json(report: &Report) -> Value {
    let figures: Vec<Value> = report
        .figures
        .iter()
        .map(|f| {
            let series: Vec<Value> =
                f.chart.series.iter().map(|s| json!({ "name": s.name, "points": s.points })).collect();
            json!({ "place": f.place, "title": f.chart.title, "x": f.chart.x, "y": f.chart.y, "series": series })
        })
        .collect();
    json!({
        "version": VERSION,
        "experiment": report.name,
        "title": report.title,
        "synthetic": report.synthetic,
        "traffic": report.traffic,
        "claims": report.claims,
        "tables": report.tables,
        "figures": figures,
        "notes": report.notes,
    })
}
