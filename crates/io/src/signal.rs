//! Signals as a file descriptor. Owns the process's signal mask; must be made before any thread is, which inherit it.

use nix::sys::signal::{SigSet, Signal as Unix};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;

/// A signal that the daemon knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM or SIGINT: stop in good order.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The signals that arrived. Register it with the [`crate::poller::Poller`] for reading.
///
/// The signals stay blocked for the process; `std::process::Command` unblocks them for its children.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Takes SIGTERM, SIGINT and SIGHUP over.
    ///
    /// # Errors
    /// The kernel's, when file descriptors or memory run out.
    pub fn new() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Unix::SIGTERM, Unix::SIGINT, Unix::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block()?;
        Ok(Self(SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next signal that arrived, if any.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let Some(info) = self.0.read_signal()? else { return Ok(None) };
        let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Unix::try_from(n).ok());
        Ok(Some(if signal == Some(Unix::SIGHUP) { Signal::Reload } else { Signal::Stop }))
    }
}

crate::as_fd!(Signals, 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_rather_than_obeyed() {
        // On a thread of its own: the mask of the other tests stays as it is.
        std::thread::spawn(|| {
            let signals = Signals::new().unwrap();
            assert_eq!(signals.next().unwrap(), None);
            nix::sys::pthread::pthread_kill(nix::sys::pthread::pthread_self(), Unix::SIGHUP).unwrap();
            assert_eq!(signals.next().unwrap(), Some(Signal::Reload));
            nix::sys::pthread::pthread_kill(nix::sys::pthread::pthread_self(), Unix::SIGTERM).unwrap();
            assert_eq!(signals.next().unwrap(), Some(Signal::Stop));
            assert_eq!(signals.next().unwrap(), None);
        })
        .join()
        .unwrap();
    }
}
