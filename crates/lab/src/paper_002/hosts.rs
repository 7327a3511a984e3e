//! The hosts between which the shipped daemons are measured. Owns the network namespaces, the daemons and what encrypts the link below
//! them; all of it goes with this.
//!
//! ```text
//! device 10.1.0.2 ── 10.1.0.1 radio 10.77.0.1 ── 10.77.0.2 access point 10.3.0.1 ── 10.3.0.2 server
//! ```
//! The hop from the radio to the access point stands for the paper's WLAN. There is no WPA between network namespaces: where that hop
//! is to be encrypted, ESP of ours with AES-CCM, which is WPA2's cipher, stands in for it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dormouse_testbed::hip::Identity;
use dormouse_testbed::{Dormoused, Host, Need, Testbed, own_memory, resident_memory};

use super::campaign::{Carrier, Link, millis};
use super::pair::Key;
use crate::bench::forward::{End, INNER, Job, OUTER, Site, TUN};
use crate::bench::place::Place;
use crate::bench::transfer::{self, PORT, Server, Wanted};
use crate::campaign::cpu;
use crate::results::Figures;
use crate::results::esp::Encapsulation;

const DEVICE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
/// Where it moves to.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
/// What the air carries in kbit/s, Ethernet headers included: TCP then has the 21.77 Mbit/s of the paper's laptop.
const AIR: u32 = 22_760;
/// The largest packets without encryption below.
const MTU: u16 = 1_500;
/// Bytes of a transfer through that air, and through one without a limit.
const FILES: [u64; 2] = [4 << 20, 256 << 20];
/// What does not answer after so long never will.
const STUCK: Duration = Duration::from_secs(10);
/// After an exchange, or its end, a daemon has nothing more to do within so long.
const SETTLED: Duration = Duration::from_millis(100);
/// Between two packets that look whether the peer has followed.
const ASKS: Duration = Duration::from_millis(1);
/// How long a daemon is watched that has nothing to do.
const IDLE: Duration = Duration::from_secs(2);

/// What this machine lacks for these measurements; `None` if nothing.
pub(super) fn missing() -> Option<String> {
    let needs = [Need::Root, Need::Program("ip"), Need::Program("tc"), Need::File("/dev/net/tun")];
    needs.into_iter().find_map(Need::missing)
}

/// Asks until an answer comes to what was asked here.
fn answered(socket: &UdpSocket, asked: &mut u32) -> Result<()> {
    let (begun, first) = (cpu::wall(), *asked);
    while begun.elapsed() < STUCK {
        *asked += 1;
        // Without an address or an association nothing is sent yet.
        let _ = socket.send(&asked.to_be_bytes());
        let mut word = [0; 4];
        if socket.recv(&mut word).is_ok_and(|n| n == 4) && u32::from_be_bytes(word) > first {
            return Ok(());
        }
    }
    anyhow::bail!("no packet is answered")
}

/// See the module.
#[derive(Debug)]
pub(super) struct Hosts {
    daemons: Option<Daemons>,
    /// Both ends of what encrypts the air.
    below: Vec<End>,
    device: Host,
    radio: Host,
    access_point: Host,
    server: Host,
    keys: Vec<(Key, [Identity; 2])>,
    // Last: namespaces are removed after the processes in them.
    _bed: Testbed,
}

/// Both ends' daemons, which know each other.
#[derive(Debug)]
struct Daemons {
    key: Key,
    carrier: Carrier,
    device: Dormoused,
    server: Dormoused,
    /// How long the device's took until it answered.
    ready: Duration,
    /// CPU time until then.
    start_cpu: Duration,
}

impl Hosts {
    /// Four hosts, without daemons.
    ///
    /// # Errors
    /// Without root or network namespaces.
    pub(super) fn new() -> Result<Self> {
        let mut bed = Testbed::new()?;
        let (device, radio) = (bed.host("device")?, bed.host("radio")?);
        let (access_point, server) = (bed.host("ap")?, bed.host("server")?);
        let [a, b] = OUTER.map(|address| format!("{address}/24"));
        bed.link((&device, "eth0", &["10.1.0.2/24"]), (&radio, "eth0", &["10.1.0.1/24"]))?;
        bed.link((&radio, "air", &[&a]), (&access_point, "air", &[&b]))?;
        bed.link((&access_point, "eth0", &["10.3.0.1/24"]), (&server, "eth0", &["10.3.0.2/24"]))?;
        device.ip("route add default via 10.1.0.1")?;
        server.ip("route add default via 10.3.0.1")?;
        for router in [&radio, &access_point] {
            router.sysctl("net.ipv4.ip_forward", "1")?;
        }
        let (below, keys) = (Vec::new(), Vec::new());
        Ok(Self { daemons: None, below, device, radio, access_point, server, keys, _bed: bed })
    }

    /// The air becomes like this.
    ///
    /// # Errors
    /// If `ip` or `tc` refuses, or what encrypts it does not come up.
    pub(super) fn set(&mut self, Link { encrypted, limited }: Link) -> Result<()> {
        self.below.clear();
        let routers = [self.radio.clone(), self.access_point.clone()];
        let mut mtu = MTU;
        for (end, host) in routers.iter().enumerate().filter(|_| encrypted) {
            let (suite, site) = ("aes128ccm16".to_owned(), Site::of_host(end));
            let job = Job { suite, encapsulation: Encapsulation::Tunnel, end, site };
            mtu = job.settings()?.inner_mtu()?;
            self.below.push(End::start(&Place::Host(host.clone()), &job, false)?);
            host.ip(&format!("addr add {} peer {} dev {TUN}", INNER[end], INNER[1 - end]))?;
            host.ip(&format!("link set dev {TUN} mtu {mtu} up"))?;
        }
        for (end, (host, net)) in routers.iter().zip(["10.3.0.0/24", "10.1.0.0/24"]).enumerate() {
            let way = if encrypted { (INNER[1 - end], TUN) } else { (OUTER[1 - end], "air") };
            host.ip(&format!("route replace {net} via {} dev {}", way.0, way.1))?;
        }
        // As WLAN's: TCP at the ends knows how much fits.
        for host in [&self.device, &self.server] {
            host.ip(&format!("link set dev eth0 mtu {mtu}"))?;
        }
        let air = if limited {
            format!("tc qdisc replace dev air root tbf rate {AIR}kbit burst 16kb latency 50ms")
        } else {
            "tc qdisc del dev air root 2>/dev/null || true".to_owned()
        };
        self.radio.sh(&air).map(drop)
    }

    /// Starts the daemons afresh, with keys of this kind, this carrier and nothing else that is not the default.
    fn start(&mut self, key: Key, carrier: Carrier) -> Result<&mut Daemons> {
        self.daemons = None;
        let [of_device, of_server] = self.identities(key)?;
        let start = |host: &Host, toml: &str| Dormoused::start(host, "dns = \"off\"", toml);
        let settings = format!("carriers = [\"{}\"]", carrier.name());
        let server = start(&self.server, &of_server.facing(&of_device, DEVICE, &settings))?;
        let before = cpu::wall();
        let device = start(&self.device, &of_device.facing(&of_server, SERVER, &settings))?;
        let (ready, start_cpu) = (before.elapsed(), device.cpu());
        // Its control socket answers before the tunnel's interface has its address.
        for (host, identity) in [(&self.device, &of_device), (&self.server, &of_server)] {
            host.eventually(&format!("ip -6 addr | grep -q {}", identity.hit), STUCK)?;
        }
        Ok(self.daemons.insert(Daemons { key, carrier, device, server, ready, start_cpu }))
    }

    /// Of device and server, made when they are wanted first.
    fn identities(&mut self, key: Key) -> Result<[Identity; 2]> {
        if let Some((_, both)) = self.keys.iter().find(|(kind, _)| *kind == key) {
            return Ok(both.clone());
        }
        let kind = match key {
            Key::Rsa1024V1 => anyhow::bail!("no program makes such keys"),
            Key::Rsa2048 => "rsa",
            Key::P256 => "ecdsa-p256",
            Key::P384 => "ecdsa-p384",
        };
        let both = [Identity::new(&self.device, kind)?, Identity::new(&self.server, kind)?];
        self.keys.push((key, both.clone()));
        Ok(both)
    }

    /// Has daemons run if `hip`, and holds the way against a known stream of bytes.
    ///
    /// # Errors
    /// If no byte passes, or a wrong one.
    pub(super) fn verify(&mut self, hip: Option<(Key, Carrier)>) -> Result<()> {
        if let Some((key, carrier)) = hip
            && self.daemons.as_ref().is_none_or(|d| (d.key, d.carrier) != (key, carrier))
        {
            self.start(key, carrier)?;
        }
        let (_serving, from) = self.serve(hip)?;
        self.server.run(move || transfer::check(from, None))?
    }

    /// Files, by the device.
    fn serve(&mut self, hip: Option<(Key, Carrier)>) -> Result<(Server, SocketAddr)> {
        let own = match hip {
            None => DEVICE.into(),
            Some((key, _)) => self.identities(key)?[0].hit.into(),
        };
        let server = Server::start(Place::Host(self.device.clone()), own, None, None)?;
        Ok((server, SocketAddr::new(own, PORT)))
    }

    /// TCP from the device to the server, and what it costs the daemons, if `hip`.
    ///
    /// # Errors
    /// If a file does not arrive whole.
    pub(super) fn transfer(
        &mut self,
        hip: Option<(Key, Carrier)>,
        limited: bool,
        short: bool,
    ) -> Result<Figures> {
        let (_serving, from) = self.serve(hip)?;
        let [through_air, without_limit] = FILES;
        let file = if limited { through_air } else { without_limit } >> if short { 3 } else { 0 };
        let daemons = self.daemons.as_ref().filter(|_| hip.is_some());
        let spent = || daemons.map(|d| [d.device.cpu(), d.server.cpu()]);
        let before = spent();
        let (files, elapsed) = self.server.run(move || -> Result<_> {
            let wanted = Wanted { from, own: None, file, tls: None, packets: None };
            let start = cpu::wall();
            Ok((wanted.fetch_for_a_round()?, start.elapsed()))
        })??;
        let bytes = file as f64 * f64::from(files);
        let each = before.zip(spent()).map(|(before, after)| {
            [0, 1].map(|end: usize| {
                let of = |all: [Duration; 2]| all.get(end).map_or(0.0, Duration::as_secs_f64);
                (of(after) - of(before)) * 1e9 / bytes
            })
        });
        Ok(Figures::default()
            .with("throughput", bytes / elapsed.as_secs_f64())
            .with("device_per_byte", each.map(|[device, _]| device))
            .with("server_per_byte", each.map(|[_, server]| server)))
    }

    /// What the device's daemon takes: when it starts; in `repeats` base exchanges, each begun by the first packet of a TCP connection,
    /// which waits for it; with an association but nothing to do; and in as many moves. As the paper's, HIP and ESP are IP protocols.
    ///
    /// # Errors
    /// If a daemon does not come up, or a connection does not.
    pub(super) fn daemon(&mut self, key: Key, repeats: usize) -> Result<Figures> {
        let to = SocketAddr::new(self.identities(key)?[1].hit.into(), PORT);
        let (device, server) = (self.device.clone(), self.server.clone());
        let daemons = self.start(key, Carrier::Ip)?;
        let memory = |daemon: &mut Dormoused| resident_memory(daemon.process().pid()) as f64;
        let figures = Figures::default()
            .with("ready", millis(daemons.ready))
            .with("start_cpu", millis(daemons.start_cpu))
            .with("start_memory", memory(&mut daemons.device));
        let _serving = Server::start(Place::Host(server), to.ip(), None, None)?;
        let mut exchanges = [const { Vec::new() }; 3];
        // The first also makes the responder's group key and signs its R1, which the paper has ahead.
        for n in 0..=repeats {
            std::thread::sleep(SETTLED);
            let before = [daemons.device.cpu(), daemons.server.cpu()];
            let took = device.run(move || -> Result<_> {
                let start = cpu::wall();
                TcpStream::connect_timeout(&to, STUCK).context("the first packet is not answered")?;
                Ok(start.elapsed())
            })??;
            std::thread::sleep(SETTLED);
            let after = [daemons.device.cpu(), daemons.server.cpu()];
            let figures = [took, after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])];
            if n > 0 {
                exchanges.iter_mut().zip(figures).for_each(|(all, new)| all.push(millis(new)));
            }
            if n < repeats {
                daemons.device.ok(&["hip", "down", "peer"])?;
            }
        }
        let [answered, device_cpu, server_cpu] = exchanges;
        let exchange_memory = memory(&mut daemons.device);
        let before = daemons.device.cpu();
        std::thread::sleep(IDLE);
        let idle = daemons.device.cpu().saturating_sub(before);
        let idle_memory = memory(&mut daemons.device);
        let own_memory = own_memory(daemons.device.process().pid()) as f64;
        Ok(figures
            .with_all("answered", answered)
            .with_all("device_cpu", device_cpu)
            .with_all("server_cpu", server_cpu)
            .with("exchange_memory", exchange_memory)
            .with("idle_cpu", idle.as_secs_f64() / IDLE.as_secs_f64())
            .with("idle_memory", idle_memory)
            .with("own_memory", own_memory)
            .with_all("moved", self.moves(key, repeats)?))
    }

    /// How long it takes from a change of the device's address until a packet from the new one is answered, in milliseconds: the start of
    /// the program that changes it, the daemon's notice of it, and the UPDATE.
    fn moves(&mut self, key: Key, repeats: usize) -> Result<Vec<f64>> {
        let [device, server] = self.identities(key)?.map(|identity| identity.hit);
        let bound = |host: &Host, hit: Ipv6Addr| {
            host.run(move || UdpSocket::bind((hit, PORT)))?.map_err(anyhow::Error::from)
        };
        let (asks, answers) = (bound(&self.device, device)?, bound(&self.server, server)?);
        answers.set_read_timeout(Some(SETTLED))?;
        asks.set_read_timeout(Some(ASKS))?;
        asks.connect((server, PORT))?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let answering = std::thread::spawn(move || {
            let mut word = [0; 4];
            while !seen.load(Ordering::Relaxed) {
                if let Ok((4, from)) = answers.recv_from(&mut word) {
                    let _ = answers.send_to(&word, from);
                }
            }
        });
        let all = self.asked(&asks, repeats);
        over.store(true, Ordering::Relaxed);
        let _ = answering.join();
        all
    }

    fn asked(&self, asks: &UdpSocket, repeats: usize) -> Result<Vec<f64>> {
        let mut asked = 0u32;
        let mut ways = [(DEVICE, ELSEWHERE), (ELSEWHERE, DEVICE)].into_iter().cycle();
        let mut all = Vec::new();
        // Twice: it ends where it began.
        while all.len() < repeats.next_multiple_of(2) {
            answered(asks, &mut asked)?;
            std::thread::sleep(SETTLED);
            let (from, to) = ways.next().context("two places")?;
            let begun = cpu::wall();
            let moved = format!(
                "printf '%s\\n' 'addr del {from}/24 dev eth0' 'addr add {to}/24 dev eth0' \
                 'route replace default via 10.1.0.1' | ip -batch -"
            );
            self.device.sh(&moved)?;
            answered(asks, &mut asked)?;
            all.push(millis(begun.elapsed()));
        }
        Ok(all)
    }
}
