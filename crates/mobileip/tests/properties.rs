//! What must hold of every packet: a tunnel gives back what went in, within its width; any change of an authenticated message is refused; ICMP
//! errors from inside of a tunnel reach the sender.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_mobileip::{Authenticator, Discard, Refusal, Relay, TUNNEL_HEADER, Tunnel, decapsulate};
use dormouse_sansio::Instant;
use dormouse_wire::ip::{Ecn, Ipv4, icmp, set_ecn, set_hop_limit, udp};
use dormouse_wire::mobileip::{Code, Message, Packet, Reply, authenticator, kind};
use proptest::prelude::*;

const ENTRY: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
const EXIT: Ipv4Addr = Ipv4Addr::new(10, 51, 0, 1);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);

fn packet(len: usize, ttl: u8, whole: bool) -> Vec<u8> {
    let data: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
    let mut out = Vec::new();
    udp::build(SocketAddr::new(SENDER.into(), 7), SocketAddr::new(HOST.into(), 7), &data, &mut out)
        .expect("it fits");
    if !whole {
        out[6] &= !0x40;
        out[10..12].fill(0);
        let sum = dormouse_wire::ip::checksum::checksum(&out[..20]).to_be_bytes();
        out[10..12].copy_from_slice(&sum);
    }
    set_hop_limit(&mut out, ttl);
    out
}

/// Puts fragments together as a receiver does.
fn whole(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut data = vec![];
    for (n, bytes) in fragments.iter().enumerate() {
        let ip = Ipv4::parse(bytes).expect("a packet");
        assert!(ip.checksum_ok());
        let place = ip.fragment();
        assert_eq!(place.map_or(0, |f| usize::from(f.offset)), data.len());
        assert_eq!(place.is_some_and(|f| f.more), n + 1 < fragments.len());
        data.extend_from_slice(ip.payload());
    }
    data
}

proptest! {
    #[test]
    fn a_tunnel_gives_back_what_went_in(len in 0_usize..4_000, ttl in 0_u8..5, keeps: bool, forwards: bool, width in 576_u16..1_600) {
        let inner = packet(len, ttl, keeps);
        let ip = Ipv4::parse(&inner).expect("a packet");
        let mut tunnel = Tunnel::new(ENTRY, EXIT, width);
        let mut out = Vec::new();
        let done = tunnel.encapsulate(Instant::ZERO, &ip, forwards, |p| out.push(p));
        let left = ttl.saturating_sub(u8::from(forwards));
        let fits = inner.len() <= usize::from(width - TUNNEL_HEADER);
        match done {
            Err(Refusal::Expired) => prop_assert_eq!(left, 0),
            Err(Refusal::TooBig(mtu)) => prop_assert!(keeps && !fits && mtu == width - TUNNEL_HEADER),
            Err(Refusal::Loop) => prop_assert!(false),
            Ok(()) => {
                prop_assert!(left > 0 && (fits || !keeps));
                prop_assert!(out.iter().all(|p| p.len() <= usize::from(width)));
                let inside: Vec<Vec<u8>> = out
                    .iter()
                    .map(|p| decapsulate(&Ipv4::parse(p).expect("a packet")).expect("a tunnelled packet"))
                    .collect();
                prop_assert!(inside.iter().all(|p| p[8] == left));
                prop_assert_eq!(whole(&inside), &inner[20..]);
                if let [one] = &inside[..] {
                    let mut expected = inner.clone();
                    set_hop_limit(&mut expected, left);
                    prop_assert_eq!(one, &expected);
                }
            }
        }
    }

    #[test]
    fn any_change_of_a_message_is_noticed(at in 0_usize..1_000, bit in 0_u8..8, sha: bool) {
        let algorithm = if sha { Authenticator::HmacSha256 } else { Authenticator::HmacMd5 };
        let key = Secret::from([7; 16]);
        let reply = Reply { code: Code::Accepted, lifetime: 300, home: HOST, agent: ENTRY, id: 1 << 40 | 77 };
        let mut message = Vec::new();
        Message::Reply(reply).emit(&mut message);
        let compute = |covered: &[u8]| algorithm.compute(&key, covered);
        authenticator(kind::MOBILE_HOME, 256, algorithm.len(), &mut message, compute).expect("it fits");
        let holds = |message: &[u8]| {
            let Ok(packet) = Packet::parse(message) else { return false };
            let Some(extension) = packet.only(kind::MOBILE_HOME) else { return false };
            let Some((256, mac)) = extension.authentication() else { return false };
            algorithm.verify(&key, &message[..extension.covered()], mac)
        };
        prop_assert!(holds(&message));
        let at = at % message.len();
        message[at] ^= 1 << bit;
        prop_assert!(!holds(&message));
    }
}

#[test]
fn errors_from_inside_reach_the_sender() {
    let now = Instant::ZERO;
    let mut tunnel = Tunnel::new(ENTRY, EXIT, 1_500);
    let inner = packet(1_400, 64, true);
    let mut outer = Vec::new();
    let sent = tunnel.encapsulate(now, &Ipv4::parse(&inner).expect("a packet"), true, |p| outer = p);
    assert_eq!(sent, Ok(()));
    let router = Ipv4Addr::new(10, 60, 1, 1);
    let error = |kind: u8, code: u8, mtu: u16| {
        let mut out = Vec::new();
        let told = match (kind, code) {
            (3, 4) => icmp::error_too_big(&outer, router, mtu, &mut out),
            _ => icmp::error(&outer, router, kind, code, &mut out),
        };
        assert!(told);
        out
    };
    let mut meaning = |kind, code, mtu| {
        let bytes = error(kind, code, mtu);
        let ip = Ipv4::parse(&bytes).expect("a packet");
        tunnel.note(now, &icmp::parse_error(&ip).expect("an error"))
    };
    assert_eq!(meaning(3, 1, 0), Some(Relay::Unreachable));
    assert_eq!(meaning(11, 0, 0), Some(Relay::Unreachable));
    // Source quench, redirect, source route failed: not for the sender.
    assert_eq!((meaning(4, 0, 0), meaning(5, 0, 0), meaning(3, 5, 0)), (None, None, None));
    assert_eq!(meaning(3, 4, 1_300), Some(Relay::TooBig(1_280)));
    // No message can make it narrower than this.
    assert_eq!(meaning(3, 4, 68), Some(Relay::TooBig(556)));
    assert_eq!(tunnel.mtu(now), 556);
    let later = now + Duration::from_secs(601);
    assert_eq!(tunnel.mtu(later), 1_480);
    let mut other = Tunnel::new(ENTRY, Ipv4Addr::new(10, 52, 0, 1), 1_500);
    let bytes = error(3, 1, 0);
    let ip = Ipv4::parse(&bytes).expect("a packet");
    assert_eq!(other.note(now, &icmp::parse_error(&ip).expect("an error")), None);
}

#[test]
fn a_tunnel_in_itself_is_refused() {
    let mut tunnel = Tunnel::new(ENTRY, EXIT, 1_500);
    let mut inner = packet(10, 64, true);
    inner[12..16].copy_from_slice(&ENTRY.octets());
    let ip = Ipv4::parse(&inner).expect("a packet");
    assert_eq!(tunnel.encapsulate(Instant::ZERO, &ip, true, |_| ()), Err(Refusal::Loop));
}

/// RFC 6040 section 4.2: what is inside cannot say that there was congestion.
#[test]
fn a_mark_that_cannot_be_carried_on_has_a_name_of_its_own() {
    let mut tunnel = Tunnel::new(ENTRY, EXIT, 1_500);
    let inner = packet(10, 64, true);
    let mut outer = Vec::new();
    let ip = Ipv4::parse(&inner).expect("a packet");
    assert_eq!(tunnel.encapsulate(Instant::ZERO, &ip, true, |p| outer = p), Ok(()));
    assert!(set_ecn(&mut outer, Ecn::Ce));
    assert_eq!(decapsulate(&Ipv4::parse(&outer).expect("a packet")), Err(Discard::Congested));
}
