//! Entry points for fuzzing: arbitrary bytes against the receiving side. Owns the fixed SAs they run against.

use core::ops::Range;

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, Integ, Secret};
use dormouse_keying::{HeaderGrant, HeaderOrder, HeaderSa, Mode, Nodes, ZoneEnd, ZoneMap};
use dormouse_sansio::Seeded;

use crate::discard::Discard;
use crate::{HeaderZones, Inbound, Look, Outbound, SaParams, ZoneParams};

/// The SAs under test: each kind of cipher, both modes, with and without extended sequence numbers.
fn suites() -> impl Iterator<Item = SaParams> {
    [
        (Encr::Aes128Gcm16, None),
        (Encr::ChaCha20Poly1305, None),
        (Encr::Aes128Cbc, Some(Integ::HmacSha1_96)),
        (Encr::Aes256Ctr, Some(Integ::HmacSha512_256)),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, (encr, integ))| {
        let mut params = SaParams::new(0x0101_0101, encr, integ, Secret::zeroed(keymat_len(encr, integ)));
        params.esn = i % 2 == 0;
        params.mode = if i < 2 { Mode::Tunnel } else { Mode::Transport };
        params
    })
}

/// Opens `data` as a datagram, as it is; and then as a plaintext (next header, padding and inner packet as an authentic but
/// hostile peer would choose them). Must never panic, and must never report a range outside the datagram.
pub fn open(data: &[u8]) {
    for params in suites() {
        let (Ok(mut inbound), Ok(mut outbound)) =
            (Inbound::new(&params), Outbound::new(&params, &mut Seeded::new(0)))
        else {
            return;
        };
        let mut packet = data.to_vec();
        if let Ok(opened) = inbound.open(&mut packet) {
            assert!(opened.inner.end <= packet.len());
        }
        let (next_header, inner) = data.split_first().unwrap_or((&0, &[]));
        let mut slot = vec![0; outbound.sealed_len(inner.len())];
        let head = outbound.head_len();
        slot[head..head + inner.len()].copy_from_slice(inner);
        let Ok(len) = outbound.seal(&mut slot, inner.len(), *next_header) else { continue };
        if let Ok(opened) = inbound.open(&mut slot[..len]) {
            assert!(opened.inner.end <= len);
            assert_eq!(opened.seq, 1);
        }
        outbound.forge_body(&mut slot, inner);
        if let Ok(opened) = inbound.open(&mut slot) {
            assert!(opened.inner.end <= slot.len());
        }
    }
}

/// Packets in zones at an end point and at a router: the first byte chooses map and cipher; the rest comes as a packet, and then is sealed as one.
/// A change in any of its zones and ICVs must be refused. Then the router edits its header: pairs of the rest's last bytes say where and how,
/// for both. A packet that the router changed must open to what the router made of it; any other must be as it was.
pub fn zones(data: &[u8]) {
    use ZoneEnd::{At, IpHeader, TransportHeader};
    let [which, rest @ ..] = data else { return };
    let maps = [
        vec![TransportHeader],
        vec![At(40)],
        vec![IpHeader, TransportHeader],
        vec![TransportHeader, At(90), At(200)],
        vec![At(0)],
        (0..7).map(|n| At(20 * n)).collect(),
    ];
    let Some(map) = maps.into_iter().nth(usize::from(which % 6)).and_then(ZoneMap::new) else { return };
    let ciphers = [Encr::Aes128Gcm16, Encr::Aes256Gcm16, Encr::ChaCha20Poly1305];
    let encr = ciphers[usize::from(which / 6 % 3)];
    let keymat = |zone| Secret::from(vec![zone; keymat_len(encr, None)]);
    let zones = map.zones();
    let further = (2..).take(map.zones() - 1).map(|zone| (encr, keymat(zone))).collect();
    let params = SaParams {
        zones: Some(ZoneParams { map: map.clone(), further }),
        ..SaParams::new(1_000, encr, None, keymat(1))
    };
    let sa = |spi| HeaderSa { spi, keymat: keymat(1), reached: 0.into() };
    let nodes = Nodes::ALL;
    let grant =
        HeaderGrant { map, encr, esn: params.esn, to_device: sa(params.spi), from_device: sa(1_001), nodes };
    let mut router = HeaderZones::new();
    let (Ok(()), Ok(mut inbound), Ok(mut outbound)) = (
        router.apply(&HeaderOrder::Grant(Box::new(grant))),
        Inbound::new(&params),
        Outbound::new(&params, &mut Seeded::new(0)),
    ) else {
        return;
    };
    let mut packet = [&params.spi.to_be_bytes()[..], rest].concat();
    assert!(!matches!(router.look(&packet), Look::NoKey) || packet.len() < crate::ESP_HEADER_LEN);
    let _unauthentic = inbound.open(&mut packet);

    let head = outbound.head_len();
    let mut slot = vec![0; outbound.sealed_len(rest.len())];
    slot[head..head + rest.len()].copy_from_slice(rest);
    let Ok(_) = outbound.seal(&mut slot, rest.len(), crate::IPV4_IN_IP) else { return };
    let before = slot.clone();
    for part in parts(&slot, zones) {
        for pair in rest.rchunks_exact(2).take(3).filter(|pair| pair[1] != 0) {
            let mut forged = slot.clone();
            let Some(at) = usize::from(pair[0]).checked_rem(part.len()) else { continue };
            forged[part.start + at] ^= pair[1];
            let opens = inbound.open(&mut forged);
            assert!(opens.is_err(), "byte {at} of {part:?} was changed: {opens:?}");
        }
    }
    let mut header = Vec::new();
    let changed = router.change(&mut slot, |first| {
        assert_eq!(first, &rest[..first.len()]);
        for pair in rest.rchunks_exact(2).take(3) {
            if let Some(byte) = first.get_mut(usize::from(pair[0])) {
                *byte ^= pair[1];
            }
        }
        header = first.to_vec();
    });
    assert_eq!(changed == Ok(true), slot != before, "{changed:?}");
    let opens = inbound.open(&mut slot);
    let closed = matches!(opens, Err(Discard::Unauthentic { .. } | Discard::Zones { .. }));
    assert!(!closed, "what a router may change opens at the end point: {opens:?}");
    // Not every content is a packet.
    let Ok(opened) = opens else { return };
    assert!(opened.inner.end <= slot.len());
    let len = header.len().min(opened.inner.len());
    assert!(changed != Ok(true) || slot[opened.inner].starts_with(&header[..len]));
}

/// Where the zones of a sealed packet lie, and their ICVs.
fn parts(packet: &[u8], zones: usize) -> Vec<Range<usize>> {
    let start = crate::zones::IV + crate::ESP_HEADER_LEN;
    let (field, icvs) = (&packet[start..], packet.len() - 16 * zones);
    let body = start + (2 * (zones - 1)).next_multiple_of(4);
    let ends = field.chunks_exact(2).take(zones - 1);
    let ends = ends.map(|end| body + usize::from(u16::from_be_bytes([end[0], end[1]]))).chain([icvs]);
    let ends: Vec<usize> = ends.chain((1..=zones).map(|n| icvs + 16 * n)).collect();
    [body].into_iter().chain(ends.iter().copied()).zip(ends.iter().copied()).map(|(a, b)| a..b).collect()
}
