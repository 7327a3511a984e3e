//! A child process that is given jobs and answers them: one line of JSON each, over its standard input and output. Owns the process
//! and the lines, on either side; must never wait for an answer without limit.
//!
//! The child may stand behind another program (`ip netns exec`, `ssh`). It lives as long as its standard input is open, and that
//! is closed by the end of the parent, however it ends.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A child that is not gone so long after its input was closed is killed.
const GRACE: Duration = Duration::from_millis(500);

/// What a child says to a job.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said<A> {
    Failed(String),
    #[serde(untagged)]
    Done(A),
}

/// The child. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// The child is gone, or does not answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("there is no answer")]
pub(super) struct Silent;

impl Child {
    /// Starts `command`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_owned();
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        Ok(Self { process, to, from: BufReader::new(from.context("the child's output")?) })
    }

    /// This program again, with these arguments.
    ///
    /// # Errors
    /// If the program's own file is not known.
    pub(super) fn program() -> Result<std::path::PathBuf> {
        std::env::current_exe().context("this program's own file")
    }

    /// Has a job done, which must be answered within `patience`.
    ///
    /// # Errors
    /// What the child says went wrong; [`Silent`] if it says nothing.
    pub(super) fn ask<A: DeserializeOwned>(&mut self, job: &impl Serialize, patience: Duration) -> Result<A> {
        let mut line = serde_json::to_string(job)?;
        line.push('\n');
        let to = self.to.as_mut().context("the child has ended")?;
        if to.write_all(line.as_bytes()).is_ok() {
            self.await_answer(patience)?;
        } else if self.await_answer(GRACE).is_err() {
            // One that hears nothing may have said why before.
            return Err(self.gone());
        }
        line.clear();
        if self.from.read_line(&mut line)? == 0 {
            return Err(self.gone());
        }
        match serde_json::from_str(&line).with_context(|| format!("the child answered {line:?}"))? {
            Said::Done(answer) => Ok(answer),
            Said::Failed(why) => bail!(why),
        }
    }

    fn await_answer(&self, patience: Duration) -> Result<()> {
        let limit = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut waiting = [PollFd::new(self.from.get_ref().as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut waiting, limit) {
                Ok(0) => return Err(anyhow!("after {} s", patience.as_secs()).context(Silent)),
                Ok(_) => return Ok(()),
                // A signal is looked at between two measurements.
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// What became of a child that hears or says nothing any more.
    fn gone(&mut self) -> anyhow::Error {
        let how =
            self.ended().map_or_else(|| "it is deaf".to_owned(), |how| format!("the child ended: {how}"));
        anyhow!(how).context(Silent)
    }

    /// How it ended, if it does now that its input is closed.
    fn ended(&mut self) -> Option<ExitStatus> {
        const STEP: Duration = Duration::from_millis(5);
        self.to = None;
        let mut waited = Duration::ZERO;
        loop {
            match self.process.try_wait() {
                Ok(None) if waited < GRACE => {}
                ended => return ended.ok().flatten(),
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The child's side: answers the jobs of standard input until it is closed, which `answer` is shown by a flag while it works.
///
/// # Errors
/// If the answers go nowhere.
pub(super) fn serve<J: DeserializeOwned, A: Serialize>(
    mut answer: impl FnMut(J, &AtomicBool) -> Result<A>,
) -> Result<()> {
    let closed = Arc::new(AtomicBool::new(false));
    let (heard, lines) = channel();
    let seen = closed.clone();
    std::thread::spawn(move || {
        let input = std::io::stdin().lock();
        let _ = input.lines().map_while(|line| line.ok()).try_for_each(|line| heard.send(line));
        seen.store(true, Ordering::Relaxed);
    });
    for line in lines {
        say(parse(&line).and_then(|job| answer(job, &closed)))?;
    }
    Ok(())
}

/// The child's side, where there is one job alone.
///
/// # Errors
/// As [`serve`].
pub(super) fn serve_once<J: DeserializeOwned, A: Serialize, K>(
    begin: impl FnOnce(J) -> Result<(A, K)>,
) -> Result<Option<K>> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let (answer, kept) = match parse(&line).and_then(begin) {
        Ok((answer, kept)) => (Ok(answer), Some(kept)),
        Err(error) => (Err(error), None),
    };
    say(answer)?;
    Ok(kept)
}

fn parse<J: DeserializeOwned>(line: &str) -> Result<J> {
    serde_json::from_str(line).with_context(|| format!("this is no job: {line:?}"))
}

fn say(answer: Result<impl Serialize>) -> Result<()> {
    let said = answer.map_or_else(|error| Said::Failed(format!("{error:#}")), Said::Done);
    let mut line = serde_json::to_string(&said)?;
    line.push('\n');
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Child {
        Child::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    fn refused(script: &str, patience: Duration) -> anyhow::Error {
        shell(script).ask::<f64>(&1, patience).unwrap_err()
    }

    #[test]
    fn an_answer_is_heard_and_what_went_wrong_is_told_as_it_was() {
        let mut echo = shell("while read line; do echo $line; done");
        assert_eq!(echo.ask::<f64>(&1.5, PATIENCE).unwrap(), 1.5);
        assert_eq!(echo.ask::<f64>(&2.5, PATIENCE).unwrap(), 2.5);
        let failed = r#"read line; echo '{"failed":"no device"}'"#;
        assert_eq!(refused(failed, PATIENCE).to_string(), "no device");
        let error = refused("read line; echo thread main panicked", PATIENCE).to_string();
        assert!(error.contains("panicked"), "{error}");
    }

    #[test]
    fn what_a_child_said_before_it_went_is_heard() {
        let mut child = shell(r#"echo '{"failed":"no device"}'"#);
        child.process.wait().unwrap();
        assert_eq!(child.ask::<f64>(&1, PATIENCE).unwrap_err().to_string(), "no device");
    }

    #[test]
    fn a_child_that_has_gone_or_says_nothing_is_silent() {
        for (script, patience) in
            [("exit 3", PATIENCE), ("read line", PATIENCE), ("exec sleep 60", Duration::from_millis(50))]
        {
            assert!(refused(script, patience).is::<Silent>(), "{script}");
        }
    }
}
