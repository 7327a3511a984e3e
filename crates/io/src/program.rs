//! Programs of the system, run within bounds. Owns the bound: a program that takes longer is killed with all that it started. No shell
//! is involved.

use crate::clock::BootClock;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

/// So much of what a program says on its standard error is kept, in bytes.
const SAID: usize = 512;

/// How a program ended, and the beginning of what it said on its standard error.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    said: String,
}

impl Outcome {
    /// For an error message.
    pub(crate) fn describe(&self) -> String {
        let end = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
        };
        if self.said.is_empty() { end } else { format!("{end}: {}", self.said) }
    }
}

/// Where programs for the administrator are: not always on the `PATH`.
pub(crate) const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The system's program `name`, if there is one.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|d| Path::new(d).join(name)).find(|p| p.is_file())
}

/// [`run_into`] nothing: what the program says on its standard output is lost.
///
/// # Errors
/// As [`run_into`].
pub(crate) fn run(
    program: impl AsRef<OsStr>,
    arguments: &[impl AsRef<OsStr>],
    input: &[u8],
    limit: Duration,
) -> io::Result<Option<Outcome>> {
    run_into(program, arguments, input, Stdio::null(), limit)
}

/// Runs a program with `input` (less than a pipe holds, 64 KiB) on its standard input, and waits for its end. `None` after `limit`: then
/// its whole process group is killed. What it leaves running when it ends by itself goes on. Its standard output goes to `output`, no pipe:
/// none is read.
///
/// # Errors
/// If it cannot be started or waited for.
pub(crate) fn run_into(
    program: impl AsRef<OsStr>,
    arguments: &[impl AsRef<OsStr>],
    input: &[u8],
    output: Stdio,
    limit: Duration,
) -> io::Result<Option<Outcome>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(output)
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why when it ends.
        let _ = stdin.write_all(input);
    }
    let mut said = Vec::new();
    let ended = wait(&mut child, limit, &mut said);
    if !matches!(ended, Ok(Some(_))) {
        kill(&mut child);
    }
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    Ok(ended?.map(|status| Outcome { status, said }))
}

/// Waits for the end of a child process without taking note of it; false after `limit`.
///
/// # Errors
/// The kernel's.
pub(crate) fn wait_for_end(child: &Child, limit: Duration) -> io::Result<bool> {
    let end = handle(child)?;
    let until = BootClock::now() + limit;
    loop {
        match ready(&end, None, until.saturating_since(BootClock::now()))? {
            (true, _) => return Ok(true),
            _ if until <= BootClock::now() => return Ok(false),
            _ => {}
        }
    }
}

/// Waits for the end of a program, and reads what it says meanwhile, so that it never waits for us. What the program leaves running may
/// hold its standard error open: only the program's own end counts.
fn wait(child: &mut Child, limit: Duration, said: &mut Vec<u8>) -> io::Result<Option<ExitStatus>> {
    let end = handle(child)?;
    let mut stderr = child.stderr.take();
    let until = BootClock::now() + limit;
    loop {
        let left = until.saturating_since(BootClock::now());
        if left.is_zero() {
            return Ok(None);
        }
        let (ended, talks) = ready(&end, stderr.as_ref(), left)?;
        if talks && let Some(pipe) = &mut stderr {
            let mut chunk = [0; 1024];
            match pipe.read(&mut chunk)? {
                0 => stderr = None,
                n => said.extend(chunk.iter().take(n.min(SAID.saturating_sub(said.len())))),
            }
        } else if ended {
            return child.wait().map(Some);
        }
    }
}

/// A descriptor that becomes readable with the end of the process.
fn handle(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    Ok(pidfd_open(pid.ok_or(Errno::ESRCH)?, PidfdFlags::empty())?)
}

/// Whether the process has ended, and whether it says something; after `left` at the latest.
fn ready(end: &OwnedFd, stderr: Option<&ChildStderr>, left: Duration) -> io::Result<(bool, bool)> {
    let mut watched = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    watched.extend(stderr.map(|e| PollFd::new(e.as_fd(), PollFlags::POLLIN)));
    let ms = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
    match poll(&mut watched, ms) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(e) => return Err(e.into()),
    }
    let is_ready = |i: usize| watched.get(i).and_then(PollFd::any).unwrap_or(false);
    Ok((is_ready(0), is_ready(1)))
}

/// Kills a program and what it started, and takes note of its end.
fn kill(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.wait();
}
