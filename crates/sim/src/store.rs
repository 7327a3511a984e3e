//! A model of what a gateway writes beside its loop, lineages and leases: it takes its time, and what was not done when its process dies is
//! lost. Owns the queue and the log of what was done; the rules of lineages are `dormouse_ike`'s, whose rows are the disk.

use crate::ends::EPOCH;
use crate::machine::Disk;
use dormouse_ike::ticket::lineage::{Operation, Outcome};
use dormouse_keying::SaId;
use dormouse_node::pool::Change;
use dormouse_sansio::{Entropy, Instant, Seeded};
use std::collections::VecDeque;
use std::time::Duration;

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Job {
    Lineage(Operation),
    /// With its number.
    Lease(u64, Change),
}

/// What the process hears of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Done {
    Outcome(SaId, Outcome),
    Leased(u64),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Store {
    queue: VecDeque<(Instant, Job)>,
    rng: Seeded,
    /// The longest that it takes for one job; the time of each is drawn.
    pub slow: Duration,
    /// Everything that was done to lineages, oldest first, with its outcome.
    pub done: Vec<(Operation, Outcome)>,
}

impl Store {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Seeded::new(seed ^ 0x5702_e000);
        // Some disks are busy.
        let slow = Duration::from_millis(if rng.below(4) == 0 { 400 } else { 20 });
        Self { queue: VecDeque::new(), rng, slow, done: Vec::new() }
    }

    /// A job is handed over; it is done after those before it.
    pub(crate) fn put(&mut self, now: Instant, job: Job) {
        let takes = self.rng.below(u64::try_from(self.slow.as_micros()).unwrap_or(u64::MAX).max(1));
        // What was asked meanwhile is done together.
        let (at, before) = (now + Duration::from_micros(takes), self.queue.back().map_or(now, |(at, _)| *at));
        self.queue.push_back((at.max(before), job));
    }

    /// When the next one is done.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Does the next one if it is due; what is to be said of it.
    pub(crate) fn run(&mut self, now: Instant, disk: &mut Disk) -> Option<Option<Done>> {
        self.due().filter(|at| *at <= now)?;
        let (_, job) = self.queue.pop_front()?;
        Some(match job {
            Job::Lineage(operation) => {
                let outcome = disk.lineages.apply(EPOCH + (now - Instant::ZERO), &operation);
                self.done.push((operation, outcome));
                operation.asked_by().map(|sa| Done::Outcome(sa, outcome))
            }
            Job::Lease(number, change) => {
                disk.lease(change);
                Some(Done::Leased(number))
            }
        })
    }

    /// The process ends, and waits until everything is done.
    pub(crate) fn finish(&mut self, now: Instant, disk: &mut Disk) -> Vec<Done> {
        let mut said = Vec::new();
        while let Some(last) = self.queue.back().map(|(at, _)| now.max(*at)) {
            said.extend(self.run(last, disk).flatten());
        }
        said
    }

    /// The process dies.
    pub(crate) fn crash(&mut self) {
        self.queue.clear();
    }
}
