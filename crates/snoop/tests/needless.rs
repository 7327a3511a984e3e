//! The TCP agent before a slow radio in virtual time: how often it repeats what the radio lost, and what it did not lose.

mod common;

use common::{ack, data, ms};
use core::time::Duration;
use dormouse_sansio::{Entropy, Instant, Seeded};
use dormouse_snoop::Verdict;
use dormouse_snoop::tcp::{Agent, Limits};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::Tcp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LEN: u32 = 100;
const SEGMENTS: u32 = 4_000;
/// Of the fixed host, in segments.
const WINDOW: u32 = 44;
/// A packet of 1,500 bytes at 2 Mbit/s.
const SLOT: Duration = Duration::from_millis(6);
const RADIO: Duration = Duration::from_millis(2);
/// From an acknowledgement that leaves the router until what it allows is there.
const WIRE: Duration = Duration::from_millis(96);

enum Event {
    /// A segment has reached the router.
    Fresh(u32),
    /// A segment has reached the device.
    Arrived(u32),
    /// An acknowledgement has reached the router, with the ranges beyond it.
    Said(u32, Vec<(u32, u32)>),
    /// The radio takes the next packet.
    Turn,
}

/// What happens when; of one instant in the order in which it was planned.
#[derive(Default)]
struct Plan {
    events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
}

impl Plan {
    fn at(&mut self, at: Instant, event: Event) {
        self.events.insert((at, self.planned), event);
        self.planned += 1;
    }
}

/// Ranges of numbers that came beyond the first gap, the latest first, four at most.
fn ranges(came: &BTreeSet<u32>, latest: u32) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for &number in came {
        match all.last_mut() {
            Some((_, end)) if *end == number => *end += 1,
            _ => all.push((number, number + 1)),
        }
    }
    all.sort_by_key(|(first, end)| (!(*first..*end).contains(&latest), core::cmp::Reverse(*first)));
    all.truncate(4);
    all.into_iter().map(|(first, end)| (first * LEN, end * LEN)).collect()
}

/// A file over a radio that loses `per_mille` of its packets, and holds `standing` packets of its own all the while: how many it lost, and how many
/// the agent repeated.
fn carried(seed: u64, per_mille: u64, standing: u32, sack: bool) -> (u32, u32) {
    let (mut luck, mut agent, mut plan) = (Seeded::new(seed), Agent::new(Limits::default()), Plan::default());
    let (mut waiting, mut free, mut turning) = (VecDeque::new(), ms(0), false);
    let (mut next, mut came, mut acked, mut sent) = (0, BTreeSet::new(), 0, WINDOW);
    let (mut lost, mut repeated, mut burst) = (0, 0, standing);
    (0..WINDOW).for_each(|number| plan.at(ms(0), Event::Fresh(number)));
    while next < SEGMENTS {
        let timer = agent.poll_timeout().map(|deadline| deadline.at);
        let first = plan.events.keys().next().map(|(at, _)| *at);
        let now = timer.into_iter().chain(first).min().expect("the transfer stands still");
        assert!(now < ms(600_000), "the transfer stands still at {next}");
        if first.is_none_or(|first| timer.is_some_and(|timer| timer < first)) {
            agent.handle_timeout(now);
        } else if let Some((_, event)) = plan.events.pop_first() {
            match event {
                Event::Fresh(number) => waiting.push_back(number),
                Event::Arrived(number) => {
                    if number >= next {
                        came.insert(number);
                    }
                    while came.remove(&next) {
                        next += 1;
                    }
                    let beyond = if sack { ranges(&came, number) } else { Vec::new() };
                    plan.at(now + RADIO, Event::Said(next, beyond));
                }
                Event::Said(number, beyond) => {
                    let said = agent.from_device(now, &ack(number * LEN, &beyond));
                    if said == Verdict::Forward && number > acked {
                        acked = number;
                        (sent..(acked + WINDOW).min(SEGMENTS))
                            .for_each(|n| plan.at(now + WIRE, Event::Fresh(n)));
                        sent = sent.max((acked + WINDOW).min(SEGMENTS));
                    }
                }
                Event::Turn => turning = false,
            }
        }
        // The router gives the radio a packet a slot, what is repeated first; at the beginning those at once that it will hold.
        if turning {
            continue;
        }
        let mut packet = Vec::new();
        if agent.poll_transmit(now, &mut packet) {
            repeated += 1;
        } else if let Some(number) = waiting.pop_front() {
            packet = data(number * LEN, LEN as usize);
            agent.to_device(now, &packet);
        } else {
            continue;
        }
        free = free.max(now) + SLOT;
        let view = Packet::parse(&packet).expect("a packet");
        let number = Tcp::parse(&view).expect("a segment").sequence / LEN;
        if luck.below(1_000) < per_mille {
            lost += 1;
        } else {
            plan.at(free + RADIO, Event::Arrived(number));
        }
        let pause = if burst > 0 { Duration::ZERO } else { SLOT };
        burst = burst.saturating_sub(1);
        turning = true;
        plan.at(now + pause, Event::Turn);
    }
    (lost, repeated)
}

/// One repetition for each loss, also where packets wait in the radio itself: the duplicates that they cause after a repetition say nothing of it.
#[test]
fn little_is_repeated_that_the_radio_did_not_lose() {
    for (sack, standing) in [false, true].into_iter().flat_map(|sack| [0, 1, 3, 6].map(|n| (sack, n))) {
        for per_mille in [2, 10, 50, 150] {
            let (lost, repeated) = carried(7, per_mille, standing, sack);
            let what =
                format!("SACK {sack}, {standing} in the radio: {lost} of 4,000 lost, {repeated} repeated");
            assert!(lost > 0 && repeated >= lost && repeated <= lost + lost / 16, "{what}");
        }
    }
}
