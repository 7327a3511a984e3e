//! How long a client waits: full handshakes (RSA-2048, X25519), resumptions and address updates of 1, 10, 20 and 100 clients
//! at once, over UDP sockets on loopback. The gateway is one endpoint in a thread of its own, the clients share another; each
//! client begins anew as soon as it is done. Every datagram goes through the kernel, nothing through `dormoused`.
//!
//! The gateway asks for no cookies, so that all four rows do the same thing. The bare round trip between two such threads
//! is measured in the same run.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dormouse_benches::pki::{Pki, Proof};
use dormouse_benches::{Summary, endpoints, thread_cpu, wall};
use dormouse_crypto::Secret;
use dormouse_ike::config::Connection;
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::{ChildId, ChildSa, Endpoint, Event, SaId};
use dormouse_sansio::{Carrier, Instant, Path};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

const CROWDS: [usize; 4] = [1, 10, 20, 100];
/// Exchanges of each kind that count, for each crowd, at least; and at least this many of every client.
const EXCHANGES: usize = 300;
const EACH: usize = 5;
/// The non-ESP marker (RFC 3948 section 2.2): all of this runs on the NAT-traversal port.
const MARKER: usize = 4;
/// Receive buffer of the gateway: as the first messages of a whole crowd arrive at once, the default would drop some of them,
/// and what is measured would be the retransmission timer.
const BUFFER: usize = 4 << 20;
/// Nothing takes this long: something is stuck.
const STUCK: Duration = Duration::from_secs(60);

/// The clock of one run, as the endpoints want it.
#[derive(Clone, Copy)]
struct Clock(std::time::Instant);

impl Clock {
    fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Keys of the CHILD SAs that an endpoint has installed, by inbound SPI: those of what it receives, and of what it sends.
#[derive(Default)]
struct Installed {
    spis: BTreeMap<ChildId, u32>,
    keys: BTreeMap<u32, (Secret, Secret, u32)>,
}

impl Installed {
    fn apply(&mut self, change: ChildSa) {
        match change {
            ChildSa::Install(i) => {
                self.spis.insert(i.child, i.spi_in);
                self.keys.insert(i.spi_in, (i.keymat_in, i.keymat_out, i.spi_out));
            }
            ChildSa::Remove { child, .. } => {
                self.spis.remove(&child).and_then(|spi| self.keys.remove(&spi));
            }
            ChildSa::Remap { .. } => {}
        }
    }
}

/// What the gateway's thread leaves behind.
struct GatewayReport {
    cpu: Duration,
    installed: Installed,
}

/// Drives `endpoint` on `socket` until `stop`: the smallest loop that honours its contract.
fn serve(
    mut endpoint: Endpoint,
    socket: &UdpSocket,
    stop: &AtomicBool,
    clock: Clock,
) -> Result<GatewayReport> {
    let local = socket.local_addr()?;
    let mut installed = Installed::default();
    let (mut buffer, mut out) = (vec![0; 65_536], Vec::new());
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, remote)) => {
                let path = Path { local, remote, carrier: Carrier::NatT };
                let datagram = buffer.get_mut(MARKER..length).context("a datagram without marker")?;
                endpoint.handle_datagram(clock.now(), path, datagram)?;
            }
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock
                        | std::io::ErrorKind::TimedOut
                        | std::io::ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(e.into()),
        }
        if endpoint.poll_timeout().is_some_and(|due| due.at <= clock.now()) {
            endpoint.handle_timeout(clock.now());
        }
        while let Some(transmit) = endpoint.poll_transmit(clock.now(), &mut out) {
            socket.send_to(&out, transmit.path.remote)?;
            out.clear();
        }
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Child(change) => installed.apply(change),
                Event::PeerFailed { error, .. } | Event::ChildFailed { error, .. } => {
                    bail!("gateway: {error}")
                }
                _ => {}
            }
        }
    }
    Ok(GatewayReport { cpu: thread_cpu(), installed })
}

/// A thread that ends when it is asked for its result.
struct Server<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Server<T> {
    fn start(work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        Self { stop, thread: std::thread::spawn(move || work(&seen)) }
    }

    fn finish(self) -> Result<T> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the server's thread panicked"))?
    }
}

/// What a client does over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    Full,
    Resume,
    Update,
}

struct Client {
    connection: Arc<Connection>,
    /// At the two addresses between which it moves.
    sockets: [UdpSocket; 2],
    at: usize,
    sa: Option<SaId>,
    ticket: Option<ClientTicket>,
    began: std::time::Instant,
    /// Round trips of the SA when the exchange began, where that is how its end is noticed.
    trips: u64,
    done: usize,
}

struct Clients {
    endpoint: Endpoint,
    gateway: SocketAddr,
    clock: Clock,
    all: Vec<Client>,
    installed: Installed,
}

impl Clients {
    fn new(pki: &Pki, count: usize, gateway: SocketAddr, clock: Clock) -> Result<Self> {
        let socket = |network: u8, number: usize| -> Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, network, u8::try_from(number + 1)?), 0))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let all = (0..count).map(|number| {
            Ok(Client {
                connection: Arc::new(pki.client(number)?),
                sockets: [socket(1, number)?, socket(2, number)?],
                at: 0,
                sa: None,
                ticket: None,
                began: wall(),
                trips: 0,
                done: 0,
            })
        });
        let (endpoint, all) = (endpoints::client(), all.collect::<Result<_>>()?);
        Ok(Self { endpoint, gateway, clock, all, installed: Installed::default() })
    }

    fn begin(&mut self, number: usize, task: Task) -> Result<()> {
        let now = self.clock.now();
        let client = &mut self.all[number];
        client.began = wall();
        if task == Task::Update {
            let sa = client.sa.context("no SA")?;
            client.at = 1 - client.at;
            client.trips = self.endpoint.sa_stats(sa).context("the SA is gone")?.round_trips;
            let path = client.path(self.gateway)?;
            ensure!(self.endpoint.set_path(now, sa, path), "the SA is gone");
            return Ok(());
        }
        let path = client.path(self.gateway)?;
        if let Some(old) = client.sa.take() {
            self.endpoint.forget(now, old);
        }
        client.sa = Some(match task {
            Task::Resume => {
                let ticket = client.ticket.take().context("no ticket")?;
                self.endpoint.resume(now, client.connection.clone(), ticket, path)
            }
            _ => self.endpoint.connect(now, client.connection.clone(), path),
        });
        Ok(())
    }

    /// All clients do `task` until `wanted` are done after each has done one; returns the latencies of those in milliseconds.
    fn run(&mut self, task: Task, wanted: usize) -> Result<Vec<f64>> {
        let (start, mut latencies) = (wall(), Vec::new());
        for number in 0..self.all.len() {
            self.all[number].done = 0;
            self.begin(number, task)?;
        }
        let mut running = self.all.len();
        while running > 0 {
            ensure!(start.elapsed() < STUCK, "{task:?}: {running} clients are stuck after {STUCK:?}");
            self.flush()?;
            let mut finished = self.receive()?;
            finished.extend(self.established(task)?);
            for number in finished {
                let client = &mut self.all[number];
                if task == Task::Update
                    && client.trips
                        >= self.endpoint.sa_stats(client.sa.context("no SA")?).context("gone")?.round_trips
                {
                    continue;
                }
                client.done += 1;
                if client.done > 1 {
                    latencies.push(client.began.elapsed().as_secs_f64() * 1e3);
                }
                if latencies.len() < wanted || client.done <= EACH {
                    self.begin(number, task)?;
                } else {
                    running -= 1;
                }
            }
        }
        Ok(latencies)
    }

    /// Sends what is to be sent.
    fn flush(&mut self) -> Result<()> {
        let mut out = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.clock.now(), &mut out) {
            let octets = match transmit.path.local.ip() {
                std::net::IpAddr::V4(a) => a.octets(),
                std::net::IpAddr::V6(_) => bail!("an IPv6 address"),
            };
            let client = &self.all[usize::from(octets[3]) - 1];
            client.sockets[usize::from(octets[2]) - 1].send_to(&out, transmit.path.remote)?;
            out.clear();
        }
        Ok(())
    }

    /// Waits for datagrams and timers, and handles them; returns the clients that heard something.
    fn receive(&mut self) -> Result<Vec<usize>> {
        let now = self.clock.now();
        let due = self.endpoint.poll_timeout().map_or(STUCK, |due| due.at - now).min(Duration::from_secs(1));
        let patience = PollTimeout::try_from(due + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        let mut fds: Vec<PollFd<'_>> =
            self.all.iter().map(|c| PollFd::new(c.sockets[c.at].as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut fds, patience)?;
        let ready: Vec<usize> = (0..fds.len()).filter(|&i| fds[i].any() == Some(true)).collect();
        drop(fds);
        let mut buffer = [0; 4096];
        for &number in &ready {
            let client = &self.all[number];
            let path = client.path(self.gateway)?;
            while let Ok((length, _)) = client.sockets[client.at].recv_from(&mut buffer) {
                let datagram = buffer.get_mut(MARKER..length).context("a datagram without marker")?;
                self.endpoint.handle_datagram(self.clock.now(), path, datagram)?;
            }
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due.at <= self.clock.now()) {
            self.endpoint.handle_timeout(self.clock.now());
        }
        Ok(if self.all.iter().any(|c| c.trips > 0) { ready } else { Vec::new() })
    }

    /// Applies events; returns the clients that have a new SA.
    fn established(&mut self, task: Task) -> Result<Vec<usize>> {
        let mut done = Vec::new();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Established(e) => {
                    ensure!(e.resumed == (task == Task::Resume), "{task:?}, resumed: {}", e.resumed);
                    done.push(self.find(e.sa)?);
                }
                Event::Ticket { sa, ticket } => {
                    let number = self.find(sa)?;
                    self.all[number].ticket = Some(*ticket);
                }
                Event::Child(change) => self.installed.apply(change),
                Event::Failed { error, .. } | Event::ChildFailed { error, .. } => bail!("client: {error}"),
                Event::Closed { sa, reason } if self.find(sa).is_ok() => bail!("{sa} was closed: {reason}"),
                _ => {}
            }
        }
        Ok(done)
    }

    fn find(&self, sa: SaId) -> Result<usize> {
        self.all.iter().position(|c| c.sa == Some(sa)).context("an SA of nobody")
    }
}

impl Client {
    fn path(&self, gateway: SocketAddr) -> Result<Path> {
        Ok(Path { local: self.sockets[self.at].local_addr()?, remote: gateway, carrier: Carrier::NatT })
    }
}

/// One crowd: the latencies of each task in milliseconds, and the exchanges of each kind in a second.
fn crowd(pki: &Pki, count: usize) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        // Without privileges: as much as the system allows.
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
    }
    let (address, clock) = (socket.local_addr()?, Clock(wall()));
    let endpoint = endpoints::gateway(pki.gateway()?);
    let gateway = Server::start(move |stop| serve(endpoint, &socket, stop, clock));
    let mut clients = Clients::new(pki, count, address, clock)?;
    print!("{count:>7}");
    let mut outcome = Ok(());
    for task in [Task::Full, Task::Resume, Task::Update] {
        let start = wall();
        match clients.run(task, EXCHANGES.max(EACH * count)) {
            Ok(latencies) => {
                let (done, took) = (latencies.len() + count, start.elapsed().as_secs_f64());
                let of = Summary::of(latencies);
                let spread = format!("[{:.2} {:.2}]", of.least, of.most);
                print!(" {:>8.3} {spread:>16} {:>7.0}", of.median, done as f64 / took);
            }
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    println!();
    let report = gateway.finish()?;
    outcome?;
    let theirs = report.installed.keys;
    ensure!(clients.installed.keys.len() == count, "{} CHILD SAs of {count}", clients.installed.keys.len());
    for (receives, sends, spi_out) in clients.installed.keys.values() {
        let agree = theirs.get(spi_out).is_some_and(|(r, s, _)| r == sends && s == receives);
        ensure!(agree, "the two ends have different keys");
    }
    ensure!(report.cpu > Duration::ZERO, "the gateway did nothing");
    Ok(())
}

/// The round trip of a small datagram between two threads: what waiting costs here without any protocol.
fn bare_round_trip() -> Result<Summary> {
    let (near, far) =
        (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    near.connect(far.local_addr()?)?;
    near.set_read_timeout(Some(Duration::from_secs(1)))?;
    far.set_read_timeout(Some(Duration::from_millis(50)))?;
    let echo = Server::start(move |stop| {
        let mut buffer = [0; 256];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = far.recv_from(&mut buffer) {
                far.send_to(&buffer[..length], from)?;
            }
        }
        Ok(())
    });
    let mut buffer = [0; 256];
    let mut samples = Vec::new();
    for _ in 0..1_000 {
        let start = wall();
        near.send(&buffer)?;
        near.recv(&mut buffer)?;
        samples.push(start.elapsed().as_secs_f64() * 1e6);
    }
    echo.finish()?;
    Ok(Summary::of(samples))
}

fn main() -> Result<()> {
    let bare = bare_round_trip()?;
    println!(
        "Milliseconds until it is done, median [least most], and how many in a second. RSA-2048, X25519, loopback."
    );
    println!(
        "A bare round trip of 256 bytes between two threads: {:.1} us [{:.1} {:.1}]",
        bare.median, bare.least, bare.most
    );
    println!("{:>7} {:^33} {:^33} {:^33}", "", "full handshake", "resumption", "MOBIKE update");
    print!("{:>7}", "clients");
    (0..3).for_each(|_| print!(" {:>8} {:>16} {:>7}", "ms", "", "/s"));
    println!();
    let pki = Pki::new(Proof::Rsa2048)?;
    CROWDS.into_iter().try_for_each(|count| crowd(&pki, count))
}
