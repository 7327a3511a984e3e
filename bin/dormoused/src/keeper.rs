//! The gateway's lineages and leases beside the event loop: a thread that writes down what the host orders, in its order, and waits for
//! the disk. Owns the thread and the queue; the rules are `dormouse_ike::ticket::lineage`'s, the statements `dormouse_io::store`'s, by [`crate::lineages`]. Two
//! threads that write one database would wait for each other, so there is one.
//!
//! What was ordered while the disk was busy is one transaction for each of the two. A store that fails is tried again. Meanwhile those who
//! wait for a lineage are told so, and the endpoint refuses tickets; operations whose outcome no SA waits for are kept until then, within
//! a bound. Answers that wait for a lease go out without it.
//!
//! Of gateways that share a database, the thread writes there instead, and tells what the others do ([`database`]).

#[cfg(not(feature = "cluster"))]
mod apart;
pub(crate) mod counts;
#[cfg(feature = "cluster")]
mod database;
#[cfg(feature = "cluster")]
mod owed;
#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;

use crate::leases::Leases;
#[cfg(not(feature = "cluster"))]
use apart as database;
pub(crate) use database::Member;
use dormouse_ike::ticket::lineage::{Operation, Outcome, Store};
use dormouse_io::bell::Bell;
use dormouse_io::beside;
use dormouse_io::clock::unix_now;
use dormouse_keying::SaId;
use dormouse_node::pool::Change;
pub(crate) use dormouse_node::shared::Report;
use dormouse_node::shared::{Batch, Changes, Errand, Waiting};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A store that failed is tried again after this long.
const RETRY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Keeper {
    queue: Arc<Queue>,
    reports: Receiver<Report>,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// With the gateway's own database; `None` if this is no gateway.
    ///
    /// # Errors
    /// If that cannot be opened, or the system has no thread left.
    pub(crate) fn own(store: &crate::store::Store, gateway: bool) -> anyhow::Result<Option<Self>> {
        let beside = store.beside()?.filter(|_| gateway);
        Ok(beside.map(|(lineages, leases)| Self::new(lineages, leases)).transpose()?)
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has none left.
    pub(crate) fn new<S>(store: S, leases: Leases) -> io::Result<Self>
    where
        S: Store<Error: Display> + Send + 'static,
    {
        Self::start(move |queue, reports| serve(store, leases, queue, reports))
    }

    /// The same with the database that gateways share.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(crate) fn shared(member: Member) -> io::Result<Self> {
        Self::start(move |queue, reports| database::serve(&member, queue, reports))
    }

    fn start(serve: impl FnOnce(&Queue, &Reports) + Send + 'static) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let to_do = queue.clone();
        let (sender, reports) = channel();
        let bell = Bell::new()?;
        let reports_of = Reports { sender, bell: bell.clone() };
        let thread = beside::spawn("keeper", move || serve(&to_do, &reports_of))?;
        Ok(Self { queue, reports, bell, thread: Some(thread) })
    }

    /// Hands an operation over.
    pub(crate) fn put(&self, operation: Operation) {
        self.queue.put(operation);
    }

    /// Hands over a change of a lease. [`Report::Leased`] of its number, or of a later one, follows.
    pub(crate) fn lease(&self, number: u64, change: Change) {
        self.queue.change(|state| state.lease(unix_now(), number, change));
    }

    /// Hands over what gateways share besides.
    pub(crate) fn run(&self, errand: Errand) {
        self.queue.change(|state| state.run(errand));
    }

    /// Waits until everything that was asked is done; what there was to say of it.
    pub(crate) fn finish(mut self) -> Vec<Report> {
        self.end();
        self.reports.try_iter().collect()
    }

    fn end(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }

    /// [`Report::Written`] of what this returns, or of a later one, follows when everything is on the disk that was handed over so far.
    pub(crate) fn mark(&self) -> u64 {
        self.queue.change(Waiting::mark)
    }

    /// The next thing that the thread has said. It stays readable until there was none.
    pub(crate) fn next(&mut self) -> Option<Report> {
        self.reports.try_recv().ok().or_else(|| {
            self.bell.clear();
            // Something may have come before that.
            self.reports.try_recv().ok()
        })
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
        self.end();
    }
}

struct Reports {
    sender: Sender<Report>,
    bell: Bell,
}

impl Reports {
    fn send(&self, report: Report) {
        let _gone = self.sender.send(report);
        self.bell.ring();
    }
}

/// What is to be done, in its order.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
    /// The same for a thread that waits for more than this.
    #[cfg(feature = "cluster")]
    bell: tokio::sync::Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        drop(state);
        self.changed.notify_one();
        #[cfg(feature = "cluster")]
        self.bell.notify_one();
        result
    }

    fn put(&self, operation: Operation) {
        self.change(|state| state.put(operation));
    }

    fn close(&self) {
        self.change(Waiting::close);
    }

    /// The next batch, when something has come, or is to be tried again.
    fn next(&self, reachable: bool) -> Batch {
        let mut state = self.lock();
        if reachable {
            let idle = |s: &mut Waiting| !s.is_wanted();
            state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        } else {
            let idle = |s: &mut Waiting| !s.is_fresh() && !s.is_closed();
            let waited = self.changed.wait_timeout_while(state, RETRY, idle);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.take()
    }

    /// Everything before this mark is done.
    fn written(&self, mark: u64) {
        self.lock().written(mark);
    }

    /// See [`Waiting::put_back`].
    fn put_back(&self, batch: Vec<Operation>) -> Vec<Operation> {
        self.lock().put_back(batch)
    }
}

fn serve(mut store: impl Store<Error: Display>, mut leases: Leases, queue: &Queue, reports: &Reports) {
    let (mut reachable, mut owing) = (true, false);
    loop {
        let Batch { operations: batch, leases: changes, mark, closed, .. } = queue.next(reachable && !owing);
        if owing || !changes.is_empty() {
            owing = write_leases(&mut leases, changes, reports);
        }
        let ran = if batch.is_empty() { Ok(Vec::new()) } else { store.run(unix_now(), &batch) };
        for (operation, outcome) in batch.iter().zip(ran.iter().flatten()) {
            if let Some(sa) = operation.asked_by() {
                reports.send(Report::Outcome(sa, *outcome));
            }
        }
        let idle = batch.is_empty();
        if ran.is_err() {
            let ends = batch.iter().filter(|operation| matches!(operation, Operation::End { .. }));
            let mut asked: Vec<SaId> = ends.filter_map(Operation::asked_by).collect();
            asked.extend(queue.put_back(batch).iter().filter_map(Operation::asked_by));
            asked.into_iter().for_each(|sa| reports.send(Report::Outcome(sa, Outcome::Failed)));
        }
        if let Some(mark) = mark.filter(|_| ran.is_ok()) {
            queue.written(mark);
            reports.send(Report::Written(mark));
        }
        if idle {
            if closed {
                return;
            }
            continue;
        }
        if ran.is_ok() != reachable {
            reachable = ran.is_ok();
            reports.send(Report::Reachable(reachable));
        }
        if let Err(e) = ran {
            tracing::error!("tickets are refused until the store can be written: {e}");
            if closed {
                return;
            }
        }
    }
}

/// True if they could not be written, and must be tried again.
fn write_leases(leases: &mut Leases, changes: Changes, reports: &Reports) -> bool {
    let new = !changes.is_empty();
    let (last, written) = leases.write(changes);
    if let Err(e) = &written {
        tracing::error!("addresses are given that a crash would forget: {e}");
    }
    if new {
        reports.send(Report::Leased(last));
    }
    written.is_err()
}
