//! Routers that lie or are seized, neighbours that ask for what is not theirs, and a configuration that takes keys back (docs/wire/mlike.md).

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::field::{Field, GATEWAY, ROUTERS, link, name, zones};
use common::{Pair, client_psk, gateway_psk, zones_of};
use dormouse_ike::admission::Denial;
use dormouse_ike::config::{EspProposal, IdentityPattern, RouterPolicy, ZonePolicy};
use dormouse_ike::{Event, Holding, Kind};
use dormouse_keying::{HeaderNews, SaId};
use dormouse_wire::ike::mlike::Excerpt;

const R1: usize = ROUTERS[0];
const R2: usize = ROUTERS[1];
const R3: usize = ROUTERS[2];

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A device behind R1, which alone has its keys, and links between R2 and both R1 and the gateway.
fn handoff(seed: u64) -> Field {
    let mut field = Field::zoned(seed, false, false);
    let (_, session) = field.up();
    assert!(field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R1)));
    field.link_up(R2, R1);
    field.link_up(R2, GATEWAY);
    field.run_for(seconds(20));
    assert_eq!(field.readers(), [R1]);
    field
}

/// The SA of this machine with that one.
fn sa_between(field: &Field, of: usize, with: usize) -> SaId {
    let mut established = field.sides[of].events.iter().filter_map(|event| match event {
        Event::Established(established) if established.peer == name(with) => Some(established.sa),
        _ => None,
    });
    established.next_back().expect("an IKE SA")
}

fn router(gateways: &[usize], neighbours: &[usize]) -> Option<RouterPolicy> {
    let gateways = gateways.iter().map(|gateway| IdentityPattern::Exact(name(*gateway))).collect();
    let neighbours = neighbours.iter().map(|router| name(*router)).collect();
    Some(RouterPolicy { gateways, neighbours, ..RouterPolicy::default() })
}

// ---- keys that move ----

#[test]
fn a_taker_that_keeps_silent_reads_no_longer_than_one_that_tells() {
    let mut field = handoff(1);
    let first = Field::grant_of(field.current());
    // What R2 has to tell is never heard.
    field.filter = Some(Box::new(|from, to| !(from == R2 && to == GATEWAY)));
    assert!(field.fetch_first(R2, R1));
    field.run_for(Duration::from_millis(30));
    assert!(field.headers[R2].contains_key(&first), "it has them");
    assert_eq!(field.holding(R2), Some(Holding::Held), "and the gateway knows");
    field.run_for(seconds(20));
    let second = Field::grant_of(field.current());
    assert_ne!(first, second);
    assert!(!field.headers[R2].contains_key(&second));
    field.assert_numbers_differ();
}

#[test]
fn a_router_without_its_gateway_gives_nothing_on() {
    let mut field = handoff(2);
    let id = Field::grant_of(field.current());
    let sa = sa_between(&field, R1, GATEWAY);
    field.sides[R1].endpoint.forget(field.now, sa);
    assert!(field.fetch_first(R2, R1));
    field.run_for(Duration::from_millis(30));
    assert!(field.headers[R1].contains_key(&id) && !field.headers[R2].contains_key(&id));
}

#[test]
fn a_neighbour_that_guesses_is_not_answered_for_ever() {
    let mut right = 0;
    for guesses in 200..205 {
        let mut field = handoff(3);
        let id = Field::grant_of(field.current());
        for spi in 0..guesses {
            field.fetch(R2, R1, &(5_000_u32 + spi).to_be_bytes());
            field.run_for(Duration::from_millis(20));
        }
        let answered = field.sides[R1].endpoint.stats().answered[&Kind::Keys];
        assert!(answered >= u64::from(guesses), "each was heard: {answered}");
        let at_gateway = field.sides[GATEWAY].endpoint.stats().answered[&Kind::Keys];
        assert!(
            at_gateway < u64::from(guesses),
            "of what was too often, the gateway heard nothing: {at_gateway}"
        );
        // Were the next guess right, it would be in vain most of the time.
        field.fetch_first(R2, R1);
        field.run_for(Duration::from_millis(15));
        right += usize::from(!field.headers[R1].contains_key(&id));
    }
    assert!(right <= 2, "{right} of 5");
}

#[test]
fn a_router_gives_keys_to_its_neighbours_alone() {
    let mut field = Field::zoned(4, true, true);
    field.up();
    field.link_up(R3, R1);
    field.run_for(seconds(2));
    let id = Field::grant_of(field.current());
    // R3 takes R1 for its neighbour, and asks; R1 keeps what it has.
    field.sides[R3].endpoint.set_router(router(&[GATEWAY], &[R1]));
    let answered = |field: &Field| field.sides[R1].endpoint.stats().answered.get(&Kind::Keys).copied();
    let before = answered(&field);
    assert!(field.fetch_first(R3, R1));
    field.run_for(seconds(2));
    assert_ne!(answered(&field), before, "R1 was asked");
    assert_eq!(field.readers(), [R1, R2]);
    // With R3 among its neighbours it would have given them.
    field.sides[R1].endpoint.set_router(router(&[GATEWAY], &[R2, R3]));
    assert!(field.fetch_first(R3, R1));
    field.run_for(Duration::from_millis(30));
    assert!(field.headers[R3].contains_key(&id) && !field.headers[R1].contains_key(&id));
}

#[test]
fn a_router_takes_keys_from_its_gateways_alone() {
    let mut field = Field::zoned(5, true, true);
    // R1 has another gateway, and this one distributes all the same.
    field.sides[R1].endpoint.set_router(router(&[R3], &[R2]));
    field.up();
    assert_eq!(field.readers(), [R2]);
    assert_eq!(field.holding(R1), Some(Holding::Refused));
    assert!(field.given.iter().all(|(router, _)| *router != R1));
}

/// Its data plane has no room for them, say.
#[test]
fn a_router_that_cannot_use_its_keys_forgets_them_and_the_gateway_hears_of_it() {
    let mut field = handoff(13);
    let id = Field::grant_of(field.current());
    assert_eq!((field.holding(R1), field.sides[R1].endpoint.header_keys()), (Some(Holding::Held), 1));
    assert!(field.sides[R1].endpoint.header_news(field.now, HeaderNews::Unusable(id)));
    assert_eq!(field.sides[R1].endpoint.header_keys(), 0);
    field.run_for(seconds(2));
    assert_eq!(field.holding(R1), Some(Holding::Refused));
    // Nor can it pass them on.
    field.fetch_first(R2, R1);
    field.run_for(Duration::from_millis(30));
    assert!(!field.headers[R2].contains_key(&id));
}

// ---- keys that are taken back ----

#[test]
fn a_reload_takes_keys_from_routers_that_it_no_longer_names() {
    let mut field = Field::zoned(6, true, true);
    field.up();
    field.run_for(seconds(20));
    assert_eq!(field.readers(), [R1, R2]);
    let first = Field::grant_of(field.current());
    field.reconfigure(zones(true, true));
    field.run_for(seconds(20));
    assert_eq!((Field::grant_of(field.current()), field.readers()), (first, vec![R1, R2]), "nothing new");
    let mut less = zones(true, true);
    less.routers.retain(|rule| rule.id != name(R2));
    field.reconfigure(less);
    field.run_for(seconds(2));
    assert!(!field.headers[R2].contains_key(&first), "it is to forget them");
    field.run_for(seconds(20));
    assert_ne!(Field::grant_of(field.current()), first, "and if it does not, it reads no more");
    assert_eq!(field.readers(), [R1]);
    field.reconfigure(zones(true, true));
    field.run_for(seconds(2));
    assert_eq!(field.readers(), [R1, R2], "named again");
    field.assert_numbers_differ();
}

#[test]
fn a_router_that_is_denied_reads_nothing_any_more() {
    let mut field = Field::zoned(7, true, true);
    field.up();
    field.run_for(seconds(20));
    let first = Field::grant_of(field.current());
    field.sides[GATEWAY].endpoint.deny(field.now, Denial::Name(name(R1)));
    field.run_for(seconds(20));
    let second = Field::grant_of(field.current());
    assert_ne!(second, first, "it may have kept what it had");
    assert_eq!(field.readers(), [R2]);
    // Whichever end begins.
    field.link_up(GATEWAY, R1);
    field.link_up(R1, GATEWAY);
    field.run_for(seconds(5));
    let gateway = field.path(R1, GATEWAY).remote.ip();
    field.sides[R1].endpoint.ask_for_keys(field.now, gateway, second.from_device);
    field.run_for(seconds(5));
    assert_eq!(field.readers(), [R2]);
    assert!(field.sides[GATEWAY].endpoint.allow(&Denial::Name(name(R1))));
    field.link_up(R1, GATEWAY);
    field.run_for(seconds(60));
    assert!(field.readers().contains(&R1), "allowed again");
}

// ---- what others can make an end do ----

#[test]
fn so_many_requests_for_keys_wait_and_no_more() {
    let mut field = handoff(8);
    let gateway = field.path(R2, GATEWAY).remote.ip();
    let now = field.now;
    let endpoint = &mut field.sides[R2].endpoint;
    let waiting = (0..10_000).filter(|n| endpoint.ask_for_keys(now, gateway, 5_000 + n)).count();
    assert!((64..128).contains(&waiting), "{waiting}");
    let seen = |n: &u32| Excerpt::of(&(5_000 + n).to_be_bytes()).expect("an SPI");
    let elsewhere =
        (0..10_000).filter(|n| endpoint.fetch_keys(now, &name(R1), gateway, seen(n), false)).count();
    assert!((64..128).contains(&elsewhere), "{elsewhere}");
    field.run_for(seconds(30));
    assert!(field.sides[R2].endpoint.ask_for_keys(field.now, gateway, 5_000), "in the end there is room");
}

#[test]
fn a_link_of_keys_refuses_a_child_and_lives() {
    let mut field = handoff(9);
    let sa = sa_between(&field, R2, GATEWAY);
    // At R2 the connection has come to have one.
    let mut conn = link(R2, GATEWAY);
    conn.children = client_psk().children;
    field.sides[R2].endpoint.reconfigure(field.now, Vec::new(), &[Arc::new(conn)]);
    field.sides[R2].endpoint.create_child(field.now, sa, 0);
    field.run_for(seconds(2));
    let failed = field.sides[R2].take(|e| matches!(e, Event::ChildFailed { .. }).then_some(()));
    assert!(failed.is_some() && field.sides[R2].closed.is_empty() && field.sides[GATEWAY].closed.is_empty());
    assert!(field.sides[R2].endpoint.path(sa).is_some());
}

/// A datagram is decrypted where it lies.
#[test]
fn what_came_on_a_link_is_overwritten_also_if_it_was_the_last() {
    let mut field = handoff(10);
    let sa = sa_between(&field, R2, GATEWAY);
    field.sides[R2].endpoint.close(field.now, sa);
    field.flush();
    let (key, (from, to, carrier, mut bytes)) = field.wire.pop_last().expect("a Delete");
    assert_eq!(to.ip(), field.path(R2, GATEWAY).remote.ip());
    let path = dormouse_sansio::Path { local: to, remote: from, carrier };
    if carrier == dormouse_sansio::Carrier::NatT {
        bytes.drain(..4);
    }
    assert!(field.sides[GATEWAY].endpoint.handle_datagram(key.0, path, &mut bytes).is_ok());
    field.flush();
    assert!(!field.sides[GATEWAY].closed.is_empty(), "it ended the SA");
    assert!(bytes.iter().all(|byte| *byte == 0));
}

/// A list of ciphers may begin with one that seals no zones.
#[test]
fn ciphers_that_seal_no_zones_are_passed_over_where_zones_are_required() {
    for (device, gateway) in [(true, false), (false, true), (true, true)] {
        let (mut client, mut answering) = (client_psk(), gateway_psk());
        for (conn, required) in [(&mut client, device), (&mut answering, gateway)] {
            let texts = ["aes128-sha256", "aes256gcm16"];
            conn.children[0].proposals =
                texts.map(|text| text.parse::<EspProposal>().expect("a proposal")).to_vec();
            conn.children[0].zones = Some(ZonePolicy { required, ..ZonePolicy::default() });
        }
        let mut pair = Pair::new(client, answering, 11);
        let (_, session) = pair.up();
        let child = pair.client.children.values().next().expect("one");
        assert!(zones_of(child, false).is_some(), "required by the device {device}, the gateway {gateway}");
        // And again when it is rekeyed, by either.
        let own = *pair.gateway.children.keys().next().expect("one");
        assert!(pair.gateway.endpoint.rekey_child(pair.now, own), "{session:?}");
        pair.settle();
        let child = pair.client.children.values().next().expect("one");
        assert!(zones_of(child, false).is_some());
    }
}

/// A neighbour that lies about where a device is needs a packet of it that the right router has not seen.
#[test]
fn a_seized_neighbour_gets_keys_by_a_packet_that_it_kept_from_the_right_router() {
    let mut field = handoff(12);
    let first = Field::grant_of(field.current());
    let [passed, kept] = [1, 2].map(|number| field.packet(false, number));
    field.pass(R1, &passed);
    field.fetch(R2, R1, &passed);
    field.run_for(seconds(20));
    assert_eq!((Field::grant_of(field.current()), field.readers()), (first, vec![R1]));
    field.fetch(R2, R1, &kept);
    field.run_for(seconds(20));
    assert_ne!(Field::grant_of(field.current()), first);
    assert_eq!(field.readers(), [R2], "it has said that the device is there, and no address tells");
}

/// Packets that were recorded where the device is come to another router, as if it had moved there.
#[test]
fn what_is_recorded_and_sent_again_elsewhere_moves_no_keys_and_asks_no_gateway() {
    let mut field = handoff(13);
    let first = Field::grant_of(field.current());
    for of_device in [true, false] {
        let recorded: Vec<_> = (1..=3).map(|number| field.packet(of_device, number)).collect();
        recorded.iter().for_each(|packet| field.pass(R1, packet));
        let asked = |field: &Field| field.sides[GATEWAY].endpoint.stats().answered.get(&Kind::Keys).copied();
        let before = asked(&field);
        let mut forged = field.packet(of_device, 4);
        forged[30] ^= 1;
        for packet in recorded.iter().chain([&forged]) {
            assert!(field.fetch(R2, R1, packet));
            field.run_for(seconds(2));
        }
        assert_eq!(asked(&field), before, "the gateway would have believed it");
        assert_eq!((Field::grant_of(field.current()), field.readers()), (first, vec![R1]));
    }
}

/// A router that gives none, because it is seized or was shown a forged number, keeps no keys of a device that has registered elsewhere.
#[test]
fn of_a_registered_device_the_gateway_is_asked_where_the_router_before_refuses() {
    let mut field = handoff(16);
    let passed = field.packet(true, 1);
    field.pass(R1, &passed);
    assert!(field.fetch(R2, R1, &passed));
    field.run_for(seconds(20));
    assert_eq!(field.readers(), [R1], "who asks to be registered may repeat what the device has said");
    assert!(field.fetch_registered(R2, R1, &passed));
    field.run_for(seconds(20));
    assert_eq!(field.readers(), [R2]);
    field.assert_numbers_differ();
}

#[test]
fn packets_of_both_directions_bring_the_same_keys_once() {
    let mut field = handoff(15);
    let first = Field::grant_of(field.current());
    for of_device in [true, false] {
        let packet = field.packet(of_device, 1);
        assert!(field.fetch(R2, R1, &packet));
    }
    field.run_for(seconds(2));
    let given = field.given.iter().filter(|(router, grant)| *router == R2 && grant.id() == first);
    assert_eq!(given.count(), 1);
}

/// Who keeps one packet from the right router moves the keys, until that one has seen the next.
#[test]
fn the_right_router_gets_its_keys_back_by_the_next_packet() {
    let mut field = handoff(14);
    let first = Field::grant_of(field.current());
    let [passed, kept, next] = [1, 2, 3].map(|number| field.packet(true, number));
    field.pass(R1, &passed);
    // The gateway, which would make new keys, hears of it later.
    field.filter = Some(Box::new(|_, to| to != GATEWAY));
    assert!(field.fetch(R2, R1, &kept));
    field.run_for(Duration::from_millis(30));
    assert!(field.headers[R2].contains_key(&first) && !field.headers[R1].contains_key(&first));
    // Neither what has passed at R1, nor what has moved the keys, moves them again.
    for packet in [&passed, &kept] {
        assert!(field.fetch(R1, R2, packet));
        field.run_for(Duration::from_millis(30));
        assert!(field.headers[R2].contains_key(&first));
    }
    assert!(field.fetch(R1, R2, &next));
    field.run_for(Duration::from_millis(30));
    assert!(field.headers[R1].contains_key(&first) && !field.headers[R2].contains_key(&first));
    field.filter = None;
    field.run_for(seconds(60));
    assert_eq!(field.readers(), [R1]);
    field.assert_numbers_differ();
}
