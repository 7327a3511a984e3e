//! Composite SAs (multi-layered IPsec): a packet in zones, each sealed under a key of its own. Owns how a packet is cut, what the zones have in
//! common, and what a router that holds the first zone's key may change; must never keep a sequence number or a window: those are the first zone's
//! SA's, which [`crate::Outbound`] and [`crate::Inbound`] are.
//!
//! `docs/wire/mml-ipsec.md` specifies every byte. In short:
//!
//! ```text
//! | SPI 4 | sequence 4 | IV 8 | ends of all zones but the last, 2 each, zeros up to 4 | zone 1 | ... | zone n with ESP's trailer | ICV 1 | ... | ICV n |
//! ```
//!
//! The zones lie together, so that a packet is sealed and opened where it lies, as a whole one is. The nonce of the first zone is in the packet,
//! because a router that changes the header makes another; the other zones' is the sequence number.

mod router;

use dormouse_crypto::{Encr, Error as CryptoError, PacketKey, Secret};
use dormouse_keying::{Nodes, ZoneEnd, ZoneMap, Zones};
use dormouse_wire::ip::{Packet, protocol};

use crate::ESP_HEADER_LEN;
use crate::discard::Discard;
use crate::layout::Shape;

pub use router::{ChangeError, GrantError, Header, HeaderZones, Keys, Look, RouterStats, open_first_zone};

/// Bytes of every zone's IV, on the wire in the first zone alone.
pub(crate) const IV: usize = 8;
/// Bytes of every zone's ICV.
const ICV: usize = 16;
/// The bits of an IV that count; those above name the node.
const COUNT_BITS: u32 = 40;
/// The last number that a node has, in a first zone.
pub(crate) const LAST: u64 = (1 << COUNT_BITS) - 1;
/// The most ends on the wire, in bytes.
const FIELD_MOST: usize = 2 * ZoneMap::MOST;
/// The most that a zone is authenticated with besides its own bytes: SPI, sequence number, zone, zones, length of all zones, ends, first zone.
const AAD_MOST: usize = 4 + 8 + 1 + 1 + 4 + FIELD_MOST + ZoneMap::FIRST_MOST;
/// Where the zone's number stands among these.
const ZONE_AT: usize = 12;

/// Bytes of the ends of the zones, of which there are `zones`, with what makes them a multiple of 4 (RFC 4303 section 2.3).
const fn field_len(zones: usize) -> usize {
    (zones.saturating_sub(1) * 2).next_multiple_of(4)
}

/// Bytes that `zones` zones add to the same packet protected whole.
#[must_use]
pub(crate) const fn overhead(zones: usize) -> usize {
    field_len(zones) + zones.saturating_sub(1) * ICV
}

/// The IV of the first zone that this node makes for the `count`th time.
const fn first_iv(node: u32, count: u64) -> [u8; IV] {
    ((node as u64) << COUNT_BITS | count).to_be_bytes()
}

/// What one direction of an SA has for the zones behind the first.
#[derive(Clone, Debug)]
pub struct ZoneParams {
    /// Where the zones end.
    pub map: ZoneMap,
    /// Cipher and keying material of each zone behind the first.
    pub further: Vec<(Encr, Secret)>,
}

impl ZoneParams {
    /// Those of what we receive, and of what we send.
    pub(crate) fn pair(zones: &Zones) -> (Self, Self) {
        let of = |keymat: fn(&dormouse_keying::ZoneKeys) -> &Secret| Self {
            map: zones.map.clone(),
            further: zones.further.iter().map(|keys| (keys.encr, keymat(keys).clone())).collect(),
        };
        (of(|keys| &keys.keymat_in), of(|keys| &keys.keymat_out))
    }
}

/// The zones behind the first of one direction of an SA. The first one's key is the SA's own.
pub(crate) struct Composite {
    map: ZoneMap,
    further: Vec<PacketKey>,
}

impl Composite {
    pub(crate) fn new(params: &ZoneParams) -> Result<Self, CryptoError> {
        let key = |(encr, keymat): &(Encr, Secret)| PacketKey::new(*encr, None, keymat.as_bytes());
        Ok(Self {
            map: params.map.clone(),
            further: params.further.iter().map(key).collect::<Result<_, _>>()?,
        })
    }

    /// The lengths of a packet whose first zone has `first`.
    pub(crate) fn shape(&self, first: Shape) -> Shape {
        let zones = self.map.zones();
        Shape { head: first.head + field_len(zones), icv: zones * ICV, ..first }
    }

    /// Seals `body`, the inner packet of `inner_len` bytes with its trailer, and writes what stands before (`head`: the first zone's IV, and the
    /// ends) and behind it.
    pub(crate) fn seal(
        &self,
        first: &PacketKey,
        (spi, seq): (u32, u64),
        head: &mut [u8],
        body: &mut [u8],
        inner_len: usize,
        icv: &mut [u8],
    ) -> Result<(), CryptoError> {
        let cut = Cut::of(&self.map, body.get(..inner_len).unwrap_or_default());
        let iv = first_iv(Nodes::SENDER, seq);
        head.fill(0);
        append(head, 0, &iv);
        cut.write(head);
        let mut aad = ZoneAad::new(spi, seq, self.map.zones(), body.len(), head);
        let nonce = seq.to_be_bytes();
        for ((number, zone), icv) in cut.zones(body).enumerate().zip(icv.chunks_mut(ICV)) {
            if number == 0 {
                aad.pin(zone);
                first.seal(aad.first(), &iv, zone, &[], icv)?;
            } else if let Some(key) = self.further.get(number - 1) {
                key.seal(aad.further(number), &nonce, zone, &[], icv)?;
            }
        }
        Ok(())
    }

    /// Opens all zones of `body` where they lie.
    pub(crate) fn open(
        &self,
        first: &PacketKey,
        (spi, seq): (u32, u64),
        head: &[u8],
        body: &mut [u8],
        icv: &[u8],
    ) -> Result<(), Discard> {
        let zones = self.map.zones();
        let bad = Discard::Zones { zones, len: body.len() };
        let (cut, iv) = Cut::parse(head, zones, body.len()).zip(head.get(..IV)).ok_or(bad)?;
        let mut aad = ZoneAad::new(spi, seq, zones, body.len(), head);
        let nonce = seq.to_be_bytes();
        for ((number, zone), icv) in cut.zones(body).enumerate().zip(icv.chunks(ICV)) {
            if number == 0 {
                first.open(aad.first(), iv, zone, &[], icv).map_err(|_| Discard::Unauthentic { spi, seq })?;
                aad.pin(zone);
            } else {
                let key = self.further.get(number - 1).ok_or(bad)?;
                key.open(aad.further(number), &nonce, zone, &[], icv)
                    .map_err(|_| Discard::Unauthentic { spi, seq })?;
            }
        }
        Ok(())
    }
}

/// Where the zones of a packet end: all but the last.
#[derive(Clone, Copy)]
struct Cut {
    ends: [u16; ZoneMap::MOST - 1],
    count: usize,
}

impl Cut {
    /// Of this inner packet. A dummy, or what is no IP packet, has no headers.
    fn of(map: &ZoneMap, inner: &[u8]) -> Self {
        let packet = Packet::parse_header(inner).ok();
        let mut cut = Self { ends: [0; ZoneMap::MOST - 1], count: map.ends().len() };
        let mut before = 0;
        for (index, (end, to)) in map.ends().iter().zip(&mut cut.ends).enumerate() {
            let at = match end {
                ZoneEnd::IpHeader => packet.map_or(0, |packet| packet.payload_offset()),
                ZoneEnd::TransportHeader => packet.map_or(0, |packet| packet.transport_end()),
                ZoneEnd::At(at) => (*at).into(),
            };
            let most = if index == 0 { ZoneMap::FIRST_MOST.min(inner.len()) } else { inner.len() };
            before = at.min(most).max(before);
            *to = u16::try_from(before).unwrap_or(u16::MAX);
        }
        cut
    }

    /// From what stands before the zones; `None` if they are not in order, do not lie in `body` bytes, or the first is too long.
    fn parse(head: &[u8], zones: usize, body: usize) -> Option<Self> {
        let field = head.get(IV..)?;
        let mut cut = Self { ends: [0; ZoneMap::MOST - 1], count: zones.checked_sub(1)? };
        let mut before = 0;
        for (index, to) in cut.ends.iter_mut().take(cut.count).enumerate() {
            *to = u16::from_be_bytes(*field.get(2 * index..)?.first_chunk()?);
            let most = if index == 0 { ZoneMap::FIRST_MOST.min(body) } else { body };
            if *to < before || usize::from(*to) > most {
                return None;
            }
            before = *to;
        }
        Some(cut)
    }

    /// Writes the ends behind the IV.
    fn write(&self, head: &mut [u8]) {
        let fields = head.get_mut(IV..).unwrap_or_default().chunks_exact_mut(2);
        for (to, end) in fields.zip(self.ends.iter().take(self.count)) {
            to.copy_from_slice(&end.to_be_bytes());
        }
    }

    /// The zones of `body`, in which all ends lie.
    fn zones(self, body: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
        let ends = self.ends.into_iter().take(self.count).map(Some).chain([None]);
        ends.scan((body, 0), |(rest, at), end| {
            let body = core::mem::take(rest);
            let Some(end) = end else { return Some(body) };
            let (zone, behind) = body.split_at_mut_checked(usize::from(end - *at))?;
            (*rest, *at) = (behind, end);
            Some(zone)
        })
    }
}

/// What each zone of a packet is authenticated with besides its own bytes.
struct ZoneAad {
    bytes: [u8; AAD_MOST],
    /// Of what all zones have.
    common: usize,
    /// With what the zones behind the first have besides.
    whole: usize,
}

impl ZoneAad {
    /// `head` is the IV of the first zone, and the ends.
    fn new(spi: u32, seq: u64, zones: usize, body: usize, head: &[u8]) -> Self {
        let mut bytes = [0; AAD_MOST];
        let mut at = append(&mut bytes, 0, &spi.to_be_bytes());
        at = append(&mut bytes, at, &seq.to_be_bytes());
        at = append(&mut bytes, at, &[1, zones as u8]);
        at = append(&mut bytes, at, &(body as u32).to_be_bytes());
        at = append(&mut bytes, at, head.get(IV..).unwrap_or_default());
        Self { bytes, common: at, whole: at }
    }

    /// Of the first zone.
    fn first(&self) -> &[u8] {
        self.bytes.get(..self.common).unwrap_or_default()
    }

    /// What the first zone holds, opened: the further zones are bound to what a router may not change of it.
    fn pin(&mut self, first: &[u8]) {
        self.whole = append(&mut self.bytes, self.common, first);
        blank(self.bytes.get_mut(self.common..self.whole).unwrap_or_default());
    }

    /// Of the zone behind `number` others, at least one.
    fn further(&mut self, number: usize) -> &[u8] {
        self.bytes[ZONE_AT] = number as u8 + 1;
        self.bytes.get(..self.whole).unwrap_or_default()
    }
}

/// Writes `part` at `at`, and returns where it ends.
fn append(bytes: &mut [u8], at: usize, part: &[u8]) -> usize {
    let end = at + part.len();
    bytes.get_mut(at..end).map_or(at, |to| {
        to.copy_from_slice(part);
        end
    })
}

/// Puts zeros in place of what a router may change of a first zone: DSCP and ECN, TTL or hop limit and the checksum of the IP header; ECE, CWR,
/// window and checksum of a TCP header.
///
/// All else says where the packet and its bytes belong, and only the end points may say that: a router that could change the destination would
/// have the far end send it the further zones, opened.
fn blank(header: &mut [u8]) {
    let Ok(packet) = Packet::parse_header(header) else { return };
    let is_v4 = matches!(packet, Packet::V4(_));
    let tcp = packet.protocol() == protocol::TCP && packet.has_upper_header();
    let at = packet.payload_offset();
    match header {
        [_, tos, _, _, _, _, _, _, ttl, _, c0, c1, ..] if is_v4 => (*tos, *ttl, *c0, *c1) = (0, 0, 0, 0),
        [first, second, _, _, _, _, _, limit, ..] => {
            (*first, *second, *limit) = (*first & 0xf0, *second & 0x0f, 0);
        }
        _ => {}
    }
    let tcp = header.get_mut(at + 13..).filter(|_| tcp).and_then(|tcp| tcp.first_chunk_mut::<5>());
    if let Some([flags, w0, w1, c0, c1]) = tcp {
        (*flags, *w0, *w1, *c0, *c1) = (*flags & 0x3f, 0, 0, 0, 0);
    }
}

/// The lengths of a packet, and what stands in it where, as a router sees it.
struct Parts {
    /// SPI and the low half of the sequence number.
    low: u32,
    /// The first zone.
    first: core::ops::Range<usize>,
    /// Bytes of all zones.
    body: usize,
    /// Its ICV.
    icv: core::ops::Range<usize>,
    /// IV and ends.
    head: core::ops::Range<usize>,
}

impl Parts {
    /// Of a packet with so many zones; `None` if it cannot be one.
    fn of(packet: &[u8], zones: usize) -> Option<Self> {
        let (_, low) = crate::layout::split_header(packet)?;
        let head = ESP_HEADER_LEN..ESP_HEADER_LEN + IV + field_len(zones);
        let body = packet.len().checked_sub(head.end + zones * ICV)?;
        let [end, ..] = Cut::parse(packet.get(head.clone())?, zones, body)?.ends;
        let first = head.end..head.end + usize::from(end);
        let icv = head.end + body;
        Some(Self { low, first, body, icv: icv..icv + ICV, head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeaderZones, Inbound, Life, Outbound, SaParams};
    use dormouse_keying::{HeaderGrant, HeaderNews, HeaderOrder, HeaderSa};
    use dormouse_sansio::Seeded;

    fn sa() -> SaParams {
        let further = vec![(Encr::Aes128Gcm16, Secret::zeroed(20))];
        let zones = Some(ZoneParams { map: ZoneMap::default(), further });
        SaParams { zones, ..SaParams::new(300, Encr::Aes128Gcm16, None, Secret::from([1; 20])) }
    }

    fn seal(out: &mut Outbound) -> Vec<u8> {
        let mut slot = vec![0; out.sealed_len(40)];
        slot[out.head_len()] = 0x45;
        (slot[out.head_len() + 3], slot[out.head_len() + 9]) = (40, 6);
        slot[out.head_len() + 32] = 0x50;
        out.seal(&mut slot, 40, 4).unwrap();
        slot
    }

    #[test]
    fn a_sender_ends_before_its_nonces_do() {
        let (mut out, mut inb) =
            (Outbound::new(&sa(), &mut Seeded::new(0)).unwrap(), Inbound::new(&sa()).unwrap());
        out.start_at(LAST - 2);
        inb.start_at(LAST - 2);
        for seq in [LAST - 1, LAST] {
            let mut packet = seal(&mut out);
            assert_eq!(packet[8..16], seq.to_be_bytes(), "below the bits of a node");
            assert_eq!(inb.open(&mut packet).unwrap().seq, seq);
        }
        assert!(out.seal(&mut [0; 200], 40, 4).is_err());
        assert_eq!(Outbound::new(&sa(), &mut Seeded::new(0)).unwrap().life(), Life::Fresh);
    }

    #[test]
    fn a_router_without_nonces_reads_on_and_says_so_once() {
        let mut router = HeaderZones::new();
        let keys = |spi| HeaderSa { spi, keymat: Secret::from([1; 20]), reached: 0.into() };
        let (to_device, from_device) = (keys(300), keys(301));
        let nodes = Nodes::new(1, 1).unwrap();
        let map = ZoneMap::default();
        let grant = HeaderGrant { map, encr: Encr::Aes128Gcm16, esn: true, to_device, from_device, nodes };
        let id = grant.id();
        router.apply(&HeaderOrder::Grant(Box::new(grant))).unwrap();
        router.use_nonces(LAST - 1);
        let mut out = Outbound::new(&sa(), &mut Seeded::new(0)).unwrap();
        let edit = |header: &mut [u8]| header[8] ^= 1;
        assert_eq!(router.change(&mut seal(&mut out), edit), Ok(true));
        for _ in 0..3 {
            let packet = seal(&mut out);
            let mut changed = packet.clone();
            assert_eq!(router.change(&mut changed, edit), Err(ChangeError::Exhausted));
            assert_eq!(changed, packet, "it goes on as it came");
            assert!(matches!(router.look(&packet), Look::Header(_)));
        }
        assert_eq!(router.poll_news(), Some(HeaderNews::Exhausted(id)));
        assert_eq!(router.poll_news(), None);
    }
}
