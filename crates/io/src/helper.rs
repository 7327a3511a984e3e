//! A helper process: this program once more, which keeps the privileges that the daemon gives up. Owns the socket between the two
//! and the bounds on waiting; knows nothing of what is ordered.
//!
//! A message is one JSON object in one packet of a `SOCK_SEQPACKET` pair: orders in one direction, an answer to each in the other. The
//! kernel takes a packet whole or not at all, so no order is ever obeyed by half. Answers that are bytes ([`crate::files`]) come in
//! several packets.
//!
//! However the daemon ends, the socket ends with it: [`serve`] returns, and the helper restores what it must before it ends itself.
//! The daemon waits for that at most [`END`], which runs from [`Helper::release`] if that comes first, so that several helpers restore at the
//! same time and the daemon ends within its service manager's patience. A helper that takes longer is not killed, because that would leave undone what it is
//! restoring: each of its steps is bounded, and it ends by itself.

use crate::clock::BootClock;
use crate::program;
use dormouse_sansio::Instant;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, shutdown, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest message in either direction, in bytes: far below what a socket's buffer takes.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;
/// How long the daemon waits for an answer, where it waits for one: longer than any helper's start takes.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// How long the daemon waits for a helper's end: as long as the step that it is at and those that restore may take, as a rule.
pub(crate) const END: Duration = Duration::from_secs(30);

/// The daemon's end. Dropping it makes the helper restore and end, and waits for that within [`END`].
#[derive(Debug)]
pub(crate) struct Helper {
    socket: OwnedFd,
    child: Child,
    buffer: Vec<u8>,
    /// [`ANSWER`] and [`END`].
    limits: (Duration, Duration),
    /// Since when it restores.
    released: Option<Instant>,
}

impl Helper {
    /// Starts `program` with `arguments`, which must end up in [`serve`] with the standard input.
    pub(crate) fn spawn(program: &Path, arguments: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let child =
            Command::new(program).args(arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        Ok(Self { socket, child, buffer: vec![0; MAX_MESSAGE], limits: (ANSWER, END), released: None })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It has nothing to restore: its end is waited for a second only.
    pub(crate) const fn brief(mut self) -> Self {
        self.limits.1 = Duration::from_secs(1);
        self
    }

    /// Makes the helper restore and end; what it still says is not heard. Waits for nothing: dropping it does.
    pub(crate) fn release(&mut self) {
        if self.released.is_none() {
            self.released = Some(BootClock::now());
            let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        }
    }

    /// Gives an order, whole or not at all. Never waits.
    ///
    /// # Errors
    /// If the helper is gone, or has left so many orders lie that no more fit the socket.
    pub(crate) fn order(&mut self, order: &impl Serialize) -> io::Result<()> {
        transmit(self.socket.as_fd(), order, MsgFlags::MSG_DONTWAIT)
    }

    /// The next answer, if one has come. Never waits.
    ///
    /// # Errors
    /// If the helper is gone, or its answer is not understood.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match receive(self.socket.as_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(message) => Ok(Some(serde_json::from_slice(message)?)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The next packet of an answer that is not JSON, if one has come. Never waits.
    ///
    /// # Errors
    /// If the helper is gone.
    pub(crate) fn next_packet(&mut self) -> io::Result<Option<&[u8]>> {
        match receive(self.socket.as_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(packet) => Ok(Some(packet)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Waits for the next answer, at most [`ANSWER`].
    ///
    /// # Errors
    /// As [`Helper::next`]; `TimedOut`.
    pub(crate) fn wait<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let until = BootClock::now() + self.limits.0;
        loop {
            if let Some(answer) = self.next()? {
                return Ok(answer);
            }
            let left = until.saturating_since(BootClock::now());
            if left.is_zero() {
                let (pid, limit) = (self.pid(), self.limits.0);
                let what = format!("helper process {pid} did not answer within {limit:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            let ms = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], ms) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

crate::as_fd!(Helper, socket);

/// What the daemon's ends of the guards have in common.
macro_rules! guard {
    ($reply:ty, $error:ident) => {
        impl Guard {
            /// Its process id.
            #[must_use]
            pub fn pid(&self) -> u32 {
                self.0.pid()
            }

            /// The next answer, if one has come. Never waits.
            ///
            /// # Errors
            /// If the guard is gone or talks nonsense: take it out of the poller.
            #[expect(
                clippy::should_implement_trait,
                reason = "the convention of the I/O parts: `next` never blocks and may fail"
            )]
            pub fn next(&mut self) -> Result<Option<$reply>, $error> {
                self.0.next().map_err($error::Guard)
            }

            /// Waits for the next answer: at the start and at the end, when nothing else is to be done.
            ///
            /// # Errors
            /// As [`Guard::next`].
            pub fn wait(&mut self) -> Result<$reply, $error> {
                self.0.wait().map_err($error::Guard)
            }
        }

        crate::as_fd!(Guard, 0);
    };
}
pub(crate) use guard;

impl Drop for Helper {
    fn drop(&mut self) {
        self.release();
        let gone = self.released.map_or(Duration::ZERO, |at| BootClock::now().saturating_since(at));
        match program::wait_for_end(&self.child, self.limits.1.saturating_sub(gone)) {
            Ok(true) => drop(self.child.wait()),
            Ok(false) => {
                tracing::warn!(pid = self.pid(), "a helper process is still restoring; not waiting longer");
            }
            Err(error) => tracing::warn!(%error, pid = self.pid(), "a helper process cannot be waited for"),
        }
    }
}

fn transmit(socket: BorrowedFd<'_>, message: &impl Serialize, flags: MsgFlags) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE {
        let what = format!("a message of {} bytes, at most {MAX_MESSAGE} are taken", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    transmit_packet(socket, &bytes, flags)
}

/// One packet, of at most [`MAX_MESSAGE`] bytes.
pub(crate) fn transmit_packet(socket: BorrowedFd<'_>, packet: &[u8], flags: MsgFlags) -> io::Result<()> {
    loop {
        match send(socket.as_raw_fd(), packet, flags | MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let what = "it takes no more orders: it is stopped, or hangs";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// One message; `UnexpectedEof` if the other end is gone.
pub(crate) fn receive<'a>(
    socket: BorrowedFd<'_>,
    buffer: &'a mut [u8],
    flags: MsgFlags,
) -> io::Result<&'a [u8]> {
    loop {
        match recv(socket.as_raw_fd(), buffer, flags) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => return Ok(buffer.get(..length).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The helper's side: SIGTERM, SIGINT and SIGHUP are ignored from now on, because they reach the whole control group and would end the
/// helper before the daemon. Returns the socket to the daemon.
pub(crate) fn begin() -> io::Result<OwnedFd> {
    let mut mask = nix::sys::signal::SigSet::empty();
    for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGINT, nix::sys::signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    io::stdin().as_fd().try_clone_to_owned()
}

/// Why a helper is woken.
pub(crate) enum Turn<O> {
    /// An order has come; the reason, in words, if it is not understood.
    Order(Result<O, String>),
    /// The other descriptor is readable, or the time is over that was asked for.
    Beside,
}

/// Obeys orders until the daemon is gone.
pub(crate) fn serve<O: DeserializeOwned, R: Serialize>(
    socket: &OwnedFd,
    mut obey: impl FnMut(Result<O, String>) -> R,
) {
    serve_beside(socket, None, |turn| match turn {
        Turn::Order(order) => (Some(obey(order)), None),
        Turn::Beside => (None, None),
    });
}

/// [`serve`], and reads another descriptor beside it: what `take` returns then is said unasked. The time that `take` returns is the longest
/// until its next turn.
pub(crate) fn serve_beside<O: DeserializeOwned, R: Serialize>(
    socket: &OwnedFd,
    beside: Option<BorrowedFd<'_>>,
    mut take: impl FnMut(Turn<O>) -> (Option<R>, Option<Duration>),
) {
    let mut buffer = vec![0; MAX_MESSAGE];
    let mut longest = PollTimeout::NONE;
    loop {
        let mut watched = vec![PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        watched.extend(beside.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut watched, longest) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        }
        let ready = |i: usize| watched.get(i).and_then(PollFd::any).unwrap_or(false);
        let (answer, again) = if ready(0) {
            // A daemon that was killed with answers unread resets the connection: that is an end like any other.
            let Ok(message) = receive(socket.as_fd(), &mut buffer, MsgFlags::empty()) else { return };
            let order =
                serde_json::from_slice(message).map_err(|e| format!("the order is not understood: {e}"));
            take(Turn::Order(order))
        } else {
            take(Turn::Beside)
        };
        longest = again.map_or(PollTimeout::NONE, |d| d.as_millis().try_into().unwrap_or(PollTimeout::MAX));
        if let Some(answer) = answer
            && let Err(error) = transmit(socket.as_fd(), &answer, MsgFlags::empty())
        {
            tracing::debug!(%error, "an answer was not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    /// A real process that never reads its orders, with bounds that a test can wait for.
    fn stopped() -> Helper {
        let mut helper = Helper::spawn(Path::new("/bin/sleep"), &["600"]).unwrap();
        helper.limits = (Duration::from_millis(50), Duration::from_millis(50));
        helper
    }

    fn pid(helper: &Helper) -> Pid {
        Pid::from_raw(i32::try_from(helper.pid()).unwrap())
    }

    #[test]
    fn a_helper_that_hangs_is_waited_for_within_bounds_and_goes_on() {
        let mut helper = stopped();
        assert_eq!(helper.wait::<String>().unwrap_err().kind(), io::ErrorKind::TimedOut);
        let pid = pid(&helper);
        drop(helper);
        kill(pid, None).expect("it is there: it may be restoring something");
        kill(pid, Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(pid, None).unwrap();
    }

    #[test]
    fn helpers_that_are_released_are_waited_for_together() {
        let mut all: Vec<Helper> = (0..3).map(|_| stopped()).collect();
        let pids: Vec<Pid> = all.iter().map(pid).collect();
        all.iter_mut().for_each(Helper::release);
        assert!(all.iter().all(|helper| helper.released.is_some()));
        let first = all[0].released;
        all[0].release();
        assert_eq!(all[0].released, first, "once");
        std::thread::sleep(Duration::from_millis(60));
        for helper in all {
            let gone = BootClock::now().saturating_since(helper.released.unwrap());
            assert!(helper.limits.1.saturating_sub(gone).is_zero(), "nothing is left to wait for");
        }
        for pid in pids {
            kill(pid, Signal::SIGKILL).unwrap();
            nix::sys::wait::waitpid(pid, None).unwrap();
        }
    }

    #[test]
    fn orders_beyond_what_the_socket_takes_are_refused_and_those_taken_arrive_whole() {
        let (ours, theirs) = pair();
        let order = "x".repeat(30_000);
        let mut taken = 0;
        let refused = loop {
            match transmit(ours.as_fd(), &order, MsgFlags::MSG_DONTWAIT) {
                Ok(()) => taken += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
        drop(ours);
        let mut read = 0;
        serve(&theirs, |order: Result<String, String>| {
            assert_eq!(order.unwrap().len(), 30_000);
            read += 1;
        });
        assert!(taken > 1 && read == taken, "{read} of {taken}");
    }

    #[test]
    fn a_message_that_is_too_long_or_not_understood_is_refused_and_the_next_one_is_not() {
        let (ours, theirs) = pair();
        let long = transmit(ours.as_fd(), &"x".repeat(MAX_MESSAGE), MsgFlags::empty()).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
        send(ours.as_raw_fd(), b"{\"half\":", MsgFlags::empty()).unwrap();
        transmit(ours.as_fd(), &7, MsgFlags::empty()).unwrap();
        shutdown(ours.as_raw_fd(), Shutdown::Write).unwrap();
        let mut seen = Vec::new();
        serve(&theirs, |order: Result<u32, String>| {
            seen.push(order.ok());
            "done"
        });
        assert_eq!(seen, [None, Some(7)]);
    }

    #[test]
    fn a_helper_that_was_killed_is_gone_for_orders_and_answers() {
        let mut helper = stopped();
        kill(pid(&helper), Signal::SIGKILL).unwrap();
        helper.limits.0 = ANSWER;
        assert_eq!(helper.wait::<String>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(helper.order(&1).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
