//! Errors from inside of tunnels, and what is learnt by them.

use std::net::Ipv4Addr;

use dormouse_mobileip::{Discard, Refusal, Side};
use dormouse_wire::ip::icmp;
use dormouse_wire::mobileip::request;

use crate::world::*;

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
const NARROW: Result<(), Discard> = Err(Discard::NotTunnelled(Refusal::TooBig(1_280)));

fn too_big(sent: &[u8], to: Ipv4Addr) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(icmp::error_too_big(sent, ROUTER, 1_300, &mut out));
    assert_eq!(crate::world::to(&out), to);
    out
}

/// Both hosts there, with tunnels back.
fn two() -> World {
    let mut w = World::new(SETTING);
    w.register(HOME, HOST, request::REVERSE);
    w.register(HOME_2, HOST_2, request::REVERSE);
    w
}

#[test]
fn a_narrow_way_is_narrow_for_all_at_its_end() {
    let mut w = two();
    w.seen.clear();
    w.home.handle_packet(w.now, Side::Routed, &data(STRANGER, HOME_2, 1_400)).expect("sent");
    w.settle();
    let error = too_big(&w.seen[0].2, HOME_AGENT);
    w.seen.clear();
    w.home.handle_packet(w.now, Side::Routed, &error).expect("taken");
    w.settle();
    assert_eq!(w.seen.iter().map(|(_, _, sent)| to(sent)).collect::<Vec<_>>(), [STRANGER]);
    for home in [HOME, HOME_2] {
        assert_eq!(w.home.handle_packet(w.now, Side::Routed, &data(STRANGER, home, 1_400)), NARROW);
    }
    // A renewal is no new way.
    w.register(HOME_2, HOST_2, request::REVERSE);
    assert_eq!(w.home.handle_packet(w.now, Side::Routed, &data(STRANGER, HOME_2, 1_400)), NARROW);
}

#[test]
fn an_error_from_a_tunnel_back_reaches_whom_it_concerns() {
    let mut w = two();
    w.seen.clear();
    w.foreign.handle_packet(w.now, HOST_2, &data(HOME_2, STRANGER, 1_400)).expect("sent");
    w.settle();
    let error = too_big(&w.seen[0].2, FOREIGN);
    w.seen.clear();
    w.foreign.handle_packet(w.now, Side::Routed, &error).expect("taken");
    w.settle();
    assert_eq!(
        w.seen.iter().map(|(_, side, sent)| (*side, to(sent))).collect::<Vec<_>>(),
        [(HOST_2, HOME_2)]
    );
    for (home, from) in [(HOME, HOST), (HOME_2, HOST_2)] {
        assert_eq!(w.foreign.handle_packet(w.now, from, &data(home, STRANGER, 1_400)), NARROW);
    }
    w.register(HOME_2, HOST_2, request::REVERSE);
    assert_eq!(w.foreign.handle_packet(w.now, HOST_2, &data(HOME_2, STRANGER, 1_400)), NARROW);
}
