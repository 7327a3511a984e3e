//! Files over TCP, bare or in TLS: how long a download takes and what it costs. Owns server and client; must never count a
//! file that did not arrive whole.
//!
//! The client asks with eight bytes, the length of the file, big endian; the server answers with so many bytes and closes.
//! A small file is fetched many times in one round, so that there is something to measure: the round's figures are those of
//! one file.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_sansio::{Entropy as _, Seeded};
use socket2::{Domain, Socket, Type};

use super::link::Link;
use super::place::Place;
use super::tls::Tls;
use crate::campaign::cpu::{self, Account, Cost};
use crate::results::Figures;
use crate::results::esp::{CPU_SYSTEM, CPU_THREAD, ELAPSED, MAX_FILE, Point, THROUGHPUT, What};

pub(crate) const PORT: u16 = 7_002;
/// No file is longer.
pub(super) const LONGEST: u64 = MAX_FILE;
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
    let server = Server::start(link.sender(), link.to_sender(), None, None)?;
    let address = server.address;
    link.receiver().run(move || check(address, None))?
}

/// Fetches the known stream of bytes from a server at the other end of a link, and compares; from the address `own`, if that is
/// said.
///
/// # Errors
/// As [`verify`].
pub(crate) fn check(address: SocketAddr, own: Option<IpAddr>) -> Result<()> {
    let mut stream = connect(address, own, None)?;
    let mut random = Seeded::new(SEED);
    let (mut expected, mut got) = (vec![0; CHUNK], vec![0; CHUNK]);
    random.fill(&mut expected);
    request(&mut stream, VERIFIED)?;
    for number in 0..VERIFIED / CHUNK as u64 {
        stream.read_exact(&mut got).with_context(|| format!("chunk {number} does not arrive"))?;
        ensure!(got == expected, "chunk {number} arrives changed");
    }
    Ok(())
}

/// One round of downloads of the sample's file.
///
/// # Errors
/// If a file does not arrive whole.
pub(crate) fn run(link: &mut Link, sample: &Point, idle: f64) -> Result<Figures> {
    let file = sample.file_bytes.context("a download without a file")?;
    if sample.what == What::Tls {
        link.whole_mtu()?;
    } else {
        link.set_mtu(sample.packet_bytes)?;
    }
    let tls = (sample.what == What::Tls).then(|| Tls::new(&sample.suite)).transpose()?;
    let server = Server::start(link.sender(), link.to_sender(), None, tls.clone())?;
    let (address, helpers) = (server.address, link.helpers().to_vec());
    link.receiver().run(move || {
        let wanted = Wanted { from: address, own: None, file, tls, packets: None };
        wanted.warm_up()?;
        let account = Account::open(&helpers)?;
        let files = wanted.fetch_for_a_round()?;
        Ok(round(&account.close(idle)?, file, files))
    })?
}

/// What a client fetches, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// From there.
    pub(crate) from: SocketAddr,
    /// To this address, if that is said.
    pub(crate) own: Option<IpAddr>,
    /// So many bytes.
    pub(crate) file: u64,
    /// In TLS, with the handshake and without resumption.
    pub(crate) tls: Option<Tls>,
    /// In IP packets of at most so many bytes.
    pub(crate) packets: Option<u32>,
}

impl Wanted {
    /// Once beforehand: everything that is made once for a pair of hosts is there then.
    ///
    /// # Errors
    /// If the file does not arrive.
    pub(crate) fn warm_up(&self) -> Result<()> {
        self.fetch(self.file.min(VERIFIED))
    }

    /// As often as a round takes; returns how many files came.
    ///
    /// # Errors
    /// If one of them does not arrive.
    pub(crate) fn fetch_for_a_round(&self) -> Result<u32> {
        let (mut files, start) = (0, cpu::wall());
        while files == 0 || (start.elapsed() < LEAST && files < MOST) {
            self.fetch(self.file)?;
            files += 1;
        }
        Ok(files)
    }

    fn fetch(&self, file: u64) -> Result<()> {
        let stream = connect(self.from, self.own, self.packets)?;
        match &self.tls {
            None => download(stream, file),
            Some(tls) => download(tls.client(stream)?, file),
        }
    }
}

/// The figures of one file, of a round in which there were several.
pub(super) fn round(cost: &Cost, file: u64, files: u32) -> Figures {
    let bytes = file as f64 * f64::from(files);
    Figures::default()
        .with(ELAPSED, cost.elapsed / f64::from(files))
        .with(THROUGHPUT, bytes / cost.elapsed)
        .with(CPU_THREAD, cost.threads * 1e9 / bytes)
        .with(CPU_SYSTEM, cost.system.map(|system| system * 1e9 / bytes))
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

/// A connection, from the address `own` if that is said, whose packets from the other side have at most so many bytes, if that
/// is: the kernel tells it by the MSS (RFC 9293, section 3.7.1), and no interface's MTU has to be changed for it.
fn connect(to: SocketAddr, own: Option<IpAddr>, packets: Option<u32>) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if let Some(own) = own {
        socket.bind(&SocketAddr::new(own, 0).into()).with_context(|| format!("TCP from {own}"))?;
    }
    if let Some(packets) = packets {
        let headers = if to.is_ipv4() { 40 } else { 60 };
        let mss = packets.saturating_sub(headers);
        socket.set_tcp_mss(mss).with_context(|| format!("segments of {mss} bytes"))?;
    }
    socket.connect_timeout(&to.into(), STUCK).with_context(|| format!("TCP to {to}"))?;
    let stream = TcpStream::from(socket);
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STUCK))?;
    stream.set_write_timeout(Some(STUCK))?;
    Ok(())
}

/// Answers one client after the other.
#[derive(Debug)]
pub(crate) struct Server {
    place: Place,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// The client that is being answered.
    current: Arc<Mutex<Option<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// At `place`, on its address `own`; for the one client at the address `only`, if that is said.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub(crate) fn start(place: Place, own: IpAddr, only: Option<IpAddr>, tls: Option<Tls>) -> Result<Self> {
        let address = SocketAddr::new(own, PORT);
        let listener = place.run(move || TcpListener::bind(address))?;
        let listener = listener.with_context(|| format!("TCP {address}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let current = Arc::new(Mutex::new(None));
        let (stopped, kept) = (stop.clone(), current.clone());
        let thread = std::thread::spawn(move || {
            let mut content = vec![0; CHUNK];
            Seeded::new(SEED).fill(&mut content);
            while let Ok((stream, from)) = listener.accept() {
                if let Ok(mut kept) = kept.lock() {
                    *kept = stream.try_clone().ok();
                }
                // After that: either this thread sees that it should stop, or the thread that stops it sees the client.
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                if only.is_none_or(|only| only == from.ip()) {
                    // What goes wrong here shows itself at the client.
                    let _ = serve(stream, tls.as_ref(), &content, &stopped);
                }
            }
        });
        Ok(Self { place, address, stop, current, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Ok(Some(client)) = self.current.lock().as_deref() {
            // One that does not take its file any more must not hold this up.
            let _ = client.shutdown(Shutdown::Both);
        }
        let Some(thread) = self.thread.take() else { return };
        // It waits for a client: a last one, from its own place, wakes it.
        let to = self.address;
        if let Ok(true) = self.place.run(move || TcpStream::connect_timeout(&to, STUCK).is_ok()) {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, tls: Option<&Tls>, content: &[u8], stop: &AtomicBool) -> Result<()> {
    prepare(&stream)?;
    match tls {
        None => answer(stream, content, stop),
        Some(tls) => answer(tls.server(stream)?, content, stop),
    }
}

fn answer(mut stream: impl Read + Write, content: &[u8], stop: &AtomicBool) -> Result<()> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut left = u64::from_be_bytes(length);
    ensure!(left <= LONGEST, "a file of {left} bytes: expected at most {LONGEST}");
    while left > 0 && !stop.load(Ordering::Relaxed) {
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
                let stop = AtomicBool::new(false);
                serve(listener.accept().unwrap().0, theirs.as_ref(), &[0x5a; 1_000], &stop).unwrap();
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
    fn a_client_that_takes_nothing_holds_no_server_up() {
        let place = Place::Here;
        // Of the loopback addresses, one that no other test has, nor another process.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let own = IpAddr::from([127, 77, high, low.clamp(1, 254)]);
        let server = Server::start(place, own, None, None).unwrap();
        let mut client = connect(server.address, None, None).unwrap();
        request(&mut client, LONGEST).unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
        drop(server);
        // What was under way still comes; then it ends, long before the file does.
        let ended = std::io::copy(&mut client, &mut std::io::sink());
        assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes < LONGEST - 1));
    }

    #[test]
    fn a_client_says_how_large_packets_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = connect(address, None, Some(576)).unwrap();
        let server = Socket::from(listener.accept().unwrap().0);
        // Twelve bytes of timestamps (RFC 7323) are in every segment, where the machine uses them.
        assert!([536, 524].contains(&server.tcp_mss().unwrap()), "{:?}", server.tcp_mss());
        drop(client);
        assert!(connect(address, None, Some(60)).is_err(), "no room for data");
    }

    #[test]
    fn a_file_that_ends_early_is_no_file() {
        let error = download(std::io::Cursor::new(vec![0; 100]), 101).unwrap_err().to_string();
        assert!(error.contains("of 101 bytes"), "{error}");
    }
}
