//! A file over real TCP: the kernel of one host sends, that of the other receives. Owns both sockets; checks every byte.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use socket2::SockRef;

use crate::host::Host;
use crate::traffic::nothing_yet;

/// How often an end looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(250);

/// What a transfer took.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// From the receiver's first SYN until it had the last byte.
    pub time: Duration,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Transfer {
    /// Bits of the file in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64()
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
    let sender = from.within({
        let patience = patience.clone();
        move || send(&listener, bytes, &patience)
    })?;
    let receiver = to.within(move || receive(there, bytes, &patience))?;
    let received = receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
    // A receiver that failed has told the sender, by its end.
    let sent = sender.join().map_err(|_| anyhow!("the sender panicked"))?;
    let time = received?.context("receiving")?;
    sent?.context("sending")?;
    Ok(Transfer { time, bytes })
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

fn send(listener: &TcpListener, bytes: u64, patience: &Patience) -> Result<()> {
    SockRef::from(listener).set_read_timeout(Some(LOOK))?;
    let (mut stream, _) = patience.with(|| listener.accept())?;
    stream.set_write_timeout(Some(LOOK))?;
    let mut at = 0;
    while at < bytes {
        let block: Vec<u8> = (at..bytes.min(at + (1 << 16))).map(content).collect();
        at += patience.with(|| stream.write(&block))? as u64;
    }
    Ok(())
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
