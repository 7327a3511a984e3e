//! Threads beside the loop, which do what takes long: signatures, and what waits for the disk. Owns their priority: on a core that they share with the
//! loop it comes first, as packets wait for it.

use rustix::process::{getpriority_process, setpriority_process};
use std::io;
use std::thread::JoinHandle;

/// What is added to the niceness of the process: where both have much to do, some tenth of a core is left to such a thread.
const NICER: i32 = 10;

/// Starts a thread of this name.
///
/// # Errors
/// If the system has none left.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Linux takes "this process" for this thread (setpriority(2)).
        if let Err(e) = getpriority_process(None).and_then(|nice| setpriority_process(None, nice + NICER)) {
            tracing::debug!(%e, "a thread beside the loop has the loop's own priority");
        }
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn such_a_thread_steps_back_and_the_others_stay() {
        let nice = || getpriority_process(None).expect("a priority");
        let before = nice();
        let beside = spawn("beside", nice).expect("a thread").join().expect("no panic");
        assert_eq!((beside, nice()), ((before + NICER).min(19), before));
    }
}
