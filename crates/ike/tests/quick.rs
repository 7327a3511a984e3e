//! Resumption in one round trip (`docs/wire/dormancy.md`): what it gives, what a copy of its messages gives, and that it
//! falls back to RFC 5723.

mod common;

use std::time::Duration;

use common::resumed::{confirmed, resume, slept, slept_with, spent};
use common::{Datagram, Nat, Pair, addr, client_psk, gateway_config, gateway_psk};
use dormouse_crypto::Secret;
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::{Connection, EspInUdp, HalfOpen, Resumption};
use dormouse_ike::ticket::{ClientTicket, Form};
use dormouse_ike::{CloseReason, Kind, NegotiationError};
use dormouse_sansio::Carrier;

#[test]
fn everything_is_back_after_one_round_trip() {
    let (mut pair, ticket, old) = slept(1);
    let sa = resume(&mut pair, &ticket);
    pair.run_for(common::LATENCY * 2);
    let back = pair.client.established().expect("after one round trip");
    assert!(back.resumed && back.mobike && back.dormancy && back.confirmed && back.sa == sa);
    assert_eq!(back.configuration.v4, Some("10.9.0.2".parse().expect("an address")));
    assert_eq!(back.configuration.dns, ["10.9.0.1".parse::<std::net::IpAddr>().expect("an address")]);
    let stats = pair.client.endpoint.sa_stats(sa).expect("it is there");
    assert_eq!((stats.round_trips, stats.begun.get(&Kind::Auth), stats.datagrams_out), (1, None, 1));
    let next = pair.client.ticket.take().expect("a new ticket came along");
    assert!(next.child.is_some() && next.opaque != ticket.opaque);

    // The gateway has answered, and waits for a word: nothing else has happened there.
    let theirs = pair.gateway.established().expect("told");
    assert!(!theirs.confirmed && theirs.resumed);
    assert!(pair.gateway.children.values().any(|c| c.owner.ike() == Some(theirs.sa) && !c.send_now));
    assert!(pair.gateway.children.values().any(|c| c.owner.ike() == Some(old)), "the old SA stays");
    assert!(!spent(&mut pair));
    assert_eq!((pair.gateway.endpoint.half_open(), pair.log.len()), (1, 2));

    // Without data the client says a word by itself.
    pair.settle();
    assert_eq!(confirmed(&mut pair), Some(theirs.sa));
    assert!(spent(&mut pair));
    assert_eq!(pair.gateway.closed, [(old, CloseReason::Replaced)]);
    assert_eq!((pair.gateway.endpoint.half_open(), pair.gateway.endpoint.len()), (0, 1));
    pair.assert_agree();

    // And everything goes on from there: rekeying, and the next resumption.
    pair.client.endpoint.rekey_ike(pair.now, sa);
    pair.run_for(Duration::from_secs(2));
    let child = *pair.client.children.keys().next().expect("one");
    pair.client.endpoint.rekey_child(pair.now, child);
    pair.run_for(Duration::from_secs(2));
    pair.assert_agree();
    assert_eq!(pair.client.children.len(), 1);
    let ticket = pair.client.ticket.take().expect("renewed");
    pair.client.endpoint.forget(pair.now, sa);
    pair.flush();
    let again = resume(&mut pair, &ticket);
    pair.settle();
    assert_eq!(pair.client.endpoint.sa_stats(again).and_then(|s| s.begun.get(&Kind::Auth)), None);
    pair.assert_agree();
}

#[test]
fn the_first_esp_packet_confirms_and_saves_the_word() {
    let (mut pair, ticket, _) = slept(2);
    let sa = resume(&mut pair, &ticket);
    pair.run_for(common::LATENCY * 2);
    let theirs = pair.gateway.established().expect("told").sa;
    let path = pair.gateway.endpoint.path(theirs).expect("it has one");
    pair.now += Duration::from_millis(20);
    pair.client.endpoint.note_traffic(pair.now, sa, Some(pair.now), None);
    assert!(pair.gateway.endpoint.confirm(pair.now, theirs, path));
    pair.flush();
    assert_eq!(confirmed(&mut pair), Some(theirs));
    pair.client.endpoint.note_traffic(pair.now, sa, None, Some(pair.now + Duration::from_millis(20)));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.log.len(), 2, "nothing but request and answer was needed");
    assert_eq!(pair.gateway.endpoint.half_open(), 0);
}

#[test]
fn data_that_got_lost_is_followed_by_a_word() {
    let (mut pair, ticket, _) = slept(3);
    let sa = resume(&mut pair, &ticket);
    pair.run_for(common::LATENCY * 2);
    pair.now += Duration::from_millis(20);
    pair.client.endpoint.note_traffic(pair.now, sa, Some(pair.now), None);
    pair.run_for(Duration::from_millis(500));
    assert!(confirmed(&mut pair).is_none(), "the data may be on its way");
    pair.run_for(Duration::from_secs(1));
    assert!(confirmed(&mut pair).is_some());
}

#[test]
fn an_answer_that_got_lost_is_repeated_and_is_the_same() {
    let (mut pair, ticket, _) = slept(4);
    let mut lost = 0;
    pair.filter = Some(Box::new(move |d| {
        lost += u32::from(!d.to_gateway);
        d.to_gateway || lost > 1
    }));
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(3));
    assert!(pair.client.established().is_some());
    assert_eq!(pair.gateway.endpoint.len(), 1, "one SA, not one for each repetition");
    pair.assert_agree();
}

/// A stranger who sees the request sends a copy of it first, from elsewhere.
fn copy_of(request: &Datagram) -> Datagram {
    Datagram { from: addr("203.0.113.66:4500"), ..request.clone() }
}

#[test]
fn a_copy_that_comes_first_takes_nothing_from_the_owner() {
    let (mut pair, ticket, old) = slept(5);
    resume(&mut pair, &ticket);
    let request = pair.log[0].clone();
    pair.unreachable.push("203.0.113.66".parse().expect("an address"));
    for _ in 0..3 {
        pair.deliver(copy_of(&request));
    }
    let thief = pair.gateway.established().expect("answered, because it cannot be told from the owner").sa;
    assert_eq!(pair.gateway.endpoint.half_open(), 1, "repetitions are one");
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().expect("the owner").resumed);
    let owner = confirmed(&mut pair).expect("the owner has confirmed");
    assert_ne!(owner, thief);
    assert_eq!(pair.gateway.closed, [(old, CloseReason::Replaced)]);
    // What the copy made goes away by itself, unheard.
    let to_thief = |d: &&Datagram| !d.to_gateway && d.to == addr("203.0.113.66:4500");
    let told = pair.log.iter().filter(to_thief).count();
    assert_eq!(told, 3, "an answer for each copy, and nothing more");
    pair.run_for(Duration::from_secs(120));
    assert_eq!(pair.log.iter().filter(to_thief).count(), told);
    assert_eq!(pair.gateway.closed, [(old, CloseReason::Replaced), (thief, CloseReason::Unconfirmed)]);
    assert_eq!((pair.gateway.endpoint.len(), pair.gateway.endpoint.half_open()), (1, 0));
    pair.assert_agree();
}

#[test]
fn a_copy_that_comes_later_is_refused_or_evicts_nothing() {
    let (mut pair, ticket, _) = slept(6);
    resume(&mut pair, &ticket);
    let request = pair.log[0].clone();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_some());
    pair.gateway.closed.clear();
    pair.gateway.events.clear();
    for from in [request.from, addr("203.0.113.66:4500")] {
        pair.deliver(Datagram { from, ..request.clone() });
        // The answer says nothing about whether the device has been back.
        let copy = pair.gateway.established().expect("answered like any other");
        assert!(!copy.confirmed);
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.gateway.closed, [(copy.sa, CloseReason::Unconfirmed)]);
        pair.gateway.closed.clear();
    }
    assert!(!spent(&mut pair), "nothing was asked of the store");
    pair.assert_agree();
}

#[test]
fn a_request_that_was_held_back_installs_nothing_that_lasts() {
    // The request is caught; the client gives up and takes the full exchange. Then the request is let go.
    let (mut pair, ticket, _) = slept(7);
    let (send, caught) = std::sync::mpsc::channel();
    pair.filter = Some(Box::new(move |d| send.send(d.clone()).is_err()));
    let lost = resume(&mut pair, &ticket);
    let request = caught.try_recv().expect("caught");
    pair.client.endpoint.forget(pair.now, lost);
    pair.filter = None;
    pair.flush();
    pair.client.events.clear();
    let (_, b) = pair.up();
    pair.gateway.closed.clear();
    pair.deliver(request);
    pair.run_for(Duration::from_secs(120));
    assert_eq!(pair.gateway.closed.len(), 1);
    assert_eq!(pair.gateway.closed[0].1, CloseReason::Unconfirmed);
    assert!(
        pair.gateway.children.values().all(|c| c.owner.ike() == Some(b)),
        "the session of now is untouched"
    );
    pair.assert_agree();
}

#[test]
fn the_ticket_alone_makes_no_request_and_a_changed_request_falls_back() {
    let (mut pair, ticket, _) = slept(8);
    let stolen = ClientTicket { secret: Secret::zeroed(ticket.secret.len()), ..ticket.clone() };
    resume(&mut pair, &stolen);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.gateway.established().is_none() && !spent(&mut pair));
    // On the way the NAT detection of the owner's request is changed: AUTH of RFC 5723 notices, and the client is not fooled.
    let (mut pair, ticket, _) = slept(9);
    pair.filter = Some(Box::new(|d| {
        if d.to_gateway && d.bytes.get(4 + 18) == Some(&38) {
            let at = d.bytes.len() - 1;
            d.bytes[at] ^= 1;
        }
        true
    }));
    let sa = resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().is_none());
    assert!(pair.gateway.established().is_none() && !spent(&mut pair));
    pair.client.endpoint.forget(pair.now, sa);
    pair.filter = None;
    resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().expect("the ticket is still good").resumed);
    pair.assert_agree();
}

#[test]
fn forged_answers_are_passed_over() {
    let (mut pair, ticket, _) = slept(10);
    let sa = resume(&mut pair, &ticket);
    pair.run_for(common::LATENCY);
    let answer = pair.log.iter().find(|d| !d.to_gateway).cloned().expect("on its way");
    for at in (4..answer.bytes.len()).filter(|at| !(4..4 + 28).contains(at)).step_by(7) {
        let mut forged = answer.clone();
        forged.bytes[at] ^= 0x10;
        if View::parses_with_seal(&forged.bytes) {
            pair.deliver(forged);
        }
    }
    assert!(pair.client.established().is_none() && pair.client.failure().is_none());
    pair.run_for(common::LATENCY);
    assert_eq!(pair.client.established().map(|e| e.sa), Some(sa), "the real one counts");
}

/// What the forger must leave alone to be taken for an answer of this kind at all.
struct View;

impl View {
    fn parses_with_seal(datagram: &[u8]) -> bool {
        let Ok(message) = dormouse_wire::ike::Message::parse(&datagram[4..]) else { return false };
        let seals = |p: &dormouse_wire::ike::Payload| match p {
            dormouse_wire::ike::Payload::Notify(n) => {
                n.kind == dormouse_wire::ike::NotifyType::DormancyResume
            }
            _ => false,
        };
        let refusal = |p: &dormouse_wire::ike::Payload| match p {
            dormouse_wire::ike::Payload::Notify(n) => {
                n.kind.is_error()
                    || n.kind.code() < 16_500 && ![16_388, 16_389, 16_430].contains(&n.kind.code())
            }
            _ => false,
        };
        message.protected.is_none()
            && message.payloads.iter().any(seals)
            && !message.payloads.iter().any(refusal)
    }
}

#[test]
fn cookies_nats_and_moves_work_with_it() {
    let half_open = HalfOpen { cookie_threshold: 0, ..HalfOpen::default() };
    let config = EndpointConfig { half_open, ..gateway_config(gateway_psk(), 11) };
    let client = Connection { esp_in_udp: EspInUdp::Nat, ..client_psk() };
    let (mut pair, ticket, _) = slept_with(client, config, 11);
    pair.nat = Some(Nat::new("203.0.113.5", Duration::from_secs(300)));
    let sa = resume(&mut pair, &ticket);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.client.established().expect("resumed").resumed);
    let stats = pair.client.endpoint.sa_stats(sa).expect("it is there");
    assert_eq!((stats.begun.get(&Kind::Auth), stats.begun[&Kind::Resume]), (None, 1));
    let theirs = confirmed(&mut pair).expect("confirmed");
    for side in [&pair.client, &pair.gateway] {
        assert_eq!(side.children.values().next().expect("one").path.carrier, Carrier::NatT);
    }
    assert_eq!(pair.gateway.endpoint.path(theirs).map(|p| p.remote.ip()), "203.0.113.5".parse().ok());
    // MOBIKE afterwards.
    pair.nat = None;
    let moved = common::natt_path("192.0.2.77:4500", "198.51.100.1:4500");
    pair.client.endpoint.set_path(pair.now, sa, moved);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.gateway.endpoint.path(theirs).map(|p| p.remote), Some(addr("192.0.2.77:4500")));
    assert_eq!(pair.client.children.values().next().expect("one").path.carrier, Carrier::RawEsp);
    pair.assert_agree();
}

#[test]
fn a_client_that_moves_while_it_asks_is_found_where_it_is() {
    let (mut pair, ticket, _) = slept(12);
    let sa = resume(&mut pair, &ticket);
    let moved = common::path("192.0.2.88:500", "198.51.100.1:500");
    pair.now += Duration::from_millis(1);
    pair.client.endpoint.set_path(pair.now, sa, moved);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.established().expect("resumed").resumed);
    let theirs = confirmed(&mut pair).expect("confirmed");
    assert_eq!(pair.gateway.endpoint.path(theirs).map(|p| p.remote), Some(addr("192.0.2.88:4500")));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.gateway.endpoint.len(), 1);
    pair.assert_agree();
}

#[test]
fn what_cannot_be_as_it_was_is_negotiated_anew() {
    type Change = fn(&mut Connection);
    let changes: [(&str, Change); 4] = [
        ("the extension is off", |c| c.dormancy = false),
        ("another cipher", |c| c.children[0].proposals = vec!["aes256gcm16".parse().expect("a proposal")]),
        ("a part of the network", |c| {
            c.children[0].ts_local =
                vec![dormouse_ike::config::SelectorSpec::Net("10.0.0.0/8".parse().expect("a prefix"))];
        }),
        ("another name", |c| c.children[0].name = "other".to_owned()),
    ];
    for (n, (what, change)) in (20..).zip(changes) {
        let (mut pair, ticket, _) = slept(n);
        let suite = pair.gateway.children.values().next().map(|c| c.encr);
        let mut conn = gateway_psk();
        change(&mut conn);
        let mut client = client_psk();
        if what == "another cipher" {
            assert_ne!(suite, Some(dormouse_crypto::Encr::Aes256Gcm16), "the test must change something");
            client.children[0].proposals.push("aes256gcm16".parse().expect("a proposal"));
        }
        pair.conn = client.into();
        let fresh =
            Pair::with_configs(client_psk(), EndpointConfig::default(), gateway_config(conn, n), n + 100);
        pair.replace_gateway(fresh.gateway);
        let sa = resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        let failure = pair.client.failure().map(|e| e.to_string());
        assert!(pair.client.established().unwrap_or_else(|| panic!("{what}: {failure:?}")).resumed);
        let stats = pair.client.endpoint.sa_stats(sa).expect("it is there");
        assert_eq!(stats.begun.get(&Kind::Auth), Some(&1), "{what}");
        assert!(pair.gateway.established().expect("up").confirmed);
        pair.assert_agree();
    }
}

#[test]
fn other_dialects_and_clients_that_do_not_want_it_never_ask() {
    for (n, dormancy, resumption) in [(30, false, Resumption::Strict), (31, true, Resumption::Libreswan)] {
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        (client.dormancy, client.resumption.mode) = (dormancy, resumption);
        gateway.resumption.mode = resumption;
        let (mut pair, ticket, _) = slept_with(client, gateway_config(gateway, n), n);
        assert_eq!((ticket.child.is_some(), ticket.form), (false, Form::Plain));
        let sa = resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(2));
        assert!(pair.client.established().expect("resumed").resumed);
        assert_eq!(
            pair.client.endpoint.sa_stats(sa).and_then(|s| s.begun.get(&Kind::Auth).copied()),
            Some(1)
        );
        assert_eq!(pair.log[0].carrier, Carrier::Ike);
        pair.assert_agree();
    }
}

#[test]
fn loss_duplication_and_delay_do_not_hurt() {
    for seed in common::seeds(60) {
        let (mut pair, ticket, _) = slept(seed ^ 0x9000);
        pair.faults = Some(common::Faults {
            seed: dormouse_sansio::Seeded::new(seed),
            lost: 30,
            doubled: 20,
            late: 40,
        });
        resume(&mut pair, &ticket);
        pair.run_for(Duration::from_secs(40));
        pair.faults = None;
        pair.run_for(Duration::from_secs(60));
        if pair.client.established().is_some() {
            assert!(pair.client.closed.is_empty(), "seed {seed}: {:?}", pair.client.closed);
            assert_eq!(pair.gateway.endpoint.len(), 1, "seed {seed}");
            pair.assert_agree();
        } else {
            let failure = pair.client.failure().expect("told");
            assert!(matches!(failure, NegotiationError::Timeout { .. }), "seed {seed}: {failure}");
        }
        assert_eq!(pair.gateway.endpoint.half_open(), 0, "seed {seed}");
    }
}
