//! Fragments put together, for packets that are translated: the checksum above the IP header is another in the other family, and only the
//! first fragment says which conversation it is of. Owns the fragments that have come of datagrams whose others have not; must never hold
//! more of them than the limits here, from any number of senders.
//!
//! There is no timer: what has waited for too long goes when the next fragment comes.

use dormouse_sansio::Instant;
use dormouse_wire::ip::{Ipv4, Ipv4Header, Ipv6, Ipv6Header, Packet, protocol};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Datagrams under way, and those of one peer: of each at most 64 KiB.
const MOST: usize = 64;
const PEERS_MOST: usize = 4;
/// Fragments of one datagram: 64 KiB over the narrowest link of IPv4 that is in use.
const PIECES_MOST: usize = 128;
/// "If insufficient fragments are received to complete reassembly of a packet within 60 seconds of the reception of the first-arriving fragment
/// of that packet, reassembly of that packet must be abandoned" (RFC 8200 section 4.5)
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the fragment header of IPv6.
const HEADER: usize = 8;
/// Bytes of the fragments that are made: what ESP in UDP carries over a path of 1,280 bytes, the least of IPv6. They need no path MTU.
const NARROWEST: usize = 1_200;

/// Source, destination, protocol and identification (RFC 791); IPv6 goes without the protocol (RFC 8200 section 4.5).
type Name = (IpAddr, IpAddr, u8, u32);

#[derive(Debug)]
struct Partial {
    since: Instant,
    /// By offset.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// Bytes of the whole payload, once its end has come.
    whole: Option<usize>,
    /// Traffic class, hop limit and protocol of the first fragment, once it has come.
    first: Option<(u8, u8, u8)>,
    /// Its fragments contradict each other: what else comes of it is dropped too.
    spoilt: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    under_way: BTreeMap<Name, Partial>,
}

impl Reassembly {
    /// Takes a fragment. The whole packet, without options and extension headers before the fragment's, if it was the last that was missing.
    pub(super) fn take(&mut self, now: Instant, packet: &Packet<'_>) -> Option<Vec<u8>> {
        let place = packet.fragment()?;
        let (kind, data) = match packet {
            Packet::V4(p) => (p.protocol(), p.payload()),
            Packet::V6(p) if p.next_header() == protocol::FRAGMENT => {
                let data = p.as_bytes().get(Ipv6::HEADER..)?;
                (*data.first()?, data.get(HEADER..)?)
            }
            Packet::V6(_) => return None,
        };
        let of_name = if packet.src().is_ipv4() { kind } else { 0 };
        let name = (packet.src(), packet.dst(), of_name, place.id);
        self.make_room(now, name);
        let partial = self.under_way.entry(name).or_insert_with(|| Partial {
            since: now,
            pieces: BTreeMap::new(),
            whole: None,
            first: None,
            spoilt: false,
        });
        if place.offset == 0 && partial.first.is_none() {
            partial.first = Some((packet.traffic_class(), packet.hop_limit(), kind));
        }
        partial.add(place.offset.into(), place.more, data);
        if !partial.is_whole() {
            return None;
        }
        let partial = self.under_way.remove(&name)?;
        let ((class, limit, kind), payload) = (partial.first?, partial.pieces.into_values().flatten());
        let payload: Vec<u8> = payload.collect();
        build(packet.src(), packet.dst(), (class, limit, kind), &payload)
    }

    /// What is too old goes; and for a datagram that is new the oldest of its peer, or of all, if there are too many.
    fn make_room(&mut self, now: Instant, name: Name) {
        self.under_way.retain(|_, partial| now - partial.since < PATIENCE);
        if self.under_way.contains_key(&name) {
            return;
        }
        let ends = (name.0, name.1);
        let of_peer = |other: &Name| (other.0, other.1) == ends;
        let peers = self.under_way.keys().filter(|other| of_peer(other)).count() >= PEERS_MOST;
        if !peers && self.under_way.len() < MOST {
            return;
        }
        let those = self.under_way.iter().filter(|(other, _)| !peers || of_peer(other));
        let oldest = those.min_by_key(|(_, partial)| partial.since).map(|(name, _)| *name);
        oldest.and_then(|name| self.under_way.remove(&name));
    }

    /// No more is held than the limits say.
    pub(super) fn is_bounded(&self) {
        assert!(self.under_way.len() <= MOST);
        assert!(self.under_way.values().all(|partial| partial.pieces.len() <= PIECES_MOST));
    }

    /// Datagrams under way.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.under_way.len()
    }
}

impl Partial {
    fn add(&mut self, at: usize, more: bool, data: &[u8]) {
        if self.spoilt || self.pieces.get(&at).is_some_and(|same| same == data) {
            return;
        }
        let end = at + data.len();
        let before = self.pieces.range(..=at).next_back().map_or(0, |(at, data)| at + data.len());
        let behind = self.pieces.range(at..).next().map_or(usize::MAX, |(at, _)| *at);
        let last = self.whole.is_some_and(|whole| end > whole || (!more && end != whole));
        let fits = (!more || data.len().is_multiple_of(8))
            && !data.is_empty()
            && end <= usize::from(u16::MAX)
            // "if any of the fragments being reassembled overlap with any other fragments being reassembled for the same packet, reassembly of
            // that packet must be abandoned and all the fragments that have been received for that packet must be discarded" (RFC 8200
            // section 4.5)
            && before <= at
            && end <= behind
            && !last
            && (more || self.pieces.last_key_value().is_none_or(|(at, data)| at + data.len() <= end))
            && self.pieces.len() < PIECES_MOST;
        if !fits {
            self.spoilt = true;
            self.pieces.clear();
            return;
        }
        if !more {
            self.whole = Some(end);
        }
        self.pieces.insert(at, data.to_vec());
    }

    fn is_whole(&self) -> bool {
        // None overlaps another, and none is behind the end.
        !self.spoilt && self.whole == Some(self.pieces.values().map(Vec::len).sum())
    }
}

fn build(src: IpAddr, dst: IpAddr, (class, limit, kind): (u8, u8, u8), payload: &[u8]) -> Option<Vec<u8>> {
    Some(match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header {
                tos: class,
                ttl: limit,
                dont_fragment: false,
                ..Ipv4Header::new(src, dst, kind)
            };
            [&header.to_bytes(payload.len()).ok()?[..], payload].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header =
                Ipv6Header { traffic_class: class, hop_limit: limit, ..Ipv6Header::new(src, dst, kind) };
            [&header.to_bytes(payload.len()).ok()?[..], payload].concat()
        }
        _ => return None,
    })
}

/// An IPv6 packet without extension headers as fragments of this identification; as it is, if it is small enough.
pub(super) fn fragments(packet: Vec<u8>, id: u32) -> Vec<Vec<u8>> {
    if packet.len() <= NARROWEST {
        return vec![packet];
    }
    let Some((header, payload)) = packet.split_first_chunk::<{ Ipv6::HEADER }>() else { return Vec::new() };
    let step = (NARROWEST - Ipv6::HEADER - HEADER) / 8 * 8;
    let pieces = payload.len().div_ceil(step);
    let piece = |(i, data): (usize, &[u8])| {
        let [l0, l1] = u16::try_from(data.len() + HEADER).unwrap_or(0).to_be_bytes();
        let place = u16::try_from(i * step).unwrap_or(0) | u16::from(i + 1 < pieces);
        let ([p0, p1], [i0, i1, i2, i3]) = (place.to_be_bytes(), id.to_be_bytes());
        let mut header = *header;
        let kind = std::mem::replace(&mut header[6], protocol::FRAGMENT);
        (header[4], header[5]) = (l0, l1);
        [&header[..], &[kind, 0, p0, p1, i0, i1, i2, i3], data].concat()
    };
    payload.chunks(step).enumerate().map(piece).collect()
}

/// Whether a packet of IPv4 is one of several of its datagram.
pub(super) fn is_fragment_v4(packet: &[u8]) -> bool {
    Ipv4::parse(packet).is_ok_and(|packet| packet.fragment().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_wire::ip::udp;
    use std::net::Ipv6Addr;

    fn tag(n: u16) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, n)
    }

    fn datagram(from: u16, len: usize) -> Vec<u8> {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut packet = Vec::new();
        udp::build((tag(from), 1).into(), (tag(0), 2).into(), &data, &mut packet).expect("it fits");
        packet
    }

    fn take(it: &mut Reassembly, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        it.take(now, &Packet::parse(packet).expect("a packet"))
    }

    const T0: Instant = Instant::ZERO;

    #[test]
    fn what_is_cut_is_put_together_in_any_order() {
        for len in [1_300, 3_000, 60_000] {
            let whole = datagram(1, len);
            let mut pieces = fragments(whole.clone(), 7);
            assert!(pieces.len() > 1 && pieces.iter().all(|p| p.len() <= NARROWEST));
            assert!(pieces.iter().all(|p| Packet::parse(p).is_ok_and(|p| p.fragment().is_some())));
            for _ in 0..2 {
                let mut it = Reassembly::default();
                let (last, others) = pieces.split_last().expect("several");
                for piece in others {
                    assert_eq!(take(&mut it, T0, piece), None);
                    assert_eq!(take(&mut it, T0, piece), None, "the same again");
                }
                assert_eq!(take(&mut it, T0, last), Some(whole.clone()));
                assert_eq!(it.len(), 0);
                pieces.reverse();
            }
        }
        let small = datagram(1, 1_000);
        assert_eq!(fragments(small.clone(), 7), [small]);
    }

    /// The fragments of one datagram are put together with those of no other.
    #[test]
    fn datagrams_are_told_apart() {
        let mut it = Reassembly::default();
        let (a, b) = (fragments(datagram(1, 2_000), 7), fragments(datagram(1, 2_001), 8));
        let other = fragments(datagram(2, 2_000), 7);
        for piece in [&a[0], &b[1], &other[0]] {
            assert_eq!(take(&mut it, T0, piece), None);
        }
        assert_eq!(take(&mut it, T0, &a[1]), Some(datagram(1, 2_000)));
        assert_eq!(take(&mut it, T0, &b[0]), Some(datagram(1, 2_001)));
        assert_eq!(take(&mut it, T0, &other[1]), Some(datagram(2, 2_000)));
    }

    #[test]
    fn what_does_not_come_within_a_minute_is_not_waited_for() {
        let pieces = fragments(datagram(1, 2_000), 7);
        let mut it = Reassembly::default();
        take(&mut it, T0, &pieces[0]);
        assert_eq!(take(&mut it, T0 + PATIENCE, &pieces[1]), None);
        assert_eq!(it.len(), 1, "the later one waits");
        assert!(take(&mut it, T0 + PATIENCE, &pieces[0]).is_some());
    }

    /// One peer's fragments do not keep those of another out; and there is an end to all of them together.
    #[test]
    fn fragments_without_end_are_bounded() {
        let mut it = Reassembly::default();
        let good = fragments(datagram(9, 2_000), 7);
        take(&mut it, T0, &good[0]);
        for id in 0..1_000 {
            take(&mut it, T0, &fragments(datagram(1, 2_000), id)[0]);
            assert!(it.len() <= 1 + PEERS_MOST);
        }
        assert!(take(&mut it, T0, &good[1]).is_some());
        for peer in 10..500 {
            take(&mut it, T0, &fragments(datagram(peer, 2_000), 7)[0]);
            assert!(it.len() <= MOST);
        }
    }

    /// Overlaps, holes behind the end, odd lengths, too many pieces: the datagram is lost, and what comes of it later too.
    #[test]
    fn contradictions_lose_the_datagram() {
        let piece = |at: u16, more: bool, len: usize| {
            let mut packet = fragments(datagram(1, 2_000), 7)[0][..48].to_vec();
            packet[42..44].copy_from_slice(&(at | u16::from(more)).to_be_bytes());
            packet[4..6].copy_from_slice(&(8 + len as u16).to_be_bytes());
            packet.resize(48 + len, 1);
            packet
        };
        for (case, ends) in [
            ("it overlaps", [piece(0, true, 16), piece(8, true, 16)]),
            ("it overlaps what is behind", [piece(16, true, 16), piece(8, true, 16)]),
            ("two ends", [piece(16, false, 8), piece(24, false, 8)]),
            ("behind the end", [piece(16, false, 8), piece(32, true, 8)]),
            ("an end before", [piece(32, true, 8), piece(16, false, 8)]),
            ("an odd length", [piece(32, true, 8), piece(16, true, 7)]),
            ("nothing in it", [piece(32, true, 8), piece(16, true, 0)]),
            ("beyond 64 KiB", [piece(0, true, 8), piece(65_528, false, 16)]),
        ] {
            let mut it = Reassembly::default();
            assert!(ends.iter().all(|p| take(&mut it, T0, p).is_none()));
            let rest = [piece(0, true, 8), piece(8, true, 8), piece(16, true, 8), piece(24, false, 8)];
            assert!(rest.iter().all(|p| take(&mut it, T0, p).is_none()), "{case}");
            assert!(it.under_way.values().all(|p| p.spoilt && p.pieces.is_empty()), "{case}");
        }
        let mut it = Reassembly::default();
        for at in 0..=PIECES_MOST as u16 {
            take(&mut it, T0, &piece(at * 8, true, 8));
        }
        assert!(it.under_way.values().all(|p| p.spoilt));
    }
}
