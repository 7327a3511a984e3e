//! The radio by the user's own programs. Owns running them within bounds: no shell, a time-out after which the whole process group
//! is killed, and an exit code that counts.

use super::{Attempt, Commands, Options, Power, RadioError, RadioState, Switch};
use crate::clock::BootClock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

pub(super) const NAME: &str = "command";

/// So much of what a program says on its standard error is repeated in an error, in bytes.
const SAID: usize = 512;

#[derive(Debug)]
pub(super) struct Programs {
    commands: Commands,
    holds: bool,
}

pub(super) fn find(options: &Options) -> Attempt {
    let Some(commands) = &options.commands else { return Err("none is configured".into()) };
    for (key, list) in [("off", &commands.off), ("on", &commands.on)] {
        if list.is_empty() {
            return Err(format!("the command for '{key}' is empty"));
        }
    }
    let why = format!("{} is configured", commands.off.first().map_or("", String::as_str));
    Ok((Box::new(Programs { commands: commands.clone(), holds: false }), why))
}

/// How a program ended, and the beginning of what it said on its standard error.
struct Outcome {
    status: ExitStatus,
    said: String,
}

impl Outcome {
    fn describe(&self) -> String {
        let end = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
        };
        if self.said.is_empty() { end } else { format!("{end}: {}", self.said) }
    }
}

fn run(list: &[String], timeout: Duration) -> Result<Outcome, RadioError> {
    let shown = || list.join(" ");
    let fail = |problem: &dyn std::fmt::Display| RadioError::step(NAME, shown(), problem);
    let Some((program, arguments)) = list.split_first() else { return Err(fail(&"empty")) };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| fail(&e))?;
    let mut said = Vec::new();
    let ended = wait(&mut child, timeout, &mut said);
    if !matches!(ended, Ok(Some(_))) {
        kill(&mut child);
    }
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match ended {
        Ok(Some(status)) => Ok(Outcome { status, said }),
        Ok(None) => Err(RadioError::Timeout { driver: NAME, what: shown(), limit: timeout }),
        Err(e) => Err(fail(&e)),
    }
}

/// Waits for the end of a program, and reads what it says meanwhile, so that it never waits for us. `None` after `timeout`. What the
/// program leaves running may hold its standard error open: only the program's own end counts.
fn wait(child: &mut Child, timeout: Duration, said: &mut Vec<u8>) -> std::io::Result<Option<ExitStatus>> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or(nix::errno::Errno::ESRCH)?;
    let end = pidfd_open(pid, PidfdFlags::empty())?;
    let mut stderr = child.stderr.take();
    let until = BootClock::now() + timeout;
    loop {
        let left = until.saturating_since(BootClock::now());
        if left.is_zero() {
            return Ok(None);
        }
        let mut watched = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        watched.extend(stderr.as_ref().map(|e| PollFd::new(e.as_fd(), PollFlags::POLLIN)));
        let ms = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched, ms) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = |i: usize| watched.get(i).and_then(PollFd::any).unwrap_or(false);
        let (ended, talks) = (ready(0), ready(1));
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

/// Kills a program and what it started, and takes note of its end.
fn kill(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.wait();
}

fn must_succeed(list: &[String], timeout: Duration) -> Result<(), RadioError> {
    let outcome = run(list, timeout)?;
    if outcome.status.success() {
        return Ok(());
    }
    Err(RadioError::step(NAME, list.join(" "), outcome.describe()))
}

impl Switch for Programs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn off(&mut self) -> Result<(), RadioError> {
        // Before the result is known: a program that failed half way through may have switched it off.
        self.holds = true;
        let result = must_succeed(&self.commands.off, self.commands.timeout);
        if result.is_err()
            && let Err(e) = self.on()
        {
            tracing::warn!(%e, "undoing what failed");
        }
        result
    }

    fn on(&mut self) -> Result<(), RadioError> {
        if self.holds {
            must_succeed(&self.commands.on, self.commands.timeout)?;
            self.holds = false;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        let list = &self.commands.state;
        if list.is_empty() {
            return Ok(RadioState { power: Power::Unknown, attached: None, network: None });
        }
        let outcome = run(list, self.commands.timeout)?;
        let power = match outcome.status.code() {
            Some(0) => Power::On,
            Some(1) if self.holds => Power::Off,
            Some(1) => Power::Blocked,
            _ => return Err(RadioError::step(NAME, list.join(" "), outcome.describe())),
        };
        Ok(RadioState { power, attached: None, network: None })
    }

    fn holds(&self) -> bool {
        self.holds
    }

    fn adopt(&mut self) {
        self.holds = true;
    }
}
