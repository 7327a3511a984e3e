//! `dormouse page`: what `dormouse top` shows, as a page in a browser of this machine. Owns what the page knows, which a thread of its own brings from the daemon,
//! and the secret in its address; must never change anything, nor listen where another machine could ask.
//!
//! It is read by the one who was shown its address: other users of this machine do not know the secret, and web sites do not either; those that have their own
//! name lead here are refused by the server (`dormouse_io::web`), which also bounds what clients send and how long they take.

mod draw;
mod timeline;

use crate::client::Client;
use crate::top::model::{Column, Model};
use crate::top::{News, ask};
use clap::Args;
use dormouse_control::{Error, ErrorKind, ExitCode};
use dormouse_crypto::ct_eq;
use dormouse_io::clock::BootClock;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::web::{Answer, Page, Web};
use dormouse_sansio::{Entropy as _, Instant};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use timeline::Timeline;

/// The daemon is asked so often.
const INTERVAL: Duration = Duration::from_secs(2);
/// Bytes of the secret.
const SECRET: usize = 16;
/// Of the page: nothing but its own style, no script, no form, in no frame of another page.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Show sessions, sleepers, traffic, load and the radio on a page in a browser
///
/// Serves a read-only page for browsers of this machine until it is stopped, and prints its address. The address holds a secret: who does not know it is refused. The page renews
/// itself every five seconds. At a device it shows the radio, its energy, what woke it and when it slept; at a gateway its sessions and those that sleep.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Listen at this loopback address and port; port 0: one that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// What the page knows.
#[derive(Debug)]
struct Known {
    model: Model,
    timeline: Timeline,
    /// When the daemon answered last.
    answered: Option<Instant>,
}

impl Known {
    fn new() -> Self {
        Self { model: Model::new(Column::In, String::new()), timeline: Timeline::default(), answered: None }
    }

    fn take(&mut self, now: Instant, news: News) {
        match news {
            News::Status(status) => {
                if let Some(sleep) = &status.sleep {
                    self.timeline.note(now, sleep);
                }
                self.answered = Some(now);
                self.model.status(now, *status);
            }
            News::Page(page) => self.model.page(now, &page),
            News::Trouble(error) => {
                self.timeline.lost();
                self.model.trouble = Some(error.message);
            }
        }
    }
}

pub(crate) fn run(args: &PageArgs, socket: &Path, json: bool) -> Result<ExitCode, Error> {
    if json {
        let error = Error::new(ErrorKind::Request, "page is for people");
        return Err(error.with_change("dormouse --json status, or dormouse --json watch"));
    }
    let at = args.listen;
    if !at.ip().is_loopback() {
        let error = Error::new(
            ErrorKind::Request,
            format!("{at} is not a loopback address: the page is for browsers of this machine alone"),
        );
        return Err(error.with_change("--listen 127.0.0.1:0 or --listen [::1]:0"));
    }
    let failed = |what: &dyn std::fmt::Display| Error::new(ErrorKind::Other, format!("the page: {what}"));
    let web = Web::tcp(at, Vec::new()).map_err(|e| failed(&e))?;
    let at = web.address().unwrap_or(at);
    let mut secret = [0; SECRET];
    OsEntropy.fill(&mut secret);
    let secret = hex::encode(secret);

    let known = Arc::new(Mutex::new(Known::new()));
    let (sender, news) = sync_channel(1);
    let socket = socket.to_owned();
    // A daemon that is not there yet is shown as such, and looked for again.
    let client = Client::connect(&socket).ok();
    std::thread::spawn(move || ask(client, &socket, INTERVAL, &sender));
    let told = Arc::clone(&known);
    std::thread::spawn(move || keep(&told, &news));

    // The page is served also if its output is closed.
    let _gone = writeln!(std::io::stdout(), "http://{at}/{secret}/");
    let error = web.serve(|path| answer(&known, &secret, path));
    Err(failed(&error))
}

fn keep(known: &Mutex<Known>, news: &Receiver<News>) {
    while let Ok(one) = news.recv() {
        lock(known).take(BootClock::now(), one);
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is at a path; without the secret nothing is. How long it takes does not tell how much of the secret was right.
fn answer(known: &Mutex<Known>, secret: &str, path: &str) -> Answer {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (given, rest) = (parts.next().unwrap_or_default(), parts.next());
    if !ct_eq(given.as_bytes(), secret.as_bytes()) {
        return Answer::NotFound;
    }
    match rest {
        Some("") => Answer::Page(Page {
            kind: "text/html; charset=utf-8",
            policy: POLICY,
            body: draw::page(&lock(known), BootClock::now()).into_bytes(),
        }),
        Some("style.css") => Answer::Page(Page {
            kind: "text/css; charset=utf-8",
            policy: "default-src 'none'",
            body: draw::STYLE.into(),
        }),
        _ => Answer::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_without_the_whole_secret() {
        let known = Mutex::new(Known::new());
        let found = |path: &str| matches!(answer(&known, "5ec1e7", path), Answer::Page(_));
        assert!(found("/5ec1e7/") && found("/5ec1e7/style.css"));
        for path in
            ["", "/", "/style.css", "/5ec1e/", "/5ec1e8/", "/5ec1e77/", "/5ec1e7", "/5ec1e7/x", "/x/5ec1e7/"]
        {
            assert!(!found(path), "{path}");
        }
    }

    #[test]
    fn a_daemon_that_goes_and_comes_back_is_shown_so() {
        let mut known = Known::new();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let trouble = || News::Trouble(Error::new(ErrorKind::NoDaemon, "no daemon answers at <here>"));
        known.take(at(0), trouble());
        let page = draw::page(&known, at(1));
        assert!(page.contains("no daemon answers at &lt;here&gt;"), "{page}");
        known.take(at(2), News::Status(Box::default()));
        assert!(!draw::page(&known, at(2)).contains("no daemon"));
        known.take(at(3), trouble());
        let page = draw::page(&known, at(62));
        assert!(page.contains("no daemon answers") && page.contains("what it said 1m00s ago"), "{page}");
    }
}
