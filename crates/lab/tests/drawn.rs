//! Figures draw only what claims accept: nothing of ours from too few rounds or clients, or of what a claim leaves out. Of all experiments.

mod common;
#[path = "common/streams.rs"]
mod made;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{campaign, sample};
use dormouse_lab::judge::Finding;
use dormouse_lab::results::esp::{Encapsulation, Engine, What};
use dormouse_lab::{Context, EXPERIMENTS, Report, find, paper_001, paper_004};
use serde_json::Value;

/// Series with points of ours: neither the paper's nor a profile's, nor what is said of single clients or follows from a device (Figures 2 and 4 of
/// paper 000).
fn ours(report: &Report) -> Vec<String> {
    let series = report.figures.iter().flat_map(|f| f.shown.series.iter().map(move |s| (&f.place, s)));
    let series = series.filter(|(place, _)| report.name != "paper-000" || !["Fig. 2", "Fig. 4"].contains(&place.as_str()));
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

/// Raw data of the tests.
fn raw(name: &str) -> Value {
    let raw = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("json");
    serde_json::from_slice(&fs::read(&raw).expect("raw data")).expect("JSON")
}

/// The report of an experiment on raw data.
fn on(name: &str, raw: &Value) -> Report {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(format!("dormouse-drawn-{name}-{process}-{number}.json"));
    fs::write(&file, raw.to_string()).expect("written");
    let context = Context { file: Some(file.clone()), ..Context::default() };
    let report = (find(name).expect("it is listed").run)(&context).expect("a report");
    fs::remove_file(&file).expect("removed");
    report
}

/// Reports on raw data with all of their rounds, and with one too few.
fn both(name: &str, raw: &Value) -> [Report; 2] {
    let mut few = raw.clone();
    for sample in few["samples"].as_array_mut().expect("samples") {
        sample["rounds"].as_array_mut().expect("rounds").truncate(4);
    }
    [on(name, raw), on(name, &few)]
}

/// The same of paper 000, where clients take the place of rounds.
fn clients() -> [Report; 2] {
    let out = std::env::temp_dir().join(format!("dormouse-drawn-clients-{}.json", std::process::id()));
    let context = Context { threads: 2, clients: Some(20), seed: 3, out: Some(out.clone()), ..Context::default() };
    let all = (find("paper-000").expect("it is listed").run)(&context).expect("it runs");
    let mut few: Value = serde_json::from_slice(&fs::read(&out).expect("raw data")).expect("JSON");
    fs::remove_file(&out).expect("removed");
    few["samples"].as_array_mut().expect("samples").truncate(4);
    [all, on("paper-000", &few)]
}

#[test]
fn what_was_measured_too_seldom_is_not_drawn() {
    let few = |mut results: dormouse_lab::results::Results| {
        results.samples.iter_mut().for_each(|s| s.rounds.truncate(4));
        results
    };
    let streams = [made::streams(false), few(made::streams(false))].map(|r| paper_001::report(&r));
    let settings = [campaign(), few(campaign())].map(|r| paper_004::report(&r));
    let measured = ["paper-000-live", "paper-002", "paper-003"].map(|name| both(name, &raw(name)));
    // Where the processor is emulated, nothing is drawn anyhow.
    let mut l2tp = raw("paper-001-l2tp");
    l2tp["machine"]["cpu"] = "an invented processor".into();
    let others = [streams, settings, clients(), both("paper-001-l2tp", &l2tp)];
    for [all, few] in others.into_iter().chain(measured) {
        assert!(!ours(&all).is_empty(), "{}", all.name);
        assert_eq!(ours(&few), Vec::<String>::new(), "{}", few.name);
        let none = |finding: Option<Finding>| finding.is_none_or(|f| f == Finding::NotMeasurable);
        assert!(few.claims.iter().all(|c| none(c.finding)), "{:#?}", few.claims);
    }
}

/// Every experiment is looked at above, or has no figure.
#[test]
fn no_experiment_with_figures_is_left_out() {
    let looked_at = [
        "paper-000",
        "paper-000-live",
        "paper-001",
        "paper-001-l2tp",
        "paper-002",
        "paper-003",
        "paper-003-cost",
        "paper-003-handoff",
        "paper-004",
    ];
    let mut names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
    names.sort_unstable();
    assert_eq!(names, looked_at);
    assert!(on("paper-003-cost", &raw("paper-003-cost")).figures.is_empty());
    let mut handoff = raw("paper-003");
    (handoff["experiment"], handoff["samples"]) = ("paper-003-handoff".into(), Value::Array(Vec::new()));
    assert!(on("paper-003-handoff", &handoff).figures.is_empty());
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
