//! Packets in zones as `docs/wire/mml-ipsec.md` has them, written from that page alone: what the crate makes is held against this, and
//! hostile ends and routers are made of it.

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, PacketKey, Secret};
use dormouse_esp::{SaParams, ZoneParams};
use dormouse_keying::{HeaderGrant, HeaderSa, Nodes, ZoneMap};
use dormouse_sansio::{Entropy, Seeded};
use dormouse_wire::ip::tcp::Segment;

/// The keying material of a zone of the SA with this SPI.
pub(crate) fn keymat(encr: Encr, spi: u32, zone: usize) -> Secret {
    let mut keymat = Secret::zeroed(keymat_len(encr, None));
    Seeded::new(u64::from(spi) << 8 | zone as u64).fill(keymat.as_mut_bytes());
    keymat
}

/// An SA whose zones have these ciphers.
pub(crate) fn sa(spi: u32, map: &ZoneMap, ciphers: &[Encr]) -> SaParams {
    let (first, further) = ciphers.split_first().unwrap();
    let further = further.iter().zip(2..).map(|(encr, zone)| (*encr, keymat(*encr, spi, zone))).collect();
    let mut params = SaParams::new(spi, *first, None, keymat(*first, spi, 1));
    params.zones = Some(ZoneParams { map: map.clone(), further });
    params
}

/// The first zones of both, for a router that has these numbers.
pub(crate) fn grant(to_device: &SaParams, from_device: &SaParams, nodes: Nodes) -> HeaderGrant {
    let of = |sa: &SaParams| HeaderSa { spi: sa.spi, keymat: sa.keymat.clone(), reached: 0.into() };
    HeaderGrant {
        map: to_device.zones.clone().unwrap().map,
        encr: to_device.encr,
        esn: to_device.esn,
        to_device: of(to_device),
        from_device: of(from_device),
        nodes,
    }
}

/// A segment with timestamps and `len` bytes of data, from the fixed host to the device.
pub(crate) fn segment(len: usize, edit: impl FnOnce(&mut Segment<'_>)) -> Vec<u8> {
    let options = dormouse_wire::ip::tcp::timestamps_option(0x0102_0304, 0x0506_0708);
    let (src, dst) = (([203, 0, 113, 1], 80).into(), ([10, 1, 0, 2], 5_000).into());
    let mut segment = Segment {
        src,
        dst,
        sequence: 0x1000_0000,
        acknowledgement: 0x2000_0000,
        flags: dormouse_wire::ip::tcp::ACK,
        window: 1_000,
        options: &options,
    };
    edit(&mut segment);
    let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
    let mut out = Vec::new();
    segment.build(&payload, &mut out).unwrap();
    out
}

/// Where things stand in a packet of two zones.
pub(crate) const IV: usize = 8;
pub(crate) const ENDS: usize = 16;
pub(crate) const FIRST: usize = 20;

/// A holder of some keys of an SA with two zones of AES-128-GCM, who keeps to no rule.
pub(crate) struct Holder {
    pub(crate) spi: u32,
    pub(crate) first: PacketKey,
    /// The end points' alone.
    pub(crate) second: Option<PacketKey>,
}

impl Holder {
    pub(crate) fn new(sa: &SaParams, is_end: bool) -> Self {
        let key = |keymat: &Secret| PacketKey::new(Encr::Aes128Gcm16, None, keymat.as_bytes()).unwrap();
        let second = &sa.zones.as_ref().unwrap().further[0].1;
        Self { spi: sa.spi, first: key(&sa.keymat), second: is_end.then(|| key(second)) }
    }

    fn aad(&self, seq: u64, zone: u8, body: usize, end: u16) -> Vec<u8> {
        let mut aad = self.spi.to_be_bytes().to_vec();
        aad.extend(seq.to_be_bytes());
        aad.extend([zone, 2]);
        aad.extend(u32::try_from(body).unwrap().to_be_bytes());
        aad.extend(end.to_be_bytes());
        aad.extend([0, 0]);
        aad
    }

    /// The packet of number `seq` with `body` (trailer and all) in two zones, the first of `end` bytes and sealed under the IV of `node` and
    /// `count`.
    pub(crate) fn seal(&self, seq: u64, body: &[u8], end: u16, node: u64, count: u64) -> Vec<u8> {
        let (mut body, cut) = (body.to_vec(), usize::from(end));
        let iv = (node << 40 | count).to_be_bytes();
        let mut second_aad = self.aad(seq, 2, body.len(), end);
        second_aad.extend(pinned(&body[..cut]));
        let (first, second) = body.split_at_mut(cut);
        let (mut icv, mut second_icv) = ([0; 16], [0; 16]);
        self.first
            .seal(&self.aad(seq, 1, first.len() + second.len(), end), &iv, first, &[], &mut icv)
            .unwrap();
        let key = self.second.as_ref().unwrap();
        key.seal(&second_aad, &seq.to_be_bytes(), second, &[], &mut second_icv).unwrap();
        let low = u32::try_from(seq & 0xffff_ffff).unwrap();
        let ends = [&end.to_be_bytes()[..], &[0, 0]].concat();
        [&self.spi.to_be_bytes()[..], &low.to_be_bytes(), &iv, &ends, &body, &icv, &second_icv].concat()
    }

    /// Seals another header in place of the first zone, as a router could that changes what it likes.
    pub(crate) fn reseal(&self, packet: &mut [u8], seq: u64, header: &[u8], node: u64, count: u64) {
        let body = packet.len() - FIRST - 32;
        let end = u16::try_from(header.len()).unwrap();
        let iv = (node << 40 | count).to_be_bytes();
        let (mut header, mut icv) = (header.to_vec(), [0; 16]);
        self.first.seal(&self.aad(seq, 1, body, end), &iv, &mut header, &[], &mut icv).unwrap();
        packet[IV..IV + 8].copy_from_slice(&iv);
        packet[FIRST..FIRST + header.len()].copy_from_slice(&header);
        packet[FIRST + body..FIRST + body + 16].copy_from_slice(&icv);
    }
}

/// A header of IPv4 without options and TCP, without what a router may change; nothing of nothing.
fn pinned(header: &[u8]) -> Vec<u8> {
    let mut pinned = header.to_vec();
    for at in [1, 8, 10, 11, 34, 35, 36, 37] {
        if let Some(byte) = pinned.get_mut(at) {
            *byte = 0;
        }
    }
    if let Some(flags) = pinned.get_mut(33) {
        *flags &= 0x3f;
    }
    pinned
}
