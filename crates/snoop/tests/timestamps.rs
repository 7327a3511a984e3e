//! The TCP agent between ends that use timestamps (RFC 7323): what it repeats keeps its first one, clocks make no duplicate something new, and
//! nothing is repeated that the device would refuse for its age.

mod common;

use common::{ms, stamped, stamped_ack};
use dormouse_sansio::{Entropy, Instant, Seeded};
use dormouse_snoop::Verdict;
use dormouse_snoop::tcp::{Agent, Limits};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::Tcp;
use proptest::prelude::*;
use std::collections::BTreeSet;

const LEN: u32 = 100;
/// Near the end of the clock: it wraps between segments.
const CLOCK: u32 = u32::MAX - 21;

/// Segment `number`, sent when the fixed host's clock was `at` behind [`CLOCK`].
fn segment(number: u32, at: u32) -> Vec<u8> {
    stamped(number * LEN, LEN as usize, CLOCK.wrapping_add(at))
}

/// All before segment `number` has arrived, the latest in order with a clock of `echo`; the device's own is `own`.
fn ack(number: u32, own: u32, echo: u32, blocks: &[(u32, u32)]) -> Vec<u8> {
    let blocks: Vec<_> = blocks.iter().map(|(first, end)| (first * LEN, end * LEN)).collect();
    stamped_ack(number * LEN, (own, CLOCK.wrapping_add(echo)), &blocks)
}

fn repeats(agent: &mut Agent, now: Instant) -> Vec<Vec<u8>> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    while agent.poll_transmit(now, &mut out) {
        all.push(std::mem::take(&mut out));
    }
    all
}

/// Number of the first byte, and TSval.
fn read(packet: &[u8]) -> (u32, u32) {
    let view = Packet::parse(packet).expect("a packet");
    let tcp = Tcp::parse(&view).expect("a segment");
    (tcp.sequence, tcp.timestamps().expect("timestamps").0)
}

/// An agent that has measured a round trip of 10 ms, and has the segments 1 to 5 under way since 20 ms.
fn warm() -> Agent {
    let mut agent = Agent::new(Limits::default());
    agent.to_device(ms(0), &segment(0, 0));
    assert_eq!(agent.from_device(ms(10), &ack(1, 500, 0, &[])), Verdict::Forward);
    for number in 1..=5 {
        agent.to_device(ms(19 + u64::from(number)), &segment(number, 19 + number));
    }
    agent
}

#[test]
fn what_is_repeated_is_the_kept_packet_with_its_first_timestamp() {
    let mut agent = warm();
    assert_eq!(agent.from_device(ms(31), &ack(1, 520, 0, &[])), Verdict::Suppress);
    let repeated = repeats(&mut agent, ms(31));
    assert_eq!(repeated, [segment(1, 20)], "byte for byte");
    assert_eq!(read(&repeated[0]), (LEN, CLOCK.wrapping_add(20)), "not the clock of now");
    // By the timer too.
    let due = agent.poll_timeout().expect("a timer").at;
    agent.handle_timeout(due);
    assert_eq!(repeats(&mut agent, due), [segment(1, 20)]);
}

#[test]
fn a_duplicate_with_newer_clocks_is_a_duplicate() {
    let mut agent = warm();
    // Each of the packets behind the lost one causes one, later by the device's clock.
    for (at, own) in [(31, 520), (32, 521), (33, 530), (34, 1_000)] {
        assert_eq!(agent.from_device(ms(at), &ack(1, own, 0, &[])), Verdict::Suppress, "at {at}");
    }
    assert_eq!(repeats(&mut agent, ms(34)), [segment(1, 20)], "once");
    // And one that echoes more than the acknowledgement before, as where a packet without data has come in order.
    assert_eq!(agent.from_device(ms(35), &ack(1, 1_001, 5, &[])), Verdict::Suppress);
    assert_eq!(agent.from_device(ms(42), &ack(6, 1_008, 20, &[])), Verdict::Forward);
    assert_eq!(agent.held(), (1, 0, 0));
}

#[test]
fn selective_blocks_behind_timestamps_show_every_gap() {
    let mut agent = warm();
    assert_eq!(agent.from_device(ms(31), &ack(1, 520, 0, &[(2, 3)])), Verdict::Suppress);
    assert_eq!(agent.from_device(ms(34), &ack(1, 523, 0, &[(4, 6), (2, 3)])), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(34)), [segment(1, 20), segment(3, 22)]);
    // The first gap is filled by a packet that is older than those behind it: all of them are still good.
    assert_eq!(agent.from_device(ms(45), &ack(3, 534, 20, &[(4, 6)])), Verdict::Suppress);
    assert_eq!(agent.held().1, 3);
    assert_eq!(agent.from_device(ms(46), &ack(6, 535, 22, &[])), Verdict::Forward);
}

#[test]
fn what_the_fixed_host_sent_again_has_the_timestamp_of_then() {
    let mut agent = warm();
    agent.to_device(ms(100), &segment(1, 100));
    agent.handle_timeout(ms(400));
    assert_eq!(repeats(&mut agent, ms(400)), [segment(1, 100)]);
}

/// 1 was lost before it came here, and 3 and 4 by the radio. The fixed host repeats 1, which the device takes: from then on it takes nothing older
/// (PAWS), so only the fixed host can mend the rest.
#[test]
fn copies_that_the_device_would_refuse_are_not_repeated_and_the_fixed_host_hears_of_them() {
    for sack in [false, true] {
        let mut agent = Agent::new(Limits::default());
        agent.to_device(ms(0), &segment(0, 0));
        agent.from_device(ms(10), &ack(1, 500, 0, &[]));
        for number in 2..=5 {
            agent.to_device(ms(19 + u64::from(number)), &segment(number, 19 + number));
        }
        let beyond: &[_] = if sack { &[(5, 6)] } else { &[] };
        assert_eq!(agent.from_device(ms(31), &ack(1, 520, 0, &[])), Verdict::Forward, "not kept");
        agent.to_device(ms(60), &segment(1, 60));
        assert_eq!(agent.from_device(ms(70), &ack(3, 560, 60, beyond)), Verdict::Forward);
        assert!(repeats(&mut agent, ms(70)).is_empty(), "the device would refuse both");
        for at in 71..75 {
            let again = ack(3, 490 + at as u32, 60, beyond);
            assert_eq!(agent.from_device(ms(at), &again), Verdict::Forward, "the fixed host counts them");
        }
        // It sends them anew; what the radio loses of that is repeated with the clock of then, if by the timer alone.
        agent.to_device(ms(90), &segment(3, 90));
        agent.to_device(ms(91), &segment(4, 91));
        let due = agent.poll_timeout().expect("a timer").at;
        agent.handle_timeout(due);
        assert_eq!(repeats(&mut agent, due), [segment(3, 90)]);
        assert_eq!(agent.from_device(ms(400), &ack(6, 900, 91, &[])), Verdict::Forward);
        assert_eq!(agent.held(), (1, 0, 0));
    }
}

/// A device's TCP, as far as RFC 7323 has it: TS.Recent, Last.ACK.sent and PAWS.
struct Device {
    recent: u32,
    next: u32,
    came: BTreeSet<u32>,
}

impl Device {
    /// Takes a segment; the acknowledgement that it causes.
    fn take(&mut self, packet: &[u8], clock: u32, sack: bool) -> Vec<u8> {
        let (sequence, stamp) = read(packet);
        let number = sequence / LEN;
        // R1 of section 5.3, R3 of section 4.3: every segment is acknowledged, so Last.ACK.sent is what is awaited.
        if (stamp.wrapping_sub(self.recent) as i32) >= 0 {
            if number == self.next {
                self.recent = stamp;
            }
            self.came.insert(number);
            while self.came.remove(&self.next) {
                self.next += 1;
            }
            self.came.retain(|number| *number >= self.next);
        }
        let block = self.came.first().filter(|_| sack).map(|first| {
            let end = (*first..).find(|number| !self.came.contains(number)).expect("an end");
            (first * LEN, end * LEN)
        });
        stamped_ack(self.next * LEN, (clock, self.recent), block.as_slice())
    }
}

proptest! {
    /// A file over a wire and a radio that lose packets both, and acknowledgements too: it arrives, and of what the agent repeats nothing is older than
    /// what the device has said that it takes.
    #[test]
    fn a_file_arrives_and_nothing_is_repeated_that_is_refused(seed: u64, wire in 0_u64..200, radio in 0_u64..300, sack: bool) {
        let mut luck = Seeded::new(seed);
        let mut lost = |per_mille| luck.below(1_000) < per_mille;
        let mut agent = Agent::new(Limits::default());
        let mut device = Device { recent: CLOCK, next: 0, came: BTreeSet::new() };
        // The fixed host: a window of 8, three duplicates, and a timer of 40 steps.
        let (mut acked, mut sent, mut duplicates, mut quiet, mut said) = (0_u32, 0_u32, 0, 0, CLOCK);
        let mut again = false;
        for step in 0_u32.. {
            prop_assert!(step < 20_000, "the transfer stands still at {}", acked);
            if acked == 60 {
                break;
            }
            let now = ms(10 * u64::from(step));
            agent.handle_timeout(now);
            let mut packet = Vec::new();
            let repeated = agent.poll_transmit(now, &mut packet);
            if repeated {
                let age = read(&packet).1.wrapping_sub(said) as i32;
                prop_assert!(age >= 0, "the device refuses it: {} before its record", -age);
            } else {
                quiet += 1;
                let number = if again || quiet > 40 { acked } else if sent < (acked + 8).min(60) { sent } else { continue };
                if number == acked {
                    (again, quiet) = (false, 0);
                }
                sent = sent.max(number + 1);
                packet = segment(number, step);
                if lost(wire) {
                    continue;
                }
                agent.to_device(now, &packet);
            }
            if lost(radio) {
                continue;
            }
            let answer = device.take(&packet, step, sack);
            if lost(radio) {
                continue;
            }
            said = device.recent;
            if agent.from_device(now, &answer) == Verdict::Suppress {
                continue;
            }
            if device.next > acked {
                (acked, duplicates, quiet) = (device.next, 0, 0);
            } else {
                duplicates += 1;
                again |= duplicates == 3;
            }
        }
        prop_assert_eq!(device.next, 60);
    }
}
