//! The DNS guard: a [`Resolver`] in a process of its own, which stays root without any capability while the daemon becomes
//! somebody else.
//!
//! The two talk over a socket pair, one JSON object a line. The end of the daemon, however it comes, is the end of that
//! socket: the guard restores DNS and ends. It does not obey SIGTERM, SIGINT or SIGHUP, which reach the whole control group and
//! would make it end too early.
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
use crate::servant::{self, Servant};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Choose,
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
pub struct Guard(Servant);

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str]) -> Result<Self, Error> {
        Servant::spawn(program, arguments).map(Self).map_err(Error::Guard)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Asks which method would be used.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn choose(&mut self) -> Result<(), Error> {
        self.0.order(&Order::Choose).map_err(Error::Guard)
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

    /// The next answer, if one has come. Never waits.
    ///
    /// # Errors
    /// If the guard is gone or talks nonsense: take it out of the poller.
    #[expect(
        clippy::should_implement_trait,
        reason = "the convention of the I/O parts: `next` never blocks and may fail"
    )]
    pub fn next(&mut self) -> Result<Option<GuardReply>, Error> {
        self.0.next().map_err(Error::Guard)
    }

    /// Waits for the next answer: at the start and at the end, when nothing else is to be done.
    ///
    /// # Errors
    /// As [`Guard::next`].
    pub fn wait(&mut self) -> Result<GuardReply, Error> {
        self.0.wait().map_err(Error::Guard)
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The guard itself: obeys the orders that come in on standard input until it ends, then restores DNS.
///
/// # Errors
/// If signals or capabilities cannot be given up, or DNS of an earlier run cannot be restored.
pub fn serve(options: Options) -> Result<(), Error> {
    let socket = servant::begin().map_err(Error::Guard)?;
    if nix::unistd::geteuid().is_root() {
        crate::privileges::drop_capabilities().map_err(Error::Guard)?;
    }
    obey(socket, Resolver::new(options)?)
}

fn obey(socket: UnixStream, mut resolver: Resolver) -> Result<(), Error> {
    servant::serve(socket, |order| match order {
        Ok(Order::Choose) => GuardReply::Done(resolver.choose()),
        Ok(Order::Set(settings)) => answer(resolver.set(settings).map(GuardReply::Done)),
        Ok(Order::Revert) => answer(resolver.revert().map(|()| GuardReply::Reverted)),
        Err(why) => GuardReply::Failed(why),
    })
    .map_err(Error::Guard)?;
    resolver.revert()
}

fn answer(result: Result<GuardReply, Error>) -> GuardReply {
    result.unwrap_or_else(|e| GuardReply::Failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    #[test]
    fn orders_are_obeyed_and_the_end_of_the_daemon_restores() {
        let directory = std::env::temp_dir().join(format!("dormouse-guard-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("resolv.conf");
        std::fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        let options = Options {
            resolv_conf: path.clone(),
            nsswitch_conf: directory.join("nsswitch.conf"),
            bus: Some(format!("unix:path={}/nobody", directory.display())),
            programs: Vec::new(),
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let guard = std::thread::spawn(move || obey(theirs, Resolver::new(options).unwrap()));
        let mut answers = BufReader::new(ours.try_clone().unwrap());
        let mut ask = |order: &Order| {
            let mut text = serde_json::to_vec(order).unwrap();
            text.push(b'\n');
            (&ours).write_all(&text).unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            serde_json::from_str::<GuardReply>(&line).unwrap()
        };
        let settings = Settings {
            interface: "dm0".into(),
            index: 7,
            servers: vec!["10.9.0.1".parse().unwrap()],
            domains: Vec::new(),
            exclusive: true,
        };
        let GuardReply::Done(choice) = ask(&Order::Set(settings)) else { panic!("refused") };
        assert_eq!(choice.method, super::super::Method::File, "{choice}");
        assert!(std::fs::read_to_string(&path).unwrap().contains("nameserver 10.9.0.1\n"));
        (&ours).write_all(b"{\"set\":").unwrap();
        drop(answers);
        drop(ours);
        guard.join().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.1\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
