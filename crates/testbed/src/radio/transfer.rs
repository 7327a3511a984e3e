//! A file over real TCP: the kernel of one host sends, that of the other receives. Owns both sockets; checks every byte, and looks meanwhile how
//! far the sender is.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dormouse_io::tcp::{TcpInfo, tcp_info};
use socket2::SockRef;

use crate::host::Host;
use crate::traffic::nothing_yet;

/// How often an end looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(250);
/// How often it is looked how far the sender is.
const TRACE: Duration = Duration::from_millis(100);

/// What a transfer took.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// From the receiver's first SYN until it had the last byte.
    pub time: Duration,
    /// Bytes of the file.
    pub bytes: u64,
    /// How far the sender was, every 100 ms.
    pub trace: Vec<Seen>,
}

/// How far a sender was at some time.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Since it had the connection.
    pub at: Duration,
    /// Bytes acknowledged, and the congestion window.
    pub info: TcpInfo,
}

impl Transfer {
    /// Bits of the file in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64()
    }

    /// The congestion window in segments, on average over time; nothing of a transfer that was never looked at.
    #[must_use]
    pub fn mean_window(&self) -> Option<f64> {
        let sum: f64 = self.trace.iter().map(|seen| f64::from(seen.info.window)).sum();
        (!self.trace.is_empty()).then(|| sum / self.trace.len() as f64)
    }
}

/// `to` fetches `bytes` bytes from `from`, at its `address`, which sends by the congestion control `congestion`. Either end gives up
/// after `limit` without progress, and soon after `stop` is set.
///
/// # Errors
/// If the kernel has no such congestion control, the connection fails, or other bytes arrive than were sent.
pub fn transfer(
    from: &Host,
    to: &Host,
    address: IpAddr,
    congestion: &str,
    bytes: u64,
    limit: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Transfer> {
    let listener = from.run(move || TcpListener::bind(SocketAddr::new(address, 0)))??;
    let there = listener.local_addr()?;
    // The connections that it accepts inherit it.
    let set = SockRef::from(&listener).set_tcp_congestion(congestion.as_bytes());
    set.with_context(|| format!("no congestion control {congestion:?}: modprobe tcp_{congestion}?"))?;
    let patience = Patience { limit, stop: stop.clone() };
    let over = Arc::new(AtomicBool::new(false));
    let sender = from.within({
        let (patience, over) = (patience.clone(), over.clone());
        move || send(&listener, bytes, &patience, &over)
    })?;
    let receiver = to.within(move || receive(there, bytes, &patience))?;
    let received = receiver.join().map_err(|_| anyhow!("the receiver panicked"));
    // A receiver that failed has told the sender, by its end.
    over.store(true, Ordering::Relaxed);
    let sent = sender.join().map_err(|_| anyhow!("the sender panicked"))?;
    let time = received??.context("receiving")?;
    let trace = sent?.context("sending")?;
    Ok(Transfer { time, bytes, trace })
}

/// The byte at `at` of every file: a period that no segment's length divides.
const fn content(at: u64) -> u8 {
    (at % 251) as u8
}

/// How long an end waits for one thing.
#[derive(Clone)]
struct Patience {
    limit: Duration,
    stop: Arc<AtomicBool>,
}

impl Patience {
    /// Does it again while it only had nothing to do yet.
    fn with<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> Result<T> {
        let begin = Instant::now();
        loop {
            match work() {
                Err(e) if nothing_yet(&e) && self.stop.load(Ordering::Relaxed) => bail!("interrupted"),
                Err(e) if nothing_yet(&e) && begin.elapsed() < self.limit => {}
                other => return Ok(other?),
            }
        }
    }
}

/// `over`: the receiver needs the connection no longer.
fn send(
    listener: &TcpListener,
    bytes: u64,
    patience: &Patience,
    over: &Arc<AtomicBool>,
) -> Result<Vec<Seen>> {
    SockRef::from(listener).set_read_timeout(Some(LOOK))?;
    let (stream, _) = patience.with(|| listener.accept())?;
    stream.set_write_timeout(Some(LOOK))?;
    let looks = std::thread::Builder::new().name("trace".into());
    let looks = looks.spawn({
        let (stream, over) = (stream.try_clone()?, over.clone());
        move || trace(&stream, &over)
    })?;
    let sent = write(&stream, bytes, patience);
    if sent.is_err() {
        over.store(true, Ordering::Relaxed);
    }
    let seen = looks.join().map_err(|_| anyhow!("who looks at the sender panicked"))?;
    sent?;
    Ok(seen?)
}

fn write(mut stream: &TcpStream, bytes: u64, patience: &Patience) -> Result<()> {
    let mut at = 0;
    while at < bytes {
        let block: Vec<u8> = (at..bytes.min(at + (1 << 16))).map(content).collect();
        at += patience.with(|| stream.write(&block))? as u64;
    }
    // The socket itself stays, for who looks at it.
    Ok(stream.shutdown(Shutdown::Write)?)
}

/// Looks at a sender until it is over.
fn trace(stream: &TcpStream, over: &AtomicBool) -> io::Result<Vec<Seen>> {
    let (begin, mut seen) = (Instant::now(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        seen.push(Seen { at: begin.elapsed(), info: tcp_info(stream)? });
        std::thread::sleep(TRACE);
    }
    Ok(seen)
}

fn receive(there: SocketAddr, bytes: u64, patience: &Patience) -> Result<Duration> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&there, patience.limit)?;
    stream.set_read_timeout(Some(LOOK))?;
    let (mut at, mut block) = (0, vec![0; 1 << 16]);
    loop {
        let n = patience.with(|| stream.read(&mut block))?;
        if n == 0 {
            break;
        }
        let right = block.iter().take(n).zip(at..).all(|(byte, at)| *byte == content(at));
        ensure!(right, "a wrong byte among those from {at} on");
        at += n as u64;
    }
    ensure!(at == bytes, "{at} bytes of {bytes}");
    Ok(begin.elapsed())
}
