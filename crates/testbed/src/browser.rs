//! A real browser, to see what it makes of a page of ours, as wide as a phone and as a desk. Owns its process, its profile and the file it
//! reads; all go with the call. It is spoken to by the DevTools protocol over a pipe: no port is opened, nothing is fetched.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::require::{Need, require};

/// Pixels of the windows: of a phone and of a desk.
pub const WIDTHS: [u32; 2] = [390, 1_280];
/// A browser that says nothing for so many milliseconds has failed.
const PATIENCE: u16 = 60_000;
const LOOK: &str = include_str!("look.js");

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A page in a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// Of the window.
    pub width: u32,
    /// What leaves the window or its drawing, is cut off, is too small to read or stands on something else; errors and warnings.
    pub faults: Vec<String>,
    /// What is wider than its place and moves inside of it.
    pub sideways: Vec<String>,
    /// What the parser made of the page, as HTML again.
    pub document: String,
}

/// Looks at the page `html` in a window of each of [`WIDTHS`]. Nothing where no browser is installed: then it is said that `test` was skipped.
///
/// # Panics
/// If the page has a fault or the browser fails; and as [`require`], where nothing may be skipped.
#[must_use]
pub fn validate(test: &str, html: &str) -> Option<Vec<Look>> {
    validated(test, Source::Text(html))
}

/// As [`validate`], the page that a server of this machine has at `url`.
///
/// # Panics
/// As [`validate`].
#[must_use]
pub fn validate_at(test: &str, url: &str) -> Option<Vec<Look>> {
    validated(test, Source::At(url))
}

/// Where a page comes from.
enum Source<'a> {
    Text(&'a str),
    At(&'a str),
}

fn validated(test: &str, source: Source<'_>) -> Option<Vec<Look>> {
    let looks = look(test, source).unwrap_or_else(|error| panic!("{test}: {error:#}"))?;
    for look in &looks {
        assert!(look.faults.is_empty(), "{test}, {} pixels: {:#?}", look.width, look.faults);
    }
    Some(looks)
}

fn look(test: &str, source: Source<'_>) -> Result<Option<Vec<Look>>> {
    let known = ["chromium", "chromium-browser", "google-chrome"];
    let Some(program) = known.into_iter().find(|program| Need::Program(program).missing().is_none()) else {
        let _ = require(test, &[Need::Program(known[0])]);
        return Ok(None);
    };
    let scratch = Scratch::new()?;
    let place = match source {
        Source::Text(html) => {
            let page = scratch.0.join("page.html");
            fs::write(&page, html)?;
            format!("file://{}", page.display())
        }
        Source::At(url) => url.to_owned(),
    };
    let mut browser = Browser::start(program, scratch)?;
    let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }))?;
    let attach = json!({ "targetId": target["targetId"], "flatten": true });
    browser.session = browser.ask("Target.attachToTarget", attach)?["sessionId"].as_str().map(str::to_owned);
    for domain in ["Page", "Runtime", "Log"] {
        browser.ask(&format!("{domain}.enable"), json!({}))?;
    }
    WIDTHS.into_iter().map(|width| browser.look(&place, width)).collect::<Result<_>>().map(Some)
}

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dormouse-browser-{}-{n}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Browser {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    /// Of an answer that has not come whole.
    read: Vec<u8>,
    asked: u64,
    /// With whom is spoken: the page; at first the browser itself.
    session: Option<String>,
    /// Errors and warnings since the last look.
    complaints: Vec<String>,
    scratch: Scratch,
}

impl Browser {
    fn start(program: &str, scratch: Scratch) -> Result<Self> {
        let log = fs::File::create(scratch.0.join("log"))?;
        // It reads from descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--remote-debugging-pipe", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", scratch.0.join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let (to, from) = child.stdin.take().zip(child.stdout.take()).context("its pipes")?;
        let (read, complaints) = (Vec::new(), Vec::new());
        Ok(Self { child, to, from, read, asked: 0, session: None, complaints, scratch })
    }

    fn look(&mut self, place: &str, width: u32) -> Result<Look> {
        self.complaints.clear();
        let window = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask("Emulation.setDeviceMetricsOverride", window)?;
        let gone = self.ask("Page.navigate", json!({ "url": place }))?;
        ensure!(gone["errorText"].is_null(), "{place}: {gone}");
        let question = json!({ "expression": LOOK, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.ask("Runtime.evaluate", question)?;
        ensure!(answer["exceptionDetails"].is_null(), "looking at {place}: {answer}");
        let seen = answer["result"]["value"].take();
        let list = |name: &str| -> Result<Vec<String>> { Ok(serde_json::from_value(seen[name].clone())?) };
        let (mut faults, sideways) = (list("faults")?, list("sideways")?);
        faults.append(&mut self.complaints);
        let document = seen["document"].as_str().unwrap_or_default().to_owned();
        Ok(Look { width, faults, sideways, document })
    }

    /// Asks and waits for the answer; an event that comes meanwhile is kept if it is a complaint.
    fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.asked += 1;
        let mut question = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            question["sessionId"] = session.as_str().into();
        }
        let sent = self.to.write_all(format!("{question}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.with_context(|| self.log())?;
        loop {
            let mut told = self.next()?;
            if told["id"] == self.asked {
                ensure!(told["error"].is_null(), "{method}: {told}");
                return Ok(told["result"].take());
            }
            let params = &told["params"];
            let level = match told["method"].as_str() {
                Some("Runtime.consoleAPICalled") => &params["type"],
                Some("Log.entryAdded") => &params["entry"]["level"],
                Some("Runtime.exceptionThrown") => &json!("error"),
                _ => continue,
            };
            if ["error", "warning", "assert"].iter().any(|bad| level == bad) {
                self.complaints.push(params.to_string());
            }
        }
    }

    /// The next thing that it says.
    fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == 0) {
                let said: Vec<u8> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&said[..end]).context("what the browser says");
            }
            let mut ready = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
            let n = poll(&mut ready, PollTimeout::from(PATIENCE))?;
            let mut piece = [0; 1 << 16];
            let n = if n == 0 { 0 } else { self.from.read(&mut piece)? };
            if n == 0 {
                bail!("the browser has ended, or hangs: {}", self.log());
            }
            self.read.extend(&piece[..n]);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.0.join("log")).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
