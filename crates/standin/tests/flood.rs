//! A hostile LAN: answers are limited, memory is bounded, and pings do not end connections.

mod common;

use common::*;
use dormouse_sansio::Instant;
use dormouse_standin::{DeviceId, Kind, Limits, Rate, Reason, Service, StandIn, Verdict};
use dormouse_wire::dns::{AUTHORITATIVE, Header, IN, Name, RESPONSE, Record, Section};
use dormouse_wire::ip::tcp::ACK;
use std::net::{IpAddr, Ipv4Addr};

fn ping(to: IpAddr) -> Vec<u8> {
    common::ping(PEER, to, false)
}

#[test]
fn pings_are_limited_and_leave_connections_alone() {
    let limits = Limits { answers: Rate { per_second: 10, burst: 5 }, ..Limits::default() };
    let (device, peer) = connection();
    let mut standin = enrolled(limits);
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    pong(&mut standin, DEVICE, ADDRESS);
    sleep(&mut standin, at(0));
    let answered = (0..1_000).filter(|n| !give(&mut standin, at(*n), &ping(ADDRESS)).1.is_empty()).count();
    assert!((10..=16).contains(&answered), "{answered} in a second");
    assert_eq!(
        give(&mut standin, at(1_000), &peer.at(89_999).segment(ACK, b"")).0,
        Verdict::Answered(Kind::TcpKeepAlive)
    );
    let counters = standin.counters(DEVICE).expect("known");
    assert_eq!(counters.answered[&Kind::Echo] + counters.dropped[&Reason::RateLimited], 1_000);
}

#[test]
fn all_devices_share_one_limit() {
    let limits = Limits { total_answers: Rate { per_second: 1, burst: 10 }, ..Limits::default() };
    let mut standin = StandIn::new(limits);
    let mut answered = 0;
    for n in 0..40u8 {
        let address = IpAddr::V4(Ipv4Addr::new(10, 55, 0, n));
        standin.enrol(Instant::ZERO, DeviceId(n.into()), &[address]);
        pong(&mut standin, DeviceId(n.into()), address);
        standin.sleeps(at(0), DeviceId(n.into()), Service::FULL, at(100_000));
        let mut out = Vec::new();
        standin.handle(at(1), DeviceId(n.into()), &ping(address), &mut out);
        answered += usize::from(!out.is_empty());
    }
    assert_eq!(answered, 10);
}

#[test]
fn only_packets_that_name_a_connection_get_into_the_higher_classes() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits { device_packets: 8, ..Limits::default() });
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    sleep(&mut standin, at(0));
    let data = peer.segment(ACK, b"what matters");
    give(&mut standin, at(1), &data);
    for n in 0..2_000u32 {
        let stranger = End { here: (PEER, 1_000 + (n % 60_000) as u16), sequence: n * 77, ..peer };
        let flags = [ACK, dormouse_wire::ip::tcp::RST, dormouse_wire::ip::tcp::FIN | ACK][n as usize % 3];
        give(&mut standin, at(2), &stranger.segment(flags, &[0; 40]));
    }
    let kept = standin.wakes(at(3), DEVICE);
    assert!(kept.contains(&data.into_boxed_slice()) && kept.len() <= 8);
}

#[test]
fn devices_beyond_the_bound_are_not_stood_in_for() {
    let mut standin = StandIn::new(Limits { devices: 2, ..Limits::default() });
    let enrol = |standin: &mut StandIn, n: u64| standin.enrol(Instant::ZERO, DeviceId(n), &[]);
    assert!(
        enrol(&mut standin, 1) && enrol(&mut standin, 2) && !enrol(&mut standin, 3) && enrol(&mut standin, 1)
    );
    assert!(!standin.sleeps(at(0), DeviceId(3), Service::FULL, at(1)));
    standin.forget(DeviceId(1));
    assert!(enrol(&mut standin, 3));
}

/// A device with a great many connections: the oldest is forgotten, the newest are known.
#[test]
fn connections_are_bounded() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits::default());
    for port in 0..2_000u16 {
        let one = End { here: (ADDRESS, 10_000 + port), ..device };
        standin.observe_inbound(at(port.into()), DEVICE, &one.segment(ACK, b""));
    }
    sleep(&mut standin, at(3_000));
    let mut known = 0;
    for port in 0..2_000u16 {
        let one = End { there: (ADDRESS, 10_000 + port), sequence: 89_999, ..peer };
        let now = at(4_000 + u64::from(port) * 100);
        known += usize::from(
            give(&mut standin, now, &one.segment(ACK, b"")).0 == Verdict::Answered(Kind::TcpKeepAlive),
        );
        assert!(port < 1_999 || known > 0, "the newest is forgotten");
    }
    assert_eq!(known, 256);
}

#[test]
fn announcements_are_bounded() {
    let mut standin = enrolled(Limits::default());
    for n in 0..500u32 {
        let mut message = Vec::new();
        Header { flags: RESPONSE | AUTHORITATIVE, answers: 1, ..Header::default() }.emit(&mut message);
        let name = Name::from_labels([format!("host{n}"), "local".into()]).expect("a name");
        let record =
            Record { section: Section::Answer, name, kind: 16, class: IN, ttl: 4_500, data: vec![0; 200] };
        record.emit(4_500, &mut message).expect("short");
        let group = (IpAddr::from([224, 0, 0, 251]), 5353);
        standin.observe_inbound(at(0), DEVICE, &datagram((ADDRESS, 5353), group, &message));
    }
    sleep(&mut standin, at(1));
    let mut known = 0;
    for n in 0..500u32 {
        let mut query = Vec::new();
        Header { questions: 1, ..Header::default() }.emit(&mut query);
        query.extend_from_slice(
            Name::from_labels([format!("host{n}"), "local".into()]).expect("a name").as_bytes(),
        );
        query.extend_from_slice(&[0, 16, 0, 1]);
        let asked = datagram((NEIGHBOUR, 5353), (ADDRESS, 5353), &query);
        known += usize::from(
            give(&mut standin, at(1_000 * u64::from(n + 1)), &asked).0 == Verdict::Answered(Kind::Mdns),
        );
    }
    assert!((20..=64).contains(&known), "{known} records in 8 KiB");
}
