//! Advice as a document: recommendation, evidence, configuration, Pareto plot, rules. Owns its layout; must never compute a
//! figure.

use dormouse_report::{Block, Chart, Document, Mark, Part, Table};

use super::Advice;
use super::candidates::{Candidate, Standing};
use super::choice::Choice;
use super::words::{self, compared, figure};
use crate::results::esp::Metric;
use crate::results::format::EnergySource;

/// The advice for a terminal.
#[must_use]
pub fn document(advice: &Advice) -> Document {
    with(advice, Vec::new())
}

/// The advice for a page, with what was measured drawn.
#[must_use]
pub fn page(advice: &Advice) -> Document {
    let charts = [pareto(advice, Metric::Cpu), pareto(advice, Metric::Energy)];
    let drawn = charts.into_iter().filter(|chart| !chart.is_empty()).map(Block::Chart).collect();
    with(advice, drawn)
}

fn with(advice: &Advice, drawn: Vec<Block>) -> Document {
    let to = advice.far.as_ref().map(|far| format!(", over the link to {}, {} cores", far.cpu, far.cores));
    let mut cards = vec![(advice.recommended.suite.clone(), format!("recommended for {}", advice.purpose))];
    cards.extend(advice.runner_up.as_ref().map(|c| (c.suite.clone(), "runner-up".to_owned())));
    let mut document = Document {
        title: "Which settings should this device use?".to_owned(),
        lead: format!(
            "For {}, on {}, {} cores{}, decided on {}.",
            advice.purpose,
            advice.machine.cpu,
            advice.machine.cores,
            to.unwrap_or_default(),
            advice.basis.words()
        ),
        blocks: vec![Block::Cards(cards)],
        about: "dormouse advise".to_owned(),
        ..Document::default()
    };
    document.section("recommendation", "Why", choice(&advice.recommended));
    if let Some(runner_up) = &advice.runner_up {
        document.section("runner-up", &format!("Runner-up: {}", runner_up.suite), choice(runner_up));
    }
    for (id, file, lines) in [
        ("toml", "/etc/dormouse/dormouse.toml", &advice.lines.toml),
        ("swanctl", "swanctl.conf", &advice.lines.swanctl),
    ] {
        document.section(id, &format!("For {file}"), [Part::Code(lines.clone())]);
    }
    document.blocks.extend(drawn);
    document.section("suites", "All suites measured", candidates(advice));
    let mut papers = Table::words(["paper", "the standards", "here", "allowed now"]);
    for p in &advice.papers {
        let paper = format!("{} ({})", p.paper, p.place);
        papers.row([paper, p.standard.clone(), p.words.clone(), p.allowed.clone()]);
    }
    let title = "What the papers advised, and what is allowed now";
    document.section("papers", title, [Part::Table(papers)]);
    let mut rules = Table::words(["rule", "paper", "finding", "here"]);
    for r in &advice.rules {
        let rule = format!("{} ({})", r.rule, r.place);
        rules.row([rule, r.paper.to_owned(), r.finding.words().to_owned(), r.ours.clone()]);
    }
    document.section("rules", "Paper 004’s rules on this machine", [Part::Table(rules)]);
    for (id, title, lines) in
        [("not-measured", "Not measured", &advice.not_measured), ("doubts", "Doubts", &advice.warnings)]
    {
        let list = (!lines.is_empty()).then(|| Part::List(lines.clone()));
        document.section(id, title, list);
    }
    document
}

fn choice(choice: &Choice) -> Vec<Part> {
    let mut parts = vec![Part::List(choice.reasons.clone())];
    let mut evidence = Table::words(["against", "it has"]);
    for e in &choice.evidence {
        evidence.row([e.against.clone(), compared(e.metric, &e.comparison)]);
    }
    parts.extend((!evidence.rows.is_empty()).then_some(Part::Table(evidence)));
    parts
}

/// Whether joules are estimates.
fn estimated(advice: &Advice) -> bool {
    advice.candidates.iter().any(|c| c.energy_source == EnergySource::Estimated)
}

fn candidates(advice: &Advice) -> [Part; 2] {
    let energy = if estimated(advice) { " Energy is estimated from CPU time." } else { "" };
    let mut table = Table::words(["suite", "standards", "cost", "standing"]);
    for c in &advice.candidates {
        let level = c.judgement.as_ref().map_or("unknown", |j| j.level.name());
        table.row([c.suite.clone(), level.to_owned(), costs(c), c.standing.words()]);
    }
    let words = format!("Median over rounds with its interval of 95 %, of five rounds 93.8 %.{energy}");
    [Part::Text(words), Part::Table(table)]
}

/// The costs of a candidate, those that were measured.
fn costs(c: &Candidate) -> String {
    let all = [Metric::Throughput, Metric::Cpu, Metric::Energy];
    let shown: Vec<String> = all.into_iter().filter_map(|m| Some(figure(m, &c.figure(m)?))).collect();
    let overhead = c.overhead.map(|n| format!(", +{n} B a packet")).unwrap_or_default();
    shown.join(", ") + &overhead
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
