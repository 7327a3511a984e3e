//! Peers that break the rules or stretch them, and what the rules then ask of us. They are played by an endpoint that says what no
//! exchange of ours would.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::{Pair, client_psk, gateway_psk};
use dormouse_crypto::DhPrivate;
use dormouse_ike::config::{Lifetime, Unique};
use dormouse_ike::{CloseReason, Event, proposal};
use dormouse_keying::SaId;
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::ike::{ExchangeType, Header, Notify, NotifyType, Payload, PayloadType};

/// The client's request with `payloads`, and what the gateway answers; `None` if it does not.
fn ask(pair: &mut Pair, sa: SaId, exchange: ExchangeType, payloads: &[Payload]) -> Option<Vec<Payload>> {
    let request = pair.client.endpoint.craft_request(sa, exchange, payloads).expect("the SA is there");
    let path = pair.client.endpoint.path(sa).expect("the SA is there");
    let seen = Path { local: path.remote, remote: path.local, carrier: path.carrier };
    for mut datagram in request {
        let _ = pair.gateway.endpoint.handle_datagram(pair.now, seen, &mut datagram);
    }
    let mut answer = Vec::new();
    pair.gateway.endpoint.poll_transmit(pair.now, &mut answer)?;
    let marker = if path.carrier == Carrier::NatT { 4 } else { 0 };
    pair.client.endpoint.peek(pair.now, sa, &answer[marker..])
}

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

fn has(payloads: &[Payload], kind: NotifyType) -> bool {
    payloads.iter().any(|p| matches!(p, Payload::Notify(n) if n.kind == kind))
}

fn unknown(critical: bool) -> Payload {
    Payload::Unknown { kind: PayloadType::from(200), critical, body: vec![1, 2, 3] }
}

/// Requests of one exchange type from the client are taken off the wire; their message ids are collected.
fn take_requests(pair: &mut Pair, exchange: ExchangeType) -> Rc<RefCell<Vec<u32>>> {
    let ids = Rc::new(RefCell::new(Vec::new()));
    let seen = ids.clone();
    pair.filter = Some(Box::new(move |datagram| {
        let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
        let header = datagram.bytes.get(marker..).map(Header::parse);
        match header {
            Some(Ok(h)) if datagram.to_gateway && h.exchange == exchange && !h.flags.response => {
                seen.borrow_mut().push(h.message_id);
                false
            }
            _ => true,
        }
    }));
    ids
}

/// The gateway's answer to one of them, with any content.
fn answer(pair: &mut Pair, (a, b): (SaId, SaId), exchange: ExchangeType, id: u32, payloads: &[Payload]) {
    let datagrams = pair.gateway.endpoint.craft_answer(b, exchange, id, payloads).expect("the SA is there");
    let path = pair.client.endpoint.path(a).expect("the SA is there");
    for mut datagram in datagrams {
        let _ = pair.client.endpoint.handle_datagram(pair.now, path, &mut datagram);
    }
    pair.flush();
}

#[test]
fn an_unknown_payload_is_skipped_unless_it_is_critical() {
    let mut pair = Pair::psk(1);
    let (a, b) = pair.up();
    let skipped = ask(&mut pair, a, ExchangeType::Informational, &[unknown(false)]);
    assert_eq!(skipped, Some(Vec::new()));
    let refused = ask(&mut pair, a, ExchangeType::Informational, &[unknown(true)]);
    assert_eq!(refused, Some(vec![notify(NotifyType::UnsupportedCriticalPayload, &[200])]));
    assert!(pair.gateway.endpoint.path(b).is_some(), "the SA goes on");
}

#[test]
fn a_routability_cookie_is_copied_if_its_length_is_allowed_and_a_protocol_error_otherwise() {
    for (len, allowed) in [(7, false), (8, true), (64, true), (65, false)] {
        let mut pair = Pair::psk(len as u64);
        let (a, b) = pair.up();
        let cookie = notify(NotifyType::Cookie2, &vec![7; len]);
        let answer = ask(&mut pair, a, ExchangeType::Informational, std::slice::from_ref(&cookie));
        let expected = if allowed { cookie } else { notify(NotifyType::InvalidSyntax, &[]) };
        assert_eq!(answer, Some(vec![expected]), "{len} octets");
        assert_eq!(pair.gateway.endpoint.path(b).is_some(), allowed, "{len} octets: the SA");
    }
}

#[test]
fn an_answer_with_an_unknown_critical_payload_is_rejected() {
    let mut pair = Pair::psk(2);
    let sas = pair.up();
    let ids = take_requests(&mut pair, ExchangeType::Informational);
    pair.client.endpoint.probe(pair.now, sas.0, Duration::from_secs(60));
    pair.flush();
    let id = ids.borrow()[0];
    answer(&mut pair, sas, ExchangeType::Informational, id, &[unknown(true)]);
    assert_eq!(pair.client.closed, [(sas.0, CloseReason::ProtocolError)]);

    // In the first exchange anybody may have added it: dropped, and the real answer is still waited for.
    let mut pair = Pair::psk(3);
    pair.connect();
    let mut spoiled = 0;
    while spoiled == 0 {
        assert!(pair.step(pair.now + Duration::from_millis(400)), "the answer is on its way");
        for datagram in pair.wire.values_mut().filter(|d| !d.to_gateway) {
            datagram.bytes = spoil(&datagram.bytes);
            spoiled += 1;
        }
    }
    pair.run_for(Duration::from_millis(100));
    assert!(pair.client.failure().is_none() && pair.client.established().is_none());
    pair.run_for(Duration::from_secs(5));
    assert!(pair.client.established().is_some(), "by the repetition");
}

/// A clear message with an unknown critical payload before the others.
fn spoil(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    let first = bytes[16];
    bytes[16] = 200;
    bytes.splice(28..28, [first, 0x80, 0, 4]);
    let len = u32::try_from(bytes.len()).expect("a short message");
    bytes[24..28].copy_from_slice(&len.to_be_bytes());
    bytes
}

#[test]
fn invalid_syntax_ends_the_sa_at_the_end_that_says_it_too() {
    let mut pair = Pair::psk(4);
    let (a, b) = pair.up();
    let no_nonce = [notify(NotifyType::UseTransportMode, &[])];
    let refused = ask(&mut pair, a, ExchangeType::CreateChildSa, &no_nonce).expect("an answer");
    assert!(has(&refused, NotifyType::InvalidSyntax));
    pair.flush();
    assert_eq!(pair.gateway.closed, [(b, CloseReason::ProtocolError)]);
    assert!(pair.gateway.children.is_empty());
}

#[test]
fn every_part_of_an_informational_request_is_answered() {
    let mut pair = Pair::psk(6);
    let (a, _) = pair.up();
    let cookie = notify(NotifyType::Cookie2, &[7; 16]);
    let request = [
        notify(NotifyType::TicketRequest, &[]),
        notify(NotifyType::NatDetectionSourceIp, &[0; 20]),
        notify(NotifyType::NatDetectionDestinationIp, &[0; 20]),
        cookie.clone(),
    ];
    let answer = ask(&mut pair, a, ExchangeType::Informational, &request).expect("an answer");
    assert!(has(&answer, NotifyType::TicketLtOpaque) && answer.contains(&cookie));
    assert!(
        has(&answer, NotifyType::NatDetectionSourceIp) && has(&answer, NotifyType::NatDetectionDestinationIp)
    );
}

#[test]
fn a_ticket_may_be_asked_for_while_the_ike_sa_is_rekeyed() {
    let mut pair = Pair::psk(7);
    let (a, _) = pair.up();
    let offer = proposal::ike_offer(&pair.conn.ike_proposals[1..], Some(0x1234));
    let group = proposal::first_group(&pair.conn.ike_proposals).expect("there is one");
    let key = DhPrivate::generate(group, &mut Seeded::new(7)).expect("a key pair");
    let request = [
        Payload::Sa(offer),
        Payload::Nonce(vec![9; 32]),
        Payload::Ke { group: group.id(), data: key.public_value().to_vec() },
        notify(NotifyType::TicketRequest, &[]),
    ];
    let answer = ask(&mut pair, a, ExchangeType::CreateChildSa, &request).expect("an answer");
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    assert!(has(&answer, NotifyType::TicketLtOpaque), "{answer:?}");
}

/// Each ticket had a write of its own, and a client that asked without end kept the store from the confirmations of others.
#[test]
fn tickets_without_end_are_one_write_in_ten_minutes() {
    let mut pair = Pair::psk(9);
    let (a, _) = pair.up();
    let mut writes = 0;
    for _ in 0..100 {
        let answer =
            ask(&mut pair, a, ExchangeType::Informational, &[notify(NotifyType::TicketRequest, &[])]);
        assert!(has(&answer.expect("an answer"), NotifyType::TicketLtOpaque));
        while let Some(event) = pair.gateway.endpoint.poll_event() {
            writes += usize::from(matches!(event, Event::Store(_)));
        }
        pair.now += Duration::from_secs(10);
    }
    assert!((1..=3).contains(&writes), "{writes}");
}

/// Not by session: a second one of the same identity has no budget of its own.
#[test]
fn requests_for_keys_are_answered_at_one_pace_for_an_identity() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    client.initial_contact = false;
    gateway.answering.policy.unique = Unique::Never;
    let mut pair = Pair::new(client, gateway, 10);
    let (a, _) = pair.up();
    let second = pair.connect();
    pair.settle();
    let unknown_child = [Payload::Notify(Notify::about_esp(NotifyType::RekeySa, 0x1234_5678))];
    let mut answered = [0, 0];
    for n in 0..200 {
        let sa = [a, second][n % 2];
        let answer = ask(&mut pair, sa, ExchangeType::CreateChildSa, &unknown_child).expect("an answer");
        answered[n % 2] += usize::from(!has(&answer, NotifyType::TemporaryFailure));
    }
    assert_eq!(answered, [64, 64], "half of the budget each");
    pair.now += Duration::from_secs(3);
    let answer = ask(&mut pair, second, ExchangeType::CreateChildSa, &unknown_child).expect("an answer");
    assert!(has(&answer, NotifyType::ChildSaNotFound));
}

#[test]
fn a_peer_that_is_busy_for_minutes_is_out_of_step() {
    let mut pair = Pair::psk(8);
    let sas = pair.up();
    let child = *pair.client.children.keys().next().expect("one");
    let ids = take_requests(&mut pair, ExchangeType::CreateChildSa);
    pair.client.endpoint.rekey_child(pair.now, child);
    pair.flush();
    let (begun, mut refusals) = (pair.now, 0);
    while pair.client.closed.is_empty() {
        assert!(refusals < 20, "it never gives up");
        let asked = std::mem::take(&mut *ids.borrow_mut());
        if let Some(&id) = asked.last() {
            let busy = [notify(NotifyType::TemporaryFailure, &[])];
            answer(&mut pair, sas, ExchangeType::CreateChildSa, id, &busy);
            assert!(ids.borrow().is_empty(), "not at once");
            refusals += 1;
        }
        pair.run_for(Duration::from_millis(500));
    }
    assert_eq!(pair.client.closed[0].1, CloseReason::ProtocolError);
    assert!(refusals > 3 && pair.now - begun > Duration::from_secs(60), "{refusals}");
}

#[test]
fn when_a_child_sa_ends_and_cannot_be_rekeyed_so_does_its_ike_sa() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    // IKE_AUTH knows no group of its own; CREATE_CHILD_SA finds out that there is none in common.
    client.children[0].proposals = vec!["aes256gcm16-x25519".parse().expect("a proposal")];
    gateway.children[0].proposals = vec!["aes256gcm16-ecp256".parse().expect("a proposal")];
    client.children[0].lifetime = Lifetime::of_time(Duration::from_secs(600));
    let mut pair = Pair::new(client, gateway, 9);
    let (a, b) = pair.up();
    pair.run_for(Duration::from_secs(700));
    assert!(pair.client.take(|e| matches!(e, Event::ChildFailed { .. }).then_some(())).is_some());
    assert_eq!(pair.client.closed, [(a, CloseReason::Expired)]);
    assert_eq!(pair.gateway.closed, [(b, CloseReason::ByPeer)], "the peer gets a DELETE");
}
