//! The tunnel between two hosts: one TCP stream, 64-byte datagrams without loss, and ping; through our daemons, and through
//! what they are compared with in the same run: the path without a tunnel, our own forwarding without cryptography, Debian's
//! wireguard-go, and Debian's strongSwan with ESP in user space (kernel-libipsec).
//!
//! Each subject has two network namespaces of its own with a veth pair (MTU 1500) between them, and stays up during the whole
//! run, so that the repetitions can be interleaved. Before anything is timed, a known stream of bytes must pass unchanged.
//!
//! Targets: TCP through our tunnel at least 7 times as fast as through wireguard-go, 12 times as through strongSwan, and 60 %
//! of our plaintext forwarding.
//!
//! `tunnel [--congestion NAME] [SUBJECT...]`: with this congestion control for TCP (the machine's own if none is named; those it has are
//! in `/proc/sys/net/ipv4/tcp_available_congestion_control`), and only these subjects, by the names in the table.
//! `tunnel --sweep`: removes what a killed run left behind.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

mod measure;
mod subjects;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use dormouse_benches::{Summary, Target, verdict};
use dormouse_testbed::{Need, Testbed, require};

use measure::Tcp;
use subjects::{KINDS, Kind, Subject};

const REPETITIONS: usize = 5;

/// What was measured of one subject.
struct Figures {
    tcp: Vec<Tcp>,
    udp_kpps: Option<u32>,
    ping: Summary,
}

fn main() -> Result<()> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.iter().any(|arg| arg == "--sweep") {
        return Testbed::new().map(drop);
    }
    let congestion = congestion(&mut wanted)?;
    let unknown = wanted.iter().find(|w| KINDS.iter().all(|kind| kind.name() != w.as_str()));
    ensure!(unknown.is_none(), "no subject is called {unknown:?}");
    let needs = [Need::Root, Need::Program("ip"), Need::Program("iperf3"), Need::File("/dev/net/tun")];
    if !require("the tunnel benchmark", &needs) {
        return Ok(());
    }
    let mut bed = Testbed::new()?;
    let mut subjects = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| wanted.is_empty() || wanted.iter().any(|w| w == kind.name()))
    {
        // One that does not come up costs its own row, not those of the others.
        match Subject::start(&mut bed, kind, &congestion).and_then(|s| measure::verify(&s).map(|()| s)) {
            Ok(subject) => subjects.push(subject),
            Err(error) => eprintln!("{}: not measured: {error:#}", kind.name()),
        }
    }
    let figures = measure_all(&subjects)?;
    report(&figures, &congestion);
    Ok(())
}

/// The congestion control that is asked for, taken out of the arguments.
fn congestion(args: &mut Vec<String>) -> Result<String> {
    let Some(at) = args.iter().position(|arg| arg == "--congestion") else {
        let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
        return Ok(own.trim().to_owned());
    };
    ensure!(at + 1 < args.len(), "--congestion needs a name");
    let name = args.drain(at..at + 2).next_back().unwrap_or_default();
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    ensure!(known.split_whitespace().any(|k| k == name), "this kernel has {}, and no {name}", known.trim());
    Ok(name)
}

fn measure_all(subjects: &[Subject]) -> Result<BTreeMap<Kind, Figures>> {
    let mut figures = BTreeMap::new();
    for subject in subjects {
        let ping = measure::ping(subject)?;
        figures.insert(subject.kind, Figures { tcp: Vec::new(), udp_kpps: None, ping });
    }
    for round in 1..=REPETITIONS {
        eprintln!("TCP, round {round} of {REPETITIONS}");
        for subject in subjects {
            let sample = measure::tcp(subject)?;
            figures.entry(subject.kind).and_modify(|f| f.tcp.push(sample));
        }
    }
    for subject in subjects.iter().filter(|s| s.kind != Kind::Veth) {
        eprintln!("64-byte datagrams, {}", subject.kind.name());
        let kpps = measure::lossless(subject)?;
        figures.entry(subject.kind).and_modify(|f| f.udp_kpps = kpps);
    }
    Ok(figures)
}

fn report(figures: &BTreeMap<Kind, Figures>, congestion: &str) {
    let rates = |kind| -> Vec<f64> {
        figures.get(&kind).map_or_else(Vec::new, |f| f.tcp.iter().map(|t| t.mbits).collect())
    };
    let ratio = |kind| Summary::of_ratios(&rates(Kind::Dormouse), &rates(kind)).median;
    println!(
        "TCP: one stream, {congestion}, median of {REPETITIONS} runs of {} s, interleaved. CPU: of both daemons together.",
        measure::SECONDS
    );
    println!("UDP: the highest of the offered rates of 64-byte datagrams of which less than 1 % was lost.");
    println!(
        "{:<24} {:>11} {:>16} {:>8} {:>6} {:>10} {:>9}",
        "", "TCP Mbit/s", "[least most]", "ours is", "CPU %", "UDP kpps", "ping us"
    );
    for (kind, f) in figures {
        let ours = Some(ratio(*kind)).filter(|r| !r.is_nan());
        let ours = ours.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}x"));
        let (tcp, cpu) = (summary(&f.tcp, |t| t.mbits), summary(&f.tcp, |t| t.cpu_percent));
        println!(
            "{:<24} {:>11.0} {:>16} {:>8} {:>6.0} {:>10} {:>9.0}",
            kind.name(),
            tcp.median,
            format!("[{:.0} {:.0}]", tcp.least, tcp.most),
            ours,
            cpu.median,
            f.udp_kpps.map_or_else(|| "-".to_owned(), |kpps| kpps.to_string()),
            f.ping.median,
        );
    }
    verdict("TCP through the tunnel / wireguard-go", ratio(Kind::WireguardGo), Target::AtLeast(7.0));
    verdict("TCP through the tunnel / strongSwan, libipsec", ratio(Kind::StrongSwan), Target::AtLeast(12.0));
    verdict(
        "TCP through the tunnel / our plaintext forwarding",
        ratio(Kind::Plaintext),
        Target::AtLeast(0.6),
    );
}

fn summary(samples: &[Tcp], of: impl Fn(&Tcp) -> f64) -> Summary {
    Summary::of(samples.iter().map(of).collect())
}
