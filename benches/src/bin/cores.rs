//! What a second worker of a gateway adds (`daemon.workers`): lanes of one worker each, every lane on a processor of its own. A lane is the worker's thread as `dormoused` runs
//! it, with its own interface and sockets, and beside it, on the same processor, a thread that is its device and its server: the device seals numbered
//! packets, the server sends each back, and the device opens what the worker has sealed. So the processors carry nothing but lanes, and one more lane brings one more
//! processor's load.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use dormouse_benches::{Measured, Summary, Target, Work, arguments, bare_cipher, ratio, verdict};
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::Selectors;
use dormouse_io::bell::Bell;
use dormouse_io::clock::BootClock;
use dormouse_io::poller::{Interest, Poller, Ready};
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_io::udp::{Sent, Udp};
use dormouse_keying::ChildId;
use dormouse_lab::results::Figures;
use dormouse_node::host::worker::{Came, Worker};
use dormouse_node::host::{Loan, Seen};
use dormouse_report::Table;
use dormouse_sansio::packet::{Plan, Received};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_testbed::{Host, Need, Testbed, require};
use dormouse_wire::ike::TsRange;
use dormoused::workers::thread::{self, Carried, Command, Report, Reports, Thread};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const ROUNDS: u32 = 15;
/// A round of a row, and of a quick run.
const TIME: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(200)];
/// Bytes of an inner packet.
const PACKET: usize = 1_400;
/// Bytes of its headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Packets that the device sends at once.
const BATCH: usize = 40;
/// Packets that are under way at most.
const WINDOW: u64 = 160;
/// What is not back then is lost.
const LOST: Duration = Duration::from_millis(200);
const PORT: u16 = 4_000;
/// Lanes of which a model says something.
const MODELLED: [usize; 2] = [4, 8];

/// What a second worker of a gateway adds.
#[derive(Parser)]
struct Arguments {
    /// Whether it works. Its figures say little.
    #[arg(long)]
    quick: bool,
    /// Keep raw data and provenance in this file, as docs/results.md describes it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The addresses of a lane: the gateway's and the device's outer, the server's and the device's inner.
struct Addresses {
    outer: [Ipv4Addr; 2],
    server: Ipv4Addr,
    device: Ipv4Addr,
}

impl Addresses {
    const fn of(lane: u8) -> Self {
        Self {
            outer: [Ipv4Addr::new(127, 1, 0, 1), Ipv4Addr::new(127, 1, 1, lane + 1)],
            server: Ipv4Addr::new(10, 99, lane, 1),
            device: Ipv4Addr::new(10, 55, lane, 1),
        }
    }

    /// The gateway's SAs, and the device's.
    fn loans(&self, lane: u8) -> [Loan; 2] {
        let one = |address: Ipv4Addr| vec![TsRange::addresses(address.into(), address.into())];
        let [gateway, device] = self.outer.map(|ip| SocketAddr::new(ip.into(), 4_500));
        let keymat = |direction: u8| Secret::from([16 * direction + lane; 20]);
        let loan = |at: usize| Loan {
            child: ChildId::new([0x1000, 0x2000][at] + u32::from(lane)),
            spi_out: [0x2000, 0x1000][at] + u32::from(lane),
            encr: Encr::Aes128Gcm16,
            keymat_in: keymat([1, 2][at]),
            keymat_out: keymat([2, 1][at]),
            esn: true,
            selectors: Selectors::new(
                one([self.server, self.device][at]),
                one([self.device, self.server][at]),
            ),
            path: Path {
                local: [gateway, device][at],
                remote: [device, gateway][at],
                carrier: Carrier::NatT,
            },
            inner_mtu: PACKET,
            sent: 0,
            last: u64::MAX >> 1,
            seen: Seen::all(0, 4_096),
        };
        [loan(0), loan(1)]
    }

    /// A packet of the device to the server, without its number. The checksum holds for each: a number and its complement add nothing to it.
    fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0x5a; PACKET];
        let (len, udp) = ((PACKET as u16).to_be_bytes(), ((PACKET - 20) as u16).to_be_bytes());
        packet[..12].copy_from_slice(&[0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
        packet[12..16].copy_from_slice(&self.device.octets());
        packet[16..20].copy_from_slice(&self.server.octets());
        let port = PORT.to_be_bytes();
        packet[20..28].copy_from_slice(&[port[0], port[1], port[0], port[1], udp[0], udp[1], 0, 0]);
        number(&mut packet[HEADERS..], 1);
        let sum = checksum(&packet[..20], 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let pseudo = [&packet[12..20], &[0, 17], &udp[..]].concat();
        let sum = checksum(&packet[20..], u32::from(!checksum(&pseudo, 0)));
        packet[26..28].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

fn checksum(bytes: &[u8], from: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = words.sum::<u32>() + from;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn number(payload: &mut [u8], number: u64) {
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload[8..16].copy_from_slice(&(!number).to_be_bytes());
}

/// The gateway's worker, and the thread that feeds it.
struct Lane {
    worker: Option<JoinHandle<()>>,
    commands: Option<SyncSender<Command>>,
    bell: Bell,
    reports: Receiver<Report>,
    device: Worker,
    path: Path,
    outer: Udp,
    server: Udp,
    poller: Poller,
    packet: Vec<u8>,
    /// The last number that was sent, that came to the server, and that came back.
    sent: u64,
    served: u64,
    back: u64,
    /// How many came back.
    returned: u64,
    /// Numbers up to this one are not waited for.
    given_up: u64,
    buffer: Vec<u8>,
    slots: Vec<u8>,
    came: Vec<(Path, Range<usize>)>,
}

impl Lane {
    /// In the calling thread's network namespace, and on its processor; `tun` has its routes.
    fn begin(lane: u8, tun: Tun) -> Result<Self> {
        let addresses = Addresses::of(lane);
        let [loan, device_loan] = addresses.loans(lane);
        let (sender, reports) = sync_channel(64);
        let (commands, orders) = sync_channel(8);
        let bell = Bell::new()?;
        let (rung, reporter) = (bell.clone(), Reports::new(sender, Bell::new()?));
        let socket = Udp::of_peer(&loan.path)?;
        let worker = std::thread::spawn(move || {
            thread::run(lane.into(), &reporter, move |reports| Thread::new(tun, rung, orders, reports));
        });
        let path = device_loan.path;
        let mut device = Worker::default();
        device.take(&device_loan, None, &mut Seeded::new(lane.into()))?;
        let (outer, server) =
            (Udp::of_peer(&path)?, Udp::bind(SocketAddr::new(addresses.server.into(), PORT), Carrier::Ike)?);
        let poller = Poller::new()?;
        poller.add(&outer, 0, Interest::READ)?;
        poller.add(&server, 1, Interest::READ)?;
        let (loan, carried) = (Box::new(loan), Carried::default());
        for command in [Command::Take { loan, observer: None, socket, carried }, Command::Begin] {
            commands.try_send(command).map_err(|e| anyhow!("{e}"))?;
        }
        bell.ring();
        Ok(Self {
            worker: Some(worker),
            commands: Some(commands),
            bell,
            reports,
            device,
            path,
            outer,
            server,
            poller,
            packet: addresses.packet(),
            sent: 0,
            served: 0,
            back: 0,
            returned: 0,
            given_up: 0,
            buffer: vec![0; 65_536],
            slots: Vec::new(),
            came: Vec::new(),
        })
    }

    /// The device sends a batch.
    fn send(&mut self) -> Result<()> {
        let Plan::Seal(geometry) = self.device.plan(BootClock::now(), self.packet.as_mut_slice()) else {
            return Err(anyhow!("the device does not seal"));
        };
        self.slots.resize(geometry.stride * BATCH, 0);
        for slot in self.slots.chunks_mut(geometry.stride) {
            self.sent += 1;
            number(&mut self.packet[HEADERS..], self.sent);
            slot[geometry.head..geometry.head + PACKET].copy_from_slice(&self.packet);
        }
        let sealed = self.device.seal(&geometry, &mut self.slots, &[PACKET; BATCH]).context("sealing")?;
        // What does not fit is lost, and counted so.
        match self.outer.send(&self.path, 0, &self.slots[..sealed.len], Some(geometry.stride)) {
            Sent::Failed(e) => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// The server sends back what has come to it, in the order of its numbers. True if something had.
    fn serve(&mut self) -> Result<bool> {
        self.server.receive(&mut self.buffer, &mut self.came)?;
        let Some((path, whole)) = self.came.first().map(|(path, first)| (*path, first.clone())) else {
            return Ok(false);
        };
        for (_, range) in &self.came {
            self.served = next(&self.buffer[range.clone()], self.served).context("at the server")?;
        }
        let end = self.came.last().map_or(whole.end, |(_, range)| range.end);
        if let Sent::Failed(e) = self.server.send(&path, 0, &self.buffer[whole.start..end], Some(whole.len()))
        {
            return Err(e.into());
        }
        Ok(true)
    }

    /// The device opens what has come back, in the order of its numbers. True if something had.
    fn receive(&mut self) -> Result<bool> {
        self.outer.receive(&mut self.buffer, &mut self.came)?;
        let now = BootClock::now();
        for (path, range) in &self.came {
            let datagram = &mut self.buffer[range.clone()];
            let from = Received { path: *path, ecn: 0 };
            let Came::Packet(inner) = self.device.open(now, &from, datagram) else {
                return Err(anyhow!("what has come back is not opened"));
            };
            self.back = next(&datagram[inner][HEADERS..], self.back).context("at the device")?;
            self.returned += 1;
        }
        Ok(!self.came.is_empty())
    }

    /// How many packets came back within a time, and how many were lost.
    fn carry(&mut self, time: Duration) -> Result<(u64, u64)> {
        let (begun, back, returned) = (Instant::now(), self.back, self.returned);
        let (mut ready, mut heard) = (Vec::<Ready>::new(), begun);
        while begun.elapsed() < time {
            while self.sent - self.given_up.max(self.back) + BATCH as u64 <= WINDOW {
                self.send()?;
            }
            let (served, received) = (self.serve()?, self.receive()?);
            if received {
                heard = Instant::now();
            } else if heard.elapsed() > LOST {
                (self.given_up, heard) = (self.sent, Instant::now());
            }
            if !served && !received {
                self.poller.wait(&mut ready, Some(Duration::from_millis(10)))?;
            }
            if let Ok(Report::Ended(_, why)) = self.reports.try_recv() {
                return Err(anyhow!("the worker has ended: {why}"));
            }
        }
        let came = self.returned - returned;
        Ok((came, self.back - back - came))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.commands = None;
        self.bell.ring();
        if let Some(worker) = self.worker.take() {
            let _ended = worker.join();
        }
    }
}

/// The number of a payload: greater than the last one.
fn next(payload: &[u8], last: u64) -> Result<u64> {
    let number = u64::from_be_bytes(*payload.first_chunk().context("a number")?);
    ensure!(
        payload.len() == PACKET - HEADERS && number > last,
        "{} bytes, {number} after {last}",
        payload.len()
    );
    Ok(number)
}

fn ip(args: &str) -> Result<()> {
    let ended = std::process::Command::new("ip").args(args.split(' ')).status()?;
    ensure!(ended.success(), "ip {args}: {ended}");
    Ok(())
}

/// The calling thread, and those that it starts, run on this processor alone.
fn pin(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Does the same on so many processors at once, after each has been prepared.
fn on_each<P, T: Send>(
    number: usize,
    prepare: impl Fn(usize) -> Result<P> + Sync,
    work: impl Fn(P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let barrier = Barrier::new(number);
    let one = |n| {
        let prepared = pin(n).and_then(|()| prepare(n));
        // All wait for all, also for those that fail.
        barrier.wait();
        work(prepared?)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..number)
            .map(|n| {
                scope.spawn({
                    let one = &one;
                    move || one(n)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<T>>| {
            thread.join().map_err(|_| anyhow!("a lane panicked"))?
        };
        threads.into_iter().map(join).collect()
    })
}

/// So many lanes, in the calling thread's network namespace.
fn lanes(number: usize, time: Duration) -> Result<Figures> {
    let begin = |n: usize| {
        let lane = u8::try_from(n)?;
        let name = format!("lane{lane}");
        let mtu = u16::try_from(PACKET)?;
        let tun = Tun::open(&TunOptions { name: Some(name.clone()), mtu, ..TunOptions::default() })?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("route add {}/32 dev {name}", Addresses::of(lane).device))?;
        Lane::begin(lane, tun)
    };
    let carried = on_each(number, begin, |mut lane: Lane| lane.carry(time))?;
    let [came, lost] = [carried.iter().map(|c| c.0).sum::<u64>(), carried.iter().map(|c| c.1).sum()];
    ensure!(carried.iter().all(|c| c.0 > 100), "a lane carried nothing: {carried:?}");
    // The worker has opened each, and sealed it again.
    let rate = 2.0 * came as f64 / time.as_secs_f64();
    Ok(Figures::default().with("datagrams", rate).with("lost", lost as f64))
}

/// The cipher alone on so many processors: what they add to each other without any of our code.
fn ciphers(number: usize) -> Result<Figures> {
    let bytes = u32::try_from(PACKET)?;
    let nanos = on_each(number, |_| Ok(()), |()| bare_cipher(bytes))?;
    Ok(Figures::default().with("datagrams", nanos.iter().map(|nanos| 1e9 / nanos).sum::<f64>()))
}

/// The rows: numbers of lanes, as far as there are processors.
fn numbers(processors: usize) -> Vec<usize> {
    [1, 2].into_iter().chain(MODELLED).filter(|n| *n <= processors).collect()
}

fn main() -> Result<()> {
    let Arguments { quick, out } = arguments();
    let needs = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ip")];
    if !require("the benchmark of workers", &needs) {
        return Ok(());
    }
    let processors = std::thread::available_parallelism()?.get();
    let numbers = numbers(processors);
    let mut bed = Testbed::new()?;
    let host = Arc::new(bed.host("lanes")?);
    for lane in 0..numbers.len().max(MODELLED[1]) {
        host.ip(&format!("addr add {}/32 dev lo", Addresses::of(u8::try_from(lane)?).server))?;
    }
    let time = TIME[usize::from(quick)];
    let mut rows: Vec<(String, Work<'_>)> = Vec::new();
    for number in numbers.iter().copied() {
        let host: Arc<Host> = host.clone();
        let carry = move || host.run(move || lanes(number, time))?;
        rows.push((format!("workers {number}"), Box::new(carry)));
        rows.push((format!("cipher {number}"), Box::new(move || ciphers(number))));
    }
    let settings =
        serde_json::json!({ "seconds": time.as_secs_f64(), "bytes": PACKET, "processors": processors });
    let measured = Measured::of(rows, if quick { 1 } else { ROUNDS }, settings, out.as_deref())?;
    print(&measured, &numbers, time);
    Ok(())
}

fn print(measured: &Measured, numbers: &[usize], time: Duration) {
    println!(
        "Packets of {PACKET} bytes a second, opened or sealed by workers of a gateway with an interface, a socket and a processor each (median of rounds of {:.1} s). Their devices and servers are on\nthe same processors, which therefore do some twice the work that they would have. Beside it the cipher alone, and how many times as much several carry.",
        time.as_secs_f64()
    );
    let of = |what: &str, n: usize| measured.figure(&format!("{what} {n}"), "datagrams");
    let times = |what, n| ratio(&of(what, n), &of(what, 1));
    let mut table = Table::new(["workers", "packets/s", "times one", "lost", "cipher alone, times one"]);
    for n in numbers.iter().copied() {
        let median = |name| Summary::of(measured.figure(&format!("workers {n}"), name).into_values()).median;
        table.row([
            n.to_string(),
            format!("{:.0}", median("datagrams")),
            format!("{:.2}", times("workers", n)),
            format!("{:.0}", median("lost")),
            format!("{:.2}", times("cipher", n)),
        ]);
    }
    print!("{}", table.text(""));
    if numbers.contains(&2) {
        let two = times("workers", 2);
        for n in MODELLED.into_iter().filter(|n| !numbers.contains(n)) {
            println!(
                "modelled, not measured: {n} workers on {n} processors carry {:.1} times as much as one, if each further one waits for the others as the second does",
                modelled(two, n)
            );
        }
        verdict("packets of two workers / of one", two, Target::AtLeast(1.8));
    }
}

/// How many times as much as one so many carry, by Gunther's law with contention alone: two carry `2 / (1 + s)`, and `n` carry `n / (1 + s (n - 1))`.
fn modelled(two: f64, n: usize) -> f64 {
    let (contention, n) = ((2.0 / two - 1.0).max(0.0), n as f64);
    n / (1.0 + contention * (n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_packet_holds_its_number_and_its_checksums() {
        let addresses = Addresses::of(3);
        let mut packet = addresses.packet();
        let flow = dormouse_wire::ip::flow(&packet).expect("a packet");
        assert_eq!((flow.src, flow.dst), (IpAddr::from(addresses.device), IpAddr::from(addresses.server)));
        for n in [1, 0x1234_5678_9abc] {
            number(&mut packet[HEADERS..], n);
            assert_eq!(next(&packet[HEADERS..], n - 1).expect("a number"), n);
            assert!(next(&packet[HEADERS..], n).is_err(), "twice");
            let pseudo = [&packet[12..20], &[0, 17], &packet[24..26]].concat();
            assert_eq!(checksum(&packet[20..], u32::from(!checksum(&pseudo, 0))), 0);
            assert_eq!(checksum(&packet[..20], 0), 0);
        }
    }

    #[test]
    fn a_model_goes_through_what_was_measured() {
        assert_eq!([modelled(2.0, 2), modelled(2.0, 8)], [2.0, 8.0]);
        assert!((modelled(1.8, 2) - 1.8).abs() < 1e-9);
        assert!((modelled(1.0, 8) - 1.0).abs() < 1e-9);
    }
}
