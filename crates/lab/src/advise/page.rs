//! Advice as one self-contained HTML page: recommendation, Pareto plot, heat maps, rules. Owns its layout; must never compute a
//! figure, and never reach for anything outside of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dormouse_trace::report::chart::{Chart, Mark};
use dormouse_trace::report::html::{self, escape};

use super::candidates::{Candidate, Standing};
use super::text::{self, estimated};
use super::words::{self, compared, digits};
use super::{Advice, rules};
use crate::results::format::{Direction, Encapsulation, Engine, Metric, Results, What};
use crate::results::stats::{self, Bootstrap};

/// The page.
///
/// # Errors
/// When a chart cannot be drawn, which would be a defect.
pub fn render(advice: &Advice, results: &Results) -> anyhow::Result<String> {
    let mut body = String::new();
    recommendation(&mut body, advice);
    for chart in [pareto(advice, Metric::Cpu), pareto(advice, Metric::Energy)] {
        if !chart.is_empty() {
            html::figure(&mut body, &chart).map_err(anyhow::Error::msg)?;
        }
    }
    candidates(&mut body, advice);
    heat_maps(&mut body, results);
    papers(&mut body, advice);
    rule_table(&mut body, &advice.rules);
    lists(&mut body, advice);
    let to = advice.far.as_ref().map(|far| format!(" over the link to {}", far.cpu)).unwrap_or_default();
    let lead = format!(
        "For {}, on {}{to}, decided on {}.",
        advice.purpose,
        advice.machine.cpu,
        advice.basis.words()
    );
    Ok(html::page("Which settings should this device use?", &lead, false, &body, "dormouse advise"))
}

fn recommendation(out: &mut String, advice: &Advice) {
    let _ = write!(
        out,
        "<div class=\"cards\"><div class=\"card\"><b>{}</b><span>recommended for {}</span></div>",
        escape(&advice.recommended.suite),
        advice.purpose
    );
    if let Some(runner_up) = &advice.runner_up {
        let _ = write!(
            out,
            "<div class=\"card\"><b>{}</b><span>runner-up</span></div>",
            escape(&runner_up.suite)
        );
    }
    out.push_str("</div>\n<section id=\"recommendation\"><h2>Why</h2><ul>");
    for reason in &advice.recommended.reasons {
        let _ = write!(out, "<li>{}</li>", escape(reason));
    }
    out.push_str("</ul>");
    let evidence = &advice.recommended.evidence;
    if !evidence.is_empty() {
        out.push_str("<div class=\"wide\"><table class=\"words\"><thead><tr><th>against</th><th>the recommended one has</th></tr></thead><tbody>");
        for e in evidence {
            let words = compared(e.metric, &e.comparison);
            let _ = write!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(&e.against), escape(&words));
        }
        out.push_str("</tbody></table></div>");
    }
    let _ = writeln!(
        out,
        "<p>For <code>/etc/dormouse/dormouse.toml</code>:</p><pre>{}</pre><p>For <code>swanctl.conf</code>:</p><pre>{}</pre></section>",
        escape(&advice.lines.toml),
        escape(&advice.lines.swanctl)
    );
}

/// Throughput against a cost; what is down and to the right is beaten.
fn pareto(advice: &Advice, cost: Metric) -> Chart {
    let (id, label, factor) = match cost {
        Metric::Energy if estimated(advice) => {
            ("pareto-energy", "energy estimated from CPU time, nJ per byte", 1e9)
        }
        Metric::Energy => ("pareto-energy", "energy, nJ per byte", 1e9),
        _ => ("pareto-cpu", "CPU, ns per byte", 1.0),
    };
    let mut chart =
        Chart::new(id, &format!("Throughput against {}", words::metric(cost)), label, "throughput, MB/s");
    chart.caption = format!(
        "Each point is a suite, the median over its rounds; up and to the left is better. The line is the Pareto front of what may be recommended, on {}.",
        advice.basis.words()
    );
    let at = |c: &Candidate| Some((c.figure(cost)?.median * factor, c.throughput?.median / 1e6));
    let mut front: Vec<(f64, f64)> =
        advice.candidates.iter().filter(|c| c.standing == Standing::Front).filter_map(at).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    if front.is_empty() {
        return chart;
    }
    chart.add("Pareto front", 6, Mark::Dashes, front);
    for (n, c) in advice.candidates.iter().enumerate() {
        let note = if c.is_allowed() { "" } else { " (not advised)" };
        chart.add(&format!("{}{note}", c.suite), n, Mark::Points, at(c).into_iter().collect());
    }
    chart
}

fn candidates(out: &mut String, advice: &Advice) {
    let energy = if estimated(advice) { " Energy is estimated from CPU time." } else { "" };
    let _ = write!(
        out,
        "<section id=\"suites\"><h2>All suites measured</h2><p>Median and 95 % interval over rounds.{energy}</p>"
    );
    out.push_str("<div class=\"wide\"><table class=\"words\"><thead><tr><th>suite</th><th>standards</th><th>cost</th><th>standing</th></tr></thead><tbody>");
    for c in &advice.candidates {
        let level = c.judgement.as_ref().map_or("unknown", |j| j.level.name());
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{level}</td><td>{}</td><td>{}</td></tr>",
            escape(&c.suite),
            escape(&text::costs(c)),
            escape(&c.standing.words())
        );
    }
    out.push_str("</tbody></table></div></section>\n");
}

/// What one heat map holds fixed, besides cores.
type Sheet = (What, Engine, Encapsulation, Direction, Option<bool>, Option<String>);
/// A heat map's cells, by suite and packet size.
type Cells<'a> = BTreeMap<(&'a str, u32), Cell>;

/// Throughput by suite and packet size, one table for each number of cores and each way of measuring.
fn heat_maps(out: &mut String, results: &Results) {
    let mut sheets: BTreeMap<(Sheet, u32), Cells<'_>> = BTreeMap::new();
    let bootstrap = Bootstrap::new(results.seed);
    for s in results.samples.iter().filter(|s| s.offered.is_none() && s.file_bytes.is_none()) {
        // Suites without AES belong on both sheets of a processor that has the instructions; they are shown with the others.
        let masked = s.aes_instructions.filter(|aes| !aes);
        let sheet = (s.what, s.engine, s.encapsulation, s.direction, masked, s.governor.clone());
        if let Some(e) = bootstrap.figure(s, Metric::Throughput) {
            let cell = Cell { median: e.median, low: e.low, high: e.high, verified: s.verified };
            sheets.entry((sheet, s.cores)).or_default().entry((&s.suite, s.packet_bytes)).or_insert(cell);
        }
    }
    for ((sheet, cores), cells) in &sheets {
        heat_map(out, sheet, *cores, cells);
    }
}

struct Cell {
    median: f64,
    low: f64,
    high: f64,
    verified: bool,
}

fn heat_map(out: &mut String, sheet: &Sheet, cores: u32, cells: &Cells<'_>) {
    let (what, engine, wrap, direction, masked, governor) = sheet;
    let sizes: BTreeSet<u32> = cells.keys().map(|k| k.1).collect();
    let suites: BTreeSet<&str> = cells.keys().map(|k| k.0).collect();
    let plural = if cores == 1 { "core" } else { "cores" };
    let masked = if masked.is_some() { ", AES instructions off" } else { "" };
    let governor = governor.as_ref().map(|g| format!(", governor {g}")).unwrap_or_default();
    let title = format!(
        "Throughput in MB/s: {}, {}, {}, {}, {cores} {plural}{masked}{governor}",
        name(what),
        name(engine),
        name(wrap),
        name(direction)
    );
    let _ = write!(
        out,
        "<section class=\"heat\"><h2>{}</h2><p>By suite and packet size in bytes; the darker, the faster. The 95 % interval shows when the pointer rests on a cell.</p><div class=\"wide\"><table><thead><tr><th>suite</th>",
        escape(&title)
    );
    for size in &sizes {
        let _ = write!(out, "<th>{size}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    let logs: Vec<f64> = cells.values().map(|c| c.median.max(1.0).ln()).collect();
    let (least, most) =
        (stats::quantile(&logs, 0.0).unwrap_or(0.0), stats::quantile(&logs, 1.0).unwrap_or(1.0));
    for suite in suites {
        let _ = write!(out, "<tr><td>{}</td>", escape(suite));
        for size in &sizes {
            match cells.get(&(suite, *size)) {
                Some(c) => {
                    let heat = (c.median.max(1.0).ln() - least) / (most - least).max(1e-9);
                    let light = 96.0 - 46.0 * heat;
                    let mark = if c.verified { "" } else { " (unverified)" };
                    let _ = write!(
                        out,
                        "<td style=\"background:hsl(205,70%,{light:.0}%)\" title=\"[{}, {}]\">{}{mark}</td>",
                        digits(c.low / 1e6),
                        digits(c.high / 1e6),
                        digits(c.median / 1e6)
                    );
                }
                None => out.push_str("<td>–</td>"),
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>\n");
}

/// A value of the format's vocabulary as the file writes it.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn papers(out: &mut String, advice: &Advice) {
    out.push_str("<section id=\"papers\"><h2>What the papers advised, and what is allowed now</h2><div class=\"wide\"><table class=\"words\"><thead><tr><th>paper</th><th>the standards</th><th>here</th><th>allowed now</th></tr></thead><tbody>");
    for p in &advice.papers {
        let _ = write!(
            out,
            "<tr><td>{} <small>({})</small></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(p.paper),
            escape(p.place),
            escape(&p.standard),
            escape(&p.words),
            escape(&p.allowed)
        );
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn rule_table(out: &mut String, rules: &[rules::Rule]) {
    out.push_str("<section id=\"rules\"><h2>Paper 004’s rules on this machine</h2><div class=\"wide\"><table class=\"words\"><thead><tr><th>rule</th><th>paper</th><th>finding</th><th>here</th></tr></thead><tbody>");
    for r in rules {
        let _ = write!(
            out,
            "<tr id=\"rule-{}\"><td>{} <small>({})</small></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            r.id,
            escape(r.rule),
            escape(r.place),
            escape(r.paper),
            r.finding.words(),
            escape(&r.ours)
        );
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn lists(out: &mut String, advice: &Advice) {
    for (id, title, lines) in
        [("not-measured", "Not measured", &advice.not_measured), ("doubts", "Doubts", &advice.warnings)]
    {
        if lines.is_empty() {
            continue;
        }
        let _ = write!(out, "<section id=\"{id}\"><h2>{title}</h2><ul>");
        for line in lines {
            let _ = write!(out, "<li>{}</li>", escape(line));
        }
        out.push_str("</ul></section>\n");
    }
}
