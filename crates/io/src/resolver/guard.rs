//! The DNS guard: a [`Resolver`] in a process of its own, which stays root without any capability while the daemon becomes
//! an ordinary user.
//!
//! However the daemon ends, the guard restores DNS and ends too (`crate::helper`). Where the guard itself was killed, the next one
//! restores what it left: [`Guard::choose`].
//!
//! The daemon's program runs again as the guard, under a hidden argument of its choice:
//!
//! ```no_run
//! use dormouse_io::resolver::{Guard, Options, serve};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! if std::env::args().nth(1).as_deref() == Some("dns-guard") {
//!     return Ok(serve(Options::default())?);
//! }
//! let program = std::env::current_exe()?;
//! let mut guard = Guard::spawn(&program, &["dns-guard"])?; // before privileges are dropped
//! # Ok(()) }
//! ```

use super::{Choice, Error, Options, Resolver, Settings};
use crate::helper::{self, Helper};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::Path;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Choose { interface: String },
    Set(Settings),
    Revert,
}

/// What the guard answers, one for each order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardReply {
    /// To [`Guard::choose`]: the method that would be used; to [`Guard::set`]: the one that was.
    Done(Choice),
    /// To [`Guard::revert`].
    Reverted,
    /// It did not work, in words.
    Failed(String),
}

/// The daemon's end. Orders never wait: register the guard with the [`crate::poller::Poller`] and call [`Guard::next`] when it
/// is readable. Dropping it makes the guard restore DNS and end.
#[derive(Debug)]
pub struct Guard(Helper);

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str]) -> Result<Self, Error> {
        Helper::spawn(program, arguments).map(Self).map_err(Error::Guard)
    }

    /// Makes it restore and end without waiting for that, as dropping it does.
    pub fn release(&mut self) {
        self.0.release();
    }

    /// Asks which method would be used for the tunnel interface of this name, and removes what an earlier run that was killed may
    /// have left installed for it.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn choose(&mut self, interface: &str) -> Result<(), Error> {
        self.0.order(&Order::Choose { interface: interface.into() }).map_err(Error::Guard)
    }

    /// Orders name servers to be installed.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn set(&mut self, settings: Settings) -> Result<(), Error> {
        self.0.order(&Order::Set(settings)).map_err(Error::Guard)
    }

    /// Orders what was there before to be put back.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn revert(&mut self) -> Result<(), Error> {
        self.0.order(&Order::Revert).map_err(Error::Guard)
    }
}

crate::helper::guard!(GuardReply, Error);

/// The guard itself: obeys the orders that come in on standard input until it ends, then restores DNS.
///
/// # Errors
/// If signals or capabilities cannot be given up, or DNS of an earlier run cannot be restored.
pub fn serve(options: Options) -> Result<(), Error> {
    let socket = helper::begin().map_err(Error::Guard)?;
    if nix::unistd::geteuid().is_root() {
        crate::privileges::drop_capabilities().map_err(Error::Guard)?;
    }
    obey(&socket, Resolver::new(options)?)
}

fn obey(socket: &OwnedFd, mut resolver: Resolver) -> Result<(), Error> {
    helper::serve(socket, |order| match order {
        Ok(Order::Choose { interface }) => GuardReply::Done(resolver.choose(&interface)),
        Ok(Order::Set(settings)) => answer(resolver.set(settings).map(GuardReply::Done)),
        Ok(Order::Revert) => answer(resolver.revert().map(|()| GuardReply::Reverted)),
        Err(why) => GuardReply::Failed(why),
    });
    resolver.end()
}

fn answer(result: Result<GuardReply, Error>) -> GuardReply {
    result.unwrap_or_else(|e| GuardReply::Failed(e.to_string()))
}
