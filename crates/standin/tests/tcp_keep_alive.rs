//! TCP segments with nothing new.

mod common;

use common::*;
use dormouse_standin::{Class, Kind, Limits, Reason, Verdict};
use dormouse_wire::ip::tcp::{ACK, FIN, PSH, RST, SYN};

#[test]
fn a_probe_gets_the_devices_own_last_word() {
    let (device, peer) = connection();
    for probe in [peer.at(89_999).segment(ACK, b""), peer.at(89_999).segment(ACK, b"\0")] {
        let mut standin = asleep_with(&device);
        let (verdict, answer) = give(&mut standin, at(2_000), &probe);
        assert_eq!(verdict, Verdict::Answered(Kind::TcpKeepAlive));
        assert_eq!(told(&answer), (ACK, 5_000, 90_000, 501, None));
    }
}

#[test]
fn timestamps_never_run_ahead_of_the_device() {
    let (mut device, mut peer) = connection();
    (device.time, peer.time) = (Some((111, 222)), Some((333, 111)));
    let mut standin = asleep_with(&device);
    let (_, answer) = give(&mut standin, at(2_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!(told(&answer).4, Some((111, 333)));
    peer.time = None;
    let (verdict, answer) = give(&mut standin, at(3_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Acknowledgement), 0), "not the peer's");
}

#[test]
fn data_that_the_device_has_is_acknowledged_again() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    let again = peer.at(89_000).segment(ACK | PSH, &[7; 1_000]);
    let (verdict, answer) = give(&mut standin, at(2_000), &again);
    assert_eq!(verdict, Verdict::Answered(Kind::TcpKeepAlive));
    assert_eq!(told(&answer), (ACK, 5_000, 90_000, 501, None));
    assert_eq!(give(&mut standin, at(2_050), &again).0, Verdict::Dropped(Reason::RateLimited));
}

#[test]
fn a_plain_acknowledgement_is_not_answered_and_only_the_newest_is_kept() {
    let (device, mut peer) = connection();
    let mut standin = asleep_with(&device);
    for acknowledgement in [4_000, 4_500, 5_000] {
        peer.acknowledgement = acknowledgement;
        let (verdict, answer) = give(&mut standin, at(2_000), &peer.segment(ACK, b""));
        assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Acknowledgement), 0));
    }
    assert_eq!(standin.wakes(at(3_000), DEVICE), [peer.segment(ACK, b"").into_boxed_slice()]);
    assert_eq!(standin.counters(DEVICE).expect("known").dropped[&Reason::Superseded], 2);
}

#[test]
fn a_connection_that_was_never_seen_is_not_spoken_for() {
    let (_, peer) = connection();
    let mut standin = enrolled(Limits::default());
    sleep(&mut standin, at(0));
    let (verdict, answer) = give(&mut standin, at(1), &peer.at(89_999).segment(ACK, b""));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Acknowledgement), 0));
    let (verdict, answer) = give(&mut standin, at(2), &peer.segment(ACK, b"data"));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Datagram), 0));
}

#[test]
fn a_handshake_is_no_connection_yet() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits::default());
    standin.observe_inbound(at(0), DEVICE, &device.segment(SYN | ACK, b""));
    sleep(&mut standin, at(1));
    let (verdict, answer) = give(&mut standin, at(2), &peer.at(89_999).segment(ACK, b""));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Acknowledgement), 0));
}

#[test]
fn after_a_reset_nothing_is_said_any_more() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    let forged = peer.at(90_001).segment(RST, b"");
    assert_eq!(give(&mut standin, at(1_500), &forged).0, Verdict::Buffered(Class::Control));
    assert_eq!(
        give(&mut standin, at(1_600), &peer.at(89_999).segment(ACK, b"")).0,
        Verdict::Answered(Kind::TcpKeepAlive)
    );
    assert_eq!(give(&mut standin, at(2_000), &peer.segment(RST, b"")).0, Verdict::Buffered(Class::Control));
    let (verdict, answer) = give(&mut standin, at(3_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Acknowledgement), 0));
    let far = connection().1.at(90_000u32.wrapping_add(1 << 31)).segment(RST, b"");
    assert!(matches!(give(&mut standin, at(3_100), &far).0, Verdict::Buffered(_)), "not known any more");
}

#[test]
fn a_connection_that_the_device_closed_is_forgotten() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits::default());
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    standin.observe_outbound(at(1), DEVICE, &peer.segment(FIN | ACK, b""));
    let last = common::End { acknowledgement: 90_001, ..device };
    standin.observe_inbound(at(2), DEVICE, &last.segment(FIN | ACK, b""));
    sleep(&mut standin, at(3));
    let (verdict, answer) = give(&mut standin, at(4), &peer.at(90_000).segment(ACK, b""));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Acknowledgement), 0));
}

#[test]
fn signed_segments_are_the_two_ends_own() {
    let (device, peer) = connection();
    let mut out = Vec::new();
    let mut options = [0; 20];
    options[..2].copy_from_slice(&[19, 18]);
    dormouse_wire::ip::tcp::Segment {
        src: device.here.into(),
        dst: device.there.into(),
        sequence: 5_000,
        acknowledgement: 90_000,
        flags: ACK,
        window: 501,
        options: &options,
    }
    .build(b"", &mut out)
    .expect("a segment");
    let mut standin = enrolled(Limits::default());
    standin.observe_inbound(at(0), DEVICE, &out);
    sleep(&mut standin, at(1));
    assert!(give(&mut standin, at(2), &peer.at(89_999).segment(ACK, b"")).1.is_empty());
    assert!(give(&mut standin, at(3), &peer.segment(ACK, b"data")).1.is_empty());
}
