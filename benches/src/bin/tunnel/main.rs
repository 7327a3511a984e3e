//! The tunnel between two hosts: TCP, datagrams without loss, and ping; through our daemons as they ship and on every other path that a
//! user can be on, and through what they are compared with in the same run: the path without a tunnel, our own forwarding without
//! cryptography, wireguard-go of today and of Debian, and Debian's strongSwan with ESP in user space (kernel-libipsec).
//!
//! Each subject has two network namespaces of its own with a veth pair (MTU 1500) between them, and stays up during the whole
//! run, so that the repetitions can be interleaved. Before anything is timed, a known stream of bytes must pass unchanged.
//!
//! Each start of `--starts` makes all of them anew, and `--out` keeps raw data and provenance.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

mod datagrams;
mod measure;
mod report;
mod starts;
mod subjects;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use dormouse_benches::{Measured, Work, arguments, bare_cipher, wrong};
use dormouse_lab::results::Figures;
use dormouse_testbed::{Need, Testbed, binary, require};

use datagrams::Carried;
use measure::Tcp;
use subjects::{KINDS, Kind, Subject, TUNNEL_MTU};

/// The tunnel between two hosts: TCP, datagrams without loss, and ping, on every path and through what it is compared with.
#[derive(Parser)]
struct Arguments {
    /// Remove what a killed run left behind, and nothing else.
    #[arg(long, exclusive = true)]
    sweep: bool,
    /// TCP through the first subject against each other one, all started anew so often.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    starts: Option<u32>,
    /// This congestion control alone, instead of the machine's own, BBR and cubic: one of /proc/sys/net/ipv4/tcp_available_congestion_control.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only these subjects, by their names in the table; all of them without any.
    #[arg(value_name = "SUBJECT", value_parser = PossibleValuesParser::new(KINDS.map(Kind::name)))]
    subjects: Vec<String>,
}

const REPETITIONS: u32 = 5;
/// Bytes of payload of the datagrams.
const DATAGRAMS: [usize; 2] = [64, 1_300];
/// Streams at once, where there are several.
const STREAMS: u32 = 4;

/// What is measured once of a subject, outside the rounds. `None` where it could not be: the reason is on standard error.
struct Once {
    /// Round trips in microseconds.
    idle: Option<Vec<f64>>,
    /// The same beside a stream.
    loaded: Option<Vec<f64>>,
    datagrams: [Option<Carried>; 2],
    system_calls: Option<f64>,
    /// After all else.
    memory: f64,
}

/// The row of the cipher alone.
const CIPHER: &str = "AES-128-GCM alone";

/// The row of a subject through which TCP is used in a way.
fn row(subject: Kind, how: &Tcp) -> String {
    format!("{}: {}", subject.name(), how.name())
}

fn main() -> Result<()> {
    let Arguments { sweep, starts, congestion, out, subjects: wanted } = arguments();
    if sweep {
        return Testbed::new().map(drop);
    }
    let ways = ways(&congestions(congestion)?);
    if starts.is_some() && wanted.len() < 2 {
        wrong("--starts compares a subject with others: which?");
    }
    let needs = [Need::Root, Need::Program("ip"), Need::Program("iperf3"), Need::File("/dev/net/tun")];
    if !require("the tunnel benchmark", &needs) {
        return Ok(());
    }
    if let Some(starts) = starts {
        let kind = |name: &String| KINDS.into_iter().find(|kind| kind.name() == name.as_str());
        let kinds: Vec<Kind> = wanted.iter().filter_map(kind).collect();
        return starts::compare(&kinds, &ways, starts, out.as_deref());
    }
    let mut bed = Testbed::new()?;
    let (mut subjects, mut missing) = (Vec::new(), Vec::new());
    for kind in KINDS.into_iter().filter(|kind| wanted.is_empty() || wanted.iter().any(|w| w == kind.name()))
    {
        // One that does not come up costs its own row, not those of the others.
        match Subject::start(&mut bed, kind).and_then(|s| measure::verify(&s).map(|()| s)) {
            Ok(subject) => subjects.push(subject),
            Err(error) => {
                eprintln!("{}: not measured: {error:#}", kind.name());
                missing.push((kind.name(), format!("{error:#}")));
            }
        }
    }
    let pings: Vec<_> = subjects.iter().map(|s| said(s, "ping", measure::ping(s))).collect();
    let streams = subjects.iter().flat_map(|subject| {
        ways.iter().map(move |how| -> (String, Work<'_>) {
            (row(subject.kind, how), Box::new(move || measure::tcp(subject, how)))
        })
    });
    let cipher = || Ok(Figures::default().with("packet", bare_cipher(TUNNEL_MTU.into())?));
    let cipher: (String, Work<'_>) = (CIPHER.to_owned(), Box::new(cipher));
    let rows = streams.chain([cipher]).collect();
    let measured = Measured::of(rows, REPETITIONS, settings(REPETITIONS), out.as_deref())?;
    let mut streams = with_daemon(measured);
    missing.iter().for_each(|(what, why)| streams.skip(what, why));
    streams.keep()?;
    let [usual, ..] = &ways[..] else { return Ok(()) };
    let once: Vec<Once> = subjects.iter().zip(pings).map(|(s, idle)| once(s, idle, usual)).collect();
    subjects.iter().zip(&once).for_each(|(s, once)| streams.add(s.kind.name(), once.figures()));
    streams.keep()?;
    report::print(&subjects, &ways, &streams, &once);
    Ok(())
}

/// What all rows share.
fn settings(rounds: u32) -> serde_json::Value {
    serde_json::json!({ "stream_seconds": measure::SECONDS, "rounds_of_a_start": rounds, "outer_mtu": 1_500 })
}

/// With the program that carries the packets; where it is not built, its subjects say so themselves.
fn with_daemon(mut measured: Measured) -> Measured {
    if let Err(error) = measured.program("dormoused", &binary("dormoused")) {
        eprintln!("dormoused: {error:#}");
    }
    measured
}

impl Once {
    /// As raw data have it; what was not measured is absent.
    fn figures(&self) -> Figures {
        let mut figures = Figures::default().with("calls", self.system_calls).with("memory", self.memory);
        for (name, times) in [("ping", &self.idle), ("ping_loaded", &self.loaded)] {
            if let Some(times) = times {
                figures = figures.with_all(name, times.iter().copied());
            }
        }
        for (bytes, carried) in DATAGRAMS.iter().zip(&self.datagrams) {
            if let Some(carried) = carried {
                figures = figures
                    .with(&format!("datagrams.{bytes}"), carried.kpps * 1e3)
                    .with(&format!("datagram.{bytes}"), carried.cpu)
                    .with(
                        &format!("sender_is_the_limit.{bytes}"),
                        f64::from(u8::from(carried.sender_is_the_limit)),
                    );
            }
        }
        figures
    }
}

/// What is measured besides, after the streams.
fn once(subject: &Subject, idle: Option<Vec<f64>>, how: &Tcp) -> Once {
    let tunnel = !subject.pids.is_empty();
    let loaded = said(subject, "ping under load", measure::ping_under_load(subject, how));
    let datagrams = DATAGRAMS.map(|bytes| {
        let carried = tunnel.then(|| said(subject, "datagrams", datagrams::lossless(subject, bytes)));
        carried.flatten().flatten()
    });
    let calls = tunnel.then(|| said(subject, "system calls", measure::system_calls(subject, how)));
    Once { idle, loaded, datagrams, system_calls: calls.flatten(), memory: measure::memory(subject) }
}

/// What was measured; an error is said.
fn said<T>(subject: &Subject, what: &str, measured: Result<T>) -> Option<T> {
    measured.inspect_err(|error| eprintln!("{}: no {what}: {error:#}", subject.kind.name())).ok()
}

/// The ways in which TCP is used: first as most of it is here, then with each thing changed.
fn ways(congestion: &[String]) -> Vec<Tcp> {
    let one = |name: &String| Tcp { congestion: name.clone(), streams: 1, back: false };
    let several = congestion.iter().take(1).map(|name| Tcp { streams: STREAMS, ..one(name) });
    let back = congestion.iter().take(1).map(|name| Tcp { back: true, ..one(name) });
    congestion.iter().map(one).chain(several).chain(back).collect()
}

/// The congestion control that is asked for; or the machine's own, and what Linux has by default.
fn congestions(asked: Option<String>) -> Result<Vec<String>> {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    let Some(name) = asked else {
        let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned();
        let others = ["bbr", "cubic"].into_iter().filter(|name| known.split_whitespace().any(|k| k == *name));
        let others: Vec<_> = others.filter(|name| *name != own).map(str::to_owned).collect();
        return Ok([vec![own], others].concat());
    };
    if !known.split_whitespace().any(|k| k == name) {
        wrong(format!("this kernel has {}, and no {name}", known.trim()));
    }
    Ok(vec![name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_subjects_and_refuses_others() {
        let parsed = |args: &[&str]| Arguments::try_parse_from([&["tunnel"], args].concat());
        let read =
            parsed(&["--starts", "76", "dormouse-hip", "dormouse", "--out", "raw.json"]).expect("read");
        assert_eq!((read.starts, read.subjects.len(), read.sweep), (Some(76), 2, false));
        assert_eq!((read.subjects[0].as_str(), read.out), ("dormouse-hip", Some(PathBuf::from("raw.json"))));
        for wrong in [&["no-such-subject"][..], &["--starts"], &["--starts", "many"], &["--fast"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Raw data have all that the tables show, and nothing in the place of what was not measured.
    #[test]
    fn what_is_measured_once_is_kept() {
        let carried = Carried { kpps: 300.0, cpu: 2_300.0, sender_is_the_limit: true };
        let (idle, datagrams) = (Some(vec![80.0, 90.0]), [Some(carried), None]);
        let figures = Once { idle, loaded: None, datagrams, system_calls: None, memory: 9.5 }.figures();
        assert_eq!(figures.all("ping"), [80.0, 90.0]);
        assert_eq!(figures.one("datagrams.64"), Some(300_000.0));
        assert_eq!(
            (figures.one("datagram.64"), figures.one("sender_is_the_limit.64")),
            (Some(2_300.0), Some(1.0))
        );
        for absent in ["ping_loaded", "datagrams.1300", "calls"] {
            assert_eq!(figures.one(absent), None, "{absent}");
        }
    }
}
