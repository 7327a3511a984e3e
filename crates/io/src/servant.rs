//! A process of our own beside the daemon, which keeps what the daemon gives away. Owns the socket between the two: one JSON
//! object a line, orders in one direction, an answer to each in the other. Knows nothing of what is ordered.
//!
//! The end of the daemon, however it comes, is the end of that socket: [`serve`] returns, and the servant can put right what
//! it must before it ends.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Longest line in either direction, in bytes.
const MAX_LINE: u64 = 64 << 10;

/// The daemon's end. Dropping it ends the servant and waits until it has.
#[derive(Debug)]
pub(crate) struct Servant {
    socket: UnixStream,
    child: Child,
    partial: Vec<u8>,
}

impl Servant {
    /// Starts `program` with `arguments`, which must end up in [`serve`] with the standard input.
    pub(crate) fn spawn(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        ours.set_nonblocking(true)?;
        Ok(Self { socket: ours, child, partial: Vec::new() })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order. Never waits.
    pub(crate) fn order(&mut self, order: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        // Far below what a socket buffer takes: a servant that has let so many orders lie is as good as gone.
        self.socket.write_all(&line)
    }

    /// The next answer, if one has come. Never waits.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.partial.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.partial.len() as u64 > MAX_LINE {
                return Err(io::Error::other("an endless answer"));
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.partial.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for the next answer.
    pub(crate) fn wait<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        self.socket.set_nonblocking(false)?;
        let reply = self.next();
        self.socket.set_nonblocking(true)?;
        reply?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl AsFd for Servant {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// The servant's side: a program that does not obey SIGTERM, SIGINT or SIGHUP, which reach the whole control group and would
/// make it end before the daemon. Returns the socket to the daemon.
pub(crate) fn begin() -> io::Result<UnixStream> {
    let mut mask = nix::sys::signal::SigSet::empty();
    for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGINT, nix::sys::signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Obeys orders until the daemon is gone. `obey` gets what could not be understood as an error, in words.
pub(crate) fn serve<O: DeserializeOwned, R: Serialize>(
    socket: UnixStream,
    mut obey: impl FnMut(Result<O, String>) -> R,
) -> io::Result<()> {
    let mut answers = socket.try_clone()?;
    let mut orders = BufReader::new(socket);
    loop {
        let mut line = Vec::new();
        let n = (&mut orders).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if n == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        let order = serde_json::from_slice(&line).map_err(|e| format!("the order is not understood: {e}"));
        let mut text = serde_json::to_vec(&obey(order))?;
        text.push(b'\n');
        // A daemon that is gone reads no answer; the next read finds that out.
        let _ = answers.write_all(&text);
    }
}
