//! What holds for any packets in any order.

mod common;

use common::{Family, packet};
use core::time::Duration;
use dormouse_sansio::Instant;
use dormouse_snoop::Verdict;
use dormouse_snoop::tcp::{Agent, Limits};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::{ACK, FIN, RST, SYN, Tcp};
use proptest::prelude::*;

/// What may happen, with numbers in steps of 50 bytes.
#[derive(Clone, Debug)]
enum Step {
    Data { port: u16, sequence: u32, len: usize, flags: u8 },
    Answer { port: u16, acknowledgement: u32, len: usize, flags: u8, block: Option<(u32, u32)> },
    Any { bytes: Vec<u8>, to_device: bool },
    Wait { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flags =
        prop_oneof![8 => Just(ACK), 1 => Just(ACK | FIN), 1 => Just(SYN), 1 => Just(RST), 1 => any::<u8>()];
    let step = prop_oneof![
        4 => (0..4_u16, 0..30_u32, 0..3_usize, flags.clone())
            .prop_map(|(port, sequence, len, flags)| Step::Data { port, sequence, len, flags }),
        4 => (0..4_u16, 0..30_u32, prop_oneof![4 => Just(0), 1 => 0..3_usize], flags, any::<Option<(u8, u8)>>())
            .prop_map(|(port, acknowledgement, len, flags, block)| Step::Answer {
                port, acknowledgement, len, flags,
                block: block.map(|(a, b)| (u32::from(a % 30), u32::from(b % 30))),
            }),
        1 => (proptest::collection::vec(any::<u8>(), 0..80), any::<bool>())
            .prop_map(|(bytes, to_device)| Step::Any { bytes, to_device }),
        2 => (0..400_u64).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 0..300)
}

fn built(step: &Step, base: u32) -> Option<(Vec<u8>, bool)> {
    let number = |n: u32| base.wrapping_add(n * 50);
    match step {
        Step::Data { port, sequence, len, flags } => {
            let family = if port % 2 == 0 { Family::V4 } else { Family::V6 };
            let edit = |s: &mut dormouse_wire::ip::tcp::Segment<'_>| {
                (s.sequence, s.flags) = (number(*sequence), *flags);
            };
            Some((packet(family.fixed(), family.device(*port), edit, &vec![*len as u8; len * 50]), true))
        }
        Step::Answer { port, acknowledgement, len, flags, block } => {
            let family = if port % 2 == 0 { Family::V4 } else { Family::V6 };
            let mut options = vec![];
            if let Some((first, end)) = block {
                options.extend([1, 1, 5, 10]);
                options.extend(number(*first).to_be_bytes());
                options.extend(number(*end).to_be_bytes());
            }
            let mut out = Vec::new();
            let segment = dormouse_wire::ip::tcp::Segment {
                src: family.device(*port),
                dst: family.fixed(),
                sequence: 1,
                acknowledgement: number(*acknowledgement),
                flags: *flags,
                window: 500,
                options: &options,
            };
            segment.build(&vec![0; len * 50], &mut out).ok()?;
            Some((out, false))
        }
        Step::Any { bytes, to_device } => Some((bytes.clone(), *to_device)),
        Step::Wait { .. } => None,
    }
}

proptest! {
    #[test]
    fn nothing_is_made_up_lost_or_hoarded(steps in steps(), base in any::<u32>()) {
        let limits = Limits { flows: 3, packets: 5, bytes: 900, ..Limits::default() };
        let mut agent = Agent::new(limits);
        let mut now = Instant::ZERO;
        let mut passed: Vec<Vec<u8>> = Vec::new();
        for step in &steps {
            if let Step::Wait { ms } = step {
                now += Duration::from_millis(*ms);
                agent.handle_timeout(now);
            }
            match built(step, base) {
                Some((packet, true)) => {
                    agent.to_device(now, &packet);
                    passed.push(packet);
                }
                Some((packet, false)) => {
                    let before = packet.clone();
                    if agent.from_device(now, &packet) == Verdict::Suppress {
                        // Only what a later acknowledgement says as well.
                        let view = Packet::parse(&packet).expect("an IP packet");
                        let tcp = Tcp::parse(&view).expect("a segment");
                        prop_assert!(tcp.payload.is_empty());
                        prop_assert_eq!(tcp.flags & (ACK | SYN | FIN | RST), ACK);
                    }
                    prop_assert_eq!(before, packet);
                }
                None => {}
            }
            let mut out = Vec::new();
            while agent.poll_transmit(now, &mut out) {
                prop_assert!(passed.contains(&out), "never altered, never made up");
                out.clear();
            }
            let (flows, packets, bytes) = agent.held();
            prop_assert!(flows <= 3 && packets <= 15 && bytes <= 900);
        }
        // After the garbage time nothing is left of any input.
        agent.handle_timeout(now + limits.garbage);
        prop_assert_eq!(agent.held(), (0, 0, 0));
        prop_assert!(agent.poll_timeout().is_none());
    }
}
