//! Child processes that never outlive their owner. Owns spawning, CPU accounting and the order of signals.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A child process whose output goes to a log file. Dropped: SIGTERM, then SIGKILL after two seconds.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    name: String,
}

impl Process {
    /// Starts `command` with its output in `log`.
    ///
    /// # Errors
    /// If the log cannot be created or the program not started; the error names it.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let out = fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("{}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("starting {name}: {command:?}"))?;
        Ok(Self { child, log: log.into(), name: name.into() })
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal; a process that is gone already is fine.
    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // ESRCH only means that it has ended by itself.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Exit status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits up to `limit` for its end.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGTERM, two seconds of grace, SIGKILL; returns how it ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        if let Some(status) = self.wait(Duration::from_secs(2)) {
            return status;
        }
        self.kill()
    }

    /// SIGKILL: the crash of a daemon.
    pub fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap_or_else(|_| ExitStatus::from_raw(9))
    }

    /// Waits until `pattern` stands in the log.
    ///
    /// # Errors
    /// After `limit`, or if the process ends first; the error holds the end of the log.
    pub fn wait_for(&mut self, pattern: &str, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            if self.log().contains(pattern) {
                return Ok(());
            }
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= until {
                let log = self.log();
                let tail: Vec<&str> = log.lines().rev().take(25).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                anyhow::bail!(
                    "{}: no '{pattern}' ({ended:?}); its log ends:\n{}",
                    self.name,
                    tail.join("\n")
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.stop();
        }
    }
}

/// CPU time (user and system) that process `pid` has used; zero if it is gone. Resolution: one clock tick (10 ms), or better
/// where the kernel keeps `/proc/<pid>/schedstat`.
#[must_use]
pub fn cpu_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos: Option<u64> = tasks
        .map(|t| {
            let text = fs::read_to_string(t.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    if let Some(nanos @ 1..) = nanos {
        return Duration::from_nanos(nanos);
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Bytes of main memory that process `pid` has now, those of its program included; zero if it is gone.
#[must_use]
pub fn resident_memory(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The same without pages that are a file's, such as the program: what the process itself has written, in bytes.
#[must_use]
pub fn own_memory(pid: u32) -> u64 {
    memory(pid, "RssAnon:")
}

fn memory(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kilobytes = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
