//! A gateway's workers (`daemon.workers`): under load they carry the sessions of two clients, one by IPv6, each one by one worker, and give them back; nothing is lost
//! and nothing overtakes through loans, new keys, a reload and what strangers send; moves, an interface that is taken away and the daemon's end cost packets in flight alone.

#![expect(clippy::disallowed_methods, reason = "drives real processes by the real clock")]

use anyhow::{Context, Result, bail, ensure};
use dormouse_interop::ends::{self, PATIENCE};
use dormouse_testbed::{Access, Dormoused, Extra, GATEWAY, GATEWAY_V6, Host, Need, Roaming, SERVER, require};
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::File("/dev/net/tun"), Need::Program("ping")];
/// Numbers that are under way at once.
const WINDOW: u64 = 48;
/// One that is not back then is lost.
const LOST: Duration = Duration::from_secs(1);
/// All that waits in this network's kernel waits in one processor's queue. Otherwise it waits at the processor that has sent it, and where these have much to do, what a worker sends first overtakes
/// what the loop has sent last: between two ends of a veth pair, which is not what is tried here.
const STEER: &str = "for cpus in /sys/class/net/*/queues/rx-*/rps_cpus; do echo 1 > $cpus; done";
/// What the NAT of access B makes of a device's address.
const NAT: &str = "198.51.100.6";

/// How many were sent, and which came back.
type Echoed = (u64, Vec<u64>);

/// Numbered datagrams from a client to the server and back, until they are stopped.
struct Stream {
    stop: Arc<AtomicBool>,
    up: Option<JoinHandle<Result<Result<Vec<u64>>>>>,
    back: Option<JoinHandle<Result<Result<Echoed>>>>,
}

impl Drop for Stream {
    /// Also when a test fails in its midst.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What became of them: how many were sent, and those that came, in their order.
struct Fate {
    sent: u64,
    up: Vec<u64>,
    back: Vec<u64>,
}

impl Stream {
    fn begin(client: &Host, server: &Host, port: u16) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let socket = server.run(move || bound(SERVER.parse()?, port))??;
        let stopped = stop.clone();
        let up = server.within(move || echo(&socket, &stopped))?;
        let stopped = stop.clone();
        let to = SocketAddr::new(SERVER.parse()?, port);
        let back = client.within(move || send(to, &stopped))?;
        Ok(Self { stop, up: Some(up), back: Some(back) })
    }

    fn end(mut self) -> Result<Fate> {
        self.stop.store(true, Ordering::Relaxed);
        let (back, up) = (self.back.take().context("a sender")?, self.up.take().context("a server")?);
        let (sent, back) = back.join().map_err(|_| anyhow::anyhow!("a sender panicked"))???;
        let up = up.join().map_err(|_| anyhow::anyhow!("a server panicked"))???;
        Ok(Fate { sent, up, back })
    }
}

impl Fate {
    /// None came twice, and none before one that was sent earlier.
    fn in_order(&self, what: &str) -> Result<()> {
        for (way, numbers) in [("up", &self.up), ("back", &self.back)] {
            if let Some(at) = numbers.windows(2).position(|pair| pair[0] >= pair[1]) {
                let around = &numbers[at.saturating_sub(60)..numbers.len().min(at + 60)];
                bail!("{what}: {way}: {} after {}: {around:?}", numbers[at + 1], numbers[at]);
            }
        }
        ensure!(self.sent > 500 && self.back.len() > 100, "{what}: no load: {}", self.sent);
        Ok(())
    }

    /// And all came.
    fn whole(&self, what: &str) -> Result<()> {
        self.in_order(what)?;
        let came = [self.up.len(), self.back.len()];
        ensure!(came == [self.sent as usize; 2], "{what}: of {} {came:?} came", self.sent);
        Ok(())
    }
}

fn bound(ip: IpAddr, port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((ip, port))?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    Ok(socket)
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) -> Result<Vec<u64>> {
    let (mut numbers, mut buffer, mut idle) = (Vec::new(), [0; 2048], 0);
    while idle < 10 {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                idle = 0;
                numbers.push(u64::from_be_bytes(*buffer.first_chunk().context("a number")?));
                let _sent = socket.send_to(&buffer[..len], from);
            }
            Err(_) => idle += u32::from(stop.load(Ordering::Relaxed)),
        }
    }
    Ok(numbers)
}

fn send(to: SocketAddr, stop: &AtomicBool) -> Result<(u64, Vec<u64>)> {
    let socket = bound(Ipv4Addr::UNSPECIFIED.into(), 0)?;
    socket.connect(to)?;
    let (mut sent, mut back, mut buffer, mut heard) = (0, Vec::new(), [0; 2048], Instant::now());
    // Those that are back or lost, and the last that was given up: what comes of these later is not counted twice.
    let (mut done, mut given_up, mut payload) = (0, 0, vec![7; 700]);
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        while !stopped && sent - done < WINDOW {
            sent += 1;
            payload[..8].copy_from_slice(&u64::to_be_bytes(sent));
            // Between two addresses there is no way.
            let _sent = socket.send(&payload);
        }
        match socket.recv(&mut buffer) {
            Ok(_) => {
                let number = u64::from_be_bytes(*buffer.first_chunk().context("a number")?);
                back.push(number);
                done += u64::from(number > given_up);
                heard = Instant::now();
            }
            Err(_) if heard.elapsed() > LOST => {
                if stopped {
                    return Ok((sent, back));
                }
                (done, given_up, heard) = (sent, sent, Instant::now());
            }
            Err(_) => {}
        }
        if stopped && sent == back.len() as u64 {
            return Ok((sent, back));
        }
    }
}

struct Scene {
    world: Roaming,
    gateway: Dormoused,
    devices: [Dormoused; 2],
    other: Host,
}

fn client(identity: &str) -> String {
    let child = "remote = [\"10.99.0.0/24\"]\n[connection.peer.ike]\nesp_in_udp = \"always\"\n[sleep]\nradio = \"none\"";
    ends::by_secret("client", identity, "gateway.test", ends::SECRET, child)
}

fn gateway(workers: &str) -> (String, String) {
    let more = "[connection.peer.ike]\nesp_in_udp = \"always\"\n";
    let toml = ends::gateway("\"10.55.0.0/24\"", "") + more;
    (format!("dns = \"off\"\nlog = \"debug\"\nworkers = {workers}"), toml)
}

impl Scene {
    /// `reached`: where the first client reaches the gateway.
    fn new(workers: &str, reached: &str) -> Result<Self> {
        let mut world = Roaming::new(60)?;
        world.attach(Access::A)?;
        let (other, _) = ends::another(&mut world, "other", 10)?;
        let (daemon, toml) = gateway(workers);
        let extra = Extra { user: "nobody".to_owned(), ..Extra::default() };
        let gateway = Dormoused::start_with(&world.gateway, extra, &daemon, &toml)?;
        let start = |host: &Host, identity: &str, reached: &str| -> Result<Dormoused> {
            let toml = client(identity).replace(GATEWAY, reached);
            let device = Dormoused::start(host, "dns = \"off\"\nlog = \"debug\"", &toml)?;
            device.ok(&["up", "peer"])?;
            Ok(device)
        };
        let Roaming { device, router_a, router_b, core, gateway: at_gateway, server, .. } = &world;
        for host in [device, router_a, router_b, core, at_gateway, server, &other] {
            host.sh(STEER)?;
        }
        let devices = [start(&world.device, "device.test", reached)?, start(&other, "other.test", GATEWAY)?];
        Ok(Self { world, gateway, devices, other })
    }

    fn streams(&self) -> Result<[Stream; 2]> {
        let server = &self.world.server;
        Ok([Stream::begin(&self.world.device, server, 4001)?, Stream::begin(&self.other, server, 4002)?])
    }

    /// The interfaces by which routes of sessions lead that are lent.
    fn lent(&self) -> Result<Vec<String>> {
        let routes = self
            .world
            .gateway
            .sh("ip route show table all proto 0x6d 2>/dev/null || ip route show table all")?;
        let mut all: Vec<String> = routes
            .lines()
            .filter(|line| line.starts_with("10.55.0."))
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("dormouse0-w")))
            .map(str::to_owned)
            .collect();
        all.sort();
        Ok(all)
    }

    fn until_lent(&self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let lent = self.lent()?;
            if wanted(&lent) {
                return Ok(lent);
            }
            if Instant::now() > end {
                bail!("{what}: {lent:?}\n{}", self.gateway.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What may last shorter than a look at the routes takes is seen in the log alone.
    fn until_logged(&self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.gateway.log().lines().any(&is_it) {
            ensure!(Instant::now() < end, "{what}:\n{}", self.gateway.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn both_lent(&self, what: &str) -> Result<Vec<String>> {
        self.until_lent(what, |lent| lent.len() == 2)
    }

    /// The first device comes behind the NAT. Both know each other's link address: what waits for that to be asked for is sent by one processor's kernel while
    /// another one sends what comes after it, and the order would be lost before it comes to any worker.
    fn come_to_b(&self) -> Result<()> {
        let (device, router) = (&self.world.device, &self.world.router_b);
        device.ip("link set dev wlan1 up")?;
        for (host, dev, peer, other, theirs) in
            [(device, "wlan1", "192.168.7.1", router, "lan"), (router, "lan", "192.168.7.2", device, "wlan1")]
        {
            let address = other.sh(&format!("cat /sys/class/net/{theirs}/address"))?;
            host.ip(&format!("neigh replace {peer} lladdr {} nud permanent dev {dev}", address.trim()))?;
        }
        self.world.attach(Access::B)
    }

    fn found_by_doctor(&self) -> Result<String> {
        Ok(self.gateway.cli(&["doctor"])?.text)
    }
}

#[test]
fn two_workers_carry_two_sessions_in_order_and_give_them_back() -> Result<()> {
    if !require("a gateway's workers", &NEEDS) {
        return Ok(());
    }
    let scene = Scene::new("2", GATEWAY_V6)?;
    ensure!(scene.lent()?.is_empty(), "nothing without load");
    let streams = scene.streams()?;
    let lent = scene.both_lent("lent under load")?;
    ensure!(lent == ["dormouse0-w0", "dormouse0-w1"], "a worker for each: {lent:?}");
    let by_v6 = format!("path=[{GATEWAY_V6}]:4500");
    scene.until_logged("of both families", |line| {
        line.contains("a worker carries it") && line.contains(&by_v6)
    })?;
    std::thread::sleep(Duration::from_secs(2));
    let found = scene.found_by_doctor()?;
    ensure!(found.contains("2 workers; SAs now: dormouse0-w0 1, dormouse0-w1 1"), "{found}");
    // The stand-in answers a ping for a sleeping device only if the device was seen to answer one, which a worker alone sees now.
    let first = scene.devices[0].ok(&["status", "--json"])?.text;
    let first = first.split('"').find(|word| word.starts_with("10.55.0.")).context("an address")?.to_owned();
    scene.world.server.sh(&format!("ping -c 1 -W 5 {first}"))?;
    for stream in streams {
        stream.end()?.whole("lent under load").with_context(|| scene.gateway.log())?;
    }
    scene.until_lent("called back when idle", <[String]>::is_empty)?;
    // Again, with new keys and a reload in the midst.
    let streams = scene.streams()?;
    scene.both_lent("lent again")?;
    for device in &scene.devices {
        device.ok(&["rekey", "peer", "--child"])?;
    }
    scene.both_lent("new keys are lent")?;
    scene.gateway.ok(&["reload"])?;
    scene.both_lent("after a reload")?;
    std::thread::sleep(Duration::from_secs(1));
    for stream in streams {
        stream.end()?.whole("new keys under load").with_context(|| scene.gateway.log())?;
    }
    scene.devices[0].ok(&["suspend"])?;
    scene.world.detach(Access::A)?;
    scene.world.server.sh(&format!("ping -c 3 -W 2 {first}")).context("for a device that sleeps")?;
    Ok(())
}

/// A raw socket whose buffer is full does not wait, but says so.
fn is_full(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}

/// UDP from the client's own address and port, as on its way a stranger could send it.
fn forge(host: &Host, payloads: Vec<Vec<u8>>) -> Result<()> {
    host.run(move || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
        let to: SocketAddr = format!("{GATEWAY}:0").parse()?;
        for payload in payloads {
            let len = u16::try_from(payload.len() + 8)?.to_be_bytes();
            let port = 4500u16.to_be_bytes();
            let datagram = [&port[..], &port, &len, &[0, 0], &payload].concat();
            let end = Instant::now() + PATIENCE;
            while let Err(e) = socket.send_to(&datagram, &to.into()) {
                ensure!(is_full(&e) && Instant::now() < end, "what a stranger sends: {e}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    })?
}

#[test]
fn what_strangers_send_and_what_is_taken_away_costs_packets_in_flight_alone() -> Result<()> {
    if !require("what a gateway's workers must bear", &NEEDS) {
        return Ok(());
    }
    let mut scene = Scene::new("2", GATEWAY)?;
    let streams = scene.streams()?;
    scene.both_lent("lent under load")?;
    let log = scene.gateway.log();
    let spi_of = |client: &str| -> Result<u32> {
        let lent = |line: &&str| line.contains("a worker carries it") && line.contains(client);
        let line = log.lines().find(lent).context("lent")?;
        let spi = line.split("child#").nth(1).and_then(|rest| rest.split_whitespace().next());
        Ok(u32::from_str_radix(spi.context("an SPI")?, 16)?)
    };
    let (mine, others) = (spi_of("10.1.0.2:4500")?, spi_of("198.51.100.42:4500")?);
    let mut junk: Vec<Vec<u8>> =
        vec![vec![], vec![0xff], vec![0; 3], vec![0; 4], vec![0; 28], vec![0xff; 1400]];
    for n in 0..2_000u32 {
        junk.push([&mine.to_be_bytes()[..], &n.to_be_bytes(), &vec![n as u8; n as usize % 1_300]].concat());
        junk.push([&[0; 4][..], &vec![n as u8; 28 + n as usize % 900]].concat());
    }
    forge(&scene.world.device, junk)?;
    std::thread::sleep(Duration::from_secs(1));
    let lent = scene.lent()?;
    ensure!(lent.len() == 2, "what strangers send calls nothing back: {lent:?}");
    // As if the other client had moved here: it may have, which the loop has to look at.
    forge(&scene.world.device, vec![[&others.to_be_bytes()[..], &[0, 0, 9, 9], &[5; 200]].concat(); 2])?;
    scene.both_lent("lent again")?;
    let [mine, other] = streams;
    other.end()?.whole("beside what strangers send")?;
    mine.end()?.in_order("under what strangers send")?;
    let status = scene.gateway.ok(&["status", "--json"])?.text;
    ensure!(status.contains("\"workers\""), "{status}");

    // A device moves behind a NAT in the midst of it.
    let streams = scene.streams()?;
    scene.both_lent("lent before the move")?;
    scene.world.detach(Access::A)?;
    scene.come_to_b()?;
    // For how long the loop has it in between depends on the load.
    scene.until_logged("lent on the new path", |line| {
        line.contains("a worker carries it") && line.contains(&format!("-> {NAT}:"))
    })?;
    scene.both_lent("lent on the new path")?;
    let [mine, other] = streams;
    std::thread::sleep(Duration::from_secs(1));
    other.end()?.whole("beside a move")?;
    mine.end()?.in_order("through a move").with_context(|| scene.devices[0].log())?;

    // A worker's interface is taken away: it ends, and the other goes on with both.
    let streams = scene.streams()?;
    scene.both_lent("lent before a worker ends")?;
    scene.world.gateway.ip("link delete dormouse0-w0")?;
    scene.until_lent("the other worker has both", |lent| lent == ["dormouse0-w1", "dormouse0-w1"])?;
    std::thread::sleep(Duration::from_secs(1));
    for stream in streams {
        stream.end()?.in_order("through the end of a worker").with_context(|| scene.gateway.log())?;
    }
    let found = scene.found_by_doctor()?;
    ensure!(found.contains("ended: dormouse0-w0"), "{found}");

    // The daemon ends under load, and another begins.
    let streams = scene.streams()?;
    scene.until_lent("lent before the end", |lent| !lent.is_empty())?;
    let ended = scene.gateway.process().stop();
    ensure!(ended.success(), "{ended}: {}", scene.gateway.log());
    let left = scene.world.gateway.sh("ip link show; ip route show table all")?;
    ensure!(!left.contains("dormouse0"), "{left}");
    // As the service manager does at each start.
    let state = scene.world.gateway.dir().join("state");
    scene.world.gateway.sh(&format!("chown -R root {}", state.display()))?;
    scene.gateway.restart()?;
    scene.until_lent("lent by the next daemon", |lent| !lent.is_empty())?;
    for stream in streams {
        stream.end()?.in_order("through the end of the daemon")?;
    }
    // A device that is gone without a word.
    let streams = scene.streams()?;
    scene.both_lent("lent before a device dies")?;
    scene.devices[0].process().kill();
    scene.until_lent("called back when nothing passes", |lent| lent.len() == 1)?;
    let [mine, other] = streams;
    other.end()?.whole("beside a death")?;
    let _gone = mine.end();
    // It comes back, by a new session.
    scene.devices[0].restart()?;
    scene.devices[0].ok(&["up", "peer"])?;
    let streams = scene.streams()?;
    scene.both_lent("lent after a device came back")?;
    for stream in streams {
        stream.end()?.in_order("after a death")?;
    }
    Ok(())
}

#[test]
fn a_client_has_no_workers_and_doctor_says_why() -> Result<()> {
    if !require("where there are no workers", &NEEDS) {
        return Ok(());
    }
    let world = Roaming::new(60)?;
    let device = Dormoused::start(&world.device, "dns = \"off\"\nworkers = 2", &client("device.test"))?;
    let found = device.cli(&["doctor"])?.text;
    ensure!(found.contains("no workers: this machine is more than a gateway"), "{found}");
    ensure!(!world.device.sh("ip link show")?.contains("dormouse0-w"), "no interface");
    Ok(())
}
