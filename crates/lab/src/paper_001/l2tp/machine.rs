//! The same campaign in a virtual machine, whose kernel has PPP: the script `l2tp` of the source tree's `interop/vm` boots it, and the same program
//! runs in it. Its processor is emulated by software, which its results say of themselves. Owns the way there and back; must never pass for results
//! of this machine.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dormouse_testbed::{Need, binary, vm};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{EXPERIMENT, Point};
use crate::experiment::Context;
use crate::results::Results;

/// Says where `interop/vm` is, for a program that does not stand in its source tree.
const PLACE: &str = "DORMOUSE_VM";
/// After so many seconds the machine is switched off: many times what the short and the full form take.
pub(super) const LIMITS: [u32; 2] = [600, 36_000];
/// Around the raw data in what the machine prints.
const BEGINS: &str = "raw data:";
const ENDS: &str = "end of raw data";
/// How often an interruption is looked for.
const LOOKS: Duration = Duration::from_millis(200);
/// Lines that are kept for the case that it fails.
const LAST: usize = 60;

/// The scripts of the virtual machine: those of the tree in whose `target` this program was built, or where [`PLACE`] says.
fn place() -> Option<PathBuf> {
    let given = std::env::var_os(PLACE).map(PathBuf::from);
    let exe = std::env::current_exe().ok();
    let beside = exe.iter().flat_map(|exe| exe.ancestors()).map(|dir| dir.join("interop/vm"));
    given.into_iter().chain(beside).find(|dir| dir.join("l2tp").is_file())
}

/// What is missing for it; `None` if nothing.
pub(super) fn missing() -> Option<String> {
    let Some(place) = place() else {
        return Some(format!("the scripts in interop/vm of the source tree ({PLACE} says where they are)"));
    };
    let fetched = [
        vm::fetched(&place, &["kernel"], "Debian's kernel (interop/vm/kernel fetch)"),
        vm::fetched(&place, &["l2tp", "check"], "xl2tpd and pppd (interop/vm/l2tp fetch)"),
    ];
    let mut missing: Vec<String> = vm::NEEDS.into_iter().chain(fetched).filter_map(Need::missing).collect();
    if !binary("dormoused").is_file() {
        missing.extend(Need::Program("dormoused").missing());
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Runs it there and brings the results back.
///
/// # Errors
/// If it does not come to its end, with what it said last; if it is interrupted.
pub(super) fn measured(context: &Context) -> Result<Results<Point>> {
    let place = place().context("the scripts of the virtual machine are gone")?;
    (context.progress)("in a virtual machine with an emulated processor, for this one has no PPP to use");
    let said = run(&place, context)?;
    let results = Results::<Point>::parse(said.as_bytes()).context("the raw data of the virtual machine")?;
    let whole = results.finished.is_some() && results.plan == context.plan() && results.seed == context.seed;
    ensure!(whole, "the virtual machine brings back another campaign");
    ensure!(
        results.machine.emulated(),
        "{} was measured on {}: no virtual machine of interop/vm has that processor",
        EXPERIMENT.name,
        results.machine.cpu
    );
    if let Some(out) = &context.out {
        results.write(out).context("the results cannot be kept")?;
    }
    Ok(results)
}

/// Boots the machine, and gives the raw data that it prints.
fn run(place: &Path, context: &Context) -> Result<String> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(place.join("l2tp"));
    command.args(["-t", &LIMITS[usize::from(!context.short)].to_string()]);
    command.args([binary("dormouse"), binary("dormoused")]);
    command.args(["--seed", &context.seed.to_string()]).args(context.short.then_some("--quick"));
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut machine = Machine(command.spawn().context("interop/vm/l2tp")?);
    // Its ends of the pipe, which would keep it open.
    drop(command);
    let (tell, told) = channel();
    let reading = std::thread::spawn(move || {
        for line in BufReader::new(reader).lines() {
            // What cannot be read ends it, as a listener does that is gone.
            if line.is_err() || tell.send(line.unwrap_or_default()).is_err() {
                break;
            }
        }
    });
    let listened = listen(&told, context);
    if listened.is_err() {
        machine.stop();
    }
    // Without the machine there is nothing more to read.
    let status = machine.0.wait()?;
    let _ = reading.join();
    let (raw, last) = listened?;
    ensure!(status.success(), "the virtual machine ended with {status}:\n{}", last.join("\n"));
    raw.with_context(|| format!("the virtual machine brings nothing back:\n{}", last.join("\n")))
}

/// The raw data, and the last lines of all else, up to the end of what the machine says.
fn listen(told: &Receiver<String>, context: &Context) -> Result<(Option<String>, Vec<String>)> {
    let (mut raw, mut whole, mut last) = (None::<String>, false, Vec::new());
    loop {
        if context.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let line = match told.recv_timeout(LOOKS) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok((raw.filter(|_| whole), last)),
        };
        match &mut raw {
            None if line == BEGINS => raw = Some(String::new()),
            Some(_) if line == ENDS => whole = true,
            Some(raw) if !whole => *raw += &(line + "\n"),
            _ => {
                if line.contains(" measurements") {
                    (context.progress)(&line);
                }
                if last.len() == LAST {
                    last.remove(0);
                }
                last.push(line);
            }
        }
    }
}

/// The script that runs the machine; dropped, both end.
struct Machine(Child);

impl Machine {
    /// Has the script end the machine and take its files away.
    fn stop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.stop();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> (Option<String>, Vec<String>) {
        let (tell, told) = channel();
        lines.iter().for_each(|line| tell.send((*line).to_owned()).unwrap());
        drop(tell);
        listen(&told, &Context::default()).unwrap()
    }

    #[test]
    fn raw_data_are_what_stands_between_their_marks_and_half_of_them_are_none() {
        let (raw, last) = heard(&["ok: booted", BEGINS, "{", "}", ENDS, "PASS"]);
        assert_eq!(raw.as_deref(), Some("{\n}\n"));
        assert_eq!(last, ["ok: booted", "PASS"]);
        assert_eq!(heard(&[BEGINS, "{"]).0, None);
        let (raw, last) = heard(&["FAIL: no module veth"]);
        assert_eq!((raw, last), (None, vec!["FAIL: no module veth".to_owned()]));
        let many: Vec<String> = (0..2 * LAST).map(|n| n.to_string()).collect();
        let (_, last) = heard(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((last.len(), last[0].as_str()), (LAST, "60"));
    }
}
