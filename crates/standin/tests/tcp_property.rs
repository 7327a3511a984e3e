//! For any TCP that passes by: no answer acknowledges a byte that the device did not acknowledge itself, none carries data, and no
//! byte of the stream that waits is out of order.

mod common;

use common::*;
use dormouse_standin::{Limits, Verdict};
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::{ACK, FIN, PSH, RST, SYN, Tcp};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Move {
    /// The device sends: how far its acknowledgement and its own sequence move, flags, window, length.
    Device(i8, i8, u8, u16, u8),
    /// The peer sends: where from its position, flags, length.
    Peer(i32, u8, u16),
    /// Time passes.
    Wait(u16),
    Sleep,
    Wake,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let flags = prop_oneof![
        8 => Just(ACK),
        3 => Just(ACK | PSH),
        1 => Just(ACK | FIN),
        1 => Just(SYN),
        1 => Just(SYN | ACK),
        1 => Just(RST),
        1 => any::<u8>(),
    ];
    let near = prop_oneof![6 => -3_i32..3, 3 => -3_000_i32..3_000, 1 => any::<i32>()];
    let one = prop_oneof![
        4 => (any::<i8>(), any::<i8>(), flags.clone(), any::<u16>(), any::<u8>())
            .prop_map(|(a, s, f, w, l)| Move::Device(a, s, f, w, l)),
        8 => (near, flags, prop_oneof![Just(0), Just(1), 0_u16..1_400]).prop_map(|(s, f, l)| Move::Peer(s, f, l)),
        2 => any::<u16>().prop_map(Move::Wait),
        2 => Just(Move::Sleep),
        1 => Just(Move::Wake),
    ];
    proptest::collection::vec(one, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn no_answer_acknowledges_what_the_device_did_not(start in any::<u32>(), timed: bool, moves in moves()) {
        let (mut device, mut peer) = connection();
        (device.acknowledgement, peer.sequence) = (start, start);
        if timed {
            (device.time, peer.time) = (Some((1_000, 1)), Some((2_000, 1)));
        }
        let mut standin = enrolled(Limits::default());
        let (mut millis, mut asleep) = (0_u64, false);
        // The highest acknowledgement and timestamp of the device itself since its last SYN or RST.
        let mut given: Option<u32> = None;
        for step in moves {
            let mut answers = Vec::new();
            match step {
                Move::Device(more, sequence, flags, window, length) => {
                    if asleep {
                        continue;
                    }
                    device.acknowledgement = device.acknowledgement.wrapping_add_signed(more.into());
                    device.sequence = device.sequence.wrapping_add_signed(sequence.into());
                    device.window = window;
                    device.time = device.time.map(|(own, echo)| (own + 1, echo));
                    let segment = device.segment(flags, &vec![0; length.into()]);
                    standin.observe_inbound(at(millis), DEVICE, &segment);
                    if flags & (SYN | RST) != 0 {
                        given = None;
                    } else if flags & ACK != 0 {
                        let newer = given.is_none_or(|g| device.acknowledgement.wrapping_sub(g) as i32 > 0);
                        given = if newer { Some(device.acknowledgement) } else { given };
                    }
                }
                Move::Peer(offset, flags, length) => {
                    let place = device.acknowledgement.wrapping_add_signed(offset);
                    let segment = peer.at(place).segment(flags, &vec![1; length.into()]);
                    if asleep {
                        answers.push(give(&mut standin, at(millis), &segment).1);
                    } else {
                        standin.observe_outbound(at(millis), DEVICE, &segment);
                    }
                }
                Move::Wait(more) => millis += u64::from(more % 500),
                Move::Sleep => {
                    asleep = true;
                    sleep(&mut standin, at(millis));
                }
                Move::Wake => {
                    asleep = false;
                    standin.wakes(at(millis), DEVICE);
                }
            }
            answers.extend(own(&mut standin));
            for answer in answers.iter().filter(|a| !a.is_empty()) {
                let packet = Packet::parse(answer).expect("a packet");
                let tcp = Tcp::parse(&packet).expect("TCP");
                prop_assert_eq!((tcp.flags, tcp.payload.len()), (ACK, 0));
                let beyond = given.map(|g| tcp.acknowledgement.wrapping_sub(g) as i32);
                prop_assert!(beyond.is_some_and(|b| b <= 0), "{} was never acknowledged, {:?} was", tcp.acknowledgement, given);
                if let (Some((shown, _)), Some((own, _))) = (tcp.timestamps(), device.time) {
                    prop_assert!(shown <= own, "a clock ahead of the device's");
                }
            }
        }
    }

    /// Data in order, some of it twice, comes out in order and once.
    #[test]
    fn a_stream_that_waits_is_delivered_in_order(lengths in proptest::collection::vec(1_u16..300, 1..60), repeats in proptest::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let (device, peer) = connection();
        let mut standin = asleep_with(&device);
        let mut segments = Vec::new();
        let mut place = 90_000_u32;
        for length in lengths {
            segments.push(peer.at(place).segment(ACK, &vec![3; length.into()]).into_boxed_slice());
            place += u32::from(length);
        }
        let mut millis = 2_000;
        for (i, segment) in segments.iter().enumerate() {
            prop_assert!(matches!(give(&mut standin, at(millis), segment).0, Verdict::Buffered(_)));
            millis += 1;
            for repeat in repeats.iter().filter(|r| r.index(segments.len()) == i) {
                let again = &segments[repeat.index(i + 1)];
                give(&mut standin, at(millis), again);
            }
        }
        prop_assert_eq!(standin.wakes(at(millis), DEVICE), segments);
    }
}
