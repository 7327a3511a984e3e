//! The pages of the demo and of experiments, looked at by a real browser as wide as a phone and as a desk: nothing leaves the window, is cut
//! off or too small to read.

mod common;
#[path = "common/streams.rs"]
mod made;

use std::path::Path;

use dormouse_lab::demo::{self, Point};
use dormouse_lab::results::format::Machine;
use dormouse_lab::results::{Figures, Results, Sample};
use dormouse_lab::{Context, Report, find, paper_001, paper_004};
use dormouse_report::Document;
use dormouse_testbed::browser::{Look, validate};
use serde_json::json;

/// An hour as the demo measures it: so many joules of 8,244, asleep from some minutes to others, and of 400 packets so many lost.
fn lived(policy: &str, joules: f64, off: &[(f64, f64)], lost: usize) -> Sample<Point> {
    let at: Vec<f64> = (0..400).map(|n| 9.0 * f64::from(n)).collect();
    let mut figures = Figures::default()
        .with("joules", joules)
        .with("always_on_joules", 8_244.0)
        .with("radio_on", 1.0 - off.iter().map(|(a, b)| b - a).sum::<f64>() / 60.0)
        .with("sleeps", off.len() as f64)
        .with("packets", at.len() as f64)
        .with("lost", lost as f64)
        .with("delayed", 12.0)
        .with("proxied", 31.0)
        .with_all("latency", at.iter().map(|s| 1.0 + s / 100.0))
        .with_all("off_since", off.iter().map(|o| 60.0 * o.0))
        .with_all("off_until", off.iter().map(|o| 60.0 * o.1))
        .with_all("sent_out", at.iter().copied().step_by(2))
        .with_all("sent_in", at.iter().copied().skip(1).step_by(2))
        .with_all("lost_in", at.iter().copied().skip(1).take(lost));
    if !off.is_empty() {
        for (name, n) in
            [("wakes.traffic", 11.0), ("wakes.schedule", 2.0), ("rung.held", 12.0), ("rung.full", 1.0)]
        {
            figures = figures.with(name, n);
        }
    }
    let mut sample = Sample::from(Point {
        event: "lives through a working hour".to_owned(),
        policy: Some(policy.to_owned()),
    });
    sample.push(1, figures);
    sample
}

fn hour() -> Results<Point> {
    let mut results = Results::new(Machine::default());
    results.samples = vec![
        lived("never", 8_300.0, &[], 0),
        lived("paper", 7_100.4, &[(3.0, 9.5), (20.0, 31.0)], 2),
        lived("dormouse", 5_151.7, &[(2.0, 12.0), (14.5, 19.0), (19.5, 44.0), (58.0, 60.0)], 3),
    ];
    results.settings = json!({
        "traffic": "synthetic traffic of a model; client 42, from ten to eleven",
        "speed": 90, "joules_from": "profile laptop-000", "late_ms": 25.0,
    });
    results
}

fn page(document: &Document) -> String {
    document.html().expect("a page")
}

#[test]
fn the_demos_page_opens_with_what_sleeping_was_worth() {
    let document = demo::document(&hour(), true).expect("an hour");
    assert!(
        document.lead.contains("5,152 J instead of 8,300 J") && document.lead.contains("37.9 % less"),
        "{}",
        document.lead
    );
    assert!(document.lead.contains("so that 10 hours of battery become 10.4"), "{}", document.lead);
    assert!(document.lead.contains("3 of 400 packets lost") && document.lead.contains("none of 400"));
    assert_eq!(document.lead.matches(". ").count(), 0, "one sentence: {}", document.lead);
    let html = page(&document);
    // (18 + 2.29) / (18 + 2.29 × 5,151.7 / 8,244): the whole device's power, before and after.
    assert!(html.contains("10 hours of battery become 10.4"), "{html}");
    let places: Vec<usize> =
        ["id=\"energy\"", "id=\"timelines\"", "id=\"figures\"", "id=\"words\"", "id=\"made\""]
            .iter()
            .map(|id| html.find(id).unwrap_or_else(|| panic!("no {id}")))
            .collect();
    assert!(places.is_sorted(), "{places:?}");
    // Of what is metered instead, nothing is known of the rest of the device.
    let mut metered = hour();
    metered.settings["joules_from"] = json!("meter battery BAT0");
    let metered = demo::document(&metered, true).expect("an hour");
    assert!(!page(&metered).contains("hours of battery become 1"));
    // More is not less.
    let mut dear = hour();
    dear.samples[2] = lived("dormouse", 9_000.0, &[(1.0, 2.0)], 0);
    let dear = demo::document(&dear, false).expect("an hour");
    assert!(dear.lead.contains("8.4 % more"), "{}", dear.lead);
    let text = document.text();
    assert!(text.contains("Dormouse: radio on 4") && text.contains("woken: traffic"), "{text}");
}

#[test]
fn the_demos_page_needs_no_moving_sideways() {
    let html = page(&demo::document(&hour(), true).expect("an hour"));
    let Some(looks) = validate("the page of demo", &html) else { return };
    for Look { width, sideways, document, .. } in looks {
        assert_eq!(sideways, Vec::<String>::new(), "at {width}");
        // Three times radio, sent, for it and lost.
        assert_eq!(document.matches("</svg>").count(), 12);
    }
}

#[test]
fn reports_can_be_read_on_a_phone() {
    let traffic = Context { threads: 2, clients: Some(20), short: true, seed: 5, ..Context::default() };
    let of_traffic = (find("paper-000").expect("it is listed").run)(&traffic).expect("it runs");
    let made = [paper_001::report(&made::streams(false)), paper_004::report(&common::campaign())];
    let stored =
        ["paper-000-live", "paper-001-l2tp", "paper-002", "paper-003", "paper-003-handoff", "paper-003-cost"];
    let measured = stored.map(|name| -> Report {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let context = Context { file: Some(data.with_extension("json")), ..Context::default() };
        (find(name).expect("it is listed").run)(&context).expect("a report")
    });
    for report in [of_traffic].into_iter().chain(made).chain(measured) {
        let Some(looks) = validate(report.name, &page(&report.document())) else { return };
        for Look { width, sideways, .. } in looks {
            let charts: Vec<&String> = sideways.iter().filter(|e| e.contains("svg")).collect();
            assert!(width == 390 || charts.is_empty(), "{}: {charts:?}", report.name);
        }
    }
}
