//! Figures draw only what claims accept: nothing of ours from too few rounds or clients, or of what a claim leaves out. Of all experiments.

mod common;
#[path = "common/streams.rs"]
mod made;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{campaign, sample};
use dormouse_lab::judge::Finding;
use dormouse_lab::results::esp::{Encapsulation, Engine, What};
use dormouse_lab::{Context, EXPERIMENTS, Report, find, paper_001, paper_004};
use dormouse_report::digits;
use serde_json::Value;

/// Series with points of ours: neither the paper's nor a profile's, nor what is said of single clients or follows from a device (Figures 2 and 4 of
/// paper 000).
fn ours(report: &Report) -> Vec<String> {
    let series = report.figures.iter().flat_map(|f| f.shown.series.iter().map(move |s| (&f.place, s)));
    let series = series
        .filter(|(place, _)| report.name != "paper-000" || !["Fig. 2", "Fig. 4"].contains(&place.as_str()));
    let stated = |name: &str| match report.name {
        "paper-000" => name == "paper (stated)",
        _ => name.starts_with("paper") || name == "the paper's",
    };
    let ours = series.filter(|(_, s)| !stated(&s.name) && !s.name.ends_with(", profile"));
    ours.filter(|(_, s)| !s.points.is_empty()).map(|(place, s)| format!("{place}: {}", s.name)).collect()
}

/// The points of a series, by what each begins with.
fn points(report: &Report, place: &str, name: &str) -> Vec<f64> {
    let figure = report.figures.iter().find(|f| f.place == place).expect(place);
    let series = figure.shown.series.iter().filter(|s| s.name == name);
    series.flat_map(|s| &s.points).map(|(x, _)| *x).collect()
}

/// Stored raw data.
fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("json")
}

fn raw(name: &str) -> Value {
    serde_json::from_slice(&fs::read(stored(name)).expect("raw data")).expect("JSON")
}

/// The report of an experiment on raw data.
fn on(name: &str, raw: &Value) -> Report {
    // Tests of this program run at the same time in one process.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let file = format!("dormouse-drawn-{name}-{}-{number}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    fs::write(&file, raw.to_string()).expect("written");
    let context = Context { file: Some(file.clone()), ..Context::default() };
    let report = (find(name).expect("it is listed").run)(&context).expect("a report");
    fs::remove_file(&file).expect("removed");
    report
}

/// Reports on stored raw data with all of their rounds, and with one too few.
fn both(name: &str) -> [Report; 2] {
    both_on(name, &raw(name))
}

/// The same of L2TP; where the processor is emulated, as in what is stored, nothing would be drawn anyhow.
fn both_l2tp() -> [Report; 2] {
    let mut raw = raw("paper-001-l2tp");
    raw["machine"]["cpu"] = "an invented processor".into();
    both_on("paper-001-l2tp", &raw)
}

fn both_on(name: &str, raw: &Value) -> [Report; 2] {
    let mut few = raw.clone();
    for sample in few["samples"].as_array_mut().expect("samples") {
        sample["rounds"].as_array_mut().expect("rounds").truncate(4);
    }
    [on(name, raw), on(name, &few)]
}

/// The same of paper 000, where clients take the place of rounds.
fn both_clients() -> [Report; 2] {
    let out = std::env::temp_dir().join(format!("dormouse-drawn-clients-{}.json", std::process::id()));
    let context =
        Context { threads: 2, clients: Some(20), seed: 3, out: Some(out.clone()), ..Context::default() };
    let all = (find("paper-000").expect("it is listed").run)(&context).expect("it runs");
    let mut few: Value = serde_json::from_slice(&fs::read(&out).expect("raw data")).expect("JSON");
    fs::remove_file(&out).expect("removed");
    few["samples"].as_array_mut().expect("samples").truncate(4);
    [all, on("paper-000", &few)]
}

/// What a figure draws as a series of ours and its intervals, as a table writes it, in units of which there are `scale` in the table's.
fn written(report: &Report, id: &str, name: &str, scale: f64) -> Vec<String> {
    let figure = report.figures.iter().find(|f| f.shown.id == id).expect(id);
    let series = |name: &str| figure.shown.series.iter().find(|s| s.name == name).expect(name);
    let (values, ends) = (series(name), series(&format!("{name}, interval")));
    assert_eq!(ends.points.len(), 2 * values.points.len(), "{id}: {name}");
    let of = |((x, value), ends): (&(f64, f64), &[(f64, f64)])| {
        assert_eq!([ends[0].0, ends[1].0], [*x; 2], "{id}: {name}");
        let [value, low, high] = [*value, ends[0].1, ends[1].1].map(|v| digits(v / scale));
        format!("{value} [{low}, {high}]")
    };
    values.points.iter().zip(ends.points.chunks_exact(2)).map(of).collect()
}

/// The cells of a column in these rows that have a figure.
fn cells(report: &Report, place: &str, column: usize, rows: impl Iterator<Item = usize>) -> Vec<String> {
    let table = report.tables.iter().find(|t| t.place == place).expect(place);
    rows.map(|n| table.shown.rows[n][column].clone()).filter(|cell| cell != "–").collect()
}

/// The paper's points of a series, whole.
fn papers(report: &Report, id: &str, name: &str) -> Vec<f64> {
    let figure = report.figures.iter().find(|f| f.shown.id == id).expect(id);
    let series = figure.shown.series.iter().find(|s| s.name == name).expect(name);
    series.points.iter().map(|(_, y)| (y * 10.0).round() / 10.0).collect()
}

#[test]
fn tables_2_6_and_7_of_paper_003_are_drawn_as_they_are_written() {
    let [report, _] = both("paper-003-cost");
    let places: Vec<&str> = report.figures.iter().map(|f| f.place.as_str()).collect();
    assert_eq!(places, ["Table 2", "Table 6", "Table 7"]);
    for (place, rows, column, id, series, scale, measured) in [
        ("Table 2", 7, 1, "exchanges", "ours, device", 1e3, 4),
        ("Table 2", 7, 2, "exchanges", "ours, gateway", 1e3, 6),
        ("Table 2", 7, 3, "exchanges", "ours, routers", 1e3, 3),
        ("Table 2", 7, 4, "exchanges", "ours, all", 1e3, 7),
        ("Table 6", 4, 1, "packets", "ours", 1.0, 4),
        ("Table 6", 4, 2, "packets", "ours, the bare cipher", 1.0, 4),
        ("Table 7", 8, 1, "router", "ours", 1.0, 8),
    ] {
        let cells = cells(&report, place, column, 0..rows);
        assert_eq!(cells.len(), measured, "{place}: {series}");
        assert_eq!(written(&report, id, series, scale), cells, "{place}: {series}");
    }
    let both_ends = [109_020.0, 2_650.0, 600.0, 500.0, 600.0];
    assert_eq!(papers(&report, "exchanges", "paper, both ends"), both_ends);
    assert_eq!(papers(&report, "packets", "paper"), [58e3, 104e3, 38e3, 44e3]);
    assert_eq!(papers(&report, "packets", "paper, the cipher"), [91e3, 12e3]);
    assert_eq!(papers(&report, "router", "paper"), [42e3, 13e3, 13e3, 55e3, 55e3]);
    // DKM's parts do not add up in the paper either: they stand as they are printed, beside its total.
    let table = report.tables.iter().find(|t| t.place == "Table 2").expect("its table").shown.csv();
    assert!(table.contains("0.3 + 0.2 (0.6)") && table.contains("1.3 + 1.35 (2.65)"), "{table}");
    // The paper's figure of an exchange stands at that exchange.
    let csv = report.figures[0].shown.csv();
    assert!(csv.contains("\"paper, both ends\",rekeying,2650\n"), "{csv}");
}

#[test]
fn table_3_of_paper_003_is_drawn_as_it_is_written() {
    let [report, _] = both("paper-003-handoff");
    assert!(report.figures.iter().all(|f| f.place == "Table 3"));
    // Rows are two and two: initialization and handoff of a line; Mobile IP's four lines are first.
    for (id, series, column, first, rows) in [
        ("handoff", "ours, initialization", 2, 0, 8),
        ("handoff", "ours, handoff", 2, 1, 8),
        ("handoff", "ours, initialization: request to reply", 1, 0, 8),
        ("handoff", "ours, handoff: request to reply", 1, 1, 8),
        ("pause", "ours, pause at initialization", 4, 0, 16),
        ("pause", "ours, pause in a handoff", 4, 1, 16),
    ] {
        let cells = cells(&report, "Table 3", column, (first..rows).step_by(2));
        assert!(cells.len() >= 4, "{series}: {cells:?}");
        assert_eq!(written(&report, id, series, 1.0), cells, "{series}");
    }
    assert_eq!(papers(&report, "handoff", "paper, initialization"), [26.0, 197.0, 219.0, 222.0]);
    assert_eq!(papers(&report, "handoff", "paper, handoff"), [25.0, 54.0, 52.7, 100.0]);
    let paper: Vec<String> = cells(&report, "Table 3", 3, 0..8);
    assert_eq!(paper[..2], ["26", "25"]);
    assert_eq!(paper[4..6], ["539, or 219 without its shell scripts", "52.7"]);
}

#[test]
fn what_was_measured_too_seldom_is_not_drawn() {
    let mut looked_at = BTreeSet::new();
    let few = |mut results: dormouse_lab::results::Results| {
        results.samples.iter_mut().for_each(|s| s.rounds.truncate(4));
        results
    };
    let streams = [made::streams(false), few(made::streams(false))].map(|r| paper_001::report(&r));
    let settings = [campaign(), few(campaign())].map(|r| paper_004::report(&r));
    let stored =
        ["paper-000-live", "paper-002", "paper-003", "paper-003-handoff", "paper-003-cost"].map(both);
    let others = [streams, settings, both_clients(), both_l2tp()];
    for [all, few] in others.into_iter().chain(stored) {
        looked_at.insert(all.name);
        assert!(!ours(&all).is_empty(), "{}", all.name);
        assert_eq!(ours(&few), Vec::<String>::new(), "{}", few.name);
        let none = |finding: Option<Finding>| finding.is_none_or(|f| f == Finding::NotMeasurable);
        assert!(few.claims.iter().all(|c| none(c.finding)), "{:#?}", few.claims);
    }
    assert_eq!(looked_at, EXPERIMENTS.iter().map(|e| e.name).collect::<BTreeSet<_>>(), "every experiment");
}

#[test]
fn udp_encapsulation_is_held_against_the_same_mode_without_it() {
    let report = paper_004::report(&campaign());
    assert_eq!(points(&report, "Fig. 9", "ours, time"), [180.0, 1_420.0]);
    let mut tunnels = campaign();
    tunnels.samples.retain(|s| s.encapsulation != Encapsulation::UdpTransport);
    let report = paper_004::report(&tunnels);
    assert!(
        report
            .figures
            .iter()
            .any(|f| f.place == "Fig. 8" && f.shown.series.iter().any(|s| s.name == "ours, time"))
    );
    assert_eq!(points(&report, "Fig. 9", "ours, time"), [0.0; 0]);
    let claim = report.claims.iter().find(|c| c.place.ends_with("Fig. 9")).expect("a claim");
    assert_eq!(claim.finding, Some(Finding::NotMeasurable), "{}", claim.ours);
}

/// A ratio whose interval is wider than itself says nothing that a line could show.
#[test]
fn of_paper_004_no_ratio_is_drawn_that_is_wider_open_than_it_is_large() {
    let mut results = campaign();
    let noisy = |s: &&mut dormouse_lab::results::Sample| {
        s.encapsulation == Encapsulation::UdpTransport && s.packet_bytes == 180
    };
    for sample in results.samples.iter_mut().filter(noisy) {
        for (n, round) in sample.rounds.iter_mut().enumerate() {
            let rate = round.figures.one("throughput").expect("it is there");
            let factor = if n % 2 == 0 { 5.0 } else { 0.2 };
            round.figures = std::mem::take(&mut round.figures).with("throughput", factor * rate);
        }
    }
    let report = paper_004::report(&results);
    assert_eq!(points(&report, "Fig. 9", "ours, time"), [1_420.0]);
    assert_eq!(points(&report, "Fig. 9", "ours, CPU"), [180.0, 1_420.0]);
}

#[test]
fn of_tls_only_large_files_show_their_time() {
    let mut results = campaign();
    for file in [50_000, 16_000_000] {
        let mut tls = sample(What::Tls, "tls13-aes128gcm", 1_500, 800.0);
        (tls.engine, tls.encapsulation, tls.file_bytes) = (Engine::Rustls, Encapsulation::None, Some(file));
        let mut download = sample(What::Download, "aes128gcm16", 1_400, 1_600.0);
        download.file_bytes = tls.file_bytes;
        results.samples.extend([tls, download]);
    }
    let report = paper_004::report(&results);
    assert_eq!(points(&report, "Fig. 11", "ours, time"), [16e6]);
    assert_eq!(points(&report, "Fig. 11", "ours, CPU"), [50e3, 16e6]);
}
