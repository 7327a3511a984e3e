//! The `resolvconf` program (openresolv, or Debian's). Runs it, within bounds; keeps nothing.

use super::{Error, Settings};
use crate::program;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The longest that the program may run, with the hooks that it starts.
const PATIENCE: Duration = Duration::from_secs(10);

/// The program, unless it is resolvectl under another name, which needs a running systemd-resolved.
pub(super) fn find(directories: &[PathBuf]) -> Result<PathBuf, String> {
    let Some(program) = directories.iter().map(|d| d.join("resolvconf")).find(|p| p.is_file()) else {
        return Err("there is no resolvconf".into());
    };
    match std::fs::canonicalize(&program) {
        Ok(real) if real.file_name().is_some_and(|n| n == "resolvectl") => {
            Err(format!("{} is resolvectl", program.display()))
        }
        _ => Ok(program),
    }
}

/// A record of that name comes early in the order of Debian's resolvconf, which sorts by name.
fn record(interface: &str) -> String {
    format!("tun.{interface}")
}

pub(super) fn set(directories: &[PathBuf], settings: &Settings) -> Result<(), Error> {
    let mut text = String::new();
    for server in &settings.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !settings.domains.is_empty() {
        let _ = writeln!(text, "search {}", settings.domains.join(" "));
    }
    let record = record(&settings.interface);
    let mut arguments = vec!["-a", &record];
    if settings.exclusive {
        // openresolv: metric 0 and exclusive. Debian's ignores what follows the record.
        arguments.extend(["-m", "0", "-x"]);
    }
    run(directories, &arguments, &text)
}

pub(super) fn revert(directories: &[PathBuf], interface: &str) -> Result<(), Error> {
    run(directories, &["-d", &record(interface)], "")
}

fn run(directories: &[PathBuf], arguments: &[&str], input: &str) -> Result<(), Error> {
    let program = find(directories).map_err(Error::Nowhere)?;
    let fail = |problem: String| Error::Resolvconf { program: program.display().to_string(), problem };
    match program::run(&program, arguments, input.as_bytes(), PATIENCE) {
        Ok(Some(outcome)) if outcome.status.success() => Ok(()),
        Ok(Some(outcome)) => Err(fail(outcome.describe())),
        Ok(None) => Err(fail(format!("not within {PATIENCE:?}; it was killed"))),
        Err(e) => Err(fail(e.to_string())),
    }
}
