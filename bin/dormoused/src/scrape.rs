//! Where Prometheus reads the daemon's numbers (`daemon.metrics`). Owns the thread that serves it, beside the loop: the loop is asked for the numbers when a
//! whole request has come, and once a second at most, however many ask. Must never hold the loop up: it hands them over and goes on.

use crate::sheet::{KIND, Sheet};
use anyhow::{Context, Result};
use dormouse_io::bell::Bell;
use dormouse_io::beside;
use dormouse_io::clock::BootClock;
use dormouse_io::web::{Answer, Page, Web};
use dormouse_node::config::file::{Daemon, Metrics};
use dormouse_sansio::Instant;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Numbers that are so old are shown once more.
const FRESH: Duration = Duration::from_secs(1);
/// A loop that has had no time for so long is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens what the configuration names, with the rights of root.
///
/// # Errors
/// If it cannot be listened there.
pub(crate) fn open(settings: &Daemon) -> Result<Option<Web>> {
    let group = Some(settings.metrics_group.as_str()).filter(|group| !group.is_empty());
    let web = match &settings.metrics {
        Metrics::Off => return Ok(None),
        Metrics::Tcp(at) => Web::tcp(*at, settings.metrics_from.clone()),
        Metrics::Unix(path) => Web::unix(path, group, ("daemon.metrics", "daemon.metrics_group")),
    };
    web.map(Some).context("daemon.metrics")
}

/// The loop's side: readable when numbers are asked for.
#[derive(Debug)]
pub(crate) struct Scrapes {
    bell: Bell,
    numbers: SyncSender<Sheet>,
}

impl Scrapes {
    /// Begins to serve.
    ///
    /// # Errors
    /// If there are no descriptors or threads left.
    pub(crate) fn new(web: Web) -> Result<Self> {
        let bell = Bell::new()?;
        let (numbers, come) = sync_channel(1);
        let mut asker = Asker { bell: bell.clone(), come, shown: None };
        beside::spawn("metrics", move || {
            let error = web.serve(|path| if path == "/metrics" { asker.answer() } else { Answer::NotFound });
            tracing::error!(%error, "nothing is shown at daemon.metrics any more");
        })?;
        Ok(Self { bell, numbers })
    }

    /// They were asked for; whoever asked may have gone meanwhile.
    pub(crate) fn hand_over(&self, sheet: Sheet) {
        self.bell.clear();
        if let Err(TrySendError::Disconnected(_)) = self.numbers.try_send(sheet) {
            tracing::debug!("nobody asks for numbers any more");
        }
    }
}

impl AsFd for Scrapes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The thread's side.
struct Asker {
    bell: Bell,
    come: Receiver<Sheet>,
    shown: Option<(Instant, Vec<u8>)>,
}

impl Asker {
    fn answer(&mut self) -> Answer {
        let now = BootClock::now();
        let shown = self.shown.as_ref().filter(|(at, _)| now.saturating_since(*at) < FRESH);
        let body = match shown {
            Some((_, text)) => text.clone(),
            None => {
                // What came too late for an earlier request is old.
                let _late = self.come.try_recv();
                self.bell.ring();
                let Ok(sheet) = self.come.recv_timeout(PATIENCE) else {
                    return Answer::NotNow("the daemon has no time now".to_owned());
                };
                let text = match sheet.text() {
                    Ok(text) => text.into_bytes(),
                    Err(e) => return Answer::NotNow(e.to_string()),
                };
                self.shown = Some((BootClock::now(), text.clone()));
                text
            }
        };
        Answer::Page(Page { kind: KIND, policy: "default-src 'none'", body })
    }
}
