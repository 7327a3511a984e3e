//! The tunnel between two hosts: one TCP stream, 64-byte datagrams without loss, and ping; through our daemons, and through
//! what they are compared with in the same run: the path without a tunnel, our own forwarding without cryptography, Debian's
//! wireguard-go, and Debian's strongSwan with ESP in user space (kernel-libipsec).
//!
//! Each subject has two network namespaces of its own with a veth pair (MTU 1500) between them, and stays up during the whole
//! run, so that the repetitions can be interleaved. Before anything is timed, a known stream of bytes must pass unchanged.
//!
//! Targets: TCP through our tunnel at least 7 times as fast as through wireguard-go, 12 times as through strongSwan, and 60 %
//! of our plaintext forwarding; through HIP's ESP in BEET mode at least as fast as through our IKEv2 tunnel.
//!
//! `tunnel [--congestion NAME] [SUBJECT...]`: with this congestion control for TCP (the machine's own if none is named; those it has are
//! in `/proc/sys/net/ipv4/tcp_available_congestion_control`), and only these subjects, by the names in the table.
//! `tunnel --sweep`: removes what a killed run left behind.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

mod measure;
mod subjects;

use anyhow::{Result, ensure};
use dormouse_benches::{Measured, Summary, Target, Work, ratio, verdict};
use dormouse_report::Table;
use dormouse_testbed::{Need, Testbed, require};

use subjects::{KINDS, Kind, Subject};

const REPETITIONS: u32 = 5;

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
    let pings = subjects.iter().map(measure::ping).collect::<Result<Vec<_>>>()?;
    let tcp = |subject| -> Work<'_> { Box::new(move || measure::tcp(subject)) };
    let rows = subjects.iter().map(|subject| (subject.kind.name().to_owned(), tcp(subject))).collect();
    let streams = Measured::of(rows, REPETITIONS)?;
    let datagrams = subjects.iter().map(measure::lossless).collect::<Result<Vec<_>>>()?;
    report(&subjects, &pings, &streams, &datagrams, &congestion);
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

fn report(
    subjects: &[Subject],
    pings: &[Summary],
    streams: &Measured,
    datagrams: &[Option<u32>],
    congestion: &str,
) {
    let of = |kind: Kind, name| streams.figure(kind.name(), name);
    let ours = |kind| ratio(&of(Kind::Dormouse, "rate"), &of(kind, "rate"));
    println!(
        "TCP: one stream, {congestion}, median of {REPETITIONS} runs of {} s, interleaved. CPU: of both daemons together.",
        measure::SECONDS
    );
    println!("UDP: the highest of the offered rates of 64-byte datagrams of which less than 1 % was lost.");
    let head = ["", "TCP Mbit/s", "[least most]", "ours is", "CPU %", "UDP kpps", "ping us"];
    let mut table = Table::new(head);
    for ((subject, ping), kpps) in subjects.iter().zip(pings).zip(datagrams) {
        let summary = |name| Summary::of(of(subject.kind, name).into_values());
        let rate = summary("rate");
        let times = Some(ours(subject.kind)).filter(|r| !r.is_nan());
        table.row([
            subject.kind.name().to_owned(),
            format!("{:.0}", rate.median),
            format!("[{:.0} {:.0}]", rate.least, rate.most),
            times.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}x")),
            format!("{:.0}", summary("busy").median),
            kpps.map_or_else(|| "-".to_owned(), |kpps| kpps.to_string()),
            format!("{:.0}", ping.median),
        ]);
    }
    print!("{}", table.text(""));
    verdict("TCP through the tunnel / wireguard-go", ours(Kind::WireguardGo), Target::AtLeast(7.0));
    verdict("TCP through the tunnel / strongSwan, libipsec", ours(Kind::StrongSwan), Target::AtLeast(12.0));
    verdict("TCP through the tunnel / our plaintext forwarding", ours(Kind::Plaintext), Target::AtLeast(0.6));
    let raw = ratio(&of(Kind::Dormouse, "rate"), &of(Kind::Raw, "rate"));
    verdict("TCP as shipped / with ESP as protocol 50", raw, Target::AtLeast(1.0));
    let hip = ratio(&of(Kind::Hip, "rate"), &of(Kind::Dormouse, "rate"));
    verdict("TCP through HIP's BEET mode / our IKEv2 tunnel", hip, Target::AtLeast(1.0));
    let raw = ratio(&of(Kind::Hip, "rate"), &of(Kind::HipRaw, "rate"));
    verdict("TCP through HIP as shipped / with ESP as protocol 50", raw, Target::AtLeast(1.0));
}
