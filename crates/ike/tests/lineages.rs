//! Which tickets count: a thief with a copy of the disk, logouts, a slow store, lost confirmations, and the configuration of today
//! (docs/wire/dormancy.md).

mod common;

use std::time::Duration;

use common::resumed::{confirmed, resume, slept, slept_with};
use common::{Datagram, Pair, client_psk, gateway_config, gateway_psk};
use dormouse_crypto::Secret;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, IdentityPattern, RemoteAuth, Resumption};
use dormouse_ike::ticket::ClientTicket;
use dormouse_ike::ticket::lineage::Outcome;
use dormouse_ike::{CloseReason, Event, NegotiationError};
use dormouse_keying::SaId;
use dormouse_wire::ike::dormancy::Refused;

/// A thief with a copy of the device's disk, on a pair whose owner has been asleep.
fn thief(pair: &mut Pair, ticket: &ClientTicket) -> SaId {
    pair.client.events.clear();
    resume(pair, ticket)
}

#[test]
fn a_copied_disk_is_of_no_use_once_its_owner_has_resumed() {
    let (mut pair, copied, _) = slept(40);
    let owner = resume(&mut pair, &copied);
    pair.run_for(Duration::from_secs(2));
    let theirs = confirmed(&mut pair).expect("the owner is there");
    pair.client.closed.clear();
    let sa = thief(&mut pair, &copied);
    pair.run_for(common::LATENCY * 2);
    assert!(pair.client.established().is_some(), "it is answered like any other");
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.client.closed, [(sa, CloseReason::Refused(Refused::Superseded))]);
    let why = pair.gateway.peer_failure().expect("logged, with where it came from").to_string();
    assert!(why.contains("was used"), "{why}");
    assert!(pair.gateway.endpoint.path(theirs).is_some(), "the owner's session goes on");
    assert_eq!(pair.gateway.endpoint.len(), 1);
    pair.client.endpoint.probe(pair.now, owner, Duration::from_secs(2));
    pair.run_for(Duration::from_secs(2));
    let answered = |e: &Event| matches!(e, Event::ProbeAnswered { .. }).then_some(());
    assert!(pair.client.take(answered).is_some());
}

#[test]
fn a_thief_who_never_confirms_gains_no_ticket_that_outlives_the_owners() {
    let (mut pair, copied, _) = slept(41);
    let fork = thief(&mut pair, &copied);
    pair.run_for(common::LATENCY * 2);
    let forked = pair.client.ticket.take().expect("the answer carries the next ticket");
    pair.client.endpoint.forget(pair.now, fork);
    pair.flush();
    resume(&mut pair, &copied);
    pair.run_for(Duration::from_secs(2));
    confirmed(&mut pair).expect("the owner is there");
    pair.client.closed.clear();
    let sa = thief(&mut pair, &forked);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.client.closed, [(sa, CloseReason::Refused(Refused::Superseded))]);
}

#[test]
fn a_thief_who_comes_first_is_ended_by_the_owners_full_login() {
    let (mut pair, copied, _) = slept(42);
    let mut conn = (*pair.conn).clone();
    conn.initial_contact = false;
    pair.conn = conn.into();
    let thiefs = thief(&mut pair, &copied);
    pair.run_for(Duration::from_secs(2));
    let at_gateway = confirmed(&mut pair).expect("the thief is taken for the owner");
    pair.client.closed.clear();
    let owner = resume(&mut pair, &copied);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.client.closed, [(owner, CloseReason::Refused(Refused::Superseded))]);
    assert!(pair.gateway.endpoint.path(at_gateway).is_some(), "a refusal alone ends nothing");
    let stolen = pair.client.ticket.take().expect("of the thief's session");
    pair.gateway.closed.clear();
    pair.client.endpoint.forget(pair.now, thiefs);
    pair.flush();
    pair.client.events.clear();
    pair.up();
    assert_eq!(pair.gateway.closed, [(at_gateway, CloseReason::Replaced)]);
    pair.client.closed.clear();
    let again = thief(&mut pair, &stolen);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.client.closed, [(again, CloseReason::Refused(Refused::Superseded))]);
}

#[test]
fn nothing_is_sent_until_the_store_has_answered_and_what_came_meanwhile_is_heard() {
    let (mut pair, ticket, old) = slept(43);
    pair.gateway.slow_store = true;
    let sa = resume(&mut pair, &ticket);
    pair.run_for(common::LATENCY * 2);
    let theirs = pair.gateway.established().expect("told").sa;
    pair.client.endpoint.probe(pair.now, sa, Duration::from_secs(5));
    pair.run_for(Duration::from_secs(1));
    let answers = pair.log.iter().filter(|d| !d.to_gateway).count();
    assert_eq!((answers, pair.gateway.outcomes.len()), (1, 1), "asked once, and nothing said");
    assert!(pair.gateway.children.values().any(|c| c.owner.ike() == Some(old)), "the old SA stays");
    let (asked, outcome) = pair.gateway.outcomes.remove(0);
    assert_eq!((asked, outcome), (theirs, Outcome::Done));
    pair.gateway.endpoint.stored(pair.now, asked, outcome);
    pair.run_for(Duration::from_millis(200));
    let answered = |e: &Event| matches!(e, Event::ProbeAnswered { .. }).then_some(());
    assert!(pair.client.take(answered).is_some(), "what came meanwhile was kept");
    assert_eq!(confirmed(&mut pair), Some(theirs));
    pair.assert_agree();
}

/// The answer of the store is lost, and what it was asked is done. In one round trip a ticket has come along that counts; in two, and
/// for plain peers, the only ticket is used up.
#[test]
fn a_store_that_says_nothing_costs_the_session_and_in_two_round_trips_the_ticket() {
    for (n, dormancy, quick) in [(44, true, true), (45, true, false), (46, false, false)] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.dormancy, gateway.dormancy) = (dormancy, dormancy);
        let (mut pair, ticket, _) = slept_with(client, gateway_config(gateway.clone(), n), n);
        if !quick {
            let mut renamed = (*pair.conn).clone();
            renamed.children[0].name = "renamed".to_owned();
            pair.conn = renamed.into();
        }
        pair.gateway.slow_store = true;
        let sa = resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(5));
        match (dormancy, quick) {
            (_, true) => assert_eq!(pair.client.closed, [(sa, CloseReason::Refused(Refused::Store))]),
            (true, _) => {
                assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketSuperseded)));
            }
            (false, _) => {
                assert!(matches!(pair.client.failure(), Some(NegotiationError::RefusedByPeer { .. })));
            }
        }
        assert_eq!(pair.gateway.outcomes.pop().map(|(_, outcome)| outcome), Some(Outcome::Done));
        // The refusal of an IKE_AUTH request is kept for its repetitions.
        assert_eq!(pair.gateway.endpoint.len() - pair.gateway.endpoint.half_open(), 1, "the old SA alone");
        pair.gateway.slow_store = false;
        pair.client.events.clear();
        let next = pair.client.ticket.take().unwrap_or(ticket);
        assert_eq!(next.unheard, u8::from(quick));
        resume(&mut pair, &next);
        pair.run_for(Duration::from_secs(2));
        assert_eq!(pair.client.established().is_some_and(|e| e.resumed), quick, "{n}");
        assert_eq!(confirmed(&mut pair).is_some(), quick, "{n}");
        if !quick {
            pair.client.events.clear();
            pair.connect();
            pair.run_for(Duration::from_secs(2));
            assert!(pair.client.established().is_some(), "{n}: the full exchange");
        }
        pair.gateway.endpoint.set_store(false);
        // The driver has heard of the gateway meanwhile.
        let next = ClientTicket { unheard: 0, ..pair.client.ticket.take().expect("another one") };
        resume(&mut pair, &next);
        pair.run_for(Duration::from_secs(2));
        assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)), "known to be away");
    }
}

#[test]
fn after_a_logout_no_ticket_counts_and_the_answer_waits_until_that_is_on_record() {
    let (mut pair, first, _) = slept(46);
    let sa = resume(&mut pair, &first);
    pair.run_for(Duration::from_secs(2));
    let copied = pair.client.ticket.take().expect("the next one");
    pair.gateway.slow_store = true;
    pair.client.endpoint.close(pair.now, sa);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.gateway.children.is_empty(), "no traffic at once");
    assert!(pair.client.closed.iter().all(|(id, _)| *id != sa), "not answered yet");
    let (asked, outcome) = pair.gateway.outcomes.pop().expect("asked");
    pair.gateway.endpoint.stored(pair.now, asked, outcome);
    pair.run_for(Duration::from_millis(100));
    assert!(pair.client.closed.contains(&(sa, CloseReason::Requested)), "{:?}", pair.client.closed);
    assert!(pair.gateway.endpoint.is_empty());
    pair.gateway.slow_store = false;
    for ticket in [first, copied] {
        pair.client.closed.clear();
        let sa = thief(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert_eq!(pair.client.closed, [(sa, CloseReason::Refused(Refused::Superseded))]);
    }
}

/// libreswan deletes the SA of a connection that it suspends, and comes back by the ticket.
#[test]
fn libreswans_delete_is_no_logout() {
    for (resumption, comes_back) in [(Resumption::Libreswan, true), (Resumption::Strict, false)] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.resumption.mode, gateway.resumption.mode) = (resumption, resumption);
        let mut pair = Pair::with_configs(client, EndpointConfig::default(), gateway_config(gateway, 60), 60);
        let (a, _) = pair.up();
        let ticket = pair.client.ticket.take().expect("the gateway gave one");
        pair.client.endpoint.close(pair.now, a);
        pair.run_for(Duration::from_secs(1));
        assert!(pair.gateway.endpoint.is_empty(), "{resumption:?}");
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert_eq!(!pair.gateway.endpoint.is_empty(), comes_back, "{resumption:?}");
    }
}

#[test]
fn a_lost_confirmation_costs_nothing_and_two_of_them_a_full_exchange() {
    let (mut pair, mut ticket, _) = slept(47);
    for unheard in 1..=2 {
        // The answer arrives, and nothing that the client says.
        let mut sent = 0;
        pair.filter = Some(Box::new(move |d| {
            sent += u32::from(d.to_gateway);
            !d.to_gateway || sent == 1
        }));
        let sa = resume(&mut pair, &ticket);
        pair.run_for(common::LATENCY * 2);
        ticket = pair.client.ticket.take().expect("the answer came");
        assert_eq!(ticket.unheard, unheard);
        pair.client.endpoint.forget(pair.now, sa);
        pair.run_for(Duration::from_secs(40));
        pair.filter = None;
        pair.client.events.clear();
        if unheard == 1 {
            let once = ticket.clone();
            let back = resume(&mut pair, &once);
            pair.run_for(Duration::from_secs(2));
            confirmed(&mut pair).expect("by the name before its own");
            ticket = pair.client.ticket.take().expect("another one");
            ticket.unheard = 1;
            pair.client.endpoint.forget(pair.now, back);
            pair.flush();
            pair.client.events.clear();
        }
    }
    resume(&mut pair, &ticket);
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketExpired)), "not sent");
}

#[test]
fn the_key_exchange_is_left_out_only_if_both_ends_say_so() {
    for (n, client_fresh, gateway_fresh, works) in
        [(50, true, true, true), (51, true, false, true), (52, false, false, true), (53, false, true, false)]
    {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.resumption.fresh_keys, gateway.resumption.fresh_keys) = (client_fresh, gateway_fresh);
        let (mut pair, ticket, _) = slept_with(client, gateway_config(gateway, n), n);
        resume(&mut pair, &ticket);
        let carries = |d: &Datagram| {
            let message = dormouse_wire::ike::Message::parse(&d.bytes[4..]).expect("clear");
            message.payloads.iter().any(|p| matches!(p, dormouse_wire::ike::Payload::Ke { .. }))
        };
        assert_eq!(carries(&pair.log[0]), client_fresh, "{n}");
        pair.run_for(Duration::from_secs(2));
        assert_eq!(pair.client.established().is_some(), works, "{n}");
        assert_eq!(confirmed(&mut pair).is_some(), works, "{n}");
        if works {
            assert_eq!(carries(&pair.log[1]), client_fresh, "{n}");
            pair.assert_agree();
        }
    }
}

#[test]
fn a_ticket_is_judged_by_the_configuration_of_today_at_both_ends() {
    type Change = fn(&mut Connection);
    fn other() -> RemoteAuth {
        RemoteAuth::Psk(Secret::from(&b"another secret of today"[..]))
    }
    let gateway: [(&str, Change); 2] = [
        ("the secret", |c| c.remote_auth = other()),
        ("the identity", |c| c.remote_id = IdentityPattern::Suffix("example.com".to_owned())),
    ];
    for (n, (what, change)) in (60..).zip(gateway) {
        let (mut pair, ticket, _) = slept(n);
        let mut conn = gateway_psk();
        change(&mut conn);
        pair.gateway.endpoint.reconfigure(pair.now, vec![conn.into()], &[]);
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketRefused)), "{what}");
        assert!(pair.gateway.peer_failure().is_some(), "logged: {what}");
    }
    let (mut pair, ticket, _) = slept(70);
    let mut conn = client_psk();
    conn.remote_auth = other();
    pair.conn = conn.into();
    resume(&mut pair, &ticket);
    assert!(matches!(pair.client.failure(), Some(NegotiationError::TicketOutdated)), "the client's own");
    let mut conn = client_psk();
    conn.mobility.mobike = false;
    pair.conn = conn.into();
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_some(), "what else has changed does not matter");
}
