//! What zones promise, for any map, any ciphers and any packet: who holds the key of a zone rejects every packet of which a byte of that zone was
//! changed, moved or taken from another packet. The receiver holds all keys, a router that of the first zone.

use crate::common::{ipv4, ipv6, pair, seal};
use crate::zones_spec::{ENDS, IV, grant, sa, segment};
use ZoneEnd::{At, IpHeader, TransportHeader};
use core::ops::Range;
use dormouse_crypto::{Encr, PacketKey};
use dormouse_esp::{HeaderZones, IPV4_IN_IP, IPV6_IN_IP, Look, Outbound, SaParams};
use dormouse_keying::{HeaderOrder, Nodes, ZoneEnd, ZoneMap};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const SPI: u32 = 1_001;

/// Maps of two to eight zones, of all kinds of ends, with and without a first zone of no bytes; half of those in bytes have zones of one size.
fn maps() -> impl Strategy<Value = ZoneMap> {
    let headers = prop::sample::subsequence(vec![IpHeader, TransportHeader], 0..=2);
    let bytes = |most| btree_set(1_u16..200, 0..=most);
    let mixed = (headers, bytes(5)).prop_map(|(mut ends, at)| {
        ends.extend(at.into_iter().map(At));
        ends
    });
    let nothing = bytes(6).prop_map(|at| [0].into_iter().chain(at).map(At).collect());
    let equal = (1_u16..40, 1_u16..8).prop_map(|(size, ends)| (1..=ends).map(|n| At(n * size)).collect());
    prop_oneof![mixed, nothing, equal].prop_filter_map("a map has an end", ZoneMap::new)
}

/// SAs with such a map; each zone has a cipher of its own, of all that zones may have.
fn sas() -> impl Strategy<Value = SaParams> {
    let fit: Vec<Encr> = Encr::ALL.into_iter().filter(|encr| encr.suits_zones()).collect();
    (maps(), vec(prop::sample::select(fit), ZoneMap::MOST), any::<bool>()).prop_map(|(map, ciphers, esn)| {
        let zones = map.zones();
        SaParams { esn, ..sa(SPI, &map, &ciphers[..zones]) }
    })
}

/// Packets of TCP with timestamps, of UDP in either family, and such as are too short for one.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0_usize..300).prop_map(|len| segment(len, |_| {})),
        (20_usize..200).prop_map(ipv4),
        (40_usize..200).prop_map(ipv6),
    ]
}

fn sealed(out: &mut Outbound, inner: &[u8]) -> Vec<u8> {
    seal(out, inner, if inner[0] >> 4 == 6 { IPV6_IN_IP } else { IPV4_IN_IP })
}

/// A router with the key of the first zone.
fn router(sa: &SaParams) -> HeaderZones {
    let mut router = HeaderZones::new();
    let from = SaParams { spi: SPI + 1, ..sa.clone() };
    router.apply(&HeaderOrder::Grant(Box::new(grant(sa, &from, Nodes::ALL)))).unwrap();
    router
}

fn reads(sa: &SaParams, packet: &[u8]) -> bool {
    matches!(router(sa).look(packet), Look::Header(_))
}

/// A packet in its parts, as `docs/wire/mml-ipsec.md` has them.
#[derive(Clone, PartialEq, Debug)]
struct Parts {
    spi: [u8; 4],
    low: [u8; 4],
    iv: [u8; 8],
    zones: Vec<Vec<u8>>,
    icvs: Vec<[u8; 16]>,
}

impl Parts {
    fn of(packet: &[u8], zones: usize) -> Self {
        let ranges = ranges(packet, zones);
        let (icvs, _) = packet[packet.len() - 16 * zones..].as_chunks::<16>();
        Self {
            spi: packet[..4].try_into().unwrap(),
            low: packet[4..IV].try_into().unwrap(),
            iv: packet[IV..ENDS].try_into().unwrap(),
            zones: ranges.into_iter().map(|zone| packet[zone].to_vec()).collect(),
            icvs: icvs.to_vec(),
        }
    }

    /// The ends of all zones but the last, and the zeros behind them.
    fn ends(&self) -> Vec<u8> {
        let (mut end, mut field) = (0, Vec::new());
        for zone in &self.zones[..self.zones.len() - 1] {
            end += zone.len();
            field.extend(u16::try_from(end).unwrap().to_be_bytes());
        }
        field.resize(field.len().next_multiple_of(4), 0);
        field
    }

    fn packet(&self) -> Vec<u8> {
        let head = [&self.spi[..], &self.low, &self.iv, &self.ends()].concat();
        [head, self.zones.concat(), self.icvs.concat()].concat()
    }

    /// All that the key of the first zone covers.
    fn first(&self) -> (Self, usize) {
        let mut first = self.clone();
        let ends = self.ends();
        first.zones = vec![self.zones[0].clone(), ends];
        first.icvs.truncate(1);
        (first, self.zones.iter().map(Vec::len).sum())
    }
}

/// Where the zones of a packet lie, as it says.
fn ranges(packet: &[u8], zones: usize) -> Vec<Range<usize>> {
    let start = ENDS + (2 * (zones - 1)).next_multiple_of(4);
    let (ends, _) = packet[ENDS..][..2 * (zones - 1)].as_chunks::<2>();
    let ends = ends.iter().map(|end| start + usize::from(u16::from_be_bytes(*end)));
    let ends: Vec<usize> = ends.chain([packet.len() - 16 * zones]).collect();
    let starts = [start].into_iter().chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
}

fn zones_of(sa: &SaParams) -> usize {
    sa.zones.as_ref().unwrap().map.zones()
}

/// The same SA with the key of the first zone for all of them, as if their keys were not kept apart.
fn with_one_key(mut sa: SaParams) -> SaParams {
    for further in &mut sa.zones.as_mut().unwrap().further {
        *further = (sa.encr, sa.keymat.clone());
    }
    sa
}

/// What a router can do that keeps to no rule: it seals this header in place of the first zone.
fn reseal(sa: &SaParams, parts: &mut Parts, header: &[u8], (node, count): (u64, u64)) {
    let body: usize = parts.zones.iter().map(Vec::len).sum();
    let low = u64::from(u32::from_be_bytes(parts.low));
    let ends = parts.ends();
    let zones = u8::try_from(parts.zones.len()).unwrap();
    let len = u32::try_from(body).unwrap().to_be_bytes();
    let aad = [&parts.spi[..], &low.to_be_bytes(), &[1, zones], &len, &ends].concat();
    parts.iv = (node << 40 | count).to_be_bytes();
    parts.zones[0] = header.to_vec();
    let key = PacketKey::new(sa.encr, None, sa.keymat.as_bytes()).unwrap();
    key.seal(&aad, &parts.iv, &mut parts.zones[0], &[], &mut parts.icvs[0]).unwrap();
}

proptest! {
    /// Whichever byte is changed, the receiver refuses the packet, and so does the router if its key covers the byte: SPI, number, IV, ends, the
    /// first zone and its ICV.
    #[test]
    fn a_changed_byte_in_any_zone_is_rejected(sa in sas(), inner in packets(), before in 0..4, mask in 1_u8..) {
        let (mut out, mut inb) = pair(&sa);
        for _ in 0..before {
            sealed(&mut out, &inner);
        }
        let packet = sealed(&mut out, &inner);
        let ranges = ranges(&packet, zones_of(&sa));
        let icv = ranges.last().unwrap().end;
        let mut router = router(&sa);
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= mask.rotate_left(at as u32 % 8);
            let covered = at < ranges[0].end || (icv..icv + 16).contains(&at);
            prop_assert_eq!(matches!(router.look(&changed), Look::Header(_)), !covered, "byte {}", at);
            prop_assert!(inb.open(&mut changed).is_err(), "byte {}", at);
        }
        for len in 0..packet.len() {
            prop_assert!(!matches!(router.look(&packet[..len]), Look::Header(_)), "cut to {}", len);
            prop_assert!(inb.open(&mut packet[..len].to_vec()).is_err(), "cut to {}", len);
        }
        let opened = inb.open(&mut packet.clone());
        prop_assert_eq!(opened.map(|opened| opened.inner.len()), Ok(inner.len()), "as it was sealed");
    }

    /// Two zones of one packet cannot change places, with their ICVs or without, even if they had the same key.
    #[test]
    fn zones_of_one_packet_do_not_change_places(sa in sas(), inner in packets(), one_key: bool) {
        let sa = if one_key { with_one_key(sa) } else { sa };
        let (mut out, mut inb) = pair(&sa);
        let packet = Parts::of(&sealed(&mut out, &inner), zones_of(&sa));
        for (a, b) in (0..packet.zones.len()).flat_map(|b| (0..b).map(move |a| (a, b))) {
            for (zones, icvs) in [(true, true), (true, false), (false, true)] {
                let mut swapped = packet.clone();
                if zones {
                    swapped.zones.swap(a, b);
                }
                if icvs {
                    swapped.icvs.swap(a, b);
                }
                if swapped == packet {
                    continue; // Both zones are empty, or have the same bytes.
                }
                let read = swapped.first() == packet.first();
                let swapped = swapped.packet();
                prop_assert!(inb.open(&mut swapped.clone()).is_err(), "{} and {}", a, b);
                prop_assert_eq!(reads(&sa, &swapped), read, "{} and {}", a, b);
            }
        }
        prop_assert!(inb.open(&mut packet.packet()).is_ok());
    }

    /// No mixture of two packets opens, of one SA or of two with the same keys: of the same content or another, of the same length or another.
    #[test]
    fn zones_of_two_packets_do_not_mix(
        sa in sas(),
        inner in (packets(), packets(), any::<bool>()),
        other_spi: bool,
        one_key: bool,
        from_second in prop_oneof![
            (0_usize..8).prop_map(|zone| 0x0001_0001 << zone),
            (0_usize..8, 0_usize..8).prop_map(|(a, b)| 0x0001_0001 << a | 0x0001_0001 << b),
            any::<u32>(),
        ],
        number: bool,
        iv: bool,
    ) {
        let sa = if one_key { with_one_key(sa) } else { sa };
        let (inner, other, alike) = inner;
        let (mut out, _) = pair(&sa);
        let zones = zones_of(&sa);
        let one = Parts::of(&sealed(&mut out, &inner), zones);
        if other_spi {
            out = pair(&SaParams { spi: SPI ^ 1, ..sa.clone() }).0;
        }
        let two = Parts::of(&sealed(&mut out, if alike { &inner } else { &other }), zones);
        let mut mixed = one.clone();
        for zone in 0..zones {
            if from_second & 1 << zone != 0 {
                mixed.zones[zone].clone_from(&two.zones[zone]);
            }
            if from_second & 0x1_0000 << zone != 0 {
                mixed.icvs[zone] = two.icvs[zone];
            }
        }
        if number {
            mixed.low = two.low;
        }
        if iv {
            mixed.iv = two.iv;
        }
        let packet = mixed.packet();
        let opens = pair(&sa).1.open(&mut packet.clone()).is_ok();
        prop_assert_eq!(opens, mixed == one || mixed == two);
        let read = [&one, &two].iter().any(|whole| whole.spi == one.spi && whole.first() == mixed.first());
        prop_assert_eq!(reads(&sa, &packet), read);
    }

    /// Nor with the help of the first zone's key: a router that keeps to no rule seals the header again, under any nonce, and what it puts behind
    /// it of another packet, or changes there, is refused.
    #[test]
    fn a_router_without_rules_alters_no_further_zone(
        sa in sas(),
        inner in packets(),
        from_second in 1_u8..,
        with_icv: bool,
        change: Option<(prop::sample::Index, u8)>,
        nonce in (0_u64..3, 0_u64..3),
    ) {
        let (mut out, mut inb) = pair(&sa);
        let zones = zones_of(&sa);
        let one = sealed(&mut out, &inner);
        let header = inner[..ranges(&one, zones)[0].len()].to_vec();
        let [one, two] = [one, sealed(&mut out, &inner)].map(|packet| Parts::of(&packet, zones));
        let mut forged = one.clone();
        for zone in (1..zones).filter(|zone| from_second & 1 << zone != 0) {
            forged.zones[zone].clone_from(&two.zones[zone]);
            if with_icv {
                forged.icvs[zone] = two.icvs[zone];
            }
        }
        if let Some((at, mask)) = change {
            let mut further: Vec<&mut u8> = forged.zones[1..].iter_mut().flatten().collect();
            let at = at.index(further.len());
            *further[at] ^= mask;
        }
        let altered = forged.zones[1..] != one.zones[1..] || forged.icvs[1..] != one.icvs[1..];
        reseal(&sa, &mut forged, &header, nonce);
        let forged = forged.packet();
        prop_assert!(reads(&sa, &forged), "it has the router's key");
        prop_assert_eq!(inb.open(&mut forged.clone()).is_err(), altered);
    }
}
