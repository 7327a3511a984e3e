//! What the client that is there already does meanwhile: pings by the system's `ping`, and a TCP stream of our own, which knows at each moment how
//! much has arrived (iperf3 tells no more than tenths of a second, from a beginning that it rounds to seconds). Owns how both are read.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use dormouse_io::clock::{BootClock, unix_now_precise};
use dormouse_sansio::{Entropy, Instant, Seeded};
use dormouse_testbed::Process;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::stage::Stage;
use dormouse_testbed::crowd::SERVER;

/// Seconds between two pings: less than this `ping` does not keep to.
pub(crate) const INTERVAL: f64 = 0.01;
/// Congestion control of the stream: Linux's default, also on a machine that is set to another one.
pub(crate) const CONGESTION: &str = "cubic";
const STREAM_PORT: u16 = 5_997;
/// Bytes that are written and read at once.
const CHUNK: usize = 128 << 10;
/// So many of the first chunks must arrive as they were sent. The others are only counted: TCP and ESP have their own sums.
const VERIFIED: usize = 64;
/// Nothing takes this long.
const STUCK: Duration = Duration::from_secs(90);
/// How often what has arrived is noted, at most.
const NOTED: Duration = Duration::from_millis(1);

/// Pings that go on.
pub(crate) struct Pings(Process);

/// Pings that are over.
#[derive(Debug)]
pub(crate) struct Pinged {
    /// By their numbers from 1 on: when each was sent, in seconds of the boot clock, and its round trip in microseconds if there was one.
    sent: Vec<(f64, Option<f64>)>,
}

impl Pings {
    /// # Errors
    /// If `ping` cannot be started.
    pub(crate) fn begin(stage: &Stage) -> Result<Self> {
        let (interval, server) = (INTERVAL.to_string(), SERVER.to_string());
        let arguments = ["-D", "-n", "-i", &interval, &server];
        // A log of its own: of one that is there, new lines go behind the others.
        let log = stage.client_host.dir().join("ping.log");
        if log.exists() {
            std::fs::remove_file(log)?;
        }
        Ok(Self(stage.client_host.spawn("ping", "ping", &arguments)?))
    }

    /// # Errors
    /// If it does not end, or has not said what is expected of `ping -D`.
    pub(crate) fn end(mut self) -> Result<Pinged> {
        // Two clocks: `ping` tells the time of day.
        let day = unix_now_precise().as_secs_f64() - seconds(BootClock::now());
        self.0.signal(Signal::SIGINT);
        self.0.wait(Duration::from_secs(5)).context("ping does not end")?;
        Pinged::read(&self.0.log(), day)
    }
}

impl Pinged {
    /// From what `ping -D` says. `day` is taken off its times of day. One without an answer was sent when its neighbours say.
    fn read(said: &str, day: f64) -> Result<Self> {
        let answered = |line: &str| -> Option<(usize, f64, f64)> {
            let (at, rest) = line.strip_prefix('[')?.split_once(']')?;
            let number = rest.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok()?;
            let millis: f64 = rest.split_once("time=")?.1.split(' ').next()?.parse().ok()?;
            let at: f64 = at.parse().ok()?;
            Some((number, at - day - millis / 1e3, millis * 1e3))
        };
        let transmitted = |line: &str| line.split_once(" packets transmitted")?.0.parse::<usize>().ok();
        let count = said.lines().find_map(transmitted).with_context(|| format!("ping: {said}"))?;
        let mut sent = vec![None; count];
        for (number, at, micros) in said.lines().filter_map(answered) {
            // The first answer counts.
            if let Some(entry @ None) = number.checked_sub(1).and_then(|n| sent.get_mut(n)) {
                *entry = Some((at, micros));
            }
        }
        ensure!(sent.iter().any(Option::is_some), "ping: no answer: {said}");
        let dated =
            sent.iter().enumerate().map(|(n, entry)| (date(&sent, n), entry.map(|(_, micros)| micros)));
        Ok(Self { sent: dated.collect() })
    }

    /// Those that were sent in a time: their round trips in microseconds.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Vec<Option<f64>> {
        let window = seconds(from)..seconds(to);
        self.sent.iter().filter(|(at, _)| window.contains(at)).map(|(_, trip)| *trip).collect()
    }
}

/// When the ping of a place was sent: as it says, or between the nearest ones that do, or so far before or after the nearest.
fn date(sent: &[Option<(f64, f64)>], place: usize) -> f64 {
    let told = |at: usize| Some((at as f64, sent.get(at).copied().flatten()?.0));
    let (before, after) = ((0..=place).rev().find_map(told), (place..sent.len()).find_map(told));
    let n = place as f64;
    match (before, after) {
        (Some((p, t)), Some((q, u))) if q > p => t + (u - t) * (n - p) / (q - p),
        (Some((p, t)), _) | (None, Some((p, t))) => t + (n - p) * INTERVAL,
        (None, None) => f64::NAN,
    }
}

/// A TCP stream from the client to the gateway's side that goes on.
pub(crate) struct Stream {
    /// To end it by.
    socket: TcpStream,
    sender: JoinHandle<Result<()>>,
    receiver: JoinHandle<Result<Arrived>>,
}

/// A stream that is over: how many bytes had arrived when.
#[derive(Debug)]
pub(crate) struct Arrived(Vec<(Instant, u64)>);

impl Stream {
    /// # Errors
    /// If it does not get through.
    pub(crate) fn begin(stage: &Stage) -> Result<Self> {
        let address = SocketAddr::from((SERVER, STREAM_PORT));
        let listener = stage.site.gateway.run(move || TcpListener::bind(address))??;
        let receiver = std::thread::spawn(move || receive(&listener));
        let socket = stage.client_host.run(move || TcpStream::connect_timeout(&address, STUCK))??;
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(CONGESTION)).context(CONGESTION)?;
        socket.set_write_timeout(Some(STUCK))?;
        let sending = socket.try_clone()?;
        let sender = std::thread::spawn(move || send(sending));
        Ok(Self { socket, sender, receiver })
    }

    /// # Errors
    /// If it broke, or did not arrive as it was sent.
    pub(crate) fn end(self) -> Result<Arrived> {
        self.socket.shutdown(Shutdown::Both)?;
        self.sender.join().map_err(|_| anyhow!("the sender panicked"))??;
        self.receiver.join().map_err(|_| anyhow!("the receiver panicked"))?
    }
}

fn chunk() -> Vec<u8> {
    let mut chunk = vec![0; CHUNK];
    Seeded::new(1).fill(&mut chunk);
    chunk
}

/// Sends the same chunk again and again, until the stream is shut down.
fn send(mut stream: TcpStream) -> Result<()> {
    let chunk = chunk();
    loop {
        match stream.write_all(&chunk) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(e).context("sending"),
        }
    }
}

fn receive(listener: &TcpListener) -> Result<Arrived> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(STUCK))?;
    let (expected, mut got) = (chunk(), vec![0; CHUNK]);
    let (mut total, mut noted) = (0, vec![(BootClock::now(), 0)]);
    for number in 0..VERIFIED {
        stream.read_exact(&mut got).context("receiving")?;
        ensure!(got == expected, "chunk {number} arrived changed");
        total += CHUNK as u64;
    }
    loop {
        // A sender that shut down may leave a reset behind.
        let read = match stream.read(&mut got) {
            Ok(read) => read,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => 0,
            Err(e) => return Err(e).context("receiving"),
        };
        total += read as u64;
        let now = BootClock::now();
        if read == 0 {
            noted.push((now, total));
            return Ok(Arrived(noted));
        }
        if noted.last().is_none_or(|(at, _)| now - *at >= NOTED) {
            noted.push((now, total));
        }
    }
}

impl Arrived {
    /// Bytes that had arrived at a moment, between two that were noted in proportion.
    fn at(&self, moment: Instant) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at < moment);
        let before = after.checked_sub(1).and_then(|n| self.0.get(n));
        match (before, self.0.get(after)) {
            (Some((t0, b0)), Some((t1, b1))) => {
                let part = (moment - *t0).as_secs_f64() / (*t1 - *t0).as_secs_f64();
                *b0 as f64 + part * (*b1 - *b0) as f64
            }
            (Some((_, bytes)), None) | (None, Some((_, bytes))) => *bytes as f64,
            (None, None) => 0.0,
        }
    }

    /// Payload that arrived in a time, in Mbit/s; none in no time.
    pub(crate) fn rate(&self, [from, to]: [Instant; 2]) -> Option<f64> {
        let time = (to - from).as_secs_f64();
        (time > 0.0).then(|| 8.0 * (self.at(to) - self.at(from)) / time / 1e6)
    }

    /// The longest time between two arrivals in a time, in milliseconds, to [`NOTED`].
    pub(crate) fn stall(&self, [from, to]: [Instant; 2]) -> f64 {
        let within = self.0.windows(2).filter_map(|pair| {
            let [(a, _), (b, _)] = pair else { return None };
            (*b > from && *a < to).then(|| ((*b).min(to) - (*a).max(from)).as_secs_f64())
        });
        1e3 * within.fold(0.0, f64::max)
    }
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn pings_are_dated_by_when_they_were_sent_and_lost_ones_by_their_neighbours() {
        let said = "PING 10.99.0.1 (10.99.0.1) 56(84) bytes of data.\n\
            [1000.011000] 64 bytes from 10.99.0.1: icmp_seq=2 ttl=64 time=1.00 ms\n\
            [1000.030000] 64 bytes from 10.99.0.1: icmp_seq=3 ttl=64 time=15.0 ms\n\
            [1000.025500] 64 bytes from 10.99.0.1: icmp_seq=5 ttl=64 time=0.500 ms\n\
            [1000.025600] 64 bytes from 10.99.0.1: icmp_seq=5 ttl=64 time=0.600 ms (DUP!)\n\n\
            --- 10.99.0.1 ping statistics ---\n6 packets transmitted, 3 received, 50% packet loss, time 25ms\n";
        let pinged = Pinged::read(said, 990.0).expect("read");
        let at = |millis: f64| Instant::from_nanos((10e9 + millis * 1e6) as u64);
        let all = pinged.between(at(-1.0), at(100.0));
        let rounded: Vec<Option<f64>> = all.iter().map(|t| t.map(f64::round)).collect();
        assert_eq!(rounded, [None, Some(1_000.0), Some(15_000.0), None, Some(500.0), None]);
        // The third was sent 15 ms after the beginning, its answer came 15 ms later.
        assert_eq!(pinged.between(at(14.0), at(24.0)).len(), 2);
        assert!(Pinged::read("PING\n\n2 packets transmitted, 0 received\n", 0.0).is_err());
    }

    #[test]
    fn a_stream_is_counted_within_a_time() {
        let arrived =
            Arrived(vec![(at(0), 0), (at(10), 1_000_000), (at(30), 1_000_000), (at(40), 3_000_000)]);
        assert_eq!(arrived.rate([at(0), at(10)]), Some(800.0));
        assert_eq!(arrived.rate([at(5), at(35)]), Some(8.0 * 1.5e6 / 0.03 / 1e6));
        assert_eq!(arrived.rate([at(5), at(5)]), None);
        assert!((arrived.stall([at(0), at(40)]) - 20.0).abs() < 1e-9);
        assert!((arrived.stall([at(15), at(40)]) - 15.0).abs() < 1e-9);
    }
}
