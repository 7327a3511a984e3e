//! What really passes a link, by a packet socket: the witness of tests about what must not. Owns the thread that reads it.

use anyhow::{Context, Result, ensure};
use dormouse_io::capture::Capture;
use dormouse_io::netlink::{MARK, set_mark};
use dormouse_testbed::Host;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at whether the test has ended.
const TURN: Duration = Duration::from_millis(200);
/// A packet that may pass is seen within this time.
const SOON: Duration = Duration::from_secs(10);

/// A witness at one end of a link.
#[derive(Debug)]
pub struct Witness {
    seen: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    number: AtomicU32,
}

struct Tape(Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Witness {
    /// Watches an interface of `host`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(host: &Host, interface: &str) -> Result<Self> {
        let interface = interface.to_owned();
        let open = host.within(move || Capture::open(&interface))?;
        let capture = open.join().map_err(|_| anyhow::anyhow!("the witness panicked"))???;
        let (seen, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (tape, ended) = (Tape(seen.clone()), stop.clone());
        std::thread::spawn(move || {
            let mut tape = tape;
            while !ended.load(Ordering::Relaxed) && capture.record(&mut tape, 2048, Some(TURN), None).is_ok()
            {
            }
        });
        Ok(Self { seen, stop, number: AtomicU32::new(0) })
    }

    /// Whether these bytes have passed.
    #[must_use]
    pub fn saw(&self, bytes: &[u8]) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.windows(bytes.len()).any(|w| w == bytes)
    }

    /// Whether these bytes have passed before now. Looks once an echo of `host`'s to `to` in clear has been seen, which came after them.
    ///
    /// # Errors
    /// If the echo does not pass: nothing is proven then.
    pub fn had_seen(&self, host: &Host, to: &str, bytes: &[u8]) -> Result<bool> {
        let text = format!("<echo {:09}>", self.number.fetch_add(1, Ordering::Relaxed));
        let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
        host.sh(&format!("ping -c 1 -W 5 -p {hex} {to}"))?;
        self.sees(text.as_bytes())?;
        Ok(self.saw(bytes))
    }

    /// Waits until these bytes pass.
    ///
    /// # Errors
    /// If they do not.
    pub fn sees(&self, bytes: &[u8]) -> Result<()> {
        let end = Instant::now() + SOON;
        while !self.saw(bytes) {
            ensure!(Instant::now() < end, "not seen: {}", String::from_utf8_lossy(bytes));
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether what a program in `host` sends to `to` passes here. The packet is followed by one with the daemon's mark, which always
    /// does: when that was seen, the first would have been.
    ///
    /// # Errors
    /// If the marked packet does not pass: the test proves nothing then.
    pub fn leaks(&self, host: &Host, to: SocketAddr) -> Result<bool> {
        self.leaks_from(host, 0, to)
    }

    /// The same, from a port of its own.
    ///
    /// # Errors
    /// As [`Witness::leaks`].
    pub fn leaks_from(&self, host: &Host, port: u16, to: SocketAddr) -> Result<bool> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (plain, marked) = (format!("<in clear {number}>"), format!("<by mark {number}>"));
        let text = (plain.clone(), marked.clone());
        let sent = host.within(move || -> std::io::Result<()> {
            let any: IpAddr =
                if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind(SocketAddr::new(any, port))?;
            socket.set_broadcast(true)?;
            for _ in 0..3 {
                // A refusal is what is hoped for.
                let _ = socket.send_to(text.0.as_bytes(), to);
            }
            set_mark(&socket, MARK)?;
            // An error of the packets before may still stand in the socket.
            let _ = socket.send_to(text.1.as_bytes(), to);
            socket.send_to(text.1.as_bytes(), to).map(drop)
        })?;
        sent.join()
            .map_err(|_| anyhow::anyhow!("the sender panicked"))??
            .with_context(|| format!("to {to}"))?;
        self.sees(marked.as_bytes())?;
        Ok(self.saw(plain.as_bytes()))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
