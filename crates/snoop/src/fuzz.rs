//! Bodies of the fuzz targets.

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_crypto::{Encr, Prf, PrfKey, Secret};
use dormouse_esp::{IPV4_IN_IP, Outbound, SaParams, ZoneParams};
use dormouse_keying::{HeaderGrant, HeaderOrder, HeaderSa, Nodes, ZoneMap};
use dormouse_sansio::{Instant, Seeded};
use dormouse_wire::ip::{Ipv4, Ipv4Header, protocol, udp};

use crate::Verdict;
use crate::arq::{self, Report};
use crate::tcp::{Agent, Limits, Stats};

/// Packets of both directions and the time between them: in each record a byte that says what follows, one of time, one of length, and
/// so many bytes of a packet. What is sent must be what came, and what is held must stay within the bounds.
///
/// # Panics
/// If one of these is not so.
pub fn tcp(data: &[u8]) -> Stats {
    let limits = Limits { flows: 3, packets: 4, bytes: 400, ..Limits::default() };
    drive(data, Agent::new(limits), limits, |packet, _| packet.to_vec())
}

/// The same records, each sealed in zones by the end that sends it, at an agent that has the keys of the first zones.
///
/// # Panics
/// As [`tcp`].
pub fn zones(data: &[u8]) -> Stats {
    let limits = Limits { flows: 3, packets: 4, bytes: 800, ..Limits::default() };
    let (mut agent, encr) = (Agent::new(limits), Encr::Aes128Gcm16);
    let map = ZoneMap::default();
    let sa = |spi| {
        let zones = ZoneParams { map: map.clone(), further: vec![(encr, Secret::from([2; 20]))] };
        SaParams { zones: Some(zones), ..SaParams::new(spi, encr, None, Secret::from([1; 20])) }
    };
    let header = |spi| HeaderSa { spi, keymat: Secret::from([1; 20]), reached: 0.into() };
    let (to_device, from_device) = (header(1_000), header(1_001));
    let grant = HeaderGrant { map: map.clone(), encr, esn: true, to_device, from_device, nodes: Nodes::ALL };
    assert_eq!(agent.reader().zones().apply(&HeaderOrder::Grant(Box::new(grant))), Ok(()));
    let [down, up] = [1_000, 1_001].map(|spi| Outbound::new(&sa(spi), &mut Seeded::new(0)));
    let (Ok(mut down), Ok(mut up)) = (down, up) else { return Stats::default() };
    drive(data, agent, limits, |packet, to_device| {
        sealed(if to_device { &mut down } else { &mut up }, packet, to_device)
    })
}

/// An outer packet with this one inside.
fn sealed(out: &mut Outbound, packet: &[u8], to_device: bool) -> Vec<u8> {
    let (fixed, device) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (src, dst) = if to_device { (fixed, device) } else { (device, fixed) };
    let len = out.sealed_len(packet.len());
    let mut outer = Vec::new();
    let header = Ipv4Header::new(src, dst, protocol::ESP).to_bytes(len);
    outer.extend(header.unwrap_or_default());
    outer.resize(outer.len() + out.head_len(), 0);
    outer.extend_from_slice(packet);
    outer.resize(Ipv4::MIN_HEADER + len, 0);
    let done = outer.get_mut(Ipv4::MIN_HEADER..).map(|slot| out.seal(slot, packet.len(), IPV4_IN_IP));
    assert_eq!(done, Some(Ok(len)));
    outer
}

fn drive(
    data: &[u8],
    mut agent: Agent,
    limits: Limits,
    mut carried: impl FnMut(&[u8], bool) -> Vec<u8>,
) -> Stats {
    let (mut now, mut rest) = (Instant::ZERO, data);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    while let [what, time, len, tail @ ..] = rest {
        let (packet, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        now += Duration::from_millis(u64::from(*time).pow(2));
        match what % 4 {
            0 | 1 => {
                let packet = carried(packet, true);
                agent.to_device(now, &packet);
                seen.push(packet);
            }
            2 => {
                let verdict = agent.from_device(now, &carried(packet, false));
                assert!(
                    verdict == Verdict::Forward || !seen.is_empty(),
                    "nothing was sent that could be repeated"
                );
            }
            _ => agent.handle_timeout(now),
        }
        let mut out = Vec::new();
        while what & 4 == 0 && agent.poll_transmit(now, &mut out) {
            assert!(seen.iter().any(|packet| packet.starts_with(&out)), "made up: {out:02x?}");
            out.clear();
        }
        let (flows, packets, bytes) = agent.held();
        assert!(flows <= limits.flows && packets <= limits.flows * limits.packets && bytes <= limits.bytes);
        assert!(agent.poll_timeout().is_none_or(|at| flows > 0 && at.at <= now + limits.garbage));
    }
    *agent.stats()
}

/// Both ends of an ESP repair: packets by SPI and number at either, reports of any content that are sealed as the device's, and time. In each
/// record a byte that says what follows, one of time, an SPI, a number, and a bitmap byte.
///
/// # Panics
/// If a packet is changed, made up, or held beyond the bounds.
pub fn arq(data: &[u8]) -> arq::Stats {
    let limits = arq::Limits { sas: 2, packets: 6, bytes: 300, ..arq::Limits::default() };
    let key = Secret::from([1_u8; 32]);
    let ends: [SocketAddr; 2] = [([10, 0, 0, 2], arq::PORT).into(), ([10, 0, 0, 1], arq::PORT).into()];
    let (mut router, mut device) = arq::pair(&key, limits, ends[0], ends[1]);
    let seal = PrfKey::new(Prf::HmacSha256, key.as_bytes());
    let (mut now, mut number) = (Instant::ZERO, 1 << 32);
    for record in data.chunks_exact(5) {
        let &[what, time, spi, sequence, bits] = record else { break };
        now += Duration::from_millis(u64::from(time));
        // Numbers around where they wrap.
        let sequence = u32::from(sequence).wrapping_sub(100);
        let packet = numbered(spi % 4, sequence);
        match what % 4 {
            0 => router.to_device(now, &packet),
            1 => device.arrive(now, packet),
            2 => {
                let bitmap = vec![bits; usize::from(bits % 40)];
                number += u64::from(bits % 3);
                let report = Report { spi: (spi % 4).into(), number, next: sequence, bitmap }.seal(&seal);
                let mut packet = Vec::new();
                if udp::build(ends[0], ends[1], &report, &mut packet).is_ok() {
                    router.from_device(now, &packet);
                }
            }
            _ => {
                router.handle_timeout(now);
                device.handle_timeout(now);
            }
        }
        let mut out = Vec::new();
        while router.poll_transmit(now, &mut out) {
            whole(&std::mem::take(&mut out));
        }
        while let Some(packet) = device.poll_deliver() {
            whole(&packet);
        }
        while device.poll_report(now, &mut out) {
            assert_eq!(router.clone().from_device(now, &std::mem::take(&mut out)), Verdict::Suppress);
        }
        let (sas, packets, bytes) = router.held();
        assert!(sas <= 2 && packets <= 2 * limits.packets && bytes <= 2 * limits.bytes);
        let (sas, packets, bytes) = device.held();
        assert!(sas <= 2 && packets <= 2 * (limits.packets + 1) && bytes <= 2 * limits.bytes);
    }
    *router.stats()
}

/// An ESP packet in UDP whose content follows from its number.
fn numbered(spi: u8, sequence: u32) -> Vec<u8> {
    let payload = [u32::from(spi).to_be_bytes(), sequence.to_be_bytes(), sequence.to_le_bytes()].concat();
    let mut out = Vec::new();
    let built = udp::build(([10, 0, 0, 9], 4_500).into(), ([10, 0, 0, 2], 4_500).into(), &payload, &mut out);
    assert!(built.is_ok());
    out
}

fn whole(packet: &[u8]) {
    let spi = packet.get(31).copied().unwrap_or_default();
    let sequence = packet.get(32..).and_then(|b| b.first_chunk()).map(|b| u32::from_be_bytes(*b));
    assert_eq!(
        sequence.map(|sequence| numbered(spi, sequence)).as_deref(),
        Some(packet),
        "changed or made up"
    );
}
