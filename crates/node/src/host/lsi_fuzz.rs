//! The body of the fuzz target of what a program of IPv4 says to peers of HIP: translation, reassembly, and names. Not for use in a program.
//!
//! The input is a story: each step has a byte for its kind, two for its length, and its bytes, of which packets are made whose addresses
//! mean someone here, for chance does not find them.

use super::lsi::{Apart, Lsis, Translator};
use super::resolver::PeerNames;
use crate::config::directory::resolver;
use dormouse_sansio::Instant;
use dormouse_sansio::packet::Plan;
use dormouse_wire::ip::{Ipv4, Ipv6, Packet, flow, protocol};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const OURS: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(1, 0, 0, 1), Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 1));
const PEERS: [(Ipv4Addr, Ipv6Addr); 2] = [
    (Ipv4Addr::new(1, 0, 0, 2), Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 2)),
    (Ipv4Addr::new(1, 0, 0, 3), Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 3)),
];

/// The bytes with these addresses, if they are long enough for a header of IPv4.
fn v4(bytes: &[u8], src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    if let Some(ends) = packet.get_mut(12..20) {
        ends.copy_from_slice(&[src.octets(), dst.octets()].concat());
    }
    packet
}

/// The same of IPv6.
fn v6(bytes: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    if let Some(ends) = packet.get_mut(8..40) {
        ends.copy_from_slice(&[src.octets(), dst.octets()].concat());
    }
    packet
}

/// What goes into the tunnel is between our tag and the peer's, and a packet.
fn is_of_tags(packet: &[u8], peer: Ipv6Addr) {
    let parsed = Packet::parse(packet).unwrap_or_else(|e| panic!("no packet goes into the tunnel: {e}"));
    assert_eq!((parsed.src(), parsed.dst()), (OURS.1.into(), IpAddr::V6(peer)));
}

/// What a program gets is from the peer, by its tag or as IPv4 by its identifier; what came as no packet stays none.
fn is_of_peer(packet: &[u8], (lsi, tag): (Ipv4Addr, Ipv6Addr)) {
    let Ok(parsed) = Packet::parse(packet) else { return };
    let ends = (parsed.src(), parsed.dst());
    let by_tag = ends == (tag.into(), OURS.1.into());
    assert!(by_tag || ends == (lsi.into(), OURS.0.into()), "{ends:?}");
}

/// See the module's text.
pub(crate) fn fuzz(data: &[u8]) {
    let mut translator = Translator::default();
    let peers = PEERS.map(|(lsi, tag)| (lsi, (tag, OURS.1)));
    translator.set(Lsis::new(OURS.0, peers, BTreeSet::from([(protocol::UDP, 53), (protocol::TCP, 22)])));
    let names = PEERS.map(|(lsi, tag)| (tag, Some(lsi)));
    let names = ["far", "far.away"].into_iter().zip(names);
    let names = PeerNames::new(resolver(2), [OURS.1], "hip", names);
    let (mut now, mut rest) = (Instant::ZERO, data);
    while let [kind, l0, l1, more @ ..] = rest {
        let (bytes, behind) = more.split_at(usize::from(u16::from_be_bytes([*l0, *l1])).min(more.len()));
        rest = behind;
        let (lsi, tag) = PEERS[usize::from(*kind >> 7)];
        match kind & 7 {
            // A program here, by the peer's identifier.
            0 | 1 => {
                let packet = v4(bytes, OURS.0, lsi);
                for packet in translator.outbound(now, &packet).unwrap_or_default() {
                    is_of_tags(&packet, tag);
                    if let Some((original, peer)) = translator.original(now, &packet) {
                        assert!(Ipv4::parse(&original).is_ok() && peer == lsi);
                    }
                }
            }
            // The peer: whole, in pieces, or an error.
            2 | 3 => {
                let mut packet = v6(bytes, tag, OURS.1);
                let Some(flow) = flow(&packet) else { continue };
                let Some((header, payload)) = packet.split_at_mut_checked(Ipv6::HEADER) else { continue };
                match translator.apart(now, &flow, header, payload) {
                    Apart::Packet(whole) => is_of_peer(&whole, (lsi, tag)),
                    Apart::Waits => {}
                    Apart::No => {
                        if let Some(header) = translator.inbound(now, &flow, header, payload) {
                            is_of_peer(&[&header[..], payload].concat(), (lsi, tag));
                        }
                    }
                }
            }
            // What is answered here in its stead.
            4 => {
                let mut packet = v6(bytes, tag, OURS.1);
                translator.answer(now, &mut packet);
                is_of_peer(&packet, (lsi, tag));
            }
            // A program here, by the peer's tag.
            5 => {
                let packet = v6(bytes, OURS.1, tag);
                if let Some(flow) = flow(&packet) {
                    translator.ends(&flow, &packet);
                }
            }
            // A question about names: it is answered to who asks, if at all.
            6 => {
                let server = resolver(2);
                let packet = v6(bytes, OURS.1, server);
                if let Some(names) = &names
                    && let Plan::Answer(answer) = names.answer(&packet)
                {
                    let parsed = Packet::parse(&answer).unwrap_or_else(|e| panic!("no packet answers: {e}"));
                    assert_eq!((parsed.src(), parsed.dst()), (server.into(), OURS.1.into()));
                }
            }
            // Time passes.
            _ => {
                let seconds = bytes
                    .iter()
                    .fold(0_u64, |all, byte| all.saturating_mul(4).saturating_add(u64::from(*byte)));
                now += Duration::from_secs(seconds.min(100_000));
            }
        }
    }
    translator.is_sound();
}
