//! Redirection to another gateway (RFC 5685): in the first answer, when it is known who calls, and in the middle of a session.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Pair, client_psk, fqdn, gateway_config, gateway_psk};
use dormouse_ike::config::{Connection, IdentityPattern};
use dormouse_ike::{EndpointConfig, Event, Gateway, NegotiationError, Spread};
use dormouse_sansio::Path;
use dormouse_wire::ike::{Message, NotifyType, Payload};

const ELSEWHERE: &str = "gw2.example.org";

fn to(gateway: &str) -> Gateway {
    gateway.parse().expect("a gateway")
}

fn client(allowed: &[&str]) -> Connection {
    let mut conn = client_psk();
    conn.opening.redirects = allowed.iter().map(|t| t.parse().expect("a pattern")).collect();
    conn
}

fn gateway(redirect_to: Option<&str>) -> Connection {
    let mut conn = gateway_psk();
    conn.answering.redirect_to = redirect_to.map(to);
    conn
}

/// A gateway of which one connection alone sends its clients away: it must know first who calls.
fn by_identity(client: Connection, seed: u64) -> Pair {
    let others = Connection {
        name: "others".to_owned(),
        remote_id: IdentityPattern::Exact(fqdn("other.example.org")),
        ..gateway_psk()
    };
    let mut config = gateway_config(gateway(Some(ELSEWHERE)), seed);
    config.connections.push(Arc::new(others));
    Pair::with_configs(client, EndpointConfig::default(), config, seed)
}

fn notified(pair: &Pair, to_gateway: bool, kind: NotifyType) -> Option<Vec<u8>> {
    let first = pair.log.iter().find(|d| d.to_gateway == to_gateway)?;
    let message = Message::parse(&first.bytes).expect("in clear");
    message.payloads.into_iter().find_map(|p| match p {
        Payload::Notify(n) if n.kind == kind => Some(n.data),
        _ => None,
    })
}

fn sent_to(pair: &mut Pair) -> String {
    match pair.client.failure() {
        Some(NegotiationError::Redirected(to)) => to.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gateway_sends_everybody_away_and_keeps_nothing_of_them() {
    for (allowed, where_to) in [
        ("*.example.org", ELSEWHERE),
        (ELSEWHERE, ELSEWHERE),
        ("192.0.2.0/24", "192.0.2.9"),
        ("2001:db8::9", "2001:db8::9"),
    ] {
        let mut pair = Pair::new(client(&[allowed]), gateway(Some(where_to)), 1);
        pair.connect();
        pair.settle();
        assert_eq!(sent_to(&mut pair), where_to);
        assert!(pair.gateway.endpoint.is_empty() && pair.client.endpoint.is_empty());
        assert_eq!(notified(&pair, true, NotifyType::RedirectSupported), Some(Vec::new()));
        assert_eq!(pair.log.len(), 2);
    }
}

#[test]
fn who_does_not_follow_is_served_and_who_may_not_go_says_where_it_was_sent() {
    let mut pair = Pair::new(client(&[]), gateway(Some(ELSEWHERE)), 2);
    pair.up();
    assert_eq!(notified(&pair, true, NotifyType::RedirectSupported), None);
    pair.assert_agree();
    let mut pair = Pair::new(client(&["gw3.example.org", "10.0.0.0/8"]), gateway(Some(ELSEWHERE)), 3);
    pair.connect();
    pair.settle();
    let error = pair.client.failure().expect("refused");
    assert!(matches!(error, NegotiationError::RedirectRefused(_)), "{error}");
    assert!(error.to_string().contains(ELSEWHERE) && error.to_string().contains("ike.redirects"), "{error}");
}

/// Who has not seen our nonce sends us nowhere, and what is cut short neither.
#[test]
fn a_redirect_without_our_nonce_is_passed_over() {
    for cut in [false, true] {
        let mut pair = Pair::new(client(&["*.example.org"]), gateway(Some(ELSEWHERE)), 4);
        pair.filter = Some(Box::new(move |d| {
            if !d.to_gateway {
                let last = d.bytes.last_mut().expect("a message");
                *last ^= 1;
                if cut {
                    // The name is as long as all that follows, and more.
                    let at = d.bytes.windows(ELSEWHERE.len()).position(|w| w == ELSEWHERE.as_bytes());
                    d.bytes[at.expect("the name") - 1] = 0xff;
                }
            }
            true
        }));
        pair.connect();
        pair.run_for(Duration::from_secs(1));
        assert!(pair.client.failure().is_none(), "it goes on waiting");
        pair.filter = None;
        pair.run_for(Duration::from_secs(5));
        assert_eq!(sent_to(&mut pair), ELSEWHERE);
    }
}

#[test]
fn some_are_sent_away_when_they_have_proved_who_they_are() {
    let mut pair = by_identity(client(&["*.example.org"]), 5);
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    assert_eq!(notified(&pair, false, NotifyType::Redirect), None, "not before");
    assert_eq!(sent_to(&mut pair), ELSEWHERE);
    assert!(pair.client.established().is_none() && pair.client.children.is_empty());
    let there = pair.gateway.established().expect("authenticated");
    assert!(there.configuration.addresses().is_empty(), "no address is kept for it");
    assert!(pair.gateway.endpoint.is_empty() && pair.client.endpoint.is_empty(), "its session is deleted");
    // The others stay, and so does who does not follow.
    let mut other = client(&["*.example.org"]);
    other.local_id = fqdn("other.example.org");
    let mut pair = by_identity(other, 6);
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    // The first connection takes it too: what it says counts.
    assert_eq!(sent_to(&mut pair), ELSEWHERE);
    by_identity(client(&[]), 7).up();
    let mut pair = by_identity(client(&["192.0.2.1"]), 8);
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    assert!(matches!(pair.client.failure(), Some(NegotiationError::RedirectRefused(_))));
    assert!(pair.gateway.endpoint.is_empty(), "its session is deleted");
}

/// "The gateway MUST verify the client's AUTH payload before sending the REDIRECT payload"
#[test]
fn a_stranger_does_not_learn_where_the_others_are_sent() {
    let mut stranger = client(&["*.example.org"]);
    let wrong = dormouse_crypto::Secret::from(&b"no such key of anybody"[..]);
    stranger.local_auth = dormouse_ike::config::LocalAuth::Psk(wrong);
    let mut pair = by_identity(stranger, 9);
    pair.connect();
    pair.run_for(Duration::from_secs(5));
    let error = pair.client.failure().expect("refused");
    assert!(matches!(error, NegotiationError::RefusedByPeer { .. }), "{error}");
}

#[test]
fn a_session_is_sent_away_if_both_ends_agree() {
    let told = |pair: &mut Pair| {
        pair.client.take(|e| match e {
            Event::Redirected { to, .. } => Some(to.to_string()),
            _ => None,
        })
    };
    for (allowed, where_to, follows, goes) in [
        ("*.example.org", ELSEWHERE, true, true),
        ("192.0.2.0/24", "192.0.2.7", true, true),
        ("192.0.2.0/24", ELSEWHERE, true, false),
    ] {
        let mut pair = Pair::new(client(&[allowed]), gateway(None), 10);
        let (_, b) = pair.up();
        assert_eq!(pair.gateway.endpoint.redirect(pair.now, b, &to(where_to)), follows);
        pair.settle();
        assert_eq!(told(&mut pair), goes.then(|| where_to.to_owned()));
        assert!(pair.client.closed.is_empty(), "the driver closes it");
        pair.assert_agree();
    }
    let mut pair = Pair::new(client(&[]), gateway(None), 11);
    let (a, b) = pair.up();
    assert!(!pair.gateway.endpoint.redirect(pair.now, b, &to(ELSEWHERE)), "it has not said that it follows");
    assert!(!pair.client.endpoint.redirect(pair.now, a, &to(ELSEWHERE)), "a gateway is sent nowhere");
    assert_eq!(told(&mut pair), None);
}

/// What a peer can do outlives the keys of its SA, and is said again to the next gateway.
#[test]
fn the_next_gateway_learns_who_has_sent_us_and_may_send_us_on() {
    let mut pair = Pair::new(client(&["*.example.org"]), gateway(None), 12);
    pair.client.endpoint.set_redirected_from("home", Some([192, 0, 2, 1].into()));
    let (_, b) = pair.up();
    assert_eq!(notified(&pair, true, NotifyType::RedirectedFrom), Some(vec![1, 4, 192, 0, 2, 1]));
    assert_eq!(notified(&pair, true, NotifyType::RedirectSupported), None);
    pair.gateway.endpoint.rekey_ike(pair.now, b);
    pair.settle();
    assert!(pair.gateway.endpoint.redirect(pair.now, b, &to("gw3.example.org")));
    pair.settle();
    let there = pair.client.take(|e| matches!(e, Event::Redirected { .. }).then_some(()));
    assert_eq!(there, Some(()));
}

/// Sends so many callers away, and counts how often it was asked.
#[derive(Clone, Default)]
struct Turns(Arc<Mutex<(usize, usize)>>);

impl Spread for Turns {
    fn elsewhere(&mut self, _: &Path, _: usize) -> Option<Gateway> {
        let mut turns = self.0.lock().expect("no panic");
        turns.1 += 1;
        turns.0 = turns.0.checked_sub(1)?;
        Some(to(SIBLING))
    }
}

const SIBLING: &str = "192.0.2.9";

/// A gateway that sends so many callers away by load, and a client whose gateway's name leads to these addresses too.
fn spreading(client: Connection, away: usize, same_name: &[&str], seed: u64) -> (Pair, Turns) {
    let turns = Turns(Arc::new(Mutex::new((away, 0))));
    let mut config = gateway_config(gateway(None), seed);
    config.spread = Some(Box::new(turns.clone()));
    let mut pair = Pair::with_configs(client, EndpointConfig::default(), config, seed);
    let addresses = same_name.iter().map(|a| a.parse().expect("an address")).collect();
    pair.client.endpoint.set_same_name("home", addresses);
    (pair, turns)
}

#[test]
fn by_load_a_login_is_sent_to_another_address_of_the_gateways_name() {
    let (mut pair, turns) = spreading(client(&[]), 1, &["192.0.2.7", SIBLING], 13);
    pair.connect();
    pair.settle();
    assert_eq!(sent_to(&mut pair), SIBLING);
    assert!(pair.gateway.endpoint.is_empty(), "nothing is kept of it");
    // Who comes next is served.
    let (_, b) = pair.up();
    pair.assert_agree();
    assert_eq!(turns.0.lock().expect("no panic").1, 2);
    // A session that is established is not moved by this rule.
    assert!(pair.gateway.endpoint.redirect(pair.now, b, &to(SIBLING)));
    pair.settle();
    assert_eq!(pair.client.take(|e| matches!(e, Event::Redirected { .. }).then_some(())), None);
    pair.assert_agree();
}

#[test]
fn by_load_nobody_is_sent_who_does_not_follow_or_was_sent_already_or_has_a_ticket() {
    // It does not say that it follows.
    let (mut pair, turns) = spreading(client(&[]), 1, &[], 14);
    pair.up();
    assert_eq!(notified(&pair, true, NotifyType::RedirectSupported), None);
    assert_eq!(turns.0.lock().expect("no panic").1, 0);
    // Another one has sent it.
    let (mut pair, turns) = spreading(client(&["*.example.org"]), 1, &[], 15);
    pair.client.endpoint.set_redirected_from("home", Some([192, 0, 2, 1].into()));
    pair.up();
    assert_eq!(turns.0.lock().expect("no panic").1, 0);
    // To where its gateway's name does not lead.
    let (mut pair, _) = spreading(client(&[]), 1, &["192.0.2.7"], 16);
    pair.connect();
    pair.settle();
    let error = pair.client.failure().expect("refused");
    assert!(matches!(error, NegotiationError::RedirectRefused(_)), "{error}");
    // A ticket is taken where it comes.
    let (mut pair, turns) = spreading(client(&[]), 0, &[SIBLING], 17);
    let (a, b) = pair.up();
    assert_eq!(turns.0.lock().expect("no panic").1, 1);
    let ticket = pair.client.ticket.clone().expect("a ticket");
    *turns.0.lock().expect("no panic") = (1, 0);
    pair.client.endpoint.forget(pair.now, a);
    pair.gateway.endpoint.forget(pair.now, b);
    let path = pair.default_path();
    let conn = Arc::new(client(&[]));
    pair.client.endpoint.resume(pair.now, conn, ticket, path);
    pair.settle();
    assert!(pair.client.failure().is_none());
    assert_eq!(turns.0.lock().expect("no panic").1, 0);
}
