//! A service over loopback, without privileges: who comes in, who does not, and what is left when they go.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::channel::{self, greeted};
use super::message::{Answer, Order, Sending};
use super::secret::Pass;
use super::{Lost, Pair, Peer, Service};
use crate::bench::link::Key;
use crate::bench::traffic::Pace;
use crate::results::format::{Direction, Engine, Sample, Unit, What};

/// A service and its thread; it ends when this is dropped.
struct Serving {
    address: SocketAddr,
    secret: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

/// Two addresses of this machine that no other test has, nor another process: the ports of measurements are fixed.
fn addresses() -> [Ipv4Addr; 2] {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let n = COUNT.fetch_add(2, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    [n, n + 1].map(|last| Ipv4Addr::new(127, high | 0x80, low, last))
}

impl Serving {
    fn start(at: Ipv4Addr) -> Self {
        let service = Service::listen(&format!("{at}:0"), |_| Ok(())).unwrap();
        let (address, secret) = (service.address().unwrap(), service.secret());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            service.run(&stopped, &mut |event| events.push(event.to_owned())).unwrap();
            events
        });
        Self { address, secret, stop, thread: Some(thread) }
    }

    fn dial(&self, from: Ipv4Addr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn greet(&self, from: Ipv4Addr, secret: &str) -> anyhow::Result<Peer> {
        Peer::greet(self.dial(from), "far", &Pass::parse(secret).unwrap())
    }

    /// That a client which does everything right is served, whatever was before it.
    fn still_serves(&self, from: Ipv4Addr) {
        let mut peer = self.patiently(from);
        assert_eq!(peer.ask(&Order::Open {}, Duration::ZERO).unwrap(), Answer::Done {});
    }

    /// The one before may not have gone yet.
    fn patiently(&self, from: Ipv4Addr) -> Peer {
        for _ in 0..200 {
            match self.greet(from, &self.secret) {
                Err(error) if format!("{error:#}").contains("busy") => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => return other.unwrap(),
            }
        }
        panic!("busy for ever");
    }

    fn events(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn why(result: anyhow::Result<Peer>) -> String {
    format!("{:#}", result.expect_err("not let in"))
}

/// The bare link is measured without any privileges.
#[test]
fn two_machines_measure_streams_paths_and_files_both_ways() {
    let [near, far] = addresses();
    let serving = Serving::start(far);
    let peer = serving.greet(near, &serving.secret).unwrap();
    assert!(peer.machine.cores > 0 && !peer.machine.kernel.is_empty(), "{:?}", peer.machine);
    let mut pair = Pair::new(peer).unwrap();
    let mut sample = Sample::new(What::Path, "none", 1_000, 1);
    sample.engine = Engine::Plain;
    pair.lay(&Key::of(&sample)).unwrap();
    let time = Duration::from_millis(60);
    for direction in [Direction::Out, Direction::In] {
        sample.direction = direction;
        let round = pair.measure(&sample, time).unwrap();
        assert!(round.packets_received > Some(0) && round.throughput > Some(0.0), "{round:?}");
        assert!(round.cpu_thread.is_some() && round.far_cpu_thread.is_some(), "{round:?}");
    }
    let stream = Sample { what: What::Stream, unit: Unit::Payload, offered: Some(4e6), ..sample.clone() };
    let round = pair.measure(&stream, time).unwrap();
    assert!(round.packets_sent > Some(1) && round.jitter.is_some() && round.loss.is_some(), "{round:?}");
    let file = Sample { what: What::Download, file_bytes: Some(20_000), ..stream.clone() };
    assert!(pair.measure(&file, time).unwrap().throughput > Some(0.0));
    let tls = Sample { what: What::Tls, suite: "tls13-aes128gcm".into(), ..file.clone() };
    assert!(pair.measure(&tls, time).unwrap().far_cpu_thread > Some(0.0));
    assert!(pair.measure(&file, time).is_ok(), "bare again");
    drop(pair);
    let events = serving.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0].ends_with("measures") && events[1].ends_with("has left"), "{events:?}");
}

#[test]
fn nobody_comes_in_without_the_secret() {
    let [near, far] = addresses();
    let serving = Serving::start(far);
    let other = Pass::new(b"another certificate").text();
    let error = why(serving.greet(near, &other));
    assert!(error.contains("the secret is of another server"), "{error}");
    // The right fingerprint, which everybody can see, and a token that is not the right one.
    let mut wrong = serving.secret.clone();
    let last = if wrong.pop() == Some('0') { '1' } else { '0' };
    wrong.push(last);
    let error = why(serving.greet(near, &wrong));
    assert_eq!(error, "far: it refuses: the secret is wrong");
    serving.still_serves(near);
    let events = serving.events();
    assert!(events.iter().any(|e| e.ends_with("sent away: it does not know the secret")), "{events:?}");
}

#[test]
fn who_speaks_nonsense_or_says_nothing_is_sent_away() {
    let [near, far] = addresses();
    let serving = Serving::start(far);
    for words in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 40_000], b""] {
        let mut stream = serving.dial(near);
        let _ = stream.write_all(words);
        if words.is_empty() {
            // It leaves in the middle of the handshake.
            continue;
        }
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        assert!(heard.starts_with(b"dormouse-bench "), "the greeting, and then the end");
    }
    // This one stays, and says nothing at all.
    let silent = serving.dial(near);
    serving.still_serves(near);
    drop(silent);
}

#[test]
fn who_knows_the_secret_and_breaks_the_rules_is_told_and_sent_away() {
    let [near, far] = addresses();
    let serving = Serving::start(far);
    let pass = Pass::parse(&serving.secret).unwrap();
    let wait = Duration::from_secs(20);
    let (mut client, _) = channel::connect(serving.dial(near), &pass).unwrap();
    client.say(&serde_json::json!({"erase": {"file": "/"}}), wait).unwrap();
    let Answer::Failed(error) = client.hear(wait).unwrap().unwrap() else { panic!("it was obeyed") };
    assert!(error.starts_with("a message that makes no sense"), "{error}");
    assert!(client.hear::<Answer>(wait).unwrap().is_none(), "and that was all");
    // An order that is well formed and out of bounds is answered, and that is that.
    let mut peer = serving.patiently(near);
    let bad = Order::Receive { run: 1, bytes: 60_000, acknowledge: false };
    let error = peer.ask(&bad, Duration::ZERO).unwrap_err().to_string();
    assert_eq!(error, "on the far machine: packets of 60000 bytes: expected 16 to 9000");
    for early in [Order::Close {}, Order::Received { sent: 1 }] {
        assert!(peer.ask(&early, Duration::ZERO).is_err());
    }
    assert_eq!(peer.ask(&Order::Open {}, Duration::ZERO).unwrap(), Answer::Done {});
}

#[test]
fn one_client_at_a_time_and_its_going_ends_what_it_ordered() {
    let [near, far] = addresses();
    let serving = Serving::start(far);
    let pass = Pass::parse(&serving.secret).unwrap();
    let (mut first, _) = channel::connect(serving.dial(near), &pass).unwrap();
    let hour = Sending { run: 1, bytes: 100, pace: Pace::Rate(8_000.0), millis: 3_600_000 };
    first.say(&Order::Send(hour), Duration::from_secs(5)).unwrap();
    let error = why(serving.greet(near, &serving.secret));
    assert_eq!(error, "far: it is busy with another client");
    // In the middle of an order, without a word.
    drop(first);
    serving.still_serves(near);
}

#[test]
fn a_service_that_ends_takes_its_client_along() {
    let [near, far] = addresses();
    let serving = Serving::start(far);
    let mut peer = serving.greet(near, &serving.secret).unwrap();
    peer.tell(&Order::Open {}).unwrap();
    serving.events();
    let error = peer.ask(&Order::Close {}, Duration::ZERO).unwrap_err();
    assert!(error.is::<Lost>(), "{error:#}");
    assert!(error.to_string().contains("the connection to far is lost"), "{error:#}");
}

#[test]
fn another_version_another_program_and_a_busy_one_are_told_apart() {
    let ours = env!("CARGO_PKG_VERSION");
    greeted(&mut format!("dormouse-bench 1 {ours} ready\n").as_bytes()).unwrap();
    for (line, why) in [
        (format!("dormouse-bench 1 {ours} busy\n"), "busy with another client"),
        ("dormouse-bench 1 9.9.9 ready\n".into(), "has dormouse 9.9.9 (protocol 1) and this one"),
        (format!("dormouse-bench 2 {ours} ready\n"), "(protocol 2)"),
        (format!("dormouse-bench 1 {ours} asleep\n"), "this is no dormouse bench --serve"),
        ("SSH-2.0-OpenSSH_9.2\r\n".into(), "this is no dormouse bench --serve"),
        (String::new(), "this is no dormouse bench --serve"),
        ("x".repeat(100_000), "this is no dormouse bench --serve"),
    ] {
        let error = greeted(&mut line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why) && error.len() < 250, "{error}");
    }
}
