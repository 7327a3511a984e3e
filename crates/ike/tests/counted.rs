//! A gateway that counts sessions of an identity together with others: what it asks the store, and what it does without an answer.

mod common;

use std::net::IpAddr;
use std::time::Duration;

use common::resumed::resume;
use common::{CLIENT, Pair, addr, client_psk, fqdn, gateway_config, gateway_psk};
use dormouse_ike::config::{Resumption, Unique};
use dormouse_ike::limits::STORE_PATIENCE;
use dormouse_ike::ticket::counted::{Counted, excess};
use dormouse_ike::ticket::lineage::{Name, Operation, Outcome, TicketHolder};
use dormouse_ike::{Absent, CloseReason, EndpointConfig, Event};
use dormouse_sansio::UnixTime;

/// At a gateway that counts so, with a store that answers when the test does.
fn counting(unique: Unique, seed: u64) -> Pair {
    let mut gateway = gateway_psk();
    (gateway.answering.policy.unique, gateway.answering.policy.sessions) = (unique, 3);
    let config = EndpointConfig { counts_together: true, ..gateway_config(gateway, seed) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, seed);
    pair.gateway.slow_store = true;
    pair
}

/// What the store was told of sessions, in its order.
fn told(pair: &mut Pair) -> Vec<Operation> {
    let of_sessions = |e: &Event| match e {
        Event::Store(o @ (Operation::Enter { .. } | Operation::Leave { .. })) => Some(*o),
        _ => None,
    };
    std::iter::from_fn(|| pair.gateway.take(of_sessions)).collect()
}

fn answer(pair: &mut Pair, outcome: Outcome) {
    let asked = std::mem::take(&mut pair.gateway.outcomes);
    assert!(!asked.is_empty(), "nothing was asked");
    asked.into_iter().for_each(|(sa, _)| pair.gateway.endpoint.stored(pair.now, sa, outcome));
    pair.flush();
    pair.settle();
}

#[test]
fn a_login_is_answered_when_the_store_has_said_that_there_is_room() {
    for (n, unique, from) in [(1, Unique::Keep, Some(addr(CLIENT).ip())), (2, Unique::Never, None)] {
        let mut pair = counting(unique, n);
        pair.connect();
        pair.settle();
        assert!(pair.client.established().is_none(), "{unique:?}: it waits");
        let asked = told(&mut pair);
        let [Operation::Enter { sa: Some(_), session }] = asked[..] else { panic!("{asked:?}") };
        assert_eq!((session.from, session.most, session.login), (from, 3, true));
        answer(&mut pair, Outcome::Done);
        let client = pair.client.established();
        let client = client.unwrap_or_else(|| panic!("{unique:?}: {:?}", pair.client.failure())).sa;
        pair.settle();
        pair.client.endpoint.rekey_ike(pair.now, client);
        pair.settle();
        assert_eq!(told(&mut pair), [], "it was said once, and is the same session");
        pair.client.endpoint.close(pair.now, client);
        pair.settle();
        assert_eq!(told(&mut pair), [Operation::Leave { lineage: session.lineage }]);
    }
}

#[test]
fn a_login_without_room_is_refused_and_ends_nothing() {
    let mut pair = counting(Unique::Keep, 3);
    pair.connect();
    pair.settle();
    answer(&mut pair, Outcome::Full);
    pair.settle();
    assert!(pair.client.failure().is_some());
    let why = pair.gateway.take(|e| match e {
        Event::PeerFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    assert!(why.as_deref().is_some_and(|why| why.contains("at other gateways")), "{why:?}");
    let ends = |e: &Event| {
        matches!(
            e,
            Event::Store(Operation::EndAll { .. } | Operation::EndFormer { .. } | Operation::Insert(_))
        )
        .then_some(())
    };
    assert!(pair.gateway.take(ends).is_none());
}

#[test]
fn without_an_answer_a_login_goes_on_and_ends_if_there_was_no_room() {
    for (n, late) in [(4, Outcome::Done), (5, Outcome::Full)] {
        let mut pair = counting(Unique::Never, n);
        pair.connect();
        pair.settle();
        let asked = std::mem::take(&mut pair.gateway.outcomes);
        pair.run_for(STORE_PATIENCE);
        let up = pair.client.established().is_some();
        assert!(up, "{:?}", pair.client.failure());
        asked.into_iter().for_each(|(sa, _)| pair.gateway.endpoint.stored(pair.now, sa, late));
        pair.settle();
        let ended = pair.gateway.closed.iter().any(|(_, reason)| *reason == CloseReason::TooMany);
        assert_eq!(ended, late == Outcome::Full);
        assert_eq!(pair.client.closed.len(), usize::from(ended), "its client is told");
    }
}

#[test]
fn a_session_that_is_too_many_ends_and_its_client_is_told() {
    let mut pair = counting(Unique::Never, 6);
    pair.connect();
    pair.settle();
    let asked = told(&mut pair);
    let [Operation::Enter { session, .. }] = asked[..] else { panic!("{asked:?}") };
    answer(&mut pair, Outcome::Done);
    pair.settle();
    assert_eq!(pair.gateway.endpoint.too_many(pair.now, Name([9; 16])), 0);
    assert_eq!(pair.gateway.endpoint.too_many(pair.now, session.lineage), 1);
    pair.settle();
    assert_eq!(pair.client.closed.len(), 1);
    assert_eq!(told(&mut pair), [Operation::Leave { lineage: session.lineage }]);
}

/// The store moves a session's place with its ticket. Without a word it would count here for ever, and leave the identity no room.
#[test]
fn a_session_that_is_over_before_its_ticket_counts_leaves() {
    for (n, ends) in [(8, false), (9, true)] {
        let mut pair = counting(Unique::Never, n);
        pair.connect();
        pair.settle();
        answer(&mut pair, Outcome::Done);
        let ticket = pair.client.ticket.take().expect("the gateway gave one");
        let lineage = ticket.lineage.expect("it names it");
        let sa = pair.client.established().expect("it has room").sa;
        pair.client.endpoint.forget(pair.now, sa);
        pair.flush();
        let another = counting(Unique::Never, n).gateway;
        pair.replace_gateway(another);
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_millis(500));
        let asked = std::mem::take(&mut pair.gateway.outcomes);
        assert_eq!((asked.len(), told(&mut pair)), (1, vec![]));
        if ends {
            pair.gateway.endpoint.revoke_tickets(pair.now, "clients", &common::fqdn("client.example.org"));
            pair.flush();
        }
        asked.into_iter().for_each(|(sa, outcome)| pair.gateway.endpoint.stored(pair.now, sa, outcome));
        pair.settle();
        match (ends, &told(&mut pair)[..]) {
            (true, [Operation::Leave { lineage: gone }]) => assert_eq!(*gone, lineage),
            (false, [Operation::Enter { sa: None, session }]) => assert_eq!(session.lineage, lineage),
            (_, told) => panic!("{ends}: {told:?}"),
        }
    }
}

/// Else it would go on uncounted: the store has refused the login that it comes from.
#[test]
fn a_session_that_comes_back_while_its_login_is_refused_late_asks_for_its_place() {
    let mut pair = counting(Unique::Never, 10);
    pair.connect();
    pair.settle();
    let login = std::mem::take(&mut pair.gateway.outcomes);
    pair.run_for(STORE_PATIENCE);
    let sa = pair.client.established().expect("it goes on without an answer").sa;
    let ticket = pair.client.ticket.take().expect("the gateway gave one");
    pair.client.endpoint.forget(pair.now, sa);
    pair.flush();
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_millis(500));
    let resumption = std::mem::take(&mut pair.gateway.outcomes);
    assert_eq!((login.len(), resumption.len()), (1, 1));
    told(&mut pair);
    pair.gateway.endpoint.stored(pair.now, login[0].0, Outcome::Full);
    pair.gateway.endpoint.stored(pair.now, resumption[0].0, Outcome::Done);
    pair.settle();
    let told = told(&mut pair);
    assert!(
        matches!(told[..], [Operation::Enter { sa: None, session }] if Some(session.lineage) == ticket.lineage),
        "{told:?}"
    );
}

#[test]
fn sessions_that_replace_each_other_are_not_counted() {
    let mut pair = counting(Unique::Replace, 7);
    pair.up();
    assert_eq!(told(&mut pair), []);
}

fn one(id: u8, from: Option<u8>, began: u64) -> Counted {
    Counted {
        lineage: Name([id; 16]),
        holder: TicketHolder([1; 32]),
        from: from.map(|host| IpAddr::from([192, 0, 2, host])),
        most: 2,
        login: true,
        former: None,
        began: UnixTime(began),
    }
}

#[test]
fn of_too_many_the_ones_that_began_last_end() {
    let name = |id: u8| Name([id; 16]);
    // `never`: two of three, whichever gateway counts.
    let all = [one(1, None, 30), one(2, None, 10), one(3, None, 20)];
    assert_eq!(excess(&all, &all), [name(1)]);
    assert_eq!(excess(&all[..1], &all), [name(1)]);
    // What another takes the place of leaves it its room.
    let instead = [Counted { former: Some(name(3)), ..all[0] }];
    assert_eq!(excess(&instead, &all), [name(3)]);
    // `keep`: the first one, and another from where it is.
    let all = [one(1, Some(1), 30), one(2, Some(2), 10), one(3, Some(2), 20), one(4, Some(2), 40)];
    assert_eq!(excess(&all[..1], &all), [name(1), name(4)]);
    // Of other identities nothing is said.
    let other = Counted { holder: TicketHolder([2; 32]), ..all[0] };
    assert_eq!(excess(&[other], &all), []);
}

/// What is done to lineages, in its order.
fn lineages(pair: &mut Pair) -> Vec<Operation> {
    let of_them = |e: &Event| match e {
        Event::Store(Operation::Enter { .. } | Operation::Leave { .. }) => None,
        Event::Store(operation) => Some(*operation),
        _ => None,
    };
    std::iter::from_fn(|| pair.gateway.take(of_them)).collect()
}

#[test]
fn a_session_without_a_ticket_is_on_record_until_it_ends() {
    for together in [true, false] {
        let mut client = client_psk();
        client.resumption.mode = Resumption::Off;
        let config = EndpointConfig { counts_together: together, ..gateway_config(gateway_psk(), 8) };
        let mut pair = Pair::with_configs(client, EndpointConfig::default(), config, 8);
        let (a, _) = pair.up();
        let begun = lineages(&mut pair);
        let row = match begun[..] {
            [Operation::EndAll { .. }, Operation::Insert(row)] if together => row,
            [Operation::EndAll { .. }] if !together => continue,
            _ => panic!("{begun:?}"),
        };
        // A store that has forgotten it hears of it again.
        let again = pair.gateway.endpoint.sessions_on_record(pair.now, &[]);
        assert!(again.len() == 1 && again[0].1 && again[0].0.tip != row.tip, "{again:?}");
        assert_eq!((again[0].0.id, again[0].0.holder, again[0].0.ends), (row.id, row.holder, row.ends));
        // As long as it lives it stays there.
        pair.run_for(Duration::from_secs(100));
        pair.client.endpoint.rekey_ike(pair.now, a);
        pair.settle();
        let rekeyed = lineages(&mut pair);
        let [Operation::Advance { lineage, from, to, ends }] = rekeyed[..] else { panic!("{rekeyed:?}") };
        assert!(
            (lineage, from) == (row.id, row.tip) && to != from && ends.0 >= row.ends.0 + 100,
            "{rekeyed:?}"
        );
        pair.client.endpoint.close(pair.now, a);
        pair.settle();
        let ended = lineages(&mut pair);
        let [Operation::End { lineage, holder, .. }] = ended[..] else { panic!("{ended:?}") };
        assert_eq!((lineage, holder), (row.id, row.holder));
    }
}

#[test]
fn a_device_that_sleeps_without_an_sa_is_on_record_too_as_long_as_it_may() {
    let config = EndpointConfig { counts_together: true, ..gateway_config(gateway_psk(), 9) };
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), config, 9);
    pair.gateway.endpoint.set_wall_clock(pair.now, UnixTime(1_000));
    let name = gateway_psk().name;
    let device = |n: u8, connection: &str| Absent {
        lineage: Name([n; 16]),
        connection: connection.to_owned(),
        identity: fqdn("asleep.test"),
        left: Duration::from_secs(60),
    };
    let rows = pair
        .gateway
        .endpoint
        .sessions_on_record(pair.now, &[device(1, &name), device(2, "not there any more")]);
    let [(row, true)] = rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.id, row.ends), (Name([1; 16]), UnixTime(1_060)));
    assert_eq!(row.holder, TicketHolder::of(&name, &fqdn("asleep.test")));
}
