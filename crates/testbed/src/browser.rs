//! A real browser, to see what it makes of a page of ours. Owns its profile and the file it reads; both go with the call.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The document that a headless browser builds of the page `html`, as HTML again; nothing, and a word on standard error, where
/// no browser is installed.
///
/// # Errors
/// If the browser does not run, or fails.
pub fn document(html: &str) -> Result<Option<String>> {
    let runs = |program: &&str| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|s| s.success())
    };
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs) else {
        eprintln!("skipped: no chromium is installed");
        return Ok(None);
    };
    let name = format!("dormouse-browser-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let scratch = Scratch(std::env::temp_dir().join(name));
    fs::create_dir_all(&scratch.0).with_context(|| scratch.0.display().to_string())?;
    let page = scratch.0.join("page.html");
    fs::write(&page, html)?;
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg("--dump-dom")
        .arg(format!("--user-data-dir={}", scratch.0.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("starting {browser}"))?;
    ensure!(output.status.success(), "{browser} ended with {}", output.status);
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}
