//! What the TCP agent keeps, repeats and hides, step by step.

mod common;

use common::{Family, ack, data, ms, packet};
use core::time::Duration;
use dormouse_sansio::Instant;
use dormouse_snoop::tcp::{Agent, Limits};
use dormouse_snoop::{Done, Ends, Verdict};
use dormouse_wire::ip::tcp::{ACK, FIN, RST, SYN};

const LEN: u32 = 100;

/// Segments number `first` to `last` of 100 bytes each, a millisecond apart from `at` on.
fn send(agent: &mut Agent, at: u64, first: u32, last: u32) {
    for i in first..=last {
        agent.to_device(ms(at + u64::from(i - first)), &data(i.wrapping_mul(LEN), LEN as usize));
    }
}

/// Everything that is to be repeated.
fn repeats(agent: &mut Agent, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while agent.poll_transmit(now, &mut out) {
        all.push(std::mem::take(&mut out));
    }
    all
}

/// An agent that has measured a round trip of 10 ms, and has the segments 1 to 5 under way since 20 ms.
fn warm(limits: Limits) -> Agent {
    let mut agent = Agent::new(limits);
    agent.to_device(ms(0), &data(0, LEN as usize));
    assert_eq!(agent.from_device(ms(10), &ack(LEN, &[])), Verdict::Forward);
    send(&mut agent, 20, 1, 5);
    agent
}

#[test]
fn a_duplicate_repeats_the_packet_at_once_and_does_not_go_on() {
    let mut agent = warm(Limits::default());
    assert_eq!(agent.from_device(ms(31), &ack(LEN, &[])), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(31)), [data(LEN, LEN as usize)], "the very bytes");
    // The packets behind it arrive meanwhile.
    for at in 32..36 {
        assert_eq!(agent.from_device(ms(at), &ack(LEN, &[])), Verdict::Suppress);
        assert!(repeats(&mut agent, ms(at)).is_empty(), "once is enough");
    }
    assert_eq!(agent.from_device(ms(42), &ack(6 * LEN, &[])), Verdict::Forward);
    assert_eq!(agent.held(), (1, 0, 0));
    let [flow] = agent.followed(1)[..] else { panic!("one connection: {:?}", agent.followed(1)) };
    let (fixed, device) = (Family::V4.fixed(), Family::V4.device(5_000));
    assert_eq!(flow.ends, Ends::Tcp { fixed, device, esp: None });
    assert_eq!(flow.done, Done { kept: 6, repeated: 1, suppressed: 5 });
    assert_eq!((flow.held, flow.heard), (0, ms(42)));
    // A connection that begins again between the same ends is another one.
    agent.to_device(ms(50), &packet(fixed, device, |s| s.flags = SYN, &[]));
    agent.to_device(ms(51), &data(LEN, LEN as usize));
    let done: Vec<Done> = agent.followed(9).iter().map(|flow| flow.done).collect();
    assert_eq!(done, [Done { kept: 2, ..Done::default() }]);
}

#[test]
fn a_repetition_that_is_lost_too_is_repeated() {
    let mut agent = warm(Limits::default());
    agent.from_device(ms(31), &ack(LEN, &[]));
    assert_eq!(repeats(&mut agent, ms(31)).len(), 1);
    assert_eq!(agent.from_device(ms(40), &ack(LEN, &[])), Verdict::Suppress, "may still be under way");
    assert!(repeats(&mut agent, ms(40)).is_empty());
    assert_eq!(agent.from_device(ms(45), &ack(LEN, &[])), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(45)).len(), 1);
}

#[test]
fn a_needless_repetition_does_not_cause_another() {
    let mut agent = warm(Limits::default());
    // The device delays its acknowledgement for longer than the timer waits.
    let at = agent.poll_timeout().expect("a timer").at;
    agent.handle_timeout(at);
    assert_eq!(repeats(&mut agent, at).len(), 1);
    let soon = at + Duration::from_millis(2);
    assert_eq!(agent.from_device(soon, &ack(3 * LEN, &[])), Verdict::Forward);
    // The repetition arrives: a duplicate that shows no loss.
    assert_eq!(agent.from_device(at + Duration::from_millis(11), &ack(3 * LEN, &[])), Verdict::Suppress);
    assert!(repeats(&mut agent, at + Duration::from_millis(11)).is_empty());
    // The next one does.
    assert_eq!(agent.from_device(at + Duration::from_millis(12), &ack(3 * LEN, &[])), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, at + Duration::from_millis(12)).len(), 1);
}

#[test]
fn a_second_loss_shows_when_the_first_is_repaired() {
    let mut agent = warm(Limits::default());
    agent.from_device(ms(31), &ack(LEN, &[]));
    repeats(&mut agent, ms(31));
    // 1 and 3 were lost. New, so it goes on; what was sent before the repetition and is still missing is lost.
    assert_eq!(agent.from_device(ms(42), &ack(3 * LEN, &[])), Verdict::Forward);
    assert_eq!(repeats(&mut agent, ms(42)), [data(3 * LEN, LEN as usize)]);
}

#[test]
fn selective_acknowledgements_show_every_gap_and_stay_hidden_for_a_short_time() {
    let mut agent = warm(Limits::default());
    assert_eq!(agent.from_device(ms(31), &ack(LEN, &[(2 * LEN, 3 * LEN)])), Verdict::Suppress);
    let blocks = [(4 * LEN, 6 * LEN), (2 * LEN, 3 * LEN)];
    assert_eq!(agent.from_device(ms(34), &ack(LEN, &blocks)), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(34)), [data(LEN, LEN as usize), data(3 * LEN, LEN as usize)]);
    // The first is there, the second is still under way: the fixed host would begin to repeat it.
    assert_eq!(agent.from_device(ms(45), &ack(3 * LEN, &[(4 * LEN, 6 * LEN)])), Verdict::Suppress);
    assert_eq!(
        agent.from_device(ms(170), &ack(3 * LEN, &[(4 * LEN, 6 * LEN)])),
        Verdict::Forward,
        "no longer"
    );
    assert_eq!(agent.from_device(ms(171), &ack(6 * LEN, &[])), Verdict::Forward);
    assert_eq!(agent.held(), (1, 0, 0));
}

#[test]
fn a_loss_of_the_wire_is_the_fixed_hosts_to_see() {
    let mut agent = warm(Limits::default());
    agent.from_device(ms(35), &ack(6 * LEN, &[]));
    // 6 never came here.
    send(&mut agent, 40, 7, 9);
    for at in 50..53 {
        assert_eq!(agent.from_device(ms(at), &ack(6 * LEN, &[])), Verdict::Forward);
    }
    assert!(repeats(&mut agent, ms(53)).is_empty());
    // It comes again from there. That one is lost by the radio: still the fixed host's matter, but for the timer.
    send(&mut agent, 100, 6, 6);
    assert_eq!(agent.from_device(ms(112), &ack(6 * LEN, &[])), Verdict::Forward);
    assert!(repeats(&mut agent, ms(112)).is_empty());
    let due = agent.poll_timeout().expect("a timer").at;
    agent.handle_timeout(due);
    assert_eq!(repeats(&mut agent, due), [data(6 * LEN, LEN as usize)]);
}

#[test]
fn without_a_word_timers_repeat_and_in_the_end_forget() {
    let limits = Limits { tries: 2, ..Limits::default() };
    let mut agent = Agent::new(limits);
    send(&mut agent, 0, 1, 3);
    let mut times = Vec::new();
    while let Some(at) = agent.poll_timeout().map(|d| d.at) {
        agent.handle_timeout(at);
        times.push((at - Instant::ZERO, repeats(&mut agent, at).len()));
    }
    let at = |n| Duration::from_millis(n);
    // By the local timer, twice, doubling. A device whose acknowledgements do not pass here would get all the others for nothing.
    assert_eq!(times[..2], [(at(100), 1), (at(300), 1)]);
    assert_eq!(times[2..], [(at(700), 0), (at(1_002), 0), (at(10_002), 0)]);
    assert_eq!(agent.held(), (0, 0, 0));
}

#[test]
fn a_device_that_falls_silent_gets_everything_again() {
    let mut agent = warm(Limits { tries: 2, ..Limits::default() });
    let (mut timers, mut all) = (0, Vec::new());
    while let Some(at) = agent.poll_timeout().map(|d| d.at) {
        agent.handle_timeout(at);
        match repeats(&mut agent, at).len() {
            0 => {}
            1 => timers += 1,
            n => all.push((at - Instant::ZERO, n)),
        }
    }
    // The first by its timer, twice; the others a second after the last packet, and once more: twice is the most for each.
    let at = |n| Duration::from_millis(n);
    assert_eq!((timers, all), (2, vec![(at(1_024), 4), (at(2_024), 4)]));
    assert_eq!(agent.held(), (0, 0, 0));
}

#[test]
fn what_else_an_acknowledgement_says_goes_on() {
    let device = Family::V4.device(5_000);
    let fixed = Family::V4.fixed();
    let says = |what: &str, bytes: &[u8], verdict| {
        let mut agent = warm(Limits::default());
        assert_eq!(agent.from_device(ms(31), bytes), verdict, "{what}");
    };
    let of = |flags, window, payload: &[u8]| {
        packet(device, fixed, |s| (s.acknowledgement, s.flags, s.window) = (LEN, flags, window), payload)
    };
    says("a duplicate", &of(ACK, 1_000, &[]), Verdict::Suppress);
    says("a new window", &of(ACK, 2_000, &[]), Verdict::Forward);
    says("data", &of(ACK, 1_000, b"GET"), Verdict::Forward);
    says("the end", &of(ACK | FIN, 1_000, &[]), Verdict::Forward);
    says("congestion", &of(ACK | 0x40, 1_000, &[]), Verdict::Forward);
    says("no connection", &of(RST, 1_000, &[]), Verdict::Forward);
    // About what came twice (RFC 2883), and about what never passed.
    says("a late duplicate", &ack(LEN, &[(0, LEN)]), Verdict::Suppress);
    says("beyond all", &ack(60 * LEN, &[]), Verdict::Forward);
}

#[test]
fn a_new_connection_with_the_same_ports_has_nothing_of_the_old_one() {
    for (src, dst, flags) in [
        (Family::V4.fixed(), Family::V4.device(5_000), SYN),
        (Family::V4.fixed(), Family::V4.device(5_000), RST),
    ] {
        let mut agent = warm(Limits::default());
        agent.to_device(ms(30), &packet(src, dst, |s| (s.flags, s.sequence) = (flags, 7), &[]));
        assert_eq!(agent.from_device(ms(31), &ack(LEN, &[])), Verdict::Forward);
        assert!(repeats(&mut agent, ms(31)).is_empty());
        let kept = usize::from(flags == SYN);
        assert_eq!(agent.held().0, kept);
        assert_eq!(agent.held().1, kept);
    }
}

#[test]
fn sequence_numbers_wrap() {
    let mut agent = Agent::new(Limits::default());
    let first = u32::MAX - LEN + 1 - LEN;
    for i in 0..4 {
        agent.to_device(ms(u64::from(i)), &data(first.wrapping_add(i * LEN), LEN as usize));
    }
    assert_eq!(agent.from_device(ms(10), &ack(first.wrapping_add(LEN), &[])), Verdict::Forward);
    assert_eq!(agent.from_device(ms(11), &ack(first.wrapping_add(LEN), &[])), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(11)), [data(first.wrapping_add(LEN), LEN as usize)]);
    assert_eq!(agent.from_device(ms(21), &ack(first.wrapping_add(4 * LEN), &[])), Verdict::Forward);
    assert_eq!(agent.held().1, 0);
}

#[test]
fn the_oldest_connection_gives_way_and_long_ones_pass_without_a_copy() {
    let limits = Limits { flows: 2, packets: 3, bytes: 1_000, ..Limits::default() };
    let mut agent = Agent::new(limits);
    for family in [Family::V4, Family::V6] {
        for port in 1..=3_u16 {
            let at = ms(u64::from(port));
            agent.to_device(at, &packet(family.fixed(), family.device(port), |_| (), &[0; 100]));
        }
    }
    assert_eq!((agent.held().0, agent.stats().evicted), (2, 4));
    let mut agent = Agent::new(limits);
    send(&mut agent, 0, 0, 9);
    assert_eq!(agent.held(), (1, 3, 3 * 140));
    // Not kept: goes on.
    assert_eq!(agent.from_device(ms(20), &ack(3 * LEN, &[])), Verdict::Forward);
    assert_eq!(agent.from_device(ms(21), &ack(3 * LEN, &[])), Verdict::Forward);
}

#[test]
fn every_timer_of_every_connection_is_listed() {
    let mut agent = warm(Limits::default());
    let (src, dst) = (Family::V4.fixed(), Family::V4.device(5_001));
    agent.to_device(ms(30), &packet(src, dst, |_| {}, &[1]));
    let mut whys: Vec<_> = agent.timers().map(|timer| timer.why).collect();
    assert_eq!(agent.poll_timeout(), agent.timers().min_by_key(|timer| timer.at));
    whys.sort_unstable();
    let each = [
        "a connection without packets",
        "a device acknowledges nothing",
        "a packet over the radio was not acknowledged",
    ];
    assert_eq!(whys, each.map(|why| [why; 2]).concat());
}
