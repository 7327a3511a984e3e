//! Address updates (RFC 4555): from network to network, from family to family, and what can go wrong.

mod common;

use std::net::IpAddr;
use std::time::Duration;

use common::{Nat, Pair, client_psk, gateway_psk, natt_path, path};
use dormouse_ike::EndpointConfig;
use dormouse_ike::config::SelectorSpec;
use dormouse_ike::{Event, Kind};
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::ike::{ExchangeType, Notify, NotifyType, Payload};

const HOUR: Duration = Duration::from_secs(3_600);
const ELSEWHERE: &str = "100.64.7.7:4500";
const GATEWAY_NATT: &str = "198.51.100.1:4500";

#[test]
fn the_client_moves_and_esp_does_not_wait() {
    let mut pair = Pair::psk_natively(1);
    let (a, b) = pair.up();
    pair.unreachable.push(common::addr(common::CLIENT).ip());
    let new = natt_path(ELSEWHERE, GATEWAY_NATT);
    assert!(pair.client.endpoint.set_path(pair.now, a, new));
    pair.flush();
    let child = pair.client.children.values().next().expect("one");
    assert_eq!(child.path, new, "remapped at once, encapsulated until NAT detection says otherwise");
    pair.settle();
    assert_eq!(pair.gateway.endpoint.path(b).expect("it is there").remote.to_string(), ELSEWHERE);
    for side in [&pair.client, &pair.gateway] {
        let path = side.children.values().next().expect("one").path;
        assert_eq!(path.carrier, Carrier::RawEsp, "no NAT here either");
    }
    let stats = pair.client.endpoint.sa_stats(a).expect("it is there");
    assert_eq!((stats.begun[&Kind::Mobike], stats.round_trips), (1, 4));
}

#[test]
fn into_and_out_of_a_network_with_a_nat() {
    let mut pair = Pair::psk_natively(2);
    let (a, b) = pair.up();
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    pair.client.endpoint.set_path(pair.now, a, natt_path("10.0.0.5:4500", GATEWAY_NATT));
    pair.settle();
    let seen = pair.gateway.endpoint.path(b).expect("it is there");
    assert_eq!(seen.remote.ip().to_string(), "203.0.113.5");
    assert_eq!(pair.gateway.children.values().next().expect("one").path, seen);
    assert_eq!(pair.client.children.values().next().expect("one").path.carrier, Carrier::NatT);
    pair.nat = None;
    pair.client.endpoint.set_path(pair.now, a, natt_path(ELSEWHERE, GATEWAY_NATT));
    pair.settle();
    for side in [&pair.client, &pair.gateway] {
        assert_eq!(side.children.values().next().expect("one").path.carrier, Carrier::RawEsp);
    }
}

#[test]
fn from_ipv4_to_ipv6_and_back() {
    let mut pair = Pair::psk_natively(3);
    let (a, b) = pair.up();
    pair.client.endpoint.set_path(pair.now, a, natt_path("[2001:db8::7]:4500", "[2001:db8:1::1]:4500"));
    pair.settle();
    let path = pair.gateway.children.values().next().expect("one").path;
    assert_eq!(path.remote.to_string(), "[2001:db8::7]:0");
    pair.client.endpoint.set_path(pair.now, a, natt_path(ELSEWHERE, GATEWAY_NATT));
    pair.settle();
    assert_eq!(pair.gateway.endpoint.path(b).expect("it is there").remote.to_string(), ELSEWHERE);
}

#[test]
fn two_moves_in_a_row_end_where_the_second_led() {
    let mut pair = Pair::psk(4);
    let (a, b) = pair.up();
    pair.client.endpoint.set_path(pair.now, a, natt_path("100.64.1.1:4500", GATEWAY_NATT));
    pair.flush();
    pair.unreachable.push("100.64.1.1".parse().expect("an address"));
    pair.client.endpoint.set_path(pair.now, a, natt_path(ELSEWHERE, GATEWAY_NATT));
    pair.settle();
    assert_eq!(pair.gateway.endpoint.path(b).expect("it is there").remote.to_string(), ELSEWHERE);
    assert_eq!(pair.client.children.values().next().expect("one").path.local.ip().to_string(), "100.64.7.7");
}

#[test]
fn requests_under_way_are_repeated_from_the_new_address() {
    let mut pair = Pair::psk(5);
    let (a, _) = pair.up();
    pair.filter = Some(Box::new(|_| false));
    let child = *pair.client.children.keys().next().expect("one");
    pair.client.endpoint.rekey_child(pair.now, child);
    pair.flush();
    pair.filter = None;
    pair.client.endpoint.set_path(pair.now, a, natt_path(ELSEWHERE, GATEWAY_NATT));
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.client.children.len(), 1);
    pair.assert_agree();
    assert!(!pair.client.children.contains_key(&child), "rekeyed without waiting for a retransmission timer");
}

#[test]
fn a_gateway_that_wants_proof_moves_esp_when_the_client_has_answered_from_there() {
    let mut gateway = gateway_psk();
    gateway.mobility.return_routability = true;
    let mut pair = Pair::new(client_psk(), gateway, 6);
    let (a, b) = pair.up();
    let before = pair.gateway.children.values().next().expect("one").path;
    // The gateway's own request is lost: ESP stays where it was, although the update has been answered.
    let mut gateway_packets = 0;
    pair.filter = Some(Box::new(move |d| {
        gateway_packets += usize::from(!d.to_gateway);
        d.to_gateway || gateway_packets == 1
    }));
    pair.client.endpoint.set_path(pair.now, a, natt_path(ELSEWHERE, GATEWAY_NATT));
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.gateway.children.values().next().expect("one").path, before);
    pair.filter = None;
    pair.run_for(Duration::from_secs(2));
    let after = pair.gateway.children.values().next().expect("one").path;
    assert_eq!(after.remote.ip().to_string(), "100.64.7.7");
    assert_eq!(pair.gateway.endpoint.sa_stats(b).expect("it is there").begun[&Kind::Mobike], 1);
}

/// Drops the gateway's own requests: what it answers goes through.
fn without_requests_of_the_gateway() -> common::Filter {
    Box::new(|d| d.to_gateway || d.bytes.get(4 + 19).is_none_or(|flags| flags & 0x20 != 0))
}

#[test]
fn a_rekeying_does_not_move_esp_to_an_address_without_proof() {
    let mut gateway = gateway_psk();
    gateway.mobility.return_routability = true;
    let mut pair = Pair::new(client_psk(), gateway, 15);
    let (a, b) = pair.up();
    let before = pair.gateway.children.values().next().expect("one").path;
    pair.filter = Some(without_requests_of_the_gateway());
    pair.client.endpoint.set_path(pair.now, a, natt_path(ELSEWHERE, GATEWAY_NATT));
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.gateway.endpoint.path(b).expect("it is there").remote.to_string(), ELSEWHERE);
    for rekeys_ike in [false, true, false] {
        let child = *pair.client.children.keys().next().expect("one");
        match rekeys_ike {
            true => pair.client.endpoint.rekey_ike(pair.now, a),
            false => pair.client.endpoint.rekey_child(pair.now, child),
        };
        pair.run_for(Duration::from_millis(200));
        assert_ne!(pair.client.children.contains_key(&child), !rekeys_ike, "it was rekeyed");
        for child in pair.gateway.children.values() {
            assert_eq!(child.path, before, "the client has proved nothing yet");
        }
    }
    pair.filter = None;
    pair.run_for(Duration::from_secs(2));
    for child in pair.gateway.children.values() {
        assert_eq!(child.path.remote.ip().to_string(), "100.64.7.7", "proved under the new keys");
    }
}

#[test]
fn a_check_that_was_sent_to_two_places_proves_neither() {
    let mut gateway = gateway_psk();
    gateway.mobility.return_routability = true;
    let mut pair = Pair::new(client_psk(), gateway, 16);
    let (a, b) = pair.up();
    let before = pair.gateway.children.values().next().expect("one").path;
    pair.filter = Some(without_requests_of_the_gateway());
    for place in ["100.64.1.1:4500", ELSEWHERE] {
        pair.client.endpoint.set_path(pair.now, a, natt_path(place, GATEWAY_NATT));
        pair.run_for(Duration::from_millis(100));
    }
    let checks = |pair: &Pair| pair.gateway.endpoint.sa_stats(b).expect("it is there").begun[&Kind::Mobike];
    assert_eq!((pair.gateway.children.values().next().expect("one").path, checks(&pair)), (before, 1));
    pair.filter = None;
    pair.run_for(Duration::from_secs(2));
    let after = pair.gateway.children.values().next().expect("one").path;
    assert_eq!((after.remote.ip().to_string().as_str(), checks(&pair)), ("100.64.7.7", 2));
}

#[test]
fn where_nats_are_forbidden_a_translated_update_is_refused() {
    let mut client = client_psk();
    client.mobility.no_nats_allowed = true;
    let mut pair = Pair::new(client, gateway_psk(), 7);
    let (a, b) = pair.up();
    let before = pair.gateway.endpoint.path(b);
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    pair.client.endpoint.set_path(pair.now, a, natt_path("10.0.0.5:4500", GATEWAY_NATT));
    pair.settle();
    let why = pair.client.take(|e| match e {
        Event::UpdateRefused { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(why, Some("UNEXPECTED_NAT_DETECTED"));
    assert_eq!(pair.gateway.endpoint.path(b), before);
}

#[test]
fn additional_addresses_are_told_and_taken_back() {
    let mut pair = Pair::psk(8);
    pair.up();
    let list = ["192.0.2.77".parse().expect("an address"), "2001:db8::77".parse().expect("an address")];
    for told in [&list[..], &[]] {
        pair.gateway.endpoint.set_own_addresses(pair.now, told);
        pair.settle();
        let heard = pair.client.take(|e| match e {
            Event::PeerAddresses { addresses, .. } => Some(addresses.clone()),
            _ => None,
        });
        assert_eq!(heard.as_deref(), Some(told));
    }
}

#[test]
fn an_older_list_of_addresses_does_not_replace_a_newer_one() {
    let mut gateway = common::gateway_config(gateway_psk(), 11);
    gateway.window = 3;
    let mut pair = Pair::with_configs(client_psk(), EndpointConfig::default(), gateway, 11);
    let (a, _) = pair.up();
    let told = |last: u8| {
        let address = Notify::new(NotifyType::AdditionalIp4Address, [192, 0, 2, last]);
        [Payload::Notify(address)]
    };
    let mut requests = [1, 2].map(|n| {
        let request = pair.client.endpoint.craft_request(a, ExchangeType::Informational, &told(n));
        request.expect("the SA is there").remove(0)
    });
    requests.reverse();
    let path = pair.client.endpoint.path(a).expect("it is there");
    let seen = Path { local: path.remote, remote: path.local, carrier: path.carrier };
    for mut request in requests {
        pair.gateway.endpoint.handle_datagram(pair.now, seen, &mut request).expect("both are in the window");
    }
    pair.flush();
    assert_eq!(heard(&mut pair.gateway), [vec![IpAddr::from([192, 0, 2, 2])]]);
}

/// The lists of addresses that this end took.
fn heard(side: &mut common::Side) -> Vec<Vec<IpAddr>> {
    let take = |e: &Event| match e {
        Event::PeerAddresses { addresses, .. } => Some(addresses.clone()),
        _ => None,
    };
    std::iter::from_fn(|| side.take(take)).collect()
}

#[test]
fn a_list_of_addresses_that_was_sent_from_two_places_is_told_again() {
    let mut pair = Pair::psk(12);
    let (a, _) = pair.up();
    let list: Vec<IpAddr> = vec!["192.0.2.77".parse().expect("an address")];
    pair.filter = Some(Box::new(|datagram| !datagram.to_gateway));
    pair.gateway.endpoint.set_own_addresses(pair.now, &list);
    pair.run_for(Duration::from_millis(100));
    pair.client.endpoint.set_path(pair.now, a, natt_path("100.64.7.7:4500", GATEWAY_NATT));
    pair.filter = None;
    pair.settle();
    assert_eq!(heard(&mut pair.client), [list.clone(), list]);
}

#[test]
fn what_is_protected_stays_so_when_it_is_rekeyed_at_another_address() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    for conn in [&mut client, &mut gateway] {
        common::site_to_site(conn, "10.1.0.0/16", "10.2.0.0/16");
        conn.children[0].ts_local = vec![SelectorSpec::Dynamic];
        conn.children[0].ts_remote = vec![SelectorSpec::Dynamic];
    }
    let mut pair = Pair::new(client, gateway, 13);
    let (a, _) = pair.up();
    pair.client.endpoint.set_path(pair.now, a, natt_path("100.64.7.7:4500", GATEWAY_NATT));
    pair.settle();
    let child = *pair.client.children.keys().next().expect("one");
    let before = pair.client.children[&child].ts_local.clone();
    for by_client in [true, false] {
        let side = if by_client { &mut pair.client } else { &mut pair.gateway };
        let child = *side.children.keys().next().expect("one");
        side.endpoint.rekey_child(pair.now, child);
        pair.settle();
        pair.assert_agree();
        assert!(!pair.client.children.contains_key(&child) || !by_client, "it was rekeyed");
        let now = pair.client.children.values().next().expect("one");
        assert_eq!(now.ts_local, before);
    }
    assert!(!pair.client.children.contains_key(&child));
}

#[test]
fn without_mobike_an_old_copy_of_a_request_moves_nothing() {
    let mut client = client_psk();
    client.mobility.mobike = false;
    let mut pair = Pair::new(client, gateway_psk(), 14);
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    let (a, b) = pair.up();
    pair.client.endpoint.probe(pair.now, a, HOUR);
    pair.settle();
    let before = pair.gateway.endpoint.path(b).expect("it is there");
    let mut copy = pair.log.iter().rfind(|d| d.to_gateway).expect("the probe").clone();
    copy.from = common::addr("203.0.113.66:4500");
    pair.deliver(copy.clone());
    assert_eq!(pair.gateway.endpoint.path(b), Some(before));
    let answer = pair.log.last().expect("an answer");
    assert!(!answer.to_gateway && answer.to == copy.from, "to where it came from, all the same");
}

#[test]
fn without_mobike_a_nat_mapping_is_followed_by_any_authentic_message() {
    let mut client = client_psk();
    client.mobility.mobike = false;
    let mut pair = Pair::new(client, gateway_psk(), 9);
    pair.nat = Some(Nat::new("203.0.113.5", HOUR));
    let (a, b) = pair.up();
    pair.nat.as_mut().expect("there is one").reboot();
    let before = pair.gateway.endpoint.path(b).expect("it is there");
    let here = pair.client.endpoint.path(a).expect("it is there");
    pair.client.endpoint.set_path(pair.now, a, here);
    pair.settle();
    assert_ne!(pair.gateway.endpoint.path(b).expect("it is there").remote, before.remote);
}

#[test]
fn a_handshake_goes_on_from_a_new_address() {
    let mut pair = Pair::psk(10);
    let sa = pair.connect();
    pair.unreachable.push(common::addr(common::CLIENT).ip());
    pair.run_for(Duration::from_millis(5));
    pair.wire.clear();
    pair.client.endpoint.set_path(pair.now, sa, path("100.64.7.7:500", common::GATEWAY));
    pair.settle();
    assert!(pair.client.established().is_some());
    pair.assert_agree();
    // It is another request: an answer to the first must not be taken for one to the second.
    let spis: Vec<_> = pair.log.iter().filter(|d| d.to_gateway).map(|d| d.bytes[..8].to_vec()).collect();
    assert_ne!(spis[0], spis[1]);
}

#[test]
fn a_gateway_with_several_addresses_says_so_when_the_session_begins() {
    let mut gateway = gateway_psk();
    let others = ["198.51.100.7", "2001:db8:1::7"].map(|a| a.parse().expect("an address"));
    gateway.mobility.additional_addresses =
        [common::addr(common::GATEWAY).ip()].into_iter().chain(others).collect();
    let mut pair = Pair::new(client_psk(), gateway, 11);
    let (a, b) = pair.up();
    let heard = pair.client.take(|e| match e {
        Event::PeerAddresses { addresses, .. } => Some(addresses.clone()),
        _ => None,
    });
    assert_eq!(heard.as_deref(), Some(&others[..]), "but the one in use");
    pair.client.endpoint.set_path(pair.now, a, natt_path("192.0.2.1:4500", "198.51.100.7:4500"));
    pair.settle();
    let path = pair.gateway.endpoint.path(b).expect("it is there");
    assert_eq!(path.local.to_string(), "198.51.100.7:4500", "and the client may come there");
}

#[test]
fn a_gateway_that_listens_everywhere_tells_its_addresses_as_they_change() {
    let mut pair = Pair::psk(17);
    let gateway = common::addr(common::GATEWAY).ip();
    let [one, other]: [IpAddr; 2] = ["198.51.100.7", "2001:db8:1::7"].map(|a| a.parse().expect("an address"));
    pair.gateway.endpoint.set_own_addresses(pair.now, &[gateway, one]);
    let (_, b) = pair.up();
    let told = |pair: &mut Pair| {
        let take = |e: &Event| match e {
            Event::PeerAddresses { addresses, .. } => Some(addresses.clone()),
            _ => None,
        };
        pair.settle();
        std::iter::from_fn(|| pair.client.take(take)).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut pair), [[one]], "in IKE_AUTH, but the one in use");
    for (addresses, news) in [
        (vec![gateway, one], vec![]),
        (vec![other, gateway], vec![vec![other]]),
        (vec![gateway, other], vec![]),
        (vec![gateway], vec![vec![]]),
    ] {
        pair.gateway.endpoint.set_own_addresses(pair.now, &addresses);
        assert_eq!(told(&mut pair), news, "{addresses:?}");
    }
    let begun = &pair.gateway.endpoint.sa_stats(b).expect("it is there").begun;
    assert_eq!(begun[&Kind::Mobike], 2, "nothing is said that the client knows");
}
