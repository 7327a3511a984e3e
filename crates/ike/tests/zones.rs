//! CHILD SAs with zones, and the keys of their first zone at access routers (docs/wire/mlike.md): device, gateway and routers, all real
//! endpoints.

mod common;

use std::time::Duration;

use common::field::{DEVICE, Field, GATEWAY, ROUTERS, behind, device_conn, link, name, zones};
use common::{Pair, client_psk, gateway_psk, zones_of};
use dormouse_ike::config::{Childless, Connection, EspProposal, IdentityPattern, Lifetime, Role, ZonePolicy};
use dormouse_ike::{Event, Holding, NegotiationError};
use dormouse_keying::{HeaderNews, Protection, ZoneEnd, ZoneMap};

const R1: usize = ROUTERS[0];
const R2: usize = ROUTERS[1];
const R3: usize = ROUTERS[2];

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn pair(device: Option<ZonePolicy>, gateway: Option<ZonePolicy>) -> Pair {
    let mut answering = gateway_psk();
    answering.children[0].zones = gateway;
    Pair::new(device_conn(device), answering, 1)
}

fn zoned() -> Option<ZonePolicy> {
    Some(ZonePolicy::default())
}

fn preferred() -> Option<ZonePolicy> {
    Some(ZonePolicy { required: false, ..ZonePolicy::default() })
}

// ---- the two ends ----

#[test]
fn both_ends_have_the_same_keys_for_each_zone_and_no_two_are_alike() {
    for first in [ZoneEnd::TransportHeader, ZoneEnd::At(0)] {
        same_keys(ZoneMap::new(vec![first, ZoneEnd::At(100)]).expect("a map"));
    }
}

fn same_keys(map: ZoneMap) {
    let policy = Some(ZonePolicy { map: map.clone(), ..ZonePolicy::default() });
    let mut pair = pair(policy.clone(), policy);
    pair.up();
    let child = pair.client.children.values().next().expect("one");
    let (agreed, further) = zones_of(child, false).expect("zones");
    assert_eq!((agreed, further.len()), (map, 2));
    let mut keys = vec![&child.keymat_in, &child.keymat_out];
    keys.extend(further.iter().flat_map(|(a, b)| [a, b]));
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(key.len(), child.encr.key_len() + child.encr.salt_len());
        assert!(keys.iter().skip(at + 1).all(|other| other != key), "{at}");
    }
}

#[test]
fn a_rekeying_keeps_the_zones_and_changes_every_key() {
    let mut pair = pair(zoned(), zoned());
    pair.up();
    let all = |pair: &Pair| {
        let child = pair.client.children.values().next().expect("one");
        let further = zones_of(child, false).expect("zones").1;
        let mut keys = vec![child.keymat_in.clone(), child.keymat_out.clone()];
        keys.extend(further.into_iter().flat_map(|(a, b)| [a, b]));
        (child.child, keys)
    };
    for by_client in [true, false] {
        let (child, before) = all(&pair);
        let side = if by_client { &mut pair.client } else { &mut pair.gateway };
        let own = *side.children.keys().next().expect("one");
        assert!(side.endpoint.rekey_child(pair.now, own));
        pair.settle();
        pair.assert_agree();
        let (now, after) = all(&pair);
        assert!(now != child && after.iter().all(|key| !before.contains(key)));
    }
}

#[test]
fn without_agreement_there_is_no_child_where_zones_are_required_and_a_whole_one_where_not() {
    let other =
        ZonePolicy { map: ZoneMap::new(vec![ZoneEnd::At(40)]).expect("a map"), ..ZonePolicy::default() };
    let others = Some(ZonePolicy { required: false, ..other.clone() });
    for (device, gateway, whole) in [
        (zoned(), None, false),
        (None, zoned(), false),
        (zoned(), Some(other), false),
        (zoned(), others.clone(), false),
        (preferred(), None, true),
        (None, preferred(), true),
        (preferred(), others, true),
    ] {
        let case = format!("{device:?} with {gateway:?}");
        let mut pair = pair(device, gateway);
        pair.connect();
        pair.run_for(seconds(10));
        let protections: Vec<_> = pair
            .client
            .children
            .values()
            .chain(pair.gateway.children.values())
            .map(|c| &c.protection)
            .collect();
        if whole {
            assert!(matches!(protections[..], [Protection::Whole, Protection::Whole]), "{case}");
        } else {
            assert!(protections.is_empty(), "{case}");
            let error = pair.client.failure().expect("refused");
            let told =
                matches!(error, NegotiationError::Zones(_) | NegotiationError::ProposalsRefused { .. });
            assert!(told, "{case}: {error}");
        }
    }
}

#[test]
fn both_ends_that_prefer_zones_get_them() {
    let mut pair = pair(preferred(), zoned());
    pair.up();
    assert!(zones_of(pair.client.children.values().next().expect("one"), false).is_some());
}

/// Zones need an AEAD: with another cipher there are none, and no SA where they are required.
#[test]
fn a_cipher_without_authentication_of_its_own_seals_no_zones() {
    for required in [true, false] {
        let policy = Some(ZonePolicy { required, ..ZonePolicy::default() });
        let (mut client, mut gateway) = (client_psk(), gateway_psk());
        for conn in [&mut client, &mut gateway] {
            conn.children[0].proposals = vec!["aes128-sha256".parse::<EspProposal>().expect("a proposal")];
            conn.children[0].zones = policy.clone();
        }
        let mut pair = Pair::new(client, gateway, 2);
        pair.connect();
        pair.run_for(seconds(10));
        assert_eq!(pair.client.children.len(), usize::from(!required));
        assert!(pair.client.children.values().all(|c| matches!(c.protection, Protection::Whole)));
    }
}

/// The second child is negotiated in CREATE_CHILD_SA, where ZONE_MAP is a payload of its own.
#[test]
fn a_further_child_has_zones_of_its_own() {
    let (mut client, mut gateway) = (client_psk(), gateway_psk());
    for (conn, own) in [(&mut client, true), (&mut gateway, false)] {
        let mut second = conn.children[0].clone();
        second.name = "second".to_owned();
        second.zones = zoned();
        let narrow = vec![dormouse_ike::config::SelectorSpec::Net("10.77.0.0/16".parse().expect("a prefix"))];
        *(if own { &mut second.ts_remote } else { &mut second.ts_local }) = narrow;
        conn.children.push(second);
    }
    let mut pair = Pair::new(client.clone(), gateway.clone(), 3);
    pair.up();
    let zoned_ones =
        |pair: &Pair| pair.client.children.values().filter(|c| zones_of(c, false).is_some()).count();
    assert_eq!((pair.client.children.len(), zoned_ones(&pair)), (2, 1));
    pair.assert_agree();
    // A gateway that knows no zones: the first child stands, and the second is not made without them.
    gateway.children[1].zones = None;
    let mut pair = Pair::new(client, gateway, 4);
    pair.up();
    assert_eq!((pair.client.children.len(), zoned_ones(&pair)), (1, 0));
    assert_eq!(pair.gateway.children.len(), 1);
    let refused = pair.client.take(|e| matches!(e, Event::ChildFailed { .. }).then_some(()));
    assert!(refused.is_some());
}

/// A session with zones comes back by its ticket, in two round trips: the ticket holds no zones.
#[test]
fn a_session_with_zones_is_resumed() {
    let mut pair = pair(zoned(), zoned());
    let (a, _) = pair.up();
    let ticket = pair.client.ticket.take().expect("a ticket");
    assert!(ticket.child.is_none());
    pair.client.endpoint.forget(pair.now, a);
    let (conn, path) = (pair.conn.clone(), pair.default_path());
    pair.client.endpoint.resume(pair.now, conn, ticket, path);
    pair.run_for(seconds(5));
    assert!(pair.client.established().is_some_and(|e| e.resumed));
    pair.assert_agree();
    assert!(zones_of(pair.client.children.values().next().expect("one"), false).is_some());
}

// ---- keys at routers ----

#[test]
fn the_routers_that_are_near_can_read_headers_and_nothing_else() {
    for (proactive, readers) in [(true, vec![R1, R2]), (false, vec![R1])] {
        let mut field = Field::zoned(10, true, proactive);
        field.up();
        assert_eq!(field.readers(), readers);
        field.assert_only_headers();
        field.assert_numbers_differ();
        assert!(readers.iter().all(|router| field.holding(*router) == Some(Holding::Held)));
    }
}

#[test]
fn what_a_handoff_leaves_behind_is_revoked_and_what_is_ahead_is_there_before() {
    let mut field = Field::zoned(11, true, true);
    let (sa, _) = field.up();
    field.move_to(sa, R3);
    field.run_for(seconds(2));
    assert_eq!(field.readers(), [R2, R3]);
    assert_eq!(field.holding(R1), Some(Holding::Forgotten));
    field.move_to(sa, R1);
    field.run_for(seconds(2));
    assert_eq!(field.readers(), [R1, R2], "back again");
    field.assert_only_headers();
    field.assert_numbers_differ();
}

/// With a first zone without bytes routers get its keys all the same.
#[test]
fn the_keys_of_a_zone_without_bytes_are_given_too() {
    let map = ZoneMap::new(vec![ZoneEnd::At(0)]).expect("a map");
    let of = |policy: ZonePolicy| Some(ZonePolicy { map: map.clone(), ..policy });
    let mut field = Field::new(14, device_conn(of(ZonePolicy::default())), of(zones(true, true)));
    field.up();
    field.run_for(seconds(2));
    assert_eq!(field.readers(), [R1, R2]);
    assert!(field.given.iter().all(|(_, grant)| grant.map == map));
    field.assert_only_headers();
}

/// What a compromised router that never forgets can read: the packets under the keys that it was given, until they are made anew because more
/// routers have had them than should.
#[test]
fn keys_that_too_many_routers_have_had_are_made_anew() {
    let policy = ZonePolicy { most_routers: 2, ..zones(true, true) };
    let mut field = Field::new(12, device_conn(zoned()), Some(policy));
    let (sa, _) = field.up();
    let first = Field::grant_of(field.current());
    field.run_for(seconds(60));
    assert_eq!(Field::grant_of(field.current()), first, "two have had them: as many as may");
    field.move_to(sa, R3);
    field.run_for(seconds(60));
    let second = Field::grant_of(field.current());
    assert_ne!(first, second);
    assert_eq!(field.readers(), [R2, R3]);
    // R1 may have kept what it had.
    let kept: Vec<_> =
        field.given.iter().filter(|(router, _)| *router == R1).map(|(_, g)| g.clone()).collect();
    assert!(!kept.is_empty());
    let child = field.current();
    for grant in kept {
        assert!(grant.id() == first && grant.to_device.keymat != child.keymat_out);
        assert!(grant.from_device.keymat != child.keymat_in);
    }
    field.run_for(seconds(600));
    assert_eq!(Field::grant_of(field.current()), second, "it goes on once, not for ever");
    assert!(ROUTERS.into_iter().all(|r| !field.headers[r].contains_key(&first)), "the old keys are revoked");
}

#[test]
fn new_keys_by_lifetime_reach_the_routers_before_the_old_ones_go() {
    let mut device = device_conn(zoned());
    device.children[0].lifetime = Lifetime::of_time(seconds(600));
    let mut field = Field::new(13, device, Some(zones(true, true)));
    field.up();
    let first = Field::grant_of(field.current());
    let mut seen = vec![first];
    for _ in 0..20_000 {
        field.run_for(Duration::from_millis(50));
        let both_ends = [DEVICE, GATEWAY].map(|side| field.sides[side].children.len());
        assert!(both_ends.iter().all(|n| *n >= 1), "there is always one to send on");
        let now = Field::grant_of(field.current());
        if !seen.contains(&now) {
            seen.push(now);
        }
        // The one before can be read as long as it is there.
        for child in field.sides[GATEWAY].children.values() {
            let id = Field::grant_of(child);
            let fresh = id == now;
            assert!(
                fresh
                    || field.headers[R1].contains_key(&id)
                    || !field.sides[DEVICE].children.values().any(|c| c.spi_out == id.from_device)
            );
        }
    }
    assert!(seen.len() >= 2);
    field.run_for(seconds(5));
    assert_eq!(field.readers(), [R1, R2]);
    assert_eq!(field.headers[R1].len(), 1, "old keys are forgotten");
    field.assert_numbers_differ();
}

#[test]
fn a_distribution_that_is_lost_is_made_again() {
    for seed in common::seeds(20) {
        let mut field = Field::zoned(seed, true, true);
        field.lost = 30;
        field.connect();
        for _ in 0..60 {
            field.run_for(seconds(5));
            if field.sides[GATEWAY].children.is_empty() {
                field.connect();
            }
        }
        field.lost = 0;
        field.run_for(seconds(120));
        assert_eq!(field.readers(), [R1, R2], "seed {seed}");
        field.assert_numbers_differ();
        field.assert_only_headers();
    }
}

#[test]
fn a_router_that_crashed_asks_again_and_gets_other_numbers() {
    let mut field = Field::zoned(14, true, true);
    field.up();
    field.crash(R1);
    field.link_up(R1, GATEWAY);
    field.run_for(seconds(2));
    let child = field.current();
    let (spi, gateway) = (child.child.spi(), field.path(R1, GATEWAY).remote.ip());
    assert!(field.sides[R1].endpoint.ask_for_keys(field.now, gateway, spi));
    field.run_for(seconds(2));
    assert_eq!(field.readers(), [R1, R2]);
    field.assert_numbers_differ();
}

#[test]
fn a_router_with_stale_or_used_up_keys_says_so_and_gets_others() {
    let mut field = Field::zoned(15, true, true);
    field.up();
    let id = Field::grant_of(field.current());
    for news in [HeaderNews::Stale(id), HeaderNews::Exhausted(id)] {
        let before = field.given.len();
        assert!(field.sides[R1].endpoint.header_news(field.now, news));
        field.run_for(seconds(1));
        assert_eq!(field.given.len(), before + 1);
    }
    field.assert_numbers_differ();
    // The SA is gone, and the Delete of its keys was lost with the IKE SA: the gateway no longer knows it.
    let kept = field.headers[R1].clone();
    let own = *field.sides[GATEWAY].children.keys().next().expect("one");
    field.filter = Some(Box::new(|from, to| !(from == GATEWAY && to == R1)));
    field.sides[GATEWAY].endpoint.delete_child(field.now, own);
    field.run_for(seconds(1));
    field.filter = None;
    assert_eq!(field.headers[R1].len(), kept.len());
    field.sides[R1].endpoint.header_news(field.now, HeaderNews::Stale(id));
    field.run_for(seconds(60));
    assert!(!field.headers[R1].contains_key(&id));
}

// ---- migration from router to router ----

#[test]
fn keys_move_with_the_device_and_are_made_anew() {
    let mut field = Field::zoned(16, false, false);
    let (_, session) = field.up();
    assert!(field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R1)));
    field.link_up(R2, R1);
    field.link_up(R2, GATEWAY);
    field.run_for(seconds(20));
    assert_eq!(field.readers(), [R1]);
    let first = Field::grant_of(field.current());
    assert!(field.fetch_first(R2, R1));
    field.run_for(Duration::from_millis(30));
    assert!(field.headers[R2].contains_key(&first) && !field.headers[R1].contains_key(&first), "they moved");
    field.run_for(seconds(20));
    let second = Field::grant_of(field.current());
    assert_ne!(first, second, "made anew after the handoff");
    assert_eq!(field.readers(), [R2]);
    field.assert_numbers_differ();
    field.assert_only_headers();
}

#[test]
fn two_handoffs_in_one_round_trip_end_with_the_last() {
    let mut field = Field::zoned(17, false, false);
    let (_, session) = field.up();
    field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R1));
    for (from, to) in [(R2, R1), (R3, R2), (R2, GATEWAY), (R3, GATEWAY)] {
        field.link_up(from, to);
    }
    field.run_for(seconds(20));
    let gateway = field.path(R2, GATEWAY).remote.ip();
    field.fetch_first(R2, R1);
    field.run_for(Duration::from_millis(5));
    // R2 has nothing yet, and says so; R3 then asks the gateway.
    field.fetch_first(R3, R2);
    field.run_for(seconds(60));
    let readers = field.readers();
    assert!(readers == [R3] || readers == [R2], "one router has the keys: {readers:?}");
    let spi = field.current().child.spi();
    field.sides[R3].endpoint.ask_for_keys(field.now, gateway, spi);
    field.run_for(seconds(30));
    assert_eq!(field.readers(), [R3]);
    field.assert_numbers_differ();
}

#[test]
fn what_no_previous_router_gives_the_gateway_gives() {
    let mut field = Field::zoned(18, false, false);
    let (_, session) = field.up();
    field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R1));
    for (from, to) in [(R2, R1), (R2, GATEWAY)] {
        field.link_up(from, to);
    }
    field.run_for(seconds(20));
    // R1 has lost everything, its link with R2 is up.
    field.crash(R1);
    field.run_for(seconds(1));
    field.link_up(R2, R1);
    assert!(field.fetch_first(R2, R1));
    field.run_for(seconds(600));
    assert_eq!(field.readers(), [R2], "the IKE SA was of the R1 that is no more");
    field.assert_numbers_differ();
}

#[test]
fn what_the_previous_router_does_not_have_the_gateway_gives() {
    let mut field = Field::zoned(28, false, false);
    let (_, session) = field.up();
    field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R3));
    for (from, to) in [(R2, R1), (R2, GATEWAY)] {
        field.link_up(from, to);
    }
    field.run_for(seconds(20));
    assert!(field.fetch_first(R2, R1));
    field.run_for(seconds(2));
    assert_eq!(field.readers(), [R2], "R1 has said that it knows nothing of it");
}

// ---- who may not ----

#[test]
fn a_router_gets_no_keys_of_a_device_that_is_not_near() {
    let mut field = Field::zoned(19, true, true);
    field.up();
    field.link_up(R3, GATEWAY);
    field.run_for(seconds(2));
    let (id, gateway) = (Field::grant_of(field.current()), field.path(R3, GATEWAY).remote.ip());
    for spi in [id.from_device, id.to_device, 0x1234_5678] {
        assert!(field.sides[R3].endpoint.ask_for_keys(field.now, gateway, spi), "it may ask");
        field.run_for(seconds(2));
        assert!(field.headers[R3].is_empty(), "and gets nothing");
    }
    assert_eq!(field.readers(), [R1, R2]);
}

#[test]
fn a_router_that_is_not_named_gets_no_keys() {
    let mut policy = zones(false, true);
    policy.routers.retain(|rule| rule.id != name(R3));
    // A neighbour that is not permitted is none, also if a router names it.
    let mut field = Field::new(20, device_conn(zoned()), Some(policy));
    let (_, session) = field.up();
    assert!(!field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R3)));
    field.sides[GATEWAY].endpoint.device_is_at(field.now, session, &name(R2));
    field.link_up(R3, GATEWAY);
    field.run_for(seconds(5));
    let (id, gateway) = (Field::grant_of(field.current()), field.path(R3, GATEWAY).remote.ip());
    field.sides[R3].endpoint.ask_for_keys(field.now, gateway, id.from_device);
    field.run_for(seconds(5));
    assert_eq!(field.readers(), [R1, R2]);
    assert!(field.headers[R3].is_empty());
}

/// A client that authenticates as a router is none: keys go over connections without children alone.
#[test]
fn a_client_is_no_router() {
    let mut device = device_conn(zoned());
    device.local_id = name(R1);
    let mut answering = gateway_psk();
    answering.remote_id = IdentityPattern::Suffix("example.org".to_owned());
    answering.children[0].zones = Some(zones(false, true));
    let mut pair = Pair::new(device, answering, 22);
    let (_, session) = pair.up();
    let asked = pair.gateway.endpoint.device_is_at(pair.now, session, &name(R1));
    assert!(asked);
    pair.settle();
    let described = pair.gateway.endpoint.describe(session).expect("a session");
    assert!(described.children[0].routers.iter().all(|h| h.holding == Holding::Wanted));
    assert!(
        pair.gateway
            .take(|e| matches!(e, Event::LinkWanted { peer } if *peer == name(R1)).then_some(()))
            .is_some()
    );
}

#[test]
fn an_ike_sa_without_children_needs_both_ends_to_want_none() {
    // A peer that has a child for us, and makes it at once or takes it for one that comes later.
    for childless in [Childless::Never, Childless::Allow] {
        let (mut caller, mut answering) = (link(R1, GATEWAY), gateway_psk());
        caller.local_id = common::fqdn("client.example.org");
        answering.opening.childless = childless;
        let mut pair = Pair::new(caller, answering, 23);
        pair.connect();
        pair.run_for(seconds(10));
        match childless {
            Childless::Never => {
                assert!(matches!(pair.client.failure(), Some(NegotiationError::Childless)));
                assert!(pair.gateway.established().is_none());
            }
            _ => {
                assert!(matches!(pair.client.failure(), Some(NegotiationError::Zones(_))));
                assert!(pair.gateway.endpoint.is_empty(), "it was told");
            }
        }
        assert!(pair.client.established().is_none());
    }
    // A peer that wants a child of us.
    let (caller, mut answering): (Connection, _) = (device_conn(None), link(GATEWAY, DEVICE));
    answering.role = Role::Responder;
    let mut pair = Pair::new(caller, answering, 24);
    pair.connect();
    pair.run_for(seconds(10));
    assert!(pair.client.failure().is_some() && pair.gateway.children.is_empty());
}

/// Everything at once, at random: routers crash, distributions are lost, the device moves while keys are made anew. What is left in the end is
/// what should be, and no number was used twice.
#[test]
fn in_the_end_the_routers_that_are_near_have_the_keys() {
    for seed in common::seeds(30) {
        let mut field = Field::zoned(1_000 + seed, true, true);
        let (sa, _) = field.up();
        let mut draw = dormouse_sansio::Seeded::new(seed);
        let mut draw = |below| {
            let drawn = dormouse_sansio::Entropy::below(&mut draw, below);
            usize::try_from(drawn).expect("small")
        };
        let mut last = R1;
        for _ in 0..20 {
            field.lost = [0, 0, 20][draw(3)];
            match draw(4) {
                0 => {
                    last = ROUTERS[draw(3)];
                    field.move_to(sa, last);
                }
                1 => {
                    let own = field.current().child;
                    field.sides[GATEWAY].endpoint.rekey_child(field.now, own);
                }
                2 => {
                    let router = ROUTERS[draw(3)];
                    field.crash(router);
                    field.link_up(router, GATEWAY);
                }
                _ => {
                    last = ROUTERS[draw(3)];
                    field.move_to(sa, last);
                    field.flush();
                    last = ROUTERS[draw(3)];
                    field.move_to(sa, last);
                }
            }
            field.run_for(Duration::from_millis(1 + 40 * draw(30) as u64));
        }
        field.lost = 0;
        field.run_for(seconds(120));
        // What a router sees that was restarted: packets for which it has no keys.
        let (id, gateway) = (Field::grant_of(field.current()), field.path(R1, GATEWAY).remote.ip());
        for router in ROUTERS {
            if !field.headers[router].contains_key(&id) {
                field.sides[router].endpoint.ask_for_keys(field.now, gateway, id.from_device);
            }
        }
        field.run_for(seconds(120));
        let near: Vec<usize> = ROUTERS.into_iter().filter(|r| r.abs_diff(last) <= 1).collect();
        assert_eq!(field.readers(), near, "seed {seed}");
        field.assert_numbers_differ();
        field.assert_only_headers();
    }
}

#[test]
fn a_device_that_is_nowhere_known_exposes_nothing() {
    let mut field = Field::zoned(25, true, true);
    field.at = behind(9);
    field.up();
    assert!(field.given.is_empty());
}
