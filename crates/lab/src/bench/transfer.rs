//! Files over TCP, bare or in TLS: how long a download takes and what it costs. Owns server and client; must never count a
//! file that did not arrive whole.
//!
//! The client asks with eight bytes, the length of the file, big endian; the server answers with so many bytes and closes.
//! A small file is fetched many times in one round, so that there is something to measure: the round's figures are those of
//! one file.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_testbed::Host;

use super::cpu::{self, Account};
use super::link::Link;
use super::tls::Tls;
use crate::results::format::{Round, Sample, What};

const PORT: u16 = 7_002;
const CHUNK: usize = 64 << 10;
/// What every link must carry unchanged before it is measured.
const VERIFIED: u64 = 256 << 10;
/// A round goes on for so long at least, however small the file...
pub(crate) const LEAST: Duration = Duration::from_millis(100);
/// ...but has no more downloads than this.
const MOST: u32 = 500;
/// Nothing waits longer for a single read or write.
const STUCK: Duration = Duration::from_secs(10);
const SEED: u64 = 0x5eed;

/// Holds a link against a known stream of bytes.
///
/// # Errors
/// If they arrive changed, or not at all.
pub(crate) fn verify(link: &Link) -> Result<()> {
    let server = Server::start(link, None)?;
    let address = server.address;
    on_receiver(link, move || {
        let mut stream = connect(address)?;
        let mut random = Seeded::new(SEED);
        let (mut expected, mut got) = (vec![0; CHUNK], vec![0; CHUNK]);
        random.fill(&mut expected);
        request(&mut stream, VERIFIED)?;
        for number in 0..VERIFIED / CHUNK as u64 {
            stream.read_exact(&mut got).with_context(|| format!("chunk {number} does not arrive"))?;
            ensure!(got == expected, "chunk {number} arrives changed");
        }
        Ok(())
    })
}

/// One round of downloads of the sample's file.
///
/// # Errors
/// If a file does not arrive whole.
pub(crate) fn run(link: &mut Link, sample: &Sample, idle: f64) -> Result<Round> {
    let file = sample.file_bytes.context("a download without a file")?;
    if sample.what == What::Tls {
        link.whole_mtu()?;
    } else {
        link.set_mtu(sample.packet_bytes)?;
    }
    let tls = (sample.what == What::Tls).then(|| Tls::new(&sample.suite)).transpose()?;
    let server = Server::start(link, tls.clone())?;
    let (address, helpers) = (server.address, link.helpers().to_vec());
    on_receiver(link, move || {
        let tls = tls.as_ref();
        // Once beforehand: everything that is made once for a pair of hosts is there then.
        fetch(address, tls, file.min(VERIFIED))?;
        let account = Account::open(&helpers)?;
        let (mut files, start) = (0, cpu::wall());
        while files == 0 || (start.elapsed() < LEAST && files < MOST) {
            fetch(address, tls, file)?;
            files += 1;
        }
        let cost = account.close(idle)?;
        let bytes = file as f64 * f64::from(files);
        Ok(Round {
            elapsed: Some(cost.elapsed / f64::from(files)),
            throughput: Some(bytes / cost.elapsed),
            cpu_thread: Some(cost.threads * 1e9 / bytes),
            cpu_system: cost.system.map(|system| system * 1e9 / bytes),
            ..Round::default()
        })
    })
}

/// On a thread of the receiver's host.
fn on_receiver<T: Send + 'static>(
    link: &Link,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    link.receiver().within(work)?.join().map_err(|_| anyhow!("the client panicked"))??
}

/// Fetches one file from beginning to end; in TLS with the handshake, without resumption.
fn fetch(from: SocketAddr, tls: Option<&Tls>, file: u64) -> Result<()> {
    let stream = connect(from)?;
    match tls {
        None => download(stream, file),
        Some(tls) => download(tls.client(stream)?, file),
    }
}

fn download(mut stream: impl Read + Write, file: u64) -> Result<()> {
    request(&mut stream, file)?;
    let (mut buffer, mut got) = (vec![0; CHUNK], 0);
    while got < file {
        let n = stream.read(&mut buffer).with_context(|| format!("after {got} of {file} bytes"))?;
        ensure!(n > 0, "the server closed after {got} of {file} bytes");
        got += n as u64;
    }
    ensure!(got == file, "{got} bytes of a file of {file}");
    Ok(())
}

fn request(stream: &mut impl Write, file: u64) -> Result<()> {
    stream.write_all(&file.to_be_bytes()).context("asking for a file")?;
    stream.flush().context("asking for a file")
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, STUCK).with_context(|| format!("TCP to {to}"))?;
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STUCK))?;
    stream.set_write_timeout(Some(STUCK))?;
    Ok(())
}

/// Answers one client after the other, on the sender's host.
struct Server {
    host: Host,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(link: &Link, tls: Option<Tls>) -> Result<Self> {
        let address = SocketAddr::new(link.to_sender(), PORT);
        let bind = move || TcpListener::bind(address);
        let listener = link.sender().within(bind)?.join().map_err(|_| anyhow!("the server panicked"))??;
        let listener = listener.with_context(|| format!("TCP {address}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut content = vec![0; CHUNK];
            Seeded::new(SEED).fill(&mut content);
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                // What goes wrong here shows itself at the client.
                let _ = serve(stream, tls.as_ref(), &content);
            }
        });
        Ok(Self { host: link.sender().clone(), address, stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        // It waits for a client: a last one, from its own host, wakes it.
        let to = self.address;
        let knocked = self.host.within(move || TcpStream::connect_timeout(&to, STUCK).is_ok());
        let woken = knocked.is_ok_and(|t| matches!(t.join(), Ok(Ok(true))));
        if woken {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, tls: Option<&Tls>, content: &[u8]) -> Result<()> {
    prepare(&stream)?;
    match tls {
        None => answer(stream, content),
        Some(tls) => answer(tls.server(stream)?, content),
    }
}

fn answer(mut stream: impl Read + Write, content: &[u8]) -> Result<()> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut left = u64::from_be_bytes(length);
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(content.len());
        stream.write_all(content.get(..n).unwrap_or(content))?;
        left -= n as u64;
    }
    stream.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tls;

    /// Over loopback, without namespaces: what is asked for is what comes.
    #[test]
    fn a_file_arrives_whole_bare_and_in_tls() {
        for name in std::iter::once(None).chain(tls::SUITES.iter().map(|s| Some(s.name))) {
            let tls = name.map(|n| Tls::new(n).unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let theirs = tls.clone();
            let server = std::thread::spawn(move || {
                serve(listener.accept().unwrap().0, theirs.as_ref(), &[0x5a; 1_000]).unwrap();
            });
            let stream = TcpStream::connect(address).unwrap();
            prepare(&stream).unwrap();
            match &tls {
                None => download(stream, 123_456).unwrap(),
                Some(tls) => download(tls.client(stream).unwrap(), 123_456).unwrap(),
            }
            server.join().unwrap();
        }
    }

    #[test]
    fn a_file_that_ends_early_is_no_file() {
        let error = download(std::io::Cursor::new(vec![0; 100]), 101).unwrap_err().to_string();
        assert!(error.contains("of 101 bytes"), "{error}");
    }
}
