//! Many initiators of one shipped daemon, which the paper has not: their base exchanges over real sockets, some of them at a time, each
//! from an address of its own. Owns two hosts, the daemon in one of them and the initiators in the other; all of it goes with this.
//!
//! An association counts once the initiator has verified R2 and the daemon says that it has it. The daemon has its default configuration
//! but for `accept = "any"` and `carriers = ["udp"]`: one UDP socket can be every initiator.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dormouse_crypto::hip::DhGroup;
use dormouse_io::clock::BootClock;
use dormouse_io::udp::{Sent, Udp};
use dormouse_keying::KeyManager as _;
use dormouse_sansio::{Carrier, Path};
use dormouse_testbed::hip::Identity;
use dormouse_testbed::{Dormoused, Host, Testbed, own_memory};
use dormouse_wire::hip::Hit;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use super::campaign::{OURS, millis};
use super::pair::{End, Key, NOBODY, Setup};
use crate::campaign::cpu;
use crate::results::Figures;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Initiator `n` is at this address and `n + 1`.
const HOMES: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);
const PORT: u16 = 10_500;
/// Exchanges that are under way at a time.
const AT_ONCE: usize = 32;
/// How long there may be no packet before the initiators look at their clocks.
const LOOK: u16 = 20;
/// If no association comes about for so long, none will.
const STUCK: Duration = Duration::from_secs(60);
/// After the last exchange the daemon has nothing more to do within so long.
const SETTLED: Duration = Duration::from_millis(500);

/// What so many associations take of the daemon.
///
/// # Errors
/// Without root or network namespaces, or if an association does not come about.
pub(super) fn measure(associations: u32, seed: u64) -> Result<Figures> {
    let mut bed = Testbed::new()?;
    let (host, homes) = (bed.host("server")?, bed.host("initiators")?);
    bed.link((&host, "eth0", &["10.0.0.1/24"]), (&homes, "eth0", &["10.0.0.2/24"]))?;
    homes.ip(&format!("route add local {HOMES}/16 dev lo"))?;
    host.ip(&format!("route add {HOMES}/16 via 10.0.0.2"))?;
    let identity = Identity::new(&host, "ecdsa-p256")?;
    let settings = identity.alone("accept = \"any\"\ncarriers = [\"udp\"]");
    let mut daemon = Dormoused::start(&host, "dns = \"off\"", &settings)?;
    host.eventually(&format!("ip -6 addr | grep -q {}", identity.hit), STUCK)?;
    let mut initiators = Initiators::new(&homes, Hit(identity.hit), seed)?;
    // The first also makes the daemon's group key and signs its R1.
    initiators.run(1)?;
    std::thread::sleep(SETTLED);
    let (memory, spent) = (own_memory(daemon.process().pid()), daemon.cpu());
    let elapsed = initiators.run(associations)?;
    std::thread::sleep(SETTLED);
    let spent = daemon.cpu().saturating_sub(spent);
    let grown = own_memory(daemon.process().pid()).saturating_sub(memory);
    ensure!(held(&daemon)? == associations as usize + 1, "the daemon does not have all associations");
    Ok(Figures::default()
        .with("responder", millis(spent))
        .with("associated", millis(elapsed))
        .with("held_memory", grown as f64))
}

/// Peers with which the daemon has an association.
fn held(daemon: &Dormoused) -> Result<usize> {
    let status = daemon.ok(&["--json", "hip", "status"])?;
    let peers = status.json.pointer("/result/hip/peers").and_then(Value::as_array);
    let peers = peers.context("no peers in the status")?;
    Ok(peers.iter().filter(|peer| peer["state"] == "up").count())
}

struct Initiators {
    socket: Udp,
    server: Hit,
    group: DhGroup,
    seed: u64,
    /// Those that have begun so far.
    begun: u32,
    /// Those whose exchange is under way, by their addresses.
    under_way: BTreeMap<IpAddr, End>,
}

impl Initiators {
    fn new(host: &Host, server: Hit, seed: u64) -> Result<Self> {
        let bind = || Udp::bind((Ipv4Addr::UNSPECIFIED, PORT).into(), Carrier::HipUdp);
        let group = DhGroup::by_id(OURS.0).context("no such group")?;
        let socket = host.run(bind)??;
        Ok(Self { socket, server, group, seed, begun: 0, under_way: BTreeMap::new() })
    }

    /// So many more associations; how long it took until the last one was there.
    fn run(&mut self, count: u32) -> Result<Duration> {
        let began = cpu::wall();
        let (mut left, mut last) = (count, began);
        let mut buffer = vec![0; 65_536];
        while left > 0 || !self.under_way.is_empty() {
            while left > 0 && self.under_way.len() < AT_ONCE {
                self.begin()?;
                left -= 1;
            }
            let before = self.under_way.len();
            self.receive(&mut buffer)?;
            self.look()?;
            if self.under_way.len() < before {
                last = cpu::wall();
            }
            ensure!(last.elapsed() < STUCK, "{} of {count} associations are missing", self.under_way.len());
        }
        Ok(began.elapsed())
    }

    fn begin(&mut self) -> Result<()> {
        self.begun += 1;
        let address = IpAddr::from(Ipv4Addr::from_bits(HOMES.to_bits() + self.begun));
        let key = Key::P256.generate()?;
        let setup = Setup { key: &key, group: self.group, k: OURS.1 };
        let mut end = End::new(setup, NOBODY, address, self.seed ^ u64::from(self.begun))?;
        let to = |ip| SocketAddr::new(ip, PORT);
        let path = Path { local: to(address), remote: to(SERVER.into()), carrier: Carrier::HipUdp };
        let (now, ours, peer) = (BootClock::now(), end.tag, self.server);
        let (sent, _) = end.act(now, |host| {
            host.connect(now, ours, peer, &[path])?;
            Ok(())
        })?;
        self.send(sent)?;
        self.under_way.insert(address, end);
        Ok(())
    }

    /// Waits for packets, and has them read.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<()> {
        // A search that goes on does not wait.
        let now = BootClock::now();
        let due = self.under_way.values().filter_map(|end| end.host.poll_timeout()).any(|d| d.at <= now);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(if due { 0 } else { LOOK })) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let mut datagrams = Vec::new();
        loop {
            self.socket.receive(buffer, &mut datagrams)?;
            if datagrams.is_empty() {
                return Ok(());
            }
            for (path, at) in datagrams.drain(..) {
                let (Some(end), Some(datagram)) =
                    (self.under_way.get_mut(&path.local.ip()), buffer.get_mut(at))
                else {
                    continue;
                };
                let now = BootClock::now();
                // What it discards is repeated, or the exchange is stuck, which is an error.
                let (sent, _) = end.act(now, |host| {
                    let _ = host.handle_datagram(now, path, datagram);
                    Ok(())
                })?;
                self.send(sent)?;
            }
        }
    }

    /// What is due is done, and who has an association is done with.
    fn look(&mut self) -> Result<()> {
        let now = BootClock::now();
        let mut all = Vec::new();
        for end in self.under_way.values_mut() {
            if end.host.poll_timeout().is_some_and(|due| due.at <= now) {
                let (sent, _) = end.act(now, |host| {
                    host.handle_timeout(now);
                    Ok(())
                })?;
                all.extend(sent);
            }
        }
        self.send(all)?;
        let server = self.server;
        self.under_way.retain(|_, end| end.newest(server).is_none());
        Ok(())
    }

    fn send(&mut self, packets: Vec<(Path, Vec<u8>)>) -> Result<()> {
        for (path, packet) in packets {
            match self.socket.send(&path, 0, &packet, None) {
                // What is not sent now is repeated.
                Sent::All | Sent::Blocked { .. } => {}
                Sent::TooBig => bail!("{} bytes do not fit {path}", packet.len()),
                Sent::Failed(e) => return Err(e).with_context(|| format!("sending over {path}")),
            }
        }
        Ok(())
    }
}
