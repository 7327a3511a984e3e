//! Reports of experiments as text, JSON and HTML. Owns their layout; must never compute anything.

use std::fmt::Write as _;

use dormouse_trace::report::html;
use serde_json::{Value, json};

use crate::advise::rules::Finding;
use crate::experiment::{Report, Table};

/// Version of the JSON.
pub const VERSION: u32 = 1;

/// As text for the terminal.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = format!("{}\n\n", report.title);
    if report.synthetic {
        out.push_str("SYNTHETIC TRAFFIC is part of this: made by a model, not recorded from anybody.\n\n");
    }
    out.push_str("Obtained on:\n");
    for line in &report.traffic {
        let _ = writeln!(out, "  - {line}");
    }
    out.push('\n');
    for claim in &report.claims {
        let _ = writeln!(out, "{} ({})", claim.claim, claim.place);
        let _ = writeln!(out, "    paper  {}\n    ours   {}", claim.paper, claim.ours);
        if !claim.why.is_empty() {
            let _ = writeln!(out, "    why    {}", claim.why);
        }
        if let Some(finding) = claim.finding {
            let _ = writeln!(out, "    so     {}", finding.words());
        }
        out.push('\n');
    }
    for table in &report.tables {
        text_table(&mut out, table);
    }
    for figure in &report.figures {
        let _ = writeln!(out, "{}: {}", figure.place, figure.chart.title);
        for series in &figure.chart.series {
            let _ = writeln!(out, "    {:<36} {}", series.name, quantiles(&series.points));
        }
        out.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// A table with columns as wide as they must be.
fn text_table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "{}: {}", table.place, table.title);
    let lines = || std::iter::once(&table.head).chain(&table.rows);
    let width = |n: usize| lines().filter_map(|l| l.get(n)).map(|c| c.chars().count()).max().unwrap_or(0);
    for line in lines() {
        let cells: Vec<String> =
            line.iter().enumerate().map(|(n, cell)| format!("{cell:<0$}", width(n))).collect();
        let _ = writeln!(out, "    {}", cells.join("  ").trim_end());
    }
    out.push('\n');
}

/// A few points of a series, enough to compare.
fn quantiles(points: &[(f64, f64)]) -> String {
    let last = points.len().saturating_sub(1);
    let step = (last / 6).max(1);
    let shown = points.iter().enumerate().filter(|(n, _)| n % step == 0 || *n == last).map(|(_, p)| p);
    shown.map(|(x, y)| format!("({x:.1}, {y:.1})")).collect::<Vec<_>>().join(" ")
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

/// As one self-contained HTML page.
///
/// # Errors
/// When a chart cannot be drawn, which would be a defect.
pub fn page(report: &Report) -> anyhow::Result<String> {
    let mut body = String::from("<section><h2>Obtained on</h2><ul>");
    for line in &report.traffic {
        let _ = write!(body, "<li>{}</li>", html::escape(line));
    }
    body.push_str(
        "</ul></section>\n<section><h2>Claims</h2><div class=\"wide\"><table class=\"words\"><thead><tr><th>claim</th><th>paper</th>\
         <th>ours</th><th>finding</th><th>why</th></tr></thead><tbody>",
    );
    for c in &report.claims {
        let _ = write!(
            body,
            "<tr><td>{} <small>({})</small></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            html::escape(&c.claim),
            html::escape(&c.place),
            html::escape(&c.paper),
            html::escape(&c.ours),
            c.finding.map_or("–", Finding::words),
            html::escape(&c.why)
        );
    }
    body.push_str("</tbody></table></div></section>\n");
    for table in &report.tables {
        page_table(&mut body, table);
    }
    for figure in &report.figures {
        let mut chart = figure.chart.clone();
        chart.title = format!("{}: {}", figure.place, chart.title);
        html::figure(&mut body, &chart).map_err(anyhow::Error::msg)?;
    }
    body.push_str("<section><h2>Notes</h2><ul>");
    for note in &report.notes {
        let _ = write!(body, "<li>{}</li>", html::escape(note));
    }
    body.push_str("</ul></section>\n");
    Ok(html::page(
        &report.title,
        "Figures and claims of the paper beside ours.",
        report.synthetic,
        &body,
        "dormouse lab",
    ))
}

fn page_table(body: &mut String, table: &Table) {
    let row = |cells: &[String], tag: &str| -> String {
        cells.iter().map(|c| format!("<{tag}>{}</{tag}>", html::escape(c))).collect()
    };
    let _ = write!(
        body,
        "<section><h2>{}: {}</h2><div class=\"wide\"><table class=\"words\"><thead><tr>{}</tr></thead><tbody>",
        html::escape(&table.place),
        html::escape(&table.title),
        row(&table.head, "th")
    );
    for cells in &table.rows {
        let _ = write!(body, "<tr>{}</tr>", row(cells, "td"));
    }
    body.push_str("</tbody></table></div></section>\n");
}
