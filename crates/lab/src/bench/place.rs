//! Where one half of a measurement runs: in this process's own network namespace, or in that of a host of the testbed. Owns
//! nothing; must never leave a thread in another namespace than it was made for.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;
use dormouse_testbed::Host;

/// A place.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Here: this machine, as the process finds it.
    Here,
    /// In this host's namespace.
    Host(Host),
}

impl Place {
    /// A command that will run there.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, program: S) -> Command {
        match self {
            Self::Here => Command::new(program),
            Self::Host(host) => host.command(program),
        }
    }

    /// Does `work` there: sockets that it opens belong to the place for their life.
    ///
    /// # Errors
    /// If the place cannot be entered, or `work` panicked there.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        match self {
            Self::Here => Ok(work()),
            Self::Host(host) => host.run(work),
        }
    }
}
