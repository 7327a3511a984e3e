//! At a foreign agent.

use std::net::Ipv4Addr;

use dormouse_mobileip::{Discard, ForeignEvent, Side};
use dormouse_wire::mobileip::{Advertisement, Code, Message, Moved, Reply, Request, agent, extension, kind};

use crate::world::*;

const UNVOUCHED: Setting = Setting { vouched: false, ..SETTING };
const UNKNOWN: Setting = Setting { known: false, vouched: false, ..SETTING };

fn forged(result: Result<(), Discard>) -> bool {
    matches!(result, Err(Discard::Unauthentic(_)))
}

fn events(w: &mut World) -> Vec<ForeignEvent> {
    std::iter::from_fn(|| w.foreign.poll_event()).collect()
}

/// A reply to a host behind the foreign agent, in a packet.
fn reply(from: Ipv4Addr, reply: Reply, keys: &[(u8, u8)]) -> Vec<u8> {
    packet(from, FOREIGN, &message(Message::Reply(reply), keys))
}

/// The request of the host itself, sent once more by an attacker: while it waits, when it was accepted, and when the host has moved on.
#[test]
fn a_request_from_another_link_address_diverts_no_visitor() {
    for setting in [SETTING, UNVOUCHED] {
        let mut w = World::registered(setting);
        let first = w.last_message(Part::Host);
        assert!(forged(w.foreign.handle_packet(w.now, THIEF, &first)));
        w.settle();
        assert_eq!(w.reaches(HOME), [HOST]);
        let id = w.id();
        let renewal = w.request(asked(HOME, id));
        w.foreign.handle_packet(w.now, HOST, &renewal).expect("taken");
        assert!(forged(w.foreign.handle_packet(w.now, THIEF, &renewal)));
        // From where it came it may come again.
        w.foreign.handle_packet(w.now, HOST, &renewal).expect("taken");
        w.settle();
        assert_eq!(w.reaches(HOME), [HOST]);
        assert_eq!(w.foreign.stats().forged, 2);
        let moved = notice(HOME, id, 10);
        w.foreign.handle_packet(w.now, Side::Routed, &moved).expect("taken");
        assert!(forged(w.foreign.handle_packet(w.now, THIEF, &renewal)));
        w.settle();
        assert_eq!(w.reaches(HOME), []);
    }
}

#[test]
fn a_notice_behind_the_signature_is_not_believed() {
    for behind in [false, true] {
        let mut w = World::new(SETTING);
        let id = w.id();
        let mut bytes = message(Message::Request(asked(HOME, id)), &[(kind::MOBILE_HOME, MH)]);
        let moved = Moved { previous: OTHER, home: HOME, care_of: FOREIGN, lifetime: 10, id: 1 };
        let inside = message(Message::Moved(moved), &[(kind::MOBILE_FOREIGN, 77)]);
        let append = |bytes: &mut Vec<u8>| extension(kind::EXPERIMENT, &inside[1..], bytes).expect("it fits");
        if behind {
            sign(kind::MOBILE_FOREIGN, MF, &mut bytes);
            append(&mut bytes);
        } else {
            append(&mut bytes);
            sign(kind::MOBILE_FOREIGN, MF, &mut bytes);
        }
        w.foreign.handle_packet(w.now, HOST, &packet(HOME, FOREIGN, &bytes)).expect("relayed");
        w.settle();
        let told = w.seen.iter().any(|(by, _, sent)| *by == Part::Foreign && to(sent) == OTHER);
        assert_eq!(told, !behind);
        let asked = events(&mut w)[0];
        let previous = (!behind).then_some(OTHER);
        assert_eq!(asked, ForeignEvent::Asked { home: HOME, home_agent: HOME_AGENT, previous });
    }
}

/// The notice of a host that has moved to the other agent, sent on by that one.
fn notice(home: Ipv4Addr, id: u64, lifetime: u16) -> Vec<u8> {
    let moved = Moved { previous: FOREIGN, home, care_of: OTHER, lifetime, id };
    packet(OTHER, FOREIGN, &message(Message::Moved(moved), &[(kind::MOBILE_FOREIGN, MF)]))
}

#[test]
fn a_notice_counts_once_and_prolongs_nothing() {
    let mut w = World::new(SETTING);
    let id = w.register(HOME, HOST, 0);
    let moved = notice(HOME, id, 10);
    w.foreign.handle_packet(w.now, Side::Routed, &moved).expect("taken");
    w.run(8 * SECOND);
    assert_eq!(w.foreign.handle_packet(w.now, Side::Routed, &moved), Err(Discard::Unexpected));
    w.run(3 * SECOND);
    assert_eq!(w.foreign.held().1, 0);
    // A visit that ends before stays that short.
    let id = w.id();
    let bytes = w.request(Request { lifetime: 3, ..asked(HOME, id) });
    w.foreign.handle_packet(w.now, HOST, &bytes).expect("taken");
    w.settle();
    let moved = notice(HOME, id, 10);
    w.foreign.handle_packet(w.now, Side::Routed, &moved).expect("taken");
    w.run(4 * SECOND);
    assert_eq!(w.foreign.held().1, 0);
}

#[test]
fn only_its_agents_send_packets_after_a_host() {
    let mut w = World::new(SETTING);
    let id = w.register(HOME, HOST, 0);
    let moved = notice(HOME, id, 10);
    w.foreign.handle_packet(w.now, Side::Routed, &moved).expect("taken");
    for (from, sent) in [(STRANGER, 0), (OTHER, 0), (HOME_AGENT, 1)] {
        let packet = tunnelled(from, FOREIGN, &data(STRANGER, HOME, 100));
        let done = w.foreign.handle_packet(w.now, Side::Routed, &packet);
        assert_eq!((done.is_ok(), w.foreign.stats().sent_after), (sent == 1, sent), "{from}");
    }
}

/// A host that shares no key with the agent keeps its place while it has one.
#[test]
fn a_host_without_a_key_is_not_displaced() {
    let mut w = World::new(UNKNOWN);
    w.register(HOME, HOST, 0);
    events(&mut w);
    let id = w.id();
    let elsewhere = Request { agent: STRANGER, ..asked(HOME, id) };
    let ends = Request { lifetime: 0, ..asked(HOME, id) };
    for (asked, from) in [(asked(HOME, id), THIEF), (elsewhere, HOST), (ends, THIEF)] {
        w.run(2 * SECOND);
        let bytes = w.request(asked);
        let refused = Err(Discard::Refused(Code::ForeignProhibited));
        assert_eq!(w.foreign.handle_packet(w.now, from, &bytes), refused);
        w.settle();
        assert_eq!(events(&mut w), [ForeignEvent::Refused { home: HOME, code: Code::ForeignProhibited }]);
        assert_eq!(w.reaches(HOME), [HOST]);
    }
    // Two that asked before anybody was there: the second answer is not an authentic one either.
    let mut w = World::new(UNKNOWN);
    let ids = [w.id(), w.id()];
    for (id, from) in [(ids[0], HOST), (ids[1], THIEF)] {
        let bytes = w.request(asked(HOME, id));
        w.foreign.handle_packet(w.now, from, &bytes).expect("taken");
    }
    for id in ids {
        let granted = Reply { code: Code::Accepted, lifetime: 300, home: HOME, agent: HOME_AGENT, id };
        let bytes = reply(HOME_AGENT, granted, &[(kind::MOBILE_HOME, 77)]);
        let _ = w.foreign.handle_packet(w.now, Side::Routed, &bytes);
    }
    let packet = tunnelled(HOME_AGENT, FOREIGN, &data(STRANGER, HOME, 100));
    let mut out = Vec::new();
    while w.foreign.poll_transmit(&mut out).is_some() {
        out.clear();
    }
    w.foreign.handle_packet(w.now, Side::Routed, &packet).expect("taken");
    assert_eq!(w.foreign.poll_transmit(&mut out), Some(HOST));
}

#[test]
fn a_reply_comes_from_the_home_agent_that_was_asked() {
    let mut w = World::new(UNKNOWN);
    w.register(HOME, HOST, 0);
    let id = w.id();
    let bytes = w.request(asked(HOME, id));
    w.foreign.handle_packet(w.now, HOST, &bytes).expect("taken");
    let right = Reply { code: Code::Accepted, lifetime: 0, home: HOME, agent: HOME_AGENT, id };
    for (from, agent) in [(STRANGER, HOME_AGENT), (HOME_AGENT, STRANGER)] {
        let bytes = reply(from, Reply { agent, ..right }, &[(kind::MOBILE_HOME, MH)]);
        assert_eq!(w.foreign.handle_packet(w.now, Side::Routed, &bytes), Err(Discard::Unexpected));
        assert_eq!(w.foreign.held(), (1, 1));
    }
    // A reply that is not signed ends no visit for whose end the host has not asked.
    let bytes = reply(HOME_AGENT, right, &[(kind::MOBILE_HOME, MH)]);
    w.foreign.handle_packet(w.now, Side::Routed, &bytes).expect("handed over");
    assert_eq!(w.foreign.held(), (0, 1));
    // A host that looked for a home agent learns which one there is.
    let id = w.id();
    let anyone = Request { agent: Ipv4Addr::new(10, 50, 0, 255), ..asked(HOME_2, id) };
    let bytes = w.request(anyone);
    w.foreign.handle_packet(w.now, HOST_2, &bytes).expect("taken");
    let named = Reply { code: Code::HomeUnknown, lifetime: 0, home: HOME_2, agent: HOME_AGENT, id };
    let bytes = reply(HOME_AGENT, named, &[(kind::MOBILE_HOME, MH)]);
    assert_eq!(w.foreign.handle_packet(w.now, Side::Routed, &bytes), Ok(()));
}

/// What is signed ends a visit, and so does what the host has asked for.
#[test]
fn a_visit_ends_by_an_authentic_reply() {
    let mut w = World::new(SETTING);
    w.register(HOME, HOST, 0);
    let id = w.id();
    let bytes = w.request(asked(HOME, id));
    w.foreign.handle_packet(w.now, HOST, &bytes).expect("taken");
    let over = Reply { code: Code::Accepted, lifetime: 0, home: HOME, agent: HOME_AGENT, id };
    let bytes = reply(HOME_AGENT, over, &[(kind::MOBILE_HOME, MH), (kind::FOREIGN_HOME, FH)]);
    w.foreign.handle_packet(w.now, Side::Routed, &bytes).expect("handed over");
    assert_eq!(w.foreign.held().1, 0);
    w.register(HOME, HOST, 0);
    let id = w.id();
    let bytes = w.request(Request { lifetime: 0, ..asked(HOME, id) });
    w.foreign.handle_packet(w.now, HOST, &bytes).expect("taken");
    w.settle();
    assert_eq!(w.foreign.held(), (0, 0));
}

#[test]
fn an_answer_settles_what_was_asked_before() {
    let mut w = World::new(UNVOUCHED);
    let ids = [w.id(), w.id(), w.id()];
    for id in ids {
        let bytes = w.request(asked(HOME, id));
        w.foreign.handle_packet(w.now, HOST, &bytes).expect("taken");
        w.now += SECOND;
    }
    let id = ids[1];
    let granted = Reply { code: Code::Accepted, lifetime: 300, home: HOME, agent: HOME_AGENT, id };
    let bytes = reply(HOME_AGENT, granted, &[(kind::MOBILE_HOME, MH)]);
    w.foreign.handle_packet(w.now, Side::Routed, &bytes).expect("handed over");
    assert_eq!(w.foreign.held(), (1, 1), "the one after it still waits");
}

/// "Busy. The foreign agent will not accept registrations from additional mobile nodes."
#[test]
fn a_full_agent_says_that_it_is_busy() {
    let mut w = World::new(UNKNOWN);
    let busy = |w: &mut World| {
        w.seen.clear();
        w.run(2 * SECOND);
        let (_, _, bytes) = w.seen.iter().rev().find(|(by, ..)| *by == Part::Foreign).expect("it advertises");
        let ip = dormouse_wire::ip::Ipv4::parse(bytes).expect("a packet");
        Advertisement::parse(&ip).expect("an advertisement").agent(agent::FOREIGN | agent::BUSY).is_some()
    };
    assert!(!busy(&mut w));
    for n in 0..1_024_u16 {
        let id = w.id();
        let [high, low] = n.to_be_bytes();
        let home = Ipv4Addr::new(10, 70, high, low);
        let bytes = w.request(asked(home, id));
        w.foreign.handle_packet(w.now, HOST, &bytes).expect("taken");
        let granted = Reply { code: Code::Accepted, lifetime: 30, home, agent: HOME_AGENT, id };
        let bytes = reply(HOME_AGENT, granted, &[(kind::MOBILE_HOME, MH)]);
        w.foreign.handle_packet(w.now, Side::Routed, &bytes).expect("handed over");
        while w.foreign.poll_transmit(&mut Vec::new()).is_some() {}
    }
    assert_eq!(w.foreign.held().1, 1_024);
    assert!(busy(&mut w));
    w.run(40 * SECOND);
    assert_eq!(w.foreign.held().1, 0);
    assert!(!busy(&mut w));
}
