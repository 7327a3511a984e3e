//! A document on a terminal.

use std::fmt::Write as _;

use crate::{Bars, Block, Chart, Document, Mark, Part, Table, Tracks};

/// Columns of words that take more characters than this are no columns any more.
const WIDEST: usize = 150;

pub(crate) fn document(document: &Document) -> String {
    let mut out = String::new();
    if document.synthetic {
        out.push_str("SYNTHETIC TRAFFIC: made by a model, not recorded.\n\n");
    }
    let _ = writeln!(out, "{}\n{}", document.title, document.lead);
    for block in &document.blocks {
        out.push('\n');
        match block {
            Block::Cards(cards) => {
                for (value, label) in cards {
                    let _ = writeln!(out, "{value} {label}");
                }
            }
            Block::Chart(chart) => self::chart(&mut out, chart),
            Block::Bars(bars) => self::bars(&mut out, bars),
            Block::Tracks(tracks) => self::tracks(&mut out, tracks),
            Block::Section(section) => {
                let _ = writeln!(out, "{}:", section.title);
                section.parts.iter().for_each(|part| self::part(&mut out, part));
            }
        }
    }
    out
}

fn part(out: &mut String, part: &Part) {
    match part {
        Part::Text(text) => _ = writeln!(out, "  {text}"),
        Part::List(lines) => lines.iter().for_each(|line| _ = writeln!(out, "  - {line}")),
        Part::Table(table) => out.push_str(&self::table(table, "  ")),
        Part::Files(about, files) => {
            let places: Vec<&str> = files.iter().map(|(_, place)| place.as_str()).collect();
            let _ = writeln!(out, "  {about}: {}", places.join(", "));
        }
        Part::Terms(terms) => terms.iter().for_each(|(term, words)| _ = writeln!(out, "  {term}: {words}")),
        Part::Code(code) => code.lines().for_each(|line| {
            _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "    {line}") };
        }),
    }
}

pub(crate) fn table(table: &Table, indent: &str) -> String {
    let columns = columns(table, indent, |head| head.to_owned());
    if table.words && columns.lines().any(|line| line.chars().count() > WIDEST) {
        let mut out = String::new();
        table.rows.iter().for_each(|row| record(&mut out, table, row, indent));
        return out;
    }
    columns
}

pub(crate) fn columns(table: &Table, indent: &str, head: impl Fn(&str) -> String) -> String {
    let lines: Vec<&Vec<String>> = std::iter::once(&table.head).chain(&table.rows).collect();
    let width =
        |n: usize| lines.iter().filter_map(|l| l.get(n)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let mut out = String::new();
    for (number, line) in lines.into_iter().enumerate() {
        let mut text = String::new();
        for (n, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match n == 0 || table.words {
                true => write!(text, "{cell:<width$}  "),
                false => write!(text, "{cell:>width$}  "),
            };
        }
        let text = text.trim_end();
        let _ = writeln!(out, "{indent}{}", if number == 0 { head(text) } else { text.to_owned() });
    }
    out
}

/// A row that has no room in columns: its first cell, and the others below it behind their heads.
fn record(out: &mut String, table: &Table, row: &[String], indent: &str) {
    let width = table.head.iter().skip(1).map(|h| h.chars().count()).max().unwrap_or(0);
    for (n, (head, cell)) in table.head.iter().zip(row).enumerate().filter(|(_, (_, c))| !c.is_empty()) {
        let _ = match n {
            0 => writeln!(out, "{indent}{cell}"),
            _ => writeln!(out, "{indent}    {head:<width$}  {cell}"),
        };
    }
}

/// The name of each series and a few of its points, enough to compare; intervals stand in tables.
fn chart(out: &mut String, chart: &Chart) {
    let _ = writeln!(out, "{}", chart.title);
    for series in chart.series.iter().filter(|series| series.mark != Mark::Intervals) {
        let last = series.points.len().saturating_sub(1);
        let step = (last / 6).max(1);
        let shown = series.points.iter().enumerate().filter(|(n, _)| n % step == 0 || *n == last);
        let points: Vec<String> = shown.map(|(_, (x, y))| format!("({x:.1}, {y:.1})")).collect();
        let _ = writeln!(out, "    {:<36} {}", series.name, points.join(" "));
    }
}

fn bars(out: &mut String, bars: &Bars) {
    let width = bars.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let _ = writeln!(out, "{}", bars.title);
    bars.bars.iter().for_each(|bar| _ = writeln!(out, "    {:<width$}  {}", bar.name, bar.words));
}

/// What the tracks are, and how often there was something on each.
fn tracks(out: &mut String, tracks: &Tracks) {
    let _ = writeln!(out, "{}", tracks.title);
    for subject in &tracks.subjects {
        let each: Vec<String> =
            subject.tracks.iter().map(|t| format!("{} {}", t.name, t.spans.len())).collect();
        let _ = writeln!(out, "    {}: {}", subject.name, each.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_heads_do_and_words_begin_there() {
        let mut numbers = Table::new(["client", "packets"]);
        numbers.row(["a", "7"]);
        assert_eq!(numbers.text("  "), "  client  packets\n  a             7\n");
        let mut words = Table::words(["rule", "here"]);
        words.row(["longer", "so"]);
        assert_eq!(words.text(""), "rule    here\nlonger  so\n");
        words.row(["long".to_owned(), "x".repeat(WIDEST)]);
        assert_eq!(words.text(""), format!("longer\n    here  so\nlong\n    here  {}\n", "x".repeat(WIDEST)));
    }
}
