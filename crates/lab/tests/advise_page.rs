//! The adviser's page: self-contained, complete, unbreakable by names, and drawn by a real browser where one is installed.

mod common;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::campaign;
use dormouse_lab::advise::{Options, advise, page};

fn html() -> String {
    let results = campaign();
    let advice = advise(&results, Options::default()).expect("advice");
    page::render(&advice, &results).expect("a page")
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
    // A heat map has a row for each suite and a column for each size.
    assert!(page.contains("<th>180</th><th>576</th><th>1024</th><th>1420</th>"));
    assert_eq!(page.matches("<tr><td>chacha20poly1305</td><td style").count(), 1);
    assert!(page.contains("proposals = [&quot;aes128gcm16-prfsha256"));
    assert!(!page.contains("NaN") && !page.contains("inf]"), "every number is one");
}

#[test]
fn words_of_the_file_cannot_break_the_page() {
    let mut results = campaign();
    results.machine.cpu = "<script>alert(1)</script>".to_owned();
    let advice = advise(&results, Options::default()).expect("advice");
    let page = page::render(&advice, &results).expect("a page");
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    assert!(page.contains("mask &lt;here&gt;"));
}

/// A path that goes with the test, whatever is there.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("dormouse-advise-{}-{name}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_browser_draws_the_page() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|b| {
        let quiet = Command::new(b).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|s| s.success())
    }) else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let (file, profile) = (Temporary::new("page.html"), Temporary::new("browser"));
    std::fs::write(&file.0, html()).expect("written");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.0.display()))
        .arg(format!("file://{}", file.0.display()))
        .stderr(Stdio::null())
        .output()
        .expect("the browser runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    // What the parser made of it: every figure with its drawing, tables closed, nothing thrown out of place.
    assert_eq!(dom.matches("<figure id=").count(), 2);
    assert_eq!(dom.matches("</svg></figure>").count(), 2);
    assert_eq!(dom.matches("<table").count(), dom.matches("</table>").count());
    assert!(dom.contains("</footer>"));
}
