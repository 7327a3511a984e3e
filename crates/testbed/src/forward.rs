//! A tunnel without key exchange: the data path alone, between a TUN device and a socket, under keys that are no secret. Owns
//! its device, its socket and both halves of one SA; for measurements only, and must never carry anything that matters. Where
//! strangers can reach it ([`Settings::run`]), it takes from the peer alone, and what is meant for the inner addresses alone.
//!
//! The batches, the SAs and the checks are those of the daemon (`dormouse-io`, `dormouse-esp`). What is missing is IKE, and
//! what a session that sleeps needs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use dormouse_crypto::measure::Suite;
use dormouse_crypto::{Encr, PacketKey, Prf, Secret, prf_plus};
use dormouse_esp::{
    IPV4_IN_IP, IPV6_IN_IP, Inbound, Outbound, Outer, Overhead, PathMtu, SaParams, Sad, Selectors, Tunnel,
    ZoneParams, ecn, pmtu,
};
use dormouse_io::SuperPacket;
use dormouse_io::batch::{Carriers, Opener, RxBatch, Sealer, TxBatch};
use dormouse_io::poller::{Interest, Poller};
use dormouse_io::raw::Raw;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_io::udp::{PathError, Sent, Udp};
use dormouse_keying::{ChildId, Mode, Owner, SaId, ZoneMap};
use dormouse_sansio::packet::{Geometry, InnerPacket, Plan, Received, Sealed, Verdict};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::{Ecn, flow, icmp, tcp};

/// Super-packets read from the TUN before the sockets have a turn.
const BUDGET: usize = 16;
/// The MTU of the link below, in bytes.
const LINK_MTU: u16 = 1_500;

/// What packets are protected with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing: inner packets travel as they are. What it costs to be in user space at all.
    Plain,
    /// ESP.
    Esp {
        /// With these algorithms.
        suite: Suite,
        /// In this mode.
        mode: Mode,
    },
    /// ESP in tunnel mode, in two zones under AES-128-GCM: the headers, and the rest (`docs/wire/mml-ipsec.md`). The keys are no secret.
    Zoned,
}

/// The cipher of both zones.
const ZONES: Encr = Encr::Aes128Gcm16;

/// The SPI of what the first end receives, or the other.
const fn spi(to_first: bool) -> u32 {
    if to_first { 0x100 } else { 0x200 }
}

/// Keying material of a zone, for what the first end receives, or the other.
fn zone_keymat(to_first: bool, zone: u8) -> Secret {
    Secret::from([zone << 1 | u8::from(to_first); 20])
}

/// One direction of [`Protection::Zoned`].
fn zoned(to_first: bool) -> SaParams {
    let further = vec![(ZONES, zone_keymat(to_first, 1))];
    let zones = Some(ZoneParams { map: ZoneMap::default(), further });
    SaParams { zones, ..SaParams::new(spi(to_first), ZONES, None, zone_keymat(to_first, 0)) }
}

/// One end of the tunnel. The two ends must stand in different network namespaces or machines.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the TUN interface.
    pub tun: String,
    /// What packets are protected with; the same at both ends.
    pub protection: Protection,
    /// How they travel: `NatT` in UDP, `RawEsp` as IP protocol 50.
    pub carrier: Carrier,
    /// Our outer address; the port does not matter for protocol 50.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Inner addresses of both ends, ours first: what transport mode puts back into the header that it left off.
    pub inner: (IpAddr, IpAddr),
    /// Which end this is: one of them is the first.
    pub first: bool,
    /// Random bytes that both ends share for this run, where strangers can reach the link: keys are derived from them, packets
    /// come from the peer's address or not at all, and go between the inner addresses. Without, the keys are no secret.
    pub run: Option<Secret>,
}

impl Settings {
    fn path(&self) -> Path {
        Path { local: self.local, remote: self.remote, carrier: self.carrier }
    }

    /// The key of the direction whose receiver is the first end, or the other.
    fn key(&self, suite: Suite, to_first: bool) -> Result<PacketKey> {
        Ok(suite.key(self.keymat(suite, to_first)?.as_bytes())?)
    }

    fn keymat(&self, suite: Suite, to_first: bool) -> Result<Secret> {
        let direction = if to_first { 1 } else { 2 };
        let mut keymat = Secret::from(suite.public_keymat(direction));
        if let Some(run) = &self.run {
            prf_plus(Prf::HmacSha256, run.as_bytes(), &[&[direction]], keymat.as_mut_bytes())?;
        }
        Ok(keymat)
    }

    /// What fits the tunnel, in bytes.
    ///
    /// # Errors
    /// If the suite has no keys.
    pub fn inner_mtu(&self) -> Result<u16> {
        let path = self.path();
        let inner_mtu = match self.protection {
            Protection::Plain => usize::from(LINK_MTU) - path.outer_overhead(),
            Protection::Esp { .. } | Protection::Zoned => {
                self.overhead()?.inner_mtu(PathMtu::new(&path, LINK_MTU).get(Instant::ZERO).into())
            }
        };
        Ok(u16::try_from(inner_mtu)?)
    }

    fn overhead(&self) -> Result<Overhead> {
        let path = self.path();
        Ok(match self.protection {
            Protection::Plain => bail!("nothing is added to plain packets"),
            Protection::Esp { suite, mode } => Overhead::of_key(&self.key(suite, true)?, mode, &path),
            Protection::Zoned => {
                Overhead::new(ZONES, None, Mode::Tunnel, &path).zoned(ZoneMap::default().zones())
            }
        })
    }

    /// Both halves of the SA.
    fn halves(&self) -> Result<(Inbound, Outbound)> {
        let (suite, mode) = match self.protection {
            Protection::Plain => bail!("plain packets have no SA"),
            Protection::Zoned => {
                let outbound = Outbound::new(&zoned(!self.first), &mut Seeded::new(0))?;
                return Ok((Inbound::new(&zoned(self.first))?, outbound));
            }
            Protection::Esp { suite, mode } => (suite, mode),
        };
        let params = |to_first: bool| {
            // The key is handed in beside them: cipher and keying material stand for nothing here.
            let mut params = SaParams::new(spi(to_first), Encr::Aes128Gcm16, None, Secret::default());
            params.mode = mode;
            params
        };
        let key = |to_first| self.key(suite, to_first);
        let outbound = Outbound::with_key(&params(!self.first), key(!self.first)?, &mut Seeded::new(0));
        Ok((Inbound::with_key(&params(self.first), key(self.first)?), outbound))
    }
}

/// A tunnel's end, ready to run.
#[derive(Debug)]
pub struct Forwarder {
    tun: Tun,
    out: Carriers,
    plane: Plane,
}

impl Forwarder {
    /// Opens device and socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Without privileges, without `/dev/net/tun`, or if the address cannot be bound.
    pub fn open(settings: &Settings) -> Result<Self> {
        let inner_mtu = settings.inner_mtu()?;
        let options =
            TunOptions { name: Some(settings.tun.clone()), mtu: inner_mtu, ..TunOptions::default() };
        let tun = Tun::open(&options)?;
        let mut out = Carriers::default();
        match settings.carrier {
            Carrier::RawEsp => out.raw.push(Raw::open(Carrier::RawEsp, settings.local.is_ipv4())?),
            carrier => out.udp.push(Udp::bind(settings.local, carrier)?),
        }
        let path = settings.path();
        let sad = match settings.protection {
            Protection::Plain if settings.carrier == Carrier::RawEsp => {
                bail!("protocol 50 carries ESP and nothing else");
            }
            Protection::Plain => None,
            Protection::Esp { mode, .. } => Some(sad(settings, mode, usize::from(inner_mtu))?),
            Protection::Zoned if settings.run.is_some() => bail!("zones have no keys that are a secret"),
            Protection::Zoned => Some(sad(settings, Mode::Tunnel, usize::from(inner_mtu))?),
        };
        let plane = Plane {
            sad,
            path,
            inner: settings.inner,
            confined: settings.run.is_some(),
            inner_mtu: usize::from(inner_mtu),
            lost: Lost::default(),
        };
        Ok(Self { tun, out, plane })
    }

    /// Forwards until the other end of `stop` is closed; returns what it could not forward.
    ///
    /// # Errors
    /// Those of the device and the socket.
    pub fn run(&mut self, stop: &impl AsFd) -> Result<Lost> {
        self.run_telling(stop, |_full| ())
    }

    /// The same; `told` is called when the socket is full, so that the tunnel waits, and when it no longer is.
    ///
    /// # Errors
    /// As [`Forwarder::run`].
    pub fn run_telling(&mut self, stop: &impl AsFd, mut told: impl FnMut(bool)) -> Result<Lost> {
        const TUN: u64 = 0;
        const SOCKET: u64 = 1;
        const STOP: u64 = 2;
        let poller = Poller::new()?;
        poller.add(&self.tun, TUN, Interest::READ)?;
        poller.add(socket(&self.out).context("no socket")?, SOCKET, Interest::READ)?;
        poller.add(stop, STOP, Interest::READ)?;
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        let (mut ready, mut blocked) = (Vec::new(), false);
        loop {
            poller.wait(&mut ready, None)?;
            for one in &ready {
                match one.token {
                    STOP => return Ok(self.plane.lost),
                    TUN => _ = tx.forward(&mut self.tun, &mut self.out, &mut self.plane, BUDGET)?,
                    _ => {
                        if one.closed {
                            while next_error(&self.out)?.is_some() {}
                        }
                        if one.writable {
                            tx.forward(&mut self.tun, &mut self.out, &mut self.plane, BUDGET)?;
                        }
                        match (&self.out.udp[..], &self.out.raw[..]) {
                            ([udp, ..], _) => _ = rx.receive(udp, &mut self.tun, &mut self.plane)?,
                            ([], [raw, ..]) => _ = rx.receive_raw(raw, &mut self.tun, &mut self.plane)?,
                            ([], []) => {}
                        }
                    }
                }
            }
            if tx.is_blocked() != blocked {
                blocked = !blocked;
                told(blocked);
                let (of_tun, of_socket) =
                    if blocked { (Interest::NONE, Interest::BOTH) } else { (Interest::READ, Interest::READ) };
                poller.modify(&self.tun, TUN, of_tun)?;
                poller.modify(socket(&self.out).context("no socket")?, SOCKET, of_socket)?;
            }
        }
    }
}

/// Packets that a forwarder could not forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Batches that could not be sent.
    pub unsent: u64,
    /// Datagrams that were not accepted.
    pub refused: u64,
    /// Packets that no plan fits: fragments in transport mode, and what is no IP packet.
    pub unplanned: u64,
}

/// What stands between device and socket.
#[derive(Debug)]
struct Plane {
    sad: Option<Sad>,
    path: Path,
    inner: (IpAddr, IpAddr),
    /// Whether strangers must be kept out.
    confined: bool,
    inner_mtu: usize,
    lost: Lost,
}

impl Plane {
    /// Whether a packet that nothing protects may enter: from the peer's inner address to ours.
    fn admits(&self, packet: &[u8]) -> bool {
        let (ours, theirs) = self.inner;
        !self.confined || flow(packet).is_some_and(|f| (f.src, f.dst) == (theirs, ours))
    }

    fn geometry(&mut self, packet: &mut SuperPacket<'_>) -> Option<Plan> {
        let len = packet.packet_len();
        let ecn = ecn::of_packet(packet.bytes()) as u8;
        let Some(sad) = &mut self.sad else {
            return Some(Plan::Seal(Geometry {
                route: 0,
                head: 0,
                strip: 0,
                max_inner: len,
                stride: len,
                packet_len: len,
                next_header: if packet.bytes().first()? >> 4 == 4 { IPV4_IN_IP } else { IPV6_IN_IP },
                ecn,
            }));
        };
        let flow = flow(packet.bytes())?;
        let id = sad.route(&flow)?;
        let tunnel = sad.get(id)?;
        let max_inner = self.inner_mtu;
        if !packet.fits(max_inner) {
            let mut answer = Vec::new();
            let mtu = pmtu::advertised(max_inner, flow.src).into();
            icmp::too_big(packet.bytes(), flow.dst, mtu, &mut answer);
            return Some(Plan::Answer(answer));
        }
        tcp::clamp_mss(packet.bytes_mut(), pmtu::mss_v4(max_inner), pmtu::mss_v6(max_inner));
        let stripped = tunnel.strip(packet.bytes_mut())?;
        let packet_len = len.min(max_inner);
        Some(Plan::Seal(Geometry {
            route: id.spi(),
            head: tunnel.outbound.head_len(),
            strip: stripped.len,
            max_inner,
            stride: tunnel.outbound.sealed_len(packet_len - stripped.len),
            packet_len,
            next_header: stripped.next_header,
            ecn,
        }))
    }
}

impl Sealer for Plane {
    fn plan(&mut self, packet: &mut SuperPacket<'_>) -> Plan {
        let plan = self.geometry(packet);
        self.lost.unplanned += u64::from(plan.is_none());
        plan.unwrap_or(Plan::Drop)
    }

    fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed> {
        let Some(sad) = &mut self.sad else {
            return Some(Sealed { len: sizes.iter().sum(), path: self.path });
        };
        let tunnel = sad.get_mut(ChildId::new(geometry.route))?;
        let len = tunnel.outbound.seal_batch(slots, geometry.stride, sizes, geometry.next_header).ok()?;
        Some(Sealed { len, path: tunnel.path })
    }

    fn unsent(&mut self, _: &Geometry, _: &Path, _: Sent) {
        self.lost.unsent += 1;
    }
}

impl Opener for Plane {
    type Train = ();

    fn open(&mut self, from: &Received, (): &mut (), datagram: &mut [u8]) -> Verdict {
        if self.confined && from.path.remote.ip() != self.path.remote.ip() {
            self.lost.refused += 1;
            return Verdict::Done;
        }
        if self.sad.is_none() && !self.admits(datagram) {
            self.lost.refused += 1;
            return Verdict::Done;
        }
        let Some(sad) = &mut self.sad else { return Verdict::Deliver(0..datagram.len()) };
        let Ok(accepted) = sad.open(datagram) else {
            self.lost.refused += 1;
            return Verdict::Done;
        };
        let (inner, next_header) = (accepted.opened.inner, accepted.opened.next_header);
        let (Some(tunnel), Some(carried)) = (sad.get_mut(accepted.id), datagram.get_mut(inner.clone()))
        else {
            return Verdict::Done;
        };
        let outer = Outer {
            source: from.path.remote.ip(),
            destination: from.path.local.ip(),
            ecn: Ecn::from_traffic_class(from.ecn),
        };
        let Ok(rebuilt) = tunnel.rebuild(next_header, accepted.flow, carried, outer) else {
            self.lost.refused += 1;
            return Verdict::Done;
        };
        match rebuilt.header {
            None => Verdict::Deliver(inner),
            Some(header) => {
                let (header, len) = header.into_parts();
                Verdict::DeliverBehind(header, len, inner.start + rebuilt.skip..inner.end)
            }
        }
    }
}

fn sad(settings: &Settings, mode: Mode, inner_mtu: usize) -> Result<Sad> {
    let path = settings.path();
    let any = || vec![TsRange::any_v4(), TsRange::any_v6()];
    let host = |address: IpAddr| vec![TsRange::addresses(address, address)];
    let selectors = match (settings.run.is_some(), mode) {
        (false, Mode::Tunnel) => Selectors::new(any(), any()),
        // Without its header, a packet can only have the inner addresses.
        _ => Selectors::new(host(settings.inner.0), host(settings.inner.1)),
    };
    let (inbound, mut outbound) = settings.halves()?;
    outbound.set_inner_mtu(inner_mtu);
    let owner = Owner::Ike(SaId::new(0));
    let halves = (inbound, outbound);
    let tunnel = Tunnel::of_halves(owner, halves, selectors, settings.overhead()?, path, LINK_MTU);
    let (mut sad, id) = (Sad::new(), tunnel.id());
    sad.insert(tunnel)?;
    sad.activate(id);
    Ok(sad)
}

/// The one socket there is.
fn socket(out: &Carriers) -> Option<BorrowedFd<'_>> {
    out.udp.first().map(AsFd::as_fd).or_else(|| out.raw.first().map(AsFd::as_fd))
}

fn next_error(out: &Carriers) -> io::Result<Option<PathError>> {
    match (&out.udp[..], &out.raw[..]) {
        ([udp, ..], _) => udp.next_error(),
        ([], [raw, ..]) => raw.next_error(),
        ([], []) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(confined: bool) -> Plane {
        let address = |last: u8| SocketAddr::from(([192, 0, 2, last], 4_500));
        let path = Path { local: address(1), remote: address(2), carrier: Carrier::NatT };
        let inner = ([198, 18, 88, 1].into(), [198, 18, 88, 2].into());
        Plane { sad: None, path, inner, confined, inner_mtu: 1_400, lost: Lost::default() }
    }

    /// An IPv4 header of UDP with ports.
    fn packet(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(from.iter().chain(&to));
        packet.extend([0, 9, 0, 9, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn where_strangers_are_near_nothing_enters_but_what_the_peer_sends_to_us() {
        let (peer, us, elsewhere) = ([198, 18, 88, 2], [198, 18, 88, 1], [10, 0, 0, 1]);
        let mut plane = plane(true);
        let mut enters = |remote: [u8; 4], packet: &mut [u8]| {
            let path = Path { remote: SocketAddr::from((remote, 4_500)), ..plane.path };
            plane.open(&Received { path, ecn: 0 }, &mut (), packet) != Verdict::Done
        };
        assert!(enters([192, 0, 2, 2], &mut packet(peer, us)));
        assert!(!enters([192, 0, 2, 3], &mut packet(peer, us)), "another machine");
        assert!(!enters([192, 0, 2, 2], &mut packet(peer, elsewhere)), "to somewhere else");
        assert!(!enters([192, 0, 2, 2], &mut packet(elsewhere, us)), "from somewhere else");
        assert!(!enters([192, 0, 2, 2], &mut [0x45, 0]), "no packet");
        assert_eq!(plane.lost.refused, 4);
    }

    #[test]
    fn only_both_ends_of_a_run_have_its_keys() {
        let end = |first: bool, run: Option<[u8; 32]>| Settings {
            tun: "t".into(),
            protection: Protection::Plain,
            carrier: Carrier::NatT,
            local: ([192, 0, 2, 1], 4_500).into(),
            remote: ([192, 0, 2, 2], 4_500).into(),
            inner: ([198, 18, 88, 1].into(), [198, 18, 88, 2].into()),
            first,
            run: run.map(Secret::from),
        };
        let suite: Suite = "aes256-sha512".parse().unwrap();
        let keys =
            |first, run| [true, false].map(|to_first| end(first, run).keymat(suite, to_first).unwrap());
        let ours = keys(true, Some([7; 32]));
        assert_eq!(ours, keys(false, Some([7; 32])));
        assert_ne!(ours[0], ours[1], "each direction has its own");
        for others in [keys(true, Some([8; 32])), keys(true, None)] {
            assert!(others.iter().all(|other| !ours.contains(other)));
        }
    }
}
