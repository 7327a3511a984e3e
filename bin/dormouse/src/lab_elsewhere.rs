//! The verbs of [`crate::lab_verbs`] in a program that does not have them: it becomes `dormouse-lab`, which is this program with them,
//! beside this one or on the `PATH`. Owns the names alone; what they take is parsed there.
#![cfg_attr(test, allow(dead_code, reason = "compiled into tests for the names alone"))]

use clap::{Args, Subcommand};
use dormouse_control::{Error, ErrorKind};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const PROGRAM: &str = "dormouse-lab";
/// The process that becomes it.
const BECOMES: &str = "DORMOUSE_BECOMES";

/// Verbs that measure
#[derive(Debug, Subcommand)]
pub(crate) enum LabVerb {
    /// What sleeping would save on recorded traffic
    #[command(disable_help_flag = true, long_about = ABOUT)]
    Trace(Rest),
    /// Recommend security settings for this device, with evidence
    #[command(disable_help_flag = true, long_about = ABOUT)]
    Advise(Rest),
    /// Measure this device's own energy figures, and write them as a profile
    #[command(disable_help_flag = true, long_about = ABOUT)]
    Calibrate(Rest),
    /// Measure what each security setting costs on this machine: speed, CPU time and energy
    #[command(disable_help_flag = true, long_about = ABOUT)]
    Bench(Rest),
    /// Repeat the experiments of papers
    #[command(disable_help_flag = true, long_about = ABOUT)]
    Lab(Rest),
    /// Watch a device roam, sleep and wake inside its VPN, between network namespaces on this machine
    #[command(disable_help_flag = true, long_about = ABOUT)]
    Demo(Rest),
}

const ABOUT: &str =
    "This verb is the program dormouse-lab's, of the package of that name: its own --help says what it takes";

/// What the other program parses.
#[derive(Debug, Args)]
pub(crate) struct Rest {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl LabVerb {
    /// Becomes the program that has the verb; returns only if there is none.
    pub(crate) fn run(&self) -> Error {
        let error = become_it();
        let message = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "this verb needs the program dormouse-lab, which is not installed".into()
            }
            _ => format!("{PROGRAM}: {error}"),
        };
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => ErrorKind::Permission,
            _ => ErrorKind::Other,
        };
        Error::new(kind, message).with_change("install the package dormouse-lab")
    }
}

/// A shell asks for completions: the program that has all verbs answers, if it is there.
pub(crate) fn complete() {
    if std::env::var_os(crate::completions::VARIABLE).is_some() {
        let _not_there = become_it();
    }
}

/// With the same arguments, and by the same name: results say by which command they were made. A program of that name that has no lab itself, as a
/// link to this one, would become itself for ever: the process stays the same, and says so to whom it becomes.
fn become_it() -> std::io::Error {
    let own = std::process::id().to_string();
    if std::env::var(BECOMES).is_ok_and(|before| before == own) {
        return std::io::Error::other(
            "it has no lab itself: it is not the program of the package dormouse-lab",
        );
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "dormouse".into());
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name(PROGRAM)).filter(|p| p.is_file());
    Command::new(beside.unwrap_or_else(|| PROGRAM.into())).arg0(name).args(arguments).env(BECOMES, own).exec()
}
