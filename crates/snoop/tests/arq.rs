//! ESP over a radio that loses, repaired by its numbers: everything arrives, once and in order, and what is not ours goes by.

mod common;

use common::ms;
use core::net::SocketAddr;
use core::time::Duration;
use dormouse_crypto::Secret;
use dormouse_netem::{GilbertElliott, Link, LinkConfig};
use dormouse_sansio::{Deadline, Instant};
use dormouse_snoop::Verdict;
use dormouse_snoop::arq::{Device, Limits, PORT, Router, pair};
use dormouse_wire::ip::{protocol, udp};

fn ends() -> (SocketAddr, SocketAddr) {
    (([10, 1, 0, 2], PORT).into(), ([10, 1, 0, 1], PORT).into())
}

fn both(limits: Limits) -> (Router, Device) {
    let (device, router) = ends();
    pair(&Secret::from([7_u8; 32]), limits, device, router)
}

/// An ESP packet, bare or in UDP.
fn esp(spi: u32, sequence: u32, natt: bool) -> Vec<u8> {
    let mut payload = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
    payload.resize(1_000, sequence as u8);
    let mut out = Vec::new();
    let (from, to) = (([203, 0, 113, 1], 4_500).into(), ([10, 1, 0, 2], 4_500).into());
    udp::build(from, to, &payload, &mut out).expect("a packet");
    if !natt {
        // The same without UDP: protocol 50, eight bytes less.
        out.drain(20..28);
        let len = out.len() as u16;
        out[2..4].copy_from_slice(&len.to_be_bytes());
        out[9] = protocol::ESP;
    }
    out
}

/// Numbers of what the device itself gets of `count` packets, one every 5 ms, over a radio that loses; and how late the last came.
fn carried(radio: LinkConfig, count: u32, first: u32, seed: u64) -> (Vec<u32>, Router, Duration) {
    let (mut router, mut device) = both(Limits::default());
    let mut down: Link<()> = Link::new(radio, seed);
    let mut up: Link<()> = Link::new(radio, seed + 1);
    let (mut now, mut sent, mut got, mut last) = (Instant::ZERO, 0, Vec::new(), Instant::ZERO);
    let mut queue: Vec<Vec<u8>> = Vec::new();
    // The SA is known: of one that is not, nothing can be missing yet.
    device.arrive(now, esp(0x1234, first.wrapping_sub(1), true));
    device.poll_deliver();
    while now < ms(u64::from(count) * 5 + 3_000) {
        if sent < count && now >= ms(u64::from(sent) * 5) {
            queue.push(esp(0x1234, first.wrapping_add(sent), sent % 2 == 0));
            sent += 1;
        }
        router.handle_timeout(now);
        while down.idle_at() <= now {
            let mut packet = Vec::new();
            if !router.poll_transmit(now, &mut packet) {
                if queue.is_empty() {
                    break;
                }
                packet = queue.remove(0);
                router.to_device(now, &packet);
            }
            down.enqueue(now, (), packet).expect("an idle line");
        }
        while let Some(((), packet)) = down.poll_deliver(now) {
            device.arrive(now, packet);
        }
        device.handle_timeout(now);
        while let Some(packet) = device.poll_deliver() {
            let at = packet.len() - 996;
            got.push(u32::from_be_bytes(*packet[at..].first_chunk().expect("a number")));
            last = now;
        }
        let mut report = Vec::new();
        while device.poll_report(now, &mut report) {
            let _ = up.enqueue(now, (), std::mem::take(&mut report));
        }
        while let Some(((), packet)) = up.poll_deliver(now) {
            assert_eq!(router.from_device(now, &packet), Verdict::Suppress, "a report");
        }
        now += Duration::from_millis(1);
    }
    (got, router, last - ms(u64::from(count) * 5))
}

fn radio(bit_error_rate: f64) -> LinkConfig {
    LinkConfig {
        rate: Some(2_000_000),
        delay: Duration::from_millis(2),
        bit_error_rate,
        ..LinkConfig::default()
    }
}

#[test]
fn everything_arrives_once_and_in_order() {
    for (name, config) in [
        ("a good radio", radio(0.0)),
        ("one packet in nine", radio(1.0 / 65_536.0)),
        (
            "bursts",
            LinkConfig {
                bursts: Some(GilbertElliott { worsens: 0.02, recovers: 0.4, loss_bad: 0.9, loss_good: 0.0 }),
                ..radio(0.0)
            },
        ),
    ] {
        for seed in 1..6 {
            // Numbers wrap on the way.
            let first = u32::MAX - 300;
            let (got, router, _) = carried(config, 1_000, first, seed);
            let wanted: Vec<u32> = (0..1_000).map(|i| first.wrapping_add(i)).collect();
            // What came twice (its report was lost) is the replay window's to drop.
            let mut once = Vec::new();
            got.iter().for_each(|n| {
                if !once.contains(n) {
                    once.push(*n)
                }
            });
            assert!(
                got.len() - once.len() < 20,
                "{name}, seed {seed}: {} came twice",
                got.len() - once.len()
            );
            assert_eq!(once, wanted, "{name}, seed {seed}: {:?}", router.stats());
            assert_eq!(router.held().1, 0, "{name}, seed {seed}: all is reported");
            let repeats = router.stats().repeated;
            assert!(
                if name == "a good radio" { repeats == 0 } else { (20..400).contains(&repeats) },
                "{name}: {repeats}"
            );
        }
    }
}

#[test]
fn a_packet_that_never_comes_holds_the_others_up_for_a_short_time_only() {
    let limits = Limits::default();
    let (_, mut device) = both(limits);
    for (at, sequence) in [(0, 1), (5, 3), (10, 4), (50, 6)] {
        device.arrive(ms(at), esp(9, sequence, true));
    }
    assert_eq!(device.poll_deliver(), Some(esp(9, 1, true)));
    assert_eq!(device.poll_deliver(), None);
    let at = ms(5) + limits.hold;
    device.handle_timeout(at);
    assert_eq!(device.poll_deliver(), Some(esp(9, 3, true)));
    assert_eq!(device.poll_deliver(), Some(esp(9, 4, true)));
    assert_eq!(device.poll_deliver(), None, "6 has waited for less");
    // Too late, and handed on all the same; then 5 closes the gap.
    device.arrive(at, esp(9, 2, true));
    device.arrive(at, esp(9, 5, true));
    let rest: Vec<_> = std::iter::from_fn(|| device.poll_deliver()).collect();
    assert_eq!(rest, [esp(9, 2, true), esp(9, 5, true), esp(9, 6, true)]);
    assert_eq!(device.held(), (1, 0, 0));
}

#[test]
fn reports_of_others_old_ones_and_changed_ones_are_none() {
    let (mut router, mut device) = both(Limits::default());
    router.to_device(ms(0), &esp(9, 1, true));
    router.to_device(ms(5), &esp(9, 2, true));
    device.arrive(ms(10), esp(9, 1, true));
    let mut report = Vec::new();
    assert!(device.poll_report(ms(100), &mut report));
    let (from, to) = ends();
    for at in 28..report.len() {
        for bit in 0..8 {
            let mut payload = report[28..].to_vec();
            payload[at - 28] ^= 1 << bit;
            // With the checksum put right.
            let mut changed = Vec::new();
            udp::build(from, to, &payload, &mut changed).expect("a packet");
            assert_eq!(router.from_device(ms(100), &changed), Verdict::Forward, "byte {at} was changed");
        }
    }
    let (_, mut stranger) = pair(&Secret::from([8_u8; 32]), Limits::default(), from, to);
    stranger.arrive(ms(10), esp(9, 1, true));
    let mut forged = Vec::new();
    assert!(stranger.poll_report(ms(100), &mut forged));
    assert_eq!(
        router.from_device(ms(100), &forged),
        Verdict::Forward,
        "not ours: it may be for a host behind us"
    );
    assert_eq!((router.held().1, router.stats().reports), (2, 0));
    assert_eq!(router.from_device(ms(100), &report), Verdict::Suppress);
    assert_eq!((router.held().1, router.stats().reports), (1, 1));
    router.to_device(ms(101), &esp(9, 1, true));
    assert_eq!(router.from_device(ms(102), &report), Verdict::Suppress);
    assert_eq!((router.held().1, router.stats().reports), (2, 1), "once only");
}

#[test]
fn nothing_is_repeated_to_a_device_that_reports_nothing() {
    let (mut router, _) = both(Limits::default());
    for sequence in 0..2_000 {
        router.to_device(ms(u64::from(sequence)), &esp(sequence % 20, sequence, false));
    }
    assert!(router.poll_timeout().is_none());
    assert!(!router.poll_transmit(ms(5_000), &mut Vec::new()));
    let limits = Limits::default();
    let (sas, packets, bytes) = router.held();
    assert!(sas <= limits.sas && packets <= limits.packets * sas && bytes <= limits.bytes * sas);
}

proptest::proptest! {
    /// The body of the fuzz target says what must hold.
    #[test]
    fn any_packets_and_any_reports(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3_000)) {
        dormouse_snoop::fuzz::arq(&data);
    }
}

#[test]
fn what_is_no_esp_goes_by() {
    let (mut router, mut device) = both(Limits::default());
    let other = common::data(1, 100);
    router.to_device(ms(0), &other);
    assert_eq!(router.from_device(ms(0), &other), Verdict::Forward);
    device.arrive(ms(0), other.clone());
    assert_eq!(device.poll_deliver(), Some(other));
    assert_eq!((router.held().0, device.held().0), (0, 0));
}

#[test]
fn every_timer_of_every_sa_is_listed() {
    let (mut router, mut device) = both(Limits::default());
    for spi in [1, 2] {
        router.to_device(ms(0), &esp(spi, 1, false));
        device.arrive(ms(0), esp(spi, 1, false));
    }
    let mut report = Vec::new();
    while device.poll_report(ms(1_000), &mut report) {
        router.from_device(ms(1_000), &std::mem::take(&mut report));
    }
    for spi in [1, 2] {
        router.to_device(ms(1_000), &esp(spi, 2, false));
        device.arrive(ms(1_000), esp(spi, 3, false));
    }
    let whys = |timers: &[Deadline]| timers.iter().map(|timer| timer.why).collect::<Vec<_>>();
    let of_device: Vec<_> = device.timers().collect();
    assert_eq!(whys(&of_device), ["ESP packets behind a missing one", "a report of what came"].repeat(2));
    assert_eq!(device.poll_timeout(), of_device.into_iter().min_by_key(|timer| timer.at));
    let of_router: Vec<_> = router.timers().collect();
    assert_eq!(whys(&of_router), ["an ESP packet over the radio was not reported"; 2]);
    assert_eq!(router.poll_timeout(), of_router.into_iter().min_by_key(|timer| timer.at));
}
