//! A device that sleeps goes to another gateway's stand-in.

mod common;

use common::*;
use core::time::Duration;
use dormouse_standin::{Class, Kind, Limits, Service, StandIn, Verdict, Waiting};
use dormouse_wire::ip::tcp::{ACK, MD5_SIGNATURE, PSH, Segment};

/// The device is this stand-in's now.
fn moved(now: u64, from: &mut StandIn) -> (StandIn, Vec<Waiting>) {
    let slept = from.describe(at(now), DEVICE).expect("it sleeps");
    let waiting = from.take_waiting(at(now), DEVICE);
    from.forget(DEVICE);
    let mut to = enrolled(Limits::default());
    assert!(to.sleeps(at(now), DEVICE, slept.service, at(now) + slept.left));
    to.learn(at(now), DEVICE, &slept.heard);
    (to, waiting)
}

#[test]
fn the_other_one_answers_and_keeps_as_this_one_did() {
    let (device, peer) = connection();
    let mut here = asleep_with(&device);
    pong(&mut here, DEVICE, ADDRESS);
    let data = peer.segment(ACK | PSH, b"four");
    assert_eq!(give(&mut here, at(2_000), &data).0, Verdict::Buffered(Class::Stream));
    let (mut there, waiting) = moved(3_000, &mut here);
    assert!(waiting.iter().all(|w| there.keep_on(at(3_000), DEVICE, w)));
    assert_eq!(waiting.len(), 1);
    assert_eq!(there.asleep(DEVICE).expect("it sleeps").until, at(3_601_000), "as long as it said");
    // The data that waits is not kept twice; a probe of the window is told what the device said last, and that there is no room.
    let (verdict, answer) = give(&mut there, at(4_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!(verdict, Verdict::Answered(Kind::TcpKeepAlive));
    assert_eq!(told(&answer), (ACK, 5_000, 90_000, 0, None));
    assert_eq!(give(&mut there, at(4_500), &ping(PEER, ADDRESS, false)).0, Verdict::Answered(Kind::Echo));
    assert_eq!(there.wakes(at(5_000), DEVICE), [data.into_boxed_slice()]);
    let [release] = &own(&mut there)[..] else { panic!("the peer is told that there is room") };
    assert_eq!(told(release), (ACK, 5_000, 90_000, 501, None));
    assert!(here.asleep(DEVICE).is_none() && here.waiting() == (0, 0));
}

#[test]
fn timestamps_go_along_and_nothing_is_said_on_signed_connections() {
    let (mut device, peer) = connection();
    device.time = Some((700, 30));
    let mut here = asleep_with(&device);
    let (mut there, _) = moved(2_000, &mut here);
    let probe = End { time: Some((40, 700)), ..peer.at(89_999) };
    assert_eq!(told(&give(&mut there, at(3_000), &probe.segment(ACK, b"")).1).4, Some((700, 40)));

    let mut here = enrolled(Limits::default());
    let mut signed = Vec::new();
    let mut options = vec![MD5_SIGNATURE, 18];
    options.resize(20, 1);
    let segment = Segment {
        src: device.here.into(),
        dst: device.there.into(),
        sequence: 5_000,
        acknowledgement: 90_000,
        flags: ACK,
        window: 501,
        options: &options,
    };
    segment.build(b"", &mut signed).expect("a segment");
    here.observe_inbound(at(0), DEVICE, &signed);
    sleep(&mut here, at(1_000));
    let (mut there, _) = moved(2_000, &mut here);
    assert!(give(&mut there, at(3_000), &peer.at(89_999).segment(ACK, b"")).1.is_empty());
}

#[test]
fn what_waits_grows_no_older_than_it_would_have() {
    let mut here = enrolled(Limits::default());
    sleep(&mut here, at(1_000));
    assert_eq!(give(&mut here, at(2_000), &plain(b"old")).0, Verdict::Buffered(Class::Datagram));
    assert_eq!(give(&mut here, at(90_000), &plain(b"young")).0, Verdict::Buffered(Class::Datagram));
    let (mut there, waiting) = moved(100_000, &mut here);
    assert!(waiting.iter().all(|w| there.keep_on(at(100_000), DEVICE, w)));
    assert_eq!(
        there.wakes(at(125_000), DEVICE),
        [plain(b"young").into_boxed_slice()],
        "two minutes from its coming"
    );
}

#[test]
fn nothing_is_kept_for_one_that_is_awake_or_has_nothing_kept() {
    let waiting = Waiting { left: Duration::from_secs(9), packet: plain(b"x").into() };
    let mut awake = enrolled(Limits::default());
    assert!(!awake.keep_on(at(0), DEVICE, &waiting) && awake.describe(at(0), DEVICE).is_none());
    let answers = Service { answer: true, keep: false };
    assert!(awake.sleeps(at(0), DEVICE, answers, at(60_000)));
    assert!(!awake.keep_on(at(0), DEVICE, &waiting));
    let late = Waiting { left: Duration::ZERO, ..waiting };
    assert!(awake.sleeps(at(0), DEVICE, Service::FULL, at(60_000)));
    assert!(!awake.keep_on(at(0), DEVICE, &late));
}
