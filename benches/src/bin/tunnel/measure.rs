//! The measurements, the same for every subject: a verified stream, TCP by iperf3, ping, and what the daemons spend.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use dormouse_lab::judge::stats::quantile;
use dormouse_lab::results::Figures;
use dormouse_sansio::{Entropy, Seeded};
use dormouse_testbed::{cpu_time, resident_memory};
use serde_json::Value;

use crate::subjects::Subject;

/// Length of one TCP run.
pub(crate) const SECONDS: u32 = 3;
const VERIFIED_BYTES: usize = 32 << 20;
const VERIFIED_PORT: u16 = 5_999;
/// Nothing takes this long.
const STUCK: Duration = Duration::from_secs(30);
/// Pings of one measurement, and seconds between two.
const PINGS: usize = 300;
const PING_INTERVAL: f64 = 0.01;

/// How TCP is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tcp {
    /// Congestion control of both ends.
    pub(crate) congestion: String,
    /// Streams at once.
    pub(crate) streams: u32,
    /// From the gateway to the client.
    pub(crate) back: bool,
}

impl Tcp {
    /// In a table.
    pub(crate) fn name(&self) -> String {
        let streams =
            if self.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", self.streams) };
        let back = if self.back { ", back" } else { "" };
        format!("{}, {streams}{back}", self.congestion)
    }
}

/// A known stream of bytes arrives as it was sent.
pub(crate) fn verify(subject: &Subject) -> Result<()> {
    let address = SocketAddr::new(subject.target, VERIFIED_PORT);
    let listener = subject.right.run(move || TcpListener::bind(address))??;
    let receiver = std::thread::spawn(move || receive(&listener));
    let mut stream = subject.left.run(move || TcpStream::connect_timeout(&address, STUCK))??;
    stream.set_write_timeout(Some(STUCK))?;
    let (mut source, mut chunk) = (Seeded::new(1), vec![0; 1 << 16]);
    for _ in 0..VERIFIED_BYTES / chunk.len() {
        source.fill(&mut chunk);
        stream.write_all(&chunk).context("sending")?;
    }
    drop(stream);
    receiver.join().map_err(|_| anyhow!("the receiver panicked"))?
}

fn receive(listener: &TcpListener) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(STUCK))?;
    let (mut source, mut expected, mut got) = (Seeded::new(1), vec![0; 1 << 16], vec![0; 1 << 16]);
    for number in 0..VERIFIED_BYTES / expected.len() {
        source.fill(&mut expected);
        stream.read_exact(&mut got).context("receiving")?;
        ensure!(got == expected, "chunk {number} arrived changed");
    }
    Ok(())
}

/// TCP for [`SECONDS`]: received payload in Mbit/s, CPU time of the daemons of both ends in percent of one core, and in nanoseconds for
/// each segment of the greatest size.
pub(crate) fn tcp(subject: &Subject, how: &Tcp) -> Result<Figures> {
    let cpu = || subject.pids.iter().map(|&pid| cpu_time(pid)).sum::<Duration>();
    let (before, start) = (cpu(), Instant::now());
    let (bits, segments) = stream(subject, how, SECONDS)?;
    let busy = cpu().saturating_sub(before);
    let share = busy.as_secs_f64() / start.elapsed().as_secs_f64();
    Ok(Figures::default()
        .with("rate", bits / 1e6)
        .with("busy", 100.0 * share)
        .with("packet", busy.as_nanos() as f64 / segments))
}

/// Received payload in bit/s, and how many segments of the greatest size it makes.
fn stream(subject: &Subject, how: &Tcp, seconds: u32) -> Result<(f64, f64)> {
    let (target, seconds, streams) =
        (subject.target.to_string(), seconds.to_string(), how.streams.to_string());
    let mut command = subject.left.command("iperf3");
    command.args(["-J", "-c", &target, "-t", &seconds, "-P", &streams, "-C", &how.congestion]);
    if how.back {
        command.arg("-R");
    }
    let out = command.output().context("running iperf3")?;
    let answer: Value = serde_json::from_slice(&out.stdout)
        .with_context(|| format!("iperf3: {}", String::from_utf8_lossy(&out.stderr)))?;
    let of = |value: &Value| value.as_f64().with_context(|| format!("iperf3: {}", answer["error"]));
    let received = &answer["end"]["sum_received"];
    let segments = of(&received["bytes"])? / of(&answer["start"]["tcp_mss_default"])?;
    Ok((of(&received["bits_per_second"])?, segments))
}

/// System calls of the daemons for each segment of a TCP stream. In a run of its own: counting them slows them down.
///
/// # Errors
/// Where `perf` is missing or may not count them.
pub(crate) fn system_calls(subject: &Subject, how: &Tcp) -> Result<f64> {
    let pids: Vec<String> = subject.pids.iter().map(u32::to_string).collect();
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ";", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(",")]);
    let perf = perf.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("running perf")?;
    let streamed = stream(subject, how, 2);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(perf.id())?),
        nix::sys::signal::Signal::SIGINT,
    )?;
    let out = perf.wait_with_output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    let count = said.lines().find_map(|line| line.split(';').next()?.parse::<f64>().ok());
    Ok(count.with_context(|| format!("perf: {said}"))? / streamed?.1)
}

/// Megabytes of main memory of both daemons, their programs included.
pub(crate) fn memory(subject: &Subject) -> f64 {
    subject.pids.iter().map(|&pid| resident_memory(pid)).sum::<u64>() as f64 / 1e6
}

/// Round trips of pings, in microseconds.
pub(crate) fn ping(subject: &Subject) -> Result<Vec<f64>> {
    let target = subject.target;
    let line =
        format!("ping -q -c 3 -i 0.1 {target} > /dev/null; ping -c {PINGS} -i {PING_INTERVAL} {target}");
    let out = subject.left.sh(&line)?;
    let times =
        out.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse::<f64>().ok());
    let times: Vec<f64> = times.map(|ms| ms * 1e3).collect();
    ensure!(times.len() > PINGS * 95 / 100, "{} of {PINGS} pings were answered", times.len());
    Ok(times)
}

/// Of round trips the median, and the 99th of a hundred.
pub(crate) fn middle_and_high(times: &[f64]) -> [f64; 2] {
    [0.5, 0.99].map(|q| quantile(times, q).unwrap_or(f64::NAN))
}

/// The same beside a TCP stream.
pub(crate) fn ping_under_load(subject: &Subject, how: &Tcp) -> Result<Vec<f64>> {
    std::thread::scope(|scope| {
        let streamed = scope.spawn(|| stream(subject, how, 5));
        std::thread::sleep(Duration::from_millis(500));
        let pinged = ping(subject);
        streamed.join().map_err(|_| anyhow!("the stream panicked"))??;
        pinged
    })
}
