//! Traffic replayed between a device and a server: numbered datagrams at given times in both directions, and pings towards the
//! device. Owns its sockets and threads, and says when each packet arrived; knows no VPN and no radio.

use crate::host::Host;
use crate::traffic::nothing_yet;
use anyhow::{Context, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The port that the device sends from and receives at.
pub const DEVICE_PORT: u16 = 7801;
/// The port of the server.
pub const SERVER_PORT: u16 = 7802;
const POLL: Duration = Duration::from_millis(20);
/// The number, and nothing else, is what a packet must carry.
const NUMBER: usize = 8;
/// A reply stands at most so many packets behind what it answers.
pub const REPLIES_WITHIN: usize = 64;
/// The identifier of our pings.
const PING: u16 = 0x4d4f;

/// What kind of packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A datagram from the device to the server.
    Outgoing,
    /// A datagram from the server to the device.
    Incoming,
    /// The server's answer to the packet of this index, sent as soon as that has arrived.
    Reply(usize),
    /// A ping from the server to the device.
    Ping,
}

/// One packet of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// When, counted from the start.
    pub at: Duration,
    /// The kind of packet.
    pub kind: Kind,
    /// Bytes of payload, 8 to 1,200.
    pub bytes: usize,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// When it was sent, counted from the start; `None`: the host had no way to send it.
    pub sent: Option<Duration>,
    /// When it (or, of a ping, the answer) arrived.
    pub arrived: Option<Duration>,
}

/// Replays `plan`, which must be in order of time, from `start` on, and waits for `patience` after its last packet. `inner`: the
/// device's address in the VPN.
///
/// # Errors
/// If a socket cannot be opened or fails.
pub fn run(
    (device, inner): (&Host, Ipv4Addr),
    (server, address): (&Host, Ipv4Addr),
    plan: &[Planned],
    patience: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Fate>> {
    let near = open(device, (Ipv4Addr::UNSPECIFIED, DEVICE_PORT).into())?;
    let far = open(server, (address, SERVER_PORT).into())?;
    let outside = far.try_clone()?;
    let pinger = server
        .run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)))?
        .context("a socket for pings")?;
    pinger.set_read_timeout(Some(POLL))?;
    let done = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let replies = Arc::new(Mutex::new(vec![None; plan.len()]));
    let receivers = [
        std::thread::spawn({
            let (socket, done, replies, plan) =
                (far.try_clone()?, done.clone(), replies.clone(), plan.to_vec());
            let mut answer = move |number: u64| {
                let Ok(to) = usize::try_from(number) else { return };
                let later = plan.iter().enumerate().skip(to).take(REPLIES_WITHIN);
                for (n, reply) in later.filter(|(_, p)| p.kind == Kind::Reply(to)) {
                    let sent = far.send_to(&payload(n as u64, reply), SocketAddr::from((inner, DEVICE_PORT)));
                    let mut replies = replies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if let Some(slot) = replies.get_mut(n) {
                        *slot = sent.is_ok().then(|| start.elapsed());
                    }
                }
            };
            move || receive(&done, |buf| socket.recv_from(buf).map(|r| (r.0, 0)), &mut answer)
        }),
        std::thread::spawn({
            let (socket, done) = (near.try_clone()?, done.clone());
            move || receive(&done, |buf| socket.recv_from(buf).map(|r| (r.0, 0)), |_| ())
        }),
        std::thread::spawn({
            let (socket, done) = (pinger.try_clone()?, done.clone());
            move || receive(&done, |buf| (&socket).read(buf).map(|n| (n, ping_answer(buf, n))), |_| ())
        }),
    ];
    let mut sent = send_all(plan, start, stop, |number, planned| {
        let payload = payload(number, planned);
        match planned.kind {
            Kind::Outgoing => near.send_to(&payload, SocketAddr::from((address, SERVER_PORT))).is_ok(),
            Kind::Incoming => outside.send_to(&payload, SocketAddr::from((inner, DEVICE_PORT))).is_ok(),
            Kind::Ping => pinger.send_to(&ping(&payload), &SocketAddr::from((inner, 0)).into()).is_ok(),
            Kind::Reply(_) => false,
        }
    });
    let until = Instant::now() + patience;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
    }
    done.store(true, Ordering::Relaxed);
    let mut arrived = vec![None; plan.len()];
    for receiver in receivers {
        let list = receiver.join().map_err(|_| anyhow::anyhow!("a receiver panicked"))??;
        for (number, at) in list {
            if let Some(slot) = usize::try_from(number).ok().and_then(|n| arrived.get_mut(n)) {
                slot.get_or_insert(at.saturating_duration_since(start));
            }
        }
    }
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let replies = replies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (slot, reply) in sent.iter_mut().zip(replies.iter()) {
        *slot = slot.or(*reply);
    }
    Ok(sent.into_iter().zip(arrived).map(|(sent, arrived)| Fate { sent, arrived }).collect())
}

type Arrivals = Result<Vec<(u64, Instant)>>;

fn open(host: &Host, address: SocketAddr) -> Result<UdpSocket> {
    let socket = host
        .run(move || UdpSocket::bind(address))?
        .with_context(|| format!("{}: UDP {address}", host.name()))?;
    socket.set_read_timeout(Some(POLL))?;
    Ok(socket)
}

/// Sends every packet at its time; returns when each was sent.
fn send_all(
    plan: &[Planned],
    start: Instant,
    stop: &AtomicBool,
    mut send: impl FnMut(u64, &Planned) -> bool,
) -> Vec<Option<Duration>> {
    let mut sent = Vec::with_capacity(plan.len());
    for (number, planned) in (0u64..).zip(plan) {
        while let Some(wait) = planned.at.checked_sub(start.elapsed()).filter(|w| !w.is_zero()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(wait.min(POLL));
        }
        let at = start.elapsed();
        sent.push(send(number, planned).then_some(at));
    }
    sent
}

fn payload(number: u64, planned: &Planned) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(planned.bytes.clamp(NUMBER, 1200), 0);
    payload
}

/// Notes the number of each packet; `read` says how long it is and where the number stands. `then` is called for each.
fn receive(
    done: &AtomicBool,
    mut read: impl FnMut(&mut [u8]) -> std::io::Result<(usize, usize)>,
    mut then: impl FnMut(u64),
) -> Arrivals {
    let mut list = Vec::new();
    let mut buf = [0; 2048];
    while !done.load(Ordering::Relaxed) {
        match read(&mut buf) {
            Ok((len, at)) => {
                let number = buf.get(..len).and_then(|b| b.get(at..)).and_then(|b| b.first_chunk());
                let Some(number) = number.map(|n| u64::from_be_bytes(*n)) else { continue };
                list.push((number, Instant::now()));
                then(number);
            }
            Err(e) if nothing_yet(&e) || e.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(list)
}

/// An ICMP echo request around `payload`.
fn ping(payload: &[u8]) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0];
    message.extend_from_slice(&PING.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message.extend_from_slice(payload);
    let mut sum: u32 =
        message.chunks(2).map(|c| u32::from(c[0]) << 8 | c.get(1).map_or(0, |b| u32::from(*b))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !(sum as u16);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// Where the number stands in an answer to one of our pings; beyond its end, if it is none.
fn ping_answer(buf: &[u8], len: usize) -> usize {
    let header = buf.first().map_or(0, |b| usize::from(b & 15) * 4);
    let ours = buf.get(header..header + 8).is_some_and(|m| m[0] == 0 && m[4..6] == PING.to_be_bytes());
    if ours { header + 8 } else { len }
}
