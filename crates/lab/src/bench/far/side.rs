//! What one of the two machines does for a measurement: its end of the tunnel, its sockets, its CPU time. Owns all of that,
//! and takes it away when it is dropped; must never talk to a machine but the one that it was made for.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use super::ground::{self, INNER, TUN, ip};
use crate::bench::forward::{End, Job, Site};
use crate::bench::place::Place;
use crate::bench::tls::Tls;
use crate::bench::traffic::{self, Pace, Received};
use crate::bench::transfer;
use crate::campaign::cpu::{self, Account, Cost};
use crate::results::esp::Encapsulation;

/// How long a machine is watched at rest, to know what it does by itself.
const AT_REST: Duration = Duration::from_millis(400);

/// A tunnel between the two.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::bench) struct Tunnel {
    /// The suite by name; `none` forwards without ESP, if it is not encapsulated.
    pub(super) suite: String,
    /// How packets are wrapped.
    pub(super) encapsulation: Encapsulation,
    /// What both ends derive keys from.
    pub(super) run: [u8; 32],
}

/// UDP packets to be sent.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(in crate::bench) struct Sending {
    /// Number of the measurement.
    pub(super) run: u32,
    /// Payload of each packet.
    pub(super) bytes: u32,
    /// How fast.
    pub(super) pace: Pace,
    /// For how long.
    pub(super) time: Duration,
}

/// An order to the far machine.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum Order {
    /// Take away what stands, and set this tunnel up; without one, the bare link is measured.
    Lay(Option<Tunnel>),
    /// Serve files through what stands, in TLS of the suite of this name if there is one.
    Serve(Option<String>),
    /// Fetch the known stream of bytes from the device's server, and compare.
    Check,
    /// From now on count CPU time...
    Open,
    /// ...until now.
    Close,
    /// Count the packets of this run.
    Receive {
        /// Number of the measurement.
        run: u32,
        /// Payload of each packet.
        bytes: u32,
        /// Whether to tell the sender how far they are.
        acknowledge: bool,
    },
    /// No more than so many come: what has arrived?
    Received(u64),
    /// Send packets.
    Send(Sending),
}

/// What it has to say.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum Answer {
    /// It is done.
    Done,
    /// Files are served, under this certificate (DER) if in TLS.
    Serving(Option<Vec<u8>>),
    /// What was counted.
    Spent(Cost),
    /// Packets that arrived.
    Arrived(Arrived),
    /// Packets that were sent.
    Sent(Sent),
}

/// Packets that arrived at a receiver.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(in crate::bench) struct Arrived {
    /// How many.
    pub(super) packets: u64,
    /// In seconds.
    pub(super) jitter: f64,
    /// Seconds from the first to the last.
    pub(super) span: f64,
    /// What they cost the receiver.
    pub(super) cost: Cost,
}

/// Packets that a sender sent.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(in crate::bench) struct Sent {
    /// How many.
    pub(super) packets: u64,
    /// Seconds from the first to the last.
    pub(super) span: f64,
    /// What they cost the sender.
    pub(super) cost: Cost,
}

/// One of the two machines.
#[derive(Debug)]
pub(in crate::bench) struct Side {
    /// 0: the device; 1: the far machine.
    number: usize,
    own: IpAddr,
    other: IpAddr,
    /// Processors' worth of work that the machine does anyway.
    idle: f64,
    // In this order: what uses the tunnel goes before it.
    receiving: Option<Receiving>,
    files: Option<transfer::Server>,
    account: Option<Account>,
    end: Option<End>,
}

#[derive(Debug)]
struct Receiving {
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Received>>>,
    account: Account,
}

impl Side {
    /// The machine whose address is `own`, towards the one with the address `other`. Watches it at rest for a moment.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub(super) fn new(number: usize, own: IpAddr, other: IpAddr) -> Result<Self> {
        let idle = cpu::idle_rate(AT_REST)?;
        Ok(Self { number, own, other, idle, receiving: None, files: None, account: None, end: None })
    }

    /// Carries an order out. `stop` ends what would take long.
    ///
    /// # Errors
    /// If any step of it fails.
    pub(in crate::bench) fn obey(&mut self, order: Order, stop: &AtomicBool) -> Result<Answer> {
        match order {
            Order::Lay(tunnel) => self.lay(tunnel.as_ref(), false)?,
            Order::Serve(tls) => {
                let tls = tls.map(|name| Tls::new(&name)).transpose()?;
                let certificate = tls.as_ref().map(|tls| tls.certificate().to_vec());
                self.serve(tls)?;
                return Ok(Answer::Serving(certificate));
            }
            Order::Check => self.check()?,
            Order::Open => self.account = Some(self.account()?),
            Order::Close => {
                let account = self.account.take().context("no CPU time is counted")?;
                return Ok(Answer::Spent(account.close(self.idle)?));
            }
            Order::Receive { run, bytes, acknowledge } => self.receive(run, bytes, acknowledge)?,
            Order::Received(sent) => return Ok(Answer::Arrived(self.received(sent)?)),
            Order::Send(sending) => return Ok(Answer::Sent(self.send(&sending, stop)?)),
        }
        Ok(Answer::Done)
    }

    /// Takes away what stands.
    pub(super) fn clear(&mut self) {
        self.receiving = None;
        self.files = None;
        self.account = None;
        self.end = None;
    }

    /// Takes away what stands, and sets up the tunnel, if it is one; `hidden`: without AES instructions at this end.
    ///
    /// # Errors
    /// If prefix or device are in use here; what the end says went wrong.
    pub(super) fn lay(&mut self, tunnel: Option<&Tunnel>, hidden: bool) -> Result<()> {
        self.clear();
        let Some(tunnel) = tunnel else { return Ok(()) };
        ground::check_prefix()?;
        let (ours, theirs) = (INNER[self.number], INNER[1 - self.number]);
        let site = Site {
            tun: TUN.to_owned(),
            local: self.own,
            remote: self.other,
            inner: [ours, theirs],
            run: Some(tunnel.run),
        };
        let job =
            Job { suite: tunnel.suite.clone(), encapsulation: tunnel.encapsulation, end: self.number, site };
        let end = End::start(&Place::Here, &job, hidden)?;
        // They go with the device, which goes with its process.
        ip(&format!("addr add {ours} peer {theirs} dev {TUN}"))?;
        ip(&format!("link set dev {TUN} up"))?;
        self.end = Some(end);
        Ok(())
    }

    /// Our address through what stands, and the peer's.
    pub(super) fn addresses(&self) -> (IpAddr, IpAddr) {
        match self.end {
            None => (self.own, self.other),
            Some(_) => (INNER[self.number].into(), INNER[1 - self.number].into()),
        }
    }

    /// Serves files to the peer.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub(super) fn serve(&mut self, tls: Option<Tls>) -> Result<()> {
        // The one before has the same port.
        self.files = None;
        let (own, other) = self.addresses();
        self.files = Some(transfer::Server::start(Place::Here, own, Some(other), tls)?);
        Ok(())
    }

    /// Stops serving files.
    pub(super) fn close_files(&mut self) {
        self.files = None;
    }

    /// Where the peer serves files.
    pub(super) fn peer_files(&self) -> SocketAddr {
        SocketAddr::new(self.addresses().1, transfer::PORT)
    }

    /// Holds what comes from the peer's server against the known stream of bytes.
    ///
    /// # Errors
    /// If it arrives changed, or not at all.
    pub(super) fn check(&self) -> Result<()> {
        transfer::check(self.peer_files(), Some(self.addresses().0))
    }

    /// CPU time from now on: of this process and of its end of the tunnel.
    ///
    /// # Errors
    /// As [`Account::open`].
    pub(super) fn account(&self) -> Result<Account> {
        Account::open(&self.end.iter().map(End::pid).collect::<Vec<_>>())
    }

    /// What it counted.
    ///
    /// # Errors
    /// As [`Account::close`].
    pub(super) fn spent(&self, account: &Account) -> Result<Cost> {
        account.close(self.idle)
    }

    /// The one socket of packets, to the peer and from it alone.
    fn socket(&self) -> Result<UdpSocket> {
        let (own, other) = self.addresses();
        let own = SocketAddr::new(own, traffic::PORT);
        let socket = UdpSocket::bind(own).with_context(|| format!("UDP {own}"))?;
        socket.connect(SocketAddr::new(other, traffic::PORT))?;
        socket.set_read_timeout(Some(traffic::LOOK))?;
        Ok(socket)
    }

    /// Counts the packets of a run from now on.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub(super) fn receive(&mut self, run: u32, bytes: u32, acknowledge: bool) -> Result<()> {
        self.receiving = None;
        let socket = self.socket()?;
        traffic::room(&socket)?;
        let (stop, arrived) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let account = self.account()?;
        let bytes = usize::try_from(bytes)?;
        let thread = {
            let (stop, arrived) = (stop.clone(), arrived.clone());
            std::thread::spawn(move || {
                let mut tell = |packets: u64| {
                    if acknowledge {
                        // What is lost of these is made up for by the next.
                        let _ = socket.send(&acknowledgement(run, packets));
                    }
                };
                traffic::receive(&socket, bytes, run.into(), &stop, &arrived, &mut tell)
            })
        };
        self.receiving = Some(Receiving { stop, arrived, thread: Some(thread), account });
        Ok(())
    }

    /// Waits for what is under way of `sent` packets, and says what arrived.
    ///
    /// # Errors
    /// If nothing is being received.
    pub(super) fn received(&mut self, sent: u64) -> Result<Arrived> {
        let mut receiving = self.receiving.take().context("nothing is being received")?;
        traffic::drain(sent, &receiving.arrived);
        receiving.stop.store(true, Ordering::Relaxed);
        let thread = receiving.thread.take().context("nothing is being received")?;
        let received = thread.join().map_err(|_| anyhow!("the receiver panicked"))??;
        let cost = receiving.account.close(self.idle)?;
        let span = received.first.zip(received.last).map_or(0.0, |(a, b)| (b - a).as_secs_f64());
        Ok(Arrived { packets: received.packets, jitter: received.jitter, span, cost })
    }

    /// Sends packets, until all are sent or `stop` is set.
    ///
    /// # Errors
    /// If none can be sent.
    pub(super) fn send(&self, sending: &Sending, stop: &AtomicBool) -> Result<Sent> {
        let socket = self.socket()?;
        let bytes = usize::try_from(sending.bytes)?;
        let (tell, told) = sync_channel(1_024);
        let over = AtomicBool::new(false);
        let account = self.account()?;
        let (packets, span) = std::thread::scope(|scope| {
            if sending.pace == Pace::Window {
                scope.spawn(|| hear_acknowledgements(&socket, sending.run, &over, &tell));
            }
            let start = cpu::wall();
            let run = sending.run.into();
            let sent = traffic::send(&socket, bytes, run, sending.time, &sending.pace, &told, stop);
            let span = start.elapsed().as_secs_f64();
            // What is under way must find the way, and costs the receiver something still.
            std::thread::sleep(traffic::TAIL);
            over.store(true, Ordering::Relaxed);
            (sent, span)
        });
        let cost = account.close(self.idle)?;
        ensure!(!stop.load(Ordering::Relaxed), "it was told to stop");
        Ok(Sent { packets: packets?, span, cost })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Number of the run and how many packets are there or lost, 32 bits each.
fn acknowledgement(run: u32, packets: u64) -> [u8; 8] {
    (u64::from(run) << 32 | packets & 0xffff_ffff).to_be_bytes()
}

/// Passes on how far the receiver of this run is.
fn hear_acknowledgements(socket: &UdpSocket, run: u32, over: &AtomicBool, tell: &SyncSender<u64>) {
    // One byte more than there should be: what is longer is something else.
    let mut buffer = [0; 9];
    while !over.load(Ordering::Relaxed) {
        match socket.recv(&mut buffer) {
            Ok(8) => {
                let Some(word) = buffer.first_chunk().map(|word| u64::from_be_bytes(*word)) else { continue };
                if word >> 32 == u64::from(run) {
                    let _ = tell.try_send(word & 0xffff_ffff);
                }
            }
            Ok(_) => {}
            Err(e) if traffic::would_block(&e) => {}
            Err(_) => return,
        }
    }
}
