//! The most datagrams of one size that pass without loss. Owns its own sender and receiver, a system call for each datagram, as programs
//! have; must never call a rate carried that the sender could not offer.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use dormouse_testbed::cpu_time;
use nix::sys::socket::{setsockopt, sockopt};

use crate::subjects::Subject;

/// Length of one attempt at one rate.
const TIME: Duration = Duration::from_secs(1);
/// A rate is tried this often before it counts as too high: a busy moment of the machine is no property of a tunnel.
const TRIES: usize = 2;
/// The first rate, in datagrams a second; while it passes, half as much again is tried.
const FIRST: f64 = 10_000.0;
/// Between the highest rate that passed and the lowest that did not, at the end.
const PRECISION: f64 = 1.05;
/// A rate is offered if so much of it was sent, and carried if so much of that arrived.
const OFFERED: f64 = 0.95;
const CARRIED: f64 = 0.99;
/// The sender sleeps so long between bursts.
const PAUSE: Duration = Duration::from_micros(200);
/// What has not come after so long never will.
const SILENCE: Duration = Duration::from_millis(300);
/// Bytes of the receiver's buffer, above `net.core.rmem_max`: with the default, that of a hundred datagrams, it was always the receiver that lost
/// some, while it waited for a core.
const BUFFER: usize = 4 << 20;
const PORT: u16 = 5_998;

/// The highest rate that passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    /// Thousands of datagrams a second.
    pub(crate) kpps: f64,
    /// Nanoseconds of processor time of both daemons for each.
    pub(crate) cpu: f64,
    /// The sender offers no more: the tunnel may carry more than this.
    pub(crate) sender_is_the_limit: bool,
}

/// One attempt.
struct Attempt {
    sent: u64,
    received: u64,
    busy: Duration,
}

/// The highest rate of datagrams with so many bytes of payload that passes with less than 1 % loss, to 5 %; `None` if not even the first
/// does.
pub(crate) fn lossless(subject: &Subject, bytes: usize) -> Result<Option<Carried>> {
    eprintln!("datagrams of {bytes} bytes, {}", subject.kind.name());
    let (mut low, mut high) = (None::<(f64, Carried)>, None::<(f64, bool)>);
    loop {
        let rate = match (low, high) {
            (None, None) => FIRST,
            (None, Some(_)) => return Ok(None),
            (Some((low, _)), None) => low * 1.5,
            (Some((low, carried)), Some((high, offered))) if high / low < PRECISION => {
                return Ok(Some(Carried { sender_is_the_limit: !offered, ..carried }));
            }
            (Some((low, _)), Some((high, _))) => (low * high).sqrt(),
        };
        match attempt(subject, bytes, rate)? {
            Ok(carried) => low = Some((rate, carried)),
            Err(offered) => high = Some((rate, offered)),
        }
    }
}

/// Offers a rate until it passes, or has been tried often enough: then, whether the sender could offer it at all.
fn attempt(subject: &Subject, bytes: usize, rate: f64) -> Result<Result<Carried, bool>> {
    let mut offered = false;
    for _ in 0..TRIES {
        let Attempt { sent, received, busy } = offer(subject, bytes, rate)?;
        let enough = sent as f64 >= OFFERED * rate * TIME.as_secs_f64();
        if enough && received as f64 >= CARRIED * sent as f64 {
            let kpps = received as f64 / TIME.as_secs_f64() / 1e3;
            let cpu = busy.as_nanos() as f64 / received as f64;
            return Ok(Ok(Carried { kpps, cpu, sender_is_the_limit: false }));
        }
        offered |= enough;
    }
    Ok(Err(offered))
}

/// Offers a rate for [`TIME`].
fn offer(subject: &Subject, bytes: usize, rate: f64) -> Result<Attempt> {
    let address = SocketAddr::new(subject.target, PORT);
    let receiver = subject.right.run(move || UdpSocket::bind(address))??;
    setsockopt(&receiver, sockopt::RcvBufForce, &BUFFER)?;
    receiver.set_read_timeout(Some(SILENCE))?;
    let sender = subject.left.run(move || -> std::io::Result<_> {
        let unspecified: SocketAddr =
            if address.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(unspecified)?;
        socket.connect(address)?;
        Ok(socket)
    })??;
    let busy = || subject.pids.iter().map(|&pid| cpu_time(pid)).sum::<Duration>();
    let before = busy();
    let receiving = std::thread::spawn(move || receive(&receiver, bytes));
    let sent = send(&sender, bytes, rate)?;
    let received = receiving.join().map_err(|_| anyhow!("the receiver panicked"))??;
    Ok(Attempt { sent, received, busy: busy().saturating_sub(before) })
}

/// Sends at a rate in bursts; what the stack refuses for want of room counts as sent, and lost.
fn send(socket: &UdpSocket, bytes: usize, rate: f64) -> Result<u64> {
    let (start, mut sent, mut datagram) = (Instant::now(), 0u64, vec![0x5a; bytes]);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= TIME {
            return Ok(sent);
        }
        let due = (elapsed.as_secs_f64() * rate) as u64;
        while sent < due && start.elapsed() < TIME {
            datagram[..8].copy_from_slice(&sent.to_be_bytes());
            match socket.send(&datagram) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
                Err(e) => return Err(e).context("sending a datagram"),
            }
            sent += 1;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Counts what arrives as it was sent, until nothing comes any more.
fn receive(socket: &UdpSocket, bytes: usize) -> Result<u64> {
    let (mut received, mut datagram) = (0u64, vec![0; bytes + 1]);
    loop {
        match socket.recv(&mut datagram) {
            Ok(len) => {
                ensure!(
                    len == bytes && datagram[8..len].iter().all(|b| *b == 0x5a),
                    "a datagram arrived changed"
                );
                received += 1;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(received),
            Err(e) => return Err(e).context("receiving a datagram"),
        }
    }
}
