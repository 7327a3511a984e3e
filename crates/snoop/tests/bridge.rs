//! The agent in a bridge: it keeps and repeats frames with their own header, reads only those with IP in them, and leaves all others alone.

mod common;

use common::{Family, ack, data, ms, packet};
use dormouse_snoop::tcp::{Agent, Limits};
use dormouse_snoop::{Repair, Verdict};
use proptest::prelude::*;

const LEN: usize = 100;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A frame from the `host`th address.
fn frame(host: u8, kind: &[u8], packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, host][..], kind, packet].concat()
}

fn segment(number: usize) -> Vec<u8> {
    data((number * LEN) as u32, LEN)
}

/// Segment 0 is acknowledged; 1 to 5 have passed, each from a host of its own. The frames of 1 to 5.
fn warm(agent: &mut Agent, kind: &[u8]) -> Vec<Vec<u8>> {
    agent.to_device(ms(0), &frame(9, kind, &segment(0)));
    agent.from_device(ms(10), &frame(7, kind, &ack(LEN as u32, &[])));
    let frames: Vec<_> = (1..=5).map(|n| frame(n, kind, &segment(n.into()))).collect();
    frames.iter().zip(20..).for_each(|(frame, at)| agent.to_device(ms(at), frame));
    frames
}

#[test]
fn a_lost_frame_is_repeated_with_its_own_header() {
    let mut agent = Agent::in_bridge(Limits::default());
    let frames = warm(&mut agent, &IPV4);
    let duplicate = frame(7, &IPV4, &ack(LEN as u32, &[]));
    assert_eq!(agent.from_device(ms(31), &duplicate), Verdict::Suppress);
    let mut out = Vec::new();
    assert!(agent.poll_transmit(ms(31), &mut out));
    assert_eq!(out, frames[0]);
    assert_eq!(agent.from_device(ms(42), &frame(7, &IPV4, &ack(6 * LEN as u32, &[]))), Verdict::Forward);
    assert_eq!(agent.held(), (1, 0, 0));
}

#[test]
fn ipv6_is_read_too_and_what_fills_a_frame_up_is_not_kept() {
    let (fixed, device) = (Family::V6.fixed(), Family::V6.device(5_000));
    let mut agent = Agent::in_bridge(Limits::default());
    let short = frame(1, &IPV6, &packet(fixed, device, |s| s.sequence = 1, b"x"));
    agent.to_device(ms(0), &[&short[..], &[0; 9]].concat());
    assert_eq!(agent.held(), (1, 1, short.len()));
    let at = agent.poll_timeout().expect("a timer").at;
    agent.handle_timeout(at);
    let mut out = Vec::new();
    assert!(agent.poll_transmit(at, &mut out));
    assert_eq!(out, short);
}

#[test]
fn other_frames_are_left_alone() {
    let tagged = [&[0x81, 0x00, 0, 5][..], &IPV4].concat();
    // Tagged, ARP, a type that is not the packet's, and a length.
    for kind in [&tagged[..], &[0x08, 0x06], &IPV6, &[0x00, 0x80]] {
        let mut agent = Agent::in_bridge(Limits::default());
        warm(&mut agent, kind);
        let duplicate = frame(7, kind, &ack(LEN as u32, &[]));
        assert_eq!(agent.from_device(ms(31), &duplicate), Verdict::Forward, "{kind:x?}");
        assert_eq!((agent.held(), agent.is_due()), ((0, 0, 0), false), "{kind:x?}");
    }
    // And an agent of packets takes no frame for one.
    let mut agent = Agent::new(Limits::default());
    warm(&mut agent, &IPV4);
    assert_eq!(agent.held(), (0, 0, 0));
}

proptest! {
    #[test]
    fn no_frame_makes_it_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20)) {
        let mut repair = Repair::Snoop(Box::new(Agent::in_bridge(Limits::default())));
        for (frame, at) in frames.iter().zip(0..) {
            let with = [&frame[..], &segment(1)].concat();
            // Behind a right header too: few random bytes are a type that is looked into.
            let inside = self::frame(7, &IPV4, frame);
            let inside_v6 = self::frame(7, &IPV6, frame);
            for bytes in [frame, &with, &inside, &inside_v6] {
                repair.to_device(ms(at), bytes);
                repair.from_device(ms(at), bytes);
            }
        }
    }
}
