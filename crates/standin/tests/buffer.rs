//! What waits: its order, its age, its bounds, and who gives way.

mod common;

use common::*;
use core::time::Duration;
use dormouse_sansio::Instant;
use dormouse_standin::{Class, DeviceId, Limits, Reason, Service, StandIn, Verdict};
use dormouse_wire::ip::tcp::{ACK, SYN};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

/// As a call looks: RTP version 2, payload type 0.
fn call(n: u8) -> Vec<u8> {
    datagram((PEER, 20_000), (ADDRESS, 20_000), &[0x80, 0, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, n, n])
}

#[test]
fn datagrams_come_out_as_they_came_in() {
    let mut standin = enrolled(Limits::default());
    sleep(&mut standin, at(0));
    let sent: Vec<_> = (0..50u8).map(|n| plain(&[n; 100]).into_boxed_slice()).collect();
    for packet in &sent {
        assert_eq!(give(&mut standin, at(1), packet).0, Verdict::Buffered(Class::Datagram));
    }
    let asleep = standin.asleep(DEVICE).expect("asleep");
    assert_eq!((asleep.packets, asleep.bytes), (50, 50 * 128));
    assert_eq!(standin.wakes(at(2), DEVICE), sent);
    assert_eq!((standin.asleep(DEVICE), standin.waiting()), (None, (0, 0)));
    assert!(standin.handle(at(3), DEVICE, &sent[0], &mut Vec::new()).is_none(), "awake");
}

#[test]
fn each_class_has_its_age() {
    let mut standin = enrolled(Limits::default());
    sleep(&mut standin, at(0));
    let (_, peer) = connection();
    assert_eq!(give(&mut standin, at(0), &call(1)).0, Verdict::Buffered(Class::RealTime));
    give(&mut standin, at(0), &peer.segment(SYN, b""));
    give(&mut standin, at(0), &plain(b"late"));
    give(&mut standin, at(60_000), &plain(b"in time"));
    let kept = standin.wakes(at(121_000), DEVICE);
    assert_eq!(kept, [plain(b"in time").into_boxed_slice()]);
    assert_eq!(standin.counters(DEVICE).expect("known").dropped[&Reason::Expired], 3);
}

#[test]
fn calls_go_before_datagrams_and_datagrams_before_streams() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits { device_packets: 4, ..Limits::default() });
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    sleep(&mut standin, at(0));
    let data = |n: u32| peer.at(90_000 + n * 10).segment(ACK, &[n as u8; 10]);
    give(&mut standin, at(1), &plain(b"first"));
    give(&mut standin, at(1), &call(1));
    give(&mut standin, at(1), &plain(b"second"));
    give(&mut standin, at(1), &call(2));
    for n in 0..4 {
        assert_eq!(
            give(&mut standin, at(2 + u64::from(n) * 200), &data(n)).0,
            Verdict::Buffered(Class::Stream)
        );
    }
    // Nothing of lesser worth is left: a stream is of no use without its beginning, so its end is not taken.
    assert_eq!(give(&mut standin, at(900), &data(4)).0, Verdict::Dropped(Reason::Full));
    assert_eq!(give(&mut standin, at(900), &plain(b"third")).0, Verdict::Dropped(Reason::Full));
    let kept: Vec<_> = (0..4).map(|n| data(n).into_boxed_slice()).collect();
    assert_eq!(standin.wakes(at(901), DEVICE), kept);
    let dropped = &standin.counters(DEVICE).expect("known").dropped;
    assert_eq!((dropped[&Reason::Evicted], dropped[&Reason::Full]), (4, 2));
}

#[test]
fn among_datagrams_the_oldest_gives_way() {
    let mut standin = enrolled(Limits { device_packets: 3, ..Limits::default() });
    sleep(&mut standin, at(0));
    for n in 0..5 {
        give(&mut standin, at(1), &plain(&[n]));
    }
    let kept: Vec<_> = (2..5).map(|n| plain(&[n]).into_boxed_slice()).collect();
    assert_eq!(standin.wakes(at(2), DEVICE), kept);
}

#[test]
fn a_flood_towards_one_device_costs_the_others_nothing() {
    let limits = Limits { total_packets: 20, device_packets: 100, ..Limits::default() };
    let mut standin = StandIn::new(limits);
    let address = |n: u8| IpAddr::V4(Ipv4Addr::new(10, 55, 0, n));
    for n in 1..=3 {
        standin.enrol(Instant::ZERO, DeviceId(n.into()), &[address(n)]);
        standin.sleeps(at(0), DeviceId(n.into()), Service::FULL, at(3_600_000));
    }
    let mut give = |n: u8, payload: &[u8]| {
        let packet = datagram((PEER, 9), (address(n), 9), payload);
        standin.handle(at(1), DeviceId(n.into()), &packet, &mut Vec::new())
    };
    for k in 0..4 {
        give(1, &[k]);
    }
    for k in 0..=255 {
        give(2, &[k]);
    }
    for k in 0..4 {
        assert_eq!(give(3, &[k]), Some(Verdict::Buffered(Class::Datagram)), "the flooded device gives way");
    }
    let waits = |n| standin.asleep(DeviceId(n)).expect("asleep").packets;
    assert_eq!((waits(1), waits(2), waits(3)), (4, 12, 4));
    let books = standin.totals();
    assert_eq!(books.buffered, 20 + books.dropped[&Reason::Evicted]);
}

#[test]
fn questions_to_everybody_are_not_kept() {
    let mut standin = enrolled(Limits::default());
    sleep(&mut standin, at(0));
    for (group, port) in [([239, 255, 255, 250], 1900), ([224, 0, 0, 252], 5355), ([255, 255, 255, 255], 67)]
    {
        let packet = datagram((PEER, 5_000), (IpAddr::from(group), port), b"hello???");
        assert_eq!(give(&mut standin, at(1), &packet), (Verdict::Dropped(Reason::Discovery), vec![]));
    }
}

#[test]
fn one_packet_may_be_too_much() {
    let mut standin = enrolled(Limits { device_bytes: 1_000, ..Limits::default() });
    sleep(&mut standin, at(0));
    assert_eq!(give(&mut standin, at(1), &plain(&[0; 900])).0, Verdict::Dropped(Reason::Full));
    assert_eq!(give(&mut standin, at(1), &plain(&[0; 600])).0, Verdict::Buffered(Class::Datagram));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    /// Any traffic to any of three devices: the bounds hold after every packet, every packet is on the books, and what comes
    /// out came in before, in this order.
    #[test]
    fn bounds_order_and_books(steps in proptest::collection::vec((0_u8..3, 0_u8..6, 0_u16..1_200, 0_u32..40_000), 1..400)) {
        let limits = Limits {
            device_packets: 10,
            device_bytes: 8_000,
            total_packets: 16,
            total_bytes: 12_000,
            ..Limits::default()
        };
        let mut standin = StandIn::new(limits);
        let address = |n: u8| IpAddr::V4(Ipv4Addr::new(10, 55, 0, n));
        let id = |n: u8| DeviceId(n.into());
        let mut sent: Vec<Vec<Box<[u8]>>> = vec![Vec::new(); 3];
        for n in 0..3 {
            standin.enrol(Instant::ZERO, id(n), &[address(n)]);
            standin.sleeps(at(0), id(n), Service::FULL, at(u64::MAX / 2_000_000));
        }
        let (_, peer) = connection();
        let mut millis = 0;
        for (i, (n, what, length, wait)) in steps.into_iter().enumerate() {
            millis += u64::from(wait);
            let mut body = vec![0; length.into()];
            body.iter_mut().zip((i as u32).to_be_bytes()).for_each(|(b, v)| *b = v);
            let to = (address(n), 9);
            let peer = End { there: to, sequence: i as u32 * 8, ..peer };
            let packet = match what {
                0 => { body.splice(..0, [0x80; 1].into_iter().chain([0; 11])); datagram((PEER, 2_000), (address(n), 2_000), &body) }
                1 => peer.segment(SYN, b""),
                2 => peer.segment(ACK, b""),
                3 => peer.segment(ACK, &body),
                _ => datagram((PEER, 9), to, &body),
            };
            if let Some(Verdict::Buffered(_)) = standin.handle(at(millis), id(n), &packet, &mut Vec::new()) {
                sent[usize::from(n)].push(packet.into_boxed_slice());
            }
            let (packets, bytes) = standin.waiting();
            prop_assert!(packets <= limits.total_packets && bytes <= limits.total_bytes);
            for n in 0..3 {
                let one = standin.asleep(id(n)).expect("asleep");
                prop_assert!(one.packets <= limits.device_packets && one.bytes <= limits.device_bytes);
            }
        }
        for n in 0..3 {
            let mut came = sent[usize::from(n)].iter();
            for packet in standin.wakes(at(millis), id(n)) {
                prop_assert!(came.any(|c| *c == packet), "out of order");
            }
        }
        let books = standin.totals();
        prop_assert_eq!(standin.waiting(), (0, 0));
        prop_assert_eq!(books.handled, books.delivered + books.drops() + books.answers());
    }
}

#[test]
fn a_sleep_that_ends_by_itself_loses_what_waits_and_says_so() {
    let mut standin = enrolled(Limits::default());
    standin.sleeps(at(0), DEVICE, Service::FULL, at(10_000));
    give(&mut standin, at(1), &plain(b"a"));
    give(&mut standin, at(1), &plain(b"b"));
    let due = standin.poll_timeout().expect("the end of the sleep");
    assert_eq!(due.at, at(10_000));
    standin.handle_timeout(due.at + Duration::from_millis(3));
    assert_eq!(standin.counters(DEVICE).expect("known").dropped[&Reason::Overslept], 2);
    assert_eq!((standin.asleep(DEVICE), standin.poll_timeout(), standin.waiting()), (None, None, (0, 0)));
    assert!(standin.wakes(at(20_000), DEVICE).is_empty());
}
