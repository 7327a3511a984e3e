//! Advice for the terminal. Owns layout; must never compute a figure.

use std::fmt::Write as _;

use super::Advice;
use super::candidates::Candidate;
use super::choice::Choice;
use super::rules::Rule;
use super::words::{compared, figure};
use crate::results::format::{EnergySource, Metric};

/// The advice, for people.
#[must_use]
pub fn render(advice: &Advice) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "For {}: {}", advice.purpose, advice.recommended.suite);
    let _ = writeln!(out, "Decided on {}", advice.basis.words());
    let to = advice.far.as_ref().map(|far| format!(", over the link to {}, {} cores", far.cpu, far.cores));
    let to = to.unwrap_or_default();
    let _ = writeln!(out, "Measured on {}, {} cores{to}\n", advice.machine.cpu, advice.machine.cores);
    choice(&mut out, "Why", &advice.recommended, advice);
    if let Some(runner_up) = &advice.runner_up {
        choice(&mut out, &format!("Runner-up: {}", runner_up.suite), runner_up, advice);
    }
    candidates(&mut out, advice);
    let _ = writeln!(out, "For /etc/dormouse/dormouse.toml:\n\n{}", indented(&advice.lines.toml));
    let _ = writeln!(out, "For swanctl.conf:\n\n{}", indented(&advice.lines.swanctl));
    out.push_str("What the papers advised, and what is allowed now:\n");
    for p in &advice.papers {
        let _ = writeln!(out, "  {} ({})", p.paper, p.place);
        let _ = writeln!(out, "      the standards   {}", p.standard);
        let _ = writeln!(out, "      here            {}", p.words);
        let _ = writeln!(out, "      allowed now     {}", p.allowed);
    }
    out.push_str("\nPaper 004's rules on this machine:\n");
    for rule in &advice.rules {
        self::rule(&mut out, rule);
    }
    list(&mut out, "Not measured", &advice.not_measured);
    list(&mut out, "Doubts", &advice.warnings);
    out
}

fn choice(out: &mut String, title: &str, choice: &Choice, advice: &Advice) {
    let _ = writeln!(out, "{title}:");
    for reason in &choice.reasons {
        let _ = writeln!(out, "  - {reason}");
    }
    let against = advice.runner_up.as_ref().map(|r| r.suite.as_str());
    let other = if choice.suite == advice.recommended.suite {
        against
    } else {
        Some(advice.recommended.suite.as_str())
    };
    for e in choice.evidence.iter().filter(|e| Some(e.against.as_str()) == other) {
        let _ = writeln!(out, "  - against {}: {}", e.against, compared(e.metric, &e.comparison));
    }
    out.push('\n');
}

/// Whether joules are estimates.
pub(super) fn estimated(advice: &Advice) -> bool {
    advice.candidates.iter().any(|c| c.energy_source == EnergySource::Estimated)
}

fn candidates(out: &mut String, advice: &Advice) {
    let _ = writeln!(
        out,
        "All suites that were measured (median [95 % interval]{}):",
        if estimated(advice) { "; energy is estimated" } else { "" }
    );
    for c in &advice.candidates {
        let _ = writeln!(out, "  {:<18} {}", c.suite, costs(c));
        let level = c.judgement.as_ref().map_or("unknown", |j| j.level.name());
        let _ = writeln!(out, "  {:<18} {level}; {}", "", c.standing.words());
    }
    out.push('\n');
}

/// The costs of a candidate, those that were measured.
#[must_use]
pub fn costs(c: &Candidate) -> String {
    let all = [Metric::Throughput, Metric::Cpu, Metric::Energy];
    let shown: Vec<String> = all.into_iter().filter_map(|m| Some(figure(m, &c.figure(m)?))).collect();
    let overhead = c.overhead.map(|n| format!(", +{n} B a packet")).unwrap_or_default();
    shown.join(", ") + &overhead
}

fn rule(out: &mut String, rule: &Rule) {
    let _ = writeln!(out, "  [{}] {} ({})", rule.finding.words(), rule.rule, rule.place);
    let _ = writeln!(out, "      paper  {}", rule.paper);
    let _ = writeln!(out, "      here   {}", rule.ours);
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(out, "\n{title}:");
        for line in lines {
            let _ = writeln!(out, "  - {line}");
        }
    }
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "    {line}") };
        out
    })
}
