//! Figures draw only what claims accept: nothing of ours from too few rounds, or of what a claim leaves out.

mod common;
#[path = "common/streams.rs"]
mod made;

use std::fs;
use std::path::Path;

use common::{campaign, sample};
use dormouse_lab::judge::Finding;
use dormouse_lab::results::esp::{Encapsulation, Engine, What};
use dormouse_lab::{Context, Report, find, paper_001, paper_004};
use serde_json::Value;

/// Series with points of ours: neither the paper's nor a profile's.
fn ours(report: &Report) -> Vec<String> {
    let series = report.figures.iter().flat_map(|f| f.shown.series.iter().map(move |s| (&f.place, s)));
    let ours = series.filter(|(_, s)| !s.name.starts_with("paper") && !s.name.ends_with(", profile"));
    ours.filter(|(_, s)| !s.points.is_empty()).map(|(place, s)| format!("{place}: {}", s.name)).collect()
}

/// The points of a series, by what each begins with.
fn points(report: &Report, place: &str, name: &str) -> Vec<f64> {
    let figure = report.figures.iter().find(|f| f.place == place).expect(place);
    let series = figure.shown.series.iter().filter(|s| s.name == name);
    series.flat_map(|s| &s.points).map(|(x, _)| *x).collect()
}

/// Reports on raw data with all of their rounds, and with one too few.
fn both(name: &str) -> [Report; 2] {
    let raw = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("json");
    let mut few: Value = serde_json::from_slice(&fs::read(&raw).expect("raw data")).expect("JSON");
    for sample in few["samples"].as_array_mut().expect("samples") {
        sample["rounds"].as_array_mut().expect("rounds").truncate(4);
    }
    let file = std::env::temp_dir().join(format!("dormouse-drawn-{name}-{}.json", std::process::id()));
    fs::write(&file, few.to_string()).expect("written");
    let run = |file: &Path| {
        let context = Context { file: Some(file.to_owned()), ..Context::default() };
        (find(name).expect("it is listed").run)(&context).expect("a report")
    };
    let reports = [run(&raw), run(&file)];
    fs::remove_file(&file).expect("removed");
    reports
}

#[test]
fn what_was_measured_too_seldom_is_not_drawn() {
    let few = |mut results: dormouse_lab::results::Results| {
        results.samples.iter_mut().for_each(|s| s.rounds.truncate(4));
        results
    };
    let streams = [made::streams(false), few(made::streams(false))].map(|r| paper_001::report(&r));
    let settings = [campaign(), few(campaign())].map(|r| paper_004::report(&r));
    for [all, few] in [streams, settings, both("paper-000-live"), both("paper-003")] {
        assert!(!ours(&all).is_empty(), "{}", all.name);
        assert_eq!(ours(&few), Vec::<String>::new(), "{}", few.name);
        assert!(few.claims.iter().all(|c| c.finding == Some(Finding::NotMeasurable)), "{:#?}", few.claims);
    }
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
