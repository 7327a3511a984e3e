//! Transport mode, and what NATs on its way make of it (RFC 7296 section 2.23.1).

mod common;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use common::{GATEWAY, Nat, Pair, addr, client_psk, gateway_psk, natt_path};
use dormouse_ike::config::{ChildMode, Connection, EspInUdp, SelectorSpec};
use dormouse_ike::proposal::{self, KeyExchange};
use dormouse_ike::selectors::{show, show_wire, to_wire};
use dormouse_ike::{Event, NegotiationError};
use dormouse_keying::{Install, Mode, Original, SaId};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::ike::{ExchangeType, Header, Notify, NotifyType, Payload, TsRange};

const HOUR: Duration = Duration::from_secs(3_600);
/// The client's own address, that of its NAT, the one that the client connects to, and the gateway's own.
const IP1: &str = "192.0.2.10";
const IPN1: &str = "203.0.113.5";
const IPN2: &str = "203.0.113.80";
const IP2: &str = "198.51.100.1";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address of the test")
}

/// Both ends, for traffic between any of their addresses.
fn hosts() -> (Connection, Connection) {
    let mut ends = (client_psk(), gateway_psk());
    for conn in [&mut ends.0, &mut ends.1] {
        conn.request.v4 = false;
        conn.request.dns = false;
        conn.answering.policy.pool.clear();
        conn.children[0].mode = ChildMode::Transport;
        conn.children[0].ts_local = vec![SelectorSpec::Dynamic];
        conn.children[0].ts_remote = vec![SelectorSpec::Dynamic];
    }
    ends
}

fn everywhere() -> Vec<SelectorSpec> {
    vec![SelectorSpec::Net("0.0.0.0/0".parse().expect("a prefix"))]
}

fn between(nat_a: bool, nat_b: bool, seed: u64) -> Pair {
    with_nats(hosts(), nat_a, nat_b, seed)
}

fn with_nats(ends: (Connection, Connection), nat_a: bool, nat_b: bool, seed: u64) -> Pair {
    let mut pair = Pair::new(ends.0, ends.1, seed);
    pair.nat = nat_a.then(|| Nat::new(IPN1, HOUR));
    pair.front = nat_b.then(|| ip(IPN2));
    pair
}

fn only(children: &std::collections::BTreeMap<dormouse_keying::ChildId, Install>) -> &Install {
    assert_eq!(children.len(), 1);
    children.values().next().expect("one")
}

/// The selectors at the client and at the gateway.
fn seen(pair: &Pair) -> [String; 4] {
    let (a, b) = (only(&pair.client.children), only(&pair.gateway.children));
    [show(&a.ts_local), show(&a.ts_remote), show(&b.ts_remote), show(&b.ts_local)]
}

#[test]
fn each_end_has_the_addresses_that_it_sees_and_knows_those_of_the_other() {
    for (nat_a, nat_b) in [(false, false), (true, false), (false, true), (true, true)] {
        for mobike in [true, false] {
            let mut ends = hosts();
            ends.0.mobility.mobike = mobike;
            (ends.0.esp_in_udp, ends.1.esp_in_udp) = (EspInUdp::Nat, EspInUdp::Nat);
            let mut pair = with_nats(ends, nat_a, nat_b, 1);
            pair.up();
            let (client, gateway) = (only(&pair.client.children), only(&pair.gateway.children));
            assert_eq!((client.mode, gateway.mode), (Mode::Transport, Mode::Transport));
            let (there, here) = (if nat_a { IPN1 } else { IP1 }, if nat_b { IPN2 } else { IP2 });
            assert_eq!(seen(&pair), [IP1, here, there, IP2]);
            let translated = nat_a || nat_b;
            let at_client = Original { local: ip(there), remote: ip(IP2) };
            let at_gateway = Original { local: ip(here), remote: ip(IP1) };
            assert_eq!(client.original, translated.then_some(at_client), "{nat_a} {nat_b}");
            assert_eq!(gateway.original, translated.then_some(at_gateway), "{nat_a} {nat_b}");
            let carrier = if translated { Carrier::NatT } else { Carrier::RawEsp };
            assert_eq!((client.path.carrier, gateway.path.carrier), (carrier, carrier));
        }
    }
}

#[test]
fn encapsulation_that_is_forced_makes_no_nat() {
    let mut ends = hosts();
    ends.0.esp_in_udp = EspInUdp::Always;
    let mut pair = with_nats(ends, false, false, 2);
    pair.up();
    assert_eq!(seen(&pair), [IP1, IP2, IP1, IP2]);
    assert_eq!(only(&pair.client.children).original, None);
    assert_eq!(only(&pair.gateway.children).original, None);
    assert_eq!(only(&pair.client.children).path.carrier, Carrier::NatT);
}

#[test]
fn a_wide_policy_is_proposed_as_the_two_addresses() {
    let mut ends = hosts();
    for conn in [&mut ends.0, &mut ends.1] {
        conn.children[0].ts_local = everywhere();
        conn.children[0].ts_remote = everywhere();
    }
    let mut pair = with_nats(ends, true, true, 3);
    pair.up();
    assert_eq!(seen(&pair), [IP1, IPN2, IPN1, IP2]);
}

#[test]
fn ports_survive_the_substitution() {
    let web = |net: &str| SelectorSpec::Narrow {
        net: net.parse().expect("a prefix"),
        protocol: 6,
        ports: (443, 443),
    };
    let (mut client, mut gateway) = hosts();
    client.children[0].ts_remote = vec![web("203.0.113.80/32"), web("0.0.0.0/0")];
    gateway.children[0].ts_local = vec![web("198.51.100.1/32")];
    let mut pair = with_nats((client, gateway), true, true, 4);
    pair.up();
    let web_at = |address| format!("{address} tcp port 443");
    assert_eq!(seen(&pair), [IP1.to_owned(), web_at(IPN2), IPN1.to_owned(), web_at(IP2)]);
}

#[test]
fn a_policy_for_the_address_of_the_nat_holds_and_one_for_another_does_not() {
    for (address, accepted) in [(IPN1, true), (IP1, false), ("203.0.113.6", false)] {
        let mut ends = hosts();
        let net = format!("{address}/32").parse().expect("a prefix");
        ends.1.children[0].ts_remote = vec![SelectorSpec::Net(net)];
        let mut pair = with_nats(ends, true, false, 5);
        pair.connect();
        pair.settle();
        if accepted {
            assert_eq!(seen(&pair), [IP1, IP2, IPN1, IP2]);
        } else if address == IP1 {
            // The address behind the NAT is one of the client's in tunnel mode.
            assert_eq!(only(&pair.gateway.children).mode, Mode::Tunnel);
            assert_eq!(seen(&pair), [IP1, IP2, IP1, IP2]);
        } else {
            let error = pair.client.failure();
            assert!(matches!(error, Some(NegotiationError::TrafficSelectors { .. })), "{error:?}");
        }
    }
}

#[test]
fn where_transport_mode_is_not_allowed_the_addresses_stay_as_they_came() {
    let mut ends = hosts();
    ends.1.children[0].mode = ChildMode::Tunnel;
    ends.1.children[0].ts_local = everywhere();
    ends.1.children[0].ts_remote = everywhere();
    let mut pair = with_nats(ends, true, true, 6);
    pair.up();
    assert_eq!(seen(&pair), [IP1, IPN2, IP1, IPN2]);
    for side in [&pair.client, &pair.gateway] {
        assert_eq!((only(&side.children).mode, only(&side.children).original), (Mode::Tunnel, None));
    }
    rekey(&mut pair);
    assert_eq!(seen(&pair), [IP1, IPN2, IP1, IPN2]);
}

#[test]
fn what_is_not_between_our_own_addresses_is_for_tunnel_mode() {
    let mut ends = hosts();
    ends.0.children[0].ts_local = vec![SelectorSpec::Net("10.7.0.0/16".parse().expect("a prefix"))];
    ends.1.children[0].ts_remote = everywhere();
    let mut pair = with_nats(ends, true, false, 7);
    pair.up();
    assert_eq!(seen(&pair), ["10.7.0.0/16", IP2, "10.7.0.0/16", IP2]);
    assert_eq!(only(&pair.client.children).mode, Mode::Tunnel);
}

/// Both ends rekey the CHILD SA, then the IKE SA, then the CHILD SA again.
fn rekey(pair: &mut Pair) {
    for round in 0..2 {
        for by_client in [true, false] {
            let side = if by_client { &mut pair.client } else { &mut pair.gateway };
            let child = *side.children.keys().next().expect("one");
            side.endpoint.rekey_child(pair.now, child);
            pair.settle();
            let side = if by_client { &pair.client } else { &pair.gateway };
            assert!(!side.children.contains_key(&child), "round {round}: it was rekeyed");
            pair.assert_agree();
        }
        let sa = only(&pair.client.children).owner.ike().expect("IKE");
        pair.client.endpoint.rekey_ike(pair.now, sa);
        pair.settle();
    }
}

#[test]
fn rekeying_keeps_the_addresses_of_both_ends() {
    for (nat_a, nat_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut pair = between(nat_a, nat_b, 8);
        pair.up();
        let before = seen(&pair);
        let original = (only(&pair.client.children).original, only(&pair.gateway.children).original);
        rekey(&mut pair);
        assert_eq!(seen(&pair), before);
        let now = (only(&pair.client.children).original, only(&pair.gateway.children).original);
        assert_eq!((now, only(&pair.client.children).mode), (original, Mode::Transport));
    }
}

#[test]
fn another_address_of_the_nat_changes_the_path_and_no_selector() {
    for nat_b in [false, true] {
        let mut pair = between(true, nat_b, 9);
        let (a, _) = pair.up();
        let (before, original) = (seen(&pair), only(&pair.gateway.children).original);
        pair.nat = Some(Nat::new("203.0.113.99", HOUR));
        let path = pair.client.endpoint.path(a).expect("it is there");
        pair.client.endpoint.set_path(pair.now, a, path);
        pair.settle();
        assert_eq!(only(&pair.gateway.children).path.remote.ip(), ip("203.0.113.99"));
        assert_eq!((seen(&pair), only(&pair.gateway.children).original), (before.clone(), original));
        rekey(&mut pair);
        assert_eq!((seen(&pair), only(&pair.gateway.children).original), (before, original));
    }
}

#[test]
fn a_device_that_leaves_its_nat_can_still_rekey() {
    let mut pair = between(true, false, 10);
    let (a, _) = pair.up();
    let before = seen(&pair);
    pair.nat = None;
    let gateway = addr(GATEWAY).ip();
    let path = natt_path("192.0.2.44:4500", &format!("{gateway}:4500"));
    pair.client.endpoint.set_path(pair.now, a, path);
    pair.settle();
    rekey(&mut pair);
    assert_eq!(seen(&pair), before);
}

#[test]
fn a_session_resumed_from_elsewhere_negotiates_its_addresses_anew() {
    let mut pair = between(true, true, 11);
    pair.up();
    let ticket = pair.client.ticket.take().expect("a ticket");
    pair.nat = Some(Nat::new("203.0.113.99", HOUR));
    let path = Path { local: addr("192.0.2.44:500"), ..pair.default_path() };
    pair.client.endpoint.resume(pair.now, pair.conn.clone(), ticket, path);
    pair.settle();
    let newest = |children: &std::collections::BTreeMap<_, Install>| {
        let install = children.values().max_by_key(|c| c.owner).expect("one");
        (install.mode, show(&install.ts_local), show(&install.ts_remote), install.original)
    };
    let at_client = Original { local: ip("203.0.113.99"), remote: ip(IP2) };
    assert_eq!(
        newest(&pair.client.children),
        (Mode::Transport, "192.0.2.44".into(), IPN2.into(), Some(at_client))
    );
    let at_gateway = Original { local: ip(IPN2), remote: ip("192.0.2.44") };
    assert_eq!(
        newest(&pair.gateway.children),
        (Mode::Transport, IP2.into(), "203.0.113.99".into(), Some(at_gateway))
    );
}

/// Asks the gateway for another CHILD SA in transport mode with any selectors. Returns its answer.
fn propose(pair: &mut Pair, (a, b): (SaId, SaId), ts_i: &[TsRange], ts_r: &[TsRange]) -> Vec<Payload> {
    let child = &pair.conn.children[0];
    let offer = proposal::esp_offer(&child.proposals, 0x1234_5678, child.esn, KeyExchange::Never);
    let request = [
        Payload::Sa(offer),
        Payload::Nonce(vec![9; 32]),
        Payload::TsI(to_wire(ts_i)),
        Payload::TsR(to_wire(ts_r)),
        Payload::Notify(Notify::new(NotifyType::UseTransportMode, [])),
    ];
    let exchange = ExchangeType::CreateChildSa;
    let datagrams = pair.client.endpoint.craft_request(a, exchange, &request).expect("the SA is there");
    let path = pair.gateway.endpoint.path(b).expect("the SA is there");
    let marker = if path.carrier == Carrier::NatT { 4 } else { 0 };
    for mut datagram in datagrams {
        pair.gateway.endpoint.handle_datagram(pair.now, path, &mut datagram).expect("it is taken");
    }
    let mut answer = Vec::new();
    pair.gateway.endpoint.poll_transmit(pair.now, &mut answer).expect("an answer");
    pair.client.endpoint.peek(pair.now, a, &answer[marker..]).expect("an answer")
}

/// Transport mode or not, TSi, TSr; or the refusal.
fn verdict(answer: &[Payload]) -> Result<(bool, String, String), NotifyType> {
    let (mut i, mut r, mut transport) = (String::new(), String::new(), false);
    for payload in answer {
        match payload {
            Payload::TsI(ts) => i = show_wire(ts),
            Payload::TsR(ts) => r = show_wire(ts),
            Payload::Notify(n) if n.kind == NotifyType::UseTransportMode => transport = true,
            Payload::Notify(n) => return Err(n.kind),
            _ => {}
        }
    }
    Ok((transport, i, r))
}

#[test]
fn selectors_that_are_not_one_address_each_are_narrowed_or_refused() {
    let range = |start, end| TsRange::addresses(ip(start), ip(end));
    let one = |address| range(address, address);
    let (ours, wide) = (one(IP2), range("0.0.0.0", "255.255.255.255"));
    let agreed = |i: &str| Ok((true, i.to_owned(), IP2.to_owned()));
    let refused = Err(NotifyType::TsUnacceptable);
    // Without a NAT a proposal is narrowed to the address that it came from.
    let mut pair = between(false, false, 12);
    let sas = pair.up();
    for (ts_i, expected) in [
        (vec![wide], agreed(IP1)),
        (vec![one("10.7.7.7"), one(IP1)], agreed(IP1)),
        (vec![one("10.7.7.7")], refused.clone()),
        (vec![range("10.0.0.0", "10.255.255.255")], refused.clone()),
    ] {
        let answer = propose(&mut pair, sas, &ts_i, &[ours]);
        assert_eq!(verdict(&answer), expected, "{}", show(&ts_i));
    }
    // Behind one it must say what the address is there.
    let mut pair = between(true, false, 13);
    let sas = pair.up();
    for (ts_i, expected) in [
        (vec![one("10.7.7.7"), one("10.7.7.7")], agreed(IPN1)),
        (vec![one("10.7.7.7"), one("10.7.7.8")], refused.clone()),
        (vec![range("10.0.0.0", "10.255.255.255")], refused.clone()),
        (vec![one(IPN1), one("10.7.7.7")], Ok((false, IPN1.to_owned(), IP2.to_owned()))),
        // Nothing says what the checksums will be over: tunnel mode carries its own addresses.
        (vec![wide], Ok((false, IPN1.to_owned(), IP2.to_owned()))),
    ] {
        let answer = propose(&mut pair, sas, &ts_i, &[ours]);
        assert_eq!(verdict(&answer), expected, "{}", show(&ts_i));
    }
    let answer = propose(&mut pair, sas, &[one(IP1)], &[one(IPN2)]);
    assert_eq!(verdict(&answer), refused, "no NAT before the gateway: it is not meant");
}

/// What the client makes of an answer to its request for another CHILD SA.
fn answered(pair: &mut Pair, (a, b): (SaId, SaId), ts_i: &[TsRange], ts_r: &[TsRange]) -> String {
    let ids = Rc::new(RefCell::new(Vec::new()));
    let seen = ids.clone();
    pair.filter = Some(Box::new(move |datagram| {
        let marker = if datagram.carrier == Carrier::NatT { 4 } else { 0 };
        let header = datagram.bytes.get(marker..).map(Header::parse);
        let id = header.and_then(Result::ok).filter(|h| h.exchange == ExchangeType::CreateChildSa);
        seen.borrow_mut().extend(id.map(|h| h.message_id));
        id.is_none()
    }));
    pair.client.endpoint.create_child(pair.now, a, 0);
    pair.flush();
    let offered = pair.conn.children[0].clone();
    let mut accepted = proposal::esp_offer(&offered.proposals, 0x1234_5678, offered.esn, KeyExchange::Never);
    accepted.truncate(1);
    let choice = proposal::select_esp(&accepted, &offered.proposals, offered.esn, KeyExchange::Never, None);
    let answer = [
        Payload::Sa(choice.expect("our own").answer(0x1234_5678)),
        Payload::Nonce(vec![9; 32]),
        Payload::TsI(to_wire(ts_i)),
        Payload::TsR(to_wire(ts_r)),
        Payload::Notify(Notify::new(NotifyType::UseTransportMode, [])),
    ];
    let id = ids.borrow()[0];
    let exchange = ExchangeType::CreateChildSa;
    let datagrams = pair.gateway.endpoint.craft_answer(b, exchange, id, &answer).expect("the SA is there");
    let path = pair.client.endpoint.path(a).expect("the SA is there");
    for mut datagram in datagrams {
        pair.client.endpoint.handle_datagram(pair.now, path, &mut datagram).expect("it is taken");
    }
    pair.flush();
    pair.filter = None;
    let failed = pair.client.take(|e| match e {
        Event::ChildFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    failed.unwrap_or_else(|| "accepted".to_owned())
}

#[test]
fn an_answer_is_checked_by_the_addresses_that_we_see() {
    let range = |start, end| TsRange::addresses(ip(start), ip(end));
    let one = |address| range(address, address);
    let mut pair = between(true, false, 14);
    let sas = pair.up();
    assert_eq!(answered(&mut pair, sas, &[one(IPN1)], &[one(IP2)]), "accepted");
    let newest = pair.client.children.values().next_back().expect("two");
    assert_eq!((show(&newest.ts_local), show(&newest.ts_remote)), (IP1.to_owned(), IP2.to_owned()));
    assert_eq!(newest.original, Some(Original { local: ip(IPN1), remote: ip(IP2) }));
    for (ts_i, ts_r, why) in [
        (vec![range("203.0.113.0", "203.0.113.255")], one(IP2), "not one address on each side"),
        (vec![one(IPN1), one("203.0.113.6")], one(IP2), "not one address on each side"),
        // No NAT hides the gateway's address: this would be traffic of another host.
        (vec![one(IPN1)], one("198.51.100.2"), "the answer selects 198.51.100.2"),
        (vec![one(IPN1)], range("198.51.100.0", "198.51.100.255"), "the answer selects 198.51.100.0/24"),
    ] {
        let verdict = answered(&mut pair, sas, &ts_i, &[ts_r]);
        assert!(verdict.contains(why), "{verdict}");
    }
    assert_eq!(pair.client.children.len(), 2);
}
