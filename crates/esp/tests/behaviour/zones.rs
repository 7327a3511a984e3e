//! Composite SAs between their end points: what is sealed opens, nothing else does, and every byte is where the specification has it.

use crate::common::{ipv4, ipv6, pair, seal};
use crate::zones_spec::{ENDS, Holder, keymat, sa, segment};
use ZoneEnd::{At, IpHeader, TransportHeader};
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{Discard, IPV4_IN_IP, IPV6_IN_IP, Inbound, InstallError, NO_NEXT_HEADER, Sad};
use dormouse_keying::{
    ChildId, Install, Mode, Owner, Protection, SaId, Share, SoftBounds, ZoneEnd, ZoneKeys, ZoneMap, Zones,
};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::tcp::MIN_HEADER;
use proptest::prelude::*;

const GCM: Encr = Encr::Aes128Gcm16;
/// IPv4 and TCP with timestamps.
const HEADERS: usize = 20 + MIN_HEADER + 12;

fn two() -> dormouse_esp::SaParams {
    sa(0x0102_0304, &ZoneMap::default(), &[GCM; 2])
}

/// A first zone without bytes.
fn nothing_first() -> dormouse_esp::SaParams {
    sa(0x0102_0304, &ZoneMap::new(vec![At(0)]).unwrap(), &[GCM; 2])
}

/// Where the zones but the last end in this packet, as it says.
fn ends(packet: &[u8], zones: usize) -> Vec<u16> {
    packet[ENDS..ENDS + 2 * (zones - 1)].chunks(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect()
}

#[test]
fn every_map_cipher_and_length_opens_to_what_was_sealed() {
    let maps = [
        vec![TransportHeader],
        vec![At(40)],
        vec![At(1)],
        vec![At(0)],
        vec![At(0), At(30)],
        vec![IpHeader, TransportHeader],
        vec![TransportHeader, At(60), At(61), At(100)],
        (1..8).map(At).collect(),
    ];
    for map in maps.map(|ends| ZoneMap::new(ends).unwrap()) {
        let ciphers = [GCM, Encr::ChaCha20Poly1305, Encr::Aes256Gcm16].into_iter().cycle();
        let mut params = sa(1_000, &map, &ciphers.take(map.zones()).collect::<Vec<_>>());
        let packets = (20..80).map(|n| (ipv4(n), IPV4_IN_IP));
        let packets = packets.chain((40..70).map(|n| (ipv6(n), IPV6_IN_IP)));
        let packets = packets.chain((0..90).step_by(9).map(|n| (segment(n, |_| {}), IPV4_IN_IP)));
        let packets: Vec<_> =
            packets.chain([(vec![7; 50], NO_NEXT_HEADER), (vec![], NO_NEXT_HEADER)]).collect();
        for esn in [false, true] {
            params.esn = esn;
            let (mut out, mut inb) = pair(&params);
            for (inner, next) in &packets {
                let mut packet = seal(&mut out, inner, *next);
                let overhead = 8 + 8 + (2 * (map.zones() - 1)).next_multiple_of(4) + 16 * map.zones();
                assert_eq!(packet.len(), overhead + (inner.len() + 2).next_multiple_of(4), "byte by byte");
                let opened = inb.open(&mut packet).unwrap();
                assert_eq!((opened.next_header, opened.seq), (*next, out.sequence()));
                if *next != NO_NEXT_HEADER {
                    assert_eq!(&packet[opened.inner], &inner[..], "{map:?} {esn}");
                }
            }
            assert_eq!(inb.counters().packets, packets.len() as u64);
        }
    }
}

#[test]
fn zones_end_where_the_headers_do() {
    let at = |map: Vec<ZoneEnd>, inner: &[u8]| {
        let map = ZoneMap::new(map).unwrap();
        let next = if inner.first().is_some_and(|b| b >> 4 == 6) { IPV6_IN_IP } else { IPV4_IN_IP };
        let (mut out, _) = pair(&sa(1_000, &map, &vec![GCM; map.zones()]));
        ends(&seal(&mut out, inner, next), map.zones())
    };
    let tcp = segment(500, |_| {});
    assert_eq!(at(vec![TransportHeader], &tcp), [HEADERS as u16], "with TCP's options");
    assert_eq!(at(vec![IpHeader, TransportHeader], &tcp), [20, HEADERS as u16]);
    assert_eq!(at(vec![At(40)], &tcp), [40], "the paper's");
    assert_eq!(at(vec![At(0)], &tcp), [0], "nothing for routers");
    assert_eq!(at(vec![TransportHeader, At(30)], &tcp), [HEADERS as u16; 2], "never backwards");
    assert_eq!(at(vec![TransportHeader], &ipv4(100)), [28], "UDP");
    assert_eq!(at(vec![TransportHeader], &ipv6(100)), [48]);
    assert_eq!(at(vec![At(40)], &ipv4(25)), [25], "a short packet");
    assert_eq!(at(vec![TransportHeader], &ipv4(25)), [20], "not all of a UDP header");
    assert_eq!(at(vec![At(500)], &tcp), [128], "a first zone has no more");
    let mut fragment = tcp.clone();
    fragment[7] = 9;
    assert_eq!(at(vec![TransportHeader], &fragment), [20], "no header in a later fragment");
    let mut icmp = tcp.clone();
    icmp[9] = 1;
    assert_eq!(at(vec![TransportHeader], &icmp), [20]);
    assert_eq!(at(vec![TransportHeader], &[]), [0]);
}

#[test]
fn a_packet_is_what_the_specification_says() {
    for (sa, first) in [(two(), HEADERS as u16), (nothing_first(), 0)] {
        let (mut out, mut inb) = pair(&sa);
        let end = Holder::new(&sa, true);
        for seq in 1..=40 {
            let inner = segment(seq, |_| {});
            let packet = seal(&mut out, &inner, IPV4_IN_IP);
            let mut body = inner.clone();
            let pad = (inner.len() + 2).next_multiple_of(4) - inner.len() - 2;
            body.extend(1..=pad as u8);
            body.extend([pad as u8, IPV4_IN_IP]);
            assert_eq!(packet, end.seal(seq as u64, &body, first, 0, seq as u64));
            inb.open(&mut packet.clone()).unwrap();
        }
    }
}

#[test]
fn no_changed_byte_and_no_cut_goes_unnoticed() {
    unchanged_or_refused(&two());
    unchanged_or_refused(&nothing_first());
}

fn unchanged_or_refused(sa: &dormouse_esp::SaParams) {
    let (mut out, mut inb) = pair(sa);
    let packet = seal(&mut out, &segment(60, |_| {}), IPV4_IN_IP);
    for bit in 0..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(inb.open(&mut changed).is_err(), "bit {bit}");
    }
    for len in 0..packet.len() {
        assert!(inb.open(&mut packet[..len].to_vec()).is_err(), "cut to {len}");
    }
    let mut grown = packet.clone();
    grown.extend([0; 4]);
    assert!(inb.open(&mut grown).is_err());
    assert_eq!(inb.counters().packets, 0);
    inb.open(&mut packet.clone()).unwrap();
    assert!(matches!(inb.open(&mut packet.clone()), Err(Discard::Replay(_))), "one window for all zones");
}

proptest! {
    /// With any ends and any body.
    #[test]
    fn a_hostile_peer_is_survived(ends: [u16; 2], body in prop::collection::vec(any::<u8>(), 0..300)) {
        let params = two();
        let mut inb = Inbound::new(&params).unwrap();
        let mut packet = [&params.spi.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 8]].concat();
        packet.extend(ends.iter().flat_map(|end| end.to_be_bytes()));
        packet.extend(body);
        prop_assert!(inb.open(&mut packet).is_err());
    }
}

fn order(zones: Zones) -> Install {
    let all = vec![TsRange::addresses([0, 0, 0, 0].into(), [255; 4].into())];
    Install {
        owner: Owner::Ike(SaId::new(1)),
        child: ChildId::new(300),
        spi_out: 400,
        keymat_in: keymat(GCM, 300, 1),
        keymat_out: keymat(GCM, 400, 1),
        encr: GCM,
        integ: None,
        esn: true,
        mode: Mode::Tunnel,
        protection: Protection::Zoned(Box::new(zones)),
        pad_to: 0,
        ts_local: all.clone(),
        ts_remote: all,
        original: None,
        path: Path {
            local: ([10, 0, 0, 1], 0).into(),
            remote: ([10, 0, 0, 2], 0).into(),
            carrier: Carrier::RawEsp,
        },
        replaces: None,
        send_now: true,
        replay_window: 0,
        soft: SoftBounds::NONE,
        share: Share::Rest,
    }
}

fn zones(keys: &[Encr]) -> Zones {
    let further = keys.iter().map(|&encr| ZoneKeys {
        encr,
        keymat_in: keymat(encr, 300, 2),
        keymat_out: keymat(encr, 400, 2),
    });
    Zones { map: ZoneMap::default(), further: further.collect() }
}

#[test]
fn a_tunnel_of_zones_is_installed_and_leaves_room_for_them() {
    let mut sad = Sad::new();
    sad.install(&order(zones(&[GCM])), 1_500, &mut Seeded::new(1)).unwrap();
    let tunnel = sad.get_mut(ChildId::new(300)).unwrap();
    let mtu = tunnel.inner_mtu(dormouse_sansio::Instant::ZERO);
    assert_eq!(mtu, 1_500 - 20 - 8 - 8 - 4 - 32 - 2, "ends, and a second ICV");
    assert_eq!(tunnel.outbound.sealed_len(mtu), 1_480);
    // The other end's receiver has the same keys.
    let packet = seal(&mut tunnel.outbound, &segment(100, |_| {}), IPV4_IN_IP);
    let opened = pair(&sa(400, &ZoneMap::default(), &[GCM; 2])).1.open(&mut packet.clone()).unwrap();
    assert_eq!(opened.inner.len(), HEADERS + 100);
}

#[test]
fn what_cannot_be_zoned_is_refused_with_the_reason() {
    let refused = |install: &Install| {
        let error = Sad::new().install(install, 1_500, &mut Seeded::new(1)).unwrap_err();
        assert!(matches!(error, InstallError::Zones { .. } | InstallError::Crypto(_)), "{error}");
        error.to_string()
    };
    assert!(refused(&order(zones(&[]))).contains("2 zones with 0 keys"));
    assert!(refused(&order(zones(&[GCM, GCM]))).contains("2 zones with 2 keys"));
    assert!(refused(&order(zones(&[Encr::Aes128Ccm8]))).contains("ICV of 16 bytes in all (here 1"));
    assert!(refused(&Install { mode: Mode::Transport, ..order(zones(&[GCM])) }).contains("Transport"));
    let mut short = zones(&[GCM]);
    short.further[0].keymat_in = Secret::zeroed(3);
    assert!(refused(&order(short)).contains("keying material"));
}
