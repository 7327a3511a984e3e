//! The HTML report: self-contained, complete, and drawn by a real browser where one is installed.

mod common;

use common::{Temporary, options};
use dormouse_energy::WakeOn;
use dormouse_energy::profile::Profile;
use dormouse_report::Chart;
use dormouse_trace::analyse::{account, survey_all};
use dormouse_trace::clients::{Client, Directory};
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::{Figures, Questions};
use dormouse_trace::report::json::{Accounting, Report};
use dormouse_trace::report::page::{ON_PAGE, ON_TERMINAL, document};

/// The report and all charts of a recording.
fn drawn(csv: &[u8], wake_on: WakeOn) -> (Report, Vec<Chart>) {
    let file = Temporary::with("page.csv", csv);
    let inputs = [file.input()];
    let mut options = options();
    options.settings.wake_on = wake_on;
    let survey = survey_all(&inputs, None, options.limits, 2, &|_, _| ());
    let (directory, rule) = Directory::find(&survey.sites, &[]);
    let model = Profile::shipped("laptop-000").expect("shipped").model().expect("complete");
    let questions = Questions::new(options.settings, model, directory.clients());
    let watch = |client: &Client| Figures::new(&questions, client);
    let results = account(&inputs, survey, &directory, rule, &options, &|_, _| (), &watch, &mut |_| ())
        .expect("an analysis");
    (Report::new(&results, Accounting::of(&options)), charts::all(&results, &questions))
}

/// A page about forty synthetic clients, and its table.
fn page() -> (String, String) {
    let mut csv = Vec::new();
    write::csv(Population::new(Recipe { clients: 40, days: 1, seed: 5, start: 1_700_006_400 }), &mut csv)
        .expect("memory");
    let (report, charts) = drawn(&csv, WakeOn::All);
    assert!(report.synthetic && serde_json::to_string(&report).expect("JSON").contains("\"synthetic\":true"));
    let page = document(&report, charts, "a test", ON_PAGE).html().expect("a page");
    (page, document(&report, Vec::new(), "a test", ON_TERMINAL).text())
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_says_that_traffic_is_synthetic() {
    let (page, table) = page();
    for outside in ["src=", "url(", "@import", "<script", "<link", "href=\"http", "<iframe", "<img"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("Synthetic traffic") && table.starts_with("SYNTHETIC"));
    for id in [
        "timeline-1",
        "idle-periods",
        "policies",
        "optimum-load-1",
        "optimum-load-10",
        "optimum-load-20",
        "break-even",
        "scheduled",
        "thresholds",
        "misjudged",
        "missed",
        "lost",
    ] {
        assert!(page.contains(&format!("<figure id=\"{id}\">")), "{id}");
        assert!(page.contains(&format!("download=\"{id}.csv\"")), "{id}");
    }
    assert_eq!(page.matches("<figure").count(), page.matches("<svg").count());
    assert!(!page.contains("NaN") && !page.contains("inf"), "every number is one");
}

/// A client that sends every 100 s and receives in between: where only what it sends wakes, its silences are twice as long, in each chart.
#[test]
fn every_chart_follows_the_rule_of_waking() {
    let mut csv = "client,time,bytes,direction\n".to_owned();
    for n in 0..60 {
        csv += &format!("a,{},60,out\na,{},60,in\n", 100 * n, 100 * n + 50);
    }
    let [all, outgoing] = [WakeOn::All, WakeOn::Outgoing].map(|wake_on| drawn(csv.as_bytes(), wake_on).1);
    let named = |charts: &[Chart], id: &str, series: &str| -> Vec<(f64, f64)> {
        let chart = charts.iter().find(|c| c.id == id).expect(id);
        chart.series.iter().find(|s| s.name == series).expect(series).points.clone()
    };
    for (charts, seconds) in [(&all, 50.0), (&outgoing, 100.0)] {
        let stems = named(charts, "timeline-1", "idle period");
        assert!(stems.len() >= 59 && stems.iter().all(|(_, length)| *length == seconds), "{stems:?}");
        // All of them are in one bucket, which ends above their length.
        let periods = named(charts, "idle-periods", "idle periods");
        let (end, part) = *periods.last().expect("points");
        assert!(part == 100.0 && end > seconds && end < 1.2 * seconds, "{periods:?}");
    }
    let ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, outgoing.iter().map(|c| c.id.as_str()).collect::<Vec<_>>());
    // Break-even times are the device's; losses are under this rule in both.
    for (a, b) in all
        .iter()
        .zip(&outgoing)
        .filter(|(c, _)| !["break-even", "lost", "sessions", "missed"].contains(&c.id.as_str()))
    {
        let points = |c: &Chart| c.series.iter().map(|s| s.points.clone()).collect::<Vec<_>>();
        assert_ne!(points(a), points(b), "{}", a.id);
    }
}

#[test]
fn names_of_clients_cannot_break_the_page() {
    let csv = "client,time,bytes,direction\n<script>alert(1)</script>,1,60,out\n<script>alert(1)</script>,90,60,out\n";
    let file = Temporary::with("names.csv", csv.as_bytes());
    let report = common::report(&[file.input()], &options());
    let page = document(&report, Vec::new(), "a test", ON_PAGE).html().expect("a page");
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
}

#[test]
fn a_browser_draws_the_page() {
    let Some(looks) = dormouse_testbed::browser::validate("the page of trace", &page().0) else { return };
    for look in looks {
        // What the parser made of it: every figure with its drawing, nothing thrown out of place.
        let dom = look.document;
        assert_eq!(dom.matches("<figure id=").count(), dom.matches("</svg></div></figure>").count());
        assert!(dom.matches("<figure id=").count() >= 12);
        assert!(dom.contains("</footer>"));
    }
}
