//! ICMP and ICMPv6 echo, neighbour solicitations, and errors.

mod common;

use common::*;
use dormouse_sansio::Instant;
use dormouse_standin::{Class, DeviceId, Kind, Limits, Reason, Service, StandIn, Verdict};
use dormouse_wire::ip::icmp::{Echo, too_big};
use dormouse_wire::ip::nd::Solicitation;
use dormouse_wire::ip::tcp::ACK;
use dormouse_wire::ip::{Ipv6Header, checksum, protocol};
use std::net::{IpAddr, Ipv6Addr};

fn ping(dst: IpAddr) -> Vec<u8> {
    let src = if dst.is_ipv4() { PEER } else { "fd99::2".parse().expect("an address") };
    let mut out = Vec::new();
    Echo { src, dst, reply: false, id: 9, sequence: 3, payload: b"are you there" }
        .build(&mut out)
        .expect("echo");
    out
}

#[test]
fn a_ping_is_answered_with_its_own_data() {
    let device6 = IpAddr::V6(Ipv6Addr::new(0xfd55, 0, 0, 0, 0, 0, 0, 7));
    let mut standin = StandIn::new(Limits::default());
    assert!(standin.enrol(Instant::ZERO, DEVICE, &[ADDRESS, device6]));
    sleep(&mut standin, at(0));
    for address in [ADDRESS, device6] {
        let (verdict, answer) = give(&mut standin, at(1), &ping(address));
        assert_eq!(verdict, Verdict::Answered(Kind::Echo));
        let reply = Echo::parse(&answer).expect("a reply with a right checksum");
        assert_eq!((reply.src, reply.reply, reply.id, reply.sequence), (address, true, 9, 3));
        assert_eq!(reply.payload, b"are you there");
    }
}

#[test]
fn an_address_behind_the_device_is_not_answered_for() {
    let mut standin = enrolled(Limits::default());
    sleep(&mut standin, at(0));
    let (verdict, answer) = give(&mut standin, at(1), &ping("10.55.0.8".parse().expect("an address")));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Datagram), 0));
}

#[test]
fn nothing_is_answered_or_kept_for_a_device_that_did_not_ask_for_it() {
    let mut standin = enrolled(Limits::default());
    let until = at(3_600_000);
    standin.sleeps(at(0), DEVICE, Service { answer: false, keep: true }, until);
    assert_eq!(give(&mut standin, at(1), &ping(ADDRESS)), (Verdict::Buffered(Class::Datagram), vec![]));
    standin.sleeps(at(2), DEVICE, Service { answer: true, keep: false }, until);
    assert_eq!(give(&mut standin, at(3), &ping(ADDRESS)).0, Verdict::Answered(Kind::Echo));
    assert_eq!(give(&mut standin, at(4), &plain(b"x")), (Verdict::Dropped(Reason::NotKept), vec![]));
}

#[test]
fn a_solicitation_for_its_address_is_answered_and_another_is_not() {
    let device: Ipv6Addr = "fd55::7".parse().expect("an address");
    let solicit = |target: Ipv6Addr| {
        let src: Ipv6Addr = "fd55::1".parse().expect("an address");
        let mut message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
        let sum = checksum::pseudo_header(src.into(), target.into(), protocol::ICMPV6, message.len());
        let sum = sum.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = Ipv6Header { hop_limit: 255, ..Ipv6Header::new(src, target, protocol::ICMPV6) };
        [&header.to_bytes(message.len()).expect("short")[..], &message].concat()
    };
    let mut standin = StandIn::new(Limits::default());
    standin.enrol(Instant::ZERO, DeviceId(7), &[device.into()]);
    sleep(&mut standin, at(0));
    let asked = solicit(device);
    assert!(Solicitation::parse(&asked).is_some());
    assert_eq!(give(&mut standin, at(1), &asked).0, Verdict::Answered(Kind::Neighbour));
    let other = solicit("fd55::8".parse().expect("an address"));
    assert_eq!(give(&mut standin, at(2), &other), (Verdict::Dropped(Reason::Discovery), vec![]));
}

#[test]
fn an_error_about_a_connection_outlives_everything_else() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    let mut error = Vec::new();
    assert!(too_big(&device.segment(ACK, &[0; 900]), PEER, 1400, &mut error));
    assert_eq!(give(&mut standin, at(2_000), &error).0, Verdict::Buffered(Class::Control));
    let mut stray = Vec::new();
    assert!(too_big(&peer.segment(ACK, &[0; 900]), PEER, 1400, &mut stray));
    // The answer of `too_big` goes to the sender of what it quotes.
    stray[16..20].copy_from_slice(&[10, 55, 0, 7]);
    assert_eq!(give(&mut standin, at(2_000), &stray).0, Verdict::Buffered(Class::Datagram));
}
