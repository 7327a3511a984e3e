//! A device whose packets pass elsewhere while it is awake.

mod common;

use common::*;
use dormouse_standin::{Class, DeviceId, Kind, Limits, Verdict};
use dormouse_wire::ip::tcp::ACK;

#[test]
fn what_was_seen_elsewhere_is_answered_with_and_what_was_known_before_too() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits::default());
    pong(&mut standin, DEVICE, ADDRESS);
    let mut observer = standin.lend(DEVICE).expect("it is awake");
    observer.observe_inbound(at(10), &device.segment(ACK, b""));
    // What passes here on the way there and back is of no account.
    standin.observe_inbound(at(11), DEVICE, &device.at(1).segment(ACK, b""));
    standin.take_back(at(20), DEVICE, observer);
    sleep(&mut standin, at(30));
    let (verdict, answer) = give(&mut standin, at(2_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!(verdict, Verdict::Answered(Kind::TcpKeepAlive));
    assert_eq!(told(&answer), (ACK, 5_000, 90_000, 501, None));
    assert_eq!(give(&mut standin, at(2_010), &ping(PEER, ADDRESS, false)).0, Verdict::Answered(Kind::Echo));
}

#[test]
fn a_device_that_sleeps_already_is_served_by_what_comes_back_later() {
    let (device, peer) = connection();
    let mut standin = enrolled(Limits::default());
    let mut observer = standin.lend(DEVICE).expect("it is awake");
    observer.observe_inbound(at(10), &device.segment(ACK, b""));
    sleep(&mut standin, at(20));
    let probe = peer.at(89_999).segment(ACK, b"");
    assert_eq!(give(&mut standin, at(30), &probe).0, Verdict::Buffered(Class::Acknowledgement));
    assert!(standin.lend(DEVICE).is_none(), "it sleeps");
    let before = standin.asleep(DEVICE);
    standin.take_back(at(40), DEVICE, observer);
    assert_eq!(standin.asleep(DEVICE), before, "and sleeps on");
    assert_eq!(give(&mut standin, at(50), &probe).0, Verdict::Answered(Kind::TcpKeepAlive));
}

#[test]
fn what_is_lost_elsewhere_is_not_answered_with() {
    let (device, peer) = connection();
    let mut standin = asleep_with(&device);
    standin.wakes(at(10), DEVICE);
    drop(standin.lend(DEVICE).expect("it is awake"));
    sleep(&mut standin, at(20));
    let (verdict, _) = give(&mut standin, at(2_000), &peer.at(89_999).segment(ACK, b""));
    assert_eq!(verdict, Verdict::Buffered(Class::Acknowledgement));
}

#[test]
fn one_that_is_forgotten_meanwhile_stays_forgotten() {
    let mut standin = enrolled(Limits::default());
    let observer = standin.lend(DEVICE).expect("it is awake");
    standin.forget(DEVICE);
    standin.take_back(at(10), DEVICE, observer);
    assert!(standin.counters(DEVICE).is_none() && standin.lend(DeviceId(8)).is_none());
}
