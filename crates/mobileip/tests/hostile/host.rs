//! At a mobile host.

use std::net::Ipv4Addr;

use dormouse_mobileip::{CoLocated, Discard, LinkAddress, MobileEvent, Side};
use dormouse_wire::mobileip::{
    ALL_SYSTEMS, Advertisement, Code, INFINITY, Message, Mobility, Packet, Reply, Router, agent, kind,
};

use crate::world::*;

/// What anybody on the link can send.
fn advertisement(from: Ipv4Addr, lifetime: u16, flags: u16) -> Vec<u8> {
    let advertisement = Advertisement {
        code: 0,
        lifetime: INFINITY,
        routers: vec![Router { address: from, preference: 0 }],
        mobility: Some(Mobility { sequence: 1_000, lifetime, flags, care_of: vec![from] }),
        prefixes: Vec::new(),
    };
    let mut out = Vec::new();
    advertisement.emit(from, ALL_SYSTEMS, &mut out).expect("it fits");
    out
}

/// The requests that the host has sent.
fn requests(w: &World) -> Vec<(Side, u16)> {
    let asked = w.seen.iter().filter(|(by, _, sent)| *by == Part::Host && sent[9] == 17);
    asked
        .filter_map(|(_, side, sent)| match Packet::parse(&sent[28..]).ok()?.message {
            Message::Request(asked) => Some((*side, asked.lifetime)),
            _ => None,
        })
        .collect()
}

#[test]
fn an_advertisement_without_lifetime_ends_no_registration() {
    let mut w = World::registered(SETTING);
    w.seen.clear();
    let none = advertisement(FOREIGN, 0, agent::FOREIGN);
    for _ in 0..300 {
        assert_eq!(w.host.handle_packet(w.now, THIEF, &none), Err(Discard::NotForUs));
        w.run(SECOND);
    }
    assert!(requests(&w).iter().all(|(_, lifetime)| *lifetime > 0) && !requests(&w).is_empty());
    assert!(w.home.bindings(HOME).eq([FOREIGN]));
}

/// Forged agents, which never answer, hold the host up for some seconds and no longer, also under the home agent's address.
#[test]
fn agents_that_never_answer_hold_no_host_for_ever() {
    for forged in [vec![STRANGER], vec![HOME_AGENT], (1..=20).map(|n| Ipv4Addr::new(10, 66, 0, n)).collect()]
    {
        let mut w = World::new(SETTING);
        w.host.attach(w.now, None);
        for from in &forged {
            let bytes = advertisement(*from, INFINITY, agent::FOREIGN | agent::HOME);
            assert_eq!(w.host.handle_packet(w.now, THIEF, &bytes), Ok(()), "{from}");
        }
        w.run(9 * SECOND);
        assert!(w.home.bindings(HOME).eq([FOREIGN]), "{forged:?}");
        assert_eq!(w.host.current().map(|c| c.agent), Some(FOREIGN));
        // Nor do they make it forget where it is.
        while w.host.poll_event().is_some() {}
        for from in &forged {
            let bytes = advertisement(*from, INFINITY, agent::FOREIGN);
            let _ = w.host.handle_packet(w.now, THIEF, &bytes);
        }
        w.run(20 * SECOND);
        assert_eq!(w.host.poll_event(), None, "{forged:?}");
    }
}

/// An agent that has forgotten its visitor and answers no more, but is heard: the host goes to another, and keeps what it has until then.
#[test]
fn a_renewal_without_an_answer_goes_to_another_agent() {
    let mut w = World::registered(SETTING);
    // Its advertisements go on; here comes one that says it began anew.
    w.run(250 * SECOND);
    w.foreign = World::new(SETTING).foreign;
    let again = |sequence| {
        let mobility = Mobility { sequence, lifetime: 300, flags: agent::FOREIGN, care_of: vec![FOREIGN] };
        let mut out = Vec::new();
        Advertisement {
            code: 0,
            lifetime: INFINITY,
            routers: Vec::new(),
            mobility: Some(mobility),
            prefixes: Vec::new(),
        }
        .emit(FOREIGN, ALL_SYSTEMS, &mut out)
        .expect("it fits");
        out
    };
    w.host.handle_packet(w.now, THIEF, &again(0)).expect("heard");
    w.host.handle_packet(w.now, THIEF, &advertisement(OTHER, 300, agent::FOREIGN)).expect("heard");
    let mut asked = Vec::new();
    for _ in 0..12 {
        w.now += SECOND;
        w.host.handle_timeout(w.now);
        let mut out = Vec::new();
        while w.host.poll_transmit(&mut out).is_some() {
            asked.push(to(&std::mem::take(&mut out)));
        }
    }
    assert!(asked.contains(&FOREIGN) && asked.contains(&OTHER), "{asked:?}");
    assert_eq!(w.host.current().map(|c| c.agent), Some(FOREIGN));
}

/// On a link where nothing else is heard.
#[test]
fn a_host_with_an_address_of_its_own_asks_again_when_it_was_refused() {
    let mut w = World::new(SETTING);
    let own = Ipv4Addr::new(10, 51, 0, 77);
    w.host.attach(w.now, Some(CoLocated { address: own, router: LinkAddress([4; 6]) }));
    let mut out = Vec::new();
    assert_eq!(w.host.poll_transmit(&mut out), Some(AGENT));
    let Ok(Packet { message: Message::Request(asked), .. }) = Packet::parse(&out[28..]) else { panic!() };
    let code = Code::HomeResources;
    let no = Reply { code, lifetime: 0, home: HOME, agent: HOME_AGENT, id: asked.id };
    let no = packet(HOME_AGENT, own, &message(Message::Reply(no), &[(kind::MOBILE_HOME, MH)]));
    w.host.handle_packet(w.now, AGENT, &no).expect("taken");
    let said: Vec<MobileEvent> = std::iter::from_fn(|| w.host.poll_event()).collect();
    assert_eq!(said.last(), Some(&MobileEvent::Refused { agent: HOME_AGENT, code }));
    let due = w.host.poll_timeout().expect("a deadline").at;
    w.host.handle_timeout(due);
    out.clear();
    assert_eq!(w.host.poll_transmit(&mut out), Some(AGENT), "it asks again");
}
