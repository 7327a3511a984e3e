//! In the place of systemd-logind, in a program without the feature `dbus`: it announces nothing.

use std::io;

/// There is none.
#[derive(Debug)]
pub enum Inhibitor {}

/// What happens to the machine, if it were announced.
#[derive(Debug)]
pub enum Event {
    /// Announcements will come.
    Watching(Result<(), String>),
    /// The machine is about to be suspended.
    AboutToSleep(Option<Inhibitor>),
    /// It is awake again.
    Resumed,
    /// No announcements come, and why.
    Unavailable(String),
}

/// There is none.
#[derive(Debug)]
pub enum Watch {}

impl Watch {
    /// # Errors
    /// Always.
    pub fn new(_: Option<&str>) -> io::Result<Self> {
        let why = "this program was built without the feature \"dbus\"";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// The next event.
    #[expect(clippy::should_implement_trait, reason = "the convention of the I/O parts: `next` never blocks")]
    pub fn next(&mut self) -> Option<Event> {
        match *self {}
    }
}

impl std::os::fd::AsFd for Watch {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match *self {}
    }
}
