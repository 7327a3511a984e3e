//! `dormoused`: the configuration, a node, an event loop around it, and a control socket. A library with one function, because packages
//! have the daemon and the command line in one program, of which each has its name (docs/packager.md).

mod args;
mod audit;
mod block;
mod cluster;
mod daemon;
mod datapath;
mod denials;
mod drain;
mod driver;
mod engine;
mod features;
mod forward;
mod helpers;
#[cfg(feature = "hip")]
mod hip;
#[cfg(not(feature = "hip"))]
#[path = "without/hip.rs"]
mod hip;
mod joining;
mod keeper;
mod kernel;
mod leases;
#[cfg(feature = "sqlite")]
mod lineages;
#[cfg(not(feature = "sqlite"))]
#[path = "without/lineages.rs"]
mod lineages;
mod load;
mod machine;
mod marked_names;
mod metrics;
mod names;
mod neighbours;
mod news;
mod public_keys;
mod radio;
mod radius;
mod redirect;
mod rekey;
mod reload;
mod removal;
mod renewals;
mod router;
mod scrape;
mod setup;
mod sheet;
mod sleep_status;
mod stats;
mod status;
mod store;
mod tally;
mod turns;
mod users;
mod verbs;
mod ways;
pub mod workers;

use anyhow::Result;
use clap::Parser;
use dormouse_io::clock::unix_now;
use dormouse_node::config::{self, Finding};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// The words that make this program a guard instead of the daemon: the daemon starts itself so, before it gives its privileges away.
const DNS_GUARD: &str = "dns-guard";
const RADIO_GUARD: &str = "radio-guard";
const NEIGHBOUR_GUARD: &str = "neighbour-guard";
const BLOCK_GUARD: &str = "block-guard";
const FORWARD_GUARD: &str = "forward-guard";
const READER: &str = "configuration-reader";

/// Serves as the guard that the first argument names; `None` if it names none.
fn guard() -> Option<Result<()>> {
    let word = std::env::args().nth(1)?;
    if ![DNS_GUARD, RADIO_GUARD, NEIGHBOUR_GUARD, BLOCK_GUARD, FORWARD_GUARD, READER].contains(&word.as_str())
    {
        return None;
    }
    // They go on after the daemon has ended, and log for themselves.
    log_to(Targets::new().with_default(LevelFilter::INFO));
    let served = match word.as_str() {
        DNS_GUARD => {
            dormouse_io::resolver::serve(dormouse_io::resolver::Options::default()).map_err(Into::into)
        }
        RADIO_GUARD => dormouse_io::radio::serve().map_err(Into::into),
        NEIGHBOUR_GUARD => dormouse_io::neighbours::serve().map_err(Into::into),
        READER => reload::serve(),
        of_a_file => {
            let path = std::env::args_os().nth(2).unwrap_or_default();
            if of_a_file == FORWARD_GUARD {
                dormouse_io::forward::serve(path.as_ref()).map_err(Into::into)
            } else {
                dormouse_io::block::serve(path.as_ref()).map_err(Into::into)
            }
        }
    };
    Some(served.map_err(|e: anyhow::Error| e.context(word)))
}

/// The program: its arguments are the process's own, and it ends as this says.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(served) = guard() {
        return match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("dormoused: {}", dormouse_io::causes(&*e));
                ExitCode::FAILURE
            }
        };
    }
    let args = args::Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("dormoused: {}", dormouse_io::causes(&*e));
            ExitCode::from(code(&e))
        }
    }
}

fn run(args: &args::Args) -> Result<()> {
    if args.block_only {
        return block::only(args);
    }
    if args.unblock {
        return block::end();
    }
    let loaded = load::load(args)?;
    let filter = loaded.daemon.log.parse().map_err(|e: tracing_subscriber::filter::ParseError| {
        anyhow::anyhow!("{}: daemon.log: \"{}\": {e}", args.config.display(), loaded.daemon.log)
    })?;
    let findings = config::findings(&loaded.daemon, &loaded.connections, unix_now());
    if args.check {
        let count = loaded.connections.len() + usize::from(loaded.hip.is_some());
        return check(args, count, &findings);
    }
    log_to(filter);
    load::warn(&findings);
    daemon::Daemon::new(loaded, args)?.run()
}

/// `--check`: what makes peers refuse us is a failure; what is merely unwise is said.
fn check(args: &args::Args, connections: usize, findings: &[Finding]) -> Result<()> {
    let (failures, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|f| f.fatal);
    warnings.iter().for_each(|finding| println!("warning: {finding}"));
    if !failures.is_empty() {
        let list = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        anyhow::bail!("{}: {list}", args.config.display());
    }
    let verdict = if warnings.is_empty() { "all fine" } else { "usable" };
    println!("{}: {connections} connection(s), {verdict}", args.config.display());
    Ok(())
}

/// Logs to the journal, with fields and priorities, where systemd has connected standard error to it; otherwise to standard
/// error, in colour only for a person.
fn log_to(filter: Targets) {
    let under_systemd = std::env::var_os("JOURNAL_STREAM").is_some() && !std::io::stderr().is_terminal();
    let journal = under_systemd.then(|| tracing_journald::layer().ok()).flatten();
    let text = journal.is_none().then(|| {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
    });
    tracing_subscriber::registry().with(filter).with(journal).with(text).init();
}

/// 7 for missing privileges, as the command line has it; 10 for a token's PIN, after which the unit starts nothing again; 1 for anything else.
fn code(error: &anyhow::Error) -> u8 {
    if error.is::<load::PinRefused>() {
        return 10;
    }
    let denied = error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
            || matches!(e.downcast_ref(), Some(dormouse_io::privileges::Error::Missing { .. }))
    });
    if denied { 7 } else { 1 }
}
