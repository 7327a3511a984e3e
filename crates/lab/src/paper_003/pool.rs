//! Pieces of work that wait more than they work, as many side by side as there is room for. Owns the threads, and what came of each piece until
//! it is taken; must never know what a piece is.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

/// How often who waits looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(250);

/// See the module. All of it ends when it is dropped; pieces that run then are told to stop, and awaited.
#[derive(Debug)]
pub(super) struct Pool<K, T> {
    shared: Arc<Shared<K, T>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<K, T> {
    state: Mutex<State<K, T>>,
    changed: Condvar,
    /// No piece begins any more, and those that run shall end.
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State<K, T> {
    /// In their order, each with the room that it needs.
    waiting: VecDeque<(K, usize)>,
    /// Room that is left.
    free: usize,
    done: BTreeMap<K, Result<T>>,
}

impl<K, T> Shared<K, T> {
    fn state(&self) -> MutexGuard<'_, State<K, T>> {
        // No thread leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<K, T>>) -> MutexGuard<'a, State<K, T>> {
        self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<K: Ord + Copy + Send + 'static, T: Send + 'static> Pool<K, T> {
    /// Begins. `pieces` are worked on in their order, each beside its part of `room`; a piece that needs more than all of it has all of it.
    /// `work` gets a flag that says when it shall stop.
    pub(super) fn start(
        pieces: impl IntoIterator<Item = (K, usize)>,
        room: usize,
        work: impl Fn(&K, &Arc<AtomicBool>) -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        let room = room.max(1);
        let waiting: VecDeque<_> =
            pieces.into_iter().map(|(key, needs)| (key, needs.clamp(1, room))).collect();
        let threads = room.min(waiting.len());
        let state = Mutex::new(State { waiting, free: room, done: BTreeMap::new() });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), stop: Arc::default() });
        let work = Arc::new(work);
        let thread = |_| {
            let (shared, work) = (shared.clone(), work.clone());
            std::thread::spawn(move || carry_out(&shared, &*work))
        };
        Self { threads: (0..threads).map(thread).collect(), shared }
    }

    /// Drops pieces that will not be taken, if they have not begun.
    pub(super) fn forget(&self, of: impl Fn(&K) -> bool) {
        self.shared.state().waiting.retain(|(key, _)| !of(key));
        self.shared.changed.notify_all();
    }

    /// What came of a piece, which is waited for. Each can be taken once.
    ///
    /// # Errors
    /// Those of the work; soon after `interrupted` is set; and if there is no such piece, once all others are done.
    pub(super) fn take(&self, key: &K, interrupted: &AtomicBool) -> Result<T> {
        let mut state = self.shared.state();
        loop {
            if let Some(done) = state.done.remove(key) {
                return done;
            }
            if interrupted.load(Ordering::Relaxed) {
                self.shared.stop.store(true, Ordering::Relaxed);
                bail!("interrupted");
            }
            if self.threads.iter().all(JoinHandle::is_finished) {
                bail!("no thread is left that works on it");
            }
            state = self.shared.wait(state);
        }
    }
}

impl<K, T> Drop for Pool<K, T> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has nothing more to end.
            let _ = thread.join();
        }
    }
}

/// One thread: the next piece, as soon as there is room for it.
fn carry_out<K: Ord + Copy, T>(shared: &Shared<K, T>, work: &impl Fn(&K, &Arc<AtomicBool>) -> Result<T>) {
    loop {
        let mut state = shared.state();
        let (key, needs) = loop {
            let Some(&next) = state.waiting.front() else { return };
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            if next.1 <= state.free {
                break next;
            }
            state = shared.wait(state);
        };
        state.waiting.pop_front();
        state.free -= needs;
        drop(state);
        let done = catch_unwind(AssertUnwindSafe(|| work(&key, &shared.stop)));
        let mut state = shared.state();
        state.free += needs;
        state.done.insert(key, done.unwrap_or_else(|_| Err(anyhow!("it panicked"))));
        drop(state);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn every_piece_is_worked_on_once_and_none_without_room() {
        let (busy, most, times) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let needs = |n: usize| if n.is_multiple_of(5) { 3 } else { 1 };
        let pool = Pool::start((0..40).map(|n| (n, needs(n))), 4, {
            let (busy, most, times) = (busy.clone(), most.clone(), times.clone());
            move |n: &usize, _: &Arc<AtomicBool>| {
                let now = busy.fetch_add(needs(*n), Ordering::SeqCst) + needs(*n);
                most.fetch_max(now, Ordering::SeqCst);
                times.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                busy.fetch_sub(needs(*n), Ordering::SeqCst);
                Ok(n * n)
            }
        });
        // The last one first: each is there when it is asked for.
        for n in (0..40).rev() {
            assert_eq!(pool.take(&n, &GO_ON).unwrap(), n * n);
        }
        assert_eq!(times.load(Ordering::SeqCst), 40);
        assert!(most.load(Ordering::SeqCst) <= 4, "{most:?}");
        assert!(pool.take(&3, &GO_ON).is_err(), "it was taken already");
    }

    #[test]
    fn a_piece_that_fails_or_panics_leaves_the_others_alone() {
        let pool = Pool::start((0..6).map(|n| (n, 9)), 2, |n: &usize, _: &Arc<AtomicBool>| match n {
            1 => bail!("no such thing"),
            2 => panic!("of a test"),
            _ => Ok(*n),
        });
        let said = |n| pool.take(&n, &GO_ON).map_err(|e| e.to_string());
        let all: Vec<_> = (0..6).map(said).collect();
        let err = |text: &str| Err(text.to_owned());
        assert_eq!(all, [Ok(0), err("no such thing"), err("it panicked"), Ok(3), Ok(4), Ok(5)]);
    }

    #[test]
    fn what_is_forgotten_does_not_begin() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let gate = Arc::new(AtomicBool::new(false));
        let pool = Pool::start((0..6).map(|n| (n, 1)), 1, {
            let (begun, gate) = (begun.clone(), gate.clone());
            move |n: &usize, _: &Arc<AtomicBool>| {
                begun.lock().unwrap().push(*n);
                while !gate.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                Ok(())
            }
        });
        while begun.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        pool.forget(|n| n % 2 == 1);
        gate.store(true, Ordering::SeqCst);
        assert!(pool.take(&4, &GO_ON).is_ok() && pool.take(&3, &GO_ON).is_err());
        assert_eq!(*begun.lock().unwrap(), [0, 2, 4]);
    }

    #[test]
    fn an_interruption_ends_what_runs_and_what_would_come() {
        let began = Arc::new(AtomicUsize::new(0));
        let pool = Pool::start((0..50).map(|n| (n, 1)), 2, {
            let began = began.clone();
            move |_: &usize, stop: &Arc<AtomicBool>| {
                began.fetch_add(1, Ordering::SeqCst);
                while !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                Ok(())
            }
        });
        let interrupted = AtomicBool::new(true);
        assert_eq!(pool.take(&49, &interrupted).unwrap_err().to_string(), "interrupted");
        drop(pool);
        assert!(began.load(Ordering::SeqCst) <= 2, "{began:?}");
    }
}
