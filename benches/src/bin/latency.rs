//! How long a client waits: full handshakes (RSA-2048, X25519), resumptions in two round trips and in one, and address updates of
//! 1, 10, 20 and 100 clients at once, over UDP sockets on loopback. The gateway is one endpoint in a thread of its own, the
//! clients (a `dormouse_testbed::crowd::Crowd`) share another; each client pings a server behind the gateway through its
//! tunnel and begins anew as soon as that answers. What is timed ends when the exchange is over, the rate counts pings too. Every datagram
//! goes through the kernel, nothing through `dormoused`.
//!
//! The gateway asks for no cookies, so that all rows do the same thing. The bare round trip between two such threads
//! is measured in the same run.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dormouse_benches::{Summary, endpoints, thread_cpu, wall};
use dormouse_ike::ticket::lineage::Memory;
use dormouse_ike::{Endpoint, Event};
use dormouse_io::clock::BootClock;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::udp::Udp;
use dormouse_keying::{ChildId, ChildSa, SaId};
use dormouse_sansio::{Carrier, Path};
use dormouse_testbed::crowd::{Child, Crowd, Pki, Proof, Settings, Task};
use dormouse_wire::esp::{NatT, classify_natt};
use nix::sys::socket::{setsockopt, sockopt};

/// Where the clients are, and where they move to and back.
const HOMES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 1, 0, 0), Ipv4Addr::new(127, 2, 0, 0)];
const CROWDS: [usize; 4] = [1, 10, 20, 100];
/// Exchanges of each kind that count, for each crowd, at least; and at least this many of every client.
const EXCHANGES: usize = 300;
const EACH: usize = 5;
/// The non-ESP marker (RFC 3948 section 2.2): all of this runs on the NAT-traversal port.
const MARKER: usize = 4;
/// Whom the clients ping through the tunnel: an answer shows that both ends have the same keys.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Receive buffer of the gateway: as the first messages of a whole crowd arrive at once, the default would drop some of them,
/// and what is measured would be the retransmission timer.
const BUFFER: usize = 4 << 20;

/// The gateway: its endpoint, the store of its tickets in memory, and a server behind it that answers pings.
struct Gateway {
    endpoint: Endpoint,
    store: Memory,
    children: BTreeMap<ChildId, (SaId, Child)>,
    /// What is still to be sent.
    answers: Vec<(Path, Vec<u8>)>,
}

impl Gateway {
    fn datagram(&mut self, path: Path, datagram: &mut [u8]) -> Result<()> {
        match classify_natt(datagram) {
            NatT::Ike(_) => {
                let message = datagram.get_mut(MARKER..).context("a datagram without marker")?;
                self.endpoint.handle_datagram(BootClock::now(), path, message)?;
            }
            NatT::Esp(_) => {
                let spi = datagram.first_chunk().map(|b| ChildId::new(u32::from_be_bytes(*b)));
                // What is still on its way when its client begins anew comes too late.
                let Some((sa, child)) = spi.and_then(|spi| self.children.get_mut(&spi)) else {
                    return Ok(());
                };
                let answer = child.reply(datagram)?;
                self.endpoint.confirm(BootClock::now(), *sa, path);
                self.answers.push((path, answer));
            }
            NatT::Keepalive | NatT::Malformed => bail!("gateway: neither IKE nor ESP"),
        }
        self.events()
    }

    fn events(&mut self) -> Result<()> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Child(ChildSa::Install(install)) => {
                    let sa = install.owner.ike().context("a CHILD SA without an IKE SA")?;
                    self.children.insert(install.child, (sa, Child::new(&install, &mut OsEntropy)?));
                }
                Event::Child(ChildSa::Remove { child, .. }) => drop(self.children.remove(&child)),
                Event::Store(operation) => {
                    let outcome = self.store.apply(endpoints::EPOCH, &operation);
                    if let Some(sa) = operation.asked_by() {
                        self.endpoint.stored(BootClock::now(), sa, outcome);
                    }
                }
                Event::PeerFailed { error, .. } | Event::ChildFailed { error, .. } => {
                    bail!("gateway: {error}")
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Drives a gateway's `endpoint` on `socket` until `stop`: the smallest loop that honours its contract. Returns its CPU time.
fn serve(endpoint: Endpoint, socket: &UdpSocket, stop: &AtomicBool) -> Result<Duration> {
    let local = socket.local_addr()?;
    let (store, children, answers) = (Memory::default(), BTreeMap::new(), Vec::new());
    let mut gateway = Gateway { endpoint, store, children, answers };
    let (mut buffer, mut out) = (vec![0; 65_536], Vec::new());
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, remote)) => {
                let path = Path { local, remote, carrier: Carrier::NatT };
                gateway.datagram(path, buffer.get_mut(..length).unwrap_or_default())?;
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
        if gateway.endpoint.poll_timeout().is_some_and(|due| due.at <= BootClock::now()) {
            gateway.endpoint.handle_timeout(BootClock::now());
            gateway.events()?;
        }
        while let Some(transmit) = gateway.endpoint.poll_transmit(BootClock::now(), &mut out) {
            socket.send_to(&out, transmit.path.remote)?;
            out.clear();
        }
        for (path, answer) in gateway.answers.drain(..) {
            socket.send_to(&answer, path.remote)?;
        }
    }
    Ok(thread_cpu())
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

/// One crowd: the latencies of each task in milliseconds, and the exchanges of each kind in a second.
fn crowd(pki: &Pki, count: usize) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        // Without privileges: as much as the system allows.
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
    }
    let settings = Settings {
        count,
        gateway: socket.local_addr()?,
        homes: HOMES,
        server: Some(SERVER),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    let endpoint = endpoints::gateway(pki.gateway()?);
    let gateway = Server::start(move |stop| serve(endpoint, &socket, stop));
    let farm = Udp::bind((Ipv4Addr::UNSPECIFIED, 0).into(), Carrier::NatT)?;
    let mut clients = Crowd::new(pki, farm, settings)?;
    print!("{count:>7}");
    let mut outcome = Ok(());
    for task in [Task::Full, Task::Strict, Task::Quick, Task::Update] {
        let start = wall();
        match latencies(&mut clients, count, task) {
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
    let cpu = gateway.finish()?;
    outcome?;
    ensure!(cpu > Duration::ZERO, "the gateway did nothing");
    Ok(())
}

/// All clients do `task` until enough are done after each has done one; the latencies of those in milliseconds.
fn latencies(clients: &mut Crowd, count: usize, task: Task) -> Result<Vec<f64>> {
    let wanted = EXCHANGES.max(EACH * count);
    let (mut latencies, mut times) = (Vec::new(), vec![0; count]);
    clients.run(count, task, |done| {
        let times = &mut times[done.client];
        *times += 1;
        if *times > 1 {
            latencies.push(done.ready.as_secs_f64() * 1e3);
        }
        latencies.len() < wanted || *times <= EACH
    })?;
    Ok(latencies)
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
    let tasks = ["full handshake", "ticket, RFC 5723", "ticket, one round trip", "MOBIKE update"];
    println!("{:>7} {}", "", tasks.map(|task| format!("{task:^33}")).join(" "));
    print!("{:>7}", "clients");
    tasks.iter().for_each(|_| print!(" {:>8} {:>16} {:>7}", "ms", "", "/s"));
    println!();
    let pki = Pki::new(Proof::Rsa2048)?;
    CROWDS.into_iter().try_for_each(|count| crowd(&pki, count))
}
