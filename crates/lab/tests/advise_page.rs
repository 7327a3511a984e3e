//! The adviser's page: self-contained, complete, unbreakable by names, and drawn by a real browser where one is installed.

mod common;

use common::campaign;
use dormouse_lab::advise::{Options, advise, page};

fn html() -> String {
    let advice = advise(&campaign(), Options::default()).expect("advice");
    page::page(&advice).html().expect("a page")
}

#[test]
fn the_page_has_everything_and_needs_nothing_from_elsewhere() {
    let page = html();
    for outside in ["src=", "url(", "@import", "<script", "<link", "href=\"http", "<iframe", "<img"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for section in ["recommendation", "suites", "papers", "rules", "not-measured"] {
        assert!(page.contains(&format!("<section id=\"{section}\">")), "{section}");
    }
    for figure in ["pareto-cpu", "pareto-energy"] {
        assert!(page.contains(&format!("<figure id=\"{figure}\">")), "{figure}");
    }
    assert!(page.contains("proposals = [&quot;aes128gcm16-prfsha256"));
    assert!(!page.contains("NaN") && !page.contains("inf]"), "every number is one");
    assert!(page.contains("energy estimated from CPU time, nJ per byte"), "no meter said so");
}

#[test]
fn words_of_the_file_cannot_break_the_page() {
    let mut results = campaign();
    results.machine.cpu = "<script>alert(1)</script>".to_owned();
    let advice = advise(&results, Options::default()).expect("advice");
    let page = page::page(&advice).html().expect("a page");
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    assert!(page.contains("mask &lt;here&gt;"));
}

#[test]
fn a_browser_draws_the_page() {
    let Some(looks) = dormouse_testbed::browser::validate("the page of advise", &html()) else { return };
    for look in looks {
        // What the parser made of it: every figure with its drawing, tables closed, nothing thrown out of place.
        let dom = look.document;
        assert_eq!(dom.matches("<figure id=").count(), 2);
        assert_eq!(dom.matches("</svg></div></figure>").count(), 2);
        assert_eq!(dom.matches("<table").count(), dom.matches("</table>").count());
        assert!(dom.contains("</footer>"));
    }
}
