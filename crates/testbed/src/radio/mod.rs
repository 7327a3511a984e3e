//! A bad radio between two hosts, in real time, for all packets of either host's kernel: a TUN interface in each, and [`Hop`] between them. Or a bridge
//! of two interfaces with frames of Ethernet that exist. Owns the thread that carries packets, and the TUN interfaces; all of it ends with its owner.

mod hop;
mod port;
mod transfer;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use dormouse_io::clock::BootClock;
use dormouse_io::poller::{Interest, Poller};
use dormouse_io::timer::Timer;
use dormouse_sansio::Instant;

use crate::host::Host;
pub use hop::{End, Hop, Settings};
pub use port::Interface;
use port::Port;
pub use transfer::{Seen, Transfer, transfer};

/// The interface's name at either end.
pub const INTERFACE: &str = "radio0";
/// Its addresses, those of the fixed host first.
pub const ADDRESSES: [[&str; 2]; 2] = [["10.77.0.1", "fd77::1"], ["10.77.0.2", "fd77::2"]];
/// Bytes of a packet at most.
pub const MTU: u16 = 1_500;
/// Packets read from one interface before the other has a turn.
const BUDGET: usize = 64;
/// How often it is looked whether a bridged interface was deleted.
const LOOK: Duration = Duration::from_secs(1);

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
        Self::carry(settings, [Port::make(fixed)?, Port::make(device)?])
    }

    /// Puts a hop between two interfaces that exist, and forwards frames of any kind. Their hosts' kernels should have no addresses there. A repair of
    /// `settings` is one of frames ([`dormouse_snoop::tcp::Agent::in_bridge`]); there is no device here that could restore anything.
    ///
    /// # Errors
    /// If there is no such namespace or interface, it has no frames of Ethernet, or without root.
    pub fn bridge(settings: Settings, fixed: &Interface, device: &Interface) -> Result<Self> {
        let ports = [Port::open(fixed)?, Port::open(device)?];
        let [one, other] = &ports;
        if one.identity(fixed)? == other.identity(device)? {
            // Each frame would come back to where it is from.
            bail!("a bridge has two interfaces, and both names are the same one's");
        }
        Self::carry(settings, ports)
    }

    fn carry(settings: Settings, ports: [Port; 2]) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name("radio".into());
        let thread = thread.spawn(move || run(Hop::new(settings), ports, &stopped))?;
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

fn run(mut hop: Hop, mut ports: [Port; 2], stop: &impl AsFd) -> Result<Hop> {
    const STOP: u64 = 2;
    const TIMER: u64 = 3;
    let (poller, mut timer) = (Poller::new()?, Timer::new()?);
    for (port, token) in ports.iter().zip(0..) {
        poller.add(port, token, Interest::READ)?;
    }
    poller.add(stop, STOP, Interest::READ)?;
    poller.add(&timer, TIMER, Interest::READ)?;
    let (mut ready, mut came) = (Vec::new(), Vec::new());
    let mut looked = BootClock::now();
    loop {
        timer.arm(hop.poll_timeout(), false)?;
        poller.wait(&mut ready, Some(LOOK))?;
        let now = BootClock::now();
        if now - looked >= LOOK {
            looked = now;
            ports.iter().try_for_each(Port::check)?;
        }
        for one in &ready {
            match one.token {
                STOP => return Ok(hop),
                TIMER => _ = timer.clear(),
                token => {
                    let (at, end) = if token == 0 { (0, End::Fixed) } else { (1, End::Device) };
                    for _ in 0..BUDGET {
                        let Some(whole) = ports[at].read(&mut |packet| came.push(packet.to_vec()))? else {
                            break;
                        };
                        let now = BootClock::now();
                        advance(&mut hop, now, &ports);
                        came.drain(..).for_each(|packet| hop.send(now, end, packet));
                        if !whole {
                            hop.lose(end);
                        }
                    }
                }
            }
        }
        advance(&mut hop, BootClock::now(), &ports);
    }
}

fn advance(hop: &mut Hop, now: Instant, [fixed, device]: &[Port; 2]) {
    hop.advance(now, &mut |end, packet| if end == End::Fixed { fixed } else { device }.write(packet));
}
