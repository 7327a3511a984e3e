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
    common::ping(src, dst, false)
}

#[test]
fn a_ping_is_answered_with_its_own_data() {
    let device6 = IpAddr::V6(Ipv6Addr::new(0xfd55, 0, 0, 0, 0, 0, 0, 7));
    let mut standin = StandIn::new(Limits::default());
    assert!(standin.enrol(Instant::ZERO, DEVICE, &[ADDRESS, device6]));
    pong(&mut standin, DEVICE, ADDRESS);
    pong(&mut standin, DEVICE, device6);
    sleep(&mut standin, at(0));
    for address in [ADDRESS, device6] {
        let (verdict, answer) = give(&mut standin, at(1), &ping(address));
        assert_eq!(verdict, Verdict::Answered(Kind::Echo));
        let reply = Echo::parse(&answer).expect("a reply with a right checksum");
        assert_eq!((reply.src, reply.reply, reply.id, reply.sequence), (address, true, 9, 3));
        assert_eq!(reply.payload, b"are you there");
    }
}

/// Before, every ping was answered, also in the place of a device whose firewall drops them: sleep made it visible.
#[test]
fn a_device_that_answers_no_pings_is_not_answered_for() {
    let device6 = IpAddr::V6(Ipv6Addr::new(0xfd55, 0, 0, 0, 0, 0, 0, 7));
    let mut standin = StandIn::new(Limits::default());
    assert!(standin.enrol(Instant::ZERO, DEVICE, &[ADDRESS, device6]));
    // It has answered by IPv4 alone; and what another host says teaches nothing.
    pong(&mut standin, DEVICE, ADDRESS);
    standin.observe_outbound(at(0), DEVICE, &common::ping("fd99::2".parse().expect("one"), device6, true));
    sleep(&mut standin, at(1));
    assert_eq!(give(&mut standin, at(2), &ping(ADDRESS)).0, Verdict::Answered(Kind::Echo));
    assert_eq!(give(&mut standin, at(2), &ping(device6)), (Verdict::Buffered(Class::Notice), vec![]));
    standin.wakes(at(3), DEVICE);
    // One that is lost on the way means nothing; a row of them does.
    for (n, verdict) in
        (1..=5).zip([Verdict::Answered(Kind::Echo); 4].into_iter().chain([Verdict::Buffered(Class::Notice)]))
    {
        standin.observe_outbound(at(4), DEVICE, &ping(ADDRESS));
        sleep(&mut standin, at(4));
        assert_eq!(give(&mut standin, at(5), &ping(ADDRESS)).0, verdict, "{n} were not answered");
        standin.wakes(at(6), DEVICE);
    }
    pong(&mut standin, DEVICE, ADDRESS);
    sleep(&mut standin, at(7));
    assert_eq!(give(&mut standin, at(8), &ping(ADDRESS)).0, Verdict::Answered(Kind::Echo));
}

#[test]
fn an_address_behind_the_device_is_not_answered_for() {
    let mut standin = enrolled(Limits::default());
    pong(&mut standin, DEVICE, ADDRESS);
    sleep(&mut standin, at(0));
    let (verdict, answer) = give(&mut standin, at(1), &ping("10.55.0.8".parse().expect("an address")));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Notice), 0));
}

#[test]
fn nothing_is_answered_or_kept_for_a_device_that_did_not_ask_for_it() {
    let mut standin = enrolled(Limits::default());
    pong(&mut standin, DEVICE, ADDRESS);
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

/// Before, errors about a known connection stood above everything, did not age, and each counted: a host that knows the addresses and
/// ports of one could fill the room of a device for as long as it slept, and drive its data out.
#[test]
fn errors_age_are_kept_once_and_drive_nothing_out() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits { device_packets: 4, ..Limits::default() });
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    sleep(&mut standin, at(1_000));
    let error = |port: u16, mtu: u32| {
        let one = End { here: (ADDRESS, port), ..device };
        let mut error = Vec::new();
        assert!(too_big(&one.segment(ACK, &[0; 900]), PEER, mtu, &mut error));
        error
    };
    // Of one flow the newest stays, whether the connection is known or not.
    for (port, mtu) in [(40_000, 1_400), (40_000, 1_300), (40_000, 1_280), (7, 1_400), (7, 1_280)] {
        assert_eq!(give(&mut standin, at(2_000), &error(port, mtu)).0, Verdict::Buffered(Class::Notice));
    }
    assert_eq!(standin.waiting().0, 2);
    // All other packets may take their room, and they take none.
    let (data, call) = (peer.segment(ACK, b"what matters"), plain(b"a call"));
    give(&mut standin, at(3_000), &data);
    give(&mut standin, at(3_000), &call);
    for n in 0..10 {
        give(&mut standin, at(3_000), &plain(&[n]));
    }
    for port in 50_000..50_100 {
        assert_eq!(give(&mut standin, at(3_000), &error(port, 1_280)).0, Verdict::Dropped(Reason::Full));
    }
    let kept = standin.wakes(at(4_000), DEVICE);
    assert_eq!((kept.len(), kept.contains(&data.into_boxed_slice())), (4, true));
    // Alone they are forgotten in half a minute.
    sleep(&mut standin, at(5_000));
    give(&mut standin, at(6_000), &error(40_000, 1_280));
    assert_eq!(standin.wakes(at(36_001), DEVICE), Vec::<Box<[u8]>>::new());
}
