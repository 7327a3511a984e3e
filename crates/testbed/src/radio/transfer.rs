//! A file over real TCP: the kernel of one host sends, that of the other receives. Owns both sockets; checks every byte.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use socket2::SockRef;

use crate::host::Host;

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
/// after `limit` without progress.
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
) -> Result<Transfer> {
    let listener = from.run(move || TcpListener::bind(SocketAddr::new(address, 0)))??;
    let there = listener.local_addr()?;
    // The connections that it accepts inherit it.
    let set = SockRef::from(&listener).set_tcp_congestion(congestion.as_bytes());
    set.with_context(|| format!("no congestion control {congestion:?}: modprobe tcp_{congestion}?"))?;
    let sender = from.within(move || send(&listener, bytes, limit))?;
    let receiver = to.within(move || receive(there, bytes, limit))?;
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

fn send(listener: &TcpListener, bytes: u64, limit: Duration) -> Result<()> {
    SockRef::from(listener).set_read_timeout(Some(limit))?;
    let (mut stream, _) = listener.accept()?;
    stream.set_write_timeout(Some(limit))?;
    let mut at = 0;
    while at < bytes {
        let block: Vec<u8> = (at..bytes.min(at + (1 << 16))).map(content).collect();
        stream.write_all(&block)?;
        at += block.len() as u64;
    }
    Ok(())
}

fn receive(there: SocketAddr, bytes: u64, limit: Duration) -> Result<Duration> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&there, limit)?;
    stream.set_read_timeout(Some(limit))?;
    let (mut at, mut block) = (0, vec![0; 1 << 16]);
    loop {
        let n = stream.read(&mut block)?;
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
