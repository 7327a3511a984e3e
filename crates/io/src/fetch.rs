//! Fetching by HTTP, beside the loop: CRLs and OCSP answers, which are signed and so need no TLS. Owns the bounds on how much, how long
//! and how many at once. Each runs in a thread of its own, which has given up every capability before it reads a byte of a stranger; the
//! loop never waits. Must never judge what came.

use crate::bell::Bell;
use crate::privileges;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use ureq::Agent;

/// Largest content that is taken, in bytes.
pub const MOST: u64 = 16 << 20;
/// From the first look at the name to the last byte.
const LIMIT: Duration = Duration::from_secs(20);
const AT_ONCE: usize = 4;
/// Orders that wait; further ones fail at once.
const WAITING: usize = 1024;
const REDIRECTS: u32 = 3;

/// What is to be fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Names it in the answer.
    pub id: u64,
    /// `http://...`
    pub url: String,
    /// By POST, as `application/ocsp-request`; `None`: by GET.
    pub body: Option<Vec<u8>>,
}

/// What came of it: the name of the order, and the content, or why there is none.
pub type Fetched = (u64, Result<Vec<u8>, String>);

/// See the module's documentation. Readable when something has come.
#[derive(Debug)]
pub struct Fetcher {
    waiting: VecDeque<Wanted>,
    running: usize,
    sender: Sender<Fetched>,
    receiver: Receiver<Fetched>,
    /// Rings when something has come, also from the loop itself: what is refused.
    bell: Bell,
}

impl Fetcher {
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { waiting: VecDeque::new(), running: 0, sender, receiver, bell: Bell::new()? })
    }

    /// Fetches it, when its turn comes; [`Fetcher::take`] has what came of it.
    pub fn fetch(&mut self, wanted: Wanted) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back(wanted);
            self.start();
        } else {
            self.running += 1;
            self.answer(wanted.id, Err("too much is being fetched already".to_owned()));
        }
    }

    fn answer(&self, id: u64, result: Result<Vec<u8>, String>) {
        answer(&self.sender, &self.bell, id, result);
    }

    fn start(&mut self) {
        while self.running < AT_ONCE
            && let Some(wanted) = self.waiting.pop_front()
        {
            self.running += 1;
            let (id, sender, bell) = (wanted.id, self.sender.clone(), self.bell.clone());
            let work = move || answer(&sender, &bell, wanted.id, get(&wanted));
            if let Err(error) = std::thread::Builder::new().name("fetch".to_owned()).spawn(work) {
                self.answer(id, Err(error.to_string()));
            }
        }
    }

    /// The next answer, if one has come: call it until there is none.
    pub fn take(&mut self) -> Option<Fetched> {
        self.bell.clear();
        let (id, result) = self.receiver.try_recv().ok()?;
        self.running = self.running.saturating_sub(1);
        self.start();
        Some((id, result))
    }
}

crate::as_fd!(Fetcher, bell);

fn answer(sender: &Sender<Fetched>, bell: &Bell, id: u64, result: Result<Vec<u8>, String>) {
    // The loop may have ended meanwhile.
    if sender.send((id, result)).is_ok() {
        bell.ring();
    }
}

fn get(wanted: &Wanted) -> Result<Vec<u8>, String> {
    privileges::renounce_in_thread().map_err(|e| format!("giving up capabilities: {e}"))?;
    let config = Agent::config_builder()
        .timeout_global(Some(LIMIT))
        .max_redirects(REDIRECTS)
        .user_agent("dormouse")
        .build();
    let agent = Agent::new_with_config(config);
    let answer = match &wanted.body {
        None => agent.get(&wanted.url).call(),
        Some(body) => agent
            .post(&wanted.url)
            .header("content-type", "application/ocsp-request")
            .header("accept", "application/ocsp-response")
            .send(body.as_slice()),
    };
    let read = |mut answer: ureq::http::Response<ureq::Body>| {
        answer.body_mut().with_config().limit(MOST).read_to_vec()
    };
    answer.and_then(read).map_err(|e| e.to_string())
}
