//! The store of lineages beside the event loop: a thread that carries out what the endpoint asks, in its order, and waits for the
//! disk. Owns the thread and the queue; the rules are `dormouse_ike::ticket::lineage`'s, the statements `dormouse_io::store::lineage`'s.
//!
//! What was asked while the disk was busy is one transaction. A store that fails is tried again; meanwhile those who wait are
//! told so, and the endpoint refuses tickets. Operations whose outcome no SA waits for are kept until then.

use dormouse_ike::limits::LINEAGES_PER_HOLDER;
use dormouse_ike::ticket::lineage::{Operation, Outcome, Store};
use dormouse_io::clock::unix_now;
use dormouse_io::store::lineage::{Lineages, Step};
use dormouse_keying::SaId;
use dormouse_sansio::UnixTime;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Operations of one transaction at most.
const BATCH: usize = 1_024;
/// Operations that wait for a store that fails. Beyond, new sessions are not written down, and their tickets cost a full exchange.
const WAITING_MOST: usize = 65_536;
/// A store that failed is tried again after this long.
const RETRY: Duration = Duration::from_secs(1);

/// What the thread has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// To one who waits.
    Outcome(SaId, Outcome),
    /// Whether the store can be asked.
    Reachable(bool),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Keeper {
    operations: Option<Sender<Operation>>,
    reports: Receiver<Report>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has none left.
    pub(crate) fn new<S: Store<Error: Display> + Send + 'static>(store: S) -> io::Result<Self> {
        let (operations, to_do) = channel();
        let (sender, reports) = channel();
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let thread = std::thread::Builder::new()
            .name("lineages".into())
            .spawn(move || serve(store, &to_do, &Reports { sender, ringer }))?;
        Ok(Self { operations: Some(operations), reports, bell, thread: Some(thread) })
    }

    /// Hands an operation over.
    pub(crate) fn put(&self, operation: Operation) {
        if let Some(operations) = &self.operations {
            // Its end is the process's.
            let _gone = operations.send(operation);
        }
    }

    /// What the thread has said since the last call.
    pub(crate) fn reports(&mut self) -> Vec<Report> {
        let mut rung = [0; 64];
        while self.bell.read(&mut rung).is_ok_and(|n| n > 0) {}
        self.reports.try_iter().collect()
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Keeper {
    /// Waits until everything that was asked is done.
    fn drop(&mut self) {
        self.operations = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

struct Reports {
    sender: Sender<Report>,
    ringer: UnixStream,
}

impl Reports {
    fn send(&self, report: Report) {
        let _gone = self.sender.send(report);
        // A full pipe rings already.
        let _full = (&self.ringer).write(&[1]);
    }
}

fn serve(mut store: impl Store<Error: Display>, to_do: &Receiver<Operation>, reports: &Reports) {
    let (mut waiting, mut reachable): (Vec<Operation>, bool) = (Vec::new(), true);
    loop {
        let next = match reachable {
            true => to_do.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => to_do.recv_timeout(RETRY),
        };
        let last = next == Err(RecvTimeoutError::Disconnected);
        take(&mut waiting, next.into_iter().chain(to_do.try_iter()));
        while !waiting.is_empty() {
            let batch: Vec<Operation> = waiting.iter().take(BATCH).copied().collect();
            let ran = store.run(unix_now(), &batch);
            let outcomes = match &ran {
                Ok(outcomes) => outcomes.clone(),
                Err(_) => vec![Outcome::Failed; batch.len()],
            };
            for (operation, outcome) in batch.iter().zip(outcomes) {
                if let Some(sa) = operation.asked_by() {
                    reports.send(Report::Outcome(sa, outcome));
                }
            }
            let now_reachable = ran.is_ok();
            if now_reachable != reachable {
                reports.send(Report::Reachable(now_reachable));
                reachable = now_reachable;
            }
            match ran {
                Ok(_) => {
                    waiting.drain(..batch.len());
                }
                Err(e) => {
                    tracing::error!("tickets are refused until the store can be written: {e}");
                    // Who asked whether a ticket counts has been told, and does not wait.
                    waiting.retain(|operation| !matches!(operation, Operation::Confirm { .. }));
                    break;
                }
            }
        }
        if last {
            return;
        }
    }
}

/// Keeps what is to be done, in its order. The end of a session is never left out.
fn take(waiting: &mut Vec<Operation>, new: impl Iterator<Item = Operation>) {
    for operation in new {
        let ends = matches!(operation, Operation::End { .. } | Operation::EndAll { .. });
        if waiting.len() < WAITING_MOST || ends {
            waiting.push(operation);
        }
    }
}

/// The lineages in the gateway's database.
#[derive(Debug)]
pub(crate) struct Sqlite(pub(crate) Lineages);

impl Store for Sqlite {
    type Error = dormouse_io::store::Error;

    fn run(&mut self, now: UnixTime, operations: &[Operation]) -> Result<Vec<Outcome>, Self::Error> {
        let steps: Vec<Step> = operations.iter().map(|operation| step(now, operation)).collect();
        let outcome = |(operation, found): (&Operation, bool)| match operation {
            Operation::Confirm { .. } if !found => Outcome::Superseded,
            _ => Outcome::Done,
        };
        Ok(operations.iter().zip(self.0.run(&steps)?).map(outcome).collect())
    }
}

fn step(now: UnixTime, operation: &Operation) -> Step {
    match *operation {
        Operation::Insert(row) => Step::Insert {
            id: row.id.0,
            holder: row.holder.0,
            tip: row.tip.0,
            ends: row.ends,
            now,
            most: LINEAGES_PER_HOLDER,
        },
        Operation::Confirm { lineage, own, before, next, ends, .. } => {
            Step::Move { id: lineage.0, from: [own.0, before.0], to: next.0, ends }
        }
        Operation::Advance { lineage, from, to, ends } => {
            Step::Move { id: lineage.0, from: [from.0; 2], to: to.0, ends }
        }
        Operation::End { lineage, holder, .. } => Step::End { id: lineage.0, holder: holder.0 },
        Operation::EndAll { holder } => Step::EndAll { holder: holder.0 },
    }
}

#[cfg(test)]
mod tests;
