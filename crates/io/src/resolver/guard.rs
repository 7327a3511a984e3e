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
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Longest line in either direction, in bytes.
const MAX_LINE: u64 = 64 << 10;

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
pub struct Guard {
    socket: UnixStream,
    child: Child,
    partial: Vec<u8>,
}

impl Guard {
    /// Starts `program` with `arguments`, which must end up in [`serve`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(program: &Path, arguments: &[&str]) -> Result<Self, Error> {
        let (ours, theirs) = UnixStream::pair().map_err(Error::Guard)?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(Error::Guard)?;
        ours.set_nonblocking(true).map_err(Error::Guard)?;
        Ok(Self { socket: ours, child, partial: Vec::new() })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks which method would be used.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn choose(&mut self) -> Result<(), Error> {
        self.order(&Order::Choose)
    }

    /// Orders name servers to be installed.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn set(&mut self, settings: Settings) -> Result<(), Error> {
        self.order(&Order::Set(settings))
    }

    /// Orders what was there before to be put back.
    ///
    /// # Errors
    /// If the guard is gone.
    pub fn revert(&mut self) -> Result<(), Error> {
        self.order(&Order::Revert)
    }

    fn order(&mut self, order: &Order) -> Result<(), Error> {
        let mut line = serde_json::to_vec(order).map_err(|e| Error::Guard(e.into()))?;
        line.push(b'\n');
        // Far below what a socket buffer takes: a guard that has let so many orders lie is as good as gone.
        self.socket.write_all(&line).map_err(Error::Guard)
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
        loop {
            if let Some(end) = self.partial.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|e| Error::Guard(e.into()));
            }
            if self.partial.len() as u64 > MAX_LINE {
                return Err(Error::Guard(io::Error::other("an endless answer")));
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(Error::Guard(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.partial.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::Guard(e)),
            }
        }
    }

    /// Waits for the next answer: at the start and at the end, when nothing else is to be done.
    ///
    /// # Errors
    /// As [`Guard::next`].
    pub fn wait(&mut self) -> Result<GuardReply, Error> {
        self.socket.set_nonblocking(false).map_err(Error::Guard)?;
        let reply = self.next();
        self.socket.set_nonblocking(true).map_err(Error::Guard)?;
        reply?.ok_or_else(|| Error::Guard(io::ErrorKind::UnexpectedEof.into()))
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// The guard itself: obeys the orders that come in on standard input until it ends, then restores DNS.
///
/// # Errors
/// If signals or capabilities cannot be given up, or DNS of an earlier run cannot be restored.
pub fn serve(options: Options) -> Result<(), Error> {
    let mut mask = nix::sys::signal::SigSet::empty();
    for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGINT, nix::sys::signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block().map_err(|e| Error::Guard(e.into()))?;
    if nix::unistd::geteuid().is_root() {
        crate::privileges::drop_capabilities().map_err(Error::Guard)?;
    }
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(Error::Guard)?;
    obey(UnixStream::from(stdin), Resolver::new(options)?)
}

fn obey(socket: UnixStream, mut resolver: Resolver) -> Result<(), Error> {
    let mut answers = socket.try_clone().map_err(Error::Guard)?;
    let mut orders = BufReader::new(socket);
    loop {
        let mut line = Vec::new();
        let n = (&mut orders).take(MAX_LINE).read_until(b'\n', &mut line).map_err(Error::Guard)?;
        if n == 0 || line.last() != Some(&b'\n') {
            return resolver.revert();
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(Order::Choose) => GuardReply::Done(resolver.choose()),
            Ok(Order::Set(settings)) => answer(resolver.set(settings).map(GuardReply::Done)),
            Ok(Order::Revert) => answer(resolver.revert().map(|()| GuardReply::Reverted)),
            Err(e) => GuardReply::Failed(format!("the order is not understood: {e}")),
        };
        let mut text = serde_json::to_vec(&reply).map_err(|e| Error::Guard(e.into()))?;
        text.push(b'\n');
        // A daemon that is gone reads no answer; the next read finds that out.
        let _ = answers.write_all(&text);
    }
}

fn answer(result: Result<GuardReply, Error>) -> GuardReply {
    result.unwrap_or_else(|e| GuardReply::Failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
