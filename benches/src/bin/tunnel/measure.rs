//! The measurements, the same for every subject: a verified stream, one TCP stream of iperf3, datagrams of iperf3, ping.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use dormouse_benches::Summary;
use dormouse_lab::results::Figures;
use dormouse_sansio::{Entropy, Seeded};
use dormouse_testbed::cpu_time;
use serde_json::Value;

use crate::subjects::{Kind, Subject};

/// Length of one TCP run.
pub(crate) const SECONDS: u32 = 4;
/// Length of one run at one rate of datagrams.
const UDP_SECONDS: u32 = 2;
/// Rates of datagrams that are offered, in thousands a second.
const OFFERED: [u32; 14] = [5, 10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300];
/// Rates are tried this often before they count as too high: a busy moment of the machine is no property of a tunnel.
const TRIES: usize = 2;
const VERIFIED_BYTES: usize = 32 << 20;
const VERIFIED_PORT: u16 = 5_999;
/// Nothing takes this long.
const STUCK: Duration = Duration::from_secs(30);

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

/// One TCP stream for [`SECONDS`]: received payload in Mbit/s, and CPU time of the daemons of both ends in percent of one core.
pub(crate) fn tcp(subject: &Subject) -> Result<Figures> {
    let cpu = || subject.pids.iter().map(|&pid| cpu_time(pid)).sum::<Duration>();
    let (before, start) = (cpu(), Instant::now());
    let answer = iperf(subject, &["-t", &SECONDS.to_string()])?;
    let busy = cpu().saturating_sub(before).as_secs_f64();
    let bits = answer["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.with_context(|| format!("iperf3: {}", answer["error"]))?;
    Ok(Figures::default().with("rate", bits / 1e6).with("busy", 100.0 * busy / start.elapsed().as_secs_f64()))
}

/// The highest of [`OFFERED`] that passes with less than 1 % loss, in thousands of 64-byte datagrams a second; `None` if not
/// even the lowest does, or there is no tunnel.
pub(crate) fn lossless(subject: &Subject) -> Result<Option<u32>> {
    if subject.kind == Kind::Veth {
        return Ok(None);
    }
    eprintln!("64-byte datagrams, {}", subject.kind.name());
    let mut best = None;
    for kpps in OFFERED {
        let mut passed = false;
        for _ in 0..TRIES {
            passed = passed || passes(subject, kpps)?;
        }
        if !passed {
            break;
        }
        best = Some(kpps);
    }
    Ok(best)
}

/// Whether this rate was really offered, and arrived.
fn passes(subject: &Subject, kpps: u32) -> Result<bool> {
    const BITS: u32 = 64 * 8;
    // The kernel doubles it: twice the default, so that a starved iperf3 is less often what loses datagrams. More than
    // `net.core.rmem_max` is refused, and that is the machine's, not ours.
    const BUFFER: &str = "200K";
    let (rate, time) = (format!("{}K", kpps * BITS), UDP_SECONDS.to_string());
    let answer = iperf(subject, &["-u", "-l", "64", "-b", &rate, "-t", &time, "-w", BUFFER])?;
    let sum = &answer["end"]["sum"];
    let of = |key: &str| sum[key].as_f64().with_context(|| format!("iperf3: {}", answer["error"]));
    let sent = of("packets")? / of("seconds")? / 1e3;
    Ok(of("lost_percent")? < 1.0 && sent > 0.95 * f64::from(kpps))
}

fn iperf(subject: &Subject, args: &[&str]) -> Result<Value> {
    let mut command = subject.left.command("iperf3");
    command.args(["-J", "-c", &subject.target.to_string()]).args(args);
    let out = command.output().context("running iperf3")?;
    serde_json::from_slice(&out.stdout)
        .with_context(|| format!("iperf3: {}", String::from_utf8_lossy(&out.stderr)))
}

/// Round trips of 200 pings, in microseconds.
pub(crate) fn ping(subject: &Subject) -> Result<Summary> {
    let target = subject.target;
    let out = subject
        .left
        .sh(&format!("ping -q -c 3 -i 0.1 {target} > /dev/null; ping -c 200 -i 0.01 {target}"))?;
    let times =
        out.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse::<f64>().ok());
    let times: Vec<f64> = times.map(|ms| ms * 1e3).collect();
    ensure!(times.len() > 190, "{} of 200 pings were answered", times.len());
    Ok(Summary::of(times))
}
