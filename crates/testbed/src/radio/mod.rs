//! A bad radio between two hosts, in real time, for all packets of either host's kernel: a TUN interface in each, and [`Hop`] between them.
//! Owns both interfaces and the thread that carries packets; all of it ends with its owner.

mod hop;
mod transfer;

use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use dormouse_io::clock::BootClock;
use dormouse_io::poller::{Interest, Poller};
use dormouse_io::timer::Timer;
use dormouse_io::tun::{Tun, TunOptions};

use dormouse_sansio::Instant;

use crate::host::Host;
pub use hop::{End, Hop, Settings};
pub use transfer::{Seen, Transfer, transfer};

/// The interface's name at either end.
pub const INTERFACE: &str = "radio0";
/// Its addresses, those of the fixed host first.
pub const ADDRESSES: [[&str; 2]; 2] = [["10.77.0.1", "fd77::1"], ["10.77.0.2", "fd77::2"]];
/// Bytes of a packet at most.
pub const MTU: u16 = 1_500;
/// Packets read from one interface before the other has a turn.
const BUDGET: usize = 64;

/// Where an end of the hop is: the host, the name of its interface there, and the interface's addresses with their prefix lengths.
pub type Place<'a> = (&'a Host, &'a str, &'a [&'a str]);

/// A hop that works, until it is stopped or dropped.
#[derive(Debug)]
pub struct Radio {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<Hop>>>,
}

impl Radio {
    /// Puts a hop between two hosts, with the interface [`INTERFACE`] and [`ADDRESSES`] at each end.
    ///
    /// # Errors
    /// Without root or `/dev/net/tun`.
    pub fn start(settings: Settings, fixed: &Host, device: &Host) -> Result<Self> {
        let [[a4, a6], [b4, b6]] = ADDRESSES.map(|[v4, v6]| [format!("{v4}/24"), format!("{v6}/64")]);
        Self::between(settings, (fixed, INTERFACE, &[&a4, &a6]), (device, INTERFACE, &[&b4, &b6]))
    }

    /// The same, with interfaces and addresses of the caller's choice: a host can have several.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn between(settings: Settings, fixed: Place<'_>, device: Place<'_>) -> Result<Self> {
        let [fixed, device] = [open(fixed)?, open(device)?];
        let (stop, stopped) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name("radio".into());
        let thread = thread.spawn(move || run(Hop::new(settings), &fixed, &device, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Whether it still works.
    #[must_use]
    pub fn works(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Takes the hop away, and gives it back as it was at the end.
    ///
    /// # Errors
    /// What went wrong while it worked.
    pub fn stop(mut self) -> Result<Hop> {
        self.end().context("stopped before")?
    }

    fn end(&mut self) -> Option<Result<Hop>> {
        self.stop = None;
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or_else(|_| Err(anyhow!("the thread of a radio panicked"))))
    }
}

impl Drop for Radio {
    fn drop(&mut self) {
        // A caller that needs the outcome calls `stop`.
        let _ = self.end();
    }
}

fn open((host, name, addresses): Place<'_>) -> Result<Tun> {
    // Packet by packet: a radio sends no super-packets.
    let options = TunOptions { name: Some(name.into()), mtu: MTU, offload: false, ..TunOptions::default() };
    let tun = host.run(move || Tun::open(&options))??;
    for address in addresses {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        host.ip(&format!("addr add {address} dev {name}{nodad}"))?;
    }
    Ok(tun)
}

fn run(mut hop: Hop, fixed: &Tun, device: &Tun, stop: &impl AsFd) -> Result<Hop> {
    const STOP: u64 = 2;
    const TIMER: u64 = 3;
    let (poller, mut timer) = (Poller::new()?, Timer::new()?);
    poller.add(fixed, 0, Interest::READ)?;
    poller.add(device, 1, Interest::READ)?;
    poller.add(stop, STOP, Interest::READ)?;
    poller.add(&timer, TIMER, Interest::READ)?;
    let (mut ready, mut buffer) = (Vec::new(), vec![0; usize::from(u16::MAX)]);
    loop {
        timer.arm(hop.poll_timeout(), false)?;
        poller.wait(&mut ready, None)?;
        for one in &ready {
            match one.token {
                STOP => return Ok(hop),
                TIMER => _ = timer.clear(),
                token => {
                    let (tun, end) = if token == 0 { (fixed, End::Fixed) } else { (device, End::Device) };
                    for _ in 0..BUDGET {
                        let Some(packet) = read(tun, &mut buffer)? else { break };
                        let now = BootClock::now();
                        advance(&mut hop, now, fixed, device);
                        hop.send(now, end, packet);
                    }
                }
            }
        }
        advance(&mut hop, BootClock::now(), fixed, device);
    }
}

fn advance(hop: &mut Hop, now: Instant, fixed: &Tun, device: &Tun) {
    hop.advance(now, &mut |end, packet| {
        let tun = if end == End::Fixed { fixed } else { device };
        // An interface that is down, or a packet with flipped bits that is none any more: lost, as over any radio.
        let _ = tun.write(&[IoSlice::new(packet)]);
    });
}

fn read(tun: &Tun, buffer: &mut [u8]) -> Result<Option<Vec<u8>>> {
    match tun.read(buffer) {
        Ok(n) => Ok(Some(buffer.get(..n).unwrap_or_default().to_vec())),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e).context("reading from the TUN interface of a radio"),
    }
}
