//! The experiment with real clients, on raw data with one client alone: nothing is compared with itself.

use std::fs;
use std::path::Path;

use dormouse_lab::judge::Finding;
use dormouse_lab::{Context, Report, find};
use serde_json::Value;

/// The report on raw data, of which only some numbers of clients are left.
fn report(clients: impl Fn(u64) -> bool, name: &str) -> Report {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/paper-000-live.json");
    let mut raw: Value = serde_json::from_slice(&fs::read(data).expect("raw data")).expect("JSON");
    let samples = raw["samples"].as_array_mut().expect("samples");
    samples.retain(|s| clients(s["point"]["clients"].as_u64().expect("a number")));
    let file = std::env::temp_dir().join(format!("dormouse-live-{name}-{}.json", std::process::id()));
    fs::write(&file, raw.to_string()).expect("written");
    let context = Context { file: Some(file.clone()), ..Context::default() };
    let report = (find("paper-000-live").expect("it is listed").run)(&context).expect("a report");
    fs::remove_file(&file).expect("removed");
    report
}

#[test]
fn with_one_client_alone_nothing_is_said_of_growth() {
    let (all, alone) = (report(|_| true, "all"), report(|clients| clients == 1, "alone"));
    let finding = |report: &Report, words: &str| {
        let claim = report.claims.iter().find(|c| c.claim.contains(words)).expect(words);
        claim.finding.expect("a finding")
    };
    for words in ["constant for any number of clients", "Break-even times grow"] {
        assert_ne!(finding(&all, words), Finding::NotMeasurable, "{words}");
        assert_eq!(finding(&alone, words), Finding::NotMeasurable, "{words}");
    }
    // That a full exchange takes longer needs no second number of clients; that the gap grows does.
    let claim = alone.claims.iter().find(|c| c.claim.contains("the gap grows")).expect("it");
    assert_eq!(
        claim.figures.iter().filter(|f| f.ours.is_some()).count(),
        1,
        "the gap alone: {:?}",
        claim.figures
    );
    assert_ne!(claim.finding, Some(Finding::Confirmed));
    // What is left compares two ways.
    assert_ne!(finding(&alone, "MOBIKE has the least latency"), Finding::NotMeasurable);
}

/// Of nineteen in twenty clients the tables have the time within which they were done: one of a hundred figures here is larger than all others.
#[test]
fn the_third_figure_of_a_latency_is_the_95th_percentile() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/paper-000-live.json");
    let raw: Value = serde_json::from_slice(&fs::read(data).expect("raw data")).expect("JSON");
    let of_one = |s: &&Value| s["point"]["way"] == "full" && s["point"]["clients"] == 1;
    let sample = raw["samples"].as_array().expect("samples").iter().find(of_one).expect("one client");
    let rounds = sample["rounds"].as_array().expect("rounds").iter();
    let ready = rounds.flat_map(|r| r["figures"]["ready"].as_array().expect("figures"));
    let mut ready: Vec<f64> = ready.map(|v| v.as_f64().expect("a number")).collect();
    ready.sort_by(f64::total_cmp);
    let at = 0.95 * (ready.len() - 1) as f64;
    let (below, above) = (ready[at.floor() as usize], ready[at.ceil() as usize]);
    let most = below + (above - below) * at.fract();
    let report = report(|_| true, "percentile");
    let cell = &report.tables.iter().find(|t| t.place == "Fig. 10").expect("the table").shown.rows[0][1];
    let third: f64 = cell.rsplit(", ").next().expect("three figures").parse().expect("a number");
    assert!((third / most - 1.0).abs() < 0.005, "{cell}, and not {most}");
}
