//! A tunnel without key exchange: the data path alone, for measurements and as the smallest example of its use.
//!
//! `forward (--plain | --esp | --raw) SIDE TUN LOCAL REMOTE`: SIDE is `a` or `b`, the addresses are UDP, for example
//! `forward --esp a tun0 10.77.0.1:4500 10.77.0.2:4500`. `--plain` sends the inner packets as they are, through the same
//! path: what it costs to be in user space at all. `--esp` protects them with AES-128-GCM under keys that are no secret;
//! `--raw` does too, but sends IP protocol 50 instead of UDP (the ports do not matter then). The two ends must run in
//! different network namespaces or machines.

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{
    Child, IPV4_IN_IP, IPV6_IN_IP, Inbound, Mode, Outbound, Overhead, PathMtu, SaParams, Sad, Selectors, ecn,
    pmtu,
};
use dormouse_io::SuperPacket;
use dormouse_io::batch::{
    Carriers, Geometry, Opener, Plan, Received, RxBatch, Sealed, Sealer, TxBatch, Verdict,
};
use dormouse_io::rawesp::RawEsp;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_io::udp::{PathError, Sent, Udp};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::ike::{TrafficSelector, TsRange};
use dormouse_wire::ip::{Ecn, flow, icmp, tcp};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Super-packets read from the TUN before the sockets have a turn.
const BUDGET: usize = 16;

struct Forwarder {
    sad: Option<Sad>,
    path: Path,
    inner_mtu: usize,
    dropped: u64,
}

impl Sealer for Forwarder {
    fn plan(&mut self, packet: &mut SuperPacket<'_>) -> Plan {
        let len = packet.packet_len();
        let next_header = if packet.bytes()[0] >> 4 == 4 { IPV4_IN_IP } else { IPV6_IN_IP };
        let ecn = ecn::of_packet(packet.bytes()) as u8;
        let Some(sad) = &mut self.sad else {
            return Plan::Seal(Geometry {
                route: 0,
                head: 0,
                strip: 0,
                max_inner: len,
                stride: len,
                packet_len: len,
                next_header,
                ecn,
            });
        };
        let Some(flow) = flow(packet.bytes()) else { return Plan::Drop };
        let Some(child) = sad.route(&flow).and_then(|id| sad.get(id)) else { return Plan::Drop };
        let max_inner = self.inner_mtu;
        if !packet.fits(max_inner) {
            let mut answer = Vec::new();
            let mtu = pmtu::advertised(max_inner, flow.src).into();
            icmp::too_big(packet.bytes(), flow.dst, mtu, &mut answer);
            return Plan::Answer(answer);
        }
        tcp::clamp_mss(packet.bytes_mut(), pmtu::mss_v4(max_inner), pmtu::mss_v6(max_inner));
        let packet_len = len.min(max_inner);
        Plan::Seal(Geometry {
            route: child.id,
            head: child.outbound.head_len(),
            strip: 0,
            max_inner,
            stride: child.outbound.sealed_len(packet_len),
            packet_len,
            next_header,
            ecn,
        })
    }

    fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed> {
        let Some(sad) = &mut self.sad else {
            return Some(Sealed { len: sizes.iter().sum(), path: self.path });
        };
        let child = sad.get_mut(geometry.route)?;
        let len = child.outbound.seal_batch(slots, geometry.stride, sizes, geometry.next_header).ok()?;
        Some(Sealed { len, path: child.path })
    }

    fn unsent(&mut self, _: &Geometry, path: &Path, sent: Sent) {
        eprintln!("{path}: {sent:?}");
    }
}

impl Opener for Forwarder {
    fn open(&mut self, from: &Received, datagram: &mut [u8]) -> Verdict {
        let Some(sad) = &mut self.sad else { return Verdict::Deliver(0..datagram.len()) };
        let inner = match sad.open(datagram) {
            Ok(accepted) => accepted.opened.inner,
            Err(reason) => {
                self.dropped += 1;
                eprintln!("{}: {reason}", from.path);
                return Verdict::Done;
            }
        };
        let outer = Ecn::from_traffic_class(from.ecn);
        if outer == Ecn::NotEct || ecn::decapsulate(&mut datagram[inner.clone()], outer) {
            Verdict::Deliver(inner)
        } else {
            Verdict::Done
        }
    }
}

fn sad(side_a: bool, path: Path, inner_mtu: usize) -> Result<Sad, Box<dyn Error>> {
    let encr = Encr::Aes128Gcm16;
    let half = |spi: u8| {
        let keymat = vec![spi; keymat_len(encr, None)];
        SaParams::new(u32::from(spi) << 8, encr, None, Secret::from(keymat))
    };
    let (ours, theirs) = if side_a { (1, 2) } else { (2, 1) };
    let any: [TrafficSelector; 2] = [TsRange::any_v4().into(), TsRange::any_v6().into()];
    let mut outbound = Outbound::new(&half(theirs), &mut Seeded::new(0))?;
    outbound.set_inner_mtu(inner_mtu);
    let mut sad = Sad::new();
    sad.insert(Child {
        id: 1,
        inbound: Inbound::new(&half(ours))?,
        outbound,
        selectors: Selectors::new(&any, &any),
        path,
        overhead: Overhead::new(encr, None, Mode::Tunnel, &path),
        pmtu: PathMtu::new(&path, 1_500),
    });
    sad.activate(1);
    Ok(sad)
}

/// The one socket there is.
fn socket(out: &Carriers) -> BorrowedFd<'_> {
    out.udp.first().map_or_else(|| out.raw[0].as_fd(), AsFd::as_fd)
}

fn next_error(out: &Carriers) -> std::io::Result<Option<PathError>> {
    out.udp.first().map_or_else(|| out.raw[0].next_error(), Udp::next_error)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [mode, side, name, local, remote] = &args[..] else {
        return Err("usage: forward (--plain | --esp | --raw) (a | b) TUN LOCAL REMOTE".into());
    };
    let (local, remote): (SocketAddr, SocketAddr) = (local.parse()?, remote.parse()?);
    let raw = mode == "--raw";
    let path = Path { local, remote, carrier: if raw { Carrier::RawEsp } else { Carrier::NatT } };
    let overhead = Overhead::new(Encr::Aes128Gcm16, None, Mode::Tunnel, &path);
    let inner_mtu = overhead.inner_mtu(PathMtu::new(&path, 1_500).get(Instant::ZERO).into());
    let esp = mode != "--plain";
    let mut node = Forwarder {
        sad: if esp { Some(sad(side == "a", path, inner_mtu)?) } else { None },
        path,
        inner_mtu,
        dropped: 0,
    };
    let mut tun =
        Tun::open(&TunOptions { name: Some(name.clone()), mtu: inner_mtu as u16, ..TunOptions::default() })?;
    let mut out = Carriers::default();
    if raw {
        out.raw.push(RawEsp::open(local.is_ipv4())?);
    } else {
        out.udp.push(Udp::bind(local, Carrier::NatT)?);
    }
    let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
    eprintln!("{name}: {:?}, inner MTU {inner_mtu}", tun.offloads());

    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(tun.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    epoll.add(socket(&out), EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
    let mut events = [EpollEvent::empty(); 4];
    let mut blocked = false;
    loop {
        let n = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..n] {
            if event.events().contains(EpollFlags::EPOLLERR) {
                while let Some(error) = next_error(&out)? {
                    eprintln!("{error:?}");
                }
            }
            if event.data() == 1 && event.events().contains(EpollFlags::EPOLLIN) {
                match &out.udp[..] {
                    [udp, ..] => rx.receive(udp, &mut tun, &mut node)?,
                    [] => rx.receive_raw(&out.raw[0], &mut tun, &mut node)?,
                };
            } else {
                tx.forward(&mut tun, &mut out, &mut node, BUDGET)?;
            }
        }
        if tx.is_blocked() != blocked {
            blocked = !blocked;
            eprintln!("socket full: {blocked}");
            let (tun_events, udp_events) = if blocked {
                (EpollFlags::empty(), EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT)
            } else {
                (EpollFlags::EPOLLIN, EpollFlags::EPOLLIN)
            };
            epoll.modify(tun.as_fd(), &mut EpollEvent::new(tun_events, 0))?;
            epoll.modify(socket(&out), &mut EpollEvent::new(udp_events, 1))?;
        }
    }
}
