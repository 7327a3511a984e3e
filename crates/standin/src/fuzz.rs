//! The body of the fuzz target, as a plain function: `fuzz/` drives it with libFuzzer, and a test replays the committed corpus
//! through the same code. Not for use in a program.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::Instant;
use dormouse_wire::fuzz::with_checksums;
use dormouse_wire::ip::tcp::{ACK, FIN, RST, SYN, Tcp};
use dormouse_wire::ip::{Flow, Packet, flow};
use ipnet::IpNet;

use crate::{Counters, DeviceId, Limits, Service, StandIn, Verdict};

const DEVICE: DeviceId = DeviceId(1);
/// Addresses of the device in every run.
pub const V4: Ipv4Addr = Ipv4Addr::new(10, 55, 0, 7);
/// See [`V4`].
pub const V6: Ipv6Addr = Ipv6Addr::new(0xfd55, 0, 0, 0, 0, 0, 0, 7);

/// What a run has been seen to do, apart from the stand-in's own books.
#[derive(Default)]
struct Witness {
    /// The highest acknowledgement of the device itself, by flow from it.
    acknowledged: BTreeMap<Flow, u32>,
    kept: Vec<Vec<u8>>,
}

/// Any bytes as a life: each step is a kind, two bytes of length, and a packet. The packets come from the device, go to it awake,
/// or come for it asleep; it sleeps and wakes in between. Returns the books.
///
/// # Panics
/// If an answer acknowledges what the device did not, if a bound is exceeded, if what waits is not delivered in order, or if a
/// packet is not accounted for.
pub fn life(data: &[u8]) -> Counters {
    let limits =
        Limits { device_packets: 12, device_bytes: 12 * 1024, total_bytes: 16 * 1024, ..Limits::default() };
    let mut standin = StandIn::new(limits);
    let mut now = Instant::ZERO;
    let everywhere = [Ipv4Addr::UNSPECIFIED.into(), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    standin.set_links(everywhere.into_iter().filter_map(|any| IpNet::new(any, 0).ok()).collect());
    assert!(standin.enrol(now, DEVICE, &[V4.into(), V6.into()]));
    let mut witness = Witness::default();
    let mut rest = data;
    while let Some((&[kind, l0, l1], tail)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([l0, l1])).min(tail.len());
        let (packet, tail) = tail.split_at(len);
        rest = tail;
        now += Duration::from_millis(u64::from(kind >> 3) * 40);
        // Chance does not find checksums: some kinds come with them.
        let mended = matches!(kind & 7, 1 | 6 | 7).then(|| with_checksums(packet));
        let packet = mended.as_deref().unwrap_or(packet);
        match kind & 7 {
            0 | 1 => {
                witness.observe_inbound(packet);
                standin.observe_inbound(now, DEVICE, packet);
            }
            2 => standin.observe_outbound(now, DEVICE, packet),
            3 => {
                standin.sleeps(now, DEVICE, Service::FULL, now + Duration::from_secs(3600));
            }
            4 => wake(&mut standin, now, &mut witness),
            _ => towards(&mut standin, now, packet, &mut witness),
        }
        standin.handle_timeout(now);
        let mut own = Vec::new();
        while standin.poll_transmit(&mut own) {
            witness.check(&own);
            own.clear();
        }
    }
    wake(&mut standin, now, &mut witness);
    assert_eq!(standin.waiting(), (0, 0));
    standin.totals().clone()
}

fn towards(standin: &mut StandIn, now: Instant, packet: &[u8], witness: &mut Witness) {
    let mut out = Vec::new();
    let verdict = standin.handle(now, DEVICE, packet, &mut out);
    assert_eq!(verdict.is_some(), standin.asleep(DEVICE).is_some());
    if !out.is_empty() {
        witness.check(&out);
    }
    if let Some(Verdict::Buffered(_)) = verdict {
        let whole = Packet::parse(packet).map(|p| p.as_bytes().to_vec()).unwrap_or_default();
        witness.kept.push(whole);
    }
    let limits = *standin.limits();
    let (packets, bytes) = standin.waiting();
    assert!(
        packets <= limits.device_packets && bytes <= limits.device_bytes,
        "{packets} packets, {bytes} bytes"
    );
    let counters = standin.counters(DEVICE).cloned().unwrap_or_default();
    let gone = counters.buffered - counters.delivered - packets as u64;
    let at_once = counters.handled - counters.buffered;
    assert!(counters.drops() + counters.answers() >= gone + at_once, "unaccounted: {counters:?}");
}

fn wake(standin: &mut StandIn, now: Instant, witness: &mut Witness) {
    let mut kept = core::mem::take(&mut witness.kept).into_iter();
    for packet in standin.wakes(now, DEVICE) {
        assert!(kept.any(|k| k == *packet), "out of order, or never kept");
    }
}

impl Witness {
    fn observe_inbound(&mut self, packet: &[u8]) {
        let (Ok(view), Some(flow)) = (Packet::parse(packet), flow(packet)) else { return };
        let Ok(tcp) = Tcp::parse(&view) else { return };
        if view.fragment().is_some() {
            return;
        }
        if tcp.flags & (SYN | RST) != 0 {
            self.acknowledged.remove(&flow);
        }
        if tcp.flags & (ACK | SYN | RST) == ACK {
            let highest = self.acknowledged.entry(flow).or_insert(tcp.acknowledgement);
            if tcp.acknowledgement.wrapping_sub(*highest) as i32 > 0 {
                *highest = tcp.acknowledgement;
            }
        }
    }

    /// An answer is a well-formed packet of the device's addresses, and TCP acknowledges what the device did, and nothing else.
    fn check(&self, answer: &[u8]) {
        let view = Packet::parse(answer).unwrap_or_else(|e| panic!("a malformed answer: {e}"));
        assert_eq!(view.total_len(), answer.len(), "one answer");
        assert!(
            [IpAddr::V4(V4), IpAddr::V6(V6)].contains(&view.src()),
            "not from the device: {}",
            view.src()
        );
        let Ok(tcp) = Tcp::parse(&view) else { return };
        assert_eq!(tcp.flags & (SYN | FIN | RST | ACK), ACK);
        assert!(tcp.payload.is_empty(), "data that the device never sent");
        let own = flow(answer).and_then(|f| self.acknowledged.get(&f));
        // Not more than the device acknowledged, at any time.
        let own = own.unwrap_or_else(|| panic!("an acknowledgement that the device never gave"));
        let beyond = tcp.acknowledgement.wrapping_sub(*own) as i32;
        assert!(beyond <= 0, "{beyond} bytes acknowledged that the device did not acknowledge");
        let sum = view.pseudo_header(view.payload().len()).add_bytes(view.payload()).finish();
        assert_eq!(sum, 0, "checksum");
    }
}
