//! The HTML report: self-contained, complete, and drawn by a real browser where one is installed.

mod common;

use common::{Temporary, options};
use dormouse_energy::profile::Profile;
use dormouse_trace::analyse::{account, survey_all};
use dormouse_trace::clients::{Client, Directory};
use dormouse_trace::generate::{Population, Recipe, write};
use dormouse_trace::report::charts;
use dormouse_trace::report::figures::{Figures, Questions};
use dormouse_trace::report::json::{Accounting, Report};
use dormouse_trace::report::page::{ON_PAGE, ON_TERMINAL, document};

/// A page about forty synthetic clients, and its table.
fn page() -> (String, String) {
    let mut csv = Vec::new();
    write::csv(Population::new(Recipe { clients: 40, days: 1, seed: 5, start: 1_700_006_400 }), &mut csv)
        .expect("memory");
    let file = Temporary::with("page.csv", &csv);
    let inputs = [file.input()];
    let options = options();
    let survey = survey_all(&inputs, None, options.limits, 2, &|_, _| ());
    let (directory, rule) = Directory::find(&survey.sites, &[]);
    let model = Profile::shipped("laptop-000").expect("shipped").model().expect("complete");
    let questions = Questions::new(options.settings, model, directory.clients());
    let watch = |client: &Client| Figures::new(&questions, client);
    let results = account(&inputs, survey, &directory, rule, &options, &|_, _| (), &watch, &mut |_| ())
        .expect("an analysis");
    let accounting = Accounting::of(&options);
    let report = Report::new(&results, accounting);
    assert!(report.synthetic && serde_json::to_string(&report).expect("JSON").contains("\"synthetic\":true"));
    let charts = charts::all(&results, &questions);
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
