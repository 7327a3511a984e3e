//! UDP through a link: as many packets as pass without loss, and streams at a given rate. Owns its two sockets, their threads
//! and what is written into a datagram; must never count a packet as received that did not arrive whole.
//!
//! A datagram begins with the number of the run (4 bytes), its own (4), and the time at which it was sent, in nanoseconds
//! since the stream began (8), big endian. Jitter is the estimate of RFC 3550, section 6.4.1, from these times and those of arrival.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};

use super::link::Link;
use crate::campaign::cpu::{self, Account, Cost};
use crate::results::Figures;
use crate::results::esp::{
    CPU_SYSTEM, CPU_THREAD, ELAPSED, JITTER, LOSS, PACKETS_RECEIVED, PACKETS_SENT, Point, THROUGHPUT, Unit,
};

pub(crate) const PORT: u16 = 7_001;
/// Numbers and time.
pub(super) const HEADER: usize = 16;
/// Packets that may be under way at once when nothing shall be lost: below what every queue on the way holds.
const WINDOW: u64 = 128;
/// The receiver tells how far it is once for so many packets.
const STEP: u64 = 32;
/// A window that does not move for so long has lost packets. Where others keep the processors busy, a packet that is not lost
/// takes tens of milliseconds.
const LOST: Duration = Duration::from_millis(100);
/// The first packet of all may take so long: it waits for every thread on the way to have a turn.
const FIRST: Duration = Duration::from_secs(3);
/// The last packets of a stream may be under way for so long.
pub(super) const TAIL: Duration = Duration::from_millis(80);
/// The receiver looks so often whether it should stop.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// A sender looks at least so often whether it should stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// What a receive buffer holds: a burst that no scheduler's turn should lose.
const BUFFER: usize = 4 << 20;

/// What arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    pub(crate) packets: u64,
    pub(crate) jitter: f64,
    /// When the first one arrived.
    pub(crate) first: Option<Instant>,
    /// When the last one did.
    pub(crate) last: Option<Instant>,
}

/// Packets of the sample's size as fast as they pass without loss.
///
/// # Errors
/// If nothing passes.
pub(crate) fn path(link: &mut Link, sample: &Point, time: Duration, idle: f64) -> Result<Figures> {
    link.whole_mtu()?;
    run(link, sample, time, idle, &Pace::Window)
}

/// A stream at the sample's rate, or without any restraint.
///
/// # Errors
/// If it cannot be sent at all.
pub(crate) fn stream(link: &mut Link, sample: &Point, time: Duration, idle: f64) -> Result<Figures> {
    link.whole_mtu()?;
    let pace = sample.offered.map_or(Pace::Free, Pace::Rate);
    run(link, sample, time, idle, &pace)
}

/// When the next packet may go.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pace {
    /// When the receiver has had all but [`WINDOW`] of those before.
    Window,
    /// At so many bits of payload a second.
    Rate(f64),
    /// At once.
    Free,
}

/// Bytes of UDP payload in a packet of this sample, which goes to the address `to`.
pub(super) fn payload_len(sample: &Point, to: IpAddr) -> Result<usize> {
    const UDP: usize = 8;
    let headers = UDP + if to.is_ipv4() { 20 } else { 40 };
    let len = usize::try_from(sample.packet_bytes)?;
    let len = if sample.unit == Unit::Packet { len.saturating_sub(headers) } else { len };
    ensure!(len >= HEADER, "packets of {} bytes have no room for number and time", sample.packet_bytes);
    Ok(len)
}

fn run(link: &Link, sample: &Point, time: Duration, idle: f64, pace: &Pace) -> Result<Figures> {
    let len = payload_len(sample, link.to_receiver())?;
    let target = SocketAddr::new(link.to_receiver(), PORT);
    let out = link.sender().run(move || socket(None, target))??;
    let into = link.receiver().run(move || socket(Some(target), target))??;
    into.set_read_timeout(Some(LOOK))?;
    // A datagram of a former point that was still under way must not count.
    let run = next_run();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = sync_channel(1_024);
    let arrived = Arc::new(AtomicU64::new(0));
    let thread = {
        let (stop, arrived) = (stop.clone(), arrived.clone());
        // A sender that does not listen is one that does not wait.
        let mut tell = move |n| _ = tell.try_send(n);
        std::thread::spawn(move || receive(&into, len, run, &stop, &arrived, &mut tell))
    };
    let account = Account::open(link.helpers())?;
    let start = cpu::wall();
    let sent = send(&out, len, run, time, pace, &told, &AtomicBool::new(false));
    let sending = start.elapsed();
    match (pace, &sent) {
        (Pace::Window, Ok(sent)) => drain(*sent, &arrived),
        _ => std::thread::sleep(TAIL),
    }
    stop.store(true, Ordering::Relaxed);
    let received = thread.join().map_err(|_| anyhow!("the receiver panicked"))?;
    let cost = account.close(idle)?;
    let (sent, received) = (sent?, received?);
    ensure!(sent > 0, "the time was over before the first packet went: others keep the processors busy");
    // That nothing of a stream arrives is a result; that nothing passes a path is a fault.
    ensure!(received.packets > 0 || !matches!(pace, Pace::Window), "none of {sent} packets arrived");
    let receiving = received.last.map_or(sending, |last| sending.max(last - start));
    Ok(round(sample, receiving, &cost, sent, received))
}

/// Waits for what is under way: until all that was `sent` is there, or nothing comes any more.
pub(crate) fn drain(sent: u64, arrived: &AtomicU64) {
    const STEP: Duration = Duration::from_millis(2);
    let (mut before, mut since) = (arrived.load(Ordering::Relaxed), cpu::wall());
    while before < sent && since.elapsed() < if before == 0 { FIRST } else { LOST } {
        std::thread::sleep(STEP);
        let now = arrived.load(Ordering::Relaxed);
        if now != before {
            (before, since) = (now, cpu::wall());
        }
    }
}

/// A number that no measurement before this one had.
pub(crate) fn next_run() -> u64 {
    static RUN: AtomicU64 = AtomicU64::new(1);
    RUN.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff
}

/// The figures of a round in which `sent` packets went out and some arrived.
pub(super) fn round(
    sample: &Point,
    elapsed: Duration,
    cost: &Cost,
    sent: u64,
    received: Received,
) -> Figures {
    let bytes = received.packets as f64 * f64::from(sample.packet_bytes);
    // Of nothing, no byte has a cost.
    let per_byte = |seconds: f64| (bytes > 0.0).then_some(seconds * 1e9 / bytes);
    let arrived = received.packets.min(sent) as f64;
    Figures::default()
        .with(ELAPSED, elapsed.as_secs_f64())
        .with(THROUGHPUT, bytes / elapsed.as_secs_f64())
        .with(CPU_THREAD, per_byte(cost.threads))
        .with(CPU_SYSTEM, cost.system.and_then(per_byte))
        .with(PACKETS_SENT, sent as f64)
        .with(PACKETS_RECEIVED, arrived)
        .with(LOSS, (sent > 0).then(|| 1.0 - arrived / sent as f64))
        .with(JITTER, (received.packets > 1).then_some(received.jitter))
}

/// The receiver's socket, or the sender's.
fn socket(bind: Option<SocketAddr>, target: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = if target.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let address = bind.unwrap_or(SocketAddr::new(any, 0));
    let socket = UdpSocket::bind(address).with_context(|| format!("UDP {address}"))?;
    if bind.is_some() {
        room(&socket)?;
    } else {
        socket.connect(target)?;
    }
    Ok(socket)
}

/// Room for a burst: beyond the machine's limit only with privileges; without them its limit has to do.
pub(crate) fn room(socket: &UdpSocket) -> Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &BUFFER)?;
    }
    Ok(())
}

fn nanos(time: Instant, epoch: Instant) -> u64 {
    u64::try_from(time.saturating_duration_since(epoch).as_nanos()).unwrap_or(u64::MAX)
}

/// Sends for `time`, or until `stop` is set; returns how many packets went.
pub(crate) fn send(
    out: &UdpSocket,
    len: usize,
    run: u64,
    time: Duration,
    pace: &Pace,
    told: &Receiver<u64>,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut packet = vec![0x5a; len];
    let start = cpu::wall();
    let (mut sent, mut acknowledged) = (0u64, 0u64);
    loop {
        let now = cpu::wall();
        if now - start >= time || stop.load(Ordering::Relaxed) {
            break;
        }
        match pace {
            Pace::Free => {}
            Pace::Rate(bits) => {
                let due = start + Duration::from_secs_f64(sent as f64 * 8.0 * len as f64 / bits);
                if due > now {
                    std::thread::sleep((due - now).min(start + time - now).min(LONGEST_SLEEP));
                    continue;
                }
            }
            Pace::Window => {
                while let Ok(n) = told.try_recv() {
                    acknowledged = acknowledged.max(n);
                }
                if sent - acknowledged >= WINDOW {
                    match told.recv_timeout(LOST) {
                        Ok(n) => acknowledged = acknowledged.max(n),
                        // Lost on the way, in spite of all: begin a new window.
                        Err(_) => acknowledged = sent,
                    }
                    continue;
                }
            }
        }
        packet[..8].copy_from_slice(&(run << 32 | sent & 0xffff_ffff).to_be_bytes());
        packet[8..HEADER].copy_from_slice(&nanos(cpu::wall(), start).to_be_bytes());
        match out.send(&packet) {
            Ok(_) => sent += 1,
            // A full queue below: the packet is lost before it was sent, and counts as sent.
            Err(e) if e.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => sent += 1,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("sending"),
        }
    }
    Ok(sent)
}

/// Counts what arrives of the run until `stop` is set; `tell` gets now and then how far it is.
pub(crate) fn receive(
    into: &UdpSocket,
    len: usize,
    run: u64,
    stop: &AtomicBool,
    count: &AtomicU64,
    tell: &mut dyn FnMut(u64),
) -> Result<Received> {
    let mut buffer = vec![0; 65_536];
    let mut received = Received::default();
    let mut transit = None;
    let epoch = cpu::wall();
    while !stop.load(Ordering::Relaxed) {
        let n = match into.recv(&mut buffer) {
            Ok(n) => n,
            Err(e) if would_block(&e) => continue,
            Err(e) => return Err(e).context("receiving"),
        };
        let Some((number, sent)) = header(buffer.get(..n).unwrap_or_default()) else { continue };
        if n != len || number >> 32 != run & 0xffff_ffff {
            continue;
        }
        received.packets += 1;
        count.store(received.packets, Ordering::Relaxed);
        let arrived = cpu::wall();
        received.first.get_or_insert(arrived);
        received.last = Some(arrived);
        // Both clocks have their own beginning: only differences of transit times count.
        let now = nanos(arrived, epoch) as f64 - sent as f64;
        received.jitter = jitter(received.jitter, transit.replace(now), now);
        if received.packets.is_multiple_of(STEP) {
            tell((number & 0xffff_ffff) + 1);
        }
    }
    Ok(received)
}

/// Nothing yet; or the ICMP error of the last report, whose reader is gone: no packet of the measurement is concerned.
pub(super) fn would_block(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(e.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

fn header(datagram: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = datagram.split_first_chunk::<8>()?;
    let (sent, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(*sent)))
}

/// J + (|D| - J) / 16, in seconds; the transit times are in nanoseconds.
fn jitter(before: f64, last: Option<f64>, transit: f64) -> f64 {
    last.map_or(before, |last| before + ((transit - last).abs() * 1e-9 - before) / 16.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::esp::What;

    #[test]
    fn jitter_is_that_of_rfc_3550() {
        assert_eq!(jitter(0.0, None, 5e6), 0.0, "one packet has none");
        let once = jitter(0.0, Some(5e6), 21e6);
        assert!((once - 0.001).abs() < 1e-12, "16 ms once count as 1 ms: {once}");
        let steady = (0..1_000).fold(once, |j, _| jitter(j, Some(7e6), 7e6));
        assert!(steady < 1e-9, "{steady}");
    }

    #[test]
    fn the_payload_is_what_the_unit_says() {
        let mut sample = Point::new(What::Path, "none", 180, 1);
        let to = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(payload_len(&sample, to).unwrap(), 152);
        assert_eq!(payload_len(&sample, [0xfd00, 0, 0, 0, 0, 0, 0, 1].into()).unwrap(), 132);
        sample.unit = Unit::Payload;
        assert_eq!(payload_len(&sample, to).unwrap(), 180);
        sample.packet_bytes = 15;
        assert!(payload_len(&sample, to).is_err());
    }

    #[test]
    fn what_is_under_way_is_waited_for_and_what_is_lost_is_not_for_ever() {
        let arrived = Arc::new(AtomicU64::new(0));
        let late = arrived.clone();
        let thread = std::thread::spawn(move || {
            // Nothing yet for longer than a window may stand still: the first packet of all has more time.
            std::thread::sleep(LOST * 2);
            late.store(9, Ordering::Relaxed);
        });
        drain(10, &arrived);
        thread.join().unwrap();
        assert_eq!(arrived.load(Ordering::Relaxed), 9, "the tenth is lost");
    }

    #[test]
    fn of_packets_that_were_not_sent_none_is_lost() {
        let sample = Point::new(What::Stream, "none", 1_024, 1);
        let cost = Cost { elapsed: 1.0, threads: 0.1, system: None };
        let of = |sent| round(&sample, Duration::from_secs(1), &cost, sent, Received::default());
        assert_eq!((of(0).one(LOSS), of(0).one(CPU_THREAD)), (None, None));
        assert_eq!(of(4).one(LOSS), Some(1.0));
    }

    /// Without namespaces: over loopback, both ends in this process.
    #[test]
    fn a_stream_counts_what_arrived_and_what_did_not() {
        let into = UdpSocket::bind("127.0.0.1:0").unwrap();
        into.set_read_timeout(Some(LOOK)).unwrap();
        let target = into.local_addr().unwrap();
        let out = socket(None, target).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = sync_channel(8);
        let thread = {
            let stop = stop.clone();
            let mut tell = move |n| _ = tell.try_send(n);
            std::thread::spawn(move || receive(&into, 100, 7, &stop, &AtomicU64::new(0), &mut tell))
        };
        let strangers = UdpSocket::bind("127.0.0.1:0").unwrap();
        for stranger in [&b"short"[..], &[0; 100]] {
            strangers.send_to(stranger, target).unwrap();
        }
        let (time, pace) = (Duration::from_millis(50), Pace::Rate(80_000.0));
        let sent = send(&out, 100, 7, time, &pace, &told, &AtomicBool::new(false)).unwrap();
        assert!((1..=6).contains(&sent), "100 bytes every 10 ms: {sent}");
        std::thread::sleep(TAIL);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().unwrap().unwrap().packets, sent, "strangers do not count");
    }
}
