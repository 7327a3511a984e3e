//! New TCP data: kept, and its sender told that there is no room.

mod common;

use common::*;
use dormouse_standin::{Class, Kind, Limits, Reason, Verdict};
use dormouse_wire::ip::tcp::{ACK, FIN, PSH, SYN};

#[test]
fn the_sender_is_held_and_released_on_wake() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    let data = peer.segment(ACK | PSH, b"four");
    let (verdict, answer) = give(&mut standin, at(2_000), &data);
    assert_eq!(verdict, Verdict::Buffered(Class::Stream));
    assert_eq!(told(&answer), (ACK, 5_000, 90_000, 0, None), "no byte more, and no room");
    // Its probes of the window are answered in the same way.
    let (verdict, answer) = give(&mut standin, at(3_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!((verdict, told(&answer).3), (Verdict::Answered(Kind::TcpKeepAlive), 0));
    assert_eq!(standin.wakes(at(4_000), DEVICE), [data.into_boxed_slice()]);
    let [release] = &own(&mut standin)[..] else { panic!("one peer was held") };
    assert_eq!(told(release), (ACK, 5_000, 90_000, 501, None));
    assert!(own(&mut standin).is_empty());
}

#[test]
fn data_again_is_answered_but_not_kept_twice() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    let data = peer.segment(ACK | PSH, &[1; 500]);
    assert_eq!(give(&mut standin, at(2_000), &data).0, Verdict::Buffered(Class::Stream));
    let (verdict, answer) = give(&mut standin, at(2_200), &data);
    assert_eq!((verdict, told(&answer).3), (Verdict::Dropped(Reason::Duplicate), 0));
    // The same from there on, and more: it replaces what there was.
    let longer = peer.segment(ACK | PSH, &[1; 900]);
    assert_eq!(give(&mut standin, at(2_400), &longer).0, Verdict::Buffered(Class::Stream));
    assert_eq!(standin.wakes(at(3_000), DEVICE), [longer.into_boxed_slice()]);
}

#[test]
fn keep_alives_above_tcp_are_data_and_count_by_name() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    let mut echo = vec![0, 0, 0, 68, 0xfe, b'S', b'M', b'B', 64, 0];
    echo.resize(72, 0);
    echo[4 + 12] = 13;
    for payload in [&echo[..], &[0x85, 0, 0, 0]] {
        let (verdict, answer) = give(&mut standin, at(2_000), &peer.segment(ACK | PSH, payload));
        assert!(matches!(verdict, Verdict::Buffered(Class::Stream) | Verdict::Dropped(Reason::Duplicate)));
        assert!(answer.is_empty() || told(&answer).2 == 90_000);
    }
    let mut standin = asleep_with(&device);
    give(&mut standin, at(2_000), &peer.segment(ACK | PSH, &[0x85, 0, 0, 0]));
    give(&mut standin, at(2_200), &peer.at(90_004).segment(ACK | PSH, &echo));
    let answered = &standin.counters(DEVICE).expect("known").answered;
    assert_eq!((answered[&Kind::NetBiosSession], answered[&Kind::SmbEcho]), (1, 1));
}

#[test]
fn an_end_of_stream_waits_as_control() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    assert_eq!(
        give(&mut standin, at(2_000), &peer.segment(FIN | ACK, b"")).0,
        Verdict::Buffered(Class::Control)
    );
    assert_eq!(
        give(&mut standin, at(3_000), &peer.segment(FIN | ACK, b"")).0,
        Verdict::Dropped(Reason::Duplicate)
    );
}

#[test]
fn what_lies_outside_of_every_window_is_dropped_without_a_word() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    for sequence in [90_000 + (1 << 30), 90_000u32.wrapping_sub(1 << 30)] {
        let (verdict, answer) = give(&mut standin, at(2_000), &peer.at(sequence).segment(ACK, b"blind"));
        assert_eq!((verdict, answer.len()), (Verdict::Dropped(Reason::OutOfWindow), 0));
    }
}

#[test]
fn sequence_numbers_may_wrap() {
    let (device, peer) = connection();
    let device = End { acknowledgement: 2, sequence: 3, ..device };
    let mut standin = asleep_with(&End { acknowledgement: u32::MAX - 5, ..device });
    assert!(
        give(&mut standin, at(2_000), &peer.at(u32::MAX - 6).segment(ACK, b"")).0
            == Verdict::Answered(Kind::TcpKeepAlive)
    );
    let (verdict, answer) = give(&mut standin, at(3_000), &peer.at(u32::MAX - 5).segment(ACK, &[0; 20]));
    assert_eq!((verdict, told(&answer).2), (Verdict::Buffered(Class::Stream), u32::MAX - 5));
    let mut standin = asleep_with(&device);
    assert!(
        give(&mut standin, at(2_000), &peer.at(u32::MAX - 5).segment(ACK, &[0; 8])).0
            == Verdict::Answered(Kind::TcpKeepAlive)
    );
}

#[test]
fn holding_can_be_switched_off() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits { hold_tcp: false, ..Limits::default() });
    standin.observe_inbound(at(0), DEVICE, &device.segment(ACK, b""));
    sleep(&mut standin, at(1));
    let (verdict, answer) = give(&mut standin, at(2), &peer.segment(ACK, b"data"));
    assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Stream), 0));
    standin.wakes(at(3), DEVICE);
    assert!(own(&mut standin).is_empty());
}

#[test]
fn only_the_newest_opening_of_a_connection_is_kept() {
    let (_, peer) = connection();
    let mut standin = enrolled(Limits::default());
    sleep(&mut standin, at(0));
    for second in 0..3 {
        let (verdict, answer) = give(&mut standin, at(second * 1_000), &peer.segment(SYN, b""));
        assert_eq!((verdict, answer.len()), (Verdict::Buffered(Class::Opening), 0));
    }
    assert_eq!(standin.wakes(at(3_000), DEVICE).len(), 1);
}
