//! At a home agent.

use std::net::Ipv4Addr;
use std::time::Duration;

use dormouse_mobileip::{Discard, HomeEvent, Side};
use dormouse_wire::mobileip::{ALL_AGENTS, Code, Message, Packet, Request, kind, request};

use crate::world::*;

/// What it answers to a request: the code.
fn answer(w: &mut World) -> Option<Code> {
    let mut out = Vec::new();
    while w.home.poll_transmit(&mut out).is_some() {
        let sent = std::mem::take(&mut out);
        let is_udp = sent[9] == 17;
        if let Some(Ok(Packet { message: Message::Reply(reply), .. })) =
            is_udp.then(|| Packet::parse(&sent[28..]))
        {
            return Some(reply.code);
        }
    }
    None
}

/// A request whose host is not authentic is refused with a reply only "if there is a valid Foreign-Home authentication extension"; otherwise
/// nothing is sent.
#[test]
fn a_forged_request_is_answered_only_if_it_was_vouched_for() {
    for (lifetime, key, told) in [(0, 77, false), (0, FH, true), (300, 77, false), (300, FH, true)] {
        let mut w = World::new(SETTING);
        let id = w.id();
        let asked = Request { lifetime, ..asked(HOME, id) };
        let bytes = message(Message::Request(asked), &[(kind::MOBILE_HOME, 88), (kind::FOREIGN_HOME, key)]);
        let done = w.home.handle_packet(w.now, Side::Routed, &packet(FOREIGN, HOME_AGENT, &bytes));
        assert!(matches!(done, Err(Discard::Unauthentic(_))), "{done:?}");
        let code = answer(&mut w);
        assert_eq!(code, told.then_some(Code::HomeMobileAuthentication), "{lifetime} {key}");
        assert_eq!(w.home.stats().forged, 1);
    }
}

/// A request of a correspondent at home, to this address.
fn at_home(w: &mut World, to: Ipv4Addr) -> Option<Code> {
    let id = w.id();
    let asked = Request { lifetime: 0, care_of: HOME, ..asked(HOME, id) };
    let bytes = message(Message::Request(asked), &[(kind::MOBILE_HOME, MH)]);
    let _ = w.home.handle_packet(w.now, HOST, &packet(HOME, to, &bytes));
    answer(w)
}

#[test]
fn requests_to_all_agents_are_taken_and_those_to_the_whole_network_denied() {
    let mut w = World::new(SETTING);
    w.register(HOME, HOST, 0);
    for everybody in [Ipv4Addr::new(10, 50, 0, 255), Ipv4Addr::BROADCAST] {
        assert_eq!(at_home(&mut w, everybody), Some(Code::HomeUnknown), "{everybody}");
        assert!(w.home.bindings(HOME).eq([FOREIGN]));
    }
    assert_eq!(at_home(&mut w, ALL_AGENTS), Some(Code::Accepted));
    assert_eq!(w.home.bindings(HOME).count(), 0);
}

/// The timestamps of 2036 begin again at 0.
#[test]
fn registrations_go_on_when_the_era_of_ntp_ends() {
    let end = (1_u64 << 32) - 2_208_988_800;
    let mut w = World::registered(Setting { unix: Duration::from_secs(end - 4), lifetime: 8, ..SETTING });
    w.run(60 * SECOND);
    assert!(w.host.current().is_some() && w.home.bindings(HOME).eq([FOREIGN]));
    assert_eq!((w.home.stats().refused, w.host.stats().refused), (0, 0));
    assert!(w.home.stats().accepted >= 8, "{:?}", w.home.stats());
    // What was accepted before the era ended is old after it.
    let old = packet(HOME, HOME_AGENT, &{
        let id = w.clock.ntp(dormouse_sansio::Instant::ZERO + SECOND);
        message(Message::Request(asked(HOME, id)), &[(kind::MOBILE_HOME, MH)])
    });
    let refused = Err(Discard::Refused(Code::HomeIdentification));
    let mut near = World::registered(Setting { unix: Duration::from_secs(end - 1), ..SETTING });
    near.register(HOME, HOST, 0);
    near.run(3 * SECOND);
    near.register(HOME, HOST, 0);
    assert_eq!(near.home.handle_packet(near.now, Side::Routed, &old), refused);
}

#[test]
fn a_forged_request_out_of_a_tunnel_is_counted_once() {
    let mut w = World::new(SETTING);
    w.register(HOME, HOST, request::REVERSE);
    let id = w.id();
    let inside = message(Message::Request(asked(HOME, id)), &[(kind::MOBILE_HOME, 77)]);
    let packet = tunnelled(FOREIGN, HOME_AGENT, &packet(HOME, HOME_AGENT, &inside));
    let done = w.home.handle_packet(w.now, Side::Routed, &packet);
    assert!(matches!(done, Err(Discard::Unauthentic(_))));
    assert_eq!(w.home.stats().forged, 1);
    let events: Vec<HomeEvent> = std::iter::from_fn(|| w.home.poll_event()).collect();
    assert_eq!(events.len(), 1, "{events:?}");
}
