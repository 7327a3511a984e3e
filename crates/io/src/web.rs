//! A web server for a few pages that are read and never written: for Prometheus, or for a browser of this machine. Owns the listener, its clients, and
//! the bounds on how many there are, what they send and how long they take; must never know what a page says.
//!
//! It runs in a thread of its own ([`Web::serve`]), and nobody waits for a client: one that sends slowly or does not read is cut off when its time is over,
//! or when more come than there is room for. One request a connection, `GET` alone.
//!
//! Where it listens on a loopback address, it answers to no name but `localhost`: a web site could otherwise have its own name lead there (DNS
//! rebinding), and its scripts read what a browser of this machine is shown.

use crate::clock::BootClock;
use crate::control;
use crate::poller::{Interest, Poller, Ready};
use crate::privileges;
use crate::tcp;
use dormouse_sansio::Instant;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Clients at once. The oldest gives way to a newcomer.
pub const MAX_CLIENTS: usize = 16;
/// Longest request, in bytes.
pub const MAX_REQUEST: usize = 8 << 10;
/// A client has so long from its coming to the last byte of its answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Fields of a request's header.
const MAX_FIELDS: usize = 64;
/// Where descriptors have run out and no client holds one, the next is tried after this.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(200);

const LISTENER: u64 = 0;

/// Why it does not listen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is a path.
    #[error(transparent)]
    Unix(#[from] control::Error),
    /// It is an address.
    #[error("{at}: {source}")]
    Tcp {
        /// The address.
        at: SocketAddr,
        /// Why it failed.
        source: io::Error,
    },
}

/// What is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Its media type.
    pub kind: &'static str,
    /// What it may load (the field Content-Security-Policy).
    pub policy: &'static str,
    /// It.
    pub body: Vec<u8>,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// This.
    Page(Page),
    /// There is no such page.
    NotFound,
    /// There is one, but not now: why, in one line.
    NotNow(String),
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(it) => it.as_fd(),
            Self::Unix(it) => it.as_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(it) => it.as_fd(),
            Self::Unix(it) => it.as_fd(),
        }
    }
}

impl Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(it) => it.read(into),
            Self::Unix(it) => it.read(into),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(it) => it.write(from),
            Self::Unix(it) => it.write(from),
        }
    }

    fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(it) => it.shutdown(Shutdown::Write),
            Self::Unix(it) => it.shutdown(Shutdown::Write),
        }
    }
}

/// How far a client is.
#[derive(Debug)]
enum Stage {
    /// It is asking: what has come.
    Asking(Vec<u8>),
    /// It is answered: what is still to be sent, behind this many bytes.
    Answered(Vec<u8>, usize),
    /// It has its answer, and is read to its end: otherwise what it still sends would take the answer away.
    Leaving,
}

#[derive(Debug)]
struct Client {
    stream: Stream,
    until: Instant,
    stage: Stage,
}

/// The server.
#[derive(Debug)]
pub struct Web {
    listener: Listener,
    /// From where it is read; empty: from everywhere that it can be reached from.
    from: Vec<IpNet>,
    /// It answers to names of this machine alone.
    local: bool,
    poller: Poller,
    clients: BTreeMap<u64, Client>,
    last: u64,
}

impl Web {
    /// Listens at an address of this machine, or one that it gets later: that of an interface that is not up yet, or in the tunnel. `from`: nobody else is answered; empty: everyone is who reaches it.
    ///
    /// # Errors
    /// [`Error::Tcp`].
    pub fn tcp(at: SocketAddr, from: Vec<IpNet>) -> Result<Self, Error> {
        let fail = |source| Error::Tcp { at, source };
        let listener = tcp::listen(at).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        Self::new(Listener::Tcp(listener), from, at.ip().is_loopback()).map_err(fail)
    }

    /// Listens at `path`, for root and the members of `group`. `keys`: of the configuration, for the path and the group.
    ///
    /// # Errors
    /// [`Error::Unix`].
    pub fn unix(path: &Path, group: Option<&str>, keys: (&'static str, &'static str)) -> Result<Self, Error> {
        let listener = control::open(path, group, keys)?;
        let fail = |source| control::Error::Io { path: path.into(), doing: "watch", source };
        Ok(Self::new(Listener::Unix(listener), Vec::new(), false).map_err(fail)?)
    }

    fn new(listener: Listener, from: Vec<IpNet>, local: bool) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::READ)?;
        Ok(Self { listener, from, local, poller, clients: BTreeMap::new(), last: LISTENER })
    }

    /// The address, if it is one: with the port that the system chose if it was 0.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        if let Listener::Tcp(it) = &self.listener { it.local_addr().ok() } else { None }
    }

    /// Serves for ever: `page` is asked with the path of each request. The thread has given up every capability before it reads a byte of a stranger. Returns only
    /// why it cannot go on.
    pub fn serve(mut self, mut page: impl FnMut(&str) -> Answer) -> io::Error {
        if let Err(e) = privileges::renounce_in_thread() {
            return e;
        }
        let mut ready = Vec::new();
        loop {
            let now = BootClock::now();
            let first = self.clients.values().map(|client| client.until).min();
            if let Err(e) = self.poller.wait(&mut ready, first.map(|until| until.saturating_since(now))) {
                return e;
            }
            let now = BootClock::now();
            self.clients.retain(|_, client| client.until > now);
            for one in &ready {
                if one.token == LISTENER {
                    self.accept(now);
                } else {
                    self.turn(one, &mut page);
                }
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let come = match &self.listener {
                Listener::Tcp(it) => {
                    it.accept().map(|(stream, peer)| (Stream::Tcp(stream), Some(peer.ip().to_canonical())))
                }
                Listener::Unix(it) => it.accept().map(|(stream, _)| (Stream::Unix(stream), None)),
            };
            match come {
                Ok((stream, peer)) => {
                    let admitted = |peer: IpAddr| self.from.iter().any(|net| net.contains(&peer));
                    if self.from.is_empty() || peer.is_some_and(admitted) {
                        // What cannot be watched is closed.
                        let _closed = self.admit(now, stream);
                    }
                }
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(%error, "a client of the web server is turned away");
                    if self.clients.pop_first().is_none() {
                        std::thread::sleep(OUT_OF_DESCRIPTORS);
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, now: Instant, stream: Stream) -> io::Result<()> {
        match &stream {
            Stream::Tcp(it) => it.set_nonblocking(true)?,
            Stream::Unix(it) => it.set_nonblocking(true)?,
        }
        if self.clients.len() >= MAX_CLIENTS {
            self.clients.pop_first();
        }
        self.last += 1;
        self.poller.add(&stream, self.last, Interest::READ)?;
        let client = Client { stream, until: now + PATIENCE, stage: Stage::Asking(Vec::new()) };
        self.clients.insert(self.last, client);
        Ok(())
    }

    /// Goes on with a client; one that fails or is done is dropped.
    fn turn(&mut self, ready: &Ready, page: &mut impl FnMut(&str) -> Answer) {
        let Some(client) = self.clients.get_mut(&ready.token) else { return };
        let local = self.local;
        let goes_on = client.turn(ready, |request| respond(request, local, page));
        let interest = match client.stage {
            Stage::Answered(..) => Interest::WRITE,
            Stage::Asking(_) | Stage::Leaving => Interest::READ,
        };
        if !goes_on || self.poller.modify(&client.stream, ready.token, interest).is_err() {
            self.clients.remove(&ready.token);
        }
    }
}

impl Client {
    /// Reads and writes what can be. False: it is done, or gone.
    fn turn(&mut self, ready: &Ready, respond: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> bool {
        if ready.readable {
            let mut chunk = [0; 2048];
            let read = match self.stream.read(&mut chunk) {
                Ok(0) => return matches!(self.stage, Stage::Answered(..)) && !ready.closed,
                Ok(n) => chunk.get(..n).unwrap_or_default(),
                Err(e) if is_later(&e) => &[],
                Err(_) => return false,
            };
            if let Stage::Asking(request) = &mut self.stage {
                request.extend_from_slice(read);
                if let Some(answer) = respond(request) {
                    self.stage = Stage::Answered(answer, 0);
                }
            }
        }
        while let Stage::Answered(answer, sent) = &mut self.stage {
            match self.stream.write(answer.get(*sent..).unwrap_or_default()) {
                Ok(n) => *sent += n,
                Err(e) if is_later(&e) => return true,
                Err(_) => return false,
            }
            if *sent >= answer.len() {
                self.stage = Stage::Leaving;
                return self.stream.finish().is_ok();
            }
        }
        true
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The answer to what has come of a request; `None` until it is whole.
fn respond(request: &[u8], local: bool, page: &mut impl FnMut(&str) -> Answer) -> Option<Vec<u8>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let refused = match parsed.parse(request) {
        Ok(httparse::Status::Complete(whole)) if whole <= MAX_REQUEST => judge(&parsed, local),
        Ok(httparse::Status::Partial) if request.len() < MAX_REQUEST => return None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Err((431, "the request is too long")),
        Err(_) => Err((400, "the request is not understood")),
    };
    Some(match refused.map(page) {
        Ok(Answer::Page(page)) => reply(200, page.kind, page.policy, &page.body),
        Ok(Answer::NotFound) => in_words(404, "there is no such page"),
        Ok(Answer::NotNow(why)) => in_words(503, &why),
        Err((status, why)) => in_words(status, why),
    })
}

/// The path of a request that may be answered, or how it is refused.
fn judge<'r>(request: &httparse::Request<'_, 'r>, local: bool) -> Result<&'r str, (u16, &'static str)> {
    let all = |name: &'static str| {
        request.headers.iter().filter(move |f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value)
    };
    // "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host header field and to any
    // request message that contains more than one Host header field line or a Host header field with an invalid field value." (RFC 9112
    // section 3.2)
    let (mut hosts, first) = (all("host"), request.version == Some(0));
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(host),
        (None, _) if first => None,
        _ => return Err((400, "exactly one Host is needed")),
    };
    if local && !host.is_none_or(is_this_machine) {
        return Err((421, "this address is asked under no name but localhost"));
    }
    if all("transfer-encoding").next().is_some() || all("content-length").any(|length| length != b"0") {
        return Err((400, "a request has no content"));
    }
    if request.method != Some("GET") {
        return Err((405, "GET alone"));
    }
    let target = request.path.unwrap_or_default();
    Ok(target.split_once('?').map_or(target, |(path, _)| path))
}

/// Whether a host, perhaps with a port, is an address or `localhost`: no name that others could have lead here.
fn is_this_machine(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::Ipv4Addr>().is_ok()
        || literal.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok())
}

fn in_words(status: u16, why: &str) -> Vec<u8> {
    reply(status, "text/plain; charset=utf-8", "default-src 'none'", format!("{why}\n").as_bytes())
}

fn reply(status: u16, kind: &str, policy: &str, body: &[u8]) -> Vec<u8> {
    let (reason, allow) = match status {
        200 => ("OK", ""),
        400 => ("Bad Request", ""),
        404 => ("Not Found", ""),
        405 => ("Method Not Allowed", "Allow: GET\r\n"),
        421 => ("Misdirected Request", ""),
        431 => ("Request Header Fields Too Large", ""),
        _ => ("Service Unavailable", ""),
    };
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {}\r\nContent-Security-Policy: {policy}\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(request: &str, local: bool) -> String {
        let mut page = |path: &str| match path {
            "/metrics" => Answer::Page(Page {
                kind: "text/plain",
                policy: "default-src 'none'",
                body: b"42\n".to_vec(),
            }),
            "/later" => Answer::NotNow("come again".to_owned()),
            _ => Answer::NotFound,
        };
        let answer = respond(request.as_bytes(), local, &mut page);
        answer.map_or_else(String::new, |answer| String::from_utf8(answer).unwrap())
    }

    #[test]
    fn one_kind_of_request_is_answered_and_what_is_wrong_with_others_is_said() {
        let get = |rest: &str| format!("GET /metrics HTTP/1.1\r\n{rest}\r\n");
        let host = "Host: 127.0.0.1:9717\r\n";
        let long = format!("X: {}\r\n", "x".repeat(MAX_REQUEST));
        let many = "A: b\r\n".repeat(MAX_FIELDS + 1);
        for (request, status) in [
            (get(host), "200"),
            (get("Host: localhost\r\n"), "200"),
            (get("host: [::1]:9717\r\n"), "200"),
            (get(&format!("{host}Content-Length: 0\r\n")), "200"),
            ("GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n".into(), "200"),
            ("GET /metrics HTTP/1.0\r\n\r\n".into(), "200"),
            (get(""), "400"),
            (get(&format!("{host}{host}")), "400"),
            (get(&format!("{host}Content-Length: 5\r\n")), "400"),
            (get(&format!("{host}Transfer-Encoding: chunked\r\n")), "400"),
            ("GET /metrics\r\n\r\n".into(), "400"),
            ("\u{16}\u{3}\u{1}".into(), "400"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), "404"),
            ("GET /metrics/../x HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), "404"),
            (get(host).replace("GET", "POST"), "405"),
            (get(host).replace("GET", "HEAD"), "405"),
            (get("Host: evil.example:9717\r\n"), "421"),
            (get("Host: localhost.evil.example\r\n"), "421"),
            (get("Host: 127.0.0.1.evil.example\r\n"), "421"),
            (get(&format!("{host}{long}")), "431"),
            (get(&format!("{host}{many}")), "431"),
            (get(host).replace("/metrics", "/later"), "503"),
        ] {
            let answer = judged(&request, true);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{answer:?}");
        }
        assert!(
            judged("GET /metrics HTTP/1.1\r\nHost: vpn.example\r\n\r\n", false).starts_with("HTTP/1.1 200")
        );
        assert_eq!(judged("GET /metrics HTTP/1.1\r\nHost: local", true), "", "it is not whole");
    }

    #[test]
    fn an_address_that_this_machine_has_not_got_yet_is_waited_for() {
        for at in ["192.0.2.77:0", "[2001:db8::77]:0"] {
            let web = Web::tcp(at.parse().unwrap(), Vec::new()).unwrap();
            assert_ne!(web.address().unwrap().port(), 0);
        }
    }

    fn served(page: &'static str) -> SocketAddr {
        let web = Web::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), Vec::new()).unwrap();
        let at = web.address().unwrap();
        std::thread::spawn(move || {
            web.serve(|path| match path {
                "/x" => {
                    Answer::Page(Page { kind: "text/plain", policy: "", body: page.repeat(100_000).into() })
                }
                _ => Answer::NotFound,
            })
        });
        at
    }

    fn get(at: SocketAddr) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn clients_that_say_nothing_do_not_read_or_go_keep_nobody_out() {
        let at = served("0123456789");
        let idle: Vec<TcpStream> = (0..3 * MAX_CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
        let unread: Vec<TcpStream> = (0..MAX_CLIENTS)
            .map(|_| {
                let mut stream = TcpStream::connect(at).unwrap();
                let _cut_off = stream.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
                stream
            })
            .collect();
        assert!(get(at).ends_with("0123456789"));
        drop((idle, unread));
        assert_eq!(get(at).split_once("\r\n\r\n").unwrap().1.len(), 1_000_000);
    }

    #[test]
    fn one_who_sends_slowly_is_cut_off_and_one_who_sends_on_has_its_answer() {
        let at = served("x");
        let mut slow = TcpStream::connect(at).unwrap();
        let mut eager = TcpStream::connect(at).unwrap();
        eager
            .write_all(b"GET /y HTTP/1.1\r\nHost: localhost\r\n\r\nand more, which nobody asked for")
            .unwrap();
        eager.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        eager.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        slow.write_all(b"GET /x HTTP/1.1\r\n").unwrap();
        assert_eq!(slow.read(&mut [0; 8]).unwrap_or(0), 0, "its time is over");
    }

    #[test]
    fn nobody_from_elsewhere_is_answered() {
        let web =
            Web::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), vec!["127.0.0.2/32".parse().unwrap()]).unwrap();
        let at = web.address().unwrap();
        std::thread::spawn(move || web.serve(|_| Answer::NotNow("never".to_owned())));
        let mut stranger = TcpStream::connect(at).unwrap();
        let _closed = stranger.write_all(b"GET /x HTTP/1.0\r\n\r\n");
        assert_eq!(stranger.read(&mut [0; 8]).unwrap_or(0), 0);
        let named = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        named.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        named.connect(&at.into()).unwrap();
        let mut named = TcpStream::from(named);
        named.write_all(b"GET /x HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        named.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("never\n"), "{answer}");
    }

    #[test]
    fn a_socket_is_for_its_owner_alone_unless_a_group_is_named() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("dormouse-web-{}", std::process::id()));
        let keys = ("daemon.metrics", "daemon.metrics_group");
        let web = Web::unix(&path, None, keys).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Web::unix(&path, None, keys).unwrap_err().to_string();
        assert!(again.contains("set daemon.metrics to another path"), "{again}");
        let group =
            Web::unix(&path.with_extension("x"), Some("no such group"), keys).unwrap_err().to_string();
        assert!(group.contains("change daemon.metrics_group"), "{group}");
        std::thread::spawn(move || web.serve(|_| Answer::NotFound));
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"GET /x HTTP/1.1\r\nHost: anything\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        std::fs::remove_file(path).unwrap();
    }
}
