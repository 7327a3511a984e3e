//! A model of the store of lineages beside a gateway: it takes its time, and what was not done when its process dies is lost. Owns
//! the queue and the log of what was done; the rules are [`Memory`]'s, whose rows are the disk.

use crate::ends::EPOCH;
use dormouse_ike::ticket::lineage::{Memory, Operation, Outcome};
use dormouse_keying::SaId;
use dormouse_sansio::{Entropy, Instant, Seeded};
use std::collections::VecDeque;
use std::time::Duration;

/// See the module's documentation.
#[derive(Debug)]
pub struct Store {
    queue: VecDeque<(Instant, Operation)>,
    rng: Seeded,
    /// The longest that it takes for one operation; the time of each is drawn.
    pub slow: Duration,
    /// Everything that was done, oldest first, with its outcome.
    pub done: Vec<(Operation, Outcome)>,
}

impl Store {
    pub(crate) fn new(seed: u64) -> Self {
        let (queue, done) = (VecDeque::new(), Vec::new());
        Self { queue, rng: Seeded::new(seed ^ 0x5702_e000), slow: Duration::from_millis(20), done }
    }

    /// An operation is handed over; it is done after those before it.
    pub(crate) fn put(&mut self, now: Instant, operation: Operation) {
        let takes = self.rng.below(u64::try_from(self.slow.as_micros()).unwrap_or(u64::MAX).max(1));
        // What was asked meanwhile is done together.
        let (at, before) = (now + Duration::from_micros(takes), self.queue.back().map_or(now, |(at, _)| *at));
        self.queue.push_back((at.max(before), operation));
    }

    /// When the next one is done.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Does the next one if it is due; who hears of it.
    pub(crate) fn run(&mut self, now: Instant, rows: &mut Memory) -> Option<Option<(SaId, Outcome)>> {
        self.due().filter(|at| *at <= now)?;
        let (_, operation) = self.queue.pop_front()?;
        let outcome = rows.apply(EPOCH + (now - Instant::ZERO), &operation);
        self.done.push((operation, outcome));
        Some(operation.asked_by().map(|sa| (sa, outcome)))
    }

    /// The process ends, and waits until everything is done.
    pub(crate) fn finish(&mut self, now: Instant, rows: &mut Memory) {
        while let Some(last) = self.queue.back().map(|(at, _)| now.max(*at)) {
            self.run(last, rows);
        }
    }

    /// The process dies.
    pub(crate) fn crash(&mut self) {
        self.queue.clear();
    }
}
