//! What sessions cost a gateway that only holds them: memory, awake and asleep; processor time while nothing happens; a status; the start
//! after a crash. Many clients come by full handshakes to a `dormoused` as it ships, announce that they sleep, and stay away.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dormouse_benches::{Measured, Summary, Work, arguments};
use dormouse_lab::results::Figures;
use dormouse_report::Table;
use dormouse_testbed::crowd::{Crowd, NETWORKS, Pki, Proof, Site, Task};
use dormouse_testbed::{Dormoused, Need, Testbed, binary, require, resident_memory};
use serde_json::Value;

/// What sessions cost a gateway that only holds them.
#[derive(Parser)]
struct Arguments {
    /// So many clients. A ping names its client in 16 bits.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    sessions: u32,
    /// Whether it works: 1,100 clients. Its figures say little.
    #[arg(long, conflicts_with = "sessions")]
    quick: bool,
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Clients that begin at once: fewer than the default `half_open.puzzle_threshold`, from which on the gateway gives puzzles.
const AT_ONCE: usize = 500;
/// The gateway does nothing for so long, and in a quick run.
const IDLE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];
/// Devices expect to be away for so long.
const AWAY: Duration = Duration::from_secs(3_600);
/// The row.
const ROW: &str = "held";

fn main() -> Result<()> {
    let Arguments { sessions, quick, out } = arguments();
    let sessions = if quick { 1_100 } else { sessions as usize };
    if !require(
        "the benchmark of held sessions",
        &[Need::Root, Need::File("/dev/net/tun"), Need::Program("ip")],
    ) {
        return Ok(());
    }
    let time = IDLE[usize::from(quick)];
    let work: Work<'_> = Box::new(move || once(sessions, time));
    let settings =
        serde_json::json!({ "sessions": sessions, "idle_seconds": time.as_secs_f64(), "quick": quick });
    let mut measured = Measured::of(vec![(ROW.to_owned(), work)], 1, settings, out.as_deref())?;
    measured.program("dormoused", &binary("dormoused"))?;
    measured.keep()?;
    print(&measured, sessions, time);
    Ok(())
}

fn once(sessions: usize, time: Duration) -> Result<Figures> {
    let mut bed = Testbed::new()?;
    let site = Site::new(&mut bed)?;
    let pki = Pki::new(Proof::EcdsaP256)?;
    // The default keeps no more sleepers than 16,384.
    let daemon = format!("dns = \"off\"\nsleeper_limit = {sessions}\n");
    let mut gateway = Dormoused::start(&site.gateway, &daemon, &site.connection(&bed, &pki)?)?;
    let mut crowd = site.crowd(&pki, sessions, NETWORKS, &Default::default())?;
    let figures = Figures::default();

    let empty = memory(&mut gateway);
    let began = Instant::now();
    come(&mut crowd, 0..sessions).with_context(|| gateway.log())?;
    let came = began.elapsed();
    check(&gateway, sessions)?;
    let awake = memory(&mut gateway);
    let figures = idle(&gateway, figures, "awake", time);

    crowd.sleep(sessions, AWAY).with_context(|| gateway.log())?;
    let asleep = memory(&mut gateway);
    let figures = idle(&gateway, figures, "asleep", time);
    let (first, all) = (timed(|| gateway.ok(&["status"]))?, timed(|| gateway.ok(&["status", "--json"]))?);

    gateway.process().kill();
    let start = timed(|| gateway.restart())?;
    // Its disk has all leases, and what became of tickets: one comes back.
    crowd.release(&[(sessions - 1, Task::Quick)], || ()).with_context(|| gateway.log())?;
    check(&gateway, 1)?;
    Ok(figures
        .with("sessions.up", sessions as f64)
        .with("memory.empty", empty)
        .with("memory.awake", awake)
        .with("memory.asleep", asleep)
        .with("took.all", millis(came))
        .with("took.status", millis(first))
        .with("took.list", millis(all))
        .with("took.start", millis(start)))
}

/// Clients come, some at a time.
fn come(crowd: &mut Crowd, numbers: Range<usize>) -> Result<()> {
    let all: Vec<(usize, Task)> = numbers.map(|number| (number, Task::Full)).collect();
    for some in all.chunks(AT_ONCE) {
        let outcome = crowd.release(some, || ())?;
        ensure!(outcome.failed.is_empty(), "{:?}", outcome.failed.first());
    }
    Ok(())
}

/// The gateway lists as many sessions of different peers as there should be.
fn check(gateway: &Dormoused, count: usize) -> Result<()> {
    let status = gateway.ok(&["status", "--json"])?.json;
    let sessions = status.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
    let mut peers: Vec<&str> =
        sessions.context("no sessions in the status")?.iter().filter_map(|s| s["peer"].as_str()).collect();
    peers.sort_unstable();
    peers.dedup();
    ensure!(peers.len() == count, "the gateway has sessions of {} peers, not of {count}", peers.len());
    Ok(())
}

/// Processor time of the gateway while nothing happens.
fn idle(gateway: &Dormoused, figures: Figures, when: &str, time: Duration) -> Figures {
    let before = gateway.cpu();
    std::thread::sleep(time);
    figures.with(&format!("cpu.{when}"), millis(gateway.cpu().saturating_sub(before)))
}

fn memory(gateway: &mut Dormoused) -> f64 {
    resident_memory(gateway.process().pid()) as f64 / 1e6
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn print(measured: &Measured, sessions: usize, time: Duration) {
    let of = |name: &str| Summary::of(measured.figure(ROW, name).into_values()).median;
    let kilobytes = |name: &str| (of(name) - of("memory.empty")) * 1e3 / sessions as f64;
    println!(
        "{sessions} sessions of devices (ECDSA P-256) at one gateway, which came in {:.1} s.",
        of("took.all") / 1e3
    );
    let mut table = Table::new(["", "awake", "asleep"]);
    let kb = ["memory.awake", "memory.asleep"].map(|name| format!("{:.1}", kilobytes(name)));
    table.row(["resident memory, kB a session".to_owned()].into_iter().chain(kb));
    let share = |name: &str| format!("{:.2}", of(name) / (time.as_secs_f64() * 1e3) * 100.0);
    let idle = ["cpu.awake", "cpu.asleep"].map(share);
    table.row(["processor while nothing happens, % of a core".to_owned()].into_iter().chain(idle));
    print!("{}", table.text(""));
    println!(
        "dormouse status takes {:.0} ms, and {:.0} ms with all sessions (--json); the daemon answers {:.0} ms after it was started again, with its disk.",
        of("took.status"),
        of("took.list"),
        of("took.start")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_has_a_number_of_sessions() {
        let parsed = |args: &[&str]| Arguments::try_parse_from([&["held"], args].concat());
        assert_eq!(parsed(&[]).map(|a| a.sessions).ok(), Some(20_000));
        for wrong in [&["--sessions", "0"][..], &["--sessions", "100001"], &["--quick", "--sessions", "9"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
