//! A router that holds the first zone's keys: what it can do, what it cannot, and that no nonce comes twice however many there are.

use crate::common::{pair, seal};
use crate::zones_spec::{ENDS, FIRST, Holder, grant, sa, segment};
use dormouse_crypto::Encr;
use dormouse_esp::{
    ChangeError, GrantError, HeaderZones, IPV4_IN_IP, Inbound, Look, Outbound, SaParams, open_first_zone,
};
use dormouse_keying::{GrantId, HeaderNews, HeaderOrder, Nodes, Opened, ZoneEnd, ZoneMap};
use dormouse_wire::ip::{checksum, tcp};
use proptest::prelude::*;
use std::collections::BTreeSet;

const GCM: Encr = Encr::Aes128Gcm16;
/// IPv4 and TCP with timestamps.
const HEADERS: usize = 52;

fn sas() -> (SaParams, SaParams) {
    let of = |spi| sa(spi, &ZoneMap::default(), &[GCM; 2]);
    (of(1_001), of(1_002))
}

fn nodes(first: u32, last: u32) -> Nodes {
    Nodes::new(first, last).unwrap()
}

/// A router with the keys of [`sas`].
fn router(nodes: Nodes) -> HeaderZones {
    let mut router = HeaderZones::new();
    router.apply(&order(nodes)).unwrap();
    router
}

fn order(nodes: Nodes) -> HeaderOrder {
    let (to, from) = sas();
    HeaderOrder::Grant(Box::new(grant(&to, &from, nodes)))
}

fn header(router: &mut HeaderZones, packet: &[u8]) -> Option<Vec<u8>> {
    match router.look(packet) {
        Look::Header(header) => Some(header.as_bytes().to_vec()),
        Look::NoKey | Look::Closed => None,
    }
}

/// Whether the checksums of a whole segment are right.
fn sound(packet: &[u8]) -> bool {
    let (ip, segment) = packet.split_at(20);
    let ends = ([203, 0, 113, 1].into(), [10, 1, 0, 2].into());
    checksum::checksum(ip) == 0
        && checksum::pseudo_header(ends.0, ends.1, 6, segment.len()).add_bytes(segment).finish() == 0
}

#[test]
fn it_reads_the_headers_both_ways_and_writes_nothing() {
    let mut router = router(nodes(1, 1));
    let (to, from) = sas();
    for (sa, is_to) in [(to, true), (from, false)] {
        let (mut out, _) = pair(&sa);
        let inner = segment(300, |_| {});
        let packet = seal(&mut out, &inner, IPV4_IN_IP);
        let Look::Header(header) = router.look(&packet) else { panic!("no header") };
        assert_eq!(header.as_bytes(), &inner[..HEADERS]);
        assert_eq!((header.is_to_device(), header.seq()), (is_to, 1));
        assert_eq!(header.grant(), GrantId { to_device: 1_001, from_device: 1_002 });
    }
    assert_eq!(router.stats().opened, 2);
}

/// A first zone without bytes: the key tells the gateway's packets from forged ones, and gives nothing of them to read or to change.
#[test]
fn of_a_first_zone_without_bytes_it_tells_what_is_genuine_and_reads_nothing() {
    let nothing = ZoneMap::new(vec![ZoneEnd::At(0)]).unwrap();
    let (to, from) = (sa(1_001, &nothing, &[GCM; 2]), sa(1_002, &nothing, &[GCM; 2]));
    let mut router = HeaderZones::new();
    router.apply(&HeaderOrder::Grant(Box::new(grant(&to, &from, nodes(1, 1))))).unwrap();
    let (mut out, mut inb) = pair(&to);
    let packet = seal(&mut out, &segment(40, |_| {}), IPV4_IN_IP);
    let Look::Header(header) = router.look(&packet) else { panic!("it is genuine") };
    assert_eq!((header.as_bytes(), header.seq(), header.is_to_device()), (&[][..], 1, true));
    let icv = packet.len() - 32;
    for bit in 32..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let its_own = bit / 8 < FIRST || (icv..icv + 16).contains(&(bit / 8));
        assert_eq!(!matches!(router.look(&changed), Look::Header(_)), its_own, "byte {}", bit / 8);
        assert!(inb.open(&mut changed).is_err(), "byte {}", bit / 8);
    }
    // Nothing of it can be changed, and one that keeps to no rule makes no packet that the device takes: all data are in the second zone.
    let mut same = packet.clone();
    assert_eq!(router.change(&mut same, |header| assert!(header.is_empty())), Ok(false));
    assert_eq!(same, packet);
    let hostile = Holder::new(&to, false);
    let mut forged = packet.clone();
    let last = forged.len() - 40;
    forged[last] ^= 1;
    hostile.reseal(&mut forged, 1, &[], 1, 1);
    assert!(matches!(router.look(&forged), Look::Header(_)), "it has the router's key");
    assert!(inb.open(&mut forged).is_err());
    // Where it moves the end of the zone, the second one no longer opens.
    let mut longer = packet.clone();
    longer[ENDS + 1] = 20;
    hostile.reseal(&mut longer, 1, &[0; 20], 1, 2);
    assert!(inb.open(&mut longer).is_err());
    inb.open(&mut packet.clone()).unwrap();
}

#[test]
fn it_notices_every_change_of_what_it_can_read() {
    let mut router = router(nodes(1, 1));
    let (mut out, mut inb) = pair(&sas().0);
    let packet = seal(&mut out, &segment(40, |_| {}), IPV4_IN_IP);
    let (first, icv) = (FIRST + HEADERS, packet.len() - 32);
    for bit in 32..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        // The second zone and its ICV are the end point's to judge.
        let its_own = bit / 8 < first || (icv..icv + 16).contains(&(bit / 8));
        assert_eq!(header(&mut router, &changed).is_none(), its_own, "byte {}", bit / 8);
        assert!(inb.open(&mut changed).is_err(), "byte {}", bit / 8);
    }
    for len in 0..packet.len() {
        assert_eq!(header(&mut router, &packet[..len]), None, "cut to {len}");
    }
}

#[test]
fn a_changed_window_arrives_with_a_right_checksum() {
    let mut router = router(nodes(7, 9));
    let (mut out, mut inb) = pair(&sas().0);
    let packet = seal(&mut out, &segment(301, |_| {}), IPV4_IN_IP);
    let mut changed = packet.clone();
    let edit = |header: &mut [u8]| assert!(tcp::set_window(header, 77));
    assert_eq!(router.change(&mut changed, edit), Ok(true));
    assert_eq!(changed.len(), packet.len());
    assert_eq!(changed[8..16], [0, 0, 7, 0, 0, 0, 0, 1], "its own number, and its own count");
    assert_eq!(changed[ENDS..FIRST], packet[ENDS..FIRST]);
    assert_eq!(
        changed[FIRST + HEADERS..][..304 - 2],
        packet[FIRST + HEADERS..][..304 - 2],
        "the second zone"
    );
    let opened = inb.open(&mut changed.clone()).unwrap();
    let mut inner = changed.clone();
    pair(&sas().0).1.open(&mut inner).unwrap();
    let inner = &inner[opened.inner];
    assert!(sound(inner));
    assert_eq!(inner[34..36], [0, 77]);
    // A router behind this one reads the new header.
    assert_eq!(header(&mut router, &changed).as_deref(), Some(&inner[..HEADERS]));
    assert_eq!(router.stats().changed, 1);
}

#[test]
fn what_is_only_looked_at_goes_on_as_it_came() {
    let (mut out, _) = pair(&sas().0);
    let packet = seal(&mut out, &segment(10, |_| {}), IPV4_IN_IP);
    let mut same = packet.clone();
    assert_eq!(router(nodes(1, 1)).change(&mut same, |_| {}), Ok(false), "nothing edited");
    assert_eq!(HeaderZones::new().change(&mut same, |h| h.fill(0)), Ok(false), "no key");
    let wrong = |spi| sa(spi, &ZoneMap::default(), &[Encr::ChaCha20Poly1305; 2]);
    let mut stale = HeaderZones::new();
    stale.apply(&HeaderOrder::Grant(Box::new(grant(&wrong(1_001), &wrong(1_002), nodes(1, 1))))).unwrap();
    assert_eq!(stale.change(&mut same, |h| h.fill(0)), Ok(false), "another key");
    assert_eq!(same, packet);
}

#[test]
fn it_may_change_congestion_marks_time_to_live_and_window_alone() {
    let (mut out, mut inb) = pair(&sas().0);
    let hostile = Holder::new(&sas().0, false);
    let inner = segment(10, |_| {});
    for byte in 0..HEADERS {
        for bit in 0..8 {
            let flip = |header: &mut [u8]| header[byte] ^= 1 << bit;
            let free = matches!(byte, 1 | 8 | 10 | 11 | 34..=37) || (byte == 33 && bit >= 6);
            let mut packet = seal(&mut out, &inner, IPV4_IN_IP);
            let before = packet.clone();
            let changed = router(nodes(1, 1)).change(&mut packet, flip);
            assert_eq!(
                changed,
                if free { Ok(true) } else { Err(ChangeError::Pinned) },
                "byte {byte} bit {bit}"
            );
            assert_eq!(packet == before, !free, "left as it was");
            // One that keeps to no rule gains nothing by it.
            let mut header = inner[..HEADERS].to_vec();
            flip(&mut header);
            let mut forged = before;
            hostile.reseal(&mut forged, out.sequence(), &header, 1, 1);
            assert_eq!(inb.open(&mut forged).is_ok(), free, "byte {byte} bit {bit}");
        }
    }
}

proptest! {
    /// A router with the first zone's keys makes no packet that the end point takes with another second zone.
    #[test]
    fn the_second_zone_cannot_be_altered(at in 0_usize..100, with in 1_u8.., node in 0_u64..3, count in 0_u64..3) {
        let (mut out, mut inb) = pair(&sas().0);
        let inner = segment(68, |_| {});
        let mut packet = seal(&mut out, &inner, IPV4_IN_IP);
        let second = FIRST + HEADERS..packet.len() - 32;
        let at = if at < second.len() { second.start + at } else { packet.len() - 1 - at % 16 };
        packet[at] ^= with;
        Holder::new(&sas().0, false).reseal(&mut packet, 1, &inner[..HEADERS], node, count);
        prop_assert!(inb.open(&mut packet).is_err());
    }

    /// Nor one with the second zone of another packet, with any header before it.
    #[test]
    fn a_router_cannot_splice(swap_icv: bool, window: u16) {
        let (mut out, mut inb) = pair(&sas().0);
        let inner = [segment(68, |_| {}), segment(68, |s| s.sequence += 68)];
        let packets = inner.clone().map(|inner| seal(&mut out, &inner, IPV4_IN_IP));
        let second = FIRST + HEADERS..packets[0].len() - 32;
        let mut spliced = packets[0].clone();
        spliced[second.clone()].copy_from_slice(&packets[1][second]);
        if swap_icv {
            let icv = packets[0].len() - 16..;
            spliced[icv.clone()].copy_from_slice(&packets[1][icv]);
        }
        for header in &inner {
            let mut header = header[..HEADERS].to_vec();
            tcp::set_window(&mut header, window);
            Holder::new(&sas().0, false).reseal(&mut spliced, 1, &header, 5, 5);
            prop_assert!(inb.open(&mut spliced.clone()).is_err());
        }
    }

    /// Packets that are nearly segments, and edits of their headers: see the fuzz target.
    #[test]
    fn any_packet_and_any_edit_keep_to_the_rules(
        map: u8,
        faults in prop::collection::vec((0_usize..60, any::<u8>()), 0..4),
        edits in prop::collection::vec((0_u8..60, any::<u8>()), 3),
        len in 0_usize..40,
    ) {
        let mut data = segment(len, |_| {});
        for (at, with) in faults {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= with;
            }
        }
        data.insert(0, map);
        data.extend(edits.iter().flat_map(|(at, with)| [*at, *with]));
        dormouse_esp::fuzz::zones(&data);
    }

    /// The sender, routers that are given numbers, that hand keys on, that crash and get them anew, and orders that come twice: every pair of
    /// key and nonce seals one plaintext.
    #[test]
    fn no_nonce_comes_twice(steps in prop::collection::vec((0_u8..6, any::<prop::sample::Index>(), any::<u16>()), 1..120)) {
        let (to, from) = sas();
        let (mut down, mut up) = (pair(&to).0, pair(&from).0);
        let mut left = Nodes::ALL;
        let first = left.take(64).unwrap();
        let mut routers = vec![(router(first), first)];
        let mut seen = BTreeSet::new();
        let mut packets: Vec<Vec<u8>> = Vec::new();
        let mut record = |packet: &[u8]| seen.insert((packet[..4].to_vec(), packet[8..16].to_vec()));
        for (what, which, window) in steps {
            let at = which.index(routers.len());
            match what {
                // Each end point sends.
                0 | 1 => {
                    let out = if what == 0 { &mut down } else { &mut up };
                    let packet = seal(out, &segment(9, |_| {}), IPV4_IN_IP);
                    prop_assert!(record(&packet), "the sender's");
                    packets.push(packet);
                }
                // A router changes a packet, which may have come before, and may be another router's.
                2 | 3 if !packets.is_empty() => {
                    let mut packet = packets[which.index(packets.len())].clone();
                    if routers[at].0.change(&mut packet, |h| _ = tcp::set_window(h, window)) == Ok(true) {
                        prop_assert!(record(&packet), "a router's");
                        packets.push(packet);
                    }
                }
                // It hands the keys on to a neighbour, if it has numbers left to give; its own order may come again.
                4 => {
                    if let Some(given) = routers[at].1.give() {
                        routers.push((router(given), given));
                    }
                    let again = order(routers[at].1);
                    routers[at].0.apply(&again).unwrap();
                }
                // It crashes, and is given the keys anew.
                5 => {
                    if let Some(fresh) = left.take(64) {
                        routers[at] = (router(fresh), fresh);
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_stale_key_is_told_once_until_it_opens_again() {
    let (to, from) = sas();
    let mut router = HeaderZones::new();
    let mut old = to.clone();
    old.keymat = from.keymat.clone();
    let give = |sa: &SaParams, first| HeaderOrder::Grant(Box::new(grant(sa, &from, nodes(first, first))));
    router.apply(&give(&old, 1)).unwrap();
    let (mut out, _) = pair(&to);
    let mut packet = || seal(&mut out, &segment(9, |_| {}), IPV4_IN_IP);
    for count in 0..10 {
        assert_eq!(router.poll_news(), None, "{count}");
        assert!(matches!(router.look(&packet()), Look::Closed));
        if count == 2 {
            let id = GrantId { to_device: 1_001, from_device: 1_002 };
            assert_eq!(router.poll_news(), Some(HeaderNews::Stale(id)));
        }
    }
    router.apply(&give(&to, 2)).unwrap();
    assert!(matches!(router.look(&packet()), Look::Header(_)));
    let mut forged = packet();
    forged[20] ^= 1;
    for _ in 0..2 {
        assert!(matches!(router.look(&forged), Look::Closed));
    }
    assert!(matches!(router.look(&packet()), Look::Header(_)));
    assert!(matches!(router.look(&forged), Look::Closed));
    assert_eq!(router.poll_news(), None, "some that do not open among many that do");
    assert_eq!(router.stats().closed, 13);
}

#[test]
fn keys_that_are_revoked_open_nothing() {
    let mut router = router(nodes(1, 1));
    let (mut out, _) = pair(&sas().0);
    let mut packet = seal(&mut out, &segment(9, |_| {}), IPV4_IN_IP);
    router.apply(&HeaderOrder::Revoke(GrantId { to_device: 1_001, from_device: 1 })).unwrap();
    assert!(header(&mut router, &packet).is_some(), "another's");
    router.apply(&HeaderOrder::Revoke(GrantId { to_device: 1_001, from_device: 1_002 })).unwrap();
    assert!(matches!(router.look(&packet), Look::NoKey));
    assert_eq!(router.change(&mut packet, |h| h.fill(0)), Ok(false));
}

#[test]
fn two_devices_may_have_chosen_one_spi() {
    let (to, from) = sas();
    let mut other = to.clone();
    other.keymat = from.keymat.clone();
    let mut router = router(nodes(1, 1));
    let mut second = from.clone();
    second.spi = 2_000;
    router.apply(&HeaderOrder::Grant(Box::new(grant(&other, &second, nodes(1, 1))))).unwrap();
    for (sa, from_device) in [(&to, 1_002), (&other, 2_000)] {
        let packet = seal(&mut pair(sa).0, &segment(9, |_| {}), IPV4_IN_IP);
        let Look::Header(header) = router.look(&packet) else { panic!("no header") };
        assert_eq!(header.grant(), GrantId { to_device: 1_001, from_device });
    }
    assert_eq!(router.stats().closed, 0);
}

/// Devices could all choose the SPI of one that they want to harm: each packet would be tried with the keys of all.
#[test]
fn so_many_sas_of_one_spi_are_tried_and_no_more() {
    let (to, from) = sas();
    let mut router = HeaderZones::new();
    let mut give = |spi, first| {
        let second = SaParams { spi, ..from.clone() };
        router.apply(&HeaderOrder::Grant(Box::new(grant(&to, &second, nodes(first, first)))))
    };
    for spi in 2_000..2_008 {
        assert_eq!(give(spi, 1), Ok(()));
    }
    assert_eq!(give(2_008, 1), Err(GrantError::Alike));
    assert_eq!(give(2_007, 2), Ok(()), "in place of the same keys");
    router.apply(&HeaderOrder::Revoke(GrantId { to_device: 1_001, from_device: 2_000 })).unwrap();
    let mut third = SaParams { spi: 2_008, ..from.clone() };
    router.apply(&HeaderOrder::Grant(Box::new(grant(&to, &third, nodes(1, 1))))).unwrap();
    // In the other direction, too: one that a device sends with.
    third.spi = 1_001;
    let other = SaParams { spi: 5, ..to.clone() };
    let order = HeaderOrder::Grant(Box::new(grant(&other, &third, nodes(1, 1))));
    assert_eq!(router.apply(&order), Err(GrantError::Alike));
    let packet = seal(&mut pair(&to).0, &segment(9, |_| {}), IPV4_IN_IP);
    assert!(matches!(router.look(&packet), Look::Header(_)));
}

#[test]
fn a_router_that_joins_late_places_the_numbers() {
    let (to, from) = sas();
    let holder = Holder::new(&to, true);
    let mut late = grant(&to, &from, nodes(1, 1));
    let reached = (5_u64 << 32) - 3;
    late.to_device.reached = (reached - 1_000).into();
    let mut router = HeaderZones::new();
    router.apply(&HeaderOrder::Grant(Box::new(late))).unwrap();
    let mut body = segment(9, |_| {});
    body.extend([1, 1, IPV4_IN_IP]);
    for seq in reached..reached + 6 {
        let packet = holder.seal(seq, &body, HEADERS as u16, 0, seq);
        let Look::Header(header) = router.look(&packet) else { panic!("no header at {seq}") };
        assert_eq!(header.seq(), seq);
    }
}

/// Before it moves keys, a router compares a packet that another has seen with what has passed at itself.
#[test]
fn what_has_passed_is_known_and_what_is_only_shown_changes_nothing() {
    let (to, from) = sas();
    let grant = grant(&to, &from, nodes(1, 1));
    let reached = [&grant.to_device, &grant.from_device].map(|sa| sa.reached.clone());
    let mut router = HeaderZones::new();
    router.apply(&HeaderOrder::Grant(Box::new(grant.clone()))).unwrap();
    let (down, up) = (Holder::new(&to, true), Holder::new(&from, true));
    let mut body = segment(300, |_| {});
    body.extend([1, 1, IPV4_IN_IP]);
    for (holder, to_device) in [(&down, true), (&up, false)] {
        let sealed = |seq| holder.seal(seq, &body, HEADERS as u16, 0, seq);
        // Above 2^32: by what has passed, the upper half is known.
        for seq in [5, 9, 7, 1 << 31, 1 << 32] {
            assert!(matches!(router.look(&sealed(seq)), Look::Header(_)));
        }
        let now = 1 << 32;
        let shown = |packet: &[u8]| open_first_zone(&grant, packet);
        for seq in [now - 1, now, now + 1, now + 5_000] {
            assert_eq!(shown(&sealed(seq)), Some(Opened { to_device, seq }));
        }
        // Neither what is shown nor what is forged has passed.
        let (mut forged, mut unknown) = (sealed(now + 9), sealed(now + 9));
        forged[FIRST] ^= 1;
        unknown[3] ^= 0x80;
        assert!(matches!(router.look(&forged), Look::Closed));
        assert!(shown(&forged).is_none() && shown(&unknown).is_none());
        assert!(sealed(now).iter().enumerate().all(|(len, _)| shown(&sealed(now)[..len]).is_none()));
        let here = &reached[usize::from(!to_device)];
        assert_eq!(here.highest(), now);
    }
    // Who has the first zone's key leads the numbers astray; keys that are given again place them anew, and what has passed has passed.
    let astray = down.seal(1 << 60, &body, HEADERS as u16, 0, 77);
    let mut late = grant.clone();
    late.to_device.reached = (1 << 60).into();
    router.apply(&HeaderOrder::Grant(Box::new(late))).unwrap();
    assert!(matches!(router.look(&astray), Look::Header(_)));
    let next = down.seal(9, &body, HEADERS as u16, 0, 78);
    assert!(matches!(router.look(&next), Look::Closed));
    grant.to_device.reached.raise(1 << 60);
    router.apply(&HeaderOrder::Grant(Box::new(grant.clone()))).unwrap();
    assert!(matches!(router.look(&next), Look::Header(_)));
    assert_eq!(grant.to_device.reached.highest(), 1 << 60);
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let (mut to, from) = sas();
    let mut router = HeaderZones::new();
    to.encr = Encr::Aes128Ccm8;
    let mut apply = |to: &SaParams| {
        let from = SaParams { spi: 10_000 + to.spi, ..from.clone() };
        router.apply(&HeaderOrder::Grant(Box::new(grant(to, &from, nodes(1, 1)))))
    };
    assert_eq!(apply(&to), Err(GrantError::Cipher(Encr::Aes128Ccm8)));
    to.encr = Encr::Aes256Gcm16;
    assert!(matches!(apply(&to), Err(GrantError::Crypto(_))));
    for spi in 0..4_096 {
        apply(&SaParams { spi, encr: GCM, ..to.clone() }).unwrap();
    }
    assert_eq!(apply(&SaParams { spi: 5_000, encr: GCM, ..to.clone() }), Err(GrantError::Full));
    apply(&SaParams { spi: 5, encr: GCM, ..to.clone() }).unwrap();
}

#[test]
fn both_halves_are_what_they_were_for_whole_packets() {
    let mut params = sas().0;
    params.zones = None;
    let (mut out, mut inb): (Outbound, Inbound) = pair(&params);
    let packet = seal(&mut out, &segment(9, |_| {}), IPV4_IN_IP);
    assert_eq!(packet.len(), 8 + 8 + 64 + 16);
    inb.open(&mut packet.clone()).unwrap();
    assert!(
        header(&mut router(nodes(1, 1)), &packet).is_none(),
        "the zones' bytes are authenticated, so it is no zoned packet"
    );
}
