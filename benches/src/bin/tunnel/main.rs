//! The tunnel between two hosts: TCP, datagrams without loss, and ping; through our daemons as they ship and on every other path that a
//! user can be on, and through what they are compared with in the same run: the path without a tunnel, our own forwarding without
//! cryptography, wireguard-go of today and of Debian, and Debian's strongSwan with ESP in user space (kernel-libipsec).
//!
//! Each subject has two network namespaces of its own with a veth pair (MTU 1500) between them, and stays up during the whole
//! run, so that the repetitions can be interleaved. Before anything is timed, a known stream of bytes must pass unchanged.
//!
//! `tunnel [--congestion NAME] [SUBJECT...]`: with this congestion control alone instead of the machine's own and cubic (those it has are in
//! `/proc/sys/net/ipv4/tcp_available_congestion_control`), and only these subjects, by the names in the table.
//! `tunnel --starts N [--congestion NAME] SUBJECT OTHER...`: TCP through the first against each other one, all started anew N times.
//! `tunnel --sweep`: removes what a killed run left behind.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

mod datagrams;
mod measure;
mod report;
mod starts;
mod subjects;

use anyhow::{Context, Result, ensure};
use dormouse_benches::{Measured, Work, bare_cipher};
use dormouse_lab::results::Figures;
use dormouse_testbed::{Need, Testbed, require};

use datagrams::Carried;
use measure::Tcp;
use subjects::{KINDS, Kind, Subject, TUNNEL_MTU};

const REPETITIONS: u32 = 5;
/// Bytes of payload of the datagrams.
const DATAGRAMS: [usize; 2] = [64, 1_300];
/// Streams at once, where there are several.
const STREAMS: u32 = 4;

/// What is measured once of a subject, outside the rounds. `None` where it could not be: the reason is on standard error.
struct Once {
    idle: Option<[f64; 2]>,
    loaded: Option<[f64; 2]>,
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
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.iter().any(|arg| arg == "--sweep") {
        return Testbed::new().map(drop);
    }
    let ways = ways(&congestion(&mut wanted)?);
    let starts = value(&mut wanted, "--starts")?.map(|n| n.parse::<u32>().context("--starts needs a number"));
    let unknown = wanted.iter().find(|w| KINDS.iter().all(|kind| kind.name() != w.as_str()));
    ensure!(unknown.is_none(), "no subject is called {unknown:?}");
    let needs = [Need::Root, Need::Program("ip"), Need::Program("iperf3"), Need::File("/dev/net/tun")];
    if !require("the tunnel benchmark", &needs) {
        return Ok(());
    }
    if let Some(starts) = starts.transpose()? {
        let kind = |name: &String| KINDS.into_iter().find(|kind| kind.name() == name.as_str());
        let kinds: Vec<Kind> = wanted.iter().filter_map(kind).collect();
        ensure!(kinds.len() > 1, "--starts compares a subject with others: which?");
        starts::compare(&kinds, &ways, starts);
        return Ok(());
    }
    let mut bed = Testbed::new()?;
    let mut subjects = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| wanted.is_empty() || wanted.iter().any(|w| w == kind.name()))
    {
        // One that does not come up costs its own row, not those of the others.
        match Subject::start(&mut bed, kind).and_then(|s| measure::verify(&s).map(|()| s)) {
            Ok(subject) => subjects.push(subject),
            Err(error) => eprintln!("{}: not measured: {error:#}", kind.name()),
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
    let streams = Measured::of(streams.chain([cipher]).collect(), REPETITIONS)?;
    let [usual, ..] = &ways[..] else { return Ok(()) };
    let once: Vec<Once> = subjects.iter().zip(pings).map(|(s, idle)| once(s, idle, usual)).collect();
    report::print(&subjects, &ways, &streams, &once);
    Ok(())
}

/// What is measured besides, after the streams.
fn once(subject: &Subject, idle: Option<[f64; 2]>, how: &Tcp) -> Once {
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

/// The congestion control that is asked for, taken out of the arguments; or the machine's own, and what Linux has by default.
fn congestion(args: &mut Vec<String>) -> Result<Vec<String>> {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    let Some(name) = value(args, "--congestion")? else {
        let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned();
        let others = ["bbr", "cubic"].into_iter().filter(|name| known.split_whitespace().any(|k| k == *name));
        let others: Vec<_> = others.filter(|name| *name != own).map(str::to_owned).collect();
        return Ok([vec![own], others].concat());
    };
    ensure!(known.split_whitespace().any(|k| k == name), "this kernel has {}, and no {name}", known.trim());
    Ok(vec![name])
}

/// What stands behind an option, taken out of the arguments with it.
fn value(args: &mut Vec<String>, option: &str) -> Result<Option<String>> {
    let Some(at) = args.iter().position(|arg| arg == option) else { return Ok(None) };
    ensure!(at + 1 < args.len(), "{option} needs a value");
    Ok(args.drain(at..at + 2).next_back())
}
