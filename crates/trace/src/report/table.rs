//! The table on the terminal. Owns its columns; must never compute anything.

use std::fmt::Write as _;

use super::json::{PolicyRow, Report, Row};

/// Clients shown before the table is cut; `--json` has all.
const SHOWN: usize = 40;
/// Policies in the order of the columns.
const ORDER: [&str; 6] = ["never", "timeout", "break-even", "paper", "dormouse", "clairvoyant"];

/// The report as text, ending with a line break.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    if report.synthetic {
        out.push_str("SYNTHETIC TRAFFIC: made by a model, not recorded.\n\n");
    }
    let wakes =
        if report.wake_on == "all" { "every packet wakes" } else { "only the client's own packets wake" };
    let _ = writeln!(
        out,
        "{} client{} ({}); break-even {:.1} s; {wakes}; idle from {:.2} s",
        report.clients.len(),
        if report.clients.len() == 1 { "" } else { "s" },
        report.rule,
        report.break_even,
        report.min_idle,
    );
    out.push_str("Saved: part of the idle energy of a radio that never sleeps.\n\n");
    let width = report.clients.iter().take(SHOWN).map(|c| c.client.len()).max().unwrap_or(0).max(6);
    let _ =
        write!(out, "{:<width$}  {:>9}  {:>8}  {:>9}  {:>9}", "client", "packets", "span", "idle", "periods");
    for name in ORDER {
        let _ = write!(out, "  {name:>11}");
    }
    out.push('\n');
    for row in report.clients.iter().take(SHOWN) {
        line(&mut out, row, width);
    }
    if report.clients.len() > SHOWN {
        let _ = writeln!(out, "… {} more", report.clients.len() - SHOWN);
    }
    if report.clients.len() > 1 {
        line(&mut out, &report.total, width);
    }
    out.push('\n');
    policies(&mut out, &report.total);
    notes(&mut out, report);
    out
}

fn line(out: &mut String, row: &Row, width: usize) {
    let _ = write!(
        out,
        "{:<width$}  {:>9}  {:>8}  {:>9}  {:>9}",
        row.client,
        row.packets,
        duration(row.last - row.first),
        duration(row.idle_seconds),
        row.idle_periods
    );
    for name in ORDER {
        match row.policies.get(name) {
            Some(p) => {
                let _ = write!(out, "  {:>11}", percent(p.saved_fraction));
            }
            None => out.push_str("            -"),
        }
    }
    out.push('\n');
}

fn policies(out: &mut String, total: &Row) {
    let _ = writeln!(
        out,
        "{:<12} {:>8}  {:>20}  {:>9}  {:>20}  {:>12}",
        "policy", "saved", "of the clairvoyant's", "cycles", "missed opportunities", "packets lost"
    );
    for name in ORDER {
        let Some(PolicyRow {
            saved_fraction,
            share_of_clairvoyant,
            cycles,
            missed_opportunities,
            packets_lost,
            ..
        }) = total.policies.get(name)
        else {
            continue;
        };
        let share = share_of_clairvoyant.map_or_else(|| "-".to_owned(), percent);
        let _ = writeln!(
            out,
            "{name:<12} {:>8}  {share:>20}  {cycles:>9}  {missed_opportunities:>20}  {packets_lost:>12}",
            percent(*saved_fraction)
        );
    }
}

fn notes(out: &mut String, report: &Report) {
    let mut notes = Vec::new();
    if report.unattributed_packets > 0 {
        notes.push(format!("{} packets belong to no client", report.unattributed_packets));
    }
    if report.late_packets > 0 {
        notes.push(format!("{} packets came too late to be put in their place", report.late_packets));
    }
    let upkeep: u64 = report.files.iter().map(|f| f.upkeep_frames).sum();
    if upkeep > 0 {
        notes.push(format!("{upkeep} 802.11 management, control and null frames are not counted as packets"));
    }
    for file in report.files.iter().filter(|f| f.export_datagrams > 0) {
        notes.push(format!(
            "{}: {} NetFlow or IPFIX datagrams to a collector were read as {} flows and are not counted as packets",
            file.file, file.export_datagrams, file.exported_flows
        ));
    }
    if report.clients.is_empty() {
        notes.push("no client found; name one with --client".to_owned());
    }
    if !notes.is_empty() {
        out.push('\n');
        for note in notes {
            let _ = writeln!(out, "note: {note}");
        }
    }
}

/// A part of one in percent.
#[must_use]
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Seconds as people say them.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}
