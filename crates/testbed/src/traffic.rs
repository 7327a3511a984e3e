//! Real traffic between two hosts: an echo server, a long-lived TCP connection that notices every lost or reordered byte, and
//! UDP probes that find the first packet after a wake. Owns its threads and sockets; all of them end when the owner is dropped.

use crate::host::Host;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);

/// Echoes TCP and UDP on one port of a host, and notes when each UDP probe arrived.
#[derive(Debug)]
pub struct EchoServer {
    stop: Arc<AtomicBool>,
    arrivals: Arc<Mutex<Vec<(u64, Instant)>>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl EchoServer {
    /// Starts it on `address` inside `host`.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn start(host: &Host, address: SocketAddr) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let (tcp, udp) = host
            .run(move || -> Result<_> { Ok((TcpListener::bind(address)?, UdpSocket::bind(address)?)) })?
            .with_context(|| format!("echo server on {address}"))?;
        tcp.set_nonblocking(true)?;
        udp.set_read_timeout(Some(POLL))?;
        let (s, a) = (stop.clone(), arrivals.clone());
        let udp_thread = std::thread::spawn(move || echo_udp(&udp, &s, &a));
        let s = stop.clone();
        let tcp_thread = std::thread::spawn(move || accept(&tcp, &s));
        Ok(Self { stop, arrivals, threads: vec![udp_thread, tcp_thread] })
    }

    /// When probe `number` arrived here.
    #[must_use]
    pub fn arrival(&self, number: u64) -> Option<Instant> {
        let arrivals = self.arrivals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        arrivals.iter().find(|(n, _)| *n == number).map(|(_, at)| *at)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A worker that failed has already shown itself as missing echoes.
            let _ = thread.join();
        }
    }
}

/// Whether a read with a time limit merely came back without data. `Interrupted` is among the reasons without any signal
/// handler: a process that is stopped and continued (a debugger, a suspended machine) finds every such read ended by it.
pub(crate) fn nothing_yet(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn echo_udp(socket: &UdpSocket, stop: &AtomicBool, arrivals: &Mutex<Vec<(u64, Instant)>>) -> Result<()> {
    let mut buf = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buf) {
            Ok((n, from)) => {
                let now = Instant::now();
                if let Some(number) = buf.first_chunk::<8>() {
                    let mut list = arrivals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    list.push((u64::from_be_bytes(*number), now));
                }
                // The way back may be gone while the device sleeps.
                let _ = socket.send_to(buf.get(..n).unwrap_or(&buf), from);
            }
            Err(e) if nothing_yet(&e) || e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn accept(listener: &TcpListener, stop: &Arc<AtomicBool>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let stop = stop.clone();
                std::thread::spawn(move || echo_tcp(stream, &stop));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn echo_tcp(mut stream: TcpStream, stop: &AtomicBool) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(POLL))?;
    let mut buf = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(n) => stream.write_all(buf.get(..n).unwrap_or(&buf))?,
            Err(e) if nothing_yet(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// A TCP connection that lives through everything: it sends a counter ten times a second and checks the echo.
#[derive(Debug)]
pub struct LongLived {
    stop: Arc<AtomicBool>,
    echoed: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl LongLived {
    /// Connects from `host` to an [`EchoServer`].
    ///
    /// # Errors
    /// If the connection is not there within five seconds.
    pub fn connect(host: &Host, server: SocketAddr) -> Result<Self> {
        let stream = host
            .run(move || TcpStream::connect_timeout(&server, Duration::from_secs(5)))?
            .with_context(|| format!("TCP to {server}"))?;
        let (stop, echoed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (s, e) = (stop.clone(), echoed.clone());
        let thread = std::thread::spawn(move || count(stream, &s, &e));
        Ok(Self { stop, echoed, thread: Some(thread) })
    }

    /// Counters echoed so far.
    #[must_use]
    pub fn echoed(&self) -> u64 {
        self.echoed.load(Ordering::Relaxed)
    }

    /// Waits until another counter is echoed: the connection lives.
    ///
    /// # Errors
    /// If none is within `limit`, or the connection broke.
    pub fn lives(&self, limit: Duration) -> Result<()> {
        let (before, until) = (self.echoed(), Instant::now() + limit);
        while self.echoed() == before {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                bail!("the TCP connection broke");
            }
            if Instant::now() > until {
                bail!("the TCP connection has been silent for {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends it and returns how many counters were echoed.
    ///
    /// # Errors
    /// If it broke, or an echo differed from what was sent.
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| anyhow::anyhow!("the TCP client panicked"))??;
        }
        Ok(self.echoed())
    }
}

impl Drop for LongLived {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn count(mut stream: TcpStream, stop: &AtomicBool, echoed: &AtomicU64) -> Result<()> {
    stream.set_read_timeout(Some(POLL))?;
    stream.set_nodelay(true)?;
    let (mut sent, mut next_send) = (0u64, Instant::now());
    let mut pending = Vec::new();
    let mut buf = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next_send {
            stream.write_all(&sent.to_be_bytes())?;
            sent += 1;
            next_send += Duration::from_millis(100);
        }
        match stream.read(&mut buf) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(n) => pending.extend_from_slice(buf.get(..n).unwrap_or(&buf)),
            Err(e) if nothing_yet(&e) => {}
            Err(e) => return Err(e.into()),
        }
        while let Some(counter) = pending.first_chunk::<8>() {
            let (got, expected) = (u64::from_be_bytes(*counter), echoed.load(Ordering::Relaxed));
            if got != expected {
                bail!("counter {expected} expected, {got} echoed");
            }
            pending.drain(..8);
            echoed.store(expected + 1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// A TCP transfer from one host to another at an even pace, some 3 MB/s, of which each byte is known: none is lost, doubled or in
/// another place unnoticed.
#[derive(Debug)]
pub struct Transfer {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: Option<[JoinHandle<Result<u64>>; 2]>,
}

impl Transfer {
    /// Begins one from `address` of `server` to `client`.
    ///
    /// # Errors
    /// If the address cannot be bound, or the connection is not there within five seconds.
    pub fn start(server: &Host, address: SocketAddr, client: &Host) -> Result<Self> {
        let listener = server.run(move || TcpListener::bind(address))??;
        let stream = client
            .run(move || TcpStream::connect_timeout(&address, Duration::from_secs(5)))?
            .with_context(|| format!("TCP to {address}"))?;
        let (far, _) = listener.accept()?;
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (s, r) = (stop.clone(), received.clone());
        let sender = std::thread::spawn(move || send(far, &s));
        let receiver = std::thread::spawn(move || receive(stream, &r));
        Ok(Self { stop, received, threads: Some([sender, receiver]) })
    }

    /// Waits until another byte has arrived.
    ///
    /// # Errors
    /// If none does within `limit`.
    pub fn goes_on(&self, limit: Duration) -> Result<()> {
        let (before, until) = (self.received.load(Ordering::Relaxed), Instant::now() + limit);
        while self.received.load(Ordering::Relaxed) == before {
            let over = self.threads.iter().flatten().any(JoinHandle::is_finished);
            if over || Instant::now() > until {
                bail!("the TCP transfer stands still");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends it, and returns how many bytes were sent and how many arrived.
    ///
    /// # Errors
    /// If it broke, or a byte that arrived is another than was sent.
    pub fn finish(mut self) -> Result<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let end = |thread: JoinHandle<Result<u64>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the transfer panicked"))?
        };
        let [sender, receiver] = self.threads.take().context("it has ended")?;
        Ok((end(sender)?, end(receiver)?))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A transfer that stands still for so long has broken.
const BROKEN: Duration = Duration::from_secs(60);
/// Numbers that are sent at once, 8 bytes each, and the pause after them.
const BLOCK: u64 = 4096;
const PAUSE: Duration = Duration::from_millis(10);

fn send(mut stream: TcpStream, stop: &AtomicBool) -> Result<u64> {
    stream.set_write_timeout(Some(BROKEN))?;
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let block: Vec<u8> = (next..next + BLOCK).flat_map(u64::to_be_bytes).collect();
        stream.write_all(&block)?;
        next += BLOCK;
        std::thread::sleep(PAUSE);
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(next * 8)
}

fn receive(mut stream: TcpStream, received: &AtomicU64) -> Result<u64> {
    stream.set_read_timeout(Some(BROKEN))?;
    let (mut pending, mut buf, mut next) = (Vec::new(), vec![0; 1 << 16], 0u64);
    loop {
        let n = stream.read(&mut buf)?;
        if n == 0 {
            return Ok(received.load(Ordering::Relaxed));
        }
        pending.extend_from_slice(buf.get(..n).unwrap_or(&buf));
        let whole = pending.len() / 8 * 8;
        for word in pending.drain(..whole).collect::<Vec<u8>>().chunks_exact(8) {
            if word != next.to_be_bytes() {
                bail!("{word:?} arrived in place of number {next}");
            }
            next += 1;
        }
        received.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// Numbered UDP packets from a host to an [`EchoServer`], to find when the first one passes and how many are lost.
#[derive(Debug)]
pub struct Prober {
    socket: UdpSocket,
    server: SocketAddr,
    next: u64,
}

/// What a burst of probes found.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Probes sent.
    pub sent: u64,
    /// Probes that did not arrive at the server.
    pub lost: u64,
    /// From the given start to the arrival of the first probe at the server.
    pub first_arrival: Option<Duration>,
    /// From the given start to the first echo.
    pub first_echo: Option<Duration>,
}

impl Prober {
    /// A prober in `host`.
    ///
    /// # Errors
    /// If no socket can be opened.
    pub fn new(host: &Host, server: SocketAddr) -> Result<Self> {
        let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = host.run(move || UdpSocket::bind(any))??;
        Ok(Self { socket, server, next: 1 })
    }

    /// Sends a probe every `interval` until `count` were sent after the first echo, at most for `limit`; times count from
    /// `start`. Sending fails while there is no route: that counts as lost.
    ///
    /// # Errors
    /// If the socket fails for another reason.
    pub fn burst(
        &mut self,
        echo: &EchoServer,
        start: Instant,
        interval: Duration,
        count: u64,
        limit: Duration,
    ) -> Result<Burst> {
        let first = self.next;
        let (mut first_echo, mut after_echo) = (None, 0);
        let until = Instant::now() + limit;
        let mut buf = [0; 64];
        while after_echo < count && Instant::now() < until {
            let next_send = Instant::now() + interval;
            let _ = self.socket.send_to(&self.next.to_be_bytes(), self.server);
            self.next += 1;
            after_echo += u64::from(first_echo.is_some());
            loop {
                let now = Instant::now();
                if now >= next_send {
                    break;
                }
                self.socket.set_read_timeout(Some(next_send - now))?;
                if let Ok((8.., _)) = self.socket.recv_from(&mut buf)
                    && buf.first_chunk::<8>().is_some_and(|n| u64::from_be_bytes(*n) >= first)
                {
                    first_echo.get_or_insert_with(|| start.elapsed());
                }
            }
        }
        // The last ones may still be under way.
        std::thread::sleep(POLL);
        let arrivals: Vec<Option<Instant>> = (first..self.next).map(|n| echo.arrival(n)).collect();
        Ok(Burst {
            sent: self.next - first,
            lost: arrivals.iter().filter(|a| a.is_none()).count() as u64,
            first_arrival: arrivals.iter().flatten().min().map(|at| at.saturating_duration_since(start)),
            first_echo,
        })
    }
}
