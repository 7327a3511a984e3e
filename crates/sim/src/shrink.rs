//! Stories as values, and the shortest one that still fails. Owns the search and the form of what is pasted as a test; must never know
//! what a story is about.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

/// Stories that a search tells at most: a bound on its time, not on its result.
const TRIES: usize = 3_000;

/// A story as a value, which can be told again and again.
pub trait Tale: Clone + Debug {
    /// Tells the story, and checks how it ends.
    ///
    /// # Panics
    /// If something is not as it must be, at any step or at the end.
    fn tell(&self);

    /// Stories that are simpler by one change, the boldest first.
    fn simpler(&self) -> Vec<Self>;

    /// The story as a test that can be pasted into `crates/sim/tests`.
    fn as_test(&self) -> String;

    /// Tells the story silently; what it panicked with, if it did.
    fn failure(&self) -> Option<String> {
        let told = silently(|| catch_unwind(AssertUnwindSafe(|| self.tell())));
        told.err().map(|payload| message(payload.as_ref()))
    }

    /// The shortest story found that fails in the same way as this one; this one, if it does not fail.
    #[must_use]
    fn shrunk(&self) -> Self {
        let Some(failure) = self.failure() else { return self.clone() };
        let (wanted, mut least, mut tries) = (kind(&failure), self.clone(), 0);
        let mut fails_so = |story: &Self| {
            tries += 1;
            tries < TRIES && story.failure().is_some_and(|failure| kind(&failure) == wanted)
        };
        while let Some(story) = least.simpler().into_iter().find(&mut fails_so) {
            least = story;
        }
        least
    }
}

/// These steps without some that follow each other: first half of them, at last each alone.
pub(crate) fn fewer<S: Clone>(steps: &[S]) -> Vec<Vec<S>> {
    let (mut all, mut chunk) = (Vec::new(), steps.len().div_ceil(2));
    while chunk > 0 {
        for at in (0..steps.len()).step_by(chunk) {
            let mut left = steps.to_vec();
            left.drain(at..(at + chunk).min(steps.len()));
            all.push(left);
        }
        chunk /= 2;
    }
    all
}

/// These steps with one of them simpler.
pub(crate) fn milder<S: Clone>(steps: &[S], simpler: impl Fn(&S) -> Vec<S>) -> Vec<Vec<S>> {
    let mut all = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        for simple in simpler(step) {
            let mut changed = steps.to_vec();
            changed[at] = simple;
            all.push(changed);
        }
    }
    all
}

/// Half of a time, and whole seconds of it.
pub(crate) fn shorter(time: Duration) -> impl Iterator<Item = Duration> {
    let halved = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 2);
    let whole = Duration::from_secs(time.as_secs());
    [halved, whole].into_iter().filter(move |t| *t < time)
}

/// A time, as a test has it.
pub(crate) fn time(time: Duration) -> String {
    format!("Duration::from_millis({})", time.as_millis())
}

/// What went wrong, without the figures of this one story: all that stands before its details.
fn kind(failure: &str) -> String {
    let first = failure.lines().next().unwrap_or_default();
    first.split(';').next().unwrap_or_default().chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".into())
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`; a panic of this thread prints nothing meanwhile.
fn silently<T>(f: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                usual(info);
            }
        }));
    });
    SILENT.set(true);
    let result = f();
    SILENT.set(false);
    result
}
