//! Processor time of one packet: sealed and opened, whole and in zones; its first zone opened at a router; and what SNOOP's agent does with it. Owns the
//! packets, which are made off the clock; every figure is of packets that went the way that they should.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dormouse_crypto::{Encr, PacketKey, Secret};
use dormouse_esp::{HeaderZones, IPV4_IN_IP, Inbound, Look, Outbound, SaParams, ZoneParams};
use dormouse_keying::{HeaderGrant, HeaderOrder, HeaderSa, Nodes, ZoneMap};
use dormouse_sansio::{Instant, Seeded};
use dormouse_snoop::Verdict;
use dormouse_snoop::tcp::Agent;
use dormouse_wire::ip::tcp::{ACK, Segment};
use dormouse_wire::ip::{Ipv4Header, protocol};
use serde::{Deserialize, Serialize};

use crate::bench::rate;
use crate::campaign::cpu;
use crate::results::Figures;

/// Bytes of an inner packet.
const BYTES: usize = 1_400;
/// Of them, IPv4 and TCP without options: the first zone, and the paper's.
const HEADERS: usize = 40;
/// Bytes that ESP authenticates beside a packet: SPI and sequence number; in zones also the number of the zone, how many there are, the lengths
/// of packet and zones, and behind the first zone what a router may not change of it (docs/wire/mml-ipsec.md).
const AAD: usize = 12;
const AAD_FIRST: usize = 22;
const AAD_SECOND: usize = 62;
/// Bytes that ESP adds to its plaintext.
const TRAILER: usize = 2;
/// How long a cipher or an end is measured.
const TIME: Duration = Duration::from_millis(20);
/// Packets that are sealed ahead to be opened.
const AHEAD: usize = 64;
/// The radio of the paper, in bits in a second.
const RADIO: f64 = 2e6;
/// SPIs: of what the device receives, and of what it sends.
const SPIS: [u32; 2] = [0x1000, 0x1001];
/// Packets on their way at once, and groups of them in a stream. In every fourth group the radio loses one.
const WINDOW: usize = 16;
const GROUPS: usize = 64;
const LOSES: usize = 4;
const LOST: usize = 5;
/// From the router to the device and back.
const ROUND_TRIP: Duration = Duration::from_millis(12);

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// At the sender.
    Seal,
    /// At the receiver.
    Open,
    /// At a router, which opens the first zone.
    Look,
    /// At a router with SNOOP.
    Snoop,
}

impl Step {
    /// Each with what it is measured on: in zones, or not.
    pub(super) const ALL: [(Self, bool); 7] = [
        (Self::Seal, false),
        (Self::Seal, true),
        (Self::Open, false),
        (Self::Open, true),
        (Self::Look, true),
        (Self::Snoop, false),
        (Self::Snoop, true),
    ];

    pub(super) const fn words(self, zoned: bool) -> &'static str {
        match (self, zoned) {
            (Self::Seal, false) => "sealing, whole",
            (Self::Seal, true) => "sealing, in two zones",
            (Self::Open, false) => "opening, whole",
            (Self::Open, true) => "opening, in two zones",
            (Self::Look, _) => "a router opens the first zone",
            (Self::Snoop, false) => "SNOOP, TCP in clear",
            (Self::Snoop, true) => "SNOOP, TCP in zones",
        }
    }
}

/// Nanoseconds of a packet.
///
/// # Errors
/// If a packet does not open, or the agent does not repeat what is lost.
pub(super) fn measure(step: Step, zoned: bool, seed: u64) -> Result<Figures> {
    let rest = BYTES - HEADERS + TRAILER;
    let pieces = match zoned {
        true => vec![(HEADERS, AAD_FIRST), (rest, AAD_SECOND)],
        false => vec![(BYTES + TRAILER, AAD)],
    };
    let (packet, pieces) = match step {
        Step::Seal => (seal(zoned)?, pieces),
        Step::Open => (open(zoned)?, pieces),
        Step::Look => (look()?, vec![(HEADERS, AAD_FIRST)]),
        Step::Snoop => return snoop(zoned, seed),
    };
    Ok(Figures::default().with("packet", packet).with("bare", bare(&pieces)?))
}

/// An SA of AES-128-GCM, in two zones or whole.
fn sa(spi: u32, zoned: bool) -> SaParams {
    let encr = Encr::Aes128Gcm16;
    let further = vec![(encr, Secret::from([2; 20]))];
    let zones = zoned.then(|| ZoneParams { map: ZoneMap::default(), further });
    SaParams { zones, ..SaParams::new(spi, encr, None, Secret::from([1; 20])) }
}

fn ends() -> [SocketAddr; 2] {
    [[10, 99, 0, 2], [10, 55, 0, 2]].map(|host| SocketAddr::new(IpAddr::from(host), 8_080))
}

/// A TCP packet of so many bytes of data.
pub(super) fn packet(to_device: bool, sequence: u32, acknowledgement: u32, data: usize) -> Result<Vec<u8>> {
    let [fixed, device] = ends();
    let (src, dst) = if to_device { (fixed, device) } else { (device, fixed) };
    let segment = Segment { src, dst, sequence, acknowledgement, flags: ACK, window: 0x8000, options: &[] };
    let mut packet = Vec::new();
    segment.build(&vec![0x5a; data], &mut packet)?;
    Ok(packet)
}

/// Nanoseconds of a call that is one packet.
fn per_packet(once: impl FnMut() -> Result<()>) -> Result<f64> {
    Ok(1e9 / rate(1, TIME, once)?)
}

/// The cipher alone, on these pieces, each with so many bytes that are authenticated besides.
fn bare(pieces: &[(usize, usize)]) -> Result<f64> {
    let key = PacketKey::new(Encr::Aes128Gcm16, None, &[1; 20])?;
    let (mut data, mut icv, mut counter) = (vec![0x5a; BYTES + TRAILER], [0; 16], 0u64);
    per_packet(|| {
        for (piece, besides) in pieces {
            counter += 1;
            let data = data.get_mut(..*piece).context("a piece of the packet")?;
            let besides = [0; AAD_SECOND].get(..*besides).context("what is authenticated besides")?;
            key.seal(besides, &counter.to_be_bytes(), black_box(data), &[], &mut icv)?;
        }
        Ok(())
    })
}

fn seal(zoned: bool) -> Result<f64> {
    let mut out = Outbound::new(&sa(SPIS[0], zoned), &mut Seeded::new(1))?;
    let inner = packet(true, 1, 1, BYTES - HEADERS)?;
    let (mut slot, head) = (vec![0; out.sealed_len(BYTES)], out.head_len());
    per_packet(|| {
        slot[head..head + BYTES].copy_from_slice(&inner);
        out.seal(black_box(&mut slot), BYTES, IPV4_IN_IP)?;
        Ok(())
    })
}

fn open(zoned: bool) -> Result<f64> {
    let params = sa(SPIS[0], zoned);
    let (mut out, mut inbound) = (Outbound::new(&params, &mut Seeded::new(1))?, Inbound::new(&params)?);
    let inner = packet(true, 1, 1, BYTES - HEADERS)?;
    let (mut spent, mut opened) = (Duration::ZERO, 0u32);
    while spent < TIME {
        // Sealed off the clock: each must be fresh to the replay window.
        let mut ahead = (0..AHEAD).map(|_| sealed(&mut out, &inner)).collect::<Result<Vec<_>>>()?;
        let before = cpu::thread();
        for packet in &mut ahead {
            let opened = inbound.open(black_box(packet))?;
            ensure!(opened.inner.len() == BYTES, "{opened:?}");
        }
        spent += cpu::thread() - before;
        opened += AHEAD as u32;
    }
    Ok(spent.as_nanos() as f64 / f64::from(opened))
}

pub(super) fn sealed(out: &mut Outbound, inner: &[u8]) -> Result<Vec<u8>> {
    let (mut slot, head) = (vec![0; out.sealed_len(inner.len())], out.head_len());
    slot[head..head + inner.len()].copy_from_slice(inner);
    let len = out.seal(&mut slot, inner.len(), IPV4_IN_IP)?;
    slot.truncate(len);
    Ok(slot)
}

fn grant() -> HeaderOrder {
    let params = sa(SPIS[0], true);
    let [to_device, from_device] =
        SPIS.map(|spi| HeaderSa { spi, keymat: params.keymat.clone(), reached: 0.into() });
    let (map, nodes) = (ZoneMap::default(), Nodes::ALL);
    let grant = HeaderGrant { map, encr: params.encr, esn: true, to_device, from_device, nodes };
    HeaderOrder::Grant(Box::new(grant))
}

fn look() -> Result<f64> {
    let mut zones = HeaderZones::new();
    zones.apply(&grant())?;
    let mut out = Outbound::new(&sa(SPIS[0], true), &mut Seeded::new(1))?;
    let packet = sealed(&mut out, &packet(true, 1, 1, BYTES - HEADERS)?)?;
    per_packet(|| {
        let looked = zones.look(black_box(&packet));
        ensure!(matches!(looked, Look::Header(_)), "the first zone does not open");
        Ok(())
    })
}

/// Packets of a stream as they come by a router.
struct Stream {
    zoned: bool,
    /// To the device, and from it.
    sas: [Outbound; 2],
}

impl Stream {
    fn new(zoned: bool, seed: u64) -> Result<Self> {
        let [to, from] = SPIS.map(|spi| Outbound::new(&sa(spi, true), &mut Seeded::new(seed)));
        Ok(Self { zoned, sas: [to?, from?] })
    }

    /// As it is in clear, or sealed, behind the header of a tunnel.
    fn carried(&mut self, inner: Vec<u8>, to_device: bool) -> Result<Vec<u8>> {
        if !self.zoned {
            return Ok(inner);
        }
        let [to, from] = &mut self.sas;
        let esp = sealed(if to_device { to } else { from }, &inner)?;
        let [gateway, device] = [[203, 0, 113, 1], [192, 0, 2, 10]].map(Ipv4Addr::from);
        let (src, dst) = if to_device { (gateway, device) } else { (device, gateway) };
        let header = Ipv4Header::new(src, dst, protocol::ESP).to_bytes(esp.len())?;
        Ok([&header[..], &esp].concat())
    }
}

/// Time and calls.
#[derive(Clone, Copy, Default)]
struct Spent(Duration, u32);

impl Spent {
    fn per_call(self) -> f64 {
        self.0.as_nanos() as f64 / f64::from(self.1)
    }

    /// Of so many calls, timed together: the clock itself takes as long as one of them.
    fn time<T>(&mut self, calls: usize, act: impl FnOnce() -> T) -> T {
        let before = cpu::thread();
        let done = act();
        *self = Self(self.0 + (cpu::thread() - before), self.1 + calls as u32);
        done
    }
}

/// A stream in which the radio loses packets, at the agent.
fn snoop(zoned: bool, seed: u64) -> Result<Figures> {
    let mut stream = Stream::new(zoned, seed)?;
    let mut agent = Agent::default();
    agent.reader().zones().apply(&grant())?;
    let data = BYTES - HEADERS;
    let [mut to_device, mut from_device, mut repeat] = [Spent::default(); 3];
    let (mut now, mut lost) = (Instant::ZERO, 0u64);
    for group in 0..GROUPS {
        let at = |n: usize| u32::try_from((group * WINDOW + n) * data).context("a short stream");
        let loses = group % LOSES == LOSES - 1;
        let mut packets = Vec::new();
        let mut answers = Vec::new();
        for n in 0..WINDOW {
            packets.push(stream.carried(packet(true, at(n)?, 1, data)?, true)?);
            if !(loses && n == LOST) {
                let come = if loses && n > LOST { LOST } else { n + 1 };
                answers.push(stream.carried(packet(false, 1, at(come)?, 0)?, false)?);
            }
        }
        to_device.time(WINDOW, || packets.iter().for_each(|packet| agent.to_device(now, black_box(packet))));
        now += ROUND_TRIP;
        let hidden = from_device.time(answers.len(), || {
            let verdicts = answers.iter().map(|packet| agent.from_device(now, black_box(packet)));
            verdicts.filter(|verdict| *verdict == Verdict::Suppress).count()
        });
        ensure!((hidden > 0) == loses, "{hidden} acknowledgements were hidden in group {group}");
        if loses {
            lost += 1;
            let mut out = Vec::new();
            let repeated = repeat.time(1, || agent.poll_transmit(now, black_box(&mut out)));
            ensure!(repeated && packets.get(LOST) == Some(&out), "another packet was repeated");
            now += ROUND_TRIP;
            let last = stream.carried(packet(false, 1, at(WINDOW)?, 0)?, false)?;
            ensure!(agent.from_device(now, &last) == Verdict::Forward, "the last acknowledgement was hidden");
        }
    }
    ensure!(agent.stats().repeated == lost, "{} repetitions of {lost}", agent.stats().repeated);
    Ok(Figures::default()
        .with("to_device", to_device.per_call())
        .with("from_device", from_device.per_call())
        .with("repeat", repeat.per_call())
        .with("air", BYTES as f64 * 8e9 / RADIO))
}
