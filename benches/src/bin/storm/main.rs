//! A storm of handshakes at a gateway, and what it does to a client that is there already: while clients make full handshakes with RSA-2048
//! certificates and as many others resume by ticket, all at once, another client pings through the gateway, or sends a TCP stream.
//!
//! The gateway and that client are `dormoused` processes as they ship, the crowd is `dormouse_testbed::crowd` in this process, each in a network
//! namespace of its own. The gateway has one core, as a machine of its own would, and all others share the rest, where the crowd's thread steps
//! back: by its niceness where ping is measured, by subtracting what it used where the stream is. Each storm begins at a gateway that was killed
//! and started again: that is when clients come back at once.

mod beside;
mod report;
mod stage;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use dormouse_benches::{Measured, Work, arguments};
use dormouse_io::clock::BootClock;
use dormouse_lab::results::Figures;
use dormouse_sansio::Instant;
use dormouse_testbed::crowd::{Pki, Proof};
use dormouse_testbed::{Need, binary, require};

use beside::{Pings, Stream};
use stage::{Stage, Storm};

/// What a storm of handshakes does to ping and TCP of another client of the same gateway.
#[derive(Parser)]
struct Arguments {
    /// So many clients make full handshakes, and as many others resume.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    clients: u16,
    /// Rounds that count; one more comes first and does not.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Whether it works: 100 clients of either kind, one round, and a crowd of the usual priority. Its figures say little.
    #[arg(long, conflicts_with_all = ["clients", "rounds"])]
    quick: bool,
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The idle gateway is measured so long, before each storm.
const IDLE: Duration = Duration::from_secs(2);
/// What goes on beside the idle gateway and the storm runs so long before anything of it counts.
const SETTLES: Duration = Duration::from_secs(1);
/// And so long after the storm: what is under way then comes or is lost.
const ENDS: Duration = Duration::from_secs(1);

/// A row: what goes on beside the storm, and whether the crowd comes last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    /// Nothing but the storm: what it costs the gateway.
    Nothing,
    /// Pings. The crowd has what they and the daemons leave of the cores.
    Ping,
    /// A TCP stream, which leaves nothing of the cores: beside it a crowd that stands back makes no storm. It has its fair share of them, which is
    /// told, and taken off.
    Stream,
}

impl Beside {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Ping, Self::Stream];

    /// Of the row, in the tables and in raw data.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "storm alone",
            Self::Ping => "ping beside it",
            Self::Stream => "TCP beside it",
        }
    }

    /// Whether the crowd's thread comes after all others.
    const fn crowd_last(self, quick: bool) -> bool {
        match self {
            Self::Nothing => true,
            // On a machine that others keep busy the last may be left out for so long that its clients give up.
            Self::Ping => !quick,
            Self::Stream => false,
        }
    }
}

fn main() -> Result<()> {
    let Arguments { clients, rounds, quick, out } = arguments();
    let (clients, rounds) = if quick { (100, 1) } else { (usize::from(clients), rounds) };
    let programs = ["ip", "ping", "renice", "taskset"].map(Need::Program);
    let needs = [&[Need::Root, Need::File("/dev/net/tun")], &programs[..]].concat();
    if !require("the storm benchmark", &needs) {
        return Ok(());
    }
    // Before this process leaves one of them to the gateway.
    let cores = std::thread::available_parallelism()?.get();
    let pki = Pki::new(Proof::Rsa2048)?;
    let stage = RefCell::new(None);
    let rows = Beside::ALL.map(|beside| -> (String, Work<'_>) {
        let (stage, pki) = (&stage, &pki);
        (
            beside.name().to_owned(),
            Box::new(move || {
                let stage = &mut stage.borrow_mut();
                on(stage, pki, (clients, cores), beside, beside.crowd_last(quick))
            }),
        )
    });
    let settings = serde_json::json!({
        "full_handshakes": clients, "resumptions": clients, "pings_per_second": 1.0 / beside::INTERVAL,
        "idle_seconds": IDLE.as_secs_f64(), "congestion": beside::CONGESTION, "crowd_nice": stage::LAST, "quick": quick, "cores": cores,
    });
    let mut measured = Measured::of(rows.into(), rounds, settings, out.as_deref())?;
    // Before the report: namespaces and processes are not needed any more.
    drop(stage.take());
    measured.program("dormoused", &binary("dormoused"))?;
    measured.keep()?;
    report::print(&measured, clients, cores);
    Ok(())
}

/// Measures once on the stage, which is built where there is none. What fails leaves none: the next one begins with another.
fn on(
    stage: &mut Option<Stage>,
    pki: &Pki,
    (clients, cores): (usize, usize),
    beside: Beside,
    last: bool,
) -> Result<Figures> {
    let mut standing = match stage.take() {
        Some(standing) => standing,
        None => Stage::build(pki, clients, cores).context("setting the stage")?,
    };
    eprintln!("{}", beside.name());
    let figures = once(&mut standing, beside, last)?;
    *stage = Some(standing);
    Ok(figures)
}

/// A storm of a crowd of the usual priority, or one that comes `last`, with what goes on beside it.
fn once(stage: &mut Stage, beside: Beside, last: bool) -> Result<Figures> {
    stage.prepare()?;
    match beside {
        Beside::Nothing => Ok(stage.storm(last)?.figures()),
        Beside::Ping => {
            let pings = Pings::begin(stage)?;
            let (idle, storm) = idle_and_storm(stage, last)?;
            let pings = pings.end()?;
            let [idle, during] = [idle, storm.busy()].map(|[from, to]| pings.between(from, to));
            let lost = |pings: &[Option<f64>]| pings.iter().filter(|p| p.is_none()).count() as f64;
            Ok(storm
                .figures()
                .with("lost.idle", lost(&idle))
                .with("lost.storm", lost(&during))
                .with_all("ping.idle", idle.into_iter().flatten())
                .with_all("ping.storm", during.into_iter().flatten()))
        }
        Beside::Stream => {
            let stream = Stream::begin(stage)?;
            let (idle, storm) = idle_and_storm(stage, last)?;
            let arrived = stream.end()?;
            let [idle, during] =
                [idle, storm.busy()].map(|window| (arrived.rate(window), arrived.stall(window)));
            Ok(storm
                .figures()
                .with("rate.idle", idle.0)
                .with("rate.storm", during.0)
                .with("stall.idle", idle.1)
                .with("stall.storm", during.1))
        }
    }
}

/// When the gateway was idle, and the storm that followed.
fn idle_and_storm(stage: &mut Stage, last: bool) -> Result<([Instant; 2], Storm)> {
    std::thread::sleep(SETTLES);
    let from = BootClock::now();
    std::thread::sleep(IDLE);
    let idle = [from, BootClock::now()];
    let storm = stage.storm(last)?;
    std::thread::sleep(ENDS);
    Ok((idle, storm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_has_a_size_and_refuses_none() {
        let parsed = |args: &[&str]| Arguments::try_parse_from([&["storm"], args].concat());
        let read = parsed(&["--clients", "300", "--rounds", "2", "--out", "raw.json"]).expect("read");
        assert_eq!((read.clients, read.rounds, read.quick), (300, 2, false));
        assert_eq!(parsed(&[]).map(|a| (a.clients, a.rounds)).ok(), Some((1_000, 5)));
        for wrong in [
            &["--clients", "0"][..],
            &["--clients", "10001"],
            &["--rounds", "0"],
            &["--quick", "--clients", "9"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
