//! Gateways that share a database, when one of them is pulled out: its devices come to the others by ticket, all at once, and what is on record afterwards
//! is held against where they are. And what a wake costs with the shared database, one at a time, beside a gateway that has its own.
//!
//! The gateways are `dormoused` processes as they ship, the database is Debian's PostgreSQL with TLS, the devices are `dormouse_testbed::crowd` in this
//! process, and each has a network namespace of its own. They share the machine's cores; the crowd's processor time is printed and subtracted.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

mod books;
mod demo;
mod promoted;
mod pulled;
mod report;
mod stage;
mod wakes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use dormouse_benches::{Measured, Work, arguments};
use dormouse_lab::results::Figures;
use dormouse_testbed::postgres::PROGRAMS;
use dormouse_testbed::{Need, binary, require};

use pulled::Plan;

/// One of three gateways that share a database is pulled out, and its devices come to the others by ticket.
#[derive(Parser)]
struct Arguments {
    /// So many devices at the gateway that is pulled out; with --demo, at all three.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=60_000))]
    devices: Option<u32>,
    /// Rounds that count; one more comes first and does not.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Whether it works: 60 devices, one round, few wakes. Its figures say little.
    #[arg(long, conflicts_with_all = ["devices", "rounds"])]
    quick: bool,
    /// Once, with 1,000 devices that sleep: prints the books. Exit code 1 if one does not balance.
    #[arg(long, conflicts_with_all = ["rounds", "quick", "out"])]
    demo: bool,
    /// The database has two standbys, of which one must have applied each commit. Measured: the same once more, with them, and the ratio. With --demo:
    /// one of them is killed on the way, and at the end the database, whose place the other one takes.
    #[arg(long)]
    standbys: bool,
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The rows.
pub(crate) const PULLED: &str = "a gateway is pulled out";
/// That with synchronous standbys.
pub(crate) const FOLLOWED: &str = "a gateway is pulled out, with standbys";
pub(crate) const WAKES: &str = "wakes, one at a time";

fn main() -> Result<ExitCode> {
    let arguments: Arguments = arguments();
    let needs = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ip"), Need::File(PROGRAMS)];
    if !require("gateways that share a database", &needs) {
        return Ok(ExitCode::from(if arguments.demo { 7 } else { 0 }));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let done = match arguments.demo {
        true => demo::run(arguments.devices.map_or(1_000, |n| n as usize), arguments.standbys, &interrupted),
        false => measure(&arguments, &interrupted),
    };
    // Control-C reaches the daemons and the database as well, and explains every failure after it.
    done.map_err(|e| match interrupted.load(Ordering::Relaxed) {
        true => anyhow!("interrupted; what it made is removed"),
        false => e,
    })
}

fn measure(arguments: &Arguments, interrupted: &Arc<AtomicBool>) -> Result<ExitCode> {
    let Arguments { devices, rounds, quick, standbys, out, .. } = arguments;
    let devices = if *quick { 60 } else { devices.map_or(10_000, |n| n as usize) };
    let (rounds, wakes) = if *quick { (1, 10) } else { (*rounds, wakes::COUNT) };
    let cores = std::thread::available_parallelism()?.get();
    let pulled = |followed: bool| -> Result<Figures> {
        eprintln!("{}", if followed { FOLLOWED } else { PULLED });
        let plan = Plan { devices, all_there: true, all_asleep: false, followed, one_dies: false };
        let (story, _stage) = pulled::tell(plan, interrupted)?;
        ensure!(story.after.faults.is_empty(), "the books do not balance: {}", story.after.faults.join("; "));
        Ok(story.figures())
    };
    let one_at_a_time = || {
        eprintln!("{WAKES}");
        wakes::figures(wakes, interrupted)
    };
    let mut rows: Vec<(String, Work<'_>)> = vec![
        (PULLED.to_owned(), Box::new(move || pulled(false))),
        (WAKES.to_owned(), Box::new(one_at_a_time)),
    ];
    if *standbys {
        rows.push((FOLLOWED.to_owned(), Box::new(move || pulled(true))));
    }
    let settings = serde_json::json!({ "devices": devices, "wakes": wakes, "quick": quick, "cores": cores, "standbys": standbys });
    let mut measured = Measured::of(rows, rounds, settings, out.as_deref())?;
    ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
    measured.program("dormoused", &binary("dormoused"))?;
    measured.keep()?;
    report::print(&measured, devices, cores, *standbys);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_a_demo_or_a_benchmark() {
        let parsed = |args: &[&str]| Arguments::try_parse_from([&["failover"], args].concat());
        let read = parsed(&["--devices", "300", "--rounds", "2", "--out", "raw.json"]).expect("read");
        assert_eq!((read.devices, read.rounds, read.quick, read.demo), (Some(300), 2, false, false));
        assert!(parsed(&["--demo", "--devices", "30"]).is_ok_and(|read| read.demo && !read.standbys));
        assert!(parsed(&["--demo", "--standbys"]).is_ok_and(|read| read.demo && read.standbys));
        for wrong in [
            &["--devices", "5"][..],
            &["--rounds", "0"],
            &["--quick", "--devices", "9"],
            &["--demo", "--quick"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
